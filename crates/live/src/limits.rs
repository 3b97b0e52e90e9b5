//! What the owner of an agent permits to controllers on other hosts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::Protocol;
use trunkline_io::{SocketError, socket};
use trunkline_run::reports::SenderReport;
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Span;

use crate::wire::{self, Cut, EndSpec, Role};

/// Limits of an agent. Each end is checked against them before it opens a socket; the default permits everything, as
/// on the controller's own machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Limits for controllers on other machines; none for the own machine.
    pub remote: Option<RemoteLimits>,
    /// Ports of receivers and of consent; none: the system chooses them.
    pub ports: Option<RangeInclusive<u16>>,
}

/// Limits for controllers on other machines. Load goes only to hosts that consent to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteLimits {
    /// Maximum rate of all messages that the ends of a run send, in bit/s, headers of lower layers excluded.
    pub rate_bps: u64,
    /// Maximum number of message bytes that an end sends.
    pub bytes: u64,
    /// Maximum time for which an end sends.
    pub duration: Span,
    /// Maximum number of open ends of a run.
    pub ends: usize,
    /// Multicast groups to which ends may send: networks as address and prefix length.
    pub groups: Vec<(IpAddr, u8)>,
    /// The folder with files that `file` tests may send; none: they may not.
    pub send_folder: Option<PathBuf>,
    /// The folder for received files; none: `file` tests may not receive.
    pub receive_folder: Option<PathBuf>,
}

/// Maximum size of a socket buffer or window.
const MAX_BUFFER: u64 = 64 << 20;
/// Maximum length of a message: it is sent at once, however low the rate limit is.
pub(crate) const MAX_MESSAGE: u32 = 1 << 20;
/// Minimum interval of reports.
const MIN_REPORT_INTERVAL: Span = Span::from_ms(20);

/// Error of opening a socket at one of the ports that the owner permits.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// None of the ports is free.
    #[error("all ports from {0} to {1}, which the owner of the agent permits, are in use")]
    AllInUse(u16, u16),
}

/// Opens a socket at the fixed port if there is one, otherwise at the first free one of `ports`, otherwise at any port.
pub(crate) fn open_at_port<T>(
    fixed: Option<u16>,
    ports: &Option<RangeInclusive<u16>>,
    open: impl FnMut(u16) -> Result<T, SocketError>,
) -> Result<T, PortError> {
    socket::first_free(fixed, ports.clone(), open).map_err(|error| match ports {
        Some(ports) if fixed.is_none() && error.cause.kind() == io::ErrorKind::AddrInUse => {
            PortError::AllInUse(*ports.start(), *ports.end())
        }
        _ => error.into(),
    })
}

/// What a limit forbids. The text is one line for the user of the controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Only transports whose destination can consent.
    #[error("an agent on another host does not run `{0}`")]
    Protocol(&'static str),
    /// The end has no consent to request.
    #[error("an agent on another host sends only to a host that proves its consent")]
    NoConsent,
    /// Consent would come from another host.
    #[error("consent would come from {0}, but the load goes to {1}")]
    OtherHost(IpAddr, IpAddr),
    /// The group is not among those that are permitted.
    #[error("the owner of the agent does not permit the multicast group {0}")]
    Group(IpAddr),
    /// The test takes too long.
    #[error("the owner of the agent permits tests of at most {0}")]
    Duration(Span),
    /// The test sends too much.
    #[error("the owner of the agent permits at most {0} bytes a test")]
    Bytes(u64),
    /// Responses are too many, or take too long.
    #[error("the owner of the agent does not permit so many bytes of responses, or for so long")]
    Responses,
    /// Too many ends.
    #[error("the owner of the agent permits at most {0} ends of connections at a time")]
    Ends(usize),
    /// The port is not among those that are permitted.
    #[error("the owner of the agent does not permit the port {0}")]
    Port(u16),
    /// A buffer is too large.
    #[error("an agent on another host has buffers of at most {} MiB", MAX_BUFFER >> 20)]
    Buffer,
    /// Streams or an MTU that no plan has.
    #[error("QUIC has 1 to 256 streams, and an MTU of 1,200 to 65,507 B")]
    Quic,
    /// A message is too long.
    #[error("an agent on another host sends messages of at most {} MiB", MAX_MESSAGE >> 20)]
    Message,
    /// Reports would be too frequent.
    #[error("an agent on another host reports at most every {MIN_REPORT_INTERVAL}")]
    ReportInterval,
    /// The operating system has no random numbers.
    #[error("the agent has no random numbers")]
    Random,
    /// Files may not be sent.
    #[error("the owner of the agent has named no folder for files to send")]
    NoSendFolder,
    /// Files may not be received.
    #[error("the owner of the agent has named no folder for received files")]
    NoReceiveFolder,
    /// The file does not exist, or is not below the folder.
    #[error("{0}: no such file below the folder that the owner of the agent has named")]
    File(PathBuf),
}

/// Returns the limit that ended a sender with this report.
/// `elapsed` is the time since its start.
pub(crate) fn reached(cut: Cut, report: &SenderReport, elapsed: Span) -> Option<LimitError> {
    let bytes = cut.bytes.filter(|bytes| report.bytes >= *bytes).map(LimitError::Bytes);
    let is_over = |time: &Span| elapsed >= *time;
    bytes.or(cut.time.filter(is_over).map(LimitError::Duration))
}

impl Limits {
    /// Checks an end, and restricts what it leaves open. `open` is the number of open ends.
    pub(crate) fn restrict(&self, spec: &mut EndSpec, open: usize) -> Result<(), LimitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        if let (Some(port), Some(ports)) = (spec.port, &self.ports)
            && !ports.contains(&port)
        {
            return Err(LimitError::Port(port));
        }
        remote.restrict(spec, open)
    }
}

/// The host of an address: a link-local one is another host on another interface.
fn host(address: SocketAddr) -> (IpAddr, u32) {
    let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
    (address.ip().to_canonical(), scope)
}

impl RemoteLimits {
    /// Checks an end, and restricts what it leaves open: its time, its bytes, its files. `open` is the number of open ends.
    fn restrict(&self, spec: &mut EndSpec, open: usize) -> Result<(), LimitError> {
        // Each receiver of a group is an end, and takes memory at the sender.
        let receivers = if let Role::Sender { receivers, .. } = spec.role { receivers } else { 0 };
        if open >= self.ends || receivers > self.ends {
            return Err(LimitError::Ends(self.ends));
        }
        check_sizes(spec)?;
        let needs = spec.consent.needs.as_ref().map(|needs| host(needs.destination));
        let gives = spec.consent.gives.as_ref().map(|gives| gives.source.to_canonical());
        let has_answers = wire::has_answers(&spec.protocol, &spec.pattern);
        match (&spec.protocol, &spec.role) {
            // Groups cannot consent, so nothing but messages to permitted groups may be sent.
            (Protocol::Multicast { .. }, _) if has_answers => return Err(LimitError::NoConsent),
            (Protocol::Multicast { group, .. }, role) => {
                let peer = if let Role::Sender { peer, .. } = role { peer.ip() } else { *group };
                let is_permitted = |group: &IpAddr| self.groups.iter().any(|net| contains(*net, *group));
                let groups = [*group, peer].map(|group| group.to_canonical());
                if let Some(group) = groups.iter().find(|group| !group.is_multicast() || !is_permitted(group))
                {
                    return Err(LimitError::Group(*group));
                }
            }
            (
                Protocol::Tcp { .. }
                | Protocol::Udp { .. }
                | Protocol::Guaranteed { .. }
                | Protocol::Quic { .. }
                | Protocol::Stamp,
                role,
            ) => match role {
                Role::Sender { peer, .. } => {
                    let (needs, peer) = (needs.ok_or(LimitError::NoConsent)?, host(*peer));
                    if needs != peer {
                        return Err(LimitError::OtherHost(needs.0, peer.0));
                    }
                }
                // Responses and reports of progress go to the sender, so it is one that is named.
                Role::Receiver { .. } => {
                    let source = gives.ok_or(LimitError::NoConsent)?;
                    match needs {
                        Some((needs, _)) if needs != source => {
                            return Err(LimitError::OtherHost(needs, source));
                        }
                        None if has_answers => return Err(LimitError::NoConsent),
                        _ => {}
                    }
                }
            },
            (protocol, _) => return Err(LimitError::Protocol(protocol.name())),
        }
        match &mut spec.role {
            Role::Sender { limit, file, .. } => {
                if limit.time.is_some_and(|time| time > self.duration) {
                    return Err(LimitError::Duration(self.duration));
                }
                if limit.bytes.is_some_and(|bytes| bytes > self.bytes) {
                    return Err(LimitError::Bytes(self.bytes));
                }
                spec.cut = Cut {
                    time: limit.time.is_none().then_some(self.duration),
                    bytes: limit.bytes.is_none().then_some(self.bytes),
                };
                limit.time.get_or_insert(self.duration);
                limit.bytes.get_or_insert(self.bytes);
                if let Some(path) = file {
                    *path = self.file_to_send(path)?;
                }
            }
            Role::Receiver { file } => {
                // Of responses, and of a received file.
                spec.cut = Cut { time: Some(self.duration), bytes: Some(self.bytes) };
                if let Some(path) = file {
                    let folder = self.receive_folder.as_ref().ok_or(LimitError::NoReceiveFolder)?;
                    let name = path.file_name().ok_or_else(|| LimitError::File(path.clone()))?;
                    // A name that the controller does not know before: it cannot be that of another file.
                    *path = folder.join(format!("{:016x}", random()?)).join(name);
                }
            }
        }
        Ok(())
    }

    /// Returns the path of a file below the folder of files that may be sent.
    fn file_to_send(&self, path: &Path) -> Result<PathBuf, LimitError> {
        let folder = self.send_folder.as_ref().ok_or(LimitError::NoSendFolder)?;
        let missing = || LimitError::File(path.to_owned());
        let folder = folder.canonicalize().map_err(|_| missing())?;
        let file = folder.join(path).canonicalize().map_err(|_| missing())?;
        if file.starts_with(&folder) && file.is_file() { Ok(file) } else { Err(missing()) }
    }
}

/// Checks sizes that would cost memory, or that the rate limit could not divide.
fn check_sizes(spec: &EndSpec) -> Result<(), LimitError> {
    let window = match &spec.protocol {
        Protocol::Tcp { window, .. } | Protocol::Quic { window, .. } => *window,
        _ => None,
    };
    let buffers = [spec.buffer, window];
    if let Protocol::Quic { streams, mtu, .. } = &spec.protocol
        && !((1..=256).contains(streams) && (1200..=65_507).contains(&mtu.as_bytes()))
    {
        return Err(LimitError::Quic);
    }
    if buffers.iter().flatten().any(|size| size.as_bytes() > MAX_BUFFER) {
        return Err(LimitError::Buffer);
    }
    if spec.report_interval.is_some_and(|interval| interval < MIN_REPORT_INTERVAL) {
        return Err(LimitError::ReportInterval);
    }
    let sizes: &[&Variable] = match &spec.pattern {
        Pattern::Full { size_bytes }
        | Pattern::Poisson { size_bytes, .. }
        | Pattern::Stairs { size_bytes, .. }
        | Pattern::Application { size_bytes, .. }
        | Pattern::Replay { size_bytes, .. }
        | Pattern::File { size_bytes, .. } => &[size_bytes],
        Pattern::Cbr { burst, .. } | Pattern::Burst { burst, .. } | Pattern::Random { burst, .. } => {
            &[&burst.size_bytes]
        }
        Pattern::Request { request_bytes, response_bytes } => &[request_bytes, response_bytes],
    };
    let is_too_long =
        |size: &&Variable| matches!(size, Variable::Constant(size) if *size > f64::from(MAX_MESSAGE));
    if sizes.iter().any(is_too_long) { Err(LimitError::Message) } else { Ok(()) }
}

fn random() -> Result<u64, LimitError> {
    getrandom::u64().map_err(|_| LimitError::Random)
}

/// Returns whether a network contains an address.
fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let (network, address, bits) = match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let shift = u32::from(bits - length.min(bits));
    (network ^ address).checked_shr(shift).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_traffic::source::Limit;
    use trunkline_units::{Seed, Size};

    use super::*;
    use crate::consent::{RunId, RunKey};
    use crate::wire::{EndConsent, GivenConsent, NeededConsent};

    fn limits() -> RemoteLimits {
        RemoteLimits {
            rate_bps: 1_000_000,
            bytes: 1_000,
            duration: Span::from_s(60),
            ends: 2,
            groups: vec![("239.1.0.0".parse().unwrap(), 16)],
            send_folder: None,
            receive_folder: None,
        }
    }

    fn needs(host: &str) -> Option<NeededConsent> {
        let destination = SocketAddr::new(host.parse().unwrap(), 9);
        Some(NeededConsent { destination, run: RunId([0; 8]), key: RunKey::new([0; 32]) })
    }

    fn gives(host: &str) -> Option<GivenConsent> {
        let source = host.parse().unwrap();
        Some(GivenConsent { source, run: RunId([0; 8]), key: RunKey::new([0; 32]) })
    }

    fn sender(protocol: Protocol, peer: &str) -> EndSpec {
        EndSpec {
            id: 1,
            repetition_name: "c".into(),
            token: 7,
            seed: Seed(1),
            address: "10.0.0.1".parse().unwrap(),
            port: None,
            buffer: None,
            protocol,
            pattern: Pattern::Full { size_bytes: Variable::Constant(100.0) },
            peer_key: None,
            role: Role::Sender {
                peer: peer.parse().unwrap(),
                limit: Limit::default(),
                receivers: 1,
                file: None,
            },
            receiver: 0,
            dscp: None,
            report_interval: None,
            consent: EndConsent { needs: needs("10.0.0.2"), gives: None },
            epoch_ns: None,
            unix_epoch: Duration::ZERO,
            cut: Cut::default(),
        }
    }

    fn request() -> Pattern {
        let size = Variable::Constant(64.0);
        Pattern::Request { request_bytes: size.clone(), response_bytes: size }
    }

    fn udp() -> Protocol {
        Protocol::Udp { flow_control: true }
    }

    #[test]
    fn load_goes_only_to_the_host_that_consents() {
        let check = |spec: EndSpec| limits().restrict(&mut spec.clone(), 0);
        assert_eq!(check(sender(udp(), "10.0.0.2:5")), Ok(()));
        let other = Err(LimitError::OtherHost("10.0.0.2".parse().unwrap(), "10.0.0.3".parse().unwrap()));
        assert_eq!(check(sender(udp(), "10.0.0.3:5")), other);
        let mut none = sender(udp(), "10.0.0.2:5");
        none.consent.needs = None;
        assert_eq!(check(none), Err(LimitError::NoConsent));
        // Responses are load, and so are answers of a reflector.
        let mut responder = sender(udp(), "10.0.0.2:5");
        responder.pattern = request();
        for mut receiver in [responder, sender(Protocol::Stamp, "10.0.0.2:5")] {
            receiver.role = Role::Receiver { file: None };
            assert_eq!(check(receiver.clone()), Err(LimitError::NoConsent));
            receiver.consent.gives = gives("10.0.0.4");
            assert!(matches!(check(receiver.clone()), Err(LimitError::OtherHost(..))));
            receiver.consent.gives = gives("10.0.0.2");
            assert_eq!(check(receiver.clone()), Ok(()));
            receiver.consent.needs = None;
            assert_eq!(check(receiver), Err(LimitError::NoConsent));
        }
    }

    #[test]
    fn groups_and_protocols_are_refused_unless_permitted() {
        let multicast = |group: &str| {
            let spec =
                sender(Protocol::Multicast { group: group.parse().unwrap(), ttl: 1 }, &format!("{group}:5"));
            limits().restrict(&mut spec.clone(), 0)
        };
        assert_eq!(multicast("239.1.2.3"), Ok(()));
        for group in ["239.2.0.1", "10.0.0.2", "224.0.0.1"] {
            assert_eq!(multicast(group), Err(LimitError::Group(group.parse().unwrap())));
        }
        // The peer is what is sent to.
        let mut receiver =
            sender(Protocol::Multicast { group: "239.2.0.1".parse().unwrap(), ttl: 1 }, "239.2.0.1:5");
        receiver.role = Role::Receiver { file: None };
        let group = Err(LimitError::Group("239.2.0.1".parse().unwrap()));
        assert_eq!(limits().restrict(&mut receiver, 0), group, "a receiver");
        receiver.protocol = Protocol::Multicast { group: "239.1.2.3".parse().unwrap(), ttl: 1 };
        assert_eq!(limits().restrict(&mut receiver, 0), Ok(()));
        receiver.pattern = request();
        assert_eq!(limits().restrict(&mut receiver, 0), Err(LimitError::NoConsent));
        let mut spec =
            sender(Protocol::Multicast { group: "239.1.2.3".parse().unwrap(), ttl: 1 }, "10.0.0.9:5");
        assert_eq!(limits().restrict(&mut spec, 0), Err(LimitError::Group("10.0.0.9".parse().unwrap())));
    }

    #[test]
    fn what_a_test_leaves_open_is_limited() {
        let mut spec = sender(udp(), "10.0.0.2:5");
        limits().restrict(&mut spec, 1).unwrap();
        let Role::Sender { limit, .. } = &spec.role else { panic!("a sender") };
        assert_eq!((limit.time, limit.bytes), (Some(Span::from_s(60)), Some(1_000)));
        let report = |bytes| SenderReport { bytes, ..SenderReport::default() };
        assert_eq!(reached(spec.cut, &report(999), Span::from_s(59)), None);
        assert_eq!(reached(spec.cut, &report(1_000), Span::ZERO), Some(LimitError::Bytes(1_000)));
        let over = LimitError::Duration(Span::from_s(60));
        assert_eq!(reached(spec.cut, &report(999), Span::from_s(60)), Some(over));
        assert_eq!(limits().restrict(&mut spec, 2), Err(LimitError::Ends(2)));
        let with = |change: fn(&mut Limit)| {
            let mut spec = sender(udp(), "10.0.0.2:5");
            let Role::Sender { limit, .. } = &mut spec.role else { panic!("a sender") };
            change(limit);
            limits().restrict(&mut spec, 0)
        };
        assert_eq!(
            with(|limit| limit.time = Some(Span::from_s(61))),
            Err(LimitError::Duration(Span::from_s(60)))
        );
        assert_eq!(with(|limit| limit.bytes = Some(1_001)), Err(LimitError::Bytes(1_000)));
    }

    #[test]
    fn files_are_below_the_folders_of_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("files"), folder.path().join("secret"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("data"), "x").unwrap();
        std::fs::write(&outside, "x").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let send = |limits: &RemoteLimits, path: &str| {
            let mut spec = sender(udp(), "10.0.0.2:5");
            let Role::Sender { file, .. } = &mut spec.role else { panic!("a sender") };
            *file = Some(path.into());
            limits.restrict(&mut spec, 0)
        };
        assert_eq!(send(&limits(), "data"), Err(LimitError::NoSendFolder));
        let own = RemoteLimits { send_folder: Some(inside), receive_folder: Some("/r".into()), ..limits() };
        assert_eq!(send(&own, "data"), Ok(()));
        let absolute = outside.to_str().unwrap();
        for path in ["../secret", "link", absolute, "missing", ".", ""] {
            assert_eq!(send(&own, path), Err(LimitError::File(path.into())), "{path}");
        }
        let mut spec = sender(udp(), "10.0.0.2:5");
        spec.role = Role::Receiver { file: Some("../../etc/passwd".into()) };
        spec.consent.gives = gives("10.0.0.2");
        own.restrict(&mut spec, 0).unwrap();
        let Role::Receiver { file: Some(path) } = &spec.role else { panic!("a receiver") };
        assert!(
            path.starts_with("/r") && path.ends_with("passwd") && path.components().count() == 4,
            "{path:?}"
        );
        spec.role = Role::Receiver { file: Some("x/..".into()) };
        assert!(own.restrict(&mut spec, 0).is_err());
    }

    #[test]
    fn ports_that_are_all_in_use_are_named() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let udp =
            |port| socket::udp(("127.0.0.1".parse::<IpAddr>().unwrap(), port).into(), &Default::default());
        let text = |fixed, ports| open_at_port(fixed, &ports, udp).unwrap_err().to_string();
        let all =
            format!("all ports from {port} to {port}, which the owner of the agent permits, are in use");
        assert_eq!(text(None, Some(port..=port)), all);
        let fixed = text(Some(port), Some(port..=port));
        assert!(!fixed.contains("all ports") && fixed.contains(&port.to_string()), "{fixed}");
        assert!(open_at_port(None, &None, udp).is_ok());
    }

    #[test]
    fn receivers_of_a_group_are_ends() {
        let restrict = |count| {
            let mut spec = sender(udp(), "10.0.0.2:5");
            if let Role::Sender { receivers, .. } = &mut spec.role {
                *receivers = count;
            }
            limits().restrict(&mut spec, 0)
        };
        let most = limits().ends;
        assert_eq!(restrict(most), Ok(()));
        assert_eq!(restrict(usize::MAX), Err(LimitError::Ends(most)));
    }

    #[test]
    fn quic_has_limits() {
        let restrict = |streams, mtu| {
            let (congestion, window, mtu) = (Default::default(), None, Size::from_bytes(mtu));
            let protocol = Protocol::Quic { congestion, window, streams, datagrams: false, mtu };
            limits().restrict(&mut sender(protocol, "10.0.0.2:5"), 0)
        };
        assert_eq!(restrict(256, 65_507), Ok(()));
        for (streams, mtu) in [(0, 1452), (257, 1452), (1, 1199), (1, 65_508)] {
            assert_eq!(restrict(streams, mtu), Err(LimitError::Quic), "{streams} {mtu}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        let net = |text: &str, length| (text.parse().unwrap(), length);
        let address = |text: &str| text.parse().unwrap();
        assert!(contains(net("239.1.0.0", 16), address("239.1.255.1")));
        assert!(!contains(net("239.1.0.0", 16), address("239.2.0.0")));
        assert!(
            contains(net("0.0.0.0", 0), address("1.2.3.4")) && contains(net("::", 0), address("ff02::1"))
        );
        assert!(!contains(net("0.0.0.0", 0), address("ff02::1")));
        assert!(!contains(net("1.2.3.4", 32), address("1.2.3.5")));
        assert!(
            contains(net("ff02::", 16), address("ff02::9"))
                && !contains(net("ff02::", 16), address("ff05::9"))
        );
    }
}

//! What the owner of an agent permits to controllers on other hosts.
//!
//! | module | contents |
//! | --- | --- |
//! | `sizes` | sizes of messages, responses, buffers and memory |

mod sizes;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::Protocol;
use trunkline_io::{SocketError, socket};
use trunkline_run::reports::SenderReport;
use trunkline_units::Span;

use self::sizes::{MAX_BUFFER, MIN_REPORT_INTERVAL, check_sizes};
pub(crate) use self::sizes::{MAX_MESSAGE, memory};
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
    /// Maximum memory of a run, in bytes. Ends whose estimates exceed it are refused.
    pub memory: u64,
    /// Multicast groups to which ends may send: networks as address and prefix length.
    pub groups: Vec<(IpAddr, u8)>,
    /// The folder with files that `file` tests may send; none: they may not.
    pub send_folder: Option<PathBuf>,
    /// The folder for received files; none: `file` tests may not receive.
    pub receive_folder: Option<PathBuf>,
}

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
    /// A response cannot be sent in pieces, and is too long.
    #[error(
        "an agent on another host sends responses of at most {} MiB over `guaranteed`: use `tcp` or `quic`",
        MAX_MESSAGE >> 20
    )]
    Response,
    /// The ends need too much memory.
    #[error(
        "the ends that are open need about {} MiB of memory, and the owner of the agent permits {} MiB to a run",
        .0 >> 20, .1 >> 20
    )]
    Memory(u64, u64),
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenEnds {
    pub count: usize,
    /// The sum of their estimates, see [`memory`].
    pub memory: u64,
}

impl Limits {
    /// Compares an end with the limits before any end opens. A file to send may still be created.
    pub(crate) fn check(&self, spec: &EndSpec) -> Result<(), LimitError> {
        self.apply(&mut spec.clone(), OpenEnds::default(), MissingFile::Permitted)
    }

    /// Checks an end that opens now, and restricts what it leaves open.
    pub(crate) fn restrict(&self, spec: &mut EndSpec, open: OpenEnds) -> Result<(), LimitError> {
        self.apply(spec, open, MissingFile::Refused)
    }

    fn apply(&self, spec: &mut EndSpec, open: OpenEnds, missing: MissingFile) -> Result<(), LimitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        if let (Some(port), Some(ports)) = (spec.port, &self.ports)
            && !ports.contains(&port)
        {
            return Err(LimitError::Port(port));
        }
        remote.restrict(spec, open, missing)
    }
}

/// What is decided on a file to send that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingFile {
    Permitted,
    Refused,
}

/// The host of an address: a link-local one is another host on another interface.
fn host(address: SocketAddr) -> (IpAddr, u32) {
    let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
    (address.ip().to_canonical(), scope)
}

impl RemoteLimits {
    /// Checks an end, and restricts what it leaves open: its time, its bytes, its files.
    fn restrict(&self, spec: &mut EndSpec, open: OpenEnds, missing: MissingFile) -> Result<(), LimitError> {
        // Each receiver of a group is an end, and takes memory at the sender.
        let receivers = if let Role::Sender { receivers, .. } = spec.role { receivers } else { 0 };
        if open.count >= self.ends || receivers > self.ends {
            return Err(LimitError::Ends(self.ends));
        }
        check_sizes(spec)?;
        let needed = open.memory.saturating_add(memory(spec));
        if needed > self.memory {
            return Err(LimitError::Memory(needed, self.memory));
        }
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
                    *path = self.file_to_send(path, missing)?;
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
    fn file_to_send(&self, path: &Path, missing: MissingFile) -> Result<PathBuf, LimitError> {
        let folder = self.send_folder.as_ref().ok_or(LimitError::NoSendFolder)?;
        let refusal = || LimitError::File(path.to_owned());
        let folder = folder.canonicalize().map_err(|_| refusal())?;
        match folder.join(path).canonicalize() {
            Ok(file) if file.starts_with(&folder) && file.is_file() => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing == MissingFile::Permitted => {
                may_appear(&folder, path).ok_or_else(refusal)
            }
            _ => Err(refusal()),
        }
    }
}

/// Returns the path of a file that does not exist, if it could be created below the folder: its nearest folder that exists is
/// there.
fn may_appear(folder: &Path, path: &Path) -> Option<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.file_name().is_none() || !path.components().all(is_plain) {
        return None;
    }
    let file = folder.join(path);
    let above = file.ancestors().skip(1).find_map(|above| above.canonicalize().ok())?;
    (above.starts_with(folder) && above.is_dir()).then_some(file)
}

fn random() -> Result<u64, LimitError> {
    getrandom::u64().map_err(|_| LimitError::Random)
}

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
mod tests;

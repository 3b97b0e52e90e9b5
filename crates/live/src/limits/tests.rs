use std::time::Duration;

use trunkline_traffic::source::Limit;
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Seed, Size};

use super::sizes::END_MEMORY;
use super::*;
use crate::consent::{RunId, RunKey};
use crate::wire::{EndConsent, GivenConsent, NeededConsent};

fn limits() -> RemoteLimits {
    RemoteLimits {
        rate_bps: 1_000_000,
        bytes: 1_000,
        duration: Span::from_s(60),
        ends: 2,
        memory: 1 << 30,
        groups: vec![("239.1.0.0".parse().unwrap(), 16)],
        send_folder: None,
        receive_folder: None,
    }
}

/// Opens an end when `count` others are open.
fn open_end(limits: &RemoteLimits, spec: &mut EndSpec, count: usize) -> Result<(), LimitError> {
    limits.restrict(spec, OpenEnds { count, memory: 0 }, MissingFile::Refused)
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
        rate_controller: None,
        role: Role::Sender { peer: peer.parse().unwrap(), limit: Limit::default(), receivers: 1, file: None },
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
    Protocol::Udp { flow_control: true, credit_window: None }
}

#[test]
fn load_goes_only_to_the_host_that_consents() {
    let check = |spec: EndSpec| open_end(&limits(), &mut spec.clone(), 0);
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
        open_end(&limits(), &mut spec.clone(), 0)
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
    assert_eq!(open_end(&limits(), &mut receiver, 0), group, "a receiver");
    receiver.protocol = Protocol::Multicast { group: "239.1.2.3".parse().unwrap(), ttl: 1 };
    assert_eq!(open_end(&limits(), &mut receiver, 0), Ok(()));
    receiver.pattern = request();
    assert_eq!(open_end(&limits(), &mut receiver, 0), Err(LimitError::NoConsent));
    let mut spec = sender(Protocol::Multicast { group: "239.1.2.3".parse().unwrap(), ttl: 1 }, "10.0.0.9:5");
    assert_eq!(open_end(&limits(), &mut spec, 0), Err(LimitError::Group("10.0.0.9".parse().unwrap())));
}

#[test]
fn what_a_test_leaves_open_is_limited() {
    let mut spec = sender(udp(), "10.0.0.2:5");
    open_end(&limits(), &mut spec, 1).unwrap();
    let Role::Sender { limit, .. } = &spec.role else { panic!("a sender") };
    assert_eq!((limit.time, limit.bytes), (Some(Span::from_s(60)), Some(1_000)));
    let report = |bytes| SenderReport { bytes, ..SenderReport::default() };
    assert_eq!(reached(spec.cut, &report(999), Span::from_s(59)), None);
    assert_eq!(reached(spec.cut, &report(1_000), Span::ZERO), Some(LimitError::Bytes(1_000)));
    let over = LimitError::Duration(Span::from_s(60));
    assert_eq!(reached(spec.cut, &report(999), Span::from_s(60)), Some(over));
    assert_eq!(open_end(&limits(), &mut spec, 2), Err(LimitError::Ends(2)));
    let with = |change: fn(&mut Limit)| {
        let mut spec = sender(udp(), "10.0.0.2:5");
        let Role::Sender { limit, .. } = &mut spec.role else { panic!("a sender") };
        change(limit);
        open_end(&limits(), &mut spec, 0)
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
        open_end(limits, &mut spec, 0)
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
    open_end(&own, &mut spec, 0).unwrap();
    let Role::Receiver { file: Some(path) } = &spec.role else { panic!("a receiver") };
    assert!(path.starts_with("/r") && path.ends_with("passwd") && path.components().count() == 4, "{path:?}");
    spec.role = Role::Receiver { file: Some("x/..".into()) };
    assert!(open_end(&own, &mut spec, 0).is_err());
}

#[test]
fn ports_that_are_all_in_use_are_named() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let udp = |port| socket::udp(("127.0.0.1".parse::<IpAddr>().unwrap(), port).into(), &Default::default());
    let text = |fixed, ports| open_at_port(fixed, &ports, udp).unwrap_err().to_string();
    let all = format!("all ports from {port} to {port}, which the owner of the agent permits, are in use");
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
        open_end(&limits(), &mut spec, 0)
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
        open_end(&limits(), &mut sender(protocol, "10.0.0.2:5"), 0)
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
    assert!(contains(net("0.0.0.0", 0), address("1.2.3.4")) && contains(net("::", 0), address("ff02::1")));
    assert!(!contains(net("0.0.0.0", 0), address("ff02::1")));
    assert!(!contains(net("1.2.3.4", 32), address("1.2.3.5")));
    assert!(
        contains(net("ff02::", 16), address("ff02::9")) && !contains(net("ff02::", 16), address("ff05::9"))
    );
}

/// Returns what the limits say of an end of this pattern over this protocol.
fn check_pattern(limits: &RemoteLimits, protocol: Protocol, pattern: Pattern) -> Result<(), LimitError> {
    let mut spec = sender(protocol, "10.0.0.2:5");
    spec.pattern = pattern;
    open_end(limits, &mut spec, 0)
}

fn tcp() -> Protocol {
    Protocol::Tcp {
        window: None,
        congestion: None,
        nodelay: true,
        timers: Default::default(),
        delayed_ack: Default::default(),
        extensions: Default::default(),
    }
}

fn guaranteed() -> Protocol {
    let text = "experiment { connection c { xmt = a; rcv = b; protocol = guaranteed; test = full; duration = 1 s; } }";
    let source = trunkline_experiment::Source { name: "test.ns", text, folder: None };
    trunkline_experiment::parse(&source).plan.unwrap().connections[0].protocol.clone()
}

fn model(name: &str, set: &[(&str, Variable)]) -> Pattern {
    let model = trunkline_traffic::Application::named(name).unwrap();
    let mut parameters = model.defaults(None);
    for (name, value) in set {
        parameters.iter_mut().find(|(other, _)| other == name).unwrap().1 = value.clone();
    }
    Pattern::Application { model, variant: None, size_bytes: Variable::Constant(1_400.0), parameters }
}

#[test]
fn messages_that_would_be_cut_are_refused() {
    let full = |size_bytes| Pattern::Full { size_bytes };
    let check = |protocol, pattern| check_pattern(&limits(), protocol, pattern);
    let mean = |mean| Variable::Exponential { mean };
    for (size, result) in [
        (Variable::Constant(1_048_576.0), Ok(())),
        (Variable::Constant(1_048_577.0), Err(LimitError::Message)),
        (mean(20_000.0), Ok(())),
        (mean(200_000.0), Err(LimitError::Message)),
    ] {
        assert_eq!(check(tcp(), full(size.clone())), result, "{size:?}");
    }
    // A datagram is shorter on every host.
    assert_eq!(check(udp(), full(mean(200_000.0))), Ok(()));
    let replay = |bytes| Pattern::Replay {
        request: trunkline_traffic::RecordingRequest {
            path: String::new(),
            column: String::new(),
            filter: String::new(),
            values: trunkline_traffic::recording::RecordedValues::Sizes,
            message_bytes: 0.0,
        },
        recording: trunkline_traffic::Recording::new(vec![(0, 10), (5, bytes), (7, 20)]).unwrap(),
        scale: 1.0,
        size_bytes: Variable::Constant(1e6),
    };
    assert_eq!(check(tcp(), replay(1 << 20)), Ok(()));
    assert_eq!(check(tcp(), replay((1 << 20) + 1)), Err(LimitError::Message));
    // A check has the longest message, a receiver has none.
    assert_eq!(check(tcp(), replay((1 << 20) + 1).with_longest_message()), Err(LimitError::Message));
    assert_eq!(replay(9).without_messages().memory(), 0);
}

#[test]
fn long_responses_need_a_stream_that_divides_them() {
    let check = |protocol, pattern| check_pattern(&limits(), protocol, pattern);
    let request =
        |response_bytes| Pattern::Request { request_bytes: Variable::Constant(64.0), response_bytes };
    let calls =
        |response| model("rpc", &[("maxOutstanding", Variable::Constant(1.0)), ("response", response)]);
    let long = Variable::Constant(2e6);
    for pattern in [request(long.clone()), calls(long), model("www", &[]), model("video", &[])] {
        assert_eq!(check(tcp(), pattern.clone()), Ok(()), "{pattern:?}");
        assert_eq!(check(guaranteed(), pattern.clone()), Err(LimitError::Response), "{pattern:?}");
    }
    assert_eq!(check(guaranteed(), request(Variable::Exponential { mean: 1_000.0 })), Ok(()));
    assert_eq!(check(guaranteed(), calls(Variable::Exponential { mean: 1_000.0 })), Ok(()));
    let likely = request(Variable::Pareto { shape: 1.1, min: 1_000.0 });
    assert_eq!(check(guaranteed(), likely), Err(LimitError::Response));
}

#[test]
fn the_memory_of_all_open_ends_is_limited() {
    let small = RemoteLimits { memory: 100 << 20, ..limits() };
    let sensors = |sources| model("sensor", &[("sources", Variable::Constant(sources))]);
    assert_eq!(check_pattern(&small, udp(), sensors(1e5)), Ok(()));
    let error = check_pattern(&small, udp(), sensors(1e6)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the ends that are open need about 196 MiB of memory, and the owner of the agent permits 100 MiB to a run"
    );
    let mut spec = sender(udp(), "10.0.0.2:5");
    spec.pattern = sensors(1e5);
    let one = memory(&spec);
    let mut with = |memory| small.restrict(&mut spec, OpenEnds { count: 1, memory }, MissingFile::Refused);
    assert_eq!(with(small.memory - one), Ok(()));
    assert_eq!(with(small.memory - one + 1), Err(LimitError::Memory(small.memory + 1, small.memory)));
    // Buffers count.
    let mut spec = sender(udp(), "10.0.0.2:5");
    spec.buffer = Some(Size::from_bytes(64 << 20));
    assert_eq!(memory(&spec), END_MEMORY + (64 << 20));
}

#[test]
fn a_check_permits_a_file_that_may_still_appear() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("files"), folder.path().join("outside"));
    std::fs::create_dir_all(inside.join("sub")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(inside.join("data"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
    let remote = RemoteLimits { send_folder: Some(inside.clone()), ..limits() };
    let limits = Limits { remote: Some(remote), ports: None };
    let spec = |path: &str| {
        let mut spec = sender(udp(), "10.0.0.2:5");
        let Role::Sender { file, .. } = &mut spec.role else { panic!("a sender") };
        *file = Some(path.into());
        spec
    };
    let absolute = outside.join("later");
    for path in ["later", "sub/later", "new/later"] {
        assert_eq!(limits.check(&spec(path)), Ok(()), "{path}");
        let refused = Err(LimitError::File(path.into()));
        assert_eq!(limits.restrict(&mut spec(path), OpenEnds::default()), refused, "{path}");
    }
    for path in
        ["../outside/later", "link/later", absolute.to_str().unwrap(), "data/later", "sub/..", "", "sub"]
    {
        assert_eq!(limits.check(&spec(path)), Err(LimitError::File(path.into())), "{path}");
    }
    std::fs::write(inside.join("later"), "x").unwrap();
    assert_eq!(limits.restrict(&mut spec("later"), OpenEnds::default()), Ok(()));
}

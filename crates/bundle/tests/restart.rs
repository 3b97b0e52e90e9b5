//! Restarts and refusals in format 1 (classic): state is refreshed after a restart and removed after a refusal.

use std::collections::BTreeSet;
use std::convert::Infallible;

use crate::simulation::{join, leave};

use trunkline_bundle::Settings;
use trunkline_bundle::central::{self, Central, CentralConfig};
use trunkline_bundle::drops::{CountUnsent, DropCounts, DropReason};
use trunkline_bundle::host::{self, Host};
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::wire::classic::{CONTROL, ClassicBundle, ClassicControl, MAX_BUNDLE, Source};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span};

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_ms(ms)
}

/// A single endpoint whose output is recorded.
struct SingleEndpoint<E: Endpoint> {
    machine: Checked<E>,
    now: Instant,
    events: Vec<E::Event>,
    sent: Vec<(Transmit, Vec<u8>)>,
}

impl<E: Endpoint> SingleEndpoint<E>
where
    E::Refusal: std::fmt::Debug,
{
    fn new(machine: E) -> SingleEndpoint<E> {
        let machine = Checked::new(machine);
        SingleEndpoint { machine, now: Instant::ZERO, events: Vec::new(), sent: Vec::new() }
    }

    fn receive(&mut self, port: Port, bytes: &[u8]) {
        let frame = Input::Frame { port, peer: Peer::NONE, bytes, segment: None };
        self.machine.handle(self.now, frame).unwrap();
        self.run(self.now);
    }

    fn command(&mut self, command: E::Command<'_>) {
        self.machine.handle(self.now, Input::Command(command)).unwrap();
        self.run(self.now);
    }

    /// Runs from deadline to deadline until a time.
    fn run(&mut self, until: Instant) {
        let mut buffer = vec![0; MAX_BUNDLE];
        loop {
            match self.machine.poll(self.now, Writable::ALL, &mut buffer) {
                Output::Transmit(transmit) => {
                    let bytes = buffer[..transmit.length].to_vec();
                    self.sent.push((transmit, bytes));
                }
                Output::Event(event) => self.events.push(event),
                Output::Idle(idle) => match idle.deadline.filter(|due| *due <= until) {
                    Some(due) => {
                        self.now = self.now.max(due);
                        self.machine.handle(self.now, Input::Wake).unwrap();
                    }
                    None => return self.now = until,
                },
            }
        }
    }

    /// Returns the control messages sent by a port since the last call, with their receivers.
    fn control(&mut self, port: Port, with_mask: bool) -> Vec<(Peer, ClassicControl)> {
        let mut sent_control = Vec::new();
        for (transmit, bytes) in self.sent.drain(..).filter(|(transmit, _)| transmit.port == port) {
            let bundle = match with_mask {
                true => ClassicBundle::read_with_mask(&bytes).unwrap().1,
                false => ClassicBundle::read(&bytes).unwrap(),
            };
            let control = bundle.messages().filter(|message| message.octets() == CONTROL);
            sent_control
                .extend(control.map(|message| (transmit.peer, ClassicControl::read(message).unwrap())));
        }
        sent_control
    }
}

fn bundle(source: Option<Source>, messages: &[(u16, &[u8])]) -> Vec<u8> {
    let mut builder = trunkline_bundle::wire::classic::ClassicBuilder::new(source, MAX_BUNDLE);
    messages.iter().for_each(|(address, body)| assert!(builder.push(*address, body)));
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&mut bytes);
    bytes
}

fn settings(pairs: bool) -> Settings {
    Settings { pairs, ..Settings::default() }
}

fn central(pairs: bool) -> SingleEndpoint<Central> {
    central_on(100_000_000, pairs)
}

/// Creates a central converter whose media carry `capacity` octets in 5 ms.
fn central_on(capacity: u64, pairs: bool) -> SingleEndpoint<Central> {
    let medium = Medium { capacity, ..Medium::default() };
    let config = CentralConfig {
        settings: settings(pairs),
        level1: vec![1, 2],
        hosts: 16,
        local: medium,
        wide_area: medium,
    };
    SingleEndpoint::new(Central::new(Seed(0), 0, config).with_refresh(Span::from_s(10)))
}

fn of_host(host: u8, controls: &[ClassicControl]) -> Vec<u8> {
    let written: Vec<(u16, [u8; 20])> = controls.iter().map(|control| control.write()).collect();
    let messages: Vec<(u16, &[u8])> = written.iter().map(|(address, body)| (*address, &body[..])).collect();
    bundle(Some(Source::Host(host)), &messages)
}

fn number(number: u16) -> Peer {
    Peer::new(&number.to_be_bytes())
}

#[test]
fn a_refusing_host_loses_its_interest() {
    for pairs in [false, true] {
        let mut central = central(pairs);
        let joins: Vec<ClassicControl> = (0..100).map(|n| ClassicControl::Join(n * 16)).collect();
        central.receive(Central::HOSTS, &of_host(3, &joins));
        central.receive(Central::HOSTS, &of_host(16, &[ClassicControl::Join(0)]));
        central.run(at(20));
        assert_eq!(central.control(Central::LEVEL1, false).len(), 50);
        central.command(central::CentralCommand::HostRefused(3));
        central.command(central::CentralCommand::HostRefused(3));
        central.command(central::CentralCommand::HostRefused(9));
        central.run(at(40));
        let interest = central.machine.inner().subscriptions().unwrap();
        assert_eq!((interest.addresses_of(3).count(), interest.hosts(0)), (0, 1 << 15));
        assert_eq!(central.machine.inner().statistics().hosts_removed, 1);
        let left: BTreeSet<u16> = central
            .control(Central::LEVEL1, false)
            .into_iter()
            .map(|(_, control)| match control {
                ClassicControl::Drop(address) => address / 32,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(left, (1..50).collect(), "all groups are left except that of the other host");
    }
}

/// A host's message leaves by one converter. If another one joined its group just then, it might receive that
/// message.
#[test]
fn the_recent_sender_of_a_group_is_assigned_to_it() {
    let mut central = central(false);
    let announced_to = |central: &mut SingleEndpoint<Central>, bytes: &[u8]| {
        central.receive(Central::HOSTS, bytes);
        let now = central.now + Span::from_ms(5);
        central.run(now);
        let wanted = central.control(Central::LEVEL1, false);
        assert_eq!(wanted.len(), 1);
        wanted[0].0
    };
    // Converter 1 owns a group, so that converter 2 is the idlest.
    assert_eq!(announced_to(&mut central, &of_host(1, &[ClassicControl::Join(32)])), number(1));
    let send_from = |host| bundle(Some(Source::Host(host)), &[(64, b"before any host joins")]);
    central.receive(Central::HOSTS, &send_from(1));
    assert_eq!(announced_to(&mut central, &of_host(1, &[ClassicControl::Join(64)])), number(1));
    announced_to(&mut central, &of_host(1, &[ClassicControl::Drop(64)]));
    // Messages sent a while ago no longer matter.
    central.receive(Central::HOSTS, &send_from(1));
    let later = central.now + Span::from_ms(100);
    central.run(later);
    assert_eq!(announced_to(&mut central, &of_host(1, &[ClassicControl::Join(64)])), number(2));
}

#[test]
fn a_query_or_refusal_refreshes_level_1() {
    let mut central = central(false);
    let joins: Vec<ClassicControl> = (0..64).map(|n| ClassicControl::Join(n * 32)).collect();
    central.receive(Central::HOSTS, &of_host(1, &joins));
    central.run(at(20));
    let sent = central.control(Central::LEVEL1, false);
    let to_peer = |sent: &[(Peer, ClassicControl)], peer| {
        let to_peer = sent.iter().filter(|(to, _)| *to == peer);
        to_peer.map(|(_, control)| format!("{control:?}")).collect::<BTreeSet<_>>()
    };
    assert_eq!((to_peer(&sent, number(1)).len(), to_peer(&sent, number(2)).len()), (32, 32));
    // Converter 2 queries; two batches answer.
    let (address, body) = ClassicControl::Level(3).write();
    central.receive(Central::LEVEL1, &bundle(Some(Source::Level1(2)), &[(address, &body)]));
    central.run(at(100));
    let repeated = central.control(Central::LEVEL1, false);
    assert_eq!(to_peer(&repeated, number(2)), to_peer(&sent, number(2)));
    assert_eq!(repeated.len(), 32, "and once, and the other is not");
    central.command(central::CentralCommand::Level1Refused(1));
    central.run(at(300));
    let repeated = central.control(Central::LEVEL1, false);
    assert_eq!((to_peer(&repeated, number(1)), repeated.len()), (to_peer(&sent, number(1)), 32));
    // Refreshes also occur periodically.
    central.run(at(10_300));
    assert_eq!(central.control(Central::LEVEL1, false).len(), 64);
    // Other control messages of level 1 are invalid.
    let (address, body) = ClassicControl::Join(7).write();
    central.receive(Central::LEVEL1, &bundle(Some(Source::Level1(2)), &[(address, &body)]));
    assert_eq!(central.machine.inner().statistics().drops_to_hosts.total(), 1);
    assert_eq!(central.machine.inner().subscriptions().unwrap().hosts(7), 0);
}

#[test]
fn level_1_must_leave_stray_groups() {
    let mut central = central(false);
    central.receive(Central::HOSTS, &of_host(1, &[ClassicControl::Join(32)]));
    central.run(at(20));
    central.sent.clear();
    // Converter 1 owns address 32. Converter 2 forwards it, and a group without subscribers. Messages still in flight
    // do not count.
    let stray = bundle(Some(Source::Level1(2)), &[(33, b"stray"), (32, b"joined"), (64, b"unowned")]);
    central.receive(Central::LEVEL1, &stray);
    central.run(at(150));
    assert_eq!(central.control(Central::LEVEL1, false), []);
    for ms in [151, 160, 170] {
        central.now = at(ms);
        central.receive(Central::LEVEL1, &stray);
    }
    central.run(at(200));
    let sent = central.control(Central::LEVEL1, false);
    assert_eq!(
        sent,
        [(number(2), ClassicControl::Drop(32)), (number(2), ClassicControl::Drop(64))],
        "once in a while"
    );
    // Only the owner's message is forwarded to the host.
    assert_eq!(central.machine.inner().statistics().to_hosts, 0);
    // The owner receives no request to leave.
    central.receive(Central::LEVEL1, &bundle(Some(Source::Level1(1)), &[(32, b"right")]));
    central.run(at(400));
    assert_eq!(central.control(Central::LEVEL1, false), []);
    assert_eq!(central.machine.inner().statistics().stray_groups, 2);
    assert_eq!(central.machine.inner().statistics().to_hosts, 1);
}

/// Format 1 (classic) has no acknowledgements: after a lost leave a host would receive the messages forever.
#[test]
fn a_leave_is_repeated_once_and_on_request() {
    let mut host = SingleEndpoint::new(Host::new(3, 0, settings(false)).with_refresh(Span::from_s(1)));
    let sent = |host: &mut SingleEndpoint<Host>, until| -> Vec<ClassicControl> {
        host.run(at(until));
        host.control(Host::CENTRAL, true).into_iter().map(|(_, control)| control).collect()
    };
    for command in [join(7), join(9), leave(7)] {
        host.command(command);
    }
    assert_eq!(
        sent(&mut host, 500),
        [ClassicControl::Join(7), ClassicControl::Join(9), ClassicControl::Drop(7)]
    );
    assert_eq!(sent(&mut host, 1_500), [ClassicControl::Drop(7), ClassicControl::Join(9)]);
    assert_eq!(sent(&mut host, 2_500), [ClassicControl::Join(9)]);
    host.command(host::HostCommand::Drop { first: 5, last: 8 });
    let repeated = [5, 6, 7, 8].map(ClassicControl::Drop);
    let joined = [ClassicControl::Join(9)];
    assert_eq!(sent(&mut host, 2_600), [&repeated[..], &joined].concat());
    assert_eq!(sent(&mut host, 3_900), joined);
    // A new join cancels the repeated leave.
    host.command(leave(9));
    host.command(join(9));
    assert_eq!(sent(&mut host, 4_000), [ClassicControl::Drop(9), ClassicControl::Join(9)]);
    assert_eq!(sent(&mut host, 5_000), joined);
    // Without refresh, leaves are repeated only on request.
    let mut host = SingleEndpoint::new(Host::new(3, 0, settings(true)));
    host.command(leave(8));
    assert_eq!(sent(&mut host, 9_000), [ClassicControl::Drop(8)]);
    host.command(host::HostCommand::Drop { first: 8, last: 9 });
    assert_eq!(sent(&mut host, 20_000), [ClassicControl::Drop(8)]);
    let reversed = host::HostCommand::Join { first: 9, last: 8 };
    let refused = host.machine.handle(at(20_000), Input::Command(reversed));
    assert_eq!(refused, Err(host::CommandError::Range));
}

/// The central converter may have restarted without reporting a level since.
#[test]
fn an_expired_level_is_reported() {
    let mut host = SingleEndpoint::new(Host::new(3, 0, settings(false)).with_refresh(Span::from_s(1)));
    let body = ClassicControl::write_for_hosts(5);
    host.receive(Host::CENTRAL, &bundle(None, &[(0xFFFF, &body)]));
    let level = |host: &SingleEndpoint<Host>, ms| host.machine.inner().level(at(ms));
    assert_eq!((level(&host, 0), level(&host, 999), level(&host, 1_000)), (5, 5, 3), "even without a wake");
    host.run(at(3_000));
    assert_eq!(host.events, [host::HostEvent::Level(5), host::HostEvent::Level(3)]);
}

/// Even after some join: it may be new, and not one of those before the restart.
#[test]
fn level_1_sends_one_query() {
    for sent in [false, true] {
        let mut level1 = SingleEndpoint::new(Level1::new(5, 0, settings(false)).with_query_at(at(1_000)));
        level1.run(at(500));
        if sent {
            let (address, body) = ClassicControl::Join(640).write();
            level1.receive(Level1::CENTRAL, &bundle(None, &[(address, &body)]));
            assert_eq!(level1.events, [level1::MembershipEvent::Join(20)]);
        }
        level1.run(at(999));
        assert_eq!(level1.control(Level1::CENTRAL, true), [], "sent: {sent}");
        level1.run(at(5_000));
        assert_eq!(
            level1.control(Level1::CENTRAL, true),
            [(Peer::NONE, ClassicControl::Level(3))],
            "sent: {sent}"
        );
    }
}

#[test]
fn a_host_refreshes_its_joins_and_drops_them_at_the_end() {
    let mut host = SingleEndpoint::new(Host::new(7, 0, settings(true)).with_refresh(Span::from_s(1)));
    for address in [65_535, 64, 65, 9] {
        host.command(join(address));
    }
    host.command(leave(8));
    host.run(at(900));
    assert_eq!(host.control(Host::CENTRAL, true).len(), 5);
    let wanted =
        [ClassicControl::Join(64), ClassicControl::Join(65_534)].map(|control| (Peer::NONE, control));
    host.run(at(1_500));
    let repeated = host.control(Host::CENTRAL, true);
    assert_eq!(repeated[0], (Peer::NONE, ClassicControl::Drop(8)), "once more");
    assert_eq!(repeated[1..], wanted, "pairs once");
    host.command(host::HostCommand::CentralRefused);
    host.run(at(1_700));
    assert_eq!(host.control(Host::CENTRAL, true), wanted);
    host.command(host::HostCommand::DropAll);
    host.run(at(9_000));
    let dropped =
        [ClassicControl::Drop(64), ClassicControl::Drop(65_534)].map(|control| (Peer::NONE, control));
    assert_eq!(host.control(Host::CENTRAL, true), dropped.repeat(2), "and once more");
    assert_eq!((host.machine.inner().joined(), host.machine.inner().has_pending()), (0, false));
}

/// The central converter may have restarted after it reported the level.
#[test]
fn a_level_without_refresh_expires() {
    let level = ClassicControl::write_for_hosts(6);
    for refreshes in [false, true] {
        let machine = Host::new(1, 0, Settings::default());
        let mut host =
            SingleEndpoint::new(if refreshes { machine.with_refresh(Span::from_s(1)) } else { machine });
        let mut send = |ms, sent: bool| {
            host.run(at(ms));
            if sent {
                host.receive(Host::CENTRAL, &bundle(None, &[(0xFFFF, &level)]));
            }
            let command =
                host::HostCommand::Send(host::OutgoingMessage::new(&Settings::default(), 7, b"ordinary"));
            host.machine.handle(host.now, Input::Command(command)).is_ok()
        };
        assert!(send(10, false) && !send(20, true) && !send(900, true), "{refreshes}");
        assert!(!send(1_899, false), "{refreshes}");
        // Without refresh, as in 1997, it holds forever.
        assert_eq!(send(1_900, false), refreshes);
    }
}

/// Level 5 admits two messages in each interval of the central converter.
#[test]
fn admitted_messages_are_counted_per_interval_of_the_central_converter() {
    let level = ClassicControl::write_for_hosts(5);
    for ms in [1, 5, 100] {
        let settings = Settings { interval: Span::from_ms(ms), ..Settings::default() };
        let mut host = SingleEndpoint::new(Host::new(1, 0, settings));
        host.receive(Host::CENTRAL, &bundle(None, &[(0xFFFF, &level)]));
        let (address, body) = ClassicControl::Level(5).write();
        let mut level1 = SingleEndpoint::new(Level1::new(1, 0, settings));
        level1.receive(Level1::CENTRAL, &bundle(None, &[(address, &body)]));
        let mut sent = 0;
        for now in 0..1_000 {
            host.run(at(now));
            level1.run(at(now));
            let command = host::HostCommand::Send(host::OutgoingMessage::new(&settings, 7, b"ordinary"));
            sent += u64::from(host.machine.handle(host.now, Input::Command(command)).is_ok());
            level1.receive(Level1::WIDE_AREA, b"\0\x07ordinary");
        }
        let dropped = level1.machine.inner().statistics().drops.total();
        let goes = if ms == 1 { 1_000 } else { 2 * 1_000 / ms };
        assert_eq!((sent, 1_000 - dropped), (goes, goes), "{ms} ms");
    }
}

/// Handles the frames and discards all output of the endpoint as unsent.
fn discard_output<E: Endpoint<Refusal = Infallible> + CountUnsent>(
    machine: &mut E,
    frames: &[(Port, Vec<u8>)],
) {
    for (port, bytes) in frames {
        let frame = Input::Frame { port: *port, peer: Peer::NONE, bytes, segment: None };
        machine.handle(at(1), frame).unwrap();
    }
    machine.handle(at(20), Input::Wake).unwrap();
    let mut buffer = vec![0; MAX_BUNDLE];
    loop {
        match machine.poll(at(20), Writable::ALL, &mut buffer) {
            Output::Transmit(transmit) => machine.count_unsent(transmit.port, &buffer[..transmit.length]),
            Output::Event(_) => {}
            Output::Idle(_) => return,
        }
    }
}

/// By priority, even where the address that shows it is gone. Control messages are not counted.
#[test]
fn each_endpoint_counts_its_unsent_messages() {
    let unsent = |drops: &DropCounts| [false, true].map(|priority| drops.get(DropReason::Unsent, priority));
    let messages: [(u16, &[u8]); 4] = [(4, b"one"), (5, b"urgent"), (4, b"two"), (4, b"three")];
    let medium = Medium { capacity: 100_000_000, ..Medium::default() };
    let config = CentralConfig {
        settings: settings(true),
        level1: vec![1],
        hosts: 16,
        local: medium,
        wide_area: medium,
    };
    let mut central = Central::new(Seed(0), 0, config);
    let join = of_host(1, &[ClassicControl::Join(4)]);
    discard_output(
        &mut central,
        &[(Central::HOSTS, join), (Central::HOSTS, bundle(Some(Source::Host(2)), &messages))],
    );
    assert_eq!(unsent(&central.statistics().drops_to_hosts), [3, 1]);
    assert_eq!(unsent(&central.statistics().drops_to_level1), [3, 1]);
    let mut level1 = Level1::new(1, 0, settings(true)).with_query_at(at(1));
    let datagrams =
        messages.map(|(address, body)| (Level1::WIDE_AREA, [&address.to_be_bytes()[..], body].concat()));
    discard_output(&mut level1, &datagrams);
    discard_output(&mut level1, &[(Level1::CENTRAL, bundle(None, &messages[1..]))]);
    assert_eq!(unsent(&level1.statistics().drops), [3, 1]);
    assert_eq!(unsent(&level1.statistics().drops_outgoing), [2, 1]);
}

#[test]
fn a_level_is_refreshed_while_it_lasts() {
    let mut central = central_on(60_000, false);
    let busy = vec![7; 59_000];
    let mut levels = 0;
    for turn in 0..400 {
        central.run(at(5 * turn));
        central.receive(Central::HOSTS, &bundle(Some(Source::Host(1)), &[(9, &busy)]));
        for (_, bytes) in central.sent.drain(..).filter(|(transmit, _)| transmit.port == Central::HOSTS) {
            let read = ClassicBundle::read(&bytes).unwrap();
            levels +=
                read.messages().filter(|message| ClassicControl::read_for_host(*message).is_some()).count();
        }
    }
    // Three steps up, and then every 250 ms for two seconds.
    assert!((9..=13).contains(&levels), "{levels}");
}

//! Who restarts has forgotten, and is told again; who refuses is forgotten.

use std::collections::BTreeSet;
use std::convert::Infallible;

use trunkline_bundle::Settings;
use trunkline_bundle::central::{self, Central, Config};
use trunkline_bundle::drops::{Drops, Unsent, Why};
use trunkline_bundle::host::{self, Host};
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::wire::classic::{Bundle, CONTROL, Control, LONGEST, Source};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Span};

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_ms(ms)
}

/// A machine alone, whose frames are kept.
struct Alone<E: Endpoint> {
    machine: Checked<E>,
    now: Instant,
    events: Vec<E::Event>,
    sent: Vec<(Transmit, Vec<u8>)>,
}

impl<E: Endpoint> Alone<E>
where
    E::Refusal: std::fmt::Debug,
{
    fn new(machine: E) -> Alone<E> {
        let machine = Checked::new(machine);
        Alone { machine, now: Instant::ZERO, events: Vec::new(), sent: Vec::new() }
    }

    fn hear(&mut self, port: Port, bytes: &[u8]) {
        let frame = Input::Frame { port, peer: Peer::NONE, bytes, segment: None };
        self.machine.handle(self.now, frame).unwrap();
        self.run(self.now);
    }

    fn command(&mut self, command: E::Command<'_>) {
        self.machine.handle(self.now, Input::Command(command)).unwrap();
        self.run(self.now);
    }

    /// Until then, from deadline to deadline.
    fn run(&mut self, until: Instant) {
        let mut buffer = vec![0; LONGEST];
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

    /// Control that left by a port since the last look: whom it was for, and what it said.
    fn control(&mut self, port: Port, with_mask: bool) -> Vec<(Peer, Control)> {
        let mut said = Vec::new();
        for (transmit, bytes) in self.sent.drain(..).filter(|(transmit, _)| transmit.port == port) {
            let bundle = match with_mask {
                true => Bundle::read_with_mask(&bytes).unwrap().1,
                false => Bundle::read(&bytes).unwrap(),
            };
            let control = bundle.messages().filter(|message| message.octets() == CONTROL);
            said.extend(control.map(|message| (transmit.peer, Control::read(message).unwrap())));
        }
        said
    }
}

fn bundle(source: Option<Source>, messages: &[(u16, &[u8])]) -> Vec<u8> {
    let mut builder = trunkline_bundle::wire::classic::Builder::new(source, LONGEST);
    messages.iter().for_each(|(address, body)| assert!(builder.push(*address, body)));
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&mut bytes);
    bytes
}

fn settings(pairs: bool) -> Settings {
    Settings { pairs, ..Settings::default() }
}

fn central(pairs: bool) -> Alone<Central> {
    central_on(100_000_000, pairs)
}

/// Between media that carry so many octets in 5 ms.
fn central_on(capacity: u64, pairs: bool) -> Alone<Central> {
    let medium = Medium { capacity, ..Medium::default() };
    let config =
        Config { settings: settings(pairs), level1: vec![1, 2], hosts: 16, local: medium, wide: medium };
    Alone::new(Central::new(config).retelling(Span::from_s(10)))
}

fn of_host(host: u8, controls: &[Control]) -> Vec<u8> {
    let written: Vec<(u16, [u8; 20])> = controls.iter().map(|control| control.write()).collect();
    let messages: Vec<(u16, &[u8])> = written.iter().map(|(address, body)| (*address, &body[..])).collect();
    bundle(Some(Source::Host(host)), &messages)
}

fn number(number: u16) -> Peer {
    Peer::new(&number.to_be_bytes())
}

#[test]
fn a_host_that_refuses_wants_nothing_any_more() {
    for pairs in [false, true] {
        let mut central = central(pairs);
        let joins: Vec<Control> = (0..100).map(|n| Control::Join(n * 16)).collect();
        central.hear(Central::HOSTS, &of_host(3, &joins));
        central.hear(Central::HOSTS, &of_host(16, &[Control::Join(0)]));
        central.run(at(20));
        assert_eq!(central.control(Central::LEVEL1, false).len(), 50);
        central.command(central::Command::HostRefused(3));
        central.command(central::Command::HostRefused(3));
        central.command(central::Command::HostRefused(9));
        central.run(at(40));
        let interest = central.machine.inner().interest();
        assert_eq!((interest.of_host(3).count(), interest.group(0)), (0, 1 << 15));
        assert_eq!(central.machine.inner().statistics().removed, 1);
        let left: BTreeSet<u16> = central
            .control(Central::LEVEL1, false)
            .into_iter()
            .map(|(_, control)| match control {
                Control::Drop(address) => address / 32,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(left, (1..50).collect(), "all but what the other host wants is left");
    }
}

/// What a host says leaves by one of level 1; if another joined its group a moment later that one might hear it.
#[test]
fn who_has_just_spoken_to_a_group_gets_it() {
    let mut central = central(false);
    let tells = |central: &mut Alone<Central>, bytes: &[u8]| {
        central.hear(Central::HOSTS, bytes);
        let now = central.now + Span::from_ms(5);
        central.run(now);
        let wanted = central.control(Central::LEVEL1, false);
        assert_eq!(wanted.len(), 1);
        wanted[0].0
    };
    // Converter 1 has a group, so that the other has the least.
    assert_eq!(tells(&mut central, &of_host(1, &[Control::Join(32)])), number(1));
    let says = |host| bundle(Some(Source::Host(host)), &[(64, b"before anybody wants it")]);
    central.hear(Central::HOSTS, &says(1));
    assert_eq!(tells(&mut central, &of_host(1, &[Control::Join(64)])), number(1));
    tells(&mut central, &of_host(1, &[Control::Drop(64)]));
    // What was said a while ago is over.
    central.hear(Central::HOSTS, &says(1));
    let later = central.now + Span::from_ms(100);
    central.run(later);
    assert_eq!(tells(&mut central, &of_host(1, &[Control::Join(64)])), number(2));
}

#[test]
fn level_1_that_asks_or_refuses_is_told_again_what_it_gets() {
    let mut central = central(false);
    let joins: Vec<Control> = (0..64).map(|n| Control::Join(n * 32)).collect();
    central.hear(Central::HOSTS, &of_host(1, &joins));
    central.run(at(20));
    let told = central.control(Central::LEVEL1, false);
    let of = |told: &[(Peer, Control)], peer| {
        let of = told.iter().filter(|(to, _)| *to == peer);
        of.map(|(_, control)| format!("{control:?}")).collect::<BTreeSet<_>>()
    };
    assert_eq!((of(&told, number(1)).len(), of(&told, number(2)).len()), (32, 32));
    // Level 1 with no more than two a handful asks.
    let (address, body) = Control::Level(3).write();
    central.hear(Central::LEVEL1, &bundle(Some(Source::Level1(2)), &[(address, &body)]));
    central.run(at(100));
    let again = central.control(Central::LEVEL1, false);
    assert_eq!(of(&again, number(2)), of(&told, number(2)));
    assert_eq!(again.len(), 32, "and once, and the other is not");
    central.command(central::Command::Level1Refused(1));
    central.run(at(300));
    let again = central.control(Central::LEVEL1, false);
    assert_eq!((of(&again, number(1)), again.len()), (of(&told, number(1)), 32));
    // And now and then without a reason.
    central.run(at(10_300));
    assert_eq!(central.control(Central::LEVEL1, false).len(), 64);
    // Other control of level 1 is none.
    let (address, body) = Control::Join(7).write();
    central.hear(Central::LEVEL1, &bundle(Some(Source::Level1(2)), &[(address, &body)]));
    assert_eq!(central.machine.inner().statistics().drops_to_hosts.total(), 1);
    assert_eq!(central.machine.inner().interest().group(7), 0);
}

#[test]
fn level_1_that_brings_what_it_is_not_to_get_is_told_to_leave_it() {
    let mut central = central(false);
    central.hear(Central::HOSTS, &of_host(1, &[Control::Join(32)]));
    central.run(at(20));
    central.sent.clear();
    // Converter 1 has address 32; converter 2 brings it, and what nobody wants. What was under way is no reason.
    let stray = bundle(Some(Source::Level1(2)), &[(33, b"stray"), (32, b"wanted"), (64, b"nobody's")]);
    central.hear(Central::LEVEL1, &stray);
    central.run(at(150));
    assert_eq!(central.control(Central::LEVEL1, false), []);
    for ms in [151, 160, 170] {
        central.now = at(ms);
        central.hear(Central::LEVEL1, &stray);
    }
    central.run(at(200));
    let told = central.control(Central::LEVEL1, false);
    assert_eq!(told, [(number(2), Control::Drop(32)), (number(2), Control::Drop(64))], "once in a while");
    // A host gets what it wants from the one that has it, and not twice.
    assert_eq!(central.machine.inner().statistics().to_hosts, 0);
    // The one that has it is not.
    central.hear(Central::LEVEL1, &bundle(Some(Source::Level1(1)), &[(32, b"right")]));
    central.run(at(400));
    assert_eq!(central.control(Central::LEVEL1, false), []);
    assert_eq!(central.machine.inner().statistics().strays, 2);
    assert_eq!(central.machine.inner().statistics().to_hosts, 1);
}

/// The format acknowledges nothing, and what a host is thought to want it gets for ever.
#[test]
fn what_a_host_leaves_is_told_once_more_and_whenever_it_says_so_again() {
    let mut host = Alone::new(Host::new(3, settings(false)).retelling(Span::from_s(1)));
    let told = |host: &mut Alone<Host>, until| -> Vec<Control> {
        host.run(at(until));
        host.control(Host::CENTRAL, true).into_iter().map(|(_, control)| control).collect()
    };
    for command in [host::Command::Join(7), host::Command::Join(9), host::Command::Drop(7)] {
        host.command(command);
    }
    assert_eq!(told(&mut host, 500), [Control::Join(7), Control::Join(9), Control::Drop(7)]);
    assert_eq!(told(&mut host, 1_500), [Control::Drop(7), Control::Join(9)]);
    assert_eq!(told(&mut host, 2_500), [Control::Join(9)]);
    host.command(host::Command::DropAgain { first: 5, last: 9 });
    let again = [5, 6, 7, 8].map(Control::Drop);
    let joined = [Control::Join(9)];
    assert_eq!(told(&mut host, 2_600), [&again[..], &joined].concat(), "but not what it wants");
    assert_eq!(told(&mut host, 3_900), joined);
    // What is joined again is not left once more.
    host.command(host::Command::Drop(9));
    host.command(host::Command::Join(9));
    assert_eq!(told(&mut host, 4_000), [Control::Drop(9), Control::Join(9)]);
    assert_eq!(told(&mut host, 5_000), joined);
    // Nor does one that tells nothing by itself, but when it is asked to.
    let mut host = Alone::new(Host::new(3, settings(true)));
    host.command(host::Command::Drop(8));
    assert_eq!(told(&mut host, 9_000), [Control::Drop(8)]);
    host.command(host::Command::DropAgain { first: 8, last: 9 });
    assert_eq!(told(&mut host, 20_000), [Control::Drop(8)]);
}

/// Whoever told it may have restarted, and nobody may have told it since.
#[test]
fn a_level_fades_when_it_is_read_and_that_is_told() {
    let mut host = Alone::new(Host::new(3, settings(false)).retelling(Span::from_s(1)));
    let body = Control::write_for_hosts(5);
    host.hear(Host::CENTRAL, &bundle(None, &[(0xFFFF, &body)]));
    let level = |host: &Alone<Host>, ms| host.machine.inner().level(at(ms));
    assert_eq!((level(&host, 0), level(&host, 999), level(&host, 1_000)), (5, 5, 3), "nobody woke it");
    host.run(at(3_000));
    assert_eq!(host.events, [host::Event::Level(5), host::Event::Level(3)]);
}

/// Also if it was told something: one new join is not all that it got before it restarted.
#[test]
fn level_1_asks_once_whatever_it_was_told() {
    for told in [false, true] {
        let mut level1 = Alone::new(Level1::new(5, settings(false)).asking(at(1_000)));
        level1.run(at(500));
        if told {
            let (address, body) = Control::Join(640).write();
            level1.hear(Level1::CENTRAL, &bundle(None, &[(address, &body)]));
            assert_eq!(level1.events, [level1::Event::Join(20)]);
        }
        level1.run(at(999));
        assert_eq!(level1.control(Level1::CENTRAL, true), [], "told: {told}");
        level1.run(at(5_000));
        assert_eq!(level1.control(Level1::CENTRAL, true), [(Peer::NONE, Control::Level(3))], "told: {told}");
    }
}

#[test]
fn a_host_tells_again_what_it_wants_and_nothing_in_the_end() {
    let mut host = Alone::new(Host::new(7, settings(true)).retelling(Span::from_s(1)));
    for address in [65_535, 64, 65, 9] {
        host.command(host::Command::Join(address));
    }
    host.command(host::Command::Drop(8));
    host.run(at(900));
    assert_eq!(host.control(Host::CENTRAL, true).len(), 5);
    let wanted = [Control::Join(64), Control::Join(65_534)].map(|control| (Peer::NONE, control));
    host.run(at(1_500));
    let again = host.control(Host::CENTRAL, true);
    assert_eq!(again[0], (Peer::NONE, Control::Drop(8)), "once more");
    assert_eq!(again[1..], wanted, "pairs once");
    host.command(host::Command::Refused);
    host.run(at(1_700));
    assert_eq!(host.control(Host::CENTRAL, true), wanted);
    host.command(host::Command::DropAll);
    host.run(at(9_000));
    let dropped = [Control::Drop(64), Control::Drop(65_534)].map(|control| (Peer::NONE, control));
    assert_eq!(host.control(Host::CENTRAL, true), dropped.repeat(2), "and once more");
    assert_eq!((host.machine.inner().joined(), host.machine.inner().is_saying()), (0, false));
}

/// A host and a converter of level 1 are told a level, and then nothing: whoever kept it may have restarted.
#[test]
fn a_level_that_is_told_no_more_fades() {
    let level = Control::write_for_hosts(6);
    for retells in [false, true] {
        let machine = Host::new(1, Settings::default());
        let mut host = Alone::new(if retells { machine.retelling(Span::from_s(1)) } else { machine });
        let mut send = |ms, told: bool| {
            host.run(at(ms));
            if told {
                host.hear(Host::CENTRAL, &bundle(None, &[(0xFFFF, &level)]));
            }
            let command = host::Command::Send { address: 7, body: b"ordinary" };
            host.machine.handle(host.now, Input::Command(command)).is_ok()
        };
        assert!(send(10, false) && !send(20, true) && !send(900, true), "{retells}");
        assert!(!send(1_899, false), "{retells}");
        // As in 1997 it would hold for ever.
        assert_eq!(send(1_900, false), retells);
    }
}

/// At level 5 two go in an interval of the central converter, however long that is.
#[test]
fn what_a_level_lets_go_is_counted_in_the_intervals_of_the_central_converter() {
    let level = Control::write_for_hosts(5);
    for ms in [1, 5, 100] {
        let settings = Settings { interval: Span::from_ms(ms), ..Settings::default() };
        let mut host = Alone::new(Host::new(1, settings));
        host.hear(Host::CENTRAL, &bundle(None, &[(0xFFFF, &level)]));
        let (address, body) = Control::Level(5).write();
        let mut level1 = Alone::new(Level1::new(1, settings));
        level1.hear(Level1::CENTRAL, &bundle(None, &[(address, &body)]));
        let mut sent = 0;
        for now in 0..1_000 {
            host.run(at(now));
            level1.run(at(now));
            let command = host::Command::Send { address: 7, body: b"ordinary" };
            sent += u64::from(host.machine.handle(host.now, Input::Command(command)).is_ok());
            level1.hear(Level1::WIDE, b"\0\x07ordinary");
        }
        let dropped = level1.machine.inner().statistics().drops.total();
        let goes = if ms == 1 { 1_000 } else { 2 * 1_000 / ms };
        assert_eq!((sent, 1_000 - dropped), (goes, goes), "{ms} ms");
    }
}

/// Nothing that a machine gives by then leaves.
fn lose_all<E: Endpoint<Refusal = Infallible> + Unsent>(machine: &mut E, frames: &[(Port, Vec<u8>)]) {
    for (port, bytes) in frames {
        let frame = Input::Frame { port: *port, peer: Peer::NONE, bytes, segment: None };
        machine.handle(at(1), frame).unwrap();
    }
    machine.handle(at(20), Input::Wake).unwrap();
    let mut buffer = vec![0; LONGEST];
    loop {
        match machine.poll(at(20), Writable::ALL, &mut buffer) {
            Output::Transmit(transmit) => machine.unsent(transmit.port, &buffer[..transmit.length]),
            Output::Event(_) => {}
            Output::Idle(_) => return,
        }
    }
}

/// By priority, also where the address that tells it is gone. Control is no message.
#[test]
fn what_did_not_leave_is_counted_by_its_machine() {
    let unsent = |drops: &Drops| [false, true].map(|priority| drops.get(Why::Unsent, priority));
    let some: [(u16, &[u8]); 4] = [(4, b"one"), (5, b"urgent"), (4, b"two"), (4, b"three")];
    let medium = Medium { capacity: 100_000_000, ..Medium::default() };
    let config = Config { settings: settings(true), level1: vec![1], hosts: 16, local: medium, wide: medium };
    let mut central = Central::new(config);
    let join = of_host(1, &[Control::Join(4)]);
    lose_all(&mut central, &[(Central::HOSTS, join), (Central::HOSTS, bundle(Some(Source::Host(2)), &some))]);
    assert_eq!(unsent(&central.statistics().drops_to_hosts), [3, 1]);
    assert_eq!(unsent(&central.statistics().drops_to_level1), [3, 1]);
    let mut level1 = Level1::new(1, settings(true)).asking(at(1));
    let alone = some.map(|(address, body)| (Level1::WIDE, [&address.to_be_bytes()[..], body].concat()));
    lose_all(&mut level1, &alone);
    lose_all(&mut level1, &[(Level1::CENTRAL, bundle(None, &some[1..]))]);
    assert_eq!(unsent(&level1.statistics().drops), [3, 1]);
    assert_eq!(unsent(&level1.statistics().drops_out), [2, 1]);
}

#[test]
fn a_level_is_told_again_while_it_lasts() {
    let mut central = central_on(60_000, false);
    let busy = vec![7; 59_000];
    let mut levels = 0;
    for turn in 0..400 {
        central.run(at(5 * turn));
        central.hear(Central::HOSTS, &bundle(Some(Source::Host(1)), &[(9, &busy)]));
        for (_, bytes) in central.sent.drain(..).filter(|(transmit, _)| transmit.port == Central::HOSTS) {
            let read = Bundle::read(&bytes).unwrap();
            levels += read.messages().filter(|message| Control::read_for_host(*message).is_some()).count();
        }
    }
    // Three steps up, and then every quarter of a second for two seconds.
    assert!((9..=13).contains(&levels), "{levels}");
}

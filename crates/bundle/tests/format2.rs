//! The guarantees of bundle format 2: timeouts, moving groups, restarts, deadlines, receive limits, and the longest
//! message.

use std::collections::BTreeSet;

use crate::simulation::{HOP, Impairments, Node, ROOMY, Simulation};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::drops::DropReason;
use trunkline_bundle::host::{CommandError, HostCommand, OutgoingMessage};
use trunkline_bundle::ranges::{MAX_RANGES, MAX_SEGMENTS};
use trunkline_bundle::sequence::{MAX_FLOWS, Sessions};
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::wire::format2::control::{Control, RangeChanges};
use trunkline_bundle::wire::format2::{
    self as wire, BundleBuilder, ENTRY, HEADER, Header, MAX_BODY, MIN_DATAGRAM, Message, Role,
};
use trunkline_bundle::{Central, Format, Host, Level1, Settings};
use trunkline_endpoint::Peer;
use trunkline_units::{Seed, Span};

fn settings(format2: Format2) -> Settings {
    Settings { timing: Timing::LEAST_DELAY, format: Format::Format2(format2), ..Settings::default() }
}

fn sim(level1: u16, hosts: u16) -> Simulation {
    let mut sim = Simulation::new(level1, hosts, settings(Format2::default()), ROOMY);
    sim.run(Span::from_ms(10));
    sim
}

fn join(sim: &mut Simulation, host: usize, first: u32, last: u32) {
    sim.command(host, HostCommand::Join { first, last }).unwrap();
}

fn send_message(
    sim: &mut Simulation,
    host: usize,
    address: u32,
    priority: bool,
    body: &[u8],
) -> Result<(), CommandError> {
    sim.command(host, HostCommand::Send(OutgoingMessage { address, priority, max_wait: None, body }))
}

/// A host with scripted bundles and its own address.
struct ScriptedHost {
    number: u16,
    session: u32,
    confirmed: u32,
}

impl ScriptedHost {
    /// Adds the host and confirms its session.
    fn new(sim: &mut Simulation, number: u16) -> ScriptedHost {
        let mut scripted = ScriptedHost { number, session: 0, confirmed: 0 };
        scripted.send(sim, &[]);
        sim.run(Span::from_ms(30));
        let members = sim.central().format2().unwrap().members();
        scripted.session = members.iter().find(|member| member.session.number == number).unwrap().session.id;
        scripted.send(sim, &[]);
        scripted
    }

    /// Sends changes in one datagram, numbered after the confirmed ones.
    fn send(&mut self, sim: &mut Simulation, changes: &[(bool, &[(u32, u32)])]) {
        let mut builder = BundleBuilder::new(8_000);
        let mut number = self.confirmed;
        for (joins, ranges) in changes {
            let bytes: Vec<u8> =
                ranges.iter().flat_map(|(first, last)| RangeChanges::encode(*first, *last)).collect();
            let item = RangeChanges::new(number, &bytes);
            assert!(builder.push_control(&if *joins { Control::Join(item) } else { Control::Drop(item) }));
            number += ranges.len() as u32;
        }
        let ScriptedHost { number, session, .. } = *self;
        let header =
            Header { role: Role::Host, number, receiver: 0, incarnation: 5, session, sent_before: 0 };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        sim.deliver_from(Node::Central, Central::HOSTS, Peer::new(&[number as u8 + 100]), &bytes);
        let members = sim.central().format2().unwrap().members();
        self.confirmed =
            members.iter().find(|member| member.session.number == number).unwrap().confirmed_changes();
    }

    /// Sends changes until all are confirmed.
    fn change(&mut self, sim: &mut Simulation, joins: bool, ranges: &[(u32, u32)]) {
        let begin = self.confirmed;
        while let Some(left) = ranges.get((self.confirmed - begin) as usize..).filter(|left| !left.is_empty())
        {
            let some: Vec<_> = left.chunks(100).take(4).map(|some| (joins, some)).collect();
            self.send(sim, &some);
            sim.run(Span::from_ms(1));
        }
    }
}

fn packets(sim: &Simulation, at: usize) -> BTreeSet<u16> {
    sim.joined.iter().filter(|(holder, _)| *holder == at).map(|(_, packet)| *packet).collect()
}

#[test]
fn groups_of_a_failed_converter_move_within_a_second() {
    let mut sim = sim(2, 1);
    join(&mut sim, 0, 0, 32 * 64 - 1);
    sim.run(Span::from_ms(10));
    assert_eq!((packets(&sim, 0).len(), packets(&sim, 1).len()), (32, 32));
    sim.stop(Node::Level1(0));
    sim.run(Span::from_s(1));
    assert_eq!(packets(&sim, 1).len(), 64);
    let counts = sim.central().statistics().level1;
    assert_eq!((counts.sessions_ended, counts.moved), (1, 32));
    let gap = Span::from_ms(900);
    assert!(counts.longest_gap >= gap && counts.longest_gap <= Span::from_s(1), "{counts:?}");
    assert!(counts.total_gap >= gap * 32);
    // It returns without groups and owns the next one.
    sim.start(Node::Level1(0));
    sim.run(Span::from_ms(300));
    join(&mut sim, 0, 32 * 100, 32 * 100);
    sim.run(Span::from_ms(10));
    assert_eq!((packets(&sim, 0).len(), sim.overlaps), (1, 0));
}

#[test]
fn level_1_leaves_all_groups_when_the_central_converter_times_out() {
    let mut sim = sim(1, 1);
    join(&mut sim, 0, 0, 0);
    sim.run(Span::from_ms(10));
    sim.stop(Node::Central);
    sim.run(Span::from_s(1));
    assert_eq!((sim.joined.len(), sim.level1(0).statistics().central_timeouts), (0, 1));
    sim.start(Node::Central);
    sim.run(Span::from_ms(300));
    assert_eq!(sim.joined.len(), 1, "the host has joined again");
}

/// Otherwise the central converter, which never lost contact, would assume that the groups are still joined.
#[test]
fn level_1_never_returns_to_a_session_it_left() {
    let mut sim = Simulation::new(1, 1, settings(Format2::default()), ROOMY);
    sim.stop(Node::Central);
    let mut packets = [0; 256];
    packets[0] = 0b101;
    let assign = |sim: &mut Simulation, session: u32| {
        let mut builder = BundleBuilder::new(1_000);
        builder.push_control(&Control::Assign { version: 7, packets: &packets });
        let header =
            Header { role: Role::Central, number: 0, receiver: 1, incarnation: 5, session, sent_before: 0 };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        sim.deliver(Node::Level1(0), Level1::CENTRAL, &bytes);
        sim.joined.len()
    };
    assert_eq!(assign(&mut sim, 3), 2);
    sim.run(Span::from_ms(699));
    assert_eq!(sim.joined.len(), 2);
    sim.run(Span::from_ms(2));
    assert_eq!(sim.joined.len(), 0);
    assert_eq!(assign(&mut sim, 3), 0);
    assert_eq!(assign(&mut sim, 4), 2);
}

/// The converter was greeted, but its bundles were lost until it timed out. The central converter receives it again,
/// but it never confirmed the abandoned session.
#[test]
fn level_1_that_timed_out_before_confirming_gets_a_new_session() {
    let mut sim = Simulation::new(1, 1, settings(Format2::default()), ROOMY);
    let was_greeted = |sim: &Simulation| sim.octets_to.keys().any(|(port, _)| *port == Central::LEVEL1);
    while !was_greeted(&sim) {
        sim.run(Span::from_us(10));
    }
    sim.impairments.loss = 1.0;
    sim.run(Span::from_ms(690));
    assert_eq!(
        (sim.level1(0).statistics().bundles_received, sim.level1(0).statistics().central_timeouts),
        (1, 0)
    );
    sim.impairments.loss = 0.0;
    sim.run(Span::from_ms(30));
    assert_eq!(sim.level1(0).statistics().central_timeouts, 1);
    sim.run(Span::from_s(3));
    join(&mut sim, 0, 0, 0);
    sim.run(Span::from_ms(10));
    assert_eq!((sim.joined.len(), sim.level1(0).statistics().central_timeouts), (1, 1));
    let counts = sim.central().statistics().level1;
    assert_eq!((counts.sessions_started, counts.sessions_ended), (1, 0), "no session was established before");
}

/// Returns a bundle from the central converter to a host in a session.
fn to_host(number: u16, session: u32, control: &[Control<'_>]) -> Vec<u8> {
    let mut builder = BundleBuilder::new(MIN_DATAGRAM);
    control.iter().for_each(|control| assert!(builder.push_control(control)));
    let header =
        Header { role: Role::Central, number: 0, receiver: number, incarnation: 1, session, sent_before: 0 };
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&header, &mut bytes);
    bytes
}

#[test]
fn a_host_misled_by_a_stale_bundle_recovers_its_interest() {
    let mut sim = sim(1, 2);
    (0..4).for_each(|n| join(&mut sim, 0, n * 100, n * 100));
    sim.run(Span::from_ms(100));
    // A late bundle of a session before the restart arrives; the following leave is lost.
    sim.deliver(Node::Host(0), Host::CENTRAL, &to_host(1, 4711, &[]));
    sim.command(0, HostCommand::Drop { first: 0, last: 0 }).unwrap();
    join(&mut sim, 0, 999, 999);
    sim.run(Span::from_s(3));
    let members = sim.central().format2().unwrap().members();
    let interest: Vec<_> = members.iter().next().unwrap().interest().iter().collect();
    assert_eq!(interest, [(100, 100), (200, 200), (300, 300), (999, 999)]);
    assert!(!sim.host(0).has_pending());
    assert_eq!(sim.host(0).statistics().sessions, 3);
}

#[test]
fn a_host_that_left_an_unconfirmed_session_gets_a_new_one() {
    let mut sim = Simulation::new(1, 1, settings(Format2::default()), ROOMY);
    join(&mut sim, 0, 7, 7);
    // The host receives its session, and then the late bundle before any bundle of its session arrives.
    sim.run(HOP + Span::from_us(10));
    sim.impairments.loss = 1.0;
    sim.run(Span::from_ms(1));
    assert_eq!(sim.host(0).statistics().sessions, 1);
    sim.deliver(Node::Host(0), Host::CENTRAL, &to_host(1, 4711, &[]));
    sim.impairments.loss = 0.0;
    sim.run(Span::from_s(3));
    let members = sim.central().format2().unwrap().members();
    assert!(members.iter().next().unwrap().interest().contains(7));
}

#[test]
fn acknowledgements_of_an_old_session_are_ignored() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(50));
    // From here on its bundles are lost.
    sim.impairments = Impairments { loss: 1.0, ..Impairments::default() };
    (0..3).for_each(|n| send_message(&mut sim, 0, 7, true, &[n]).unwrap());
    sim.run(Span::from_ms(5));
    sim.impairments = Impairments::default();
    sim.deliver(Node::Host(0), Host::CENTRAL, &to_host(1, 4711, &[Control::Ack { next: 3, beyond: 0 }]));
    sim.run(Span::from_s(3));
    let bodies: Vec<_> = sim.received.iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(bodies, [0, 1, 2]);
}

#[test]
fn silent_and_restarted_hosts_lose_their_interest() {
    let mut sim = sim(1, 3);
    for host in 0..3 {
        join(&mut sim, host, 1_000 * host as u32, 1_000 * host as u32);
    }
    sim.run(Span::from_ms(10));
    sim.stop(Node::Host(0));
    sim.start(Node::Host(1));
    sim.run(Span::from_ms(10));
    assert_eq!(sim.joined.len(), 2, "a new incarnation is detected at once");
    sim.run(Span::from_s(1));
    assert_eq!(sim.joined.len(), 1);
    let machine = sim.central().format2().unwrap();
    assert_eq!(machine.members().iter().map(|member| member.session.number).collect::<Vec<_>>(), [2, 3]);
    let statistics = sim.central().statistics();
    assert_eq!((statistics.hosts_joined, statistics.hosts_left), (4, 2));
    sim.command(2, HostCommand::Bye).unwrap();
    sim.stop(Node::Host(2));
    sim.run(Span::from_ms(1));
    assert_eq!(sim.joined.len(), 0, "a bye takes effect at once");
}

#[test]
fn an_idle_host_sends_only_hellos() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 5, 5);
    let sent = |sim: &Simulation| [0, 1].map(|host| sim.host(host).statistics().bundles_sent);
    let before = sent(&sim);
    sim.run(Span::from_s(10));
    for (before, after) in before.into_iter().zip(sent(&sim)) {
        // Four hellos per second, and the bundles for the join.
        assert!((30..=50).contains(&(after - before)), "{before} to {after}");
    }
}

#[test]
fn load_moves_to_the_idlest_converter_and_stays() {
    let mut sim = sim(3, 1);
    join(&mut sim, 0, 0, 32 * 30 - 1);
    sim.run(Span::from_ms(10));
    // One converter has all the load: every third packet address.
    let first: Vec<u16> = packets(&sim, 0).into_iter().collect();
    assert_eq!(first.len(), 10);
    let mut moved = Vec::new();
    for _ in 0..30 {
        for n in 0..1_000usize {
            sim.inject(u32::from(first[n % 10]) * 32, false, b"load");
            sim.run(Span::from_ms(1));
        }
        moved.push(sim.central().statistics().level1.moved);
    }
    let load = |at: usize| first.iter().filter(|packet| packets(&sim, at).contains(packet)).count();
    let loads = [0, 1, 2].map(load);
    assert!(loads.iter().all(|load| (3..=4).contains(load)), "{loads:?}");
    assert_eq!(moved[12], moved[29], "it is as even as it gets: {moved:?}");
    assert_eq!(sim.overlaps, 0, "left, then joined");
    let counts = sim.central().statistics().level1;
    assert!(counts.longest_gap > Span::ZERO && counts.longest_gap < Span::from_ms(10), "{counts:?}");
    let max_datagram = sim.central().statistics().sequence;
    assert!(max_datagram.duplicates == 0 && max_datagram.missing < 20, "{max_datagram:?}");
}

#[test]
fn no_message_is_reflected_to_its_site() {
    for fanout in [Fanout::Unicast, Fanout::Broadcast] {
        let mut sim = Simulation::new(2, 3, settings(Format2 { fanout, ..Format2::default() }), ROOMY);
        sim.run(Span::from_ms(10));
        (0..3).for_each(|host| join(&mut sim, host, 0, 1_000));
        sim.run(Span::from_ms(10));
        for n in 0..100 {
            send_message(&mut sim, n % 3, n as u32 * 10, n % 2 == 0, &[n as u8; 50]).unwrap();
        }
        sim.run(Span::from_ms(100));
        assert_eq!((sim.received.len(), sim.out.len()), (200, 100));
        assert!(sim.received.iter().all(|(at, from, _)| from.source != 1 << 16 | (*at as u32 + 1)));
        let own: u64 = (0..2).map(|at| sim.level1(at).statistics().looped_back).sum();
        assert_eq!(own, 100, "all messages return and are ignored");
    }
}

#[test]
fn the_longest_message_gets_through_beside_control() {
    for max_datagram in [MIN_DATAGRAM, 1_472, 60_000] {
        let mut sim = Simulation::new(1, 2, settings(Format2 { max_datagram, ..Format2::default() }), ROOMY);
        let max_octets = ((max_datagram - HEADER - ENTRY) & !7).min(MAX_BODY + 12) - 12;
        for priority in [false, true] {
            sim.run(Span::from_ms(1));
            // At the same time there are many changes to send.
            (0..40).for_each(|n| join(&mut sim, 1, n * 100, n * 100));
            send_message(&mut sim, 0, 0, priority, &vec![9; max_octets]).unwrap();
            assert_eq!(
                send_message(&mut sim, 0, 0, priority, &vec![9; max_octets + 1]),
                Err(CommandError::TooLong)
            );
            sim.inject(100, priority, &vec![8; max_octets]);
            sim.run(Span::from_ms(100));
            sim.inject(100, priority, &vec![7; max_octets]);
            send_message(&mut sim, 0, 100, priority, &vec![6; max_octets]).unwrap();
            sim.run(Span::from_ms(100));
            let received: BTreeSet<u8> = sim.received.drain(..).map(|(_, _, body)| body[0]).collect();
            assert!(received.contains(&7) && received.contains(&6), "{max_datagram}: {received:?}");
        }
    }
}

/// The sender allows larger datagrams.
#[test]
fn messages_too_long_for_the_central_converter_are_dropped_as_unfit() {
    for fanout in [Fanout::Unicast, Fanout::Broadcast] {
        let format2 = Format2 { max_datagram: 600, fanout, ..Format2::default() };
        let mut sim = Simulation::new(2, 2, settings(format2), ROOMY);
        sim.stop(Node::Level1(1));
        join(&mut sim, 1, 7, 7);
        sim.run(Span::from_ms(10));
        let session = sim.central().format2().unwrap().members().iter().next().unwrap().session.id;
        for priority in [false, true] {
            // From the wide area to a host; and from the first host, in its incarnation, to the second and to the
            // wide area.
            for (role, number, incarnation, session, source, port, at) in [
                (Role::Level1, 2, 90, 0, 9 << 16, Central::LEVEL1, &[0, 1][..]),
                (Role::Host, 1, 4, session, 1 << 16 | 1, Central::HOSTS, &[0]),
            ] {
                let mut builder = BundleBuilder::new(2_000);
                let (max_wait_10us, reliable, body) = (wire::NO_LIMIT, None, &[9; 600][..]);
                let message = Message {
                    address: 7,
                    source,
                    incarnation,
                    sequence: 0,
                    max_wait_10us,
                    priority,
                    reliable,
                    body,
                };
                assert!(builder.push(&message));
                let mut bytes = vec![0; builder.octets()];
                builder.finish(
                    &Header { role, number, receiver: 0, incarnation, session, sent_before: 0 },
                    &mut bytes,
                );
                sim.deliver_from(Node::Central, port, Peer::new(at), &bytes);
            }
        }
        for (drops, count) in
            [(sim.central().statistics().drops_to_hosts, 2), (sim.central().statistics().drops_to_level1, 1)]
        {
            let found = [false, true].map(|priority| drops.get(DropReason::Unfit, priority));
            assert_eq!((found, drops.total()), ([count; 2], 2 * count), "{fanout:?}");
        }
    }
}

/// PDUs and other messages arrive octet for octet.
#[test]
fn bodies_arrive_unchanged() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(10));
    let mut pdu: Vec<u8> = (0..144).map(|n| n as u8).collect();
    pdu[8..10].copy_from_slice(&144u16.to_be_bytes());
    let mut wrong_length = pdu.clone();
    wrong_length[9] = 48;
    let mut index_pdu = pdu.clone();
    index_pdu[2] = 244;
    let bodies = [
        pdu.clone(),
        wrong_length,
        index_pdu,
        Vec::new(),
        vec![0; 20],
        vec![0; 22],
        [pdu.clone(), pdu].concat(),
    ];
    for body in &bodies {
        send_message(&mut sim, 0, 7, false, body).unwrap();
        send_message(&mut sim, 0, 7, true, body).unwrap();
    }
    sim.run(Span::from_ms(100));
    for priority in [false, true] {
        let received = sim.received.iter().filter(|(_, from, _)| from.priority == priority);
        assert_eq!(received.map(|(_, _, body)| body.clone()).collect::<Vec<_>>(), bodies);
    }
}

#[test]
fn a_priority_message_may_limit_its_wait() {
    let timing = Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::from_ms(5), gap: None };
    let settings = Settings { timing, ..settings(Format2::default()) };
    let mut sim = Simulation::new(1, 2, settings, ROOMY);
    sim.run(Span::from_ms(10));
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(100));
    for (max_wait_10us, ms) in [(None, 10), (Some(Span::from_us(700)), 1), (Some(Span::ZERO), 0)] {
        let sent = sim.now;
        let message = OutgoingMessage { address: 7, priority: true, max_wait: max_wait_10us, body: b"soon" };
        sim.command(0, HostCommand::Send(message)).unwrap();
        while sim.received.is_empty() {
            sim.run(Span::from_us(100));
        }
        sim.received.clear();
        let took = sim.now.since(sent).as_ps() / 1_000_000_000;
        assert_eq!(took, ms, "{max_wait_10us:?}");
        sim.run(Span::from_ms(100));
    }
}

#[test]
fn a_host_limits_its_receive_rate() {
    for fanout in [Fanout::Unicast, Fanout::Broadcast] {
        let mut sim = Simulation::new(1, 2, settings(Format2 { fanout, ..Format2::default() }), ROOMY);
        sim.run(Span::from_ms(10));
        (0..2).for_each(|host| join(&mut sim, host, 7, 7));
        sim.command(1, HostCommand::Saturate(Some(200))).unwrap();
        sim.run(Span::from_ms(10));
        for n in 0..4_000 {
            sim.inject(7, n % 10 == 0, b"much");
            sim.run(Span::from_ms(1));
        }
        sim.run(Span::from_ms(100));
        let received = |host, priority| {
            let received =
                sim.received.iter().filter(|(at, from, _)| *at == host && from.priority == priority);
            received.count() as u64
        };
        assert_eq!((received(0, false), received(0, true), received(1, true)), (3_600, 400, 400));
        assert!((790..=870).contains(&received(1, false)), "{}", received(1, false));
        let dropped = |sim: &Simulation| {
            sim.central().statistics().drops_to_hosts.get(DropReason::Saturated, false)
                + sim.host(1).statistics().drops.get(DropReason::Saturated, false)
        };
        assert_eq!(received(1, false) + dropped(&sim), 3_600);
        // The removal of the limit is announced, too.
        sim.command(1, HostCommand::Saturate(None)).unwrap();
        sim.run(Span::from_ms(10));
        sim.received.clear();
        let before = dropped(&sim);
        for _ in 0..1_000 {
            sim.inject(7, false, b"much");
            sim.run(Span::from_us(100));
        }
        sim.run(Span::from_ms(100));
        assert_eq!((sim.received.len(), dropped(&sim)), (2_000, before));
    }
}

#[test]
fn the_receive_limit_admits_bursts_of_a_bundle() {
    let settings = Settings { timing: Timing::LEAST_PROCESSOR, ..settings(Format2::default()) };
    let mut sim = Simulation::new(1, 1, settings, ROOMY);
    sim.run(Span::from_ms(10));
    join(&mut sim, 0, 7, 7);
    sim.command(0, HostCommand::Saturate(Some(1_000))).unwrap();
    sim.run(Span::from_ms(50));
    for _ in 0..8_000 {
        sim.inject(7, false, b"twice as much");
        sim.run(Span::from_us(500));
    }
    assert!((3_900..=4_300).contains(&sim.received.len()), "{}", sim.received.len());
}

#[test]
fn a_full_inbox_delays_acknowledgements() {
    let mut sim = sim(1, 2);
    sim.run(Span::from_ms(10));
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(50));
    sim.receives = false;
    let body = [1; 1_000];
    // The inbox holds 4 MiB.
    for _ in 0..5_000 {
        sim.inject(7, false, &body);
        sim.run(Span::from_us(50));
    }
    for n in 0..50u8 {
        send_message(&mut sim, 0, 7, true, &[n]).unwrap();
    }
    send_message(&mut sim, 0, 7, true, &body).unwrap();
    sim.run(Span::from_s(1));
    assert!(sim.received.is_empty());
    let drops = |sim: &Simulation, priority| sim.host(1).statistics().drops.get(DropReason::Full, priority);
    assert!(drops(&sim, false) > 500);
    sim.resume_receiving(1);
    sim.inject(7, true, b"last");
    sim.run(Span::from_s(2));
    let urgent: Vec<&[u8]> =
        sim.received.iter().filter(|(_, from, _)| from.priority).map(|(_, _, body)| &body[..]).collect();
    let sent: Vec<[u8; 1]> = (0..50).map(|n| [n]).collect();
    let sent: Vec<&[u8]> = sent.iter().map(|first| &first[..]).chain([&body[..], &b"last"[..]]).collect();
    assert!(urgent == sent, "{} of {}", urgent.len(), sent.len());
    assert_eq!(drops(&sim, true), 0);
}

/// A host joins ever more ranges, and then the whole address space repeatedly.
#[test]
fn interest_is_bounded_in_size_and_in_work_per_datagram() {
    let mut sim = Simulation::new(1, 2, settings(Format2::default()), ROOMY);
    sim.run(Span::from_ms(10));
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(10));
    let mut scripted = ScriptedHost::new(&mut sim, 3);
    let all: Vec<_> = (0..MAX_RANGES as u32).map(|n| (n * 8, n * 8 + 3)).collect();
    scripted.change(&mut sim, true, &all);
    assert_eq!(sim.central().format2().unwrap().segments().len(), 2 * MAX_RANGES + 1);
    // The host has reached its limit; another one can join as many ranges again.
    scripted.change(&mut sim, true, &[(1_000_000, 1_000_000)]);
    assert_eq!(sim.central().statistics().changes_refused, 1);
    let mut other = ScriptedHost::new(&mut sim, 4);
    other.change(
        &mut sim,
        true,
        &all.iter().map(|(at, _)| (1 << 20 | *at, 1 << 20 | *at)).collect::<Vec<_>>(),
    );
    let segments = sim.central().format2().unwrap().segments();
    assert!(segments.len() <= MAX_SEGMENTS, "{}", segments.len());
    let refused = sim.central().statistics().changes_refused;
    assert!(refused > 1 && refused < 20, "{refused}");
    // Alternating changes of the whole address space: one per datagram is applied, and then none.
    let (confirmed, before) = (scripted.confirmed, sim.central().statistics().changes_deferred);
    for _ in 0..20 {
        scripted.send(&mut sim, &[(true, &[(0, u32::MAX)][..]), (false, &[(0, u32::MAX)])].repeat(50));
    }
    assert!(scripted.confirmed - confirmed <= 3, "{} changes", scripted.confirmed - confirmed);
    assert!(sim.central().statistics().changes_deferred >= before + 17);
    // Changes of other hosts are applied soon.
    sim.run(Span::from_s(1));
    join(&mut sim, 0, 9, 9);
    sim.run(Span::from_s(1));
    assert!(!sim.host(0).has_pending());
    assert_eq!(sim.central().format2().unwrap().members().len(), 2, "the silent ones are gone");
    assert_eq!(sim.central().format2().unwrap().segments().len(), 5);
}

/// Returns a bundle of unreliable messages to address 7, each from another source, starting with `from`.
fn bundle_of_flows(header: Header, from: u32) -> Vec<u8> {
    let mut builder = BundleBuilder::new(60_000);
    for source in from..from + 255 {
        let (incarnation, max_wait_10us, body) = (1, wire::NO_LIMIT, &b""[..]);
        let (sequence, priority, reliable) = (0, false, None);
        let message =
            Message { address: 7, source, incarnation, sequence, max_wait_10us, priority, reliable, body };
        assert!(builder.push(&message));
    }
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&header, &mut bytes);
    bytes
}

/// It was acknowledged, so that it is not sent again.
#[test]
fn priority_messages_pass_a_full_flow_table() {
    let mut sim = sim(2, 2);
    sim.stop(Node::Level1(1));
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_s(1));
    for n in 0..=MAX_FLOWS as u32 / 255 {
        let header = Header {
            role: Role::Level1,
            number: 2,
            receiver: 0,
            incarnation: 77,
            session: 0,
            sent_before: 0,
        };
        sim.deliver(Node::Central, Central::LEVEL1, &bundle_of_flows(header, (9 << 16) + n * 255));
        // At most 64 bundles wait for the host.
        sim.run(Span::from_ms(1));
    }
    assert_eq!(sim.central().format2().unwrap().flows(), MAX_FLOWS);
    let unknown = sim.central().statistics().sequence.unknown;
    assert!(unknown > 0);
    assert_eq!(
        sim.central().statistics().drops_to_hosts.get(DropReason::Full, false),
        unknown,
        "all are counted"
    );
    assert_eq!(sim.host(1).statistics().received, MAX_FLOWS as u64);
    sim.received.clear();
    // No endpoint tracks this flow, and the tables are full.
    send_message(&mut sim, 0, 7, true, b"urgent").unwrap();
    sim.run(Span::from_ms(100));
    assert_eq!(sim.received.iter().map(|(_, _, body)| &body[..]).collect::<Vec<_>>(), [b"urgent"]);
    assert_eq!(sim.host(0).statistics().drops.total() + sim.host(1).statistics().drops.total(), 0);
    assert!(sim.host(1).statistics().sequence.unknown > 0 && !sim.host(0).has_pending());
}

/// Returns an empty bundle of a host or level-1 converter.
fn hello(role: Role, number: u16, incarnation: u32, session: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    BundleBuilder::new(1_000)
        .finish(&Header { role, number, receiver: 0, incarnation, session, sent_before: 0 }, &mut bytes);
    bytes
}

/// A forged source address receives at most three times the octets sent in its name, until the session is confirmed
/// from there.
#[test]
fn an_unvalidated_peer_is_sent_at_most_three_times_its_octets() {
    for (role, port) in [(Role::Host, Central::HOSTS), (Role::Level1, Central::LEVEL1)] {
        let mut sim = sim(2, 3);
        sim.stop(Node::Level1(1));
        sim.stop(Node::Host(1));
        sim.run(Span::from_s(2));
        join(&mut sim, 0, 0, 70_000);
        let victim = Peer::new(&[0, 77]);
        let sent = |sim: &Simulation| sim.octets_to.get(&(port, victim)).copied().unwrap_or(0);
        for n in 1..=5 {
            sim.deliver_from(Node::Central, port, victim, &hello(role, 2, 100, 0));
            for _ in 0..100 {
                sim.inject(7, false, &[9; 1_000]);
                send_message(&mut sim, 2, 60_000, false, &[9; 1_000]).unwrap();
                sim.run(Span::from_ms(1));
            }
            let most = 3 * n * HEADER;
            assert!((40..=most).contains(&sent(&sim)), "{role:?}: {} after {n}", sent(&sim));
        }
        // Groups are not assigned to it, and messages of hosts leave by another converter.
        let converter = sim.central().format2().unwrap().level1_peers().iter().nth(1).unwrap();
        assert_eq!(converter.target().count(), 0);
        assert!(sim.out.len() >= 500 && sim.joined.len() == 2_048, "{} {}", sim.out.len(), sim.joined.len());
        // Guessed session numbers have no effect.
        let before = sent(&sim);
        for session in 1..1_000 {
            sim.deliver_from(Node::Central, port, Peer::new(&[0, 78]), &hello(role, 2, 100, session));
        }
        sim.run(Span::from_ms(500));
        assert_eq!(sent(&sim), before);
        // Its session number lifts the limit.
        let machine = sim.central().format2().unwrap();
        let host = machine
            .members()
            .iter()
            .find(|member| member.session.number == 2)
            .map(|member| member.session.id);
        let converter = machine
            .level1_peers()
            .iter()
            .nth(1)
            .map(|converter| converter.session().map_or(0, |session| session.id));
        let session = if role == Role::Host { host } else { converter };
        sim.deliver_from(Node::Central, port, victim, &hello(role, 2, 100, session.unwrap()));
        sim.run(Span::from_ms(100));
        assert!(sent(&sim) > before);
    }
}

/// Otherwise anyone who knows the number and incarnation of a host could divert its messages.
#[test]
fn a_peer_moves_only_with_its_session() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(10));
    // Incarnations are those of the simulation's starts: central, level 1, and the hosts.
    let forger = Peer::new(&[0, 77]);
    for _ in 0..100 {
        sim.deliver_from(Node::Central, Central::HOSTS, forger, &hello(Role::Host, 2, 4, 0));
        sim.deliver_from(Node::Central, Central::LEVEL1, forger, &hello(Role::Level1, 1, 2, 0));
        // An earlier incarnation is ignored, too.
        sim.deliver_from(Node::Central, Central::LEVEL1, forger, &hello(Role::Level1, 1, 1, 0));
        sim.run(Span::from_ms(20));
        sim.inject(7, false, b"for the host");
        send_message(&mut sim, 0, 8, false, b"for the wide area").unwrap();
    }
    sim.run(Span::from_ms(100));
    assert_eq!((sim.received.len(), sim.out.len()), (100, 100));
    assert!(sim.octets_to.keys().all(|(_, peer)| *peer != forger));
    let statistics = sim.central().statistics();
    assert_eq!(
        (statistics.hosts_joined, statistics.level1.sessions_started, statistics.level1.sessions_ended),
        (2, 1, 0)
    );
}

/// Otherwise anyone who knows a number could replace its owner.
#[test]
fn a_later_incarnation_replaces_a_peer_only_with_its_session() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(10));
    let forger = Peer::new(&[77, 77]);
    for incarnation in 1_000..1_100 {
        sim.deliver_from(Node::Central, Central::LEVEL1, forger, &hello(Role::Level1, 1, incarnation, 0));
        // Accepted, this message would make all further messages of the host stale.
        let (source, max_wait_10us, body) = (1 << 16 | 1, wire::NO_LIMIT, &b"a lie"[..]);
        let message = Message {
            address: 7,
            source,
            incarnation,
            sequence: 9,
            max_wait_10us,
            priority: false,
            reliable: None,
            body,
        };
        let mut builder = BundleBuilder::new(1_000);
        assert!(builder.push(&message));
        let mut bytes = vec![0; builder.octets()];
        builder.finish(
            &Header { role: Role::Host, number: 1, receiver: 0, incarnation, session: 0, sent_before: 0 },
            &mut bytes,
        );
        sim.deliver_from(Node::Central, Central::HOSTS, forger, &bytes);
        sim.deliver_from(Node::Central, Central::HOSTS, forger, &hello(Role::Host, 2, incarnation, 0));
        sim.run(Span::from_ms(20));
        sim.inject(7, false, b"for the host");
        send_message(&mut sim, 0, 7, false, b"for both").unwrap();
    }
    sim.run(Span::from_ms(100));
    assert_eq!((sim.received.len(), sim.out.len()), (200, 100));
    assert!(sim.received.iter().all(|(.., body)| body != b"a lie"));
    let session_counts = |sim: &Simulation| {
        let counts = sim.central().statistics();
        (counts.hosts_joined, counts.hosts_left, counts.level1.sessions_started, counts.level1.sessions_ended)
    };
    assert_eq!(session_counts(&sim), (2, 0, 1, 0));
    // It is sent a session: 40 octets for at least 32.
    let confirmed = |sim: &Simulation, port| sim.octets_to.get(&(port, forger)).copied().unwrap_or(0);
    assert_eq!((confirmed(&sim, Central::LEVEL1), confirmed(&sim, Central::HOSTS)), (100 * 40, 200 * 40));
}

/// The present host receives the session meant for the forger, and confirms it.
#[test]
fn a_forged_restart_from_the_peers_own_address_is_survived() {
    let mut sim = sim(1, 2);
    join(&mut sim, 1, 7, 7);
    sim.run(Span::from_ms(10));
    for (role, port, peer, number) in [
        (Role::Host, Central::HOSTS, Peer::new(&[1]), 2),
        (Role::Level1, Central::LEVEL1, Peer::new(&[0, 1]), 1),
    ] {
        sim.deliver_from(Node::Central, port, peer, &hello(role, number, 5_000, 0));
        sim.run(Span::from_ms(300));
        sim.inject(7, false, b"for the host");
        send_message(&mut sim, 0, 7, false, b"for both").unwrap();
        sim.run(Span::from_ms(100));
        assert_eq!((sim.received.drain(..).count(), sim.out.drain(..).count()), (2, 1), "{role:?}");
    }
}

/// Both keep sending: the bundles of the earlier one are too late to be delayed ones of a restarted host.
#[test]
fn duplicate_host_numbers_are_detected() {
    let mut sim = sim(1, 2);
    let (first, second) = (Peer::new(&[0]), Peer::new(&[0, 50]));
    // Host 1 starts its second incarnation a moment before the other one claims its number.
    sim.stop(Node::Host(0));
    sim.run(Span::from_s(1));
    sim.deliver_from(Node::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, 0));
    sim.run(Span::from_ms(10));
    let session = sim.central().format2().unwrap().members().iter().next().unwrap().session.id;
    sim.deliver_from(Node::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, session));
    sim.start(Node::Host(0));
    let duplicate = |sim: &Simulation| sim.central().format2().unwrap().members().duplicate();
    sim.run(Span::from_ms(600));
    assert_eq!(duplicate(&sim), None);
    for _ in 0..4 {
        sim.run(Span::from_ms(200));
        sim.deliver_from(Node::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, session));
    }
    let found = duplicate(&sim).unwrap();
    assert_eq!((found.number, found.peers), (1, [second, first]));
}

#[test]
fn sessions_are_unpredictable_without_the_secret() {
    let sessions = |secret, incarnation, role| {
        let mut sessions = Sessions::new(Seed(secret), incarnation, role);
        (0..1_000).map(|_| sessions.issue()).collect::<BTreeSet<u32>>()
    };
    let all = [(1, 1, Role::Host), (1, 1, Role::Level1), (1, 2, Role::Host), (2, 1, Role::Host)];
    let all = all.map(|(secret, incarnation, role)| sessions(secret, incarnation, role));
    // Both halves of the number space are used equally, and the four thousand numbers are distinct.
    assert!(all.iter().all(|some| !some.contains(&0) && some.len() == 1_000));
    assert!(all.iter().all(|some| (400..600).contains(&some.range(1 << 31..).count())));
    assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), 4_000);
    assert_eq!(sessions(1, 1, Role::Host), all[0], "but with it they are");
}

/// Otherwise one could mistake the bundles of the other for its own.
#[test]
fn two_incarnations_share_no_session() {
    let mut sim = sim(1, 3);
    let sessions = |sim: &Simulation| -> BTreeSet<u32> {
        let machine = sim.central().format2().unwrap();
        let hosts = machine.members().iter().map(|member| member.session.id);
        hosts
            .chain(
                machine
                    .level1_peers()
                    .iter()
                    .map(|converter| converter.session().map_or(0, |session| session.id)),
            )
            .collect()
    };
    let before = sessions(&sim);
    sim.start(Node::Central);
    sim.run(Span::from_ms(300));
    let after = sessions(&sim);
    assert!(after.len() == 4 && before.is_disjoint(&after), "{before:?} {after:?}");
}

/// Messages sent before the first contact with the central converter wait or are counted.
#[test]
fn endpoints_start_in_any_order() {
    for order in 0..3 {
        let mut sim = Simulation::new(1, 2, settings(Format2::default()), ROOMY);
        let places = [Node::Central, Node::Level1(0), Node::Host(0), Node::Host(1)];
        places.into_iter().for_each(|node| sim.stop(node));
        for n in 0..4 {
            sim.start(places[(n * 3 + order) % 4]);
            sim.run(Span::from_ms(400));
        }
        join(&mut sim, 1, 7, 7);
        sim.run(Span::from_ms(400));
        send_message(&mut sim, 0, 7, true, b"hello").unwrap();
        sim.run(Span::from_ms(400));
        assert_eq!((sim.received.len(), sim.joined.len(), sim.out.len()), (1, 1, 1), "order {order}");
    }
}

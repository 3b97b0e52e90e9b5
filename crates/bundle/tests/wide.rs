//! What the wide format promises, one by one: who is silent is forgotten, what moves is left and then joined, who restarts is
//! told anew, deadlines and saturation of one's own, and the longest message.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeSet;

use trunkline_bundle::drops::Why;
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::{Command, Post, Refusal};
use trunkline_bundle::path::{MOST_FLOWS, Sessions};
use trunkline_bundle::ranges::{MOST_PIECES, MOST_RANGES};
use trunkline_bundle::settings::{Spread, Wide};
use trunkline_bundle::wire::wide::control::{Changes, Control};
use trunkline_bundle::wire::wide::{
    self as wire, Builder, ENTRY, HEADER, Header, LEAST_PATH, LONGEST_BODY, Message, Role,
};
use trunkline_bundle::{Central, Format, Host, Level1, Settings};
use trunkline_endpoint::Peer;
use trunkline_units::{Seed, Span};
use world::{HOP, Line, Place, ROOMY, World};

fn settings(wide: Wide) -> Settings {
    Settings { timing: Timing::LEAST_DELAY, format: Format::Wide(wide), ..Settings::default() }
}

fn world(level1: u16, hosts: u16) -> World {
    let mut world = World::new(level1, hosts, settings(Wide::default()), ROOMY);
    world.run(Span::from_ms(10));
    world
}

fn join(world: &mut World, host: usize, first: u32, last: u32) {
    world.command(host, Command::JoinRange { first, last }).unwrap();
}

fn post(world: &mut World, host: usize, address: u32, priority: bool, body: &[u8]) -> Result<(), Refusal> {
    world.command(host, Command::Post(Post { address, priority, within: None, body }))
}

/// A host that says what it likes, from a place where nobody else is.
struct Foreign {
    number: u16,
    session: u32,
    told: u32,
}

impl Foreign {
    /// It is met, and in its session.
    fn new(world: &mut World, number: u16) -> Foreign {
        let mut foreign = Foreign { number, session: 0, told: 0 };
        foreign.say(world, &[]);
        world.run(Span::from_ms(30));
        let members = world.central().wide().unwrap().members();
        foreign.session = members.iter().find(|member| member.number == number).unwrap().session;
        foreign.say(world, &[]);
        foreign
    }

    /// Says changes in one datagram, all of which are numbered behind what was heard.
    fn say(&mut self, world: &mut World, changes: &[(bool, &[(u32, u32)])]) {
        let mut builder = Builder::new(8_000);
        let mut number = self.told;
        for (joins, ranges) in changes {
            let bytes: Vec<u8> =
                ranges.iter().flat_map(|(first, last)| Changes::encode(*first, *last)).collect();
            let item = Changes::new(number, &bytes);
            assert!(builder.tell(&if *joins { Control::Join(item) } else { Control::Drop(item) }));
            number += ranges.len() as u32;
        }
        let Foreign { number, session, .. } = *self;
        let header = Header { role: Role::Host, number, to: 0, life: 5, session, before: 0 };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        world.give_from(Place::Central, Central::HOSTS, Peer::new(&[number as u8 + 100]), &bytes);
        let members = world.central().wide().unwrap().members();
        self.told = members.iter().find(|member| member.number == number).unwrap().told_of();
    }

    /// Tells changes until they are heard.
    fn change(&mut self, world: &mut World, joins: bool, ranges: &[(u32, u32)]) {
        let begin = self.told;
        while let Some(left) = ranges.get((self.told - begin) as usize..).filter(|left| !left.is_empty()) {
            let some: Vec<_> = left.chunks(100).take(4).map(|some| (joins, some)).collect();
            self.say(world, &some);
            world.run(Span::from_ms(1));
        }
    }
}

fn packets(world: &World, at: usize) -> BTreeSet<u16> {
    world.joined.iter().filter(|(holder, _)| *holder == at).map(|(_, packet)| *packet).collect()
}

#[test]
fn the_groups_of_a_dead_level_1_are_taken_over_in_a_second_and_the_gap_is_counted() {
    let mut world = world(2, 1);
    join(&mut world, 0, 0, 32 * 64 - 1);
    world.run(Span::from_ms(10));
    assert_eq!((packets(&world, 0).len(), packets(&world, 1).len()), (32, 32));
    world.stop(Place::Level1(0));
    world.run(Span::from_s(1));
    assert_eq!(packets(&world, 1).len(), 64);
    let counts = world.central().statistics().sides;
    assert_eq!((counts.gone, counts.moved), (1, 32));
    let gap = Span::from_ms(900);
    assert!(counts.longest_gap >= gap && counts.longest_gap <= Span::from_s(1), "{counts:?}");
    assert!(counts.gaps >= gap * 32);
    // It comes back with nothing, and gets what is joined next.
    world.start(Place::Level1(0));
    world.run(Span::from_ms(300));
    join(&mut world, 0, 32 * 100, 32 * 100);
    world.run(Span::from_ms(10));
    assert_eq!((packets(&world, 0).len(), world.overlaps), (1, 0));
}

#[test]
fn level_1_leaves_all_when_the_central_converter_is_silent() {
    let mut world = world(1, 1);
    join(&mut world, 0, 0, 0);
    world.run(Span::from_ms(10));
    world.stop(Place::Central);
    world.run(Span::from_s(1));
    assert_eq!((world.joined.len(), world.level1(0).statistics().lonely), (0, 1));
    world.start(Place::Central);
    world.run(Span::from_ms(300));
    assert_eq!(world.joined.len(), 1, "the host has told again what it wants");
}

/// Else the central converter, which heard it all the time, would take it to get what it has left.
#[test]
fn level_1_does_not_come_back_to_a_session_that_it_has_left() {
    let mut world = World::new(1, 1, settings(Wide::default()), ROOMY);
    world.stop(Place::Central);
    let mut packets = [0; 256];
    packets[0] = 0b101;
    let tell = |world: &mut World, session: u32| {
        let mut builder = Builder::new(1_000);
        builder.tell(&Control::Hold { version: 7, packets: &packets });
        let header = Header { role: Role::Central, number: 0, to: 1, life: 5, session, before: 0 };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        world.give(Place::Level1(0), Level1::CENTRAL, &bytes);
        world.joined.len()
    };
    assert_eq!(tell(&mut world, 3), 2);
    world.run(Span::from_ms(699));
    assert_eq!(world.joined.len(), 2);
    world.run(Span::from_ms(2));
    assert_eq!(world.joined.len(), 0);
    assert_eq!(tell(&mut world, 3), 0);
    assert_eq!(tell(&mut world, 4), 2);
}

/// Level 1 was greeted, and nothing of what it then said arrived before it took leave: the central converter, which hears it
/// again, never had it in the session that it has left.
#[test]
fn level_1_that_took_leave_before_it_was_heard_gets_another_session() {
    let mut world = World::new(1, 1, settings(Wide::default()), ROOMY);
    let greeted = |world: &World| world.octets_to.keys().any(|(port, _)| *port == Central::LEVEL1);
    while !greeted(&world) {
        world.run(Span::from_us(10));
    }
    world.line.loss = 1.0;
    world.run(Span::from_ms(690));
    assert_eq!((world.level1(0).statistics().bundles, world.level1(0).statistics().lonely), (1, 0));
    world.line.loss = 0.0;
    world.run(Span::from_ms(30));
    assert_eq!(world.level1(0).statistics().lonely, 1);
    world.run(Span::from_s(3));
    join(&mut world, 0, 0, 0);
    world.run(Span::from_ms(10));
    assert_eq!((world.joined.len(), world.level1(0).statistics().lonely), (1, 1));
    let counts = world.central().statistics().sides;
    assert_eq!((counts.met, counts.gone), (1, 0), "nobody was there who could go");
}

/// What the central converter says to a host in a session.
fn to_host(number: u16, session: u32, control: &[Control<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(LEAST_PATH);
    control.iter().for_each(|control| assert!(builder.tell(control)));
    let header = Header { role: Role::Central, number: 0, to: number, life: 1, session, before: 0 };
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&header, &mut bytes);
    bytes
}

#[test]
fn a_host_that_a_straggler_leads_astray_gets_another_session_and_what_it_wants() {
    let mut world = world(1, 2);
    (0..4).for_each(|n| join(&mut world, 0, n * 100, n * 100));
    world.run(Span::from_ms(100));
    // Of a session of its life before, which came late; and what it drops then is not heard.
    world.give(Place::Host(0), Host::CENTRAL, &to_host(1, 4711, &[]));
    world.command(0, Command::DropRange { first: 0, last: 0 }).unwrap();
    join(&mut world, 0, 999, 999);
    world.run(Span::from_s(3));
    let members = world.central().wide().unwrap().members();
    let wants: Vec<_> = members.iter().next().unwrap().wants().iter().collect();
    assert_eq!(wants, [(100, 100), (200, 200), (300, 300), (999, 999)]);
    assert!(!world.host(0).is_saying());
    assert_eq!(world.host(0).statistics().sessions, 3);
}

#[test]
fn a_host_that_leaves_its_session_before_it_was_heard_in_it_gets_another() {
    let mut world = World::new(1, 1, settings(Wide::default()), ROOMY);
    join(&mut world, 0, 7, 7);
    // It gets its session, and the straggler before any of its own gets through.
    world.run(HOP + Span::from_us(10));
    world.line.loss = 1.0;
    world.run(Span::from_ms(1));
    assert_eq!(world.host(0).statistics().sessions, 1);
    world.give(Place::Host(0), Host::CENTRAL, &to_host(1, 4711, &[]));
    world.line.loss = 0.0;
    world.run(Span::from_s(3));
    let members = world.central().wide().unwrap().members();
    assert!(members.iter().next().unwrap().wants().has(7));
}

#[test]
fn an_acknowledgement_of_a_session_that_was_left_acknowledges_nothing() {
    let mut world = world(1, 2);
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(50));
    // What it says is lost from here on.
    world.line = Line { loss: 1.0, ..Line::default() };
    (0..3).for_each(|n| post(&mut world, 0, 7, true, &[n]).unwrap());
    world.run(Span::from_ms(5));
    world.line = Line::default();
    world.give(Place::Host(0), Host::CENTRAL, &to_host(1, 4711, &[Control::Ack { next: 3, beyond: 0 }]));
    world.run(Span::from_s(3));
    let bodies: Vec<_> = world.got.iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(bodies, [0, 1, 2]);
}

#[test]
fn a_silent_host_leaves_the_database_and_one_that_restarts_wants_nothing() {
    let mut world = world(1, 3);
    for host in 0..3 {
        join(&mut world, host, 1_000 * host as u32, 1_000 * host as u32);
    }
    world.run(Span::from_ms(10));
    world.stop(Place::Host(0));
    world.start(Place::Host(1));
    world.run(Span::from_ms(10));
    assert_eq!(world.joined.len(), 2, "a new life is noticed at once");
    world.run(Span::from_s(1));
    assert_eq!(world.joined.len(), 1);
    let machine = world.central().wide().unwrap();
    assert_eq!(machine.members().iter().map(|member| member.number).collect::<Vec<_>>(), [2, 3]);
    let statistics = world.central().statistics();
    assert_eq!((statistics.hosts_met, statistics.hosts_gone), (4, 2));
    world.command(2, Command::Bye).unwrap();
    world.stop(Place::Host(2));
    world.run(Span::from_ms(1));
    assert_eq!(world.joined.len(), 0, "who says that he ends is not waited for");
}

#[test]
fn who_wants_nothing_says_hello_and_no_more() {
    let mut world = world(1, 2);
    join(&mut world, 1, 5, 5);
    let sent = |world: &World| [0, 1].map(|host| world.host(host).statistics().bundles_sent);
    let before = sent(&world);
    world.run(Span::from_s(10));
    for (before, after) in before.into_iter().zip(sent(&world)) {
        // Four hellos a second, and what the join was told with.
        assert!((30..=50).contains(&(after - before)), "{before} to {after}");
    }
}

#[test]
fn load_moves_to_who_has_less_and_does_not_come_back() {
    let mut world = world(3, 1);
    join(&mut world, 0, 0, 32 * 30 - 1);
    world.run(Span::from_ms(10));
    // All the load is with one of them: on every third packet address.
    let first: Vec<u16> = packets(&world, 0).into_iter().collect();
    assert_eq!(first.len(), 10);
    let mut moved = Vec::new();
    for _ in 0..30 {
        for n in 0..1_000usize {
            world.hear(u32::from(first[n % 10]) * 32, false, b"load");
            world.run(Span::from_ms(1));
        }
        moved.push(world.central().statistics().sides.moved);
    }
    let load = |at: usize| first.iter().filter(|packet| packets(&world, at).contains(packet)).count();
    let loads = [0, 1, 2].map(load);
    assert!(loads.iter().all(|load| (3..=4).contains(load)), "{loads:?}");
    assert_eq!(moved[12], moved[29], "it is as even as it gets: {moved:?}");
    assert_eq!(world.overlaps, 0, "left, then joined");
    let counts = world.central().statistics().sides;
    assert!(counts.longest_gap > Span::ZERO && counts.longest_gap < Span::from_ms(10), "{counts:?}");
    let path = world.central().statistics().path;
    assert!(path.doubled == 0 && path.missing < 20, "{path:?}");
}

#[test]
fn nothing_comes_back_to_its_site() {
    for spread in [Spread::Each, Spread::All] {
        let mut world = World::new(2, 3, settings(Wide { spread, ..Wide::default() }), ROOMY);
        world.run(Span::from_ms(10));
        (0..3).for_each(|host| join(&mut world, host, 0, 1_000));
        world.run(Span::from_ms(10));
        for n in 0..100 {
            post(&mut world, n % 3, n as u32 * 10, n % 2 == 0, &[n as u8; 50]).unwrap();
        }
        world.run(Span::from_ms(100));
        assert_eq!((world.got.len(), world.out.len()), (200, 100));
        assert!(world.got.iter().all(|(at, from, _)| from.source != 1 << 16 | (*at as u32 + 1)));
        let own: u64 = (0..2).map(|at| world.level1(at).statistics().own).sum();
        assert_eq!(own, 100, "all came back, and were passed over");
    }
}

#[test]
fn the_longest_message_gets_through_whatever_else_is_told() {
    for path in [LEAST_PATH, 1_472, 60_000] {
        let mut world = World::new(1, 2, settings(Wide { path, ..Wide::default() }), ROOMY);
        let longest = ((path - HEADER - ENTRY) & !7).min(LONGEST_BODY + 12) - 12;
        for priority in [false, true] {
            world.run(Span::from_ms(1));
            // While there is much to tell.
            (0..40).for_each(|n| join(&mut world, 1, n * 100, n * 100));
            post(&mut world, 0, 0, priority, &vec![9; longest]).unwrap();
            assert_eq!(post(&mut world, 0, 0, priority, &vec![9; longest + 1]), Err(Refusal::TooLong));
            world.hear(100, priority, &vec![8; longest]);
            world.run(Span::from_ms(100));
            world.hear(100, priority, &vec![7; longest]);
            post(&mut world, 0, 100, priority, &vec![6; longest]).unwrap();
            world.run(Span::from_ms(100));
            let got: BTreeSet<u8> = world.got.drain(..).map(|(_, _, body)| body[0]).collect();
            assert!(got.contains(&7) && got.contains(&6), "{path}: {got:?}");
        }
    }
}

/// The path of who sent it carries more.
#[test]
fn what_is_too_long_for_the_central_converter_is_unfit() {
    for spread in [Spread::Each, Spread::All] {
        let wide = Wide { path: 600, spread, ..Wide::default() };
        let mut world = World::new(2, 2, settings(wide), ROOMY);
        world.stop(Place::Level1(1));
        join(&mut world, 1, 7, 7);
        world.run(Span::from_ms(10));
        let session = world.central().wide().unwrap().members().iter().next().unwrap().session;
        for priority in [false, true] {
            // From the wide area to a host; and from the first host, whose life it is, to the second and to the wide area.
            for (role, number, life, session, source, port, at) in [
                (Role::Level1, 2, 90, 0, 9 << 16, Central::LEVEL1, &[0, 1][..]),
                (Role::Host, 1, 4, session, 1 << 16 | 1, Central::HOSTS, &[0]),
            ] {
                let mut builder = Builder::new(2_000);
                let (within, reliable, body) = (wire::NO_LIMIT, None, &[9; 600][..]);
                let message =
                    Message { address: 7, source, life, sequence: 0, within, priority, reliable, body };
                assert!(builder.push(&message));
                let mut bytes = vec![0; builder.octets()];
                builder.finish(&Header { role, number, to: 0, life, session, before: 0 }, &mut bytes);
                world.give_from(Place::Central, port, Peer::new(at), &bytes);
            }
        }
        for (drops, count) in [
            (world.central().statistics().drops_to_hosts, 2),
            (world.central().statistics().drops_to_level1, 1),
        ] {
            let found = [false, true].map(|priority| drops.get(Why::Unfit, priority));
            assert_eq!((found, drops.total()), ([count; 2], 2 * count), "{spread:?}");
        }
    }
}

/// PDUs and other messages come as they went, octet for octet.
#[test]
fn bodies_are_not_touched() {
    let mut world = world(1, 2);
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(10));
    let mut pdu: Vec<u8> = (0..144).map(|n| n as u8).collect();
    pdu[8..10].copy_from_slice(&144u16.to_be_bytes());
    let mut lies = pdu.clone();
    lies[9] = 48;
    let mut ours = pdu.clone();
    ours[2] = 244;
    let bodies = [pdu.clone(), lies, ours, Vec::new(), vec![0; 20], vec![0; 22], [pdu.clone(), pdu].concat()];
    for body in &bodies {
        post(&mut world, 0, 7, false, body).unwrap();
        post(&mut world, 0, 7, true, body).unwrap();
    }
    world.run(Span::from_ms(100));
    for priority in [false, true] {
        let got = world.got.iter().filter(|(_, from, _)| from.priority == priority);
        assert_eq!(got.map(|(_, _, body)| body.clone()).collect::<Vec<_>>(), bodies);
    }
}

#[test]
fn a_priority_message_may_say_how_long_it_waits() {
    let timing = Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::from_ms(5), gap: None };
    let settings = Settings { timing, ..settings(Wide::default()) };
    let mut world = World::new(1, 2, settings, ROOMY);
    world.run(Span::from_ms(10));
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(100));
    for (within, ms) in [(None, 10), (Some(Span::from_us(700)), 1), (Some(Span::ZERO), 0)] {
        let sent = world.now;
        let message = Post { address: 7, priority: true, within, body: b"soon" };
        world.command(0, Command::Post(message)).unwrap();
        while world.got.is_empty() {
            world.run(Span::from_us(100));
        }
        world.got.clear();
        let took = world.now.since(sent).as_ps() / 1_000_000_000;
        assert_eq!(took, ms, "{within:?}");
        world.run(Span::from_ms(100));
    }
}

#[test]
fn a_host_says_how_much_it_takes() {
    for spread in [Spread::Each, Spread::All] {
        let mut world = World::new(1, 2, settings(Wide { spread, ..Wide::default() }), ROOMY);
        world.run(Span::from_ms(10));
        (0..2).for_each(|host| join(&mut world, host, 7, 7));
        world.command(1, Command::Saturate(Some(200))).unwrap();
        world.run(Span::from_ms(10));
        for n in 0..4_000 {
            world.hear(7, n % 10 == 0, b"much");
            world.run(Span::from_ms(1));
        }
        world.run(Span::from_ms(100));
        let got = |host, priority| {
            let got = world.got.iter().filter(|(at, from, _)| *at == host && from.priority == priority);
            got.count() as u64
        };
        assert_eq!((got(0, false), got(0, true), got(1, true)), (3_600, 400, 400));
        assert!((790..=870).contains(&got(1, false)), "{}", got(1, false));
        let dropped = |world: &World| {
            world.central().statistics().drops_to_hosts.get(Why::Saturated, false)
                + world.host(1).statistics().drops.get(Why::Saturated, false)
        };
        assert_eq!(got(1, false) + dropped(&world), 3_600);
        // And that it takes all again.
        world.command(1, Command::Saturate(None)).unwrap();
        world.run(Span::from_ms(10));
        world.got.clear();
        let before = dropped(&world);
        for _ in 0..1_000 {
            world.hear(7, false, b"much");
            world.run(Span::from_us(100));
        }
        world.run(Span::from_ms(100));
        assert_eq!((world.got.len(), dropped(&world)), (2_000, before));
    }
}

#[test]
fn what_a_host_takes_may_come_in_bundles() {
    let settings = Settings { timing: Timing::LEAST_PROCESSOR, ..settings(Wide::default()) };
    let mut world = World::new(1, 1, settings, ROOMY);
    world.run(Span::from_ms(10));
    join(&mut world, 0, 7, 7);
    world.command(0, Command::Saturate(Some(1_000))).unwrap();
    world.run(Span::from_ms(50));
    for _ in 0..8_000 {
        world.hear(7, false, b"twice as much");
        world.run(Span::from_us(500));
    }
    assert!((3_900..=4_300).contains(&world.got.len()), "{}", world.got.len());
}

#[test]
fn who_takes_nothing_acknowledges_nothing_for_which_there_is_no_room() {
    let mut world = world(1, 2);
    world.run(Span::from_ms(10));
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(50));
    world.takes = false;
    let body = [1; 1_000];
    // 4 MiB may wait.
    for _ in 0..5_000 {
        world.hear(7, false, &body);
        world.run(Span::from_us(50));
    }
    for n in 0..50u8 {
        post(&mut world, 0, 7, true, &[n]).unwrap();
    }
    post(&mut world, 0, 7, true, &body).unwrap();
    world.run(Span::from_s(1));
    assert!(world.got.is_empty());
    let drops = |world: &World, priority| world.host(1).statistics().drops.get(Why::Full, priority);
    assert!(drops(&world, false) > 500);
    world.takes_again(1);
    world.hear(7, true, b"last");
    world.run(Span::from_s(2));
    let urgent: Vec<&[u8]> =
        world.got.iter().filter(|(_, from, _)| from.priority).map(|(_, _, body)| &body[..]).collect();
    let sent: Vec<[u8; 1]> = (0..50).map(|n| [n]).collect();
    let sent: Vec<&[u8]> = sent.iter().map(|one| &one[..]).chain([&body[..], &b"last"[..]]).collect();
    assert!(urgent == sent, "{} of {}", urgent.len(), sent.len());
    assert_eq!(drops(&world, true), 0);
}

/// Somebody wants ever more pieces, and all of them again and again.
#[test]
fn what_hosts_want_has_bounds_and_takes_little_of_a_datagram() {
    let mut world = World::new(1, 2, settings(Wide::default()), ROOMY);
    world.run(Span::from_ms(10));
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(10));
    let mut foreign = Foreign::new(&mut world, 3);
    let all: Vec<_> = (0..MOST_RANGES as u32).map(|n| (n * 8, n * 8 + 3)).collect();
    foreign.change(&mut world, true, &all);
    assert_eq!(world.central().wide().unwrap().segments().len(), 2 * MOST_RANGES + 1);
    // Of one host that is all; the others find room for as much again.
    foreign.change(&mut world, true, &[(1_000_000, 1_000_000)]);
    assert_eq!(world.central().statistics().changes_refused, 1);
    let mut other = Foreign::new(&mut world, 4);
    other.change(
        &mut world,
        true,
        &all.iter().map(|(at, _)| (1 << 20 | *at, 1 << 20 | *at)).collect::<Vec<_>>(),
    );
    let segments = world.central().wide().unwrap().segments();
    assert!(segments.len() <= MOST_PIECES, "{}", segments.len());
    let refused = world.central().statistics().changes_refused;
    assert!(refused > 1 && refused < 20, "{refused}");
    // All of it, in turns: of a datagram one such change is taken, and soon none.
    let (told, before) = (foreign.told, world.central().statistics().changes_put_off);
    for _ in 0..20 {
        foreign.say(&mut world, &[(true, &[(0, u32::MAX)][..]), (false, &[(0, u32::MAX)])].repeat(50));
    }
    assert!(foreign.told - told <= 3, "{} changes", foreign.told - told);
    assert!(world.central().statistics().changes_put_off >= before + 17);
    // What another wants is heard all the same, a moment later.
    world.run(Span::from_s(1));
    join(&mut world, 0, 9, 9);
    world.run(Span::from_s(1));
    assert!(!world.host(0).is_saying());
    assert_eq!(world.central().wide().unwrap().members().len(), 2, "the silent ones are gone");
    assert_eq!(world.central().wide().unwrap().segments().len(), 5);
}

/// A bundle of messages that nobody acknowledges, to address 7, each from another source, from one on.
fn many_flows(header: Header, from: u32) -> Vec<u8> {
    let mut builder = Builder::new(60_000);
    for source in from..from + 255 {
        let (life, within, body) = (1, wire::NO_LIMIT, &b""[..]);
        let (sequence, priority, reliable) = (0, false, None);
        let message = Message { address: 7, source, life, sequence, within, priority, reliable, body };
        assert!(builder.push(&message));
    }
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&header, &mut bytes);
    bytes
}

/// It was acknowledged: nobody sends it again.
#[test]
fn what_has_priority_is_taken_though_no_more_flows_are_remembered() {
    let mut world = world(2, 2);
    world.stop(Place::Level1(1));
    join(&mut world, 1, 7, 7);
    world.run(Span::from_s(1));
    for n in 0..=MOST_FLOWS as u32 / 255 {
        let header = Header { role: Role::Level1, number: 2, to: 0, life: 77, session: 0, before: 0 };
        world.give(Place::Central, Central::LEVEL1, &many_flows(header, (9 << 16) + n * 255));
        // It waits for the host's 64 bundles at the most.
        world.run(Span::from_ms(1));
    }
    assert_eq!(world.central().wide().unwrap().flows(), MOST_FLOWS);
    let unknown = world.central().statistics().path.unknown;
    assert!(unknown > 0);
    assert_eq!(world.central().statistics().drops_to_hosts.get(Why::Full, false), unknown, "all are counted");
    assert_eq!(world.host(1).statistics().received, MOST_FLOWS as u64);
    world.got.clear();
    // Neither of them knows this flow, and there is no room for it.
    post(&mut world, 0, 7, true, b"urgent").unwrap();
    world.run(Span::from_ms(100));
    assert_eq!(world.got.iter().map(|(_, _, body)| &body[..]).collect::<Vec<_>>(), [b"urgent"]);
    assert_eq!(world.host(0).statistics().drops.total() + world.host(1).statistics().drops.total(), 0);
    assert!(world.host(1).statistics().path.unknown > 0 && !world.host(0).is_saying());
}

/// An empty bundle of a host or a converter of level 1.
fn hello(role: Role, number: u16, life: u32, session: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    Builder::new(1_000).finish(&Header { role, number, to: 0, life, session, before: 0 }, &mut bytes);
    bytes
}

/// Whoever lies about where he is has little sent there: three times what he said, until it is answered from there.
#[test]
fn a_stranger_is_sent_little_until_he_answers() {
    for (role, port) in [(Role::Host, Central::HOSTS), (Role::Level1, Central::LEVEL1)] {
        let mut world = world(2, 3);
        world.stop(Place::Level1(1));
        world.stop(Place::Host(1));
        world.run(Span::from_s(2));
        join(&mut world, 0, 0, 70_000);
        let victim = Peer::new(&[0, 77]);
        let sent = |world: &World| world.octets_to.get(&(port, victim)).copied().unwrap_or(0);
        for n in 1..=5 {
            world.give_from(Place::Central, port, victim, &hello(role, 2, 100, 0));
            for _ in 0..100 {
                world.hear(7, false, &[9; 1_000]);
                post(&mut world, 2, 60_000, false, &[9; 1_000]).unwrap();
                world.run(Span::from_ms(1));
            }
            let most = 3 * n * HEADER;
            assert!((40..=most).contains(&sent(&world)), "{role:?}: {} after {n}", sent(&world));
        }
        // Groups do not wait for it, and what hosts send does not go there.
        let side = world.central().wide().unwrap().sides().iter().nth(1).unwrap();
        assert_eq!(side.wants().count(), 0);
        assert!(
            world.out.len() >= 500 && world.joined.len() == 2_048,
            "{} {}",
            world.out.len(),
            world.joined.len()
        );
        // Guessed sessions are none.
        let before = sent(&world);
        for session in 1..1_000 {
            world.give_from(Place::Central, port, Peer::new(&[0, 78]), &hello(role, 2, 100, session));
        }
        world.run(Span::from_ms(500));
        assert_eq!(sent(&world), before);
        // Its own opens everything.
        let machine = world.central().wide().unwrap();
        let host = machine.members().iter().find(|member| member.number == 2).map(|member| member.session);
        let side = machine.sides().iter().nth(1).map(|side| side.session());
        let session = if role == Role::Host { host } else { side };
        world.give_from(Place::Central, port, victim, &hello(role, 2, 100, session.unwrap()));
        world.run(Span::from_ms(100));
        assert!(sent(&world) > before);
    }
}

/// Or who knows a host's number and life would get what is for it, wherever he likes.
#[test]
fn who_is_there_stays_where_he_is_unless_he_says_his_session() {
    let mut world = world(1, 2);
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(10));
    // Lives are those of the world's starts: central, level 1, and the hosts.
    let thief = Peer::new(&[0, 77]);
    for _ in 0..100 {
        world.give_from(Place::Central, Central::HOSTS, thief, &hello(Role::Host, 2, 4, 0));
        world.give_from(Place::Central, Central::LEVEL1, thief, &hello(Role::Level1, 1, 2, 0));
        // Nor is one of an earlier life listened to.
        world.give_from(Place::Central, Central::LEVEL1, thief, &hello(Role::Level1, 1, 1, 0));
        world.run(Span::from_ms(20));
        world.hear(7, false, b"for the host");
        post(&mut world, 0, 8, false, b"for the wide area").unwrap();
    }
    world.run(Span::from_ms(100));
    assert_eq!((world.got.len(), world.out.len()), (100, 100));
    assert!(world.octets_to.keys().all(|(_, peer)| *peer != thief));
    let statistics = world.central().statistics();
    assert_eq!((statistics.hosts_met, statistics.sides.met, statistics.sides.gone), (2, 1, 0));
}

/// Or who knows no more than a number would put out who has it.
#[test]
fn a_later_life_puts_nobody_out_before_it_says_its_session() {
    let mut world = world(1, 2);
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(10));
    let liar = Peer::new(&[77, 77]);
    for life in 1_000..1_100 {
        world.give_from(Place::Central, Central::LEVEL1, liar, &hello(Role::Level1, 1, life, 0));
        // What it says would make all that the host says old.
        let (source, within, body) = (1 << 16 | 1, wire::NO_LIMIT, &b"a lie"[..]);
        let message =
            Message { address: 7, source, life, sequence: 9, within, priority: false, reliable: None, body };
        let mut builder = Builder::new(1_000);
        assert!(builder.push(&message));
        let mut bytes = vec![0; builder.octets()];
        builder
            .finish(&Header { role: Role::Host, number: 1, to: 0, life, session: 0, before: 0 }, &mut bytes);
        world.give_from(Place::Central, Central::HOSTS, liar, &bytes);
        world.give_from(Place::Central, Central::HOSTS, liar, &hello(Role::Host, 2, life, 0));
        world.run(Span::from_ms(20));
        world.hear(7, false, b"for the host");
        post(&mut world, 0, 7, false, b"for both").unwrap();
    }
    world.run(Span::from_ms(100));
    assert_eq!((world.got.len(), world.out.len()), (200, 100));
    assert!(world.got.iter().all(|(.., body)| body != b"a lie"));
    let met = |world: &World| {
        let counts = world.central().statistics();
        (counts.hosts_met, counts.hosts_gone, counts.sides.met, counts.sides.gone)
    };
    assert_eq!(met(&world), (2, 0, 1, 0));
    // It is told a session: 40 octets for at least 32.
    let told = |world: &World, port| world.octets_to.get(&(port, liar)).copied().unwrap_or(0);
    assert_eq!((told(&world, Central::LEVEL1), told(&world, Central::HOSTS)), (100 * 40, 200 * 40));
}

/// The host that is there hears the session that was meant for the liar, and is in that then.
#[test]
fn a_lie_that_names_the_place_of_who_is_there_costs_him_a_moment() {
    let mut world = world(1, 2);
    join(&mut world, 1, 7, 7);
    world.run(Span::from_ms(10));
    for (role, port, peer, number) in [
        (Role::Host, Central::HOSTS, Peer::new(&[1]), 2),
        (Role::Level1, Central::LEVEL1, Peer::new(&[0, 1]), 1),
    ] {
        world.give_from(Place::Central, port, peer, &hello(role, number, 5_000, 0));
        world.run(Span::from_ms(300));
        world.hear(7, false, b"for the host");
        post(&mut world, 0, 7, false, b"for both").unwrap();
        world.run(Span::from_ms(100));
        assert_eq!((world.got.drain(..).count(), world.out.drain(..).count()), (2, 1), "{role:?}");
    }
}

/// Both live on: the earlier one is told from what is late of one that has restarted.
#[test]
fn two_hosts_of_one_number_are_noticed() {
    let mut world = world(1, 2);
    let (first, second) = (Peer::new(&[0]), Peer::new(&[0, 50]));
    // Host 1 begins with its second life, a moment before the other says that it is it.
    world.stop(Place::Host(0));
    world.run(Span::from_s(1));
    world.give_from(Place::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, 0));
    world.run(Span::from_ms(10));
    let session = world.central().wide().unwrap().members().iter().next().unwrap().session;
    world.give_from(Place::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, session));
    world.start(Place::Host(0));
    let twins = |world: &World| world.central().wide().unwrap().members().twins();
    world.run(Span::from_ms(600));
    assert_eq!(twins(&world), None);
    for _ in 0..4 {
        world.run(Span::from_ms(200));
        world.give_from(Place::Central, Central::HOSTS, second, &hello(Role::Host, 1, 90, session));
    }
    let found = twins(&world).unwrap();
    assert_eq!((found.number, found.at), (1, [second, first]));
}

#[test]
fn sessions_cannot_be_known_without_the_secret() {
    let sessions = |secret, life, role| {
        let mut sessions = Sessions::new(Seed(secret), life, role);
        (0..1_000).map(|_| sessions.give()).collect::<BTreeSet<u32>>()
    };
    let all = [(1, 1, Role::Host), (1, 1, Role::Level1), (1, 2, Role::Host), (2, 1, Role::Host)];
    let all = all.map(|(secret, life, role)| sessions(secret, life, role));
    // As many in each half, and none in two of them: four thousand of 2³².
    assert!(all.iter().all(|some| !some.contains(&0) && some.len() == 1_000));
    assert!(all.iter().all(|some| (400..600).contains(&some.range(1 << 31..).count())));
    assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), 4_000);
    assert_eq!(sessions(1, 1, Role::Host), all[0], "but with it they are");
}

/// Or what was sent to the one would be taken for something else by the other.
#[test]
fn two_lives_of_the_central_converter_share_no_session() {
    let mut world = world(1, 3);
    let sessions = |world: &World| -> BTreeSet<u32> {
        let machine = world.central().wide().unwrap();
        let hosts = machine.members().iter().map(|member| member.session);
        hosts.chain(machine.sides().iter().map(|side| side.session())).collect()
    };
    let before = sessions(&world);
    world.start(Place::Central);
    world.run(Span::from_ms(300));
    let after = sessions(&world);
    assert!(after.len() == 4 && before.is_disjoint(&after), "{before:?} {after:?}");
}

/// What a host sends before it has met the central converter waits, or is counted.
#[test]
fn they_start_in_any_order() {
    for order in 0..3 {
        let mut world = World::new(1, 2, settings(Wide::default()), ROOMY);
        let places = [Place::Central, Place::Level1(0), Place::Host(0), Place::Host(1)];
        places.into_iter().for_each(|place| world.stop(place));
        for n in 0..4 {
            world.start(places[(n * 3 + order) % 4]);
            world.run(Span::from_ms(400));
        }
        join(&mut world, 1, 7, 7);
        world.run(Span::from_ms(400));
        post(&mut world, 0, 7, true, b"hello").unwrap();
        world.run(Span::from_ms(400));
        assert_eq!((world.got.len(), world.joined.len(), world.out.len()), (1, 1, 1), "order {order}");
    }
}

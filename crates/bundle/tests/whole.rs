//! The whole converter in virtual time, in both formats: every message arrives where it is wanted, once, in order, and
//! nowhere else.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use trunkline_bundle::gather::Timing;
use trunkline_bundle::host;
use trunkline_bundle::interest::packet;
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Spread, Wide};
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Seed, Span, Stream};
use world::{ROOMY, World};

/// A body that says who sent it, to which address, and as which of his.
fn body(sender: u8, address: u16, number: u32, length: usize) -> Vec<u8> {
    let mut body = vec![sender];
    body.extend_from_slice(&address.to_be_bytes());
    body.extend_from_slice(&number.to_be_bytes());
    // Never as long as control.
    body.resize(if [20, 22].contains(&length) { 21 } else { length.max(7) }, 0xAB);
    body
}

fn exchange(seed: u64, timing: Timing, format: Format) {
    let mut draw: Stream = Seed(seed).stream("exchange");
    let most = if format == Format::Classic { 16 } else { 40 };
    let (level1, hosts) = (1 + draw.below(6) as u16, 1 + draw.below(most) as u8);
    let settings = Settings { timing, pairs: draw.chance(0.5), format, ..Settings::default() };
    let mut world = World::new(level1, hosts.into(), settings, ROOMY);
    let mut wants: BTreeSet<(u8, u16)> = BTreeSet::new();
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); usize::from(hosts)];
    let (mut sent, mut number) = (Vec::new(), 0);
    world.run(Span::from_ms(10));
    for _ in 0..40 {
        for _ in 0..draw.below(6) {
            let (host, address) = (1 + draw.below(u64::from(hosts)) as u8, draw.below(300) as u16);
            let both = if settings.pairs { vec![address & !1, address | 1] } else { vec![address] };
            let at = usize::from(host) - 1;
            if draw.chance(0.7) {
                world.command(at, host::Command::Join(address)).unwrap();
                wants.extend(both.into_iter().map(|address| (host, address)));
            } else {
                world.command(at, host::Command::Drop(address)).unwrap();
                both.into_iter().for_each(|address| _ = wants.remove(&(host, address)));
            }
        }
        // Until it has been heard of everywhere.
        world.run(Span::from_ms(40));
        let packets: BTreeSet<u16> = wants.iter().map(|(_, address)| packet(*address)).collect();
        assert_eq!(world.joined.iter().map(|(_, packet)| *packet).collect::<BTreeSet<_>>(), packets);
        for _ in 0..draw.below(60) {
            let address = draw.below(300) as u16;
            number += 1;
            let sender = draw.below(u64::from(hosts) + 1) as u8;
            let body = body(sender, address, number, draw.below(400) as usize);
            if sender == 0 {
                world.hear(address.into(), settings.is_priority(address), &body);
            } else {
                let send = host::Command::Send { address, body: &body };
                world.command(usize::from(sender) - 1, send).unwrap();
                sent.push((u32::from(address), body.clone()));
            }
            for host in (1..=hosts).filter(|host| *host != sender && wants.contains(&(*host, address))) {
                expected[usize::from(host) - 1].push(body.clone());
            }
            world.run(Span::from_us(draw.below(400)));
        }
        world.run(Span::from_ms(40));
    }
    assert_eq!(world.overlaps, 0, "two converters of level 1 never get the same");
    // All of it, and of each sender in order. In the wide format what has priority overtakes what has not.
    let by_sender = |got: &[Vec<u8>]| {
        let mut senders: BTreeMap<(u8, bool), Vec<Vec<u8>>> = BTreeMap::new();
        for body in got {
            let urgent = format != Format::Classic && settings.is_priority(body[2]);
            senders.entry((body[0], urgent)).or_default().push(body.clone());
        }
        // The wide area keeps no order among several converters.
        senders.iter_mut().filter(|((sender, _), _)| *sender == 0).for_each(|(_, messages)| messages.sort());
        senders
    };
    for (host, expected) in expected.iter().enumerate() {
        let got = world.got.iter().filter(|(at, ..)| *at == host);
        let got: Vec<_> = got.map(|(_, _, body)| body.clone()).collect();
        assert_eq!(by_sender(&got), by_sender(expected), "seed {seed}, host {}", host + 1);
    }
    world.out.sort();
    sent.sort();
    assert_eq!(world.out, sent, "seed {seed}");
    assert!((0..level1.into()).all(|at| world.level1(at).statistics().drops.total() == 0));
}

fn wide(spread: Spread) -> Format {
    Format::Wide(Wide { spread, ..Wide::default() })
}

#[test]
fn every_message_arrives_where_it_is_wanted_and_nowhere_else() {
    for seed in 0..12 {
        exchange(seed, Timing::CLASSIC, Format::Classic);
        exchange(seed, Timing::LEAST_PROCESSOR, Format::Classic);
        exchange(seed, Timing::LEAST_DELAY, Format::Classic);
    }
}

#[test]
fn so_it_does_in_the_wide_format() {
    for seed in 0..6 {
        for spread in [Spread::Each, Spread::All] {
            exchange(seed, Timing::CLASSIC, wide(spread));
            exchange(seed, Timing::LEAST_PROCESSOR, wide(spread));
            exchange(seed, Timing::LEAST_DELAY, wide(spread));
        }
    }
}

/// At three times what the medium carries all priority messages arrive and the others are counted.
fn congest(format: Format) -> BTreeSet<u8> {
    let settings = Settings { pairs: true, format, ..Settings::default() };
    let mut world = World::new(2, 3, settings, Medium::default());
    world.run(Span::from_ms(10));
    for host in 0..3 {
        world.command(host, host::Command::Join(64)).unwrap();
        world.command(host, host::Command::Join(640)).unwrap();
    }
    world.run(Span::from_ms(50));
    let (mut ordinary, mut urgent) = (0u64, 0u64);
    let mut levels = BTreeSet::new();
    for n in 0..4_000u32 {
        let address = [64, 640][n as usize % 2] + u16::from(n % 20 == 0);
        let priority = n % 20 == 0;
        *(if priority { &mut urgent } else { &mut ordinary }) += 1;
        world.hear(address.into(), priority, &body(u8::from(priority), address, n, 150));
        world.run(Span::from_us(50));
        levels.insert(world.central().levels().0);
    }
    world.run(Span::from_ms(200));
    let central = *world.central().statistics();
    let before: u64 = (0..2).map(|at| world.level1(at).statistics().drops.total()).sum();
    // To all at once, or to each.
    let copies = if matches!(format, Format::Wide(Wide { spread: Spread::Each, .. })) { 3 } else { 1 };
    assert_eq!(central.from_level1 + before, ordinary + urgent);
    for host in 0..3 {
        let got = |priority: u8| {
            let got = world.got.iter().filter(|(at, _, body)| *at == host && body[0] == priority);
            got.count() as u64
        };
        assert_eq!(got(1), urgent);
        if copies == 1 {
            assert_eq!(got(0) + before + central.drops_to_hosts.total(), ordinary);
        }
    }
    let ordinary_got = world.got.iter().filter(|(.., body)| body[0] == 0).count() as u64;
    assert_eq!(
        ordinary_got * copies / 3 + copies * before + central.drops_to_hosts.total(),
        copies * ordinary
    );
    assert!(before + central.drops_to_hosts.total() / copies > ordinary / 3);
    world.run(Span::from_s(10));
    assert_eq!(world.central().levels(), (3, 3));
    assert!((0..2).all(|at| world.level1(at).level(world.now) == 3), "all are told that it is over");
    assert!((0..3).all(|at| world.host(at).level(world.now) == 3));
    levels
}

#[test]
fn priority_messages_survive_congestion() {
    let levels = congest(Format::Classic);
    assert!(levels.last() >= Some(&5), "{levels:?}");
}

#[test]
fn so_they_do_in_the_wide_format() {
    for congestion in [Congestion::Levels, Congestion::Rates] {
        for spread in [Spread::Each, Spread::All] {
            congest(Format::Wide(Wide { spread, congestion, ..Wide::default() }));
        }
    }
}

/// What came of two converters of level 1, where all that is heard is for the groups of the first but for `quiet` messages a
/// second, and of two hosts that want all of it and say as much as a tenth of it, in 12 s.
struct Uneven {
    /// Of the groups with much traffic those that each converter then had.
    shares: [usize; 2],
    moved: u64,
    longest_gap: Span,
    /// Messages from the wide area that a host lacks, and those of the other host.
    lacks: [usize; 2],
}

fn uneven(quiet: u32, loss: f64) -> Uneven {
    let mut world = World::new(2, 2, Settings::default(), ROOMY).retelling();
    // By then nobody takes them to be there because they asked when they began.
    world.run(Span::from_s(7));
    for host in 0..2 {
        (0..8).for_each(|packet| world.command(host, host::Command::Join(packet * 32)).unwrap());
    }
    world.run(Span::from_ms(50));
    let of = |world: &World, at| -> Vec<u16> {
        world.joined.iter().filter(|(other, _)| *other == at).map(|(_, packet)| *packet).collect()
    };
    let (busy, others) = (of(&world, 0), of(&world, 1));
    assert_eq!((busy.len(), others.len()), (4, 4));
    world.line.loss = loss;
    let mut heard = 0;
    for n in 0..12_000u32 {
        let address = busy[n as usize % 4] * 32;
        world.hear(address.into(), false, &body(0, address, n, 60));
        heard += 1;
        if n % 10 == 0 {
            // To the groups that move, too.
            let send = host::Command::Send { address, body: &body(1 + (n / 10 % 2) as u8, address, n, 60) };
            world.command(n as usize / 10 % 2, send).unwrap();
        }
        if n % 1_000 < quiet {
            let address = others[n as usize % 4] * 32;
            world.hear(address.into(), false, &body(0, address, 100_000 + n, 60));
            heard += 1;
        }
        world.run(Span::from_ms(1));
    }
    world.run(Span::from_ms(50));
    let mut had = BTreeSet::new();
    for (at, _, body) in &world.got {
        assert!(had.insert((*at, body.clone())), "twice");
        assert_ne!(usize::from(body[0]), at + 1, "it came back");
    }
    let got = |sender: u8| world.got.iter().filter(|(at, _, body)| *at == 0 && body[0] == sender).count();
    let shares = [0, 1].map(|at| of(&world, at).iter().filter(|packet| busy.contains(packet)).count());
    let counts = world.central().statistics().sides;
    assert!(loss > 0.0 || world.overlaps == 0, "left, then joined");
    assert_eq!(counts.gaps, counts.longest_gap * counts.moved, "each gap is as long");
    let lacks = [heard - got(0), 600 - got(2)];
    Uneven { shares, moved: counts.moved, longest_gap: counts.longest_gap, lacks }
}

#[test]
fn load_moves_in_the_classic_format_and_the_gap_is_counted() {
    let Uneven { shares, moved, longest_gap, lacks } = uneven(20, 0.0);
    assert_eq!((shares, moved, longest_gap), ([2, 2], 2, Span::from_ms(100)));
    // 250 messages a second to each of them; the one is told with the next tick, and so is the other.
    assert!((40..=60).contains(&lacks[0]) && lacks[1] == 0, "{lacks:?}");
}

/// Silence says nothing in the classic format: whoever brings nothing may be dead.
#[test]
fn nothing_moves_to_who_brings_nothing() {
    let Uneven { shares, moved, lacks, .. } = uneven(0, 0.0);
    assert_eq!((shares, moved, lacks), ([4, 0], 0, [0, 0]));
}

/// Also if who is to leave does not hear it: then he is told again, and what he brings is dropped.
#[test]
fn what_moves_comes_neither_twice_nor_back_though_much_is_lost() {
    let Uneven { shares, moved, .. } = uneven(20, 0.3);
    assert!(moved >= 2 && shares[1] >= 1, "{moved} {shares:?}");
}

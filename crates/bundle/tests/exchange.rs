//! Whole sites in virtual time, in both formats: every message arrives once and in order at its subscribers, and
//! nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::{ROOMY, Simulation, join, leave};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::host;
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::wire::classic::packet_address as classic_packet_address;
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Seed, Span, Stream};

/// Returns a body with sender, address and sequence number.
fn body(sender: u8, address: u16, number: u32, length: usize) -> Vec<u8> {
    let mut body = vec![sender];
    body.extend_from_slice(&address.to_be_bytes());
    body.extend_from_slice(&number.to_be_bytes());
    // Avoid the lengths of control messages.
    body.resize(if [20, 22].contains(&length) { 21 } else { length.max(7) }, 0xAB);
    body
}

fn exchange(seed: u64, timing: Timing, format: Format) {
    let mut draw: Stream = Seed(seed).stream("exchange");
    let max_hosts = if format == Format::Classic { 16 } else { 40 };
    let (level1, hosts) = (1 + draw.below(6) as u16, 1 + draw.below(max_hosts) as u8);
    let settings = Settings { timing, pairs: draw.chance(0.5), format, ..Settings::default() };
    let mut sim = Simulation::new(level1, hosts.into(), settings, ROOMY);
    let mut interest: BTreeSet<(u8, u16)> = BTreeSet::new();
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); usize::from(hosts)];
    let (mut sent, mut number) = (Vec::new(), 0);
    sim.run(Span::from_ms(10));
    for _ in 0..40 {
        for _ in 0..draw.below(6) {
            let (host, address) = (1 + draw.below(u64::from(hosts)) as u8, draw.below(300) as u16);
            let both = if settings.pairs { vec![address & !1, address | 1] } else { vec![address] };
            let at = usize::from(host) - 1;
            if draw.chance(0.7) {
                sim.command(at, join(address)).unwrap();
                interest.extend(both.into_iter().map(|address| (host, address)));
            } else {
                sim.command(at, leave(address)).unwrap();
                both.into_iter().for_each(|address| _ = interest.remove(&(host, address)));
            }
        }
        // Until all endpoints know the changes.
        sim.run(Span::from_ms(40));
        let packets: BTreeSet<u16> =
            interest.iter().map(|(_, address)| classic_packet_address(*address)).collect();
        assert_eq!(sim.joined.iter().map(|(_, packet)| *packet).collect::<BTreeSet<_>>(), packets);
        for _ in 0..draw.below(60) {
            let address = draw.below(300) as u16;
            number += 1;
            let sender = draw.below(u64::from(hosts) + 1) as u8;
            let body = body(sender, address, number, draw.below(400) as usize);
            if sender == 0 {
                sim.inject(address.into(), settings.is_priority(address), &body);
            } else {
                let message = host::OutgoingMessage::new(&settings, address.into(), &body);
                sim.command(usize::from(sender) - 1, host::HostCommand::Send(message)).unwrap();
                sent.push((u32::from(address), body.clone()));
            }
            for host in (1..=hosts).filter(|host| *host != sender && interest.contains(&(*host, address))) {
                expected[usize::from(host) - 1].push(body.clone());
            }
            sim.run(Span::from_us(draw.below(400)));
        }
        sim.run(Span::from_ms(40));
    }
    assert_eq!(sim.overlaps, 0, "two converters of level 1 never get the same");
    // All messages arrive, in order per sender. In format 2 priority messages overtake ordinary ones.
    let by_sender = |received: &[Vec<u8>]| {
        let mut senders: BTreeMap<(u8, bool), Vec<Vec<u8>>> = BTreeMap::new();
        for body in received {
            let urgent = format != Format::Classic && settings.is_priority(body[2]);
            senders.entry((body[0], urgent)).or_default().push(body.clone());
        }
        // Several converters may reorder messages of the wide area.
        senders.iter_mut().filter(|((sender, _), _)| *sender == 0).for_each(|(_, messages)| messages.sort());
        senders
    };
    for (host, expected) in expected.iter().enumerate() {
        let received = sim.received.iter().filter(|(at, ..)| *at == host);
        let received: Vec<_> = received.map(|(_, _, body)| body.clone()).collect();
        assert_eq!(by_sender(&received), by_sender(expected), "seed {seed}, host {}", host + 1);
    }
    sim.out.sort();
    sent.sort();
    assert_eq!(sim.out, sent, "seed {seed}");
    assert!((0..level1.into()).all(|at| sim.level1(at).statistics().drops.total() == 0));
}

fn format2(fanout: Fanout) -> Format {
    Format::Format2(Format2 { fanout, ..Format2::default() })
}

#[test]
fn classic_delivers_each_message_to_its_subscribers_only() {
    for seed in 0..12 {
        exchange(seed, Timing::CLASSIC, Format::Classic);
        exchange(seed, Timing::LEAST_PROCESSOR, Format::Classic);
        exchange(seed, Timing::LEAST_DELAY, Format::Classic);
    }
}

#[test]
fn format2_delivers_each_message_to_its_subscribers_only() {
    for seed in 0..6 {
        for fanout in [Fanout::Unicast, Fanout::Broadcast] {
            exchange(seed, Timing::CLASSIC, format2(fanout));
            exchange(seed, Timing::LEAST_PROCESSOR, format2(fanout));
            exchange(seed, Timing::LEAST_DELAY, format2(fanout));
        }
    }
}

/// At three times the capacity all priority messages arrive and the others are counted.
fn congest(format: Format) -> BTreeSet<u8> {
    let settings = Settings { pairs: true, format, ..Settings::default() };
    let mut sim = Simulation::new(2, 3, settings, Medium::default());
    sim.run(Span::from_ms(10));
    for host in 0..3 {
        sim.command(host, join(64)).unwrap();
        sim.command(host, join(640)).unwrap();
    }
    sim.run(Span::from_ms(50));
    let (mut ordinary, mut urgent) = (0u64, 0u64);
    let mut levels = BTreeSet::new();
    for n in 0..4_000u32 {
        let address = [64, 640][n as usize % 2] + u16::from(n % 20 == 0);
        let priority = n % 20 == 0;
        *(if priority { &mut urgent } else { &mut ordinary }) += 1;
        sim.inject(address.into(), priority, &body(u8::from(priority), address, n, 150));
        sim.run(Span::from_us(50));
        levels.insert(sim.central().levels().0);
    }
    sim.run(Span::from_ms(200));
    let central = *sim.central().statistics();
    let before: u64 = (0..2).map(|at| sim.level1(at).statistics().drops.total()).sum();
    // Broadcast or unicast.
    let copies =
        if matches!(format, Format::Format2(Format2 { fanout: Fanout::Unicast, .. })) { 3 } else { 1 };
    assert_eq!(central.from_level1 + before, ordinary + urgent);
    for host in 0..3 {
        let received = |priority: u8| {
            let received = sim.received.iter().filter(|(at, _, body)| *at == host && body[0] == priority);
            received.count() as u64
        };
        assert_eq!(received(1), urgent);
        if copies == 1 {
            assert_eq!(received(0) + before + central.drops_to_hosts.total(), ordinary);
        }
    }
    let ordinary_got = sim.received.iter().filter(|(.., body)| body[0] == 0).count() as u64;
    assert_eq!(
        ordinary_got * copies / 3 + copies * before + central.drops_to_hosts.total(),
        copies * ordinary
    );
    assert!(before + central.drops_to_hosts.total() / copies > ordinary / 3);
    sim.run(Span::from_s(10));
    assert_eq!(sim.central().levels(), (3, 3));
    assert!((0..2).all(|at| sim.level1(at).level(sim.now) == 3), "all learn that the congestion is over");
    assert!((0..3).all(|at| sim.host(at).level(sim.now) == 3));
    levels
}

#[test]
fn priority_messages_survive_congestion() {
    let levels = congest(Format::Classic);
    assert!(levels.last() >= Some(&5), "{levels:?}");
}

#[test]
fn priority_messages_survive_congestion_in_format2() {
    for congestion in [Congestion::Levels, Congestion::Rates] {
        for fanout in [Fanout::Unicast, Fanout::Broadcast] {
            congest(Format::Format2(Format2 { fanout, congestion, ..Format2::default() }));
        }
    }
}

/// The result of 12 s with two level-1 converters and two hosts. Except for `quiet` messages per second, all traffic
/// is in the groups of the first converter. Both hosts join all groups and send a tenth of the traffic.
struct Uneven {
    /// The number of busy groups that each converter owns at the end.
    shares: [usize; 2],
    moved: u64,
    longest_gap: Span,
    /// The messages that a host misses from the wide area, and those from the other host.
    missing: [usize; 2],
}

fn uneven(quiet: u32, loss: f64) -> Uneven {
    let mut sim = Simulation::new(2, 2, Settings::default(), ROOMY).with_refresh();
    // The activity of the initial query has expired by then.
    sim.run(Span::from_s(7));
    for host in 0..2 {
        (0..8).for_each(|packet| sim.command(host, join(packet * 32)).unwrap());
    }
    sim.run(Span::from_ms(50));
    let groups_of = |sim: &Simulation, at| -> Vec<u16> {
        sim.joined.iter().filter(|(other, _)| *other == at).map(|(_, packet)| *packet).collect()
    };
    let (busy, quiet_groups) = (groups_of(&sim, 0), groups_of(&sim, 1));
    assert_eq!((busy.len(), quiet_groups.len()), (4, 4));
    sim.impairments.loss = loss;
    let mut injected = 0;
    for n in 0..12_000u32 {
        let address = busy[n as usize % 4] * 32;
        sim.inject(address.into(), false, &body(0, address, n, 60));
        injected += 1;
        if n % 10 == 0 {
            // To the moving groups, too.
            let body = body(1 + (n / 10 % 2) as u8, address, n, 60);
            let message = host::OutgoingMessage::new(&sim.settings, address.into(), &body);
            sim.command(n as usize / 10 % 2, host::HostCommand::Send(message)).unwrap();
        }
        if n % 1_000 < quiet {
            let address = quiet_groups[n as usize % 4] * 32;
            sim.inject(address.into(), false, &body(0, address, 100_000 + n, 60));
            injected += 1;
        }
        sim.run(Span::from_ms(1));
    }
    sim.run(Span::from_ms(50));
    let mut seen = BTreeSet::new();
    for (at, _, body) in &sim.received {
        assert!(seen.insert((*at, body.clone())), "twice");
        assert_ne!(usize::from(body[0]), at + 1, "reflected");
    }
    let received =
        |sender: u8| sim.received.iter().filter(|(at, _, body)| *at == 0 && body[0] == sender).count();
    let shares = [0, 1].map(|at| groups_of(&sim, at).iter().filter(|packet| busy.contains(packet)).count());
    let counts = sim.central().statistics().level1;
    assert!(loss > 0.0 || sim.overlaps == 0, "left, then joined");
    assert_eq!(counts.total_gap, counts.longest_gap * counts.moved, "each gap is as long");
    let missing = [injected - received(0), 600 - received(2)];
    Uneven { shares, moved: counts.moved, longest_gap: counts.longest_gap, missing }
}

#[test]
fn classic_rebalances_groups_and_counts_the_gap() {
    let Uneven { shares, moved, longest_gap, missing } = uneven(20, 0.0);
    assert_eq!((shares, moved, longest_gap), ([2, 2], 2, Span::from_ms(100)));
    // Each moving group carries 250 messages per second. The leave and the join each wait for a tick.
    assert!((40..=60).contains(&missing[0]) && missing[1] == 0, "{missing:?}");
}

/// Format 1 (classic) has no keep-alive: a silent converter may be down.
#[test]
fn no_group_moves_to_a_silent_converter() {
    let Uneven { shares, moved, missing, .. } = uneven(0, 0.0);
    assert_eq!((shares, moved, missing), ([4, 0], 0, [0, 0]));
}

/// A lost leave is repeated, and messages of the former owner are dropped.
#[test]
fn moving_groups_neither_duplicates_nor_reflects_messages_under_loss() {
    let Uneven { shares, moved, .. } = uneven(20, 0.3);
    assert!(moved >= 2 && shares[1] >= 1, "{moved} {shares:?}");
}

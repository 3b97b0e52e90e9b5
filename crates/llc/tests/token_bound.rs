//! The bounds of admission in rings in simulated time: never exceeded, and close to the worst case.

mod support;

use support::bus::{Bus, Flow};
use support::{contracts, nasa, slow};
use trunkline_llc::admit::{Network, Refusal, Station, TrafficContract, admit, delays, rotation};
use trunkline_llc::token::frame::CONTROL;
use trunkline_llc::token::{Event, Options};
use trunkline_units::{Seed, Span, Stream};

fn network(options: &Options, stations: u8, background: Option<u32>) -> Network {
    let stations =
        (1..=stations).map(|number| Station { number, max_background_octets: background }).collect();
    Network { line: slow(), options: options.clone(), stations, lost: 0, dead: 0 }
}

/// A ring whose stations send as their contracts state, from random instants on.
fn ring(network: &Network, contracts: &[TrafficContract], stream: &mut Stream) -> Bus {
    let numbers: Vec<u8> = network.stations.iter().map(|station| station.number).collect();
    let mut bus = Bus::formed(network.line.clone(), &network.options, numbers.iter().copied());
    for contract in contracts {
        let first = Span::from_ps(stream.below(contract.period.as_ps()));
        let to = numbers.iter().copied().find(|number| *number != contract.station).expect("two stations");
        bus.flow(contract.station, to, contract.priority, contract.octets, contract.period, first);
    }
    for Station { number, max_background_octets: background } in &network.stations {
        if let Some(octets) = background {
            let to = if *number == numbers[0] { numbers[1] } else { numbers[0] };
            bus.flood(*number, to, *octets);
        }
    }
    bus
}

/// Every message that can have come has, each within its bound; the largest share of a bound that was used.
fn check(flows: &[Flow], bounds: &[Span], place: &str) -> f64 {
    let mut share: f64 = 0.0;
    for (flow, bound) in flows.iter().zip(bounds) {
        assert!(flow.worst <= *bound, "{place}: {} of {bound}, {flow:?}", flow.worst);
        assert!(flow.came > 0 && flow.sent - flow.came <= bound.as_ps().div_ceil(flow.period.as_ps()));
        share = share.max(flow.worst.as_ps() as f64 / bound.as_ps() as f64);
    }
    share
}

/// NASA's requirement (AirNET, 1990): each station 100 messages a second of 100 bytes, each delivered in 10 ms; at 10 Mb/s,
/// with as many stations as can be admitted. A minute; without optimisation, some seconds.
#[test]
fn nasa_requirement_is_met_and_refused_for_more() {
    let most = (1..=64).rev().find(|n| admit(&nasa(*n), &contracts(*n)).is_ok()).expect("some are admitted");
    assert!(most >= 50, "only {most} stations");
    assert!((2..most).all(|n| admit(&nasa(n), &contracts(n)).is_ok()));
    let refusal = admit(&nasa(most + 1), &contracts(most + 1)).expect_err("one more is refused");
    let Refusal::Late { contract: 0, delay, deadline } = refusal else { panic!("{refusal}") };
    assert!(delay > deadline && deadline == Span::from_ms(10));

    let (network, contracts) = (nasa(most), contracts(most));
    let bounds = admit(&network, &contracts).unwrap();
    let mut bus = ring(&network, &contracts, &mut Seed::default().stream("nasa"));
    // All at the same moment is the worst; it drifts through all others' in the course of the run.
    let now = bus.now;
    bus.flows.iter_mut().for_each(|flow| flow.next = now);
    bus.run(if cfg!(debug_assertions) { Span::from_s(3) } else { Span::from_s(60) });
    let share = check(&bus.flows, &bounds, "nasa");
    println!("{most} stations, bound {}, worst {:.1} % of it", bounds[0], share * 100.0);
    assert!(share > 0.9, "{share}");
    assert_eq!(bus.events, []);
}

/// 16 stations, NASA's messages at priority 6, and copies of files at priority 0 from all of them.
#[test]
fn background_copies_keep_all_deadlines() {
    let contracts = contracts(16);
    let options = Options { invited_per_window: 2, ..Options::for_line(&slow(), 16, 1500) };
    let network = network(&options, 16, Some(1400));
    let bounds = admit(&network, &contracts).unwrap();
    let mut worst: f64 = 0.0;
    for seed in 0..3 {
        let mut bus = ring(&network, &contracts, &mut Seed(seed).stream("copies"));
        bus.run(Span::from_ms(if cfg!(debug_assertions) { 1_500 } else { 20_000 }));
        worst = worst.max(check(&bus.flows, &bounds, &format!("seed {seed}")));
        let (mut frames, mut withheld, mut slowest) = (0, 0, Span::ZERO);
        for number in 1..=16 {
            let statistics = bus.statistics(number);
            frames += statistics.frames;
            withheld += statistics.withheld;
            slowest = slowest.max(statistics.rotation_max);
        }
        let promised: u64 = bus.flows.iter().map(|flow| flow.came).sum();
        assert!(
            frames - promised > 300,
            "seed {seed}: the copies go on: {frames} frames, {promised} promised"
        );
        assert!(withheld > 100, "seed {seed}: and give way");
        assert!(slowest <= rotation(&network, &contracts).unwrap());
        assert_eq!(bus.events, [], "seed {seed}");
    }
    println!("bound {}, worst {:.1} % of it", bounds[0], worst * 100.0);
}

/// Rings and contracts at random.
#[test]
fn no_bound_is_exceeded() {
    let mut share: f64 = 0.0;
    for seed in 0..25 {
        let mut stream = Seed(seed).stream("promises");
        let n = 2 + stream.below(5) as u8;
        let background = stream.chance(0.5).then(|| stream.below(1000) as u32);
        let mut options =
            Options { window_interval: Span::from_ms(20), ..Options::for_line(&slow(), 8, 1100) };
        if stream.chance(0.3) {
            options.idle_hold = Span::from_us(100);
            options.pass_timeout += options.idle_hold * 2;
        }
        let network = network(&options, n, background);
        let one = |stream: &mut Stream| TrafficContract {
            station: 1 + stream.below(u64::from(n)) as u8,
            priority: 4 + stream.below(4) as u8,
            octets: 12 + stream.below(1000) as u32,
            period: Span::from_us(5_000 + stream.below(60_000)),
            deadline: Span::MAX,
        };
        let contracts: Vec<TrafficContract> = (0..1 + stream.below(9)).map(|_| one(&mut stream)).collect();
        let Ok(bounds) = delays(&network, &contracts) else { continue };
        let mut bus = ring(&network, &contracts, &mut stream);
        bus.run(Span::from_ms(700));
        share = share.max(check(&bus.flows, &bounds, &format!("seed {seed}")));
    }
    assert!(share > 0.5, "{share}");
}

/// Four stations with three messages each, all at the same moment: the last waits for three rotations.
#[test]
fn the_bound_is_nearly_reached() {
    let options = Options {
        window_interval: Span::from_s(1),
        invited_per_window: 1,
        ..Options::for_line(&slow(), 4, 1010)
    };
    let network = network(&options, 4, None);
    let (period, deadline) = (Span::from_us(61_003), Span::from_ms(12));
    let contract = |place: u8| TrafficContract {
        station: 1 + place / 3,
        priority: 5,
        octets: if place < 3 { 100 } else { 1000 },
        period,
        deadline,
    };
    let contracts: Vec<TrafficContract> = (0..12).map(contract).collect();
    let bounds = delays(&network, &contracts).unwrap();
    let mut bus = ring(&network, &contracts, &mut Seed::default().stream("worst"));
    let now = bus.now;
    bus.flows.iter_mut().for_each(|flow| flow.next = now);
    bus.run(Span::from_s(2));
    let share = check(&bus.flows, &bounds, "three at once");
    assert!(share > 0.9, "{share}");
}

/// One token is lost, now and then: the bound that allows for one holds, and the one that does not is exceeded.
#[test]
fn a_lost_token_is_allowed_for() {
    let contracts = contracts(8);
    let options = Options { invited_per_window: 1, ..Options::for_line(&slow(), 8, 200) };
    let sure = network(&options, 8, None);
    let careful = Network { lost: 1, ..sure.clone() };
    let (short, long) = (delays(&sure, &contracts).unwrap(), delays(&careful, &contracts).unwrap());
    let mut bus = ring(&careful, &contracts, &mut Seed::default().stream("lost"));
    let now = bus.now;
    bus.flows.iter_mut().for_each(|flow| flow.next = now);
    let mut since = 0;
    bus.loses = Box::new(move |number, frame| {
        let lost = frame[0] == CONTROL && number > since + 397;
        if lost {
            since = number;
        }
        lost
    });
    bus.run(Span::from_s(2));
    let share = check(&bus.flows, &long, "a token lost");
    assert!(share > 0.7, "{share}");
    assert!(bus.flows.iter().any(|flow| flow.worst > short[0]));
    let took = |event: &Event<_>| matches!(event, Event::Repaired { took, .. } if *took <= options.lost() + Span::from_us(500));
    assert!(bus.events.len() > 20 && bus.events.iter().all(|(_, _, event)| took(event)));
}

/// What cannot be kept is refused, and the contract is named.
#[test]
fn refused_contracts_are_named() {
    let options = Options { invited_per_window: 1, ..Options::for_line(&slow(), 8, 1500) };
    let network = network(&options, 4, Some(1400));
    let good = TrafficContract {
        station: 2,
        priority: 7,
        octets: 100,
        period: Span::from_ms(100),
        deadline: Span::from_ms(100),
    };
    assert!(admit(&network, &[good]).is_ok());
    let bad = |contract: TrafficContract| admit(&network, &[good, contract]).unwrap_err();
    assert_eq!(
        bad(TrafficContract { station: 9, ..good }),
        Refusal::UnknownStation { contract: 1, station: 9 }
    );
    for senseless in [
        TrafficContract { priority: 8, ..good },
        TrafficContract { period: Span::ZERO, ..good },
        TrafficContract { octets: 1498, ..good },
    ] {
        assert_eq!(bad(senseless), Refusal::InvalidContract { contract: 1 });
    }
    assert!(matches!(
        bad(TrafficContract { deadline: Span::from_us(100), ..good }),
        Refusal::Late { contract: 1, .. }
    ));
    assert!(matches!(bad(TrafficContract { priority: 0, ..good }), Refusal::Limited { contract: 1, .. }));
    assert_eq!(bad(TrafficContract { period: Span::from_us(1), ..good }), Refusal::Overload { contract: 0 });

    let with = |change: &dyn Fn(&mut Network)| {
        let mut other = network.clone();
        change(&mut other);
        admit(&other, &[good]).unwrap_err()
    };
    assert_eq!(with(&|n| n.stations.clear()), Refusal::Stations);
    assert_eq!(with(&|n| n.stations[1].number = 1), Refusal::Stations);
    assert_eq!(with(&|n| n.stations[1].number = 255), Refusal::Stations);
    assert_eq!(
        with(&|n| n.stations[1].max_background_octets = Some(1498)),
        Refusal::Background { station: 2 }
    );
    assert!(matches!(with(&|n| n.options.pass_timeout = Span::from_us(100)), Refusal::Patience { .. }));
    assert!(matches!(with(&|n| n.options.slot = Span::from_us(50)), Refusal::Slot { .. }));
    // A limited priority is as good as any where the ring is always quick enough for it.
    let mut quick = network.clone();
    quick.options.rotation_targets[0] = Span::from_ms(100);
    assert!(admit(&quick, &[TrafficContract { priority: 0, ..good }]).is_ok());
}

/// More of anything makes no bound shorter.
#[test]
fn bounds_grow_with_the_contracts() {
    let options = Options { invited_per_window: 1, ..Options::for_line(&slow(), 8, 1500) };
    let base = network(&options, 4, None);
    let bound = |network: &Network| delays(network, &contracts(4)).unwrap()[0];
    let with = |change: &dyn Fn(&mut Network)| {
        let mut other = base.clone();
        change(&mut other);
        bound(&other)
    };
    let before = bound(&base);
    assert!(with(&|n| n.stations.push(Station { number: 5, max_background_octets: None })) > before);
    assert!(with(&|n| n.stations[3].max_background_octets = Some(1000)) > before);
    assert!(with(&|n| n.options.invited_per_window = 4) > before);
    assert!(with(&|n| n.options.idle_hold = Span::from_us(50)) > before);
    assert!(with(&|n| n.line.hop = Span::from_us(1)) < before);
    assert_eq!(with(&|n| n.lost = 2), before + (options.lost() + slow().hop) * 2);
    assert_eq!(with(&|n| n.dead = 1), before + options.repair() + slow().hop);
    let mut switched = base.clone();
    switched.line.switched = true;
    switched.options = Options { invited_per_window: 1, ..Options::for_line(&switched.line, 8, 1500) };
    assert!(bound(&switched) > before);
}

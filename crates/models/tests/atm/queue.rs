//! Explicit queues of ports of cells: disciplines, shapers, policers, traces and changes.

use proptest::prelude::*;
use trunkline_endpoint::{Bound, Capacity, Medium, MediumCounters, MediumInput, MediumOutput};
use trunkline_models::atm::{
    Config, CreditLink, Encapsulation, End, Impairments, Mode, Pacing, PacingUnit, QueueUnit, cells_of,
};
use trunkline_models::media::queue::{
    CoDelOptions, DisciplineOptions, DrrOptions, LinkChange, Opportunities, PieOptions, QueueOptions,
    RateSteps, RedOptions, TokenRate, TraceOptions,
};
use trunkline_units::{Instant, Rate, Seed, Span};

use crate::media::queue::queue_of;

use super::common::{Chain, LEFT, Outcomes, Packet, RIGHT, adapter, config, mbps, switch_port};

const PACKETS: QueueUnit = QueueUnit::Packets(Encapsulation::LlcSnap);
/// A cell takes 100 us at this rate.
const SLOW: Rate = Rate::from_bps(4_240_000);

fn at_us(us: u64) -> Instant {
    Instant::ZERO + Span::from_us(us)
}

fn cells(bytes: u32) -> u64 {
    cells_of(bytes, Encapsulation::LlcSnap).into()
}

/// A source, and a switch whose port leads to the receiver.
fn path(pacing: Pacing, bounds: [Bound; 2], rates: [Rate; 2]) -> [Config; 2] {
    let first = config(1.0, Span::from_us(5), [adapter(pacing, bounds[0]), switch_port(1)]);
    let last = config(1.0, Span::from_us(7), [End::SwitchPort { queue: bounds[1] }, End::ADAPTER]);
    [Config { payload: rates[0], ..first }, Config { payload: rates[1], ..last }]
}

/// Runs packets along the path, with explicit queues where there are options.
fn run(
    configs: &[Config; 2],
    queues: [Option<(QueueUnit, QueueOptions)>; 2],
    packets: &[(Instant, Packet)],
) -> (Outcomes, Vec<MediumCounters>, Chain) {
    let mut chain = Chain::new(configs, Seed(1996), Span::ZERO);
    for ((link, config), queue) in chain.links.iter_mut().zip(configs).zip(queues) {
        if let Some((unit, options)) = queue {
            link.set_queue(config, RIGHT, unit, options);
        }
    }
    let mut outcomes = chain.run(packets);
    outcomes.steps = 0;
    let counters = chain.links.iter().map(|link| link.counters(RIGHT).clone()).collect();
    (outcomes, counters, chain)
}

fn rates() -> impl Strategy<Value = Rate> {
    prop::sample::select(vec![149_760_000, 40_704_000, 100_000_000, 149_760_001, 77_777_777])
        .prop_map(Rate::from_bps)
}

fn bounds() -> impl Strategy<Value = Bound> {
    let capacity = prop_oneof![
        Just(Capacity::Unbounded),
        (200..900u64).prop_map(Capacity::Frames),
        (20_000..60_000u64).prop_map(Capacity::Bytes)
    ];
    (capacity, any::<bool>()).prop_map(|(capacity, per_channel)| Bound { capacity, per_channel })
}

fn packets() -> impl Strategy<Value = Vec<(Instant, Packet)>> {
    let one = (prop_oneof![Just(9_180u32), Just(40), 1..9_181u32], 0..3u16, 0..600u64);
    prop::collection::vec(one, 1..60).prop_map(|all| {
        let mut now = Instant::ZERO;
        let packet = |(serial, (bytes, channel, gap)): (usize, (u32, u16, u64))| {
            now += Span::from_us(gap);
            (now, Packet::new(serial as u32, bytes, channel))
        };
        all.into_iter().enumerate().map(packet).collect()
    })
}

fn disciplines() -> impl Strategy<Value = DisciplineOptions> {
    let target = Span::from_us(200);
    let codel = CoDelOptions { target, interval: Span::from_ms(2), ..CoDelOptions::default() };
    prop::sample::select(vec![
        DisciplineOptions::DropTail,
        DisciplineOptions::Priority,
        DisciplineOptions::Drr(DrrOptions::default()),
        DisciplineOptions::Red(RedOptions { min: 2, max: 6, ..RedOptions::default() }),
        DisciplineOptions::CoDel(codel),
        DisciplineOptions::Pie(PieOptions { target, burst: Span::ZERO, ..PieOptions::default() }),
    ])
}

/// Changes of a link during the first 20 ms.
fn changes() -> impl Strategy<Value = Vec<LinkChange>> {
    let one = (
        1..20_000u64,
        prop::option::of(rates()),
        prop::option::of(0..100u64),
        prop::option::of(any::<bool>()),
    );
    prop::collection::vec(one, 0..8).prop_map(|mut all| {
        all.sort_by_key(|(at, ..)| *at);
        let change = |(at, rate, delay, is_up): (u64, _, Option<u64>, _)| LinkChange {
            at: at_us(at),
            rate,
            delay: delay.map(Span::from_us),
            is_up,
            ..LinkChange::default()
        };
        let up = LinkChange { at: at_us(20_000), is_up: Some(true), ..LinkChange::default() };
        all.into_iter().map(change).chain([up]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    /// Without changes an explicit queue of cells, or of packets at an adapter, is the computed one.
    #[test]
    fn an_explicit_fifo_is_the_computed_one(
        rates in [rates(), rates()],
        bounds in [bounds(), bounds()],
        packets in packets(),
    ) {
        let configs = path(Pacing::None, bounds, rates);
        let fifo = || Some((QueueUnit::Cells, queue_of(DisciplineOptions::DropTail)));
        let (computed, counters, _) = run(&configs, [None, None], &packets);
        let (explicit, explicit_counters, _) = run(&configs, [fifo(), fifo()], &packets);
        prop_assert_eq!(computed, explicit);
        for (computed, explicit) in counters.iter().zip(&explicit_counters) {
            let rounding = Span::from_ps(explicit.frames);
            prop_assert!(computed.busy <= explicit.busy + rounding && explicit.busy <= computed.busy + rounding);
            prop_assert_eq!(computed, &MediumCounters { busy: computed.busy, ..explicit.clone() });
        }
    }

    /// The same with pacing, up to a picosecond a cell: the computed queue keeps fractions of one.
    #[test]
    fn an_explicit_queue_is_paced(
        rate in 10.0..200.0f64,
        counts_payload in any::<bool>(),
        line in rates(),
        packets in packets(),
    ) {
        let unit = if counts_payload { PacingUnit::Payload } else { PacingUnit::Cells };
        let configs = path(Pacing::Rate { rate: mbps(rate), unit }, [Bound::NONE; 2], [line, line]);
        let fifo = Some((QueueUnit::Cells, queue_of(DisciplineOptions::DropTail)));
        let (computed, counters, _) = run(&configs, [None, None], &packets);
        let (explicit, ..) = run(&configs, [fifo, None], &packets);
        prop_assert_eq!(computed.arrived.len(), explicit.arrived.len());
        for ((at, serial), (later, other)) in computed.arrived.iter().zip(&explicit.arrived) {
            prop_assert_eq!(serial, other);
            prop_assert!(later >= at && later.since(*at).as_ps() <= 2 * counters[0].frames, "{at:?} {later:?}");
        }
    }

    /// Every packet arrives or is lost, and every cell of it is counted once.
    #[test]
    fn no_cell_is_created_or_lost_without_a_counter(
        discipline in disciplines(),
        unit in prop::sample::select(vec![QueueUnit::Cells, PACKETS]),
        bounds in [bounds(), bounds()],
        rates in [rates(), rates()],
        changes in [changes(), changes()],
        loss in prop::sample::select(vec![0.0, 0.003]),
        limits in prop::option::of(1..150u64),
        mut packets in packets(),
    ) {
        // At the end a perfect packet of each channel, so that no switch or adapter waits for the rest of one.
        for channel in 0..3 {
            let at = at_us(10_000_000 + u64::from(channel) * 10_000);
            packets.push((at, Packet::new(packets.len() as u32, 40, channel)));
        }
        let mut configs = path(Pacing::None, bounds, rates);
        configs[0].impairments[0] = Impairments { loss, ..Impairments::default() };
        let [mut before, after] = changes;
        before.push(LinkChange { at: at_us(5_000_000), loss: Some(0.0), ..LinkChange::default() });
        let token_rate = limits.map(|rate| TokenRate { rate: mbps(rate as f64), burst: 9_180 });
        let is_packets = unit == PACKETS;
        let last = QueueOptions {
            changes: after,
            policer: token_rate.filter(|_| is_packets),
            ..queue_of(if is_packets { discipline } else { DisciplineOptions::DropTail })
        };
        let first = QueueOptions { changes: before, shaper: token_rate, ..queue_of(DisciplineOptions::DropTail) };
        let (outcomes, counters, chain) = run(&configs, [Some((unit, first)), Some((unit, last))], &packets);
        let mut seen = outcomes.lost.clone();
        seen.extend(outcomes.arrived.iter().map(|(_, serial)| serial));
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..packets.len() as u32).collect::<Vec<_>>());
        let [first, last] = &counters[..] else { unreachable!() };
        let offered: u64 = packets.iter().map(|(_, packet)| cells(packet.bytes)).sum();
        prop_assert_eq!(offered, first.frames + first.queue_drops);
        prop_assert_eq!(first.frames - first.other_losses, last.frames + last.queue_drops + last.other_losses);
        prop_assert_eq!(last.bytes, last.frames * 53);
        if is_packets {
            let queue = chain.links[1].queue_counters(RIGHT).unwrap();
            // What the queue accepted and sent is whole.
            let reassembled = chain.links[1].reassembly_counters(LEFT);
            prop_assert_eq!((reassembled.packets, reassembled.failed), (queue.sojourn_ns.len(), 0));
            let dropped = queue.dropped_full + queue.dropped_early + queue.policed;
            prop_assert!(dropped <= last.queue_drops);
            prop_assert_eq!(outcomes.arrived.len() as u64, reassembled.packets);
        }
    }

    /// While packets wait the line is busy: a backlog takes the time of its cells, in whatever order.
    #[test]
    fn a_port_with_packets_never_idles(
        discipline in prop::sample::select(vec![
            DisciplineOptions::DropTail, DisciplineOptions::Priority, DisciplineOptions::Drr(DrrOptions::default()),
        ]),
        rate in rates(),
        sizes in prop::collection::vec((1..9_181u32, 0..3u16), 2..40),
    ) {
        let configs = path(Pacing::None, [Bound::NONE; 2], [Rate::from_bps(622_000_000), rate]);
        let packets: Vec<_> = sizes.iter().zip(0..).map(|((bytes, channel), serial)| {
            (Instant::ZERO, Packet::new(serial, *bytes, *channel))
        }).collect();
        // The line is down until all have been collected.
        let change = |us, is_up| LinkChange { at: at_us(us), is_up: Some(is_up), ..LinkChange::default() };
        let queue = QueueOptions { changes: vec![change(0, false), change(50_000, true)], ..queue_of(discipline) };
        let (outcomes, counters, chain) = run(&configs, [None, Some((PACKETS, queue))], &packets);
        prop_assert!(outcomes.lost.is_empty());
        let all: u64 = sizes.iter().map(|(bytes, _)| cells(*bytes)).sum();
        let sent = Span::from_ps((u128::from(all) * 424 * 1_000_000_000_000).div_ceil(rate.as_bps().into()) as u64);
        prop_assert_eq!(outcomes.arrived.last().unwrap().0, at_us(50_007) + sent);
        prop_assert_eq!(counters[1].frames, all);
        prop_assert_eq!(chain.links[1].queue_counters(RIGHT).unwrap().sojourn_ns.len(), sizes.len() as u64);
    }
}

/// Sends packets of three cells at time zero over a link between two hosts with these changes, or from a switch port;
/// returns when they arrive in microseconds. A cell takes 100 us.
fn arrivals_us(changes: Vec<LinkChange>, packets: u32, from_switch: bool) -> Vec<u64> {
    let near = if from_switch { switch_port(100) } else { End::ADAPTER };
    let config = Config { payload: SLOW, ..config(1.0, Span::ZERO, [near, End::ADAPTER]) };
    let mut link = super::common::link(&config);
    let options = QueueOptions { changes, ..queue_of(DisciplineOptions::DropTail) };
    link.set_queue(&config, RIGHT, QueueUnit::Cells, options);
    arrivals_of(&mut link, packets, from_switch)
}

/// The same over a link that queues by channel, as with credits.
fn arrivals_by_channel_us(changes: Vec<LinkChange>, packets: u32, from_switch: bool) -> Vec<u64> {
    let near = if from_switch { switch_port(100) } else { End::ADAPTER };
    let config = Config { payload: SLOW, ..config(1.0, Span::ZERO, [near, End::ADAPTER]) };
    let mut link = CreditLink::new(&config, None, ["a", "b"].map(|name| Seed(1).stream(name)));
    link.set_changes(&changes);
    arrivals_of(&mut link, packets, from_switch)
}

fn arrivals_of(link: &mut impl Medium<Packet>, packets: u32, from_switch: bool) -> Vec<u64> {
    use trunkline_models::atm::CellFrame as _;
    for serial in 0..packets {
        let packet = Packet::new(serial, 100, 0);
        let frames = match from_switch {
            false => vec![packet],
            true => vec![packet.cell(0, 3), packet.cell(1, 3), packet.last_cell(2, 3)],
        };
        for frame in frames {
            link.handle(Instant::ZERO, MediumInput::Frame { port: RIGHT, frame });
        }
    }
    let (mut now, mut arrivals) = (Instant::ZERO, Vec::new());
    loop {
        match link.poll(now) {
            MediumOutput::Transmit { frame, .. } => {
                assert_eq!(frame.serial as usize, arrivals.len(), "in order");
                arrivals.push(now.since(Instant::ZERO).as_ps() / 1_000_000);
            }
            MediumOutput::Idle { deadline: Some(at) } => {
                now = at;
                link.handle(now, MediumInput::Wake);
            }
            MediumOutput::Idle { deadline: None } => return arrivals,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_change_applies_to_the_cells_that_begin_after_it() {
    let change = |us| LinkChange { at: at_us(us), ..LinkChange::default() };
    let down = |us| LinkChange { is_up: Some(false), ..change(us) };
    let up = |us| LinkChange { is_up: Some(true), ..change(us) };
    let rate = |us, bps| LinkChange { rate: Some(Rate::from_bps(bps)), ..change(us) };
    let delay = |us, of| LinkChange { delay: Some(Span::from_us(of)), ..change(us) };
    for (changes, arrive) in [
        (vec![], vec![300, 600]),
        // In the middle of the second cell: that one is completed, the third takes 50 us, and so does each one after it.
        (vec![rate(150, 8_480_000)], vec![250, 400]),
        // Exactly when the second cell begins.
        (vec![rate(100, 8_480_000), rate(201, 4_240_000)], vec![200, 450]),
        // Down in the middle of a packet: its rest waits.
        (vec![down(150), up(1_000)], vec![1_100, 1_400]),
        (vec![down(0), up(10), down(250), up(400)], vec![310, 700]),
        // A shorter delay overtakes nothing.
        (vec![delay(0, 1_000), delay(300, 10)], vec![1_300, 1_300]),
        (vec![down(150)], vec![]),
    ] {
        for from_switch in [false, true] {
            assert_eq!(arrivals_us(changes.clone(), 2, from_switch), arrive, "{changes:?}, {from_switch}");
            assert_eq!(
                arrivals_by_channel_us(changes.clone(), 2, from_switch),
                arrive,
                "{changes:?}, {from_switch}"
            );
        }
    }
}

#[test]
fn losses_begin_and_end_with_their_changes() {
    let loss =
        |ms: u64, loss| LinkChange { at: at_us(ms * 1_000), loss: Some(loss), ..LinkChange::default() };
    let config = Config { payload: SLOW, ..config(1.0, Span::ZERO, [switch_port(1_000), End::ADAPTER]) };
    let configs = [
        Config {
            payload: Rate::from_bps(4_240_000_000),
            ..path(Pacing::None, [Bound::NONE; 2], [SLOW; 2])[0]
        },
        config,
    ];
    let packets: Vec<_> = (0..100).map(|serial| (Instant::ZERO, Packet::new(serial, 100, 0))).collect();
    let last =
        QueueOptions { changes: vec![loss(10, 1.0), loss(20, 0.0)], ..queue_of(DisciplineOptions::DropTail) };
    let (outcomes, counters, _) = run(&configs, [None, Some((QueueUnit::Cells, last))], &packets);
    // A packet takes 300 us from 5.1 us on, and 100 cells begin in the 10 ms without a line.
    assert_eq!(counters[1].other_losses, 100);
    assert_eq!(outcomes.arrived.len(), 100 - 34, "{:?}", outcomes.lost);
}

#[test]
fn traces_give_the_cells_their_times() {
    let packets: Vec<_> = (0..40).map(|serial| (Instant::ZERO, Packet::new(serial, 100, 0))).collect();
    let configs = path(Pacing::None, [Bound::NONE; 2], [Rate::from_bps(4_240_000_000), SLOW]);
    let with = |trace| QueueOptions { trace: Some(trace), ..queue_of(DisciplineOptions::DropTail) };
    // 1,504 bytes each ms are 28 cells and 20 bytes.
    let trace = Opportunities::new([1].map(Span::from_ms)).unwrap();
    let (outcomes, ..) =
        run(&configs, [None, Some((QueueUnit::Cells, with(TraceOptions::Opportunities(trace))))], &packets);
    for (at, serial) in &outcomes.arrived {
        let bytes = (u64::from(*serial) + 1) * 3 * 53;
        assert_eq!(*at, at_us(bytes.div_ceil(1_504) * 1_000 + 7), "{serial}");
    }
    // 100 us a cell, nothing from 1 to 2 ms, then 50 us a cell.
    let steps =
        [(0, 4_240_000), (1, 0), (2, 8_480_000)].map(|(ms, bps)| (Span::from_ms(ms), Rate::from_bps(bps)));
    let steps = TraceOptions::Rate(RateSteps::new(steps.to_vec()).unwrap());
    let (outcomes, ..) = run(&configs, [None, Some((QueueUnit::Cells, with(steps)))], &packets);
    assert_eq!(outcomes.arrived.len(), 40);
    let last = outcomes.arrived.last().unwrap().0;
    // The first cell begins at 5.1 us, so 9.949 cells are sent by 1 ms, and 110.051 after 2 ms.
    assert_eq!(last, Instant::ZERO + Span::from_ms(2) + Span::from_ns(110_051 * 50) + Span::from_us(7));
}

/// A full port loses whole packets where it queues packets, and cells of nearly every packet where it queues cells.
#[test]
fn whole_packets_are_lost_at_a_queue_of_packets() {
    let configs = path(Pacing::None, [Bound::NONE, Bound::frames(400)], [mbps(149.76), mbps(100.0)]);
    let configs = configs.map(|config| Config { mode: Mode::Cells, ..config });
    let packets: Vec<_> = (0..200).map(|serial| (Instant::ZERO, Packet::new(serial, 9_180, 0))).collect();
    let unit = |unit| run(&configs, [None, Some((unit, queue_of(DisciplineOptions::DropTail)))], &packets);
    let ((complete, counters, _), (torn, ..)) = (unit(PACKETS), unit(QueueUnit::Cells));
    assert!(
        complete.arrived.len() > 130 && torn.arrived.len() < 10,
        "{} {}",
        complete.arrived.len(),
        torn.arrived.len()
    );
    assert_eq!(counters[1].queue_drops, 192 * (200 - complete.arrived.len() as u64));
}

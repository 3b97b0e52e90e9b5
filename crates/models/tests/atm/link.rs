//! The guarantees of a cell link, except for the times of departures.

use super::common;

use common::{LEFT, Packet, RIGHT, adapter, config, link, mbps, switch_port};
use trunkline_endpoint::{Bound, Capacity, LossCause, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{CellFrame, CellLink, Config, End, Impairments, Mode, Pacing};
use trunkline_units::{Instant, Span};

const START: Instant = Instant::ZERO;

fn send(link: &mut CellLink<Packet>, now: Instant, port: Port, frame: Packet) {
    link.handle(now, MediumInput::Frame { port, frame });
}

/// Returns all outputs until there is no deadline, with their times.
fn collect_outputs(link: &mut CellLink<Packet>, mut now: Instant) -> Vec<(Instant, MediumOutput<Packet>)> {
    let mut outputs = Vec::new();
    loop {
        match link.poll(now) {
            MediumOutput::Idle { deadline: None } => return outputs,
            MediumOutput::Idle { deadline: Some(at) } => {
                assert!(at > now || outputs.is_empty(), "deadlines grow");
                now = at;
                link.handle(now, MediumInput::Wake);
            }
            output => outputs.push((now, output)),
        }
    }
}

/// The cells of a packet, the last one with it.
fn cells(serial: u32, count: u16) -> Vec<Packet> {
    let packet = Packet::new(serial, u32::from(count) * 48 - 16, 0);
    let mut all: Vec<Packet> = (0..count - 1).map(|index| packet.cell(index, count)).collect();
    all.push(packet.last_cell(count - 1, count));
    all
}

#[test]
fn a_packet_crosses_between_adapters() {
    for mode in [Mode::Cells, Mode::Trains] {
        let config = config(149.76, Span::from_us(10), [End::ADAPTER; 2]);
        let mut link = link(&Config { mode, ..config });
        send(&mut link, START, RIGHT, Packet::new(1, 9_180, 3));
        send(&mut link, START, LEFT, Packet::new(2, 40, 3));
        let outputs = collect_outputs(&mut link, START);
        let after = |cells: u64| {
            START + Span::from_ps((cells * 424_000_000).div_ceil(149_760) * 1_000) + Span::from_us(10)
        };
        let near = |found: Instant, cells| {
            found.since(START).as_ns().abs_diff(after(cells).since(START).as_ns()) <= 2
        };
        assert_eq!(outputs[0].1, MediumOutput::Transmit { port: RIGHT, frame: Packet::new(2, 40, 3) });
        assert_eq!(outputs[1].1, MediumOutput::Transmit { port: LEFT, frame: Packet::new(1, 9_180, 3) });
        assert!(near(outputs[0].0, 2) && near(outputs[1].0, 192) && outputs.len() == 2, "{outputs:?}");
        assert_eq!((link.reassembly_counters(LEFT).packets, link.reassembly_counters(RIGHT).packets), (1, 1));
        assert_eq!((link.counters(RIGHT).frames, link.counters(LEFT).bytes), (192, 106));
        assert_eq!(link.counters(RIGHT).queue_max, 192 * 53);
    }
}

#[test]
fn an_adapter_s_queue_is_bounded() {
    // Two packets, or the bytes of 300 cells: one packet of 192 and no second.
    for (bound, fit) in [(Bound::frames(2), 2), (Bound::bytes(300 * 53), 1), (Bound::bytes(191 * 53), 0)] {
        for per_channel in [false, true] {
            let queue = Bound { per_channel, ..bound };
            let mut link = link(&config(149.76, Span::ZERO, [adapter(Pacing::None, queue), End::ADAPTER]));
            for serial in 0..4 {
                assert_eq!(link.has_room(START, RIGHT, 9_180), serial < fit);
                send(&mut link, START, RIGHT, Packet::new(serial, 9_180, 5));
            }
            let outputs = collect_outputs(&mut link, START);
            let lost = outputs
                .iter()
                .filter(|(_, p)| matches!(p, MediumOutput::Lost { cause: LossCause::QueueFull, .. }));
            assert_eq!((lost.count(), outputs.len()), (4 - fit as usize, 4));
            assert_eq!(link.counters(RIGHT).queue_drops, u64::from(4 - fit) * 192);
            // When they have left there is room again, for what fits at all.
            assert_eq!(link.has_room(Instant::from_ns(10_000_000), RIGHT, 9_180), fit > 0);
        }
    }
}

#[test]
fn waiting_sender_is_notified_once() {
    let ends = [
        (adapter(Pacing::None, Bound::frames(2)), 9_180),
        (adapter(Pacing::None, Bound { capacity: Capacity::Bytes(400 * 53), per_channel: true }), 9_180),
        (adapter(Pacing::Slots { send: 1, of: 3 }, Bound::bytes(400 * 53)), 9_180),
        (switch_port(2), 53),
        (End::SwitchPort { queue: Bound { capacity: Capacity::Frames(2), per_channel: true } }, 53),
    ];
    for (end, length) in ends {
        let mut link = link(&config(149.76, Span::from_ms(5), [end, End::ADAPTER]));
        let mut serial = 0;
        let mut frame = || {
            serial += 1;
            let packet = Packet::new(serial, 9_180, 0);
            if length == 53 { packet.last_cell(0, 1) } else { packet }
        };
        while link.has_room(START, RIGHT, length) {
            send(&mut link, START, RIGHT, frame());
        }
        link.handle(START, MediumInput::RequestRoom { port: RIGHT });
        let MediumOutput::Idle { deadline: Some(at) } = link.poll(START) else { panic!("it waits") };
        assert!(!link.has_room(Instant::from_ps(at.as_ps() - 1), RIGHT, length), "no sooner");
        link.handle(at, MediumInput::Wake);
        assert_eq!(link.poll(at), MediumOutput::Room { port: RIGHT });
        assert!(link.has_room(at, RIGHT, length), "{end:?}");
        assert!(matches!(link.poll(at), MediumOutput::Idle { .. }), "notified once");
        send(&mut link, at, RIGHT, frame());
        assert!(
            collect_outputs(&mut link, at).iter().all(|(_, p)| matches!(p, MediumOutput::Transmit { .. })),
            "nothing is lost"
        );
    }
}

#[test]
fn sender_with_space_is_notified_at_once() {
    let mut link = link(&config(149.76, Span::ZERO, [End::ADAPTER; 2]));
    link.handle(START, MediumInput::RequestRoom { port: LEFT });
    assert_eq!(link.poll(START), MediumOutput::Room { port: LEFT });
    assert_eq!(link.poll(START), MediumOutput::Idle { deadline: None });
}

#[test]
fn each_channel_has_its_own_queue() {
    let queue = Bound { capacity: Capacity::Frames(3), per_channel: true };
    let mut link = link(&config(149.76, Span::ZERO, [End::SwitchPort { queue }, switch_port(1)]));
    for channel in [0, 0, 0, 0, 9, 9, 0, 9, 9] {
        send(&mut link, START, RIGHT, Packet { channel, ..cells(1, 2).remove(0) });
    }
    let outputs = collect_outputs(&mut link, START);
    let lost: Vec<u16> = outputs
        .iter()
        .filter_map(
            |(_, p)| if let MediumOutput::Lost { frame, .. } = p { Some(frame.channel) } else { None },
        )
        .collect();
    assert_eq!((lost, outputs.len()), (vec![0, 0, 9], 9));
}

#[test]
fn aal5_loses_what_it_must() {
    // Which cells of three packets of four are missing, and which packets then arrive.
    for (missing, arrive) in [
        (vec![], vec![0, 1, 2]),
        (vec![(0, 0)], vec![1, 2]),
        (vec![(0, 2)], vec![1, 2]),
        (vec![(0, 3)], vec![2]),
        (vec![(0, 2), (0, 3), (1, 0), (1, 1)], vec![2]),
        (vec![(0, 3), (1, 3)], vec![]),
        (vec![(2, 3)], vec![0, 1]),
    ] {
        let mut link = link(&config(149.76, Span::ZERO, [switch_port(100), End::ADAPTER]));
        for frame in (0..3).flat_map(|serial| cells(serial, 4)) {
            if !missing.contains(&(frame.serial, frame.cell.unwrap().0)) {
                send(&mut link, START, RIGHT, frame);
            }
        }
        let outputs = collect_outputs(&mut link, START);
        let arrived = outputs.iter().filter_map(|(_, p)| match p {
            MediumOutput::Transmit { frame, .. } => Some(frame.serial),
            MediumOutput::Lost { cause, frame, .. } => {
                assert_eq!((*cause, frame.cell), (LossCause::Incomplete, None), "the packet itself is lost");
                None
            }
            _ => None,
        });
        assert_eq!(arrived.collect::<Vec<_>>(), arrive, "without {missing:?}");
    }
}

#[test]
fn a_damaged_cell_loses_its_packet() {
    for mode in [Mode::Cells, Mode::Trains] {
        let bad = Impairments { corrupt: 0.5, ..Impairments::default() };
        let config = config(149.76, Span::ZERO, [End::ADAPTER; 2]);
        let mut link = link(&Config { mode, impairments: [bad; 2], ..config });
        send(&mut link, START, RIGHT, Packet::new(7, 9_180, 0));
        let outputs = collect_outputs(&mut link, START);
        assert!(
            matches!(outputs[..], [(_, MediumOutput::Lost { cause: LossCause::Incomplete, .. })]),
            "{outputs:?}"
        );
        assert!(link.counters(RIGHT).damaged > 50);
    }
}

#[test]
fn oversized_and_foreign_frames_are_reported_lost() {
    let mut link = link(&config(149.76, Span::ZERO, [End::ADAPTER, switch_port(10)]));
    send(&mut link, START, RIGHT, Packet::new(1, 65_528, 0)); // 8 more make 65,536
    send(&mut link, START, RIGHT, Packet::new(2, u32::MAX, 0));
    send(&mut link, START, RIGHT, cells(3, 2).remove(0));
    send(&mut link, START, LEFT, Packet::new(4, 100, 0));
    let mut invalid = Packet::new(5, 100, 0);
    invalid.train = Some(Box::default());
    send(&mut link, START, LEFT, invalid);
    let outputs = collect_outputs(&mut link, START);
    let causes: Vec<LossCause> = outputs
        .iter()
        .map(|(_, p)| if let MediumOutput::Lost { cause, .. } = p { *cause } else { panic!() })
        .collect();
    assert_eq!(
        causes,
        [
            LossCause::TooLong,
            LossCause::TooLong,
            LossCause::NoRoute,
            LossCause::NoRoute,
            LossCause::QueueFull
        ]
    );
    let losses = |port| link.counters(port).other_losses;
    assert_eq!((losses(RIGHT), losses(LEFT)), (3, 1), "the last one has no cells");
    send(&mut link, START, RIGHT, Packet::new(6, 65_527, 0));
    assert_eq!(collect_outputs(&mut link, START).len(), 1_366);
    // Indexes that make no sense break a packet, and nothing else.
    for (index, count) in [(u16::MAX, u16::MAX), (u16::MAX, 0), (0, 0), (5, 2)] {
        send(&mut link, START, LEFT, Packet { cell: Some((index, count)), ..Packet::new(8, 10, 0) });
    }
    collect_outputs(&mut link, START);
}

#[test]
fn impairments_match_their_probabilities() {
    let bad =
        Impairments { loss: 0.05, corrupt: 0.04, duplicate: 0.03, reorder: 0.02, ..Impairments::default() };
    let perfect = config(149.76, Span::from_us(1), [switch_port(1_000_000), switch_port(1)]);
    let mut link = link(&Config { impairments: [bad, Impairments::default()], ..perfect });
    let count = 100_000u32;
    for serial in 0..count {
        send(&mut link, START, RIGHT, Packet::new(serial, 100, 0).last_cell(0, 1));
    }
    let outputs = collect_outputs(&mut link, START);
    let counters = link.counters(RIGHT).clone();
    for (found, share) in [
        (counters.other_losses, bad.loss),
        (counters.damaged, bad.corrupt * 0.95),
        (counters.duplicated, bad.duplicate * 0.95 * 0.98),
        (counters.reordered, bad.reorder * 0.95),
    ] {
        let expected = f64::from(count) * share;
        assert!((found as f64 - expected).abs() < 5.0 * expected.sqrt() + 60.0, "{found}, not {expected}");
    }
    assert_eq!(outputs.len() as u64, u64::from(count) + counters.duplicated);
    let mut seen: Vec<u32> = outputs
        .iter()
        .map(|(_, p)| match p {
            MediumOutput::Transmit { frame, .. } | MediumOutput::Lost { frame, .. } => frame.serial,
            _ => panic!(),
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count as usize);
}

#[test]
fn a_reordered_cell_comes_behind_the_next_or_late() {
    let bad = Impairments { reorder: 1.0, ..Impairments::default() };
    let perfect = config(149.76, Span::ZERO, [switch_port(10), switch_port(1)]);
    let mut link = link(&Config { impairments: [bad, bad], ..perfect });
    let cell = |serial| Packet::new(serial, 100, 0).last_cell(0, 1);
    (0..3).for_each(|serial| send(&mut link, START, RIGHT, cell(serial)));
    let outputs = collect_outputs(&mut link, START);
    let order: Vec<u32> = outputs
        .iter()
        .map(|(_, p)| if let MediumOutput::Transmit { frame, .. } = p { frame.serial } else { panic!() })
        .collect();
    assert_eq!(order, [1, 0, 2], "no later cell overtakes the last one");
    assert_eq!(outputs[0].0, outputs[1].0);
    let cell_time = mbps(149.76).time_for(trunkline_units::Size::from_bytes(53));
    assert!(outputs[2].0.since(START) >= Impairments::default().hold + cell_time);
    // And one that comes long after finds it gone.
    let later = outputs[2].0 + Span::from_s(1);
    send(&mut link, later, RIGHT, cell(3));
    send(&mut link, later + Impairments::default().hold * 2, RIGHT, cell(4));
    let order: Vec<Instant> = collect_outputs(&mut link, later).iter().map(|(at, _)| *at).collect();
    assert_eq!(order.len(), 2);
    assert!(order[0] < order[1]);
}

#[test]
fn an_early_wake_does_nothing() {
    let ends = [adapter(Pacing::Slots { send: 2, of: 3 }, Bound::NONE), switch_port(1)];
    let mut link = link(&config(149.76, Span::from_us(7), ends));
    let mut outputs = Vec::new();
    send(&mut link, START, RIGHT, Packet::new(1, 1_500, 0));
    let mut twin = link.clone();
    let expected = collect_outputs(&mut twin, START);
    for at in 0..400 {
        let now = Instant::from_ns(at * 500);
        link.handle(now, MediumInput::Wake);
        link.handle(now, MediumInput::Wake);
        while let MediumOutput::Transmit { port, frame } = link.poll(now) {
            outputs.push(MediumOutput::Transmit { port, frame });
        }
    }
    assert_eq!(outputs, expected.into_iter().map(|(_, output)| output).collect::<Vec<_>>());
}

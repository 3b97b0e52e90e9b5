//! The fast path that a simulator takes through a link does the same as `handle` and `poll`.

use super::common;

use common::{LEFT, Packet, RIGHT, adapter, config, link, switch_port};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{CellFrame, CellLink, Config, Impairments, Pacing};
use trunkline_units::{Instant, Seed, Span};

type Log = Vec<(Instant, MediumOutput<Packet>)>;

/// Polls until the link is idle, and returns its deadline.
fn drain(link: &mut CellLink<Packet>, now: Instant, outputs: &mut Log) -> Instant {
    loop {
        match link.poll(now) {
            MediumOutput::Idle { deadline } => return deadline.unwrap_or(Instant::MAX),
            output => outputs.push((now, output)),
        }
    }
}

/// Returns the outputs of a link, by the fast path where possible or by the general one, and how many frames took the
/// fast path.
fn play(config: &Config, load: &[(Instant, Port, Packet)], fast: bool) -> (Log, usize) {
    let (mut link, mut outputs, mut fast_frames) = (link(config), Log::new(), 0);
    let mut due = Instant::MAX;
    let end = (Instant::MAX, RIGHT, None);
    let load = load.iter().map(|(at, port, frame)| (*at, *port, Some(frame.clone())));
    for (at, port, frame) in load.chain([end]) {
        while due <= at && due < Instant::MAX {
            let now = due;
            while fast && let Some((port, frame)) = link.take_arrival(now) {
                outputs.push((now, MediumOutput::Transmit { port, frame }));
                fast_frames += 1;
            }
            due = link.deadline();
            if due <= now {
                link.handle(now, MediumInput::Wake);
                due = drain(&mut link, now, &mut outputs);
            }
        }
        if let Some(frame) = frame {
            match fast {
                true => link.send(at, port, frame),
                false => link.handle(at, MediumInput::Frame { port, frame }),
            }
            due = link.deadline();
            if !fast || due <= at {
                due = drain(&mut link, at, &mut outputs);
            }
        }
    }
    outputs.push((Instant::MAX, MediumOutput::Idle { deadline: None }));
    (outputs, fast_frames)
}

proptest! {
    /// Cells from a switch on the left, packets from an adapter on the right.
    #[test]
    fn cells(seed in any::<u64>(), room in 1u64..40, delay in 0u64..30, loss in prop_oneof![Just(0.0), 0.0..0.2]) {
        let mut draw = Seed(seed).stream("scene");
        let mut config = config(149.76, Span::from_us(delay), [adapter(Pacing::None, Bound::frames(3)), switch_port(room)]);
        config.impairments[1] = Impairments { loss, ..Impairments::default() };
        let mut now = Instant::ZERO;
        let mut load = Vec::new();
        for serial in 0..60 {
            now += Span::from_us(draw.below(60));
            let count = 1 + draw.below(12) as u16;
            let packet = Packet::new(serial, u32::from(count) * 40, 1);
            if draw.chance(0.3) {
                load.push((now, RIGHT, packet));
                continue;
            }
            for index in 0..count {
                now += Span::from_us(draw.below(4));
                let cell = if index + 1 < count { packet.cell(index, count) } else { packet.clone().last_cell(index, count) };
                load.push((now, LEFT, cell));
            }
        }
        let ((general, _), (fast, fast_frames)) = (play(&config, &load, false), play(&config, &load, true));
        prop_assert_eq!(general, fast);
        prop_assert!(fast_frames > 0 || loss > 0.0);
    }
}

//! The short way that a simulator takes through a link does what `handle` and `poll` do.

use super::common;

use common::{LEFT, Packet, RIGHT, adapter, bare, config, link};
use proptest::prelude::*;
use trunkline_endpoint::{Arrival, Bound, Medium, Passage, Port};
use trunkline_models::atm::{CellFrame, CellLink, Config, Impairments, Pacing};
use trunkline_units::{Instant, Seed, Span};

type Log = Vec<(Instant, Passage<Packet>)>;

/// Polls until there is nothing more; when it wants to be woken.
fn drain(link: &mut CellLink<Packet>, now: Instant, said: &mut Log) -> Instant {
    loop {
        match link.poll(now) {
            Passage::Idle { deadline } => return deadline.unwrap_or(Instant::MAX),
            passage => said.push((now, passage)),
        }
    }
}

/// What a link says to frames, by the short way where there is one or never; and how many frames took it.
fn play(config: &Config, load: &[(Instant, Port, Packet)], short: bool) -> (Log, usize) {
    let (mut link, mut said, mut shortly) = (link(config), Log::new(), 0);
    let mut due = Instant::MAX;
    let end = (Instant::MAX, RIGHT, None);
    let load = load.iter().map(|(at, port, frame)| (*at, *port, Some(frame.clone())));
    for (at, port, frame) in load.chain([end]) {
        while due <= at && due < Instant::MAX {
            let now = due;
            while short && let Some((port, frame)) = link.arrival(now) {
                said.push((now, Passage::Transmit { port, frame }));
                shortly += 1;
            }
            due = link.deadline();
            if due <= now {
                link.handle(now, Arrival::Wake);
                due = drain(&mut link, now, &mut said);
            }
        }
        if let Some(frame) = frame {
            match short {
                true => link.send(at, port, frame),
                false => link.handle(at, Arrival::Frame { port, frame }),
            }
            due = link.deadline();
            if !short || due <= at {
                due = drain(&mut link, at, &mut said);
            }
        }
    }
    said.push((Instant::MAX, Passage::Idle { deadline: None }));
    (said, shortly)
}

proptest! {
    /// Cells from a switch on the left, packets from an adapter on the right.
    #[test]
    fn cells(seed in any::<u64>(), room in 1u64..40, delay in 0u64..30, loss in prop_oneof![Just(0.0), 0.0..0.2]) {
        let mut draw = Seed(seed).stream("scene");
        let mut config = config(149.76, Span::from_us(delay), [adapter(Pacing::None, Bound::frames(3)), bare(room)]);
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
        let ((long, _), (short, shortly)) = (play(&config, &load, false), play(&config, &load, true));
        prop_assert_eq!(long, short);
        prop_assert!(shortly > 0 || loss > 0.0);
    }
}

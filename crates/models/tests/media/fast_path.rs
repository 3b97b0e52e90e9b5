//! The fast paths that a simulator takes through links and switches do the same as `handle` and `poll`.

use super::common;

use std::collections::VecDeque;

use common::{Packet, Testbed, draw_bound, load, run};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Destination, Medium, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_models::media::{Impairments, LineOptions, Link, Switch, SwitchOptions};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// A medium with a fast path.
trait FastPath: Medium<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)>;
    fn next_deadline(&self) -> Instant;
    fn send_frame(&mut self, now: Instant, port: Port, frame: Packet);
}

impl FastPath for Link<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)> {
        self.take_arrival(now)
    }
    fn next_deadline(&self) -> Instant {
        self.deadline()
    }
    fn send_frame(&mut self, now: Instant, port: Port, frame: Packet) {
        let before = self.deadline();
        if let Some(arrives) = self.send(now, port, frame) {
            assert_eq!(self.deadline(), before.min(arrives));
        }
    }
}

impl FastPath for Switch<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)> {
        self.take_departure(now)
    }
    fn next_deadline(&self) -> Instant {
        self.deadline()
    }
    fn send_frame(&mut self, now: Instant, port: Port, frame: Packet) {
        self.send(now, port, frame);
    }
}

/// A medium driven by its fast path where possible.
struct Fast<M> {
    medium: M,
    outputs: VecDeque<MediumOutput<Packet>>,
    fast_frames: usize,
}

impl<M: FastPath> Medium<Packet> for Fast<M> {
    fn handle(&mut self, now: Instant, input: MediumInput<Packet>) {
        match input {
            MediumInput::Frame { port, frame } => self.medium.send_frame(now, port, frame),
            MediumInput::RequestRoom { .. } => self.medium.handle(now, input),
            MediumInput::Wake => {
                while let Some((port, frame)) = self.medium.next(now) {
                    self.outputs.push_back(MediumOutput::Transmit { port, frame });
                    self.fast_frames += 1;
                }
                if self.medium.next_deadline() <= now {
                    self.medium.handle(now, MediumInput::Wake);
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) -> MediumOutput<Packet> {
        match self.outputs.pop_front() {
            Some(output) => output,
            None if self.medium.next_deadline() > now => {
                let deadline = self.medium.next_deadline();
                MediumOutput::Idle { deadline: (deadline < Instant::MAX).then_some(deadline) }
            }
            None => self.medium.poll(now),
        }
    }

    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.medium.has_room(now, port, length)
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        self.medium.counters(port)
    }
}

/// Compares both paths; returns how many frames took the fast one.
fn check<M: FastPath>(make: impl Fn() -> M, load: &common::Load, ports: u16) -> usize {
    let general = run(Testbed::new(make()), load);
    let fast = run(Testbed::new(Fast { medium: make(), outputs: VecDeque::new(), fast_frames: 0 }), load);
    assert_eq!(fast.outputs, general.outputs);
    for port in 0..ports {
        assert_eq!(fast.counters(port), general.counters(port), "port {port}");
    }
    fast.medium.fast_frames
}

fn draw_line(stream: &mut Stream, is_perfect: bool) -> LineOptions {
    let mut share = || {
        let is_none = is_perfect || stream.chance(0.5);
        if is_none { 0.0 } else { stream.unit() / 3.0 }
    };
    let (loss, reorder) = (share(), share());
    LineOptions {
        rate: Rate::from_bps([10_000_000, 99_999_989, 1_000_000_000][stream.below(3) as usize]),
        delay: Span::from_us(stream.below(2) * stream.below(2_000)),
        bound: if is_perfect { Bound::NONE } else { draw_bound(stream) },
        impairments: Impairments { loss, reorder, ..Impairments::default() },
        ..LineOptions::default()
    }
}

proptest! {
    #[test]
    fn links(seed in any::<u64>(), is_perfect in any::<bool>()) {
        let seed = Seed(seed);
        let mut draw = seed.stream("scene");
        let options = [draw_line(&mut draw, is_perfect), draw_line(&mut draw, is_perfect)];
        let gap = Span::from_us(1 + draw.below(1_000));
        let load = load(&mut draw, 200, 2, gap, |_| Destination::All);
        let make = || Link::new(options.clone(), [seed.stream("a"), seed.stream("b")]);
        let fast_frames = check(make, &load, 2);
        prop_assert!(!is_perfect || fast_frames > 0);
    }

    #[test]
    fn switches(seed in any::<u64>(), latency in 1u64..400, inside in 1u64..30, checks in any::<bool>()) {
        let mut draw = Seed(seed).stream("scene");
        let to = |draw: &mut Stream| match draw.below(8) {
            0 => Destination::All,
            1 => Destination::Group(1),
            _ => Destination::Station(draw.below(4) as u32),
        };
        let mut load = load(&mut draw, 200, 3, Span::from_us(50), to);
        load.iter_mut().for_each(|(_, _, packet)| packet.damaged = packet.id % 7 == 0);
        let fast_frames = check(
            || {
                let options = SwitchOptions { latency: Span::from_us(latency), max_inside: inside, drops_damaged: checks };
                let mut switch = Switch::new(3, options);
                (0..3).for_each(|station| switch.add_station(station, Port(station as u16)));
                switch.set_group(1, &[Port(0), Port(2)]);
                switch
            },
            &load,
            3,
        );
        prop_assert!(fast_frames > 0);
    }
}

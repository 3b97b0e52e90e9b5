//! The short ways that a simulator takes through links and switches do what `handle` and `poll` do.

use super::common;

use std::collections::VecDeque;

use common::{Packet, Testbed, draw_bound, load, run};
use proptest::prelude::*;
use trunkline_endpoint::{Arrival, Bound, Counters, Medium, Passage, Port, To};
use trunkline_models::media::{Impairments, LineOptions, Link, Switch, SwitchOptions};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// What has a short way.
trait Short: Medium<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)>;
    fn when(&self) -> Instant;
    fn give(&mut self, now: Instant, port: Port, frame: Packet);
}

impl Short for Link<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)> {
        self.arrival(now)
    }
    fn when(&self) -> Instant {
        self.deadline()
    }
    fn give(&mut self, now: Instant, port: Port, frame: Packet) {
        let before = self.deadline();
        if let Some(arrives) = self.send(now, port, frame) {
            assert_eq!(self.deadline(), before.min(arrives));
        }
    }
}

impl Short for Switch<Packet> {
    fn next(&mut self, now: Instant) -> Option<(Port, Packet)> {
        self.exit(now)
    }
    fn when(&self) -> Instant {
        self.deadline()
    }
    fn give(&mut self, now: Instant, port: Port, frame: Packet) {
        self.send(now, port, frame);
    }
}

/// A medium by its short ways, and by the long ones only where those say nothing.
struct Quick<M> {
    medium: M,
    said: VecDeque<Passage<Packet>>,
    shortly: usize,
}

impl<M: Short> Medium<Packet> for Quick<M> {
    fn handle(&mut self, now: Instant, input: Arrival<Packet>) {
        match input {
            Arrival::Frame { port, frame } => self.medium.give(now, port, frame),
            Arrival::Ask { .. } => self.medium.handle(now, input),
            Arrival::Wake => {
                while let Some((port, frame)) = self.medium.next(now) {
                    self.said.push_back(Passage::Transmit { port, frame });
                    self.shortly += 1;
                }
                if self.medium.when() <= now {
                    self.medium.handle(now, Arrival::Wake);
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Passage<Packet> {
        match self.said.pop_front() {
            Some(passage) => passage,
            None if self.medium.when() > now => {
                let deadline = self.medium.when();
                Passage::Idle { deadline: (deadline < Instant::MAX).then_some(deadline) }
            }
            None => self.medium.poll(now),
        }
    }

    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.medium.room(now, port, length)
    }

    fn counters(&self, port: Port) -> &Counters {
        self.medium.counters(port)
    }
}

/// How many frames took the short way.
fn check<M: Short>(make: impl Fn() -> M, load: &common::Load, ports: u16) -> usize {
    let long = run(Testbed::new(make()), load);
    let short = run(Testbed::new(Quick { medium: make(), said: VecDeque::new(), shortly: 0 }), load);
    assert_eq!(short.said, long.said);
    for port in 0..ports {
        assert_eq!(short.counters(port), long.counters(port), "port {port}");
    }
    short.medium.shortly
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
        let load = load(&mut draw, 200, 2, gap, |_| To::All);
        let make = || Link::new(options.clone(), [seed.stream("a"), seed.stream("b")]);
        let shortly = check(make, &load, 2);
        prop_assert!(!is_perfect || shortly > 0);
    }

    #[test]
    fn switches(seed in any::<u64>(), latency in 1u64..400, inside in 1u64..30, checks in any::<bool>()) {
        let mut draw = Seed(seed).stream("scene");
        let to = |draw: &mut Stream| match draw.below(8) {
            0 => To::All,
            1 => To::Group(1),
            _ => To::Station(draw.below(4) as u32),
        };
        let mut load = load(&mut draw, 200, 3, Span::from_us(50), to);
        load.iter_mut().for_each(|(_, _, packet)| packet.damaged = packet.id % 7 == 0);
        let shortly = check(
            || {
                let options = SwitchOptions { latency: Span::from_us(latency), inside, checks };
                let mut switch = Switch::new(3, options);
                (0..3).for_each(|station| switch.station(station, Port(station as u16)));
                switch.group(1, &[Port(0), Port(2)]);
                switch
            },
            &load,
            3,
        );
        prop_assert!(shortly > 0);
    }
}

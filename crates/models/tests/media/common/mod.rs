//! A frame, and a driver that holds a medium to the contract while it runs it.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::{
    Bound, Capacity, Destination, Ecn, Frame, LossCause, Medium, MediumCounters, MediumInput, MediumOutput,
    Port,
};
use trunkline_units::{Instant, Seed, Span, Stream};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub id: u32,
    pub length: u32,
    pub to: Destination,
    pub channel: u16,
    pub priority: u8,
    pub damaged: bool,
    pub flow: u64,
    pub dscp: u8,
    pub ecn: Ecn,
}

impl Packet {
    pub fn new(id: u32, length: u32, to: Destination) -> Self {
        let (flow, dscp, ecn) = (0, 0, Ecn::NotEct);
        Packet { id, length, to, channel: 0, priority: 0, damaged: false, flow, dscp, ecn }
    }
}

impl Frame for Packet {
    fn length(&self) -> u32 {
        self.length
    }
    fn destination(&self) -> Destination {
        self.to
    }
    fn channel(&self) -> u16 {
        self.channel
    }
    fn priority(&self) -> u8 {
        self.priority
    }
    fn flow(&self) -> u64 {
        self.flow
    }
    fn dscp(&self) -> u8 {
        self.dscp
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    fn damage(&mut self) {
        self.damaged = true;
    }
    fn is_damaged(&self) -> bool {
        self.damaged
    }
}

pub type Log = (Instant, MediumOutput<Packet>);

/// Runs a medium. Checks that waking at the deadline makes progress and leaves a later deadline. With early wakes it
/// also wakes and polls needlessly, and checks that this does nothing.
pub struct Testbed<M> {
    pub medium: M,
    pub now: Instant,
    pub deadline: Option<Instant>,
    pub outputs: Vec<Log>,
    early_wakes: Option<Stream>,
}

impl<M: Medium<Packet>> Testbed<M> {
    pub fn new(medium: M) -> Self {
        Testbed { medium, now: Instant::ZERO, deadline: None, outputs: Vec::new(), early_wakes: None }
    }

    pub fn with_early_wakes(medium: M, seed: Seed) -> Self {
        Testbed { early_wakes: Some(seed.stream("nerves")), ..Testbed::new(medium) }
    }

    fn drain(&mut self) -> usize {
        let before = self.outputs.len();
        loop {
            match self.medium.poll(self.now) {
                MediumOutput::Idle { deadline } => {
                    self.deadline = deadline;
                    let again = self.medium.poll(self.now);
                    assert_eq!(again, MediumOutput::Idle { deadline }, "an idle medium stays idle");
                    return self.outputs.len() - before;
                }
                output => self.outputs.push((self.now, output)),
            }
            assert!(self.outputs.len() - before < 10_000, "a medium becomes idle");
        }
    }

    /// Wakes the medium at a random time before `at`, which must do nothing.
    fn wake_early(&mut self, at: Instant) {
        let Some(stream) = &mut self.early_wakes else { return };
        let early = self.now + Span::from_ps(stream.below(at.since(self.now).as_ps()));
        if stream.chance(0.5) && early > self.now {
            self.now = early;
            let before = self.deadline;
            self.medium.handle(early, MediumInput::Wake);
            assert_eq!((self.drain(), self.deadline), (0, before), "an early wake does nothing");
        }
    }

    /// Runs until `at`.
    pub fn until(&mut self, at: Instant) {
        while let Some(deadline) = self.deadline.filter(|deadline| *deadline <= at) {
            self.wake_early(deadline);
            self.now = self.now.max(deadline);
            self.medium.handle(self.now, MediumInput::Wake);
            self.drain();
            let later = self.deadline.is_none_or(|next| next > self.now);
            assert!(
                later,
                "after waking at {} the next deadline is later, not {:?}",
                self.now, self.deadline
            );
        }
        self.wake_early(at);
        self.now = self.now.max(at);
    }

    /// Runs until the medium has no deadline.
    pub fn finish(&mut self) {
        let mut steps = 0;
        while let Some(deadline) = self.deadline {
            self.until(deadline);
            steps += 1;
            assert!(steps < 10_000_000, "a medium comes to rest");
        }
    }

    pub fn send(&mut self, at: Instant, port: u16, frame: Packet) {
        self.until(at);
        self.medium.handle(self.now, MediumInput::Frame { port: Port(port), frame });
        self.drain();
    }

    pub fn request_room(&mut self, port: u16) {
        self.medium.handle(self.now, MediumInput::RequestRoom { port: Port(port) });
        self.drain();
    }

    pub fn has_room(&mut self, port: u16, length: u32) -> bool {
        self.medium.has_room(self.now, Port(port), length)
    }

    /// Takes the outputs since the last call.
    pub fn take(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.outputs)
    }

    pub fn counters(&self, port: u16) -> MediumCounters {
        self.medium.counters(Port(port)).clone()
    }
}

/// Frames to send, in order of time.
pub type Load = Vec<(Instant, u16, Packet)>;

/// Random frames from `ports` ports to `to`, one each `gap` on average, often several at one moment.
pub fn load(
    stream: &mut Stream,
    count: u32,
    ports: u16,
    gap: Span,
    to: impl Fn(&mut Stream) -> Destination,
) -> Load {
    let mut now = Instant::ZERO;
    let frame = |id| {
        if stream.chance(0.8) {
            now += Span::from_ps(stream.below(gap.as_ps() * 5 / 2 + 1));
        }
        let to = to(stream);
        let length = if stream.chance(0.1) { 1500 } else { stream.below(1501) as u32 };
        let mut packet = Packet::new(id, length, to);
        packet.channel = stream.below(4) as u16;
        packet.priority = stream.below(8) as u8;
        (now, stream.below(u64::from(ports)) as u16, packet)
    };
    (0..count).map(frame).collect()
}

pub fn draw_bound(stream: &mut Stream) -> Bound {
    let capacity = match stream.below(4) {
        0 => Capacity::Unbounded,
        1 => Capacity::Frames(stream.below(6)),
        2 => Capacity::Frames(50),
        _ => Capacity::Bytes(stream.below(9_000)),
    };
    Bound { capacity, per_channel: stream.chance(0.5) }
}

/// Sends all of `load` and runs until nothing is left.
pub fn run<M: Medium<Packet>>(mut testbed: Testbed<M>, load: &Load) -> Testbed<M> {
    for (at, port, packet) in load {
        testbed.send(*at, *port, packet.clone());
    }
    testbed.finish();
    testbed
}

/// Runs `load` with and without early wakes, and checks that the outputs are equal.
pub fn run_twice<M: Medium<Packet>>(seed: Seed, make: impl Fn() -> M, load: &Load) -> Testbed<M> {
    let steady = run(Testbed::new(make()), load);
    let early = run(Testbed::with_early_wakes(make(), seed), load);
    assert_eq!(steady.outputs, early.outputs, "seed {seed}");
    steady
}

/// The outcome of a frame: the ports that received it, and why it was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameOutcome {
    pub received: Vec<u16>,
    pub lost: Vec<(u16, LossCause)>,
}

pub fn outcomes(outputs: &[Log]) -> BTreeMap<u32, FrameOutcome> {
    let mut outcomes: BTreeMap<u32, FrameOutcome> = BTreeMap::new();
    for (_, output) in outputs {
        match output {
            MediumOutput::Transmit { port, frame } => {
                outcomes.entry(frame.id).or_default().received.push(port.0)
            }
            MediumOutput::Lost { port, frame, cause } => {
                outcomes.entry(frame.id).or_default().lost.push((port.0, *cause));
            }
            MediumOutput::Room { .. } | MediumOutput::Idle { .. } => {}
        }
    }
    outcomes
}

/// Checks that every frame of `load` is reported lost once at its sender's port, or arrives at every port of
/// `receivers`, a function of the sender and the frame; and that the counters agree.
pub fn check_conservation<M: Medium<Packet>>(
    testbed: &Testbed<M>,
    load: &Load,
    ports: u16,
    receivers: impl Fn(u16, &Packet) -> Vec<u16>,
) {
    let outcomes = outcomes(&testbed.outputs);
    let mut expected = vec![(0, 0, 0, 0); usize::from(ports)];
    for (_, from, packet) in load {
        let outcome = outcomes.get(&packet.id).cloned().unwrap_or_default();
        let counted = &mut expected[usize::from(*from)];
        match &outcome.lost[..] {
            [] => {
                let mut received = outcome.received.clone();
                received.sort_unstable();
                assert_eq!(received, receivers(*from, packet), "who receives {packet:?} from {from}");
            }
            [(port, cause)] => {
                assert_eq!(
                    (port, &outcome.received[..]),
                    (from, &[][..]),
                    "{packet:?} is lost once, at its sender"
                );
                match cause {
                    LossCause::QueueFull => counted.2 += 1,
                    _ => counted.3 += 1,
                }
            }
            twice => panic!("{packet:?} was lost more than once: {twice:?}"),
        }
        // A frame to an unknown station still left its sender.
        if outcome.lost.iter().all(|(_, cause)| *cause == LossCause::NoRoute) {
            counted.0 += 1;
            counted.1 += u64::from(packet.length);
        }
    }
    for (port, expected) in expected.into_iter().enumerate() {
        let c = testbed.counters(port as u16);
        assert_eq!((c.frames, c.bytes, c.queue_drops, c.other_losses), expected, "counters of port {port}");
    }
    let ids: BTreeSet<u32> = load.iter().map(|(_, _, packet)| packet.id).collect();
    assert!(outcomes.keys().all(|id| ids.contains(id)), "nothing comes out that did not go in");
}

/// Lets each of `ports` stations send `each` frames of 1000 bytes as quickly as it can without losing one: it requests
/// room when there is none.
pub fn send_when_room<M: Medium<Packet>>(
    medium: M,
    ports: u16,
    each: u32,
    to: impl Fn(u16) -> Destination,
) -> Testbed<M> {
    let mut testbed = Testbed::new(medium);
    let mut sent = vec![0; usize::from(ports)];
    let mut ready: Vec<u16> = (0..ports).collect();
    loop {
        for port in ready.drain(..) {
            while sent[usize::from(port)] < each {
                if !testbed.has_room(port, 1000) {
                    testbed.request_room(port);
                    break;
                }
                let id = u32::from(port) * each + sent[usize::from(port)];
                sent[usize::from(port)] += 1;
                testbed.send(testbed.now, port, Packet::new(id, 1000, to(port)));
            }
        }
        let room = |(_, output): &Log| match output {
            MediumOutput::Room { port } => Some(port.0),
            _ => None,
        };
        ready = testbed.outputs.iter().filter_map(room).collect();
        testbed.outputs.retain(|outputs| room(outputs).is_none());
        if ready.is_empty() {
            let Some(next) = testbed.deadline else { break };
            testbed.until(next);
            ready = testbed.outputs.iter().filter_map(room).collect();
            testbed.outputs.retain(|outputs| room(outputs).is_none());
        }
    }
    assert_eq!(sent, vec![each; usize::from(ports)], "the waiting sender is notified");
    testbed
}

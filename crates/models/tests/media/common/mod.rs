//! A frame, and a driver that holds a medium to the contract while it runs it.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::{Arrival, Bound, Cause, Counters, Frame, Medium, Passage, Port, Room, To};
use trunkline_units::{Instant, Seed, Span, Stream};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub id: u32,
    pub length: u32,
    pub to: To,
    pub channel: u16,
    pub priority: u8,
    pub damaged: bool,
}

impl Packet {
    pub fn new(id: u32, length: u32, to: To) -> Self {
        Packet { id, length, to, channel: 0, priority: 0, damaged: false }
    }
}

impl Frame for Packet {
    fn length(&self) -> u32 {
        self.length
    }
    fn to(&self) -> To {
        self.to
    }
    fn channel(&self) -> u16 {
        self.channel
    }
    fn priority(&self) -> u8 {
        self.priority
    }
    fn damage(&mut self) {
        self.damaged = true;
    }
    fn is_damaged(&self) -> bool {
        self.damaged
    }
}

pub type Log = (Instant, Passage<Packet>);

/// Runs a medium. Checks that waking at the deadline makes progress and leaves a later deadline; a nervous
/// world also wakes and polls needlessly, and checks that this does nothing.
pub struct Testbed<M> {
    pub medium: M,
    pub now: Instant,
    pub deadline: Option<Instant>,
    pub said: Vec<Log>,
    nervous: Option<Stream>,
}

impl<M: Medium<Packet>> Testbed<M> {
    pub fn new(medium: M) -> Self {
        Testbed { medium, now: Instant::ZERO, deadline: None, said: Vec::new(), nervous: None }
    }

    pub fn nervous(medium: M, seed: Seed) -> Self {
        Testbed { nervous: Some(seed.stream("nerves")), ..Testbed::new(medium) }
    }

    fn drain(&mut self) -> usize {
        let before = self.said.len();
        loop {
            match self.medium.poll(self.now) {
                Passage::Idle { deadline } => {
                    self.deadline = deadline;
                    let again = self.medium.poll(self.now);
                    assert_eq!(again, Passage::Idle { deadline }, "an idle medium stays idle");
                    return self.said.len() - before;
                }
                passage => self.said.push((self.now, passage)),
            }
            assert!(self.said.len() - before < 10_000, "a medium becomes idle");
        }
    }

    /// Somewhere between now and `at` it is woken for nothing.
    fn fidget(&mut self, at: Instant) {
        let Some(stream) = &mut self.nervous else { return };
        let early = self.now + Span::from_ps(stream.below(at.since(self.now).as_ps()));
        if stream.chance(0.5) && early > self.now {
            self.now = early;
            let before = self.deadline;
            self.medium.handle(early, Arrival::Wake);
            assert_eq!((self.drain(), self.deadline), (0, before), "an early wake does nothing");
        }
    }

    /// Lets everything happen that is due up to `at`.
    pub fn until(&mut self, at: Instant) {
        while let Some(deadline) = self.deadline.filter(|deadline| *deadline <= at) {
            self.fidget(deadline);
            self.now = self.now.max(deadline);
            self.medium.handle(self.now, Arrival::Wake);
            self.drain();
            let later = self.deadline.is_none_or(|next| next > self.now);
            assert!(
                later,
                "after waking at {} the next deadline is later, not {:?}",
                self.now, self.deadline
            );
        }
        self.fidget(at);
        self.now = self.now.max(at);
    }

    /// Until nothing is to come.
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
        self.medium.handle(self.now, Arrival::Frame { port: Port(port), frame });
        self.drain();
    }

    pub fn ask(&mut self, port: u16) {
        self.medium.handle(self.now, Arrival::Ask { port: Port(port) });
        self.drain();
    }

    pub fn room(&mut self, port: u16, length: u32) -> bool {
        self.medium.room(self.now, Port(port), length)
    }

    /// What was said since the last call.
    pub fn take(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.said)
    }

    pub fn counters(&self, port: u16) -> Counters {
        self.medium.counters(Port(port)).clone()
    }
}

/// Frames to send, in order of time.
pub type Load = Vec<(Instant, u16, Packet)>;

/// Random frames from `ports` ports to `to`, one each `gap` on average, often several at one moment.
pub fn load(stream: &mut Stream, count: u32, ports: u16, gap: Span, to: impl Fn(&mut Stream) -> To) -> Load {
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
    let room = match stream.below(4) {
        0 => Room::Unbounded,
        1 => Room::Frames(stream.below(6)),
        2 => Room::Frames(50),
        _ => Room::Bytes(stream.below(9_000)),
    };
    Bound { room, each_channel: stream.chance(0.5) }
}

/// All of `load` through `world`, until nothing is left.
pub fn run<M: Medium<Packet>>(mut world: Testbed<M>, load: &Load) -> Testbed<M> {
    for (at, port, packet) in load {
        world.send(*at, *port, packet.clone());
    }
    world.finish();
    world
}

/// A steady world and a nervous one say the same: early wakes do nothing, and equal inputs give equal
/// outputs.
pub fn run_twice<M: Medium<Packet>>(seed: Seed, make: impl Fn() -> M, load: &Load) -> Testbed<M> {
    let steady = run(Testbed::new(make()), load);
    let nervous = run(Testbed::nervous(make(), seed), load);
    assert_eq!(steady.said, nervous.said, "seed {seed}");
    steady
}

/// What became of each frame: to which ports it came, and why it was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameOutcome {
    pub received: Vec<u16>,
    pub lost: Vec<(u16, Cause)>,
}

pub fn fates(said: &[Log]) -> BTreeMap<u32, FrameOutcome> {
    let mut fates: BTreeMap<u32, FrameOutcome> = BTreeMap::new();
    for (_, passage) in said {
        match passage {
            Passage::Transmit { port, frame } => fates.entry(frame.id).or_default().received.push(port.0),
            Passage::Lost { port, frame, cause } => {
                fates.entry(frame.id).or_default().lost.push((port.0, *cause));
            }
            Passage::Room { .. } | Passage::Idle { .. } => {}
        }
    }
    fates
}

/// Every frame of `load` is reported lost once at its sender's port, or comes to every port of `audience`,
/// which it may ask for a frame and its sender. The counters say the same.
pub fn check_conservation<M: Medium<Packet>>(
    world: &Testbed<M>,
    load: &Load,
    ports: u16,
    audience: impl Fn(u16, &Packet) -> Vec<u16>,
) {
    let fates = fates(&world.said);
    let mut expected = vec![(0, 0, 0, 0); usize::from(ports)];
    for (_, from, packet) in load {
        let fate = fates.get(&packet.id).cloned().unwrap_or_default();
        let counted = &mut expected[usize::from(*from)];
        match &fate.lost[..] {
            [] => {
                let mut received = fate.received.clone();
                received.sort_unstable();
                assert_eq!(received, audience(*from, packet), "who receives {packet:?} from {from}");
            }
            [(port, cause)] => {
                assert_eq!(
                    (port, &fate.received[..]),
                    (from, &[][..]),
                    "{packet:?} is lost once, at its sender"
                );
                match cause {
                    Cause::Full => counted.2 += 1,
                    _ => counted.3 += 1,
                }
            }
            twice => panic!("{packet:?} was lost more than once: {twice:?}"),
        }
        // A frame to an unknown station still left its sender.
        if fate.lost.iter().all(|(_, cause)| *cause == Cause::NoRoute) {
            counted.0 += 1;
            counted.1 += u64::from(packet.length);
        }
    }
    for (port, expected) in expected.into_iter().enumerate() {
        let c = world.counters(port as u16);
        assert_eq!((c.frames, c.bytes, c.full, c.lost), expected, "counters of port {port}");
    }
    let ids: BTreeSet<u32> = load.iter().map(|(_, _, packet)| packet.id).collect();
    assert!(fates.keys().all(|id| ids.contains(id)), "nothing comes out that did not go in");
}

/// Each of `ports` stations sends `each` frames of 1000 bytes as quickly as it can without losing one: it
/// asks for room where there is none. Says when the last one arrived.
pub fn send_politely<M: Medium<Packet>>(
    medium: M,
    ports: u16,
    each: u32,
    to: impl Fn(u16) -> To,
) -> Testbed<M> {
    let mut world = Testbed::new(medium);
    let mut sent = vec![0; usize::from(ports)];
    let mut turn: Vec<u16> = (0..ports).collect();
    loop {
        for port in turn.drain(..) {
            while sent[usize::from(port)] < each {
                if !world.room(port, 1000) {
                    world.ask(port);
                    break;
                }
                let id = u32::from(port) * each + sent[usize::from(port)];
                sent[usize::from(port)] += 1;
                world.send(world.now, port, Packet::new(id, 1000, to(port)));
            }
        }
        let room = |(_, passage): &Log| match passage {
            Passage::Room { port } => Some(port.0),
            _ => None,
        };
        turn = world.said.iter().filter_map(room).collect();
        world.said.retain(|said| room(said).is_none());
        if turn.is_empty() {
            let Some(next) = world.deadline else { break };
            world.until(next);
            turn = world.said.iter().filter_map(room).collect();
            world.said.retain(|said| room(said).is_none());
        }
    }
    assert_eq!(sent, vec![each; usize::from(ports)], "the waiting sender is notified");
    world
}

//! Two endpoints, a virtual clock, and a line with impairments between them.
//!
//! A frame sent through a port arrives at the same port of the other end, from [`PEER_A`] or [`PEER_B`]; frames to
//! other peers are lost and counted. Each direction has a rate and its own [`Impairments`], drawn from the seed, so a
//! run repeats exactly. Both ends are [`Checked`]: every run also checks the contract.

use std::collections::BTreeMap;

use trunkline_units::{Instant, Rate, Seed, Size, Span, Stream};

use crate::laws::Checked;
use crate::{Endpoint, Input, MAX_BATCH, Peer, Port, Reason, Segment, Sink, Transmit, Writable, drain};

/// The address of the first end, as the second sees it.
pub const PEER_A: Peer = Peer::new(b"a");

/// The address of the second end, as the first sees it.
pub const PEER_B: Peer = Peer::new(b"b");

/// Maximum number of steps at one instant. Beyond it, the two endpoints are taken to answer each other for ever.
const ENDLESS: usize = 100_000;

/// The impairments of a line, applied to each frame independently. The default is a perfect line without delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// One-way delay.
    pub delay: Span,
    /// Maximum extra delay, uniformly distributed from zero; frames may overtake each other.
    pub jitter: Span,
    /// Line rate. With a rate, the port is writable while the line is free; without one, transmission takes no time
    /// and the port is always writable.
    pub rate: Option<Rate>,
    /// Share of frames lost, 0 to 1.
    pub drop: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames with one bit flipped.
    pub corrupt: f64,
    /// Share of frames delayed by a further [`Impairments::late`].
    pub reorder: f64,
    /// Extra delay of a reordered frame.
    pub late: Span,
}

/// Counters of one direction of the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames dropped by the impairments, or sent to an unknown peer.
    pub dropped: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames damaged.
    pub corrupted: u64,
    /// Frames reordered.
    pub reordered: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No frame is in flight and neither end has a deadline.
    Quiet,
    /// The time limit was reached.
    Limit,
}

/// A frame or batch in flight.
#[derive(Debug)]
struct Flight {
    to_b: bool,
    port: Port,
    bytes: Vec<u8>,
    segment: Option<Segment>,
}

/// Frames in flight, by arrival time, then in sending order.
#[derive(Debug, Default)]
struct Flights {
    by_arrival: BTreeMap<(Instant, u64), Flight>,
    sequence: u64,
}

impl Flights {
    fn add(&mut self, at: Instant, flight: Flight) {
        self.by_arrival.insert((at, self.sequence), flight);
        self.sequence += 1;
    }

    /// Removes the next frame that has arrived by `now`.
    fn arrived(&mut self, now: Instant) -> Option<Flight> {
        let first = self.by_arrival.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// One direction of the line.
#[derive(Debug)]
struct Line {
    from: Peer,
    to: Peer,
    impairments: Impairments,
    stream: Stream,
    free_at: Instant,
    counts: Counts,
}

/// The impairments of one frame.
struct FrameOutcome {
    extra: Span,
    dropped: bool,
    duplicated: bool,
    corrupted: bool,
    reordered: bool,
}

impl FrameOutcome {
    fn is_unimpaired(&self) -> bool {
        let changed = self.dropped || self.duplicated || self.corrupted;
        !changed && self.extra.is_zero()
    }
}

impl Line {
    /// Draws the same number of random values for each frame, so the outcome of one frame does not affect the next.
    fn draw_outcome(&mut self) -> FrameOutcome {
        let i = self.impairments;
        let jitter = Span::from_ps((self.stream.unit() * i.jitter.as_ps() as f64) as u64);
        let reordered = self.stream.chance(i.reorder);
        FrameOutcome {
            extra: if reordered { jitter + i.late } else { jitter },
            dropped: self.stream.chance(i.drop),
            duplicated: self.stream.chance(i.duplicate),
            corrupted: self.stream.chance(i.corrupt),
            reordered,
        }
    }

    fn count(&mut self, outcome: &FrameOutcome) {
        self.counts.sent += 1;
        self.counts.dropped += u64::from(outcome.dropped);
        self.counts.duplicated += u64::from(outcome.duplicated);
        self.counts.corrupted += u64::from(outcome.corrupted);
        self.counts.reordered += u64::from(outcome.reordered);
    }

    /// Sends a batch over the line: as a whole if no frame is impaired, else frame by frame.
    fn carry(&mut self, now: Instant, transmit: &Transmit, bytes: &[u8], flights: &mut Flights) {
        let to_b = self.to == PEER_B;
        let port = transmit.port;
        if let Some(rate) = self.impairments.rate {
            self.free_at = now.max(self.free_at) + rate.time_for(Size::from_bytes(bytes.len() as u64));
        }
        let arrival = now.max(self.free_at) + self.impairments.delay;
        let mut outcomes: Vec<FrameOutcome> =
            Segment::frames(transmit.segment, bytes).map(|_| self.draw_outcome()).collect();
        if transmit.peer != self.to {
            outcomes.iter_mut().for_each(|outcome| outcome.dropped = true);
        }
        outcomes.iter().for_each(|outcome| self.count(outcome));
        if outcomes.iter().all(FrameOutcome::is_unimpaired) {
            let flight = Flight { to_b, port, bytes: bytes.to_vec(), segment: transmit.segment };
            return flights.add(arrival, flight);
        }
        for (outcome, frame) in outcomes.iter().zip(Segment::frames(transmit.segment, bytes)) {
            let copies = if outcome.dropped { 0 } else { 1 + usize::from(outcome.duplicated) };
            for _ in 0..copies {
                let mut bytes = frame.to_vec();
                if outcome.corrupted {
                    self.flip_a_bit(&mut bytes);
                }
                flights.add(arrival + outcome.extra, Flight { to_b, port, bytes, segment: None });
            }
        }
    }

    fn flip_a_bit(&mut self, bytes: &mut [u8]) {
        let bit = self.stream.below(bytes.len() as u64 * 8) as usize;
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// One end: its endpoint and the line that leaves it.
struct End<E: Endpoint> {
    endpoint: Checked<E>,
    line: Line,
    deadline: Option<Instant>,
    blocked: bool,
    events: Vec<(Instant, E::Event)>,
}

/// Receives the output of one end.
struct Outbox<'a, V> {
    now: Instant,
    line: &'a mut Line,
    flights: &'a mut Flights,
    events: &'a mut Vec<(Instant, V)>,
}

impl<V> Sink<V> for Outbox<'_, V> {
    fn writable(&self) -> Writable<'_> {
        if self.now >= self.line.free_at { Writable::ALL } else { Writable::NONE }
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) {
        self.line.carry(self.now, transmit, bytes, self.flights);
    }

    fn event(&mut self, event: V) {
        self.events.push((self.now, event));
    }
}

impl<E: Endpoint> End<E> {
    fn new(endpoint: E, seed: Seed, from: Peer, to: Peer) -> Self {
        let stream = seed.stream(&format!("pair / {from:?}"));
        let (impairments, counts) = (Impairments::default(), Counts::default());
        let line = Line { from, to, impairments, stream, free_at: Instant::ZERO, counts };
        End { endpoint: Checked::new(endpoint), line, deadline: None, blocked: false, events: Vec::new() }
    }

    fn pass_input(&mut self, now: Instant, input: Input<'_, E::Command<'_>>) {
        self.endpoint.handle(now, input).expect("law: only commands are refused");
    }

    fn wake_if_due(&mut self, now: Instant) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.pass_input(now, Input::Wake);
        }
    }

    fn drain(&mut self, now: Instant, flights: &mut Flights, buffer: &mut [u8]) {
        let mut sink = Outbox { now, line: &mut self.line, flights, events: &mut self.events };
        let idle = drain(&mut self.endpoint, now, ENDLESS, buffer, &mut sink);
        let idle = idle.expect("law: an endpoint becomes idle");
        self.deadline = idle.deadline;
        self.blocked = matches!(idle.reason, Reason::Port(_));
    }

    /// Returns the time of its next step without input.
    fn next(&self) -> Option<Instant> {
        let freed = self.blocked.then_some(self.line.free_at);
        self.deadline.into_iter().chain(freed).min()
    }
}

/// Two endpoints over a line; see the [module](self).
pub struct Pair<A: Endpoint, B: Endpoint> {
    a: End<A>,
    b: End<B>,
    flights: Flights,
    now: Instant,
    buffer: Vec<u8>,
}

impl<A: Endpoint, B: Endpoint> Pair<A, B> {
    /// Creates two ends with a perfect line between them, at time 0.
    pub fn new(a: A, b: B, seed: Seed) -> Self {
        Pair {
            a: End::new(a, seed, PEER_A, PEER_B),
            b: End::new(b, seed, PEER_B, PEER_A),
            flights: Flights::default(),
            now: Instant::ZERO,
            buffer: vec![0; MAX_BATCH],
        }
    }

    /// Sets the impairments from the first end to the second, and back.
    pub fn impair(&mut self, a_to_b: Impairments, b_to_a: Impairments) {
        self.a.line.impairments = a_to_b;
        self.b.line.impairments = b_to_a;
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the first endpoint.
    pub fn a(&self) -> &A {
        self.a.endpoint.inner()
    }

    /// Returns the second endpoint.
    pub fn b(&self) -> &B {
        self.b.endpoint.inner()
    }

    /// Returns the counters of frames from the first end, and of those from the second.
    pub fn counts(&self) -> (Counts, Counts) {
        (self.a.line.counts, self.b.line.counts)
    }

    /// Passes a command to the first end.
    ///
    /// # Errors
    /// The endpoint's refusal.
    pub fn command_a(&mut self, command: A::Command<'_>) -> Result<(), A::Refusal> {
        self.a.endpoint.handle(self.now, Input::Command(command))
    }

    /// Passes a command to the second end.
    ///
    /// # Errors
    /// The endpoint's refusal.
    pub fn command_b(&mut self, command: B::Command<'_>) -> Result<(), B::Refusal> {
        self.b.endpoint.handle(self.now, Input::Command(command))
    }

    /// Takes the events of the first end since the last call, with their times.
    pub fn take_events_a(&mut self) -> Vec<(Instant, A::Event)> {
        std::mem::take(&mut self.a.events)
    }

    /// Takes the events of the second end since the last call, with their times.
    pub fn take_events_b(&mut self) -> Vec<(Instant, B::Event)> {
        std::mem::take(&mut self.b.events)
    }

    /// Runs until the pair is quiet, at most for `limit`, after which the time has advanced by `limit`.
    ///
    /// # Panics
    /// If an end violates the contract, or the two answer each other for ever while time does not pass.
    pub fn run(&mut self, limit: Span) -> Ended {
        let end = self.now + limit;
        let mut steps = 0;
        loop {
            self.a.drain(self.now, &mut self.flights, &mut self.buffer);
            self.b.drain(self.now, &mut self.flights, &mut self.buffer);
            let Some(next) = self.next() else { return Ended::Quiet };
            if next > end {
                self.now = end;
                return Ended::Limit;
            }
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < ENDLESS, "law: time passes (it stands at {})", self.now);
            self.now = self.now.max(next);
            self.deliver();
            self.a.wake_if_due(self.now);
            self.b.wake_if_due(self.now);
        }
    }

    fn next(&self) -> Option<Instant> {
        let arrival = self.flights.by_arrival.first_key_value().map(|((at, _), _)| *at);
        [arrival, self.a.next(), self.b.next()].into_iter().flatten().min()
    }

    fn deliver(&mut self) {
        while let Some(Flight { to_b, port, bytes, segment }) = self.flights.arrived(self.now) {
            let bytes = &bytes[..];
            if to_b {
                self.b.pass_input(self.now, Input::Frame { port, peer: self.a.line.from, bytes, segment });
            } else {
                self.a.pass_input(self.now, Input::Frame { port, peer: self.b.line.from, bytes, segment });
            }
        }
    }
}

//! What every endpoint keeps, checked. A breach panics and says which law it broke.
//!
//! [`Checked`] wraps an endpoint and watches each call; [`Pair`](crate::Pair) wraps both its ends. [`hold`] puts
//! an endpoint through random inputs. [`idle_costs_nothing`] counts allocations. That an endpoint is `Send` the
//! trait itself demands.
//!
//! ```compile_fail,E0277
//! # use std::convert::Infallible;
//! # use trunkline_endpoint::{Endpoint, Idle, Input, Output, Reason, Writable};
//! # use trunkline_units::Instant;
//! struct Shared(std::rc::Rc<u8>); // with an Arc it would do
//! impl Endpoint for Shared {
//!     type Command<'a> = Infallible;
//!     type Event = Infallible;
//!     type Refusal = Infallible;
//! #   fn handle(&mut self, _: Instant, _: Input<'_, Infallible>) -> Result<(), Infallible> {
//! #       Ok(())
//! #   }
//! #   fn poll(&mut self, _: Instant, _: Writable<'_>, _: &mut [u8]) -> Output<Infallible> {
//! #       Output::Idle(Idle { deadline: None, reason: Reason::Input })
//! #   }
//! }
//! ```

use std::collections::VecDeque;
use std::fmt::Debug;

use trunkline_units::{Instant, Seed, Span, Stream};

use crate::{
    Endpoint, Idle, Input, MAX_BATCH, MAX_SEGMENTS, Output, Peer, Port, PortSet, Reason, Segment, Sink,
    Transmit, Writable, drain,
};

/// More than this to say at one moment is taken for a machine that never becomes idle.
const ENDLESS: usize = 100_000;

/// An endpoint whose every call is held against the contract of [`Endpoint`].
#[derive(Debug)]
pub struct Checked<E> {
    inner: E,
    now: Instant,
    /// What it last waited for, if nothing but early wakes came since.
    idle: Option<Idle>,
    woken: Woken,
}

/// What the last wake allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    No,
    /// Before its deadline: it must wait for the same thing as before.
    Early(Idle),
    /// At its deadline: the next must be later.
    Due(Instant),
}

impl<E: Endpoint> Checked<E> {
    /// Watches `inner` from its next call on.
    pub fn new(inner: E) -> Self {
        Checked { inner, now: Instant::ZERO, idle: None, woken: Woken::No }
    }

    /// The endpoint itself.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// The endpoint itself, to be commanded otherwise than by an input.
    pub fn besides(&mut self, now: Instant) -> &mut E {
        self.pass_time(now);
        (self.idle, self.woken) = (None, Woken::No);
        &mut self.inner
    }

    fn pass_time(&mut self, now: Instant) {
        assert!(now >= self.now, "law: time never goes back ({now} after {})", self.now);
        self.now = now;
    }

    fn wake(&mut self) {
        // A port that has become writable since may change what it says without being woken.
        self.woken = match self.idle {
            Some(Idle { reason: Reason::Port(_), .. }) => Woken::No,
            Some(idle) if idle.deadline.is_none_or(|at| self.now < at) => Woken::Early(idle),
            Some(_) => Woken::Due(self.now),
            // Woken again before it was polled: what the first wake demands still stands.
            None => self.woken,
        };
        if !matches!(self.woken, Woken::Early(_)) {
            self.idle = None;
        }
    }

    fn check_transmit(&self, transmit: &Transmit, writable: Writable<'_>) {
        let Transmit { port, length, segment, .. } = *transmit;
        assert!(writable.has(port), "law: transmits only for writable ports, not {port:?}");
        assert!(Segment::fits(segment, length), "law: a batch has bounds ({length} bytes, {segment:?})");
        let batch = segment.is_none_or(|s| s.length() < length);
        assert!(batch, "law: a segment is shorter than its batch ({length} bytes, {segment:?})");
    }

    fn check_idle(&self, idle: Idle, writable: Writable<'_>) {
        match idle.reason {
            Reason::Port(port) => {
                assert!(!writable.has(port), "law: nothing waits for a port that is writable ({port:?})");
            }
            Reason::Time => assert!(idle.deadline.is_some(), "law: who waits for time states a deadline"),
            Reason::Input => {}
        }
        match self.woken {
            Woken::Early(before) => {
                assert_eq!(idle, before, "law: an early wake does nothing (at {})", self.now);
            }
            Woken::Due(at) => assert!(
                idle.deadline.is_none_or(|next| next > at),
                "law: after waking at {at} the next deadline is later, not {:?}",
                idle.deadline
            ),
            Woken::No => {}
        }
    }
}

impl<E: Endpoint> Endpoint for Checked<E> {
    type Command<'a> = E::Command<'a>;
    type Event = E::Event;
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, E::Command<'_>>) -> Result<(), E::Refusal> {
        self.pass_time(now);
        let mut may_refuse = false;
        match &input {
            Input::Wake => self.wake(),
            Input::Command(_) => {
                may_refuse = true;
                (self.idle, self.woken) = (None, Woken::No);
            }
            Input::Frame { bytes, segment, .. } => {
                assert!(
                    Segment::fits(*segment, bytes.len()),
                    "the driver handed over a batch past its bounds"
                );
                (self.idle, self.woken) = (None, Woken::No);
            }
        }
        let result = self.inner.handle(now, input);
        if let (Err(refusal), false) = (&result, may_refuse) {
            panic!("law: only commands are refused ({refusal:?})");
        }
        result
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E::Event> {
        self.pass_time(now);
        assert!(buffer.len() >= MAX_BATCH, "the driver handed over a short buffer");
        let output = self.inner.poll(now, writable, buffer);
        let early = matches!(self.woken, Woken::Early(_));
        match &output {
            Output::Transmit(transmit) => {
                assert!(!early, "law: an early wake does nothing (it transmits at {now})");
                self.check_transmit(transmit, writable);
            }
            Output::Event(_) => assert!(!early, "law: an early wake does nothing (an event at {now})"),
            Output::Idle(idle) => {
                self.check_idle(*idle, writable);
                self.idle = Some(*idle);
                self.woken = Woken::No;
            }
        }
        output
    }
}

/// One output of an endpoint; batches are split into frames.
#[derive(Debug, PartialEq)]
enum RecordedOutput<E> {
    Frame(Port, Peer, Vec<u8>),
    Event(E),
}

/// Records the outputs.
struct Log<'a, E> {
    writable: Writable<'a>,
    said: Vec<RecordedOutput<E>>,
}

impl<E> Sink<E> for Log<'_, E> {
    fn writable(&self) -> Writable<'_> {
        self.writable
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let frames = Segment::frames(transmit.segment, bytes);
        self.said
            .extend(frames.map(|frame| RecordedOutput::Frame(transmit.port, transmit.peer, frame.to_vec())));
    }

    fn event(&mut self, event: E) {
        self.said.push(RecordedOutput::Event(event));
    }
}

/// Everything it has to say, and what it waits for.
fn listen<E: Endpoint>(
    endpoint: &mut E,
    now: Instant,
    writable: Writable<'_>,
    buffer: &mut [u8],
) -> (Vec<RecordedOutput<E::Event>>, Idle) {
    let mut log = Log { writable, said: Vec::new() };
    let idle = drain(endpoint, now, ENDLESS, buffer, &mut log);
    (log.said, idle.expect("law: an endpoint becomes idle"))
}

/// Puts two endpoints from `make` through the same random life, and watches every call ([`Checked`]).
///
/// The life: time passes, partly to deadlines; frames come that are garbage, or its own frames back again,
/// damaged or whole; `act` gives commands; ports close and open; output waits undrained. One twin gets every batch
/// whole and is woken at deadlines only. The other gets the frames one by one, is woken and polled needlessly.
/// Both must say the same, so this also proves that a batch means its frames, that early wakes do nothing, and
/// that the endpoint is deterministic.
///
/// `act` may give a command, or several, or none; it is called for each twin with equal streams.
///
/// # Panics
/// If a law is broken, with the seed.
pub fn hold<E: Endpoint>(
    seed: Seed,
    make: impl Fn() -> E,
    mut act: impl FnMut(&mut Checked<E>, Instant, &mut Stream),
) where
    E::Event: PartialEq + Debug,
{
    let mut life = Life {
        stream: seed.stream("laws / life"),
        now: Instant::ZERO,
        deadline: None,
        seen: VecDeque::new(),
        buffer: vec![0; MAX_BATCH],
    };
    let (mut steady, mut nervous) = (Checked::new(make()), Checked::new(make()));
    for step in 0..2_000 {
        match life.stream.below(8) {
            0..=2 => life.frame(&mut steady, &mut nervous),
            3 => {
                let mut again = life.stream.clone();
                act(&mut steady, life.now, &mut life.stream);
                act(&mut nervous, life.now, &mut again);
            }
            4 => {} // output waits
            _ => life.listen(&mut steady, &mut nervous, &format!("seed {seed}, step {step}")),
        }
    }
}

/// The world of [`hold`].
struct Life {
    stream: Stream,
    now: Instant,
    deadline: Option<Instant>,
    /// Frames it sent lately: what comes back is then at least nearly a frame of its protocol.
    seen: VecDeque<(Port, Peer, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl Life {
    fn frame<E: Endpoint>(&mut self, steady: &mut Checked<E>, nervous: &mut Checked<E>) {
        let (port, peer, mut frame) = self.draw_frame();
        let copies = match self.stream.below(4) {
            0 if !frame.is_empty() => 1 + self.stream.below(MAX_SEGMENTS.min(MAX_BATCH / frame.len()) as u64),
            _ => 1,
        };
        let (mut bytes, length) = (Vec::new(), frame.len());
        for _ in 0..copies {
            bytes.extend_from_slice(&frame);
            self.damage(&mut frame);
        }
        let segment = Segment::of(length, bytes.len());
        let whole = Input::Frame { port, peer, bytes: &bytes, segment };
        steady.handle(self.now, whole).expect("law: only commands are refused");
        for bytes in Segment::frames(segment, &bytes) {
            let single = Input::Frame { port, peer, bytes, segment: None };
            nervous.handle(self.now, single).expect("law: only commands are refused");
        }
    }

    fn draw_frame(&mut self) -> (Port, Peer, Vec<u8>) {
        let known = self.stream.below(3) > 0 && !self.seen.is_empty();
        if known {
            let (port, peer, mut bytes) =
                self.seen[self.stream.below(self.seen.len() as u64) as usize].clone();
            if self.stream.chance(0.7) {
                self.damage(&mut bytes);
            }
            return (port, peer, bytes);
        }
        let longest = if self.stream.chance(0.05) { MAX_BATCH } else { 64 };
        let length = self.stream.below(longest as u64 + 1);
        let bytes = (0..length).map(|_| self.stream.bits() as u8).collect();
        (Port(self.stream.below(3) as u16), Peer::new(&[self.stream.below(3) as u8]), bytes)
    }

    /// Flips bits in at most three bytes, mostly near the front, where headers are.
    fn damage(&mut self, bytes: &mut [u8]) {
        for _ in 0..self.stream.below(4) {
            let front = if self.stream.chance(0.8) { bytes.len().min(16) } else { bytes.len() };
            let at = self.stream.below(front as u64) as usize;
            let with = self.stream.bits() as u8;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= with;
            }
        }
    }

    /// Drains both, compares, and lets time pass.
    fn listen<E: Endpoint>(&mut self, steady: &mut Checked<E>, nervous: &mut Checked<E>, place: &str)
    where
        E::Event: PartialEq + Debug,
    {
        let mut open = PortSet::default();
        for port in 0..3 {
            if self.stream.chance(0.7) {
                open.insert(Port(port));
            }
        }
        let all = self.stream.chance(0.5);
        let writable = if all { Writable::ALL } else { open.writable() };
        let (said, idle) = listen(steady, self.now, writable, &mut self.buffer);
        let (twin_said, twin_idle) = listen(nervous, self.now, writable, &mut self.buffer);
        assert_eq!(
            (&said, idle),
            (&twin_said, twin_idle),
            "law: a batch means its frames, an early wake nothing, and equal inputs equal outputs ({place})"
        );
        for said in said {
            if let RecordedOutput::Frame(port, peer, bytes) = said {
                self.seen.push_back((port, peer, bytes));
            }
        }
        self.seen.drain(..self.seen.len().saturating_sub(16));
        self.deadline = idle.deadline;
        self.pass_time(steady, nervous, writable);
    }

    fn pass_time<E: Endpoint>(
        &mut self,
        steady: &mut Checked<E>,
        nervous: &mut Checked<E>,
        writable: Writable<'_>,
    ) {
        let wake = |endpoint: &mut Checked<E>, now| {
            endpoint.handle(now, Input::Wake).expect("law: only commands are refused");
        };
        let left = self.deadline.map_or(Span::from_ms(1), |at| at.since(self.now));
        if self.stream.chance(0.5) {
            // Partway: early, unless there was no time left.
            self.now += Span::from_ps(self.stream.below(left.as_ps()));
            if self.deadline.is_none_or(|at| self.now < at) {
                wake(nervous, self.now);
                let (said, _) = listen(nervous, self.now, writable, &mut self.buffer);
                assert!(said.is_empty(), "law: an early wake does nothing");
            }
        } else if let Some(at) = self.deadline {
            self.now = self.now.max(at) + Span::from_ps(self.stream.below(3));
        }
        if self.deadline.is_some_and(|at| self.now >= at) {
            wake(steady, self.now);
            wake(nervous, self.now);
            wake(nervous, self.now);
        }
    }
}

/// Drains `endpoint` at `now` and polls it a thousand times more; `count_allocations` runs what it is given and says
/// how often that allocated.
///
/// # Panics
/// If polling the idle endpoint allocates, or says something.
pub fn idle_costs_nothing<E: Endpoint>(
    endpoint: &mut E,
    now: Instant,
    count_allocations: impl FnOnce(&mut dyn FnMut()) -> u64,
) {
    let mut buffer = vec![0; MAX_BATCH];
    let (_, idle) = listen(endpoint, now, Writable::NONE, &mut buffer);
    let mut steady = true;
    let allocations = count_allocations(&mut || {
        for _ in 0..1_000 {
            steady &= matches!(endpoint.poll(now, Writable::NONE, &mut buffer), Output::Idle(i) if i == idle);
        }
    });
    assert!(steady, "law: an idle endpoint stays idle");
    assert_eq!(allocations, 0, "law: polling an idle endpoint allocates nothing");
}

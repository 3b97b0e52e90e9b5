//! Checks of the contract of [`Endpoint`], law by law. A violation panics and names the law.
//!
//! [`Checked`] wraps an endpoint and checks each call; [`Pair`](crate::Pair) wraps both its ends. [`check_laws`] gives an
//! endpoint random inputs. [`idle_costs_nothing`] counts allocations. The trait itself requires `Send`.
//!
//! ```compile_fail,E0277
//! # use std::convert::Infallible;
//! # use trunkline_endpoint::{Endpoint, Idle, Input, Output, Reason, Writable};
//! # use trunkline_units::Instant;
//! struct Shared(std::rc::Rc<u8>); // an Arc compiles
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

/// Maximum number of outputs at one instant. Beyond it, the endpoint is taken never to become idle.
const ENDLESS: usize = 100_000;

/// An endpoint with a check of every call against the contract of [`Endpoint`].
#[derive(Debug)]
pub struct Checked<E> {
    inner: E,
    now: Instant,
    /// The last `Idle`, if only early wakes followed.
    idle: Option<Idle>,
    woken: Woken,
}

/// What the last wake permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    No,
    /// Before the deadline: the next `Idle` must equal this one.
    Early(Idle),
    /// At the deadline: the next one must be later.
    Due(Instant),
}

impl<E: Endpoint> Checked<E> {
    /// Wraps `inner`.
    pub fn new(inner: E) -> Self {
        Checked { inner, now: Instant::ZERO, idle: None, woken: Woken::No }
    }

    /// Returns the endpoint.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// Returns the endpoint at `now`, for calls outside the trait.
    pub fn inner_mut(&mut self, now: Instant) -> &mut E {
        self.pass_time(now);
        (self.idle, self.woken) = (None, Woken::No);
        &mut self.inner
    }

    fn pass_time(&mut self, now: Instant) {
        assert!(now >= self.now, "law: time never decreases ({now} after {})", self.now);
        self.now = now;
    }

    fn wake(&mut self) {
        // If a port has become writable since, the output may change without a wake.
        self.woken = match self.idle {
            Some(Idle { reason: Reason::Port(_), .. }) => Woken::No,
            Some(idle) if idle.deadline.is_none_or(|at| self.now < at) => Woken::Early(idle),
            Some(_) => Woken::Due(self.now),
            // Woken again before a poll: the demand of the first wake remains.
            None => self.woken,
        };
        if !matches!(self.woken, Woken::Early(_)) {
            self.idle = None;
        }
    }

    fn check_transmit(&self, transmit: &Transmit, writable: Writable<'_>) {
        let Transmit { port, length, segment, .. } = *transmit;
        assert!(writable.has(port), "law: transmits only for writable ports, not {port:?}");
        assert!(
            Segment::fits(segment, length),
            "law: a batch is within its limits ({length} bytes, {segment:?})"
        );
        let batch = segment.is_none_or(|s| s.length() < length);
        assert!(batch, "law: a segment is shorter than its batch ({length} bytes, {segment:?})");
    }

    fn check_idle(&self, idle: Idle, writable: Writable<'_>) {
        match idle.reason {
            Reason::Port(port) => {
                assert!(!writable.has(port), "law: no endpoint waits for a writable port ({port:?})");
            }
            Reason::Time => {
                assert!(idle.deadline.is_some(), "law: an endpoint that waits for time has a deadline")
            }
            Reason::Input => {}
        }
        match self.woken {
            Woken::Early(before) => {
                assert_eq!(idle, before, "law: an early wake has no effect (at {})", self.now);
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
        let is_command = matches!(input, Input::Command(_));
        match &input {
            Input::Wake => self.wake(),
            _ => (self.idle, self.woken) = (None, Woken::No),
        }
        if let Input::Frame { bytes, segment, .. } = &input {
            assert!(Segment::fits(*segment, bytes.len()), "the driver passed a batch beyond the limits");
        }
        let result = self.inner.handle(now, input);
        if let (Err(refusal), false) = (&result, is_command) {
            panic!("law: only commands are refused ({refusal:?})");
        }
        result
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E::Event> {
        self.pass_time(now);
        assert!(buffer.len() >= MAX_BATCH, "the driver passed a short buffer");
        let output = self.inner.poll(now, writable, buffer);
        let early = matches!(self.woken, Woken::Early(_));
        match &output {
            Output::Transmit(transmit) => {
                assert!(!early, "law: an early wake has no effect (it transmits at {now})");
                self.check_transmit(transmit, writable);
            }
            Output::Event(_) => assert!(!early, "law: an early wake has no effect (an event at {now})"),
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

/// A sink that records the outputs.
struct Log<'a, E> {
    writable: Writable<'a>,
    outputs: Vec<RecordedOutput<E>>,
}

impl<E> Sink<E> for Log<'_, E> {
    fn writable(&self) -> Writable<'_> {
        self.writable
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let frames = Segment::frames(transmit.segment, bytes);
        self.outputs
            .extend(frames.map(|frame| RecordedOutput::Frame(transmit.port, transmit.peer, frame.to_vec())));
    }

    fn event(&mut self, event: E) {
        self.outputs.push(RecordedOutput::Event(event));
    }
}

/// Returns all outputs of the endpoint, and its `Idle`.
fn drain_outputs<E: Endpoint>(
    endpoint: &mut E,
    now: Instant,
    writable: Writable<'_>,
    buffer: &mut [u8],
) -> (Vec<RecordedOutput<E::Event>>, Idle) {
    let mut log = Log { writable, outputs: Vec::new() };
    let idle = drain(endpoint, now, ENDLESS, buffer, &mut log);
    (log.outputs, idle.expect("law: an endpoint becomes idle"))
}

/// Gives two endpoints from `make` the same random inputs, and checks every call ([`Checked`]).
///
/// Time passes, partly to deadlines. Frames arrive: random bytes, or the endpoint's own frames, intact or damaged. `act`
/// gives commands. Ports become writable or not. Output waits undrained. One twin receives every batch whole and is
/// woken at deadlines only. The other receives the frames one by one, and is also woken and polled needlessly. Both must
/// return the same output, so this also tests that a batch is equivalent to its frames, that early wakes have no effect,
/// and that the endpoint is deterministic.
///
/// `act` may give any number of commands; it is called for each twin with equal random streams.
///
/// # Panics
/// If a law is violated; the message names the seed.
pub fn check_laws<E: Endpoint>(
    seed: Seed,
    make: impl Fn() -> E,
    mut act: impl FnMut(&mut Checked<E>, Instant, &mut Stream),
) where
    E::Event: PartialEq + Debug,
{
    let mut harness = Harness {
        stream: seed.stream("laws / life"),
        now: Instant::ZERO,
        deadline: None,
        seen: VecDeque::new(),
        buffer: vec![0; MAX_BATCH],
    };
    let (mut minimal, mut frequent) = (Checked::new(make()), Checked::new(make()));
    for step in 0..2_000 {
        match harness.stream.below(8) {
            0..=2 => harness.frame(&mut minimal, &mut frequent),
            3 => {
                let mut again = harness.stream.clone();
                act(&mut minimal, harness.now, &mut harness.stream);
                act(&mut frequent, harness.now, &mut again);
            }
            4 => {} // output waits
            _ => harness.compare(&mut minimal, &mut frequent, &format!("seed {seed}, step {step}")),
        }
    }
}

/// The state of [`check_laws`]: virtual time and the source of random inputs.
struct Harness {
    stream: Stream,
    now: Instant,
    deadline: Option<Instant>,
    /// Frames sent recently. Returned to the endpoint, they are almost valid frames of its protocol.
    seen: VecDeque<(Port, Peer, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl Harness {
    fn frame<E: Endpoint>(&mut self, minimal: &mut Checked<E>, frequent: &mut Checked<E>) {
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
        minimal.handle(self.now, whole).expect("law: only commands are refused");
        for bytes in Segment::frames(segment, &bytes) {
            let single = Input::Frame { port, peer, bytes, segment: None };
            frequent.handle(self.now, single).expect("law: only commands are refused");
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

    /// Drains both twins, compares their outputs, and advances the time.
    fn compare<E: Endpoint>(&mut self, minimal: &mut Checked<E>, frequent: &mut Checked<E>, context: &str)
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
        let (outputs, idle) = drain_outputs(minimal, self.now, writable, &mut self.buffer);
        let (twin_outputs, twin_idle) = drain_outputs(frequent, self.now, writable, &mut self.buffer);
        assert_eq!(
            (&outputs, idle),
            (&twin_outputs, twin_idle),
            "law: a batch is equivalent to its frames, an early wake has no effect, and equal inputs give equal outputs ({context})"
        );
        for output in outputs {
            if let RecordedOutput::Frame(port, peer, bytes) = output {
                self.seen.push_back((port, peer, bytes));
            }
        }
        self.seen.drain(..self.seen.len().saturating_sub(16));
        self.deadline = idle.deadline;
        self.pass_time(minimal, frequent, writable);
    }

    fn pass_time<E: Endpoint>(
        &mut self,
        minimal: &mut Checked<E>,
        frequent: &mut Checked<E>,
        writable: Writable<'_>,
    ) {
        let wake = |endpoint: &mut Checked<E>, now| {
            endpoint.handle(now, Input::Wake).expect("law: only commands are refused");
        };
        let left = self.deadline.map_or(Span::from_ms(1), |at| at.since(self.now));
        if self.stream.chance(0.5) {
            // Before the deadline, unless it has passed.
            self.now += Span::from_ps(self.stream.below(left.as_ps()));
            if self.deadline.is_none_or(|at| self.now < at) {
                wake(frequent, self.now);
                let (outputs, _) = drain_outputs(frequent, self.now, writable, &mut self.buffer);
                assert!(outputs.is_empty(), "law: an early wake has no effect");
            }
        } else if let Some(at) = self.deadline {
            self.now = self.now.max(at) + Span::from_ps(self.stream.below(3));
        }
        if self.deadline.is_some_and(|at| self.now >= at) {
            wake(minimal, self.now);
            wake(frequent, self.now);
            wake(frequent, self.now);
        }
    }
}

/// Drains `endpoint` at `now` and polls it another thousand times. `count_allocations` runs its argument and returns the
/// number of allocations.
///
/// # Panics
/// If polling the idle endpoint allocates, or returns another output.
pub fn idle_costs_nothing<E: Endpoint>(
    endpoint: &mut E,
    now: Instant,
    count_allocations: impl FnOnce(&mut dyn FnMut()) -> u64,
) {
    let mut buffer = vec![0; MAX_BATCH];
    let (_, idle) = drain_outputs(endpoint, now, Writable::NONE, &mut buffer);
    let mut stays_idle = true;
    let allocations = count_allocations(&mut || {
        for _ in 0..1_000 {
            stays_idle &=
                matches!(endpoint.poll(now, Writable::NONE, &mut buffer), Output::Idle(i) if i == idle);
        }
    });
    assert!(stays_idle, "law: an idle endpoint stays idle");
    assert_eq!(allocations, 0, "law: polling an idle endpoint allocates nothing");
}

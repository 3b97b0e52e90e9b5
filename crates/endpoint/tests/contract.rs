//! Every violation of the contract is detected.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trunkline_endpoint::laws::{Checked, check_laws, idle_costs_nothing};
use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{
    Endpoint, Idle, Input, MAX_BATCH, Output, Pair, Peer, Port, Reason, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Seed, Span};

/// Replies with the length of each frame and ticks every microsecond, with one fault.
#[derive(Debug)]
struct Broken {
    fault: Fault,
    waiting: VecDeque<(Port, Peer, u8)>,
    next: Instant,
    tick: bool,
    refilled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    WakesEarly,
    KeepsItsDeadline,
    IgnoresPorts,
    WaitsForAnOpenPort,
    WaitsWithoutDeadline,
    TooManyFrames,
    SegmentsASingleFrame,
    AllocatesWhenIdle,
    TrustsItsInput,
    ReadsTheFirstFrameOnly,
    RefusesFrames,
    NeverIdle,
    IsNotDeterministic,
}

impl Broken {
    fn new(fault: Fault) -> Broken {
        Broken { fault, waiting: VecDeque::new(), next: Instant::from_ns(1000), tick: false, refilled: 0 }
    }

    fn frame(&mut self, port: Port, peer: Peer, frame: &[u8]) {
        if self.fault == Fault::TrustsItsInput && frame.len() < 40 {
            let _ = frame[usize::from(frame[0])];
        }
        if self.waiting.len() < 1000 {
            self.waiting.push_back((port, peer, frame.len() as u8));
        }
    }

    fn wake(&mut self, now: Instant) {
        if now >= self.next || self.fault == Fault::WakesEarly {
            self.tick = true;
            if self.fault != Fault::KeepsItsDeadline {
                self.next = now + Span::from_us(1);
            }
        }
    }
}

impl Endpoint for Broken {
    type Command<'a> = Infallible;
    type Event = u64;
    type Refusal = &'static str;

    fn handle(&mut self, now: Instant, input: Input<'_, Infallible>) -> Result<(), &'static str> {
        match input {
            Input::Frame { bytes, .. } if self.fault == Fault::RefusesFrames && bytes.is_empty() => {
                return Err("empty");
            }
            Input::Frame { port, peer, bytes, segment } => {
                let frames = if self.fault == Fault::ReadsTheFirstFrameOnly { 1 } else { usize::MAX };
                Segment::frames(segment, bytes).take(frames).for_each(|frame| self.frame(port, peer, frame));
            }
            Input::Wake => self.wake(now),
        }
        Ok(())
    }

    fn poll(&mut self, _: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<u64> {
        if std::mem::take(&mut self.tick) || self.fault == Fault::NeverIdle {
            // An address differs in every run and in each twin.
            let random = std::ptr::from_ref(self) as u64;
            return Output::Event(if self.fault == Fault::IsNotDeterministic { random } else { 0 });
        }
        let any = |port| writable.has(port) || self.fault == Fault::IgnoresPorts;
        let at = self.waiting.iter().position(|w| any(w.0));
        if let Some((port, peer, byte)) = at.and_then(|at| self.waiting.remove(at)) {
            buffer[0] = byte;
            let one = Some(Segment::new(NonZeroU16::MIN));
            let (length, segment) = match self.fault {
                Fault::TooManyFrames => (65, one),
                Fault::SegmentsASingleFrame => (1, one),
                _ => (1, None),
            };
            return Output::Transmit(Transmit { port, peer, length, segment });
        }
        if self.fault == Fault::AllocatesWhenIdle {
            self.refilled += vec![1; 10].len() as u64;
        }
        let blocked = self.waiting.front().map_or(Reason::Time, |w| Reason::Port(w.0));
        let idle = Idle { deadline: Some(self.next), reason: blocked };
        Output::Idle(match self.fault {
            Fault::WaitsForAnOpenPort if writable.has(Port(0)) => {
                Idle { reason: Reason::Port(Port(0)), ..idle }
            }
            Fault::WaitsWithoutDeadline => Idle { deadline: None, reason: Reason::Time },
            _ => idle,
        })
    }
}

/// Returns the panic message of `check_laws` for this fault; none if it does not panic.
fn violation(fault: Fault) -> Option<String> {
    let result = catch_unwind(|| check_laws(Seed(1), || Broken::new(fault), |_, _, _| {}));
    result.err().map(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a panic has a message")).into(),
    })
}

#[test]
fn a_correct_endpoint_satisfies_every_law() {
    for seed in 0..20 {
        check_laws(Seed(seed), || Broken::new(Fault::None), |_, _, _| {});
    }
    idle_costs_nothing(&mut Broken::new(Fault::None), Instant::ZERO, count_allocations);
}

#[test]
fn every_violated_law_is_named() {
    for (fault, law) in [
        (Fault::WakesEarly, "an early wake has no effect"),
        (Fault::KeepsItsDeadline, "the next deadline is later"),
        (Fault::IgnoresPorts, "transmits only for writable ports"),
        (Fault::WaitsForAnOpenPort, "no endpoint waits for a writable port"),
        (Fault::WaitsWithoutDeadline, "an endpoint that waits for time has a deadline"),
        (Fault::TooManyFrames, "a batch is within its limits"),
        (Fault::SegmentsASingleFrame, "a segment is shorter than its batch"),
        (Fault::TrustsItsInput, "index out of bounds"),
        (Fault::ReadsTheFirstFrameOnly, "a batch is equivalent to its frames"),
        (Fault::RefusesFrames, "only commands are refused"),
        (Fault::NeverIdle, "an endpoint becomes idle"),
        (Fault::IsNotDeterministic, "equal inputs give equal outputs"),
    ] {
        let message = violation(fault).unwrap_or_else(|| panic!("{fault:?} was not detected"));
        assert!(message.contains(law), "{fault:?}: {message}");
    }
}

#[test]
#[should_panic(expected = "polling an idle endpoint allocates nothing")]
fn allocation_by_an_idle_endpoint_is_detected() {
    idle_costs_nothing(&mut Broken::new(Fault::AllocatesWhenIdle), Instant::ZERO, count_allocations);
}

#[test]
fn decreasing_time_is_detected() {
    let mut checked = Checked::new(Broken::new(Fault::None));
    checked.handle(Instant::from_ns(2), Input::Wake).unwrap();
    let mut back = || checked.poll(Instant::from_ns(1), Writable::ALL, &mut vec![0; MAX_BATCH]);
    let panic = catch_unwind(AssertUnwindSafe(&mut back)).unwrap_err();
    assert!(panic.downcast::<String>().unwrap().contains("time never decreases"));
}

#[test]
#[should_panic(expected = "time passes")]
fn two_ends_that_answer_for_ever_are_detected() {
    let mut first = Broken::new(Fault::None);
    first.waiting.push_back((Port(0), PEER_B, 1));
    Pair::new(first, Broken::new(Fault::None), Seed(1)).run(Span::from_ms(1));
}

fn count_allocations(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).count_total
}

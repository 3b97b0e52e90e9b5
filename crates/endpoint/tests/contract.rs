//! Every law can be broken, and is then found out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trunkline_endpoint::laws::{Checked, hold, idle_costs_nothing};
use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{
    Endpoint, Idle, Input, MAX_BATCH, Output, Pair, Peer, Port, Reason, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Seed, Span};

/// Says the length of each frame back and ticks every microsecond, with one fault.
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
    StandsStill,
    IgnoresPorts,
    WaitsForAnOpenPort,
    WaitsForNoTime,
    TooManyFrames,
    SegmentsNothing,
    AllocatesIdle,
    IndexesGarbage,
    ReadsTheFirstFrameOnly,
    RefusesFrames,
    NeverIdle,
    DrawsDice,
}

impl Broken {
    fn new(fault: Fault) -> Broken {
        Broken { fault, waiting: VecDeque::new(), next: Instant::from_ns(1000), tick: false, refilled: 0 }
    }

    fn frame(&mut self, port: Port, peer: Peer, frame: &[u8]) {
        if self.fault == Fault::IndexesGarbage && frame.len() < 40 {
            let _ = frame[usize::from(frame[0])];
        }
        if self.waiting.len() < 1000 {
            self.waiting.push_back((port, peer, frame.len() as u8));
        }
    }

    fn wake(&mut self, now: Instant) {
        if now >= self.next || self.fault == Fault::WakesEarly {
            self.tick = true;
            if self.fault != Fault::StandsStill {
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
            // An address is a different number in every run, and in every twin.
            let dice = std::ptr::from_ref(self) as u64;
            return Output::Event(if self.fault == Fault::DrawsDice { dice } else { 0 });
        }
        let any = |port| writable.has(port) || self.fault == Fault::IgnoresPorts;
        let at = self.waiting.iter().position(|w| any(w.0));
        if let Some((port, peer, byte)) = at.and_then(|at| self.waiting.remove(at)) {
            buffer[0] = byte;
            let one = Some(Segment::new(NonZeroU16::MIN));
            let (length, segment) = match self.fault {
                Fault::TooManyFrames => (65, one),
                Fault::SegmentsNothing => (1, one),
                _ => (1, None),
            };
            return Output::Transmit(Transmit { port, peer, length, segment });
        }
        if self.fault == Fault::AllocatesIdle {
            self.refilled += vec![1; 10].len() as u64;
        }
        let blocked = self.waiting.front().map_or(Reason::Time, |w| Reason::Port(w.0));
        let idle = Idle { deadline: Some(self.next), reason: blocked };
        Output::Idle(match self.fault {
            Fault::WaitsForAnOpenPort if writable.has(Port(0)) => {
                Idle { reason: Reason::Port(Port(0)), ..idle }
            }
            Fault::WaitsForNoTime => Idle { deadline: None, reason: Reason::Time },
            _ => idle,
        })
    }
}

/// What `hold` says to this fault; none if nothing.
fn breach(fault: Fault) -> Option<String> {
    let held = catch_unwind(|| hold(Seed(1), || Broken::new(fault), |_, _, _| {}));
    held.err().map(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a panic has a message")).into(),
    })
}

#[test]
fn a_faultless_endpoint_keeps_every_law() {
    for seed in 0..20 {
        hold(Seed(seed), || Broken::new(Fault::None), |_, _, _| {});
    }
    idle_costs_nothing(&mut Broken::new(Fault::None), Instant::ZERO, count_allocations);
}

#[test]
fn every_broken_law_is_named() {
    for (fault, law) in [
        (Fault::WakesEarly, "an early wake does nothing"),
        (Fault::StandsStill, "the next deadline is later"),
        (Fault::IgnoresPorts, "transmits only for writable ports"),
        (Fault::WaitsForAnOpenPort, "nothing waits for a port that is writable"),
        (Fault::WaitsForNoTime, "who waits for time states a deadline"),
        (Fault::TooManyFrames, "a batch has bounds"),
        (Fault::SegmentsNothing, "a segment is shorter than its batch"),
        (Fault::IndexesGarbage, "index out of bounds"),
        (Fault::ReadsTheFirstFrameOnly, "a batch means its frames"),
        (Fault::RefusesFrames, "only commands are refused"),
        (Fault::NeverIdle, "an endpoint becomes idle"),
        (Fault::DrawsDice, "equal inputs equal outputs"),
    ] {
        let said = breach(fault).unwrap_or_else(|| panic!("{fault:?} was not noticed"));
        assert!(said.contains(law), "{fault:?}: {said}");
    }
}

#[test]
#[should_panic(expected = "polling an idle endpoint allocates nothing")]
fn an_endpoint_that_allocates_while_idle_is_found_out() {
    idle_costs_nothing(&mut Broken::new(Fault::AllocatesIdle), Instant::ZERO, count_allocations);
}

#[test]
fn a_caller_that_turns_back_time_is_found_out() {
    let mut checked = Checked::new(Broken::new(Fault::None));
    checked.handle(Instant::from_ns(2), Input::Wake).unwrap();
    let mut back = || checked.poll(Instant::from_ns(1), Writable::ALL, &mut vec![0; MAX_BATCH]);
    let panic = catch_unwind(AssertUnwindSafe(&mut back)).unwrap_err();
    assert!(panic.downcast::<String>().unwrap().contains("time never goes back"));
}

#[test]
#[should_panic(expected = "time passes")]
fn two_ends_that_answer_for_ever_are_found_out() {
    let mut first = Broken::new(Fault::None);
    first.waiting.push_back((Port(0), PEER_B, 1));
    Pair::new(first, Broken::new(Fault::None), Seed(1)).run(Span::from_ms(1));
}

fn count_allocations(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).count_total
}

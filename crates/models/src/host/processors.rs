//! Processors of a host.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// A processor and its current protocol work.
#[derive(Clone, Debug)]
struct Processor<J> {
    work: Option<J>,
    /// Completion of the work; while an interrupt preempts it, the remaining time.
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Done(Instant),
    Held(Span),
}

/// Result of a processor.
#[derive(Debug)]
pub(crate) enum Finished<J> {
    Interrupt(J),
    Work(J),
}

/// One or several processors. The first serves all interrupts, immediately and in order; its work is preempted
/// meanwhile. Work goes to any idle processor, to the first only if no other is idle.
#[derive(Clone, Debug)]
pub(crate) struct Processors<J> {
    processors: Vec<Processor<J>>,
    /// Raised interrupts, the current one first. The caller bounds them.
    interrupts: VecDeque<J>,
    /// Completion of the first interrupt.
    interrupt_done: Instant,
    interrupt_cost: Span,
    /// Total time of started work.
    begun: Span,
}

impl<J> Processors<J> {
    pub(crate) fn new(count: u32, interrupt_cost: Span) -> Self {
        let idle = || Processor { work: None, until: Until::Held(Span::ZERO) };
        Processors {
            processors: (0..count.max(1)).map(|_| idle()).collect(),
            interrupts: VecDeque::new(),
            interrupt_done: Instant::ZERO,
            interrupt_cost,
            begun: Span::ZERO,
        }
    }

    /// Raises an interrupt for `job`.
    pub(crate) fn interrupt(&mut self, now: Instant, job: J) {
        self.interrupts.push_back(job);
        if self.interrupts.len() == 1 {
            if let Until::Done(at) = self.processors[0].until {
                self.processors[0].until = Until::Held(at.since(now));
            }
            self.begin_interrupt(now);
        }
    }

    fn begin_interrupt(&mut self, now: Instant) {
        self.interrupt_done = now + self.interrupt_cost;
        self.begun += self.interrupt_cost;
    }

    /// Returns an idle processor.
    pub(crate) fn idle(&self) -> Option<usize> {
        let others = (1..self.processors.len()).find(|&at| self.processors[at].work.is_none());
        others.or_else(|| (self.processors[0].work.is_none() && self.interrupts.is_empty()).then_some(0))
    }

    /// Starts work on an idle processor.
    pub(crate) fn begin(&mut self, processor: usize, now: Instant, cost: Span, job: J) {
        self.processors[processor] = Processor { work: Some(job), until: Until::Done(now + cost) };
        self.begun += cost;
    }

    /// Returns the next completion.
    pub(crate) fn next(&self) -> Instant {
        let interrupt = if self.interrupts.is_empty() { Instant::MAX } else { self.interrupt_done };
        self.processors.iter().map(Processor::done).fold(interrupt, Instant::min)
    }

    /// Takes the result at the time of [`Processors::next`]: an interrupt before work, then the lower number.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Finished<J>> {
        if !self.interrupts.is_empty() && self.interrupt_done <= now {
            let job = self.interrupts.pop_front();
            if !self.interrupts.is_empty() {
                self.begin_interrupt(now);
            } else if let (Some(_), Until::Held(left)) = (&self.processors[0].work, self.processors[0].until)
            {
                self.processors[0].until = Until::Done(now + left);
            }
            return job.map(Finished::Interrupt);
        }
        let done = self.processors.iter_mut().find(|processor| processor.done() <= now)?;
        done.until = Until::Held(Span::ZERO);
        done.work.take().map(Finished::Work)
    }

    /// Returns the processor time used until now.
    pub(crate) fn used(&self, now: Instant) -> Span {
        let interrupt = if self.interrupts.is_empty() { Span::ZERO } else { self.interrupt_done.since(now) };
        let left = |processor: &Processor<J>| match processor.until {
            Until::Done(at) => at.since(now),
            Until::Held(left) => left,
        };
        self.begun - self.processors.iter().map(left).fold(interrupt, |sum, left| sum + left)
    }
}

impl<J> Processor<J> {
    /// Returns the completion of its work; never if it is idle or preempted.
    #[inline]
    fn done(&self) -> Instant {
        match (&self.work, self.until) {
            (Some(_), Until::Done(at)) => at,
            _ => Instant::MAX,
        }
    }
}

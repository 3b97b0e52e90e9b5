//! Processors of a host.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// A processor and its current protocol work.
#[derive(Clone, Debug)]
struct Processor<J> {
    work: Option<J>,
    completion: Completion,
}

/// When a processor completes its work: a time, or the remaining time while an interrupt preempts it.
#[derive(Clone, Copy, Debug)]
enum Completion {
    At(Instant),
    Preempted(Span),
}

/// A completed task of a processor.
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
    /// Total time of all tasks that have begun.
    begun: Span,
}

impl<J> Processors<J> {
    pub(crate) fn new(count: u32, interrupt_cost: Span) -> Self {
        let idle = || Processor { work: None, completion: Completion::Preempted(Span::ZERO) };
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
            if let Completion::At(at) = self.processors[0].completion {
                self.processors[0].completion = Completion::Preempted(at.since(now));
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
        self.processors[processor] = Processor { work: Some(job), completion: Completion::At(now + cost) };
        self.begun += cost;
    }

    /// Returns the next completion.
    pub(crate) fn next(&self) -> Instant {
        let interrupt = if self.interrupts.is_empty() { Instant::MAX } else { self.interrupt_done };
        self.processors.iter().map(Processor::done_at).fold(interrupt, Instant::min)
    }

    /// Takes the result at the time of [`Processors::next`]: an interrupt before work, then the lower number.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Finished<J>> {
        if !self.interrupts.is_empty() && self.interrupt_done <= now {
            let job = self.interrupts.pop_front();
            if !self.interrupts.is_empty() {
                self.begin_interrupt(now);
            } else if let (Some(_), Completion::Preempted(remaining)) =
                (&self.processors[0].work, self.processors[0].completion)
            {
                self.processors[0].completion = Completion::At(now + remaining);
            }
            return job.map(Finished::Interrupt);
        }
        let done = self.processors.iter_mut().find(|processor| processor.done_at() <= now)?;
        done.completion = Completion::Preempted(Span::ZERO);
        done.work.take().map(Finished::Work)
    }

    /// Returns the processor time used until now.
    pub(crate) fn used(&self, now: Instant) -> Span {
        let interrupt = if self.interrupts.is_empty() { Span::ZERO } else { self.interrupt_done.since(now) };
        let remaining = |processor: &Processor<J>| match processor.completion {
            Completion::At(at) => at.since(now),
            Completion::Preempted(remaining) => remaining,
        };
        self.begun - self.processors.iter().map(remaining).fold(interrupt, |sum, time| sum + time)
    }
}

impl<J> Processor<J> {
    /// Returns the completion of its work; never if it is idle or preempted.
    #[inline]
    fn done_at(&self) -> Instant {
        match (&self.work, self.completion) {
            (Some(_), Completion::At(at)) => at,
            _ => Instant::MAX,
        }
    }
}

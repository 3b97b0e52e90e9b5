//! DualPI2 (RFC 9332): a queue of low latency for L4S transports and a classic queue, coupled by one controller.
//!
//! It follows the pseudocode of appendix A.1 and A.2. As with PIE, updates need no timer.

use trunkline_endpoint::{Ecn, Frame};
use trunkline_units::{Instant, Span};

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline, elapsed_periods};

/// Parameters of DualPI2 (appendix A.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2Options {
    /// Target delay of the classic queue.
    pub target: Span,
    /// Interval of updates (Tupdate); not zero.
    pub update: Span,
    /// Weight of the difference to the target, per second.
    pub alpha: f64,
    /// Weight of the change of the delay, per second.
    pub beta: f64,
    /// Coupling factor: the probability of L4S marks is so many times the root of that of classic drops.
    pub coupling: f64,
    /// Delay of the L queue at which marking begins (minTh); it reaches every frame `range` later.
    pub threshold: Span,
    /// Width of the ramp (range); zero: a step.
    pub range: Span,
    /// Share of the bytes that the classic queue is sent while both queues are full.
    pub classic_share: f64,
}

/// The defaults of appendix A.1: 15 ms, gains for round trips up to 100 ms, a ramp around 1 ms, a coupling factor of 2, and
/// a sixteenth for the classic queue.
impl Default for DualPi2Options {
    fn default() -> Self {
        DualPi2Options {
            target: Span::from_ms(15),
            update: Span::from_ms(15),
            alpha: 0.15,
            beta: 3.0,
            coupling: 2.0,
            threshold: Span::from_us(800),
            range: Span::from_us(400),
            classic_share: 1.0 / 16.0,
        }
    }
}

/// A queue with the accumulated likelihood of its next mark or drop (`recur` of appendix A.1).
#[derive(Clone, Debug)]
struct SubQueue<F> {
    fifo: Fifo<F>,
    count: f64,
}

impl<F: Frame> SubQueue<F> {
    fn new() -> Self {
        SubQueue { fifo: Fifo::default(), count: 0.0 }
    }

    /// Returns true in this share of the calls, evenly spaced.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let is_selected = self.count > 1.0;
        self.count -= f64::from(u8::from(is_selected));
        is_selected
    }
}

/// The two queues.
#[derive(Clone, Debug)]
pub struct DualPi2<F> {
    options: DualPi2Options,
    low: SubQueue<F>,
    classic: SubQueue<F>,
    /// The base probability p'.
    base: f64,
    /// Delay of the classic queue at the last update.
    previous_delay: Span,
    next_update: Instant,
    /// Bytes that the classic queue was sent less than its share while both queues had frames.
    credit: f64,
}

impl<F: Frame> DualPi2<F> {
    /// Creates empty queues.
    pub fn new(options: DualPi2Options) -> Self {
        DualPi2 {
            options,
            low: SubQueue::new(),
            classic: SubQueue::new(),
            base: 0.0,
            previous_delay: Span::ZERO,
            next_update: Instant::ZERO + options.update,
            credit: 0.0,
        }
    }

    /// Makes the updates that were due by `now`.
    fn update(&mut self, now: Instant) {
        let (updates, next) = elapsed_periods(self.next_update, self.options.update, now);
        for update in 0..updates {
            if self.classic.fifo.is_empty() && self.base == 0.0 && self.previous_delay.is_zero() {
                break;
            }
            let delay = self.classic.fifo.delay(self.next_update + self.options.update * update);
            let [current, previous, target] =
                [delay, self.previous_delay, self.options.target].map(Span::as_s);
            let change = self.options.alpha * (current - target) + self.options.beta * (current - previous);
            self.base = (self.base + change).clamp(0.0, 1.0);
            self.previous_delay = delay;
        }
        self.next_update = next;
    }

    /// Returns the probability that the L queue's own delay gives (`laqm`).
    fn ramp(&self, delay: Span) -> f64 {
        let DualPi2Options { threshold, range, .. } = self.options;
        // A single frame is no queue (Th_len).
        if delay <= threshold || self.low.fifo.is_empty() {
            0.0
        } else if delay >= threshold + range {
            1.0
        } else {
            (delay - threshold).as_s() / range.as_s()
        }
    }

    /// Returns whether the L queue is served next: it has priority, but leaves the classic queue its share.
    fn serves_low(&mut self) -> bool {
        if self.low.fifo.is_empty() || self.classic.fifo.is_empty() {
            self.credit = 0.0;
            return self.classic.fifo.is_empty();
        }
        self.credit <= 0.0
    }

    fn dequeue_low(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>> {
        let mut next = self.low.fifo.pop()?;
        self.credit += f64::from(next.frame.length()) * self.options.classic_share;
        let coupled = self.options.coupling * self.base;
        // Appendix A.2: in overload, frames of the L queue are dropped like those of the classic queue.
        if coupled >= 1.0 && self.low.recur(self.base * self.base) {
            actions.dropped.push(next.frame);
            return None;
        }
        let likelihood = self.ramp(now.since(next.at)).max(coupled).min(1.0);
        if self.low.recur(likelihood) {
            actions.try_mark(&mut next.frame);
        }
        Some(next)
    }

    fn dequeue_classic(&mut self, actions: &mut Actions<F>) -> Option<Queued<F>> {
        let mut next = self.classic.fifo.pop()?;
        self.credit -= f64::from(next.frame.length()) * (1.0 - self.options.classic_share);
        let probability = self.base * self.base;
        let is_overload = self.options.coupling * self.base >= 1.0;
        if self.classic.recur(probability) && (is_overload || !actions.try_mark(&mut next.frame)) {
            actions.dropped.push(next.frame);
            return None;
        }
        Some(next)
    }
}

impl<F: Frame> Discipline<F> for DualPi2<F> {
    fn enqueue(&mut self, now: Instant, frame: F) {
        self.update(now);
        let is_low = matches!(frame.ecn(), Ecn::Ect1 | Ecn::Ce);
        let queue = if is_low { &mut self.low } else { &mut self.classic };
        queue.fifo.push(now, frame);
    }

    fn dequeue(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>> {
        self.update(now);
        while self.frames() > 0 {
            let is_low = self.serves_low();
            let next = if is_low { self.dequeue_low(now, actions) } else { self.dequeue_classic(actions) };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    fn frames(&self) -> u64 {
        self.low.fifo.frames() + self.classic.fifo.frames()
    }
}

//! PIE (RFC 8033): drops arriving frames at random, with a probability that a proportional-integral controller computes from
//! the delay of the queue.
//!
//! The delay is that of the oldest frame (the timestamps of section 4.2), not an estimate from the departure rate. Updates
//! need no timer: between two calls nothing changes but the age of that frame.

use trunkline_endpoint::Frame;
use trunkline_units::{Instant, Span, Stream};

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline, elapsed_periods};

/// Parameters of PIE (section 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieOptions {
    /// Reference delay (QDELAY_REF).
    pub target: Span,
    /// Interval of updates (T_UPDATE); not zero.
    pub update: Span,
    /// Weight of the difference to the target, per second.
    pub alpha: f64,
    /// Weight of the change of the delay, per second.
    pub beta: f64,
    /// Duration of a burst that passes without drops (MAX_BURST).
    pub burst: Span,
    /// Whether frames of ECN-capable transports are marked instead of dropped, while the probability is at most `max_ecn`.
    pub ecn: bool,
    /// Highest probability at which frames are marked (MAX_ECNTH).
    pub max_ecn: f64,
}

/// The defaults of RFC 8033 sections 4 and 5.1; no ECN.
impl Default for PieOptions {
    fn default() -> Self {
        PieOptions {
            target: Span::from_ms(15),
            update: Span::from_ms(15),
            alpha: 0.125,
            beta: 1.25,
            burst: Span::from_ms(150),
            ecn: false,
            max_ecn: 0.1,
        }
    }
}

/// Below this probability, divide the change by this (section 4.2).
const SCALES: [(f64, f64); 6] =
    [(1e-6, 2048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (1e-2, 8.0), (0.1, 2.0)];
/// Mean length of frames, for the smallest queue that is managed (MEAN_PKTSIZE of section 4.1).
const MEAN_PACKET: u64 = 1024;

/// A queue that PIE manages.
#[derive(Clone, Debug)]
pub struct Pie<F> {
    options: PieOptions,
    fifo: Fifo<F>,
    drop_probability: f64,
    /// Sum of the probabilities since the last drop.
    accumulated: f64,
    /// The delays at the last two updates.
    delay: Span,
    old_delay: Span,
    burst_allowance: Span,
    next_update: Instant,
    stream: Stream,
}

impl<F: Frame> Pie<F> {
    /// Creates an empty queue.
    pub fn new(options: PieOptions, stream: Stream) -> Self {
        Pie {
            options,
            fifo: Fifo::default(),
            drop_probability: 0.0,
            accumulated: 0.0,
            delay: Span::ZERO,
            old_delay: Span::ZERO,
            burst_allowance: options.burst,
            next_update: Instant::ZERO + options.update,
            stream,
        }
    }

    /// Makes the updates that were due by `now`.
    fn update(&mut self, now: Instant) {
        let (updates, next) = elapsed_periods(self.next_update, self.options.update, now);
        for update in 0..updates {
            // After a while without frames an update changes nothing.
            let is_idle = self.fifo.is_empty() && self.delay.is_zero() && self.old_delay.is_zero();
            if is_idle && self.drop_probability == 0.0 && self.burst_allowance == self.options.burst {
                break;
            }
            self.update_once(self.next_update + self.options.update * update);
        }
        self.next_update = next;
    }

    /// Section 4.2.
    fn update_once(&mut self, at: Instant) {
        let PieOptions { target, alpha, beta, .. } = self.options;
        self.old_delay = self.delay;
        self.delay = self.fifo.delay(at);
        let [delay, old, target] = [self.delay, self.old_delay, target].map(Span::as_s);
        let mut change = alpha * (delay - target) + beta * (delay - old);
        let scale = SCALES.iter().find(|(below, _)| self.drop_probability < *below);
        change /= scale.map_or(1.0, |(_, by)| *by);
        if self.drop_probability >= 0.1 {
            change = change.min(0.02);
        }
        self.drop_probability += change;
        if self.delay.is_zero() && self.old_delay.is_zero() {
            self.drop_probability *= 0.98;
        }
        self.drop_probability = self.drop_probability.clamp(0.0, 1.0);
        self.burst_allowance -= self.options.update;
        let half = self.options.target / 2;
        if self.drop_probability == 0.0 && self.delay < half && self.old_delay < half {
            self.burst_allowance = self.options.burst;
        }
    }

    /// Decides at random (sections 4.1 and 5.4): drops are neither too close together nor too far apart.
    fn selects(&mut self) -> bool {
        let is_short = self.old_delay < self.options.target / 2 && self.drop_probability < 0.2;
        if is_short || self.fifo.bytes() <= 2 * MEAN_PACKET {
            return false;
        }
        self.accumulated =
            if self.drop_probability == 0.0 { 0.0 } else { self.accumulated + self.drop_probability };
        let is_selected = match self.accumulated {
            ..0.85 => false,
            8.5.. => true,
            _ => self.stream.chance(self.drop_probability),
        };
        if is_selected {
            self.accumulated = 0.0;
        }
        is_selected
    }
}

impl<F: Frame> Discipline<F> for Pie<F> {
    fn admit(&mut self, now: Instant, frame: &mut F, actions: &mut Actions<F>) -> bool {
        self.update(now);
        if !self.burst_allowance.is_zero() || !self.selects() {
            return true;
        }
        let may_mark = self.options.ecn && self.drop_probability <= self.options.max_ecn;
        may_mark && actions.try_mark(frame)
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        self.fifo.push(now, frame);
    }

    fn dequeue(&mut self, now: Instant, _actions: &mut Actions<F>) -> Option<Queued<F>> {
        self.update(now);
        self.fifo.pop()
    }

    fn frames(&self) -> u64 {
        self.fifo.frames()
    }
}

//! CUBIC (RFC 9438).
//!
//! | section | implementation |
//! | --- | --- |
//! | 4.2 window increase function, 4.4 concave and 4.5 convex region | [`Epoch::target`] |
//! | 4.3 Reno-friendly region | [`Epoch::reno_friendly`] |
//! | 4.6 multiplicative decrease, 4.7 fast convergence | [`Cubic::reduce`] |
//! | 4.8 timeout | `on_lost` |
//! | 4.9 spurious congestion events | `on_spurious` |
//! | 4.10 slow start | `on_ack`; with HyStart++ (RFC 9406) if asked for |
//! | 5.8 application-limited flows | time counts only while the window is used |
//!
//! The window is a floating-point number, so growth of less than a unit accumulates. Arithmetic and `libm` give the same
//! result on every machine.

use trunkline_units::{Instant, Span};

use crate::hystart::{HyStart, SlowStart};
use crate::reno::MIN_THRESHOLD;
use crate::{Acknowledgement, Bounds, Controller, Loss, Transmission, is_used, smooth};

/// The constant C, in segments per cubic second (section 5.1).
const C: f64 = 0.4;
/// Multiplicative decrease factor (section 4.6).
const BETA: f64 = 0.7;
/// Additive increase of the Reno-friendly region, which has the average window of Reno (section 4.3, figure 4).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Maximum growth of the target in a round trip (section 4.2).
const MAX_TARGET: f64 = 1.5;

/// CUBIC: the window is a cubic function of the time since the last reduction, so that its growth does not depend on the
/// round-trip time. On short paths it grows as Reno.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    bounds: Bounds,
    /// The congestion window (`cwnd`).
    window: f64,
    /// Slow start threshold (`ssthresh`).
    threshold: f64,
    /// Window before the last reduction, after fast convergence (`W_max`); 0: none.
    origin: f64,
    /// Window before the last reduction (`cwnd_prior`).
    prior: f64,
    /// The current stage of congestion avoidance; none in slow start and until the first acknowledgement after a reduction.
    epoch: Option<Epoch>,
    /// When the last acknowledgement arrived, or sending began after an idle period.
    last_at: Instant,
    smoothed_rtt: Span,
    reduced_at: Instant,
    hystart: Option<HyStart>,
    /// Whether it grows at least as fast as Reno.
    reno_friendly: bool,
    /// State before the last reduction, if a loss was its reason: a mark is never spurious.
    undo: Option<Undo>,
}

#[derive(Clone, Copy, Debug)]
struct Undo {
    window: f64,
    threshold: f64,
    origin: f64,
    prior: f64,
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Time in which the window was used.
    elapsed: Span,
    /// Time at which the function reaches `origin` (K), in seconds.
    k: f64,
    /// Center of the function (`W_max`).
    origin: f64,
    /// The window that Reno would have (`W_est`).
    estimate: f64,
}

impl Epoch {
    /// Starts a stage with a window after a reduction from `origin`; with 0 or a lower origin the function is convex from
    /// the start (sections 4.8 and 4.10).
    fn new(window: f64, origin: f64, segment: f64) -> Epoch {
        let k = if origin > window { libm::cbrt((origin - window) / segment / C) } else { 0.0 };
        Epoch { elapsed: Span::ZERO, k, origin: origin.max(window), estimate: window }
    }

    /// Returns the value of the function at a time after the start, in seconds (figure 1).
    fn value(&self, time: f64, segment: f64) -> f64 {
        let time = time - self.k;
        C * time * time * time * segment + self.origin
    }

    /// Returns the window to reach in a round trip (figure 3).
    fn target(&self, window: f64, round_trip: Span, segment: f64) -> f64 {
        let value = self.value((self.elapsed + round_trip).as_s(), segment);
        value.clamp(window, window * MAX_TARGET)
    }

    /// Grows the estimate of Reno's window and returns it if it is above the function (section 4.3).
    fn reno_friendly(&mut self, amount: f64, window: f64, prior: f64, segment: f64) -> Option<f64> {
        let alpha = if self.estimate >= prior { 1.0 } else { ALPHA };
        self.estimate += alpha * segment * amount / window;
        (self.value(self.elapsed.as_s(), segment) < self.estimate).then_some(self.estimate)
    }
}

impl Cubic {
    /// Creates a controller with the initial window.
    pub fn new(bounds: Bounds) -> Cubic {
        let bounds = bounds.valid();
        Cubic {
            bounds,
            window: bounds.initial.into(),
            threshold: bounds.max.into(),
            origin: 0.0,
            prior: 0.0,
            epoch: None,
            last_at: Instant::ZERO,
            smoothed_rtt: Span::ZERO,
            reduced_at: Instant::ZERO,
            hystart: None,
            reno_friendly: true,
            undo: None,
        }
    }

    /// Creates a controller whose slow start ends by HyStart++ (RFC 9406).
    pub fn with_hystart(bounds: Bounds) -> Cubic {
        Cubic { hystart: Some(HyStart::new()), ..Cubic::new(bounds) }
    }

    /// Returns the controller without its Reno-friendly region (section 4.3), as some simulations have it.
    pub fn without_reno_friendly_region(self) -> Cubic {
        Cubic { reno_friendly: false, ..self }
    }

    fn segment(&self) -> f64 {
        self.bounds.segment.into()
    }

    /// Reduces the window (sections 4.6 and 4.7).
    fn reduce(&mut self, now: Instant) {
        let Cubic { window, threshold, origin, prior, epoch, .. } = *self;
        self.undo = Some(Undo { window, threshold, origin, prior, epoch });
        self.prior = window;
        self.origin = if window < origin { window * (1.0 + BETA) / 2.0 } else { window };
        let min = (self.segment() * f64::from(MIN_THRESHOLD)).min(self.bounds.max.into());
        self.threshold = (window * BETA).max(min);
        self.window = self.threshold;
        (self.epoch, self.reduced_at, self.last_at) = (None, now, now);
        self.hystart = None;
    }

    /// Grows the window in slow start; returns the amount that is left for congestion avoidance.
    fn slow_start(&mut self, acked: &Acknowledgement) -> u32 {
        let growth = match &mut self.hystart {
            None => acked.amount,
            Some(hystart) => match hystart.on_ack(acked, self.bounds.segment) {
                SlowStart::Grow(amount) => amount,
                SlowStart::End => {
                    self.hystart = None;
                    (self.threshold, self.prior, self.origin) = (self.window, self.window, 0.0);
                    return acked.amount;
                }
            },
        };
        let room = self.threshold - self.window;
        self.window += f64::from(growth).min(room);
        // The cast saturates at 0.
        if self.hystart.is_some() { 0 } else { (f64::from(growth) - room) as u32 }
    }

    /// Grows the window in congestion avoidance. `since` is the time since the last acknowledgement.
    fn avoid_congestion(&mut self, amount: u32, since: Span) {
        let (segment, amount) = (self.segment(), f64::from(amount));
        let mut epoch = match self.epoch {
            Some(epoch) => Epoch { elapsed: epoch.elapsed + since, ..epoch },
            None => Epoch::new(self.window, self.origin, segment),
        };
        let reno = epoch.reno_friendly(amount, self.window, self.prior, segment);
        self.window = match reno.filter(|_| self.reno_friendly) {
            Some(estimate) => self.window.max(estimate),
            None => {
                let target = epoch.target(self.window, self.smoothed_rtt, segment);
                self.window + (target - self.window) / self.window * amount
            }
        };
        self.epoch = Some(epoch);
    }
}

impl Controller for Cubic {
    fn window(&self) -> u32 {
        // The cast saturates.
        (self.window as u32).clamp(self.bounds.segment, self.bounds.max)
    }

    fn threshold(&self) -> Option<u32> {
        Some(self.threshold as u32)
    }

    fn set_threshold(&mut self, amount: u32) {
        self.threshold = f64::from(amount.clamp(self.bounds.segment, self.bounds.max));
    }

    fn on_sent(&mut self, sent: &Transmission) {
        // An idle period does not count.
        if sent.in_flight <= sent.amount {
            self.last_at = sent.now;
        }
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        let since = acked.now.since(self.last_at);
        self.last_at = acked.now;
        smooth(&mut self.smoothed_rtt, acked.round_trip);
        if acked.marked > 0 && acked.sent_at >= self.reduced_at {
            self.reduce(acked.now);
            self.undo = None;
            return true;
        }
        if acked.in_recovery || !is_used(acked, self.window()) {
            return false;
        }
        let mut amount = acked.amount;
        if self.window < self.threshold {
            amount = self.slow_start(acked);
        }
        if self.window >= self.threshold && amount > 0 {
            self.avoid_congestion(amount, since);
        }
        self.window = self.window.min(self.bounds.max.into());
        true
    }

    fn on_lost(&mut self, lost: &Loss) {
        let is_repeated_timeout = lost.timeout && self.window() == self.bounds.segment;
        if lost.sent_at >= self.reduced_at && !is_repeated_timeout {
            self.reduce(lost.now);
        }
        if lost.timeout {
            // Section 4.8: the next stage starts at its own window.
            (self.window, self.origin, self.epoch) = (self.segment(), 0.0, None);
        }
    }

    fn on_idle(&mut self, _: Instant) {
        // RFC 5681 section 4.1, and RFC 2861 for the threshold.
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min(self.bounds.initial.into());
    }

    fn on_spurious(&mut self, _: Instant) {
        if let Some(undo) = self.undo.take() {
            self.window = self.window.max(undo.window);
            self.threshold = self.threshold.max(undo.threshold);
            (self.origin, self.prior, self.epoch) = (undo.origin, undo.prior, undo.epoch);
        }
    }
}

#[cfg(test)]
mod tests;

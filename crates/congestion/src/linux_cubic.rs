//! CUBIC as Linux 6.18 has it, where it differs from RFC 9438.
//!
//! - The window has whole segments, also after a reduction; so have the cubic function and the acknowledgements that Reno's window
//!   needs to grow, which small windows feel.
//! - Growth is computed anew when the window has changed or 1/32 s has passed, not at each acknowledgement.
//! - Slow start ends by the HyStart of Ha and Rhee.
//! - Until the first loss, and after a timeout, the window grows by at least 5 % in a round trip.
//! - The Reno-friendly region keeps its factor above the previous window (RFC 8312 section 4.2).
//! - The cubic function looks the minimum round-trip time ahead, not the smoothed one.

use trunkline_units::{Instant, Span};

use crate::linux_hystart::LinuxHyStart;
use crate::reno::MIN_THRESHOLD;
use crate::{Acknowledgement, Bounds, Controller, Loss, Transmission, is_used};

/// The constant C, in segments per cubic second.
const C: f64 = 0.4;
/// Multiplicative decrease factor.
const BETA: f64 = 717.0 / 1024.0;
/// Acknowledged segments for a segment more of Reno's window, in eighths of the window: (1 + BETA) / (1 - BETA) / 3, rounded down.
const RENO_EIGHTHS: u64 = 15;
/// Time after which the growth is computed anew.
const UPDATE: Span = Span::from_us(31_250);
/// Acknowledged segments for a segment more: at most before the first loss, at least, and without any growth as a multiple of the
/// window.
const MAX_FIRST: f64 = 20.0;
const MIN: f64 = 2.0;
const IDLE: f64 = 100.0;

/// CUBIC with the arithmetic of Linux: whole segments, growth computed at most every 1/32 s, HyStart of Ha and Rhee, at least 5 %
/// of growth in a round trip before the first loss, and a Reno-friendly region with a constant factor.
#[derive(Clone, Copy, Debug)]
pub struct LinuxCubic {
    bounds: Bounds,
    state: State,
    hystart: LinuxHyStart,
    /// Whether slow start may end by HyStart.
    in_hystart: bool,
    /// Amount acknowledged beyond whole segments.
    remainder: u32,
    /// When the last acknowledgement arrived, or sending began after an idle period.
    last_at: Instant,
    reduced_at: Instant,
    /// State before the last reduction, if a loss was its reason: a mark is never spurious.
    undo: Option<State>,
}

/// What a reduction changes. Windows are in segments.
#[derive(Clone, Copy, Debug)]
struct State {
    window: u32,
    threshold: u32,
    /// Window before the last reduction, after fast convergence; 0: none.
    last_max: u32,
    /// Segments acknowledged towards the next growth.
    credit: f64,
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    started_at: Instant,
    /// Time at which the function reaches `origin` (K), in seconds.
    k: f64,
    origin: f64,
    /// The window that Reno would have, and segments acknowledged towards its growth.
    estimate: f64,
    estimate_credit: f64,
    /// Acknowledged segments for a segment more, with when and for which window it was computed.
    acks_per_growth: f64,
    updated_at: Instant,
    updated_for: u32,
}

impl Epoch {
    fn new(now: Instant, state: &State) -> Epoch {
        let (window, last_max) = (f64::from(state.window), f64::from(state.last_max));
        Epoch {
            started_at: now,
            k: if last_max > window { libm::cbrt((last_max - window) / C) } else { 0.0 },
            origin: last_max.max(window),
            estimate: window,
            estimate_credit: 0.0,
            acks_per_growth: 0.0,
            updated_at: now,
            updated_for: 0,
        }
    }

    /// Counts acknowledged segments, and computes the growth anew if it is time.
    fn update(&mut self, now: Instant, acked: f64, window: u32, min_rtt: Span, is_first: bool) {
        self.estimate_credit += acked;
        if self.updated_for == window && now.since(self.updated_at) <= UPDATE {
            return;
        }
        (self.updated_at, self.updated_for) = (now, window);
        let each = ((u64::from(window) * RENO_EIGHTHS) >> 3) as f64;
        let window = f64::from(window);
        let time = (now.since(self.started_at) + min_rtt).as_s() - self.k;
        // The distance has whole segments: before the origin the target is rounded up.
        let distance = libm::floor(C * libm::fabs(time * time * time));
        let target = if time < 0.0 { self.origin - distance } else { self.origin + distance };
        let mut acks = if target > window { window / (target - window) } else { IDLE * window };
        if is_first {
            acks = acks.min(MAX_FIRST);
        }
        let growth = ((self.estimate_credit - 1.0).max(0.0) / each) as u32;
        self.estimate += f64::from(growth);
        self.estimate_credit -= f64::from(growth) * each;
        if self.estimate > window {
            acks = acks.min(window / (self.estimate - window));
        }
        // Whole segments, as everything else.
        self.acks_per_growth = f64::from(acks as u32).max(MIN);
    }
}

impl LinuxCubic {
    /// Creates a controller with the initial window.
    pub fn new(bounds: Bounds) -> LinuxCubic {
        let bounds = bounds.valid();
        let window = (bounds.initial / bounds.segment).max(1);
        LinuxCubic {
            bounds,
            state: State { window, threshold: u32::MAX, last_max: 0, credit: 0.0, epoch: None },
            hystart: LinuxHyStart::default(),
            in_hystart: true,
            remainder: 0,
            last_at: Instant::ZERO,
            reduced_at: Instant::ZERO,
            undo: None,
        }
    }

    fn reduce(&mut self, now: Instant) {
        self.undo = Some(self.state);
        let State { window, last_max, .. } = self.state;
        let share = |factor: f64| (f64::from(window) * factor) as u32;
        let threshold = share(BETA).max(MIN_THRESHOLD);
        self.state = State {
            window: threshold,
            threshold,
            last_max: if window < last_max { share((1.0 + BETA) / 2.0) } else { window },
            credit: 0.0,
            epoch: None,
        };
        self.reduced_at = now;
    }

    fn grow(&mut self, acked: &Acknowledgement, mut segments: u32) {
        if self.state.window < self.state.threshold {
            if self.in_hystart && self.hystart.on_ack(acked, self.state.window) {
                self.state.threshold = self.state.window;
                self.in_hystart = false;
            } else {
                let growth = segments.min(self.state.threshold - self.state.window);
                self.state.window = self.state.window.saturating_add(growth);
                segments -= growth;
            }
        }
        if self.state.window >= self.state.threshold && segments > 0 {
            self.avoid_congestion(acked.now, f64::from(segments));
        }
        self.state.window = self.state.window.min(self.bounds.max / self.bounds.segment).max(1);
    }

    fn avoid_congestion(&mut self, now: Instant, acked: f64) {
        let State { window, last_max, .. } = self.state;
        let mut epoch = self.state.epoch.unwrap_or_else(|| Epoch::new(now, &self.state));
        epoch.update(now, acked, window, self.hystart.min(), last_max == 0);
        self.state.epoch = Some(epoch);
        // What was acknowledged while the window hardly grew counts once.
        if self.state.credit >= epoch.acks_per_growth {
            self.state.credit = 0.0;
            self.state.window += 1;
        }
        self.state.credit += acked;
        let growth = (self.state.credit / epoch.acks_per_growth) as u32;
        self.state.credit -= f64::from(growth) * epoch.acks_per_growth;
        self.state.window = self.state.window.saturating_add(growth);
    }
}

impl Controller for LinuxCubic {
    fn window(&self) -> u32 {
        self.state.window.saturating_mul(self.bounds.segment).min(self.bounds.max)
    }

    fn threshold(&self) -> Option<u32> {
        Some(self.state.threshold.saturating_mul(self.bounds.segment).min(self.bounds.max))
    }

    fn set_threshold(&mut self, amount: u32) {
        self.state.threshold = (amount / self.bounds.segment).max(1);
    }

    fn on_sent(&mut self, sent: &Transmission) {
        // An idle period does not count.
        if sent.in_flight <= sent.amount {
            if let Some(epoch) = &mut self.state.epoch {
                epoch.started_at += sent.now.since(self.last_at);
            }
            self.last_at = sent.now;
        }
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        self.last_at = acked.now;
        if let Some(round_trip) = acked.round_trip {
            self.hystart.sample(round_trip);
        }
        if acked.marked > 0 && acked.sent_at >= self.reduced_at {
            self.reduce(acked.now);
            self.undo = None;
            return true;
        }
        if acked.in_recovery || !is_used(acked, self.window()) {
            return false;
        }
        let amount = self.remainder + acked.amount;
        self.remainder = amount % self.bounds.segment;
        self.grow(acked, amount / self.bounds.segment);
        true
    }

    fn on_lost(&mut self, lost: &Loss) {
        let is_repeated_timeout = lost.timeout && self.state.window == 1;
        if lost.sent_at >= self.reduced_at && !is_repeated_timeout {
            self.reduce(lost.now);
        }
        if lost.timeout {
            (self.state.window, self.state.last_max, self.state.epoch) = (1, 0, None);
            self.hystart.restart(lost.now);
            self.in_hystart = true;
        }
    }

    fn on_idle(&mut self, _: Instant) {
        // RFC 5681 section 4.1, and RFC 2861 for the threshold.
        self.state.threshold = self.state.threshold.max(self.state.window / 4 * 3);
        self.state.window = self.state.window.min((self.bounds.initial / self.bounds.segment).max(1));
    }

    fn on_spurious(&mut self, _: Instant) {
        if let Some(undo) = self.undo.take() {
            self.state = State {
                window: self.state.window.max(undo.window),
                threshold: self.state.threshold.max(undo.threshold),
                ..undo
            };
        }
    }
}

#[cfg(test)]
mod tests;

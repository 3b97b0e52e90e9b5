//! Prague (draft-briscoe-iccrg-prague-congestion-control).
//!
//! | mechanism | implementation |
//! | --- | --- |
//! | moving average of the marks, once per virtual round trip | [`Prague::observe`] |
//! | multiplicative decrease by half of the average, once per virtual round trip | `on_ack` |
//! | additive increase, less on short paths, also in a round trip with marks | [`Prague::grow`] |
//! | as classic TCP after a loss | `on_lost` |
//! | pacing | [`Prague::update_pace`] |
//!
//! Round trips are those of a virtual path of at least 25 ms: flows on shorter paths get the same rate. The draft begins so 500
//! rounds after slow start; here it is always so.

use trunkline_units::{Instant, Rate, Span};

use crate::reno::MIN_THRESHOLD;
use crate::{Acknowledgement, Bounds, Controller, Loss, is_used, smooth};

/// Weight of a new sample of the share of marked data.
const GAIN: f64 = 1.0 / 16.0;
/// Minimum virtual round-trip time.
const MIN_VIRTUAL_RTT: Span = Span::from_ms(25);

/// Prague: a window for L4S queues (RFC 9331), which mark often. Marks reduce it by half of their share, as [`Dctcp`] does, and it
/// depends less on the round-trip time. A loss halves it.
///
/// It needs the feedback of Accurate ECN: [`Acknowledgement::marked`] must be the amount that was marked.
///
/// [`Dctcp`]: crate::Dctcp
#[derive(Clone, Copy, Debug)]
pub struct Prague {
    bounds: Bounds,
    /// The congestion window (`cwnd`).
    window: f64,
    /// Slow start threshold (`ssthresh`).
    threshold: f64,
    /// Estimated share of marked data.
    alpha: f64,
    /// Acknowledged and marked amounts of the virtual round trip, and its start.
    acked: u64,
    marked: u64,
    round_started_at: Instant,
    smoothed_rtt: Span,
    reduced_at: Instant,
    /// Window and threshold before the last reduction, if a loss was its reason.
    undo: Option<(f64, f64)>,
    pace: Option<Rate>,
}

impl Prague {
    /// Creates a controller with the initial window and a share of 1.
    pub fn new(bounds: Bounds) -> Prague {
        let bounds = bounds.valid();
        Prague {
            bounds,
            window: bounds.initial.into(),
            threshold: bounds.max.into(),
            alpha: 1.0,
            acked: 0,
            marked: 0,
            round_started_at: Instant::ZERO,
            smoothed_rtt: Span::ZERO,
            reduced_at: Instant::ZERO,
            undo: None,
            pace: None,
        }
    }

    fn virtual_rtt(&self) -> Span {
        self.smoothed_rtt.max(MIN_VIRTUAL_RTT)
    }

    /// Updates the average share of marks once per virtual round trip.
    fn observe(&mut self, acked: &Acknowledgement) {
        self.acked += u64::from(acked.amount);
        self.marked += u64::from(acked.marked.min(acked.amount));
        let is_over = acked.sent_at >= self.round_started_at
            && acked.now.since(self.round_started_at) >= self.virtual_rtt();
        if is_over && self.acked > 0 {
            let share = self.marked as f64 / self.acked as f64;
            self.alpha += GAIN * (share - self.alpha);
            (self.acked, self.marked, self.round_started_at) = (0, 0, acked.now);
        }
    }

    /// Sets window and threshold to this amount, at least two segments.
    fn reduce(&mut self, now: Instant, window: f64) {
        let min = f64::from(self.bounds.segment.saturating_mul(MIN_THRESHOLD));
        let window = window.max(min).min(self.bounds.max.into());
        (self.window, self.threshold, self.reduced_at) = (window, window, now);
    }

    /// Grows a used window by the acknowledged amount that was not marked: in slow start by all of it, then by a segment per
    /// virtual round trip of a virtual window.
    fn grow(&mut self, amount: u32) {
        let mut amount = f64::from(amount);
        if self.window < self.threshold {
            let growth = amount.min(self.threshold - self.window);
            self.window += growth;
            amount -= growth;
        }
        if self.window >= self.threshold {
            let ratio = match self.smoothed_rtt.is_zero() {
                true => 1.0,
                false => self.smoothed_rtt.as_s() / self.virtual_rtt().as_s(),
            };
            self.window += ratio * ratio * f64::from(self.bounds.segment) * amount / self.window;
        }
        self.window = self.window.min(self.bounds.max.into());
    }

    /// Paces the window over a round trip; in slow start twice as fast.
    fn update_pace(&mut self, acked: &Acknowledgement) {
        if acked.amount == 0 || self.smoothed_rtt.is_zero() {
            return;
        }
        let bytes = self.window * acked.bytes as f64 / f64::from(acked.amount);
        let gain = if self.window < self.threshold / 2.0 { 2.0 } else { 1.0 };
        // The cast saturates.
        self.pace = Some(Rate::from_bps(((gain * bytes * 8.0 / self.smoothed_rtt.as_s()) as u64).max(1)));
    }
}

impl Controller for Prague {
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

    fn pace(&self) -> Option<Rate> {
        self.pace
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        smooth(&mut self.smoothed_rtt, acked.round_trip);
        self.observe(acked);
        let may_reduce = acked.sent_at >= self.reduced_at
            && (self.reduced_at == Instant::ZERO || acked.now.since(self.reduced_at) >= self.virtual_rtt());
        if acked.marked > 0 && may_reduce {
            self.reduce(acked.now, self.window * (1.0 - self.alpha / 2.0));
            self.undo = None;
        } else if !acked.in_recovery && is_used(acked, self.window()) {
            self.grow(acked.amount.saturating_sub(acked.marked));
        }
        self.update_pace(acked);
        true
    }

    fn on_lost(&mut self, lost: &Loss) {
        let is_repeated_timeout = lost.timeout && self.window() == self.bounds.segment;
        if lost.sent_at >= self.reduced_at && !is_repeated_timeout {
            let before = (self.window, self.threshold);
            self.reduce(lost.now, self.window / 2.0);
            self.undo = Some(before);
        }
        if lost.timeout {
            self.window = self.bounds.segment.into();
        }
    }

    fn on_idle(&mut self, _: Instant) {
        // RFC 5681 section 4.1, and RFC 2861 for the threshold.
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min(self.bounds.initial.into());
    }

    fn on_spurious(&mut self, _: Instant) {
        if let Some((window, threshold)) = self.undo.take() {
            (self.window, self.threshold) = (self.window.max(window), self.threshold.max(threshold));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::at;
    use crate::tests::full;

    const SEGMENT: u32 = 1_000;

    /// Acknowledges so many round trips of full windows; of each, `marked` segments are marked, the first ones.
    fn rounds(prague: &mut Prague, rtt: Span, from: Instant, rounds: u32, marked: u32) -> Instant {
        let mut now = from;
        for _ in 0..rounds {
            let segments = (prague.window() / SEGMENT).max(1);
            for n in 0..segments {
                now += rtt / u64::from(segments);
                let mark = if n < marked { SEGMENT } else { 0 };
                prague.on_ack(&Acknowledgement { marked: mark, ..full(prague, now, SEGMENT, rtt) });
            }
        }
        now
    }

    fn steady(window: u32) -> Prague {
        let mut prague =
            Prague::new(Bounds { segment: SEGMENT, initial: window * SEGMENT, max: 1_000 * SEGMENT });
        prague.reduce(at(1), f64::from(window * SEGMENT));
        prague
    }

    #[test]
    fn window_grows_by_a_segment_in_a_virtual_round_trip_of_the_virtual_window() {
        // 100 round trips: at 50 ms a segment each, at 5 ms (1/5)² each.
        for (rtt_ms, expected) in [(50, 100.0), (25, 100.0), (5, 4.0)] {
            let mut prague = steady(200);
            rounds(&mut prague, Span::from_ms(rtt_ms), at(100_000), 100, 0);
            let grown = (prague.window - 200_000.0) / 1_000.0;
            assert!((grown - expected).abs() < 0.05 * expected + 0.01, "{grown} at {rtt_ms} ms");
        }
    }

    #[test]
    fn marks_reduce_by_half_of_their_average_once_per_virtual_round_trip() {
        for (rtt_ms, reductions) in [(50, 4), (5, 4)] {
            let (mut prague, rtt) = (steady(200), Span::from_ms(rtt_ms));
            (prague.alpha, prague.round_started_at) = (0.1, at(100_000));
            let rounds_in_all = 4 * (25 / rtt_ms.min(25)) as u32;
            let mut now = at(100_000);
            let mut count = 0;
            for _ in 0..rounds_in_all {
                let before = prague.reduced_at;
                now = rounds(&mut prague, rtt, now, 1, 20);
                count += u32::from(prague.reduced_at != before);
            }
            assert_eq!(count, reductions, "at {rtt_ms} ms");
            assert!((0.09..0.11).contains(&prague.alpha), "{}", prague.alpha);
            let left = prague.window / 200_000.0;
            assert!((0.78..0.85).contains(&left), "0.95⁴, not {left}");
        }
    }

    #[test]
    fn loss_halves_and_pace_is_the_window_in_a_round_trip() {
        let mut prague = steady(100);
        let now = rounds(&mut prague, Span::from_ms(50), at(100_000), 2, 0);
        let pace = prague.pace().expect("a round trip was measured").as_bps() as f64;
        let expected = f64::from(prague.window()) * 8.0 / 0.05;
        assert!((pace / expected - 1.0).abs() < 0.01, "{pace}, not {expected}");
        let window = prague.window();
        prague.on_lost(&Loss {
            now,
            amount: SEGMENT,
            bytes: SEGMENT.into(),
            sent_at: now,
            in_flight: window,
            timeout: false,
            since_sent: crate::SinceSent::default(),
        });
        assert!(prague.window().abs_diff(window / 2) <= 1);
    }
}

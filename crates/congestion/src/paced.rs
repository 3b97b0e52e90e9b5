//! A model-based controller: window and pace follow the delivery rate of the path, not its losses (after BBR: Cardwell
//! and others 2017, draft-ietf-ccwg-bbr).
//!
//! The controller measures the maximum recent delivery rate and the minimum recent round-trip time. Frames leave at that
//! rate. In flight are at most twice the bandwidth-delay product and the frames that await delayed or aggregated
//! acknowledgements. The mode determines the pacing gain:
//!
//! | mode | pace | until |
//! | --- | --- | --- |
//! | startup | 2.77 × | the rate has grown by less than a quarter in three round trips, or in one that lost a fifth |
//! | drain | 1 / 2.77 × | at most the bandwidth-delay product, and the frames that await delayed acknowledgements, are in flight |
//! | probe bandwidth | up to 1.25 ×, 0.75 ×, then six phases at 1 × | a phase lasts a minimum round-trip time, and at least 16 frames; at 0.75 × until the queue is drained, at most four times as long |
//! | probe RTT | 1 × | half the bandwidth-delay product has been in flight for a round trip |
//!
//! The last mode is for shared paths: if no round-trip sample came near the minimum for 10 s, only emptier queues
//! show whether the path became longer. A sender without competing traffic seldom enters it, because each cycle
//! drains its own queue. It costs half a round trip of sending every 10 s.
//!
//! If the peer sends as well, acknowledgements wait in its queue, and both ends measure the sum of both queues as
//! their round-trip time. Then the window exceeds twice the bandwidth-delay product by at least 96 frames; see
//! `BIDIRECTIONAL_FRAMES`.
//!
//! Loss is not a sign of congestion here, so this controller differs from BBR in three points. It measures the random
//! loss of the path in the second and third phase of the cycle, and compensates for it in the others: if one frame in
//! twenty is lost anyway, filling the path takes 1.05 times the delivery rate. A bandwidth probe that only overflows
//! a short queue halves the extra gain of the next. A timeout reduces the window to 4 frames until the next
//! acknowledgement.

use trunkline_units::{Instant, Rate, Span};

mod tcp_friendly;

pub use tcp_friendly::TcpFriendly;

use crate::path::{Round, Surplus};
use crate::windowed_max::WindowedMax;
use crate::windowed_min::{MIN_RTT_WINDOW, WindowedMin};
use crate::{Acknowledgement, Controller, Loss, Transmission};

/// Initial window in frames (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Minimum window, and the window after a timeout, in frames.
const MIN_WINDOW: f64 = 4.0;

/// Pacing gain in startup: 4 ln 2, so that the delivery rate doubles every round trip.
const STARTUP_GAIN: f64 = 2.77;
/// Phases of the cycle: the first probes for bandwidth, the second drains the queue of the probe, and the others
/// cruise. The loss is measured during the drain and the first of the cruise phases.
const PHASES: usize = 8;
const PROBE: usize = 0;
const DRAIN: usize = 1;
const FIRST_CRUISE: usize = 2;
/// Pacing gain of the drain phase, and its maximum duration in phases.
const DRAIN_GAIN: f64 = 0.75;
const MAX_DRAIN_PHASES: u64 = 4;
/// Range of the gain that a bandwidth probe adds to 1.
const MAX_EXTRA_GAIN: f64 = 0.25;
const MIN_EXTRA_GAIN: f64 = MAX_EXTRA_GAIN / 8.0;
/// A probe overflowed a queue if it lost this share and this many frames more than the random loss of the path.
const PROBE_LOSS_SHARE: f64 = 0.005;
const PROBE_LOST_FRAMES: f64 = 2.0;
/// Minimum length of a phase in frames, for paths with a tiny bandwidth-delay product.
const PHASE_FRAMES: f64 = 16.0;

/// Startup ends if the rate grows by less than this factor in [`STARTUP_ROUNDS`] round trips.
const STARTUP_GROWTH: f64 = 1.25;
const STARTUP_ROUNDS: u32 = 3;
/// Startup ends at once after a round trip that lost this share and at least this many frames.
const STARTUP_LOSS_SHARE: f64 = 0.2;
const STARTUP_LOST_FRAMES: u32 = 16;

/// Maximum loss that is compensated.
const MAX_COMPENSATED_LOSS: f64 = 0.2;
/// Frames over which the loss is averaged; older ones decay.
const LOSS_SAMPLE_FRAMES: f64 = 2048.0;

/// Loss counts as random while the round-trip time exceeds the minimum by no more than the minimum divided by this,
/// plus the time of the frames that may wait for delayed acknowledgements or for the rest of their transmit batch.
const LOSS_RTT_DIVISOR: u64 = 16;

/// A round-trip sample confirms the minimum if it exceeds it by no more than the minimum divided by this.
const CONFIRM_RTT_DIVISOR: u64 = 8;

/// Window of the aggregation measurement, and the maximum compensated aggregation in seconds at the current rate.
const EXTRA_ACKED_WINDOW: Span = Span::from_s(1);
const MAX_EXTRA_ACKED: f64 = 0.010;

/// Minimum number of frames in flight beyond twice the bandwidth-delay product if the peer sends as well:
/// acknowledgements wait behind its data, and a sender whose acknowledgements wait in that queue must still fill the
/// path. It is in frames, not time: a time-based allowance would freeze an unfair share.
const BIDIRECTIONAL_FRAMES: f64 = 96.0;
/// The peer counts as a sender if this share of all frames comes from it.
const PEER_SHARE: f64 = 0.2;
/// Frames over which the share is averaged; older ones decay.
const PEER_SHARE_FRAMES: f64 = 256.0;

/// Paces by the measured delivery rate and keeps queues short; single losses do not reduce the rate.
#[derive(Clone, Debug)]
pub struct Paced {
    max_window: u32,
    ack_every: f64,
    mode: PacedMode,
    /// Start of the mode or of the phase of the cycle.
    mode_started_at: Instant,
    /// Mean number of frames per batch.
    mean_batch: f64,
    /// Mean frame length in bytes.
    mean_frame: f64,
    /// Maximum delivery rates of this and the previous cycle, in bits per second.
    max_rates: WindowedMax<2>,
    min_rtt: WindowedMin,
    /// When a sample last confirmed the minimum round-trip time.
    min_rtt_confirmed_at: Instant,
    round: Round,
    extra_acked: ExtraAcked,
    path_loss: PathLoss,
    probe_gain: ProbeGain,
    /// Recent frames received from the peer, and own frames that it acknowledged.
    peer_frames: f64,
    own_frames: f64,
    /// A timeout has occurred, and nothing was acknowledged since.
    timed_out: bool,
    /// The current limits: window and pace.
    limits: (u32, Option<Rate>),
    /// The measurements that the limits were computed from, and whether another input has changed since.
    inputs: LimitInputs,
    inputs_changed: bool,
    /// The sending rate that fills the path in spite of its random loss.
    cached_full_rate: f64,
    common_ack: CommonAck,
}

/// The measurements that determine the limits. Few acknowledgements of a request-response exchange change any of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LimitInputs {
    /// Maximum recent delivery rate in bits per second.
    rate: f64,
    frame_bits: f64,
    late_ack_frames: f64,
    min_rtt: Span,
    peer_sends: bool,
}

/// Conditions under which the acknowledgement of a single frame does not change the limits. Most acknowledgements of
/// a request-response sender, which never leaves startup, meet them.
#[derive(Clone, Copy, Debug, Default)]
struct CommonAck {
    /// Valid before this time, when a measurement window ends; zero: never.
    valid_until: Instant,
    /// Length of the frame, equal to the mean frame length; 0 matches no frame.
    bytes: u64,
    /// Mean number of frames per batch.
    mean_batch: f64,
    /// Maximum delivery rate in bits per second.
    max_rate: u64,
    /// Minimum round-trip time, and minimum time since the previous acknowledgement.
    min_rtt: Span,
    min_gap: Span,
    /// Maximum round-trip times that confirm the minimum, and that count as near the minimum.
    confirming_rtt: Span,
    near_rtt: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PacedMode {
    Startup {
        /// Last rate that counted as growth, in bits per second.
        rate: f64,
        /// Round trips since then.
        rounds: u32,
    },
    Drain,
    ProbeBandwidth {
        phase: usize,
    },
    ProbeRtt {
        /// End of the mode; none until no more than its window is in flight.
        until: Option<Instant>,
    },
}

impl Paced {
    /// Creates a controller with a maximum window, for a peer that acknowledges at least every `ack_every` frames.
    pub fn new(max_window: u32, ack_every: u32) -> Paced {
        let mut paced = Paced {
            max_window: max_window.max(1),
            ack_every: f64::from(ack_every),
            mode: PacedMode::Startup { rate: 0.0, rounds: 0 },
            mode_started_at: Instant::ZERO,
            mean_batch: 0.0,
            mean_frame: 0.0,
            max_rates: WindowedMax::default(),
            min_rtt: WindowedMin::new(MIN_RTT_WINDOW),
            min_rtt_confirmed_at: Instant::ZERO,
            round: Round::default(),
            extra_acked: ExtraAcked::default(),
            path_loss: PathLoss::default(),
            probe_gain: ProbeGain::default(),
            peer_frames: 0.0,
            own_frames: 0.0,
            timed_out: false,
            limits: (1, None),
            inputs: LimitInputs::default(),
            inputs_changed: true,
            cached_full_rate: 0.0,
            common_ack: CommonAck::default(),
        };
        paced.update_limits();
        paced
    }

    #[inline]
    fn limit_inputs(&self) -> LimitInputs {
        LimitInputs {
            rate: self.rate(),
            frame_bits: self.frame_bits(),
            late_ack_frames: self.late_ack_frames(),
            min_rtt: self.min_rtt.get().unwrap_or_default(),
            peer_sends: self.peer_frames > PEER_SHARE * (self.peer_frames + self.own_frames),
        }
    }

    /// Recomputes the limits if an input has changed.
    #[inline]
    fn update_limits(&mut self) {
        let inputs = self.limit_inputs();
        if self.inputs_changed || inputs != self.inputs {
            (self.inputs, self.inputs_changed) = (inputs, false);
            self.compute_limits();
        }
    }

    fn compute_limits(&mut self) {
        let LimitInputs { rate, frame_bits, late_ack_frames, min_rtt, peer_sends } = self.inputs;
        self.cached_full_rate = self.full_rate();
        let (full_rate, min_rtt_s) = (self.cached_full_rate, min_rtt.as_s());
        let bdp = full_rate * min_rtt_s / frame_bits;
        let bidirectional_allowance = if peer_sends { BIDIRECTIONAL_FRAMES } else { 0.0 };
        let frames = match self.mode {
            _ if self.timed_out => 0.0,
            PacedMode::Startup { .. } => (2.0 * bdp + late_ack_frames).max(INITIAL_WINDOW),
            PacedMode::ProbeRtt { .. } => bdp / 2.0,
            PacedMode::Drain | PacedMode::ProbeBandwidth { .. } => {
                2.0 * bdp + late_ack_frames.max(bidirectional_allowance)
            }
        };
        // The cast saturates.
        let window = (frames.max(MIN_WINDOW) as u32).min(self.max_window);
        if rate == 0.0 || min_rtt_s == 0.0 {
            return self.limits = (window, None);
        }
        let (pace, min_window) = match self.mode {
            PacedMode::Startup { .. } => (STARTUP_GAIN * full_rate, INITIAL_WINDOW),
            PacedMode::Drain => (full_rate / STARTUP_GAIN, MIN_WINDOW),
            PacedMode::ProbeBandwidth { phase: PROBE } => {
                ((1.0 + self.probe_gain.extra_gain) * full_rate, MIN_WINDOW)
            }
            PacedMode::ProbeBandwidth { phase: DRAIN } => (DRAIN_GAIN * rate, MIN_WINDOW),
            PacedMode::ProbeBandwidth { phase: FIRST_CRUISE } => (rate, MIN_WINDOW),
            PacedMode::ProbeBandwidth { .. } | PacedMode::ProbeRtt { .. } => (full_rate, MIN_WINDOW),
        };
        // Never below the minimum window per round trip; otherwise a rate measured too low would persist.
        let pace = pace.max(min_window * frame_bits / min_rtt_s).max(1.0);
        self.limits = (window, Some(Rate::from_bps(pace as u64)));
    }

    /// Returns the maximum recent delivery rate in bits per second.
    fn rate(&self) -> f64 {
        self.max_rates.get()
    }

    /// Returns the sending rate that fills the path in spite of its random loss.
    fn full_rate(&self) -> f64 {
        self.rate() / (1.0 - self.path_loss.share())
    }

    fn bdp_frames(&self) -> f64 {
        let min_rtt_s = self.min_rtt.get().map_or(0.0, Span::as_s);
        self.full_rate() * min_rtt_s / self.frame_bits()
    }

    fn probe_rtt_window(&self) -> f64 {
        ((self.bdp_frames() / 2.0).max(MIN_WINDOW) as u32).min(self.max_window).into()
    }

    /// Returns the number of frames in flight that await delayed or aggregated acknowledgements.
    fn late_ack_frames(&self) -> f64 {
        self.ack_every + self.extra_acked.max()
    }

    fn frame_bits(&self) -> f64 {
        self.mean_frame.max(1.0) * 8.0
    }

    fn phase_length(&self) -> Span {
        let frames = Span::from_seconds(PHASE_FRAMES * self.frame_bits() / self.full_rate().max(1.0));
        self.min_rtt.get().unwrap_or(Span::ZERO).max(frames)
    }

    fn enter_mode(&mut self, mode: PacedMode, now: Instant) {
        if mode == (PacedMode::ProbeBandwidth { phase: FIRST_CRUISE })
            && self.mode != (PacedMode::ProbeBandwidth { phase: DRAIN })
        {
            self.path_loss.sample_interval = Interval::from(now);
        }
        (self.mode, self.mode_started_at, self.inputs_changed) = (mode, now, true);
    }

    /// Processes an acknowledgement that meets the conditions of `common_ack` and so cannot change the limits.
    /// Returns false, without an effect, for any other.
    #[inline]
    fn handle_common_ack(&mut self, acked: &Acknowledgement) -> bool {
        let Some(round_trip) = acked.round_trip else { return false };
        let common = &self.common_ack;
        let is_common = acked.now < common.valid_until
            && acked.app_limited
            && acked.amount == 1
            && acked.bytes == common.bytes
            && self.mean_batch == common.mean_batch
            && acked.rate.is_none_or(|rate| rate.as_bps() <= common.max_rate)
            && round_trip >= common.min_rtt
            && acked.now.since(self.extra_acked.surplus.started_at) > common.min_gap;
        if is_common {
            if round_trip <= common.confirming_rtt {
                self.min_rtt_confirmed_at = acked.now;
            }
            self.path_loss.is_rtt_near_min = round_trip <= common.near_rtt;
            self.extra_acked.surplus.started_at = acked.now;
            self.count_shares(f64::from(acked.peer_amount), 1.0);
            self.round.count(acked);
        }
        is_common
    }

    /// Determines which acknowledgements will not change the limits.
    fn learn_common_ack(&mut self) {
        self.common_ack.valid_until = Instant::ZERO;
        if let PacedMode::Startup { .. } = self.mode
            && self.extra_acked.is_steady_single_frame()
            && let Some((min_rtt_until, min_rtt)) = self.min_rtt.valid_until()
        {
            let LimitInputs { rate, frame_bits, .. } = self.inputs;
            // A margin, so that rounding cannot make the two paths differ.
            let min_gap = Span::from_seconds(frame_bits / rate.max(1.0)) + Span::from_ns(1);
            let (confirming_rtt, near_rtt) = self.rtt_thresholds(frame_bits);
            let extra_acked_until = self.extra_acked.window_started_at + EXTRA_ACKED_WINDOW;
            self.common_ack = CommonAck {
                valid_until: min_rtt_until.min(extra_acked_until),
                bytes: self.common_ack.bytes,
                mean_batch: self.mean_batch,
                max_rate: rate as u64,
                min_rtt,
                min_gap,
                confirming_rtt,
                near_rtt,
            };
        }
    }

    /// Returns the maximum round-trip times that confirm the minimum, and that count as near the minimum.
    #[inline]
    fn rtt_thresholds(&self, frame_bits: f64) -> (Span, Span) {
        let min_rtt = self.min_rtt.get().unwrap_or(Span::ZERO);
        let ack_wait = Span::from_seconds(
            (self.inputs.late_ack_frames + self.mean_batch) * frame_bits / self.cached_full_rate.max(1.0),
        );
        (min_rtt + min_rtt / CONFIRM_RTT_DIVISOR, min_rtt + min_rtt / LOSS_RTT_DIVISOR + ack_wait)
    }

    /// Counts frames of both directions; older ones decay.
    #[inline]
    fn count_shares(&mut self, peer_frames: f64, own_frames: f64) {
        (self.peer_frames, self.own_frames) = (self.peer_frames + peer_frames, self.own_frames + own_frames);
        if self.peer_frames + self.own_frames > PEER_SHARE_FRAMES {
            (self.peer_frames, self.own_frames) = (self.peer_frames / 2.0, self.own_frames / 2.0);
        }
    }

    #[inline]
    fn measure(&mut self, acked: &Acknowledgement) {
        let frames = f64::from(acked.amount);
        if acked.amount > 0 {
            let weight = if self.mean_frame == 0.0 { 1.0 } else { frames / (frames + 64.0) };
            let (bytes, previous) = (acked.bytes as f64 / frames, self.mean_frame);
            // Snap to the limit: converging further would take thousands of frames.
            self.mean_frame =
                if (bytes - previous).abs() < 1e-3 { bytes } else { previous + (bytes - previous) * weight };
            self.common_ack.bytes =
                if acked.amount == 1 && self.mean_frame == previous { acked.bytes } else { 0 };
        }
        let frame_bits = self.frame_bits();
        self.count_shares(f64::from(acked.peer_amount), frames);
        if let Some(round_trip) = acked.round_trip {
            self.min_rtt.sample(acked.now, round_trip);
            let (confirming_rtt, near_rtt) = self.rtt_thresholds(frame_bits);
            if round_trip <= confirming_rtt {
                self.min_rtt_confirmed_at = acked.now;
            }
            self.path_loss.is_rtt_near_min = round_trip <= near_rtt;
        }
        let mut max_rate = self.rate();
        if let Some(rate) = acked.rate {
            let rate = rate.as_bps() as f64;
            // An application-limited rate is a lower bound of the path's rate.
            if !acked.app_limited || rate > max_rate {
                self.max_rates.sample(rate);
                max_rate = self.rate();
            }
        }
        self.inputs_changed |= self.path_loss.count(acked.sent_at, frames, 0.0);
        self.probe_gain.count(acked.sent_at, frames, 0.0);
        let max_extra = (max_rate * MAX_EXTRA_ACKED / frame_bits).max(MIN_WINDOW);
        self.extra_acked.count(acked.now, frames, max_rate / frame_bits, max_extra);
    }

    /// Checks once per round trip whether startup has reached the rate of the path.
    fn check_startup(&mut self, acked: &Acknowledgement, round: Round) {
        let PacedMode::Startup { rate, rounds } = self.mode else { return };
        if acked.app_limited {
            return;
        }
        if self.rate() >= rate * STARTUP_GROWTH {
            self.mode = PacedMode::Startup { rate: self.rate(), rounds: 0 };
        } else if rounds + 1 >= STARTUP_ROUNDS || has_high_loss(&round) {
            self.enter_mode(PacedMode::Drain, acked.now);
        } else {
            self.mode = PacedMode::Startup { rate, rounds: rounds + 1 };
        }
    }

    /// Enters the next phase if the current one has ended.
    fn advance_phase(&mut self, now: Instant, in_flight: f64) {
        let PacedMode::ProbeBandwidth { phase } = self.mode else { return };
        let has_ended = match phase {
            DRAIN if in_flight <= self.bdp_frames() + self.late_ack_frames() => true,
            DRAIN => now.since(self.mode_started_at) >= self.phase_length() * MAX_DRAIN_PHASES,
            _ => now.since(self.mode_started_at) >= self.phase_length(),
        };
        if !has_ended {
            return;
        }
        let next = (phase + 1) % PHASES;
        match phase {
            PROBE => {
                self.probe_gain.interval.to = now;
                self.path_loss.sample_interval = Interval::from(now);
            }
            // One round trip after the start of the drain, the outcome of the probe is complete.
            FIRST_CRUISE => {
                self.probe_gain.adapt(self.path_loss.share());
                self.path_loss.sample_interval.to = now;
            }
            _ => {}
        }
        if next == PROBE {
            self.probe_gain.begin(now);
            // A cycle without measurements keeps the previous rate.
            self.max_rates.advance_used();
        }
        self.enter_mode(PacedMode::ProbeBandwidth { phase: next }, now);
    }

    /// Drains the queue to measure the minimum round-trip time if no sample confirmed it for long.
    fn check_min_rtt(&mut self, now: Instant, in_flight: f64) {
        match self.mode {
            PacedMode::ProbeBandwidth { .. } if now.since(self.min_rtt_confirmed_at) >= MIN_RTT_WINDOW => {
                self.enter_mode(PacedMode::ProbeRtt { until: None }, now);
            }
            PacedMode::ProbeRtt { until: None } if in_flight <= self.probe_rtt_window() => {
                // The limits stay the same.
                self.mode =
                    PacedMode::ProbeRtt { until: Some(now + self.min_rtt.get().unwrap_or(Span::ZERO)) };
            }
            PacedMode::ProbeRtt { until: Some(until) } if now >= until => {
                self.min_rtt_confirmed_at = now;
                self.enter_mode(PacedMode::ProbeBandwidth { phase: FIRST_CRUISE }, now);
            }
            _ => {}
        }
    }

    /// Processes an acknowledgement that may change the limits.
    #[inline(never)]
    fn process_ack(&mut self, acked: &Acknowledgement) -> bool {
        self.inputs_changed |= std::mem::take(&mut self.timed_out);
        self.measure(acked);
        let in_flight = f64::from(acked.in_flight.saturating_sub(acked.amount));
        if let Some(round) = self.round.count(acked) {
            self.check_startup(acked, round);
        }
        if self.mode == PacedMode::Drain && in_flight <= self.bdp_frames() + self.late_ack_frames() {
            self.enter_mode(PacedMode::ProbeBandwidth { phase: FIRST_CRUISE }, acked.now);
        }
        self.advance_phase(acked.now, in_flight);
        self.check_min_rtt(acked.now, in_flight);
        self.update_limits();
        self.learn_common_ack();
        true
    }
}

impl Controller for Paced {
    fn window(&self) -> u32 {
        self.limits.0
    }

    fn pace(&self) -> Option<Rate> {
        self.limits.1
    }

    fn on_handshake(&mut self, now: Instant, round_trip: Span) {
        self.min_rtt.sample(now, round_trip);
        self.common_ack.valid_until = Instant::ZERO;
        self.update_limits();
    }

    fn on_sent(&mut self, sent: &Transmission) {
        self.mean_batch += (f64::from(sent.amount) - self.mean_batch) / 8.0;
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        !self.handle_common_ack(acked) && self.process_ack(acked)
    }

    fn on_lost(&mut self, lost: &Loss) {
        self.round.count_lost(lost);
        if lost.timeout {
            // Frames declared lost by a timeout may only be delayed, so they do not count as random loss.
            self.timed_out = true;
        } else {
            self.path_loss.count(lost.sent_at, 0.0, f64::from(lost.amount));
            self.probe_gain.count(lost.sent_at, 0.0, f64::from(lost.amount));
        }
        (self.inputs_changed, self.common_ack.valid_until) = (true, Instant::ZERO);
        self.update_limits();
    }
}

/// Returns whether a round trip has lost so much that startup has overrun the path.
fn has_high_loss(round: &Round) -> bool {
    let total = (round.acked + round.lost) as f64;
    round.lost >= u64::from(STARTUP_LOST_FRAMES) && round.lost as f64 > total * STARTUP_LOSS_SHARE
}

/// Measures aggregation over a window of time.
#[derive(Clone, Copy, Debug, Default)]
struct ExtraAcked {
    surplus: Surplus,
    /// Maximum surplus of this and the previous measurement window.
    max: WindowedMax<2>,
    window_started_at: Instant,
}

impl ExtraAcked {
    /// Counts acknowledged frames. `rate` is in frames per second; the surplus is limited to `max_extra`.
    fn count(&mut self, now: Instant, frames: f64, rate: f64, max_extra: f64) {
        if now.since(self.window_started_at) >= EXTRA_ACKED_WINDOW {
            self.window_started_at = now;
            self.max.advance();
        }
        self.max.sample(self.surplus.count(now, frames, rate).min(max_extra));
    }

    /// Returns whether another single frame, acknowledged no earlier than expected, would leave frames and maximum
    /// unchanged.
    fn is_steady_single_frame(&self) -> bool {
        self.surplus.amount == 1.0 && self.max.current() >= 1.0
    }

    fn max(&self) -> f64 {
        self.max.get()
    }
}

/// A closed time interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Instant,
    to: Instant,
}

/// An empty interval.
impl Default for Interval {
    fn default() -> Self {
        Interval { from: Instant::MAX, to: Instant::ZERO }
    }
}

impl Interval {
    /// Creates an interval without an end.
    fn from(now: Instant) -> Interval {
        Interval { from: now, to: Instant::MAX }
    }

    fn contains(&self, time: Instant) -> bool {
        self.from <= time && time <= self.to
    }
}

/// Measures the random loss of the path: among the frames sent in the drain and the first cruise phase, those lost while the
/// round-trip time was near the minimum. Losses of a full queue are not compensated: sending more would only lose
/// more.
#[derive(Clone, Copy, Debug, Default)]
struct PathLoss {
    acked: f64,
    lost: f64,
    /// The interval whose frames are sampled.
    sample_interval: Interval,
    /// Whether the last round-trip sample was near the minimum.
    is_rtt_near_min: bool,
}

impl PathLoss {
    /// Counts frames; returns whether the loss may have changed.
    #[inline]
    fn count(&mut self, sent_at: Instant, acked: f64, lost: f64) -> bool {
        if !self.sample_interval.contains(sent_at) {
            return false;
        }
        self.acked += acked;
        self.lost += if self.is_rtt_near_min { lost } else { 0.0 };
        if self.acked + self.lost > LOSS_SAMPLE_FRAMES {
            self.acked /= 2.0;
            self.lost /= 2.0;
        }
        // Without losses the share stays zero.
        self.lost > 0.0
    }

    /// Returns the share of lost frames, up to the maximum that is compensated.
    fn share(&self) -> f64 {
        let total = self.acked + self.lost;
        if total == 0.0 { 0.0 } else { (self.lost / total).min(MAX_COMPENSATED_LOSS) }
    }
}

/// The gain of bandwidth probes: it shrinks if probes only overflow a short queue.
#[derive(Clone, Copy, Debug)]
struct ProbeGain {
    /// What a probe adds to a gain of 1.
    extra_gain: f64,
    /// Interval of the last probe.
    interval: Interval,
    /// Frames sent in the last probe that were acknowledged or lost.
    acked: f64,
    lost: f64,
}

impl Default for ProbeGain {
    fn default() -> Self {
        ProbeGain { extra_gain: MAX_EXTRA_GAIN, interval: Interval::default(), acked: 0.0, lost: 0.0 }
    }
}

impl ProbeGain {
    fn begin(&mut self, now: Instant) {
        *self =
            ProbeGain { interval: Interval::from(now), extra_gain: self.extra_gain, ..ProbeGain::default() };
    }

    fn count(&mut self, sent_at: Instant, acked: f64, lost: f64) {
        if self.interval.contains(sent_at) {
            self.acked += acked;
            self.lost += lost;
        }
    }

    /// Adapts the gain after the outcome of the last probe is complete. `random_loss` is the share of frames that the
    /// path loses anyway.
    fn adapt(&mut self, random_loss: f64) {
        let total = self.acked + self.lost;
        let overflowed = self.lost > total * (random_loss + PROBE_LOSS_SHARE) + PROBE_LOST_FRAMES;
        let factor = if overflowed { 0.5 } else { 1.25 };
        self.extra_gain = (self.extra_gain * factor).clamp(MIN_EXTRA_GAIN, MAX_EXTRA_GAIN);
    }
}

#[cfg(test)]
mod tests;

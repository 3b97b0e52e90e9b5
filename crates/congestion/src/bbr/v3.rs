//! BBR version 3 (draft-ietf-ccwg-bbr): beside the bandwidth it models how much may be in flight before the path loses more
//! than 2 %, so that flows leave room for each other and for loss-based controllers.
//!
//! | section of the draft | implementation |
//! | --- | --- |
//! | 5.3.1, 5.3.2, Startup and Drain | [`Bbr3::check_full_pipe`], [`Bbr3::check_startup_loss`] |
//! | 5.3.3, ProbeBW: DOWN, CRUISE, REFILL, UP | [`Bbr3::check_cycle`], [`Bbr3::adapt_long_term`] |
//! | 5.3.4, 5.5.7, ProbeRTT and `BBR.min_rtt` | [`Bbr3::check_min_rtt`] |
//! | 5.5.2 to 5.5.6, `BBR.max_bw` | `max_bandwidth`, the maximum of this and the previous cycle |
//! | 5.5.9, `BBR.extra_acked` | `extra_acked`, the maximum of ten round trips |
//! | 5.5.10, the model upon packet loss | [`Bbr3::adapt_short_term`], [`Bbr3::check_too_high`] |
//! | 5.5.11, spurious losses | [`Bbr3::on_spurious`](Controller::on_spurious) |
//! | 5.6, control parameters | [`Bbr3::control`], [`Bbr3::volume_cap`] |
//!
//! Losses of one acknowledgement are judged together. Marks count as losses above the threshold; the draft only requires that
//! they count as congestion. The draft's `inflight_longterm`, `inflight_shortterm` and `bw_shortterm` are `inflight_hi`,
//! `inflight_lo` and `bw_lo` in Linux.

use trunkline_units::{Instant, Rate, Span};

use super::{AgedMin, MIN_RTT_AGE, Sender, in_flight_after};
use crate::windowed_max::WindowedMax;
use crate::{Acknowledgement, Bounds, Controller, Loss, SinceSent, Transmission};

/// Gain of startup: 4 ln 2.
const STARTUP_GAIN: f64 = 2.77;
const DRAIN_GAIN: f64 = 0.5;
const DRAIN_ROUNDS: u64 = 3;
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
/// Gain of the window, while it probes for bandwidth, and while little is in flight.
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
const PROBE_RTT_GAIN: f64 = 0.5;
/// Share of losses that is too much (`BBR.LossThresh`), and the number of losses that end startup.
const MAX_LOSS: f64 = 0.02;
const STARTUP_LOSSES: u32 = 6;
/// Factor of the reductions of the short-term model (`BBR.Beta`).
const BETA: f64 = 0.7;
/// Share of the long-term amount in flight that is left to others (`BBR.Headroom`).
const HEADROOM: f64 = 0.15;
/// Interval of measurements of the minimum round-trip time.
const PROBE_RTT_INTERVAL: Span = Span::from_s(5);
/// Least time between probes for bandwidth; up to a second is added at random.
const PROBE_WAIT: Span = Span::from_s(2);
/// Maximum number of round trips between them, so that Reno could use the path as well.
const MAX_RENO_ROUNDS: f64 = 63.0;
const MAX_UP_ROUNDS: u32 = 30;
/// Round trips over which the aggregation is the maximum.
const SURPLUS_ROUNDS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Mode {
    /// Returns whether it is a mode of ProbeBW.
    fn is_cycle(self) -> bool {
        matches!(self, Mode::Down | Mode::Cruise | Mode::Refill | Mode::Up)
    }
}

/// What acknowledgements report of a probe for bandwidth (`BBR.ack_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    None,
    Starting,
    Probe,
    Stopping,
}

/// Bounds of the short-term and long-term model; infinite: none.
#[derive(Clone, Copy, Debug)]
struct PathBounds {
    short_bandwidth: f64,
    short_in_flight: f64,
    long_in_flight: f64,
}

/// BBR version 3.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    sender: Sender,
    mode: Mode,
    max_bandwidth: WindowedMax<2>,
    extra_acked: WindowedMax<SURPLUS_ROUNDS>,
    bounds: PathBounds,
    /// Bounds and mode before the last losses; mode only if they changed it.
    undo: (PathBounds, Option<Mode>),
    /// Maximum bandwidth and amount delivered in a round trip, in the current round of losses.
    latest: (f64, f64),
    /// Round of losses: when it began, the number of reports of losses in it, and whether one begins now.
    loss_round_started_at: Instant,
    losses_in_round: u32,
    is_loss_round_start: bool,
    feedback: Feedback,
    /// Whether losses are judged, because they may follow from a probe for bandwidth.
    is_probe_sample: bool,
    /// Round trips of the current probe, what was acknowledged since `long_in_flight` grew, and after how much it grows.
    up_rounds: u32,
    up_acked: f64,
    acked_per_segment: f64,
    /// Round trips since the last probe, start of the cycle, and the longest wait for the next probe.
    rounds_since_probe: u32,
    cycle_started_at: Instant,
    probe_wait: Span,
    /// The last probe lost too much; it was ended before it could.
    was_too_high: bool,
    was_precautionary: bool,
    drain_started_in: u64,
    probe_rtt_min: AgedMin,
    /// Whether the window was used up in this and the previous round trip.
    window_used: [bool; 2],
}

impl Bbr3 {
    /// Creates a controller. `seed` determines when it probes for bandwidth.
    pub fn new(bounds: Bounds, seed: u64) -> Bbr3 {
        let path = PathBounds {
            short_bandwidth: f64::INFINITY,
            short_in_flight: f64::INFINITY,
            long_in_flight: f64::INFINITY,
        };
        Bbr3 {
            sender: Sender::new(bounds, seed, STARTUP_GAIN),
            mode: Mode::Startup,
            max_bandwidth: WindowedMax::default(),
            extra_acked: WindowedMax::default(),
            bounds: path,
            undo: (path, None),
            latest: (0.0, 0.0),
            loss_round_started_at: Instant::ZERO,
            losses_in_round: 0,
            is_loss_round_start: false,
            feedback: Feedback::None,
            is_probe_sample: false,
            up_rounds: 0,
            up_acked: 0.0,
            acked_per_segment: f64::INFINITY,
            rounds_since_probe: 0,
            cycle_started_at: Instant::ZERO,
            probe_wait: Span::ZERO,
            was_too_high: false,
            was_precautionary: false,
            drain_started_in: 0,
            probe_rtt_min: AgedMin::default(),
            window_used: [false; 2],
        }
    }

    /// Returns the bandwidth of the model: the measured one, within the short-term bound.
    fn bandwidth(&self) -> f64 {
        self.max_bandwidth.get().min(self.bounds.short_bandwidth)
    }

    /// Returns the amount that fills the path with this gain, of at least what the ends hold (`Inflight`).
    fn target(&self, gain: f64, extra: f64) -> f64 {
        let amount = gain * self.sender.bdp(self.bandwidth()) + extra;
        let amount = amount.max(3.0 * self.sender.quantum()).max(self.sender.min_window());
        amount + if self.mode == Mode::Up { 2.0 * self.sender.segment } else { 0.0 }
    }

    /// Returns the long-term amount in flight without what is left to others.
    fn with_headroom(&self) -> f64 {
        let long = self.bounds.long_in_flight;
        if long.is_infinite() {
            return long;
        }
        (long - (HEADROOM * long).max(self.sender.segment)).max(self.sender.min_window())
    }

    fn probe_rtt_window(&self) -> f64 {
        (PROBE_RTT_GAIN * self.sender.bdp(self.bandwidth())).max(self.sender.min_window())
    }

    fn is_window_used(&self) -> bool {
        self.window_used[0] || self.window_used[1]
    }

    fn reset_short_term(&mut self) {
        (self.bounds.short_bandwidth, self.bounds.short_in_flight) = (f64::INFINITY, f64::INFINITY);
    }

    fn start_down(&mut self, now: Instant) {
        (self.losses_in_round, self.latest) = (0, (0.0, 0.0));
        self.acked_per_segment = f64::INFINITY;
        self.rounds_since_probe = self.sender.random.below(2) as u32;
        self.probe_wait = PROBE_WAIT + Span::from_seconds(self.sender.random.unit());
        self.cycle_started_at = now;
        self.feedback = Feedback::Stopping;
        self.sender.start_round(now);
        self.mode = Mode::Down;
    }

    fn start_refill(&mut self, now: Instant) {
        self.reset_short_term();
        (self.up_rounds, self.up_acked, self.was_precautionary) = (0, 0.0, false);
        self.feedback = Feedback::None;
        self.sender.start_round(now);
        self.mode = Mode::Refill;
    }

    fn start_up(&mut self, now: Instant, bandwidth: f64) {
        self.feedback = Feedback::Starting;
        self.sender.start_round(now);
        self.sender.full.reset(bandwidth);
        self.mode = Mode::Up;
        self.raise_slope();
    }

    /// Doubles the growth of the long-term amount in flight.
    fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.up_rounds);
        self.up_rounds = (self.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.acked_per_segment = (self.sender.window / growth).max(self.sender.segment);
    }

    /// Measures the path; returns the bandwidth of the acknowledgement, 0 if it has none, and whether it is low for
    /// another reason than the path.
    fn measure(&mut self, acked: &Acknowledgement) -> (f64, bool) {
        let (bandwidth, is_limited) = self.sender.count(acked);
        let bandwidth = bandwidth.unwrap_or(0.0);
        if self.sender.is_round_start {
            self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
            self.window_used = [false, self.window_used[0]];
            self.extra_acked.advance();
        }
        self.is_loss_round_start = acked.sent_at >= self.loss_round_started_at;
        if self.is_loss_round_start {
            self.loss_round_started_at = acked.now;
        }
        let delivered = f64::from(acked.since_sent.delivered);
        self.latest = (self.latest.0.max(bandwidth), self.latest.1.max(delivered));
        if !is_limited || bandwidth >= self.max_bandwidth.get() {
            self.max_bandwidth.sample(bandwidth);
        }
        (bandwidth, is_limited)
    }

    /// Reduces the short-term bounds once per round trip with losses, unless it probes for bandwidth.
    fn adapt_short_term(&mut self) {
        let probes = matches!(self.mode, Mode::Startup | Mode::Refill | Mode::Up);
        if !self.is_loss_round_start || self.losses_in_round == 0 || probes {
            return;
        }
        let PathBounds { short_bandwidth, short_in_flight, .. } = &mut self.bounds;
        let bandwidth = short_bandwidth.min(self.max_bandwidth.get());
        *short_bandwidth = self.latest.0.max(BETA * bandwidth);
        let in_flight = if short_in_flight.is_infinite() { self.sender.window } else { *short_in_flight };
        *short_in_flight = self.latest.1.max(BETA * in_flight);
    }

    /// Ends startup after a round trip of recovery with too many losses.
    fn check_startup_loss(&mut self, acked: &Acknowledgement) {
        let is_over = self.mode == Mode::Startup
            && self.is_loss_round_start
            && self.losses_in_round >= STARTUP_LOSSES
            && self.sender.recovery.is_some()
            && is_too_high(&acked.since_sent);
        if is_over {
            self.undo.1 = Some(Mode::Startup);
            self.sender.full.ever = true;
            self.bounds.long_in_flight = self.sender.bdp(self.bandwidth()).max(self.latest.1);
        }
    }

    /// Ends startup once the path is full, and the drain once its queue is empty.
    fn check_full_pipe(&mut self, acked: &Acknowledgement, bandwidth: f64, is_limited: bool) {
        if self.sender.is_round_start && !is_limited && !self.sender.full.now {
            self.sender.full.check(bandwidth);
        }
        self.check_startup_loss(acked);
        if self.mode == Mode::Startup && self.sender.full.ever {
            (self.mode, self.drain_started_in) = (Mode::Drain, self.sender.rounds);
        }
        if self.mode == Mode::Drain {
            let is_empty = in_flight_after(acked) <= self.target(1.0, 0.0);
            if is_empty || self.sender.rounds > self.drain_started_in + DRAIN_ROUNDS {
                self.start_down(acked.now);
            }
        }
    }

    /// Adapts the bounds that outlast a cycle; returns whether it has entered another mode.
    fn adapt_long_term(&mut self, acked: &Acknowledgement, is_limited: bool) -> bool {
        if self.feedback == Feedback::Starting && self.sender.is_round_start {
            self.feedback = Feedback::Probe;
        }
        if self.feedback == Feedback::Stopping && self.sender.is_round_start {
            (self.is_probe_sample, self.feedback) = (false, Feedback::None);
            if self.mode.is_cycle() && !is_limited {
                self.max_bandwidth.advance_used();
            }
            if self.mode.is_cycle() && self.was_precautionary && !self.was_too_high {
                self.start_refill(acked.now);
                return true;
            }
        }
        if !is_too_high(&acked.since_sent) && self.bounds.long_in_flight.is_finite() {
            let long = &mut self.bounds.long_in_flight;
            *long = long.max(acked.since_sent.in_flight.into());
            if self.mode == Mode::Up {
                self.raise_long_term(acked);
            }
        }
        false
    }

    /// Raises the long-term amount in flight while the window uses it, ever faster.
    fn raise_long_term(&mut self, acked: &Acknowledgement) {
        if !self.is_window_used() || self.sender.window < self.bounds.long_in_flight {
            return;
        }
        self.up_acked += f64::from(acked.amount);
        if self.up_acked >= self.acked_per_segment {
            let segments = libm::floor(self.up_acked / self.acked_per_segment);
            self.up_acked -= segments * self.acked_per_segment;
            self.bounds.long_in_flight += segments * self.sender.segment;
        }
        if self.sender.is_round_start {
            self.raise_slope();
        }
    }

    /// Advances the cycle of probes for bandwidth.
    fn check_cycle(&mut self, acked: &Acknowledgement, bandwidth: f64, is_limited: bool) {
        if !self.sender.full.ever || self.adapt_long_term(acked, is_limited) {
            return;
        }
        let (now, in_flight) = (acked.now, in_flight_after(acked));
        let is_over = self.mode == Mode::Up && self.is_time_to_go_down(in_flight, bandwidth);
        match self.mode {
            Mode::Down | Mode::Cruise if self.is_time_to_probe(now) => self.start_refill(now),
            Mode::Down if in_flight <= self.with_headroom().min(self.target(1.0, 0.0)) => {
                self.mode = Mode::Cruise;
            }
            Mode::Refill if self.sender.is_round_start => {
                self.is_probe_sample = true;
                self.start_up(now, bandwidth);
            }
            Mode::Up if is_over => {
                self.was_too_high = false;
                self.start_down(now);
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let segments = self.sender.bdp(self.bandwidth()).min(self.sender.window) / self.sender.segment;
        now.since(self.cycle_started_at) > self.probe_wait
            || f64::from(self.rounds_since_probe) >= segments.min(MAX_RENO_ROUNDS)
    }

    fn is_time_to_go_down(&mut self, in_flight: f64, bandwidth: f64) -> bool {
        let long = self.bounds.long_in_flight;
        if self.was_too_high && in_flight >= long {
            self.was_precautionary = true;
            return true;
        }
        if self.is_window_used() && self.sender.window >= long {
            // The bound, not the path, limits the bandwidth.
            self.sender.full.reset(bandwidth);
            return false;
        }
        self.sender.full.now
    }

    /// Measures the minimum round-trip time, with less in flight if it is old.
    fn check_min_rtt(&mut self, acked: &Acknowledgement) {
        let now = acked.now;
        let is_old = self.probe_rtt_min.is_older(now, PROBE_RTT_INTERVAL);
        if let Some(round_trip) = acked.round_trip {
            self.probe_rtt_min.sample(now, round_trip, PROBE_RTT_INTERVAL);
        }
        let min_rtt = &mut self.sender.min_rtt;
        let is_lower = |min| self.probe_rtt_min.value.is_some_and(|value| value < min);
        if min_rtt.value.is_none_or(is_lower) || min_rtt.is_older(now, MIN_RTT_AGE) {
            *min_rtt = self.probe_rtt_min;
        }
        if is_old && !self.sender.is_restart && self.mode != Mode::ProbeRtt {
            self.sender.start_probe_rtt();
            (self.mode, self.feedback) = (Mode::ProbeRtt, Feedback::Stopping);
            self.sender.start_round(now);
        }
        let window = self.probe_rtt_window();
        if self.mode == Mode::ProbeRtt && self.sender.check_probe_rtt(now, in_flight_after(acked), window) {
            self.probe_rtt_min.at = now;
            self.reset_short_term();
            if self.sender.full.ever {
                self.start_down(now);
                self.mode = Mode::Cruise;
            } else {
                self.mode = Mode::Startup;
            }
        }
        self.sender.is_restart &= acked.amount == 0;
    }

    /// Returns the bound of the window by the model.
    fn volume_cap(&self) -> f64 {
        let long = match self.mode {
            Mode::Startup | Mode::Drain => f64::INFINITY,
            Mode::Down | Mode::Refill | Mode::Up => self.bounds.long_in_flight,
            Mode::Cruise | Mode::ProbeRtt => self.with_headroom(),
        };
        long.min(self.bounds.short_in_flight).max(self.sender.min_window())
    }

    /// Sets pace and window.
    fn control(&mut self, acked: &Acknowledgement) {
        let gain = match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::Down => DOWN_GAIN,
            Mode::Up => UP_GAIN,
            Mode::Cruise | Mode::Refill | Mode::ProbeRtt => 1.0,
        };
        // After a pause a burst at the bandwidth is enough.
        let is_idle = in_flight_after(acked) == 0.0 && self.sender.is_app_limited;
        let gain = if is_idle && self.mode.is_cycle() { 1.0 } else { gain };
        let bandwidth = self.bandwidth();
        self.sender.set_pace(gain, bandwidth);
        self.sender.check_recovery(acked);
        let surplus = self.sender.count_surplus(acked, bandwidth);
        self.extra_acked.sample(surplus);
        let extra = if self.sender.full.ever { self.extra_acked.get() } else { self.extra_acked.current() };
        let gain = match self.mode {
            Mode::Up => UP_WINDOW_GAIN,
            Mode::ProbeRtt => PROBE_RTT_GAIN,
            _ => WINDOW_GAIN,
        };
        let target = self.target(gain, extra);
        if acked.amount > 0 {
            self.sender.grow(acked, target);
        }
        self.bound_window();
    }

    fn bound_window(&mut self) {
        if self.mode == Mode::ProbeRtt {
            self.sender.window = self.sender.window.min(self.probe_rtt_window());
        }
        self.sender.window = self.sender.window.min(self.volume_cap());
        self.sender.update_limits();
    }

    /// Notes losses of this round trip (`NoteLoss`).
    fn note_loss(&mut self, now: Instant) {
        if self.losses_in_round == 0 {
            self.loss_round_started_at = now;
            self.undo = (self.bounds, None);
        }
        self.losses_in_round += 1;
    }

    /// Ends a probe for bandwidth whose losses show that too much was in flight (`HandleInflightTooHigh`). `in_flight` is
    /// the amount with which they began.
    fn check_too_high(&mut self, now: Instant, in_flight: f64) {
        (self.was_too_high, self.is_probe_sample) = (true, false);
        if !self.sender.is_app_limited {
            let target = self.sender.bdp(self.bandwidth()).min(self.sender.window);
            self.bounds.long_in_flight = in_flight.max(BETA * target).max(self.sender.segment);
        }
        if self.mode == Mode::Up {
            self.undo.1 = Some(Mode::Up);
            self.start_down(now);
        }
    }
}

/// Returns whether more than the tolerated share of what was in flight is lost.
fn is_too_high(since_sent: &SinceSent) -> bool {
    f64::from(since_sent.lost) > MAX_LOSS * f64::from(since_sent.in_flight)
}

/// Returns the amount in flight with which the losses exceeded the tolerated share (`InflightAtLoss`).
fn in_flight_at_loss(lost: &Loss) -> f64 {
    let amount = f64::from(lost.amount);
    let in_flight = (f64::from(lost.since_sent.in_flight) - amount).max(0.0);
    let lost_before = f64::from(lost.since_sent.lost) - amount;
    (in_flight + (MAX_LOSS * in_flight - lost_before) / (1.0 - MAX_LOSS)).max(0.0)
}

impl Controller for Bbr3 {
    fn window(&self) -> u32 {
        self.sender.limits.0
    }

    fn pace(&self) -> Option<Rate> {
        self.sender.limits.1
    }

    fn controls_recovery(&self) -> bool {
        true
    }

    fn on_handshake(&mut self, now: Instant, round_trip: Span) {
        self.probe_rtt_min.sample(now, round_trip, PROBE_RTT_INTERVAL);
        self.sender.on_handshake(now, round_trip);
    }

    fn on_sent(&mut self, sent: &Transmission) {
        self.sender.on_sent(sent);
        self.window_used[0] |= f64::from(sent.in_flight) + self.sender.segment > self.sender.window;
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        let (bandwidth, is_limited) = self.measure(acked);
        if acked.marked > 0 {
            self.note_loss(acked.now);
            if self.is_probe_sample {
                self.check_too_high(acked.now, acked.since_sent.in_flight.into());
            }
        }
        self.adapt_short_term();
        self.check_full_pipe(acked, bandwidth, is_limited);
        if self.is_loss_round_start {
            self.losses_in_round = 0;
        }
        self.check_cycle(acked, bandwidth, is_limited);
        self.check_min_rtt(acked);
        if self.is_loss_round_start {
            self.latest = (bandwidth, acked.since_sent.delivered.into());
        }
        self.control(acked);
        true
    }

    fn on_lost(&mut self, lost: &Loss) {
        self.note_loss(lost.now);
        self.sender.start_recovery(lost);
        if self.is_probe_sample && is_too_high(&lost.since_sent) {
            self.check_too_high(lost.now, in_flight_at_loss(lost));
        }
        self.sender.update_limits();
    }

    fn on_spurious(&mut self, now: Instant) {
        let (before, mode) = std::mem::replace(&mut self.undo, (self.bounds, None));
        self.sender.end_recovery();
        self.losses_in_round = 0;
        self.sender.full.reset(0.0);
        let bounds = &mut self.bounds;
        bounds.short_bandwidth = bounds.short_bandwidth.max(before.short_bandwidth);
        bounds.short_in_flight = bounds.short_in_flight.max(before.short_in_flight);
        bounds.long_in_flight = bounds.long_in_flight.max(before.long_in_flight);
        match mode {
            Some(Mode::Startup) if self.mode != Mode::Startup => {
                self.sender.full.ever = false;
                if self.mode != Mode::ProbeRtt {
                    self.mode = Mode::Startup;
                }
            }
            Some(Mode::Up) if !matches!(self.mode, Mode::Up | Mode::ProbeRtt) => self.start_refill(now),
            _ => {}
        }
        self.sender.update_limits();
    }
}

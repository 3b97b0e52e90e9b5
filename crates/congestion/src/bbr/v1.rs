//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), with the changes that Linux has made to it: the minimum
//! round-trip time confirmed while idle, data beyond the bandwidth-delay product for aggregated acknowledgements, and the
//! recovery of the window.
//!
//! | section of the draft | implementation |
//! | --- | --- |
//! | 4.1.1, `BBR.BtlBw` | maximum rate of ten round trips, application-limited samples only if they are higher |
//! | 4.1.2, `BBR.RTprop` | `AgedMin` over 10 s |
//! | 4.2.1 to 4.2.3, pace, quantum, window | [`Bbr::control`], `Sender::grow`, `Sender::start_recovery` |
//! | 4.3.2, 4.3.3, Startup and Drain | [`Bbr::check_startup`] |
//! | 4.3.4, ProbeBW | [`Bbr::check_cycle`]; the first phase is random, never the one that drains |
//! | 4.3.5, ProbeRTT | [`Bbr::check_min_rtt`] |
//!
//! Losses do not change the model. Linux also has a model of policers, which is not here.

use trunkline_units::{Instant, Rate, Span};

use super::{MIN_RTT_AGE, Sender, in_flight_after};
use crate::windowed_max::WindowedMax;
use crate::{Acknowledgement, Bounds, Controller, Loss, Transmission};

/// Gain of startup: 2 / ln 2, so that the amount sent doubles each round trip.
const HIGH_GAIN: f64 = 2.885;
/// Gain of the window otherwise: it tolerates delayed and aggregated acknowledgements.
const WINDOW_GAIN: f64 = 2.0;
/// Gains of the phases of a cycle.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Round trips over which the bandwidth is the maximum.
const BANDWIDTH_ROUNDS: usize = 10;
/// Round trips of half of the window over which the aggregation is the maximum, and its maximum in seconds of bandwidth.
const SURPLUS_ROUNDS: u64 = 5;
const MAX_SURPLUS: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth { phase: usize },
    ProbeRtt,
}

/// BBR version 1, as in Linux.
#[derive(Clone, Debug)]
pub struct Bbr {
    sender: Sender,
    mode: Mode,
    /// Maximum bandwidth, and the round trips since its last sample: while samples do not count, it is not forgotten.
    bandwidth: WindowedMax<BANDWIDTH_ROUNDS>,
    unsampled_rounds: usize,
    extra_acked: WindowedMax<2>,
    /// When the phase of the cycle began.
    phase_started_at: Instant,
}

impl Bbr {
    /// Creates a controller. `seed` determines in which phase its cycle begins.
    pub fn new(bounds: Bounds, seed: u64) -> Bbr {
        Bbr {
            sender: Sender::new(bounds, seed, HIGH_GAIN),
            mode: Mode::Startup,
            bandwidth: WindowedMax::default(),
            unsampled_rounds: 0,
            extra_acked: WindowedMax::default(),
            phase_started_at: Instant::ZERO,
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBandwidth { phase } => GAINS[phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    /// Returns the amount that fills the path with this gain, and what the ends hold (`BBRInflight`).
    fn target(&self, gain: f64, extra: f64) -> f64 {
        let (segment, bdp) = (self.sender.segment, self.sender.bdp(self.bandwidth.get()));
        let segments = (gain * bdp + extra + 3.0 * self.sender.quantum()) / segment;
        let is_probe = self.mode == Mode::ProbeBandwidth { phase: 0 };
        // An even number of segments avoids delayed acknowledgements; small probes need two more to exceed the product.
        segment * (2.0 * libm::ceil(segments / 2.0) + if is_probe { 2.0 } else { 0.0 })
    }

    fn enter_probe_bandwidth(&mut self, now: Instant) {
        let phase = (GAINS.len() - self.sender.random.below(GAINS.len() as u64 - 1) as usize) % GAINS.len();
        (self.mode, self.phase_started_at) = (Mode::ProbeBandwidth { phase }, now);
    }

    /// Measures bandwidth and aggregation; returns whether the bandwidth is low for another reason than the path.
    fn measure(&mut self, acked: &Acknowledgement) -> bool {
        let (bandwidth, is_limited) = self.sender.count(acked);
        if self.sender.is_round_start {
            self.unsampled_rounds += 1;
            if self.sender.rounds.is_multiple_of(SURPLUS_ROUNDS) {
                self.extra_acked.advance();
            }
        }
        if let Some(bandwidth) = bandwidth.filter(|rate| !is_limited || *rate >= self.bandwidth.get()) {
            (0..self.unsampled_rounds.min(BANDWIDTH_ROUNDS)).for_each(|_| self.bandwidth.advance());
            self.unsampled_rounds = 0;
            self.bandwidth.sample(bandwidth);
        }
        let surplus = self.sender.count_surplus(acked, self.bandwidth.get());
        self.extra_acked.sample(surplus);
        is_limited
    }

    /// Enters the next phase of the cycle if this one is over.
    fn check_cycle(&mut self, acked: &Acknowledgement) {
        let Mode::ProbeBandwidth { phase } = self.mode else { return };
        let min_rtt = self.sender.min_rtt.value.unwrap_or(Span::ZERO);
        let is_full_length = acked.now.since(self.phase_started_at) > min_rtt;
        let in_flight = f64::from(acked.in_flight);
        let is_over = match GAINS[phase] {
            gain if gain > 1.0 => {
                is_full_length && (self.sender.lost > 0.0 || in_flight >= self.target(gain, 0.0))
            }
            gain if gain < 1.0 => is_full_length || in_flight <= self.target(1.0, 0.0),
            _ => is_full_length,
        };
        if is_over {
            self.mode = Mode::ProbeBandwidth { phase: (phase + 1) % GAINS.len() };
            self.phase_started_at = acked.now;
        }
    }

    /// Ends startup once the bandwidth no longer grows, and the drain once the queue is empty.
    fn check_startup(&mut self, acked: &Acknowledgement, is_limited: bool) {
        if self.sender.is_round_start && !is_limited && !self.sender.full.ever {
            self.sender.full.check(self.bandwidth.get());
        }
        if self.mode == Mode::Startup && self.sender.full.ever {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && in_flight_after(acked) <= self.target(1.0, 0.0) {
            self.enter_probe_bandwidth(acked.now);
        }
    }

    /// Measures the minimum round-trip time, with little in flight if it is old.
    fn check_min_rtt(&mut self, acked: &Acknowledgement) {
        let (now, sender) = (acked.now, &mut self.sender);
        let is_old = sender.min_rtt.is_older(now, MIN_RTT_AGE);
        if let Some(round_trip) = acked.round_trip {
            sender.min_rtt.sample(now, round_trip, MIN_RTT_AGE);
        }
        if is_old && !sender.is_restart && self.mode != Mode::ProbeRtt {
            sender.start_probe_rtt();
            self.mode = Mode::ProbeRtt;
        }
        let window = self.sender.min_window();
        if self.mode == Mode::ProbeRtt && self.sender.check_probe_rtt(now, in_flight_after(acked), window) {
            self.sender.min_rtt.at = now;
            match self.sender.full.ever {
                true => self.enter_probe_bandwidth(now),
                false => self.mode = Mode::Startup,
            }
        }
        self.sender.is_restart &= acked.amount == 0;
    }

    /// Sets pace and window.
    fn control(&mut self, acked: &Acknowledgement) {
        let bandwidth = self.bandwidth.get();
        // After a pause a burst at the bandwidth is enough.
        let is_idle = in_flight_after(acked) == 0.0 && self.sender.is_app_limited;
        let is_cycle = matches!(self.mode, Mode::ProbeBandwidth { .. });
        let gain = if is_idle && is_cycle { 1.0 } else { self.pacing_gain() };
        self.sender.set_pace(gain, bandwidth);
        if acked.amount > 0 {
            self.set_window(acked, bandwidth);
        }
        if self.mode == Mode::ProbeRtt {
            self.sender.window = self.sender.window.min(self.sender.min_window());
        }
        self.sender.lost = 0.0;
        self.sender.update_limits();
    }

    fn set_window(&mut self, acked: &Acknowledgement, bandwidth: f64) {
        self.sender.check_recovery(acked);
        let sender = &mut self.sender;
        if sender.lost > 0.0 {
            sender.window = (sender.window - sender.lost).max(sender.segment);
        }
        if sender.recovery.is_some_and(|recovery| recovery.conserves) {
            sender.window = sender.window.max(acked.in_flight.into());
            return;
        }
        let gain = match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBandwidth { .. } => WINDOW_GAIN,
            Mode::ProbeRtt => 1.0,
        };
        let max_extra = bandwidth / sender.unit_bits() * MAX_SURPLUS;
        let extra = if sender.full.ever { self.extra_acked.get().min(max_extra) } else { 0.0 };
        let target = self.target(gain, extra);
        self.sender.grow(acked, target);
    }
}

impl Controller for Bbr {
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
        self.sender.on_handshake(now, round_trip);
    }

    fn on_sent(&mut self, sent: &Transmission) {
        self.sender.on_sent(sent);
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        let is_limited = self.measure(acked);
        self.check_cycle(acked);
        self.check_startup(acked, is_limited);
        self.check_min_rtt(acked);
        self.control(acked);
        true
    }

    fn on_lost(&mut self, lost: &Loss) {
        self.sender.lost += f64::from(lost.amount);
        let begins = self.sender.start_recovery(lost);
        if lost.timeout {
            self.sender.full.reset(0.0);
        } else if begins {
            // Unused window is cut, and what leaves the network is replaced for a round trip.
            self.sender.start_round(lost.now);
            let in_flight = f64::from(lost.in_flight.saturating_sub(lost.amount));
            self.sender.window = in_flight.max(self.sender.segment);
        }
        self.sender.update_limits();
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.sender.full.reset(0.0);
        self.sender.end_recovery();
        self.sender.update_limits();
    }
}

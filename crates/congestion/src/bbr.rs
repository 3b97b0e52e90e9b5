//! BBR: window and pace follow a model of the path, its bandwidth and its minimum round-trip time. What versions 1 and 3 share.
//!
//! Both send at the measured bandwidth, with up to twice the bandwidth-delay product in flight. From time to time they send
//! faster to find more bandwidth, then slower to drain the queue of that, and with little in flight to measure the round-trip
//! time without a queue.
//!
//! Amounts are in the unit of the transport, as numbers with fractions; bandwidths are in bits per second.

use trunkline_units::{Instant, Rate, Seed, Span, Stream};

use crate::path::{AgedMin, Round, Surplus};
use crate::{Acknowledgement, Bounds, Loss, Transmission};

mod v1;
mod v3;

pub use v1::Bbr;
pub use v3::Bbr3;

/// Maximum age of the minimum round-trip time.
const MIN_RTT_AGE: Span = Span::from_s(10);
/// Minimum time for which little is in flight to measure it.
const PROBE_RTT_DURATION: Span = Span::from_ms(200);
/// Minimum window in segments: a peer that acknowledges every second segment keeps sending with it.
const MIN_SEGMENTS: f64 = 4.0;
/// The sender paces by this much below the bandwidth, so that queues drain.
const PACING_MARGIN: f64 = 0.01;
/// The path is full if the bandwidth grows by less than this factor in so many round trips.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Round-trip time from which the first pace follows if none is measured.
const NOMINAL_ROUND_TRIP: Span = Span::from_ms(1);
/// Longest burst in seconds of pace, in bits, and in segments: the window covers three (`send_quantum`).
const QUANTUM_TIME: f64 = 0.001;
const MAX_QUANTUM_BITS: f64 = 65_536.0 * 8.0;
const MIN_QUANTUM_SEGMENTS: f64 = 2.0;

/// Estimates whether the sender uses the whole bandwidth of the path: it has stopped to grow.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    /// Bandwidth that last counted as growth, and the round trips since.
    bandwidth: f64,
    rounds: u32,
    /// The bandwidth does not grow now, and it was so at any time.
    now: bool,
    ever: bool,
}

impl FullPipe {
    /// Starts the estimate anew.
    fn reset(&mut self, bandwidth: f64) {
        *self = FullPipe { bandwidth, ever: self.ever, ..FullPipe::default() };
    }

    /// Processes the bandwidth at the end of a round trip that the application did not limit.
    fn check(&mut self, bandwidth: f64) {
        if bandwidth >= self.bandwidth * FULL_GROWTH {
            return self.reset(bandwidth);
        }
        self.rounds += 1;
        self.now = self.rounds >= FULL_ROUNDS;
        self.ever |= self.now;
    }
}

/// State of a phase with little in flight.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeRtt {
    /// Earliest end; none until no more than its window is in flight.
    done_at: Option<Instant>,
    /// Whether a round trip has passed since.
    round_done: bool,
}

/// Repair of losses.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    started_at: Instant,
    /// When the last loss of what was sent before was found: its repair takes a round trip.
    last_lost_at: Instant,
    /// Amount that a timeout declared lost and that is not delivered yet.
    awaiting: f64,
    /// Whether it is in the first round trip after a loss, which sends no more than leaves the network.
    conserves: bool,
}

/// State that both versions share.
#[derive(Clone, Debug)]
struct Sender {
    segment: f64,
    initial: f64,
    max: f64,
    startup_gain: f64,
    /// Mean bits of a unit of the transport; none before the first acknowledgement of frames.
    unit_bits: Option<f64>,
    round: Round,
    /// Number of round trips, and whether this acknowledgement begins one.
    rounds: u64,
    is_round_start: bool,
    /// Amounts delivered since the start, and lost since the last acknowledgement.
    delivered: f64,
    lost: f64,
    min_rtt: AgedMin,
    full: FullPipe,
    surplus: Surplus,
    probe_rtt: Option<ProbeRtt>,
    /// Samples of what was sent before are low, because little was in flight.
    low_rates_before: Instant,
    recovery: Option<Recovery>,
    window: f64,
    /// Window before a recovery or a phase with little in flight.
    saved_window: f64,
    /// Pace in bits per second.
    pace: Option<f64>,
    has_round_trip: bool,
    /// Whether the application limits the rate, and whether the sender starts again after it had nothing in flight.
    is_app_limited: bool,
    is_restart: bool,
    random: Stream,
    /// Window and pace as reported.
    limits: (u32, Option<Rate>),
}

impl Sender {
    fn new(bounds: Bounds, seed: u64, startup_gain: f64) -> Sender {
        let Bounds { segment, initial, max } = bounds.valid();
        let mut sender = Sender {
            segment: segment.into(),
            initial: initial.into(),
            max: max.into(),
            startup_gain,
            // Segments of one unit are frames of unknown length.
            unit_bits: (segment > 1).then_some(8.0),
            round: Round::default(),
            rounds: 0,
            is_round_start: false,
            delivered: 0.0,
            lost: 0.0,
            min_rtt: AgedMin::default(),
            full: FullPipe::default(),
            surplus: Surplus::default(),
            probe_rtt: None,
            low_rates_before: Instant::ZERO,
            recovery: None,
            window: initial.into(),
            saved_window: 0.0,
            pace: None,
            has_round_trip: false,
            is_app_limited: false,
            is_restart: false,
            random: Seed(seed).stream("bbr"),
            limits: (initial, None),
        };
        sender.start_pace(NOMINAL_ROUND_TRIP);
        sender.update_limits();
        sender
    }

    /// Sets the first pace: the window in a round trip, times the gain of startup.
    fn start_pace(&mut self, round_trip: Span) {
        let round_trip_s = round_trip.max(Span::from_ns(1)).as_s();
        self.pace = self.unit_bits.map(|bits| self.startup_gain * self.window * bits / round_trip_s);
    }

    fn on_handshake(&mut self, now: Instant, round_trip: Span) {
        self.min_rtt.sample(now, round_trip, MIN_RTT_AGE);
        self.has_round_trip = true;
        self.start_pace(round_trip);
        self.update_limits();
    }

    fn on_sent(&mut self, sent: &Transmission) {
        if sent.in_flight <= sent.amount && self.is_app_limited {
            self.is_restart = true;
            self.surplus = Surplus { started_at: sent.now, amount: 0.0 };
        }
    }

    /// Counts an acknowledgement. Returns its bandwidth, if any, and whether the application limits it.
    fn count(&mut self, acked: &Acknowledgement) -> (Option<f64>, bool) {
        let amount = f64::from(acked.amount);
        if acked.amount > 0 {
            let bits = acked.bytes as f64 * 8.0 / amount;
            let mean = self.unit_bits.unwrap_or(bits);
            self.unit_bits = Some((mean + (bits - mean) / 16.0).max(1.0));
        }
        self.delivered += amount;
        self.is_round_start = self.round.count(acked).is_some();
        self.rounds += u64::from(self.is_round_start);
        if let Some(round_trip) = acked.round_trip
            && !std::mem::replace(&mut self.has_round_trip, true)
        {
            self.start_pace(round_trip);
        }
        let is_low = self.probe_rtt.is_some() || acked.sent_at < self.low_rates_before;
        self.is_app_limited = acked.app_limited;
        (acked.rate.map(|rate| rate.as_bps() as f64), acked.app_limited || is_low)
    }

    /// Begins a round trip now.
    fn start_round(&mut self, now: Instant) {
        self.round = Round::start(now);
    }

    fn unit_bits(&self) -> f64 {
        self.unit_bits.unwrap_or(1.0)
    }

    fn min_window(&self) -> f64 {
        MIN_SEGMENTS * self.segment
    }

    /// Returns the bandwidth-delay product; the initial window without a round-trip time.
    fn bdp(&self, bandwidth: f64) -> f64 {
        match self.min_rtt.value {
            Some(min_rtt) => bandwidth * min_rtt.as_s() / self.unit_bits(),
            None => self.initial,
        }
    }

    /// Returns the longest burst (`send_quantum`).
    fn quantum(&self) -> f64 {
        let bits = (self.pace.unwrap_or(0.0) * QUANTUM_TIME).min(MAX_QUANTUM_BITS);
        (bits / self.unit_bits()).max(MIN_QUANTUM_SEGMENTS * self.segment)
    }

    /// Returns the surplus of acknowledged data over the bandwidth, of at most a window.
    fn count_surplus(&mut self, acked: &Acknowledgement, bandwidth: f64) -> f64 {
        let rate = bandwidth / self.unit_bits();
        self.surplus.count(acked.now, acked.amount.into(), rate).min(self.window)
    }

    /// Sets the pace. Before the path is full it only grows.
    fn set_pace(&mut self, gain: f64, bandwidth: f64) {
        let pace = gain * bandwidth * (1.0 - PACING_MARGIN);
        if pace > 0.0 && (self.full.ever || self.pace.is_none_or(|old| pace > old)) {
            self.pace = Some(pace);
        }
    }

    /// Lets the window grow by what was acknowledged, up to the target.
    fn grow(&mut self, acked: &Acknowledgement, target: f64) {
        let grown = self.window + f64::from(acked.amount);
        if self.full.ever {
            self.window = grown.min(target);
        } else if self.window < target || self.delivered < self.initial {
            self.window = grown;
        }
        self.window = self.window.max(self.min_window());
    }

    /// Stores the window if neither recovery nor little in flight has reduced it.
    fn save_window(&mut self) {
        let is_reduced = self.recovery.is_some() || self.probe_rtt.is_some();
        self.saved_window = if is_reduced { self.saved_window.max(self.window) } else { self.window };
    }

    fn restore_window(&mut self) {
        self.window = self.window.max(self.saved_window);
    }

    /// Begins the repair of a loss. After a timeout one segment may be sent. Returns whether none was under way.
    fn start_recovery(&mut self, lost: &Loss) -> bool {
        let begins = self.recovery.is_none();
        if begins || lost.timeout {
            self.save_window();
            let awaiting = if lost.timeout { lost.amount.into() } else { 0.0 };
            self.recovery = Some(Recovery {
                started_at: lost.now,
                last_lost_at: lost.now,
                awaiting,
                conserves: !lost.timeout,
            });
        } else if let Some(recovery) = self.recovery.as_mut().filter(|r| lost.sent_at <= r.started_at) {
            recovery.last_lost_at = lost.now;
        }
        if lost.timeout {
            self.window = self.segment;
        }
        begins
    }

    /// Ends the repair of losses if everything is repaired, and restores the window.
    fn check_recovery(&mut self, acked: &Acknowledgement) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.awaiting -= f64::from(acked.amount);
        recovery.conserves &= !self.is_round_start;
        let is_repaired = acked.sent_at >= recovery.last_lost_at && recovery.awaiting <= 0.0;
        if is_repaired && !acked.in_recovery {
            self.end_recovery();
        }
    }

    fn end_recovery(&mut self) {
        if self.recovery.take().is_some() {
            self.restore_window();
        }
    }

    fn start_probe_rtt(&mut self) {
        self.save_window();
        self.probe_rtt = Some(ProbeRtt::default());
    }

    /// Advances the phase with little in flight; returns whether it is over. `window` is what it may have in flight.
    fn check_probe_rtt(&mut self, now: Instant, in_flight: f64, window: f64) -> bool {
        let is_round_start = self.is_round_start;
        let Some(probe) = &mut self.probe_rtt else { return false };
        match probe.done_at {
            None if in_flight <= window => {
                probe.done_at = Some(now + PROBE_RTT_DURATION);
                self.start_round(now);
            }
            None => {}
            Some(done_at) => {
                probe.round_done |= is_round_start;
                if probe.round_done && now > done_at {
                    (self.probe_rtt, self.low_rates_before) = (None, now);
                    self.restore_window();
                    return true;
                }
            }
        }
        false
    }

    /// Computes what is reported.
    fn update_limits(&mut self) {
        self.window = self.window.min(self.max);
        // The casts saturate.
        let window = self.window.max(self.segment) as u32;
        self.limits = (window, self.pace.map(|pace| Rate::from_bps(pace.max(1.0) as u64)));
    }
}

/// Returns the amount in flight after an acknowledgement.
fn in_flight_after(acked: &Acknowledgement) -> f64 {
    acked.in_flight.saturating_sub(acked.amount).into()
}

#[cfg(test)]
mod tests;

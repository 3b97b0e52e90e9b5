//! A window and a pace that follow what the path delivers, not what it loses (after BBR: Cardwell and others 2017,
//! draft-ietf-ccwg-bbr).
//!
//! Two things are measured: the highest rate at which frames were delivered of late, and the least round trip of late.
//! Frames leave at that rate, and no more are in flight than twice what the path holds. The mode says by how much the
//! pace differs from the rate:
//!
//! | mode | pace | until |
//! | --- | --- | --- |
//! | startup | 2.77 × | the rate has not grown by a quarter in three rounds, or in one that lost a fifth |
//! | drain | 1 / 2.77 × | no more is in flight than the path holds |
//! | cycle | up to 1.25 ×, 0.75 ×, six times 1 × | a phase lasts a least round trip, and at least 16 frames |
//! | empty | 1 × | half of what the path holds has been in flight for a round trip |
//!
//! The last is for paths that others use too: when for 10 s no round trip came near the least, only emptier queues can
//! tell whether the path became longer. A sender that is alone seldom needs it, because each cycle empties its own queue.
//! It costs half a round trip of sending each 10 s.
//!
//! Where the peer sends as well, acknowledgements wait in its queue, and both ends measure the sum of both queues as their
//! round trip. Then at least 96 frames more may be in flight than the path holds twice; see `HELD_UP`.
//!
//! Loss is not a sign of congestion here, so three things are added to BBR. What the path loses by itself is measured, in
//! the second and third phase of the cycle, and made up for in the others: if one frame of twenty is lost anyway, 1.05 of
//! the rate that arrives has to be sent to fill the line. A probe for more that only overflows a short queue makes the
//! next half as high. And a timeout means a window of 4 frames until something is acknowledged.

use trunkline_units::{Instant, Rate, Span};

use super::{Acked, Lost, Policy, Sent};
use crate::rtt::{LEAST_WINDOW, Least};

/// The window at the beginning (RFC 6928), in frames.
const START: f64 = 10.0;
/// The least window, and the window after a timeout, in frames.
const LEAST: f64 = 4.0;

/// The pace in startup over the rate: 4 ln 2, so that what is delivered doubles each round.
const STARTUP: f64 = 2.77;
/// The cycle: its first phase probes for more, its second drains what that queued, the others keep the rate.
const PHASES: usize = 8;
const PROBE: usize = 0;
const DRAIN: usize = 1;
const EVEN: usize = 2;
/// The pace of the drain over the rate, and how many phases it may last.
const DRAIN_PACE: f64 = 0.75;
const LONGEST_DRAIN: u64 = 4;
/// By how much the pace of the probe exceeds the rate.
const MOST_EXCESS: f64 = 0.25;
const LEAST_EXCESS: f64 = MOST_EXCESS / 8.0;
/// A probe overflowed if it lost this share and this many frames more than the path loses by itself.
const PUSH_LOSS: f64 = 0.005;
const PUSH_LOST: f64 = 2.0;
/// A phase of the cycle is never shorter than this many frames, which is where a path holds next to nothing.
const PHASE_FRAMES: f64 = 16.0;

/// A rate that grew by less in [`PATIENCE`] rounds is that of the line.
const GROWTH: f64 = 1.25;
const PATIENCE: u32 = 3;
/// A round of startup that lost this share, and at least so many frames, is not given that patience.
const STARTUP_LOSS: f64 = 0.2;
const STARTUP_LOST: u32 = 16;

/// The loss that is made up for at most.
const MOST_LOSS: f64 = 0.2;
/// Frames from which loss is told; older ones fade.
const LOSS_FRAMES: f64 = 2048.0;

/// Loss is the path's own while round trips exceed the least by no more than this share, and the time of the frames that
/// may be acknowledged late or wait for those that left with them.
const NEAR: f64 = 1.0 / 16.0;

/// A round trip within this much of the least confirms it.
const NEAR_LEAST: f64 = 1.125;

/// How long frames that were acknowledged in a lump are remembered, and the longest lump that is made up for, in seconds
/// at the rate.
const LUMP_WINDOW: Span = Span::from_s(1);
const LONGEST_LUMP: f64 = 0.010;

/// Frames that may be in flight at least beyond what the path holds twice, where the peer sends too: acknowledgements wait in
/// what it sends, and who finds that queue must not be kept from filling the line. Frames and not a time, for of a time an
/// end that gets little of the line would get few, and so stay with little.
const HELD_UP: f64 = 96.0;
/// The peer sends too if this share of what comes and goes comes from it.
const PEER_SENDS: f64 = 0.2;
/// Frames from which that is told; older ones fade.
const SHARE_FRAMES: f64 = 256.0;

/// Paces by measured rate and keeps queues short; single losses do not slow it down.
#[derive(Clone, Debug)]
pub struct Paced {
    most: u32,
    ack_every: f64,
    mode: Mode,
    /// When the mode, or the phase of the cycle, began.
    since: Instant,
    /// Mean frames that leave at once.
    batch: f64,
    /// Mean bytes of a frame.
    frame: f64,
    /// The highest rates, in bits per second, of this cycle and of the one before.
    rates: [f64; 2],
    least: Least,
    /// When a round trip was last near the least.
    least_seen: Instant,
    round: Round,
    lumps: Lumps,
    path_loss: PathLoss,
    push: Push,
    /// Frames that came from the peer, and such that it acknowledged, of late.
    came: f64,
    went: f64,
    /// A timeout, and nothing acknowledged since.
    silent: bool,
    /// What follows from all that: the window, and the pace.
    allows: (u32, Option<Rate>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// With the rate that still counted as growth, and the rounds since.
    Startup {
        rate: f64,
        rounds: u32,
    },
    Drain,
    Cycle {
        phase: usize,
    },
    /// Until then, once the window is kept.
    Empty {
        until: Option<Instant>,
    },
}

impl Paced {
    /// Never more than `most` frames in flight, where the peer acknowledges every `ack_every` frames or more often.
    pub fn new(most: u32, ack_every: u32) -> Paced {
        let mut paced = Paced {
            most: most.max(1),
            ack_every: f64::from(ack_every),
            mode: Mode::Startup { rate: 0.0, rounds: 0 },
            since: Instant::ZERO,
            batch: 0.0,
            frame: 0.0,
            rates: [0.0; 2],
            least: Least::new(LEAST_WINDOW),
            least_seen: Instant::ZERO,
            round: Round::default(),
            lumps: Lumps::default(),
            path_loss: PathLoss { acked: 0.0, lost: 0.0, quiet: Interval::NEVER, near: false },
            push: Push::default(),
            came: 0.0,
            went: 0.0,
            silent: false,
            allows: (1, None),
        };
        paced.conclude();
        paced
    }

    /// Works out what is allowed now.
    fn conclude(&mut self) {
        let (rate, full, bits) = (self.rate(), self.full_rate(), self.frame_bits());
        let least = self.least.get().map_or(0.0, Span::as_s);
        let held = full * least / bits;
        let frames = match self.mode {
            _ if self.silent => 0.0,
            Mode::Startup { .. } => (2.0 * held + self.late()).max(START),
            Mode::Empty { .. } => held / 2.0,
            Mode::Drain | Mode::Cycle { .. } => 2.0 * held + self.late().max(self.held_up()),
        };
        // `as` saturates.
        let window = (frames.max(LEAST) as u32).min(self.most);
        if rate == 0.0 || least == 0.0 {
            return self.allows = (window, None);
        }
        let (pace, least_window) = match self.mode {
            Mode::Startup { .. } => (STARTUP * full, START),
            Mode::Drain => (full / STARTUP, LEAST),
            Mode::Cycle { phase: PROBE } => ((1.0 + self.push.excess) * full, LEAST),
            Mode::Cycle { phase: DRAIN } => (DRAIN_PACE * rate, LEAST),
            Mode::Cycle { phase: EVEN } => (rate, LEAST),
            Mode::Cycle { .. } | Mode::Empty { .. } => (full, LEAST),
        };
        // Never below what the least window sends a round: else a rate measured too low would stay so.
        let pace = pace.max(least_window * bits / least).max(1.0);
        self.allows = (window, Some(Rate::from_bps(pace as u64)));
    }

    /// The highest rate delivered of late, in bits per second.
    fn rate(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }

    /// The rate to send at so that the path is full behind what it loses.
    fn full_rate(&self) -> f64 {
        self.rate() / (1.0 - self.path_loss.share())
    }

    /// Frames that a path without queues holds at that rate.
    fn held(&self) -> f64 {
        let least = self.least.get().map_or(0.0, Span::as_s);
        self.full_rate() * least / self.frame_bits()
    }

    /// The window in the mode that empties the queue.
    fn empty_window(&self) -> f64 {
        ((self.held() / 2.0).max(LEAST) as u32).min(self.most).into()
    }

    /// Frames in flight whose acknowledgement is merely late: counted up, or held back to come in a lump.
    fn late(&self) -> f64 {
        self.ack_every + self.lumps.most()
    }

    /// How many the peer's own frames may hold up at the least.
    fn held_up(&self) -> f64 {
        if self.came > PEER_SENDS * (self.came + self.went) { HELD_UP } else { 0.0 }
    }

    fn frame_bits(&self) -> f64 {
        self.frame.max(1.0) * 8.0
    }

    fn phase_length(&self) -> Span {
        let frames = Span::from_seconds(PHASE_FRAMES * self.frame_bits() / self.full_rate().max(1.0));
        self.least.get().unwrap_or(Span::ZERO).max(frames)
    }

    fn enter(&mut self, mode: Mode, now: Instant) {
        if mode == (Mode::Cycle { phase: EVEN }) && self.mode != (Mode::Cycle { phase: DRAIN }) {
            self.path_loss.quiet = Interval::from(now);
        }
        self.mode = mode;
        self.since = now;
    }

    fn measure(&mut self, acked: &Acked) {
        let frames = f64::from(acked.frames);
        if acked.frames > 0 {
            let weight = if self.frame == 0.0 { 1.0 } else { frames / (frames + 64.0) };
            self.frame += (acked.bytes as f64 / frames - self.frame) * weight;
        }
        (self.came, self.went) = (self.came + f64::from(acked.came), self.went + frames);
        if self.came + self.went > SHARE_FRAMES {
            (self.came, self.went) = (self.came / 2.0, self.went / 2.0);
        }
        if let Some(round_trip) = acked.round_trip {
            self.least.sample(acked.now, round_trip);
            let least = self.least.get().map_or(0.0, Span::as_s);
            if round_trip.as_s() <= least * NEAR_LEAST {
                self.least_seen = acked.now;
            }
            let waited = (self.late() + self.batch) * self.frame_bits() / self.full_rate().max(1.0);
            self.path_loss.near = round_trip.as_s() <= least * (1.0 + NEAR) + waited;
        }
        if let Some(rate) = acked.rate {
            let rate = rate.as_bps() as f64;
            // What an idle sender delivered tells that the path carries at least this.
            if !acked.idle || rate > self.rate() {
                self.rates[0] = self.rates[0].max(rate);
            }
        }
        self.path_loss.count(acked.sent_at, frames, 0.0);
        self.push.count(acked.sent_at, frames, 0.0);
        let most = (self.rate() * LONGEST_LUMP / self.frame_bits()).max(LEAST);
        self.lumps.count(acked.now, frames, self.rate() / self.frame_bits(), most);
    }

    /// Looks whether startup has come to the rate of the line; once a round.
    fn grow(&mut self, acked: &Acked, round: Round) {
        let Mode::Startup { rate, rounds } = self.mode else { return };
        if acked.idle {
            return;
        }
        if self.rate() >= rate * GROWTH {
            self.mode = Mode::Startup { rate: self.rate(), rounds: 0 };
        } else if rounds + 1 >= PATIENCE || round.is_bad() {
            self.enter(Mode::Drain, acked.now);
        } else {
            self.mode = Mode::Startup { rate, rounds: rounds + 1 };
        }
    }

    /// Goes on to the next phase if this one is over.
    fn cycle(&mut self, now: Instant, in_flight: f64) {
        let Mode::Cycle { phase } = self.mode else { return };
        let over = match phase {
            DRAIN if in_flight <= self.held() + self.late() => true,
            DRAIN => now.since(self.since) >= self.phase_length() * LONGEST_DRAIN,
            _ => now.since(self.since) >= self.phase_length(),
        };
        if !over {
            return;
        }
        let next = (phase + 1) % PHASES;
        match phase {
            PROBE => {
                self.push.probe.to = now;
                self.path_loss.quiet = Interval::from(now);
            }
            // A round after the drain began all is known of the probe.
            EVEN => {
                self.push.judge(self.path_loss.share());
                self.path_loss.quiet.to = now;
            }
            _ => {}
        }
        if next == PROBE {
            self.push.begin(now);
            // A cycle that measured nothing does not wipe out what is known.
            if self.rates[0] > 0.0 {
                self.rates = [0.0, self.rates[0]];
            }
        }
        self.enter(Mode::Cycle { phase: next }, now);
    }

    /// Empties the queue to look for the least round trip, if it has not been seen for long.
    fn look_for_least(&mut self, now: Instant, in_flight: f64) {
        match self.mode {
            Mode::Cycle { .. } if now.since(self.least_seen) >= LEAST_WINDOW => {
                self.enter(Mode::Empty { until: None }, now);
            }
            Mode::Empty { until: None } if in_flight <= self.empty_window() => {
                self.mode = Mode::Empty { until: Some(now + self.least.get().unwrap_or(Span::ZERO)) };
            }
            Mode::Empty { until: Some(until) } if now >= until => {
                self.least_seen = now;
                self.enter(Mode::Cycle { phase: EVEN }, now);
            }
            _ => {}
        }
    }
}

impl Policy for Paced {
    fn window(&self) -> u32 {
        self.allows.0
    }

    fn pace(&self) -> Option<Rate> {
        self.allows.1
    }

    fn met(&mut self, now: Instant, round_trip: Span) {
        self.least.sample(now, round_trip);
        self.conclude();
    }

    fn sent(&mut self, sent: &Sent) {
        self.batch += (f64::from(sent.frames) - self.batch) / 8.0;
    }

    fn acknowledged(&mut self, acked: &Acked) {
        self.silent = false;
        self.measure(acked);
        let in_flight = f64::from(acked.in_flight.saturating_sub(acked.frames));
        self.round.acked += u64::from(acked.frames);
        if acked.sent_at >= self.round.began {
            let round = std::mem::replace(&mut self.round, Round { began: acked.now, ..Round::default() });
            self.grow(acked, round);
        }
        if self.mode == Mode::Drain && in_flight <= self.held() + self.late() {
            self.enter(Mode::Cycle { phase: EVEN }, acked.now);
        }
        self.cycle(acked.now, in_flight);
        self.look_for_least(acked.now, in_flight);
        self.conclude();
    }

    fn lost(&mut self, lost: &Lost) {
        self.round.lost += u64::from(lost.frames);
        if lost.timeout {
            // What is given up may be late and not lost: it tells no share.
            self.silent = true;
        } else {
            self.path_loss.count(lost.sent_at, 0.0, f64::from(lost.frames));
            self.push.count(lost.sent_at, 0.0, f64::from(lost.frames));
        }
        self.conclude();
    }
}

/// A round: from an acknowledgement to that of a frame sent after it.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: Instant,
    acked: u64,
    lost: u64,
}

impl Round {
    fn is_bad(&self) -> bool {
        let all = (self.acked + self.lost) as f64;
        self.lost >= u64::from(STARTUP_LOST) && self.lost as f64 > all * STARTUP_LOSS
    }
}

/// How many frames more than the rate lets expect are acknowledged at once (draft-ietf-ccwg-bbr, "extra acked"): the
/// receiver, its card or the medium gathers acknowledgements, and the window must cover what they hold back.
#[derive(Clone, Copy, Debug, Default)]
struct Lumps {
    /// Since then so many frames were acknowledged.
    since: Instant,
    frames: f64,
    /// The largest surplus of this window and of the one before.
    most: [f64; 2],
    window: Instant,
}

impl Lumps {
    /// `rate` in frames per second; a surplus above `most` counts as that.
    fn count(&mut self, now: Instant, frames: f64, rate: f64, most: f64) {
        if now.since(self.window) >= LUMP_WINDOW {
            self.window = now;
            self.most = [0.0, self.most[0]];
        }
        let mut expected = rate * now.since(self.since).as_s();
        if self.frames <= expected {
            (self.since, self.frames, expected) = (now, 0.0, 0.0);
        }
        self.frames += frames;
        self.most[0] = self.most[0].max((self.frames - expected).min(most));
    }

    fn most(&self) -> f64 {
        self.most[0].max(self.most[1])
    }
}

/// From a moment to another, both included.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Instant,
    to: Instant,
}

impl Interval {
    const NEVER: Interval = Interval { from: Instant::MAX, to: Instant::ZERO };

    /// Not over yet.
    fn from(now: Instant) -> Interval {
        Interval { from: now, to: Instant::MAX }
    }

    fn holds(&self, moment: Instant) -> bool {
        self.from <= moment && moment <= self.to
    }
}

/// The share of frames that the path loses by itself: of those that were sent in the quiet phases of the cycle, those that
/// were lost while round trips were near the least. What a full queue loses is not to be made up for: sending more would
/// only lose more.
#[derive(Clone, Copy, Debug)]
struct PathLoss {
    acked: f64,
    lost: f64,
    /// The last quiet phases.
    quiet: Interval,
    /// Whether the last round trip was near the least.
    near: bool,
}

impl PathLoss {
    fn count(&mut self, sent_at: Instant, acked: f64, lost: f64) {
        if !self.quiet.holds(sent_at) {
            return;
        }
        self.acked += acked;
        self.lost += if self.near { lost } else { 0.0 };
        if self.acked + self.lost > LOSS_FRAMES {
            self.acked /= 2.0;
            self.lost /= 2.0;
        }
    }

    fn share(&self) -> f64 {
        let all = self.acked + self.lost;
        if all == 0.0 { 0.0 } else { (self.lost / all).min(MOST_LOSS) }
    }
}

/// By how much the cycle exceeds the rate when it probes for more: by less if that only overflows a short queue.
#[derive(Clone, Copy, Debug)]
struct Push {
    excess: f64,
    /// The last probe.
    probe: Interval,
    /// What became of the frames sent in it.
    acked: f64,
    lost: f64,
}

impl Default for Push {
    fn default() -> Self {
        Push { excess: MOST_EXCESS, probe: Interval::NEVER, acked: 0.0, lost: 0.0 }
    }
}

impl Push {
    fn begin(&mut self, now: Instant) {
        *self = Push { probe: Interval::from(now), excess: self.excess, ..Push::default() };
    }

    fn count(&mut self, sent_at: Instant, acked: f64, lost: f64) {
        if self.probe.holds(sent_at) {
            self.acked += acked;
            self.lost += lost;
        }
    }

    /// Everything sent in the last probe has been heard of; `share` of it would be lost anyway.
    fn judge(&mut self, share: f64) {
        let all = self.acked + self.lost;
        let overflowed = self.lost > all * (share + PUSH_LOSS) + PUSH_LOST;
        let factor = if overflowed { 0.5 } else { 1.25 };
        self.excess = (self.excess * factor).clamp(LEAST_EXCESS, MOST_EXCESS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::line::{FRAME, Flow, Line, Run};
    use trunkline_units::Seed;

    const MOST: u32 = 1 << 20;

    fn alone(line: &Line, seconds: f64) -> Run {
        line.run(seconds, vec![Flow::new(Box::new(Paced::new(MOST, 3)))])
    }

    /// The part of what the line's own loss leaves of its rate.
    fn of_what_is_left(line: &Line, fill: f64) -> f64 {
        fill / (1.0 - line.loss)
    }

    #[test]
    fn a_line_that_holds_nothing_is_filled_and_its_queue_is_not() {
        for loss in [0.0, 0.01, 0.05, 0.2] {
            let line = Line { rate: 121_800_000, delay_us: 25, queue: 150_000, loss, ..Line::default() };
            let run = alone(&line, 3.0);
            let fill = of_what_is_left(&line, run.fill());
            assert!(fill > 0.995, "{fill} at {loss}");
            assert_eq!(run.overflow(), 0.0, "at {loss}");
            assert!(run.mean_queue < 0.15 * 150_000.0, "{} bytes wait at {loss}", run.mean_queue);
        }
    }

    #[test]
    fn a_receiver_that_stalls_leaves_no_gap() {
        for (burst, loss) in [(0, 0.0), (30_000, 0.0), (30_000, 0.05)] {
            let stalls_us = (50_000, 3_000);
            let (rate, queue) = (121_800_000, 150_000);
            let line = Line { rate, delay_us: 25, queue, burst, loss, stalls_us, ..Line::default() };
            let run = alone(&line, 5.0);
            let fill = of_what_is_left(&line, run.fill());
            assert!(fill > 0.995, "{fill} with a burst of {burst} at {loss}");
            assert_eq!(run.overflow(), 0.0, "with a burst of {burst} at {loss}");
        }
    }

    #[test]
    fn random_loss_costs_what_it_loses() {
        for (loss, least) in [(0.0, 0.999), (0.01, 0.995), (0.05, 0.995), (0.1, 0.99), (0.2, 0.98)] {
            let line = Line { delay_us: 40_000, queue: 500_000, loss, ..Line::default() };
            let run = alone(&line, 10.0);
            let (whole, late) = (of_what_is_left(&line, run.fill()), of_what_is_left(&line, run.fill_late()));
            assert!(whole > 0.95, "{whole} at {loss}");
            assert!(late > least, "{late} at {loss}");
            assert!(run.overflow() < 0.003, "{} at {loss}", run.overflow());
        }
    }

    #[test]
    fn short_queues_are_not_kept_full() {
        for (queue, loss) in [(10_000, 0.0), (50_000, 0.01), (200_000, 0.05)] {
            let line = Line { delay_us: 40_000, queue, loss, ..Line::default() };
            let run = alone(&line, 20.0);
            let fill = of_what_is_left(&line, run.fill_late());
            assert!(fill > 0.995, "{fill} with {queue} bytes at {loss}");
            assert!(run.overflow_late() < 0.003, "{} with {queue} bytes at {loss}", run.overflow_late());
        }
    }

    #[test]
    fn lumps_of_acknowledgements_do_not_bind() {
        let batches =
            Line { rate: 10_000_000_000, delay_us: 25, batch: 44, ack_every: 44, ..Line::default() };
        let faster = Line { rate: 30_000_000_000, ..batches.clone() };
        let held_back = Line { delay_us: 50, ack_every: 1000, ack_delay_us: 200, ..batches.clone() };
        let lossy = Line { loss: 0.1, ack_every: 1, delay_us: 50, ..batches.clone() };
        let few = Line { ack_loss: 0.3, ack_every: 16, ..batches.clone() };
        for line in [batches, faster, held_back, lossy, few] {
            let run = alone(&line, 0.1);
            let fill = of_what_is_left(&line, run.fill_late());
            assert!(fill > 0.99, "{fill} of {line:?}");
            assert_eq!(run.overflow(), 0.0, "{line:?}");
        }
    }

    #[test]
    fn any_line_is_filled() {
        for seed in 0..if cfg!(feature = "soak") { 400 } else { 16 } {
            let mut random = Seed(seed).stream("lines");
            let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
            let rate = one_of(&[1, 3, 10, 100, 1_000, 10_000]) * 1_000_000;
            let delay_us = one_of(&[50, 200, 1_000, 5_000, 20_000, 100_000]);
            let loss = one_of(&[0, 1, 5, 20, 50, 100]) as f64 / 1000.0;
            let held = rate / 8 * delay_us / 1_000_000;
            let batch = if rate >= 1_000_000_000 { 44 } else { 1 };
            let ack_every = one_of(&[1, 3, 16]) as usize;
            let queue = held.max(40 * FRAME * u64::from(batch));
            let line = Line { rate, delay_us, queue, loss, batch, ack_every, seed, ..Line::default() };
            // Startup takes rounds; what the line carries in them bounds how many there can be.
            let frame_us = FRAME as f64 * 8e6 / rate as f64;
            let seconds = (300.0 * (delay_us as f64 + 16.0 * frame_us) / 1e6).min(1e5 * frame_us / 1e6);
            if seconds < 60.0 * delay_us as f64 / 1e6 {
                continue;
            }
            let run = alone(&line, seconds);
            let fill = of_what_is_left(&line, run.fill_late());
            assert!(fill > 0.97, "{fill} of {line:?}");
            assert!(run.overflow_late() < 0.003, "{} of {line:?}", run.overflow_late());
        }
    }

    #[test]
    fn flows_share_a_line() {
        for (delay_us, queue) in [(25, 150_000), (10_000, 200_000), (40_000, 500_000), (40_000, 100_000)] {
            let line = Line { delay_us, queue, ..Line::default() };
            let second = Instant::ZERO + Span::from_s(2);
            let flows = [Instant::ZERO, second].map(|at| Flow::starting(Box::new(Paced::new(MOST, 3)), at));
            let run = line.run(20.0, flows.into());
            let all: u64 = run.flows.iter().map(|flow| flow.delivered_late).sum();
            for flow in &run.flows {
                let share = flow.delivered_late as f64 / all as f64;
                assert!(share > 0.25, "{share} at {delay_us} us with {queue} bytes");
            }
            assert!(run.fill_late() > 0.995, "{}", run.fill_late());
            // A fifth of what the path holds is too short a queue for two.
            let most = if queue == 100_000 { 0.05 } else { 0.005 };
            let overflow = run.overflow_late();
            assert!(overflow < most, "{overflow} at {delay_us} us with {queue} bytes");
        }
    }

    #[test]
    fn a_line_that_changes_is_followed() {
        for loss in [0.0, 0.05] {
            // The second half has another rate; the fill is told of the first.
            let line = |rate, after| {
                let step = (10.0, after);
                Line { rate, step, delay_us: 10_000, queue: 200_000, loss, ..Line::default() }
            };
            let up = line(10_000_000, 100_000_000);
            let fill = of_what_is_left(&up, alone(&up, 20.0).fill_late());
            assert!(fill > 8.0, "tenfold rate, {fill} of it found at {loss}");
            let down = line(100_000_000, 10_000_000);
            let run = alone(&down, 20.0);
            let fill = of_what_is_left(&down, run.fill_late());
            assert!(fill > 0.095, "a tenth, {fill} of it kept at {loss}");
            assert!(run.overflow_late() < 0.1, "{} at {loss}", run.overflow_late());
        }
    }

    #[test]
    fn a_path_that_dies_is_asked_little_and_comes_back() {
        let line = Line { delay_us: 20_000, dead: (2.0, 3.0), ..Line::default() };
        let run = alone(&line, 10.0);
        assert!(run.flows[0].timeouts > 2, "{}", run.flows[0].timeouts);
        assert_eq!(run.flows[0].windows.0, LEAST as u32);
        assert!(run.fill_late() > 0.995, "{}", run.fill_late());
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    /// An acknowledgement of frames sent a millisecond before.
    fn acked(us: u64, frames: u32, mbps: u64, idle: bool) -> Acked {
        Acked {
            now: at(us),
            frames,
            bytes: u64::from(frames) * FRAME,
            in_flight: frames,
            round_trip: Some(Span::from_ms(1)),
            rate: Some(Rate::from_bps(mbps * 1_000_000)),
            idle,
            came: 0,
            sent_at: at(us - 1_000),
        }
    }

    fn lost(us: u64, frames: u32, timeout: bool) -> Lost {
        let bytes = u64::from(frames) * FRAME;
        Lost { now: at(us), frames, bytes, sent_at: at(us - 1_000), in_flight: frames, timeout }
    }

    #[test]
    fn nothing_is_paced_before_anything_is_known() {
        let paced = Paced::new(MOST, 3);
        assert_eq!((paced.pace(), paced.window()), (None, 10));
    }

    #[test]
    fn startup_ends_when_the_rate_stops_growing() {
        let mut paced = Paced::new(MOST, 3);
        for (round, mbps) in [10, 20, 40, 50, 50, 51].into_iter().enumerate() {
            paced.acknowledged(&acked(2_000 + 2_000 * round as u64, 40, mbps, false));
            assert!(matches!(paced.mode, Mode::Startup { .. }), "round {round}");
        }
        paced.acknowledged(&acked(20_000, 40, 51, false));
        assert!(!matches!(paced.mode, Mode::Startup { .. }));
        assert_eq!(paced.rate(), 51e6);
    }

    #[test]
    fn a_round_that_lost_a_fifth_ends_startup_if_the_rate_did_not_grow() {
        for (frames, ends) in [(10, false), (20, true)] {
            let mut paced = Paced::new(MOST, 3);
            paced.acknowledged(&acked(2_000, 40, 50, false));
            paced.lost(&lost(3_000, frames, false));
            paced.acknowledged(&acked(4_000, 40, 60, false));
            assert_eq!(!matches!(paced.mode, Mode::Startup { .. }), ends, "{frames} of {} lost", frames + 40);
        }
    }

    #[test]
    fn an_idle_sender_learns_nothing_bad() {
        let mut paced = Paced::new(MOST, 3);
        for round in 1..200 {
            paced.acknowledged(&acked(2_000 * round, 1, 1, true));
        }
        assert!(matches!(paced.mode, Mode::Startup { .. }), "startup waits for something to send");
        for round in 200..210 {
            paced.acknowledged(&acked(2_000 * round, 40, 100, false));
        }
        assert!(matches!(paced.mode, Mode::Cycle { .. }), "{:?}", paced.mode);
        for round in 210..2_000 {
            paced.acknowledged(&acked(2_000 * round, 1, 1, true));
        }
        assert_eq!(paced.rate(), 100e6);
        // Twice the 8.5 frames that the path holds, and 3 whose acknowledgement may be late.
        assert_eq!(paced.window(), 20);
    }

    #[test]
    fn a_peer_that_sends_too_may_hold_acknowledgements_up() {
        let mut paced = Paced::new(MOST, 3);
        let mut windows = Vec::new();
        // The peer begins after a while, and ends: some hundred frames tell.
        for (rounds, came) in [(1..1_000, 0), (1_000..2_000, 1), (2_000..3_000, 0)] {
            for round in rounds {
                paced.acknowledged(&Acked { came, ..acked(2_000 * round, 1, 100, false) });
            }
            windows.push(paced.window());
        }
        assert_eq!(windows, [20, 112, 20]);
    }

    #[test]
    fn a_timeout_means_four_frames_until_something_is_acknowledged() {
        let mut paced = Paced::new(MOST, 3);
        (1..20).for_each(|round| paced.acknowledged(&acked(2_000 * round, 40, 100, false)));
        let window = paced.window();
        assert!(window > 16, "{window}");
        paced.lost(&lost(50_000, 5, false));
        assert!(paced.window() >= window, "single losses do not slow it down");
        paced.lost(&lost(60_000, 5, true));
        assert_eq!(paced.window(), 4);
        paced.acknowledged(&acked(70_000, 1, 100, true));
        assert!(paced.window() > 16);
    }

    #[test]
    fn the_least_round_trip_is_looked_for_when_it_has_not_been_seen() {
        let mut paced = Paced::new(MOST, 3);
        let mut halved = Vec::new();
        for round in 1..15_000 {
            // Others keep the queue filled from 1 s on, except while this sender looks.
            let us = 2_000 * round;
            let looks = matches!(paced.mode, Mode::Empty { .. });
            let waits = us > 1_000_000 && !looks;
            let round_trip = Some(Span::from_us(if waits { 1_500 } else { 1_000 }));
            paced.acknowledged(&Acked { round_trip, ..acked(us, 40, 100, false) });
            if looks {
                halved.push(us);
            }
        }
        assert!(halved.len() >= 2, "{halved:?}");
        assert!(halved.len() < 12, "it costs next to nothing: {halved:?}");
        assert_eq!(
            paced.least.get(),
            Some(Span::from_ms(1)),
            "so what others queue is not taken for the path"
        );
    }
}

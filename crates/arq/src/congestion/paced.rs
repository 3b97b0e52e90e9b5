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

/// Loss is the path's own while round trips exceed the least by no more than this part of it, and the time of the frames that
/// may be acknowledged late or wait for those that left with them.
const NEAR: u64 = 16;

/// A round trip that exceeds the least by no more than this part of it confirms it.
const NEAR_LEAST: u64 = 8;

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
    /// What of the measurements it followed from; something else has changed since.
    basis: Basis,
    changed: bool,
    /// The rate to send at so that the path is full behind what it loses.
    full: f64,
    usual: Usual,
}

/// What is measured with each acknowledgement, as far as it decides how much is allowed. Of questions and their answers few
/// change any of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Basis {
    rate: f64,
    bits: f64,
    late: f64,
    least: Span,
    peer_sends: bool,
}

/// What an acknowledgement of a single frame is like that changes nothing of what is allowed. That is most of what comes to
/// a sender that asks and waits for answers, which never leaves startup.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    /// Before the windows of what is remembered turn; zero if none is.
    until: Instant,
    bytes: u64,
    /// With frames that leave so together.
    batch: f64,
    /// At the most, in bits per second.
    rate: u64,
    /// The least round trip, and the least time since the one before.
    least: Span,
    gap: Span,
    /// The longest round trips that confirm the least, and that are near it.
    confirms: Span,
    near: Span,
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
            basis: Basis { rate: 0.0, bits: 0.0, late: 0.0, least: Span::ZERO, peer_sends: false },
            changed: true,
            full: 0.0,
            usual: Usual::default(),
        };
        paced.conclude();
        paced
    }

    #[inline]
    fn basis(&self) -> Basis {
        let (rate, bits, late) = (self.rate(), self.frame_bits(), self.late());
        let least = self.least.get().unwrap_or(Span::ZERO);
        Basis { rate, bits, late, least, peer_sends: self.came > PEER_SENDS * (self.came + self.went) }
    }

    /// Works out what is allowed now, if anything that decides has changed.
    #[inline]
    fn conclude(&mut self) {
        let basis = self.basis();
        if self.changed || basis != self.basis {
            (self.basis, self.changed) = (basis, false);
            self.allow();
        }
    }

    fn allow(&mut self) {
        let Basis { rate, bits, late, least, peer_sends } = self.basis;
        self.full = self.full_rate();
        let (full, least) = (self.full, least.as_s());
        let held = full * least / bits;
        let held_up = if peer_sends { HELD_UP } else { 0.0 };
        let frames = match self.mode {
            _ if self.silent => 0.0,
            Mode::Startup { .. } => (2.0 * held + late).max(START),
            Mode::Empty { .. } => held / 2.0,
            Mode::Drain | Mode::Cycle { .. } => 2.0 * held + late.max(held_up),
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
        (self.mode, self.since, self.changed) = (mode, now, true);
    }

    /// Takes account of an acknowledgement that changes nothing of what is allowed. Whether it is one; if not, nothing has
    /// changed.
    #[inline]
    fn stays(&mut self, acked: &Acked) -> bool {
        let Some(round_trip) = acked.round_trip else { return false };
        let usual = &self.usual;
        let stays = acked.now < usual.until
            && acked.idle
            && acked.frames == 1
            && acked.bytes == usual.bytes
            && self.batch == usual.batch
            && acked.rate.is_none_or(|rate| rate.as_bps() <= usual.rate)
            && round_trip >= usual.least
            && acked.now.since(self.lumps.since) > usual.gap;
        if stays {
            if round_trip <= usual.confirms {
                self.least_seen = acked.now;
            }
            self.path_loss.near = round_trip <= usual.near;
            self.lumps.since = acked.now;
            self.measure_shares(f64::from(acked.came), 1.0);
            self.note_round(acked);
        }
        stays
    }

    /// Looks what acknowledgements would change nothing.
    fn expect(&mut self) {
        self.usual.until = Instant::ZERO;
        if let Mode::Startup { .. } = self.mode
            && self.lumps.is_one()
            && let Some((until, least)) = self.least.lasts()
        {
            let Basis { rate, bits, .. } = self.basis;
            // What is rounded off must not decide.
            let gap = Span::from_seconds(bits / rate.max(1.0)) + Span::from_ns(1);
            let (confirms, near) = self.near(bits);
            let (until, bytes) = (until.min(self.lumps.window + LUMP_WINDOW), self.usual.bytes);
            let (rate, batch) = (rate as u64, self.batch);
            self.usual = Usual { until, bytes, batch, rate, least, gap, confirms, near };
        }
    }

    /// The longest round trips that confirm the least, and that are near it.
    #[inline]
    fn near(&self, bits: f64) -> (Span, Span) {
        let least = self.least.get().unwrap_or(Span::ZERO);
        let waited = Span::from_seconds((self.basis.late + self.batch) * bits / self.full.max(1.0));
        (least + least / NEAR_LEAST, least + least / NEAR + waited)
    }

    #[inline]
    fn measure_shares(&mut self, came: f64, went: f64) {
        (self.came, self.went) = (self.came + came, self.went + went);
        if self.came + self.went > SHARE_FRAMES {
            (self.came, self.went) = (self.came / 2.0, self.went / 2.0);
        }
    }

    /// Counts frames to their round; that round, if they end it.
    #[inline]
    fn note_round(&mut self, acked: &Acked) -> Option<Round> {
        self.round.acked += u64::from(acked.frames);
        let next = Round { began: acked.now, ..Round::default() };
        (acked.sent_at >= self.round.began).then(|| std::mem::replace(&mut self.round, next))
    }

    #[inline]
    fn measure(&mut self, acked: &Acked) {
        let frames = f64::from(acked.frames);
        if acked.frames > 0 {
            let weight = if self.frame == 0.0 { 1.0 } else { frames / (frames + 64.0) };
            let (bytes, mean) = (acked.bytes as f64 / frames, self.frame);
            // What has come so near is there: it would take thousands of frames more to change nothing.
            self.frame = if (bytes - mean).abs() < 1e-3 { bytes } else { mean + (bytes - mean) * weight };
            self.usual.bytes = if acked.frames == 1 && self.frame == mean { acked.bytes } else { 0 };
        }
        let bits = self.frame_bits();
        self.measure_shares(f64::from(acked.came), frames);
        if let Some(round_trip) = acked.round_trip {
            self.least.sample(acked.now, round_trip);
            let (confirms, near) = self.near(bits);
            if round_trip <= confirms {
                self.least_seen = acked.now;
            }
            self.path_loss.near = round_trip <= near;
        }
        let mut highest = self.rate();
        if let Some(rate) = acked.rate {
            let rate = rate.as_bps() as f64;
            // What an idle sender delivered tells that the path carries at least this.
            if !acked.idle || rate > highest {
                self.rates[0] = self.rates[0].max(rate);
                highest = self.rate();
            }
        }
        self.changed |= self.path_loss.count(acked.sent_at, frames, 0.0);
        self.push.count(acked.sent_at, frames, 0.0);
        let most = (highest * LONGEST_LUMP / bits).max(LEAST);
        self.lumps.count(acked.now, frames, highest / bits, most);
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
                // Which allows the same.
                self.mode = Mode::Empty { until: Some(now + self.least.get().unwrap_or(Span::ZERO)) };
            }
            Mode::Empty { until: Some(until) } if now >= until => {
                self.least_seen = now;
                self.enter(Mode::Cycle { phase: EVEN }, now);
            }
            _ => {}
        }
    }

    /// Takes account of an acknowledgement that may change what is allowed.
    #[inline(never)]
    fn reconsider(&mut self, acked: &Acked) -> bool {
        self.changed |= std::mem::take(&mut self.silent);
        self.measure(acked);
        let in_flight = f64::from(acked.in_flight.saturating_sub(acked.frames));
        if let Some(round) = self.note_round(acked) {
            self.grow(acked, round);
        }
        if self.mode == Mode::Drain && in_flight <= self.held() + self.late() {
            self.enter(Mode::Cycle { phase: EVEN }, acked.now);
        }
        self.cycle(acked.now, in_flight);
        self.look_for_least(acked.now, in_flight);
        self.conclude();
        self.expect();
        true
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
        self.usual.until = Instant::ZERO;
        self.conclude();
    }

    fn sent(&mut self, sent: &Sent) {
        self.batch += (f64::from(sent.frames) - self.batch) / 8.0;
    }

    fn acknowledged(&mut self, acked: &Acked) {
        self.reconsiders(acked);
    }

    fn reconsiders(&mut self, acked: &Acked) -> bool {
        !self.stays(acked) && self.reconsider(acked)
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
        (self.changed, self.usual.until) = (true, Instant::ZERO);
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

    /// Whether it is as after a single frame that was expected, which another such would not change.
    fn is_one(&self) -> bool {
        self.frames == 1.0 && self.most[0] >= 1.0
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
    /// Whether it counts.
    #[inline]
    fn count(&mut self, sent_at: Instant, acked: f64, lost: f64) -> bool {
        if !self.quiet.holds(sent_at) {
            return false;
        }
        self.acked += acked;
        self.lost += if self.near { lost } else { 0.0 };
        if self.acked + self.lost > LOSS_FRAMES {
            self.acked /= 2.0;
            self.lost /= 2.0;
        }
        // While nothing was ever lost that changes nothing.
        self.lost > 0.0
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
mod tests;

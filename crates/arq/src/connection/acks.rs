//! Acknowledgements, as they come and as they go.

use trunkline_units::{Instant, Span};

use super::{Connection, REORDERING};
use crate::congestion::{Acked, Lost};
use crate::options::Mode;
use crate::send::flight::{Missing, News};
use crate::wire::ack::{self, AGAIN, Ack};
use crate::wire::data::NACK;
use crate::wire::{epoch, expand};

/// The acknowledgement that the peer has coming.
#[derive(Debug)]
pub(super) struct Owed {
    /// Frames that arrived since the last.
    pub frames: u32,
    /// By when it must leave.
    pub at: Instant,
    /// It asks for the first frame that is missing.
    pub negative: bool,
    /// A frame came twice, which go-back-N answers by a negative acknowledgement for the next (table 1). It asks for
    /// nothing: what follows the copy may well be on its way.
    pub again: bool,
    /// The missing frame has been told (go-back-N tells it once).
    pub told: bool,
    /// Frames that came more than once, modulo 256.
    pub doubles: u8,
    /// When the last frame came.
    pub last: Instant,
}

impl Default for Owed {
    fn default() -> Self {
        let (at, last) = (Instant::MAX, Instant::ZERO);
        Owed { frames: 0, at, negative: false, again: false, told: false, doubles: 0, last }
    }
}

impl Owed {
    /// Nothing more, until the next frame.
    #[inline]
    pub fn settle(&mut self) {
        (self.frames, self.at) = (0, Instant::MAX);
        (self.negative, self.again) = (false, false);
    }
}

impl Connection {
    /// Writes an acknowledgement that goes alone; how long it is.
    pub(super) fn write_ack(&mut self, now: Instant, frame: &mut [u8]) -> usize {
        let next = self.arrivals.next();
        let delay = now.since(self.owed.last).as_ps() / 1_000_000;
        let delay = u16::try_from(delay).unwrap_or(u16::MAX);
        let flags = match (self.owed.negative, self.owed.again) {
            (true, _) => NACK,
            (false, true) => NACK | AGAIN,
            (false, false) => 0,
        };
        // No longer than a frame may be on any path.
        let rebuilt = self.tell_rebuilt();
        let more = rebuilt.map_or(0, |_| ack::REBUILT_BYTES);
        let room = self.floor - ack::HEADER - more - self.options.check.bytes();
        let runs = self.arrivals.runs().take(room / 4);
        let length = ack::write(next, flags, delay, self.owed.doubles, rebuilt, runs, frame);
        let length = length + self.options.check.bytes();
        self.guard.seal(epoch(next), &mut frame[..length]);
        self.statistics.acks_forced += 1;
        self.statistics.nacks_sent += u64::from(flags != 0 || self.arrivals.has_gap());
        self.owed.settle();
        length
    }

    /// Takes an acknowledgement that came alone.
    pub(super) fn take_ack(&mut self, now: Instant, frame: &[u8]) {
        let near = self.sender.flights.base();
        let Some(low) = frame.get(1..4).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]])) else {
            return self.statistics.bad_checksums += 1;
        };
        let cumulative = expand(low, near);
        let body = match self.guard.open(epoch(cumulative), frame) {
            Ok(body) => body,
            // Nothing is asked for: nothing of it needs to be sent again.
            Err(why) => return self.refuse(why),
        };
        let Some(ack) = Ack::read(body) else { return self.statistics.malformed += 1 };
        self.hear(now);
        self.statistics.acks_received_forced += 1;
        self.statistics.nacks_received += u64::from(ack.negative || ack.again || ack.runs().next().is_some());
        let mut news = News::default();
        let unsent = self.sender.flights.unsent();
        if cumulative > unsent || ack.rebuilt.is_some() && self.correction.is_none() {
            return self.statistics.malformed += 1;
        }
        self.sender.advance(cumulative, &mut news);
        let mut at = cumulative;
        for (missing, arrived) in ack.runs() {
            at += u64::from(missing);
            let end = at + u64::from(arrived);
            self.sender.flights.acknowledge(at, end.min(unsent), &mut news);
            at = end;
        }
        // Of an acknowledgement that was itself overtaken the count is behind.
        let doubles = ack.doubles.wrapping_sub(self.doubles_told) as i8;
        if doubles > 0 {
            self.doubles_told = ack.doubles;
        }
        if doubles > 0 && std::mem::take(&mut self.overtaken) > 0 {
            // It was late and not lost: be more patient from now on.
            self.round_trip.spurious();
            self.reordering = (self.reordering * 2).min(self.window.max(REORDERING));
        }
        let rebuilt = ack.rebuilt.map_or(0, |count| self.hear_rebuilt(count, &mut news));
        let delay = Span::from_us(ack.delay.into());
        self.digest(now, news, Some(delay), ack.negative.then_some(cumulative));
        if rebuilt > 0 {
            self.report_rebuilt(now, rebuilt, &news);
        }
    }

    /// Takes an acknowledgement that came on data.
    #[inline]
    pub(super) fn take_piggybacked(&mut self, now: Instant, low: u32, negative: bool) {
        let cumulative = expand(low, self.sender.flights.base());
        self.statistics.acks_received_piggybacked += 1;
        self.statistics.nacks_received += u64::from(negative);
        if cumulative > self.sender.flights.unsent() {
            return self.statistics.malformed += 1;
        }
        let mut news = News::default();
        self.sender.advance(cumulative, &mut news);
        self.digest(now, news, None, negative.then_some(cumulative));
    }

    /// Draws the conclusions from an acknowledgement.
    #[inline]
    fn digest(&mut self, now: Instant, news: News, delay: Option<Span>, wanted: Option<u64>) {
        if news.frames > 0 {
            self.note_arrived(&news);
            let in_flight = self.sender.flights.in_flight() + news.frames;
            // What was rebuilt came later than the path is long.
            let once = news.sent_once_at().filter(|_| news.rebuilt == 0);
            if let Some(sent) = once {
                let took = now.since(sent);
                self.doubled = 0;
                let delay = delay.unwrap_or(Span::ZERO).min(self.peer_ack_delay);
                self.round_trip.sample(now, Span::from_ps(took.as_ps().saturating_sub(delay.as_ps())));
            }
            let round_trip = once.and(self.round_trip.latest());
            let sent_at = news.sent_at().unwrap_or(now);
            let least = self.round_trip.least().unwrap_or(Span::ZERO);
            let rate = self.sender.flights.take_stock(now, &news, least, self.surely_again());
            let rate = rate.map(|rate| self.with_repairs(rate));
            let idle = self.sender.waiting() == 0;
            let (frames, bytes) = (news.frames - news.rebuilt, news.bytes);
            let came = std::mem::take(&mut self.came);
            let acked = Acked { now, frames, bytes, in_flight, round_trip, rate, idle, came, sent_at };
            if self.policy.reconsiders(&acked) {
                self.consult();
            }
            self.backoff = 0;
            self.arm(now);
            if self.repaired_at.is_some_and(|number| self.sender.flights.base() >= number) {
                self.repaired_at = None;
                self.round_trip.recovered();
            }
            if news.advanced {
                self.move_on();
            }
        }
        match self.options.mode {
            Mode::Selective => self.look_for_lost(now, wanted),
            Mode::GoBackN | Mode::StopAndWait => {
                if let Some(number) = wanted {
                    self.go_back(now, number);
                }
            }
        }
    }

    /// How long after a frame was sent again an acknowledgement of it is taken for one of that, and not of what was sent
    /// before. After a timeout only a round trip that was measured since tells (Karn): if it was too short all was sent
    /// again while it was still under way, and each acknowledgement would make the rest seem overtaken, without end.
    pub(super) fn surely_again(&self) -> Span {
        if self.doubled > 0 {
            return Span::MAX;
        }
        let least = self.round_trip.least().unwrap_or(Span::ZERO);
        least.max(self.round_trip.smoothed().unwrap_or(Span::ZERO) / 2)
    }

    /// Takes for lost what others have overtaken.
    pub(super) fn look_for_lost(&mut self, now: Instant, wanted: Option<u64>) {
        let late =
            self.round_trip.latest().max(self.round_trip.smoothed()).unwrap_or(self.options.timeout.initial);
        let patience = late + self.round_trip.reordering_window();
        let in_flight = self.sender.flights.in_flight();
        let mut missing = Missing::default();
        let next = self.sender.flights.find_lost(now, self.reordering, patience, &mut missing);
        self.loss_at = next.unwrap_or(Instant::MAX);
        // A frame came damaged: if there was only one, it is known which, though nothing has overtaken it.
        if let Some(number) = wanted
            && in_flight == 1
            && missing.frames == 0
            && self.was_under_way(now, number)
        {
            self.sender.flights.lose_one(number, &mut missing);
        }
        if missing.frames > 0 {
            self.overtaken += missing.frames;
            self.repaired_at.get_or_insert(self.sender.flights.unsent());
            self.report(now, missing, in_flight, false);
        }
    }

    /// The peer wants `number` and all after it, unless they are on their way again already. It is heeded once until
    /// a timeout: each needless resend would else be answered by another nack, and these by more resends.
    fn go_back(&mut self, now: Instant, number: u64) {
        if self.went_back != Some(number) && self.was_under_way(now, number) {
            self.went_back = Some(number);
            let in_flight = self.sender.flights.in_flight();
            let mut missing = Missing::default();
            self.sender.flights.lose_all(&mut missing);
            self.report(now, missing, in_flight, false);
        }
    }

    /// Whether the peer can have missed the last transmission of a frame when it said so.
    fn was_under_way(&self, now: Instant, number: u64) -> bool {
        let least = self.round_trip.least().unwrap_or(Span::ZERO);
        self.sender.flights.sent_at(number).is_some_and(|sent| sent + least <= now)
    }

    pub(super) fn report(&mut self, now: Instant, missing: Missing, in_flight: u32, timeout: bool) {
        let Missing { frames, bytes, sent_at, .. } = missing;
        self.statistics.lost += u64::from(frames);
        self.policy.lost(&Lost { now, frames, bytes, sent_at, in_flight, timeout });
        self.consult();
        if !timeout {
            self.note_lost(now, &missing);
        }
    }

    /// Asks the policy, which changes its mind only when it is told something.
    #[inline(always)]
    pub(super) fn consult(&mut self) {
        self.allowed = self.without_repairs(self.policy.window()).min(self.window);
        self.pace = self.policy.pace();
    }
}

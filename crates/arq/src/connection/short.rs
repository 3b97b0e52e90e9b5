//! The short way of a frame that comes or goes alone (Jacobson 1990, "4BSD header prediction").
//!
//! When a message at a time is under way, each frame is the next of its peer, carries one whole message or pack, and
//! acknowledges the only frame in flight; and each message finds nothing in flight. Then most of what the long way asks
//! is known to be so. Both ways leave the same behind, which `tests/short.rs` holds: whatever is not as expected is left
//! to the long way, untouched.

use trunkline_units::{Instant, Size};

use super::Connection;
use super::frames::CATCH_UP;
use crate::Buffer;
use crate::congestion::{Acked, Sent};
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::alone::Around;
use crate::send::flight::Settled;
use crate::stages::{Of, Stage};
use crate::wire::data::{ACK, ALONE, ASK, CONTROL, Chunk, END, Form, HEADER, NACK, PIGGYBACK, START};
use crate::wire::{KIND_PACK, KIND_PIECE, epoch, kind};

/// What became of a frame that might bring the next message of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// It did not, and nothing has changed.
    Nothing,
    /// It did, and there is nothing to say before this deadline.
    Settled(Instant),
    /// It did.
    Message,
}

/// What stands before the message.
const BEFORE: usize = HEADER + PIGGYBACK + ALONE;

impl Connection {
    /// The frame that is the next of the peer, and acknowledges the only frame in flight: its head's flags, its only chunk,
    /// and the record of what it acknowledges. Its check is still to be opened.
    #[inline(always)]
    fn foresee<'a>(&self, frame: &'a [u8]) -> Option<(u8, Chunk<'a>, u32)> {
        let head = frame.first_chunk::<BEFORE>()?;
        let bytes = frame.get(BEFORE..frame.len().checked_sub(self.tail)?)?;
        // Two words that overlap in a byte: flags and number; the end of that, what is acknowledged, channel, sequence.
        let (first, rest) = (head.first_chunk()?, head.last_chunk()?);
        let (first, rest) = (u32::from_be_bytes(*first), u64::from_be_bytes(*rest));
        let flags = (first >> 24) as u8;
        let form = match (kind(flags), flags & (START | END)) {
            (KIND_PACK, _) => Form::Pack,
            (KIND_PIECE, flags) if flags == START | END => Form::Piece { start: true, end: true },
            _ => return None,
        };
        let flights = &self.sender.flights;
        let (channel, sequence) = ((rest >> 16) as u16, rest as u16);
        let expected = flags & (ACK | NACK) == ACK
            && u64::from(first) & LOW == self.arrivals.next() & LOW
            && rest >> 32 & LOW == flights.unsent() & LOW
            && channel != CONTROL
            && !self.arrivals.has_gap()
            && !self.guard.is_sealed()
            && self.over.is_none()
            && !self.closing.wanted
            && self.closing.peer.is_none();
        if !expected {
            return None;
        }
        Some((flags, Chunk { channel, sequence, form, bytes }, flights.only()?))
    }

    /// It has come, and its check holds.
    #[inline(always)]
    fn note_next(&mut self, now: Instant, flags: u8) {
        self.hear(now);
        self.arrivals.note_next();
        self.statistics.frames_received += 1;
        self.statistics.acks_received_piggybacked += 1;
        self.owe(now, Arrival::InOrder, flags & ASK != 0);
    }

    /// Takes a frame if it is the one expected; whether it was.
    #[inline]
    pub(super) fn take_next(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some((flags, chunk, record)) = self.foresee(frame) else { return false };
        let began = self.stages.begin(Of::FramesIn);
        if self.guard.open(epoch(self.arrivals.next()), frame).is_err() {
            self.stages.take_back(Of::FramesIn, began);
            return false;
        }
        let opened = self.stages.next(Stage::Open, began);
        self.note_next(now, flags);
        if self.receiver.take_chunk(&chunk).is_err() {
            self.end_for_violation();
        }
        self.stages.end(Stage::Join, opened);
        self.take_only_ack(now, record);
        true
    }

    /// Takes a frame if it is the one expected and brings the next message of a channel, which fills `into`.
    // Not inlined, here and below: as a part of something larger it has too few registers.
    #[inline(never)]
    pub fn take_at_once(&mut self, now: Instant, frame: &[u8], channel: u16, into: &mut Buffer) -> Brought {
        if !self.plain || self.stages.has_meter() {
            return Brought::Nothing;
        }
        let Some((flags, chunk, record)) = self.foresee(frame) else { return Brought::Nothing };
        let opens = chunk.channel == channel && self.guard.open(epoch(self.arrivals.next()), frame).is_ok();
        if !opens || !self.receiver.pass_on(&chunk, into) {
            return Brought::Nothing;
        }
        self.note_next(now, flags);
        self.take_only_ack(now, record);
        self.grant();
        // What else that asks has been asked above.
        let settled = self.sender.waiting() == 0
            && self.errands.is_empty()
            && self.owed.at > now
            && self.probe.is_none()
            && !self.resting
            && self.sender.has_told();
        debug_assert_eq!(settled, self.is_settled(now));
        if settled { Brought::Settled(self.settled_deadline()) } else { Brought::Message }
    }

    /// Whether nothing is there to be taken of a channel that is known, and something may still come.
    #[inline]
    pub fn awaits(&mut self, channel: u16) -> bool {
        self.over.is_none() && !self.closing.finished && self.receiver.has_nothing(channel)
    }

    /// All that was in flight, which is one frame, has been acknowledged.
    #[inline(never)]
    fn take_only_ack(&mut self, now: Instant, record: u32) {
        let (sent_at, once) = self.sender.flights.only_sent(record);
        if once {
            self.doubled = 0;
            self.round_trip.sample(now, now.since(sent_at));
        }
        let round_trip = if once { self.round_trip.latest() } else { None };
        let least = self.round_trip.least().unwrap_or_default();
        let sure = once || now.since(sent_at) >= self.surely_again();
        let settled = self.sender.settle(record, now, least, sure);
        let Some(Settled { bytes, rate, .. }) = settled else { return };
        let idle = self.sender.waiting() == 0;
        let came = std::mem::take(&mut self.came);
        let (frames, in_flight) = (1, 1);
        let acked = Acked { now, frames, bytes, in_flight, round_trip, rate, idle, came, sent_at };
        if self.policy.reconsiders(&acked) {
            self.consult();
        }
        (self.backoff, self.retransmit_at) = (0, Instant::MAX);
        if self.repaired_at.is_some_and(|number| self.sender.flights.base() >= number) {
            self.repaired_at = None;
            self.round_trip.recovered();
        }
        if self.options.mode == Mode::Selective {
            self.loss_at = Instant::MAX;
        }
    }

    /// Whether a frame may leave that carries all there is to say, as far as that has not to do with messages.
    #[inline(always)]
    fn may_leave_alone(&self, now: Instant) -> bool {
        self.errands.is_empty()
            && self.probe.is_none()
            && self.over.is_none()
            && !self.resting
            && !self.closing.wanted
            && !(self.arrivals.has_gap() && self.options.mode == Mode::Selective)
            && (self.pace.is_none() || self.pace_at <= now)
    }

    /// Its flags, and what it acknowledges if it does.
    #[inline(always)]
    fn around(&self, now: Instant) -> Around {
        let owes = self.owed.frames > 0 || self.owed.at <= now;
        let asks = if self.is_last_for_now(self.allowed) { ASK } else { 0 };
        let negative = if owes && self.owed.negative { NACK } else { 0 };
        let acknowledged = owes.then(|| self.arrivals.next());
        Around { flags: asks | negative, acknowledged, check: self.tail }
    }

    /// It was written and sealed, and leaves.
    #[inline(never)]
    fn left_alone(&mut self, now: Instant, acknowledges: bool, frame: &[u8]) {
        if acknowledges {
            self.statistics.acks_piggybacked += 1;
            if self.owed.negative {
                self.statistics.nacks_sent += 1;
            }
            self.owed.settle();
        }
        let length = frame.len() as u64;
        self.statistics.frames_sent += 1;
        self.statistics.bytes_sent += length;
        self.echoes.note(frame);
        if let Some(rate) = self.pace {
            let from = self.pace_at.max(Instant::from_ps(now.as_ps().saturating_sub(CATCH_UP.as_ps())));
            let time = rate.time_for(Size::from_bytes(length));
            // No timeout is less than the floor.
            let within = time <= self.options.timeout.floor;
            self.pace_at =
                from + if within { time } else { time.min(self.round_trip.timeout(self.peer_ack_delay)) };
        }
        if self.retransmit_at == Instant::MAX {
            self.arm(now);
        }
        self.policy.sent(&Sent { now, frames: 1, bytes: length, in_flight: 1 });
    }

    /// Writes the frame of the only message or pack that waits, if nothing is in flight and nothing else is to be said;
    /// how long it is.
    #[inline]
    pub(super) fn send_alone(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let free = self.sender.can_cut()
            && self.sender.flights.is_empty()
            && self.may_leave_alone(now)
            && (now >= self.hold_until || self.sender.waiting() >= self.room());
        if !free {
            return None;
        }
        let around = self.around(now);
        let before = HEADER + if around.acknowledged.is_some() { PIGGYBACK } else { 0 };
        let (number, body) = self.sender.cut_only(self.room() + HEADER - before)?;
        let length = before + body + around.check;
        let frame = &mut buffer[..length];
        let began = self.stages.begin(Of::FramesOut);
        self.sender.write(number, around.flags, around.acknowledged, frame);
        let written = self.stages.next(Stage::Frame, began);
        self.guard.seal_numbered(number, around.acknowledged, frame);
        self.stages.end(Stage::Seal, written);
        self.sender.flights.leave(now, number, length);
        self.left_alone(now, around.acknowledged.is_some(), frame);
        Some(length)
    }

    /// Takes a copy of a message and writes the frame that carries it, if that is then all there is to say and nothing is
    /// to be told; how long it is. If not, nothing has changed.
    #[inline(never)]
    pub fn send_at_once(
        &mut self,
        now: Instant,
        channel: u16,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Option<usize> {
        let free = self.plain
            && !self.closing.finished
            && self.lays_from > 0
            && now >= self.hold_until
            && self.receiver.has_told()
            && self.sender.has_told()
            && !self.stages.has_meter()
            && channel != CONTROL
            && self.may_leave_alone(now);
        if !free {
            return None;
        }
        let around = self.around(now);
        let (number, length) = self.sender.send_alone(now, channel, bytes, around, buffer)?;
        let frame = &mut buffer[..length];
        self.guard.seal_numbered(number, around.acknowledged, frame);
        self.left_alone(now, around.acknowledged.is_some(), frame);
        Some(length)
    }

    /// The [deadline](Connection::deadline) of one that is [settled](Connection::is_settled).
    #[inline]
    pub fn settled_deadline(&self) -> Instant {
        self.retransmit_at.min(self.loss_at).min(self.ask_at).min(self.owed.at)
    }

    /// The same, if nothing is to be told and afterwards nothing is left to say.
    #[inline]
    pub fn say_only(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let told = self.plain && !self.closing.finished && self.receiver.has_told() && self.sender.has_told();
        // Whether an acknowledgement is due is all that could be left: the frame takes it along.
        if told { self.send_alone(now, buffer) } else { None }
    }

    /// Whether it has nothing more to say now: to ask it would come to nothing and change nothing.
    #[inline]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.plain
            && self.sender.waiting() == 0
            && self.sender.flights.due().is_none()
            && self.errands.is_empty()
            && self.owed.at > now
            && self.probe.is_none()
            && self.over.is_none()
            && !self.resting
            && !self.closing.finished
            && self.receiver.has_told()
            && self.sender.has_told()
    }
}

/// The bits of a number that are on the wire.
const LOW: u64 = (1 << 24) - 1;

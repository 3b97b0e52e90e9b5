//! The short way of a frame that comes or goes alone (Jacobson 1990, "4BSD header prediction").
//!
//! When a message at a time is under way, each frame is the next of its peer, carries one whole message or pack, and
//! acknowledges the only frame in flight; and each message finds nothing in flight. Then most of what the long way asks
//! is known to be so. Both ways leave the same behind, which `tests/short.rs` holds: whatever is not as expected is left
//! to the long way, untouched.

use trunkline_units::{Instant, Size};

use super::Connection;
use super::frames::CATCH_UP;
use crate::congestion::{Acked, Sent};
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::flight::News;
use crate::stages::{Of, Stage};
use crate::wire::data::{ACK, ALONE, ASK, CONTROL, Chunk, END, Form, HEADER, NACK, PIGGYBACK, START};
use crate::wire::{KIND_PACK, KIND_PIECE, epoch, get16, get24, kind};

/// What stands before the message.
const BEFORE: usize = HEADER + PIGGYBACK + ALONE;

impl Connection {
    /// Takes a frame if it is the one expected; whether it was.
    #[inline]
    pub(super) fn take_next(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some(head) = frame.first_chunk::<BEFORE>() else { return false };
        if frame.len() < BEFORE + self.options.check.bytes() {
            return false;
        }
        let form = match (kind(head[0]), head[0] & (START | END)) {
            (KIND_PACK, _) => Form::Pack,
            (KIND_PIECE, flags) if flags == START | END => Form::Piece { start: true, end: true },
            _ => return false,
        };
        let number = self.arrivals.next();
        let flights = &self.sender.flights;
        let acknowledged = flights.unsent();
        let channel = get16(&head[HEADER + PIGGYBACK..]);
        let expected = head[0] & (ACK | NACK) == ACK
            && u64::from(get24(&head[1..])) == number & LOW
            && u64::from(get24(&head[HEADER..])) == acknowledged & LOW
            && channel != CONTROL
            && flights.has_only_one()
            && !self.arrivals.has_gap()
            && !self.guard.is_sealed()
            && self.over.is_none()
            && !self.closing.wanted
            && self.closing.peer.is_none();
        if !expected {
            return false;
        }
        let began = self.stages.begin(Of::FramesIn);
        let Ok(body) = self.guard.open(epoch(number), frame) else {
            self.stages.take_back(Of::FramesIn, began);
            return false;
        };
        let opened = self.stages.next(Stage::Open, began);
        self.hear(now);
        self.arrivals.note_next();
        self.statistics.frames_received += 1;
        self.owe(now, Arrival::InOrder, head[0] & ASK != 0);
        let sequence = get16(&head[HEADER + PIGGYBACK + 2..]);
        let chunk = Chunk { channel, sequence, form, bytes: body.get(BEFORE..).unwrap_or_default() };
        if self.receiver.take_chunk(&chunk).is_err() {
            self.end_for_violation();
        }
        self.stages.end(Stage::Join, opened);
        self.statistics.acks_received_piggybacked += 1;
        self.take_only_ack(now);
        true
    }

    /// All that was in flight, which is one frame, has been acknowledged.
    #[inline]
    fn take_only_ack(&mut self, now: Instant) {
        let mut news = News::default();
        self.sender.settle(&mut news);
        if let Some(sent) = news.sent_once_at() {
            self.doubled = 0;
            self.round_trip.sample(now, now.since(sent));
        }
        let round_trip = news.sent_once_at().and(self.round_trip.latest());
        let sent_at = news.sent_at().unwrap_or(now);
        let least = self.round_trip.least().unwrap_or_default();
        let rate = self.sender.flights.take_stock(now, &mut news, least);
        let idle = self.sender.waiting() == 0;
        let (frames, bytes) = (news.frames, news.bytes);
        self.policy.acknowledged(&Acked {
            now,
            frames,
            bytes,
            in_flight: 1,
            round_trip,
            rate,
            idle,
            sent_at,
        });
        self.consult();
        (self.backoff, self.retransmit_at) = (0, Instant::MAX);
        if self.repaired_at.is_some_and(|number| self.sender.flights.base() >= number) {
            self.repaired_at = None;
            self.round_trip.recovered();
        }
        if self.options.mode == Mode::Selective {
            self.loss_at = Instant::MAX;
        }
    }

    /// Writes the frame of the only message or pack that waits, if nothing is in flight and nothing else is to be said;
    /// how long it is.
    #[inline]
    pub(super) fn send_alone(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let free = self.sender.can_cut()
            && self.sender.flights.is_empty()
            && self.errands.is_empty()
            && self.probe.is_none()
            && self.over.is_none()
            && !self.resting
            && !self.closing.wanted
            && !(self.arrivals.has_gap() && self.options.mode == Mode::Selective)
            && (self.pace.is_none() || self.pace_at <= now)
            && (now >= self.hold_until || self.sender.waiting() >= self.room());
        if !free {
            return None;
        }
        let owes = self.owed.frames > 0 || self.owed.at <= now;
        let room = self.room() - if owes { PIGGYBACK } else { 0 };
        let (number, body) = self.sender.cut_only(room)?;
        let acknowledged = owes.then(|| self.arrivals.next());
        let length = HEADER + if owes { PIGGYBACK } else { 0 } + body + self.options.check.bytes();
        let mut flags = if self.is_last_for_now(self.allowed) { ASK } else { 0 };
        if owes {
            flags |= if self.owed.negative { NACK } else { 0 };
            self.statistics.acks_piggybacked += 1;
            self.statistics.nacks_sent += u64::from(self.owed.negative);
            self.owed.settle();
        }
        let frame = &mut buffer[..length];
        let began = self.stages.begin(Of::FramesOut);
        self.sender.write(number, flags, acknowledged, frame);
        let written = self.stages.next(Stage::Frame, began);
        self.guard.seal_numbered(number, acknowledged, frame);
        self.stages.end(Stage::Seal, written);
        self.statistics.frames_sent += 1;
        self.sender.flights.leave(now, number, length);
        self.echoes.note(frame);
        if let Some(rate) = self.pace {
            let from = self.pace_at.max(Instant::from_ps(now.as_ps().saturating_sub(CATCH_UP.as_ps())));
            let most = self.round_trip.timeout(self.peer_ack_delay);
            self.pace_at = from + rate.time_for(Size::from_bytes(length as u64)).min(most);
        }
        if self.retransmit_at == Instant::MAX {
            self.arm(now);
        }
        self.policy.sent(&Sent { now, frames: 1, bytes: length as u64, in_flight: 1 });
        self.statistics.bytes_sent += length as u64;
        Some(length)
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

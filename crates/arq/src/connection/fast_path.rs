//! Fast path for single frames (Jacobson 1990, "4BSD header prediction").
//!
//! In a request-response exchange each frame is the next of its peer, carries one whole message or pack, and
//! acknowledges the only frame in flight; and each message is sent with nothing in flight. Then most conditions of
//! the general path are known to hold. Both paths have the same result, which `tests/fast_path.rs` checks. A frame that
//! does not match is left to the general path, unprocessed.
//!
//! Two functions send a single frame:
//!
//! | function | message | applies if |
//! | --- | --- | --- |
//! | [`send_single_frame`](Connection::send_single_frame) | the only queued message or pack | nothing is in flight, and nothing else is to be sent |
//! | [`send_message`](Connection::send_message) | a small one, which is not queued first | also no event is to be reported, so that nothing remains to be polled |

use trunkline_congestion::{Acknowledgement, Transmission};
use trunkline_units::Instant;

use super::Connection;
use super::frames::MAX_PACING_DEBT;
use super::timers::Timer;
use crate::Buffer;
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::flight::SingleFrameAck;
use crate::send::single_frame::FrameOverhead;
use crate::stages::{Stage, StageGroup};
use crate::wire::data::{
    ACK, ACK_REQUEST, CONTROL, Chunk, ChunkKind, END, HEADER, NACK, PIGGYBACK, SINGLE_HEADER, START,
};
use crate::wire::{KIND_PACK, KIND_PIECE, NUMBER_MASK, epoch, kind};

/// Outcome of the fast path for a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathOutcome {
    /// The frame does not match; nothing has changed.
    NoMatch,
    /// The frame contained the message; the connection has nothing to send before this deadline.
    Idle(Instant),
    /// The frame contained the message.
    Message,
}

/// Bytes before the message.
const PREFIX: usize = HEADER + PIGGYBACK + SINGLE_HEADER;

impl Connection {
    /// Predicts that a frame is the next of the peer and acknowledges the only frame in flight. Returns its flags,
    /// its only chunk, and the index of the acknowledged frame's flight. The check sequence is not verified yet.
    #[inline(always)]
    fn predict_header<'a>(&self, frame: &'a [u8]) -> Option<(u8, Chunk<'a>, u32)> {
        let head = frame.first_chunk::<PREFIX>()?;
        let bytes = frame.get(PREFIX..frame.len().checked_sub(self.check_length)?)?;
        // Two integers that overlap in one byte: flags and number; the last byte of the number, acknowledged number,
        // channel, sequence.
        let (first, rest) = (head.first_chunk()?, head.last_chunk()?);
        let (first, rest) = (u32::from_be_bytes(*first), u64::from_be_bytes(*rest));
        let flags = (first >> 24) as u8;
        let kind = match (kind(flags), flags & (START | END)) {
            (KIND_PACK, _) => ChunkKind::Pack,
            (KIND_PIECE, flags) if flags == START | END => ChunkKind::Piece { start: true, end: true },
            _ => return None,
        };
        let flights = &self.sender.flights;
        let (channel, sequence) = ((rest >> 16) as u16, rest as u16);
        let expected = flags & (ACK | NACK) == ACK
            && u64::from(first) & NUMBER_MASK == self.arrivals.next() & NUMBER_MASK
            && rest >> 32 & NUMBER_MASK == flights.unsent() & NUMBER_MASK
            && channel != CONTROL
            && !self.arrivals.has_gap()
            && !self.protection.is_encrypted()
            && self.close_reason.is_none()
            && !self.closing.requested
            && self.closing.peer_finish.is_none();
        if !expected {
            return None;
        }
        Some((flags, Chunk { channel, sequence, kind, bytes }, flights.single_in_flight()?))
    }

    /// Records the arrival of the next in-order frame whose check sequence is valid.
    #[inline(always)]
    fn record_in_order(&mut self, now: Instant, flags: u8) {
        self.record_activity(now);
        self.arrivals.record_next(1);
        self.statistics.frames_received += 1;
        self.statistics.acks_received_piggybacked += 1;
        self.schedule_ack(now, Arrival::InOrder, flags & ACK_REQUEST != 0);
    }

    /// Processes a frame if it matches the prediction; returns whether it did.
    #[inline]
    pub(super) fn receive_predicted(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some((flags, chunk, flight_index)) = self.predict_header(frame) else { return false };
        let started = self.stage_sampler.begin(StageGroup::FramesIn);
        if self.protection.open(epoch(self.arrivals.next()), frame).is_err() {
            self.stage_sampler.cancel(StageGroup::FramesIn, started);
            return false;
        }
        let opened = self.stage_sampler.next(Stage::Open, started);
        self.record_in_order(now, flags);
        if self.receiver.receive_chunk(&chunk).is_err() {
            self.close_for_violation();
        }
        self.stage_sampler.end(Stage::Join, opened);
        self.process_only_ack(now, flight_index);
        true
    }

    /// Processes a frame if it matches the prediction and contains the next message of `channel`; the message
    /// replaces the contents of `into`.
    // Not inlined, here and below: inlined into a larger function it would run out of registers.
    #[inline(never)]
    pub fn receive_message(
        &mut self,
        now: Instant,
        frame: &[u8],
        channel: u16,
        into: &mut Buffer,
    ) -> FastPathOutcome {
        let is_sampled = self.stage_sampler.samples_next(StageGroup::FramesIn)
            || self.stage_sampler.samples_next(StageGroup::Receives);
        if !self.fast_path_enabled || is_sampled {
            return FastPathOutcome::NoMatch;
        }
        let Some((flags, chunk, flight_index)) = self.predict_header(frame) else {
            return FastPathOutcome::NoMatch;
        };
        let is_valid =
            chunk.channel == channel && self.protection.open(epoch(self.arrivals.next()), frame).is_ok();
        if !is_valid || !self.receiver.deliver_chunk(&chunk, into) {
            return FastPathOutcome::NoMatch;
        }
        self.stage_sampler.skip(StageGroup::FramesIn, 1);
        self.stage_sampler.skip(StageGroup::Receives, 1);
        self.record_in_order(now, flags);
        self.process_only_ack(now, flight_index);
        self.grant_credit();
        // The other conditions of `is_idle` were checked above.
        let is_idle = self.sender.unsent_bytes() == 0
            && self.pending_controls.is_empty()
            && !self.timers.has_expired(Timer::Ack, now)
            && self.tail_probe.is_none()
            && !self.stopped
            && self.sender.writable.is_empty();
        debug_assert_eq!(is_idle, self.is_idle(now));
        if is_idle { FastPathOutcome::Idle(self.idle_deadline()) } else { FastPathOutcome::Message }
    }

    /// Returns whether a known channel is empty and may still receive data.
    #[inline]
    pub fn awaits_message(&mut self, channel: u16) -> bool {
        self.close_reason.is_none() && !self.closing.peer_finished && self.receiver.is_channel_empty(channel)
    }

    /// Processes the acknowledgement of the only frame in flight.
    #[inline(never)]
    fn process_only_ack(&mut self, now: Instant, flight_index: u32) {
        let (sent_at, sent_once) = self.sender.flights.single_sent_at(flight_index);
        if sent_once {
            self.sample_round_trip(now, now.since(sent_at));
        }
        let round_trip = if sent_once { self.rtt.latest() } else { None };
        let min_rtt = self.rtt.min().unwrap_or_default();
        let is_unambiguous = sent_once || now.since(sent_at) >= self.retransmission_ack_delay();
        let acked = self.sender.acknowledge_single(flight_index, now, min_rtt, is_unambiguous);
        let Some(SingleFrameAck { bytes, rate, since_sent, .. }) = acked else { return };
        self.report_acked(Acknowledgement {
            now,
            amount: 1,
            bytes,
            marked: 0,
            in_flight: 1,
            round_trip,
            rate,
            app_limited: self.sender.unsent_bytes() == 0,
            since_sent,
            in_recovery: false,
            peer_amount: self.peer_frames,
            sent_at,
        });
        self.timers.stop(Timer::Retransmit);
        if self.options.mode == Mode::Selective {
            self.timers.stop(Timer::Loss);
        }
    }

    /// Returns whether a single frame may be sent, apart from conditions on messages.
    #[inline(always)]
    fn can_send_single_frame(&self, now: Instant) -> bool {
        self.pending_controls.is_empty()
            && self.tail_probe.is_none()
            && self.close_reason.is_none()
            && !self.stopped
            && !self.closing.requested
            && !(self.arrivals.has_gap() && self.options.mode == Mode::Selective)
            && !self.is_paced(now)
    }

    /// Returns what the next single frame has besides its chunk.
    #[inline(always)]
    fn frame_overhead(&self, now: Instant) -> FrameOverhead {
        let ack_due = self.pending_ack.frames > 0 || self.timers.has_expired(Timer::Ack, now);
        let ack_request = if self.fills_window(self.effective_window, 1) { ACK_REQUEST } else { 0 };
        let negative = if ack_due && self.pending_ack.negative { NACK } else { 0 };
        let acknowledged = ack_due.then(|| self.arrivals.next());
        FrameOverhead { flags: ack_request | negative, acknowledged, check_length: self.check_length }
    }

    /// Updates the state after a single frame was written and sealed.
    #[inline(never)]
    fn record_single_frame(&mut self, now: Instant, acknowledges: bool, frame: &[u8]) {
        if acknowledges {
            self.statistics.acks_piggybacked += 1;
            if self.pending_ack.negative {
                self.statistics.nacks_sent += 1;
            }
            self.clear_pending_ack();
        }
        let length = frame.len() as u64;
        self.statistics.frames_sent += 1;
        self.statistics.bytes_sent += length;
        self.recent_frames.record(frame);
        self.advance_pace(now, MAX_PACING_DEBT, frame.len());
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit_timer(now);
        }
        self.controller.on_sent(&Transmission { now, amount: 1, bytes: length, in_flight: 1 });
    }

    /// Writes the frame of the only unsent message or pack, if nothing is in flight and nothing else is to be sent.
    /// Returns its length.
    #[inline]
    pub(super) fn send_single_frame(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let can_send = self.sender.can_build_frame()
            && self.sender.flights.is_empty()
            && self.can_send_single_frame(now)
            && (now >= self.coalesce_until || self.sender.unsent_bytes() >= self.chunk_capacity());
        if !can_send {
            return None;
        }
        let overhead = self.frame_overhead(now);
        let header = HEADER + if overhead.acknowledged.is_some() { PIGGYBACK } else { 0 };
        let (number, body) = self.sender.build_single_frame(self.chunk_capacity() + HEADER - header)?;
        let length = header + body + overhead.check_length;
        let frame = &mut buffer[..length];
        let started = self.stage_sampler.begin(StageGroup::FramesOut);
        self.sender.write_frame(number, overhead.flags, overhead.acknowledged, frame);
        let written = self.stage_sampler.next(Stage::Frame, started);
        self.protection.seal_numbered(number, overhead.acknowledged, frame);
        self.stage_sampler.end(Stage::Seal, written);
        self.sender.flights.send(now, number, length);
        self.record_single_frame(now, overhead.acknowledged.is_some(), frame);
        Some(length)
    }

    /// Writes a frame with a copy of a message, if nothing else is to be sent or reported. Returns its length; if
    /// none, nothing has changed.
    #[inline(never)]
    pub fn send_message(
        &mut self,
        now: Instant,
        channel: u16,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Option<usize> {
        let can_send = self.fast_path_enabled
            && !self.closing.peer_finished
            && self.pre_encode_from > 0
            && now >= self.coalesce_until
            && self.receiver.readable.is_empty()
            && self.sender.writable.is_empty()
            && !self.stage_sampler.samples_next(StageGroup::Sends)
            && !self.stage_sampler.samples_next(StageGroup::FramesOut)
            && channel != CONTROL
            && self.can_send_single_frame(now);
        if !can_send {
            return None;
        }
        let overhead = self.frame_overhead(now);
        let (number, length) = self.sender.send_message(now, channel, bytes, overhead, buffer)?;
        self.stage_sampler.skip(StageGroup::Sends, 1);
        self.stage_sampler.skip(StageGroup::FramesOut, 1);
        let frame = &mut buffer[..length];
        self.protection.seal_numbered(number, overhead.acknowledged, frame);
        self.record_single_frame(now, overhead.acknowledged.is_some(), frame);
        Some(length)
    }

    /// Returns the [deadline](Connection::deadline) of an [idle](Connection::is_idle) connection.
    #[inline]
    pub fn idle_deadline(&self) -> Instant {
        self.timers.first()
    }

    /// Returns whether the connection has nothing to send or report now, so that polling it would have no effect.
    #[inline]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.fast_path_enabled
            && self.sender.unsent_bytes() == 0
            && self.sender.flights.next_to_send().is_none()
            && self.pending_controls.is_empty()
            && !self.timers.has_expired(Timer::Ack, now)
            && self.tail_probe.is_none()
            && self.close_reason.is_none()
            && !self.stopped
            && !self.closing.peer_finished
            && self.receiver.readable.is_empty()
            && self.sender.writable.is_empty()
    }
}

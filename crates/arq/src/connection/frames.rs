//! Frames: reception and transmission.

use trunkline_congestion::Transmission;
use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_units::{Instant, Size, Span};

use super::timers::Timer;
use super::{Connection, FecState, PendingControl, control};
use crate::CloseReason;
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::frame_buffers::{self, EncodedFrames};
use crate::stages::{Stage, StageGroup};
use crate::wire::check::OpenError;
use crate::wire::data::{self, ACK, ACK_REQUEST, CONTROL, Chunks, FrameHeader, NACK};
use crate::wire::{KIND_ACK, KIND_CONTROL, KIND_PART, KIND_REPAIR, expand, get24, handshake, kind};

/// Maximum duration of a batch at the current pace; a batch has at least two frames.
const BATCH_TIME: Span = Span::from_ms(1);
/// How far behind its pace a connection may fall and still catch up.
pub(super) const MAX_PACING_DEBT: Span = Span::from_us(500);
/// Maximum number of pending control frames: further probes of the peer are not answered.
pub(super) const MAX_PENDING_CONTROLS: usize = 8;

/// Fingerprints of the last frames sent, to recognise a reply to them.
#[derive(Debug, Default)]
pub(super) struct RecentFrames {
    last: [[u8; 16]; 8],
    count: usize,
}

impl RecentFrames {
    #[inline]
    pub(super) fn record(&mut self, frame: &[u8]) {
        if let Some(fingerprint) = handshake::fingerprint(frame) {
            self.last[self.count % 8] = fingerprint;
            self.count += 1;
        }
    }

    fn contains(&self, fingerprint: &[u8; 16]) -> bool {
        self.last[..self.count.min(8)].contains(fingerprint)
    }
}

impl Connection {
    #[inline]
    pub fn receive_frame(&mut self, now: Instant, frame: &[u8]) {
        if self.fast_path_enabled && self.receive_predicted(now, frame) {
            return;
        }
        let Some(&first) = frame.first() else { return self.statistics.bad_checksums += 1 };
        match kind(first) {
            KIND_ACK => self.receive_ack(now, frame),
            KIND_CONTROL => self.receive_control(now, frame),
            KIND_PART => self.receive_part(now, frame),
            KIND_REPAIR if self.fec.is_some() => self.receive_repair(now, frame),
            _ => self.receive_numbered(now, frame),
        }
    }

    #[inline]
    fn receive_numbered(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(get24) else { return self.process_damaged(now) };
        let number = expand(low, self.arrivals.next());
        let started = self.stage_sampler.begin(StageGroup::FramesIn);
        let body = self.protection.open_numbered(number, self.sender.flights.base(), frame);
        let opened = self.stage_sampler.next(Stage::Open, started);
        match body {
            Ok(body) => {
                self.process_body(now, number, &body, opened);
                self.protection.recycle(body);
            }
            Err(OpenError::Damaged) => self.process_damaged(now),
            Err(error) => self.count_rejected(error),
        }
    }

    /// Processes the contents of a numbered frame without its check; `opened` is the sampled time when it was
    /// verified.
    #[inline]
    pub(super) fn process_body(&mut self, now: Instant, number: u64, body: &[u8], opened: Option<Instant>) {
        let Some((head, rest)) = FrameHeader::read(body) else { return self.statistics.malformed += 1 };
        let Some(chunks) = Chunks::read(&head, rest) else { return self.statistics.malformed += 1 };
        self.record_activity(now);
        if self.close_reason.is_some_and(|reason| reason != CloseReason::Completed) {
            return;
        }
        let arrival = self.arrivals.classify(number);
        match arrival {
            Arrival::OutsideWindow => return self.statistics.malformed += 1,
            Arrival::Duplicate => self.process_duplicate(now),
            Arrival::AfterGap | Arrival::OpensGap if self.options.mode != Mode::Selective => {
                self.process_out_of_order(now);
            }
            _ => {
                self.arrivals.record(number);
                self.statistics.frames_received += 1;
                self.schedule_ack(now, arrival, head.flags & ACK_REQUEST != 0);
                self.process_chunks(number, chunks);
                if self.fec.is_some() {
                    self.store_for_repair(now, number, body[0], rest);
                }
                self.stage_sampler.end(Stage::Join, opened);
            }
        }
        if let Some(acknowledged) = head.acknowledged {
            self.process_piggybacked_ack(now, acknowledged, head.flags & NACK != 0);
        }
        if self.closing.peer_finish.is_some() {
            // The peer waits for this acknowledgement before it closes.
            self.timers.set(Timer::Ack, now);
            self.advance_closing();
        }
    }

    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Instant, arrival: Arrival, ack_requested: bool) {
        self.schedule_ack_for(
            now,
            1,
            ack_requested || matches!(arrival, Arrival::OpensGap | Arrival::FillsGap),
        );
    }

    /// Schedules the acknowledgement of accepted frames, at once if `immediate` is set.
    #[inline]
    pub(super) fn schedule_ack_for(&mut self, now: Instant, frames: u32, immediate: bool) {
        self.peer_frames = self.peer_frames.saturating_add(frames);
        self.pending_ack.frames += frames;
        self.pending_ack.nack_sent = false;
        self.pending_ack.last_arrival = now;
        let is_full = self.pending_ack.frames >= u32::from(self.options.ack_every);
        if immediate || is_full {
            self.timers.set(Timer::Ack, now);
        } else if !self.timers.is_set(Timer::Ack) {
            self.timers.set(Timer::Ack, now + self.options.ack_delay);
        }
    }

    pub(super) fn process_duplicate(&mut self, now: Instant) {
        self.statistics.duplicates += 1;
        self.pending_ack.duplicates = self.pending_ack.duplicates.wrapping_add(1);
        // Its sender missed the acknowledgement (table 1 of the 1998 paper: "send a nack for the next frame").
        self.pending_ack.duplicate |= self.options.mode != Mode::Selective;
        self.timers.set(Timer::Ack, now);
    }

    /// Processes an out-of-order frame, which is dropped.
    pub(super) fn process_out_of_order(&mut self, now: Instant) {
        self.statistics.framing_errors += 1;
        self.request_missing(now);
    }

    /// Schedules a negative acknowledgement, once until a frame is accepted.
    fn request_missing(&mut self, now: Instant) {
        if !self.pending_ack.nack_sent {
            (self.pending_ack.nack_sent, self.pending_ack.negative) = (true, true);
            self.timers.set(Timer::Ack, now);
        }
    }

    #[cold]
    pub(super) fn process_damaged(&mut self, now: Instant) {
        self.statistics.bad_checksums += 1;
        // The damaged frame may be from anyone; but if it was the peer's, it is missing. It is requested at most once
        // per round trip, so that garbage cannot make the peer retransmit continuously.
        let round_trip = self.rtt.smoothed().unwrap_or(Span::ZERO);
        if self.damaged_at.is_none_or(|last| now >= last + round_trip) {
            self.damaged_at = Some(now);
            self.request_missing(now);
        }
    }

    #[inline]
    pub(super) fn process_chunks(&mut self, number: u64, chunks: Chunks<'_>) {
        for chunk in chunks {
            let is_valid = match chunk.channel {
                CONTROL => self.process_control_chunk(number, chunk.bytes),
                _ => self.receiver.receive_chunk(&chunk).is_ok(),
            };
            if !is_valid {
                return self.close_for_violation();
            }
        }
    }

    /// Resets the connection after a protocol violation of the peer.
    #[cold]
    pub(super) fn close_for_violation(&mut self) {
        self.statistics.malformed += 1;
        self.reset_because(CloseReason::ProtocolViolation);
    }

    /// Processes a control message; returns whether it is well-formed.
    fn process_control_chunk(&mut self, number: u64, message: &[u8]) -> bool {
        match *message {
            [control::CREDIT, ref limit @ ..] => {
                let Ok(limit) = limit.try_into() else { return false };
                self.sender.raise_limit(u64::from_be_bytes(limit));
            }
            [control::CHANNEL_CREDIT, a, b, ref limit @ ..] => {
                let Ok(limit) = limit.try_into() else { return false };
                self.sender.raise_channel_limit(u16::from_be_bytes([a, b]), u64::from_be_bytes(limit));
            }
            [control::FINISH] => {
                self.closing.peer_finish.get_or_insert(number);
            }
            _ => return false,
        }
        true
    }

    /// Processes an unnumbered control frame of the connection.
    fn receive_control(&mut self, now: Instant, frame: &[u8]) {
        let body = match self.protection.open(0, frame) {
            Ok(body) => body,
            Err(error) => return self.count_rejected(error),
        };
        self.record_activity(now);
        match *body {
            [handshake::RESET, _] => self.terminate(CloseReason::PeerReset),
            [handshake::PROBE, a, b, c, d, ..] if self.pending_controls.len() < MAX_PENDING_CONTROLS => {
                let (token, length) = (u32::from_be_bytes([a, b, c, d]), frame.len() as u16);
                self.pending_controls.push_back(PendingControl::ProbeReply { token, length });
            }
            [handshake::PROBE_REPLY, a, b, c, d, e, f] => {
                self.process_probe_reply(now, u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
            }
            [handshake::PROBE | handshake::PROBE_REPLY, ..] => {}
            _ => self.statistics.malformed += 1,
        }
    }

    /// Processes a reply from the peer's address that a frame belongs to no connection. If this end sent the frame,
    /// the peer has lost the connection. Anyone who sees a frame can forge such a reply, so it does not end an
    /// encrypted connection.
    pub fn process_unknown(&mut self, fingerprint: &[u8; 16]) {
        if !self.protection.is_encrypted() && self.recent_frames.contains(fingerprint) {
            // A peer that has finished may have removed the connection.
            let is_complete =
                self.closing.peer_finished && self.closing.finish_sent && self.sender.has_only_control();
            self.terminate(if is_complete { CloseReason::Completed } else { CloseReason::PeerRestarted });
        }
    }

    /// Records that an authentic frame of the peer has arrived.
    #[inline]
    pub(super) fn record_activity(&mut self, now: Instant) {
        (self.last_activity, self.unanswered_probes, self.unconfirmed) = (now, 0, false);
        if self.timers.is_set(Timer::KeepAlive) {
            self.timers.set(Timer::KeepAlive, now + self.options.keep_alive);
        }
    }

    /// Writes the next frame or batch into `buffer`, or leaves it [in place](Connection::in_place_bytes).
    #[inline]
    pub fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        self.in_place_batch = None;
        if self.fast_path_enabled
            && let Some(length) = self.send_single_frame(now, buffer)
        {
            return Some((length, None));
        }
        if let Some(control) = self.pending_controls.pop_front() {
            return Some((self.write_control(control, buffer), None));
        }
        let ack_due = self.timers.has_expired(Timer::Ack, now);
        // An acknowledgement with ranges needs a separate frame. So does one that might have to wait for many full
        // frames that are retransmitted.
        let has_ranges = self.options.mode == Mode::Selective && self.arrivals.has_gap();
        // A pre-encoded frame cannot carry an acknowledgement either.
        let next_is_encoded = ack_due && self.sender.is_next_encoded();
        let separate_ack = ack_due
            && (has_ranges || self.sender.flights.has_lost() || self.has_repair_report() || next_is_encoded);
        if !separate_ack
            && self.is_active()
            && let Some(batch) = self
                .send_parts(now, buffer)
                .or_else(|| self.send_repairs(now, buffer))
                .or_else(|| self.send_encoded(now))
                .or_else(|| self.send_batch(now, buffer))
        {
            return Some(batch);
        }
        if ack_due {
            let length = self.write_ack(now, buffer);
            self.statistics.bytes_sent += length as u64;
            self.recent_frames.record(&buffer[..length]);
            return Some((length, None));
        }
        None
    }

    /// Writes a control frame; returns its length.
    fn write_control(&mut self, control: PendingControl, frame: &mut [u8]) -> usize {
        let body = match control {
            PendingControl::KeepAlive | PendingControl::PathProbe(_) => {
                let token = if let PendingControl::PathProbe(probe) = control {
                    probe.token
                } else {
                    self.unanswered_probes
                };
                frame[0] = handshake::PROBE;
                frame[1..5].copy_from_slice(&token.to_be_bytes());
                5
            }
            PendingControl::ProbeReply { token, length } => {
                frame[0] = handshake::PROBE_REPLY;
                frame[1..5].copy_from_slice(&token.to_be_bytes());
                frame[5..7].copy_from_slice(&length.to_be_bytes());
                7
            }
            PendingControl::Reset => {
                frame[..2].copy_from_slice(&[handshake::RESET, 0]);
                2
            }
        };
        // Long enough for a reply by a peer that has lost the connection.
        let length = (body + self.check_length).max(match control {
            PendingControl::KeepAlive => handshake::UNKNOWN_BYTES,
            PendingControl::PathProbe(probe) => probe.length,
            _ => 0,
        });
        frame[body..length].fill(0);
        self.protection.seal(0, &mut frame[..length]);
        self.statistics.bytes_sent += length as u64;
        self.recent_frames.record(&frame[..length]);
        length
    }

    /// Writes a batch of as many frames as may be sent now.
    #[inline]
    fn send_batch(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        let budget = self.batch_budget(now)?;
        let window = self.effective_window;
        let check = self.check_length;
        let (mut at, mut segment, mut frames) = (0, 0, 0);
        while frames < MAX_SEGMENTS as u32 && at + segment <= budget {
            // The last frames of a closing end always acknowledge: no other acknowledgement may reach the peer.
            let ack_due = self.pending_ack.frames > 0
                || self.timers.has_expired(Timer::Ack, now)
                || self.closing.requested;
            let piggyback = frames == 0 && ack_due;
            // The first frame of a batch waits for a full batch, the following ones for a full frame.
            let min_bytes = if frames == 0 { self.coalesce_threshold() } else { self.chunk_capacity() };
            let Some(number) = self.next_frame_number(now, window, piggyback, min_bytes) else { break };
            let mut acknowledges = piggyback;
            let mut length = self.sender.frame_length(number, acknowledges) + check;
            if length > self.max_frame && acknowledges {
                acknowledges = false;
                length -= data::PIGGYBACK;
            }
            if frames > 0 && length > segment || at + length > MAX_BATCH {
                break;
            }
            let requests_ack = self.tail_probe.take() == Some(number) || self.fills_window(window, 1);
            let frame = &mut buffer[at..at + length];
            self.write_frame(now, number, requests_ack, acknowledges, frame);
            frames += 1;
            at += length;
            if frames == 1 {
                segment = length;
                self.recent_frames.record(frame);
            } else if length < segment {
                break;
            }
        }
        if frames == 0 {
            return None;
        }
        self.record_departure(now, frames, at);
        Some((at, Segment::of(segment, at)))
    }

    /// Returns the number of bytes that a batch may have now; none if the pace allows no transmission.
    #[inline]
    fn batch_budget(&self, now: Instant) -> Option<usize> {
        if self.is_paced(now) && self.tail_probe.is_none() {
            return None;
        }
        let Some(rate) = self.pace else { return Some(MAX_BATCH) };
        let quantum =
            (u128::from(rate.as_bps()) * u128::from(BATCH_TIME.as_ps()) / 8_000_000_000_000) as usize;
        Some(quantum.clamp((2 * self.max_frame).min(MAX_BATCH), MAX_BATCH))
    }

    /// Returns whether the pace delays the next frame.
    #[inline]
    pub(super) fn is_paced(&self, now: Instant) -> bool {
        self.pace.is_some() && self.pace_at > now
    }

    /// Postpones the next transmission by the time of `bytes` sent bytes. A connection catches up with its pace, but
    /// with no more than `max_debt`.
    #[inline(always)]
    pub(super) fn advance_pace(&mut self, now: Instant, max_debt: Span, bytes: usize) {
        if let Some(rate) = self.pace {
            let from = self.pace_at.max(Instant::from_ps(now.as_ps().saturating_sub(max_debt.as_ps())));
            let time = rate.time_for(Size::from_bytes(bytes as u64));
            // A rate measured across a clock step must not silence the connection for hours. No timeout is below the
            // floor, so a shorter time needs no limit.
            let is_short = time <= self.options.timeout.floor;
            self.pace_at =
                from + if is_short { time } else { time.min(self.rtt.timeout(self.peer_ack_delay)) };
        }
    }

    /// Updates the state after a batch was sent.
    #[inline]
    fn record_departure(&mut self, now: Instant, frames: u32, bytes: usize) {
        self.advance_pace(now, MAX_PACING_DEBT, bytes);
        if self.sender.unsent_bytes() > 0 {
            self.coalesce_until = now + self.coalesce_delay();
        }
        let in_flight = self.sender.flights.in_flight();
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit_timer(now);
        }
        self.controller.on_sent(&Transmission { now, amount: frames, bytes: bytes as u64, in_flight });
        self.statistics.bytes_sent += bytes as u64;
        if self.closing.requested {
            self.advance_closing();
        }
    }

    /// Sends pre-encoded frames for the first time: as many as are contiguous and may be sent now. The batch stays
    /// [in place](Connection::in_place_bytes).
    fn send_encoded(&mut self, now: Instant) -> Option<(usize, Option<Segment>)> {
        let flights = &self.sender.flights;
        if self.pre_encode_from == u32::MAX || self.tail_probe.is_some() || flights.next_to_send().is_some() {
            return None;
        }
        let (coalescing, window) = (now < self.coalesce_until, self.effective_window);
        let ahead = flights.next() - flights.base();
        let allowed =
            window.saturating_sub(flights.in_flight().into()).min(self.window.saturating_sub(ahead));
        if allowed == 0 || coalescing && self.sender.unsent_bytes() < self.coalesce_threshold() {
            return None;
        }
        let budget = self.batch_budget(now)?;
        // A partly filled frame waits like any other data.
        let first = self.sender.next_encoded(!coalescing)?;
        let (begin, mut memory) = (first.offset as usize, self.sender.lend_frame_buffer(first.buffer));
        let segment = usize::from(first.length);
        let (mut at, mut frames, max_frames) = (0, 0, allowed.min(MAX_SEGMENTS as u64) as u16);
        let mut next = Some(first);
        while let Some(encoded) = next
            && (encoded.buffer, encoded.offset as usize) == (first.buffer, begin + at)
            && usize::from(encoded.length) <= segment
        {
            let length = usize::from(encoded.length);
            // A shorter frame ends the batch.
            let fitting = if length < segment { 1 } else { ((budget - at) / length).max(1) as u16 };
            let count = encoded.count.min(fitting).min(max_frames - frames);
            let end = at + usize::from(count) * length;
            self.complete_encoded(
                now,
                EncodedFrames { count, ..encoded },
                window,
                &mut memory[begin + at..begin + end],
            );
            (at, frames) = (end, frames + count);
            if length < segment || frames == max_frames || at + segment > budget {
                break;
            }
            next = self.sender.next_encoded(!coalescing);
        }
        self.recent_frames.record(&memory[begin..begin + segment]);
        self.sender.return_frame_buffer(first.buffer, memory);
        self.in_place_batch = Some((first.buffer, begin));
        self.statistics.frames_sent += u64::from(frames);
        self.record_departure(now, frames.into(), at);
        Some((at, Segment::of(segment, at)))
    }

    /// Writes numbers and checks into pre-encoded frames and records their transmission.
    #[inline]
    fn complete_encoded(&mut self, now: Instant, encoded: EncodedFrames, window: u64, frames: &mut [u8]) {
        let length = usize::from(encoded.length);
        let mut number = self.sender.flights.next();
        if self.fills_window(window, encoded.count.into()) {
            frames[usize::from(encoded.count - 1) * length] |= ACK_REQUEST;
        }
        let (mut message_bytes, mut rest) = (0, frames);
        while !rest.is_empty() {
            // A sampled frame forms its own group.
            let together =
                (rest.len() / length).min(self.stage_sampler.until_next_sample(StageGroup::FramesOut));
            let (group, more) = rest.split_at_mut(together.max(1) * length);
            let started = if together == 0 { self.stage_sampler.begin(StageGroup::FramesOut) } else { None };
            self.stage_sampler.skip(StageGroup::FramesOut, together as u64);
            message_bytes += frame_buffers::write_numbers(group, length, number);
            let written = self.stage_sampler.next(Stage::Frame, started);
            self.protection.seal_batch(number, group, length);
            self.stage_sampler.end(Stage::Seal, written);
            (number, rest) = (number + together.max(1) as u64, more);
        }
        self.sender.send_encoded(now, EncodedFrames { bytes: message_bytes, ..encoded });
    }

    /// Writes a numbered frame and records its transmission.
    #[inline]
    fn write_frame(
        &mut self,
        now: Instant,
        number: u64,
        requests_ack: bool,
        acknowledges: bool,
        frame: &mut [u8],
    ) {
        let mut flags = if requests_ack { ACK_REQUEST } else { 0 };
        let acknowledged = acknowledges.then(|| self.arrivals.next());
        if acknowledges {
            flags |= ACK | if self.pending_ack.negative { NACK } else { 0 };
            self.statistics.acks_piggybacked += 1;
            self.statistics.nacks_sent += u64::from(self.pending_ack.negative);
            self.clear_pending_ack();
        }
        let started = self.stage_sampler.begin(StageGroup::FramesOut);
        self.sender.write_frame(number, flags, acknowledged, frame);
        if self.fec.is_some() {
            self.protect(now, number, frame);
        }
        let written = self.stage_sampler.next(Stage::Frame, started);
        self.protection.seal_numbered(number, acknowledged, frame);
        self.stage_sampler.end(Stage::Seal, written);
        self.statistics.frames_sent += 1;
        self.statistics.frames_resent +=
            u64::from(self.sender.flights.get(number).is_some_and(|f| f.transmissions > 0));
        self.sender.flights.send(now, number, frame.len());
    }

    /// Returns the number of the frame to send next. It builds a new frame only if `min_bytes` bytes wait or the
    /// coalescing delay has expired; with `piggyback`, the frame has space for an acknowledgement.
    #[inline]
    fn next_frame_number(
        &mut self,
        now: Instant,
        window: u64,
        piggyback: bool,
        min_bytes: usize,
    ) -> Option<u64> {
        if let Some(probe) = self.tail_probe {
            if self.sender.flights.sent_at(probe).is_some() {
                return Some(probe);
            }
            self.tail_probe = None;
        }
        if self.repairs_are_due() || u64::from(self.sender.flights.in_flight()) >= window {
            return None;
        }
        if let Some(number) = self.sender.flights.next_to_send() {
            return Some(number);
        }
        let ahead = self.sender.flights.next() - self.sender.flights.base();
        if !self.sender.can_build_frame() || ahead >= self.window {
            return None;
        }
        if now < self.coalesce_until && self.sender.unsent_bytes() < min_bytes {
            return None;
        }
        let max_body = self.chunk_capacity();
        self.sender.build_frame(if piggyback { max_body - data::PIGGYBACK } else { max_body })
    }

    /// Returns the number of bytes for chunks in a frame.
    #[inline]
    pub(super) fn chunk_capacity(&self) -> usize {
        self.max_frame - data::HEADER - self.check_length - FecState::reserved_bytes(&self.fec)
    }

    /// Returns whether the next `frames` frames fill a window that is too small to reach the peer's acknowledgement
    /// count.
    #[inline]
    pub(super) fn fills_window(&self, window: u64, frames: u64) -> bool {
        window <= self.peer_ack_every && u64::from(self.sender.flights.in_flight()) + frames >= window
    }
}

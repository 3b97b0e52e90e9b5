//! Forward error correction: transmission and reception of repair frames.
//!
//! Repair frames are neither numbered nor acknowledged. They count towards window and pace: the controller controls all
//! traffic, and data gets its share of it. Frames that the receiver rebuilds (recovers) are reported to the sender and
//! count as lost for the controller: hiding the loss would be unfair to other traffic (RFC 9265).

use trunkline_congestion::Loss;
use trunkline_endpoint::{MAX_BATCH, Segment};
use trunkline_units::{Instant, Rate, Span};

use super::{Connection, REORDERING_THRESHOLD};
use crate::CloseReason;
use crate::options::Fec;
use crate::receive::arrivals::Arrival;
use crate::receive::repair::{Block, RebuildOutcome, Rebuilder, RebuiltFrame};
use crate::send::flight::AckSummary;
use crate::send::repair::RepairEncoder;
use crate::wire::data::{Chunks, FrameHeader};
use crate::wire::repair::{self, REPAIR_HEADER, REPAIR_OVERHEAD, RepairHeader};
use crate::wire::{expand, get24, kind};

/// Minimum delay before an incomplete block is closed. The delay is a quarter of a round trip, which is short
/// compared with a retransmission, but no less than this, because timers may expire late.
const MIN_BLOCK_DELAY: Span = Span::from_us(200);

/// Sender and receiver of repair frames.
#[derive(Debug)]
pub(super) struct FecState {
    parameters: Fec,
    encoder: RepairEncoder,
    rebuilder: Rebuilder,
    /// Frames were rebuilt that were not reported to the peer yet.
    has_report: bool,
    /// Rebuilt frames that the peer has reported, modulo 65,536.
    peer_rebuilt: u16,
}

impl FecState {
    /// Returns the state for the parameters that both ends support.
    pub fn negotiate(own: Option<Fec>, peer: Option<Fec>) -> Option<Box<FecState>> {
        let fec = Fec::negotiate(own, peer)?;
        let (encoder, rebuilder) = (RepairEncoder::new(fec), Rebuilder::new(fec));
        Some(Box::new(FecState { parameters: fec, encoder, rebuilder, has_report: false, peer_rebuilt: 0 }))
    }

    /// Returns the bytes by which data frames are shorter than the maximum, so that repair frames fit.
    #[inline]
    pub fn reserved_bytes(fec: &Option<Box<FecState>>) -> usize {
        if fec.is_some() { REPAIR_OVERHEAD } else { 0 }
    }

    /// Returns the reordering threshold: it includes the block, otherwise a frame would be retransmitted before its
    /// repair frames can arrive.
    pub fn reordering_threshold(fec: &Option<Box<FecState>>) -> u64 {
        fec.as_ref()
            .map_or(REORDERING_THRESHOLD, |fec| REORDERING_THRESHOLD + u64::from(fec.parameters.frames))
    }
}

/// Sender.
impl Connection {
    /// Adds a frame to its block at its first transmission, before its check is written.
    pub(super) fn protect(&mut self, now: Instant, number: u64, frame: &[u8]) {
        let delay = self.block_delay();
        let is_first_transmission =
            self.sender.flights.get(number).is_some_and(|flight| flight.transmissions == 0);
        if let Some(fec) = &mut self.fec
            && is_first_transmission
        {
            let body = &frame[..frame.len() - self.check_length];
            fec.encoder.add(number, body, now + delay);
        }
    }

    /// Returns whether repair frames must be sent before further data.
    #[inline]
    pub(super) fn repairs_are_due(&self) -> bool {
        self.fec.as_ref().is_some_and(|fec| fec.encoder.is_due())
    }

    /// Returns when repair frames are sent or an incomplete block is closed.
    #[inline]
    pub(super) fn repairs_due_at(&self) -> Instant {
        match &self.fec {
            None => Instant::MAX,
            Some(fec) if fec.encoder.is_due() && self.pace.is_some() => self.pace_at,
            Some(fec) if fec.encoder.is_due() => Instant::ZERO,
            Some(fec) => fec.encoder.close_at,
        }
    }

    /// Returns how long an incomplete block waits for another frame.
    fn block_delay(&self) -> Span {
        let round_trip = self.rtt.smoothed().unwrap_or(self.options.timeout.initial);
        (round_trip / 4).max(MIN_BLOCK_DELAY)
    }

    /// Closes an incomplete FEC block after its delay, so that its repair frames are sent, if there is no data to
    /// send: data that waits only for pace or window will join the block.
    #[inline]
    pub(super) fn flush_fec_block(&mut self, now: Instant) {
        if self.fec.as_ref().is_none_or(|fec| fec.encoder.close_at > now) {
            return;
        }
        let flights = &self.sender.flights;
        let (acknowledged, no_data) =
            (flights.base(), !self.sender.can_build_frame() && flights.next_to_send().is_none());
        let postponed_to = now + self.block_delay();
        let Some(fec) = &mut self.fec else { return };
        if no_data {
            fec.encoder.close(acknowledged);
        } else {
            fec.encoder.close_at = postponed_to;
        }
    }

    /// Writes the repair frames that are due and may be sent now; they have equal lengths.
    #[inline]
    pub(super) fn send_repairs(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(usize, Option<Segment>)> {
        let is_paced = self.is_paced(now);
        let fec = self.fec.as_mut()?;
        if !fec.encoder.is_due() || is_paced {
            return None;
        }
        let check = self.check_length;
        let (mut at, mut segment) = (0, 0);
        while let Some((first, length)) = fec.encoder.next()
            && at + length + check <= MAX_BATCH
        {
            segment = length + check;
            let frame = &mut buffer[at..at + segment];
            fec.encoder.write(frame);
            self.protection.seal_body(first, REPAIR_HEADER, frame);
            self.statistics.repairs_sent += 1;
            at += segment;
        }
        self.advance_pace(now, Span::ZERO, at);
        self.statistics.bytes_sent += at as u64;
        Some((at, Segment::of(segment, at)))
    }

    /// Returns the part of a window that data frames may use.
    #[inline]
    pub(super) fn data_window(&self, frames: u32) -> u64 {
        match &self.fec {
            None => frames.into(),
            Some(fec) => {
                let (data, repairs) = (u64::from(fec.parameters.frames), u64::from(fec.parameters.repairs));
                (u64::from(frames) * data / (data + repairs)).max(1)
            }
        }
    }

    /// Returns the rate of all frames if data frames arrive at `rate`.
    pub(super) fn total_rate(&self, rate: Rate) -> Rate {
        match &self.fec {
            None => rate,
            Some(fec) => {
                let (data, repairs) = (u128::from(fec.parameters.frames), u128::from(fec.parameters.repairs));
                let bps = u128::from(rate.as_bps()) * (data + repairs) / data;
                Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
            }
        }
    }

    /// Processes the peer's total of rebuilt frames; returns the increase. Their bytes do not count as delivered.
    pub(super) fn process_rebuilt_count(&mut self, count: u16, summary: &mut AckSummary) -> u32 {
        let Some(fec) = &mut self.fec else { return 0 };
        // A reordered acknowledgement has an older count.
        let increase = (count.wrapping_sub(fec.peer_rebuilt) as i16).max(0) as u16;
        fec.peer_rebuilt = fec.peer_rebuilt.wrapping_add(increase);
        summary.rebuilt = summary.frames.min(increase.into());
        summary.bytes -= summary.bytes * u64::from(summary.rebuilt) / u64::from(summary.frames.max(1));
        increase.into()
    }

    /// Reports rebuilt frames to the controller as lost, near the frames that were just acknowledged.
    pub(super) fn report_rebuilt(&mut self, now: Instant, frames: u32, summary: &AckSummary) {
        let sent_at = summary.sent_at().unwrap_or(now);
        let (bytes, in_flight) = (u64::from(frames) * self.max_frame as u64, self.sender.flights.in_flight());
        self.sender.flights.count_rebuilt(frames);
        let since_sent = self.sender.flights.since_acked(summary);
        self.reduce(&Loss { now, amount: frames, bytes, sent_at, in_flight, timeout: false, since_sent });
    }
}

/// Receiver.
impl Connection {
    /// Stores a new frame; it may help to rebuild another.
    pub(super) fn store_for_repair(&mut self, now: Instant, number: u64, first_byte: u8, chunks: &[u8]) {
        let Some(fec) = &mut self.fec else { return };
        fec.rebuilder.store(number, first_byte, chunks);
        if fec.rebuilder.has_pending() {
            self.rebuild(now);
        }
    }

    pub(super) fn receive_repair(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(get24) else { return self.statistics.bad_checksums += 1 };
        let first = expand(low, self.arrivals.next());
        match self.protection.open_body(first, REPAIR_HEADER, frame) {
            Ok(body) => {
                self.process_repair(now, first, &body);
                self.protection.recycle(body);
            }
            // It is not requested again: a repair frame is never retransmitted.
            Err(error) => self.count_rejected(error),
        }
    }

    /// Processes the contents of a repair frame of the block that starts at `first`.
    fn process_repair(&mut self, now: Instant, first: u64, body: &[u8]) {
        let Some((RepairHeader { row, frames, .. }, symbol)) = RepairHeader::read(body) else {
            return self.statistics.malformed += 1;
        };
        self.record_activity(now);
        if self.close_reason.is_some_and(|reason| reason != CloseReason::Completed) {
            return;
        }
        // The sender cannot have sent frames outside the window.
        let last = first.checked_add(u64::from(frames) - 1);
        let is_inside = last.is_some_and(|last| self.arrivals.classify(last) != Arrival::OutsideWindow);
        let Some(fec) = self.fec.as_mut().filter(|_| is_inside) else {
            return self.statistics.malformed += 1;
        };
        if !fec.rebuilder.add_repair(Block { first, frames }, row, symbol) {
            return self.statistics.malformed += 1;
        }
        self.statistics.repairs_received += 1;
        self.rebuild(now);
    }

    /// Rebuilds missing frames and processes them like received ones.
    fn rebuild(&mut self, now: Instant) {
        while let Some(fec) = &mut self.fec {
            match fec.rebuilder.rebuild(&self.arrivals) {
                RebuildOutcome::Nothing => return,
                RebuildOutcome::Inconsistent => self.statistics.malformed += 1,
                RebuildOutcome::Frames(frames) => {
                    frames.into_iter().for_each(|frame| self.process_rebuilt(now, frame))
                }
            }
        }
    }

    fn process_rebuilt(&mut self, now: Instant, rebuilt: RebuiltFrame) {
        let RebuiltFrame { number, first_byte, chunks } = rebuilt;
        let flags = first_byte & !repair::MUTABLE_FLAGS & 31;
        let head = FrameHeader {
            kind: kind(first_byte),
            flags,
            number: number as u32 & 0xFF_FFFF,
            acknowledged: None,
        };
        let Some(chunks) = Chunks::read(&head, &chunks).filter(|_| head.is_numbered()) else {
            return self.statistics.malformed += 1;
        };
        if self.close_reason.is_some_and(|reason| reason != CloseReason::Completed) {
            return;
        }
        let arrival = self.arrivals.classify(number);
        if matches!(arrival, Arrival::Duplicate | Arrival::OutsideWindow) {
            return;
        }
        self.arrivals.record(number);
        self.statistics.frames_rebuilt += 1;
        if let Some(fec) = &mut self.fec {
            fec.has_report = true;
        }
        self.schedule_ack(now, arrival, true);
        self.process_chunks(number, chunks);
        if self.closing.peer_finish.is_some() {
            self.advance_closing();
        }
    }

    /// Returns whether a separate acknowledgement must report rebuilt frames.
    #[inline]
    pub(super) fn has_repair_report(&self) -> bool {
        self.fec.as_ref().is_some_and(|fec| fec.has_report)
    }

    /// Returns the number of rebuilt frames for an acknowledgement, if there are any.
    pub(super) fn rebuilt_count(&mut self) -> Option<u16> {
        let fec = self.fec.as_mut()?;
        fec.has_report = false;
        (self.statistics.frames_rebuilt > 0).then_some(self.statistics.frames_rebuilt as u16)
    }
}

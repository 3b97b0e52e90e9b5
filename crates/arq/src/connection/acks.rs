//! Acknowledgements: creation and processing.

use trunkline_congestion::{Acknowledgement, Loss};
use trunkline_units::{Instant, Span};

use super::timers::Timer;
use super::{Connection, REORDERING_THRESHOLD};
use crate::options::Mode;
use crate::send::flight::{AckSummary, LossSummary};
use crate::wire::ack::{self, Ack, DUPLICATE};
use crate::wire::data::NACK;
use crate::wire::{epoch, expand, get24};

/// The acknowledgement owed to the peer; [`Timer::Ack`] is the latest time of its transmission.
#[derive(Debug, Default)]
pub(super) struct PendingAck {
    /// Frames received since the last acknowledgement.
    pub frames: u32,
    /// It requests the first missing frame.
    pub negative: bool,
    /// A duplicate has arrived, which go-back-N answers with a negative acknowledgement of the next frame (table 1 of
    /// the 1998 paper). It requests nothing, because the frames after the duplicate may be in transit.
    pub duplicate: bool,
    /// The first missing frame was requested, which happens once until a frame is accepted.
    pub nack_sent: bool,
    /// Duplicates received since the connection opened, modulo 256.
    pub duplicates: u8,
    /// Arrival time of the last accepted frame.
    pub last_arrival: Instant,
}

impl Connection {
    /// Clears the owed acknowledgement after it was sent.
    #[inline]
    pub(super) fn clear_pending_ack(&mut self) {
        self.pending_ack.frames = 0;
        (self.pending_ack.negative, self.pending_ack.duplicate) = (false, false);
        self.timers.stop(Timer::Ack);
    }

    /// Writes an acknowledgement frame and returns its length.
    pub(super) fn write_ack(&mut self, now: Instant, frame: &mut [u8]) -> usize {
        let next = self.arrivals.next();
        let delay = now.since(self.pending_ack.last_arrival).as_ps() / 1_000_000;
        let delay = u16::try_from(delay).unwrap_or(u16::MAX);
        let flags = match (self.pending_ack.negative, self.pending_ack.duplicate) {
            (true, _) => NACK,
            (false, true) => NACK | DUPLICATE,
            (false, false) => 0,
        };
        let rebuilt = self.rebuilt_count();
        let rebuilt_bytes = rebuilt.map_or(0, |_| ack::REBUILT_BYTES);
        // The frame is no longer than what every path carries.
        let range_bytes = self.base_frame - ack::HEADER - rebuilt_bytes - self.check_length;
        let ranges = self.arrivals.ranges().take(range_bytes / 4);
        let length = ack::write(next, flags, delay, self.pending_ack.duplicates, rebuilt, ranges, frame);
        let length = length + self.check_length;
        self.protection.seal(epoch(next), &mut frame[..length]);
        self.statistics.acks_forced += 1;
        self.statistics.nacks_sent += u64::from(flags != 0 || self.arrivals.has_gap());
        self.clear_pending_ack();
        length
    }

    pub(super) fn receive_ack(&mut self, now: Instant, frame: &[u8]) {
        let near = self.sender.flights.base();
        let Some(low) = frame.get(1..4).map(get24) else { return self.statistics.bad_checksums += 1 };
        let cumulative = expand(low, near);
        let body = match self.protection.open(epoch(cumulative), frame) {
            Ok(body) => body,
            // No negative acknowledgement: an acknowledgement is never retransmitted.
            Err(error) => return self.count_rejected(error),
        };
        let Some(ack) = Ack::read(body) else { return self.statistics.malformed += 1 };
        self.record_activity(now);
        self.statistics.acks_received_forced += 1;
        self.statistics.nacks_received +=
            u64::from(ack.negative || ack.duplicate || ack.ranges().next().is_some());
        let mut summary = AckSummary::default();
        let unsent = self.sender.flights.unsent();
        if cumulative > unsent || ack.rebuilt.is_some() && self.fec.is_none() {
            return self.statistics.malformed += 1;
        }
        self.sender.acknowledge_until(cumulative, &mut summary);
        let mut at = cumulative;
        for (missing, arrived) in ack.ranges() {
            at += u64::from(missing);
            let end = at + u64::from(arrived);
            self.sender.flights.acknowledge(at, end.min(unsent), &mut summary);
            at = end;
        }
        // A reordered acknowledgement has an older count.
        let new_duplicates = ack.duplicates.wrapping_sub(self.reported_duplicates) as i8;
        if new_duplicates > 0 {
            self.reported_duplicates = ack.duplicates;
        }
        if new_duplicates > 0 && std::mem::take(&mut self.early_retransmissions) > 0 {
            // A frame was reordered and not lost: widen the thresholds.
            self.rtt.on_spurious_retransmission();
            self.reordering_threshold =
                (self.reordering_threshold * 2).min(self.window.max(REORDERING_THRESHOLD));
        }
        let rebuilt = ack.rebuilt.map_or(0, |count| self.process_rebuilt_count(count, &mut summary));
        let delay = Span::from_us(ack.delay.into());
        self.process_summary(now, summary, Some(delay), ack.negative.then_some(cumulative));
        if rebuilt > 0 {
            self.report_rebuilt(now, rebuilt, &summary);
        }
    }

    /// Processes an acknowledgement in a data frame.
    #[inline]
    pub(super) fn process_piggybacked_ack(&mut self, now: Instant, low: u32, negative: bool) {
        let cumulative = expand(low, self.sender.flights.base());
        self.statistics.acks_received_piggybacked += 1;
        self.statistics.nacks_received += u64::from(negative);
        if cumulative > self.sender.flights.unsent() {
            return self.statistics.malformed += 1;
        }
        let mut summary = AckSummary::default();
        self.sender.acknowledge_until(cumulative, &mut summary);
        self.process_summary(now, summary, None, negative.then_some(cumulative));
    }

    /// Updates all state after an acknowledgement. `delay` is the peer's acknowledgement delay, if known; `requested`
    /// is the frame that a negative acknowledgement requests.
    #[inline]
    fn process_summary(
        &mut self,
        now: Instant,
        summary: AckSummary,
        delay: Option<Span>,
        requested: Option<u64>,
    ) {
        if summary.frames > 0 {
            self.record_acked_length(&summary);
            let in_flight = self.sender.flights.in_flight() + summary.frames;
            // A rebuilt frame arrives later than the path delay.
            let sent_once_at = summary.sent_once_at().filter(|_| summary.rebuilt == 0);
            if let Some(sent_at) = sent_once_at {
                let elapsed = now.since(sent_at);
                let delay = delay.unwrap_or(Span::ZERO).min(self.peer_ack_delay);
                self.sample_round_trip(now, Span::from_ps(elapsed.as_ps().saturating_sub(delay.as_ps())));
            }
            let round_trip = sent_once_at.and(self.rtt.latest());
            let sent_at = summary.sent_at().unwrap_or(now);
            let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
            let rate =
                self.sender.flights.update_delivery(now, &summary, min_rtt, self.retransmission_ack_delay());
            let rate = rate.map(|rate| self.total_rate(rate));
            let since_sent = self.sender.flights.since_acked(&summary);
            self.report_acked(Acknowledgement {
                now,
                amount: summary.frames - summary.rebuilt,
                bytes: summary.bytes,
                marked: 0,
                in_flight,
                round_trip,
                rate,
                app_limited: self.sender.unsent_bytes() == 0,
                since_sent,
                in_recovery: false,
                peer_amount: self.peer_frames,
                sent_at,
            });
            self.arm_retransmit_timer(now);
            if summary.advanced {
                self.advance_closing();
            }
        }
        match self.options.mode {
            Mode::Selective => self.detect_losses(now, requested),
            Mode::GoBackN | Mode::StopAndWait => {
                if let Some(number) = requested {
                    self.go_back(now, number, summary.frames > 0);
                }
            }
        }
    }

    /// Reports acknowledged frames to the controller, and ends a timeout or recovery that they end.
    #[inline(always)]
    pub(super) fn report_acked(&mut self, acked: Acknowledgement) {
        self.peer_frames = 0;
        if self.controller.on_ack(&acked) {
            self.update_limits();
        }
        self.timeouts_in_a_row = 0;
        if self.recovery_end.is_some_and(|number| self.sender.flights.base() >= number) {
            self.recovery_end = None;
            self.rtt.on_recovery();
        }
    }

    /// Adds the round-trip time of a frame that was sent only once.
    #[inline]
    pub(super) fn sample_round_trip(&mut self, now: Instant, round_trip: Span) {
        (self.backoff_exponent, self.is_rtt_uncertain) = (0, false);
        self.rtt.sample(now, round_trip);
    }

    /// Returns the age from which on an acknowledgement of a retransmitted frame is attributed to the retransmission
    /// and not to the first transmission. After a timeout it is infinite until the next round-trip sample (Karn): if
    /// the timeout was too short, all frames were retransmitted while still in transit; each acknowledgement would
    /// make the remaining frames look lost, and the retransmissions would never end.
    pub(super) fn retransmission_ack_delay(&self) -> Span {
        if self.is_rtt_uncertain {
            return Span::MAX;
        }
        let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
        min_rtt.max(self.rtt.smoothed().unwrap_or(Span::ZERO) / 2)
    }

    /// Declares frames lost that were sent well before a frame that has arrived. `requested` is the frame that a
    /// negative acknowledgement requests.
    pub(super) fn detect_losses(&mut self, now: Instant, requested: Option<u64>) {
        let round_trip = self.rtt.latest().max(self.rtt.smoothed()).unwrap_or(self.options.timeout.initial);
        let max_age = round_trip + self.rtt.reordering_window();
        let in_flight = self.sender.flights.in_flight();
        let mut lost = LossSummary::default();
        let next = self.sender.flights.detect_lost(now, self.reordering_threshold, max_age, &mut lost);
        self.timers.set(Timer::Loss, next.unwrap_or(Instant::MAX));
        // The peer received a damaged frame. If only one frame is in flight, it must be that one, though no later
        // frame has arrived.
        if let Some(number) = requested
            && in_flight == 1
            && lost.frames == 0
            && self.was_in_transit(now, number)
        {
            self.sender.flights.mark_lost(number, &mut lost);
        }
        if lost.frames > 0 {
            self.early_retransmissions += lost.frames;
            self.recovery_end.get_or_insert(self.sender.flights.unsent());
            self.report_loss(now, lost, in_flight, false);
        }
    }

    /// Retransmits `number` and all frames after it (go-back-N) unless they were retransmitted already. A request is
    /// served once until a timeout: otherwise each needless retransmission would cause another negative
    /// acknowledgement and more retransmissions. `acknowledges` says whether the request acknowledges frames that were
    /// not acknowledged before.
    ///
    /// After a timeout everything in flight has been sent twice, so there may be no round-trip sample for long. Until
    /// then the minimum round-trip time may be wrong, and a request that acknowledges frames is served in any case. It
    /// also reverts one doubling of the timeout, because the path is alive and did lose a frame.
    fn go_back(&mut self, now: Instant, number: u64, acknowledges: bool) {
        let is_uncertain = acknowledges && self.is_rtt_uncertain;
        let is_in_flight = self.sender.flights.sent_at(number).is_some();
        let is_lost = self.was_in_transit(now, number) || is_in_flight && is_uncertain;
        if self.last_go_back != Some(number) && is_lost {
            self.last_go_back = Some(number);
            if is_uncertain {
                self.backoff_exponent = self.backoff_exponent.saturating_sub(1);
                self.arm_retransmit_timer(now);
            }
            let in_flight = self.sender.flights.in_flight();
            let mut lost = LossSummary::default();
            self.sender.flights.mark_all_lost(&mut lost);
            self.report_loss(now, lost, in_flight, false);
        }
    }

    /// Returns whether the last transmission of a frame was sent early enough to be the one that the peer missed.
    fn was_in_transit(&self, now: Instant, number: u64) -> bool {
        let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
        self.sender.flights.sent_at(number).is_some_and(|sent_at| sent_at + min_rtt <= now)
    }

    /// Reports a loss to the controller.
    pub(super) fn reduce(&mut self, lost: &Loss) {
        self.controller.on_lost(lost);
        self.update_limits();
    }

    /// Reports lost frames to the controller; `in_flight` is the number of frames in flight before.
    pub(super) fn report_loss(&mut self, now: Instant, lost: LossSummary, in_flight: u32, timeout: bool) {
        self.statistics.lost += u64::from(lost.frames);
        let LossSummary { frames: amount, bytes, sent_at, .. } = lost;
        let since_sent = self.sender.flights.since_lost(&lost);
        self.reduce(&Loss { now, amount, bytes, sent_at, in_flight, timeout, since_sent });
        if !timeout {
            self.check_lost_lengths(now, &lost);
        }
    }

    /// Reads the limits of the controller, which change only after a report.
    #[inline(always)]
    pub(super) fn update_limits(&mut self) {
        self.effective_window = self.data_window(self.controller.window()).min(self.window);
        self.pace = self.controller.pace();
    }
}

//! Acknowledgements, loss detection and recovery of an end with extensions.
//!
//! | clause | implementation |
//! | --- | --- |
//! | RFC 6675 sections 3 to 5, without rules 3 and 4 of `NextSeg` | [`Tcp::process_ack_extended`], [`Tcp::retransmit_lost`] |
//! | RFC 6582, without selective acknowledgements | the same: a partial acknowledgement shows the next loss |
//! | RFC 3042 | duplicate acknowledgements leave room in the window |
//! | RFC 6937 | `RateReduction` |
//! | RFC 8985 section 6 | `rack`; with coarse timers or the controller of 4.3BSD only for retransmissions and after a probe: `Scoreboard::detect_lost_retransmissions`, `detect_older` |
//! | RFC 3522, RFC 4015 | [`Tcp::check_spurious`] |
//! | RFC 3168 section 6.1.2, RFC 9768 section 3.2 | [`Tcp::count_marks`] |

use trunkline_congestion::{Acknowledgement, Transmission};
use trunkline_units::{Instant, Span};

use crate::Content;
use crate::extensions::probe::Probe;
use crate::extensions::rate::RateSample;
use crate::extensions::receiver::timestamp;
use crate::extensions::scoreboard::{Delivery, Losses};
use crate::extensions::{Extensions, Phase, RateReduction};
use crate::input::DUPLICATE_ACK_THRESHOLD;
use crate::options::EcnFeedback;
use crate::segment::Seq;
use crate::tcp::Tcp;
use crate::time::OFF;

impl<C: Content> Tcp<C> {
    /// Header prediction: returns whether the segment that is being processed cannot acknowledge anything: nothing is sent, no
    /// loss is being repaired, and nothing is reported but what it carries.
    #[inline]
    pub(crate) fn expects_no_ack(&self) -> bool {
        let Some(e) = self.extensions.as_deref().filter(|_| self.queued == 0) else { return false };
        e.received.block_count == 0
            && !e.received_echo
            && e.accurate.is_none()
            && e.phase == Phase::Open
            && !e.probe.is_sent()
            && e.rack.expires_at.is_none()
    }

    /// Processes an acknowledgement, of new data or not, with its blocks. `window` is the window that it advertises; `empty`
    /// says whether the segment carries nothing else.
    #[inline(never)]
    pub(crate) fn process_ack_extended(&mut self, now: Instant, ack: Seq, window: u32, empty: bool) {
        let Some(mut extensions) = self.extensions.take() else { return };
        let e = &mut *extensions;
        let (mss, is_new) = (self.maxseg, ack.after(self.snd_una));
        let (in_flight, duplicates) = (e.pipe(mss), e.duplicates);
        let highest_before = e.scoreboard.highest_sacked();
        let mut delivery = Delivery { highest_before, ..Delivery::default() };
        self.record_delivery(e, ack, &mut delivery);
        let is_duplicate = !is_new
            && ack == self.snd_una
            && self.snd_max != self.snd_una
            && empty
            && (window == self.snd_wnd || e.received.block_count > 0);
        self.counts.duplicate_acks += u64::from(is_duplicate);
        self.dupacks = if is_duplicate { self.dupacks.saturating_add(1) } else { 0 };
        let delivered = if e.sack {
            delivery.bytes
        } else if is_new {
            let segments = delivery.bytes.div_ceil(mss);
            e.duplicates = duplicates.saturating_sub(segments.saturating_sub(1));
            delivery.bytes.saturating_sub(duplicates.saturating_mul(mss))
        } else if is_duplicate {
            e.duplicates = (duplicates + 1).min(in_flight / mss + duplicates);
            mss
        } else {
            0
        };
        if is_new {
            self.check_spurious(now, e, ack);
        }
        let round_trip = self.sample_round_trip(now, e, ack, &delivery);
        let sample = delivery.newest.as_ref().map_or(RateSample::default(), |newest| {
            let sent = (newest.sent_at, &newest.state);
            e.scoreboard.rate.on_delivery(now, delivery.bytes, sent, e.min_rtt.get())
        });
        let smoothed = self.time.span(self.rtt.mean_eighths()) / 8;
        let mut losses = match e.rack.is_active {
            true => e.detect_by_rack(now, &delivery, smoothed),
            false => Self::detect_losses(e, ack, is_new, mss, &delivery),
        };
        let is_bare = !is_new && ack == self.snd_una && empty && e.received.block_count == 0;
        if e.probe.is_sent() {
            losses.join(e.check_probe(now, ack, (is_bare, in_flight, smoothed), &delivery));
        }
        let marked = self.count_marks(e, ack, delivery.bytes);
        self.counts.marked_bytes += u64::from(marked);
        if delivery.bytes > 0 || marked > 0 {
            e.controller.on_ack(&Acknowledgement {
                now,
                amount: delivery.bytes,
                bytes: delivery.bytes.into(),
                marked,
                in_flight,
                round_trip,
                rate: sample.rate,
                app_limited: sample.app_limited,
                since_sent: sample.since_sent,
                // Linux counts the acknowledgement that ends a recovery.
                in_recovery: matches!(e.phase, Phase::Recovery { end } if !self.options.linux || ack.before(end)),
                peer_amount: 0,
                sent_at: delivery.sent_at().unwrap_or(now),
            });
        }
        if let Phase::Recovery { end } | Phase::Timeout { end } = e.phase
            && !ack.before(end)
        {
            if self.reduces_once(e) {
                // What was lost since, and is not repaired, begins another recovery.
                losses.join(Losses { bytes: e.scoreboard.lost(), sent_at: now, state: None });
            }
            (e.phase, e.duplicates) = (Phase::Open, 0);
            e.rack.end_recovery();
        }
        let begins = self.process_losses(now, e, losses, in_flight);
        if let Phase::Recovery { .. } = e.phase {
            e.reduction.update(delivered, e.pipe(mss), e.controller.window(), mss);
        } else if is_new && e.phase == Phase::Open {
            e.duplicates = 0;
        }
        self.extensions = Some(extensions);
        self.request_output();
        if is_new {
            self.acknowledge_sent(now, ack);
        } else if begins && self.deadlines.persist == OFF {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        }
        if is_new || delivery.bytes > 0 {
            self.arm_loss_timer(now);
        }
    }

    /// Returns whether this is a recovery in which losses reduce the window no more, as in Linux.
    fn reduces_once(&self, e: &Extensions) -> bool {
        let is_recovery = matches!(e.phase, Phase::Recovery { .. });
        self.options.linux && is_recovery && !e.controller.controls_recovery()
    }

    /// Reports losses to the controller, and begins their repair; returns whether it begins.
    pub(crate) fn process_losses(
        &mut self,
        now: Instant,
        e: &mut Extensions,
        losses: Losses,
        in_flight: u32,
    ) -> bool {
        let begins = losses.bytes > 0 && e.phase == Phase::Open;
        if losses.bytes > 0 && !self.reduces_once(e) {
            e.report_loss(now, losses, in_flight, false);
        }
        if begins {
            e.phase = Phase::Recovery { end: self.snd_max };
            e.reduction = RateReduction::start(in_flight);
            (e.first_retransmission, e.retransmitted) = (None, false);
            self.counts.fast_retransmits += 1;
        }
        begins
    }

    /// Records what an acknowledgement and its blocks report. Blocks outside the data in flight are ignored.
    #[inline]
    fn record_delivery(&self, e: &mut Extensions, ack: Seq, delivery: &mut Delivery) {
        if e.sack {
            let low = if ack.after(self.snd_una) { ack } else { self.snd_una };
            for index in 0..e.received.block_count {
                let (start, end) = e.received.blocks[index];
                if start.before(end) && !start.before(low) && !end.after(self.snd_max) {
                    e.scoreboard.sack(start, end, delivery);
                }
            }
        }
        if ack.after(self.snd_una) {
            e.scoreboard.acknowledge(ack, delivery);
        }
    }

    /// Measures the round-trip time: of the last segment that was sent once, or by the echoed timestamp.
    fn sample_round_trip(
        &mut self,
        now: Instant,
        e: &mut Extensions,
        ack: Seq,
        delivery: &Delivery,
    ) -> Option<Span> {
        let is_new = ack.after(self.snd_una);
        let echo = e.timestamps.and(e.received.timestamps).map_or(0, |(_, echo)| echo);
        let by_timestamp = || {
            let ms = timestamp(now).wrapping_sub(echo);
            (is_new && echo != 0 && ms < 1 << 31).then(|| Span::from_ms(ms.into()))
        };
        if std::mem::take(&mut self.timing) && is_new {
            // The SYN.
            self.rtt.sample(self.time.between(self.timed_at, now));
            self.counts.round_trips += 1;
            e.controller.on_handshake(now, now.since(self.timed_at));
        }
        let round_trip = delivery.unambiguous.map(|sent_at| now.since(sent_at)).or_else(by_timestamp)?;
        // Linux smooths the round trips of the first segments, with the delay of their acknowledgements, and gives the controller
        // those of the last.
        let first = delivery.first_unambiguous.filter(|_| self.options.linux);
        let smoothed = first.map_or(round_trip, |sent_at| now.since(sent_at));
        self.rtt.sample(self.time.between(now - smoothed, now));
        self.counts.round_trips += 1;
        e.min_rtt.sample(now, round_trip);
        Some(round_trip)
    }

    /// Ends a recovery that was not needed: the first acknowledgement of the first retransmission echoes a timestamp from
    /// before it, so it acknowledges the original (RFC 3522). The controller returns to its window (RFC 4015).
    fn check_spurious(&mut self, now: Instant, e: &mut Extensions, ack: Seq) {
        // Before that, data of an earlier recovery is acknowledged.
        let first = e.first_retransmission.take_if(|(_, start)| ack.after(*start));
        let (Some((retransmitted, _)), Some((_, echo))) = (first, e.received.timestamps) else { return };
        if e.phase != Phase::Open && echo != 0 && (echo.wrapping_sub(retransmitted) as i32) < 0 {
            e.controller.on_spurious(now);
            e.scoreboard.revive();
            e.rack.widen();
            (e.phase, e.duplicates) = (Phase::Open, 0);
            self.counts.spurious_recoveries += 1;
        }
    }

    fn detect_losses(e: &mut Extensions, ack: Seq, is_new: bool, mss: u32, delivery: &Delivery) -> Losses {
        let mut losses = Losses::default();
        if e.sack {
            e.scoreboard.detect_losses(mss, &mut losses);
            if let Some(sent_at) = delivery.sent_at() {
                e.scoreboard.detect_lost_retransmissions(sent_at, &mut losses);
            }
            return losses;
        }
        match e.phase {
            Phase::Open if !is_new && e.duplicates >= DUPLICATE_ACK_THRESHOLD => {
                e.scoreboard.lose_first(&mut losses)
            }
            // A partial acknowledgement: the next segment was lost too, in the same window.
            Phase::Recovery { end } if is_new && ack.before(end) => e.scoreboard.lose_first(&mut losses),
            _ => {}
        }
        losses
    }

    /// Returns how much of the delivered bytes the controller counts as marked. The feedback of RFC 3168 repeats a mark until
    /// it is confirmed, so it counts once per window.
    fn count_marks(&self, e: &mut Extensions, ack: Seq, delivered: u32) -> u32 {
        if let Some(accurate) = &mut e.accurate {
            let (ace, option) = (e.received_ace, e.received.ecn_bytes);
            let is_old = ack.before(self.snd_una);
            return if is_old { 0 } else { accurate.marked(ace, option, delivered, self.maxseg) };
        }
        e.marks_answered = e.marks_answered.filter(|answered| !ack.after(*answered));
        let is_answered = e.ecn == Some(EcnFeedback::Classic) && e.marks_answered.is_some();
        if !e.received_echo || is_answered {
            return 0;
        }
        e.marks_answered = Some(self.snd_max);
        e.confirm_reduction = true;
        delivered.max(1)
    }

    /// Declares everything in flight lost, after a timeout or because the peer has closed its window.
    pub(crate) fn lose_all(&mut self, now: Instant, timeout: bool) {
        let (mss, snd_max) = (self.maxseg, self.snd_max);
        let Some(e) = self.extensions.as_deref_mut() else { return };
        e.probe = Probe::default();
        (e.rack.expires_at, e.rack.is_armed) = (None, false);
        let (in_flight, sent_at) = (e.pipe(mss), e.scoreboard.last_sent_at());
        let mut losses = Losses::default();
        e.scoreboard.lose_all(&mut losses);
        (e.phase, e.duplicates) = (Phase::Timeout { end: snd_max }, 0);
        // A closed window is not reported to the controller, which has nothing to undo.
        (e.first_retransmission, e.retransmitted) = (None, !timeout);
        if timeout {
            e.report_loss(now, Losses { sent_at, ..losses }, in_flight, true);
        }
    }

    /// Records that new data was sent.
    #[cold]
    pub(crate) fn record_sent(&mut self, now: Instant, start: Seq, end: Seq, probe: bool) {
        let mss = self.maxseg;
        let Some(e) = self.extensions.as_deref_mut() else { return };
        if probe {
            return e.scoreboard.sent_probe(start, end, now);
        }
        let amount = end.since(start);
        e.scoreboard.sent(start, end, now);
        e.reduction.sent += u64::from(amount);
        e.burst.remaining = e.burst.remaining.saturating_sub(1);
        e.pace(now, amount);
        let in_flight = e.pipe(mss);
        e.controller.on_sent(&Transmission { now, amount, bytes: amount.into(), in_flight });
    }

    /// Sends the next segment that is lost, if there is one and the windows allow it.
    #[inline]
    pub(crate) fn retransmit_lost(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.extensions.as_deref().filter(|e| e.scoreboard.awaiting() > 0)?;
        self.retransmit_first_lost(now, buffer)
    }

    #[inline(never)]
    fn retransmit_first_lost(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let segment = self.segment_size();
        let e = self.extensions.as_deref_mut()?;
        let awaiting = e.scoreboard.awaiting();
        let room = e.window().saturating_sub(e.pipe(self.maxseg));
        if room < segment.min(awaiting) {
            return None;
        }
        let (start, length) = e.scoreboard.next_lost(segment)?;
        // A timer for a reordering window keeps its time.
        let is_recovery = matches!(e.phase, Phase::Recovery { .. }) && !e.rack.is_armed;
        let sent = self.retransmit_range(now, start, length, buffer)?;
        // The first segment has a whole timeout from its retransmission on, as in Linux: in a long recovery it may have waited
        // for most of one.
        if is_recovery && start == self.snd_una && self.deadlines.retransmit != OFF {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        }
        Some(sent)
    }

    /// Sends data again, as far as the peer's window allows; a FIN too if it belongs to the range.
    pub(crate) fn retransmit_range(
        &mut self,
        now: Instant,
        start: Seq,
        length: u32,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let offset = start.since(self.snd_una);
        let data = length.min(self.queued.saturating_sub(offset));
        if data > 0 && offset >= self.snd_wnd {
            return None;
        }
        let data = data.min(self.snd_wnd.saturating_sub(offset));
        let fin = self.fin_sent && offset + data == self.queued && length > data;
        if data == 0 && !fin {
            return None;
        }
        let next = self.snd_nxt;
        self.snd_nxt = start;
        let sent = self.emit_again::<true>(now, data, fin, buffer);
        self.snd_nxt = next;
        let numbers = data + u32::from(fin);
        if let Some(e) = self.extensions.as_deref_mut() {
            e.scoreboard.retransmitted(start, start + numbers, now);
            e.reduction.sent += u64::from(numbers);
            e.pace(now, numbers);
            if e.timestamps.is_some() && e.phase != Phase::Open && !e.retransmitted {
                (e.first_retransmission, e.retransmitted) = (Some((timestamp(now), start)), true);
            }
        }
        Some(sent)
    }
}

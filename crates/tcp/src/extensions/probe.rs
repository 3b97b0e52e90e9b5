//! Tail loss probes (RFC 8985 section 7): the last segment of a flight, or a new one, is sent after two round trips without an
//! acknowledgement, so that a loss at the end of a flight is repaired without a timeout.
//!
//! The timer is that of retransmissions, which also expires for the reordering window of `rack`; that goes first. It needs
//! selective acknowledgements and exact timers.

use trunkline_units::{Instant, Span};

use crate::extensions::scoreboard::{Delivery, Losses};
use crate::extensions::{Extensions, Phase};
use crate::segment::Seq;
use crate::tcp::Tcp;
use crate::time::OFF;
use crate::{Content, Timers};

/// Maximum time that the peer delays the acknowledgement of a single segment (RFC 8985 section 7.2).
const MAX_ACK_DELAY: Span = Span::from_ms(200);

/// State of the probe of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    /// The retransmission timer expires for a probe.
    armed: bool,
    /// The timer has expired, and the probe is not sent.
    due: bool,
    /// End of all data when a probe was sent, and whether it was a retransmission (`TLP.end_seq`, `TLP.is_retrans`).
    sent: Option<(Seq, bool)>,
}

impl Probe {
    /// Returns whether a probe was sent and its outcome is not known yet.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.is_some()
    }
}

impl<C: Content> Tcp<C> {
    /// Makes the retransmission timer expire early: at the end of a reordering window, or for a probe if one may be sent (RFC 8985
    /// sections 6.3 and 7.2), otherwise no longer.
    pub(crate) fn arm_loss_timer(&mut self, now: Instant) {
        let (mss, smoothed) = (self.maxseg, self.rtt.mean_eighths() / 8);
        let Some(e) = self.extensions.as_deref_mut() else { return };
        let may_probe = e.sack
            && e.phase == Phase::Open
            && e.probe.sent.is_none()
            && !e.scoreboard.has_sacked()
            && smoothed > 0
            && matches!(self.options.timers, Timers::Fine { .. })
            && self.deadlines.retransmit != OFF;
        let pipe = e.scoreboard.pipe();
        let wait = Span::from_ps(2 * smoothed) + if pipe <= mss { MAX_ACK_DELAY } else { Span::ZERO };
        let rto = self.rtt.rto();
        let was_armed = std::mem::take(&mut e.probe.armed) | std::mem::take(&mut e.rack.is_armed);
        if let Some(at) = e.rack.expires_at.filter(|_| self.deadlines.retransmit != OFF) {
            e.rack.is_armed = true;
            self.deadlines.retransmit = at;
        } else if may_probe && pipe > 0 && wait < Span::from_ps(rto) {
            e.probe.armed = true;
            self.deadlines.retransmit = now + wait;
        } else if was_armed && self.deadlines.retransmit != OFF {
            self.deadlines.retransmit = self.time.after(now, rto);
        }
    }

    /// Processes an expiry of the retransmission timer; returns whether it was for a probe or a reordering window.
    pub(crate) fn expire_loss_timer(&mut self, now: Instant) -> bool {
        let Some(e) = self.extensions.as_deref_mut() else { return false };
        if std::mem::take(&mut e.rack.is_armed) {
            self.expire_reordering(now);
            return true;
        }
        e.probe.due = std::mem::take(&mut e.probe.armed);
        let is_due = e.probe.due;
        if is_due {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
            self.request_output();
        }
        is_due
    }

    /// Writes the probe that is due: a new segment if the peer's window has room for it, otherwise the last one again.
    #[inline]
    pub(crate) fn write_probe(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.extensions.as_deref().filter(|e| e.probe.due)?;
        self.write_due_probe(now, buffer)
    }

    #[inline(never)]
    fn write_due_probe(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let segment = self.segment_size();
        let e = self.extensions.as_deref_mut()?;
        if !std::mem::take(&mut e.probe.due) || e.phase != Phase::Open || self.snd_max == self.snd_una {
            return None;
        }
        let offset = self.snd_max.since(self.snd_una);
        let length = self.queued.min(self.snd_wnd).saturating_sub(offset).min(segment);
        let (start, last) = e.scoreboard.last()?;
        let sent = if length > 0 && !self.fin_sent && !e.scoreboard.is_full() {
            self.emit_again::<true>(now, length, false, buffer)
        } else {
            self.retransmit_range(now, start, last.min(segment), buffer)?
        };
        self.counts.tail_loss_probes += 1;
        let is_again = self.snd_max.since(self.snd_una) == offset;
        let end = self.snd_max;
        if let Some(e) = self.extensions.as_deref_mut() {
            e.probe.sent = Some((end, is_again));
        }
        Some(sent)
    }
}

impl Extensions {
    /// Processes an acknowledgement after a probe (RFC 8985 section 7.4). If the probe repaired a loss, the controller learns
    /// of it. `is_bare` says that the acknowledgement reports nothing new: original and probe have both arrived. Returns what
    /// was sent before the data that has arrived and is lost therefore (section 6.2), unless RACK finds that.
    pub(crate) fn check_probe(
        &mut self,
        now: Instant,
        ack: Seq,
        (is_bare, in_flight, smoothed): (bool, u32, Span),
        delivery: &Delivery,
    ) -> Losses {
        let mut losses = Losses::default();
        let Some((end, is_again)) = self.probe.sent else { return losses };
        if let Some(sent_at) = delivery.sent_at().filter(|_| !self.rack.is_active) {
            self.scoreboard.detect_older(sent_at - smoothed / 4, &mut losses);
        }
        let repaired = is_again && ack.after(end) && losses.bytes == 0;
        if repaired {
            self.report_loss(now, Losses { bytes: 1, sent_at: now, state: None }, in_flight, false);
        }
        let is_over = if is_again { ack.after(end) || ack == end && is_bare } else { !ack.before(end) };
        if is_over || losses.bytes > 0 || self.phase != Phase::Open {
            self.probe.sent = None;
        }
        losses
    }
}

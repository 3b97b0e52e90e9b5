//! RACK (RFC 8985 section 6): a segment is lost if one that was sent later has arrived, and the reordering window has passed.
//!
//! It replaces the three duplicates of RFC 6675 for ends with selective acknowledgements, exact timers and a controller other
//! than that of 4.3BSD. Its timer is that of retransmissions. This TCP reports no duplicates (RFC 2883), so the window is
//! widened when timestamps show that a recovery was not needed.

use trunkline_units::{Instant, Span};

use crate::Content;
use crate::extensions::scoreboard::{DUPLICATE_THRESHOLD, Delivery, Losses};
use crate::extensions::{Extensions, Phase};
use crate::segment::Seq;
use crate::tcp::Tcp;

/// Recoveries after which the window is narrow again (`RACK.reo_wnd_persist`).
const WIDE_RECOVERIES: u32 = 16;
/// The window is at most this many quarters of the minimum round-trip time, and never more than the smoothed one.
const MAX_QUARTERS: u64 = 64;

/// State of the loss detection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rack {
    /// Whether it detects the losses of this connection.
    pub(crate) is_active: bool,
    /// The segment that was sent last among those that have arrived, when, and how long it took (`RACK.xmit_ts`,
    /// `RACK.end_seq`, `RACK.rtt`).
    newest: Option<(Instant, Seq)>,
    round_trip: Span,
    /// Segments have arrived out of order.
    has_reordering: bool,
    /// Extra quarters of the minimum round-trip time, and recoveries until there are none.
    extra_quarters: u64,
    wide_recoveries: u32,
    /// When the window of a segment passes that may be lost, and whether the retransmission timer expires for it.
    pub(crate) expires_at: Option<Instant>,
    pub(crate) is_armed: bool,
}

impl Rack {
    /// Notes a recovery that was not needed: segments were late by more than the window.
    pub(crate) fn widen(&mut self) {
        self.has_reordering = true;
        self.extra_quarters = (self.extra_quarters + 1).min(MAX_QUARTERS);
        self.wide_recoveries = WIDE_RECOVERIES;
    }

    /// Notes the end of a recovery.
    pub(crate) fn end_recovery(&mut self) {
        self.wide_recoveries = self.wide_recoveries.saturating_sub(1);
        if self.wide_recoveries == 0 {
            self.extra_quarters = 0;
        }
    }

    /// Updates the state by what an acknowledgement reports. A retransmission that seems to arrive in less than the minimum
    /// round-trip time is its original (section 6.2, step 2).
    fn update(&mut self, now: Instant, delivery: &Delivery, min_rtt: Span) {
        self.has_reordering |= delivery.reordered;
        let Some(newest) = &delivery.newest else { return };
        let round_trip = now.since(newest.sent_at);
        if newest.ambiguous && round_trip < min_rtt {
            return;
        }
        let is_newer = |&(sent_at, end): &(Instant, Seq)| {
            newest.sent_at > sent_at || newest.sent_at == sent_at && newest.end.after(end)
        };
        if self.newest.as_ref().is_none_or(is_newer) {
            (self.newest, self.round_trip) = (Some((newest.sent_at, newest.end)), round_trip);
        }
    }
}

impl Extensions {
    /// Returns how much later a segment may arrive than one that was sent after it (section 6.2, step 4).
    fn reordering_window(&self, smoothed: Span) -> Span {
        let is_lossy = self.phase != Phase::Open || self.scoreboard.sacked() >= DUPLICATE_THRESHOLD;
        if !self.rack.has_reordering && is_lossy {
            return Span::ZERO;
        }
        let quarter = self.min_rtt.get().unwrap_or(Span::ZERO) / 4;
        (quarter * (1 + self.rack.extra_quarters)).min(smoothed)
    }

    /// Detects losses after an acknowledgement.
    pub(crate) fn detect_by_rack(&mut self, now: Instant, delivery: &Delivery, smoothed: Span) -> Losses {
        self.rack.update(now, delivery, self.min_rtt.get().unwrap_or(Span::ZERO));
        self.detect_overdue(now, smoothed)
    }

    /// Declares lost what was sent before the newest segment that has arrived, and whose window has passed.
    fn detect_overdue(&mut self, now: Instant, smoothed: Span) -> Losses {
        let mut losses = Losses::default();
        self.rack.expires_at = None;
        if let Some(newest) = self.rack.newest {
            let wait = self.rack.round_trip + self.reordering_window(smoothed);
            let pending = self.scoreboard.detect_overdue(newest, (now, wait), &mut losses);
            self.rack.expires_at = pending.map(|sent_at| sent_at + wait);
        }
        losses
    }
}

impl<C: Content> Tcp<C> {
    /// Detects losses after the window of a segment has passed.
    pub(crate) fn expire_reordering(&mut self, now: Instant) {
        let Some(mut extensions) = self.extensions.take() else { return };
        let (e, mss) = (&mut *extensions, self.maxseg);
        let in_flight = e.pipe(mss);
        let losses = e.detect_overdue(now, self.time.span(self.rtt.mean_eighths()) / 8);
        self.process_losses(now, e, losses, in_flight);
        if let Phase::Recovery { .. } = e.phase {
            e.reduction.update(0, e.pipe(mss), e.controller.window(), mss);
        }
        self.extensions = Some(extensions);
        self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        self.arm_loss_timer(now);
        self.request_output();
    }
}

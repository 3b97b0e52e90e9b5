//! Timers.

use trunkline_units::Instant;

use super::{Connection, PendingControl};
use crate::CloseReason;
use crate::options::Mode;
use crate::send::flight::LossSummary;

/// Minimum number of unanswered probes before a peer is considered gone.
const MIN_UNANSWERED: u32 = 8;

/// Timeouts after which an end with nothing left to receive stops waiting for the last acknowledgement.
const MAX_CLOSING_TIMEOUTS: u32 = 8;
/// Tail loss probes before a selective sender declares all frames in flight lost: a peer that was not scheduled for a
/// few milliseconds has lost nothing.
const TAIL_PROBES: u32 = 2;

/// The timers of a connection, apart from those of its path search and its repair encoder, which keep their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Everything in flight is lost, or a tail loss probe is due.
    Retransmit,
    /// The next frame is declared lost because of its age.
    Loss,
    /// The peer is probed.
    KeepAlive,
    /// An acknowledgement is due.
    Ack,
}

/// When each [`Timer`] expires; [`Instant::MAX`]: it is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerTable([Instant; 4]);

impl Default for TimerTable {
    fn default() -> TimerTable {
        TimerTable([Instant::MAX; 4])
    }
}

impl TimerTable {
    #[inline(always)]
    pub fn get(&self, timer: Timer) -> Instant {
        self.0[timer as usize]
    }

    #[inline(always)]
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    #[inline(always)]
    pub fn stop(&mut self, timer: Timer) {
        self.set(timer, Instant::MAX);
    }

    #[inline(always)]
    pub fn is_set(&self, timer: Timer) -> bool {
        self.get(timer) < Instant::MAX
    }

    #[inline(always)]
    pub fn has_expired(&self, timer: Timer, now: Instant) -> bool {
        self.get(timer) <= now
    }

    #[inline(always)]
    pub fn first(&self) -> Instant {
        let [retransmit, loss, keep_alive, ack] = self.0;
        retransmit.min(loss).min(keep_alive).min(ack)
    }
}

impl Connection {
    /// Returns the next deadline; [`Instant::MAX`]: none.
    #[inline]
    pub fn deadline(&self) -> Instant {
        if !self.is_active() {
            return self.timers.get(Timer::Ack);
        }
        self.timers.first().min(self.path_probe_at()).min(self.send_at()).min(self.repairs_due_at())
    }

    /// Returns when the next data frame may be sent; [`Instant::MAX`] if data waits for an acknowledgement or for
    /// credit.
    #[inline]
    fn send_at(&self) -> Instant {
        let flights = &self.sender.flights;
        let window = self.effective_window;
        let paced = if self.pace.is_some() { self.pace_at } else { Instant::ZERO };
        if self.is_sending_parts() {
            return paced;
        }
        if u64::from(flights.in_flight()) >= window {
            return Instant::MAX;
        }
        if flights.next_to_send().is_some() {
            paced
        } else if self.sender.can_build_frame() && flights.next() - flights.base() < self.window {
            if self.sender.unsent_bytes() >= self.coalesce_threshold() {
                paced
            } else {
                paced.max(self.coalesce_until)
            }
        } else {
            Instant::MAX
        }
    }

    pub fn handle_timers(&mut self, now: Instant) {
        if !self.is_active() {
            return;
        }
        if self.timers.has_expired(Timer::Loss, now) {
            self.detect_losses(now, None);
        }
        self.flush_fec_block(now);
        if self.timers.has_expired(Timer::Retransmit, now) {
            self.handle_timeout(now);
        }
        self.probe_path(now);
        if self.timers.has_expired(Timer::KeepAlive, now) {
            self.timers.set(Timer::KeepAlive, now + self.options.keep_alive);
            self.unanswered_probes += 1;
            if self.pending_controls.is_empty() {
                self.pending_controls.push_back(PendingControl::KeepAlive);
            }
        }
        if self.unanswered_probes >= MIN_UNANSWERED
            && now.since(self.last_activity) >= self.options.peer_timeout
        {
            self.terminate(CloseReason::PeerTimeout);
            self.stop();
        }
    }

    /// Sets or stops the retransmission timer.
    #[inline(always)]
    pub(super) fn arm_retransmit_timer(&mut self, now: Instant) {
        let delay = self.peer_ack_delay;
        let at = match self.sender.flights.in_flight() {
            0 => Instant::MAX,
            _ if self.timeouts_in_a_row == 0
                && self.backoff_exponent == 0
                && self.options.mode == Mode::Selective =>
            {
                now + self.rtt.probe_timeout(delay)
            }
            _ => {
                now + self
                    .rtt
                    .backoff(delay, self.timeouts_in_a_row.saturating_sub(1).max(self.backoff_exponent))
            }
        };
        self.timers.set(Timer::Retransmit, at);
    }

    /// Handles the expiry of the retransmission timer: sends a tail loss probe, or declares all frames in flight lost.
    fn handle_timeout(&mut self, now: Instant) {
        self.unanswered_probes += 1;
        if self.check_unanswered_lengths(now) {
            return;
        }
        let selective = self.options.mode == Mode::Selective;
        self.timeouts_in_a_row += 1;
        if selective && self.timeouts_in_a_row <= TAIL_PROBES {
            // The acknowledgement of the last frame shows which frames before it are missing.
            self.tail_probe = self.sender.flights.last_in_flight();
            self.statistics.tail_probes += 1;
        } else {
            let in_flight = self.sender.flights.in_flight();
            let mut lost = LossSummary::default();
            self.sender.flights.mark_all_lost(&mut lost);
            self.statistics.timeouts += 1;
            self.backoff_exponent = self.backoff_exponent.saturating_add(1);
            (self.is_rtt_uncertain, self.last_go_back) = (true, None);
            self.report_loss(now, lost, in_flight, true);
            // The next frame may be sent regardless of the pace.
            self.pace_at = self.pace_at.min(now);
        }
        let delay = self.peer_ack_delay;
        let doublings =
            self.timeouts_in_a_row.saturating_sub(u32::from(selective)).max(self.backoff_exponent);
        self.timers.set(Timer::Retransmit, now + self.rtt.backoff(delay, doublings));
        // All data has arrived in both directions: the peer has closed, and its last acknowledgement was lost.
        if self.closing.peer_finished
            && self.unanswered_probes > MAX_CLOSING_TIMEOUTS
            && self.closing.finish_sent
            && self.sender.has_only_control()
        {
            self.terminate(CloseReason::Completed);
        }
    }
}

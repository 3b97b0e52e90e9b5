//! Deadlines, and what happens at them.

use trunkline_units::Instant;

use super::{Connection, Errand};
use crate::End;
use crate::options::Mode;
use crate::send::flight::Missing;

/// Questions that must go unanswered before a peer is given up, however long it has been silent.
const QUESTIONS: u32 = 8;

/// How often an end that has nothing more to expect says goodbye in vain.
const FAREWELLS: u32 = 8;
/// How often a selective sender asks what became of its last frame before it takes everything in flight for lost: a peer
/// that was kept from running for a few milliseconds has lost nothing.
const PROBES: u32 = 2;

impl Connection {
    /// When to wake it, if nothing comes before; [`Instant::MAX`]: never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let ack = self.owed.at;
        if !self.is_active() {
            return ack;
        }
        let timers = self.retransmit_at.min(self.loss_at).min(self.ask_at).min(self.search_at());
        timers.min(ack).min(self.may_send_at()).min(self.repair_at())
    }

    /// When what waits to be sent may leave; never, if only an acknowledgement or credit lets it.
    #[inline]
    fn may_send_at(&self) -> Instant {
        let flights = &self.sender.flights;
        let window = self.allowed;
        let paced = if self.pace.is_some() { self.pace_at } else { Instant::ZERO };
        if self.is_parting() {
            return paced;
        }
        if u64::from(flights.in_flight()) >= window {
            return Instant::MAX;
        }
        if flights.due().is_some() {
            paced
        } else if self.sender.can_cut() && flights.next() - flights.base() < self.window {
            if self.sender.waiting() >= self.enough() { paced } else { paced.max(self.hold_until) }
        } else {
            Instant::MAX
        }
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant) {
        if !self.is_active() {
            return;
        }
        if self.loss_at <= now {
            self.look_for_lost(now, None);
        }
        self.close_block(now);
        if self.retransmit_at <= now {
            self.time_out(now);
        }
        self.search(now);
        if self.ask_at <= now {
            self.ask_at = now + self.options.keep_alive;
            self.unanswered += 1;
            if self.errands.is_empty() {
                self.errands.push_back(Errand::Probe);
            }
        }
        if self.unanswered >= QUESTIONS && now.since(self.heard) >= self.options.patience {
            self.end(End::Silent);
            self.rest();
        }
    }

    /// Sets the timer of what is in flight, or stops it.
    #[inline(always)]
    pub(super) fn arm(&mut self, now: Instant) {
        let delay = self.peer_ack_delay;
        self.retransmit_at = match self.sender.flights.in_flight() {
            0 => Instant::MAX,
            _ if self.backoff == 0 && self.doubled == 0 && self.options.mode == Mode::Selective => {
                now + self.round_trip.probe(delay)
            }
            _ => now + self.round_trip.backoff(delay, self.backoff.saturating_sub(1).max(self.doubled)),
        };
    }

    /// Nothing has come for a whole timeout.
    fn time_out(&mut self, now: Instant) {
        self.unanswered += 1;
        if self.note_silence(now) {
            return;
        }
        let selective = self.options.mode == Mode::Selective;
        self.backoff += 1;
        if selective && self.backoff <= PROBES {
            // What became of the last frame tells what became of those before it.
            self.probe = self.sender.flights.last_in_flight();
            self.statistics.tail_probes += 1;
        } else {
            let in_flight = self.sender.flights.in_flight();
            let mut missing = Missing::default();
            self.sender.flights.lose_all(&mut missing);
            self.statistics.timeouts += 1;
            self.doubled = self.doubled.saturating_add(1);
            self.went_back = None;
            self.report(now, missing, in_flight, true);
            // Lost again or never heard: the next may leave whatever the pace.
            self.pace_at = self.pace_at.min(now);
        }
        let delay = self.peer_ack_delay;
        let doubled = self.backoff.saturating_sub(u32::from(selective)).max(self.doubled);
        self.retransmit_at = now + self.round_trip.backoff(delay, doubled);
        // All of the peer's has come and all of ours has arrived: it has gone, and with it the last acknowledgement.
        if self.closing.finished
            && self.unanswered > FAREWELLS
            && self.closing.told
            && self.sender.has_only_told()
        {
            self.end(End::Done);
        }
    }
}

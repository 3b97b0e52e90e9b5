//! What a timer does (`tcp_fasttimo`, `tcp_timers`).

use trunkline_units::{Instant, Span};

use crate::Content;
use crate::tcp::{State, Tcp, wait};
use crate::time::OFF;

/// How long an attempt to connect may take.
pub(crate) const CONNECT: Span = Span::from_s(75);

impl<C: Content> Tcp<C> {
    /// Runs every timer that is due.
    #[cold]
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.alarms.acknowledge <= now {
            self.alarms.acknowledge = OFF;
            self.owe_ack();
        }
        if self.alarms.retransmit <= now {
            self.retransmit(now);
        }
        if self.alarms.persist <= now {
            self.alarms.persist = self.time.after(now, self.rtt.persist());
            self.force = true;
            self.look();
        }
        if self.alarms.patience <= now {
            match self.state {
                State::TimeWait => self.end(0),
                State::SynReceived if self.passive => self.listen(),
                _ => self.time_out(),
            }
        }
    }

    /// Goes back to the first segment that is not acknowledged and starts slowly.
    fn retransmit(&mut self, now: Instant) {
        if !self.rtt.expired() {
            return self.time_out();
        }
        self.counts.timeouts += 1;
        self.alarms.retransmit = self.time.after(now, self.rtt.rto());
        self.snd_nxt = self.snd_una;
        self.timing = false; // Karn: an answer now could be to either
        self.halve_threshold();
        self.snd_cwnd = self.maxseg;
        self.dupacks = 0;
        self.resend = false;
        self.look();
    }

    fn time_out(&mut self) {
        self.reset_peer();
        self.end(wait::TIMED_OUT | wait::CLOSED);
    }

    /// Slow start ends at half of what was under way, at least two segments.
    pub(crate) fn halve_threshold(&mut self) {
        let segments = self.snd_wnd.min(self.snd_cwnd) / 2 / self.maxseg;
        self.snd_ssthresh = segments.max(2) * self.maxseg;
    }
}

//! Timer expiry (`tcp_fasttimo`, `tcp_timers`).

use trunkline_congestion::{Controller, Loss, SinceSent};
use trunkline_units::{Instant, Span};

use crate::Content;
use crate::tcp::{State, Tcp, pending_event};
use crate::time::OFF;

/// Connection establishment timeout.
pub(crate) const CONNECT_TIMEOUT: Span = Span::from_s(75);

impl<C: Content> Tcp<C> {
    /// Runs every timer that is due.
    #[cold]
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.deadlines.acknowledge <= now {
            self.deadlines.acknowledge = OFF;
            self.request_ack();
        }
        if self.deadlines.retransmit <= now {
            self.retransmit(now);
        }
        if self.deadlines.persist <= now {
            self.deadlines.persist = self.time.after(now, self.rtt.persist());
            self.force = true;
            self.request_output();
        }
        if self.deadlines.give_up_or_departure <= now {
            match self.state {
                State::TimeWait => self.end(0),
                State::SynReceived if self.passive => self.listen(),
                State::SynSent | State::SynReceived => self.time_out(),
                _ => {
                    self.deadlines.give_up_or_departure = OFF;
                    self.request_output();
                }
            }
        }
    }

    /// Goes back to the first unacknowledged segment and starts slow start.
    fn retransmit(&mut self, now: Instant) {
        if self.extensions.is_some() && self.expire_loss_timer(now) {
            return;
        }
        if !self.rtt.expired() {
            return self.time_out();
        }
        self.counts.timeouts += 1;
        self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        self.timing = false; // Karn: an answer now could be to either
        self.dupacks = 0;
        self.request_output();
        if self.extensions.is_some() && self.state >= State::Established {
            return self.lose_all(now, true);
        }
        if let Some(extensions) = &mut self.extensions {
            extensions.handshake_timeout = true;
        }
        self.snd_nxt = self.snd_una;
        self.report_loss(now, true);
        self.resend = false;
    }

    fn time_out(&mut self) {
        self.reset_peer();
        self.end(pending_event::TIMED_OUT | pending_event::CLOSED);
    }

    /// Reports a loss to the congestion controller of 4.3BSD.
    pub(crate) fn report_loss(&mut self, now: Instant, timeout: bool) {
        let in_flight = self.snd_wnd.min(self.net2.window());
        let bytes = u64::from(self.maxseg);
        self.net2.on_lost(&Loss {
            now,
            amount: self.maxseg,
            bytes,
            sent_at: now,
            in_flight,
            timeout,
            since_sent: SinceSent::default(),
        });
    }
}

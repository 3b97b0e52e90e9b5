//! Credits of datagrams from end to end: `udp (control = credit)`.
//!
//! The protocol is that of the cells of a virtual channel ([`trunkline_models::atm::credits`]), with datagrams in place of
//! cells: the receiver has buffers for a window of them, and reports how many no longer need one. A network may change the
//! order of datagrams, and a line does not; so each datagram has its sequence number, and those below it that have not arrived
//! count as lost. One that arrives later changes nothing.
//!
//! Reports and checks are measurement messages of the kind [`MessageKind::Progress`](crate::message::MessageKind::Progress):
//! from the receiver with the number of datagrams that need no buffer, from the sender with the number that it has sent.

use trunkline_models::atm::CreditOptions;
use trunkline_models::atm::credits::{CreditReceiver, CreditSender};
use trunkline_units::{Instant, Span};

/// The sending end.
#[derive(Clone, Debug)]
pub struct CreditWindow {
    options: CreditOptions,
    sender: CreditSender,
    /// When a sender without credit sends the next check; `None` while it has credit.
    check_at: Option<Instant>,
    is_check_due: bool,
    checks: u64,
}

impl CreditWindow {
    /// Creates a window of this many datagrams. `round_trip` is about the longest time until a report returns.
    pub fn new(window: u32, round_trip: Span) -> Self {
        CreditWindow {
            options: CreditOptions::new(window.into(), round_trip),
            sender: CreditSender::default(),
            check_at: None,
            is_check_due: false,
            checks: 0,
        }
    }

    /// Returns the number of datagrams that may be sent now.
    pub fn available(&self) -> u64 {
        self.sender.available(&self.options)
    }

    /// Counts a datagram that is sent, for which there must be credit.
    pub fn record_sent(&mut self, now: Instant) {
        self.is_check_due |= self.sender.count_cell(&self.options);
        self.update(now);
    }

    /// Handles a report. One of datagrams that were never sent is ignored.
    pub fn receive(&mut self, now: Instant, freed: u64) {
        self.sender.receive_credit(freed);
        self.update(now);
    }

    fn update(&mut self, now: Instant) {
        match self.sender.has_credit(&self.options) {
            true => self.check_at = None,
            false => _ = self.check_at.get_or_insert(now + self.options.check_after),
        }
    }

    /// Returns when a check is due, if no report arrives earlier.
    pub fn deadline(&self) -> Option<Instant> {
        self.check_at
    }

    /// Returns the content of a check to send now, if one is due: the number of datagrams sent.
    pub fn take_check(&mut self, now: Instant) -> Option<u64> {
        if self.check_at.is_some_and(|at| at <= now) {
            self.is_check_due = true;
            self.check_at = Some(now + self.options.check_after);
        }
        if !std::mem::take(&mut self.is_check_due) {
            return None;
        }
        self.checks += 1;
        Some(self.sender.check())
    }

    /// Returns the number of checks sent.
    pub fn checks(&self) -> u64 {
        self.checks
    }
}

/// The receiving end.
#[derive(Clone, Debug)]
pub struct CreditGrant {
    options: CreditOptions,
    receiver: CreditReceiver,
    is_report_due: bool,
    reports: u64,
}

impl CreditGrant {
    /// Creates the buffers for a window of this many datagrams.
    pub fn new(window: u32) -> Self {
        CreditGrant {
            options: CreditOptions::new(window.into(), Span::ZERO),
            receiver: CreditReceiver::default(),
            is_report_due: false,
            reports: 0,
        }
    }

    /// Handles a datagram by its sequence number, from 0, when it no longer needs its buffer.
    pub fn receive(&mut self, sequence: u64) {
        if sequence < self.receiver.received() {
            return;
        }
        self.receiver.receive_check(sequence);
        self.receiver.receive_cell();
        self.is_report_due |= self.receiver.free_cell(&self.options);
    }

    /// Handles a check: a report is due.
    pub fn receive_check(&mut self, sent: u64) {
        self.receiver.receive_check(sent);
        self.is_report_due = true;
    }

    /// Returns whether a report is due.
    pub fn is_report_due(&self) -> bool {
        self.is_report_due
    }

    /// Returns the content of a report to send now, if one is due: the number of datagrams that need no buffer.
    pub fn take_report(&mut self) -> Option<u64> {
        if !std::mem::take(&mut self.is_report_due) {
            return None;
        }
        self.reports += 1;
        Some(self.receiver.credit())
    }

    /// Returns the number of reports sent.
    pub fn reports(&self) -> u64 {
        self.reports
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn lost_reordered_and_duplicated_datagrams_never_stop_the_sender() {
        for seed in 0..300 {
            let mut stream = Seed(seed).stream("credit");
            let window = 1 + stream.below(30) as u32;
            let (mut sender, mut receiver) =
                (CreditWindow::new(window, Span::from_ms(1)), CreditGrant::new(window));
            let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
            let loss = [0.0, 0.1, 0.4][stream.below(3) as usize];
            let (mut now, mut sequence) = (Instant::ZERO, 0);
            for _ in 0..100_000 {
                now += Span::from_us(100);
                while sequence < 500 && sender.available() > 0 && stream.chance(0.8) {
                    there.push_back((sequence, false));
                    sender.record_sent(now);
                    sequence += 1;
                    // Those that neither arrived nor are known to be lost have a buffer each.
                    assert!(sequence - receiver.receiver.received() <= u64::from(window) || loss > 0.0);
                }
                if let Some(sent) = sender.take_check(now) {
                    there.push_back((sent, true));
                }
                if there.len() > 1 && stream.chance(0.1) {
                    let at = stream.below(there.len() as u64 - 1) as usize;
                    there.swap(at, at + 1);
                }
                if let Some((number, is_check)) = there.pop_front()
                    && !stream.chance(loss)
                {
                    match is_check {
                        true => receiver.receive_check(number),
                        false => receiver.receive(number),
                    }
                    if stream.chance(0.05) {
                        receiver.receive(number.saturating_sub(1));
                    }
                }
                if let Some(report) = receiver.take_report()
                    && !stream.chance(loss)
                {
                    back.push_back(report);
                }
                if stream.chance(0.5)
                    && let Some(report) = back.pop_front()
                {
                    sender.receive(now, report);
                }
            }
            assert_eq!(sequence, 500, "seed {seed}: the sender stopped: {sender:?} {receiver:?}");
            assert!(sender.available() > 0 || sender.deadline().is_some());
        }
    }

    #[test]
    fn a_sender_without_credit_checks_again_and_again() {
        let mut sender = CreditWindow::new(1, Span::from_ms(2));
        sender.record_sent(Instant::ZERO);
        assert_eq!((sender.available(), sender.take_check(Instant::ZERO)), (0, None));
        for check in 1..4 {
            let due = sender.deadline().unwrap();
            assert_eq!(due, Instant::ZERO + Span::from_ms(5 * check));
            assert_eq!((sender.take_check(due), sender.take_check(due)), (Some(1), None));
        }
        sender.receive(Instant::ZERO, 2);
        assert_eq!(sender.available(), 0, "a report of more than was sent");
        sender.receive(Instant::ZERO, 1);
        assert_eq!((sender.available(), sender.deadline()), (1, None));
    }
}

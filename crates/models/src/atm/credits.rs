//! Credits of a virtual channel on one link: the sliding window of cell buffers between two neighbouring nodes.
//!
//! The receiving node reserves a number of cell buffers for each channel. The sending node counts the cells it has sent,
//! the receiving node those that have left it again; while the difference is below the number of buffers, there is a
//! buffer for the next cell. After some cells have left, the receiving node reports their number in a credit cell.
//!
//! Both counts are totals since the start, as in the credit schemes N23 and CUP (Kung, Blackwell, Chapman: Credit-based
//! flow control for ATM networks, SIGCOMM 1994): a lost credit cell is made good by the next one. What no later credit
//! cell makes good, a **check cell** does. It has the number of cells sent; because a line keeps the order of its
//! cells, the receiving node knows at its arrival how many of them were lost, counts their buffers as free, and answers
//! with a credit cell. A sender without credit sends a check cell after a while, and again until it has credit, so a
//! channel never stops for good. So do the switches that the AAI report measured (Özveren, Simcoe, Varghese: Reliable
//! and efficient hop-by-hop flow control, SIGCOMM 1994).

use trunkline_units::{Rate, Span};

/// Largest number of cells that leave a node before it sends the next credit cell.
pub const UPDATE_EVERY: u64 = 10;
/// Number of windows after which a sender sends a check cell even if it has credit, so that lost cells do not reduce
/// its window for long.
const CHECK_WINDOWS: u64 = 8;
/// Part of the waiting time for credit that does not depend on the link.
const CHECK_AFTER: Span = Span::from_ms(1);

/// Options of the credits of a link, in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditOptions {
    /// Cell buffers of each channel at the receiving node; 0 counts as 1.
    pub window: u64,
    /// Cells that leave the receiving node before it sends a credit cell; 1 to `window`.
    pub update_every: u64,
    /// How long a sender waits for credit before it sends a check cell, and between two of them.
    pub check_after: Span,
    /// Probability that a credit or check cell is lost, in addition to the impairments of the line.
    pub loss: f64,
}

impl CreditOptions {
    /// Returns the options for a window and the round-trip time of the link: a credit cell for [`UPDATE_EVERY`] cells, or
    /// for half the window if that is less; a check cell after two round trips and 1 ms.
    pub fn new(window: u64, round_trip: Span) -> Self {
        let window = window.max(1);
        CreditOptions {
            window,
            update_every: UPDATE_EVERY.min(window / 2).max(1),
            check_after: round_trip * 2 + CHECK_AFTER,
            loss: 0.0,
        }
    }
}

/// The sending end of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditSender {
    sent: u64,
    /// Highest number reported by the receiving end.
    freed: u64,
    /// Value of `sent` in the last check cell.
    checked: u64,
}

impl CreditSender {
    /// Returns whether the receiving node has a buffer for one more cell.
    #[inline]
    pub fn has_credit(&self, options: &CreditOptions) -> bool {
        self.sent - self.freed < options.window
    }

    /// Returns the number of cells for which the receiving node has a buffer.
    pub fn available(&self, options: &CreditOptions) -> u64 {
        (options.window + self.freed).saturating_sub(self.sent)
    }

    /// Counts a cell that is sent; returns whether a check cell is to follow.
    #[inline]
    pub fn count_cell(&mut self, options: &CreditOptions) -> bool {
        debug_assert!(self.has_credit(options), "no cell is sent without credit");
        self.sent += 1;
        self.sent - self.checked >= options.window * CHECK_WINDOWS
    }

    /// Returns the content of a check cell: the number of cells sent.
    pub fn check(&mut self) -> u64 {
        self.checked = self.sent;
        self.sent
    }

    /// Handles a credit cell. An older report changes nothing, and one of cells that were never sent is ignored.
    #[inline]
    pub fn receive_credit(&mut self, freed: u64) {
        if freed <= self.sent {
            self.freed = self.freed.max(freed);
        }
    }
}

/// The receiving end of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditReceiver {
    /// Cells that arrived or were lost on the line.
    received: u64,
    /// Those of them that no longer need a buffer.
    freed: u64,
    reported: u64,
}

impl CreditReceiver {
    /// Returns the number of cells that arrived or were lost.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Counts a cell that arrives, and returns the number of buffers in use.
    #[inline]
    pub fn receive_cell(&mut self) -> u64 {
        self.received += 1;
        self.received - self.freed
    }

    /// Counts a cell that has left the node; returns whether a credit cell is due.
    #[inline]
    pub fn free_cell(&mut self, options: &CreditOptions) -> bool {
        debug_assert!(self.freed < self.received, "only cells that have arrived can leave");
        self.freed += 1;
        self.freed - self.reported >= options.update_every
    }

    /// Handles a check cell: of `sent` cells, those that have not arrived before it are lost. A credit cell is due.
    pub fn receive_check(&mut self, sent: u64) {
        let lost = sent.saturating_sub(self.received);
        self.received += lost;
        self.freed += lost;
    }

    /// Returns the content of a credit cell: the number of cells that have left the node or were lost.
    #[inline]
    pub fn credit(&mut self) -> u64 {
        self.reported = self.freed;
        self.freed
    }
}

/// Returns the throughput that a window permits on an otherwise idle link, as a share of its rate: the window over the
/// cells of a round trip, at most 1.
///
/// The round trip of a credit is twice the propagation, the transmission of the data cell and of the credit cell, and
/// up to `update_every` - 1 cells that wait for their report.
///
/// ```
/// use trunkline_models::atm::credits::{CreditOptions, window_share};
/// use trunkline_units::{Rate, Span};
/// // 100 km of fibre at 5 us/km, OC-3c: a credit is back after 364 cells, so 319 carry 88 % of the rate.
/// let options = CreditOptions::new(319, Span::from_ms(1));
/// let share = window_share(&options, Rate::from_bps(149_760_000), Span::from_us(500));
/// assert!((share - 0.875).abs() < 0.001, "{share}");
/// ```
pub fn window_share(options: &CreditOptions, payload: Rate, delay: Span) -> f64 {
    let cell_s = f64::from(super::cell::CELL * 8) / (payload.as_bps() as f64).max(1.0);
    let round_trip_cells = 2.0 * delay.as_s() / cell_s + 2.0;
    let window = options.window as f64;
    // Credits arrive `update_every` at a time: a whole number of them returns in each round trip.
    let waiting = options.update_every as f64 - 1.0;
    (window / (round_trip_cells + waiting)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use trunkline_units::Seed;

    /// Runs a channel in rounds: each sends what it may, the receiving node frees a random number of cells, and any cell
    /// on the line may be lost. Returns the number of rounds until all cells were sent.
    fn rounds(window: u64, cells: u64, loss_of_data: f64, loss_of_credits: f64, seed: u64) -> u64 {
        let options = CreditOptions::new(window, Span::from_us(10));
        let (mut sender, mut receiver) = (CreditSender::default(), CreditReceiver::default());
        let mut stream = Seed(seed).stream("credits");
        let (mut line, mut stored) = (VecDeque::new(), 0);
        for round in 0..1_000_000 {
            if sender.sent == cells {
                return round;
            }
            let mut wants_check = !sender.has_credit(&options);
            while sender.has_credit(&options) && sender.sent < cells && stream.chance(0.9) {
                wants_check |= sender.count_cell(&options);
                line.push_back(None);
            }
            if wants_check {
                line.push_back(Some(sender.check()));
            }
            let mut due = false;
            for item in line.drain(..) {
                match item {
                    None if stream.chance(loss_of_data) => {}
                    None => {
                        stored += 1;
                        assert!(receiver.receive_cell() <= window, "a cell without a buffer");
                        assert!(stored <= window, "more cells than buffers");
                    }
                    Some(_) if stream.chance(loss_of_credits) => {}
                    Some(sent) => {
                        receiver.receive_check(sent);
                        due = true;
                    }
                }
            }
            let leaving = stream.below(stored + 1);
            for _ in 0..leaving {
                stored -= 1;
                due |= receiver.free_cell(&options);
            }
            if due {
                let credit = receiver.credit();
                if !stream.chance(loss_of_credits) {
                    sender.receive_credit(credit);
                }
            }
        }
        panic!("the channel stopped: {sender:?} {receiver:?}, seed {seed}");
    }

    #[test]
    fn no_cell_is_sent_without_a_buffer_and_no_channel_stops() {
        for seed in 0..200 {
            for (data, credits) in [(0.0, 0.0), (0.0, 0.5), (0.2, 0.0), (0.3, 0.9)] {
                let window = 1 + seed % 40;
                rounds(window, 300, data, credits, seed);
            }
        }
    }

    #[test]
    fn a_false_report_gives_no_credit() {
        let options = CreditOptions::new(4, Span::ZERO);
        let mut sender = CreditSender::default();
        (0..4).for_each(|_| _ = sender.count_cell(&options));
        sender.receive_credit(5);
        assert!(!sender.has_credit(&options));
        sender.receive_credit(3);
        sender.receive_credit(1);
        assert_eq!(sender.sent - sender.freed, 1, "an older report changes nothing");
        let mut receiver = CreditReceiver::default();
        receiver.receive_cell();
        receiver.receive_check(0);
        assert_eq!(receiver.credit(), 0);
    }

    #[test]
    fn a_check_frees_the_buffers_of_lost_cells() {
        let options = CreditOptions::new(10, Span::ZERO);
        let (mut sender, mut receiver) = (CreditSender::default(), CreditReceiver::default());
        (0..10).for_each(|_| _ = sender.count_cell(&options));
        assert!(!sender.has_credit(&options));
        (0..4).for_each(|_| _ = receiver.receive_cell());
        receiver.receive_check(sender.check());
        sender.receive_credit(receiver.credit());
        assert_eq!(sender.sent - sender.freed, 4, "four cells still occupy buffers");
    }
}

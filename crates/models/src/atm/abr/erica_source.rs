//! A source that sends at the rate in its resource-management cells (ATM Forum Traffic Management 4.0, section 5.10).
//!
//! Of the standard's rules it has the initial rate, the explicit rate without gradual increase (RIF = 1), and the
//! cells between two resource-management cells (Nrm). It does not slow down by itself when they stop returning.

use trunkline_units::{Instant, Rate, Span};

use crate::atm::cell::CELL;

/// Cells of data between two resource-management cells (Nrm).
const NRM: u64 = 32;
/// Longest time between two resource-management cells (Trm).
const TRM: Span = Span::from_ms(100);
/// Share of the demand with which a source starts.
const INITIAL_SHARE: u64 = 20;

/// Returns the rate with which a source starts.
pub fn initial_rate(demand: Rate) -> Rate {
    Rate::from_bps((demand.as_bps() / INITIAL_SHARE).max(1))
}

/// Returns the time between two resource-management cells: 32 cells of data, but at least an averaging interval of the
/// switches, and at most 100 ms.
pub fn cell_gap(rate: Rate, interval: Span) -> Span {
    let cells_s = (NRM * u64::from(CELL) * 8) as f64 / (rate.as_bps() as f64).max(1.0);
    interval.max(Span::from_seconds(cells_s).min(TRM))
}

/// The source of one virtual channel.
#[derive(Clone, Debug)]
pub struct EricaSource {
    demand: Rate,
    interval: Span,
    rate: Rate,
    /// When the next cell is due; never before the start.
    next: Instant,
}

impl EricaSource {
    /// Creates a source that has not started. `interval` is the averaging interval of the switches.
    pub fn new(demand: Rate, interval: Span) -> Self {
        EricaSource { demand, interval, rate: Rate::default(), next: Instant::MAX }
    }

    /// Starts it at its initial rate.
    pub fn start(&mut self, now: Instant) {
        (self.rate, self.next) = (initial_rate(self.demand), now);
    }

    /// Returns when the next resource-management cell is due; [`Instant::MAX`] before the start.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Returns the rate that a resource-management cell is to carry, if one is due.
    pub fn poll(&mut self, now: Instant) -> Option<Rate> {
        if now < self.next {
            return None;
        }
        self.next = now + cell_gap(self.rate, self.interval);
        Some(self.rate)
    }

    /// Handles a resource-management cell that has returned with this explicit rate; ignored before the start.
    pub fn receive(&mut self, explicit: Rate) {
        if self.next < Instant::MAX {
            self.rate = explicit.min(self.demand);
        }
    }

    /// Returns the rate at which it may send.
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

//! ERICA: a switch computes explicit rates from its load (Jain, Kalyanaraman, Goyal, Fahmy, Viswanathan: ERICA switch
//! algorithm, ATM Forum 96-1172; Kalyanaraman and others, IEEE/ACM Transactions on Networking 8(1), 2000).

use std::collections::BTreeMap;

use trunkline_units::Rate;

/// Share of the line that the sources get in the paper.
pub const TARGET_UTILIZATION: f64 = 0.9;
/// Overload up to which rates are equalized.
const DELTA: f64 = 0.1;

/// The computation for one output line. Its owner reports the measured load at the end of each averaging interval, and the
/// rate in each resource-management cell that passes.
#[derive(Clone, Debug)]
pub struct Erica {
    target_bps: f64,
    /// Rate in the last cell of each channel.
    current_rates: BTreeMap<u32, f64>,
    /// Load over target in the last interval.
    overload: f64,
    active: usize,
    /// Largest rate allowed in this interval and in the last.
    max_allocation: f64,
    max_allocation_before: f64,
}

impl Erica {
    /// Creates the computation for a line of this rate. `utilization` is the share of it to be used.
    pub fn new(line: Rate, utilization: f64) -> Self {
        let target_bps = line.as_bps() as f64 * utilization;
        Erica {
            target_bps,
            current_rates: BTreeMap::new(),
            overload: 1.0,
            active: 1,
            max_allocation: 0.0,
            max_allocation_before: 0.0,
        }
    }

    /// Ends an averaging interval with the measured arrival rate and number of channels that sent.
    pub fn end_interval(&mut self, load: Rate, active: usize) {
        self.overload = (load.as_bps() as f64 / self.target_bps).max(1e-6);
        self.active = active.max(1);
        self.max_allocation_before = std::mem::take(&mut self.max_allocation);
    }

    /// Handles a cell on the way to the destination, which has the current rate of its source.
    pub fn receive_forward(&mut self, channel: u32, current: Rate) {
        self.current_rates.insert(channel, current.as_bps() as f64);
    }

    /// Returns the explicit rate of a cell on the way back to its source: at most `rate`, which it carries.
    pub fn receive_backward(&mut self, channel: u32, rate: Rate) -> Rate {
        let fair_share = self.target_bps / self.active as f64;
        let current = self.current_rates.get(&channel).copied().unwrap_or(0.0);
        let mut allowed = fair_share.max(current / self.overload);
        if self.overload <= 1.0 + DELTA {
            allowed = allowed.max(self.max_allocation_before);
        }
        allowed = allowed.min(self.target_bps);
        self.max_allocation = self.max_allocation.max(allowed);
        Rate::from_bps((allowed as u64).min(rate.as_bps()))
    }

    /// Forgets a channel.
    pub fn remove(&mut self, channel: u32) {
        self.current_rates.remove(&channel);
    }
}

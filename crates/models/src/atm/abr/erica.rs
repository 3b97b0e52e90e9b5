//! ERICA: a switch computes explicit rates from its load (Jain, Kalyanaraman, Goyal, Fahmy, Viswanathan: ERICA switch
//! algorithm, ATM Forum 96-1172; Kalyanaraman and others, IEEE/ACM Transactions on Networking 8(1), 2000).

use std::collections::BTreeMap;

use trunkline_units::{Instant, Rate, Size, Span};

use crate::atm::cell::CELL;

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

/// ERICA at an output port of a switch, which measures the load.
///
/// An averaging interval ends with the first call at or after its end.
#[derive(Clone, Debug)]
pub struct EricaPort {
    erica: Erica,
    interval: Span,
    /// Begin of the current interval; its number.
    begin: Instant,
    number: u64,
    /// Cells that arrived for the port in this interval, and their channels.
    cells: u64,
    active: usize,
    /// Number of the interval in which each channel last had a cell.
    last_active: Vec<u64>,
}

impl EricaPort {
    /// Creates the computation for a line of this rate.
    pub fn new(line: Rate, utilization: f64, interval: Span) -> Self {
        EricaPort {
            erica: Erica::new(line, utilization),
            interval,
            begin: Instant::ZERO,
            number: 1,
            cells: 0,
            active: 0,
            last_active: Vec::new(),
        }
    }

    /// Counts a data cell that arrives for the port, even if its queue is full.
    #[inline]
    pub fn count_cell(&mut self, now: Instant, channel: u16) {
        self.update(now);
        self.cells += 1;
        let index = usize::from(channel);
        if index >= self.last_active.len() {
            self.last_active.resize(index + 1, 0);
        }
        if std::mem::replace(&mut self.last_active[index], self.number) != self.number {
            self.active += 1;
        }
    }

    /// Handles a resource-management cell on the way to the destination.
    pub fn receive_forward(&mut self, now: Instant, source: u32, current: Rate) {
        self.update(now);
        self.erica.receive_forward(source, current);
    }

    /// Returns the explicit rate of a cell on the way back to its source: at most `rate`, which it carries.
    pub fn receive_backward(&mut self, now: Instant, source: u32, rate: Rate) -> Rate {
        self.update(now);
        self.erica.receive_backward(source, rate)
    }

    /// Forgets a source.
    pub fn remove(&mut self, source: u32) {
        self.erica.remove(source);
    }

    #[inline]
    fn update(&mut self, now: Instant) {
        let time = now.since(self.begin);
        if time >= self.interval {
            let load = Rate::of(Size::from_bytes(self.cells * u64::from(CELL)), time);
            self.erica.end_interval(load, self.active);
            (self.begin, self.cells, self.active) = (now, 0, 0);
            self.number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_measures_its_load() {
        // Two channels with 60 Mb/s each on a line of 100 Mb/s: the overload halves what they send to reach the target.
        let mbps = |mbps: u64| Rate::from_bps(mbps * 1_000_000);
        let mut port = EricaPort::new(mbps(100), 0.9, Span::from_ms(1));
        let gap = Span::from_ns(424_000 / 120);
        for cell in 0..1000u64 {
            let now = Instant::ZERO + gap * cell;
            port.count_cell(now, (cell % 2) as u16);
            port.receive_forward(now, (cell % 2) as u32, mbps(60));
        }
        let rate = port.receive_backward(Instant::ZERO + gap * 1000, 0, mbps(200)).as_bps() as f64;
        assert!((rate / 45e6 - 1.0).abs() < 0.01, "{rate}");
    }
}

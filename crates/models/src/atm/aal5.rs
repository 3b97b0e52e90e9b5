//! AAL5 reassembly (ITU-T I.363.5) with missing cells.

use crate::atm::cell::MAX_CELLS;

/// Reassembly counters of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Packets with a valid CRC.
    pub packets: u64,
    /// Packets that failed: a cell was missing or damaged when the last one arrived. A packet without its last cell is
    /// not counted: that cell was counted where it was lost.
    pub failed: u64,
    /// Maximum number of cells in one reassembly, valid or not; at most those of 65,535 bytes plus one.
    pub cells_max: u32,
}

/// Collects the cells of each channel until the last cell of a packet arrives. The length and the CRC-32 over the
/// collected cells are then valid if all cells of that packet arrived, in order, undamaged, and no others.
///
/// So a packet with a missing cell is lost; if its last cell is missing, the next packet's cells are appended and
/// both are lost. Data beyond 65,535 bytes is discarded and lost too.
///
/// Memory: 12 bytes for each channel up to the highest used, at most 768 KiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    channels: Vec<Assembly>,
    pub(crate) counters: ReassemblyCounters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Assembly {
    /// Number of cells collected so far.
    cells: u32,
    /// Serial number of the packet of the first cell.
    serial: u32,
    /// Whether a cell is missing, damaged, or of another packet.
    invalid: bool,
}

/// A received cell.
pub(crate) struct Cell {
    pub(crate) index: u16,
    pub(crate) last: bool,
    pub(crate) serial: u32,
    pub(crate) damaged: bool,
}

impl Reassembly {
    #[inline]
    fn channel(&mut self, channel: u16) -> &mut Assembly {
        let channel = usize::from(channel);
        if channel >= self.channels.len() {
            self.channels.resize(channel + 1, Assembly::default());
        }
        &mut self.channels[channel]
    }

    /// Returns the number of cells collected of the packet of a channel; at most those of the longest packet plus one.
    #[inline]
    pub(crate) fn cells(&mut self, channel: u16) -> u32 {
        self.channel(channel).cells
    }

    /// Adds a cell. If it ends a packet, returns whether the packet is valid.
    #[inline]
    pub(crate) fn add_cell(&mut self, channel: u16, cell: &Cell) -> Option<bool> {
        let assembly = self.channel(channel);
        if assembly.cells == 0 {
            assembly.serial = cell.serial;
        }
        let follows = u32::from(cell.index) == assembly.cells && cell.serial == assembly.serial;
        assembly.invalid |= !follows || cell.damaged;
        assembly.cells = (assembly.cells + 1).min(MAX_CELLS + 1);
        let Assembly { cells, invalid, .. } = *assembly;
        if cell.last {
            *assembly = Assembly::default();
        }
        self.counters.cells_max = self.counters.cells_max.max(cells);
        cell.last.then(|| self.count(!invalid && cells <= MAX_CELLS))
    }

    /// Adds the cells of a packet at once and returns whether it is valid. `complete`: all cells arrived undamaged;
    /// `has_last`: the last one arrived.
    pub(crate) fn add_train(&mut self, channel: u16, cells: u32, complete: bool, has_last: bool) -> bool {
        let assembly = self.channel(channel);
        let valid = complete && has_last && assembly.cells == 0;
        assembly.cells = (assembly.cells + cells).min(MAX_CELLS + 1);
        // If the last cell is missing, the next packet is appended and fails too, even if it arrives cell by cell.
        // Otherwise the assembly is reset below.
        assembly.invalid = true;
        let collected = assembly.cells;
        if has_last {
            *assembly = Assembly::default();
            self.count(valid);
        }
        self.counters.cells_max = self.counters.cells_max.max(collected);
        valid
    }

    fn count(&mut self, valid: bool) -> bool {
        self.counters.packets += u64::from(valid);
        self.counters.failed += u64::from(!valid);
        valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds packets of `count` cells each without the missing ones; returns the results.
    fn reassemble(count: u16, packets: u32, missing: &[(u32, u16)]) -> Vec<bool> {
        let mut reassembly = Reassembly::default();
        let cells = (0..packets).flat_map(|serial| (0..count).map(move |index| (serial, index)));
        cells
            .filter(|cell| !missing.contains(cell))
            .filter_map(|(serial, index)| {
                let cell = Cell { index, last: index + 1 == count, serial, damaged: false };
                reassembly.add_cell(7, &cell)
            })
            .collect()
    }

    #[test]
    fn a_missing_cell_loses_its_packet() {
        assert_eq!(reassemble(5, 3, &[]), [true; 3]);
        for index in 0..4 {
            assert_eq!(reassemble(5, 3, &[(1, index)]), [true, false, true]);
        }
    }

    #[test]
    fn a_missing_last_cell_joins_two_packets() {
        assert_eq!(reassemble(5, 3, &[(0, 4)]), [false, true]);
        // Even if the remaining cells have the length of one packet, the CRC is wrong.
        let splice = [(0, 3), (0, 4), (1, 0), (1, 1), (1, 2)];
        assert_eq!(reassemble(5, 3, &splice), [false, true]);
    }

    #[test]
    fn channels_are_independent_and_bounded() {
        let mut reassembly = Reassembly::default();
        let cell = |index, last| Cell { index, last, serial: 9, damaged: false };
        assert_eq!(reassembly.add_cell(1, &cell(0, false)), None);
        assert_eq!(reassembly.add_cell(2, &cell(0, true)), Some(true));
        assert_eq!(reassembly.add_cell(1, &cell(1, true)), Some(true));
        for index in 0..10_000 {
            reassembly.add_cell(1, &cell(index, false));
        }
        assert_eq!(reassembly.counters.cells_max, 1_367);
        assert_eq!(reassembly.add_cell(1, &cell(10_000, true)), Some(false));
        assert_eq!(reassembly.add_cell(1, &cell(0, true)), Some(true));
        let damaged = Cell { damaged: true, ..cell(0, true) };
        assert_eq!(reassembly.add_cell(1, &damaged), Some(false));
    }
}

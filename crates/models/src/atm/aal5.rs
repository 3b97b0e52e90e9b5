//! AAL5 reassembly (ITU-T I.363.5) with missing cells.

use crate::atm::cell::MOST_CELLS;

/// Reassembly counters of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets with a valid CRC.
    pub packets: u64,
    /// Packets that failed: last cells without a valid packet.
    pub broken: u64,
    /// Most cells of one reassembly, valid or not; at most those of 65,535 bytes plus one.
    pub gathered_max: u32,
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
    pub(crate) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Assembly {
    cells: u32,
    serial: u32,
    spoiled: bool,
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

    /// Adds a cell. If it ends a packet, returns whether the packet is valid.
    #[inline]
    pub(crate) fn cell(&mut self, channel: u16, cell: &Cell) -> Option<bool> {
        let gathering = self.channel(channel);
        if gathering.cells == 0 {
            gathering.serial = cell.serial;
        }
        let follows = u32::from(cell.index) == gathering.cells && cell.serial == gathering.serial;
        gathering.spoiled |= !follows || cell.damaged;
        gathering.cells = (gathering.cells + 1).min(MOST_CELLS + 1);
        let Assembly { cells, spoiled, .. } = *gathering;
        if cell.last {
            *gathering = Assembly::default();
        }
        self.counters.gathered_max = self.counters.gathered_max.max(cells);
        cell.last.then(|| self.count(!spoiled && cells <= MOST_CELLS))
    }

    /// Adds the cells of a packet at once. `whole`: all arrived undamaged; `ends`: the last one arrived.
    pub(crate) fn train(&mut self, channel: u16, cells: u32, whole: bool, ends: bool) -> bool {
        let gathering = self.channel(channel);
        let good = whole && ends && gathering.cells == 0;
        gathering.cells = (gathering.cells + cells).min(MOST_CELLS + 1);
        gathering.spoiled = true;
        let gathered = gathering.cells;
        if ends {
            *gathering = Assembly::default();
            self.count(good);
        }
        self.counters.gathered_max = self.counters.gathered_max.max(gathered);
        good
    }

    fn count(&mut self, good: bool) -> bool {
        self.counters.packets += u64::from(good);
        self.counters.broken += u64::from(!good);
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds packets of `count` cells each without the missing ones; returns the results.
    fn gather(count: u16, packets: u32, missing: &[(u32, u16)]) -> Vec<bool> {
        let mut reassembly = Reassembly::default();
        let cells = (0..packets).flat_map(|serial| (0..count).map(move |index| (serial, index)));
        cells
            .filter(|cell| !missing.contains(cell))
            .filter_map(|(serial, index)| {
                let cell = Cell { index, last: index + 1 == count, serial, damaged: false };
                reassembly.cell(7, &cell)
            })
            .collect()
    }

    #[test]
    fn a_missing_cell_loses_its_packet() {
        assert_eq!(gather(5, 3, &[]), [true; 3]);
        for index in 0..4 {
            assert_eq!(gather(5, 3, &[(1, index)]), [true, false, true]);
        }
    }

    #[test]
    fn a_missing_last_cell_joins_two_packets() {
        assert_eq!(gather(5, 3, &[(0, 4)]), [false, true]);
        // Even if the remaining cells have the length of one packet, the CRC is wrong.
        let splice = [(0, 3), (0, 4), (1, 0), (1, 1), (1, 2)];
        assert_eq!(gather(5, 3, &splice), [false, true]);
    }

    #[test]
    fn channels_gather_by_themselves_and_within_bounds() {
        let mut reassembly = Reassembly::default();
        let cell = |index, last| Cell { index, last, serial: 9, damaged: false };
        assert_eq!(reassembly.cell(1, &cell(0, false)), None);
        assert_eq!(reassembly.cell(2, &cell(0, true)), Some(true));
        assert_eq!(reassembly.cell(1, &cell(1, true)), Some(true));
        for index in 0..10_000 {
            reassembly.cell(1, &cell(index, false));
        }
        assert_eq!(reassembly.counters.gathered_max, 1_367);
        assert_eq!(reassembly.cell(1, &cell(10_000, true)), Some(false));
        assert_eq!(reassembly.cell(1, &cell(0, true)), Some(true));
        let damaged = Cell { damaged: true, ..cell(0, true) };
        assert_eq!(reassembly.cell(1, &damaged), Some(false));
    }
}

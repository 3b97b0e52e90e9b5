//! Putting packets together (ITU-T I.363.5): what becomes of cells when some are missing.

use crate::atm::cell::MOST_CELLS;

/// What an adapter counted of the packets that it put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets whose check held.
    pub packets: u64,
    /// Last cells with which no good packet ended.
    pub broken: u64,
    /// Most cells of one gathering, good or not; at most those of 65,535 bytes and one more.
    pub gathered_max: u32,
}

/// Gathers cells, for each channel by itself, until the last of a packet comes. Then the length and the CRC-32 over
/// everything gathered must be right: they are if all cells of that packet came, in order, whole, and nothing else.
///
/// So a packet with a missing cell is lost; and where the last one is missing the cells of the next packet follow as if
/// they belonged to it, and both are lost. What goes past 65,535 bytes is not kept, and is lost as well.
///
/// Its memory: 12 bytes for each channel up to the highest seen, so at most 768 KiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    channels: Vec<Gathering>,
    pub(crate) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gathering {
    cells: u32,
    serial: u32,
    spoiled: bool,
}

/// A cell as the adapter sees it.
pub(crate) struct Cell {
    pub(crate) index: u16,
    pub(crate) last: bool,
    pub(crate) serial: u32,
    pub(crate) damaged: bool,
}

impl Reassembly {
    #[inline]
    fn channel(&mut self, channel: u16) -> &mut Gathering {
        let channel = usize::from(channel);
        if channel >= self.channels.len() {
            self.channels.resize(channel + 1, Gathering::default());
        }
        &mut self.channels[channel]
    }

    /// Takes a cell. If it ends a packet: whether that is whole.
    #[inline]
    pub(crate) fn cell(&mut self, channel: u16, cell: &Cell) -> Option<bool> {
        let gathering = self.channel(channel);
        if gathering.cells == 0 {
            gathering.serial = cell.serial;
        }
        let follows = u32::from(cell.index) == gathering.cells && cell.serial == gathering.serial;
        gathering.spoiled |= !follows || cell.damaged;
        gathering.cells = (gathering.cells + 1).min(MOST_CELLS + 1);
        let Gathering { cells, spoiled, .. } = *gathering;
        if cell.last {
            *gathering = Gathering::default();
        }
        self.counters.gathered_max = self.counters.gathered_max.max(cells);
        cell.last.then(|| self.count(!spoiled && cells <= MOST_CELLS))
    }

    /// Takes the cells of a packet at once. `whole`: all came undamaged. `ends`: the last one came.
    pub(crate) fn train(&mut self, channel: u16, cells: u32, whole: bool, ends: bool) -> bool {
        let gathering = self.channel(channel);
        let good = whole && ends && gathering.cells == 0;
        gathering.cells = (gathering.cells + cells).min(MOST_CELLS + 1);
        gathering.spoiled = true;
        let gathered = gathering.cells;
        if ends {
            *gathering = Gathering::default();
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

    /// Cells of packets of `count` cells each, but for those that are missing; what comes of it.
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
        // Even if what is left of the two is as long as one: the CRC is wrong.
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

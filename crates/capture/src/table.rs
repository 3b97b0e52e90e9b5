//! Tables that never outgrow their bound: a row a key, and one for all that had no room.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::name::Class;

/// Samples that a histogram looks back.
pub const WINDOW: usize = 10;

/// Packets and their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub packets: u64,
    /// Octets of all of them.
    pub bytes: u64,
}

impl Count {
    /// Of one packet.
    pub fn one(length: u32) -> Count {
        Count { packets: 1, bytes: length.into() }
    }

    /// The larger of each.
    pub fn max(self, other: Count) -> Count {
        Count { packets: self.packets.max(other.packets), bytes: self.bytes.max(other.bytes) }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Since counting began.
    pub total: Count,
    /// In the last whole sample.
    pub last: Count,
    /// The largest of a sample.
    pub max: Count,
    /// In the sample that runs.
    running: Count,
    /// The last samples by class, the running one among them, as a ring.
    recent: [[Count; Class::ALL.len()]; WINDOW],
    /// When the last packet came, in nanoseconds since 1970.
    pub seen_ns: u64,
}

impl Row {
    fn add(&mut self, slot: usize, class: Class, count: Count, at_ns: u64) {
        self.total += count;
        self.running += count;
        self.recent[slot][class as usize] += count;
        self.seen_ns = self.seen_ns.max(at_ns);
    }

    /// Ends a sample; `slot` is the next one's.
    fn close(&mut self, slot: usize) {
        self.last = std::mem::take(&mut self.running);
        self.max = self.max.max(self.last);
        self.recent[slot] = Default::default();
    }

    /// The last [`WINDOW`] samples together, by class, as [`Class::ALL`] has them.
    pub fn recent(&self) -> [Count; Class::ALL.len()] {
        let mut sum: [Count; Class::ALL.len()] = Default::default();
        for sample in &self.recent {
            sum.iter_mut().zip(sample).for_each(|(sum, count)| *sum += *count);
        }
        sum
    }

    /// What is known of two keys together. Their largest samples may have been at different times: the larger stands.
    fn merge(&mut self, other: &Row) {
        self.total += other.total;
        self.last += other.last;
        self.max = self.max.max(other.max);
        self.running += other.running;
        self.seen_ns = self.seen_ns.max(other.seen_ns);
        for (sum, sample) in self.recent.iter_mut().zip(&other.recent) {
            sum.iter_mut().zip(sample).for_each(|(sum, count)| *sum += *count);
        }
    }
}

/// Rows by key, at most so many; what has no room is counted together. Rows whose key has been silent make room once
/// three quarters are taken; what they counted goes to the others, so that the sum of all rows stays what passed.
#[derive(Clone, Debug)]
pub struct Table<K> {
    rows: BTreeMap<K, Row>,
    limit: usize,
    others: Row,
    /// Number of rows that were merged into the others to make room.
    folded: u64,
}

impl<K: Ord + Copy> Table<K> {
    /// An empty one of at most `limit` rows.
    pub fn new(limit: usize) -> Table<K> {
        Table { rows: BTreeMap::new(), limit, others: Row::default(), folded: 0 }
    }

    /// Counts a packet of `key` in the sample at `slot`.
    pub fn add(&mut self, key: K, slot: usize, class: Class, count: Count, at_ns: u64) {
        let full = self.rows.len() >= self.limit;
        let row = match self.rows.get_mut(&key) {
            Some(row) => row,
            None if full => &mut self.others,
            None => self.rows.entry(key).or_default(),
        };
        row.add(slot, class, count, at_ns);
    }

    /// Ends a sample; `slot` is the next one's. Keys silent since `silent_ns` may make room.
    pub fn close(&mut self, slot: usize, silent_ns: u64) {
        for row in self.rows.values_mut().chain([&mut self.others]) {
            row.close(slot);
        }
        if self.rows.len() > self.limit / 4 * 3 {
            let (others, folded) = (&mut self.others, &mut self.folded);
            self.rows.retain(|_, row| {
                let stays = row.seen_ns >= silent_ns;
                if !stays {
                    others.merge(row);
                    *folded += 1;
                }
                stays
            });
        }
    }

    /// Every row with its key, in the order of keys.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &Row)> {
        self.rows.iter()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All that had no room, or made some.
    pub fn others(&self) -> &Row {
        &self.others
    }

    /// How many rows made room.
    pub fn folded(&self) -> u64 {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(table: &Table<u16>) -> Count {
        let mut sum = table.others().total;
        table.rows().for_each(|(_, row)| sum += row.total);
        sum
    }

    #[test]
    fn what_has_no_room_goes_to_the_others_and_the_silent_make_room() {
        let mut table = Table::new(4);
        for key in 0..6u16 {
            table.add(key, 0, Class::Tcp, Count::one(100), u64::from(key));
        }
        assert_eq!((table.len(), table.others().total), (4, Count { packets: 2, bytes: 200 }));
        table.close(1, 2);
        let keys: Vec<u16> = table.rows().map(|(key, _)| *key).collect();
        assert_eq!((keys, table.folded()), (vec![2, 3], 2));
        assert_eq!(table.others().total.packets, 4);
        table.add(9, 1, Class::Tcp, Count::one(1), 9);
        assert!(table.rows().any(|(key, _)| *key == 9), "there is room again");
        assert_eq!(total(&table), Count { packets: 7, bytes: 601 });
    }

    #[test]
    fn a_histogram_forgets_what_is_older_than_its_window() {
        let mut table = Table::new(1);
        table.add(0u16, 0, Class::Udp, Count::one(10), 0);
        let recent = |table: &Table<u16>| table.rows().next().unwrap().1.recent()[Class::Udp as usize].bytes;
        for n in 1..WINDOW {
            table.close(n, 0);
            assert_eq!(recent(&table), 10);
        }
        table.close(0, 0);
        assert_eq!(recent(&table), 0);
        assert_eq!(table.rows().next().unwrap().1.total.bytes, 10);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_outgrows(
            limit in 1usize..20,
            steps in proptest::collection::vec((0u16..60, 1u32..1500, any::<bool>()), 0..400),
        ) {
            let mut table = Table::new(limit);
            let mut passed = Count::default();
            let mut largest = Count::default();
            let mut running = Count::default();
            for (at, (key, length, closes)) in steps.into_iter().enumerate() {
                table.add(key, at % WINDOW, Class::Other, Count::one(length), at as u64);
                passed += Count::one(length);
                running += Count::one(length);
                if closes {
                    table.close((at + 1) % WINDOW, (at as u64).saturating_sub(10));
                    largest = largest.max(std::mem::take(&mut running));
                }
                prop_assert!(table.len() <= limit);
                prop_assert_eq!(total(&table), passed);
                prop_assert!(table.rows().all(|(_, row)| row.max.bytes <= largest.bytes));
            }
        }
    }
}

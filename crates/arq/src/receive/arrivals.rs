//! Received frame numbers.

/// The set of received frame numbers: all before `next`, and some of the `window` numbers from there on.
#[derive(Debug)]
pub(crate) struct Arrivals {
    next: u64,
    /// One past the highest number received.
    end: u64,
    window: u64,
    /// A bit for each number, indexed by its remainder.
    bits: Box<[u64]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next number, and there is no gap.
    InOrder,
    /// The next number, at the start of a gap.
    FillsGap,
    /// Numbers before it are missing that were not known to be missing.
    OpensGap,
    /// Inside or right after a known gap.
    AfterGap,
    /// Received before.
    Duplicate,
    /// Beyond the window.
    OutsideWindow,
}

impl Arrivals {
    pub fn new(window: u16) -> Self {
        // A power of two makes remainders cheap; one extra word.
        let words = (usize::from(window) / 64 + 2).next_power_of_two();
        Arrivals { next: 0, end: 0, window: window.into(), bits: vec![0; words].into() }
    }

    /// Sets the first number, before any frame was received.
    pub fn set_first_number(&mut self, number: u64) {
        (self.next, self.end) = (number, number);
    }

    /// Returns the first number that has not arrived.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub fn has_gap(&self) -> bool {
        self.end > self.next
    }

    #[inline]
    fn bit(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.bits.len() - 1), 1 << (number % 64))
    }

    #[inline]
    fn has_arrived(&self, number: u64) -> bool {
        let (word, bit) = self.bit(number);
        self.bits[word] & bit != 0
    }

    pub fn is_missing(&self, number: u64) -> bool {
        number >= self.next && (number >= self.end || !self.has_arrived(number))
    }

    #[inline]
    pub fn classify(&self, number: u64) -> Arrival {
        if number == self.next {
            if self.has_gap() { Arrival::FillsGap } else { Arrival::InOrder }
        } else if number < self.next {
            Arrival::Duplicate
        } else if number - self.next >= self.window {
            Arrival::OutsideWindow
        } else if number >= self.end {
            if number > self.end || !self.has_gap() { Arrival::OpensGap } else { Arrival::AfterGap }
        } else if self.has_arrived(number) {
            Arrival::Duplicate
        } else {
            Arrival::AfterGap
        }
    }

    /// Records the arrival of `number`, which must be neither a duplicate nor outside the window (see
    /// [`classify`](Arrivals::classify)).
    #[inline]
    pub fn record(&mut self, number: u64) {
        if number == self.next {
            self.next += 1;
            while self.next < self.end && self.has_arrived(self.next) {
                let (word, bit) = self.bit(self.next);
                self.bits[word] &= !bit;
                self.next += 1;
            }
            self.end = self.end.max(self.next);
        } else {
            let (word, bit) = self.bit(number);
            self.bits[word] |= bit;
            self.end = self.end.max(number + 1);
        }
    }

    /// Records the arrival of the next `count` numbers when there is no gap.
    #[inline]
    pub fn record_next(&mut self, count: u64) {
        self.next += count;
        self.end = self.next;
    }

    /// Iterates over pairs of counts (missing, received), from the first missing to the last received number.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let mut at = self.next;
        std::iter::from_fn(move || {
            let count = |from: u64, has: bool| {
                (from..self.end).take_while(|n| self.has_arrived(*n) == has).count() as u16
            };
            if at >= self.end {
                return None;
            }
            let missing = count(at, false);
            let arrived = count(at + u64::from(missing), true);
            at += u64::from(missing) + u64::from(arrived);
            Some((missing, arrived))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arrivals_are_classified() {
        let mut arrivals = Arrivals::new(16);
        let mut arrive = |number| {
            let arrival = arrivals.classify(number);
            if !matches!(arrival, Arrival::Duplicate | Arrival::OutsideWindow) {
                arrivals.record(number);
            }
            arrival
        };
        use Arrival::*;
        let results = [0, 1, 3, 4, 6, 5, 2, 2, 6, 7, 24, 23].map(&mut arrive);
        let expected = [
            InOrder,
            InOrder,
            OpensGap,
            AfterGap,
            OpensGap,
            AfterGap,
            FillsGap,
            Duplicate,
            Duplicate,
            InOrder,
            OutsideWindow,
            OpensGap,
        ];
        assert_eq!(results, expected);
        assert_eq!(arrivals.ranges().collect::<Vec<_>>(), [(15, 1)]);
    }

    proptest! {
        #[test]
        fn arrivals_behave_like_a_set(window in 1u16..300, ahead in prop::collection::vec(0u64..400, 0..600)) {
            let mut arrivals = Arrivals::new(window);
            let mut set = BTreeSet::new();
            let mut next = 0;
            for step in ahead {
                let number = (next + step).saturating_sub(40);
                let arrival = arrivals.classify(number);
                prop_assert_eq!(arrival == Arrival::Duplicate, set.contains(&number));
                prop_assert_eq!(arrival == Arrival::OutsideWindow, number >= next + u64::from(window));
                if !matches!(arrival, Arrival::Duplicate | Arrival::OutsideWindow) {
                    arrivals.record(number);
                    set.insert(number);
                    while set.contains(&next) {
                        next += 1;
                    }
                }
                prop_assert_eq!(arrivals.next(), next);
                let mut reported = BTreeSet::new();
                let mut at = next;
                for (missing, arrived) in arrivals.ranges() {
                    prop_assert!(missing > 0 && arrived > 0);
                    at += u64::from(missing);
                    reported.extend(at..at + u64::from(arrived));
                    at += u64::from(arrived);
                }
                prop_assert_eq!(reported, set.range(next..).copied().collect::<BTreeSet<_>>());
            }
        }
    }
}

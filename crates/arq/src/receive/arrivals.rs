//! Which frames have arrived.

/// Numbers of the frames that have arrived, as far as they are remembered: all before `next`, and some of the `window`
/// that begins there.
#[derive(Debug)]
pub(crate) struct Arrivals {
    next: u64,
    /// One past the last that has arrived.
    end: u64,
    window: u64,
    /// A bit for each number, by its remainder.
    bits: Box<[u64]>,
}

/// What the arrival of a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next in order, and nothing is missing behind it.
    InOrder,
    /// It fills the first gap.
    Filled,
    /// Something before it is missing, and was not known to be.
    OpensGap,
    /// It is early, in or behind a gap that is known.
    Early,
    /// It has arrived before.
    Double,
    /// It is further ahead than a sender may go.
    Outside,
}

impl Arrivals {
    pub fn new(window: u16) -> Self {
        // A power of two, so that remainders are cheap, with a word to spare.
        let words = (usize::from(window) / 64 + 2).next_power_of_two();
        Arrivals { next: 0, end: 0, window: window.into(), bits: vec![0; words].into() }
    }

    /// `number` is the first that comes, if none has.
    pub fn number_from(&mut self, number: u64) {
        (self.next, self.end) = (number, number);
    }

    /// The first number that has not arrived.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether numbers are missing before some that have arrived.
    #[inline]
    pub fn has_gap(&self) -> bool {
        self.end > self.next
    }

    #[inline]
    fn bit(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.bits.len() - 1), 1 << (number % 64))
    }

    #[inline]
    fn has(&self, number: u64) -> bool {
        let (word, bit) = self.bit(number);
        self.bits[word] & bit != 0
    }

    /// Whether `number` has not arrived.
    pub fn misses(&self, number: u64) -> bool {
        number >= self.next && (number >= self.end || !self.has(number))
    }

    /// What the arrival of `number` would mean.
    #[inline]
    pub fn judge(&self, number: u64) -> Arrival {
        if number == self.next {
            if self.has_gap() { Arrival::Filled } else { Arrival::InOrder }
        } else if number < self.next {
            Arrival::Double
        } else if number - self.next >= self.window {
            Arrival::Outside
        } else if number >= self.end {
            if number > self.end || !self.has_gap() { Arrival::OpensGap } else { Arrival::Early }
        } else if self.has(number) {
            Arrival::Double
        } else {
            Arrival::Early
        }
    }

    /// Notes that `number` has arrived, which [`judge`](Arrivals::judge) did not call a double or outside.
    #[inline]
    pub fn note(&mut self, number: u64) {
        if number == self.next {
            self.next += 1;
            while self.next < self.end && self.has(self.next) {
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

    /// Notes that the next number has arrived, where there is no gap.
    #[inline]
    pub fn note_next(&mut self) {
        self.next += 1;
        self.end = self.next;
    }

    /// Notes that so many next numbers have arrived, where there is no gap.
    #[inline]
    pub fn note_run(&mut self, count: u64) {
        self.next += count;
        self.end = self.end.max(self.next);
    }

    /// Missing, then arrived, in turns from the first that has not arrived to the last that has.
    pub fn runs(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let mut at = self.next;
        std::iter::from_fn(move || {
            let run =
                |from: u64, has: bool| (from..self.end).take_while(|n| self.has(*n) == has).count() as u16;
            if at >= self.end {
                return None;
            }
            let missing = run(at, false);
            let arrived = run(at + u64::from(missing), true);
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
    fn arrivals_are_told_apart() {
        let mut arrivals = Arrivals::new(16);
        let mut come = |number| {
            let arrival = arrivals.judge(number);
            if !matches!(arrival, Arrival::Double | Arrival::Outside) {
                arrivals.note(number);
            }
            arrival
        };
        use Arrival::*;
        let said = [0, 1, 3, 4, 6, 5, 2, 2, 6, 7, 24, 23].map(&mut come);
        let want = [
            InOrder, InOrder, OpensGap, Early, OpensGap, Early, Filled, Double, Double, InOrder, Outside,
            OpensGap,
        ];
        assert_eq!(said, want);
        assert_eq!(arrivals.runs().collect::<Vec<_>>(), [(15, 1)]);
    }

    proptest! {
        #[test]
        fn they_are_a_set(window in 1u16..300, ahead in prop::collection::vec(0u64..400, 0..600)) {
            let mut arrivals = Arrivals::new(window);
            let mut set = BTreeSet::new();
            let mut next = 0;
            for step in ahead {
                let number = (next + step).saturating_sub(40);
                let arrival = arrivals.judge(number);
                prop_assert_eq!(arrival == Arrival::Double, set.contains(&number));
                prop_assert_eq!(arrival == Arrival::Outside, number >= next + u64::from(window));
                if !matches!(arrival, Arrival::Double | Arrival::Outside) {
                    arrivals.note(number);
                    set.insert(number);
                    while set.contains(&next) {
                        next += 1;
                    }
                }
                prop_assert_eq!(arrivals.next(), next);
                let mut told = BTreeSet::new();
                let mut at = next;
                for (missing, arrived) in arrivals.runs() {
                    prop_assert!(missing > 0 && arrived > 0);
                    at += u64::from(missing);
                    told.extend(at..at + u64::from(arrived));
                    at += u64::from(arrived);
                }
                prop_assert_eq!(told, set.range(next..).copied().collect::<BTreeSet<_>>());
            }
        }
    }
}

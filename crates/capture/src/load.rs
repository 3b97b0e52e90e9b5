//! The load: packets and bits per second, sampled; current, average and maximum.

use std::collections::VecDeque;

use crate::table::Count;

/// Samples that are kept for the graph.
pub const KEPT: usize = 600;

/// What passed from one moment to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// When it began, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Everything that came.
    pub all: Count,
    /// What the filter passed.
    pub shown: Count,
}

/// Samples of one length, one after the other.
#[derive(Clone, Debug)]
pub struct Load {
    interval_ns: u64,
    /// When the running sample began; none before the first packet.
    running: Option<Sample>,
    began_ns: u64,
    now_ns: u64,
    samples: VecDeque<Sample>,
    total: Count,
    shown: Count,
    max_packets: u64,
    max_bytes: u64,
    closed: u64,
}

impl Load {
    /// Samples of `interval_ns`, at least 1.
    pub fn new(interval_ns: u64) -> Load {
        Load {
            interval_ns: interval_ns.max(1),
            running: None,
            began_ns: 0,
            now_ns: 0,
            samples: VecDeque::new(),
            total: Count::default(),
            shown: Count::default(),
            max_packets: 0,
            max_bytes: 0,
            closed: 0,
        }
    }

    /// It is `now_ns`: ends the samples that lie before and returns their number; all but the first are without a packet.
    /// Time that goes back changes nothing. Silence longer than [`KEPT`] samples is not sampled: the next sample begins
    /// behind it.
    pub fn advance(&mut self, now_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(now_ns);
        let Some(running) = self.running else {
            self.began_ns = now_ns;
            self.running = Some(Sample { at_ns: now_ns, ..Sample::default() });
            return 0;
        };
        let ended = self.now_ns.saturating_sub(running.at_ns) / self.interval_ns;
        if ended == 0 {
            return 0;
        }
        self.close(running);
        for n in 1..ended.min(KEPT as u64) {
            self.close(Sample { at_ns: running.at_ns + n * self.interval_ns, ..Sample::default() });
        }
        self.running = Some(Sample { at_ns: running.at_ns + ended * self.interval_ns, ..Sample::default() });
        ended
    }

    /// Counts a packet at the current time, whether or not the filter passed it.
    pub fn add(&mut self, count: Count, shown: bool) {
        let Some(running) = &mut self.running else { return };
        running.all += count;
        self.total += count;
        if shown {
            running.shown += count;
            self.shown += count;
        }
    }

    fn close(&mut self, sample: Sample) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.max_packets = self.max_packets.max(sample.shown.packets);
        self.max_bytes = self.max_bytes.max(sample.shown.bytes);
        self.closed += 1;
    }

    /// The samples that ended, the oldest first, at most [`KEPT`].
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// What the sample that runs has so far.
    pub fn running(&self) -> Count {
        self.running.map(|sample| sample.all).unwrap_or_default()
    }

    /// How many have ended.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Length of a sample, in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Everything since counting began.
    pub fn total(&self) -> Count {
        self.total
    }

    /// What the filter passed.
    pub fn shown(&self) -> Count {
        self.shown
    }

    /// A count of one sample as rates: packets/s and bits/s.
    pub fn rates(&self, count: Count) -> (f64, f64) {
        per_second(count, self.interval_ns)
    }

    /// What the filter passed in the last whole sample, in packets/s and bits/s.
    pub fn current(&self) -> (f64, f64) {
        self.rates(self.samples.back().map(|s| s.shown).unwrap_or_default())
    }

    /// Over the whole time, in packets/s and bits/s.
    pub fn average(&self) -> (f64, f64) {
        per_second(self.shown, self.elapsed_ns())
    }

    /// The largest packets/s and the largest bits/s of a sample.
    pub fn maximum(&self) -> (f64, f64) {
        self.rates(Count { packets: self.max_packets, bytes: self.max_bytes })
    }

    /// Returns the time from the first to the last packet, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        if self.running.is_none() { 0 } else { self.now_ns.saturating_sub(self.began_ns) }
    }

    /// Returns the current time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

fn per_second(count: Count, over_ns: u64) -> (f64, f64) {
    if over_ns == 0 {
        return (0.0, 0.0);
    }
    let seconds = over_ns as f64 / 1e9;
    (count.packets as f64 / seconds, count.bytes as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn current_average_and_maximum() {
        let mut load = Load::new(S);
        assert_eq!((load.current(), load.average()), ((0.0, 0.0), (0.0, 0.0)));
        for (at_ns, bytes, shown) in
            [(5 * S, 100, true), (5 * S + 1, 300, true), (6 * S, 50, true), (7 * S, 9, false)]
        {
            load.advance(at_ns);
            load.add(Count::one(bytes), shown);
        }
        load.advance(9 * S);
        let samples: Vec<(u64, u64, u64)> =
            load.samples().map(|s| (s.at_ns / S, s.all.bytes, s.shown.bytes)).collect();
        assert_eq!(samples, [(5, 400, 400), (6, 50, 50), (7, 9, 0), (8, 0, 0)]);
        assert_eq!(load.current(), (0.0, 0.0));
        assert_eq!(load.average(), (0.75, 900.0));
        assert_eq!(load.maximum(), (2.0, 3200.0));
        assert_eq!((load.total().bytes, load.shown().bytes), (459, 450));
    }

    #[test]
    fn a_long_silence_costs_nothing() {
        let mut load = Load::new(1);
        load.advance(1);
        load.add(Count::one(1), true);
        assert_eq!(load.advance(u64::MAX), u64::MAX - 1);
        assert_eq!(load.samples().count(), KEPT);
        load.add(Count::one(7), true);
        assert_eq!(load.advance(3), 0, "time goes back");
        assert_eq!(load.total().bytes, 8);
    }

    proptest! {
        #[test]
        fn every_packet_is_in_one_sample(gaps in proptest::collection::vec((0u64..5_000, 1u32..1500), 1..300)) {
            let mut load = Load::new(1000);
            let mut now_ns = 17;
            for (gap, length) in &gaps {
                now_ns += gap;
                load.advance(now_ns);
                load.add(Count::one(*length), true);
            }
            load.advance(now_ns + 1000);
            let mut sum = Count::default();
            if load.closed() <= KEPT as u64 {
                load.samples().for_each(|s| sum += s.all);
                prop_assert_eq!(sum, load.total());
            }
            let times: Vec<u64> = load.samples().map(|s| s.at_ns).collect();
            prop_assert!(times.windows(2).all(|w| w[1] - w[0] == 1000));
            prop_assert!(load.maximum().0 >= load.current().0 && load.maximum().1 >= load.current().1);
        }
    }
}

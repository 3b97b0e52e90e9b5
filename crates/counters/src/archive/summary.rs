//! Summaries of many readings: exact sums, lowest and highest values, coverage and events; buckets of summaries over
//! time.

use std::time::Duration;

use crate::counter::column::Update;
use crate::counter::{Event, EventSet, Growth, Timestamp, ValueKind};

/// Lowest and highest values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The lowest value; of a counter the lowest possible rate.
    pub low: f64,
    /// The highest certain value; of a counter the highest [`Growth::min_rate`].
    pub high: f64,
    /// The highest possible value; of a counter the highest [`Growth::max_rate`], which may be infinite; otherwise
    /// the same as `high`.
    pub upper_bound: f64,
}

impl Range {
    fn merge(a: Option<Range>, b: Range) -> Option<Range> {
        let a = a.unwrap_or(b);
        Some(Range {
            low: a.low.min(b.low),
            high: a.high.max(b.high),
            upper_bound: a.upper_bound.max(b.upper_bound),
        })
    }
}

/// A summary of many readings of one series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The growth of a counter, or the sum of the values of a gauge. Exact.
    pub sum: i128,
    /// The sum of floating-point values.
    pub real_sum: f64,
    /// Readings that gave a growth or a value.
    pub samples: u64,
    /// The time covered by the readings.
    pub covered: Duration,
    /// Rates of a counter in units per second, values of others. `None` without readings.
    pub range: Option<Range>,
    /// The events.
    pub events: EventSet,
}

impl Summary {
    /// Adds the update of a response.
    pub fn add(&mut self, kind: ValueKind, step: &Update) {
        self.events.extend(step.events);
        if let Some(growth) = &step.growth {
            self.sum += i128::from(growth.amount);
            self.samples += 1;
            self.add_growth(growth, growth.duration());
        }
        if let Some((window, raw)) = step.level {
            self.samples += 1;
            match kind {
                ValueKind::Real => self.real_sum += raw.to_f64(kind),
                _ => self.sum += i128::from(raw.0 as i64),
            }
            let value = raw.to_f64(kind);
            self.range = Range::merge(self.range, Range { low: value, high: value, upper_bound: value });
            self.covered +=
                step.previous.map_or(Duration::ZERO, |since| window.latest.duration_since(since.latest));
        }
    }

    fn add_growth(&mut self, growth: &Growth, length: Duration) {
        let range = Range { low: growth.min_rate(), high: growth.min_rate(), upper_bound: growth.max_rate() };
        self.range = Range::merge(self.range, range);
        self.covered += length;
        if growth.over_gap {
            self.events.insert(Event::Silent);
        }
    }

    /// Adds another summary of the same series.
    pub fn merge(&mut self, other: &Summary) {
        self.sum += other.sum;
        self.real_sum += other.real_sum;
        self.samples = self.samples.saturating_add(other.samples);
        self.covered += other.covered;
        self.events.extend(other.events);
        self.range = other.range.map_or(self.range, |range| Range::merge(self.range, range));
    }
}

/// Returns the share of `whole` before `at` if it is spread evenly from `begin` to `end`: 0 at the start, `whole` at
/// the end, whole numbers in between, so that shares between edges add up.
fn share_before(total: i128, begin: Timestamp, end: Timestamp, at: Timestamp) -> i128 {
    if at >= end {
        return total;
    }
    let (part, all) = (at.duration_since(begin).as_nanos(), end.duration_since(begin).as_nanos());
    if part == 0 || all == 0 {
        return 0;
    }
    // Both factors are below 2^64.
    let remainder = total.rem_euclid(all as i128) as u128 * part / all;
    total.div_euclid(all as i128) * part as i128 + remainder as i128
}

/// A time range divided into equal buckets with a summary each.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    from: Timestamp,
    to: Timestamp,
    /// The summaries in order of time.
    pub buckets: Vec<Summary>,
}

impl Buckets {
    /// Creates `count` buckets, at least one, for the time from `from` to `to`.
    pub fn new(from: Timestamp, to: Timestamp, count: usize) -> Buckets {
        Buckets { from, to: to.max(from), buckets: vec![Summary::default(); count.max(1)] }
    }

    /// Returns the start of bucket `at`, which is the end of the previous one.
    pub fn edge(&self, at: usize) -> Timestamp {
        let length = i128::from(self.to.0) - i128::from(self.from.0);
        let offset = length * at as i128 / self.buckets.len() as i128;
        Timestamp((i128::from(self.from.0) + offset) as i64)
    }

    /// Returns the bucket of a time from `from` to `to`. The end of the range belongs to the last bucket.
    fn index_of(&self, at: Timestamp) -> usize {
        let length = (i128::from(self.to.0) - i128::from(self.from.0)).max(1);
        let offset = i128::from(at.0) - i128::from(self.from.0);
        let count = self.buckets.len();
        let mut bucket = (offset * count as i128 / length).clamp(0, count as i128 - 1) as usize;
        // Edges are rounded down: the next edge may be at or before `at`.
        while bucket + 1 < count && self.edge(bucket + 1) <= at {
            bucket += 1;
        }
        bucket
    }

    fn contains(&self, at: Timestamp) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// Returns the bucket that contains the whole time from `begin` to `end`, if there is one.
    pub(crate) fn single_bucket(&self, begin: Timestamp, end: Timestamp) -> Option<usize> {
        if !self.contains(begin) || !self.contains(end) {
            return None;
        }
        let bucket = self.index_of(end);
        // An end on an edge belongs to the bucket before it.
        let bucket = if bucket > 0 && end == self.edge(bucket) { bucket - 1 } else { bucket };
        (self.edge(bucket) <= begin).then_some(bucket)
    }

    /// Calls `give` for each bucket with its part of the time from `begin` to `end`.
    fn for_each_overlap(
        &mut self,
        begin: Timestamp,
        end: Timestamp,
        mut give: impl FnMut(&mut Summary, Timestamp, Timestamp),
    ) {
        let (first, last) = (begin.max(self.from), end.min(self.to));
        if first >= last {
            return;
        }
        for at in self.index_of(first)..=self.index_of(last) {
            let (low, high) = (self.edge(at).max(first), self.edge(at + 1).min(last));
            if low < high {
                give(&mut self.buckets[at], low, high);
            }
        }
    }

    /// Adds the update of a response at time `at`.
    pub(crate) fn add(&mut self, kind: ValueKind, at: Timestamp, step: &Update) {
        if self.contains(at) {
            let bucket = self.index_of(at);
            self.buckets[bucket].events.extend(step.events);
        }
        if let Some(growth) = &step.growth {
            let (begin, end, by) = (growth.from.latest, growth.to.latest, i128::from(growth.amount));
            self.for_each_overlap(begin, end, |summary, low, high| {
                summary.sum += share_before(by, begin, end, high) - share_before(by, begin, end, low);
                summary.samples += u64::from(high == end);
                summary.add_growth(growth, high.duration_since(low));
            });
        }
        if let Some((window, _)) = step.level {
            if self.contains(window.latest) {
                let bucket = self.index_of(window.latest);
                let without_coverage = Update { previous: None, events: EventSet::EMPTY, ..*step };
                self.buckets[bucket].add(kind, &without_coverage);
            }
            if let Some(since) = step.previous {
                self.for_each_overlap(since.latest, window.latest, |summary, low, high| {
                    summary.covered += high.duration_since(low)
                });
            }
        }
    }

    /// Adds a summary of the time from `begin` to `end` evenly over that time.
    pub(crate) fn spread_evenly(&mut self, begin: Timestamp, end: Timestamp, total: &Summary) {
        let all = end.duration_since(begin).as_nanos().max(1) as f64;
        let covered = total.covered.as_nanos() as i128;
        self.for_each_overlap(begin, end, |summary, low, high| {
            let of =
                |number: i128| share_before(number, begin, end, high) - share_before(number, begin, end, low);
            let part = Summary {
                sum: of(total.sum),
                real_sum: total.real_sum * (high.duration_since(low).as_nanos() as f64 / all),
                samples: of(i128::from(total.samples)) as u64,
                covered: Duration::from_nanos(of(covered) as u64),
                ..*total
            };
            summary.merge(&part);
        });
    }
}

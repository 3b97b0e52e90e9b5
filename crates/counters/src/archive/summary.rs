//! What is kept of many readings: exact sums, least and most, coverage, events. And buckets of it over time.

use std::time::Duration;

use crate::counter::track::Step;
use crate::counter::{Event, Events, Growth, Kind, Moment};

/// Least and most of what was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The lowest: of a counter the least that a rate can have been, of others the lowest value.
    pub low: f64,
    /// The highest that is certain: of a counter the greatest [`Growth::least`], of others the highest value.
    pub high: f64,
    /// The highest that can have been: of a counter the greatest [`Growth::most`], which may be infinite; of others as
    /// `high`.
    pub most: f64,
}

impl Range {
    fn join(a: Option<Range>, b: Range) -> Option<Range> {
        let a = a.unwrap_or(b);
        Some(Range { low: a.low.min(b.low), high: a.high.max(b.high), most: a.most.max(b.most) })
    }
}

/// What is kept of many readings of one series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Of a counter: what it grew by. Of a gauge: the sum of its values. Exact.
    pub sum: i128,
    /// Of a real number: the sum of its values, as doubles add up.
    pub real: f64,
    /// Readings that gave growth or a value.
    pub samples: u64,
    /// How much of the time they tell about.
    pub covered: Duration,
    /// Rates of a counter, units a second; values of others. None without readings.
    pub range: Option<Range>,
    /// What happened.
    pub events: Events,
}

impl Summary {
    /// Adds what followed from a response.
    pub fn add(&mut self, kind: Kind, step: &Step) {
        self.events.join(step.events);
        if let Some(growth) = &step.growth {
            self.sum += i128::from(growth.by);
            self.samples += 1;
            self.grown(growth, growth.length());
        }
        if let Some((window, raw)) = step.level {
            self.samples += 1;
            match kind {
                Kind::Real => self.real += raw.number(kind),
                _ => self.sum += i128::from(raw.0 as i64),
            }
            let value = raw.number(kind);
            self.range = Range::join(self.range, Range { low: value, high: value, most: value });
            self.covered += step.since.map_or(Duration::ZERO, |since| window.latest.since(since.latest));
        }
    }

    fn grown(&mut self, growth: &Growth, length: Duration) {
        let range = Range { low: growth.least(), high: growth.least(), most: growth.most() };
        self.range = Range::join(self.range, range);
        self.covered += length;
        if growth.over_gap {
            self.events.add(Event::Silent);
        }
    }

    /// Adds another of the same series.
    pub fn join(&mut self, other: &Summary) {
        self.sum += other.sum;
        self.real += other.real;
        self.samples = self.samples.saturating_add(other.samples);
        self.covered += other.covered;
        self.events.join(other.events);
        self.range = other.range.map_or(self.range, |range| Range::join(self.range, range));
    }
}

/// The share of `whole` that falls before `at`, of a stretch from `begin` to `end`: 0 at its begin, all at its end, whole
/// numbers in between, so that shares between edges add up to the whole.
fn share(whole: i128, begin: Moment, end: Moment, at: Moment) -> i128 {
    if at >= end {
        return whole;
    }
    let (part, all) = (at.since(begin).as_nanos(), end.since(begin).as_nanos());
    if part == 0 || all == 0 {
        return 0;
    }
    // Both factors are below 2^64.
    let remainder = whole.rem_euclid(all as i128) as u128 * part / all;
    whole.div_euclid(all as i128) * part as i128 + remainder as i128
}

/// Time cut into equal buckets, each with a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    from: Moment,
    to: Moment,
    /// One after the other.
    pub buckets: Vec<Summary>,
}

impl Buckets {
    /// `count` buckets, at least one, of the time from `from` to `to`.
    pub fn new(from: Moment, to: Moment, count: usize) -> Buckets {
        Buckets { from, to: to.max(from), buckets: vec![Summary::default(); count.max(1)] }
    }

    /// Where bucket `at` begins, and the one before it ends.
    pub fn edge(&self, at: usize) -> Moment {
        let length = i128::from(self.to.0) - i128::from(self.from.0);
        let offset = length * at as i128 / self.buckets.len() as i128;
        Moment((i128::from(self.from.0) + offset) as i64)
    }

    /// The bucket in which a moment falls, which must lie from `from` to `to`. The end of all falls into the last.
    fn bucket(&self, at: Moment) -> usize {
        let length = (i128::from(self.to.0) - i128::from(self.from.0)).max(1);
        let offset = i128::from(at.0) - i128::from(self.from.0);
        let count = self.buckets.len();
        let mut bucket = (offset * count as i128 / length).clamp(0, count as i128 - 1) as usize;
        // Edges are rounded down: the next may be at or before the moment.
        while bucket + 1 < count && self.edge(bucket + 1) <= at {
            bucket += 1;
        }
        bucket
    }

    fn within(&self, at: Moment) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// Whether all from `begin` to `end` goes into one bucket, and which.
    pub(crate) fn only(&self, begin: Moment, end: Moment) -> Option<usize> {
        if !self.within(begin) || !self.within(end) {
            return None;
        }
        let bucket = self.bucket(end);
        // An end on an edge belongs to what it ends.
        let bucket = if bucket > 0 && end == self.edge(bucket) { bucket - 1 } else { bucket };
        (self.edge(bucket) <= begin).then_some(bucket)
    }

    /// Gives each bucket between `begin` and `end` its part of that stretch.
    fn spread(&mut self, begin: Moment, end: Moment, mut give: impl FnMut(&mut Summary, Moment, Moment)) {
        let (first, last) = (begin.max(self.from), end.min(self.to));
        if first >= last {
            return;
        }
        for at in self.bucket(first)..=self.bucket(last) {
            let (low, high) = (self.edge(at).max(first), self.edge(at + 1).min(last));
            if low < high {
                give(&mut self.buckets[at], low, high);
            }
        }
    }

    /// Adds what followed from a response that came at `at`.
    pub(crate) fn add(&mut self, kind: Kind, at: Moment, step: &Step) {
        if self.within(at) {
            let bucket = self.bucket(at);
            self.buckets[bucket].events.join(step.events);
        }
        if let Some(growth) = &step.growth {
            let (begin, end, by) = (growth.from.latest, growth.to.latest, i128::from(growth.by));
            self.spread(begin, end, |summary, low, high| {
                summary.sum += share(by, begin, end, high) - share(by, begin, end, low);
                summary.samples += u64::from(high == end);
                summary.grown(growth, high.since(low));
            });
        }
        if let Some((window, _)) = step.level {
            if self.within(window.latest) {
                let bucket = self.bucket(window.latest);
                let lone = Step { since: None, events: Events::NONE, ..*step };
                self.buckets[bucket].add(kind, &lone);
            }
            if let Some(since) = step.since {
                self.spread(since.latest, window.latest, |summary, low, high| {
                    summary.covered += high.since(low)
                });
            }
        }
    }

    /// Adds a summary of all from `begin` to `end`, of which nothing closer is known: evenly over that time.
    pub(crate) fn smear(&mut self, begin: Moment, end: Moment, whole: &Summary) {
        let all = end.since(begin).as_nanos().max(1) as f64;
        let covered = whole.covered.as_nanos() as i128;
        self.spread(begin, end, |summary, low, high| {
            let of = |number: i128| share(number, begin, end, high) - share(number, begin, end, low);
            let part = Summary {
                sum: of(whole.sum),
                real: whole.real * (high.since(low).as_nanos() as f64 / all),
                samples: of(i128::from(whole.samples)) as u64,
                covered: Duration::from_nanos(of(covered) as u64),
                ..*whole
            };
            summary.join(&part);
        });
    }

    /// Adds a summary of what lies within bucket `at`.
    pub(crate) fn put(&mut self, at: usize, summary: &Summary) {
        self.buckets[at].join(summary);
    }
}

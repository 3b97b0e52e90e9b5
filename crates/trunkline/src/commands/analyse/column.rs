//! One column of a file or run, and its conversion to a series of equal intervals.

use std::rc::Rc;

use trunkline_traffic::Series;
use trunkline_traffic::series::LONGEST;
use trunkline_units::Span;

use crate::flags::RunArchive;
use crate::flags::analyse::{Unit, Values};

/// A column, with the times that all columns of its table share.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub(super) times: Option<Rc<Times>>,
    pub(super) values: Vec<Option<f64>>,
    /// The first line with a value that is not a number.
    pub(super) invalid_line: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Times {
    pub ns: Vec<i64>,
    /// Whether the times are dates, relative to 1970.
    pub calendar: bool,
    /// Whether a time is the end of its interval, as in a run, whose last interval is shorter.
    pub ends: bool,
}

/// A column as a series.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub name: String,
    /// Amounts of `unit`.
    pub series: Series,
    pub unit: Option<Unit>,
    /// Whether its times are dates.
    pub calendar: bool,
    /// Number of values of a run that were left out because they cover less than an interval.
    pub partial: usize,
}

/// How to read a series, from the flags.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub time: Option<&'a str>,
    pub interval: Option<Span>,
    pub values: Option<Values>,
    pub unit: Option<Unit>,
    /// The series to read from an archive of counters.
    pub column: Option<&'a str>,
    pub archive: &'a RunArchive,
}

impl Column {
    /// Creates a column of amounts of intervals that begin at these times, in nanoseconds since 1970.
    pub fn of_intervals(name: String, ns: Vec<i64>, values: Vec<Option<f64>>) -> Column {
        let times = Times { ns, calendar: true, ends: false };
        Column { name, times: Some(Rc::new(times)), values, invalid_line: None }
    }

    /// Whether the column holds only numbers, and at least one.
    pub fn is_numbers(&self) -> bool {
        self.invalid_line.is_none() && self.values.iter().any(Option::is_some)
    }

    /// Returns the times in nanoseconds, and the values, in the order of the file.
    pub fn points(&self) -> Result<impl Iterator<Item = (i64, Option<f64>)> + '_, String> {
        if let Some(line) = self.invalid_line {
            return Err(format!("line {line} of column `{}` is not a number", self.name));
        }
        let times = self.times.as_ref().ok_or("there are no times: a column `time` is needed")?;
        Ok(times.ns.iter().copied().zip(self.values.iter().copied()))
    }

    /// Returns the known values.
    pub fn known(&self) -> Result<impl Iterator<Item = f64> + '_, String> {
        match self.invalid_line {
            Some(line) => Err(format!("line {line} of column `{}` is not a number", self.name)),
            None => Ok(self.values.iter().flatten().copied()),
        }
    }

    /// Converts the column to amounts in equal intervals.
    pub fn load(&self, reading: &Reading<'_>) -> Result<Loaded, String> {
        if let Some(line) = self.invalid_line {
            return Err(format!("line {line} of column `{}` is not a number", self.name));
        }
        let (start_ns, grain, mut values, partial) = match &self.times {
            None => {
                let grain = reading.interval.ok_or("there are no times: give --interval")?;
                (0, grain, self.values.clone(), 0)
            }
            Some(times) => times.to_intervals(&self.values, reading.interval)?,
        };
        let (default_values, unit) = infer_from_name(&self.name);
        if reading.values.unwrap_or(default_values) == Values::Rates {
            values.iter_mut().flatten().for_each(|v| *v *= grain.as_s());
        }
        let series = Series::new(start_ns, grain, values).map_err(|e| e.to_string())?;
        if series.known().next().is_none() {
            return Err(format!("column `{}` holds no number", self.name));
        }
        let calendar = self.times.as_ref().is_some_and(|t| t.calendar);
        Ok(Loaded { name: self.name.clone(), series, unit: reading.unit.or(unit), calendar, partial })
    }
}

/// Infers the kind and unit of values from the name of their column.
fn infer_from_name(name: &str) -> (Values, Option<Unit>) {
    let name = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let rate = name.ends_with("bps") || name.ends_with("_per_s");
    let unit = match () {
        () if name.ends_with("bps") || has(&["bits"]) => Some(Unit::Bits),
        () if has(&["bytes", "octets"]) => Some(Unit::Bytes),
        () if has(&["cells"]) => Some(Unit::Cells),
        () if has(&["packets", "messages", "pkts", "pdus"]) => Some(Unit::Messages),
        () => None,
    };
    (if rate { Values::Rates } else { Values::Amounts }, unit)
}

// --- times to intervals

/// Start in nanoseconds, length and values of the intervals, and the number of partial values.
type Intervals = (i64, Span, Vec<Option<f64>>, usize);

impl Times {
    /// Assigns values to intervals of the given length, else of the median distance between times.
    fn to_intervals(&self, values: &[Option<f64>], interval: Option<Span>) -> Result<Intervals, String> {
        let mut points: Vec<(i64, Option<f64>)> =
            self.ns.iter().copied().zip(values.iter().copied()).collect();
        points.sort_by_key(|p| p.0);
        let step = match interval {
            Some(span) => span.as_ns() as i64,
            None => median_step(&points)
                .ok_or("the interval cannot be derived from the times: give --interval")?,
        };
        let first = points.first().ok_or("it holds nothing")?.0;
        let mut slots: Vec<(i64, Option<f64>)> = Vec::with_capacity(points.len());
        let (mut partial, mut before, mut slot) = (0, first, 0);
        for (at, value) in points {
            let offset = i128::from(at) - i128::from(if interval.is_some() { first } else { before });
            let steps = (offset as f64 / step as f64).round();
            let uneven = (offset as f64 / step as f64 - steps).abs() > 0.05;
            if self.ends && uneven {
                partial += 1;
                continue;
            }
            let next = if interval.is_some() { steps as i64 } else { slot + steps as i64 };
            if next >= LONGEST as i64 {
                return Err(format!("the times span more than {LONGEST} intervals"));
            }
            if slots.last().is_some_and(|(last, _)| *last == next) {
                let at = at as f64 / 1e9;
                return Err(format!("two values are in the interval at {at} s: give --interval"));
            }
            slots.push((next, value));
            (before, slot) = (at, next);
        }
        let grain = interval.map_or_else(|| mean_step(step, first, before, slot), |e| e.as_ns() as i64);
        let mut filled = vec![None; slot as usize + 1];
        slots.into_iter().for_each(|(slot, value)| filled[slot as usize] = value);
        let start = if self.ends { first.saturating_sub(grain) } else { first };
        Ok((start, Span::from_ns(grain as u64), filled, partial))
    }
}

/// Returns the median step between times.
fn median_step(points: &[(i64, Option<f64>)]) -> Option<i64> {
    let mut steps: Vec<i64> =
        points.windows(2).map(|p| p[1].0.saturating_sub(p[0].0)).filter(|s| *s > 0).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

/// Returns the mean step, rounded to two digits if that moves no value by half an interval: a poller with a period of 15 s
/// may poll every 15.003 s.
fn mean_step(median: i64, first: i64, last: i64, steps: i64) -> i64 {
    if steps == 0 {
        return median;
    }
    let mean = (last.saturating_sub(first)) as f64 / steps as f64;
    let digit = 10f64.powi(mean.log10().floor() as i32 - 1);
    let round = (mean / digit).round() * digit;
    let drift = (round - mean).abs() * steps as f64;
    (if drift < mean / 2.0 { round } else { mean }).round().max(1.0) as i64
}

/// Converts seconds to nanoseconds; `None` if out of range.
pub(super) fn nanoseconds(s: f64) -> Option<i64> {
    let ns = (s * 1e9).round();
    (-9.2e18..9.2e18).contains(&ns).then_some(ns as i64)
}

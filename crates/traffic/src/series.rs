//! Amounts in equal intervals, and the correlation of two series with different intervals. The *grain* of a series is the
//! length of its intervals.

use serde::Serialize;
use trunkline_units::Span;

use crate::autocorrelation::autocorrelation;
use crate::hurst::NORMAL_95;

/// Maximum number of values of a series: 256 MiB.
pub const LONGEST: usize = 1 << 24;

/// Amounts (bytes, cells, messages) in consecutive intervals of equal length. An interval without a measurement is a gap,
/// not a zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    start_ns: i64,
    grain: Span,
    values: Vec<Option<f64>>,
}

/// Why a series is invalid, or a correlation undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// The length of an interval is zero or not a whole number of nanoseconds.
    #[error("an interval lasts a whole number of nanoseconds, at least one")]
    Grain,
    /// No interval, or more than [`LONGEST`].
    #[error("a series has 1 to {LONGEST} intervals")]
    Length,
    /// A value that is not finite.
    #[error("the values of a series must be finite")]
    Value,
    /// The series would exceed the range of times, 292 years before and after its origin.
    #[error("a series ends within 292 years of its origin")]
    Time,
    /// Two series have too few intervals in common.
    #[error(
        "the series have {0} intervals in common, too few to correlate: at least {FEWEST_PAIRS} are needed"
    )]
    Apart(usize),
    /// One of two series is constant where the other is known.
    #[error("a constant series has no correlation")]
    Still,
}

/// Minimum number of common intervals for a correlation.
pub const FEWEST_PAIRS: usize = 8;

/// A series with another grain.
#[derive(Clone, Debug, PartialEq)]
pub struct Resampled {
    /// The series.
    pub series: Series,
    /// The part of the sum that it does not contain: amounts at both ends and next to gaps, in intervals that are only
    /// partly known.
    pub left_out: f64,
}

/// Correlation of two series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// The grain at which they were compared, seconds: the coarser of the two.
    pub grain_s: f64,
    /// Intervals that are known in both.
    pub pairs: usize,
    /// Equivalent number of independent pairs (Bartlett 1935): autocorrelation reduces it.
    pub effective: f64,
    /// Pearson's coefficient.
    pub r: f64,
    /// Lower end of its 95 % confidence interval (Fisher 1921, over `effective`).
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Series {
    /// Creates a series of intervals of length `grain` from `start_ns` on, in nanoseconds since any origin.
    ///
    /// # Errors
    /// [`SeriesError::Grain`], [`Length`](SeriesError::Length), [`Value`](SeriesError::Value),
    /// [`Time`](SeriesError::Time).
    pub fn new(start_ns: i64, grain: Span, values: Vec<Option<f64>>) -> Result<Series, SeriesError> {
        let ns = whole_ns(grain)?;
        if values.is_empty() || values.len() > LONGEST {
            return Err(SeriesError::Length);
        }
        if values.iter().flatten().any(|v| !v.is_finite()) {
            return Err(SeriesError::Value);
        }
        let end = i128::from(start_ns) + i128::from(ns) * values.len() as i128;
        i64::try_from(end).map_err(|_| SeriesError::Time)?;
        Ok(Series { start_ns, grain, values })
    }

    /// Returns the start of the first interval, nanoseconds since the series' origin.
    pub fn start_ns(&self) -> i64 {
        self.start_ns
    }

    /// Returns the end of the last interval.
    pub fn end_ns(&self) -> i64 {
        self.start_ns + self.grain_ns() * self.values.len() as i64
    }

    /// Returns the length of an interval.
    pub fn grain(&self) -> Span {
        self.grain
    }

    fn grain_ns(&self) -> i64 {
        self.grain.as_ns() as i64
    }

    /// Returns the amounts; `None` for a gap.
    pub fn values(&self) -> &[Option<f64>] {
        &self.values
    }

    /// Returns the known amounts.
    pub fn known(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().flatten().copied()
    }

    /// Returns the number of gaps.
    pub fn gaps(&self) -> usize {
        self.values.iter().filter(|v| v.is_none()).count()
    }

    /// Returns the sum of the known amounts.
    pub fn total(&self) -> f64 {
        self.known().sum()
    }

    /// Returns index and values of the longest sequence of intervals without a gap; of several, the first.
    pub fn stretch(&self) -> (usize, Vec<f64>) {
        let (mut from, mut best) = (0, 0..0);
        for (at, value) in self.values.iter().enumerate() {
            if value.is_none() {
                from = at + 1;
            } else if at + 1 - from > best.len() {
                best = from..at + 1;
            }
        }
        (best.start, self.values[best].iter().flatten().copied().collect())
    }

    /// Returns the same amounts in intervals of another length. They begin at multiples of this length since the origin, so
    /// the intervals of any two resampled series with one origin coincide.
    ///
    /// An interval is known if all of it was. The amount of a divided interval is distributed evenly over its time, as an
    /// integer if all amounts are integers. The sum, including `left_out`, is preserved: exactly for integers below 2^53.
    ///
    /// # Errors
    /// [`SeriesError::Grain`], and [`SeriesError::Length`] if there would be no complete interval, or too many.
    pub fn resample(&self, grain: Span) -> Result<Resampled, SeriesError> {
        let new = whole_ns(grain)? as i64;
        // In i128: the length of an interval may exceed the range of times.
        let first = -(-i128::from(self.start_ns)).div_euclid(i128::from(new));
        let last = i128::from(self.end_ns()).div_euclid(i128::from(new));
        let count = usize::try_from(last - first).map_err(|_| SeriesError::Length)?;
        if !(1..=LONGEST).contains(&count) {
            return Err(SeriesError::Length);
        }
        let start_ns = (first * i128::from(new)) as i64;
        let sums = CumulativeSums::new(self);
        let value = |i: usize| {
            let from = start_ns + new * i as i64;
            sums.between(from, from + new)
        };
        let series = Series { start_ns, grain, values: (0..count).map(value).collect() };
        let left_out = self.total() - series.total();
        Ok(Resampled { series, left_out })
    }

    /// Returns the correlation with another series, at the coarser of their grains, over their common time.
    ///
    /// # Errors
    /// Those of [`resample`](Series::resample), [`SeriesError::Apart`] and [`SeriesError::Still`].
    pub fn correlate(&self, other: &Series) -> Result<Correlation, SeriesError> {
        let grain = self.grain.max(other.grain);
        let (a, b) = (self.resample(grain)?.series, other.resample(grain)?.series);
        // Both begin at a multiple of the grain.
        let begin = a.start_ns.max(b.start_ns);
        let from = |s: &Series| ((begin - s.start_ns) / s.grain_ns()) as usize;
        let (x, y): (Vec<f64>, Vec<f64>) = a.values[from(&a).min(a.values.len())..]
            .iter()
            .zip(&b.values[from(&b).min(b.values.len())..])
            .filter_map(|(a, b)| Some((((*a)?), (*b)?)))
            .unzip();
        if x.len() < FEWEST_PAIRS {
            return Err(SeriesError::Apart(x.len()));
        }
        let r = pearson(&x, &y).ok_or(SeriesError::Still)?;
        let effective = effective(&x, &y);
        // Fisher's z is normal with a variance of 1 / (n − 3).
        let z = libm::atanh(r.clamp(-1.0 + 1e-15, 1.0 - 1e-15));
        let half_width = NORMAL_95 / libm::sqrt((effective - 3.0).max(0.25));
        let (low, high) = (libm::tanh(z - half_width).min(r), libm::tanh(z + half_width).max(r));
        Ok(Correlation { grain_s: grain.as_s(), pairs: x.len(), effective, r, low, high })
    }
}

/// Returns the length of an interval in nanoseconds, if it is a whole number.
fn whole_ns(grain: Span) -> Result<u64, SeriesError> {
    let ns = grain.as_ns();
    (ns > 0 && Span::from_ns(ns) == grain).then_some(ns).ok_or(SeriesError::Grain)
}

/// Returns Pearson's coefficient; `None` if either series is constant.
fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        xx += (x - mx) * (x - mx);
        yy += (y - my) * (y - my);
        xy += (x - mx) * (y - my);
    }
    let scale = libm::sqrt(xx) * libm::sqrt(yy);
    (xx > 0.0 && yy > 0.0 && scale.is_finite()).then(|| (xy / scale).clamp(-1.0, 1.0))
}

/// Returns n / (1 + 2 Σ ρx ρy) over the first tenth of the lags; at most n.
fn effective(x: &[f64], y: &[f64]) -> f64 {
    let lags = (x.len() / 10).max(1);
    let correlations = |v: &[f64]| {
        let v: Vec<Option<f64>> = v.iter().copied().map(Some).collect();
        autocorrelation(&v, lags).r
    };
    let sum: f64 = correlations(x).iter().zip(correlations(y)).skip(1).map(|(a, b)| a * b).sum();
    (x.len() as f64 / (1.0 + 2.0 * sum).max(1.0)).max(3.25)
}

/// Cumulative sums of a series, which give the amount between any two instants.
struct CumulativeSums<'a> {
    series: &'a Series,
    /// Sum and number of gaps before each interval.
    before: Vec<(f64, usize)>,
    /// Whether all amounts are integers and every sum is exact.
    is_integer: bool,
}

impl CumulativeSums<'_> {
    fn new(series: &Series) -> CumulativeSums<'_> {
        let (mut sum, mut gaps) = (0.0, 0);
        let mut before = vec![(0.0, 0)];
        for value in &series.values {
            sum += value.unwrap_or(0.0);
            gaps += usize::from(value.is_none());
            before.push((sum, gaps));
        }
        let magnitude: f64 = series.known().map(libm::fabs).sum();
        let is_integer = magnitude < (1u64 << 53) as f64 && series.known().all(|v| v == libm::trunc(v));
        CumulativeSums { series, before, is_integer }
    }

    /// Returns the amount between two instants; `None` if a part is not known.
    fn between(&self, from_ns: i64, to_ns: i64) -> Option<f64> {
        let (first, first_offset) = self.locate(from_ns)?;
        let (last, last_offset) = self.locate(to_ns)?;
        let end = last + usize::from(last_offset > 0);
        if self.before[end].1 > self.before[first].1 {
            return None;
        }
        Some(self.sum_before(last, last_offset) - self.sum_before(first, first_offset))
    }

    /// Returns the index of the interval that contains an instant, and the offset of the instant in nanoseconds; `None`
    /// outside of the series.
    fn locate(&self, at_ns: i64) -> Option<(usize, i64)> {
        let since_start = i128::from(at_ns) - i128::from(self.series.start_ns);
        let grain = i128::from(self.series.grain_ns());
        let index = usize::try_from(since_start.div_euclid(grain)).ok()?;
        let offset = since_start.rem_euclid(grain) as i64;
        (index + usize::from(offset > 0) <= self.series.values.len()).then_some((index, offset))
    }

    /// Returns the amount before an instant, given as interval and offset.
    fn sum_before(&self, index: usize, offset_ns: i64) -> f64 {
        if offset_ns == 0 {
            return self.before[index].0;
        }
        let share = offset_ns as f64 / self.series.grain_ns() as f64;
        let part = self.series.values[index].unwrap_or(0.0) * share;
        self.before[index].0 + if self.is_integer { libm::round(part) } else { part }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_units::Seed;

    use super::*;
    use crate::noise::normal_pair;

    fn series(start_s: i64, grain_s: u64, values: &[f64]) -> Series {
        let values = values.iter().map(|v| v.is_finite().then_some(*v)).collect();
        Series::new(start_s * 1_000_000_000, Span::from_s(grain_s), values).unwrap()
    }

    #[test]
    fn fifteen_seconds_become_fifteen_minutes() {
        // Begins 30 s after a quarter of an hour: the first complete one has 60 intervals and begins 870 s later.
        let fine: Vec<f64> = (0..58 + 120).map(f64::from).collect();
        let found = series(900 + 30, 15, &fine).resample(Span::from_s(900)).unwrap();
        assert_eq!((found.series.start_ns(), found.series.values().len()), (1_800_000_000_000, 2));
        let sum = |range: std::ops::Range<i32>| f64::from(range.sum::<i32>());
        assert_eq!(found.series.values(), [Some(sum(58..118)), Some(sum(118..178))]);
        assert_eq!(found.left_out, sum(0..58));
    }

    #[test]
    fn a_gap_is_not_a_zero() {
        let s = series(0, 1, &[1.0, 2.0, f64::NAN, 4.0, 5.0, 6.0]);
        let found = s.resample(Span::from_s(2)).unwrap();
        assert_eq!(found.series.values(), [Some(3.0), None, Some(11.0)]);
        assert_eq!((found.left_out, s.gaps(), s.stretch()), (4.0, 1, (3, vec![4.0, 5.0, 6.0])));
        // Three messages in two seconds: an integer number in each second.
        let fine = series(0, 2, &[3.0, f64::NAN]).resample(Span::from_s(1)).unwrap();
        assert_eq!(fine.series.values(), [Some(2.0), Some(1.0), None, None]);
        let cut = series(0, 2, &[3.5]).resample(Span::from_s(1)).unwrap();
        assert_eq!(cut.series.values(), [Some(1.75), Some(1.75)]);
    }

    #[test]
    fn invalid_series_are_refused() {
        let new = |start, grain, values: Vec<Option<f64>>| Series::new(start, grain, values).map(|_| ());
        assert_eq!(new(0, Span::ZERO, vec![None]), Err(SeriesError::Grain));
        assert_eq!(new(0, Span::from_ps(1500), vec![None]), Err(SeriesError::Grain));
        assert_eq!(new(0, Span::from_s(1), vec![]), Err(SeriesError::Length));
        assert_eq!(new(0, Span::from_s(1), vec![Some(f64::INFINITY)]), Err(SeriesError::Value));
        assert_eq!(new(i64::MAX, Span::from_s(1), vec![None]), Err(SeriesError::Time));
        let s = series(0, 1, &[1.0; 10]);
        assert_eq!(s.resample(Span::from_s(11)), Err(SeriesError::Length));
        assert_eq!(s.resample(Span::from_ns(1)), Err(SeriesError::Length));
        assert_eq!(s.resample(Span::ZERO), Err(SeriesError::Grain));
        assert_eq!(s.correlate(&s), Err(SeriesError::Still));
        assert_eq!(s.correlate(&series(100, 1, &[1.0; 10])), Err(SeriesError::Apart(0)));
        assert_eq!(s.correlate(&series(5, 1, &[1.0; 10])), Err(SeriesError::Apart(5)));
    }

    #[test]
    fn a_series_and_its_own_sums_correlate() {
        let mut stream = Seed(1).stream("series");
        let fine: Vec<f64> = (0..6000).map(|_| stream.below(1000) as f64).collect();
        let fine = series(0, 15, &fine);
        let coarse = fine.resample(Span::from_s(900)).unwrap().series;
        let found = fine.correlate(&coarse).unwrap();
        assert_eq!((found.pairs, found.r, found.grain_s), (100, 1.0, 900.0));
        assert!(found.low > 0.999);
        let less = Series::new(0, Span::from_s(900), coarse.known().map(|v| Some(-v)).collect()).unwrap();
        assert_eq!(fine.correlate(&less).unwrap().r, -1.0);
    }

    #[test]
    fn confidence_intervals_cover_the_correlation() {
        // Two independent series with autocorrelation.
        let mut stream = Seed(2).stream("series");
        let mut covered = 0;
        for _ in 0..300 {
            let (mut a, mut b) = (0.0, 0.0);
            let mut walk = || {
                let (x, y) = normal_pair(&mut stream);
                (a, b) = (0.7 * a + x, 0.7 * b + y);
                (a, b)
            };
            let (x, y): (Vec<f64>, Vec<f64>) = (0..500).map(|_| walk()).unzip();
            let found = series(0, 1, &x).correlate(&series(0, 1, &y)).unwrap();
            covered += i32::from(found.low <= 0.0 && 0.0 <= found.high);
        }
        // 285 are expected; without the correction for autocorrelation about 220.
        assert!((273..=297).contains(&covered), "{covered} of 300");
    }

    proptest! {
        #[test]
        fn resampling_preserves_the_sum(
            values in prop::collection::vec(prop::option::weighted(0.9, 0u32..1000), 1..200),
            start in -1000i64..1000,
            (old, new) in (1u64..50, 1u64..200),
        ) {
            let values: Vec<Option<f64>> = values.into_iter().map(|v| v.map(f64::from)).collect();
            let s = Series::new(start, Span::from_ns(old), values).unwrap();
            match s.resample(Span::from_ns(new)) {
                Err(e) => prop_assert!(e == SeriesError::Length && s.end_ns() - s.start_ns() < 2 * new as i64),
                Ok(found) => {
                    prop_assert_eq!(found.series.total() + found.left_out, s.total());
                    prop_assert!(found.left_out >= 0.0 && found.series.known().all(|v| v >= 0.0 && v.fract() == 0.0));
                    prop_assert!(found.series.start_ns() >= s.start_ns() && found.series.end_ns() <= s.end_ns());
                    prop_assert_eq!(found.series.start_ns().rem_euclid(new as i64), 0);
                    // Resampled back, if nothing was left out: the same sum.
                    if let (true, Ok(back)) = (found.left_out == 0.0, found.series.resample(Span::from_ns(old))) {
                        prop_assert_eq!(back.series.total() + back.left_out, s.total());
                    }
                }
            }
        }

        #[test]
        fn resampling_in_two_steps_equals_one_step(
            values in prop::collection::vec(prop::option::weighted(0.95, 0u32..1000), 50..200),
            (a, b) in (1u64..5, 1u64..5),
        ) {
            let values: Vec<Option<f64>> = values.into_iter().map(|v| v.map(f64::from)).collect();
            let s = Series::new(0, Span::from_ns(10), values).unwrap();
            let once = s.resample(Span::from_ns(10 * a * b)).unwrap().series;
            let twice = s.resample(Span::from_ns(10 * a)).unwrap().series.resample(Span::from_ns(10 * a * b));
            prop_assert_eq!(once, twice.unwrap().series);
        }
    }
}

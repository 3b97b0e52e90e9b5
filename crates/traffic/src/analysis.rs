//! Distribution, spectrum, periods and bursts of a series.

use std::f64::consts::PI;

use serde::Serialize;

use crate::fft::periodogram;
use crate::series::Series;

/// Number of points of a curve.
const CURVE_POINTS: usize = 101;

/// The distribution of the amounts of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of known intervals.
    pub count: usize,
    /// Smallest, like all below in the unit of the values.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; 0 for one value.
    pub sd: f64,
    /// Largest over mean; `None` if the mean is 0.
    pub peak_to_mean: Option<f64>,
    /// `[share at or below, value]` in steps of a hundredth.
    pub curve: Vec<(f64, f64)>,
}

/// Returns the distribution of values; `None` if there are none.
pub fn distribution(values: impl Iterator<Item = f64>) -> Option<Distribution> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    let (min, max) = (*all.first()?, *all.last()?);
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|v| (v - mean) * (v - mean)).sum();
    let share = |i: usize| i as f64 / (CURVE_POINTS - 1) as f64;
    Some(Distribution {
        count: all.len(),
        min,
        p50: quantile(&all, 0.5),
        p90: quantile(&all, 0.9),
        p99: quantile(&all, 0.99),
        p999: quantile(&all, 0.999),
        max,
        mean,
        sd: libm::sqrt(squares / (n - 1.0).max(1.0)),
        peak_to_mean: (mean > 0.0).then(|| max / mean),
        curve: (0..CURVE_POINTS).map(|i| (share(i), quantile(&all, share(i)))).collect(),
    })
}

/// Returns the `p`-quantile of sorted values.
pub(crate) fn quantile(sorted: &[f64], p: f64) -> f64 {
    let rank = libm::ceil(p * sorted.len() as f64) as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The power of a series by frequency.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spectrum {
    /// `[frequency in Hz, power density in unit² / Hz]`, one-sided, means over about 100 bands of equal ratio. The
    /// integral of the density over all frequencies is the variance.
    pub density: Vec<(f64, f64)>,
    /// Spectral lines: frequencies with much more power than their neighbours, the strongest first, at most ten.
    pub lines: Vec<Line>,
}

/// Number of bands of a spectrum.
const BINS: usize = 100;

/// A spectral line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its frequency.
    pub frequency_hz: f64,
    /// Its period, 1 / frequency.
    pub period_s: f64,
    /// Its share of the variance, including its two neighbours: the power of a period that does not divide the length of
    /// the series spreads to them.
    pub share: f64,
    /// Probability that noise has a line of this strength at any frequency.
    pub chance: f64,
}

/// Lines with a larger p-value are not reported.
const MAX_P_VALUE: f64 = 0.01;
/// Minimum number of periods in the series: fewer cannot be distinguished from a trend.
const MIN_PERIODS: usize = 8;
/// Number of frequencies on each side with which one is compared, and of the nearest that are excluded.
const NEIGHBOURS: usize = 20;
const EXCLUDED: usize = 2;

/// Returns the spectrum of values without a gap, `grain_s` seconds apart; empty for fewer than 4 values.
pub fn spectrum(values: &[f64], grain_s: f64) -> Spectrum {
    if values.len() < 4 {
        return Spectrum { density: Vec::new(), lines: Vec::new() };
    }
    let power = periodogram(values);
    let step = 1.0 / (values.len() as f64 * grain_s);
    Spectrum { density: density(&power, step, grain_s), lines: lines(&power, step) }
}

fn density(power: &[f64], step: f64, grain_s: f64) -> Vec<(f64, f64)> {
    let ratio = libm::pow(power.len() as f64, 1.0 / BINS as f64);
    let (mut points, mut from) = (Vec::new(), 1);
    while from <= power.len() {
        let end = (libm::ceil(from as f64 * ratio) as usize).max(from + 1).min(power.len() + 1);
        let n = (end - from) as f64;
        let middle = step * (from + end - 1) as f64 / 2.0;
        let mean = power[from - 1..end - 1].iter().sum::<f64>() / n;
        points.push((middle, 2.0 * mean * grain_s));
        from = end;
    }
    points
}

/// Finds spectral lines by the ratio of a frequency's power to the mean of its neighbours. If all are noise, the ratio has
/// an F distribution with 2 and 2n degrees of freedom, independent of the overall shape of the spectrum. Near the origin,
/// where the spectrum is steep, the neighbours extend from half to twice the frequency.
fn lines(power: &[f64], step: f64) -> Vec<Line> {
    let total: f64 = power.iter().sum();
    let at = |k: usize| power[k - 1];
    let mut found = Vec::new();
    for k in MIN_PERIODS..power.len().saturating_sub(1) {
        if at(k) < at(k - 1) || at(k) <= at(k + 1) {
            continue;
        }
        let first = (k - NEIGHBOURS.min(k / 2)).max(1);
        let last = (k + NEIGHBOURS.min(k / 2)).min(power.len());
        let neighbours: Vec<f64> = (first..=last).filter(|j| j.abs_diff(k) > EXCLUDED).map(at).collect();
        let n = neighbours.len() as f64;
        let noise = neighbours.iter().sum::<f64>() / n;
        if n < 4.0 || at(k) <= total * 1e-12 {
            continue;
        }
        // P(F > x) = (1 + x / n)^−n for one frequency, then for any frequency.
        let chance_of_one = libm::exp(-n * libm::log1p(at(k) / noise / n));
        let chance = -libm::expm1(power.len() as f64 * libm::log1p(-chance_of_one));
        if chance < MAX_P_VALUE {
            let frequency_hz = step * k as f64;
            let share = (at(k - 1) + at(k) + at(k + 1)) / total;
            found.push(Line { frequency_hz, period_s: 1.0 / frequency_hz, share, chance });
        }
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found.truncate(10);
    found
}

/// The bursts of a series, as in table 15 of NetSpec (1996): the observed time and its significant bursts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inventory {
    /// Start of the series, nanoseconds since its origin.
    pub start_ns: i64,
    /// End of the series.
    pub end_ns: i64,
    /// Amounts above this are part of a burst.
    pub threshold: f64,
    /// Number of bursts, including those that are not listed.
    pub count: usize,
    /// Their share of the known time.
    pub share_of_time: f64,
    /// Their share of the total amount; 0 if that is 0.
    pub share_of_amount: f64,
    /// The largest by amount, at most [`MOST_BURSTS`], in the order of time.
    pub bursts: Vec<Burst>,
}

/// Maximum number of listed bursts.
pub const MOST_BURSTS: usize = 100;

/// One burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// Start of its first interval, nanoseconds since the series' origin.
    pub start_ns: i64,
    /// End of its last interval.
    pub end_ns: i64,
    /// Its total amount.
    pub amount: f64,
    /// Its largest amount in one interval.
    pub peak: f64,
}

impl Inventory {
    /// Returns whether there is a significant burst.
    pub fn significant(&self) -> bool {
        self.count > 0
    }
}

/// Returns the threshold above which a value of a series is unusual: five standard deviations above the median
/// (estimated from the median absolute deviation, which bursts do not move), and at least half more than the median.
/// Normal noise exceeds it once in 3.5 million intervals.
pub fn usual_threshold(series: &Series) -> f64 {
    let median = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        if values.is_empty() { 0.0 } else { quantile(&values, 0.5) }
    };
    let middle = median(series.known().collect());
    // A normal distribution has half of its values within 0.6745 standard deviations.
    let deviation =
        median(series.known().map(|v| libm::fabs(v - middle)).collect()) / 0.674_489_750_196_081_7;
    middle + (5.0 * deviation).max(0.5 * libm::fabs(middle))
}

/// Returns the bursts above a threshold. A burst ends before two intervals at or below the threshold, or before a gap; one
/// such interval does not end it.
pub fn bursts(series: &Series, threshold: f64) -> Inventory {
    let grain = series.grain().as_ns() as i64;
    let at = |i: usize| series.start_ns() + grain * i as i64;
    let above = |i: usize| series.values().get(i).copied().flatten().filter(|v| *v > threshold);
    let mut all: Vec<Burst> = Vec::new();
    let mut i = 0;
    while i < series.values().len() {
        let Some(peak) = above(i) else {
            i += 1;
            continue;
        };
        let mut burst = Burst { start_ns: at(i), end_ns: at(i + 1), amount: peak, peak };
        i += 1;
        while let Some(Some(value)) = series.values().get(i) {
            let next = above(i + 1);
            if *value <= threshold && next.is_none() {
                break;
            }
            burst.amount += value;
            burst.peak = burst.peak.max(*value);
            i += 1;
            burst.end_ns = at(i);
        }
        all.push(burst);
    }
    let known = (series.values().len() - series.gaps()).max(1) as f64;
    let intervals: i64 = all.iter().map(|b| (b.end_ns - b.start_ns) / grain).sum();
    let amount: f64 = all.iter().map(|b| b.amount).sum();
    let total = series.total();
    let count = all.len();
    all.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    all.truncate(MOST_BURSTS);
    all.sort_by_key(|b| b.start_ns);
    Inventory {
        start_ns: series.start_ns(),
        end_ns: series.end_ns(),
        threshold,
        count,
        share_of_time: intervals as f64 / known,
        share_of_amount: if total > 0.0 { amount / total } else { 0.0 },
        bursts: all,
    }
}

/// Returns the spectrum of fractional Gaussian noise, up to a factor, at a frequency of at most ½ cycle per interval; for a
/// plot (Paxson 1997, with his correction of the tail of the sum).
pub fn noise_shape(hurst: f64, frequency: f64) -> f64 {
    let w = 2.0 * PI * frequency;
    let power = -2.0 * hurst - 1.0;
    let term = |k: f64| libm::pow(2.0 * PI * k + w, power) + libm::pow(2.0 * PI * k - w, power);
    let mut sum = libm::pow(w, power);
    (1..=50).for_each(|k| sum += term(f64::from(k)));
    // The remaining terms as an integral from 50½ on.
    sum += 2.0 * libm::pow(2.0 * PI * 50.5, power + 1.0) / (2.0 * PI * 2.0 * hurst);
    (1.0 - libm::cos(w)) * sum
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Seed, Span};

    use super::*;
    use crate::noise::{Noise, autocovariance, normal_pair};

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    fn seconds(values: Vec<Option<f64>>) -> Series {
        Series::new(0, Span::from_s(1), values).unwrap()
    }

    #[test]
    fn a_distribution_has_percentiles() {
        let found = distribution((1..=1000).rev().map(f64::from)).unwrap();
        assert_eq!(
            (found.min, found.p50, found.p90, found.p99, found.p999),
            (1.0, 500.0, 900.0, 990.0, 999.0)
        );
        assert_eq!((found.max, found.mean, found.count, found.curve.len()), (1000.0, 500.5, 1000, 101));
        assert!((found.sd - 288.819_436).abs() < 1e-6 && found.peak_to_mean == Some(1000.0 / 500.5));
        let one = distribution([7.0].into_iter()).unwrap();
        assert_eq!((one.sd, one.p50, one.p999), (0.0, 7.0, 7.0));
        assert_eq!(distribution([].into_iter()), None);
    }

    #[test]
    fn a_spectrum_contains_the_variance_and_the_periods() {
        let mut stream = Seed(3).stream("spectrum");
        let (n, grain_s) = (5000, 15.0);
        // A period of 20 intervals with an amplitude of 1 has half of the variance 1 of the noise.
        let wave = |t: usize| libm::sin(2.0 * PI * t as f64 / 20.0 + 1.0);
        let values: Vec<f64> = (0..n).map(|t| 9.0 + wave(t) + normal_pair(&mut stream).0).collect();
        let found = spectrum(&values, grain_s);
        assert_eq!(found.lines.len(), 1, "{:?}", found.lines);
        let line = &found.lines[0];
        assert!((line.period_s - 300.0).abs() < 0.1 && (line.share - 1.0 / 3.0).abs() < 0.05, "{line:?}");
        assert!(line.chance < 1e-6);
        // Away from the line it is flat: 2 · variance · grain, as that of white noise.
        let (_, power) = found.density.iter().copied().find(|(f, _)| *f > 0.02).unwrap();
        assert!((power / (2.0 * grain_s) - 1.0).abs() < 0.3, "{power}");
        let power: f64 = periodogram(&values).iter().sum::<f64>() * 2.0 / n as f64;
        let variance = distribution(values.into_iter()).unwrap().sd.powi(2);
        assert!((power / variance - 1.0).abs() < 1e-3);
        assert!(spectrum(&[1.0; 3], 1.0).density.is_empty());
        assert!(spectrum(&[1.0; 500], 1.0).lines.is_empty());
    }

    #[test]
    fn noise_has_no_periods() {
        let mut stream = Seed(4).stream("spectrum");
        let mut found = 0;
        for hurst in [0.5, 0.9] {
            let noise = Noise::new(hurst, 3000).unwrap();
            found += (0..100).filter(|_| !spectrum(&noise.path(&mut stream), 1.0).lines.is_empty()).count();
        }
        // Two of 200 are expected.
        assert!(found <= 8, "{found} of 200");
    }

    #[test]
    fn the_shape_of_noise_is_its_spectrum() {
        // White noise is flat; other noise falls as f^(1 − 2H) near the origin.
        let flat = noise_shape(0.5, 0.01) / noise_shape(0.5, 0.4);
        assert!((flat - 1.0).abs() < 1e-4, "{flat}");
        let slope = libm::log2(noise_shape(0.8, 1e-4) / noise_shape(0.8, 2e-4));
        assert!((slope - 0.6).abs() < 1e-4, "{slope}");
        // It has the first autocorrelation of the noise: ∫ f cos / ∫ f = ρ(1).
        let (mut sum, mut first) = (0.0, 0.0);
        for i in 0..40_000 {
            // Dense near the origin: f = ½ u³.
            let u = (f64::from(i) + 0.5) / 40_000.0;
            let (f, width) = (0.5 * u * u * u, 1.5 * u * u);
            let power = noise_shape(0.8, f) * width;
            sum += power;
            first += power * libm::cos(2.0 * PI * f);
        }
        assert!((first / sum - autocovariance(0.8, 1)).abs() < 1e-3, "{}", first / sum);
    }

    #[test]
    fn bursts_are_listed_with_their_ends() {
        let mut values = some(&[10.0, 11.0, 9.0, 10.0, 12.0, 8.0, 10.0, 9.0, 11.0, 10.0, 10.0, 10.0]);
        values.extend([
            Some(90.0),
            Some(10.0),
            Some(80.0),
            Some(9.0),
            Some(10.0),
            Some(70.0),
            None,
            Some(60.0),
        ]);
        values.extend(some(&[10.0; 20]));
        let series = seconds(values);
        let threshold = usual_threshold(&series);
        assert!(threshold > 12.0 && threshold < 60.0, "{threshold}");
        let found = bursts(&series, threshold);
        let s = 1_000_000_000;
        let listed: Vec<(i64, i64, f64, f64)> =
            found.bursts.iter().map(|b| (b.start_ns / s, b.end_ns / s, b.amount, b.peak)).collect();
        assert_eq!(listed, [(12, 15, 180.0, 90.0), (17, 18, 70.0, 70.0), (19, 20, 60.0, 60.0)]);
        assert!(found.significant() && found.count == 3);
        assert_eq!(found.share_of_time, 5.0 / 39.0);
        assert_eq!((found.start_ns, found.end_ns), (0, 40 * s));
    }

    #[test]
    fn noise_does_not_burst_and_on_off_does() {
        let mut stream = Seed(5).stream("bursts");
        let noise: Vec<Option<f64>> =
            (0..50_000).map(|_| Some(100.0 + 5.0 * normal_pair(&mut stream).0)).collect();
        let noise = seconds(noise);
        assert!(!bursts(&noise, usual_threshold(&noise)).significant());
        let constant = seconds(some(&[100.0, 101.0, 100.0, 100.0, 102.0]));
        assert!(!bursts(&constant, usual_threshold(&constant)).significant());
        let idle: Vec<Option<f64>> = (0..1000).map(|i| Some(if i % 100 < 10 { 5.0 } else { 0.0 })).collect();
        let found = bursts(&seconds(idle.clone()), usual_threshold(&seconds(idle)));
        assert_eq!((found.count, found.share_of_amount, found.share_of_time), (10, 1.0, 0.1));
        // If there are too many, the largest are listed.
        let many: Vec<Option<f64>> =
            (0..3000).map(|i| Some(if i % 10 == 0 { f64::from(i) + 1.0 } else { 0.0 })).collect();
        let found = bursts(&seconds(many), 0.0);
        assert_eq!((found.count, found.bursts.len(), found.bursts[0].peak), (300, MOST_BURSTS, 2001.0));
    }
}

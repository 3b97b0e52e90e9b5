//! What a series is like: how its rates are distributed, how long it remembers, which periods it has, when it bursts.

use std::f64::consts::PI;

use serde::Serialize;

use crate::fft::periodogram;
use crate::series::Series;

/// Points of a curve.
const CURVE: usize = 101;

/// How the amounts of a series are distributed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Intervals that are known.
    pub count: usize,
    /// Smallest, as all below in the unit of the values.
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
    /// Standard deviation, of a sample; 0 of one value.
    pub sd: f64,
    /// Largest over mean; none if the mean is 0.
    pub peak_to_mean: Option<f64>,
    /// `[share at or below, value]`, every hundredth.
    pub curve: Vec<(f64, f64)>,
}

/// The distribution of values; none of none.
pub fn distribution(values: impl Iterator<Item = f64>) -> Option<Distribution> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    let (min, max) = (*all.first()?, *all.last()?);
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|v| (v - mean) * (v - mean)).sum();
    let share = |i: usize| i as f64 / (CURVE - 1) as f64;
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
        curve: (0..CURVE).map(|i| (share(i), quantile(&all, share(i)))).collect(),
    })
}

/// The least of the sorted values that a share `p` is at or below.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let rank = libm::ceil(p * sorted.len() as f64) as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The power of a series by frequency.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spectrum {
    /// `[frequency in Hz, power density in unit² / Hz]`, one-sided, means over some 100 bands of equal ratio. The
    /// integral of the density over all frequencies is the variance.
    pub density: Vec<(f64, f64)>,
    /// Frequencies that stand out from those around them, the strongest first, at most ten.
    pub lines: Vec<Line>,
}

/// Bands of a spectrum.
const BINS: usize = 100;

/// A frequency that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its frequency.
    pub frequency_hz: f64,
    /// One over it.
    pub period_s: f64,
    /// Its share of the variance, with that of its two neighbours, over which a period that fits no whole number of times
    /// spreads.
    pub share: f64,
    /// Chance that any frequency of noise stands out as far.
    pub chance: f64,
}

/// Lines with a larger p-value are not reported.
const CHANCE: f64 = 0.01;
/// A period that fits fewer times cannot be distinguished from a trend.
const FEWEST_PERIODS: usize = 8;
/// Frequencies to each side with which one is compared, and those next to it that are left out.
const BESIDE: usize = 20;
const SKIRT: usize = 2;

/// The spectrum of values without a gap, an interval of `grain_s` seconds apart; empty for fewer than 4.
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
        let upto = (libm::ceil(from as f64 * ratio) as usize).max(from + 1).min(power.len() + 1);
        let n = (upto - from) as f64;
        let middle = step * (from + upto - 1) as f64 / 2.0;
        let mean = power[from - 1..upto - 1].iter().sum::<f64>() / n;
        points.push((middle, 2.0 * mean * grain_s));
        from = upto;
    }
    points
}

/// A frequency over the mean of those beside it: that ratio has a known law where all are noise (F with 2 and 2n degrees
/// of freedom), whatever the shape of the spectrum at large. Near the origin, where that shape is steep, those beside it
/// reach as far as half and twice of it.
fn lines(power: &[f64], step: f64) -> Vec<Line> {
    let total: f64 = power.iter().sum();
    let at = |k: usize| power[k - 1];
    let mut found = Vec::new();
    for k in FEWEST_PERIODS..power.len().saturating_sub(1) {
        if at(k) < at(k - 1) || at(k) <= at(k + 1) {
            continue;
        }
        let first = (k - BESIDE.min(k / 2)).max(1);
        let last = (k + BESIDE.min(k / 2)).min(power.len());
        let beside: Vec<f64> = (first..=last).filter(|j| j.abs_diff(k) > SKIRT).map(at).collect();
        let n = beside.len() as f64;
        let noise = beside.iter().sum::<f64>() / n;
        if n < 4.0 || at(k) <= total * 1e-12 {
            continue;
        }
        // P(F > x) = (1 + x / n)^−n, at any of so many frequencies.
        let one = libm::exp(-n * libm::log1p(at(k) / noise / n));
        let chance = -libm::expm1(power.len() as f64 * libm::log1p(-one));
        if chance < CHANCE {
            let frequency_hz = step * k as f64;
            let share = (at(k - 1) + at(k) + at(k + 1)) / total;
            found.push(Line { frequency_hz, period_s: 1.0 / frequency_hz, share, chance });
        }
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found.truncate(10);
    found
}

/// The bursts of a series, and what table 15 of the 1996 report says of one: from when to when it was watched, and whether
/// a significant burst is in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inventory {
    /// When it begins, nanoseconds since its origin.
    pub start_ns: i64,
    /// When it ends.
    pub end_ns: i64,
    /// Amounts above this are a burst.
    pub threshold: f64,
    /// All bursts together, whether they are listed or not.
    pub count: usize,
    /// Their share of the time that is known.
    pub share_of_time: f64,
    /// Their share of all amounts; 0 of nothing.
    pub share_of_amount: f64,
    /// The largest by amount, at most [`MOST_BURSTS`], in the order of time.
    pub bursts: Vec<Burst>,
}

/// Bursts that are listed.
pub const MOST_BURSTS: usize = 100;

/// One burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// When its first interval begins, nanoseconds since the series' origin.
    pub start_ns: i64,
    /// When its last ends.
    pub end_ns: i64,
    /// What was sent in it.
    pub amount: f64,
    /// The largest amount of one interval.
    pub peak: f64,
}

impl Inventory {
    /// Whether there was a significant burst.
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
    // The normal law has half of its values within 0.6745 standard deviations.
    let deviation =
        median(series.known().map(|v| libm::fabs(v - middle)).collect()) / 0.674_489_750_196_081_7;
    middle + (5.0 * deviation).max(0.5 * libm::fabs(middle))
}

/// The bursts above a threshold. One interval at or below it does not end a burst, two do, and so does a gap.
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
    let lasted: i64 = all.iter().map(|b| (b.end_ns - b.start_ns) / grain).sum();
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
        share_of_time: lasted as f64 / known,
        share_of_amount: if total > 0.0 { amount / total } else { 0.0 },
        bursts: all,
    }
}

/// The density of white noise whose values have this variance: what a flat spectrum stands at.
pub fn white_density(variance: f64, grain_s: f64) -> f64 {
    2.0 * variance * grain_s
}

/// The spectrum of fractional Gaussian noise at a frequency in cycles an interval, ½ at most, up to a factor; for a plot
/// (Paxson 1997, with his correction of the tail of the sum).
pub fn noise_shape(hurst: f64, frequency: f64) -> f64 {
    let w = 2.0 * PI * frequency;
    let power = -2.0 * hurst - 1.0;
    let far = |k: f64| libm::pow(2.0 * PI * k + w, power) + libm::pow(2.0 * PI * k - w, power);
    let mut sum = libm::pow(w, power);
    (1..=50).for_each(|k| sum += far(f64::from(k)));
    // The rest as an integral from 50½ on.
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
    fn a_spectrum_holds_the_variance_and_finds_periods() {
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
        // Away from the line it is flat, where white noise stands.
        let (_, power) = found.density.iter().copied().find(|(f, _)| *f > 0.02).unwrap();
        assert!((power / white_density(1.0, grain_s) - 1.0).abs() < 0.3, "{power}");
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
        // White is flat; what is not falls as f^(1 − 2H) near the origin.
        let flat = noise_shape(0.5, 0.01) / noise_shape(0.5, 0.4);
        assert!((flat - 1.0).abs() < 1e-4, "{flat}");
        let slope = libm::log2(noise_shape(0.8, 1e-4) / noise_shape(0.8, 2e-4));
        assert!((slope - 0.6).abs() < 1e-4, "{slope}");
        // Its integral is to its first covariance as the noise's: ∫ f cos / ∫ f = ρ(1).
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
        let told: Vec<(i64, i64, f64, f64)> =
            found.bursts.iter().map(|b| (b.start_ns / s, b.end_ns / s, b.amount, b.peak)).collect();
        assert_eq!(told, [(12, 15, 180.0, 90.0), (17, 18, 70.0, 70.0), (19, 20, 60.0, 60.0)]);
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
        // More than are listed: the largest are.
        let many: Vec<Option<f64>> =
            (0..3000).map(|i| Some(if i % 10 == 0 { f64::from(i) + 1.0 } else { 0.0 })).collect();
        let found = bursts(&seconds(many), 0.0);
        assert_eq!((found.count, found.bursts.len(), found.bursts[0].peak), (300, MOST_BURSTS, 2001.0));
    }
}

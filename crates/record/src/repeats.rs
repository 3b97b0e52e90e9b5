//! Statistics over the repetitions of a connection.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use crate::schema::{Interval, Repetition};

/// Probability below the upper end of a two-sided 95 % interval.
const UPPER: f64 = 0.975;

/// A metric: its path in the record and its value in a repetition.
type Metric = (&'static str, fn(&Repetition) -> Option<f64>);

/// The summarized metrics of a [`Repetition`].
const METRICS: [Metric; 8] = [
    ("duration_s", |r| Some(r.duration_s)),
    ("offered_bps", |r| r.offered_bps),
    ("sent_bps", |r| Some(r.sent_bps)),
    ("received_bps", |r| Some(r.received_bps)),
    ("lost", |r| Some(r.lost as f64)),
    ("delay_us.p50", |r| r.delay_p50_us),
    ("delay_us.p99", |r| r.delay_p99_us),
    ("rtt_us.p50", |r| r.rtt_p50_us),
];

/// Returns mean, standard deviation and confidence interval of each metric over the repetitions, by its path in the
/// record. Aborted repetitions are excluded because they would bias the mean; a metric needs two repetitions that have it.
pub fn summarize(repetitions: &[Repetition]) -> BTreeMap<String, Interval> {
    let complete = || repetitions.iter().filter(|r| !r.partial);
    let interval = |(path, get): Metric| {
        let samples: Vec<f64> = complete().filter_map(get).collect();
        (samples.len() >= 2).then(|| Interval::from_samples(&samples)).flatten().map(|i| (path.to_owned(), i))
    };
    METRICS.into_iter().filter_map(interval).collect()
}

impl Interval {
    /// Returns the confidence interval of a sample; `None` if it is empty. One value gives an interval of width zero.
    pub fn from_samples(samples: &[f64]) -> Option<Interval> {
        if samples.is_empty() {
            return None;
        }
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
        let degrees = samples.len() as u64 - 1;
        let sd = if degrees == 0 { 0.0 } else { libm::sqrt(squares / degrees as f64) };
        let half_width = if sd == 0.0 { 0.0 } else { t_quantile(degrees) * sd / libm::sqrt(n) };
        Some(Interval { n: samples.len() as u64, mean, sd, low: mean - half_width, high: mean + half_width })
    }
}

/// Returns the 97.5 % quantile of Student's t distribution with `degrees` ≥ 1 degrees of freedom, with an error below
/// 1e-9.
///
/// Uses only libm, so that a simulated record is the same on every machine.
fn t_quantile(degrees: u64) -> f64 {
    if degrees > 200 {
        return t_expansion(degrees as f64);
    }
    // In θ = atan(t / √ν) the distribution is a finite sum, so halving [0, π/2] cannot fail.
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if t_central_probability(middle, degrees) < 2.0 * UPPER - 1.0 { low = middle } else { high = middle }
    }
    libm::tan(0.5 * (low + high)) * libm::sqrt(degrees as f64)
}

/// P(|T| ≤ √ν tan θ), Abramowitz and Stegun 26.7.3 (odd ν) and 26.7.4 (even ν).
fn t_central_probability(theta: f64, degrees: u64) -> f64 {
    let (sin, cos) = (libm::sin(theta), libm::cos(theta));
    let odd = degrees % 2 == 1;
    // 1 + (1/2) cos² + (1·3)/(2·4) cos⁴ + … to cos^(ν-2); odd: cos + (2/3) cos³ + (2·4)/(3·5) cos⁵ + …
    let (mut term, first) = if odd { (cos, 3) } else { (1.0, 2) };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    for k in (first..=degrees.saturating_sub(2)).step_by(2) {
        term *= cos * cos * (k - 1) as f64 / k as f64;
        sum += term;
    }
    if odd { FRAC_2_PI * (theta + sin * sum) } else { sin * sum }
}

/// Returns the quantile for many degrees of freedom, Abramowitz and Stegun 26.7.5; the error is below 1e-9 from ν =
/// 200 on.
fn t_expansion(degrees: f64) -> f64 {
    /// The 97.5 % quantile of the normal distribution.
    const X: f64 = 1.959_963_984_540_054;
    let x2 = X * X;
    let g1 = X * (x2 + 1.0) / 4.0;
    let g2 = X * ((5.0 * x2 + 16.0) * x2 + 3.0) / 96.0;
    let g3 = X * (((3.0 * x2 + 19.0) * x2 + 17.0) * x2 - 15.0) / 384.0;
    let g4 = X * ((((79.0 * x2 + 776.0) * x2 + 1482.0) * x2 - 1920.0) * x2 - 945.0) / 92_160.0;
    X + (g1 + (g2 + (g3 + g4 / degrees) / degrees) / degrees) / degrees
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_students_t_match_the_tables() {
        // R: qt(0.975, df).
        for (degrees, want) in [
            (1, 12.706_204_736_432_1),
            (2, 4.302_652_729_911_28),
            (3, 3.182_446_305_284_26),
            (4, 2.776_445_105_197_79),
            (9, 2.262_157_162_740_99),
            (30, 2.042_272_456_301_24),
            (100, 1.983_971_518_449_63),
        ] {
            let actual = t_quantile(degrees);
            assert!((actual - want).abs() < 1e-9, "{degrees}: {actual}");
        }
        // Both methods agree at the switch-over.
        assert!((t_expansion(200.0) - t_quantile(200)).abs() < 1e-9);
        assert!((t_quantile(1_000_000) - 1.959_966_356_8).abs() < 1e-9);
    }

    #[test]
    fn an_interval_contains_the_mean() {
        assert_eq!(Interval::from_samples(&[]), None);
        assert_eq!(
            Interval::from_samples(&[5.0]),
            Some(Interval { n: 1, mean: 5.0, sd: 0.0, low: 5.0, high: 5.0 })
        );
        assert_eq!(
            Interval::from_samples(&[5.0; 3]),
            Some(Interval { n: 3, mean: 5.0, sd: 0.0, low: 5.0, high: 5.0 })
        );
        let i = Interval::from_samples(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!((i.n, i.mean, i.sd), (3, 10.0, 1.0));
        // t(2) / √3
        assert!((i.high - 12.484_137_711_718_7).abs() < 1e-9 && (i.low - 7.515_862_288_281_3).abs() < 1e-9);
    }

    #[test]
    fn aborted_repetitions_are_excluded() {
        let repetition = |received_bps, partial, rtt_p50_us| Repetition {
            received_bps,
            partial,
            rtt_p50_us,
            ..Repetition::default()
        };
        let intervals = summarize(&[
            repetition(1e6, false, Some(50.0)),
            repetition(3e6, false, None),
            repetition(0.0, true, Some(60.0)),
        ]);
        assert_eq!(intervals["received_bps"].mean, 2e6);
        assert_eq!(intervals["received_bps"].n, 2);
        assert!(
            !intervals.contains_key("rtt_us.p50"),
            "only one repetition has a value, so there is no interval"
        );
        assert!(summarize(&[repetition(1e6, false, None)]).is_empty());
    }
}

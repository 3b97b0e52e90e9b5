//! The Hurst exponent of a series, by five estimators, each with an interval that keeps its word.
//!
//! | module | contents |
//! | --- | --- |
//! | [`local_whittle`] | the low frequencies, most likely exponent (Robinson 1995) |
//! | [`periodogram`] | the low frequencies, a line through their logarithms (Geweke and Porter-Hudak 1983) |
//! | [`wavelet`] | energy by octave (Abry and Veitch 1998) |
//! | [`variance_time`] | variance of means over longer and longer blocks |
//! | [`rescaled_range`] | range over standard deviation, R/S (Hurst 1951; Mandelbrot and Wallis 1969) |
//! | `calibration` | what the last two say of fractional Gaussian noise |
//!
//! The first three are unbiased for long series and have a known spread. The last two are neither: a series that ends
//! has no mean but its own, so both come out too low where memory is long, and R/S too high where there is none. What
//! they say (`raw`) is therefore read against what they say of exact fractional Gaussian noise of that length: `h` is
//! the exponent for which that is usual, the interval holds those for which it is not unusual.
//!
//! All of them tell the exponent of a series that has one. A trend, a level that shifts or a daily course looks like long
//! memory to each; where they differ by more than their intervals, believe none.

mod calibration;
mod line;
pub mod local_whittle;
pub mod periodogram;
pub mod rescaled_range;
pub mod variance_time;
pub mod wavelet;

use serde::Serialize;

/// The shortest series that is looked at.
pub const SHORTEST: usize = 256;

/// Standard deviations to either side of 95 % of a normal law.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// What those that look at low frequencies are off by on exact noise of 2^16 values, at the most; it does not go away with more.
const BIAS: f64 = 0.0025;

/// Half of an interval that holds the exponent with 95 %, where an estimator scatters by `sd` and has that bias.
fn half_interval(sd: f64) -> f64 {
    NORMAL_95 * libm::hypot(sd, BIAS)
}

/// An estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// [`local_whittle`].
    LocalWhittle,
    /// [`wavelet`].
    Wavelet,
    /// [`periodogram`].
    Periodogram,
    /// [`variance_time`].
    VarianceTime,
    /// [`rescaled_range`].
    RescaledRange,
}

impl Method {
    /// Every one, the most precise first.
    pub const ALL: [Method; 5] = [
        Method::LocalWhittle,
        Method::Wavelet,
        Method::Periodogram,
        Method::VarianceTime,
        Method::RescaledRange,
    ];

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Method::LocalWhittle => "local Whittle",
            Method::Wavelet => "wavelets",
            Method::Periodogram => "periodogram",
            Method::VarianceTime => "variance-time",
            Method::RescaledRange => "R/S",
        }
    }
}

/// A Hurst exponent, estimated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// By which estimator.
    pub method: Method,
    /// The exponent. ½: no memory; above, up to 1: long memory; 1 and more: no stationary series.
    pub h: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What the estimator itself said, where it is biased and `h` is not: the slope that textbooks take.
    pub raw: Option<f64>,
    /// What a line was laid through, `[x, y]`, in logarithms to base 2: of frequency in cycles an interval and power, of
    /// octave and energy, of block and variance or R/S.
    pub points: Vec<(f64, f64)>,
    /// The x between which the line was laid.
    pub fitted: (f64, f64),
    /// Chance of octaves at least this far from a line if there is one; of wavelets only.
    pub line_chance: Option<f64>,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HurstError {
    /// Fewer than [`SHORTEST`] values.
    #[error("a Hurst exponent needs {SHORTEST} values in a row, not {0}")]
    Short(usize),
    /// Values that are not numbers, or too large to square.
    #[error("a Hurst exponent needs values that can be squared")]
    Values,
    /// All values, or all of some block or octave, are the same.
    #[error("a series that stands still has no Hurst exponent")]
    Still,
}

/// Estimates the Hurst exponent of equally spaced values: of an amount an interval, not of its running sum.
///
/// # Errors
/// [`HurstError`].
pub fn estimate(method: Method, values: &[f64]) -> Result<Estimate, HurstError> {
    let values = &standard(values)?;
    let estimate = match method {
        Method::LocalWhittle => local_whittle::estimate(values),
        Method::Wavelet => wavelet::estimate(values),
        Method::Periodogram => periodogram::estimate(values),
        Method::VarianceTime => variance_time::estimate(values),
        Method::RescaledRange => rescaled_range::estimate(values),
    };
    let whole = |e: &Estimate| [e.h, e.low, e.high].iter().all(|x| x.is_finite());
    estimate.filter(whole).ok_or(HurstError::Still)
}

/// The values less their mean, over their standard deviation.
fn standard(values: &[f64]) -> Result<Vec<f64>, HurstError> {
    if values.len() < SHORTEST {
        return Err(HurstError::Short(values.len()));
    }
    if values.iter().any(|v| v.is_nan() || libm::fabs(*v) >= 1e150) {
        return Err(HurstError::Values);
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let mut all: Vec<f64> = values.iter().map(|v| v - mean).collect();
    let sd = libm::sqrt(all.iter().map(|v| v * v).sum::<f64>() / n);
    // What is left of a constant after its mean is rounding.
    if sd <= libm::fabs(mean) * 1e-12 {
        return Err(HurstError::Still);
    }
    all.iter_mut().for_each(|v| *v /= sd);
    Ok(all)
}

/// Frequencies the spectral estimators look at: 0.57 n^⅘. Fewer would tell less; with more the shape of the spectrum far
/// from its origin would tilt the line. As n grows that tilt and the spread shrink alike, so the intervals of any length hold
/// as often: for fractional Gaussian noise the tilt is at most a third of the spread.
fn band(n: usize) -> usize {
    (0.57 * libm::pow(n as f64, 0.8)) as usize
}

/// The periodogram at the lowest [`band`] frequencies, with the logarithms of those.
fn low_frequencies(values: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut power = crate::fft::periodogram(values);
    power.truncate(band(values.len()));
    let n = values.len() as f64;
    let logs = (1..=power.len()).map(|k| libm::log(k as f64 / n)).collect();
    (logs, power)
}

/// Sizes of blocks from `first` to `last`, about four to a doubling, evenly spaced as a scale of logarithms is.
fn blocks(first: usize, last: usize) -> Vec<usize> {
    let ratio = libm::log2(last as f64 / first as f64);
    let steps = (libm::round(4.0 * ratio) as usize).max(2);
    let size = |i: usize| {
        let size = first as f64 * libm::exp2(ratio * i as f64 / steps as f64);
        libm::round(size) as usize
    };
    let mut sizes: Vec<usize> = (0..=steps).map(size).collect();
    sizes.dedup();
    sizes
}

/// Points in about `bins` places of equal logarithmic width: means of x and of y, for a plot.
fn thinned(x: &[f64], y: &[f64], bins: usize) -> Vec<(f64, f64)> {
    let (Some(&first), Some(&last)) = (x.first(), x.last()) else { return Vec::new() };
    let width = (last - first) / bins as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut from = 0;
    while from < x.len() {
        let end = x[from] + width;
        let upto = from + x[from..].partition_point(|x| *x < end).max(1);
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        points.push((mean(&x[from..upto]), mean(&y[from..upto])));
        from = upto;
    }
    points
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;
    use crate::noise::Noise;

    /// Both series of each draw.
    fn series(hurst: f64, length: usize, pairs: usize) -> impl Iterator<Item = Vec<f64>> {
        let noise = Noise::new(hurst, length).unwrap();
        let mut stream = Seed::default().stream(&format!("{hurst} / {length}"));
        (0..pairs).flat_map(move |_| {
            let (a, b) = noise.pair(&mut stream);
            [a, b]
        })
    }

    #[test]
    fn exact_noise_is_recognised() {
        // The long part, with 100 series of 2^16 for each exponent, is tests/soak_hurst.rs.
        for hurst in [0.5, 0.7, 0.9] {
            for x in series(hurst, 1 << 15, 2) {
                for method in Method::ALL {
                    let e = estimate(method, &x).unwrap();
                    let near = match method {
                        Method::LocalWhittle | Method::Wavelet | Method::Periodogram => 0.045,
                        Method::VarianceTime | Method::RescaledRange => 0.12,
                    };
                    assert!((e.h - hurst).abs() < near, "{method:?}, H = {hurst}: {e:?}");
                    assert!(e.low < e.h && e.h < e.high && e.points.len() >= 3, "{e:?}");
                }
            }
        }
    }

    #[test]
    fn intervals_cover_the_exponent_at_their_level() {
        for hurst in [0.5, 0.8] {
            let mut held = [0; 5];
            for x in series(hurst, 1024, 100) {
                for (held, method) in held.iter_mut().zip(Method::ALL) {
                    let e = estimate(method, &x).unwrap();
                    *held += i32::from(e.low <= hurst && hurst <= e.high);
                }
            }
            // 190 of 200 are expected; binomial, three standard deviations and half a percent of bias.
            for (held, method) in held.iter().zip(Method::ALL) {
                assert!((178..=200).contains(held), "{method:?}, H = {hurst}: {held} of 200");
            }
        }
    }

    #[test]
    fn scale_and_place_change_nothing() {
        let x = series(0.7, 3000, 1).next().unwrap();
        let moved: Vec<f64> = x.iter().map(|v| 1e6 + 250.0 * v).collect();
        for method in Method::ALL {
            let (a, b) = (estimate(method, &x).unwrap(), estimate(method, &moved).unwrap());
            assert!((a.h - b.h).abs() < 1e-6 && (a.high - b.high).abs() < 1e-6, "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_has_no_exponent_is_refused() {
        for method in Method::ALL {
            assert_eq!(estimate(method, &[1.0; 255]), Err(HurstError::Short(255)));
            assert_eq!(estimate(method, &[0.1; 300]), Err(HurstError::Still));
            assert_eq!(estimate(method, &[f64::NAN; 300]), Err(HurstError::Values));
            assert_eq!(estimate(method, &[1e200; 300]), Err(HurstError::Values));
            // One value that differs, a ramp, a square wave: whatever comes out, it is a number or a refusal.
            let shapes: [&dyn Fn(usize) -> f64; 4] =
                [&|i| f64::from(i == 77), &|i| i as f64, &|i| f64::from(i % 2 == 0), &|i| {
                    f64::from(i % 64 < 32)
                }];
            for shape in shapes {
                let x: Vec<f64> = (0..4096).map(shape).collect();
                if let Ok(e) = estimate(method, &x) {
                    assert!(e.h.is_finite() && e.low <= e.high, "{e:?}");
                }
            }
        }
    }

    #[test]
    fn blocks_are_spaced_evenly() {
        assert_eq!(blocks(16, 64), [16, 19, 23, 27, 32, 38, 45, 54, 64]);
        assert!(blocks(4, 16).windows(2).all(|pair| pair[0] < pair[1]));
    }
}

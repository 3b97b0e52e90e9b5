//! The Hurst exponent of a series, by five estimators, each with a tested confidence interval.
//!
//! | module | contents |
//! | --- | --- |
//! | [`local_whittle`] | maximum likelihood of the low frequencies (Robinson 1995) |
//! | [`periodogram`] | a line through the logarithms of the low frequencies (Geweke and Porter-Hudak 1983) |
//! | [`wavelet`] | energy by octave (Abry and Veitch 1998) |
//! | [`variance_time`] | variance of the means of blocks of growing length |
//! | [`rescaled_range`] | range over standard deviation, R/S (Hurst 1951; Mandelbrot and Wallis 1969) |
//! | `calibration` | results of the last two for fractional Gaussian noise |
//!
//! The first three are unbiased for long series and have a known standard deviation. The last two are biased: the mean of
//! a finite series is an estimate, so both are too low for long memory, and R/S is too high without memory. Their result
//! (`raw`) is therefore compared with that for exact fractional Gaussian noise of the same length: `h` is the exponent of
//! which `raw` is the mean, and the interval contains the exponents for which `raw` is within 95 %.
//!
//! All assume that the series has a Hurst exponent. A trend, a shift of the level or a daily cycle looks like long memory;
//! if the estimators differ by more than their intervals, trust none.

mod calibration;
mod line;
pub mod local_whittle;
pub mod periodogram;
pub mod rescaled_range;
pub mod variance_time;
pub mod wavelet;

use serde::Serialize;

/// Minimum length of a series.
pub const SHORTEST: usize = 256;

/// Half width of the central 95 % of a normal distribution, in standard deviations.
pub(crate) const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Maximum bias of the spectral estimators for exact noise of 2^16 values; it does not vanish for longer series.
const BIAS: f64 = 0.0025;

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
    /// All methods, the most precise first.
    pub const ALL: [Method; 5] = [
        Method::LocalWhittle,
        Method::Wavelet,
        Method::Periodogram,
        Method::VarianceTime,
        Method::RescaledRange,
    ];

    /// Returns the usual name.
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

/// An estimated Hurst exponent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimator.
    pub method: Method,
    /// The exponent. ½: no memory; above ½ and below 1: long memory; 1 and above: not stationary.
    pub h: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The biased result of the estimator, if `h` is corrected: the slope of the textbooks.
    pub raw: Option<f64>,
    /// The points of the line, `[x, y]`, in logarithms to base 2: frequency in cycles per interval and power, octave and
    /// energy, or length of a block and variance or R/S.
    pub points: Vec<(f64, f64)>,
    /// The range of x in which the line was fitted.
    pub fitted: (f64, f64),
    /// Probability of a deviation of the octaves from a line at least this large, if they follow one. Only for wavelets.
    pub line_chance: Option<f64>,
}

impl Estimate {
    /// Returns the estimate of a spectral estimator with this standard deviation, and a bias of at most [`BIAS`].
    fn spectral(method: Method, h: f64, sd: f64, points: Vec<(f64, f64)>, fitted: (f64, f64)) -> Estimate {
        let half_width = NORMAL_95 * libm::hypot(sd, BIAS);
        let (low, high) = (h - half_width, h + half_width);
        Estimate { method, h, low, high, raw: None, points, fitted, line_chance: None }
    }
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HurstError {
    /// Fewer than [`SHORTEST`] values.
    #[error("a Hurst exponent needs {SHORTEST} values in a row, not {0}")]
    Short(usize),
    /// Values that are not numbers, or too large to square.
    #[error("the values are not numbers, or too large for a Hurst exponent")]
    Values,
    /// All values, or all of some block or octave, are equal.
    #[error("a constant series has no Hurst exponent")]
    Still,
}

/// Estimates the Hurst exponent of equally spaced values: of amounts per interval, not of their cumulative sum.
///
/// # Errors
/// Returns [`HurstError`] if the values have no estimate.
pub fn estimate(method: Method, values: &[f64]) -> Result<Estimate, HurstError> {
    let values = &standardized(values)?;
    let estimate = match method {
        Method::LocalWhittle => local_whittle::estimate(values),
        Method::Wavelet => wavelet::estimate(values),
        Method::Periodogram => periodogram::estimate(values),
        Method::VarianceTime => variance_time::estimate(values),
        Method::RescaledRange => rescaled_range::estimate(values),
    };
    let is_finite = |e: &Estimate| [e.h, e.low, e.high].iter().all(|x| x.is_finite());
    estimate.filter(is_finite).ok_or(HurstError::Still)
}

/// Returns the values minus their mean, divided by their standard deviation.
fn standardized(values: &[f64]) -> Result<Vec<f64>, HurstError> {
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
    // A constant minus its mean is only rounding.
    if sd <= libm::fabs(mean) * 1e-12 {
        return Err(HurstError::Still);
    }
    all.iter_mut().for_each(|v| *v /= sd);
    Ok(all)
}

/// Returns the number of frequencies that the spectral estimators use: 0.57 n^⅘. Fewer would increase the standard
/// deviation; with more, the shape of the spectrum far from its origin would bias the slope. As n grows, bias and standard
/// deviation decrease equally, so the coverage of the intervals does not depend on n: for fractional Gaussian noise the bias
/// is at most a third of the standard deviation.
fn bandwidth(n: usize) -> usize {
    (0.57 * libm::pow(n as f64, 0.8)) as usize
}

/// Returns the logarithms of the lowest [`bandwidth`] frequencies, and the periodogram there.
fn low_frequencies(values: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut power = crate::fft::periodogram(values);
    power.truncate(bandwidth(values.len()));
    let n = values.len() as f64;
    let logs = (1..=power.len()).map(|k| libm::log(k as f64 / n)).collect();
    (logs, power)
}

/// Returns lengths of blocks from `first` to `last`, about four per doubling, evenly spaced on a logarithmic scale.
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

/// Returns the means of x and of y in about `bins` bins of equal width, for a plot.
fn thinned(x: &[f64], y: &[f64], bins: usize) -> Vec<(f64, f64)> {
    let (Some(&first), Some(&last)) = (x.first(), x.last()) else { return Vec::new() };
    let width = (last - first) / bins as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut from = 0;
    while from < x.len() {
        let bin_end = x[from] + width;
        let end = from + x[from..].partition_point(|x| *x < bin_end).max(1);
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        points.push((mean(&x[from..end]), mean(&y[from..end])));
        from = end;
    }
    points
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;
    use crate::noise::Noise;

    /// Returns both paths of each draw.
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
        // tests/soak_hurst.rs has the long test, with 100 series of 2^16 values for each exponent.
        for hurst in [0.5, 0.7, 0.9] {
            for x in series(hurst, 1 << 15, 2) {
                for method in Method::ALL {
                    let e = estimate(method, &x).unwrap();
                    let tolerance = match method {
                        Method::LocalWhittle | Method::Wavelet | Method::Periodogram => 0.045,
                        Method::VarianceTime | Method::RescaledRange => 0.12,
                    };
                    assert!((e.h - hurst).abs() < tolerance, "{method:?}, H = {hurst}: {e:?}");
                    assert!(e.low < e.h && e.h < e.high && e.points.len() >= 3, "{e:?}");
                }
            }
        }
    }

    #[test]
    fn intervals_cover_the_exponent_at_their_level() {
        for hurst in [0.5, 0.8] {
            let mut covered = [0; 5];
            for x in series(hurst, 1024, 100) {
                for (covered, method) in covered.iter_mut().zip(Method::ALL) {
                    let e = estimate(method, &x).unwrap();
                    *covered += i32::from(e.low <= hurst && hurst <= e.high);
                }
            }
            // 190 of 200 are expected; binomial, three standard deviations and half a percent of bias.
            for (covered, method) in covered.iter().zip(Method::ALL) {
                assert!((178..=200).contains(covered), "{method:?}, H = {hurst}: {covered} of 200");
            }
        }
    }

    #[test]
    fn estimates_do_not_depend_on_scale_and_mean() {
        let x = series(0.7, 3000, 1).next().unwrap();
        let scaled: Vec<f64> = x.iter().map(|v| 1e6 + 250.0 * v).collect();
        for method in Method::ALL {
            let (a, b) = (estimate(method, &x).unwrap(), estimate(method, &scaled).unwrap());
            assert!((a.h - b.h).abs() < 1e-6 && (a.high - b.high).abs() < 1e-6, "{a:?} {b:?}");
        }
    }

    #[test]
    fn series_without_an_exponent_are_refused() {
        for method in Method::ALL {
            assert_eq!(estimate(method, &[1.0; 255]), Err(HurstError::Short(255)));
            assert_eq!(estimate(method, &[0.1; 300]), Err(HurstError::Still));
            assert_eq!(estimate(method, &[f64::NAN; 300]), Err(HurstError::Values));
            assert_eq!(estimate(method, &[1e200; 300]), Err(HurstError::Values));
            // One different value, a ramp, square waves: the result is a number or an error.
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

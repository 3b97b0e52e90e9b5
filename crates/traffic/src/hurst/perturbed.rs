//! Local Whittle with a perturbation (Hurvich, Moulines and Soulier 2005): the spectrum is f^(1 − 2H) plus a constant.
//!
//! Traffic that is made of sessions has such a spectrum: beside the long memory of their durations it has white noise, positive
//! by the arrivals and the messages of a session, or negative because no duration is below the minimum. For H near ½ the noise
//! biases estimators that do not know it, however long the series is in practice: its share falls as f^(2H − 1).

use serde::Serialize;

use super::{HurstError, NORMAL_95, standardized};

/// Highest frequency, in cycles per interval.
const HIGHEST: f64 = 1.0 / 8.0;
/// Width of a band of frequencies, as a share of the frequency. Their powers are averaged.
const BAND: f64 = 0.01;
/// Range of the exponent.
const RANGE: (f64, f64) = (0.5005, 1.2);
/// Range of the logarithm of the noise plus 1, as a share of the power at the highest frequency without noise.
const NOISE: (f64, f64) = (-5.0, 4.0);

/// An estimate with white noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Perturbed {
    /// The exponent, above ½.
    pub h: f64,
    /// Its standard deviation. It is large for exponents near ½, which white noise resembles.
    pub sd: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The noise, as a share of the other power at the highest frequency; above −1.
    pub noise: f64,
}

/// A band of frequencies.
struct Band {
    /// The logarithm of its mean frequency, divided by the highest one.
    log: f64,
    count: f64,
    /// Mean power.
    power: f64,
}

/// Estimates the exponent of equally spaced values that have long memory.
///
/// # Errors
/// As [`estimate`](super::estimate).
pub fn estimate(values: &[f64]) -> Result<Perturbed, HurstError> {
    let bands = bands(&standardized(values)?);
    let best_noise = |h: f64| minimize(NOISE, |noise| deviance(&bands, h, libm::exp(noise) - 1.0));
    let (h, _) = minimize(RANGE, |h| best_noise(h).1);
    let noise = libm::exp(best_noise(h).0) - 1.0;
    let sd = deviation(&bands, h, noise);
    if !sd.is_finite() {
        return Err(HurstError::Still);
    }
    Ok(Perturbed { h, sd, low: h - NORMAL_95 * sd, high: h + NORMAL_95 * sd, noise })
}

fn bands(values: &[f64]) -> Vec<Band> {
    let power = crate::fft::periodogram(values);
    let n = values.len() as f64;
    let highest = (n * HIGHEST) as usize;
    let mut bands = Vec::new();
    let mut from = 1;
    while from <= highest {
        let to = ((from as f64 * (1.0 + BAND)) as usize).max(from).min(highest);
        let count = (to - from + 1) as f64;
        let mean = (from + to) as f64 / 2.0;
        bands.push(Band {
            log: libm::log(mean / highest as f64),
            count,
            power: power[from - 1..to].iter().sum::<f64>() / count,
        });
        from = to + 1;
    }
    bands
}

/// Returns the logarithm of Whittle's likelihood, negative and up to a constant, at the best scale.
fn deviance(bands: &[Band], h: f64, noise: f64) -> f64 {
    let (mut total, mut scale, mut logs) = (0.0, 0.0, 0.0);
    for band in bands {
        let shape = libm::exp((1.0 - 2.0 * h) * band.log) + noise;
        total += band.count;
        scale += band.count * band.power / shape;
        logs += band.count * libm::log(shape);
    }
    libm::log(scale / total) + logs / total
}

/// Returns the standard deviation of the exponent by Fisher's information, for an unknown noise and scale.
fn deviation(bands: &[Band], h: f64, noise: f64) -> f64 {
    let derivatives = |band: &Band| {
        let memory = libm::exp((1.0 - 2.0 * h) * band.log);
        (-2.0 * band.log * memory / (memory + noise), 1.0 / (memory + noise))
    };
    let total: f64 = bands.iter().map(|b| b.count).sum();
    let (mut mean_h, mut mean_noise) = (0.0, 0.0);
    for band in bands {
        let (a, b) = derivatives(band);
        mean_h += band.count * a / total;
        mean_noise += band.count * b / total;
    }
    let (mut hh, mut hn, mut nn) = (0.0, 0.0, 0.0);
    for band in bands {
        let (a, b) = derivatives(band);
        let (a, b) = (a - mean_h, b - mean_noise);
        hh += band.count * a * a;
        hn += band.count * a * b;
        nn += band.count * b * b;
    }
    libm::sqrt(nn / (hh * nn - hn * hn))
}

/// Returns the argument in a range, and the value, at which a function with one minimum is smallest.
fn minimize(range: (f64, f64), function: impl Fn(f64) -> f64) -> (f64, f64) {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let (mut low, mut high) = range;
    let (mut a, mut b) = (high - RATIO * (high - low), low + RATIO * (high - low));
    let (mut at_a, mut at_b) = (function(a), function(b));
    for _ in 0..40 {
        if at_a < at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - RATIO * (high - low);
            at_a = function(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + RATIO * (high - low);
            at_b = function(b);
        }
    }
    if at_a < at_b { (a, at_a) } else { (b, at_b) }
}

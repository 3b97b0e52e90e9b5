//! Local Whittle (Robinson 1995): the maximum-likelihood exponent of the low frequencies.

use super::{Estimate, Method, low_frequencies, thinned};

/// Range of the exponent.
const MIN: f64 = -0.5;
const MAX: f64 = 2.0;

/// Bisections: the interval shrinks to 2e-12.
const STEPS: u32 = 40;

/// The standard deviation is 1 / (2 √Σν²), where ν is the logarithm of a frequency minus the mean logarithm: 1 / (2 √m) for m
/// frequencies, with a correction for small m (Hurvich and Chen 2000).
pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let (logs, power) = low_frequencies(values);
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let information: f64 = logs.iter().map(|l| (l - mean) * (l - mean)).sum();
    // The likelihood is convex in H: its slope changes its sign once.
    let slope = |h: f64| {
        let (mut sum, mut moment) = (0.0, 0.0);
        for (log, power) in logs.iter().zip(&power) {
            let part = power * libm::exp((2.0 * h - 1.0) * (log - mean));
            sum += part;
            moment += part * (log - mean);
        }
        moment / sum
    };
    let (mut low, mut high) = (MIN, MAX);
    if !slope(low).is_finite() || !slope(high).is_finite() {
        return None;
    }
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if slope(middle) < 0.0 { low = middle } else { high = middle }
    }
    let h = (low + high) / 2.0;
    let x: Vec<f64> = logs.iter().map(|l| l / std::f64::consts::LN_2).collect();
    let points = thinned(&x, &power, 60).into_iter().map(|(x, p)| (x, libm::log2(p))).collect();
    let fitted = (*x.first()?, *x.last()?);
    let sd = 0.5 / libm::sqrt(information);
    Some(Estimate::spectral(Method::LocalWhittle, h, sd, points, fitted))
}

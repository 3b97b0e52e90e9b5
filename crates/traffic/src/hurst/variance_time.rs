//! Variance against time: how fast the variance of means falls as they are taken over longer blocks.

use super::{Estimate, Method, blocks, calibration, line};

/// The shortest blocks: what is shorter shows memory that is short.
const FIRST: usize = 4;
/// Blocks of the longest size.
const FEWEST: usize = 16;

pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    sums.extend(values.iter().map(|v| {
        sum += v;
        sum
    }));
    let points: Vec<(f64, f64)> = blocks(FIRST, values.len() / FEWEST)
        .into_iter()
        .map(|size| (libm::log2(size as f64), libm::log2(variance_of_means(&sums, size))))
        .filter(|(_, variance)| variance.is_finite())
        .collect();
    let raw = 1.0 + line::plain(&points)?.slope / 2.0;
    calibration::VARIANCE_TIME.estimate(Method::VarianceTime, values.len(), raw, points)
}

/// Over blocks of a size, from the running sums of the values.
fn variance_of_means(sums: &[f64], size: usize) -> f64 {
    let ends: Vec<f64> = sums.iter().copied().step_by(size).collect();
    let means: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]) / size as f64).collect();
    let n = means.len() as f64;
    let mean = means.iter().sum::<f64>() / n;
    means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (n - 1.0)
}

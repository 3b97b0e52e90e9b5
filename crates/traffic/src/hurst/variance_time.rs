//! Variance–time: decrease of the variance of means with the length of the blocks.

use super::{Estimate, Method, blocks, calibration, line};

/// Minimum length of a block: shorter ones reflect short memory.
const MIN_LENGTH: usize = 4;
/// Number of blocks of the maximum length.
const MIN_BLOCKS: usize = 16;

pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    sums.extend(values.iter().map(|v| {
        sum += v;
        sum
    }));
    let points: Vec<(f64, f64)> = blocks(MIN_LENGTH, values.len() / MIN_BLOCKS)
        .into_iter()
        .map(|size| (libm::log2(size as f64), libm::log2(variance_of_means(&sums, size))))
        .filter(|(_, variance)| variance.is_finite())
        .collect();
    let raw = 1.0 + line::plain(&points)?.slope / 2.0;
    calibration::VARIANCE_TIME.estimate(Method::VarianceTime, values.len(), raw, points)
}

/// Returns the variance of the means of blocks of a length, from the cumulative sums of the values.
fn variance_of_means(sums: &[f64], size: usize) -> f64 {
    let ends: Vec<f64> = sums.iter().copied().step_by(size).collect();
    let means: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]) / size as f64).collect();
    let n = means.len() as f64;
    let mean = means.iter().sum::<f64>() / n;
    means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (n - 1.0)
}

//! R/S (Hurst 1951; Mandelbrot and Wallis 1969): growth of the range of the cumulative sum with the length of a block.

use super::{Estimate, Method, blocks, calibration, line};

/// Minimum length of a block: in shorter ones R/S depends more on the length than on the series.
const MIN_LENGTH: usize = 16;
/// Number of blocks of the maximum length.
const MIN_BLOCKS: usize = 4;

pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let points: Vec<(f64, f64)> = blocks(MIN_LENGTH, values.len() / MIN_BLOCKS)
        .into_iter()
        .filter_map(|size| Some((libm::log2(size as f64), libm::log2(mean_range(values, size)?))))
        .collect();
    let raw = line::plain(&points)?.slope;
    calibration::RESCALED_RANGE.estimate(Method::RescaledRange, values.len(), raw, points)
}

/// Returns the mean of R/S over the blocks of a length that are not constant.
fn mean_range(values: &[f64], size: usize) -> Option<f64> {
    let ranges: Vec<f64> = values.chunks_exact(size).filter_map(range).collect();
    (!ranges.is_empty()).then(|| ranges.iter().sum::<f64>() / ranges.len() as f64)
}

/// Returns the range of the cumulative deviations from the block's mean, over the block's standard deviation; `None` for a
/// constant block.
fn range(block: &[f64]) -> Option<f64> {
    let n = block.len() as f64;
    let mean = block.iter().sum::<f64>() / n;
    let (mut sum, mut min, mut max, mut squares) = (0.0f64, 0.0f64, 0.0f64, 0.0);
    for v in block {
        let deviation = v - mean;
        sum += deviation;
        min = min.min(sum);
        max = max.max(sum);
        squares += deviation * deviation;
    }
    // The standard deviation of the series is 1: below this bound there is only rounding.
    let sd = libm::sqrt(squares / n);
    (sd > 1e-9).then(|| (max - min) / sd)
}

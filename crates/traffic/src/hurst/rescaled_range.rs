//! R/S (Hurst 1951; Mandelbrot and Wallis 1969): how the range of a running sum grows with the length of a block.

use super::{Estimate, Method, blocks, calibration, line};

/// Length of the shortest blocks: in shorter ones R/S depends more on the block than on the series.
const FIRST: usize = 16;
/// Blocks of the longest size.
const FEWEST: usize = 4;

pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let points: Vec<(f64, f64)> = blocks(FIRST, values.len() / FEWEST)
        .into_iter()
        .filter_map(|size| Some((libm::log2(size as f64), libm::log2(mean_range(values, size)?))))
        .collect();
    let raw = line::plain(&points)?.slope;
    calibration::RESCALED_RANGE.estimate(Method::RescaledRange, values.len(), raw, points)
}

/// The mean of R/S over the blocks of a size in which anything moves.
fn mean_range(values: &[f64], size: usize) -> Option<f64> {
    let ranges: Vec<f64> = values.chunks_exact(size).filter_map(range).collect();
    (!ranges.is_empty()).then(|| ranges.iter().sum::<f64>() / ranges.len() as f64)
}

/// Range of the sums of what differs from the block's mean, over the block's standard deviation.
fn range(block: &[f64]) -> Option<f64> {
    let n = block.len() as f64;
    let mean = block.iter().sum::<f64>() / n;
    let (mut sum, mut least, mut most, mut squares) = (0.0f64, 0.0f64, 0.0f64, 0.0);
    for v in block {
        let off = v - mean;
        sum += off;
        least = least.min(sum);
        most = most.max(sum);
        squares += off * off;
    }
    // The values have a standard deviation of 1: what is left below this is rounding.
    let sd = libm::sqrt(squares / n);
    (sd > 1e-9).then(|| (most - least) / sd)
}

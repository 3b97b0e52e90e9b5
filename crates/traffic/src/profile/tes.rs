//! Transform–expand–sample, TES (Jagerman and Melamed 1992): a process with a given distribution and a short memory like
//! that of a measured series.
//!
//! A point walks on a circle of circumference 1. Each step is uniform with the width `width` about `center`, so the position
//! is always uniform on the circle. A stitching transformation (U/ξ up to ξ, (1 − U)/(1 − ξ) beyond) removes the
//! discontinuity where the circle closes; the result is the quantile of the drawn value. The autocorrelation is a sum, so
//! fitting needs no simulation. The memory decreases exponentially; there is no long memory.

use std::f64::consts::PI;

use serde::Serialize;
use trunkline_units::Stream;

use crate::analysis::quantile;
use crate::autocorrelation::autocorrelation;
use crate::fft::{Complex, forward};

/// Number of points of the circle from which Fourier coefficients are computed.
const CIRCLE_POINTS: usize = 1024;
/// Number of coefficients used. The others count as uncorrelated.
const HARMONICS: usize = 64;
/// Maximum number of fitted lags.
const MAX_LAGS: usize = 50;

/// A fitted process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tes {
    /// The values of the series, ascending.
    #[serde(skip)]
    values: Vec<f64>,
    /// Width of the steps, at most 1: then there is no memory.
    pub width: f64,
    /// Mean step, 0 to ½: if it is not 0, the autocorrelation oscillates.
    pub center: f64,
    /// Stitching parameter ξ, 0 to 1; with ½ the process is reversible in time.
    pub stitch: f64,
    /// Number of fitted lags.
    pub lags: usize,
    /// Root mean square of the difference between the measured autocorrelation and that of the process, over these lags.
    pub off: f64,
}

impl Tes {
    /// Fits a process with these values (ascending) and the memory of `stretch`; `None` if `stretch` is constant.
    pub(super) fn fit(stretch: &[f64], values: Vec<f64>) -> Option<Tes> {
        let series: Vec<Option<f64>> = stretch.iter().copied().map(Some).collect();
        let lags = MAX_LAGS.min(stretch.len() / 4).max(1);
        let measured = autocorrelation(&series, lags).r;
        let mut best: Option<(f64, Walk)> = None;
        for stitch in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let power = harmonics(&values, stitch)?;
            let error = |walk: Walk| walk.rms_error(&power, &measured);
            let mut current = Walk { width: 1.0, center: 0.0, stitch };
            let mut min_error = error(current);
            let mut consider = |walk: Walk| {
                let walk_error = error(walk);
                if walk_error < min_error {
                    (min_error, current) = (walk_error, walk);
                }
                current
            };
            // A coarse grid, dense for long memory, then a finer search around the best.
            for i in 0..24 {
                let width = libm::exp2(-f64::from(i) / 2.5);
                for center in [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5] {
                    consider(Walk { width, center, stitch });
                }
            }
            let mut step = 0.3;
            while step > 1e-3 {
                let start = consider(Walk { width: 1.0, center: 0.0, stitch });
                let factors = [1.0 - step, 1.0, 1.0 + step];
                for (a, b) in factors.iter().flat_map(|a| factors.map(|b| (*a, b))) {
                    let width = (start.width * a).clamp(1e-4, 1.0);
                    consider(Walk { width, center: (start.center * b).min(0.5), stitch });
                }
                if consider(start) == start {
                    step /= 2.0;
                }
            }
            if best.is_none_or(|(best_error, _)| min_error < best_error) {
                best = Some((min_error, current));
            }
        }
        let (off, Walk { width, center, stitch }) = best?;
        Some(Tes { values, width, center, stitch, lags, off })
    }

    /// Returns the autocorrelation of the process at lags from 0 on.
    pub fn autocorrelation(&self, lags: usize) -> Vec<f64> {
        let walk = Walk { width: self.width, center: self.center, stitch: self.stitch };
        harmonics(&self.values, self.stitch)
            .map_or_else(|| vec![1.0], |power| walk.autocorrelation(&power, lags))
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        let mut position = stream.unit();
        let step = |position: &mut f64, stream: &mut Stream| {
            let value = quantile(&self.values, stitched(*position, self.stitch));
            *position += self.center + self.width * (stream.unit() - 0.5);
            *position -= libm::floor(*position);
            value
        };
        (0..intervals).map(|_| step(&mut position, stream)).collect()
    }
}

/// The parameters of the walk.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Walk {
    width: f64,
    center: f64,
    stitch: f64,
}

impl Walk {
    /// Returns the mean of exp(2πiν·step): the factor by which harmonic ν decreases in a step.
    fn harmonic_factor(&self, harmonic: usize) -> Complex {
        let nu = harmonic as f64;
        let half = PI * nu * self.width;
        let sinc = if half < 1e-9 { 1.0 } else { libm::sin(half) / half };
        let (sin, cos) = libm::sincos(2.0 * PI * nu * self.center);
        (sinc * cos, sinc * sin)
    }

    /// Returns ρ(τ) = Σ share of the variance in harmonic ν · Re(factor^τ).
    fn autocorrelation(&self, power: &[f64], lags: usize) -> Vec<f64> {
        let mut r = vec![0.0; lags + 1];
        r[0] = 1.0;
        for (i, share) in power.iter().enumerate() {
            let factor = self.harmonic_factor(i + 1);
            let mut product: Complex = (1.0, 0.0);
            for r in &mut r[1..] {
                product = (
                    product.0 * factor.0 - product.1 * factor.1,
                    product.0 * factor.1 + product.1 * factor.0,
                );
                *r += share * product.0;
                if product.0 * product.0 + product.1 * product.1 < 1e-12 {
                    break;
                }
            }
        }
        r
    }

    /// Returns the root mean square of the differences from the measured autocorrelation.
    fn rms_error(&self, power: &[f64], measured: &[f64]) -> f64 {
        let lags = measured.len() - 1;
        let square = |(a, b): (&f64, f64)| (a - b) * (a - b);
        let sum: f64 = measured.iter().zip(self.autocorrelation(power, lags)).skip(1).map(square).sum();
        libm::sqrt(sum / lags as f64)
    }
}

/// Applies the stitching transformation: it maps 0 and 1 to the same value.
fn stitched(u: f64, stitch: f64) -> f64 {
    if u < stitch { u / stitch } else { (1.0 - u) / (1.0 - stitch).max(f64::MIN_POSITIVE) }
}

/// Returns the share of the variance in each harmonic of the values around the circle; `None` if they are constant.
fn harmonics(values: &[f64], stitch: f64) -> Option<Vec<f64>> {
    let circle: Vec<f64> = (0..CIRCLE_POINTS)
        .map(|i| quantile(values, stitched((i as f64 + 0.5) / CIRCLE_POINTS as f64, stitch)))
        .collect();
    let power: Vec<f64> =
        forward(&circle)[1..=CIRCLE_POINTS / 2].iter().map(|c| c.0 * c.0 + c.1 * c.1).collect();
    // Each harmonic except the last also represents its mirror image.
    let total = power.iter().sum::<f64>() - power[power.len() - 1] / 2.0;
    (total > 0.0).then(|| power[..HARMONICS].iter().map(|p| p / total).collect())
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    fn uniform() -> Vec<f64> {
        (0..1000).map(f64::from).collect()
    }

    #[test]
    fn a_draw_has_the_computed_autocorrelation() {
        for (width, center, stitch) in [(0.3, 0.0, 0.5), (0.1, 0.05, 1.0), (0.6, 0.5, 0.25)] {
            let tes = Tes { values: uniform(), width, center, stitch, lags: 0, off: 0.0 };
            let drawn = tes.draw(200_000, &mut Seed(1).stream("tes"));
            let drawn: Vec<Option<f64>> = drawn.into_iter().map(Some).collect();
            let simulated = autocorrelation(&drawn, 8).r;
            for (lag, (a, b)) in simulated.iter().zip(tes.autocorrelation(8)).enumerate() {
                assert!(
                    (a - b).abs() < 0.02,
                    "{width} {center} {stitch}, lag {lag}: {a} drawn, {b} computed"
                );
            }
        }
    }

    #[test]
    fn parameters_are_recovered_from_a_draw() {
        for (width, center, stitch) in [(0.2, 0.0, 0.5), (0.1, 0.1, 0.5)] {
            let tes = Tes { values: uniform(), width, center, stitch, lags: 0, off: 0.0 };
            let drawn = tes.draw(50_000, &mut Seed(2).stream("tes"));
            let found = Tes::fit(&drawn, uniform()).unwrap();
            assert!(found.off < 0.02, "{:?}", (found.width, found.center, found.stitch, found.off));
            for (lag, (a, b)) in tes.autocorrelation(20).iter().zip(found.autocorrelation(20)).enumerate() {
                assert!((a - b).abs() < 0.06, "lag {lag}: {a} requested, {b} fitted");
            }
        }
    }

    #[test]
    fn all_values_are_equally_likely() {
        let tes = Tes { values: uniform(), width: 0.4, center: 0.02, stitch: 0.25, lags: 0, off: 0.0 };
        let drawn = tes.draw(200_000, &mut Seed(3).stream("tes"));
        for tenth in 0..10 {
            let inside = |v: &&f64| (**v / 100.0) as usize == tenth;
            let share = drawn.iter().filter(inside).count() as f64 / drawn.len() as f64;
            assert!((share - 0.1).abs() < 0.01, "tenth {tenth}: {share}");
        }
    }
}

//! Transform–expand–sample (Jagerman and Melamed 1992): a series with given values and a short memory like the one
//! measured.
//!
//! A point walks on a circle of circumference 1; each step adds a uniform piece of width `width` about `center`, so it is
//! uniform on the circle at any time whatever the steps are. It is stitched (U/ξ up to ξ, (1 − U)/(1 − ξ) beyond: no leap
//! where the circle closes), and stands for the value with that share of all values below it. Its autocorrelation is a
//! sum, so nothing has to be simulated to fit it. Its memory ends exponentially: long memory it has none.

use std::f64::consts::PI;

use serde::Serialize;
use trunkline_units::Stream;

use super::quantile;
use crate::autocorrelation::autocorrelation;
use crate::fft::{Complex, forward};

/// Points of the circle at which the values are taken for their Fourier coefficients.
const CIRCLE: usize = 1024;
/// Coefficients that take part; those beyond count as what is forgotten at once.
const HARMONICS: usize = 64;
/// Lags that are fitted at most.
const LAGS: usize = 50;

/// A fitted process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tes {
    /// Ascending.
    #[serde(skip)]
    values: Vec<f64>,
    /// How wide the steps are, up to 1: then nothing is remembered.
    pub width: f64,
    /// How far the mean step leads, 0 to ½: not 0 makes the autocorrelation swing.
    pub center: f64,
    /// Where the circle is folded, 0 to 1; ½ makes a series that reads the same backwards.
    pub stitch: f64,
    /// Lags that were fitted.
    pub lags: usize,
    /// Root of the mean square between the autocorrelation measured and that of the process, over those lags.
    pub off: f64,
}

impl Tes {
    /// Fits the memory of `stretch`, with the values `values` (ascending). None if it stands still.
    pub(super) fn fit(stretch: &[f64], values: Vec<f64>) -> Option<Tes> {
        let series: Vec<Option<f64>> = stretch.iter().copied().map(Some).collect();
        let lags = LAGS.min(stretch.len() / 4).max(1);
        let measured = autocorrelation(&series, lags).r;
        let mut best: Option<(f64, Walk)> = None;
        for stitch in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let power = harmonics(&values, stitch)?;
            let off = |walk: Walk| walk.off(&power, &measured);
            let mut here = Walk { width: 1.0, center: 0.0, stitch };
            let mut least = off(here);
            let mut consider = |walk: Walk| {
                let found = off(walk);
                if found < least {
                    (least, here) = (found, walk);
                }
                here
            };
            // A coarse grid, dense where the memory is long, then finer about the best.
            for i in 0..24 {
                let width = libm::exp2(-f64::from(i) / 2.5);
                for center in [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5] {
                    consider(Walk { width, center, stitch });
                }
            }
            let mut step = 0.3;
            while step > 1e-3 {
                let from = consider(Walk { width: 1.0, center: 0.0, stitch });
                let around = [1.0 - step, 1.0, 1.0 + step];
                for (a, b) in around.iter().flat_map(|a| around.map(|b| (*a, b))) {
                    let width = (from.width * a).clamp(1e-4, 1.0);
                    consider(Walk { width, center: (from.center * b).min(0.5), stitch });
                }
                if consider(from) == from {
                    step /= 2.0;
                }
            }
            if best.is_none_or(|(b, _)| least < b) {
                best = Some((least, here));
            }
        }
        let (off, Walk { width, center, stitch }) = best?;
        Some(Tes { values, width, center, stitch, lags, off })
    }

    /// The autocorrelation of the process at lags from 0 on.
    pub fn autocorrelation(&self, lags: usize) -> Vec<f64> {
        let walk = Walk { width: self.width, center: self.center, stitch: self.stitch };
        harmonics(&self.values, self.stitch).map_or_else(|| vec![1.0], |power| walk.memory(&power, lags))
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        let mut at = stream.unit();
        let step = |at: &mut f64, stream: &mut Stream| {
            let here = quantile(&self.values, stitched(*at, self.stitch));
            *at += self.center + self.width * (stream.unit() - 0.5);
            *at -= libm::floor(*at);
            here
        };
        (0..intervals).map(|_| step(&mut at, stream)).collect()
    }
}

/// How the point walks and how the circle is folded.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Walk {
    width: f64,
    center: f64,
    stitch: f64,
}

impl Walk {
    /// The mean of exp(2πiν·step): the factor that remains of harmonic ν after a step.
    fn harmonic_factor(&self, harmonic: usize) -> Complex {
        let nu = harmonic as f64;
        let half = PI * nu * self.width;
        let sinc = if half < 1e-9 { 1.0 } else { libm::sin(half) / half };
        let (sin, cos) = libm::sincos(2.0 * PI * nu * self.center);
        (sinc * cos, sinc * sin)
    }

    /// ρ(τ) = Σ share of the variance in harmonic ν · Re(kept^τ).
    fn memory(&self, power: &[f64], lags: usize) -> Vec<f64> {
        let mut r = vec![0.0; lags + 1];
        r[0] = 1.0;
        for (i, share) in power.iter().enumerate() {
            let kept = self.harmonic_factor(i + 1);
            let mut left: Complex = (1.0, 0.0);
            for r in &mut r[1..] {
                left = (left.0 * kept.0 - left.1 * kept.1, left.0 * kept.1 + left.1 * kept.0);
                *r += share * left.0;
                if left.0 * left.0 + left.1 * left.1 < 1e-12 {
                    break;
                }
            }
        }
        r
    }

    fn off(&self, power: &[f64], measured: &[f64]) -> f64 {
        let lags = measured.len() - 1;
        let square = |(a, b): (&f64, f64)| (a - b) * (a - b);
        let sum: f64 = measured.iter().zip(self.memory(power, lags)).skip(1).map(square).sum();
        libm::sqrt(sum / lags as f64)
    }
}

/// The circle folded: 0 and 1 become the same.
fn stitched(u: f64, stitch: f64) -> f64 {
    if u < stitch { u / stitch } else { (1.0 - u) / (1.0 - stitch).max(f64::MIN_POSITIVE) }
}

/// What share of the variance each harmonic of the values around the circle has. None if they stand still.
fn harmonics(values: &[f64], stitch: f64) -> Option<Vec<f64>> {
    let around: Vec<f64> =
        (0..CIRCLE).map(|i| quantile(values, stitched((i as f64 + 0.5) / CIRCLE as f64, stitch))).collect();
    let power: Vec<f64> = forward(&around)[1..=CIRCLE / 2].iter().map(|c| c.0 * c.0 + c.1 * c.1).collect();
    // Each stands for itself and its mirror, the last for itself alone.
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
    fn its_memory_is_the_sum() {
        for (width, center, stitch) in [(0.3, 0.0, 0.5), (0.1, 0.05, 1.0), (0.6, 0.5, 0.25)] {
            let tes = Tes { values: uniform(), width, center, stitch, lags: 0, off: 0.0 };
            let drawn = tes.draw(200_000, &mut Seed(1).stream("tes"));
            let drawn: Vec<Option<f64>> = drawn.into_iter().map(Some).collect();
            let simulated = autocorrelation(&drawn, 8).r;
            for (lag, (a, b)) in simulated.iter().zip(tes.autocorrelation(8)).enumerate() {
                assert!(
                    (a - b).abs() < 0.02,
                    "{width} {center} {stitch}, lag {lag}: {a} drawn, {b} by the sum"
                );
            }
        }
    }

    #[test]
    fn what_was_drawn_is_fitted_again() {
        for (width, center, stitch) in [(0.2, 0.0, 0.5), (0.1, 0.1, 0.5)] {
            let tes = Tes { values: uniform(), width, center, stitch, lags: 0, off: 0.0 };
            let drawn = tes.draw(50_000, &mut Seed(2).stream("tes"));
            let found = Tes::fit(&drawn, uniform()).unwrap();
            assert!(found.off < 0.02, "{:?}", (found.width, found.center, found.stitch, found.off));
            for (lag, (a, b)) in tes.autocorrelation(20).iter().zip(found.autocorrelation(20)).enumerate() {
                assert!((a - b).abs() < 0.06, "lag {lag}: {a} asked, {b} fitted");
            }
        }
    }

    #[test]
    fn every_value_is_as_likely() {
        let tes = Tes { values: uniform(), width: 0.4, center: 0.02, stitch: 0.25, lags: 0, off: 0.0 };
        let drawn = tes.draw(200_000, &mut Seed(3).stream("tes"));
        for tenth in 0..10 {
            let inside = |v: &&f64| (**v / 100.0) as usize == tenth;
            let share = drawn.iter().filter(inside).count() as f64 / drawn.len() as f64;
            assert!((share - 0.1).abs() < 0.01, "tenth {tenth}: {share}");
        }
    }
}

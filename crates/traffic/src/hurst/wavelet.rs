//! Energy of wavelets by octave (Abry and Veitch 1998; Veitch and Abry 1999).
//!
//! Uses Daubechies' wavelet with three vanishing moments, which is insensitive to quadratic trends. The variance of each
//! octave is known, so the line is weighted and its slope has a known standard deviation.

use std::f64::consts::{LN_2, PI};

use super::{Estimate, Method, line};

/// The low-pass filter (Daubechies 1992, table 6.1, N = 3).
const LOW: [f64; 6] = [
    0.332_670_552_950_082_6,
    0.806_891_509_311_092_5,
    0.459_877_502_118_491_5,
    -0.135_011_020_010_254_6,
    -0.085_441_273_882_026_7,
    0.035_226_291_885_709_5,
];

/// Minimum number of coefficients of an octave: with fewer, the logarithm of the energy is far from normal.
const MIN_COEFFICIENTS: usize = 8;

/// Returns the first octave of the line. The lowest octaves deviate from those of a continuous wavelet; for fractional
/// Gaussian noise they bias the slope of a line from octave j by about 0.6 · 4^-j. With every five doublings of the length
/// one more octave is excluded, so that the bias stays a third of the standard deviation.
fn first_octave(n: usize) -> usize {
    ((n.ilog2() as usize + 7) / 5).max(3)
}

pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let octaves = octaves(values);
    let first = first_octave(values.len());
    let fitted: Vec<&Octave> = octaves.iter().filter(|o| o.number >= first).collect();
    // An octave without energy has no logarithm.
    if fitted.iter().any(|o| o.energy <= 1e-24) {
        return None;
    }
    let points: Vec<(f64, f64)> = fitted.iter().map(|o| o.point()).collect();
    let weights: Vec<f64> = fitted.iter().map(|o| 1.0 / o.variance()).collect();
    let line = line::weighted(&points, &weights)?;
    let h = (line.slope + 1.0) / 2.0;
    let squared_residual = |((x, y), w): (&(f64, f64), &f64)| w * (y - line.at(*x)) * (y - line.at(*x));
    let chi_square: f64 = points.iter().zip(&weights).map(squared_residual).sum();
    let degrees = points.len().saturating_sub(2);
    let fitted = (points.first()?.0, points.last()?.0);
    let points = octaves.iter().filter(|o| o.energy > 1e-24).map(Octave::point).collect();
    let line_chance = (degrees > 0).then(|| chi_square_p_value(degrees, chi_square));
    Some(Estimate { line_chance, ..Estimate::spectral(Method::Wavelet, h, line.sd / 2.0, points, fitted) })
}

/// The wavelet coefficients of an octave.
struct Octave {
    number: usize,
    /// Number of coefficients.
    count: usize,
    /// Mean of their squares.
    energy: f64,
}

impl Octave {
    /// Returns the octave and the logarithm of its energy, corrected for the bias of the logarithm of a mean of few squares.
    fn point(&self) -> (f64, f64) {
        let half = self.count as f64 / 2.0;
        (self.number as f64, libm::log2(self.energy) - (digamma(half) / LN_2 - libm::log2(half)))
    }

    /// Returns the variance of that logarithm, for independent normal coefficients.
    fn variance(&self) -> f64 {
        trigamma(self.count as f64 / 2.0) / (LN_2 * LN_2)
    }
}

/// Returns all octaves, without the coefficients that overlap the ends of the series.
fn octaves(values: &[f64]) -> Vec<Octave> {
    let mut smooth = values.to_vec();
    let mut found = Vec::new();
    for number in 1.. {
        let Some(count) = (smooth.len().saturating_sub(LOW.len()) / 2).checked_add(1) else { break };
        if smooth.len() < LOW.len() || count < MIN_COEFFICIENTS {
            break;
        }
        let energy = smooth.windows(LOW.len()).step_by(2).map(detail).map(|d| d * d).sum::<f64>();
        found.push(Octave { number, count, energy: energy / count as f64 });
        smooth = smooth.windows(LOW.len()).step_by(2).map(|w| dot(w, &LOW)).collect();
    }
    found
}

fn dot(window: &[f64], filter: &[f64]) -> f64 {
    window.iter().zip(filter).map(|(a, b)| a * b).sum()
}

/// Applies the high-pass filter: the reversed low-pass filter with alternating signs.
fn detail(window: &[f64]) -> f64 {
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    window.iter().zip(LOW.iter().rev()).enumerate().map(|(i, (a, b))| sign(i) * a * b).sum()
}

/// Returns ψ(x) for x > 0: up to 6 by its recurrence, then by DLMF 5.11.2.
fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 6.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let i = 1.0 / (x * x);
    let tail = i * (1.0 / 12.0 - i * (1.0 / 120.0 - i * (1.0 / 252.0 - i * (1.0 / 240.0 - i / 132.0))));
    sum + libm::log(x) - 0.5 / x - tail
}

/// Returns ψ′(x) for x > 0, in the same way (DLMF 5.15.8).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 6.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let i = 1.0 / (x * x);
    let tail = i * (1.0 / 6.0 - i * (1.0 / 30.0 - i * (1.0 / 42.0 - i * (1.0 / 30.0 - i * 5.0 / 66.0))));
    sum + 1.0 / x + i / 2.0 + tail / x
}

/// Returns the probability of a chi-square at least this large (DLMF 8.4.10 and 8.4.6 by the recurrence 8.8.2).
fn chi_square_p_value(degrees: usize, chi_square: f64) -> f64 {
    let x = chi_square / 2.0;
    let odd = degrees % 2 == 1;
    let mut probability = if odd { libm::erfc(libm::sqrt(x)) } else { libm::exp(-x) };
    let mut a = if odd { 0.5 } else { 1.0 };
    let mut term = if odd { libm::sqrt(x / PI) * 2.0 } else { x } * libm::exp(-x);
    while a < degrees as f64 / 2.0 {
        probability += term;
        a += 1.0;
        term *= x / a;
    }
    probability.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_the_properties_of_daubechies() {
        let sum: f64 = LOW.iter().sum();
        assert!((sum - 2f64.sqrt()).abs() < 1e-12);
        assert!((dot(&LOW, &LOW) - 1.0).abs() < 1e-12 && dot(&LOW[2..], &LOW[..4]).abs() < 1e-12);
        // A parabola has no detail; a cubic has.
        let window = |power: i32| -> Vec<f64> { (0..6).map(|i| f64::from(i).powi(power)).collect() };
        for power in 0..3 {
            assert!(detail(&window(power)).abs() < 1e-10, "power {power}");
        }
        assert!(detail(&window(3)).abs() > 0.1);
    }

    #[test]
    fn digamma_and_trigamma_match_closed_forms() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        assert!((digamma(1.0) + EULER).abs() < 1e-10);
        assert!((digamma(0.5) + EULER + 2.0 * LN_2).abs() < 1e-10);
        assert!((trigamma(1.0) - PI * PI / 6.0).abs() < 1e-10);
        assert!((trigamma(0.5) - PI * PI / 2.0).abs() < 1e-10);
        assert!((trigamma(4096.0) - 1.0 / 4095.5).abs() < 1e-10);
    }

    #[test]
    fn p_values_match_the_table_of_chi_square() {
        for (degrees, value, p) in [
            (1, 3.841, 0.05),
            (2, 5.991, 0.05),
            (3, 7.815, 0.05),
            (4, 13.277, 0.01),
            (7, 14.067, 0.05),
            (10, 4.865, 0.9),
        ] {
            let actual = chi_square_p_value(degrees, value);
            assert!((actual - p).abs() < 1e-4, "{degrees}, {value}: {actual}");
        }
    }

    #[test]
    fn white_noise_has_the_same_energy_in_every_octave() {
        let mut stream = trunkline_units::Seed(5).stream("white");
        let values: Vec<f64> = (0..1 << 15).map(|_| crate::noise::normal_pair(&mut stream).0).collect();
        let octaves = octaves(&values);
        assert!(octaves.len() >= 10 && octaves[0].count == (1 << 14) - 2, "{}", octaves.len());
        for o in octaves {
            let spread = 5.0 * libm::sqrt(2.0 / o.count as f64);
            assert!((o.energy - 1.0).abs() < spread, "octave {}: {}", o.number, o.energy);
        }
    }
}

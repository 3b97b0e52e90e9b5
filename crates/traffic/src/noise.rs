//! Exact fractional Gaussian noise (Davies and Harte 1987): the increments of fractional Brownian motion, with a given
//! Hurst exponent.

use std::f64::consts::PI;

use trunkline_units::Stream;

use crate::fft::radix_2;

/// Maximum length of a path: 2^22 values, which need 128 MiB.
pub const LONGEST: usize = 1 << 22;

/// Why parameters are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoiseError {
    /// The exponent is not between 0 and 1.
    #[error("a Hurst exponent is above 0 and below 1, not {0}")]
    Exponent(f64),
    /// No value, or more than [`LONGEST`].
    #[error("a path has 1 to {LONGEST} values, not {0}")]
    Length(usize),
}

/// Generator of fractional Gaussian noise with one exponent and length.
///
/// The covariance of a path is a corner of a circulant matrix, whose eigenvalues are a Fourier transform; none is
/// negative for fractional Gaussian noise (Craigmile 2003). So a path is exact: its long memory does not end at some lag.
#[derive(Clone, Debug)]
pub struct Noise {
    length: usize,
    /// Square roots of the eigenvalues divided by the size of the circulant.
    roots: Vec<f64>,
}

impl Noise {
    /// Creates a generator of paths of `length` values with mean 0, variance 1 and this Hurst exponent (½: white noise).
    ///
    /// # Errors
    /// Returns [`NoiseError`] for an invalid exponent or length.
    pub fn new(hurst: f64, length: usize) -> Result<Noise, NoiseError> {
        if !(hurst > 0.0 && hurst < 1.0) {
            return Err(NoiseError::Exponent(hurst));
        }
        if !(1..=LONGEST).contains(&length) {
            return Err(NoiseError::Length(length));
        }
        let half = length.next_power_of_two();
        let size = 2 * half;
        let mut circle = vec![(0.0, 0.0); size];
        for lag in 0..=half {
            let covariance = autocovariance(hurst, lag);
            circle[lag].0 = covariance;
            circle[(size - lag) % size].0 = covariance;
        }
        radix_2(&mut circle);
        // By rounding, an eigenvalue of 0 may be negative.
        let root = |e: &(f64, f64)| libm::sqrt(e.0.max(0.0) / size as f64);
        Ok(Noise { length, roots: circle.iter().map(root).collect() })
    }

    /// Draws two independent paths: the real and the imaginary part of one transform.
    pub fn pair(&self, stream: &mut Stream) -> (Vec<f64>, Vec<f64>) {
        let mut data: Vec<(f64, f64)> = Vec::with_capacity(self.roots.len());
        for root in &self.roots {
            let (a, b) = normal_pair(stream);
            data.push((root * a, root * b));
        }
        radix_2(&mut data);
        data[..self.length].iter().copied().unzip()
    }

    /// Draws one path.
    pub fn path(&self, stream: &mut Stream) -> Vec<f64> {
        self.pair(stream).0
    }
}

/// Returns the covariance of two values of fractional Gaussian noise `lag` apart: ½(|k+1|^2H − 2|k|^2H + |k−1|^2H).
pub fn autocovariance(hurst: f64, lag: usize) -> f64 {
    let (k, twice) = (lag as f64, 2.0 * hurst);
    if lag == 0 {
        return 1.0;
    }
    if lag < 100 {
        let power = |x: f64| libm::pow(x, twice);
        return 0.5 * (power(k + 1.0) - 2.0 * power(k) + power(k - 1.0));
    }
    // The differences above suffer from cancellation, their series in 1/k² does not. The next term is below 1e-13 of the
    // first.
    let falling = |terms: i32| (0..terms).map(|i| twice - f64::from(i)).product::<f64>();
    let square = k * k;
    let series = falling(2) / 2.0
        + (falling(4) / 24.0 + (falling(6) / 720.0 + falling(8) / 40_320.0 / square) / square) / square;
    libm::pow(k, twice - 2.0) * series
}

/// Draws two independent standard normal numbers (Box and Muller 1958).
pub(crate) fn normal_pair(stream: &mut Stream) -> (f64, f64) {
    let radius = libm::sqrt(-2.0 * libm::log(stream.unit()));
    let (sin, cos) = libm::sincos(2.0 * PI * stream.unit());
    (radius * cos, radius * sin)
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn covariances_match_the_definition() {
        assert_eq!(autocovariance(0.5, 0), 1.0);
        for lag in [1, 7, 99, 100, 5_000] {
            assert!(autocovariance(0.5, lag).abs() < 1e-14, "white noise, lag {lag}");
        }
        // 2^(2H−1) − 1 at lag 1.
        assert!((autocovariance(0.8, 1) - (libm::pow(2.0, 0.6) - 1.0)).abs() < 1e-15);
        // The series agrees with the differences.
        for h in [0.1, 0.3, 0.7, 0.9, 0.99] {
            let power = |x: f64| libm::pow(x, 2.0 * h);
            let want = 0.5 * (power(101.0) - 2.0 * power(100.0) + power(99.0));
            let actual = autocovariance(h, 100);
            assert!((actual - want).abs() < 1e-9 * want.abs().max(1e-6), "H = {h}: {actual} for {want}");
        }
    }

    #[test]
    fn paths_have_the_requested_covariance() {
        let (length, paths) = (64, 4_000);
        for hurst in [0.2, 0.5, 0.7, 0.9] {
            let noise = Noise::new(hurst, length).unwrap();
            let mut stream = Seed(11).stream("noise");
            let mut sums = vec![0.0; length];
            let (mut between, mut means) = (0.0, 0.0);
            for _ in 0..paths {
                let (a, b) = noise.pair(&mut stream);
                for (lag, sum) in sums.iter_mut().enumerate() {
                    *sum += a[0] * a[lag] + b[length - 1] * b[length - 1 - lag];
                }
                between += a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / length as f64;
                means += a.iter().sum::<f64>() / length as f64;
            }
            // Each product has a standard deviation of at most √2.
            let tolerance = 4.5 * libm::sqrt(2.0 / (2 * paths) as f64);
            for (lag, sum) in sums.iter().enumerate() {
                let actual = sum / (2 * paths) as f64;
                let want = autocovariance(hurst, lag);
                assert!((actual - want).abs() < tolerance, "H = {hurst}, lag {lag}: {actual} for {want}");
            }
            assert!((between / paths as f64).abs() < tolerance && (means / paths as f64).abs() < tolerance);
        }
    }

    #[test]
    fn a_path_depends_only_on_its_seed() {
        let noise = Noise::new(0.8, 1000).unwrap();
        let draw = |seed: u64| noise.path(&mut Seed(seed).stream("noise"));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(1).len(), 1000);
        // Pinned: a change here changes every source drawn from it.
        let first: Vec<u64> = draw(1996)[..2].iter().map(|v| v.to_bits()).collect();
        assert_eq!(first, [13_821_269_119_010_334_150, 4_607_603_873_172_205_524]);
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for hurst in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(matches!(Noise::new(hurst, 8), Err(NoiseError::Exponent(_))));
        }
        assert_eq!(Noise::new(0.5, 0).unwrap_err(), NoiseError::Length(0));
        assert_eq!(Noise::new(0.5, LONGEST + 1).unwrap_err(), NoiseError::Length(LONGEST + 1));
        assert_eq!(Noise::new(0.5, 1).unwrap().path(&mut Seed(1).stream("one")).len(), 1);
    }
}

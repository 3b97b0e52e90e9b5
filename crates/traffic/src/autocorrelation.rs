//! The autocorrelation of a series.

use serde::Serialize;

use crate::fft::radix_2;

/// The sample autocorrelation of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Autocorrelation {
    /// By lag in intervals, from lag 0, where it is 1. A constant series has 0 at all other lags.
    pub r: Vec<f64>,
    /// Half width of the 95 % band of white noise at each lag.
    pub band: f64,
}

/// Returns the autocorrelation up to `lags`, or up to one less than the number of intervals. Pairs with a gap do not count.
pub fn autocorrelation(values: &[Option<f64>], lags: usize) -> Autocorrelation {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let count = known.len().max(1) as f64;
    let mean = known.iter().sum::<f64>() / count;
    let lags = lags.min(values.len().saturating_sub(1));
    let deviations = values.iter().map(|v| v.map_or(0.0, |v| v - mean));
    let products = products(deviations, values.len(), lags);
    let pairs = pair_counts(values, lags);
    let covariance = |lag: usize| if pairs[lag] > 0.5 { products[lag] / pairs[lag] } else { 0.0 };
    let variance = covariance(0);
    let r = |lag: usize| match lag {
        0 => 1.0,
        // The variance of a constant is only rounding.
        _ if variance <= mean * mean * 1e-24 => 0.0,
        // Without gaps, divide by the number of intervals, not of pairs: never beyond ±1 (Priestley 1981, 5.3.3).
        _ if known.len() == values.len() => products[lag] / products[0],
        _ => (covariance(lag) / variance).clamp(-1.0, 1.0),
    };
    Autocorrelation { r: (0..=lags).map(r).collect(), band: 1.96 / libm::sqrt(count) }
}

/// Returns Σ x_t x_{t+k} for k up to `lags`, computed from the power spectrum.
fn products(values: impl Iterator<Item = f64>, n: usize, lags: usize) -> Vec<f64> {
    let size = (n + lags + 1).next_power_of_two();
    let mut data: Vec<(f64, f64)> = values.map(|v| (v, 0.0)).collect();
    data.resize(size, (0.0, 0.0));
    radix_2(&mut data);
    data.iter_mut().for_each(|c| *c = (c.0 * c.0 + c.1 * c.1, 0.0));
    radix_2(&mut data);
    data[..=lags].iter().map(|c| c.0 / size as f64).collect()
}

/// Returns the number of pairs of known values at each lag.
fn pair_counts(values: &[Option<f64>], lags: usize) -> Vec<f64> {
    let n = values.len();
    if values.iter().all(Option::is_some) {
        return (0..=lags).map(|lag| (n - lag) as f64).collect();
    }
    products(values.iter().map(|v| f64::from(v.is_some())), n, lags).into_iter().map(libm::round).collect()
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;
    use crate::noise::{Noise, autocovariance};

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn autocorrelation_equals_its_definition() {
        let mut stream = Seed(1).stream("acf");
        let mut values: Vec<Option<f64>> = (0..300).map(|_| Some(5.0 + stream.unit())).collect();
        for gaps in [false, true] {
            if gaps {
                (0..300).step_by(7).for_each(|i| values[i] = None);
            }
            let known: Vec<f64> = values.iter().flatten().copied().collect();
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            let found = autocorrelation(&values, 20);
            assert_eq!((found.r.len(), found.r[0]), (21, 1.0));
            let variance = known.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / known.len() as f64;
            for lag in 1..=20 {
                let pairs: Vec<f64> = (0..300 - lag)
                    .filter_map(|t| Some((values[t]? - mean) * (values[t + lag]? - mean)))
                    .collect();
                let over = if gaps { pairs.len() } else { 300 } as f64;
                let want = pairs.iter().sum::<f64>() / over / variance;
                assert!((found.r[lag] - want).abs() < 1e-9, "lag {lag}: {} for {want}", found.r[lag]);
            }
        }
        assert_eq!(autocorrelation(&some(&[3.3; 9]), 100).r, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(autocorrelation(&[None, None], 1).r, [1.0, 0.0]);
        assert_eq!(autocorrelation(&[], 5).r, [1.0]);
    }

    #[test]
    fn noise_has_the_requested_memory() {
        let mut stream = Seed(2).stream("acf");
        let noise = Noise::new(0.7, 1 << 15).unwrap();
        let found = autocorrelation(&some(&noise.path(&mut stream)), 10);
        for (lag, r) in found.r.iter().enumerate() {
            let want = autocovariance(0.7, lag);
            assert!((r - want).abs() < 0.05, "lag {lag}: {r} for {want}");
        }
    }
}

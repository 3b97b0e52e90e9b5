//! Which model resembles a series most.

use serde::Serialize;
use trunkline_units::Seed;

use super::{Kind, Profile, ProfileError};
use crate::autocorrelation::autocorrelation;
use crate::hurst::{Method, estimate};
use crate::series::Series;

/// Largest lag that is compared.
const LAGS: usize = 50;
/// Maximum number of drawn intervals.
const MOST_DRAWN: usize = 1 << 16;

/// How well a series drawn from a fitted model resembles the series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resemblance {
    /// The model.
    pub kind: Kind,
    /// Kolmogorov–Smirnov distance of the values.
    pub values: f64,
    /// Largest difference of the autocorrelation at lags 1 to 50.
    pub memory: f64,
    /// Hurst exponent of the drawn series (local Whittle); none for short or constant series.
    pub hurst: Option<f64>,
    /// The larger of both differences.
    pub difference: f64,
}

/// Fits every model and compares a drawn series with the series, the most similar first. Models that cannot be fitted are left out.
///
/// # Errors
/// That of the first model, if none can be fitted.
pub fn compare(series: &Series, seed: Seed) -> Result<Vec<Resemblance>, ProfileError> {
    let mut sorted: Vec<f64> = series.known().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let observed = autocorrelation(series.values(), LAGS).r;
    let (mut found, mut refused) = (Vec::new(), None);
    for kind in Kind::ALL {
        let profile = match Profile::fit(kind, series) {
            Ok(profile) => profile,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        let mut stream = seed.stream(&format!("compare / {}", kind.name()));
        let drawn = profile.draw(series.values().len().clamp(1_000, MOST_DRAWN), &mut stream)?;
        let some: Vec<Option<f64>> = drawn.iter().copied().map(Some).collect();
        let memory = autocorrelation(&some, LAGS).r;
        let differences = observed.iter().zip(&memory).skip(1).map(|(a, b)| libm::fabs(a - b));
        let memory = differences.filter(|d| d.is_finite()).fold(0.0, f64::max);
        let hurst = estimate(Method::LocalWhittle, &drawn).ok().map(|estimate| estimate.h);
        let values = two_sample_distance(&sorted, drawn);
        found.push(Resemblance { kind, values, memory, hurst, difference: values.max(memory) });
    }
    found.sort_by(|a, b| a.difference.total_cmp(&b.difference));
    match refused {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Returns the largest difference between the distributions of two samples, the first sorted.
fn two_sample_distance(a: &[f64], mut b: Vec<f64>) -> f64 {
    b.sort_unstable_by(f64::total_cmp);
    let share = |sorted: &[f64], x: f64| sorted.partition_point(|v| *v <= x) as f64 / sorted.len() as f64;
    let at = a.iter().chain(&b).map(|x| libm::fabs(share(a, *x) - share(&b, *x)));
    at.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;
    use crate::noise::Noise;

    fn best(values: Vec<f64>) -> Kind {
        let series = Series::new(0, Span::from_s(1), values.into_iter().map(Some).collect()).unwrap();
        compare(&series, Seed(1)).unwrap()[0].kind
    }

    #[test]
    fn drawn_series_resemble_their_model() {
        let mut stream = Seed(2).stream("compare");
        let noise = Noise::new(0.8, 1 << 14).unwrap().path(&mut stream);
        assert_eq!(best(noise.iter().map(|z| 1_000.0 + 100.0 * z).collect()), Kind::Fgn);
        // Short memory with uniform values.
        let mut x = 0.5;
        let steps = (0..1 << 14).map(|_| {
            x = (x + 0.2 * (stream.unit() - 0.5)).rem_euclid(2.0);
            if x < 1.0 { x } else { 2.0 - x }
        });
        assert_eq!(best(steps.collect()), Kind::Tes);
        assert_eq!(two_sample_distance(&[1.0, 2.0], vec![3.0, 4.0]), 1.0);
        assert_eq!(two_sample_distance(&[1.0, 2.0], vec![2.0, 1.0]), 0.0);
    }
}

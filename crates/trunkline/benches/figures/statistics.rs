//! Medians and the Kolmogorov–Smirnov test.

/// A quantile of some values by the nearest rank; `share` is 0 to 1.
///
/// Panics if there are none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The chance of gaps this far from an exponential law with this mean, if they followed it (Kolmogorov–Smirnov).
///
/// The law is fully given, so nothing is estimated from the gaps. The series for the asymptotic distribution, with
/// Stephens' correction for finite samples (JRSS B 32, 1970). Written anew here, so that the record is not its own
/// judge.
pub fn exponential_p_value(gaps: &[f64], mean: f64) -> f64 {
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = (0..).zip(&sorted).fold(0.0_f64, |far, (i, gap)| {
        let law = 1.0 - (-gap / mean).exp();
        far.max(law - f64::from(i) / n).max(f64::from(i + 1) / n - law)
    });
    let lambda = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance;
    if lambda < 0.2 {
        return 1.0; // the series no longer converges, and the chance is 1 to more places than anyone needs
    }
    let term = |k: i32| f64::from(2 * (k % 2) - 1) * (-2.0 * f64::from(k * k) * lambda * lambda).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

//! A line through the logarithms of the low frequencies (Geweke and Porter-Hudak 1983; Robinson 1995).

use std::f64::consts::{LN_2, PI};

use super::{Estimate, Method, line, low_frequencies, thinned};

/// The logarithm of a periodogram has the variance of that of an exponential variable, π²/6, at every frequency.
pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let (logs, power) = low_frequencies(values);
    let positive: Vec<(f64, f64)> =
        logs.iter().zip(&power).filter(|(_, p)| **p > 0.0).map(|(l, p)| (*l, libm::log(*p))).collect();
    let line = line::plain(&positive)?;
    let h = (1.0 - line.slope) / 2.0;
    let sd = PI / libm::sqrt(6.0) * line.sd / 2.0;
    let (x, y): (Vec<f64>, Vec<f64>) = positive.iter().map(|(x, y)| (x / LN_2, y / LN_2)).unzip();
    let fitted = (*x.first()?, *x.last()?);
    let points = thinned(&x, &y, 60);
    Some(Estimate::spectral(Method::Periodogram, h, sd, points, fitted))
}

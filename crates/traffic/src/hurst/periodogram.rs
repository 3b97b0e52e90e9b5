//! A line through the logarithms of the low frequencies (Geweke and Porter-Hudak 1983; Robinson 1995).

use std::f64::consts::{LN_2, PI};

use super::{Estimate, Method, half_interval, line, low_frequencies, thinned};

/// The logarithm of a periodogram scatters as that of an exponential variable: its variance is π²/6 at every frequency.
pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let (logs, power) = low_frequencies(values);
    let seen: Vec<(f64, f64)> =
        logs.iter().zip(&power).filter(|(_, p)| **p > 0.0).map(|(l, p)| (*l, libm::log(*p))).collect();
    let found = line::plain(&seen)?;
    let h = (1.0 - found.slope) / 2.0;
    let far = half_interval(PI / libm::sqrt(6.0) * found.sd / 2.0);
    let (x, y): (Vec<f64>, Vec<f64>) = seen.iter().map(|(x, y)| (x / LN_2, y / LN_2)).unzip();
    let fitted = (*x.first()?, *x.last()?);
    let points = thinned(&x, &y, 60);
    let method = Method::Periodogram;
    Some(Estimate { method, h, low: h - far, high: h + far, raw: None, points, fitted, line_chance: None })
}

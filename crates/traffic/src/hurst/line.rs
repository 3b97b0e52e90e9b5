//! Straight lines through points.

/// Fits a line through points `(x, y)` with these weights. Its standard deviation assumes that each weight is the inverse of
/// the variance of its y. Returns `None` if all x are equal.
pub(super) fn weighted(points: &[(f64, f64)], weights: &[f64]) -> Option<Line> {
    let (mut s, mut sx, mut sy) = (0.0, 0.0, 0.0);
    for ((x, y), w) in points.iter().zip(weights) {
        s += w;
        sx += w * x;
        sy += w * y;
    }
    let (middle, level) = (sx / s, sy / s);
    let (mut sxx, mut sxy) = (0.0, 0.0);
    for ((x, y), w) in points.iter().zip(weights) {
        sxx += w * (x - middle) * (x - middle);
        sxy += w * (x - middle) * (y - level);
    }
    (sxx > 0.0).then(|| Line { slope: sxy / sxx, sd: 1.0 / libm::sqrt(sxx), middle, level })
}

/// Fits a line through points `(x, y)` of equal weight.
pub(super) fn plain(points: &[(f64, f64)]) -> Option<Line> {
    weighted(points, &vec![1.0; points.len()])
}

/// A line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub slope: f64,
    /// Standard deviation of the slope.
    pub sd: f64,
    /// A point of the line: x and y.
    middle: f64,
    level: f64,
}

impl Line {
    /// Returns y at `x`.
    pub(super) fn at(&self, x: f64) -> f64 {
        self.level + self.slope * (x - self.middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let points: Vec<(f64, f64)> = (0..5).map(|i| (f64::from(i), 3.0 - 0.5 * f64::from(i))).collect();
        let line = plain(&points).unwrap();
        assert!((line.slope + 0.5).abs() < 1e-15 && (line.at(4.0) - 1.0).abs() < 1e-15);
        // Σ(x − 2)² = 10.
        assert!((line.sd - 1.0 / 10f64.sqrt()).abs() < 1e-15);
        let mut bent = points;
        bent.push((5.0, 100.0));
        let ignored = weighted(&bent, &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]).unwrap();
        assert!((ignored.slope + 0.5).abs() < 1e-12);
        assert!(plain(&[(1.0, 2.0)]).is_none() && plain(&[]).is_none());
    }
}

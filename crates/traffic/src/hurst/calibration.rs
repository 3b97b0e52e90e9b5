//! Results of R/S and variance–time for exact fractional Gaussian noise, by exponent and length.
//!
//! Computed with `cargo test --release -p trunkline-traffic --features soak --test soak_hurst -- --nocapture tables`.

use super::{Estimate, Method, NORMAL_95};

/// Exponents of the rows.
const EXPONENTS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Lengths of the columns, as powers of two.
const LENGTHS: [u32; 5] = [8, 10, 12, 14, 16];

/// Mean and standard deviation of the results of an estimator.
pub(super) struct Table(pub [[(f64, f64); LENGTHS.len()]; EXPONENTS.len()]);

impl Table {
    /// Returns the exponent of which `raw` is the mean, and the interval of those for which it is within 95 %.
    pub(super) fn estimate(
        &self,
        method: Method,
        n: usize,
        raw: f64,
        points: Vec<(f64, f64)>,
    ) -> Option<Estimate> {
        let column = self.column(n);
        let exponent = |sds: f64| {
            let results: Vec<f64> = column.iter().map(|(mean, sd)| mean + sds * sd).collect();
            exponent_at(&results, raw)
        };
        Some(Estimate {
            method,
            h: exponent(0.0),
            low: exponent(NORMAL_95),
            high: exponent(-NORMAL_95),
            raw: Some(raw),
            fitted: (points.first()?.0, points.last()?.0),
            points,
            line_chance: None,
        })
    }

    /// Returns mean and standard deviation for a length, interpolated between two columns on a logarithmic scale. Beyond the
    /// last column they are those of the last, whose standard deviation is larger.
    fn column(&self, n: usize) -> [(f64, f64); EXPONENTS.len()] {
        let position = (libm::log2(n as f64) - f64::from(LENGTHS[0])) / 2.0;
        let position = position.clamp(0.0, (LENGTHS.len() - 1) as f64);
        let left = (position as usize).min(LENGTHS.len() - 2);
        let fraction = position - left as f64;
        let interpolate = |a: f64, b: f64| a + (b - a) * fraction;
        self.0.map(|row| {
            let ((mean_a, sd_a), (mean_b, sd_b)) = (row[left], row[left + 1]);
            (interpolate(mean_a, mean_b), interpolate(sd_a, sd_b))
        })
    }
}

/// Returns the exponent at which the ascending curve `results` over [`EXPONENTS`] is `raw`, extrapolated linearly to the
/// range from −½ to 1½.
fn exponent_at(results: &[f64], raw: f64) -> f64 {
    let right = results.partition_point(|s| *s < raw).clamp(1, results.len() - 1);
    let (a, b) = (right - 1, right);
    let fraction = (raw - results[a]) / (results[b] - results[a]);
    (EXPONENTS[a] + fraction * (EXPONENTS[b] - EXPONENTS[a])).clamp(-0.5, 1.5)
}

pub(super) const VARIANCE_TIME: Table = Table([
    [(0.09189, 0.11720), (0.09681, 0.04719), (0.09722, 0.02563), (0.09803, 0.01632), (0.09865, 0.01189)],
    [(0.19202, 0.11581), (0.19583, 0.05023), (0.19791, 0.02903), (0.19895, 0.02052), (0.19885, 0.01394)],
    [(0.29132, 0.11529), (0.29643, 0.05398), (0.29708, 0.03045), (0.29793, 0.02065), (0.29882, 0.01523)],
    [(0.39054, 0.10921), (0.39393, 0.05694), (0.39634, 0.03368), (0.39917, 0.02348), (0.39849, 0.01730)],
    [(0.48238, 0.10673), (0.48922, 0.05721), (0.49341, 0.03598), (0.49648, 0.02587), (0.49700, 0.01797)],
    [(0.57024, 0.10174), (0.58096, 0.05821), (0.58932, 0.03932), (0.59210, 0.02641), (0.59459, 0.02025)],
    [(0.65470, 0.09518), (0.66707, 0.05912), (0.67624, 0.04048), (0.68242, 0.02902), (0.68707, 0.02265)],
    [(0.72789, 0.08615), (0.74583, 0.05723), (0.76049, 0.04039), (0.76979, 0.03053), (0.77465, 0.02436)],
    [(0.79076, 0.07965), (0.81395, 0.05287), (0.83014, 0.03774), (0.84202, 0.03015), (0.85088, 0.02433)],
    [(0.81841, 0.07529), (0.84262, 0.05013), (0.86071, 0.03729), (0.87190, 0.02983), (0.88305, 0.02442)],
]);

pub(super) const RESCALED_RANGE: Table = Table([
    [(0.27024, 0.04993), (0.24025, 0.02025), (0.21920, 0.01155), (0.20318, 0.00700), (0.19125, 0.00461)],
    [(0.34614, 0.05833), (0.31883, 0.02647), (0.29894, 0.01423), (0.28360, 0.00955), (0.27121, 0.00643)],
    [(0.42349, 0.06627), (0.39662, 0.03177), (0.37740, 0.01722), (0.36293, 0.01141), (0.35287, 0.00822)],
    [(0.49778, 0.07261), (0.47638, 0.03527), (0.45887, 0.02052), (0.44770, 0.01342), (0.43814, 0.00968)],
    [(0.57255, 0.08010), (0.55469, 0.03924), (0.54184, 0.02396), (0.53351, 0.01540), (0.52581, 0.01082)],
    [(0.64218, 0.08507), (0.63278, 0.04328), (0.62598, 0.02630), (0.61937, 0.01745), (0.61505, 0.01237)],
    [(0.71037, 0.08666), (0.70752, 0.04684), (0.70559, 0.02826), (0.70534, 0.01892), (0.70301, 0.01405)],
    [(0.77181, 0.08672), (0.77581, 0.04488), (0.78038, 0.02910), (0.78360, 0.02026), (0.78690, 0.01460)],
    [(0.82579, 0.08459), (0.83703, 0.04370), (0.84616, 0.02834), (0.85337, 0.02002), (0.86039, 0.01460)],
    [(0.84744, 0.08349), (0.86231, 0.04386), (0.87293, 0.02673), (0.88243, 0.01970), (0.89072, 0.01429)],
]);

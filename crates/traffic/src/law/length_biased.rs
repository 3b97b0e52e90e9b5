//! The times of a renewal process that are under way at a random instant: long ones are met more often than short ones.

use trunkline_units::Stream;

use crate::{Law, Variable};

/// Cells for each halving of the probability of a longer time, and the number of halvings.
const CELLS: u32 = 64;
const HALVINGS: u32 = 45;

/// The length-biased distribution of a law: that of a value, given that it is met with a probability proportional to it.
#[derive(Clone, Debug)]
pub struct LengthBiased {
    law: Law,
    /// For a Pareto variable, its minimum and the shape, which is one less.
    pareto: Option<(f64, f64)>,
    /// Otherwise the share of the mean in the first cells, by cell.
    shares: Vec<f64>,
}

impl LengthBiased {
    /// Creates the distribution for a law of positive values; `None` without a mean.
    pub fn new(law: &Law) -> Option<LengthBiased> {
        law.mean()?;
        let pareto = match law.variable() {
            Variable::Pareto { shape, .. } => Some((law.quantile(0.0), shape - 1.0)),
            _ => None,
        };
        let mut shares = Vec::new();
        if pareto.is_none() {
            let mut sum = 0.0;
            for cell in 0..CELLS * HALVINGS {
                let (from, to) = (edge(cell), edge(cell + 1));
                sum += (to - from) * law.quantile((from + to) / 2.0);
                shares.push(sum);
            }
            shares.iter_mut().for_each(|share| *share /= sum);
        }
        Some(LengthBiased { law: law.clone(), pareto, shares })
    }

    /// Draws a value; takes two numbers from the stream.
    pub fn sample(&self, stream: &mut Stream) -> f64 {
        let (u, v) = (stream.unit(), stream.unit());
        if let Some((min, shape)) = self.pareto {
            return (min * libm::exp(-libm::log1p(-u) / shape)).min(f64::MAX);
        }
        let cell = self.shares.partition_point(|share| *share < u).min(self.shares.len() - 1) as u32;
        let (from, to) = (edge(cell), edge(cell + 1));
        self.law.quantile(from + v * (to - from))
    }
}

/// Returns the probability at which a cell begins: cells are narrower towards 1, where values are large.
fn edge(cell: u32) -> f64 {
    1.0 - libm::exp2(-f64::from(cell) / f64::from(CELLS))
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn the_mean_is_the_second_moment_divided_by_the_first() {
        let truncated = Variable::Truncated {
            of: Box::new(Variable::Pareto { shape: 1.5, min: 1.0 }),
            min: 1.0,
            max: 100.0,
        };
        for (variable, want) in [
            (Variable::Constant(3.0), 3.0),
            (Variable::Exponential { mean: 2.0 }, 4.0),
            (Variable::Uniform { a: 0.0, b: 6.0 }, 4.0),
            (Variable::Pareto { shape: 4.0, min: 1.0 }, 1.5),
            // ∫ x² dF = 3 (√max − 1), and ∫ x dF = 3 (1 − 1 / √max).
            (truncated, 10.0),
        ] {
            let law = Law::new(variable.clone(), 0.0).unwrap();
            let biased = LengthBiased::new(&law).unwrap();
            let mut stream = Seed(1).stream("biased");
            let n = 200_000;
            let mean = (0..n).map(|_| biased.sample(&mut stream)).sum::<f64>() / f64::from(n);
            assert!((mean / want - 1.0).abs() < 0.01, "{variable:?}: {mean} for {want}");
        }
        assert!(
            LengthBiased::new(&Law::new(Variable::Pareto { shape: 1.0, min: 1.0 }, 0.0).unwrap()).is_none()
        );
    }
}

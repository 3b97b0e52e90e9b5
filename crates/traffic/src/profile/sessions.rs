//! Amounts of sessions that are independent of each other: a Poisson number of them in each interval, without memory, or M/G/∞ with
//! Pareto durations.

use serde::Serialize;
use trunkline_units::Stream;

use crate::law::length_biased::LengthBiased;
use crate::{Law, Variable};

/// A Poisson number of equal amounts in each interval, independent of other intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Poisson {
    /// Mean number an interval.
    pub rate: f64,
    /// Amount of each.
    pub amount: f64,
}

/// Sessions of M/G/∞: a Poisson number at a time, each with the same amount in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MgInf {
    /// Mean number of sessions at a time.
    pub sessions: f64,
    /// Amount of a session in an interval.
    pub amount: f64,
    /// Shape of the Pareto durations, 3 − 2H.
    pub shape: f64,
    /// Their minimum, in intervals: it gives the autocorrelation of neighbours.
    pub min: f64,
}

impl Poisson {
    /// Fits mean and variance.
    pub(super) fn fit(mean: f64, sd: f64) -> Poisson {
        Poisson { rate: mean * mean / (sd * sd), amount: sd * sd / mean }
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        (0..intervals).map(|_| self.amount * poisson(self.rate, stream)).collect()
    }
}

impl MgInf {
    /// Fits mean, variance, Hurst exponent and the autocorrelation of neighbours.
    pub(super) fn fit(mean: f64, sd: f64, hurst: f64, neighbours: f64) -> MgInf {
        let shape = (3.0 - 2.0 * hurst).clamp(1.02, 1.98);
        let r = neighbours.clamp(0.01, 0.99);
        // The autocorrelation is 1 − (shape − 1) t / (shape · min) up to the minimum and a power of t beyond.
        let min = if r > 1.0 / shape {
            (shape - 1.0) / (shape * (1.0 - r))
        } else {
            libm::pow(shape * r, 1.0 / (shape - 1.0))
        };
        MgInf { sessions: mean * mean / (sd * sd), amount: sd * sd / mean, shape, min }
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        let variable = Variable::Pareto { shape: self.shape, min: self.min };
        let (Ok(law), length) = (Law::new(variable, 0.0), intervals as f64) else {
            return vec![0.0; intervals];
        };
        let (Some(mean), Some(biased)) = (law.mean(), LengthBiased::new(&law)) else {
            return vec![0.0; intervals];
        };
        // Changes of the number of sessions, counted at the beginning of each interval.
        let mut changes = vec![0.0; intervals + 1];
        let mut add = |from: f64, to: f64| {
            changes[libm::ceil(from.clamp(0.0, length)) as usize] += 1.0;
            changes[libm::ceil(to.clamp(0.0, length)) as usize] -= 1.0;
        };
        for _ in 0..poisson(self.sessions, stream) as u64 {
            let rest = biased.sample(stream) * stream.unit();
            add(0.0, rest);
        }
        let gap = mean / self.sessions;
        let mut at = -gap * libm::log(stream.unit());
        while at < length {
            add(at, at + law.sample(stream));
            at -= gap * libm::log(stream.unit());
        }
        let mut sessions = 0.0;
        let amount = |change: &f64| {
            sessions += change;
            self.amount * sessions
        };
        changes[..intervals].iter().map(amount).collect()
    }
}

/// Draws a Poisson number: arrivals until a time, or of a normal distribution if there are many.
fn poisson(mean: f64, stream: &mut Stream) -> f64 {
    if mean > 1e4 {
        return libm::round(mean + libm::sqrt(mean) * crate::noise::normal_pair(stream).0).max(0.0);
    }
    let (mut count, mut at) = (0.0, -libm::log(stream.unit()));
    while at < mean {
        count += 1.0;
        at -= libm::log(stream.unit());
    }
    count
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;
    use crate::analysis::distribution;
    use crate::autocorrelation::autocorrelation;
    use crate::hurst::{Method, estimate};

    #[test]
    fn draws_have_the_moments_and_the_memory() {
        let mut stream = Seed(1).stream("sessions");
        let drawn = Poisson::fit(100.0, 20.0).draw(20_000, &mut stream);
        let found = distribution(drawn.iter().copied()).unwrap();
        assert!((found.mean / 100.0 - 1.0).abs() < 0.01 && (found.sd / 20.0 - 1.0).abs() < 0.03);
        for neighbours in [0.5, 0.9] {
            let model = MgInf::fit(100.0, 20.0, 0.75, neighbours);
            let drawn = model.draw(1 << 17, &mut stream);
            let found = distribution(drawn.iter().copied()).unwrap();
            assert!((found.mean / 100.0 - 1.0).abs() < 0.03 && (found.sd / 20.0 - 1.0).abs() < 0.1);
            let some: Vec<Option<f64>> = drawn.iter().copied().map(Some).collect();
            let r = autocorrelation(&some, 1).r[1];
            assert!((r - neighbours).abs() < 0.05, "{r}");
            if neighbours < 0.6 {
                let h = estimate(Method::LocalWhittle, &drawn).unwrap().h;
                assert!((h - 0.75).abs() < 0.06, "{h}");
            }
        }
    }
}

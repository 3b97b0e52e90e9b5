//! What was requested of a source beside what it sent: the rate, and each random variable with its distribution.

use std::borrow::Cow;

use trunkline_units::Span;

use super::{Schedule, Source};
use crate::{GoodnessOfFit, Law, Rounding, Sample, Variable};

/// The requested distribution of a variable compared with the sent values.
#[derive(Clone, Debug)]
pub struct LawFit {
    /// The variable: `gap`, `size`, `count`, `response`, or a parameter of an application model.
    pub name: &'static str,
    /// The requested distribution as text: `exponential(1 ms)`.
    pub law: String,
    /// Unit of the means and of the curve: `us`, `bytes`, `bps`, `messages`, `count`, `number`, or `ratio` (actual gap over
    /// requested gap).
    pub unit: &'static str,
    /// Mean of the distribution; `None` if it is infinite.
    pub requested_mean: Option<f64>,
    /// Mean of the sent values; 0 if there are none.
    pub sent_mean: f64,
    /// Distance, p-value and curve.
    pub goodness_of_fit: GoodnessOfFit,
}

impl Source {
    /// Returns the requested rate of message bytes in bits per second; `None` at full speed, or if a mean is infinite.
    pub fn offered_bps(&self) -> Option<f64> {
        match &self.schedule {
            Schedule::Unpaced => None,
            Schedule::Application(driver) => driver.offered_bps(),
            Schedule::Replay { recording, scale, .. } => {
                let seconds = recording.duration().as_s() / scale;
                (seconds > 0.0).then(|| recording.total() as f64 * 8.0 / seconds)
            }
            Schedule::Periods { period, .. } => {
                Some(self.sizes.law.mean()? * self.counts.law.mean()? * 8.0 / period.law.mean()?)
            }
            Schedule::Stairs { rates_bps, hold } => {
                let total = self.end.since(self.start);
                let bits: f64 = rates_bps
                    .iter()
                    .enumerate()
                    .map(|(i, rate)| rate * (*hold).min(total - *hold * i as u64).as_s())
                    .sum();
                Some(bits / total.as_s())
            }
        }
    }

    /// Returns (sent − due) / due of the bytes of an application model, where due is what the model drew for the sending time. Its
    /// mean rate is no measure of a sender: sessions begin with none under way, and heavy tails vary for hours. `None` for other
    /// patterns, and for models whose traffic depends on responses.
    pub fn due_error(&self) -> Option<f64> {
        let Schedule::Application(driver) = &self.schedule else { return None };
        driver.offered_bps()?;
        let due = self.bytes + self.bytes_skipped;
        (due > 0).then(|| self.bytes as f64 / due as f64 - 1.0)
    }

    /// Compares the sent values of each variable with its distribution: gaps first, then all other random variables.
    pub fn fits(&self) -> Vec<LawFit> {
        let mut all = Vec::new();
        let seconds = |s: f64| Span::from_seconds(s).to_string();
        let gaps = self.all_gaps();
        match &self.schedule {
            Schedule::Periods { period, .. } => {
                let mut fit = LawFit::new("gap", "us", &period.law, &gaps, Rounding::None, seconds);
                fit.scale(1e6);
                all.push(fit);
            }
            Schedule::Stairs { .. } | Schedule::Replay { .. } => {
                let law = Law::new(Variable::Constant(1.0), 0.0).expect("a constant is a law");
                all.push(LawFit::new("gap", "ratio", &law, &gaps, Rounding::None, |x| x.to_string()));
            }
            Schedule::Unpaced => {}
            Schedule::Application(driver) => return driver.fits(),
        }
        let variables = [
            ("size", "bytes", Some(&self.sizes)),
            ("count", "messages", Some(&self.counts)),
            ("response", "bytes", self.responses.as_ref()),
        ];
        for (name, unit, generator) in variables {
            if let Some(g) = generator.filter(|g| !g.law.is_constant()) {
                all.push(LawFit::new(name, unit, &g.law, &g.sample, Rounding::Integer, |x| x.to_string()));
            }
        }
        all
    }

    /// Returns all gaps, including [`Source::regular_gaps`].
    fn all_gaps(&self) -> Cow<'_, Sample> {
        let Some((period, _)) = self.regular.filter(|_| self.regular_gaps > 0) else {
            return Cow::Borrowed(&self.gaps);
        };
        let mut gaps = self.gaps.clone();
        gaps.push_repeated(period.as_s(), self.regular_gaps);
        Cow::Owned(gaps)
    }
}

impl LawFit {
    pub(crate) fn new(
        name: &'static str,
        unit: &'static str,
        law: &Law,
        sample: &Sample,
        rounding: Rounding,
        format: impl Fn(f64) -> String,
    ) -> LawFit {
        LawFit {
            name,
            law: law.variable().describe(format),
            unit,
            requested_mean: law.mean(),
            sent_mean: sample.mean().unwrap_or(0.0),
            goodness_of_fit: sample.goodness_of_fit(law, rounding),
        }
    }

    /// Changes the unit of all values.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.requested_mean = self.requested_mean.map(|m| m * factor);
        self.sent_mean *= factor;
        self.goodness_of_fit.curve.iter_mut().for_each(|point| point.0 *= factor);
    }
}

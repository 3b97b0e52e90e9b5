//! Profiles: models fitted to a series, from which new series are drawn as sources for experiments.
//!
//! | module | contents |
//! | --- | --- |
//! | [`on_off`] | an on–off source with the durations of both states |
//! | [`sessions`] | independent sessions: a Poisson number without memory, or M/G/∞ |
//! | [`compare`](mod@compare) | which model resembles a series most |
//! | [`tes`] | transform–expand–sample: the values of the series and its short memory |
//!
//! A draw depends only on the profile and the random stream, and is equal on every machine.

pub mod compare;
pub mod on_off;
pub mod sessions;
pub mod tes;

use serde::Serialize;
use trunkline_units::{Span, Stream};

use crate::analysis::{distribution, quantile};
use crate::autocorrelation::autocorrelation;
use crate::hurst::{HurstError, Method, estimate};
use crate::noise::{self, Noise};
use crate::series::Series;
use crate::{Pattern, Variable};

pub use on_off::OnOff;
pub use sessions::{MgInf, Poisson};
pub use tes::Tes;

/// Maximum number of values that a profile stores; of a longer series, values evenly spaced in rank.
const MAX_VALUES: usize = 65_536;

/// Minimum length of a series.
pub const SHORTEST: usize = 16;

/// Maximum number of intervals of a draw.
pub const LONGEST: usize = noise::LONGEST;

/// The kind of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The values of the series with equal probability, without memory.
    Empirical,
    /// An on–off source.
    OnOff,
    /// Fractional Gaussian noise: mean, variance and Hurst exponent.
    Fgn,
    /// Transform–expand–sample: the values and their short memory.
    Tes,
    /// A Poisson number of equal amounts: mean and variance, without memory.
    Poisson,
    /// Sessions of M/G/∞ with Pareto durations: mean, variance, Hurst exponent and the autocorrelation of neighbours.
    MgInf,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] =
        [Kind::Empirical, Kind::OnOff, Kind::Fgn, Kind::Tes, Kind::Poisson, Kind::MgInf];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Empirical => "empirical",
            Kind::OnOff => "on-off",
            Kind::Fgn => "fgn",
            Kind::Tes => "tes",
            Kind::Poisson => "poisson",
            Kind::MgInf => "mginf",
        }
    }
}

/// A model fitted to a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Profile {
    /// As [`Kind::Empirical`].
    Empirical(Empirical),
    /// As [`Kind::OnOff`].
    OnOff(OnOff),
    /// As [`Kind::Fgn`].
    Fgn(Fgn),
    /// As [`Kind::Tes`].
    Tes(Tes),
    /// As [`Kind::Poisson`].
    Poisson(Poisson),
    /// As [`Kind::MgInf`].
    MgInf(MgInf),
}

/// The values of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Empirical {
    /// Ascending; at most 65,536.
    #[serde(skip)]
    values: Vec<f64>,
    /// Their mean.
    pub mean: f64,
}

/// Fractional Gaussian noise about a mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fgn {
    /// Amount an interval.
    pub mean: f64,
    /// Its standard deviation.
    pub sd: f64,
    /// Local Whittle estimate, limited to 0.01 and 0.99.
    pub hurst: f64,
    /// Share of the values below 0: they are raised to 0, which raises the mean.
    pub below_zero: f64,
}

/// Why a series has no profile of a kind, or why a draw is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Fewer intervals than [`SHORTEST`] without a gap.
    #[error("a profile needs {SHORTEST} intervals in a row, not {0}")]
    Short(usize),
    /// An amount below 0.
    #[error("an amount is below 0, which no source can send")]
    Negative,
    /// All values are equal.
    #[error("a constant series has no profile")]
    Still,
    /// The Hurst exponent.
    #[error(transparent)]
    Hurst(#[from] HurstError),
    /// A draw of no interval, or of more than [`LONGEST`].
    #[error("a draw has 1 to {LONGEST} intervals, not {0}")]
    Length(usize),
}

impl Profile {
    /// Fits a model to a series: its distribution to all known values, its memory to the longest sequence without a gap.
    ///
    /// # Errors
    /// Returns [`ProfileError`] if the series has no profile of this kind.
    pub fn fit(kind: Kind, series: &Series) -> Result<Profile, ProfileError> {
        let (_, stretch) = series.stretch();
        if stretch.len() < SHORTEST {
            return Err(ProfileError::Short(stretch.len()));
        }
        if series.known().any(|v| v < 0.0) {
            return Err(ProfileError::Negative);
        }
        let all = distribution(series.known()).ok_or(ProfileError::Short(0))?;
        if all.min == all.max {
            return Err(ProfileError::Still);
        }
        Ok(match kind {
            Kind::Empirical => {
                let values = sorted_values(series);
                Profile::Empirical(Empirical { mean: all.mean, values })
            }
            Kind::OnOff => Profile::OnOff(OnOff::fit(series).ok_or(ProfileError::Still)?),
            Kind::Fgn => {
                let hurst = estimate(Method::LocalWhittle, &stretch)?.h.clamp(0.01, 0.99);
                let (mean, sd) = (all.mean, all.sd);
                let below_zero = 0.5 * libm::erfc(mean / sd / std::f64::consts::SQRT_2);
                Profile::Fgn(Fgn { mean, sd, hurst, below_zero })
            }
            Kind::Tes => Profile::Tes(Tes::fit(&stretch, sorted_values(series)).ok_or(ProfileError::Still)?),
            Kind::Poisson => Profile::Poisson(Poisson::fit(all.mean, all.sd)),
            Kind::MgInf => {
                let hurst = estimate(Method::LocalWhittle, &stretch)?.h;
                let neighbours = autocorrelation(series.values(), 1).r.get(1).copied().unwrap_or(0.0);
                Profile::MgInf(MgInf::fit(all.mean, all.sd, hurst, neighbours))
            }
        })
    }

    /// Draws the amounts of `intervals` consecutive intervals.
    ///
    /// # Errors
    /// [`ProfileError::Length`].
    pub fn draw(&self, intervals: usize, stream: &mut Stream) -> Result<Vec<f64>, ProfileError> {
        if !(1..=LONGEST).contains(&intervals) {
            return Err(ProfileError::Length(intervals));
        }
        Ok(match self {
            Profile::Empirical(e) => (0..intervals).map(|_| quantile(&e.values, stream.unit())).collect(),
            Profile::OnOff(p) => p.draw(intervals, stream),
            Profile::Fgn(p) => {
                let noise = Noise::new(p.hurst, intervals).map_err(|_| ProfileError::Length(intervals))?;
                let mut path = noise.path(stream);
                path.iter_mut().for_each(|z| *z = (p.mean + p.sd * *z).max(0.0));
                path
            }
            Profile::Tes(p) => p.draw(intervals, stream),
            Profile::Poisson(p) => p.draw(intervals, stream),
            Profile::MgInf(p) => p.draw(intervals, stream),
        })
    }
}

/// Returns the known values in ascending order, thinned to at most [`MAX_VALUES`].
fn sorted_values(series: &Series) -> Vec<f64> {
    let mut all: Vec<f64> = series.known().collect();
    all.sort_unstable_by(f64::total_cmp);
    if all.len() > MAX_VALUES {
        let last = all.len() - 1;
        all = (0..MAX_VALUES).map(|i| all[i * last / (MAX_VALUES - 1)]).collect();
    }
    all
}

/// Returns a pattern that sends these amounts: `stairs` with a step for each interval, in messages of one size.
///
/// A step has as many messages as fit into the amount, evenly spaced; the rest is carried to the next step, so the sum is
/// exact to within a message. The rate of a step cannot be 0: consecutive intervals without a message become steps of a low
/// rate, with one message at the beginning, which is subtracted from the next steps.
pub fn stairs(amounts_bytes: &[f64], grain: Span, message_bytes: u32) -> Pattern {
    let size = f64::from(message_bytes.max(1));
    let hold_s = grain.as_s();
    let rate = |messages: f64, steps: usize| messages * size * 8.0 / (steps as f64 * hold_s);
    let mut rates = Vec::with_capacity(amounts_bytes.len());
    // Messages that are due and not sent yet.
    let (mut credit, mut i) = (0.0, 0);
    while i < amounts_bytes.len() {
        credit += amounts_bytes[i] / size;
        i += 1;
        if credit >= 1.0 {
            let messages = libm::floor(credit);
            credit -= messages;
            rates.push(rate(messages, 1));
            continue;
        }
        credit -= 1.0;
        let mut steps = 1;
        while let Some(next) = amounts_bytes.get(i).map(|a| credit + a / size).filter(|c| *c < 1.0) {
            credit = next;
            steps += 1;
            i += 1;
        }
        rates.extend((0..steps).map(|_| rate(1.0, steps)));
    }
    Pattern::Stairs {
        size_bytes: Variable::Constant(size),
        rates_bps: rates.into_iter().map(Variable::Constant).collect(),
        hold_s: Variable::Constant(hold_s),
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Instant, Seed};

    use super::*;
    use crate::source::{Bounds, Limit, Source, Step};

    fn series(values: &[f64]) -> Series {
        Series::new(0, Span::from_s(1), values.iter().copied().map(Some).collect()).unwrap()
    }

    fn mean_and_sd(values: &[f64]) -> (f64, f64) {
        let d = distribution(values.iter().copied()).unwrap();
        (d.mean, d.sd)
    }

    /// Returns noise of H = 0.8 about 1000, with a skewed distribution.
    fn measured() -> Vec<f64> {
        let noise = Noise::new(0.8, 1 << 14).unwrap();
        noise.path(&mut Seed(1).stream("measured")).into_iter().map(|z| 800.0 * libm::exp(0.3 * z)).collect()
    }

    #[test]
    fn draws_resemble_the_fitted_series() {
        let measured = measured();
        let (mean, sd) = mean_and_sd(&measured);
        for kind in [Kind::Empirical, Kind::Fgn, Kind::Tes] {
            let profile = Profile::fit(kind, &series(&measured)).unwrap();
            let drawn = profile.draw(1 << 15, &mut Seed(2).stream("drawn")).unwrap();
            let (m, s) = mean_and_sd(&drawn);
            assert!((m / mean - 1.0).abs() < 0.06 && (s / sd - 1.0).abs() < 0.1, "{kind:?}: {m} {s}");
            assert!(drawn.iter().all(|v| *v >= 0.0));
            let h = estimate(Method::LocalWhittle, &drawn).unwrap().h;
            match kind {
                Kind::Fgn => assert!((h - 0.8).abs() < 0.05, "{h}"),
                Kind::Empirical => assert!((h - 0.5).abs() < 0.05, "{h}"),
                _ => {}
            }
            // A draw can be repeated.
            assert_eq!(profile.draw(1 << 15, &mut Seed(2).stream("drawn")).unwrap(), drawn);
        }
    }

    #[test]
    fn tes_reproduces_values_and_short_memory() {
        let measured = measured();
        let Profile::Tes(profile) = Profile::fit(Kind::Tes, &series(&measured)).unwrap() else { panic!() };
        let drawn = profile.draw(1 << 16, &mut Seed(3).stream("drawn"));
        let memory = |v: &[f64]| autocorrelation(&v.iter().copied().map(Some).collect::<Vec<_>>(), 5).r;
        for (lag, (a, b)) in memory(&measured).iter().zip(memory(&drawn)).enumerate() {
            assert!((a - b).abs() < 0.15, "lag {lag}: {a} measured, {b} drawn");
        }
    }

    #[test]
    fn unsuitable_series_are_refused() {
        let fit = |values: &[f64]| Profile::fit(Kind::Tes, &series(values)).unwrap_err();
        assert_eq!(fit(&[1.0; 15]), ProfileError::Short(15));
        assert_eq!(fit(&[1.0; 100]), ProfileError::Still);
        let mut values = measured();
        assert_eq!(Profile::fit(Kind::Fgn, &series(&values[..20])), Err(HurstError::Short(20).into()));
        values[5] = -1.0;
        assert_eq!(fit(&values), ProfileError::Negative);
        let profile = Profile::fit(Kind::Empirical, &series(&measured())).unwrap();
        assert_eq!(profile.draw(0, &mut Seed(1).stream("x")), Err(ProfileError::Length(0)));
        assert_eq!(
            profile.draw(LONGEST + 1, &mut Seed(1).stream("x")),
            Err(ProfileError::Length(LONGEST + 1))
        );
    }

    /// Returns the bytes that a source of this pattern sends in each second.
    fn sent(pattern: &Pattern, seconds: usize) -> Vec<f64> {
        let bounds = Bounds::new(1, 65_507);
        let mut source =
            Source::new(pattern, Limit::default(), bounds, Instant::ZERO, Seed(1), "stairs").unwrap();
        let (mut now, mut bytes) = (Instant::ZERO, vec![0.0; seconds]);
        loop {
            match source.next(now) {
                Step::Send(m) => bytes[(m.due.as_s() + 1e-6) as usize] += f64::from(m.size),
                Step::Wait(until) => now = until,
                Step::Done => return bytes,
            }
        }
    }

    #[test]
    fn stairs_send_the_drawn_amounts() {
        let mut stream = Seed(4).stream("stairs");
        let amounts: Vec<f64> =
            (0..200).map(|i| if i % 50 < 20 { 0.0 } else { (stream.unit() * 100_000.0).round() }).collect();
        let sent = sent(&stairs(&amounts, Span::from_s(1), 1000), amounts.len());
        let (mut requested_sum, mut sent_sum) = (0.0, 0.0);
        for (i, (requested, sent)) in amounts.iter().zip(&sent).enumerate() {
            requested_sum += requested;
            sent_sum += sent;
            // The sums differ by at most two messages: one that is carried over, and one that was sent early.
            assert!(
                (requested_sum - sent_sum).abs() <= 2_000.0,
                "after {i} s: {requested_sum} requested, {sent_sum} sent"
            );
        }
        assert_eq!(sent[30..48].iter().filter(|b| **b == 0.0).count(), 0);
        assert_eq!(sent[1..20].iter().sum::<f64>(), 0.0);
        // Without any amount: one message at the beginning.
        let sent = self::sent(&stairs(&[0.0; 10], Span::from_s(1), 1000), 10);
        assert_eq!((sent[0], sent.iter().sum::<f64>()), (1000.0, 1000.0));
    }
}

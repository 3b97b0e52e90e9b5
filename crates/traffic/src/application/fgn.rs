//! Fractional Gaussian noise: normal amounts in equal intervals, with long memory.

use trunkline_units::{Instant, Span};

use super::definition::values::constant;
use super::{Application, Definition, Draws, Item, Model, Next, Parameter, QuantityId, Unit};
use crate::Variable;
use crate::law::normal_cdf;
use crate::noise::Noise;

pub(super) static FGN: Definition = Definition {
    name: "fgn",
    summary: "A self-similar aggregate: the amounts of equal intervals are fractional Gaussian noise, exactly. An amount below 0 \
              sends nothing, which raises the mean: `offered_bps` includes it.",
    choice: None,
    parameters: &[
        Parameter::new("hurst", "Hurst exponent", Unit::Number, || constant(0.8), "Leland, Taqqu, Willinger and Wilson 1994, \
              IEEE/ACM Trans. Netw. 2(1), section IV: 0.8 to 0.9")
            .constant_within(0.01, 0.99),
        Parameter::new("interval", "an interval", Unit::Seconds, || constant(0.1), "a choice").constant_within(1e-6, 1e6),
        Parameter::new("mean", "mean amount of an interval, before amounts below 0 are raised", Unit::Amount, || {
            constant(50_000.0)
        }, "a choice")
        .constant_within(1.0, 1e12),
        Parameter::new("sd", "standard deviation of the amount", Unit::Amount, || constant(15_000.0), "a choice")
            .constant_within(1.0, 1e12),
        Parameter::new("message", "a message", Unit::Bytes, || constant(1_000.0), "a choice").constant_within(1.0, 1e9),
        Parameter::new(
            "jitter",
            "random part of the place of a message in its share of the interval: 0 is evenly spaced, 1 at random",
            Unit::Number,
            || constant(0.0),
            "a choice",
        )
        .constant_within(0.0, 1.0),
        Parameter::new(
            "intervals",
            "intervals of one path; after them an independent path begins",
            Unit::Count,
            || constant(65_536.0),
            "a choice",
        )
        .constant_within(1.0, 4_194_304.0)
        .with_memory(160),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Fgn::new(start, draws)),
};

#[derive(Debug)]
struct Fgn {
    hurst: QuantityId,
    message: QuantityId,
    jitter: f64,
    interval: Span,
    mean: f64,
    sd: f64,
    intervals: usize,
    noise: Option<Noise>,
    /// The rest of the path, in reverse.
    path: Vec<f64>,
    /// Bytes that are due and have not been sent.
    credit: f64,
    /// When the current interval begins, its number of messages, and how many of these were returned.
    begin: Instant,
    count: u64,
    sent: u64,
}

/// Intervals in a row that may send nothing before the model ends: more would need a mean far below a message.
const MOST_EMPTY: u32 = 1 << 22;

impl Fgn {
    fn new(start: Instant, draws: &Draws) -> Fgn {
        let constant = |name: &str| draws.mean(draws.id(name)).unwrap_or(1.0);
        Fgn {
            hurst: draws.id("hurst"),
            message: draws.id("message"),
            jitter: constant("jitter"),
            interval: Span::from_seconds(constant("interval")),
            mean: constant("mean"),
            sd: constant("sd"),
            intervals: constant("intervals") as usize,
            noise: Noise::new(constant("hurst"), constant("intervals") as usize).ok(),
            path: Vec::new(),
            credit: 0.0,
            begin: start,
            count: 0,
            sent: 0,
        }
    }

    /// Draws the amount of the next interval, in standard deviations.
    fn amount(&mut self, draws: &mut Draws) -> f64 {
        if self.path.is_empty() {
            let stream = draws.stream(self.hurst);
            self.path =
                self.noise.as_ref().map_or_else(|| vec![0.0; self.intervals], |noise| noise.path(stream));
            self.path.reverse();
        }
        self.path.pop().unwrap_or(0.0)
    }
}

impl Model for Fgn {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let size = draws.size(self.message);
        let bytes = f64::from(size.bytes());
        let mut is_first = self.count == 0;
        let mut empty = 0;
        while self.sent == self.count {
            if !std::mem::take(&mut is_first) {
                self.begin += self.interval;
            }
            let amount = (self.mean + self.sd * self.amount(draws)).max(0.0);
            self.credit += amount;
            self.count = libm::floor(self.credit / bytes) as u64;
            self.credit -= self.count as f64 * bytes;
            self.sent = 0;
            empty += 1;
            if empty > MOST_EMPTY {
                return Next::End;
            }
        }
        let position = 0.5
            + if self.jitter > 0.0 { self.jitter * (draws.stream(self.message).unit() - 0.5) } else { 0.0 };
        let share = (self.sent as f64 + position) / self.count as f64;
        self.sent += 1;
        Next::Item(Item::new(self.begin + Span::from_seconds(self.interval.as_s() * share), size))
    }

    fn offered_bps(&self, _: &Draws) -> Option<f64> {
        Some(raised_mean(self.mean, self.sd) * 8.0 / self.interval.as_s())
    }
}

/// Returns the share of the amounts of `fgn` that are below 0, which send nothing; `None` for other models.
pub fn share_below_zero(model: Application, parameters: &[(String, Variable)]) -> Option<f64> {
    let value = |name: &str| match parameters.iter().find(|(other, _)| other == name) {
        Some((_, Variable::Constant(value))) => Some(*value),
        _ => None,
    };
    (model.name() == FGN.name).then_some(())?;
    Some(normal_cdf(-value("mean")? / value("sd")?))
}

/// Returns the mean of a normal variable whose values below 0 are raised to 0.
fn raised_mean(mean: f64, sd: f64) -> f64 {
    let z = mean / sd;
    let density = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
    mean * normal_cdf(z) + sd * density
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_below_zero_is_that_of_a_normal_variable() {
        let share = |model: &str, mean, sd| {
            let parameters =
                [("mean", mean), ("sd", sd)].map(|(n, v): (&str, f64)| (n.to_owned(), Variable::Constant(v)));
            share_below_zero(Application::named(model).unwrap(), &parameters)
        };
        assert!((share("fgn", 1e4, 1e4).unwrap() - 0.158_655).abs() < 1e-6);
        assert!(share("fgn", 1e4, 1e6).unwrap() > 0.49 && share("fgn", 1e5, 1e4).unwrap() < 1e-20);
        assert_eq!(share("onoff", 1.0, 1.0), None);
    }
}

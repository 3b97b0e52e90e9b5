//! `--vary KEY=FROM..TO` and `--vary KEY=A,B,C`: the values that an option takes in turn.

use crate::overrides::{OverrideError, apply_override};
use crate::parse::shorten;
use crate::plan::Plan;
use crate::resolve::quantity::base_number;
use crate::resolve::write;

/// Of one option no more values than this are tried.
pub const MOST_VALUES: usize = 10_000;

/// An option and the values it takes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    /// What [`apply_override`] sets: `OPTION` or `NAME.OPTION`.
    pub key: String,
    /// What `number` of its values counts: `bytes`, `s`, `bps`, `per_s`, `cells`, `packets`; empty where it is a plain
    /// number, or where some value is none.
    pub unit: &'static str,
    /// At least one, no two the same.
    pub values: Vec<Step>,
}

/// One value of a variation.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// As the language writes it.
    pub text: String,
    /// The number in the unit of its variation; none where the values are no numbers of one kind.
    pub number: Option<f64>,
}

/// How values lie between two ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Spacing {
    /// So many, at least 2, each as far from the last.
    Linear(usize),
    /// So many, at least 2, each the same multiple of the last; rounded to four digits.
    Log(usize),
    /// Each so much above the last, from the first on; written as a value of the language.
    Step(String),
}

/// Why there is no variation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaryError {
    /// What is wrong with it as written.
    #[error("{0}")]
    Written(String),
    /// The option or one of its values does not fit the plan.
    #[error(transparent)]
    Override(#[from] OverrideError),
}

impl Variation {
    /// Reads the right side of `KEY=FROM..TO` or `KEY=A,B,C`; `spacing` is of the former. Each value is tried on the
    /// plan by itself: a number between two ends that must be whole is rounded, other values must fit.
    ///
    /// # Errors
    /// [`VaryError`]. Values that only do not fit together with the rest of the plan are no errors here.
    pub fn read(plan: &Plan, key: &str, written: &str, spacing: &Spacing) -> Result<Variation, VaryError> {
        let list = split(written);
        match (&list[..], range(written)) {
            ([_], Some((from, to))) => {
                let range = Range::read(from, to)?;
                let values = range.values(spacing)?.into_iter().map(|n| range.fitting(plan, key, n));
                let mut values = values.collect::<Result<Vec<Step>, _>>()?;
                // What had to be rounded may have met its neighbour.
                values.dedup();
                Ok(Variation { key: key.to_owned(), unit: name(range.base), values })
            }
            _ => Variation::listed(plan, key, &list),
        }
    }

    /// Whether it lists words or numbers of several kinds.
    pub fn is_words(&self) -> bool {
        self.values.iter().any(|step| step.number.is_none())
    }

    fn listed(plan: &Plan, key: &str, list: &[&str]) -> Result<Variation, VaryError> {
        at_most(list.len())?;
        for (at, value) in list.iter().enumerate() {
            if list[..at].contains(value) {
                return Err(VaryError::Written(format!("`{}` is listed twice", shorten(value))));
            }
            tried(plan, key, value)?;
        }
        let numbers: Option<Vec<(f64, &str)>> = list.iter().map(|value| base_number(value)).collect();
        let numbers = numbers.filter(|all| all.iter().all(|(_, base)| *base == all[0].1));
        let number = |at: usize| numbers.as_ref().map(|all| all[at].0);
        let step = |(at, text): (usize, &&str)| Step { text: (*text).to_owned(), number: number(at) };
        Ok(Variation {
            key: key.to_owned(),
            unit: numbers.as_ref().map_or("", |all| name(all[0].1)),
            values: list.iter().enumerate().map(step).collect(),
        })
    }
}

/// Values between commas that stand outside parentheses and quotes, without the blanks around them.
fn split(written: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut from) = (0_usize, false, 0);
    let mut values = Vec::new();
    for (at, c) in written.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                values.push(written[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    values.push(written[from..].trim());
    values
}

/// The two ends of `FROM..TO`.
fn range(written: &str) -> Option<(&str, &str)> {
    written.split_once("..").filter(|_| !written.contains('"'))
}

/// Two numbers of one unit, the first below the second.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: f64,
    to: f64,
    base: &'static str,
}

impl Range {
    fn read(from: &str, to: &str) -> Result<Range, VaryError> {
        let wrong = |message: String| Err(VaryError::Written(message));
        let ends = [from, to].map(|end| base_number(end).ok_or(end.trim()));
        let ((from, first), (to, second)) = match ends {
            [Ok(from), Ok(to)] => (from, to),
            [Err(end), _] | [_, Err(end)] => {
                return wrong(format!(
                    "`{}` is no number; expected `FROM..TO`, such as `16kB..256kB`",
                    shorten(end)
                ));
            }
        };
        let base = match (first, second) {
            _ if first == second => first,
            ("", base) if from == 0.0 => base,
            _ => return wrong("the two ends need the same kind of unit, such as `16kB..256kB`".into()),
        };
        if from >= to {
            return wrong("the first end must be below the second".into());
        }
        Ok(Range { from, to, base })
    }

    fn values(&self, spacing: &Spacing) -> Result<Vec<f64>, VaryError> {
        let Range { from, to, base } = *self;
        let wrong = |message: &str| Err(VaryError::Written(message.to_owned()));
        let inner = |n: usize, at: &dyn Fn(usize) -> f64| {
            at_most(n)?;
            let last = n - 1;
            let value = |i| match i {
                0 => from,
                _ if i == last => to,
                _ => at(i),
            };
            Ok((0..n).map(value).collect())
        };
        match spacing {
            Spacing::Linear(0 | 1) | Spacing::Log(0 | 1) => {
                wrong("from one end to another are at least 2 points")
            }
            Spacing::Linear(n) => inner(*n, &|i| digits(from + (to - from) * i as f64 / (n - 1) as f64, 12)),
            Spacing::Log(_) if from <= 0.0 => wrong("logarithmic steps cannot begin at 0 or below"),
            Spacing::Log(n) => {
                at_most(*n)?;
                let ratio = root(to / from, n - 1);
                inner(*n, &|i| digits(from * power(ratio, i), 4))
            }
            Spacing::Step(step) => match base_number(step) {
                Some((step, unit)) if unit == base && step > 0.0 => {
                    let n = ((to - from) / step * (1.0 + 1e-12)).floor() + 1.0;
                    at_most(n as usize)?;
                    Ok((0..n as usize).map(|i| digits(from + step * i as f64, 12)).collect())
                }
                _ => Err(VaryError::Written(format!(
                    "`{}` is no step; expected a number above 0 in the unit of the ends",
                    shorten(step)
                ))),
            },
        }
    }

    /// The number, or where the option only takes whole ones, the nearest of these.
    fn fitting(&self, plan: &Plan, key: &str, number: f64) -> Result<Step, VaryError> {
        let step = |number: f64| Step { text: write::number(number, self.base), number: Some(number) };
        let exact = step(number);
        match tried(plan, key, &exact.text) {
            Ok(()) => Ok(exact),
            Err(error) => {
                let whole = step(number.round());
                if whole == exact || tried(plan, key, &whole.text).is_err() { Err(error) } else { Ok(whole) }
            }
        }
    }
}

fn at_most(values: usize) -> Result<(), VaryError> {
    if values <= MOST_VALUES {
        return Ok(());
    }
    Err(VaryError::Written(format!("{values} values are too many; expected at most {MOST_VALUES}")))
}

/// Whether the option takes this value. What else would have to change with it is not asked here.
fn tried(plan: &Plan, key: &str, value: &str) -> Result<(), VaryError> {
    match apply_override(&mut plan.clone(), key, value) {
        Ok(()) | Err(OverrideError::Together(_)) => Ok(()),
        Err(error) => Err(VaryError::Override(error)),
    }
}

/// A base unit as the last word of a name.
fn name(base: &str) -> &'static str {
    match base {
        "B" => "bytes",
        "s" => "s",
        "b/s" => "bps",
        "/s" => "per_s",
        "cells" => "cells",
        "packets" => "packets",
        _ => "",
    }
}

/// The nearest number of so many significant digits.
fn digits(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// Multiplications only, which every machine rounds alike.
fn power(x: f64, n: usize) -> f64 {
    (0..n).fold(1.0, |product, _| product * x)
}

/// The `n`th root of `x` ≥ 1, by halving: as close as doubles go.
fn root(x: f64, n: usize) -> f64 {
    let (mut low, mut high) = (1.0, x);
    for _ in 0..100 {
        let middle = low + (high - low) / 2.0;
        if power(middle, n) < x { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse};

    const TEXT: &str = "experiment {
        network { host a, b (cpus = 2); switch s; link a - s (rate = 10 Mb/s); link s - b (rate = 1 Gb/s); }
        connection A { xmt = a; rcv = b; protocol = tcp; test = full; }
    }";

    fn vary(written: &str, spacing: Spacing) -> Result<Variation, String> {
        let plan = parse(&Source { name: "t.ns", text: TEXT, folder: None }).plan.expect("a plan");
        let (key, values) = written.split_once('=').expect("KEY=VALUES");
        Variation::read(&plan, key, values, &spacing).map_err(|error| error.to_string())
    }

    fn texts(written: &str, spacing: Spacing) -> String {
        let found = vary(written, spacing).unwrap_or_else(|error| panic!("{written}: {error}"));
        found.values.into_iter().map(|step| step.text).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn values_are_spaced_as_requested() {
        use Spacing::*;
        for (written, spacing, want) in [
            ("window=16kB..256kB", Linear(5), "16 kB, 76 kB, 136 kB, 196 kB, 256 kB"),
            ("window=16kB..256kB", Log(5), "16 kB, 32 kB, 64 kB, 128 kB, 256 kB"),
            ("window=16384..64KiB", Log(3), ""),
            ("a-s.loss=1e-4..1e-2", Log(5), "0.0001, 0.0003162, 0.001, 0.003162, 0.01"),
            ("a-s.delay=0..10ms", Linear(3), "0 s, 5 ms, 10 ms"),
            ("a-s.delay=1us..1s", Log(3), "1 us, 1 ms, 1 s"),
            ("a-s.delay=1ms..10ms", Step("4 ms".into()), "1 ms, 5 ms, 9 ms"),
            ("a-s.rate=1Mb/s..10Mb/s", Linear(2), "1 Mb/s, 10 Mb/s"),
            ("s.buffer=10cells..30 cells", Step("10 cells".into()), "10 cells, 20 cells, 30 cells"),
            ("b.cpus=1..4", Linear(10), "1, 2, 3, 4"),
            ("messages=10..1000", Log(4), "10, 46, 215, 1000"),
            ("a-s.loss=0..1", Linear(5), "0, 0.25, 0.5, 0.75, 1"),
            ("congestion=reno,cubic", Linear(10), "reno, cubic"),
            ("messagesize=uniform(1, 2), 300", Linear(10), "uniform(1, 2), 300"),
        ] {
            if want.is_empty() {
                assert!(vary(written, spacing).unwrap_err().contains("same kind of unit"), "{written}");
            } else {
                assert_eq!(texts(written, spacing), want, "{written}");
            }
        }
    }

    #[test]
    fn numbers_have_their_unit() {
        let window = vary("window=1 MB,64 kB", Spacing::Linear(2)).expect("a variation");
        assert_eq!((window.unit, window.values[1].number), ("bytes", Some(64e3)));
        assert!(!window.is_words());
        let delay = vary("a-s.delay=1ms..1s", Spacing::Linear(2)).expect("a variation");
        assert_eq!((delay.unit, delay.values[0].number), ("s", Some(1e-3)));
        for words in ["congestion=reno,cubic", "window=auto,64kB", "s.buffer=64cells,10packets"] {
            let found = vary(words, Spacing::Linear(2)).expect("a variation");
            assert!(found.is_words() && found.unit.is_empty(), "{words}");
        }
    }

    #[test]
    fn the_ends_are_met_exactly_and_the_rest_rises() {
        for n in [2, 3, 7, 50, 999] {
            for spacing in [Spacing::Linear(n), Spacing::Log(n)] {
                let found = vary("a-s.delay=137ns..61s", spacing.clone()).expect("a variation").values;
                let numbers: Vec<f64> = found.iter().filter_map(|step| step.number).collect();
                assert_eq!((numbers[0], numbers[n - 1], numbers.len()), (137e-9, 61.0, n), "{spacing:?}");
                assert!(numbers.windows(2).all(|w| w[0] < w[1]), "{spacing:?}: {numbers:?}");
            }
        }
    }

    #[test]
    fn options_that_cannot_vary_are_errors() {
        let linear = || Spacing::Linear(5);
        for (written, spacing, words) in [
            ("window=256kB..16kB", linear(), "the first end must be below"),
            ("window=16kB..1s", linear(), "same kind of unit"),
            ("window=16..256kB", linear(), "same kind of unit"),
            ("window=small..large", linear(), "`small` is no number"),
            ("window=16kB..", linear(), "`` is no number"),
            ("window=1kB..2kB", Spacing::Linear(1), "at least 2"),
            ("window=1kB..2kB", Spacing::Log(20_000), "too many"),
            ("window=1kB..2GB", Spacing::Step("1 B".into()), "too many"),
            ("window=1kB..2kB", Spacing::Step("1 s".into()), "`1 s` is no step"),
            ("window=1kB..2kB", Spacing::Step("0".into()), "`0` is no step"),
            ("a-s.delay=0..1s", Spacing::Log(5), "cannot begin at 0"),
            ("window=1kB,2kB,1kB", linear(), "`1kB` is listed twice"),
            ("window=1kB,", linear(), "expected a value"),
            ("windov=1kB,2kB", linear(), "did you mean `window`?"),
            ("a-x.delay=1ms..2ms", linear(), "did you mean `a-s`?"),
            ("a-s.delay=1kB..2kB", linear(), "the unit of a size"),
            ("a-s.loss=0..2", linear(), "1.5 is no share"),
        ] {
            let error = vary(written, spacing).expect_err(written);
            assert!(error.contains(words) && !error.contains('\n'), "{written}: {error}");
        }
    }
}

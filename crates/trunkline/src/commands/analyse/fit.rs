//! Which laws and models fit best, with the evidence.

use serde::Serialize;
use trunkline_report::{Unit as Shown, sanitize};
use trunkline_traffic::profile::compare::{Resemblance, compare};
use trunkline_traffic::selection::{Candidate, FEWEST_VALUES, laws};
use trunkline_traffic::{Rounding, Series, Variable, hurst};
use trunkline_units::{Seed, Span};

use super::capture::{amounts, is_capture, messages};
use super::column::{Column, Reading};
use super::{display_name, input_error, read};
use crate::failure::{Failure, print};
use crate::flags::analyse::Analyse;

/// Version of the JSON.
const VERSION: u32 = 1;
/// Times are equally spaced if this share of the gaps is within [`TOLERANCE`] of the median: a series, not messages.
const REGULAR: f64 = 0.9;
const TOLERANCE: f64 = 0.05;

/// What is printed by `--json`.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    series: String,
    quantities: Vec<Quantity>,
    /// Length of the intervals of the series that the models are compared with; null without models.
    interval_s: Option<f64>,
    /// Hurst exponent of this series (local Whittle).
    hurst: Option<f64>,
    /// The most similar first.
    models: Vec<Resemblance>,
    /// Why there are no models.
    models_refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct Quantity {
    /// `gap`, `size`, or the name of the column.
    name: String,
    /// `s` or `B`; empty for a column.
    unit: &'static str,
    values: usize,
    /// Values of 0, which Pareto, Weibull and lognormal laws do not have.
    zeros: usize,
    /// The best first.
    laws: Vec<Fitted>,
}

#[derive(Debug, Serialize)]
struct Fitted {
    family: &'static str,
    law: String,
    parameters: u32,
    log_likelihood: f64,
    aic: f64,
    ks_distance: f64,
}

/// Prints which laws and models fit a capture or column best.
pub fn best(flags: &Analyse, reading: &Reading<'_>) -> Result<(), Failure> {
    let path = std::path::Path::new(&flags.series);
    let name = display_name(&flags.series);
    let fail = |reason: &str| input_error(&name, reason);
    let (quantities, series) = if is_capture(path) {
        let messages = messages(path, "").map_err(|error| fail(&error))?;
        of_messages(&messages, "size", flags.interval)
    } else {
        let columns = read::columns(&flags.series, reading)?;
        let column = read::choose(&columns, flags.column.as_deref(), &name)?;
        of_column(column, reading, flags.interval).map_err(|error| fail(&error))?
    };
    if quantities.iter().all(|quantity| quantity.laws.is_empty()) {
        return Err(fail(&format!("it has fewer than {FEWEST_VALUES} values")));
    }
    let models = series.as_ref().map(|series| compare(series, Seed(flags.seed)));
    let (models, models_refused) = match models {
        Some(Ok(models)) => (models, None),
        Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        None => (Vec::new(), Some("the times do not give equal intervals".into())),
    };
    let local_whittle =
        |series: &Series| hurst::estimate(hurst::Method::LocalWhittle, &series.stretch().1).ok();
    let report = Report {
        version: VERSION,
        series: name,
        quantities,
        interval_s: series.as_ref().map(|series| series.grain().as_s()),
        hurst: series.as_ref().and_then(local_whittle).map(|estimate| estimate.h),
        models,
        models_refused,
    };
    if flags.json {
        return print(&(serde_json::to_string_pretty(&report).map_err(Failure::run)? + "\n"));
    }
    print(&text(&report))
}

/// The gaps and sizes of messages, and their amounts in equal intervals.
fn of_messages(
    messages: &[(i64, u32)],
    size: &str,
    interval: Option<Span>,
) -> (Vec<Quantity>, Option<Series>) {
    let mut sorted = messages.to_vec();
    sorted.sort_by_key(|(at, _)| *at);
    let gaps: Vec<f64> = sorted.windows(2).map(|pair| pair[1].0.abs_diff(pair[0].0) as f64 / 1e9).collect();
    let sizes: Vec<f64> = sorted.iter().map(|(_, size)| f64::from(*size)).collect();
    let quantities = vec![quantity("gap", "s", &gaps), quantity(size, "B", &sizes)];
    (quantities, amounts(&sorted, interval))
}

/// The values of a column, and its gaps unless its times are equally spaced.
fn of_column(
    column: &Column,
    reading: &Reading<'_>,
    interval: Option<Span>,
) -> Result<(Vec<Quantity>, Option<Series>), String> {
    if let Ok(points) = column.points() {
        let points: Vec<(i64, Option<f64>)> = points.collect();
        let is_size = |v: f64| v.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&v);
        let known = || points.iter().filter_map(|(at, value)| Some((*at, (*value)?)));
        if !are_regular(&points) && known().all(|(_, value)| is_size(value)) {
            let messages: Vec<(i64, u32)> = known().map(|(at, value)| (at, value as u32)).collect();
            return Ok(of_messages(&messages, &column.name, interval));
        }
    }
    let loaded = column.load(&Reading { interval: reading.interval.or(Some(Span::from_s(1))), ..*reading });
    // Values without equal intervals still have a law.
    let values: Vec<f64> = column.known()?.collect();
    let has_times = column.points().is_ok() || reading.interval.is_some();
    Ok((vec![quantity(&column.name, "", &values)], loaded.ok().map(|l| l.series).filter(|_| has_times)))
}

fn are_regular(points: &[(i64, Option<f64>)]) -> bool {
    let mut times: Vec<i64> = points.iter().map(|(at, _)| *at).collect();
    times.sort_unstable();
    let mut gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
    gaps.sort_unstable();
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or(0) as f64;
    let near = gaps.iter().filter(|gap| (**gap as f64 - median).abs() <= median * TOLERANCE).count();
    near as f64 >= REGULAR * gaps.len() as f64
}

fn quantity(name: &str, unit: &'static str, values: &[f64]) -> Quantity {
    let are_integers = unit != "s" && values.iter().all(|value| value.fract() == 0.0);
    let rounding = if are_integers { Rounding::Integer } else { Rounding::None };
    let fitted = |candidate: Candidate| Fitted {
        family: candidate.family,
        law: describe(&candidate, unit),
        parameters: candidate.parameters,
        log_likelihood: candidate.log_likelihood,
        aic: candidate.aic,
        ks_distance: candidate.distance,
    };
    Quantity {
        name: name.to_owned(),
        unit,
        values: values.len(),
        zeros: values.iter().filter(|value| **value == 0.0).count(),
        laws: laws(values, rounding).into_iter().map(fitted).collect(),
    }
}

/// Describes a law with four digits of each parameter.
fn describe(candidate: &Candidate, unit: &str) -> String {
    if candidate.family == "empirical" {
        return format!("{} values", candidate.parameters + 1);
    }
    // Shares and shapes are written as they are.
    let mut variable = candidate.variable.clone();
    round_numbers(&mut variable);
    variable.describe(|value| match unit {
        "s" if value >= 0.0 => Shown::Seconds.format(value),
        unit => format!("{} {unit}", Shown::Number.format(value)).trim_end().to_owned(),
    })
}

/// Rounds shares and shapes to four digits.
fn round_numbers(variable: &mut Variable) {
    let round = |value: &mut f64| *value = format!("{value:.3e}").parse().unwrap_or(*value);
    match variable {
        Variable::Pareto { shape, .. } | Variable::Weibull { shape, .. } => round(shape),
        Variable::Mixture { share, first, second } => {
            round(share);
            round_numbers(first);
            round_numbers(second);
        }
        _ => {}
    }
}

fn text(report: &Report) -> String {
    let mut text = sanitize(&report.series) + "\n";
    for quantity in report.quantities.iter().filter(|quantity| !quantity.laws.is_empty()) {
        text += &format!(
            "\n{}, {} values",
            sanitize(&quantity.name),
            Shown::Number.format(quantity.values as f64)
        );
        if quantity.zeros > 0 {
            text += &format!(", {} of them 0", Shown::Number.format(quantity.zeros as f64));
        }
        let best = quantity.laws[0].aic;
        text += &format!(
            "\n  {:<24}{:>10}{:>12}{:>14}  {:>6}  law\n",
            "family", "AIC - best", "AIC", "ln L", "KS"
        );
        for law in &quantity.laws {
            text += &format!(
                "  {:<24}{:>10.1}{:>12.1}{:>14.1}  {:>6.4}  {}\n",
                law.family,
                law.aic - best,
                law.aic,
                law.log_likelihood,
                law.ks_distance,
                law.law
            );
        }
    }
    match (&report.models_refused, report.interval_s) {
        (None, Some(interval)) => {
            let hurst = report.hurst.map_or_else(String::new, |h| format!(", Hurst exponent {h:.3}"));
            text += &format!(
                "\nmodels of the amounts in intervals of {}{hurst}\n",
                Shown::Seconds.format(interval)
            );
            text += &format!(
                "  {:<12}{:>12}{:>12}{:>18}{:>8}\n",
                "model", "difference", "values", "autocorrelation", "Hurst"
            );
            for model in &report.models {
                let hurst = model.hurst.map_or_else(|| "-".to_owned(), |h| format!("{h:.3}"));
                text += &format!(
                    "  {:<12}{:>12.4}{:>12.4}{:>18.4}{:>8}\n",
                    model.kind.name(),
                    model.difference,
                    model.values,
                    model.memory,
                    hurst
                );
            }
        }
        (Some(reason), _) => text += &format!("\nno models: {reason}\n"),
        (None, None) => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_poller_are_regular() {
        let points = |gaps: &[i64]| {
            let mut at = 0;
            gaps.iter()
                .map(|gap| {
                    at += gap;
                    (at, Some(1.0))
                })
                .collect::<Vec<_>>()
        };
        assert!(are_regular(&points(&[1000, 1001, 999, 1003, 1000])));
        assert!(!are_regular(&points(&[1000, 10, 300, 2000, 1000])));
        let far = [i64::MIN, -1, 0, i64::MAX];
        assert!(!are_regular(&far.map(|at| (at, Some(1.0)))));
        let (quantities, series) = of_messages(&far.map(|at| (at, 100)), "size", None);
        assert!(series.is_none() && quantities[0].values == 3);
    }
}

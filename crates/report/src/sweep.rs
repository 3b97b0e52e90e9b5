//! Results of a sweep: metrics over points and seeds, as text, JSON, CSV and one HTML page.
//!
//! The results do not depend on when or how fast the runs were executed.

mod html;

use comfy_table::{Cell, CellAlignment};
use serde::{Deserialize, Serialize};
use trunkline_record::schema::{Experiment, Interval};

use crate::format::{Unit, sanitize};
use crate::terminal::{block, fits, render, table};

pub use html::html;

/// The version of `sweep.json`; incremented when the meaning of a field changes.
pub const VERSION: u32 = 1;

/// Results of a plan at all points and seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`VERSION`].
    pub version: u32,
    /// The backend: `sim`.
    pub backend: String,
    /// The experiment: name, hash of the plan before any change, text.
    pub experiment: Experiment,
    /// Changes by `--set` at every point, `KEY=VALUE`.
    #[serde(rename = "set")]
    pub overrides: Vec<String>,
    /// The seeds of every point, or its number of runs.
    pub seeds: Seeds,
    /// The half-width of the confidence interval, as a share of the mean, at which a point got no further seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// Whether points are missing because the sweep was stopped.
    pub partial: bool,
    /// One line for each problem; after [`MAX_PROBLEMS`] lines the number of further problems.
    #[serde(rename = "trouble")]
    pub problems: Vec<String>,
    /// The varied parameters: the axis of the curves first, then the parameter that distinguishes the curves.
    #[serde(rename = "vary")]
    pub parameters: Vec<Parameter>,
    /// The metrics, `SUBJECT.PATH` as in the record.
    #[serde(rename = "figures")]
    pub metrics: Vec<String>,
    /// The complete points. The last parameter varies fastest.
    pub points: Vec<Point>,
}

/// Minimum number of values of which an interval may end the seeds of a point: two values can be close by chance.
pub const MIN_SAMPLES: u64 = 3;

/// Maximum number of problems that are listed.
pub const MAX_PROBLEMS: usize = 20;

/// The seeds of a sweep, or the runs of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds {
    /// The first seed; null where runs differ only by chance, as on a real machine.
    pub first: Option<u64>,
    /// Number of seeds or runs.
    pub count: u64,
}

/// An option that is varied, and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// `OPTION` or `NAME.OPTION`.
    pub key: String,
    /// Unit of `numbers`: `bytes`, `s`, `bps`, …; empty for plain numbers and for categories.
    pub unit: String,
    /// Whether the values are spaced by a ratio.
    pub log: bool,
    /// The values as written in the language.
    pub values: Vec<String>,
    /// The values in `unit`; null where they are not numbers of one kind.
    pub numbers: Vec<Option<f64>>,
}

/// One point: a value for each of [`Sweep::parameters`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Index of its value in each [`Parameter::values`].
    #[serde(rename = "at")]
    pub indices: Vec<usize>,
    /// The values.
    pub values: Vec<String>,
    /// Hash of the plan of this point.
    pub hash: String,
    /// Results in the order of [`Sweep::metrics`].
    #[serde(rename = "figures")]
    pub spreads: Vec<Spread>,
}

/// Statistics of a metric over the seeds of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Seeds with a value.
    pub n: u64,
    /// Mean; null, like all fields below, if no seed has a value.
    pub mean: Option<f64>,
    /// Sample standard deviation; null below two values.
    pub sd: Option<f64>,
    /// Lower end of the 95 % confidence interval of the mean (Student's t); null below two values.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// Minimum.
    pub min: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Values in the order of the seeds; null where a run has none.
    pub samples: Vec<Option<f64>>,
}

impl Spread {
    /// Whether at least [`MIN_SAMPLES`] seeds have a value, and the confidence interval extends at most `share` of the mean to
    /// each side.
    pub fn is_within(&self, share: f64) -> bool {
        match (self.mean, self.high) {
            (Some(mean), Some(high)) => self.n >= MIN_SAMPLES && high - mean <= share * mean.abs(),
            _ => false,
        }
    }

    /// Computes the statistics of samples in the order of the seeds.
    pub fn of(samples: Vec<Option<f64>>) -> Spread {
        let known: Vec<f64> = samples.iter().flatten().copied().collect();
        let Some(interval) = Interval::from_samples(&known) else {
            return Spread { samples, ..Spread::default() };
        };
        let several = |x: f64| (known.len() > 1).then_some(x);
        Spread {
            n: interval.n,
            mean: Some(interval.mean),
            sd: several(interval.sd),
            low: several(interval.low),
            high: several(interval.high),
            min: known.iter().copied().reduce(f64::min),
            max: known.iter().copied().reduce(f64::max),
            samples,
        }
    }
}

/// Returns the sweep as JSON with a final line break.
pub fn json(sweep: &Sweep) -> String {
    serde_json::to_string_pretty(sweep).expect("a sweep has text keys only") + "\n"
}

/// Returns the sweep as CSV with a row for each point and metric: the values as written (and as numbers, if they have a
/// unit), the metric in the column `figure`, `n`, `mean`, `sd`, `low`, `high`, `min`, `max`. Unknown fields are empty.
pub fn csv(sweep: &Sweep) -> String {
    let mut header = Vec::new();
    for parameter in &sweep.parameters {
        header.push(quoted(&parameter.key));
        if !parameter.unit.is_empty() {
            header.push(quoted(&format!("{}_{}", parameter.key, parameter.unit)));
        }
    }
    header.extend(["figure", "n", "mean", "sd", "low", "high", "min", "max"].map(String::from));
    let mut text = header.join(",") + "\n";
    for point in &sweep.points {
        for (metric, spread) in sweep.metrics.iter().zip(&point.spreads) {
            let mut row = Vec::new();
            for (parameter, index) in sweep.parameters.iter().zip(&point.indices) {
                row.push(quoted(&parameter.values[*index]));
                if !parameter.unit.is_empty() {
                    row.push(parameter.numbers[*index].map_or_else(String::new, |n| n.to_string()));
                }
            }
            row.extend([quoted(metric), spread.n.to_string()]);
            let Spread { mean, sd, low, high, min, max, .. } = spread;
            row.extend(
                [mean, sd, low, high, min, max].map(|x| x.map_or_else(String::new, |x| x.to_string())),
            );
            text += &(row.join(",") + "\n");
        }
    }
    text
}

/// Quotes a field of CSV if necessary (RFC 4180).
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// Returns the sweep as text: a heading, then a table for each metric. Tables wider than `width` columns drop columns.
pub fn terminal(sweep: &Sweep, width: Option<u16>) -> String {
    let mut text = heading(sweep);
    for (index, metric) in sweep.metrics.iter().enumerate().filter(|_| !sweep.points.is_empty()) {
        text += &format!("\n{}\n{}\n", sanitize(metric), metric_table(sweep, index, width));
    }
    let problems: Vec<String> = sweep.problems.iter().map(|line| sanitize(line)).collect();
    text + &block("Problems", &problems)
}

/// Returns a line such as `loss  sim  12 points of window, a-s.delay  seeds 1996 to 2005`.
fn heading(sweep: &Sweep) -> String {
    let keys: Vec<String> = sweep.parameters.iter().map(|parameter| sanitize(&parameter.key)).collect();
    let partial = if sweep.partial { "  PARTIAL" } else { "" };
    format!(
        "{}  {}  {} points of {}  {}{partial}\n",
        sanitize(&sweep.experiment.name),
        sanitize(&sweep.backend),
        sweep.points.len(),
        keys.join(", "),
        sweep.seeds.to_text(),
    )
}

impl Seeds {
    /// Formats as `seeds 1996 to 2005`.
    fn to_text(self) -> String {
        match (self.first, self.count) {
            (None, 1) => "1 run".into(),
            (None, n) => format!("{n} runs"),
            (Some(first), 1) => format!("seed {first}"),
            (Some(first), n) => format!("seeds {first} to {}", first.saturating_add(n - 1)),
        }
    }

    /// Returns `seeds` or `runs`.
    fn noun(self) -> &'static str {
        if self.first.is_some() { "seeds" } else { "runs" }
    }
}

/// Returns the titles of the columns after the values.
fn titles(sweep: &Sweep) -> [&'static str; 6] {
    ["mean", "95 % from", "to", "min", "max", sweep.seeds.noun()]
}

/// Returns the texts of these columns.
fn columns(spread: &Spread, unit: Unit) -> [String; 6] {
    let number = |x: Option<f64>| x.map_or_else(|| "–".to_owned(), |x| unit.format(x));
    let Spread { n, mean, low, high, min, max, .. } = spread;
    let [mean, low, high, min, max] = [mean, low, high, min, max].map(|x| number(*x));
    [mean, low, high, min, max, n.to_string()]
}

/// Columns after the values in the order in which they are dropped if not all fit: max, min, count, to, from.
const DROP_ORDER: [usize; 5] = [4, 3, 5, 2, 1];

/// Draws the table of the metric at `index` with as many columns as fit.
fn metric_table(sweep: &Sweep, index: usize, width: Option<u16>) -> String {
    let unit = Unit::of(&sweep.metrics[index]);
    let draw = |dropped: &[usize], width: Option<u16>| {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let select = |texts: [String; 6]| {
            let shown = texts.into_iter().enumerate().filter(|(column, _)| !dropped.contains(column));
            shown.map(|(_, text)| right(text)).collect::<Vec<_>>()
        };
        let mut table = table(width);
        let keys = sweep.parameters.iter().map(|parameter| right(sanitize(&parameter.key)));
        table.set_header(keys.chain(select(titles(sweep).map(String::from))));
        for point in &sweep.points {
            let values = point.values.iter().map(|value| right(sanitize(value)));
            table.add_row(values.chain(select(columns(&point.spreads[index], unit))));
        }
        render(table)
    };
    let tables = (0..=DROP_ORDER.len()).map(|count| draw(&DROP_ORDER[..count], None));
    let fitting = tables.into_iter().find(|table| fits(table, width));
    fitting.unwrap_or_else(|| draw(&DROP_ORDER, width))
}

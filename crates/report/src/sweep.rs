//! What a sweep found: figures over points and seeds, as a table, JSON, CSV and one HTML page.
//!
//! Nothing in it depends on when or how fast the runs were made.

mod html;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use trunkline_record::schema::{Experiment, Interval};

use crate::human::{Unit, plain};
use crate::terminal::{block, show, table};

pub use html::html;

/// The version of `sweep.json`; it grows when a field changes its meaning.
pub const VERSION: u32 = 1;

/// A plan run at points and with seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// [`VERSION`].
    pub version: u32,
    /// What ran it: `sim`.
    pub backend: String,
    /// What was varied: name, hash of the plan before any change, text.
    pub experiment: Experiment,
    /// What `--set` changed at every point, `KEY=VALUE`.
    pub set: Vec<String>,
    /// Every point was run with seeds `first`, `first + 1`, …, or so often.
    pub seeds: Seeds,
    /// Whether points are missing because the sweep was stopped.
    pub partial: bool,
    /// One clear line for each thing that went wrong; at most [`MOST_TROUBLE`], then how many more.
    pub trouble: Vec<String>,
    /// What was varied: the axis of the curves, then what makes several curves of it.
    pub vary: Vec<Varied>,
    /// The figures, `SUBJECT.FIGURE` as the record has them.
    pub figures: Vec<String>,
    /// Every complete point: all values of the last of `vary` for the first value of the others, and so on.
    pub points: Vec<Point>,
}

/// More lines of trouble than this are only counted.
pub const MOST_TROUBLE: usize = 20;

/// The seeds of a sweep, or the runs of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Seeds {
    /// The first; null where runs differ by chance alone, as on a real machine.
    pub first: Option<u64>,
    /// How many.
    pub count: u64,
}

/// An option and the values it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Varied {
    /// `OPTION` or `NAME.OPTION`.
    pub key: String,
    /// What `numbers` count: `bytes`, `s`, `bps`, …; empty for plain numbers and for words.
    pub unit: String,
    /// Whether the values were spaced by a ratio.
    pub log: bool,
    /// As the language writes them.
    pub values: Vec<String>,
    /// In `unit`; null where the values are no numbers of one kind.
    pub numbers: Vec<Option<f64>>,
}

/// One point: a value for each of [`Sweep::vary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The place of its value in each [`Varied::values`].
    pub at: Vec<usize>,
    /// The values themselves.
    pub values: Vec<String>,
    /// Hash of the plan that was run.
    pub hash: String,
    /// In the order of [`Sweep::figures`].
    pub figures: Vec<Spread>,
}

/// A figure over the seeds of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Seeds that gave a number.
    pub n: u64,
    /// Their mean; null where there is none, as all below.
    pub mean: Option<f64>,
    /// Standard deviation of a sample; null below two.
    pub sd: Option<f64>,
    /// Lower end of the 95 % confidence interval of the mean (Student's t); null below two.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// Seed by seed; null where that run gave no such number.
    pub samples: Vec<Option<f64>>,
}

impl Spread {
    /// Sums up a figure, seed by seed.
    pub fn of(samples: Vec<Option<f64>>) -> Spread {
        let known: Vec<f64> = samples.iter().flatten().copied().collect();
        let Some(interval) = Interval::of(&known) else { return Spread { samples, ..Spread::default() } };
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

/// The sweep as JSON, with a line break at its end.
pub fn json(sweep: &Sweep) -> String {
    serde_json::to_string_pretty(sweep).expect("a sweep has text keys only") + "\n"
}

/// A row for each point and figure: the values as written (and as numbers, where they have a unit), the figure, `n`,
/// `mean`, `sd`, `low`, `high`, `min`, `max`. What is unknown is empty.
pub fn csv(sweep: &Sweep) -> String {
    let mut head = Vec::new();
    for varied in &sweep.vary {
        head.push(quoted(&varied.key));
        if !varied.unit.is_empty() {
            head.push(quoted(&format!("{}_{}", varied.key, varied.unit)));
        }
    }
    head.extend(["figure", "n", "mean", "sd", "low", "high", "min", "max"].map(String::from));
    let mut text = head.join(",") + "\n";
    for point in &sweep.points {
        for (figure, spread) in sweep.figures.iter().zip(&point.figures) {
            let mut row = Vec::new();
            for (varied, at) in sweep.vary.iter().zip(&point.at) {
                row.push(quoted(&varied.values[*at]));
                if !varied.unit.is_empty() {
                    row.push(varied.numbers[*at].map_or_else(String::new, |n| n.to_string()));
                }
            }
            row.extend([quoted(figure), spread.n.to_string()]);
            let Spread { mean, sd, low, high, min, max, .. } = spread;
            row.extend(
                [mean, sd, low, high, min, max].map(|x| x.map_or_else(String::new, |x| x.to_string())),
            );
            text += &(row.join(",") + "\n");
        }
    }
    text
}

/// A field of CSV (RFC 4180).
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// The sweep on the terminal: a heading, then a table for each figure, at most `width` columns wide.
pub fn terminal(sweep: &Sweep, width: Option<u16>) -> String {
    let mut text = heading(sweep);
    for (index, figure) in sweep.figures.iter().enumerate().filter(|_| !sweep.points.is_empty()) {
        text += &format!("\n{}\n{}\n", plain(figure), spreads(sweep, index, width));
    }
    let trouble: Vec<String> = sweep.trouble.iter().map(|line| plain(line)).collect();
    text + &block("Trouble", &trouble)
}

/// `loss  sim  12 points of window, a-s.delay  seeds 1996 to 2005`
fn heading(sweep: &Sweep) -> String {
    let keys: Vec<String> = sweep.vary.iter().map(|varied| plain(&varied.key)).collect();
    let partial = if sweep.partial { "  PARTIAL" } else { "" };
    format!(
        "{}  {}  {} points of {}  {}{partial}\n",
        plain(&sweep.experiment.name),
        plain(&sweep.backend),
        sweep.points.len(),
        keys.join(", "),
        sweep.seeds.in_words(),
    )
}

impl Seeds {
    /// `seeds 1996 to 2005`
    fn in_words(self) -> String {
        match (self.first, self.count) {
            (None, 1) => "1 run".into(),
            (None, n) => format!("{n} runs"),
            (Some(first), 1) => format!("seed {first}"),
            (Some(first), n) => format!("seeds {first} to {}", first.saturating_add(n - 1)),
        }
    }

    /// What there are several of.
    fn noun(self) -> &'static str {
        if self.first.is_some() { "seeds" } else { "runs" }
    }
}

/// The titles of the columns behind the values.
fn titles(sweep: &Sweep) -> [&'static str; 6] {
    ["mean", "95 % from", "to", "min", "max", sweep.seeds.noun()]
}

fn columns(spread: &Spread, unit: Unit) -> [String; 6] {
    let number = |x: Option<f64>| x.map_or_else(|| "–".to_owned(), |x| unit.show(x));
    let Spread { n, mean, low, high, min, max, .. } = spread;
    let [mean, low, high, min, max] = [mean, low, high, min, max].map(|x| number(*x));
    [mean, low, high, min, max, n.to_string()]
}

fn spreads(sweep: &Sweep, figure: usize, width: Option<u16>) -> String {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut table = table(width);
    let keys = sweep.vary.iter().map(|varied| right(plain(&varied.key)));
    table.set_header(keys.chain(titles(sweep).map(|title| right(title.to_owned()))));
    let unit = Unit::of(&sweep.figures[figure]);
    for point in &sweep.points {
        let values = point.values.iter().map(|value| right(plain(value)));
        table.add_row(values.chain(columns(&point.figures[figure], unit).map(right)));
    }
    show(table)
}

//! `trunkline study`: measures the parameters of simulated hosts, and the limits of this machine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`rates`] | `host --rates`: processor load by packet size and rate, and the break-even of bundling |
//! | [`multicast`] | `multicast`: the cost of multicast groups |

mod multicast;
mod rates;

use serde_json::Value;
use trunkline_live::environment;
use trunkline_live::study::{self, Cost, EXCLUDED, HostStudy, Line, Point, StudyError};
use trunkline_record::schema::Experiment;
use trunkline_report::sweep::{self, Parameter, Seeds, Spread, Sweep};
use trunkline_units::Span;

use super::pool;
use super::report::{create_folder, write_atomically};
use crate::failure::{Failure, print};
use crate::flags::{MeasurementOptions, StudySubject};

/// Name of the measured host in the printed declaration.
const NAME: &str = "this";

/// Runs a study.
pub fn study(subject: &StudySubject) -> Result<(), Failure> {
    match subject {
        StudySubject::Host { rates: true, duration, repeated } => {
            rates::study(duration.unwrap_or(Span::from_s(120)), repeated)
        }
        StudySubject::Host { rates: false, duration, repeated } => {
            if repeated.runs.is_some() || repeated.out.is_some() {
                return Err(Failure::input("`--runs` and `--out` need `--rates`"));
            }
            let budget = duration.unwrap_or(Span::from_s(5));
            let part = |passed: Span| passed.as_s() / budget.as_s();
            let study = watched("host", |show| study::host(budget, |passed| show(part(passed))))?;
            print(&if repeated.json { as_json(&study) } else { table(&study) })
        }
        StudySubject::Multicast { duration, repeated } => multicast::study(*duration, repeated),
    }
}

/// Measures with a progress bar if standard error is a terminal. Progress is a fraction, 0 to 1.
fn watched<T>(
    name: &str,
    measure: impl FnOnce(&mut dyn FnMut(f64)) -> Result<T, StudyError>,
) -> Result<T, Failure> {
    let bar = pool::progress_bar(1_000, &format!("{name} [{{bar:40}}] {{elapsed}}"));
    let found = measure(&mut |part| bar.set_position((part.min(1.0) * 1_000.0) as u64));
    bar.finish_and_clear();
    found.map_err(Failure::run)
}

/// Builds a sweep from measurements, for tables and plots.
fn sweep(name: &str, runs: u64, vary: Vec<Parameter>, figures: &[&str], points: Vec<sweep::Point>) -> Sweep {
    Sweep {
        version: sweep::VERSION,
        backend: "this machine".into(),
        experiment: Experiment { name: name.into(), ..Experiment::default() },
        overrides: Vec::new(),
        seeds: Seeds { first: None, count: runs },
        until: None,
        partial: false,
        problems: Vec::new(),
        parameters: vary,
        metrics: figures.iter().map(|figure| (*figure).into()).collect(),
        points,
    }
}

/// Returns a varied parameter with numeric values.
fn varied(key: &str, unit: &str, log: bool, numbers: impl IntoIterator<Item = f64>) -> Parameter {
    let numbers: Vec<f64> = numbers.into_iter().collect();
    Parameter {
        key: key.into(),
        unit: unit.into(),
        log,
        values: numbers.iter().map(f64::to_string).collect(),
        numbers: numbers.into_iter().map(Some).collect(),
    }
}

fn point(at: &[usize], vary: &[Parameter], figures: Vec<Vec<Option<f64>>>) -> sweep::Point {
    sweep::Point {
        indices: at.to_vec(),
        values: at.iter().zip(vary).map(|(at, varied)| varied.values[*at].clone()).collect(),
        hash: String::new(),
        spreads: figures.into_iter().map(Spread::of).collect(),
    }
}

/// Writes the tables and plots of a measurement if a folder is given, and prints `text`, or `json` with the environment.
fn finish(
    repeated: &MeasurementOptions,
    mut json: Value,
    text: &str,
    sweeps: &[(&str, Sweep)],
) -> Result<(), Failure> {
    let mut pages = Vec::new();
    if let Some(out) = &repeated.out {
        create_folder(out)?;
        for (name, sweep) in sweeps {
            let page = out.join(format!("{name}.html"));
            write_atomically(&out.join(format!("{name}.csv")), sweep::csv(sweep).as_bytes())?;
            write_atomically(&page, sweep::html(sweep).as_bytes())?;
            pages.push(page.display().to_string());
        }
    }
    if repeated.json {
        json["environment"] = serde_json::json!(environment::describe());
        return print(&format!("{json:#}\n"));
    }
    let plots = if pages.is_empty() { "".into() } else { format!("\nPlots: {}\n", pages.join(", ")) };
    print(&format!("{text}{plots}"))
}

/// Formats a table: the median of each cell's samples and half their range.
fn grid(head: &str, columns: &[String], rows: &[(String, Vec<Vec<f64>>)]) -> String {
    let mut text = format!("{head:>9}");
    columns.iter().for_each(|column| text += &format!("  {column:>11}"));
    text += "\n";
    for (name, cells) in rows {
        text += &format!("{name:>9}");
        for cell in cells {
            text += &format!("  {:>11}", middle(cell));
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

/// Formats samples as `12.3 ± 0.4`; empty without samples.
fn middle(samples: &[f64]) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.last()) {
        (Some(least), Some(most)) => {
            let (middle, half) = (sorted[sorted.len() / 2], (most - least) / 2.0);
            let digits = if middle.abs() < 9.95 { 2 } else { 1 };
            format!("{middle:.digits$} ± {half:.digits$}")
        }
        _ => "–".into(),
    }
}

/// Returns the existing samples.
fn known(samples: &[Option<f64>]) -> Vec<f64> {
    samples.iter().flatten().copied().collect()
}

fn as_json(study: &HostStudy) -> String {
    let json = serde_json::json!({
        "host": study,
        "line": study.host_line(NAME),
        "left_out": EXCLUDED,
        "environment": environment::describe(),
    });
    format!("{json:#}\n")
}

fn table(study: &HostStudy) -> String {
    let HostStudy { messages, rounds, send, receive, .. } = study;
    let mut text = format!(
        "UDP over the loopback interface, one message per system call: {messages} messages in {rounds} rounds.\n\
         Processor time per message, ns: median ± half the interquartile range; `fit` is the fitted line.\n\n\
         {:>9}  {:>12}  {:>8}  {:>12}  {:>8}\n",
        "bytes", "send", "fit", "receive", "fit"
    );
    for Point { size_bytes, send: sent, receive: received } in &study.points {
        let line = |line: &Line| line.cost_ns(*size_bytes as f64);
        let (sent, received) = (cost(*sent), cost(*received));
        text += &format!(
            "{size_bytes:>9}  {sent:>12}  {:>8.0}  {received:>12}  {:>8.0}\n",
            line(send),
            line(receive)
        );
    }
    let row = |label: &str, figure: fn(&Line) -> String| {
        format!("{label:>9}  {:>12}  {:>8}  {:>12}\n", figure(send), "", figure(receive))
    };
    text += "\n";
    text += &row("ns/packet", |line| format!("{:.0}", line.packet_ns));
    text += &row("ns/byte", |line| format!("{:.3}", line.byte_ns));
    text += &row("max error", |line| format!("{:.1} %", line.residual * 100.0));
    text += &format!("\nNot included: {}.\n", EXCLUDED.join(";\n  "));
    text + &format!(
        "Declaration to paste into an experiment (mean of sending and receiving):\n\n{}\n",
        study.host_line(NAME)
    )
}

fn cost(cost: Cost) -> String {
    format!("{:.0} ± {:.0}", cost.median_ns, cost.spread_ns)
}

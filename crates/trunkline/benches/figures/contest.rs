//! Tools run in turn, and the table they make.

use std::fmt;

use crate::Outcome;
use crate::statistics::quantile;

/// A quantity every tool of a contest is measured by: what, with its unit; digits behind the point; what Trunkline
/// promises.
pub struct Figure(pub &'static str, pub usize, pub Target);

/// What Trunkline promises of a figure; judged by the median over the rounds.
pub enum Target {
    /// Nothing.
    None,
    /// At least so many times the first peer's.
    Ratio(f64),
    /// Its own value in this range, ends included.
    Between(f64, f64),
    /// Its own value below this.
    Below(f64),
}

/// A tool, and how one run of it gives the figures; `None` where it does not tell one.
pub struct Tool<'a> {
    /// Its name in the table.
    pub name: &'a str,
    /// It runs in one round of so many.
    pub every: usize,
    /// Runs it once; the argument is the round.
    pub run: Run<'a>,
}

/// One run of a tool.
pub type Run<'a> = Box<dyn Fn(usize) -> Outcome<Vec<Option<f64>>> + 'a>;

/// What the runs of one tool gave, figure by figure; `None` where it does not tell one.
pub type Columns = Vec<Option<Vec<f64>>>;

/// One line of the table, in words.
pub struct Row([String; 7]);

/// Runs the tools in turn, Trunkline first among them, and gives a row for each figure and peer.
pub fn hold(title: &str, figures: &[Figure], tools: &[Tool<'_>], rounds: usize) -> Outcome<Vec<Row>> {
    Ok(rows(title, figures, tools, &take_turns(title, tools, rounds)?))
}

/// Runs the tools in turn. Odd rounds run in reverse order, so that no tool always follows the same one.
pub fn take_turns(title: &str, tools: &[Tool<'_>], rounds: usize) -> Outcome<Vec<Columns>> {
    let mut measured: Vec<Columns> = tools.iter().map(|_| Columns::new()).collect();
    for round in 0..rounds {
        let mut turns: Vec<_> = tools.iter().zip(&mut measured).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (tool, columns) in turns.into_iter().filter(|(tool, _)| round % tool.every == 0) {
            let values = (tool.run)(round)?;
            let told: Vec<String> = values.iter().flatten().map(|value| format!("{value:.4}")).collect();
            eprintln!("{title}, round {} of {rounds}: {} {}", round + 1, tool.name, told.join(" "));
            columns.resize_with(values.len(), || Some(Vec::new()));
            for (column, value) in columns.iter_mut().zip(values) {
                *column = column.take().zip(value).map(|(column, value)| [column, vec![value]].concat());
            }
        }
    }
    Ok(measured)
}

/// A row for each figure and peer. The target is judged where the peer is the first.
pub fn rows(title: &str, figures: &[Figure], tools: &[Tool<'_>], measured: &[Columns]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, figure) in figures.iter().enumerate() {
        let Some(ours) = &measured[0][at] else { continue };
        let all = tools.iter().zip(measured).skip(1);
        let peers = all.filter_map(|(tool, columns)| Some((tool.name, columns[at].as_deref()?)));
        let peers: Vec<_> = peers.map(Some).collect();
        rows.push(row(title, figure, ours, peers.first().copied().flatten(), &figure.2));
        rows.extend(peers.iter().skip(1).map(|peer| row(title, figure, ours, *peer, &Target::None)));
    }
    rows
}

fn row(title: &str, figure: &Figure, ours: &[f64], peer: Option<(&str, &[f64])>, target: &Target) -> Row {
    let ratios = peer.map(|(_, theirs)| ours.iter().zip(theirs).map(|(a, b)| a / b).collect::<Vec<_>>());
    let none = || "–".to_owned();
    let met = target.met(ours, ratios.as_deref());
    Row([
        format!("{title}: {}", figure.0),
        spread(ours, figure.1),
        peer.map_or_else(none, |(name, _)| name.to_owned()),
        peer.map_or_else(none, |(_, theirs)| spread(theirs, figure.1)),
        ratios.map_or_else(none, |ratios| spread(&ratios, 2)),
        target.to_string(),
        met.map_or_else(none, |met| if met { "yes" } else { "NO" }.to_owned()),
    ])
}

/// Median and range over the rounds; nothing if a zero leaves no ratio.
fn spread(values: &[f64], digits: usize) -> String {
    let at = |share| format!("{:.digits$}", quantile(values, share));
    match values {
        _ if values.iter().any(|value| !value.is_finite()) => "–".into(),
        [_] => at(0.5),
        _ => format!("{} ({}–{})", at(0.5), at(0.0), at(1.0)),
    }
}

impl Target {
    /// Whether it is met; `None` if there is nothing to judge or no peer to be judged against.
    fn met(&self, ours: &[f64], ratios: Option<&[f64]>) -> Option<bool> {
        let median = quantile(ours, 0.5);
        match *self {
            Target::None => None,
            Target::Ratio(least) => ratios.map(|ratios| quantile(ratios, 0.5) >= least),
            Target::Between(low, high) => Some(low <= median && median <= high),
            Target::Below(high) => Some(median < high),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::None => write!(f, "–"),
            Target::Ratio(least) => write!(f, "ratio ≥ {least}"),
            Target::Between(low, high) => write!(f, "{low} to {high}"),
            Target::Below(high) => write!(f, "< {high}"),
        }
    }
}

/// The rows as a Markdown table, its columns aligned.
pub fn table(rows: &[Row]) -> String {
    let head = ["figure", "trunkline", "peer", "peer's", "ratio", "target", "met"].map(str::to_owned);
    let lines: Vec<&[String; 7]> = std::iter::once(&head).chain(rows.iter().map(|row| &row.0)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |cells: &[String; 7]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut lines: Vec<String> = lines.into_iter().map(line).collect();
    lines.insert(1, line(&widths.map(|width| "-".repeat(width))));
    lines.concat()
}

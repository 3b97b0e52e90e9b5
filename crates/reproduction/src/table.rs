//! Tables of papers: the compared cells, their tolerances, and their output as text and JSON.

use serde_json::json;
use trunkline_experiment::plan::{ConverterRole, Node, NodeKind};
use trunkline_experiment::{OverrideError, Plan, apply_overrides};
use trunkline_record::Record;
use trunkline_record::metric::metric;
use trunkline_report::sweep::Spread;
use trunkline_units::Seed;

/// Version of `reproduce.json`.
const VERSION: u32 = 1;

/// Share of an Indigo2's processor that is used without packets, in percent: the axis intercept of table 4-2. The simulator
/// models packets only, so this share is added to its figures.
///
/// It and the costs in the experiments are least squares of the relative errors over all 35 figures of table 4-2 (share =
/// idle + rate · (packet + bytes · byte)); the residual is 15 % (root mean square).
pub const INDIGO2_IDLE_PERCENT: f64 = 2.1;

/// An experiment of a table.
pub struct Study {
    /// Name of the paper.
    pub paper: &'static str,
    /// Table or figure of the paper.
    pub table: &'static str,
    /// Text of the experiment.
    pub text: &'static str,
    /// Default number of runs.
    pub seeds: u64,
    /// Changes to the experiment, for a table of several loads.
    pub load: Option<Load>,
    /// The compared figures.
    pub cells: &'static [Cell],
}

/// A load of the bundle converter's tables.
#[derive(Clone, Copy)]
pub struct Load {
    /// Name in the tables; precedes the row.
    pub name: &'static str,
    /// Messages per second of each connection whose name begins with `local`.
    pub host: u32,
    /// Messages per second of all connections whose names begin with `wide`.
    pub wide: u32,
    /// Capacity of the central converter, if it differs.
    pub capacity: Option<&'static str>,
    /// Number of level-1 converters; 0: all.
    pub level1: u32,
}

/// A figure of a paper, and the figure of the record to compare with it.
pub struct Cell {
    /// Title of the row.
    pub row: &'static str,
    /// Name of the connection, link or host. With a `*` at the end: the mean of all connections and hosts with this prefix.
    /// Several joined by `+`: their sum.
    pub subject: &'static str,
    /// Path of the figure in the record.
    pub figure: &'static str,
    /// Unit of the paper.
    pub unit: Unit,
    /// Figure of the paper.
    pub paper: f64,
    /// Tolerance of the mean as a fraction of the paper's figure; infinite: at least the paper's; `None`: no promise.
    pub within: Option<f64>,
    /// What limits this row, and which parameters were fitted.
    pub limit: &'static str,
}

/// A unit of a paper.
#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    /// Mb/s.
    Mbps,
    /// kb/s.
    Kbps,
    /// ATM cells.
    Cells,
    /// Milliseconds.
    Ms,
    /// Events per second, counted for ten seconds.
    PerSecond,
    /// Percent of a link.
    Share,
    /// Percent of a processor, with the share that an Indigo2 uses without packets.
    Processor,
    /// A delay in ms with a promised factor, up or down: a tolerance of 0.5 is a factor of 1.5.
    Delay,
}

/// Returns a cell of a goodput in Mb/s, to be met within a tenth.
pub(crate) const fn mbps(row: &'static str, subject: &'static str, paper: f64, limit: &'static str) -> Cell {
    Cell::new(row, subject, "received_bps", Unit::Mbps, paper, 0.1, limit)
}

/// A cell of a table and its result.
pub struct Comparison {
    /// Name of the paper.
    pub paper: &'static str,
    /// Table of the paper.
    pub table: &'static str,
    /// Name of the load.
    pub load: Option<&'static str>,
    /// The cell.
    pub cell: &'static Cell,
    /// Our figures over the seeds.
    pub ours: Spread,
}

impl Study {
    /// Returns a study of one run of the unchanged experiment.
    pub(crate) const fn new(
        paper: &'static str,
        table: &'static str,
        text: &'static str,
        cells: &'static [Cell],
    ) -> Study {
        Study { paper, table, text, seeds: 1, load: None, cells }
    }
}

impl Cell {
    pub(crate) const fn new(
        row: &'static str,
        subject: &'static str,
        figure: &'static str,
        unit: Unit,
        paper: f64,
        within: f64,
        limit: &'static str,
    ) -> Cell {
        Cell { row, subject, figure, unit, paper, within: Some(within), limit }
    }

    /// Changes the tolerance.
    pub(crate) const fn within(self, within: f64) -> Cell {
        Cell { within: Some(within), ..self }
    }

    /// Changes what limits it.
    pub(crate) const fn limited_by(self, limit: &'static str) -> Cell {
        Cell { limit, ..self }
    }

    /// Promises nothing.
    pub(crate) const fn not_promised(self) -> Cell {
        Cell { within: None, ..self }
    }

    /// Promises nothing, and says why.
    pub(crate) const fn left_out(self, why: &'static str) -> Cell {
        self.limited_by(why).not_promised()
    }

    /// Returns the figure in a record, in the paper's unit.
    pub fn of(&self, record: &Record) -> Option<f64> {
        if self.subject.contains('+') {
            let figures = self.subject.split('+').map(|subject| metric(record, subject, self.figure));
            return figures.sum::<Option<f64>>().map(|value| self.unit.of(value));
        }
        let Some(front) = self.subject.strip_suffix('*') else {
            return metric(record, self.subject, self.figure).map(|value| self.unit.of(value));
        };
        let names = record.connections.iter().map(|c| &c.name).chain(record.hosts.iter().map(|h| &h.name));
        let figures: Vec<f64> = names
            .filter(|name| name.starts_with(front))
            .filter_map(|name| metric(record, name, self.figure))
            .collect();
        let mean = figures.iter().sum::<f64>() / figures.len() as f64;
        (!figures.is_empty()).then(|| self.unit.of(mean))
    }
}

impl Load {
    /// Applies the load to a plan.
    ///
    /// # Errors
    ///
    /// If the plan lacks a changed option.
    pub fn set(&self, plan: &mut Plan) -> Result<(), OverrideError> {
        let names = |front: &str| {
            let names = plan.connections.iter().map(|c| c.name.clone());
            names.filter(|name| name.starts_with(front)).collect::<Vec<String>>()
        };
        let (wide, local) = (names("wide"), names("local"));
        let each = f64::from(self.wide) / wide.len().max(1) as f64;
        let rates = wide.iter().map(|name| (name, each));
        let rates = rates.chain(local.iter().map(|name| (name, f64::from(self.host))));
        let mut changes: Vec<(String, String)> =
            rates.map(|(name, rate)| (format!("{name}.rate"), format!("{rate:.2} /s"))).collect();
        changes.extend(self.capacity.map(|capacity| ("c2.capacity".to_owned(), capacity.to_owned())));
        if let Some(network) = plan.network.as_mut().filter(|_| self.level1 > 0) {
            let is_more = |node: &Node| {
                let NodeKind::Converter { role: ConverterRole::Level1, number, .. } = node.kind else {
                    return false;
                };
                number > self.level1
            };
            let gone: Vec<String> =
                network.nodes.iter().filter(|n| is_more(n)).map(|n| n.name.clone()).collect();
            network.nodes.retain(|node| !gone.contains(&node.name));
            network.links.retain(|link| !gone.contains(&link.a) && !gone.contains(&link.b));
        }
        apply_overrides(plan, changes.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}

impl Unit {
    /// Units of the record per unit of the paper.
    fn scale(self) -> f64 {
        match self {
            Unit::Mbps => 1e6,
            Unit::Kbps => 1e3,
            Unit::PerSecond => 10.0,
            Unit::Cells | Unit::Processor => 1.0,
            Unit::Share => 0.01,
            Unit::Ms | Unit::Delay => 1e3,
        }
    }

    /// Converts a figure of the record to the paper's unit.
    fn of(self, figure: f64) -> f64 {
        match self {
            Unit::Processor => (figure + INDIGO2_IDLE_PERCENT).min(100.0),
            _ => figure / self.scale(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Mbps => "Mb/s",
            Unit::Kbps => "kb/s",
            Unit::PerSecond => "/s",
            Unit::Cells => "cells",
            Unit::Ms | Unit::Delay => "ms",
            Unit::Share | Unit::Processor => "%",
        }
    }

    fn show(self, value: f64) -> String {
        if self == Unit::Cells { format!("{value:.0}") } else { format!("{value:.2}") }
    }
}

impl Comparison {
    /// Returns the deviation of the mean as a fraction of the paper's figure.
    fn deviation(&self) -> Option<f64> {
        self.ours.mean.map(|mean| mean / self.cell.paper - 1.0)
    }

    /// Returns whether the mean is within the promised tolerance, or `None` without a promise. A missing figure is not.
    pub fn is_within(&self) -> Option<bool> {
        let within = self.cell.within?;
        let is_near = |deviation: f64| match self.cell.unit {
            _ if within.is_infinite() => deviation >= 0.0,
            Unit::Delay => (1.0 / (1.0 + within)..=1.0 + within).contains(&(1.0 + deviation)),
            _ => deviation.abs() <= within,
        };
        Some(self.deviation().is_some_and(is_near))
    }

    /// Returns the tolerance as JSON.
    fn promised(&self) -> serde_json::Value {
        match self.cell.within {
            Some(within) if within.is_infinite() => "at least".into(),
            within => within.into(),
        }
    }

    /// Returns the load and the row.
    fn row(&self) -> String {
        self.load.map_or(self.cell.row.into(), |load| format!("{load} {}", self.cell.row))
    }

    fn columns(&self) -> [String; 9] {
        let Comparison { paper, table, cell, ours, .. } = self;
        let show = |value: Option<f64>| value.map_or("–".into(), |value| cell.unit.show(value));
        let spread = match ours.n {
            0 | 1 => String::new(),
            n => format!("{} to {} ({n} seeds)", show(ours.min), show(ours.max)),
        };
        let outcome = match self.is_within() {
            None => "not promised",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        [
            format!("{paper} {table}"),
            self.row(),
            format!("{} {}", cell.unit.show(cell.paper), cell.unit.name()),
            show(ours.mean),
            spread,
            self.deviation().map_or("–".into(), |share| format!("{:+.1} %", share * 100.0)),
            cell.within.map_or("–".into(), |share| match cell.unit {
                _ if share.is_infinite() => "at least".into(),
                Unit::Delay => format!("×{:.1}", 1.0 + share),
                _ => format!("±{:.0} %", share * 100.0),
            }),
            outcome.into(),
            cell.limit.into(),
        ]
    }
}

const HEADINGS: [&str; 9] =
    ["table", "row", "paper", "ours", "spread", "deviation", "promised", "within", "limited by"];
/// Right-aligned columns.
const NUMBERS: [usize; 5] = [2, 3, 4, 5, 6];

/// Formats comparisons as a text table.
pub fn table(compared: &[Comparison]) -> String {
    let head = HEADINGS.map(String::from);
    let rows: Vec<[String; 9]> =
        std::iter::once(head).chain(compared.iter().map(Comparison::columns)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, &width))| {
                if NUMBERS.contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.insert(1, "─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    lines.join("\n") + "\n"
}

/// Formats comparisons as JSON; `backend` is the name of the simulator.
pub fn json(compared: &[Comparison], backend: &str) -> String {
    let cell = |c: &Comparison| {
        json!({
            "of": c.paper, "table": c.table, "row": c.row(), "unit": c.cell.unit.name(), "paper": c.cell.paper,
            "n": c.ours.n, "mean": c.ours.mean, "sd": c.ours.sd, "min": c.ours.min, "max": c.ours.max,
            "samples": c.ours.samples, "deviation": c.deviation(), "promised": c.promised(),
            "within": c.is_within(), "limited_by": c.cell.limit,
        })
    };
    let cells: Vec<_> = compared.iter().map(cell).collect();
    let whole = json!({ "version": VERSION, "backend": backend,
        "first_seed": Seed::default().0, "cells": cells });
    serde_json::to_string_pretty(&whole).expect("text keys only") + "\n"
}

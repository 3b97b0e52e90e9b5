//! `trunkline reproduce`: the papers' experiments in the simulator; paper, ours and the deviation, cell by cell.
//!
//! What is compared stands in [`STUDIES`], that of AirNET in [`airnet`], of the bundle converter in [`bundle_1997`]; the experiments are those of `experiments/`, compiled in.

use serde_json::json;
use trunkline_experiment::plan::{ConverterRole, Node, NodeKind};
use trunkline_experiment::{OverrideError, Plan, Source, apply_overrides, parse};
use trunkline_record::Record;
use trunkline_record::figure::figure;
use trunkline_report::sweep::Spread;
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use super::report::write_atomically;
use super::run::stop_on_signals;
use super::{airnet, bundle_1997, curves, pool};
use crate::failure::{Failure, print};
use crate::flags::Reproduce;

/// Version of `reproduce.json`.
const VERSION: u32 = 1;

/// An experiment of a table.
pub(super) struct Study {
    /// Which paper, as the command names it.
    pub paper: &'static str,
    /// The table or figure of the paper it belongs to.
    pub table: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Runs, if nobody says how many.
    pub seeds: u64,
    /// What is changed in it, for a table of several loads.
    pub load: Option<Load>,
    pub cells: &'static [Cell],
}

/// A load of the bundle converter's tables.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// As the tables have it; stands before the row.
    pub name: &'static str,
    /// Messages a second of each connection called `local…`.
    pub host: u32,
    /// Of those called `wide…` all together.
    pub wide: u32,
    /// The central converter's capacity, if another.
    pub capacity: Option<&'static str>,
    /// How many converters of level 1 are left; 0: all.
    pub level1: u32,
}

/// A figure of the paper and what of our record it is to be compared with.
pub(super) struct Cell {
    pub row: &'static str,
    /// Of which connection, link or host, and which of its figures. With a `*` at its end: of all connections and hosts whose
    /// names begin so, the mean.
    pub subject: &'static str,
    pub figure: &'static str,
    pub unit: Unit,
    pub paper: f64,
    /// How near the mean must be, as a share of the paper's; infinity: at least that; none: nothing was promised.
    pub within: Option<f64>,
    /// What limits this row, and what was fitted to it.
    pub limit: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Mbps,
    Kbps,
    Cells,
    Ms,
    /// Of something counted for ten seconds.
    PerSecond,
    /// Percent of a link.
    Share,
    /// Percent of a processor, with what an Indigo2 uses without packets.
    Processor,
    /// A delay in ms, of which a factor is promised, up or down: by a half is by 1.5.
    Delay,
}

/// A one-way delay in ms, the median.
const fn delay(
    row: &'static str,
    subject: &'static str,
    paper: f64,
    within: Option<f64>,
    limit: &'static str,
) -> Cell {
    Cell { row, subject, figure: "delay_us.p50", unit: Unit::Ms, paper, within, limit }
}

/// A goodput in Mb/s.
const fn mbps(
    row: &'static str,
    subject: &'static str,
    paper: f64,
    within: Option<f64>,
    limit: &'static str,
) -> Cell {
    Cell { row, subject, figure: "received_bps", unit: Unit::Mbps, paper, within, limit }
}

const TENTH: Option<f64> = Some(0.1);

/// The AAI report of 1996, in its order.
const STUDIES: &[Study] = &[
    Study {
        paper: "aai",
        table: "figure-1",
        text: include_str!("../../../../experiments/figure-1.ns"),
        seeds: 20,
        load: None,
        cells: &[
            mbps("KU to GSFC, paced", "KU-GSFC", 33.77, TENTH, "pacing"),
            mbps("GSFC to KU", "GSFC-KU", 27.29, TENTH, "loss, fitted"),
        ],
    },
    Study {
        paper: "aai",
        table: "figure-2",
        text: include_str!("../../../../experiments/figure-2.ns"),
        seeds: 1,
        load: None,
        cells: &[
            mbps("KU to ARL-UT, paced", "KU-ARL", 33.34, TENTH, "pacing"),
            mbps("ARL-UT to KU", "ARL-KU", 33.80, TENTH, "link"),
        ],
    },
    Study {
        paper: "aai",
        table: "12",
        text: include_str!("../../../../experiments/table-12.ns"),
        seeds: 3,
        load: None,
        cells: &[
            mbps("B-A, 31,290 B", "B-A-31290", 3.9, TENTH, "window; acknowledgements fitted"),
            mbps("B-A, 262,144 B", "B-A-262144", 34.6, TENTH, "window"),
            mbps("B-D, 31,290 B", "B-D-31290", 4.2, TENTH, "window; acknowledgements fitted"),
            mbps("B-D, 409,600 B", "B-D-409600", 23.8, TENTH, "pacing, fitted"),
            mbps("A-D, 31,290 B", "A-D-31290", 5.9, TENTH, "window; segment size fitted"),
            mbps("A-D, 352,144 B", "A-D-352144", 15.7, TENTH, "pacing, fitted"),
            mbps("D-C, 314,570 B", "D-C-314570", 30.84, TENTH, "pacing, fitted"),
            mbps("B-C, 524,288 B", "B-C-524288", 29.10, TENTH, "pacing, fitted"),
            mbps("A-C, 262,144 B", "A-C-262144", 27.01, TENTH, "window"),
        ],
    },
    Study {
        paper: "aai",
        table: "ftp-cells",
        text: include_str!("../../../../experiments/ftp-cells.ns"),
        seeds: 1,
        load: None,
        cells: &[Cell {
            row: "14 million bytes",
            subject: "b",
            figure: "interfaces.if0.tx_frames",
            unit: Unit::Cells,
            paper: 297_375.0,
            within: Some(0.0),
            limit: "segment size and six packets fitted",
        }],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../../experiments/table-17-no-pacing.ns"),
        seeds: 100,
        load: None,
        cells: &[mbps("no pacing", "a-b", 1.20, Some(0.2), "timeouts; delay and TAXI rate fitted")],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../../experiments/table-17-no-timers.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("no pacing, no BSD timers", "a-b", 24.0, None, "another TCP (NetSim's, a Tahoe)")],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../../experiments/table-17-pacing.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("pacing 70 Mb/s", "a-b", 68.20, Some(0.05), "pacing")],
    },
    Study {
        paper: "aai",
        table: "18",
        text: include_str!("../../../../experiments/table-18.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("pacing 40 Mb/s", "dec-sgi", 34.2, Some(0.02), "pacing; length fitted")],
    },
    Study {
        paper: "guaranteed",
        table: "6",
        text: include_str!("../../../../experiments/guaranteed-1998.ns"),
        seeds: 20,
        load: None,
        cells: &[
            mbps("bare interface", "raw", 121.8, Some(0.1), "the card, fitted"),
            delay("bare interface, 64 B", "raw-64", 0.85, Some(0.1), "the interface, fitted"),
            mbps("one way", "one-way", 119.0, Some(0.1), "the card"),
            delay("64 B", "one-way-64", 0.89, Some(0.1), "the interface"),
            mbps("both ways, a to b", "there", 108.0, Some(0.1), "processor; its cost of a packet fitted"),
            mbps("both ways, b to a", "back", 108.0, Some(0.1), "processor; its cost of a packet fitted"),
        ],
    },
];

/// The papers that there are, each by all its names; the first is the study's.
const PAPERS: [&[&str]; 4] = [
    &["aai", "1996", "netspec"],
    &["guaranteed", "1998"],
    &["airnet", "1990"],
    &["bundle", "1997", "converter"],
];

/// A study to be run.
struct Job {
    study: &'static Study,
    plan: Plan,
    seeds: u64,
}

/// A cell and what came of it.
struct Compared {
    paper: &'static str,
    table: &'static str,
    load: Option<&'static str>,
    cell: &'static Cell,
    ours: Spread,
}

/// Runs what was asked and puts it beside the paper.
pub fn reproduce(flags: &Reproduce) -> Result<(), Failure> {
    if let Some(figures) = drawn(flags) {
        return curves::curves(flags, &figures);
    }
    let jobs = jobs(flags)?;
    let stop = stop_on_signals()?;
    if let Some(out) = &flags.out {
        std::fs::create_dir_all(out)
            .map_err(|e| Failure::run(format!("cannot make the folder {}: {e}", out.display())))?;
    }
    let compared = compare(&jobs, pool::threads(flags.threads), &stop)?;
    let (table, json) = (table(&compared), json(&compared));
    if let Some(out) = &flags.out {
        write_atomically(&out.join("reproduce.json"), json.as_bytes())?;
        write_atomically(&out.join("reproduce.txt"), table.as_bytes())?;
    }
    print(if flags.json { &json } else { &table })?;
    let promised = compared.iter().filter_map(Compared::is_within);
    let (all, outside) = promised.fold((0, 0), |(all, out), within| (all + 1, out + u32::from(!within)));
    match outside {
        0 => Ok(()),
        _ => Err(Failure::run(format!("{outside} of {all} figures are not as near as promised"))),
    }
}

/// The curves asked for, if it is curves.
fn drawn(flags: &Reproduce) -> Option<Vec<&'static curves::Figure>> {
    let (paper, wanted) = (flags.paper.as_deref()?, flags.table.as_deref()?);
    let is_ours = PAPERS[1].contains(&paper);
    Some(curves::named(wanted)).filter(|figures| is_ours && !figures.is_empty())
}

/// The studies asked for.
fn jobs(flags: &Reproduce) -> Result<Vec<Job>, Failure> {
    let there_is = PAPERS.map(|names| names[0]).join(", ");
    let paper = match flags.paper.as_deref() {
        None => None,
        Some(name) => match PAPERS.into_iter().find(|names| names.contains(&name)) {
            Some(names) => Some(names[0]),
            None => {
                let why = "is no paper known here";
                return Err(Failure::input(format!("`{name}` {why}; what there is: {there_is}")));
            }
        },
    };
    let wanted = flags.table.as_deref().map(|table| table.strip_prefix("table-").unwrap_or(table));
    let wanted = wanted.map(|table| table.strip_prefix("4-").unwrap_or(table));
    let of_paper = |study: &&Study| paper.is_none_or(|paper| paper == study.paper);
    let all = || STUDIES.iter().chain(airnet::STUDIES).chain(bundle_1997::STUDIES);
    let studies = all().filter(of_paper).filter(|study| wanted.is_none_or(|table| table == study.table));
    let jobs: Vec<Job> = studies
        .map(|study| {
            let parsed = parse(&Source { name: study.table, text: study.text, folder: None });
            let mut plan = parsed.plan.expect("tests check every experiment");
            if let Some(load) = &study.load {
                load.set(&mut plan).expect("tests set every load");
            }
            Job { study, plan, seeds: flags.seeds.unwrap_or(study.seeds) }
        })
        .collect();
    if jobs.is_empty() {
        let mut tables: Vec<&str> = all().filter(of_paper).map(|study| study.table).collect();
        tables.dedup();
        if paper == Some(PAPERS[1][0]) {
            tables.push(curves::ALL);
            tables.extend(curves::all().map(|figure| figure.name));
        }
        let table = flags.table.as_deref().unwrap_or_default();
        return Err(Failure::input(format!("there is no `{table}`; what there is: {}", tables.join(", "))));
    }
    Ok(jobs)
}

/// Makes every run and gathers the figures of each cell, seed by seed.
fn compare(jobs: &[Job], threads: usize, stop: &StopFlag) -> Result<Vec<Compared>, Failure> {
    let runs: Vec<(&Job, u64)> =
        jobs.iter().flat_map(|job| (0..job.seeds).map(move |seed| (job, seed))).collect();
    let mut results = pool::run_all("reproduce", runs.len(), threads, stop, |run| {
        let (job, seed) = runs[run];
        let seed = Seed(Seed::default().0 + seed);
        Some(one(job, seed, stop).map_err(|why| format!("{}, seed {seed}: {why}", job.plan.name)))
    })
    .into_iter();
    let mut compared = Vec::new();
    for job in jobs {
        let mut figures: Vec<Vec<Option<f64>>> = Vec::new();
        for _ in 0..job.seeds {
            match results.next().flatten() {
                Some(Ok(run)) => figures.push(run),
                Some(Err(why)) if !stop.is_requested() => return Err(Failure::run(why)),
                _ => return Err(Failure::run("stopped on request")),
            }
        }
        compared.extend(job.study.cells.iter().enumerate().map(|(at, cell)| Compared {
            paper: job.study.paper,
            table: job.study.table,
            load: job.study.load.as_ref().map(|load| load.name),
            cell,
            ours: Spread::of(figures.iter().map(|run| run[at]).collect()),
        }));
    }
    Ok(compared)
}

/// One run: its figure for each cell, in the paper's unit.
fn one(job: &Job, seed: Seed, stop: &StopFlag) -> Result<Vec<Option<f64>>, String> {
    let order = RunOptions {
        seed,
        text: String::new(),
        started_at: String::new(),
        folder: std::path::PathBuf::new(),
        out: std::path::PathBuf::new(),
        stop: stop.clone(),
    };
    let record = Sim::default().run(&job.plan, &order, &mut NoProgress);
    if record.partial {
        return Err(record.problems.first().cloned().unwrap_or("it was cut short".into()));
    }
    let of = |cell: &Cell| cell.of(&record).map(|x| cell.unit.of(x));
    Ok(job.study.cells.iter().map(of).collect())
}

impl Cell {
    /// Its figure in a record.
    fn of(&self, record: &Record) -> Option<f64> {
        let Some(front) = self.subject.strip_suffix('*') else {
            return figure(record, self.subject, self.figure);
        };
        let names = record.connections.iter().map(|c| &c.name).chain(record.hosts.iter().map(|h| &h.name));
        let figures: Vec<f64> = names
            .filter(|name| name.starts_with(front))
            .filter_map(|name| figure(record, name, self.figure))
            .collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }
}

impl Load {
    /// Sets it in a plan.
    fn set(&self, plan: &mut Plan) -> Result<(), OverrideError> {
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
    /// What our record counts in one of the paper's.
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

    /// What our record has, in the paper's unit.
    fn of(self, figure: f64) -> f64 {
        match self {
            Unit::Processor => (figure + bundle_1997::IDLE_PERCENT).min(100.0),
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

impl Compared {
    /// How far the mean is from the paper's figure, as a share of it.
    fn deviation(&self) -> Option<f64> {
        self.ours.mean.map(|mean| mean / self.cell.paper - 1.0)
    }

    /// Whether it is as near as promised; none if nothing was. No figure is not near.
    fn is_within(&self) -> Option<bool> {
        let within = self.cell.within?;
        let is_near = |deviation: f64| match self.cell.unit {
            _ if within.is_infinite() => deviation >= 0.0,
            Unit::Delay => (1.0 / (1.0 + within)..=1.0 + within).contains(&(1.0 + deviation)),
            _ => deviation.abs() <= within,
        };
        Some(self.deviation().is_some_and(is_near))
    }

    /// What was promised, for other programs.
    fn promised(&self) -> serde_json::Value {
        match self.cell.within {
            Some(within) if within.is_infinite() => "at least".into(),
            within => within.into(),
        }
    }

    /// The load and the row.
    fn row(&self) -> String {
        self.load.map_or(self.cell.row.into(), |load| format!("{load} {}", self.cell.row))
    }

    fn columns(&self) -> [String; 9] {
        let Compared { paper, table, cell, ours, .. } = self;
        let show = |value: Option<f64>| value.map_or("–".into(), |value| cell.unit.show(value));
        let spread = match ours.n {
            0 | 1 => String::new(),
            n => format!("{} to {} ({n} seeds)", show(ours.min), show(ours.max)),
        };
        let verdict = match self.is_within() {
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
            verdict.into(),
            cell.limit.into(),
        ]
    }
}

const HEADINGS: [&str; 9] =
    ["table", "row", "paper", "ours", "spread", "deviation", "promised", "within", "limited by"];
/// Columns of numbers, which end at the same place.
const NUMBERS: [usize; 5] = [2, 3, 4, 5, 6];

fn table(compared: &[Compared]) -> String {
    let head = HEADINGS.map(String::from);
    let rows: Vec<[String; 9]> =
        std::iter::once(head).chain(compared.iter().map(Compared::columns)).collect();
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

fn json(compared: &[Compared]) -> String {
    let cell = |c: &Compared| {
        json!({
            "of": c.paper, "table": c.table, "row": c.row(), "unit": c.cell.unit.name(), "paper": c.cell.paper,
            "n": c.ours.n, "mean": c.ours.mean, "sd": c.ours.sd, "min": c.ours.min, "max": c.ours.max,
            "samples": c.ours.samples, "deviation": c.deviation(), "promised": c.promised(),
            "within": c.is_within(), "limited_by": c.cell.limit,
        })
    };
    let cells: Vec<_> = compared.iter().map(cell).collect();
    let whole = json!({ "version": VERSION, "backend": Sim::default().name(),
        "first_seed": Seed::default().0, "cells": cells });
    serde_json::to_string_pretty(&whole).expect("text keys only") + "\n"
}

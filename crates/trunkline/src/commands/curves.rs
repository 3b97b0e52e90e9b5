//! `trunkline reproduce guaranteed curves`: the figures of the 1998 paper, and figures of forward error correction.
//!
//! [`FIGURES`] declares what each figure of the paper varies; hosts, links and the transport of 1998 come from
//! `experiments/guaranteed-1998.ns`. Each figure compares that transport with the current defaults, and shows a value that
//! the text of the paper states as a point.
//!
//! | module | contents |
//! | --- | --- |
//! | [`page`] | all figures in one HTML file |
//! | [`repair`] | the figures of forward error correction |

mod page;
mod repair;

use std::path::Path;

use serde_json::json;
use trunkline_experiment::plan::Block;
use trunkline_experiment::{Plan, Source, apply_overrides, parse};
use trunkline_record::metric::metric;
use trunkline_record::schema;
use trunkline_report::sweep::{self as report, Parameter, Point, Seeds, Spread, Sweep};
use trunkline_run::{Backend, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use super::pool;
use super::report::{create_folder, terminal_width, write_atomically};
use super::run::stop_on_signals;
use crate::failure::{Failure, print};
use crate::flags::Reproduce;
use crate::flags::values::size;

/// Version of `curves.json`.
const VERSION: u32 = 1;
const BASE: &str = include_str!("../../../../experiments/guaranteed-1998.ns");
/// The name that selects all figures.
pub const ALL: &str = "curves";

/// A compared transport: its name, and the options that it sets.
type Transport = (&'static str, &'static [(&'static str, &'static str)]);

/// A figure: its experiment, and the option that it varies.
pub struct Figure {
    /// Name on the command line.
    pub name: &'static str,
    title: &'static str,
    /// Text of the experiment.
    base: &'static str,
    transports: &'static [Transport],
    /// The connections of the experiment that run, in parallel; the figure is the sum of theirs.
    connections: &'static [&'static str],
    figure: &'static str,
    /// The options that are set to each value.
    keys: &'static [&'static str],
    /// Title of the axis.
    axis: &'static str,
    unit: &'static str,
    values: &'static [&'static str],
    /// Options that are set at every point.
    set: &'static [(&'static str, &'static str)],
    seeds: u64,
    /// A value of the axis and the number that the text of the paper states for it; `None` if the figure is not in the paper.
    paper: Option<(&'static str, f64)>,
    /// Explanation, with the source of the point.
    note: &'static str,
}

/// The compared transports of the paper's figures.
const TRANSPORTS: &[Transport] = &[
    ("of 1998", &[]),
    (
        "of today",
        &[("mode", "selective"), ("checksum", "crc32c"), ("adaptive", "on"), ("congestion", "paced")],
    ),
];
const PAPER: &str = "of the paper's text";

const SECOND: &[(&str, &str)] = &[("delay", "0 s"), ("duration", "1 s")];
/// A timeout takes three seconds, so a run of one second would measure nothing after it.
const LONG: &[(&str, &str)] = &[("delay", "0 s"), ("duration", "20 s")];
const BOTH: &[(&str, &str)] =
    &[("there.delay", "0 s"), ("back.delay", "uniform(0 s, 0.02 s)"), ("duration", "1 s")];

const SHARES: &[&str] = &["0", "1e-5", "1e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1"];
const SIZES: &[&str] = &["64 B", "256 B", "1 KiB", "2 KiB", "4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB"];
const COUNTS: &[&str] = &["1", "2", "3", "4", "6", "8", "12", "16"];
const WINDOWS: &[&str] = &["1", "2", "4", "6", "8", "12", "16", "24", "32"];

/// Returns all figures, those of the paper first.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().chain(repair::FIGURES)
}

/// Returns the figures that a name selects: one, all, or those of forward error correction.
pub fn named(name: &str) -> Vec<&'static Figure> {
    let about = |figure: &Figure| name == repair::ALL && figure.paper.is_none();
    all().filter(|figure| name == ALL || name == figure.name || about(figure)).collect()
}

/// What most figures of the paper have in common.
const OF_THE_PAPER: Figure = Figure {
    name: "",
    title: "",
    base: BASE,
    transports: TRANSPORTS,
    connections: &["one-way"],
    figure: "received_bps",
    keys: &[],
    axis: "",
    unit: "",
    values: &[],
    set: SECOND,
    seeds: 1,
    paper: None,
    note: "",
};

/// The figures of the paper, in its order.
const FIGURES: &[Figure] = &[
    Figure {
        name: "figure-13",
        title: "Figure 13: throughput against the fraction of damaged frames",
        keys: &["alter"],
        axis: "share damaged",
        values: SHARES,
        set: LONG,
        seeds: 5,
        paper: Some(("0", 119e6)),
        note: "Frames of both ends are damaged. 119.0 Mb/s is the finished transport without damage (section 6); the \
               figure was measured with an earlier one. Its long delays are timeouts (section 4.2.1), as they are \
               here, so each run takes 20 s.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-14",
        title: "Figure 14: throughput against the fraction of dropped frames",
        keys: &["drop"],
        axis: "share dropped",
        values: SHARES,
        set: LONG,
        seeds: 5,
        paper: Some(("0", 119e6)),
        note: "Frames of both ends are dropped. 119.0 Mb/s is the finished transport without loss (section 6); the \
               figure was measured with an earlier one. Each run takes 20 s.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-16",
        title: "Figure 16: throughput against the ack counter",
        keys: &["ack_every"],
        axis: "ack counter",
        values: COUNTS,
        paper: Some(("3", 119e6)),
        note: "The text says that any counter above one gives full throughput, and that three was chosen; 119.0 Mb/s is \
               the finished transport with three. With all acknowledgements piggybacked an earlier one reached 126 \
               Mb/s (section 5.2.3), which this axis cannot show.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-17",
        title: "Figure 17: throughput against the window",
        keys: &["window"],
        axis: "window, frames",
        values: WINDOWS,
        paper: Some(("16", 119e6)),
        note: "The text says that 16 is the smallest window that gives full throughput; 119.0 Mb/s is the finished \
               transport with 16. Windows of one and two are acknowledged whenever they are full.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-18",
        title: "Figure 18: throughput against the message size, one way",
        keys: &["messagesize"],
        axis: "message",
        unit: "bytes",
        values: SIZES,
        paper: Some(("64 KiB", 119e6)),
        note: "119.0 Mb/s is the highest throughput of the paper. The text does not state the message size; the point is \
               at the largest. Here, small queued messages share frames.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-19",
        title: "Figure 19: throughput against the message size, both ways",
        connections: &["there", "back"],
        keys: &["messagesize"],
        axis: "message",
        unit: "bytes",
        values: SIZES,
        set: BOTH,
        seeds: 3,
        paper: Some(("64 KiB", 216e6)),
        note: "Sum of both directions. 216 Mb/s is the highest throughput of the paper (section 5.3). The text does not \
               state the message size; the point is at the largest.",
        ..OF_THE_PAPER
    },
    Figure {
        name: "figure-20",
        title: "Figure 20: one-way latency against the message size",
        connections: &["one-way-64"],
        figure: "delay_us.p50",
        keys: &["request", "response"],
        axis: "message",
        unit: "bytes",
        values: SIZES,
        paper: Some(("64 B", 890.0)),
        note: "Median one-way delay of a ping-pong exchange. The paper states 0.89 ms for 64 bytes (section 6).",
        ..OF_THE_PAPER
    },
];

/// A run: indices of its figure, transport and value, and its seed.
struct Run {
    figure: usize,
    transport: usize,
    value: usize,
    seed: u64,
}

/// Runs the figures, writes their files if a folder is given, and prints their tables.
pub fn curves(flags: &Reproduce, figures: &[&Figure]) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    flags.out.as_deref().map_or(Ok(()), create_folder)?;
    let seeds: Vec<u64> = figures.iter().map(|f| flags.seeds.unwrap_or(f.seeds)).collect();
    let runs: Vec<Run> = runs(figures, &seeds);
    let results = pool::run_all("curves", runs.len(), pool::threads(flags.threads), &stop, |run| {
        let Run { figure, transport, value, seed } = runs[run];
        let plan = figures[figure].plan(transport, value);
        Some(figures[figure].measure(&plan, Seed(Seed::default().0 + seed), &stop))
    });
    if stop.is_requested() {
        return Err(Failure::run("stopped on request"));
    }
    let results: Vec<f64> = results.into_iter().flatten().collect::<Result<_, _>>().map_err(Failure::run)?;
    let mut results = results.into_iter();
    let sweeps: Vec<Sweep> =
        figures.iter().zip(&seeds).map(|(f, &seeds)| f.sweep(seeds, &mut results)).collect();
    let json = json(figures, &sweeps);
    if let Some(out) = &flags.out {
        write_atomically(&out.join("curves.json"), json.as_bytes())?;
        write_atomically(&out.join("curves.csv"), csv(figures, &sweeps).as_bytes())?;
        write_atomically(&out.join("curves.html"), page::html(figures, &sweeps).as_bytes())?;
    }
    if flags.json {
        return print(&json);
    }
    let mut text: String =
        sweeps.iter().map(|sweep| report::terminal(sweep, terminal_width()) + "\n").collect();
    if let Some(out) = &flags.out {
        text += &format!("Curves: {}\n", out.join("curves.html").display());
    }
    print(&text)
}

/// Returns all runs of the figures, ordered by figure, transport, value and seed.
fn runs(figures: &[&Figure], seeds: &[u64]) -> Vec<Run> {
    let mut runs = Vec::new();
    for (figure, of) in figures.iter().enumerate() {
        for transport in 0..of.transports.len() {
            for value in 0..of.values.len() {
                runs.extend((0..seeds[figure]).map(|seed| Run { figure, transport, value, seed }));
            }
        }
    }
    runs
}

impl Figure {
    fn base(&self) -> Plan {
        let base = parse(&Source { name: self.name, text: self.base, folder: None });
        base.plan.expect("tests check every experiment")
    }

    /// Returns the number of a value.
    fn number(&self, value: &str) -> f64 {
        let number =
            if self.unit == "bytes" { size(value).ok().map(|n| n as f64) } else { value.parse().ok() };
        number.expect("tests read every value")
    }

    /// Returns the plan of a point: the connections of this figure, with the options of a transport and a value.
    fn plan(&self, transport: usize, value: usize) -> Plan {
        let mut plan = self.base();
        plan.connections.retain(|connection| self.connections.contains(&connection.name.as_str()));
        plan.schedule = Block::Parallel((0..plan.connections.len()).map(Block::Connection).collect());
        let value = self.values[value];
        let changes = self.set.iter().chain(self.transports[transport].1).copied();
        let varied = self.keys.iter().map(|key| (*key, value));
        // An acknowledgement must be due before the window is full.
        let ack_every = (self.keys == ["window"] && self.number(value) < 3.0).then_some(("ack_every", value));
        apply_overrides(&mut plan, changes.chain(varied).chain(ack_every)).expect("tests set every value");
        plan
    }

    /// Runs a plan and returns the figure, summed over its connections.
    fn measure(&self, plan: &Plan, seed: Seed, stop: &StopFlag) -> Result<f64, String> {
        let nowhere = Path::new("");
        let record = pool::simulate(plan, seed, nowhere, nowhere, stop)
            .map_err(|reason| format!("{}, seed {seed}: {reason}", self.name))?;
        let of = |name: &&str| metric(&record, name, self.figure);
        let sum = self.connections.iter().map(of).sum::<Option<f64>>();
        sum.ok_or_else(|| format!("{}, seed {seed}: no result", self.name))
    }

    /// Builds the plotted result: a curve per transport, and the point of the paper.
    fn sweep(&self, seeds: u64, results: &mut impl Iterator<Item = f64>) -> Sweep {
        let mut points = Vec::new();
        for (transport, (name, _)) in self.transports.iter().enumerate() {
            for (value, text) in self.values.iter().enumerate() {
                let samples = results.by_ref().take(seeds as usize).map(Some).collect();
                points.push(Point {
                    indices: vec![value, transport],
                    values: vec![(*text).into(), (*name).into()],
                    hash: self.plan(transport, value).hash(),
                    spreads: vec![Spread::of(samples)],
                });
            }
        }
        if let Some((at, number)) = self.paper {
            let value = self.values.iter().position(|text| *text == at).unwrap_or(0);
            points.push(Point {
                indices: vec![value, self.transports.len()],
                values: vec![at.into(), PAPER.into()],
                hash: String::new(),
                spreads: vec![Spread::of(vec![Some(number)])],
            });
        }
        // Fractions contain 0, which a logarithmic axis cannot show, so they are categories.
        let has_zero = self.values.first() == Some(&"0");
        let number = |value: &&str| (!has_zero).then(|| self.number(value));
        let axis = Parameter {
            key: self.axis.into(),
            unit: self.unit.into(),
            log: self.unit == "bytes",
            values: self.values.iter().map(|text| (*text).into()).collect(),
            numbers: self.values.iter().map(number).collect(),
        };
        let paper = self.paper.map(|_| PAPER);
        let names: Vec<String> =
            self.transports.iter().map(|(name, _)| *name).chain(paper).map(String::from).collect();
        let transport = Parameter {
            key: "transport".into(),
            unit: String::new(),
            log: false,
            numbers: vec![None; names.len()],
            values: names,
        };
        let subject = self.connections.join("+");
        Sweep {
            version: report::VERSION,
            backend: Sim::default().name().into(),
            experiment: schema::Experiment {
                name: self.name.into(),
                hash: self.base().hash(),
                text: String::new(),
            },
            overrides: self.set.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            seeds: Seeds { first: Some(Seed::default().0), count: seeds },
            until: None,
            partial: false,
            problems: Vec::new(),
            parameters: vec![axis, transport],
            metrics: vec![format!("{subject}.{}", self.figure)],
            points,
        }
    }
}

fn json(figures: &[&Figure], sweeps: &[Sweep]) -> String {
    let one = |(figure, sweep): (&&Figure, &Sweep)| json!({ "figure": figure.name, "title": figure.title, "note": figure.note, "sweep": sweep });
    let all: Vec<_> = figures.iter().zip(sweeps).map(one).collect();
    let whole = json!({ "version": VERSION, "figures": all });
    serde_json::to_string_pretty(&whole).expect("text keys only") + "\n"
}

/// Returns one row per point. Fields contain no commas or quotes, so they need no escaping.
fn csv(figures: &[&Figure], sweeps: &[Sweep]) -> String {
    let mut text = "figure,transport,axis,value,number,of,n,mean,sd,low,high,min,max\n".to_owned();
    for (figure, sweep) in figures.iter().zip(sweeps) {
        for point in &sweep.points {
            let Spread { n, mean, sd, low, high, min, max, .. } = &point.spreads[0];
            let [value, transport] = [&point.values[0], &point.values[1]];
            let (axis, number) = (figure.axis.replace(',', ""), figure.number(value));
            text += &format!("{},{transport},{axis},{value},{number},{},{n}", figure.name, sweep.metrics[0]);
            for x in [mean, sd, low, high, min, max] {
                text += &x.map_or_else(|| ",".into(), |x| format!(",{x}"));
            }
            text += "\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_a_distinct_plan_that_the_simulator_supports() {
        for figure in all() {
            let has = |(at, _)| figure.values.contains(&at);
            assert!(figure.paper.is_none_or(has), "{}", figure.name);
            let mut hashes = std::collections::BTreeSet::new();
            for transport in 0..figure.transports.len() {
                for value in 0..figure.values.len() {
                    let plan = figure.plan(transport, value);
                    assert_eq!(plan.connections.len(), figure.connections.len(), "{}", figure.name);
                    assert!(Sim::default().refuse(&plan).is_empty(), "{}", figure.name);
                    hashes.insert(plan.hash());
                    assert!(figure.number(figure.values[value]).is_finite(), "{}", figure.name);
                }
            }
            let points = figure.transports.len() * figure.values.len();
            assert_eq!(hashes.len(), points, "{}: two points are the same", figure.name);
        }
    }
}

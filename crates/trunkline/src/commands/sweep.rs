//! `trunkline sweep`: a plan at many points and with many seeds, on all cores; curves with confidence bands.
//!
//! A run depends only on its point and its seed, and its result has a fixed position: the output does not depend on
//! the number of threads or their timing, nor on how many processes and calls shared the runs. Only the figures of a run are
//! stored, in [`store`].

mod store;

use std::path::Path;
use std::sync::OnceLock;

use trunkline_experiment::vary::Spacing;
use trunkline_experiment::{OverrideError, Plan, Variation, apply_override, apply_overrides, figures};
use trunkline_record::metric::metric;
use trunkline_record::schema;
use trunkline_report::sweep::{self as report, Parameter, Point, Seeds};
use trunkline_run::{Backend, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use super::experiment::Experiment;
use super::pool;
use super::report::{create_folder, terminal_width, write_atomically};
use super::run::{out_folder, stop_on_signals};
use crate::failure::{Failure, print};
use crate::flags::{Merge, Overrides, Printed, Shard, Sweep, SweepAction, SweepCommand};
use store::{MAX_RUNS, Request, RunFile, RunResult};

/// Maximum number of varied options, because plots have no more dimensions.
const MAX_VARIED: usize = 2;

/// Why a sweep has no result yet.
const STOPPED: &str = "stopped on request; the same command runs what is missing";

/// Runs a sweep, or merges the parts of one.
pub fn sweep(command: &SweepCommand) -> Result<(), Failure> {
    match &command.action {
        Some(SweepAction::Merge(merge)) => merge_parts(merge),
        None => run(&command.sweep),
    }
}

/// Runs what is missing. The whole sweep writes its files and prints its tables, a shard stores its runs only.
fn run(flags: &Sweep) -> Result<(), Failure> {
    if flags.shard.is_some() && (flags.printed.json || flags.printed.csv) {
        return Err(Failure::input(
            "a shard has no results to print: `trunkline sweep merge` has --json and --csv",
        ));
    }
    let sweep = Simulation::read(flags)?;
    let stop = stop_on_signals()?;
    // Check the output folder before the runs.
    let out = out_folder(&flags.out, &sweep.experiment.plan.name);
    create_folder(&out)?;
    let file = RunFile::open(&out, &sweep.request, flags.shard, flags.fresh)?;
    let mut results =
        if flags.fresh { vec![None; sweep.request.runs()] } else { store::stored(&out, &sweep.request)? };
    let threads = pool::threads(flags.threads);
    let is_complete = sweep.run(&mut results, flags.shard, threads, &file, &out, &stop)?;
    if let Some(shard) = flags.shard {
        return report_shard(&sweep.request, &results, shard, is_complete, &out);
    }
    show(&sweep.request, &results, &out, flags.printed, || STOPPED.to_owned())
}

/// Writes and prints the results of parts.
fn merge_parts(flags: &Merge) -> Result<(), Failure> {
    let (request, results) = store::merge(&flags.places)?;
    let out = out_folder(&flags.out, &request.sweep().experiment.name);
    create_folder(&out)?;
    let missing = || {
        let missing = results.iter().filter(|result| result.is_none()).count();
        format!("{missing} of {} runs are missing", results.len())
    };
    show(&request, &results, &out, flags.printed, missing)
}

/// Writes the files, prints what was asked for, and fails unless every run is complete.
fn show(
    request: &Request,
    results: &[Option<RunResult>],
    out: &Path,
    printed: Printed,
    why_partial: impl Fn() -> String,
) -> Result<(), Failure> {
    let sweep = request.report(results);
    let files = [
        ("sweep.json", report::json(&sweep)),
        ("sweep.csv", report::csv(&sweep)),
        ("sweep.html", report::html(&sweep)),
    ];
    let written =
        files.iter().try_for_each(|(name, text)| write_atomically(&out.join(name), text.as_bytes()));
    let shown = match (printed.json, printed.csv) {
        (true, _) => print(&files[0].1),
        (_, true) => print(&files[1].1),
        _ => {
            let page = format!("\nCurves: {}\n", out.join("sweep.html").display());
            print(&(report::terminal(&sweep, terminal_width()) + if written.is_ok() { &page } else { "" }))
        }
    };
    written?;
    if sweep.partial {
        return Err(Failure::run(why_partial()));
    }
    check_runs(results.iter().flatten(), results.len())?;
    shown
}

/// Says what a shard has stored.
fn report_shard(
    request: &Request,
    results: &[Option<RunResult>],
    shard: Shard,
    is_complete: bool,
    out: &Path,
) -> Result<(), Failure> {
    let (index, out) = (shard.index + 1, out.display());
    let own = || (0..results.len()).filter(|run| request.belongs_to(*run, shard));
    let stored: Vec<&RunResult> = own().filter_map(|run| results[run].as_ref()).collect();
    let all = own().count();
    print(&format!(
        "Shard {index} of {}: {} of {all} runs are in {out}; trunkline sweep merge reads them.\n",
        shard.count,
        stored.len()
    ))?;
    if !is_complete {
        return Err(Failure::run(STOPPED));
    }
    check_runs(stored.into_iter(), all)
}

/// Fails if a run did.
fn check_runs<'a>(runs: impl Iterator<Item = &'a RunResult>, all: usize) -> Result<(), Failure> {
    let failed: Vec<&String> = runs.filter_map(|run| run.problem.as_ref()).collect();
    match failed.first() {
        Some(first) => Err(Failure::run(format!("{} of {all} runs failed; {first}", failed.len()))),
        None => Ok(()),
    }
}

/// A validated sweep, ready to simulate.
struct Simulation<'f> {
    experiment: Experiment,
    set: &'f [(String, String)],
    vary: Vec<Variation>,
    /// Subject and path of each figure.
    figures: Vec<(String, String)>,
    request: Request,
}

impl<'f> Simulation<'f> {
    fn read(flags: &'f Sweep) -> Result<Simulation<'f>, Failure> {
        let file =
            flags.file.as_ref().ok_or_else(|| Failure::input("`trunkline sweep` needs an experiment"))?;
        let experiment = Experiment::read(file, &Overrides { set: Vec::new() })?;
        let plan = &experiment.plan;
        let set = &flags.overrides.set;
        for (key, value) in set {
            match apply_override(&mut plan.clone(), key, value) {
                // An option that it depends on may be set or varied, too.
                Ok(()) | Err(OverrideError::Together(_)) => {}
                Err(e) => return Err(Failure::input(format!("--set {key}={value}: {e}"))),
            }
        }
        let vary = variations(flags, plan)?;
        let figures = shown(flags, plan)?;
        if flags.until.is_some() && flags.seeds <= report::MIN_SAMPLES {
            return Err(Failure::input(format!("--until needs --seeds above {}", report::MIN_SAMPLES)));
        }
        if flags.seed.checked_add(flags.seeds).is_none() {
            return Err(Failure::input("--seed plus --seeds exceeds the largest seed"));
        }
        let points: usize = vary.iter().map(|v| v.values.len()).product();
        let runs = u64::try_from(points).ok().and_then(|points| points.checked_mul(flags.seeds));
        if runs.is_none_or(|runs| runs > MAX_RUNS as u64) {
            return Err(Failure::input(format!("a sweep has at most {MAX_RUNS} runs")));
        }
        let sweep = report::Sweep {
            version: report::VERSION,
            backend: Sim::default().name().to_owned(),
            experiment: schema::Experiment {
                name: plan.name.clone(),
                hash: plan.hash(),
                text: experiment.text.clone(),
            },
            overrides: set.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            seeds: Seeds { first: Some(flags.seed), count: flags.seeds },
            until: flags.until,
            partial: false,
            problems: Vec::new(),
            parameters: vary.iter().map(|v| varied(v, flags.log)).collect(),
            metrics: figures.iter().map(|(subject, path)| format!("{subject}.{path}")).collect(),
            points: Vec::new(),
        };
        let mut simulation = Simulation { experiment, set, vary, figures, request: Request::new(sweep) };
        let points = (0..points).map(|point| simulation.point(point)).collect::<Result<_, _>>()?;
        simulation.request.set_points(points);
        Ok(simulation)
    }

    /// Returns the index of each variation's value at a point: the last changes first.
    fn at(&self, point: usize) -> Vec<usize> {
        let mut left = point;
        let mut at: Vec<usize> = Vec::with_capacity(self.vary.len());
        for varied in self.vary.iter().rev() {
            at.push(left % varied.values.len());
            left /= varied.values.len();
        }
        at.reverse();
        at
    }

    /// Returns the options that a point sets.
    fn settings(&self, point: usize) -> impl Iterator<Item = (&str, &str)> {
        let at = self.at(point);
        self.vary.iter().zip(at).map(|(v, at)| (v.key.as_str(), v.values[at].text.as_str()))
    }

    /// `window=16 kB, a-s.delay=5 ms`
    fn name(&self, point: usize) -> String {
        self.settings(point).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
    }

    fn plan(&self, point: usize) -> Result<Plan, OverrideError> {
        let mut plan = self.experiment.plan.clone();
        let set = self.set.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        apply_overrides(&mut plan, set.chain(self.settings(point)))?;
        Ok(plan)
    }

    /// Returns a point without figures, or why its plan cannot run.
    fn point(&self, point: usize) -> Result<Point, Failure> {
        let refuse = |reason: String| Failure::input(format!("{}: {reason}", self.name(point)));
        let plan = self.plan(point).map_err(|e| refuse(e.to_string()))?;
        match Sim::default().refuse(&plan).into_iter().next() {
            None => Ok(Point {
                indices: self.at(point),
                values: self.settings(point).map(|(_, value)| value.to_owned()).collect(),
                hash: plan.hash(),
                spreads: Vec::new(),
            }),
            // Refused for every value.
            Some(refusal) if Sim::default().refuse(&self.experiment.plan).contains(&refusal) => {
                Err(Failure::input(refusal.text))
            }
            Some(refusal) => Err(refuse(refusal.text)),
        }
    }

    /// Simulates what is missing and stores each result at once. Returns whether nothing is missing: it returns early if `stop` is
    /// requested.
    ///
    /// # Errors
    /// If a result cannot be stored.
    fn run(
        &self,
        results: &mut [Option<RunResult>],
        shard: Option<Shard>,
        threads: usize,
        file: &RunFile,
        out: &Path,
        stop: &StopFlag,
    ) -> Result<bool, Failure> {
        let (failure, mut too_few) = (OnceLock::new(), vec![0; results.len() / self.request.seeds()]);
        let is_complete = loop {
            let runs = self.request.needed(results, shard, threads, &mut too_few);
            if runs.is_empty() || stop.is_requested() {
                break runs.is_empty();
            }
            let one = |index: usize| {
                let result = self.one(runs[index], out, stop)?;
                if let Err(error) = file.append(&self.request, runs[index], &result) {
                    let _ = failure.set(error);
                    stop.request();
                    return None;
                }
                Some(result)
            };
            let new = pool::run_all("sweep", runs.len(), threads, stop, one);
            runs.iter().zip(new).for_each(|(run, result)| results[*run] = result);
        };
        failure.into_inner().map_or(Ok(is_complete), Err)
    }

    /// Runs one simulation; `None` if it was stopped.
    fn one(&self, run: usize, out: &Path, stop: &StopFlag) -> Option<RunResult> {
        let (point, seed) = (run / self.request.seeds(), self.request.seed(run));
        let plan = self.plan(point).expect("every point was checked");
        match pool::simulate(&plan, Seed(seed), &self.experiment.folder, out, stop) {
            Ok(record) => {
                let of = |(subject, path): &(String, String)| metric(&record, subject, path);
                Some(RunResult { figures: self.figures.iter().map(of).collect(), problem: None })
            }
            Err(_) if stop.is_requested() => None,
            // An incomplete run would bias the mean.
            Err(reason) => {
                let problem = Some(format!("{}, seed {seed}: {reason}", self.name(point)));
                Some(RunResult { figures: vec![None; self.figures.len()], problem })
            }
        }
    }
}

fn variations(flags: &Sweep, plan: &Plan) -> Result<Vec<Variation>, Failure> {
    if flags.vary.len() > MAX_VARIED {
        return Err(Failure::input(format!("--vary can be given at most {MAX_VARIED} times")));
    }
    if let [(first, _), (second, _)] = &flags.vary[..]
        && first == second
    {
        return Err(Failure::input(format!("--vary names `{first}` twice")));
    }
    let spacing = match &flags.step {
        Some(step) => Spacing::Step(step.clone()),
        None if flags.log => Spacing::Log(flags.points),
        None => Spacing::Linear(flags.points),
    };
    let read = |(key, values): &(String, String)| {
        Variation::read(plan, key, values, &spacing)
            .map_err(|e| Failure::input(format!("--vary {key}={values}: {e}")))
    };
    flags.vary.iter().map(read).collect()
}

/// Returns the requested figures, by default the received rate of every connection.
fn shown(flags: &Sweep, plan: &Plan) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    for name in &flags.show {
        all.extend(figures(plan, name).map_err(|e| Failure::input(format!("--show {name}: {}", e.line())))?);
    }
    if flags.show.is_empty() {
        all.extend(figures(plan, "received_bps").map_err(|e| Failure::input(e.line()))?);
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|figure| seen.insert(figure.clone()));
    if all.is_empty() {
        Err(Failure::input("the experiment has no connection; select a figure with --show"))
    } else {
        Ok(all)
    }
}

fn varied(variation: &Variation, log: bool) -> Parameter {
    Parameter {
        key: variation.key.clone(),
        unit: variation.unit.to_owned(),
        log: log && !variation.is_words(),
        values: variation.values.iter().map(|step| step.text.clone()).collect(),
        numbers: variation.values.iter().map(|step| step.number).collect(),
    }
}

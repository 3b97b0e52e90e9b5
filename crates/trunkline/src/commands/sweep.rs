//! `trunkline sweep`: a plan at many points and with many seeds, on all cores; curves with confidence bands.
//!
//! A run depends only on its point and its seed, and its result has a fixed position: the output does not depend on
//! the number of threads or their timing. Only the figures of a run are stored.

use std::path::Path;

use trunkline_experiment::vary::Spacing;
use trunkline_experiment::{OverrideError, Plan, Variation, apply_override, apply_overrides, figures};
use trunkline_record::metric::metric;
use trunkline_record::schema;
use trunkline_report::sweep::{self as report, MAX_PROBLEMS, Parameter, Point, Seeds, Spread};
use trunkline_run::{Backend, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use super::experiment::Experiment;
use super::pool;
use super::report::{create_folder, terminal_width, write_atomically};
use super::run::{out_folder, stop_on_signals};
use crate::failure::{Failure, print};
use crate::flags::{Overrides, Sweep};

/// Maximum number of runs: their figures are stored in memory.
const MAX_RUNS: usize = 1_000_000;
/// Maximum number of varied options, because plots have no more dimensions.
const MAX_VARIED: usize = 2;

/// Runs the sweep, writes its files and prints its tables.
pub fn sweep(flags: &Sweep) -> Result<(), Failure> {
    let request = SweepRequest::read(flags)?;
    let stop = stop_on_signals()?;
    // Check the output folder before the runs.
    let out = out_folder(&flags.out, &request.experiment.plan.name);
    create_folder(&out)?;
    let results = request.run(pool::threads(flags.threads), &out, &stop);
    let sweep = request.report(flags, &results);
    let files = [
        ("sweep.json", report::json(&sweep)),
        ("sweep.csv", report::csv(&sweep)),
        ("sweep.html", report::html(&sweep)),
    ];
    let written =
        files.iter().try_for_each(|(name, text)| write_atomically(&out.join(name), text.as_bytes()));
    let shown = match (flags.json, flags.csv) {
        (true, _) => print(&files[0].1),
        (_, true) => print(&files[1].1),
        _ => {
            let page = format!("\nCurves: {}\n", out.join("sweep.html").display());
            print(&(report::terminal(&sweep, terminal_width()) + if written.is_ok() { &page } else { "" }))
        }
    };
    written?;
    check_outcome(&sweep, &results)?;
    shown
}

/// A validated sweep.
struct SweepRequest<'f> {
    experiment: Experiment,
    set: &'f [(String, String)],
    vary: Vec<Variation>,
    /// Subject and path of each figure.
    figures: Vec<(String, String)>,
    seeds: Seeds,
    /// The hash of the plan at each point.
    hashes: Vec<String>,
}

/// The figures of a run, and its problem, if any.
struct RunResult {
    figures: Vec<Option<f64>>,
    problem: Option<String>,
}

impl<'f> SweepRequest<'f> {
    fn read(flags: &'f Sweep) -> Result<SweepRequest<'f>, Failure> {
        let experiment = Experiment::read(&flags.file, &Overrides { set: Vec::new() })?;
        let plan = &experiment.plan;
        for (key, value) in &flags.overrides.set {
            match apply_override(&mut plan.clone(), key, value) {
                // An option that it depends on may be set or varied, too.
                Ok(()) | Err(OverrideError::Together(_)) => {}
                Err(e) => return Err(Failure::input(format!("--set {key}={value}: {e}"))),
            }
        }
        let vary = variations(flags, plan)?;
        let figures = shown(flags, plan)?;
        let seeds = Seeds { first: Some(flags.seed), count: flags.seeds };
        if flags.seed.checked_add(flags.seeds).is_none() {
            return Err(Failure::input("--seed plus --seeds exceeds the largest seed"));
        }
        let mut request =
            SweepRequest { experiment, set: &flags.overrides.set, vary, figures, seeds, hashes: Vec::new() };
        let runs = u64::try_from(request.points()).ok().and_then(|points| points.checked_mul(seeds.count));
        if runs.is_none_or(|runs| runs > MAX_RUNS as u64) {
            return Err(Failure::input(format!("a sweep has at most {MAX_RUNS} runs")));
        }
        request.hashes = (0..request.points()).map(|point| request.check(point)).collect::<Result<_, _>>()?;
        Ok(request)
    }

    fn points(&self) -> usize {
        self.vary.iter().map(|v| v.values.len()).product()
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

    /// Returns the hash of the plan at a point, or why it cannot run.
    fn check(&self, point: usize) -> Result<String, Failure> {
        let refuse = |reason: String| Failure::input(format!("{}: {reason}", self.name(point)));
        let plan = self.plan(point).map_err(|e| refuse(e.to_string()))?;
        match Sim::default().refuse(&plan).into_iter().next() {
            None => Ok(plan.hash()),
            // Refused for every value.
            Some(refusal) if Sim::default().refuse(&self.experiment.plan).contains(&refusal) => {
                Err(Failure::input(refusal.text))
            }
            Some(refusal) => Err(refuse(refusal.text)),
        }
    }

    // --- Runs

    /// Returns the result of each run by point and seed; `None` if it was not completed.
    fn run(&self, threads: usize, out: &Path, stop: &StopFlag) -> Vec<Option<RunResult>> {
        let runs = self.points() * self.seeds.count as usize;
        pool::run_all("sweep", runs, threads, stop, |run| self.one(run, out, stop))
    }

    /// Runs one simulation; `None` if it was stopped.
    fn one(&self, run: usize, out: &Path, stop: &StopFlag) -> Option<RunResult> {
        let (point, seed) = (run / self.seeds.count as usize, run as u64 % self.seeds.count);
        let plan = self.plan(point).expect("every point was checked");
        let seed = Seed(self.seeds.first.unwrap_or_default() + seed);
        match pool::simulate(&plan, seed, &self.experiment.folder, out, stop) {
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

    // --- Results

    fn report(&self, flags: &Sweep, results: &[Option<RunResult>]) -> report::Sweep {
        let plan = &self.experiment.plan;
        let points: Vec<Point> = results
            .chunks(self.seeds.count as usize)
            .enumerate()
            .filter_map(|(point, runs)| {
                let runs: Option<Vec<&RunResult>> = runs.iter().map(Option::as_ref).collect();
                Some(self.point(point, &runs?))
            })
            .collect();
        report::Sweep {
            version: report::VERSION,
            backend: Sim::default().name().to_owned(),
            experiment: schema::Experiment {
                name: plan.name.clone(),
                hash: plan.hash(),
                text: self.experiment.text.clone(),
            },
            overrides: self.set.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            seeds: self.seeds,
            partial: points.len() < self.points(),
            problems: problems(results),
            parameters: self.vary.iter().map(|v| varied(v, flags.log)).collect(),
            metrics: self.figures.iter().map(|(subject, path)| format!("{subject}.{path}")).collect(),
            points,
        }
    }

    fn point(&self, point: usize, runs: &[&RunResult]) -> Point {
        let spread = |figure: usize| Spread::of(runs.iter().map(|run| run.figures[figure]).collect());
        Point {
            indices: self.at(point),
            values: self.settings(point).map(|(_, value)| value.to_owned()).collect(),
            hash: self.hashes[point].clone(),
            spreads: (0..self.figures.len()).map(spread).collect(),
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

fn problems(results: &[Option<RunResult>]) -> Vec<String> {
    let all = || results.iter().flatten().filter_map(|result| result.problem.as_ref());
    let mut lines: Vec<String> = all().take(MAX_PROBLEMS).cloned().collect();
    let more = all().count() - lines.len();
    lines.extend((more > 0).then(|| format!("and {more} more runs")));
    lines
}

/// Returns an error unless every run is complete.
fn check_outcome(sweep: &report::Sweep, results: &[Option<RunResult>]) -> Result<(), Failure> {
    if sweep.partial {
        return Err(Failure::run("stopped on request; the complete points are stored"));
    }
    let failed = results.iter().flatten().filter(|result| result.problem.is_some()).count();
    match sweep.problems.first() {
        Some(first) => Err(Failure::run(format!("{failed} of {} runs failed; {first}", results.len()))),
        None => Ok(()),
    }
}

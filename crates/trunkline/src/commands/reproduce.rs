//! `trunkline reproduce`: runs the experiments of papers in the simulator, and prints paper, result and deviation by cell.

pub mod lab;

use std::path::Path;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_report::sweep::Spread;
use trunkline_reproduction::table::{Comparison, Study, json, table};
use trunkline_reproduction::{PAPERS, studies};
use trunkline_run::{Backend, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use super::report::{create_folder, write_atomically};
use super::run::stop_on_signals;
use super::{curves, pool};
use crate::failure::{Failure, print};
use crate::flags::Reproduce;

/// A study to be run.
pub(super) struct Job {
    study: &'static Study,
    plan: Plan,
    seeds: u64,
}

/// Runs the selected studies and compares them with the papers.
pub fn reproduce(flags: &Reproduce) -> Result<(), Failure> {
    if let Some(figures) = requested_curves(flags) {
        return curves::curves(flags, &figures);
    }
    let jobs = jobs(flags.paper.as_deref(), flags.table.as_deref(), flags.seeds)?;
    let stop = stop_on_signals()?;
    flags.out.as_deref().map_or(Ok(()), create_folder)?;
    let compared = compare(&jobs, pool::threads(flags.threads), &stop)?;
    let (table, json) = (table(&compared), json(&compared, Sim::default().name()));
    if let Some(out) = &flags.out {
        write_atomically(&out.join("reproduce.json"), json.as_bytes())?;
        write_atomically(&out.join("reproduce.txt"), table.as_bytes())?;
    }
    print(if flags.json { &json } else { &table })?;
    let judged = compared.iter().filter_map(Comparison::is_within);
    let (all, outside) = judged.fold((0, 0), |(all, out), within| (all + 1, out + u32::from(!within)));
    match outside {
        0 => Ok(()),
        _ => Err(Failure::run(format!("{outside} of {all} figures are outside their tolerance"))),
    }
}

/// Returns the selected curves, if curves are selected.
fn requested_curves(flags: &Reproduce) -> Option<Vec<&'static curves::Figure>> {
    let (paper, name) = (flags.paper.as_deref()?, flags.table.as_deref()?);
    let has_curves = PAPERS[1].contains(&paper);
    Some(curves::named(name)).filter(|figures| has_curves && !figures.is_empty())
}

/// Returns the studies of a paper or a table of it; `seeds` is the number of runs, if it differs from theirs.
pub(super) fn jobs(
    paper: Option<&str>,
    table: Option<&str>,
    seeds: Option<u64>,
) -> Result<Vec<Job>, Failure> {
    let paper = match paper {
        None => None,
        Some(name) => match PAPERS.into_iter().find(|names| names.contains(&name)) {
            Some(names) => Some(names[0]),
            None => {
                let papers = PAPERS.map(|names| names[0]).join(", ");
                return Err(Failure::input(format!(
                    "unknown paper `{name}`; the papers are: {papers}; others: congestion, lab"
                )));
            }
        },
    };
    let wanted = table.map(|table| table.strip_prefix("table-").unwrap_or(table));
    let wanted = wanted.map(|table| table.strip_prefix("4-").unwrap_or(table));
    let of_paper = |study: &&Study| paper.is_none_or(|paper| paper == study.paper);
    let wanted_studies =
        studies().filter(of_paper).filter(|study| wanted.is_none_or(|table| table == study.table));
    let jobs: Vec<Job> = wanted_studies
        .map(|study| {
            let parsed = parse(&Source { name: study.table, text: study.text, folder: None });
            let mut plan = parsed.plan.expect("tests check every experiment");
            if let Some(load) = &study.load {
                load.set(&mut plan).expect("tests set every load");
            }
            Job { study, plan, seeds: seeds.unwrap_or(study.seeds) }
        })
        .collect();
    if jobs.is_empty() {
        let mut tables: Vec<&str> = studies().filter(of_paper).map(|study| study.table).collect();
        tables.dedup();
        if paper == Some(PAPERS[1][0]) {
            tables.push(curves::ALL);
            tables.extend(curves::all().map(|figure| figure.name));
        }
        let table = table.unwrap_or_default();
        return Err(Failure::input(format!(
            "unknown table `{table}`; the tables are: {}",
            tables.join(", ")
        )));
    }
    Ok(jobs)
}

/// Runs all studies and collects the figures of each cell by seed.
pub(super) fn compare(jobs: &[Job], threads: usize, stop: &StopFlag) -> Result<Vec<Comparison>, Failure> {
    let runs: Vec<(&Job, u64)> =
        jobs.iter().flat_map(|job| (0..job.seeds).map(move |seed| (job, seed))).collect();
    let mut results = pool::run_all("reproduce", runs.len(), threads, stop, |run| {
        let (job, seed) = runs[run];
        let seed = Seed(Seed::default().0 + seed);
        Some(one(job, seed, stop).map_err(|error| format!("{}, seed {seed}: {error}", job.plan.name)))
    })
    .into_iter();
    let mut compared = Vec::new();
    for job in jobs {
        let mut figures: Vec<Vec<Option<f64>>> = Vec::new();
        for _ in 0..job.seeds {
            match results.next().flatten() {
                Some(Ok(run)) => figures.push(run),
                Some(Err(error)) if !stop.is_requested() => return Err(Failure::run(error)),
                _ => return Err(Failure::run("stopped on request")),
            }
        }
        compared.extend(job.study.cells.iter().enumerate().map(|(at, cell)| Comparison {
            paper: job.study.paper,
            table: job.study.table,
            load: job.study.load.as_ref().map(|load| load.name),
            cell,
            ours: Spread::of(figures.iter().map(|run| run[at]).collect()),
        }));
    }
    Ok(compared)
}

/// Runs one simulation; returns the figure of each cell in the paper's unit.
fn one(job: &Job, seed: Seed, stop: &StopFlag) -> Result<Vec<Option<f64>>, String> {
    let nowhere = Path::new("");
    let record = pool::simulate(&job.plan, seed, nowhere, nowhere, stop)?;
    Ok(job.study.cells.iter().map(|cell| cell.of(&record)).collect())
}

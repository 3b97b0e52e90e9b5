//! `trunkline reproduce lab`: experiments in the simulator and in the lab, side by side.

use std::path::{Path, PathBuf};

use trunkline_experiment::{Plan, Source, parse};
use trunkline_record::Record;
use trunkline_reproduction::lab::{Compared, EXPERIMENTS, Experiment, json, table};
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_units::Seed;

use crate::commands::pool::{progress_bar, simulate};
use crate::commands::report::{create_folder, write_atomically};
use crate::commands::run::{lab_backend, stop_on_signals};
use crate::failure::{Failure, print};
use crate::flags::Reproduce;

/// The name in place of a paper.
pub const NAME: &str = "lab";

/// Runs the selected experiments in both and prints the comparison.
pub fn lab(flags: &Reproduce) -> Result<(), Failure> {
    let selected = selected(flags.table.as_deref())?;
    let seed = match flags.seeds {
        None => Seed::default(),
        Some(_) => return Err(Failure::input("--seeds: `lab` runs each experiment once")),
    };
    // Of a machine that is too slow the output says how late the packets were.
    let mut backend = lab_backend(&[], true)?;
    let stop = stop_on_signals()?;
    flags.out.as_deref().map_or(Ok(()), create_folder)?;
    let bar = progress_bar(selected.len() as u64, "lab [{bar:40}] {pos} of {len} experiments, {msg}");
    let mut compared = Vec::new();
    for experiment in selected {
        bar.set_message(experiment.name);
        let result = compare(experiment, backend.as_mut(), seed, &stop);
        compared.push(result.map_err(|error| Failure::run(format!("{}: {error}", experiment.name)))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (table, json) = (table(&compared), json(&compared));
    if let Some(out) = &flags.out {
        write_atomically(&out.join("lab.json"), json.as_bytes())?;
        write_atomically(&out.join("lab.txt"), table.as_bytes())?;
    }
    print(if flags.json { &json } else { &table })?;
    let rows = compared.iter().flat_map(|(_, rows, _)| rows);
    let outside = rows.clone().filter(|row| !row.has_throughput() || !row.has_delay()).count();
    match outside {
        0 => Ok(()),
        _ => Err(Failure::run(format!("{outside} of {} rows are outside their tolerance", rows.count()))),
    }
}

/// Returns the experiment of this name, or all.
fn selected(name: Option<&str>) -> Result<Vec<&'static Experiment>, Failure> {
    let selected: Vec<_> =
        EXPERIMENTS.iter().filter(|experiment| name.is_none_or(|name| name == experiment.name)).collect();
    match name {
        Some(name) if selected.is_empty() => {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            Err(Failure::input(format!(
                "unknown experiment `{name}` of lab; the experiments are: {}",
                names.join(", ")
            )))
        }
        _ => Ok(selected),
    }
}

/// Runs an experiment in both.
fn compare(
    experiment: &Experiment,
    backend: &mut dyn Backend,
    seed: Seed,
    stop: &StopFlag,
) -> Result<Compared, String> {
    let parsed = parse(&Source { name: experiment.name, text: experiment.text, folder: None });
    let plan = parsed.plan.expect("tests check every experiment");
    let nowhere = Path::new("");
    let simulated = simulate(&plan, seed, nowhere, nowhere, stop)?;
    let measured = measure(&plan, backend, seed, stop)?;
    let late = measured.environment.get("emulator_late").cloned().unwrap_or_default();
    Ok((experiment.name, experiment.compare(&simulated, &measured)?, late))
}

/// Runs a plan in the lab; the error is the first problem of an incomplete run.
fn measure(plan: &Plan, backend: &mut dyn Backend, seed: Seed, stop: &StopFlag) -> Result<Record, String> {
    let options = RunOptions {
        seed,
        text: String::new(),
        started_at: String::new(),
        folder: PathBuf::new(),
        out: PathBuf::new(),
        stop: stop.clone(),
    };
    if let Some(refusal) = backend.refuse(plan).into_iter().next() {
        return Err(refusal.text);
    }
    let record = backend.run(plan, &options, &mut NoProgress);
    match record.partial {
        true => Err(record.problems.into_iter().next().unwrap_or("the run is incomplete".into())),
        false => Ok(record),
    }
}

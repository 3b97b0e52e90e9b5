//! Simulated runs in parallel: a pool of threads that share numbered runs, and a progress bar.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use trunkline_experiment::Plan;
use trunkline_record::Record;
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

/// Executes `runs` runs on `threads` threads and returns their results in order, independent of the number and speed of
/// threads. A result is `None` if `one` returns `None`, or if `stop` prevented the run. `label` names the progress bar.
pub fn run_all<T: Send>(
    label: &str,
    runs: usize,
    threads: usize,
    stop: &StopFlag,
    one: impl Fn(usize) -> Option<T> + Sync,
) -> Vec<Option<T>> {
    let template = format!("{label} [{{bar:40}}] {{pos}} of {{len}} runs, {{eta}} left");
    let bar = progress_bar(runs as u64, &template);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while !stop.is_requested() {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                break;
            }
            mine.extend(one(run).map(|result| (run, result)));
            bar.inc(1);
        }
        mine
    };
    let mut results: Vec<Option<T>> = (0..runs).map(|_| None).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(runs)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let mine = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            mine.into_iter().for_each(|(run, result)| results[run] = Some(result));
        }
    });
    bar.finish_and_clear();
    results
}

/// Simulates a plan; the error is the first problem of an incomplete run. `folder` and `out` are those of [`RunOptions`].
pub fn simulate(
    plan: &Plan,
    seed: Seed,
    folder: &Path,
    out: &Path,
    stop: &StopFlag,
) -> Result<Record, String> {
    let options = RunOptions {
        seed,
        text: String::new(),
        started_at: String::new(),
        folder: folder.into(),
        out: out.into(),
        stop: stop.clone(),
    };
    let record = Sim::default().run(plan, &options, &mut NoProgress);
    match record.partial {
        true => Err(record.problems.into_iter().next().unwrap_or("the run is incomplete".into())),
        false => Ok(record),
    }
}

/// Returns the requested number of threads, or one per processor.
pub fn threads(requested: Option<u16>) -> usize {
    requested.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}

/// Returns a progress bar, hidden unless standard error is a terminal.
pub fn progress_bar(length: u64, template: &str) -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("━╸ ")),
        Err(_) => bar,
    }
}

//! `trunkline schedule run`: the controller. It stores each decision, then carries it out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use trunkline_record::archive::Filter;
use trunkline_run::StopFlag;
use trunkline_schedule::planner::show;
use trunkline_schedule::{Decision, Outcome, Planner, RunName, RunState, State, StateError, StoredEntry};

use super::jobs::{self, Job};
use super::process::RunProcess;
use super::show::number_range;
use crate::archive;
use crate::commands::run::stop_on_signals;
use crate::failure::{Failure, print, warn};
use crate::flags::RunArchive;

/// Longest time between two looks at the wall clock, the processes and the signals.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often another controller is given time to end, or `list` and `why` to release the lock.
const LOCK_ATTEMPTS: u32 = 5;

/// Runs a schedule until its last run has ended or a signal arrives.
pub fn control(file: &Path, out: &Path, state: &Path, archive: &RunArchive) -> Result<(), Failure> {
    let jobs = jobs::read(file)?;
    let archive = RunArchive { archive: Some(archive::run_archive_path(archive)?) };
    archive::open(&archive)?;
    let program = std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find the path of this program: {e}")))?;
    let stop = stop_on_signals()?;
    let state = lock(state)?;
    let entries: Vec<StoredEntry> = jobs.iter().map(|job| job.entry.clone()).collect();
    state.replace_entries(&entries).map_err(|error| match error {
        StateError::TimetableChanged { .. } => Failure::input(error),
        error => Failure::run(error),
    })?;
    let planned = state.entries().map_err(Failure::run)?.into_iter();
    let planned = planned.map(|(entry, next)| Ok((entry.plan().map_err(Failure::input)?, next)));
    let planner = Planner::new(planned.collect::<Result<Vec<_>, Failure>>()?, Timestamp::now());
    let mut controller =
        Controller { jobs, program, out: out.into(), archive, state, planner, processes: Vec::new(), stop };
    controller.mark_interrupted()?;
    let ended = controller.run();
    // Also after a failure: no run may continue without a controller.
    controller.stop_processes().and(ended)
}

fn lock(path: &Path) -> Result<State, Failure> {
    let mut attempts = LOCK_ATTEMPTS;
    loop {
        attempts -= 1;
        match State::control(path) {
            Err(StateError::Controlled(_)) if attempts > 0 => pause(INTERVAL),
            state => return state.map_err(Failure::run),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a controller waits in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

struct Controller {
    jobs: Vec<Job>,
    program: PathBuf,
    out: PathBuf,
    archive: RunArchive,
    state: State,
    planner: Planner,
    processes: Vec<RunProcess>,
    stop: StopFlag,
}

impl Controller {
    /// Marks the runs of a controller that was killed.
    fn mark_interrupted(&mut self) -> Result<(), Failure> {
        for stored in self.state.running().map_err(Failure::run)? {
            let run = RunName { entry: stored.entry, number: *stored.numbers.start() };
            self.finish(
                &run,
                RunState::Interrupted,
                "the controller ended before it stored the end of the run".into(),
            )?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), Failure> {
        while !self.stop.is_requested() {
            self.reap()?;
            let now = Timestamp::now();
            match self.planner.poll(now) {
                Decision::Start { run, planned } => {
                    self.state.start(&run, planned, now).map_err(Failure::run)?;
                    report(now, &run.to_string(), "started");
                    self.start(run)?;
                }
                Decision::Missed { entry, numbers, planned, reason } => {
                    self.state.miss(&entry, &numbers, planned, &reason, now).map_err(Failure::run)?;
                    report(now, &number_range(&entry, &numbers), &format!("missed: {reason}"));
                }
                Decision::Idle(None) if self.processes.is_empty() => return Ok(()),
                Decision::Idle(until) => {
                    let left = until.map(|until| until.duration_since(now).unsigned_abs());
                    pause(left.map_or(INTERVAL, |left| left.min(INTERVAL)));
                }
            }
        }
        Ok(())
    }

    /// Starts the process of a run.
    fn start(&mut self, run: RunName) -> Result<(), Failure> {
        let job = self.job(&run.entry).expect("the planner has only these entries");
        let step = job.entry.definition.timetable().map_or(0, |times| times.step(run.number));
        let mut arguments = job.arguments(step);
        arguments.push(format!("--note={}", job.note(&run)).into());
        for (option, path) in [("--out", self.out.join(&run.entry)), ("--archive", self.archive_path())] {
            arguments.extend([option.into(), path.into_os_string()]);
        }
        match RunProcess::start(run.clone(), &self.program, &arguments, job.limit) {
            Ok(process) => {
                self.processes.push(process);
                Ok(())
            }
            Err(error) => self.finish(&run, RunState::Failed, format!("cannot start the run: {error}")),
        }
    }

    /// Stores the ends of processes.
    fn reap(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(process) = self.processes.get_mut(at) {
            match process.poll().map_err(Failure::run)? {
                None => at += 1,
                Some((state, reason)) => {
                    let process = self.processes.swap_remove(at);
                    self.finish(&process.run, state, reason)?;
                }
            }
        }
        Ok(())
    }

    /// Stores the end of a run.
    fn finish(&mut self, run: &RunName, state: RunState, reason: String) -> Result<(), Failure> {
        let state =
            if state == RunState::Failed && self.stop.is_requested() { RunState::Interrupted } else { state };
        self.planner.finish(run);
        let outcome = Outcome { state, reason, records: self.records(run) };
        let now = Timestamp::now();
        self.state.finish(run, &outcome, now).map_err(Failure::run)?;
        let reason = if outcome.reason.is_empty() { String::new() } else { format!(": {}", outcome.reason) };
        report(now, &run.to_string(), &format!("{state}{reason}"));
        Ok(())
    }

    /// Returns the records of a run in the archive, found by their note.
    fn records(&self, run: &RunName) -> Vec<i64> {
        let Some(job) = self.job(&run.entry) else { return Vec::new() };
        let filter = Filter { note: Some(job.note(run)), limit: Some(2), ..Filter::default() };
        match archive::open(&self.archive).and_then(|archive| archive.list(&filter).map_err(Failure::run)) {
            Ok(found) => found.iter().rev().map(|record| record.id.0).collect(),
            Err(_) => {
                warn(&format!("{run}: cannot read the archive {}", self.archive_path().display()));
                Vec::new()
            }
        }
    }

    fn stop_processes(&mut self) -> Result<(), Failure> {
        while !self.processes.is_empty() {
            self.processes.iter_mut().for_each(|process| process.stop("the controller was stopped"));
            self.reap()?;
            pause(INTERVAL);
        }
        Ok(())
    }

    fn job(&self, entry: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.entry.definition.name == entry)
    }

    fn archive_path(&self) -> PathBuf {
        self.archive.archive.clone().unwrap_or_default()
    }
}

/// Prints a line for a run or several. A closed pipe does not end the controller.
fn report(now: Timestamp, run: &str, event: &str) {
    let line = format!("{}  {run}  {event}", show(now));
    let _ = print(&format!("{}\n", trunkline_report::sanitize(&line)));
}

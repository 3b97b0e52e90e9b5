//! `trunkline schedule list` and `trunkline schedule why`.

use std::ops::RangeInclusive;
use std::path::Path;

use jiff::Timestamp;
use trunkline_schedule::planner::show;
use trunkline_schedule::{Planner, RunName, RunState, State, StateError, StoredRun, WaitReason};

use crate::failure::{Failure, print};

fn open(path: &Path) -> Result<State, Failure> {
    State::read(path).map_err(|error| match error {
        StateError::NotFound(_) | StateError::NotAState(_) => Failure::input(error),
        error => Failure::run(error),
    })
}

/// Returns a planner with the current runs of a state.
fn planner(state: &State) -> Result<Planner, Failure> {
    let entries = state.entries().map_err(Failure::run)?.into_iter();
    let entries = entries.map(|(entry, next)| Ok((entry.plan().map_err(Failure::input)?, next)));
    let mut planner = Planner::new(entries.collect::<Result<Vec<_>, Failure>>()?, Timestamp::now());
    for run in state.running().map_err(Failure::run)? {
        let name = RunName { entry: run.entry, number: *run.numbers.start() };
        planner.set_current(&name, run.started.unwrap_or(run.planned));
    }
    Ok(planner)
}

/// Prints the next run of each entry, then the runs that were decided last.
pub fn list(path: &Path, entry: Option<&str>, limit: u32, json: bool) -> Result<(), Failure> {
    let state = open(path)?;
    let planner = planner(&state)?;
    let next = planner.next_runs().filter(|(run, _)| entry.is_none_or(|entry| run.entry == entry));
    let decided = state.list(entry, limit).map_err(Failure::run)?;
    if json {
        let next = next.map(|(run, planned)| {
            serde_json::json!({ "entry": run.entry, "first": run.number, "last": run.number,
                "planned": planned.to_string(), "state": "planned" })
        });
        let lines: Vec<String> =
            next.chain(decided.iter().map(object)).map(|run| format!("{run}\n")).collect();
        return print(&lines.concat());
    }
    let mut text = format!("{:<20}  {:<24}  {:<11}  {:<8}  REASON\n", "PLANNED", "RUN", "STATE", "RECORDS");
    for (run, planned) in next {
        text += &line(planned, &run.to_string(), "planned", "", "");
    }
    for run in decided {
        let records: Vec<String> = run.records.iter().map(i64::to_string).collect();
        text += &line(
            run.planned,
            &number_range(&run.entry, &run.numbers),
            &run.state.to_string(),
            &records.join(" "),
            &run.reason,
        );
    }
    print(&text)
}

fn object(run: &StoredRun) -> serde_json::Value {
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    serde_json::json!({ "entry": run.entry, "first": run.numbers.start(), "last": run.numbers.end(),
        "planned": run.planned.to_string(), "state": run.state.to_string(), "started": time(run.started),
        "ended": time(run.ended), "records": run.records, "reason": run.reason })
}

fn line(planned: Timestamp, run: &str, state: &str, records: &str, reason: &str) -> String {
    let line = format!("{:<20}  {run:<24}  {state:<11}  {records:<8}  {reason}", show(planned));
    format!("{}\n", trunkline_report::sanitize(line.trim_end()))
}

/// Returns the name of a run, or of the first and the last of several.
pub fn number_range(entry: &str, numbers: &RangeInclusive<u64>) -> String {
    let (first, last) = (numbers.start(), numbers.end());
    if first == last { format!("{entry}#{first}") } else { format!("{entry}#{first}..{last}") }
}

/// Prints what a run waits for, or how it ended.
pub fn explain(path: &Path, run: &RunName) -> Result<(), Failure> {
    let state = open(path)?;
    let has_controller = State::has_controller(path);
    let planner = planner(&state)?;
    let answer = match state.find(run).map_err(Failure::run)? {
        Some(stored) => outcome(run, &stored, &planner, has_controller),
        None => match planner.explain(run, Timestamp::now()) {
            WaitReason::NoSuchRun | WaitReason::Decided => {
                return Err(Failure::input(format!("the schedule has no run {run}")));
            }
            WaitReason::Time(planned) => format!("{run} waits for its time, {}", show(planned)),
            WaitReason::Run(blocker) => format!("{run} waits for {blocker}"),
            WaitReason::Controller => format!("{run} is due"),
        },
    };
    let note =
        if has_controller { "" } else { "\nno controller is running; `trunkline schedule run` starts one" };
    print(&format!("{}{note}\n", trunkline_report::sanitize(&answer)))
}

fn outcome(run: &RunName, stored: &StoredRun, planner: &Planner, has_controller: bool) -> String {
    let time = |time: Option<Timestamp>| time.map_or("an unknown time".into(), show);
    let records: Vec<String> = stored.records.iter().map(|id| format!("; record {id}")).collect();
    let records = records.concat();
    match stored.state {
        RunState::Running if has_controller => {
            let expected = planner.entry(&run.entry).map(|entry| entry.expected);
            let end = stored
                .started
                .zip(expected)
                .and_then(|(started, expected)| started.checked_add(expected).ok());
            format!("{run} is running since {} and is expected to end at {}", time(stored.started), time(end))
        }
        RunState::Running => format!("{run} started at {} and its controller ended", time(stored.started)),
        RunState::Done => format!("{run} is done since {}{records}", time(stored.ended)),
        RunState::Failed => format!("{run} failed at {}: {}{records}", time(stored.ended), stored.reason),
        RunState::Missed => format!("{run} was missed: {}", stored.reason),
        RunState::Interrupted => {
            format!("{run} was interrupted, at {}: {}{records}", time(stored.ended), stored.reason)
        }
    }
}

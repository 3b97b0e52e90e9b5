//! `trunkline schedule check`: plans the next days in simulated time, with the expected durations.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use trunkline_schedule::planner::show;
use trunkline_schedule::{Class, Decision, Definition, Planner, RunName};

use super::jobs::Job;
use crate::failure::{Failure, print, warn};

/// Prints the runs of the next days, at most `limit` lines.
pub fn preview(jobs: &[Job], from: Timestamp, days: u16, limit: u32) -> Result<(), Failure> {
    let end = from.checked_add(SignedDuration::from_hours(24 * i64::from(days))).unwrap_or(Timestamp::MAX);
    let mut text = format!("{:<20}  {:<24}  {:<10}  CHANGES\n", "PLANNED", "RUN", "CLASS");
    let mut lines = 0;
    let mut simulation = Simulation::new(jobs, from)?;
    for Definition { name, first, .. } in simulation.over(from) {
        warn(&format!("entry `{name}`: its last run is over; set `first`, now {first}, to a later time"));
    }
    while let Some(line) = simulation.next(end) {
        if lines == limit {
            text += &format!("… more runs follow until {}; `--limit` shows more\n", show(end));
            return print(&text);
        }
        text += &trunkline_report::sanitize(&line);
        text.push('\n');
        lines += 1;
    }
    if lines == 0 {
        text = format!("no runs until {}\n", show(end));
    }
    print(&text)
}

struct Simulation<'a> {
    jobs: &'a [Job],
    planner: Planner,
    now: Timestamp,
    /// Expected ends of the current runs.
    ends: BTreeSet<(Timestamp, RunName)>,
}

impl<'a> Simulation<'a> {
    fn new(jobs: &'a [Job], from: Timestamp) -> Result<Self, Failure> {
        let entry = |job: &Job| {
            let entry = job.entry.plan().map_err(Failure::input)?;
            let next = entry.timetable.first_from(from, 1);
            Ok((entry, next))
        };
        let entries = jobs.iter().map(entry).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Simulation { jobs, planner: Planner::new(entries, from), now: from, ends: BTreeSet::new() })
    }

    /// Returns the entries whose runs were all planned before `from`.
    fn over(&self, from: Timestamp) -> impl Iterator<Item = &'a Definition> {
        let definitions = self.jobs.iter().map(|job| &job.entry.definition);
        let is_over = move |definition: &&Definition| {
            definition.timetable().is_ok_and(|times| times.time(times.first_from(from, 1)).is_none())
        };
        definitions.filter(is_over)
    }

    /// Returns the line of the next decision before `end`.
    fn next(&mut self, end: Timestamp) -> Option<String> {
        loop {
            while let Some((_, run)) = self.ends.first().filter(|(at, _)| *at <= self.now).cloned() {
                self.planner.finish(&run);
                self.ends.pop_first();
            }
            match self.planner.poll(self.now) {
                Decision::Start { run, planned } => return Some(self.start(run, planned)),
                Decision::Missed { entry, numbers, planned, reason } => {
                    let run = RunName { entry, number: *numbers.start() };
                    return Some(self.line(&run, planned, &format!("missed: {reason}")));
                }
                Decision::Idle(until) => {
                    let ends = self.ends.first().map(|(at, _)| *at);
                    self.now = until.into_iter().chain(ends).min().filter(|next| *next < end)?;
                }
            }
        }
    }

    fn start(&mut self, run: RunName, planned: Timestamp) -> String {
        let job = self.job(&run);
        let expected = SignedDuration::from_secs(job.entry.expected_s as i64);
        let ends = self.now.checked_add(expected).unwrap_or(Timestamp::MAX);
        let definition = &job.entry.definition;
        let step = definition.timetable().map_or(0, |times| times.step(run.number));
        let mut notes: Vec<String> =
            definition.overrides(step).map(|(option, value)| format!("{option}={value}")).collect();
        let late = self.now.duration_since(planned).as_secs();
        if late > 0 {
            notes.push(format!("starts {late} s late"));
        }
        let line = self.line(&run, planned, &notes.join(", "));
        self.ends.insert((ends, run));
        line
    }

    fn line(&self, run: &RunName, planned: Timestamp, notes: &str) -> String {
        let class = match self.job(run).entry.definition.class {
            Class::Exclusive => "exclusive",
            Class::Normal => "normal",
            Class::Background => "background",
        };
        format!("{:<20}  {:<24}  {class:<10}  {notes}", show(planned), run.to_string()).trim_end().to_owned()
    }

    fn job(&self, run: &RunName) -> &'a Job {
        let found = self.jobs.iter().find(|job| job.entry.definition.name == run.entry);
        found.expect("the planner has only these entries")
    }
}

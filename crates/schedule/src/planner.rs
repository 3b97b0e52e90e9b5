//! Decides which run starts now and which is missed, and explains what a run waits for. The wall-clock time is an
//! argument and may step back and forth: a decided run is never decided again.
//!
//! Rules, in this order:
//!
//! 1. A run that was planned before the controller began is missed.
//! 2. Due runs are considered in the order of their planned times, then exclusive before normal before background, then
//!    in the order of the file.
//! 3. A due run waits for a run that it must not run beside, also for one that is due before it and waits itself:
//!    otherwise an exclusive run could wait forever.
//! 4. A run that cannot start within its tolerance is missed.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::file::Class;
use crate::timetable::Timetable;

/// An entry as the planner needs it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the entry.
    pub name: String,
    /// Which runs may run at the same time.
    pub class: Class,
    /// Hosts that a run uses.
    pub hosts: BTreeSet<String>,
    /// Planned times.
    pub timetable: Timetable,
    /// Tolerance: how late a run may start.
    pub late: SignedDuration,
    /// Expected duration of a run.
    pub expected: SignedDuration,
}

/// A run: the name of its entry and its number, from 1. Written `NAME#NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName {
    /// The entry.
    pub entry: String,
    /// The number.
    pub number: u64,
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.entry, self.number)
    }
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<RunName, String> {
        let parts = text.split_once('#').and_then(|(entry, number)| Some((entry, number.parse().ok()?)));
        match parts {
            Some((entry, number)) if !entry.is_empty() && number > 0 => {
                Ok(RunName { entry: entry.into(), number })
            }
            _ => Err("expected NAME#NUMBER, such as stair-step#3".into()),
        }
    }
}

/// Why two runs must not run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// They belong to the same entry.
    SameEntry,
    /// One of them runs alone.
    Exclusive,
    /// Both use this host.
    Host(String),
}

/// Another run that a due run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The other run.
    pub run: RunName,
    /// Why they must not run at the same time.
    pub conflict: Conflict,
    /// When the other run is expected to end; `None`: it waits itself.
    pub expected_end: Option<Timestamp>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.run)?;
        match &self.conflict {
            Conflict::SameEntry => write!(f, "an earlier run of the entry")?,
            Conflict::Exclusive => write!(f, "one of them runs alone")?,
            Conflict::Host(host) => write!(f, "uses the host `{host}`, too")?,
        }
        match self.expected_end {
            Some(end) => write!(f, "; expected to end at {})", show(end)),
            None => write!(f, "; waits itself)"),
        }
    }
}

/// Formats a time to the second, in UTC.
pub fn show(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Why a run was missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissedReason {
    /// No controller was running at its time.
    NoController,
    /// The controller did not see its time: it was suspended, or the clock was set forward.
    Skipped,
    /// Another run did not end within the tolerance.
    Waited(Blocker),
}

impl fmt::Display for MissedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissedReason::NoController => f.write_str("the controller was not running"),
            MissedReason::Skipped => {
                f.write_str("the controller was suspended, or the clock was set forward")
            }
            MissedReason::Waited(blocker) => write!(f, "waited for {blocker}"),
        }
    }
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing: it is decided or running.
    Decided,
    /// The entry or the run does not exist.
    NoSuchRun,
    /// Its planned time.
    Time(Timestamp),
    /// Another run.
    Run(Blocker),
    /// Only the controller: the run is due, or was missed and is not marked yet.
    Controller,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start a run. It counts as running until [`Planner::finish`].
    Start {
        /// The run.
        run: RunName,
        /// Its planned time.
        planned: Timestamp,
    },
    /// Mark runs of an entry as missed.
    Missed {
        /// The entry.
        entry: String,
        /// Their numbers.
        numbers: RangeInclusive<u64>,
        /// Planned time of the first.
        planned: Timestamp,
        /// The reason.
        reason: MissedReason,
    },
    /// Nothing to do until this time or until a run ends; `None`: only until a run ends.
    Idle(Option<Timestamp>),
}

/// Plans the runs of all entries. Call [`poll`](Planner::poll) until it returns [`Decision::Idle`].
#[derive(Clone, Debug)]
pub struct Planner {
    slots: Vec<Slot>,
    /// When the controller began.
    began: Timestamp,
}

#[derive(Clone, Debug)]
struct Slot {
    entry: Entry,
    /// Number of the first run that is not decided.
    next: u64,
    /// The number of the current run and its expected end.
    current: Option<(u64, Timestamp)>,
    /// What the run `next` waited for at the last poll.
    blocker: Option<Blocker>,
}

impl Slot {
    fn planned(&self) -> Option<Timestamp> {
        self.entry.timetable.time(self.next)
    }

    fn name(&self, number: u64) -> RunName {
        RunName { entry: self.entry.name.clone(), number }
    }

    /// Returns the last time at which a run with this planned time may start.
    fn latest(&self, planned: Timestamp) -> Timestamp {
        planned.checked_add(self.entry.late).unwrap_or(Timestamp::MAX)
    }

    /// Returns why runs of both entries must not run at the same time.
    fn conflict(&self, other: &Slot) -> Option<Conflict> {
        let (a, b) = (&self.entry, &other.entry);
        match (a.class, b.class) {
            (Class::Exclusive, _) | (_, Class::Exclusive) => Some(Conflict::Exclusive),
            (Class::Normal, Class::Normal) => {
                a.hosts.intersection(&b.hosts).next().cloned().map(Conflict::Host)
            }
            _ => None,
        }
    }
}

impl Planner {
    /// Creates a planner for a controller that begins now. Each entry comes with the number of its first run that is not
    /// decided. Nothing runs.
    pub fn new(entries: impl IntoIterator<Item = (Entry, u64)>, began: Timestamp) -> Planner {
        let slot = |(entry, next)| Slot { entry, next, current: None, blocker: None };
        Planner { slots: entries.into_iter().map(slot).collect(), began }
    }

    /// Makes an undecided run the current one, to explain the waits of another process.
    pub fn set_current(&mut self, run: &RunName, started: Timestamp) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.entry.name == run.entry) {
            let end = started.checked_add(slot.entry.expected).unwrap_or(Timestamp::MAX);
            slot.current = Some((run.number, end));
        }
    }

    /// Reports that the current run of an entry has ended.
    pub fn finish(&mut self, run: &RunName) {
        for slot in &mut self.slots {
            if slot.entry.name == run.entry && slot.current.is_some_and(|(number, _)| number == run.number) {
                slot.current = None;
            }
        }
    }

    /// Decides one thing.
    pub fn poll(&mut self, now: Timestamp) -> Decision {
        for at in 0..self.slots.len() {
            if let Some(missed) = self.missed_before(at, self.began, MissedReason::NoController) {
                return missed;
            }
        }
        for slot in &mut self.slots {
            // After the clock was set back, a run may have to wait for its time again.
            if slot.planned().is_none_or(|planned| planned > now) {
                slot.blocker = None;
            }
        }
        for (at, blocker) in self.blockers(now) {
            let slot = &mut self.slots[at];
            let Some(planned) = slot.planned() else { continue };
            let latest = slot.latest(planned);
            match blocker {
                Some(blocker) if now < latest => slot.blocker = Some(blocker),
                Some(blocker) => {
                    let reason = MissedReason::Waited(slot.blocker.take().unwrap_or(blocker));
                    return slot.miss(slot.next, planned, reason);
                }
                None if now <= latest => return slot.start(planned, now),
                None => match slot.blocker.take() {
                    // The other run ended after the tolerance, between two polls.
                    Some(blocker) => return slot.miss(slot.next, planned, MissedReason::Waited(blocker)),
                    None => {
                        let before = now.checked_sub(slot.entry.late).unwrap_or(Timestamp::MIN);
                        let missed = self.missed_before(at, before, MissedReason::Skipped);
                        return missed.expect("the first run is past its tolerance");
                    }
                },
            }
        }
        let wake = |slot: &Slot| {
            let planned = slot.planned()?;
            Some(if planned > now { planned } else { slot.latest(planned) })
        };
        Decision::Idle(self.slots.iter().filter_map(wake).min())
    }

    /// Marks all undecided runs of an entry that were planned before a time as missed.
    fn missed_before(&mut self, at: usize, time: Timestamp, reason: MissedReason) -> Option<Decision> {
        let slot = &mut self.slots[at];
        let planned = slot.planned().filter(|planned| *planned < time)?;
        let last = slot.entry.timetable.first_from(time, slot.next) - 1;
        Some(slot.miss(last, planned, reason))
    }

    /// Returns the due runs in the order in which they are considered, with what each waits for.
    fn blockers(&self, now: Timestamp) -> Vec<(usize, Option<Blocker>)> {
        let due = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| Some((slot.planned()?, slot.entry.class, at)));
        let mut due: Vec<_> = due.filter(|(planned, ..)| *planned <= now).collect();
        due.sort_unstable();
        let mut waiting: Vec<usize> = Vec::new();
        let mut blockers = Vec::new();
        for (_, _, at) in due {
            let blocker = self.current_blocker(at).or_else(|| self.waiting_blocker(at, &waiting));
            if blocker.is_some() {
                waiting.push(at);
            }
            blockers.push((at, blocker));
        }
        blockers
    }

    /// Returns a current run that the next run of an entry must not run beside; if there are several, the last to end.
    fn current_blocker(&self, at: usize) -> Option<Blocker> {
        let found = self.slots.iter().enumerate().filter_map(|(other, slot)| {
            let (number, end) = slot.current?;
            let conflict = if other == at { Conflict::SameEntry } else { self.slots[at].conflict(slot)? };
            Some(Blocker { run: slot.name(number), conflict, expected_end: Some(end) })
        });
        found.max_by_key(|blocker| blocker.expected_end)
    }

    fn waiting_blocker(&self, at: usize, waiting: &[usize]) -> Option<Blocker> {
        waiting.iter().find_map(|&other| {
            let other = &self.slots[other];
            let conflict = self.slots[at].conflict(other)?;
            Some(Blocker { run: other.name(other.next), conflict, expected_end: None })
        })
    }

    /// Returns what a run waits for.
    pub fn explain(&self, run: &RunName, now: Timestamp) -> WaitReason {
        let Some(at) = self.slots.iter().position(|slot| slot.entry.name == run.entry) else {
            return WaitReason::NoSuchRun;
        };
        let slot = &self.slots[at];
        if run.number < slot.next {
            return WaitReason::Decided;
        }
        match slot.entry.timetable.time(run.number) {
            None => WaitReason::NoSuchRun,
            Some(planned) if planned > now => WaitReason::Time(planned),
            Some(_) if run.number > slot.next => {
                let (run, expected_end) = (slot.name(run.number - 1), None);
                WaitReason::Run(Blocker { run, conflict: Conflict::SameEntry, expected_end })
            }
            Some(_) => {
                let blocker = self.blockers(now).into_iter().find(|(due, _)| *due == at);
                blocker.and_then(|(_, blocker)| blocker).map_or(WaitReason::Controller, WaitReason::Run)
            }
        }
    }

    /// Returns an entry by name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.slots.iter().map(|slot| &slot.entry).find(|entry| entry.name == name)
    }

    /// Returns the next undecided run of each entry with its planned time.
    pub fn next_runs(&self) -> impl Iterator<Item = (RunName, Timestamp)> {
        self.slots.iter().filter_map(|slot| Some((slot.name(slot.next), slot.planned()?)))
    }
}

impl Slot {
    fn start(&mut self, planned: Timestamp, now: Timestamp) -> Decision {
        let end = now.checked_add(self.entry.expected).unwrap_or(Timestamp::MAX);
        self.current = Some((self.next, end));
        self.blocker = None;
        self.next += 1;
        Decision::Start { run: self.name(self.next - 1), planned }
    }

    fn miss(&mut self, last: u64, planned: Timestamp, reason: MissedReason) -> Decision {
        let numbers = self.next..=last;
        self.blocker = None;
        self.next = last + 1;
        Decision::Missed { entry: self.entry.name.clone(), numbers, planned, reason }
    }
}

#[cfg(test)]
mod tests;

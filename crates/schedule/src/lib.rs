//! Experiments at planned times: a file of entries → a [`Planner`] that decides when each run starts → a [`State`] that
//! survives a crash at any moment.
//!
//! | module | contents | uses |
//! | --- | --- | --- |
//! | [`timetable`] | the planned time of each run of an entry, by arithmetic | – |
//! | [`file`](mod@file) | the schedule file (TOML), validated | timetable |
//! | [`planner`] | which run starts now, which is missed, what a run waits for | timetable, file |
//! | [`state`] | what happened to each run, in SQLite; the lock of the controller | planner, file |
//!
//! Nothing here reads a clock or starts a process: the time is an argument. An entry has one run at a time, and its runs
//! are decided in the order of their numbers, so that the planner needs memory for entries, not for runs.

pub mod file;
pub mod planner;
pub mod state;
pub mod timetable;

pub use file::{Class, Definition, ScheduleError};
pub use planner::{Decision, Entry, MissedReason, Planner, RunName, WaitReason};
pub use state::{Outcome, RunState, State, StateError, StoredEntry, StoredRun};
pub use timetable::Timetable;

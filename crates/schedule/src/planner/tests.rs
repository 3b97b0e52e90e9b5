//! The planner and the state in simulated time: single rules, and days with conflicts, crashes and clock steps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::file;
use crate::state::{Outcome, RunState, State, StoredEntry};

/// 2026-12-04T00:00:00Z.
const START: i64 = 1_796_342_400;
const DAY: i64 = 86_400;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn seconds(time: Timestamp) -> i64 {
    time.as_second() - START
}

/// An entry every `every` seconds from `first` on, with a tolerance of 300 s and an expected duration of 60 s.
fn entry(name: &str, class: &str, hosts: &[&str], first: i64, every: i64, more: &str) -> StoredEntry {
    let text = format!(
        "[[entry]]\nname = \"{name}\"\nexperiment = \"x.ns\"\nclass = \"{class}\"\nfirst = \"{}\"\nevery = \"{every} s\"\n{more}",
        at(first)
    );
    let definition = file::parse(&text).unwrap().remove(0);
    StoredEntry { definition, hosts: hosts.iter().map(|host| (*host).into()).collect(), expected_s: 60 }
}

fn planner(entries: &[StoredEntry], began: i64) -> Planner {
    Planner::new(entries.iter().map(|entry| (entry.plan().unwrap(), 1)), at(began))
}

fn run(name: &str) -> RunName {
    name.parse().unwrap()
}

/// Polls until nothing is to do, and returns the decisions as text.
fn decide(planner: &mut Planner, now: i64) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match planner.poll(at(now)) {
            Decision::Start { run, .. } => lines.push(format!("start {run}")),
            Decision::Missed { entry, numbers, reason, .. } => {
                lines.push(format!("miss {entry}#{}-{}: {reason}", numbers.start(), numbers.end()));
            }
            Decision::Idle(_) => return lines,
        }
        assert!(lines.len() < 1000, "{lines:?}");
    }
}

#[test]
fn classes_decide_which_runs_are_concurrent() {
    let entries = [
        entry("one", "normal", &["a", "b"], 0, DAY, ""),
        entry("two", "normal", &["b", "c"], 0, DAY, ""),
        entry("three", "normal", &["d"], 0, DAY, ""),
        entry("back", "background", &["a", "b", "c"], 0, DAY, ""),
        entry("alone", "exclusive", &["e"], 10, DAY, ""),
        entry("later", "background", &["f"], 20, DAY, ""),
    ];
    let mut planner = planner(&entries, 0);
    assert_eq!(decide(&mut planner, 0), ["start one#1", "start three#1", "start back#1"]);
    assert_eq!(decide(&mut planner, 30), [""; 0], "an exclusive run waits, and later runs wait for it");
    let waits = |planner: &Planner, name: &str| match planner.explain(&run(name), at(30)) {
        WaitReason::Run(blocker) => blocker.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        waits(&planner, "two#1"),
        "one#1 (uses the host `b`, too; expected to end at 2026-12-04T00:01:00Z)"
    );
    let alone = "(one of them runs alone; expected to end at 2026-12-04T00:01:00Z)";
    assert_eq!(waits(&planner, "alone#1"), format!("back#1 {alone}"));
    assert_eq!(waits(&planner, "later#1"), "alone#1 (one of them runs alone; waits itself)");
    assert_eq!(waits(&planner, "one#1"), "Decided");
    assert_eq!(waits(&planner, "one#2"), format!("Time({})", at(DAY)));
    assert_eq!(waits(&planner, "none#1"), "NoSuchRun");

    planner.finish(&run("one#1"));
    assert_eq!(decide(&mut planner, 60), ["start two#1"]);
    planner.finish(&run("two#1"));
    planner.finish(&run("back#1"));
    assert_eq!(decide(&mut planner, 120), [""; 0]);
    planner.finish(&run("three#1"));
    assert_eq!(decide(&mut planner, 121), ["start alone#1"]);
    planner.finish(&run("alone#1"));
    assert_eq!(decide(&mut planner, 122), ["start later#1"]);
}

#[test]
fn a_wait_beyond_the_tolerance_is_missed_with_the_name_of_the_other_run() {
    let entries = [
        entry("long", "exclusive", &[], 0, DAY, ""),
        entry("short", "normal", &["a"], 100, 600, "late = \"200 s\""),
    ];
    let mut planner = planner(&entries, 0);
    assert_eq!(decide(&mut planner, 0), ["start long#1"]);
    assert_eq!(planner.poll(at(0)), Decision::Idle(Some(at(100))));
    assert_eq!(planner.poll(at(100)), Decision::Idle(Some(at(300))));
    let reason = "waited for long#1 (one of them runs alone; expected to end at 2026-12-04T00:01:00Z)";
    assert_eq!(decide(&mut planner, 300), [format!("miss short#1-1: {reason}")]);
    assert_eq!(decide(&mut planner, 700), [""; 0]);
    planner.finish(&run("long#1"));
    assert_eq!(decide(&mut planner, 750), ["start short#2"], "50 s late is within the tolerance");
    // The run itself is too long for its interval.
    assert_eq!(decide(&mut planner, 1300), [""; 0]);
    assert!(
        decide(&mut planner, 1500)[0]
            .starts_with("miss short#3-3: waited for short#2 (an earlier run of the entry")
    );
}

#[test]
fn absence_and_suspension_are_one_row() {
    // A million runs, and the controller begins after 999,990 of them.
    let mut planner = planner(&[entry("a", "normal", &[], 0, 1, "count = 1000000\nlate = \"2 s\"")], 999_990);
    assert_eq!(
        decide(&mut planner, 999_990),
        ["miss a#1-999990: the controller was not running", "start a#999991"]
    );
    planner.finish(&run("a#999991"));
    let skipped = "miss a#999992-999994: the controller was suspended, or the clock was set forward";
    assert_eq!(decide(&mut planner, 999_996), [skipped, "start a#999995"]);
    planner.finish(&run("a#999995"));
    // The clock is set back: nothing runs again.
    assert_eq!(decide(&mut planner, 0), [""; 0]);
    assert_eq!(planner.poll(at(0)), Decision::Idle(Some(at(999_995))));
    let skipped = "miss a#999996-1000000: the controller was suspended, or the clock was set forward";
    assert_eq!(decide(&mut planner, 2_000_000), [skipped]);
    assert_eq!(planner.poll(at(2_000_000)), Decision::Idle(None));
}

// --- Random days

/// A controller that may die, in a simulated world.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The controller is killed, and started again after these seconds.
    Kill(CrashPoint, i64),
    /// The wall clock is set, by these seconds.
    ClockStep(i64),
}

/// Where a controller is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CrashPoint {
    Now,
    /// After the next decision, before it is stored.
    BeforeStore,
    /// After the next start is stored, before the run begins.
    BeforeStart,
    /// After the next run has ended, before that is stored.
    BeforeFinish,
}

struct Simulation {
    state: State,
    entries: Vec<StoredEntry>,
    planner: Option<Planner>,
    /// True time and the error of the wall clock, in seconds.
    now: i64,
    clock_error: i64,
    /// When the controller began, by the wall clock.
    began: i64,
    crash: Option<(CrashPoint, i64)>,
    restart_at: i64,
    /// Running processes and when they end.
    processes: BTreeMap<RunName, i64>,
    started: BTreeSet<RunName>,
    seed: u64,
}

impl Simulation {
    fn wall(&self) -> i64 {
        self.now + self.clock_error
    }

    fn restart(&mut self) {
        for stored in self.state.running().unwrap() {
            let run = RunName { entry: stored.entry, number: *stored.numbers.start() };
            let outcome = Outcome { state: RunState::Interrupted, reason: "killed".into(), records: vec![] };
            self.state.finish(&run, &outcome, at(self.wall())).unwrap();
        }
        self.state.replace_entries(&self.entries).unwrap();
        let entries = self.state.entries().unwrap();
        self.began = self.wall();
        let entries = entries.into_iter().map(|(entry, next)| (entry.plan().unwrap(), next));
        self.planner = Some(Planner::new(entries, at(self.began)));
    }

    /// Kills the controller if it is to be killed here; the system kills its runs with it.
    fn is_killed(&mut self, here: CrashPoint) -> bool {
        match self.crash {
            Some((point, down)) if point == here => {
                self.crash = None;
                self.planner = None;
                self.processes.clear();
                self.restart_at = self.now + down;
                true
            }
            _ => false,
        }
    }

    /// The rules of the classes, written independently of the planner.
    fn may_run_together(a: &StoredEntry, b: &StoredEntry) -> bool {
        let classes = [a.definition.class, b.definition.class];
        if a.definition.name == b.definition.name || classes.contains(&Class::Exclusive) {
            return false;
        }
        classes.contains(&Class::Background) || !a.hosts.iter().any(|host| b.hosts.contains(host))
    }

    fn stored(&self, run: &RunName) -> &StoredEntry {
        self.entries.iter().find(|entry| entry.definition.name == run.entry).unwrap()
    }

    fn begin(&mut self, run: RunName, planned: Timestamp) {
        let entry = self.stored(&run);
        for other in self.processes.keys() {
            assert!(Self::may_run_together(entry, self.stored(other)), "{run} beside {other}");
        }
        let planned = seconds(planned);
        let late = entry.definition.late().unwrap().as_secs();
        assert!(
            (planned..=planned + late).contains(&self.wall()),
            "{run} at {}, planned {planned}",
            self.wall()
        );
        assert!(planned >= self.began, "{run} was planned before the controller began");
        // A duration that is the same in every run of the test, and mostly not the expected one.
        let mixed =
            (self.seed ^ run.number ^ (run.entry.len() as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.processes.insert(run.clone(), self.now + 1 + (mixed >> 40) as i64 % 900);
        assert!(self.started.insert(run.clone()), "{run} ran twice");
    }

    fn end_processes(&mut self) {
        while let Some(run) =
            self.processes.iter().find(|(_, end)| **end <= self.now).map(|(run, _)| run.clone())
        {
            self.processes.remove(&run);
            if self.is_killed(CrashPoint::BeforeFinish) {
                return;
            }
            self.planner.as_mut().unwrap().finish(&run);
            let outcome = Outcome { state: RunState::Done, reason: String::new(), records: vec![1] };
            self.state.finish(&run, &outcome, at(self.wall())).unwrap();
        }
    }

    /// Lets the controller act, and returns the true time of its next action.
    fn act(&mut self) -> i64 {
        if self.planner.is_none() && self.now >= self.restart_at {
            self.restart();
        }
        if self.planner.is_some() {
            self.end_processes();
        }
        loop {
            let now = at(self.wall());
            let Some(planner) = &mut self.planner else { return self.restart_at };
            let decision = planner.poll(now);
            if !matches!(decision, Decision::Idle(_)) && self.is_killed(CrashPoint::BeforeStore) {
                continue;
            }
            match decision {
                Decision::Start { run, planned } => {
                    self.state.start(&run, planned, now).unwrap();
                    if !self.is_killed(CrashPoint::BeforeStart) {
                        self.begin(run, planned);
                    }
                }
                Decision::Missed { entry, numbers, planned, reason } => {
                    let last = RunName { entry: entry.clone(), number: *numbers.end() };
                    let timetable = self.stored(&last).definition.timetable().unwrap();
                    assert!(timetable.time(last.number).unwrap() <= now, "{last} is missed before its time");
                    self.state.miss(&entry, &numbers, planned, &reason, now).unwrap();
                }
                Decision::Idle(until) => {
                    let ends = self.processes.values().copied();
                    let until = until.map(|until| seconds(until) - self.clock_error);
                    assert!(until.is_none_or(|until| until > self.now), "the deadline is in the past");
                    return ends.chain(until).min().unwrap_or(i64::MAX);
                }
            }
        }
    }

    /// Every run up to the last decided one is in exactly one state, and every other one may still start.
    fn check(&self) {
        for (entry, next) in self.state.entries().unwrap() {
            let name = &entry.definition.name;
            let timetable = entry.definition.timetable().unwrap();
            let mut rows = self.state.list(Some(name), u32::MAX).unwrap();
            rows.reverse();
            let mut expected = 1;
            for row in rows {
                assert_eq!(*row.numbers.start(), expected, "{name}");
                assert_eq!(timetable.time(expected), Some(row.planned));
                let run = RunName { entry: name.clone(), number: expected };
                expected = row.numbers.end() + 1;
                let is_process = self.processes.contains_key(&run);
                assert_eq!(row.state == RunState::Running, is_process, "{run} is {}", row.state);
                match row.state {
                    RunState::Missed => {
                        let later = RunName { number: expected, ..run.clone() };
                        assert_eq!(self.started.range(run..later).next(), None);
                    }
                    RunState::Done | RunState::Running => assert!(self.started.contains(&run), "{run}"),
                    RunState::Interrupted => {}
                    RunState::Failed => panic!("no run failed"),
                }
            }
            assert_eq!(expected, next, "{name}");
            let latest = timetable.time(next).map(|planned| planned + entry.definition.late().unwrap());
            assert!(latest.is_none_or(|latest| latest >= at(self.wall())), "{name}#{next} is not decided");
        }
        assert!(self.started.len() as i64 <= DAY, "bounded");
    }
}

fn entries() -> impl Strategy<Value = Vec<StoredEntry>> {
    let class = prop::sample::select(vec!["exclusive", "normal", "normal", "background"]);
    let hosts = prop::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    let one =
        (class, hosts, -7200..7200_i64, 60..7200_i64, 1..1200_i64, 1..4_usize, prop::option::of(1..40_u64));
    prop::collection::vec(one, 1..7).prop_map(|all| {
        let entry = |(at, (class, hosts, first, every, late, steps, count)): (usize, (_, Vec<&str>, _, i64, _, _, Option<u64>))| {
            let values = vec!["\"1\""; steps].join(",");
            let count = count.map_or(String::new(), |count| format!("count = {count}\n"));
            let more = format!(
                "late = \"{late} s\"\n{count}steps = {{ option = \"rate\", values = [{values}], every = \"{} s\" }}",
                every / steps as i64
            );
            entry(&format!("{}{at}", "e".repeat(at)), class, &hosts, first, every, &more)
        };
        all.into_iter().enumerate().map(entry).collect()
    })
}

fn events() -> impl Strategy<Value = Vec<(i64, Event)>> {
    use CrashPoint::*;
    let point = prop::sample::select(vec![Now, BeforeStore, BeforeStart, BeforeFinish]);
    let event = prop_oneof![
        (point, 0..4000_i64).prop_map(|(point, down)| Event::Kill(point, down)),
        (-5000..5000_i64).prop_map(Event::ClockStep),
    ];
    prop::collection::vec((0..DAY, event), 0..12).prop_map(|mut events| {
        events.sort_by_key(|(time, _)| *time);
        events
    })
}

proptest! {
    /// A day of conflicts, crashes and clock steps. No two conflicting runs run at once, no run twice, and every planned run
    /// ends in one state.
    #[test]
    fn a_day_keeps_the_rules(entries in entries(), events in events(), seed in any::<u64>()) {
        let mut simulation = Simulation {
            state: State::in_memory(),
            entries,
            planner: None,
            now: 0,
            clock_error: 0,
            began: 0,
            crash: None,
            restart_at: 0,
            processes: BTreeMap::new(),
            started: BTreeSet::new(),
            seed,
        };
        let mut events = events.into_iter().peekable();
        loop {
            let next = simulation.act().min(events.peek().map_or(DAY, |(time, _)| *time)).min(DAY);
            simulation.now = next.max(simulation.now);
            if simulation.now >= DAY && events.peek().is_none() {
                break;
            }
            while let Some((_, event)) = events.next_if(|(time, _)| *time <= simulation.now) {
                match event {
                    Event::Kill(point, down) if simulation.planner.is_some() => {
                        simulation.crash = Some((point, down));
                        simulation.is_killed(CrashPoint::Now);
                    }
                    Event::Kill(..) => {}
                    Event::ClockStep(step) => simulation.clock_error += step,
                }
            }
        }
        simulation.crash = None;
        simulation.restart_at = simulation.now;
        simulation.act();
        simulation.check();
    }
}

//! Contestants that take turns. Benches of several crates have it as a module of theirs.

#![allow(dead_code, reason = "not every bench needs all of it")]

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Rounds of a contest, unless it has others.
const ROUNDS: usize = 7;

/// A measurement: a figure a round.
type Measure<'a> = Box<dyn Fn() -> f64 + 'a>;

/// Some that do the same.
pub struct Contest<'a> {
    pub name: &'static str,
    unit: &'static str,
    contestants: Vec<(&'static str, Measure<'a>)>,
    rounds: usize,
}

impl<'a> Contest<'a> {
    pub fn new(
        name: &'static str,
        unit: &'static str,
        contestants: Vec<(&'static str, Measure<'a>)>,
    ) -> Contest<'a> {
        Contest { name, unit, contestants, rounds: ROUNDS }
    }

    /// Of so many rounds. Where a processor's speed changes by the second many short ones tell more than few long ones.
    pub fn of_rounds(self, rounds: usize) -> Contest<'a> {
        Contest { rounds, ..self }
    }

    /// Measures and prints.
    pub fn run(&self) {
        let rounds: Vec<Vec<f64>> = (0..self.rounds)
            .map(|_| self.contestants.iter().map(|(_, measure)| measure()).collect())
            .collect();
        println!("\n{:<46}  {:>8}  {:>6}  {:>15}", self.name, self.unit, "ratio", "least to most");
        for (at, (name, _)) in self.contestants.iter().enumerate() {
            let figure = median(rounds.iter().map(|round| round[at]));
            let ratios = sorted(rounds.iter().map(|round| round[at] / round[0]));
            let (least, most) = (ratios[0], ratios[self.rounds - 1]);
            let ratio = ratios[self.rounds / 2];
            println!("  {name:<44}  {figure:>8.3}  {ratio:>6.3}  {least:>6.3} – {most:>6.3}");
        }
    }
}

pub fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let figures = sorted(figures);
    figures[figures.len() / 2]
}

/// Keeps this thread, and those that it starts, on one core.
pub fn pin(core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(core % cores.max(2)).expect("a core's number is small");
    // Where there is only one core they share it.
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
}

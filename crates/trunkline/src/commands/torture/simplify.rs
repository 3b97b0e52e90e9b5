//! Reduces a failure: removes options one at a time while the exchange with the same seed still fails.

use trunkline_run::StopFlag;
use trunkline_units::Span;

use super::path;
use super::trial::Trial;
use crate::flags::{Crashes, Torture};

/// Maximum number of attempts.
const MAX_TRIES: usize = 100;

/// Returns the command of a simpler exchange that fails; `None` if there is none.
pub fn find(flags: &Torture, seed: u64, stop: &StopFlag) -> Option<String> {
    let mut simplest = flags.clone();
    let (mut tries, mut found) = (0, false);
    'simpler: loop {
        for simpler in steps(&simplest, &Trial::draw(seed, &simplest)) {
            tries += 1;
            if tries > MAX_TRIES || stop.is_requested() {
                break 'simpler;
            }
            if path::in_memory(&Trial::draw(seed, &simpler), stop).is_err() {
                (simplest, found) = (simpler, true);
                continue 'simpler;
            }
        }
        break;
    }
    found.then(|| simplest.repeat(seed))
}

/// Returns the variants with one option removed.
fn steps(flags: &Torture, trial: &Trial) -> Vec<Torture> {
    let with = |change: &dyn Fn(&mut Torture)| {
        let mut simpler = flags.clone();
        change(&mut simpler);
        simpler
    };
    let any = |share: &dyn Fn(usize) -> f64| (0..2).any(|end| share(end) > 0.0);
    let faults = &trial.faults;
    let mut steps = Vec::new();
    if trial.death.is_some() {
        steps.push(with(&|simpler| simpler.deaths = Some(Crashes::Never)));
    }
    if any(&|end| faults[end].drop) {
        steps.push(with(&|simpler| simpler.drop = Some(0.0)));
    }
    if any(&|end| faults[end].damage) {
        steps.push(with(&|simpler| simpler.damage = Some(0.0)));
    }
    if any(&|end| faults[end].duplicate) {
        steps.push(with(&|simpler| simpler.duplicate = Some(0.0)));
    }
    if any(&|end| faults[end].reorder) {
        steps.push(with(&|simpler| simpler.reorder = Some(0.0)));
    }
    if faults.iter().any(|faults| !faults.delay.is_zero()) {
        steps.push(with(&|simpler| simpler.delay = Some(Span::ZERO)));
    }
    if trial.channels > 1 {
        steps.push(with(&|simpler| simpler.channels = Some(1)));
    }
    for messages in [trial.messages / 2, trial.messages - 1] {
        if messages > 0 {
            steps.push(with(&|simpler| simpler.messages = Some(messages)));
        }
    }
    if trial.longest > 1 {
        steps.push(with(&|simpler| simpler.size = Some(trial.longest / 2)));
    }
    steps
}

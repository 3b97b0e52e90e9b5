//! Reduces a failure: removes options one at a time while the exchange with the same seed still fails.

use trunkline_arq::torture::Faults;
use trunkline_run::StopFlag;
use trunkline_units::Span;

use super::path;
use super::trial::Trial;
use crate::flags::{Crashes, Torture};

/// Removes an option.
type Change<'a> = &'a dyn Fn(&mut Torture);

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
    let any = |is: fn(&Faults) -> bool| trial.faults.iter().any(is);
    let Trial { messages, longest, channels, death, .. } = *trial;
    let changes: [(bool, Change<'_>); 10] = [
        (death.is_some(), &|simpler| simpler.deaths = Some(Crashes::Never)),
        (any(|faults| faults.drop > 0.0), &|simpler| simpler.drop = Some(0.0)),
        (any(|faults| faults.damage > 0.0), &|simpler| simpler.damage = Some(0.0)),
        (any(|faults| faults.duplicate > 0.0), &|simpler| simpler.duplicate = Some(0.0)),
        (any(|faults| faults.reorder > 0.0), &|simpler| simpler.reorder = Some(0.0)),
        (any(|faults| !faults.delay.is_zero()), &|simpler| simpler.delay = Some(Span::ZERO)),
        (channels > 1, &|simpler| simpler.channels = Some(1)),
        (messages > 1, &|simpler| simpler.messages = Some(messages / 2)),
        (messages > 1, &|simpler| simpler.messages = Some(messages - 1)),
        (longest > 1, &|simpler| simpler.size = Some(longest / 2)),
    ];
    let apply = |(_, change): (bool, Change<'_>)| {
        let mut simpler = flags.clone();
        change(&mut simpler);
        simpler
    };
    changes.into_iter().filter(|(applies, _)| *applies).map(apply).collect()
}

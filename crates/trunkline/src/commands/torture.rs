//! `trunkline torture`: the guaranteed transport under faults, with an oracle that checks every byte.
//!
//! | module | contents |
//! | --- | --- |
//! | [`trial`] | what an exchange is, drawn from its seed |
//! | [`party`] | who sends and takes at its ends, and knows what must come |
//! | [`path`] | what lies between: simulated time, or sockets of the loopback |
//! | [`simpler`] | a failure with as little as possible about it |

mod party;
mod path;
mod simpler;
mod trial;

use serde_json::json;

use super::pool;
use super::run::stop_on_signals;
use crate::failure::{Failure, print};
use crate::flags::{ExchangeMedium, Torture};
use path::{ExchangeResult, Outcome};
use trial::Trial;

/// Version of what `--json` prints.
const VERSION: u32 = 1;
/// The property of every exchange.
const CLEAN: &str = "nothing lost, nothing twice, nothing out of order, nothing wrong";
/// Failures that are printed; further ones are only counted.
const MOST_TOLD: usize = 5;

/// A failed exchange.
struct Finding {
    trial: Trial,
    why: String,
    /// The command of a simpler exchange that fails, too; only searched once, and in memory.
    simpler: Option<String>,
}

/// The results of all exchanges.
struct Total {
    asked: usize,
    exchanges: usize,
    did: ExchangeResult,
    findings: Vec<Finding>,
}

/// Runs the exchanges and reports failures.
pub fn torture(flags: &Torture) -> Result<(), Failure> {
    let (seeds, threads) = match flags.on {
        ExchangeMedium::Memory => (flags.seeds.unwrap_or(1000), pool::threads(flags.threads)),
        // Each exchange has two threads and runs in real time.
        ExchangeMedium::Loopback => (flags.seeds.unwrap_or(10), 1),
    };
    if flags.seed.checked_add(seeds).is_none() {
        return Err(Failure::input("--seed and --seeds go past the last seed there is"));
    }
    let stop = stop_on_signals()?;
    let trial = |run: usize| Trial::draw(flags.seed + run as u64, flags);
    let outcomes = pool::run_all("torture", seeds as usize, threads, &stop, |run| {
        let outcome: Outcome = match flags.on {
            ExchangeMedium::Memory => path::in_memory(&trial(run), &stop),
            ExchangeMedium::Loopback => path::on_loopback(&trial(run), &stop),
        };
        outcome.transpose()
    });
    let mut total =
        Total { asked: outcomes.len(), exchanges: 0, did: ExchangeResult::default(), findings: Vec::new() };
    for (run, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Some(Ok(did)) => total.did.add(&did),
            Some(Err(why)) => total.findings.push(Finding { trial: trial(run), why, simpler: None }),
            None => continue,
        }
        total.exchanges += 1;
    }
    if let (ExchangeMedium::Memory, Some(finding)) = (flags.on, total.findings.first_mut()) {
        finding.simpler = simpler::find(flags, finding.trial.seed, &stop);
    }
    print(&if flags.json { total.json(flags) } else { total.text(flags) })?;
    match total.findings.len() {
        0 if total.exchanges < total.asked => Err(Failure::run("stopped on request")),
        0 => Ok(()),
        failed => Err(Failure::run(format!("{failed} of {} exchanges failed", total.exchanges))),
    }
}

impl Total {
    fn text(&self, flags: &Torture) -> String {
        let ExchangeResult { messages, bytes, path, ref counters, deaths } = self.did;
        let count = |name: &str| counters.get(name).copied().unwrap_or_default();
        let stopped = if self.exchanges < self.asked { format!(" of {}", self.asked) } else { String::new() };
        let mut text = format!(
            "torture  {}  {}{stopped} exchanges  from seed {}\n\n",
            flags.on.name(),
            self.exchanges,
            flags.seed
        );
        for (what, number) in [
            ("messages", messages),
            ("bytes", bytes),
            ("frames", path.sent),
            ("lost", path.dropped),
            ("damaged", path.corrupted),
            ("duplicated", path.duplicated),
            ("held back", path.reordered),
            ("resent", count("frames_resent")),
            ("nacks", count("nacks_sent")),
            ("timeouts", count("timeouts")),
            ("bad checksums", count("bad_checksums")),
            ("ends that died", deaths),
        ] {
            text += &format!("{what:<14}  {number:>14}\n");
        }
        for Finding { trial, why, simpler } in self.findings.iter().take(MOST_TOLD) {
            let command = flags.repeat(trial.seed);
            text += &format!("\nseed {}: {why}\n{trial:?}\nagain: {command}\n", trial.seed);
            text += &simpler.as_ref().map(|simpler| format!("simpler: {simpler}\n")).unwrap_or_default();
        }
        match self.findings.len() {
            0 if self.exchanges == 0 => text,
            0 => text + "\n" + CLEAN + "\n",
            n if n > MOST_TOLD => text + &format!("\nand {} more\n", n - MOST_TOLD),
            _ => text,
        }
    }

    fn json(&self, flags: &Torture) -> String {
        let ExchangeResult { messages, bytes, path, ref counters, deaths } = self.did;
        let finding = |f: &Finding| {
            let (seed, options) = (f.trial.seed, format!("{:?}", f.trial));
            let again = flags.repeat(seed);
            json!({ "seed": seed, "why": f.why, "options": options, "again": again, "simpler": f.simpler })
        };
        let findings: Vec<_> = self.findings.iter().map(finding).collect();
        let whole = json!({
            "version": VERSION, "on": flags.on.name(), "first_seed": flags.seed,
            "asked": self.asked, "exchanges": self.exchanges, "messages": messages, "bytes": bytes,
            "path": {
                "frames": path.sent, "lost": path.dropped, "damaged": path.corrupted,
                "duplicated": path.duplicated, "held_back": path.reordered,
            },
            "counters": counters,
            "deaths": deaths,
            "partial": self.exchanges < self.asked,
            "findings": findings,
        });
        format!("{whole:#}\n")
    }
}

//! `trunkline torture`: the guaranteed transport under faults, with an oracle that checks every byte.
//!
//! | module | contents |
//! | --- | --- |
//! | [`trial`] | the parameters of an exchange, drawn from its seed |
//! | [`participant`] | the user at each end, which sends messages and checks received ones |
//! | [`path`] | the network between the ends: simulated, or loopback sockets |
//! | [`simplify`] | reduction of a failure to fewer options |

mod participant;
mod path;
mod simplify;
mod trial;

use serde_json::json;

use super::pool;
use super::run::stop_on_signals;
use crate::failure::{Failure, print};
use crate::flags::{ExchangeMedium, Torture};
use path::{ExchangeResult, Outcome};
use trial::Trial;

/// Version of the JSON output.
const VERSION: u32 = 1;
/// Printed if no exchange failed.
const SUCCESS: &str = "no message was lost, duplicated, reordered or corrupted";
/// Maximum number of printed failures; further ones are only counted.
const MAX_PRINTED: usize = 5;

/// A failed exchange.
struct Finding {
    trial: Trial,
    error: String,
    /// The command of a simpler exchange that fails, too; only searched for the first failure, in memory.
    simpler: Option<String>,
}

/// The results of all exchanges.
struct Total {
    requested: usize,
    exchanges: usize,
    result: ExchangeResult,
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
        return Err(Failure::input("--seed plus --seeds exceeds the largest seed"));
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
    let mut total = Total {
        requested: outcomes.len(),
        exchanges: 0,
        result: ExchangeResult::default(),
        findings: Vec::new(),
    };
    for (run, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Some(Ok(result)) => total.result.add(&result),
            Some(Err(error)) => total.findings.push(Finding { trial: trial(run), error, simpler: None }),
            None => continue,
        }
        total.exchanges += 1;
    }
    if let (ExchangeMedium::Memory, Some(finding)) = (flags.on, total.findings.first_mut()) {
        finding.simpler = simplify::find(flags, finding.trial.seed, &stop);
    }
    print(&if flags.json { total.json(flags) } else { total.text(flags) })?;
    match total.findings.len() {
        0 if total.exchanges < total.requested => Err(Failure::run("stopped on request")),
        0 => Ok(()),
        failed => Err(Failure::run(format!("{failed} of {} exchanges failed", total.exchanges))),
    }
}

impl Total {
    fn text(&self, flags: &Torture) -> String {
        let ExchangeResult { messages, bytes, path, ref counters, deaths } = self.result;
        let count = |name: &str| counters.get(name).copied().unwrap_or_default();
        let stopped =
            if self.exchanges < self.requested { format!(" of {}", self.requested) } else { String::new() };
        let mut text = format!(
            "torture  {}  {}{stopped} exchanges  from seed {}\n\n",
            flags.on.name(),
            self.exchanges,
            flags.seed
        );
        for (label, number) in [
            ("messages", messages),
            ("bytes", bytes),
            ("frames", path.sent),
            ("lost", path.dropped),
            ("corrupted", path.corrupted),
            ("duplicated", path.duplicated),
            ("reordered", path.reordered),
            ("retransmitted", count("frames_resent")),
            ("nacks", count("nacks_sent")),
            ("timeouts", count("timeouts")),
            ("bad checksums", count("bad_checksums")),
            ("crashes", deaths),
        ] {
            text += &format!("{label:<14}  {number:>14}\n");
        }
        for Finding { trial, error, simpler } in self.findings.iter().take(MAX_PRINTED) {
            let command = flags.repeat(trial.seed);
            text += &format!("\nseed {}: {error}\n{trial:?}\nrepeat: {command}\n", trial.seed);
            text += &simpler.as_ref().map(|simpler| format!("simpler: {simpler}\n")).unwrap_or_default();
        }
        match self.findings.len() {
            0 if self.exchanges == 0 => text,
            0 => text + "\n" + SUCCESS + "\n",
            n if n > MAX_PRINTED => text + &format!("\nand {} more\n", n - MAX_PRINTED),
            _ => text,
        }
    }

    fn json(&self, flags: &Torture) -> String {
        let ExchangeResult { messages, bytes, path, ref counters, deaths } = self.result;
        let finding = |f: &Finding| {
            let (seed, options) = (f.trial.seed, format!("{:?}", f.trial));
            let command = flags.repeat(seed);
            json!({ "seed": seed, "why": f.error, "options": options, "again": command, "simpler": f.simpler })
        };
        let findings: Vec<_> = self.findings.iter().map(finding).collect();
        let whole = json!({
            "version": VERSION, "on": flags.on.name(), "first_seed": flags.seed,
            "asked": self.requested, "exchanges": self.exchanges, "messages": messages, "bytes": bytes,
            "path": {
                "frames": path.sent, "lost": path.dropped, "damaged": path.corrupted,
                "duplicated": path.duplicated, "held_back": path.reordered,
            },
            "counters": counters,
            "deaths": deaths,
            "partial": self.exchanges < self.requested,
            "findings": findings,
        });
        format!("{whole:#}\n")
    }
}

//! What may be said on the command line.

use crate::{FIGURES, Outcome};

/// How much to measure.
#[derive(Debug)]
pub struct Options {
    /// Rounds of each contest; in each, every tool runs once.
    pub rounds: usize,
    /// Seconds a run lasts.
    pub seconds: u64,
    /// Runs of `poisson`.
    pub poisson_runs: usize,
    /// Seconds of each of them.
    pub poisson_seconds: u64,
    /// Seeds of each application model.
    pub model_seeds: usize,
    /// Seconds of each of them.
    pub model_seconds: u64,
    /// Only these models; all if there are none.
    model_names: Vec<String>,
    /// A capture to replay.
    pub replay: Option<String>,
    /// Only these figures; all if there are none.
    only: Vec<String>,
    /// Whether to write `docs/benchmarks.md`.
    pub write: bool,
    /// The flags as they were said.
    pub said: String,
}

const USAGE: &str = "cargo bench -p trunkline --bench figures -- [--rounds N] [--seconds N] [--poisson-runs N] \
                     [--poisson-seconds N] [--model-seeds N] \
                     [--model-seconds N] [--model NAME]… [--replay FILE] [--only FIGURE]… [--quick] [--write]";

impl Options {
    /// Reads the flags; the last word on a thing counts.
    pub fn read(arguments: &[String]) -> Outcome<Self> {
        let mut options = Options {
            rounds: 5,
            seconds: 3,
            poisson_runs: 100,
            poisson_seconds: 2,
            model_seeds: 100,
            model_seconds: 10,
            model_names: Vec::new(),
            replay: None,
            only: Vec::new(),
            write: false,
            said: String::new(),
        };
        let mut words = arguments.iter().map(String::as_str).filter(|&word| word != "--bench"); // Cargo's own
        while let Some(word) = words.next() {
            options.said = format!("{} {word}", options.said);
            let mut value = || {
                let value = words.next().ok_or_else(|| format!("{word} wants a value; {USAGE}"))?;
                options.said = format!("{} {value}", options.said);
                Ok::<_, String>(value)
            };
            match word {
                "--rounds" => options.rounds = count(word, value()?)?,
                "--seconds" => options.seconds = count(word, value()?)? as u64,
                "--poisson-runs" => options.poisson_runs = count(word, value()?)?,
                "--poisson-seconds" => options.poisson_seconds = count(word, value()?)? as u64,
                "--model-seeds" => options.model_seeds = count(word, value()?)?,
                "--model-seconds" => options.model_seconds = count(word, value()?)? as u64,
                "--model" => options.model_names.push(value()?.to_owned()),
                "--replay" => options.replay = Some(value()?.to_owned()),
                "--only" => options.only.push(figure(value()?)?),
                "--quick" => {
                    (options.rounds, options.seconds, options.poisson_runs) = (3, 1, 10);
                    (options.model_seeds, options.model_seconds) = (10, 3);
                }
                "--write" => options.write = true,
                _ => return Err(format!("there is no {word}; {USAGE}")),
            }
        }
        Ok(options)
    }

    /// Whether a figure is to be measured.
    pub fn wants(&self, figure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == figure)
    }

    /// Whether a model is to be measured.
    pub fn wants_model(&self, model: &str) -> bool {
        self.model_names.is_empty() || self.model_names.iter().any(|name| name == model)
    }
}

fn count(flag: &str, text: &str) -> Outcome<usize> {
    let number = text.parse().ok().filter(|&n| n > 0);
    number.ok_or_else(|| format!("{flag} wants a number above 0, not `{text}`"))
}

fn figure(name: &str) -> Outcome<String> {
    let names = FIGURES.map(|(name, _)| name);
    let known = names.contains(&name);
    known.then(|| name.to_owned()).ok_or_else(|| format!("--only wants one of {}", names.join(", ")))
}

//! The entries of a schedule file as commands: every experiment is read and checked once with each value of its steps, so
//! that a mistake is reported now and not at night.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use trunkline_experiment::{Plan, apply_overrides};
use trunkline_run::Backend;
use trunkline_run::backend::expected_duration;
use trunkline_schedule::{Definition, RunName, StoredEntry, file};

use crate::commands::run::prepare;
use crate::failure::Failure;
use crate::flags::{Command, Flags, Run};

/// Time limit of a run whose duration is unknown.
const DEFAULT_LIMIT_S: u64 = 3600;

/// An entry that can run.
pub struct Job {
    /// The entry with its hosts and its expected duration.
    pub entry: StoredEntry,
    /// Time limit of a run.
    pub limit: Duration,
    /// The experiment file.
    experiment: PathBuf,
}

/// Reads a schedule file and checks its experiments.
pub fn read(path: &Path) -> Result<Vec<Job>, Failure> {
    let definitions = file::read(path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    definitions.into_iter().map(|definition| Job::new(definition, folder)).collect()
}

impl Job {
    fn new(definition: Definition, folder: &Path) -> Result<Job, Failure> {
        let experiment = folder.join(&definition.experiment);
        let entry = StoredEntry { definition, hosts: Vec::new(), expected_s: 0 };
        let mut job = Job { entry, limit: Duration::ZERO, experiment };
        let flags = job.flags()?;
        let (experiment, backends) = prepare(&flags).map_err(|failure| job.failure(failure))?;
        if flags.on.iter().any(|on| on == "live") {
            let hosts = experiment.plan.hosts.iter();
            job.entry.hosts = hosts.map(|host| address_or_name(&flags, host)).collect();
        }
        let mut expected = Some(0);
        for step in 0..job.entry.definition.runs_per_round() {
            let plan = job.plan(&experiment.plan, step, &backends).map_err(|failure| job.failure(failure))?;
            let duration = expected_duration(&plan).map(|span| span.as_ns().div_ceil(1_000_000_000));
            expected = expected.zip(duration).map(|(longest, duration)| longest.max(duration));
        }
        // Twice the duration leaves time for messages in flight and for slow machines.
        let default_s = expected.map_or(DEFAULT_LIMIT_S, |expected| expected.saturating_mul(2) + 60);
        let limit = job.entry.definition.limit().map_err(Failure::input)?;
        job.limit = limit.map_or(Duration::from_secs(default_s), |limit| limit.unsigned_abs());
        job.entry.expected_s = expected.unwrap_or(job.limit.as_secs()).min(job.limit.as_secs()).max(1);
        Ok(job)
    }

    /// Returns the plan of a step, from that of the first step, which has the same options with other values.
    fn plan(&self, first: &Plan, step: usize, backends: &[Box<dyn Backend>]) -> Result<Plan, Failure> {
        let mut plan = first.clone();
        apply_overrides(&mut plan, self.entry.definition.overrides(step)).map_err(Failure::input)?;
        let refusal = backends.iter().find_map(|backend| backend.refuse(&plan).into_iter().next());
        refusal.map_or(Ok(plan), |refusal| Err(Failure::input(refusal.text)))
    }

    /// Returns the note in the record of a run.
    pub fn note(&self, run: &RunName) -> String {
        let planned = self.entry.definition.timetable().ok().and_then(|times| times.time(run.number));
        format!("{run}, planned {}", planned.map_or(String::new(), |planned| planned.to_string()))
    }

    /// Returns the arguments of `trunkline` for a step of a round.
    pub fn arguments(&self, step: usize) -> Vec<OsString> {
        let definition = &self.entry.definition;
        let mut arguments = vec!["run".into(), self.experiment.clone().into_os_string()];
        let mut option = |name: &str, value: String| arguments.push(format!("--{name}={value}").into());
        option("on", definition.on.clone());
        definition.seed.iter().for_each(|seed| option("seed", seed.to_string()));
        definition.at.iter().for_each(|(host, address)| option("at", format!("{host}={address}")));
        definition.overrides(step).for_each(|(name, value)| option("set", format!("{name}={value}")));
        arguments
    }

    /// Parses the arguments of the first step as the process of the run will.
    fn flags(&self) -> Result<Run, Failure> {
        let arguments = [OsString::from("trunkline")].into_iter().chain(self.arguments(0));
        match Flags::try_parse_from(arguments) {
            Ok(Flags { command: Command::Run(flags) }) => Ok(flags),
            Ok(_) => unreachable!("the first argument is `run`"),
            Err(error) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                Err(self.failure(Failure::input(line.trim_start_matches("error: "))))
            }
        }
    }

    /// Adds the name of the entry to a failure.
    fn failure(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Input(reason) => {
                Failure::Input(format!("entry `{}`: {reason}", self.entry.definition.name))
            }
            other => other,
        }
    }
}

/// Returns the address of a placed host, otherwise its name: runs with one of them in common share a host.
fn address_or_name(flags: &Run, host: &str) -> String {
    let address = flags.at.iter().find(|(name, _)| name == host).map(|(_, placement)| placement.to_string());
    address.unwrap_or_else(|| host.to_owned())
}

//! `trunkline test`: a test of one host without a file. It is an experiment underneath.
//!
//! | module | contents |
//! | --- | --- |
//! | [`text`] | the flags as the text of an experiment |
//! | [`lines`] | the line of each interval, from what the ends report while they run |
//! | [`result`] | the result of both ends |

mod lines;
mod result;
mod text;

use std::net::IpAddr;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_io::usage;
use trunkline_record::{Archive, Record, RunId, export};
use trunkline_run::{Backend, RunOptions};
use trunkline_units::Seed;

use self::lines::Lines;
use super::hosts::live_backend;
use super::run::{PARTIAL_RESULTS_STORED, check_outcome, stop_on_signals};
use crate::archive;
use crate::failure::{Failure, print};
use crate::flags::test::Test;
use crate::flags::values::Placement;

/// The host of this side in the experiment.
const THIS_HOST: &str = "here";
const OTHER_HOST: &str = "there";

/// Tests the connection to a host and shows the result.
pub fn test(flags: &Test) -> Result<(), Failure> {
    let target = Target::find(&flags.host)?;
    let text = text::experiment(flags, target.agent());
    let plan = plan(&text)?;
    let mut live = live_backend(&plan, &target.placements(), &flags.keys)?;
    if let Some(refusal) = live.refuse(&plan).first() {
        return Err(Failure::input(&refusal.text));
    }
    if flags.print {
        return print(&text);
    }
    let options = RunOptions {
        seed: Seed::default(),
        text,
        started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        folder: ".".into(),
        out: std::env::temp_dir(),
        stop: stop_on_signals()?,
    };
    let archive = (!flags.no_archive).then(|| archive::open(&flags.archive)).transpose()?;
    let begin =
        |archive: &Archive| archive.begin(&live.planned_record(&plan, &options)).map_err(Failure::run);
    let id = archive.as_ref().map(begin).transpose()?;
    let mut lines = Lines::new(&plan, if flags.json { None } else { Some(flags.interval) });
    let record = live.run(&plan, &options, &mut lines);
    lines.finish();
    let stored = archive.as_ref().zip(id).map_or(Ok(()), |(archive, id)| archive.finish(id, &record));
    let shown = show(flags, &lines, &record, id);
    stored.map_err(Failure::run)?;
    check_outcome(
        &[record],
        if flags.no_archive { "the partial results are not stored" } else { PARTIAL_RESULTS_STORED },
    )?;
    shown
}

/// Shows the result on standard output.
fn show(flags: &Test, lines: &Lines<'_>, record: &Record, id: Option<RunId>) -> Result<(), Failure> {
    if flags.json {
        let mut json = Vec::new();
        export::write_json(std::slice::from_ref(record), &mut json)?;
        return print(&json);
    }
    // Without a message the error says all.
    let has_messages = record.connections.iter().any(|c| c.messages_sent > 0);
    let mut text = if has_messages { result::result(record, lines.outcomes()) } else { String::new() };
    if let Some(RunId(id)) = id {
        text += &format!("Stored as run {id}: `trunkline report {id}` shows it all\n");
    }
    print(&text)
}

/// Parses the text of the experiment. What is wrong with it follows from a flag, so the text is not shown.
fn plan(text: &str) -> Result<Plan, Failure> {
    let parsed = parse(&Source { name: "test", text, folder: None });
    let problem = parsed.diagnostics.first().map_or("the experiment is invalid".to_owned(), |d| d.line());
    parsed.plan.ok_or_else(|| Failure::input(problem))
}

/// The other end of a test.
enum Target {
    /// It runs on this machine, at this address if one was given.
    Local(Option<IpAddr>),
    /// It runs on the agent with this name.
    Agent(String),
}

impl Target {
    /// Finds the host that the command line names.
    fn find(host: &str) -> Result<Target, Failure> {
        if host == "local" {
            return Ok(Target::Local(None));
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if usage::interface_of(address).is_none() => Err(Failure::input(format!(
                "host {address}: this is no address of this machine; another one needs an agent, by its name in \
                 `trunkline keys list`"
            ))),
            Ok(address) => Ok(Target::Local(Some(address))),
            Err(_) => Ok(Target::Agent(host.strip_prefix("agent:").unwrap_or(host).to_owned())),
        }
    }

    /// Returns the agent of the other end.
    fn agent(&self) -> Option<&str> {
        match self {
            Target::Agent(name) => Some(name),
            Target::Local(_) => None,
        }
    }

    /// Returns where the hosts are that the experiment does not place itself.
    fn placements(&self) -> Vec<(String, Placement)> {
        let Target::Local(Some(address)) = self else { return Vec::new() };
        [THIS_HOST, OTHER_HOST].map(|host| (host.to_owned(), Placement::Address(*address))).into()
    }
}

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

use std::collections::BTreeMap;
use std::net::IpAddr;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_io::usage;
use trunkline_live::{Live, Processes};
use trunkline_record::{Archive, Record, RunId, export};
use trunkline_run::{Backend, RunOptions};
use trunkline_units::Seed;

use self::lines::Lines;
use super::run::{check_outcome, stop_on_signals};
use crate::archive;
use crate::failure::{Failure, print};
use crate::flags::test::Test;

/// The host of this side in the experiment.
const THIS_HOST: &str = "here";

/// Tests the connection to a host and shows the result.
pub fn test(flags: &Test) -> Result<(), Failure> {
    let target = Target::find(&flags.host)?;
    let text = text::experiment(flags, &target.name);
    let plan = plan(&text)?;
    let mut live = backend(target)?;
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
    check_outcome(&[record])?;
    shown
}

/// Shows the result on standard output.
fn show(flags: &Test, lines: &Lines<'_>, record: &Record, id: Option<RunId>) -> Result<(), Failure> {
    if flags.json {
        let mut json = Vec::new();
        export::write_json(std::slice::from_ref(record), &mut json)?;
        return print(&json);
    }
    let mut text = result::result(record, lines.outcomes());
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
struct Target {
    /// Its host in the experiment.
    name: String,
    /// The address of both hosts, if one was given.
    address: Option<IpAddr>,
}

impl Target {
    /// Finds the host that the command line names. Hosts on other machines belong here.
    fn find(host: &str) -> Result<Target, Failure> {
        let address = match host {
            "local" => None,
            address => Some(
                address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().map_err(|_| {
                    Failure::input(format!("host `{host}`: expected `local` or an address of this machine"))
                })?,
            ),
        };
        match address {
            Some(address) if usage::interface_of(address).is_none() => {
                Err(Failure::input(format!("host {address}: this is not an address of this machine")))
            }
            _ => Ok(Target { name: "there".into(), address }),
        }
    }
}

/// Returns the backend that reaches the target.
fn backend(target: Target) -> Result<Live, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find the path of this program: {e}")))?;
    let hosts = [THIS_HOST.to_owned(), target.name];
    let assigned: BTreeMap<String, IpAddr> =
        hosts.into_iter().filter_map(|host| Some((host, target.address?))).collect();
    Ok(Live::new(Box::new(Processes { program }), assigned))
}

//! `trunkline lab`: the network of an experiment on this machine, without its connections.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGQUIT};
use trunkline_lab::session::{RunningHost, RunningLab, running};
use trunkline_lab::{CaptureOptions, Lab, Programs, Session, containerlab, enter_user_namespace};
use trunkline_sim::capture;
use trunkline_units::Seed;

use super::experiment::Experiment;
use super::run::{out_folder, stop_on_signals};
use crate::failure::{Failure, print};
use crate::flags::lab::{Action, Enter, Export, Open};

/// How often the status line is written, and the request to stop is looked at.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Width of the status line on a terminal whose width is unknown.
const DEFAULT_WIDTH: usize = 80;

/// Opens a lab, or does something with one.
pub fn lab(flags: &crate::flags::lab::Lab) -> Result<(), Failure> {
    match &flags.action {
        None => open(&flags.open),
        Some(Action::Enter(flags)) => enter(flags),
        Some(Action::List) => list(),
        Some(Action::Export(flags)) => export(flags),
    }
}

/// Opens the network of an experiment until the command is interrupted.
#[expect(clippy::disallowed_methods, reason = "a lab runs in real time")]
fn open(flags: &Open) -> Result<(), Failure> {
    let file = flags.file.as_ref().ok_or_else(|| Failure::input("give an experiment file"))?;
    let experiment = Experiment::read(file, &flags.overrides)?;
    enter_user_namespace().map_err(Failure::run)?;
    let stop = stop_on_signals()?;
    let plan = &experiment.plan;
    if plan.network.is_none() {
        return Err(Failure::input("the experiment has no network"));
    }
    let refused = |network| flags.trace.iter().find_map(|name| capture::refuse(name, network));
    plan.network.as_ref().and_then(refused).map_or(Ok(()), |text| Err(Failure::input(text)))?;
    let out = out_folder(&flags.out, &plan.name).join("lab");
    let captures = CaptureOptions { names: flags.trace.clone(), folder: out.clone() };
    let lab = Lab::start_captured(plan, Seed(flags.seed), &captures).map_err(Failure::run)?;
    let session = Session::start(&plan.name, &lab).map_err(Failure::run)?;
    let programs = Programs::start(plan, &lab, &session, &out).map_err(Failure::run)?;
    print(&host_lines(&plan.name, lab.hosts().iter().map(|host| (&host.name[..], host.address))))?;
    let is_terminal = io::stdout().is_terminal();
    let (mut before, mut written) = (lab.link_bytes(), Instant::now());
    while !stop.is_requested() && lab.is_running() {
        std::thread::sleep(CHECK_INTERVAL);
        if is_terminal && written.elapsed() >= STATUS_INTERVAL {
            let now = lab.link_bytes();
            let line = status(&before, &now, written.elapsed());
            write!(io::stdout(), "\r\x1b[2K{line}").and_then(|()| io::stdout().flush())?;
            (before, written) = (now, Instant::now());
        }
    }
    if is_terminal {
        writeln!(io::stdout())?;
    }
    let failures = programs.finish(false, &stop);
    drop(session);
    let report = lab.finish().map_err(Failure::run)?;
    report.capture_error.map_or(Ok(()), |error| Err(Failure::run(error)))?;
    if report.capture_drops > 0 {
        let _ = writeln!(io::stderr(), "warning: the captures lack {} packets", report.capture_drops);
    }
    failures.into_iter().next().map_or(Ok(()), |failure| Err(Failure::run(failure)))
}

/// Returns a line for each host and how to enter one.
fn host_lines<'a>(name: &str, hosts: impl Iterator<Item = (&'a str, std::net::Ipv4Addr)>) -> String {
    let mut text = format!("{name}: the network is open; Ctrl-C removes it\n");
    let mut first = None;
    for (host, address) in hosts {
        text += &format!("  {address:<12} {host}\n");
        first.get_or_insert(host);
    }
    if let Some(host) = first {
        text += &format!("Enter a host from another terminal: trunkline lab enter {host}\n");
    }
    text
}

/// Returns the rates of the links that carry most, as many as fit into a line.
fn status(before: &[(String, [u64; 2])], now: &[(String, [u64; 2])], elapsed: Duration) -> String {
    let width = super::report::terminal_width().map_or(DEFAULT_WIDTH, usize::from);
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 * 8.0 / elapsed.as_secs_f64() / 1e6;
    let mut links: Vec<(f64, f64, &str)> = before
        .iter()
        .zip(now)
        .map(|((name, b), (_, n))| (rate(b[0], n[0]), rate(b[1], n[1]), &name[..]))
        .collect();
    links.sort_by(|x, y| (y.0 + y.1).total_cmp(&(x.0 + x.1)));
    let mut line = String::new();
    for (there, back, name) in links {
        let link = format!("{name} {there:.2} > < {back:.2} Mb/s   ");
        if line.chars().count() + link.chars().count() >= width {
            break;
        }
        line += &link;
    }
    line
}

/// Runs a shell or a command on a host of a running lab, and ends with its status.
fn enter(flags: &Enter) -> Result<(), Failure> {
    let lab = find(flags)?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let (program, arguments) = match flags.command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => (shell.as_str(), &[][..]),
    };
    let entered = lab.enter(&flags.host, program);
    let mut command = entered.map_err(|e| Failure::run(format!("cannot enter {}: {e}", flags.host)))?;
    // The terminal signals the command too, which decides what they mean.
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::default())
            .map_err(|e| Failure::run(format!("cannot handle signals: {e}")))?;
    }
    let status = command
        .args(arguments)
        .env("TRUNKLINE_HOST", &flags.host)
        .env("PS1", format!("{}$ ", flags.host))
        .status()
        .map_err(|error| Failure::run(format!("cannot run {program}: {error}")))?;
    // As a shell reports a signal.
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
}

/// Returns the running lab that has a host.
fn find(flags: &Enter) -> Result<RunningLab, Failure> {
    let mut labs = running().map_err(Failure::run)?;
    if let Some(wanted) = &flags.lab {
        labs.retain(|lab| *wanted == lab.name || *wanted == lab.pid.to_string());
        if labs.is_empty() {
            return Err(Failure::input(format!("no running lab of this user is {wanted}")));
        }
    }
    labs.retain(|lab| lab.hosts.contains_key(&flags.host));
    match &labs[..] {
        [lab] => Ok(lab.clone()),
        [] => Err(Failure::input(format!("no running lab of this user has a host {}", flags.host))),
        several => {
            let processes: Vec<String> = several.iter().map(|lab| lab.pid.to_string()).collect();
            let (host, processes) = (&flags.host, processes.join(", "));
            Err(Failure::input(format!("several labs have a host {host}; say which with --lab: {processes}")))
        }
    }
}

fn list() -> Result<(), Failure> {
    for lab in running().map_err(Failure::run)? {
        let mut text = format!("{} (process {})\n", lab.name, lab.pid);
        for (host, RunningHost { address, .. }) in &lab.hosts {
            text += &format!("  {address:<12} {host}\n");
        }
        print(&text)?;
    }
    Ok(())
}

fn export(flags: &Export) -> Result<(), Failure> {
    let experiment = Experiment::read(&flags.file, &flags.overrides)?;
    let network = experiment.plan.network.as_ref();
    let network = network.ok_or_else(|| Failure::input("the experiment has no network"))?;
    print(&containerlab(&experiment.plan.name, network, &flags.image))
}

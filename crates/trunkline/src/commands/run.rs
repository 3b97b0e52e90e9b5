//! `trunkline run`: runs an experiment, stores its records and shows the report.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use trunkline_counters::archive::Writer;
use trunkline_experiment::{Diagnostic, Plan};
use trunkline_record::{Archive, Record, RecordFile, RunId, export};
use trunkline_run::{Backend, ProgressObserver, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::{Seed, Span};

use super::experiment::{self, Experiment};
use super::hosts::live_backend;
use super::monitor;
use super::report::{terminal_width, write_files};
use crate::archive;
use crate::failure::{Failure, print};
use crate::flags::Run;

/// What is said of the results of a run that was aborted, if there is an archive.
pub(super) const PARTIAL_RESULTS_STORED: &str = "the partial results are stored";

/// Runs an experiment on each backend, stores the records and shows the report.
pub fn run(flags: &Run) -> Result<(), Failure> {
    let (experiment, mut backends) = prepare(flags)?;
    if experiment.plan.network.is_some() && flags.on.iter().any(|on| on == "live") {
        let _ = writeln!(
            io::stderr(),
            "warning: `live` uses the real network: the rates, delays and losses of `network` are not applied"
        );
    }
    let stop = stop_on_signals()?;
    let out = out_folder(&flags.out, &experiment.plan.name);
    let archive = (!flags.no_archive).then(|| archive::open(&flags.archive)).transpose()?;
    // Check before the run that the archive is writable; do not hold it open, because others may write to it.
    flags.counters.as_ref().map_or(Ok(()), |archive| Writer::open(archive).map(drop))?;
    let mut records = Vec::new();
    let (mut error, mut files) = (None, Vec::new());
    for backend in &mut backends {
        let options = RunOptions {
            seed: Seed(flags.seed),
            text: experiment.text.clone(),
            started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            folder: experiment.folder.clone(),
            out: out.join(backend.name()),
            stop: stop.clone(),
        };
        let archiver =
            RunArchiver::new(flags, &out, archive.as_ref(), backend.as_ref(), &experiment, &options)?;
        let mut bar = Bar::new(backend.name());
        #[expect(clippy::disallowed_methods, reason = "the cost of a run is measured in real time")]
        let start = std::time::Instant::now();
        let mut record = backend.run(&experiment.plan, &options, &mut bar);
        bar.finish();
        if backend.name() == "sim" {
            // The cost depends on the machine, not on the plan, so it belongs to the environment.
            record.environment.insert("simulated_in".into(), Span::from(start.elapsed()).to_string());
        }
        note_changes(&mut record, flags);
        files.push(archiver.file.path().display().to_string());
        if let Err(failure) = archiver.store(&record).and_then(|()| store_counters(flags, &record)) {
            error.get_or_insert(failure);
        }
        records.push(record);
    }
    let stored = match flags.no_archive {
        true => format!("the partial results are in {}", files.join(" and ")),
        false => PARTIAL_RESULTS_STORED.to_owned(),
    };
    finish(flags, &out, (&records, &stored), error)
}

/// Reads the experiment and returns an error if a backend does not support it or the flags do not fit.
pub(super) fn prepare(flags: &Run) -> Result<(Experiment, Vec<Box<dyn Backend>>), Failure> {
    let experiment = Experiment::read(&flags.file, &flags.overrides)?;
    if let Some((_, name)) = flags.on.iter().enumerate().find(|(i, name)| flags.on[..*i].contains(name)) {
        return Err(Failure::input(format!("--on names `{name}` twice")));
    }
    let backends =
        flags.on.iter().map(|name| backend(name, flags, &experiment.plan)).collect::<Result<Vec<_>, _>>()?;
    if !flags.trace.is_empty() && flags.on.iter().all(|on| on == "live") {
        return Err(Failure::input("--trace needs simulated links; add `--on sim` or `--on lab`"));
    }
    if !flags.at.is_empty() && !flags.on.iter().any(|on| on == "live") {
        return Err(Failure::input("--at needs a live run; add `--on live`"));
    }
    for backend in &backends {
        check_support(backend.as_ref(), &experiment)?;
    }
    Ok((experiment, backends))
}

/// Writes the reports, shows the result and returns the outcome.
fn finish(
    flags: &Run,
    out: &std::path::Path,
    (records, stored): (&[Record], &str),
    error: Option<Failure>,
) -> Result<(), Failure> {
    let html = out.join("report.html");
    let written = write_files(records, Some(&html), flags.junit.as_deref());
    // A closed pipe (`| head`) does not change the outcome of the run.
    let shown = show(flags, records, written.is_ok().then_some(&html));
    error.map_or(Ok(()), Err)?;
    written?;
    check_outcome(records, stored)?;
    shown
}

/// Shows the result on standard output.
fn show(flags: &Run, records: &[Record], html: Option<&PathBuf>) -> Result<(), Failure> {
    if flags.json {
        let mut json = Vec::new();
        export::write_json(records, &mut json)?;
        return print(&json);
    }
    print(&trunkline_report::terminal(records, terminal_width()))?;
    html.map_or(Ok(()), |html| print(&format!("\nReport: {}\n", html.display())))
}

/// Returns an error if a run is partial or an expectation failed. `stored` says where partial results are.
pub(super) fn check_outcome(records: &[Record], stored: &str) -> Result<(), Failure> {
    if let Some(record) = records.iter().find(|r| r.partial) {
        let problem = record.problems.first().map_or("the run is incomplete", String::as_str);
        let has_messages = record.connections.iter().any(|c| c.messages_sent > 0 || c.messages_received > 0);
        let is_empty = !has_messages && record.hosts.iter().all(|host| host.measured.is_none());
        let stored = if is_empty { "nothing was measured" } else { stored };
        return Err(Failure::run(format!("{problem}; {stored}")));
    }
    let failed = records.iter().flat_map(|r| &r.expectations).filter(|e| !e.passed).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::run("an expectation failed")),
        n => Err(Failure::run(format!("{n} expectations failed"))),
    }
}

/// Returns the folder of records and reports.
pub(super) fn out_folder(out: &Option<PathBuf>, name: &str) -> PathBuf {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '_' }).collect();
    let name = match safe.trim_matches(['.', ' ']) {
        "" => "experiment",
        name => name,
    };
    out.clone().unwrap_or_else(|| PathBuf::from("trunkline-results").join(name))
}

fn backend(name: &str, flags: &Run, plan: &Plan) -> Result<Box<dyn Backend>, Failure> {
    match name {
        "live" => {
            let live = live_backend(plan, &flags.at, &flags.keys)?;
            Ok(Box::new(live))
        }
        "sim" => Ok(Box::new(Sim { trace: flags.trace.clone(), link_series: true })),
        "lab" => lab_backend(&flags.trace, flags.overload),
        _ => Err(Failure::input(format!("there is no backend `{name}`; use `live`, `lab` or `sim`"))),
    }
}

/// Returns the backend of a lab, and enters the user namespace that an ordinary user needs for it.
#[cfg(target_os = "linux")]
pub(super) fn lab_backend(trace: &[String], overload: bool) -> Result<Box<dyn Backend>, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find the path of this program: {e}")))?;
    trunkline_lab::enter_user_namespace().map_err(Failure::run)?;
    Ok(Box::new(trunkline_lab::LabBackend { program, trace: trace.to_vec(), overload }))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn lab_backend(_: &[String], _: bool) -> Result<Box<dyn Backend>, Failure> {
    Err(Failure::input("a lab needs the network namespaces of Linux"))
}

/// Returns an error if the backend does not support the plan, and prints diagnostics at the positions in the text.
fn check_support(backend: &dyn Backend, experiment: &Experiment) -> Result<(), Failure> {
    let refusals = backend.refuse(&experiment.plan);
    if refusals.is_empty() {
        return Ok(());
    }
    // Flags of the command line and missing declarations have no position in the text.
    if let Some(refusal) = refusals.iter().find(|r| r.location == Default::default()) {
        return Err(Failure::input(refusal.text.clone()));
    }
    let diagnostics: Vec<Diagnostic> =
        refusals.into_iter().map(|r| Diagnostic::error(r.location, r.text).label("requested here")).collect();
    experiment::print_diagnostics(&experiment.name, &experiment.text, &diagnostics);
    Err(Failure::AlreadyReported)
}

/// Installs handlers: the first SIGINT or SIGTERM ends the run and keeps its results, a second one ends the program.
pub(super) fn stop_on_signals() -> Result<StopFlag, Failure> {
    let stop = StopFlag::default();
    for signal in [SIGINT, SIGTERM] {
        let handled = signal_hook::flag::register_conditional_shutdown(signal, 1, stop.flag().clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.flag().clone()));
        handled.map_err(|e| Failure::run(format!("cannot handle signals: {e}")))?;
    }
    Ok(stop)
}

/// Stores the time series of a run in the archive of counters, if requested.
fn store_counters(flags: &Run, record: &Record) -> Result<(), Failure> {
    let Some(archive) = &flags.counters else { return Ok(()) };
    monitor::import::import_run(&mut Writer::open(archive)?, record).map(drop)
}

/// Notes the overrides and the note of the command line in the record.
fn note_changes(record: &mut Record, flags: &Run) {
    let overrides = flags.overrides.to_text();
    if !overrides.is_empty() {
        record.environment.insert("set".into(), overrides);
    }
    if let Some(note) = &flags.note {
        record.environment.insert("note".into(), note.clone());
    }
}

/// Stores a record in a file and in the archive; both are reserved before the run.
struct RunArchiver<'a> {
    file: RecordFile,
    archive: Option<(&'a Archive, RunId)>,
}

impl<'a> RunArchiver<'a> {
    fn new(
        flags: &Run,
        out: &std::path::Path,
        archive: Option<&'a Archive>,
        backend: &dyn Backend,
        experiment: &Experiment,
        options: &RunOptions,
    ) -> Result<Self, Failure> {
        let file = RecordFile::reserve(out, backend.name()).map_err(Failure::run)?;
        let begin = |archive: &'a Archive| {
            let mut planned = backend.planned_record(&experiment.plan, options);
            note_changes(&mut planned, flags);
            Ok::<_, Failure>((archive, archive.begin(&planned).map_err(Failure::run)?))
        };
        Ok(RunArchiver { file, archive: archive.map(begin).transpose()? })
    }

    /// Stores the record in both places, even if one fails.
    fn store(self, record: &Record) -> Result<(), Failure> {
        let archived = self.archive.map_or(Ok(()), |(archive, id)| archive.finish(id, record));
        let written = self.file.commit(record);
        archived.map_err(Failure::run)?;
        written.map(drop).map_err(Failure::run)
    }
}

/// A progress bar, hidden unless standard error is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new(backend: &str) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_prefix(backend.to_string());
        Bar(bar)
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl ProgressObserver for Bar {
    fn progress(&mut self, elapsed: Span, expected: Option<Span>) {
        let style = match expected {
            Some(_) => "{prefix} [{bar:40}] {elapsed} {msg}",
            None => "{prefix} {spinner} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            self.0.set_style(style.progress_chars("━╸ "));
        }
        if let Some(expected) = expected {
            self.0.set_length(expected.as_ns());
            self.0.set_position(elapsed.as_ns().min(expected.as_ns()));
            self.0.set_message(format!("of {expected}"));
        }
        // Show the bar at the first progress, so that a short run draws no empty bar.
        if self.0.is_hidden() && !elapsed.is_zero() && io::stderr().is_terminal() {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.tick();
    }
}

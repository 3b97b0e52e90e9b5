//! `trunkline run`: from text to report.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use trunkline_experiment::Diagnostic;
use trunkline_live::{Live, Processes};
use trunkline_record::{Archive, Record, RecordFile, RunId, export};
use trunkline_run::{Backend, ProgressObserver, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::{Seed, Span};

use super::counters;
use super::experiment::{self, Experiment};
use super::report::{terminal_width, write_files};
use crate::archive;
use crate::failure::{Failure, print};
use crate::flags::Run;

/// Runs an experiment on each backend, keeps the records, shows the report.
pub fn run(flags: &Run) -> Result<(), Failure> {
    let experiment = Experiment::read(&flags.file, &flags.overrides)?;
    if let Some(twice) = flags.on.iter().enumerate().find(|(i, name)| flags.on[..*i].contains(name)) {
        return Err(Failure::input(format!("--on names `{}` twice", twice.1)));
    }
    let mut backends = flags.on.iter().map(|name| backend(name, flags)).collect::<Result<Vec<_>, _>>()?;
    if !flags.trace.is_empty() && !flags.on.iter().any(|on| on == "sim") {
        return Err(Failure::input("--trace captures a simulated run; add `--on sim`"));
    }
    if !flags.at.is_empty() && !flags.on.iter().any(|on| on == "live") {
        return Err(Failure::input("--at places hosts of a live run; add `--on live`"));
    }
    for backend in &backends {
        refuse(backend.as_ref(), &experiment)?;
    }
    if experiment.plan.network.is_some() && flags.on.iter().any(|on| on == "live") {
        let _ = writeln!(
            io::stderr(),
            "warning: `live` uses the real network: the rates, delays and losses of `network` are not applied"
        );
    }
    let stop = stop_on_signals()?;
    let out = out_folder(&flags.out, &experiment.plan.name);
    let archive = (!flags.no_archive).then(|| archive::open(&flags.archive)).transpose()?;
    // Whether it can be written to, before anything is run; others may write to it meanwhile.
    flags.counters.as_ref().map_or(Ok(()), |archive| counters::open_writer(archive).map(drop))?;
    let mut records = Vec::new();
    let mut trouble = None;
    for backend in &mut backends {
        let order = RunOptions {
            seed: Seed(flags.seed),
            text: experiment.text.clone(),
            started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            folder: experiment.folder.clone(),
            out: out.join(backend.name()),
            stop: stop.clone(),
        };
        let keeper = RunArchiver::new(&out, archive.as_ref(), backend.as_ref(), &experiment, &order)?;
        let mut watch = Bar::new(backend.name());
        #[expect(clippy::disallowed_methods, reason = "the cost of a run is measured in real time")]
        let began = std::time::Instant::now();
        let mut record = backend.run(&experiment.plan, &order, &mut watch);
        watch.finish();
        if backend.name() == "sim" {
            // What a run cost is of the machine, not of the plan: it stands apart from what was measured.
            record.environment.insert("simulated_in".into(), Span::from(began.elapsed()).to_string());
        }
        note_changes(&mut record, flags);
        if let Err(failure) = keeper.keep(&record).and_then(|()| count(flags, &record)) {
            trouble.get_or_insert(failure);
        }
        records.push(record);
    }
    finish(flags, &out, &records, trouble)
}

/// Writes reports, shows the result, and says how it ended.
fn finish(
    flags: &Run,
    out: &std::path::Path,
    records: &[Record],
    trouble: Option<Failure>,
) -> Result<(), Failure> {
    let html = out.join("report.html");
    let written = write_files(records, Some(&html), flags.junit.as_deref());
    // Whether anybody reads it (`| head`) does not change how the run went, which comes first.
    let shown = show(flags, records, written.is_ok().then_some(&html));
    trouble.map_or(Ok(()), Err)?;
    written?;
    verdict(records)?;
    shown
}

/// Shows the result on standard output.
fn show(flags: &Run, records: &[Record], html: Option<&PathBuf>) -> Result<(), Failure> {
    if flags.json {
        let mut json = Vec::new();
        export::write_json(records, &mut json)?;
        return print(&String::from_utf8_lossy(&json));
    }
    print(&trunkline_report::terminal(records, terminal_width()))?;
    html.map_or(Ok(()), |html| print(&format!("\nReport: {}\n", html.display())))
}

/// Whether every run was whole and every expectation held.
fn verdict(records: &[Record]) -> Result<(), Failure> {
    if let Some(record) = records.iter().find(|r| r.partial) {
        let why = record.problems.first().map_or("the run was cut short", String::as_str);
        return Err(Failure::run(format!("{why}; what was measured is kept, marked partial")));
    }
    let failed = records.iter().flat_map(|r| &r.expectations).filter(|e| !e.passed).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::run("an expectation did not hold")),
        n => Err(Failure::run(format!("{n} expectations did not hold"))),
    }
}

/// Where records and reports go.
pub(super) fn out_folder(out: &Option<PathBuf>, name: &str) -> PathBuf {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '_' }).collect();
    let name = match safe.trim_matches(['.', ' ']) {
        "" => "experiment",
        name => name,
    };
    out.clone().unwrap_or_else(|| PathBuf::from("trunkline-results").join(name))
}

fn backend(name: &str, flags: &Run) -> Result<Box<dyn Backend>, Failure> {
    match name {
        "live" => {
            let program =
                std::env::current_exe().map_err(|e| Failure::run(format!("cannot find myself: {e}")))?;
            Ok(Box::new(Live::new(Box::new(Processes { program }), flags.at.iter().cloned().collect())))
        }
        "sim" => Ok(Box::new(Sim { trace: flags.trace.clone(), link_counters: true })),
        "lab" => Err(Failure::input(format!(
            "this trunkline has no backend `{name}` yet; it has `live` and `sim`"
        ))),
        _ => {
            Err(Failure::input(format!("there is no backend `{name}`; this trunkline has `live` and `sim`")))
        }
    }
}

/// Says what a backend cannot do, where the text asks for it, before anything starts.
fn refuse(backend: &dyn Backend, experiment: &Experiment) -> Result<(), Failure> {
    let refusals = backend.refuse(&experiment.plan);
    if refusals.is_empty() {
        return Ok(());
    }
    // What the command line asks for stands nowhere in the text, and neither does what the text lacks.
    if let Some(unplaced) = refusals.iter().find(|r| r.location == Default::default()) {
        return Err(Failure::input(unplaced.text.clone()));
    }
    let diagnostics: Vec<Diagnostic> =
        refusals.into_iter().map(|r| Diagnostic::error(r.location, r.text).label("asked for here")).collect();
    experiment::print_diagnostics(&experiment.name, &experiment.text, &diagnostics);
    Err(Failure::AlreadyReported)
}

/// The first Ctrl-C ends the run and keeps what was measured; a second one ends the program.
pub(super) fn stop_on_signals() -> Result<StopFlag, Failure> {
    let stop = StopFlag::default();
    for signal in [SIGINT, SIGTERM] {
        let handled = signal_hook::flag::register_conditional_shutdown(signal, 1, stop.flag().clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.flag().clone()));
        handled.map_err(|e| Failure::run(format!("cannot listen for signals: {e}")))?;
    }
    Ok(stop)
}

/// Puts what a run counted over time where that was asked for.
fn count(flags: &Run, record: &Record) -> Result<(), Failure> {
    let Some(archive) = &flags.counters else { return Ok(()) };
    counters::import::import_run(&mut counters::open_writer(archive)?, record).map(drop)
}

/// Says in the record what the command line changed.
fn note_changes(record: &mut Record, flags: &Run) {
    let said = flags.overrides.to_text();
    if !said.is_empty() {
        record.environment.insert("set".into(), said);
    }
}

/// Keeps a record in two places, both made sure of before the run.
struct RunArchiver<'a> {
    file: RecordFile,
    archive: Option<(&'a Archive, RunId)>,
}

impl<'a> RunArchiver<'a> {
    fn new(
        out: &std::path::Path,
        archive: Option<&'a Archive>,
        backend: &dyn Backend,
        experiment: &Experiment,
        order: &RunOptions,
    ) -> Result<Self, Failure> {
        let file = RecordFile::reserve(out, backend.name()).map_err(Failure::run)?;
        let begin = |archive: &'a Archive| {
            let asked = backend.planned_record(&experiment.plan, order);
            Ok::<_, Failure>((archive, archive.begin(&asked).map_err(Failure::run)?))
        };
        Ok(RunArchiver { file, archive: archive.map(begin).transpose()? })
    }

    /// Tries both places, whatever becomes of the other.
    fn keep(self, record: &Record) -> Result<(), Failure> {
        let archived = self.archive.map_or(Ok(()), |(archive, id)| archive.finish(id, record));
        let filed = self.file.commit(record);
        archived.map_err(Failure::run)?;
        filed.map(drop).map_err(Failure::run)
    }
}

/// A progress bar on a terminal, nothing on a pipe.
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
        // Shown from the first progress on: a shorter run draws no empty bar.
        if self.0.is_hidden() && !elapsed.is_zero() && io::stderr().is_terminal() {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.tick();
    }
}

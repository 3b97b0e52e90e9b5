//! The backend trait: runs a plan and returns a record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_experiment::plan::{self, Block, SourceRange};
use trunkline_experiment::{Plan, message_sizes, support, test_name};
use trunkline_record::Record;
use trunkline_record::schema;
use trunkline_traffic::Variable;
use trunkline_units::{Seed, Span};

use crate::assemble::{self, RepetitionOutcome};
use crate::expect;
use crate::message::HEADER;

/// Runs plans: in the simulator, live, or in a lab (planned).
pub trait Backend {
    /// Returns the name: `live`, `sim` or `lab`.
    fn name(&self) -> &'static str;

    /// Returns the parts of a plan that this backend does not support. If empty, the plan can run.
    fn refuse(&self, plan: &Plan) -> Vec<Refusal>;

    /// Returns the record of a run that has not started, with the plan and the environment.
    fn planned_record(&self, plan: &Plan, options: &RunOptions) -> Record;

    /// Runs a plan. Errors are reported in the record, which is then partial: no measurement is lost.
    fn run(&mut self, plan: &Plan, options: &RunOptions, observer: &mut dyn ProgressObserver) -> Record;
}

/// A part of a plan that a backend does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its location in the text.
    pub location: SourceRange,
    /// What is refused and what to do instead, in one line.
    pub text: String,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Seed of all random streams.
    pub seed: Seed,
    /// Text of the experiment, for the record.
    pub text: String,
    /// Calendar time of the start (RFC 3339, UTC), for the record.
    pub started_at: String,
    /// Folder for relative file names in the experiment.
    pub folder: PathBuf,
    /// Folder for received files.
    pub out: PathBuf,
    /// Ends the run early; the record has the measurements so far.
    pub stop: StopFlag,
}

/// Creates the record of a run that has not started. `environment` describes the backend.
pub fn new_record(
    backend: &str,
    plan: &Plan,
    options: &RunOptions,
    mut environment: BTreeMap<String, String>,
) -> Record {
    environment.insert("program".into(), format!("trunkline {}", env!("CARGO_PKG_VERSION")));
    Record {
        version: schema::VERSION,
        backend: backend.into(),
        seed: options.seed,
        started: options.started_at.clone(),
        environment,
        experiment: schema::Experiment {
            name: plan.name.clone(),
            hash: plan.hash(),
            text: options.text.clone(),
        },
        ..Record::default()
    }
}

/// Completes the record of a run that could not start, for this reason.
pub fn failed_record(mut record: Record, plan: &Plan, problem: String) -> Record {
    record.partial = true;
    record.connections = plan.connections.iter().map(|c| assemble::connection(c, &[])).collect();
    record.expectations = expect::evaluate(&plan.expectations, &record);
    record.problems.push(problem);
    record
}

/// Completes a record: evaluates the expectations and lists the errors, one line each. Connections with the same error
/// share a line.
pub fn finish_record(record: &mut Record, plan: &Plan) {
    for (index, c) in record.connections.iter_mut().enumerate() {
        let (completed, planned) = (c.repetitions.len() as u64, planned_repetitions(&plan.schedule, index));
        if completed < planned {
            c.partial = true;
            c.error.get_or_insert_with(|| format!("stopped after {completed} of {planned} repetitions"));
        }
    }
    record.problems = error_lines(record);
    record.partial = record.connections.iter().any(|c| c.partial);
    record.expectations = expect::evaluate(&plan.expectations, record);
}

/// Refuses messages that are smaller than their header, which no backend can measure.
pub fn refuse_small_messages(c: &plan::Connection) -> impl Iterator<Item = Refusal> + '_ {
    message_sizes(&c.test).into_iter().filter_map(|(_, size)| match size {
        Variable::Constant(size) if *size < HEADER as f64 => {
            let contents = "sequence number, send time and check";
            let text = format!("{}: a message of {size} B is too small: {HEADER} B carry {contents}", c.name);
            Some(Refusal { location: c.test_location, text })
        }
        _ => None,
    })
}

/// Returns why a backend does not run a test over the protocol of its connection.
pub fn refuse_test(backend: &str, c: &plan::Connection) -> Option<String> {
    let is_supported = support(&c.test, &c.protocol).has(backend);
    (!is_supported)
        .then(|| format!("`{backend}` has no test `{}` over {}", test_name(&c.test), c.protocol.name()))
}

/// Returns one line for each error, with the connections that have it.
fn error_lines(record: &Record) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for c in &record.connections {
        let error = match (&c.error, c.partial) {
            (Some(error), _) => error.clone(),
            (None, true) => "it was not run".into(),
            (None, false) => continue,
        };
        match lines.iter_mut().find(|(other, _)| *other == error) {
            Some((_, names)) => names.push(&c.name),
            None => lines.push((error, vec![&c.name])),
        }
    }
    lines.into_iter().map(|(error, names)| format!("{}: {error}", names.join(", "))).collect()
}

/// Returns how often the schedule runs a connection.
fn planned_repetitions(block: &Block, index: usize) -> u64 {
    match block {
        Block::Serial(blocks) | Block::Parallel(blocks) => {
            blocks.iter().map(|b| planned_repetitions(b, index)).sum()
        }
        Block::Repeat { count, body, .. } => u64::from(*count) * planned_repetitions(body, index),
        Block::Connection(i) => u64::from(*i == index),
    }
}

/// Returns the duration of a plan, if all its durations are fixed.
pub fn expected_duration(plan: &Plan) -> Option<Span> {
    block_duration(&plan.schedule, plan)
}

fn block_duration(block: &Block, plan: &Plan) -> Option<Span> {
    match block {
        Block::Serial(blocks) => {
            blocks.iter().map(|b| block_duration(b, plan)).try_fold(Span::ZERO, |a, b| Some(a + b?))
        }
        Block::Parallel(blocks) => {
            blocks.iter().map(|b| block_duration(b, plan)).try_fold(Span::ZERO, |a, b| Some(a.max(b?)))
        }
        Block::Repeat { count, every, body } => {
            let body = block_duration(body, plan)?;
            Some((*every).max(body) * u64::from(count.saturating_sub(1)) + body)
        }
        Block::Connection(index) => {
            let c = &plan.connections[*index];
            match (&c.delay_s, &c.stop) {
                (Variable::Constant(delay), plan::Stop::DurationS(Variable::Constant(duration))) => {
                    Some(Span::from_seconds(delay + duration))
                }
                _ => None,
            }
        }
    }
}

/// Why a build without the feature `quic` refuses a connection.
pub const NO_QUIC: &str = "this build has no QUIC; build it with `--features quic` or `full`";

/// A flag, shared by threads, that requests the end of a run.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Requests the end of the run.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end of the run was requested.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag, for a signal handler or a pacer.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// Receives the progress of a run, for example for a progress bar.
pub trait ProgressObserver: Send {
    /// Reports the time since the start of the run and its expected duration, if known. Called a few times per second.
    fn progress(&mut self, elapsed: Span, expected: Option<Span>);

    /// Returns how often the observer wants to see what the ends have measured so far, if it does. Ends measure at
    /// multiples of this interval after their start.
    fn report_interval(&self) -> Option<Span> {
        None
    }

    /// Reports what the ends of a connection have measured so far; `connection` is its index in the plan. Called only
    /// by `live`, and only if [`report_interval`](ProgressObserver::report_interval) returns an interval.
    fn report(&mut self, _connection: usize, _outcome: &RepetitionOutcome) {}
}

/// Ignores the progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl ProgressObserver for NoProgress {
    fn progress(&mut self, _: Span, _: Option<Span>) {}
}

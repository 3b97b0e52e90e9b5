//! What a backend is: something that runs a plan and returns a record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_experiment::Plan;
use trunkline_experiment::plan::{self, Block, Place};
use trunkline_record::Record;
use trunkline_record::schema;
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::{Seed, Span};

use crate::expect;
use crate::message::HEADER;

/// Runs plans: simulated, in a lab, or live.
pub trait Backend {
    /// `live`, `sim` or `lab`.
    fn name(&self) -> &'static str;

    /// What of this plan it cannot honour, each by name. Empty: it may run.
    fn refuse(&self, plan: &Plan) -> Vec<Refusal>;

    /// The record of a run that has not begun: what is asked, and what it will be run with.
    fn asked(&self, plan: &Plan, order: &Order) -> Record;

    /// Runs the plan. What goes wrong on the way stands in the record, which then is partial: nothing that was
    /// measured is thrown away.
    fn run(&mut self, plan: &Plan, order: &Order, watch: &mut dyn Watch) -> Record;
}

/// Something a plan asks for that a backend does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where the text asks for it.
    pub place: Place,
    /// What it is and what to do instead, one line.
    pub text: String,
}

/// How a plan is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// What every random stream is drawn from.
    pub seed: Seed,
    /// The experiment's text, for the record.
    pub text: String,
    /// When the run began, by the calendar (RFC 3339, UTC), for the record.
    pub started: String,
    /// Where relative file names of the experiment begin.
    pub folder: PathBuf,
    /// Where received files go.
    pub out: PathBuf,
    /// Set to end the run early; what was measured is kept.
    pub stop: Stop,
}

/// A record of nothing yet: what was asked, of whom, with which seed. `environment` says what it is run with.
pub fn blank(backend: &str, plan: &Plan, order: &Order, mut environment: BTreeMap<String, String>) -> Record {
    environment.insert("program".into(), format!("trunkline {}", env!("CARGO_PKG_VERSION")));
    Record {
        version: schema::VERSION,
        backend: backend.into(),
        seed: order.seed,
        started: order.started.clone(),
        environment,
        experiment: schema::Experiment {
            name: plan.name.clone(),
            hash: plan.hash(),
            text: order.text.clone(),
        },
        ..Record::default()
    }
}

/// Ends a record: judges it, and says in a line for each thing what went wrong. Connections that share a trouble share
/// its line.
pub fn conclude(record: &mut Record, plan: &Plan) {
    for (index, c) in record.connections.iter_mut().enumerate() {
        let (made, planned) = (c.runs.len() as u64, planned(&plan.schedule, index));
        if made < planned {
            c.partial = true;
            c.trouble.get_or_insert_with(|| format!("stopped after {made} of {planned} runs"));
        }
    }
    record.trouble = troubles(record);
    record.partial = record.connections.iter().any(|c| c.partial);
    record.expectations = expect::judge(&plan.expectations, record);
}

/// What of a connection's messages no backend can measure: a message smaller than its header.
pub fn too_small(c: &plan::Connection) -> impl Iterator<Item = Refusal> + '_ {
    let sizes = match &c.test {
        Pattern::Full { size_bytes }
        | Pattern::Poisson { size_bytes, .. }
        | Pattern::Stairs { size_bytes, .. }
        | Pattern::File { size_bytes, .. } => vec![size_bytes],
        Pattern::Cbr { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Burst { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Random { burst: Burst { size_bytes, .. }, .. } => vec![size_bytes],
        Pattern::Request { request_bytes, response_bytes } => vec![request_bytes, response_bytes],
        Pattern::Application { .. } => vec![],
    };
    sizes.into_iter().filter_map(|size| match size {
        Variable::Constant(size) if *size < HEADER as f64 => {
            let what = "sequence number, send time and check";
            let text = format!("{}: a message of {size} B is too small: {HEADER} B carry {what}", c.name);
            Some(Refusal { place: c.asks.test, text })
        }
        _ => None,
    })
}

fn troubles(record: &Record) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for c in &record.connections {
        let trouble = match (&c.trouble, c.partial) {
            (Some(trouble), _) => trouble.clone(),
            (None, true) => "it was not run".into(),
            (None, false) => continue,
        };
        match lines.iter_mut().find(|(t, _)| *t == trouble) {
            Some((_, names)) => names.push(&c.name),
            None => lines.push((trouble, vec![&c.name])),
        }
    }
    lines.into_iter().map(|(trouble, names)| format!("{}: {trouble}", names.join(", "))).collect()
}

/// How often the schedule runs a connection.
fn planned(block: &Block, index: usize) -> u64 {
    match block {
        Block::Serial(blocks) | Block::Parallel(blocks) => blocks.iter().map(|b| planned(b, index)).sum(),
        Block::Repeat { count, body, .. } => u64::from(*count) * planned(body, index),
        Block::Connection(i) => u64::from(*i == index),
    }
}

/// How long the plan takes, where its durations are fixed.
pub fn expected(plan: &Plan) -> Option<Span> {
    length(&plan.schedule, plan)
}

fn length(block: &Block, plan: &Plan) -> Option<Span> {
    match block {
        Block::Serial(blocks) => {
            blocks.iter().map(|b| length(b, plan)).try_fold(Span::ZERO, |a, b| Some(a + b?))
        }
        Block::Parallel(blocks) => {
            blocks.iter().map(|b| length(b, plan)).try_fold(Span::ZERO, |a, b| Some(a.max(b?)))
        }
        Block::Repeat { count, every, body } => {
            let once = length(body, plan)?;
            Some((*every).max(once) * u64::from(count.saturating_sub(1)) + once)
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

/// A request to stop that every thread can see.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everyone to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    #[inline]
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler or a pacer.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// Hears how a run goes, e.g. to draw a progress bar.
pub trait Watch: Send {
    /// A few times a second: the time since the run began, and the longest it may take where that is known.
    fn progress(&mut self, elapsed: Span, expected: Option<Span>);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: Span, _: Option<Span>) {}
}

//! Runs experiments with agents as threads of this process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_live::{Launch, Live, Threads};
use trunkline_record::Record;
use trunkline_run::{Backend, NoProgress, ProgressObserver, RunOptions, StopFlag};
use trunkline_units::{Seed, Span};

pub fn plan(text: &str) -> Plan {
    let parsed = parse(&Source { name: "test.ns", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

pub fn run(text: &str) -> Record {
    run_observed(text, StopFlag::default(), &mut NoProgress)
}

/// Runs an experiment and requests a stop after `ms` milliseconds.
pub fn stopped_after(ms: u64, text: &str) -> Record {
    let stop = StopFlag::default();
    run_observed(text, stop.clone(), &mut StopAfter(Span::from_ms(ms), stop))
}

pub fn run_observed(text: &str, stop: StopFlag, observer: &mut dyn ProgressObserver) -> Record {
    run_on(Box::new(Threads), text, stop, observer)
}

pub fn run_on(
    agents: Box<dyn Launch + Send>,
    text: &str,
    stop: StopFlag,
    observer: &mut dyn ProgressObserver,
) -> Record {
    let mut live = Live::new(agents, BTreeMap::new());
    let plan = plan(text);
    assert_eq!(live.refuse(&plan), []);
    let options = RunOptions {
        seed: Seed(7),
        started_at: String::new(),
        text: text.into(),
        folder: PathBuf::new(),
        out: std::env::temp_dir(),
        stop,
    };
    live.run(&plan, &options, observer)
}

struct StopAfter(Span, StopFlag);

impl ProgressObserver for StopAfter {
    fn progress(&mut self, elapsed: Span, _: Option<Span>) {
        if elapsed >= self.0 {
            self.1.request();
        }
    }
}

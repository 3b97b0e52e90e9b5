//! Experiments run by threads of this process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_live::{Live, Threads};
use trunkline_record::Record;
use trunkline_run::{Backend, Order, Stop, Unwatched, Watch};
use trunkline_units::{Seed, Span};

pub fn plan(text: &str) -> Plan {
    let parsed = parse(&Source { name: "test.ns", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

pub fn run(text: &str) -> Record {
    watched(text, Stop::default(), &mut Unwatched)
}

/// A run that is asked to stop when it has lasted so many milliseconds.
pub fn stopped_after(ms: u64, text: &str) -> Record {
    let stop = Stop::default();
    watched(text, stop.clone(), &mut StopAfter(Span::from_ms(ms), stop))
}

fn watched(text: &str, stop: Stop, watch: &mut dyn Watch) -> Record {
    let mut live = Live::new(Box::new(Threads), BTreeMap::new());
    let plan = plan(text);
    assert_eq!(live.refuse(&plan), []);
    let order = Order {
        seed: Seed(7),
        started: String::new(),
        text: text.into(),
        folder: PathBuf::new(),
        out: std::env::temp_dir(),
        stop,
    };
    live.run(&plan, &order, watch)
}

struct StopAfter(Span, Stop);

impl Watch for StopAfter {
    fn progress(&mut self, elapsed: Span, _: Option<Span>) {
        if elapsed >= self.0 {
            self.1.ask();
        }
    }
}

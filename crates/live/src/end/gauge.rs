//! Where the time goes at one end of the guaranteed transport, by the real clock.
//!
//! A [`Gauge`] measures the engine ([`Meter`]) and the socket ([`Probe`]) of an end, as far as they are on the messages'
//! way: a sender's what leaves, a receiver's what comes. It looks at one message or frame in so many, so that it can
//! stay on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trunkline_arq::wire::data::Head;
use trunkline_arq::{Meter, Stage};
use trunkline_endpoint::Segment;
use trunkline_io::Clock;
use trunkline_io::driver::{Direction, Probe};
use trunkline_record::Histogram;
use trunkline_run::stages::{Passages, Stages};
use trunkline_traffic::Pattern;
use trunkline_units::{Instant, Span};

/// One in so many messages and frames is measured where as much goes as can, and where less does. Powers of two, for
/// both ends pick the same frames.
const BUSY: u32 = 128;
const CALM: u32 = 16;
/// Looks at the clock, one after another, by which its own cost is told.
const LOOKS: u32 = 16;

/// Measures an end. Its copies share what they found.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    clock: Clock,
    /// What a look at the clock takes.
    look: Span,
    way: Direction,
    pub every: u32,
    /// The frame just picked.
    picked: u32,
    found: Arc<Mutex<Found>>,
}

/// Histograms of the end's stages, and when frames passed.
#[derive(Debug)]
struct Found {
    stages: BTreeMap<&'static str, Histogram>,
    passages: Passages,
}

impl Gauge {
    /// For the end out of which messages go, or into which they come.
    pub fn new(clock: Clock, way: Direction, pattern: &Pattern) -> Self {
        let every = match pattern {
            Pattern::Full { .. } | Pattern::File { .. } => BUSY,
            _ => CALM,
        };
        let look = (0..LOOKS).map(|_| {
            let began = clock.now();
            clock.now().since(began)
        });
        let look = look.min().unwrap_or_default();
        let found = Found { stages: BTreeMap::new(), passages: Passages::new(every) };
        Gauge { clock, look, way, every, picked: 0, found: Arc::new(Mutex::new(found)) }
    }

    /// How it measures, in words for the record.
    pub fn says(&self) -> String {
        format!("one message or frame in {}; not measured: queued", self.every)
    }

    /// What was found, to be reported.
    pub fn report(&self) -> (Stages, Passages) {
        let Ok(found) = self.found.lock() else { return Default::default() };
        let stages = found.stages.iter().map(|(name, times)| ((*name).to_owned(), times.counts()));
        (stages.collect(), found.passages.clone())
    }

    /// What was measured by two looks at the clock has one of them in it.
    fn timed(&self, stage: &'static str, time: Span) {
        self.record(stage, time - self.look);
    }

    fn record(&self, stage: &'static str, time: Span) {
        // Never waits: the copies are the same thread's.
        if let Ok(mut found) = self.found.lock() {
            found.stages.entry(stage).or_default().record(time);
        }
    }

    fn pass(&self, at: Instant) {
        if let Ok(mut found) = self.found.lock() {
            found.passages.note(self.picked, at);
        }
    }
}

impl Meter for Gauge {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }

    fn took(&mut self, stage: Stage, time: Span) {
        let (name, way) = match stage {
            Stage::CopyIn => ("copy_in", Direction::Out),
            Stage::Frame => ("frame", Direction::Out),
            Stage::Seal => ("seal", Direction::Out),
            Stage::Open => ("open", Direction::In),
            Stage::Join => ("join", Direction::In),
            Stage::CopyOut => ("copy_out", Direction::In),
        };
        if way == self.way {
            self.timed(name, time);
        }
    }
}

impl Probe for Gauge {
    fn picks(&mut self, direction: Direction, frames: &[u8], segment: Option<Segment>) -> bool {
        if direction != self.way {
            return false;
        }
        let Ok(found) = self.found.lock() else { return false };
        let mut numbers =
            Segment::frames(segment, frames).filter_map(|frame| Some(Head::read(frame)?.0.number));
        let picked = numbers.find(|number| found.passages.picks(*number));
        self.picked = picked.unwrap_or(self.picked);
        picked.is_some()
    }

    fn left(&mut self, call: (Instant, Instant)) {
        self.timed("send", call.1.since(call.0));
        self.pass(call.0);
    }

    fn came(&mut self, arrived: Option<Instant>, call: (Instant, Instant)) {
        self.timed("receive", call.1.since(call.0));
        if let Some(arrived) = arrived {
            self.record("waiting", call.0.since(arrived));
            self.pass(arrived);
        }
    }
}

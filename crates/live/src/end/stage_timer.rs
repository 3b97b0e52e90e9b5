//! Measures the processing stages of one end of the guaranteed transport by the real clock.
//!
//! A [`StageTimer`] measures the protocol engine ([`Meter`]) and the socket ([`Probe`]) of an end: at a sender the
//! outgoing messages, at a receiver the incoming ones. It samples one message or frame in N, so that it can stay
//! enabled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trunkline_arq::wire::data::FrameHeader;
use trunkline_arq::{Meter, Stage};
use trunkline_endpoint::Segment;
use trunkline_io::Clock;
use trunkline_io::probe::{Direction, Probe};
use trunkline_record::Histogram;
use trunkline_run::stages::{FrameTimestamps, Stages};
use trunkline_traffic::Pattern;
use trunkline_units::{Instant, Span};

use crate::locked;

/// Sampling intervals at full speed and for paced traffic. Powers of two, so that both ends sample the same frames.
const FULL_SPEED_INTERVAL: u32 = 128;
const PACED_INTERVAL: u32 = 16;
/// Consecutive clock reads that determine the cost of reading the clock.
const CLOCK_READS: u32 = 16;

/// Measures the stages of an end. Clones share the samples.
#[derive(Clone, Debug)]
pub(crate) struct StageTimer {
    clock: Clock,
    /// Time of one clock read.
    clock_cost: Span,
    direction: Direction,
    /// One in this number of messages and frames is sampled.
    pub sampling_interval: u32,
    /// Number of the frame sampled last.
    sampled_frame: u32,
    samples: Arc<Mutex<StageSamples>>,
}

/// Histograms of the stages, and timestamps of frames.
#[derive(Debug)]
struct StageSamples {
    stages: BTreeMap<&'static str, Histogram>,
    timestamps: FrameTimestamps,
}

impl StageTimer {
    /// Creates a timer for outgoing or incoming messages.
    pub fn new(clock: Clock, direction: Direction, pattern: &Pattern) -> Self {
        let sampling_interval = match pattern {
            Pattern::Full { .. } | Pattern::File { .. } => FULL_SPEED_INTERVAL,
            _ => PACED_INTERVAL,
        };
        let clock_cost = (0..CLOCK_READS).map(|_| {
            let start = clock.now();
            clock.now().since(start)
        });
        let clock_cost = clock_cost.min().unwrap_or_default();
        let timestamps = FrameTimestamps::new(sampling_interval);
        let samples = StageSamples { stages: BTreeMap::new(), timestamps };
        StageTimer {
            clock,
            clock_cost,
            direction,
            sampling_interval,
            sampled_frame: 0,
            samples: Arc::new(Mutex::new(samples)),
        }
    }

    /// Describes the sampling for the record.
    pub fn description(&self) -> String {
        format!("one message or frame in {}; not measured: queued", self.sampling_interval)
    }

    /// Returns the samples for the report.
    pub fn report(&self) -> (Stages, FrameTimestamps) {
        let samples = locked(&self.samples);
        let stages = samples.stages.iter().map(|(name, times)| ((*name).to_owned(), times.counts()));
        (stages.collect(), samples.timestamps.clone())
    }

    /// Records a time that was measured by two clock reads and so contains the cost of one.
    fn record_timed(&self, stage: &'static str, time: Span) {
        self.record_stage(stage, time - self.clock_cost);
    }

    fn record_stage(&self, stage: &'static str, time: Span) {
        // Never blocks: all clones belong to one thread.
        locked(&self.samples).stages.entry(stage).or_default().record(time);
    }

    fn record_timestamp(&self, at: Instant) {
        locked(&self.samples).timestamps.record(self.sampled_frame, at);
    }
}

impl Meter for StageTimer {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }

    fn record(&mut self, stage: Stage, time: Span) {
        let (name, direction) = match stage {
            Stage::CopyIn => ("copy_in", Direction::Out),
            Stage::Frame => ("frame", Direction::Out),
            Stage::Seal => ("seal", Direction::Out),
            Stage::Open => ("open", Direction::In),
            Stage::Join => ("join", Direction::In),
            Stage::CopyOut => ("copy_out", Direction::In),
        };
        if direction == self.direction {
            self.record_timed(name, time);
        }
    }
}

impl Probe for StageTimer {
    fn selects(&mut self, direction: Direction, frames: &[u8], segment: Option<Segment>) -> bool {
        if direction != self.direction {
            return false;
        }
        let samples = locked(&self.samples);
        let mut numbers =
            Segment::frames(segment, frames).filter_map(|frame| Some(FrameHeader::read(frame)?.0.number));
        let sampled_frame = numbers.find(|number| samples.timestamps.is_sampled(*number));
        self.sampled_frame = sampled_frame.unwrap_or(self.sampled_frame);
        sampled_frame.is_some()
    }

    fn sent(&mut self, call: (Instant, Instant)) {
        self.record_timed("send", call.1.since(call.0));
        self.record_timestamp(call.0);
    }

    fn received(&mut self, arrived: Option<Instant>, call: (Instant, Instant)) {
        // The call may have waited for the batch.
        self.record_timed("receive", call.1.since(arrived.map_or(call.0, |arrived| arrived.max(call.0))));
        if let Some(arrived) = arrived {
            self.record_timed("waiting", call.0.since(arrived));
            self.record_timestamp(arrived);
        }
    }
}

//! Sampled processing times of messages and frames, by stage.
//!
//! The engine has no clock. To measure, give a connection a [`Meter`] with
//! [`Command::Measure`](crate::Command::Measure). Without a meter a connection measures nothing.

use std::fmt::Debug;

use trunkline_units::{Instant, Span};

/// A stage of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Copying a message from the application: [`Command::Send`](crate::Command::Send), but not
    /// [`SendOwned`](crate::Command::SendOwned), which copies nothing.
    CopyIn,
    /// Encoding a frame: its header and the pieces of messages.
    Frame,
    /// Computing the check sequence of a frame.
    Seal,
    /// Verifying the check sequence of a received numbered frame, valid or not.
    Open,
    /// Adding the data of an accepted frame to its message.
    Join,
    /// Passing a message, or a part of a long one, to the application, with or without a copy.
    CopyOut,
}

/// A clock and a recorder of stage times. A meter may subtract the time that reading its clock takes.
pub trait Meter: Debug + Send {
    /// Returns the current time, which never decreases.
    fn now(&mut self) -> Instant;
    /// Records the duration of a stage.
    fn record(&mut self, stage: Stage, time: Span);
}

/// Events that are sampled separately.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StageGroup {
    Sends,
    FramesOut,
    FramesIn,
    Receives,
}

/// Samples one event in `every`. Without a meter the countdowns run without effect.
#[derive(Debug, Default)]
pub(crate) struct StageSampler {
    meter: Option<Box<dyn Meter>>,
    every: u32,
    /// Events until the next sample, per group.
    countdown: [u32; 4],
}

impl StageSampler {
    pub fn new(meter: Box<dyn Meter>, every: u32) -> Self {
        let every = every.max(1);
        StageSampler { meter: Some(meter), every, countdown: [every; 4] }
    }

    /// Returns whether a meter is set.
    #[inline]
    pub fn has_meter(&self) -> bool {
        self.meter.is_some()
    }

    /// Returns the number of events before the next sample.
    #[inline]
    pub fn until_next_sample(&self, group: StageGroup) -> usize {
        if self.has_meter() { self.countdown[group as usize].saturating_sub(1) as usize } else { usize::MAX }
    }

    /// Returns whether the next event is sampled.
    #[inline]
    pub fn samples_next(&self, of: StageGroup) -> bool {
        self.until_next_sample(of) == 0
    }

    /// Counts `count` events that were processed together without a sample.
    #[inline]
    pub fn skip(&mut self, group: StageGroup, count: u64) {
        if self.has_meter() {
            self.countdown[group as usize] -= count as u32;
        }
    }

    /// Counts an event; returns the time if the event is sampled.
    #[inline]
    pub fn begin(&mut self, group: StageGroup) -> Option<Instant> {
        let countdown = &mut self.countdown[group as usize];
        *countdown = countdown.wrapping_sub(1);
        if *countdown > 0 { None } else { self.sample(group) }
    }

    #[cold]
    fn sample(&mut self, group: StageGroup) -> Option<Instant> {
        self.countdown[group as usize] = self.every;
        self.meter.as_mut().map(|meter| meter.now())
    }

    /// Undoes [`begin`](Self::begin) for an event that had no effect; the next event takes its place.
    #[inline]
    pub fn cancel(&mut self, group: StageGroup, started: Option<Instant>) {
        let countdown = &mut self.countdown[group as usize];
        *countdown = if started.is_some() { 1 } else { countdown.wrapping_add(1) };
    }

    /// Ends a stage that began at `started`, if it is sampled.
    #[inline]
    pub fn end(&mut self, stage: Stage, started: Option<Instant>) {
        if let Some(started) = started {
            self.record(stage, started);
        }
    }

    /// Ends a stage that began at `started`, if it is sampled, and begins the next. The time of the recording itself
    /// belongs to neither.
    #[inline]
    pub fn next(&mut self, stage: Stage, started: Option<Instant>) -> Option<Instant> {
        self.record(stage, started?);
        self.meter.as_mut().map(|meter| meter.now())
    }

    #[cold]
    fn record(&mut self, stage: Stage, started: Instant) {
        if let Some(meter) = &mut self.meter {
            let ended = meter.now();
            meter.record(stage, ended.since(started));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Debug, Default)]
    struct Ticks(u64, Arc<Mutex<Vec<(Stage, Span)>>>);

    impl Meter for Ticks {
        fn now(&mut self) -> Instant {
            self.0 += 1;
            Instant::from_ns(self.0)
        }

        fn record(&mut self, stage: Stage, time: Span) {
            self.1.lock().unwrap().push((stage, time));
        }
    }

    #[test]
    fn samples_one_in_every_and_ignores_cancelled_events() {
        for every in 1..9 {
            let found = Arc::default();
            let mut stages = StageSampler::new(Box::new(Ticks(0, Arc::clone(&found))), every);
            for _ in 0..100 {
                let started = stages.begin(StageGroup::FramesOut);
                let framed = stages.next(Stage::Frame, started);
                stages.end(Stage::Seal, framed);
                // An application takes messages until none is left.
                let started = stages.begin(StageGroup::Receives);
                stages.end(Stage::CopyOut, started);
                let started = stages.begin(StageGroup::Receives);
                stages.cancel(StageGroup::Receives, started);
            }
            let found = found.lock().unwrap();
            for stage in [Stage::Frame, Stage::Seal, Stage::CopyOut] {
                let count = found.iter().filter(|(other, _)| *other == stage).count();
                assert_eq!(count, 100 / every as usize, "{stage:?}, one in {every}");
            }
            assert!(found.iter().all(|(_, time)| *time == Span::from_ns(1)));
        }
    }

    #[test]
    fn nothing_is_measured_without_a_meter() {
        let mut stages = StageSampler::default();
        assert!((0..1000).all(|_| stages.begin(StageGroup::Sends).is_none()));
        stages.countdown = [1; 4];
        assert_eq!(stages.begin(StageGroup::Sends), None);
    }
}

//! How long a message's way through the engine takes, stage by stage, sampled.
//!
//! The engine has no clock. Who wants to know gives a connection one, and a place for what it shows: a [`Meter`], with
//! [`Command::Measure`](crate::Command::Measure). A connection without one measures nothing.

use std::fmt::Debug;

use trunkline_units::{Instant, Span};

/// A stretch of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A message is copied from its user: [`Command::Send`](crate::Command::Send), not
    /// [`HandOver`](crate::Command::HandOver), which copies nothing.
    CopyIn,
    /// A frame is laid out: its head written, the pieces of messages copied into it.
    Frame,
    /// Its check is computed.
    Seal,
    /// The check of a numbered frame that came is computed and compared. Those that fail count as well.
    Open,
    /// What it carries is put to its message. Only of frames that are taken.
    Join,
    /// A message is given to its user, copied or not; of a long one, a part.
    CopyOut,
}

/// A clock, and what takes down what it shows. Looking at it takes time, too: what that is, a meter may know and
/// take off.
pub trait Meter: Debug + Send {
    /// The time; never before what it was.
    fn now(&mut self) -> Instant;
    /// A stage took so long.
    fn took(&mut self, stage: Stage, time: Span);
}

/// What is counted to know which one to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Sends,
    FramesOut,
    FramesIn,
    Takes,
}

/// Measures one in `every`. Without a meter the counts run on, and nothing comes of it.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    meter: Option<Box<dyn Meter>>,
    every: u32,
    /// How many until one is measured.
    left: [u32; 4],
}

impl Stages {
    pub fn new(meter: Box<dyn Meter>, every: u32) -> Self {
        let every = every.max(1);
        Stages { meter: Some(meter), every, left: [every; 4] }
    }

    /// Whether anything is measured.
    #[inline]
    pub fn has_meter(&self) -> bool {
        self.meter.is_some()
    }

    /// How many come before one is measured.
    #[inline]
    pub fn unmeasured(&self, of: Of) -> usize {
        if self.has_meter() { self.left[of as usize].saturating_sub(1) as usize } else { usize::MAX }
    }

    /// So many of those went together.
    #[inline]
    pub fn pass(&mut self, of: Of, count: u64) {
        if self.has_meter() {
            self.left[of as usize] -= count as u32;
        }
    }

    /// The time, if this one is to be measured.
    #[inline]
    pub fn begin(&mut self, of: Of) -> Option<Instant> {
        let left = &mut self.left[of as usize];
        *left = left.wrapping_sub(1);
        if *left > 0 { None } else { self.sample(of) }
    }

    #[cold]
    fn sample(&mut self, of: Of) -> Option<Instant> {
        self.left[of as usize] = self.every;
        self.meter.as_mut().map(|meter| meter.now())
    }

    /// What [`begin`](Self::begin) counted came to nothing: the next is measured in its place.
    #[inline]
    pub fn take_back(&mut self, of: Of, began: Option<Instant>) {
        let left = &mut self.left[of as usize];
        *left = if began.is_some() { 1 } else { left.wrapping_add(1) };
    }

    /// A stage that began then is over.
    #[inline]
    pub fn end(&mut self, stage: Stage, began: Option<Instant>) {
        if let Some(began) = began {
            self.note(stage, began);
        }
    }

    /// The same, and the next stage begins. What taking it down takes is part of neither.
    #[inline]
    pub fn next(&mut self, stage: Stage, began: Option<Instant>) -> Option<Instant> {
        self.note(stage, began?);
        self.meter.as_mut().map(|meter| meter.now())
    }

    #[cold]
    fn note(&mut self, stage: Stage, began: Instant) {
        if let Some(meter) = &mut self.meter {
            let ended = meter.now();
            meter.took(stage, ended.since(began));
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

        fn took(&mut self, stage: Stage, time: Span) {
            self.1.lock().unwrap().push((stage, time));
        }
    }

    #[test]
    fn one_in_every_is_measured_and_those_of_nothing_are_not_counted() {
        for every in 1..9 {
            let found = Arc::default();
            let mut stages = Stages::new(Box::new(Ticks(0, Arc::clone(&found))), every);
            for _ in 0..100 {
                let began = stages.begin(Of::FramesOut);
                let framed = stages.next(Stage::Frame, began);
                stages.end(Stage::Seal, framed);
                // As a user takes messages: after each one it learns that there are no more.
                let began = stages.begin(Of::Takes);
                stages.end(Stage::CopyOut, began);
                let began = stages.begin(Of::Takes);
                stages.take_back(Of::Takes, began);
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
    fn without_a_meter_nothing_is_measured() {
        let mut stages = Stages::default();
        assert!((0..1000).all(|_| stages.begin(Of::Sends).is_none()));
        stages.left = [1; 4];
        assert_eq!(stages.begin(Of::Sends), None);
    }
}

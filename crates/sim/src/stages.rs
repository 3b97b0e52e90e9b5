//! Delay of messages over the guaranteed transport, split into stages.
//!
//! The model has four stages whose sum is the delay of a message: until its last frame is created, until the frame is on
//! the line, until it arrives at the other host, and until the message is read. Copies and checksums are not modelled
//! separately: the processing of a packet in a host is one cost.

use trunkline_record::Histogram;
use trunkline_run::stages::Stages;
use trunkline_units::{Instant, Span};

/// The note in the record that says how the stages are measured.
pub const NOTE: &str = "every message; copies and checksums are the hosts' work on a packet, in send and receive; not \
                        modelled: copy_in, frame, seal, waiting, open, join, copy_out";

/// The names of the modelled stages.
const STAGE_NAMES: [&str; 4] = ["queued", "send", "network", "receive"];

/// Times at which a frame passed the points between the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimes {
    /// The transport created or retransmitted it.
    pub created: Instant,
    /// The host put it on the line, including the queue of the line.
    pub sent: Instant,
    /// It arrived at the receiving host; [`Instant::MAX`] if the host has no costs and does not record it.
    pub arrived: Instant,
}

impl FrameTimes {
    /// Creates the times of a frame that has not arrived.
    pub fn new(created: Instant, sent: Instant) -> Self {
        FrameTimes { created, sent, arrived: Instant::MAX }
    }

    /// Returns the stages of a message that this frame completed. Their sum is always the delay from `handed_over` to
    /// `read`.
    fn stages(&self, handed_over: Instant, read: Instant) -> [Span; 4] {
        let mut from = handed_over;
        [self.created, self.sent, self.arrived, read].map(|moment| {
            let until = moment.min(read).max(from);
            let span = until.since(from);
            from = until;
            span
        })
    }
}

/// Histograms of the stages of a connection's messages.
#[derive(Debug, Default)]
pub struct StageTimes {
    histograms: [Histogram; 4],
}

impl StageTimes {
    /// Records a message.
    pub fn record(&mut self, frame: &FrameTimes, handed_over: Instant, read: Instant) {
        for (times, span) in self.histograms.iter_mut().zip(frame.stages(handed_over, read)) {
            times.record(span);
        }
    }

    /// Returns the stages for the report.
    pub fn stages(&self) -> Stages {
        STAGE_NAMES
            .into_iter()
            .zip(&self.histograms)
            .map(|(name, times)| (name.to_owned(), times.counts()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn stages_add_up_to_the_delay() {
        let mut stream = Seed(5).stream("stages");
        for _ in 0..10_000 {
            let mut moment = || Instant::from_ps(stream.below(40));
            let frame = FrameTimes { created: moment(), sent: moment(), arrived: moment() };
            let (handed_over, read) = (moment(), moment());
            let read = read.max(handed_over);
            let sum = frame.stages(handed_over, read).into_iter().fold(Span::ZERO, |sum, span| sum + span);
            assert_eq!(sum, read.since(handed_over), "{frame:?}");
        }
    }

    #[test]
    fn each_stage_lies_between_its_times() {
        let at = Instant::from_ps;
        let frame = FrameTimes { created: at(3), sent: at(10), arrived: at(21) };
        assert_eq!(frame.stages(at(1), at(40)), [2, 7, 11, 19].map(Span::from_ps));
        // The message is read on arrival, and handed over after the frame was created.
        let frame = FrameTimes { arrived: Instant::MAX, ..frame };
        assert_eq!(frame.stages(at(5), at(30)), [0, 5, 20, 0].map(Span::from_ps));
    }
}

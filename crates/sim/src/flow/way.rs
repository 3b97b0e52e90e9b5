//! Where the time goes: the moments of a message's way over the guaranteed transport, and the stages between them.
//!
//! The model knows four stages, which are all of a message's delay: until the frame that brought it was made, until that
//! stood on the line, until it arrived at the other host, until the message was read. Which processor copies and sums
//! is not modelled: a host's work on a packet is one cost.

use trunkline_record::Histogram;
use trunkline_run::stages::Stages;
use trunkline_units::{Instant, Span};

/// What the record says of how this is measured.
pub const SAYS: &str = "every message; copies and checksums are the hosts' work on a packet, in send and receive; not \
                        modelled: copy_in, frame, seal, waiting, open, join, copy_out";

/// The names of the stages that there are.
const NAMES: [&str; 4] = ["queued", "send", "network", "receive"];

/// When a frame was where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The transport made it, or made it again.
    pub made: Instant,
    /// It stood on the line, whatever waits there before it.
    pub left: Instant,
    /// It arrived at the station of its receiver; [`Instant::MAX`] where nobody noted that, because it passes at once.
    pub came: Instant,
}

impl Way {
    /// A frame that leaves a host that costs nothing.
    pub fn new(made: Instant, left: Instant) -> Self {
        Way { made, left, came: Instant::MAX }
    }

    /// The stages of a message that was handed over then, read at `read`, and brought by this frame. Their sum is its
    /// delay, whatever the moments.
    fn stages(&self, handed_over: Instant, read: Instant) -> [Span; 4] {
        let mut from = handed_over;
        [self.made, self.left, self.came, read].map(|moment| {
            let until = moment.min(read).max(from);
            let span = until.since(from);
            from = until;
            span
        })
    }
}

/// What the messages of a connection took in each stage.
#[derive(Debug, Default)]
pub struct Ways {
    times: [Histogram; 4],
}

impl Ways {
    /// Counts a message.
    pub fn count(&mut self, way: &Way, handed_over: Instant, read: Instant) {
        for (times, span) in self.times.iter_mut().zip(way.stages(handed_over, read)) {
            times.record(span);
        }
    }

    /// To be reported.
    pub fn stages(&self) -> Stages {
        NAMES.into_iter().zip(&self.times).map(|(name, times)| (name.to_owned(), times.counts())).collect()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn stages_add_up_to_the_delay() {
        let mut stream = Seed(5).stream("ways");
        for _ in 0..10_000 {
            let mut moment = || Instant::from_ps(stream.below(40));
            let way = Way { made: moment(), left: moment(), came: moment() };
            let (handed_over, read) = (moment(), moment());
            let read = read.max(handed_over);
            let sum = way.stages(handed_over, read).into_iter().fold(Span::ZERO, |sum, span| sum + span);
            assert_eq!(sum, read.since(handed_over), "{way:?}");
        }
    }

    #[test]
    fn each_stage_is_between_its_moments() {
        let at = Instant::from_ps;
        let way = Way { made: at(3), left: at(10), came: at(21) };
        assert_eq!(way.stages(at(1), at(40)), [2, 7, 11, 19].map(Span::from_ps));
        // Read as it came; handed over when the frame was already made.
        let way = Way { came: Instant::MAX, ..way };
        assert_eq!(way.stages(at(5), at(30)), [0, 5, 20, 0].map(Span::from_ps));
    }
}

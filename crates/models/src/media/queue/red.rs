//! Random early detection (Floyd and Jacobson 1993), with the gentle variant (Floyd 2000).

use trunkline_endpoint::Frame;
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// Parameters of RED. The queue is counted in frames or in bytes, without the frame in transmission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedOptions {
    /// Average queue from which frames are dropped.
    pub min: u64,
    /// Average queue at which the probability is `max_probability`; above `min`.
    pub max: u64,
    /// Whether `min` and `max` count bytes instead of frames.
    pub counts_bytes: bool,
    /// Drop probability when the average queue is `max`.
    pub max_probability: f64,
    /// Weight of the current queue in the average, above 0 and at most 1.
    pub weight: f64,
    /// Whether the probability rises from `max_probability` to 1 between `max` and twice `max`, instead of at once.
    pub is_gentle: bool,
    /// Length of a typical frame in bytes: while the queue is idle the average decays as if such frames were sent.
    pub mean_packet: u32,
    /// Whether frames of ECN-capable transports are marked instead of dropped, below the probability 1.
    pub ecn: bool,
}

/// The values that Floyd recommends: 5 and 15 frames, 0.1, 0.002, gentle; frames of 1,000 bytes; no ECN.
impl Default for RedOptions {
    fn default() -> Self {
        RedOptions {
            min: 5,
            max: 15,
            counts_bytes: false,
            max_probability: 0.1,
            weight: 0.002,
            is_gentle: true,
            mean_packet: 1000,
            ecn: false,
        }
    }
}

impl RedOptions {
    /// Returns the drop probability at an average queue, before it is spread out over arrivals.
    pub fn probability(&self, average: f64) -> f64 {
        let (min, max) = (self.min as f64, self.max as f64);
        if average < min {
            0.0
        } else if average < max {
            self.max_probability * (average - min) / (max - min)
        } else if self.is_gentle && average < 2.0 * max {
            self.max_probability + (1.0 - self.max_probability) * (average - max) / max
        } else {
            1.0
        }
    }
}

/// A queue that RED manages.
#[derive(Clone, Debug)]
pub struct Red<F> {
    options: RedOptions,
    fifo: Fifo<F>,
    /// Average queue.
    average: f64,
    /// Frames since the last drop while the probability is above 0; -1: it was 0.
    count: i64,
    /// Since when the queue has been idle.
    idle_since: Option<Instant>,
    /// Transmission time of a typical frame.
    typical: Span,
    stream: Stream,
}

impl<F: Frame> Red<F> {
    /// Creates an empty queue of a line of this rate.
    pub fn new(options: RedOptions, rate: Rate, stream: Stream) -> Self {
        let typical = rate.time_for(Size::from_bytes(options.mean_packet.into()));
        Red {
            options,
            fifo: Fifo::default(),
            average: 0.0,
            count: -1,
            idle_since: Some(Instant::ZERO),
            typical,
            stream,
        }
    }

    fn update_average(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            let missed = now.since(since).as_ps() as f64 / self.typical.as_ps().max(1) as f64;
            self.average *= libm::pow(1.0 - self.options.weight, missed);
        }
        let queue = if self.options.counts_bytes { self.fifo.bytes() } else { self.fifo.frames() };
        self.average += self.options.weight * (queue as f64 - self.average);
        if queue == 0 {
            self.idle_since = Some(now);
        }
    }
}

impl<F: Frame> Discipline<F> for Red<F> {
    fn admit(&mut self, now: Instant, frame: &mut F, actions: &mut Actions<F>) -> bool {
        self.update_average(now);
        let probability = self.options.probability(self.average);
        if probability <= 0.0 {
            self.count = -1;
            return true;
        }
        if probability >= 1.0 {
            self.count = 0;
            return false;
        }
        self.count += 1;
        // Drops are spread evenly: the number of frames between two is uniformly distributed.
        let rest = 1.0 - self.count as f64 * probability;
        let is_selected = rest <= probability || self.stream.chance(probability / rest);
        if is_selected {
            self.count = 0;
        }
        !is_selected || self.options.ecn && actions.try_mark(frame)
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        self.idle_since = None;
        self.fifo.push(now, frame);
    }

    fn dequeue(&mut self, now: Instant, _actions: &mut Actions<F>) -> Option<Queued<F>> {
        let next = self.fifo.pop();
        if self.fifo.is_empty() {
            self.idle_since = Some(now);
        }
        next
    }

    fn frames(&self) -> u64 {
        self.fifo.frames()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_that_of_the_paper() {
        let options = RedOptions::default();
        for (average, gentle, abrupt) in [
            (4.9, 0.0, 0.0),
            (5.0, 0.0, 0.0),
            (10.0, 0.05, 0.05),
            (15.0, 0.1, 1.0),
            (22.5, 0.55, 1.0),
            (30.0, 1.0, 1.0),
        ] {
            assert!((options.probability(average) - gentle).abs() < 1e-12, "{average}");
            let options = RedOptions { is_gentle: false, ..options };
            assert!((options.probability(average) - abrupt).abs() < 1e-12, "{average}");
        }
    }
}

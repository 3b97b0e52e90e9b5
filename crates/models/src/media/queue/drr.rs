//! Deficit round robin (Shreedhar and Varghese 1995): fair queueing of flows, or weighted fair queueing of code points.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::Frame;
use trunkline_units::Instant;

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// Parameters of deficit round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrrOptions {
    /// Bytes that a class of weight 1 may send in a round; not zero.
    pub quantum: u32,
    /// Weights, not zero, by DSCP; all other code points share a class of weight 1. Empty: each flow is a class of weight 1.
    pub weights: Vec<(u8, u32)>,
}

/// A quantum of one Ethernet frame; all flows are equal.
impl Default for DrrOptions {
    fn default() -> Self {
        DrrOptions { quantum: 1514, weights: Vec::new() }
    }
}

/// The class of code points without a weight.
const OTHERS: u64 = u64::MAX;

/// Frames of one class.
#[derive(Clone, Debug)]
struct Class<F> {
    fifo: Fifo<F>,
    /// Bytes that it may still send in this round.
    deficit: u64,
    /// Bytes added to the deficit in each round.
    quantum: u64,
    /// Whether it has received its quantum in this round.
    has_begun: bool,
}

/// The queues of the classes with frames.
#[derive(Clone, Debug)]
pub struct Drr<F> {
    options: DrrOptions,
    classes: BTreeMap<u64, Class<F>>,
    /// Classes with frames in order of service.
    active: VecDeque<u64>,
    frames: u64,
}

impl<F: Frame> Drr<F> {
    /// Creates empty queues.
    pub fn new(options: DrrOptions) -> Self {
        Drr { options, classes: BTreeMap::new(), active: VecDeque::new(), frames: 0 }
    }

    /// Returns the class of a frame and its weight.
    fn class(&self, frame: &F) -> (u64, u32) {
        let weights = &self.options.weights;
        match weights.iter().find(|(dscp, _)| *dscp == frame.dscp()) {
            _ if weights.is_empty() => (frame.flow(), 1),
            Some((dscp, weight)) => (u64::from(*dscp), *weight),
            None => (OTHERS, 1),
        }
    }

    /// Removes a class without frames. Its deficit is lost: an idle class saves nothing.
    fn remove(&mut self, key: u64) {
        self.classes.remove(&key);
        self.active.retain(|active| *active != key);
    }
}

impl<F: Frame> Discipline<F> for Drr<F> {
    /// Drops the newest frame of the longest queue, relative to its weight and with the arriving frame in its queue.
    fn evict(&mut self, arriving: &F) -> Option<F> {
        let (own, weight) = self.class(arriving);
        let length = u64::from(arriving.length());
        let mut longest = (length / u64::from(weight), own);
        for (key, class) in &self.classes {
            let bytes = class.fifo.bytes() + if *key == own { length } else { 0 };
            longest = longest.max((bytes * u64::from(self.options.quantum) / class.quantum, *key));
        }
        let (_, key) = longest;
        if key == own {
            return None;
        }
        let class = self.classes.get_mut(&key)?;
        let victim = class.fifo.pop_newest()?;
        if class.fifo.is_empty() {
            self.remove(key);
        }
        self.frames -= 1;
        Some(victim.frame)
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        let (key, weight) = self.class(&frame);
        let class = self.classes.entry(key).or_insert_with(|| {
            self.active.push_back(key);
            let quantum = u64::from(self.options.quantum) * u64::from(weight);
            Class { fifo: Fifo::default(), deficit: 0, quantum, has_begun: false }
        });
        class.fifo.push(now, frame);
        self.frames += 1;
    }

    fn dequeue(&mut self, _now: Instant, _actions: &mut Actions<F>) -> Option<Queued<F>> {
        loop {
            let key = *self.active.front()?;
            let class = self.classes.get_mut(&key)?;
            if !class.has_begun {
                (class.has_begun, class.deficit) = (true, class.deficit + class.quantum);
            }
            let length = u64::from(class.fifo.first()?.frame.length());
            if length > class.deficit {
                class.has_begun = false;
                self.active.rotate_left(1);
                continue;
            }
            class.deficit -= length;
            let next = class.fifo.pop();
            if class.fifo.is_empty() {
                self.remove(key);
            }
            self.frames -= 1;
            return next;
        }
    }

    fn frames(&self) -> u64 {
        self.frames
    }
}

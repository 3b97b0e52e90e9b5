//! FQ-CoDel (RFC 8290): deficit round robin over queues of hashed flows, each managed by CoDel; new flows go first.

use std::collections::VecDeque;

use trunkline_endpoint::Frame;
use trunkline_units::{Instant, Stream};

use super::codel::{CoDelOptions, Control};
use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// Parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelOptions {
    /// Parameters of CoDel in each queue.
    pub codel: CoDelOptions,
    /// Number of queues that flows are hashed to (section 5.2.5).
    pub flows: u32,
    /// Bytes that a queue may send in a round (section 5.2.4).
    pub quantum: u32,
}

/// The defaults of RFC 8290 section 5.2: 5 ms, 100 ms, ECN, 1,024 queues, and a quantum of one Ethernet frame.
impl Default for FqCoDelOptions {
    fn default() -> Self {
        let codel = CoDelOptions { ecn: true, ..CoDelOptions::default() };
        FqCoDelOptions { codel, flows: 1024, quantum: 1514 }
    }
}

/// The queue of the flows with one hash.
#[derive(Clone, Debug)]
struct FlowQueue<F> {
    fifo: Fifo<F>,
    control: Control,
    /// Bytes that it may still send in this round.
    deficit: i64,
    /// Whether it is in one of the lists.
    is_listed: bool,
}

/// The queues of all flows.
#[derive(Clone, Debug)]
pub struct FqCoDel<F> {
    options: FqCoDelOptions,
    queues: Vec<FlowQueue<F>>,
    /// Queues whose flow has just begun, in order of service.
    new: VecDeque<u32>,
    /// The other queues with frames.
    old: VecDeque<u32>,
    frames: u64,
    /// Makes the hash unpredictable.
    perturbation: u64,
}

impl<F: Frame> FqCoDel<F> {
    /// Creates empty queues.
    pub fn new(options: FqCoDelOptions, mut stream: Stream) -> Self {
        let queue =
            || FlowQueue { fifo: Fifo::default(), control: Control::default(), deficit: 0, is_listed: false };
        FqCoDel {
            queues: (0..options.flows.max(1)).map(|_| queue()).collect(),
            options,
            new: VecDeque::new(),
            old: VecDeque::new(),
            frames: 0,
            perturbation: stream.bits(),
        }
    }

    /// Returns the queue of a frame.
    fn index(&self, frame: &F) -> u32 {
        // The finalizer of SplitMix64 mixes all bits.
        let mut hash = frame.flow() ^ self.perturbation;
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((hash ^ hash >> 31) % self.queues.len() as u64) as u32
    }
}

impl<F: Frame> Discipline<F> for FqCoDel<F> {
    /// Drops from the head of the longest queue (section 4.1.1), with the arriving frame in its queue.
    fn evict(&mut self, arriving: &F) -> Option<F> {
        let own = self.index(arriving);
        let bytes = |index: u32| {
            let arriving = if index == own { u64::from(arriving.length()) } else { 0 };
            self.queues[index as usize].fifo.bytes() + arriving
        };
        let listed = self.new.iter().chain(&self.old).copied();
        let longest = listed.chain([own]).max_by_key(|index| bytes(*index))?;
        let victim = self.queues[longest as usize].fifo.pop()?;
        self.frames -= 1;
        Some(victim.frame)
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        let index = self.index(&frame);
        let queue = &mut self.queues[index as usize];
        queue.fifo.push(now, frame);
        if !queue.is_listed {
            (queue.is_listed, queue.deficit) = (true, i64::from(self.options.quantum));
            self.new.push_back(index);
        }
        self.frames += 1;
    }

    fn dequeue(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index as usize];
            if queue.deficit <= 0 {
                queue.deficit += i64::from(self.options.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let dropped = actions.dropped.len();
            let next = queue.control.dequeue(&self.options.codel, now, &mut queue.fifo, actions);
            self.frames -= (actions.dropped.len() - dropped) as u64 + u64::from(next.is_some());
            if let Some(next) = next {
                queue.deficit -= i64::from(next.frame.length());
                return Some(next);
            }
            list.pop_front();
            // A new queue that is empty becomes old first, so that it cannot starve the others (section 4.2).
            if is_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                queue.is_listed = false;
            }
        }
    }

    fn frames(&self) -> u64 {
        self.frames
    }
}

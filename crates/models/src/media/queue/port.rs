//! The explicit queue and the transmitter of a port.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use trunkline_endpoint::{Frame, LossCause, MediumCounters};
use trunkline_units::{Instant, Span};

use super::changes::LinkChange;
use super::fifo::Queued;
use super::opportunities::{OpportunityTransmitter, PACKET_OVERHEAD};
use super::rate_steps::RateSteps;
use super::token_bucket::TokenBucket;
use super::{Actions, AnyDiscipline, Discipline, QueueOptions, TraceOptions};
use crate::impairments::Impairments;
use crate::media::occupancy::Occupancy;
use crate::media::serializer::Serializer;
use crate::media::{Framing, LineOptions, Segmentation};

/// Counters of an explicit queue, in frames: at a port of ATM in packets, or in cells where it queues cells. A frame is dropped for
/// one cause; the sum is in [`MediumCounters::queue_drops`](trunkline_endpoint::MediumCounters), which counts cells on ATM.
#[derive(Clone, Debug)]
pub struct QueueCounters {
    /// Frames dropped because the queue was full: the arriving frame or, in its place, one that the discipline chose.
    pub dropped_full: u64,
    /// Frames that the discipline dropped although there was room.
    pub dropped_early: u64,
    /// Frames that the policer dropped.
    pub policed: u64,
    /// Frames marked with [`Ecn::Ce`](trunkline_endpoint::Ecn::Ce).
    pub marked: u64,
    /// Times from the arrival of a frame to the begin of its transmission in nanoseconds, with three significant digits.
    pub sojourn_ns: Histogram<u64>,
}

impl Default for QueueCounters {
    fn default() -> Self {
        let mut sojourn_ns = Histogram::new_with_bounds(1, 1 << 16, 3).expect("constant bounds are valid");
        sojourn_ns.auto(true);
        QueueCounters { dropped_full: 0, dropped_early: 0, policed: 0, marked: 0, sojourn_ns }
    }
}

/// A frame whose transmission has begun, so that its arrival is known.
#[derive(Clone, Debug)]
pub struct Started<F> {
    pub arrives: Instant,
    pub frame: F,
    /// The impairments at the begin.
    pub impairments: Impairments,
}

/// A cell of a frame whose transmission has begun.
#[derive(Clone, Copy, Debug)]
pub struct SentCell {
    pub arrives: Instant,
    /// The impairments at the begin of the cell.
    pub impairments: Impairments,
}

/// The frame in transmission.
#[derive(Clone, Copy, Debug)]
struct Sending {
    departs: Instant,
    busy: Span,
    channel: u16,
    load: Load,
}

/// What a frame takes of the queue and of the line.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Bytes in the queue.
    bytes: u32,
    /// One frame, or the number of its cells.
    units: u32,
}

/// What determines when frames begin and depart.
#[derive(Clone, Debug)]
enum Transmitter {
    Rate(Serializer),
    Opportunities(OpportunityTransmitter),
    Steps(RateSteps),
}

impl Transmitter {
    /// Returns the earliest time from `from` on at which a transmission can begin.
    fn ready_at(&mut self, from: Instant) -> Instant {
        match self {
            Transmitter::Rate(serializer) => serializer.free_at().max(from),
            Transmitter::Opportunities(opportunities) => opportunities.ready_at(from),
            Transmitter::Steps(steps) => steps.ready_at(from),
        }
    }

    /// Sends a frame that can begin at `begins`. Returns when it departs, and how long it keeps the transmitter busy.
    fn transmit(&mut self, begins: Instant, length: u32, framing: Framing) -> (Instant, Span) {
        let departs = match self {
            Transmitter::Rate(serializer) => serializer.transmit(begins, framing.wire(length)),
            Transmitter::Opportunities(opportunities) => {
                return (opportunities.transmit(length), opportunities.busy(length));
            }
            Transmitter::Steps(steps) => steps.end(begins, framing.wire(length)),
        };
        (departs, departs.since(begins))
    }
}

/// The queue of a port with a discipline, and its transmitter. [`run`](PortQueue::run) makes everything happen that is due;
/// the caller then takes [`started`](PortQueue::started) and [`dropped`](PortQueue::dropped).
#[derive(Clone, Debug)]
pub struct PortQueue<F> {
    discipline: AnyDiscipline<F>,
    /// Frames in the discipline, the next frame, and the frame in transmission.
    occupancy: Occupancy,
    transmitter: Transmitter,
    pacer: Option<Serializer>,
    shaper: Option<TokenBucket>,
    policer: Option<TokenBucket>,
    framing: Framing,
    /// How frames are divided into cells, on ATM.
    segmentation: Option<Segmentation>,
    delay: Span,
    impairments: Impairments,
    changes: VecDeque<LinkChange>,
    is_up: bool,
    /// The next frame, which waits for tokens of the shaper.
    next: Option<Queued<F>>,
    sending: Option<Sending>,
    /// Up to when the transmitter has been simulated.
    clock: Instant,
    next_event: Instant,
    last_arrival: Instant,
    actions: Actions<F>,
    counters: QueueCounters,
    pub started: Vec<Started<F>>,
    /// With segmentation, the cells of the frames in `started`, one after the other.
    pub started_cells: Vec<SentCell>,
    pub dropped: Vec<(F, LossCause)>,
}

impl<F: Frame> PortQueue<F> {
    /// Creates the empty queue of a line with these options.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(options: &LineOptions, queue: QueueOptions) -> Self {
        Self::with_cells(options, queue, None)
    }

    /// Like [`new`](Self::new), but each frame is sent as cells: a change applies to the cells that begin after it, the bound
    /// counts the bytes of cells, and the pacing rate is that of cells. The framing is not used.
    pub fn with_cells(
        options: &LineOptions,
        queue: QueueOptions,
        segmentation: Option<Segmentation>,
    ) -> Self {
        let transmitter = match queue.trace {
            None => Transmitter::Rate(Serializer::new(options.rate)),
            Some(TraceOptions::Opportunities(trace)) => {
                let overhead = if segmentation.is_some() { 0 } else { PACKET_OVERHEAD };
                Transmitter::Opportunities(OpportunityTransmitter::new(trace, overhead))
            }
            Some(TraceOptions::Rate(steps)) => Transmitter::Steps(steps),
        };
        PortQueue {
            discipline: AnyDiscipline::new(queue.discipline, options.rate, queue.stream),
            occupancy: Occupancy::new(options.bound),
            transmitter,
            pacer: options.pacing.map(Serializer::new),
            shaper: queue.shaper.map(TokenBucket::new),
            policer: queue.policer.map(TokenBucket::new),
            framing: if segmentation.is_some() { Framing::NONE } else { options.framing },
            segmentation,
            delay: options.delay,
            impairments: options.impairments,
            changes: queue.changes.into(),
            is_up: true,
            next: None,
            sending: None,
            clock: Instant::ZERO,
            next_event: Instant::MAX,
            last_arrival: Instant::ZERO,
            actions: Actions::default(),
            counters: QueueCounters::default(),
            started: Vec::new(),
            started_cells: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Queues a frame, or drops it.
    pub fn send(&mut self, now: Instant, frame: F, counters: &mut MediumCounters) {
        self.run(now, counters);
        self.accept(now, frame, counters);
        self.run(now, counters);
    }

    fn accept(&mut self, now: Instant, mut frame: F, counters: &mut MediumCounters) {
        let (channel, length) = (frame.channel(), frame.length());
        if self.policer.as_ref().is_some_and(|policer| policer.ready_at(length) > now) {
            return self.drop(frame, LossCause::Policed, counters);
        }
        if let Some(policer) = &mut self.policer {
            policer.take(now, length);
        }
        let is_admitted = self.discipline.admit(now, &mut frame, &mut self.actions);
        self.count_marks();
        if !is_admitted {
            return self.drop(frame, LossCause::EarlyDrop, counters);
        }
        while !self.occupancy.try_add(channel, self.load(length).bytes) {
            // What other channels have queued makes no room in this one.
            let may_evict = !self.occupancy.is_per_channel();
            let Some(victim) = may_evict.then(|| self.discipline.evict(&frame)).flatten() else {
                return self.drop(frame, LossCause::QueueFull, counters);
            };
            self.occupancy.remove(victim.channel(), self.load(victim.length()).bytes);
            self.drop(victim, LossCause::QueueFull, counters);
        }
        counters.queue_max = counters.queue_max.max(self.occupancy.bytes());
        self.discipline.enqueue(now, frame);
    }

    /// Makes the departures and transmissions happen that are due by `now`.
    pub fn run(&mut self, now: Instant, counters: &mut MediumCounters) {
        self.next_event = loop {
            if let Some(sending) = self.sending {
                if sending.departs > now {
                    break sending.departs;
                }
                self.occupancy.remove(sending.channel, sending.load.bytes);
                counters.frames += u64::from(sending.load.units);
                counters.bytes += u64::from(sending.load.bytes);
                counters.busy += sending.busy;
                (self.sending, self.clock) = (None, sending.departs);
            }
            if self.next.is_none() && self.discipline.frames() == 0 {
                self.clock = self.clock.max(now);
                break Instant::MAX;
            }
            let begins = self.next_start(now);
            if begins > now {
                break begins;
            }
            self.start(begins, counters);
        };
    }

    /// Returns when the next transmission can begin. If that is after `now`, it may be earlier than the truth.
    fn next_start(&mut self, now: Instant) -> Instant {
        loop {
            while let Some(change) = self.changes.front().filter(|change| change.at <= self.clock).copied() {
                self.changes.pop_front();
                self.apply(&change);
            }
            let ready = if self.is_up { self.ready_at(self.clock) } else { Instant::MAX };
            let change = self.changes.front().map_or(Instant::MAX, |change| change.at);
            let next = ready.min(change);
            if ready == self.clock || next > now {
                return next;
            }
            self.clock = next;
        }
    }

    /// Returns when a transmission can begin from `from` on, without changes.
    fn ready_at(&mut self, from: Instant) -> Instant {
        let mut ready = self.transmitter.ready_at(from);
        if let Some(pacer) = &self.pacer {
            ready = ready.max(pacer.free_at());
        }
        if let (Some(shaper), Some(next)) = (&self.shaper, &self.next) {
            ready = ready.max(shaper.ready_at(next.frame.length()));
        }
        ready
    }

    fn apply(&mut self, change: &LinkChange) {
        if let (Some(rate), Transmitter::Rate(_)) = (change.rate, &self.transmitter) {
            self.transmitter = Transmitter::Rate(Serializer::new(rate));
        }
        self.delay = change.delay.unwrap_or(self.delay);
        self.is_up = change.is_up.unwrap_or(self.is_up);
        change.apply_to(&mut self.impairments);
    }

    /// Begins a transmission, if the discipline does not drop what is left and the shaper has tokens.
    fn start(&mut self, begins: Instant, counters: &mut MediumCounters) {
        let next = self.next.take().or_else(|| self.discipline.dequeue(begins, &mut self.actions));
        self.finish_dequeue(counters);
        let Some(queued) = next else { return };
        let length = queued.frame.length();
        if let Some(shaper) = &mut self.shaper {
            if shaper.ready_at(length) > begins {
                self.next = Some(queued);
                return;
            }
            shaper.take(begins, length);
        }
        // With auto-resize this cannot fail.
        let _ = self.counters.sojourn_ns.record(begins.since(queued.at).as_ns());
        let (departs, busy) = match self.segmentation {
            None => self.transmit(begins, length, length),
            Some(segmentation) => self.transmit_cells(begins, length, segmentation),
        };
        let (channel, load) = (queued.frame.channel(), self.load(length));
        self.sending = Some(Sending { departs, busy, channel, load });
        let (arrives, impairments) = (self.last_arrival, self.impairments);
        self.started.push(Started { arrives, frame: queued.frame, impairments });
    }

    /// Sends a frame or cell, of which the pacer counts `paced` bytes. Returns when it departs, and how long it keeps the
    /// transmitter busy.
    fn transmit(&mut self, begins: Instant, length: u32, paced: u32) -> (Instant, Span) {
        if let Some(pacer) = &mut self.pacer {
            pacer.transmit(begins, u64::from(paced));
        }
        let (departs, busy) = self.transmitter.transmit(begins, length, self.framing);
        self.last_arrival = self.last_arrival.max(departs + self.delay);
        (departs, busy)
    }

    /// Sends the cells of a frame one after the other. Nothing comes between them, and the changes of the line are known in
    /// advance, so their times are.
    fn transmit_cells(
        &mut self,
        begins: Instant,
        length: u32,
        segmentation: Segmentation,
    ) -> (Instant, Span) {
        let (mut departs, mut busy, mut begin) = (begins, Span::ZERO, begins);
        for cell in 0..segmentation.cells(length) {
            if cell > 0 {
                self.clock = self.clock.max(departs);
                begin = self.next_start(Instant::MAX);
            }
            let (end, cell_busy) = match begin {
                Instant::MAX => {
                    // The line never sends again.
                    self.last_arrival = Instant::MAX;
                    (begin, Span::ZERO)
                }
                _ => self.transmit(begin, segmentation.unit, segmentation.paced),
            };
            (departs, busy) = (end, busy + cell_busy);
            let (arrives, impairments) = (self.last_arrival, self.impairments);
            self.started_cells.push(SentCell { arrives, impairments });
        }
        (departs, busy)
    }

    fn load(&self, length: u32) -> Load {
        match self.segmentation {
            None => Load { bytes: length, units: 1 },
            Some(segmentation) => {
                let units = segmentation.cells(length);
                Load { bytes: units * segmentation.unit, units }
            }
        }
    }

    /// Drops the frames that the discipline dropped.
    fn finish_dequeue(&mut self, counters: &mut MediumCounters) {
        for frame in std::mem::take(&mut self.actions.dropped) {
            self.occupancy.remove(frame.channel(), self.load(frame.length()).bytes);
            self.drop(frame, LossCause::EarlyDrop, counters);
        }
        self.count_marks();
    }

    fn count_marks(&mut self) {
        self.counters.marked += std::mem::take(&mut self.actions.marked);
    }

    fn drop(&mut self, frame: F, cause: LossCause, counters: &mut MediumCounters) {
        counters.queue_drops += u64::from(self.load(frame.length()).units);
        match cause {
            LossCause::EarlyDrop => self.counters.dropped_early += 1,
            LossCause::Policed => self.counters.policed += 1,
            _ => self.counters.dropped_full += 1,
        }
        self.dropped.push((frame, cause));
    }

    /// Returns whether a frame of `length` bytes fits.
    pub fn has_room(&self, length: u32) -> bool {
        self.occupancy.has_room(self.load(length).bytes)
    }

    /// Returns when [`run`](PortQueue::run) has something to do; [`Instant::MAX`] for never.
    pub fn next_event(&self) -> Instant {
        self.next_event
    }

    /// Returns whether a frame may be impaired.
    pub fn may_impair(&self) -> bool {
        let changed = self.changes.iter().flat_map(|c| [c.loss, c.corrupt, c.duplicate, c.reorder]);
        self.impairments.any() || changed.flatten().any(|probability| probability > 0.0)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

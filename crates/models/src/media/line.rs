//! One direction of a link.
//!
//! A frame waits in a queue at the sending port, departs at the line rate, and arrives one delay later unless it
//! is impaired. The queue is FIFO with tail drop, so the departure is known at enqueue: the line computes it then, and
//! a frame costs one event, its arrival.
//!
//! With [`LineOptions::queue`] another discipline decides, or the rate changes, and departures are not known at enqueue. Then
//! the line has a [`PortQueue`], which hands over each frame when its transmission begins, and a frame costs two events.
//!
//! A line loses frames at its full queue ([`LossCause::QueueFull`]), by the discipline or policer of its queue, and by
//! impairments ([`LossCause::LineError`]); see [`Line::counters`].

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Frame, LossCause, MediumCounters};
use trunkline_units::{Instant, Rate, Span, Stream};

use crate::impairments::{FrameOutcome, Impairments};
use crate::media::Framing;
use crate::media::occupancy::Occupancy;
use crate::media::queue::port::{PortQueue, Started};
use crate::media::queue::{QueueCounters, QueueOptions};
use crate::media::serializer::Serializer;

/// Options of one direction of a link.
#[derive(Clone, Debug)]
pub struct LineOptions {
    /// Bit rate; not zero.
    pub rate: Rate,
    /// Framing overhead.
    pub framing: Framing,
    /// Propagation delay, from the departure of the last bit to its arrival.
    pub delay: Span,
    /// Limit of the queue at the sending port, including the frame in transmission. Measured in [`Frame::length`],
    /// without framing.
    pub bound: Bound,
    /// Pacing rate: a frame starts no earlier than its predecessor's start plus that frame's [`Frame::length`] at
    /// this rate. Not zero.
    pub pacing: Option<Rate>,
    /// Impairments.
    pub impairments: Impairments,
    /// An explicit queue; none: FIFO with tail drop.
    pub queue: Option<Box<QueueOptions>>,
}

/// Ethernet at 10 Mb/s without delay, a queue of 100 frames, no impairment.
impl Default for LineOptions {
    fn default() -> Self {
        LineOptions {
            rate: Rate::from_bps(10_000_000),
            framing: Framing::ETHERNET,
            delay: Span::ZERO,
            bound: Bound::frames(100),
            pacing: None,
            impairments: Impairments::default(),
            queue: None,
        }
    }
}

/// A frame that is queued, in transmission, or in flight.
#[derive(Clone, Debug)]
struct Flight<F> {
    departs: Instant,
    transmission_time: Span,
    frame: F,
}

/// An output of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineOutput<F> {
    /// The frame arrived at the far end.
    Arrived(F),
    /// The frame was lost.
    Lost(F, LossCause),
    /// There is room in the queue again; follows [`Line::request_room`].
    Room,
}

/// One direction of a link; see the [module](self). A [`Link`](crate::media::Link) has two.
///
/// Its queue is limited by [`LineOptions::bound`]; a frame that does not fit is lost ([`LossCause::QueueFull`]) and
/// reported by the next poll. The number of frames in flight is limited by rate and delay.
#[derive(Clone, Debug)]
pub struct Line<F> {
    serializer: Serializer,
    pacer: Option<Serializer>,
    framing: Framing,
    /// Zero with an explicit queue, whose flights depart when they arrive.
    delay: Span,
    /// With an explicit queue nothing fits, so that frames take the slow path to it.
    occupancy: Occupancy,
    /// In order of departure.
    flights: VecDeque<Flight<F>>,
    /// Number of `flights` that have departed and are counted.
    departed: usize,
    /// Next departure that is not yet counted, or the next event of the explicit queue; [`Instant::MAX`] if there is none.
    next_departure: Instant,
    /// Time of the next output: the next arrival, zero if there is output now, [`Instant::MAX`] if there is none.
    next_output: Instant,
    /// Time of the last wake: later output may not be polled yet.
    woken_at: Instant,
    /// Whether the sender waits for room in the queue.
    room_requested: bool,
    /// Whether departures cause output: the sender waits for room, or there is an explicit queue.
    watches_departures: bool,
    /// Length of the frame that [`Line::has_room`] last refused.
    refused_length: u32,
    /// Whether [`LineOutput::Room`] is to be output.
    room_pending: bool,
    /// Frames dropped at the queue, to be output as lost.
    dropped: VecDeque<(F, LossCause)>,
    counters: MediumCounters,
    impaired: Option<Box<ImpairedState<F>>>,
    queue: Option<Box<PortQueue<F>>>,
    /// Whether only arrivals can be output: the line is perfect, the sender does not wait, and no drop is unreported.
    only_arrivals: bool,
}

/// State that only an impaired line needs.
#[derive(Clone, Debug)]
struct ImpairedState<F> {
    probabilities: Impairments,
    stream: Stream,
    /// The impairments of each flight.
    outcomes: VecDeque<FrameOutcome>,
    /// The reordered frame and its latest delivery time.
    held: Option<(Instant, F, FrameOutcome)>,
    /// Outputs of one arrival, at most four.
    outputs: VecDeque<LineOutput<F>>,
}

impl<F: Frame> Line<F> {
    /// Creates an idle line. Impairments are drawn from `stream`; a perfect line draws nothing.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(mut options: LineOptions, stream: Stream) -> Self {
        let queue = options.queue.take().map(|queue| Box::new(PortQueue::new(&options, *queue)));
        let LineOptions { rate, framing, delay, bound, pacing, impairments, .. } = options;
        let may_impair = queue.as_ref().map_or(impairments.any(), |queue| queue.may_impair());
        let impaired = may_impair.then(|| {
            Box::new(ImpairedState {
                probabilities: impairments,
                stream,
                outcomes: VecDeque::new(),
                held: None,
                outputs: VecDeque::new(),
            })
        });
        Line {
            serializer: Serializer::new(rate),
            pacer: pacing.map(Serializer::new),
            framing,
            delay: if queue.is_some() { Span::ZERO } else { delay },
            occupancy: Occupancy::new(if queue.is_some() { Bound::frames(0) } else { bound }),
            flights: VecDeque::new(),
            departed: 0,
            next_departure: Instant::MAX,
            next_output: Instant::MAX,
            woken_at: Instant::ZERO,
            room_requested: false,
            watches_departures: queue.is_some(),
            refused_length: 0,
            room_pending: false,
            dropped: VecDeque::new(),
            counters: MediumCounters::default(),
            only_arrivals: impaired.is_none() && queue.is_none(),
            impaired,
            queue,
        }
    }

    /// Queues `frame`, or drops it if the queue is full. Returns its arrival time if only arrivals can be output.
    #[inline(always)]
    pub fn send(&mut self, now: Instant, frame: F) -> Option<Instant> {
        self.count_departures(now);
        let length = frame.length();
        if !self.occupancy.try_add(frame.channel(), length) {
            self.refuse_frame(now, frame);
            return None;
        }
        self.counters.queue_max = self.counters.queue_max.max(self.occupancy.bytes());
        let mut begins = now.max(self.serializer.free_at());
        if let Some(pacer) = &mut self.pacer {
            begins = begins.max(pacer.free_at());
            pacer.transmit(begins, u64::from(length));
        }
        let departs = self.serializer.transmit(begins, self.framing.wire(length));
        if let Some(impaired) = &mut self.impaired {
            impaired.draw();
        }
        self.flights.push_back(Flight { departs, transmission_time: departs.since(begins), frame });
        self.next_departure = self.next_departure.min(departs);
        let arrives = departs + self.delay;
        self.next_output = self.next_output.min(arrives);
        self.only_arrivals.then_some(arrives)
    }

    /// Makes the output of everything that has arrived by `now` available.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        self.woken_at = now;
        self.count_departures(now);
        if self.watches_departures {
            self.run_queue(now);
            self.notify_room();
        }
    }

    /// Returns whether the line has no impairments and no explicit queue.
    pub fn is_perfect(&self) -> bool {
        self.impaired.is_none() && self.queue.is_none()
    }

    /// Returns the counters of the explicit queue, if there is one.
    pub fn queue_counters(&self) -> Option<&QueueCounters> {
        self.queue.as_ref().map(|queue| queue.counters())
    }

    /// Adds to the delay of all later frames. Call it before the first frame.
    pub fn add_delay(&mut self, by: Span) {
        self.delay += by;
    }

    /// Returns whether only arrivals can be output, so that [`take_arrival`](Line::take_arrival) suffices.
    #[inline]
    pub fn has_only_arrivals(&self) -> bool {
        self.only_arrivals
    }

    /// Returns the next frame that has arrived by `now` if only arrivals can be output: `wake` and one `poll` in one
    /// step.
    #[inline(always)]
    pub fn take_arrival(&mut self, now: Instant) -> Option<F> {
        if self.next_output > now {
            return None;
        }
        let Flight { transmission_time, frame, .. } = self.flights.pop_front()?;
        let next = self.flights.front().map_or(Instant::MAX, |next| next.departs);
        self.next_output = next + self.delay;
        match self.departed.checked_sub(1) {
            Some(departed) => self.departed = departed,
            None => {
                self.next_departure = next;
                self.count(frame.channel(), frame.length(), transmission_time);
            }
        }
        if self.next_departure <= now {
            self.count_more_departures(now);
        }
        Some(frame)
    }

    #[cold]
    fn count_more_departures(&mut self, now: Instant) {
        self.count_departures(now);
    }

    /// Counts a departure.
    #[inline]
    fn count(&mut self, channel: u16, length: u32, transmission_time: Span) {
        self.occupancy.remove(channel, length);
        self.counters.frames += 1;
        self.counters.bytes += u64::from(length);
        self.counters.busy += transmission_time;
    }

    /// Returns the next arrival if only arrivals can be output; [`Instant::MAX`] if none is in flight.
    #[inline]
    pub(crate) fn next_output(&self) -> Instant {
        self.next_output
    }

    /// Requests [`LineOutput::Room`] when there is room for the frame that [`has_room`](Line::has_room) last refused.
    pub fn request_room(&mut self, now: Instant) {
        self.count_departures(now);
        self.run_queue(now);
        (self.room_requested, self.watches_departures, self.only_arrivals) = (true, true, false);
        self.notify_room();
    }

    /// Returns whether a frame of `length` bytes fits into the queue now, for per-channel limits into every channel.
    /// A frame larger than the limit never fits.
    #[inline(always)]
    pub fn has_room(&mut self, now: Instant, length: u32) -> bool {
        if self.next_departure <= now {
            self.count_more_departures(now);
        }
        self.occupancy.has_room(length) || self.has_room_in_queue(now, length)
    }

    /// Returns whether the explicit queue has room, if there is one.
    #[cold]
    fn has_room_in_queue(&mut self, now: Instant, length: u32) -> bool {
        self.run_queue(now);
        let has_room = self.queue.as_ref().is_some_and(|queue| queue.has_room(length));
        if !has_room {
            self.refused_length = length;
        }
        has_room
    }

    /// Returns the next output, until there is none for now.
    #[inline]
    pub fn poll(&mut self) -> Option<LineOutput<F>> {
        if self.next_output > self.woken_at {
            return None;
        }
        if self.next_output == Instant::ZERO || self.impaired.is_some() {
            return self.poll_general();
        }
        let flight = self.pop_arrived();
        self.next_output = self.next_arrival();
        flight.map(|flight| LineOutput::Arrived(flight.frame))
    }

    /// Returns the time of the next output: at once if it is not in the future, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.watches_departures { self.next_output.min(self.next_departure) } else { self.next_output }
    }

    /// Returns the counters as of the last call with a time. A frame counts as sent when its last bit has left, as lost
    /// by a line error, damaged, duplicated or reordered when it arrives.
    #[inline]
    pub fn counters(&self) -> &MediumCounters {
        &self.counters
    }

    #[inline]
    fn next_arrival(&self) -> Instant {
        self.flights.front().map_or(Instant::MAX, |flight| flight.departs + self.delay)
    }

    /// Removes the first frame, which has arrived.
    #[inline]
    fn pop_arrived(&mut self) -> Option<Flight<F>> {
        self.departed -= 1;
        self.flights.pop_front()
    }

    /// Counts the departures up to `now`.
    #[inline]
    fn count_departures(&mut self, now: Instant) {
        while self.next_departure <= now && self.count_next_departure() {}
    }

    /// Counts the next departure, if any.
    #[inline]
    fn count_next_departure(&mut self) -> bool {
        let Some(flight) = self.flights.get(self.departed) else { return false };
        let (channel, length) = (flight.frame.channel(), flight.frame.length());
        self.count(channel, length, flight.transmission_time);
        self.departed += 1;
        self.next_departure = self.flights.get(self.departed).map_or(Instant::MAX, |next| next.departs);
        true
    }

    /// Passes a frame that does not fit to the explicit queue, or drops it.
    #[cold]
    fn refuse_frame(&mut self, now: Instant, frame: F) {
        if let Some(queue) = &mut self.queue {
            queue.send(now, frame, &mut self.counters);
            self.take_from_queue();
            return self.notify_room();
        }
        self.counters.queue_drops += 1;
        self.dropped.push_back((frame, LossCause::QueueFull));
        (self.next_output, self.only_arrivals) = (Instant::ZERO, false);
    }

    #[cold]
    fn run_queue(&mut self, now: Instant) {
        if let Some(queue) = &mut self.queue {
            queue.run(now, &mut self.counters);
            self.take_from_queue();
        }
    }

    /// Takes the frames whose transmission has begun, and those that were dropped, from the explicit queue.
    fn take_from_queue(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        for Started { arrives, frame, impairments } in queue.started.drain(..) {
            if let Some(impaired) = &mut self.impaired {
                impaired.probabilities = impairments;
                impaired.draw();
            }
            self.flights.push_back(Flight { departs: arrives, transmission_time: Span::ZERO, frame });
            self.departed += 1;
            self.next_output = self.next_output.min(arrives + self.delay);
        }
        if !queue.dropped.is_empty() {
            self.dropped.extend(queue.dropped.drain(..));
            self.next_output = Instant::ZERO;
        }
        self.next_departure = queue.next_event();
    }

    /// Notifies a waiting sender if there is room.
    #[cold]
    fn notify_room(&mut self) {
        let has_room = match &self.queue {
            Some(queue) => queue.has_room(self.refused_length),
            None => self.occupancy.has_room(self.refused_length),
        };
        if self.room_requested && has_room {
            (self.room_requested, self.room_pending) = (false, true);
            self.watches_departures = self.queue.is_some();
            self.next_output = Instant::ZERO;
        }
    }

    /// Returns the next output of any kind.
    #[cold]
    fn poll_general(&mut self) -> Option<LineOutput<F>> {
        if let Some((frame, cause)) = self.dropped.pop_front() {
            return Some(LineOutput::Lost(frame, cause));
        }
        if std::mem::take(&mut self.room_pending) {
            return Some(LineOutput::Room);
        }
        loop {
            let arrival = self.next_arrival();
            let Some(impaired) = &mut self.impaired else {
                (self.next_output, self.only_arrivals) = (arrival, !self.watches_departures);
                if arrival > self.woken_at {
                    return None;
                }
                let flight = self.pop_arrived()?;
                self.next_output = self.next_arrival();
                return Some(LineOutput::Arrived(flight.frame));
            };
            if let Some(output) = impaired.outputs.pop_front() {
                return Some(output);
            }
            let until = impaired.held.as_ref().map_or(Instant::MAX, |(until, ..)| *until);
            self.next_output = arrival.min(until);
            if self.next_output > self.woken_at {
                return None;
            } else if until < arrival {
                // No frame arrived in time to overtake it.
                let (_, frame, outcome) = impaired.held.take()?;
                impaired.deliver(frame, outcome, &mut self.counters);
            } else {
                let flight = self.pop_arrived()?;
                self.impaired.as_mut()?.arrive(arrival, flight.frame, &mut self.counters);
            }
            self.next_output = Instant::ZERO;
        }
    }
}

impl<F: Frame> ImpairedState<F> {
    /// Draws the impairments of a new frame.
    #[cold]
    fn draw(&mut self) {
        let outcome = self.probabilities.draw(&mut self.stream);
        self.outcomes.push_back(outcome);
    }

    /// Processes the arrival of the first flight.
    fn arrive(&mut self, at: Instant, frame: F, counters: &mut MediumCounters) {
        let outcome = self.outcomes.pop_front().unwrap_or_default();
        if outcome.lost {
            counters.other_losses += 1;
            self.outputs.push_back(LineOutput::Lost(frame, LossCause::LineError));
        } else if let Some((_, held, held_outcome)) = self.held.take() {
            counters.reordered += 1;
            self.deliver(frame, outcome, counters);
            self.deliver(held, held_outcome, counters);
        } else if outcome.reordered {
            self.held = Some((at + self.probabilities.hold, frame, outcome));
        } else {
            self.deliver(frame, outcome, counters);
        }
    }

    fn deliver(&mut self, mut frame: F, outcome: FrameOutcome, counters: &mut MediumCounters) {
        if outcome.damaged {
            counters.damaged += 1;
            frame.damage();
        }
        if outcome.duplicated {
            counters.duplicated += 1;
            self.outputs.push_back(LineOutput::Arrived(frame.clone()));
        }
        self.outputs.push_back(LineOutput::Arrived(frame));
    }
}

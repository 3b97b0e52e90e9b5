//! One direction of a link.
//!
//! A frame waits in a queue at the sending port, leaves at the line rate, and arrives one delay later unless it is
//! impaired. The queue is FIFO with tail drop, so the departure is known at enqueue: the line computes it then, and a
//! frame costs one event, its arrival.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Cause, Counters, Frame};
use trunkline_units::{Instant, Rate, Span, Stream};

use crate::media::Framing;
use crate::media::occupancy::Occupancy;
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
        }
    }
}

/// Independent impairments of each frame. Probabilities lie between 0 and 1. For each frame a line draws one number
/// per nonzero probability, in the order of these fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Loss probability. A lost frame occupies the line and is reported when it would have arrived.
    pub loss: f64,
    /// Corruption probability.
    pub corrupt: f64,
    /// Duplication probability; both copies arrive at the same time.
    pub duplicate: f64,
    /// Reordering probability: the frame is delayed until just after the next arriving frame, which is not delayed
    /// itself.
    pub reorder: f64,
    /// Maximum delay of a reordered frame if no other follows.
    pub hold: Span,
}

/// A perfect line; `hold` is 10 ms.
impl Default for Impairments {
    fn default() -> Self {
        Impairments { loss: 0.0, corrupt: 0.0, duplicate: 0.0, reorder: 0.0, hold: Span::from_ms(10) }
    }
}

impl Impairments {
    fn any(&self) -> bool {
        [self.loss, self.corrupt, self.duplicate, self.reorder].iter().any(|share| *share > 0.0)
    }

    fn draw(&self, stream: &mut Stream) -> Impairment {
        let mut draw = |share: f64| share > 0.0 && stream.chance(share);
        Impairment {
            lost: draw(self.loss),
            damaged: draw(self.corrupt),
            doubled: draw(self.duplicate),
            late: draw(self.reorder),
        }
    }
}

/// Impairments of one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Impairment {
    lost: bool,
    damaged: bool,
    doubled: bool,
    late: bool,
}

/// A frame that is queued, in transmission, or in flight.
#[derive(Clone, Debug)]
struct Flight<F> {
    departs: Instant,
    /// Transmission time.
    takes: Span,
    frame: F,
}

/// Output of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<F> {
    /// The frame arrived at the far end.
    Arrived(F),
    /// The frame was lost.
    Lost(F, Cause),
    /// There is queue space again, for a sender that asked.
    Room,
}

/// One direction of a link; see the [module](self). A [`Link`](crate::media::Link) has two.
///
/// Its queue is limited by [`LineOptions::bound`]; a frame that does not fit is lost ([`Cause::Full`]) and reported
/// by the next poll. The number of frames in flight is limited by rate and delay.
#[derive(Clone, Debug)]
pub struct Line<F> {
    serializer: Serializer,
    pacer: Option<Serializer>,
    framing: Framing,
    delay: Span,
    occupancy: Occupancy,
    /// In order of departure.
    flights: VecDeque<Flight<F>>,
    /// Number of them that have departed and are counted.
    departed: usize,
    /// Next departure; [`Instant::MAX`]: none.
    leaves: Instant,
    /// Next output: the next arrival, zero if output is ready now, [`Instant::MAX`] if there is none.
    ready: Instant,
    /// Output that is ready by this time may be polled.
    due: Instant,
    /// Whether the sender waits for queue space, and how many bytes it needs.
    asked: bool,
    wanted: u32,
    tell_room: bool,
    /// Frames dropped at the queue, not yet reported.
    refused: VecDeque<F>,
    counters: Counters,
    impaired: Option<Box<ImpairedState<F>>>,
    /// Whether the line is perfect, the sender does not wait, and only arrivals can be output.
    plain: bool,
}

/// State that only an impaired line needs.
#[derive(Clone, Debug)]
struct ImpairedState<F> {
    shares: Impairments,
    stream: Stream,
    /// Impairments of each flight.
    fates: VecDeque<Impairment>,
    /// The reordered frame and its latest delivery time.
    held: Option<(Instant, F, Impairment)>,
    /// Outputs released by one arrival, at most four.
    ready: VecDeque<Outcome<F>>,
}

impl<F: Frame> Line<F> {
    /// Creates an idle line. Impairments are drawn from `stream`; a perfect line draws nothing.
    ///
    /// # Panics
    /// If the rate or the pacing rate is zero.
    pub fn new(options: LineOptions, stream: Stream) -> Self {
        let shares = options.impairments;
        let impaired = shares.any().then(|| Box::new(ImpairedState::new(shares, stream)));
        Line {
            serializer: Serializer::new(options.rate),
            pacer: options.pacing.map(Serializer::new),
            framing: options.framing,
            delay: options.delay,
            occupancy: Occupancy::new(options.bound),
            flights: VecDeque::new(),
            departed: 0,
            leaves: Instant::MAX,
            ready: Instant::MAX,
            due: Instant::ZERO,
            asked: false,
            wanted: 0,
            tell_room: false,
            refused: VecDeque::new(),
            counters: Counters::default(),
            plain: impaired.is_none(),
            impaired,
        }
    }

    /// Queues `frame`, or drops it if the queue is full. Returns its arrival time if only arrivals can be output.
    #[inline(always)]
    pub fn send(&mut self, now: Instant, frame: F) -> Option<Instant> {
        self.retire(now);
        let length = frame.length();
        if !self.occupancy.enter(frame.channel(), length) {
            self.refuse(frame);
            return None;
        }
        self.counters.queue_max = self.counters.queue_max.max(self.occupancy.bytes());
        let mut begins = now.max(self.serializer.free());
        if let Some(pacer) = &mut self.pacer {
            begins = begins.max(pacer.free());
            pacer.transmit(begins, u64::from(length));
        }
        let departs = self.serializer.transmit(begins, self.framing.wire(length));
        if let Some(impaired) = &mut self.impaired {
            impaired.draw();
        }
        self.flights.push_back(Flight { departs, takes: departs.since(begins), frame });
        self.leaves = self.leaves.min(departs);
        let arrives = departs + self.delay;
        self.ready = self.ready.min(arrives);
        self.plain.then_some(arrives)
    }

    /// Makes the output of everything that has arrived by `now` available.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        self.due = now;
        self.retire(now);
        if self.asked {
            self.answer();
        }
    }

    /// Returns whether the line has no impairments.
    pub fn is_perfect(&self) -> bool {
        self.impaired.is_none()
    }

    /// Adds to the delay of all later frames. Call it before the first frame.
    pub fn delay_more(&mut self, by: Span) {
        self.delay += by;
    }

    /// Returns whether only arrivals can be output, so that [`arrival`](Line::arrival) suffices.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the next frame that has arrived by `now` on a plain line: `wake` and one `poll` in one step.
    #[inline(always)]
    pub fn arrival(&mut self, now: Instant) -> Option<F> {
        if self.ready > now {
            return None;
        }
        let Flight { takes, frame, .. } = self.flights.pop_front()?;
        let next = self.flights.front().map_or(Instant::MAX, |next| next.departs);
        self.ready = next + self.delay;
        match self.departed.checked_sub(1) {
            Some(rest) => self.departed = rest,
            None => {
                self.leaves = next;
                self.count(frame.channel(), frame.length(), takes);
            }
        }
        if self.leaves <= now {
            self.departed_since(now);
        }
        Some(frame)
    }

    #[cold]
    fn departed_since(&mut self, now: Instant) {
        self.retire(now);
    }

    /// Counts a departure.
    #[inline]
    fn count(&mut self, channel: u16, length: u32, takes: Span) {
        self.occupancy.leave(channel, length);
        self.counters.frames += 1;
        self.counters.bytes += u64::from(length);
        self.counters.busy += takes;
    }

    /// Returns the next arrival on a plain line; [`Instant::MAX`] if none is in flight.
    #[inline]
    pub(crate) fn ready(&self) -> Instant {
        self.ready
    }

    /// Requests a notification when there is space for the frame that [`room`](Line::room) last refused.
    pub fn ask(&mut self, now: Instant) {
        self.retire(now);
        (self.asked, self.plain) = (true, false);
        self.answer();
    }

    /// Returns whether a frame of `length` bytes fits into the queue now, for per-channel limits into every channel.
    /// A frame larger than the limit never fits.
    #[inline(always)]
    pub fn room(&mut self, now: Instant, length: u32) -> bool {
        self.retire(now);
        let room = self.occupancy.room(length);
        if !room {
            self.wanted = length;
        }
        room
    }

    /// Returns the next output, until there is none for now.
    #[inline]
    pub fn poll(&mut self) -> Option<Outcome<F>> {
        if self.ready > self.due {
            return None;
        }
        if self.ready == Instant::ZERO || self.impaired.is_some() {
            return self.next_impaired();
        }
        let flight = self.pop_arrived();
        self.ready = self.next_arrival();
        flight.map(|flight| Outcome::Arrived(flight.frame))
    }

    /// Returns the time of the next output: at once if it is not in the future, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.asked { self.ready.min(self.leaves) } else { self.ready }
    }

    /// Returns the counters as of the last call with a time. A frame counts as sent when its last bit has left, as
    /// lost, corrupted, duplicated or reordered when it arrives.
    #[inline]
    pub fn counters(&self) -> &Counters {
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
    fn retire(&mut self, now: Instant) {
        while self.leaves <= now && self.count_one() {}
    }

    /// Counts the next departure, if any.
    #[inline]
    fn count_one(&mut self) -> bool {
        let Some(flight) = self.flights.get(self.departed) else { return false };
        let (channel, length, takes) = (flight.frame.channel(), flight.frame.length(), flight.takes);
        self.count(channel, length, takes);
        self.departed += 1;
        self.leaves = self.flights.get(self.departed).map_or(Instant::MAX, |next| next.departs);
        true
    }

    #[cold]
    fn refuse(&mut self, frame: F) {
        self.counters.full += 1;
        self.refused.push_back(frame);
        (self.ready, self.plain) = (Instant::ZERO, false);
    }

    #[cold]
    fn answer(&mut self) {
        if self.occupancy.room(self.wanted) {
            (self.asked, self.tell_room) = (false, true);
            self.ready = Instant::ZERO;
        }
    }

    /// Returns the next output of a line that is not plain.
    #[cold]
    fn next_impaired(&mut self) -> Option<Outcome<F>> {
        if let Some(frame) = self.refused.pop_front() {
            return Some(Outcome::Lost(frame, Cause::Full));
        }
        if std::mem::take(&mut self.tell_room) {
            return Some(Outcome::Room);
        }
        loop {
            let arrival = self.next_arrival();
            let Some(impaired) = &mut self.impaired else {
                (self.ready, self.plain) = (arrival, !self.asked);
                return self.poll();
            };
            if let Some(outcome) = impaired.ready.pop_front() {
                return Some(outcome);
            }
            let until = impaired.held.as_ref().map_or(Instant::MAX, |(until, ..)| *until);
            self.ready = arrival.min(until);
            if self.ready > self.due {
                return None;
            } else if until < arrival {
                // No frame arrived in time to overtake it.
                let (_, frame, fate) = impaired.held.take()?;
                impaired.deliver(frame, fate, &mut self.counters);
            } else {
                let flight = self.pop_arrived()?;
                self.impaired.as_mut()?.arrive(arrival, flight.frame, &mut self.counters);
            }
            self.ready = Instant::ZERO;
        }
    }
}

impl<F: Frame> ImpairedState<F> {
    fn new(shares: Impairments, stream: Stream) -> Self {
        ImpairedState { shares, stream, fates: VecDeque::new(), held: None, ready: VecDeque::new() }
    }

    /// Draws the impairments of a new frame.
    #[cold]
    fn draw(&mut self) {
        let fate = self.shares.draw(&mut self.stream);
        self.fates.push_back(fate);
    }

    /// Processes the arrival of the first flight.
    fn arrive(&mut self, at: Instant, frame: F, counters: &mut Counters) {
        let fate = self.fates.pop_front().unwrap_or_default();
        if fate.lost {
            counters.lost += 1;
            self.ready.push_back(Outcome::Lost(frame, Cause::Noise));
        } else if let Some((_, overtaken, its_fate)) = self.held.take() {
            counters.reordered += 1;
            self.deliver(frame, fate, counters);
            self.deliver(overtaken, its_fate, counters);
        } else if fate.late {
            self.held = Some((at + self.shares.hold, frame, fate));
        } else {
            self.deliver(frame, fate, counters);
        }
    }

    fn deliver(&mut self, mut frame: F, fate: Impairment, counters: &mut Counters) {
        if fate.damaged {
            counters.damaged += 1;
            frame.damage();
        }
        if fate.doubled {
            counters.doubled += 1;
            self.ready.push_back(Outcome::Arrived(frame.clone()));
        }
        self.ready.push_back(Outcome::Arrived(frame));
    }
}

/// Returns the earlier of two optional deadlines.
#[inline]
pub(crate) fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

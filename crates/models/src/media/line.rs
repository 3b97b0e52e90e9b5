//! One direction of a link.
//!
//! A frame waits in a queue at the sending port, leaves at the line's rate, and arrives a delay later, if the
//! line does nothing worse to it. The queue is first in, first out and drops at its tail, so when a frame
//! leaves is known when it comes: the line computes it then, and a frame costs one event, its arrival.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Cause, Counters, Frame};
use trunkline_units::{Instant, Rate, Span, Stream};

use crate::media::Framing;
use crate::media::occupancy::Occupancy;
use crate::media::serializer::Serializer;

/// What one direction of a link is like.
#[derive(Clone, Debug)]
pub struct LineOptions {
    /// Bits per second on the line. Not zero.
    pub rate: Rate,
    /// What is added to each frame.
    pub framing: Framing,
    /// Propagation: from the last bit's leaving to its arrival.
    pub delay: Span,
    /// What may wait at the sending port, the leaving frame included. Measured in [`Frame::length`], without
    /// framing.
    pub bound: Bound,
    /// A frame begins no earlier than the one before it began plus that one's [`Frame::length`] at this rate.
    /// Not zero.
    pub pacing: Option<Rate>,
    /// What the line does to frames.
    pub impairments: Impairments,
}

/// Ethernet at 10 Mb/s without delay, 100 frames of queue, no impairment.
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

/// What a line does to frames, each for itself. Shares lie between 0 and 1. For each frame that it takes, a
/// line draws one number for every share that is not zero, in the order in which they stand here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Share lost. A lost frame takes its time on the line and is told as lost when it would have arrived.
    pub loss: f64,
    /// Share that arrives damaged.
    pub corrupt: f64,
    /// Share that arrives twice, at the same moment.
    pub duplicate: f64,
    /// Share held back until right behind the next frame that arrives. That one is not held back itself.
    pub reorder: f64,
    /// How long a frame is held back if none follows.
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

    fn draw(&self, stream: &mut Stream) -> Fate {
        let mut draw = |share: f64| share > 0.0 && stream.chance(share);
        Fate {
            lost: draw(self.loss),
            damaged: draw(self.corrupt),
            doubled: draw(self.duplicate),
            late: draw(self.reorder),
        }
    }
}

/// What the line does to one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    lost: bool,
    damaged: bool,
    doubled: bool,
    late: bool,
}

/// A frame that waits, leaves, or is on its way.
#[derive(Clone, Debug)]
struct Flight<F> {
    departs: Instant,
    /// For how long it takes the line.
    takes: Span,
    frame: F,
}

/// What comes out of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<F> {
    /// It arrived at the far end.
    Arrived(F),
    /// It is no more.
    Lost(F, Cause),
    /// There is room again, for who asked.
    Room,
}

/// One direction of a link; see the [module](self). A [`Link`](crate::media::Link) has two.
///
/// Its queue holds what [`LineOptions::bound`] allows; a frame for which there is no room is lost
/// ([`Cause::Full`]) and kept until the next poll tells it. On its way is what the rate lets in during the
/// delay.
#[derive(Clone, Debug)]
pub struct Line<F> {
    serializer: Serializer,
    pacer: Option<Serializer>,
    framing: Framing,
    delay: Span,
    occupancy: Occupancy,
    /// In the order in which they leave.
    flights: VecDeque<Flight<F>>,
    /// So many of them have left and are counted.
    departed: usize,
    /// When the next one leaves; [`Instant::MAX`]: none.
    leaves: Instant,
    /// When there is something to say: the next arrival, zero if it can be said at once, [`Instant::MAX`] if
    /// nothing.
    ready: Instant,
    /// What is ready by then is handed out.
    due: Instant,
    /// Someone wants to know when there is room, for so many bytes.
    asked: bool,
    wanted: u32,
    tell_room: bool,
    /// Lost for want of room and not yet told.
    refused: VecDeque<F>,
    counters: Counters,
    impaired: Option<Box<Impaired<F>>>,
    /// It is perfect, nobody asked, and there is nothing to say but arrivals.
    plain: bool,
}

/// What only an impaired line has.
#[derive(Clone, Debug)]
struct Impaired<F> {
    shares: Impairments,
    stream: Stream,
    /// What becomes of each flight.
    fates: VecDeque<Fate>,
    /// Held back, and until when at the latest.
    held: Option<(Instant, F, Fate)>,
    /// Arrived or lost: what one frame's arrival sets free, four at most.
    ready: VecDeque<Outcome<F>>,
}

impl<F: Frame> Line<F> {
    /// A line that is idle. `stream` decides what becomes of its frames; a perfect line never draws from it.
    ///
    /// # Panics
    /// If the rate or the pacing rate is zero.
    pub fn new(options: LineOptions, stream: Stream) -> Self {
        let shares = options.impairments;
        let impaired = shares.any().then(|| Box::new(Impaired::new(shares, stream)));
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

    /// Takes `frame`, or loses it for want of room. When it arrives, if nothing but arrivals can come out of the line.
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
            pacer.take(begins, u64::from(length));
        }
        let departs = self.serializer.take(begins, self.framing.wire(length));
        if let Some(impaired) = &mut self.impaired {
            impaired.draw();
        }
        self.flights.push_back(Flight { departs, takes: departs.since(begins), frame });
        self.leaves = self.leaves.min(departs);
        let arrives = departs + self.delay;
        self.ready = self.ready.min(arrives);
        self.plain.then_some(arrives)
    }

    /// Lets out what has arrived by `now`.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        self.due = now;
        self.retire(now);
        if self.asked {
            self.answer();
        }
    }

    /// Whether it does nothing bad to frames.
    pub fn is_perfect(&self) -> bool {
        self.impaired.is_none()
    }

    /// Makes everything that it will be given arrive later. To be called before the first frame comes.
    pub fn delay_more(&mut self, by: Span) {
        self.delay += by;
    }

    /// Whether nothing but arrivals can come out of it, so that [`arrival`](Line::arrival) tells all.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The next frame that has arrived by `now` on a plain line: what `wake` and one `poll` do, in one step.
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

    /// Counts a frame that leaves.
    #[inline]
    fn count(&mut self, channel: u16, length: u32, takes: Span) {
        self.occupancy.leave(channel, length);
        self.counters.frames += 1;
        self.counters.bytes += u64::from(length);
        self.counters.busy += takes;
    }

    /// When the next frame arrives on a plain line; [`Instant::MAX`]: none is on its way.
    #[inline]
    pub(crate) fn ready(&self) -> Instant {
        self.ready
    }

    /// The sender wants to know when there is room for what [`room`](Line::room) last refused.
    pub fn ask(&mut self, now: Instant) {
        self.retire(now);
        (self.asked, self.plain) = (true, false);
        self.answer();
    }

    /// Whether a frame of `length` bytes would find room now; if each channel has a bound of its own, in
    /// every channel. A frame larger than the whole bound never does.
    #[inline(always)]
    pub fn room(&mut self, now: Instant, length: u32) -> bool {
        self.retire(now);
        let room = self.occupancy.room(length);
        if !room {
            self.wanted = length;
        }
        room
    }

    /// What came out, until there is nothing more for now.
    #[inline]
    pub fn poll(&mut self) -> Option<Outcome<F>> {
        if self.ready > self.due {
            return None;
        }
        if self.ready == Instant::ZERO || self.impaired.is_some() {
            return self.next_of_several();
        }
        let flight = self.land();
        self.ready = self.next_arrival();
        flight.map(|flight| Outcome::Arrived(flight.frame))
    }

    /// When there is something to say next: at once if that is not in the future, never at [`Instant::MAX`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.asked { self.ready.min(self.leaves) } else { self.ready }
    }

    /// What it counted, as of the last call that named the time. A frame counts as sent when its last bit has
    /// left, as lost, damaged, doubled or reordered when it arrives.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    fn next_arrival(&self) -> Instant {
        self.flights.front().map_or(Instant::MAX, |flight| flight.departs + self.delay)
    }

    /// Takes the first frame off the line. It has left: it has arrived.
    #[inline]
    fn land(&mut self) -> Option<Flight<F>> {
        self.departed -= 1;
        self.flights.pop_front()
    }

    /// Counts what has left by `now`.
    #[inline]
    fn retire(&mut self, now: Instant) {
        while self.leaves <= now && self.count_one() {}
    }

    /// Counts the next frame to leave, if there is one.
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

    /// What came out where that may be more than arrivals.
    #[cold]
    fn next_of_several(&mut self) -> Option<Outcome<F>> {
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
                // Nobody came in time to overtake it.
                let (_, frame, fate) = impaired.held.take()?;
                impaired.deliver(frame, fate, &mut self.counters);
            } else {
                let flight = self.land()?;
                self.impaired.as_mut()?.arrive(arrival, flight.frame, &mut self.counters);
            }
            self.ready = Instant::ZERO;
        }
    }
}

impl<F: Frame> Impaired<F> {
    fn new(shares: Impairments, stream: Stream) -> Self {
        Impaired { shares, stream, fates: VecDeque::new(), held: None, ready: VecDeque::new() }
    }

    /// Decides what becomes of a frame that comes.
    #[cold]
    fn draw(&mut self) {
        let fate = self.shares.draw(&mut self.stream);
        self.fates.push_back(fate);
    }

    /// The first flight arrives.
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

    fn deliver(&mut self, mut frame: F, fate: Fate, counters: &mut Counters) {
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

/// The earlier of two deadlines, of which there may be none.
#[inline]
pub(crate) fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

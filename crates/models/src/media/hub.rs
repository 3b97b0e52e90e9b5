//! Shared Ethernet: CSMA/CD as in IEEE 802.3 clause 4, half duplex.
//!
//! # What is simulated
//!
//! Stations share one medium with equal propagation delay between any two. A station with a frame waits until the
//! medium is idle and the interframe gap has passed, then transmits at once (1-persistent). It senses other carriers
//! one delay later. A station that transmits and senses another carrier detects a collision, ends its preamble, jams
//! for 32 bit times, and backs off: after its nth collision it waits a number of slots drawn from 0 to 2ⁿ − 1 (n at
//! most 10), and drops the frame after the 16th.
//!
//! # Why a contention can be settled in one step
//!
//! With a common delay d, one station starts first, at s. All others sense its carrier at s + d, so every colliding
//! station starts by then; a carrier that arrives in the very picosecond of a start is too late to stop it. With d at
//! most half a slot, every collision is detected within the shortest frame, all carriers overlap, and each station
//! sees one busy period, whose end for it is known at s + d. A station that deferred starts one gap after that end;
//! no carrier comes in between. So one contention is settled at a time.

use std::collections::VecDeque;

use trunkline_endpoint::{Arrival, Bound, Cause, Counters, Frame, Medium, Passage, Port};
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use crate::media::Framing;
use crate::media::line::sooner;
use crate::media::occupancy::Occupancy;
use crate::media::serializer::bit_times;

/// Interframe gap, in bit times (clause 4.4.2).
const GAP: u32 = 96;
/// Slot time, in bit times.
const SLOT: u32 = 512;
/// Jam length, in bit times.
const JAM: u32 = 32;
/// Preamble and start delimiter, in bit times; completed even after a collision.
const PREAMBLE: u32 = 64;
/// Collisions after which a frame is dropped.
const ATTEMPTS: u32 = 16;
/// Collisions after which the backoff range stops growing.
const BACKOFF: u32 = 10;
/// Preamble and delimiter 8, addresses and type 14, check sequence 4; at least 64 bytes between preamble and end.
const FRAMING: Framing = Framing { overhead: 26, smallest: 46 };

/// Options of a hub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Bit rate of the medium; not zero.
    pub rate: Rate,
    /// Propagation delay between any two stations; at most half a slot, 256 bit times.
    pub delay: Span,
    /// Longest accepted [`Frame::length`]; a longer frame is [`Cause::TooLong`].
    pub longest: u32,
}

/// 10 Mb/s, 1500 bytes, and the delay of a full 500 m segment (IEEE 802.3 clause 8: 2165 ns).
impl Default for HubOptions {
    fn default() -> Self {
        HubOptions { rate: Rate::from_bps(10_000_000), delay: Span::from_ns(2_165), longest: 1500 }
    }
}

/// One station.
#[derive(Clone, Debug)]
struct Station<F> {
    /// When its transmission in the current contention ends.
    ends: Instant,
    queue: VecDeque<F>,
    /// Earliest start of the first queued frame: its arrival, or the end of its backoff.
    ready: Instant,
    /// When the last sensed carrier has ended and the gap has passed.
    clear: Instant,
    /// Collisions of the first frame.
    attempts: u32,
    occupancy: Occupancy,
    stream: Stream,
    asked: bool,
    wanted: u32,
    counters: Counters,
}

impl<F> Station<F> {
    /// When it starts to transmit unless another station does first.
    fn start(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then(|| self.ready.max(self.clear))
    }
}

/// A frame with a known outcome.
#[derive(Clone, Debug)]
struct ScheduledFrame<F> {
    from: usize,
    frame: F,
    begins: Instant,
    /// When its last bit, or its last jam, leaves.
    leaves: Instant,
    /// When that arrives at the other stations.
    at: Instant,
    given_up: bool,
    /// Whether it has left its station's queue.
    left: bool,
    /// The next port to deliver it to.
    next: usize,
}

/// The next contention, as far as known.
#[derive(Clone, Copy, Debug)]
struct Contention {
    /// When the first station starts.
    first: Instant,
    /// That station.
    station: usize,
    /// When the next one starts.
    second: Instant,
    /// When the first one's last bit leaves, without a collision.
    ends: Instant,
}

/// Shared Ethernet; see the [module](self). Every station but the sender receives every frame, whatever its
/// [`Frame::to`].
///
/// Each station's queue is limited by its [`Bound`]; a frame that does not fit is lost ([`Cause::Full`]). At most two
/// frames are on the medium: one is received while the next begins.
///
/// In [`Counters`], `busy` is the time of successful frames; `collisions` counts a station's failed attempts.
#[derive(Clone, Debug)]
pub struct Hub<F> {
    options: HubOptions,
    gap: Span,
    slot: Span,
    jam: Span,
    preamble: Span,
    stations: Vec<Station<F>>,
    next: Option<Contention>,
    settled: VecDeque<ScheduledFrame<F>>,
    /// Number of stations that wait for queue space.
    asking: usize,
    due: Instant,
    /// Frames dropped at the queue, not yet reported.
    refused: VecDeque<(Port, F, Cause)>,
    /// Stations whose wait for queue space has ended.
    granted: VecDeque<Port>,
}

impl<F: Frame> Hub<F> {
    /// Creates a hub with one station per bound and stream. A station draws its backoff from its stream.
    ///
    /// # Panics
    /// If the rate is zero, the delay exceeds half a slot, there are fewer than two stations, or the numbers of
    /// bounds and streams differ.
    pub fn new(options: HubOptions, bounds: &[Bound], streams: Vec<Stream>) -> Self {
        assert!(options.rate.as_bps() > 0, "a hub has a rate");
        assert!(bounds.len() >= 2, "a hub has two stations at least");
        assert_eq!(bounds.len(), streams.len(), "each station has a bound and a stream");
        let time = |bits| bit_times(options.rate, bits);
        assert!(options.delay * 2 <= time(SLOT), "a collision is heard within a slot");
        let station = |(bound, stream): (&Bound, Stream)| Station {
            ends: Instant::ZERO,
            queue: VecDeque::new(),
            ready: Instant::ZERO,
            clear: Instant::ZERO,
            attempts: 0,
            occupancy: Occupancy::new(*bound),
            stream,
            asked: false,
            wanted: 0,
            counters: Counters::default(),
        };
        Hub {
            gap: time(GAP),
            slot: time(SLOT),
            jam: time(JAM),
            preamble: time(PREAMBLE),
            stations: bounds.iter().zip(streams).map(station).collect(),
            next: None,
            settled: VecDeque::new(),
            asking: 0,
            due: Instant::ZERO,
            refused: VecDeque::new(),
            granted: VecDeque::new(),
            options,
        }
    }

    fn station(&mut self, port: Port) -> &mut Station<F> {
        &mut self.stations[usize::from(port.0)]
    }

    /// Returns how long a frame of `length` bytes occupies the medium, without the gap.
    fn time_for(&self, length: u32) -> Span {
        self.options.rate.time_for(Size::from_bytes(FRAMING.wire(length)))
    }

    fn send(&mut self, now: Instant, port: Port, frame: F) {
        let longest = self.options.longest;
        let station = self.station(port);
        let cause = if frame.length() > longest {
            station.counters.lost += 1;
            Cause::TooLong
        } else if !station.occupancy.enter(frame.channel(), frame.length()) {
            station.counters.full += 1;
            Cause::Full
        } else {
            station.counters.queue_max = station.counters.queue_max.max(station.occupancy.bytes());
            station.queue.push_back(frame);
            if station.queue.len() == 1 {
                station.ready = now;
                self.next = self.contention();
            }
            return;
        };
        self.refused.push_back((port, frame, cause));
    }

    /// Settles every contention that no further station can join at `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(next) = self.next.filter(|next| next.first + self.options.delay < now) {
            if self.collides(&next) {
                self.collide(&next)
            } else {
                self.pass(&next)
            }
            self.next = self.contention();
        }
        self.retire(now);
    }

    /// Returns whether the second station starts before it senses the first.
    fn collides(&self, contention: &Contention) -> bool {
        contention.second <= contention.first + self.options.delay
    }

    /// Returns the next contention among stations with queued frames.
    fn contention(&self) -> Option<Contention> {
        let (mut first, mut winner, mut second) = (Instant::MAX, None, Instant::MAX);
        for (at, station) in self.stations.iter().enumerate() {
            let Some(start) = station.start() else { continue };
            if start < first {
                (first, winner, second) = (start, Some(at), first);
            } else {
                second = second.min(start);
            }
        }
        let station = winner?;
        let frame = self.stations[station].queue.front()?;
        Some(Contention { first, station, second, ends: first + self.time_for(frame.length()) })
    }

    /// One station transmits without a collision.
    fn pass(&mut self, contention: &Contention) {
        let Contention { first, station: winner, ends, .. } = *contention;
        let Some(frame) = self.stations[winner].queue.pop_front() else { return };
        let heard = ends + self.options.delay;
        for (at, station) in self.stations.iter_mut().enumerate() {
            station.clear = if at == winner { ends } else { heard } + self.gap;
        }
        self.stations[winner].attempts = 0;
        self.settle(ScheduledFrame::new(winner, frame, first, ends, heard));
    }

    /// All stations that start before they sense the first one collide. The first detects the second, the others the
    /// first.
    fn collide(&mut self, contention: &Contention) {
        let Contention { first, station: earliest, second, .. } = *contention;
        let delay = self.options.delay;
        let (mut last, mut longest, mut last_but_one) = (Instant::ZERO, earliest, Instant::ZERO);
        let takes_part = |station: &Station<F>| station.start().filter(|start| *start <= first + delay);
        for (at, station) in self.stations.iter_mut().enumerate() {
            let Some(start) = takes_part(station) else { continue };
            let other = if at == earliest { second } else { first };
            let detected = start.max(other + delay);
            station.ends = detected.max(start + self.preamble) + self.jam;
            if station.ends > last {
                (last, longest, last_but_one) = (station.ends, at, last);
            } else {
                last_but_one = last_but_one.max(station.ends);
            }
        }
        for at in 0..self.stations.len() {
            let others = if at == longest { last_but_one } else { last } + delay;
            let station = &mut self.stations[at];
            let taking_part = takes_part(station);
            let ends = station.ends;
            station.clear = if taking_part.is_some() { ends.max(others) } else { others } + self.gap;
            let Some(start) = taking_part else { continue };
            station.attempts += 1;
            station.counters.collisions += 1;
            if station.attempts < ATTEMPTS {
                let slots = station.stream.below(1 << station.attempts.min(BACKOFF));
                station.ready = ends + self.slot * slots;
            } else if let Some(frame) = station.queue.pop_front() {
                station.attempts = 0;
                self.settle(ScheduledFrame {
                    given_up: true,
                    ..ScheduledFrame::new(at, frame, start, ends, ends)
                });
            }
        }
    }

    fn settle(&mut self, settled: ScheduledFrame<F>) {
        let earlier = self.settled.iter().take_while(|other| other.at <= settled.at).count();
        self.settled.insert(earlier, settled);
    }

    /// Counts the frames that have left by `now`, and notifies stations that wait for queue space.
    fn retire(&mut self, now: Instant) {
        for settled in self.settled.iter_mut().filter(|s| !s.left && s.leaves <= now) {
            settled.left = true;
            let station = &mut self.stations[settled.from];
            station.occupancy.leave(settled.frame.channel(), settled.frame.length());
            if settled.given_up {
                station.counters.lost += 1;
            } else {
                station.counters.frames += 1;
                station.counters.bytes += u64::from(settled.frame.length());
                station.counters.busy += settled.leaves.since(settled.begins);
            }
            if station.asked && station.occupancy.room(station.wanted) {
                station.asked = false;
                self.asking -= 1;
                self.granted.push_back(Port(settled.from as u16));
            }
        }
    }

    fn ask(&mut self, port: Port) {
        let station = self.station(port);
        if station.occupancy.room(station.wanted) {
            self.granted.push_back(port);
        } else if !std::mem::replace(&mut station.asked, true) {
            self.asking += 1;
        }
    }

    /// Delivers the oldest frame to the next port.
    fn deliver_next(&mut self) -> Option<Passage<F>> {
        let ports = self.stations.len();
        let settled = self.settled.front_mut().filter(|settled| settled.at <= self.due)?;
        let after = |at: usize| if at == settled.from { at + 1 } else { at };
        let at = after(settled.next);
        settled.next = at + 1;
        if settled.given_up || after(at + 1) >= ports {
            let ScheduledFrame { from, frame, given_up, .. } = self.settled.pop_front()?;
            return Some(match given_up {
                true => Passage::Lost { port: Port(from as u16), frame, cause: Cause::Collisions },
                false => Passage::Transmit { port: Port(at as u16), frame },
            });
        }
        Some(Passage::Transmit { port: Port(at as u16), frame: settled.frame.clone() })
    }

    fn deadline(&self) -> Option<Instant> {
        let heard = self.settled.front().map(|settled| settled.at);
        let next = self.next.map(|next| match self.collides(&next) {
            true => next.first + self.options.delay + Span::from_ps(1),
            false if self.asking > 0 => next.ends,
            false => next.ends + self.options.delay,
        });
        let mut at = sooner(heard, next);
        if self.asking > 0 {
            at = sooner(at, self.settled.iter().filter(|s| !s.left).map(|s| s.leaves).min());
        }
        at
    }
}

impl<F> ScheduledFrame<F> {
    fn new(from: usize, frame: F, begins: Instant, leaves: Instant, at: Instant) -> Self {
        ScheduledFrame { from, frame, begins, leaves, at, given_up: false, left: false, next: 0 }
    }
}

impl<F: Frame> Medium<F> for Hub<F> {
    fn handle(&mut self, now: Instant, input: Arrival<F>) {
        self.advance(now);
        match input {
            Arrival::Frame { port, frame } => self.send(now, port, frame),
            Arrival::Ask { port } => self.ask(port),
            Arrival::Wake => self.due = now,
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> Passage<F> {
        if let Some((port, frame, cause)) = self.refused.pop_front() {
            return Passage::Lost { port, frame, cause };
        }
        if let Some(port) = self.granted.pop_front() {
            return Passage::Room { port };
        }
        match self.deliver_next() {
            Some(passage) => passage,
            None => Passage::Idle { deadline: self.deadline() },
        }
    }

    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.advance(now);
        let station = self.station(port);
        let room = station.occupancy.room(length);
        if !room {
            station.wanted = length;
        }
        room
    }

    fn counters(&self, port: Port) -> &Counters {
        &self.stations[usize::from(port.0)].counters
    }
}

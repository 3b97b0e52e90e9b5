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
//! # Why a contention can be resolved in one step
//!
//! With a common delay d, one station starts first, at s. All others sense its carrier at s + d, so every colliding
//! station starts by then; a carrier that arrives in the very picosecond of a start is too late to stop it. With d at
//! most half a slot, every collision is detected within the shortest frame, all carriers overlap, and each station
//! sees one busy period and knows at s + d when it ends. A station that deferred starts one gap after that end; no
//! carrier arrives in between. So contentions are resolved one at a time.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Frame, LossCause, Medium, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use crate::media::Framing;
use crate::media::sender::{PendingOutputs, SendQueue};
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
    /// Longest accepted [`Frame::length`]; a longer frame is lost ([`LossCause::TooLong`]).
    pub max_length: u32,
}

/// 10 Mb/s, 1500 bytes, and the delay of a full 500 m segment (IEEE 802.3 clause 8: 2165 ns).
impl Default for HubOptions {
    fn default() -> Self {
        HubOptions { rate: Rate::from_bps(10_000_000), delay: Span::from_ns(2_165), max_length: 1500 }
    }
}

/// One station.
#[derive(Clone, Debug)]
struct Station<F> {
    /// When its transmission in the last collision ended.
    ends: Instant,
    queue: VecDeque<F>,
    /// Earliest start of the first queued frame: its arrival, or the end of its backoff.
    earliest_start: Instant,
    /// When the last sensed carrier has ended and the gap has passed.
    clear_at: Instant,
    /// Collisions of the first frame.
    attempts: u32,
    sender: SendQueue,
    stream: Stream,
}

impl<F> Station<F> {
    /// Returns when it starts to transmit, unless another station does first.
    fn start(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then(|| self.earliest_start.max(self.clear_at))
    }
}

/// A frame with a known outcome.
#[derive(Clone, Debug)]
struct ScheduledFrame<F> {
    from: usize,
    frame: F,
    begins: Instant,
    /// When its last bit leaves; of a frame that is given up, the end of the last jam.
    departs: Instant,
    /// When it is output: when the last bit arrives at the other stations, or when it is given up.
    output_at: Instant,
    /// Whether its station gives it up after too many collisions.
    given_up: bool,
    /// Whether it has left its station's queue and is counted.
    is_counted: bool,
    /// The next port to deliver it to.
    next_port: usize,
}

/// The next contention, as far as known.
#[derive(Clone, Copy, Debug)]
struct Contention {
    /// When the first station starts.
    first_start: Instant,
    /// That station.
    first_station: usize,
    /// When the next one starts.
    second_start: Instant,
    /// When the last bit of the first one leaves, unless it collides.
    departs: Instant,
}

/// Shared Ethernet; see the [module](self). Every station but the sender receives every frame, whatever its
/// [`Frame::destination`].
///
/// Each station's queue is limited by its [`Bound`]; a frame that does not fit is lost ([`LossCause::QueueFull`]). At
/// most two frames are on the medium: one is received while the next begins.
///
/// In [`MediumCounters`], `busy` is the time of successful frames; `collisions` counts a station's failed attempts.
#[derive(Clone, Debug)]
pub struct Hub<F> {
    options: HubOptions,
    gap: Span,
    slot: Span,
    jam: Span,
    preamble: Span,
    stations: Vec<Station<F>>,
    next_contention: Option<Contention>,
    /// Frames with a known outcome, in order of output.
    scheduled: VecDeque<ScheduledFrame<F>>,
    /// Number of stations that wait for room in their queues.
    waiting_for_room: usize,
    /// Time of the last wake: later output may not be polled yet.
    woken_at: Instant,
    pending: PendingOutputs<F>,
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
        assert!(options.delay * 2 <= time(SLOT), "a collision is detected within a slot");
        let station = |(bound, stream): (&Bound, Stream)| Station {
            ends: Instant::ZERO,
            queue: VecDeque::new(),
            earliest_start: Instant::ZERO,
            clear_at: Instant::ZERO,
            attempts: 0,
            sender: SendQueue::new(*bound),
            stream,
        };
        Hub {
            gap: time(GAP),
            slot: time(SLOT),
            jam: time(JAM),
            preamble: time(PREAMBLE),
            stations: bounds.iter().zip(streams).map(station).collect(),
            next_contention: None,
            scheduled: VecDeque::new(),
            waiting_for_room: 0,
            woken_at: Instant::ZERO,
            pending: PendingOutputs::new(),
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
        let max_length = self.options.max_length;
        let station = self.station(port);
        if let Err(cause) = station.sender.add(&frame, max_length) {
            return self.pending.dropped.push_back((port, frame, cause));
        }
        station.queue.push_back(frame);
        if station.queue.len() == 1 {
            station.earliest_start = now;
            self.next_contention = self.find_contention();
        }
    }

    /// Resolves every contention that no further station can join at `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(next) = self.next_contention.filter(|next| next.first_start + self.options.delay < now)
        {
            if self.collides(&next) {
                self.collide(&next)
            } else {
                self.transmit_alone(&next)
            }
            self.next_contention = self.find_contention();
        }
        self.count_departures(now);
    }

    /// Returns whether the second station starts before it senses the first.
    fn collides(&self, contention: &Contention) -> bool {
        contention.second_start <= contention.first_start + self.options.delay
    }

    /// Returns the next contention among stations with queued frames.
    fn find_contention(&self) -> Option<Contention> {
        let (mut first_start, mut first_station, mut second_start) = (Instant::MAX, None, Instant::MAX);
        for (number, station) in self.stations.iter().enumerate() {
            let Some(start) = station.start() else { continue };
            if start < first_start {
                (first_start, first_station, second_start) = (start, Some(number), first_start);
            } else {
                second_start = second_start.min(start);
            }
        }
        let first_station = first_station?;
        let frame = self.stations[first_station].queue.front()?;
        let departs = first_start + self.time_for(frame.length());
        Some(Contention { first_start, first_station, second_start, departs })
    }

    /// One station transmits without a collision.
    fn transmit_alone(&mut self, contention: &Contention) {
        let Contention { first_start, first_station: sender, departs, .. } = *contention;
        let Some(frame) = self.stations[sender].queue.pop_front() else { return };
        let arrives = departs + self.options.delay;
        for (number, station) in self.stations.iter_mut().enumerate() {
            station.clear_at = if number == sender { departs } else { arrives } + self.gap;
        }
        self.stations[sender].attempts = 0;
        self.schedule(ScheduledFrame::new(sender, frame, first_start, departs, arrives));
    }

    /// All stations that start before they sense the first one collide. The first detects the second, the others the
    /// first.
    fn collide(&mut self, contention: &Contention) {
        let Contention { first_start, first_station, second_start, .. } = *contention;
        let delay = self.options.delay;
        // The end of the last transmission, its station, and the end of the last but one.
        let (mut last_end, mut last_station, mut end_before) = (Instant::ZERO, first_station, Instant::ZERO);
        let colliding_start =
            |station: &Station<F>| station.start().filter(|start| *start <= first_start + delay);
        for (number, station) in self.stations.iter_mut().enumerate() {
            let Some(start) = colliding_start(station) else { continue };
            let other = if number == first_station { second_start } else { first_start };
            let detected = start.max(other + delay);
            station.ends = detected.max(start + self.preamble) + self.jam;
            if station.ends > last_end {
                (last_end, last_station, end_before) = (station.ends, number, last_end);
            } else {
                end_before = end_before.max(station.ends);
            }
        }
        for number in 0..self.stations.len() {
            let others_end = if number == last_station { end_before } else { last_end } + delay;
            let station = &mut self.stations[number];
            let start = colliding_start(station);
            let ends = station.ends;
            station.clear_at = if start.is_some() { ends.max(others_end) } else { others_end } + self.gap;
            let Some(start) = start else { continue };
            station.attempts += 1;
            station.sender.counters.collisions += 1;
            if station.attempts < ATTEMPTS {
                let slots = station.stream.below(1 << station.attempts.min(BACKOFF));
                station.earliest_start = ends + self.slot * slots;
            } else if let Some(frame) = station.queue.pop_front() {
                station.attempts = 0;
                self.schedule(ScheduledFrame {
                    given_up: true,
                    ..ScheduledFrame::new(number, frame, start, ends, ends)
                });
            }
        }
    }

    /// Inserts a frame in order of output, behind frames of the same time.
    fn schedule(&mut self, frame: ScheduledFrame<F>) {
        let position = self.scheduled.iter().take_while(|other| other.output_at <= frame.output_at).count();
        self.scheduled.insert(position, frame);
    }

    /// Counts the frames that have left by `now`, and notifies stations that wait for room.
    fn count_departures(&mut self, now: Instant) {
        for scheduled in self.scheduled.iter_mut().filter(|s| !s.is_counted && s.departs <= now) {
            scheduled.is_counted = true;
            let sender = &mut self.stations[scheduled.from].sender;
            let length = scheduled.frame.length();
            if scheduled.given_up {
                sender.counters.other_losses += 1;
            } else {
                sender.count(length, scheduled.departs.since(scheduled.begins));
            }
            if sender.remove(scheduled.frame.channel(), length) {
                self.waiting_for_room -= 1;
                self.pending.room.push_back(Port(scheduled.from as u16));
            }
        }
    }

    fn request_room(&mut self, port: Port) {
        let sender = &mut self.station(port).sender;
        let was_waiting = sender.room_requested;
        if sender.request_room() {
            self.pending.room.push_back(port);
        } else if !was_waiting {
            self.waiting_for_room += 1;
        }
    }

    /// Delivers the oldest frame to the next port.
    fn deliver_next(&mut self) -> Option<MediumOutput<F>> {
        let ports = self.stations.len();
        let first = self.scheduled.front_mut().filter(|first| first.output_at <= self.woken_at)?;
        let skip_sender = |port: usize| if port == first.from { port + 1 } else { port };
        let port = skip_sender(first.next_port);
        first.next_port = port + 1;
        if first.given_up || skip_sender(port + 1) >= ports {
            let ScheduledFrame { from, frame, given_up, .. } = self.scheduled.pop_front()?;
            return Some(match given_up {
                true => MediumOutput::Lost { port: Port(from as u16), frame, cause: LossCause::Collisions },
                false => MediumOutput::Transmit { port: Port(port as u16), frame },
            });
        }
        Some(MediumOutput::Transmit { port: Port(port as u16), frame: first.frame.clone() })
    }

    fn deadline(&self) -> Option<Instant> {
        let output = self.scheduled.front().map(|scheduled| scheduled.output_at);
        let resolved = self.next_contention.map(|next| match self.collides(&next) {
            true => next.first_start + self.options.delay + Span::from_ps(1),
            false if self.waiting_for_room > 0 => next.departs,
            false => next.departs + self.options.delay,
        });
        let deadline = output.into_iter().chain(resolved).min();
        if self.waiting_for_room == 0 {
            return deadline;
        }
        let queued = self.scheduled.iter().filter(|scheduled| !scheduled.is_counted);
        queued.map(|scheduled| scheduled.departs).chain(deadline).min()
    }
}

impl<F> ScheduledFrame<F> {
    fn new(from: usize, frame: F, begins: Instant, departs: Instant, output_at: Instant) -> Self {
        ScheduledFrame {
            from,
            frame,
            begins,
            departs,
            output_at,
            given_up: false,
            is_counted: false,
            next_port: 0,
        }
    }
}

impl<F: Frame> Medium<F> for Hub<F> {
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        self.advance(now);
        match input {
            MediumInput::Frame { port, frame } => self.send(now, port, frame),
            MediumInput::RequestRoom { port } => self.request_room(port),
            MediumInput::Wake => self.woken_at = now,
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        let output = self.pending.take().or_else(|| self.deliver_next());
        output.unwrap_or_else(|| MediumOutput::Idle { deadline: self.deadline() })
    }

    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.advance(now);
        self.station(port).sender.has_room(length)
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        &self.stations[usize::from(port.0)].sender.counters
    }
}

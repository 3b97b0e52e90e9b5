//! A token ring: one packet per token, with early token release.
//!
//! # What is simulated
//!
//! Stations form a ring in the order of their ports. A station that receives the token sends one frame, if it has
//! any, directly followed by a new token (early release), as in the ring of *AirNET: A Real-Time Communications
//! Network for Aircraft* (report UVA/528238/CS90/101, 1990), section 4.1: 10 Mb/s, up to 255 stations, packets up to
//! 2046 bytes. Each station repeats the signal after a latency of some bits, and the next one receives it a
//! propagation delay later; together, a hop.
//!
//! With the last bit of the token at a station at time t, the last bit of a frame of duration L arrives d stations
//! away at t + L + d·hop, and that of the new token, of duration T, at the next station at t + L + T + hop. A frame
//! to another station ends there; a frame to the sender itself returns after a whole rotation; a frame to a group or
//! to all is received by every other station; a frame to an unknown station is detected when it returns.
//!
//! The token may be lost on a hop. The active monitor, station 0, notices after [`RingOptions::recovery`] without a
//! token, counted from when the lost token would have arrived, and issues a new one.
//!
//! # The token walks without events
//!
//! While no station sends, the token moves one hop at a time, so its position is arithmetic, and the number of hops
//! until a loss is one geometric draw. An idle ring has no events; a frame costs one event when it gets the token and
//! one for each receiving station.

use std::collections::VecDeque;

use trunkline_endpoint::{Arrival, Bound, Cause, Counters, Frame, Medium, Passage, Port, To};
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use crate::media::Framing;
use crate::media::line::sooner;
use crate::media::occupancy::Occupancy;
use crate::media::serializer::bit_times;
use crate::media::table::Table;

/// Maximum stations of a ring: one-byte addresses, one of which is the broadcast address.
pub const STATIONS: usize = 255;

/// What a ring is like.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Bits per second on the ring. Not zero.
    pub rate: Rate,
    /// What is added to each frame.
    pub framing: Framing,
    /// Longest accepted [`Frame::length`]; a longer frame is [`Cause::TooLong`].
    pub longest: u32,
    /// Length of the token including delimiters, in bits.
    pub token: u32,
    /// Latency of a repeating station, in bits.
    pub latency: u32,
    /// Propagation delay between neighbours. A hop (latency and propagation) takes some time.
    pub propagation: Span,
    /// Probability that the token is lost on one hop, 0 to 1.
    pub loss: f64,
    /// How long the active monitor waits for a lost token.
    pub recovery: Span,
}

/// ProNET-10 with the frame format of IEEE 802.5: start and end delimiter, access control, frame control, two
/// addresses, check sequence and frame status are 21 bytes; a token is two delimiters and access control, 24
/// bits; a station holds one bit. A hop is 100 m of cable, 0.5 µs. No loss; the monitor waits 10 ms (timer
/// TVX of IEEE 802.5).
impl Default for RingOptions {
    fn default() -> Self {
        RingOptions {
            rate: Rate::from_bps(10_000_000),
            framing: Framing { overhead: 21, smallest: 0 },
            longest: 2046,
            token: 24,
            latency: 1,
            propagation: Span::from_ns(500),
            loss: 0.0,
            recovery: Span::from_ms(10),
        }
    }
}

impl RingOptions {
    /// FDDI by rate and size: 100 Mb/s, 4500 bytes, and the format of ANSI X3.139: preamble 8, delimiters, frame
    /// control and status 4, addresses 12, check sequence 4; a token of 11 bytes including the preamble; 0.6 µs in a
    /// station. One packet per token: FDDI's timed token, which lets a station send several, is not simulated.
    pub fn fddi() -> Self {
        RingOptions {
            rate: Rate::from_bps(100_000_000),
            framing: Framing { overhead: 28, smallest: 0 },
            longest: 4500,
            token: 88,
            latency: 60,
            ..RingOptions::default()
        }
    }
}

/// One station.
#[derive(Clone, Debug)]
struct Station<F> {
    /// Queued frames by priority.
    queues: [VecDeque<F>; 8],
    /// Bit set of the priorities with queued frames.
    waiting: u8,
    occupancy: Occupancy,
    asked: bool,
    wanted: u32,
    counters: Counters,
}

impl<F: Frame> Station<F> {
    fn push(&mut self, frame: F) {
        let priority = frame.priority().min(7);
        self.waiting |= 1 << priority;
        self.queues[usize::from(priority)].push_back(frame);
    }

    /// Returns the oldest frame of the highest priority.
    fn pop(&mut self) -> Option<F> {
        let priority = self.waiting.checked_ilog2()?;
        let queue = &mut self.queues[priority as usize];
        let frame = queue.pop_front();
        if queue.is_empty() {
            self.waiting &= !(1 << priority);
        }
        frame
    }
}

/// The token, as it circulates if no station seizes it.
#[derive(Clone, Copy, Debug)]
struct Token {
    /// Station that its last bit reaches, and when.
    place: usize,
    at: Instant,
    /// Hops from there on before it is lost.
    passes: u64,
}

/// The next event of the token, as far as known.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It reaches a station with a frame after this many hops.
    Reach { station: usize, passes: u64 },
    /// It is lost.
    Lost,
}

/// A frame on the ring.
#[derive(Clone, Debug)]
struct Flight<F> {
    from: usize,
    frame: F,
    /// Next arrival.
    at: Instant,
    /// Hops to the next arrival.
    distance: usize,
    /// Hops to the end of its way.
    end: usize,
    /// Whether its destination does not exist.
    astray: bool,
}

/// A frame in transmission.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    from: usize,
    until: Instant,
    takes: Span,
    channel: u16,
    length: u32,
}

/// A token ring; see the [module](self).
///
/// Each station's queue is limited by its [`Bound`] over all priorities; a frame that does not fit is lost
/// ([`Cause::Full`]), whatever its priority. With the token a station sends the oldest frame of the highest
/// [`Frame::priority`]. At most one frame per station, and one more, is on the ring.
#[derive(Clone, Debug)]
pub struct Ring<F> {
    options: RingOptions,
    latency: Span,
    hop: Span,
    token_time: Span,
    stream: Stream,
    stations: Vec<Station<F>>,
    table: Table,
    token: Token,
    step: Option<(Instant, Step)>,
    /// Number of stations with queued frames.
    waiting: usize,
    leaving: Option<Transmission>,
    flights: Vec<Flight<F>>,
    due: Instant,
    /// Frames dropped at the queue, not yet reported.
    refused: VecDeque<(Port, F, Cause)>,
    /// Stations whose wait for queue space has ended.
    granted: VecDeque<Port>,
    tokens_lost: u64,
}

impl<F: Frame> Ring<F> {
    /// Creates a ring with one station per bound. At time zero the token is at station 0. Token losses are drawn from
    /// `stream`; without losses nothing is drawn.
    ///
    /// # Panics
    /// If the rate or the duration of a hop is zero, or there are no stations or more than [`STATIONS`].
    pub fn new(options: RingOptions, bounds: &[Bound], stream: Stream) -> Self {
        assert!((1..=STATIONS).contains(&bounds.len()), "a ring has 1 to 255 stations");
        assert!(options.rate.as_bps() > 0, "a ring has a rate");
        let latency = bit_times(options.rate, options.latency);
        let hop = latency + options.propagation;
        assert!(!hop.is_zero(), "a hop takes time");
        let station = |bound: &Bound| Station {
            queues: Default::default(),
            waiting: 0,
            occupancy: Occupancy::new(*bound),
            asked: false,
            wanted: 0,
            counters: Counters::default(),
        };
        let mut ring = Ring {
            latency,
            hop,
            token_time: bit_times(options.rate, options.token),
            stream,
            stations: bounds.iter().map(station).collect(),
            table: Table::default(),
            token: Token { place: 0, at: Instant::ZERO, passes: 0 },
            step: None,
            waiting: 0,
            leaving: None,
            flights: Vec::new(),
            due: Instant::ZERO,
            refused: VecDeque::new(),
            granted: VecDeque::new(),
            tokens_lost: 0,
            options,
        };
        ring.token.passes = ring.draw_passes();
        ring
    }

    /// Places station `number` at `port`; a bridge stands for several stations.
    ///
    /// # Panics
    /// If there is no such port, or the number has more than 24 bits.
    pub fn station(&mut self, number: u32, port: Port) {
        assert!(usize::from(port.0) < self.stations.len(), "the ring has no {port:?}");
        self.table.set(number, port);
    }

    /// Returns the longest rotation of a token that is not lost: every station sends a longest frame. A station's
    /// next frame waits for the token at most this long.
    pub fn cycle_bound(&self) -> Span {
        (self.time_for(self.options.longest) + self.token_time + self.hop) * self.stations.len() as u64
    }

    /// Returns the number of lost tokens that were noticed; a loss goes unnoticed while no station has frames.
    pub fn tokens_lost(&self) -> u64 {
        self.tokens_lost
    }

    fn time_for(&self, length: u32) -> Span {
        self.options.rate.time_for(Size::from_bytes(self.options.framing.wire(length)))
    }

    /// Draws the number of hops until the next token loss, geometrically distributed.
    fn draw_passes(&mut self) -> u64 {
        let loss = self.options.loss;
        match loss {
            _ if loss <= 0.0 => u64::MAX,
            _ if loss >= 1.0 => 0,
            // `as` saturates.
            _ => libm::floor(libm::log(self.stream.unit()) / libm::log1p(-loss)) as u64,
        }
    }

    fn send(&mut self, now: Instant, port: Port, frame: F) {
        let at = usize::from(port.0);
        let station = &mut self.stations[at];
        let cause = if frame.length() > self.options.longest {
            station.counters.lost += 1;
            Cause::TooLong
        } else if !station.occupancy.enter(frame.channel(), frame.length()) {
            station.counters.full += 1;
            Cause::Full
        } else {
            station.counters.queue_max = station.counters.queue_max.max(station.occupancy.bytes());
            let idle = station.waiting == 0;
            station.push(frame);
            if idle {
                self.claim(now, at);
            }
            return;
        };
        self.refused.push_back((port, frame, cause));
    }

    /// Records that `station` has frames to send from `now` on.
    fn claim(&mut self, now: Instant, station: usize) {
        if self.waiting == 0 {
            while self.lost_at() <= now {
                self.reissue();
            }
        }
        self.waiting += 1;
        let passes = self.passes_to(station, now);
        let sooner = match self.step {
            Some((_, Step::Reach { passes: planned, .. })) => passes < planned,
            Some((_, Step::Lost)) | None => true,
        };
        if sooner {
            self.step = Some(self.step_to(station, passes));
        }
    }

    /// Returns the hops until the token reaches `station`, not before `from`.
    fn passes_to(&self, station: usize, from: Instant) -> u64 {
        let stations = self.stations.len();
        let passes = ((station + stations - self.token.place) % stations) as u64;
        let turn = self.hop * stations as u64;
        let missed = from.since(self.token.at + self.hop * passes);
        passes + missed.as_ps().div_ceil(turn.as_ps()) * stations as u64
    }

    fn step_to(&self, station: usize, passes: u64) -> (Instant, Step) {
        if passes > self.token.passes {
            return (self.lost_at(), Step::Lost);
        }
        (self.token.at + self.hop * passes, Step::Reach { station, passes })
    }

    /// Returns when the token would arrive after the hop on which it is lost.
    fn lost_at(&self) -> Instant {
        self.token.at + self.hop * self.token.passes.saturating_add(1)
    }

    /// The monitor issues a new token.
    fn reissue(&mut self) {
        self.tokens_lost += 1;
        let at = self.lost_at() + self.options.recovery;
        self.token = Token { place: 0, at, passes: self.draw_passes() };
    }

    /// Plans the next step: the first station after the token that has frames. They have all arrived before the
    /// token.
    fn plan(&mut self) {
        let stations = self.stations.len();
        let mut places = (0..stations).map(|distance| (distance, (self.token.place + distance) % stations));
        let first = places.find(|(_, at)| self.stations[*at].waiting != 0);
        self.step = first.map(|(distance, at)| self.step_to(at, distance as u64));
    }

    /// Executes the token's steps before `now`; with `whole`, also those at `now`.
    fn advance(&mut self, now: Instant, whole: bool) {
        while let Some((at, step)) = self.step.filter(|(at, _)| *at < now || (whole && *at == now)) {
            match step {
                Step::Reach { station, passes } => self.seize(at, station, passes),
                Step::Lost => self.reissue(),
            }
            self.plan();
        }
        self.retire(now);
    }

    /// The station sends a frame and a new token.
    fn seize(&mut self, now: Instant, at: usize, passes: u64) {
        self.retire(now);
        let stations = self.stations.len();
        let Some(frame) = self.stations[at].pop() else { return };
        if self.stations[at].waiting == 0 {
            self.waiting -= 1;
        }
        let takes = self.time_for(frame.length());
        let until = now + self.latency + takes;
        let (channel, length) = (frame.channel(), frame.length());
        self.leaving = Some(Transmission { from: at, until, takes, channel, length });
        self.launch(now + takes, at, frame);

        self.token =
            Token { place: at, at: now + takes + self.token_time, passes: self.token.passes - passes };
        if self.token.passes == 0 {
            self.reissue();
        } else {
            let Token { at: sent, passes, .. } = self.token;
            self.token = Token { place: (at + 1) % stations, at: sent + self.hop, passes: passes - 1 };
        }
    }

    /// Puts a frame on the ring whose last bit was at station `from` at `sent`.
    fn launch(&mut self, sent: Instant, from: usize, frame: F) {
        let stations = self.stations.len();
        let several = stations > 1 && !matches!(frame.to(), To::Station(_));
        let port = match frame.to() {
            To::Station(number) => self.table.get(number).map(|port| usize::from(port.0)),
            To::Group(_) | To::All => None,
        };
        // A frame to its sender or to no station returns after a whole rotation.
        let away = port.map_or(0, |port| (port + stations - from) % stations);
        let whole = if away == 0 { stations } else { away };
        let (distance, end) = if several { (1, stations - 1) } else { (whole, whole) };
        let at = sent + self.hop * distance as u64;
        self.flights.push(Flight { from, frame, at, distance, end, astray: !several && port.is_none() });
    }

    /// Counts the frames that have left by `now`, and notifies stations that wait for queue space.
    fn retire(&mut self, now: Instant) {
        let Some(left) = self.leaving.take_if(|leaving| leaving.until <= now) else { return };
        let station = &mut self.stations[left.from];
        station.occupancy.leave(left.channel, left.length);
        station.counters.frames += 1;
        station.counters.bytes += u64::from(left.length);
        station.counters.busy += left.takes;
        if station.asked && station.occupancy.room(station.wanted) {
            station.asked = false;
            self.granted.push_back(Port(left.from as u16));
        }
    }

    fn ask(&mut self, port: Port) {
        let station = &mut self.stations[usize::from(port.0)];
        if station.occupancy.room(station.wanted) {
            self.granted.push_back(port);
        } else {
            station.asked = true;
        }
    }

    /// Returns the next flight to arrive; the oldest of several at once.
    fn next_flight(&self) -> Option<usize> {
        (0..self.flights.len()).min_by_key(|flight| self.flights[*flight].at)
    }

    /// Delivers the next arrived frame to a station.
    fn arrive(&mut self) -> Option<Passage<F>> {
        let place = self.next_flight().filter(|place| self.flights[*place].at <= self.due)?;
        let flight = &mut self.flights[place];
        let port = Port(((flight.from + flight.distance) % self.stations.len()) as u16);
        if flight.distance < flight.end {
            flight.distance += 1;
            flight.at += self.hop;
            return Some(Passage::Transmit { port, frame: flight.frame.clone() });
        }
        let Flight { from, frame, astray, .. } = self.flights.remove(place);
        if astray {
            self.stations[from].counters.lost += 1;
            return Some(Passage::Lost { port, frame, cause: Cause::NoRoute });
        }
        Some(Passage::Transmit { port, frame })
    }

    fn deadline(&self) -> Option<Instant> {
        let arrival = self.next_flight().map(|flight| self.flights[flight].at);
        let asked = self.leaving.filter(|leaving| self.stations[leaving.from].asked);
        let step = sooner(self.step.map(|(at, _)| at), asked.map(|leaving| leaving.until));
        sooner(arrival, step)
    }
}

impl<F: Frame> Medium<F> for Ring<F> {
    fn handle(&mut self, now: Instant, input: Arrival<F>) {
        let woken = matches!(input, Arrival::Wake);
        self.advance(now, woken);
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
        match self.arrive() {
            Some(passage) => passage,
            None => Passage::Idle { deadline: self.deadline() },
        }
    }

    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.advance(now, false);
        let station = &mut self.stations[usize::from(port.0)];
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

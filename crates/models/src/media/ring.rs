//! A token ring: one packet a token, the next token right behind the packet.
//!
//! # What is simulated
//!
//! Stations in a ring, in the order of their ports. A token goes round; who has it and has a frame sends that
//! one frame and right behind it a new token (early release), as the ring of *AirNET: A Real-Time
//! Communications Network for Aircraft* (report UVA/528238/CS90/101, 1990), section 4.1, does: 10 Mb/s, up to
//! 255 stations, packets up to 2046 bytes. Each station passes on what it hears after a latency of some bits,
//! and the next one hears that a propagation delay later; together, a hop.
//!
//! With the last bit of the token at a station at time t, a frame that takes L has its last bit d stations on
//! at t + L + d·hop, and the new token, which takes T, has its last bit at the next station at t + L + T +
//! hop. A frame for a station goes there, back to the sender itself after a whole turn if it is its own; a
//! frame for a group or for all is heard by every other station; a frame for nobody is found to be so when it
//! is back.
//!
//! A pass of the token may lose it. The active monitor, which is station 0, notices when it has heard none
//! for [`RingOptions::recovery`], counted from the moment at which the lost token would have arrived, and
//! issues a new one.
//!
//! # The token walks without events
//!
//! Where nobody sends the token moves a hop at a time, so where it will be is arithmetic, and how many passes
//! it will survive is one geometric draw. An idle ring has no event; a frame costs one when it gets the token
//! and one for each station that hears it.

use std::collections::VecDeque;

use trunkline_endpoint::{Arrival, Bound, Cause, Counters, Frame, Medium, Passage, Port, To};
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use crate::media::Framing;
use crate::media::line::sooner;
use crate::media::occupancy::Occupancy;
use crate::media::serializer::bit_times;
use crate::media::table::Table;

/// Most stations of a ring: one-byte addresses, of which one means all.
pub const STATIONS: usize = 255;

/// What a ring is like.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Bits per second on the ring. Not zero.
    pub rate: Rate,
    /// What is added to each frame.
    pub framing: Framing,
    /// Longest frame taken, as [`Frame::length`] tells it; one byte more is [`Cause::TooLong`].
    pub longest: u32,
    /// Length of the token, delimiters included, in bits.
    pub token: u32,
    /// Bits that a station holds while it repeats.
    pub latency: u32,
    /// Propagation from a station to the next. A hop, latency and this, takes some time.
    pub propagation: Span,
    /// Probability that a pass from a station to the next loses the token, 0 to 1.
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
    /// FDDI by rate and size: 100 Mb/s, 4500 bytes, and ANSI X3.139's format: preamble 8, delimiters, frame
    /// control and status 4, addresses 12, check sequence 4; a token of 11 bytes, preamble included; 0.6 µs
    /// in a station. One packet a token all the same: FDDI's timed token, which lets a station send several,
    /// is not simulated.
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
    /// What waits, by priority.
    queues: [VecDeque<F>; 8],
    /// Which priorities wait, a bit each.
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

    /// The most urgent frame, of those the oldest.
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

/// The token, as it walks if nobody takes it.
#[derive(Clone, Copy, Debug)]
struct Token {
    /// Where its last bit is, or will be, and when.
    place: usize,
    at: Instant,
    /// Passes from there on that it survives.
    passes: u64,
}

/// What becomes of the token next, as far as is known.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It reaches a station that has a frame, after so many passes.
    Reach { station: usize, passes: u64 },
    /// It is lost on the way.
    Lost,
}

/// A frame on the ring.
#[derive(Clone, Debug)]
struct Flight<F> {
    from: usize,
    frame: F,
    /// When it arrives next.
    at: Instant,
    /// How many stations on that is.
    distance: usize,
    /// How many stations on it ends.
    end: usize,
    /// Nobody is where it goes.
    astray: bool,
}

/// The frame whose bits a station sends out.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    from: usize,
    until: Instant,
    takes: Span,
    channel: u16,
    length: u32,
}

/// A token ring; see the [module](self).
///
/// Each station's queue holds what its [`Bound`] allows, of all priorities together; a frame for which there
/// is no room is lost ([`Cause::Full`]), however urgent. When the token comes the station sends the frame of
/// highest [`Frame::priority`], of those the oldest. At most one frame for each station, and one more, is on
/// the ring.
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
    /// Stations that have something to send.
    waiting: usize,
    leaving: Option<Leaving>,
    flights: Vec<Flight<F>>,
    due: Instant,
    /// Lost before they were queued, and not yet told.
    refused: VecDeque<(Port, F, Cause)>,
    /// Stations that asked and now have room.
    granted: VecDeque<Port>,
    tokens_lost: u64,
}

impl<F: Frame> Ring<F> {
    /// A ring with as many stations as there are bounds, one for each port. At time zero the token is at
    /// station 0. `stream` decides when the token is lost; it is not drawn from if it never is.
    ///
    /// # Panics
    /// If the rate or a hop is zero, or there are no stations or more than [`STATIONS`].
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

    /// Station `number` is at `port`; a bridge stands for several.
    ///
    /// # Panics
    /// If there is no such port, or the number has more than 24 bits.
    pub fn station(&mut self, number: u32, port: Port) {
        assert!(usize::from(port.0) < self.stations.len(), "the ring has no {port:?}");
        self.table.set(number, port);
    }

    /// The longest that a token which is not lost takes from a station back to it: everybody sends a longest
    /// frame. So long, at the most, a station's next frame waits for the token.
    pub fn cycle_bound(&self) -> Span {
        (self.time_for(self.options.longest) + self.token_time + self.hop) * self.stations.len() as u64
    }

    /// Tokens that are known to have been lost. Nobody looks for one while there is nothing to send.
    pub fn tokens_lost(&self) -> u64 {
        self.tokens_lost
    }

    fn time_for(&self, length: u32) -> Span {
        self.options.rate.time_for(Size::from_bytes(self.options.framing.wire(length)))
    }

    /// How many passes the next token survives: geometric.
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

    /// `station` has something to send from `now` on, and had not before.
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

    /// How many passes on the token reaches `station`, not before `from`.
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

    /// When the token would arrive from the pass that it does not survive.
    fn lost_at(&self) -> Instant {
        self.token.at + self.hop * self.token.passes.saturating_add(1)
    }

    /// The monitor has missed the token for long enough.
    fn reissue(&mut self) {
        self.tokens_lost += 1;
        let at = self.lost_at() + self.options.recovery;
        self.token = Token { place: 0, at, passes: self.draw_passes() };
    }

    /// The first station from the token on that has something to send. All of it has come before the token
    /// will.
    fn plan(&mut self) {
        let stations = self.stations.len();
        let mut places = (0..stations).map(|distance| (distance, (self.token.place + distance) % stations));
        let first = places.find(|(_, at)| self.stations[*at].waiting != 0);
        self.step = first.map(|(distance, at)| self.step_to(at, distance as u64));
    }

    /// Takes the token's steps until `now`; with `whole`, also those at `now`.
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
        self.leaving = Some(Leaving { from: at, until, takes, channel, length });
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

    /// Sends a frame round whose last bit stood at station `from` at `sent`.
    fn launch(&mut self, sent: Instant, from: usize, frame: F) {
        let stations = self.stations.len();
        let several = stations > 1 && !matches!(frame.to(), To::Station(_));
        let port = match frame.to() {
            To::Station(number) => self.table.get(number).map(|port| usize::from(port.0)),
            To::Group(_) | To::All => None,
        };
        // Its own frame, or nobody's, comes back after a whole turn.
        let away = port.map_or(0, |port| (port + stations - from) % stations);
        let whole = if away == 0 { stations } else { away };
        let (distance, end) = if several { (1, stations - 1) } else { (whole, whole) };
        let at = sent + self.hop * distance as u64;
        self.flights.push(Flight { from, frame, at, distance, end, astray: !several && port.is_none() });
    }

    /// Counts what has left by `now`, and answers who asked.
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

    /// The flight that arrives next; of several at once the oldest.
    fn next_flight(&self) -> Option<usize> {
        (0..self.flights.len()).min_by_key(|flight| self.flights[*flight].at)
    }

    /// Hands the next frame that has arrived to a station.
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
            return Some(Passage::Lost { port, frame, cause: Cause::NoWay });
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

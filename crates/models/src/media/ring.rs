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
//! The token may be lost on a hop. The active monitor, station 0, detects that after [`RingOptions::recovery`] without
//! a token, counted from when the lost token would have arrived, and issues a new one.
//!
//! # The token walks without events
//!
//! While no station sends, the token moves one hop at a time, so its position is arithmetic, and the number of hops
//! until a loss is one geometric draw. An idle ring has no events; a frame costs one event when it gets the token and
//! one for each receiving station.

use std::collections::VecDeque;

use trunkline_endpoint::{
    Bound, Destination, Frame, LossCause, Medium, MediumCounters, MediumInput, MediumOutput, Port,
};
use trunkline_units::{Instant, Rate, Size, Span, Stream};

use crate::media::Framing;
use crate::media::sender::{PendingOutputs, SendQueue};
use crate::media::serializer::bit_times;
use crate::media::table::Table;

/// Maximum stations of a ring: one-byte addresses, one of which is the broadcast address.
pub const STATIONS: usize = 255;

/// Options of a ring.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Bits per second on the ring. Not zero.
    pub rate: Rate,
    /// Framing overhead of each frame.
    pub framing: Framing,
    /// Longest accepted [`Frame::length`]; a longer frame is lost ([`LossCause::TooLong`]).
    pub max_length: u32,
    /// Length of the token including delimiters, in bits.
    pub token_bits: u32,
    /// Latency of a repeating station, in bits.
    pub latency_bits: u32,
    /// Propagation delay between neighbours. A hop (latency plus propagation) must not be zero.
    pub propagation: Span,
    /// Probability that the token is lost on one hop, 0 to 1.
    pub token_loss: f64,
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
            max_length: 2046,
            token_bits: 24,
            latency_bits: 1,
            propagation: Span::from_ns(500),
            token_loss: 0.0,
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
            max_length: 4500,
            token_bits: 88,
            latency_bits: 60,
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
    sender: SendQueue,
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
    /// The station that its last bit reaches next.
    station: usize,
    /// When the last bit reaches it.
    at: Instant,
    /// Number of hops from there on before it is lost.
    hops: u64,
}

/// The next event of the token, as far as known.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It reaches a station with a frame after this many hops.
    Reach { station: usize, hops: u64 },
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
    /// Hops from the sender to the next receiver.
    distance: usize,
    /// Hops to its last receiver.
    last_distance: usize,
    /// Whether its destination does not exist.
    is_undeliverable: bool,
}

/// A frame in transmission, which still occupies its queue.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    from: usize,
    until: Instant,
    duration: Span,
    channel: u16,
    length: u32,
}

/// A token ring; see the [module](self).
///
/// Each station's queue is limited by its [`Bound`] over all priorities; a frame that does not fit is lost
/// ([`LossCause::QueueFull`]), whatever its priority. With the token a station sends the oldest frame of the highest
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
    /// The next step of the token and its time; `None` while no station has queued frames.
    step: Option<(Instant, Step)>,
    /// Number of stations with queued frames.
    waiting_stations: usize,
    transmission: Option<Transmission>,
    flights: Vec<Flight<F>>,
    /// Time of the last wake: later output may not be polled yet.
    woken_at: Instant,
    pending: PendingOutputs<F>,
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
        let latency = bit_times(options.rate, options.latency_bits);
        let hop = latency + options.propagation;
        assert!(!hop.is_zero(), "a hop takes time");
        let station = |bound: &Bound| Station {
            queues: Default::default(),
            waiting: 0,
            sender: SendQueue::new(*bound),
        };
        let mut ring = Ring {
            latency,
            hop,
            token_time: bit_times(options.rate, options.token_bits),
            stream,
            stations: bounds.iter().map(station).collect(),
            table: Table::default(),
            token: Token { station: 0, at: Instant::ZERO, hops: 0 },
            step: None,
            waiting_stations: 0,
            transmission: None,
            flights: Vec::new(),
            woken_at: Instant::ZERO,
            pending: PendingOutputs::new(),
            tokens_lost: 0,
            options,
        };
        ring.token.hops = ring.draw_hops_until_loss();
        ring
    }

    /// Adds station `number` at `port`. Several stations may be behind one port, that of a bridge.
    ///
    /// # Panics
    /// If there is no such port, or the number has more than 24 bits.
    pub fn add_station(&mut self, number: u32, port: Port) {
        assert!(usize::from(port.0) < self.stations.len(), "the ring has no {port:?}");
        self.table.set(number, port);
    }

    /// Returns the longest rotation of a token that is not lost: every station sends a longest frame. A station's
    /// next frame waits for the token at most this long.
    pub fn cycle_bound(&self) -> Span {
        (self.time_for(self.options.max_length) + self.token_time + self.hop) * self.stations.len() as u64
    }

    /// Returns the number of lost tokens that the monitor has replaced. Losses while no station has frames are counted
    /// when one has.
    pub fn tokens_lost(&self) -> u64 {
        self.tokens_lost
    }

    fn time_for(&self, length: u32) -> Span {
        self.options.rate.time_for(Size::from_bytes(self.options.framing.wire(length)))
    }

    /// Draws the number of hops until the next token loss, geometrically distributed.
    fn draw_hops_until_loss(&mut self) -> u64 {
        let loss = self.options.token_loss;
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
        if let Err(cause) = station.sender.add(&frame, self.options.max_length) {
            return self.pending.dropped.push_back((port, frame, cause));
        }
        let was_idle = station.waiting == 0;
        station.push(frame);
        if was_idle {
            self.add_waiting_station(now, at);
        }
    }

    /// Records that `station` has frames to send from `now` on.
    fn add_waiting_station(&mut self, now: Instant, station: usize) {
        if self.waiting_stations == 0 {
            while self.lost_at() <= now {
                self.reissue();
            }
        }
        self.waiting_stations += 1;
        let hops = self.hops_to(station, now);
        let is_earlier = match self.step {
            Some((_, Step::Reach { hops: planned, .. })) => hops < planned,
            Some((_, Step::Lost)) | None => true,
        };
        if is_earlier {
            self.step = Some(self.step_to(station, hops));
        }
    }

    /// Returns the hops until the token reaches `station`, not before `from`.
    fn hops_to(&self, station: usize, from: Instant) -> u64 {
        let stations = self.stations.len();
        let hops = ((station + stations - self.token.station) % stations) as u64;
        let rotation = self.hop * stations as u64;
        let late = from.since(self.token.at + self.hop * hops);
        hops + late.as_ps().div_ceil(rotation.as_ps()) * stations as u64
    }

    /// Returns the next step of a token that is to reach `station` after `hops`.
    fn step_to(&self, station: usize, hops: u64) -> (Instant, Step) {
        if hops > self.token.hops {
            return (self.lost_at(), Step::Lost);
        }
        (self.token.at + self.hop * hops, Step::Reach { station, hops })
    }

    /// Returns when the token would arrive after the hop on which it is lost.
    fn lost_at(&self) -> Instant {
        self.token.at + self.hop * self.token.hops.saturating_add(1)
    }

    /// The monitor issues a new token.
    fn reissue(&mut self) {
        self.tokens_lost += 1;
        let at = self.lost_at() + self.options.recovery;
        self.token = Token { station: 0, at, hops: self.draw_hops_until_loss() };
    }

    /// Plans the next step: the first station after the token that has frames. All queued frames were queued before the
    /// token arrives.
    fn plan_step(&mut self) {
        let stations = self.stations.len();
        let mut order = (0..stations).map(|hops| (hops, (self.token.station + hops) % stations));
        let first = order.find(|(_, station)| self.stations[*station].waiting != 0);
        self.step = first.map(|(hops, station)| self.step_to(station, hops as u64));
    }

    /// Executes the token's steps before `now`; if `inclusive`, also those at `now`.
    fn advance(&mut self, now: Instant, inclusive: bool) {
        while let Some((at, step)) = self.step.filter(|(at, _)| *at < now || (inclusive && *at == now)) {
            match step {
                Step::Reach { station, hops } => self.seize(at, station, hops),
                Step::Lost => self.reissue(),
            }
            self.plan_step();
        }
        self.count_departures(now);
    }

    /// A station seizes the token, which it receives after `hops`, and sends a frame and a new token.
    fn seize(&mut self, now: Instant, from: usize, hops: u64) {
        self.count_departures(now);
        let stations = self.stations.len();
        let Some(frame) = self.stations[from].pop() else { return };
        if self.stations[from].waiting == 0 {
            self.waiting_stations -= 1;
        }
        let duration = self.time_for(frame.length());
        let until = now + self.latency + duration;
        let (channel, length) = (frame.channel(), frame.length());
        self.transmission = Some(Transmission { from, until, duration, channel, length });
        self.launch(now + duration, from, frame);

        let token_sent = now + duration + self.token_time;
        self.token = Token { station: from, at: token_sent, hops: self.token.hops - hops };
        if self.token.hops == 0 {
            self.reissue();
        } else {
            let next = (from + 1) % stations;
            self.token = Token { station: next, at: token_sent + self.hop, hops: self.token.hops - 1 };
        }
    }

    /// Puts a frame on the ring whose last bit was at station `from` at `sent`.
    fn launch(&mut self, sent: Instant, from: usize, frame: F) {
        let stations = self.stations.len();
        let several = stations > 1 && !matches!(frame.destination(), Destination::Station(_));
        let port = match frame.destination() {
            Destination::Station(number) => self.table.get(number).map(|port| usize::from(port.0)),
            Destination::Group(_) | Destination::All => None,
        };
        // A frame to its sender or to no station returns after a whole rotation.
        let hops = port.map_or(stations, |port| (port + stations - from) % stations);
        let hops = if hops == 0 { stations } else { hops };
        let (distance, last_distance) = if several { (1, stations - 1) } else { (hops, hops) };
        let at = sent + self.hop * distance as u64;
        let is_undeliverable = !several && port.is_none();
        self.flights.push(Flight { from, frame, at, distance, last_distance, is_undeliverable });
    }

    /// Counts the frames that have left by `now`, and notifies stations that wait for room.
    fn count_departures(&mut self, now: Instant) {
        let Some(sent) = self.transmission.take_if(|transmission| transmission.until <= now) else { return };
        let sender = &mut self.stations[sent.from].sender;
        sender.count(sent.length, sent.duration);
        if sender.remove(sent.channel, sent.length) {
            self.pending.room.push_back(Port(sent.from as u16));
        }
    }

    fn request_room(&mut self, port: Port) {
        if self.stations[usize::from(port.0)].sender.request_room() {
            self.pending.room.push_back(port);
        }
    }

    /// Returns the index of the next flight to arrive; of several at one time the oldest.
    fn next_flight(&self) -> Option<usize> {
        (0..self.flights.len()).min_by_key(|flight| self.flights[*flight].at)
    }

    /// Delivers the next arrived frame to a station.
    fn arrive(&mut self) -> Option<MediumOutput<F>> {
        let index = self.next_flight().filter(|index| self.flights[*index].at <= self.woken_at)?;
        let flight = &mut self.flights[index];
        let port = Port(((flight.from + flight.distance) % self.stations.len()) as u16);
        if flight.distance < flight.last_distance {
            flight.distance += 1;
            flight.at += self.hop;
            return Some(MediumOutput::Transmit { port, frame: flight.frame.clone() });
        }
        let Flight { from, frame, is_undeliverable, .. } = self.flights.remove(index);
        if is_undeliverable {
            self.stations[from].sender.counters.other_losses += 1;
            return Some(MediumOutput::Lost { port, frame, cause: LossCause::NoRoute });
        }
        Some(MediumOutput::Transmit { port, frame })
    }

    fn deadline(&self) -> Option<Instant> {
        let arrival = self.next_flight().map(|flight| self.flights[flight].at);
        let awaited = self.transmission.filter(|sent| self.stations[sent.from].sender.room_requested);
        let step = self.step.map(|(at, _)| at);
        arrival.into_iter().chain(step).chain(awaited.map(|sent| sent.until)).min()
    }
}

impl<F: Frame> Medium<F> for Ring<F> {
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        let woken = matches!(input, MediumInput::Wake);
        self.advance(now, woken);
        match input {
            MediumInput::Frame { port, frame } => self.send(now, port, frame),
            MediumInput::RequestRoom { port } => self.request_room(port),
            MediumInput::Wake => self.woken_at = now,
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        let output = self.pending.take().or_else(|| self.arrive());
        output.unwrap_or_else(|| MediumOutput::Idle { deadline: self.deadline() })
    }

    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.advance(now, false);
        self.stations[usize::from(port.0)].sender.has_room(length)
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        &self.stations[usize::from(port.0)].sender.counters
    }
}

//! The LLC stations of hosts: one for each, over which all its connections go, and the token among them.
//!
//! A station is `trunkline_llc`'s, byte for byte; with a token it is inside a `token::Ring`. Here it is set up as the plan
//! says, its messages are those of flows, and its frames are packets. It hands a frame to its host when the one before
//! has left: so what waits, waits where priorities count, and an urgent message waits for one packet at the most.
//!
//! Payload is virtual here as everywhere: a station carries the 32 octets of a message's header, and its packet says how
//! long it is. So messages may be shorter than their header, and longer than an Ethernet frame where the ring allows it.
//!
//! | module | what |
//! | --- | --- |
//! | [`mod@line`] | the line that the stations share, and what can be promised on it |
//! | [`refuse`] | what is not simulated, and promises that cannot be kept |

pub mod line;
pub mod refuse;

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_endpoint::{Endpoint as _, Input, Output, Peer, Port, Reason, To, Writable};
use trunkline_experiment::plan::Plan;
use trunkline_llc::admit;
use trunkline_llc::station::Config;
use trunkline_llc::token::{self, Ring};
use trunkline_llc::wire::{ALL, Address, HIGHEST, Kind, Pdu};
use trunkline_llc::{Command, Event, Station, Ticket};
use trunkline_run::ends::Figures;
use trunkline_run::llc;
use trunkline_run::message::{HEADER, Header};
use trunkline_units::{Instant, Span};

use crate::flow::messages::{Sending, Told};
use crate::frame::{Content, Kit, Packet};
use crate::network::topology::Topology;

/// The flow of the packets of stations: none.
pub const FLOW: u32 = u32::MAX;
/// Octets of an IEEE 802.1Q tag.
pub const TAG: u32 = 4;
/// Octets to which Ethernet pads a PDU, whatever stands before it.
const SMALLEST: u32 = 46;
/// How many windows for each station are waited for until all are in the ring.
const PATIENCE: u64 = 10;

/// The stations of a plan's hosts.
#[derive(Debug, Default)]
pub struct Stations {
    /// Of each host, its station.
    seats: Vec<Option<Box<Seat>>>,
    /// The hosts of the stations, the first that of number 1.
    hosts: Vec<u32>,
    /// How long it may take until all are in one ring, and whether they are.
    forms_within: Option<Span>,
    formed: bool,
    /// The longest delay of each connection, as far as it has a bound.
    bounds: BTreeMap<usize, Span>,
}

/// Where a station stands.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// Its host's interface.
    pub port: Port,
    /// The medium there, and its port.
    pub down: (u32, Port),
    /// Its place on the agenda.
    pub place: u32,
    /// The medium is Ethernet: frames have a tag, and are padded.
    pub ethernet: bool,
}

#[derive(Debug)]
struct Seat {
    number: u8,
    spot: Spot,
    end: End,
    /// Whose each message is whose end has not been told, by its ticket.
    owners: BTreeMap<Ticket, (u32, u32)>,
    /// SAPs in which messages may be taken.
    readable: Vec<u8>,
    taken: Vec<u8>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few stations")]
enum End {
    Plain(Station),
    Ring(Ring<Station>),
}

impl End {
    fn station(&self) -> &Station {
        match self {
            End::Plain(station) => station,
            End::Ring(ring) => ring.inner(),
        }
    }

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), trunkline_llc::Refusal> {
        match self {
            End::Plain(station) => station.handle(now, input),
            End::Ring(ring) => ring.handle(
                now,
                match input {
                    Input::Frame { port, peer, bytes, segment } => {
                        Input::Frame { port, peer, bytes, segment }
                    }
                    Input::Command(command) => Input::Command(token::Command::Inner(command)),
                    Input::Wake => Input::Wake,
                },
            ),
        }
    }

    fn poll(&mut self, now: Instant, ports: Writable<'_>, buffer: &mut [u8]) -> Output<token::Event<Event>> {
        match self {
            End::Ring(ring) => ring.poll(now, ports, buffer),
            End::Plain(station) => match station.poll(now, ports, buffer) {
                Output::Transmit(transmit) => Output::Transmit(transmit),
                Output::Event(event) => Output::Event(token::Event::Inner(event)),
                Output::Idle(idle) => Output::Idle(idle),
            },
        }
    }
}

/// What a station says.
#[derive(Debug)]
pub enum Saying {
    /// Hand this to its host.
    Send(Packet),
    /// A flow's message has come.
    Heard {
        /// Which flow's.
        flow: u32,
        /// It.
        header: Header,
    },
    /// A flow's message has come to its end.
    Told {
        /// Which flow's.
        flow: u32,
        /// Of which of its ends.
        side: u32,
        /// What became of it.
        told: Told,
    },
    /// From now on all stations are in one ring.
    Formed,
    /// Nothing more now.
    Idle {
        /// When to wake it.
        deadline: Option<Instant>,
        /// Whether it would go on if there were room.
        blocked: bool,
    },
}

impl Stations {
    /// The stations of a plan, in a ring if there is a token; `spots` are their hosts and where they stand, in the order of
    /// their numbers.
    pub fn new(plan: &Plan, topology: &Topology<'_>, spots: &[(u32, Spot)]) -> Stations {
        let mut stations = Stations::default();
        let network = line::promised(plan, topology);
        for ((number, name), &(at, spot)) in (1u8..).zip(llc::stations(plan)).zip(spots) {
            let mut station = Station::new(Config::new(Port(0), number));
            for (sap, options) in llc::saps(plan, name) {
                let opened =
                    station.handle(Instant::ZERO, Input::Command(Command::Open { sap, options: &options }));
                debug_assert_eq!(opened, Ok(()), "the language lets nothing else through");
            }
            let end = match &network {
                None => End::Plain(station),
                Some((network, _)) => {
                    let mut ring = Ring::new(station, number, network.options.clone());
                    let joins = ring.handle(Instant::ZERO, Input::Command(token::Command::Join));
                    debug_assert_eq!(joins, Ok(()), "a ring refuses nothing");
                    End::Ring(ring)
                }
            };
            let seats = &mut stations.seats;
            seats.resize_with(seats.len().max(at as usize + 1), || None);
            seats[at as usize] = Some(Box::new(Seat {
                number,
                spot,
                end,
                owners: BTreeMap::new(),
                readable: Vec::new(),
                taken: Vec::new(),
            }));
            stations.hosts.push(at);
        }
        if let Some((network, promises)) = &network {
            let (options, count) = (&network.options, stations.hosts.len() as u64);
            let window = options.every + options.window();
            stations.forms_within = Some(options.listen(u8::MAX) + window * (count + 2) * PATIENCE);
            if line::is_sure(plan)
                && let Ok(promises) = promises
                && let Ok(delays) = admit::delays(network, &promises.promises)
            {
                for (connection, delay) in promises.connections.iter().zip(delays) {
                    let bound = stations.bounds.entry(*connection).or_default();
                    *bound = delay.max(*bound);
                }
            }
        }
        stations
    }

    /// The hosts that have one.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// How long a flow has to wait for the ring at the most; none: it has not to wait.
    pub fn forms_within(&self) -> Option<Span> {
        self.forms_within.filter(|_| !self.formed)
    }

    /// Where the station of a host stands.
    pub fn spot(&self, host: u32) -> Option<Spot> {
        self.seats.get(host as usize)?.as_ref().map(|seat| seat.spot)
    }

    fn seat(&mut self, host: u32) -> Option<&mut Seat> {
        self.seats.get_mut(host as usize)?.as_deref_mut()
    }

    /// Takes a flow's message to send.
    pub fn send(&mut self, now: Instant, host: u32, (flow, side): (u32, u32), sending: &Sending) {
        let station = self.hosts.iter().position(|other| *other == sending.to).map_or(0, |at| at as u8 + 1);
        let Some(seat) = self.seat(host) else { return };
        let mut bytes = [0; HEADER];
        sending.header.encode(flow, &mut bytes);
        let mut ticket = Ticket::default();
        let sent = seat.end.handle(
            now,
            Input::Command(Command::Send {
                sap: sending.sap,
                to: Address { sap: sending.sap, station },
                bytes: &bytes,
                priority: Some(sending.priority),
                ticket: &mut ticket,
            }),
        );
        debug_assert_eq!(sent, Ok(()), "each connection has its room");
        if sent.is_ok() {
            seat.owners.insert(ticket, (flow, side));
        }
    }

    /// Takes a packet that has come to a host.
    pub fn arrive(&mut self, now: Instant, host: u32, from: u8, bytes: &[u8]) {
        let Some(seat) = self.seat(host) else { return };
        let frame = Input::Frame { port: Port(0), peer: Peer::new(&[from]), bytes, segment: None };
        // Only a command can be refused.
        let _ = seat.end.handle(now, frame);
    }

    /// A station's deadline may have come.
    pub fn wake(&mut self, now: Instant, host: u32) {
        if let Some(seat) = self.seat(host) {
            let _ = seat.end.handle(now, Input::Wake);
        }
    }

    /// What the station of a host has to say. It sends only if its host has `room`.
    pub fn poll(&mut self, now: Instant, host: u32, room: bool, kit: &mut Kit) -> Saying {
        let count = self.hosts.len();
        loop {
            let Some(seat) = self.seats.get_mut(host as usize).and_then(Option::as_deref_mut) else {
                return Saying::Idle { deadline: None, blocked: false };
            };
            if let Some((flow, header)) = seat.take(now) {
                return Saying::Heard { flow, header };
            }
            let ports = if room { Writable::ALL } else { Writable::NONE };
            match seat.end.poll(now, ports, &mut kit.scratch) {
                Output::Transmit(transmit) => {
                    let bytes = Arc::from(&kit.scratch[..transmit.length]);
                    let (number, ethernet) = (seat.number, seat.spot.ethernet);
                    let to = transmit.peer.as_bytes().first().copied().unwrap_or(ALL);
                    return Saying::Send(self.packet((number, to), ethernet, bytes));
                }
                Output::Event(token::Event::Inner(Event::Sent { ticket, outcome, tries, took, .. })) => {
                    let Some((flow, side)) = seat.owners.remove(&ticket) else { continue };
                    return Saying::Told { flow, side, told: Told { outcome, tries, took } };
                }
                Output::Event(token::Event::Inner(Event::Readable { sap })) => seat.readable.push(sap),
                Output::Event(token::Event::Joined { stations })
                    if usize::from(stations) == count && !self.formed =>
                {
                    self.formed = true;
                    return Saying::Formed;
                }
                Output::Event(_) => {}
                Output::Idle(idle) => {
                    let blocked = matches!(idle.reason, Reason::Port(_));
                    return Saying::Idle { deadline: idle.deadline, blocked };
                }
            }
        }
    }

    fn packet(&self, (from, to): (u8, u8), ethernet: bool, bytes: Arc<[u8]>) -> Packet {
        let pdu = length(&bytes);
        let length = if ethernet { pdu.max(SMALLEST) + TAG } else { pdu };
        let host = match to.checked_sub(1).and_then(|at| self.hosts.get(usize::from(at))) {
            Some(host) if to != ALL => To::Station(*host),
            _ => To::All,
        };
        Packet::new(Content::Pdu { from, to, bytes }, length, FLOW, 0, host, false)
    }

    /// What a connection's sender is told of the token: how long it took to come round to its station, in us, and the bound
    /// of the delay, if there is one.
    pub fn figures(&self, connection: usize, host: u32) -> Figures {
        let mut figures = Figures::new();
        if let Some(Seat { end: End::Ring(ring), .. }) =
            self.seats.get(host as usize).and_then(Option::as_deref)
        {
            let counted = ring.statistics();
            let mean = counted.rotation_sum.as_s() * 1e6 / counted.rotations.max(1) as f64;
            figures.insert("token_rotation_mean_us".into(), mean);
            figures.insert("token_rotation_max_us".into(), counted.rotation_max.as_s() * 1e6);
        }
        if let Some(bound) = self.bounds.get(&connection) {
            figures.insert("token_bound_us".into(), bound.as_s() * 1e6);
        }
        figures
    }

    /// What the station of a host counted, by name.
    pub fn counts(&self, host: u32) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let Some(seat) = self.seats.get(host as usize).and_then(Option::as_deref) else { return counts };
        let station = seat.end.station().statistics();
        counts.extend(station.named().map(|(name, count)| (format!("llc.{name}"), count)));
        for (priority, level) in station.levels.iter().enumerate() {
            counts.insert(format!("llc.{priority}.sent"), level.sent);
            counts.insert(format!("llc.{priority}.received"), level.received);
        }
        if let End::Ring(ring) = &seat.end {
            let ring = ring.statistics();
            let named = [
                ("stations", u64::from(ring.stations)),
                ("received", ring.tokens),
                ("frames", ring.frames),
                ("withheld", ring.withheld),
                ("resent", ring.resent),
                ("claimed", ring.claimed),
                ("doubled", ring.doubled),
                ("died", ring.died),
                ("windows", ring.windows),
                ("admitted", ring.admitted),
            ];
            counts.extend(named.map(|(name, count)| (format!("token.{name}"), count)));
        }
        counts
    }
}

impl Seat {
    /// The next message that has come, if there is one.
    fn take(&mut self, now: Instant) -> Option<(u32, Header)> {
        while let Some(sap) = self.readable.last().copied() {
            let mut taken = None;
            let take = Command::Take { sap, into: &mut self.taken, taken: &mut taken };
            // Refused if it were closed, and none is.
            let _ = self.end.handle(now, Input::Command(take));
            match taken.and_then(|_| Header::peek(&self.taken)) {
                Some(message) => return Some(message),
                None => self.readable.pop(),
            };
        }
        None
    }
}

/// How long the PDU of a station's frame is, payload included that is not there.
pub fn length(frame: &[u8]) -> u32 {
    let there = frame.len().saturating_sub(1) as u32;
    let Some((0..=HIGHEST, pdu)) = frame.split_first() else { return there };
    match Pdu::read(pdu) {
        Ok(Pdu { kind: Kind::Ui | Kind::Ac(_), response: false, information, .. }) => {
            Header::peek(information).map_or(there, |(_, header)| there + header.length - HEADER as u32)
        }
        _ => there,
    }
}

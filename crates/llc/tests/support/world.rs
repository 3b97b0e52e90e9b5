//! Stations, a clock, and a path that loses, doubles and delays, all from a seed.

use std::collections::BTreeMap;

use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_llc::api::Received;
use trunkline_llc::wire::ALL;
use trunkline_llc::{Command, Config, Event, Refusal, Station};
use trunkline_units::{Instant, Seed, Span, Stream};

/// What happens to frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub delay: Span,
    /// Up to this more, so frames overtake each other; zero: they keep their order.
    pub jitter: Span,
    pub loss: f64,
    pub double: f64,
}

/// Stations 1, 2, …
pub struct Network {
    pub now: Instant,
    pub path: Path,
    pub stations: Vec<Checked<Station>>,
    pub events: Vec<(u8, Event)>,
    /// Frames that were sent: by whom, to whom.
    pub sent: Vec<(u8, u8, Vec<u8>)>,
    flights: BTreeMap<(Instant, u64), (u8, u8, Vec<u8>)>,
    flown: u64,
    deadlines: Vec<Option<Instant>>,
    chance: Stream,
    buffer: Vec<u8>,
}

impl Network {
    pub fn new(seed: u64, path: Path, stations: u8) -> Network {
        let station = |number| Checked::new(Station::new(Config::new(Port(0), number)));
        Network {
            now: Instant::ZERO,
            path,
            stations: (1..=stations).map(station).collect(),
            events: Vec::new(),
            sent: Vec::new(),
            flights: BTreeMap::new(),
            flown: 0,
            deadlines: vec![None; stations.into()],
            chance: Seed(seed).stream("path"),
            buffer: vec![0; MAX_BATCH],
        }
    }

    /// A station loses all memory.
    pub fn restart(&mut self, config: Config) {
        let at = usize::from(config.station - 1);
        self.stations[at] = Checked::new(Station::new(config));
        self.deadlines[at] = None;
    }

    pub fn command(&mut self, station: u8, command: Command<'_>) -> Result<(), Refusal> {
        self.stations[usize::from(station - 1)].handle(self.now, Input::Command(command))
    }

    pub fn take(&mut self, station: u8, sap: u8) -> Option<(Received, Vec<u8>)> {
        let (mut into, mut taken) = (Vec::new(), None);
        self.command(station, Command::Take { sap, into: &mut into, taken: &mut taken }).expect("it is open");
        taken.map(|received| (received, into))
    }

    /// Runs for a while.
    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            self.drain();
            let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
            let next = flight.into_iter().chain(self.deadlines.iter().flatten().copied()).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flights.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (from, to, bytes) = entry.remove();
                let frame =
                    Input::Frame { port: Port(0), peer: Peer::new(&[from]), bytes: &bytes, segment: None };
                let station = &mut self.stations[usize::from(to - 1)];
                station.handle(self.now, frame).expect("only commands are refused");
            }
            for (station, deadline) in self.stations.iter_mut().zip(&self.deadlines) {
                if deadline.is_some_and(|at| at <= self.now) {
                    station.handle(self.now, Input::Wake).expect("only commands are refused");
                }
            }
        }
        self.now = end;
    }

    fn drain(&mut self) {
        for at in 0..self.stations.len() {
            let from = at as u8 + 1;
            loop {
                match self.stations[at].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Event(event) => self.events.push((from, event)),
                    Output::Idle(idle) => {
                        self.deadlines[at] = idle.deadline;
                        break;
                    }
                    Output::Transmit(t) => {
                        let bytes = self.buffer[..t.length].to_vec();
                        for frame in Segment::frames(t.segment, &bytes) {
                            self.carry(from, t.peer.as_bytes()[0], frame);
                        }
                    }
                }
            }
        }
    }

    fn carry(&mut self, from: u8, to: u8, frame: &[u8]) {
        self.sent.push((from, to, frame.to_vec()));
        for other in 1..=self.stations.len() as u8 {
            if other == from || to != ALL && to != other || self.chance.chance(self.path.loss) {
                continue;
            }
            for _ in 0..1 + u8::from(self.chance.chance(self.path.double)) {
                let jitter = Span::from_ps(self.chance.below(self.path.jitter.as_ps() + 1));
                self.flown += 1;
                let arrival = (self.now + self.path.delay + jitter, self.flown);
                self.flights.insert(arrival, (from, other, frame.to_vec()));
            }
        }
    }
}

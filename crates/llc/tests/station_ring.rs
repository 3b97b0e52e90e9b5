//! Stations inside rings: acknowledged messages and their answers go by the token, the most urgent first.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_llc::api::Received;
use trunkline_llc::station::{Config, Station};
use trunkline_llc::token::{Command as Asked, Event as Told, HasUrgency, Options as RingOptions, Ring};
use trunkline_llc::wire::ALL;
use trunkline_llc::{Address, Command, Event, Options, Outcome, Ticket};
use trunkline_units::{Instant, Span};

/// Stations on a line that carries a frame in 10 µs, one after the other.
struct Line {
    now: Instant,
    rings: Vec<Ring<Station>>,
    flying: VecDeque<(u8, u8, Vec<u8>)>,
    ends: Vec<(u8, Outcome)>,
}

impl Line {
    fn new(stations: u8) -> Line {
        let ring = |number| {
            let mut ring =
                Ring::new(Station::new(Config::new(Port(0), number)), number, RingOptions::default());
            let options = Options { queue: 200, ..Options::acknowledged(3) };
            ring.handle(Instant::ZERO, Input::Command(Asked::Join)).unwrap();
            let open = Command::Open { sap: 4, options: &options };
            ring.handle(Instant::ZERO, Input::Command(Asked::Inner(open))).unwrap();
            ring
        };
        let rings = (1..=stations).map(ring).collect();
        Line { now: Instant::ZERO, rings, flying: VecDeque::new(), ends: Vec::new() }
    }

    fn run(&mut self, until: Instant) {
        let mut buffer = vec![0; MAX_BATCH];
        while self.now < until {
            let mut next = until;
            for at in 0..self.rings.len() {
                loop {
                    match self.rings[at].poll(self.now, Writable::ALL, &mut buffer) {
                        Output::Event(Told::Inner(Event::Sent { outcome, .. })) => {
                            self.ends.push((at as u8 + 1, outcome));
                        }
                        Output::Event(_) => {}
                        Output::Transmit(transmit) => {
                            let [to] = *transmit.peer.as_bytes() else { panic!("a station") };
                            self.flying.push_back((at as u8 + 1, to, buffer[..transmit.length].to_vec()));
                        }
                        Output::Idle(idle) => {
                            next = idle.deadline.map_or(next, |deadline| next.min(deadline));
                            break;
                        }
                    }
                }
            }
            if let Some((from, to, bytes)) = self.flying.pop_front() {
                self.now += Span::from_us(10);
                for at in 0..self.rings.len() {
                    let number = at as u8 + 1;
                    if number != from && (to == ALL || to == number) {
                        let peer = &Peer::new(&[from]);
                        let frame = Input::Frame { port: Port(0), peer: *peer, bytes: &bytes, segment: None };
                        self.rings[at].handle(self.now, frame).unwrap();
                    }
                }
            } else {
                self.now = next.max(self.now);
            }
            for ring in &mut self.rings {
                ring.handle(self.now, Input::Wake).unwrap();
            }
        }
    }

    fn send(&mut self, from: u8, to: u8, priority: u8, bytes: &[u8]) {
        let to = Address { sap: 4, station: to };
        let (ticket, priority) = (&mut Ticket::default(), Some(priority));
        let send = Command::Send { sap: 4, to, bytes, priority, ticket };
        self.rings[usize::from(from) - 1].handle(self.now, Input::Command(Asked::Inner(send))).unwrap();
    }

    fn take(&mut self, station: u8) -> Option<(Received, Vec<u8>)> {
        let (mut into, mut taken) = (Vec::new(), None);
        let take = Command::Take { sap: 4, into: &mut into, taken: &mut taken };
        self.rings[usize::from(station) - 1].handle(self.now, Input::Command(Asked::Inner(take))).unwrap();
        taken.map(|received| (received, into))
    }
}

#[test]
fn acknowledged_messages_and_their_answers_go_by_the_token() {
    let mut line = Line::new(4);
    line.run(Instant::ZERO + Span::from_ms(1_500));
    assert!(line.rings.iter().all(|ring| ring.members().count() == 4));
    for number in 0..100u8 {
        line.send(1, 3, number % 8, &[number]);
    }
    line.run(Instant::ZERO + Span::from_ms(2_500));
    assert_eq!(line.ends, [(1, Outcome::Done); 100]);
    let mut got: Vec<u8> = std::iter::from_fn(|| line.take(3)).take(64).map(|(_, bytes)| bytes[0]).collect();
    line.run(Instant::ZERO + Span::from_ms(3_500));
    got.extend(std::iter::from_fn(|| line.take(3)).map(|(_, bytes)| bytes[0]));
    got.sort_unstable();
    assert_eq!(got, (0..100).collect::<Vec<u8>>());
}

#[test]
fn the_urgency_of_a_station_is_that_of_the_frame_that_leaves_next() {
    let mut station = Station::new(Config::new(Port(0), 1));
    let options = Options::default();
    station.handle(Instant::ZERO, Input::Command(Command::Open { sap: 4, options: &options })).unwrap();
    let mut buffer = vec![0; MAX_BATCH];
    assert_eq!(station.urgency(), None);
    for priority in [3, 0, 7, 3, 5] {
        let to = Address { sap: 4, station: 2 };
        let ticket = &mut Ticket::default();
        let send = Command::Send { sap: 4, to, bytes: b"m", priority: Some(priority), ticket };
        station.handle(Instant::ZERO, Input::Command(send)).unwrap();
    }
    let mut left = Vec::new();
    loop {
        let said = station.urgency();
        match station.poll(Instant::ZERO, Writable::ALL, &mut buffer) {
            Output::Transmit(_) => {
                assert_eq!(said, Some(buffer[0]));
                left.push(buffer[0]);
            }
            Output::Event(_) => {}
            Output::Idle(_) => break,
        }
    }
    assert_eq!(left, [7, 5, 3, 3, 0]);
    assert_eq!(station.urgency(), None);
}

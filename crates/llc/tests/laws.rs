//! What every endpoint keeps, [`Station`] keeps; it costs nothing when idle, and no allocation a message in the long run.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/hand.rs"]
mod hand;
#[allow(dead_code, reason = "others need the rest")]
#[path = "support/life.rs"]
mod life;

use hand::at;
use trunkline_endpoint::laws::{check_laws, idle_costs_nothing};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_llc::{Command, Config, Options, Station, Ticket};
use trunkline_units::{Instant, Seed};

#[test]
fn a_station_keeps_the_laws() {
    for seed in 0..60 {
        check_laws(
            Seed(seed),
            || Station::new(life::config()),
            |station, now, draw| {
                for _ in 0..draw.below(4) {
                    let octets = (draw.bits() as u32).to_be_bytes();
                    match draw.chance(0.5) {
                        true => life::command(station, now, [octets[0], octets[1], octets[2]]),
                        false => life::frame(station, now, octets),
                    }
                }
            },
        );
    }
}

fn count_allocations(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).count_total
}

/// Two stations with an acknowledging SAP 2 each.
struct Two {
    stations: [Station; 2],
    buffer: Vec<u8>,
    into: Vec<u8>,
}

impl Two {
    fn new() -> Two {
        let mut stations = [1, 2].map(|number| Station::new(Config::new(Port(0), number)));
        for station in &mut stations {
            let options = Options { crc: true, ..Options::acknowledged(5) };
            let open = Command::Open { sap: 2, options: &options };
            station.handle(Instant::ZERO, Input::Command(open)).unwrap();
        }
        Two { stations, buffer: vec![0; MAX_BATCH], into: Vec::new() }
    }

    /// A message from the first to the second, and its acknowledgement.
    fn exchange(&mut self, bytes: &[u8]) {
        let now = Instant::ZERO;
        let (to, mut ticket) = (at(2, 2), Ticket::default());
        let send = Command::Send { sap: 2, to, bytes, priority: None, ticket: &mut ticket };
        self.stations[0].handle(now, Input::Command(send)).unwrap();
        for from in [0, 1, 0, 1] {
            let [a, b] = &mut self.stations;
            let (from, other, number) = if from == 0 { (a, b, 1) } else { (b, a, 2) };
            loop {
                match from.poll(now, Writable::ALL, &mut self.buffer) {
                    Output::Idle(_) => break,
                    Output::Event(_) => {}
                    Output::Transmit(t) => {
                        let (peer, bytes) = (Peer::new(&[number]), &self.buffer[..t.length]);
                        other
                            .handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None })
                            .unwrap();
                    }
                }
            }
        }
        let mut taken = None;
        let take = Command::Take { sap: 2, into: &mut self.into, taken: &mut taken };
        self.stations[1].handle(now, Input::Command(take)).unwrap();
        assert!(taken.is_some() && self.into == bytes);
    }
}

#[test]
fn an_idle_station_costs_nothing() {
    let mut two = Two::new();
    two.exchange(b"before");
    let mut ticket = Ticket::default();
    let send = Command::Send { sap: 2, to: at(9, 2), bytes: b"x", priority: None, ticket: &mut ticket };
    two.stations[0].handle(Instant::ZERO, Input::Command(send)).unwrap();
    for station in &mut two.stations {
        idle_costs_nothing(station, Instant::ZERO, count_allocations);
    }
}

#[test]
fn messages_are_exchanged_without_an_allocation() {
    let mut two = Two::new();
    let message = [7; 100];
    (0..200).for_each(|_| two.exchange(&message));
    // What is noted of timeouts that did not come is cleared away now and then.
    let allocations = count_allocations(&mut || (0..1000).for_each(|_| two.exchange(&message)));
    assert_eq!(allocations, 0);
}

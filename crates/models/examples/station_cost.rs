//! Sends packets out of a station and into it: a load to count instructions of.
//!
//! ```sh
//! cargo build --release -p trunkline-models --example station_cost
//! for n in 10000 20000; do valgrind --tool=callgrind target/release/examples/station_cost free $n; done
//! ```
//! The difference of the two counts, over 10,000: one packet out and one in, polled until idle.

use trunkline_endpoint::{Destination, Frame, Port};
use trunkline_models::host::{Costs, Output, Station};
use trunkline_units::{Instant, Span};

/// As large as a simulator's.
#[derive(Clone)]
struct Packet([u64; 8]);

impl Frame for Packet {
    #[inline]
    fn length(&self) -> u32 {
        self.0[0] as u32
    }
    #[inline]
    fn destination(&self) -> Destination {
        Destination::Station(self.0[1] as u32)
    }
    fn damage(&mut self) {
        self.0[2] = 1;
    }
    #[inline]
    fn is_damaged(&self) -> bool {
        self.0[2] != 0
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let count: u64 = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let costs = match words.get(1).map(String::as_str) {
        Some("costly") => {
            let us = Span::from_us;
            Costs { cpu_packet: us(50), cpu_byte: Span::from_ns(10), interrupt: us(20), ..Costs::default() }
        }
        _ => Costs::default(),
    };
    let mut station = Station::new(7, costs, &[None]);
    let (mut now, mut done) = (Instant::ZERO, 0u64);
    for serial in 0..count {
        let frame = Packet([1_500, 7, 0, serial, 0, 0, 0, 0]);
        done += u64::from(station.send(now, Port(0), frame.clone()).is_err());
        drain(&mut station, &mut now, &mut done);
        station.receive(now, Port(0), frame);
        drain(&mut station, &mut now, &mut done);
        now += Span::from_us(1);
    }
    println!("{done} of {}", 2 * count);
}

fn drain(station: &mut Station<Packet>, now: &mut Instant, done: &mut u64) {
    loop {
        match station.poll(*now) {
            Output::Idle { deadline: None } => return,
            Output::Idle { deadline: Some(at) } => {
                *now = at;
                station.wake(at);
            }
            _ => *done += 1,
        }
    }
}

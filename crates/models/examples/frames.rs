//! Sends so many frames through a link, one at a time, so that instructions a frame can be counted as a
//! slope: `valgrind --tool=callgrind target/release/examples/frames link 1000`, then 11000.

use trunkline_endpoint::{Bound, Destination, Frame, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::media::{LineOptions, Link, Switch, SwitchOptions};
use trunkline_units::{Instant, Rate, Seed, Span};

/// As small as a simulator's handle.
#[derive(Clone)]
struct Handle {
    length: u32,
    to: u32,
}

impl Frame for Handle {
    fn length(&self) -> u32 {
        self.length
    }
    fn destination(&self) -> Destination {
        Destination::Station(self.to)
    }
    fn damage(&mut self) {}
    fn is_damaged(&self) -> bool {
        false
    }
}

/// Sends frames. Waits for arrivals while `backlog` frames are in flight.
fn drive(medium: &mut impl Medium<Handle>, frames: u64, backlog: u64) -> u64 {
    let (mut now, mut received) = (Instant::ZERO, 0);
    for sent in 0..frames {
        medium.handle(now, MediumInput::Frame { port: Port(0), frame: Handle { length: 512, to: 1 } });
        loop {
            match medium.poll(now) {
                MediumOutput::Transmit { .. } => received += 1,
                MediumOutput::Idle { deadline: Some(at) } if sent + 1 - received >= backlog => {
                    now = at;
                    medium.handle(now, MediumInput::Wake);
                }
                MediumOutput::Idle { .. } => break,
                _ => {}
            }
        }
    }
    received
}

fn main() {
    let mut words = std::env::args().skip(1);
    let medium = words.next().unwrap_or_default();
    let frames = words.next().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let received = match medium.as_str() {
        "link" => {
            let options = LineOptions {
                rate: Rate::from_bps(1_000_000_000),
                delay: Span::from_us(5),
                bound: Bound::frames(100),
                ..LineOptions::default()
            };
            let streams = [Seed(1).stream("a"), Seed(1).stream("b")];
            drive(&mut Link::new([options.clone(), options], streams), frames, 20)
        }
        "switch" => {
            let mut switch = Switch::new(2, SwitchOptions::default());
            switch.add_station(1, Port(1));
            drive(&mut switch, frames, 1)
        }
        _ => 0,
    };
    println!("{medium}: {received} of {frames} received");
}

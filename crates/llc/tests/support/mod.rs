//! What the tests of the token share.
#![allow(dead_code)]

pub mod bus;
pub mod queue;

use trunkline_llc::admit::{Network, Station, TrafficContract};
use trunkline_llc::token::{Line, Options};
use trunkline_units::{Rate, Span};

/// 10 Mb/s Ethernet that all hear, 2 µs from a frame's end to what a station does about it.
pub fn slow() -> Line {
    Line::ethernet(Rate::from_bps(10_000_000), Span::from_us(2))
}

/// Stations that are programs: 100 Mb/s, 50 µs.
pub fn programs() -> Line {
    Line::ethernet(Rate::from_bps(100_000_000), Span::from_us(50))
}

/// As tight as the line allows, with windows more often than usual so that tests are short.
pub fn brisk(line: &Line, highest: u8, largest: usize) -> Options {
    Options { window_interval: Span::from_ms(20), ..Options::for_line(line, highest, largest) }
}

/// A ring for NASA's requirement (AirNET, 1990), stations 1 to `n`.
pub fn nasa(n: u8) -> Network {
    let options = Options { invited_per_window: 1, ..Options::for_line(&slow(), 64, 104) };
    let stations = (1..=n).map(|number| Station { number, max_background_octets: None }).collect();
    Network { line: slow(), options, stations, lost: 0, dead: 0 }
}

/// What each of its stations sends: 100 messages a second of 100 octets, each delivered in 10 ms.
pub fn contracts(n: u8) -> Vec<TrafficContract> {
    let (period, deadline) = (Span::from_ms(10), Span::from_ms(10));
    (1..=n).map(|station| TrafficContract { station, priority: 6, octets: 100, period, deadline }).collect()
}

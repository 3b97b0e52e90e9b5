//! Synthetic traffic: interfaces of switches with ten series each.
//!
//! Of ten interfaces four are busy, three receive only broadcasts, three are down. Busy traffic is the sum of sixteen
//! on-off sources per direction with Pareto-distributed times (shape 1.4: bursts at every time scale), up to a
//! gigabit. The mean packet size drifts. One gauge is a random walk (temperature in tenths of a degree), the other
//! the port state.

use trunkline_counters::counter::{RawValue, ValueKind};
use trunkline_units::{Seed, random::Stream};

/// Series of an interface: octets and packets in and out, multicast in and out, discards, errors, status,
/// temperature.
pub const SERIES: [(&str, ValueKind); 10] = [
    ("ifHCInOctets", ValueKind::Counter64),
    ("ifHCOutOctets", ValueKind::Counter64),
    ("ifHCInUcastPkts", ValueKind::Counter64),
    ("ifHCOutUcastPkts", ValueKind::Counter64),
    ("ifHCInMulticastPkts", ValueKind::Counter64),
    ("ifHCOutMulticastPkts", ValueKind::Counter64),
    ("ifOutDiscards", ValueKind::Counter32),
    ("ifInErrors", ValueKind::Counter32),
    ("ifOperStatus", ValueKind::Gauge),
    ("entSensorValue", ValueKind::Gauge),
];

/// The load of an interface.
#[derive(Clone, Copy, PartialEq)]
pub enum Load {
    Busy,
    Quiet,
    Down,
}

/// An interface and its counters.
pub struct Interface {
    pub load: Load,
    stream: Stream,
    /// Per direction and source: whether it is on, the remaining seconds, and its rate in octets per second.
    sources: Vec<(bool, f64, f64)>,
    size: [f64; 2],
    values: [u64; SERIES.len()],
}

fn pareto(stream: &mut Stream, least: f64) -> f64 {
    (least * stream.unit().powf(-1.0 / 1.4)).min(40_000.0)
}

impl Interface {
    pub fn new(number: usize) -> Interface {
        let mut stream = Seed(1996).stream(&format!("interface {number}"));
        let load = match number % 10 {
            0..4 => Load::Busy,
            4..7 => Load::Quiet,
            _ => Load::Down,
        };
        let one =
            |stream: &mut Stream| (stream.chance(0.3), pareto(stream, 2.0), 125e6 / 16.0 * stream.unit());
        let sources = (0..32).map(|_| one(&mut stream)).collect();
        let mut values = [0; SERIES.len()];
        if load != Load::Down {
            values.iter_mut().take(8).for_each(|v| *v = stream.below(1 << 31));
        }
        values[8] = if load == Load::Down { 2 } else { 1 };
        values[9] = 350 + stream.below(100);
        Interface { load, stream, sources, size: [700.0, 300.0], values }
    }

    /// Returns the values `seconds` later.
    pub fn next(&mut self, seconds: f64) -> [RawValue; SERIES.len()] {
        let (stream, values) = (&mut self.stream, &mut self.values);
        for direction in 0..2 {
            let mut octets = 0.0;
            if self.load == Load::Busy {
                for (on, left, rate) in &mut self.sources[16 * direction..16 * direction + 16] {
                    let mut time = seconds;
                    while time > 0.0 {
                        let part = left.min(time);
                        octets += if *on { part * *rate } else { 0.0 };
                        (time, *left) = (time - part, *left - part);
                        if *left <= 0.0 {
                            *on = !*on;
                            *left = pareto(stream, if *on { 1.0 } else { 3.0 });
                        }
                    }
                }
            }
            let broadcasts = if self.load == Load::Down { 0 } else { stream.below(12) };
            let size = &mut self.size[direction];
            *size = (*size + 20.0 * (stream.unit() - 0.5)).clamp(90.0, 1_400.0);
            let noise = 1.0 + 0.02 * (stream.unit() - 0.5);
            values[direction] += octets as u64 + 90 * broadcasts;
            values[2 + direction] += (octets / *size * noise) as u64;
            values[4 + direction] += broadcasts;
        }
        if self.load == Load::Busy {
            values[6] += if stream.chance(0.02) { stream.below(200) } else { 0 };
            values[7] += u64::from(stream.chance(0.001));
        }
        if self.load != Load::Down {
            values[9] = values[9].saturating_add_signed(stream.below(3) as i64 - 1).clamp(200, 700);
        }
        values.map(RawValue)
    }
}

//! Station table: the port of each station.

use trunkline_endpoint::Port;

/// Limit of station numbers, which keeps the table small: three bytes, the lower part of an address.
const STATIONS: u32 = 1 << 24;

/// No port.
const NO_PORT: u16 = u16::MAX;

/// Ports by station number.
#[derive(Clone, Debug, Default)]
pub struct Table(Vec<u16>);

impl Table {
    /// # Panics
    /// If the number has more than 24 bits.
    pub fn set(&mut self, station: u32, port: Port) {
        assert!(station < STATIONS, "a station's number has 24 bits");
        let at = station as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, NO_PORT);
        }
        self.0[at] = port.0;
    }

    #[inline]
    pub fn get(&self, station: u32) -> Option<Port> {
        self.0.get(station as usize).filter(|port| **port != NO_PORT).map(|port| Port(*port))
    }
}

//! Addresses and headers of simulated hosts, for captures. IPv4, UDP and TCP headers come from `etherparse`.
//!
//! | layer | octets | source |
//! | --- | --- | --- |
//! | Ethernet II | 14 | DIX 2.0 |
//! | LLC/SNAP | 8 | RFC 1483, section 4.1 |
//!
//! Station n is 10.(n>>16).(n>>8).n and 02:00:00:00:00:n, with all four octets of n in the MAC address; group g is
//! 239.(g>>16).(g>>8).g and the MAC address that RFC 1112, section 6.4 gives to that.

use trunkline_endpoint::Destination;

/// Octets of an Ethernet II header.
pub const ETHERNET: usize = 14;

/// Returns the IPv4 address of a station: 24 bits of its number.
pub const fn station_ip(station: u32) -> [u8; 4] {
    let [_, b, c, d] = station.to_be_bytes();
    [10, b, c, d]
}

/// Returns the IPv4 address of a group: 24 bits of its number.
pub const fn group_ip(group: u32) -> [u8; 4] {
    let [_, b, c, d] = group.to_be_bytes();
    [239, b, c, d]
}

/// Returns the IPv4 address of a destination.
pub const fn ip(to: Destination) -> [u8; 4] {
    match to {
        Destination::Station(station) => station_ip(station),
        Destination::Group(group) => group_ip(group),
        Destination::All => [255; 4],
    }
}

/// Returns the MAC address of a station.
pub const fn station_mac(station: u32) -> [u8; 6] {
    let [a, b, c, d] = station.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// Returns the MAC address of a group: 23 bits of its IPv4 address (RFC 1112, section 6.4).
pub const fn group_mac(group: u32) -> [u8; 6] {
    let [_, b, c, d] = group.to_be_bytes();
    [0x01, 0x00, 0x5E, b & 0x7F, c, d]
}

/// Returns the MAC address of a destination.
pub const fn mac(to: Destination) -> [u8; 6] {
    match to {
        Destination::Station(station) => station_mac(station),
        Destination::Group(group) => group_mac(group),
        Destination::All => [0xFF; 6],
    }
}

/// Appends the LLC/SNAP header of a packet with this EtherType in AAL5 (RFC 1483, section 4.1).
pub fn llc_snap(ethertype: [u8; 2], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xAA, 0xAA, 0x03, 0x00, 0x00, 0x00]);
    out.extend_from_slice(&ethertype);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(station_ip(0x01_0203), [10, 1, 2, 3]);
        assert_eq!(station_mac(259), [2, 0, 0, 0, 1, 3]);
        assert_eq!(group_ip(7), [239, 0, 0, 7]);
        assert_eq!(group_mac(0xFF_0001), [0x01, 0x00, 0x5E, 0x7F, 0, 1], "23 bits of the address");
        assert_eq!((ip(Destination::All), mac(Destination::All)), ([255; 4], [255; 6]));
    }
}

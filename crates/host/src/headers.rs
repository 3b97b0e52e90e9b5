//! Headers of simulated packets, as octets: for traces. Each function appends to what is there already; lengths and
//! checksums are filled.
//!
//! | layer | octets | source |
//! | --- | --- | --- |
//! | Ethernet II | 14 | DIX 2.0 |
//! | LLC/SNAP | 8 | RFC 1483, section 4.1 |
//! | IPv4 | 20 | RFC 791 |
//! | UDP | 8 | RFC 768 |
//! | TCP | 20 and options | RFC 793; the caller's |
//!
//! Station n is 10.(n>>16).(n>>8).n and 02:00:00:00:00:n, with all four octets of n in the MAC address; group g is
//! 239.(g>>16).(g>>8).g and the MAC address that RFC 1112, section 6.4 gives to that.

use trunkline_endpoint::To;

/// Octets of an Ethernet II header.
pub const ETHERNET: usize = 14;
/// Octets of LLC/SNAP before a routed packet.
pub const LLC_SNAP: usize = 8;
/// Octets of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Octets of a UDP header.
pub const UDP: usize = 8;
/// Octets of a TCP header without options.
pub const TCP: usize = 20;
/// IPv4's protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// IPv4's protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;

/// The IPv4 address of a station: 24 bits of its number.
pub const fn station_ip(station: u32) -> [u8; 4] {
    let [_, b, c, d] = station.to_be_bytes();
    [10, b, c, d]
}

/// The IPv4 address of a group: 24 bits of its number.
pub const fn group_ip(group: u32) -> [u8; 4] {
    let [_, b, c, d] = group.to_be_bytes();
    [239, b, c, d]
}

/// The IPv4 address of whom a frame is for.
pub const fn ip(to: To) -> [u8; 4] {
    match to {
        To::Station(station) => station_ip(station),
        To::Group(group) => group_ip(group),
        To::All => [255; 4],
    }
}

/// The MAC address of a station.
pub const fn station_mac(station: u32) -> [u8; 6] {
    let [a, b, c, d] = station.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// The MAC address of a group: 23 bits of its IPv4 address (RFC 1112, section 6.4).
pub const fn group_mac(group: u32) -> [u8; 6] {
    let [_, b, c, d] = group.to_be_bytes();
    [0x01, 0x00, 0x5E, b & 0x7F, c, d]
}

/// The MAC address of whom a frame is for.
pub const fn mac(to: To) -> [u8; 6] {
    match to {
        To::Station(station) => station_mac(station),
        To::Group(group) => group_mac(group),
        To::All => [0xFF; 6],
    }
}

/// Appends the Ethernet II header of an IPv4 packet.
pub fn ethernet(from: u32, to: To, out: &mut Vec<u8>) {
    out.extend_from_slice(&mac(to));
    out.extend_from_slice(&station_mac(from));
    out.extend_from_slice(&[0x08, 0x00]);
}

/// Appends LLC/SNAP of an IPv4 packet, as it stands before it in AAL5 (RFC 1483, section 4.1).
pub fn llc_snap(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xAA, 0xAA, 0x03, 0x00, 0x00, 0x00, 0x08, 0x00]);
}

/// What an IPv4 header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// The station that sends.
    pub from: u32,
    /// For whom.
    pub to: To,
    /// [`PROTOCOL_UDP`] or [`PROTOCOL_TCP`].
    pub protocol: u8,
    /// The sender's number of the packet.
    pub identification: u16,
    /// Hops that it may make.
    pub ttl: u8,
    /// Priority, 0 to 7: the precedence bits of the type of service.
    pub priority: u8,
}

/// Appends the header of a packet with `payload` octets behind it; past 65,515 the length field says 65,535. It may
/// not be fragmented, as simulated packets never are.
pub fn ipv4(header: &Ipv4, payload: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let length = u16::try_from(IPV4 + payload).unwrap_or(u16::MAX);
    out.extend_from_slice(&[0x45, header.priority << 5]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&header.identification.to_be_bytes());
    out.extend_from_slice(&[0x40, 0x00, header.ttl, header.protocol, 0, 0]);
    out.extend_from_slice(&station_ip(header.from));
    out.extend_from_slice(&ip(header.to));
    let sum = checksum(add(0, &out[start..]));
    out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Appends a UDP datagram: header, checksum, `payload`. At most 65,507 octets of payload fit; past that its length
/// field says 65,535.
pub fn udp(from: u32, to: To, ports: (u16, u16), payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let length = u16::try_from(UDP + payload.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&ports.0.to_be_bytes());
    out.extend_from_slice(&ports.1.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(payload);
    let sum = match checksum(add(pseudo(from, to, PROTOCOL_UDP, length), &out[start..])) {
        0 => 0xFFFF, // 0 means: none was made (RFC 768)
        sum => sum,
    };
    out[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
}

/// Fills the checksum of the TCP segment `segment`, header and payload; one that is shorter than a header is left
/// alone.
pub fn tcp_checksum(from: u32, to: To, segment: &mut [u8]) {
    if segment.len() < TCP {
        return;
    }
    segment[16..18].fill(0);
    let length = u16::try_from(segment.len()).unwrap_or(u16::MAX);
    let sum = checksum(add(pseudo(from, to, PROTOCOL_TCP, length), segment));
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// Appends a whole IPv4 packet with the TCP segment `segment` in it, whose checksum it fills. `header` says
/// everything but the protocol.
pub fn tcp_packet(header: &Ipv4, segment: &[u8], out: &mut Vec<u8>) {
    ipv4(&Ipv4 { protocol: PROTOCOL_TCP, ..*header }, segment.len(), out);
    let start = out.len();
    out.extend_from_slice(segment);
    tcp_checksum(header.from, header.to, &mut out[start..]);
}

/// Appends a whole IPv4 packet with a UDP datagram in it. `header` says everything but the protocol.
pub fn udp_packet(header: &Ipv4, ports: (u16, u16), payload: &[u8], out: &mut Vec<u8>) {
    ipv4(&Ipv4 { protocol: PROTOCOL_UDP, ..*header }, UDP + payload.len(), out);
    udp(header.from, header.to, ports, payload, out);
}

/// The sum of the pseudo header (RFC 768, RFC 793).
fn pseudo(from: u32, to: To, protocol: u8, length: u16) -> u64 {
    add(add(u64::from(protocol) + u64::from(length), &station_ip(from)), &ip(to))
}

/// Adds 16-bit words, the last padded with a zero octet (RFC 1071).
fn add(sum: u64, octets: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    sum + octets.chunks(2).map(word).sum::<u64>()
}

/// The one's complement of the one's complement sum.
fn checksum(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Ipv4 = Ipv4 {
        from: 0x0102_0304,
        to: To::Group(0x00FE_0007),
        protocol: 0,
        identification: 0xBEEF,
        ttl: 64,
        priority: 5,
    };

    /// Words that add up to all ones, as RFC 1071 has the receiver check.
    fn sums_up(parts: &[&[u8]]) -> bool {
        let mut sum: u32 = 0;
        for part in parts {
            for pair in part.chunks(2) {
                sum += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
        }
        sum == 0xFFFF
    }

    #[test]
    fn the_checksum_is_rfc_1071_s() {
        // Its own example, section 3: the sum is ddf2.
        assert_eq!(checksum(add(0, &[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7])), !0xDDF2);
        assert_eq!(checksum(add(0, &[0xAB])), !0xAB00, "an odd octet is the upper one");
        assert_eq!(checksum(add(0, &vec![0xFF; 65_536])), 0);
    }

    #[test]
    fn addresses() {
        assert_eq!(station_ip(0x01_0203), [10, 1, 2, 3]);
        assert_eq!(station_mac(259), [2, 0, 0, 0, 1, 3]);
        assert_eq!(group_ip(7), [239, 0, 0, 7]);
        assert_eq!(group_mac(0xFF_0001), [0x01, 0x00, 0x5E, 0x7F, 0, 1], "23 bits of the address");
        assert_eq!((ip(To::All), mac(To::All)), ([255; 4], [255; 6]));
    }

    #[test]
    fn packets_are_whole() {
        for length in [0usize, 1, 2, 511, 1_472, 65_507] {
            let payload: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
            let mut out = vec![0xEE; 3]; // what stands there already is left alone
            ethernet(HEADER.from, HEADER.to, &mut out);
            udp_packet(&HEADER, (1_000, 2_000), &payload, &mut out);
            assert_eq!(out.len(), 3 + ETHERNET + IPV4 + UDP + length);
            let (head, packet) = out.split_at(3 + ETHERNET);
            assert_eq!(head[..9], [0xEE, 0xEE, 0xEE, 0x01, 0x00, 0x5E, 0x7E, 0x00, 0x07]);
            assert_eq!(head[15..], [0x08, 0x00]);
            let (ip, datagram) = packet.split_at(IPV4);
            assert!(sums_up(&[ip]));
            assert_eq!(ip[..2], [0x45, 5 << 5]);
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), packet.len());
            assert_eq!((ip[8], ip[9], &ip[12..]), (64, 17, &[10, 2, 3, 4, 239, 254, 0, 7][..]));
            assert_eq!(datagram[..4], [0x03, 0xE8, 0x07, 0xD0]);
            let size = (datagram.len() as u16).to_be_bytes();
            assert_eq!(datagram[4..6], size);
            assert!(sums_up(&[&ip[12..], &[0, 17], &size, datagram]));
            assert_eq!(datagram[8..], payload);
        }
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        // Two octets of payload make the sum whatever they like.
        let mut zeros = 0;
        for word in 0..=u16::MAX {
            let mut out = Vec::new();
            udp(1, To::Station(2), (5, 6), &word.to_be_bytes(), &mut out);
            assert_ne!(out[6..8], [0, 0]);
            zeros += u32::from(out[6..8] == [0xFF, 0xFF]);
        }
        assert_eq!(zeros, 1, "one of them would have been");
    }

    #[test]
    fn tcp_segments_are_checked() {
        let mut segment = vec![0x5A; TCP + 101];
        segment[12] = 0x50;
        let mut out = Vec::new();
        llc_snap(&mut out);
        tcp_packet(&HEADER, &segment, &mut out);
        assert_eq!(out[..LLC_SNAP], [0xAA, 0xAA, 3, 0, 0, 0, 8, 0]);
        let (ip, found) = out[LLC_SNAP..].split_at(IPV4);
        assert!(sums_up(&[ip]) && ip[9] == 6);
        assert!(sums_up(&[&ip[12..], &[0, 6], &(found.len() as u16).to_be_bytes(), found]));
        assert_eq!((&found[..16], &found[18..]), (&segment[..16], &segment[18..]));
        tcp_checksum(1, To::All, &mut [1, 2, 3]); // too short for one: nothing happens
    }
}

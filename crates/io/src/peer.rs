//! Socket addresses as peers of endpoints.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use trunkline_endpoint::Peer;

/// Encodes a socket address as a [`Peer`]: IPv4 address and port in 6 bytes, or IPv6 address, port and scope in 22,
/// big endian.
pub fn peer_of(address: SocketAddr) -> Peer {
    let mut bytes = [0; 22];
    let (ip, rest) = bytes.split_at_mut(if address.is_ipv4() { 4 } else { 16 });
    rest[..2].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            ip.copy_from_slice(&v4.ip().octets());
            Peer::new(&bytes[..6])
        }
        SocketAddr::V6(v6) => {
            ip.copy_from_slice(&v6.ip().octets());
            rest[2..].copy_from_slice(&v6.scope_id().to_be_bytes());
            Peer::new(&bytes)
        }
    }
}

/// Decodes a peer made by [`peer_of`]; `None` for any other.
pub fn address_of(peer: Peer) -> Option<SocketAddr> {
    match *peer.as_bytes() {
        [a, b, c, d, p, q] => Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])).into()),
        [ref ip @ .., p, q, s, t, u, v] => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
            let scope = u32::from_be_bytes([s, t, u, v]);
            Some(SocketAddrV6::new(ip, u16::from_be_bytes([p, q]), 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_round_trips_through_peer() {
        for text in ["127.0.0.1:3450", "[::1]:65535", "[fe80::1%7]:1", "[::ffff:10.0.0.1]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(peer_of(address)), Some(address), "{text}");
        }
        for foreign in [&b""[..], b"b", &[2, 0, 0, 0, 0, 0, 1], &[0; 23]] {
            assert_eq!(address_of(Peer::new(foreign)), None);
        }
    }
}

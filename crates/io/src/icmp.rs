//! ICMP echo requests and replies (RFC 792, RFC 4443), through an unprivileged datagram socket if permitted, else a
//! raw one.

use std::io;
use std::net::UdpSocket;

use socket2::{Domain, Protocol, Socket, Type};

/// Length of an echo message: the header and as much payload.
const LENGTH: usize = 16;

/// Encodes and decodes echo messages of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    v6: bool,
    /// Identifier on a raw socket, which receives the replies to every process.
    identifier: Option<u16>,
}

/// Opens a non-blocking socket for echo messages.
///
/// # Errors
/// If neither `net.ipv4.ping_group_range` nor `CAP_NET_RAW` permits it.
pub fn open(v6: bool) -> io::Result<(UdpSocket, Echo)> {
    let (domain, protocol) =
        if v6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
    let (socket, identifier) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
        Ok(socket) => (socket, None),
        Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, Some(std::process::id() as u16)),
    };
    socket.set_nonblocking(true)?;
    // Not a UDP socket, but it sends and receives in the same way.
    Ok((UdpSocket::from(socket), Echo { v6, identifier }))
}

impl Echo {
    /// Returns whether the socket uses IPv6.
    pub fn is_v6(self) -> bool {
        self.v6
    }

    /// Encodes an echo request with this sequence number.
    pub fn request(self, number: u16) -> [u8; LENGTH] {
        let mut message = [0; LENGTH];
        message[0] = if self.v6 { 128 } else { 8 };
        message[4..6].copy_from_slice(&self.identifier.unwrap_or(0).to_be_bytes());
        message[6..8].copy_from_slice(&number.to_be_bytes());
        if !self.v6 {
            // The kernel computes the IPv6 checksum, which covers addresses.
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    /// Returns the sequence number if the datagram is a reply to this socket.
    pub fn answer(self, datagram: &[u8]) -> Option<u16> {
        // A raw IPv4 socket also receives the IP header.
        let begin = match (self.identifier, self.v6) {
            (Some(_), false) => usize::from(datagram.first()? & 15) * 4,
            _ => 0,
        };
        let message = datagram.get(begin..)?;
        let [kind, 0, _, _, i, j, n, m, ..] = *message else { return None };
        let is_answer = kind == if self.v6 { 129 } else { 0 };
        let is_ours = self.identifier.is_none_or(|own| own == u16::from_be_bytes([i, j]));
        (is_answer && is_ours).then_some(u16::from_be_bytes([n, m]))
    }
}

/// Internet checksum (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let sum: u32 =
        message.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matching_replies_are_accepted() {
        for (v6, identifier) in [(false, None), (true, None), (false, Some(7)), (true, Some(7))] {
            let echo = Echo { v6, identifier };
            let request = echo.request(0x1234);
            let header = if identifier.is_some() && !v6 { [0x45; 20].to_vec() } else { Vec::new() };
            let answer = |message: &[u8]| echo.answer(&[&header[..], message].concat());
            assert_eq!(answer(&request), None, "a request is no answer");
            let mut message = request;
            message[0] = if v6 { 129 } else { 0 };
            assert_eq!(answer(&message), Some(0x1234));
            for cut in 0..8 {
                assert_eq!(answer(&message[..cut]), None);
            }
            message[5] ^= 1;
            assert_eq!(answer(&message).is_some(), identifier.is_none(), "a reply to another process");
        }
        assert_eq!(checksum(&Echo { v6: false, identifier: None }.request(3)), 0);
    }
}

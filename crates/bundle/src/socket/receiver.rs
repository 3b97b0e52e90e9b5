//! Receiving sockets for unicast, broadcast and multicast addresses.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use trunkline_io::{SocketError, socket};
use trunkline_units::Size;

/// Opens a socket that receives datagrams to an address, exclusively or shared.
pub(super) fn open_receiver(at: SocketAddrV4, interface: Ipv4Addr) -> Result<UdpSocket, SocketError> {
    match shared_interface(*at.ip(), interface) {
        Some(on) => socket::shared_receiver(at, on, &socket_options()),
        None => bind_exclusive(at),
    }
}

/// Returns whether an address is a broadcast or multicast address.
pub fn is_shared(ip: Ipv4Addr) -> bool {
    shared_interface(ip, Ipv4Addr::LOCALHOST).is_some()
}

/// Returns the local address of the interface for a broadcast or multicast address, or `None` for a unicast address.
pub(super) fn shared_interface(ip: Ipv4Addr, interface: Ipv4Addr) -> Option<Ipv4Addr> {
    match ip.is_multicast() || ip.is_broadcast() {
        true => Some(interface),
        false => socket::broadcast_on(ip),
    }
}

/// Opens a socket with exclusive use of its port.
pub(super) fn bind_exclusive(at: SocketAddrV4) -> Result<std::net::UdpSocket, SocketError> {
    socket::udp(at.into(), &socket_options())
}

/// Returns the socket options of the converter. The receive buffer covers pauses of the process: 4 MiB hold half a
/// second of 200,000 messages per second. The system may grant less (`net.core.rmem_max`).
pub(super) fn socket_options() -> socket::Options {
    socket::Options { receive_buffer: Some(Size::from_bytes(4 << 20)), ..socket::Options::default() }
}

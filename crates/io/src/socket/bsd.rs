//! The same for FreeBSD and macOS, as far as they have it; [`missing`](crate::platform::missing) names the rest.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use libc::c_int;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimestamp};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, SetSockOpt};
use socket2::Socket;

use super::{Control, set_options};

/// Whether a socket can be [disconnected](disconnect) and keeps its local address.
pub(crate) const CAN_DISCONNECT: bool = false;

fn unsupported(function: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{function} needs Linux"))
}

/// Fails: disconnecting would reset the local address.
pub(crate) fn disconnect(_socket: &UdpSocket) -> io::Result<()> {
    Err(unsupported("to disconnect a socket"))
}

/// Returns false: see [`bind_device`].
pub(crate) fn is_bound_to_device(_socket: &UdpSocket) -> bool {
    false
}

/// Does nothing: these systems deliver a group only from the interface on which the socket joined it.
pub(crate) fn bind_device(_socket: &Socket, _name: &str) -> io::Result<()> {
    Ok(())
}

/// Lets several sockets share a port; each receives every multicast or broadcast datagram.
pub(crate) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)
}

/// Does nothing for `false`: these systems deliver only groups that the socket has joined.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] for `true`.
pub fn set_multicast_all(_socket: &Socket, all: bool) -> io::Result<()> {
    if all { Err(unsupported("to receive groups that other sockets have joined")) } else { Ok(()) }
}

/// Selects the congestion control algorithm.
#[cfg(target_os = "freebsd")]
pub(crate) fn set_congestion(socket: &Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

/// Fails: the system has no choice.
#[cfg(not(target_os = "freebsd"))]
pub(crate) fn set_congestion(_socket: &Socket, _name: &str) -> io::Result<()> {
    Err(unsupported("to select the congestion control"))
}

/// Returns the name of the congestion control algorithm; `None` if the system does not report it.
#[cfg(target_os = "freebsd")]
pub fn congestion(stream: &std::net::TcpStream) -> Option<Vec<u8>> {
    socket2::SockRef::from(stream).tcp_congestion().ok()
}

/// Returns `None`: the system does not report the congestion control algorithm.
#[cfg(not(target_os = "freebsd"))]
pub fn congestion(_stream: &std::net::TcpStream) -> Option<Vec<u8>> {
    None
}

/// Does nothing: the receive buffer limits the window.
pub fn limit_window(_stream: &std::net::TcpStream, _bytes: u32) -> io::Result<()> {
    Ok(())
}

/// How much larger than a limited window the receive buffer must be.
pub const BUFFER_PER_WINDOW: u64 = 1;

/// Sets a buffer to `bytes`, or to half as often as the system refuses: unlike Linux it refuses more than its maximum.
pub(super) fn set_buffer(mut bytes: usize, set: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    const MIN: usize = 4096;
    while bytes > MIN {
        if set(bytes).is_ok() {
            return Ok(());
        }
        bytes /= 2;
    }
    set(bytes)
}

/// Makes the send buffer hold the longest datagram; by default these systems refuse one above 9,216 octets.
pub(super) fn allow_long_datagrams(socket: &Socket) -> io::Result<()> {
    set_buffer(128 << 10, |bytes| socket.set_send_buffer_size(bytes))
}

/// Waits for an event of a descriptor, at most `limit`.
#[cfg(target_os = "freebsd")]
pub(super) fn wait(descriptors: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<c_int, Errno> {
    nix::poll::ppoll(descriptors, limit.map(nix::sys::time::TimeSpec::from_duration), None)
}

/// Waits for an event of a descriptor, at most `limit`, rounded up to milliseconds.
#[cfg(not(target_os = "freebsd"))]
pub(super) fn wait(descriptors: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<c_int, Errno> {
    use nix::poll::{PollTimeout, poll};
    let ms = |limit: Duration| i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
    let timeout =
        limit.map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(ms(limit)).unwrap_or(PollTimeout::MAX));
    poll(descriptors, timeout)
}

/// Returns `None`: the system does not report it.
pub(super) fn dropped(_socket: &UdpSocket) -> Option<u64> {
    None
}

/// See [`super::allow_fragments`]; never knows the longest datagram.
pub(super) fn allow_fragments(socket: &UdpSocket, peer: SocketAddr) -> io::Result<Option<usize>> {
    set_fragmentation(socket, peer, 0)?;
    Ok(None)
}

/// See [`super::forbid_fragments`].
pub(super) fn forbid_fragments(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    set_fragmentation(socket, local, 1)
}

fn set_fragmentation(socket: &UdpSocket, address: SocketAddr, is_forbidden: c_int) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => set_options(socket, libc::IPPROTO_IP, &[(libc::IP_DONTFRAG, is_forbidden)]),
        SocketAddr::V6(_) => set_options(socket, libc::IPPROTO_IPV6, &[(libc::IPV6_DONTFRAG, is_forbidden)]),
    }
}

/// Returns false: the system does not segment batches of datagrams.
pub(crate) fn can_segment(_socket: &UdpSocket) -> bool {
    false
}

/// Returns `None`: see [`can_segment`].
pub(crate) fn segmentation(_length: &u16) -> Option<ControlMessage<'_>> {
    None
}

/// Returns false: the system does not coalesce received datagrams.
pub(crate) fn enable_coalescing(_socket: &UdpSocket) -> bool {
    false
}

/// Makes the system report when it received each datagram, to the microsecond.
pub(crate) fn enable_timestamps(socket: &UdpSocket) -> io::Result<()> {
    Ok(ReceiveTimestamp.set(socket, &true)?)
}

/// Makes the system report the TTL or hop limit of received datagrams, of IPv6 or IPv4.
#[cfg(target_os = "freebsd")]
pub(crate) fn report_ttl(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    use nix::sys::socket::sockopt::{Ipv4RecvTtl, Ipv6RecvHopLimit};
    let result = if v6 { Ipv6RecvHopLimit.set(socket, &true) } else { Ipv4RecvTtl.set(socket, &true) };
    Ok(result?)
}

/// Does nothing: the TTL of received datagrams is not read here.
#[cfg(not(target_os = "freebsd"))]
pub(crate) fn report_ttl(_socket: &UdpSocket, _v6: bool) -> io::Result<()> {
    Ok(())
}

/// Decodes a control message; `None` for others.
pub(crate) fn control(message: &ControlMessageOwned) -> Option<Control> {
    match *message {
        ControlMessageOwned::ScmTimestamp(at) => {
            let (s, us) = (u64::try_from(at.tv_sec()).ok()?, u64::try_from(at.tv_usec()).ok()?);
            Some(Control::Timestamp(Duration::from_secs(s) + Duration::from_micros(us)))
        }
        #[cfg(target_os = "freebsd")]
        ControlMessageOwned::Ipv4Ttl(ttl) => Some(Control::Ttl(ttl)),
        #[cfg(target_os = "freebsd")]
        ControlMessageOwned::Ipv6HopLimit(ttl) => u8::try_from(ttl).ok().map(Control::Ttl),
        _ => None,
    }
}

/// Prepares a socket of [`Ports`](crate::Ports): a receive buffer of `buffer` bytes, or as much of it as the system
/// grants.
pub(crate) fn prepare_port(socket: &UdpSocket, _local: SocketAddr, buffer: usize) -> io::Result<()> {
    set_buffer(buffer, |bytes| Ok(RcvBuf.set(socket, &bytes)?))
}

/// Returns `None`: refusals are not reported to unconnected sockets.
pub(crate) fn refused(_socket: &UdpSocket) -> Option<SocketAddr> {
    None
}

//! Socket options, control messages and waits of Linux.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::{c_int, socklen_t};
use nix::errno::Errno;
use nix::poll::{PollFd, ppoll};
use nix::sys::socket::sockopt::{
    IpRecvTos, Ipv4RecvErr, Ipv4RecvTtl, Ipv6RecvHopLimit, RcvBuf, RcvBufForce, ReceiveTimestampns,
    UdpGroSegment, UdpGsoSegment,
};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, GetSockOpt, MsgFlags, SetSockOpt, SockaddrIn, recvmsg,
};
use nix::sys::time::TimeSpec;
use socket2::{SockRef, Socket};

use super::{Control, set_option, set_options};

/// Whether a socket can be [disconnected](disconnect) and keeps its local address.
pub(crate) const CAN_DISCONNECT: bool = true;

/// Disconnects a UDP socket.
pub(crate) fn disconnect(socket: &UdpSocket) -> io::Result<()> {
    let no_address = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let length = size_of_val(&no_address) as socklen_t;
    // SAFETY: the descriptor is open, and the address is as long as is said.
    match unsafe { libc::connect(socket.as_raw_fd(), &raw const no_address, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether a socket is bound to a device.
pub(crate) fn is_bound_to_device(socket: &UdpSocket) -> bool {
    SockRef::from(socket).device().is_ok_and(|device| device.is_some())
}

/// Receives only from the interface of this name.
pub(crate) fn bind_device(socket: &Socket, name: &str) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

/// Lets several sockets share a port; each receives every multicast or broadcast datagram.
pub(crate) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_address(true)
}

/// Receives all groups that sockets of this machine have joined, or only those that this socket has.
///
/// # Errors
/// System errors; [`io::ErrorKind::Unsupported`] for all groups on other systems than Linux.
pub fn set_multicast_all(socket: &Socket, all: bool) -> io::Result<()> {
    socket.set_multicast_all_v4(all)
}

/// Selects the congestion control algorithm.
pub(crate) fn set_congestion(socket: &Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

/// Returns the name of the congestion control algorithm; `None` if the system does not report it.
pub fn congestion(stream: &std::net::TcpStream) -> Option<Vec<u8>> {
    SockRef::from(stream).tcp_congestion().ok()
}

/// Limits the receive window that a stream advertises, in bytes (`TCP_WINDOW_CLAMP`). The kernel forgets the limit when the share of
/// payload in what it has received changes, so it has to be set again.
///
/// # Errors
/// System errors.
pub fn limit_window(stream: &std::net::TcpStream, bytes: u32) -> io::Result<()> {
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &bytes)
}

/// How much larger than a limited window the receive buffer must be, as the kernel counts its bookkeeping too.
pub const BUFFER_PER_WINDOW: u64 = 2;

/// Sets a buffer to `bytes`; the kernel silently grants its maximum instead of more.
pub(super) fn set_buffer(bytes: usize, set: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    set(bytes)
}

/// Does nothing: the default send buffer holds the longest datagram.
pub(super) fn allow_long_datagrams(_socket: &Socket) -> io::Result<()> {
    Ok(())
}

/// Waits for an event of a descriptor, at most `limit`.
pub(super) fn wait(descriptors: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<c_int, Errno> {
    ppoll(descriptors, limit.map(TimeSpec::from_duration), None)
}

/// See [`super::dropped`].
pub(super) fn dropped(socket: &UdpSocket) -> Option<u64> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of these.
    const DROPS: usize = 8;
    let (info, length) = option_words::<{ DROPS + 1 }>(socket, libc::SOL_SOCKET, libc::SO_MEMINFO).ok()?;
    (length == size_of_val(&info)).then_some(u64::from(info[DROPS]))
}

/// See [`super::allow_fragments`].
pub(super) fn allow_fragments(socket: &UdpSocket, peer: SocketAddr) -> io::Result<Option<usize>> {
    use libc::{IP_MTU, IP_MTU_DISCOVER, IP_PMTUDISC_WANT, IPPROTO_IP};
    use libc::{IPPROTO_IPV6, IPV6_DONTFRAG, IPV6_MTU, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT};
    let (level, options, mtu, headers) = match peer {
        SocketAddr::V4(_) => (IPPROTO_IP, &[(IP_MTU_DISCOVER, IP_PMTUDISC_WANT)][..], IP_MTU, 28),
        SocketAddr::V6(_) => {
            (IPPROTO_IPV6, &[(IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT), (IPV6_DONTFRAG, 0)][..], IPV6_MTU, 48)
        }
    };
    set_options(socket, level, options)?;
    let mtu = option_words::<1>(socket, level, mtu).ok();
    Ok(mtu.map(|([mtu], _)| (mtu as usize).saturating_sub(headers)))
}

/// See [`super::forbid_fragments`].
pub(super) fn forbid_fragments(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    use libc::{IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, IPPROTO_IP};
    use libc::{IPPROTO_IPV6, IPV6_DONTFRAG, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE};
    match local {
        SocketAddr::V4(_) => set_options(socket, IPPROTO_IP, &[(IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)]),
        SocketAddr::V6(_) => {
            set_options(socket, IPPROTO_IPV6, &[(IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE), (IPV6_DONTFRAG, 1)])
        }
    }
}

/// Returns whether the system segments batches of datagrams (GSO).
pub(crate) fn can_segment(socket: &UdpSocket) -> bool {
    UdpGsoSegment.get(socket).is_ok()
}

/// Returns the control message that has a batch cut into datagrams of this length.
#[inline]
pub(crate) fn segmentation(length: &u16) -> Option<ControlMessage<'_>> {
    Some(ControlMessage::UdpGsoSegments(length))
}

/// Enables coalescing of received datagrams (GRO). Returns whether the system has it.
pub(crate) fn enable_coalescing(socket: &UdpSocket) -> bool {
    UdpGroSegment.set(socket, &true).is_ok()
}

/// Makes the system report when it received each datagram.
pub(crate) fn enable_timestamps(socket: &UdpSocket) -> io::Result<()> {
    Ok(ReceiveTimestampns.set(socket, &true)?)
}

/// Makes the system report the TTL or hop limit of received datagrams, of IPv6 or IPv4.
pub(crate) fn report_ttl(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    let result = if v6 { Ipv6RecvHopLimit.set(socket, &true) } else { Ipv4RecvTtl.set(socket, &true) };
    Ok(result?)
}

/// Decodes a control message; `None` for others.
#[inline]
pub(crate) fn control(message: &ControlMessageOwned) -> Option<Control> {
    match *message {
        ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok().map(Control::SegmentLength),
        ControlMessageOwned::ScmTimestampns(at) => Some(Control::Timestamp(at.into())),
        ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
            u8::try_from(ttl).ok().map(Control::Ttl)
        }
        _ => None,
    }
}

/// Prepares a socket of [`Ports`](crate::Ports): no control messages that nothing reads, which cost 10 to 20 % of
/// receiving; a receive buffer of `buffer` bytes, or the system's maximum; [reports of refusals](refused).
pub(crate) fn prepare_port(socket: &UdpSocket, local: SocketAddr, buffer: usize) -> io::Result<()> {
    ReceiveTimestampns.set(socket, &false)?;
    if local.is_ipv4() {
        IpRecvTos.set(socket, &false)?;
        Ipv4RecvErr.set(socket, &true)?;
    }
    if RcvBufForce.set(socket, &buffer).is_err() {
        RcvBuf.set(socket, &buffer)?;
    }
    Ok(())
}

/// Returns the destination of the oldest unreported datagram that was refused (ICMP port or host unreachable).
pub(crate) fn refused(socket: &UdpSocket) -> Option<SocketAddr> {
    let mut room = [0; 1];
    let mut control = [0; 256];
    loop {
        let mut slices = [IoSliceMut::new(&mut room)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags).ok()?;
        // Without the extended error, another error could be taken for a refusal.
        let refused = message.cmsgs().ok()?.any(|control| match control {
            ControlMessageOwned::Ipv4RecvErr(error, _) => error.ee_errno == Errno::ECONNREFUSED as u32,
            _ => false,
        });
        if let (true, Some(to)) = (refused, message.address) {
            return Some(SocketAddr::V4(to.into()));
        }
    }
}

/// Reads the first `N` words of a socket option; returns them, and how many bytes the system has written.
pub(crate) fn option_words<const N: usize>(
    socket: &impl AsRawFd,
    level: c_int,
    name: c_int,
) -> io::Result<([u32; N], usize)> {
    let mut words = [0; N];
    let mut length = size_of_val(&words) as socklen_t;
    let room = words.as_mut_ptr().cast();
    // SAFETY: the words are valid for `length` bytes; the kernel writes at most that many.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, room, &raw mut length) };
    Errno::result(done)?;
    Ok((words, length as usize))
}

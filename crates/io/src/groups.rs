//! [`Groups`]: datagrams to and from several multicast groups on one port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{MsgFlags, SockaddrIn, recvfrom};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use trunkline_units::Span;

use crate::socket;
use crate::usage::interface_of;

/// Receives several multicast groups on one port of one interface, and sends to any group from its own port. Several
/// processes may share the port; datagrams are looped back to receivers on this machine. Calls block unless they are
/// named `try`.
#[derive(Debug)]
pub struct Groups {
    receiver: UdpSocket,
    sender: UdpSocket,
    port: u16,
}

impl Groups {
    /// Joins `groups` on `port` of the interface with address `interface`, and sends from port `source`. `buffer` and
    /// `ahead` are the receive and send buffer sizes in bytes; 0: the system's default.
    ///
    /// # Errors
    /// `EADDRINUSE` if the port `source` is in use, `EADDRNOTAVAIL` if no interface has the address, or other system
    /// errors.
    pub fn open(
        interface: Ipv4Addr,
        port: u16,
        source: u16,
        groups: &[Ipv4Addr],
        buffer: usize,
        ahead: usize,
    ) -> io::Result<Groups> {
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            if buffer > 0 {
                socket.set_recv_buffer_size(buffer)?;
            }
            if ahead > 0 {
                // The kernel doubles the value.
                socket.set_send_buffer_size(ahead.div_ceil(2))?;
            }
            Ok::<_, io::Error>(socket)
        };
        let says = open()?;
        says.bind(&SocketAddrV4::new(interface, source).into())?;
        says.set_multicast_if_v4(&interface)?;
        says.set_multicast_ttl_v4(1)?;
        says.set_multicast_loop_v4(true)?;
        let hears = open()?;
        socket::share_port(&hears)?;
        let name = interface_of(interface.into()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // Receive neither from other interfaces nor groups that only other sockets have joined.
        socket::bind_device(&hears, &name)?;
        socket::set_multicast_all(&hears, false)?;
        hears.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
        for group in groups {
            hears.join_multicast_v4_n(group, &InterfaceIndexOrAddress::Address(interface))?;
        }
        Ok(Groups { receiver: hears.into(), sender: says.into(), port })
    }

    /// Sends a datagram to a group; blocks while the socket's buffer is full. Returns false if the interface queue is
    /// full and the datagram is lost.
    ///
    /// # Errors
    /// System errors.
    #[inline]
    pub fn send(&self, group: Ipv4Addr, bytes: &[u8]) -> io::Result<bool> {
        match self.sender.send_to(bytes, SocketAddr::from((group, self.port))) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Receives a datagram into `room`: its length and source port. A longer datagram is truncated. Blocks if
    /// `may_wait` is set.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none is queued.
    #[inline]
    pub fn receive(&self, room: &mut [u8], may_wait: bool) -> io::Result<(usize, u16)> {
        let fd = self.receiver.as_raw_fd();
        let (got, from) = match may_wait {
            true => recvfrom::<SockaddrIn>(fd, room)?,
            false => {
                let mut slices = [io::IoSliceMut::new(room)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let got = nix::sys::socket::recvmsg::<SockaddrIn>(fd, &mut slices, None, flags)?;
                (got.bytes, got.address)
            }
        };
        Ok((got, from.map_or(0, |from| from.port())))
    }

    /// Limits blocking receives: they return [`io::ErrorKind::WouldBlock`] after `limit`, rounded up to kernel ticks
    /// of some milliseconds.
    ///
    /// # Errors
    /// System errors.
    pub fn limit_waiting(&self, limit: Span) -> io::Result<()> {
        self.receiver.set_read_timeout(Some(limit.into()))
    }
}

impl AsFd for Groups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_joined_groups_with_source_ports() {
        let group = |last| Ipv4Addr::new(239, 77, 41, last);
        let open = |source, groups: &[Ipv4Addr]| {
            Groups::open(Ipv4Addr::LOCALHOST, 27_300, source, groups, 1 << 16, 0).unwrap()
        };
        let left = open(27_301, &[group(1), group(255)]);
        let right = open(27_302, &[group(2), group(255)]);
        let mut room = [0; 100];
        let mut heard = |by: &Groups| {
            by.limit_waiting(Span::from_s(5)).unwrap();
            let (got, from) = by.receive(&mut room, true).unwrap();
            (room[..got].to_vec(), from)
        };
        assert!(left.send(group(2), b"to two").unwrap());
        assert!(left.send(group(255), b"to all").unwrap());
        assert_eq!(heard(&right), (b"to two".to_vec(), 27_301));
        assert_eq!(heard(&right), (b"to all".to_vec(), 27_301));
        assert_eq!(heard(&left), (b"to all".to_vec(), 27_301));
        for by in [&left, &right] {
            assert_eq!(by.receive(&mut [0; 9], false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        let taken = Groups::open(Ipv4Addr::LOCALHOST, 27_300, 27_301, &[], 0, 0).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}

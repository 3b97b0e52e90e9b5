//! A UDP socket that reports when each datagram arrived and with which TTL, for measurements of delay.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvmsg};
use nix::sys::time::TimeSpec;
use socket2::SockRef;

use crate::datagrams::socket_addr;
use crate::socket::{self, Control, Options, SocketError, Step, at, is_icmp_error};

/// The TTL or hop limit of sent datagrams, so that the receiver can count the hops.
const TTL: u32 = 255;

/// A non-blocking UDP socket whose datagrams have arrival times of the kernel, where the system has them.
#[derive(Debug)]
pub struct TimestampedSocket {
    socket: UdpSocket,
    has_kernel_timestamps: bool,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Source address.
    pub from: SocketAddr,
    /// Octets of the payload, which begins the buffer.
    pub length: usize,
    /// TTL or hop limit, if the system reports it.
    pub ttl: Option<u8>,
    /// When the kernel received it, as wall-clock time since 1970, if the system reports it.
    pub unix: Option<Duration>,
}

impl TimestampedSocket {
    /// Binds a socket to `local`; port 0 selects a free port. It sends with a TTL of 255.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open(local: SocketAddr, options: &Options) -> Result<TimestampedSocket, SocketError> {
        let socket = socket::udp(local, options)?;
        let fail = at(Step::Open, local);
        socket.set_nonblocking(true).map_err(&fail)?;
        let options = SockRef::from(&socket);
        // An IPv6 socket may receive IPv4, too.
        let of_v4 = socket::report_ttl(&socket, false).and_then(|()| options.set_ttl_v4(TTL));
        let of_own = match local {
            SocketAddr::V4(_) => of_v4,
            SocketAddr::V6(_) => {
                socket::report_ttl(&socket, true).and_then(|()| options.set_unicast_hops_v6(TTL))
            }
        };
        of_own.map_err(&fail)?;
        let has_kernel_timestamps = socket::enable_timestamps(&socket).is_ok();
        Ok(TimestampedSocket { socket, has_kernel_timestamps })
    }

    /// Returns whether arrival times are those of the kernel. Otherwise the caller reads the clock later.
    pub fn has_kernel_timestamps(&self) -> bool {
        self.has_kernel_timestamps
    }

    /// Returns the socket, for sending.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sets the DSCP of sent datagrams, 0 to 63 (RFC 2474).
    ///
    /// # Errors
    /// System errors.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        let (socket, field) = (SockRef::from(&self.socket), u32::from(dscp) << 2);
        match self.socket.local_addr()? {
            SocketAddr::V4(_) => socket.set_tos_v4(field),
            SocketAddr::V6(_) => socket.set_tclass_v6(field),
        }
    }

    /// Receives a datagram into `buffer`; `None` if none is queued. An empty datagram is skipped, as is a network error of
    /// an earlier datagram.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            let mut slices = [IoSliceMut::new(buffer)];
            let mut control = cmsg_space!(TimeSpec, i32);
            let message = recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut slices,
                Some(&mut control),
                MsgFlags::MSG_DONTWAIT,
            );
            let message = match message {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) if is_icmp_error(&error.into()) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(from) = message.address.and_then(|address| socket_addr(&address)) else { continue };
            let mut received = Received { from, length: message.bytes, ttl: None, unix: None };
            for control in message.cmsgs().into_iter().flatten() {
                match socket::control(&control) {
                    Some(Control::Timestamp(at)) => received.unix = Some(at),
                    Some(Control::Ttl(ttl)) => received.ttl = Some(ttl),
                    _ => {}
                }
            }
            if received.length > 0 {
                return Ok(Some(received));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    #[test]
    fn arrivals_have_a_time_and_a_ttl() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = TimestampedSocket::open(local.parse().unwrap(), &Options::default()) else {
                continue; // no IPv6 here
            };
            let sender = TimestampedSocket::open(local.parse().unwrap(), &Options::default()).unwrap();
            sender.set_dscp(46).unwrap();
            let options = SockRef::from(sender.socket());
            let field = if local.starts_with('[') { options.tclass_v6() } else { options.tos_v4() };
            assert_eq!(field.unwrap(), 46 << 2);
            let to = receiver.socket().local_addr().unwrap();
            sender.socket().send_to(b"", to).unwrap();
            sender.socket().send_to(b"hello", to).unwrap();
            assert!(socket::readable(receiver.socket(), Span::from_s(10)).unwrap());
            let received = receiver.receive(&mut [0; 16]).unwrap().unwrap();
            assert_eq!((received.length, received.ttl), (5, Some(255)));
            assert_eq!(received.from, sender.socket().local_addr().unwrap());
            assert!(receiver.has_kernel_timestamps());
            assert!(received.unix.is_some());
            assert_eq!(receiver.receive(&mut [0; 16]).unwrap(), None);
        }
    }
}

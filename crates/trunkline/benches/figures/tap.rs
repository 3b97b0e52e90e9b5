//! Measures all tools alike: the times at which datagrams cross the loopback.
//!
//! A packet socket receives every datagram to one port, from any sender, with kernel timestamps. The kernel buffers
//! them until the run is over, so the tap wakes no thread during the measurement. It needs the privilege to open
//! packet sockets.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::Outcome;

/// An open tap.
pub struct Tap(Socket);

/// Room for waiting datagrams: each costs the kernel up to 4 KiB, and `cbr` sends 10,000 a second.
const ROOM: usize = 512 << 20;
/// Ethernet's type of IPv4.
const IPV4: u16 = 0x0800;
/// IP and UDP headers.
const HEADERS: u32 = 20 + 8;
/// A packet socket of datagrams sees no Ethernet header: IP begins at 0.
const PROTOCOL: u32 = 9;
const IP_LENGTH: u32 = 2;
const UDP_TO: u32 = 20 + 2;

/// A tap on nothing, else why there can be none.
///
/// The kernel begins to stamp some time after the first socket asks for it, and ends with the last. So one asks for
/// as long as the program runs.
pub fn hold() -> Outcome<Tap> {
    Tap::open(0, 0)
}

impl Tap {
    /// Opens a tap on IPv4 datagrams to this port with `size` bytes of payload, so that a greeting is not counted; 0: of any
    /// size.
    pub fn open(port: u16, size: u32) -> Outcome<Self> {
        let cannot = |e: &dyn std::fmt::Display| format!("a packet socket: {e}");
        // Bound to one type, a packet socket sees what is received and not what is sent: each datagram once.
        let ipv4 = Protocol::from(i32::from(IPV4.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(ipv4)).map_err(|e| cannot(&e))?;
        socket.attach_filter(&datagrams(port, size)).map_err(|e| cannot(&e))?;
        socket.set_nonblocking(true).map_err(|e| cannot(&e))?;
        setsockopt(&socket, sockopt::RcvBufForce, &ROOM).map_err(|e| cannot(&e))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| cannot(&e))?;
        let tap = Tap(socket);
        while tap.next()?.is_some() {} // what came before the filter
        Ok(tap)
    }

    /// What crossed since, as gaps in microseconds.
    ///
    /// Fails if fewer than three datagrams crossed (a tool did not send), or if time went backwards.
    pub fn gaps_us(self) -> Outcome<Vec<f64>> {
        let times = self.datagrams()?;
        if times.len() < 3 {
            return Err(format!("only {} datagrams crossed the loopback", times.len()));
        }
        let gaps: Vec<f64> = times.windows(2).map(|two| (two[1].0 - two[0].0) as f64 / 1e3).collect();
        let back = gaps.iter().any(|&gap| gap < 0.0);
        if back { Err("the tap: time went back".into()) } else { Ok(gaps) }
    }

    /// The datagrams that crossed since: nanoseconds by the wall clock, and bytes of payload.
    pub fn datagrams(self) -> Outcome<Vec<(i64, u32)>> {
        let mut crossed = Vec::new();
        while let Some(datagram) = self.next()? {
            crossed.push(datagram);
        }
        Ok(crossed)
    }

    /// The next waiting datagram.
    fn next(&self) -> Outcome<Option<(i64, u32)>> {
        let mut start = [0; 64];
        let mut iov = [IoSliceMut::new(&mut start)];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let got = match recvmsg::<()>(self.0.as_raw_fd(), &mut iov, Some(&mut control), MsgFlags::empty()) {
            Ok(got) => got,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(format!("the tap: {e}")),
        };
        let mut stamps = got.cmsgs().map_err(|e| format!("the tap: {e}"))?;
        let stamp = stamps.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(t) => Some(t),
            _ => None,
        });
        let stamp = stamp.ok_or("the tap gives no times")?;
        let at = stamp.tv_sec() * 1_000_000_000 + stamp.tv_nsec();
        let length = u32::from(u16::from_be_bytes([start[2], start[3]]));
        Ok(Some((at, length.saturating_sub(HEADERS))))
    }
}

/// Passes the first bytes of UDP packets to this port with this payload, 0: with any, and nothing else.
fn datagrams(port: u16, size: u32) -> [SockFilter; 8] {
    const UDP: u32 = 17;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let length_test = if size == 0 { JUMP_IF_AT_LEAST } else { JUMP_IF_EQUAL };
    [
        SockFilter::new(LOAD_BYTE, 0, 0, PROTOCOL),
        SockFilter::new(JUMP_IF_EQUAL, 0, 5, UDP),
        SockFilter::new(LOAD_HALF, 0, 0, IP_LENGTH),
        SockFilter::new(length_test, 0, 3, size + HEADERS),
        SockFilter::new(LOAD_HALF, 0, 0, UDP_TO),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, port.into()),
        SockFilter::new(RETURN, 0, 0, 64),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

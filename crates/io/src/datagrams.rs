//! A UDP socket shared by threads: blocking calls, batches, and a way to wake a blocked receiver.
//!
//! One system call sends a batch by segmentation offload (GSO) or receives a batch that the kernel coalesced (GRO).
//! No other per-packet features (timestamps, destination addresses) are enabled, so a single datagram costs as much
//! as on a plain socket.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, recv, recvmsg, sendmsg,
};
use trunkline_endpoint::{MAX_SEGMENTS, Segment};
use trunkline_units::{Seed, Span, Stream};

use crate::socket::{self, Control, Options, SocketError, is_icmp_error};

/// Recommended buffer size for [`Datagrams::receive`]: the largest coalesced batch.
pub const BUFFER_SIZE: usize = 1 << 16;

/// Limit of blocking calls where the socket cannot send to itself.
const UNWAKEABLE_TIMEOUT: Span = Span::from_ms(4);

/// A UDP socket shared by threads. Each thread may send, receive, and [`wake`](Datagrams::wake) blocked receivers.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    /// Address at which the socket reaches itself.
    wake_address: SocketAddr,
    /// The peers it has been connected to, in order, and the index of the current one plus 1; 0: not connected.
    peers: [OnceLock<SocketAddr>; MAX_CONNECTS],
    connected: AtomicUsize,
    /// Whether fragmentation is forbidden.
    unfragmented: AtomicBool,
    /// Socket that receives from all other peers while this one is connected, if any.
    unconnected: Mutex<Option<Arc<UdpSocket>>>,
    /// Maximum frames of a batch.
    max_segments: AtomicUsize,
    /// Maximum frame length of a batch that the system may be able to segment.
    max_segment_length: AtomicUsize,
    /// Consecutive long datagrams received, until coalescing is enabled; then [`COALESCING`].
    long_datagrams: AtomicUsize,
    /// Whether the kernel reports when it received a datagram.
    timestamps: AtomicBool,
}

/// Maximum number of times the socket is connected; a socket that is woken more often has several peers.
const MAX_CONNECTS: usize = 8;

/// Consecutive datagrams, and their minimum length in bytes, that count as a flow.
const FLOW_DATAGRAMS: usize = 4;
const FLOW_LENGTH: usize = 1000;
/// Marks that the kernel coalesces datagrams.
const COALESCING: usize = usize::MAX;

/// A received batch: datagrams of equal length from one peer; the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Source address.
    pub from: SocketAddr,
    /// Total length in bytes.
    pub length: usize,
    /// Length of each datagram.
    pub stride: usize,
    /// When the kernel received it, as wall-clock time since 1970, if [timestamps](Datagrams::enable_timestamps) are
    /// enabled.
    pub timestamp: Option<Duration>,
}

impl Received {
    /// Returns the segment of a batch; `None` for a single datagram.
    pub fn segment(&self) -> Option<Segment> {
        Segment::of(self.stride, self.length)
    }
}

impl Datagrams {
    /// Binds a socket to `local`. Calls block unless the socket is made non-blocking.
    ///
    /// # Errors
    /// System errors, with the address.
    pub fn bind(local: SocketAddr, options: &Options) -> Result<Datagrams, SocketError> {
        let socket = match local.port() {
            0 => socket::udp_to_connect(local, options)?,
            _ => socket::udp(local, options)?,
        };
        let failed = socket::at(socket::Step::Open, local);
        let local = socket.local_addr().map_err(&failed)?;
        let wake_address = match local {
            SocketAddr::V4(at) if at.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, at.port()).into(),
            SocketAddr::V6(at) if at.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, at.port()).into(),
            specified => specified,
        };
        let max_segments = if socket::can_segment(&socket) { MAX_SEGMENTS } else { 1 };
        let datagrams = Datagrams {
            socket,
            local,
            wake_address,
            peers: Default::default(),
            connected: AtomicUsize::new(0),
            unfragmented: AtomicBool::new(false),
            unconnected: Mutex::default(),
            max_segments: AtomicUsize::new(max_segments),
            max_segment_length: AtomicUsize::new(usize::MAX),
            long_datagrams: AtomicUsize::new(0),
            timestamps: AtomicBool::new(false),
        };
        // If loopback is down, a blocked receiver cannot be woken; then no call blocks for long.
        datagrams.wake();
        if recv(datagrams.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT).is_err() {
            socket::limit_blocking(&datagrams.socket, UNWAKEABLE_TIMEOUT).map_err(failed)?;
        }
        Ok(datagrams)
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Enables coalescing for good once long datagrams arrive in a flow. Coalescing costs short round trips 5 %.
    #[inline]
    fn update_coalescing(&self, length: usize) {
        let long = self.long_datagrams.load(Ordering::Relaxed);
        if long == COALESCING || length < FLOW_LENGTH && long == 0 {
            return;
        }
        let next = match long + 1 {
            _ if length < FLOW_LENGTH => 0,
            FLOW_DATAGRAMS if socket::enable_coalescing(&self.socket) => COALESCING,
            more => more.min(FLOW_DATAGRAMS),
        };
        self.long_datagrams.store(next, Ordering::Relaxed);
    }

    /// Makes the kernel report when it received each datagram. That costs a few percent of receiving.
    ///
    /// # Errors
    /// If the system does not support this.
    pub fn enable_timestamps(&self) -> io::Result<()> {
        socket::enable_timestamps(&self.socket)?;
        self.timestamps.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Forbids fragmentation and ignores the path MTU cache: datagrams longer than the interface MTU are refused.
    /// Used for path MTU discovery.
    ///
    /// # Errors
    /// If the system does not support this.
    pub fn forbid_fragments(&self) -> io::Result<()> {
        self.unfragmented.store(true, Ordering::Relaxed);
        socket::forbid_fragments(&self.socket, self.local)
    }

    /// Connects the socket to `to`, the only peer. The kernel then skips route and address lookups, which saves 5 %
    /// of a round trip of short datagrams. Lasts until [`wake`](Datagrams::wake), because only an unconnected socket
    /// can receive from itself. IPv4 only. Returns whether the socket is connected.
    ///
    /// No thread may call [wake](Datagrams::wake) during this call.
    pub fn connect(&self, to: SocketAddr) -> bool {
        self.connect_after(to, || Ok(()))
    }

    /// As [`connect`](Datagrams::connect), for a socket that must also hear other peers: until
    /// [`wake`](Datagrams::wake) they are received on a second, [unconnected socket](Datagrams::unconnected_socket),
    /// which a thread must [receive](Datagrams::receive_unconnected) from. Returns whether the socket is connected.
    pub fn connect_with_unconnected(&self, to: SocketAddr) -> bool {
        self.connect_after(to, || {
            let unconnected = socket::udp_sharing_port(&self.socket, self.local, &Options::default())
                .map_err(|error| error.cause)?;
            unconnected.set_nonblocking(true)?;
            if self.unfragmented.load(Ordering::Relaxed) {
                socket::forbid_fragments(&unconnected, self.local)?;
            }
            *self.unconnected.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(unconnected));
            Ok(())
        })
    }

    /// Connects the socket if that can be undone: on Linux an IPv6 socket keeps the local address of its last peer,
    /// and a socket bound to a device forgets the device.
    ///
    /// Datagrams of other peers that are already queued are attributed to the peer; a forged source address could do
    /// the same.
    fn connect_after(&self, to: SocketAddr, prepare: impl FnOnce() -> io::Result<()>) -> bool {
        let free = self.peers.iter().position(|peer| peer.get().is_none());
        let Some(at) = free.filter(|_| self.connected.load(Ordering::Relaxed) == 0) else { return false };
        if !socket::CAN_DISCONNECT || !self.local.is_ipv4() || socket::is_bound_to_device(&self.socket) {
            return false;
        }
        let connected = prepare().and_then(|()| self.socket.connect(to)).is_ok();
        if connected && self.peers[at].set(to).is_ok() {
            self.connected.store(at + 1, Ordering::Relaxed);
            return true;
        }
        let _ = socket::disconnect(&self.socket);
        self.close_unconnected();
        false
    }

    /// Returns the connected peer.
    #[inline]
    fn peer(&self) -> Option<SocketAddr> {
        let at = self.connected.load(Ordering::Relaxed).checked_sub(1)?;
        self.peers[at].get().copied()
    }

    /// Returns the socket that receives from all other peers while this one is
    /// [connected](Datagrams::connect_with_unconnected).
    pub fn unconnected_socket(&self) -> Option<Arc<UdpSocket>> {
        self.unconnected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the unconnected socket; a thread that still waits on it receives nothing more.
    fn close_unconnected(&self) {
        let Some(unconnected) = self.unconnected.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        // The discard port sends nothing (RFC 863).
        let nobody = if self.wake_address.port() == 9 { 10 } else { 9 };
        let _ = unconnected.connect((self.wake_address.ip(), nobody));
    }

    /// Receives one datagram from the unconnected socket into `room`; `None` if none is queued.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive_unconnected(unconnected: &UdpSocket, room: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            match unconnected.recv_from(room) {
                Ok((length, from)) => {
                    return Ok(Some(Received { from, length, stride: length, timestamp: None }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_icmp_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Unblocks a thread in [`receive`](Datagrams::receive) with an empty datagram to itself.
    pub fn wake(&self) {
        if self.connected.swap(0, Ordering::Relaxed) != 0 {
            // Cannot fail if connecting succeeded.
            let _ = socket::disconnect(&self.socket);
            self.close_unconnected();
        }
        // If the buffer is full, no receiver is blocked.
        let _ = self.socket.send_to(&[], self.wake_address);
    }

    /// Receives a batch into `room`, best of [`BUFFER_SIZE`] bytes; blocks if `wait` is set and nothing is queued.
    /// `None` if nothing is queued. Only one thread at a time may receive. An empty datagram, from any source, or a
    /// pending network error returns a batch of length 0.
    ///
    /// # Errors
    /// If the socket fails.
    #[inline]
    pub fn receive(&self, room: &mut [u8], wait: bool) -> io::Result<Option<Received>> {
        let is_plain = self.long_datagrams.load(Ordering::Relaxed) != COALESCING
            && !self.timestamps.load(Ordering::Relaxed);
        if wait && is_plain {
            return self.receive_one(room);
        }
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        let mut slices = [IoSliceMut::new(room)];
        let mut control = [0; 64];
        let got = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let message = match got {
            Ok(message) if message.bytes > 0 => message,
            Ok(_) | Err(Errno::EINTR) => return Ok(Some(self.woken())),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) if is_icmp_error(&error.into()) => return Ok(Some(self.woken())),
            Err(error) => return Err(error.into()),
        };
        let length = message.bytes;
        let Some(from) = message.address.and_then(|address| socket_addr(&address)) else {
            return Ok(Some(self.woken()));
        };
        let (mut stride, mut timestamp) = (length, None);
        for control in message.cmsgs().into_iter().flatten() {
            match socket::control(&control) {
                Some(Control::SegmentLength(bytes)) => stride = bytes,
                Some(Control::Timestamp(at)) => timestamp = Some(at),
                _ => {}
            }
        }
        self.update_coalescing(stride);
        Ok(Some(Received { from, length, stride, timestamp }))
    }

    /// Receives one datagram, while coalescing is off.
    #[inline]
    fn receive_one(&self, room: &mut [u8]) -> io::Result<Option<Received>> {
        let received = match self.peer() {
            Some(peer) => self.socket.recv(room).map(|length| (length, peer)),
            None => self.socket.recv_from(room),
        };
        match received {
            Ok((length, from)) => {
                self.update_coalescing(length);
                Ok(Some(Received { from, length, stride: length, timestamp: None }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(self.woken())),
            Err(error) if is_icmp_error(&error) => Ok(Some(self.woken())),
            Err(error) => Err(error),
        }
    }

    fn woken(&self) -> Received {
        Received { from: self.wake_address, length: 0, stride: 0, timestamp: None }
    }

    /// Sends a frame or batch, frame by frame where the system cannot segment the batch.
    ///
    /// # Errors
    /// System errors; the unsent rest is lost. A non-blocking socket with a full buffer returns
    /// [`io::ErrorKind::WouldBlock`].
    #[inline]
    pub fn send(&self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) -> io::Result<()> {
        match (segment, self.peer()) {
            (None, Some(peer)) if peer == to => match self.socket.send(bytes) {
                Ok(_) => Ok(()),
                // The error concerns an earlier datagram, or the socket has just been disconnected.
                Err(_) => self.socket.send_to(bytes, to).map(drop),
            },
            // The connected socket's local address may be unreachable for other peers.
            (segment, Some(peer))
                if peer != to
                    && let Some(unconnected) = self.unconnected_socket() =>
            {
                // Non-blocking: frames that find the buffer full are lost.
                Segment::frames(segment, bytes).try_for_each(|frame| match unconnected.send_to(frame, to) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                    _ => Ok(()),
                })
            }
            (None, _) => self.socket.send_to(bytes, to).map(drop),
            (Some(segment), _) => self.send_batch(to, bytes, segment),
        }
    }

    fn send_batch(&self, to: SocketAddr, bytes: &[u8], segment: Segment) -> io::Result<()> {
        let length = segment.length();
        if self.max_segments.load(Ordering::Relaxed) > 1
            && length <= self.max_segment_length.load(Ordering::Relaxed)
        {
            match self.send_gso(to, bytes, length as u16) {
                // The interface does not support segmentation offload.
                Err(Errno::EIO) => self.max_segments.store(1, Ordering::Relaxed),
                // The frames exceed the MTU (newer kernels: EMSGSIZE); shorter frames may not.
                Err(Errno::EINVAL | Errno::EMSGSIZE) => {
                    self.max_segment_length.store(length - 1, Ordering::Relaxed)
                }
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
        Segment::frames(Some(segment), bytes).try_for_each(|frame| self.socket.send_to(frame, to).map(drop))
    }

    fn send_gso(&self, to: SocketAddr, bytes: &[u8], length: u16) -> Result<(), Errno> {
        let (fd, slices) = (self.socket.as_raw_fd(), [IoSlice::new(bytes)]);
        let control = socket::segmentation(&length);
        let control = control.as_slice();
        match to {
            SocketAddr::V4(to) => {
                sendmsg(fd, &slices, control, MsgFlags::empty(), Some(&SockaddrIn::from(to)))
            }
            SocketAddr::V6(to) => {
                sendmsg(fd, &slices, control, MsgFlags::empty(), Some(&SockaddrIn6::from(to)))
            }
        }
        .map(drop)
    }
}

/// Wakes a thread that [waits](Waker::wait) for sockets without receiving. A datagram would not do: another thread
/// may receive it first.
#[derive(Debug)]
pub struct Waker {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    /// If no pipe is available.
    pub fn new() -> io::Result<Waker> {
        let (ear, rope) = io::pipe()?;
        Ok(Waker { reader: ear, writer: rope })
    }

    /// Ends the current wait, or the next one. Call it once for each wait: further calls fill the pipe, and a full
    /// pipe blocks.
    pub fn wake(&self) {
        // This value owns the other end.
        let _ = (&self.writer).write(&[0]);
    }

    /// Waits until a socket is readable, the waker is woken, or `limit` has passed.
    ///
    /// # Errors
    /// System errors of `ppoll`.
    pub fn wait(&self, sockets: &[BorrowedFd<'_>], limit: Option<Span>) -> io::Result<()> {
        let fds = std::iter::once(self.reader.as_fd()).chain(sockets.iter().copied());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        socket::poll(&mut fds, limit)?;
        if fds[0].any() == Some(true) {
            let _ = (&self.reader).read(&mut [0; 64])?;
        }
        Ok(())
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Datagrams {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[inline]
pub(crate) fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    match address.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            address.as_sockaddr_in().map(|&at| SocketAddr::V4(at.into()))
        }
        _ => address.as_sockaddr_in6().map(|&at| SocketAddr::V6(at.into())),
    }
}

/// Returns an unpredictable seed from the system.
///
/// # Errors
/// If the system's random device cannot be read.
pub fn seed() -> io::Result<Seed> {
    os_random().map(|bytes| Seed(u64::from_ne_bytes(bytes)))
}

/// Returns a random stream with an unpredictable state from the system.
///
/// # Errors
/// If the system's random device cannot be read.
pub fn random() -> io::Result<Stream> {
    os_random().map(Stream::from_bits)
}

fn os_random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind() -> Datagrams {
        let datagrams = Datagrams::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
        datagrams
    }

    #[test]
    fn batch_arrives_with_and_without_offload() {
        for plain in [false, true] {
            let (from, to) = (bind(), bind());
            if plain {
                from.max_segments.store(1, Ordering::Relaxed);
            }
            let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
            from.send(to.local(), &bytes, Segment::of(300, 1000)).unwrap();
            let (mut room, mut got) = (vec![0; BUFFER_SIZE], Vec::new());
            while got.len() < 4 {
                let arrived = to.receive(&mut room, true).unwrap().expect("it comes");
                assert_eq!(arrived.from, from.local());
                got.extend(Segment::frames(arrived.segment(), &room[..arrived.length]).map(<[u8]>::to_vec));
            }
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [300, 300, 300, 100]);
            assert_eq!(got.concat(), bytes);
        }
    }

    #[test]
    fn flow_is_coalesced_without_loss() {
        let (from, to) = (bind(), bind());
        let bytes: Vec<u8> = (0..20u8).flat_map(|number| [number; 1400]).collect();
        let (mut room, mut got) = (vec![0; BUFFER_SIZE], Vec::new());
        for round in 1..=10 {
            from.send(to.local(), &bytes, Segment::of(1400, bytes.len())).unwrap();
            while got.len() < round * bytes.len() {
                let arrived = to.receive(&mut room, round % 2 == 0).unwrap();
                got.extend_from_slice(&room[..arrived.map_or(0, |arrived| arrived.length)]);
                assert!(arrived.is_none_or(|arrived| arrived.stride == 1400));
            }
            assert!(got.ends_with(&bytes));
        }
        assert_eq!(from.long_datagrams.load(Ordering::Relaxed), 0);
        assert!([COALESCING, FLOW_DATAGRAMS].contains(&to.long_datagrams.load(Ordering::Relaxed)));
    }

    #[test]
    fn frames_above_the_mtu_do_not_disable_shorter_batches() {
        use nix::sched::{CloneFlags, unshare};
        // A thread in a new network namespace, if permitted.
        let thread = std::thread::spawn(|| {
            let own = unshare(CloneFlags::CLONE_NEWNET).is_ok();
            let ip = || std::process::Command::new("ip").args("link set lo mtu 1500 up".split(' ')).status();
            if !own || !ip().is_ok_and(|status| status.success()) {
                return crate::must::skip("no network namespace");
            }
            let (from, to, bytes) = (bind(), bind(), vec![3; 9000]);
            let mut room = vec![0; BUFFER_SIZE];
            for length in [3000, 1000] {
                from.send(to.local(), &bytes, Segment::of(length, bytes.len())).unwrap();
                let mut left = bytes.len();
                while left > 0 {
                    left -= to.receive(&mut room, true).unwrap().map_or(0, |arrived| arrived.length);
                }
            }
            let limits =
                (from.max_segments.load(Ordering::Relaxed), from.max_segment_length.load(Ordering::Relaxed));
            assert!(limits.0 == 1 || limits == (MAX_SEGMENTS, 2999), "{limits:?}");
        });
        thread.join().unwrap();
    }

    #[test]
    fn blocked_receiver_can_be_woken() {
        for local in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(datagrams) = Datagrams::bind(local.parse().unwrap(), &Options::default()) else {
                continue;
            };
            std::thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| datagrams.receive(&mut [0; 10], true).unwrap().unwrap().length == 0);
                datagrams.wake();
                assert!(waiting.join().unwrap(), "{local}");
            });
        }
    }

    #[test]
    fn connected_socket_can_be_woken_and_keeps_its_port() {
        for local in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(datagrams) = Datagrams::bind(local.parse().unwrap(), &Options::default()) else {
                continue;
            };
            socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
            let Ok(peer) = UdpSocket::bind((datagrams.wake_address.ip(), 0)) else { continue };
            peer.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let (at, mut room) = (peer.local_addr().unwrap(), [0; 10]);
            let exchange = |room: &mut [u8; 10]| {
                datagrams.send(at, &[7], None).unwrap();
                let (length, from) = peer.recv_from(room).unwrap();
                assert_eq!((length, from.port()), (1, datagrams.local().port()), "{local}");
                peer.send_to(&[1, 2], from).unwrap();
                let arrived = datagrams.receive(room, true).unwrap().expect("it comes");
                assert_eq!((arrived.length, arrived.from), (2, at), "{local}");
            };
            let connects = datagrams.local().is_ipv4();
            datagrams.connect(at);
            assert_eq!(datagrams.peer().is_some(), connects, "{local}");
            exchange(&mut room);
            std::thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| datagrams.receive(&mut [0; 10], true).unwrap().map(|woken| woken.length));
                datagrams.wake();
                assert_eq!(waiting.join().unwrap(), Some(0), "{local}");
            });
            assert!(datagrams.peer().is_none());
            exchange(&mut room);
            // The number of connects is limited.
            for _ in 1..MAX_CONNECTS {
                datagrams.connect(at);
                assert_eq!(datagrams.peer().is_some(), connects, "{local}");
                exchange(&mut room);
                datagrams.wake();
                assert_eq!(datagrams.receive(&mut room, true).unwrap().map(|woken| woken.length), Some(0));
            }
            datagrams.connect(at);
            assert!(datagrams.peer().is_none());
        }
    }

    #[test]
    fn ipv6_socket_is_never_connected() {
        let Ok(datagrams) = Datagrams::bind("[::]:0".parse().unwrap(), &Options::default()) else { return };
        socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
        for _ in 0..2 {
            datagrams.connect("[::ffff:127.0.0.1]:9".parse().unwrap());
            assert!(!datagrams.connect_with_unconnected("[::ffff:127.0.0.1]:9".parse().unwrap()));
            datagrams.wake();
            assert_eq!(datagrams.receive(&mut [0; 10], true).unwrap().map(|woken| woken.length), Some(0));
        }
    }

    #[test]
    fn unconnected_socket_receives_other_peers() {
        for local in ["127.0.0.1:0", "0.0.0.0:0"] {
            let datagrams = Datagrams::bind(local.parse().unwrap(), &Options::default()).unwrap();
            socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
            let to = datagrams.wake_address;
            let peers = [0, 1].map(|_| {
                let peer = UdpSocket::bind((to.ip(), 0)).unwrap();
                peer.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
                peer
            });
            let at = peers.each_ref().map(|peer| peer.local_addr().unwrap());
            let mut room = vec![0; BUFFER_SIZE];
            for _ in 0..2 {
                // A process started by another test may hold the port for a moment.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
                while !datagrams.connect_with_unconnected(at[0]) && std::time::Instant::now() < until {
                    std::thread::yield_now();
                }
                assert!(datagrams.peer().is_some(), "{local}");
                let unconnected = datagrams.unconnected_socket().expect("it is open");
                assert!(UdpSocket::bind(datagrams.local()).is_err(), "no other socket can bind the port");
                for n in 0..2 {
                    peers[1].send_to(&[1, 1], to).unwrap();
                    peers[0].send_to(&[0, 0, n], to).unwrap();
                    let arrived = datagrams.receive(&mut room, true).unwrap().unwrap();
                    assert_eq!((arrived.from, arrived.length), (at[0], 3), "{local}");
                    let waker = Waker::new().unwrap();
                    waker.wait(&[unconnected.as_fd()], Some(Span::from_s(20))).unwrap();
                    let arrived = Datagrams::receive_unconnected(&unconnected, &mut room).unwrap().unwrap();
                    assert_eq!((arrived.from, arrived.length), (at[1], 2), "{local}");
                    assert!(Datagrams::receive_unconnected(&unconnected, &mut room).unwrap().is_none());
                }
                for (n, peer) in peers.iter().enumerate() {
                    for segment in [None, Segment::of(1, 2)] {
                        datagrams.send(at[n], &[n as u8, n as u8], segment).unwrap();
                        let frames = if segment.is_some() { 2 } else { 1 };
                        for _ in 0..frames {
                            let (length, from) = peer.recv_from(&mut room).unwrap();
                            assert_eq!((length, from), (3 - frames, to), "{local}");
                        }
                    }
                }
                datagrams.wake();
                assert!(datagrams.unconnected_socket().is_none());
                assert_eq!(datagrams.receive(&mut room, true).unwrap().unwrap().length, 0);
                // The unconnected socket, still held by the caller, receives nothing more.
                for n in [1, 0, 1] {
                    peers[n].send_to(&[7], to).unwrap();
                    assert_eq!(datagrams.receive(&mut room, true).unwrap().unwrap().from, at[n], "{local}");
                }
                assert!(Datagrams::receive_unconnected(&unconnected, &mut room).unwrap().is_none());
            }
        }
    }

    #[test]
    fn refused_datagram_does_not_block_the_next() {
        let datagrams = bind();
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        datagrams.connect(gone);
        // The refusal is reported by the next call.
        assert!((0..4).all(|_| datagrams.send(gone, &[1], None).is_ok()));
    }

    #[test]
    fn waker_ends_current_and_next_wait() {
        let (datagrams, waker) = (bind(), Waker::new().unwrap());
        waker.wake();
        waker.wait(&[datagrams.as_fd()], None).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waker.wait(&[datagrams.as_fd()], None));
            waker.wake();
            waiting.join().unwrap().unwrap();
        });
        waker.wait(&[datagrams.as_fd()], Some(Span::from_us(1))).unwrap();
        datagrams.wake();
        waker.wait(&[datagrams.as_fd()], None).unwrap();
    }

    #[test]
    fn empty_queue_is_not_an_error() {
        let datagrams = bind();
        assert!(datagrams.receive(&mut [0; 10], false).unwrap().is_none());
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}

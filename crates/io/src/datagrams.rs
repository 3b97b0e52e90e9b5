//! A UDP socket for endpoints that many threads share: blocking, in batches, and to be woken.
//!
//! One system call sends a batch by segmentation offload or receives one that the kernel has joined. Nothing else is
//! asked of the kernel (no time stamps, no local addresses): a datagram alone costs what a plain one costs.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, GetSockOpt, MsgFlags, SetSockOpt, SockaddrIn, SockaddrIn6,
    SockaddrLike, SockaddrStorage, recv, recvmsg, sendmsg,
};
use nix::sys::time::TimeSpec;
use trunkline_endpoint::{MAX_SEGMENTS, Segment};
use trunkline_units::{Seed, Span, Stream};

use crate::driver::is_of_network;
use crate::socket::{self, Options, SocketError};

/// Room that a call of [`Datagrams::receive`] should be given: all that the kernel joins.
pub const ROOM: usize = 1 << 16;

/// How long a call may block where the socket cannot wake itself.
const DEAF: Span = Span::from_ms(4);

/// A UDP socket that threads share: each may send, receive and [`wake`](Datagrams::wake) those that wait.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    /// Where it hears itself.
    own: SocketAddr,
    /// The peers to which it was connected, one after the other, and which of them it is now, from 1 on; 0: none.
    peers: [OnceLock<SocketAddr>; CONNECTS],
    connected: AtomicUsize,
    /// Nothing leaves in fragments.
    whole: AtomicBool,
    /// What hears all others meanwhile, if there are any.
    door: Mutex<Option<Arc<UdpSocket>>>,
    /// Frames of a batch at the most.
    most: AtomicUsize,
    /// The longest frames of a batch that the system may be able to split.
    longest: AtomicUsize,
    /// Long datagrams that came in a row, until the kernel is told to join them; then [`JOINS`].
    long: AtomicUsize,
}

/// So often it is connected at the most: whoever must be woken again and again has not only one peer.
const CONNECTS: usize = 8;

/// So many datagrams of so many bytes in a row are a flow.
const FLOW: usize = 4;
const LONG: usize = 1000;
/// The kernel joins datagrams.
const JOINS: usize = usize::MAX;

/// What came in one piece: datagrams of equal length from one peer, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// From whom.
    pub from: SocketAddr,
    /// Bytes of all of them.
    pub length: usize,
    /// Bytes of each.
    pub stride: usize,
}

impl Arrived {
    /// What makes it a batch; none if it is a single datagram.
    pub fn segment(&self) -> Option<Segment> {
        Segment::of(self.stride, self.length)
    }
}

impl Datagrams {
    /// A socket bound to `local`. Calls block, unless it is made non-blocking.
    ///
    /// # Errors
    /// What the system says, with the address.
    pub fn bind(local: SocketAddr, options: &Options) -> Result<Datagrams, SocketError> {
        let socket = match local.port() {
            0 => socket::udp_to_connect(local, options)?,
            _ => socket::udp(local, options)?,
        };
        let failed = |cause| SocketError { step: socket::Step::Open, address: local, cause };
        let local = socket.local_addr().map_err(failed)?;
        let own = match local {
            SocketAddr::V4(at) if at.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, at.port()).into(),
            SocketAddr::V6(at) if at.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, at.port()).into(),
            specified => specified,
        };
        let most = if UdpGsoSegment.get(&socket).is_ok() { MAX_SEGMENTS } else { 1 };
        let (most, longest, long) =
            (AtomicUsize::new(most), AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let (peers, connected, whole, door) = Default::default();
        let datagrams = Datagrams { socket, local, own, peers, connected, whole, door, most, longest, long };
        // Where not even the loopback is up nobody could be woken: then nobody sleeps for long.
        datagrams.wake();
        if recv(datagrams.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT).is_err() {
            socket::limit_blocking(&datagrams.socket, DEAF).map_err(failed)?;
        }
        Ok(datagrams)
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The socket, to ask it something or to wait for it.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Whether batches leave and come in one call.
    pub fn offloads(&self) -> bool {
        self.long.load(Ordering::Relaxed) == JOINS && self.most.load(Ordering::Relaxed) > 1
    }

    /// Has the kernel join datagrams, for good, once they come in a flow: it takes 5 % of a round trip of short ones.
    #[inline]
    fn heed(&self, length: usize) {
        let long = self.long.load(Ordering::Relaxed);
        if long == JOINS || length < LONG && long == 0 {
            return;
        }
        let next = match long + 1 {
            _ if length < LONG => 0,
            FLOW if UdpGroSegment.set(&self.socket, &true).is_ok() => JOINS,
            more => more.min(FLOW),
        };
        self.long.store(next, Ordering::Relaxed);
    }

    /// Sends no packet in fragments, whatever the system thinks of the path; what is longer than the interface's
    /// packets is refused. To find out what a path carries.
    ///
    /// # Errors
    /// If the system cannot.
    pub fn forbid_fragments(&self) -> io::Result<()> {
        self.whole.store(true, Ordering::Relaxed);
        socket::forbid_fragments(&self.socket, self.local)
    }

    /// There is no other peer than `to`: what goes there need not look for its way each time, and what comes need not be
    /// asked where from, which takes 5 % of a round trip of short datagrams. That lasts until somebody is to be woken: only
    /// a socket that is not connected hears itself. Over IPv4 only. Whether it is so from now on.
    ///
    /// Nobody is to [wake](Datagrams::wake) it meanwhile.
    pub fn connect(&self, to: SocketAddr) -> bool {
        self.connect_after(to, || Ok(()))
    }

    /// The same where others may come besides, for as long as `to` is the only one: until somebody is to be woken they are
    /// heard at the [door](Datagrams::door) alone, and somebody has to [listen](Datagrams::hear) there. Whether it is so
    /// from now on.
    pub fn connect_beside(&self, to: SocketAddr) -> bool {
        self.connect_after(to, || {
            let door = socket::udp_beside(&self.socket, self.local, &Options::default())
                .map_err(|error| error.cause)?;
            door.set_nonblocking(true)?;
            if self.whole.load(Ordering::Relaxed) {
                socket::forbid_fragments(&door, self.local)?;
            }
            *self.door.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(door));
            Ok(())
        })
    }

    /// Connects it, if it can be taken back: Linux lets a socket of IPv6 hear the address of its last peer only, for ever, and
    /// one that is bound to a device forgets that.
    ///
    /// What others have sent and nobody has received by then passes for the peer's: a lie about where one is does no more.
    fn connect_after(&self, to: SocketAddr, prepare: impl FnOnce() -> io::Result<()>) -> bool {
        let free = self.peers.iter().position(|peer| peer.get().is_none());
        let Some(at) = free.filter(|_| self.connected.load(Ordering::Relaxed) == 0) else { return false };
        if !self.local.is_ipv4() || socket::is_bound_to_device(&self.socket) {
            return false;
        }
        let connected = prepare().and_then(|()| self.socket.connect(to)).is_ok();
        if connected && self.peers[at].set(to).is_ok() {
            self.connected.store(at + 1, Ordering::Relaxed);
            return true;
        }
        let _ = socket::disconnect(&self.socket);
        self.close_door();
        false
    }

    /// The peer that it is connected to.
    #[inline]
    fn peer(&self) -> Option<SocketAddr> {
        let at = self.connected.load(Ordering::Relaxed).checked_sub(1)?;
        self.peers[at].get().copied()
    }

    /// What hears all others while it is [connected](Datagrams::connect_beside) to one of several peers.
    pub fn door(&self) -> Option<Arc<UdpSocket>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever still waits at it hears nobody there any more.
    fn close_door(&self) {
        let Some(door) = self.door.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // Nobody sends from the port of what is thrown away (RFC 863).
        let nobody = if self.own.port() == 9 { 10 } else { 9 };
        let _ = door.connect((self.own.ip(), nobody));
    }

    /// Receives one datagram that came to a door, into `room`; none if there is none.
    ///
    /// # Errors
    /// If it no longer receives.
    pub fn hear(door: &UdpSocket, room: &mut [u8]) -> io::Result<Option<Arrived>> {
        loop {
            match door.recv_from(room) {
                Ok((length, from)) => return Ok(Some(Arrived { from, length, stride: length })),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_of_network(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a thread that waits in [`receive`](Datagrams::receive) return, by an empty datagram to itself.
    pub fn wake(&self) {
        if self.connected.swap(0, Ordering::Relaxed) != 0 {
            // It fails no more than it did to connect.
            let _ = socket::disconnect(&self.socket);
            self.close_door();
        }
        // If its buffer is full nobody waits.
        let _ = self.socket.send_to(&[], self.own);
    }

    /// Receives what came, into `room`, best of [`ROOM`] bytes; if nothing has, waits for it if that is wanted. None if
    /// there is nothing. One thread at a time is to receive. A datagram that is empty, whoever sent it, only wakes; so does what the system has to say of
    /// something sent.
    ///
    /// # Errors
    /// If the socket no longer receives.
    #[inline]
    pub fn receive(&self, room: &mut [u8], wait: bool) -> io::Result<Option<Arrived>> {
        if wait && self.long.load(Ordering::Relaxed) != JOINS {
            return self.receive_one(room);
        }
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        let mut slices = [IoSliceMut::new(room)];
        let mut control = [0; 32];
        let got = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let message = match got {
            Ok(message) if message.bytes > 0 => message,
            Ok(_) | Err(Errno::EINTR) => return Ok(Some(self.nothing())),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) if is_of_network(&error.into()) => return Ok(Some(self.nothing())),
            Err(error) => return Err(error.into()),
        };
        let length = message.bytes;
        let Some(from) = message.address.and_then(|address| plain(&address)) else {
            return Ok(Some(self.nothing()));
        };
        let mut stride = length;
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::UdpGroSegments(bytes) = control {
                stride = usize::try_from(bytes).unwrap_or(length);
            }
        }
        self.heed(stride);
        Ok(Some(Arrived { from, length, stride }))
    }

    /// Receives one datagram, while none are joined.
    #[inline]
    fn receive_one(&self, room: &mut [u8]) -> io::Result<Option<Arrived>> {
        let received = match self.peer() {
            Some(peer) => self.socket.recv(room).map(|length| (length, peer)),
            None => self.socket.recv_from(room),
        };
        match received {
            Ok((length, from)) => {
                self.heed(length);
                Ok(Some(Arrived { from, length, stride: length }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(self.nothing())),
            Err(error) if is_of_network(&error) => Ok(Some(self.nothing())),
            Err(error) => Err(error),
        }
    }

    fn nothing(&self) -> Arrived {
        Arrived { from: self.own, length: 0, stride: 0 }
    }

    /// Sends a frame or batch. Where the system splits no batches, or not this one, it is sent frame by frame.
    ///
    /// # Errors
    /// What the system says; what was to be sent is lost, or the rest of it. A full non-blocking socket says
    /// [`io::ErrorKind::WouldBlock`].
    #[inline]
    pub fn send(&self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) -> io::Result<()> {
        match (segment, self.peer()) {
            (None, Some(peer)) if peer == to => match self.socket.send(bytes) {
                Ok(_) => Ok(()),
                // It said what became of something sent before, or has just been disconnected.
                Err(_) => self.socket.send_to(bytes, to).map(drop),
            },
            // Connected, the socket may have an address that is not for others.
            (segment, Some(peer))
                if peer != to
                    && let Some(door) = self.door() =>
            {
                // It does not block: what finds no room is lost.
                Segment::frames(segment, bytes).try_for_each(|frame| match door.send_to(frame, to) {
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
        if self.most.load(Ordering::Relaxed) > 1 && length <= self.longest.load(Ordering::Relaxed) {
            match self.send_joined(to, bytes, length as u16) {
                // The interface splits no batches.
                Err(Errno::EIO) => self.most.store(1, Ordering::Relaxed),
                // The frames are longer than its packets (newer kernels: EMSGSIZE); shorter ones may not be.
                Err(Errno::EINVAL | Errno::EMSGSIZE) => self.longest.store(length - 1, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
        Segment::frames(Some(segment), bytes).try_for_each(|frame| self.socket.send_to(frame, to).map(drop))
    }

    fn send_joined(&self, to: SocketAddr, bytes: &[u8], length: u16) -> Result<(), Errno> {
        let (fd, slices) = (self.socket.as_raw_fd(), [IoSlice::new(bytes)]);
        let control = [ControlMessage::UdpGsoSegments(&length)];
        match to {
            SocketAddr::V4(to) => {
                sendmsg(fd, &slices, &control, MsgFlags::empty(), Some(&SockaddrIn::from(to)))
            }
            SocketAddr::V6(to) => {
                sendmsg(fd, &slices, &control, MsgFlags::empty(), Some(&SockaddrIn6::from(to)))
            }
        }
        .map(drop)
    }
}

/// Wakes a thread that [waits](Bell::wait) for a socket without receiving, which a datagram might not: another thread may
/// take it first.
#[derive(Debug)]
pub struct Bell {
    ear: PipeReader,
    rope: PipeWriter,
}

impl Bell {
    /// A bell that is silent.
    ///
    /// # Errors
    /// If the system has no more pipes.
    pub fn new() -> io::Result<Bell> {
        let (ear, rope) = io::pipe()?;
        Ok(Bell { ear, rope })
    }

    /// Ends the wait, or the next if there is none. To be called once for each: a ring more is a byte more in a pipe, and
    /// a full one blocks.
    pub fn ring(&self) {
        // Nobody else has the other end.
        let _ = (&self.rope).write(&[0]);
    }

    /// Waits until there is something to receive, it rings, or the time is up.
    ///
    /// # Errors
    /// If the system no longer waits.
    pub fn wait(&self, sockets: &[BorrowedFd<'_>], limit: Option<Span>) -> io::Result<()> {
        let fds = std::iter::once(self.ear.as_fd()).chain(sockets.iter().copied());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match ppoll(&mut fds, limit.map(|limit| TimeSpec::from_duration(limit.into())), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].any() == Some(true) {
            let _ = (&self.ear).read(&mut [0; 64])?;
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
fn plain(address: &SockaddrStorage) -> Option<SocketAddr> {
    match address.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            address.as_sockaddr_in().map(|&at| SocketAddr::V4(at.into()))
        }
        _ => address.as_sockaddr_in6().map(|&at| SocketAddr::V6(at.into())),
    }
}

/// A seed that nobody can guess, from the system.
///
/// # Errors
/// If the system has none.
pub fn seed() -> io::Result<Seed> {
    unguessed().map(|bytes| Seed(u64::from_ne_bytes(bytes)))
}

/// A stream that begins where nobody can guess, from the system.
///
/// # Errors
/// If the system has no such bits.
pub fn random() -> io::Result<Stream> {
    unguessed().map(Stream::of_bits)
}

fn unguessed<const N: usize>() -> io::Result<[u8; N]> {
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
    fn a_batch_arrives_as_its_frames_with_and_without_offload() {
        for plain in [false, true] {
            let (from, to) = (bind(), bind());
            if plain {
                from.most.store(1, Ordering::Relaxed);
            }
            let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
            from.send(to.local(), &bytes, Segment::of(300, 1000)).unwrap();
            let (mut room, mut got) = (vec![0; ROOM], Vec::new());
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
    fn a_flow_is_joined_and_nothing_of_it_is_lost() {
        let (from, to) = (bind(), bind());
        let bytes: Vec<u8> = (0..20u8).flat_map(|number| [number; 1400]).collect();
        let (mut room, mut got) = (vec![0; ROOM], Vec::new());
        for round in 1..=10 {
            from.send(to.local(), &bytes, Segment::of(1400, bytes.len())).unwrap();
            while got.len() < round * bytes.len() {
                let arrived = to.receive(&mut room, round % 2 == 0).unwrap();
                got.extend_from_slice(&room[..arrived.map_or(0, |arrived| arrived.length)]);
                assert!(arrived.is_none_or(|arrived| arrived.stride == 1400));
            }
            assert!(got.ends_with(&bytes));
        }
        assert!(!from.offloads() && (to.offloads() || to.long.load(Ordering::Relaxed) == FLOW));
    }

    #[test]
    fn frames_longer_than_a_packet_do_not_end_batches_of_shorter_ones() {
        use nix::sched::{CloneFlags, unshare};
        // A thread with a network of its own, if it may have one.
        let thread = std::thread::spawn(|| {
            let own = unshare(CloneFlags::CLONE_NEWNET).is_ok();
            let ip = || std::process::Command::new("ip").args("link set lo mtu 1500 up".split(' ')).status();
            if !own || !ip().is_ok_and(|status| status.success()) {
                return crate::must::skip("no network of its own");
            }
            let (from, to, bytes) = (bind(), bind(), vec![3; 9000]);
            let mut room = vec![0; ROOM];
            for length in [3000, 1000] {
                from.send(to.local(), &bytes, Segment::of(length, bytes.len())).unwrap();
                let mut left = bytes.len();
                while left > 0 {
                    left -= to.receive(&mut room, true).unwrap().map_or(0, |arrived| arrived.length);
                }
            }
            let limits = (from.most.load(Ordering::Relaxed), from.longest.load(Ordering::Relaxed));
            assert!(limits.0 == 1 || limits == (MAX_SEGMENTS, 2999), "{limits:?}");
        });
        thread.join().unwrap();
    }

    #[test]
    fn one_that_waits_can_be_woken() {
        for local in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(datagrams) = Datagrams::bind(local.parse().unwrap(), &Options::default()) else {
                continue;
            };
            std::thread::scope(|scope| {
                let waits =
                    scope.spawn(|| datagrams.receive(&mut [0; 10], true).unwrap().unwrap().length == 0);
                datagrams.wake();
                assert!(waits.join().unwrap(), "{local}");
            });
        }
    }

    #[test]
    fn one_that_is_connected_can_be_woken_and_keeps_its_port() {
        for local in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(datagrams) = Datagrams::bind(local.parse().unwrap(), &Options::default()) else {
                continue;
            };
            socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
            let Ok(peer) = UdpSocket::bind((datagrams.own.ip(), 0)) else { continue };
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
                let waits =
                    scope.spawn(|| datagrams.receive(&mut [0; 10], true).unwrap().map(|woken| woken.length));
                datagrams.wake();
                assert_eq!(waits.join().unwrap(), Some(0), "{local}");
            });
            assert!(datagrams.peer().is_none());
            exchange(&mut room);
            // Often enough is enough.
            for _ in 1..CONNECTS {
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
    fn one_of_ipv6_hears_itself_whoever_it_was_to_be_connected_to() {
        let Ok(datagrams) = Datagrams::bind("[::]:0".parse().unwrap(), &Options::default()) else { return };
        socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
        for _ in 0..2 {
            datagrams.connect("[::ffff:127.0.0.1]:9".parse().unwrap());
            assert!(!datagrams.connect_beside("[::ffff:127.0.0.1]:9".parse().unwrap()));
            datagrams.wake();
            assert_eq!(datagrams.receive(&mut [0; 10], true).unwrap().map(|woken| woken.length), Some(0));
        }
    }

    #[test]
    fn others_are_heard_at_the_door() {
        for local in ["127.0.0.1:0", "0.0.0.0:0"] {
            let datagrams = Datagrams::bind(local.parse().unwrap(), &Options::default()).unwrap();
            socket::limit_blocking(datagrams.socket(), Span::from_s(20)).unwrap();
            let to = datagrams.own;
            let peers = [0, 1].map(|_| {
                let peer = UdpSocket::bind((to.ip(), 0)).unwrap();
                peer.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
                peer
            });
            let at = peers.each_ref().map(|peer| peer.local_addr().unwrap());
            let mut room = vec![0; ROOM];
            for _ in 0..2 {
                // A program that another test starts keeps the door before this one until it is loaded.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
                while !datagrams.connect_beside(at[0]) && std::time::Instant::now() < until {
                    std::thread::yield_now();
                }
                assert!(datagrams.peer().is_some(), "{local}");
                let door = datagrams.door().expect("it is open");
                assert!(UdpSocket::bind(datagrams.local()).is_err(), "nobody else gets the port");
                for n in 0..2 {
                    peers[1].send_to(&[1, 1], to).unwrap();
                    peers[0].send_to(&[0, 0, n], to).unwrap();
                    let arrived = datagrams.receive(&mut room, true).unwrap().unwrap();
                    assert_eq!((arrived.from, arrived.length), (at[0], 3), "{local}");
                    let bell = Bell::new().unwrap();
                    bell.wait(&[door.as_fd()], Some(Span::from_s(20))).unwrap();
                    let arrived = Datagrams::hear(&door, &mut room).unwrap().unwrap();
                    assert_eq!((arrived.from, arrived.length), (at[1], 2), "{local}");
                    assert!(Datagrams::hear(&door, &mut room).unwrap().is_none());
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
                assert!(datagrams.door().is_none());
                assert_eq!(datagrams.receive(&mut room, true).unwrap().unwrap().length, 0);
                // The door, which is still in somebody's hands, hears nothing any more.
                for n in [1, 0, 1] {
                    peers[n].send_to(&[7], to).unwrap();
                    assert_eq!(datagrams.receive(&mut room, true).unwrap().unwrap().from, at[n], "{local}");
                }
                assert!(Datagrams::hear(&door, &mut room).unwrap().is_none());
            }
        }
    }

    #[test]
    fn a_peer_that_has_gone_keeps_nothing_from_leaving() {
        let datagrams = bind();
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        datagrams.connect(gone);
        // That nobody is there is told at the next.
        assert!((0..4).all(|_| datagrams.send(gone, &[1], None).is_ok()));
    }

    #[test]
    fn a_bell_ends_a_wait_that_began_or_not() {
        let (datagrams, bell) = (bind(), Bell::new().unwrap());
        bell.ring();
        bell.wait(&[datagrams.as_fd()], None).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| bell.wait(&[datagrams.as_fd()], None));
            bell.ring();
            waits.join().unwrap().unwrap();
        });
        bell.wait(&[datagrams.as_fd()], Some(Span::from_us(1))).unwrap();
        datagrams.wake();
        bell.wait(&[datagrams.as_fd()], None).unwrap();
    }

    #[test]
    fn nothing_there_is_no_error() {
        let datagrams = bind();
        assert!(datagrams.receive(&mut [0; 10], false).unwrap().is_none());
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}

//! [`Ports`]: several UDP sockets that one thread serves, with one wait for all of them.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::sockopt::{IpRecvTos, Ipv4RecvErr, RcvBuf, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{MsgFlags, SetSockOpt, SockaddrIn, recvmsg};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use trunkline_endpoint::{MAX_BATCH, Segment};
use trunkline_units::{Instant, Span};

use crate::clock::Clock;
use crate::driver::{Timer, is_of_network};
use crate::socket;

/// Room for what the kernel joins.
const ROOM: usize = 1 << 16;
/// From one room to the next: were it a power of two, all rooms would share the same few places of the processor's caches.
const STRIDE: usize = ROOM + (8 << 10) + 64;
/// Octets that one call may take: what stays in the nearest cache until it is looked at.
const NEAR: usize = 32 << 10;
/// Octets that may wait in a socket to be received: where this process may say so, and otherwise as many as the system lets
/// it have.
const BUFFER: usize = 16 << 20;
/// How long a datagram may wait for room in the system; then it is lost.
const PATIENCE: Span = Span::from_ms(10);
/// What the wait calls the timer; sockets and what else is watched have their numbers.
const TIMER: u64 = u64::MAX;
/// Watched things from here on.
const WATCHED: u64 = 1 << 32;

/// Several UDP sockets over IPv4, numbered in the order in which they were added. What comes is taken in batches; which
/// addresses refused what was sent to them is told.
#[derive(Debug)]
pub struct Ports {
    epoll: Epoll,
    timer: Timer,
    lines: Vec<Line>,
    watched: usize,
    rooms: Vec<u8>,
}

#[derive(Debug)]
struct Line {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Datagrams to ask the socket for.
    asked: usize,
    /// Octets of the last one.
    octets: usize,
}

/// What a wait found: sockets that have something, and watched things that do, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    sockets: u64,
    refused: u64,
    watched: u64,
}

impl Ready {
    /// Whether a socket has something to receive.
    pub fn has(self, port: usize) -> bool {
        self.sockets & 1 << port != 0
    }

    /// Whether a socket has a refusal to [tell](Ports::refused).
    pub fn refused(self, port: usize) -> bool {
        self.refused & 1 << port != 0
    }

    /// Whether a watched thing can be read.
    pub fn watched(self, number: usize) -> bool {
        self.watched & 1 << number != 0
    }
}

/// What came in one piece: datagrams of equal length from one peer, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// From whom.
    pub from: SocketAddr,
    /// To which address of this machine, or which group.
    pub to: Option<IpAddr>,
    /// By which interface, as the system numbers them.
    pub interface: Option<u32>,
    /// What makes it a batch.
    pub segment: Option<Segment>,
}

impl Ports {
    /// None yet, in the time of `clock`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(clock: Clock) -> io::Result<Ports> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = Timer::new(clock)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(Ports { epoll, timer, lines: Vec::new(), watched: 0, rooms: vec![0; STRIDE * BATCH_SIZE] })
    }

    /// Adds a socket, which becomes non-blocking; its number. What is longer than a packet leaves in fragments.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// If there are 64 already.
    pub fn add(&mut self, socket: UdpSocket) -> io::Result<usize> {
        assert!(self.lines.len() < 64, "a wait tells of 64 sockets");
        let state = UdpSocketState::new((&socket).into())?;
        // That forbids fragments, and has each datagram tell what nobody here asks, for a tenth to a fifth of what
        // receiving costs.
        socket::allow_fragments(&socket, socket.local_addr()?)?;
        IpRecvTos.set(&socket, &false)?;
        ReceiveTimestampns.set(&socket, &false)?;
        Ipv4RecvErr.set(&socket, &true)?;
        if RcvBufForce.set(&socket, &BUFFER).is_err() {
            RcvBuf.set(&socket, &BUFFER)?;
        }
        self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, self.lines.len() as u64))?;
        self.lines.push(Line { socket, state, asked: 1, octets: 0 });
        Ok(self.lines.len() - 1)
    }

    /// Whether the system may hand over datagrams of one sender to a socket in one piece (GRO).
    pub fn coalesces(&self, port: usize) -> bool {
        self.lines[port].state.gro_segments() > 1
    }

    /// Watches something else as well; its number.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// If there are 64 already.
    pub fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        assert!(self.watched < 64, "a wait tells of 64 others");
        self.epoll.add(thing, EpollEvent::new(EpollFlags::EPOLLIN, WATCHED + self.watched as u64))?;
        self.watched += 1;
        Ok(self.watched - 1)
    }

    /// A socket by its number.
    ///
    /// # Panics
    /// If there is none.
    pub fn socket(&self, port: usize) -> &UdpSocket {
        &self.lines[port].socket
    }

    /// Waits until something can be received or read, or the clock shows `until`; without it perhaps for ever. A signal
    /// ends it too.
    ///
    /// # Errors
    /// If the system no longer waits.
    pub fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<Ready> {
        let timeout = match until {
            Some(at) if at <= now => EpollTimeout::ZERO,
            Some(at) => {
                self.timer.ring_by(at)?;
                EpollTimeout::NONE
            }
            None => EpollTimeout::NONE,
        };
        let mut events = [EpollEvent::empty(); 16];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut ready = Ready::default();
        for event in &events[..count] {
            match event.data() {
                TIMER => self.timer.rang()?,
                port @ 0..WATCHED => {
                    let is = |flag| u64::from(event.events().intersects(flag)) << port;
                    ready.sockets |= is(EpollFlags::EPOLLIN);
                    ready.refused |= is(EpollFlags::EPOLLERR);
                }
                other => ready.watched |= 1 << (other - WATCHED),
            }
        }
        Ok(ready)
    }

    /// Hands over what has come to a socket, at most so many batches, and no more than 32. Long ones are taken by several calls.
    ///
    /// # Errors
    /// If the socket no longer receives.
    pub fn receive(
        &mut self,
        port: usize,
        most: usize,
        mut each: impl FnMut(&Came, &[u8]),
    ) -> io::Result<()> {
        let line = &mut self.lines[port];
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut rooms = self.rooms.chunks_exact_mut(STRIDE);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(&mut rooms.next().expect("a room for each")[..ROOM]));
        // To ask for more than there is costs a look in vain.
        let expected = line.asked.min(most.clamp(1, BATCH_SIZE));
        let mut taken = 0;
        while taken < expected {
            let near = (NEAR / line.octets.max(1)).clamp(1, BATCH_SIZE);
            let asked = near.min(expected - taken);
            let count = match line.state.recv((&line.socket).into(), &mut slices[..asked], &mut metas) {
                Ok(count) => count,
                Err(e) if socket::is_timeout(&e) || is_of_network(&e) => break,
                Err(e) => return Err(e),
            };
            for (meta, bytes) in metas.iter().zip(&slices).take(count) {
                let segment = Segment::of(meta.stride, meta.len);
                let (from, to, interface) = (meta.addr, meta.dst_ip, meta.interface_index);
                each(&Came { from, to, interface, segment }, &bytes[..meta.len]);
                line.octets = meta.len;
            }
            taken += count;
            if count < asked {
                break;
            }
        }
        line.asked = if taken == expected { BATCH_SIZE.min(2 * taken) } else { taken.max(1) };
        Ok(())
    }

    /// Who refused a datagram that this socket sent (there is no such port, or no such host), the oldest that has not been
    /// told yet.
    pub fn refused(&self, port: usize) -> Option<SocketAddr> {
        let mut room = [0; 1];
        let mut control = [0; 256];
        let fd = self.lines[port].socket.as_raw_fd();
        loop {
            let mut slices = [IoSliceMut::new(&mut room)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let told = recvmsg::<SockaddrIn>(fd, &mut slices, Some(&mut control), flags).ok()?;
            // Without what it says in detail it would be taken for a refusal that it may not be.
            let refused = told.cmsgs().ok()?.any(|said| match said {
                nix::sys::socket::ControlMessageOwned::Ipv4RecvErr(error, _) => {
                    error.ee_errno == Errno::ECONNREFUSED as u32
                }
                _ => false,
            });
            if let (true, Some(to)) = (refused, told.address) {
                return Some(SocketAddr::V4(to.into()));
            }
        }
    }

    /// Sends a datagram; waits a little for room in the system. False if it could not leave: it is lost.
    pub fn send(&self, port: usize, to: SocketAddr, bytes: &[u8]) -> bool {
        let socket = &self.lines[port].socket;
        // Each of two calls may tell what became of an earlier datagram instead of sending this one.
        for _ in 0..3 {
            match socket.send_to(bytes, to) {
                Ok(_) => return true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !writable(socket.as_fd()) {
                        return false;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted || is_of_network(&e) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Sends datagrams that stand end to end, each of `length` octets but for the last, which may be shorter; how many left.
    /// They leave by as few calls as the system offers, which needs that each is one packet.
    ///
    /// # Panics
    /// If the length is 0.
    pub fn send_all(&self, port: usize, to: SocketAddr, bytes: &[u8], length: usize) -> usize {
        let Line { socket, state, .. } = &self.lines[port];
        let together = state.max_gso_segments().min(MAX_BATCH / length).max(1);
        let send = |batch: &[u8]| {
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: batch,
                segment_size: Some(length),
                src_ip: None,
            };
            if batch.len() > length && state.try_send(socket.into(), &transmit).is_ok() {
                return batch.len().div_ceil(length);
            }
            // What the system would not send together it may send alone.
            batch.chunks(length).filter(|datagram| self.send(port, to, datagram)).count()
        };
        bytes.chunks(together * length).map(send).sum()
    }
}

/// Readable when there is something of which [`wait`](Ports::wait) would tell: for a wait that others share.
impl AsFd for Ports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Waits until a socket has room again, for a while.
fn writable(socket: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, ppoll};
    let mut fds = [PollFd::new(socket, PollFlags::POLLOUT)];
    let limit = nix::sys::time::TimeSpec::from_duration(PATIENCE.into());
    ppoll(&mut fds, Some(limit), None).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn one_wait_hears_all_sockets_what_is_watched_and_the_time() {
        let clock = Clock::start();
        let mut ports = Ports::new(clock).unwrap();
        let at: Vec<SocketAddr> = (0..3)
            .map(|n| {
                let port = ports.add(socket()).unwrap();
                assert_eq!(port, n);
                ports.socket(port).local_addr().unwrap()
            })
            .collect();
        let (pipe, mut rope) = io::pipe().unwrap();
        assert_eq!(ports.watch(&pipe).unwrap(), 0);
        let until = clock.now() + Span::from_ms(2);
        while clock.now() < until {
            assert_eq!(ports.wait(clock.now(), Some(until)).unwrap(), Ready::default());
        }
        let sender = socket();
        sender.send_to(b"to one", at[1]).unwrap();
        sender.send_to(b"again", at[1]).unwrap();
        io::Write::write(&mut rope, b"!").unwrap();
        let mut got = Vec::new();
        let mut rung = false;
        while got.len() < 2 || !rung {
            let ready = ports.wait(clock.now(), None).unwrap();
            assert!(!ready.has(0) && !ready.has(2));
            rung |= ready.watched(0);
            ports
                .receive(1, BATCH_SIZE, |came, bytes| {
                    assert_eq!(came.from, sender.local_addr().unwrap());
                    assert_eq!(came.to, Some(at[1].ip()));
                    assert!(came.interface.is_some_and(|index| index > 0));
                    got.extend(Segment::frames(came.segment, bytes).map(<[u8]>::to_vec));
                })
                .unwrap();
        }
        assert_eq!(got, [b"to one".to_vec(), b"again".to_vec()]);
    }

    #[test]
    fn a_refusal_names_whom_it_was_sent_to_and_ends_nothing() {
        let clock = Clock::start();
        let mut ports = Ports::new(clock).unwrap();
        let port = ports.add(socket()).unwrap();
        let (gone, there) = (socket(), socket());
        let (nobody, somebody) = (gone.local_addr().unwrap(), there.local_addr().unwrap());
        // It hears one other only. If it were closed, programs that other tests start would have it until they are loaded.
        gone.connect("127.0.0.1:9").unwrap();
        for _ in 0..3 {
            assert!(ports.send(port, nobody, b"is anybody there?"));
            assert!(ports.send(port, somebody, b"you are"));
        }
        assert!(ports.wait(clock.now(), None).unwrap().refused(port), "a refusal wakes");
        for _ in 0..3 {
            assert_eq!(ports.refused(port), Some(nobody));
        }
        assert_eq!(ports.refused(port), None);
        there.set_nonblocking(true).unwrap();
        let got = (0..9).take_while(|_| there.recv(&mut [0; 99]).is_ok()).count();
        assert_eq!(got, 3, "none was lost to a refusal of another");
        ports.receive(port, BATCH_SIZE, |_, _| panic!("nothing came")).unwrap();
    }

    #[test]
    fn datagrams_that_leave_together_come_one_by_one() {
        let ports = &mut Ports::new(Clock::start()).unwrap();
        let port = ports.add(socket()).unwrap();
        let program = socket();
        program.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let at = program.local_addr().unwrap();
        // More than one call takes, with a shorter one at the end; one alone; and some that are no packets.
        for (length, octets) in [(150, 100 * 150 + 7), (150, 150), (150, 20), (30_000, 65_000)] {
            let bytes: Vec<u8> = (0..octets).map(|at| (at / length) as u8).collect();
            assert_eq!(ports.send_all(port, at, &bytes, length), octets.div_ceil(length));
            for datagram in bytes.chunks(length) {
                let mut room = vec![0; ROOM];
                let got = program.recv(&mut room).unwrap();
                assert_eq!(room[..got], *datagram);
            }
        }
    }

    #[test]
    fn the_longest_datagram_leaves_and_comes() {
        let clock = Clock::start();
        let mut ports = Ports::new(clock).unwrap();
        let [from, to] = [(); 2].map(|()| ports.add(socket()).unwrap());
        let at = ports.socket(to).local_addr().unwrap();
        let bytes = vec![7; crate::batch::LARGEST];
        assert!(ports.send(from, at, &bytes));
        while !ports.wait(clock.now(), None).unwrap().has(to) {}
        let mut length = 0;
        ports.receive(to, BATCH_SIZE, |_, got| length = got.len()).unwrap();
        assert_eq!(length, bytes.len());
    }
}

//! [`Ports`]: several UDP sockets served by one thread with one wait.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use trunkline_endpoint::{MAX_BATCH, Segment};
use trunkline_units::{Instant, Span};

use crate::batch::send_with_dscp;
use crate::clock::Clock;
use crate::poller::Poller;
use crate::socket::{self, is_icmp_error};
use crate::timer::Timer;

/// Buffer for one coalesced batch.
const BUFFER_SIZE: usize = 1 << 16;
/// Distance between buffers. A power of two would map all buffers to the same cache sets.
const STRIDE: usize = BUFFER_SIZE + (8 << 10) + 64;
/// Bytes to receive in one call: what stays in the nearest cache until it is processed.
const CACHE_BYTES: usize = 32 << 10;
/// Receive buffer of a socket in bytes, where the process may set it; else the system's maximum.
const RECEIVE_BUFFER: usize = 16 << 20;
/// How long a send waits for buffer space before the datagram is dropped.
const SEND_TIMEOUT: Span = Span::from_ms(10);
/// Key of the timer; sockets and watched descriptors have their indices.
const TIMER: u64 = u64::MAX;
/// First key of watched descriptors.
const WATCHED: u64 = 1 << 32;

/// Several UDP sockets, indexed in the order they were added. Receives in batches and reports which destinations refused
/// datagrams, over IPv4.
#[derive(Debug)]
pub struct Ports {
    poller: Poller,
    timer: Timer,
    sockets: Vec<PortSocket>,
    watched: usize,
    buffers: Vec<u8>,
}

#[derive(Debug)]
struct PortSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Whether packets have a DSCP.
    has_dscp: bool,
    /// Batches to request in the next receive call.
    batch_count: usize,
    /// Length of the last batch.
    last_length: usize,
}

/// Result of a wait: readable sockets, sockets with errors, and readable watched descriptors, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    sockets: u64,
    refused: u64,
    watched: u64,
}

impl Ready {
    /// Returns whether a socket is readable.
    pub fn has(self, port: usize) -> bool {
        self.sockets & 1 << port != 0
    }

    /// Returns whether a socket has a refusal to [report](Ports::refused).
    pub fn refused(self, port: usize) -> bool {
        self.refused & 1 << port != 0
    }

    /// Returns whether a watched descriptor is readable.
    pub fn watched(self, number: usize) -> bool {
        self.watched & 1 << number != 0
    }
}

/// A received batch: datagrams of equal length from one peer; the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Source address.
    pub from: SocketAddr,
    /// Destination: an address of this machine or a group.
    pub to: Option<IpAddr>,
    /// Interface index.
    pub interface: Option<u32>,
    /// Segment of a batch; `None` for a single datagram.
    pub segment: Option<Segment>,
}

impl Ports {
    /// Creates an empty set that uses `clock`.
    ///
    /// # Errors
    /// System errors.
    pub fn new(clock: Clock) -> io::Result<Ports> {
        let (poller, timer) = (Poller::new()?, Timer::new(clock)?);
        poller.add(&timer, TIMER)?;
        Ok(Ports { poller, timer, sockets: Vec::new(), watched: 0, buffers: vec![0; STRIDE * BATCH_SIZE] })
    }

    /// Adds a socket, makes it non-blocking, and returns its index. Datagrams longer than the MTU leave in fragments.
    ///
    /// # Errors
    /// System errors.
    ///
    /// # Panics
    /// If there are 64 already.
    pub fn add(&mut self, socket: UdpSocket) -> io::Result<usize> {
        assert!(self.sockets.len() < 64, "at most 64 sockets");
        let state = UdpSocketState::new((&socket).into())?;
        // `UdpSocketState` forbids fragments, and enables control messages that nothing here reads.
        let local = socket.local_addr()?;
        socket::allow_fragments(&socket, local)?;
        socket::prepare_port(&socket, local, RECEIVE_BUFFER)?;
        self.poller.add(&socket, self.sockets.len() as u64)?;
        let has_dscp = socket::has_dscp(&socket, local);
        self.sockets.push(PortSocket { socket, state, has_dscp, batch_count: 1, last_length: 0 });
        Ok(self.sockets.len() - 1)
    }

    /// Returns whether the system may coalesce datagrams of one sender (GRO).
    pub fn coalesces(&self, port: usize) -> bool {
        self.sockets[port].state.gro_segments() > 1
    }

    /// Watches another descriptor and returns its index.
    ///
    /// # Errors
    /// System errors.
    ///
    /// # Panics
    /// If there are 64 already.
    pub fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        assert!(self.watched < 64, "at most 64 descriptors");
        self.poller.add(thing, WATCHED + self.watched as u64)?;
        self.watched += 1;
        Ok(self.watched - 1)
    }

    /// Returns the number of sockets.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns whether there are no sockets.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns a socket by its index.
    ///
    /// # Panics
    /// If there is no such socket.
    pub fn socket(&self, port: usize) -> &UdpSocket {
        &self.sockets[port].socket
    }

    /// Waits until a descriptor is readable or the clock shows `until`; without `until` possibly forever. A signal
    /// also ends the wait.
    ///
    /// # Errors
    /// System errors of the wait.
    pub fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<Ready> {
        let may_wait = match until {
            Some(at) if at <= now => false,
            Some(at) => {
                self.timer.arm(at)?;
                true
            }
            None => true,
        };
        let (mut ready, timer) = (Ready::default(), &mut self.timer);
        self.poller.wait(may_wait, |event| {
            match event.key {
                TIMER => timer.acknowledge()?,
                port @ 0..WATCHED => {
                    ready.sockets |= u64::from(event.is_readable) << port;
                    ready.refused |= u64::from(event.has_error) << port;
                }
                other => ready.watched |= 1 << (other - WATCHED),
            }
            Ok(())
        })?;
        Ok(ready)
    }

    /// Receives queued datagrams of a socket: at most `most` batches, and no more than 32. Long batches take several
    /// calls.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(
        &mut self,
        port: usize,
        most: usize,
        mut each: impl FnMut(&Received, &[u8]),
    ) -> io::Result<()> {
        let line = &mut self.sockets[port];
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut rooms = self.buffers.chunks_exact_mut(STRIDE);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            IoSliceMut::new(&mut rooms.next().expect("a room for each")[..BUFFER_SIZE])
        });
        // A request for more batches than are queued costs an extra check.
        let expected = line.batch_count.min(most.clamp(1, BATCH_SIZE));
        let mut taken = 0;
        while taken < expected {
            let near = (CACHE_BYTES / line.last_length.max(1)).clamp(1, BATCH_SIZE);
            let asked = near.min(expected - taken);
            let count = match line.state.recv((&line.socket).into(), &mut slices[..asked], &mut metas) {
                Ok(count) => count,
                Err(e) if socket::is_timeout(&e) || is_icmp_error(&e) => break,
                Err(e) => return Err(e),
            };
            for (meta, bytes) in metas.iter().zip(&slices).take(count) {
                let segment = Segment::of(meta.stride, meta.len);
                let (from, to, interface) = (meta.addr, meta.dst_ip, meta.interface_index);
                each(&Received { from, to, interface, segment }, &bytes[..meta.len]);
                line.last_length = meta.len;
            }
            taken += count;
            if count < asked {
                break;
            }
        }
        line.batch_count = if taken == expected { BATCH_SIZE.min(2 * taken) } else { taken.max(1) };
        Ok(())
    }

    /// Returns the destination of the oldest unreported datagram that was refused (ICMP port or host unreachable);
    /// always `None` where the [system](crate::platform) does not report it.
    pub fn refused(&self, port: usize) -> Option<SocketAddr> {
        socket::refused(&self.sockets[port].socket)
    }

    /// Sends a datagram; waits briefly for buffer space. Returns false if it is lost.
    pub fn send(&self, port: usize, to: SocketAddr, bytes: &[u8]) -> bool {
        let socket = &self.sockets[port].socket;
        // Up to two calls may report the fate of earlier datagrams instead of sending this one.
        for _ in 0..3 {
            match socket.send_to(bytes, to) {
                Ok(_) => return true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !writable(socket.as_fd()) {
                        return false;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted || is_icmp_error(&e) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Sends concatenated datagrams of `length` bytes each (the last may be shorter) and returns how many were sent.
    /// Uses segmentation offload if each datagram fits into one packet.
    ///
    /// # Panics
    /// If the length is 0.
    pub fn send_all(&self, port: usize, to: SocketAddr, bytes: &[u8], length: usize) -> usize {
        let PortSocket { socket, state, has_dscp, .. } = &self.sockets[port];
        let together = state.max_gso_segments().min(MAX_BATCH / length).max(1);
        let send = |batch: &[u8]| {
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: batch,
                segment_size: Some(length),
                src_ip: None,
            };
            let is_sent = batch.len() > length
                && match has_dscp {
                    true => send_with_dscp(socket, to, batch, Some(length)).is_ok(),
                    false => state.try_send(socket.into(), &transmit).is_ok(),
                };
            if is_sent {
                return batch.len().div_ceil(length);
            }
            // Datagrams that the system refuses to segment may leave one by one.
            batch.chunks(length).filter(|datagram| self.send(port, to, datagram)).count()
        };
        bytes.chunks(together * length).map(send).sum()
    }
}

/// Readable when [`wait`](Ports::wait) would return; for use in another wait.
impl AsFd for Ports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Waits until a socket is writable, for a limited time.
fn writable(socket: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(socket, PollFlags::POLLOUT)];
    socket::poll(&mut descriptors, Some(SEND_TIMEOUT)).is_ok_and(|is_writable| is_writable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn one_wait_covers_sockets_descriptors_and_deadline() {
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
    fn refusal_names_its_destination_and_loses_nothing_else() {
        let clock = Clock::start();
        let mut ports = Ports::new(clock).unwrap();
        let port = ports.add(socket()).unwrap();
        let (gone, there) = (socket(), socket());
        let (nobody, somebody) = (gone.local_addr().unwrap(), there.local_addr().unwrap());
        // Connected elsewhere, so that it refuses; if closed, a process started by another test could take the port.
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
    fn segmented_datagrams_arrive_one_by_one() {
        let ports = &mut Ports::new(Clock::start()).unwrap();
        let port = ports.add(socket()).unwrap();
        let program = socket();
        program.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let at = program.local_addr().unwrap();
        // More than one call carries, with a short last datagram; a single one; one that is short; and some longer
        // than a packet.
        for (length, octets) in [(150, 100 * 150 + 7), (150, 150), (150, 20), (30_000, 65_000)] {
            let bytes: Vec<u8> = (0..octets).map(|at| (at / length) as u8).collect();
            assert_eq!(ports.send_all(port, at, &bytes, length), octets.div_ceil(length));
            for datagram in bytes.chunks(length) {
                let mut room = vec![0; BUFFER_SIZE];
                let got = program.recv(&mut room).unwrap();
                assert_eq!(room[..got], *datagram);
            }
        }
    }

    #[test]
    fn longest_datagram_is_sent_and_received() {
        let clock = Clock::start();
        let mut ports = Ports::new(clock).unwrap();
        let [from, to] = [(); 2].map(|()| ports.add(socket()).unwrap());
        let at = ports.socket(to).local_addr().unwrap();
        let bytes = vec![7; crate::batch::MAX_DATAGRAM];
        assert!(ports.send(from, at, &bytes));
        while !ports.wait(clock.now(), None).unwrap().has(to) {}
        let mut length = 0;
        ports.receive(to, BATCH_SIZE, |_, got| length = got.len()).unwrap();
        assert_eq!(length, bytes.len());
    }
}

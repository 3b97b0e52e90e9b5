//! Many datagrams per system call: UDP segmentation offload (GSO) for sending, receive coalescing (GRO) for
//! receiving.
//!
//! One datagram per call costs about a microsecond, mostly fixed; a batch of 46 costs little more. Offload destroys
//! the gaps between the datagrams of a batch, so paced traffic must not use it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::{MsgFlags, SockaddrStorage, sendmsg};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use trunkline_units::Span;

use crate::socket;

/// Maximum payload of one UDP datagram over IPv4, and so of a batch, in bytes.
pub const MAX_DATAGRAM: usize = 65_507;

/// Sends batches of datagrams of equal length.
#[derive(Debug)]
pub struct BatchSender {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    /// The longest datagram that fits into one packet.
    packet: usize,
    /// Whether packets have a DSCP, which [`UdpSocketState`] would overwrite.
    has_dscp: bool,
}

impl BatchSender {
    /// Creates a sender over `socket` to `peer`.
    pub fn new(socket: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // `UdpSocketState` makes the socket non-blocking; a sender at full speed must block.
        socket.set_nonblocking(false)?;
        // It also forbids fragments, but a message may be longer than a packet.
        let packet = socket::allow_fragments(&socket, peer)?.unwrap_or(MAX_DATAGRAM);
        let has_dscp = socket::has_dscp(&socket, peer);
        Ok(BatchSender { socket, state, peer, packet, has_dscp })
    }

    /// Returns how many datagrams of `length` bytes one call carries: 1 without offload, or if a datagram exceeds a
    /// packet.
    pub fn capacity(&self, length: usize) -> usize {
        if length > self.packet {
            return 1;
        }
        self.state.max_gso_segments().min(MAX_DATAGRAM / length.max(1)).max(1)
    }

    /// Sends the concatenated `datagrams` of `length` bytes each; the last may be shorter.
    pub fn send(&self, datagrams: &[u8], length: usize) -> io::Result<()> {
        let segment_size = (datagrams.len() > length).then_some(length);
        if self.has_dscp {
            return send_with_dscp(&self.socket, self.peer, datagrams, segment_size);
        }
        let transmit =
            Transmit { destination: self.peer, ecn: None, contents: datagrams, segment_size, src_ip: None };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Sends datagrams with the socket's own traffic class, which [`UdpSocketState`] would overwrite.
pub(crate) fn send_with_dscp(
    socket: &UdpSocket,
    peer: SocketAddr,
    datagrams: &[u8],
    segment_size: Option<usize>,
) -> io::Result<()> {
    let segment_size = segment_size.map(|length| length as u16);
    let segmentation = segment_size.as_ref().and_then(socket::segmentation);
    let peer = SockaddrStorage::from(peer);
    let slices = [IoSlice::new(datagrams)];
    sendmsg(socket.as_raw_fd(), &slices, segmentation.as_slice(), MsgFlags::empty(), Some(&peer))?;
    Ok(())
}

/// A received batch of datagrams of equal length; the last may be shorter.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Source address.
    pub peer: SocketAddr,
    /// The datagrams, concatenated.
    pub bytes: &'a [u8],
    /// Length of each datagram.
    pub stride: usize,
}

impl<'a> Batch<'a> {
    /// Iterates over the datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.stride.max(1))
    }
}

/// Receives batches. Its 256 KiB of buffers stay in the processor's cache until they are processed.
#[derive(Debug)]
pub struct BatchReceiver {
    socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    coalescing: bool,
    /// Whether anything was received since the last sleep.
    busy: bool,
}

/// How long a receiver lets the socket buffer fill after it has emptied it.
pub const FILL_TIME: Span = Span::from_us(50);

/// Size of a buffer for one coalesced batch, and the number of buffers.
const BUFFER_SIZE: usize = 1 << 16;
const BUFFERS: usize = if BATCH_SIZE < 4 { BATCH_SIZE } else { 4 };

impl BatchReceiver {
    /// Creates a receiver over `socket`, which becomes non-blocking.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let coalescing = state.gro_segments() > 1;
        Ok(BatchReceiver { socket, state, buffers: vec![0; BUFFER_SIZE * BUFFERS], coalescing, busy: false })
    }

    /// Returns whether the system coalesces received datagrams.
    pub fn coalesces(&self) -> bool {
        self.coalescing
    }

    /// Passes received batches to `each` and returns their number. If nothing is queued, sleeps for [`FILL_TIME`]
    /// first, then waits at most `limit` for a datagram.
    ///
    /// The sleep lets a fast sender fill the buffer: each wakeup costs the sender as much as a third of a batch.
    pub fn receive(&mut self, limit: Span, mut each: impl FnMut(Batch<'_>)) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut rooms = self.buffers.chunks_exact_mut(BUFFER_SIZE);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().expect("a room for each")));
        let count = match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
            Ok(count) => count,
            Err(e) if socket::is_timeout(&e) => {
                if std::mem::take(&mut self.busy) {
                    std::thread::sleep(FILL_TIME.into());
                } else {
                    socket::readable(&self.socket, limit)?;
                }
                return Ok(0);
            }
            Err(e) => return Err(e),
        };
        self.busy = true;
        for (meta, bytes) in metas.iter().zip(&slices).take(count) {
            each(Batch { peer: meta.addr, bytes: &bytes[..meta.len], stride: meta.stride });
        }
        Ok(count)
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::sockopt::{IpRecvTos, Ipv6RecvTClass};
    use nix::sys::socket::{ControlMessageOwned, SetSockOpt, recvmsg};

    use super::*;

    /// Returns the traffic class of the next datagram.
    fn receive_traffic_class(socket: &UdpSocket) -> i32 {
        let (mut buffer, mut control) = ([0; 2000], nix::cmsg_space!(i32, i32));
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags).unwrap();
        let class = message.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::Ipv4Tos(class) => Some(i32::from(class)),
            ControlMessageOwned::Ipv6TClass(class) => Some(class),
            _ => None,
        });
        class.expect("the kernel reports the traffic class")
    }

    #[test]
    fn single_datagrams_and_batches_have_the_dscp() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let local: SocketAddr = local.parse().unwrap();
            let Ok(to) = socket::udp(local, &socket::Options::default()) else { continue };
            match local {
                SocketAddr::V4(_) => IpRecvTos.set(&to, &true).unwrap(),
                SocketAddr::V6(_) => Ipv6RecvTClass.set(&to, &true).unwrap(),
            }
            socket::limit_blocking(&to, Span::from_s(20)).unwrap();
            for dscp in [None, Some(0), Some(46), Some(63)] {
                let options = socket::Options { dscp, ..socket::Options::default() };
                let from = socket::udp(local, &options).unwrap();
                from.send_to(&[1; 100], to.local_addr().unwrap()).unwrap();
                let sender = BatchSender::new(from, to.local_addr().unwrap()).unwrap();
                let count = sender.capacity(100).min(5);
                sender.send(&[2; 500][..100 * count], 100).unwrap();
                sender.send(&[3; 100], 100).unwrap();
                for _ in 0..count + 2 {
                    assert_eq!(receive_traffic_class(&to), i32::from(dscp.unwrap_or(0)) << 2, "{local}");
                }
            }
        }
    }

    #[test]
    fn batch_arrives_as_datagrams() {
        let local = "127.0.0.1:0".parse().unwrap();
        let from = socket::udp(local, &socket::Options::default()).unwrap();
        let to = socket::udp(local, &socket::Options::default()).unwrap();
        let sender = BatchSender::new(from, to.local_addr().unwrap()).unwrap();
        let mut receiver = BatchReceiver::new(to).unwrap();
        let count = sender.capacity(100).min(5);
        let mut bytes: Vec<u8> = (0..count).flat_map(|i| [i as u8; 100]).collect();
        bytes.truncate(bytes.len() - 30);
        sender.send(&bytes, 100).unwrap();
        let mut got = Vec::new();
        while got.len() < count {
            receiver
                .receive(Span::from_s(5), |b| got.extend(b.datagrams().map(|d| (d[0], d.len()))))
                .unwrap();
        }
        let want: Vec<_> = (0..count).map(|i| (i as u8, if i + 1 == count { 70 } else { 100 })).collect();
        assert_eq!(got, want);
        assert_eq!(sender.capacity(MAX_DATAGRAM), 1);
    }
}

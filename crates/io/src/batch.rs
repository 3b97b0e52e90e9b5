//! Many datagrams a system call: UDP segmentation offload on the way out, receive coalescing on the way in.
//!
//! One datagram a call costs about a microsecond, most of it fixed; a batch of 46 costs little more. Offload
//! destroys the gaps between the datagrams of a batch, so nothing that is paced may use it.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use trunkline_units::Span;

use crate::socket;

/// The most bytes one UDP datagram, and so one batch, may carry over IPv4.
pub const LARGEST: usize = 65_507;

/// Sends batches of equal datagrams.
#[derive(Debug)]
pub struct BatchSender {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    /// The longest datagram that is one packet: segments are packets.
    packet: usize,
}

impl BatchSender {
    /// Over `socket`, to `peer`.
    pub fn new(socket: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // Quinn's state makes the socket non-blocking; a sender at full speed is to wait.
        socket.set_nonblocking(false)?;
        // And it forbids fragments, but a message may be longer than a packet.
        let packet = socket::allow_fragments(&socket, peer)?.unwrap_or(LARGEST);
        Ok(BatchSender { socket, state, peer, packet })
    }

    /// How many datagrams of `length` bytes one call carries; 1 where the system offers no offload, or each is longer
    /// than a packet.
    pub fn capacity(&self, length: usize) -> usize {
        if length > self.packet {
            return 1;
        }
        self.state.max_gso_segments().min(LARGEST / length.max(1)).max(1)
    }

    /// Sends `datagrams`: as many as fit, each `length` bytes (the last may be shorter).
    pub fn send(&self, datagrams: &[u8], length: usize) -> io::Result<()> {
        let segment_size = (datagrams.len() > length).then_some(length);
        let transmit =
            Transmit { destination: self.peer, ecn: None, contents: datagrams, segment_size, src_ip: None };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// The socket, to receive on or to ask.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Datagrams that came in one piece: equal lengths, the last may be shorter.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Who sent them.
    pub peer: SocketAddr,
    /// All of them, end to end.
    pub bytes: &'a [u8],
    /// Length of each.
    pub stride: usize,
}

impl<'a> Batch<'a> {
    /// One by one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.stride.max(1))
    }
}

/// Receives batches. Holds 256 KiB: few enough rooms that what the kernel copies in is still in the processor's cache
/// when it is looked at.
#[derive(Debug)]
pub struct BatchReceiver {
    socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    coalescing: bool,
    /// Whether something came since the last nap.
    busy: bool,
}

/// How long a receiver lets the buffer fill once it has emptied it.
pub const NAP: Span = Span::from_us(50);

/// Room for one coalesced batch, and how many are taken at once.
const ROOM: usize = 1 << 16;
const ROOMS: usize = if BATCH_SIZE < 4 { BATCH_SIZE } else { 4 };

impl BatchReceiver {
    /// Over `socket`, which it makes non-blocking.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let coalescing = state.gro_segments() > 1;
        Ok(BatchReceiver { socket, state, buffers: vec![0; ROOM * ROOMS], coalescing, busy: false })
    }

    /// Whether the system joins datagrams on the way in.
    pub fn coalesces(&self) -> bool {
        self.coalescing
    }

    /// What has arrived, handed to `each` batch by batch; how many batches. If nothing has, waits: at first for
    /// [`NAP`] whatever comes, then for at most `limit` until something does.
    ///
    /// The nap lets a fast sender fill the buffer undisturbed: to wake a sleeper costs the sender as much as a third of
    /// a batch.
    pub fn receive(&mut self, limit: Span, mut each: impl FnMut(Batch<'_>)) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); ROOMS];
        let mut rooms = self.buffers.chunks_exact_mut(ROOM);
        let mut slices: [IoSliceMut<'_>; ROOMS] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().expect("a room for each")));
        let count = match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
            Ok(count) => count,
            Err(e) if socket::is_timeout(&e) => {
                if std::mem::take(&mut self.busy) {
                    std::thread::sleep(NAP.into());
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

    /// The socket, to answer on or to ask.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_arrives_as_its_datagrams() {
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
        assert_eq!(sender.capacity(LARGEST), 1);
    }
}

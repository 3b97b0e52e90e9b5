//! The UDP socket below a loop, and its receive buffers.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_io::datagrams::{BUFFER_SIZE, Received};
use trunkline_io::shared_loop::Link;
use trunkline_io::{Clock, Datagrams};
use trunkline_units::{Instant, Span};

/// Maximum batches received before the endpoint may transmit.
const MAX_BATCHES: usize = 4;

/// A UDP socket.
#[derive(Debug)]
pub(super) struct UdpLink {
    pub socket: Datagrams,
    clock: Clock,
    /// Whether receive calls are timed, for a probe.
    is_timed: AtomicBool,
}

/// Receive buffers. The thread that owns them receives for all threads.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    bytes: Box<[u8]>,
    batches: [ReceivedBatch; MAX_BATCHES],
    count: usize,
}

/// A received batch, and the start and end of the call that received it, if calls are timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedBatch {
    pub received: Received,
    pub call: Option<(Instant, Instant)>,
}

impl UdpLink {
    pub fn new(socket: Datagrams, clock: Clock) -> UdpLink {
        UdpLink { socket, clock, is_timed: AtomicBool::new(false) }
    }

    /// Times receive calls from now on, and requests timestamps of the kernel.
    pub fn time_calls(&self) {
        self.is_timed.store(true, Ordering::Relaxed);
        // Without timestamps less is measured.
        let _ = self.socket.enable_timestamps();
    }

    #[inline(always)]
    fn receive_batch(&self, buffer: &mut [u8], wait: bool) -> io::Result<Option<ReceivedBatch>> {
        if self.is_timed.load(Ordering::Relaxed) {
            return self.receive_timed(buffer, wait);
        }
        Ok(self.socket.receive(buffer, wait)?.map(|received| ReceivedBatch { received, call: None }))
    }

    #[inline(never)]
    fn receive_timed(&self, buffer: &mut [u8], wait: bool) -> io::Result<Option<ReceivedBatch>> {
        let began = self.clock.now();
        let received = self.socket.receive(buffer, wait)?;
        let call = Some((began, self.clock.now()));
        Ok(received.map(|received| ReceivedBatch { received, call }))
    }

    /// Receives the batches that are there; with `wait`, waits for the first one. Continues only after a whole batch,
    /// which shows that the peer is in full flow: otherwise the extra call would find nothing.
    #[inline(always)]
    pub fn receive_into(&self, buffers: &mut ReceiveBuffers, wait: bool) -> io::Result<()> {
        buffers.count = 0;
        let Some(batch) = self.receive_batch(&mut buffers.bytes[..BUFFER_SIZE], wait)? else { return Ok(()) };
        (buffers.batches[0], buffers.count) = (batch, 1);
        if batch.is_single() { Ok(()) } else { self.receive_more(buffers) }
    }

    fn receive_more(&self, buffers: &mut ReceiveBuffers) -> io::Result<()> {
        for buffer in buffers.bytes.chunks_exact_mut(BUFFER_SIZE).skip(1) {
            let Some(batch) = self.receive_batch(buffer, false)? else { break };
            buffers.batches[buffers.count] = batch;
            buffers.count += 1;
            if batch.is_single() {
                break;
            }
        }
        Ok(())
    }
}

impl ReceivedBatch {
    /// Returns whether the batch is a single frame.
    #[inline]
    fn is_single(&self) -> bool {
        self.received.stride >= self.received.length
    }
}

impl ReceiveBuffers {
    pub fn new() -> Box<ReceiveBuffers> {
        let from = (Ipv4Addr::UNSPECIFIED, 0).into();
        let received = Received { from, length: 0, stride: 0, timestamp: None };
        Box::new(ReceiveBuffers {
            bytes: vec![0; MAX_BATCHES * BUFFER_SIZE].into(),
            batches: [ReceivedBatch { received, call: None }; MAX_BATCHES],
            count: 0,
        })
    }

    /// Returns whether nothing was received.
    #[cfg(feature = "tokio")]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the received batches and their bytes.
    #[inline]
    pub fn batches(&self) -> impl Iterator<Item = (&ReceivedBatch, &[u8])> {
        let batches = self.batches[..self.count].iter().zip(self.bytes.chunks_exact(BUFFER_SIZE));
        batches.map(|(batch, buffer)| (batch, &buffer[..batch.received.length]))
    }

    /// Returns the received frame, if it is the only one.
    #[inline]
    pub fn single_frame(&self) -> Option<(&ReceivedBatch, &[u8])> {
        let batch = &self.batches[0];
        (self.count == 1 && batch.is_single()).then(|| (batch, &self.bytes[..batch.received.length]))
    }
}

impl Link for UdpLink {
    type Buffers = Box<ReceiveBuffers>;

    fn buffers(&self) -> Box<ReceiveBuffers> {
        ReceiveBuffers::new()
    }

    #[inline]
    fn receive(&self, buffers: &mut Box<ReceiveBuffers>, wait: Option<Span>) -> io::Result<()> {
        self.receive_into(buffers, wait.is_some())
    }

    fn has_received(buffers: &Box<ReceiveBuffers>) -> bool {
        buffers.count > 0
    }

    fn wake(&self, _now: Instant) {
        self.socket.wake();
    }

    fn second_socket(&self) -> Option<Arc<UdpSocket>> {
        self.socket.unconnected_socket()
    }
}

impl AsFd for UdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

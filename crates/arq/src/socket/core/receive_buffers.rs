//! Receives batches of datagrams from a socket.

use std::io;
use std::net::Ipv4Addr;

use trunkline_io::datagrams::{BUFFER_SIZE, Received};
use trunkline_io::{Clock, Datagrams};
use trunkline_units::Instant;

/// Maximum batches received before the endpoint may transmit.
const MAX_RECEIVED_BATCHES: usize = 4;

/// Receive buffers. The thread that owns them receives for all threads.
pub struct ReceiveBuffers {
    pub bytes: Box<[u8]>,
    /// The received batches; the first `count` are valid.
    pub arrived: [Received; MAX_RECEIVED_BATCHES],
    pub count: usize,
    /// Times the receive calls, for a probe; and their start and end.
    pub timed_by: Option<Clock>,
    pub calls: [(Instant, Instant); MAX_RECEIVED_BATCHES],
}

impl ReceiveBuffers {
    pub fn new() -> Box<ReceiveBuffers> {
        let from = (Ipv4Addr::UNSPECIFIED, 0).into();
        let nothing = Received { from, length: 0, stride: 0, timestamp: None };
        Box::new(ReceiveBuffers {
            bytes: vec![0; MAX_RECEIVED_BATCHES * BUFFER_SIZE].into(),
            arrived: [nothing; MAX_RECEIVED_BATCHES],
            count: 0,
            timed_by: None,
            calls: [(Instant::ZERO, Instant::ZERO); MAX_RECEIVED_BATCHES],
        })
    }

    /// Receives pending batches; with `wait`, waits for the first one. Continues only after a whole batch, which
    /// shows that the peer is in full flow: otherwise the extra call would find nothing.
    #[inline(always)]
    pub fn receive(&mut self, socket: &Datagrams, wait: bool) -> io::Result<()> {
        self.count = 0;
        let began = self.timed_by.map(Clock::now);
        let Some(received) = socket.receive(&mut self.bytes[..BUFFER_SIZE], wait)? else { return Ok(()) };
        if let (Some(clock), Some(began)) = (self.timed_by, began) {
            self.calls[0] = (began, clock.now());
        }
        let is_single = received.stride >= received.length;
        (self.arrived[0], self.count) = (received, 1);
        if is_single { Ok(()) } else { self.receive_more(socket) }
    }

    /// Receives batches that are already there.
    fn receive_more(&mut self, socket: &Datagrams) -> io::Result<()> {
        for buffer in self.bytes.chunks_exact_mut(BUFFER_SIZE).skip(1) {
            let began = self.timed_by.map(Clock::now);
            let Some(received) = socket.receive(buffer, false)? else { break };
            if let (Some(clock), Some(began)) = (self.timed_by, began) {
                self.calls[self.count] = (began, clock.now());
            }
            self.arrived[self.count] = received;
            self.count += 1;
            if received.stride >= received.length {
                break;
            }
        }
        Ok(())
    }
}

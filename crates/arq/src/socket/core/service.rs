//! What the loop of a blocking socket, and the driver of a socket for `tokio`, do with the state.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use trunkline_endpoint::{Endpoint, Input, Output, Writable};
use trunkline_io::Datagrams;
use trunkline_io::datagrams::BUFFER_SIZE;
use trunkline_io::peer::address_of;
use trunkline_io::shared_loop::{Service, TimedOut};
use trunkline_units::{Instant, Span};

use super::send_frames::send_observed;
use super::{
    Core, MAX_TRANSMIT_DELAY, MAX_UNCONNECTED_DATAGRAMS, MAX_UNPOLLED_BATCHES, ReceiveBuffers, URGENT_WEIGHT,
};
use crate::socket::Error;

impl From<TimedOut> for Error {
    fn from(_: TimedOut) -> Error {
        Error::TimedOut
    }
}

impl Service for Core {
    type Link = Datagrams;
    type Buffers = Box<ReceiveBuffers>;
    type Error = Error;
    type Target = ();

    const LIMITS_WAITING: bool = false;

    #[inline]
    fn receive(socket: &Datagrams, buffers: &mut Box<ReceiveBuffers>, wait: Option<Span>) -> io::Result<()> {
        buffers.receive(socket, wait.is_some())
    }

    fn wake(socket: &Datagrams, _now: Instant) {
        socket.wake();
    }

    fn second_socket(socket: &Datagrams) -> Option<Arc<UdpSocket>> {
        socket.unconnected_socket()
    }

    #[inline]
    fn must_wait(error: &Error) -> bool {
        matches!(error, Error::NotYet | Error::Full | Error::NotEnough(_))
    }

    #[inline]
    fn is_receiving(&self) -> bool {
        self.buffers.is_none()
    }

    #[inline]
    fn take_buffers(&mut self, _target: Option<()>) -> Option<Box<ReceiveBuffers>> {
        let mut buffers = self.buffers.take()?;
        buffers.timed_by = self.probe.is_some().then_some(self.clock);
        Some(buffers)
    }

    #[inline]
    fn handle_received(
        &mut self,
        now: Instant,
        _socket: &Datagrams,
        buffers: Box<ReceiveBuffers>,
        received: io::Result<()>,
    ) -> bool {
        let has_received = buffers.count > 0 || received.is_err();
        if let Err(error) = received {
            self.fail(error);
        }
        let batches = buffers.bytes.chunks_exact(BUFFER_SIZE).zip(buffers.arrived);
        for (at, (buffer, arrived)) in batches.take(buffers.count).enumerate() {
            let bytes = &buffer[..arrived.length];
            if self.probe.is_some() {
                self.observe_received(&arrived, bytes, buffers.calls[at]);
            }
            self.handle_batch(now, &arrived, bytes);
        }
        self.unpolled_batches = 0;
        self.buffers = Some(buffers);
        has_received
    }

    fn receive_second(&mut self, now: Instant, socket: &UdpSocket) -> bool {
        let mut buffer = std::mem::take(&mut self.unconnected_buffer);
        buffer.resize(BUFFER_SIZE, 0);
        let mut has_received = false;
        for _ in 0..MAX_UNCONNECTED_DATAGRAMS {
            match Datagrams::receive_unconnected(socket, &mut buffer) {
                Ok(None) => break,
                Ok(Some(arrived)) => {
                    has_received = true;
                    self.handle_batch(now, &arrived, &buffer[..arrived.length]);
                }
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        self.unconnected_buffer = buffer;
        has_received
    }

    #[inline]
    fn transmit(&mut self, now: Instant, socket: &Datagrams) {
        if self.is_due(now) || self.unpolled_batches >= MAX_UNPOLLED_BATCHES {
            // Received frames may cancel the deadline.
            self.receive_pending(now, socket);
        }
        if self.is_due(now) {
            self.node.handle(now, Input::Wake).expect("only commands are refused");
        }
        if self.failed.is_some() {
            return self.deadline = Instant::MAX;
        }
        self.send_unsent(socket);
        (self.pending_weight, self.transmitted_at) = (0, now);
        loop {
            let writable = if self.unsent.is_none() { Writable::ALL } else { Writable::NONE };
            match self.node.poll_in_place(now, writable, &mut self.output) {
                Output::Transmit(transmit) => {
                    let to = address_of(transmit.peer).expect("an endpoint answers known peers only");
                    let bytes = self.node.transmitted_bytes(&self.output, transmit.length);
                    self.unpolled_batches += 1;
                    self.unsent =
                        send_observed(&mut self.probe, self.clock, socket, &to, bytes, transmit.segment);
                }
                Output::Event(event) => self.record_event(now, event.id, event.kind),
                Output::Idle(idle) => break self.deadline = idle.deadline.unwrap_or(Instant::MAX),
            }
        }
        if !self.flushing.is_empty() {
            self.notify_flushed();
        }
    }

    #[inline]
    fn may_transmit(&mut self, now: Instant) -> bool {
        self.pending_weight > 0 || self.is_due(now)
    }

    /// Transmits after enough input since the last transmission, or after enough time.
    #[inline]
    fn should_transmit(&mut self, now: Instant) -> bool {
        let long = self.pending_weight > 0 && now.since(self.transmitted_at) >= MAX_TRANSMIT_DELAY;
        self.pending_weight >= URGENT_WEIGHT || long || self.is_due(now)
    }

    #[inline]
    fn delays_output(&self) -> bool {
        (1..URGENT_WEIGHT).contains(&self.pending_weight)
    }

    #[inline]
    fn in_full_flow(&self) -> bool {
        self.in_full_flow
    }

    #[inline]
    fn deadline(&self) -> Instant {
        self.deadline
    }

    #[inline]
    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn can_receive(&self) -> bool {
        self.failed.is_none()
    }

    #[inline]
    fn failure(&mut self) -> Option<Error> {
        std::mem::take(&mut self.is_interrupted).then_some(Error::Interrupted)
    }

    #[inline]
    fn is_unused(&self) -> bool {
        self.handles == 0
    }

    fn is_over(&mut self, _now: Instant) -> bool {
        self.handles == 0 && (self.node.connection_count() == 0 || self.failed.is_some())
    }

    fn is_observed(&self) -> bool {
        self.probe.is_some()
    }
}

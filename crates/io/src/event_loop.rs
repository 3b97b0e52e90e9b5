//! The event loop of one thread: an endpoint over UDP sockets and the monotonic clock.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Transmit, Writable};
use trunkline_units::Instant;

use crate::Clock;
use crate::peer::{address_of, peer_of};
use crate::ports::{Ports, Ready, Received};

/// Outputs before sockets are read again: more than one round of input causes, since delayed outputs are lost.
const MAX_OUTPUTS: usize = 16_384;
/// Batches that [`EventLoop::turn`] receives from a socket before the endpoint may transmit.
const MAX_BATCHES: usize = 16;

/// Runs an [`Endpoint`] whose ports are the first sockets of [`Ports`], in order. Peers are made by
/// [`peer_of`].
///
/// [`turn`](EventLoop::turn) waits, receives, and sends. A caller that filters frames or handles send errors itself
/// calls [`wait`](EventLoop::wait), [`receive`](EventLoop::receive) and [`drain`](EventLoop::drain) in this order.
#[derive(Debug)]
pub struct EventLoop<E> {
    /// The endpoint.
    pub endpoint: E,
    /// The sockets.
    pub ports: Ports,
    /// The clock.
    pub clock: Clock,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
}

/// An output of an endpoint.
#[derive(Debug)]
pub enum LoopOutput<'a, V> {
    /// A frame or batch to send.
    Frame(&'a Transmit, &'a [u8]),
    /// An event.
    Event(V),
}

impl<E: Endpoint> EventLoop<E> {
    /// Creates a loop without sockets.
    ///
    /// # Errors
    /// System errors of epoll and the timer.
    pub fn new(endpoint: E, clock: Clock) -> io::Result<EventLoop<E>> {
        let ports = Ports::new(clock)?;
        Ok(EventLoop { endpoint, ports, clock, deadline: Some(Instant::ZERO), buffer: vec![0; MAX_BATCH] })
    }

    /// Creates a loop over one socket, the endpoint's port 0.
    ///
    /// # Errors
    /// System errors of epoll, the timer, or the socket options.
    pub fn over(endpoint: E, socket: UdpSocket, clock: Clock) -> io::Result<EventLoop<E>> {
        let mut event_loop = EventLoop::new(endpoint, clock)?;
        event_loop.ports.add(socket)?;
        Ok(event_loop)
    }

    /// Returns when the endpoint's next timer expires.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Passes a command to the endpoint. Its outputs leave with the next [`drain`](EventLoop::drain), before which
    /// [`wait`](EventLoop::wait) returns at once.
    ///
    /// # Errors
    /// The endpoint's refusal of the command.
    pub fn command(&mut self, command: E::Command<'_>) -> Result<(), E::Refusal> {
        self.deadline = Some(Instant::ZERO);
        self.endpoint.handle(self.clock.now(), Input::Command(command))
    }

    /// Waits for input, the endpoint's deadline, or `until`; then receives from all sockets and sends all output.
    /// Passes events to `on_event`. A frame that cannot be sent is lost.
    ///
    /// # Errors
    /// System errors of epoll or a socket.
    pub fn turn(&mut self, until: Option<Instant>, mut on_event: impl FnMut(E::Event)) -> io::Result<Ready> {
        let ready = self.wait(until)?;
        for socket in (0..self.ports.len()).filter(|socket| ready.has(*socket)) {
            self.receive(Port(socket as u16), MAX_BATCHES, |_, _| true)?;
        }
        self.drain(|_, ports, output| match output {
            LoopOutput::Event(event) => on_event(event),
            LoopOutput::Frame(transmit, frame) => {
                let to = address_of(transmit.peer).expect("an endpoint sends to known peers only");
                let length = transmit.segment.map_or(frame.len(), Segment::length).max(1);
                ports.send_all(usize::from(transmit.port.0), to, frame, length);
            }
        });
        Ok(ready)
    }

    /// Waits for input, the endpoint's deadline, or `until`.
    ///
    /// # Errors
    /// System errors of epoll.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let until = self.deadline.into_iter().chain(until).min();
        self.ports.wait(self.clock.now(), until)
    }

    /// Passes the endpoint the frames that a port received, if `accept` returns true; at most `max_batches` batches.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(
        &mut self,
        port: Port,
        max_batches: usize,
        accept: impl FnMut(&Received, &[u8]) -> bool,
    ) -> io::Result<()> {
        self.receive_from_socket(port, usize::from(port.0), max_batches, accept)
    }

    /// The same for a socket other than that of the port.
    ///
    /// # Errors
    /// As [`receive`](EventLoop::receive).
    pub fn receive_from_socket(
        &mut self,
        port: Port,
        socket: usize,
        max_batches: usize,
        mut accept: impl FnMut(&Received, &[u8]) -> bool,
    ) -> io::Result<()> {
        let (endpoint, clock) = (&mut self.endpoint, self.clock);
        // All frames of a call have the same arrival time.
        let mut now = None;
        self.ports.receive(socket, max_batches, |received, bytes| {
            let now = *now.get_or_insert_with(|| clock.now());
            for bytes in Segment::frames(received.segment, bytes).filter(|bytes| accept(received, bytes)) {
                let frame = Input::Frame { port, peer: peer_of(received.from), bytes, segment: None };
                // Only commands are refused.
                let _ = endpoint.handle(now, frame);
            }
        })
    }

    /// Wakes the endpoint if its deadline has passed, and passes its outputs to `output`.
    pub fn drain(&mut self, mut output: impl FnMut(&mut E, &Ports, LoopOutput<'_, E::Event>)) {
        let now = self.clock.now();
        if self.deadline.is_some_and(|due| due <= now) {
            // Only commands are refused.
            let _ = self.endpoint.handle(now, Input::Wake);
        }
        for _ in 0..MAX_OUTPUTS {
            match self.endpoint.poll(now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(transmit) => {
                    let frame = LoopOutput::Frame(&transmit, &self.buffer[..transmit.length]);
                    output(&mut self.endpoint, &self.ports, frame);
                }
                Output::Event(event) => output(&mut self.endpoint, &self.ports, LoopOutput::Event(event)),
                Output::Idle(idle) => return self.deadline = idle.deadline,
            }
        }
        // More outputs wait.
        self.deadline = Some(now);
    }

    /// Iterates over the addresses that refused datagrams of a port.
    pub fn refusals(&self, port: Port) -> impl Iterator<Item = SocketAddr> {
        std::iter::from_fn(move || self.ports.refused(usize::from(port.0)))
    }
}

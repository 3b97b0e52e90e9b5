//! An endpoint with its sockets and its clock.

use std::io;
use std::net::SocketAddr;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Transmit, Writable};
use trunkline_io::driver::peer_of;
use trunkline_io::ports::{Ready, Received};
use trunkline_io::{Clock, Ports};
use trunkline_units::Instant;

use crate::drops::CountUnsent;

/// The largest number of outputs before sockets are read again: more than one round of input causes, since delayed
/// outputs are lost.
const MAX_OUTPUTS: usize = 16_384;

/// An endpoint whose ports are the first sockets of [`Ports`], in order.
#[derive(Debug)]
pub struct Engine<E> {
    /// The endpoint.
    pub machine: E,
    /// The sockets.
    pub ports: Ports,
    /// The clock.
    pub clock: Clock,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
}

/// An output of an endpoint.
#[derive(Debug)]
pub enum EngineOutput<'a, V> {
    /// A frame to send.
    Frame(&'a Transmit, &'a [u8]),
    /// An event.
    Event(V),
}

impl<E: Endpoint + CountUnsent> Engine<E> {
    /// Creates an engine without sockets.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    pub fn new(machine: E, clock: Clock) -> io::Result<Engine<E>> {
        let ports = Ports::new(clock)?;
        Ok(Engine { machine, ports, clock, deadline: Some(Instant::ZERO), buffer: vec![0; MAX_BATCH] })
    }

    /// Returns when the endpoint's next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits for input, the endpoint's deadline or `until`.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let until = self.deadline.into_iter().chain(until).min();
        self.ports.wait(self.clock.now(), until)
    }

    /// Passes the endpoint what a socket received, if `accept` returns true; at most `max_batches` batches.
    ///
    /// # Errors
    /// Returns an error of the socket.
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
    /// As [`Engine::receive`].
    pub fn receive_from_socket(
        &mut self,
        port: Port,
        socket: usize,
        max_batches: usize,
        mut accept: impl FnMut(&Received, &[u8]) -> bool,
    ) -> io::Result<()> {
        let (machine, clock) = (&mut self.machine, self.clock);
        // All datagrams of a batch have the same arrival time.
        let mut now = None;
        self.ports.receive(socket, max_batches, |received, bytes| {
            let now = *now.get_or_insert_with(|| clock.now());
            for bytes in Segment::frames(received.segment, bytes).filter(|bytes| accept(received, bytes)) {
                let frame = Input::Frame { port, peer: peer_of(received.from), bytes, segment: None };
                // An endpoint refuses commands only.
                let _ = machine.handle(now, frame);
            }
        })
    }

    /// Passes a command to the endpoint. Its outputs leave with the next [`drain`](Engine::drain), which is due at
    /// once.
    ///
    /// # Errors
    /// Returns the refusal of the endpoint.
    pub fn command(&mut self, command: E::Command<'_>) -> Result<(), E::Refusal> {
        self.deadline = Some(Instant::ZERO);
        self.machine.handle(self.clock.now(), Input::Command(command))
    }

    /// Wakes the endpoint if its deadline has passed, and handles its outputs. For a frame, `output` returns how many
    /// times it could not be sent; the endpoint counts its messages as unsent each time.
    pub fn drain(&mut self, mut output: impl FnMut(&Ports, EngineOutput<'_, E::Event>) -> usize) {
        let now = self.clock.now();
        if self.deadline.is_some_and(|due| due <= now) {
            let _ = self.machine.handle(now, Input::Wake);
        }
        for _ in 0..MAX_OUTPUTS {
            match self.machine.poll(now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(transmit) => {
                    let frame = &self.buffer[..transmit.length];
                    for _ in 0..output(&self.ports, EngineOutput::Frame(&transmit, frame)) {
                        self.machine.count_unsent(transmit.port, frame);
                    }
                }
                Output::Event(event) => _ = output(&self.ports, EngineOutput::Event(event)),
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

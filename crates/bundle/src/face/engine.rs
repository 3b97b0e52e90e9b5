//! A machine, its sockets and its clock.

use std::io;
use std::net::SocketAddr;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Transmit, Writable};
use trunkline_io::driver::peer_of;
use trunkline_io::ports::{Came, Ready};
use trunkline_io::{Clock, Ports};
use trunkline_units::Instant;

use crate::drops::Unsent;

/// What a machine may say before the sockets are heard again: all that one round of hearing lets it say, since what it cannot
/// say in time is lost.
const OUTPUTS: usize = 16_384;

/// A machine whose ports are the first sockets of [`Ports`], in their order.
#[derive(Debug)]
pub struct Engine<E> {
    /// The machine.
    pub machine: E,
    /// Its sockets.
    pub ports: Ports,
    /// Its time.
    pub clock: Clock,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
}

/// What a machine says.
#[derive(Debug)]
pub enum Said<'a, V> {
    /// A frame is to leave.
    Frame(&'a Transmit, &'a [u8]),
    /// Something happened.
    Event(V),
}

impl<E: Endpoint + Unsent> Engine<E> {
    /// A machine without sockets as yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(machine: E, clock: Clock) -> io::Result<Engine<E>> {
        let ports = Ports::new(clock)?;
        Ok(Engine { machine, ports, clock, deadline: Some(Instant::ZERO), buffer: vec![0; MAX_BATCH] })
    }

    /// When the machine wants to know what time it is.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits until there is something to do, or until then.
    ///
    /// # Errors
    /// If the system no longer waits.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let until = self.deadline.into_iter().chain(until).min();
        self.ports.wait(self.clock.now(), until)
    }

    /// Gives the machine what came to a socket, if `is_for_it`; at most so many batches.
    ///
    /// # Errors
    /// If the socket no longer receives.
    pub fn receive(
        &mut self,
        port: Port,
        most: usize,
        is_for_it: impl FnMut(&Came, &[u8]) -> bool,
    ) -> io::Result<()> {
        self.receive_by(port, usize::from(port.0), most, is_for_it)
    }

    /// The same of a socket that is another one than that of the port.
    ///
    /// # Errors
    /// As [`Engine::receive`].
    pub fn receive_by(
        &mut self,
        port: Port,
        socket: usize,
        most: usize,
        mut is_for_it: impl FnMut(&Came, &[u8]) -> bool,
    ) -> io::Result<()> {
        let (machine, clock) = (&mut self.machine, self.clock);
        // What was waiting together came together.
        let mut now = None;
        self.ports.receive(socket, most, |came, bytes| {
            let now = *now.get_or_insert_with(|| clock.now());
            for bytes in Segment::frames(came.segment, bytes).filter(|bytes| is_for_it(came, bytes)) {
                let frame = Input::Frame { port, peer: peer_of(came.from), bytes, segment: None };
                // Only commands are refused.
                let _ = machine.handle(now, frame);
            }
        })
    }

    /// Gives the machine a command; what comes of it leaves with the next [`drain`](Engine::drain), for which nothing is
    /// waited.
    ///
    /// # Errors
    /// Its refusal.
    pub fn command(&mut self, command: E::Command<'_>) -> Result<(), E::Refusal> {
        self.deadline = Some(Instant::ZERO);
        self.machine.handle(self.clock.now(), Input::Command(command))
    }

    /// Lets the machine know what time it is, if it waits for that, and say what it has to say. Of a frame `outlet` tells how many
    /// times it did not leave, whose messages the machine counts each time.
    pub fn drain(&mut self, mut outlet: impl FnMut(&Ports, Said<'_, E::Event>) -> usize) {
        let now = self.clock.now();
        if self.deadline.is_some_and(|due| due <= now) {
            let _ = self.machine.handle(now, Input::Wake);
        }
        for _ in 0..OUTPUTS {
            match self.machine.poll(now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(transmit) => {
                    let frame = &self.buffer[..transmit.length];
                    for _ in 0..outlet(&self.ports, Said::Frame(&transmit, frame)) {
                        self.machine.unsent(transmit.port, frame);
                    }
                }
                Output::Event(event) => _ = outlet(&self.ports, Said::Event(event)),
                Output::Idle(idle) => return self.deadline = idle.deadline,
            }
        }
        // There is more.
        self.deadline = Some(now);
    }

    /// Who refused what these sockets sent.
    pub fn refusals(&self, port: Port) -> impl Iterator<Item = SocketAddr> {
        std::iter::from_fn(move || self.ports.refused(usize::from(port.0)))
    }
}

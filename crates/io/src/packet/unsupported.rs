//! Packet sockets on a system that has none: opening one fails, so none exists.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use trunkline_units::Span;

use super::{Frame, Options, PacketCounters, Tag};

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "Ethernet frames of an interface need Linux")
}

/// An instruction of a classic BPF filter, which nothing runs here.
#[derive(Clone, Copy, Debug)]
pub struct Instruction;

impl Instruction {
    /// Creates an instruction.
    pub fn new(_code: u16, _if_true: u8, _if_false: u8, _operand: u32) -> Instruction {
        Instruction
    }
}

/// A packet socket, of which there is none.
#[derive(Debug)]
pub struct PacketSocket(Infallible);

/// As on Linux, but unreachable.
#[allow(missing_docs, reason = "documented on Linux")]
impl PacketSocket {
    /// Fails.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn open(_interface: &str, _options: &Options) -> io::Result<PacketSocket> {
        Err(unsupported())
    }

    pub fn hardware(&self) -> u16 {
        match self.0 {}
    }

    pub fn receive<'b>(&self, _buffer: &'b mut [u8]) -> io::Result<Frame<'b>> {
        match self.0 {}
    }

    pub fn try_receive<'b>(&self, _buffer: &'b mut [u8]) -> io::Result<Option<Frame<'b>>> {
        match self.0 {}
    }

    pub fn send(&self, _frame: &[u8]) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn send_many(&self, _frames: &[u8], _ends: &[usize]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn limit_waiting(&self, _limit: Option<Span>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn wait(&self, _limit: Span) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn take_counters(&self) -> io::Result<PacketCounters> {
        match self.0 {}
    }

    pub fn receive_tagged(&self, _buffer: &mut [u8], _may_wait: bool) -> io::Result<(usize, Option<Tag>)> {
        match self.0 {}
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        match self.0 {}
    }
}

/// A packet socket with a receive ring, of which there is none.
#[derive(Debug)]
pub struct Ring(PacketSocket);

/// As on Linux, but unreachable.
#[allow(missing_docs, reason = "documented on Linux")]
impl Ring {
    pub const LAG: Span = Span::from_ms(20);

    /// Fails.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn open(_interface: &str, _options: &Options, _octets: usize) -> io::Result<Ring> {
        Err(unsupported())
    }

    pub fn socket(&self) -> &PacketSocket {
        &self.0
    }

    pub fn take(&mut self, _each: impl FnMut(Frame<'_>)) -> usize {
        match self.0.0 {}
    }
}

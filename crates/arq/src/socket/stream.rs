//! A channel as a stream of bytes.

use std::io::{self, Read, Write};

use super::core::Core;
use super::{Connection, Error, Patience};

/// Longest message that a write becomes.
const CHUNK: usize = 64 << 10;

/// A channel whose messages have no boundaries: what is read in one call may have been sent in several, and the other
/// way round.
///
/// [`Read`] and [`Write`] wait; [`try_read`](Stream::try_read), [`try_read_exact`](Stream::try_read_exact) and
/// [`try_write`](Stream::try_write) say what keeps them, as the functions of 1998 did (section 7). A stream ends when
/// the peer has [finished](Connection::finish).
#[derive(Clone)]
pub struct Stream {
    connection: Connection,
    channel: u16,
}

impl Stream {
    pub(super) fn new(connection: Connection, channel: u16) -> Stream {
        Stream { connection, channel }
    }

    /// The connection that it is a channel of.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends as much of `bytes` as the channel takes; how much.
    ///
    /// # Errors
    /// [`Error::Full`] if that is nothing, and as [`Connection::send`].
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.write_within(None, bytes)
    }

    /// Reads what there is, as much as `into` holds; how much.
    ///
    /// # Errors
    /// [`Error::NotYet`] if that is nothing; [`Error::Finished`] at the end.
    pub fn try_read(&self, into: &mut [u8]) -> Result<usize, Error> {
        self.read_within(None, into)
    }

    /// Fills `into`, or reads nothing.
    ///
    /// # Errors
    /// [`Error::NotEnough`] if less is there, which is kept for the next call; [`Error::Finished`] at the end.
    pub fn try_read_exact(&self, into: &mut [u8]) -> Result<(), Error> {
        let read = |core: &mut Core, now, id| core.read_exact(now, id, self.channel, into);
        self.connection.attempt(None, read)
    }

    fn write_within(&self, patience: Option<Patience>, bytes: &[u8]) -> Result<usize, Error> {
        self.connection.attempt(patience, |core, now, id| {
            let mut sent = 0;
            for chunk in bytes.chunks(CHUNK) {
                match core.send(now, id, self.channel, chunk) {
                    Ok(()) => sent += chunk.len(),
                    Err(_) if sent > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(sent)
        })
    }

    fn read_within(&self, patience: Option<Patience>, into: &mut [u8]) -> Result<usize, Error> {
        self.connection.attempt(patience, |core, now, id| core.read(now, id, self.channel, into))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.read_within(Some(Patience::Endless), into) {
            Err(Error::Finished) => Ok(0),
            read => read.map_err(io::Error::from),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_within(Some(Patience::Endless), bytes).map_err(io::Error::from)
    }

    /// Waits until the peer has acknowledged everything that was sent on the connection, as
    /// [`Connection::flush`] does: what waits here waits in this process, and has reached nobody if that ends. Nothing
    /// is held back for want of it.
    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush_within(Patience::Endless).map_err(io::Error::from)
    }
}

//! A channel as a stream of bytes.

use std::io::{self, Read, Write};

use super::core::Core;
use super::{Connection, Error};

/// Maximum length of the message that one write sends.
const CHUNK: usize = 64 << 10;

/// A channel without message boundaries: one read may return bytes of several writes, and the other way round.
///
/// [`Read`] and [`Write`] wait; [`try_read`](Stream::try_read), [`try_read_exact`](Stream::try_read_exact) and
/// [`try_write`](Stream::try_write) return an error instead, like the functions of 1998 (section 7). A stream ends
/// when the peer has [finished](Connection::finish).
#[derive(Clone)]
pub struct Stream {
    connection: Connection,
    channel: u16,
}

impl Stream {
    pub(super) fn new(connection: Connection, channel: u16) -> Stream {
        Stream { connection, channel }
    }

    /// Sends as many of `bytes` as the channel accepts; returns the number.
    ///
    /// # Errors
    /// [`Error::Full`] if it accepts none, and as for [`Connection::send`].
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.write_bytes(false, bytes)
    }

    /// Reads the bytes that have arrived, at most the length of `into`; returns the number.
    ///
    /// # Errors
    /// [`Error::NotYet`] if there are none; [`Error::Finished`] at the end.
    pub fn try_read(&self, into: &mut [u8]) -> Result<usize, Error> {
        self.read_bytes(false, into)
    }

    /// Fills `into` completely, or reads nothing.
    ///
    /// # Errors
    /// [`Error::NotEnough`] if fewer bytes have arrived, which are kept for the next call; [`Error::Finished`] at the
    /// end.
    pub fn try_read_exact(&self, into: &mut [u8]) -> Result<(), Error> {
        let read = |core: &mut Core, now, id| core.read_exact(now, id, self.channel, into);
        self.connection.attempt(false, read)
    }

    fn write_bytes(&self, waits: bool, bytes: &[u8]) -> Result<usize, Error> {
        self.connection.attempt(waits, |core, now, id| {
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

    fn read_bytes(&self, waits: bool, into: &mut [u8]) -> Result<usize, Error> {
        self.connection.attempt(waits, |core, now, id| core.read(now, id, self.channel, into))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.read_bytes(true, into) {
            Err(Error::Finished) => Ok(0),
            read => read.map_err(io::Error::from),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(true, bytes).map_err(io::Error::from)
    }

    /// Waits until the peer has acknowledged everything sent on the connection, like [`Connection::flush`]. Data is
    /// transmitted without a flush, too.
    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush().map_err(io::Error::from)
    }
}

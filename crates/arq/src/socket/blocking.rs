//! Connections for threads.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trunkline_units::{Instant, Span};

use super::core::Core;
use super::shared::Shared;
use super::{Error, Patience, Settings, Stream};
use crate::{Buffer, ConnectionId, Options, PathMtu, Statistics};

/// A socket to which peers open connections.
///
/// Clones are the same socket. When the last has gone, connections that nobody has accepted are reset; those that were
/// accepted go on.
#[derive(Clone)]
pub struct Listener(Arc<Listening>);

struct Listening(Arc<Shared>);

impl Listener {
    /// Listens at `address`, port 0 being any, to connections that behave as `options` say, but for mode and check, which
    /// are the client's choice.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such address, or it is taken.
    pub fn bind(address: impl ToSocketAddrs, options: &Options) -> Result<Listener, Error> {
        Listener::bind_with(address, options, &Settings::default())
    }

    /// The same, with a socket to the user's taste.
    ///
    /// # Errors
    /// As [`bind`](Listener::bind).
    pub fn bind_with(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
    ) -> Result<Listener, Error> {
        let shared = Shared::open(first(address)?, Some(options), &settings.to_behave(options))?;
        Ok(Listener(Arc::new(Listening(shared))))
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.0.0.socket.local()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// [`Error::System`] if the socket fails.
    pub fn accept(&self) -> Result<Connection, Error> {
        self.accept_within(Patience::Endless)
    }

    /// Waits for a connection, not longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`accept`](Listener::accept).
    pub fn accept_timeout(&self, patience: Duration) -> Result<Connection, Error> {
        self.accept_within(Patience::For(patience))
    }

    /// Dies, as a process would: tells nobody.
    #[cfg(test)]
    pub(super) fn kill(&self) {
        self.0.0.lock().core.fail(io::ErrorKind::Other.into());
    }

    /// Whether it hears others than one peer at a socket of their own.
    #[cfg(test)]
    pub(super) fn has_unconnected_socket(&self) -> bool {
        self.0.0.socket.unconnected_socket().is_some()
    }

    fn accept_within(&self, patience: Patience) -> Result<Connection, Error> {
        let id = self.0.0.until(patience, |core, _| {
            let id = core.accept()?;
            core.handles += 1;
            Ok(id)
        })?;
        Ok(Connection::new(self.0.0.clone(), id))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.now(|core, now| {
            core.refuse_all(now);
            Ok(())
        });
        self.0.release();
    }
}

/// A connection: messages on any of its channels, 0 to 65,534, each in order, none in the way of another.
///
/// Clones are the same connection, for as many threads as like. When the last has gone it is reset, unless it was told
/// to [`finish`](Connection::finish): then what was sent still arrives.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    id: ConnectionId,
    finishing: AtomicBool,
}

impl Connection {
    fn new(shared: Arc<Shared>, id: ConnectionId) -> Connection {
        Connection(Arc::new(Handle { shared, id, finishing: AtomicBool::new(false) }))
    }

    /// Opens a connection to `address` and waits until it stands.
    ///
    /// # Errors
    /// [`Error::Closed`] if the peer refuses or nobody answers within [`Options::peer_timeout`]; [`Error::System`].
    pub fn connect(address: impl ToSocketAddrs, options: &Options) -> Result<Connection, Error> {
        Connection::connect_with(address, options, &Settings::default())
    }

    /// The same, with a socket to the user's taste.
    ///
    /// # Errors
    /// As [`connect`](Connection::connect).
    pub fn connect_with(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
    ) -> Result<Connection, Error> {
        let to = first(address)?;
        let any = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let shared = Shared::open(any, None, &settings.to_behave(options))?;
        let opened = shared.now(|core, now| core.connect(now, to, options));
        let id = opened.inspect_err(|_| shared.release())?;
        let connection = Connection::new(shared, id);
        let shared = &connection.0.shared;
        shared.until(Patience::Endless, |core, _| {
            core.is_open(id)?;
            shared.socket.connect(to);
            Ok(())
        })?;
        Ok(connection)
    }

    /// This end's address.
    pub fn address(&self) -> SocketAddr {
        self.0.shared.socket.local()
    }

    /// The peer's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.shared.lock().core.peer(self.0.id)
    }

    /// Sends a copy of `message`; waits while the channel is full. Cheapest for small ones, which share frames.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection is over, [`Error::Refused`] if it was told to finish, the message has more
    /// than 1 GiB, or there is no such channel.
    #[inline]
    pub fn send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.send_within(Patience::Endless, channel, message)
    }

    /// The same; [`Error::Full`] instead of waiting.
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Connection::send).
    #[inline]
    pub fn try_send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.0.shared.once(|core, now| core.send(now, self.0.id, channel, message))
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`send`](Connection::send).
    pub fn send_timeout(&self, channel: u16, message: &[u8], patience: Duration) -> Result<(), Error> {
        self.send_within(Patience::For(patience), channel, message)
    }

    #[inline]
    fn send_within(&self, patience: Patience, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.0.shared.send(patience, self.0.id, channel, message)
    }

    /// Sends `message` itself, without a copy. Best for large ones.
    ///
    /// # Errors
    /// As [`send`](Connection::send); the message is lost then.
    pub fn send_buffer(&self, channel: u16, message: Buffer) -> Result<(), Error> {
        let mut message = message;
        let hand_over = |core: &mut Core, now| core.hand_over(now, self.0.id, channel, &mut message);
        self.0.shared.until(Patience::Endless, hand_over)
    }

    /// The same without waiting: `message` is empty if it was taken, else as before.
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Connection::send).
    pub fn try_send_buffer(&self, channel: u16, message: &mut Buffer) -> Result<(), Error> {
        self.0.shared.once(|core, now| core.hand_over(now, self.0.id, channel, message))
    }

    /// Waits for the next message of `channel`. It begins on a boundary of 64 bytes, and a large one is not copied to be
    /// handed out (see [Memory](super#memory)).
    ///
    /// # Errors
    /// [`Error::Finished`] once the peer has finished and everything was taken; [`Error::Closed`] if the connection is
    /// over otherwise; [`Error::TooLong`].
    pub fn recv(&self, channel: u16) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        self.recv_into(channel, &mut message).map(|()| message)
    }

    /// The same, into a buffer, of which only the memory is used: a large message takes its place, and no copy is made.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    #[inline]
    pub fn recv_into(&self, channel: u16, message: &mut Buffer) -> Result<(), Error> {
        self.recv_within(Patience::Endless, channel, message)
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`recv`](Connection::recv).
    pub fn recv_timeout(&self, channel: u16, patience: Duration) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        self.recv_within(Patience::For(patience), channel, &mut message).map(|()| message)
    }

    #[inline]
    fn recv_within(&self, patience: Patience, channel: u16, message: &mut Buffer) -> Result<(), Error> {
        self.0.shared.receive(patience, self.0.id, channel, message)
    }

    /// The next message of `channel`, if it is there.
    ///
    /// # Errors
    /// [`Error::NotYet`], and as [`recv`](Connection::recv).
    pub fn try_recv(&self, channel: u16) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        self.0.shared.once(|core, now| core.take(now, self.0.id, channel, &mut message)).map(|()| message)
    }

    /// Waits for the next message of any channel: channels that have some take turns.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub fn recv_any(&self) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        self.recv_any_into(&mut message).map(|channel| (channel, message))
    }

    /// The same, into a buffer, of which only the memory is used.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub fn recv_any_into(&self, message: &mut Buffer) -> Result<u16, Error> {
        message.clear();
        let take = |core: &mut Core, now| core.take_any(now, self.0.id, message);
        self.0.shared.briskly(Core::gathers, Patience::Endless, take)
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`recv`](Connection::recv).
    pub fn recv_any_timeout(&self, patience: Duration) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        let take = |core: &mut Core, now| core.take_any(now, self.0.id, &mut message);
        let channel = self.0.shared.until(Patience::For(patience), take)?;
        Ok((channel, message))
    }

    /// The next message of any channel, if there is one.
    ///
    /// # Errors
    /// [`Error::NotYet`], and as [`recv`](Connection::recv).
    pub fn try_recv_any(&self) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        let channel = self.0.shared.once(|core, now| core.take_any(now, self.0.id, &mut message))?;
        Ok((channel, message))
    }

    /// A channel as a stream of bytes. Whoever reads it this way should not take messages of it too.
    pub fn stream(&self, channel: u16) -> Stream {
        Stream::new(self.clone(), channel)
    }

    /// Channels of a higher priority send first; 0 to 7, at first 0.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection does not stand.
    pub fn set_priority(&self, channel: u16, priority: u8) -> Result<(), Error> {
        self.0.shared.now(|core, now| core.prioritize(now, self.0.id, channel, priority))
    }

    /// Waits until the peer has acknowledged everything that was sent, on all channels: it is there, though the peer may
    /// not have taken it. It takes a round trip, and as long as the peer lets its credit run out.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ends before.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_within(Patience::Endless)
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`flush`](Connection::flush).
    pub fn flush_timeout(&self, patience: Duration) -> Result<(), Error> {
        self.flush_within(Patience::For(patience))
    }

    pub(super) fn flush_within(&self, patience: Patience) -> Result<(), Error> {
        self.0.shared.until(patience, |core, _| core.flush(self.0.id))
    }

    /// Sends no more, but all that was sent arrives, whether the connection is kept or dropped. The peer may go on.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection does not stand.
    pub fn finish(&self) -> Result<(), Error> {
        self.0.finishing.store(true, Ordering::Relaxed);
        self.0.shared.now(|core, now| core.finish(now, self.0.id))
    }

    /// Finishes, and waits until the peer has done so too and everything has arrived at both ends. What has arrived can
    /// still be taken.
    ///
    /// # Errors
    /// [`Error::Closed`] if it comes to another end.
    pub fn close(&self) -> Result<(), Error> {
        self.close_within(Patience::Endless)
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`close`](Connection::close).
    pub fn close_timeout(&self, patience: Duration) -> Result<(), Error> {
        self.close_within(Patience::For(patience))
    }

    fn close_within(&self, patience: Patience) -> Result<(), Error> {
        self.finish()?;
        self.0.shared.until(patience, |core, _| core.is_done(self.0.id))
    }

    /// Ends it at once. What is under way is lost, and the peer is told once.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection does not stand.
    pub fn reset(&self) -> Result<(), Error> {
        self.0.shared.now(|core, now| core.reset(now, self.0.id))
    }

    /// What the connection counted; none once it has failed to open.
    pub fn statistics(&self) -> Option<Statistics> {
        self.0.shared.lock().core.node().statistics(self.0.id)
    }

    /// How long the frames are that it sends; none once it has failed to open.
    pub fn reach(&self) -> Option<PathMtu> {
        self.0.shared.lock().core.node().path_mtu(self.0.id)
    }

    /// The smoothed round trip, once there is one.
    pub fn round_trip(&self) -> Option<Span> {
        self.0.shared.lock().core.node().round_trip(self.0.id)
    }

    /// Tries something on the connection once, or until it succeeds.
    #[inline]
    pub(super) fn attempt<T>(
        &self,
        patience: Option<Patience>,
        mut attempt: impl FnMut(&mut Core, Instant, ConnectionId) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match patience {
            None => self.0.shared.once(|core, now| attempt(core, now, self.0.id)),
            Some(patience) => self.0.shared.until(patience, |core, now| attempt(core, now, self.0.id)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let finishing = *self.finishing.get_mut();
        let _ = self.shared.now(|core, now| {
            core.leave(now, self.id, finishing);
            Ok(())
        });
        self.shared.release();
    }
}

/// The first address that a name stands for.
fn first(address: impl ToSocketAddrs) -> Result<SocketAddr, Error> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    Ok(address.to_socket_addrs()?.next().ok_or_else(none)?)
}

//! Blocking connections, for threads.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trunkline_io::Probe;
use trunkline_io::shared_loop::{Call, Service};
use trunkline_io::usage::CpuTime;
use trunkline_units::{Instant, Span};

use super::core::Core;
use super::shared::{self, Shared};
use super::{Error, Settings, Stream};
use crate::{Buffer, Command, ConnectionId, FaultCounts, Meter, Options, PathMtu, Statistics};

/// A socket that accepts connections.
///
/// Clones share the socket. Dropping the last one resets the connections that were not accepted; accepted ones
/// continue.
#[derive(Clone)]
pub struct Listener(Arc<Listening>);

struct Listening(Arc<Shared>);

impl Listener {
    /// Listens on `address`; port 0 selects a free port. `options` apply to accepted connections, except mode and
    /// check, which the client selects.
    ///
    /// # Errors
    /// [`Error::System`] if the address is not local or in use.
    pub fn bind(address: impl ToSocketAddrs, options: &Options) -> Result<Listener, Error> {
        Listener::bind_with(address, options, &Settings::default())
    }

    /// Like the function without `_with`, with explicit [`Settings`].
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn bind_with(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
    ) -> Result<Listener, Error> {
        let shared = shared::open(first(address)?, Some(options), &settings.with_probing(options))?;
        Ok(Listener(Arc::new(Listening(shared))))
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.0.0.link().local()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// [`Error::System`] if the socket fails.
    pub fn accept(&self) -> Result<Connection, Error> {
        self.accept_within(None)
    }

    /// Waits for a connection, at most for `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`accept`](Listener::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Connection, Error> {
        self.accept_within(Some(timeout))
    }

    /// Closes the socket without notifying peers, like a crashed process.
    #[cfg(test)]
    pub(super) fn kill(&self) {
        self.0.0.lock().service.fail(io::ErrorKind::Other.into());
    }

    /// Returns whether a separate unconnected socket receives from other peers.
    #[cfg(test)]
    pub(super) fn has_unconnected_socket(&self) -> bool {
        self.0.0.link().unconnected_socket().is_some()
    }

    fn accept_within(&self, timeout: Option<Duration>) -> Result<Connection, Error> {
        let id = self.0.0.until(timeout, |core, _| {
            let id = core.accept()?;
            core.handles += 1;
            Ok(id)
        })?;
        Ok(Connection::new(self.0.0.clone(), id))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        shared::release(&self.0, Core::refuse_all);
    }
}

/// A connection: messages on independent channels 0 to 65,534, in order within each channel.
///
/// Clones share the connection and can be used from any thread. Dropping the last one resets the connection, unless
/// [`finish`](Connection::finish) was called: then everything sent still arrives.
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

    /// Opens a connection to `address` and waits until it is established.
    ///
    /// # Errors
    /// [`Error::Closed`] if the peer refuses or does not answer within [`Options::peer_timeout`]; [`Error::System`].
    pub fn connect(address: impl ToSocketAddrs, options: &Options) -> Result<Connection, Error> {
        Connection::connect_with(address, options, &Settings::default())
    }

    /// Like the function without `_with`, with explicit [`Settings`].
    ///
    /// # Errors
    /// As [`connect`](Connection::connect).
    pub fn connect_with(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
    ) -> Result<Connection, Error> {
        Connection::connect_within(address, options, settings, None)
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`connect`](Connection::connect).
    pub fn connect_timeout(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
        timeout: Duration,
    ) -> Result<Connection, Error> {
        Connection::connect_within(address, options, settings, Some(timeout))
    }

    fn connect_within(
        address: impl ToSocketAddrs,
        options: &Options,
        settings: &Settings,
        timeout: Option<Duration>,
    ) -> Result<Connection, Error> {
        let to = first(address)?;
        let shared = shared::open(settings.local_for(to), None, &settings.with_probing(options))?;
        let opened = shared.run(|core, now| core.connect(now, to, options));
        let id = opened.inspect_err(|_| shared::release(&shared, |_, _| {}))?;
        let connection = Connection::new(shared, id);
        let shared = &connection.0.shared;
        shared.until(timeout, |core, _| {
            core.is_open(id)?;
            shared.link().connect(to);
            Ok(())
        })?;
        Ok(connection)
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.0.shared.link().local()
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.shared.lock().service.peer(self.0.id)
    }

    /// Sends a copy of `message`; waits while the channel is full. Best for small messages, which share frames.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection is over, [`Error::Refused`] after [`finish`](Connection::finish), for a
    /// message above 1 GiB, or for an invalid channel.
    #[inline]
    pub fn send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        shared::send(&self.0.shared, None, self.0.id, channel, message)
    }

    /// Sends a copy of `message`, or returns [`Error::Full`].
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Connection::send).
    #[inline]
    pub fn try_send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.0.shared.try_twice(|core, call| core.send(call.now, self.0.id, channel, message))
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`send`](Connection::send).
    pub fn send_timeout(&self, channel: u16, message: &[u8], timeout: Duration) -> Result<(), Error> {
        shared::send(&self.0.shared, Some(timeout), self.0.id, channel, message)
    }

    /// Sends `message` without copying it. Best for large messages.
    ///
    /// # Errors
    /// As for [`send`](Connection::send); the message is lost on an error.
    pub fn send_buffer(&self, channel: u16, message: Buffer) -> Result<(), Error> {
        let mut message = message;
        let hand_over = |core: &mut Core, call: &mut Call<()>| {
            core.send_buffer(call.now, self.0.id, channel, &mut message)
        };
        self.0.shared.until(None, hand_over)
    }

    /// Sends `message` without copying or waiting. It is empty after success and unchanged after an error.
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Connection::send).
    pub fn try_send_buffer(&self, channel: u16, message: &mut Buffer) -> Result<(), Error> {
        self.0.shared.try_twice(|core, call| core.send_buffer(call.now, self.0.id, channel, message))
    }

    /// Waits for the next message of `channel`. The buffer is aligned to 64 bytes, and a large message is not copied
    /// (see [Memory](super#memory)).
    ///
    /// # Errors
    /// [`Error::Finished`] once the peer has finished and all messages were received; [`Error::Closed`] if the
    /// connection ended otherwise; [`Error::TooLong`].
    pub fn recv(&self, channel: u16) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        self.recv_into(channel, &mut message).map(|()| message)
    }

    /// Waits for the next message of `channel` and puts it into `message`, reusing its memory. A large message
    /// replaces the buffer without a copy.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    #[inline]
    pub fn recv_into(&self, channel: u16, message: &mut Buffer) -> Result<(), Error> {
        shared::receive(&self.0.shared, None, self.0.id, channel, message)
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`recv`](Connection::recv).
    pub fn recv_timeout(&self, channel: u16, timeout: Duration) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        shared::receive(&self.0.shared, Some(timeout), self.0.id, channel, &mut message).map(|()| message)
    }

    /// Returns the next message of `channel`, if it has arrived.
    ///
    /// # Errors
    /// [`Error::NotYet`], and as [`recv`](Connection::recv).
    pub fn try_recv(&self, channel: u16) -> Result<Buffer, Error> {
        let mut message = Buffer::new();
        self.0
            .shared
            .try_twice(|core, call| core.take(call.now, self.0.id, channel, &mut message))
            .map(|()| message)
    }

    /// Waits for the next message of any channel, in round-robin order.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub fn recv_any(&self) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        let take = |core: &mut Core, call: &mut Call<()>| core.take_any(call.now, self.0.id, &mut message);
        let shared = &self.0.shared;
        let channel = shared.try_fast(shared.lock(), Core::delays_output, None, take)?;
        Ok((channel, message))
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`recv`](Connection::recv).
    pub fn recv_any_timeout(&self, timeout: Duration) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        let take = |core: &mut Core, call: &mut Call<()>| core.take_any(call.now, self.0.id, &mut message);
        let channel = self.0.shared.until(Some(timeout), take)?;
        Ok((channel, message))
    }

    /// Returns the next message of any channel, if one has arrived.
    ///
    /// # Errors
    /// [`Error::NotYet`], and as [`recv`](Connection::recv).
    pub fn try_recv_any(&self) -> Result<(u16, Buffer), Error> {
        let mut message = Buffer::new();
        let channel =
            self.0.shared.try_twice(|core, call| core.take_any(call.now, self.0.id, &mut message))?;
        Ok((channel, message))
    }

    /// Returns a channel as a stream of bytes. Do not also receive messages of this channel.
    pub fn stream(&self, channel: u16) -> Stream {
        Stream::new(self.clone(), channel)
    }

    /// Sets the priority of a channel, 0 to 7. Channels of higher priority send first. The default is 0.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn set_priority(&self, channel: u16, priority: u8) -> Result<(), Error> {
        let id = self.0.id;
        self.0.shared.run(|core, now| core.command(now, Command::Prioritize { id, channel, priority }))
    }

    /// Waits until the peer has acknowledged everything sent on all channels: it has arrived, though the peer may not
    /// have taken it. This takes a round trip, or longer while the peer's credit is exhausted.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ends before.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_within(None)
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`flush`](Connection::flush).
    pub fn flush_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.flush_within(Some(timeout))
    }

    fn flush_within(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.0.shared.until(timeout, |core, _| core.flush(self.0.id))
    }

    /// Finishes sending. Everything sent before still arrives, even if the connection is dropped. The peer may
    /// continue to send.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn finish(&self) -> Result<(), Error> {
        self.0.finishing.store(true, Ordering::Relaxed);
        let id = self.0.id;
        self.0.shared.run(|core, now| core.command(now, Command::Close { id }))
    }

    /// Finishes sending, and waits until the peer has finished too and everything has arrived at both ends. Arrived
    /// messages can still be taken.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ends otherwise.
    pub fn close(&self) -> Result<(), Error> {
        self.close_within(None)
    }

    /// Like the function without `_timeout`, waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`close`](Connection::close).
    pub fn close_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.close_within(Some(timeout))
    }

    fn close_within(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.finish()?;
        self.0.shared.until(timeout, |core, _| core.is_done(self.0.id))
    }

    /// Resets the connection. Messages in flight are lost; the peer is notified once.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn reset(&self) -> Result<(), Error> {
        let id = self.0.id;
        self.0.shared.run(|core, now| core.command(now, Command::Reset { id }))
    }

    /// Ends the current waiting call of the socket with [`Error::Interrupted`], or else the next one that has to wait.
    /// If several calls wait, one of them ends.
    pub fn interrupt(&self) {
        self.0.shared.run(|core, _| core.interrupt());
    }

    /// Measures the stages of one in `every` messages and frames of this connection, separately per direction, with
    /// `meter`, and the system calls of the socket with `probe`. Both read [`Settings::clock`].
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn measure(&self, every: u32, meter: Box<dyn Meter>, probe: Box<dyn Probe>) -> Result<(), Error> {
        let shared = &self.0.shared;
        shared.run(|core, now| core.measure(now, shared.link(), self.0.id, every, meter, probe))
    }

    /// Returns the processor time of the socket's helper thread, up to its last wakeup. Zero unless the connection is
    /// [measured](Connection::measure).
    pub fn helper_cpu(&self) -> CpuTime {
        self.0.shared.lock().helper_cpu
    }

    /// Returns the counts of the faults that the socket injected.
    pub fn fault_counts(&self) -> FaultCounts {
        self.0.shared.lock().service.node.fault_counts()
    }

    /// Returns the connection's statistics, or `None` if it failed to open.
    pub fn statistics(&self) -> Option<Statistics> {
        self.0.shared.lock().service.node.statistics(self.0.id)
    }

    /// Returns the path MTU, or `None` if the connection failed to open.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        self.0.shared.lock().service.node.path_mtu(self.0.id)
    }

    /// Returns the smoothed round-trip time, once it is measured.
    pub fn round_trip(&self) -> Option<Span> {
        self.0.shared.lock().service.node.round_trip(self.0.id)
    }

    /// Attempts an operation once, or until it succeeds.
    #[inline]
    pub(super) fn attempt<T>(
        &self,
        waits: bool,
        mut attempt: impl FnMut(&mut Core, Instant, ConnectionId) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let attempt = |core: &mut Core, call: &mut Call<()>| attempt(core, call.now, self.0.id);
        if waits { self.0.shared.until(None, attempt) } else { self.0.shared.try_twice(attempt) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.shared.link().as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let finishing = *self.finishing.get_mut();
        shared::release(&self.shared, |core, now| core.leave(now, self.id, finishing));
    }
}

/// Resolves a name to its first address.
fn first(address: impl ToSocketAddrs) -> Result<SocketAddr, Error> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    Ok(address.to_socket_addrs()?.next().ok_or_else(none)?)
}

//! Connections for `tokio` tasks.
//!
//! Like the [blocking](super::blocking) ones, with futures instead of waiting calls. One task per socket receives for
//! all tasks and keeps the deadlines; senders transmit themselves. Any future may be dropped: no message is lost,
//! except the buffer of [`Connection::send_buffer`]. Use `tokio::time::timeout` for timeouts.
//!
//! ```
//! use trunkline_arq::Options;
//! use trunkline_arq::socket::Error;
//! use trunkline_arq::socket::tokio::{Connection, Listener};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &Options::default())?;
//!     let connection = Connection::connect(listener.address(), &Options::default()).await?;
//!     let peer = listener.accept().await?;
//!     connection.send(7, b"hello").await?;
//!     assert_eq!(*peer.recv(7).await?, *b"hello");
//!     let there = tokio::spawn(async move { peer.close().await });
//!     connection.close().await?;
//!     there.await.expect("the task panicked")
//! }
//! ```

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UdpSocket;
use tokio::net::unix::pipe::Receiver;
use trunkline_io::shared_loop::Service;
use trunkline_io::timer::Timer;
use trunkline_io::{Clock, Datagrams};
use trunkline_units::{Instant, Span};

use super::core::{self, Core, MAX_TRANSMIT_DELAY};
use super::{Error, Settings};
use crate::{Buffer, Command, ConnectionId, Options, PathMtu, Statistics};

/// A socket that accepts connections. Clones share the socket.
#[derive(Clone)]
pub struct Listener(Arc<Listening>);

struct Listening(Arc<Shared>);

/// A connection. Clones share it; dropping the last one resets it, unless [`finish`](Connection::finish) was called.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    id: ConnectionId,
    finishing: AtomicBool,
}

/// A socket shared by tasks.
struct Shared {
    socket: Datagrams,
    /// The same socket, registered with the runtime.
    ready: UdpSocket,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    core: Core,
    timer: Timer,
}

impl Shared {
    fn open(local: SocketAddr, accept: Option<&Options>, settings: &Settings) -> Result<Arc<Shared>, Error> {
        let (socket, clock, mut core) = core::open(local, accept, settings)?;
        socket.socket().set_nonblocking(true)?;
        let ready = UdpSocket::from_std(socket.socket().try_clone()?)?;
        let timer = Timer::new(clock)?;
        // A timer file descriptor, read like a pipe: precise to the microsecond, while the runtime's timers have
        // milliseconds.
        let mut timer_events = Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
        core.handles += 1;
        let shared = Arc::new(Shared { socket, ready, clock, state: Mutex::new(State { core, timer }) });
        let driven = shared.clone();
        tokio::spawn(async move { poll_fn(|cx| driven.drive(cx, &mut timer_events)).await });
        Ok(shared)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts an operation once.
    fn now<T>(&self, attempt: impl FnOnce(&mut Core, Instant) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.clock.now();
        let done = attempt(&mut state.core, now);
        self.leave(&mut state, now);
        done
    }

    /// Repeats an operation until it returns neither [`Error::NotYet`] nor [`Error::Full`].
    async fn until<T>(
        &self,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        poll_fn(|cx| {
            let mut state = self.lock();
            let now = self.clock.now();
            loop {
                let done = attempt(&mut state.core, now);
                if !matches!(done, Err(Error::NotYet | Error::Full)) {
                    self.leave(&mut state, now);
                    return Poll::Ready(done);
                }
                if state.core.may_transmit(now) {
                    state.core.transmit(now, &self.socket);
                    if wake_tasks(&mut state.core) {
                        continue;
                    }
                }
                if !state.core.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    state.core.wakers.push(cx.waker().clone());
                }
                self.leave(&mut state, now);
                return Poll::Pending;
            }
        })
        .await
    }

    /// Transmits pending output unless it may be delayed, and sets the timer.
    fn leave(&self, state: &mut State, now: Instant) {
        if state.core.should_transmit(now) {
            state.core.transmit(now, &self.socket);
        }
        wake_tasks(&mut state.core);
        let by = match state.core.may_transmit(now) {
            true => state.core.deadline.min(now + MAX_TRANSMIT_DELAY),
            // Wakes the driver if the last handle is gone or the socket is full.
            false if state.core.handles == 0 || state.core.is_full() => now,
            false => state.core.deadline,
        };
        if by < Instant::MAX
            && let Err(error) = state.timer.arm(by)
        {
            state.core.fail(error);
        }
    }

    /// Receives and runs timers until the socket is no longer needed.
    fn drive(&self, cx: &mut Context<'_>, timer_events: &mut Receiver) -> Poll<()> {
        loop {
            // Poll both, so that both register the task.
            let readable = self.ready.poll_recv_ready(cx).is_ready();
            let mut expirations = [0; 8];
            let expired =
                Pin::new(&mut *timer_events).poll_read(cx, &mut ReadBuf::new(&mut expirations)).is_ready();
            let mut state = self.lock();
            if !readable && !expired {
                return self.schedule(cx, &mut state);
            }
            let now = self.clock.now();
            if expired && let Err(error) = state.timer.acknowledge() {
                state.core.fail(error);
            }
            if readable {
                let _ = self.ready.try_io(Interest::READABLE, || {
                    ready_if(state.core.receive_pending(now, &self.socket) && state.core.can_receive())
                });
            }
            state.core.transmit(now, &self.socket);
            self.leave(&mut state, now);
            if state.core.is_over(now) {
                return Poll::Ready(());
            }
        }
    }

    /// Sends waiting frames when the socket becomes writable.
    fn schedule(&self, cx: &mut Context<'_>, state: &mut State) -> Poll<()> {
        while state.core.is_full() && self.ready.poll_send_ready(cx).is_ready() {
            let _ = self.ready.try_io(Interest::WRITABLE, || {
                state.core.transmit(self.clock.now(), &self.socket);
                ready_if(!state.core.is_full())
            });
        }
        Poll::Pending
    }

    /// Releases a handle after `end` ends its use.
    fn release(&self, end: impl FnOnce(&mut Core, Instant)) {
        let mut state = self.lock();
        let now = self.clock.now();
        end(&mut state.core, now);
        state.core.handles -= 1;
        self.leave(&mut state, now);
    }
}

/// Returns whether the socket was ready; otherwise the runtime polls it again.
fn ready_if(ready: bool) -> io::Result<()> {
    if ready { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Wakes the waiting tasks after a change; returns whether there was one.
fn wake_tasks(core: &mut Core) -> bool {
    let changed = core.take_changed();
    if changed {
        core.wakers.drain(..).for_each(std::task::Waker::wake);
    }
    changed
}

impl Listener {
    /// Listens on `address`; port 0 selects a free port. Must be called within a runtime.
    ///
    /// # Errors
    /// [`Error::System`] if the address is not local or in use.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Listener, Error> {
        Listener::bind_with(address, options, &Settings::default())
    }

    /// Like the function without `_with`, with explicit [`Settings`].
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn bind_with(address: SocketAddr, options: &Options, settings: &Settings) -> Result<Listener, Error> {
        Ok(Listener(Arc::new(Listening(Shared::open(
            address,
            Some(options),
            &settings.with_probing(options),
        )?))))
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.0.0.socket.local()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// [`Error::System`] if the socket fails.
    pub async fn accept(&self) -> Result<Connection, Error> {
        let shared = &self.0.0;
        let accepted = shared.until(|core, _| {
            let id = core.accept()?;
            core.handles += 1;
            Ok(id)
        });
        // There is no await point between these two.
        Ok(Connection::new(shared.clone(), accepted.await?))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.release(Core::refuse_all);
    }
}

impl Connection {
    fn new(shared: Arc<Shared>, id: ConnectionId) -> Connection {
        Connection(Arc::new(Handle { shared, id, finishing: AtomicBool::new(false) }))
    }

    /// Opens a connection to `address`. Must be called within a runtime.
    ///
    /// # Errors
    /// [`Error::Closed`] if the peer refuses or does not answer within [`Options::peer_timeout`]; [`Error::System`].
    pub async fn connect(address: SocketAddr, options: &Options) -> Result<Connection, Error> {
        Connection::connect_with(address, options, &Settings::default()).await
    }

    /// Like the function without `_with`, with explicit [`Settings`].
    ///
    /// # Errors
    /// As [`connect`](Connection::connect).
    pub async fn connect_with(
        address: SocketAddr,
        options: &Options,
        settings: &Settings,
    ) -> Result<Connection, Error> {
        let shared = Shared::open(settings.local_for(address), None, &settings.with_probing(options))?;
        let opened = shared.now(|core, now| core.connect(now, address, options));
        let id = opened.inspect_err(|_| shared.release(|_, _| {}))?;
        let connection = Connection::new(shared, id);
        connection.0.shared.until(|core, _| core.is_open(id)).await?;
        Ok(connection)
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.0.shared.socket.local()
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.shared.lock().core.peer(self.0.id)
    }

    /// Sends a copy of `message` as soon as the channel has room.
    ///
    /// # Errors
    /// As [the blocking one](super::Connection::send).
    pub async fn send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.0.shared.until(|core, now| core.send(now, self.0.id, channel, message)).await
    }

    /// Sends a copy of `message`, or returns [`Error::Full`].
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Connection::send).
    pub fn try_send(&self, channel: u16, message: &[u8]) -> Result<(), Error> {
        self.0.shared.now(|core, now| core.send(now, self.0.id, channel, message))
    }

    /// Sends `message` without copying it, as soon as the channel has room.
    ///
    /// # Errors
    /// As for [`send`](Connection::send). The message is lost on an error, or if the future is dropped.
    pub async fn send_buffer(&self, channel: u16, message: Buffer) -> Result<(), Error> {
        let mut message = message;
        self.0.shared.until(|core, now| core.send_buffer(now, self.0.id, channel, &mut message)).await
    }

    /// Receives the next message of `channel`.
    ///
    /// # Errors
    /// As [the blocking one](super::Connection::recv).
    pub async fn recv(&self, channel: u16) -> Result<Buffer, Error> {
        let take = |core: &mut Core, now| {
            let mut message = Buffer::new();
            core.take(now, self.0.id, channel, &mut message).map(|()| message)
        };
        self.0.shared.until(take).await
    }

    /// Receives the next message of any channel, in round-robin order.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub async fn recv_any(&self) -> Result<(u16, Buffer), Error> {
        let take = |core: &mut Core, now| {
            let mut message = Buffer::new();
            core.take_any(now, self.0.id, &mut message).map(|channel| (channel, message))
        };
        self.0.shared.until(take).await
    }

    /// Reads bytes of `channel` as a stream: at least one, at most those that have arrived.
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub async fn read(&self, channel: u16, into: &mut [u8]) -> Result<usize, Error> {
        self.0.shared.until(|core, now| core.read(now, self.0.id, channel, into)).await
    }

    /// Sets the priority of a channel, 0 to 7. Channels of higher priority send first. The default is 0.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn set_priority(&self, channel: u16, priority: u8) -> Result<(), Error> {
        let id = self.0.id;
        self.0.shared.now(|core, now| core.command(now, Command::Prioritize { id, channel, priority }))
    }

    /// Waits until the peer has acknowledged everything that was sent, on all channels.
    ///
    /// # Errors
    /// As [the blocking one](super::Connection::flush).
    pub async fn flush(&self) -> Result<(), Error> {
        self.0.shared.until(|core, _| core.flush(self.0.id)).await
    }

    /// Finishes sending. Everything sent before still arrives, even if the connection is dropped. The peer may
    /// continue to send.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn finish(&self) -> Result<(), Error> {
        self.0.finishing.store(true, Ordering::Relaxed);
        let id = self.0.id;
        self.0.shared.now(|core, now| core.command(now, Command::Close { id }))
    }

    /// Finishes sending, and waits until the peer has finished too and everything has arrived at both ends.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ends otherwise.
    pub async fn close(&self) -> Result<(), Error> {
        self.finish()?;
        self.0.shared.until(|core, _| core.is_done(self.0.id)).await
    }

    /// Resets the connection. Messages in flight are lost; the peer is notified once.
    ///
    /// # Errors
    /// [`Error::Refused`] if the connection is not established.
    pub fn reset(&self) -> Result<(), Error> {
        let id = self.0.id;
        self.0.shared.now(|core, now| core.command(now, Command::Reset { id }))
    }

    /// Returns the connection's statistics, or `None` if it failed to open.
    pub fn statistics(&self) -> Option<Statistics> {
        self.0.shared.lock().core.node.statistics(self.0.id)
    }

    /// Returns the path MTU, or `None` if the connection failed to open.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        self.0.shared.lock().core.node.path_mtu(self.0.id)
    }

    /// Returns the smoothed round-trip time, once it is measured.
    pub fn round_trip(&self) -> Option<Span> {
        self.0.shared.lock().core.node.round_trip(self.0.id)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let finishing = *self.finishing.get_mut();
        self.shared.release(|core, now| core.leave(now, self.id, finishing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloseReason;

    async fn pair() -> (Connection, Connection) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        let client = Connection::connect(listener.address(), &Options::default()).await.unwrap();
        (client, listener.accept().await.unwrap())
    }

    fn message(channel: u16, number: u32) -> Vec<u8> {
        vec![number as u8 ^ channel as u8; (number as usize * 7919) % 50_000]
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_exchange_messages_on_many_channels() {
        let (client, server) = pair().await;
        let mut tasks = Vec::new();
        for channel in [0, 9, 65_534] {
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) = (from.clone(), to.clone());
                tasks.push(tokio::spawn(async move {
                    for number in 0..200 {
                        from.send_buffer(channel, Buffer::from(&message(channel, number)[..])).await.unwrap();
                    }
                }));
                tasks.push(tokio::spawn(async move {
                    for number in 0..200 {
                        assert_eq!(*to.recv(channel).await.unwrap(), message(channel, number));
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let there = tokio::spawn(async move { server.close().await });
        client.close().await.unwrap();
        there.await.unwrap().unwrap();
        assert!(matches!(client.recv(0).await, Err(Error::Finished)));
    }

    #[tokio::test]
    async fn a_task_exchanges_messages_with_a_blocking_peer() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        let address = listener.address();
        let peer = std::thread::spawn(move || {
            let peer = super::super::Connection::connect(address, &Options::default()).unwrap();
            peer.send(1, &[7; 1_000_000]).unwrap();
            let answer = peer.recv(1).unwrap();
            peer.close().unwrap();
            answer
        });
        let connection = listener.accept().await.unwrap();
        let mut got = 0;
        let mut into = vec![0; 3000];
        while got < 1_000_000 {
            got += connection.read(1, &mut into).await.unwrap();
        }
        assert_eq!(got, 1_000_000);
        connection.send(1, b"thank you").await.unwrap();
        connection.close().await.unwrap();
        assert_eq!(*peer.join().unwrap(), *b"thank you");
    }

    #[tokio::test]
    async fn a_dropped_future_loses_no_message() {
        let (client, server) = pair().await;
        for number in 0..50u8 {
            let short = tokio::time::timeout(std::time::Duration::from_micros(1), server.recv(0)).await;
            assert!(short.is_err());
            client.send(0, &[number]).await.unwrap();
            assert_eq!(*server.recv(0).await.unwrap(), [number]);
        }
        assert!(matches!(client.try_send(65_535, b""), Err(Error::Refused(_))));
    }

    #[tokio::test]
    async fn flushed_messages_have_arrived() {
        let (client, server) = pair().await;
        client.flush().await.unwrap();
        for number in 0..20 {
            client.send(3, &message(3, number)).await.unwrap();
            client.flush().await.unwrap();
            // The message has arrived before any other task runs.
            let got = server.0.shared.now(|core, now| {
                let mut got = Buffer::new();
                core.take(now, server.0.id, 3, &mut got).map(|()| got)
            });
            assert_eq!(*got.unwrap(), message(3, number));
        }
        let waits = client.clone();
        client.send(3, &vec![1; 64 << 20]).await.unwrap();
        let waits = tokio::spawn(async move { waits.flush().await });
        server.reset().unwrap();
        assert!(matches!(waits.await.unwrap(), Err(Error::Closed(CloseReason::PeerReset))));
    }

    #[tokio::test]
    async fn waiting_tasks_return_when_the_connection_ends() {
        let (client, server) = pair().await;
        let waits = tokio::spawn(async move { server.recv_any().await.map(drop) });
        client.reset().unwrap();
        assert!(matches!(waits.await.unwrap(), Err(Error::Closed(CloseReason::PeerReset))));
        let (client, server) = pair().await;
        drop(server);
        assert!(matches!(client.recv(0).await, Err(Error::Closed(CloseReason::PeerReset))));
    }
}

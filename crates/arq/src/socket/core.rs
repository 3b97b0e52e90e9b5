//! The state that threads and tasks of a socket share: the endpoint and the events of each connection.
//!
//! The holder of the lock passes received frames in, attempts its operation and transmits output;
//! the socket types decide what to wait for and how.

mod ready;
mod receive_buffers;
mod send_frames;
mod service;
mod single_frame;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
#[cfg(feature = "tokio")]
use std::task::Waker;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Port, Segment};
use trunkline_io::datagrams::Received;
use trunkline_io::peer::{address_of, peer_of};
use trunkline_io::probe::{Direction, Probe};
use trunkline_io::shared_loop::Service;
use trunkline_io::{Clock, Datagrams, socket};
use trunkline_units::{Instant, Size, Span};

use self::ready::Ready;
pub(super) use self::receive_buffers::ReceiveBuffers;
use self::send_frames::{UnsentFrames, send_frames};
use self::single_frame::FastConnection;
use super::{Error, Settings};
use crate::{
    Buffer, CloseReason, Command, Config, ConnectionId, EventKind, Meter, Node, Options, ReceiveStatus,
    Refusal,
};

const SOCKET: Port = Port(0);
/// Amount of input that triggers a transmission: the bytes of a batch.
pub(super) const URGENT_WEIGHT: u32 = 64 << 10;
/// Weight of a received message or of a single received frame.
const MESSAGE_WEIGHT: u32 = URGENT_WEIGHT / 32;
/// Maximum delay of output, whatever the options: a sending thread wakes the helper this often.
pub(super) const MAX_TRANSMIT_DELAY: Span = Span::from_us(200);
/// Frames in flight from which a sender is in full flow: its messages wait for a batch, and are encoded into frames when they
/// are sent. A peer with default options acknowledges that many at once. With more, a sender whose messages leave one by one
/// would never reach it on a short path, where each system call costs more than its frame.
const FULL_FLOW_FROM: u32 = 16;
/// Datagrams received on the unconnected socket in one call.
const MAX_UNCONNECTED_DATAGRAMS: usize = 64;
/// Batches sent without receiving in between.
const MAX_UNPOLLED_BATCHES: u32 = 8;
/// Exchanges before the socket is connected for the first time.
const EXCHANGES_TO_CONNECT: u32 = 64;

#[derive(Debug, Default)]
struct ConnectionState {
    peer: Option<SocketAddr>,
    open: bool,
    close_reason: Option<CloseReason>,
    /// The peer has finished sending.
    finished: bool,
    ready: Ready,
    /// Messages received in part, and their total bytes.
    partial_messages: BTreeMap<u16, Buffer>,
    partial_bytes: usize,
    /// Bytes of streams for incomplete `try_read_exact` calls.
    partial_reads: BTreeMap<u16, Vec<u8>>,
    /// No handle is left.
    is_abandoned: bool,
}

/// The endpoint, and the events that it reported.
pub(super) struct Core {
    pub node: Node,
    connections: BTreeMap<ConnectionId, ConnectionState>,
    /// The connection that last took a message, if the fast path applies to it.
    fast_connection: Option<FastConnection>,
    /// Connections that peers opened and no caller has accepted yet; bounded by the connection limit.
    incoming: VecDeque<ConnectionId>,
    /// Connections with waiting `flush` calls; each once.
    flushing: Vec<ConnectionId>,
    /// Whether a listener exists, and whether one ever existed, so that there may be connections without a handle.
    accepts: bool,
    listens: bool,
    max_message: usize,
    /// Whether messages may be delayed to share frames.
    may_delay_messages: bool,
    output: Box<[u8]>,
    unsent: Option<UnsentFrames>,
    /// The receive buffers, unless a thread is receiving.
    pub buffers: Option<Box<ReceiveBuffers>>,
    /// Receive buffer of the unconnected socket, once one was used.
    unconnected_buffer: Vec<u8>,
    /// Weight of the input since the last transmission; urgent input counts [`URGENT_WEIGHT`].
    pending_weight: u32,
    /// Time of the last transmission.
    transmitted_at: Instant,
    /// The last message is delayed: its sender is in full flow.
    pub in_full_flow: bool,
    /// Batches sent since the last receive.
    unpolled_batches: u32,
    /// The endpoint's deadline, or earlier.
    pub deadline: Instant,
    /// Events were reported since the last check.
    pub has_changed: bool,
    /// Tasks that wait for a change.
    #[cfg(feature = "tokio")]
    pub wakers: Vec<Waker>,
    /// Number of handles of connections and listeners.
    pub handles: usize,
    /// Consecutive request-response exchanges with one peer, and the number after which the socket is connected to
    /// it.
    pub exchanges: u32,
    pub connects_at: u32,
    /// The next waiting call ends.
    is_interrupted: bool,
    /// The error that made the socket unusable.
    failed: Option<io::Error>,
    clock: Clock,
    /// Observes system calls.
    pub probe: Option<Box<dyn Probe>>,
}

/// Opens a socket with its clock and endpoint.
pub(super) fn open(
    local: SocketAddr,
    accept: Option<&Options>,
    settings: &Settings,
) -> Result<(Datagrams, Clock, Core), Error> {
    let size = Some(Size::from_bytes(settings.socket_buffer as u64));
    let options = socket::Options {
        send_buffer: size,
        receive_buffer: size,
        dscp: settings.dscp,
        ..socket::Options::default()
    };
    let socket = Datagrams::bind(local, &options).map_err(|error| Error::System(error.cause))?;
    if settings.probe_mtu {
        socket.forbid_fragments().map_err(Error::System)?;
    }
    let random = trunkline_io::datagrams::random().map_err(Error::System)?;
    let max_connections = settings.max_connections;
    let mut node = Node::new(Config { port: SOCKET, accept: accept.cloned(), max_connections, random });
    node.enable_pre_encoding(FULL_FLOW_FROM);
    if let Some(faults) = &settings.faults {
        node.inject_faults(faults.clone());
    }
    let mut core = Core {
        node,
        connections: BTreeMap::new(),
        fast_connection: None,
        incoming: VecDeque::new(),
        flushing: Vec::new(),
        accepts: accept.is_some(),
        listens: accept.is_some(),
        max_message: settings.max_message,
        may_delay_messages: false,
        output: vec![0; MAX_BATCH].into(),
        unsent: None,
        buffers: Some(ReceiveBuffers::new()),
        unconnected_buffer: Vec::new(),
        pending_weight: 0,
        transmitted_at: Instant::ZERO,
        in_full_flow: false,
        unpolled_batches: 0,
        deadline: Instant::MAX,
        has_changed: false,
        #[cfg(feature = "tokio")]
        wakers: Vec::new(),
        handles: 0,
        exchanges: 0,
        connects_at: EXCHANGES_TO_CONNECT,
        is_interrupted: false,
        failed: None,
        clock: settings.clock,
        probe: None,
    };
    accept.into_iter().for_each(|options| core.allow_delays(options));
    Ok((socket, settings.clock, core))
}

impl Core {
    /// Returns whether the next message may be delayed too, as far as known.
    #[inline]
    pub fn delays_messages(&self) -> bool {
        self.in_full_flow && self.delays_output()
    }

    /// Observes the system calls and measures the stages of a connection from now on.
    pub fn measure(
        &mut self,
        now: Instant,
        socket: &Datagrams,
        id: ConnectionId,
        every: u32,
        meter: Box<dyn Meter>,
        probe: Box<dyn Probe>,
    ) -> Result<(), Error> {
        self.defer_command(now, Command::Measure { id, every, meter })?;
        self.probe = Some(probe);
        // Without timestamps less is measured.
        let _ = socket.enable_timestamps();
        Ok(())
    }

    #[cold]
    fn observe_received(&mut self, arrived: &Received, bytes: &[u8], call: (Instant, Instant)) {
        if let Some(probe) = &mut self.probe
            && !bytes.is_empty()
            && call.0 > Instant::ZERO
            && probe.selects(Direction::In, bytes, arrived.segment())
        {
            probe.received(arrived.timestamp.map(|unix| self.clock.instant_of_unix(unix)), call);
        }
    }

    #[inline]
    fn handle_batch(&mut self, now: Instant, arrived: &Received, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (peer, segment) = (peer_of(arrived.from), arrived.segment());
        self.pending_weight += if segment.is_some() { URGENT_WEIGHT } else { MESSAGE_WEIGHT };
        let mut handle = |bytes, segment| {
            let frame = Input::Frame { port: SOCKET, peer, bytes, segment };
            self.node.handle(now, frame).expect("only commands are refused");
        };
        if Segment::fits(segment, bytes.len()) {
            handle(bytes, segment);
        } else {
            // An IPv6 datagram can be up to 20 bytes longer than a batch.
            let frames = Segment::frames(segment, bytes).filter(|frame| frame.len() <= MAX_BATCH);
            frames.for_each(|frame| handle(frame, None));
        }
    }

    /// Records the error that makes the socket unusable.
    pub fn fail(&mut self, error: io::Error) {
        self.failed.get_or_insert(error);
        self.has_changed = true;
    }

    /// Ends a waiting call, or the next one.
    pub fn interrupt(&mut self) {
        (self.is_interrupted, self.has_changed) = (true, true);
    }

    /// Returns whether frames wait for the socket's send buffer.
    #[cfg(feature = "tokio")]
    pub fn is_full(&self) -> bool {
        self.unsent.is_some()
    }

    fn send_unsent(&mut self, socket: &Datagrams) {
        if let Some(UnsentFrames { to, bytes, segment }) = self.unsent.take() {
            self.unsent = send_frames(socket, &to, &bytes, segment);
        }
    }

    #[inline]
    fn record_event(&mut self, now: Instant, id: ConnectionId, kind: EventKind) {
        self.has_changed = true;
        if !self.connections.contains_key(&id) {
            // Only connections opened by peers are new.
            if !self.accepts {
                return self.forget(now, id);
            }
            self.incoming.push_back(id);
        }
        let connection = self.connections.entry(id).or_default();
        match kind {
            EventKind::Opened { peer } => (connection.open, connection.peer) = (true, address_of(peer)),
            EventKind::Readable { channel } => connection.ready.push(channel),
            EventKind::Writable { .. } => {}
            EventKind::Finished => connection.finished = true,
            EventKind::Closed { reason } => {
                connection.close_reason = Some(reason);
                // A connection that was never accepted and has no messages is dropped silently.
                if connection.is_abandoned {
                    self.forget(now, id);
                }
            }
        }
    }

    /// Allows delays as configured.
    fn allow_delays(&mut self, options: &Options) {
        self.may_delay_messages = !options.coalesce_delay.is_zero();
    }

    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: &Options,
    ) -> Result<ConnectionId, Error> {
        let mut id = ConnectionId::default();
        self.allow_delays(options);
        self.command(now, Command::Open { peer: peer_of(to), options, id: &mut id })?;
        self.connections.insert(id, ConnectionState { peer: Some(to), ..ConnectionState::default() });
        Ok(id)
    }

    pub fn is_open(&self, id: ConnectionId) -> Result<(), Error> {
        match self.connections.get(&id) {
            Some(connection) if connection.open => Ok(()),
            Some(_) => Err(self.closed_or_error(id, Error::NotYet)),
            None => Err(Error::Refused(Refusal::Unknown)),
        }
    }

    /// Accepts a connection that a peer opened.
    pub fn accept(&mut self) -> Result<ConnectionId, Error> {
        self.incoming.pop_front().ok_or_else(|| self.socket_error_or(Error::NotYet))
    }

    pub fn peer(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(&id)?.peer
    }

    #[inline]
    fn connection(&mut self, id: ConnectionId) -> Result<&mut ConnectionState, Error> {
        self.connections.get_mut(&id).ok_or(Error::Refused(Refusal::Unknown))
    }

    /// Returns the socket's error if it failed, otherwise `error`.
    fn socket_error_or(&self, error: Error) -> Error {
        self.failed.as_ref().map_or(error, |failed| Error::System(failed.kind().into()))
    }

    /// Passes a command whose effect is transmitted immediately.
    #[inline]
    pub fn command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Error> {
        self.pending_weight = URGENT_WEIGHT;
        self.defer_command(now, command)
    }

    /// Passes a command whose effect may be delayed.
    #[inline]
    fn defer_command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Error> {
        self.node.handle(now, Input::Command(command)).map_err(Error::from)
    }

    /// Returns whether everything sent has been acknowledged; if not, a later change wakes the caller.
    pub fn flush(&mut self, id: ConnectionId) -> Result<(), Error> {
        let is_closed = self.connection(id)?.close_reason.is_some();
        if self.node.is_flushed(id) {
            return Ok(());
        }
        if is_closed || self.failed.is_some() {
            return Err(self.closed_or_error(id, Error::NotYet));
        }
        if !self.flushing.contains(&id) {
            self.flushing.push(id);
            self.pending_weight = URGENT_WEIGHT;
        }
        Err(Error::NotYet)
    }

    /// Wakes waiting `flush` calls. A closed connection may be forgotten; its callers are woken anyway.
    #[cold]
    fn notify_flushed(&mut self) {
        let waiting = self.flushing.len();
        self.flushing.retain(|id| !self.node.is_flushed(*id));
        self.has_changed |= self.flushing.len() < waiting;
    }

    /// Returns the close reason of a connection, or `error` if it is open.
    fn closed_or_error(&self, id: ConnectionId, error: Error) -> Error {
        match self.connections.get(&id) {
            Some(ConnectionState { close_reason: Some(end), .. }) => Error::Closed(*end),
            _ => self.socket_error_or(error),
        }
    }

    /// Schedules the transmission of a message: immediately, unless it may be delayed and frames are in flight.
    #[inline]
    fn defer_transmit(&mut self, id: ConnectionId, bytes: usize) {
        let full_flow_from = if self.may_delay_messages { 1 } else { FULL_FLOW_FROM };
        self.in_full_flow = self.node.in_flight(id).is_some_and(|frames| frames >= full_flow_from);
        // Approximates its share of a frame: a transmission should fill a batch.
        self.pending_weight = if self.in_full_flow {
            self.pending_weight.saturating_add(2 + bytes as u32)
        } else {
            URGENT_WEIGHT
        };
    }

    #[inline]
    pub fn send(&mut self, now: Instant, id: ConnectionId, channel: u16, bytes: &[u8]) -> Result<(), Error> {
        self.defer_transmit(id, bytes.len());
        let sent = self.node.send(now, id, channel, bytes);
        sent.map_err(|refusal| self.closed_or_error(id, refusal.into()))
    }

    /// Sends the buffer without a copy.
    pub fn send_buffer(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        message: &mut Buffer,
    ) -> Result<(), Error> {
        self.defer_transmit(id, message.len());
        let done = self.defer_command(now, Command::SendOwned { id, channel, message });
        done.map_err(|error| self.closed_or_error(id, error))
    }

    /// Takes a complete message into the empty buffer `into`.
    #[inline]
    pub fn take(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> Result<(), Error> {
        loop {
            let connection = self.connection(id)?;
            if !connection.open {
                return Err(self.closed_or_error(id, Error::NotYet));
            }
            // Parts are stored with the connection, because a different caller may take the rest into another buffer.
            let mut part = connection.partial_messages.remove(&channel);
            connection.partial_bytes -= part.as_ref().map_or(0, |part| part.len());
            let target = part.as_mut().unwrap_or(into);
            let status = self.node.receive(id, channel, target).map_err(Error::Refused)?;
            if status != ReceiveStatus::Empty {
                self.pending_weight += MESSAGE_WEIGHT.min(64 + target.len() as u32);
            }
            if status == ReceiveStatus::Complete {
                if let Some(whole) = part {
                    *into = whole;
                }
                self.set_fast_connection(id);
                return Ok(());
            }
            if status == ReceiveStatus::Empty && part.is_none() && into.is_empty() {
                return Err(self.empty_error(id));
            }
            let part = part.unwrap_or_else(|| std::mem::take(into));
            self.clear_fast_connection(id);
            let connection = self.connection(id)?;
            connection.partial_bytes += part.len();
            let partial_bytes = connection.partial_bytes;
            if status == ReceiveStatus::Partial || !part.is_empty() {
                connection.partial_messages.insert(channel, part);
            } else {
                *into = part;
            }
            if partial_bytes > self.max_message {
                self.command(now, Command::Reset { id })?;
                return Err(Error::TooLong);
            }
            if status == ReceiveStatus::Empty {
                return Err(self.empty_error(id));
            }
        }
    }

    /// Returns the reason why there is no message.
    fn empty_error(&self, id: ConnectionId) -> Error {
        match self.closed_or_error(id, Error::NotYet) {
            Error::Closed(CloseReason::Completed) => Error::Finished,
            _ if self.connections.get(&id).is_some_and(|connection| connection.finished) => Error::Finished,
            error => error,
        }
    }

    /// Takes a complete message of any channel, in round-robin order.
    pub fn take_any(&mut self, now: Instant, id: ConnectionId, into: &mut Buffer) -> Result<u16, Error> {
        loop {
            let Some(channel) = self.connection(id)?.ready.pop() else { return Err(self.empty_error(id)) };
            match self.take(now, id, channel, into) {
                Ok(()) => {
                    self.connection(id)?.ready.push(channel);
                    return Ok(channel);
                }
                Err(Error::TooLong) => return Err(Error::TooLong),
                Err(_) => {}
            }
        }
    }

    /// Reads bytes of a channel as a stream: at least one, at most those that have arrived.
    pub fn read(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        if into.is_empty() {
            return Ok(0);
        }
        let connection = self.connection(id)?;
        if let Some(stash) = connection.partial_reads.get_mut(&channel).filter(|stash| !stash.is_empty()) {
            let length = stash.len().min(into.len());
            into[..length].copy_from_slice(&stash[..length]);
            stash.drain(..length);
            return Ok(length);
        }
        self.read_new(now, id, channel, into)
    }

    fn read_new(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        let mut read = 0;
        let command = Command::Read { id, channel, buffer: into, read: &mut read };
        self.node.handle(now, Input::Command(command)).map_err(|refusal| match refusal {
            Refusal::Closed => self.closed_or_error(id, Error::NotYet),
            other => Error::Refused(other),
        })?;
        if read == 0 {
            return Err(self.empty_error(id));
        }
        self.pending_weight += MESSAGE_WEIGHT;
        Ok(read)
    }

    /// Fills `into`, or stores the available bytes for the next call.
    pub fn read_exact(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let mut stash = self.connection(id)?.partial_reads.remove(&channel).unwrap_or_default();
        let before = stash.len();
        let mut ended = Ok(());
        if before < into.len() {
            stash.resize(into.len(), 0);
            let read = self.read_new(now, id, channel, &mut stash[before..]);
            stash.truncate(before + *read.as_ref().unwrap_or(&0));
            ended = read.map(drop);
        }
        let enough = stash.len() >= into.len();
        if enough {
            into.copy_from_slice(&stash[..into.len()]);
            stash.drain(..into.len());
        }
        let there = stash.len();
        if there > 0 {
            self.connection(id)?.partial_reads.insert(channel, stash);
        }
        match ended {
            _ if enough => Ok(()),
            Ok(()) | Err(Error::NotYet) => Err(Error::NotEnough(there)),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the connection has completed.
    pub fn is_done(&self, id: ConnectionId) -> Result<(), Error> {
        match self.closed_or_error(id, Error::NotYet) {
            Error::Closed(CloseReason::Completed) => Ok(()),
            error => Err(error),
        }
    }

    /// Releases the last handle of a connection. A finished connection completes by itself; any other is reset.
    pub fn leave(&mut self, now: Instant, id: ConnectionId, finishing: bool) {
        match self.connections.get_mut(&id) {
            Some(connection) if finishing && connection.open && connection.close_reason.is_none() => {
                connection.is_abandoned = true
            }
            _ => self.forget(now, id),
        }
    }

    /// Removes a listener: resets connections that were not accepted, and refuses later ones.
    pub fn refuse_all(&mut self, now: Instant) {
        self.accepts = false;
        while let Some(id) = self.incoming.pop_front() {
            self.forget(now, id);
        }
    }

    fn forget(&mut self, now: Instant, id: ConnectionId) {
        self.connections.remove(&id);
        self.clear_fast_connection(id);
        self.pending_weight = URGENT_WEIGHT;
        // A connection that was never established is already gone.
        let _ = self.node.handle(now, Input::Command(Command::Forget { id }));
    }
}

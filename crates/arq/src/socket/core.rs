//! What the threads and tasks of a socket share: the endpoint, and what it told of each connection.
//!
//! Nothing here waits. Whoever holds the lock hands in what came, tries what it wants, and lets the endpoint speak; what
//! is to be waited for, and how, is the faces' business.

mod single_frame;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
#[cfg(feature = "tokio")]
use std::task::Waker;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Writable};
use trunkline_io::datagrams::{BUFFER_SIZE, Received};
use trunkline_io::driver::{address_of, peer_of};
use trunkline_io::{Clock, Datagrams, socket};
use trunkline_units::{Instant, Size, Span};

use self::single_frame::Plain;
use super::{Error, Settings};
use crate::{
    Buffer, CloseReason, Command, Config, ConnectionId, EventKind, Node, Options, ReceiveStatus, Refusal,
};

const SOCKET: Port = Port(0);
/// Batches that are received in a row before the endpoint may speak.
const ROOMS: usize = 4;
/// How much may be left unsaid: the bytes of a batch.
pub(super) const AT_ONCE: u32 = 64 << 10;
/// What a message taken, or a frame that came alone, counts as.
const A_LITTLE: u32 = AT_ONCE / 32;
/// How long at the most, whatever the options say: a thread that sends wakes the helper that often.
pub(super) const GRACE: Span = Span::from_us(200);
/// Frames in flight from which on messages are laid out in frames: two batches.
const LAYS_FROM: u32 = 128;
/// Datagrams received at the door in a row.
const AT_THE_DOOR: usize = 64;
/// Batches sent without hearing the socket.
const DEAF: u32 = 8;

/// Room for what is received. Whoever has it receives for all.
pub(super) struct Rooms {
    bytes: Box<[u8]>,
    /// What came, as much as that was.
    arrived: [Received; ROOMS],
    count: usize,
}

impl Rooms {
    fn new() -> Box<Rooms> {
        let nothing = Received { from: (Ipv4Addr::UNSPECIFIED, 0).into(), length: 0, stride: 0 };
        Box::new(Rooms { bytes: vec![0; ROOMS * BUFFER_SIZE].into(), arrived: [nothing; ROOMS], count: 0 })
    }

    /// Receives what came, at first waiting for it if that is wanted. More is asked for only after a batch, which says
    /// that the peer is in full flow: else it would be a look in vain.
    #[inline(always)]
    pub fn receive(&mut self, socket: &Datagrams, wait: bool) -> io::Result<()> {
        self.count = 0;
        let Some(came) = socket.receive(&mut self.bytes[..BUFFER_SIZE], wait)? else { return Ok(()) };
        let alone = came.stride >= came.length;
        (self.arrived[0], self.count) = (came, 1);
        if alone { Ok(()) } else { self.receive_more(socket) }
    }

    /// Receives what is there.
    fn receive_more(&mut self, socket: &Datagrams) -> io::Result<()> {
        for (room, arrived) in self.bytes.chunks_exact_mut(BUFFER_SIZE).zip(&mut self.arrived).skip(1) {
            let Some(came) = socket.receive(room, false)? else { break };
            *arrived = came;
            self.count += 1;
            if came.stride >= came.length {
                break;
            }
        }
        Ok(())
    }
}

/// What is known of a connection.
#[derive(Debug, Default)]
struct User {
    peer: Option<SocketAddr>,
    open: bool,
    over: Option<CloseReason>,
    /// The peer sends no more.
    finished: bool,
    ready: Ready,
    /// Messages of which a part was taken, and their bytes.
    parts: BTreeMap<u16, Buffer>,
    held: usize,
    /// Bytes of a stream that were asked for before all were there.
    stashes: BTreeMap<u16, Vec<u8>>,
    /// Nobody has it any more.
    orphan: bool,
}

/// Channels that may have something, in turns, each once.
#[derive(Debug, Default)]
struct Ready {
    turns: VecDeque<u16>,
    /// A bit for each channel among them.
    among: Vec<u64>,
}

impl Ready {
    #[inline]
    fn push(&mut self, channel: u16) {
        let (word, bit) = (usize::from(channel / 64), 1 << (channel % 64));
        if word >= self.among.len() {
            self.among.resize(word + 1, 0);
        }
        if self.among[word] & bit == 0 {
            self.among[word] |= bit;
            self.turns.push_back(channel);
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<u16> {
        let channel = self.turns.pop_front()?;
        self.among[usize::from(channel / 64)] &= !(1 << (channel % 64));
        Some(channel)
    }
}

/// What could not leave because the socket was full.
struct Held {
    to: SocketAddr,
    bytes: Vec<u8>,
    segment: Option<Segment>,
}

/// The endpoint and what it told.
pub(super) struct Core {
    node: Node,
    users: BTreeMap<ConnectionId, User>,
    /// The one of them that last took a message, if it may be handled briefly.
    plain: Option<Plain>,
    /// Connections that peers opened and nobody took yet; no more than there may be connections.
    came: VecDeque<ConnectionId>,
    /// Connections whose users wait until all has been acknowledged; each once.
    flushing: Vec<ConnectionId>,
    /// Somebody may take them; and whether anybody ever could, so that there may be others than those that users have.
    accepts: bool,
    listens: bool,
    longest: usize,
    /// Messages may wait for others.
    shares: bool,
    output: Box<[u8]>,
    held: Option<Held>,
    /// Nobody receives: here it is.
    pub rooms: Option<Box<Rooms>>,
    /// Room for what is received at the door, once there was one.
    porch: Vec<u8>,
    /// What may make the endpoint speak and has happened since it did; what should not wait counts [`AT_ONCE`].
    unsaid: u32,
    /// When the endpoint last spoke.
    spoke: Instant,
    /// The last message that was sent waits for others: whoever sent it is in full flow.
    pub flows: bool,
    /// Batches sent since the socket was heard.
    sent: u32,
    /// When the endpoint wants to be woken, or earlier.
    pub deadline: Instant,
    /// Something was told since it was last looked at.
    pub news: bool,
    /// Tasks that wait for news.
    #[cfg(feature = "tokio")]
    pub wakers: Vec<Waker>,
    /// Connections and listeners that users have.
    pub handles: usize,
    /// The socket is of no more use.
    failed: Option<io::Error>,
}

/// A socket, its clock, and the endpoint for it.
pub(super) fn open(
    local: SocketAddr,
    accept: Option<&Options>,
    settings: &Settings,
) -> Result<(Datagrams, Clock, Core), Error> {
    let size = Some(Size::from_bytes(settings.buffer as u64));
    let buffers = socket::Options { send_buffer: size, receive_buffer: size, ..socket::Options::default() };
    let socket = Datagrams::bind(local, &buffers).map_err(|error| Error::System(error.cause))?;
    if settings.probe_mtu {
        socket.forbid_fragments().map_err(Error::System)?;
    }
    let random = trunkline_io::datagrams::random().map_err(Error::System)?;
    let connections = settings.connections;
    let mut node =
        Node::new(Config { port: SOCKET, accept: accept.cloned(), max_connections: connections, random });
    node.enable_pre_encoding(LAYS_FROM);
    let mut core = Core {
        node,
        users: BTreeMap::new(),
        plain: None,
        came: VecDeque::new(),
        flushing: Vec::new(),
        accepts: accept.is_some(),
        listens: accept.is_some(),
        longest: settings.longest,
        shares: false,
        output: vec![0; MAX_BATCH].into(),
        held: None,
        rooms: Some(Rooms::new()),
        porch: Vec::new(),
        unsaid: 0,
        spoke: Instant::ZERO,
        flows: false,
        sent: 0,
        deadline: Instant::MAX,
        news: false,
        #[cfg(feature = "tokio")]
        wakers: Vec::new(),
        handles: 0,
        failed: None,
    };
    accept.into_iter().for_each(|options| core.share(options));
    Ok((socket, Clock::start(), core))
}

impl Core {
    /// Whether something is left unsaid that may wait for more.
    #[inline]
    pub fn gathers(&self) -> bool {
        (1..AT_ONCE).contains(&self.unsaid)
    }

    /// Whether the next message may wait for others as well, as far as is known.
    #[inline]
    pub fn gathers_messages(&self) -> bool {
        self.flows && self.gathers()
    }

    /// Whether the endpoint should speak now: so much has happened, or so long ago.
    #[inline]
    pub fn should_speak(&mut self, now: Instant) -> bool {
        let long = self.unsaid > 0 && now.since(self.spoke) >= GRACE;
        self.unsaid >= AT_ONCE || long || self.is_due(now)
    }

    /// Whether it may have something to say.
    #[inline]
    pub fn may_speak(&mut self, now: Instant) -> bool {
        self.unsaid > 0 || self.is_due(now)
    }

    /// Hands what was received to the endpoint, and takes the rooms back.
    #[inline]
    pub fn take_rooms(&mut self, now: Instant, rooms: Box<Rooms>) {
        for (room, arrived) in rooms.bytes.chunks_exact(BUFFER_SIZE).zip(rooms.arrived).take(rooms.count) {
            self.take_arrived(now, &arrived, &room[..arrived.length]);
        }
        self.sent = 0;
        self.rooms = Some(rooms);
    }

    #[inline]
    fn take_arrived(&mut self, now: Instant, arrived: &Received, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (peer, segment) = (peer_of(arrived.from), arrived.segment());
        self.unsaid += if segment.is_some() { AT_ONCE } else { A_LITTLE };
        let mut give = |bytes, segment| {
            let frame = Input::Frame { port: SOCKET, peer, bytes, segment };
            self.node.handle(now, frame).expect("only commands are refused");
        };
        if Segment::fits(segment, bytes.len()) {
            give(bytes, segment);
        } else {
            // IPv6 carries up to 20 bytes more than a batch has.
            let frames = Segment::frames(segment, bytes).filter(|frame| frame.len() <= MAX_BATCH);
            frames.for_each(|frame| give(frame, None));
        }
    }

    /// The same, or notes that receiving failed.
    #[inline]
    pub fn take_received(&mut self, now: Instant, rooms: Box<Rooms>, received: io::Result<()>) {
        if let Err(error) = received {
            self.fail(error);
        }
        self.take_rooms(now, rooms);
    }

    /// Takes what has come, if nobody else is there to do it; whether something had.
    pub fn listen(&mut self, now: Instant, socket: &Datagrams) -> bool {
        let Some(mut rooms) = self.rooms.take() else { return false };
        let received = rooms.receive(socket, false);
        let came = rooms.count > 0;
        self.take_received(now, rooms, received);
        came
    }

    /// The same at the door where others than the peer of a connected socket are heard.
    pub fn listen_at(&mut self, now: Instant, door: &UdpSocket) -> bool {
        let mut room = std::mem::take(&mut self.porch);
        room.resize(BUFFER_SIZE, 0);
        let mut came = false;
        for _ in 0..AT_THE_DOOR {
            match Datagrams::receive_unconnected(door, &mut room) {
                Ok(None) => break,
                Ok(Some(arrived)) => {
                    came = true;
                    self.take_arrived(now, &arrived, &room[..arrived.length]);
                }
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        self.porch = room;
        came
    }

    /// The socket is of no more use.
    pub fn fail(&mut self, error: io::Error) {
        self.failed.get_or_insert(error);
        self.news = true;
    }

    /// Whether the socket is of no more use.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Does what is due and lets the endpoint say all it has to say.
    #[inline]
    pub fn transmit(&mut self, now: Instant, socket: &Datagrams) {
        if self.is_due(now) || self.sent >= DEAF {
            // What has come may make the deadline moot.
            self.listen(now, socket);
        }
        if self.is_due(now) {
            self.node.handle(now, Input::Wake).expect("only commands are refused");
        }
        if self.failed.is_some() {
            return self.deadline = Instant::MAX;
        }
        self.send_held(socket);
        (self.unsaid, self.spoke) = (0, now);
        loop {
            let writable = if self.held.is_none() { Writable::ALL } else { Writable::NONE };
            match self.node.poll_in_place(now, writable, &mut self.output) {
                Output::Transmit(transmit) => {
                    let to = address_of(transmit.peer).expect("an endpoint answers peers it was told");
                    let bytes = self.node.transmitted_bytes(&self.output, transmit.length);
                    self.sent += 1;
                    self.held = put(socket, &to, bytes, transmit.segment);
                }
                Output::Event(event) => self.note(now, event.id, event.kind),
                Output::Idle(idle) => break self.deadline = idle.deadline.unwrap_or(Instant::MAX),
            }
        }
        if !self.flushing.is_empty() {
            self.notify_flushed();
        }
    }

    /// Whether something waits for the socket to take it.
    #[cfg(feature = "tokio")]
    pub fn is_full(&self) -> bool {
        self.held.is_some()
    }

    fn send_held(&mut self, socket: &Datagrams) {
        if let Some(Held { to, bytes, segment }) = self.held.take() {
            self.held = put(socket, &to, &bytes, segment);
        }
    }

    #[inline]
    fn note(&mut self, now: Instant, id: ConnectionId, news: EventKind) {
        self.news = true;
        if !self.users.contains_key(&id) {
            // Only what a peer opened is new.
            if !self.accepts {
                return self.forget(now, id);
            }
            self.came.push_back(id);
        }
        let user = self.users.entry(id).or_default();
        match news {
            EventKind::Opened { peer } => (user.open, user.peer) = (true, address_of(peer)),
            EventKind::Readable { channel } => user.ready.push(channel),
            EventKind::Writable { .. } => {}
            EventKind::Finished => user.finished = true,
            EventKind::Closed { reason: end } => {
                user.over = Some(end);
                // A peer that left before anybody took its connection and said nothing is nobody's business.
                if user.orphan {
                    self.forget(now, id);
                }
            }
        }
    }

    /// Messages may wait for as long as the options say.
    fn share(&mut self, options: &Options) {
        self.shares = !options.coalesce_delay.is_zero();
    }

    /// Opens a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: &Options,
    ) -> Result<ConnectionId, Error> {
        let mut id = ConnectionId::default();
        self.share(options);
        self.command(now, Command::Open { peer: peer_of(to), options, id: &mut id })?;
        self.users.insert(id, User { peer: Some(to), ..User::default() });
        Ok(id)
    }

    /// Whether a connection stands.
    pub fn is_open(&self, id: ConnectionId) -> Result<(), Error> {
        match self.users.get(&id) {
            Some(user) if user.open => Ok(()),
            Some(User { over: None, .. }) => Err(self.or_worse(Error::NotYet)),
            Some(User { over: Some(end), .. }) => Err(Error::Closed(*end)),
            None => Err(Error::Refused(Refusal::Unknown)),
        }
    }

    /// A connection that a peer opened.
    pub fn accept(&mut self) -> Result<ConnectionId, Error> {
        self.came.pop_front().ok_or_else(|| self.or_worse(Error::NotYet))
    }

    /// With whom.
    pub fn peer(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.users.get(&id)?.peer
    }

    /// The error, or a worse one.
    fn or_worse(&self, error: Error) -> Error {
        self.failed.as_ref().map_or(error, |failed| Error::System(failed.kind().into()))
    }

    #[inline]
    fn command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Error> {
        self.unsaid = AT_ONCE;
        self.defer_command(now, command)
    }

    /// A command that need not be heeded at once.
    #[inline]
    fn defer_command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Error> {
        self.node.handle(now, Input::Command(command)).map_err(|refusal| match refusal {
            Refusal::Full => Error::Full,
            other => Error::Refused(other),
        })
    }

    /// Whether all that was sent has been acknowledged. If not, that is news once it has.
    pub fn flush(&mut self, id: ConnectionId) -> Result<(), Error> {
        let Some(user) = self.users.get(&id) else { return Err(Error::Refused(Refusal::Unknown)) };
        if self.node.is_flushed(id) {
            return Ok(());
        }
        if user.over.is_some() || self.failed.is_some() {
            return Err(self.closed_or_error(id, Error::NotYet));
        }
        if !self.flushing.contains(&id) {
            self.flushing.push(id);
            self.unsaid = AT_ONCE;
        }
        Err(Error::NotYet)
    }

    /// Tells those that wait for it. A connection that is over may be forgotten; its users are told anyway.
    #[cold]
    fn notify_flushed(&mut self) {
        let waiting = self.flushing.len();
        self.flushing.retain(|id| !self.node.is_flushed(*id));
        self.news |= self.flushing.len() < waiting;
    }

    /// Why a connection takes or gives nothing (more), if it does not.
    fn closed_or_error(&self, id: ConnectionId, error: Error) -> Error {
        match self.users.get(&id) {
            Some(User { over: Some(end), .. }) => Error::Closed(*end),
            _ => self.or_worse(error),
        }
    }

    /// A message is to leave: at once, unless it may wait for others and frames are in flight, or very many are.
    #[inline]
    fn owe(&mut self, id: ConnectionId, bytes: usize) {
        self.flows = match self.shares {
            true => self.node.in_flight(id).is_some_and(|frames| frames > 0),
            false => self.node.is_busy(id),
        };
        // As on its frame, roughly: what is said at once should fill a batch.
        self.unsaid = if self.flows { self.unsaid.saturating_add(2 + bytes as u32) } else { AT_ONCE };
    }

    /// Sends a copy.
    #[inline]
    pub fn send(&mut self, now: Instant, id: ConnectionId, channel: u16, bytes: &[u8]) -> Result<(), Error> {
        self.owe(id, bytes.len());
        match self.node.send(now, id, channel, bytes) {
            Ok(()) => Ok(()),
            Err(Refusal::Full) => Err(self.closed_or_error(id, Error::Full)),
            Err(other) => Err(self.closed_or_error(id, Error::Refused(other))),
        }
    }

    /// Lets the endpoint say what it has to say, if that is a single frame of this connection. Whatever it has otherwise
    /// is left to [`transmit`](Core::transmit).
    #[inline]
    pub fn send_only_frame(&mut self, now: Instant, socket: &Datagrams, id: ConnectionId) {
        if self.flows || self.is_due(now) || self.sent >= DEAF || self.held.is_some() || self.has_failed() {
            return;
        }
        if let Some((peer, length)) = self.node.send_only_frame(now, id, &mut self.output) {
            let to = address_of(peer).expect("an endpoint answers peers it was told");
            self.held = put(socket, &to, &self.output[..length], None);
            self.sent += 1;
            (self.unsaid, self.spoke) = (0, now);
            self.deadline = self.node.next_deadline().unwrap_or(Instant::MAX);
        }
    }

    /// Sends the buffer itself.
    pub fn hand_over(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        message: &mut Buffer,
    ) -> Result<(), Error> {
        self.owe(id, message.len());
        let done = self.defer_command(now, Command::SendOwned { id, channel, message });
        done.map_err(|error| self.closed_or_error(id, error))
    }

    /// Takes a whole message into `into`, which is empty.
    #[inline]
    pub fn take(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> Result<(), Error> {
        loop {
            let Some(user) = self.users.get_mut(&id) else { return Err(Error::Refused(Refusal::Unknown)) };
            if !user.open {
                return Err(self.closed_or_error(id, Error::NotYet));
            }
            // A part waits beside, so that whoever takes the rest may be another thread with another buffer.
            let mut part = if user.parts.is_empty() { None } else { user.parts.remove(&channel) };
            user.held -= part.as_ref().map_or(0, |part| part.len());
            let target = part.as_mut().unwrap_or(into);
            let taken = self.node.receive(id, channel, target).map_err(Error::Refused)?;
            if taken != ReceiveStatus::Empty {
                self.unsaid += A_LITTLE.min(64 + target.len() as u32);
            }
            if taken == ReceiveStatus::Complete {
                if let Some(whole) = part {
                    *into = whole;
                }
                self.note_plain(id);
                return Ok(());
            }
            if taken == ReceiveStatus::Empty && part.is_none() && into.is_empty() {
                return Err(self.nothing(id));
            }
            let part = part.unwrap_or_else(|| std::mem::take(into));
            self.forget_plain(id);
            let user = self.users.get_mut(&id).expect("it was there");
            user.held += part.len();
            let held = user.held;
            if taken == ReceiveStatus::Partial || !part.is_empty() {
                user.parts.insert(channel, part);
            } else {
                *into = part;
            }
            if held > self.longest {
                self.command(now, Command::Reset { id })?;
                return Err(Error::TooLong);
            }
            if taken == ReceiveStatus::Empty {
                return Err(self.nothing(id));
            }
        }
    }

    /// Why there is nothing to take.
    fn nothing(&self, id: ConnectionId) -> Error {
        match self.users.get(&id) {
            Some(User { over: Some(CloseReason::Completed), .. } | User { finished: true, .. }) => {
                Error::Finished
            }
            Some(User { over: Some(end), .. }) => Error::Closed(*end),
            _ => self.or_worse(Error::NotYet),
        }
    }

    /// Takes a whole message of any channel, in turns.
    pub fn take_any(&mut self, now: Instant, id: ConnectionId, into: &mut Buffer) -> Result<u16, Error> {
        loop {
            let Some(user) = self.users.get_mut(&id) else { return Err(Error::Refused(Refusal::Unknown)) };
            let Some(channel) = user.ready.pop() else { return Err(self.nothing(id)) };
            match self.take(now, id, channel, into) {
                Ok(()) => {
                    self.users.get_mut(&id).expect("it was there").ready.push(channel);
                    return Ok(channel);
                }
                Err(Error::TooLong) => return Err(Error::TooLong),
                Err(_) => {}
            }
        }
    }

    /// Reads bytes of a channel as a stream, as many as there are; at least one.
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
        let user = self.users.get_mut(&id).ok_or(Error::Refused(Refusal::Unknown))?;
        if let Some(stash) = user.stashes.get_mut(&channel).filter(|stash| !stash.is_empty()) {
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
        if read > 0 {
            self.unsaid += A_LITTLE;
        }
        if read > 0 { Ok(read) } else { Err(self.nothing(id)) }
    }

    /// Fills `into` if there is enough, else keeps what there is.
    pub fn read_exact(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let user = self.users.get_mut(&id).ok_or(Error::Refused(Refusal::Unknown))?;
        let mut stash = user.stashes.remove(&channel).unwrap_or_default();
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
            self.users.get_mut(&id).expect("it was there").stashes.insert(channel, stash);
        }
        match ended {
            _ if enough => Ok(()),
            Ok(()) | Err(Error::NotYet) => Err(Error::NotEnough(there)),
            Err(error) => Err(error),
        }
    }

    /// How urgent a channel is.
    pub fn prioritize(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        priority: u8,
    ) -> Result<(), Error> {
        self.command(now, Command::Prioritize { id, channel, priority })
    }

    /// Sends no more.
    pub fn finish(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        self.command(now, Command::Close { id })
    }

    /// Ends it.
    pub fn reset(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        self.command(now, Command::Reset { id })
    }

    /// Whether it is over as it should be.
    pub fn is_done(&self, id: ConnectionId) -> Result<(), Error> {
        match self.users.get(&id).and_then(|user| user.over) {
            Some(CloseReason::Completed) => Ok(()),
            Some(end) => Err(Error::Closed(end)),
            None => Err(self.or_worse(Error::NotYet)),
        }
    }

    /// Nobody has a connection any more. One that was told to finish does so by itself; any other is reset.
    pub fn leave(&mut self, now: Instant, id: ConnectionId, finishing: bool) {
        match self.users.get_mut(&id) {
            Some(user) if finishing && user.open && user.over.is_none() => user.orphan = true,
            _ => self.forget(now, id),
        }
    }

    /// A listener has gone: what nobody took is reset, and whoever comes later.
    pub fn refuse_all(&mut self, now: Instant) {
        self.accepts = false;
        while let Some(id) = self.came.pop_front() {
            self.forget(now, id);
        }
    }

    fn forget(&mut self, now: Instant, id: ConnectionId) {
        self.users.remove(&id);
        self.forget_plain(id);
        self.unsaid = AT_ONCE;
        // One that never stood is gone already.
        let _ = self.node.handle(now, Input::Command(Command::Forget { id }));
    }

    /// Whether nobody needs the socket any more.
    pub fn is_over(&self) -> bool {
        self.handles == 0 && (self.node.connection_count() == 0 || self.failed.is_some())
    }

    /// The endpoint, to ask it something.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

/// Sends; what finds the socket full is given back. Other trouble is a loss like any other.
#[inline(always)]
fn put(socket: &Datagrams, to: &SocketAddr, bytes: &[u8], segment: Option<Segment>) -> Option<Held> {
    let Err(error) = socket.send(*to, bytes, segment) else { return None };
    hold_back(&error, to, bytes, segment)
}

#[cold]
fn hold_back(error: &io::Error, to: &SocketAddr, bytes: &[u8], segment: Option<Segment>) -> Option<Held> {
    (error.kind() == io::ErrorKind::WouldBlock).then(|| Held { to: *to, bytes: bytes.into(), segment })
}

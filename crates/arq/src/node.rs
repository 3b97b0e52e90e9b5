//! The endpoint: connections with any number of peers through one port.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `greetings` | how connections open: greetings, cookies, strangers |

mod greetings;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use trunkline_endpoint::{
    Endpoint, Idle, Input, Output, Peer, Port, Reason as Waits, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Span, Stream};

use self::greetings::Secrets;
use crate::Buffer;
use crate::connection::{Brought, Connection};
use crate::options::Options;
use crate::receive::Taken;
use crate::statistics::{Reach, Statistics};
use crate::talk::{Command, ConnectionId, End, Event, News, Refusal, Strangers};
use crate::wire::check::Check;
use crate::wire::open::{self, COOKIE_BYTES, Greeting};

/// The longest pause between two tries to open.
const REOPEN: Span = Span::from_s(1);
/// Deadlines that were noted and overtaken may lie about up to this many, and two for each slot.
const STALE: usize = 64;

/// How a [`Node`] behaves.
#[derive(Debug)]
pub struct Config {
    /// Through which port.
    pub port: Port,
    /// Whether peers may open connections, and how those behave. Mode and check are the peer's choice, but for a key: with
    /// one all connections are encrypted, without one none is.
    pub accept: Option<Options>,
    /// Most connections, opened by either end.
    pub connections: usize,
    /// Where the secrets come from that nobody should guess: a node draws them when it is made, and nothing later.
    pub random: Stream,
}

#[derive(Debug)]
enum State {
    Free,
    Opening(Box<Opening>),
    Standing(Box<Connection>),
}

/// A connection that was asked for and does not stand yet.
#[derive(Debug)]
struct Opening {
    peer: Peer,
    client: u64,
    options: Options,
    cookie: [u8; COOKIE_BYTES],
    /// When to ask again.
    at: Instant,
    /// When it last asked, if that was the only time with this cookie.
    asked: Option<Instant>,
    /// It has one cookie, the first it got.
    measures: bool,
    tries: u32,
    since: Instant,
    over: Option<End>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
    /// It stands in the line of those that may have something to say.
    ready: bool,
    /// Its own deadline, unless it stands in the line.
    own: Instant,
    /// The deadline noted for it; not later than its own.
    noted: Instant,
    /// The peer is to be told that it stands; the user is.
    greet: bool,
    opened: bool,
    /// Its user is done with it; it is kept until then.
    forget_at: Option<Instant>,
}

impl Slot {
    /// Whether it is that connection's, and nothing is to be told of its beginning or its end.
    #[inline]
    fn is_plain(&self, id: ConnectionId) -> bool {
        self.generation == id.generation && !self.opened && !self.greet && self.forget_at.is_none()
    }
}

/// Connections with any number of peers through one port.
///
/// Queues: answers to strangers at most 64; of events one for each thing that can happen to a channel or connection;
/// messages as [`Options`] say.
#[derive(Debug)]
pub struct Node {
    config: Config,
    slots: Vec<Slot>,
    free: Vec<u32>,
    peers: BTreeMap<Peer, u32>,
    /// The last peer heard, and its slot.
    last: Option<(Peer, u32)>,
    ready: VecDeque<u32>,
    /// What slots have noted, and what they noted before: only an entry that is still noted counts.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
    answers: VecDeque<(Peer, Greeting)>,
    secrets: Secrets,
    strangers: Strangers,
    /// The first numbers of frames and of chunks: zero, but in tests.
    first: (u64, u64),
    /// No short ways are taken: in tests.
    long_ways: bool,
    /// Connections lay out frames from so many in flight on.
    lays_from: Option<u32>,
    /// The connection of the last batch, if that lies in memory of its own.
    placed: Option<u32>,
}

impl Node {
    /// A node without connections.
    pub fn new(mut config: Config) -> Self {
        let secrets = Secrets::draw(&mut config.random);
        // The peer's mode decides what else is within bounds.
        config.accept = config.accept.map(|o| Options { check: o.within_bounds().check, ..o });
        Node {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            peers: BTreeMap::new(),
            last: None,
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            answers: VecDeque::new(),
            secrets,
            strangers: Strangers::default(),
            first: (0, 0),
            long_ways: false,
            lays_from: None,
            placed: None,
        }
    }

    /// Counts frames and the chunks of each channel from these numbers on, in connections that do not stand yet. For
    /// tests of what happens when the numbers on the wire run over; both ends must do the same.
    #[doc(hidden)]
    pub fn number_from(&mut self, frame: u64, chunk: u64) {
        self.first = (frame, chunk);
    }

    /// Takes no short ways in connections that do not stand yet. For tests that they come to the same.
    #[doc(hidden)]
    pub fn take_no_short_ways(&mut self) {
        self.long_ways = true;
    }

    /// Spares connections that do not stand yet a copy: while at least `in_flight` frames are in flight, long messages of a
    /// channel that alone has something to send are laid out in frames when they are sent, and leave from there if they
    /// are polled [in place](Node::poll_in_place). So frames may be divided otherwise than without. Not where frames are
    /// encrypted, protected by forward error correction, or as long as probes say.
    pub fn lay_frames(&mut self, in_flight: u32) {
        self.lays_from = Some(in_flight);
    }

    /// As [`poll`](Endpoint::poll), but what is to be transmitted need not be in `buffer`:
    /// [`transmitted`](Node::transmitted), asked next, has it.
    #[inline]
    pub fn poll_in_place(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<Event> {
        let port = self.config.port;
        let writable = writable.has(port);
        self.placed = None;
        if writable && let Some((peer, greeting)) = self.answers.pop_front() {
            let length = greeting.write(buffer);
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else { break };
            if let Some(output) = self.hear(now, number, writable, buffer) {
                if self.is_settled(now, number) {
                    // To ask it again would come to nothing.
                    self.slots[number as usize].ready = false;
                    self.note(number);
                } else {
                    // It goes on, but others get their turn.
                    self.ready.push_back(number);
                }
                return output;
            }
            if writable {
                self.slots[number as usize].ready = false;
                self.note(number);
            } else {
                self.ready.push_back(number);
            }
        }
        let waits = self.answers.is_empty() && self.ready.is_empty();
        let reason = if waits { Waits::Input } else { Waits::Port(port) };
        Output::Idle(Idle { deadline: self.first_deadline(), reason })
    }

    /// The `length` bytes that the last [`poll_in_place`](Node::poll_in_place), into `buffer`, had to transmit.
    #[inline]
    pub fn transmitted<'a>(&'a self, buffer: &'a [u8], length: usize) -> &'a [u8] {
        self.placed_bytes(length).unwrap_or(&buffer[..length])
    }

    #[inline]
    fn placed_bytes(&self, length: usize) -> Option<&[u8]> {
        match &self.slots[self.placed? as usize].state {
            State::Standing(connection) => connection.placed_bytes(length),
            _ => None,
        }
    }

    /// What strangers did.
    pub fn strangers(&self) -> Strangers {
        self.strangers
    }

    /// Connections there are, of any kind.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What a connection counted.
    pub fn statistics(&self, id: ConnectionId) -> Option<Statistics> {
        self.standing(id).map(|connection| connection.statistics)
    }

    /// How long the frames are that a connection sends.
    pub fn reach(&self, id: ConnectionId) -> Option<Reach> {
        self.standing(id).map(Connection::reach)
    }

    /// The smoothed round trip of a connection, once there is one.
    pub fn round_trip(&self, id: ConnectionId) -> Option<Span> {
        self.standing(id)?.round_trip()
    }

    /// Whether everything that a connection was given has been acknowledged.
    pub fn is_flushed(&self, id: ConnectionId) -> bool {
        self.standing(id).is_none_or(Connection::is_flushed)
    }

    /// Frames of a connection in flight.
    pub fn in_flight(&self, id: ConnectionId) -> Option<u32> {
        self.standing(id).map(Connection::in_flight)
    }

    /// Whether so much of a connection is in flight that messages wait for a batch.
    pub fn is_busy(&self, id: ConnectionId) -> bool {
        self.standing(id).is_some_and(Connection::is_busy)
    }

    /// Bytes that have arrived on a channel and were not taken, with a few for each chunk.
    pub fn held(&self, id: ConnectionId, channel: u16) -> u64 {
        self.standing(id).map_or(0, |connection| connection.held(channel))
    }

    fn standing(&self, id: ConnectionId) -> Option<&Connection> {
        match self.slots.get(id.slot as usize) {
            Some(Slot { generation, state: State::Standing(connection), .. })
                if *generation == id.generation =>
            {
                Some(connection)
            }
            _ => None,
        }
    }

    #[inline]
    fn standing_mut(&mut self, id: ConnectionId) -> Result<&mut Connection, Refusal> {
        match self.slots.get_mut(id.slot as usize) {
            Some(slot) if slot.generation == id.generation && slot.forget_at.is_none() => {
                match &mut slot.state {
                    State::Standing(connection) => Ok(connection),
                    State::Opening(_) => Err(Refusal::Closed),
                    State::Free => Err(Refusal::Unknown),
                }
            }
            _ => Err(Refusal::Unknown),
        }
    }

    fn place(&mut self, peer: Peer, state: State) -> u32 {
        let generation = 0;
        let (own, noted) = (Instant::MAX, Instant::MAX);
        let (greet, opened, forget_at) = (false, false, None);
        let slot = Slot { generation, state, ready: false, own, noted, greet, opened, forget_at };
        let number = match self.free.pop() {
            Some(number) => {
                // It may still stand in the line.
                let Slot { generation, ready, .. } = self.slots[number as usize];
                self.slots[number as usize] = Slot { generation, ready, ..slot };
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.peers.insert(peer, number);
        self.last = None;
        number
    }

    fn remove(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let peer = match &slot.state {
            State::Free => return,
            State::Opening(opening) => opening.peer,
            State::Standing(connection) => connection.peer,
        };
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.own, slot.noted) = (Instant::MAX, Instant::MAX);
        // Its peer may have a newer connection.
        if self.peers.get(&peer) == Some(&number) {
            self.peers.remove(&peer);
        }
        self.last = None;
        self.free.push(number);
    }

    /// It may have something to say.
    #[inline]
    fn wake_up(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if !slot.ready {
            slot.ready = true;
            self.ready.push_back(number);
        }
    }

    fn open(&mut self, now: Instant, peer: Peer, options: &Options) -> Result<ConnectionId, Refusal> {
        if let Some(&number) = self.peers.get(&peer) {
            let slot = &self.slots[number as usize];
            let gone = matches!(&slot.state, State::Standing(c) if c.over().is_some());
            if !gone {
                return Err(Refusal::Busy);
            }
        }
        if self.connections() >= self.config.connections {
            return Err(Refusal::TooMany);
        }
        if options.check == Check::Aead && options.key.is_none() {
            return Err(Refusal::NoKey);
        }
        let (client, options, cookie) = (self.secrets.number(), options.within_bounds(), [0; COOKIE_BYTES]);
        let opening = Opening {
            peer,
            client,
            options,
            cookie,
            at: now,
            asked: None,
            measures: false,
            tries: 0,
            since: now,
            over: None,
        };
        let number = self.place(peer, State::Opening(Box::new(opening)));
        self.wake_up(number);
        Ok(ConnectionId { slot: number, generation: self.slots[number as usize].generation })
    }

    fn forget(&mut self, now: Instant, id: ConnectionId) -> Result<(), Refusal> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let slot = slot.ok_or(Refusal::Unknown)?;
        match &mut slot.state {
            State::Free => return Err(Refusal::Unknown),
            State::Opening(_) => self.remove(id.slot),
            State::Standing(connection) => {
                connection.reset();
                // One that is done answers a while longer; one that is reset tells its peer first.
                let linger = match connection.over() {
                    Some(End::Done) => connection.linger(),
                    _ => Span::ZERO,
                };
                slot.forget_at.get_or_insert(now + linger);
                self.wake_up(id.slot);
            }
        }
        Ok(())
    }

    /// [`Command::Send`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        self.standing_mut(id)?.send(now, channel, bytes)?;
        self.wake_up(id.slot);
        Ok(())
    }

    /// Says what there is to say, if that is a frame of this connection alone: to whom, and how long it is. Then there
    /// is nothing left to poll for. As [`poll`](Endpoint::poll) would, without a look at all that might be.
    #[inline]
    #[cfg_attr(not(feature = "sockets"), expect(dead_code, reason = "for the faces"))]
    pub(crate) fn say_only(
        &mut self,
        now: Instant,
        id: ConnectionId,
        buffer: &mut [u8],
    ) -> Option<(Peer, usize)> {
        if self.ready.len() != 1 || self.ready.front() != Some(&id.slot) || !self.answers.is_empty() {
            return None;
        }
        let slot = &mut self.slots[id.slot as usize];
        if slot.opened || slot.greet || slot.forget_at.is_some() {
            return None;
        }
        let State::Standing(connection) = &mut slot.state else { return None };
        let said = (connection.peer, connection.say_only(now, buffer)?);
        slot.ready = false;
        self.ready.clear();
        self.note(id.slot);
        Some(said)
    }

    /// Sends a copy of a message in a frame of its own, written into `buffer`, if that is then all that anybody has to say;
    /// how long it is, and when the connection must be woken. As [`Command::Send`] and a poll, of which nothing but this frame
    /// comes. If not, nothing has changed.
    #[doc(hidden)]
    #[inline]
    pub fn send_at_once(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Option<(usize, Instant)> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id))?;
        if self.ready.len() != usize::from(slot.ready) || !self.answers.is_empty() {
            return None;
        }
        let State::Standing(connection) = &mut slot.state else { return None };
        let length = connection.send_at_once(now, channel, bytes, buffer)?;
        let deadline = connection.settled_deadline();
        if std::mem::take(&mut slot.ready) {
            self.ready.clear();
        }
        self.note_at(id.slot, deadline);
        Some((length, deadline))
    }

    /// Takes a frame of a connection's peer if it brings the message of a channel that is wanted next, which fills `into`,
    /// whatever that held; whether it did. As [`Input::Frame`] and [`Command::Take`]. If not, nothing has changed.
    #[doc(hidden)]
    pub fn take_at_once(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> bool {
        self.pass_at_once(now, frame, id, channel, into) != Brought::Nothing
    }

    /// The same, and what became of the frame.
    #[inline]
    pub(crate) fn pass_at_once(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> Brought {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id));
        let Some(Slot { state: State::Standing(connection), .. }) = slot else { return Brought::Nothing };
        if !self.ready.is_empty() || !self.answers.is_empty() {
            return Brought::Nothing;
        }
        let brought = connection.take_at_once(now, frame, channel, into);
        match brought {
            Brought::Nothing => {}
            Brought::Settled(deadline) => self.note_at(id.slot, deadline),
            Brought::Message => self.wake_up(id.slot),
        }
        brought
    }

    /// Whether nobody has anything to say or to tell, and nothing of a channel is there to be taken.
    #[inline]
    #[cfg_attr(not(feature = "sockets"), expect(dead_code, reason = "for the faces"))]
    pub(crate) fn awaits(&mut self, id: ConnectionId, channel: u16) -> bool {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id));
        let Some(Slot { state: State::Standing(connection), .. }) = slot else { return false };
        self.ready.is_empty() && self.answers.is_empty() && connection.awaits(channel)
    }

    /// [`Command::Take`].
    #[inline]
    pub(crate) fn take(
        &mut self,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> Result<Taken, Refusal> {
        let taken = self.standing_mut(id)?.take(channel, into);
        self.wake_up(id.slot);
        Ok(taken)
    }

    #[inline]
    pub(crate) fn take_frame(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        // The first byte of what concerns no standing connection, and of nothing else, is 1 to 5.
        if matches!(frame.first(), Some(open::OPEN..=open::UNKNOWN)) {
            return self.take_greeting(now, peer, frame);
        }
        let number = match self.last {
            Some((last, number)) if last == peer => number,
            _ => match self.peers.get(&peer) {
                Some(&number) => {
                    self.last = Some((peer, number));
                    number
                }
                None => return self.take_stray(peer, frame),
            },
        };
        match &mut self.slots[number as usize].state {
            State::Standing(connection) => connection.take_frame(now, frame),
            // The answer to its opening was lost or overtaken; what this is will come again.
            State::Opening(_) | State::Free => self.strangers.frames += 1,
        }
        self.wake_up(number);
    }

    /// Takes frames that came in one piece: as many at once as are alike.
    #[inline]
    fn take_batch(&mut self, now: Instant, peer: Peer, bytes: &[u8], segment: Option<Segment>) {
        let length = segment.map_or(bytes.len(), Segment::length);
        let mut rest = bytes;
        loop {
            if let Some((last, number)) = self.last
                && last == peer
                && let State::Standing(connection) = &mut self.slots[number as usize].state
            {
                let taken = connection.take_run(now, rest, length);
                if taken > 0 {
                    rest = &rest[taken..];
                    self.wake_up(number);
                }
            }
            if rest.is_empty() && !bytes.is_empty() {
                return;
            }
            let (frame, more) = rest.split_at(length.min(rest.len()));
            self.take_frame(now, peer, frame);
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some(&Reverse((at, number))) = self.deadlines.peek() {
            if at > now {
                return;
            }
            self.deadlines.pop();
            let slot = &mut self.slots[number as usize];
            if slot.noted != at {
                continue;
            }
            slot.noted = Instant::MAX;
            match &mut slot.state {
                State::Standing(connection) => {
                    connection.wake(now);
                    // Whoever opened it may have missed the answer.
                    slot.greet |= connection.is_unheard();
                }
                State::Opening(opening) => {
                    if opening.tries > 0 && now.since(opening.since) >= opening.options.patience {
                        opening.over.get_or_insert(End::NoAnswer);
                    }
                }
                State::Free => {}
            }
            self.wake_up(number);
        }
    }

    /// What the first in line has to say; none if it is done for now.
    #[inline]
    fn hear(
        &mut self,
        now: Instant,
        number: u32,
        writable: bool,
        buffer: &mut [u8],
    ) -> Option<Output<Event>> {
        let port = self.config.port;
        let slot = &mut self.slots[number as usize];
        let id = ConnectionId { slot: number, generation: slot.generation };
        match &mut slot.state {
            State::Free => None,
            State::Opening(opening) => {
                if let Some(end) = opening.over {
                    self.remove(number);
                    return Some(Output::Event(Event { id, news: News::Closed { end } }));
                }
                if !writable || opening.at > now {
                    return None;
                }
                let backoff = (opening.options.timeout.initial * (1 << opening.tries.min(5))).min(REOPEN);
                opening.asked = (opening.tries == 0 && opening.measures).then_some(now);
                (opening.at, opening.tries) = (now + backoff, opening.tries + 1);
                let Opening { client, cookie, ref options, peer, .. } = **opening;
                let length = Greeting::Open { client, terms: options.terms(), cookie }.write(buffer);
                if let Some(key) = &options.key {
                    key.prove(&mut buffer[..length]);
                }
                Some(Output::Transmit(Transmit { port, peer, length, segment: None }))
            }
            State::Standing(connection) => {
                let peer = connection.peer;
                if std::mem::take(&mut slot.opened) {
                    return Some(Output::Event(Event { id, news: News::Opened { peer } }));
                }
                if let Some(news) = connection.news()
                    && slot.forget_at.is_none()
                {
                    return Some(Output::Event(Event { id, news }));
                }
                if !writable {
                    return None;
                }
                if std::mem::take(&mut slot.greet) {
                    let (client, server, terms) = (connection.client, connection.server, connection.terms);
                    let length = Greeting::Opened { client, server, terms }.write(buffer);
                    connection.prove(&mut buffer[..length]);
                    return Some(Output::Transmit(Transmit { port, peer, length, segment: None }));
                }
                if let Some((length, segment)) = connection.transmit(now, buffer) {
                    self.placed = connection.placed.map(|_| number);
                    return Some(Output::Transmit(Transmit { port, peer, length, segment }));
                }
                if slot.forget_at.is_some_and(|at| at <= now) {
                    self.remove(number);
                }
                None
            }
        }
    }

    /// Whether a slot has nothing more to say.
    #[inline]
    fn is_settled(&self, now: Instant, number: u32) -> bool {
        let slot = &self.slots[number as usize];
        let State::Standing(connection) = &slot.state else { return false };
        !(slot.opened || slot.greet) && slot.forget_at.is_none() && connection.is_settled(now)
    }

    /// When a slot has something to do next.
    #[inline]
    fn deadline(&self, number: u32) -> Instant {
        let slot = &self.slots[number as usize];
        match &slot.state {
            State::Free => Instant::MAX,
            State::Opening(opening) => opening.at,
            State::Standing(connection) => connection.deadline().min(slot.forget_at.unwrap_or(Instant::MAX)),
        }
    }

    /// Notes when a slot must be woken, if that is sooner than noted.
    #[inline]
    fn note(&mut self, number: u32) {
        let deadline = self.deadline(number);
        self.note_at(number, deadline);
    }

    #[inline]
    fn note_at(&mut self, number: u32, deadline: Instant) {
        let slot = &mut self.slots[number as usize];
        slot.own = deadline;
        if deadline < slot.noted {
            slot.noted = deadline;
            self.deadlines.push(Reverse((deadline, number)));
            if self.deadlines.len() > STALE + 2 * self.slots.len() {
                let slots = &self.slots;
                self.deadlines.retain(|Reverse((at, number))| slots[*number as usize].noted == *at);
            }
        }
    }

    /// The first deadline of all. What was noted too early is noted anew.
    #[inline]
    pub(crate) fn first_deadline(&mut self) -> Option<Instant> {
        loop {
            let &Reverse((at, number)) = self.deadlines.peek()?;
            let slot = &self.slots[number as usize];
            // What happened to one in the line is not in its own yet.
            let own = if slot.ready { self.deadline(number) } else { slot.own };
            let slot = &mut self.slots[number as usize];
            if slot.noted != at {
                self.deadlines.pop();
            } else if own <= at {
                return Some(at);
            } else {
                slot.noted = own;
                if own == Instant::MAX {
                    self.deadlines.pop();
                } else if let Some(mut first) = self.deadlines.peek_mut() {
                    first.0.0 = own;
                }
            }
        }
    }
}

impl Endpoint for Node {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        let id = match input {
            Input::Frame { peer, bytes, segment: None, .. } => {
                self.take_frame(now, peer, bytes);
                return Ok(());
            }
            Input::Frame { peer, bytes, segment, .. } => {
                self.take_batch(now, peer, bytes, segment);
                return Ok(());
            }
            Input::Wake => {
                self.wake(now);
                return Ok(());
            }
            Input::Command(command) => match command {
                Command::Open { peer, options, id } => {
                    *id = self.open(now, peer, options)?;
                    return Ok(());
                }
                Command::Send { id, channel, bytes } => return self.send(now, id, channel, bytes),
                Command::HandOver { id, channel, message } => {
                    self.standing_mut(id)?.hand_over(now, channel, message)?;
                    id
                }
                Command::Take { id, channel, into, taken } => {
                    *taken = self.take(id, channel, into)?;
                    return Ok(());
                }
                Command::Read { id, channel, into, read } => {
                    *read = self.standing_mut(id)?.read(channel, into);
                    id
                }
                Command::Prioritize { id, channel, priority } => {
                    self.standing_mut(id)?.prioritize(channel, priority);
                    id
                }
                Command::Measure { id, every, meter } => {
                    self.standing_mut(id)?.measure(every, meter);
                    return Ok(());
                }
                Command::Close { id } => {
                    self.standing_mut(id)?.close();
                    id
                }
                Command::Reset { id } => {
                    self.standing_mut(id)?.reset();
                    id
                }
                Command::Forget { id } => return self.forget(now, id),
            },
        };
        self.wake_up(id.slot);
        Ok(())
    }

    #[inline]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        let output = self.poll_in_place(now, writable, buffer);
        if let Output::Transmit(Transmit { length, .. }) = output
            && let Some(bytes) = self.placed_bytes(length)
        {
            buffer[..length].copy_from_slice(bytes);
        }
        output
    }
}

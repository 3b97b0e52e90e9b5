//! The endpoint: connections to any number of peers through one port.
//!
//! | module | contents |
//! | --- | --- |
//! | `handshake` | handshakes: open frames, cookies, unknown peers |

mod handshake;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use trunkline_endpoint::{
    Endpoint, Idle, Input, Output, Peer, Port, Reason as IdleReason, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Span, Stream};

use self::handshake::Secrets;
use crate::Buffer;
use crate::api::{CloseReason, Command, ConnectionId, Event, EventKind, Refusal, UnknownPeerStats};
use crate::connection::{Connection, FastPathOutcome};
use crate::faults::{FaultCounts, FaultInjector, Faults};
use crate::options::Options;
use crate::receive::ReceiveStatus;
use crate::statistics::{PathMtu, Statistics};
use crate::wire::check::Check;
use crate::wire::handshake::{COOKIE_BYTES, Handshake, OPEN, UNKNOWN};

/// Maximum interval between handshake attempts.
const MAX_OPEN_INTERVAL: Span = Span::from_s(1);
/// Maximum number of stale entries in the deadline queue, plus two per slot.
const MAX_STALE_DEADLINES: usize = 64;

/// Configuration of a [`Node`].
#[derive(Debug)]
pub struct Config {
    /// Port of the endpoint.
    pub port: Port,
    /// Options of connections that peers open; none: peers may open no connections. The peer chooses mode and check.
    /// With a key all connections are encrypted, without a key none is.
    pub accept: Option<Options>,
    /// Maximum number of connections, opened by either end.
    pub max_connections: usize,
    /// Source of unpredictable secrets. The node draws them when it is created and nothing later.
    pub random: Stream,
}

#[derive(Debug)]
enum SlotState {
    Free,
    Opening(Box<Opening>),
    Established(Box<Connection>),
}

/// A connection in its handshake at the client.
#[derive(Debug)]
struct Opening {
    peer: Peer,
    /// Connection number of this end.
    client_id: u64,
    options: Options,
    cookie: [u8; COOKIE_BYTES],
    /// When to send the open frame again.
    next_attempt: Instant,
    /// When the open frame was sent, if only once with this cookie.
    sent_at: Option<Instant>,
    /// Only one cookie was received, so the handshake yields a round-trip sample.
    can_measure_rtt: bool,
    attempts: u32,
    started_at: Instant,
    close_reason: Option<CloseReason>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: SlotState,
    /// It is in the ready queue.
    is_ready: bool,
    /// Its deadline, unless it is in the ready queue.
    deadline: Instant,
    /// Its entry in the deadline queue; not later than its deadline.
    scheduled: Instant,
    /// An opened frame must be sent to the peer.
    needs_opened_reply: bool,
    /// The start of the connection is to be reported.
    reports_opened: bool,
    /// The application has released it; it is removed at this time.
    remove_at: Option<Instant>,
}

impl Slot {
    /// Returns whether the slot holds this connection and neither its start nor its end is to be reported.
    #[inline]
    fn is_plain(&self, id: ConnectionId) -> bool {
        self.generation == id.generation
            && !self.reports_opened
            && !self.needs_opened_reply
            && self.remove_at.is_none()
    }
}

/// An endpoint with connections to any number of peers through one port.
///
/// Bounds: at most 64 replies to unknown peers are queued; there is at most one event of each kind per channel or
/// connection; [`Options`] bound the messages.
#[derive(Debug)]
pub struct Node {
    config: Config,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// The slot of each peer.
    peers: BTreeMap<Peer, u32>,
    /// The peer of the last frame, and its slot.
    last_peer: Option<(Peer, u32)>,
    /// Slots that may have output: the ready queue.
    ready: VecDeque<u32>,
    /// Scheduled deadlines of slots. Only an entry that equals `scheduled` of its slot counts.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
    replies: VecDeque<(Peer, Handshake)>,
    secrets: Secrets,
    unknown_peer_stats: UnknownPeerStats,
    /// First numbers of frames and chunks; zero except in tests.
    first_numbers: (u64, u64),
    /// Disables the fast paths, in tests.
    fast_path_disabled: bool,
    /// Number of frames in flight at which connections begin to encode messages on sending; none: never.
    pre_encode_from: Option<u32>,
    /// The slot whose connection sent the last batch in place: the batch lies in its send buffer and was not copied.
    in_place_slot: Option<u32>,
    faults: Option<Box<FaultInjector>>,
}

impl Node {
    /// Creates a node without connections.
    pub fn new(mut config: Config) -> Self {
        let secrets = Secrets::draw(&mut config.random);
        // The other bounds depend on the peer's mode.
        config.accept = config.accept.map(|o| Options { check: o.clamped().check, ..o });
        Node {
            config,
            slots: Vec::new(),
            free_slots: Vec::new(),
            peers: BTreeMap::new(),
            last_peer: None,
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            replies: VecDeque::new(),
            secrets,
            unknown_peer_stats: UnknownPeerStats::default(),
            first_numbers: (0, 0),
            fast_path_disabled: false,
            pre_encode_from: None,
            in_place_slot: None,
            faults: None,
        }
    }

    /// Sets the first numbers of frames and chunks of future connections, to test the wrap-around of the numbers on
    /// the wire. Both ends must use the same numbers.
    #[doc(hidden)]
    pub fn set_first_numbers(&mut self, frame: u64, chunk: u64) {
        self.first_numbers = (frame, chunk);
    }

    /// Disables the fast paths of future connections, to test that both paths have the same result.
    #[doc(hidden)]
    pub fn disable_fast_path(&mut self) {
        self.fast_path_disabled = true;
    }

    /// Saves a copy in future connections: while at least `in_flight` frames are in flight and only one channel has
    /// data, long messages are encoded into frames when they are sent, and transmitted from there by
    /// [`poll_in_place`](Node::poll_in_place). This may divide messages into other frames. Has no effect if frames
    /// are encrypted, protected by forward error correction, or limited by path MTU probes.
    pub fn enable_pre_encoding(&mut self, in_flight: u32) {
        self.pre_encode_from = Some(in_flight);
    }

    /// Injects faults into all frames that the node sends from now on.
    pub fn inject_faults(&mut self, faults: Faults) {
        self.faults = FaultInjector::new(faults);
    }

    /// Returns the counts of injected faults.
    pub fn fault_counts(&self) -> FaultCounts {
        self.faults.as_ref().map_or_else(FaultCounts::default, |faults| faults.counts)
    }

    /// Like [`poll`](Endpoint::poll), but without a copy of pre-encoded frames: the bytes to transmit may lie in the
    /// send buffer of a connection instead of `buffer`. Call [`transmitted_bytes`](Node::transmitted_bytes) next to
    /// get them.
    #[inline]
    pub fn poll_in_place(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<Event> {
        match self.faults {
            None => self.poll_without_faults(now, writable, buffer),
            Some(_) => self.poll_with_faults(now, writable, buffer),
        }
    }

    #[cold]
    fn poll_with_faults(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        loop {
            let output = self.poll_without_faults(now, writable, buffer);
            let Output::Transmit(transmit) = output else { return output };
            if let Some(bytes) = self.in_place_bytes(transmit.length) {
                buffer[..transmit.length].copy_from_slice(bytes);
            }
            self.in_place_slot = None;
            let rest = self.faults.as_mut().map_or(Some(transmit), |faults| faults.inject(transmit, buffer));
            if let Some(rest) = rest {
                return Output::Transmit(rest);
            }
        }
    }

    #[inline]
    fn poll_without_faults(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<Event> {
        let port = self.config.port;
        let writable = writable.has(port);
        self.in_place_slot = None;
        if writable && let Some((peer, handshake)) = self.replies.pop_front() {
            let length = handshake.write(buffer);
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        for _ in 0..self.ready.len() {
            let Some(slot_index) = self.ready.pop_front() else { break };
            if let Some(output) = self.poll_connection(now, slot_index, writable, buffer) {
                if self.is_idle(now, slot_index) {
                    // Polling it again would have no effect.
                    self.slots[slot_index as usize].is_ready = false;
                    self.schedule(slot_index);
                } else {
                    // It may have more, after the others.
                    self.ready.push_back(slot_index);
                }
                return output;
            }
            if writable {
                self.slots[slot_index as usize].is_ready = false;
                self.schedule(slot_index);
            } else {
                self.ready.push_back(slot_index);
            }
        }
        let awaits_input = self.replies.is_empty() && self.ready.is_empty();
        let reason = if awaits_input { IdleReason::Input } else { IdleReason::Port(port) };
        Output::Idle(Idle { deadline: self.next_deadline(), reason })
    }

    /// Returns the `length` bytes that the last [`poll_in_place`](Node::poll_in_place) into `buffer` transmits.
    #[inline]
    pub fn transmitted_bytes<'a>(&'a self, buffer: &'a [u8], length: usize) -> &'a [u8] {
        self.in_place_bytes(length).unwrap_or(&buffer[..length])
    }

    #[inline]
    fn in_place_bytes(&self, length: usize) -> Option<&[u8]> {
        match &self.slots[self.in_place_slot? as usize].state {
            SlotState::Established(connection) => connection.in_place_bytes(length),
            _ => None,
        }
    }

    /// Returns the counts of frames from unknown peers.
    pub fn unknown_peers(&self) -> UnknownPeerStats {
        self.unknown_peer_stats
    }

    /// Returns the number of connections in any state.
    pub fn connection_count(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Returns the counters of a connection.
    pub fn statistics(&self, id: ConnectionId) -> Option<Statistics> {
        self.established(id).map(|connection| connection.statistics)
    }

    /// Returns the path MTU of a connection.
    pub fn path_mtu(&self, id: ConnectionId) -> Option<PathMtu> {
        self.established(id).map(Connection::path_mtu)
    }

    /// Returns the smoothed round-trip time of a connection, if there is a sample.
    pub fn round_trip(&self, id: ConnectionId) -> Option<Span> {
        self.established(id)?.rtt.smoothed()
    }

    /// Returns whether all data of a connection is acknowledged.
    pub fn is_flushed(&self, id: ConnectionId) -> bool {
        self.established(id).is_none_or(|connection| connection.sender.is_done())
    }

    /// Returns the number of frames in flight of a connection.
    pub fn in_flight(&self, id: ConnectionId) -> Option<u32> {
        self.established(id).map(|connection| connection.sender.flights.in_flight())
    }

    /// Returns the unread bytes of a channel plus the overhead of its chunks.
    pub fn unread_bytes(&self, id: ConnectionId, channel: u16) -> u64 {
        self.established(id).map_or(0, |connection| connection.receiver.unread_bytes(channel))
    }

    fn established(&self, id: ConnectionId) -> Option<&Connection> {
        match self.slots.get(id.slot as usize)? {
            Slot { generation, state: SlotState::Established(connection), .. }
                if *generation == id.generation =>
            {
                Some(connection)
            }
            _ => None,
        }
    }

    #[inline]
    fn established_mut(&mut self, id: ConnectionId) -> Result<&mut Connection, Refusal> {
        let slot = self.slots.get_mut(id.slot as usize).ok_or(Refusal::Unknown)?;
        match &mut slot.state {
            _ if slot.generation != id.generation || slot.remove_at.is_some() => Err(Refusal::Unknown),
            SlotState::Established(connection) => Ok(connection),
            SlotState::Opening(_) => Err(Refusal::Closed),
            SlotState::Free => Err(Refusal::Unknown),
        }
    }

    /// Adds a connection with `peer`; returns the index of its slot.
    fn insert(&mut self, peer: Peer, state: SlotState) -> u32 {
        let slot = Slot {
            generation: 0,
            state,
            is_ready: false,
            deadline: Instant::MAX,
            scheduled: Instant::MAX,
            needs_opened_reply: false,
            reports_opened: false,
            remove_at: None,
        };
        let slot_index = match self.free_slots.pop() {
            Some(slot_index) => {
                // It may still be in the ready queue.
                let Slot { generation, is_ready, .. } = self.slots[slot_index as usize];
                self.slots[slot_index as usize] = Slot { generation, is_ready, ..slot };
                slot_index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.peers.insert(peer, slot_index);
        self.last_peer = None;
        slot_index
    }

    fn remove(&mut self, slot_index: u32) {
        let slot = &mut self.slots[slot_index as usize];
        let peer = match &slot.state {
            SlotState::Free => return,
            SlotState::Opening(opening) => opening.peer,
            SlotState::Established(connection) => connection.peer,
        };
        slot.state = SlotState::Free;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.deadline, slot.scheduled) = (Instant::MAX, Instant::MAX);
        // The peer may have a newer connection.
        if self.peers.get(&peer) == Some(&slot_index) {
            self.peers.remove(&peer);
        }
        self.last_peer = None;
        self.free_slots.push(slot_index);
    }

    #[inline]
    fn mark_ready(&mut self, slot_index: u32) {
        let slot = &mut self.slots[slot_index as usize];
        if !slot.is_ready {
            slot.is_ready = true;
            self.ready.push_back(slot_index);
        }
    }

    /// Executes [`Command::Open`].
    fn open(&mut self, now: Instant, peer: Peer, options: &Options) -> Result<ConnectionId, Refusal> {
        if let Some(&slot_index) = self.peers.get(&peer) {
            let slot = &self.slots[slot_index as usize];
            let has_ended = matches!(&slot.state, SlotState::Established(c) if c.close_reason.is_some());
            if !has_ended {
                return Err(Refusal::Busy);
            }
        }
        if self.connection_count() >= self.config.max_connections {
            return Err(Refusal::TooMany);
        }
        if options.check == Check::Aead && options.key.is_none() {
            return Err(Refusal::NoKey);
        }
        let opening = Opening {
            peer,
            client_id: self.secrets.next_connection_number(),
            options: options.clamped(),
            cookie: [0; COOKIE_BYTES],
            next_attempt: now,
            sent_at: None,
            can_measure_rtt: false,
            attempts: 0,
            started_at: now,
            close_reason: None,
        };
        let slot_index = self.insert(peer, SlotState::Opening(Box::new(opening)));
        self.mark_ready(slot_index);
        Ok(ConnectionId { slot: slot_index, generation: self.slots[slot_index as usize].generation })
    }

    /// Executes [`Command::Forget`].
    fn forget(&mut self, now: Instant, id: ConnectionId) -> Result<(), Refusal> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let slot = slot.ok_or(Refusal::Unknown)?;
        match &mut slot.state {
            SlotState::Free => return Err(Refusal::Unknown),
            SlotState::Opening(_) => self.remove(id.slot),
            SlotState::Established(connection) => {
                connection.reset();
                // A completed connection answers a while longer; a reset one sends its reset frame first.
                let linger = match connection.close_reason {
                    Some(CloseReason::Completed) => connection.linger_time(),
                    _ => Span::ZERO,
                };
                slot.remove_at.get_or_insert(now + linger);
                self.mark_ready(id.slot);
            }
        }
        Ok(())
    }

    /// Executes [`Command::Send`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        self.established_mut(id)?.send(now, channel, bytes)?;
        self.mark_ready(id.slot);
        Ok(())
    }

    /// Fast path for [`Command::Send`] and a poll: writes a frame with a copy of a message into `buffer` if the node
    /// has no other output. Returns the length of the frame and the next deadline of the connection; if none, nothing
    /// has changed.
    #[doc(hidden)]
    #[inline]
    pub fn send_message(
        &mut self,
        now: Instant,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Option<(usize, Instant)> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id))?;
        if self.ready.len() != usize::from(slot.is_ready) || !self.replies.is_empty() || self.faults.is_some()
        {
            return None;
        }
        let SlotState::Established(connection) = &mut slot.state else { return None };
        let length = connection.send_message(now, channel, bytes, buffer)?;
        let deadline = connection.idle_deadline();
        if std::mem::take(&mut slot.is_ready) {
            self.ready.clear();
        }
        self.schedule_at(id.slot, deadline);
        Some((length, deadline))
    }

    /// Fast path for [`Input::Frame`] and [`Command::Receive`]: processes a frame if it contains the next message of
    /// a channel. The message replaces the contents of `into`. Returns whether it did; if not, nothing has changed.
    #[doc(hidden)]
    pub fn receive_message(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> bool {
        self.receive_message_outcome(now, frame, id, channel, into) != FastPathOutcome::NoMatch
    }

    /// The same with the detailed outcome.
    #[inline]
    pub(crate) fn receive_message_outcome(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> FastPathOutcome {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id));
        let Some(Slot { state: SlotState::Established(connection), .. }) = slot else {
            return FastPathOutcome::NoMatch;
        };
        if !self.ready.is_empty() || !self.replies.is_empty() {
            return FastPathOutcome::NoMatch;
        }
        let outcome = connection.receive_message(now, frame, channel, into);
        match outcome {
            FastPathOutcome::NoMatch => {}
            FastPathOutcome::Idle(deadline) => self.schedule_at(id.slot, deadline),
            FastPathOutcome::Message => self.mark_ready(id.slot),
        }
        outcome
    }

    /// Returns whether the node has no output or event, and the channel is empty.
    #[inline]
    #[cfg_attr(not(feature = "sockets"), expect(dead_code, reason = "used by the sockets"))]
    pub(crate) fn awaits_message(&mut self, id: ConnectionId, channel: u16) -> bool {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.is_plain(id));
        let Some(Slot { state: SlotState::Established(connection), .. }) = slot else { return false };
        self.ready.is_empty() && self.replies.is_empty() && connection.awaits_message(channel)
    }

    /// Executes [`Command::Receive`].
    #[inline]
    pub(crate) fn receive(
        &mut self,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> Result<ReceiveStatus, Refusal> {
        let status = self.established_mut(id)?.receive(channel, into);
        self.mark_ready(id.slot);
        Ok(status)
    }

    #[inline]
    pub(crate) fn receive_frame(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        // The first byte is 1 to 5 for handshake frames and for no others.
        if matches!(frame.first(), Some(OPEN..=UNKNOWN)) {
            return self.receive_handshake(now, peer, frame);
        }
        let slot_index = match self.last_peer {
            Some((last, slot_index)) if last == peer => slot_index,
            _ => match self.peers.get(&peer) {
                Some(&slot_index) => {
                    self.last_peer = Some((peer, slot_index));
                    slot_index
                }
                None => return self.receive_from_unknown_peer(peer, frame),
            },
        };
        match &mut self.slots[slot_index as usize].state {
            SlotState::Established(connection) => connection.receive_frame(now, frame),
            // The reply to its handshake was lost or arrives later; this frame will be retransmitted.
            SlotState::Opening(_) | SlotState::Free => self.unknown_peer_stats.frames += 1,
        }
        self.mark_ready(slot_index);
    }

    /// Processes a batch of received frames, in groups where possible.
    #[inline]
    fn receive_batch(&mut self, now: Instant, peer: Peer, bytes: &[u8], segment: Option<Segment>) {
        let length = segment.map_or(bytes.len(), Segment::length);
        let mut rest = bytes;
        loop {
            if let Some((last, slot_index)) = self.last_peer
                && last == peer
                && let SlotState::Established(connection) = &mut self.slots[slot_index as usize].state
            {
                let processed = connection.receive_batch(now, rest, length);
                if processed > 0 {
                    rest = &rest[processed..];
                    self.mark_ready(slot_index);
                }
            }
            if rest.is_empty() && !bytes.is_empty() {
                return;
            }
            let (frame, more) = rest.split_at(length.min(rest.len()));
            self.receive_frame(now, peer, frame);
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    /// Handles all deadlines that have expired.
    fn handle_deadlines(&mut self, now: Instant) {
        while let Some(&Reverse((at, slot_index))) = self.deadlines.peek() {
            if at > now {
                return;
            }
            self.deadlines.pop();
            let slot = &mut self.slots[slot_index as usize];
            if slot.scheduled != at {
                continue;
            }
            slot.scheduled = Instant::MAX;
            match &mut slot.state {
                SlotState::Established(connection) => {
                    connection.handle_timers(now);
                    // The client may have missed the opened frame.
                    slot.needs_opened_reply |= connection.is_unconfirmed();
                }
                SlotState::Opening(opening) => {
                    if opening.attempts > 0 && now.since(opening.started_at) >= opening.options.peer_timeout {
                        opening.close_reason.get_or_insert(CloseReason::HandshakeTimeout);
                    }
                }
                SlotState::Free => {}
            }
            self.mark_ready(slot_index);
        }
    }

    /// Returns the next output of a slot; none if it has none for now.
    #[inline]
    fn poll_connection(
        &mut self,
        now: Instant,
        slot_index: u32,
        writable: bool,
        buffer: &mut [u8],
    ) -> Option<Output<Event>> {
        let port = self.config.port;
        let slot = &mut self.slots[slot_index as usize];
        let id = ConnectionId { slot: slot_index, generation: slot.generation };
        match &mut slot.state {
            SlotState::Free => None,
            SlotState::Opening(opening) => {
                if let Some(reason) = opening.close_reason {
                    self.remove(slot_index);
                    return Some(Output::Event(Event { id, kind: EventKind::Closed { reason } }));
                }
                if !writable || opening.next_attempt > now {
                    return None;
                }
                let backoff =
                    (opening.options.timeout.initial * (1 << opening.attempts.min(5))).min(MAX_OPEN_INTERVAL);
                opening.sent_at = (opening.attempts == 0 && opening.can_measure_rtt).then_some(now);
                (opening.next_attempt, opening.attempts) = (now + backoff, opening.attempts + 1);
                let Opening { client_id, cookie, ref options, peer, .. } = **opening;
                let length =
                    Handshake::Open { client_id, parameters: options.transport_parameters(), cookie }
                        .write(buffer);
                if let Some(key) = &options.key {
                    key.prove(&mut buffer[..length]);
                }
                Some(Output::Transmit(Transmit { port, peer, length, segment: None }))
            }
            SlotState::Established(connection) => {
                let peer = connection.peer;
                if std::mem::take(&mut slot.reports_opened) {
                    return Some(Output::Event(Event { id, kind: EventKind::Opened { peer } }));
                }
                if let Some(kind) = connection.next_event()
                    && slot.remove_at.is_none()
                {
                    return Some(Output::Event(Event { id, kind }));
                }
                if !writable {
                    return None;
                }
                if std::mem::take(&mut slot.needs_opened_reply) {
                    let (client_id, server_id) = (connection.client_id, connection.server_id);
                    let parameters = connection.options.transport_parameters();
                    let length = Handshake::Opened { client_id, server_id, parameters }.write(buffer);
                    connection.prove(&mut buffer[..length]);
                    return Some(Output::Transmit(Transmit { port, peer, length, segment: None }));
                }
                if let Some((length, segment)) = connection.transmit(now, buffer) {
                    self.in_place_slot = connection.in_place_batch.map(|_| slot_index);
                    return Some(Output::Transmit(Transmit { port, peer, length, segment }));
                }
                if slot.remove_at.is_some_and(|at| at <= now) {
                    self.remove(slot_index);
                }
                None
            }
        }
    }

    #[inline]
    fn is_idle(&self, now: Instant, slot_index: u32) -> bool {
        let slot = &self.slots[slot_index as usize];
        let SlotState::Established(connection) = &slot.state else { return false };
        !(slot.reports_opened || slot.needs_opened_reply)
            && slot.remove_at.is_none()
            && connection.is_idle(now)
    }

    #[inline]
    fn deadline(&self, slot_index: u32) -> Instant {
        let slot = &self.slots[slot_index as usize];
        match &slot.state {
            SlotState::Free => Instant::MAX,
            SlotState::Opening(opening) => opening.next_attempt,
            SlotState::Established(connection) => {
                connection.deadline().min(slot.remove_at.unwrap_or(Instant::MAX))
            }
        }
    }

    /// Schedules the deadline of a slot if it is earlier than the scheduled one.
    #[inline]
    fn schedule(&mut self, slot_index: u32) {
        let deadline = self.deadline(slot_index);
        self.schedule_at(slot_index, deadline);
    }

    #[inline]
    fn schedule_at(&mut self, slot_index: u32, deadline: Instant) {
        let slot = &mut self.slots[slot_index as usize];
        slot.deadline = deadline;
        if deadline < slot.scheduled {
            slot.scheduled = deadline;
            self.deadlines.push(Reverse((deadline, slot_index)));
            if self.deadlines.len() > MAX_STALE_DEADLINES + 2 * self.slots.len() {
                let slots = &self.slots;
                self.deadlines
                    .retain(|Reverse((at, slot_index))| slots[*slot_index as usize].scheduled == *at);
            }
        }
    }

    /// Returns the earliest deadline; reschedules entries that are too early.
    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        loop {
            let &Reverse((at, slot_index)) = self.deadlines.peek()?;
            let slot = &self.slots[slot_index as usize];
            // The deadline of a slot in the ready queue is not up to date.
            let deadline = if slot.is_ready { self.deadline(slot_index) } else { slot.deadline };
            let slot = &mut self.slots[slot_index as usize];
            if slot.scheduled != at {
                self.deadlines.pop();
            } else if deadline <= at {
                return Some(at);
            } else {
                slot.scheduled = deadline;
                if deadline == Instant::MAX {
                    self.deadlines.pop();
                } else if let Some(mut first) = self.deadlines.peek_mut() {
                    first.0.0 = deadline;
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
        match input {
            Input::Frame { peer, bytes, segment: None, .. } => self.receive_frame(now, peer, bytes),
            Input::Frame { peer, bytes, segment, .. } => self.receive_batch(now, peer, bytes, segment),
            Input::Wake => self.handle_deadlines(now),
            Input::Command(command) => match command {
                Command::Open { peer, options, id } => *id = self.open(now, peer, options)?,
                Command::Send { id, channel, bytes } => self.send(now, id, channel, bytes)?,
                Command::SendOwned { id, channel, message } => {
                    self.established_mut(id)?.send_owned(now, channel, message)?;
                    self.mark_ready(id.slot);
                }
                Command::Receive { id, channel, buffer, status } => {
                    *status = self.receive(id, channel, buffer)?;
                }
                Command::Read { id, channel, buffer, read } => {
                    *read = self.established_mut(id)?.read(channel, buffer);
                    self.mark_ready(id.slot);
                }
                Command::Prioritize { id, channel, priority } => {
                    self.established_mut(id)?.sender.prioritize(channel, priority);
                    self.mark_ready(id.slot);
                }
                Command::Measure { id, every, meter } => self.established_mut(id)?.set_meter(every, meter),
                Command::Close { id } => {
                    self.established_mut(id)?.close();
                    self.mark_ready(id.slot);
                }
                Command::Reset { id } => {
                    self.established_mut(id)?.reset();
                    self.mark_ready(id.slot);
                }
                Command::Forget { id } => self.forget(now, id)?,
            },
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        let output = self.poll_in_place(now, writable, buffer);
        if let Output::Transmit(Transmit { length, .. }) = output
            && let Some(bytes) = self.in_place_bytes(length)
        {
            buffer[..length].copy_from_slice(bytes);
        }
        output
    }
}

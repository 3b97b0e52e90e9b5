//! The level-1 converters at the central converter, and the assignment of packet addresses to them.
//!
//! Each converter is sent its complete assignment and confirms it. A packet address that one converter may still have
//! joined is not assigned to another. So no two converters forward the same group, unless one has timed out but is
//! still running.

use std::collections::BTreeMap;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Seed, Span};

use crate::balance::{Loads, MAX_MOVES, Move, REBALANCE_INTERVAL, next_on_grid};
use crate::outbox::Outbox;
use crate::packet_set::PacketSet;
use crate::sequence::{LinkCounter, Sessions, is_newer};
use crate::session::{
    CENTRAL_TIMEOUT, DuplicateNumber, PEER_TIMEOUT, PendingPeer, RETRY_INTERVAL, UnvalidatedPeer,
};
use crate::settings::{Format2, Settings};
use crate::statistics::Level1PeerCounts;
use crate::wire::format2::{Header, Role};

/// The time that bundles sent before a session may still be in flight.
const STRAY_LIFETIME: Span = Span::from_ms(100);

/// A level-1 converter.
#[derive(Debug)]
pub struct Level1Peer {
    /// Its number.
    pub number: u16,
    /// Its address: the source of the last bundle in its session, or of the last bundle before that.
    pub peer: Peer,
    /// Messages and control for it.
    pub outbox: Outbox,
    /// Messages received from it.
    pub link: LinkCounter,
    /// Its incarnation and session, if it is present.
    session: Option<(u32, u32)>,
    last_received: Instant,
    first_received: Instant,
    /// When the session was issued.
    session_start: Instant,
    /// When it confirmed the session. Until then it is sent nothing but the session.
    confirmed_at: Option<Instant>,
    validation: UnvalidatedPeer,
    /// A later incarnation that has not confirmed its session.
    pending_peer: Option<PendingPeer>,
    /// The packet addresses that it should own.
    target: PacketSet,
    /// The assignment last sent, its version, and the version last confirmed.
    assigned: PacketSet,
    version: u32,
    confirmed_version: u32,
    /// The packet addresses that it may have joined: those of all assignments since the confirmed one.
    possible: PacketSet,
    /// When the assignment is sent (again).
    assignment_due: Instant,
}

/// All level-1 converters.
#[derive(Debug)]
pub struct Level1Peers {
    peers: Vec<Level1Peer>,
    options: Format2,
    /// The packet addresses with a subscriber.
    subscribed: PacketSet,
    loads: Loads,
    rebalance_due: Instant,
    /// Packet addresses on the move, and since when they have no owner.
    moving: BTreeMap<u16, Instant>,
    sessions: Sessions,
    duplicate: Option<DuplicateNumber>,
    counts: Level1PeerCounts,
    dropped: [u64; 2],
}

impl Level1Peer {
    fn new(number: u16, settings: &Settings, format2: Format2) -> Level1Peer {
        Level1Peer {
            number,
            peer: Peer::NONE,
            outbox: Outbox::new(format2.max_datagram_octets(), settings.timing, Instant::ZERO),
            link: LinkCounter::default(),
            session: None,
            last_received: Instant::ZERO,
            first_received: Instant::ZERO,
            session_start: Instant::ZERO,
            confirmed_at: None,
            validation: UnvalidatedPeer::default(),
            pending_peer: None,
            target: PacketSet::NONE,
            assigned: PacketSet::NONE,
            version: 0,
            confirmed_version: 0,
            possible: PacketSet::NONE,
            assignment_due: Instant::ZERO,
        }
    }

    /// Returns whether the converter abandoned its confirmed session after a timeout. Bundles from before its
    /// confirmation may still be in flight, but only briefly.
    fn has_left_session(&self, now: Instant, header: &Header, peer: Peer) -> bool {
        header.session == 0
            && peer == self.peer
            && self.confirmed_at.is_some_and(|since| now >= since + STRAY_LIFETIME)
    }

    /// Returns whether the converter may have abandoned its session before confirming it; it would never resume that
    /// one.
    fn may_have_left(&self, now: Instant, header: &Header) -> bool {
        header.session == 0 && self.confirmed_at.is_none() && now >= self.session_start + CENTRAL_TIMEOUT
    }

    /// Starts the first session of an incarnation.
    fn start(&mut self, now: Instant, incarnation: u32, session: u32) {
        self.set_session(now, incarnation, session);
        (self.link, self.confirmed_at, self.validation) =
            (LinkCounter::default(), None, UnvalidatedPeer::default());
        self.pending_peer = None;
        (self.assigned, self.possible, self.version, self.confirmed_version) =
            (PacketSet::NONE, PacketSet::NONE, 1, 0);
        (self.first_received, self.last_received) = (now, now);
        self.outbox.schedule_control(now);
    }

    /// Sets its session.
    fn set_session(&mut self, now: Instant, incarnation: u32, session: u32) {
        (self.session, self.session_start) = (Some((incarnation, session)), now);
        self.outbox.restart(now, false);
    }

    /// Records octets received outside of its session.
    fn record_received(&mut self, now: Instant, peer: Peer, octets: usize) {
        if std::mem::replace(&mut self.peer, peer) != peer {
            self.validation = UnvalidatedPeer::default();
        }
        self.validation.record_received(octets);
        self.last_received = now;
    }

    /// Confirms the session. Until the converter confirms an assignment, it may have joined any group.
    fn confirm_session(&mut self, now: Instant) {
        (self.confirmed_at, self.possible, self.assignment_due) = (Some(now), PacketSet::ALL, now);
        self.outbox.schedule_control(now);
    }

    /// Returns whether the converter is present.
    pub fn is_alive(&self) -> bool {
        self.session.is_some()
    }

    /// Returns whether the converter is present and has confirmed its session.
    fn is_confirmed(&self) -> bool {
        self.is_alive() && self.confirmed_at.is_some()
    }

    /// Returns whether a bundle is due and allowed for the converter or its pending successor.
    pub fn is_ready(&self) -> bool {
        let own = self.outbox.is_ready() && (self.is_confirmed() || self.validation.can_be_greeted());
        self.is_alive() && (own || self.pending_peer.is_some_and(|pending| pending.needs_greeting()))
    }

    /// Returns the pending successor if it needs a greeting, which has precedence.
    pub(super) fn peer_to_greet(&mut self) -> Option<&mut PendingPeer> {
        self.pending_peer.as_mut().filter(|pending| pending.needs_greeting())
    }

    /// Counts octets sent to it.
    pub fn record_sent(&mut self, octets: usize) {
        if !self.is_confirmed() {
            self.validation.record_sent(octets);
        }
    }

    /// Returns its session; 0 is none.
    pub fn session(&self) -> u32 {
        self.session.map_or(0, |(_, session)| session)
    }

    /// Returns the packet addresses that it should own.
    pub fn target(&self) -> &PacketSet {
        &self.target
    }

    /// Returns version and contents of the assignment to send now, if any.
    pub fn take_assignment(&mut self, now: Instant) -> Option<(u32, PacketSet)> {
        let due = self.is_confirmed() && self.version != self.confirmed_version && now >= self.assignment_due;
        if due {
            self.assignment_due = now + RETRY_INTERVAL;
        }
        due.then_some((self.version, self.assigned))
    }

    /// Schedules the assignment again if it is unconfirmed.
    pub fn schedule_retry(&mut self, now: Instant) {
        if self.is_confirmed() && self.version != self.confirmed_version {
            self.outbox.schedule_control(self.assignment_due.max(now));
        }
    }
}

impl Level1Peers {
    /// Creates the converters with these numbers, all absent, and their sessions for an incarnation of the central
    /// converter.
    pub fn new(
        secret: Seed,
        incarnation: u32,
        numbers: &[u16],
        settings: &Settings,
        format2: Format2,
    ) -> Level1Peers {
        Level1Peers {
            peers: numbers.iter().map(|number| Level1Peer::new(*number, settings, format2)).collect(),
            options: format2,
            subscribed: PacketSet::NONE,
            loads: Loads::default(),
            rebalance_due: Instant::ZERO + REBALANCE_INTERVAL,
            moving: BTreeMap::new(),
            sessions: Sessions::new(secret, incarnation, Role::Level1),
            duplicate: None,
            counts: Level1PeerCounts::default(),
            dropped: [0; 2],
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Level1PeerCounts {
        self.counts
    }

    /// Returns the number of packet addresses on the move.
    pub fn moving(&self) -> usize {
        self.moving.len()
    }

    /// Returns the messages discarded with ended sessions since the last call: ordinary and priority.
    pub fn take_dropped(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.dropped)
    }

    /// Iterates over all converters.
    pub fn iter(&self) -> impl Iterator<Item = &Level1Peer> {
        self.peers.iter()
    }

    /// Returns the converter at an index.
    pub fn get_mut(&mut self, at: usize) -> &mut Level1Peer {
        &mut self.peers[at]
    }

    /// Returns the number of converters.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns whether there are no converters.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Returns the index of the converter that sends to a packet address: its owner, or else the first present one.
    pub fn route(&self, packet: u16) -> Option<usize> {
        let owner = self
            .peers
            .iter()
            .position(|converter| converter.is_confirmed() && converter.target.contains(packet));
        owner.or_else(|| self.peers.iter().position(Level1Peer::is_confirmed))
    }

    /// Returns the last detected duplicate number.
    pub fn duplicate(&self) -> Option<DuplicateNumber> {
        self.duplicate
    }

    /// Handles the header of a bundle. Returns the converter's index and whether the bundle belongs to its session.
    /// Returns `None` for an unknown number, an earlier incarnation, or a later one that has not confirmed its
    /// session.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &Header,
        peer: Peer,
        octets: usize,
    ) -> Option<(usize, bool)> {
        let at = self.peers.iter().position(|converter| converter.number == header.number)?;
        let converter = &mut self.peers[at];
        match converter.session {
            Some((incarnation, _)) if is_newer(incarnation, header.incarnation) => {
                self.duplicate = DuplicateNumber::detect(
                    now,
                    converter.number,
                    converter.first_received,
                    [converter.peer, peer],
                )
                .or(self.duplicate);
                return None;
            }
            Some(_) if converter.pending_peer.is_some_and(|pending| pending.session == header.session) => {
                self.remove(now, at);
                self.peers[at].start(now, header.incarnation, header.session);
                self.counts.sessions_started += 1;
            }
            Some((incarnation, _))
                if incarnation == header.incarnation && converter.may_have_left(now, header) =>
            {
                converter.set_session(now, incarnation, self.sessions.issue());
            }
            Some((incarnation, _))
                if incarnation == header.incarnation && !converter.has_left_session(now, header, peer) => {}
            Some((incarnation, _)) if incarnation != header.incarnation && converter.is_confirmed() => {
                let pending = converter
                    .pending_peer
                    .get_or_insert_with(|| PendingPeer::new(now, self.sessions.issue()));
                pending.record_received(now, peer, octets);
                return None;
            }
            previous => {
                if previous.is_some() {
                    self.remove(now, at);
                }
                let session = self.sessions.issue();
                self.peers[at].start(now, header.incarnation, session);
                self.counts.sessions_started += 1;
                if previous.is_some() {
                    self.assign(now);
                }
            }
        }
        let converter = &mut self.peers[at];
        let in_session = header.session == converter.session();
        if in_session {
            (converter.last_received, converter.peer) = (now, peer);
            if converter.confirmed_at.is_none() {
                converter.confirm_session(now);
                self.assign(now);
            }
        } else {
            if !converter.is_confirmed() {
                converter.record_received(now, peer, octets);
            }
            converter.outbox.schedule_control(now + RETRY_INTERVAL);
        }
        Some((at, in_session))
    }

    /// Announces new limits to all converters.
    pub fn announce_limits(&mut self, now: Instant) {
        self.peers
            .iter_mut()
            .filter(|converter| converter.is_alive())
            .for_each(|converter| converter.outbox.schedule_control(now));
    }

    /// Ends the session of a converter that closes.
    pub fn close(&mut self, now: Instant, at: usize) {
        self.remove(now, at);
        self.assign(now);
    }

    /// Counts a message of a packet address.
    pub fn count_message(&mut self, packet: u16) {
        self.loads.count(packet);
    }

    /// Sets the packet addresses with a subscriber.
    pub fn set_subscribed(&mut self, now: Instant, subscribed: PacketSet) {
        if subscribed != self.subscribed {
            self.subscribed = subscribed;
            self.assign(now);
        }
    }

    /// Handles the confirmation of an assignment.
    pub fn confirm_assignment(&mut self, now: Instant, at: usize, version: u32) {
        let converter = &mut self.peers[at];
        if version != converter.version || converter.confirmed_version == version {
            return;
        }
        converter.confirmed_version = version;
        converter.possible = converter.assigned;
        let assigned = converter.assigned;
        self.moving.retain(|packet, since| {
            let arrived = assigned.contains(*packet);
            if arrived {
                let gap = now.since(*since);
                self.counts.total_gap += gap;
                self.counts.longest_gap = self.counts.longest_gap.max(gap);
            }
            !arrived
        });
        self.announce_assignments(now);
    }

    /// Returns the load of a converter and the number of its packet addresses.
    fn load(&self, at: usize) -> (u64, usize) {
        let target = &self.peers[at].target;
        (target.iter().map(|packet| self.loads.messages(packet)).sum(), target.count())
    }

    /// Assigns packet addresses without an owner to the idlest converters, and withdraws those without a subscriber.
    fn assign(&mut self, now: Instant) {
        let mut assigned_somewhere = PacketSet::NONE;
        for converter in &mut self.peers {
            let unsubscribed = converter.target.difference(&self.subscribed);
            converter.target = converter.target.difference(&unsubscribed);
            assigned_somewhere = assigned_somewhere.union(&converter.target);
        }
        self.moving.retain(|packet, _| self.subscribed.contains(*packet));
        let mut loads: Vec<(u64, usize, usize)> = (0..self.peers.len())
            .filter(|at| self.peers[*at].is_confirmed())
            .map(|at| (self.load(at).0, self.load(at).1, at))
            .collect();
        for packet in self.subscribed.difference(&assigned_somewhere).iter() {
            let Some(least) = loads.iter_mut().min() else { break };
            *least = (least.0 + self.loads.messages(packet), least.1 + 1, least.2);
            self.peers[least.2].target.set(packet, true);
        }
        self.announce_assignments(now);
    }

    /// Sends each converter its target, except for packet addresses that another one may still have joined.
    fn announce_assignments(&mut self, now: Instant) {
        for at in 0..self.peers.len() {
            let others = self.peers.iter().enumerate().filter(|(other, _)| *other != at);
            let taken = others.fold(PacketSet::NONE, |all, (_, converter)| all.union(&converter.possible));
            let converter = &mut self.peers[at];
            let assigned = converter.target.difference(&taken.difference(&converter.possible));
            if converter.is_confirmed() && assigned != converter.assigned {
                converter.assigned = assigned;
                converter.possible = converter.possible.union(&assigned);
                converter.version = converter.version.wrapping_add(1);
                converter.assignment_due = now;
                converter.outbox.schedule_control(now);
            }
        }
    }

    /// Ends the session of a converter.
    fn remove(&mut self, now: Instant, at: usize) {
        let converter = &mut self.peers[at];
        converter.pending_peer = None;
        if converter.session.take().is_none() {
            return;
        }
        for packet in converter.target.iter() {
            self.moving.entry(packet).or_insert(converter.last_received);
            self.counts.moved += 1;
        }
        (converter.target, converter.assigned, converter.possible) =
            (PacketSet::NONE, PacketSet::NONE, PacketSet::NONE);
        let (ordinary, urgent) = converter.outbox.waiting();
        self.dropped = [self.dropped[0] + ordinary as u64, self.dropped[1] + urgent as u64];
        converter.outbox = Outbox::new(self.options.max_datagram_octets(), converter.outbox.timing(), now);
        self.counts.sessions_ended += 1;
    }

    /// Ends the sessions of silent converters and rebalances.
    pub fn handle_timers(&mut self, now: Instant) {
        let has_timed_out =
            |converter: &Level1Peer| converter.is_alive() && now >= converter.last_received + PEER_TIMEOUT;
        let expired: Vec<usize> =
            (0..self.peers.len()).filter(|at| has_timed_out(&self.peers[*at])).collect();
        for at in &expired {
            self.remove(now, *at);
        }
        if !expired.is_empty() {
            self.assign(now);
        }
        self.loads.advance(now);
        if now >= self.rebalance_due {
            self.rebalance_due = next_on_grid(self.rebalance_due, REBALANCE_INTERVAL, now);
            self.rebalance(now);
        }
        self.peers
            .iter_mut()
            .filter(|converter| converter.is_alive())
            .for_each(|converter| converter.outbox.update_ready(now));
    }

    /// Moves packet addresses to even out the loads.
    fn rebalance(&mut self, now: Instant) {
        for _ in 0..MAX_MOVES {
            let confirmed = (0..self.peers.len()).filter(|at| self.peers[*at].is_confirmed());
            let best = self.loads.best_move(confirmed, |at| self.peers[at].target.iter());
            let Some(Move { packet, from, to }) = best else { break };
            self.peers[from].target.set(packet, false);
            self.peers[to].target.set(packet, true);
            self.moving.entry(packet).or_insert(now);
            self.counts.moved += 1;
        }
        self.announce_assignments(now);
    }

    /// Returns when the next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        let alive = self.peers.iter().filter(|converter| converter.is_alive());
        let each = alive
            .flat_map(|converter| [Some(converter.last_received + PEER_TIMEOUT), converter.outbox.deadline()])
            .flatten();
        // Balancing needs two converters.
        let has_several = self.peers.iter().filter(|converter| converter.is_confirmed()).count() > 1;
        each.chain(has_several.then_some(self.rebalance_due)).min()
    }
}

//! The level-1 converters at the central converter, and the assignment of packet addresses to them.
//!
//! Each converter is sent its complete assignment and confirms it. A packet address that one converter may still have
//! joined is not assigned to another. So no two converters forward the same group, unless one has timed out but is
//! still running.

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Seed};

use crate::balance::{Balance, MAX_MOVES, Move, REBALANCE_INTERVAL};
use crate::bundler::Timing;
use crate::outbox::Outbox;
use crate::packet_set::PacketSet;
use crate::sequence::Sessions;
use crate::session::{DuplicateNumber, Membership, PeerSession, PeerStatus, RETRY_INTERVAL};
use crate::settings::{Format2, Settings};
use crate::statistics::Level1PeerCounts;
use crate::wire::format2::control::Control;
use crate::wire::format2::{BundleBuilder, Header, Role};

/// A level-1 converter.
#[derive(Debug, Default)]
pub struct Level1Peer {
    /// Its number.
    pub number: u16,
    /// Its session, if it is present.
    session: Option<PeerSession>,
    /// The packet addresses that it should own.
    target: PacketSet,
    /// The assignment last sent, its version, and the version last confirmed.
    assigned: PacketSet,
    version: u32,
    confirmed_version: u32,
    /// The packet addresses that it may have joined: those of all assignments since the confirmed one. Until it
    /// confirms an assignment, it may have joined any group.
    possible: PacketSet,
    /// When the assignment is sent (again).
    assignment_due: Instant,
}

/// All level-1 converters.
#[derive(Debug)]
pub struct Level1Peers {
    peers: Vec<Level1Peer>,
    max_octets: usize,
    timing: Timing,
    /// The packet addresses with a subscriber.
    subscribed: PacketSet,
    pub(crate) balance: Balance,
    sessions: Sessions,
    /// The converter whose outbox is checked first.
    next_turn: usize,
    duplicate: Option<DuplicateNumber>,
    /// Messages discarded with ended sessions: ordinary and priority.
    pub(crate) dropped: [u64; 2],
}

impl Level1Peer {
    /// Returns its session, if it is present.
    pub fn session(&self) -> Option<&PeerSession> {
        self.session.as_ref()
    }

    /// Returns whether the converter is present and has confirmed its session.
    fn is_confirmed(&self) -> bool {
        self.session.as_ref().is_some_and(PeerSession::is_confirmed)
    }

    /// Returns whether a bundle is due and allowed for it.
    pub fn is_ready(&self) -> bool {
        self.session.as_ref().is_some_and(PeerSession::is_ready)
    }

    /// Returns the packet addresses that it should own.
    pub fn target(&self) -> &PacketSet {
        &self.target
    }

    fn has_unconfirmed_assignment(&self) -> bool {
        self.is_confirmed() && self.version != self.confirmed_version
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
        let absent = |number: &u16| Level1Peer { number: *number, ..Level1Peer::default() };
        Level1Peers {
            peers: numbers.iter().map(absent).collect(),
            max_octets: format2.max_datagram_octets(),
            timing: settings.timing,
            subscribed: PacketSet::NONE,
            balance: Balance::new(REBALANCE_INTERVAL),
            sessions: Sessions::new(secret, incarnation, Role::Level1),
            next_turn: 0,
            duplicate: None,
            dropped: [0; 2],
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Level1PeerCounts {
        self.balance.counts
    }

    /// Returns the number of packet addresses on the move.
    pub fn moving(&self) -> usize {
        self.balance.moving()
    }

    /// Iterates over all converters.
    pub fn iter(&self) -> impl Iterator<Item = &Level1Peer> {
        self.peers.iter()
    }

    /// Returns the session of the converter that sends to a packet address: its owner, or else the first present one.
    pub(crate) fn route(&mut self, packet: u16) -> Option<&mut PeerSession> {
        let mut confirmed = self.peers.iter().enumerate().filter(|(_, converter)| converter.is_confirmed());
        let first = confirmed.clone().next().map(|(at, _)| at);
        let owner = confirmed.find(|(_, converter)| converter.target.contains(packet)).map(|(at, _)| at);
        owner.or(first).and_then(|at| self.peers[at].session.as_mut())
    }

    /// Returns whether a bundle is due and allowed.
    pub fn is_ready(&self) -> bool {
        self.peers.iter().any(Level1Peer::is_ready)
    }

    /// Writes the next bundle of a central converter with this incarnation and these limits, serving converters in
    /// turn. Returns its destination, its length, and the octets already admitted to the medium.
    pub(crate) fn write_bundle(
        &mut self,
        now: Instant,
        incarnation: u32,
        limits: (u8, u32),
        buffer: &mut [u8],
    ) -> Option<(Peer, usize, usize)> {
        let count = self.peers.len();
        let at = (0..count).map(|n| (self.next_turn + n) % count).find(|at| self.peers[*at].is_ready())?;
        self.next_turn = at + 1;
        let peer = &mut self.peers[at];
        let (is_unconfirmed, version, assigned) =
            (peer.has_unconfirmed_assignment(), peer.version, peer.assigned);
        let assignment_due = &mut peer.assignment_due;
        let session = peer.session.as_mut()?;
        let write_control = |builder: &mut BundleBuilder, limit: Option<Control<'_>>| {
            limit.iter().for_each(|limit| _ = builder.push_control(limit));
            if is_unconfirmed && now >= *assignment_due {
                *assignment_due = now + RETRY_INTERVAL;
                builder.push_control(&Control::Assign { version, packets: &assigned.write() });
            }
        };
        let sent = session.write_bundle(now, incarnation, limits, write_control, buffer);
        if is_unconfirmed {
            session.outbox.schedule_control(peer.assignment_due.max(now));
        }
        Some(sent)
    }

    /// Returns the last detected duplicate number.
    pub fn duplicate(&self) -> Option<DuplicateNumber> {
        self.duplicate
    }

    /// Handles the header of a bundle and returns whether it belongs to the converter's session. Returns `None` for
    /// an unknown number, an earlier incarnation, or a later one that has not confirmed its session.
    pub fn receive(&mut self, now: Instant, header: &Header, peer: Peer, octets: usize) -> Option<bool> {
        let at = self.position(header.number)?;
        let present = self.peers[at].session.as_mut();
        let status = present.map(|session| session.identify(now, header, peer, octets, &mut self.sessions));
        match status {
            Some(PeerStatus::Present) => {}
            Some(PeerStatus::Outdated) => {
                let session = self.peers[at].session.as_ref();
                self.duplicate = session.and_then(|session| session.duplicate(now, peer)).or(self.duplicate);
                return None;
            }
            Some(PeerStatus::Unconfirmed) => return None,
            None => self.start(now, at, header, None),
            Some(PeerStatus::Restarted(id)) => {
                self.remove(at);
                self.start(now, at, header, id);
                if id.is_none() {
                    self.assign(now);
                }
            }
        }
        let converter = &mut self.peers[at];
        let session = converter.session.as_mut()?;
        let membership = session.receive(now, header, peer, octets);
        if membership == Membership::Confirming {
            session.outbox.schedule_control(now);
            (converter.possible, converter.assignment_due) = (PacketSet::ALL, now);
            self.assign(now);
        }
        Some(membership != Membership::Outside)
    }

    fn position(&self, number: u16) -> Option<usize> {
        self.peers.iter().position(|converter| converter.number == number)
    }

    /// Starts a session of a converter.
    fn start(&mut self, now: Instant, at: usize, header: &Header, id: Option<u32>) {
        let id = id.unwrap_or_else(|| self.sessions.issue());
        let mut outbox = Outbox::new(self.max_octets, self.timing, now);
        outbox.update_ready(now);
        let converter = &mut self.peers[at];
        converter.session = Some(PeerSession::new(now, header, id, outbox));
        (converter.version, converter.confirmed_version) = (1, 0);
        self.balance.counts.sessions_started += 1;
    }

    /// Announces new limits to all converters.
    pub fn announce_limits(&mut self, now: Instant) {
        self.present().for_each(|session| session.outbox.schedule_control(now));
    }

    /// Returns the session of a converter, if it is present.
    pub(crate) fn session_mut(&mut self, number: u16) -> Option<&mut PeerSession> {
        self.position(number).and_then(|at| self.peers[at].session.as_mut())
    }

    /// Iterates over the sessions of the present converters.
    fn present(&mut self) -> impl Iterator<Item = &mut PeerSession> {
        self.peers.iter_mut().filter_map(|converter| converter.session.as_mut())
    }

    /// Ends the session of a converter that closes.
    pub fn close(&mut self, now: Instant, number: u16) {
        let Some(at) = self.position(number) else { return };
        self.remove(at);
        self.assign(now);
    }

    /// Sets the packet addresses with a subscriber.
    pub fn set_subscribed(&mut self, now: Instant, subscribed: PacketSet) {
        if subscribed != self.subscribed {
            self.subscribed = subscribed;
            self.assign(now);
        }
    }

    /// Handles the confirmation of an assignment.
    pub fn confirm_assignment(&mut self, now: Instant, number: u16, version: u32) {
        let Some(at) = self.position(number) else { return };
        let converter = &mut self.peers[at];
        if version != converter.version || converter.confirmed_version == version {
            return;
        }
        converter.confirmed_version = version;
        converter.possible = converter.assigned;
        let assigned = converter.assigned;
        self.balance.finish_moves(now, |packet| assigned.contains(packet));
        self.announce_assignments(now);
    }

    /// Assigns packet addresses without an owner to the idlest converters, and withdraws those without a subscriber.
    fn assign(&mut self, now: Instant) {
        let mut assigned_somewhere = PacketSet::NONE;
        for converter in &mut self.peers {
            let unsubscribed = converter.target.difference(&self.subscribed);
            converter.target = converter.target.difference(&unsubscribed);
            assigned_somewhere = assigned_somewhere.union(&converter.target);
        }
        self.balance.retain_moves(|packet| self.subscribed.contains(packet));
        // The load of each converter, the number of its packet addresses, and its index.
        let confirmed = self.peers.iter().enumerate().filter(|(_, converter)| converter.is_confirmed());
        let load = |target: &PacketSet| target.iter().map(|packet| self.balance.loads.messages(packet)).sum();
        let mut loads: Vec<(u64, usize, usize)> =
            confirmed.map(|(at, peer)| (load(&peer.target), peer.target.count(), at)).collect();
        for packet in self.subscribed.difference(&assigned_somewhere).iter() {
            let Some(least) = loads.iter_mut().min() else { break };
            *least = (least.0 + self.balance.loads.messages(packet), least.1 + 1, least.2);
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
                converter.session.iter_mut().for_each(|session| session.outbox.schedule_control(now));
            }
        }
    }

    /// Ends the session of a converter.
    fn remove(&mut self, at: usize) {
        let converter = &mut self.peers[at];
        let Some(session) = converter.session.take() else { return };
        for packet in converter.target.iter() {
            self.balance.start_move(session.last_received(), packet);
        }
        (converter.target, converter.assigned, converter.possible) =
            (PacketSet::NONE, PacketSet::NONE, PacketSet::NONE);
        let (ordinary, urgent) = session.outbox.waiting();
        self.dropped = [self.dropped[0] + ordinary as u64, self.dropped[1] + urgent as u64];
        self.balance.counts.sessions_ended += 1;
    }

    /// Ends the sessions of silent converters and rebalances.
    pub fn handle_timers(&mut self, now: Instant) {
        let is_expired = |peer: &Level1Peer| peer.session().is_some_and(|session| session.has_timed_out(now));
        let expired: Vec<usize> = (0..self.peers.len()).filter(|at| is_expired(&self.peers[*at])).collect();
        if !expired.is_empty() {
            expired.into_iter().for_each(|at| self.remove(at));
            self.assign(now);
        }
        self.balance.loads.advance(now);
        if self.balance.take_round(now).is_some() {
            self.rebalance(now);
        }
        self.present().for_each(|session| session.outbox.update_ready(now));
    }

    /// Moves packet addresses to even out the loads.
    fn rebalance(&mut self, now: Instant) {
        for _ in 0..MAX_MOVES {
            let confirmed = (0..self.peers.len()).filter(|at| self.peers[*at].is_confirmed());
            let best = self.balance.loads.best_move(confirmed, |at| self.peers[at].target.iter());
            let Some(Move { packet, from, to }) = best else { break };
            self.peers[from].target.set(packet, false);
            self.peers[to].target.set(packet, true);
            self.balance.start_move(now, packet);
        }
        self.announce_assignments(now);
    }

    /// Returns when the next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        let each = self.peers.iter().filter_map(Level1Peer::session).map(PeerSession::deadline);
        // Balancing needs two converters.
        let has_several = self.peers.iter().filter(|converter| converter.is_confirmed()).count() > 1;
        each.chain(self.balance.next_round().filter(|_| has_several)).min()
    }
}

//! Sessions of bundle format 2 (docs/reference/bundle-wire.md): both sides of the rules by which the central converter
//! and its peers, the hosts and level-1 converters, recognize each other's restarts and timeouts.

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::outbox::Outbox;
use crate::sequence::{LinkCounter, Sessions, is_newer};
use crate::wire::format2::control::Control;
use crate::wire::format2::{self as wire, BundleBuilder, Header, Role};

/// The central converter ends the session of a peer that is silent for this long.
pub const PEER_TIMEOUT: Span = Span::from_ms(900);
/// An endpoint that receives nothing from the central converter for this long considers it lost. The time is shorter
/// than [`PEER_TIMEOUT`], so that the endpoint gives up first.
pub const CENTRAL_TIMEOUT: Span = Span::from_ms(700);
/// Unconfirmed control messages are repeated after this time.
pub const RETRY_INTERVAL: Span = Span::from_ms(20);
/// An acknowledgement is delayed by at most this time,
pub const ACK_DELAY: Span = Span::from_ms(4);
/// or until this many messages are to be acknowledged.
pub const ACK_EVERY: u16 = 16;

/// The time that bundles sent before a session may still be in flight.
const STRAY_LIFETIME: Span = Span::from_ms(100);
/// The number of abandoned sessions to remember. Bundles of older ones are no longer in flight.
const MAX_LEFT_SESSIONS: usize = 4;
/// The factor by which an unvalidated peer may be sent more octets than were received from it (anti-amplification
/// limit, RFC 9000, section 8.1).
const AMPLIFICATION_LIMIT: usize = 3;
/// Octets of a greeting: a header with the session, and the limits.
const GREETING_OCTETS: usize = wire::HEADER + 8;

/// The session of a host or level-1 converter: that of the last accepted bundle from the central converter.
#[derive(Debug)]
pub(crate) struct CentralSession {
    role: Role,
    pub number: u16,
    pub incarnation: u32,
    /// The central converter's incarnation and the session it issued.
    current: Option<(u32, u32)>,
    /// The last abandoned sessions, in any order, and how many were abandoned. They are never resumed.
    left: [Option<(u32, u32)>; MAX_LEFT_SESSIONS],
    left_count: usize,
    last_received: Instant,
    /// Whether the central converter has timed out.
    timed_out: bool,
}

/// The session of a bundle from the central converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionOf {
    /// An abandoned one, or none.
    Stale,
    /// The current one.
    Current,
    /// A new one, now current.
    New,
    /// The same, of a restarted central converter.
    NewIncarnation,
}

impl CentralSession {
    /// Creates the state of an endpoint without a session.
    pub fn new(role: Role, number: u16, incarnation: u32) -> CentralSession {
        CentralSession {
            role,
            number,
            incarnation,
            current: None,
            left: [None; MAX_LEFT_SESSIONS],
            left_count: 0,
            last_received: Instant::ZERO,
            timed_out: false,
        }
    }

    /// Returns the header of a bundle for the central converter. The session 0 announces that there is none.
    pub fn header(&self) -> Header {
        Header {
            role: self.role,
            number: self.number,
            receiver: 0,
            incarnation: self.incarnation,
            session: self.current.map_or(0, |(_, session)| session),
            sent_before: 0,
        }
    }

    /// Returns whether there is a session.
    pub fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether an incarnation is that of the central converter.
    pub fn is_of(&self, incarnation: u32) -> bool {
        self.current.is_some_and(|current| current.0 == incarnation)
    }

    /// Handles the header of a bundle for this endpoint.
    pub fn receive(&mut self, now: Instant, header: &Header) -> SessionOf {
        let offered = (header.incarnation, header.session);
        let is_earlier = |current: (u32, u32)| is_newer(current.0, offered.0);
        if offered.1 == 0
            || self.left.contains(&Some(offered))
            || !self.timed_out && self.current.is_some_and(is_earlier)
        {
            return SessionOf::Stale;
        }
        (self.last_received, self.timed_out) = (now, false);
        if self.current == Some(offered) {
            return SessionOf::Current;
        }
        let is_same_incarnation = self.is_of(offered.0);
        self.leave();
        self.current = Some(offered);
        if is_same_incarnation { SessionOf::New } else { SessionOf::NewIncarnation }
    }

    /// Abandons the current session.
    pub fn leave(&mut self) {
        if let Some(current) = self.current.take() {
            self.left[self.left_count % MAX_LEFT_SESSIONS] = Some(current);
            self.left_count += 1;
        }
    }

    /// Returns whether the central converter has been silent for too long, or since the start.
    pub fn is_lost(&self, now: Instant) -> bool {
        now >= self.last_received + CENTRAL_TIMEOUT
    }

    /// Returns once whether the central converter has timed out.
    pub fn has_timed_out(&mut self, now: Instant) -> bool {
        let times_out = self.deadline().is_some_and(|at| now >= at);
        self.timed_out |= times_out;
        times_out
    }

    /// Returns when the central converter times out.
    pub fn deadline(&self) -> Option<Instant> {
        (self.is_open() && !self.timed_out).then(|| self.last_received + CENTRAL_TIMEOUT)
    }
}

/// The session of a host or level-1 converter at the central converter.
///
/// Its first bundle, and each of a later incarnation, gets a session number. The peer confirms it by using it. Until
/// then its source address may be forged, so that it is sent nothing but the session, and a present peer stays.
#[derive(Debug)]
pub struct PeerSession {
    role: Role,
    /// The number of the peer.
    pub number: u16,
    /// Its address: the source of the last bundle in its session, or of the last bundle before that.
    pub peer: Peer,
    incarnation: u32,
    /// The number of the session.
    pub id: u32,
    issued_at: Instant,
    /// When the peer confirmed the session.
    confirmed_at: Option<Instant>,
    /// The octets that it may be sent before.
    send_allowance: usize,
    /// A later incarnation that has not confirmed its session.
    successor: Option<Successor>,
    first_received: Instant,
    last_received: Instant,
    /// Messages and control for the peer.
    pub outbox: Outbox,
    /// Messages received from it.
    pub link: LinkCounter,
    /// Octets sent to it since its last report.
    pub octets_sent: u64,
}

/// A peer with the number of a present peer but a later incarnation: a restart or a forgery. It replaces the present
/// peer only when it confirms its session.
#[derive(Clone, Copy, Debug)]
struct Successor {
    id: u32,
    /// The last source address.
    peer: Peer,
    send_allowance: usize,
    /// Whether a greeting is due, and the earliest time of the next one.
    greeting_requested: bool,
    next_greeting: Instant,
}

/// What a bundle shows about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerStatus {
    /// The present peer.
    Present,
    /// An earlier incarnation.
    Outdated,
    /// A later incarnation that has not confirmed its session.
    Unconfirmed,
    /// A later incarnation. Its session has this number, or none yet.
    Restarted(Option<u32>),
}

/// Whether a bundle is part of its sender's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Outside,
    /// It is the first one, which confirms the session.
    Confirming,
    Inside,
}

/// Counts octets received from an unvalidated peer, or from another one that claims to be it, and returns the octets
/// that it may be sent.
fn allowance(before: usize, is_same_peer: bool, received: usize) -> usize {
    let before = if is_same_peer { before } else { 0 };
    (before + AMPLIFICATION_LIMIT * received).min(AMPLIFICATION_LIMIT * wire::MIN_DATAGRAM)
}

impl PeerSession {
    pub(crate) fn new(now: Instant, header: &Header, id: u32, outbox: Outbox) -> PeerSession {
        PeerSession {
            role: header.role,
            number: header.number,
            peer: Peer::NONE,
            incarnation: header.incarnation,
            id,
            issued_at: now,
            confirmed_at: None,
            send_allowance: 0,
            successor: None,
            first_received: now,
            last_received: now,
            outbox,
            link: LinkCounter::default(),
            octets_sent: 0,
        }
    }

    /// Returns whether the peer has confirmed the session.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed_at.is_some()
    }

    /// Returns when the peer was last heard in its session.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Identifies the sender of a bundle with the number of this peer, and issues a new session number if needed.
    pub(crate) fn identify(
        &mut self,
        now: Instant,
        header: &Header,
        from: Peer,
        octets: usize,
        sessions: &mut Sessions,
    ) -> PeerStatus {
        if is_newer(self.incarnation, header.incarnation) {
            return PeerStatus::Outdated;
        }
        if self.successor.is_some_and(|successor| successor.id == header.session) {
            return PeerStatus::Restarted(Some(header.session));
        }
        if self.incarnation == header.incarnation {
            let is_overdue = self.confirmed_at.is_none() && now >= self.issued_at + CENTRAL_TIMEOUT;
            if is_overdue && self.may_have_left(header) {
                (self.id, self.issued_at) = (sessions.issue(), now);
                self.outbox.restart(now, false);
            }
            return match self.has_left(now, header, from) {
                true => PeerStatus::Restarted(None),
                false => PeerStatus::Present,
            };
        }
        if !self.is_confirmed() {
            return PeerStatus::Restarted(None);
        }
        let successor = self.successor.get_or_insert_with(|| Successor {
            id: sessions.issue(),
            peer: Peer::NONE,
            send_allowance: 0,
            greeting_requested: false,
            next_greeting: now,
        });
        let is_same_peer = std::mem::replace(&mut successor.peer, from) == from;
        successor.send_allowance = allowance(successor.send_allowance, is_same_peer, octets);
        successor.greeting_requested |= now >= successor.next_greeting;
        PeerStatus::Unconfirmed
    }

    /// Returns whether the peer may have abandoned its session before confirming it; it would never resume that one.
    fn may_have_left(&self, header: &Header) -> bool {
        if self.role == Role::Host { header.session != self.id } else { header.session == 0 }
    }

    /// Returns whether a level-1 converter abandoned its confirmed session after a timeout, since it has left its
    /// groups; a host resumes its session. Bundles from before its confirmation may still be in flight, but only
    /// briefly.
    fn has_left(&self, now: Instant, header: &Header, from: Peer) -> bool {
        self.role == Role::Level1
            && header.session == 0
            && from == self.peer
            && self.confirmed_at.is_some_and(|since| now >= since + STRAY_LIFETIME)
    }

    /// Detects two peers with the same number: a bundle of an earlier incarnation arrives from another address long
    /// after the present peer started, too late to be a delayed bundle of a peer that moved.
    pub(crate) fn duplicate(&self, now: Instant, other: Peer) -> Option<DuplicateNumber> {
        let is_duplicate = self.peer != other && now >= self.first_received + PEER_TIMEOUT;
        is_duplicate.then_some(DuplicateNumber { number: self.number, peers: [self.peer, other] })
    }

    /// Handles a bundle of the present peer. Outside of its session the peer is sent the session soon.
    pub(crate) fn receive(&mut self, now: Instant, header: &Header, from: Peer, octets: usize) -> Membership {
        if header.session == self.id {
            (self.last_received, self.peer) = (now, from);
            return match self.confirmed_at.replace(self.confirmed_at.unwrap_or(now)) {
                None => Membership::Confirming,
                Some(_) => Membership::Inside,
            };
        }
        if !self.is_confirmed() {
            // Several peers may claim the number so far.
            let is_same_peer = std::mem::replace(&mut self.peer, from) == from;
            self.send_allowance = allowance(self.send_allowance, is_same_peer, octets);
            self.last_received = now;
        }
        self.outbox.schedule_control(now + RETRY_INTERVAL);
        Membership::Outside
    }

    /// Returns whether the peer has timed out.
    pub(crate) fn has_timed_out(&self, now: Instant) -> bool {
        now >= self.last_received + PEER_TIMEOUT
    }

    /// Returns when the next timer is due.
    pub(crate) fn deadline(&self) -> Instant {
        let timeout = self.last_received + PEER_TIMEOUT;
        self.outbox.deadline().map_or(timeout, |due| due.min(timeout))
    }

    /// Returns the successor if it needs a greeting and may be sent one.
    fn successor_to_greet(&self) -> Option<Successor> {
        self.successor
            .filter(|successor| successor.greeting_requested && successor.send_allowance >= GREETING_OCTETS)
    }

    /// Returns whether a bundle is due and allowed for the peer or its successor.
    pub(crate) fn is_ready(&self) -> bool {
        let is_allowed = self.is_confirmed() || self.send_allowance >= GREETING_OCTETS;
        self.outbox.is_ready() && is_allowed || self.successor_to_greet().is_some()
    }

    /// Writes the next bundle of a central converter with this incarnation and these limits; a greeting of the
    /// successor has precedence. Returns its destination, its length, and the octets already admitted to the medium.
    pub(crate) fn write_bundle(
        &mut self,
        now: Instant,
        incarnation: u32,
        (level, rate): (u8, u32),
        write_control: impl FnOnce(&mut BundleBuilder, Option<Control<'_>>),
        buffer: &mut [u8],
    ) -> (Peer, usize, usize) {
        let header = Header::from_central(incarnation, self.number, self.id);
        if let Some(mut successor) = self.successor_to_greet() {
            let mut builder = BundleBuilder::new(wire::MIN_DATAGRAM);
            builder.push_control(&Control::Level { level, rate });
            let length = builder.finish(&Header { session: successor.id, ..header }, buffer);
            successor.send_allowance = successor.send_allowance.saturating_sub(length);
            (successor.greeting_requested, successor.next_greeting) = (false, now + RETRY_INTERVAL);
            self.successor = Some(successor);
            return (successor.peer, length, 0);
        }
        let limit = self.outbox.take_limit(now, level, rate);
        let length = self.outbox.write_bundle(now, header, |builder| write_control(builder, limit), buffer);
        self.octets_sent += length as u64;
        if !self.is_confirmed() {
            debug_assert!(length <= GREETING_OCTETS, "an unvalidated peer is sent greetings only");
            self.send_allowance = self.send_allowance.saturating_sub(length);
        }
        (self.peer, length, self.outbox.admitted_octets())
    }
}

/// Two peers with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateNumber {
    /// The number.
    pub number: u16,
    /// The present peer, and the other one.
    pub peers: [Peer; 2],
}

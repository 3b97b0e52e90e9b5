//! Sessions of bundle format 2 (docs/reference/bundle-wire.md): both sides of the rules by which the central converter
//! and its peers, the hosts and level-1 converters, recognize each other's restarts and timeouts.

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::sequence::is_newer;
use crate::wire::format2::control::Control;
use crate::wire::format2::{self as wire, BundleBuilder, Header, Role};

/// Each endpoint sends to each of its peers at least this often.
pub const HELLO_INTERVAL: Span = Span::from_ms(250);
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

/// A peer that has not confirmed its session: its source address may be forged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnvalidatedPeer {
    /// The octets that it may still be sent.
    send_allowance: usize,
}

impl UnvalidatedPeer {
    /// Counts octets received from it.
    pub(crate) fn record_received(&mut self, octets: usize) {
        self.send_allowance = (self.send_allowance + AMPLIFICATION_LIMIT * octets)
            .min(AMPLIFICATION_LIMIT * wire::MIN_DATAGRAM);
    }

    /// Counts octets sent to it.
    pub(crate) fn record_sent(&mut self, octets: usize) {
        debug_assert!(octets <= GREETING_OCTETS, "an unvalidated peer is sent greetings only");
        self.send_allowance = self.send_allowance.saturating_sub(octets);
    }

    /// Returns whether a greeting may be sent to it.
    pub(crate) fn can_be_greeted(self) -> bool {
        self.send_allowance >= GREETING_OCTETS
    }
}

/// A peer with the number of a present peer but a later incarnation: a restart or a forgery. It is sent a session,
/// and replaces the present peer only when it confirms that session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingPeer {
    pub(crate) session: u32,
    /// The last source address.
    peer: Peer,
    validation: UnvalidatedPeer,
    /// Whether a greeting is due, and the earliest time of the next one.
    greeting_requested: bool,
    next_greeting: Instant,
}

impl PendingPeer {
    /// Creates a pending peer with a new session.
    pub(crate) fn new(now: Instant, session: u32) -> PendingPeer {
        let validation = UnvalidatedPeer::default();
        PendingPeer { session, peer: Peer::NONE, validation, greeting_requested: false, next_greeting: now }
    }

    /// Records a bundle from the peer, or from another one that claims to be it.
    pub(crate) fn record_received(&mut self, now: Instant, peer: Peer, octets: usize) {
        if std::mem::replace(&mut self.peer, peer) != peer {
            self.validation = UnvalidatedPeer::default();
        }
        self.validation.record_received(octets);
        self.greeting_requested |= now >= self.next_greeting;
    }

    /// Returns whether a greeting should be sent now.
    pub(crate) fn needs_greeting(&self) -> bool {
        self.greeting_requested && self.validation.can_be_greeted()
    }

    /// Writes a greeting; returns its destination and length.
    pub(crate) fn write_greeting(
        &mut self,
        now: Instant,
        header: Header,
        limit: Control<'_>,
        into: &mut [u8],
    ) -> (Peer, usize) {
        let mut builder = BundleBuilder::new(wire::MIN_DATAGRAM);
        builder.push_control(&limit);
        let length = builder.finish(&Header { session: self.session, ..header }, into);
        self.validation.record_sent(length);
        (self.greeting_requested, self.next_greeting) = (false, now + RETRY_INTERVAL);
        (self.peer, length)
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

impl DuplicateNumber {
    /// Detects a duplicate: a bundle of an earlier incarnation arrives from another address long after the present
    /// peer started, too late to be a delayed bundle of a peer that moved.
    pub(crate) fn detect(
        now: Instant,
        number: u16,
        since: Instant,
        peers: [Peer; 2],
    ) -> Option<DuplicateNumber> {
        (peers[0] != peers[1] && now >= since + PEER_TIMEOUT).then_some(DuplicateNumber { number, peers })
    }
}

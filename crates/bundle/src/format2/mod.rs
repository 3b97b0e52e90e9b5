//! The three endpoints in bundle format 2 (docs/reference/bundle-wire.md).
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | the endpoint of a host |
//! | [`level1`] | the endpoint between the wide area and the central converter |
//! | [`central`] | the central converter |
//! | [`level1_peers`] | the level-1 converters at the central converter, and the assignment of packet addresses |
//! | [`members`] | the hosts at the central converter |
//! | [`outbox`] | messages that wait for their bundle to leave |
//! | [`single_message`] | the single-message bundles of the wide area |

pub mod central;
pub mod host;
pub mod level1;
pub mod level1_peers;
pub mod members;
pub mod outbox;
pub mod single_message;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::wire::format2::control::Control;
use crate::wire::format2::{self as wire, BundleBuilder, Header};

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
/// The burst allowed by a host's receive limit, since a bundle carries the messages of several milliseconds.
pub const SATURATION_BURST: Span = Span::from_ms(250);
/// The burst allowed by the rate to a host.
pub const RATE_BURST: Span = Span::from_ms(25);

/// The factor by which an unvalidated peer may be sent more octets than were received from it (anti-amplification
/// limit, RFC 9000, section 8.1).
const AMPLIFICATION_LIMIT: usize = 3;
/// Octets of a greeting: a header with the session, and the limits.
const GREETING_OCTETS: usize = wire::HEADER + 8;

/// A peer that has not confirmed its session: its source address may be forged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnvalidatedPeer {
    /// The octets that it may still be sent.
    send_allowance: usize,
}

impl UnvalidatedPeer {
    /// Counts octets received from it.
    fn record_received(&mut self, octets: usize) {
        self.send_allowance = (self.send_allowance + AMPLIFICATION_LIMIT * octets)
            .min(AMPLIFICATION_LIMIT * wire::MIN_DATAGRAM);
    }

    /// Counts octets sent to it.
    fn record_sent(&mut self, octets: usize) {
        debug_assert!(octets <= GREETING_OCTETS, "an unvalidated peer is sent greetings only");
        self.send_allowance = self.send_allowance.saturating_sub(octets);
    }

    /// Returns whether a greeting may be sent to it.
    fn can_be_greeted(self) -> bool {
        self.send_allowance >= GREETING_OCTETS
    }
}

/// A peer with the number of a present peer but a later incarnation: a restart or a forgery. It is sent a session,
/// and replaces the present peer only when it confirms that session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingPeer {
    session: u32,
    /// The last source address.
    peer: Peer,
    validation: UnvalidatedPeer,
    /// Whether a greeting is due, and the earliest time of the next one.
    greeting_requested: bool,
    next_greeting: Instant,
}

impl PendingPeer {
    /// Creates a pending peer with a new session.
    fn new(now: Instant, session: u32) -> PendingPeer {
        let validation = UnvalidatedPeer::default();
        PendingPeer { session, peer: Peer::NONE, validation, greeting_requested: false, next_greeting: now }
    }

    /// Records a bundle from the peer, or from another one that claims to be it.
    fn record_received(&mut self, now: Instant, peer: Peer, octets: usize) {
        if std::mem::replace(&mut self.peer, peer) != peer {
            self.validation = UnvalidatedPeer::default();
        }
        self.validation.record_received(octets);
        self.greeting_requested |= now >= self.next_greeting;
    }

    /// Returns whether a greeting should be sent now.
    fn needs_greeting(&self) -> bool {
        self.greeting_requested && self.validation.can_be_greeted()
    }

    /// Writes a greeting; returns its destination and length.
    fn write_greeting(
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
    fn detect(now: Instant, number: u16, since: Instant, peers: [Peer; 2]) -> Option<DuplicateNumber> {
        (peers[0] != peers[1] && now >= since + PEER_TIMEOUT).then_some(DuplicateNumber { number, peers })
    }
}

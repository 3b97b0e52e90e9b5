//! The three endpoints in the wide format (docs/bundle-wire.md).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`host`] | the interface of a host |
//! | [`level1`] | between the wide area and the central converter |
//! | [`central`] | in the middle |
//! | [`sides`] | which converter of level 1 gets what, and how that moves |
//! | [`members`] | hosts as the central converter sees them |
//! | [`outbox`] | messages that gather until their bundle leaves |
//! | [`alone`] | a message as it crosses the wide area |

pub mod alone;
pub mod central;
pub mod host;
pub mod level1;
pub mod members;
pub mod outbox;
pub mod sides;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::wire::wide::control::Control;
use crate::wire::wide::{self as wire, Builder, Header};

/// Everybody sends something so often.
pub const HELLO: Span = Span::from_ms(250);
/// Of whoever is silent for so long the central converter takes leave.
pub const SILENCE: Span = Span::from_ms(900);
/// Whoever does not hear the central converter for so long takes leave of it: before it takes leave of him.
pub const LONELY: Span = Span::from_ms(700);
/// What was not heard of is told again after this.
pub const AGAIN: Span = Span::from_ms(20);
/// An acknowledgement waits for company for so long, or for so many messages that are to be acknowledged.
pub const ACKNOWLEDGE: Span = Span::from_ms(4);
/// So many.
pub const ACKNOWLEDGED: u16 = 16;
/// What a host takes of ordinary messages may come at once for so long: a bundle brings what was gathered.
pub const SATURATED: Span = Span::from_ms(250);
/// And what gets through to it.
pub const RATED: Span = Span::from_ms(25);

/// So many times what came from somebody is sent to him before he is known to be where that came from.
const ANSWER: usize = 3;
/// Octets of what is told him: his session, and the congestion.
const GREETING: usize = wire::HEADER + 8;

/// Somebody who was not heard in his session yet: whoever said who he is may have lied about where he is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stranger {
    /// Octets that he may be sent.
    left: usize,
}

impl Stranger {
    /// So many octets came from him.
    fn heard(&mut self, octets: usize) {
        self.left = (self.left + ANSWER * octets).min(ANSWER * wire::LEAST_PATH);
    }

    /// So many go to him.
    fn sent(&mut self, octets: usize) {
        debug_assert!(octets <= GREETING, "nothing else goes to strangers");
        self.left = self.left.saturating_sub(octets);
    }

    /// Whether he may be told his session.
    fn may_be_sent(self) -> bool {
        self.left >= GREETING
    }
}

/// Somebody who has the number of one who is there, and a later life: that one has restarted, or somebody lies. He is told a
/// session, and only when he says that does the other go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    session: u32,
    /// Where he was last heard from.
    peer: Peer,
    stranger: Stranger,
    /// Whether he is to be told his session, and from when on he may be again.
    knocks: bool,
    again: Instant,
}

impl Newcomer {
    /// One who is to have this session.
    fn new(now: Instant, session: u32) -> Newcomer {
        let stranger = Stranger::default();
        Newcomer { session, peer: Peer::NONE, stranger, knocks: false, again: now }
    }

    /// A bundle of so many octets came from him, or from another who says so.
    fn knock(&mut self, now: Instant, peer: Peer, octets: usize) {
        if std::mem::replace(&mut self.peer, peer) != peer {
            self.stranger = Stranger::default();
        }
        self.stranger.heard(octets);
        self.knocks |= now >= self.again;
    }

    /// Whether he is to be told his session now.
    fn is_to_be_told(&self) -> bool {
        self.knocks && self.stranger.may_be_sent()
    }

    /// Writes what tells him; to whom that goes, and how many octets.
    fn tell(&mut self, now: Instant, header: Header, limit: Control<'_>, into: &mut [u8]) -> (Peer, usize) {
        let mut builder = Builder::new(wire::LEAST_PATH);
        builder.tell(&limit);
        let length = builder.finish(&Header { session: self.session, ..header }, into);
        self.stranger.sent(length);
        (self.knocks, self.again) = (false, now + AGAIN);
        (self.peer, length)
    }
}

/// Two who say that they are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twins {
    /// Their number.
    pub number: u16,
    /// Where the one is that is taken for it, and where the other.
    pub at: [Peer; 2],
}

impl Twins {
    /// The one that is taken for it since some time is at one place, and one of an earlier life at another. What is on its way
    /// from one that has restarted elsewhere does not come so late.
    fn of(now: Instant, number: u16, since: Instant, at: [Peer; 2]) -> Option<Twins> {
        (at[0] != at[1] && now >= since + SILENCE).then_some(Twins { number, at })
    }
}

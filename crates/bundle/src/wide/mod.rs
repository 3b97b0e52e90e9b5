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

pub mod central;
pub mod host;
pub mod level1;
pub mod members;
pub mod outbox;
pub mod sides;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::wire::wide as wire;

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

//! Commands, events and counters of a station of a ring.

use trunkline_endpoint::Endpoint;
use trunkline_units::Span;

/// An endpoint that reports the priority of its next frame, so that the ring can decide whether it may be sent.
pub trait HasUrgency: Endpoint {
    /// Returns the priority, 0 to 7, of the frame that [`poll`](Endpoint::poll) yields next if its port is writable;
    /// `None` if it has none. Takes constant time. Whatever `poll` then yields is sent.
    fn urgency(&self) -> Option<u8>;
}

/// Commands.
#[derive(Debug)]
pub enum Command<'a, C> {
    /// A command for the inner endpoint.
    Inner(C),
    /// Joins the ring, or starts one.
    Join,
    /// Leaves the ring at the next token. Frames of the inner endpoint stay queued.
    Leave,
    /// Reads the counters.
    Count(&'a mut Statistics),
}

/// Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<V> {
    /// An event of the inner endpoint.
    Inner(V),
    /// The station is in a ring of this many stations; 1 if it is alone.
    Joined {
        /// Number of stations, including itself.
        stations: u8,
    },
    /// The station has left as requested.
    Left,
    /// The ring continues without this station: others found it dead, or hold a newer token. It tries to join again.
    Dropped,
    /// A station did not respond and was removed.
    Died {
        /// The station.
        station: u8,
    },
    /// The token was lost, and this station restored it.
    Repaired {
        /// How it was restored.
        how: Repair,
        /// Time from its last sign until it was seen again.
        took: Span,
    },
    /// A second token, held by or sent to this station, was removed.
    Doubled,
}

impl<V> Event<V> {
    /// Converts an event of the inner endpoint.
    pub(crate) fn map<W>(self, inner: impl FnOnce(V) -> W) -> Event<W> {
        match self {
            Event::Inner(event) => Event::Inner(inner(event)),
            Event::Joined { stations } => Event::Joined { stations },
            Event::Left => Event::Left,
            Event::Dropped => Event::Dropped,
            Event::Died { station } => Event::Died { station },
            Event::Repaired { how, took } => Event::Repaired { how, took },
            Event::Doubled => Event::Doubled,
        }
    }
}

/// How a token was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The sender of the last token sent it again.
    Resent,
    /// The sender of the last token skipped its successor.
    Skipped,
    /// A station issued a new token.
    Claimed,
}

/// Counters of a station of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Stations in the ring; 0 if it is in none.
    pub stations: u8,
    /// Tokens received.
    pub tokens: u64,
    /// Measured rotations.
    pub rotations: u64,
    /// Sum of rotation times.
    pub rotation_sum: Span,
    /// Longest rotation.
    pub rotation_max: Span,
    /// Last rotation.
    pub rotation: Span,
    /// Frames sent for the inner endpoint.
    pub frames: u64,
    /// Tokens on which a frame was withheld because the rotation exceeded its priority's target.
    pub withheld: u64,
    /// Tokens retransmitted.
    pub resent: u64,
    /// Stations found dead.
    pub died: u64,
    /// Tokens issued.
    pub claimed: u64,
    /// Second tokens removed.
    pub doubled: u64,
    /// Windows opened.
    pub windows: u64,
    /// Stations admitted.
    pub admitted: u64,
    /// Frames that are neither data nor ring control.
    pub malformed: u64,
    /// Ring events lost because they were not read in time.
    pub lost_events: u64,
}

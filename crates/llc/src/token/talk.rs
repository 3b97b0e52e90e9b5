//! What a station of a ring is asked, and what it tells.

use trunkline_endpoint::Endpoint;
use trunkline_units::Span;

/// An endpoint that says how urgent its next frame is, so that the ring knows before it takes it whether it may leave.
pub trait Urgent: Endpoint {
    /// The priority, 0 to 7, of the frame that [`poll`](Endpoint::poll) yields next if its port is writable; none if
    /// it has none. In constant time. What `poll` then yields is sent, even if it is something else.
    fn urgency(&self) -> Option<u8>;
}

/// What a station of a ring is asked.
#[derive(Debug)]
pub enum Command<'a, C> {
    /// For the endpoint inside.
    Inner(C),
    /// Wants to be in the ring, or to begin one.
    Join,
    /// Wants to be out of it, as soon as it has the token. What the endpoint inside has to send waits.
    Leave,
    /// Asks what was counted.
    Count(&'a mut Statistics),
}

/// What a station of a ring tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<V> {
    /// The endpoint inside tells something.
    Inner(V),
    /// It is in a ring, of so many stations: its own, if that is one.
    Joined {
        /// It and the others.
        stations: u8,
    },
    /// It is out, as it wanted.
    Left,
    /// The ring goes on without it: others found it dead, or have a newer token. It wants to join again.
    Dropped,
    /// A station did not answer and is no more in the ring.
    Died {
        /// Which.
        station: u8,
    },
    /// The token was lost, and this station brought it back.
    Repaired {
        /// How.
        how: Repair,
        /// From when it was last known to be there until it was heard again.
        took: Span,
    },
    /// There was a second token, and it is no more: this station had it or was to get it.
    Doubled,
}

/// How a token came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Who had passed it on sent it again.
    Resent,
    /// Who had passed it on gave it to the one behind.
    Skipped,
    /// Nobody had it, and a station made a new one.
    Claimed,
}

/// What a station of a ring counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Stations in the ring; 0 if it is in none.
    pub stations: u8,
    /// Tokens it got.
    pub tokens: u64,
    /// Times from one token to the next that were measured.
    pub rotations: u64,
    /// All of them together.
    pub rotation_sum: Span,
    /// The longest.
    pub rotation_max: Span,
    /// The last.
    pub rotation: Span,
    /// Frames it sent for the endpoint inside.
    pub frames: u64,
    /// Tokens it kept a frame back from, because the ring was slower than the frame's priority allows.
    pub withheld: u64,
    /// Tokens it sent again.
    pub resent: u64,
    /// Stations it found dead.
    pub died: u64,
    /// Tokens it made.
    pub claimed: u64,
    /// Second tokens that ended here.
    pub doubled: u64,
    /// Windows it opened.
    pub windows: u64,
    /// Stations it let in.
    pub admitted: u64,
    /// Frames that were neither data nor anything that keeps a ring.
    pub malformed: u64,
    /// Events of the ring that nobody took in time and are lost.
    pub untold: u64,
}

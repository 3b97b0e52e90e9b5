//! What frames cross: the shape of every medium.

use trunkline_units::{Instant, Span};

use crate::Port;

/// What crosses a medium: owned, and never opened. A medium knows how long it is, where it goes, and how urgent it is.
/// In the simulator most of its payload is virtual; elsewhere it owns a pooled buffer.
pub trait Frame: Clone + Send {
    /// Bytes handed to the medium, which adds its own framing (preamble, gap, trailer) to them.
    fn length(&self) -> u32;
    /// Whom it is for.
    fn to(&self) -> To;
    /// Its virtual channel: frames of one flow in one direction share one.
    fn channel(&self) -> u16 {
        0
    }
    /// Its priority, 0 to 7, 7 the most urgent.
    fn priority(&self) -> u8 {
        0
    }
    /// Marks the frame as damaged in transit: a receiver that verifies it will discard it.
    fn damage(&mut self);
    /// Returns whether the frame is damaged.
    fn is_damaged(&self) -> bool;
}

/// The destination of a frame. The builder of the network assigns the numbers; stations filter by them, and switches
/// have them in their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// One station.
    Station(u32),
    /// All stations that joined this group.
    Group(u32),
    /// All stations.
    All,
}

/// A medium as a state machine: it has a port for each station, accepts frames from the stations, and delivers them
/// after their transmission and propagation.
///
/// It satisfies the contract of [`Endpoint`](crate::Endpoint), with owned frames instead of bytes in a buffer. In
/// addition:
///
/// **A medium queues at its ports.** The owner of a port (the interface of a host, the output of a switch) sets the
/// capacity of its queue; a frame that does not fit is reported as lost, with the cause. A frame occupies the queue
/// until its last bit is sent. A station that prefers to wait calls [`room`](Medium::room) first; without room it
/// passes [`Arrival::Ask`] and receives one [`Passage::Room`] as soon as there is room.
///
/// **A medium never waits for a receiver.** It delivers a frame to the station at the time of arrival, whether or not
/// the station can use it: there is no `writable`.
///
/// **Every frame is accounted for.** Every accepted frame is in transit or leaves the medium as [`Passage::Transmit`]
/// or [`Passage::Lost`]. A medium that duplicates or broadcasts clones frames.
pub trait Medium<F: Frame>: Send {
    /// Takes one input. Output waits for [`poll`](Medium::poll).
    fn handle(&mut self, now: Instant, input: Arrival<F>);

    /// The next output, until [`Passage::Idle`].
    fn poll(&mut self, now: Instant) -> Passage<F>;

    /// Whether `port` takes a frame of `length` bytes now without losing it for want of room.
    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool;

    /// What it counted at `port` until now: frames that its station sent.
    fn counters(&self, port: Port) -> &Counters;
}

/// An input of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival<F> {
    /// The station at `port` sends `frame`.
    Frame {
        /// Where.
        port: Port,
        /// What.
        frame: F,
    },
    /// The station at `port` wants to know when there is room.
    Ask {
        /// Where.
        port: Port,
    },
    /// The deadline may have come.
    Wake,
}

/// What a medium says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage<F> {
    /// Hand `frame` to the station at `port`: its last bit has arrived.
    Transmit {
        /// Where.
        port: Port,
        /// What.
        frame: F,
    },
    /// A frame that the station at `port` sent is no more.
    Lost {
        /// Who sent it.
        port: Port,
        /// What.
        frame: F,
        /// Why.
        cause: Cause,
    },
    /// The station at `port`, which asked, may send again.
    Room {
        /// Where.
        port: Port,
    },
    /// Nothing more now.
    Idle {
        /// When to wake it, if nothing comes before.
        deadline: Option<Instant>,
    },
}

/// Why a frame was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No room in the queue it came to.
    Full,
    /// The line lost it.
    Noise,
    /// Its sender gave up after too many collisions.
    Collisions,
    /// It is longer than the medium carries.
    TooLong,
    /// No way leads where it goes.
    NoWay,
    /// Cells of it are missing, or its check fails.
    Incomplete,
    /// It had been damaged on the way.
    Damaged,
}

/// What a medium counted of the frames that one station sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames whose last bit has left.
    pub frames: u64,
    /// Their bytes, as in [`Frame::length`].
    pub bytes: u64,
    /// Time during which a frame was leaving.
    pub busy: Span,
    /// Frames lost for want of room.
    pub full: u64,
    /// Frames lost for any other cause.
    pub lost: u64,
    /// Frames marked as damaged.
    pub damaged: u64,
    /// Frames doubled.
    pub doubled: u64,
    /// Frames that arrived behind a later one.
    pub reordered: u64,
    /// Most bytes that waited, the leaving frame included.
    pub queue_max: u64,
    /// Collisions (hub only).
    pub collisions: u64,
}

/// Room in a queue. A frame counts until its last bit has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// How much.
    pub room: Room,
    /// Whether each virtual channel has that much, instead of all together.
    pub each_channel: bool,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Whatever comes.
    Unbounded,
    /// So many frames (on a medium of cells: cells).
    Frames(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Bound {
    /// Whatever comes.
    pub const NONE: Bound = Bound { room: Room::Unbounded, each_channel: false };

    /// So many frames, of all channels together.
    pub const fn frames(count: u64) -> Bound {
        Bound { room: Room::Frames(count), each_channel: false }
    }

    /// So many bytes, of all channels together.
    pub const fn bytes(count: u64) -> Bound {
        Bound { room: Room::Bytes(count), each_channel: false }
    }

    /// Whether one more frame of `length` fits beside `frames` frames of together `bytes` bytes.
    #[inline]
    pub const fn fits(&self, frames: u64, bytes: u64, length: u32) -> bool {
        match self.room {
            Room::Unbounded => true,
            Room::Frames(most) => frames < most,
            Room::Bytes(most) => bytes + length as u64 <= most,
        }
    }
}

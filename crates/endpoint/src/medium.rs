//! The [`Medium`] trait: a transmission medium as a state machine.

use trunkline_units::{Instant, Span};

use crate::{Ecn, Port};

/// A frame as a medium sees it: owned, with a length, a destination and a priority. A medium never reads the payload.
/// In the simulator most of the payload is virtual; elsewhere the frame owns a pooled buffer.
pub trait Frame: Clone + Send {
    /// Returns its length in bytes, without the framing that the medium adds (preamble, gap, trailer).
    fn length(&self) -> u32;
    /// Returns its destination.
    fn destination(&self) -> Destination;
    /// Returns its virtual channel; the frames of a flow in one direction share a channel.
    fn channel(&self) -> u16 {
        0
    }
    /// Returns its priority, 0 to 7 (7 is the highest).
    fn priority(&self) -> u8 {
        0
    }
    /// Returns the identity of its flow in one direction, as addresses and ports would give it: equal for all packets of the
    /// flow, and different from that of other flows.
    fn flow(&self) -> u64 {
        0
    }
    /// Returns its differentiated services code point (RFC 2474), 0 to 63.
    fn dscp(&self) -> u8 {
        0
    }
    /// Returns its ECN field.
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    /// Sets its ECN field to [`Ecn::Ce`]. Called only if the frame [is capable](Ecn::is_capable) of it.
    fn mark_ce(&mut self) {}
    /// Marks the frame as damaged in transit: a receiver that verifies it will discard it.
    fn damage(&mut self);
    /// Returns whether the frame is damaged.
    fn is_damaged(&self) -> bool;
}

/// The destination of a frame. The builder of the network assigns the numbers; stations filter by them, and switches
/// have them in their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
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
/// until its last bit is sent. A station that prefers to wait calls [`has_room`](Medium::has_room) first; without room
/// it passes [`MediumInput::RequestRoom`] and receives one [`MediumOutput::Room`] as soon as there is room.
///
/// **A medium never waits for a receiver.** It delivers a frame to the station at the time of arrival, whether or not
/// the station can use it: there is no `writable`.
///
/// **Every frame is accounted for.** Every accepted frame is in transit or leaves the medium as
/// [`MediumOutput::Transmit`] or [`MediumOutput::Lost`]. A medium that duplicates or broadcasts clones frames.
pub trait Medium<F: Frame>: Send {
    /// Handles one input. [`poll`](Medium::poll) returns the resulting output.
    fn handle(&mut self, now: Instant, input: MediumInput<F>);

    /// Returns the next output, until [`MediumOutput::Idle`].
    fn poll(&mut self, now: Instant) -> MediumOutput<F>;

    /// Returns whether the queue at `port` has room for a frame of `length` bytes now.
    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool;

    /// Returns the counters of the frames that the station at `port` has sent.
    fn counters(&self, port: Port) -> &MediumCounters;
}

/// An input of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumInput<F> {
    /// The station at `port` sends `frame`.
    Frame {
        /// The sender's port.
        port: Port,
        /// The frame.
        frame: F,
    },
    /// The station at `port` requests a [`MediumOutput::Room`] when there is room for the frame that
    /// [`Medium::has_room`] last refused.
    RequestRoom {
        /// The port of the station.
        port: Port,
    },
    /// The deadline may have passed.
    Wake,
}

/// An output of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumOutput<F> {
    /// Deliver `frame` to the station at `port`: its last bit has arrived.
    Transmit {
        /// The receiver's port.
        port: Port,
        /// The frame.
        frame: F,
    },
    /// A frame that the station at `port` sent is lost.
    Lost {
        /// The sender's port.
        port: Port,
        /// The frame.
        frame: F,
        /// Why it was lost.
        cause: LossCause,
    },
    /// The queue at `port` has room again; answers [`MediumInput::RequestRoom`].
    Room {
        /// The port of the station.
        port: Port,
    },
    /// No further output now.
    Idle {
        /// When to pass [`MediumInput::Wake`], unless another input arrives earlier.
        deadline: Option<Instant>,
    },
}

/// Why a medium lost a frame. [`MediumCounters`] count [`QueueFull`](LossCause::QueueFull),
/// [`EarlyDrop`](LossCause::EarlyDrop) and [`Policed`](LossCause::Policed) in `queue_drops` and all other causes but
/// [`Incomplete`](LossCause::Incomplete) in `other_losses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// The queue at the sender's port was full, or a switch had too many frames inside.
    QueueFull,
    /// The discipline of the queue dropped it although there was room: active queue management.
    EarlyDrop,
    /// It exceeded the rate and burst of a policer.
    Policed,
    /// A transmission error on the line.
    LineError,
    /// Too many collisions: the sender gave up (hub only).
    Collisions,
    /// The frame is longer than the medium allows.
    TooLong,
    /// No route to the destination.
    NoRoute,
    /// A packet whose cells are missing or damaged: AAL5 reassembly failed (ATM only). The missing and damaged cells
    /// were counted where that happened; the adapter's counters count the packet.
    Incomplete,
    /// The frame was damaged in transit; a switch that verifies frames drops it.
    Damaged,
}

/// Counters of the frames that one station sent. On ATM a frame is a cell; a packet that is too long for AAL5 counts
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediumCounters {
    /// Frames transmitted to the last bit.
    pub frames: u64,
    /// Their bytes, as in [`Frame::length`].
    pub bytes: u64,
    /// Total transmission time.
    pub busy: Span,
    /// Frames that the queue dropped: it was full, or its discipline or policer dropped them.
    pub queue_drops: u64,
    /// Frames lost for any other cause.
    pub other_losses: u64,
    /// Frames marked as damaged. They are delivered: the receiver discards them.
    pub damaged: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames that arrived after a frame sent later.
    pub reordered: u64,
    /// Maximum queue length in bytes, including the frame in transmission.
    pub queue_max: u64,
    /// Collisions (hub only).
    pub collisions: u64,
}

/// The bound of a queue. A frame occupies the queue until its last bit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The capacity.
    pub capacity: Capacity,
    /// Whether each virtual channel has this capacity, instead of all channels together.
    pub per_channel: bool,
}

/// The capacity of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// No limit.
    Unbounded,
    /// A number of frames (of cells, on a medium of cells).
    Frames(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl Bound {
    /// No limit.
    pub const NONE: Bound = Bound { capacity: Capacity::Unbounded, per_channel: false };

    /// Returns a bound of `count` frames for all channels together.
    pub const fn frames(count: u64) -> Bound {
        Bound { capacity: Capacity::Frames(count), per_channel: false }
    }

    /// Returns a bound of `count` bytes for all channels together.
    pub const fn bytes(count: u64) -> Bound {
        Bound { capacity: Capacity::Bytes(count), per_channel: false }
    }

    /// Returns whether a frame of `length` bytes fits a queue that holds `frames` frames, `bytes` bytes in total.
    #[inline]
    pub const fn fits(&self, frames: u64, bytes: u64, length: u32) -> bool {
        match self.capacity {
            Capacity::Unbounded => true,
            Capacity::Frames(max_frames) => frames < max_frames,
            Capacity::Bytes(max_bytes) => bytes + length as u64 <= max_bytes,
        }
    }
}

//! What an end of a connection is set to.

use trunkline_endpoint::{MAX_BATCH, Peer};
use trunkline_units::Span;

use crate::segment::LONGEST_HEADER;

/// Largest buffer: the largest window that scaling can tell (RFC 1323, section 2.3).
pub const LARGEST_BUFFER: u32 = 1 << 30;

/// Largest payload: with its header it is still a frame.
pub const LARGEST_MSS: u16 = (MAX_BATCH - LONGEST_HEADER) as u16;

/// What an end is set to. The default is what a workstation on an Ethernet had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Own port.
    pub local: u16,
    /// The other end's port; 0 lets a listening end take whoever comes first.
    pub remote: u16,
    /// Where segments go; a listening end answers whoever comes.
    pub peer: Peer,
    /// Largest payload of a segment in bytes, sent and offered; from 32 to [`LARGEST_MSS`].
    pub mss: u16,
    /// Most bytes that wait to be acknowledged; up to [`LARGEST_BUFFER`].
    pub send_buffer: u32,
    /// Most bytes that wait to be taken, in order or not: the largest window. Up to [`LARGEST_BUFFER`].
    pub receive_buffer: u32,
    /// Whether to offer window scaling (RFC 1323); without it no window is larger than 65,535 bytes.
    pub scaling: bool,
    /// What timers go by.
    pub timers: Timers,
    /// Which arithmetic of the congestion window.
    pub arithmetic: Arithmetic,
    /// Whether an acknowledgement waits for the fast timer or a second segment's worth of data.
    pub delayed_ack: bool,
    /// Whether a small segment waits while something is unacknowledged (RFC 896).
    pub nagle: bool,
    /// First sequence number.
    pub initial_sequence: u32,
    /// Where slow start first ends, in bytes; none: nowhere, as in the Berkeley code.
    pub initial_ssthresh: Option<u32>,
    /// Twice the maximum segment lifetime: how long the end that closed first waits.
    pub linger: Span,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            local: 0,
            remote: 0,
            peer: Peer::NONE,
            mss: 1460,
            send_buffer: 65_535,
            receive_buffer: 65_535,
            scaling: true,
            timers: Timers::default(),
            arithmetic: Arithmetic::default(),
            delayed_ack: true,
            nagle: true,
            initial_sequence: 1,
            initial_ssthresh: None,
            linger: Span::from_s(60),
        }
    }
}

impl Options {
    /// The same with every number moved into its range.
    pub(crate) fn within_bounds(mut self) -> Options {
        self.mss = self.mss.clamp(32, LARGEST_MSS);
        self.send_buffer = self.send_buffer.clamp(1, LARGEST_BUFFER);
        self.receive_buffer = self.receive_buffer.clamp(1, LARGEST_BUFFER);
        self
    }
}

/// What timers go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timers {
    /// Ticks, as in every system of the Berkeley family: the fast timer looks every 200 ms for acknowledgements that
    /// wait, the slow one counts all other timers down every 500 ms, and round trips are measured in its ticks. The
    /// retransmission timeout is 1 s to 64 s. A host has one of each, so all its connections share the phases.
    Bsd {
        /// When the fast timer first ticks; only its remainder by 200 ms matters.
        fast_phase: Span,
        /// When the slow timer first ticks; only its remainder by 500 ms matters.
        slow_phase: Span,
    },
    /// The clock: round trips are measured and timers run exactly, as models without ticks have it. An
    /// acknowledgement waits 200 ms, a retransmission at most 64 s.
    Fine {
        /// Shortest retransmission timeout. Even with zero it exceeds the smoothed round trip by 1 ms, the clock's
        /// granularity in the sense of RFC 6298, section 2.3.
        floor: Span,
    },
}

impl Default for Timers {
    fn default() -> Self {
        Timers::Bsd { fast_phase: Span::ZERO, slow_phase: Span::ZERO }
    }
}

/// Two details in which systems of the Reno family differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// As the Net/2 release: congestion avoidance adds an eighth of a segment to each step, and a window inflated
    /// by three duplicate acknowledgements and no more is not deflated.
    #[default]
    Net2,
    /// As RFC 2581 says: neither.
    Rfc2581,
}

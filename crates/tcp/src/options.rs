//! Options of one end of a connection.

use trunkline_endpoint::{MAX_BATCH, Peer};
use trunkline_units::Span;

use crate::segment::LONGEST_HEADER;

/// Largest buffer: the largest window that scaling can express (RFC 1323, section 2.3).
pub const LARGEST_BUFFER: u32 = 1 << 30;

/// Largest payload: with its header it still fits into a frame.
pub const LARGEST_MSS: u16 = (MAX_BATCH - LONGEST_HEADER) as u16;

/// Options of one end. The default is that of a workstation on an Ethernet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Local port.
    pub local: u16,
    /// Remote port; 0 lets a listening end accept any.
    pub remote: u16,
    /// Peer address; a listening end uses that of the first SYN.
    pub peer: Peer,
    /// Maximum segment size in bytes, sent and offered: 32 to [`LARGEST_MSS`].
    pub mss: u16,
    /// Send buffer in bytes; up to [`LARGEST_BUFFER`].
    pub send_buffer: u32,
    /// Receive buffer in bytes, the largest window; up to [`LARGEST_BUFFER`].
    pub receive_buffer: u32,
    /// Whether to offer window scaling (RFC 1323); without it no window is larger than 65,535 bytes.
    pub scaling: bool,
    /// Resolution of the timers.
    pub timers: Timers,
    /// Congestion window arithmetic.
    pub arithmetic: Arithmetic,
    /// Delays acknowledgements until the fast timer or a second segment.
    pub delayed_ack: bool,
    /// Delays small segments while data is unacknowledged (Nagle, RFC 896).
    pub nagle: bool,
    /// Initial sequence number.
    pub initial_sequence: u32,
    /// Initial slow start threshold in bytes; `None`: unlimited, as in the Berkeley code.
    pub initial_ssthresh: Option<u32>,
    /// Duration of TIME-WAIT: twice the maximum segment lifetime.
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
    /// Returns the options with every number clamped to its range.
    pub(crate) fn within_bounds(mut self) -> Options {
        self.mss = self.mss.clamp(32, LARGEST_MSS);
        self.send_buffer = self.send_buffer.clamp(1, LARGEST_BUFFER);
        self.receive_buffer = self.receive_buffer.clamp(1, LARGEST_BUFFER);
        self
    }
}

/// Resolution of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timers {
    /// Berkeley timers: the fast timer checks delayed acknowledgements every 200 ms, the slow timer counts all other
    /// timers down every 500 ms, and round trips are measured in its ticks. The retransmission timeout is 1 s to 64
    /// s. All connections of a host share the phases.
    Bsd {
        /// First tick of the fast timer, modulo 200 ms.
        fast_phase: Span,
        /// First tick of the slow timer, modulo 500 ms.
        slow_phase: Span,
    },
    /// Exact timers: round trips are measured exactly. An acknowledgement waits 200 ms, a retransmission at most 64
    /// s.
    Fine {
        /// Minimum retransmission timeout. Even with zero it exceeds the smoothed round-trip time by the granularity
        /// of 1 ms (RFC 6298, section 2.3).
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
    /// Net/2: congestion avoidance adds an eighth of a segment to each step, and a window inflated by exactly three
    /// duplicate acknowledgements is not deflated.
    #[default]
    Net2,
    /// RFC 2581: neither.
    Rfc2581,
}

//! Options of one end of a connection.

use trunkline_congestion::{Algorithm, Arithmetic};
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
    /// Congestion window arithmetic of 4.3BSD.
    pub arithmetic: Arithmetic,
    /// Congestion controller; `None`: that of 4.3BSD with `arithmetic`, without memory of what is in flight. Any other, and
    /// each of `sack`, `timestamps` and `ecn`, repairs several losses of a window (RFC 6582, with `sack` RFC 6675), reduces
    /// the rate in proportion (RFC 6937), and sends new segments on the first duplicate acknowledgements (RFC 3042). With
    /// these and `None` it is Reno. BBR controls its window itself while losses are repaired, and its segments are paced.
    pub congestion: Option<Algorithm>,
    /// Whether an end with extensions does as Linux 6.18 where the standards leave it open: acknowledgements of each segment
    /// while the receiver would widen its window, one for many segments out of order, bursts of segments whose last is
    /// acknowledged at once, round trips of the first segment that an acknowledgement reports, growth by the acknowledgement
    /// that ends a recovery, and one reduction in each.
    pub linux: bool,
    /// Whether to offer selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Whether to offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Whether to offer ECN, and what a receiver reports; `None`: no ECN.
    pub ecn: Option<EcnFeedback>,
    /// Initial window in segments of a controller other than that of 4.3BSD, whose initial window is one.
    pub initial_window: u16,
    /// Retransmission timeout before the first round trip is measured; `None`: 6 s, as in the Berkeley code. RFC 6298 has 1
    /// s. Exact timers only.
    pub initial_timeout: Option<Span>,
    /// Maximum delay of an acknowledgement with exact timers.
    pub ack_delay: Span,
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
            congestion: None,
            linux: false,
            sack: false,
            timestamps: false,
            ecn: None,
            initial_window: 10,
            initial_timeout: None,
            ack_delay: Span::from_ms(200),
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
        self.initial_window = self.initial_window.max(1);
        self
    }

    /// Returns whether an end with these options does more than 4.3BSD.
    pub fn has_extensions(&self) -> bool {
        self.congestion.is_some() || self.sack || self.timestamps || self.ecn.is_some()
    }

    /// Returns the congestion controller of an end with extensions.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.congestion.unwrap_or(Algorithm::Reno)
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
    /// Exact timers: round trips are measured exactly. An acknowledgement waits [`Options::ack_delay`], a retransmission
    /// at most 64 s.
    Fine {
        /// By how much the retransmission timeout exceeds the smoothed round-trip time at least, as in Linux; also the
        /// minimum of the timeout. Even with zero it is the granularity of 1 ms (RFC 6298, section 2.3).
        floor: Span,
    },
}

impl Default for Timers {
    fn default() -> Self {
        Timers::Bsd { fast_phase: Span::ZERO, slow_phase: Span::ZERO }
    }
}

/// What a receiver reports of segments that the path has marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnFeedback {
    /// That there was one, until the sender confirms a reduction of its window (RFC 3168).
    Classic,
    /// Which data was marked (RFC 8257), as DCTCP needs. Both ends must use it; the wire shows no difference.
    Exact,
    /// How many packets and bytes were marked (RFC 9768). It is negotiated: with a peer that has only RFC 3168 both use that.
    Accurate,
}

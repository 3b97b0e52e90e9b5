//! Options of a connection.

use trunkline_congestion::{Bbr, Bbr3, Bounds, Controller, Cubic, Fixed, Paced, Reno, TcpFriendly};
use trunkline_units::Span;

pub use crate::limits::*;
pub use crate::rtt::Timeouts;
pub use crate::wire::aead::PresharedKey;
pub use crate::wire::check::Check;
use crate::wire::handshake::TransportParameters;
pub use crate::wire::handshake::{Fec, Mode};

/// Minimum timeout.
const MIN_TIMEOUT: Span = Span::from_us(1);

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Retransmission mode.
    pub mode: Mode,
    /// Frame checksum.
    pub check: Check,
    /// Pre-shared key: frames are encrypted with keys derived from it, and [`Check::Aead`] replaces `check`. Both
    /// ends need the same key. Needs the feature `aead`.
    pub key: Option<PresharedKey>,
    /// Window: maximum number of frames in flight, and stored out of order; 1 to [`MAX_WINDOW`]. The smaller window of
    /// both ends holds.
    pub window: u16,
    /// Maximum frame length sent and accepted, in bytes without lower headers; [`MIN_FRAME`] to [`MAX_FRAME`].
    pub frame: u16,
    /// Maximum length of frames received, and of frames sent once the peer has answered a probe of that length. The
    /// connection searches for the path MTU between `frame` and this length, and repeats the search from time to
    /// time. None: `frame` is the maximum, and the path is not probed. Both ends must set it. A socket that probes
    /// fragments no packet, so the path must carry frames of 1,200 bytes; black hole detection finds out if it does
    /// not carry `frame`. Excludes `fec`.
    pub probe_up_to: Option<u16>,
    /// Frames per acknowledgement, at least 1 (the counter of section 5.2.3 of the 1998 paper).
    pub ack_every: u16,
    /// Maximum delay of an acknowledgement. The peer's timeouts include it.
    pub ack_delay: Span,
    /// Retransmission timeouts.
    pub timeout: Timeouts,
    /// Congestion controller.
    pub congestion: Congestion,
    /// Receive credit: bytes of messages accepted from the peer and not read; at least twice a frame.
    pub credit: u32,
    /// Receive credit of one channel.
    pub channel_credit: u32,
    /// Send buffer of a channel in bytes, until acknowledged. One message may exceed it. Zero: 1 MiB, which fits a
    /// processor's cache, and 4 MiB if it fills up on a path with a round-trip time above 1 ms.
    pub send_buffer: usize,
    /// How long a small message may wait for others to share its frame while frames are in flight.
    pub coalesce_delay: Span,
    /// Interval of keep-alive probes of a silent peer; zero: never.
    pub keep_alive: Span,
    /// Time without a response after which a probed peer is considered gone, after at least eight unanswered probes,
    /// so that a clock jump closes no connection.
    pub peer_timeout: Span,
    /// Forward error correction: repair frames recover lost frames without retransmission. Both ends must enable it
    /// in selective mode; the smaller of each number holds. A receiver stores copies of up to 4 blocks. Disabled if
    /// either end sets `probe_up_to`: frames in parts are not protected.
    pub fec: Option<Fec>,
}

/// Selective repeat, paced and TCP-friendly, with CRC-32C, in frames for Ethernet.
impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::Selective,
            check: Check::Crc32c,
            key: None,
            window: 4096,
            frame: 1472,
            probe_up_to: None,
            ack_every: 16,
            ack_delay: Span::from_us(200),
            timeout: Timeouts { ceiling: Span::from_s(3), ..Timeouts::default() },
            congestion: Congestion::TcpFriendly,
            credit: 16 << 20,
            channel_credit: 4 << 20,
            send_buffer: 0,
            coalesce_delay: Span::ZERO,
            keep_alive: Span::from_s(5),
            peer_timeout: Span::from_s(20),
            fec: None,
        }
    }
}

impl Options {
    /// The transport of the 1998 paper (section 10): go-back-N, a window of sixteen frames with 9,152 bytes of
    /// message data, an acknowledgement every third frame, a timeout of three seconds, and its own checksum. Its
    /// header was 11 bytes with the checksum; this one is 8 bytes plus 4 of the check.
    pub fn paper_1998() -> Self {
        Options {
            mode: Mode::GoBackN,
            check: Check::Folded,
            window: 16,
            frame: 9152 + 12,
            ack_every: 3,
            timeout: Timeouts::fixed(Span::from_s(3)),
            congestion: Congestion::Fixed,
            ..Options::default()
        }
    }

    /// Clamps every number to its valid range.
    pub(crate) fn clamped(&self) -> Options {
        let frame = self.frame.clamp(MIN_FRAME, MAX_FRAME);
        let probe_up_to = self.probe_up_to.map(|length| length.clamp(frame, MAX_FRAME));
        let min_credit = u32::from(probe_up_to.unwrap_or(frame)) * 2;
        Options {
            window: if self.mode == Mode::StopAndWait { 1 } else { self.window.clamp(1, MAX_WINDOW) },
            frame,
            check: if self.key.is_some() { Check::Aead } else { self.check },
            probe_up_to,
            ack_every: self.ack_every.max(1),
            timeout: Timeouts {
                initial: self.timeout.initial.max(MIN_TIMEOUT),
                floor: self.timeout.floor.max(MIN_TIMEOUT),
                ceiling: self.timeout.ceiling.max(self.timeout.floor).max(MIN_TIMEOUT),
                ..self.timeout
            },
            credit: self.credit.max(min_credit),
            channel_credit: self.channel_credit.max(min_credit),
            fec: self.fec.filter(|_| probe_up_to.is_none()).and_then(|fec| fec.clamped(self.mode)),
            ..self.clone()
        }
    }

    /// Returns the transport parameters sent to the peer.
    pub(crate) fn transport_parameters(&self) -> TransportParameters {
        TransportParameters {
            mode: self.mode,
            check: self.check,
            window: self.window,
            frame: self.max_receive_frame(),
            ack_delay_us: u32::try_from(self.ack_delay.as_ps() / 1_000_000).unwrap_or(u32::MAX),
            ack_every: self.ack_every,
            credit: self.credit,
            channel_credit: self.channel_credit,
            parts: self.probe_up_to.is_some(),
            fec: self.fec,
        }
    }

    /// Returns the maximum length of received frames.
    pub(crate) fn max_receive_frame(&self) -> u16 {
        self.probe_up_to.unwrap_or(self.frame)
    }
}

/// Selects a [congestion controller](trunkline_congestion), which counts frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// A constant window: [`Fixed`].
    Fixed,
    /// The window of TCP Reno: [`Reno`].
    Reno,
    /// CUBIC (RFC 9438): [`Cubic`].
    Cubic,
    /// Window and pace from the measured delivery rate: [`Paced`].
    Paced,
    /// The same with at most the window of CUBIC: [`TcpFriendly`].
    #[default]
    TcpFriendly,
    /// BBR version 1: [`Bbr`].
    Bbr,
    /// BBR version 3: [`Bbr3`].
    Bbr3,
}

impl Congestion {
    /// All controllers.
    pub const ALL: [Congestion; 7] = [
        Congestion::Fixed,
        Congestion::Reno,
        Congestion::Cubic,
        Congestion::Paced,
        Congestion::TcpFriendly,
        Congestion::Bbr,
        Congestion::Bbr3,
    ];

    /// Creates the controller for at most `max_window` frames in flight and a peer that acknowledges at least every
    /// `ack_every` frames. `seed` determines the random numbers of BBR.
    pub(crate) fn controller(self, max_window: u32, ack_every: u32, seed: u64) -> Box<dyn Controller> {
        let bounds = Bounds::new(1, max_window);
        match self {
            Congestion::Fixed => Box::new(Fixed::new(max_window)),
            Congestion::Reno => Box::new(Reno::new(bounds)),
            Congestion::Cubic => Box::new(Cubic::new(bounds)),
            Congestion::Paced => Box::new(Paced::new(max_window, ack_every)),
            Congestion::TcpFriendly => Box::new(TcpFriendly::new(max_window, ack_every)),
            Congestion::Bbr => Box::new(Bbr::new(bounds, seed)),
            Congestion::Bbr3 => Box::new(Bbr3::new(bounds, seed)),
        }
    }
}

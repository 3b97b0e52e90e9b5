//! How a connection behaves.

use trunkline_units::Span;

use crate::congestion::{Fixed, Paced, Policy, Reno};
pub use crate::rtt::Timeouts;
pub use crate::wire::aead::PresharedKey;
pub use crate::wire::check::Check;
use crate::wire::open::Terms;
pub use crate::wire::open::{Fec, Mode};

/// Most frames of a window. Four of them fit the 16 bits of a channel's sequence numbers.
pub const MAX_WINDOW: u16 = 8192;
/// Shortest frame that may be agreed upon.
pub const MIN_FRAME: u16 = 128;
/// Longest frame: a UDP datagram over IPv4.
pub const MAX_FRAME: u16 = 65_507;
/// Longest message.
pub const MAX_MESSAGE: usize = 1 << 30;
/// Most frames of a block that repair frames are for. The receiver keeps some blocks of them.
pub const MAX_BLOCK: u8 = 64;
/// Most repair frames of a block.
pub const MAX_REPAIRS: u8 = 8;
/// The shortest timeout.
const LEAST: Span = Span::from_us(1);
/// What a chunk costs of the credit beyond its bytes: what it takes to remember one that is empty.
pub const CHUNK_COST: u64 = 8;

/// How a connection behaves. Either end has its own; the client's mode and check hold for both.
#[derive(Clone, Debug)]
pub struct Options {
    /// How lost frames are made good.
    pub mode: Mode,
    /// How frames are checked.
    pub check: Check,
    /// A secret that both ends have had before: frames are encrypted with keys that follow from it, and [`Check::Aead`]
    /// takes the place of `check`. An end that has one has no connection with an end that has none, or another. There is
    /// none without the feature `aead`.
    pub key: Option<PresharedKey>,
    /// Frames in flight at the most, and remembered out of order; 1 to [`MAX_WINDOW`].
    pub window: u16,
    /// Longest frame sent and taken, in bytes, without the headers below; [`MIN_FRAME`] to [`MAX_FRAME`].
    pub frame: u16,
    /// Longest frame taken, and sent once a probe of that length was answered: the length that a path carries is looked
    /// for between `frame` and this, and again from time to time. None: `frame` is the longest, and nothing is probed.
    /// Both ends must ask for it. No packet of a socket that probes is fragmented, so the path must carry frames of
    /// 1,200 bytes; that it does not carry `frame` is noticed as any black hole is. An end that probes has no `fec`.
    pub probe_up_to: Option<u16>,
    /// Frames for which an acknowledgement may be kept back (the counter of section 5.2.3), at least 1.
    pub ack_every: u16,
    /// How long it may be kept back. The peer's timeouts count it in.
    pub ack_delay: Span,
    /// Retransmission timeouts.
    pub timeout: Timeouts,
    /// What decides how much is in flight.
    pub congestion: Congestion,
    /// Bytes of messages taken from the peer and not yet by the user; more only as the user takes them. At least
    /// twice a frame.
    pub credit: u32,
    /// Of these on one channel.
    pub channel_credit: u32,
    /// Bytes that may wait on a channel to be sent and acknowledged before it is full. One message may exceed it.
    pub send_buffer: usize,
    /// How long a small message may wait for others to share its frame, if frames are in flight.
    pub share: Span,
    /// A quiet peer is asked whether it is alive this often; zero: never.
    pub keep_alive: Span,
    /// A peer that has been asked and has said nothing for this long is given up. At least eight questions must have
    /// gone unanswered, so that a leap of the clock ends nothing.
    pub patience: Span,
    /// Forward error correction: repair frames that make good what is lost without its being sent again. Both ends must
    /// have it, in the selective mode, and each of the numbers that holds is the lesser of the two; with it a receiver
    /// keeps copies of up to 4 blocks' frames. None if either end asks for `probe_up_to`: what leaves in parts is not
    /// protected.
    pub fec: Option<Fec>,
}

/// Selective repeat over Ethernet, paced, checked by CRC-32C.
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
            congestion: Congestion::Paced,
            credit: 16 << 20,
            channel_credit: 4 << 20,
            send_buffer: 4 << 20,
            share: Span::ZERO,
            keep_alive: Span::from_s(5),
            patience: Span::from_s(20),
            fec: None,
        }
    }
}

impl Options {
    /// The transport of 1998 (section 10): go-back-N, sixteen frames of 9,152 bytes of message, every third
    /// acknowledgement forced, three seconds of timeout, its own sum. Its checksum stood in an 11-byte header; ours
    /// takes as much with the 8 bytes before.
    pub fn of_1998() -> Self {
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

    /// With every number held within what a connection can do.
    pub(crate) fn within_bounds(&self) -> Options {
        let frame = self.frame.clamp(MIN_FRAME, MAX_FRAME);
        let probe_up_to = self.probe_up_to.map(|longest| longest.clamp(frame, MAX_FRAME));
        let least = u32::from(probe_up_to.unwrap_or(frame)) * 2;
        Options {
            window: if self.mode == Mode::StopAndWait { 1 } else { self.window.clamp(1, MAX_WINDOW) },
            frame,
            check: if self.key.is_some() { Check::Aead } else { self.check },
            probe_up_to,
            ack_every: self.ack_every.max(1),
            send_buffer: self.send_buffer.max(1),
            timeout: Timeouts {
                initial: self.timeout.initial.max(LEAST),
                floor: self.timeout.floor.max(LEAST),
                ceiling: self.timeout.ceiling.max(self.timeout.floor).max(LEAST),
                ..self.timeout
            },
            credit: self.credit.max(least),
            channel_credit: self.channel_credit.max(least),
            fec: self.fec.filter(|_| probe_up_to.is_none()).and_then(|fec| fec.within_bounds(self.mode)),
            ..self.clone()
        }
    }

    /// What the peer is told.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            mode: self.mode,
            check: self.check,
            window: self.window,
            frame: self.longest(),
            ack_delay_us: u32::try_from(self.ack_delay.as_ps() / 1_000_000).unwrap_or(u32::MAX),
            ack_every: self.ack_every,
            credit: self.credit,
            channel_credit: self.channel_credit,
            parts: self.probe_up_to.is_some(),
            fec: self.fec,
        }
    }

    /// The longest frame that comes.
    pub(crate) fn longest(&self) -> u16 {
        self.probe_up_to.unwrap_or(self.frame)
    }
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// The whole window, always.
    Fixed,
    /// [`Reno`].
    Reno,
    /// [`Paced`].
    #[default]
    Paced,
}

impl Congestion {
    /// A policy for a connection whose window is `window` frames, to a peer that acknowledges every `ack_every`.
    pub(crate) fn policy(self, window: u16, ack_every: u16) -> Box<dyn Policy> {
        let window = u32::from(window);
        match self {
            Congestion::Fixed => Box::new(Fixed::new(window)),
            Congestion::Reno => Box::new(Reno::new(window)),
            Congestion::Paced => Box::new(Paced::new(window, ack_every.into())),
        }
    }
}

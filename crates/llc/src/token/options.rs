//! What a ring and its line are like.

use trunkline_units::{Rate, Size, Span};

use crate::token::frame::LONGEST;
use crate::wire::{HEADER, HIGHEST};

/// What a ring is like. The same at every station of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The highest station number that is asked whether it wants to join, 1 to 254.
    pub highest: u8,
    /// How long who passed the token on waits to hear that it was used, before it sends it again. Shorter than the
    /// longest [`Options::visit`] of the line: tokens are sent again without need. Not zero.
    pub patience: Span,
    /// How often the token is sent to a station before that is taken for dead. At least 1.
    pub tries: u8,
    /// At least this lies between two windows for stations that want to join.
    pub every: Span,
    /// Stations that one window invites. At least 1.
    pub invited: u8,
    /// Longer than a [`Control`](super::frame::Control) frame takes from one station to another. So much time an
    /// invited station has to answer, and so far apart are the moments at which stations would make a new token. Not
    /// zero.
    pub slot: Span,
    /// How long the member with the lowest number keeps the token if it has nothing to send, once a rotation. Zero:
    /// an idle token goes round as fast as it can, which keeps every station's processor busy.
    pub rest: Span,
    /// By priority: a frame leaves only if the token came round in less than this. [`Span::MAX`]: it always may. What
    /// is not less for a priority than for the one below makes sense.
    pub targets: [Span; HIGHEST as usize + 1],
}

/// For stations that are programs on one machine or a local network of them: a pass takes tens of microseconds, and a
/// program may have to wait for a processor for milliseconds. Priorities 4 to 7 always may, 0 to 3 if the token came
/// round in 10 to 16 ms.
impl Default for Options {
    fn default() -> Options {
        Options {
            highest: 254,
            patience: Span::from_ms(10),
            tries: 3,
            every: Span::from_ms(100),
            invited: 8,
            slot: Span::from_us(500),
            rest: Span::from_us(100),
            targets: targets([10, 12, 14, 16].map(Span::from_ms)),
        }
    }
}

/// Of four priorities; those above always may.
fn targets(limited: [Span; 4]) -> [Span; HIGHEST as usize + 1] {
    std::array::from_fn(|priority| limited.get(priority).copied().unwrap_or(Span::MAX))
}

impl Options {
    /// As tight as a line allows, for stations up to `highest` that send frames of at most `largest` octets: the patience
    /// is twice the longest visit and a slot. Priorities 0 to 3 may if the token came round in twice the time that it
    /// takes when nobody sends, and a frame of `largest` besides.
    pub fn for_line(line: &Line, highest: u8, largest: usize) -> Options {
        let slot = line.token() + line.hop + line.relay(line.frame(largest));
        let empty = slot * u64::from(highest);
        Options {
            highest,
            patience: Options::visit(line, largest) * 2 + slot,
            tries: 2,
            every: Span::from_ms(100),
            invited: 4,
            slot,
            rest: Span::ZERO,
            targets: targets([empty * 2 + line.frame(largest); 4]),
        }
    }

    /// The longest from a station's getting the token to the next one's getting it, if it sends a frame of `largest`
    /// octets and has no rest.
    pub fn visit(line: &Line, largest: usize) -> Span {
        let longest = line.frame(largest).max(line.token());
        line.frame(largest) + line.token() + line.hop + line.relay(longest)
    }

    /// How long a window is open.
    pub fn window(&self) -> Span {
        self.slot * (u64::from(self.invited) + 1)
    }

    /// Without a sign of the token for so long, the station that is next makes a new one, and each behind it a slot
    /// later.
    pub fn silence(&self) -> Span {
        self.patience * 2
    }

    /// Without a sign of any ring for so long, station `number` begins one of its own.
    pub fn listen(&self, number: u8) -> Span {
        self.silence() * 2 + self.slot * (256 + u64::from(number))
    }

    /// The longest that a token which was lost on the way stays away.
    pub fn lost(&self) -> Span {
        self.patience
    }

    /// The longest that the token stays away if one station dies, wherever it was: it is tried so many times, the
    /// first of them answered by a window at the most.
    pub fn repair(&self) -> Span {
        self.patience * (u64::from(self.tries) + 1) + self.window()
    }

    /// The longest that the token stays away if several stations die at once and one is left at least, not counting
    /// the [`repair`](Options::repair) of each of them that is found dead afterwards.
    pub fn restart(&self) -> Span {
        self.silence() + self.window() + self.slot * 254
    }
}

/// What a line and its stations are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bits per second. Not zero.
    pub rate: Rate,
    /// Octets that are added to each PDU, gap between frames included.
    pub overhead: u32,
    /// Octets to which shorter PDUs are padded.
    pub smallest: u32,
    /// The longest from a frame's last bit on the line until the station that hears it has done what it does:
    /// propagation, interrupts, processing, lateness of its timers. For programs, what of their delay is promised.
    pub hop: Span,
    /// Whether a switch stands between the stations, that hears a frame whole before it sends it on.
    pub switched: bool,
}

impl Line {
    /// Ethernet that all stations share, with a priority tag: preamble 8, addresses and length 14, tag 4, check
    /// sequence 4, gap 12; at least 46 octets of PDU.
    pub fn ethernet(rate: Rate, hop: Span) -> Line {
        Line { rate, overhead: 42, smallest: 46, hop, switched: false }
    }

    /// How long a frame is on the line. `octets` as a station hands it over: a priority and the PDU.
    pub fn frame(&self, octets: usize) -> Span {
        let pdu = octets.saturating_sub(1).max(self.smallest as usize) as u64;
        self.rate.time_for(Size::from_bytes(pdu + u64::from(self.overhead)))
    }

    /// How long a token is.
    pub fn token(&self) -> Span {
        self.frame(LONGEST)
    }

    /// How long a message of so many octets is: with the head of its PDU.
    pub fn message(&self, octets: u32) -> Span {
        self.frame(1 + HEADER + octets as usize)
    }

    /// What a switch adds at the most to a frame, where none on the line is longer than `longest`: it may have to hear
    /// that one, and all it sends to one station came through the token one after the other.
    pub fn relay(&self, longest: Span) -> Span {
        if self.switched { longest } else { Span::ZERO }
    }
}

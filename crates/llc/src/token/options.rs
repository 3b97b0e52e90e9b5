//! Options of a ring and of its line.

use trunkline_units::{Rate, Size, Span};

use crate::token::frame::MAX_FRAME;
use crate::wire::{HEADER, MAX_PRIORITY};

/// Options of a ring; the same at all stations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Highest station number invited to join, 1 to 254.
    pub highest_station: u8,
    /// Time to wait for a sign of the passed token before it is sent again. If shorter than the longest
    /// [`Options::visit`] of the line, tokens are resent needlessly. Not zero.
    pub pass_timeout: Span,
    /// Transmissions of the token to a station before it counts as dead; at least 1.
    pub tries: u8,
    /// Minimum time between two windows.
    pub window_interval: Span,
    /// Stations invited per window; at least 1.
    pub invited_per_window: u8,
    /// Slot time, longer than a [`Control`](super::frame::Control) frame takes between stations. An invited station
    /// has this long to respond, and stations issue new tokens this far apart. Not zero.
    pub slot: Span,
    /// How long the lowest member holds an idle token, once per rotation. With zero an idle token circulates at full
    /// speed and keeps every station's processor busy.
    pub idle_hold: Span,
    /// Rotation target by priority: a frame is sent only if the rotation was shorter. [`Span::MAX`]: always. Sensible
    /// targets do not decrease with priority.
    pub rotation_targets: [Span; MAX_PRIORITY as usize + 1],
}

/// Defaults for programs on one machine or a local network, where a pass takes tens of microseconds and a program may
/// wait milliseconds for a processor. Priorities 4 to 7 may always send, 0 to 3 if the rotation was below 10 to 16
/// ms.
impl Default for Options {
    fn default() -> Options {
        Options {
            highest_station: 254,
            pass_timeout: Span::from_ms(10),
            tries: 3,
            window_interval: Span::from_ms(100),
            invited_per_window: 8,
            slot: Span::from_us(500),
            idle_hold: Span::from_us(100),
            rotation_targets: rotation_targets([10, 12, 14, 16].map(Span::from_ms)),
        }
    }
}

/// Returns the targets of the four lower priorities; the others have none.
fn rotation_targets(limited: [Span; 4]) -> [Span; MAX_PRIORITY as usize + 1] {
    std::array::from_fn(|priority| limited.get(priority).copied().unwrap_or(Span::MAX))
}

impl Options {
    /// Returns the tightest options for a line, stations up to `highest` and frames of at most `largest` octets: the
    /// pass timeout is twice the longest visit plus a slot. Priorities 0 to 3 have a target of twice the idle
    /// rotation plus one frame of `largest`.
    pub fn for_line(line: &Line, highest_station: u8, largest: usize) -> Options {
        let slot = line.token() + line.hop + line.relay(line.frame(largest));
        let empty = slot * u64::from(highest_station);
        Options {
            highest_station,
            pass_timeout: Options::visit(line, largest) * 2 + slot,
            tries: 2,
            window_interval: Span::from_ms(100),
            invited_per_window: 4,
            slot,
            idle_hold: Span::ZERO,
            rotation_targets: rotation_targets([empty * 2 + line.frame(largest); 4]),
        }
    }

    /// Returns the longest time between the token's arrivals at two neighbours, for a frame of `largest` octets and
    /// no idle hold.
    pub fn visit(line: &Line, largest: usize) -> Span {
        let longest = line.frame(largest).max(line.token());
        line.frame(largest) + line.token() + line.hop + line.relay(longest)
    }

    /// Returns the duration of a window.
    pub fn window(&self) -> Span {
        self.slot * (u64::from(self.invited_per_window) + 1)
    }

    /// Returns the silence after which the next station issues a new token; each further one a slot later.
    pub fn silence(&self) -> Span {
        self.pass_timeout * 2
    }

    /// Returns the silence after which station `number` starts its own ring.
    pub fn listen(&self, number: u8) -> Span {
        self.silence() * 2 + self.slot * (256 + u64::from(number))
    }

    /// Returns the longest absence of the token after one lost pass.
    pub fn lost(&self) -> Span {
        self.pass_timeout
    }

    /// Returns the longest absence of the token after the death of one station, wherever the token was: all tries,
    /// with a window at most before the first.
    pub fn repair(&self) -> Span {
        self.pass_timeout * (u64::from(self.tries) + 1) + self.window()
    }

    /// Returns the longest absence of the token after several stations die at once and at least one remains, without
    /// the [`repair`](Options::repair) of each station found dead later.
    pub fn restart(&self) -> Span {
        self.silence() + self.window() + self.slot * 254
    }
}

/// Properties of a line and its stations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bit rate; not zero.
    pub rate: Rate,
    /// Overhead per PDU in octets, including the interframe gap.
    pub overhead: u32,
    /// Minimum PDU length in octets.
    pub smallest: u32,
    /// Longest time from a frame's last bit on the line until the receiver has reacted: propagation, interrupts,
    /// processing, timer lateness. For programs: the share of their delay that is promised.
    pub hop: Span,
    /// Whether a store-and-forward switch connects the stations.
    pub switched: bool,
}

impl Line {
    /// Shared Ethernet with a priority tag: preamble 8, addresses and length 14, tag 4, check sequence 4, gap 12; at
    /// least 46 octets of PDU.
    pub fn ethernet(rate: Rate, hop: Span) -> Line {
        Line { rate, overhead: 42, smallest: 46, hop, switched: false }
    }

    /// Returns the transmission time of a frame; `octets` counts the priority and the PDU.
    pub fn frame(&self, octets: usize) -> Span {
        let pdu = octets.saturating_sub(1).max(self.smallest as usize) as u64;
        self.rate.time_for(Size::from_bytes(pdu + u64::from(self.overhead)))
    }

    /// Returns the transmission time of a token.
    pub fn token(&self) -> Span {
        self.frame(MAX_FRAME)
    }

    /// Returns the transmission time of a message with its PDU header.
    pub fn message(&self, octets: u32) -> Span {
        self.frame(1 + HEADER + octets as usize)
    }

    /// Returns the maximum delay that a switch adds to a frame if no frame is longer than `longest`: it may receive
    /// such a frame first, and its frames to one station arrive through the token one by one.
    pub fn relay(&self, longest: Span) -> Span {
        if self.switched { longest } else { Span::ZERO }
    }
}

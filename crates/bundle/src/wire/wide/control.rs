//! Items of control: what a host or a converter tells beside messages.
//!
//! ```text
//! item: kind u8 | argument u8 | octets u16, of all of it, a multiple of 8 | …
//! ```

use super::{Malformed, Packets, u16_at, u32_at};
use crate::level::{LEAST, MOST};

/// Octets of an item that says little.
const SHORT: usize = 8;
/// Octets of an item that says more.
const LONG: usize = 16;
/// Octets of a range of addresses.
pub const RANGE: usize = 8;
/// Octets of joins or drops beside their ranges.
pub const RANGES: usize = SHORT;
/// Most ranges of an item.
pub const MOST_RANGES: usize = 255;

/// Something told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// From a host: it wants these. The first of them is the `from`-th change of what it wants in this session, from 0 on.
    Join(Changes<'a>),
    /// From a host: it no longer wants these.
    Drop(Changes<'a>),
    /// To a host: so many changes of what it wants are heard.
    Told(u32),
    /// To level 1: get these packet addresses, and no others.
    Hold {
        /// Each change has a higher one.
        version: u32,
        /// A bit each: packet address p is bit p mod 8, from the lowest on, of octet p / 8.
        packets: &'a Packets,
    },
    /// From level 1: what this version of the hold says is so.
    Holds(u32),
    /// To the sender of messages that are to be acknowledged.
    Ack {
        /// All before this number are here, modulo 2¹⁶.
        next: u16,
        /// Which others are: bit n for number `next` + 1 + n.
        beyond: u64,
    },
    /// To hosts and level 1: the congestion.
    Level {
        /// 3 (none) to 6.
        level: u8,
        /// Octets of ordinary messages, with their entries, that it may send a second; the highest number: no limit.
        rate: u32,
    },
    /// From a host: ordinary messages that it takes a second; the highest number: no limit.
    Saturation(u32),
    /// From a host: what came in this session, modulo 2³².
    Report {
        /// Messages that came.
        received: u32,
        /// Messages of bundles that did not come.
        lost: u32,
    },
    /// It ends.
    Bye,
}

/// Changes of what a host wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes<'a> {
    /// The how manieth in its session the first of them is.
    pub from: u32,
    ranges: &'a [u8],
}

impl<'a> Changes<'a> {
    /// From ranges as [`Changes::encode`] writes them, 1 to 255.
    pub fn new(from: u32, ranges: &'a [u8]) -> Changes<'a> {
        debug_assert!(
            ranges.len().is_multiple_of(RANGE) && (1..=MOST_RANGES).contains(&(ranges.len() / RANGE))
        );
        Changes { from, ranges }
    }

    /// A range on the wire: the first and the last address.
    pub fn encode(first: u32, last: u32) -> [u8; RANGE] {
        (u64::from(first) << 32 | u64::from(last)).to_be_bytes()
    }

    /// First and last address of each.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.ranges.as_chunks::<RANGE>().0.iter().map(|range| (u32_at(range, 0), u32_at(range, 4)))
    }
}

impl<'a> Control<'a> {
    /// Octets of it.
    pub fn octets(&self) -> usize {
        match self {
            Control::Join(changes) | Control::Drop(changes) => RANGES + changes.ranges.len(),
            Control::Hold { packets, .. } => SHORT + packets.len(),
            Control::Ack { .. } | Control::Report { .. } => LONG,
            _ => SHORT,
        }
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let end = into.len() + self.octets();
        let count = |changes: &Changes<'_>| (changes.ranges.len() / RANGE) as u8;
        let (kind, argument) = match self {
            Control::Join(changes) => (1, count(changes)),
            Control::Drop(changes) => (2, count(changes)),
            Control::Told(_) => (3, 0),
            Control::Hold { .. } => (4, 0),
            Control::Holds(_) => (5, 0),
            Control::Ack { .. } => (6, 0),
            Control::Level { level, .. } => (7, *level),
            Control::Saturation(_) => (8, 0),
            Control::Report { .. } => (9, 0),
            Control::Bye => (10, 0),
        };
        into.extend_from_slice(&[kind, argument]);
        into.extend_from_slice(&(self.octets() as u16).to_be_bytes());
        match self {
            Control::Join(changes) | Control::Drop(changes) => {
                into.extend_from_slice(&changes.from.to_be_bytes());
                into.extend_from_slice(changes.ranges);
            }
            Control::Told(number) | Control::Holds(number) | Control::Saturation(number) => {
                into.extend_from_slice(&number.to_be_bytes());
            }
            Control::Hold { version, packets } => {
                into.extend_from_slice(&version.to_be_bytes());
                into.extend_from_slice(*packets);
            }
            Control::Ack { next, beyond } => {
                into.extend_from_slice(&next.to_be_bytes());
                into.extend_from_slice(&[0; 2]);
                into.extend_from_slice(&beyond.to_be_bytes());
            }
            Control::Level { rate, .. } => into.extend_from_slice(&rate.to_be_bytes()),
            Control::Report { received, lost } => {
                into.extend_from_slice(&received.to_be_bytes());
                into.extend_from_slice(&lost.to_be_bytes());
            }
            Control::Bye => {}
        }
        into.resize(end, 0);
    }

    /// The item that these octets are, all of them.
    fn read(item: &'a [u8]) -> Option<Control<'a>> {
        let (argument, number) = (item[1], u32_at(item, 4));
        let control = match (item[0], item.len()) {
            (kind @ 1..=2, octets) if argument > 0 && octets == RANGES + RANGE * usize::from(argument) => {
                let changes = Changes { from: number, ranges: &item[RANGES..] };
                if changes.ranges().any(|(first, last)| first > last) {
                    return None;
                }
                return Some(if kind == 1 { Control::Join(changes) } else { Control::Drop(changes) });
            }
            (7, SHORT) if (LEAST..=MOST).contains(&argument) => {
                return Some(Control::Level { level: argument, rate: number });
            }
            (3, SHORT) => Control::Told(number),
            (4, _) => Control::Hold { version: number, packets: item[SHORT..].try_into().ok()? },
            (5, SHORT) => Control::Holds(number),
            (6, LONG) if item[6..8] == [0; 2] => {
                let beyond = u64::from(u32_at(item, 8)) << 32 | u64::from(u32_at(item, 12));
                Control::Ack { next: u16_at(item, 4), beyond }
            }
            (8, SHORT) => Control::Saturation(number),
            (9, LONG) if item[12..] == [0; 4] => Control::Report { received: number, lost: u32_at(item, 8) },
            (10, SHORT) if number == 0 => Control::Bye,
            _ => return None,
        };
        (argument == 0).then_some(control)
    }
}

/// The items of a bundle, one after the other. One that makes no sense is the last.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Items<'a> {
        Items { rest: octets }
    }

    /// Whether all make sense.
    pub(super) fn check(octets: &[u8]) -> bool {
        Items::new(octets).all(|item| item.is_ok())
    }

    fn split(&mut self) -> Option<Control<'a>> {
        let octets = usize::from(u16_at(self.rest.first_chunk::<SHORT>()?, 2));
        if octets < SHORT || !octets.is_multiple_of(SHORT) {
            return None;
        }
        let (item, rest) = self.rest.split_at_checked(octets)?;
        self.rest = rest;
        Control::read(item)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Control<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let control = self.split();
        if control.is_none() {
            self.rest = &[];
        }
        Some(control.ok_or(Malformed::Control))
    }
}

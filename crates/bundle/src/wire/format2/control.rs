//! Control items of a bundle.
//!
//! ```text
//! item: kind u8 | argument u8 | octets u16, of all of it, a multiple of 8 | …
//! ```

use super::{PacketBitmap, u16_at, u32_at};
use crate::level::{MAX_LEVEL, MIN_LEVEL};

/// Octets of a short item.
const SHORT_ITEM: usize = 8;
/// Octets of a long item.
const LONG_ITEM: usize = 16;
/// Octets of a range of addresses.
pub const RANGE: usize = 8;
/// Octets of a join or drop item without its ranges.
pub const RANGES_HEADER: usize = SHORT_ITEM;
/// The largest number of ranges in an item.
pub const MAX_ITEM_RANGES: usize = 255;

/// A control item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// From a host: joins ranges.
    Join(RangeChanges<'a>),
    /// From a host: leaves ranges.
    Drop(RangeChanges<'a>),
    /// To a host: the number of its changes confirmed in this session.
    Confirmed(u32),
    /// To level 1: the complete assignment of packet addresses.
    Assign {
        /// A higher version replaces a lower one.
        version: u32,
        /// One bit per packet address: p is bit p mod 8, from the lowest on, of octet p / 8.
        packets: &'a PacketBitmap,
    },
    /// From level 1: the version of the assignment that is in effect.
    Assigned(u32),
    /// Acknowledges reliable messages.
    Ack {
        /// All messages before this number have arrived, modulo 2¹⁶.
        next: u16,
        /// Bit n: message `next` + 1 + n has arrived.
        beyond: u64,
    },
    /// To hosts and level 1: the congestion limits.
    Level {
        /// 3 (none) to 6.
        level: u8,
        /// Octets of ordinary messages, with entries, that the receiver may send per second; the highest value is no
        /// limit.
        rate: u32,
    },
    /// From a host: ordinary messages per second that it accepts; the highest value is no limit.
    Saturation(u32),
    /// From a host: messages received and lost in this session, modulo 2³².
    Report {
        /// Messages received.
        received: u32,
        /// Messages in bundles that were lost.
        lost: u32,
    },
    /// The sender closes.
    Bye,
}

/// Changes of a host's interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeChanges<'a> {
    /// The number of the first change in the session, from 0 on.
    pub first_change: u32,
    ranges: &'a [u8],
}

impl<'a> RangeChanges<'a> {
    /// Creates changes from 1 to 255 ranges encoded by [`RangeChanges::encode`].
    pub fn new(first_change: u32, ranges: &'a [u8]) -> RangeChanges<'a> {
        debug_assert!(
            ranges.len().is_multiple_of(RANGE) && (1..=MAX_ITEM_RANGES).contains(&(ranges.len() / RANGE))
        );
        RangeChanges { first_change, ranges }
    }

    /// Encodes a range: first and last address.
    pub fn encode(first: u32, last: u32) -> [u8; RANGE] {
        (u64::from(first) << 32 | u64::from(last)).to_be_bytes()
    }

    /// Returns first and last address of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.ranges.as_chunks::<RANGE>().0.iter().map(|range| (u32_at(range, 0), u32_at(range, 4)))
    }
}

impl<'a> Control<'a> {
    /// Returns the octets of the item.
    pub fn octets(&self) -> usize {
        match self {
            Control::Join(changes) | Control::Drop(changes) => RANGES_HEADER + changes.ranges.len(),
            Control::Assign { packets, .. } => SHORT_ITEM + packets.len(),
            Control::Ack { .. } | Control::Report { .. } => LONG_ITEM,
            _ => SHORT_ITEM,
        }
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let end = into.len() + self.octets();
        let count = |changes: &RangeChanges<'_>| (changes.ranges.len() / RANGE) as u8;
        let (kind, argument, number, rest): (u8, u8, u32, &[u8]) = match self {
            Control::Join(changes) => (1, count(changes), changes.first_change, changes.ranges),
            Control::Drop(changes) => (2, count(changes), changes.first_change, changes.ranges),
            Control::Confirmed(count) => (3, 0, *count, &[]),
            Control::Assign { version, packets } => (4, 0, *version, *packets),
            Control::Assigned(version) => (5, 0, *version, &[]),
            Control::Ack { next, beyond } => (6, 0, u32::from(*next) << 16, &beyond.to_be_bytes()),
            Control::Level { level, rate } => (7, *level, *rate, &[]),
            Control::Saturation(messages) => (8, 0, *messages, &[]),
            Control::Report { received, lost } => (9, 0, *received, &lost.to_be_bytes()),
            Control::Bye => (10, 0, 0, &[]),
        };
        into.extend_from_slice(&[kind, argument]);
        into.extend_from_slice(&(self.octets() as u16).to_be_bytes());
        into.extend_from_slice(&number.to_be_bytes());
        into.extend_from_slice(rest);
        into.resize(end, 0);
    }

    /// Decodes an item that fills all of `item`.
    fn read(item: &'a [u8]) -> Option<Control<'a>> {
        let (argument, number) = (item[1], u32_at(item, 4));
        let control = match (item[0], item.len()) {
            (kind @ 1..=2, octets)
                if argument > 0 && octets == RANGES_HEADER + RANGE * usize::from(argument) =>
            {
                let changes = RangeChanges { first_change: number, ranges: &item[RANGES_HEADER..] };
                if changes.ranges().any(|(first, last)| first > last) {
                    return None;
                }
                return Some(if kind == 1 { Control::Join(changes) } else { Control::Drop(changes) });
            }
            (7, SHORT_ITEM) if (MIN_LEVEL..=MAX_LEVEL).contains(&argument) => {
                return Some(Control::Level { level: argument, rate: number });
            }
            (3, SHORT_ITEM) => Control::Confirmed(number),
            (4, _) => Control::Assign { version: number, packets: item[SHORT_ITEM..].try_into().ok()? },
            (5, SHORT_ITEM) => Control::Assigned(number),
            (6, LONG_ITEM) if item[6..8] == [0; 2] => {
                let beyond = u64::from(u32_at(item, 8)) << 32 | u64::from(u32_at(item, 12));
                Control::Ack { next: u16_at(item, 4), beyond }
            }
            (8, SHORT_ITEM) => Control::Saturation(number),
            (9, LONG_ITEM) if item[12..] == [0; 4] => {
                Control::Report { received: number, lost: u32_at(item, 8) }
            }
            (10, SHORT_ITEM) if number == 0 => Control::Bye,
            _ => return None,
        };
        (argument == 0).then_some(control)
    }
}

/// Iterates over control items. An invalid item is `None` and ends the iteration.
pub(super) fn items(octets: &[u8]) -> impl Iterator<Item = Option<Control<'_>>> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let split = split_item(rest);
        rest = split.map_or(&[], |(_, after)| after);
        Some(split.map(|(control, _)| control))
    })
}

/// Splits the first item from `octets`.
fn split_item(octets: &[u8]) -> Option<(Control<'_>, &[u8])> {
    let length = usize::from(u16_at(octets.first_chunk::<SHORT_ITEM>()?, 2));
    if length < SHORT_ITEM || !length.is_multiple_of(SHORT_ITEM) {
        return None;
    }
    let (item, rest) = octets.split_at_checked(length)?;
    Some((Control::read(item)?, rest))
}

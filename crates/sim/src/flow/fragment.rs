//! Messages longer than a packet: fragments of IPv4 (RFC 791) and how they come together again.

use std::collections::VecDeque;

use super::IP;
use crate::frame::Datagram;

/// Messages that may be waiting for fragments; the oldest gives way.
const MOST: usize = 64;

/// Cuts datagrams into packets of at most `mtu` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cutter {
    mtu: u32,
    /// Bytes of UDP that a fragment carries: a multiple of eight.
    piece: u32,
}

impl Cutter {
    /// For packets of at most `mtu` bytes, 68 or more.
    pub fn new(mtu: u32) -> Self {
        Cutter { mtu, piece: (mtu - IP) & !7 }
    }

    /// How many packets carry a UDP datagram of `udp` bytes, its header included.
    #[inline]
    pub fn count(&self, udp: u32) -> u16 {
        if udp + IP <= self.mtu { 1 } else { udp.div_ceil(self.piece) as u16 }
    }

    /// Bytes of IP of fragment `index` of `count`.
    #[inline]
    pub fn length(&self, udp: u32, index: u16, count: u16) -> u32 {
        let index = u32::from(index);
        if index + 1 < u32::from(count) { IP + self.piece } else { IP + udp - index * self.piece }
    }
}

/// Puts fragments together.
#[derive(Clone, Debug, Default)]
pub struct Gatherer {
    waiting: VecDeque<Partial>,
    /// Messages given up for want of a fragment.
    pub given_up: u64,
}

#[derive(Clone, Debug)]
struct Partial {
    sequence: u64,
    missing: u16,
    seen: Vec<u64>,
}

impl Gatherer {
    /// Takes a fragment; whether its message is complete with it.
    #[inline]
    pub fn take(&mut self, d: &Datagram) -> bool {
        d.fragments <= 1 || self.gather(d)
    }

    #[inline(never)]
    fn gather(&mut self, d: &Datagram) -> bool {
        // Nearly always the newest.
        let found = self.waiting.iter().rposition(|p| p.sequence == d.sequence);
        let at = found.unwrap_or_else(|| {
            if self.waiting.len() == MOST {
                self.waiting.pop_front();
                self.given_up += 1;
            }
            let seen = vec![0; usize::from(d.fragments).div_ceil(64)];
            self.waiting.push_back(Partial { sequence: d.sequence, missing: d.fragments, seen });
            self.waiting.len() - 1
        });
        let partial = &mut self.waiting[at];
        let (word, bit) = (usize::from(d.fragment / 64), 1u64 << (d.fragment % 64));
        let new = partial.seen[word] & bit == 0;
        partial.seen[word] |= bit;
        partial.missing -= u16::from(new);
        let complete = partial.missing == 0;
        if complete {
            self.waiting.remove(at);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_run::message::Kind;
    use trunkline_units::Instant;

    use super::*;

    proptest! {
        #[test]
        fn fragments_hold_the_datagram_and_fit(udp in 40u32..65_515, mtu in 68u32..20_000) {
            let cutter = Cutter::new(mtu);
            let count = cutter.count(udp);
            let lengths: Vec<u32> = (0..count).map(|i| cutter.length(udp, i, count)).collect();
            prop_assert!(lengths.iter().all(|l| *l > IP && *l <= mtu));
            prop_assert_eq!(lengths.iter().map(|l| l - IP).sum::<u32>(), udp);
            // All but the last are cut where RFC 791 allows it.
            prop_assert!(lengths.iter().rev().skip(1).all(|l| (l - IP).is_multiple_of(8)));
        }

        #[test]
        fn a_message_is_complete_once(order in Just((0u16..30).collect::<Vec<_>>()).prop_shuffle(), twice in 0u16..30) {
            let mut gatherer = Gatherer::default();
            let datagram = |fragment| Datagram {
                sequence: 7, sent: Instant::ZERO, size: 1, response: 0, fragment, fragments: 30, kind: Kind::Pattern,
            };
            let mut complete = 0;
            for f in order {
                complete += u32::from(gatherer.take(&datagram(f)));
                if f == twice && complete == 0 {
                    complete += u32::from(gatherer.take(&datagram(f)));
                }
            }
            prop_assert_eq!(complete, 1);
            prop_assert!(gatherer.waiting.is_empty());
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut gatherer = Gatherer::default();
        for sequence in 0..1000 {
            let kind = Kind::Pattern;
            let d = Datagram {
                sequence,
                sent: Instant::ZERO,
                size: 1,
                response: 0,
                fragment: 0,
                fragments: 2,
                kind,
            };
            assert!(!gatherer.take(&d));
        }
        assert_eq!((gatherer.waiting.len(), gatherer.given_up), (MOST, 1000 - MOST as u64));
    }
}

//! Fragmentation and reassembly of IPv4 datagrams (RFC 791 section 3.2).

use std::collections::VecDeque;

use super::IP_HEADER;

/// Maximum number of incomplete datagrams; the oldest is dropped.
const MAX_PARTIAL: usize = 64;

/// Computes the fragments of datagrams for packets of at most `mtu` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fragmenter {
    mtu: u32,
    /// Payload bytes of a fragment: a multiple of eight.
    fragment_payload: u32,
}

impl Fragmenter {
    /// Creates a fragmenter for an MTU of at least 68 bytes.
    pub fn new(mtu: u32) -> Self {
        Fragmenter { mtu, fragment_payload: (mtu - IP_HEADER) & !7 }
    }

    /// Returns the number of packets for a UDP datagram of `udp` bytes including its header.
    #[inline]
    pub fn count(&self, udp: u32) -> u16 {
        if udp + IP_HEADER <= self.mtu { 1 } else { udp.div_ceil(self.fragment_payload) as u16 }
    }

    /// Returns the IP packet length of fragment `index` of `count`.
    #[inline]
    pub fn length(&self, udp: u32, index: u16, count: u16) -> u32 {
        let index = u32::from(index);
        if index + 1 < u32::from(count) {
            IP_HEADER + self.fragment_payload
        } else {
            IP_HEADER + udp - index * self.fragment_payload
        }
    }
}

/// Reassembles fragments.
#[derive(Clone, Debug, Default)]
pub struct Reassembler {
    partial: VecDeque<PartialDatagram>,
    /// Number of incomplete datagrams that were dropped for newer ones. Those that remain at the end are not included.
    pub abandoned: u64,
}

#[derive(Clone, Debug)]
struct PartialDatagram {
    sequence: u64,
    missing: u16,
    received: Vec<u64>,
}

impl Reassembler {
    /// Accepts fragment `fragment` of `count` of the datagram with this sequence number. Returns whether the datagram is
    /// complete.
    #[inline]
    pub fn accept(&mut self, sequence: u64, fragment: u16, count: u16) -> bool {
        count <= 1 || self.accept_fragment(sequence, fragment, count)
    }

    #[inline(never)]
    fn accept_fragment(&mut self, sequence: u64, fragment: u16, count: u16) -> bool {
        // Search from the newest: it nearly always matches.
        let found = self.partial.iter().rposition(|p| p.sequence == sequence);
        let at = found.unwrap_or_else(|| {
            if self.partial.len() == MAX_PARTIAL {
                self.partial.pop_front();
                self.abandoned += 1;
            }
            let received = vec![0; usize::from(count).div_ceil(64)];
            self.partial.push_back(PartialDatagram { sequence, missing: count, received });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[at];
        let (word, bit) = (usize::from(fragment / 64), 1u64 << (fragment % 64));
        let is_new = partial.received[word] & bit == 0;
        partial.received[word] |= bit;
        partial.missing -= u16::from(is_new);
        let complete = partial.missing == 0;
        if complete {
            self.partial.remove(at);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fragments_cover_the_datagram_and_fit_the_mtu(udp in 40u32..65_515, mtu in 68u32..20_000) {
            let fragmenter = Fragmenter::new(mtu);
            let count = fragmenter.count(udp);
            let lengths: Vec<u32> = (0..count).map(|i| fragmenter.length(udp, i, count)).collect();
            prop_assert!(lengths.iter().all(|l| *l > IP_HEADER && *l <= mtu));
            prop_assert_eq!(lengths.iter().map(|l| l - IP_HEADER).sum::<u32>(), udp);
            // All but the last have a length that RFC 791 allows.
            prop_assert!(lengths.iter().rev().skip(1).all(|l| (l - IP_HEADER).is_multiple_of(8)));
        }

        #[test]
        fn a_datagram_is_complete_once(order in Just((0u16..30).collect::<Vec<_>>()).prop_shuffle(), twice in 0u16..30) {
            let mut reassembler = Reassembler::default();
            let mut complete = 0;
            for f in order {
                complete += u32::from(reassembler.accept(7, f, 30));
                if f == twice && complete == 0 {
                    complete += u32::from(reassembler.accept(7, f, 30));
                }
            }
            prop_assert_eq!(complete, 1);
            prop_assert!(reassembler.partial.is_empty());
        }
    }

    #[test]
    fn incomplete_datagrams_are_bounded() {
        let mut reassembler = Reassembler::default();
        for sequence in 0..1000 {
            assert!(!reassembler.accept(sequence, 0, 2));
        }
        assert_eq!(
            (reassembler.partial.len(), reassembler.abandoned),
            (MAX_PARTIAL, 1000 - MAX_PARTIAL as u64)
        );
    }
}

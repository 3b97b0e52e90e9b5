//! Groups that the system would not join, and when it is asked again.

use trunkline_units::{Instant, Span};

use crate::packets::Packets;

/// It is asked again after so long; then after twice as long each time, up to [`LONGEST`].
pub const FIRST: Span = Span::from_ms(100);
/// The longest time between two tries.
pub const LONGEST: Span = Span::from_s(10);

/// Packet addresses whose groups are to be joined and are not: 2,048 at the most.
#[derive(Debug)]
pub(super) struct Rejoin {
    packets: Packets,
    wait: Span,
    due: Option<Instant>,
}

impl Default for Rejoin {
    fn default() -> Rejoin {
        Rejoin { packets: Packets::NONE, wait: FIRST, due: None }
    }
}

impl Rejoin {
    /// The group of this one was not joined.
    pub fn failed(&mut self, now: Instant, packet: u16) {
        self.packets.set(packet, true);
        self.due = self.due.or(Some(now + self.wait));
    }

    /// It is not to be joined any more.
    pub fn forget(&mut self, packet: u16) {
        self.packets.set(packet, false);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.packets.count()
    }

    /// When they are tried again.
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Tries all of them, if that is due; `join` says whether a group is joined.
    pub fn again(&mut self, now: Instant, mut join: impl FnMut(u16) -> bool) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for packet in self.packets.iter() {
            self.packets.set(packet, !join(packet));
        }
        let is_over = self.packets == Packets::NONE;
        self.wait = if is_over { FIRST } else { (self.wait * 2).min(LONGEST) };
        self.due = (!is_over).then(|| now + self.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_slower_and_slower_until_it_is_joined_or_not_wanted() {
        let mut rejoin = Rejoin::default();
        let mut now = Instant::ZERO + Span::from_s(1);
        assert_eq!(rejoin.deadline(), None);
        [3, 700, 9].into_iter().for_each(|packet| rejoin.failed(now, packet));
        rejoin.forget(9);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let due = rejoin.deadline().unwrap();
            waits.push(due.since(now).as_ns() / 1_000_000);
            let mut tried = Vec::new();
            rejoin.again(now, |_| panic!("it is not due"));
            now = due;
            rejoin.again(now, |packet| {
                tried.push(packet);
                false
            });
            assert_eq!(tried, [3, 700]);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        now = rejoin.deadline().unwrap();
        rejoin.again(now, |packet| packet == 3);
        assert_eq!((rejoin.len(), rejoin.deadline()), (1, Some(now + LONGEST)));
        now = rejoin.deadline().unwrap();
        rejoin.again(now, |_| true);
        assert_eq!((rejoin.len(), rejoin.deadline()), (0, None));
        rejoin.failed(now, 5);
        assert_eq!(rejoin.deadline(), Some(now + FIRST), "as at first");
    }
}

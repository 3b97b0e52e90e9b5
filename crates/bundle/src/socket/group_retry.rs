//! Multicast groups that the operating system refused to join, and when to retry.

use trunkline_units::{Instant, Span};

use crate::packet_set::PacketSet;

/// The delay of the first retry. It doubles with each further one, up to [`MAX_DELAY`].
pub const INITIAL_DELAY: Span = Span::from_ms(100);
/// The longest delay between two retries.
pub const MAX_DELAY: Span = Span::from_s(10);

/// Packet addresses whose groups could not be joined.
#[derive(Debug)]
pub(super) struct GroupRetry {
    packets: PacketSet,
    wait: Span,
    due: Option<Instant>,
}

impl Default for GroupRetry {
    fn default() -> GroupRetry {
        GroupRetry { packets: PacketSet::NONE, wait: INITIAL_DELAY, due: None }
    }
}

impl GroupRetry {
    /// Adds a packet address whose group could not be joined.
    pub fn add(&mut self, now: Instant, packet: u16) {
        self.packets.set(packet, true);
        self.due = self.due.or(Some(now + self.wait));
    }

    /// Removes a packet address.
    pub fn remove(&mut self, packet: u16) {
        self.packets.set(packet, false);
    }

    /// Returns the number of packet addresses.
    pub fn len(&self) -> usize {
        self.packets.count()
    }

    /// Returns when the next retry is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Retries all groups if that is due. `join` returns whether a group was joined.
    pub fn retry(&mut self, now: Instant, mut join: impl FnMut(u16) -> bool) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for packet in self.packets.iter() {
            self.packets.set(packet, !join(packet));
        }
        let is_empty = self.packets == PacketSet::NONE;
        self.wait = if is_empty { INITIAL_DELAY } else { (self.wait * 2).min(MAX_DELAY) };
        self.due = (!is_empty).then(|| now + self.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_joins_are_retried_with_backoff() {
        let mut rejoin = GroupRetry::default();
        let mut now = Instant::ZERO + Span::from_s(1);
        assert_eq!(rejoin.deadline(), None);
        [3, 700, 9].into_iter().for_each(|packet| rejoin.add(now, packet));
        rejoin.remove(9);
        let mut delays = Vec::new();
        for _ in 0..9 {
            let due = rejoin.deadline().unwrap();
            delays.push(due.since(now).as_ns() / 1_000_000);
            let mut tried = Vec::new();
            rejoin.retry(now, |_| panic!("no retry is due"));
            now = due;
            rejoin.retry(now, |packet| {
                tried.push(packet);
                false
            });
            assert_eq!(tried, [3, 700]);
        }
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        now = rejoin.deadline().unwrap();
        rejoin.retry(now, |packet| packet == 3);
        assert_eq!((rejoin.len(), rejoin.deadline()), (1, Some(now + MAX_DELAY)));
        now = rejoin.deadline().unwrap();
        rejoin.retry(now, |_| true);
        assert_eq!((rejoin.len(), rejoin.deadline()), (0, None));
        rejoin.add(now, 5);
        assert_eq!(rejoin.deadline(), Some(now + INITIAL_DELAY), "the delay starts over");
    }
}

//! Acknowledged messages between a host and the central converter, in one session.
//!
//! Sequence numbers are modulo 2¹⁶. At most [`SEND_WINDOW`] messages are in flight, so that old and new numbers are
//! distinguishable. An acknowledgement covers all messages before a number and, as a bitmap, others within the window
//! (selective repeat, as SACK in RFC 2018).

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// The largest number of messages in flight.
pub const SEND_WINDOW: usize = 64;
/// The largest number of messages queued or in flight.
pub const MAX_QUEUED: usize = 1_024;
/// The first retransmission timeout. It doubles with each retransmission, up to [`MAX_RTO`].
pub const INITIAL_RTO: Span = Span::from_ms(30);
/// The longest retransmission timeout.
pub const MAX_RTO: Span = Span::from_ms(240);
/// The time after which a message is retransmitted if later ones are acknowledged.
const REORDERING_DELAY: Span = Span::from_ms(2);

/// The sender, with at most [`MAX_QUEUED`] messages.
#[derive(Debug)]
pub struct ReliableSender<T> {
    /// The first message has number `first`.
    queue: VecDeque<QueuedItem<T>>,
    first: u16,
    retransmissions: u64,
}

#[derive(Debug)]
struct QueuedItem<T> {
    message: T,
    /// When it is sent for the first time or again.
    due: Instant,
    sent: Option<Instant>,
    tries: u32,
    acknowledged: bool,
}

impl<T> Default for ReliableSender<T> {
    fn default() -> ReliableSender<T> {
        ReliableSender { queue: VecDeque::new(), first: 0, retransmissions: 0 }
    }
}

impl<T> ReliableSender<T> {
    /// Returns the number of messages queued or in flight.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of retransmissions.
    pub fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Queues a message to be sent at `due`; returns whether there was room.
    pub fn push(&mut self, message: T, due: Instant) -> bool {
        let has_room = self.queue.len() < MAX_QUEUED;
        if has_room {
            self.queue.push_back(QueuedItem { message, due, sent: None, tries: 0, acknowledged: false });
        }
        has_room
    }

    /// Returns when the next message is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.window().map(|(_, item)| item.due).min()
    }

    fn window(&self) -> impl Iterator<Item = (u16, &QueuedItem<T>)> {
        let numbered = self.queue.iter().take(SEND_WINDOW).zip(0u16..);
        numbered.filter(|(item, _)| !item.acknowledged).map(|(item, at)| (self.first.wrapping_add(at), item))
    }

    /// Passes the due messages in order to `leave`, with the number and whether it is the first transmission, until
    /// it returns false.
    pub fn send(&mut self, now: Instant, mut leave: impl FnMut(u16, &T, bool) -> bool) {
        for (item, at) in self.queue.iter_mut().take(SEND_WINDOW).zip(0u16..) {
            if item.acknowledged || item.due > now {
                continue;
            }
            if !leave(self.first.wrapping_add(at), &item.message, item.sent.is_none()) {
                return;
            }
            self.retransmissions += u64::from(item.sent.is_some());
            item.due = now + (INITIAL_RTO * (1 << item.tries.min(8))).min(MAX_RTO);
            item.sent = Some(now);
            item.tries += 1;
        }
    }

    /// Handles an acknowledgement: all before `next`, and bit n of `beyond` for `next` + 1 + n.
    pub fn acknowledge(&mut self, next: u16, beyond: u64) {
        let acknowledged = usize::from(next.wrapping_sub(self.first));
        // In this session.
        let sent = |item: &QueuedItem<T>| item.tries > 0;
        if acknowledged > SEND_WINDOW
            || !self.queue.iter().take(acknowledged).all(sent)
            || acknowledged > self.queue.len()
        {
            // It is outdated or covers messages that were never sent.
            return;
        }
        self.queue.drain(..acknowledged);
        self.first = next;
        let Some(last) = beyond.checked_ilog2() else { return };
        for (item, at) in self.queue.iter_mut().take(last as usize + 2).zip(0u32..) {
            let Some(sent) = item.sent.filter(|_| item.tries > 0) else { return };
            match at.checked_sub(1).is_some_and(|bit| beyond >> bit & 1 == 1) {
                true => item.acknowledged = true,
                false if item.tries == 1 => item.due = item.due.min(sent + REORDERING_DELAY),
                false => {}
            }
        }
    }

    /// Starts a new session: all messages are sent again at once, numbered from 0. Messages that the last receiver
    /// buffered out of order were never delivered.
    pub fn restart(&mut self, now: Instant) {
        self.first = 0;
        for item in &mut self.queue {
            (item.due, item.tries, item.acknowledged) = (item.due.min(now), 0, false);
        }
    }
}

/// The receiver, with at most [`SEND_WINDOW`] buffered messages.
#[derive(Debug)]
pub struct ReliableReceiver<T> {
    next: u16,
    acknowledged: u16,
    /// The first message has number `next`.
    buffered: VecDeque<Option<T>>,
}

impl<T> Default for ReliableReceiver<T> {
    fn default() -> ReliableReceiver<T> {
        ReliableReceiver { next: 0, acknowledged: 0, buffered: VecDeque::new() }
    }
}

impl<T> ReliableReceiver<T> {
    /// Handles a message. [`ReliableReceiver::next`] then returns the messages that are in order.
    pub fn receive(&mut self, number: u16, message: impl FnOnce() -> T) {
        let at = usize::from(number.wrapping_sub(self.next));
        if at >= SEND_WINDOW {
            return;
        }
        if self.buffered.len() <= at {
            self.buffered.resize_with(at + 1, || None);
        }
        self.buffered[at].get_or_insert_with(message);
    }

    /// Returns the next message in order without removing it.
    pub fn peek(&self) -> Option<&T> {
        self.buffered.front()?.as_ref()
    }

    /// Returns the next message in order, if it has arrived.
    #[allow(clippy::should_implement_trait, reason = "more may come after none")]
    pub fn next(&mut self) -> Option<T> {
        let message = self.buffered.front_mut()?.take()?;
        self.buffered.pop_front();
        self.next = self.next.wrapping_add(1);
        Some(message)
    }

    /// Returns the number of messages delivered since the last acknowledgement.
    pub fn unacknowledged(&self) -> u16 {
        self.next.wrapping_sub(self.acknowledged)
    }

    /// Returns the number of messages that wait for earlier ones.
    pub fn out_of_order(&self) -> usize {
        self.buffered.iter().flatten().count()
    }

    /// Returns the acknowledgement to send: the next expected number, and bit n for that number + 1 + n.
    pub fn acknowledgement(&mut self) -> (u16, u64) {
        self.acknowledged = self.next;
        let buffered = self.buffered.iter().skip(1).zip(0u32..);
        (self.next, buffered.fold(0, |bits, (held, n)| bits | u64::from(held.is_some()) << n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::{Seed, Stream};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// Transfers messages over a link that loses, duplicates and reorders in both directions.
    fn carry(seed: u64, loss: f64, count: u32) {
        let mut draw: Stream = Seed(seed).stream("reliable");
        let (mut sender, mut receiver) = (ReliableSender::default(), ReliableReceiver::default());
        let (mut offered, mut received) = (0, Vec::new());
        let mut in_flight: Vec<(Instant, u16, u32)> = Vec::new();
        for ms in 0..100_000 {
            while offered < count && sender.push(offered, at(ms)) {
                offered += 1;
            }
            sender.send(at(ms), |number, message, _| {
                if draw.chance(0.1) {
                    return false;
                }
                for _ in 0..1 + u64::from(draw.chance(0.1)) {
                    if !draw.chance(loss) {
                        let jitter = if loss > 0.0 { draw.below(8) } else { 0 };
                        in_flight.push((at(ms + jitter), number, *message));
                    }
                }
                true
            });
            in_flight.retain(|(arrives, number, message)| {
                let arrives = *arrives <= at(ms);
                if arrives {
                    receiver.receive(*number, || *message);
                    received.extend(std::iter::from_fn(|| receiver.next()));
                }
                !arrives
            });
            assert!(receiver.out_of_order() < SEND_WINDOW);
            if !draw.chance(loss) {
                let (next, beyond) = receiver.acknowledgement();
                sender.acknowledge(next, beyond);
            }
            if received.len() == count as usize && sender.is_empty() {
                break;
            }
        }
        assert_eq!(received, (0..count).collect::<Vec<_>>(), "seed {seed}, loss {loss}");
        assert!(sender.is_empty() && receiver.out_of_order() == 0);
        assert_eq!(sender.retransmissions() > 0, loss > 0.0);
    }

    #[test]
    fn messages_arrive_once_and_in_order() {
        for (seed, loss) in [0.0, 0.01, 0.2, 0.5].into_iter().enumerate() {
            carry(seed as u64, loss, 3_000);
        }
        // Past the wrap of the sequence numbers.
        carry(9, 0.0, 70_000);
    }

    #[test]
    fn the_queue_is_bounded_and_retransmissions_back_off() {
        let mut sender = ReliableSender::default();
        let taken = (0..2_000).take_while(|n| sender.push(*n, at(0))).count();
        assert_eq!(taken, MAX_QUEUED);
        let mut sent = Vec::new();
        sender.send(at(0), |number, _, _| {
            sent.push(number);
            true
        });
        assert_eq!(sent, (0..SEND_WINDOW as u16).collect::<Vec<_>>());
        let mut waits = Vec::new();
        let mut before = at(0);
        for _ in 0..7 {
            let due = sender.deadline().unwrap();
            waits.push(due.since(before).as_ps() / 1_000_000_000);
            sender.send(due, |_, _, _| true);
            before = due;
        }
        assert_eq!(waits, [30, 60, 120, 240, 240, 240, 240]);
        // Invalid acknowledgements.
        sender.acknowledge(65, 0);
        sender.acknowledge(40_000, u64::MAX);
        assert_eq!(sender.len(), MAX_QUEUED);
        sender.acknowledge(64, u64::MAX);
        assert_eq!(sender.len(), MAX_QUEUED - 64);
    }

    #[test]
    fn a_new_session_resends_unacknowledged_messages() {
        let mut sender = ReliableSender::default();
        (0..5).for_each(|n| assert!(sender.push(n, at(0))));
        sender.send(at(0), |_, _, _| true);
        sender.acknowledge(1, 0b10);
        sender.restart(at(3));
        let mut sent = Vec::new();
        sender.send(at(3), |number, message, _| {
            sent.push((number, *message));
            true
        });
        assert_eq!(sent, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    }
}

//! Messages that are acknowledged, and repeated until they are: between a host and the central converter, in one session.
//!
//! Numbers count modulo 2¹⁶, and [`UNDER_WAY`] messages at the most are under way, so an old number is known from a new one.
//! An acknowledgement names all before one number, and the others up to the window's end.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// Messages sent and not acknowledged, at the most.
pub const UNDER_WAY: usize = 64;
/// Messages that wait or are under way, at the most.
pub const WAITING: usize = 1_024;
/// After what time a message is repeated first; then after twice as long, up to [`LONGEST`].
pub const FIRST: Span = Span::from_ms(30);
/// The longest time between two tries.
pub const LONGEST: Span = Span::from_ms(240);
/// How long after it was sent a message is repeated if later ones are acknowledged.
const OVERTAKEN: Span = Span::from_ms(2);

/// Who sends them. Room: [`WAITING`] messages.
#[derive(Debug)]
pub struct Sender<T> {
    /// The first has number `first`.
    queue: VecDeque<Item<T>>,
    first: u16,
    repeated: u64,
}

#[derive(Debug)]
struct Item<T> {
    message: T,
    /// When it is to leave, first or again.
    due: Instant,
    sent: Option<Instant>,
    tries: u32,
    acknowledged: bool,
}

impl<T> Default for Sender<T> {
    fn default() -> Sender<T> {
        Sender { queue: VecDeque::new(), first: 0, repeated: 0 }
    }
}

impl<T> Sender<T> {
    /// Messages that wait or are under way.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Times that a message was sent again.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Takes a message that is to leave at `due`; whether there was room.
    pub fn push(&mut self, message: T, due: Instant) -> bool {
        let room = self.queue.len() < WAITING;
        if room {
            self.queue.push_back(Item { message, due, sent: None, tries: 0, acknowledged: false });
        }
        room
    }

    /// When the next is to leave.
    pub fn deadline(&self) -> Option<Instant> {
        self.window().map(|(_, item)| item.due).min()
    }

    fn window(&self) -> impl Iterator<Item = (u16, &Item<T>)> {
        let numbered = self.queue.iter().take(UNDER_WAY).zip(0u16..);
        numbered.filter(|(item, _)| !item.acknowledged).map(|(item, at)| (self.first.wrapping_add(at), item))
    }

    /// Has those that are to leave by now leave in their order, as long as `leave` takes them: by its number, and whether it
    /// leaves for the first time.
    pub fn send(&mut self, now: Instant, mut leave: impl FnMut(u16, &T, bool) -> bool) {
        for (item, at) in self.queue.iter_mut().take(UNDER_WAY).zip(0u16..) {
            if item.acknowledged || item.due > now {
                continue;
            }
            if !leave(self.first.wrapping_add(at), &item.message, item.sent.is_none()) {
                return;
            }
            self.repeated += u64::from(item.sent.is_some());
            item.due = now + (FIRST * (1 << item.tries.min(8))).min(LONGEST);
            item.sent = Some(now);
            item.tries += 1;
        }
    }

    /// All before `next` are there, and the others whose bit is set.
    pub fn acknowledge(&mut self, next: u16, beyond: u64) {
        let there = usize::from(next.wrapping_sub(self.first));
        // In this session.
        let sent = |item: &Item<T>| item.tries > 0;
        if there > UNDER_WAY || !self.queue.iter().take(there).all(sent) || there > self.queue.len() {
            // Older than one that came, or of messages that were never sent.
            return;
        }
        self.queue.drain(..there);
        self.first = next;
        let Some(last) = beyond.checked_ilog2() else { return };
        for (item, at) in self.queue.iter_mut().take(last as usize + 2).zip(0u32..) {
            let Some(sent) = item.sent.filter(|_| item.tries > 0) else { return };
            match at.checked_sub(1).is_some_and(|bit| beyond >> bit & 1 == 1) {
                true => item.acknowledged = true,
                false if item.tries == 1 => item.due = item.due.min(sent + OVERTAKEN),
                false => {}
            }
        }
    }

    /// A new session: all leave anew, numbered from 0, at once. What the receiver of the last one held for want of one before
    /// it was never given on.
    pub fn restart(&mut self, now: Instant) {
        self.first = 0;
        for item in &mut self.queue {
            (item.due, item.tries, item.acknowledged) = (item.due.min(now), 0, false);
        }
    }
}

/// Who gets them. Room: [`UNDER_WAY`] messages.
#[derive(Debug)]
pub struct Receiver<T> {
    next: u16,
    told: u16,
    /// The first has number `next`, and may be here only until it is given on.
    held: VecDeque<Option<T>>,
}

impl<T> Default for Receiver<T> {
    fn default() -> Receiver<T> {
        Receiver { next: 0, told: 0, held: VecDeque::new() }
    }
}

impl<T> Receiver<T> {
    /// A message came; whether it is new. [`Receiver::next`] then gives those whose turn it is.
    pub fn take(&mut self, number: u16, message: impl FnOnce() -> T) -> bool {
        let at = usize::from(number.wrapping_sub(self.next));
        if at >= UNDER_WAY {
            return false;
        }
        if self.held.len() <= at {
            self.held.resize_with(at + 1, || None);
        }
        let new = self.held[at].is_none();
        if new {
            self.held[at] = Some(message());
        }
        new
    }

    /// The same, still held.
    pub fn peek(&self) -> Option<&T> {
        self.held.front()?.as_ref()
    }

    /// The next in order, if it is here.
    #[allow(clippy::should_implement_trait, reason = "more may come after none")]
    pub fn next(&mut self) -> Option<T> {
        let message = self.held.front_mut()?.take()?;
        self.held.pop_front();
        self.next = self.next.wrapping_add(1);
        Some(message)
    }

    /// Messages given on since the last acknowledgement was asked for.
    pub fn unacknowledged(&self) -> u16 {
        self.next.wrapping_sub(self.told)
    }

    /// Messages that wait for others before them.
    pub fn held(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// What is acknowledged: all before a number, and which beyond it (bit n: that plus 1 plus n).
    pub fn acknowledgement(&mut self) -> (u16, u64) {
        self.told = self.next;
        let here = self.held.iter().skip(1).zip(0u32..);
        (self.next, here.fold(0, |bits, (held, n)| bits | u64::from(held.is_some()) << n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::{Seed, Stream};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// Over a path that loses, doubles and mixes up, in both directions: all arrive, once, in order.
    fn carry(seed: u64, loss: f64, count: u32) {
        let mut draw: Stream = Seed(seed).stream("reliable");
        let (mut sender, mut receiver) = (Sender::default(), Receiver::default());
        let (mut given, mut got) = (0, Vec::new());
        let mut flying: Vec<(Instant, u16, u32)> = Vec::new();
        for ms in 0..100_000 {
            while given < count && sender.push(given, at(ms)) {
                given += 1;
            }
            sender.send(at(ms), |number, message, _| {
                if draw.chance(0.1) {
                    return false;
                }
                for _ in 0..1 + u64::from(draw.chance(0.1)) {
                    if !draw.chance(loss) {
                        let jitter = if loss > 0.0 { draw.below(8) } else { 0 };
                        flying.push((at(ms + jitter), number, *message));
                    }
                }
                true
            });
            flying.retain(|(lands, number, message)| {
                let lands = *lands <= at(ms);
                if lands {
                    receiver.take(*number, || *message);
                    got.extend(std::iter::from_fn(|| receiver.next()));
                }
                !lands
            });
            assert!(receiver.held() < UNDER_WAY);
            if !draw.chance(loss) {
                let (next, beyond) = receiver.acknowledgement();
                sender.acknowledge(next, beyond);
            }
            if got.len() == count as usize && sender.is_empty() {
                break;
            }
        }
        assert_eq!(got, (0..count).collect::<Vec<_>>(), "seed {seed}, loss {loss}");
        assert!(sender.is_empty() && receiver.held() == 0);
        assert_eq!(sender.repeated() > 0, loss > 0.0);
    }

    #[test]
    fn all_arrive_once_in_order() {
        for (seed, loss) in [0.0, 0.01, 0.2, 0.5].into_iter().enumerate() {
            carry(seed as u64, loss, 3_000);
        }
        // Past the end of the numbers.
        carry(9, 0.0, 70_000);
    }

    #[test]
    fn it_has_bounds_and_repeats_slower_and_slower() {
        let mut sender = Sender::default();
        let taken = (0..2_000).take_while(|n| sender.push(*n, at(0))).count();
        assert_eq!(taken, WAITING);
        let mut sent = Vec::new();
        sender.send(at(0), |number, _, _| {
            sent.push(number);
            true
        });
        assert_eq!(sent, (0..UNDER_WAY as u16).collect::<Vec<_>>());
        let mut waits = Vec::new();
        let mut before = at(0);
        for _ in 0..7 {
            let due = sender.deadline().unwrap();
            waits.push(due.since(before).as_ps() / 1_000_000_000);
            sender.send(due, |_, _, _| true);
            before = due;
        }
        assert_eq!(waits, [30, 60, 120, 240, 240, 240, 240]);
        // Nonsense.
        sender.acknowledge(65, 0);
        sender.acknowledge(40_000, u64::MAX);
        assert_eq!(sender.len(), WAITING);
        sender.acknowledge(64, u64::MAX);
        assert_eq!(sender.len(), WAITING - 64);
    }

    #[test]
    fn a_new_session_begins_with_what_was_not_given_on() {
        let mut sender = Sender::default();
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

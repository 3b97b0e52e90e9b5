//! Soft-state refresh: repeats control messages in batches. Format 1 (classic) has no acknowledgements, and an
//! endpoint that restarts has lost its state.

use trunkline_units::{Instant, Span};

/// Items in one batch: 384 octets of joins, 6 % of the capacity of 10 Mb/s Ethernet in 5 ms.
pub const BATCH: usize = 16;
/// The time between two batches.
pub const BATCH_INTERVAL: Span = Span::from_ms(10);
/// The time from a refusal to the next refresh.
pub const AFTER_REFUSAL: Span = Span::from_ms(100);

/// A cyclic refresh of numbered items that the caller owns.
#[derive(Debug)]
pub struct Refresh {
    /// The time between the starts of two cycles; zero starts no cycle automatically.
    every: Span,
    /// The next item of the cycle, and the start of the cycle.
    position: usize,
    started_at: Instant,
    due: Option<Instant>,
}

impl Refresh {
    /// Creates a refresh with this interval; zero refreshes only on request.
    pub fn new(every: Span) -> Refresh {
        Refresh { every, position: 0, started_at: Instant::ZERO, due: None }
    }

    /// Schedules the first cycle after an item was sent.
    pub fn schedule(&mut self, now: Instant) {
        if self.due.is_none() && !self.every.is_zero() {
            self.due = Some(now + self.every);
        }
    }

    /// Schedules items to be sent soon, in the current cycle or a new one.
    pub fn schedule_now(&mut self, now: Instant) {
        self.due = Some(self.due.map_or(now, |due| due.min(now + BATCH_INTERVAL)));
    }

    /// Starts a new cycle at this time and abandons the current one.
    pub fn restart_at(&mut self, at: Instant) {
        (self.position, self.due) = (0, Some(at));
    }

    /// Returns when the next batch is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Sends a batch if it is due. `next` returns the first existing item at or after a number.
    pub fn send_due(
        &mut self,
        now: Instant,
        next: impl Fn(usize) -> Option<usize>,
        mut send: impl FnMut(usize),
    ) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        if self.position == 0 {
            self.started_at = now;
        }
        for _ in 0..BATCH {
            let Some(item) = next(self.position) else {
                // An empty cycle schedules no further one.
                let continues = self.position > 0 && !self.every.is_zero();
                self.due = continues.then(|| (self.started_at + self.every).max(now + BATCH_INTERVAL));
                self.position = 0;
                return;
            };
            send(item);
            self.position = item + 1;
        }
        self.due = Some(now + BATCH_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// Returns the times and items sent until `end`.
    fn sent(refresh: &mut Refresh, items: &[usize], end: u64) -> Vec<(u64, usize)> {
        let mut sent = Vec::new();
        while let Some(due) = refresh.deadline().filter(|due| *due < at(end)) {
            let ms = due.since(Instant::ZERO).as_ns() / 1_000_000;
            let next = |from| items.iter().copied().find(|item| *item >= from);
            refresh.send_due(due, next, |item| sent.push((ms, item)));
            assert!(refresh.deadline().is_none_or(|next| next > due));
        }
        sent
    }

    #[test]
    fn items_are_sent_in_cycles() {
        let mut refresh = Refresh::new(Span::from_s(1));
        assert_eq!(refresh.deadline(), None);
        refresh.schedule(at(0));
        refresh.schedule(at(500));
        assert_eq!(
            sent(&mut refresh, &[0, 7, 2_047], 2_500),
            [(1_000, 0), (1_000, 7), (1_000, 2_047), (2_000, 0), (2_000, 7), (2_000, 2_047)]
        );
        assert_eq!(sent(&mut refresh, &[], 9_000), [], "no items, no refresh");
        assert_eq!(refresh.deadline(), None);
    }

    #[test]
    fn a_long_cycle_delays_the_next_one() {
        let items: Vec<usize> = (0..200).collect();
        let mut refresh = Refresh::new(Span::from_ms(50));
        refresh.schedule(at(0));
        let sent = sent(&mut refresh, &items, 360);
        let (first, second) = sent.split_at(200);
        assert!(first.iter().map(|(_, item)| *item).eq(0..200));
        assert_eq!((first[0], first[16], first[199]), ((50, 0), (60, 16), (170, 199)));
        assert_eq!(second[0], (180, 0));
    }

    #[test]
    fn a_cycle_restarts_on_request() {
        let mut refresh = Refresh::new(Span::ZERO);
        refresh.schedule(at(0));
        assert_eq!(refresh.deadline(), None, "no automatic cycle");
        let items: Vec<usize> = (0..17).collect();
        refresh.restart_at(at(3));
        refresh.send_due(at(3), |from| items.get(from).copied(), |_| {});
        refresh.restart_at(at(5));
        assert_eq!(sent(&mut refresh, &items, 1_000).len(), 17);
        assert_eq!(refresh.deadline(), None);
    }
}

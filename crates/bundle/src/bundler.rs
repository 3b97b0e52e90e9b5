//! A queue of classic messages that are packed into bundles.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use crate::wire::classic::{ALL_HOSTS, ClassicBuilder, ClassicControl, Source};

/// The largest number of finished bundles that wait for their port.
pub const MAX_WAITING_BUNDLES: usize = 64;

/// When a bundle leaves that is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// On a free-running tick, as in 1997.
    Tick(Span),
    /// At the deadline of its most urgent message.
    Adaptive {
        /// The longest wait of an ordinary message.
        ordinary: Span,
        /// The longest wait of a priority message.
        priority: Span,
        /// If the last bundle left at least this long ago, the next message leaves at once. Low load adds no delay,
        /// and ordinary messages cause at most one bundle per gap. `None` always waits.
        gap: Option<Span>,
    },
}

impl Timing {
    /// A tick of 5 ms, as in 1997.
    pub const CLASSIC: Timing = Timing::Tick(Span::from_ms(5));
    /// The least processor time: each bundle waits 20 ms unless it has a priority message. A bundle costs one wake-up
    /// of its receiver. Messages of 1997 took 12 to 22 ms on average; IEEE 1278.2 allows 100 ms for DIS.
    pub const LEAST_PROCESSOR: Timing =
        Timing::Adaptive { ordinary: Span::from_ms(20), priority: Span::ZERO, gap: None };
    /// The least delay.
    pub const LEAST_DELAY: Timing =
        Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::ZERO, gap: Some(Span::from_us(500)) };

    /// Returns this timing with other deadlines for ordinary and priority messages, where given. Returns `None` if a
    /// tick, which has no deadlines, is given one.
    pub fn with_deadlines(
        self,
        ordinary_override: Option<Span>,
        priority_override: Option<Span>,
    ) -> Option<Timing> {
        match self {
            Timing::Tick(_) => (ordinary_override.is_none() && priority_override.is_none()).then_some(self),
            Timing::Adaptive { ordinary, priority, gap } => Some(Timing::Adaptive {
                ordinary: ordinary_override.unwrap_or(ordinary),
                priority: priority_override.unwrap_or(priority),
                gap,
            }),
        }
    }

    /// Returns when the bundle of a message that arrives now leaves, if the last bundle left at `last`.
    pub(crate) fn due(self, now: Instant, last: Option<Instant>, urgent: bool) -> Instant {
        match self {
            Timing::Tick(tick) => {
                let ticks = now.since(Instant::ZERO).as_ps() / tick.as_ps() + 1;
                Instant::ZERO + Span::from_ps(ticks * tick.as_ps())
            }
            Timing::Adaptive { ordinary, priority, gap } => {
                let by = now + if urgent { priority } else { ordinary };
                match (gap, last) {
                    (None, _) => by,
                    (Some(_), None) => now,
                    (Some(gap), Some(last)) => by.min(now.max(last + gap)),
                }
            }
        }
    }
}

/// The bundles for one destination: one being filled and at most [`MAX_WAITING_BUNDLES`] finished ones.
#[derive(Debug)]
pub struct Bundler {
    timing: Timing,
    builder: ClassicBuilder,
    due: Instant,
    last_sent: Option<Instant>,
    /// Finished bundles with their numbers of priority messages.
    ready: VecDeque<(Vec<u8>, usize)>,
    spare: Vec<Vec<u8>>,
    /// Priority messages in the bundle being filled, and in the one that left last.
    urgent_messages: usize,
    urgent_in_last: usize,
}

impl Bundler {
    /// Creates a queue of bundles of at most `max_octets` octets, with the mask of `source` if given.
    pub fn new(source: Option<Source>, max_octets: usize, timing: Timing) -> Bundler {
        Bundler {
            timing,
            builder: ClassicBuilder::new(source, max_octets),
            due: Instant::MAX,
            last_sent: None,
            ready: VecDeque::new(),
            spare: Vec::new(),
            urgent_messages: 0,
            urgent_in_last: 0,
        }
    }

    /// Adds a control message to the central converter or to level 1, which leaves on the tick or at once; returns
    /// whether there was room.
    pub fn push_control(&mut self, now: Instant, control: ClassicControl) -> bool {
        let (address, body) = control.write();
        self.push_urgent(now, address, &body)
    }

    /// Adds a level for all hosts, which leaves on the tick or at once; returns whether there was room.
    pub fn push_level_for_hosts(&mut self, now: Instant, level: u8) -> bool {
        self.push_urgent(now, ALL_HOSTS, &ClassicControl::write_for_hosts(level))
    }

    fn push_urgent(&mut self, now: Instant, address: u16, body: &[u8]) -> bool {
        let max_wait = match self.timing {
            Timing::Tick(_) => None,
            Timing::Adaptive { .. } => Some(Span::ZERO),
        };
        self.push(now, address, body, true, max_wait)
    }

    /// Adds a message that may wait no longer than `max_wait`, if given; returns whether there was room. A bundle that
    /// is thereby due leaves with the next [`close_if_due`](Bundler::close_if_due), so that simultaneous priority
    /// messages share a bundle.
    pub fn push(
        &mut self,
        now: Instant,
        address: u16,
        body: &[u8],
        urgent: bool,
        max_wait: Option<Span>,
    ) -> bool {
        if matches!(self.timing, Timing::Tick(_)) {
            // A message behind the tick waits for the next one.
            self.close_if_due(now);
        }
        if !self.builder.has_room(body.len()) {
            if self.builder.is_empty() || self.ready.len() >= MAX_WAITING_BUNDLES {
                return false;
            }
            self.close(now);
        }
        if !self.builder.push(address, body) {
            return false;
        }
        self.urgent_messages += usize::from(urgent);
        let due = self.timing.due(now, self.last_sent, urgent);
        self.due = self.due.min(max_wait.map_or(due, |max_wait| due.min(now + max_wait)));
        true
    }

    /// Finishes the bundle if it is due.
    pub fn close_if_due(&mut self, now: Instant) {
        if self.due <= now && self.ready.len() < MAX_WAITING_BUNDLES {
            self.close(now);
        }
    }

    fn close(&mut self, now: Instant) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(self.builder.octets(), 0);
        self.builder.finish(&mut bytes);
        self.ready.push_back((bytes, std::mem::take(&mut self.urgent_messages)));
        (self.due, self.last_sent) = (Instant::MAX, Some(now));
    }

    /// Returns the number of priority messages in the bundle that left last.
    pub fn urgent_in_last(&self) -> usize {
        self.urgent_in_last
    }

    /// Returns when the bundle being filled is due.
    pub fn deadline(&self) -> Option<Instant> {
        (self.due < Instant::MAX && self.ready.len() < MAX_WAITING_BUNDLES).then_some(self.due)
    }

    /// Returns whether a finished bundle waits.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Writes the next finished bundle into `buffer` and returns its length.
    pub fn write_next(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let (bytes, urgent) = self.ready.pop_front()?;
        self.urgent_in_last = urgent;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let length = bytes.len();
        self.spare.push(bytes);
        // A due bundle may have found no room.
        self.close_if_due(now);
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::classic::{ClassicBundle, MAX_BUNDLE};

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    /// Returns the departure time in microseconds and the message count of each bundle, for messages with these
    /// arrival times and priorities.
    fn departures(timing: Timing, messages: &[(u64, bool)]) -> Vec<(u64, usize)> {
        let mut bundler = Bundler::new(None, MAX_BUNDLE, timing);
        let (mut sent, mut buffer) = (Vec::new(), vec![0; MAX_BUNDLE]);
        let mut messages = messages.iter().peekable();
        loop {
            let next = messages.peek().map(|(us, _)| at(*us));
            let now = match (bundler.deadline(), next) {
                (None, None) => return sent,
                (Some(due), Some(next)) => due.min(next),
                (due, next) => due.or(next).unwrap(),
            };
            if Some(now) == next {
                let (_, urgent) = messages.next().unwrap();
                assert!(bundler.push(now, 1, b"message", *urgent, None));
            }
            bundler.close_if_due(now);
            while let Some(length) = bundler.write_next(now, &mut buffer) {
                let us = now.since(Instant::ZERO).as_ps() / 1_000_000;
                sent.push((us, ClassicBundle::read(&buffer[..length]).unwrap().count()));
            }
        }
    }

    #[test]
    fn tick_timing_sends_bundles_on_the_tick() {
        let messages = [(0, false), (10, true), (4_999, false), (5_000, false), (21_000, false)];
        assert_eq!(departures(Timing::CLASSIC, &messages), [(5_000, 3), (10_000, 1), (25_000, 1)]);
    }

    #[test]
    fn bundles_leave_at_their_earliest_deadline() {
        let messages = [(0, false), (14_000, false), (21_000, false), (22_000, true), (24_000, false)];
        assert_eq!(departures(Timing::LEAST_PROCESSOR, &messages), [(20_000, 2), (22_000, 2), (44_000, 1)]);
    }

    #[test]
    fn each_class_has_its_deadline() {
        let ms = |ms| Some(Span::from_ms(ms));
        let with = |timing: Timing, ordinary, priority| timing.with_deadlines(ordinary, priority);
        let messages = [(0, false), (1_000, true), (20_000, true), (40_000, false)];
        let timing = with(Timing::LEAST_PROCESSOR, ms(9), ms(3)).unwrap();
        assert_eq!(departures(timing, &messages), [(4_000, 2), (23_000, 1), (49_000, 1)]);
        let timing = with(Timing::LEAST_PROCESSOR, None, ms(3)).unwrap();
        assert_eq!(departures(timing, &messages), [(4_000, 2), (23_000, 1), (60_000, 1)]);
        assert_eq!(with(Timing::LEAST_DELAY, None, None), Some(Timing::LEAST_DELAY));
        assert_eq!(with(Timing::CLASSIC, None, None), Some(Timing::CLASSIC));
        assert_eq!((with(Timing::CLASSIC, ms(5), None), with(Timing::CLASSIC, None, ms(5))), (None, None));
    }

    #[test]
    fn low_load_adds_no_delay_and_high_load_bundles() {
        let slow: Vec<_> = (0..5).map(|n| (n * 600, false)).collect();
        assert!(
            departures(Timing::LEAST_DELAY, &slow)
                .iter()
                .zip(&slow)
                .all(|(sent, received)| sent.0 == received.0)
        );
        let fast: Vec<_> = (0..1_000).map(|n| (n * 10, false)).collect();
        let sent = departures(Timing::LEAST_DELAY, &fast);
        assert_eq!((sent[0], sent[1], sent.len()), ((0, 1), (500, 50), 21));
    }

    #[test]
    fn simultaneous_priority_messages_share_bundles() {
        for timing in [Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY] {
            let mut bundler = Bundler::new(None, MAX_BUNDLE, timing);
            let taken =
                (0..700).filter(|n| bundler.push(at(u64::from(*n) / 10), *n, b"urgent", true, None)).count();
            bundler.close_if_due(at(70));
            let mut buffer = vec![0; MAX_BUNDLE];
            let sent: Vec<usize> = std::iter::from_fn(|| {
                bundler
                    .write_next(at(70), &mut buffer)
                    .map(|length| ClassicBundle::read(&buffer[..length]).unwrap().count())
            })
            .collect();
            assert_eq!((taken, sent), (700, vec![255, 255, 190]));
        }
    }

    #[test]
    fn a_full_queue_refuses_further_messages() {
        let mut bundler = Bundler::new(None, 100, Timing::LEAST_PROCESSOR);
        let taken = (0..1_000).take_while(|n| bundler.push(at(0), *n, &[0; 40], false, None)).count();
        // Two messages fit into a bundle.
        assert_eq!(taken, 2 * (MAX_WAITING_BUNDLES + 1));
        assert_eq!(bundler.deadline(), None);
        let mut buffer = vec![0; MAX_BUNDLE];
        let sent = std::iter::from_fn(|| bundler.write_next(at(21_000), &mut buffer)).count();
        assert_eq!(sent, MAX_WAITING_BUNDLES + 1, "a due bundle leaves when there is room");
        assert!(!bundler.push(at(0), 1, &[0; 101], false, None), "longer than a bundle");
    }
}

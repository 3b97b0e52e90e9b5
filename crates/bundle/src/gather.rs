//! Messages are gathered until their bundle leaves.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use crate::wire::classic::{Builder, Source};

/// Bundles that wait for their port to take them.
pub const WAITING: usize = 64;

/// When a bundle leaves, if it is not full before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// With a free-running tick, as in 1997.
    Tick(Span),
    /// When its oldest message has waited as long as it may.
    Adaptive {
        /// How long an ordinary message may wait.
        ordinary: Span,
        /// How long a priority message may.
        priority: Span,
        /// If the last bundle left so long ago the next leaves at once: so low load pays no delay, and no more bundles leave
        /// than one in such a time, but for those with priority. None: it is waited for in any case.
        gap: Option<Span>,
    },
}

impl Timing {
    /// The tick of 1997: 5 ms.
    pub const CLASSIC: Timing = Timing::Tick(Span::from_ms(5));
    /// Least processor: every bundle gathers for 20 ms, but for priority messages. What a bundle costs is the wake of who
    /// receives it; the messages of 1997 took 12 to 22 ms in the mean, those of DIS may take 100 (IEEE 1278.2).
    pub const LEAST_PROCESSOR: Timing =
        Timing::Adaptive { ordinary: Span::from_ms(20), priority: Span::ZERO, gap: None };
    /// Least delay.
    pub const LEAST_DELAY: Timing =
        Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::ZERO, gap: Some(Span::from_us(500)) };

    /// The same with other deadlines of ordinary and of priority messages, where they are said. None: they are said, and with a tick
    /// there are none.
    pub fn with_deadlines(self, said: Option<Span>, said_priority: Option<Span>) -> Option<Timing> {
        match self {
            Timing::Tick(_) => (said.is_none() && said_priority.is_none()).then_some(self),
            Timing::Adaptive { ordinary, priority, gap } => Some(Timing::Adaptive {
                ordinary: said.unwrap_or(ordinary),
                priority: said_priority.unwrap_or(priority),
                gap,
            }),
        }
    }

    /// When a message that comes now has its bundle leave, where the last left at `last`.
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

/// Bundles for one destination. Room: one that gathers, and [`WAITING`] that wait.
#[derive(Debug)]
pub struct Gather {
    timing: Timing,
    builder: Builder,
    due: Instant,
    last: Option<Instant>,
    /// With how many of its messages are urgent.
    ready: VecDeque<(Vec<u8>, usize)>,
    spare: Vec<Vec<u8>>,
    /// Urgent messages in the bundle that gathers, and in the one that left last.
    urgent: usize,
    left: usize,
}

impl Gather {
    /// Of bundles with the mask of `source`, or without, of at most `longest` octets.
    pub fn new(source: Option<Source>, longest: usize, timing: Timing) -> Gather {
        let builder = Builder::new(source, longest);
        let (ready, spare) = (VecDeque::new(), Vec::new());
        Gather { timing, builder, due: Instant::MAX, last: None, ready, spare, urgent: 0, left: 0 }
    }

    /// Adds a message; whether there was room. A bundle that is due by that leaves with the next [`roll`](Gather::roll): what
    /// is urgent and comes together leaves together.
    pub fn push(&mut self, now: Instant, address: u16, body: &[u8], urgent: bool) -> bool {
        self.push_within(now, address, body, urgent, None)
    }

    /// Adds control, whatever deadlines messages have: it leaves with the tick, or at once.
    pub fn tell(&mut self, now: Instant, address: u16, body: &[u8]) -> bool {
        let within = match self.timing {
            Timing::Tick(_) => None,
            Timing::Adaptive { .. } => Some(Span::ZERO),
        };
        self.push_within(now, address, body, true, within)
    }

    /// The same for a message that may wait so long at the most.
    pub fn push_within(
        &mut self,
        now: Instant,
        address: u16,
        body: &[u8],
        urgent: bool,
        within: Option<Span>,
    ) -> bool {
        if matches!(self.timing, Timing::Tick(_)) {
            // What comes behind the tick waits for the next.
            self.roll(now);
        }
        if !self.builder.has_room(body.len()) {
            if self.builder.is_empty() || self.ready.len() >= WAITING {
                return false;
            }
            self.close(now);
        }
        if !self.builder.push(address, body) {
            return false;
        }
        self.urgent += usize::from(urgent);
        let due = self.timing.due(now, self.last, urgent);
        self.due = self.due.min(within.map_or(due, |within| due.min(now + within)));
        true
    }

    /// Closes the bundle if it is due.
    pub fn roll(&mut self, now: Instant) {
        if self.due <= now && self.ready.len() < WAITING {
            self.close(now);
        }
    }

    fn close(&mut self, now: Instant) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(self.builder.octets(), 0);
        self.builder.finish(&mut bytes);
        self.ready.push_back((bytes, std::mem::take(&mut self.urgent)));
        (self.due, self.last) = (Instant::MAX, Some(now));
    }

    /// Urgent messages in the bundle that left last.
    pub fn urgent_left(&self) -> usize {
        self.left
    }

    /// When the bundle that gathers is due.
    pub fn deadline(&self) -> Option<Instant> {
        (self.due < Instant::MAX && self.ready.len() < WAITING).then_some(self.due)
    }

    /// Whether a bundle waits to leave.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Writes the next bundle that leaves; how many octets.
    pub fn leave(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let (bytes, urgent) = self.ready.pop_front()?;
        self.left = urgent;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let length = bytes.len();
        self.spare.push(bytes);
        // One may have been due that found no room.
        self.roll(now);
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::classic::{Bundle, LONGEST};

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    /// When the bundles of messages that come at these moments leave, and how many are in each.
    fn departures(timing: Timing, messages: &[(u64, bool)]) -> Vec<(u64, usize)> {
        let mut gather = Gather::new(None, LONGEST, timing);
        let (mut left, mut buffer) = (Vec::new(), vec![0; LONGEST]);
        let mut messages = messages.iter().peekable();
        loop {
            let next = messages.peek().map(|(us, _)| at(*us));
            let now = match (gather.deadline(), next) {
                (None, None) => return left,
                (Some(due), Some(next)) => due.min(next),
                (due, next) => due.or(next).unwrap(),
            };
            if Some(now) == next {
                let (_, urgent) = messages.next().unwrap();
                assert!(gather.push(now, 1, b"message", *urgent));
            }
            gather.roll(now);
            while let Some(length) = gather.leave(now, &mut buffer) {
                let us = now.since(Instant::ZERO).as_ps() / 1_000_000;
                left.push((us, Bundle::read(&buffer[..length]).unwrap().count()));
            }
        }
    }

    #[test]
    fn bundles_leave_with_the_tick() {
        let messages = [(0, false), (10, true), (4_999, false), (5_000, false), (21_000, false)];
        assert_eq!(departures(Timing::CLASSIC, &messages), [(5_000, 3), (10_000, 1), (25_000, 1)]);
    }

    #[test]
    fn bundles_leave_when_their_oldest_message_must() {
        let messages = [(0, false), (14_000, false), (21_000, false), (22_000, true), (24_000, false)];
        assert_eq!(departures(Timing::LEAST_PROCESSOR, &messages), [(20_000, 2), (22_000, 2), (44_000, 1)]);
    }

    #[test]
    fn either_class_may_have_another_deadline() {
        let ms = |ms| Some(Span::from_ms(ms));
        let said = |timing: Timing, ordinary, priority| timing.with_deadlines(ordinary, priority);
        let messages = [(0, false), (1_000, true), (20_000, true), (40_000, false)];
        let timing = said(Timing::LEAST_PROCESSOR, ms(9), ms(3)).unwrap();
        assert_eq!(departures(timing, &messages), [(4_000, 2), (23_000, 1), (49_000, 1)]);
        let timing = said(Timing::LEAST_PROCESSOR, None, ms(3)).unwrap();
        assert_eq!(departures(timing, &messages), [(4_000, 2), (23_000, 1), (60_000, 1)]);
        assert_eq!(said(Timing::LEAST_DELAY, None, None), Some(Timing::LEAST_DELAY));
        assert_eq!(said(Timing::CLASSIC, None, None), Some(Timing::CLASSIC));
        assert_eq!((said(Timing::CLASSIC, ms(5), None), said(Timing::CLASSIC, None, ms(5))), (None, None));
    }

    #[test]
    fn low_load_pays_no_delay_and_high_load_gathers() {
        let slow: Vec<_> = (0..5).map(|n| (n * 600, false)).collect();
        assert!(
            departures(Timing::LEAST_DELAY, &slow).iter().zip(&slow).all(|(left, came)| left.0 == came.0)
        );
        let fast: Vec<_> = (0..1_000).map(|n| (n * 10, false)).collect();
        let left = departures(Timing::LEAST_DELAY, &fast);
        assert_eq!((left[0], left[1], left.len()), ((0, 1), (500, 50), 21));
    }

    #[test]
    fn what_is_urgent_and_comes_together_leaves_together() {
        for timing in [Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY] {
            let mut gather = Gather::new(None, LONGEST, timing);
            let taken = (0..700).filter(|n| gather.push(at(u64::from(*n) / 10), *n, b"urgent", true)).count();
            gather.roll(at(70));
            let mut buffer = vec![0; LONGEST];
            let left: Vec<usize> = std::iter::from_fn(|| {
                gather
                    .leave(at(70), &mut buffer)
                    .map(|length| Bundle::read(&buffer[..length]).unwrap().count())
            })
            .collect();
            assert_eq!((taken, left), (700, vec![255, 255, 190]));
        }
    }

    #[test]
    fn a_full_port_keeps_what_fits_and_refuses_the_rest() {
        let mut gather = Gather::new(None, 100, Timing::LEAST_PROCESSOR);
        let taken = (0..1_000).take_while(|n| gather.push(at(0), *n, &[0; 40], false)).count();
        // Two to a bundle.
        assert_eq!(taken, 2 * (WAITING + 1));
        assert_eq!(gather.deadline(), None);
        let mut buffer = vec![0; LONGEST];
        let left = std::iter::from_fn(|| gather.leave(at(21_000), &mut buffer)).count();
        assert_eq!(left, WAITING + 1, "what was due leaves when there is room");
        assert!(!gather.push(at(0), 1, &[0; 101], false), "longer than a bundle");
    }
}

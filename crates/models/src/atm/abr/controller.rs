//! The controlling host beside a bottleneck switch (AAI report, section 2.5.2).

use std::collections::{BTreeMap, VecDeque};

use trunkline_units::{Instant, Rate, Span};

use crate::atm::abr::Request;
use crate::atm::abr::fair_share::water_level;

/// A controller of one line: knows its active sources, and sends each its rate.
///
/// A request is answered at once; sources whose rate changes by it get an answer too. A source that is silent for the lifetime
/// is forgotten: sources repeat their requests, so lost cells only delay what they say.
///
/// **Memory.** 64 bytes for each active source; replies that wait are at most one for each source.
#[derive(Clone, Debug)]
pub struct Controller {
    capacity: Rate,
    lifetime: Span,
    sources: BTreeMap<u32, Registration>,
    /// Sources that are sent their rate.
    replies: VecDeque<u32>,
    is_current: bool,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    limit: Rate,
    share: Rate,
    requested_at: Instant,
    has_reply: bool,
}

impl Controller {
    /// Creates a controller that divides `capacity`, and forgets sources that are silent for `lifetime`.
    pub fn new(capacity: Rate, lifetime: Span) -> Self {
        Controller {
            capacity,
            lifetime,
            sources: BTreeMap::new(),
            replies: VecDeque::new(),
            is_current: true,
        }
    }

    /// Handles a resource-management cell of a source.
    pub fn receive(&mut self, now: Instant, source: u32, request: Request) {
        match request {
            Request::Leave => {
                self.sources.remove(&source);
                self.replies.retain(|waiting| *waiting != source);
            }
            Request::Active { limit } => {
                let known = self.sources.entry(source).or_insert(Registration {
                    limit,
                    share: Rate::default(),
                    requested_at: now,
                    has_reply: false,
                });
                (known.limit, known.requested_at) = (limit, now);
                if !std::mem::replace(&mut known.has_reply, true) {
                    self.replies.push_back(source);
                }
            }
        }
        let Controller { sources, replies, lifetime, .. } = self;
        let before = sources.len();
        sources.retain(|_, known| now.since(known.requested_at) <= *lifetime);
        if sources.len() < before {
            replies.retain(|waiting| sources.contains_key(waiting));
        }
        self.is_current = false;
    }

    /// Returns the next source to answer, with its rate.
    pub fn poll(&mut self) -> Option<(u32, Rate)> {
        if !std::mem::replace(&mut self.is_current, true) {
            self.divide();
        }
        let source = self.replies.pop_front()?;
        let known = self.sources.get_mut(&source)?;
        known.has_reply = false;
        Some((source, known.share))
    }

    /// Returns the number of active sources.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the share where every source is held back elsewhere: one of them may use the rest when that changes. What two
    /// lines with the same level round off is no rest: each would raise the other's level for ever.
    fn share_of_rest(&self, limits: &[Rate]) -> Rate {
        let used: u64 = limits.iter().map(|limit| limit.as_bps()).sum();
        let largest = limits.iter().map(|limit| limit.as_bps()).max().unwrap_or(0);
        let rest = self.capacity.as_bps() - used;
        Rate::from_bps(if rest > 2 * limits.len() as u64 { largest + rest } else { largest })
    }

    fn divide(&mut self) {
        let limits: Vec<Rate> = self.sources.values().map(|known| known.limit).collect();
        let level = water_level(self.capacity, &limits);
        let share = level.unwrap_or_else(|| self.share_of_rest(&limits));
        for (source, known) in &mut self.sources {
            if known.share != share {
                known.share = share;
                if !std::mem::replace(&mut known.has_reply, true) {
                    self.replies.push_back(*source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn replies(controller: &mut Controller) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| controller.poll())
            .map(|(source, rate)| (source, rate.as_bps() / MBPS))
            .collect()
    }

    fn active(mbps: u64) -> Request {
        Request::Active { limit: Rate::from_bps(mbps * MBPS) }
    }

    #[test]
    fn sources_join_change_and_leave() {
        let mut controller = Controller::new(Rate::from_bps(120 * MBPS), Span::from_s(1));
        let now = Instant::ZERO;
        controller.receive(now, 1, active(1_000));
        assert_eq!(replies(&mut controller), [(1, 120)]);
        controller.receive(now, 2, active(1_000));
        assert_eq!(replies(&mut controller), [(2, 60), (1, 60)]);
        controller.receive(now, 2, active(20));
        assert_eq!(replies(&mut controller), [(2, 100), (1, 100)]);
        controller.receive(now, 2, active(20));
        assert_eq!(replies(&mut controller), [(2, 100)], "a repeated request is answered");
        controller.receive(now, 1, Request::Leave);
        assert_eq!(replies(&mut controller), [(2, 120)]);
    }

    #[test]
    fn a_source_that_leaves_and_joins_gets_one_reply() {
        let mut controller = Controller::new(Rate::from_bps(100 * MBPS), Span::from_s(1));
        for _ in 0..3 {
            controller.receive(Instant::ZERO, 1, active(100));
            controller.receive(Instant::ZERO, 1, Request::Leave);
        }
        controller.receive(Instant::ZERO, 1, active(100));
        assert_eq!(replies(&mut controller), [(1, 100)]);
        // The same after it was forgotten before its reply was taken.
        controller.receive(Instant::ZERO, 1, active(100));
        let later = Instant::ZERO + Span::from_s(2);
        controller.receive(later, 2, active(100));
        controller.receive(later, 1, active(100));
        assert_eq!(replies(&mut controller), [(2, 50), (1, 50)]);
    }

    #[test]
    fn a_silent_source_is_forgotten() {
        let mut controller = Controller::new(Rate::from_bps(100 * MBPS), Span::from_s(1));
        controller.receive(Instant::ZERO, 1, active(100));
        controller.receive(Instant::ZERO, 2, active(100));
        controller.receive(Instant::ZERO + Span::from_ms(900), 2, active(100));
        assert_eq!(controller.sources(), 2);
        controller.receive(Instant::ZERO + Span::from_ms(1_100), 2, active(100));
        assert_eq!((controller.sources(), replies(&mut controller)), (1, vec![(2, 100)]));
    }
}

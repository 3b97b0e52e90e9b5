//! What the numbers of messages and bundles tell: what is double, late or missing.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use trunkline_units::{Instant, Seed, Span};

use crate::wire::wide::Role;

/// Flows that are remembered at the most: one for each source, packet address and class.
pub const MOST_FLOWS: usize = 1 << 18;
/// A flow without a message for so long may be forgotten.
pub const FORGET: Span = Span::from_s(60);
/// Messages back from the highest of which it is known whether they came.
pub const WINDOW: u32 = u128::BITS;

/// Whether `a` is later than `b`, in a circle of 2³².
pub fn is_later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// Sessions that the central converter gives: who does not know its secret cannot tell which it gave to another.
#[derive(Debug)]
pub struct Sessions {
    secret: SipHasher24,
    given: u64,
}

impl Sessions {
    /// Those of a life, to hosts or to converters of level 1 (`role`). No two lives, roles or secrets share them, but by chance.
    pub fn new(secret: Seed, life: u32, role: Role) -> Sessions {
        let secret = SipHasher24::new_with_keys(secret.0, u64::from(life) << 32 | role as u64);
        Sessions { secret, given: 0 }
    }

    /// Another one, not 0.
    pub fn give(&mut self) -> u32 {
        self.given += 1;
        let mut hasher = self.secret;
        hasher.write_u64(self.given);
        (hasher.finish() as u32).max(1)
    }
}

/// One kind of messages of one source, numbered without holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Site and host.
    pub source: u32,
    /// The packet address.
    pub packet: u16,
    /// Whether they have priority.
    pub priority: bool,
}

/// What a message is, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not here.
    New,
    /// It was here, or may have been: it is of an earlier life, or too old to tell.
    Old,
    /// It cannot be known, for there are more flows than are remembered.
    Unknown,
}

/// What messages' numbers told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Numbers that were skipped and did not come later. Only who gets all messages of a packet address may take them for
    /// lost: a host that wants a part of them misses the others.
    pub missing: u64,
    /// Messages that had been here.
    pub doubled: u64,
    /// Messages that came after later ones.
    pub reordered: u64,
    /// Messages of an earlier life of their source, or too old to tell whether they had been here: dropped as doubles.
    pub stale: u64,
    /// Messages of more flows than are remembered: ordinary ones are dropped.
    pub unknown: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    life: u32,
    highest: u32,
    /// Bit n: highest − n was here.
    had: u128,
    last: Instant,
}

/// What was seen of each flow. Of those silent for [`FORGET`] nothing is known when there are others.
#[derive(Debug, Default)]
pub struct Seen {
    flows: BTreeMap<Flow, State>,
    swept: Instant,
    counts: Counts,
}

impl Seen {
    /// What it counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Flows that are remembered.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Takes note of a message. One with priority of a flow for which there is no room is taken for a new one, for it may have been
    /// acknowledged: it may come twice, if its sender begins a new session just then.
    pub fn take(&mut self, now: Instant, flow: Flow, life: u32, sequence: u32) -> Verdict {
        match self.note(now, flow, life, sequence) {
            Verdict::Unknown if flow.priority => Verdict::New,
            verdict => verdict,
        }
    }

    /// Takes note of a message.
    fn note(&mut self, now: Instant, flow: Flow, life: u32, sequence: u32) -> Verdict {
        self.sweep(now);
        let counts = &mut self.counts;
        let full = self.flows.len() >= MOST_FLOWS;
        let fresh = State { life, highest: sequence, had: 1, last: now };
        let state = match self.flows.get_mut(&flow) {
            None if full => {
                counts.unknown += 1;
                return Verdict::Unknown;
            }
            None => {
                self.flows.insert(flow, fresh);
                return Verdict::New;
            }
            Some(state) if is_later(life, state.life) => {
                *state = fresh;
                return Verdict::New;
            }
            Some(state) => state,
        };
        if life != state.life {
            counts.stale += 1;
            return Verdict::Old;
        }
        state.last = now;
        if is_later(sequence, state.highest) {
            let steps = sequence.wrapping_sub(state.highest);
            counts.missing += u64::from(steps - 1);
            state.had = state.had.checked_shl(steps).unwrap_or(0) | 1;
            state.highest = sequence;
            return Verdict::New;
        }
        let back = state.highest.wrapping_sub(sequence);
        if back >= WINDOW {
            counts.stale += 1;
            return Verdict::Old;
        }
        if state.had >> back & 1 == 1 {
            counts.doubled += 1;
            return Verdict::Old;
        }
        state.had |= 1 << back;
        counts.reordered += 1;
        // The first message seen of a flow may have overtaken some, which were never missed.
        counts.missing = counts.missing.saturating_sub(1);
        Verdict::New
    }

    /// Forgets what is silent, now and then.
    fn sweep(&mut self, now: Instant) {
        let every = if self.flows.len() >= MOST_FLOWS { Span::from_s(1) } else { FORGET };
        if now.since(self.swept) >= every {
            self.swept = now;
            self.flows.retain(|_, state| now.since(state.last) < FORGET);
        }
    }
}

/// What came over one link in one session, by what bundles say went before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    expected: u32,
    /// Messages that came.
    pub received: u32,
    /// Messages of bundles that did not come, or came late.
    pub lost: u32,
    /// Bundles that came late or twice.
    pub late: u32,
    /// Messages of those, as far as they had been missed.
    found: u32,
}

impl Link {
    /// A bundle came before which so many messages had been sent, with so many of its own; how many did not come, as far as
    /// it tells.
    pub fn note(&mut self, before: u32, count: usize) -> u32 {
        self.received = self.received.wrapping_add(count as u32);
        if is_later(self.expected, before) {
            self.late = self.late.wrapping_add(1);
            self.found = self.found.wrapping_add(self.missing().min(count as u32));
            return 0;
        }
        // Whoever comes into the stream to all in its middle has lost nothing of it.
        let first = self.expected == 0 && self.received == count as u32;
        let lost = if first { 0 } else { before.wrapping_sub(self.expected) };
        self.lost = self.lost.wrapping_add(lost);
        self.expected = before.wrapping_add(count as u32);
        lost
    }

    /// Messages that have not come as yet: a path that has bundles overtake each other loses none.
    pub fn missing(&self) -> u32 {
        self.lost.wrapping_sub(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const FLOW: Flow = Flow { source: 9, packet: 3, priority: false };

    #[test]
    fn doubles_late_and_missing_messages_are_told_apart() {
        let mut seen = Seen::default();
        let mut note = |life, sequence| seen.note(Instant::ZERO, FLOW, life, sequence) == Verdict::New;
        let came = [5, 6, 9, 8, 8, 5, 300, 299, 7].map(|sequence| note(1, sequence));
        assert_eq!(came, [true, true, true, true, false, false, true, true, false]);
        assert!(note(2, 0) && !note(1, 301) && note(2, 1), "a new life begins anew");
        let counts = seen.counts();
        assert_eq!((counts.missing, counts.doubled, counts.reordered, counts.stale), (1 + 289, 2, 2, 2));
    }

    #[test]
    fn numbers_and_lives_go_round() {
        let mut seen = Seen::default();
        for sequence in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(seen.note(Instant::ZERO, FLOW, u32::MAX, sequence), Verdict::New);
        }
        assert_eq!(seen.note(Instant::ZERO, FLOW, 0, 0), Verdict::New);
        assert_eq!(seen.counts(), Counts::default());
    }

    #[test]
    fn more_flows_than_are_remembered_are_refused_until_some_are_silent() {
        let mut seen = Seen::default();
        let flow = |source| Flow { source, ..FLOW };
        for source in 0..MOST_FLOWS as u32 {
            assert_eq!(seen.note(Instant::ZERO, flow(source), 1, 0), Verdict::New);
        }
        let later = |s| Instant::ZERO + Span::from_s(s);
        assert_eq!(seen.note(later(59), flow(MOST_FLOWS as u32), 1, 0), Verdict::Unknown);
        assert_eq!(seen.note(later(59), flow(7), 1, 1), Verdict::New);
        assert_eq!(seen.note(later(61), flow(MOST_FLOWS as u32), 1, 0), Verdict::New);
        assert_eq!((seen.flows(), seen.counts().unknown), (2, 1));
    }

    #[test]
    fn what_a_link_lost_is_counted() {
        let mut link = Link::default();
        for (before, count) in [(0, 3), (3, 0), (3, 2), (9, 1), (5, 4), (10, 1)] {
            link.note(before, count);
        }
        assert_eq!((link.received, link.lost, link.late, link.missing()), (11, 4, 1, 0));
        let mut midway = Link::default();
        midway.note(1_000, 2);
        midway.note(1_003, 2);
        assert_eq!((midway.received, midway.lost), (4, 1));
    }

    proptest! {
        /// Whatever the order, nothing is new twice; and what is not too far behind is new once.
        #[test]
        fn nothing_is_new_twice(start in any::<u32>(), steps in prop::collection::vec(0u32..100, 1..200)) {
            let mut seen = Seen::default();
            let mut here = BTreeSet::new();
            for step in steps {
                let new = seen.note(Instant::ZERO, FLOW, 1, start.wrapping_add(step)) == Verdict::New;
                prop_assert_eq!(new, here.insert(step));
            }
            let span = here.last().unwrap() - here.first().unwrap() + 1;
            prop_assert!(seen.counts().missing <= u64::from(span) - here.len() as u64);
        }
    }
}

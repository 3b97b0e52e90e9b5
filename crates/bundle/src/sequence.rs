//! Sequence checking of messages and bundles: duplicates, reordering and losses.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use trunkline_units::{Instant, Seed, Span};

use crate::wire::format2::{Message, Role, packet_address};

/// The largest number of tracked flows, one for each source, packet address and class.
pub const MAX_FLOWS: usize = 1 << 18;
/// A flow without a message for this long may expire.
pub const FLOW_TIMEOUT: Span = Span::from_s(60);
/// The number of sequence numbers below the highest whose arrival is tracked (anti-replay window, RFC 4303).
pub const SEQUENCE_WINDOW: u32 = u128::BITS;

/// Returns whether `a` is newer than `b`, modulo 2³² (serial number arithmetic, RFC 1982).
pub fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// Session numbers that the central converter issues. They are unpredictable without its secret.
#[derive(Debug)]
pub struct Sessions {
    secret: SipHasher24,
    issued: u64,
}

impl Sessions {
    /// Creates the sessions of an incarnation, for hosts or level-1 converters (`role`). Different incarnations,
    /// roles or secrets share session numbers only by chance.
    pub fn new(secret: Seed, incarnation: u32, role: Role) -> Sessions {
        let secret = SipHasher24::new_with_keys(secret.0, u64::from(incarnation) << 32 | role as u64);
        Sessions { secret, issued: 0 }
    }

    /// Returns a new session number, never 0.
    pub fn issue(&mut self) -> u32 {
        self.issued += 1;
        let mut hasher = self.secret;
        hasher.write_u64(self.issued);
        (hasher.finish() as u32).max(1)
    }
}

/// A stream of consecutively numbered messages from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Site and host.
    pub source: u32,
    /// The packet address.
    pub packet: u16,
    /// Whether the messages have priority.
    pub priority: bool,
}

impl Flow {
    pub(crate) fn of(message: &Message<'_>) -> Flow {
        let Message { address, source, priority, .. } = *message;
        Flow { source, packet: packet_address(address), priority }
    }
}

/// The status of a message according to its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// Not received before.
    New,
    /// Received before, or possibly: of an earlier incarnation or below the window.
    Duplicate,
    /// Unknown, because the flow table is full.
    Unknown,
}

/// The results of sequence checking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Sequence numbers skipped and not received later. They are losses only for a receiver of the whole packet
    /// address; a host that joined part of it misses the others.
    pub missing: u64,
    /// Messages received twice.
    pub duplicates: u64,
    /// Messages received after later ones.
    pub reordered: u64,
    /// Messages of an earlier incarnation or below the window, dropped as duplicates.
    pub stale: u64,
    /// Messages of flows without room in the table. Ordinary ones are dropped.
    pub unknown: u64,
}

#[derive(Clone, Copy, Debug)]
struct FlowState {
    incarnation: u32,
    highest: u32,
    /// Bit n: highest − n was received.
    received: u128,
    last_seen: Instant,
}

/// The state of each flow. Flows without a message for [`FLOW_TIMEOUT`] expire.
#[derive(Debug, Default)]
pub struct SequenceTracker {
    flows: BTreeMap<Flow, FlowState>,
    last_sweep: Instant,
    counts: SequenceCounts,
}

impl SequenceTracker {
    /// Returns the counters.
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// Returns the number of tracked flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Records a message and returns its status. If the table is full, a priority message counts as new, since it may
    /// already be acknowledged; it may then be delivered twice if its sender starts a new session just then.
    pub fn record(&mut self, now: Instant, flow: Flow, incarnation: u32, sequence: u32) -> SequenceStatus {
        match self.classify(now, flow, incarnation, sequence) {
            SequenceStatus::Unknown if flow.priority => SequenceStatus::New,
            verdict => verdict,
        }
    }

    /// Records a message.
    fn classify(&mut self, now: Instant, flow: Flow, incarnation: u32, sequence: u32) -> SequenceStatus {
        self.expire_flows(now);
        let counts = &mut self.counts;
        let full = self.flows.len() >= MAX_FLOWS;
        let fresh = FlowState { incarnation, highest: sequence, received: 1, last_seen: now };
        let state = match self.flows.get_mut(&flow) {
            None if full => {
                counts.unknown += 1;
                return SequenceStatus::Unknown;
            }
            None => {
                self.flows.insert(flow, fresh);
                return SequenceStatus::New;
            }
            Some(state) if is_newer(incarnation, state.incarnation) => {
                *state = fresh;
                return SequenceStatus::New;
            }
            Some(state) => state,
        };
        if incarnation != state.incarnation {
            counts.stale += 1;
            return SequenceStatus::Duplicate;
        }
        state.last_seen = now;
        if is_newer(sequence, state.highest) {
            let steps = sequence.wrapping_sub(state.highest);
            counts.missing += u64::from(steps - 1);
            state.received = state.received.checked_shl(steps).unwrap_or(0) | 1;
            state.highest = sequence;
            return SequenceStatus::New;
        }
        let age = state.highest.wrapping_sub(sequence);
        if age >= SEQUENCE_WINDOW {
            counts.stale += 1;
            return SequenceStatus::Duplicate;
        }
        if state.received >> age & 1 == 1 {
            counts.duplicates += 1;
            return SequenceStatus::Duplicate;
        }
        state.received |= 1 << age;
        counts.reordered += 1;
        // The first message of a flow may have overtaken others, which were never counted as missing.
        counts.missing = counts.missing.saturating_sub(1);
        SequenceStatus::New
    }

    /// Expires idle flows periodically.
    fn expire_flows(&mut self, now: Instant) {
        let every = if self.flows.len() >= MAX_FLOWS { Span::from_s(1) } else { FLOW_TIMEOUT };
        if now.since(self.last_sweep) >= every {
            self.last_sweep = now;
            self.flows.retain(|_, state| now.since(state.last_seen) < FLOW_TIMEOUT);
        }
    }
}

/// Messages received and lost on a link in one session, according to the counters in bundle headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounter {
    expected: u32,
    /// Messages received.
    pub received: u32,
    /// Messages in bundles that were lost or late.
    pub lost: u32,
    /// Messages that had been counted as lost, in bundles that were late or duplicates.
    recovered: u32,
}

impl LinkCounter {
    /// Records a bundle of `count` messages, before which the sender had sent `before` messages. Returns the number
    /// of messages newly counted as lost.
    pub fn record_bundle(&mut self, before: u32, count: usize) -> u32 {
        self.received = self.received.wrapping_add(count as u32);
        if is_newer(self.expected, before) {
            self.recovered = self.recovered.wrapping_add(self.missing().min(count as u32));
            return 0;
        }
        // A receiver that joins a broadcast in progress has lost nothing.
        let is_first = self.expected == 0 && self.received == count as u32;
        let lost = if is_first { 0 } else { before.wrapping_sub(self.expected) };
        self.lost = self.lost.wrapping_add(lost);
        self.expected = before.wrapping_add(count as u32);
        lost
    }

    /// Returns the number of messages that have not arrived so far, so that reordering counts as no loss.
    pub fn missing(&self) -> u32 {
        self.lost.wrapping_sub(self.recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const FLOW: Flow = Flow { source: 9, packet: 3, priority: false };

    #[test]
    fn duplicates_reordering_and_losses_are_distinguished() {
        let mut seen = SequenceTracker::default();
        let mut note = |incarnation, sequence| {
            seen.classify(Instant::ZERO, FLOW, incarnation, sequence) == SequenceStatus::New
        };
        let is_new = [5, 6, 9, 8, 8, 5, 300, 299, 7].map(|sequence| note(1, sequence));
        assert_eq!(is_new, [true, true, true, true, false, false, true, true, false]);
        assert!(note(2, 0) && !note(1, 301) && note(2, 1), "a new incarnation restarts the numbers");
        let counts = seen.counts();
        assert_eq!((counts.missing, counts.duplicates, counts.reordered, counts.stale), (1 + 289, 2, 2, 2));
    }

    #[test]
    fn sequence_numbers_and_incarnations_wrap() {
        let mut seen = SequenceTracker::default();
        for sequence in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(seen.classify(Instant::ZERO, FLOW, u32::MAX, sequence), SequenceStatus::New);
        }
        assert_eq!(seen.classify(Instant::ZERO, FLOW, 0, 0), SequenceStatus::New);
        assert_eq!(seen.counts(), SequenceCounts::default());
    }

    #[test]
    fn a_full_flow_table_refuses_new_flows_until_some_expire() {
        let mut seen = SequenceTracker::default();
        let flow = |source| Flow { source, ..FLOW };
        for source in 0..MAX_FLOWS as u32 {
            assert_eq!(seen.classify(Instant::ZERO, flow(source), 1, 0), SequenceStatus::New);
        }
        let later = |s| Instant::ZERO + Span::from_s(s);
        assert_eq!(seen.classify(later(59), flow(MAX_FLOWS as u32), 1, 0), SequenceStatus::Unknown);
        assert_eq!(seen.classify(later(59), flow(7), 1, 1), SequenceStatus::New);
        assert_eq!(seen.classify(later(61), flow(MAX_FLOWS as u32), 1, 0), SequenceStatus::New);
        assert_eq!((seen.flows(), seen.counts().unknown), (2, 1));
    }

    #[test]
    fn lost_and_late_messages_of_a_link_are_counted() {
        let mut link = LinkCounter::default();
        for (before, count) in [(0, 3), (3, 0), (3, 2), (9, 1), (5, 4), (10, 1)] {
            link.record_bundle(before, count);
        }
        assert_eq!((link.received, link.lost, link.missing()), (11, 4, 0));
        let mut late_joiner = LinkCounter::default();
        late_joiner.record_bundle(1_000, 2);
        late_joiner.record_bundle(1_003, 2);
        assert_eq!((late_joiner.received, late_joiner.lost), (4, 1));
    }

    proptest! {
        /// In any order, each message within the window is new exactly once.
        #[test]
        fn no_message_is_new_twice(start in any::<u32>(), steps in prop::collection::vec(0u32..100, 1..200)) {
            let mut tracker = SequenceTracker::default();
            let mut arrived = BTreeSet::new();
            for step in steps {
                let is_new = tracker.classify(Instant::ZERO, FLOW, 1, start.wrapping_add(step)) == SequenceStatus::New;
                prop_assert_eq!(is_new, arrived.insert(step));
            }
            let span = arrived.last().unwrap() - arrived.first().unwrap() + 1;
            prop_assert!(tracker.counts().missing <= u64::from(span) - arrived.len() as u64);
        }
    }
}

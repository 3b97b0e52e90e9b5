//! The addresses that a host has joined, and what the central converter has yet to learn of them.
//!
//! The formats differ because the classic one has no acknowledgements: [`SoftJoins`] are repeated periodically,
//! [`ConfirmedJoins`] until the central converter confirms them.

use std::collections::{BTreeSet, VecDeque};

use trunkline_units::{Instant, Span};

use crate::ranges::{MAX_RANGES, Ranges};
use crate::refresh::Refresh;
use crate::session::RETRY_INTERVAL;
use crate::wire::classic::ClassicControl;
use crate::wire::format2::control::{self, Control, RangeChanges};
use crate::wire::format2::{BundleBuilder, MIN_DATAGRAM};

/// The largest number of unconfirmed joins and leaves. Further ones are refused.
const MAX_PENDING_CHANGES: usize = 2 * MAX_RANGES;

/// The joined addresses in format 1 (classic). With pairs, an even address stands for its pair.
#[derive(Debug)]
pub(crate) struct SoftJoins {
    pairs: bool,
    joined: BTreeSet<u16>,
    /// Left addresses whose leave is repeated once.
    left: BTreeSet<u16>,
    pub refresh: Refresh,
}

impl SoftJoins {
    pub fn new(pairs: bool) -> SoftJoins {
        let (joined, left) = (BTreeSet::new(), BTreeSet::new());
        SoftJoins { pairs, joined, left, refresh: Refresh::new(Span::ZERO) }
    }

    fn first_of_pair(&self, address: u16) -> u16 {
        if self.pairs { address & !1 } else { address }
    }

    pub fn len(&self) -> usize {
        self.joined.len()
    }

    pub fn contains(&self, address: u16) -> bool {
        self.joined.contains(&self.first_of_pair(address))
    }

    pub fn first(&self) -> Option<u16> {
        self.joined.first().copied()
    }

    /// Records a join or leave that was sent.
    pub fn set(&mut self, now: Instant, address: u16, joins: bool) {
        let address = self.first_of_pair(address);
        let (to, from) =
            if joins { (&mut self.joined, &mut self.left) } else { (&mut self.left, &mut self.joined) };
        to.insert(address);
        from.remove(&address);
        self.refresh.schedule(now);
    }

    /// Schedules a second leave of these addresses, none of which is joined.
    pub fn repeat_leave(&mut self, now: Instant, first: u16, last: u16) {
        let left: Vec<u16> = (first..=last).map(|address| self.first_of_pair(address)).collect();
        self.left.extend(left);
        self.refresh.schedule_now(now);
    }

    /// Passes the refreshes that are due to `send`, which returns whether there was room. A refresh without room is
    /// sent in the next cycle.
    pub fn send_refresh(&mut self, now: Instant, mut send: impl FnMut(ClassicControl) -> bool) {
        let SoftJoins { joined, left, refresh, .. } = self;
        let first = |set: &BTreeSet<u16>, from: usize| {
            u16::try_from(from).ok().and_then(|from| set.range(from..).next().copied())
        };
        let mut due = Vec::new();
        let next = |from| first(joined, from).into_iter().chain(first(left, from)).min().map(usize::from);
        refresh.send_due(now, next, |address| due.push(address as u16));
        for address in due {
            if send(ClassicControl::membership(address, joined.contains(&address))) {
                left.remove(&address);
            }
        }
    }
}

/// A join or leave of a range.
#[derive(Clone, Copy, Debug)]
struct RangeChange {
    joins: bool,
    first: u32,
    last: u32,
}

/// The joined addresses in format 2.
#[derive(Debug)]
pub(crate) struct ConfirmedJoins {
    pub ranges: Ranges,
    /// Joins and leaves that the central converter has not confirmed, and the number that it has confirmed.
    changes: VecDeque<RangeChange>,
    confirmed_changes: u32,
    /// When the changes are sent (again).
    pub due: Instant,
}

impl ConfirmedJoins {
    pub fn new() -> ConfirmedJoins {
        let (ranges, changes) = (Ranges::default(), VecDeque::new());
        ConfirmedJoins { ranges, changes, confirmed_changes: 0, due: Instant::MAX }
    }

    /// Returns the number of unconfirmed changes.
    pub fn unconfirmed(&self) -> usize {
        self.changes.len()
    }

    /// Joins or leaves a range; returns whether there was room. Without a session the change needs no announcement.
    pub fn change(&mut self, now: Instant, first: u32, last: u32, joins: bool, in_session: bool) -> bool {
        let applied = self.changes.len() < MAX_PENDING_CHANGES
            && if joins { self.ranges.insert(first, last) } else { self.ranges.remove(first, last) };
        if applied && in_session {
            if self.changes.is_empty() {
                self.due = now;
            }
            self.changes.push_back(RangeChange { joins, first, last });
        }
        applied
    }

    /// Starts a new session, with all joined ranges.
    pub fn restart(&mut self, now: Instant) {
        self.confirmed_changes = 0;
        self.changes =
            self.ranges.iter().map(|(first, last)| RangeChange { joins: true, first, last }).collect();
        self.schedule(now);
    }

    /// Handles the central converter's confirmation of the first `count` changes of this session; returns whether it
    /// confirms any.
    pub fn confirm(&mut self, now: Instant, count: u32) -> bool {
        let newly_confirmed = count.wrapping_sub(self.confirmed_changes) as usize;
        if newly_confirmed == 0 || newly_confirmed > self.changes.len() {
            return false;
        }
        self.changes.drain(..newly_confirmed);
        self.confirmed_changes = count;
        self.schedule(now);
        true
    }

    /// Schedules the unconfirmed changes to be sent now, if there are any.
    fn schedule(&mut self, now: Instant) {
        self.due = if self.changes.is_empty() { Instant::MAX } else { now };
    }

    /// Adds the first unconfirmed changes if they are due, using at most half of the free space, so that messages
    /// fit, too.
    pub fn write_due(&mut self, now: Instant, builder: &mut BundleBuilder) {
        if now < self.due {
            return;
        }
        self.due = now + RETRY_INTERVAL;
        let available = (builder.available() / 2).min(MIN_DATAGRAM * 2);
        let (mut number, mut octets) = (self.confirmed_changes, 0);
        let mut encoded: Vec<u8> = Vec::new();
        let mut changes = self.changes.iter().peekable();
        while let Some(change) = changes.next() {
            encoded.extend_from_slice(&RangeChanges::encode(change.first, change.last));
            let full = octets + control::RANGES_HEADER + encoded.len() + control::RANGE > available;
            let ends = full || changes.peek().is_none_or(|next| next.joins != change.joins);
            if !ends && encoded.len() < control::MAX_ITEM_RANGES * control::RANGE {
                continue;
            }
            let count = (encoded.len() / control::RANGE) as u32;
            let item = RangeChanges::new(number, &encoded);
            builder.push_control(&if change.joins { Control::Join(item) } else { Control::Drop(item) });
            octets += control::RANGES_HEADER + encoded.len();
            number = number.wrapping_add(count);
            encoded.clear();
            if octets + control::RANGES_HEADER + control::RANGE > available {
                return;
            }
        }
    }
}

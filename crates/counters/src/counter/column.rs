//! Column-level state: growth, or the event that makes it unknown.

use super::table::{TableStatus, max_growth};
use super::{Column, Event, EventSet, Growth, RawValue, TimeWindow, ValueKind};

/// Processes the values of a column in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnTracker {
    /// The reading that the next growth starts from.
    pub(crate) baseline: Option<(TimeWindow, RawValue)>,
    /// The last discontinuity time of the object.
    pub(crate) discontinuity: Option<RawValue>,
    /// Whether the last response had no value.
    pub(crate) has_gap: bool,
}

/// The result of one response for a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The growth of a counter, if known.
    pub growth: Option<Growth>,
    /// The value of a gauge or floating-point column.
    pub level: Option<(TimeWindow, RawValue)>,
    /// When the previous level was sampled, if no response was missing since.
    pub previous: Option<TimeWindow>,
    /// The events of the table and the column.
    pub events: EventSet,
}

impl ColumnTracker {
    /// Processes the value of the next response. `discontinuity` is the value of the column that
    /// [`Column::discontinuity`] names. A 32-bit counter is taken modulo 2^32.
    pub fn update(
        &mut self,
        column: &Column,
        status: &TableStatus,
        value: Option<RawValue>,
        discontinuity: Option<RawValue>,
    ) -> Update {
        let mut events = status.events;
        let (Some(window), Some(value)) = (status.window, value) else {
            if status.window.is_some() && !self.has_gap && self.baseline.is_some() {
                events.insert(Event::Absent);
            }
            self.has_gap = true;
            if status.events.contains(Event::ResetByRestart) {
                self.baseline = None; // what comes next does not go on from before
            }
            return Update { events, ..Update::default() };
        };
        let is_discontinuous = self.is_discontinuous(discontinuity, status);
        let over_gap = std::mem::replace(&mut self.has_gap, false);
        if !column.kind.is_counter() {
            let previous = self.baseline.filter(|_| !over_gap).map(|(window, _)| window);
            self.baseline = Some((window, value));
            return Update { growth: None, level: self.baseline, previous, events };
        }
        let Some((from, was)) = self.baseline else {
            self.baseline = Some((window, value));
            return Update { events, ..Update::default() };
        };
        if status.is_repeat && was == value && !is_discontinuous {
            self.has_gap = over_gap;
            return Update { events, ..Update::default() };
        }
        self.baseline = Some((window, value));
        let (by, event) = if is_discontinuous {
            (None, Some(Event::Discontinuity))
        } else if status.events.contains(Event::ResetByRestart) {
            (None, Some(Event::ResetByRestart))
        } else {
            classify_change(column, was, value, window.latest.duration_since(from.earliest))
        };
        if let Some(event) = event {
            events.insert(event);
        }
        let growth = by.map(|by| Growth { amount: by, from, to: window, over_gap });
        Update { growth, events, ..Update::default() }
    }

    /// Returns whether the object's discontinuity time changed. A time of 0 after a restart does not count.
    fn is_discontinuous(&mut self, discontinuity: Option<RawValue>, status: &TableStatus) -> bool {
        let Some(is) = discontinuity else { return false };
        let restarted =
            status.events.contains(Event::Restart) || status.events.contains(Event::ResetByRestart);
        self.discontinuity.replace(is).is_some_and(|was| was != is) && !(restarted && is.0 == 0)
    }
}

/// Returns the growth of a counter between two values that are at most `longest` apart, if it is known, and the event
/// that explains or prevents it.
fn classify_change(
    column: &Column,
    was: RawValue,
    is: RawValue,
    longest: std::time::Duration,
) -> (Option<u64>, Option<Event>) {
    let most = column.ceiling.map(|ceiling| max_growth(ceiling, longest));
    if column.kind == ValueKind::Counter64 {
        return match is.0.checked_sub(was.0) {
            Some(by) if most.is_none_or(|most| u128::from(by) <= most) => (Some(by), None),
            _ => (None, Some(Event::UnannouncedReset)),
        };
    }
    let (was, is) = (was.0 as u32, is.0 as u32);
    let by = u64::from(is.wrapping_sub(was));
    match most {
        Some(most) if u128::from(by) > most => (None, Some(Event::UnannouncedReset)),
        Some(most) if u128::from(by) + (1 << 32) <= most => (None, Some(Event::Ambiguous)),
        None if is < was => (None, Some(Event::Ambiguous)),
        _ if is < was => (Some(by), Some(Event::Wrap)),
        _ => (Some(by), None),
    }
}

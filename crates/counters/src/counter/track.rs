//! What follows for one column.

use super::judge::{Verdict, carried};
use super::{Column, Event, Events, Growth, Kind, Raw, Window};

/// Sees a column's value in every response of its table, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracker {
    /// The reading that the next growth begins with.
    pub(crate) anchor: Option<(Window, Raw)>,
    /// What the object's discontinuity time was.
    pub(crate) mark: Option<Raw>,
    /// Whether the last response had no value.
    pub(crate) gap: bool,
}

/// What followed from one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What the counter grew by, if that is known.
    pub growth: Option<Growth>,
    /// The value, of a column that does not count.
    pub level: Option<(Window, Raw)>,
    /// When the level before it was true, if no response was missing since.
    pub since: Option<Window>,
    /// What happened.
    pub events: Events,
}

/// What pairs of values of a counter mean.
enum Meaning {
    Grew(u64),
    Wrapped(u64),
    Nothing(Event),
}

impl Tracker {
    /// Takes the column's value in the next response, with the verdict over it and the value of the column that its
    /// [`Column::mark`] names. A 32-bit counter is taken modulo 2^32.
    pub fn step(
        &mut self,
        column: &Column,
        verdict: &Verdict,
        value: Option<Raw>,
        mark: Option<Raw>,
    ) -> Step {
        let mut events = verdict.events;
        let (Some(window), Some(value)) = (verdict.window, value) else {
            if verdict.window.is_some() && !self.gap && self.anchor.is_some() {
                events.add(Event::Absent);
            }
            self.gap = true;
            if verdict.events.has(Event::ResetByRestart) {
                self.anchor = None; // what comes next does not go on from before
            }
            return Step { events, ..Step::default() };
        };
        let marked = self.marked(mark, verdict);
        let over_gap = std::mem::replace(&mut self.gap, false);
        if !column.kind.counts() {
            let since = self.anchor.filter(|_| !over_gap).map(|(window, _)| window);
            self.anchor = Some((window, value));
            return Step { growth: None, level: self.anchor, since, events };
        }
        let Some((from, was)) = self.anchor else {
            self.anchor = Some((window, value));
            return Step { events, ..Step::default() };
        };
        if verdict.held && was == value && !marked {
            self.gap = over_gap;
            return Step { events, ..Step::default() };
        }
        self.anchor = Some((window, value));
        let meaning = if marked {
            Meaning::Nothing(Event::Discontinuity)
        } else if verdict.events.has(Event::ResetByRestart) {
            Meaning::Nothing(Event::ResetByRestart)
        } else {
            meaning(column, was, value, window.latest.since(from.earliest))
        };
        let by = match meaning {
            Meaning::Grew(by) => Some(by),
            Meaning::Wrapped(by) => {
                events.add(Event::Wrap);
                Some(by)
            }
            Meaning::Nothing(event) => {
                events.add(event);
                None
            }
        };
        let growth = by.map(|by| Growth { by, from, to: window, over_gap });
        Step { growth, events, ..Step::default() }
    }

    /// Whether the object says that it lost its count. After a restart a discontinuity time of 0 says nothing.
    fn marked(&mut self, mark: Option<Raw>, verdict: &Verdict) -> bool {
        let Some(is) = mark else { return false };
        let restarted = verdict.events.has(Event::Restart) || verdict.events.has(Event::ResetByRestart);
        self.mark.replace(is).is_some_and(|was| was != is) && !(restarted && is.0 == 0)
    }
}

/// What a counter can have done between two values in so much time.
fn meaning(column: &Column, was: Raw, is: Raw, longest: std::time::Duration) -> Meaning {
    let most = column.ceiling.map(|ceiling| carried(ceiling, longest));
    if column.kind == Kind::Counter64 {
        return match is.0.checked_sub(was.0) {
            Some(by) if most.is_none_or(|most| u128::from(by) <= most) => Meaning::Grew(by),
            _ => Meaning::Nothing(Event::Unsaid),
        };
    }
    let (was, is) = (was.0 as u32, is.0 as u32);
    let by = u64::from(is.wrapping_sub(was));
    match most {
        Some(most) if u128::from(by) > most => Meaning::Nothing(Event::Unsaid),
        Some(most) if u128::from(by) + (1 << 32) <= most => Meaning::Nothing(Event::Ambiguous),
        None if is < was => Meaning::Nothing(Event::Ambiguous),
        _ if is < was => Meaning::Wrapped(by),
        _ => Meaning::Grew(by),
    }
}

//! Table-level state: agent restarts, stale caches, late and missed polls, and the age of answers.
//!
//! **Age of an answer.** An agent with a cache returns counters that are up to one refresh period old. The tracker
//! assumes 5 s (net-snmp 5.9.3 refreshes after 2.5 to 3.3 s) until it has learned the period. It learns the period
//! from eight consecutive snapshots if each was returned more than once and if one period explains all their
//! lifetimes. A snapshot that was first returned at answer *a*, last at *b*, after an earlier one at *p* and before a
//! later one at *c*, lived for at least *b.requested_at − a.answered_at* and at most *c.answered_at −
//! p.requested_at*; the tracker takes the largest upper bound. Snapshots that begin or end with a restart or a
//! discontinuity are shorter than a period and teach nothing. Polls that always find the table changed teach
//! nothing. Traffic that changes more slowly than the polls looks the same; the windows are then longer than
//! necessary, but correct. In any case, a table that has changed was sampled after the request that still found it
//! unchanged.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Column, Event, EventSet, OutOfOrder, RawValue, Response, TimeWindow, Timestamp, ValueKind};

/// Consecutive snapshots that the refresh period is learned from.
const LEARNED_SNAPSHOTS: usize = 8;

/// The refresh period that is assumed until it has been learned.
const DEFAULT_REFRESH: Duration = Duration::from_secs(5);

/// The refresh period of the agent's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshPeriod {
    /// A configured upper bound; zero for an agent without cache.
    Configured(Duration),
    /// Learned from the answers; this upper bound holds until then.
    Learned(Duration),
}

impl Default for RefreshPeriod {
    fn default() -> RefreshPeriod {
        RefreshPeriod::Learned(DEFAULT_REFRESH)
    }
}

/// The result of one response for the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// When the values were sampled; `None` without an answer.
    pub window: Option<TimeWindow>,
    /// Whether the answer equals the previous one and may be of the same snapshot. Then it gives no growth.
    pub is_repeat: bool,
    /// The events of the whole table: any of [`Event::Restart`], [`Event::ResetByRestart`], [`Event::Silent`],
    /// [`Event::Stale`], [`Event::Late`] and [`Event::Missed`].
    pub events: EventSet,
}

/// Processes the responses of a table in order.
#[derive(Clone, Debug, PartialEq)]
pub struct TableTracker {
    period: Duration,
    refresh: RefreshPeriod,
    pub(crate) state: TableState,
}

/// The state between two responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableState {
    /// When the last request was due and when it was sent.
    pub last_poll: Option<(Timestamp, Timestamp)>,
    /// The last answer.
    pub last_answer: Option<LastAnswer>,
    /// When the last answer arrived that was not a repeat.
    pub last_distinct_at: Timestamp,
    /// Whether the table had changed in that answer.
    pub is_busy: bool,
    pub snapshot: Option<Snapshot>,
    /// Lower and upper bounds of the lifetimes of the last snapshots.
    pub observations: VecDeque<(Duration, Duration)>,
}

/// The answer that the next one is compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LastAnswer {
    pub requested_at: Timestamp,
    pub answered_at: Timestamp,
    pub uptime: Option<u32>,
    pub values: Vec<Option<RawValue>>,
}

/// The snapshot that the agent's cache currently returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// When the last answer from the previous snapshot was requested.
    pub previous_requested_at: Timestamp,
    /// When its first answer arrived.
    pub first_answered_at: Timestamp,
    /// When its last answer was requested.
    pub last_requested_at: Timestamp,
}

impl TableTracker {
    /// Creates a tracker for a table that is polled every `period`.
    pub fn new(period: Duration, refresh: RefreshPeriod) -> TableTracker {
        TableTracker { period, refresh, state: TableState::default() }
    }

    /// Changes the period and the agent's refresh period.
    pub fn set_polling(&mut self, period: Duration, refresh: RefreshPeriod) {
        (self.period, self.refresh) = (period, refresh);
    }

    /// Returns the maximum age of an answer: configured, learned, or assumed until it is learned.
    pub fn refresh(&self) -> Duration {
        match self.refresh {
            RefreshPeriod::Configured(age) => age,
            RefreshPeriod::Learned(assumed) => self.learned().unwrap_or(assumed),
        }
    }

    fn learned(&self) -> Option<Duration> {
        let observations = &self.state.observations;
        let min_lifetime = observations.iter().map(|(min_lifetime, _)| *min_lifetime);
        let max_lifetime = observations.iter().map(|(_, max_lifetime)| *max_lifetime);
        let all_repeated =
            observations.len() == LEARNED_SNAPSHOTS && min_lifetime.clone().min()? > Duration::ZERO;
        let one_period = min_lifetime.max()? <= max_lifetime.clone().min()?.saturating_mul(3) / 2;
        if all_repeated && one_period { max_lifetime.max() } else { None }
    }

    /// Checks that the response is later than the previous one.
    fn check_order(&self, response: &Response) -> Result<(), OutOfOrder> {
        let after_last_poll =
            self.state.last_poll.is_none_or(|(_, requested_at)| response.requested_at > requested_at);
        let after_last = self.state.last_answer.as_ref().is_none_or(|last| {
            response.requested_at >= last.answered_at
                && response.answer.as_ref().is_none_or(|a| a.answered_at > last.answered_at)
        });
        let answered_at = response.answer.as_ref().is_none_or(|a| a.answered_at >= response.requested_at);
        if after_last_poll && after_last && answered_at { Ok(()) } else { Err(OutOfOrder) }
    }

    /// Processes the next response. `columns` may grow between two calls; values beyond them are ignored.
    pub fn update(&mut self, columns: &[Column], response: &Response) -> Result<TableStatus, OutOfOrder> {
        self.check_order(response)?;
        let mut events = self.check_schedule(response);
        self.state.last_poll = Some((response.due_at, response.requested_at));
        let Some(answer) = &response.answer else {
            events.insert(Event::Silent);
            return Ok(TableStatus { window: None, is_repeat: false, events });
        };
        let now = LastAnswer {
            requested_at: response.requested_at,
            answered_at: answer.answered_at,
            uptime: answer.uptime,
            values: answer.values.clone(),
        };
        let refresh = self.refresh();
        let mut earliest = response.requested_at.saturating_sub(refresh);
        let mut is_repeat = false;
        if let Some(last) = self.state.last_answer.take() {
            let comparison = compare(columns, &last.values, &now.values);
            let reset = has_uptime_decreased(&last, &now) && has_reset(columns, &last, &now, refresh);
            let is_restart = has_restarted(&last, &now) || reset;
            if is_restart {
                let kept_counters = comparison != Comparison::Decreased
                    && !exceeds_ceiling(columns, &last, &now, refresh)
                    && !reset;
                events.insert(if kept_counters { Event::Restart } else { Event::ResetByRestart });
            }
            let changed = matches!(comparison, Comparison::Decreased | Comparison::Increased);
            is_repeat =
                comparison == Comparison::Equal && !is_restart && earliest <= self.state.last_distinct_at;
            if is_repeat && self.state.is_busy {
                events.insert(Event::Stale);
            }
            if changed {
                earliest = earliest.max(last.requested_at);
            }
            self.observe_snapshot(&last, &now, changed, is_restart || is_discontinuous(columns, &last, &now));
            if !is_repeat {
                self.state.is_busy = changed;
            }
        }
        if !is_repeat {
            self.state.last_distinct_at = now.answered_at;
        }
        let window = TimeWindow { earliest, latest: now.answered_at };
        self.state.last_answer = Some(now);
        Ok(TableStatus { window: Some(window), is_repeat, events })
    }

    /// Detects late and missed polls.
    fn check_schedule(&self, response: &Response) -> EventSet {
        let mut events = EventSet::EMPTY;
        if response.requested_at.duration_since(response.due_at) > self.period / 10 {
            events.insert(Event::Late);
        }
        if let Some((due, _)) = self.state.last_poll
            && response.due_at.duration_since(due) > self.period.saturating_mul(3) / 2
        {
            events.insert(Event::Missed);
        }
        events
    }

    /// Updates the lifetime of the current snapshot.
    fn observe_snapshot(&mut self, last: &LastAnswer, now: &LastAnswer, changed: bool, is_interrupted: bool) {
        let state = &mut self.state;
        if is_interrupted {
            state.snapshot = None;
        } else if changed {
            if let Some(hold) = state.snapshot {
                if state.observations.len() == LEARNED_SNAPSHOTS {
                    state.observations.pop_front();
                }
                let min_lifetime = hold.last_requested_at.duration_since(hold.first_answered_at);
                state
                    .observations
                    .push_back((min_lifetime, now.answered_at.duration_since(hold.previous_requested_at)));
            }
            state.snapshot = Some(Snapshot {
                previous_requested_at: last.requested_at,
                first_answered_at: now.answered_at,
                last_requested_at: now.requested_at,
            });
        } else if let Some(hold) = &mut state.snapshot {
            hold.last_requested_at = now.requested_at;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    /// No counter is present in both answers.
    Unknown,
    Equal,
    Increased,
    /// At least one counter decreased.
    Decreased,
}

fn compare(columns: &[Column], last: &[Option<RawValue>], now: &[Option<RawValue>]) -> Comparison {
    let counters = columns.iter().zip(last.iter().zip(now)).filter(|(column, _)| column.kind.is_counter());
    counters.fold(Comparison::Unknown, |comparison, (_, pair)| match pair {
        (Some(was), Some(is)) if is.0 < was.0 => Comparison::Decreased,
        (Some(was), Some(is)) if is.0 > was.0 && comparison != Comparison::Decreased => Comparison::Increased,
        (Some(_), Some(_)) if comparison == Comparison::Unknown => Comparison::Equal,
        _ => comparison,
    })
}

/// Returns whether a counter grew by more than its line carries.
fn exceeds_ceiling(columns: &[Column], last: &LastAnswer, now: &LastAnswer, refresh: Duration) -> bool {
    let longest = now.answered_at.duration_since(last.requested_at.saturating_sub(refresh));
    columns.iter().zip(last.values.iter().zip(&now.values)).any(|(column, pair)| {
        match (column.ceiling, pair) {
            (Some(ceiling), (Some(was), Some(is))) if column.kind.is_counter() => {
                u128::from(is.0.saturating_sub(was.0)) > max_growth(ceiling, longest)
            }
            _ => false,
        }
    })
}

/// Returns whether a counter changed as only a reset explains: a 64-bit counter decreased, or a 32-bit counter grew,
/// modulo 2^32, by more than its line carries.
fn has_reset(columns: &[Column], last: &LastAnswer, now: &LastAnswer, refresh: Duration) -> bool {
    let longest = now.answered_at.duration_since(last.requested_at.saturating_sub(refresh));
    columns.iter().zip(last.values.iter().zip(&now.values)).any(|(column, pair)| match (column.kind, pair) {
        (ValueKind::Counter64, (Some(was), Some(is))) => is.0 < was.0,
        (ValueKind::Counter32, (Some(was), Some(is))) => {
            let by = (is.0 as u32).wrapping_sub(was.0 as u32);
            column.ceiling.is_some_and(|ceiling| u128::from(by) > max_growth(ceiling, longest))
        }
        _ => false,
    })
}

/// Returns whether a counter began anew: a discontinuity time changed, or a 64-bit counter decreased. Agents refresh
/// their cache early then, so neither the snapshot before nor the one after lives for a whole period.
fn is_discontinuous(columns: &[Column], last: &LastAnswer, now: &LastAnswer) -> bool {
    let pair = |at: usize| last.values.get(at).copied().flatten().zip(now.values.get(at).copied().flatten());
    columns.iter().enumerate().any(|(at, column)| {
        let has_decreased =
            column.kind == ValueKind::Counter64 && pair(at).is_some_and(|(was, is)| is.0 < was.0);
        has_decreased || column.discontinuity.and_then(pair).is_some_and(|(was, is)| is != was)
    })
}

/// Returns the largest possible growth at `ceiling` units per second.
pub(crate) fn max_growth(ceiling: u64, over: Duration) -> u128 {
    u128::from(ceiling).saturating_mul(over.as_nanos()).div_ceil(1_000_000_000)
}

/// Returns whether the agent restarted: its uptime differs from the previous uptime plus the elapsed time by more
/// than a second and 1 %. The difference is taken modulo 2^32 hundredths, so the wrap of the uptime after 497 days is
/// not a restart.
fn has_restarted(last: &LastAnswer, now: &LastAnswer) -> bool {
    let (Some(was), Some(is)) = (last.uptime, now.uptime) else { return false };
    let passed = Duration::from_millis(10 * u64::from(is.wrapping_sub(was)));
    let min_lifetime = now.requested_at.duration_since(last.answered_at);
    let max_lifetime = now.answered_at.duration_since(last.requested_at);
    let slack = Duration::from_secs(1);
    let too_little = passed + slack + min_lifetime / 100 < min_lifetime;
    let too_much = passed > max_lifetime + slack + max_lifetime / 100;
    // An uptime that jumps forward means that the clock was set, not that the agent restarted.
    too_little || too_much && is < was
}

/// Returns whether the uptime decreased. A wrap of the uptime and a restart look the same; only the counters
/// distinguish them.
fn has_uptime_decreased(last: &LastAnswer, now: &LastAnswer) -> bool {
    last.uptime.zip(now.uptime).is_some_and(|(was, is)| is < was)
}

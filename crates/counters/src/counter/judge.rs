//! What a response says of the whole table.
//!
//! **How old.** An agent with a cache answers with counters of up to its refresh period ago. Until it is learned, an
//! agent is taken to refresh every 5 s at the latest (net-snmp 5.9.3: 2.5 to 3.3 s). It is learned when eight changes
//! of the table in a row came with unchanged answers between them and at intervals that one period explains: a snapshot
//! that was first seen at answer *a*, last at *b*, after another at *p* and before another at *c*, was kept for at least
//! *b.asked − a.answered* and at most *c.answered − p.asked*; the greatest of those at most is taken. Polls that never
//! find the table unchanged teach nothing. Traffic that comes by a clock slower than the polls looks the same, and
//! then intervals are longer than they need be, but not wrong. Whatever the period: a table that changed is of after the
//! request that still found it unchanged.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Column, Disorder, Event, Events, Kind, Moment, Raw, Response, Window};

/// Changes of a table that teach its refresh period.
const LESSONS: usize = 8;

/// How long a cache may keep the truth back until it is known better.
const ASSUMED: Duration = Duration::from_secs(5);

/// How long the agent keeps an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// At most so long; zero for no cache.
    Told(Duration),
    /// To be learned; at most this until then.
    Learned(Duration),
}

impl Default for Refresh {
    fn default() -> Refresh {
        Refresh::Learned(ASSUMED)
    }
}

/// What a response says of the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When its values were true; none without an answer.
    pub window: Option<Window>,
    /// It cannot be told from the answer before it and may come from the same snapshot: nothing follows from it.
    pub held: bool,
    /// Of [`Event::Restart`], [`Event::ResetByRestart`], [`Event::Silent`], [`Event::Stale`], [`Event::Late`] and
    /// [`Event::Missed`], what happened.
    pub events: Events,
}

/// Sees every response of a table, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    period: Duration,
    refresh: Refresh,
    pub(crate) state: State,
}

/// What it keeps from one response to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// When the last response was due and asked.
    pub polled: Option<(Moment, Moment)>,
    /// The last answer.
    pub last: Option<Last>,
    /// When the last answer came that was not held.
    pub settled: Moment,
    /// Whether the table had changed when it came.
    pub busy: bool,
    pub hold: Option<Hold>,
    /// Least and most that each of the last snapshots was kept.
    pub lessons: VecDeque<(Duration, Duration)>,
}

/// An answer, as the next is compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Last {
    pub asked: Moment,
    pub answered: Moment,
    pub uptime: Option<u32>,
    pub values: Vec<Option<Raw>>,
}

/// A snapshot that is being answered with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    /// When the last answer of the one before it was asked.
    pub before_asked: Moment,
    /// When it was first answered.
    pub first_answered: Moment,
    /// When its last answer was asked.
    pub last_asked: Moment,
}

impl Judge {
    /// Of a table that is polled every `period`.
    pub fn new(period: Duration, refresh: Refresh) -> Judge {
        Judge { period, refresh, state: State::default() }
    }

    /// Tells it anew how the table is polled.
    pub fn tell(&mut self, period: Duration, refresh: Refresh) {
        (self.period, self.refresh) = (period, refresh);
    }

    /// How old an answer may be, as far as it is known now.
    pub fn refresh(&self) -> Duration {
        match self.refresh {
            Refresh::Told(age) => age,
            Refresh::Learned(assumed) => self.learned().unwrap_or(assumed),
        }
    }

    fn learned(&self) -> Option<Duration> {
        let lessons = &self.state.lessons;
        let least = lessons.iter().map(|(least, _)| *least);
        let most = lessons.iter().map(|(_, most)| *most);
        let seen = lessons.len() == LESSONS && least.clone().min()? > Duration::ZERO;
        let one_period = least.max()? <= most.clone().min()?.saturating_mul(3) / 2;
        if seen && one_period { most.max() } else { None }
    }

    /// Whether a response could come next.
    pub fn in_order(&self, response: &Response) -> Result<(), Disorder> {
        let after_polled = self.state.polled.is_none_or(|(_, asked)| response.asked > asked);
        let after_last = self.state.last.as_ref().is_none_or(|last| {
            response.asked >= last.answered
                && response.answer.as_ref().is_none_or(|a| a.answered > last.answered)
        });
        let answered = response.answer.as_ref().is_none_or(|a| a.answered >= response.asked);
        if after_polled && after_last && answered { Ok(()) } else { Err(Disorder) }
    }

    /// Judges the next response. `columns` may grow from one to the next; values beyond them are ignored.
    pub fn judge(&mut self, columns: &[Column], response: &Response) -> Result<Verdict, Disorder> {
        self.in_order(response)?;
        let mut events = self.schedule(response);
        self.state.polled = Some((response.due, response.asked));
        let Some(answer) = &response.answer else {
            events.add(Event::Silent);
            return Ok(Verdict { window: None, held: false, events });
        };
        let now = Last {
            asked: response.asked,
            answered: answer.answered,
            uptime: answer.uptime,
            values: answer.values.clone(),
        };
        let refresh = self.refresh();
        let mut earliest = response.asked.before(refresh);
        let mut held = false;
        if let Some(last) = self.state.last.take() {
            let alike = compare(columns, &last.values, &now.values);
            let reset = uptime_wrapped(&last, &now) && unlike_a_wrap(columns, &last, &now, refresh);
            let restarted = restarted(&last, &now) || reset;
            if restarted {
                let went_on = alike != Alike::Back && !impossible(columns, &last, &now, refresh) && !reset;
                events.add(if went_on { Event::Restart } else { Event::ResetByRestart });
            }
            let changed = matches!(alike, Alike::Back | Alike::Grown);
            held = alike == Alike::Same && !restarted && earliest <= self.state.settled;
            if held && self.state.busy {
                events.add(Event::Stale);
            }
            if changed {
                earliest = earliest.max(last.asked);
            }
            self.learn(&last, &now, changed, restarted);
            if !held {
                self.state.busy = changed;
            }
        }
        if !held {
            self.state.settled = now.answered;
        }
        let window = Window { earliest, latest: now.answered };
        self.state.last = Some(now);
        Ok(Verdict { window: Some(window), held, events })
    }

    /// Late and missed.
    fn schedule(&self, response: &Response) -> Events {
        let mut events = Events::NONE;
        if response.asked.since(response.due) > self.period / 10 {
            events.add(Event::Late);
        }
        if let Some((due, _)) = self.state.polled
            && response.due.since(due) > self.period.saturating_mul(3) / 2
        {
            events.add(Event::Missed);
        }
        events
    }

    /// Follows the snapshot that is answered with.
    fn learn(&mut self, last: &Last, now: &Last, changed: bool, restarted: bool) {
        let state = &mut self.state;
        if restarted {
            state.hold = None;
        } else if changed {
            if let Some(hold) = state.hold {
                if state.lessons.len() == LESSONS {
                    state.lessons.pop_front();
                }
                let least = hold.last_asked.since(hold.first_answered);
                state.lessons.push_back((least, now.answered.since(hold.before_asked)));
            }
            let (first_answered, last_asked) = (now.answered, now.asked);
            state.hold = Some(Hold { before_asked: last.asked, first_answered, last_asked });
        } else if let Some(hold) = &mut state.hold {
            hold.last_asked = now.asked;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Alike {
    /// Nothing can be compared.
    Unknown,
    Same,
    Grown,
    /// At least one went back.
    Back,
}

fn compare(columns: &[Column], last: &[Option<Raw>], now: &[Option<Raw>]) -> Alike {
    let counters = columns.iter().zip(last.iter().zip(now)).filter(|(column, _)| column.kind.counts());
    counters.fold(Alike::Unknown, |alike, (_, pair)| match pair {
        (Some(was), Some(is)) if is.0 < was.0 => Alike::Back,
        (Some(was), Some(is)) if is.0 > was.0 && alike != Alike::Back => Alike::Grown,
        (Some(_), Some(_)) if alike == Alike::Unknown => Alike::Same,
        _ => alike,
    })
}

/// Whether a counter grew by more than its line carries.
fn impossible(columns: &[Column], last: &Last, now: &Last, refresh: Duration) -> bool {
    let longest = now.answered.since(last.asked.before(refresh));
    columns.iter().zip(last.values.iter().zip(&now.values)).any(|(column, pair)| {
        match (column.ceiling, pair) {
            (Some(ceiling), (Some(was), Some(is))) if column.kind.counts() => {
                u128::from(is.0.saturating_sub(was.0)) > carried(ceiling, longest)
            }
            _ => false,
        }
    })
}

/// Whether a counter did what none does that goes on: 64 bits went back, or 32 bits grew, modulo 2^32, by more than the
/// line carries.
fn unlike_a_wrap(columns: &[Column], last: &Last, now: &Last, refresh: Duration) -> bool {
    let longest = now.answered.since(last.asked.before(refresh));
    columns.iter().zip(last.values.iter().zip(&now.values)).any(|(column, pair)| match (column.kind, pair) {
        (Kind::Counter64, (Some(was), Some(is))) => is.0 < was.0,
        (Kind::Counter32, (Some(was), Some(is))) => {
            let by = (is.0 as u32).wrapping_sub(was.0 as u32);
            column.ceiling.is_some_and(|ceiling| u128::from(by) > carried(ceiling, longest))
        }
        _ => false,
    })
}

/// Most that is counted at `ceiling` a second.
pub(crate) fn carried(ceiling: u64, over: Duration) -> u128 {
    u128::from(ceiling).saturating_mul(over.as_nanos()).div_ceil(1_000_000_000)
}

/// Whether the agent began anew: its uptime is not the last one and what has passed since, give or take a second and
/// a hundredth. Counted modulo 2^32 hundredths, so the uptime's own wrap at 497 days is none.
fn restarted(last: &Last, now: &Last) -> bool {
    let (Some(was), Some(is)) = (last.uptime, now.uptime) else { return false };
    let passed = Duration::from_millis(10 * u64::from(is.wrapping_sub(was)));
    let least = now.asked.since(last.answered);
    let most = now.answered.since(last.asked);
    let slack = Duration::from_secs(1);
    let too_little = passed + slack + least / 100 < least;
    let too_much = passed > most + slack + most / 100;
    // Too much without having gone back is a clock that was set, not an agent that began anew.
    too_little || too_much && is < was
}

/// Whether the uptime went back. If by its own wrap, an agent that began anew about then looks the same: its counters
/// must tell.
fn uptime_wrapped(last: &Last, now: &Last) -> bool {
    last.uptime.zip(now.uptime).is_some_and(|(was, is)| is < was)
}

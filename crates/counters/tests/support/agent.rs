//! An agent that counts true traffic and tells of it as agents do: late, from a cache, modulo 2^32, from the beginning
//! again; and the one who polls it.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::time::Duration;

use trunkline_counters::counter::{Answer, Column, Kind, Moment, Raw, Response};
use trunkline_units::{Seed, random::Stream};

const SECOND: i64 = 1_000_000_000;
/// Traffic changes its rate at most so often.
pub const GRAIN: i64 = SECOND / 4;

/// What happens to the agent, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Life {
    pub seed: u64,
    pub polls: usize,
    pub period_ms: u64,
    /// How long its cache keeps an answer, and whether it renews it by itself or when it is asked.
    pub refresh_ms: u64,
    pub on_demand: bool,
    /// Chances a poll, in thousandths: restart of the agent, of its counters too, an object's discontinuity, a counter
    /// that is set back unsaid, a lost answer, an answer without the object, a poll that never leaves or leaves late.
    pub restart: u64,
    pub reset: u64,
    pub discontinuity: u64,
    pub unsaid: u64,
    pub lost: u64,
    pub absent: u64,
    pub late: u64,
    /// Whether 32 bits do not wrap.
    pub slow: bool,
}

/// What the test may know: the true count of each column since the agent was made, at any grain of time.
pub struct World {
    pub columns: Vec<Column>,
    pub responses: Vec<Response>,
    /// When the values of each response were true; none without an answer.
    pub sampled: Vec<Option<i64>>,
    /// Epoch of each column at each response: its counter began anew in between if it differs.
    pub epochs: Vec<Vec<u32>>,
    counted: Vec<Vec<u128>>,
    pub begin: i64,
}

impl World {
    /// What a column has counted up to a moment, since the beginning.
    pub fn count(&self, column: usize, at: i64) -> u128 {
        let steps = &self.counted[column];
        let offset = (at - self.begin).max(0);
        let (step, rest) = ((offset / GRAIN) as usize, (offset % GRAIN) as u128);
        let low = steps[step.min(steps.len() - 1)];
        let high = steps[(step + 1).min(steps.len() - 1)];
        low + (high - low) * rest / GRAIN as u128
    }

    /// The highest rate of a column, a second.
    pub fn peak(&self, column: usize) -> f64 {
        let most = self.counted[column].windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        most as f64 * 1e9 / GRAIN as f64
    }
}

/// Fast 64 bits, slow 64 bits with a long history, 32 bits that wrap, a discontinuity time, and a gauge.
pub fn columns() -> Vec<Column> {
    let counter = |kind, ceiling| Column { kind, ceiling: Some(ceiling), mark: Some(3) };
    vec![
        counter(Kind::Counter64, 125_000_000),
        counter(Kind::Counter64, 1_000_000),
        counter(Kind::Counter32, 125_000_000),
        Column::new(Kind::Gauge),
        Column::new(Kind::Gauge),
    ]
}

/// Bursts: rates that stay for a while, now none, now the line's.
fn traffic(stream: &mut Stream, ceiling: u64, steps: usize) -> Vec<u128> {
    let mut counted = vec![0u128];
    let most = u128::from(ceiling) * GRAIN as u128 / 1_000_000_000;
    while counted.len() <= steps {
        let rate = match stream.below(4) {
            0 => 0,
            1 => most,
            _ => most >> stream.below(20),
        };
        for _ in 0..1 + stream.below(80) {
            let last = counted[counted.len() - 1];
            counted.push(last + rate - if rate > 0 { u128::from(stream.below(2)) } else { 0 });
        }
    }
    counted
}

pub fn live(life: &Life) -> World {
    let mut columns = columns();
    if life.slow {
        columns[2].ceiling = Some(1_000);
    }
    let period = life.period_ms as i64 * 1_000_000;
    let begin = 1_700_000_000 * SECOND;
    let steps = ((2 * life.polls as i64 + 30) * period / GRAIN) as usize + 400;
    let draw = |place: &str| Seed(life.seed).stream(place);
    let counted: Vec<Vec<u128>> = columns
        .iter()
        .enumerate()
        .map(|(at, c)| {
            let steps = if c.kind.counts() { steps } else { 1 };
            traffic(&mut draw(&format!("column {at}")), c.ceiling.unwrap_or(0), steps)
        })
        .collect();
    let mut world = World { columns, responses: vec![], sampled: vec![], epochs: vec![], counted, begin };
    let mut stream = draw("life");
    let refresh = life.refresh_ms as i64 * 1_000_000;
    let history = [1u128 << 44, 1 << 50, if life.slow { 0 } else { stream.below(1 << 32).into() }];
    let mut epochs = vec![0u32; 3];
    let mut bases: Vec<(u128, u128)> = history.iter().map(|h| (*h, 0)).collect(); // value and true count when it began
    let mut mark = 0u64;
    // Also an agent whose uptime is about to wrap.
    let mut boot =
        begin - if stream.chance(0.5) { 42_949_672_960_000_000 - 30 * SECOND } else { SECOND * 5_000 };
    let phase = stream.below(refresh.max(1) as u64) as i64;
    let mut cache: Option<(i64, Vec<u64>, u64, Vec<u32>)> = None;
    let (mut due, mut free) = (begin + 10 * SECOND, 0);
    let thousandth = |stream: &mut Stream, chance: u64| stream.below(1_000) < chance;
    for _ in 0..life.polls {
        due += period;
        if thousandth(&mut stream, life.late) {
            due += period * stream.below(4) as i64;
        }
        let mut asked = (due + stream.below(2_000_000) as i64).max(free + 1);
        if thousandth(&mut stream, life.late) {
            asked += stream.below(period as u64) as i64;
        }
        // What happened since the last poll happened here, at the earliest a second and a half before the request.
        let event = free.max(asked - stream.below(period as u64 / 2 + 1) as i64);
        let restart = thousandth(&mut stream, life.restart) && event - boot > 3 * SECOND;
        let reset = restart && thousandth(&mut stream, life.reset);
        if restart {
            boot = event;
            cache = None;
        }
        let anew = |bases: &mut Vec<(u128, u128)>, at: usize, value: u128| {
            bases[at] = (value, world.count(at, event))
        };
        for at in 0..3 {
            let unsaid = at < 2 && thousandth(&mut stream, life.unsaid);
            let said = thousandth(&mut stream, life.discontinuity);
            if reset || said || unsaid {
                // Each goes back by more than it grows between two answers, so that it can be told; of a restart it is
                // enough that one does.
                let now = bases[at].0 + world.count(at, event) - bases[at].1;
                if unsaid && !said && !reset && now < 1 << 37 {
                    continue;
                }
                let back = now.saturating_sub(1 << 36);
                let value = if said { (1 << 44) + u128::from(stream.below(1 << 40)) } else { back };
                anew(&mut bases, at, if reset && at != 1 { 0 } else { value });
                epochs[at] += 1;
                cache = None;
                mark = if said { mark + 1 } else { mark };
                if said {
                    // One discontinuity time for the whole object.
                    (0..3).filter(|other| *other != at).for_each(|other| {
                        anew(&mut bases, other, 1 << 44);
                        epochs[other] += 1;
                    });
                    break;
                }
            }
        }
        let flight = stream.below(30_000_000) as i64;
        let served = asked + stream.below(flight as u64 + 1) as i64;
        let values = |at: i64| -> Vec<u64> {
            let value = |c: usize| (bases[c].0 + world.count(c, at) - bases[c].1) as u64;
            vec![value(0), value(1), value(2) & 0xffff_ffff]
        };
        let fresh = |at: i64| Some((at, values(at), mark, epochs.clone()));
        let expired = |at: i64| {
            if life.on_demand {
                served - at >= refresh
            } else {
                (served - phase) / refresh.max(1) != (at - phase) / refresh.max(1)
            }
        };
        if cache.as_ref().is_none_or(|(at, ..)| refresh == 0 || expired(*at)) {
            let begun = boot.max(event);
            let at = if refresh == 0 || life.on_demand {
                served
            } else {
                (served - phase) / refresh * refresh + phase
            };
            cache = fresh(if at < begun { served } else { at });
        }
        let (at, values, mark, then) = cache.clone().expect("it is filled");
        free = served + stream.below(flight as u64 + 1) as i64 + 1;
        let lost = thousandth(&mut stream, life.lost);
        let mut values: Vec<Option<Raw>> = values.into_iter().chain([mark]).map(|v| Some(Raw(v))).collect();
        values.push(Some(Raw::gauge(stream.below(100) as i64 - 50)));
        if thousandth(&mut stream, life.absent) {
            values[2 * stream.below(2) as usize] = None; // never the one that shows
        }
        let uptime = Some(((served - boot) / 10_000_000) as u64 as u32);
        let answer = Answer { answered: Moment(free), uptime, values };
        world.sampled.push((!lost).then_some(at));
        world.epochs.push(then);
        world.responses.push(Response {
            due: Moment(due),
            asked: Moment(asked),
            answer: (!lost).then_some(answer),
        });
    }
    world
}

pub fn told(life: &Life) -> Duration {
    Duration::from_millis(life.refresh_ms)
}

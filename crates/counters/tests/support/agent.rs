//! A simulated SNMP agent with known traffic and the faults of real agents (delays, cache, 32-bit wraps, restarts),
//! and its poller.

use std::time::Duration;

use trunkline_counters::counter::{Answer, Column, RawValue, Response, Timestamp, ValueKind};
use trunkline_units::{Seed, random::Stream};

const SECOND: i64 = 1_000_000_000;
/// Shortest time between changes of the traffic rate, in nanoseconds.
pub const RATE_STEP: i64 = SECOND / 4;

/// The random behaviour of the agent and its poller.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub seed: u64,
    pub polls: usize,
    pub period_ms: u64,
    /// The refresh period of the cache, and whether it refreshes periodically or when it is polled.
    pub refresh_ms: u64,
    pub on_demand: bool,
    /// Probabilities per poll in thousandths: restart of the agent, of its counters as well, discontinuity of an
    /// object, unannounced reset of a counter, lost answer, answer without the object, late or skipped poll.
    pub restart: u64,
    pub reset: u64,
    pub discontinuity: u64,
    pub unannounced_reset: u64,
    pub lost: u64,
    pub absent: u64,
    pub late: u64,
    /// Whether 32-bit counters never wrap.
    pub no_wrap: bool,
}

/// The simulated polls with the true counts, which only the test knows.
pub struct Simulation {
    pub columns: Vec<Column>,
    pub responses: Vec<Response>,
    /// When the values of each response were sampled; `None` without an answer.
    pub sampled_at: Vec<Option<i64>>,
    /// Epoch of each column at each response; it changes whenever the counter is reset.
    pub epochs: Vec<Vec<u32>>,
    counted: Vec<Vec<u128>>,
    pub begin: i64,
}

impl Simulation {
    /// Returns the true count of a column up to a given time.
    pub fn count(&self, column: usize, at: i64) -> u128 {
        let steps = &self.counted[column];
        let offset = (at - self.begin).max(0);
        let (step, rest) = ((offset / RATE_STEP) as usize, (offset % RATE_STEP) as u128);
        let low = steps[step.min(steps.len() - 1)];
        let high = steps[(step + 1).min(steps.len() - 1)];
        low + (high - low) * rest / RATE_STEP as u128
    }

    /// Returns the highest rate of a column per second.
    pub fn peak(&self, column: usize) -> f64 {
        let most = self.counted[column].windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        most as f64 * 1e9 / RATE_STEP as f64
    }
}

/// Returns the columns: a fast 64-bit counter, a slow one with a long history, a 32-bit counter that wraps, a
/// discontinuity time, and a gauge.
pub fn columns() -> Vec<Column> {
    let counter = |kind, ceiling| Column { kind, ceiling: Some(ceiling), discontinuity: Some(3) };
    vec![
        counter(ValueKind::Counter64, 125_000_000),
        counter(ValueKind::Counter64, 1_000_000),
        counter(ValueKind::Counter32, 125_000_000),
        Column::new(ValueKind::Gauge),
        Column::new(ValueKind::Gauge),
    ]
}

/// Generates bursts: constant rates for a while, between zero and the line speed.
fn traffic(stream: &mut Stream, ceiling: u64, steps: usize) -> Vec<u128> {
    let mut counted = vec![0u128];
    let most = u128::from(ceiling) * RATE_STEP as u128 / 1_000_000_000;
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

pub fn simulate(config: &AgentConfig) -> Simulation {
    let mut columns = columns();
    if config.no_wrap {
        columns[2].ceiling = Some(1_000);
    }
    let period = config.period_ms as i64 * 1_000_000;
    let begin = 1_700_000_000 * SECOND;
    let steps = ((2 * config.polls as i64 + 30) * period / RATE_STEP) as usize + 400;
    let draw = |place: &str| Seed(config.seed).stream(place);
    let counted: Vec<Vec<u128>> = columns
        .iter()
        .enumerate()
        .map(|(at, c)| {
            let steps = if c.kind.is_counter() { steps } else { 1 };
            traffic(&mut draw(&format!("column {at}")), c.ceiling.unwrap_or(0), steps)
        })
        .collect();
    let mut simulation =
        Simulation { columns, responses: vec![], sampled_at: vec![], epochs: vec![], counted, begin };
    let mut stream = draw("life");
    let refresh = config.refresh_ms as i64 * 1_000_000;
    let history = [1u128 << 44, 1 << 50, if config.no_wrap { 0 } else { stream.below(1 << 32).into() }];
    let mut epochs = vec![0u32; 3];
    let mut bases: Vec<(u128, u128)> = history.iter().map(|h| (*h, 0)).collect(); // value and true count when it began
    let mut discontinuity = 0u64;
    // Includes agents whose uptime is about to wrap.
    let mut boot =
        begin - if stream.chance(0.5) { 42_949_672_960_000_000 - 30 * SECOND } else { SECOND * 5_000 };
    let phase = stream.below(refresh.max(1) as u64) as i64;
    let mut cache: Option<(i64, Vec<u64>, u64, Vec<u32>)> = None;
    let (mut due, mut free) = (begin + 10 * SECOND, 0);
    let thousandth = |stream: &mut Stream, chance: u64| stream.below(1_000) < chance;
    for _ in 0..config.polls {
        due += period;
        if thousandth(&mut stream, config.late) {
            due += period * stream.below(4) as i64;
        }
        let mut requested_at = (due + stream.below(2_000_000) as i64).max(free + 1);
        if thousandth(&mut stream, config.late) {
            requested_at += stream.below(period as u64) as i64;
        }
        // All events since the last poll happen at this time.
        let event = free.max(requested_at - stream.below(period as u64 / 2 + 1) as i64);
        let restart = thousandth(&mut stream, config.restart) && event - boot > 3 * SECOND;
        let reset = restart && thousandth(&mut stream, config.reset);
        if restart {
            boot = event;
            cache = None;
        }
        let restart_counter = |bases: &mut Vec<(u128, u128)>, at: usize, value: u128| {
            bases[at] = (value, simulation.count(at, event))
        };
        for at in 0..3 {
            let unannounced_reset = at < 2 && thousandth(&mut stream, config.unannounced_reset);
            let announced = thousandth(&mut stream, config.discontinuity);
            if reset || announced || unannounced_reset {
                // Each reset exceeds the growth between two answers, so that it is detectable; after a restart it is
                // enough that one counter decreases.
                let now = bases[at].0 + simulation.count(at, event) - bases[at].1;
                if unannounced_reset && !announced && !reset && now < 1 << 37 {
                    continue;
                }
                let back = now.saturating_sub(1 << 36);
                let value = if announced { (1 << 44) + u128::from(stream.below(1 << 40)) } else { back };
                restart_counter(&mut bases, at, if reset && at != 1 { 0 } else { value });
                epochs[at] += 1;
                cache = None;
                discontinuity = if announced { discontinuity + 1 } else { discontinuity };
                if announced {
                    // All counters of the object share the discontinuity time.
                    (0..3).filter(|other| *other != at).for_each(|other| {
                        restart_counter(&mut bases, other, 1 << 44);
                        epochs[other] += 1;
                    });
                    break;
                }
            }
        }
        let flight = stream.below(30_000_000) as i64;
        let served = requested_at + stream.below(flight as u64 + 1) as i64;
        let values = |at: i64| -> Vec<u64> {
            let value = |c: usize| (bases[c].0 + simulation.count(c, at) - bases[c].1) as u64;
            vec![value(0), value(1), value(2) & 0xffff_ffff]
        };
        let fresh = |at: i64| Some((at, values(at), discontinuity, epochs.clone()));
        let expired = |at: i64| {
            if config.on_demand {
                served - at >= refresh
            } else {
                (served - phase) / refresh.max(1) != (at - phase) / refresh.max(1)
            }
        };
        if cache.as_ref().is_none_or(|(at, ..)| refresh == 0 || expired(*at)) {
            let earliest = boot.max(event);
            let at = if refresh == 0 || config.on_demand {
                served
            } else {
                (served - phase) / refresh * refresh + phase
            };
            cache = fresh(if at < earliest { served } else { at });
        }
        let (at, values, discontinuity, epochs_at_sample) = cache.clone().expect("it is filled");
        free = served + stream.below(flight as u64 + 1) as i64 + 1;
        let lost = thousandth(&mut stream, config.lost);
        let mut values: Vec<Option<RawValue>> =
            values.into_iter().chain([discontinuity]).map(|v| Some(RawValue(v))).collect();
        values.push(Some(RawValue::from_gauge(stream.below(100) as i64 - 50)));
        if thousandth(&mut stream, config.absent) {
            values[2 * stream.below(2) as usize] = None; // never the one that shows
        }
        let uptime = Some(((served - boot) / 10_000_000) as u64 as u32);
        let answer = Answer { answered_at: Timestamp(free), uptime, values };
        simulation.sampled_at.push((!lost).then_some(at));
        simulation.epochs.push(epochs_at_sample);
        simulation.responses.push(Response {
            due_at: Timestamp(due),
            requested_at: Timestamp(requested_at),
            answer: (!lost).then_some(answer),
        });
    }
    simulation
}

pub fn refresh_period(config: &AgentConfig) -> Duration {
    Duration::from_millis(config.refresh_ms)
}

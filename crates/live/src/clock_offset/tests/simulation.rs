//! Two simulated clocks, a path between them, and checks of the estimator against the truth.

use std::collections::{BTreeMap, VecDeque};

use trunkline_units::{Instant, Seed, Stream};

use crate::clock_offset::{
    BILLION, ClockOffset, Exchange, READING_ERROR_PS, Rejected, TWO_QUARTZ_CLOCKS_PPB, WINDOW,
};

const US: i128 = 1_000_000;
const MS: i128 = 1_000 * US;
const S: i128 = 1_000 * MS;
/// Interval between requests.
const INTERVAL: i128 = 39 * MS;

/// A run: all times in picoseconds, drawn from the seed.
#[derive(Clone, Debug)]
pub struct Options {
    length: i128,
    initial_offset: i128,
    /// Initial rates of the clocks in parts per billion, and the largest change in each half second.
    rates: [i64; 2],
    wander: i64,
    steps: Vec<Step>,
    /// Minimum delay and largest queueing delay in the direction to the remote side and back.
    delay: [i128; 2],
    queue: [i128; 2],
    loss: f64,
}

/// A step of a clock: 0 is the local one, 1 the remote one.
#[derive(Clone, Copy, Debug)]
struct Step {
    clock: usize,
    start: i128,
    amount: i128,
    /// The machine is suspended, and its clock stops for `amount`. Otherwise, the clock jumps forward by it.
    is_suspension: bool,
}

impl Step {
    fn end(&self) -> i128 {
        self.start + if self.is_suspension { self.amount } else { 0 }
    }
}

/// Draws from `lowest..=highest`.
fn uniform(stream: &mut Stream, lowest: i128, highest: i128) -> i128 {
    lowest + i128::from(stream.below((highest - lowest + 1) as u64))
}

/// Draws a number whose logarithm is uniform.
fn log_uniform(stream: &mut Stream, lowest: i128, highest: i128) -> i128 {
    let ratio = highest as f64 / lowest as f64;
    (lowest as f64 * ratio.powf(stream.unit())) as i128
}

impl Options {
    /// Ten minutes on a path with a round trip of 200 µs and 10 µs of jitter in each direction. The clocks drift apart as
    /// fast as they may.
    pub fn idle() -> Options {
        Options {
            length: 600 * S,
            initial_offset: -1_234 * S,
            rates: [-100_000, 100_000],
            wander: 0,
            steps: Vec::new(),
            delay: [100 * US; 2],
            queue: [10 * US; 2],
            loss: 0.0,
        }
    }

    pub fn random(seed: u64) -> Options {
        let stream = &mut Seed(seed).stream("clock options");
        // A few runs are longer than the window.
        let length = if seed.is_multiple_of(16) { 40 * S } else { uniform(stream, S, 5 * S) };
        let mut rates = [0, 1].map(|_| uniform(stream, -100_000, 100_000) as i64);
        if stream.chance(0.3) {
            rates = if stream.chance(0.5) { [100_000, -100_000] } else { [-100_000, 100_000] };
        }
        let mut steps = Vec::new();
        let mut start = uniform(stream, length / 8, length / 2);
        for _ in 0..stream.below(3) {
            let (clock, is_suspension) = (stream.below(2) as usize, stream.chance(0.5));
            // Requests continue while the remote machine is suspended, which makes long suspensions slow to simulate.
            let longest = if is_suspension && clock == 1 { 20 * S } else { 300 * S };
            let step = Step { clock, start, amount: log_uniform(stream, MS, longest), is_suspension };
            start = step.end() + uniform(stream, length / 100, length / 2);
            steps.push(step);
        }
        let heavy = |stream: &mut Stream| log_uniform(stream, 100 * US, 50 * MS);
        let queue = match stream.below(4) {
            0 => [5 * US, heavy(stream)],
            1 => [heavy(stream), 5 * US],
            2 => [heavy(stream), heavy(stream)],
            _ => [5 * US, 5 * US],
        };
        Options {
            length: length + steps.iter().map(|step| step.end() - step.start).sum::<i128>(),
            initial_offset: uniform(stream, -3_600 * S, 3_600 * S),
            rates,
            wander: if stream.chance(0.5) { stream.below(4_000) as i64 } else { 0 },
            steps,
            delay: [0, 1].map(|_| log_uniform(stream, 20 * US, 20 * MS)),
            queue,
            loss: if stream.chance(0.5) { stream.unit() * 0.5 } else { 0.0 },
        }
    }
}

/// A clock whose reading is a piecewise linear function of the true time.
struct Clock {
    /// True time of the start, reading there, and rate in parts per billion more than the true time.
    pieces: Vec<(i128, i128, i64)>,
}

impl Clock {
    fn new(reading: i128, number: usize, options: &Options, stream: &mut Stream) -> Clock {
        // The changes at each instant: of the rate (wander), of the reading, and whether the clock runs.
        let mut changes: BTreeMap<i128, Vec<(i64, i128, Option<bool>)>> = BTreeMap::new();
        let mut rate = options.rates[number];
        for at in (1..).map(|n| n * S / 2).take_while(|at| *at < options.length) {
            let wander = stream.below(2 * options.wander as u64 + 1) as i64 - options.wander;
            changes.entry(at).or_default().push((wander, 0, None));
        }
        for step in options.steps.iter().filter(|step| step.clock == number) {
            if step.is_suspension {
                changes.entry(step.start).or_default().push((0, 0, Some(false)));
                changes.entry(step.end()).or_default().push((0, 0, Some(true)));
            } else {
                changes.entry(step.start).or_default().push((0, step.amount, None));
            }
        }
        let mut clock = Clock { pieces: vec![(0, reading, rate)] };
        let mut is_running = true;
        for (at, list) in changes {
            let mut reading = clock.read(at);
            for (wander, jump, runs) in list {
                rate = (rate + wander).clamp(-100_000, 100_000);
                reading += jump;
                is_running = runs.unwrap_or(is_running);
            }
            clock.pieces.push((at, reading, if is_running { rate } else { -(BILLION as i64) }));
        }
        clock
    }

    fn read(&self, at: i128) -> i128 {
        let (start, reading, rate) = self.pieces[self.pieces.partition_point(|piece| piece.0 <= at) - 1];
        reading + (at - start) + ((at - start) * i128::from(rate)).div_euclid(BILLION)
    }

    /// Returns what a program reads: whole nanoseconds.
    fn timestamp(&self, at: i128) -> Instant {
        Instant::from_ns((self.read(at) / 1_000) as u64)
    }
}

enum Event {
    Send,
    /// The true time of the request, and the exchange.
    Receive(i128, Exchange),
    Check,
}

/// What a run checked.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub exchanges: u64,
    pub lost: u64,
    pub rejected: u64,
    pub steps: u64,
    pub found: u64,
    /// Comparisons with the truth, those for which there was no estimate, and those left out after a step.
    pub checks: u64,
    pub unanswered: u64,
    pub exposed: u64,
    /// Comparisons in which the stated interval does not contain the truth.
    pub wrong: u64,
    /// Exchanges after a step that was large enough to be found for certain.
    pub evident: u64,
    /// Exchanges that contradict another one without effect, and steps without reason.
    pub missed: u64,
    pub false_steps: u64,
    pub largest_bound: LargestBound,
}

/// Largest bound after the first exchanges, and minimum round trip without the time at the remote side.
#[derive(Clone, Debug, Default)]
pub struct LargestBound {
    bound: i128,
    round_trip: Option<i128>,
}

impl LargestBound {
    pub fn since_half_round_trip(&self) -> i128 {
        self.bound - self.round_trip.unwrap_or(0) / 2
    }
}

impl Totals {
    pub fn add(&mut self, run: &Totals) {
        let pairs = [
            (&mut self.exchanges, run.exchanges),
            (&mut self.lost, run.lost),
            (&mut self.rejected, run.rejected),
            (&mut self.steps, run.steps),
            (&mut self.found, run.found),
            (&mut self.evident, run.evident),
            (&mut self.checks, run.checks),
            (&mut self.unanswered, run.unanswered),
            (&mut self.exposed, run.exposed),
        ];
        for (sum, value) in pairs {
            *sum += value;
        }
    }
}

pub struct Simulation {
    options: Options,
    clocks: [Clock; 2],
    stream: Stream,
    estimator: ClockOffset,
    events: BTreeMap<(i128, u64), Event>,
    number: u64,
    /// Exchanges since the last step that was found, for an independent search for contradictions.
    stored: VecDeque<Exchange>,
    /// Local time at which the latest reply was received.
    newest: i128,
    /// True time at which a step was last found.
    found_at: i128,
    totals: Totals,
}

impl Simulation {
    pub fn new(seed: u64, options: Options) -> Simulation {
        let mut stream = Seed(seed).stream("clocks");
        let local = 7_200 * S;
        let clocks = [
            Clock::new(local, 0, &options, &mut stream),
            Clock::new(local + options.initial_offset, 1, &options, &mut stream),
        ];
        Simulation {
            clocks,
            stream,
            estimator: ClockOffset::default(),
            events: BTreeMap::new(),
            number: 0,
            stored: VecDeque::new(),
            newest: 0,
            found_at: -1,
            totals: Totals {
                steps: options.steps.iter().filter(|step| step.end() < options.length).count() as u64,
                ..Totals::default()
            },
            options,
        }
    }

    pub fn run(&mut self) -> Totals {
        self.push(0, Event::Send);
        while let Some(((now, _), event)) = self.events.pop_first() {
            if now > self.options.length {
                break;
            }
            match event {
                Event::Send => self.send(now),
                Event::Receive(sent, exchange) => self.receive(sent, now, exchange),
                Event::Check => self.check(now),
            }
        }
        self.totals.found = self.estimator.steps();
        self.totals.clone()
    }

    fn push(&mut self, at: i128, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    /// Returns the instant from which a machine runs: `at`, unless it is suspended.
    fn running(&self, clock: usize, at: i128) -> i128 {
        let covers = |step: &&Step| {
            step.clock == clock && step.is_suspension && (step.start..step.end()).contains(&at)
        };
        self.options.steps.iter().find(covers).map_or(at, Step::end)
    }

    fn delay(&mut self, direction: usize) -> i128 {
        // A queue is often nearly empty.
        let share = self.stream.unit() * self.stream.unit();
        self.options.delay[direction] + (self.options.queue[direction] as f64 * share) as i128
    }

    fn send(&mut self, now: i128) {
        let sent = self.running(0, now);
        let delays = [self.delay(0), self.delay(1)];
        let received_remote = self.running(1, sent + delays[0]);
        let processing = uniform(&mut self.stream, 0, 20 * US);
        let replied_remote = self.running(1, received_remote + processing);
        let received = self.running(0, replied_remote + delays[1]);
        if self.stream.chance(self.options.loss) {
            self.totals.lost += 1;
        } else {
            let exchange = Exchange {
                sent: self.clocks[0].timestamp(sent),
                received_remote: self.clocks[1].timestamp(received_remote),
                replied_remote: self.clocks[1].timestamp(replied_remote),
                received: self.clocks[0].timestamp(received),
            };
            self.push(received, Event::Receive(sent, exchange));
        }
        let next = sent + INTERVAL;
        self.push(next, Event::Send);
        let between = uniform(&mut self.stream, sent, next);
        self.push(between, Event::Check);
    }

    fn receive(&mut self, sent: i128, now: i128, exchange: Exchange) {
        self.totals.exchanges += 1;
        self.check(now);
        let expected = self.contradiction(&exchange);
        let is_evident = self.is_step_evident(sent, now, &exchange);
        let steps = self.estimator.steps();
        match self.estimator.record(exchange) {
            Ok(()) => {
                self.newest = self.newest.max(i128::from(exchange.received.as_ps()));
                let is_found = self.estimator.steps() > steps;
                self.compare(now, is_found, expected);
                self.totals.missed += u64::from(is_evident && !is_found);
                self.totals.evident += u64::from(is_evident);
                match is_found {
                    true => self.stored.clear(),
                    false => self.stored.push_back(exchange),
                }
                let [t1, t2, t3, t4] = readings(&exchange);
                let round_trip = (t4 - t1) - (t3 - t2);
                let minimum = &mut self.totals.largest_bound.round_trip;
                *minimum = Some(minimum.map_or(round_trip, |earlier| earlier.min(round_trip)));
            }
            Err(Rejected::SentTooEarly | Rejected::LongerThanRoundTrip) => {
                // Only a step in flight, a step that was found, or a suspension makes an honest exchange impossible.
                let is_near_step = self.options.steps.iter().any(|step| step.start <= now);
                assert!(is_near_step, "{exchange:?} is refused");
                self.totals.rejected += 1;
            }
            Err(other) => panic!("{exchange:?}: {other}"),
        }
        self.check(now);
    }

    /// Compares a step that was found, or not, with the steps that happened and with the independent search.
    fn compare(&mut self, now: i128, is_found: bool, expected: i128) {
        // Rounding of the estimator is within 10 ps.
        if expected > 10 && !is_found {
            self.totals.missed += 1;
        }
        if !is_found {
            return;
        }
        let is_real = self.options.steps.iter().any(|step| step.start <= now && step.end() > self.found_at);
        if expected <= 0 || !is_real {
            self.totals.false_steps += 1;
        }
        self.found_at = now;
    }

    /// Returns whether the offset is outside of the stated interval by more than the round trip of an exchange that is
    /// completely after a step. Such an exchange reveals the step, whatever the queues.
    fn is_step_evident(&self, sent: i128, received: i128, exchange: &Exchange) -> bool {
        if self.options.steps.iter().any(|step| step.start <= received && step.end() >= sent) {
            return false;
        }
        let round_trip = i128::from(exchange.received.since(exchange.sent).as_ps()) + 4 * READING_ERROR_PS;
        [sent, received].into_iter().any(|at| {
            let local = self.clocks[0].read(at);
            let offset = self.clocks[1].read(at) - local;
            self.estimator.estimate(Instant::from_ps(local as u64)).is_some_and(|estimate| {
                let excess = (offset - estimate.offset_ps).abs() - i128::from(estimate.bound.as_ps());
                // The lower limit of an exchange applies when it is received, the upper one when it is sent.
                excess > round_trip && (offset > estimate.offset_ps) == (at == received)
            })
        })
    }

    /// Returns by how much the exchange contradicts the one that it contradicts most, in picoseconds.
    fn contradiction(&mut self, exchange: &Exchange) -> i128 {
        let sent_before = |one: &Exchange| exchange.received.since(one.sent) > WINDOW;
        self.stored.retain(|one| !sent_before(one));
        let excess = |early: &Exchange, late: &Exchange| {
            let ([t1, t2, ..], [.., t3, t4]) = (readings(early), readings(late));
            let change = (t3 - t4) - (t2 - t1) - 2 * READING_ERROR_PS;
            change - (t4 - t1).abs() * i128::from(TWO_QUARTZ_CLOCKS_PPB) / BILLION
        };
        self.stored.iter().map(|one| excess(one, exchange).max(excess(exchange, one))).max().unwrap_or(0)
    }

    /// Returns whether the bound at the true time `at`, requested at `now`, may be false: a step happened, was not found
    /// yet, and exchanges that were sent before its end are in use.
    fn is_exposed(&self, at: i128, now: i128) -> bool {
        let window = i128::from(WINDOW.as_ps());
        let latest = self.clocks[0].read(at).max(self.newest);
        self.options.steps.iter().filter(|step| step.start <= now).any(|step| {
            let is_found = step.end() <= self.found_at;
            let has_left = latest - self.clocks[0].read(step.end()) > window;
            step.end() > now || !(is_found || has_left)
        })
    }

    /// Compares what the estimator states, of the present and of a moment before, with the truth.
    fn check(&mut self, now: i128) {
        let past = now - uniform(&mut self.stream, 0, now.min(S));
        self.check_at(now, now);
        if self.stream.chance(0.25) {
            self.check_at(past, now);
        }
    }

    fn check_at(&mut self, at: i128, now: i128) {
        if self.running(0, at) != at || self.running(1, at) != at {
            return;
        }
        self.totals.checks += 1;
        if self.is_exposed(at, now) {
            self.totals.exposed += 1;
            return;
        }
        let (local, remote) = (self.clocks[0].read(at), self.clocks[1].read(at));
        let Some(estimate) = self.estimator.estimate(Instant::from_ps(local as u64)) else {
            self.totals.unanswered += u64::from(at == now && now > S);
            return;
        };
        let error = (remote - local - estimate.offset_ps).unsigned_abs();
        let is_true = error <= u128::from(estimate.bound.as_ps());
        if !is_true {
            println!("wrong at {at} ({now}): {estimate:?}; true local {local}, remote {remote}");
        }
        self.totals.wrong += u64::from(!is_true);
        if at == now && self.totals.exchanges >= 8 {
            let largest = &mut self.totals.largest_bound.bound;
            *largest = (*largest).max(i128::from(estimate.bound.as_ps()));
        }
    }
}

/// Returns t1, t2, t3 and t4.
fn readings(exchange: &Exchange) -> [i128; 4] {
    let Exchange { sent, received_remote, replied_remote, received } = *exchange;
    [sent, received_remote, replied_remote, received].map(|instant| i128::from(instant.as_ps()))
}

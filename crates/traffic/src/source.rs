//! Generates the messages of one connection: a state machine that returns when each is due and how large it is. Afterwards
//! it compares the sent traffic with the requested distributions.
//!
//! It never waits and reads no clock, so the same source drives sockets and the simulator. A sender calls
//! [`Source::next`] until it returns [`Step::Done`]: it sends the message of a [`Step::Send`], reports the departure of the
//! first message of each burst with [`Source::departed`], and calls again after the time of a [`Step::Wait`].
//!
//! | module | contents |
//! | --- | --- |
//! | `comparison` | [`LawFit`]; the rate that is requested, and the comparison of what was sent |

mod comparison;

use serde::{Deserialize, Serialize};
use trunkline_units::{Instant, Seed, Span};

use crate::application::{Driver, Outcome};
use crate::variate::{MIN_PERIOD, VariateGenerator};
use crate::{Burst, Law, Pattern, Recording, Sample, Variable, VariableError};

pub use comparison::LawFit;

/// How long after its time limit a source that is late may still send messages that were due before the limit.
const GRACE: Span = Span::from_ms(10);

/// Items of an application model that were due and not sent are counted up to this number, because each must be drawn.
const MOST_SKIPPED_ITEMS: u64 = 1 << 20;

/// Why a pattern has no source.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// A parameter of a random variable.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// A parameter of an application model.
    #[error("`{parameter}`: {error}")]
    Parameter {
        /// Its name.
        parameter: &'static str,
        /// What is wrong with its value.
        error: VariableError,
    },
}

/// What the sender has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this message now.
    Send(Message),
    /// Wait: nothing is due before this instant.
    Wait(Instant),
    /// Stop: the last message has been sent.
    Done,
}

/// One message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its length in bytes.
    pub size: u32,
    /// Bytes of the requested response; 0: none.
    pub response: u32,
    /// When it is due.
    pub due: Instant,
    /// Whether it is the first of its burst.
    pub first: bool,
}

/// When a source ends: at the first limit that is reached. Without a limit it never ends, except `stairs`, which ends after
/// the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// After this time.
    pub time: Option<Span>,
    /// After exactly this number of message bytes.
    pub bytes: Option<u64>,
    /// After this number of messages.
    pub messages: Option<u64>,
}

/// Bytes of the shortest message: its header carries sequence number, send time and check. Sizes of application models are drawn
/// at or above this, over every transport.
pub const SMALLEST_MESSAGE: u32 = 32;

/// Message sizes that the transport supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smaller sizes are raised to this.
    pub smallest: u32,
    /// Larger sizes are reduced to this.
    pub largest: u32,
    /// Larger responses are reduced to this.
    pub largest_response: u32,
}

impl Bounds {
    /// Creates bounds that are the same for messages and responses.
    pub const fn new(smallest: u32, largest: u32) -> Bounds {
        Bounds { smallest, largest, largest_response: largest }
    }
}

/// When bursts are due.
#[derive(Debug)]
enum Schedule {
    /// At full speed: the next message is due at once.
    Unpaced,
    /// Periodically; the period in seconds may be random.
    Periods {
        period: VariateGenerator,
        /// Whether a burst is skipped if the next one is already due.
        skip: bool,
    },
    /// Evenly spaced messages at one rate after the other, each for the time `hold`.
    Stairs { rates_bps: Vec<f64>, hold: Span },
    /// Recorded messages, of which `index` is the next. Times are divided by `scale`.
    Replay { recording: Recording, scale: f64, index: usize },
    /// Items of an application model.
    Application(Box<Driver>),
}

/// Generates the messages of one connection.
#[derive(Debug)]
pub struct Source {
    start: Instant,
    schedule: Schedule,
    sizes: VariateGenerator,
    counts: VariateGenerator,
    responses: Option<VariateGenerator>,
    bounds: Bounds,
    limit: Limit,
    /// The end of the time limit or of the last step of `stairs`; [`Instant::MAX`] if there is neither.
    end: Instant,
    /// Whether the next message is due exactly when the next burst is: the source is paced and has only a time limit.
    is_predictable: bool,
    /// Messages of the current burst that are still to be sent.
    burst_remaining: u32,
    /// When the current burst was due.
    burst_due: Instant,
    /// When the next burst is due.
    next_due: Instant,
    /// The size of the next message, if it is drawn already (`stairs` derives the gap from it).
    next_size: Option<u32>,
    bytes: u64,
    messages: u64,
    bursts_skipped: u64,
    /// Bytes of items of an application model that were due and not sent.
    bytes_skipped: u64,
    bursts_late: u64,
    /// Period and size of a regular source: predictable, with a constant period and single messages of a constant size.
    regular: Option<(Span, u32)>,
    /// Gaps between departures of bursts: seconds, or for `stairs` the ratio to the requested gap.
    gaps: Sample,
    /// Number of further gaps, all equal to the period of a regular source, that are not in `gaps` yet.
    regular_gaps: u64,
    /// The gap requested between the current and the next burst.
    requested_gap: Span,
    /// When the first message of the latest burst departed.
    last_departure: Option<Instant>,
}

impl Source {
    /// Creates the source of a pattern from `start` on. Its random streams are `NAME / gap`, `NAME / size` and so on, where
    /// `name` is the name of the connection.
    ///
    /// # Errors
    /// Returns [`SourceError`] for an invalid variable or an application model.
    pub fn new(
        pattern: &Pattern,
        limit: Limit,
        bounds: Bounds,
        start: Instant,
        seed: Seed,
        name: &str,
    ) -> Result<Source, SourceError> {
        let stream_name = |quantity: &str| format!("{name} / {quantity}");
        let single = Variable::Constant(1.0);
        // Set for each item of an application model, or message of a recording.
        let per_item = Variable::Constant(1.0);
        let periods = |period: &Variable, skip| -> Result<Schedule, VariableError> {
            let period = VariateGenerator::new(period, 0.0, seed, &stream_name("gap"))?;
            Ok(Schedule::Periods { period, skip })
        };
        let mut once = seed.stream(&stream_name("once"));
        let mut draw_once =
            |v: &Variable| -> Result<f64, VariableError> { Ok(Law::new(v.clone(), 0.0)?.sample(&mut once)) };
        let (schedule, size, count, response) = match pattern {
            Pattern::Full { size_bytes } | Pattern::File { size_bytes, .. } => {
                (Schedule::Unpaced, size_bytes, &single, None)
            }
            Pattern::Request { request_bytes, response_bytes } => {
                (Schedule::Unpaced, request_bytes, &single, Some(response_bytes))
            }
            Pattern::Cbr { burst: Burst { size_bytes, count }, period_s } => {
                (periods(period_s, false)?, size_bytes, count, None)
            }
            Pattern::Burst { burst: Burst { size_bytes, count }, period_s } => {
                (periods(period_s, true)?, size_bytes, count, None)
            }
            Pattern::Random { burst: Burst { size_bytes, count }, min_period_s, max_period_s } => {
                let (a, b) = (draw_once(min_period_s)?, draw_once(max_period_s)?);
                let period = if a < b { Variable::Uniform { a, b } } else { Variable::Constant(a) };
                (periods(&period, false)?, size_bytes, count, None)
            }
            Pattern::Poisson { size_bytes, rate_per_s } => {
                let mean = 1.0 / draw_once(rate_per_s)?;
                (periods(&Variable::Exponential { mean }, false)?, size_bytes, &single, None)
            }
            Pattern::Stairs { size_bytes, rates_bps, hold_s } => {
                let rates_bps = rates_bps.iter().map(&mut draw_once).collect::<Result<_, _>>()?;
                let hold = Span::from_seconds(draw_once(hold_s)?);
                (Schedule::Stairs { rates_bps, hold }, size_bytes, &single, None)
            }
            Pattern::Replay { recording, scale, .. } => {
                let schedule = Schedule::Replay { recording: recording.clone(), scale: *scale, index: 0 };
                (schedule, &per_item, &single, None)
            }
            Pattern::Application { model, size_bytes, .. } => {
                let driver =
                    Driver::of_pattern(pattern, bounds, start, seed, name).expect("an application model");
                let driver =
                    driver.map_err(|(parameter, error)| SourceError::Parameter { parameter, error })?;
                let response = (model.definition().max_outstanding > 0).then_some(&per_item);
                (Schedule::Application(Box::new(driver)), size_bytes, &single, response)
            }
        };
        let last_step_ends = match &schedule {
            Schedule::Stairs { rates_bps, hold } => start + *hold * rates_bps.len() as u64,
            _ => Instant::MAX,
        };
        let is_paced = !matches!(schedule, Schedule::Unpaced);
        let generator = |variable: &Variable, quantity: &str| {
            VariateGenerator::new(variable, 1.0, seed, &stream_name(quantity))
        };
        let mut source = Source {
            start,
            end: limit.time.map_or(Instant::MAX, |time| start + time).min(last_step_ends),
            is_predictable: is_paced
                && limit.messages.is_none()
                && limit.bytes.is_none()
                && response.is_none(),
            sizes: generator(size, "size")?,
            counts: generator(count, "count")?,
            responses: response.map(|variable| generator(variable, "response")).transpose()?,
            schedule,
            bounds,
            limit,
            burst_remaining: 0,
            burst_due: start,
            next_due: start,
            next_size: None,
            bytes: 0,
            messages: 0,
            bursts_skipped: 0,
            bytes_skipped: 0,
            bursts_late: 0,
            regular: None,
            gaps: Sample::new(seed.stream(&stream_name("gap / sample"))),
            regular_gaps: 0,
            requested_gap: Span::ZERO,
            last_departure: None,
        };
        // A Poisson process has no message at its origin; every other pattern begins with one.
        if let (Pattern::Poisson { .. }, Schedule::Periods { period, .. }) = (pattern, &mut source.schedule) {
            source.next_due = start + period.span();
        }
        if let Schedule::Application(driver) = &source.schedule {
            source.next_due = driver.next_due();
        }
        source.regular = source.period_and_size();
        Ok(source)
    }

    /// Returns period and size of a regular source, see [`Source::regular`].
    fn period_and_size(&self) -> Option<(Span, u32)> {
        let Schedule::Periods { period: VariateGenerator { constant: Some((_, period)), .. }, .. } =
            self.schedule
        else {
            return None;
        };
        let ((size, _), (count, _)) = (self.sizes.constant?, self.counts.constant?);
        let is_regular = self.is_predictable && self.responses.is_none() && count <= 1;
        is_regular.then_some((period, size.max(self.bounds.smallest).min(self.bounds.largest)))
    }

    /// Returns what to do at `now`. Calling it again at the same time, without a message in between, changes nothing.
    #[inline(always)]
    pub fn next(&mut self, now: Instant) -> Step {
        if self.limit.messages.is_some_and(|n| self.messages >= n)
            || self.limit.bytes.is_some_and(|n| self.bytes >= n)
        {
            return Step::Done;
        }
        let mut first = false;
        if self.burst_remaining == 0 {
            match self.begin_burst(now) {
                Some(Step::Send(_)) | None => first = true,
                Some(step) => return step,
            }
        }
        if now > self.end + GRACE {
            self.skip_remaining(self.end, first);
            return Step::Done;
        }
        let size = match self.next_size.take() {
            Some(size) => size,
            None => self.draw_size(),
        };
        let size = self.fit_to_limit(size);
        let response = match &mut self.responses {
            // The last message of an item requests the response; items of a model may request none.
            Some(responses)
                if self.burst_remaining == 1 && responses.constant.is_none_or(|(size, _)| size > 0) =>
            {
                responses.integer(self.bounds.smallest, self.bounds.largest_response)
            }
            _ => 0,
        };
        self.burst_remaining -= 1;
        self.messages += 1;
        self.bytes += u64::from(size);
        Step::Send(Message { size, response, due: self.burst_due, first })
    }

    /// Returns the message of a regular source that is due exactly at `now`, and records its departure: a faster form of
    /// [`next`](Source::next) and [`departed`](Source::departed). Returns `None` in all other cases; then call `next`.
    #[inline(always)]
    pub fn on_time(&mut self, now: Instant) -> Option<Message> {
        let (period, size) = self.regular?;
        if now != self.next_due || now >= self.end {
            return None;
        }
        self.next_due = now + period;
        self.messages += 1;
        self.bytes += u64::from(size);
        match self.last_departure.replace(now) {
            Some(last) if last + period == now => self.regular_gaps += 1,
            Some(last) => self.push_gap(now.since(last).as_s()),
            None => {}
        }
        Some(Message { size, response: 0, due: now, first: true })
    }

    /// Returns when the next message is due, if that is certain and later than `now`. Draws nothing and changes nothing.
    /// Returns `None` in all other cases; then call [`next`](Source::next).
    #[inline]
    pub fn due_after(&self, now: Instant) -> Option<Instant> {
        let is_later = now < self.next_due && self.next_due < self.end;
        (self.is_predictable && self.burst_remaining == 0 && is_later).then_some(self.next_due)
    }

    /// Counts the bursts that were due before the time limit and will not be sent as skipped. `has_begun`: so is the
    /// current burst, of which nothing was sent.
    #[cold]
    fn skip_remaining(&mut self, end: Instant, has_begun: bool) {
        self.bursts_skipped += u64::from(has_begun);
        if let (Schedule::Application(_), Some((rest, _))) = (&self.schedule, self.sizes.constant) {
            let messages = u64::from(std::mem::take(&mut self.burst_remaining));
            let first = self.next_size.take().unwrap_or(rest);
            self.bytes_skipped += u64::from(first) + u64::from(rest) * messages.saturating_sub(1);
        }
        while self.next_due < end {
            self.bursts_skipped += 1;
            let gap = match &mut self.schedule {
                Schedule::Unpaced => return,
                Schedule::Application(driver) => {
                    if self.bursts_skipped >= MOST_SKIPPED_ITEMS {
                        return;
                    }
                    let Some((pieces, _)) = driver.begin() else { return };
                    self.bytes_skipped += pieces.bytes();
                    driver.next_due().since(self.next_due)
                }
                Schedule::Periods { period, .. } => period.span(),
                Schedule::Stairs { .. } | Schedule::Replay { .. } => self.other_gap(),
            };
            self.next_due += gap;
        }
    }

    /// Returns size and number of equal messages, at most `max_count`, that an unpaced sender may send at once. Returns
    /// `None` if messages differ or are paced, and at the end; then call [`next`](Source::next).
    #[inline]
    pub fn batch(&mut self, now: Instant, max_count: u64) -> Option<(u32, u64)> {
        let are_equal = matches!(self.schedule, Schedule::Unpaced)
            && self.sizes.law.is_constant()
            && self.responses.is_none();
        if !are_equal || now < self.start || now >= self.end {
            return None;
        }
        let size = self.draw_size();
        // The last message may have to be shorter: it is left to `next`.
        let complete = |bytes: u64| (bytes / u64::from(size)).saturating_sub(1);
        // A limit below the smallest message is exceeded by the first message.
        let by_bytes = self.limit.bytes.map_or(u64::MAX, |n| complete(n.saturating_sub(self.bytes)));
        let by_messages = self.limit.messages.map_or(max_count, |n| n - self.messages);
        let count = max_count.min(by_bytes).min(by_messages);
        self.messages += count;
        self.bytes += count * u64::from(size);
        (count > 0).then_some((size, count))
    }

    #[inline]
    fn draw_size(&mut self) -> u32 {
        self.sizes.integer(self.bounds.smallest, self.bounds.largest)
    }

    /// Begins the next burst if it is due. Returns `None` if a burst has begun, otherwise what to do instead.
    #[inline(always)]
    fn begin_burst(&mut self, now: Instant) -> Option<Step> {
        loop {
            if let Schedule::Unpaced = self.schedule {
                if now >= self.end {
                    return Some(Step::Done);
                }
                (self.burst_due, self.burst_remaining) = (now.max(self.start), 1);
                return (now < self.start).then(|| {
                    self.burst_remaining = 0;
                    Step::Wait(self.start)
                });
            }
            if self.next_due >= self.end {
                return Some(self.end_or_await(now));
            }
            if now < self.next_due {
                return Some(Step::Wait(self.next_due));
            }
            let (gap, skip) = match &mut self.schedule {
                Schedule::Periods { period, skip } => (period.span(), *skip),
                _ => (self.other_gap(), false),
            };
            let due = self.next_due;
            self.next_due = due + gap;
            if skip && now >= self.next_due {
                self.bursts_skipped += 1;
                continue;
            }
            let lateness = now.since(due);
            if lateness > Span::from_us(50) && lateness > gap / 10 {
                self.bursts_late += 1;
            }
            (self.burst_due, self.burst_remaining) = (due, self.counts.integer(1, u32::MAX));
            return None;
        }
    }

    /// Returns what to do when nothing is due before the end: a model may still wait for a response.
    #[cold]
    fn end_or_await(&self, now: Instant) -> Step {
        match &self.schedule {
            Schedule::Application(driver) if driver.awaits_feedback() && now < self.end => {
                Step::Wait(self.end)
            }
            _ => Step::Done,
        }
    }

    /// Returns the gap after the message or item that is due: the item of a model is begun, and split into messages.
    #[inline(never)]
    fn other_gap(&mut self) -> Span {
        let bounds = self.bounds;
        if let Schedule::Application(driver) = &mut self.schedule {
            let Some((pieces, response)) = driver.begin() else { return MIN_PERIOD };
            self.counts.set_integer(pieces.count);
            self.sizes.set_integer(pieces.rest);
            self.next_size = Some(pieces.first);
            self.responses.iter_mut().for_each(|responses| responses.set_integer(response));
            return driver.next_due().since(self.next_due);
        }
        if let Schedule::Replay { recording, scale, index } = &mut self.schedule {
            let message = |index: usize| recording.messages().get(index).copied();
            self.next_size = message(*index).map(|(_, size)| size.clamp(bounds.smallest, bounds.largest));
            *index += 1;
            // Relative to the start, so that rounding does not accumulate.
            let due = message(*index)
                .map_or(Instant::MAX, |(at, _)| self.start + Span::from_seconds(at as f64 / 1e9 / *scale));
            return due.since(self.next_due);
        }
        let size = *self.next_size.get_or_insert_with(|| self.sizes.integer(bounds.smallest, bounds.largest));
        let Schedule::Stairs { rates_bps, hold } = &self.schedule else { return MIN_PERIOD };
        let step = self.next_due.since(self.start).as_ps() / hold.as_ps().max(1);
        let rate = rates_bps.get(step as usize).or(rates_bps.last()).copied().unwrap_or(1.0);
        Span::from_seconds(f64::from(size) * 8.0 / rate).max(MIN_PERIOD)
    }

    /// Shortens or extends the last message so that a limit in bytes is met exactly.
    #[inline]
    fn fit_to_limit(&self, size: u32) -> u32 {
        let Some(limit) = self.limit.bytes else { return size };
        let remaining = limit - self.bytes;
        let after_this = remaining.saturating_sub(u64::from(size));
        if after_this > 0
            && after_this < u64::from(self.bounds.smallest)
            && remaining <= u64::from(self.bounds.largest)
        {
            return remaining as u32; // the rest would be too small for another message
        }
        u64::from(size).min(remaining).max(u64::from(self.bounds.smallest)) as u32
    }

    /// Records the departure of the first message of a burst. Gaps between departures are compared with the requested
    /// distribution.
    #[inline(always)]
    pub fn departed(&mut self, at: Instant) {
        let requested_gap = std::mem::replace(&mut self.requested_gap, self.next_due.since(self.burst_due));
        let Some(last) = self.last_departure.replace(at) else { return self.item_departed(at) };
        let gap = at.since(last);
        match self.schedule {
            Schedule::Unpaced => {}
            Schedule::Periods { .. } => self.push_gap(gap.as_s()),
            // Messages of one time have no ratio.
            Schedule::Replay { .. } if requested_gap.is_zero() => {}
            Schedule::Stairs { .. } | Schedule::Replay { .. } => {
                self.push_gap(gap.as_s() / requested_gap.as_s());
            }
            Schedule::Application(_) => self.item_departed(at),
        }
    }

    #[inline(never)]
    fn item_departed(&mut self, at: Instant) {
        if let Schedule::Application(driver) = &mut self.schedule {
            driver.departed(at);
        }
    }

    /// Hands the outcome of a request to an application model, which may set the time of the next item.
    pub fn feedback(&mut self, outcome: &Outcome) {
        if let Schedule::Application(driver) = &mut self.schedule {
            driver.feedback(outcome);
            self.next_due = driver.next_due();
        }
    }

    /// Returns the gauges of an application model.
    pub fn gauges(&self) -> Vec<(&'static str, f64)> {
        if let Schedule::Application(driver) = &self.schedule { driver.gauges() } else { Vec::new() }
    }

    /// Returns the counters of an application model.
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        if let Schedule::Application(driver) = &self.schedule { driver.counters() } else { Vec::new() }
    }

    #[inline(always)]
    fn push_gap(&mut self, gap: f64) {
        if let Some((period, _)) = self.regular {
            self.gaps.push_repeated(period.as_s(), std::mem::take(&mut self.regular_gaps));
        }
        self.gaps.push(gap);
    }

    /// Returns the number of messages and bytes so far.
    pub fn sent(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Returns the sending time: from the start until the time limit, or until the next burst would be due. `last` is the
    /// departure of the last message; at full speed the sending time ends there.
    pub fn sending_time(&self, last: Instant) -> Span {
        let planned_end = match (&self.schedule, self.limit.time) {
            (Schedule::Unpaced, _) => last,
            (_, Some(_)) if self.next_due >= self.end => self.end,
            // Nothing follows.
            _ if self.next_due == Instant::MAX => last,
            _ => self.next_due,
        };
        planned_end.max(last).since(self.start)
    }

    /// Returns the numbers of skipped and of late bursts. A late burst was sent after its due time by more than a tenth of
    /// the period or 50 µs, whichever is greater.
    pub fn skipped_and_late(&self) -> (u64, u64) {
        (self.bursts_skipped, self.bursts_late)
    }
}

#[cfg(test)]
mod tests;

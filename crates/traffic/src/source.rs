//! Generates the messages of one connection: a state machine that returns when each is due and how large it is. Afterwards
//! it compares the sent traffic with the requested distributions.
//!
//! It never waits and reads no clock, so the same source drives sockets and the simulator. A sender calls
//! [`Source::next`] until it returns [`Step::Done`]: it sends the message of a [`Step::Send`], reports the departure of the
//! first message of each burst with [`Source::departed`], and calls again after the time of a [`Step::Wait`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trunkline_units::{Instant, Seed, Span};

use crate::application::{Driver, Outcome};
use crate::variate::{MIN_PERIOD, VariateGenerator};
use crate::{Burst, GoodnessOfFit, Law, Pattern, Recording, Rounding, Sample, Variable, VariableError};

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

/// Message sizes that the transport supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smaller sizes are raised to this.
    pub smallest: u32,
    /// Larger sizes are reduced to this.
    pub largest: u32,
}

/// The requested distribution of a variable compared with the sent values.
#[derive(Clone, Debug)]
pub struct LawFit {
    /// The variable: `gap`, `size`, `count`, `response`, or a parameter of an application model.
    pub name: &'static str,
    /// The requested distribution as text: `exponential(1 ms)`.
    pub law: String,
    /// Unit of the means and of the curve: `us`, `bytes`, `bps`, `messages`, `count`, `number`, or `ratio` (actual gap over
    /// requested gap).
    pub unit: &'static str,
    /// Mean of the distribution; `None` if it is infinite.
    pub requested_mean: Option<f64>,
    /// Mean of the sent values; 0 if there are none.
    pub sent_mean: f64,
    /// Distance, p-value and curve.
    pub goodness_of_fit: GoodnessOfFit,
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
        // Set for each item of an application model.
        let none = Variable::Constant(1.0);
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
                (schedule, &none, &single, None)
            }
            Pattern::Application { model, size_bytes, .. } => {
                let driver =
                    Driver::of_pattern(pattern, bounds, start, seed, name).expect("an application model");
                let driver =
                    driver.map_err(|(parameter, error)| SourceError::Parameter { parameter, error })?;
                let response = (model.definition().max_outstanding > 0).then_some(&none);
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
                responses.integer(self.bounds.smallest, self.bounds.largest)
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
        while self.next_due < end {
            self.bursts_skipped += 1;
            let gap = match &mut self.schedule {
                Schedule::Unpaced => return,
                Schedule::Application(driver) => {
                    if self.bursts_skipped >= MOST_SKIPPED_ITEMS || driver.begin().is_none() {
                        return;
                    }
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

    /// Returns all gaps, including [`Source::regular_gaps`].
    fn all_gaps(&self) -> Cow<'_, Sample> {
        let Some((period, _)) = self.regular.filter(|_| self.regular_gaps > 0) else {
            return Cow::Borrowed(&self.gaps);
        };
        let mut gaps = self.gaps.clone();
        gaps.push_repeated(period.as_s(), self.regular_gaps);
        Cow::Owned(gaps)
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

    /// Returns the requested rate of message bytes in bits per second; `None` at full speed, or if a mean is infinite.
    pub fn offered_bps(&self) -> Option<f64> {
        match &self.schedule {
            Schedule::Unpaced => None,
            Schedule::Application(driver) => driver.offered_bps(),
            Schedule::Replay { recording, scale, .. } => {
                let seconds = recording.duration().as_s() / scale;
                (seconds > 0.0).then(|| recording.total() as f64 * 8.0 / seconds)
            }
            Schedule::Periods { period, .. } => {
                Some(self.sizes.law.mean()? * self.counts.law.mean()? * 8.0 / period.law.mean()?)
            }
            Schedule::Stairs { rates_bps, hold } => {
                let total = self.end.since(self.start);
                let bits: f64 = rates_bps
                    .iter()
                    .enumerate()
                    .map(|(i, rate)| rate * (*hold).min(total - *hold * i as u64).as_s())
                    .sum();
                Some(bits / total.as_s())
            }
        }
    }

    /// Compares the sent values of each variable with its distribution: gaps first, then all other random variables.
    pub fn fits(&self) -> Vec<LawFit> {
        let mut all = Vec::new();
        let seconds = |s: f64| Span::from_seconds(s).to_string();
        let gaps = self.all_gaps();
        match &self.schedule {
            Schedule::Periods { period, .. } => {
                let mut fit = LawFit::new("gap", "us", &period.law, &gaps, Rounding::None, seconds);
                fit.scale(1e6);
                all.push(fit);
            }
            Schedule::Stairs { .. } | Schedule::Replay { .. } => {
                let law = Law::new(Variable::Constant(1.0), 0.0).expect("a constant is a law");
                all.push(LawFit::new("gap", "ratio", &law, &gaps, Rounding::None, |x| x.to_string()));
            }
            Schedule::Unpaced => {}
            Schedule::Application(driver) => return driver.fits(),
        }
        let variables = [
            ("size", "bytes", Some(&self.sizes)),
            ("count", "messages", Some(&self.counts)),
            ("response", "bytes", self.responses.as_ref()),
        ];
        for (name, unit, generator) in variables {
            if let Some(g) = generator.filter(|g| !g.law.is_constant()) {
                all.push(LawFit::new(name, unit, &g.law, &g.sample, Rounding::Integer, |x| x.to_string()));
            }
        }
        all
    }
}

impl LawFit {
    pub(crate) fn new(
        name: &'static str,
        unit: &'static str,
        law: &Law,
        sample: &Sample,
        rounding: Rounding,
        format: impl Fn(f64) -> String,
    ) -> LawFit {
        LawFit {
            name,
            law: law.variable().describe(format),
            unit,
            requested_mean: law.mean(),
            sent_mean: sample.mean().unwrap_or(0.0),
            goodness_of_fit: sample.goodness_of_fit(law, rounding),
        }
    }

    /// Changes the unit of all values.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.requested_mean = self.requested_mean.map(|m| m * factor);
        self.sent_mean *= factor;
        self.goodness_of_fit.curve.iter_mut().for_each(|point| point.0 *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Bounds = Bounds { smallest: 32, largest: 65_507 };
    const START: Instant = Instant::from_ns(5_000);

    fn source(pattern: &Pattern, limit: Limit) -> Source {
        Source::new(pattern, limit, ANY, START, Seed::default(), "a-b").unwrap()
    }

    fn constant(x: f64) -> Variable {
        Variable::Constant(x)
    }

    fn burst(size: f64, count: f64) -> Burst {
        Burst { size_bytes: constant(size), count: constant(count) }
    }

    /// Returns all messages of a source whose sender is never late.
    fn send_all(source: &mut Source) -> Vec<Message> {
        let (mut now, mut sent) = (Instant::ZERO, Vec::new());
        loop {
            match source.next(now) {
                Step::Send(m) => {
                    if m.first {
                        source.departed(now);
                    }
                    sent.push(m);
                }
                Step::Wait(until) => {
                    assert!(until > now, "a wait must end later");
                    now = until;
                }
                Step::Done => return sent,
            }
        }
    }

    fn seconds(s: u64) -> Limit {
        Limit { time: Some(Span::from_s(s)), ..Limit::default() }
    }

    #[test]
    fn replay_has_the_sizes_and_the_scaled_times() {
        let messages = vec![(7_000, 100), (7_000, 8), (1_007_000, 70_000), (1_007_003, 500)];
        let recording = Recording::new(messages).unwrap();
        let request = crate::RecordingRequest {
            path: "x".into(),
            column: String::new(),
            filter: String::new(),
            values: crate::recording::RecordedValues::Sizes,
            message_bytes: 1_400.0,
        };
        for (scale, times) in [(1.0, [0, 0, 1_000_000, 1_000_003]), (10.0, [0, 0, 100_000, 100_000])] {
            let pattern = Pattern::Replay {
                request: request.clone(),
                recording: recording.clone(),
                scale,
                size_bytes: constant(70_000.0),
            };
            let mut s = source(&pattern, Limit::default());
            let sent = send_all(&mut s);
            assert_eq!(sent.iter().map(|m| m.size).collect::<Vec<_>>(), [100, 32, 65_507, 500]);
            let due: Vec<u64> = sent.iter().map(|m| m.due.since(START).as_ns()).collect();
            assert_eq!(due, times);
            let last = sent.last().unwrap().due;
            assert_eq!(s.sending_time(last), last.since(START));
            assert_eq!(s.fits()[0].goodness_of_fit.distance, 0.0);
            let rate = 70_608.0 * 8.0 / (1_000_003e-9 / scale);
            assert!((s.offered_bps().unwrap() / rate - 1.0).abs() < 1e-9);
            // A limit ends it earlier.
            let limit = Limit { time: Some(Span::from_us(50)), ..Limit::default() };
            assert_eq!(send_all(&mut source(&pattern, limit)).len(), 2);
        }
    }

    #[test]
    fn cbr_sends_a_burst_every_period() {
        // Figure 9 of NetSpec (1996): 5 messages of 18,432 bytes every 20 ms are 36.864 Mb/s.
        let mut s =
            source(&Pattern::Cbr { burst: burst(18_432.0, 5.0), period_s: constant(0.02) }, seconds(10));
        let sent = send_all(&mut s);
        assert_eq!(sent.len(), 500 * 5);
        assert_eq!(s.sending_time(sent.last().unwrap().due), Span::from_s(10));
        assert_eq!(s.offered_bps(), Some(36_864_000.0));
        assert!(sent.chunks(5).enumerate().all(|(i, b)| {
            b.iter().all(|m| m.due == START + Span::from_ms(20) * i as u64) && b[0].first && !b[1].first
        }));
        let fits = s.fits();
        assert_eq!((fits.len(), fits[0].name, fits[0].goodness_of_fit.distance), (1, "gap", 0.0));
        assert!((fits[0].sent_mean - 20_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_late_cbr_catches_up_and_a_late_burst_is_skipped() {
        for (skip, want) in [(false, 100), (true, 50)] {
            let (burst, period_s) = (burst(100.0, 1.0), constant(0.01));
            let pattern =
                if skip { Pattern::Burst { burst, period_s } } else { Pattern::Cbr { burst, period_s } };
            let mut s = source(&pattern, seconds(1));
            let mut count = 0;
            // The sender is delayed for the first half.
            let mut now = START + Span::from_ms(505);
            loop {
                match s.next(now) {
                    Step::Send(_) => count += 1,
                    Step::Wait(until) => now = until,
                    Step::Done => break,
                }
            }
            assert_eq!((count, s.skipped_and_late().0), (want, 100 - want));
        }
    }

    #[test]
    fn due_messages_that_were_not_sent_are_counted() {
        // The sender is delayed for the last third, until after the end.
        let mut s = source(&Pattern::Cbr { burst: burst(1000.0, 1.0), period_s: constant(0.01) }, seconds(1));
        let (mut now, mut count, mut last) = (START, 0, START);
        loop {
            match s.next(now) {
                Step::Send(_) => (count, last) = (count + 1, now),
                Step::Wait(until) if until >= START + Span::from_ms(660) => now = START + Span::from_ms(1100),
                Step::Wait(until) => now = until,
                Step::Done => break,
            }
        }
        assert_eq!((count, s.skipped_and_late().0), (66, 34));
        assert_eq!(s.sending_time(last), Span::from_s(1));
    }

    #[test]
    fn a_limit_in_bytes_is_met_exactly() {
        // The transfer of 14 million bytes of NetSpec (1996), and a remainder too small for a separate message.
        for (size, bytes) in [(65_000.0, 14_000_000), (1000.0, 10_010), (1000.0, 100)] {
            let limit = Limit { bytes: Some(bytes), ..Limit::default() };
            let sent = send_all(&mut source(&Pattern::Full { size_bytes: constant(size) }, limit));
            assert_eq!(sent.iter().map(|m| u64::from(m.size)).sum::<u64>(), bytes);
            assert!(sent.iter().all(|m| m.size >= ANY.smallest));
        }
    }

    #[test]
    fn batches_and_single_messages_add_up() {
        for (size, bytes) in [(1400.0, 14_000_000), (1000.0, 10_010)] {
            let limit = Limit { bytes: Some(bytes), ..Limit::default() };
            let mut s = source(&Pattern::Full { size_bytes: constant(size) }, limit);
            let mut sent = 0;
            loop {
                if let Some((size, count)) = s.batch(START, 46) {
                    assert!(count <= 46);
                    sent += u64::from(size) * count;
                } else if let Step::Send(m) = s.next(START) {
                    sent += u64::from(m.size);
                } else {
                    break;
                }
            }
            assert_eq!(sent, bytes);
        }
        let mut s = source(&Pattern::Full { size_bytes: constant(1400.0) }, seconds(1));
        assert_eq!(s.batch(START, 46), Some((1400, 46)));
        assert_eq!(s.batch(START + Span::from_s(1), 46), None);
        let mut s = source(
            &Pattern::Full { size_bytes: constant(1400.0) },
            Limit { messages: Some(50), ..Limit::default() },
        );
        assert_eq!(
            (s.batch(START, 46), s.batch(START, 46), s.batch(START, 46)),
            (Some((1400, 46)), Some((1400, 4)), None)
        );
    }

    #[test]
    fn stairs_hold_each_rate() {
        let rates_bps = vec![constant(1e6), constant(2e6)];
        let pattern = Pattern::Stairs { size_bytes: constant(1250.0), rates_bps, hold_s: constant(3.0) };
        let mut s = source(&pattern, Limit::default());
        let sent = send_all(&mut s);
        let half = START + Span::from_s(3);
        assert_eq!(sent.iter().filter(|m| m.due < half).count(), 300);
        assert_eq!(sent.iter().filter(|m| m.due >= half).count(), 600);
        assert_eq!(s.offered_bps(), Some(1.5e6));
        assert!(s.fits()[0].goodness_of_fit.distance < 1e-9);
    }

    #[test]
    fn poisson_traffic_is_poisson_and_depends_only_on_seed_and_name() {
        let pattern = Pattern::Poisson {
            size_bytes: Variable::Uniform { a: 100.0, b: 200.0 },
            rate_per_s: constant(1e3),
        };
        let mut s = source(&pattern, seconds(20));
        let sent = send_all(&mut s);
        assert!((19_500..20_500).contains(&sent.len()), "{}", sent.len());
        for LawFit { name, goodness_of_fit, .. } in s.fits() {
            assert!(goodness_of_fit.p_value.unwrap() > 0.001, "{name} {:?}", goodness_of_fit.p_value);
        }
        assert_eq!(send_all(&mut source(&pattern, seconds(20))), sent);
        let other = Source::new(&pattern, seconds(20), ANY, START, Seed::default(), "a-c");
        assert_ne!(send_all(&mut other.unwrap()), sent);
    }

    proptest::proptest! {
        /// The sender is sometimes late.
        #[test]
        fn on_time_is_equivalent_to_next_and_departed(
            period_us in 1u64..200,
            size in 1u32..70_000,
            skip in proptest::bool::ANY,
            late_us in proptest::collection::vec(proptest::option::weighted(0.2, 0u64..500), 0..80),
        ) {
            let (burst, period_s) = (burst(size.into(), 1.0), constant(period_us as f64 / 1e6));
            let pattern = match skip {
                true => Pattern::Burst { burst, period_s },
                false => Pattern::Cbr { burst, period_s },
            };
            let limit = Limit { time: Some(Span::from_us(25 * period_us)), ..Limit::default() };
            let (mut fast, mut plain) = (source(&pattern, limit), source(&pattern, limit));
            let mut now = START;
            for late in late_us {
                now += Span::from_us(late.unwrap_or(0));
                let step = plain.next(now);
                if let Step::Send(_) = step {
                    plain.departed(now);
                }
                let other = fast.on_time(now).map(Step::Send).unwrap_or_else(|| {
                    let step = fast.next(now);
                    if let Step::Send(_) = step {
                        fast.departed(now);
                    }
                    step
                });
                assert_eq!(step, other);
                assert_eq!(plain.due_after(now), fast.due_after(now));
                if let Step::Wait(until) = step {
                    now = until;
                }
            }
            let results = |s: &Source| {
                let fit = s.fits().remove(0);
                (s.sent(), s.sending_time(now), s.skipped_and_late(), fit.sent_mean, fit.goodness_of_fit)
            };
            assert_eq!(results(&plain), results(&fast));
        }
    }

    #[test]
    fn unpaced_patterns_wait_only_for_their_start_and_obey_every_limit() {
        let full = Pattern::Full { size_bytes: constant(1400.0) };
        let mut s = source(&full, Limit { messages: Some(3), ..Limit::default() });
        assert_eq!(s.next(Instant::ZERO), Step::Wait(START));
        assert_eq!(send_all(&mut s).len(), 3);
        let mut s = source(&full, seconds(1));
        assert!(matches!(s.next(START), Step::Send(_)));
        assert_eq!(s.next(START + Span::from_s(1)), Step::Done);
        let request = Pattern::Request { request_bytes: constant(1.0), response_bytes: constant(1e9) };
        let Step::Send(m) = source(&request, seconds(1)).next(START) else { panic!("a message is due") };
        assert_eq!((m.size, m.response), (ANY.smallest, ANY.largest));
    }
}

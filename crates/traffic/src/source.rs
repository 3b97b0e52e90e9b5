//! The messages of one connection, one by one: a state machine that knows when each is due and how large it is,
//! and afterwards how well what left matches what was asked.
//!
//! It never waits and reads no clock, so the same source drives sockets and the simulator.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trunkline_units::{Instant, Seed, Span};

use crate::{Application, Burst, Fitness, Law, Pattern, Rounding, Sample, Variable, VariableError};

/// How long after its time limit a source that is behind may still send what was due before it.
const GRACE: Span = Span::from_ms(10);
/// A period drawn shorter than this counts as this, so that time always advances.
const SHORTEST_PERIOD: Span = Span::from_ns(1);

/// Why a pattern gives no source.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// A parameter of a random variable.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// An application model that is more than one stream of messages.
    #[error("the application model {0:?} is not a single stream of messages")]
    Application(Application),
}

/// What a source says when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this now.
    Send(Message),
    /// Nothing is due before this moment.
    Wait(Instant),
    /// The last message has been sent.
    Done,
}

/// One message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its length in bytes.
    pub size: u32,
    /// Bytes of the answer it asks for; 0 unless the pattern is `request`.
    pub response: u32,
    /// When it should leave.
    pub due: Instant,
    /// Whether it is the first of its burst.
    pub first: bool,
}

/// When a source ends, whichever comes first. All-none never ends (but `stairs` ends after its last step).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// After this long.
    pub time: Option<Span>,
    /// After this many message bytes, exactly.
    pub bytes: Option<u64>,
    /// After this many messages.
    pub messages: Option<u64>,
}

/// Sizes a message may have on its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A smaller draw is raised to this.
    pub smallest: u32,
    /// A larger draw is cut to this.
    pub largest: u32,
}

/// How well one law of the traffic was kept.
#[derive(Clone, Debug)]
pub struct LawCheck {
    /// `gap`, `size`, `count` or `response`.
    pub name: &'static str,
    /// The law, for people: `exponential(1 ms)`.
    pub law: String,
    /// Unit of the means and of the curve: `us`, `bytes`, `messages`, or `ratio` (gap sent over gap asked).
    pub unit: &'static str,
    /// Mean of the law; none if infinite.
    pub asked_mean: Option<f64>,
    /// Mean of what left; 0 if nothing did.
    pub sent_mean: f64,
    /// Distance, p-value, curve.
    pub fitness: Fitness,
}

/// Draws of one law, and what became of them.
#[derive(Debug)]
struct Drawn {
    law: Law,
    draws: trunkline_units::Stream,
    sample: Sample,
    /// What a constant law gives, rounded to a whole number and as a span.
    constant: Option<(u32, Span)>,
}

impl Drawn {
    fn new(variable: &Variable, floor: f64, seed: Seed, place: &str) -> Result<Self, VariableError> {
        let mut drawn = Drawn {
            law: Law::new(variable.clone(), floor)?,
            draws: seed.stream(place),
            sample: Sample::new(seed.stream(&format!("{place} / sample"))),
            constant: None,
        };
        if drawn.law.is_constant() {
            let x = drawn.draw();
            drawn.constant = Some((x.round() as u32, Span::from_seconds(x).max(SHORTEST_PERIOD)));
        }
        Ok(drawn)
    }

    #[inline]
    fn draw(&mut self) -> f64 {
        self.law.sample(&mut self.draws)
    }

    /// A whole number within bounds; counted unless the law is constant.
    #[inline(always)]
    fn whole(&mut self, smallest: u32, largest: u32) -> u32 {
        match self.constant {
            Some((x, _)) => x.max(smallest).min(largest),
            None => self.draw_whole(smallest, largest),
        }
    }

    #[inline(never)]
    fn draw_whole(&mut self, smallest: u32, largest: u32) -> u32 {
        let x = (self.draw().round() as u32).clamp(smallest, largest);
        self.sample.push(f64::from(x));
        x
    }

    #[inline]
    fn span(&mut self) -> Span {
        match self.constant {
            Some((_, span)) => span,
            None => self.draw_span(),
        }
    }

    #[inline(never)]
    fn draw_span(&mut self) -> Span {
        Span::from_seconds(self.draw()).max(SHORTEST_PERIOD)
    }
}

/// When bursts start.
#[derive(Debug)]
enum Schedule {
    /// The next message may be sent immediately.
    Free,
    /// The period between bursts has this law, in seconds.
    Periods {
        period: Drawn,
        /// Skip a burst if the next one is due.
        skip: bool,
    },
    /// Evenly spaced messages at one rate after another.
    Stairs { rates_bps: Vec<f64>, hold: Span },
}

/// The messages of one connection.
#[derive(Debug)]
pub struct Source {
    start: Instant,
    gait: Schedule,
    sizes: Drawn,
    counts: Drawn,
    responses: Option<Drawn>,
    bounds: Bounds,
    limit: Limit,
    /// When the time limit, or the last step of `stairs`, ends; [`Instant::MAX`]: neither does.
    end: Instant,
    /// It is paced and ends at a time, if at all: when the next burst is due is when the next message is.
    foreseen: bool,
    /// Messages left of the burst that is being sent, and when that burst was due.
    in_burst: u32,
    due: Instant,
    /// When the next burst is due.
    next: Instant,
    /// The size already drawn for the next message (`stairs` needs it to space messages).
    ready: Option<u32>,
    bytes: u64,
    messages: u64,
    skipped: u64,
    late: u64,
    /// Every burst is one message of this size, one such period after the other, until a time if at all.
    regular: Option<(Span, u32)>,
    /// Gaps between bursts as they left: seconds, or for `stairs` the ratio to the gap asked.
    gaps: Sample,
    /// How many more there were last, each of the regular period.
    regular_gaps: u64,
    asked_gap: Span,
    last_burst: Option<Instant>,
}

impl Source {
    /// A source of `pattern` from `start` on. Its random streams are named after `place`, the connection's name.
    pub fn new(
        pattern: &Pattern,
        limit: Limit,
        bounds: Bounds,
        start: Instant,
        seed: Seed,
        place: &str,
    ) -> Result<Source, SourceError> {
        let named = |what: &str| format!("{place} / {what}");
        let single = Variable::Constant(1.0);
        let periods = |period: &Variable, skip| -> Result<Schedule, VariableError> {
            Ok(Schedule::Periods { period: Drawn::new(period, 0.0, seed, &named("gap"))?, skip })
        };
        let mut once = seed.stream(&named("once"));
        let mut fixed =
            |v: &Variable| -> Result<f64, VariableError> { Ok(Law::new(v.clone(), 0.0)?.sample(&mut once)) };
        let (gait, size, count, response) = match pattern {
            Pattern::Full { size_bytes } | Pattern::File { size_bytes, .. } => {
                (Schedule::Free, size_bytes, &single, None)
            }
            Pattern::Request { request_bytes, response_bytes } => {
                (Schedule::Free, request_bytes, &single, Some(response_bytes))
            }
            Pattern::Cbr { burst: Burst { size_bytes, count }, period_s } => {
                (periods(period_s, false)?, size_bytes, count, None)
            }
            Pattern::Burst { burst: Burst { size_bytes, count }, period_s } => {
                (periods(period_s, true)?, size_bytes, count, None)
            }
            Pattern::Random { burst: Burst { size_bytes, count }, min_period_s, max_period_s } => {
                let (a, b) = (fixed(min_period_s)?, fixed(max_period_s)?);
                let period = if a < b { Variable::Uniform { a, b } } else { Variable::Constant(a) };
                (periods(&period, false)?, size_bytes, count, None)
            }
            Pattern::Poisson { size_bytes, rate_per_s } => {
                let mean = 1.0 / fixed(rate_per_s)?;
                (periods(&Variable::Exponential { mean }, false)?, size_bytes, &single, None)
            }
            Pattern::Stairs { size_bytes, rates_bps, hold_s } => {
                let rates_bps = rates_bps.iter().map(&mut fixed).collect::<Result<_, _>>()?;
                let hold = Span::from_seconds(fixed(hold_s)?);
                (Schedule::Stairs { rates_bps, hold }, size_bytes, &single, None)
            }
            Pattern::Application { model, .. } => return Err(SourceError::Application(*model)),
        };
        let stairs = match &gait {
            Schedule::Stairs { rates_bps, hold } => start + *hold * rates_bps.len() as u64,
            _ => Instant::MAX,
        };
        let mut source = Source {
            start,
            end: limit.time.map_or(Instant::MAX, |time| start + time).min(stairs),
            foreseen: !matches!(gait, Schedule::Free) && limit.messages.is_none() && limit.bytes.is_none(),
            sizes: Drawn::new(size, 1.0, seed, &named("size"))?,
            counts: Drawn::new(count, 1.0, seed, &named("count"))?,
            responses: response.map(|v| Drawn::new(v, 1.0, seed, &named("response"))).transpose()?,
            gait,
            bounds,
            limit,
            in_burst: 0,
            due: start,
            next: start,
            ready: None,
            bytes: 0,
            messages: 0,
            skipped: 0,
            late: 0,
            regular: None,
            gaps: Sample::new(seed.stream(&named("gap / sample"))),
            regular_gaps: 0,
            asked_gap: Span::ZERO,
            last_burst: None,
        };
        // A Poisson process has no message at its origin; every other pattern begins with one.
        if let (Pattern::Poisson { .. }, Schedule::Periods { period, .. }) = (pattern, &mut source.gait) {
            source.next = start + period.span();
        }
        source.regular = source.regularity();
        Ok(source)
    }

    fn regularity(&self) -> Option<(Span, u32)> {
        let Schedule::Periods { period: Drawn { constant: Some((_, period)), .. }, .. } = self.gait else {
            return None;
        };
        let ((size, _), (count, _)) = (self.sizes.constant?, self.counts.constant?);
        let regular = self.foreseen && self.responses.is_none() && count <= 1;
        regular.then_some((period, size.max(self.bounds.smallest).min(self.bounds.largest)))
    }

    /// What to do now. Between two sends, asking again changes nothing.
    #[inline(always)]
    pub fn next(&mut self, now: Instant) -> Step {
        if self.limit.messages.is_some_and(|n| self.messages >= n)
            || self.limit.bytes.is_some_and(|n| self.bytes >= n)
        {
            return Step::Done;
        }
        let mut first = false;
        if self.in_burst == 0 {
            match self.begin_burst(now) {
                Some(Step::Send(_)) | None => first = true,
                Some(step) => return step,
            }
        }
        if now > self.end + GRACE {
            self.give_up(self.end, first);
            return Step::Done;
        }
        let size = match self.ready.take() {
            Some(size) => size,
            None => self.draw_size(),
        };
        let size = self.fit_to_limit(size);
        let response = match &mut self.responses {
            Some(responses) => responses.whole(self.bounds.smallest, self.bounds.largest),
            None => 0,
        };
        self.in_burst -= 1;
        self.messages += 1;
        self.bytes += u64::from(size);
        Step::Send(Message { size, response, due: self.due, first })
    }

    /// The message of a regular source that is due at this very moment and leaves now: what [`next`](Source::next) and
    /// [`departed`](Source::departed) do, in one step. None says that `next` has the word.
    #[inline(always)]
    pub fn on_time(&mut self, now: Instant) -> Option<Message> {
        let (period, size) = self.regular?;
        if now != self.next || now >= self.end {
            return None;
        }
        self.next = now + period;
        self.messages += 1;
        self.bytes += u64::from(size);
        match self.last_burst.replace(now) {
            Some(last) if last + period == now => self.regular_gaps += 1,
            Some(last) => self.push_gap(now.since(last).as_s()),
            None => {}
        }
        Some(Message { size, response: 0, due: now, first: true })
    }

    /// If nothing is due yet, when the next message is. Asking draws nothing and changes nothing; none says that
    /// [`next`](Source::next) has the word.
    #[inline]
    pub fn due_after(&self, now: Instant) -> Option<Instant> {
        let waits = self.foreseen && self.in_burst == 0 && now < self.next && self.next < self.end;
        waits.then_some(self.next)
    }

    /// Counts what was due before the time limit and will not be sent: it was asked for, and did not leave.
    #[cold]
    fn give_up(&mut self, end: Instant, opened: bool) {
        self.skipped += u64::from(opened);
        while self.next < end {
            self.skipped += 1;
            let gap = match &mut self.gait {
                Schedule::Free => return,
                Schedule::Periods { period, .. } => period.span(),
                Schedule::Stairs { .. } => self.stair_gap(),
            };
            self.next += gap;
        }
    }

    /// Up to `most` equal messages at once, for a sender that has no gaps to keep: their size, and how many. None
    /// where messages differ or are paced, and at the end: then [`Source::next`] has the word.
    #[inline]
    pub fn batch(&mut self, now: Instant, most: u64) -> Option<(u32, u64)> {
        let alike =
            matches!(self.gait, Schedule::Free) && self.sizes.law.is_constant() && self.responses.is_none();
        if !alike || now < self.start || now >= self.end {
            return None;
        }
        let size = self.draw_size();
        // A last message that must be cut is left to `next`.
        let whole = |left: u64| (left / u64::from(size)).saturating_sub(1);
        // A limit below the smallest message is passed by the first.
        let by_bytes = self.limit.bytes.map_or(u64::MAX, |n| whole(n.saturating_sub(self.bytes)));
        let by_messages = self.limit.messages.map_or(most, |n| n - self.messages);
        let count = most.min(by_bytes).min(by_messages);
        self.messages += count;
        self.bytes += count * u64::from(size);
        (count > 0).then_some((size, count))
    }

    #[inline]
    fn draw_size(&mut self) -> u32 {
        self.sizes.whole(self.bounds.smallest, self.bounds.largest)
    }

    /// Opens the next burst if it is due: none if it has, else what to say instead.
    #[inline(always)]
    fn begin_burst(&mut self, now: Instant) -> Option<Step> {
        loop {
            if let Schedule::Free = self.gait {
                if now >= self.end {
                    return Some(Step::Done);
                }
                (self.due, self.in_burst) = (now.max(self.start), 1);
                return (now < self.start).then(|| {
                    self.in_burst = 0;
                    Step::Wait(self.start)
                });
            }
            if self.next >= self.end {
                return Some(Step::Done);
            }
            if now < self.next {
                return Some(Step::Wait(self.next));
            }
            let (gap, skip) = match &mut self.gait {
                Schedule::Periods { period, skip } => (period.span(), *skip),
                _ => (self.stair_gap(), false),
            };
            let due = self.next;
            self.next = due + gap;
            if skip && now >= self.next {
                self.skipped += 1;
                continue;
            }
            let late = now.since(due);
            if late > Span::from_us(50) && late > gap / 10 {
                self.late += 1;
            }
            (self.due, self.in_burst) = (due, self.counts.whole(1, u32::MAX));
            return None;
        }
    }

    /// The gap after the message that is due, at the rate of its step.
    #[inline(never)]
    fn stair_gap(&mut self) -> Span {
        let size =
            *self.ready.get_or_insert_with(|| self.sizes.whole(self.bounds.smallest, self.bounds.largest));
        let Schedule::Stairs { rates_bps, hold } = &self.gait else { return SHORTEST_PERIOD };
        let step = self.next.since(self.start).as_ps() / hold.as_ps().max(1);
        let rate = rates_bps.get(step as usize).or(rates_bps.last()).copied().unwrap_or(1.0);
        Span::from_seconds(f64::from(size) * 8.0 / rate).max(SHORTEST_PERIOD)
    }

    /// Cuts the last message so that a limit in bytes is met exactly.
    #[inline]
    fn fit_to_limit(&self, size: u32) -> u32 {
        let Some(limit) = self.limit.bytes else { return size };
        let left = limit - self.bytes;
        let rest = left.saturating_sub(u64::from(size));
        if rest > 0 && rest < u64::from(self.bounds.smallest) && left <= u64::from(self.bounds.largest) {
            return left as u32; // too little would remain for a message of its own
        }
        u64::from(size).min(left).max(u64::from(self.bounds.smallest)) as u32
    }

    /// Needs the departure of the first message of each burst, to compare gaps with the law.
    #[inline(always)]
    pub fn departed(&mut self, at: Instant) {
        let asked = std::mem::replace(&mut self.asked_gap, self.next.since(self.due));
        if let Some(last) = self.last_burst.replace(at) {
            let gap = at.since(last);
            match self.gait {
                Schedule::Free => {}
                Schedule::Periods { .. } => self.push_gap(gap.as_s()),
                Schedule::Stairs { .. } => self.push_gap(gap.as_s() / asked.as_s()),
            }
        }
    }

    #[inline(always)]
    fn push_gap(&mut self, gap: f64) {
        if let Some((period, _)) = self.regular {
            self.gaps.push_run(period.as_s(), std::mem::take(&mut self.regular_gaps));
        }
        self.gaps.push(gap);
    }

    /// The gaps, the last regular ones among them.
    fn all_gaps(&self) -> Cow<'_, Sample> {
        let Some((period, _)) = self.regular.filter(|_| self.regular_gaps > 0) else {
            return Cow::Borrowed(&self.gaps);
        };
        let mut gaps = self.gaps.clone();
        gaps.push_run(period.as_s(), self.regular_gaps);
        Cow::Owned(gaps)
    }

    /// Messages and bytes handed out so far.
    pub fn sent(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// The time the messages handed out so far stand for, given that the last left at `last`: to the limit, or to
    /// when the next burst would have been due.
    pub fn active(&self, last: Instant) -> Span {
        let planned = match (&self.gait, self.limit.time) {
            (Schedule::Free, _) => last,
            (_, Some(_)) if self.next >= self.end => self.end,
            _ => self.next,
        };
        planned.max(last).since(self.start)
    }

    /// Bursts skipped and bursts late (by more than a tenth of their period, or 50 µs if that is more).
    pub fn skipped_and_late(&self) -> (u64, u64) {
        (self.skipped, self.late)
    }

    /// The rate of message bytes asked for, bits per second; none where it is "as fast as it goes" or infinite.
    pub fn offered_bps(&self) -> Option<f64> {
        match &self.gait {
            Schedule::Free => None,
            Schedule::Periods { period, .. } => {
                Some(self.sizes.law.mean()? * self.counts.law.mean()? * 8.0 / period.law.mean()?)
            }
            Schedule::Stairs { rates_bps, hold } => {
                let end = self.end.since(self.start);
                let held: f64 = rates_bps
                    .iter()
                    .enumerate()
                    .map(|(i, rate)| rate * (*hold).min(end - *hold * i as u64).as_s())
                    .sum();
                Some(held / end.as_s())
            }
        }
    }

    /// How well each law was kept: gaps first, then whatever else is random.
    pub fn verdicts(&self) -> Vec<LawCheck> {
        let mut all = Vec::new();
        let us = |s: f64| Span::from_seconds(s).to_string();
        let gaps = self.all_gaps();
        match &self.gait {
            Schedule::Periods { period, .. } => {
                let mut v = verdict("gap", "us", &period.law, &gaps, Rounding::None, us);
                v.scale(1e6);
                all.push(v);
            }
            Schedule::Stairs { .. } => {
                let law = Law::new(Variable::Constant(1.0), 0.0).expect("a constant is a law");
                all.push(verdict("gap", "ratio", &law, &gaps, Rounding::None, |x| x.to_string()));
            }
            Schedule::Free => {}
        }
        let random = [
            ("size", "bytes", Some(&self.sizes)),
            ("count", "messages", Some(&self.counts)),
            ("response", "bytes", self.responses.as_ref()),
        ];
        for (name, unit, drawn) in random {
            if let Some(d) = drawn.filter(|d| !d.law.is_constant()) {
                all.push(verdict(name, unit, &d.law, &d.sample, Rounding::Whole, |x| x.to_string()));
            }
        }
        all
    }
}

fn verdict(
    name: &'static str,
    unit: &'static str,
    law: &Law,
    sample: &Sample,
    rounding: Rounding,
    show: impl Fn(f64) -> String,
) -> LawCheck {
    LawCheck {
        name,
        law: law.variable().describe(show),
        unit,
        asked_mean: law.mean(),
        sent_mean: sample.mean().unwrap_or(0.0),
        fitness: sample.judge(law, rounding),
    }
}

impl LawCheck {
    fn scale(&mut self, factor: f64) {
        self.asked_mean = self.asked_mean.map(|m| m * factor);
        self.sent_mean *= factor;
        self.fitness.curve.iter_mut().for_each(|p| p.0 *= factor);
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

    /// Everything the source sends when time jumps to whatever it waits for.
    fn drive(source: &mut Source) -> Vec<Message> {
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
                    assert!(until > now, "a wait must lead forward");
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
    fn cbr_sends_a_burst_every_period() {
        // Figure 9 of the 1996 report: 5 messages of 18,432 bytes every 20 ms are 36.864 Mb/s.
        let mut s =
            source(&Pattern::Cbr { burst: burst(18_432.0, 5.0), period_s: constant(0.02) }, seconds(10));
        let sent = drive(&mut s);
        assert_eq!(sent.len(), 500 * 5);
        assert_eq!(s.active(sent.last().unwrap().due), Span::from_s(10));
        assert_eq!(s.offered_bps(), Some(36_864_000.0));
        assert!(sent.chunks(5).enumerate().all(|(i, b)| {
            b.iter().all(|m| m.due == START + Span::from_ms(20) * i as u64) && b[0].first && !b[1].first
        }));
        let v = s.verdicts();
        assert_eq!((v.len(), v[0].name, v[0].fitness.distance), (1, "gap", 0.0));
        assert!((v[0].sent_mean - 20_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_late_cbr_catches_up_and_a_late_burst_is_skipped() {
        for (skip, want) in [(false, 100), (true, 50)] {
            let (burst, period_s) = (burst(100.0, 1.0), constant(0.01));
            let pattern =
                if skip { Pattern::Burst { burst, period_s } } else { Pattern::Cbr { burst, period_s } };
            let mut s = source(&pattern, seconds(1));
            let mut count = 0;
            // The machine sleeps through the first half.
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
        // The machine sleeps through the last third, and wakes after the end.
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
        assert_eq!(s.active(last), Span::from_s(1));
    }

    #[test]
    fn a_limit_in_bytes_is_met_exactly() {
        // The 14-million-byte transfer of 1996, and a remainder too small for a separate message.
        for (size, bytes) in [(65_000.0, 14_000_000), (1000.0, 10_010), (1000.0, 100)] {
            let limit = Limit { bytes: Some(bytes), ..Limit::default() };
            let sent = drive(&mut source(&Pattern::Full { size_bytes: constant(size) }, limit));
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
        let sent = drive(&mut s);
        let half = START + Span::from_s(3);
        assert_eq!(sent.iter().filter(|m| m.due < half).count(), 300);
        assert_eq!(sent.iter().filter(|m| m.due >= half).count(), 600);
        assert_eq!(s.offered_bps(), Some(1.5e6));
        assert!(s.verdicts()[0].fitness.distance < 1e-9);
    }

    #[test]
    fn poisson_is_poisson_and_only_its_place_decides() {
        let pattern = Pattern::Poisson {
            size_bytes: Variable::Uniform { a: 100.0, b: 200.0 },
            rate_per_s: constant(1e3),
        };
        let mut s = source(&pattern, seconds(20));
        let sent = drive(&mut s);
        assert!((19_500..20_500).contains(&sent.len()), "{}", sent.len());
        for v in s.verdicts() {
            assert!(v.fitness.p_value.unwrap() > 0.001, "{} {:?}", v.name, v.fitness.p_value);
        }
        assert_eq!(drive(&mut source(&pattern, seconds(20))), sent);
        let other = Source::new(&pattern, seconds(20), ANY, START, Seed::default(), "a-c");
        assert_ne!(drive(&mut other.unwrap()), sent);
    }

    proptest::proptest! {
        /// A sender that is late now and then, and one that does not know of regular sources.
        #[test]
        fn on_time_is_what_next_and_departed_are(
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
            let (mut quick, mut plain) = (source(&pattern, limit), source(&pattern, limit));
            let mut now = START;
            for late in late_us {
                now += Span::from_us(late.unwrap_or(0));
                let step = plain.next(now);
                if let Step::Send(_) = step {
                    plain.departed(now);
                }
                let other = quick.on_time(now).map(Step::Send).unwrap_or_else(|| {
                    let step = quick.next(now);
                    if let Step::Send(_) = step {
                        quick.departed(now);
                    }
                    step
                });
                assert_eq!(step, other);
                assert_eq!(plain.due_after(now), quick.due_after(now));
                if let Step::Wait(until) = step {
                    now = until;
                }
            }
            let told = |s: &Source| {
                let v = &s.verdicts()[0];
                (s.sent(), s.active(now), s.skipped_and_late(), v.sent_mean, v.fitness.clone())
            };
            assert_eq!(told(&plain), told(&quick));
        }
    }

    #[test]
    fn free_patterns_wait_only_for_their_start_and_obey_every_limit() {
        let full = Pattern::Full { size_bytes: constant(1400.0) };
        let mut s = source(&full, Limit { messages: Some(3), ..Limit::default() });
        assert_eq!(s.next(Instant::ZERO), Step::Wait(START));
        assert_eq!(drive(&mut s).len(), 3);
        let mut s = source(&full, seconds(1));
        assert!(matches!(s.next(START), Step::Send(_)));
        assert_eq!(s.next(START + Span::from_s(1)), Step::Done);
        let request = Pattern::Request { request_bytes: constant(1.0), response_bytes: constant(1e9) };
        let Step::Send(m) = source(&request, seconds(1)).next(START) else { panic!("it may begin") };
        assert_eq!((m.size, m.response), (ANY.smallest, ANY.largest));
    }
}

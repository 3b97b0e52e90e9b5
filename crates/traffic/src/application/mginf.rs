//! Sessions of an M/G/∞ queue: Poisson arrivals, heavy-tailed durations, any number at a time.

use trunkline_units::{Instant, Span};

use super::definition::values::{constant, exponential, pareto};
use super::{Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Sessions, Since, Unit};
use crate::law::length_biased::LengthBiased;

pub(super) static MGINF: Definition = Definition {
    name: "mginf",
    summary: "A self-similar aggregate: sessions arrive as a Poisson process and last heavy-tailed times (M/G/∞); each sends a \
              message at its arrival and every period. With Pareto durations of shape α the Hurst exponent is (3 − α) / 2.",
    choice: None,
    parameters: &[
        Parameter::new(
            "interarrival",
            "time between the arrivals of sessions",
            Unit::Seconds,
            || exponential(0.05),
            "exponential: Cox 1984, in Statistics: An Appraisal, p. 55; the rate is a choice",
        )
        .with_mean(),
        Parameter::new(
            "duration",
            "how long a session lasts",
            Unit::Seconds,
            || pareto(1.4, 1.0),
            "Pareto with a shape of 1 to 2: Paxson and Floyd 1995, IEEE/ACM Trans. Netw. 3(3), section VII; the shape is a choice",
        )
        .with_mean(),
        Parameter::new("period", "time between the messages of a session", Unit::Seconds, || constant(1.0), "a choice")
            .constant_within(1e-6, 1e6),
        Parameter::new("message", "a message", Unit::Bytes, || constant(1_000.0), "a choice").with_mean(),
        Parameter::new("maxSessions", "sessions at a time", Unit::Count, || constant(100_000.0), "a choice")
            .constant_within(1.0, 1e6)
            .with_memory(400),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(MgInf::new(start, draws)),
};

/// The lane of session arrivals. Two lanes of each session follow: its first message, and its last one so far.
const ARRIVALS: u32 = 0;

/// Sessions that are drawn for the start at most: more are beyond any limit of sessions.
const MOST_UNDER_WAY: u32 = 1 << 22;

#[derive(Debug)]
struct MgInf {
    interarrival: QuantityId,
    duration: QuantityId,
    period: QuantityId,
    message: QuantityId,
    period_span: Span,
    sessions: Sessions<Session>,
    /// The start, until the sessions that are under way then have been drawn.
    start: Option<Instant>,
    next_arrival: Instant,
    arrival_gap: Option<Interval>,
    /// The last session that was not refused arrived this long before the one before the next.
    refused_for: Span,
}

#[derive(Debug)]
struct Session {
    end: Instant,
    /// The time before the next message, and when it began after the message before: since the arrival before for the first
    /// message, else the period.
    pause: Option<(Interval, i64)>,
    position: Position,
    /// Its duration, unless it was under way at the start.
    duration: Option<Interval>,
}

/// The position of the next message in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    First,
    Second,
    Later,
}

impl MgInf {
    fn new(start: Instant, draws: &Draws) -> MgInf {
        let constant = |name: &str| draws.mean(draws.id(name)).unwrap_or(1.0);
        MgInf {
            interarrival: draws.id("interarrival"),
            duration: draws.id("duration"),
            period: draws.id("period"),
            message: draws.id("message"),
            period_span: Span::from_seconds(constant("period")),
            sessions: Sessions::new(constant("maxSessions") as usize, 0),
            start: Some(start),
            next_arrival: start,
            arrival_gap: None,
            refused_for: Span::ZERO,
        }
    }

    /// Starts the sessions that are under way at the start, so that the process is stationary: their number is Poisson, and the
    /// duration of each is length-biased.
    fn begin(&mut self, start: Instant, draws: &mut Draws) {
        let biased = LengthBiased::new(draws.law(self.duration));
        if let (Some(duration), Some(interarrival), Some(biased)) =
            (draws.mean(self.duration), draws.mean(self.interarrival), biased)
        {
            let mean = duration / interarrival.max(1e-9);
            let stream = draws.stream(self.duration);
            // Arrivals of a Poisson process in a time of `mean`.
            let mut arrived = -libm::log(stream.unit());
            for _ in 0..MOST_UNDER_WAY {
                if arrived >= mean {
                    break;
                }
                let (total, position) = (biased.sample(stream), stream.unit());
                let (age, rest) = (total * position, total * (1.0 - position));
                let period = self.period_span.as_s();
                let next = (libm::floor(age / period) + 1.0) * period - age;
                if next < rest {
                    let end = start + Span::from_seconds(rest);
                    let session = Session { end, pause: None, position: Position::Later, duration: None };
                    if !self.sessions.start(start + Span::from_seconds(next), session) {
                        break;
                    }
                }
                arrived -= libm::log(stream.unit());
            }
        }
        self.schedule_arrival(draws);
    }

    fn schedule_arrival(&mut self, draws: &mut Draws) {
        let gap = draws.interval(self.interarrival);
        self.next_arrival += gap.span();
        self.arrival_gap = Some(gap);
    }

    /// Starts the session that arrives next.
    fn arrive(&mut self, draws: &mut Draws) {
        let gap = self.arrival_gap.take();
        let pause = gap.map(|gap| (gap, self.refused_for.as_ps() as i64));
        let duration = draws.interval(self.duration);
        let end = self.next_arrival + duration.span();
        let session = Session { end, pause, position: Position::First, duration: Some(duration) };
        if self.sessions.start(self.next_arrival, session) {
            self.refused_for = Span::ZERO;
        } else {
            // It has arrived, although it is refused.
            for refused in [gap, Some(duration)].into_iter().flatten() {
                draws.finish(refused, Some(refused.span().as_s()));
            }
            self.refused_for += gap.map_or(Span::ZERO, |gap| gap.span());
        }
        self.schedule_arrival(draws);
    }
}

impl Model for MgInf {
    fn next(&mut self, draws: &mut Draws) -> Next {
        if let Some(start) = self.start.take() {
            self.begin(start, draws);
        }
        while self.sessions.arrives_first(self.next_arrival) {
            self.arrive(draws);
        }
        let (message, period, period_span) = (self.message, self.period, self.period_span);
        let item = self.sessions.advance(|lane, due, session| {
            let mut item = Item::new(due, draws.size(message));
            let (first, last) = (ARRIVALS + 2 * lane + 1, ARRIVALS + 2 * lane + 2);
            let is_first = session.position == Position::First;
            item.lane = if is_first { first } else { last };
            item.second_lane = is_first.then_some(ARRIVALS);
            if let Some((pause, offset)) = session.pause.take() {
                let before = match session.position {
                    Position::First => ARRIVALS,
                    Position::Second => first,
                    Position::Later => last,
                };
                item = item.after(pause, Since::Offset(before, offset));
            }
            session.position = if is_first { Position::Second } else { Position::Later };
            let next = due + period_span;
            if next < session.end {
                session.pause = Some((draws.interval(period), 0));
                return (item, Some(next));
            }
            // No message marks the end of a session: the time after its last message is taken from the drawn end.
            let rest = session.end.since(due);
            match session.duration {
                Some(duration) if is_first => draws.finish(duration, Some(rest.as_s())),
                Some(duration) => item = item.after(duration, Since::Offset(first, -(rest.as_ps() as i64))),
                None => {}
            }
            (item, None)
        });
        item.map_or(Next::End, Next::Item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        let messages = draws.law(self.duration).mean_multiples(self.period_span.as_s())?;
        Some(messages * draws.mean(self.message)? * 8.0 / draws.mean(self.interarrival)?)
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        self.sessions.counters()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::super::sessions::MOST_REFUSED;
    use super::*;

    #[test]
    fn arrivals_without_end_do_not_keep_the_model_from_returning_items() {
        let start = |period, duration| {
            let set =
                [("interarrival", 1e-9), ("duration", duration), ("period", period), ("maxSessions", 1.0)];
            let parameters: Vec<_> =
                set.iter().map(|(name, value)| ((*name).to_owned(), constant(*value))).collect();
            let application = Application::named("mginf").unwrap();
            let draws = Draws::new(application, None, &parameters, Seed(6), "a-b").unwrap();
            (MgInf::new(Instant::ZERO, &draws), draws)
        };
        // 10^12 sessions are under way at the start, and none of them has a message.
        let (mut model, mut draws) = start(1e6, 1e3);
        assert!(matches!(model.next(&mut draws), Next::Item(_)));
        // 10^12 sessions arrive between two messages.
        let (mut model, mut draws) = start(1e3, 1e6);
        for messages in 1..=3 {
            assert!(matches!(model.next(&mut draws), Next::Item(_)));
            let refused = model.sessions.counters()[1].1;
            assert!(
                refused <= f64::from(messages * (MOST_REFUSED + 1)),
                "{refused} after {messages} messages"
            );
        }
    }
}

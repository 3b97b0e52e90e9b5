//! Superposed on-off sources with heavy-tailed periods.

use trunkline_units::{Instant, Span};

use super::definition::values::{constant, pareto};
use super::{Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Sessions, Since, Unit};
use crate::law::length_biased::LengthBiased;

const PAPER: &str = "Pareto with a shape of 1 to 2: Willinger, Taqqu, Sherman and Wilson 1997, IEEE/ACM Trans. Netw. 5(1), section II; the \
     shape is a choice";

pub(super) static ONOFF: Definition = Definition {
    name: "onoff",
    summary: "A self-similar aggregate: independent sources that are alternately on and off for heavy-tailed times; while on, a \
              source sends a message at once and every period. With Pareto times the Hurst exponent is (3 − α) / 2 for the \
              smaller α of both shapes.",
    choice: None,
    parameters: &[
        Parameter::new("sources", "number of sources", Unit::Count, || constant(50.0), "a choice")
            .constant_within(1.0, 100_000.0)
            .with_memory(400),
        Parameter::new("on", "how long a source is on", Unit::Seconds, || pareto(1.4, 1.0), PAPER)
            .with_mean(),
        Parameter::new("off", "how long a source is off", Unit::Seconds, || pareto(1.4, 1.0), PAPER)
            .with_mean(),
        Parameter::new(
            "period",
            "time between the messages of a source that is on",
            Unit::Seconds,
            || constant(1.0),
            "a choice",
        )
        .constant_within(1e-6, 1e6),
        Parameter::new("message", "a message", Unit::Bytes, || constant(1_000.0), "a choice").with_mean(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(OnOff::new(start, draws)),
};

#[derive(Debug)]
struct OnOff {
    on: QuantityId,
    off: QuantityId,
    period: QuantityId,
    message: QuantityId,
    period_span: Span,
    sources: u32,
    /// The start, until the states of the sources there have been drawn.
    start: Option<Instant>,
    queue: Sessions<Source>,
}

/// A source that is on, or off until its next message.
#[derive(Debug)]
struct Source {
    /// When it is off again, if it is on.
    end: Option<Instant>,
    /// How long it is on, unless it was so at the start.
    on: Option<Interval>,
    /// The time before the next message, off or the period, and when it begins after the message before.
    pause: Option<(Interval, i64)>,
}

impl OnOff {
    fn new(start: Instant, draws: &Draws) -> OnOff {
        let constant = |name: &str| draws.mean(draws.id(name)).unwrap_or(1.0);
        let sources = constant("sources") as u32;
        OnOff {
            on: draws.id("on"),
            off: draws.id("off"),
            period: draws.id("period"),
            message: draws.id("message"),
            period_span: Span::from_seconds(constant("period")),
            sources,
            start: Some(start),
            queue: Sessions::new(sources as usize, 0),
        }
    }

    /// Draws the states of the sources at the start, so that the process is stationary: the time under way is length-biased, and
    /// a part of it has passed.
    fn begin(&mut self, start: Instant, draws: &mut Draws) {
        let biased = [self.on, self.off].map(|quantity| LengthBiased::new(draws.law(quantity)));
        let means = [self.on, self.off].map(|quantity| draws.mean(quantity));
        let ([Some(on), Some(off)], [Some(mean_on), Some(mean_off)]) = (biased, means) else { return };
        let period = self.period_span.as_s();
        for _ in 0..self.sources {
            let stream = draws.stream(self.on);
            let (mut due, mut end) = (start, None);
            if stream.chance(mean_on / (mean_on + mean_off)) {
                let (total, position) = (on.sample(stream), stream.unit());
                let (age, rest) = (total * position, total * (1.0 - position));
                let next = (libm::floor(age / period) + 1.0) * period - age;
                let off_at = start + Span::from_seconds(rest);
                if next < rest {
                    (due, end) = (start + Span::from_seconds(next), Some(off_at));
                } else {
                    // Its last message has left; so this time off is not compared.
                    due = off_at + Span::from_seconds(draws.setting(self.off));
                }
            } else {
                let stream = draws.stream(self.off);
                due += Span::from_seconds(off.sample(stream) * stream.unit());
            }
            self.queue.start(due, Source { end, on: None, pause: None });
        }
    }
}

impl Model for OnOff {
    fn next(&mut self, draws: &mut Draws) -> Next {
        if let Some(start) = self.start.take() {
            self.begin(start, draws);
        }
        let OnOff { on, off, period, message, period_span, .. } = *self;
        let item = self.queue.advance(|lane, due, source| {
            let mut item = Item::new(due, draws.size(message));
            // Two lanes: its messages, and the first ones of times on.
            let (last, first) = (2 * lane, 2 * lane + 1);
            let is_first = source.end.is_none();
            item.lane = last;
            item.second_lane = is_first.then_some(first);
            if let Some((pause, offset)) = source.pause.take() {
                item = item.after(pause, Since::Offset(last, offset));
            }
            let end = *source.end.get_or_insert_with(|| {
                let on = source.on.insert(draws.interval(on));
                due + on.span()
            });
            let next = due + period_span;
            if next < end {
                source.pause = Some((draws.interval(period), 0));
                return (item, Some(next));
            }
            // No message marks the end of a time on: the time after its last message is taken from the drawn end.
            let rest = end.since(due);
            match source.on.take() {
                Some(on) if is_first => draws.finish(on, Some(rest.as_s())),
                Some(on) => item = item.after(on, Since::Offset(first, -(rest.as_ps() as i64))),
                None => {}
            }
            let pause = draws.interval(off);
            (source.end, source.pause) = (None, Some((pause, rest.as_ps() as i64)));
            (item, Some(end + pause.span()))
        });
        item.map_or(Next::End, Next::Item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        let messages = draws.law(self.on).mean_multiples(self.period_span.as_s())?;
        let cycle = draws.mean(self.on)? + draws.mean(self.off)?;
        Some(f64::from(self.sources) * messages * draws.mean(self.message)? * 8.0 / cycle)
    }
}

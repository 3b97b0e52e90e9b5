//! Many sensors over one connection: each sends a small message in every period.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use trunkline_units::{Instant, Span};

use super::definition::values::{beta, constant, uniform};
use super::{
    Choice, Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Since, Unit, Variant,
};

const TABLE: &str = "3GPP TR 37.868 V11.0.0, table 6.1.1";

pub(super) static SENSOR: Definition = Definition {
    name: "sensor",
    summary: "Many sensors, each with a message in every period: regular ones with constant phases and jitter, or all at random times.",
    choice: Some(&Choice {
        name: "arrivals",
        variants: &[
            Variant {
                name: "periodic",
                meaning: "each sensor has its own constant phase, uniform over the period, and jitter",
                source: "a choice",
                values: &[],
            },
            Variant {
                name: "uniform",
                meaning: "traffic model 1: not synchronized, uniform over 60 s",
                source: TABLE,
                values: &[("phases", || constant(0.0)), ("jitter", || uniform(0.0, 60.0))],
            },
            Variant {
                name: "beta",
                meaning: "traffic model 2: synchronized by an event, beta (3, 4) over 10 s",
                source: TABLE,
                values: &[("phases", || constant(0.0)), ("jitter", || beta(3.0, 4.0, 10.0))],
            },
        ],
    }),
    parameters: &[
        Parameter::new(
            "sources",
            "sensors",
            Unit::Count,
            || constant(1_000.0),
            "TR 37.868, table 6.1.1: 1,000 to 30,000",
        )
        .constant_within(1.0, 1e6)
        .with_memory(200),
        Parameter::new(
            "period",
            "time between the messages of a sensor",
            Unit::Seconds,
            || constant(60.0),
            "a choice",
        )
        .constant_within(1e-6, 1e7),
        Parameter::new(
            "phases",
            "phases of sensors are uniform from 0 to this",
            Unit::Seconds,
            || constant(60.0),
            "a choice",
        )
        .constant(),
        Parameter::new(
            "jitter",
            "time of a message after the phase of its sensor",
            Unit::Seconds,
            || uniform(0.0, 1.0),
            "a choice",
        )
        .with_mean(),
        Parameter::new("size", "a message", Unit::Bytes, || constant(50.0), "a choice").with_mean(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Sensors::new(start, draws)),
};

/// The next message of a sensor. Ordered by its due time.
#[derive(Clone, Copy, Debug)]
struct Upcoming {
    due: Instant,
    sensor: u32,
    /// The time since the sensor's phase.
    jitter: Interval,
    /// When the sensor's phase begins in this period.
    phase: Instant,
}

impl Ord for Upcoming {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sensor).cmp(&(other.due, other.sensor))
    }
}

impl PartialOrd for Upcoming {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Upcoming {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Upcoming {}

/// The next message of every sensor: 40 bytes each, and as much for its jitter in [`Draws`].
#[derive(Debug)]
struct Sensors {
    period: Span,
    jitter: QuantityId,
    size: QuantityId,
    heap: BinaryHeap<Reverse<Upcoming>>,
    sources: u32,
    start: Instant,
    phases_s: f64,
}

impl Sensors {
    fn new(start: Instant, draws: &Draws) -> Sensors {
        let setting = |name| draws.mean(draws.id(name)).unwrap_or(0.0);
        Sensors {
            period: Span::from_seconds(setting("period")),
            jitter: draws.id("jitter"),
            size: draws.id("size"),
            heap: BinaryHeap::new(),
            sources: setting("sources") as u32,
            start,
            phases_s: setting("phases"),
        }
    }

    /// Adds the message of a sensor in the period that begins at `phase`, but not before `earliest`: with
    /// jitter above the period, a message waits for the one before.
    fn schedule(&mut self, sensor: u32, phase: Instant, earliest: Instant, draws: &mut Draws) {
        let jitter = draws.interval(self.jitter);
        let due = earliest.max(phase + jitter.span());
        self.heap.push(Reverse(Upcoming { due, sensor, jitter, phase }));
    }
}

impl Model for Sensors {
    fn next(&mut self, draws: &mut Draws) -> Next {
        if self.heap.is_empty() {
            for sensor in 0..self.sources {
                let phase = self.start + Span::from_seconds(draws.unit(self.size) * self.phases_s);
                self.schedule(sensor, phase, phase, draws);
            }
        }
        let Some(Reverse(Upcoming { due, sensor, jitter, phase })) = self.heap.pop() else {
            return Next::End;
        };
        self.schedule(sensor, phase + self.period, due, draws);
        Next::Item(Item::new(due, draws.size(self.size)).after(jitter, Since::Event(phase)))
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(f64::from(self.sources) * draws.mean(self.size)? * 8.0 / self.period.as_s())
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::super::definition::values::exponential;
    use super::*;
    use crate::Variable;

    fn start(variant: &str, parameters: &[(&str, Variable)]) -> (Sensors, Draws) {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let application = Application::named("sensor").unwrap();
        let draws = Draws::new(application, Some(variant), &parameters, Seed(6), "a-b").unwrap();
        (Sensors::new(Instant::ZERO, &draws), draws)
    }

    fn dues(model: &mut Sensors, draws: &mut Draws, n: usize) -> Vec<f64> {
        let mut due = || {
            let Next::Item(item) = model.next(draws) else { panic!("an item") };
            assert_eq!(item.size.bytes(), 50);
            item.due.as_s()
        };
        (0..n).map(|_| due()).collect()
    }

    #[test]
    fn every_sensor_sends_once_a_period_and_messages_are_in_order() {
        let (mut model, mut draws) = start("periodic", &[]);
        let dues = dues(&mut model, &mut draws, 100_000);
        assert!(dues.is_sorted());
        // Phases and jitter end 61 s after the start of a period, so each has its 1,000 messages in the same 61 s.
        for period in 1..99 {
            let from = f64::from(period) * 60.0;
            let count = dues.iter().filter(|due| (from..from + 60.0).contains(*due)).count();
            assert!((980..=1_020).contains(&count), "{count}");
        }
        assert_eq!(model.offered_bps(&draws), Some(1_000.0 * 50.0 * 8.0 / 60.0));
        let sent = 100_000.0 * 400.0 / dues[99_999];
        assert!((sent / model.offered_bps(&draws).unwrap() - 1.0).abs() < 0.01, "{sent}");
    }

    #[test]
    fn an_event_brings_all_messages_within_10_s() {
        let (mut model, mut draws) = start("beta", &[]);
        for (i, due) in dues(&mut model, &mut draws, 20_000).into_iter().enumerate() {
            let (period, within) = (i / 1_000, due - 60.0 * (i / 1_000) as f64);
            assert!((0.0..=10.0).contains(&within), "message {i} of period {period}: {within}");
        }
    }

    #[test]
    fn a_million_sensors_are_bounded_and_jitter_above_the_period_keeps_the_order() {
        let (mut model, mut draws) = start("uniform", &[("sources", constant(1e6))]);
        let dues = dues(&mut model, &mut draws, 100_000);
        assert!(dues.is_sorted() && (dues[99_999] - 6.0).abs() < 0.1, "{}", dues[99_999]);
        assert_eq!(model.heap.len(), 1_000_000);
        assert!(size_of::<Upcoming>() <= 40);
        let (mut model, mut draws) = start("periodic", &[("jitter", exponential(600.0))]);
        assert!(super::tests::dues(&mut model, &mut draws, 50_000).is_sorted());
    }
}

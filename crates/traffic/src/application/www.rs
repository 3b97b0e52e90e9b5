//! Web pages: a main object, then its embedded objects one after the other, then a pause to read.

use trunkline_units::{Instant, Span};

use super::definition::values::{
    clamped, constant, exponential, lognormal, mixture, pareto, truncated, weibull,
};
use super::{
    Choice, Definition, Draws, Interval, Item, Model, Next, Outcome, Parameter, QuantityId, Since, Unit,
    Variant,
};
use crate::Variable;

const SURGE: &str =
    "Barford and Crovella 1998, SIGMETRICS, parameters of SURGE (not verified); upper ends are a choice";
/// The end of active and of inactive OFF times of Crovella and Bestavros 1997, seconds.
const OFF_ENDS: (f64, f64) = (1.0, 3_000.0);

/// Bytes of an object of SURGE: 93 % below 133 kB.
fn surge_object() -> Variable {
    let body = truncated(lognormal(9.357, 1.318), 32.0, 133e3);
    mixture(0.93, body, truncated(pareto(1.1, 133e3), 133e3, 100e6))
}

pub(super) static WWW: Definition = Definition {
    name: "www",
    summary: "A user of the web: requests a page's main object, then its embedded objects, and reads. Waits for each response.",
    choice: Some(&Choice {
        name: "model",
        variants: &[
            Variant { name: "surge", meaning: "the user equivalents of SURGE", source: SURGE, values: &[] },
            Variant {
                name: "3gpp",
                meaning: "the HTTP model of 3GPP2 and 3GPP",
                source: "3GPP2 C.R1002-0 (2004), HTTP traffic model; 3GPP TR 25.892, annex A.2.1; as in ThreeGppHttpVariables of ns-3",
                values: &[
                    ("main", || truncated(Variable::Lognormal { mean: 10_710.0, sd: 25_032.0 }, 100.0, 2e6)),
                    ("embedded", || {
                        truncated(Variable::Lognormal { mean: 7_758.0, sd: 126_168.0 }, 50.0, 2e6)
                    }),
                    ("objects", || clamped(pareto(1.1, 2.0), 2.0, 55.0)),
                    ("objectOffset", || constant(2.0)),
                    ("parse", || exponential(0.13)),
                    ("objectGap", || constant(0.0)),
                    ("reading", || exponential(30.0)),
                ],
            },
        ],
    }),
    parameters: &[
        Parameter::new(
            "request",
            "a request",
            Unit::Bytes,
            || constant(350.0),
            "3GPP2 C.R1002-0 (2004), not verified; ns-3 has 328 B",
        )
        .with_mean(),
        Parameter::new("main", "the main object of a page", Unit::Bytes, surge_object, SURGE).with_mean(),
        Parameter::new("embedded", "an embedded object", Unit::Bytes, surge_object, SURGE).with_mean(),
        Parameter::new(
            "objects",
            "embedded objects of a page, plus `objectOffset`",
            Unit::Count,
            || truncated(pareto(2.43, 1.0), 1.0, 1_000.0),
            SURGE,
        )
        .with_mean(),
        Parameter::new(
            "objectOffset",
            "what is subtracted from `objects`",
            Unit::Number,
            || constant(0.0),
            "none in SURGE",
        )
        .constant(),
        Parameter::new(
            "parse",
            "time between the main object and the first embedded request",
            Unit::Seconds,
            || constant(0.0),
            "none in SURGE",
        )
        .with_mean(),
        Parameter::new(
            "objectGap",
            "time between an embedded object and the next request (active OFF time)",
            Unit::Seconds,
            || truncated(weibull(1.46, 0.382), 0.0, OFF_ENDS.0),
            "Barford and Crovella 1998; below 1 s: Crovella and Bestavros 1997 (not verified)",
        )
        .with_mean(),
        Parameter::new(
            "reading",
            "time between pages (inactive OFF time)",
            Unit::Seconds,
            || truncated(pareto(1.5, 1.0), 1.0, OFF_ENDS.1),
            "Barford and Crovella 1998; up to 3000 s: Crovella and Bestavros 1997 (not verified)",
        )
        .with_mean(),
    ],
    max_outstanding: 1,
    needs_stream: true,
    start: |start, draws| Box::new(Www::new(start, draws)),
};

#[derive(Debug)]
struct Www {
    request: QuantityId,
    main: QuantityId,
    embedded: QuantityId,
    objects: QuantityId,
    object_offset: u32,
    parse: QuantityId,
    object_gap: QuantityId,
    reading: QuantityId,
    /// What is requested next; none while a response is awaited.
    next: Option<Request>,
    /// Embedded objects of the page that are not requested yet; none before its main object has arrived.
    remaining: Option<u32>,
    page_due: Instant,
    pages: u64,
    page_times: Span,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    due: Instant,
    object: QuantityId,
    /// The pause before it, and when that began.
    pause: Option<(Interval, Instant)>,
}

impl Www {
    fn new(start: Instant, draws: &Draws) -> Www {
        let main = draws.id("main");
        Www {
            request: draws.id("request"),
            main,
            embedded: draws.id("embedded"),
            objects: draws.id("objects"),
            object_offset: draws.mean(draws.id("objectOffset")).unwrap_or(0.0) as u32,
            parse: draws.id("parse"),
            object_gap: draws.id("objectGap"),
            reading: draws.id("reading"),
            next: Some(Request { due: start, object: main, pause: None }),
            remaining: None,
            page_due: start,
            pages: 0,
            page_times: Span::ZERO,
        }
    }
}

impl Model for Www {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let Some(Request { due, object, pause }) = self.next.take() else { return Next::Await };
        if self.remaining.is_none() {
            self.page_due = due;
        }
        let item = Item::new(due, draws.size(self.request));
        let item = Item { response: Some(draws.size(object)), ..item };
        Next::Item(match pause {
            Some((pause, since)) => item.after(pause, Since::Event(since)),
            None => item,
        })
    }

    fn feedback(&mut self, outcome: &Outcome, draws: &mut Draws) {
        let (remaining, pause) = match self.remaining {
            None => (draws.count(self.objects).saturating_sub(self.object_offset), self.parse),
            Some(remaining) => (remaining, self.object_gap),
        };
        let (object, pause) = if remaining > 0 {
            self.remaining = Some(remaining - 1);
            (self.embedded, pause)
        } else {
            self.remaining = None;
            self.pages += 1;
            self.page_times += outcome.at.since(self.page_due);
            (self.main, self.reading)
        };
        let pause = draws.interval(pause);
        self.next =
            Some(Request { due: outcome.at + pause.span(), object, pause: Some((pause, outcome.at)) });
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        vec![("pages", self.pages as f64), ("page_time_us", self.page_times.as_us())]
    }
}

#[cfg(test)]
mod tests {
    use crate::Law;

    use super::*;

    #[test]
    fn the_3gpp_variant_has_the_means_of_its_standard() {
        let variant = WWW.variant(Some("3gpp")).unwrap();
        let value = |name: &str| variant.values.iter().find(|(other, _)| *other == name).unwrap().1();
        // The standard states the means of the objects before truncation, and that of their number after it.
        let before = |name: &str| match value(name) {
            Variable::Truncated { of, .. } => Law::new(*of, 0.0).unwrap().mean().unwrap(),
            other => panic!("{other:?}"),
        };
        assert!((before("main") / 10_710.0 - 1.0).abs() < 0.01, "{}", before("main"));
        assert!((before("embedded") / 7_758.0 - 1.0).abs() < 0.01, "{}", before("embedded"));
        let objects = Law::new(value("objects"), 1.0).unwrap().mean().unwrap();
        assert!((objects - 2.0 - 5.64).abs() < 0.005, "{objects}");
    }
}

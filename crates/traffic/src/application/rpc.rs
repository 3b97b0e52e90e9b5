//! Remote procedure calls: requests that arrive whether or not the responses before have arrived.

use trunkline_units::Instant;

use super::definition::values::{constant, exponential};
use super::{Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Since, Unit};

pub(super) static RPC: Definition = Definition {
    name: "rpc",
    summary: "Remote procedure calls in an open loop: requests are due whether or not earlier responses have arrived, and latency counts from when they were due.",
    choice: None,
    parameters: &[
        Parameter::new(
            "interarrival",
            "time between requests; a rate of 100 a second is `exponential(10 ms)`",
            Unit::Seconds,
            || exponential(0.01),
            "exponential: a Poisson process, as of many independent clients; the rate is a choice",
        )
        .with_mean(),
        Parameter::new("request", "a request", Unit::Bytes, || constant(128.0), "a choice").with_mean(),
        Parameter::new("response", "a response", Unit::Bytes, || constant(1_024.0), "a choice").with_mean(),
        Parameter::new(
            "maxOutstanding",
            "requests in flight; further ones leave late, and their latency includes that",
            Unit::Count,
            || constant(10_000.0),
            "a choice",
        )
        .constant()
        .with_memory(200),
        Parameter::new(
            "stall",
            "time for which the responder stops at the end of each `stallEvery`",
            Unit::Seconds,
            || constant(0.0),
            "none",
        )
        .at_most("stallEvery"),
        Parameter::new(
            "stallEvery",
            "period of the responder's stalls",
            Unit::Seconds,
            || constant(10.0),
            "a choice",
        )
        .constant(),
    ],
    max_outstanding: 10_000,
    needs_stream: false,
    start: |start, draws| Box::new(Rpc::new(start, draws)),
};

#[derive(Debug)]
struct Rpc {
    interarrival: QuantityId,
    request: QuantityId,
    response: QuantityId,
    due: Instant,
    gap: Option<Interval>,
}

impl Rpc {
    fn new(start: Instant, draws: &Draws) -> Rpc {
        let [interarrival, request, response] =
            ["interarrival", "request", "response"].map(|name| draws.id(name));
        Rpc { interarrival, request, response, due: start, gap: None }
    }
}

impl Model for Rpc {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let mut item = Item::new(self.due, draws.size(self.request));
        item.response = Some(draws.size(self.response));
        if let Some(gap) = self.gap {
            item = item.after(gap, Since::Departure(0));
        }
        let gap = draws.interval(self.interarrival);
        self.gap = Some(gap);
        self.due += gap.span();
        Next::Item(item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(draws.mean(self.request)? * 8.0 / draws.mean(self.interarrival)?)
    }
}

//! File transfer: sessions of a Poisson process, each with several items.

use trunkline_units::{Instant, Span};

use super::definition::values::{constant, exponential, pareto, truncated};
use super::{Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Sessions, Since, Unit};

pub(super) static FTP: Definition = Definition {
    name: "ftp",
    summary: "Data of file transfers: sessions arrive as a Poisson process, the items of a session are heavy-tailed bursts.",
    choice: None,
    parameters: &[
        Parameter::new(
            "sessionInterarrival",
            "time between the arrivals of sessions",
            Unit::Seconds,
            || exponential(10.0),
            "exponential: Paxson and Floyd 1995, IEEE/ACM Trans. Netw. 3(3), abstract; the rate is a choice",
        )
        .with_mean(),
        Parameter::new(
            "nOfItems",
            "items of a session",
            Unit::Count,
            || exponential(4.0),
            "a choice: the counts of Tcplib (Danzig and Jamin 1991) are an empirical table; `empirical(\"FILE\")` takes it",
        )
        .with_mean(),
        Parameter::new(
            "itemSize",
            "an item",
            Unit::Bytes,
            || truncated(pareto(1.1, 2_000.0), 2_000.0, 100e6),
            "Paxson and Floyd 1995, section VI: Pareto with a shape of 0.9 to 1.4 (not verified); the ends are a choice",
        )
        .with_mean(),
        Parameter::new(
            "itemGap",
            "time between the items of a session",
            Unit::Seconds,
            || exponential(1.0),
            "a choice: below the 4 s that end a burst in Paxson and Floyd 1995, section VI (not verified)",
        )
        .with_mean(),
        Parameter::new("maxSessions", "sessions at a time", Unit::Count, || constant(1_000.0), "a choice").constant_within(1.0, 1e6).with_memory(400),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(SessionModel::new(start, draws, "itemGap")),
};

/// Sessions of a Poisson process, each with a number of items and pauses between them.
#[derive(Debug)]
pub(super) struct SessionModel {
    interarrival: QuantityId,
    items: QuantityId,
    item_size: QuantityId,
    gap: QuantityId,
    sessions: Sessions<Session>,
    /// When the next session arrives, after this time since the one before.
    next_arrival: Instant,
    arrival_gap: Option<Interval>,
    /// The last session that was not refused arrived this long before the one before the next.
    refused_for: Span,
}

#[derive(Debug)]
struct Session {
    /// Items that follow.
    remaining: u32,
    /// The time before the next item, between sessions or between items, and when it began.
    pause: Option<(Interval, i64)>,
    is_first: bool,
}

/// The lane of session arrivals. Those of sessions follow.
const ARRIVALS: u32 = 0;

impl SessionModel {
    /// Creates the model; `gap` is the name of the time between items.
    pub fn new(start: Instant, draws: &Draws, gap: &str) -> SessionModel {
        let max_sessions = draws.mean(draws.id("maxSessions")).unwrap_or(1.0) as usize;
        SessionModel {
            interarrival: draws.id("sessionInterarrival"),
            items: draws.id("nOfItems"),
            item_size: draws.id("itemSize"),
            gap: draws.id(gap),
            sessions: Sessions::new(max_sessions, ARRIVALS + 1),
            next_arrival: start,
            arrival_gap: None,
            refused_for: Span::ZERO,
        }
    }

    /// Starts the session that arrives next.
    fn arrive(&mut self, draws: &mut Draws) {
        let gap = self.arrival_gap.take();
        let pause = gap.map(|gap| (gap, self.refused_for.as_ps() as i64));
        let session = Session { remaining: draws.count(self.items).max(1), pause, is_first: true };
        if self.sessions.start(self.next_arrival, session) {
            self.refused_for = Span::ZERO;
        } else if let Some(gap) = gap {
            // It has arrived, although it is refused.
            draws.finish(gap, Some(gap.span().as_s()));
            self.refused_for += gap.span();
        }
        let interarrival = draws.interval(self.interarrival);
        self.next_arrival += interarrival.span();
        self.arrival_gap = Some(interarrival);
    }
}

impl Model for SessionModel {
    fn next(&mut self, draws: &mut Draws) -> Next {
        while self.sessions.arrives_first(self.next_arrival) {
            self.arrive(draws);
        }
        let (item_size, gap) = (self.item_size, self.gap);
        let item = self.sessions.advance(|lane, due, session| {
            let mut item = Item::new(due, draws.size(item_size));
            item.lane = lane;
            if let Some((pause, offset)) = session.pause.take() {
                item =
                    item.after(pause, Since::Offset(if session.is_first { ARRIVALS } else { lane }, offset));
            }
            item.second_lane = session.is_first.then_some(ARRIVALS);
            session.is_first = false;
            session.remaining -= 1;
            let next = (session.remaining > 0).then(|| {
                let pause = draws.interval(gap);
                session.pause = Some((pause, 0));
                due + pause.span()
            });
            (item, next)
        });
        item.map_or(Next::End, Next::Item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        let [items, size, interarrival] =
            [self.items, self.item_size, self.interarrival].map(|quantity| draws.mean(quantity));
        Some(items? * size? * 8.0 / interarrival?)
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        self.sessions.counters()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;
    use crate::Variable;

    /// Counts and sizes are integers, whose means are not those of the laws: 1.96 items and not 2.
    #[test]
    fn the_offered_rate_is_that_of_rounded_values() {
        let application = Application::named("ftp").unwrap();
        let exponential = |mean| Variable::Exponential { mean };
        let parameters = [
            ("nOfItems", exponential(1.0)),
            ("itemSize", exponential(500.0)),
            ("itemGap", Variable::Constant(0.01)),
            ("sessionInterarrival", Variable::Constant(1.0)),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let mut draws = Draws::new(application, None, &parameters, Seed(1), "a-b").unwrap();
        let mut model = SessionModel::new(Instant::ZERO, &draws, "itemGap");
        let (mut bytes, mut last) = (0.0, Instant::ZERO);
        for _ in 0..200_000 {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            (bytes, last) = (bytes + f64::from(item.size.bytes()), item.due);
        }
        let error = bytes * 8.0 / last.as_s() / model.offered_bps(&draws).unwrap() - 1.0;
        assert!(error.abs() < 0.01, "{error}");
    }

    #[test]
    fn sessions_overlap_and_a_limit_refuses_some() {
        let application = Application::named("ftp").unwrap();
        let parameters = [("maxSessions", 3.0), ("nOfItems", 5.0), ("itemGap", 20.0)]
            .map(|(name, value)| (name.to_owned(), Variable::Constant(value)));
        let mut draws = Draws::new(application, None, &parameters, Seed(1), "a-b").unwrap();
        let mut model = SessionModel::new(Instant::ZERO, &draws, "itemGap");
        let (mut last, mut lanes) = (Instant::ZERO, std::collections::BTreeMap::new());
        for _ in 0..10_000 {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            assert!(item.due >= last, "items are in order");
            last = item.due;
            let previous = lanes.insert(item.lane, item.due);
            // 5 items of a session are 20 s apart.
            if let (Some(previous), None) = (previous, item.second_lane) {
                assert_eq!(item.due.since(previous), Span::from_s(20));
            }
        }
        assert_eq!(lanes.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        let counters: std::collections::BTreeMap<_, _> = model.counters().into_iter().collect();
        // A session lasts 80 s and 8 arrive meanwhile: of these, Erlang's formula B loses 67.5 % at 3 servers.
        let lost = counters["sessions_refused"] / (counters["sessions_refused"] + counters["sessions"]);
        assert!((lost - 0.675).abs() < 0.02, "{lost}");
    }
}

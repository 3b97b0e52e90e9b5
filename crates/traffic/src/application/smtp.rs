//! Mail: sessions of a Poisson process, each with a few mails.

use super::definition::values::{constant, exponential, lognormal, truncated};
use super::ftp::SessionModel;
use super::{Definition, Parameter, Unit};

pub(super) static SMTP: Definition = Definition {
    name: "smtp",
    summary: "Mails to a server: sessions arrive as a Poisson process, the sizes of mails are lognormal.",
    choice: None,
    parameters: &[
        Parameter::new(
            "sessionInterarrival",
            "time between the arrivals of sessions",
            Unit::Seconds,
            || exponential(5.0),
            "a choice; Paxson and Floyd 1995, IEEE/ACM Trans. Netw. 3(3), section III: SMTP arrivals are not far from Poisson over 10 minutes",
        )
        .with_mean(),
        Parameter::new(
            "nOfItems",
            "mails of a session",
            Unit::Count,
            || exponential(1.0),
            "a choice",
        )
        .with_mean(),
        Parameter::new(
            "itemSize",
            "a mail",
            Unit::Bytes,
            || truncated(lognormal(8.0, 1.5), 100.0, 50e6),
            "lognormal: Paxson 1994, IEEE/ACM Trans. Netw. 2(4), bytes of SMTP originators; the parameters and ends are a choice",
        )
        .with_mean(),
        Parameter::new(
            "itemGap",
            "time between the mails of a session",
            Unit::Seconds,
            || exponential(0.5),
            "a choice",
        )
        .with_mean(),
        Parameter::new("maxSessions", "sessions at a time", Unit::Count, || constant(1_000.0), "a choice").constant_within(1.0, 1e6).with_memory(400),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(SessionModel::new(start, draws, "itemGap")),
};

#[cfg(test)]
mod tests {
    use trunkline_units::{Instant, Seed};

    use super::super::{Application, Draws, Next};
    use super::*;

    #[test]
    fn a_session_has_its_mails_and_the_rate_is_that_of_the_law() {
        let application = Application::named("smtp").unwrap();
        let parameters =
            [("nOfItems", 3.0), ("itemGap", 0.5)].map(|(name, value)| (name.to_owned(), constant(value)));
        let mut draws = Draws::new(application, None, &parameters, Seed(1), "a-b").unwrap();
        let mut model = (SMTP.start)(Instant::ZERO, &draws);
        let (mut bytes, mut due, mut first) = (0.0, Instant::ZERO, 0);
        let mut lanes = std::collections::BTreeMap::new();
        for _ in 0..150_000 {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            assert!(item.due >= due);
            (bytes, due) = (bytes + f64::from(item.size.bytes()), item.due);
            first += u32::from(item.second_lane.is_some());
            let before = lanes.insert(item.lane, due);
            if let (Some(before), None) = (before, item.second_lane) {
                assert_eq!(due.since(before), trunkline_units::Span::from_ms(500));
            }
        }
        assert!((first - 50_000) < 10, "{first}");
        let (rate, offered) = (bytes * 8.0 / due.as_s(), model.offered_bps(&draws).unwrap());
        assert!((rate / offered - 1.0).abs() < 0.04, "{rate} for {offered}");
    }
}

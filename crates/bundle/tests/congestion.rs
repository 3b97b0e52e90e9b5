//! More load than the medium carries, in bundle format 2: priority messages arrive, ordinary ones arrive or are
//! counted, and limits change no faster than allowed.

use crate::overload::overload;
use trunkline_bundle::regulator::{Congestion, INTERVALS_PER_CHANGE};
use trunkline_units::Span;

#[test]
fn at_twice_the_capacity_priority_arrives_and_the_rest_is_counted() {
    for congestion in [Congestion::Levels, Congestion::Rates] {
        let outcome = overload(2.0, Some(congestion), Span::from_s(4));
        let [ordinary, urgent] = outcome.offered;
        assert_eq!(outcome.arrived[1], 3 * urgent, "{congestion:?}");
        assert_eq!(outcome.dropped[1], 0, "{congestion:?}");
        // A lost broadcast bundle is lost for all hosts. Levels admit more than the medium carries, and hosts count
        // the losses.
        let lost = outcome.missed;
        assert!(congestion == Congestion::Levels || outcome.lost == 0, "every admitted frame fits");
        assert_eq!(outcome.arrived[0] + lost + 3 * outcome.dropped[0], 3 * ordinary, "{congestion:?}");
    }
}

#[test]
fn levels_are_those_of_1997_and_change_once_an_interval() {
    let outcome = overload(2.0, Some(Congestion::Levels), Span::from_s(2));
    assert!(outcome.levels.contains(&6) && outcome.levels.contains(&4));
    let intervals: Vec<u64> =
        outcome.changes.iter().map(|at| at.as_ps() / Span::from_ms(5).as_ps()).collect();
    assert!(intervals.windows(2).all(|second| second[0] < second[1]), "{intervals:?}");
}

#[test]
fn rates_fill_the_medium_without_loss_and_change_every_ten_intervals() {
    let (rates, levels) = (
        overload(2.0, Some(Congestion::Rates), Span::from_s(4)),
        overload(2.0, Some(Congestion::Levels), Span::from_s(4)),
    );
    assert!(rates.used > 0.85 && rates.used <= 1.0, "{}", rates.used);
    assert!(rates.lost == 0 && levels.lost > 0, "levels admit more than the medium carries");
    assert!(rates.delay(1, 0.99) < levels.delay(1, 0.99), "and priority waits behind it");
    let interval = Span::from_ms(5).as_ps();
    let changes: Vec<u64> =
        rates.changes.iter().map(|at| at.as_ps() / interval / INTERVALS_PER_CHANGE).collect();
    assert!(changes.windows(2).all(|second| second[0] < second[1]), "{changes:?}");
}

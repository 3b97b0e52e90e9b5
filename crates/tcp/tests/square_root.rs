//! The square-root law; `soak_square_root` has the whole range.

use crate::support::square_root::measure;
use trunkline_tcp::Timers;
use trunkline_units::Span;

#[test]
fn goodput_follows_the_square_root_law() {
    let fine = Timers::Fine { floor: Span::from_s(1) };
    for interval in [100, 300, 1_000, 3_000] {
        let rate = measure(interval, fine, false, 4, 8);
        assert!((rate.ratio_to_law - 1.0).abs() < 0.15, "1 in {interval}: {rate:?}");
        assert!(rate.fast_retransmits >= 11, "{rate:?}");
    }
}

#[test]
fn delayed_acknowledgements_divide_goodput_by_the_root_of_two() {
    let rate = measure(1_000, Timers::Fine { floor: Span::from_s(1) }, true, 4, 8);
    assert!((rate.ratio_to_law - 1.0).abs() < 0.15, "{rate:?}");
}

/// Single losses are repaired by fast retransmission, which no timer slows: the law holds with coarse timers too.
#[test]
fn coarse_timers_keep_the_law_while_fast_retransmission_works() {
    let rate = measure(1_000, Timers::default(), false, 4, 8);
    assert!((rate.ratio_to_law - 1.0).abs() < 0.15 && rate.timeouts == 0, "{rate:?}");
}

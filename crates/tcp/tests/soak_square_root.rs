//! The square-root law from one loss in a hundred to one in ten thousand.

use crate::support::square_root::measure;
use trunkline_tcp::Timers;
use trunkline_units::Span;

#[test]
fn goodput_follows_the_square_root_law_over_the_whole_range() {
    for timers in [Timers::Fine { floor: Span::from_s(1) }, Timers::default()] {
        for interval in [100, 200, 500, 1_000, 2_000, 5_000, 10_000] {
            let rate = measure(interval, timers, false, 6, 40);
            println!("1 in {interval}, {timers:?}: {rate:?}");
            assert!(rate.fast_retransmits >= 45 && rate.timeouts == 0, "{rate:?}");
            assert!((rate.ratio_to_law - 1.0).abs() < 0.15, "1 in {interval}, {timers:?}: {rate:?}");
        }
    }
}

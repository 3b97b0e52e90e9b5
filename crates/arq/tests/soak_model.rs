//! Small windows, exhaustively and deeper: see `support/model.rs`.

use crate::support::model::Search;
use trunkline_arq::Mode;

#[test]
fn every_order_of_frames_comes_to_a_good_end() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        let one_way =
            Search { mode, window: 3, messages: 3, both: false, depth: 6, drops: 2, doubles: 1, wakes: 2 };
        let both_ways = Search { window: 2, messages: 2, both: true, depth: 5, ..one_way };
        for search in [one_way, Search { window: 2, ..one_way }, both_ways] {
            println!("{} states of {search:?}", search.run());
        }
    }
}

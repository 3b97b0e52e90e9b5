//! Small windows, exhaustively: see `support/model.rs`.

use crate::support::model::Search;
use trunkline_arq::Mode;

const SMALL: Search = Search {
    mode: Mode::GoBackN,
    window: 3,
    messages: 2,
    both: false,
    depth: 4,
    drops: 2,
    doubles: 1,
    wakes: 2,
};

#[test]
fn every_order_of_a_few_frames_comes_to_a_good_end() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        for search in [Search { mode, ..SMALL }, Search { mode, window: 2, messages: 3, ..SMALL }] {
            let states = search.run();
            assert!(states > 100, "{states} of {search:?}");
        }
    }
    Search { mode: Mode::StopAndWait, window: 1, depth: 6, ..SMALL }.run();
}

//! Bad paths without end: `make soak`.
#![cfg(feature = "soak")]

#[path = "support/exchange.rs"]
mod exchange;
#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

#[test]
fn what_is_done_was_taken_once_and_in_order() {
    for seed in 1_000..3_000 {
        exchange::in_order(seed);
        exchange::out_of_order(seed);
    }
}

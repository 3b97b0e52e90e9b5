//! An hour of NASA's requirement, and of copies in the background.
//! `cargo test --release -p trunkline-sim --features soak --test soak_llc_token`
#![cfg(feature = "soak")]

mod common;
mod token;

use common::run;
use token::{COPIES, NASA, for_seconds, kept};

#[test]
fn an_hour_of_nasas_requirement() {
    kept(&run(&for_seconds(NASA, 3_600)), 3_600);
}

#[test]
fn an_hour_with_copies_in_the_background() {
    kept(&run(&for_seconds(COPIES, 3_600)), 3_600);
}

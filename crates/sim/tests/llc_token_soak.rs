//! Simulates one hour of NASA's requirement, and one hour with background copies.
//! `cargo test --release -p trunkline-sim --features soak llc_token_soak::`
#![cfg(feature = "soak")]

use crate::common::run;
use crate::token::{COPIES, NASA, check_promises, for_seconds};

#[test]
fn soak_nasas_requirement_for_an_hour() {
    check_promises(&run(&for_seconds(NASA, 3_600)), 3_600);
}

#[test]
fn soak_background_copies_for_an_hour() {
    check_promises(&run(&for_seconds(COPIES, 3_600)), 3_600);
}

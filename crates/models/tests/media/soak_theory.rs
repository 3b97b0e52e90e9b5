//! A link against queueing theory within 1 %. Run with
//! `cargo test --release -p trunkline-media --features soak --test soak_theory`.
#![cfg(feature = "soak")]

use super::queueing;

use queueing::{Service, check};

// So many frames that a third of a percent is a standard deviation of the mean, by the asymptotic variance of
// waits in M/M/1 (Daley 1968); in M/D/1 it is less.

#[test]
fn md1() {
    check(Service::Constant, 0.5, 5_000_000, 0.01);
    check(Service::Constant, 0.8, 20_000_000, 0.01);
    check(Service::Constant, 0.95, 100_000_000, 0.01);
}

#[test]
fn mm1() {
    check(Service::Exponential, 0.5, 5_000_000, 0.01);
    check(Service::Exponential, 0.8, 20_000_000, 0.01);
    check(Service::Exponential, 0.95, 150_000_000, 0.01);
}

//! A link against queueing theory, briefly. `soak_theory.rs` is the same with enough frames for 1 %.

use super::queueing;

use queueing::{Service, check};

// The tolerances are about four standard deviations of the mean of so many correlated waits.

#[test]
fn md1() {
    check(Service::Constant, 0.5, 100_000, 0.04);
    check(Service::Constant, 0.8, 200_000, 0.08);
    check(Service::Constant, 0.95, 400_000, 0.20);
}

#[test]
fn mm1() {
    check(Service::Exponential, 0.5, 100_000, 0.06);
    check(Service::Exponential, 0.8, 200_000, 0.10);
    check(Service::Exponential, 0.95, 400_000, 0.25);
}

//! This machine's Linux and the endpoint understand each other, both ways, over a good line and a bad one.

#![allow(clippy::disallowed_methods, reason = "the kernel's TCP runs in real time")]

#[path = "support/linux.rs"]
mod linux;

use linux::{NO_TROUBLE, Trouble, Way, inside, size, transfer};
use trunkline_tcp::{Options, Timers};
use trunkline_units::Span;

const BAD: Trouble = Trouble { seed: 1996, lost: 0.01, doubled: 0.01, late: 0.02 };

fn large() -> Options {
    Options { send_buffer: 1 << 20, receive_buffer: 1 << 20, ..Options::default() }
}

/// With ticks every loss that no duplicates tell of costs more than a second, which is not for a test.
fn quick() -> Options {
    Options { timers: Timers::Fine { floor: Span::from_ms(20) }, ..large() }
}

#[test]
fn to_linux() {
    if inside("to_linux") {
        transfer(Way::ToLinux, size(20_000_000), large(), NO_TROUBLE);
    }
}

#[test]
fn from_linux() {
    if inside("from_linux") {
        transfer(Way::FromLinux, size(20_000_000), large(), NO_TROUBLE);
    }
}

#[test]
fn to_linux_over_a_bad_line() {
    if inside("to_linux_over_a_bad_line") {
        transfer(Way::ToLinux, size(2_000_000), quick(), BAD);
    }
}

#[test]
fn from_linux_over_a_bad_line() {
    if inside("from_linux_over_a_bad_line") {
        transfer(Way::FromLinux, size(2_000_000), quick(), BAD);
    }
}

#[test]
fn a_small_buffer_and_no_scaling_will_do() {
    if inside("a_small_buffer_and_no_scaling_will_do") {
        let small = Options { send_buffer: 5_000, receive_buffer: 5_000, scaling: false, ..quick() };
        transfer(Way::ToLinux, 200_000, small, NO_TROUBLE);
        transfer(Way::FromLinux, 200_000, small, NO_TROUBLE);
    }
}

//! Transfers to and from this machine's Linux, over a clean and an impaired link.

#![allow(clippy::disallowed_methods, reason = "the kernel's TCP runs in real time")]

use crate::support::linux::{Direction, Impairment, NO_IMPAIRMENT, inside, size, transfer};
use trunkline_tcp::{Algorithm, EcnFeedback, Options, Timers};
use trunkline_units::Span;

const IMPAIRED: Impairment = Impairment { seed: 1996, loss: 0.01, duplicate: 0.01, reorder: 0.02 };

fn large() -> Options {
    Options { send_buffer: 1 << 20, receive_buffer: 1 << 20, ..Options::default() }
}

/// Fine timers: with ticks every retransmission timeout takes more than a second.
fn quick() -> Options {
    Options { timers: Timers::Fine { floor: Span::from_ms(20) }, ..large() }
}

#[test]
fn to_linux() {
    if inside("linux::to_linux") {
        transfer(Direction::ToLinux, size(20_000_000), large(), NO_IMPAIRMENT);
    }
}

#[test]
fn from_linux() {
    if inside("linux::from_linux") {
        transfer(Direction::FromLinux, size(20_000_000), large(), NO_IMPAIRMENT);
    }
}

#[test]
fn to_linux_over_an_impaired_link() {
    if inside("linux::to_linux_over_an_impaired_link") {
        transfer(Direction::ToLinux, size(2_000_000), quick(), IMPAIRED);
    }
}

#[test]
fn from_linux_over_an_impaired_link() {
    if inside("linux::from_linux_over_an_impaired_link") {
        transfer(Direction::FromLinux, size(2_000_000), quick(), IMPAIRED);
    }
}

/// TCP of today, as Linux has it: selective acknowledgements, timestamps, ECN, CUBIC.
fn today() -> Options {
    Options {
        congestion: Some(Algorithm::CUBIC),
        sack: true,
        timestamps: true,
        ecn: Some(EcnFeedback::Classic),
        ..quick()
    }
}

#[test]
fn to_linux_with_extensions() {
    if inside("linux::to_linux_with_extensions") {
        transfer(Direction::ToLinux, size(5_000_000), today(), IMPAIRED);
    }
}

#[test]
fn from_linux_with_extensions() {
    if inside("linux::from_linux_with_extensions") {
        transfer(Direction::FromLinux, size(5_000_000), today(), IMPAIRED);
    }
}

#[test]
fn small_buffers_without_scaling() {
    if inside("linux::small_buffers_without_scaling") {
        let small = Options { send_buffer: 5_000, receive_buffer: 5_000, scaling: false, ..quick() };
        transfer(Direction::ToLinux, 200_000, small, NO_IMPAIRMENT);
        transfer(Direction::FromLinux, 200_000, small, NO_IMPAIRMENT);
    }
}

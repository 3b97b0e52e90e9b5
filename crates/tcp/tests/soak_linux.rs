//! A hundred million bytes each way.

#![cfg(feature = "soak")]
#![allow(clippy::disallowed_methods, reason = "the kernel's TCP runs in real time")]

#[path = "support/linux.rs"]
mod linux;

use linux::{NO_TROUBLE, Trouble, Way, inside, size, transfer};
use trunkline_tcp::{Options, Timers};
use trunkline_units::Span;

const BYTES: u64 = 100_000_000;
const BAD: Trouble = Trouble { seed: 7, lost: 0.005, doubled: 0.005, late: 0.01 };

#[test]
fn a_hundred_million_bytes_each_way() {
    if inside("a_hundred_million_bytes_each_way") {
        let ticks = Options { send_buffer: 1 << 20, receive_buffer: 1 << 20, ..Options::default() };
        let fine = Options { timers: Timers::Fine { floor: Span::from_ms(20) }, ..ticks };
        for way in [Way::ToLinux, Way::FromLinux] {
            transfer(way, size(BYTES), ticks, NO_TROUBLE);
            transfer(way, size(BYTES), fine, BAD);
        }
    }
}

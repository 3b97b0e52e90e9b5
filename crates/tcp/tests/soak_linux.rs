//! A hundred million bytes each direction.

#![allow(clippy::disallowed_methods, reason = "the kernel's TCP runs in real time")]

use crate::support::linux::{Direction, Impairment, NO_IMPAIRMENT, inside, size, transfer};
use trunkline_tcp::{Options, Timers};
use trunkline_units::Span;

const BYTES: u64 = 100_000_000;
const IMPAIRED: Impairment = Impairment { seed: 7, loss: 0.005, duplicate: 0.005, reorder: 0.01 };

#[test]
fn a_hundred_million_bytes_each_way() {
    if inside("soak_linux::a_hundred_million_bytes_each_way") {
        let ticks = Options { send_buffer: 1 << 20, receive_buffer: 1 << 20, ..Options::default() };
        let fine = Options { timers: Timers::Fine { floor: Span::from_ms(20) }, ..ticks };
        for direction in [Direction::ToLinux, Direction::FromLinux] {
            transfer(direction, size(BYTES), ticks, NO_IMPAIRMENT);
            transfer(direction, size(BYTES), fine, IMPAIRED);
        }
    }
}

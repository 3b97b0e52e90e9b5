//! A station whose commands, frames and time are what bytes say: no law of an endpoint is broken, and what it keeps has
//! its bounds.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run llc_station fuzz/corpus/llc_station fuzz/seeds/llc_station`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/llc/tests/support/life.rs"]
mod life;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| life::live(bytes));

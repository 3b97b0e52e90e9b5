//! Two ends of a connection that do, and a path that does, what bytes say: whatever that is, what arrives is what was
//! sent, and once the path is good everything arrives.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run arq_operations fuzz/corpus/arq_operations fuzz/seeds/arq_operations`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/arq/tests/support/manual_pair.rs"]
mod manual_pair;
#[path = "../../crates/arq/tests/support/operations.rs"]
mod operations;

use libfuzzer_sys::fuzz_target;
use trunkline_arq::PresharedKey;

fuzz_target!(|bytes: &[u8]| operations::operate(bytes, Some(PresharedKey::new(&[7; 32]))));

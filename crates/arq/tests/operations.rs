//! Whatever two ends do and the path does between, in any order, they understand each other.

use crate::support::operations;
use trunkline_arq::PresharedKey;
use trunkline_units::Seed;

#[cfg(feature = "aead")]
fn key() -> Option<PresharedKey> {
    Some(PresharedKey::new(&[7; 32]))
}

#[cfg(not(feature = "aead"))]
fn key() -> Option<PresharedKey> {
    None
}

/// The same with bytes of a fuzzer: `fuzz/fuzz_targets/arq_operations.rs`.
#[test]
fn any_order_of_operations_comes_to_a_good_end() {
    for seed in 0..400 {
        let mut random = Seed(seed).stream("operations");
        let bytes: Vec<u8> = (0..3 + random.below(600)).map(|_| random.bits() as u8).collect();
        let operate = || operations::operate(&bytes, key());
        assert!(std::panic::catch_unwind(operate).is_ok(), "seed {seed}");
    }
}

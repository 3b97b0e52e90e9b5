//! A thousand million damaged frames for each check.

#![cfg(feature = "soak")]

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/damage.rs"]
mod damage;

use damage::{Damage, accepted};
use trunkline_arq::Check;

const COUNT: u64 = 1_000_000_000;

/// Frames with random words, of which 2⁻³² pass a check of 32 bits: 0.23 expected, more than six of them with a chance
/// of 1e-8.
#[test]
fn as_many_pass_as_the_checks_arithmetic_says() {
    for (check, most) in [(Check::Crc32c, 6), (Check::Folded, 6), (Check::Crc64, 0)] {
        let passed: u64 = std::thread::scope(|scope| {
            let half = |seed| scope.spawn(move || accepted(check, Damage::Words, COUNT / 2, seed));
            [half(1), half(2)].map(|half| half.join().expect("it counts")).iter().sum()
        });
        println!("{check:?}: {passed} of {COUNT}");
        assert!(passed <= most, "{check:?}: {passed}");
    }
    for damage in [Damage::Swap, Damage::SwapHalves] {
        let count = COUNT / 100;
        println!("Folded, {damage:?}: {} of {count}", accepted(Check::Folded, damage, count, 3));
    }
}

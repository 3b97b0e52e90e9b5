//! What else the host's processor does.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_io::pace;

/// Octets that it looks at again and again.
const WORKING_SET: usize = 1 << 20;

/// Works while nothing else is to be done, until it is over.
pub fn work(over: &AtomicBool) {
    // Where that cannot be told it would take half of the processor.
    if pace::when_idle().is_err() {
        return;
    }
    let mut memory = vec![1u64; WORKING_SET / size_of::<u64>()];
    while !over.load(Ordering::Relaxed) {
        memory.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
        black_box(&mut memory);
    }
}

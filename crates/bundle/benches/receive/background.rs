//! Background load of the host's processor.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_io::pace;

/// Octets that it accesses repeatedly.
const WORKING_SET: usize = 1 << 20;

/// Runs at idle priority until stopped.
pub fn work(stop: &AtomicBool) {
    // At normal priority it would take half of the processor.
    if pace::set_idle_priority().is_err() {
        return;
    }
    let mut memory = vec![1u64; WORKING_SET / size_of::<u64>()];
    while !stop.load(Ordering::Relaxed) {
        memory.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
        black_box(&mut memory);
    }
}

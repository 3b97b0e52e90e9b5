//! Anything as a chunk, a summary and a flush of the archive of counters: as it is, and with checksums that are right, so
//! that what lies behind them is reached. What is wrong is said, and memory stays small.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run series_chunk fuzz/corpus/series_chunk fuzz/seeds/series_chunk`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_counters::archive::{bytes, chunk, row};

/// The parts that a directory tells of, whatever its checksums say; at most a few.
fn parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    let word =
        |at: usize| bytes.get(at..at + 4).map(|w| u32::from_le_bytes(w.try_into().expect("four")) as usize);
    let count = word(4).unwrap_or(0).min(8);
    let mut begin = 8 + 8 * word(4).unwrap_or(0).min(bytes.len());
    let mut parts = Vec::new();
    for number in 0..count {
        let end = word(8 + 8 * number).unwrap_or(0).min(bytes.len());
        parts.push(bytes.get(begin..end).unwrap_or_default().to_vec());
        begin = end;
    }
    parts
}

fn read(bytes: &[u8]) {
    let _ = chunk::check(bytes);
    let _ = row::check(bytes);
    for position in 0..8 {
        let _ = chunk::read_digest(&bytes, position);
    }
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&bytes::join(&parts(data)));
});

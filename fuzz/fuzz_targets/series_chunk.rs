//! Decodes arbitrary bytes as a chunk, a summary and a flush of the archive of counters: unchanged, and with
//! corrected checksums to reach the code behind them. Errors are reported and memory stays bounded.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run series_chunk fuzz/corpus/series_chunk fuzz/seeds/series_chunk`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_counters::archive::{chunk, encoding, row};

/// Returns the parts of a directory regardless of their checksums; at most eight.
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
    let _ = chunk::validate_chunk(bytes);
    let _ = row::validate_tail(bytes);
    for position in 0..8 {
        let _ = chunk::decode_summary(&bytes, position);
    }
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&encoding::encode_parts(&parts(data)));
});

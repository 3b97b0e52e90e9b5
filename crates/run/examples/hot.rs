//! Measures the receive path of a message in memory: header, payload, meter. `cargo run --release --example hot`
#![allow(clippy::disallowed_methods, reason = "this example measures wall-clock time")]
use std::hint::black_box;
use std::time::Instant as Wall;

use trunkline_run::ReceiverMeter;
use trunkline_run::message::{HEADER, Header, Payload};
use trunkline_units::{Instant, Seed};

fn time(name: &str, mut f: impl FnMut(u64)) {
    let n = 4_000_000;
    let begin = Wall::now();
    (0..n).for_each(&mut f);
    println!("{name:<10} {:6.1} ns a message", begin.elapsed().as_nanos() as f64 / n as f64);
}

fn main() {
    let payload = Payload::new(Seed(1), "a-b");
    let mut bytes = vec![0; 1400];
    bytes[HEADER..].copy_from_slice(payload.piece(0, 1400 - HEADER));
    let header = |sequence| Header::pattern(sequence, Instant::from_ns(sequence / 46 * 9000), 1400);
    time("encode", |i| header(i).encode(7, black_box(&mut bytes).first_chunk_mut().unwrap()));
    time("decode", |_| assert!(Header::decode(7, black_box(&bytes)).is_ok()));
    time("payload", |_| {
        black_box(payload.matches(0, black_box(&bytes[HEADER..])));
    });
    let mut meter = ReceiverMeter::new(Instant::ZERO);
    time("meter", |i| meter.record(black_box(&header(i)), Instant::from_ns(i / 46 * 9100 + 100_000)));
}

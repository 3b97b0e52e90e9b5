//! What several tests share.

use std::ops::Range;

/// Returns the seeds of a test: the first `count`, or those of the environment: `SEEDS=10`, `SEEDS=1000..1100`.
pub fn seeds(count: u64) -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return 0..count };
    let number = |text: &str| text.parse().expect("SEEDS: a number, or two with `..` between");
    let (start, end) = text.split_once("..").unwrap_or(("0", &text));
    number(start)..number(end)
}

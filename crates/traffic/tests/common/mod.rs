//! What several tests share.

use std::ops::Range;

/// Returns the seeds of a test, or those of the environment: `SEEDS=10`, `SEEDS=1000..1100`.
pub fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return default };
    let number = |text: &str| text.parse().expect("SEEDS: a number, or two with `..` between");
    let (start, end) = text.split_once("..").unwrap_or(("0", &text));
    number(start)..number(end)
}

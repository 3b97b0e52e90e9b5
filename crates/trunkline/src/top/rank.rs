//! The rows of a table in order, and numbers as people read them.

use std::cmp::Reverse;

use trunkline_capture::name::Class;
use trunkline_capture::table::{Count, Row, Table};

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Octets of the last samples.
    Bits,
    /// Packets of the last samples.
    Packets,
    /// Octets since counting began.
    Total,
    /// The key.
    Name,
}

impl Sort {
    /// The next one, round and round.
    pub fn next(self) -> Sort {
        match self {
            Sort::Bits => Sort::Packets,
            Sort::Packets => Sort::Total,
            Sort::Total => Sort::Name,
            Sort::Name => Sort::Bits,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Bits => "bits/s",
            Sort::Packets => "packets/s",
            Sort::Total => "total",
            Sort::Name => "name",
        }
    }
}

/// A row with its key and what it sent lately, by class and together.
pub struct Ranked<'a, K> {
    pub key: K,
    pub row: &'a Row,
    pub classes: [Count; Class::ALL.len()],
    pub recent: Count,
}

/// The rows of a table in order.
pub fn ranked<K: Ord + Copy>(table: &Table<K>, sort: Sort) -> Vec<Ranked<'_, K>> {
    let mut rows: Vec<Ranked<'_, K>> = table.rows().map(|(key, row)| with_recent(*key, row)).collect();
    // Where figures are alike the order of the keys stands, so that rows do not jump.
    match sort {
        Sort::Bits => rows.sort_by_key(|r| Reverse((r.recent.bytes, r.row.total.bytes))),
        Sort::Packets => rows.sort_by_key(|r| Reverse((r.recent.packets, r.row.total.packets))),
        Sort::Total => rows.sort_by_key(|r| Reverse(r.row.total.bytes)),
        Sort::Name => {}
    }
    rows
}

/// A row with what it sent lately.
pub fn with_recent<K>(key: K, row: &Row) -> Ranked<'_, K> {
    let classes = row.recent();
    let mut recent = Count::default();
    classes.iter().for_each(|class| recent += *class);
    Ranked { key, row, classes, recent }
}

/// Three significant digits and a decimal prefix: `12.3 Mb/s`, `0 b/s`.
pub fn scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut prefixes = PREFIXES.into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    for larger in prefixes {
        if value < 999.5 {
            break;
        }
        value /= 1e3;
        prefix = larger;
    }
    let text = match value {
        v if v < 0.0005 => "0".into(),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {prefix}{unit}").trim_end().to_owned()
}

/// `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds as `12.3 us`.
pub fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 1_000 => format!("{ns} ns"),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// The time of day, in UTC; `digits` of the second.
pub fn clock(at_ns: u64, digits: usize) -> String {
    let (seconds, ns) = (at_ns / 1_000_000_000 % 86_400, at_ns % 1_000_000_000);
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = format!("{ns:09}");
    if digits == 0 { whole } else { format!("{whole}.{}", &fraction[..digits.min(9)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        for (value, text) in [
            (0.0, "0 b/s"),
            (0.5, "0.5 b/s"),
            (9.999, "10 b/s"),
            (123.4, "123 b/s"),
            (999.6, "1 kb/s"),
            (12_345.0, "12.3 kb/s"),
            (200_000.0, "200 kb/s"),
            (9.87e9, "9.87 Gb/s"),
        ] {
            assert_eq!(scaled(value, "b/s"), text);
        }
        assert_eq!(scaled(1234.0, ""), "1.23 k");
        assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(clock(3_661_500_000_000, 3), "01:01:01.500");
    }
}

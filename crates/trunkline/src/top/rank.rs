//! Sorted table rows, and formatting of numbers.

use std::cmp::Reverse;

use trunkline_capture::name::Class;
use trunkline_capture::table::{Count, Row, Table};

/// The sort order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Octets in the last samples.
    Bits,
    /// Packets in the last samples.
    Packets,
    /// Total octets.
    Total,
    /// The key.
    Name,
}

impl Sort {
    /// Returns the next order, cyclically.
    pub fn next(self) -> Sort {
        match self {
            Sort::Bits => Sort::Packets,
            Sort::Packets => Sort::Total,
            Sort::Total => Sort::Name,
            Sort::Name => Sort::Bits,
        }
    }

    /// Returns the label.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Bits => "bits/s",
            Sort::Packets => "packets/s",
            Sort::Total => "total",
            Sort::Name => "name",
        }
    }
}

/// A row with its key and its recent traffic, by class and in total.
pub struct RankedRow<'a, K> {
    pub key: K,
    pub row: &'a Row,
    pub classes: [Count; Class::ALL.len()],
    pub recent: Count,
}

/// Returns the rows of a table in this order.
pub fn rank_rows<K: Ord + Copy>(table: &Table<K>, sort: Sort) -> Vec<RankedRow<'_, K>> {
    let mut rows: Vec<RankedRow<'_, K>> = table.rows().map(|(key, row)| rank_row(*key, row)).collect();
    // The sort is stable: rows with equal figures stay in the order of their keys.
    match sort {
        Sort::Bits => rows.sort_by_key(|r| Reverse((r.recent.bytes, r.row.total.bytes))),
        Sort::Packets => rows.sort_by_key(|r| Reverse((r.recent.packets, r.row.total.packets))),
        Sort::Total => rows.sort_by_key(|r| Reverse(r.row.total.bytes)),
        Sort::Name => {}
    }
    rows
}

/// Adds the recent traffic to a row.
pub fn rank_row<K>(key: K, row: &Row) -> RankedRow<'_, K> {
    let classes = row.recent();
    let mut recent = Count::default();
    classes.iter().for_each(|class| recent += *class);
    RankedRow { key, row, classes, recent }
}

/// Formats a number with three significant digits and a decimal prefix: `12.3 Mb/s`, `0 b/s`.
pub fn with_prefix(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut power) = (value, 0);
    while value >= 999.5 && power + 1 < PREFIXES.len() {
        (value, power) = (value / 1e3, power + 1);
    }
    let text = match value {
        v if v < 0.0005 => "0".into(),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}{unit}", PREFIXES[power]).trim_end().to_owned()
}

/// Formats a number with digit groups: `1,234,567`.
pub fn group_digits(n: u64) -> String {
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

/// Formats nanoseconds: `12.3 us`.
pub fn format_duration(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 1_000 => format!("{ns} ns"),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats the time of day in UTC, with `digits` digits of the fraction of a second.
pub fn format_time_of_day(at_ns: u64, digits: usize) -> String {
    let (seconds, ns) = (at_ns / 1_000_000_000 % 86_400, at_ns % 1_000_000_000);
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = format!("{ns:09}");
    if digits == 0 { whole } else { format!("{whole}.{}", &fraction[..digits.min(9)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
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
            assert_eq!(with_prefix(value, "b/s"), text);
        }
        assert_eq!(with_prefix(1234.0, ""), "1.23 k");
        assert_eq!([group_digits(0), group_digits(999), group_digits(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(format_time_of_day(3_661_500_000_000, 3), "01:01:01.500");
    }
}

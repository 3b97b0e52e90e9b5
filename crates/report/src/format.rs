//! Formatting of numbers and texts.

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second, decimal.
    BitsPerSecond,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
    /// Bytes, decimal.
    Bytes,
    /// 1 is 100 %.
    Share,
    /// 100 is 100 %.
    Percent,
    /// A number without a unit.
    Number,
}

impl Unit {
    /// Returns the unit of a metric by its path in the record: names end with their unit.
    pub(crate) fn of(path: &str) -> Unit {
        let mut segments = path.rsplit('.');
        let last = segments.next().unwrap_or_default();
        let unit = |name: &str| match name.rsplit('_').next() {
            Some("bps") => Some(Unit::BitsPerSecond),
            Some("us") => Some(Unit::Microseconds),
            Some("bytes") => Some(Unit::Bytes),
            Some("percent") => Some(Unit::Percent),
            Some("s") if name.len() > 1 => Some(Unit::Seconds),
            _ if ["rate_error", "due_error", "gap_distance", "utilization"].contains(&name) => {
                Some(Unit::Share)
            }
            _ => None,
        };
        match last {
            "count" | "n" => Unit::Number,
            // `delay_us.p99`: a percentile has the unit of its distribution.
            _ => unit(last).or_else(|| segments.find_map(unit)).unwrap_or(Unit::Number),
        }
    }

    /// Formats three significant digits and the unit: `36.9 Mb/s`, `71.2 us`, `0.01 %`.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::BitsPerSecond => {
                scaled(value, &[(1.0, "b/s"), (1e3, "kb/s"), (1e6, "Mb/s"), (1e9, "Gb/s"), (1e12, "Tb/s")])
            }
            Unit::Microseconds => scaled(value, &[(1e-3, "ns"), (1.0, "us"), (1e3, "ms"), (1e6, "s")]),
            Unit::Seconds => scaled(value, &[(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s")]),
            Unit::Bytes => scaled(value, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")]),
            Unit::Share => format!("{} %", significant(value * 100.0)),
            Unit::Percent => format!("{} %", significant(value)),
            Unit::Number if value.fract() == 0.0 && value.abs() < 1e15 => grouped(value as i64),
            Unit::Number => significant(value),
        }
    }
}

/// Formats in the largest unit in which the value is at least one.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if value == 0.0 {
        let &(_, name) = units.iter().find(|u| u.0 == 1.0).unwrap_or(&units[0]);
        return format!("0 {name}");
    }
    // 999.6 rounds to 1000, which is 1 of the next unit.
    let is_at_least_one = |u: &&(f64, &str)| value.abs() >= u.0 * 0.9995;
    let &(scale, name) = units.iter().rev().find(is_at_least_one).unwrap_or(&units[0]);
    format!("{} {name}", significant(value / scale))
}

/// Formats three significant digits, no exponent between a millionth and a million, no trailing zeros.
fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e6).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let digits_before = if magnitude < 1e-6 { 1 } else { magnitude.log10().floor() as i32 + 1 };
    let decimals = usize::try_from(3 - digits_before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats with thousands separators: `1,234,567`.
fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = if n < 0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the deviation of `value` from `base`: `+1.2 %`, from a factor of ten on `×12`. `None` if there is no ratio.
pub(crate) fn deviation(value: f64, base: f64) -> Option<String> {
    if value == base {
        return Some("±0 %".into());
    }
    let ratio = value / base;
    if !ratio.is_finite() || base == 0.0 {
        return None;
    }
    let percent = (ratio - 1.0) * 100.0;
    Some(match percent {
        p if p.abs() >= 900.0 => format!("×{}", significant(ratio)),
        p if p.abs() < 0.05 => "±0.0 %".into(),
        p if p.abs() < 10.0 => format!("{p:+.1} %"),
        p => format!("{p:+.0} %"),
    })
}

/// Returns text that cannot control a terminal: control and bidirectional characters become `�`, line breaks a space.
pub fn sanitize(text: &str) -> String {
    let sanitized = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(sanitized).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        use Unit::*;
        for (unit, value, want) in [
            (BitsPerSecond, 36_864_000.0, "36.9 Mb/s"),
            (BitsPerSecond, 999_600_000.0, "1 Gb/s"),
            (BitsPerSecond, 0.0, "0 b/s"),
            (BitsPerSecond, 0.25, "0.25 b/s"),
            (BitsPerSecond, 123_456.0, "123 kb/s"),
            (Microseconds, 71.24, "71.2 us"),
            (Microseconds, 0.4, "400 ns"),
            (Microseconds, 1_500_000.0, "1.5 s"),
            (Microseconds, 0.0, "0 us"),
            (Seconds, 10.0, "10 s"),
            (Bytes, 18_432.0, "18.4 kB"),
            (Share, -0.00012, "-0.012 %"),
            (Percent, 12.34, "12.3 %"),
            (Number, 1_234_567.0, "1,234,567"),
            (Number, -1234.0, "-1,234"),
            (Number, 0.01234, "0.0123"),
            (Number, 1.5e-9, "1.50e-9"),
            (Number, f64::NAN, "?"),
        ] {
            assert_eq!(unit.format(value), want);
        }
    }

    #[test]
    fn a_path_determines_its_unit() {
        for (path, want) in [
            ("B-A.received_bps", Unit::BitsPerSecond),
            ("delay_us.p99", Unit::Microseconds),
            ("delay_us.count", Unit::Number),
            ("cpu.sender_user_s", Unit::Seconds),
            ("counters.retransmissions", Unit::Number),
            ("asked.rate_error", Unit::Share),
            ("h.cpu_percent", Unit::Percent),
            ("cwnd_bytes", Unit::Bytes),
            ("lost", Unit::Number),
        ] {
            assert_eq!(Unit::of(path), want, "{path}");
        }
    }

    #[test]
    fn deviations_are_formatted() {
        for (value, base, want) in [
            (101.2, 100.0, Some("+1.2 %")),
            (50.0, 100.0, Some("-50 %")),
            (5000.0, 100.0, Some("×50")),
            (100.001, 100.0, Some("±0.0 %")),
            (0.0, 0.0, Some("±0 %")),
            (1.0, 0.0, None),
        ] {
            assert_eq!(deviation(value, base).as_deref(), want, "{value} to {base}");
        }
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(sanitize("a\u{1b}[31mb\u{9b}2Jc\r\nd\u{202e}e é"), "a�[31mb�2Jc  d�e é");
    }
}

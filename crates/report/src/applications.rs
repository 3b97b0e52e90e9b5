//! Lines about applications: the latency of open-loop requests, the bit rate of a video, the time of a page.

use trunkline_record::schema::{Connection, Distribution};

use crate::format::Unit;

/// Returns the lines of a connection; none if its test has no such figures.
pub(crate) fn applications(c: &Connection) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(open), Some(closed)) = (&c.rtt_us, &c.closed_loop_rtt_us) {
        lines.push(format!("latency from the due time: {}", percentiles(open)));
        lines.push(format!("latency that a closed loop would have measured: {}", percentiles(closed)));
    }
    lines.extend(bit_rate(c));
    lines.extend(pages(c));
    lines
}

/// Returns `p50 1.2 ms, p90 1.4 ms, p99 900 ms, p99.9 990 ms, max 1 s over 10,000 requests`.
fn percentiles(d: &Distribution) -> String {
    let values = [("p50", d.p50), ("p90", d.p90), ("p99", d.p99), ("p99.9", d.p999), ("max", d.max)];
    let values = values.map(|(name, us)| format!("{name} {}", Unit::Microseconds.format(us)));
    format!("{} over {} requests", values.join(", "), Unit::Number.format(d.count as f64))
}

/// Returns `bit rate 3.34 Mb/s on average, 4 switches, startup delay 312 ms, 2 stalls of 1.2 s in all`.
fn bit_rate(c: &Connection) -> Option<String> {
    let counter = |name: &str| c.counters.get(name).copied();
    let number = |value: f64| Unit::Number.format(value);
    let time = |us: f64| Unit::Microseconds.format(us);
    let mean = Unit::BitsPerSecond.format(counter("mean_bit_rate_bps")?);
    let mut parts = vec![format!("bit rate {mean} on average")];
    parts.extend(counter("switches").map(|count| format!("{} switches", number(count))));
    parts.extend(counter("mean_startup_delay_us").map(|us| format!("startup delay {}", time(us))));
    parts.extend(counter("stalls").zip(counter("stall_time_us")).map(|(count, us)| match count {
        0.0 => "no stall".to_owned(),
        count => format!("{} stalls of {} in all", number(count), time(us)),
    }));
    Some(parts.join(", "))
}

/// Returns `12 pages in 1.2 s on average`.
fn pages(c: &Connection) -> Option<String> {
    let count = c.counters.get("pages").copied().filter(|count| *count > 0.0)?;
    let mean = Unit::Microseconds.format(c.counters.get("page_time_us")? / count);
    Some(format!("{} pages in {mean} on average", Unit::Number.format(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(counters: &[(&str, f64)]) -> Connection {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Connection { counters, ..Connection::default() }
    }

    #[test]
    fn figures_of_applications_are_lines() {
        let latency =
            |p99| Some(Distribution { count: 1_000, p50: 200.0, p99, max: 1e6, ..Distribution::default() });
        let mut rpc = with(&[]);
        rpc.rtt_us = latency(9e5);
        assert!(applications(&rpc).is_empty(), "a round trip alone is in the table");
        rpc.closed_loop_rtt_us = latency(210.0);
        let lines = applications(&rpc);
        assert!(lines[0].contains("due time: p50 200 us") && lines[0].contains("p99 900 ms"), "{lines:?}");
        assert!(lines[1].contains("closed loop") && lines[1].contains("p99 210 us"), "{lines:?}");
        let mut counters = vec![
            ("mean_bit_rate_bps", 3.34e6),
            ("switches", 4.0),
            ("mean_startup_delay_us", 312e3),
            ("stalls", 0.0),
            ("stall_time_us", 0.0),
        ];
        let line = "bit rate 3.34 Mb/s on average, 4 switches, startup delay 312 ms, no stall";
        assert_eq!(applications(&with(&counters)), [line]);
        (counters[3].1, counters[4].1) = (2.0, 1.2e6);
        assert!(applications(&with(&counters))[0].ends_with(", 2 stalls of 1.2 s in all"));
        assert_eq!(applications(&with(&counters[..1])), ["bit rate 3.34 Mb/s on average"]);
        let pages = with(&[("pages", 10.0), ("page_time_us", 12e6)]);
        assert_eq!(applications(&pages), ["10 pages in 1.2 s on average"]);
    }
}

//! Lines about applications: the latency of open-loop requests, the bit rate of a video, the time of a page.

use trunkline_record::schema::{Connection, Distribution, Receiver};

use crate::format::{Unit, sanitize};

/// Returns the lines of a connection; none if its test has no such figures.
pub(crate) fn applications(c: &Connection) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(open), Some(closed)) = (&c.rtt_us, &c.closed_loop_rtt_us) {
        lines.push(format!("latency from the due time: {}", percentiles(open)));
        lines.push(format!("latency that a closed loop would have measured: {}", percentiles(closed)));
    }
    lines.extend(responses(c));
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

/// Returns `1,200 responses, 1.23 MB in all, 984 kb/s`, and for a group `b: 400 responses, 2 missing` of each receiver. Rates and
/// bytes of the connection are those of requests.
fn responses(c: &Connection) -> Vec<String> {
    let counter = |name: &str| c.counters.get(name).copied();
    let (Some(count), Some(bytes)) = (counter("answers"), counter("answer_bytes")) else { return Vec::new() };
    let number = |value: f64| Unit::Number.format(value);
    let missing =
        |count: f64| if count > 0.0 { format!(", {} missing", number(count)) } else { String::new() };
    let seconds: f64 = c.repetitions.iter().map(|repetition| repetition.duration_s).sum();
    let rate = if seconds > 0.0 { Unit::BitsPerSecond.format(bytes * 8.0 / seconds) } else { "–".into() };
    let total = format!(
        "{} responses, {} in all, {rate}{}",
        number(count),
        Unit::Bytes.format(bytes),
        missing(counter("unanswered").unwrap_or(0.0))
    );
    let of_receiver = |r: &Receiver| {
        let missing = missing(r.unanswered.unwrap_or(0) as f64);
        Some(format!("{}: {} responses{missing}", sanitize(&r.host), number(r.answers? as f64)))
    };
    std::iter::once(total).chain(c.receivers.iter().filter_map(of_receiver)).collect()
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
    use trunkline_record::schema::Repetition;

    use super::*;

    #[test]
    fn responses_have_their_own_rate() {
        let mut c = with(&[("answers", 1_200.0), ("answer_bytes", 1.23e6), ("unanswered", 0.0)]);
        c.repetitions = vec![Repetition { duration_s: 5.0, ..Repetition::default() }; 2];
        assert_eq!(applications(&c), ["1,200 responses, 1.23 MB in all, 984 kb/s"]);
        let receiver = |host: &str, unanswered| Receiver {
            host: host.into(),
            answers: Some(600 - unanswered),
            unanswered: Some(unanswered),
            ..Receiver::default()
        };
        c.receivers = vec![receiver("b", 0), receiver("c", 2)];
        c.counters.insert("unanswered".into(), 2.0);
        assert_eq!(
            applications(&c),
            [
                "1,200 responses, 1.23 MB in all, 984 kb/s, 2 missing",
                "b: 600 responses",
                "c: 598 responses, 2 missing"
            ]
        );
        // Those of `stamp` are no traffic of an application.
        assert_eq!(applications(&with(&[("answers", 5.0)])), [] as [&str; 0]);
    }

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

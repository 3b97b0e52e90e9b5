//! The latest values in the Prometheus text exposition format 0.0.4, and the metric names of series.
//!
//! The series `port/eth0/in/octets` of `sw1` is the metric
//! `trunkline_octets_total{device="sw1",direction="in",object="port/eth0",table="…"}`. A series without a known
//! object is `trunkline_value` with its name in the label `series`. Counters are exported unchanged; Prometheus
//! treats the wrap of a 32-bit counter as a reset.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use super::export::format_value;
use super::{Error, Reader, SeriesInfo, SeriesName, TableInfo};
use crate::counter::{RawValue, Timestamp, ValueKind};

/// Maximum number of samples on a page; the metric `trunkline_series_left_out` counts the rest.
pub const MAX_SERIES: usize = 100_000;

/// The metric name and labels of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricName {
    /// The metric name.
    pub metric: String,
    /// Label names and values, sorted by name.
    pub labels: Vec<(&'static str, String)>,
}

impl MetricName {
    /// Returns the metric of a series.
    pub fn new(table: &TableInfo, series: &SeriesInfo) -> MetricName {
        let total = if series.column.kind.is_counter() { "_total" } else { "" };
        let mut labels = vec![("device", table.device.clone()), ("table", table.name.clone())];
        let quantity = match series.name.parse::<SeriesName>() {
            Ok(name) => {
                labels.push(("object", name.object.to_string()));
                labels.extend(name.direction.map(|direction| ("direction", direction.to_string())));
                sanitize(&name.quantity)
            }
            Err(_) => {
                labels.push(("series", series.name.clone()));
                "value".into()
            }
        };
        labels.sort();
        MetricName { metric: format!("trunkline_{quantity}{total}"), labels }
    }
}

/// Writes a name and labels as they precede a value.
fn write_name(out: &mut String, metric: &str, labels: &[(&str, String)]) {
    out.push_str(metric);
    for (at, (name, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{name}=\"", if at == 0 { '{' } else { ',' });
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    out.push_str(if labels.is_empty() { " " } else { "} " });
}

/// Replaces all characters that a metric name must not contain by `_`.
fn sanitize(quantity: &str) -> String {
    let text: String = quantity
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    if text.is_empty() { "value".into() } else { text }
}

/// Returns milliseconds since 1970, the time unit of Prometheus.
pub fn to_milliseconds(time: Timestamp) -> i64 {
    time.0.div_euclid(1_000_000)
}

/// Renders the latest value of every series with the time of its answer, and for every table the time of the last
/// answer and whether the last request was answered. At most [`MAX_SERIES`] values.
pub fn render(reader: &Reader) -> Result<String, Error> {
    render_limited(reader, MAX_SERIES)
}

fn render_limited(reader: &Reader, limit: usize) -> Result<String, Error> {
    let mut metrics: BTreeMap<String, (bool, String)> = BTreeMap::new();
    let (mut count, mut left_out) = (0usize, 0usize);
    let mut put = |metric: &str, counts: bool, line: &dyn Fn(&mut String)| {
        count += 1;
        if count > limit {
            left_out += 1;
            return;
        }
        line(&mut metrics.entry(metric.to_owned()).or_insert((counts, String::new())).1);
    };
    let _: ControlFlow<()> = reader.for_each_table(|table| {
        let (latest, silent) = reader.latest_answer(table.id)?;
        let labels = [("device", table.device.clone()), ("table", table.name.clone())];
        put("trunkline_up", false, &|out| {
            write_name(out, "trunkline_up", &labels);
            let _ = writeln!(out, "{}", u8::from(latest.is_some() && !silent));
        });
        let Some(latest) = latest else { return Ok(ControlFlow::Continue(())) };
        put("trunkline_answered_seconds", false, &|out| {
            write_name(out, "trunkline_answered_seconds", &labels);
            let _ = writeln!(out, "{}", latest.answered_at.0 as f64 / 1e9);
        });
        for series in reader.series(table.id)? {
            let Some(raw) = latest.values.get(series.position).copied().flatten() else { continue };
            let (name, kind) = (MetricName::new(table, &series), series.column.kind);
            put(&name.metric, kind.is_counter(), &|out| {
                write_name(out, &name.metric, &name.labels);
                let _ = writeln!(out, "{} {}", format_sample(raw, kind), to_milliseconds(latest.answered_at));
            });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut text = String::new();
    for (metric, (counts, lines)) in metrics {
        let _ = writeln!(text, "# TYPE {metric} {}", if counts { "counter" } else { "gauge" });
        text += &lines;
    }
    let _ = writeln!(text, "# TYPE trunkline_series_left_out gauge\ntrunkline_series_left_out {left_out}");
    Ok(text)
}

/// Formats a sample; infinities are `+Inf` and `-Inf`.
fn format_sample(raw: RawValue, kind: ValueKind) -> String {
    match raw.to_f64(kind) {
        v if v == f64::INFINITY => "+Inf".into(),
        v if v == f64::NEG_INFINITY => "-Inf".into(),
        _ => format_value(raw, kind),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::archive::{SeriesSpec, TableSpec, Writer};
    use crate::counter::{Answer, Response};

    fn archive(device: &str) -> (tempfile::TempDir, Reader, Writer, crate::archive::Layout) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters.sqlite");
        let mut writer = Writer::open(&path).unwrap();
        let one = |name: &str, kind| SeriesSpec::new(name, kind, "octets");
        let spec = TableSpec {
            device: device.into(),
            name: "if".into(),
            period: Duration::from_secs(1),
            refresh: Some(Duration::ZERO),
            series: vec![
                one("port/eth0/in/octets", ValueKind::Counter64),
                one("host/delay", ValueKind::Real),
                one("so \"called\"", ValueKind::Gauge),
            ],
        };
        let layout = writer.open_table(&spec).unwrap();
        let reader = Reader::open(&path).unwrap();
        (dir, reader, writer, layout)
    }

    fn put(writer: &mut Writer, table: crate::archive::TableId, at_s: i64, values: Option<[RawValue; 3]>) {
        let at = Timestamp(at_s * 1_000_000_000);
        let values = values.map(|values| values.map(Some).to_vec());
        let answer = values.map(|values| Answer { answered_at: at, uptime: None, values });
        writer.append(table, &Response { due_at: at, requested_at: at, answer }).unwrap();
        writer.flush().unwrap();
    }

    #[test]
    fn the_newest_values_include_chunks_and_silent_devices() {
        let (_dir, reader, mut writer, layout) = archive("sw\\1");
        let values =
            |n: u64| Some([RawValue(u64::MAX - n), RawValue::from_real(0.25), RawValue::from_gauge(-3)]);
        put(&mut writer, layout.table, 1, values(9));
        put(&mut writer, layout.table, 2, values(1));
        let want = |up: u8| {
            format!(
                "# TYPE trunkline_answered_seconds gauge\n\
                 trunkline_answered_seconds{{device=\"sw\\\\1\",table=\"if\"}} 2\n\
                 # TYPE trunkline_delay gauge\n\
                 trunkline_delay{{device=\"sw\\\\1\",object=\"host\",table=\"if\"}} 0.25 2000\n\
                 # TYPE trunkline_octets_total counter\n\
                 trunkline_octets_total{{device=\"sw\\\\1\",direction=\"in\",object=\"port/eth0\",table=\"if\"}} \
                 18446744073709551614 2000\n\
                 # TYPE trunkline_up gauge\n\
                 trunkline_up{{device=\"sw\\\\1\",table=\"if\"}} {up}\n\
                 # TYPE trunkline_value gauge\n\
                 trunkline_value{{device=\"sw\\\\1\",series=\"so \\\"called\\\"\",table=\"if\"}} -3 2000\n\
                 # TYPE trunkline_series_left_out gauge\ntrunkline_series_left_out 0\n"
            )
        };
        assert_eq!(render(&reader).unwrap(), want(1));
        writer.make_all_chunks().unwrap();
        assert_eq!(render(&reader).unwrap(), want(1), "also from a chunk");
        put(&mut writer, layout.table, 3, None);
        assert_eq!(render(&reader).unwrap(), want(0), "nothing came any more");
        writer.make_all_chunks().unwrap();
        assert_eq!(render(&reader).unwrap(), want(0));
        put(&mut writer, layout.table, 4, values(0));
        assert!(render(&reader).unwrap().contains("18446744073709551615 4000"));
    }

    #[test]
    fn a_page_is_bounded() {
        let (_dir, reader, mut writer, layout) = archive("sw1");
        put(&mut writer, layout.table, 1, Some([RawValue(1), RawValue(2), RawValue(3)]));
        let page = render_limited(&reader, 3).unwrap();
        assert!(page.ends_with("trunkline_series_left_out 2\n"), "{page}");
        assert!(page.contains("trunkline_octets_total{") && !page.contains("trunkline_delay"));
    }

    #[test]
    fn names_hold_what_names_may_hold() {
        assert_eq!(sanitize("ifHC-In.octets/ü"), "ifhc_in_octets__");
        assert_eq!(sanitize(""), "value");
    }
}

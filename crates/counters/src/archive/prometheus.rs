//! The newest values as Prometheus reads them (text exposition format 0.0.4), and what series are called there.
//!
//! `port/eth0/in/octets` of `sw1` is `trunkline_octets_total{device="sw1",direction="in",object="port/eth0",table="…"}`;
//! a series of no known place is `trunkline_value` with its name as label `series`. Counters are told as they were read:
//! Prometheus takes the wrap of a 32-bit counter for a reset.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use super::flat::written;
use super::{Error, Place, Reader, SeriesInfo, TableInfo};
use crate::counter::{Kind, Moment, Raw};

/// Most series of a page; the rest is counted and left out.
pub const MOST_SERIES: usize = 100_000;

/// What a series is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The metric.
    pub metric: String,
    /// Names and values of labels, in the order of names.
    pub labels: Vec<(&'static str, String)>,
}

impl Name {
    /// Of a series.
    pub fn of(table: &TableInfo, series: &SeriesInfo) -> Name {
        let total = if series.column.kind.counts() { "_total" } else { "" };
        let mut labels = vec![("device", table.device.clone()), ("table", table.name.clone())];
        let quantity = match series.name.parse::<Place>() {
            Ok(place) => {
                labels.push(("object", place.object.to_string()));
                labels.extend(place.direction.map(|way| ("direction", way.to_string())));
                plain(&place.quantity)
            }
            Err(_) => {
                labels.push(("series", series.name.clone()));
                "value".into()
            }
        };
        labels.sort();
        Name { metric: format!("trunkline_{quantity}{total}"), labels }
    }

    /// As it stands before a value.
    fn write(&self, out: &mut String) {
        write_name(out, &self.metric, &self.labels);
    }
}

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

/// Letters, digits and `_`: what a metric's name may hold.
fn plain(quantity: &str) -> String {
    let text: String = quantity
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    if text.is_empty() { "value".into() } else { text }
}

/// A value as a sample is sent: counters beyond 2^53 are rounded, as Prometheus does.
pub fn sample(raw: Raw, kind: Kind) -> f64 {
    raw.number(kind)
}

/// Milliseconds since 1970, as Prometheus counts time.
pub fn milliseconds(moment: Moment) -> i64 {
    moment.0.div_euclid(1_000_000)
}

/// The newest value of every series with the time of its answer; of every table whether its last request was answered,
/// and when one was last. At most [`MOST_SERIES`] values.
pub fn page(reader: &Reader) -> Result<String, Error> {
    at_most(reader, MOST_SERIES)
}

fn at_most(reader: &Reader, most: usize) -> Result<String, Error> {
    let mut metrics: BTreeMap<String, (bool, String)> = BTreeMap::new();
    let (mut count, mut left_out) = (0usize, 0usize);
    let mut put = |metric: &str, counts: bool, line: &dyn Fn(&mut String)| {
        count += 1;
        if count > most {
            left_out += 1;
            return;
        }
        line(&mut metrics.entry(metric.to_owned()).or_insert((counts, String::new())).1);
    };
    let _: ControlFlow<()> = reader.each_table(|table| {
        let (newest, silent) = reader.newest(table.id)?;
        let labels = [("device", table.device.clone()), ("table", table.name.clone())];
        put("trunkline_up", false, &|out| {
            write_name(out, "trunkline_up", &labels);
            let _ = writeln!(out, "{}", u8::from(newest.is_some() && !silent));
        });
        let Some(newest) = newest else { return Ok(ControlFlow::Continue(())) };
        put("trunkline_answered_seconds", false, &|out| {
            write_name(out, "trunkline_answered_seconds", &labels);
            let _ = writeln!(out, "{}", newest.answered.0 as f64 / 1e9);
        });
        for series in reader.series(table.id)? {
            let Some(raw) = newest.values.get(series.position).copied().flatten() else { continue };
            let (name, kind) = (Name::of(table, &series), series.column.kind);
            put(&name.metric, kind.counts(), &|out| {
                name.write(out);
                let _ = writeln!(out, "{} {}", value(raw, kind), milliseconds(newest.answered));
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

/// A value as text: `NaN`, `+Inf` and `-Inf` are written so.
fn value(raw: Raw, kind: Kind) -> String {
    match raw.number(kind) {
        v if v == f64::INFINITY => "+Inf".into(),
        v if v == f64::NEG_INFINITY => "-Inf".into(),
        _ => written(raw, kind),
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
        let one = |name: &str, kind| SeriesSpec {
            name: name.into(),
            kind,
            unit: "octets".into(),
            ceiling: None,
            mark: None,
        };
        let spec = TableSpec {
            device: device.into(),
            name: "if".into(),
            period: Duration::from_secs(1),
            refresh: Some(Duration::ZERO),
            series: vec![
                one("port/eth0/in/octets", Kind::Counter64),
                one("host/delay", Kind::Real),
                one("so \"called\"", Kind::Gauge),
            ],
        };
        let layout = writer.table(&spec).unwrap();
        let reader = Reader::open(&path).unwrap();
        (dir, reader, writer, layout)
    }

    fn put(writer: &mut Writer, table: crate::archive::TableId, at_s: i64, values: Option<[Raw; 3]>) {
        let at = Moment(at_s * 1_000_000_000);
        let values = values.map(|values| values.map(Some).to_vec());
        let answer = values.map(|values| Answer { answered: at, uptime: None, values });
        writer.append(table, &Response { due: at, asked: at, answer }).unwrap();
        writer.flush().unwrap();
    }

    #[test]
    fn the_newest_values_are_told_also_of_chunks_and_of_the_silent() {
        let (_dir, reader, mut writer, layout) = archive("sw\\1");
        let values = |n: u64| Some([Raw(u64::MAX - n), Raw::real(0.25), Raw::gauge(-3)]);
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
        assert_eq!(page(&reader).unwrap(), want(1));
        writer.seal_all().unwrap();
        assert_eq!(page(&reader).unwrap(), want(1), "also from a chunk");
        put(&mut writer, layout.table, 3, None);
        assert_eq!(page(&reader).unwrap(), want(0), "nothing came any more");
        writer.seal_all().unwrap();
        assert_eq!(page(&reader).unwrap(), want(0));
        put(&mut writer, layout.table, 4, values(0));
        assert!(page(&reader).unwrap().contains("18446744073709551615 4000"));
    }

    #[test]
    fn a_page_is_bounded() {
        let (_dir, reader, mut writer, layout) = archive("sw1");
        put(&mut writer, layout.table, 1, Some([Raw(1), Raw(2), Raw(3)]));
        let page = at_most(&reader, 3).unwrap();
        assert!(page.ends_with("trunkline_series_left_out 2\n"), "{page}");
        assert!(page.contains("trunkline_octets_total{") && !page.contains("trunkline_delay"));
    }

    #[test]
    fn names_hold_what_names_may_hold() {
        assert_eq!(plain("ifHC-In.octets/ü"), "ifhc_in_octets__");
        assert_eq!(plain(""), "value");
    }
}

//! Lookup of the record's metrics by name, and evaluation of expectations.
//!
//! A metric is a number of the record. Its subject is a connection, link or host; its path leads to the number inside
//! the JSON of the subject.

use serde::Serialize;
use serde_json::Value;

use crate::schema::{Outcome, Record};

/// The required relation of a metric to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
}

impl Relation {
    /// Returns whether `measured` is in this relation to `expected`. For NaN only `!=` holds.
    pub fn holds(self, measured: f64, expected: f64) -> bool {
        match self {
            Relation::Below => measured < expected,
            Relation::AtMost => measured <= expected,
            Relation::Above => measured > expected,
            Relation::AtLeast => measured >= expected,
            Relation::Equal => measured == expected,
            Relation::NotEqual => measured != expected,
        }
    }
}

/// An expectation: `SUBJECT.PATH RELATION VALUE`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation<'a> {
    /// The source text, for messages.
    pub text: &'a str,
    /// The name of a connection, link, switch or host.
    pub subject: &'a str,
    /// The path of the metric, as in [`metric`].
    pub path: &'a str,
    /// The required relation.
    pub relation: Relation,
    /// The bound in the unit of the metric.
    pub bound: f64,
}

/// Evaluates expectations in order. An expectation fails if the record does not have its metric.
pub fn evaluate<'a>(
    expectations: impl IntoIterator<Item = Expectation<'a>>,
    record: &Record,
) -> Vec<Outcome> {
    let outcome = |e: Expectation<'a>| {
        let measured = metric(record, e.subject, e.path);
        let passed = measured.is_some_and(|m| e.relation.holds(m, e.bound));
        Outcome { text: e.text.to_owned(), expected: e.bound, measured, passed }
    };
    expectations.into_iter().map(outcome).collect()
}

/// Returns a number of the record. `subject` is the name of a connection, a link, a switch or a host, searched in that
/// order; `path` leads to the number inside its entry, as in the JSON of the record: `received_bps`, `delay_us.p99`,
/// `counters.retransmissions`, `interfaces.lo.rx_packets`.
///
/// In an array, the next segment is an index or the `name` (`host`) of an element: `asked.variables.gap.distance`.
/// Returns `None` if the number does not exist or is null.
pub fn metric(record: &Record, subject: &str, path: &str) -> Option<f64> {
    let connection =
        || record.connections.iter().find(|c| c.name == subject).and_then(|c| number_at(c, path));
    let link = || record.links.iter().find(|l| l.name == subject).and_then(|l| number_at(l, path));
    let switch = || record.switches.iter().find(|s| s.name == subject).and_then(|s| number_at(s, path));
    let host = || record.hosts.iter().find(|h| h.name == subject).and_then(|h| number_at(h, path));
    connection().or_else(link).or_else(switch).or_else(host)
}

/// Returns the number at `path` inside one entry.
fn number_at(entry: &impl Serialize, path: &str) -> Option<f64> {
    lookup(&to_json(entry), path)?.as_f64()
}

/// Converts an entry of the record to JSON.
pub(crate) fn to_json(entry: &impl Serialize) -> Value {
    serde_json::to_value(entry).expect("the schema has text keys only")
}

/// Returns the value at a dotted path. Names may contain dots (`lo.rx_packets`), so every split is tried, the longest
/// name first.
pub(crate) fn lookup<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if let Some(found) = child(value, path) {
        return Some(found);
    }
    path.rmatch_indices('.').find_map(|(dot, _)| lookup(child(value, &path[..dot])?, &path[dot + 1..]))
}

/// Returns the member of an object, or the element of an array, with this name.
fn child<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(name),
        Value::Array(list) => match name.parse::<usize>() {
            Ok(index) => list.get(index),
            Err(_) => list.iter().find(|v| [v.get("name"), v.get("host")].contains(&Some(&name.into()))),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Connection, Distribution, Fit, Host, Link, SendAccuracy};

    fn record() -> Record {
        let mut c = Connection { name: "B-A".into(), received_bps: 3e7, lost: 2, ..Connection::default() };
        c.delay_us = Some(Distribution { p99: 81.5, ..Distribution::default() });
        c.counters.insert("retransmissions".into(), 7.0);
        c.requested = SendAccuracy {
            rate_error: Some(-0.001),
            variables: vec![Fit { name: "gap".into(), distance: 0.02, ..Fit::default() }],
            ..SendAccuracy::default()
        };
        let link = Link { name: "B-A".into(), utilization: 0.9, ..Link::default() };
        let mut host = Host { name: "a".into(), cpu_percent: 12.0, ..Host::default() };
        host.interfaces.insert("lo.rx_packets".into(), 5);
        Record { connections: vec![c], links: vec![link], hosts: vec![host], ..Record::default() }
    }

    #[test]
    fn any_number_is_found_by_its_name() {
        let r = record();
        for (subject, path, want) in [
            ("B-A", "received_bps", Some(3e7)),
            ("B-A", "lost", Some(2.0)),
            ("B-A", "delay_us.p99", Some(81.5)),
            ("B-A", "counters.retransmissions", Some(7.0)),
            ("B-A", "asked.rate_error", Some(-0.001)),
            ("B-A", "asked.variables.gap.distance", Some(0.02)),
            ("B-A", "asked.variables.0.distance", Some(0.02)),
            ("B-A", "utilization", Some(0.9)), // the link of the same name
            ("a", "cpu_percent", Some(12.0)),
            ("a", "interfaces.lo.rx_packets", Some(5.0)),
            ("a", "address", None),
            ("B-A", "rtt_us.p50", None),
            ("B-A", "transport", None),
            ("B-A", "delay_us", None),
            ("B-A", "", None),
            ("B-A", "...", None),
            ("unknown", "lost", None),
        ] {
            assert_eq!(metric(&r, subject, path), want, "{subject}.{path}");
        }
    }

    #[test]
    fn expectations_are_evaluated() {
        use Relation::*;
        let r = record();
        let outcome = |path, relation, bound| {
            let e = Expectation { text: "as written", subject: "B-A", path, relation, bound };
            evaluate([e], &r).remove(0)
        };
        assert_eq!(
            outcome("received_bps", Above, 2e7),
            Outcome { text: "as written".into(), expected: 2e7, measured: Some(3e7), passed: true }
        );
        for (relation, below, equal, above) in [
            (Below, true, false, false),
            (AtMost, true, true, false),
            (Above, false, false, true),
            (AtLeast, false, true, true),
            (Equal, false, true, false),
            (NotEqual, true, false, true),
        ] {
            // The metric is 2: below 3, equal to 2, above 1.
            assert_eq!(
                [3.0, 2.0, 1.0].map(|bound| outcome("lost", relation, bound).passed),
                [below, equal, above],
                "{relation:?}"
            );
        }
        // An unknown metric fails, even with `!=`.
        let unknown = outcome("rtt_us.p50", NotEqual, 1.0);
        assert!(!unknown.passed && unknown.measured.is_none());
    }
}

//! Figures by name, and the expectations that rest on them.

use serde::Serialize;
use serde_json::Value;

use crate::schema::{Outcome, Record};

/// How a figure must compare with a bound.
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
    /// Whether `measured` stands in this relation to `expected`. NaN stands in none but `!=`.
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

/// One expectation: `SUBJECT.PATH RELATION VALUE`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected<'a> {
    /// As written, for messages.
    pub text: &'a str,
    /// Connection, link or host.
    pub subject: &'a str,
    /// Figure, as [`figure`] takes it.
    pub path: &'a str,
    /// How they must compare.
    pub relation: Relation,
    /// The bound, in the figure's unit.
    pub value: f64,
}

/// Judges expectations, in order. One whose figure the record does not have has failed.
pub fn judge<'a>(expectations: impl IntoIterator<Item = Expected<'a>>, record: &Record) -> Vec<Outcome> {
    let judge_one = |e: Expected<'a>| {
        let measured = figure(record, e.subject, e.path);
        let held = measured.is_some_and(|m| e.relation.holds(m, e.value));
        Outcome { text: e.text.to_owned(), expected: e.value, measured, held }
    };
    expectations.into_iter().map(judge_one).collect()
}

/// Any number of the record: `subject` is the name of a connection, a link or a host, looked for in that order;
/// `path` leads to the number inside its entry, as the record spells it: `received_bps`, `delay_us.p99`,
/// `counters.retransmissions`, `interfaces.lo.rx_packets`.
///
/// In an array the next word is an index or the `name` (`host`) of an element: `asked.variables.gap.distance`.
/// None if there is no such number or it is null.
pub fn figure(record: &Record, subject: &str, path: &str) -> Option<f64> {
    let connection = || record.connections.iter().find(|c| c.name == subject).and_then(|c| number(c, path));
    let link = || record.links.iter().find(|l| l.name == subject).and_then(|l| number(l, path));
    let host = || record.hosts.iter().find(|h| h.name == subject).and_then(|h| number(h, path));
    connection().or_else(link).or_else(host)
}

/// The number at `path` inside one entry.
fn number(entry: &impl Serialize, path: &str) -> Option<f64> {
    walk(&value(entry), path)?.as_f64()
}

/// An entry of the record as a tree of names.
pub(crate) fn value(entry: &impl Serialize) -> Value {
    serde_json::to_value(entry).expect("the schema has text keys only")
}

/// What stands at a dotted path. A name may itself hold dots (`lo.rx_packets`), so every split is tried, the longest
/// name first.
pub(crate) fn walk<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if let Some(found) = child(value, path) {
        return Some(found);
    }
    path.rmatch_indices('.').find_map(|(dot, _)| walk(child(value, &path[..dot])?, &path[dot + 1..]))
}

fn child<'v>(value: &'v Value, word: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(word),
        Value::Array(list) => match word.parse::<usize>() {
            Ok(index) => list.get(index),
            Err(_) => list.iter().find(|v| [v.get("name"), v.get("host")].contains(&Some(&word.into()))),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Asked, Connection, Distribution, Fit, Host, Link};

    fn record() -> Record {
        let mut c = Connection { name: "B-A".into(), received_bps: 3e7, lost: 2, ..Connection::default() };
        c.delay_us = Some(Distribution { p99: 81.5, ..Distribution::default() });
        c.counters.insert("retransmissions".into(), 7.0);
        c.asked = Asked {
            rate_error: Some(-0.001),
            variables: vec![Fit { name: "gap".into(), distance: 0.02, ..Fit::default() }],
            ..Asked::default()
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
            ("nobody", "lost", None),
        ] {
            assert_eq!(figure(&r, subject, path), want, "{subject}.{path}");
        }
    }

    #[test]
    fn expectations_are_judged() {
        use Relation::*;
        let r = record();
        let judged = |path, relation, value| {
            let e = Expected { text: "as written", subject: "B-A", path, relation, value };
            judge([e], &r).remove(0)
        };
        assert_eq!(
            judged("received_bps", Above, 2e7),
            Outcome { text: "as written".into(), expected: 2e7, measured: Some(3e7), held: true }
        );
        for (relation, below, same, above) in [
            (Below, true, false, false),
            (AtMost, true, true, false),
            (Above, false, false, true),
            (AtLeast, false, true, true),
            (Equal, false, true, false),
            (NotEqual, true, false, true),
        ] {
            // The figure is 2: below 3, same as 2, above 1.
            assert_eq!(
                [3.0, 2.0, 1.0].map(|v| judged("lost", relation, v).held),
                [below, same, above],
                "{relation:?}"
            );
        }
        // An unknown figure fails, even where "not" was asked.
        let unknown = judged("rtt_us.p50", NotEqual, 1.0);
        assert!(!unknown.held && unknown.measured.is_none());
    }
}

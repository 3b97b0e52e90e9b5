//! `expect SUBJECT.FIGURE > VALUE;`: which number of the record must be how large.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::quantity::single;
use super::quantity::{Dimension, quantity};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parse::shorten;
use crate::plan::{Expectation, NodeKind, Plan, Relation, SourceRange};
use crate::token;
use crate::tree::{Value, Word};

/// What a figure of the record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// A number.
    Number,
    /// An object with exactly these numbers.
    Object(&'static [&'static str]),
    /// An object or array whose names only the run knows.
    Open,
}

const DISTRIBUTION: Figure =
    Figure::Object(&["min", "p50", "p90", "p99", "p999", "max", "mean", "sd", "count"]);
const ASKED: Figure = Figure::Object(&[
    "rate_error",
    "gap_distance",
    "gap_p_value",
    "gap_samples",
    "bursts_skipped",
    "bursts_late",
]);
const CPU: Figure =
    Figure::Object(&["sender_user_s", "sender_system_s", "receiver_user_s", "receiver_system_s"]);

/// The figures of the record's `connections`, `links`, `switches` and `hosts`.
const CONNECTION: &[(&str, Figure)] = &[
    ("offered_bps", Figure::Number),
    ("sent_bps", Figure::Number),
    ("received_bps", Figure::Number),
    ("messages_sent", Figure::Number),
    ("messages_received", Figure::Number),
    ("lost", Figure::Number),
    ("duplicated", Figure::Number),
    ("reordered", Figure::Number),
    ("corrupted", Figure::Number),
    ("delay_us", DISTRIBUTION),
    ("rtt_us", DISTRIBUTION),
    ("gap_us", DISTRIBUTION),
    ("sent_gap_us", DISTRIBUTION),
    ("late_us", DISTRIBUTION),
    ("asked", ASKED),
    ("cpu", CPU),
    ("runs", Figure::Open),
    ("repeats", Figure::Open),
    ("counters", Figure::Open),
    ("receivers", Figure::Open),
    ("series", Figure::Open),
];
const LINK: &[(&str, Figure)] = &[
    ("utilization", Figure::Number),
    ("dropped", Figure::Number),
    ("dropped_queue", Figure::Number),
    ("lost_line", Figure::Number),
    ("damaged", Figure::Number),
    ("aal5_failed", Figure::Number),
    ("queue_max", Figure::Number),
];
const SWITCH: &[(&str, Figure)] = &[
    ("dropped_full", Figure::Number),
    ("dropped_damaged", Figure::Number),
    ("dropped_no_route", Figure::Number),
];
const HOST: &[(&str, Figure)] = &[("cpu_percent", Figure::Number), ("interfaces", Figure::Open)];

/// Every dot is tried as the end of the name, so a path of nothing but dots must not be long.
const LONGEST_PATH: usize = 1024;

type Figures = &'static [(&'static str, Figure)];

/// Every name an expectation can be about. A connection and a link may share one.
pub(crate) struct Subjects {
    names: BTreeMap<String, Vec<Figures>>,
    /// Whether a connection of unknown name is missing; then no subject is reported as unknown.
    nameless: bool,
}

impl Subjects {
    /// Those of a plan, and of the connections that could not be read.
    pub(crate) fn of(plan: &Plan, broken: &[Option<&Word>]) -> Self {
        let mut subjects: BTreeMap<String, Vec<Figures>> = BTreeMap::new();
        // A hub or ring is one link of the record, under its own name; its stations' places are none.
        let shared = |kind: &NodeKind| matches!(kind, NodeKind::Hub { .. } | NodeKind::Ring { .. });
        let shared: BTreeSet<&str> = plan
            .network
            .iter()
            .flat_map(|n| &n.nodes)
            .filter(|n| shared(&n.kind))
            .map(|n| n.name.as_str())
            .collect();
        let lines = plan.network.iter().flat_map(|n| &n.links);
        let lines = lines.filter(|l| !shared.contains(l.a.as_str()) && !shared.contains(l.b.as_str()));
        let nodes = plan.network.iter().flat_map(|n| &n.nodes).filter(|n| shared.contains(n.name.as_str()));
        let links = lines.map(|l| &l.name).chain(nodes.map(|n| &n.name));
        let names = plan.connections.iter().map(|c| (&c.name, CONNECTION));
        let names = names.chain(broken.iter().flatten().map(|word| (&word.text, CONNECTION)));
        // A converter is a host of the record.
        let converters = plan.network.iter().flat_map(|n| &n.nodes);
        let converters = converters.filter(|n| matches!(n.kind, NodeKind::Converter { .. })).map(|n| &n.name);
        let hosts = plan.hosts.iter().chain(converters);
        let switches = plan.network.iter().flat_map(|n| &n.nodes);
        let switches = switches.filter(|n| matches!(n.kind, NodeKind::Switch { .. })).map(|n| &n.name);
        let names = names.chain(links.map(|n| (n, LINK))).chain(switches.map(|n| (n, SWITCH)));
        let names = names.chain(hosts.map(|n| (n, HOST)));
        for (name, figures) in names {
            subjects.entry(name.clone()).or_default().push(figures);
        }
        Subjects { names: subjects, nameless: broken.contains(&None) }
    }

    /// The longest known name that `path` begins with (names contain dots), and the figure behind it.
    fn split<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str, &[Figures])> {
        let dots = path.rmatch_indices('.');
        dots.map(|(at, _)| (&path[..at], &path[at + 1..]))
            .find_map(|(name, figure)| self.names.get(name).map(|f| (name, figure, &f[..])))
    }
}

/// Reads one expectation against the names of the plan.
pub(crate) fn expectation(
    cx: &mut Context<'_>,
    subjects: &Subjects,
    path: &Word,
    relation: &Word,
    value: &Value,
    place: SourceRange,
) -> Option<Expectation> {
    let found = if path.text.len() <= LONGEST_PATH { subjects.split(&path.text) } else { None };
    let Some((subject, figure, kinds)) = found else {
        if !subjects.nameless {
            unknown_subject(cx, subjects, path);
        }
        return None;
    };
    let kind = check_figure(cx, path, figure, kinds)?;
    let relation = relation_of(&relation.text);
    let (dimension, factor) = dimension_of(figure, kind);
    let part = single(cx, value, "a number")?;
    let number = quantity(cx, part, dimension)? * factor;
    let number = if factor == 1.0 { number } else { round(number) };
    let unit = part.unit.as_ref().map_or(String::new(), |unit| format!(" {}", unit.text));
    let text = format!("{} {} {}{unit}", token::written(&path.text), sign(relation), spaced(&part.text));
    let (subject, figure) = (subject.to_owned(), figure.to_owned());
    Some(Expectation { subject, figure, relation, value: number + 0.0, text, place })
}

/// The figures of the record that `written` names, each as its subject and the path in its entry: `SUBJECT.FIGURE`, or
/// `FIGURE` alone of every connection.
///
/// # Errors
/// One line: what is wrong, and what was perhaps meant.
pub fn figures(plan: &Plan, written: &str) -> Result<Vec<(String, String)>, String> {
    let mut cx = Context {
        diagnostics: Diagnostics::default(),
        files: &|_| Err("there are no files here".to_owned()),
    };
    let subjects = Subjects::of(plan, &[]);
    let path = Word { text: written.to_owned(), place: SourceRange { start: 0, end: written.len() } };
    let found = if written.len() <= LONGEST_PATH { subjects.split(written) } else { None };
    let first = written.split('.').next().unwrap_or_default();
    let alone = CONNECTION.iter().any(|(name, _)| *name == first);
    let named = match found {
        Some((subject, figure, kinds)) => {
            check_figure(&mut cx, &path, figure, kinds).map(|_| vec![(subject.to_owned(), figure.to_owned())])
        }
        None if alone => check_figure(&mut cx, &path, written, &[CONNECTION])
            .map(|_| plan.connections.iter().map(|c| (c.name.clone(), written.to_owned())).collect()),
        None => {
            unknown_subject(&mut cx, &subjects, &path);
            None
        }
    };
    named.ok_or_else(|| cx.diagnostics.into_vec().first().map_or_else(String::new, |d| d.line()))
}

/// `30Mb/s` as it reads when two words: `30 Mb/s`.
fn spaced(number: &str) -> String {
    let unit =
        number.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E'));
    let digits = &number[..number.len() - unit.len()];
    if unit.is_empty() { digits.to_owned() } else { format!("{digits} {unit}") }
}

/// Seconds read from `300 us` are 0.0003 exactly or nearly; times 1e6 they shall be 300 again.
fn round(us: f64) -> f64 {
    let near = (us * 1e6).round() / 1e6;
    if (us - near).abs() <= us.abs() * 1e-12 { near } else { us }
}

fn unknown_subject(cx: &mut Context<'_>, subjects: &Subjects, path: &Word) {
    let name = path.text.split_once('.').map_or(path.text.as_str(), |_| first_figure(&path.text));
    let error = Diagnostic::error(
        path.place,
        format!("`{}` is about nothing in this experiment", shorten(&path.text)),
    );
    let names = subjects.names.keys().map(String::as_str);
    cx.report(if subjects.names.contains_key(&path.text) {
        error
            .label("expected a figure behind it")
            .help(format!("such as `{}.received_bps`", shorten(&path.text)))
    } else {
        let error = error.label("expected a connection, link, switch or host, then `.` and a figure");
        cx.suggest(error, name, names)
    });
}

/// What stands before the first segment that is the name of a figure; without one, before the last dot.
fn first_figure(path: &str) -> &str {
    let known = |segment: &str| {
        [CONNECTION, LINK, SWITCH, HOST].iter().any(|f| f.iter().any(|(name, _)| *name == segment))
    };
    let mut at = 0;
    for segment in path.split('.') {
        if at > 0 && known(segment) {
            return &path[..at - 1];
        }
        at += segment.len() + 1;
    }
    path.rsplit_once('.').map_or(path, |(name, _)| name)
}

/// Checks the figure against the record's schema.
fn check_figure(cx: &mut Context<'_>, path: &Word, figure: &str, kinds: &[Figures]) -> Option<Figure> {
    let (first, rest) = figure.split_once('.').map_or((figure, None), |(first, rest)| (first, Some(rest)));
    // A string or an address in brackets has other bytes than its text; then the whole is pointed at.
    let plain = path.place.end - path.place.start == path.text.len();
    let start = if plain { path.place.end - figure.len() } else { path.place.start };
    let place = SourceRange { start, end: path.place.end };
    let found = kinds.iter().flat_map(|f| f.iter()).find(|(name, _)| *name == first);
    let Some(&(name, kind)) = found else {
        let error = Diagnostic::error(place, format!("the record has no figure `{}` here", shorten(first)));
        let names = kinds.iter().flat_map(|f| f.iter()).map(|(name, _)| *name);
        cx.report(error.label("unknown figure").suggest(first, names));
        return None;
    };
    let error = match (kind, rest) {
        (Figure::Number, None) | (Figure::Open, Some(_)) => return Some(kind),
        (Figure::Object(fields), Some(field)) if fields.contains(&field) => return Some(kind),
        // The laws that were judged, by name: only the run knows them.
        (ASKED, Some(field)) if field.starts_with("variables.") => return Some(Figure::Open),
        (Figure::Number, Some(_)) => Diagnostic::error(place, format!("`{name}` is one number"))
            .label(format!("expected `{name}` alone")),
        (Figure::Object(fields), None) => Diagnostic::error(place, format!("`{name}` is several numbers"))
            .label("expected one of them")
            .help(format!("such as `{name}.{}`", fields[fields.len().min(4) - 1])),
        (Figure::Object(fields), Some(field)) => {
            Diagnostic::error(place, format!("`{name}` has no `{}`", shorten(field)))
                .label("unknown figure")
                .suggest(field, fields.iter().copied())
        }
        (Figure::Open, None) => Diagnostic::error(place, format!("`{name}` is several numbers"))
            .label(format!("expected `{name}.NAME`")),
    };
    cx.report(error);
    None
}

/// The unit a figure's name ends in, and what a value read in that dimension multiplies by.
fn dimension_of(figure: &str, kind: Figure) -> (Dimension, f64) {
    let last = figure.rsplit('.').next().unwrap_or(figure);
    if kind == DISTRIBUTION && last == "count" {
        return (Dimension::Plain, 1.0);
    }
    // Subfields such as `p99` or `mean` take the unit of what they are of.
    for segment in figure.rsplit('.') {
        match segment.rsplit_once('_').map(|(_, unit)| unit) {
            // Bare: microseconds, read as a period; the plan keeps the figure's own unit.
            Some("us") => return (Dimension::Period, 1e6),
            Some("s") => return (Dimension::Duration, 1.0),
            Some("bps") => return (Dimension::Rate, 1.0),
            Some("bytes") => return (Dimension::Size, 1.0),
            _ if segment == "queue_max" => return (Dimension::Size, 1.0),
            _ => {}
        }
    }
    (Dimension::Plain, 1.0)
}

fn relation_of(sign: &str) -> Relation {
    match sign {
        "<" => Relation::Below,
        "<=" => Relation::AtMost,
        ">" => Relation::Above,
        ">=" => Relation::AtLeast,
        "!=" => Relation::NotEqual,
        _ => Relation::Equal,
    }
}

/// Returns the operator of a relation.
pub(crate) fn sign(relation: Relation) -> &'static str {
    match relation {
        Relation::Below => "<",
        Relation::AtMost => "<=",
        Relation::Above => ">",
        Relation::AtLeast => ">=",
        Relation::Equal => "=",
        Relation::NotEqual => "!=",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's own list of figures; `record` is not known here, its documented names are.
    #[test]
    fn the_figures_of_the_contract_are_known() {
        let documented = [
            "offered_bps",
            "sent_bps",
            "received_bps",
            "messages_sent",
            "messages_received",
            "lost",
            "duplicated",
            "reordered",
            "corrupted",
            "delay_us",
            "rtt_us",
            "gap_us",
            "asked",
            "runs",
            "cpu",
            "counters",
            "series",
        ];
        for name in documented {
            assert!(CONNECTION.iter().any(|(known, _)| *known == name), "{name}");
        }
        for field in ["min", "p50", "p90", "p99", "p999", "max", "mean"] {
            assert!(matches!(DISTRIBUTION, Figure::Object(fields) if fields.contains(&field)), "{field}");
        }
    }

    /// Against the source of the record itself: every field named here is a field there.
    #[test]
    fn the_figures_stand_in_the_schema() {
        let schema = include_str!("../../../record/src/schema.rs");
        let all = CONNECTION.iter().chain(LINK).chain(SWITCH).chain(HOST);
        for (name, figure) in all {
            let (field, renamed) = (format!("pub {name}: "), format!("rename = \"{name}\""));
            assert!(schema.contains(&field) || schema.contains(&renamed), "{name}");
            if let Figure::Object(fields) = figure {
                for field in *fields {
                    assert!(schema.contains(&format!("pub {field}: ")), "{name}.{field}");
                }
            }
        }
    }

    #[test]
    fn a_value_has_the_unit_of_its_figure() {
        assert_eq!(dimension_of("delay_us.p99", DISTRIBUTION), (Dimension::Period, 1e6));
        assert_eq!(dimension_of("delay_us.count", DISTRIBUTION), (Dimension::Plain, 1.0));
        assert_eq!(dimension_of("repeats.received_bps.mean", Figure::Open), (Dimension::Rate, 1.0));
        assert_eq!(dimension_of("cpu.sender_user_s", CPU), (Dimension::Duration, 1.0));
        assert_eq!(dimension_of("lost", Figure::Number), (Dimension::Plain, 1.0));
        assert_eq!(round(0.0003 * 1e6), 300.0);
    }
}

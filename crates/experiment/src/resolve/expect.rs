//! `expect SUBJECT.FIGURE > VALUE;`: a condition on a number of the record.
//!
//! The tables of figures here mirror the schema of the `record` crate, which this crate does not use; a test compares
//! both.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::options::keyword;
use super::quantity::single;
use super::quantity::{Dimension, quantity};
use crate::FileError;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parse::shorten;
use crate::plan::{Expectation, NodeKind, Plan, Relation, SourceRange};
use crate::token;
use crate::tree::{Value, Word};

/// Shape of a figure of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// A number.
    Number,
    /// An object with exactly these numbers.
    Object(&'static [&'static str]),
    /// An object or array whose names only the run determines.
    Open,
}

const DISTRIBUTION: Figure =
    Figure::Object(&["min", "p50", "p90", "p99", "p999", "max", "mean", "sd", "count"]);
/// Besides these, it has figures of each random variable.
const ASKED: Figure = Figure::Object(&[
    "rate_error",
    "due_error",
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
    ("sent_until_last_bps", Figure::Number),
    ("received_bps", Figure::Number),
    ("messages_sent", Figure::Number),
    ("messages_received", Figure::Number),
    ("lost", Figure::Number),
    ("duplicated", Figure::Number),
    ("reordered", Figure::Number),
    ("corrupted", Figure::Number),
    ("delay_us", DISTRIBUTION),
    ("delay_uncertainty_us", Figure::Number),
    ("rtt_us", DISTRIBUTION),
    ("closed_loop_rtt_us", DISTRIBUTION),
    ("gap_us", DISTRIBUTION),
    ("sent_gap_us", DISTRIBUTION),
    ("late_us", DISTRIBUTION),
    ("asked", ASKED),
    ("cpu", CPU),
    ("runs", Figure::Open),
    ("repeats", Figure::Open),
    ("counters", Figure::Open),
    ("stages_us", Figure::Open),
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
    ("credits", Figure::Open),
    ("rm_cells", Figure::Number),
    ("queue_max", Figure::Number),
    ("queues", Figure::Open),
    ("ends", Figure::Open),
];
const SWITCH: &[(&str, Figure)] = &[
    ("dropped_full", Figure::Number),
    ("dropped_damaged", Figure::Number),
    ("dropped_no_route", Figure::Number),
];
const HOST: &[(&str, Figure)] =
    &[("cpu_percent", Figure::Number), ("interfaces", Figure::Open), ("measured", Figure::Open)];

/// Maximum length of a path. Each dot is tried as the end of the subject, so a path of many dots must not be long.
const LONGEST_PATH: usize = 1024;

/// The operators of relations. `==` is another spelling of `=`.
const RELATIONS: [(&str, Relation); 7] = [
    ("<", Relation::Below),
    ("<=", Relation::AtMost),
    (">", Relation::Above),
    (">=", Relation::AtLeast),
    ("=", Relation::Equal),
    ("==", Relation::Equal),
    ("!=", Relation::NotEqual),
];

type Figures = &'static [(&'static str, Figure)];

/// Names of all possible subjects, with their figures. A connection and a link may share a name.
pub(crate) struct Subjects {
    names: BTreeMap<String, Vec<Figures>>,
    /// Whether a connection could not be read and its name is unknown; then no subject is reported as unknown.
    is_incomplete: bool,
}

impl Subjects {
    /// Returns the subjects of a plan and the names of connections that could not be read.
    pub(crate) fn of(plan: &Plan, broken: &[Option<&Word>]) -> Self {
        let mut subjects: BTreeMap<String, Vec<Figures>> = BTreeMap::new();
        // In the record a hub or ring is one link with its own name; the connections of its stations are none.
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
        Subjects { names: subjects, is_incomplete: broken.contains(&None) }
    }

    /// Splits a path into the longest subject that it begins with (names may contain dots) and the figure after it.
    /// Returns also the figures of the subject.
    fn split<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str, &[Figures])> {
        let dots = path.rmatch_indices('.');
        dots.map(|(at, _)| (&path[..at], &path[at + 1..]))
            .find_map(|(name, figure)| self.names.get(name).map(|f| (name, figure, &f[..])))
    }
}

/// Reads an expectation, whose subject and figure must exist.
pub(crate) fn expectation(
    cx: &mut Context<'_>,
    subjects: &Subjects,
    path: &Word,
    relation: &Word,
    value: &Value,
    location: SourceRange,
) -> Option<Expectation> {
    let found = if path.text.len() <= LONGEST_PATH { subjects.split(&path.text) } else { None };
    let Some((subject, figure, figures)) = found else {
        if !subjects.is_incomplete {
            unknown_subject(cx, subjects, path);
        }
        return None;
    };
    check_figure(cx, path, figure, figures)?;
    let relation = RELATIONS.iter().find(|(sign, _)| *sign == relation.text);
    // Another sign was reported when it was read.
    let relation = relation.map_or(Relation::Equal, |(_, relation)| *relation);
    let (dimension, factor) = dimension_of(figure);
    let part = single(cx, value, "a number")?;
    let number = quantity(cx, part, dimension)? * factor;
    let number = if factor == 1.0 { number } else { round(number) };
    let unit = part.unit.as_ref().map_or(String::new(), |unit| format!(" {}", unit.text));
    let text = format!(
        "{} {} {}{unit}",
        token::written(&path.text),
        keyword(&RELATIONS, &relation),
        spaced(&part.text)
    );
    let (subject, figure) = (subject.to_owned(), figure.to_owned());
    Some(Expectation { subject, figure, relation, value: number + 0.0, text, location })
}

/// Returns the figures of the record that `written` names, each as its subject and the path in its entry. `written` is
/// `SUBJECT.FIGURE`, or `FIGURE` for that figure of each connection.
///
/// # Errors
/// What is wrong, and what was perhaps meant.
pub fn figures(plan: &Plan, written: &str) -> Result<Vec<(String, String)>, Diagnostic> {
    let mut cx = Context {
        diagnostics: Diagnostics::default(),
        files: &|_| Err(FileError::NoFolder),
        recordings: &crate::no_recordings,
    };
    let subjects = Subjects::of(plan, &[]);
    let path = Word { text: written.to_owned(), location: SourceRange { start: 0, end: written.len() } };
    let found = if written.len() <= LONGEST_PATH { subjects.split(written) } else { None };
    let first = written.split('.').next().unwrap_or_default();
    let is_figure = CONNECTION.iter().any(|(name, _)| *name == first);
    let named = match found {
        Some((subject, figure, figures)) => check_figure(&mut cx, &path, figure, figures)
            .map(|()| vec![(subject.to_owned(), figure.to_owned())]),
        None if is_figure => check_figure(&mut cx, &path, written, &[CONNECTION])
            .map(|()| plan.connections.iter().map(|c| (c.name.clone(), written.to_owned())).collect()),
        None => {
            unknown_subject(&mut cx, &subjects, &path);
            None
        }
    };
    named.ok_or_else(|| cx.diagnostics.into_vec().swap_remove(0))
}

/// Separates number and unit: `30Mb/s` becomes `30 Mb/s`.
fn spaced(number: &str) -> String {
    let unit =
        number.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E'));
    let digits = &number[..number.len() - unit.len()];
    if unit.is_empty() { digits.to_owned() } else { format!("{digits} {unit}") }
}

/// Removes the rounding error of a conversion: `300 us` read as seconds and multiplied by 1e6 is 300 again.
fn round(us: f64) -> f64 {
    let rounded = (us * 1e6).round() / 1e6;
    if (us - rounded).abs() <= us.abs() * 1e-12 { rounded } else { us }
}

fn unknown_subject(cx: &mut Context<'_>, subjects: &Subjects, path: &Word) {
    let name = path.text.split_once('.').map_or(path.text.as_str(), |_| before_figure(&path.text));
    let error = Diagnostic::error(
        path.location,
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

/// Returns what precedes the first segment that is the name of a figure; without such a segment, what precedes the
/// last dot.
fn before_figure(path: &str) -> &str {
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

/// Checks a figure against the figures of its subject; reports an unknown one.
fn check_figure(cx: &mut Context<'_>, path: &Word, figure: &str, figures: &[Figures]) -> Option<()> {
    let (first, rest) = figure.split_once('.').map_or((figure, None), |(first, rest)| (first, Some(rest)));
    // A string or an address in brackets has other bytes than its text; then the location is the whole path.
    let is_plain = path.location.end - path.location.start == path.text.len();
    let start = if is_plain { path.location.end - figure.len() } else { path.location.start };
    let location = SourceRange { start, end: path.location.end };
    let found = figures.iter().flat_map(|f| f.iter()).find(|(name, _)| *name == first);
    let Some(&(name, shape)) = found else {
        let error =
            Diagnostic::error(location, format!("the record has no figure `{}` here", shorten(first)));
        let names = figures.iter().flat_map(|f| f.iter()).map(|(name, _)| *name);
        return cx.refuse(error.label("unknown figure").suggest(first, names));
    };
    let error = match (shape, rest) {
        (Figure::Number, None) | (Figure::Open, Some(_)) => return Some(()),
        (Figure::Object(fields), Some(field)) if fields.contains(&field) => return Some(()),
        // Only the run determines which random variables were compared with their laws.
        (ASKED, Some(field)) if field.starts_with("variables.") => return Some(()),
        (Figure::Number, Some(_)) => Diagnostic::error(location, format!("`{name}` is one number"))
            .label(format!("expected `{name}` alone")),
        (Figure::Object(fields), None) => Diagnostic::error(location, format!("`{name}` is several numbers"))
            .label("expected one of them")
            .help(format!("such as `{name}.{}`", fields[fields.len().min(4) - 1])),
        (Figure::Object(fields), Some(field)) => {
            Diagnostic::error(location, format!("`{name}` has no `{}`", shorten(field)))
                .label("unknown figure")
                .suggest(field, fields.iter().copied())
        }
        (Figure::Open, None) => Diagnostic::error(location, format!("`{name}` is several numbers"))
            .label(format!("expected `{name}.NAME`")),
    };
    cx.refuse(error)
}

/// Returns the dimension of a figure, from the unit at the end of its name, and the factor from a value read in that
/// dimension to the figure's unit.
fn dimension_of(figure: &str) -> (Dimension, f64) {
    // The number of values in a distribution has no unit.
    if figure.ends_with(".count") {
        return (Dimension::Plain, 1.0);
    }
    // Fields of an object such as `p99` or `mean` have the unit of the object.
    for segment in figure.rsplit('.') {
        match segment.rsplit_once('_').map(|(_, unit)| unit) {
            // A number without a unit is in microseconds, as a period is; periods are read in seconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The source of the record's schema: the `record` crate must not be a dependency, not even of tests.
    const SCHEMA: &str = include_str!("../../../record/src/schema.rs");

    /// Returns name and type of each field of a struct in the schema, by its name in JSON.
    fn schema_fields(of: &str) -> Vec<(&'static str, &'static str)> {
        let (_, fields) =
            SCHEMA.split_once(&format!("pub struct {of} {{\n")).expect("a struct of the schema");
        let (fields, _) = fields.split_once("\n}").expect("the end of the struct");
        let mut found = Vec::new();
        let mut renamed = None;
        for line in fields.lines().map(str::trim) {
            if let Some((_, name)) = line.split_once("rename = \"") {
                renamed = name.split('"').next();
            }
            if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
                found.push((renamed.take().unwrap_or(name), kind.trim_end_matches(',')));
            }
        }
        found
    }

    /// An expectation may be about any number of an entry, as docs/record.md promises.
    #[test]
    fn figures_are_the_numbers_of_the_schema() {
        const TEXTS: [&str; 5] =
            ["String", "Option<String>", "Vec<String>", "BTreeMap<String, String>", "bool"];
        for (entry, figures) in
            [("Connection", CONNECTION), ("Link", LINK), ("Switch", SWITCH), ("Host", HOST)]
        {
            let numbers = schema_fields(entry).into_iter().filter(|(_, kind)| !TEXTS.contains(kind));
            let numbers: BTreeSet<&str> = numbers.map(|(name, _)| name).collect();
            let figures: BTreeSet<&str> = figures.iter().map(|(name, _)| *name).collect();
            assert_eq!(figures, numbers, "{entry}");
        }
        for (object, figure) in [("Distribution", DISTRIBUTION), ("SendAccuracy", ASKED), ("Cpu", CPU)] {
            let Figure::Object(figures) = figure else { panic!("{object} is an object") };
            let numbers = schema_fields(object).into_iter().filter(|(_, kind)| !kind.starts_with("Vec<"));
            let numbers: BTreeSet<&str> = numbers.map(|(name, _)| name).collect();
            assert_eq!(figures.iter().copied().collect::<BTreeSet<_>>(), numbers, "{object}");
        }
    }

    #[test]
    fn a_value_has_the_unit_of_its_figure() {
        assert_eq!(dimension_of("delay_us.p99"), (Dimension::Period, 1e6));
        assert_eq!(dimension_of("delay_us.count"), (Dimension::Plain, 1.0));
        assert_eq!(dimension_of("repeats.received_bps.mean"), (Dimension::Rate, 1.0));
        assert_eq!(dimension_of("stages_us.copy_in.p99"), (Dimension::Period, 1e6));
        assert_eq!(dimension_of("stages_us.copy_in.count"), (Dimension::Plain, 1.0));
        assert_eq!(dimension_of("cpu.sender_user_s"), (Dimension::Duration, 1.0));
        assert_eq!(dimension_of("lost"), (Dimension::Plain, 1.0));
        assert_eq!(round(0.0003 * 1e6), 300.0);
    }
}

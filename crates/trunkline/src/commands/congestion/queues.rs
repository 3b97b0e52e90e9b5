//! The part `queues`: what queue disciplines promise, with two TCP flows on a line of 40 Mb/s and a round trip of 20 ms.

use serde_json::json;
use trunkline_record::Record;
use trunkline_record::metric::metric;
use trunkline_run::StopFlag;

use super::{Check, Part, finished, plan, pool, simulate};
use crate::failure::Failure;

/// Prague and CUBIC through DualPI2.
const TEXT: &str = include_str!("../../../../../experiments/dualpi2.ns");
/// Two classic flows through another discipline.
const CLASSIC: (&str, &str) = ("x.congestion", "newreno");

/// A figure of a run and the range that a document gives it.
struct Figure {
    name: &'static str,
    theirs: &'static str,
    range: (f64, f64),
    measure: fn(&Record) -> Option<f64>,
}

struct Case {
    name: &'static str,
    changes: &'static [(&'static str, &'static str)],
    figures: &'static [Figure],
}

const CASES: &[Case] = &[
    Case {
        name: "DualPI2 (RFC 9332), Prague and CUBIC",
        changes: &[],
        figures: &[
            Figure { name: "rate of Prague / CUBIC", theirs: "about 1", range: (0.5, 2.0), measure: ratio },
            Figure {
                name: "queueing of Prague, median, ms",
                theirs: "about 1",
                range: (0.0, 1.5),
                measure: |record| queueing_ms(record, "x"),
            },
            Figure {
                name: "queueing of CUBIC, median, ms",
                theirs: "15",
                range: (9.0, 22.0),
                measure: |record| queueing_ms(record, "y"),
            },
        ],
    },
    Case {
        name: "DualPI2, Prague over 5 and 20 ms",
        changes: &[("a-s.delay", "2 ms"), ("y.congestion", "prague")],
        figures: &[Figure {
            name: "rate of 5 ms / 20 ms",
            theirs: "about 1",
            range: (0.6, 1.4),
            measure: ratio,
        }],
    },
    Case {
        name: "PIE (RFC 8033), NewReno and CUBIC",
        changes: &[CLASSIC, ("s-t.queue", "pie")],
        figures: &[Figure {
            name: "sojourn time, median, ms",
            theirs: "15",
            range: (10.0, 20.0),
            measure: sojourn_ms,
        }],
    },
    Case {
        name: "CoDel (RFC 8289), NewReno and CUBIC",
        changes: &[CLASSIC, ("s-t.queue", "codel")],
        figures: &[Figure {
            name: "sojourn time, median, ms",
            theirs: "about 5",
            range: (1.0, 8.0),
            measure: sojourn_ms,
        }],
    },
    Case {
        name: "FQ-CoDel (RFC 8290), NewReno over 5, CUBIC over 20 ms",
        changes: &[CLASSIC, ("a-s.delay", "2 ms"), ("s-t.queue", "fq-codel")],
        figures: &[Figure { name: "Jain's index", theirs: "1", range: (0.98, 1.0), measure: jain }],
    },
];

/// Targets and shares of queue disciplines.
pub fn queues(threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    compare(CASES, threads, stop)
}

fn compare(cases: &[Case], threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let records = pool::run_all("queues", cases.len(), threads, stop, |at| {
        Some(simulate(&plan(TEXT, cases[at].changes), stop))
    });
    let mut text = String::from(
        "queues: two TCP flows through a line of 40 Mb/s, round trip 20 ms\n\
         discipline, flows                                      figure                           document  ours\n",
    );
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for (case, record) in cases.iter().zip(records) {
        let record = finished(record, stop)?;
        for figure in case.figures {
            let ours = (figure.measure)(&record).unwrap_or(f64::NAN);
            let (least, most) = figure.range;
            text += &format!("{:<53}  {:<31}  {:<8}  {ours:>5.2}\n", case.name, figure.name, figure.theirs);
            rows.push(
                json!({ "case": case.name, "figure": figure.name, "document": figure.theirs, "ours": ours }),
            );
            checks.push(Check {
                text: format!("{}: {} from {least} to {most}", case.name, figure.name),
                passed: (least..=most).contains(&ours),
            });
        }
    }
    Ok(Part { text: text + "\n", json: rows.into(), checks })
}

fn rates(record: &Record) -> Option<(f64, f64)> {
    Some((metric(record, "x", "received_bps")?, metric(record, "y", "received_bps")?))
}

fn ratio(record: &Record) -> Option<f64> {
    rates(record).map(|(x, y)| x / y)
}

fn jain(record: &Record) -> Option<f64> {
    rates(record).map(|(x, y)| (x + y) * (x + y) / (2.0 * (x * x + y * y)))
}

/// Returns how much longer than the path's 20 ms the round trips of a flow take.
fn queueing_ms(record: &Record, name: &str) -> Option<f64> {
    metric(record, name, "rtt_us.p50").map(|us| us / 1e3 - 20.0)
}

fn sojourn_ms(record: &Record) -> Option<f64> {
    metric(record, "s-t", "queues.s.sojourn_us.p50").map(|us| us / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_row_for_each_figure() {
        let part = compare(&CASES[2..3], 1, &StopFlag::default()).expect("the run succeeds");
        assert!(part.checks.len() == 1 && part.checks[0].passed, "{}", part.text);
        assert_eq!(part.json.as_array().map(Vec::len), Some(1));
        assert!(part.text.contains("PIE (RFC 8033)"), "{}", part.text);
    }
}

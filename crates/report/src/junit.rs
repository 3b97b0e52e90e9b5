//! Expectations as JUnit test cases, so that experiments serve as tests in CI.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use trunkline_record::Record;
use trunkline_record::schema::Outcome;

use crate::labels;
use crate::terminal::{outcome_unit, problems};

/// Returns JUnit XML: a suite for each record, with a case for the run, which fails if it is partial, and one for each
/// expectation.
pub fn junit(records: &[Record]) -> String {
    let name = records.first().map_or("trunkline", |r| &r.experiment.name);
    let mut report = Report::new(name);
    report.add_test_suites(records.iter().zip(labels(records)).map(|(record, label)| suite(record, &label)));
    report.to_string().expect("writing to memory cannot fail")
}

fn suite(record: &Record, label: &str) -> TestSuite {
    let name = format!("{} ({label})", record.experiment.name);
    let mut suite = TestSuite::new(name.clone());
    let time = Duration::try_from_secs_f64(record.duration_s).unwrap_or_default();
    suite.set_time(time);
    suite.add_property(("seed", record.seed.to_string().as_str()));
    suite.add_property(("hash", record.experiment.hash.as_str()));
    let mut run = TestCase::new("run", run_status(record));
    run.set_time(time);
    let cases = record.expectations.iter().map(|o| TestCase::new(o.text.as_str(), status(o)));
    suite.add_test_cases(std::iter::once(run).chain(cases).map(|mut case| {
        case.set_classname(name.as_str());
        case
    }));
    suite
}

fn run_status(record: &Record) -> TestCaseStatus {
    if !record.partial {
        return TestCaseStatus::success();
    }
    let problems = problems(record);
    failure(problems.first().map_or("the record is partial", String::as_str), &problems.join("\n"))
}

fn status(outcome: &Outcome) -> TestCaseStatus {
    if outcome.passed {
        return TestCaseStatus::success();
    }
    let unit = outcome_unit(outcome);
    let measured =
        outcome.measured.map_or("no such metric".into(), |m| format!("measured {}", unit.format(m)));
    failure(&format!("{measured}, expected {}", unit.format(outcome.expected)), &outcome.text)
}

fn failure(message: &str, description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message).set_description(description);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_expectation_is_a_case() {
        let outcome =
            |text: &str, measured, passed| Outcome { text: text.into(), expected: 30e6, measured, passed };
        let record = Record {
            backend: "live".into(),
            partial: true,
            problems: vec!["host a does not answer".into()],
            duration_s: 2.5,
            expectations: vec![
                outcome("B-A.received_bps > 30 Mb/s", Some(36.9e6), true),
                outcome("B-A.sent_bps > 30 Mb/s & <x>", Some(20e6), false),
                outcome("B-A.nothing > 30", None, false),
            ],
            ..Record::default()
        };
        let xml = junit(std::slice::from_ref(&record));
        for part in [
            r#"tests="4""#,
            r#"failures="3""#,
            r#"<testcase name="run" classname=" (live)" time="2.500">"#,
            r#"<failure message="host a does not answer">host a does not answer</failure>"#,
            r#"<testcase name="B-A.received_bps &gt; 30 Mb/s" classname=" (live)"/>"#,
            r#"<failure message="measured 20 Mb/s, expected 30 Mb/s">"#,
            r#"<failure message="no such metric, expected 30,000,000">"#,
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
        let complete = Record { partial: false, expectations: vec![], ..record };
        assert!(junit(&[complete]).contains(r#"tests="1" skipped="0" failures="0""#));
        assert!(junit(&[]).contains("<testsuites"));
    }
}

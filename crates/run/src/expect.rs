//! Evaluates the expectations of an experiment on its record.

use trunkline_experiment::plan::{Expectation, Relation};
use trunkline_record::Record;
use trunkline_record::metric;
use trunkline_record::schema::Outcome;

/// Evaluates each expectation. It fails if the record lacks the metric, or if the connection never ran: its zeros are not
/// measurements.
pub fn evaluate(expectations: &[Expectation], record: &Record) -> Vec<Outcome> {
    let never_ran = |e: &Expectation| {
        record.connections.iter().any(|c| c.name == e.subject && c.partial && c.messages_sent == 0)
    };
    let of_record = expectations.iter().map(|e| metric::Expectation {
        text: &e.text,
        subject: &e.subject,
        path: &e.figure,
        relation: match e.relation {
            Relation::Below => metric::Relation::Below,
            Relation::AtMost => metric::Relation::AtMost,
            Relation::Above => metric::Relation::Above,
            Relation::AtLeast => metric::Relation::AtLeast,
            Relation::Equal => metric::Relation::Equal,
            Relation::NotEqual => metric::Relation::NotEqual,
        },
        bound: e.value,
    });
    let mut outcomes = metric::evaluate(of_record, record);
    for (outcome, _) in outcomes.iter_mut().zip(expectations).filter(|(_, e)| never_ran(e)) {
        (outcome.measured, outcome.passed) = (None, false);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use trunkline_record::schema::Connection;

    use super::*;

    #[test]
    fn unmeasured_metrics_fail() {
        let connection =
            |name: &str, partial| Connection { name: name.into(), partial, ..Connection::default() };
        let record = Record {
            connections: vec![connection("ran", false), connection("never", true)],
            ..Record::default()
        };
        let expect = |subject: &str, path: &str, relation| Expectation {
            subject: subject.into(),
            figure: path.into(),
            relation,
            value: 0.0,
            text: String::new(),
            location: Default::default(),
        };
        let all = [
            expect("ran", "lost", Relation::Equal),
            expect("never", "lost", Relation::Equal),
            expect("ran", "delay_us.p99", Relation::AtLeast),
            expect("ran", "lost", Relation::Above),
        ];
        let outcomes = evaluate(&all, &record);
        let results: Vec<_> = outcomes.iter().map(|o| (o.passed, o.measured)).collect();
        assert_eq!(results, [(true, Some(0.0)), (false, None), (false, None), (false, Some(0.0))]);
    }
}

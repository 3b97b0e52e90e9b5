//! Evaluates the expectations of an experiment on its record.

use trunkline_experiment::plan::{Expectation, Relation};
use trunkline_record::Record;
use trunkline_record::figure;
use trunkline_record::schema::Outcome;

/// Evaluates each expectation. It fails if the record lacks the figure, or if the connection never ran: its zeros are not
/// measurements.
pub fn evaluate(expectations: &[Expectation], record: &Record) -> Vec<Outcome> {
    let never_ran = |e: &Expectation| {
        record.connections.iter().any(|c| c.name == e.subject && c.partial && c.messages_sent == 0)
    };
    let expected = expectations.iter().map(|e| figure::Expectation {
        text: &e.text,
        subject: &e.subject,
        path: &e.figure,
        relation: match e.relation {
            Relation::Below => figure::Relation::Below,
            Relation::AtMost => figure::Relation::AtMost,
            Relation::Above => figure::Relation::Above,
            Relation::AtLeast => figure::Relation::AtLeast,
            Relation::Equal => figure::Relation::Equal,
            Relation::NotEqual => figure::Relation::NotEqual,
        },
        value: e.value,
    });
    let mut outcomes = figure::evaluate(expected, record);
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
    fn unmeasured_figures_fail() {
        let connection =
            |name: &str, partial| Connection { name: name.into(), partial, ..Connection::default() };
        let record = Record {
            connections: vec![connection("ran", false), connection("never", true)],
            ..Record::default()
        };
        let expect = |subject: &str, figure: &str, relation| Expectation {
            subject: subject.into(),
            figure: figure.into(),
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
        let held: Vec<_> = outcomes.iter().map(|o| (o.passed, o.measured)).collect();
        assert_eq!(held, [(true, Some(0.0)), (false, None), (false, None), (false, Some(0.0))]);
    }
}

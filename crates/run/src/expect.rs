//! Expectations of an experiment against its record.

use trunkline_experiment::plan::{Expectation, Relation};
use trunkline_record::Record;
use trunkline_record::figure::{self, Expected};
use trunkline_record::schema::Outcome;

/// Judges each expectation; one whose figure the record lacks has failed.
pub fn judge(expectations: &[Expectation], record: &Record) -> Vec<Outcome> {
    let expected = expectations.iter().map(|e| Expected {
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
    figure::judge(expected, record)
}

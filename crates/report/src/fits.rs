//! Goodness of fit: the lines of random variables, and which of them differ from their laws, with all tests of a run together.

use trunkline_record::Record;
use trunkline_record::schema::{Connection, Fit, Worst};

use crate::format::{Unit, sanitize};

/// The probability that a correct run has any row that is said to differ.
const LEVEL: f64 = 0.01;
/// Names in the statement about a run.
const MOST_NAMES: usize = 5;

/// A random variable of a connection, as it was sent or received.
pub(crate) struct FitRow<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) fit: &'a Fit,
    pub(crate) is_received: bool,
    /// Whether it differs from its law by [`holm`], of all rows of the record.
    pub(crate) differs: bool,
}

/// Returns all random variables of a record.
pub(crate) fn fit_rows(record: &Record) -> Vec<FitRow<'_>> {
    let mut rows = Vec::new();
    for connection in &record.connections {
        let row = |is_received| move |fit| FitRow { connection, fit, is_received, differs: false };
        rows.extend(connection.requested.variables.iter().map(row(false)));
        rows.extend(connection.requested.received.iter().map(row(true)));
    }
    let p_values: Vec<Option<f64>> = rows.iter().map(|row| p_of_row(row.fit)).collect();
    rows.iter_mut().zip(holm(&p_values, LEVEL)).for_each(|(row, differs)| row.differs = differs);
    rows
}

/// Returns the p-value of a row: that of the worst of several samples times their number (Bonferroni).
fn p_of_row(fit: &Fit) -> Option<f64> {
    let of = fit.worst.as_ref().map_or(1, |worst| worst.of);
    Some((fit.p_value? * of as f64).min(1.0))
}

/// Returns which hypotheses are rejected by the procedure of Holm (1979, Scand. J. Statist. 6(2)): of m, the smallest p-value is
/// compared with `level` / m, the next with `level` / (m − 1), up to the first that is not below. With probability `level` at most a
/// true hypothesis is rejected, whatever the dependence between them.
fn holm(p_values: &[Option<f64>], level: f64) -> Vec<bool> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut rejected = vec![false; p_values.len()];
    for (rank, (index, p)) in order.iter().enumerate() {
        if *p * (order.len() - rank) as f64 > level {
            break;
        }
        rejected[*index] = true;
    }
    rejected
}

/// Returns the statement about all random variables of a record, of [`fit_rows`]; `None` if fewer than two were tested.
pub(crate) fn statement(rows: &[FitRow<'_>]) -> Option<String> {
    let tests = rows.iter().filter(|row| row.fit.p_value.is_some()).count();
    let differing = || rows.iter().filter(|row| row.differs);
    let together = "at 1 % for all together (Holm–Bonferroni)";
    let names: Vec<String> = differing().take(MOST_NAMES).map(FitRow::name).collect();
    match (tests, differing().count()) {
        (0 | 1, _) => None,
        (tests, 0) => {
            Some(format!("none of {tests} tests finds a deviation from its distribution, {together}"))
        }
        (tests, differing) => {
            let more = if differing > MOST_NAMES { ", …" } else { "" };
            Some(format!(
                "{differing} of {tests} tests find a deviation, {together}: {}{more}",
                names.join(", ")
            ))
        }
    }
}

impl FitRow<'_> {
    /// Returns `a-b talk` or `a-b received talk`.
    fn name(&self) -> String {
        let received = if self.is_received { "received " } else { "" };
        format!("{} {received}{}", sanitize(&self.connection.name), sanitize(&self.fit.name))
    }

    /// Returns a line such as `D-A: gap exponential(1 ms): mean 1.01 ms, requested 1 ms, KS distance 1.03 % (p 0.43) over 9,999`.
    pub(crate) fn line(&self) -> String {
        let fit = self.fit;
        let unit = Unit::of(&format!("_{}", fit.unit));
        let received = if self.is_received { "received " } else { "" };
        let requested =
            fit.requested_mean.map(|m| format!(", requested {}", unit.format(m))).unwrap_or_default();
        let worst = worst(fit).map(|text| format!(" {text}"));
        format!(
            "{}: {received}{} {}: mean {}{requested}, {} over {}{}{}",
            sanitize(&self.connection.name),
            sanitize(&fit.name),
            sanitize(&fit.law),
            unit.format(fit.sent_mean),
            distance(fit.distance, fit.p_value),
            Unit::Number.format(fit.samples as f64),
            worst.unwrap_or_default(),
            if self.differs { ": does not follow the distribution" } else { "" },
        )
    }
}

/// Returns `KS distance 1.03 % (p 0.43)`, of a distribution (Kolmogorov–Smirnov), or `deviation 1.03 %`, the mean deviation from a
/// constant, which has no p-value.
pub(crate) fn distance(distance: f64, p_value: Option<f64>) -> String {
    let share = Unit::Share.format(distance);
    match p_value {
        Some(p) => format!("KS distance {share} (p {})", Unit::Number.format(p)),
        None => format!("deviation {share}"),
    }
}

/// Returns `at b, repetition 2, the worst of 10`; `None` if there is only one sample.
pub(crate) fn worst(fit: &Fit) -> Option<String> {
    let Worst { host, repetition, of } = fit.worst.as_ref()?;
    Some(format!("at {}, repetition {}, the worst of {of}", sanitize(host), repetition.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use trunkline_record::schema::SendAccuracy;

    use super::*;

    #[test]
    fn the_procedure_of_holm_is_that_of_the_paper() {
        let rejected = |p: &[f64]| holm(&p.iter().map(|p| Some(*p)).collect::<Vec<_>>(), 0.05);
        // Against 0.05 / 4, / 3, / 2, / 1.
        assert_eq!(rejected(&[0.01, 0.04, 0.03, 0.005]), [true, false, false, true]);
        // 0.03 stops the procedure, although 0.04 is below 0.05 / 1.
        assert_eq!(rejected(&[0.04, 0.03, 0.03]), [false; 3]);
        assert_eq!(rejected(&[0.05]), [true]);
        assert_eq!(holm(&[None, Some(0.03), None], 0.05), [false, true, false]);
        assert_eq!(holm(&[], 0.05), [] as [bool; 0]);
    }

    fn record(p_values: &[f64], worst: Option<Worst>) -> Record {
        let fit =
            |p: &f64| Fit { name: "talk".into(), p_value: Some(*p), worst: worst.clone(), ..Fit::default() };
        let variables = p_values.iter().map(fit).collect();
        let requested = SendAccuracy { variables, ..SendAccuracy::default() };
        let connection = Connection { name: "a-b".into(), requested, ..Connection::default() };
        Record { connections: vec![connection], ..Record::default() }
    }

    #[test]
    fn one_small_p_value_of_fifty_is_no_deviation() {
        let mut p_values = vec![0.5; 49];
        p_values.push(0.004);
        let text = statement(&fit_rows(&record(&p_values, None))).unwrap();
        assert!(text.starts_with("none of 50 tests"), "{text}");
        let rows = fit_rows(&record(&p_values, None)).iter().filter(|row| row.differs).count();
        assert_eq!(rows, 0);
        p_values[49] = 0.000_1;
        let text = statement(&fit_rows(&record(&p_values, None))).unwrap();
        assert!(text.starts_with("1 of 50 tests") && text.ends_with(": a-b talk"), "{text}");
        // A single test is its row.
        assert_eq!(statement(&fit_rows(&record(&[0.004], None))), None);
        assert!(fit_rows(&record(&[0.004], None))[0].line().ends_with("does not follow the distribution"));
        // The smallest of ten p-values.
        let worst = Worst { host: "b".into(), repetition: 1, of: 10 };
        let line = fit_rows(&record(&[0.004], Some(worst)))[0].line();
        assert!(line.ends_with("(p 0.004) over 0 at b, repetition 2, the worst of 10"), "{line}");
    }

    #[test]
    fn a_distance_has_the_name_of_what_it_is() {
        assert_eq!(distance(0.0103, Some(0.43)), "KS distance 1.03 % (p 0.43)");
        assert_eq!(distance(0.0103, None), "deviation 1.03 %");
    }
}

//! Rows that come and go → the columns of one table of the archive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::{MOST_COLUMNS, SeriesSpec, TableSpec};
use trunkline_counters::counter::{Answer, Moment, Raw, Response};

use super::report::{Report, Sink};

/// A table whose rows have names and `width` series each. A row keeps its place: one that is gone has no values. `T` is what
/// its series depend on, as the speed of a port.
#[derive(Debug)]
pub struct Sheet<T> {
    number: usize,
    spec: TableSpec,
    width: usize,
    rows: BTreeMap<String, (usize, T)>,
    /// Whether the reader of the queue has the specification yet.
    is_told: bool,
    values: Vec<Option<Raw>>,
    left_out: usize,
}

/// When a table was polled.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// When it should have been.
    pub due: Moment,
    /// When the request left.
    pub asked: Moment,
    /// When the last answer came.
    pub answered: Option<Moment>,
    /// The agent's uptime.
    pub uptime: Option<u32>,
}

impl<T: PartialEq> Sheet<T> {
    /// An empty table, the collector's `number`.
    pub fn new(
        number: usize,
        device: &str,
        name: &str,
        every: (Duration, Option<Duration>),
        width: usize,
    ) -> Sheet<T> {
        let (period, refresh) = every;
        let spec =
            TableSpec { device: device.into(), name: name.into(), period, refresh, series: Vec::new() };
        Sheet { number, spec, width, rows: BTreeMap::new(), is_told: false, values: Vec::new(), left_out: 0 }
    }

    /// Most rows that fit the archive.
    pub fn most(&self) -> usize {
        MOST_COLUMNS / self.width
    }

    /// How many rows there are, gone ones among them.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the series of a row depend on.
    pub fn traits(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|(_, traits)| traits)
    }

    /// The values of a row, to be filled, all missing at first; `series` says what they are where the row is new or
    /// depends on something else now. None if the table is full.
    pub fn row(
        &mut self,
        name: &str,
        traits: T,
        series: impl FnOnce(&T) -> Vec<SeriesSpec>,
    ) -> Option<&mut [Option<Raw>]> {
        let (count, most) = (self.rows.len(), self.most());
        let place = match self.rows.get_mut(name) {
            Some((place, known)) => {
                if *known != traits {
                    let from = *place * self.width;
                    self.spec.series.splice(from..from + self.width, series(&traits));
                    (*known, self.is_told) = (traits, false);
                }
                *place
            }
            None if count >= most => {
                self.left_out += 1;
                return None;
            }
            None => {
                let series = series(&traits);
                debug_assert_eq!(series.len(), self.width);
                self.spec.series.extend(series);
                self.is_told = false;
                self.rows.insert(name.to_owned(), (count, traits));
                count
            }
        };
        let from = place * self.width;
        self.values.resize(self.rows.len() * self.width, None);
        Some(&mut self.values[from..from + self.width])
    }

    /// Hands on what was filled in. What was never filled since the last time is missing. How many rows did not fit.
    pub fn send(&mut self, when: When, sink: &Sink) -> usize {
        let left_out = std::mem::take(&mut self.left_out);
        let mut values = std::mem::take(&mut self.values);
        values.resize(self.rows.len() * self.width, None);
        if values.is_empty() {
            return left_out; // nothing is known of it yet
        }
        let answer = when.answered.map(|answered| Answer { answered, uptime: when.uptime, values });
        let response = Response { due: when.due, asked: when.asked, answer };
        let spec = (!self.is_told).then(|| Arc::new(self.spec.clone()));
        let told = spec.is_some();
        if sink.put(Report::Polled { table: self.number, spec, response }) {
            self.is_told |= told;
        }
        left_out
    }
}

#[cfg(test)]
mod tests {
    use trunkline_counters::counter::Kind;

    use super::super::report::queue;
    use super::*;

    fn series(name: &str) -> Vec<SeriesSpec> {
        let one = |what: &str| SeriesSpec {
            name: format!("{name}/{what}"),
            kind: Kind::Counter64,
            unit: String::new(),
            ceiling: None,
            mark: None,
        };
        vec![one("a"), one("b")]
    }

    fn when(n: i64) -> When {
        When { due: Moment(n), asked: Moment(n), answered: Some(Moment(n + 1)), uptime: None }
    }

    #[test]
    fn rows_keep_their_places_and_the_reader_is_told_what_is_new() {
        let (sink, reports) = queue();
        let mut sheet: Sheet<u8> = Sheet::new(3, "d", "t", (Duration::from_secs(1), None), 2);
        let next = || match reports.next(Duration::ZERO).unwrap().unwrap() {
            Report::Polled { table: 3, spec, response } => (
                spec.map(|s| s.series.len()),
                response.answer.unwrap().values.iter().map(|v| v.map(|v| v.0)).collect(),
            ),
            other => panic!("{other:?}"),
        };
        let some = |v: &[u64]| v.iter().map(|v| Some(*v)).collect::<Vec<_>>();
        assert_eq!(sheet.send(when(0), &sink), 0);
        sheet.row("y", 0, |_| series("y")).unwrap().copy_from_slice(&[Some(Raw(1)), Some(Raw(2))]);
        sheet.send(when(1), &sink);
        assert_eq!(next(), (Some(2), some(&[1, 2])), "an empty table is not told");
        sheet.row("x", 0, |_| series("x")).unwrap().copy_from_slice(&[Some(Raw(3)), Some(Raw(4))]);
        sheet.send(when(2), &sink);
        let (spec, values): (_, Vec<Option<u64>>) = next();
        assert_eq!((spec, values), (Some(4), vec![None, None, Some(3), Some(4)]));
        sheet.row("x", 1, |_| series("x")).unwrap();
        sheet.send(when(3), &sink);
        assert_eq!(next(), (Some(4), vec![None; 4]), "it depends on something else");
        sheet.send(when(4), &sink);
        assert_eq!(next().0, None);
    }

    #[test]
    fn a_table_has_a_most_of_rows() {
        let mut sheet: Sheet<u8> = Sheet::new(0, "d", "t", (Duration::from_secs(1), None), 2);
        let (sink, _reports) = queue();
        let taken =
            (0..9_000).filter(|n| sheet.row(&n.to_string(), 0, |_| series(&n.to_string())).is_some()).count();
        assert_eq!((taken, sheet.send(when(0), &sink)), (8_192, 808));
    }
}

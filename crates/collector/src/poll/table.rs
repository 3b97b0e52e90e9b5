//! Collects rows that appear and disappear into the columns of one table of the archive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::{MAX_COLUMNS, SeriesSpec, TableSpec};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp};

use super::report::{Report, ReportSender};

/// A table with named rows of `width` series each. A row keeps its columns; a row that disappeared has no values. `T`
/// holds the properties that determine its series, such as the speed of a port.
#[derive(Debug)]
pub struct TableBuffer<T> {
    number: usize,
    spec: TableSpec,
    width: usize,
    rows: BTreeMap<String, (usize, T)>,
    /// The receiver of the queue has the current specification.
    is_spec_sent: bool,
    values: Vec<Option<RawValue>>,
    dropped_rows: usize,
}

/// The times of one poll of a table.
#[derive(Clone, Copy, Debug)]
pub struct PollTimes {
    /// When the poll was due.
    pub due: Timestamp,
    /// When the request was sent.
    pub requested_at: Timestamp,
    /// When the last response arrived.
    pub answered_at: Option<Timestamp>,
    /// The uptime of the agent, in hundredths of a second.
    pub uptime: Option<u32>,
}

impl<T: PartialEq> TableBuffer<T> {
    /// Creates an empty table with the collector's number `number`. `every` holds the period and the refresh interval
    /// of the agent.
    pub fn new(
        number: usize,
        device: &str,
        name: &str,
        every: (Duration, Option<Duration>),
        width: usize,
    ) -> TableBuffer<T> {
        let (period, refresh) = every;
        let spec =
            TableSpec { device: device.into(), name: name.into(), period, refresh, series: Vec::new() };
        TableBuffer {
            number,
            spec,
            width,
            rows: BTreeMap::new(),
            is_spec_sent: false,
            values: Vec::new(),
            dropped_rows: 0,
        }
    }

    /// Returns the properties of a row.
    pub fn properties(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|(_, properties)| properties)
    }

    /// Returns the values of a row for filling, initially `None`. `series` creates the series if the row is new or
    /// its properties changed. Returns `None` if the table is full.
    pub fn row(
        &mut self,
        name: &str,
        properties: T,
        series: impl FnOnce(&T) -> Vec<SeriesSpec>,
    ) -> Option<&mut [Option<RawValue>]> {
        let (count, max_rows) = (self.rows.len(), MAX_COLUMNS / self.width);
        let slot = match self.rows.get_mut(name) {
            Some((slot, known)) => {
                if *known != properties {
                    let from = *slot * self.width;
                    self.spec.series.splice(from..from + self.width, series(&properties));
                    (*known, self.is_spec_sent) = (properties, false);
                }
                *slot
            }
            None if count >= max_rows => {
                self.dropped_rows += 1;
                return None;
            }
            None => {
                let series = series(&properties);
                debug_assert_eq!(series.len(), self.width);
                self.spec.series.extend(series);
                self.is_spec_sent = false;
                self.rows.insert(name.to_owned(), (count, properties));
                count
            }
        };
        let from = slot * self.width;
        self.values.resize(self.rows.len() * self.width, None);
        Some(&mut self.values[from..from + self.width])
    }

    /// Sends the values; those not filled since the last call are missing. Returns the number of rows that did not
    /// fit.
    pub fn send(&mut self, times: PollTimes, sink: &ReportSender) -> usize {
        let dropped_rows = std::mem::take(&mut self.dropped_rows);
        let mut values = std::mem::take(&mut self.values);
        values.resize(self.rows.len() * self.width, None);
        if values.is_empty() {
            return dropped_rows; // no rows are known yet
        }
        let answer =
            times.answered_at.map(|answered| Answer { answered_at: answered, uptime: times.uptime, values });
        let response = Response { due_at: times.due, requested_at: times.requested_at, answer };
        let spec = (!self.is_spec_sent).then(|| Arc::new(self.spec.clone()));
        let has_spec = spec.is_some();
        if sink.send(Report::Polled { table: self.number, spec, response }) {
            self.is_spec_sent |= has_spec;
        }
        dropped_rows
    }
}

#[cfg(test)]
mod tests {
    use trunkline_counters::counter::ValueKind;

    use super::super::report::queue;
    use super::*;

    fn series(name: &str) -> Vec<SeriesSpec> {
        ["a", "b"]
            .map(|quantity| SeriesSpec::new(format!("{name}/{quantity}"), ValueKind::Counter64, ""))
            .into()
    }

    fn times(n: i64) -> PollTimes {
        let (due, answered_at) = (Timestamp(n), Some(Timestamp(n + 1)));
        PollTimes { due, requested_at: due, answered_at, uptime: None }
    }

    #[test]
    fn rows_keep_their_columns_and_changed_specifications_are_sent() {
        let (sink, reports) = queue();
        let mut table: TableBuffer<u8> = TableBuffer::new(3, "d", "t", (Duration::from_secs(1), None), 2);
        let next = || match reports.receive(Duration::ZERO).unwrap().unwrap() {
            Report::Polled { table: 3, spec, response } => (
                spec.map(|s| s.series.len()),
                response.answer.unwrap().values.iter().map(|v| v.map(|v| v.0)).collect(),
            ),
            other => panic!("{other:?}"),
        };
        let some = |v: &[u64]| v.iter().map(|v| Some(*v)).collect::<Vec<_>>();
        assert_eq!(table.send(times(0), &sink), 0);
        table.row("y", 0, |_| series("y")).unwrap().copy_from_slice(&[Some(RawValue(1)), Some(RawValue(2))]);
        table.send(times(1), &sink);
        assert_eq!(next(), (Some(2), some(&[1, 2])), "an empty table is not sent");
        table.row("x", 0, |_| series("x")).unwrap().copy_from_slice(&[Some(RawValue(3)), Some(RawValue(4))]);
        table.send(times(2), &sink);
        let (spec, values): (_, Vec<Option<u64>>) = next();
        assert_eq!((spec, values), (Some(4), vec![None, None, Some(3), Some(4)]));
        table.row("x", 1, |_| series("x")).unwrap();
        table.send(times(3), &sink);
        assert_eq!(next(), (Some(4), vec![None; 4]), "its properties changed");
        table.send(times(4), &sink);
        assert_eq!(next().0, None);
    }

    #[test]
    fn the_number_of_rows_is_limited() {
        let mut table: TableBuffer<u8> = TableBuffer::new(0, "d", "t", (Duration::from_secs(1), None), 2);
        let (sink, _reports) = queue();
        let accepted =
            (0..9_000).filter(|n| table.row(&n.to_string(), 0, |_| series(&n.to_string())).is_some()).count();
        assert_eq!((accepted, table.send(times(0), &sink)), (8_192, 808));
    }
}

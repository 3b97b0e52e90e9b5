//! Rates of change, for printing to a terminal.

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::{Column, ColumnTracker, EventSet, RefreshPeriod, TableTracker, Timestamp};

use super::report::Report;

/// Computes rates from the responses of every table.
#[derive(Debug, Default)]
pub struct Rates {
    tables: BTreeMap<usize, Table>,
}

#[derive(Debug)]
struct Table {
    spec: Arc<TableSpec>,
    columns: Vec<Column>,
    table_tracker: TableTracker,
    trackers: BTreeMap<String, ColumnTracker>,
}

/// The rate of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The device.
    pub device: String,
    /// The series.
    pub series: String,
    /// The unit.
    pub unit: String,
    /// When the response arrived.
    pub at: Timestamp,
    /// For a counter, the increase per second between two responses; for a gauge, its value.
    pub value: Option<f64>,
    /// For a counter, the smallest and largest rate per second that the response times allow; for a gauge, its value
    /// twice.
    pub bounds: Option<(f64, f64)>,
    /// The series is a counter.
    pub counts: bool,
    /// Events of this response.
    pub events: EventSet,
}

impl Table {
    fn new(spec: Arc<TableSpec>, before: Option<Table>) -> Table {
        let position = |name: &String| spec.series.iter().position(|s| s.name == *name);
        let columns = spec
            .series
            .iter()
            .map(|s| Column {
                kind: s.kind,
                ceiling: s.ceiling,
                discontinuity: s.discontinuity.as_ref().and_then(position),
            })
            .collect();
        let refresh = spec.refresh.map_or(RefreshPeriod::default(), RefreshPeriod::Configured);
        let (table_tracker, trackers) = match before {
            // Rows keep their columns, so the state of the table stays valid.
            Some(before) => (before.table_tracker, before.trackers),
            None => (TableTracker::new(spec.period, refresh), BTreeMap::new()),
        };
        Table { spec, columns, table_tracker, trackers }
    }
}

impl Rates {
    /// Computes the rates of a report.
    pub fn update(&mut self, report: &Report) -> Vec<Rate> {
        let Report::Polled { table: number, spec, response } = report else { return Vec::new() };
        if let Some(spec) = spec {
            let before = self.tables.remove(number);
            self.tables.insert(*number, Table::new(spec.clone(), before));
        }
        let Some(table) = self.tables.get_mut(number) else { return Vec::new() };
        let Ok(checked) = table.table_tracker.update(&table.columns, response) else { return Vec::new() };
        let values = response.answer.as_ref().map_or(&[][..], |a| &a.values);
        let at = response.answer.as_ref().map_or(response.requested_at, |a| a.answered_at);
        let mut rates = Vec::new();
        for (at_column, (series, column)) in table.spec.series.iter().zip(&table.columns).enumerate() {
            let value = |position: usize| values.get(position).copied().flatten();
            let tracker = table.trackers.entry(series.name.clone()).or_default();
            let step =
                tracker.update(column, &checked, value(at_column), column.discontinuity.and_then(value));
            let growth = step.growth.map(|growth| (growth.min_rate(), growth.max_rate()));
            let level = step.level.map(|(_, raw)| (raw.to_f64(column.kind), raw.to_f64(column.kind)));
            let mean =
                step.growth.map(|growth| growth.amount as f64 / growth.duration().as_secs_f64().max(1e-9));
            rates.push(Rate {
                value: mean.or(level.map(|(value, _)| value)),
                device: table.spec.device.clone(),
                series: series.name.clone(),
                unit: series.unit.clone(),
                at,
                bounds: growth.or(level),
                counts: column.kind.is_counter(),
                events: step.events,
            });
        }
        rates
    }
}

//! Who makes rates of what comes, for a terminal.

use std::collections::BTreeMap;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::{Column, Events, Judge, Moment, Refresh, Tracker};

use super::report::Report;

/// Makes rates of the responses of every table.
#[derive(Debug, Default)]
pub struct Rates {
    tables: BTreeMap<usize, Table>,
}

#[derive(Debug)]
struct Table {
    device: String,
    names: Vec<String>,
    units: Vec<String>,
    columns: Vec<Column>,
    judge: Judge,
    trackers: BTreeMap<String, Tracker>,
}

/// What followed for a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Of which device.
    pub device: String,
    /// Which series.
    pub series: String,
    /// What it counts, or its unit.
    pub unit: String,
    /// When it was known.
    pub at: Moment,
    /// Of a counter what it grew by over how long it took, answer to answer, a second; of a gauge its value.
    pub value: Option<f64>,
    /// Of a counter the least and the most that its rate can have been, a second; of a gauge its value twice.
    pub bounds: Option<(f64, f64)>,
    /// Whether it counts.
    pub counts: bool,
    /// What happened.
    pub events: Events,
}

impl Table {
    fn new(spec: &TableSpec, before: Option<Table>) -> Table {
        let place = |name: &String| spec.series.iter().position(|s| s.name == *name);
        let columns = spec
            .series
            .iter()
            .map(|s| Column { kind: s.kind, ceiling: s.ceiling, mark: s.mark.as_ref().and_then(place) })
            .collect();
        let refresh = spec.refresh.map_or(Refresh::default(), Refresh::Told);
        let (judge, trackers) = match before {
            // Rows keep their places: what is known of the table holds.
            Some(before) => (before.judge, before.trackers),
            None => (Judge::new(spec.period, refresh), BTreeMap::new()),
        };
        Table {
            device: spec.device.clone(),
            names: spec.series.iter().map(|s| s.name.clone()).collect(),
            units: spec.series.iter().map(|s| s.unit.clone()).collect(),
            columns,
            judge,
            trackers,
        }
    }
}

impl Rates {
    /// What follows from a report.
    pub fn take(&mut self, report: &Report) -> Vec<Rate> {
        let Report::Polled { table: number, spec, response } = report else { return Vec::new() };
        if let Some(spec) = spec {
            let before = self.tables.remove(number);
            self.tables.insert(*number, Table::new(spec, before));
        }
        let Some(table) = self.tables.get_mut(number) else { return Vec::new() };
        let Ok(verdict) = table.judge.judge(&table.columns, response) else { return Vec::new() };
        let values = response.answer.as_ref().map_or(&[][..], |a| &a.values);
        let at = response.answer.as_ref().map_or(response.asked, |a| a.answered);
        let mut rates = Vec::new();
        for (place, (name, column)) in table.names.iter().zip(&table.columns).enumerate() {
            let value = |place: usize| values.get(place).copied().flatten();
            let tracker = table.trackers.entry(name.clone()).or_default();
            let step = tracker.step(column, &verdict, value(place), column.mark.and_then(value));
            let growth = step.growth.map(|growth| (growth.least(), growth.most()));
            let level = step.level.map(|(_, raw)| (raw.number(column.kind), raw.number(column.kind)));
            let mean = step.growth.map(|growth| growth.by as f64 / growth.length().as_secs_f64().max(1e-9));
            rates.push(Rate {
                value: mean.or(level.map(|(value, _)| value)),
                device: table.device.clone(),
                series: name.clone(),
                unit: table.units[place].clone(),
                at,
                bounds: growth.or(level),
                counts: column.kind.counts(),
                events: step.events,
            });
        }
        rates
    }
}

//! Series over time in buckets; readings one by one.

use serde::Serialize;
use trunkline_counters::archive::{Point, View};
use trunkline_counters::counter::{Growth, Kind};

use super::{SeriesTold, Value, events, json, tables};
use crate::pool::Asked;
use crate::query::{Query, Refused};

/// Most buckets of a view.
pub const MOST_BUCKETS: usize = 4_096;
/// Most readings at once.
pub const MOST_POINTS: usize = 10_000;

#[derive(Serialize)]
struct Views {
    from_ns: i64,
    to_ns: i64,
    now_ns: i64,
    buckets: usize,
    views: Vec<Told>,
}

/// One series in buckets. Every list has a place for each bucket but `events`.
#[derive(Serialize)]
struct Told {
    series: SeriesTold,
    /// Of a counter what it grew by, of others the sum of readings.
    sum: Vec<Value>,
    /// How many readings are in it.
    samples: Vec<u64>,
    /// How much of its time they tell about.
    covered_ns: Vec<u64>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    /// Null beside a `high` that is not: without bound.
    most: Vec<Option<f64>>,
    events: Vec<Happened>,
    damaged: Vec<String>,
}

#[derive(Serialize)]
struct Happened {
    bucket: usize,
    names: Vec<&'static str>,
}

/// Up to eight series over the same time.
pub fn view(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let (from, to) = query.span(asked.now)?;
    let buckets = query.count("buckets", 500, 1..=MOST_BUCKETS)?;
    let ids = query.series()?;
    let tables = tables(asked)?;
    let mut views = Vec::new();
    for id in ids {
        asked.in_time()?;
        let view = asked.reader.view(id, from, to, buckets)?;
        let table = tables.iter().find(|table| table.id == view.series.table);
        let table = table.ok_or_else(|| Refused::None(format!("there is no series {}", id.0)))?;
        views.push(told(&view, SeriesTold::new(&view.series, table)));
    }
    json(&Views { from_ns: from.0, to_ns: to.0, now_ns: asked.now.0, buckets, views })
}

fn told(view: &View, series: SeriesTold) -> Told {
    let all = &view.buckets.buckets;
    let real = view.series.column.kind == Kind::Real;
    let happened = |(bucket, summary): (usize, &trunkline_counters::archive::Summary)| Happened {
        bucket,
        names: events(summary.events),
    };
    Told {
        series,
        sum: all.iter().map(|s| if real { Value::Real(s.real) } else { Value::Sum(s.sum) }).collect(),
        samples: all.iter().map(|s| s.samples).collect(),
        covered_ns: all.iter().map(|s| u64::try_from(s.covered.as_nanos()).unwrap_or(u64::MAX)).collect(),
        low: all.iter().map(|s| s.range.map(|range| range.low)).collect(),
        high: all.iter().map(|s| s.range.map(|range| range.high)).collect(),
        most: all.iter().map(|s| s.range.map(|range| range.most)).collect(),
        events: all.iter().enumerate().filter(|(_, s)| !s.events.is_empty()).map(happened).collect(),
        damaged: view.damaged.iter().map(ToString::to_string).collect(),
    }
}

#[derive(Serialize)]
struct PointsTold {
    series: SeriesTold,
    points: Vec<PointTold>,
    next_ns: Option<i64>,
    gone: usize,
    damaged: Vec<String>,
}

/// A response and what it told of one series.
#[derive(Serialize)]
pub struct PointTold {
    due_ns: i64,
    asked_ns: i64,
    answered_ns: Option<i64>,
    uptime_s: Option<f64>,
    value: Option<Value>,
    growth: Option<Grown>,
    events: Vec<&'static str>,
}

impl PointTold {
    pub fn new(point: &Point, kind: Kind) -> PointTold {
        PointTold {
            due_ns: point.row.due.0,
            asked_ns: point.row.asked.0,
            answered_ns: point.row.answered.map(|at| at.0),
            uptime_s: point.row.uptime.map(|hundredths| f64::from(hundredths) / 100.0),
            value: point.value.map(|raw| Value::new(raw, kind)),
            growth: point.step.growth.as_ref().map(Grown::new),
            events: events(point.step.events),
        }
    }
}

/// What a counter grew by, and how fast at least and at most, a second.
#[derive(Serialize)]
pub struct Grown {
    by: u64,
    length_ns: u64,
    least: f64,
    most: Option<f64>,
}

impl Grown {
    pub fn new(growth: &Growth) -> Grown {
        let most = growth.most();
        Grown {
            by: growth.by,
            length_ns: u64::try_from(growth.length().as_nanos()).unwrap_or(u64::MAX),
            least: growth.least(),
            most: most.is_finite().then_some(most),
        }
    }
}

/// The readings of one series.
pub fn points(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let (from, to) = query.span(asked.now)?;
    let most = query.count("most", 1_000, 1..=MOST_POINTS)?;
    let [id] = query.series()?[..] else { return Err(Refused::Bad("`series` is one number here".into())) };
    let series = asked.reader.one(id)?;
    let tables = tables(asked)?;
    let table = tables.iter().find(|table| table.id == series.table);
    let table = table.ok_or_else(|| Refused::None(format!("there is no series {}", id.0)))?;
    let points = asked.reader.points(id, from, to, most)?;
    json(&PointsTold {
        series: SeriesTold::new(&series, table),
        points: points.points.iter().map(|point| PointTold::new(point, series.column.kind)).collect(),
        next_ns: points.next.map(|next| next.0),
        gone: points.gone,
        damaged: points.damaged.iter().map(ToString::to_string).collect(),
    })
}

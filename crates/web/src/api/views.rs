//! Series over time in buckets, and single readings.

use serde::Serialize;
use trunkline_counters::archive::{Point, View};
use trunkline_counters::counter::{Growth, ValueKind};

use super::{SeriesJson, Value, event_names, json, table_of};
use crate::query::{ApiError, Query};
use crate::readers::QueryContext;

/// Maximum number of buckets of a view.
pub const MAX_BUCKETS: usize = 4_096;
/// Maximum number of readings in one response.
pub const MAX_POINTS: usize = 10_000;

#[derive(Serialize)]
struct Views {
    from_ns: i64,
    to_ns: i64,
    now_ns: i64,
    buckets: usize,
    views: Vec<ViewJson>,
}

/// One series in buckets. All lists except `events` have one entry per bucket.
#[derive(Serialize)]
struct ViewJson {
    series: SeriesJson,
    /// The growth of a counter, or the sum of the readings of other kinds.
    sum: Vec<Value>,
    /// Number of readings.
    samples: Vec<u64>,
    /// The time covered by readings.
    covered_ns: Vec<u64>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    /// Null if `high` is not null: unbounded.
    most: Vec<Option<f64>>,
    events: Vec<BucketEvents>,
    damaged: Vec<String>,
}

#[derive(Serialize)]
struct BucketEvents {
    bucket: usize,
    names: Vec<&'static str>,
}

/// Returns up to eight series over the same time range.
pub fn view(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let (from, to) = query.time_range(context.now)?;
    let buckets = query.count("buckets", 500, 1..=MAX_BUCKETS)?;
    let mut views = Vec::new();
    for id in query.series()? {
        context.check_deadline()?;
        let view = context.reader.view(id, from, to, buckets)?;
        let table = table_of(context, &view.series)?;
        views.push(view_json(&view, SeriesJson::new(&view.series, &table)));
    }
    json(&Views { from_ns: from.0, to_ns: to.0, now_ns: context.now.0, buckets, views })
}

fn view_json(view: &View, series: SeriesJson) -> ViewJson {
    let all = &view.buckets.buckets;
    let real = view.series.column.kind == ValueKind::Real;
    let bucket_events = |(bucket, summary): (usize, &trunkline_counters::archive::Summary)| BucketEvents {
        bucket,
        names: event_names(summary.events),
    };
    ViewJson {
        series,
        sum: all.iter().map(|s| if real { Value::Real(s.real_sum) } else { Value::Sum(s.sum) }).collect(),
        samples: all.iter().map(|s| s.samples).collect(),
        covered_ns: all.iter().map(|s| u64::try_from(s.covered.as_nanos()).unwrap_or(u64::MAX)).collect(),
        low: all.iter().map(|s| s.range.map(|range| range.low)).collect(),
        high: all.iter().map(|s| s.range.map(|range| range.high)).collect(),
        most: all.iter().map(|s| s.range.map(|range| range.upper_bound)).collect(),
        events: all.iter().enumerate().filter(|(_, s)| !s.events.is_empty()).map(bucket_events).collect(),
        damaged: view.damaged.iter().map(ToString::to_string).collect(),
    }
}

#[derive(Serialize)]
struct PointsJson {
    series: SeriesJson,
    points: Vec<PointJson>,
    next_ns: Option<i64>,
    gone: usize,
    damaged: Vec<String>,
}

/// A response and its value for one series.
#[derive(Serialize)]
pub struct PointJson {
    due_ns: i64,
    asked_ns: i64,
    answered_ns: Option<i64>,
    uptime_s: Option<f64>,
    value: Option<Value>,
    growth: Option<GrowthJson>,
    events: Vec<&'static str>,
}

impl PointJson {
    pub fn new(point: &Point, kind: ValueKind) -> PointJson {
        PointJson {
            due_ns: point.row.due_at.0,
            asked_ns: point.row.requested_at.0,
            answered_ns: point.row.answered_at.map(|at| at.0),
            uptime_s: point.row.uptime.map(|hundredths| f64::from(hundredths) / 100.0),
            value: point.value.map(|raw| Value::new(raw, kind)),
            growth: point.update.growth.as_ref().map(GrowthJson::new),
            events: event_names(point.update.events),
        }
    }
}

/// The growth of a counter, with the lowest and highest possible rate per second.
#[derive(Serialize)]
pub struct GrowthJson {
    by: u64,
    length_ns: u64,
    least: f64,
    most: Option<f64>,
}

impl GrowthJson {
    pub fn new(growth: &Growth) -> GrowthJson {
        let most = growth.max_rate();
        GrowthJson {
            by: growth.amount,
            length_ns: u64::try_from(growth.duration().as_nanos()).unwrap_or(u64::MAX),
            least: growth.min_rate(),
            most: most.is_finite().then_some(most),
        }
    }
}

/// Returns readings of one series.
pub fn points(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let (from, to) = query.time_range(context.now)?;
    let most = query.count("most", 1_000, 1..=MAX_POINTS)?;
    let [id] = query.series()?[..] else {
        return Err(ApiError::InvalidRequest("`series` is one number here".into()));
    };
    let series = context.reader.series_by_id(id)?;
    let table = table_of(context, &series)?;
    let points = context.reader.points(id, from, to, most)?;
    json(&PointsJson {
        series: SeriesJson::new(&series, &table),
        points: points.points.iter().map(|point| PointJson::new(point, series.column.kind)).collect(),
        next_ns: points.next.map(|next| next.0),
        gone: points.removed,
        damaged: points.damaged.iter().map(ToString::to_string).collect(),
    })
}

//! New readings as server-sent events (WHATWG HTML, section 9.2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use trunkline_counters::archive::{Point, SeriesId, TableId};
use trunkline_counters::counter::Timestamp;

use super::api::views::PointJson;
use super::query::ApiError;
use super::readers::{Pool, QueryContext};

/// How often the archive is polled; it is flushed every few seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing is sent before a comment, which detects closed connections.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// New readings.
#[derive(Serialize)]
struct PointsEvent {
    now_ns: i64,
    series: Vec<SeriesPoints>,
}

#[derive(Serialize)]
struct SeriesPoints {
    id: i64,
    device: String,
    points: Vec<PointJson>,
}

/// A client's subscription to series.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Each table with its device and the subscribed series.
    tables: BTreeMap<TableId, (String, Vec<SeriesId>)>,
    last_sent: BTreeMap<TableId, Timestamp>,
}

impl Subscription {
    /// Creates a subscription that starts after the latest readings.
    pub fn new(context: &QueryContext<'_>, series: &[SeriesId]) -> Result<Subscription, ApiError> {
        let mut subscription = Subscription { tables: BTreeMap::new(), last_sent: BTreeMap::new() };
        for id in series {
            let table = context.reader.series_by_id(*id)?.table;
            subscription.tables.entry(table).or_default().1.push(*id);
        }
        for (id, (device, _)) in &mut subscription.tables {
            let found = context.reader.tables(TableId(id.0 - 1), 1)?;
            *device = found.into_iter().next().map(|table| table.device).unwrap_or_default();
        }
        subscription.poll(context)?;
        Ok(subscription)
    }

    /// Returns the readings since the last poll; `None` if there are none.
    fn poll(&mut self, context: &QueryContext<'_>) -> Result<Option<PointsEvent>, ApiError> {
        let mut event = PointsEvent { now_ns: context.now.0, series: Vec::new() };
        for (table, (device, watched)) in &self.tables {
            let recent = context.reader.recent(*table, |series| watched.contains(&series.id))?;
            let before = self.last_sent.get(table).copied();
            let is_new = |at: Timestamp| before.is_none_or(|before| at > before);
            for (series, readings) in &recent.series {
                let points = recent.rows.iter().zip(readings).filter(|(row, _)| is_new(row.time()));
                let points =
                    points.map(|(row, (value, step))| Point { row: *row, value: *value, update: *step });
                let points: Vec<_> = points.map(|p| PointJson::new(&p, series.column.kind)).collect();
                if before.is_some() && !points.is_empty() {
                    event.series.push(SeriesPoints { id: series.id.0, device: device.clone(), points });
                }
            }
            // A table without responses has sent nothing yet.
            self.last_sent.insert(*table, recent.rows.last().map_or(Timestamp::MIN, |row| row.time()));
        }
        Ok((!event.series.is_empty()).then_some(event))
    }
}

/// Responds with new readings until the client disconnects, which frees its `slot`.
pub fn respond(pool: Arc<Pool>, first: Subscription, slot: OwnedSemaphorePermit) -> impl IntoResponse {
    let events = stream::unfold((first, slot), move |(mut subscription, slot)| {
        let pool = pool.clone();
        async move {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                let mut next = subscription.clone();
                let polled = pool.run(move |context| next.poll(context).map(|event| (next, event))).await;
                // After an error the next poll may succeed.
                let Ok((next, event)) = polled else { continue };
                subscription = next;
                if let Some(event) = event {
                    let data = serde_json::to_string(&event);
                    let event = data.map(|data| Event::default().event("points").data(data));
                    return Some((event, (subscription, slot)));
                }
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEPALIVE_INTERVAL).text("nothing new"))
}

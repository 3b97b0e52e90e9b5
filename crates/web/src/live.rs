//! What is flushed while somebody watches, as server-sent events (WHATWG HTML, section 9.2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::channel::Sender;
use hyper::body::Bytes;
use serde::Serialize;
use trunkline_counters::archive::{Point, SeriesId, TableId};
use trunkline_counters::counter::Moment;

use super::api::views::PointTold;
use super::pool::{Asked, Pool};
use super::query::Refused;

/// How often the archive is looked at: it is flushed every few seconds.
const EVERY: Duration = Duration::from_secs(1);
/// Somebody who takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks without news after which a comment shows whether somebody is still there.
const QUIET_LOOKS: u32 = 5;

/// What was new.
#[derive(Serialize)]
struct News {
    now_ns: i64,
    series: Vec<Told>,
}

#[derive(Serialize)]
struct Told {
    id: i64,
    device: String,
    points: Vec<PointTold>,
}

/// How far somebody has been told, by table.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Each table with its device and those of its series that are watched.
    tables: BTreeMap<TableId, (String, Vec<SeriesId>)>,
    told: BTreeMap<TableId, Moment>,
}

impl Watch {
    /// Begins with what is newest now.
    pub fn new(asked: &Asked<'_>, series: &[SeriesId]) -> Result<Watch, Refused> {
        let mut watch = Watch { tables: BTreeMap::new(), told: BTreeMap::new() };
        for id in series {
            let table = asked.reader.one(*id)?.table;
            watch.tables.entry(table).or_default().1.push(*id);
        }
        for (id, (device, _)) in &mut watch.tables {
            let found = asked.reader.tables(TableId(id.0 - 1), 1)?;
            *device = found.into_iter().next().map(|table| table.device).unwrap_or_default();
        }
        watch.look(asked)?;
        Ok(watch)
    }

    /// What came since the last look; none if nothing did.
    fn look(&mut self, asked: &Asked<'_>) -> Result<Option<News>, Refused> {
        let mut news = News { now_ns: asked.now.0, series: Vec::new() };
        for (table, (device, watched)) in &self.tables {
            let recent = asked.reader.recent(*table, |series| watched.contains(&series.id))?;
            let before = self.told.get(table).copied();
            let fresh = |at: Moment| before.is_none_or(|before| at > before);
            for (series, told) in &recent.series {
                let points = recent.rows.iter().zip(told).filter(|(row, _)| fresh(row.at()));
                let points =
                    points.map(|(row, (value, step))| Point { row: *row, value: *value, step: *step });
                let points: Vec<_> = points.map(|p| PointTold::new(&p, series.column.kind)).collect();
                if before.is_some() && !points.is_empty() {
                    news.series.push(Told { id: series.id.0, device: device.clone(), points });
                }
            }
            // A table without a response is one that nothing was told of yet.
            self.told.insert(*table, recent.rows.last().map_or(Moment::FIRST, |row| row.at()));
        }
        Ok((!news.series.is_empty()).then_some(news))
    }
}

/// Tells somebody what is new until they go.
pub async fn tell(pool: Arc<Pool>, mut watch: Watch, mut to: Sender<Bytes>) {
    let mut quiet = QUIET_LOOKS;
    loop {
        let mut ahead = watch.clone();
        let looked = pool.ask(move |asked| {
            let news = ahead.look(asked)?;
            Ok((ahead, news))
        });
        let text = match looked.await {
            Ok((ahead, news)) => {
                watch = ahead;
                news.and_then(|news| serde_json::to_string(&news).ok())
            }
            // The next look may do better.
            Err(_) => None,
        };
        quiet += 1;
        let event = match text {
            Some(text) => format!("event: points\ndata: {text}\n\n"),
            None if quiet > QUIET_LOOKS => ": nothing new\n\n".to_owned(),
            None => String::new(),
        };
        if !event.is_empty() {
            quiet = 0;
            let sent = tokio::time::timeout(PATIENCE, to.send_data(Bytes::from(event)));
            if !matches!(sent.await, Ok(Ok(()))) {
                return;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

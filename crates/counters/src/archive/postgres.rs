//! The archive in the schema `trunkline` of a PostgreSQL database.
//!
//! | module | contents |
//! | --- | --- |
//! | [`session`] | schema, the lock of the writer, snapshots, reconnection |
//! | [`connection`] | a connection with timeouts and prepared statements |
//!
//! Chunks, flushes and summaries have the same bytes as in the file. The differences: a writer may wait for another one
//! to end; the database assigns the identifiers of tables and series; the size is the sum of chunks and flushes, because
//! PostgreSQL reuses the space of removed rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::chunk::EncodedChunk;
use super::encoding::{ByteSource, DecodeError};
use super::location::Location;
use super::storage::{
    ChunkEntry, Storage, TailRow, duration_from_ns, duration_to_ns, kind_from_number, kind_number,
};
use super::{ChunkId, Error, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text, TextSpec};
use crate::counter::{Column, Timestamp};

mod connection;
mod session;

pub(super) use session::PgStorage;

type SqlResult<T> = Result<T, tokio_postgres::Error>;

/// Octets of a chunk that are read in advance: usually the directory and the times.
const PREFETCH_BYTES: i32 = 16_384;

/// Maximum octets of names in an index entry.
const MAX_NAME: usize = 2_000;

/// Escape character: PostgreSQL texts cannot contain NUL, which is stored as this character and `0`; the character
/// itself is doubled.
const ESCAPE: char = '␛';

impl Storage for PgStorage {
    fn location(&self) -> &Location {
        &self.location
    }

    fn connect(&self) -> Result<u64, Error> {
        self.ensure_connected()?;
        self.lock()?;
        Ok(self.attempts.get())
    }

    fn connection_attempts(&self) -> u64 {
        self.attempts.get()
    }

    fn reset_backoff(&self) {
        self.backoff.take();
    }

    fn begin_snapshot(&self) -> Result<(), Error> {
        self.deferred_error.take();
        self.query(async |connection| {
            connection.batch("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await
        })?;
        self.in_snapshot.set(true);
        Ok(())
    }

    fn end_snapshot(&self) -> Result<(), Error> {
        let ended = self.query(async |connection| connection.batch("COMMIT").await);
        self.in_snapshot.set(false);
        self.deferred_error.take().map_or(ended, Err)
    }

    // --- tables and series

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error> {
        let (device, name) = (escape_nul(device), escape_nul(name));
        self.query(async |connection| {
            let sql = "SELECT id FROM trunkline.tables WHERE device = $1 AND name = $2";
            let row = connection.row(sql, &[&device, &name]).await?;
            row.map(|row| row.try_get(0).map(TableId)).transpose()
        })
    }

    fn put_table(
        &self,
        id: Option<TableId>,
        device: &str,
        name: &str,
        (period, refresh): (Duration, Option<Duration>),
        series: &[(usize, &SeriesSpec, Option<usize>)],
    ) -> Result<(TableId, Vec<SeriesId>), Error> {
        check_names(name, &[device, name])?;
        series.iter().try_for_each(|(_, spec, _)| check_names(name, &[&spec.name]))?;
        let (device, name) = (escape_nul(device), escape_nul(name));
        let (period, refresh) = (duration_to_ns(period), refresh.map(duration_to_ns));
        let positions: Vec<i64> = series.iter().map(|s| s.0 as i64).collect();
        let names: Vec<Cow<'_, str>> = series.iter().map(|s| escape_nul(&s.1.name)).collect();
        let kinds: Vec<i64> = series.iter().map(|s| kind_number(s.1.kind)).collect();
        let units: Vec<Cow<'_, str>> = series.iter().map(|s| escape_nul(&s.1.unit)).collect();
        let ceilings: Vec<Option<i64>> = series.iter().map(|s| s.1.ceiling.map(|c| c as i64)).collect();
        let marks: Vec<Option<i64>> = series.iter().map(|s| s.2.map(|m| m as i64)).collect();
        let (table, ids) = self.transaction(async |connection| {
            let polled = match id {
                Some(id) => {
                    let sql = "UPDATE trunkline.tables SET period_ns = $2, refresh_ns = $3 WHERE id = $1 RETURNING id";
                    connection.row(sql, &[&id.0, &period, &refresh]).await?
                }
                None => {
                    let sql = "INSERT INTO trunkline.tables (device, name, period_ns, refresh_ns)
                        VALUES ($1, $2, $3, $4) RETURNING id";
                    connection.row(sql, &[&device, &name, &period, &refresh]).await?
                }
            };
            let table: i64 = polled.map_or(Ok(0), |row| row.try_get(0))?;
            let sql = "INSERT INTO trunkline.series (table_id, position, name, kind, unit, ceiling, mark)
                SELECT $1::bigint, * FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
                ON CONFLICT (table_id, position) DO UPDATE SET
                    kind = excluded.kind, unit = excluded.unit, ceiling = excluded.ceiling, mark = excluded.mark
                RETURNING position, id";
            let rows =
                connection.rows(sql, &[&table, &positions, &names, &kinds, &units, &ceilings, &marks]).await?;
            let ids = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            Ok((table, ids.collect::<SqlResult<BTreeMap<i64, i64>>>()?))
        })?;
        let ids = positions.iter().map(|position| SeriesId(ids.get(position).copied().unwrap_or_default()));
        Ok((TableId(table), ids.collect()))
    }

    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error> {
        self.query(async |connection| {
            let row = connection.row("SELECT state FROM trunkline.tables WHERE id = $1", &[&table.0]).await?;
            row.map_or(Ok(None), |row| row.try_get(0))
        })
    }

    fn tables(&self, after: TableId, limit: usize) -> Result<Vec<TableInfo>, Error> {
        let info = |row: &Row| {
            Ok(TableInfo {
                id: TableId(row.try_get(0)?),
                device: text(row, 1)?,
                name: text(row, 2)?,
                period: duration_from_ns(row.try_get(3)?),
                refresh: row.try_get::<_, Option<i64>>(4)?.map(duration_from_ns),
            })
        };
        self.query(async |connection| {
            let sql = "SELECT id, device, name, period_ns, refresh_ns FROM trunkline.tables
                WHERE id > $1 ORDER BY id LIMIT $2";
            connection.rows(sql, &[&after.0, &(limit as i64)]).await?.iter().map(info).collect()
        })
    }

    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.query(async |connection| {
            let sql = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM trunkline.series
                WHERE table_id = $1 ORDER BY position";
            connection.rows(sql, &[&table.0]).await?.iter().map(series_info).collect()
        })
    }

    fn series_by_id(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error> {
        self.query(async |connection| {
            let sql = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM trunkline.series WHERE id = $1";
            connection.row(sql, &[&id.0]).await?.as_ref().map(series_info).transpose()
        })
    }

    // --- texts

    fn put_texts(&self, device: &str, texts: &[TextSpec<'_>], since: Timestamp) -> Result<(), Error> {
        texts.iter().try_for_each(|text| check_names(device, &[device, text.object, text.key]))?;
        // The later of two texts with the same key wins; a statement must not change a row twice.
        let last: BTreeMap<(&str, &str), &str> =
            texts.iter().map(|text| ((text.object, text.key), text.text)).collect();
        let objects: Vec<Cow<'_, str>> = last.keys().map(|(object, _)| escape_nul(object)).collect();
        let keys: Vec<Cow<'_, str>> = last.keys().map(|(_, key)| escape_nul(key)).collect();
        let texts: Vec<Cow<'_, str>> = last.values().map(|text| escape_nul(text)).collect();
        let device = escape_nul(device);
        self.query(async |connection| {
            let sql = "INSERT INTO trunkline.texts AS t (device, object, key, text, since)
                SELECT $1::text, input.*, $5::bigint FROM unnest($2::text[], $3::text[], $4::text[]) AS input
                ON CONFLICT (device, object, key) DO UPDATE SET text = excluded.text, since = excluded.since
                WHERE t.text <> excluded.text";
            connection.execute(sql, &[&device, &objects, &keys, &texts, &since.0]).await.map(drop)
        })
    }

    fn texts(&self, device: &str, limit: usize) -> Result<Vec<Text>, Error> {
        let device = escape_nul(device);
        let one = |row: &Row| {
            let (object, key, text) = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
            Ok(Text { object, key, text, since: Timestamp(row.try_get(3)?) })
        };
        self.query(async |connection| {
            let sql = "SELECT object, key, text, since FROM trunkline.texts WHERE device = $1
                ORDER BY object, key LIMIT $2";
            connection.rows(sql, &[&device, &(limit as i64)]).await?.iter().map(one).collect()
        })
    }

    // --- tails

    fn put_tails(&self, tails: &[TailRow]) -> Result<(), Error> {
        let tables: Vec<i64> = tails.iter().map(|tail| tail.table.0).collect();
        let rows: Vec<i64> = tails.iter().map(|tail| tail.rows as i64).collect();
        let last: Vec<i64> = tails.iter().map(|tail| tail.last.0).collect();
        let bytes: Vec<&[u8]> = tails.iter().map(|tail| tail.bytes.as_slice()).collect();
        self.transaction(async |connection| {
            let sql = "INSERT INTO trunkline.tails (table_id, rows, last, bytes)
                SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])";
            connection.execute(sql, &[&tables, &rows, &last, &bytes]).await.map(drop)
        })
    }

    fn last_tails(&self, table: TableId, limit: usize) -> Result<Vec<(i64, Vec<u8>)>, Error> {
        self.query(async |connection| {
            let sql = "SELECT id, bytes FROM trunkline.tails WHERE table_id = $1 ORDER BY id DESC LIMIT $2";
            let rows = connection.rows(sql, &[&table.0, &i64::try_from(limit).unwrap_or(i64::MAX)]).await?;
            rows.iter().rev().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
    }

    // --- chunks

    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        (begin, end, rows): (Timestamp, Timestamp, usize),
        sealed: &EncodedChunk,
        state: &[u8],
    ) -> Result<(), Error> {
        let size = (sealed.summary.len() + sealed.body.len()) as i64;
        let (reach, rows) = (sealed.reach.0, rows as i64);
        self.transaction(async |connection| {
            let sql = "INSERT INTO trunkline.chunks (table_id, reach, first, last, rows, raw, size, summary)
                VALUES ($1, $2, $3, $4, $5, true, $6, $7) RETURNING id";
            let row = connection
                .row(sql, &[&table.0, &reach, &begin.0, &end.0, &rows, &size, &sealed.summary])
                .await?;
            let chunk: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
            connection
                .execute(
                    "INSERT INTO trunkline.bodies (chunk, bytes) VALUES ($1, $2)",
                    &[&chunk, &sealed.body],
                )
                .await?;
            connection
                .execute("DELETE FROM trunkline.tails WHERE table_id = $1 AND id <= $2", &[&table.0, &last])
                .await?;
            connection
                .execute("UPDATE trunkline.tables SET state = $2 WHERE id = $1", &[&table.0, &state])
                .await?;
            Ok(())
        })
    }

    fn chunks(
        &self,
        table: TableId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChunkEntry>, Error> {
        let entry = |row: &Row| {
            let timestamp = |at: usize| row.try_get(at).map(Timestamp);
            Ok(ChunkEntry {
                id: ChunkId(row.try_get(0)?),
                begin: timestamp(1)?,
                end: timestamp(2)?,
                raw: row.try_get(3)?,
            })
        };
        self.query(async |connection| {
            let sql = "SELECT id, first, last, raw FROM trunkline.chunks
                WHERE table_id = $1 AND last >= $2 AND reach <= $3 ORDER BY last LIMIT $4";
            connection
                .rows(sql, &[&table.0, &from.0, &to.0, &(limit as i64)])
                .await?
                .iter()
                .map(entry)
                .collect()
        })
    }

    fn time_range(&self, table: TableId) -> Result<Option<(Timestamp, Timestamp)>, Error> {
        self.query(async |connection| {
            let sql = "SELECT (SELECT first FROM trunkline.chunks WHERE table_id = $1 ORDER BY last LIMIT 1),
                (SELECT last FROM trunkline.chunks WHERE table_id = $1 ORDER BY last DESC LIMIT 1)";
            let Some(row) = connection.row(sql, &[&table.0]).await? else { return Ok(None) };
            let (first, last): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            Ok(first.zip(last).map(|(first, last)| (Timestamp(first), Timestamp(last))))
        })
    }

    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn ByteSource + '_>, DecodeError> {
        let sql = if body {
            "SELECT octet_length(bytes), substring(bytes FROM 1 FOR $2) FROM trunkline.bodies WHERE chunk = $1"
        } else {
            "SELECT octet_length(summary), substring(summary FROM 1 FOR $2) FROM trunkline.chunks WHERE id = $1"
        };
        let found = self.query(async |connection| {
            let row = connection.row(sql, &[&chunk.0, &PREFETCH_BYTES]).await?;
            row.map(|row| Ok((row.try_get::<_, i32>(0)?, row.try_get(1)?))).transpose()
        });
        let (length, head) = self.as_damage(found)?.ok_or(DecodeError::Truncated)?;
        Ok(Box::new(PgBlob { pg: self, chunk, body, length: length.unsigned_abs() as usize, head }))
    }

    // --- retention

    fn chunks_before(&self, before: Timestamp, raw: bool, limit: usize) -> Result<Vec<ChunkId>, Error> {
        self.query(async |connection| {
            let sql = "SELECT id FROM trunkline.chunks WHERE raw = $1 AND last < $2 ORDER BY last LIMIT $3";
            let rows = connection.rows(sql, &[&raw, &before.0, &(limit as i64)]).await?;
            rows.iter().map(|row| row.try_get(0).map(ChunkId)).collect()
        })
    }

    fn remove_chunks(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error> {
        let ids: Vec<i64> = chunks.iter().map(|chunk| chunk.0).collect();
        self.transaction(async |connection| {
            connection.execute("DELETE FROM trunkline.bodies WHERE chunk = ANY($1)", &[&ids]).await?;
            let rest = if whole {
                "DELETE FROM trunkline.chunks WHERE id = ANY($1)"
            } else {
                "UPDATE trunkline.chunks SET raw = false, size = octet_length(summary) WHERE id = ANY($1) AND raw"
            };
            connection.execute(rest, &[&ids]).await.map(drop)
        })
    }

    fn remove_tails(&self, before: Timestamp) -> Result<usize, Error> {
        self.query(async |connection| {
            let sql = "DELETE FROM trunkline.tails WHERE last < $1";
            Ok(connection.execute(sql, &[&before.0]).await? as usize)
        })
    }

    fn size_bytes(&self) -> Result<u64, Error> {
        self.query(async |connection| {
            let sql = "SELECT ((SELECT coalesce(sum(size), 0) FROM trunkline.chunks)
                + (SELECT coalesce(sum(octet_length(bytes)), 0) FROM trunkline.tails))::bigint";
            let row = connection.row(sql, &[]).await?;
            Ok(row.map_or(Ok(0i64), |row| row.try_get(0))?.unsigned_abs())
        })
    }

    // --- forwarding

    fn forwarded(&self, to: &str) -> Result<Option<BTreeMap<TableId, Timestamp>>, Error> {
        let to = escape_nul(to);
        self.query(async |connection| {
            let rows = connection
                .rows("SELECT table_id, came FROM trunkline.forwards WHERE target = $1", &[&to])
                .await?;
            let each = rows.iter().map(|row| Ok((TableId(row.try_get(0)?), Timestamp(row.try_get(1)?))));
            each.collect::<SqlResult<_>>().map(Some)
        })
    }

    fn put_forwarded(&self, to: &str, last: &BTreeMap<TableId, Timestamp>) -> Result<(), Error> {
        let to = escape_nul(to);
        let tables: Vec<i64> = last.keys().map(|table| table.0).collect();
        let moments: Vec<i64> = last.values().map(|timestamp| timestamp.0).collect();
        self.query(async |connection| {
            let sql = "INSERT INTO trunkline.forwards (target, table_id, came)
                SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])
                ON CONFLICT (target, table_id) DO UPDATE SET came = excluded.came";
            connection.execute(sql, &[&to, &tables, &moments]).await.map(drop)
        })
    }
}

impl PgStorage {
    /// Turns an error into damage, and keeps it for the end of the snapshot.
    fn as_damage<T>(&self, answer: Result<T, Error>) -> Result<T, DecodeError> {
        answer.map_err(|error| {
            self.defer_error(error);
            DecodeError::Truncated
        })
    }
}

/// A BLOB of the database.
struct PgBlob<'a> {
    pg: &'a PgStorage,
    chunk: ChunkId,
    body: bool,
    length: usize,
    /// The first bytes, read in advance.
    head: Vec<u8>,
}

impl ByteSource for PgBlob<'_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), DecodeError> {
        let end =
            offset.checked_add(into.len()).filter(|end| *end <= self.length).ok_or(DecodeError::Truncated)?;
        if let Some(known) = self.head.get(offset..end) {
            into.copy_from_slice(known);
            return Ok(());
        }
        let sql = if self.body {
            "SELECT substring(bytes FROM $2 FOR $3) FROM trunkline.bodies WHERE chunk = $1"
        } else {
            "SELECT substring(summary FROM $2 FOR $3) FROM trunkline.chunks WHERE id = $1"
        };
        let number = |n: usize| i32::try_from(n).map_err(|_| DecodeError::Truncated);
        let (from, length) = (number(offset)?.saturating_add(1), number(into.len())?);
        let found = self.pg.query(async |connection| {
            let row = connection.row(sql, &[&self.chunk.0, &from, &length]).await?;
            row.map_or(Ok(Vec::new()), |row| row.try_get(0))
        });
        let bytes: Vec<u8> = self.pg.as_damage(found)?;
        if bytes.len() != into.len() {
            return Err(DecodeError::Truncated);
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn size(&self) -> usize {
        self.length
    }
}

/// Checks that names fit into an index entry.
fn check_names(table: &str, names: &[&str]) -> Result<(), Error> {
    let length: usize = names.iter().map(|name| escape_nul(name).len()).sum();
    if length <= MAX_NAME {
        return Ok(());
    }
    let reason = format!("names of {length} octets: a database takes {MAX_NAME}");
    Err(Error::InvalidTable(table.to_owned(), reason))
}

/// Escapes NUL characters for storage.
fn escape_nul(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return text.into();
    }
    text.replace(ESCAPE, "␛␛").replace('\0', "␛0").into()
}

/// Removes the escapes of a stored text.
fn unescape_nul(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut out = String::with_capacity(stored.len());
    let mut chars = stored.chars();
    while let Some(c) = chars.next() {
        match c {
            ESCAPE => out.push(chars.next().filter(|c| *c != '0').unwrap_or('\0')),
            c => out.push(c),
        }
    }
    out
}

fn text(row: &Row, at: usize) -> SqlResult<String> {
    row.try_get(at).map(unescape_nul)
}

fn series_info(row: &Row) -> SqlResult<SeriesInfo> {
    let KindNumber(kind) = row.try_get(4)?;
    let ceiling = row.try_get::<_, Option<i64>>(5)?.map(|c| c as u64);
    let discontinuity = row.try_get::<_, Option<i64>>(6)?.map(|m| m.unsigned_abs() as usize);
    Ok(SeriesInfo {
        id: SeriesId(row.try_get(0)?),
        table: TableId(row.try_get(1)?),
        position: row.try_get::<_, i64>(2)?.unsigned_abs() as usize,
        name: text(row, 3)?,
        column: Column { kind, ceiling, discontinuity },
        unit: text(row, 7)?,
    })
}

/// A kind; an invalid number is a conversion error.
struct KindNumber(crate::counter::ValueKind);

impl<'a> FromSql<'a> for KindNumber {
    fn from_sql(
        of: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<KindNumber, Box<dyn std::error::Error + Sync + Send>> {
        let number = i64::from_sql(of, raw)?;
        kind_from_number(number).map(KindNumber).ok_or_else(|| format!("{number} is no kind").into())
    }

    fn accepts(of: &tokio_postgres::types::Type) -> bool {
        <i64 as FromSql>::accepts(of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_comes_back_and_none_has_a_nul(text in "[a-c0\u{0}␛ü]{0,12}", other in any::<String>()) {
            for text in [text, other] {
                let as_kept = escape_nul(&text).into_owned();
                prop_assert!(!as_kept.contains('\0'));
                prop_assert_eq!(unescape_nul(as_kept), text);
            }
        }
    }
}

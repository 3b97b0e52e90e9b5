//! The archive in a database of PostgreSQL, in a schema of its own, `trunkline`; all SQL of it.
//!
//! | module | what |
//! | --- | --- |
//! | [`address`] | where the database is, and who comes |
//! | [`session`] | whose archive it is, who writes it; connecting again |
//! | [`link`] | a connection |
//!
//! Chunks, flushes and summaries are those of the file, octet for octet. What differs: many write it, each other devices;
//! numbers of tables and series come from the database; its size is what chunks and flushes hold, since PostgreSQL keeps
//! the room of removed rows for new ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::bytes::{Damage, Source};
use super::catalogue::{Catalogue, Entry, TailRow, kind, kind_number, length, ns};
use super::chunk::Sealed;
use super::location::Location;
use super::{ChunkId, Error, Said, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text};
use crate::counter::{Column, Moment};

pub(super) mod address;
mod link;
mod session;

pub(super) use session::Pg;

type Sql<T> = Result<T, tokio_postgres::Error>;

/// Of a chunk so much is read at once: the directory and the times of most.
const HEAD: i32 = 16_384;

/// Most octets of names in an index.
const MOST_NAME: usize = 2_000;

/// PostgreSQL has no text with a NUL, which stands as this and `0`; this itself stands twice.
const ESCAPE: char = '␛';

impl Catalogue for Pg {
    fn location(&self) -> &Location {
        self.location()
    }

    fn ready(&self) -> Result<u64, Error> {
        self.ready()
    }

    fn tries(&self) -> u64 {
        self.tries()
    }

    fn press(&self) {
        self.press();
    }

    fn hold(&self, device: &str) -> Result<(), Error> {
        self.hold(device)
    }

    fn taken(&self, device: &str) -> Option<String> {
        self.taken(device)
    }

    fn begin(&self) -> Result<(), Error> {
        self.begin()
    }

    fn end(&self) -> Result<(), Error> {
        self.end()
    }

    // --- tables and series

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error> {
        let (device, name) = (kept(device), kept(name));
        self.ask(async |link| {
            let sql = "SELECT id FROM trunkline.tables WHERE device = $1 AND name = $2";
            let row = link.row(sql, &[&device, &name]).await?;
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
        fit(name, &[device, name])?;
        series.iter().try_for_each(|(_, spec, _)| fit(name, &[&spec.name]))?;
        let (device, name) = (kept(device), kept(name));
        let (period, refresh) = (ns(period), refresh.map(ns));
        let each = |of: &dyn Fn(&SeriesSpec) -> i64| -> Vec<i64> { series.iter().map(|s| of(s.1)).collect() };
        let positions: Vec<i64> = series.iter().map(|s| s.0 as i64).collect();
        let names: Vec<Cow<'_, str>> = series.iter().map(|s| kept(&s.1.name)).collect();
        let kinds = each(&|spec| kind_number(spec.kind));
        let units: Vec<Cow<'_, str>> = series.iter().map(|s| kept(&s.1.unit)).collect();
        let ceilings: Vec<Option<i64>> = series.iter().map(|s| s.1.ceiling.map(|c| c as i64)).collect();
        let marks: Vec<Option<i64>> = series.iter().map(|s| s.2.map(|m| m as i64)).collect();
        let (table, ids) = self.transaction(async |link| {
            let polled = match id {
                Some(id) => {
                    let sql = "UPDATE trunkline.tables SET period_ns = $2, refresh_ns = $3 WHERE id = $1 RETURNING id";
                    link.row(sql, &[&id.0, &period, &refresh]).await?
                }
                None => {
                    let sql = "INSERT INTO trunkline.tables (device, name, period_ns, refresh_ns)
                        VALUES ($1, $2, $3, $4) RETURNING id";
                    link.row(sql, &[&device, &name, &period, &refresh]).await?
                }
            };
            let table: i64 = polled.map_or(Ok(0), |row| row.try_get(0))?;
            let sql = "INSERT INTO trunkline.series (table_id, position, name, kind, unit, ceiling, mark)
                SELECT $1::bigint, * FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
                ON CONFLICT (table_id, position) DO UPDATE SET
                    kind = excluded.kind, unit = excluded.unit, ceiling = excluded.ceiling, mark = excluded.mark
                RETURNING position, id";
            let rows =
                link.rows(sql, &[&table, &positions, &names, &kinds, &units, &ceilings, &marks]).await?;
            let ids = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            Ok((table, ids.collect::<Sql<BTreeMap<i64, i64>>>()?))
        })?;
        let ids = positions.iter().map(|position| SeriesId(ids.get(position).copied().unwrap_or_default()));
        Ok((TableId(table), ids.collect()))
    }

    fn columns(&self, table: TableId) -> Result<Vec<(String, Column)>, Error> {
        self.ask(async |link| {
            let sql = "SELECT name, kind, ceiling, mark FROM trunkline.series WHERE table_id = $1 ORDER BY position";
            link.rows(sql, &[&table.0]).await?.iter().map(|row| Ok((text(row, 0)?, column(row, 1)?))).collect()
        })
    }

    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error> {
        self.ask(async |link| {
            let row = link.row("SELECT state FROM trunkline.tables WHERE id = $1", &[&table.0]).await?;
            row.map_or(Ok(None), |row| row.try_get(0))
        })
    }

    fn tables(&self, after: TableId, most: usize) -> Result<Vec<TableInfo>, Error> {
        let info = |row: &Row| {
            Ok(TableInfo {
                id: TableId(row.try_get(0)?),
                device: text(row, 1)?,
                name: text(row, 2)?,
                period: length(row.try_get(3)?),
                refresh: row.try_get::<_, Option<i64>>(4)?.map(length),
            })
        };
        self.ask(async |link| {
            let sql = "SELECT id, device, name, period_ns, refresh_ns FROM trunkline.tables
                WHERE id > $1 ORDER BY id LIMIT $2";
            link.rows(sql, &[&after.0, &(most as i64)]).await?.iter().map(info).collect()
        })
    }

    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.ask(async |link| {
            let sql = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM trunkline.series
                WHERE table_id = $1 ORDER BY position";
            link.rows(sql, &[&table.0]).await?.iter().map(info).collect()
        })
    }

    fn one_series(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error> {
        self.ask(async |link| {
            let sql = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM trunkline.series WHERE id = $1";
            link.row(sql, &[&id.0]).await?.as_ref().map(info).transpose()
        })
    }

    // --- texts

    fn put_texts(&self, device: &str, texts: &[Said<'_>], since: Moment) -> Result<(), Error> {
        texts.iter().try_for_each(|said| fit(device, &[device, said.object, said.key]))?;
        // The later of two of the same stands: a statement changes a row once.
        let last: BTreeMap<(&str, &str), &str> =
            texts.iter().map(|said| ((said.object, said.key), said.text)).collect();
        let objects: Vec<Cow<'_, str>> = last.keys().map(|(object, _)| kept(object)).collect();
        let keys: Vec<Cow<'_, str>> = last.keys().map(|(_, key)| kept(key)).collect();
        let texts: Vec<Cow<'_, str>> = last.values().map(|text| kept(text)).collect();
        let device = kept(device);
        self.ask(async |link| {
            let sql = "INSERT INTO trunkline.texts AS t (device, object, key, text, since)
                SELECT $1::text, said.*, $5::bigint FROM unnest($2::text[], $3::text[], $4::text[]) AS said
                ON CONFLICT (device, object, key) DO UPDATE SET text = excluded.text, since = excluded.since
                WHERE t.text <> excluded.text";
            link.execute(sql, &[&device, &objects, &keys, &texts, &since.0]).await.map(drop)
        })
    }

    fn texts(&self, device: &str, most: usize) -> Result<Vec<Text>, Error> {
        let device = kept(device);
        let one = |row: &Row| {
            let (object, key, text) = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
            Ok(Text { object, key, text, since: Moment(row.try_get(3)?) })
        };
        self.ask(async |link| {
            let sql = "SELECT object, key, text, since FROM trunkline.texts WHERE device = $1
                ORDER BY object, key LIMIT $2";
            link.rows(sql, &[&device, &(most as i64)]).await?.iter().map(one).collect()
        })
    }

    // --- tails

    fn put_tails(&self, tails: &[TailRow]) -> Result<(), Error> {
        let tables: Vec<i64> = tails.iter().map(|tail| tail.table.0).collect();
        let rows: Vec<i64> = tails.iter().map(|tail| tail.rows as i64).collect();
        let last: Vec<i64> = tails.iter().map(|tail| tail.last.0).collect();
        let bytes: Vec<&[u8]> = tails.iter().map(|tail| tail.bytes.as_slice()).collect();
        self.transaction(async |link| {
            let sql = "INSERT INTO trunkline.tails (table_id, rows, last, bytes)
                SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])";
            link.execute(sql, &[&tables, &rows, &last, &bytes]).await.map(drop)
        })
    }

    fn tails(&self, table: TableId) -> Result<Vec<(i64, Vec<u8>)>, Error> {
        self.ask(async |link| {
            let sql = "SELECT id, bytes FROM trunkline.tails WHERE table_id = $1 ORDER BY id";
            let rows = link.rows(sql, &[&table.0]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
    }

    fn last_tails(&self, table: TableId, most: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.ask(async |link| {
            let sql = "SELECT bytes FROM trunkline.tails WHERE table_id = $1 ORDER BY id DESC LIMIT $2";
            let rows = link.rows(sql, &[&table.0, &(most as i64)]).await?;
            rows.iter().rev().map(|row| row.try_get(0)).collect()
        })
    }

    // --- chunks

    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        (begin, end, rows): (Moment, Moment, usize),
        sealed: &Sealed,
        state: &[u8],
    ) -> Result<(), Error> {
        let size = (sealed.summary.len() + sealed.body.len()) as i64;
        let (reach, rows) = (sealed.reach.0, rows as i64);
        self.transaction(async |link| {
            let sql = "INSERT INTO trunkline.chunks (table_id, reach, first, last, rows, raw, size, summary)
                VALUES ($1, $2, $3, $4, $5, true, $6, $7) RETURNING id";
            let row =
                link.row(sql, &[&table.0, &reach, &begin.0, &end.0, &rows, &size, &sealed.summary]).await?;
            let chunk: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
            link.execute(
                "INSERT INTO trunkline.bodies (chunk, bytes) VALUES ($1, $2)",
                &[&chunk, &sealed.body],
            )
            .await?;
            link.execute("DELETE FROM trunkline.tails WHERE table_id = $1 AND id <= $2", &[&table.0, &last])
                .await?;
            link.execute("UPDATE trunkline.tables SET state = $2 WHERE id = $1", &[&table.0, &state]).await?;
            Ok(())
        })
    }

    fn chunks(&self, table: TableId, from: Moment, to: Moment, most: usize) -> Result<Vec<Entry>, Error> {
        let entry = |row: &Row| {
            let moment = |at: usize| row.try_get(at).map(Moment);
            Ok(Entry {
                id: ChunkId(row.try_get(0)?),
                begin: moment(1)?,
                end: moment(2)?,
                raw: row.try_get(3)?,
            })
        };
        self.ask(async |link| {
            let sql = "SELECT id, first, last, raw FROM trunkline.chunks
                WHERE table_id = $1 AND last >= $2 AND reach <= $3 ORDER BY last LIMIT $4";
            link.rows(sql, &[&table.0, &from.0, &to.0, &(most as i64)]).await?.iter().map(entry).collect()
        })
    }

    fn extent(&self, table: TableId) -> Result<Option<(Moment, Moment)>, Error> {
        self.ask(async |link| {
            let sql = "SELECT (SELECT first FROM trunkline.chunks WHERE table_id = $1 ORDER BY last LIMIT 1),
                (SELECT last FROM trunkline.chunks WHERE table_id = $1 ORDER BY last DESC LIMIT 1)";
            let Some(row) = link.row(sql, &[&table.0]).await? else { return Ok(None) };
            let (first, last): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            Ok(first.zip(last).map(|(first, last)| (Moment(first), Moment(last))))
        })
    }

    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn Source + '_>, Damage> {
        let sql = if body {
            "SELECT octet_length(bytes), substring(bytes FROM 1 FOR $2) FROM trunkline.bodies WHERE chunk = $1"
        } else {
            "SELECT octet_length(summary), substring(summary FROM 1 FOR $2) FROM trunkline.chunks WHERE id = $1"
        };
        let found = self.ask(async |link| {
            let row = link.row(sql, &[&chunk.0, &HEAD]).await?;
            row.map(|row| Ok((row.try_get::<_, i32>(0)?, row.try_get(1)?))).transpose()
        });
        let (length, head) = self.hear(found)?.ok_or(Damage::Short)?;
        Ok(Box::new(Stored { pg: self, chunk, body, length: length.unsigned_abs() as usize, head }))
    }

    // --- retention

    fn old(&self, before: Moment, raw: Option<bool>, most: usize) -> Result<Vec<ChunkId>, Error> {
        let most = most as i64;
        self.ask(async |link| {
            let mut ids = Vec::new();
            // Those without a body first.
            for with in [false, true].into_iter().filter(|with| raw.is_none_or(|raw| raw == *with)) {
                let sql =
                    "SELECT id FROM trunkline.chunks WHERE raw = $1 AND last < $2 ORDER BY last LIMIT $3";
                for row in link.rows(sql, &[&with, &before.0, &(most - ids.len() as i64)]).await? {
                    ids.push(ChunkId(row.try_get(0)?));
                }
            }
            Ok(ids)
        })
    }

    fn remove(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error> {
        let ids: Vec<i64> = chunks.iter().map(|chunk| chunk.0).collect();
        self.transaction(async |link| {
            // Others may remove as well: one after the other.
            link.execute("SELECT pg_advisory_xact_lock($1)", &[&session::key("retention", "")]).await?;
            link.execute("DELETE FROM trunkline.bodies WHERE chunk = ANY($1)", &[&ids]).await?;
            let rest = if whole {
                "DELETE FROM trunkline.chunks WHERE id = ANY($1)"
            } else {
                "UPDATE trunkline.chunks SET raw = false, size = octet_length(summary) WHERE id = ANY($1) AND raw"
            };
            link.execute(rest, &[&ids]).await.map(drop)
        })
    }

    fn remove_tails(&self, before: Moment) -> Result<usize, Error> {
        self.ask(async |link| {
            let sql = "DELETE FROM trunkline.tails WHERE last < $1";
            Ok(link.execute(sql, &[&before.0]).await? as usize)
        })
    }

    /// The server does that by itself.
    fn shrink(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn bytes(&self) -> Result<u64, Error> {
        self.ask(async |link| {
            let sql = "SELECT ((SELECT coalesce(sum(size), 0) FROM trunkline.chunks)
                + (SELECT coalesce(sum(octet_length(bytes)), 0) FROM trunkline.tails))::bigint";
            let row = link.row(sql, &[]).await?;
            Ok(row.map_or(Ok(0i64), |row| row.try_get(0))?.unsigned_abs())
        })
    }

    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }

    // --- forwarding

    fn sent(&self, to: &str) -> Result<Option<BTreeMap<TableId, Moment>>, Error> {
        let to = kept(to);
        self.ask(async |link| {
            let rows =
                link.rows("SELECT table_id, came FROM trunkline.forwards WHERE target = $1", &[&to]).await?;
            let each = rows.iter().map(|row| Ok((TableId(row.try_get(0)?), Moment(row.try_get(1)?))));
            each.collect::<Sql<_>>().map(Some)
        })
    }

    fn put_sent(&self, to: &str, came: &BTreeMap<TableId, Moment>) -> Result<(), Error> {
        let to = kept(to);
        let tables: Vec<i64> = came.keys().map(|table| table.0).collect();
        let moments: Vec<i64> = came.values().map(|moment| moment.0).collect();
        self.ask(async |link| {
            let sql = "INSERT INTO trunkline.forwards (target, table_id, came)
                SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])
                ON CONFLICT (target, table_id) DO UPDATE SET came = excluded.came";
            link.execute(sql, &[&to, &tables, &moments]).await.map(drop)
        })
    }
}

impl Pg {
    /// What a caller cannot be told who knows of damage only is told when the snapshot ends.
    fn hear<T>(&self, answer: Result<T, Error>) -> Result<T, Damage> {
        answer.map_err(|error| {
            self.untold(error);
            Damage::Short
        })
    }
}

/// A BLOB of the database.
struct Stored<'a> {
    pg: &'a Pg,
    chunk: ChunkId,
    body: bool,
    length: usize,
    /// What it begins with.
    head: Vec<u8>,
}

impl Source for Stored<'_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        let end = offset.checked_add(into.len()).filter(|end| *end <= self.length).ok_or(Damage::Short)?;
        if let Some(known) = self.head.get(offset..end) {
            into.copy_from_slice(known);
            return Ok(());
        }
        let sql = if self.body {
            "SELECT substring(bytes FROM $2 FOR $3) FROM trunkline.bodies WHERE chunk = $1"
        } else {
            "SELECT substring(summary FROM $2 FOR $3) FROM trunkline.chunks WHERE id = $1"
        };
        let number = |n: usize| i32::try_from(n).map_err(|_| Damage::Short);
        let (from, length) = (number(offset)?.saturating_add(1), number(into.len())?);
        let found = self.pg.ask(async |link| {
            let row = link.row(sql, &[&self.chunk.0, &from, &length]).await?;
            row.map_or(Ok(Vec::new()), |row| row.try_get(0))
        });
        let bytes: Vec<u8> = self.pg.hear(found)?;
        if bytes.len() != into.len() {
            return Err(Damage::Short);
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn length(&self) -> usize {
        self.length
    }
}

/// Names that an index takes, as they are kept.
fn fit(table: &str, names: &[&str]) -> Result<(), Error> {
    let length: usize = names.iter().map(|name| kept(name).len()).sum();
    if length <= MOST_NAME {
        return Ok(());
    }
    let reason = format!("names of {length} octets: a database takes {MOST_NAME}");
    Err(Error::Spec { table: table.to_owned(), reason })
}

/// A text as it is kept.
fn kept(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, ESCAPE]),
            c => out.push(c),
        }
    }
    out.into()
}

/// What a kept text stands for.
fn plain(kept: String) -> String {
    if !kept.contains(ESCAPE) {
        return kept;
    }
    let mut out = String::with_capacity(kept.len());
    let mut chars = kept.chars();
    while let Some(c) = chars.next() {
        match c {
            ESCAPE => out.push(chars.next().filter(|c| *c != '0').unwrap_or('\0')),
            c => out.push(c),
        }
    }
    out
}

fn text(row: &Row, at: usize) -> Sql<String> {
    row.try_get(at).map(plain)
}

fn info(row: &Row) -> Sql<SeriesInfo> {
    Ok(SeriesInfo {
        id: SeriesId(row.try_get(0)?),
        table: TableId(row.try_get(1)?),
        position: row.try_get::<_, i64>(2)?.unsigned_abs() as usize,
        name: text(row, 3)?,
        column: column(row, 4)?,
        unit: text(row, 7)?,
    })
}

/// A column from `kind`, `ceiling` and `mark`, which begin at `at`.
fn column(row: &Row, at: usize) -> Sql<Column> {
    let Number(kind) = row.try_get(at)?;
    let ceiling = row.try_get::<_, Option<i64>>(at + 1)?.map(|c| c as u64);
    let mark = row.try_get::<_, Option<i64>>(at + 2)?.map(|m| m.unsigned_abs() as usize);
    Ok(Column { kind, ceiling, mark })
}

/// A kind; another number is the server's error, not ours.
struct Number(crate::counter::Kind);

impl<'a> FromSql<'a> for Number {
    fn from_sql(
        of: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Number, Box<dyn std::error::Error + Sync + Send>> {
        let number = i64::from_sql(of, raw)?;
        kind(number).map(Number).ok_or_else(|| format!("{number} is no kind").into())
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
                let as_kept = kept(&text).into_owned();
                prop_assert!(!as_kept.contains('\0'));
                prop_assert_eq!(plain(as_kept), text);
            }
        }
    }
}

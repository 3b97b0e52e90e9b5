//! Tests of the archive: whatever the order of flushes, chunks and restarts, all readings are read back; views add
//! up; damage stays local; retention removes old data.

#[cfg(feature = "postgres")]
mod postgres;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use trunkline_counters::archive::recent::MAX_RECENT;
use trunkline_counters::archive::{
    Buckets, Error, Layout, Location, MAX_BUCKETS, MAX_TEXT_LENGTH, Reader, Retention, SeriesSpec, TableId,
    TableSpec, TextSpec, Writer,
};
use trunkline_counters::counter::{
    Answer, Column, ColumnTracker, Event, RawValue, RefreshPeriod, Response, TableTracker, Timestamp,
    ValueKind,
};
use trunkline_units::{Seed, random::Stream};

use crate::for_each_store;
use crate::support::agent::{AgentConfig, Simulation, simulate};
use crate::support::store::{self, Store};

const S: i64 = 1_000_000_000;
const NAMES: [&str; 5] = ["octets", "errors", "cells", "mark", "level"];

fn table_spec(device: &str, columns: &[Column]) -> TableSpec {
    let one = |(at, column): (usize, &Column)| SeriesSpec {
        name: NAMES.get(at).map_or_else(|| format!("column {at}"), |n| (*n).to_owned()),
        kind: column.kind,
        unit: "octets".into(),
        ceiling: column.ceiling,
        discontinuity: column.discontinuity.map(|m| NAMES[m].to_owned()),
    };
    TableSpec {
        device: device.into(),
        name: "interfaces".into(),
        period: Duration::from_secs(1),
        refresh: Some(Duration::ZERO),
        series: columns.iter().enumerate().map(one).collect(),
    }
}

for_each_store! {
    written_responses_are_read_back
    a_view_reads_few_chunks
    recent_responses_equal_single_readings
    recent_responses_of_a_silent_device_include_its_last_growth
    points_are_paged
    a_damaged_chunk_is_reported_and_the_rest_is_read
    a_damaged_flush_is_reported_when_its_chunk_is_made
    retention_removes_readings_before_summaries
    columns_can_be_added_and_removed
    floats_keep_their_bits
    readers_run_beside_one_writer
    at_most_one_chunk_is_buffered
    invalid_arguments_are_refused
    texts_are_stored_with_the_time_of_their_change
    all_names_are_stored_unchanged
}

/// Reads all points of a series.
fn all(reader: &Reader, layout: &Layout, at: usize) -> trunkline_counters::archive::Points {
    reader.points(layout.series[at], Timestamp::MIN, Timestamp::MAX, usize::MAX).unwrap()
}

fn random_config(seed: u64, polls: usize) -> AgentConfig {
    AgentConfig {
        seed,
        polls,
        period_ms: 1_000,
        refresh_ms: 0,
        on_demand: false,
        restart: 20,
        reset: 500,
        discontinuity: 20,
        unannounced_reset: 20,
        lost: 50,
        absent: 50,
        late: 50,
        no_wrap: false,
    }
}

/// Returns the updates of a column without an archive.
fn updates_without_archive(
    simulation: &Simulation,
    at: usize,
) -> Vec<trunkline_counters::counter::column::Update> {
    let mut table_tracker =
        TableTracker::new(Duration::from_secs(1), RefreshPeriod::Configured(Duration::ZERO));
    let mut tracker = ColumnTracker::default();
    let step = |response: &Response| {
        let status = table_tracker.update(&simulation.columns, response).unwrap();
        let value = |at: usize| response.answer.as_ref().and_then(|a| a.values[at]);
        tracker.update(
            &simulation.columns[at],
            &status,
            value(at),
            simulation.columns[at].discontinuity.and_then(value),
        )
    };
    simulation.responses.iter().map(step).collect()
}

fn written_responses_are_read_back(store: &Store) {
    let config = ProptestConfig {
        cases: store.cases(),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1996),
        ..ProptestConfig::default()
    };
    let configs = (any::<u64>(), 1usize..400, prop::collection::vec(0u8..12, 400));
    let run = |(seed, polls, actions): (u64, usize, Vec<u8>)| {
        let simulation = simulate(&random_config(seed, polls));
        let (_dir, path) = store.folder();
        let mut writer = Writer::open(&path).unwrap();
        let layout = writer.open_table(&table_spec("a", &simulation.columns)).unwrap();
        for (response, action) in simulation.responses.iter().zip(actions) {
            writer.append(layout.table, response).unwrap();
            match action {
                0 => drop(writer.make_all_chunks().unwrap()),
                1 => {
                    writer.flush().unwrap();
                    drop(writer);
                    writer = Writer::open(&path).unwrap();
                    // The server may notice the end of the previous connection with a delay.
                    let mut again = None;
                    store::wait_until(|| {
                        again = writer.open_table(&table_spec("a", &simulation.columns)).ok();
                        again.is_some()
                    });
                    prop_assert_eq!(again.as_ref(), Some(&layout));
                }
                2..5 => drop(writer.flush().unwrap()),
                _ => {}
            }
        }
        writer.flush().unwrap();
        let reader = Reader::open(&path).unwrap();
        for (at, column) in simulation.columns.iter().enumerate() {
            let points = all(&reader, &layout, at);
            prop_assert_eq!(points.points.len(), polls);
            let recent = reader.recent(layout.table, |series| series.id == layout.series[at]).unwrap();
            let last = &points.points[polls - recent.rows.len()..];
            prop_assert!(recent.rows.len() >= polls.min(2) && recent.series.len() == 1);
            prop_assert!(recent.rows.iter().zip(last).all(|(row, point)| *row == point.row));
            for ((value, step), point) in recent.series[0].1.iter().zip(last) {
                prop_assert_eq!(*value, point.value);
                prop_assert!(step.growth.is_none_or(|growth| Some(growth) == point.update.growth));
            }
            let steps = updates_without_archive(&simulation, at);
            for (point, (response, step)) in points.points.iter().zip(simulation.responses.iter().zip(&steps))
            {
                let answer = response.answer.as_ref();
                prop_assert_eq!(point.row.due_at, response.due_at);
                prop_assert_eq!(point.row.requested_at, response.requested_at);
                prop_assert_eq!(point.row.answered_at, answer.map(|a| a.answered_at));
                prop_assert_eq!(point.row.uptime, answer.and_then(|a| a.uptime));
                prop_assert_eq!(point.value, answer.and_then(|a| a.values[at]));
                prop_assert_eq!(point.update.growth, step.growth, "the same with and without an archive");
                if step.events != point.update.events {
                    // An object that was never present gives no event; nothing is known before the first response.
                    prop_assert!(!point.update.events.contains(Event::Absent));
                }
            }
            check_views(&reader, &layout, at, column, &steps, &simulation, seed)?;
        }
        Ok(())
    };
    TestRunner::new(config).run(&configs, run).unwrap();
}

/// Checks that buckets of any number and position add up, and that wide buckets keep the peaks.
fn check_views(
    reader: &Reader,
    layout: &Layout,
    at: usize,
    column: &Column,
    steps: &[trunkline_counters::counter::column::Update],
    simulation: &Simulation,
    seed: u64,
) -> Result<(), TestCaseError> {
    let (first, last) =
        (simulation.responses[0].due_at, simulation.responses[simulation.responses.len() - 1].requested_at);
    let (from, to) =
        (first.saturating_sub(Duration::from_secs(100)), last.saturating_add(Duration::from_secs(100)));
    let view = |from, to, n| reader.view(layout.series[at], from, to, n).unwrap();
    let whole = view(from, to, 1).buckets.buckets[0];
    if column.kind.is_counter() {
        let sum: i128 = steps.iter().filter_map(|s| s.growth).map(|g| i128::from(g.amount)).sum();
        prop_assert_eq!(whole.sum, sum);
        let high = steps.iter().filter_map(|s| s.growth).map(|g| g.min_rate()).fold(f64::NAN, f64::max);
        prop_assert!(whole.range.map_or(high.is_nan(), |r| r.high == high));
    }
    let mut stream = Seed(seed).stream("views");
    for _ in 0..4 {
        let count = 1 + stream.below(700) as usize;
        let view = view(from, to, count);
        prop_assert_eq!(view.buckets.buckets.len(), count);
        let total =
            view.buckets.buckets.iter().fold(trunkline_counters::archive::Summary::default(), |mut t, b| {
                t.merge(b);
                t
            });
        prop_assert_eq!(total.sum, whole.sum, "{} buckets", count);
        prop_assert_eq!(total.covered, whole.covered);
        prop_assert_eq!(total.range, whole.range);
        prop_assert_eq!(total.samples, whole.samples);
        prop_assert!(whole.events.iter().all(|e| total.events.contains(e)));
        prop_assert!(view.bodies <= count + 1);
    }
    // Two views that meet anywhere add up to the whole.
    let cut = Timestamp(from.0 + stream.below((to.0 - from.0) as u64) as i64);
    let parts = [view(from, cut, 7), view(cut, to, 5)];
    let sum: i128 = parts.iter().flat_map(|v| &v.buckets.buckets).map(|b| b.sum).sum();
    if column.kind.is_counter() {
        prop_assert_eq!(sum, whole.sum, "cut at {:?}", cut);
    }
    Ok(())
}

/// Returns `count` responses, one per second, of a counter and a gauge.
fn responses_of_two_columns(count: usize, stream: &mut Stream) -> Vec<Response> {
    let mut counter = 0;
    let one = |at: usize| {
        counter += stream.below(1_000_000);
        let requested_at = Timestamp(at as i64 * S);
        let values = vec![Some(RawValue(counter)), Some(RawValue::from_gauge(at as i64 % 7 - 3))];
        let answer = Answer {
            answered_at: Timestamp(requested_at.0 + 1_000_000),
            uptime: Some(at as u32 * 100),
            values,
        };
        Response { due_at: requested_at, requested_at, answer: Some(answer) }
    };
    (0..count).map(one).collect()
}

fn two_columns() -> Vec<Column> {
    vec![Column::new(ValueKind::Counter64), Column::new(ValueKind::Gauge)]
}

fn filled_archive(path: &Location, count: usize, every: usize) -> (Writer, Layout) {
    let mut writer = Writer::open(path).unwrap();
    let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
    for (at, response) in responses_of_two_columns(count, &mut Seed(7).stream("plain")).iter().enumerate() {
        writer.append(layout.table, response).unwrap();
        if at % every == every - 1 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    (writer, layout)
}

fn a_view_reads_few_chunks(store: &Store) {
    let (_dir, path) = store.folder();
    let (_writer, layout) = filled_archive(&path, 20_000, 100);
    let reader = Reader::open(&path).unwrap();
    let (from, to) = reader.time_range(layout.table).unwrap().unwrap();
    assert_eq!((from, to), (Timestamp(1_000_000), Timestamp(19_999 * S + 1_000_000)));
    let one = reader.view(layout.series[0], from, to, 1).unwrap();
    assert_eq!(one.bodies, 0, "summaries cover the whole range");
    assert!((17..=22).contains(&one.summaries), "{}", one.summaries);
    let few = reader.view(layout.series[0], from, to, 5).unwrap();
    assert!(few.bodies <= 4 && few.bodies + few.summaries == one.summaries, "{few:?}");
    let many = reader.view(layout.series[0], from, to, 2_000).unwrap();
    assert_eq!((many.bodies, many.summaries), (one.summaries, 0), "each chunk once");
    let part = reader.view(layout.series[0], Timestamp(9_000 * S), Timestamp(9_010 * S), 100).unwrap();
    assert!(part.bodies <= 2);
    let most = reader.view(layout.series[0], from, to, usize::MAX).unwrap();
    assert_eq!(most.buckets.buckets.len(), MAX_BUCKETS);
}

fn recent_responses_equal_single_readings(store: &Store) {
    for (count, every) in [(1, 1), (1_500, 300), (3_000, 1), (200, 500)] {
        let (_dir, path) = store.folder();
        let (mut writer, layout) = filled_archive(&path, count, every);
        for sealed in [false, true] {
            if sealed {
                writer.make_all_chunks().unwrap();
            }
            let reader = Reader::open(&path).unwrap();
            let recent = reader.recent(layout.table, |_| true).unwrap();
            assert!(
                recent.rows.len() <= MAX_RECENT && recent.rows.len() >= count.min(16),
                "{count}, {every}"
            );
            assert!(recent.damaged.is_empty());
            for (at, (series, told)) in recent.series.iter().enumerate() {
                let points = all(&reader, &layout, at).points;
                let skip = points.len() - recent.rows.len();
                assert_eq!(series.id, layout.series[at]);
                for ((value, step), point) in told.iter().zip(&points[skip..]).skip(1) {
                    assert_eq!(
                        (*value, *step),
                        (point.value, point.update),
                        "{count}, {every}, sealed {sealed}"
                    );
                }
            }
        }
    }
}

fn recent_responses_of_a_silent_device_include_its_last_growth(store: &Store) {
    let (_dir, path) = store.folder();
    let (mut writer, layout) = filled_archive(&path, 200, 50);
    writer.make_all_chunks().unwrap();
    for at in 200..205 {
        let time = Timestamp(at * S);
        writer.append(layout.table, &Response { due_at: time, requested_at: time, answer: None }).unwrap();
    }
    writer.flush().unwrap();
    let recent = Reader::open(&path).unwrap().recent(layout.table, |_| true).unwrap();
    assert_eq!(recent.rows.len(), MAX_RECENT);
    let (_, readings) = &recent.series[0];
    assert_eq!(readings.iter().filter(|(value, _)| value.is_none()).count(), 5);
    assert!(readings.iter().any(|(_, update)| update.growth.is_some()));
}

fn points_are_paged(store: &Store) {
    let (_dir, path) = store.folder();
    let (_writer, layout) = filled_archive(&path, 2_000, 300);
    let reader = Reader::open(&path).unwrap();
    let (mut from, mut seen) = (Timestamp::MIN, Vec::new());
    loop {
        let page = reader.points(layout.series[1], from, Timestamp::MAX, 333).unwrap();
        assert!(page.points.len() <= 333);
        seen.extend(page.points.iter().map(|p| p.value.unwrap().0 as i64));
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(seen, (0..2_000).map(|at| at % 7 - 3).collect::<Vec<i64>>());
}

fn a_damaged_chunk_is_reported_and_the_rest_is_read(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, layout) = filled_archive(&path, 5_000, 100);
    drop(writer);
    let reader = Reader::open(&path).unwrap();
    let view = |n| reader.view(layout.series[0], Timestamp(0), Timestamp(5_000 * S), n).unwrap();
    let whole = view(2_000).buckets.buckets.iter().map(|b| b.sum).sum::<i128>();
    store.break_blob(&path, ("bodies", "bytes", "chunk"), 2, 66);
    let flip_bit = view(2_000);
    let said = flip_bit.damaged.iter().map(Error::to_string).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("chunk 2: the checksum of part"), "{said:?}");
    assert!(said[0].contains(&path.to_string()));
    assert_eq!(flip_bit.buckets.buckets.iter().map(|b| b.sum).sum::<i128>(), whole, "its summary stands in");
    let points = all(&reader, &layout, 0);
    assert!(points.damaged.len() == 1 && points.points.len() > 3_000);
    store.break_blob(&path, ("chunks", "summary", "id"), 2, 40);
    let lost = view(2_000);
    assert!(lost.damaged.len() >= 2 && lost.buckets.buckets.iter().map(|b| b.sum).sum::<i128>() < whole);
    assert!(view(1).damaged.len() >= 2);
}

fn a_damaged_flush_is_reported_when_its_chunk_is_made(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, _) = filled_archive(&path, 300, 100);
    drop(writer);
    store.break_blob(&path, ("tails", "bytes", "id"), 2, 66);
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
    let done = writer.make_all_chunks().unwrap();
    assert_eq!((done.chunks, done.damage.len()), (1, 1), "{done:?}");
    assert_eq!(all(&Reader::open(&path).unwrap(), &layout, 0).points.len(), 200);
}

fn retention_removes_readings_before_summaries(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, layout) = filled_archive(&path, 20_000, 200);
    let reader = Reader::open(&path).unwrap();
    let sum = |n| {
        let view = reader.view(layout.series[0], Timestamp(0), Timestamp(20_000 * S), n).unwrap();
        view.buckets.buckets.iter().map(|b| b.sum).sum::<i128>()
    };
    let (whole, bytes) = (sum(1_000), writer.size_bytes().unwrap());
    let now = Timestamp(20_000 * S);
    let raw = Retention { raw: Some(Duration::from_secs(5_000)), ..Retention::default() };
    let removed = writer.apply_retention(&raw, now).unwrap();
    assert!((12..=15).contains(&removed.bodies) && removed.chunks == 0 && !removed.more, "{removed:?}");
    assert_eq!(sum(1_000), whole, "what it grew by is still known");
    assert!(all(&reader, &layout, 0).removed == removed.bodies);
    let smaller = writer.size_bytes().unwrap();
    assert!(smaller < bytes * 4 / 5, "{smaller} of {bytes}");
    let both = Retention { all: Some(Duration::from_secs(10_000)), ..raw };
    let removed = writer.apply_retention(&both, now).unwrap();
    assert!(removed.chunks >= 8 && removed.bodies == 0, "{removed:?}");
    assert!(sum(1_000) < whole);
    drop(reader);
    let file = || path.file().map(|file| std::fs::metadata(file).unwrap().len());
    let before = file();
    let small = Retention { bytes: Some(100_000), ..Retention::default() };
    let mut rounds = 0;
    while writer.apply_retention(&small, now).unwrap().more {
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(
        writer.size_bytes().unwrap() <= 100_000
            || all(&Reader::open(&path).unwrap(), &layout, 0).removed == 0
    );
    writer.checkpoint().unwrap();
    assert!(before.is_none() || file() < before, "{:?} of {before:?}", file());
}

fn columns_can_be_added_and_removed(store: &Store) {
    let (_dir, path) = store.folder();
    let (mut writer, first) = filled_archive(&path, 600, 50);
    let mut wider = table_spec("a", &two_columns());
    wider.series.reverse();
    wider.series.push(SeriesSpec {
        name: "new".into(),
        kind: ValueKind::Real,
        unit: String::new(),
        ceiling: None,
        discontinuity: None,
    });
    let layout = writer.open_table(&wider).unwrap();
    assert_eq!(layout.series[..2], [first.series[1], first.series[0]]);
    for at in 600..1_800i64 {
        let requested_at = Timestamp(at * S);
        let values = vec![
            Some(RawValue::from_gauge(at)),
            Some(RawValue(1 << 40)),
            Some(RawValue::from_real(at as f64 / 3.0)),
        ];
        let answer = Answer { answered_at: Timestamp(requested_at.0 + 1), uptime: None, values };
        writer
            .append(layout.table, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
            .unwrap();
        if at % 100 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    let reader = Reader::open(&path).unwrap();
    let points = all(&reader, &layout, 2);
    assert_eq!(points.points.len(), 1_800 - points.points.iter().filter(|p| p.value.is_none()).count() + 600);
    let last = points.points.last().unwrap();
    assert_eq!(last.value, Some(RawValue::from_real(1_799.0 / 3.0)));
    assert_eq!(all(&reader, &layout, 0).points.last().unwrap().value, Some(RawValue::from_gauge(1_799)));
    let mean = reader.view(layout.series[2], Timestamp(700 * S), Timestamp(1_700 * S), 1).unwrap();
    assert!(mean.buckets.buckets[0].real_sum > 0.0);
}

fn floats_keep_their_bits(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.open_table(&table_spec("a", &[Column::new(ValueKind::Real)])).unwrap();
    let hard = [
        0.1 + 0.2,
        f64::NAN,
        -0.0,
        f64::INFINITY,
        f64::MIN_POSITIVE / 3.0,
        1e300,
        f64::from_bits(0x7ff8_dead_beef_0001),
    ];
    for (at, value) in hard.iter().cycle().take(100).enumerate() {
        let requested_at = Timestamp(at as i64 * S);
        let answer = Answer {
            answered_at: requested_at,
            uptime: None,
            values: vec![Some(RawValue::from_real(*value))],
        };
        writer
            .append(layout.table, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
            .unwrap();
    }
    writer.make_all_chunks().unwrap();
    let points = all(&Reader::open(&path).unwrap(), &layout, 0).points;
    let bits: Vec<u64> = points.iter().map(|p| p.value.unwrap().0).collect();
    assert_eq!(bits, hard.iter().cycle().take(100).map(|v| v.to_bits()).collect::<Vec<_>>());
}

/// A child process holds open files of its parent until it calls exec.
#[test]
fn a_short_lock_is_awaited() {
    let (_dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let lock = std::fs::File::open(format!("{path}-writer")).unwrap();
    lock.try_lock().unwrap();
    let mut other = std::process::Command::new("sleep").arg("0.3").stdin(lock).spawn().unwrap();
    drop(Writer::open(&path).unwrap());
    assert!(other.wait().unwrap().success());
}

fn readers_run_beside_one_writer(store: &Store) {
    let (_dir, path) = store.folder();
    let (mut writer, layout) = filled_archive(&path, 100, 10);
    let readers = [Reader::open(&path).unwrap(), Reader::open(&path).unwrap()];
    let second = Writer::open(&path);
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    for response in &responses_of_two_columns(3_000, &mut Seed(7).stream("plain"))[100..] {
        writer.append(layout.table, response).unwrap();
        if response.requested_at.0 / S % 500 == 0 {
            writer.flush().unwrap();
            for reader in &readers {
                let seen = all(reader, &layout, 0).points.len() as i64;
                assert_eq!(seen, response.requested_at.0 / S + 1);
            }
        }
    }
    drop(writer);
    store::wait_until(|| {
        Writer::open(&path).and_then(|mut writer| writer.open_table(&table_spec("a", &two_columns()))).is_ok()
    });
}

fn at_most_one_chunk_is_buffered(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
    let responses = responses_of_two_columns(1_025, &mut Seed(1).stream("plain"));
    for response in &responses[..1_024] {
        writer.append(layout.table, response).unwrap();
    }
    let refused = writer.append(layout.table, &responses[1_024]);
    assert!(matches!(refused, Err(Error::BufferFull(1_024))), "{refused:?}");
    writer.flush().unwrap();
    writer.append(layout.table, &responses[1_024]).unwrap();
}

fn invalid_arguments_are_refused(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let good = table_spec("a", &two_columns());
    let layout = writer.open_table(&good).unwrap();
    let refused = |writer: &mut Writer, change: &dyn Fn(&mut TableSpec)| {
        let mut table_spec = good.clone();
        change(&mut table_spec);
        writer.open_table(&table_spec).unwrap_err().to_string()
    };
    assert!(refused(&mut writer, &|s| s.period = Duration::ZERO).contains("period"));
    assert!(refused(&mut writer, &|s| s.series[0].kind = ValueKind::Real).contains("another kind"));
    assert!(refused(&mut writer, &|s| s.series[1].name = "octets".into()).contains("octets"));
    assert!(
        refused(&mut writer, &|s| s.series[0].discontinuity = Some("nowhere".into())).contains("nowhere")
    );
    let narrow =
        Response { answer: Some(Answer { values: vec![None], ..Answer::default() }), ..Response::default() };
    assert!(matches!(writer.append(layout.table, &narrow), Err(Error::ValueCount { columns: 2, found: 1 })));
    assert!(matches!(writer.append(TableId(99), &narrow), Err(Error::NotFound { .. })));
    let response = &responses_of_two_columns(1, &mut Seed(1).stream("plain"))[0];
    writer.append(layout.table, response).unwrap();
    assert!(matches!(writer.append(layout.table, response), Err(Error::OutOfOrder(_))));
    let reader = Reader::open(&path).unwrap();
    assert!(
        reader
            .series_by_id(trunkline_counters::archive::SeriesId(77))
            .unwrap_err()
            .to_string()
            .contains("series 77")
    );
}

#[test]
fn other_files_are_refused() {
    let (dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let other = dir.path().join("other");
    std::fs::write(&other, "not a database, but long enough to be looked at as if it were one").unwrap();
    assert!(matches!(Reader::open(&other), Err(Error::NotAnArchive { .. })));
    assert!(matches!(Writer::open(&other), Err(Error::NotAnArchive { .. })));
    let runs = dir.path().join("runs");
    drop(trunkline_record::Archive::open(&runs).unwrap());
    assert!(matches!(Writer::open(&runs), Err(Error::NotAnArchive { .. })));
    assert!(matches!(Reader::open(dir.path().join("none")), Err(Error::Open { .. })));
    let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    db.pragma_update(None, "user_version", 7).unwrap();
    assert!(matches!(Reader::open(&path), Err(Error::VersionTooNew(_, 7))));
}

#[test]
fn bucket_edges_meet() {
    for (from, to, count) in [(0, 10, 3), (-7, 1_000_000_007, 999), (5, 5, 4), (i64::MIN, i64::MAX, 8_192)] {
        let buckets = Buckets::new(Timestamp(from), Timestamp(to), count);
        assert_eq!((buckets.edge(0), buckets.edge(count)), (Timestamp(from), Timestamp(to)));
        assert!((0..count).all(|at| buckets.edge(at) <= buckets.edge(at + 1)));
    }
}

/// The seeds of the fuzz target `series_chunk`; regenerate them after a change of the format with `BLESS=1 cargo
/// test`.
#[test]
fn fuzzer_seeds_are_read() {
    use trunkline_counters::archive::{chunk, row};
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/series_chunk");
    if std::env::var_os("BLESS").is_some() {
        let (_dir, path) = Store::File.folder();
        let (mut writer, _) = filled_archive(&path, 30, 30);
        let simulation = simulate(&random_config(5, 200));
        let layout = writer.open_table(&table_spec("b", &simulation.columns)).unwrap();
        simulation.responses.iter().for_each(|r| drop(writer.append(layout.table, r).map(|_| ())));
        writer.flush().unwrap();
        std::fs::create_dir_all(&seeds).unwrap();
        let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
        let bytes = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        std::fs::write(seeds.join("flush"), bytes("SELECT bytes FROM tails ORDER BY id LIMIT 1")).unwrap();
        writer.make_all_chunks().unwrap();
        for (name, order) in [("small", ""), ("troubled", "DESC")] {
            let body = bytes(&format!("SELECT bytes FROM bodies ORDER BY chunk {order} LIMIT 1"));
            let summary = bytes(&format!("SELECT summary FROM chunks ORDER BY id {order} LIMIT 1"));
            std::fs::write(seeds.join(format!("body_{name}")), body).unwrap();
            std::fs::write(seeds.join(format!("summary_{name}")), summary).unwrap();
        }
    }
    let seed = |name: &str| std::fs::read(seeds.join(name)).unwrap();
    assert_eq!(chunk::validate_chunk(&seed("body_small")), Ok(2));
    assert_eq!(chunk::validate_chunk(&seed("body_troubled")), Ok(5));
    assert_eq!(row::validate_tail(&seed("flush")), Ok(30));
    for (name, samples) in [("summary_small", 29), ("summary_troubled", 199)] {
        let digest = chunk::decode_summary(&seed(name).as_slice(), 0).unwrap().unwrap();
        assert!(digest.summary.samples <= samples && digest.summary.sum > 0, "{digest:?}");
    }
}

/// Damaged bytes with valid checksums give an error or other numbers, never a panic.
#[test]
fn damaged_bytes_never_panic() {
    use trunkline_counters::archive::{chunk, encoding, row};
    let (_dir, path) = Store::File.folder();
    let (mut writer, _) = filled_archive(&path, 60, 60);
    let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    let blob = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let flush = blob("SELECT bytes FROM tails");
    writer.make_all_chunks().unwrap();
    let mut stream = Seed(3).stream("damage");
    for whole in [flush, blob("SELECT bytes FROM bodies"), blob("SELECT summary FROM chunks")] {
        let end =
            |part: usize| u32::from_le_bytes(whole[8 + 8 * part..12 + 8 * part].try_into().unwrap()) as usize;
        let count = u32::from_le_bytes(whole[4..8].try_into().unwrap()) as usize;
        for _ in 0..1_500 {
            let mut wrong = whole.clone();
            for _ in 0..1 + stream.below(4) {
                let at = 8 + 8 * count + stream.below((whole.len() - 8 - 8 * count) as u64) as usize;
                wrong[at] =
                    if stream.chance(0.5) { stream.bits() as u8 } else { wrong[at] ^ 1 << stream.below(8) };
            }
            let begin = |part: usize| if part == 0 { 8 + 8 * count } else { end(part - 1) };
            let parts: Vec<Vec<u8>> = (0..count).map(|part| wrong[begin(part)..end(part)].to_vec()).collect();
            let wrong = encoding::encode_parts(&parts);
            let _ = (chunk::validate_chunk(&wrong), row::validate_tail(&wrong));
            for part in 0..count {
                let _ = chunk::decode_summary(&wrong.as_slice(), part);
            }
        }
    }
}

fn texts_are_stored_with_the_time_of_their_change(store: &Store) {
    let (_dir, path) = store.folder();
    let writer = Writer::open(&path).unwrap();
    let said = |text| TextSpec { object: "port/eth0", key: "state", text };
    writer
        .put_texts("a", &[said("up"), TextSpec { object: "", key: "name", text: "<b>a</b>" }], Timestamp(1))
        .unwrap();
    writer.put_texts("a", &[said("up")], Timestamp(2)).unwrap();
    writer.put_texts("b", &[said("down")], Timestamp(2)).unwrap();
    let reader = Reader::open(&path).unwrap();
    let texts = |device| -> Vec<(String, String, Timestamp)> {
        reader.texts(device).unwrap().into_iter().map(|t| (t.object, t.text, t.since)).collect()
    };
    let name = (String::new(), "<b>a</b>".to_owned(), Timestamp(1));
    assert_eq!(texts("a"), [name.clone(), ("port/eth0".into(), "up".into(), Timestamp(1))]);
    writer.put_texts("a", &[said("down")], Timestamp(3)).unwrap();
    assert_eq!(texts("a"), [name, ("port/eth0".into(), "down".into(), Timestamp(3))]);
    // A long text is truncated at a character boundary.
    let long = "ü".repeat(MAX_TEXT_LENGTH);
    writer.put_texts("b", &[said(&format!("x{long}"))], Timestamp(3)).unwrap();
    assert_eq!(texts("b")[0].1.len(), MAX_TEXT_LENGTH - 1);
}

#[test]
fn a_writer_migrates_an_archive_without_texts() {
    let (_dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let old = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    old.execute_batch("DROP TABLE texts; PRAGMA user_version = 1").unwrap();
    drop(old);
    assert!(matches!(Reader::open(&path), Err(Error::VersionTooOld(_, 1))));
    Writer::open(&path).unwrap().put_texts("a", &[], Timestamp(0)).unwrap();
    assert!(Reader::open(&path).unwrap().texts("a").unwrap().is_empty());
}

fn all_names_are_stored_unchanged(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let hostile = ["a\0b", "␛0", "a", "\u{1b}[2J'; DROP TABLE trunkline.tables; --", "ü\u{feff}", ""];
    let mut tables = Vec::new();
    for device in hostile {
        let mut table_spec = table_spec(device, &two_columns());
        table_spec.name = device.into();
        table_spec.series[0].name = format!("{device}\0");
        table_spec.series[0].unit = device.into();
        tables.push((writer.open_table(&table_spec).unwrap(), table_spec));
        writer
            .put_texts(device, &[TextSpec { object: device, key: device, text: device }], Timestamp(1))
            .unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let found = reader.tables(TableId(0), 100).unwrap();
    let names: Vec<_> = found.iter().map(|table| (table.device.as_str(), table.name.as_str())).collect();
    assert_eq!(names, hostile.map(|name| (name, name)));
    for (layout, table_spec) in &tables {
        let series = reader.series(layout.table).unwrap();
        assert_eq!(
            (&series[0].name, &series[0].unit),
            (&table_spec.series[0].name, &table_spec.series[0].unit)
        );
        let texts = reader.texts(&table_spec.device).unwrap();
        assert_eq!(
            (texts.len(), &texts[0].object, &texts[0].key),
            (1, &table_spec.device, &table_spec.device)
        );
        assert_eq!((&texts[0].text, texts[0].since), (&table_spec.device, Timestamp(1)));
        assert_eq!(writer.open_table(table_spec).unwrap(), *layout, "it is found again");
    }
}

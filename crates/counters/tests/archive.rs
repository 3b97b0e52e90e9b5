//! The archive: what went in comes out, in whatever order it is flushed, sealed and opened again; views add up; damage
//! stays where it is; old things go.

#[path = "support/agent.rs"]
mod agent;
#[cfg(feature = "postgres")]
#[path = "archive/postgres.rs"]
mod postgres;
#[path = "support/store.rs"]
mod store;

use std::path::Path;
use std::time::Duration;

use agent::{Life, World, live};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use store::Store;
use trunkline_counters::archive::recent::MOST_RECENT;
use trunkline_counters::archive::{
    Buckets, Error, Layout, Location, MOST_BUCKETS, MOST_TEXT, Reader, Retention, Said, SeriesSpec, TableId,
    TableSpec, Writer,
};
use trunkline_counters::counter::{
    Answer, Column, Event, Judge, Kind, Moment, Raw, Refresh, Response, Tracker,
};
use trunkline_units::{Seed, random::Stream};

const S: i64 = 1_000_000_000;
const NAMES: [&str; 5] = ["octets", "errors", "cells", "mark", "level"];

fn spec(device: &str, columns: &[Column]) -> TableSpec {
    let one = |(at, column): (usize, &Column)| SeriesSpec {
        name: NAMES.get(at).map_or_else(|| format!("column {at}"), |n| (*n).to_owned()),
        kind: column.kind,
        unit: "octets".into(),
        ceiling: column.ceiling,
        mark: column.mark.map(|m| NAMES[m].to_owned()),
    };
    TableSpec {
        device: device.into(),
        name: "interfaces".into(),
        period: Duration::from_secs(1),
        refresh: Some(Duration::ZERO),
        series: columns.iter().enumerate().map(one).collect(),
    }
}

laws! {
    what_went_in_comes_out
    a_view_reads_as_few_chunks_as_it_can
    the_last_responses_tell_what_they_told_when_read_one_by_one
    points_are_given_in_pages
    a_damaged_chunk_is_named_and_the_rest_is_read
    a_damaged_flush_is_told_when_its_chunk_is_made
    old_readings_go_before_their_summaries_and_give_room_back
    columns_come_and_go
    real_numbers_keep_their_bits
    readers_read_beside_the_writer_and_a_second_writer_waits
    no_more_waits_than_a_chunk
    what_cannot_be_is_refused
    what_devices_say_in_words_is_kept_since_it_changed
    any_name_is_kept_as_it_is
}

/// Everything a series has.
fn all(reader: &Reader, layout: &Layout, at: usize) -> trunkline_counters::archive::Points {
    reader.points(layout.series[at], Moment::FIRST, Moment::LAST, usize::MAX).unwrap()
}

fn troubled(seed: u64, polls: usize) -> Life {
    Life {
        seed,
        polls,
        period_ms: 1_000,
        refresh_ms: 0,
        on_demand: false,
        restart: 20,
        reset: 500,
        discontinuity: 20,
        unsaid: 20,
        lost: 50,
        absent: 50,
        late: 50,
        slow: false,
    }
}

/// The steps of a column without an archive.
fn derived(world: &World, at: usize) -> Vec<trunkline_counters::counter::track::Step> {
    let mut judge = Judge::new(Duration::from_secs(1), Refresh::Told(Duration::ZERO));
    let mut tracker = Tracker::default();
    let step = |response: &Response| {
        let verdict = judge.judge(&world.columns, response).unwrap();
        let value = |at: usize| response.answer.as_ref().and_then(|a| a.values[at]);
        tracker.step(&world.columns[at], &verdict, value(at), world.columns[at].mark.and_then(value))
    };
    world.responses.iter().map(step).collect()
}

fn what_went_in_comes_out(store: &Store) {
    let config = ProptestConfig {
        cases: store.cases(),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1996),
        ..ProptestConfig::default()
    };
    let lives = (any::<u64>(), 1usize..400, prop::collection::vec(0u8..12, 400));
    let run = |(seed, polls, deeds): (u64, usize, Vec<u8>)| {
        let world = live(&troubled(seed, polls));
        let (_dir, path) = store.folder();
        let mut writer = Writer::open(&path).unwrap();
        let layout = writer.table(&spec("a", &world.columns)).unwrap();
        for (response, deed) in world.responses.iter().zip(deeds) {
            writer.append(layout.table, response).unwrap();
            match deed {
                0 => drop(writer.seal_all().unwrap()),
                1 => {
                    writer.flush().unwrap();
                    drop(writer);
                    writer = Writer::open(&path).unwrap();
                    // A server may take a while to notice that the one before has gone.
                    let mut again = None;
                    store::patiently(|| {
                        again = writer.table(&spec("a", &world.columns)).ok();
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
        for (at, column) in world.columns.iter().enumerate() {
            let points = all(&reader, &layout, at);
            prop_assert_eq!(points.points.len(), polls);
            let recent = reader.recent(layout.table, |series| series.id == layout.series[at]).unwrap();
            let last = &points.points[polls - recent.rows.len()..];
            prop_assert!(recent.rows.len() >= polls.min(2) && recent.series.len() == 1);
            prop_assert!(recent.rows.iter().zip(last).all(|(row, point)| *row == point.row));
            for ((value, step), point) in recent.series[0].1.iter().zip(last) {
                prop_assert_eq!(*value, point.value);
                prop_assert!(step.growth.is_none_or(|growth| Some(growth) == point.step.growth));
            }
            let steps = derived(&world, at);
            for (point, (response, step)) in points.points.iter().zip(world.responses.iter().zip(&steps)) {
                let answer = response.answer.as_ref();
                prop_assert_eq!(point.row.due, response.due);
                prop_assert_eq!(point.row.asked, response.asked);
                prop_assert_eq!(point.row.answered, answer.map(|a| a.answered));
                prop_assert_eq!(point.row.uptime, answer.and_then(|a| a.uptime));
                prop_assert_eq!(point.value, answer.and_then(|a| a.values[at]));
                prop_assert_eq!(point.step.growth, step.growth, "derived with the archive as without");
                if step.events != point.step.events {
                    // A missing object that was never there is no news; before the first response nothing is known.
                    prop_assert!(!point.step.events.has(Event::Absent));
                }
            }
            views_add_up(&reader, &layout, at, column, &steps, &world, seed)?;
        }
        Ok(())
    };
    TestRunner::new(config).run(&lives, run).unwrap();
}

/// Buckets at any place and of any number add up to the same, and no peak is lost in few of them.
fn views_add_up(
    reader: &Reader,
    layout: &Layout,
    at: usize,
    column: &Column,
    steps: &[trunkline_counters::counter::track::Step],
    world: &World,
    seed: u64,
) -> Result<(), TestCaseError> {
    let (first, last) = (world.responses[0].due, world.responses[world.responses.len() - 1].asked);
    let (from, to) = (first.before(Duration::from_secs(100)), last.after(Duration::from_secs(100)));
    let view = |from, to, n| reader.view(layout.series[at], from, to, n).unwrap();
    let whole = view(from, to, 1).buckets.buckets[0];
    if column.kind.counts() {
        let sum: i128 = steps.iter().filter_map(|s| s.growth).map(|g| i128::from(g.by)).sum();
        prop_assert_eq!(whole.sum, sum);
        let high = steps.iter().filter_map(|s| s.growth).map(|g| g.least()).fold(f64::NAN, f64::max);
        prop_assert!(whole.range.map_or(high.is_nan(), |r| r.high == high));
    }
    let mut stream = Seed(seed).stream("views");
    for _ in 0..4 {
        let count = 1 + stream.below(700) as usize;
        let view = view(from, to, count);
        prop_assert_eq!(view.buckets.buckets.len(), count);
        let total =
            view.buckets.buckets.iter().fold(trunkline_counters::archive::Summary::default(), |mut t, b| {
                t.join(b);
                t
            });
        prop_assert_eq!(total.sum, whole.sum, "{} buckets", count);
        prop_assert_eq!(total.covered, whole.covered);
        prop_assert_eq!(total.range, whole.range);
        prop_assert_eq!(total.samples, whole.samples);
        prop_assert!(whole.events.iter().all(|e| total.events.has(e)));
        prop_assert!(view.bodies <= count + 1);
    }
    // Cut anywhere, the two parts are the whole.
    let cut = Moment(from.0 + stream.below((to.0 - from.0) as u64) as i64);
    let parts = [view(from, cut, 7), view(cut, to, 5)];
    let sum: i128 = parts.iter().flat_map(|v| &v.buckets.buckets).map(|b| b.sum).sum();
    if column.kind.counts() {
        prop_assert_eq!(sum, whole.sum, "cut at {:?}", cut);
    }
    Ok(())
}

/// `count` responses a second apart, of one counter and one gauge.
fn plain(count: usize, stream: &mut Stream) -> Vec<Response> {
    let mut counter = 0;
    let one = |at: usize| {
        counter += stream.below(1_000_000);
        let asked = Moment(at as i64 * S);
        let values = vec![Some(Raw(counter)), Some(Raw::gauge(at as i64 % 7 - 3))];
        let answer = Answer { answered: Moment(asked.0 + 1_000_000), uptime: Some(at as u32 * 100), values };
        Response { due: asked, asked, answer: Some(answer) }
    };
    (0..count).map(one).collect()
}

fn two() -> Vec<Column> {
    vec![Column::new(Kind::Counter64), Column::new(Kind::Gauge)]
}

fn filled(path: &Location, count: usize, every: usize) -> (Writer, Layout) {
    let mut writer = Writer::open(path).unwrap();
    let layout = writer.table(&spec("a", &two())).unwrap();
    for (at, response) in plain(count, &mut Seed(7).stream("plain")).iter().enumerate() {
        writer.append(layout.table, response).unwrap();
        if at % every == every - 1 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    (writer, layout)
}

fn a_view_reads_as_few_chunks_as_it_can(store: &Store) {
    let (_dir, path) = store.folder();
    let (_writer, layout) = filled(&path, 20_000, 100);
    let reader = Reader::open(&path).unwrap();
    let (from, to) = reader.extent(layout.table).unwrap().unwrap();
    assert_eq!((from, to), (Moment(1_000_000), Moment(19_999 * S + 1_000_000)));
    let one = reader.view(layout.series[0], from, to, 1).unwrap();
    assert_eq!(one.bodies, 0, "all of all is told by summaries");
    assert!((17..=22).contains(&one.summaries), "{}", one.summaries);
    let few = reader.view(layout.series[0], from, to, 5).unwrap();
    assert!(few.bodies <= 4 && few.bodies + few.summaries == one.summaries, "{few:?}");
    let many = reader.view(layout.series[0], from, to, 2_000).unwrap();
    assert_eq!((many.bodies, many.summaries), (one.summaries, 0), "each chunk once");
    let part = reader.view(layout.series[0], Moment(9_000 * S), Moment(9_010 * S), 100).unwrap();
    assert!(part.bodies <= 2);
    let most = reader.view(layout.series[0], from, to, usize::MAX).unwrap();
    assert_eq!(most.buckets.buckets.len(), MOST_BUCKETS);
}

fn the_last_responses_tell_what_they_told_when_read_one_by_one(store: &Store) {
    for (count, every) in [(1, 1), (1_500, 300), (3_000, 1), (200, 500)] {
        let (_dir, path) = store.folder();
        let (mut writer, layout) = filled(&path, count, every);
        for sealed in [false, true] {
            if sealed {
                writer.seal_all().unwrap();
            }
            let reader = Reader::open(&path).unwrap();
            let recent = reader.recent(layout.table, |_| true).unwrap();
            assert!(
                recent.rows.len() <= MOST_RECENT && recent.rows.len() >= count.min(16),
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
                        (point.value, point.step),
                        "{count}, {every}, sealed {sealed}"
                    );
                }
            }
        }
    }
}

fn points_are_given_in_pages(store: &Store) {
    let (_dir, path) = store.folder();
    let (_writer, layout) = filled(&path, 2_000, 300);
    let reader = Reader::open(&path).unwrap();
    let (mut from, mut seen) = (Moment::FIRST, Vec::new());
    loop {
        let page = reader.points(layout.series[1], from, Moment::LAST, 333).unwrap();
        assert!(page.points.len() <= 333);
        seen.extend(page.points.iter().map(|p| p.value.unwrap().0 as i64));
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(seen, (0..2_000).map(|at| at % 7 - 3).collect::<Vec<i64>>());
}

fn a_damaged_chunk_is_named_and_the_rest_is_read(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, layout) = filled(&path, 5_000, 100);
    drop(writer);
    let reader = Reader::open(&path).unwrap();
    let view = |n| reader.view(layout.series[0], Moment(0), Moment(5_000 * S), n).unwrap();
    let whole = view(2_000).buckets.buckets.iter().map(|b| b.sum).sum::<i128>();
    store.break_blob(&path, ("bodies", "bytes", "chunk"), 2, 66);
    let broken = view(2_000);
    let said = broken.damaged.iter().map(Error::to_string).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("chunk 2: the checksum of part"), "{said:?}");
    assert!(said[0].contains(&path.to_string()));
    assert_eq!(broken.buckets.buckets.iter().map(|b| b.sum).sum::<i128>(), whole, "its summary stands in");
    let points = all(&reader, &layout, 0);
    assert!(points.damaged.len() == 1 && points.points.len() > 3_000);
    store.break_blob(&path, ("chunks", "summary", "id"), 2, 40);
    let lost = view(2_000);
    assert!(lost.damaged.len() >= 2 && lost.buckets.buckets.iter().map(|b| b.sum).sum::<i128>() < whole);
    assert!(view(1).damaged.len() >= 2);
}

fn a_damaged_flush_is_told_when_its_chunk_is_made(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, _) = filled(&path, 300, 100);
    drop(writer);
    store.break_blob(&path, ("tails", "bytes", "id"), 2, 66);
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.table(&spec("a", &two())).unwrap();
    let done = writer.seal_all().unwrap();
    assert_eq!((done.chunks, done.damage.len()), (1, 1), "{done:?}");
    assert_eq!(all(&Reader::open(&path).unwrap(), &layout, 0).points.len(), 200);
}

fn old_readings_go_before_their_summaries_and_give_room_back(store: &Store) {
    let (_dir, path) = store.folder();
    let (writer, layout) = filled(&path, 20_000, 200);
    let reader = Reader::open(&path).unwrap();
    let sum = |n| {
        let view = reader.view(layout.series[0], Moment(0), Moment(20_000 * S), n).unwrap();
        view.buckets.buckets.iter().map(|b| b.sum).sum::<i128>()
    };
    let (whole, bytes) = (sum(1_000), writer.bytes().unwrap());
    let now = Moment(20_000 * S);
    let raw = Retention { raw: Some(Duration::from_secs(5_000)), ..Retention::default() };
    let removed = writer.retain(&raw, now).unwrap();
    assert!((12..=15).contains(&removed.bodies) && removed.chunks == 0 && !removed.more, "{removed:?}");
    assert_eq!(sum(1_000), whole, "what it grew by is still known");
    assert!(all(&reader, &layout, 0).gone == removed.bodies);
    let smaller = writer.bytes().unwrap();
    assert!(smaller < bytes * 4 / 5, "{smaller} of {bytes}");
    let both = Retention { all: Some(Duration::from_secs(10_000)), ..raw };
    let removed = writer.retain(&both, now).unwrap();
    assert!(removed.chunks >= 8 && removed.bodies == 0, "{removed:?}");
    assert!(sum(1_000) < whole);
    drop(reader);
    let file = || path.file().map(|file| std::fs::metadata(file).unwrap().len());
    let before = file();
    let small = Retention { bytes: Some(100_000), ..Retention::default() };
    let mut rounds = 0;
    while writer.retain(&small, now).unwrap().more {
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(writer.bytes().unwrap() <= 100_000 || all(&Reader::open(&path).unwrap(), &layout, 0).gone == 0);
    writer.checkpoint().unwrap();
    assert!(before.is_none() || file() < before, "{:?} of {before:?}", file());
}

fn columns_come_and_go(store: &Store) {
    let (_dir, path) = store.folder();
    let (mut writer, first) = filled(&path, 600, 50);
    let mut wider = spec("a", &two());
    wider.series.reverse();
    wider.series.push(SeriesSpec {
        name: "new".into(),
        kind: Kind::Real,
        unit: String::new(),
        ceiling: None,
        mark: None,
    });
    let layout = writer.table(&wider).unwrap();
    assert_eq!(layout.series[..2], [first.series[1], first.series[0]]);
    for at in 600..1_800i64 {
        let asked = Moment(at * S);
        let values = vec![Some(Raw::gauge(at)), Some(Raw(1 << 40)), Some(Raw::real(at as f64 / 3.0))];
        let answer = Answer { answered: Moment(asked.0 + 1), uptime: None, values };
        writer.append(layout.table, &Response { due: asked, asked, answer: Some(answer) }).unwrap();
        if at % 100 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    let reader = Reader::open(&path).unwrap();
    let points = all(&reader, &layout, 2);
    assert_eq!(points.points.len(), 1_800 - points.points.iter().filter(|p| p.value.is_none()).count() + 600);
    let last = points.points.last().unwrap();
    assert_eq!(last.value, Some(Raw::real(1_799.0 / 3.0)));
    assert_eq!(all(&reader, &layout, 0).points.last().unwrap().value, Some(Raw::gauge(1_799)));
    let mean = reader.view(layout.series[2], Moment(700 * S), Moment(1_700 * S), 1).unwrap();
    assert!(mean.buckets.buckets[0].real > 0.0);
}

fn real_numbers_keep_their_bits(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.table(&spec("a", &[Column::new(Kind::Real)])).unwrap();
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
        let asked = Moment(at as i64 * S);
        let answer = Answer { answered: asked, uptime: None, values: vec![Some(Raw::real(*value))] };
        writer.append(layout.table, &Response { due: asked, asked, answer: Some(answer) }).unwrap();
    }
    writer.seal_all().unwrap();
    let points = all(&Reader::open(&path).unwrap(), &layout, 0).points;
    let bits: Vec<u64> = points.iter().map(|p| p.value.unwrap().0).collect();
    assert_eq!(bits, hard.iter().cycle().take(100).map(|v| v.to_bits()).collect::<Vec<_>>());
}

/// As a program has it that is being started by this one, until it is another.
#[test]
fn a_lock_that_is_held_for_a_moment_is_waited_for() {
    let (_dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let lock = std::fs::File::open(format!("{path}-writer")).unwrap();
    lock.try_lock().unwrap();
    let mut other = std::process::Command::new("sleep").arg("0.3").stdin(lock).spawn().unwrap();
    drop(Writer::open(&path).unwrap());
    assert!(other.wait().unwrap().success());
}

fn readers_read_beside_the_writer_and_a_second_writer_waits(store: &Store) {
    let (_dir, path) = store.folder();
    let (mut writer, layout) = filled(&path, 100, 10);
    let readers = [Reader::open(&path).unwrap(), Reader::open(&path).unwrap()];
    let second = Writer::open(&path).and_then(|mut second| second.table(&spec("a", &two())));
    match store {
        Store::File => assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}"),
        #[cfg(feature = "postgres")]
        Store::Server(_) => assert!(matches!(second, Err(Error::Held { .. })), "{second:?}"),
    }
    for response in &plain(3_000, &mut Seed(7).stream("plain"))[100..] {
        writer.append(layout.table, response).unwrap();
        if response.asked.0 / S % 500 == 0 {
            writer.flush().unwrap();
            for reader in &readers {
                let seen = all(reader, &layout, 0).points.len() as i64;
                assert_eq!(seen, response.asked.0 / S + 1);
            }
        }
    }
    drop(writer);
    store::patiently(|| Writer::open(&path).and_then(|mut writer| writer.table(&spec("a", &two()))).is_ok());
}

fn no_more_waits_than_a_chunk(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let layout = writer.table(&spec("a", &two())).unwrap();
    let responses = plain(1_025, &mut Seed(1).stream("plain"));
    for response in &responses[..1_024] {
        writer.append(layout.table, response).unwrap();
    }
    let refused = writer.append(layout.table, &responses[1_024]);
    assert!(matches!(refused, Err(Error::Unflushed { rows: 1_024 })), "{refused:?}");
    writer.flush().unwrap();
    writer.append(layout.table, &responses[1_024]).unwrap();
}

fn what_cannot_be_is_refused(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let good = spec("a", &two());
    let layout = writer.table(&good).unwrap();
    let refused = |writer: &mut Writer, change: &dyn Fn(&mut TableSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        writer.table(&spec).unwrap_err().to_string()
    };
    assert!(refused(&mut writer, &|s| s.period = Duration::ZERO).contains("period"));
    assert!(refused(&mut writer, &|s| s.series[0].kind = Kind::Real).contains("another kind"));
    assert!(refused(&mut writer, &|s| s.series[1].name = "octets".into()).contains("octets"));
    assert!(refused(&mut writer, &|s| s.series[0].mark = Some("nowhere".into())).contains("nowhere"));
    let narrow =
        Response { answer: Some(Answer { values: vec![None], ..Answer::default() }), ..Response::default() };
    assert!(matches!(writer.append(layout.table, &narrow), Err(Error::Width { columns: 2, found: 1 })));
    assert!(matches!(writer.append(TableId(99), &narrow), Err(Error::None { .. })));
    let response = &plain(1, &mut Seed(1).stream("plain"))[0];
    writer.append(layout.table, response).unwrap();
    assert!(matches!(writer.append(layout.table, response), Err(Error::Disorder(_))));
    let reader = Reader::open(&path).unwrap();
    assert!(
        reader.one(trunkline_counters::archive::SeriesId(77)).unwrap_err().to_string().contains("series 77")
    );
}

#[test]
fn files_that_are_something_else_are_refused() {
    let (dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let other = dir.path().join("other");
    std::fs::write(&other, "not a database, but long enough to be looked at as if it were one").unwrap();
    assert!(matches!(Reader::open(&other), Err(Error::Foreign { .. })));
    assert!(matches!(Writer::open(&other), Err(Error::Foreign { .. })));
    let runs = dir.path().join("runs");
    drop(trunkline_record::Archive::open(&runs).unwrap());
    assert!(matches!(Writer::open(&runs), Err(Error::Foreign { .. })));
    assert!(matches!(Reader::open(dir.path().join("none")), Err(Error::Open { .. })));
    let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    db.pragma_update(None, "user_version", 7).unwrap();
    assert!(matches!(Reader::open(&path), Err(Error::Newer { found: 7, .. })));
}

#[test]
fn edges_of_buckets_meet() {
    for (from, to, count) in [(0, 10, 3), (-7, 1_000_000_007, 999), (5, 5, 4), (i64::MIN, i64::MAX, 8_192)] {
        let buckets = Buckets::new(Moment(from), Moment(to), count);
        assert_eq!((buckets.edge(0), buckets.edge(count)), (Moment(from), Moment(to)));
        assert!((0..count).all(|at| buckets.edge(at) <= buckets.edge(at + 1)));
    }
}

/// The seeds of the fuzz target `series_chunk`, which a change of the format makes anew: `BLESS=1 cargo test`.
#[test]
fn seeds_of_the_fuzzer_are_read() {
    use trunkline_counters::archive::{chunk, row};
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/series_chunk");
    if std::env::var_os("BLESS").is_some() {
        let (_dir, path) = Store::File.folder();
        let (mut writer, _) = filled(&path, 30, 30);
        let world = live(&troubled(5, 200));
        let layout = writer.table(&spec("b", &world.columns)).unwrap();
        world.responses.iter().for_each(|r| drop(writer.append(layout.table, r).map(|_| ())));
        writer.flush().unwrap();
        std::fs::create_dir_all(&seeds).unwrap();
        let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
        let bytes = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        std::fs::write(seeds.join("flush"), bytes("SELECT bytes FROM tails ORDER BY id LIMIT 1")).unwrap();
        writer.seal_all().unwrap();
        for (name, order) in [("small", ""), ("troubled", "DESC")] {
            let body = bytes(&format!("SELECT bytes FROM bodies ORDER BY chunk {order} LIMIT 1"));
            let summary = bytes(&format!("SELECT summary FROM chunks ORDER BY id {order} LIMIT 1"));
            std::fs::write(seeds.join(format!("body_{name}")), body).unwrap();
            std::fs::write(seeds.join(format!("summary_{name}")), summary).unwrap();
        }
    }
    let seed = |name: &str| std::fs::read(seeds.join(name)).unwrap();
    assert_eq!(chunk::check(&seed("body_small")), Ok(2));
    assert_eq!(chunk::check(&seed("body_troubled")), Ok(5));
    assert_eq!(row::check(&seed("flush")), Ok(30));
    for (name, samples) in [("summary_small", 29), ("summary_troubled", 199)] {
        let digest = chunk::read_digest(&seed(name).as_slice(), 0).unwrap().unwrap();
        assert!(digest.summary.samples <= samples && digest.summary.sum > 0, "{digest:?}");
    }
}

/// Bytes that are wrong in spite of right checksums are an error or other numbers, never a panic.
#[test]
fn no_bytes_are_too_wrong_to_be_read() {
    use trunkline_counters::archive::{bytes, chunk, row};
    let (_dir, path) = Store::File.folder();
    let (mut writer, _) = filled(&path, 60, 60);
    let db = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    let blob = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let flush = blob("SELECT bytes FROM tails");
    writer.seal_all().unwrap();
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
            let wrong = bytes::join(&parts);
            let _ = (chunk::check(&wrong), row::check(&wrong));
            for part in 0..count {
                let _ = chunk::read_digest(&wrong.as_slice(), part);
            }
        }
    }
}

fn what_devices_say_in_words_is_kept_since_it_changed(store: &Store) {
    let (_dir, path) = store.folder();
    let writer = Writer::open(&path).unwrap();
    let said = |text| Said { object: "port/eth0", key: "state", text };
    writer.tell("a", &[said("up"), Said { object: "", key: "name", text: "<b>a</b>" }], Moment(1)).unwrap();
    writer.tell("a", &[said("up")], Moment(2)).unwrap();
    writer.tell("b", &[said("down")], Moment(2)).unwrap();
    let reader = Reader::open(&path).unwrap();
    let texts = |device| -> Vec<(String, String, Moment)> {
        reader.texts(device).unwrap().into_iter().map(|t| (t.object, t.text, t.since)).collect()
    };
    let name = (String::new(), "<b>a</b>".to_owned(), Moment(1));
    assert_eq!(texts("a"), [name.clone(), ("port/eth0".into(), "up".into(), Moment(1))]);
    writer.tell("a", &[said("down")], Moment(3)).unwrap();
    assert_eq!(texts("a"), [name, ("port/eth0".into(), "down".into(), Moment(3))]);
    // Too long a text is cut where a character ends.
    let long = "ü".repeat(MOST_TEXT);
    writer.tell("b", &[said(&format!("x{long}"))], Moment(3)).unwrap();
    assert_eq!(texts("b")[0].1.len(), MOST_TEXT - 1);
}

#[test]
fn an_archive_of_before_texts_is_brought_up_to_date_by_who_writes() {
    let (_dir, path) = Store::File.folder();
    drop(Writer::open(&path).unwrap());
    let old = rusqlite::Connection::open(path.file().unwrap()).unwrap();
    old.execute_batch("DROP TABLE texts; PRAGMA user_version = 1").unwrap();
    drop(old);
    assert!(matches!(Reader::open(&path), Err(Error::Older { found: 1, .. })));
    Writer::open(&path).unwrap().tell("a", &[], Moment(0)).unwrap();
    assert!(Reader::open(&path).unwrap().texts("a").unwrap().is_empty());
}

fn any_name_is_kept_as_it_is(store: &Store) {
    let (_dir, path) = store.folder();
    let mut writer = Writer::open(&path).unwrap();
    let hostile = ["a\0b", "␛0", "a", "\u{1b}[2J'; DROP TABLE trunkline.tables; --", "ü\u{feff}", ""];
    let mut tables = Vec::new();
    for device in hostile {
        let mut spec = spec(device, &two());
        spec.name = device.into();
        spec.series[0].name = format!("{device}\0");
        spec.series[0].unit = device.into();
        tables.push((writer.table(&spec).unwrap(), spec));
        writer.tell(device, &[Said { object: device, key: device, text: device }], Moment(1)).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let found = reader.tables(TableId(0), 100).unwrap();
    let names: Vec<_> = found.iter().map(|table| (table.device.as_str(), table.name.as_str())).collect();
    assert_eq!(names, hostile.map(|name| (name, name)));
    for (layout, spec) in &tables {
        let series = reader.series(layout.table).unwrap();
        assert_eq!((&series[0].name, &series[0].unit), (&spec.series[0].name, &spec.series[0].unit));
        let texts = reader.texts(&spec.device).unwrap();
        assert_eq!((texts.len(), &texts[0].object, &texts[0].key), (1, &spec.device, &spec.device));
        assert_eq!((&texts[0].text, texts[0].since), (&spec.device, Moment(1)));
        assert_eq!(writer.table(spec).unwrap(), *layout, "it is found again");
    }
}

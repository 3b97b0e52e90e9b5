//! Tests of PostgreSQL only: the lock of the writer, lost connections, lost answers, foreign databases.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::support::server::{self, Client, Server, USER};
use crate::support::store::wait_until;

/// Runs a test that needs a server.
fn with_server(test: impl FnOnce(&'static Server)) {
    if let Some(server) = server::server() {
        test(server);
    }
}

fn client(server: &Server, url: &str) -> Client {
    server.client(server::name(url))
}

/// Returns the values of the first series in order.
fn values(url: &str, layout: &Layout) -> Vec<u64> {
    let points = all(&Reader::open(url).unwrap(), layout, 0);
    assert!(points.damaged.is_empty(), "{:?}", points.damaged);
    points.points.iter().map(|point| point.value.unwrap().0).collect()
}

fn first_values(responses: &[Response]) -> Vec<u64> {
    responses.iter().map(|r| r.answer.as_ref().unwrap().values[0].unwrap().0).collect()
}

fn responses(count: usize) -> Vec<Response> {
    responses_of_two_columns(count, &mut Seed(7).stream("plain"))
}

/// Terminates all other connections to a database.
fn end_connections(server: &Server, url: &str) {
    client(server, url).batch(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

#[test]
fn an_archive_has_one_writer_and_the_error_names_it() {
    with_server(|server| {
        let url = server.database();
        let spec = table_spec("a", &two_columns());
        let mut first = Writer::open(&format!("{url}&application_name=first")).unwrap();
        let layout = first.open_table(&spec).unwrap();
        let refused = Writer::open(&url).unwrap_err().to_string();
        assert!(
            refused.contains("is writing the archive") && refused.contains(": first, process "),
            "{refused}"
        );
        assert!(!refused.contains('\n'));
        let mut standby = Writer::standby(&url).unwrap();
        for error in [
            standby.open_table(&spec).map(drop).unwrap_err(),
            standby.put_texts("b", &[], Timestamp(0)).unwrap_err(),
            standby.flush().map(drop).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), refused);
        }
        let retention = Retention { bytes: Some(0), ..Retention::default() };
        assert!(standby.apply_retention(&retention, Timestamp(0)).is_err(), "a standby removes nothing");
        let all = responses(60);
        let (before, after) = all.split_at(50);
        for response in before {
            first.append(layout.table, response).unwrap();
            first.flush().unwrap();
        }
        drop(first);
        wait_until(|| standby.flush().is_ok());
        assert_eq!(standby.open_table(&spec).unwrap(), layout);
        for response in after {
            standby.append(layout.table, response).unwrap();
        }
        standby.flush().unwrap();
        assert_eq!(values(&url, &layout), first_values(&all));
    });
}

#[test]
fn a_lost_connection_loses_no_responses() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
        let reader = Reader::open(&url).unwrap();
        let responses = responses(1_500);
        for (at, response) in responses.iter().enumerate() {
            writer.append(layout.table, response).unwrap();
            if at % 100 == 50 {
                end_connections(server, &url);
                assert_eq!(writer.flush().unwrap().damage.len(), 0);
                assert_eq!(all(&reader, &layout, 0).points.len(), at + 1);
                let other = Writer::standby(&url).unwrap().flush();
                assert!(matches!(other, Err(Error::Locked { .. })), "its lock is held again: {other:?}");
            }
            if at % 700 == 0 {
                end_connections(server, &url);
                writer
                    .put_texts("a", &[TextSpec { object: "", key: "name", text: "a" }], Timestamp(0))
                    .unwrap();
                assert_eq!(writer.open_table(&table_spec("a", &two_columns())).unwrap(), layout);
            }
        }
        end_connections(server, &url);
        writer.make_all_chunks().unwrap();
        assert_eq!(values(&url, &layout), first_values(&responses));
    });
}

#[test]
fn responses_of_another_writer_are_not_overwritten() {
    with_server(|server| [false, true].into_iter().for_each(|notices| write_conflict(server, notices)));
}

/// The first writer notices the end of its connection when it flushes, or before.
fn write_conflict(server: &'static Server, notices: bool) {
    let url = server.database();
    let mut first = Writer::open(&url).unwrap();
    let layout = first.open_table(&table_spec("a", &two_columns())).unwrap();
    let responses = responses(100);
    // The second writer polls at other times.
    let mut others = responses.clone();
    for other in &mut others {
        other.requested_at.0 += 500;
    }
    let feed = |writer: &mut Writer, responses: &[Response]| {
        for response in responses {
            writer.append(layout.table, response).unwrap();
        }
    };
    feed(&mut first, &responses[0..10]);
    first.flush().unwrap();
    feed(&mut first, &responses[10..20]);
    end_connections(server, &url);
    let mut second = Writer::open(&url).unwrap();
    second.open_table(&table_spec("a", &two_columns())).unwrap();
    if !notices {
        let refused = first.flush().unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    }
    feed(&mut second, &others[10..15]);
    let mut wider = table_spec("a", &two_columns());
    wider.series.push(SeriesSpec { name: "new".into(), ..wider.series[0].clone() });
    second.open_table(&wider).unwrap();
    let mut last = others[15].clone();
    last.answer.as_mut().unwrap().values.push(Some(RawValue(7)));
    second.append(layout.table, &last).unwrap();
    second.flush().unwrap();
    drop(second);
    wait_until(|| first.put_texts("a", &[], Timestamp(0)).is_ok());
    let damage = first.flush().unwrap().damage;
    let messages: Vec<String> = damage.iter().map(Error::to_string).collect();
    assert!(
        messages.len() == 1 && messages[0].contains("`interfaces` of `a`") && messages[0].contains("10 resp"),
        "{messages:?}"
    );
    assert!(matches!(first.append(layout.table, &responses[15]), Err(Error::OutOfOrder(_))));
    feed(&mut first, &responses[20..100]);
    first.make_all_chunks().unwrap();
    let expected = [&responses[..16], &responses[20..]].concat();
    assert_eq!(values(&url, &layout), first_values(&expected));
}

/// What another writer did not touch is written afterwards.
#[test]
fn only_tables_that_another_writer_wrote_lose_responses() {
    with_server(|server| {
        let url = server.database();
        let mut first = Writer::open(&url).unwrap();
        let specs = ["a", "b"].map(|device| table_spec(device, &two_columns()));
        let layouts = [&specs[0], &specs[1]].map(|table_spec| first.open_table(table_spec).unwrap());
        let responses = responses(30);
        let feed = |writer: &mut Writer, layout: &Layout, from: usize, to: usize| {
            for response in &responses[from..to] {
                writer.append(layout.table, response).unwrap();
            }
        };
        layouts.iter().for_each(|layout| feed(&mut first, layout, 0, 5));
        first.flush().unwrap();
        layouts.iter().for_each(|layout| feed(&mut first, layout, 5, 10));
        end_connections(server, &url);
        let mut second = Writer::open(&format!("{url}&application_name=second")).unwrap();
        second.open_table(&specs[0]).unwrap();
        let locked = first.flush().unwrap_err().to_string();
        assert!(locked.contains(": second, process "), "{locked}");
        feed(&mut first, &layouts[1], 10, 20);
        feed(&mut second, &layouts[0], 10, 20);
        second.flush().unwrap();
        drop(second);
        let mut done = None;
        wait_until(|| {
            done = first.flush().ok();
            done.is_some()
        });
        let done = done.unwrap();
        assert_eq!(done.rows, 15, "of b");
        assert!(
            matches!(&done.damage[..], [Error::WriteConflict(device, _, 5)] if device == "a"),
            "{done:?}"
        );
        layouts.iter().for_each(|layout| feed(&mut first, layout, 20, 30));
        assert_eq!(first.make_all_chunks().unwrap().rows, 20);
        assert_eq!(values(&url, &layouts[0]), first_values(&[&responses[..5], &responses[10..]].concat()));
        assert_eq!(values(&url, &layouts[1]), first_values(&responses));
    });
}

/// Holds regardless of the order of reconnections.
#[test]
fn a_standby_reserves_the_lock_for_the_previous_writer() {
    with_server(|server| {
        let url = server.database();
        let mut first = Writer::open(&format!("{url}&application_name=first")).unwrap();
        let layout = first.open_table(&table_spec("a", &two_columns())).unwrap();
        let responses = responses(10);
        for response in &responses {
            first.append(layout.table, response).unwrap();
        }
        let mut other = Writer::standby(&url).unwrap();
        let mut refused = || {
            let why = other.open_table(&table_spec("a", &two_columns())).unwrap_err();
            assert!(matches!(why, Error::Locked { .. }), "{why}");
            assert!(matches!(other.put_texts("a", &[], Timestamp(0)), Err(Error::Locked { .. })));
            why.to_string()
        };
        assert!(refused().contains("first, process "));
        end_connections(server, &url);
        assert!(refused().ends_with("it may come back"));
        let flushed = first.flush().unwrap();
        assert!(flushed.rows == 10 && flushed.damage.is_empty(), "{flushed:?}");
        assert!(refused().contains("first, process "));
        drop(first);
        let ended = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        wait_until(|| client(server, &url).number(ended) == 0);
        assert!(refused().ends_with("it may come back"));
        // A new writer has no former connection.
        Writer::open(&url).unwrap().open_table(&table_spec("b", &two_columns())).unwrap();
        assert_eq!(values(&url, &layout), first_values(&responses));
    });
}

/// A writer that is about to exit skips the pause.
#[test]
fn the_backoff_can_be_reset() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
        let (admin, name) = (server.client("postgres"), server::name(&url));
        writer.append(layout.table, &responses(1)[0]).unwrap();
        admin.batch(&format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{name}'"
        ));
        let why = writer.flush().unwrap_err();
        assert!(matches!(why, Error::Disconnected { .. }), "{why}");
        admin.batch(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"));
        writer.reset_backoff();
        assert_eq!(writer.flush().unwrap().rows, 1);
    });
}

/// How a relay treats its connections.
#[derive(Default)]
struct RelayState {
    /// Octets from the server after which the connection is cut, once.
    left: AtomicU64,
    times: AtomicU64,
    /// Whether the server does not notice the end of the connection.
    dangling: bool,
    /// Whether the client does not notice that the server closed the connection, except by its last message.
    hides_close: bool,
    open_sockets: Mutex<Vec<OwnedFd>>,
    /// Whether new connections get no data for longer than the first pause and are then closed.
    silent: AtomicBool,
    /// Number of connections.
    connections: AtomicU64,
}

/// Returns the address of a database behind a relay.
fn url_of_relay(server: &Server, url: &str, end_connections: &Arc<RelayState>) -> String {
    format!("postgres://{USER}@127.0.0.1:{}/{}", relay(server, end_connections), server::name(url))
}

/// Starts a relay between a writer and the server.
fn relay(server: &Server, end_connections: &Arc<RelayState>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (end_connections, socket) = (end_connections.clone(), server.socket());
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            end_connections.connections.fetch_add(1, Ordering::SeqCst);
            if end_connections.silent.load(Ordering::SeqCst) {
                stream.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
                let _ = std::io::copy(&mut &stream, &mut std::io::sink());
                continue;
            }
            let (end_connections, to) = (end_connections.clone(), UnixStream::connect(&socket).unwrap());
            let (mut from_client, mut to_server) = (stream.try_clone().unwrap(), to.try_clone().unwrap());
            let notices = !end_connections.dangling;
            thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                if notices {
                    let _ = to_server.shutdown(Shutdown::Both);
                }
            });
            thread::spawn(move || forward(to, stream, &end_connections));
        }
    });
    port
}

fn forward(mut from: UnixStream, mut to: TcpStream, end_connections: &RelayState) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let left = end_connections.left.load(Ordering::SeqCst);
        let length = length.min(left as usize);
        let ends = length as u64 == left;
        end_connections.left.store(if ends { u64::MAX } else { left - length as u64 }, Ordering::SeqCst);
        end_connections.times.fetch_add(ends.into(), Ordering::SeqCst);
        if ends || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    match end_connections.hides_close {
        true => end_connections.open_sockets.lock().unwrap().push(to.into()),
        false => drop(to.shutdown(Shutdown::Both)),
    }
    match end_connections.dangling {
        true => end_connections.open_sockets.lock().unwrap().push(from.into()),
        false => drop(from.shutdown(Shutdown::Both)),
    }
}

/// Connections break anywhere, also between a commit and its answer, whether or not the server notices.
#[test]
fn broken_connections_cause_no_loss_and_no_duplicates() {
    with_server(|server| {
        for dangling in [false, true] {
            let url = server.database();
            let end_connections =
                Arc::new(RelayState { left: AtomicU64::new(u64::MAX), dangling, ..RelayState::default() });
            let mut writer = Writer::open(&url_of_relay(server, &url, &end_connections)).unwrap();
            let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
            let mut stream = Seed(1996).stream("cuts");
            let (responses, mut reported) = (responses(1_200), 0);
            for (at, response) in responses.iter().enumerate() {
                writer.append(layout.table, response).unwrap();
                if at % 60 != 59 {
                    continue;
                }
                // The answer to a flush has a few dozen octets, to a chunk more.
                let short = at % 120 == 59;
                end_connections.left.store(1 + stream.below(if short { 60 } else { 600 }), Ordering::SeqCst);
                let write = if short { Writer::flush } else { Writer::make_all_chunks };
                wait_until(|| write(&mut writer).map(|done| reported += done.rows).is_ok());
            }
            end_connections.left.store(u64::MAX, Ordering::SeqCst);
            wait_until(|| writer.make_all_chunks().map(|done| reported += done.rows).is_ok());
            assert_eq!(reported, responses.len(), "each is reported once; dangling {dangling}");
            assert_eq!(values(&url, &layout), first_values(&responses), "dangling {dangling}");
            let tails = client(server, &url).number("SELECT count(*) FROM trunkline.tails");
            let times = end_connections.times.load(Ordering::SeqCst);
            assert!(tails == 0 && times > 5, "{tails} flushes, {times} cuts");
            let mut third = Writer::standby(&url).unwrap();
            drop(writer);
            if !dangling {
                wait_until(|| third.open_table(&table_spec("a", &two_columns())).is_ok());
            }
        }
    });
}

/// The pause starts after an attempt, however long it takes.
#[test]
fn a_silent_host_is_tried_once_per_flush() {
    with_server(|server| {
        let url = server.database();
        let relay = Arc::new(RelayState { left: AtomicU64::new(u64::MAX), ..RelayState::default() });
        let mut writer = Writer::open(&url_of_relay(server, &url, &relay)).unwrap();
        let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
        writer.append(layout.table, &responses(1)[0]).unwrap();
        let mut tries = || {
            assert!(matches!(writer.flush(), Err(Error::Disconnected { .. })));
            relay.connections.load(Ordering::SeqCst)
        };
        relay.silent.store(true, Ordering::SeqCst);
        end_connections(server, &url);
        assert_eq!(tries(), 2);
        assert_eq!(tries(), 2, "the backoff continues");
    });
}

/// A writer reconnects after the server has closed the session.
#[test]
fn a_session_closed_by_the_server_is_reopened() {
    with_server(|server| {
        let url = server.database();
        let relay = Arc::new(RelayState {
            left: AtomicU64::new(u64::MAX),
            hides_close: true,
            ..RelayState::default()
        });
        let idle = "options=-c%20idle_session_timeout%3D1s&application_name=idle";
        let through = format!("{}?{idle}", url_of_relay(server, &url, &relay));
        let mut writer = Writer::open(&through).unwrap();
        let layout = writer.open_table(&table_spec("a", &two_columns())).unwrap();
        writer.append(layout.table, &responses(1)[0]).unwrap();
        let reader = Reader::open(&through).unwrap();
        let client = client(server, &url);
        let sessions = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'idle'";
        wait_until(|| client.number(sessions) == 0);
        assert_eq!(reader.tables(TableId(0), 10).unwrap().len(), 1);
        assert_eq!(writer.flush().unwrap().rows, 1);
    });
}

/// The setting has an effect over TCP only; the test checks the server's log.
#[test]
fn tcp_user_timeout_is_set_on_the_server() {
    with_server(|server| {
        let url = server.database();
        drop(Writer::open(&format!("{url}&options=-c%20log_statement%3Dall")).unwrap());
        wait_until(|| {
            server.log().contains("'60000', false) FROM pg_settings WHERE name = 'tcp_user_timeout'")
        });
    });
}

/// Limits the number of statements that insert into a table, and the octets of `what` in each.
fn limit(server: &Server, url: &str, (table, what): (&str, &str), statements: u32, octets: u32) {
    client(server, url).batch(&format!(
        "CREATE TABLE IF NOT EXISTS public.done (n int);
         DELETE FROM public.done; INSERT INTO public.done VALUES (0);
         CREATE OR REPLACE FUNCTION public.count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE public.done SET n = n + 1;
             IF (SELECT n FROM public.done) > {statements}
                 OR (SELECT sum(octet_length({what})) FROM new) > {octets} THEN
                 RAISE 'too much';
             END IF;
             RETURN NULL;
         END $$;
         CREATE OR REPLACE TRIGGER count AFTER INSERT ON trunkline.{table}
             REFERENCING NEW TABLE AS new FOR EACH STATEMENT EXECUTE FUNCTION public.count()"
    ));
}

/// The number of round trips is constant.
#[test]
fn texts_of_many_ports_are_one_statement() {
    with_server(|server| {
        let url = server.database();
        let writer = Writer::open(&url).unwrap();
        limit(server, &url, ("texts", "text"), 2, 1 << 20);
        let ports: Vec<String> = (0..3_000).map(|port| format!("port/{port}")).collect();
        let messages = |object, text| TextSpec { object, key: "state", text };
        let mut texts: Vec<TextSpec<'_>> = ports.iter().map(|port| messages(port, "up")).collect();
        texts.push(messages(&ports[7], "down"));
        writer.put_texts("a", &texts, Timestamp(1)).unwrap();
        writer.put_texts("a", &texts[..10], Timestamp(2)).unwrap();
        let open_sockets = Reader::open(&url).unwrap().texts("a").unwrap();
        assert_eq!(open_sockets.len(), 3_000);
        let of = |port: &str| open_sockets.iter().find(|text| text.object == port).unwrap();
        assert_eq!(
            (of("port/7").text.as_str(), of("port/7").since),
            ("up", Timestamp(2)),
            "the later stands"
        );
        assert_eq!((of("port/8").text.as_str(), of("port/8").since), ("up", Timestamp(1)));
    });
}

/// On a slow link, each statement must be small.
#[test]
fn a_backlog_is_written_in_parts() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let (wide, count) = (vec![Column::new(ValueKind::Gauge); 2_000], 300);
        let layout = writer.open_table(&table_spec("wide", &wide)).unwrap();
        let small = writer.open_table(&table_spec("small", &two_columns())).unwrap();
        let mut stream = Seed(3).stream("gauges");
        let mut expected = Vec::new();
        for (at, response) in responses(count).iter().enumerate() {
            writer.append(small.table, response).unwrap();
            let requested_at = Timestamp(at as i64 * S);
            let values: Vec<_> = wide.iter().map(|_| Some(RawValue(stream.below(u64::MAX)))).collect();
            expected.push(values[0].unwrap().0);
            let answer = Answer { answered_at: requested_at, uptime: None, values };
            writer
                .append(layout.table, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
                .unwrap();
        }
        // About six megabytes, of which some are written.
        limit(server, &url, ("tails", "bytes"), 2, 3 << 19);
        let refused = writer.flush().unwrap_err().to_string();
        assert!(refused.contains("too much"), "{refused}");
        assert!((1..2 * count).contains(&writer.pending_responses()), "{}", writer.pending_responses());
        limit(server, &url, ("tails", "bytes"), 20, 3 << 19);
        assert_eq!(writer.flush().unwrap().rows, 2 * count);
        assert_eq!(writer.pending_responses(), 0);
        assert_eq!(values(&url, &layout), expected);
        assert_eq!(values(&url, &small), first_values(&responses(count)));
    });
}

#[test]
fn buffered_responses_are_limited() {
    // The limit is the same for both kinds of archive.
    let (_dir, path) = Store::File.folder();
    let mut writer = Writer::open(&path).unwrap();
    let wide = vec![Column::new(ValueKind::Gauge); 16_000];
    let tables: Vec<TableId> =
        (0..8).map(|at| writer.open_table(&table_spec(&format!("d{at}"), &wide)).unwrap().table).collect();
    let mut taken = 0;
    let refused = 'all: loop {
        for table in &tables {
            let requested_at = Timestamp(taken as i64 * S);
            let answer = Answer { answered_at: requested_at, uptime: None, values: vec![None; wide.len()] };
            match writer
                .append(*table, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
            {
                Ok(_) => taken += 1,
                Err(error) => break 'all error,
            }
        }
    };
    assert!(matches!(refused, Error::BufferFull { .. }), "{refused}");
    assert_eq!(taken, trunkline_counters::archive::writer::MAX_PENDING_VALUES / wide.len());
}

#[test]
fn foreign_databases_are_refused_with_a_one_line_error() {
    with_server(|server| {
        let url = server.database();
        let both = |url: &str| -> [Error; 2] {
            [Reader::open(url).unwrap_err(), Writer::open(url).map(drop).unwrap_err()]
        };
        assert!(matches!(Reader::open(&url), Err(Error::NotAnArchive { .. })), "empty");
        for sql in [
            "CREATE SCHEMA trunkline; CREATE TABLE trunkline.mine (x int)",
            "CREATE TABLE trunkline.archive (x int)",
            "DROP TABLE trunkline.archive; CREATE TABLE trunkline.archive (kind text, version int)",
            "INSERT INTO trunkline.archive VALUES ('something else', 1)",
        ] {
            client(server, &url).batch(sql);
            assert!(both(&url).iter().all(|error| matches!(error, Error::NotAnArchive { .. })), "{sql}");
        }
        let url = server.database();
        // An administrator has created the schema.
        client(server, &url).batch("CREATE SCHEMA trunkline");
        drop(Writer::open(&url).unwrap());
        client(server, &url).batch("UPDATE trunkline.archive SET version = 7");
        assert!(both(&url).iter().all(|error| matches!(error, Error::VersionTooNew(_, 7))));
        client(server, &url).batch("UPDATE trunkline.archive SET version = 0");
        assert!(matches!(Reader::open(&url), Err(Error::VersionTooOld(_, 0))));
        let names: Vec<String> = ["forwards", "texts", "bodies", "chunks", "tails", "series", "tables"]
            .map(|name| format!("DROP TABLE trunkline.{name};"))
            .into();
        client(server, &url).batch(&names.concat());
        drop(Writer::open(&url).unwrap());
        assert!(Reader::open(&url).unwrap().tables(TableId(0), 1).unwrap().is_empty(), "brought up to date");
    });
}

#[test]
fn of_concurrent_creators_one_writes_and_the_others_wait() {
    with_server(|server| {
        for _ in 0..4 {
            let url = server.database();
            let begin = std::sync::Barrier::new(6);
            let one = |at: usize| {
                begin.wait();
                let mut writer = Writer::standby(&url).unwrap();
                let mut open = || writer.open_table(&table_spec(&format!("d{at}"), &two_columns()));
                wait_until(|| {
                    let opened = open();
                    assert!(matches!(opened, Ok(_) | Err(Error::Locked { .. })), "{opened:?}");
                    opened.is_ok()
                });
            };
            let one = &one;
            thread::scope(|scope| {
                let all: Vec<_> = (0..6).map(|at| scope.spawn(move || one(at))).collect();
                all.into_iter().for_each(|one| one.join().unwrap());
            });
            assert_eq!(Reader::open(&url).unwrap().tables(TableId(0), 10).unwrap().len(), 6);
        }
    });
}

#[test]
fn name_limits_apply_to_the_stored_form() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        // Each character takes four octets in storage, or six.
        for (name, fits) in
            [("\u{0}".repeat(499), true), ("\u{0}".repeat(999), false), ("␛".repeat(499), false)]
        {
            let made = writer.open_table(&TableSpec { name, ..table_spec("a", &two_columns()) });
            let reported = made.as_ref().err();
            assert_eq!(made.is_ok(), fits, "{reported:?}");
            assert!(
                reported.is_none_or(|reported| matches!(reported, Error::InvalidTable(..))),
                "{reported:?}"
            );
        }
    });
}

#[test]
fn permission_errors_contain_no_password() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        writer.open_table(&table_spec("a", &two_columns())).unwrap();
        let admin = client(server, &url);
        admin.batch("CREATE ROLE locked LOGIN PASSWORD 'right'");
        let name = server::name(&url);
        let socket = server.folder.display();
        let reported = |url: &str| {
            let line = Reader::open(url).unwrap_err().to_string();
            assert!(!line.contains('\n') && !line.contains("wrong") && !line.contains("right"), "{line}");
            line
        };
        let locked = |password: &str| format!("postgres://locked:{password}@/{name}?host={socket}");
        assert!(reported(&locked("wrong")).contains("password authentication failed"));
        assert!(reported(&locked("right")).contains("permission denied"));
        assert!(reported(&format!("postgres://u:wrong@/none?host={socket}")).contains("none"));
        assert!(reported(&format!("postgres://u:wrong@/{name}?host={socket}/none")).contains("No such file"));
        assert!(
            reported(&format!("postgres://u:wrong@/{name}?host={socket}&sslmode=require"))
                .contains("without TLS")
        );
        // The minimum privileges of a reader.
        admin.batch(
            "GRANT USAGE ON SCHEMA trunkline TO locked; GRANT SELECT ON ALL TABLES IN SCHEMA trunkline TO locked",
        );
        let reader = Reader::open(&locked("right")).unwrap();
        assert_eq!(reader.tables(TableId(0), 10).unwrap().len(), 1);
        assert!(reader.put_forwarded("x", &[(TableId(1), Timestamp(1))].into()).is_err());
        drop(writer);
        let refused =
            Writer::open(&locked("right")).and_then(|mut w| w.open_table(&table_spec("b", &two_columns())));
        assert!(refused.is_err_and(|error| error.to_string().contains("permission denied")));
        admin.batch("DROP OWNED BY locked; DROP ROLE locked");
    });
}

#[test]
fn send_progress_is_stored() {
    with_server(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let tables =
            ["a", "b"].map(|device| writer.open_table(&table_spec(device, &two_columns())).unwrap().table);
        let reader = Reader::open(&url).unwrap();
        assert_eq!(reader.forwarded("x").unwrap(), Some([].into()));
        reader.put_forwarded("x", &tables.map(|table| (table, Timestamp(1))).into()).unwrap();
        reader.put_forwarded("x", &[(tables[0], Timestamp(2))].into()).unwrap();
        reader.put_forwarded("y", &[(tables[1], Timestamp(3))].into()).unwrap();
        let again = Reader::open(&url).unwrap();
        assert_eq!(
            again.forwarded("x").unwrap(),
            Some([(tables[0], Timestamp(2)), (tables[1], Timestamp(1))].into())
        );
        assert_eq!(again.forwarded("y").unwrap(), Some([(tables[1], Timestamp(3))].into()));
        let (_dir, file) = Store::File.folder();
        drop(Writer::open(&file).unwrap());
        assert_eq!(Reader::open(&file).unwrap().forwarded("x").unwrap(), None);
    });
}

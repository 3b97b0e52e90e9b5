//! What is of databases alone: who writes what, servers that go away, answers that are lost, databases of others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::store::patiently;
use super::store::server::{self, Client, Server, USER};
use super::*;

/// A law of a server alone: tells the test's server.
fn with(test: impl FnOnce(&'static Server)) {
    if let Some(server) = server::server() {
        test(server);
    }
}

fn client(server: &Server, url: &str) -> Client {
    server.client(server::name(url))
}

/// The values of the first series, in order.
fn values(url: &str, layout: &Layout) -> Vec<u64> {
    let points = all(&Reader::open(url).unwrap(), layout, 0);
    assert!(points.damaged.is_empty(), "{:?}", points.damaged);
    points.points.iter().map(|point| point.value.unwrap().0).collect()
}

fn counts(responses: &[Response]) -> Vec<u64> {
    responses.iter().map(|r| r.answer.as_ref().unwrap().values[0].unwrap().0).collect()
}

fn some(count: usize) -> Vec<Response> {
    plain(count, &mut Seed(7).stream("plain"))
}

/// Ends the connections of everybody else to a database.
fn cut(server: &Server, url: &str) {
    client(server, url).batch(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

#[test]
fn a_device_has_one_writer_who_is_named_to_others() {
    with(|server| {
        let url = server.database();
        let named = |name: &str| format!("{url}&application_name={name}");
        let (a, b) = (spec("a", &two()), spec("b", &two()));
        let mut first = Writer::open(&named("first")).unwrap();
        let mut second = Writer::open(&named("second")).unwrap();
        let layouts = (first.table(&a).unwrap(), second.table(&b).unwrap());
        assert_ne!(layouts.0.table, layouts.1.table);
        let refused = second.table(&a).unwrap_err().to_string();
        assert!(refused.contains("writes `a`") && refused.contains(": first, process "), "{refused}");
        assert!(!refused.contains('\n'));
        let told = first.tell("b", &[], Moment(0)).unwrap_err();
        assert!(matches!(told, Error::Held { .. }), "{told}");
        for response in &some(50) {
            first.append(layouts.0.table, response).unwrap();
            second.append(layouts.1.table, response).unwrap();
            first.flush().unwrap();
            second.flush().unwrap();
        }
        assert_eq!(values(&url, &layouts.0), counts(&some(50)));
        assert_eq!(values(&url, &layouts.1), counts(&some(50)));
        drop(first);
        patiently(|| second.table(&a).is_ok());
    });
}

#[test]
fn a_connection_that_ends_costs_nothing() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let layout = writer.table(&spec("a", &two())).unwrap();
        let reader = Reader::open(&url).unwrap();
        let responses = some(1_500);
        for (at, response) in responses.iter().enumerate() {
            writer.append(layout.table, response).unwrap();
            if at % 100 == 50 {
                cut(server, &url);
                assert_eq!(writer.flush().unwrap().damage.len(), 0);
                assert_eq!(all(&reader, &layout, 0).points.len(), at + 1);
                let other = Writer::open(&url).and_then(|mut w| w.table(&spec("a", &two())));
                assert!(matches!(other, Err(Error::Held { .. })), "its lock is held again: {other:?}");
            }
            if at % 700 == 0 {
                cut(server, &url);
                writer.tell("a", &[Said { object: "", key: "name", text: "a" }], Moment(0)).unwrap();
                assert_eq!(writer.table(&spec("a", &two())).unwrap(), layout);
            }
        }
        cut(server, &url);
        writer.seal_all().unwrap();
        assert_eq!(values(&url, &layout), counts(&responses));
    });
}

#[test]
fn who_wrote_meanwhile_is_not_written_over() {
    with(|server| [false, true].into_iter().for_each(|notices| overtake(server, notices)));
}

/// The first one notices that its connection has ended when it flushes, or before.
fn overtake(server: &'static Server, notices: bool) {
    let url = server.database();
    let mut first = Writer::open(&url).unwrap();
    let layout = first.table(&spec("a", &two())).unwrap();
    let responses = some(100);
    // The other one asks at other moments.
    let mut others = responses.clone();
    for other in &mut others {
        other.asked.0 += 500;
    }
    let feed = |writer: &mut Writer, responses: &[Response]| {
        for response in responses {
            writer.append(layout.table, response).unwrap();
        }
    };
    feed(&mut first, &responses[0..10]);
    first.flush().unwrap();
    feed(&mut first, &responses[10..20]);
    cut(server, &url);
    let mut second = Writer::open(&url).unwrap();
    second.table(&spec("a", &two())).unwrap();
    let mut damage = Vec::new();
    if !notices {
        damage = first.flush().unwrap().damage;
        let kept = first.append(layout.table, &responses[20]).unwrap_err();
        assert!(matches!(kept, Error::Held { .. }), "{kept}");
    }
    feed(&mut second, &others[10..15]);
    let mut wider = spec("a", &two());
    wider.series.push(SeriesSpec { name: "new".into(), ..wider.series[0].clone() });
    second.table(&wider).unwrap();
    let mut last = others[15].clone();
    last.answer.as_mut().unwrap().values.push(Some(Raw(7)));
    second.append(layout.table, &last).unwrap();
    second.flush().unwrap();
    drop(second);
    if notices {
        patiently(|| first.tell("a", &[], Moment(0)).is_ok());
    } else {
        patiently(|| first.table(&spec("a", &two())).is_ok());
    }
    damage.append(&mut first.flush().unwrap().damage);
    let said: Vec<String> = damage.iter().map(Error::to_string).collect();
    assert!(
        said.len() == 1 && said[0].contains("`interfaces` of `a`") && said[0].contains("10 resp"),
        "{said:?}"
    );
    assert!(matches!(first.append(layout.table, &responses[15]), Err(Error::Disorder(_))));
    feed(&mut first, &responses[20..100]);
    first.seal_all().unwrap();
    let expected = [&responses[..16], &responses[20..]].concat();
    assert_eq!(values(&url, &layout), counts(&expected));
}

/// Who lost one device to another goes on with its others.
#[test]
fn a_device_that_is_taken_stops_no_other() {
    with(|server| {
        let url = server.database();
        let mut first = Writer::open(&url).unwrap();
        let specs = ["a", "b"].map(|device| spec(device, &two()));
        let layouts = [&specs[0], &specs[1]].map(|spec| first.table(spec).unwrap());
        let responses = some(30);
        let feed = |writer: &mut Writer, layout: &Layout, from: usize, to: usize| {
            for response in &responses[from..to] {
                writer.append(layout.table, response).unwrap();
            }
        };
        layouts.iter().for_each(|layout| feed(&mut first, layout, 0, 5));
        first.flush().unwrap();
        layouts.iter().for_each(|layout| feed(&mut first, layout, 5, 10));
        cut(server, &url);
        let mut second = Writer::open(&format!("{url}&application_name=second")).unwrap();
        second.table(&specs[0]).unwrap();
        let done = first.flush().unwrap();
        assert_eq!(done.rows, 5, "of b");
        assert!(
            matches!(&done.damage[..], [Error::Overtaken { device, rows: 5, .. }] if device == "a"),
            "{done:?}"
        );
        let held = first.append(layouts[0].table, &responses[10]).unwrap_err().to_string();
        assert!(held.contains("writes `a`") && held.contains(": second, process "), "{held}");
        feed(&mut first, &layouts[1], 10, 20);
        feed(&mut second, &layouts[0], 10, 20);
        assert_eq!(first.flush().unwrap().rows, 10);
        second.flush().unwrap();
        drop(second);
        patiently(|| first.table(&specs[0]).is_ok());
        layouts.iter().for_each(|layout| feed(&mut first, layout, 20, 30));
        assert_eq!(first.seal_all().unwrap().rows, 20);
        assert_eq!(values(&url, &layouts[0]), counts(&[&responses[..5], &responses[10..]].concat()));
        assert_eq!(values(&url, &layouts[1]), counts(&responses));
    });
}

/// Whoever comes back first, when all connections have ended.
#[test]
fn a_stand_by_leaves_devices_to_who_had_them() {
    with(|server| {
        let url = server.database();
        let mut first = Writer::open(&format!("{url}&application_name=first")).unwrap();
        let layout = first.table(&spec("a", &two())).unwrap();
        let responses = some(10);
        for response in &responses {
            first.append(layout.table, response).unwrap();
        }
        let mut other = Writer::open(&url).unwrap();
        let mut refused = |device: &str| {
            let why = other.table(&spec(device, &two())).unwrap_err();
            assert!(matches!(why, Error::Held { .. }), "{why}");
            assert!(matches!(other.tell(device, &[], Moment(0)), Err(Error::Held { .. })));
            why.to_string()
        };
        assert!(refused("a").contains("first, process "));
        cut(server, &url);
        assert!(refused("a").ends_with("has a minute to come back"));
        let flushed = first.flush().unwrap();
        assert!(flushed.rows == 10 && flushed.damage.is_empty(), "{flushed:?}");
        assert!(refused("a").contains("first, process "));
        assert!(refused("b").ends_with("has a minute to come back"));
        // Who has just come had no connection that ended.
        Writer::open(&url).unwrap().table(&spec("b", &two())).unwrap();
        assert_eq!(values(&url, &layout), counts(&responses));
    });
}

/// Who writes for the last time has no time for a pause.
#[test]
fn a_pause_can_be_cut_short() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let layout = writer.table(&spec("a", &two())).unwrap();
        let (admin, name) = (server.client("postgres"), server::name(&url));
        writer.append(layout.table, &some(1)[0]).unwrap();
        admin.batch(&format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{name}'"
        ));
        let why = writer.flush().unwrap_err();
        assert!(matches!(why, Error::Lost { .. }), "{why}");
        admin.batch(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"));
        writer.press();
        assert_eq!(writer.flush().unwrap().rows, 1);
    });
}

/// When a relay is to cut a connection.
#[derive(Default)]
struct Cut {
    /// After so many more octets from the server; once.
    left: AtomicU64,
    times: AtomicU64,
    /// Whether the server is left in the belief that the connection goes on.
    dangling: bool,
    /// Whether nobody is told that the server has ended a connection, but by the server's last words.
    mute: bool,
    kept: Mutex<Vec<OwnedFd>>,
    /// Whether who connects hears nothing for longer than the first pause, and is then cut off.
    silent: AtomicBool,
    /// How many connected.
    came: AtomicU64,
}

/// The address of a database behind a relay.
fn behind(server: &Server, url: &str, cut: &Arc<Cut>) -> String {
    format!("postgres://{USER}@127.0.0.1:{}/{}", relay(server, cut), server::name(url))
}

/// Stands between a writer and the server.
fn relay(server: &Server, cut: &Arc<Cut>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (cut, socket) = (cut.clone(), server.socket());
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            cut.came.fetch_add(1, Ordering::SeqCst);
            if cut.silent.load(Ordering::SeqCst) {
                stream.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
                let _ = std::io::copy(&mut &stream, &mut std::io::sink());
                continue;
            }
            let (cut, to) = (cut.clone(), UnixStream::connect(&socket).unwrap());
            let (mut from_client, mut to_server) = (stream.try_clone().unwrap(), to.try_clone().unwrap());
            let notices = !cut.dangling;
            thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                if notices {
                    let _ = to_server.shutdown(Shutdown::Both);
                }
            });
            thread::spawn(move || pass(to, stream, &cut));
        }
    });
    port
}

fn pass(mut from: UnixStream, mut to: TcpStream, cut: &Cut) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let left = cut.left.load(Ordering::SeqCst);
        let length = length.min(left as usize);
        let ends = length as u64 == left;
        cut.left.store(if ends { u64::MAX } else { left - length as u64 }, Ordering::SeqCst);
        cut.times.fetch_add(ends.into(), Ordering::SeqCst);
        if ends || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    match cut.mute {
        true => cut.kept.lock().unwrap().push(to.into()),
        false => drop(to.shutdown(Shutdown::Both)),
    }
    match cut.dangling {
        true => cut.kept.lock().unwrap().push(from.into()),
        false => drop(from.shutdown(Shutdown::Both)),
    }
}

/// Wherever a connection breaks, also between a commit and its answer, and whether the server notices or not.
#[test]
fn nothing_is_lost_or_there_twice_wherever_a_connection_breaks() {
    with(|server| {
        for dangling in [false, true] {
            let url = server.database();
            let cut = Arc::new(Cut { left: AtomicU64::new(u64::MAX), dangling, ..Cut::default() });
            let mut writer = Writer::open(&behind(server, &url, &cut)).unwrap();
            let layout = writer.table(&spec("a", &two())).unwrap();
            let mut stream = Seed(1996).stream("cuts");
            let (responses, mut told) = (some(1_200), 0);
            for (at, response) in responses.iter().enumerate() {
                writer.append(layout.table, response).unwrap();
                if at % 60 != 59 {
                    continue;
                }
                // A flush is answered with a few dozen octets; making a chunk with more.
                let short = at % 120 == 59;
                cut.left.store(1 + stream.below(if short { 60 } else { 600 }), Ordering::SeqCst);
                let write = if short { Writer::flush } else { Writer::seal_all };
                patiently(|| write(&mut writer).map(|done| told += done.rows).is_ok());
            }
            cut.left.store(u64::MAX, Ordering::SeqCst);
            patiently(|| writer.seal_all().map(|done| told += done.rows).is_ok());
            assert_eq!(told, responses.len(), "each is told once; dangling {dangling}");
            assert_eq!(values(&url, &layout), counts(&responses), "dangling {dangling}");
            let tails = client(server, &url).number("SELECT count(*) FROM trunkline.tails");
            let times = cut.times.load(Ordering::SeqCst);
            assert!(tails == 0 && times > 5, "{tails} flushes, {times} cuts");
            let mut third = Writer::open(&url).unwrap();
            drop(writer);
            if !dangling {
                patiently(|| third.table(&spec("a", &two())).is_ok());
            }
        }
    });
}

/// However long a try takes, the pause is after it.
#[test]
fn a_silent_host_is_tried_once_a_flush() {
    with(|server| {
        let url = server.database();
        let relay = Arc::new(Cut { left: AtomicU64::new(u64::MAX), ..Cut::default() });
        let mut writer = Writer::open(&behind(server, &url, &relay)).unwrap();
        let layout = writer.table(&spec("a", &two())).unwrap();
        writer.append(layout.table, &some(1)[0]).unwrap();
        let mut tries = || {
            assert!(matches!(writer.flush(), Err(Error::Lost { .. })));
            relay.came.load(Ordering::SeqCst)
        };
        relay.silent.store(true, Ordering::SeqCst);
        cut(server, &url);
        assert_eq!(tries(), 2);
        assert_eq!(tries(), 2, "the pause goes on");
    });
}

/// Whatever the server has against a connection, it is made anew.
#[test]
fn a_session_that_the_server_ends_is_made_anew() {
    with(|server| {
        let url = server.database();
        let relay = Arc::new(Cut { left: AtomicU64::new(u64::MAX), mute: true, ..Cut::default() });
        let idle = "options=-c%20idle_session_timeout%3D1s&application_name=idle";
        let through = format!("{}?{idle}", behind(server, &url, &relay));
        let mut writer = Writer::open(&through).unwrap();
        let layout = writer.table(&spec("a", &two())).unwrap();
        writer.append(layout.table, &some(1)[0]).unwrap();
        let reader = Reader::open(&through).unwrap();
        let client = client(server, &url);
        let sessions = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'idle'";
        patiently(|| client.number(sessions) == 0);
        assert_eq!(reader.tables(TableId(0), 10).unwrap().len(), 1);
        assert_eq!(writer.flush().unwrap().rows, 1);
    });
}

/// What of it holds over TCP alone can be seen in the server's log.
#[test]
fn a_server_is_told_when_to_give_up() {
    with(|server| {
        let url = server.database();
        drop(Writer::open(&format!("{url}&options=-c%20log_statement%3Dall")).unwrap());
        patiently(|| {
            server.log().contains("'60000', false) FROM pg_settings WHERE name = 'tcp_user_timeout'")
        });
    });
}

/// Lets at most so many statements insert into a table, none of them more than so many octets of `what`.
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

/// However far away the server is.
#[test]
fn words_of_many_ports_are_one_statement() {
    with(|server| {
        let url = server.database();
        let writer = Writer::open(&url).unwrap();
        limit(server, &url, ("texts", "text"), 2, 1 << 20);
        let ports: Vec<String> = (0..3_000).map(|port| format!("port/{port}")).collect();
        let said = |object, text| Said { object, key: "state", text };
        let mut texts: Vec<Said<'_>> = ports.iter().map(|port| said(port, "up")).collect();
        texts.push(said(&ports[7], "down"));
        writer.tell("a", &texts, Moment(1)).unwrap();
        writer.tell("a", &texts[..10], Moment(2)).unwrap();
        let kept = Reader::open(&url).unwrap().texts("a").unwrap();
        assert_eq!(kept.len(), 3_000);
        let of = |port: &str| kept.iter().find(|text| text.object == port).unwrap();
        assert_eq!((of("port/7").text.as_str(), of("port/7").since), ("up", Moment(2)), "the later stands");
        assert_eq!((of("port/8").text.as_str(), of("port/8").since), ("up", Moment(1)));
    });
}

/// Over a slow line no statement has time for much.
#[test]
fn what_piled_up_is_written_in_parts() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let (wide, count) = (vec![Column::new(Kind::Gauge); 2_000], 300);
        let layout = writer.table(&spec("wide", &wide)).unwrap();
        let small = writer.table(&spec("small", &two())).unwrap();
        let mut stream = Seed(3).stream("gauges");
        let mut expected = Vec::new();
        for (at, response) in some(count).iter().enumerate() {
            writer.append(small.table, response).unwrap();
            let asked = Moment(at as i64 * S);
            let values: Vec<_> = wide.iter().map(|_| Some(Raw(stream.below(u64::MAX)))).collect();
            expected.push(values[0].unwrap().0);
            let answer = Answer { answered: asked, uptime: None, values };
            writer.append(layout.table, &Response { due: asked, asked, answer: Some(answer) }).unwrap();
        }
        // About six megabytes; some of it goes through.
        limit(server, &url, ("tails", "bytes"), 2, 3 << 19);
        let refused = writer.flush().unwrap_err().to_string();
        assert!(refused.contains("too much"), "{refused}");
        assert!((1..2 * count).contains(&writer.waiting()), "{}", writer.waiting());
        limit(server, &url, ("tails", "bytes"), 20, 3 << 19);
        assert_eq!(writer.flush().unwrap().rows, 2 * count);
        assert_eq!(writer.waiting(), 0);
        assert_eq!(values(&url, &layout), expected);
        assert_eq!(values(&url, &small), counts(&some(count)));
    });
}

#[test]
fn what_waits_for_a_server_is_bounded() {
    // The bound is the same for both kinds.
    let (_dir, path) = Store::File.folder();
    let mut writer = Writer::open(&path).unwrap();
    let wide = vec![Column::new(Kind::Gauge); 16_000];
    let tables: Vec<TableId> =
        (0..8).map(|at| writer.table(&spec(&format!("d{at}"), &wide)).unwrap().table).collect();
    let mut taken = 0;
    let refused = 'all: loop {
        for table in &tables {
            let asked = Moment(taken as i64 * S);
            let answer = Answer { answered: asked, uptime: None, values: vec![None; wide.len()] };
            match writer.append(*table, &Response { due: asked, asked, answer: Some(answer) }) {
                Ok(_) => taken += 1,
                Err(error) => break 'all error,
            }
        }
    };
    assert!(matches!(refused, Error::Unflushed { .. }), "{refused}");
    assert_eq!(taken, trunkline_counters::archive::writer::MOST_WAITING / wide.len());
}

#[test]
fn databases_of_others_are_refused_in_a_line() {
    with(|server| {
        let url = server.database();
        let both = |url: &str| -> [Error; 2] {
            [Reader::open(url).unwrap_err(), Writer::open(url).map(drop).unwrap_err()]
        };
        assert!(matches!(Reader::open(&url), Err(Error::Foreign { .. })), "empty");
        for sql in [
            "CREATE SCHEMA trunkline; CREATE TABLE trunkline.mine (x int)",
            "CREATE TABLE trunkline.archive (x int)",
            "DROP TABLE trunkline.archive; CREATE TABLE trunkline.archive (kind text, version int)",
            "INSERT INTO trunkline.archive VALUES ('something else', 1)",
        ] {
            client(server, &url).batch(sql);
            assert!(both(&url).iter().all(|error| matches!(error, Error::Foreign { .. })), "{sql}");
        }
        let url = server.database();
        // Somebody who may make schemas made it for us.
        client(server, &url).batch("CREATE SCHEMA trunkline");
        drop(Writer::open(&url).unwrap());
        client(server, &url).batch("UPDATE trunkline.archive SET version = 7");
        assert!(both(&url).iter().all(|error| matches!(error, Error::Newer { found: 7, .. })));
        client(server, &url).batch("UPDATE trunkline.archive SET version = 0");
        assert!(matches!(Reader::open(&url), Err(Error::Older { found: 0, .. })));
        let names: Vec<String> = ["forwards", "texts", "bodies", "chunks", "tails", "series", "tables"]
            .map(|name| format!("DROP TABLE trunkline.{name};"))
            .into();
        client(server, &url).batch(&names.concat());
        drop(Writer::open(&url).unwrap());
        assert!(Reader::open(&url).unwrap().tables(TableId(0), 1).unwrap().is_empty(), "brought up to date");
    });
}

#[test]
fn all_who_make_a_new_database_at_once_write_it() {
    with(|server| {
        for _ in 0..4 {
            let url = server.database();
            let begin = std::sync::Barrier::new(6);
            let one = |at: usize| {
                begin.wait();
                let mut writer = Writer::open(&url)?;
                writer.table(&spec(&format!("d{at}"), &two())).map(|_| writer)
            };
            let one = &one;
            thread::scope(|scope| {
                let all: Vec<_> = (0..6).map(|at| scope.spawn(move || one(at))).collect();
                // Those who write stay until the last has come.
                let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
                all.iter().for_each(|done| assert!(done.is_ok(), "{done:?}"));
            });
            assert_eq!(Reader::open(&url).unwrap().tables(TableId(0), 10).unwrap().len(), 6);
        }
    });
}

#[test]
fn names_are_measured_as_they_are_kept() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        // Kept in four octets each, and in six.
        for (name, fits) in
            [("\u{0}".repeat(499), true), ("\u{0}".repeat(999), false), ("␛".repeat(499), false)]
        {
            let made = writer.table(&TableSpec { name, ..spec("a", &two()) });
            let told = made.as_ref().err();
            assert_eq!(made.is_ok(), fits, "{told:?}");
            assert!(told.is_none_or(|told| matches!(told, Error::Spec { .. })), "{told:?}");
        }
    });
}

#[test]
fn who_may_not_is_told_so_without_a_password() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        writer.table(&spec("a", &two())).unwrap();
        let admin = client(server, &url);
        admin.batch("CREATE ROLE locked LOGIN PASSWORD 'right'");
        let name = server::name(&url);
        let socket = server.folder.display();
        let told = |url: &str| {
            let line = Reader::open(url).unwrap_err().to_string();
            assert!(!line.contains('\n') && !line.contains("wrong") && !line.contains("right"), "{line}");
            line
        };
        let locked = |password: &str| format!("postgres://locked:{password}@/{name}?host={socket}");
        assert!(told(&locked("wrong")).contains("password authentication failed"));
        assert!(told(&locked("right")).contains("permission denied"));
        assert!(told(&format!("postgres://u:wrong@/none?host={socket}")).contains("none"));
        assert!(told(&format!("postgres://u:wrong@/{name}?host={socket}/none")).contains("No such file"));
        assert!(
            told(&format!("postgres://u:wrong@/{name}?host={socket}&sslmode=require"))
                .contains("without TLS")
        );
        // What a reader needs, and no more.
        admin.batch(
            "GRANT USAGE ON SCHEMA trunkline TO locked; GRANT SELECT ON ALL TABLES IN SCHEMA trunkline TO locked",
        );
        let reader = Reader::open(&locked("right")).unwrap();
        assert_eq!(reader.tables(TableId(0), 10).unwrap().len(), 1);
        assert!(reader.put_sent("x", &[(TableId(1), Moment(1))].into()).is_err());
        let refused = Writer::open(&locked("right")).and_then(|mut w| w.table(&spec("b", &two())));
        assert!(refused.is_err_and(|error| error.to_string().contains("permission denied")));
        admin.batch("DROP OWNED BY locked; DROP ROLE locked");
    });
}

#[test]
fn how_far_things_were_sent_is_kept() {
    with(|server| {
        let url = server.database();
        let mut writer = Writer::open(&url).unwrap();
        let tables = ["a", "b"].map(|device| writer.table(&spec(device, &two())).unwrap().table);
        let reader = Reader::open(&url).unwrap();
        assert_eq!(reader.sent("x").unwrap(), Some([].into()));
        reader.put_sent("x", &tables.map(|table| (table, Moment(1))).into()).unwrap();
        reader.put_sent("x", &[(tables[0], Moment(2))].into()).unwrap();
        reader.put_sent("y", &[(tables[1], Moment(3))].into()).unwrap();
        let again = Reader::open(&url).unwrap();
        assert_eq!(again.sent("x").unwrap(), Some([(tables[0], Moment(2)), (tables[1], Moment(1))].into()));
        assert_eq!(again.sent("y").unwrap(), Some([(tables[1], Moment(3))].into()));
        let (_dir, file) = Store::File.folder();
        drop(Writer::open(&file).unwrap());
        assert_eq!(Reader::open(&file).unwrap().sent("x").unwrap(), None);
    });
}

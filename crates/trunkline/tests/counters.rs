//! What goes into and out of an archive of counters, from outside: import, list, export, runs, captures, remote write.

#[cfg(feature = "postgres")]
#[path = "counters/away.rs"]
mod away;
mod command;
#[cfg(feature = "postgres")]
#[path = "counters/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;

use command::Desk;

/// What a command that goes well says.
fn well(desk: &Desk, args: &[&str]) -> String {
    let ended = desk.say(args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}: {}", ended.out);
    ended.out
}

/// Rows of an exported file by the names of its columns.
fn exported(desk: &Desk, args: &[&str]) -> Vec<BTreeMap<String, String>> {
    let text = well(desk, &[&["monitor", "export", "c.sqlite", "--csv", "-"], args].concat());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// The sum of a column.
fn sum(rows: &[BTreeMap<String, String>], column: &str) -> u64 {
    rows.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum()
}

#[test]
fn what_is_imported_is_listed_and_exported() {
    let desk = Desk::new();
    let mut text = String::from("# from a poller\ntime,in,speed,load\n");
    for i in 0..700u64 {
        let load = if i == 3 { String::new() } else { format!("0.{i}") };
        text += &format!("{}.25,{},{},{load}\n", 1_700_000_000 + 15 * i, 1000 * i, -(i as i64));
    }
    desk.write("sw1.csv", &text);
    let columns = [
        "--column",
        "in=port/eth0/in/octets",
        "--column",
        "speed=gauge:port/eth0/speed",
        "--column",
        "load=real:x:y",
    ];
    let import = [&["monitor", "import", "c.sqlite", "sw1.csv", "--device", "sw1"], &columns[..]].concat();
    assert_eq!(well(&desk, &import), "700 rows of 3 series: c.sqlite\n");

    let list = well(&desk, &["monitor", "list", "c.sqlite"]);
    let line = list.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    let want = ["sw1", "sw1", "3", "15", "s", "2023-11-14T22:13:20.25Z", "2023-11-15T01:08:05.25Z"];
    assert_eq!(line, want, "{list}");
    assert!(list.contains("1 tables, 3 series, "), "{list}");
    let named = well(&desk, &["monitor", "list", "c.sqlite", "--series", "sw1:port/*"]);
    assert!(
        named.starts_with("sw1:port/eth0/in/octets  counter64  octets\nsw1:port/eth0/speed  gauge  speed\n")
    );

    let rows = exported(&desk, &["--series", "sw1:port/eth0/in/octets"]);
    assert_eq!((rows.len(), sum(&rows, "grew")), (700, 699_000));
    assert_eq!(rows[5]["asked_s"], "1700000075.250000000");
    assert_eq!(rows[5]["least_per_s"].parse::<f64>().unwrap(), 1000.0 / 15.0);
    let rows = exported(&desk, &["--series", "sw1:x:y", "--to", "2023-11-14T22:14:20Z"]);
    assert_eq!(rows.iter().map(|r| r["value"].as_str()).collect::<Vec<_>>(), ["0", "0.1", "0.2", ""]);
    let rows = exported(&desk, &["--series", "*octets", "--every", "15min"]);
    assert_eq!(sum(&rows, "sum"), 699_000);
    #[cfg(feature = "parquet")]
    {
        let said = well(&desk, &["monitor", "export", "c.sqlite", "--parquet", "all.parquet"]);
        assert_eq!(said, "2100 rows of 3 series: all.parquet\n");
        assert!(std::fs::read(desk.path("all.parquet")).unwrap().starts_with(b"PAR1"));
    }

    // And analysed: 1,000 octets every 15 s.
    let series = ["--column", "sw1:port/eth0/in/octets", "--json"];
    let found = well(&desk, &[&["analyse", "c.sqlite"], &series[..]].concat());
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!((found["unit"].as_str(), found["grain_s"].as_f64()), (Some("bytes"), Some(15.0)));
    assert_eq!(found["stretch"]["intervals"].as_f64(), Some(698.0), "those at both ends are not whole");
    assert_eq!(found["rate_per_s"]["mean"].as_f64().map(|mean| (mean * 15.0).round()), Some(1000.0));

    // What comes later goes on; what does not is refused.
    desk.write("more.csv", "time,in,speed,load\n1700010500.25,700000,0,\n1700010515.25,701000,0,\n");
    let table = ["--table", "sw1"];
    let more =
        [&["monitor", "import", "c.sqlite", "more.csv", "--device", "sw1"], &columns[..], &table].concat();
    well(&desk, &more);
    assert_eq!(sum(&exported(&desk, &["--series", "*octets"]), "grew"), 701_000);
    let again = desk.say(&more);
    assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
    assert!(again.err.contains("up to 2023-11-15T01:08:35.25Z already"), "{}", again.err);
}

#[test]
fn amounts_are_counted_up() {
    let desk = Desk::new();
    desk.write("a.csv", "time;cells\n1995-12-04T14:48:34Z;800\n1995-12-04T14:48:49Z;1600\n");
    desk.write("b.csv", "time;cells\n1995-12-04T14:49:04Z;\n1995-12-04T14:49:19Z;100\n");
    for file in ["a.csv", "b.csv"] {
        let flags = ["--device", "exchange", "--table", "t", "--kind", "amount"];
        well(&desk, &[&["monitor", "import", "c.sqlite", file], &flags[..]].concat());
    }
    let rows = exported(&desk, &[]);
    let grew: Vec<&str> = rows.iter().map(|r| r["grew"].as_str()).collect();
    assert_eq!((rows[0]["series"].as_str(), grew), ("other/t/cells", vec!["", "800", "1600", "", "100"]));
}

#[test]
fn a_file_that_was_cut_off_is_completed() {
    for kind in ["amount", "counter64"] {
        let desk = Desk::new();
        let file = |rows: std::ops::Range<u64>, odd: u64| {
            let row = |i: u64| match (kind, i % 7) {
                (_, 3) => format!("{},\n", 1_700_000_000 + 15 * i),
                ("amount", _) => format!("{},{}\n", 1_700_000_000 + 15 * i, i * i % 97 + u64::from(i == odd)),
                _ => format!("{},{}\n", 1_700_000_000 + 15 * i, 1_000 * i + u64::from(i == odd)),
            };
            rows.map(row).fold(String::from("time,in\n"), |text, row| text + &row)
        };
        let none = u64::MAX;
        desk.write("before.csv", file(0..40, none));
        desk.write("part.csv", file(40..140, none));
        desk.write("other.csv", file(40..3_000, 120));
        desk.write("whole.csv", file(40..3_000, none));
        let import = |archive: &str, file: &str| {
            let flags = ["--device", "sw1", "--table", "t", "--kind", kind];
            desk.say(&[&["monitor", "import", archive, file], &flags[..]].concat())
        };
        for (archive, files) in
            [("a.sqlite", &["before.csv"][..]), ("b.sqlite", &["before.csv", "part.csv"]), ("c.sqlite", &[])]
        {
            files.iter().for_each(|file| assert_eq!(import(archive, file).status, 0));
        }
        assert_eq!(import("a.sqlite", "whole.csv").status, 0);
        let other = import("b.sqlite", "other.csv");
        assert_eq!((other.status, other.err.lines().count()), (2, 1), "{}", other.err);
        let rest = import("b.sqlite", "whole.csv");
        assert!(rest.out.starts_with("2860 rows of 1 series: "), "{} {}", rest.out, rest.err);
        let [straight, completed] = ["a.sqlite", "b.sqlite"]
            .map(|archive| well(&desk, &["monitor", "export", archive, "--csv", "-"]));
        assert_eq!(straight, completed, "{kind}");
        let again = import("b.sqlite", "whole.csv");
        assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
        assert!(again.err.contains(" already, and the file begins before"), "{}", again.err);
        // Also where nothing was before.
        assert_eq!(import("c.sqlite", "part.csv").status, 0);
        assert!(import("c.sqlite", "whole.csv").out.starts_with("2860 rows "));
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_leaves_nothing_behind() {
    let desk = Desk::new();
    for (text, more, words) in [
        ("time,a\n1,1\n2,2\n2,3\n", &[][..], "line 4: its time is not after that of the row before"),
        ("time,a\n1,1\n2,-2\n", &[], "line 3: `-2` in column `a` is no whole number from 0 on"),
        ("time,a\n1,1\nlater,2\n", &[], "line 3: `later` is no time"),
        ("time,a\n1,1\n2,4294967296\n", &["--kind", "counter32"], "is no whole number below 2^32"),
        ("time,a\n1,1\n2\n", &[], "line 3 has 1 fields, the row of names 2"),
        ("time,a\n1,1\n", &[], "one row tells no period"),
        ("time,a\n", &[], "it has no row but that of names"),
        ("time\n1\n", &[], "no column beside that of times"),
        ("time,a\n1,1\n2,2\n", &["--column", "b"], "there is no column `b`"),
        ("time,a\n1,1\n2,2\n", &["--time", "b"], "there is no column `b`"),
    ] {
        desk.write("x.csv", text);
        let ended = desk.say(&[&["monitor", "import", "c.sqlite", "x.csv", "--device", "d"], more].concat());
        assert_eq!(
            (ended.status, ended.out.as_str(), ended.err.lines().count()),
            (2, "", 1),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
        assert!(!desk.path("c.sqlite").exists(), "{words}");
    }
    desk.write("foreign.sqlite", "not a database, but long enough to be looked at");
    desk.write("long.csv", "x".repeat(5 << 20));
    desk.write("a.csv", "time,a\n1,1\n2,2\n");
    well(&desk, &["monitor", "import", "c.sqlite", "a.csv", "--device", "d"]);
    for (args, words) in [
        (&["import", "c.sqlite", "a.csv"][..], "--device"),
        (&["import", "n.sqlite", "long.csv", "--device", "d"], "longer than 4 MiB"),
        (&["import", "n.sqlite", "none.csv", "--device", "d"], "No such file"),
        (&["list", "none.sqlite"], "there is no archive at none.sqlite"),
        (&["list", "foreign.sqlite"], "foreign.sqlite"),
        (&["list", "postgre://me:hidden@h/c"], "the archive postgre://…: "),
        (&["import", "postgre://me:hidden@h/c", "a.csv", "--device", "d"], "the archive postgre://…: "),
        (&["export", "c.sqlite", "--csv", "-", "--series", "other"], "nothing of these series"),
        (&["export", "c.sqlite", "--csv", "-", "--from", "3", "--to", "2"], "--from is after --to"),
        (&["export", "c.sqlite", "--csv", "-", "--every", "1ns"], "too many"),
        (&["capture", "none", "--archive", "n.sqlite"], "neither an interface nor a file"),
        (&["capture", "a.csv", "--archive", "n.sqlite", "--filter", "nonsense"], "nonsense"),
    ] {
        let ended = desk.say(&[&["monitor"], args].concat());
        assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(words) && !ended.err.contains("hidden"), "{words}: {}", ended.err);
    }
    assert!(!desk.path("n.sqlite").exists() && !desk.path("postgre:").exists());
}

const CALLS: &str = r#"experiment "calls" {
  network {
    host home, server;
    switch exchange;
    link home - exchange (rate = 16 Mb/s, delay = 4 ms);
    link exchange - server (rate = 1 Gb/s, delay = 6 ms);
  }
  connection call {
    xmt = home;  rcv = server;
    protocol = udp;
    test = cbr (messagesize = 1000, period = 20 ms);
    delay = 1 s;  messages = 200;
  }
}"#;

#[test]
fn a_run_stands_beside_the_counters() {
    let desk = Desk::new();
    let ended = desk.run(CALLS, &["--on", "sim", "--counters", "c.sqlite"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let list = well(&desk, &["monitor", "list", "c.sqlite", "--series", "*", "--json"]);
    let devices: std::collections::BTreeSet<String> = list
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["device"].as_str().unwrap().to_owned()
        })
        .map(|device| device.splitn(4, ' ').nth(3).unwrap_or("").to_owned())
        .collect();
    assert_eq!(devices.into_iter().collect::<Vec<_>>(), ["", "exchange", "home", "server"]);
    for (series, grew) in [
        ("calls sim *:connection/call/out/octets", 200_000),
        ("calls sim *:connection/call/in/octets", 200_000),
        // The packets, with 28 octets of UDP and IP; what the link adds is not counted.
        ("calls sim * home:port/home-exchange/out/octets", 205_600),
        ("calls sim * exchange:port/exchange-server/out/frames", 200),
        ("calls sim * server:port/exchange-server/out/frames", 0),
    ] {
        assert_eq!(sum(&exported(&desk, &["--series", series]), "grew"), grew, "{series}");
    }
    // On one axis: a switch sends when the connection does, a second after the run began.
    let first = |series: &str| -> f64 {
        let rows = exported(&desk, &["--series", series]);
        let first = rows.iter().position(|row| row["grew"].parse().unwrap_or(0) > 0).expect("traffic");
        rows[first]["asked_s"].parse().unwrap()
    };
    let begin = first("*:connection/call/out/octets");
    let behind = first("* exchange:port/exchange-server/out/octets") - begin;
    assert!((-0.05..0.15).contains(&behind), "{behind}");
    let again = desk.say(&["monitor", "import", "c.sqlite", "out"]);
    assert_eq!((again.status, again.err.lines().count()), (2, 1));
    assert!(again.err.contains("has the run `calls sim "), "{}", again.err);
    well(&desk, &["monitor", "import", "other.sqlite", "out/sim/record.json"]);
    // Live it is this machine's interface, which others may use as well.
    let ended = desk.run(CALLS, &["--on", "live", "--counters", "live.sqlite"]);
    assert_eq!((ended.status, ended.out.contains("call")), (0, true), "{}", ended.err);
    let list = well(&desk, &["monitor", "list", "live.sqlite", "--series", "calls live *"]);
    for series in ["connection/call/out/octets", "port/lo/in/octets", "port/lo/out/discards"] {
        assert!(list.contains(series), "{list}");
    }
}

#[test]
fn packets_are_accounted_by_flow() {
    let desk = Desk::new();
    let ended = desk.run(CALLS, &["--on", "sim", "--trace", "home"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let said = well(&desk, &["monitor", "capture", "out", "--archive", "c.sqlite", "--every", "500ms"]);
    assert!(said.starts_with("200 packets, "), "{said}");
    let octets: u64 = said.split(' ').nth(2).unwrap().parse().unwrap();
    let rows = exported(&desk, &["--series", "*:flow/*/octets"]);
    assert_eq!(sum(&rows, "grew"), octets);
    let packets = exported(&desk, &["--series", "*:flow/*/out/packets"]);
    assert_eq!(sum(&packets, "grew"), 200, "from the first period on");
    assert!(
        packets
            .iter()
            .all(|row| row["series"].contains(" > ") && row["series"].ends_with(" udp/out/packets"))
    );
    assert!(packets.iter().all(|row| row["events"].is_empty()));
    // Twice the same packets are not later ones.
    let again = desk.say(&["monitor", "capture", "out", "--archive", "c.sqlite", "--every", "500ms"]);
    assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
}

#[cfg(feature = "forward")]
mod remote {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct WriteRequest {
        #[prost(message, repeated, tag = "1")]
        timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct TimeSeries {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Label>,
        #[prost(message, repeated, tag = "2")]
        samples: Vec<Sample>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Label {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Sample {
        #[prost(double, tag = "1")]
        value: f64,
        #[prost(int64, tag = "2")]
        timestamp: i64,
    }

    /// A server that answers each message in turn with a status, and hands on what it held.
    fn server(statuses: &'static [u16]) -> (String, mpsc::Receiver<WriteRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut statuses = statuses.iter();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                loop {
                    let (mut length, mut head) = (0, String::new());
                    while stream.read_line(&mut head).unwrap_or(0) > 2 {
                        let line = head.to_lowercase();
                        if let Some(value) = line.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        assert!(!line.starts_with("content-encoding:") || line.contains("snappy"));
                        head.clear();
                    }
                    if length == 0 {
                        break;
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).unwrap();
                    let bytes = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
                    let _ = tell.send(WriteRequest::decode(bytes.as_slice()).unwrap());
                    let status = statuses.next().unwrap_or(&204);
                    let answer = format!("HTTP/1.1 {status} so\r\ncontent-length: 4\r\n\r\nso?\n");
                    let answer = if *status == 204 { "HTTP/1.1 204 so\r\n\r\n".into() } else { answer };
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        (url, told)
    }

    fn import(desk: &Desk, archive: &str, rows: std::ops::Range<i64>) {
        let mut text = String::from("time,port/eth0/in/octets,level\n");
        rows.for_each(|i| text += &format!("{},{},{}\n", 1_700_000_000 + i, 10 * i, i));
        desk.write("x.csv", text);
        let columns =
            ["--column", "port/eth0/in/octets=port/eth0/in/octets", "--column", "level=gauge:host/level"];
        well(desk, &[&["monitor", "import", archive, "x.csv", "--device", "d"], &columns[..]].concat());
    }

    /// How many samples, and time and value of the first and the last.
    type Told = (usize, (i64, f64), (i64, f64));

    /// Samples by metric.
    fn samples(told: &mpsc::Receiver<WriteRequest>) -> BTreeMap<String, Told> {
        let mut found = BTreeMap::new();
        for series in told.try_iter().flat_map(|request| request.timeseries) {
            let labels: Vec<&str> = series.labels.iter().map(|l| l.name.as_str()).collect();
            assert!(labels.is_sorted() && labels[0] == "__name__", "{labels:?}");
            for s in series.samples {
                let one = (s.timestamp, s.value);
                let entry = found.entry(series.labels[0].value.clone()).or_insert((0, one, one));
                assert!(entry.0 == 0 || s.timestamp > entry.2.0, "in order");
                (entry.0, entry.2) = (entry.0 + 1, one);
            }
        }
        found
    }

    #[test]
    fn everything_is_sent_once_and_it_goes_on_where_it_stopped() {
        sent_once("c.sqlite");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn so_it_does_with_a_database() {
        if let Some(url) = postgres::database() {
            sent_once(&url);
        }
    }

    /// The server stops while a message is on its way.
    #[cfg(feature = "postgres")]
    #[test]
    fn it_outlives_its_database() {
        use std::time::Duration;

        use super::command::{Running, signal, within};
        use super::postgres::server::{Server, server as is_there};
        use nix::sys::signal::Signal;
        use trunkline_counters::archive::Reader;

        const SOON: Duration = Duration::from_secs(100);
        if is_there().is_none() {
            return;
        }
        let database = Server::start("off").unwrap();
        let archive = database.database();
        let desk = Desk::new();
        import(&desk, &archive, 0..3);
        let (url, told) = server(&[503, 503]);
        let [out, err] = ["out", "err"].map(|name| std::fs::File::create_new(desk.path(name)).unwrap());
        let args = ["monitor", "forward", &archive, "--to", &url, "--from", "0", "--every", "1s"];
        let mut command = desk.trunkline(&args);
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let running = Running::with(command, out, err);
        told.recv_timeout(SOON).unwrap();
        database.stop();
        within(SOON, "that the database is missed", || {
            std::fs::read_to_string(desk.path("err")).unwrap().contains("is out of reach")
        });
        database.restart();
        within(SOON, "that it is known to be sent", || {
            let sent = Reader::open(&archive).and_then(|reader| reader.sent(&url));
            sent.is_ok_and(|sent| sent.is_some_and(|tables| tables.len() == 1))
        });
        signal(running.id(), Signal::SIGTERM);
        let ended = running.end();
        assert_eq!(ended.status, 0, "{}", ended.err);
        assert!(ended.out.ends_with(" samples sent, 0 refused\n"), "{}", ended.out);
    }

    fn sent_once(archive: &str) {
        let desk = Desk::new();
        import(&desk, archive, 0..4_000);
        let (url, told) = server(&[204, 503]);
        let forward = ["monitor", "forward", archive, "--to", &url, "--once", "--from", "0"];
        let ended = desk.say(&forward);
        assert_eq!((ended.status, ended.err.lines().count()), (1, 1), "{}", ended.err);
        assert!(ended.err.contains("503 Service Unavailable so?"), "{}", ended.err);
        assert_eq!(told.try_iter().count(), 2);
        // The first message was taken: 2,500 responses of two series.
        assert_eq!(well(&desk, &forward), "3000 samples sent, 0 refused\n");
        let found = samples(&told);
        let octets = &found["trunkline_octets_total"];
        assert_eq!(octets, &(1_500, (1_700_002_500_000, 25_000.0), (1_700_003_999_000, 39_990.0)));
        assert_eq!(found["trunkline_level"].0, 1_500);
        assert_eq!(well(&desk, &forward), "0 samples sent, 0 refused\n");
        import(&desk, archive, 4_000..4_003);
        assert_eq!(well(&desk, &forward), "6 samples sent, 0 refused\n");
        assert_eq!(samples(&told)["trunkline_octets_total"].0, 3);
    }

    #[test]
    fn what_is_refused_is_left_out_and_said() {
        let desk = Desk::new();
        import(&desk, "c.sqlite", 0..3);
        let (url, _told) = server(&[400]);
        let forward = ["monitor", "forward", "c.sqlite", "--to", &url, "--once", "--from", "0"];
        let ended = desk.say(&forward);
        assert_eq!((ended.status, ended.out.as_str()), (0, "0 samples sent, 6 refused\n"));
        assert!(ended.err.contains("6 samples were refused: 400 Bad Request so?"), "{}", ended.err);
        assert_eq!(well(&desk, &forward), "0 samples sent, 0 refused\n");
        // What was never sent begins an hour ago, unless it is said.
        let other = ["monitor", "forward", "c.sqlite", "--to", &url, "--once", "--state", "other"];
        assert_eq!(well(&desk, &other), "0 samples sent, 0 refused\n");
        for (args, words) in [
            (["--to", "ftp://x"], "does not begin with http://"),
            (["--to", "https://x"], "a proxy on loopback may speak TLS"),
            (["--to", "http://127.0.0.1:1/x"], "cannot send to http://127.0.0.1:1/x"),
        ] {
            let forward = ["monitor", "forward", "c.sqlite", "--once", "--from", "0"];
            let ended = desk.say(&[&forward, &args[..]].concat());
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            assert!(ended.status > 0 && ended.err.contains(words), "{}", ended.err);
        }
        desk.write("state", "{");
        let ended = desk.say(&[&forward[..], &["--state", "state"]].concat());
        assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{}", ended.err);
    }
}

//! The commands on an archive of counters: import, list, export, runs, captures, remote write.

#[cfg(feature = "postgres")]
mod away;
#[cfg(feature = "postgres")]
mod postgres;

use std::collections::BTreeMap;

use crate::command::TestDir;

/// Returns the output of a command that must succeed without warnings.
fn well(dir: &TestDir, args: &[&str]) -> String {
    let ended = dir.execute(args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}: {}", ended.out);
    ended.out
}

/// Returns exported rows by column name.
fn exported(dir: &TestDir, args: &[&str]) -> Vec<BTreeMap<String, String>> {
    let text = well(dir, &[&["monitor", "export", "--archive", "c.sqlite"], args].concat());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// Returns the sum of a column.
fn sum(rows: &[BTreeMap<String, String>], column: &str) -> u64 {
    rows.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum()
}

#[test]
fn imported_rows_are_listed_and_exported() {
    let dir = TestDir::new();
    let mut text = String::from("# from a poller\ntime,in,speed,load\n");
    for i in 0..700u64 {
        let load = if i == 3 { String::new() } else { format!("0.{i}") };
        text += &format!("{}.25,{},{},{load}\n", 1_700_000_000 + 15 * i, 1000 * i, -(i as i64));
    }
    dir.write("sw1.csv", &text);
    let columns = [
        "--column",
        "in=port/eth0/in/octets",
        "--column",
        "speed=gauge:port/eth0/speed",
        "--column",
        "load=real:x:y",
    ];
    let import =
        [&["monitor", "import", "--archive", "c.sqlite", "sw1.csv", "--device", "sw1"], &columns[..]]
            .concat();
    assert_eq!(well(&dir, &import), "700 rows of 3 series: c.sqlite\n");

    let list = well(&dir, &["monitor", "list", "--archive", "c.sqlite"]);
    let line = list.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    let want = ["sw1", "sw1", "3", "15", "s", "2023-11-14T22:13:20.25Z", "2023-11-15T01:08:05.25Z"];
    assert_eq!(line, want, "{list}");
    assert!(list.contains("1 tables, 3 series, "), "{list}");
    let named = well(&dir, &["monitor", "list", "--archive", "c.sqlite", "--series", "sw1:port/*"]);
    assert!(
        named.starts_with("sw1:port/eth0/in/octets  counter64  octets\nsw1:port/eth0/speed  gauge  speed\n")
    );

    let rows = exported(&dir, &["--series", "sw1:port/eth0/in/octets"]);
    assert_eq!((rows.len(), sum(&rows, "grew")), (700, 699_000));
    assert_eq!(rows[5]["asked_s"], "1700000075.250000000");
    assert_eq!(rows[5]["least_per_s"].parse::<f64>().unwrap(), 1000.0 / 15.0);
    let rows = exported(&dir, &["--series", "sw1:x:y", "--to", "2023-11-14T22:14:20Z"]);
    assert_eq!(rows.iter().map(|r| r["value"].as_str()).collect::<Vec<_>>(), ["0", "0.1", "0.2", ""]);
    let rows = exported(&dir, &["--series", "*octets", "--interval", "15min"]);
    assert_eq!(sum(&rows, "sum"), 699_000);
    #[cfg(feature = "parquet")]
    {
        let flags = ["--archive", "c.sqlite", "--format", "parquet", "--output", "all.parquet"];
        let printed = well(&dir, &[&["monitor", "export"], &flags[..]].concat());
        assert_eq!(printed, "2100 rows of 3 series: all.parquet\n");
        assert!(std::fs::read(dir.path("all.parquet")).unwrap().starts_with(b"PAR1"));
    }

    // The analysis of 1,000 octets every 15 s.
    let series = ["--column", "sw1:port/eth0/in/octets", "--json"];
    let found = well(&dir, &[&["analyse", "c.sqlite"], &series[..]].concat());
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!((found["unit"].as_str(), found["grain_s"].as_f64()), (Some("bytes"), Some(15.0)));
    assert_eq!(found["stretch"]["intervals"].as_f64(), Some(698.0), "those at both ends are not whole");
    assert_eq!(found["rate_per_s"]["mean"].as_f64().map(|mean| (mean * 15.0).round()), Some(1000.0));

    // Later rows are appended; earlier rows are rejected.
    dir.write("more.csv", "time,in,speed,load\n1700010500.25,700000,0,\n1700010515.25,701000,0,\n");
    let table = ["--table", "sw1"];
    let more = [
        &["monitor", "import", "more.csv", "--archive", "c.sqlite", "--device", "sw1"],
        &columns[..],
        &table,
    ]
    .concat();
    well(&dir, &more);
    assert_eq!(sum(&exported(&dir, &["--series", "*octets"]), "grew"), 701_000);
    let again = dir.execute(&more);
    assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
    assert!(again.err.contains("already has `sw1` `sw1` up to 2023-11-15T01:08:35.25Z"), "{}", again.err);
}

/// The archive is `--archive`, the environment variable, the default, or, in the older form, a positional argument.
#[test]
fn every_command_takes_the_archive_in_the_same_forms() {
    let dir = TestDir::new();
    dir.write("x.csv", "time,a\n1,1\n2,2\n");
    let import = ["--device", "d", "--table", "t"];
    let forms: [(&[&str], &[&str], &str); 4] = [
        (&["--archive", "flag.sqlite"], &[], "flag.sqlite"),
        (&[], &["positional.sqlite"], "positional.sqlite"),
        (&[], &[], "variable.sqlite"),
        (&[], &[], ".local/share/trunkline/counters.sqlite"),
    ];
    for (flag, positional, file) in forms {
        let execute = |command: &str, more: &[&str]| {
            let mut command = dir.trunkline(&[&["monitor", command], positional, more, flag].concat());
            if file == "variable.sqlite" {
                command.env("TRUNKLINE_COUNTERS", file);
            }
            let ended = dir.end(command);
            assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{file}: {}", ended.out);
            ended.out
        };
        assert!(execute("import", &[&["x.csv"], &import[..]].concat()).starts_with("2 rows of 1 series: "));
        assert!(dir.path(file).exists(), "{file}");
        assert!(execute("list", &[]).contains("1 tables, 1 series, "));
        assert_eq!(execute("export", &[]).lines().count(), 3);
        assert_eq!(
            execute("export", &["--csv", "-"]),
            execute("export", &["--format", "csv", "--output", "-"])
        );
    }
    // The positional form takes precedence over the environment variable.
    let mut command = dir.trunkline(&["monitor", "list", "flag.sqlite"]);
    command.env("TRUNKLINE_COUNTERS", "none.sqlite");
    assert_eq!(dir.end(command).status, 0);
    let ended = dir.execute(&["monitor", "export", "flag.sqlite", "--format", "parquet"]);
    ended.assert_line(2, "--output FILE");
}

/// Flags that were renamed still work under their old names.
#[test]
fn older_names_of_flags_are_accepted() {
    let dir = TestDir::new();
    for args in [
        &["monitor", "export", "--every", "1s"][..],
        &["monitor", "import", "x.csv", "--period", "1s"],
        &["monitor", "capture", "lo", "--every", "1s", "--filter", "tcp"],
        &["analyse", "x.csv", "--every", "1s", "--message", "100"],
        &["top", "lo", "--patience", "1s"],
        &["llc", "load", "--time", "1s"],
        &["llc", "copy", "x", "1", "--patience", "1s"],
        &["converter", "host", "--time", "1s"],
        &["study", "host", "--seconds", "1"],
    ] {
        // clap rejects unknown flags before it prints the help.
        let ended = dir.execute(&[args, &["--help"]].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn amounts_are_accumulated() {
    let dir = TestDir::new();
    dir.write("a.csv", "time;cells\n1995-12-04T14:48:34Z;800\n1995-12-04T14:48:49Z;1600\n");
    dir.write("b.csv", "time;cells\n1995-12-04T14:49:04Z;\n1995-12-04T14:49:19Z;100\n");
    for file in ["a.csv", "b.csv"] {
        let flags = ["--device", "exchange", "--table", "t", "--kind", "amount"];
        well(&dir, &[&["monitor", "import", "c.sqlite", file], &flags[..]].concat());
    }
    let rows = exported(&dir, &[]);
    let grew: Vec<&str> = rows.iter().map(|r| r["grew"].as_str()).collect();
    assert_eq!((rows[0]["series"].as_str(), grew), ("other/t/cells", vec!["", "800", "1600", "", "100"]));
}

#[test]
fn a_truncated_file_is_completed() {
    for kind in ["amount", "counter64"] {
        let dir = TestDir::new();
        let file = |rows: std::ops::Range<u64>, odd: u64| {
            let row = |i: u64| match (kind, i % 7) {
                (_, 3) => format!("{},\n", 1_700_000_000 + 15 * i),
                ("amount", _) => format!("{},{}\n", 1_700_000_000 + 15 * i, i * i % 97 + u64::from(i == odd)),
                _ => format!("{},{}\n", 1_700_000_000 + 15 * i, 1_000 * i + u64::from(i == odd)),
            };
            rows.map(row).fold(String::from("time,in\n"), |text, row| text + &row)
        };
        let none = u64::MAX;
        dir.write("before.csv", file(0..40, none));
        dir.write("part.csv", file(40..140, none));
        dir.write("other.csv", file(40..3_000, 120));
        dir.write("whole.csv", file(40..3_000, none));
        let import = |archive: &str, file: &str| {
            let flags = ["--device", "sw1", "--table", "t", "--kind", kind];
            dir.execute(&[&["monitor", "import", archive, file], &flags[..]].concat())
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
        let [straight, completed] =
            ["a.sqlite", "b.sqlite"].map(|archive| well(&dir, &["monitor", "export", archive, "--csv", "-"]));
        assert_eq!(straight, completed, "{kind}");
        let again = import("b.sqlite", "whole.csv");
        assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
        assert!(again.err.contains("and the file begins before"), "{}", again.err);
        // Also without earlier rows.
        assert_eq!(import("c.sqlite", "part.csv").status, 0);
        assert!(import("c.sqlite", "whole.csv").out.starts_with("2860 rows "));
    }
}

#[test]
fn errors_are_one_line_and_leave_no_archive() {
    let dir = TestDir::new();
    for (text, more, words) in [
        ("time,a\n1,1\n2,2\n2,3\n", &[][..], "line 4: its time is not after the time of the previous row"),
        ("time,a\n1,1\n2,-2\n", &[], "line 3: `-2` in column `a` is not an integer from 0 on"),
        ("time,a\n1,1\nlater,2\n", &[], "line 3: `later` is not a time"),
        ("time,a\n1,1\n2,4294967296\n", &["--kind", "counter32"], "is not an integer from 0 to 2^32 - 1"),
        ("time,a\n1,1\n2\n", &[], "line 3 has 1 fields, the header has 2"),
        ("time,a\n1,1\n", &[], "one row has no interval"),
        ("time,a\n", &[], "it has no rows after the header"),
        ("time\n1\n", &[], "no column besides the times"),
        ("time,a\n1,1\n2,2\n", &["--column", "b"], "there is no column `b`"),
        ("time,a\n1,1\n2,2\n", &["--time", "b"], "there is no column `b`"),
    ] {
        dir.write("x.csv", text);
        let ended =
            dir.execute(&[&["monitor", "import", "c.sqlite", "x.csv", "--device", "d"], more].concat());
        assert_eq!(
            (ended.status, ended.out.as_str(), ended.err.lines().count()),
            (2, "", 1),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
        assert!(!dir.path("c.sqlite").exists(), "{words}");
    }
    dir.write("foreign.sqlite", "not a database, but long enough to be looked at");
    dir.write("long.csv", "x".repeat(5 << 20));
    dir.write("a.csv", "time,a\n1,1\n2,2\n");
    well(&dir, &["monitor", "import", "c.sqlite", "a.csv", "--device", "d"]);
    for (args, words) in [
        (&["import", "c.sqlite", "a.csv"][..], "--device"),
        (&["import", "n.sqlite", "long.csv", "--device", "d"], "longer than 4 MiB"),
        (&["import", "n.sqlite", "none.csv", "--device", "d"], "No such file"),
        (&["list", "none.sqlite"], "there is no archive at none.sqlite"),
        (&["list", "foreign.sqlite"], "foreign.sqlite"),
        (&["list", "postgre://me:hidden@h/c"], "the archive postgre://…: "),
        (&["import", "postgre://me:hidden@h/c", "a.csv", "--device", "d"], "the archive postgre://…: "),
        (&["export", "c.sqlite", "--csv", "-", "--series", "other"], "no readings of these series"),
        (&["export", "c.sqlite", "--csv", "-", "--from", "3", "--to", "2"], "--from is after --to"),
        (&["export", "c.sqlite", "--csv", "-", "--interval", "1ns"], "too many"),
        (&["capture", "none", "--archive", "n.sqlite"], "neither an interface nor a file"),
        (&["capture", "a.csv", "--archive", "n.sqlite", "--filter", "nonsense"], "nonsense"),
    ] {
        let ended = dir.execute(&[&["monitor"], args].concat());
        assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(words) && !ended.err.contains("hidden"), "{words}: {}", ended.err);
    }
    assert!(!dir.path("n.sqlite").exists() && !dir.path("postgre:").exists());
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
fn a_run_is_stored_with_the_counters() {
    let dir = TestDir::new();
    let ended = dir.run(CALLS, &["--on", "sim", "--counters", "c.sqlite"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let list = well(&dir, &["monitor", "list", "c.sqlite", "--series", "*", "--json"]);
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
        assert_eq!(sum(&exported(&dir, &["--series", series]), "grew"), grew, "{series}");
    }
    // The times agree: a switch sends when the connection does, one second after the start of the run.
    let first = |series: &str| -> f64 {
        let rows = exported(&dir, &["--series", series]);
        let first = rows.iter().position(|row| row["grew"].parse().unwrap_or(0) > 0).expect("traffic");
        rows[first]["asked_s"].parse().unwrap()
    };
    let begin = first("*:connection/call/out/octets");
    let behind = first("* exchange:port/exchange-server/out/octets") - begin;
    assert!((-0.05..0.15).contains(&behind), "{behind}");
    let again = dir.execute(&["monitor", "import", "c.sqlite", "out"]);
    assert_eq!((again.status, again.err.lines().count()), (2, 1));
    assert!(again.err.contains("has the run `calls sim "), "{}", again.err);
    well(&dir, &["monitor", "import", "other.sqlite", "out/sim/record.json"]);
    // A live run stores the interface of this machine, which other programs also use.
    let ended = dir.run(CALLS, &["--on", "live", "--counters", "live.sqlite"]);
    assert_eq!((ended.status, ended.out.contains("call")), (0, true), "{}", ended.err);
    let list = well(&dir, &["monitor", "list", "live.sqlite", "--series", "calls live *"]);
    for series in ["connection/call/out/octets", "port/lo/in/octets", "port/lo/out/discards"] {
        assert!(list.contains(series), "{list}");
    }
}

#[test]
fn packets_are_counted_by_flow() {
    let dir = TestDir::new();
    let ended = dir.run(CALLS, &["--on", "sim", "--trace", "home"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let printed = well(&dir, &["monitor", "capture", "out", "--archive", "c.sqlite", "--interval", "500ms"]);
    assert!(printed.starts_with("200 packets, "), "{printed}");
    let octets: u64 = printed.split(' ').nth(2).unwrap().parse().unwrap();
    let rows = exported(&dir, &["--series", "*:flow/*/octets"]);
    assert_eq!(sum(&rows, "grew"), octets);
    let packets = exported(&dir, &["--series", "*:flow/*/out/packets"]);
    assert_eq!(sum(&packets, "grew"), 200, "from the first period on");
    assert!(
        packets
            .iter()
            .all(|row| row["series"].contains(" > ") && row["series"].ends_with(" udp/out/packets"))
    );
    assert!(packets.iter().all(|row| row["events"].is_empty()));
    // The same packets again are not later than the stored ones.
    let again = dir.execute(&["monitor", "capture", "out", "--archive", "c.sqlite", "--interval", "500ms"]);
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
        let (sender, receiver) = mpsc::channel();
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
                    let _ = sender.send(WriteRequest::decode(bytes.as_slice()).unwrap());
                    let status = statuses.next().unwrap_or(&204);
                    let answer = format!("HTTP/1.1 {status} so\r\ncontent-length: 4\r\n\r\nso?\n");
                    let answer = if *status == 204 { "HTTP/1.1 204 so\r\n\r\n".into() } else { answer };
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        (url, receiver)
    }

    fn import(dir: &TestDir, archive: &str, rows: std::ops::Range<i64>) {
        let mut text = String::from("time,port/eth0/in/octets,level\n");
        rows.for_each(|i| text += &format!("{},{},{}\n", 1_700_000_000 + i, 10 * i, i));
        dir.write("x.csv", text);
        let columns =
            ["--column", "port/eth0/in/octets=port/eth0/in/octets", "--column", "level=gauge:host/level"];
        well(dir, &[&["monitor", "import", archive, "x.csv", "--device", "d"], &columns[..]].concat());
    }

    /// The number of samples, and time and value of the first and the last.
    type Summary = (usize, (i64, f64), (i64, f64));

    /// Samples by metric.
    fn samples(told: &mpsc::Receiver<WriteRequest>) -> BTreeMap<String, Summary> {
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
    fn every_sample_is_sent_once_across_restarts() {
        sent_once("c.sqlite");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn every_sample_of_a_database_is_sent_once() {
        if let Some(url) = postgres::database() {
            sent_once(&url);
        }
    }

    /// The server stops while a message is on its way.
    #[cfg(feature = "postgres")]
    #[test]
    fn forwarding_survives_a_restart_of_the_database() {
        use std::time::Duration;

        use super::postgres::server::{Server, server as is_there};
        use crate::command::{Running, signal, within};
        use nix::sys::signal::Signal;
        use trunkline_counters::archive::Reader;

        const SOON: Duration = Duration::from_secs(100);
        if is_there().is_none() {
            return;
        }
        let database = Server::start("off").unwrap();
        let archive = database.database();
        let dir = TestDir::new();
        import(&dir, &archive, 0..3);
        let (url, told) = server(&[503, 503]);
        let [out, err] = ["out", "err"].map(|name| std::fs::File::create_new(dir.path(name)).unwrap());
        let args = ["monitor", "forward", &archive, "--to", &url, "--from", "0", "--interval", "1s"];
        let mut command = dir.trunkline(&args);
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let running = Running::with(command, out, err);
        told.recv_timeout(SOON).unwrap();
        database.stop();
        within(SOON, "that the database is missed", || {
            std::fs::read_to_string(dir.path("err")).unwrap().contains("is out of reach")
        });
        database.restart();
        within(SOON, "that it is known to be sent", || {
            let sent = Reader::open(&archive).and_then(|reader| reader.forwarded(&url));
            sent.is_ok_and(|sent| sent.is_some_and(|tables| tables.len() == 1))
        });
        signal(running.id(), Signal::SIGTERM);
        let ended = running.end();
        assert_eq!(ended.status, 0, "{}", ended.err);
        assert!(ended.out.ends_with(" samples sent, 0 refused\n"), "{}", ended.out);
    }

    fn sent_once(archive: &str) {
        let dir = TestDir::new();
        import(&dir, archive, 0..4_000);
        let (url, told) = server(&[204, 503]);
        let forward = ["monitor", "forward", archive, "--to", &url, "--once", "--from", "0"];
        let ended = dir.execute(&forward);
        assert_eq!((ended.status, ended.err.lines().count()), (1, 1), "{}", ended.err);
        assert!(ended.err.contains("503 Service Unavailable so?"), "{}", ended.err);
        assert_eq!(told.try_iter().count(), 2);
        // The first message was taken: 2,500 responses of two series.
        assert_eq!(well(&dir, &forward), "3000 samples sent, 0 refused\n");
        let found = samples(&told);
        let octets = &found["trunkline_octets_total"];
        assert_eq!(octets, &(1_500, (1_700_002_500_000, 25_000.0), (1_700_003_999_000, 39_990.0)));
        assert_eq!(found["trunkline_level"].0, 1_500);
        assert_eq!(well(&dir, &forward), "0 samples sent, 0 refused\n");
        import(&dir, archive, 4_000..4_003);
        assert_eq!(well(&dir, &forward), "6 samples sent, 0 refused\n");
        assert_eq!(samples(&told)["trunkline_octets_total"].0, 3);
    }

    #[test]
    fn rejected_samples_are_skipped_and_reported() {
        let dir = TestDir::new();
        import(&dir, "c.sqlite", 0..3);
        let (url, _told) = server(&[400]);
        let forward = ["monitor", "forward", "c.sqlite", "--to", &url, "--once", "--from", "0"];
        let ended = dir.execute(&forward);
        assert_eq!((ended.status, ended.out.as_str()), (0, "0 samples sent, 6 refused\n"));
        assert!(ended.err.contains("6 samples were refused: 400 Bad Request so?"), "{}", ended.err);
        assert_eq!(well(&dir, &forward), "0 samples sent, 0 refused\n");
        // What was never sent begins an hour ago, unless it is said.
        let other = ["monitor", "forward", "c.sqlite", "--to", &url, "--once", "--state", "other"];
        assert_eq!(well(&dir, &other), "0 samples sent, 0 refused\n");
        for (args, words) in [
            (["--to", "ftp://x"], "does not begin with http://"),
            (["--to", "https://x"], "use a proxy on the loopback interface for TLS"),
            (["--to", "http://127.0.0.1:1/x"], "cannot send to http://127.0.0.1:1/x"),
        ] {
            let forward = ["monitor", "forward", "c.sqlite", "--once", "--from", "0"];
            let ended = dir.execute(&[&forward, &args[..]].concat());
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            assert!(ended.status > 0 && ended.err.contains(words), "{}", ended.err);
        }
        dir.write("state", "{");
        let ended = dir.execute(&[&forward[..], &["--state", "state"]].concat());
        assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{}", ended.err);
    }
}

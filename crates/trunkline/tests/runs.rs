//! Runs that go well: every protocol with every test, and what is kept and shown of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::command::{TestDir, assert_accounted, can, connection, free_ports, noise, number, repository};
use serde_json::Value;

/// Fields and their JSON types, as the contract has them. `?`: null where unknown.
type Fields = &'static [(&'static str, &'static str)];

const RECORD: Fields = &[
    ("version", "number"),
    ("backend", "string"),
    ("seed", "number"),
    ("started", "string"),
    ("duration_s", "number"),
    ("partial", "bool"),
    ("experiment", "object"),
    ("connections", "array"),
    ("links", "array"),
    ("hosts", "array"),
];
const EXPERIMENT: Fields = &[("name", "string"), ("hash", "string"), ("text", "string")];
const CONNECTION: Fields = &[
    ("name", "string"),
    ("transport", "string"),
    ("from", "string"),
    ("to", "array"),
    ("offered_bps", "number?"),
    ("sent_bps", "number"),
    ("received_bps", "number"),
    ("messages_sent", "number"),
    ("messages_received", "number"),
    ("lost", "number"),
    ("duplicated", "number"),
    ("reordered", "number"),
    ("corrupted", "number"),
    ("delay_us", "object?"),
    ("rtt_us", "object?"),
    ("gap_us", "object?"),
    ("asked", "object"),
    ("runs", "array"),
    ("cpu", "object"),
    ("counters", "object"),
    ("series", "array"),
];
const DISTRIBUTION: Fields = &[
    ("min", "number"),
    ("p50", "number"),
    ("p90", "number"),
    ("p99", "number"),
    ("p999", "number"),
    ("max", "number"),
    ("mean", "number"),
];
const ASKED: Fields = &[("rate_error", "number?"), ("gap_distance", "number?")];
const CPU: Fields = &[
    ("sender_user_s", "number"),
    ("sender_system_s", "number"),
    ("receiver_user_s", "number"),
    ("receiver_system_s", "number"),
];
const POINT: Fields = &[("t_s", "number"), ("sent_bps", "number"), ("received_bps", "number")];
const HOST: Fields = &[("name", "string"), ("cpu_percent", "number")];

fn assert_fields(what: &Value, fields: Fields) {
    for (name, wanted) in fields {
        let found = match what.get(name) {
            None => "missing",
            Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "bool",
            Some(Value::Number(_)) => "number",
            Some(Value::String(_)) => "string",
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
        };
        let fits = found == wanted.trim_end_matches('?') || (found == "null" && wanted.ends_with('?'));
        assert!(fits, "{name} is {found}, not {wanted}, in {what}");
    }
}

/// Everything that the contract promises stands in the record, with the right type.
fn assert_contract(record: &Value) {
    assert_fields(record, RECORD);
    assert_fields(&record["experiment"], EXPERIMENT);
    assert_eq!((&record["backend"], &record["partial"]), (&"live".into(), &false.into()));
    assert!(number(&record["duration_s"]) > 0.0);
    for host in record["hosts"].as_array().unwrap() {
        assert_fields(host, HOST);
    }
    for c in record["connections"].as_array().unwrap() {
        assert_fields(c, CONNECTION);
        assert_fields(&c["asked"], ASKED);
        assert_fields(&c["cpu"], CPU);
        for name in ["delay_us", "rtt_us", "gap_us"] {
            if let d @ Value::Object(_) = &c[name] {
                assert_fields(d, DISTRIBUTION);
                let values = ["min", "p50", "p90", "p99", "p999", "max"].map(|p| number(&d[p]));
                assert!(values.is_sorted() && values[0] >= 0.0, "{name} of {}: {values:?}", c["name"]);
            }
        }
        for point in c["series"].as_array().unwrap() {
            assert_fields(point, POINT);
        }
    }
}

/// Message bytes that one direction of the series holds.
fn series_bytes(c: &Value, direction: &str) -> f64 {
    let mut from = 0.0;
    let points = c["series"].as_array().unwrap().iter();
    let bits = points.map(|point| {
        let width = number(&point["t_s"]) - std::mem::replace(&mut from, number(&point["t_s"]));
        assert!(width > 0.0, "time increases: {point}");
        number(&point[direction]) * width
    });
    bits.sum::<f64>() / 8.0
}

/// Message bytes that were sent, over all runs.
fn sent_bytes(c: &Value) -> f64 {
    let runs = c["runs"].as_array().unwrap().iter();
    runs.map(|run| number(&run["sent_bps"]) * number(&run["duration_s"])).sum::<f64>() / 8.0
}

fn assert_near(found: f64, wanted: f64, what: &str) {
    assert!((found - wanted).abs() <= 0.01 + wanted * 1e-6, "{what}: {found}, not {wanted}");
}

/// Every test: its text, the size of its messages, and when it stops.
const TESTS: [(&str, &str, u64, &str); 8] = [
    ("full", "full (messagesize = 4000)", 4000, "duration = 300 ms"),
    ("cbr", "cbr (messagesize = 1000:2, period = 10 ms)", 1000, "duration = 300 ms"),
    ("burst", "burst (messagesize = 1000:2, period = 10 ms)", 1000, "duration = 300 ms"),
    ("random", "random (messagesize = 800:3, minPeriod = 5 ms, maxPeriod = 10 ms)", 800, "duration = 300 ms"),
    ("poisson", "poisson (messagesize = 150, rate = 500 /s)", 150, "duration = 300 ms"),
    ("stairs", "stairs (messagesize = 500, rates = 400 kb/s : 800 kb/s, hold = 150 ms)", 500, ""),
    ("request", "request (request = 64, response = 128)", 64, "duration = 300 ms"),
    ("file", r#"file (path = "data.bin", messagesize = 1032)"#, 1032, ""),
];

/// Runs every one of these tests, one after the other, and checks all that the record says of each.
fn check(protocol: &str, receivers: &[&str], tests: &[&str]) {
    check_by(&|dir, text| dir.record(text, &[]), protocol, receivers, tests);
}

fn check_by(run: &dyn Fn(&TestDir, &str) -> Value, protocol: &str, receivers: &[&str], tests: &[&str]) {
    let dir = TestDir::new();
    // Less than the smallest receive buffer there is, so that none of it is lost over datagrams either.
    let data = noise(40_500);
    dir.write("data.bin", &data);
    let tests: Vec<_> = TESTS.into_iter().filter(|(name, ..)| tests.contains(name)).collect();
    let to = receivers.join(", ");
    let lines: Vec<String> = tests
        .iter()
        .map(|(name, test, _, stop)| {
            format!(
                "connection {name} {{ xmt = a; rcv = {to}; protocol = {protocol}; test = {test}; {stop}; }}"
            )
        })
        .collect();
    let text = format!("experiment \"all\" {{ serial {{\n{}\n}} }}", lines.join("\n").replace(" ;", ""));
    let record = run(&dir, &text);
    assert_contract(&record);
    assert_eq!(record["experiment"]["text"], text);
    let hosts: BTreeSet<_> = record["hosts"].as_array().unwrap().iter().map(|h| h["name"].as_str()).collect();
    assert_eq!(hosts, ["a"].iter().chain(receivers).map(|h| Some(*h)).collect());
    let mut free_from = 0.0;
    for (name, _, size, _) in tests {
        let c = connection(&record, name);
        assert_measured(c, receivers, size, data.len());
        let run = &c["runs"][0];
        assert!(number(&run["start_s"]) >= free_from, "{name} waits for the one before");
        free_from = number(&run["start_s"]) + number(&run["duration_s"]);
        if name == "file" {
            for receiver in receivers {
                let file = dir.path("out/live/files/file").join(receiver).join("data.bin");
                assert!(fs::read(file).unwrap() == data, "a file over {protocol} is another");
            }
        }
    }
}

/// What the record says of one run of one connection.
fn assert_measured(c: &Value, receivers: &[&str], size: u64, file: usize) {
    let name = c["name"].as_str().unwrap();
    let (tcp, request) = (c["transport"] == "tcp", name == "request");
    assert_accounted(c);
    let count = |figure: &str| c[figure].as_u64().unwrap();
    assert_eq!((count("duplicated"), count("corrupted")), (0, 0), "{name}");
    if tcp || name == "file" {
        assert_eq!((count("lost"), count("reordered")), (0, 0), "{name}");
    }
    assert_eq!(c["to"], Value::from(receivers.to_vec()));

    assert!(c["delay_us"].is_object() && c["gap_us"].is_object(), "{name}");
    assert_eq!(c["rtt_us"].is_object(), tcp || request || c["transport"] == "stamp", "{name}");
    let paced = ["cbr", "burst", "random", "poisson", "stairs"].contains(&name);
    assert_eq!(c["offered_bps"].is_number(), paced, "{name}");
    assert_eq!(
        c["asked"]["rate_error"].is_number() && c["asked"]["gap_distance"].is_number(),
        paced,
        "{name}"
    );

    let seconds = |figure: &str| number(&c["cpu"][figure]);
    assert!(seconds("sender_user_s") + seconds("sender_system_s") > 0.0, "{name}");
    assert!(seconds("receiver_user_s") + seconds("receiver_system_s") > 0.0, "{name}");
    let counted =
        ["sender_system_calls", "receiver_system_calls", "sender_buffer_bytes", "receiver_buffer_bytes"];
    counted.iter().for_each(|counter| assert!(number(&c["counters"][counter]) > 0.0, "{name}: {counter}"));
    assert_eq!(c["counters"]["retransmissions"].is_number(), tcp, "{name}");

    let short = if name == "file" { count("messages_sent") * (size - 32) - file as u64 } else { 0 };
    let bytes = |messages: u64| (messages * size - short) as f64;
    assert_near(sent_bytes(c), bytes(count("messages_sent")), name);
    assert_near(series_bytes(c, "sent_bps"), bytes(count("messages_sent")), name);
    // The last message of a file is short at each receiver.
    let each = (count("messages_received") * size) as f64 / receivers.len() as f64 - short as f64;
    assert_near(series_bytes(c, "received_bps"), each, name);
    assert_eq!(c["runs"].as_array().unwrap().len(), 1);
}

const OVER_ONE: [&str; 8] = ["full", "cbr", "burst", "random", "poisson", "stairs", "request", "file"];
const OVER_A_GROUP: [&str; 8] = OVER_ONE;

#[test]
fn every_test_runs_over_tcp() {
    check("tcp", &["b"], &OVER_ONE);
}

#[test]
fn every_test_runs_over_udp() {
    check("udp", &["b"], &OVER_ONE);
}

#[test]
fn every_paced_test_runs_over_stamp() {
    check("stamp", &["b"], &["cbr", "burst", "random", "poisson", "stairs"]);
}

#[test]
fn a_reflector_and_its_sender_agree() {
    let dir = TestDir::new();
    let text = "connection path { xmt = a; rcv = b; protocol = stamp; \
                test = cbr (messagesize = 44, period = 2 ms); messages = 100; }";
    let record = dir.record(text, &[]);
    let c = connection(&record, "path");
    let of = |name: &str| number(&c["counters"][name]);
    assert_eq!(of("reflected"), number(&c["messages_received"]) + number(&c["duplicated"]));
    assert_eq!(of("answers") + of("lost_forward") + of("lost_backward") + of("lost_unknown"), 100.0);
    assert_eq!(c["notes"]["sender_arrival_times"], "kernel");
    // A round trip has both directions.
    assert!(number(&c["rtt_us"]["max"]) >= number(&c["delay_us"]["min"]), "{c}");
}

#[test]
fn every_test_runs_over_an_ipv4_group() {
    check("multicast (group = 239.77.3.1)", &["b", "c"], &OVER_A_GROUP);
}

#[test]
fn an_ipv6_group_reaches_every_receiver() {
    if !can(&["unshare", "-n", "true"]) {
        return;
    }
    // Linux has no IPv6 groups on the loopback; use an interface in a separate namespace.
    let network = "ip link add one type veth peer name two; ip link set lo up
        ip link set one up; ip link set two up; ip addr add fd00:77::1/64 dev one nodad
        for try in $(seq 500); do [ $(ip link show up | grep -c 'state UP') = 2 ] && break; sleep 0.02; done
        exec \"$@\"";
    let hosts = ["a", "b", "c", "d"].map(|host| format!("--at={host}=fd00:77::1"));
    let run = |dir: &TestDir, text: &str| {
        dir.write("experiment.ns", text);
        let args =
            [&["run", "experiment.ns", "--out", "out"], &hosts.each_ref().map(|h| h.as_str())[..]].concat();
        let ended = dir.end(dir.unshared("-n", network, &args));
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
        dir.recorded("out")
    };
    // Of this interface, of this link, and of this site.
    for group in ["ff11::77:3", "ff12::77:3", "ff15::77:3"] {
        let protocol = format!("multicast (group = [{group}], ttl = 1)");
        check_by(&run, &protocol, &["b", "c", "d"], &["full", "cbr", "poisson"]);
    }
}

#[test]
fn several_receivers_are_distinguished() {
    let text = "connection m { xmt = a; rcv = b, c; protocol = multicast (group = 239.77.3.2);
                               test = cbr (messagesize = 500, period = 5 ms); messages = 60; }";
    let record = TestDir::new().record(text, &[]);
    let m = connection(&record, "m");
    assert_accounted(m);
    let receivers = m["receivers"].as_array().unwrap();
    let hosts: Vec<_> = receivers.iter().map(|r| r["host"].as_str().unwrap()).collect();
    assert_eq!((hosts, &m["messages_sent"]), (vec!["b", "c"], &60.into()));
    for r in receivers {
        assert_eq!(r["messages_received"].as_u64().unwrap() + r["lost"].as_u64().unwrap(), 60);
        assert!(r["delay_us"].is_object());
    }
}

#[test]
fn hosts_may_be_at_ipv6_addresses() {
    let text = "connection t { xmt = a; rcv = b; protocol = tcp; test = full; bytes = 1 MB; }
                connection u { xmt = b; rcv = a; protocol = udp; test = cbr (messagesize = 100, period = 5 ms);
                               messages = 20; }";
    let record = TestDir::new().record(text, &["--at", "a=::1", "--at", "b=[::1]"]);
    for c in record["connections"].as_array().unwrap() {
        assert_accounted(c);
    }
    assert!(record["hosts"].as_array().unwrap().iter().all(|h| h["address"] == "::1"));
}

#[test]
fn limits_in_bytes_and_messages_are_met_exactly() {
    let text = "serial {
        connection even { xmt = a; rcv = b; protocol = tcp; test = full (messagesize = 100 kB); bytes = 14 MB; }
        connection cut  { xmt = a; rcv = b; protocol = tcp; test = full (messagesize = 64 kB); bytes = 1 MB; }
        connection rest { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1500, period = 5 ms); bytes = 15010; }
        connection tiny { xmt = a; rcv = b; protocol = tcp; test = full; bytes = 10; }
        connection many { xmt = a; rcv = b; protocol = tcp; test = poisson (rate = 2000 /s); messages = 37; }
        connection asks { xmt = a; rcv = b; protocol = udp; test = request; messages = 41; }
    }";
    let record = TestDir::new().record(text, &[]);
    for (name, bytes, messages) in [
        ("even", Some(14_000_000.0), 140),
        ("cut", Some(1_000_000.0), 16),
        // 10 bytes would be too few for a message of their own, and 32 are the fewest that are sent.
        ("rest", Some(15_010.0), 10),
        ("tiny", Some(32.0), 1),
        ("many", None, 37),
        ("asks", None, 41),
    ] {
        let c = connection(&record, name);
        assert_accounted(c);
        assert_eq!(c["messages_sent"], messages, "{name}");
        if let Some(bytes) = bytes {
            assert_near(sent_bytes(c), bytes, name);
        }
    }
}

#[test]
fn a_large_file_arrives_whole() {
    let dir = TestDir::new();
    let data = noise(5_000_001);
    fs::create_dir(dir.path("of")).unwrap();
    dir.write("of/my data.bin", &data);
    let text =
        r#"connection copy { xmt = a; rcv = b; protocol = tcp; test = file (path = "of/my data.bin"); }"#;
    let record = dir.record(text, &[]);
    assert_eq!(number(&connection(&record, "copy")["counters"]["file_bytes"]), data.len() as f64);
    assert!(fs::read(dir.path("out/live/files/copy/b/my data.bin")).unwrap() == data);
}

/// When a run began and ended, seconds since the experiment began.
fn when(run: &Value) -> (f64, f64) {
    let start = number(&run["start_s"]);
    (start, start + number(&run["duration_s"]))
}

#[test]
fn serial_and_parallel_blocks_keep_their_delays() {
    let c = |name: &str, more: &str| {
        format!(
            "connection {name} {{ xmt = a; rcv = b; protocol = udp;
                                  test = cbr (messagesize = 100, period = 10 ms); duration = 500 ms; {more} }}\n"
        )
    };
    let (one, two) = (c("one", ""), c("two", ""));
    let (three, late) = (c("three", ""), c("late", "delay = 1.5 s;"));
    let record =
        TestDir::new().record(&format!("serial {{ {one} parallel {{ {two} {three} }} }} {late}"), &[]);
    let [one, two, three, late] =
        ["one", "two", "three", "late"].map(|name| when(&connection(&record, name)["runs"][0]));
    assert!(two.0 >= one.1 && three.0 >= one.1, "{one:?} then {two:?} and {three:?}");
    assert!(two.0 < three.1 && three.0 < two.1, "{two:?} beside {three:?}");
    assert!(late.0 >= 1.5 && one.0 < late.0, "{one:?}, {late:?}");
}

#[test]
fn a_repeat_gives_its_runs_and_their_spread() {
    let text = "repeat 3 every 600 ms {
        connection r { xmt = a; rcv = b; protocol = tcp; test = cbr (messagesize = 1000, period = 5 ms); duration = 200 ms; }
    }";
    let record = TestDir::new().record(text, &[]);
    let r = connection(&record, "r");
    let runs = r["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for (i, run) in runs.iter().enumerate() {
        assert!(number(&run["start_s"]) >= 0.6 * i as f64, "{run}");
        assert!(i == 0 || when(run).0 >= when(&runs[i - 1]).1);
    }
    let sent: f64 = runs.iter().map(|run| number(&run["messages_sent"])).sum();
    assert_eq!((sent, &r["messages_received"]), (number(&r["messages_sent"]), &r["messages_sent"]));
    for figure in ["sent_bps", "received_bps"] {
        let interval = &r["repeats"][figure];
        assert_eq!(interval["n"], 3, "{figure}");
        let [low, mean, high] = ["low", "mean", "high"].map(|f| number(&interval[f]));
        assert!(low <= mean && mean <= high, "{interval}");
        assert_near(mean, runs.iter().map(|run| number(&run[figure])).sum::<f64>() / 3.0, figure);
    }
}

#[test]
fn two_tests_that_name_each_other_and_both_send_are_two_connections() {
    let [one, two] = free_ports();
    let text = format!(
        "cluster {{
            test a {{ type = burstq (blocksize = 500, period = 5000, duration = 0.4); protocol = udp; own = a:{one}; peer = b:{two}; }}
            test b {{ type = burst (blocksize = uniform(200, 400), period = exponential(5000), duration = 0.4); protocol = udp; own = b:{two}; peer = a:{one}; }}
        }}"
    );
    let record = TestDir::new().record(&text, &[]);
    assert_contract(&record);
    for (name, from, to) in [("a-b", "a", "b"), ("b-a", "b", "a")] {
        let c = connection(&record, name);
        assert_accounted(c);
        assert_eq!((&c["from"], &c["to"][0]), (&from.into(), &to.into()));
    }
    assert!(number(&connection(&record, "b-a")["asked"]["gap_p_value"]) <= 1.0);
}

#[test]
fn the_scripts_of_1996_run_as_printed() {
    let (texas, other) = ("utexas.perf.ukans.aai.net", "204.235.71.130");
    let (there, back) = (format!("{texas}-{other}"), format!("{other}-{texas}"));
    for (script, names, transport) in [
        ("figure-08-blast.ns", vec![&there, &back], "tcp"),
        ("figure-09-cbr.ns", vec![&there], "udp"),
        ("figure-10-random.ns", vec![&there], "udp"),
    ] {
        let dir = TestDir::new();
        let path = repository("experiments").join(script);
        let ended = dir.execute(&["run", path.to_str().unwrap(), "--set", "duration=600ms", "--out", "out"]);
        assert_eq!(ended.status, 0, "{script}: {}", ended.err);
        // Figure 8 has stray semicolons, which are warned of; the others have nothing to be said about.
        assert_eq!(ended.err.contains("warning"), script.starts_with("figure-08"), "{}", ended.err);
        let record = dir.recorded("out");
        assert_contract(&record);
        let found: Vec<_> = record["connections"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(found, names, "{script}");
        for name in names {
            let c = connection(&record, name);
            assert_accounted(c);
            assert_eq!(c["transport"], transport);
            assert_near(number(&c["runs"][0]["duration_s"]).max(0.6), 0.6, "the duration that was set");
        }
        assert_eq!(record["environment"]["set"], "duration=600ms");
    }
}

#[test]
fn socket_options_are_reported() {
    let text = "serial {
        connection w { xmt = a (xmtbuf = 40 kB); rcv = b (rcvbuf = 60 kB); protocol = tcp (congestion = reno);
                       test = full; duration = 1 s; }
        connection v { xmt = a; rcv = b; protocol = tcp (window = 50 kB, congestion = ANOTHER, nodelay = off);
                       test = full; bytes = 1 MB; }
        connection u { xmt = a (xmtbuf = 40 kB); rcv = b (rcvbuf = 60 kB); protocol = udp;
                       test = cbr (messagesize = 100, period = 5 ms); messages = 10; }
    }";
    // Whatever every user may choose beside reno.
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let another = allowed.split_whitespace().find(|name| *name != "reno").unwrap_or("reno");
    let record = TestDir::new().record(&text.replace("ANOTHER", another), &[]);
    // The kernel counts its own overhead: twice what was asked. A receiver with a window has twice the buffer, since it advertises
    // no more than the window.
    for (name, sender, receiver) in [("w", 80e3, 120e3), ("v", 100e3, 200e3), ("u", 80e3, 120e3)] {
        let counters = &connection(&record, name)["counters"];
        let found = ["sender_buffer_bytes", "receiver_buffer_bytes"].map(|c| number(&counters[c]));
        assert_eq!(found, [sender, receiver], "{name}");
    }
    assert_eq!(connection(&record, "w")["notes"]["congestion"], "reno");
    assert_eq!(connection(&record, "v")["notes"]["congestion"], another);
    assert!(connection(&record, "u")["notes"]["pacing"].is_string());
    // Where this machine slept there may be none for an interval.
    let series = connection(&record, "w")["series"].as_array().unwrap();
    assert!(series.iter().any(|interval| interval["cwnd_bytes"].as_f64() > Some(0.0)), "{series:?}");
}

#[test]
fn the_seed_alone_decides_what_is_drawn() {
    let text = "connection p { xmt = a; rcv = b; protocol = udp; messages = 100;
                               test = poisson (messagesize = uniform(100, 1000), rate = 2000 /s); }";
    let drawn = |seed: &[&str]| {
        let record = TestDir::new().record(text, seed);
        let p = connection(&record, "p");
        assert_eq!(p["messages_sent"], 100);
        (record["seed"].as_u64().unwrap(), sent_bytes(p).round())
    };
    let (first, again, other) = (drawn(&["--seed", "7"]), drawn(&["--seed", "7"]), drawn(&["--seed", "8"]));
    assert_eq!((first, first.0, other.0), (again, 7, 8));
    assert_ne!(first.1, other.1);
    assert_eq!(drawn(&[]), drawn(&["--seed", "1996"]), "the default is fixed");
}

const SHORT: &str = r#"experiment "short" {
    connection t { xmt = a; rcv = b; protocol = tcp; test = full; bytes = 1 MB; }
    connection u { xmt = b; rcv = a; protocol = udp; test = cbr (messagesize = 100, period = 5 ms); messages = 20; }
    expect t.messages_received = 16;
    expect u.sent_bps > 3 Gb/s;
}"#;

/// The same, but nothing is expected that cannot be.
fn modest() -> String {
    SHORT.replace("> 3 Gb/s", "> 1 kb/s")
}

#[test]
fn json_is_the_record_and_nothing_else() {
    let dir = TestDir::new();
    let ended = dir.run(&modest(), &["--json"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&ended.out).unwrap(), dir.recorded("out"));
}

#[test]
fn expectations_decide_the_status_and_show_both_values() {
    let dir = TestDir::new();
    let ended = dir.run(SHORT, &["--junit", "tests.xml"]);
    ended.assert_line(1, "an expectation failed");
    let line = |word: &str| ended.out.lines().find(|l| l.trim_start().starts_with(word)).unwrap();
    assert_eq!(line("pass ").trim(), "pass  t.messages_received = 16: measured 16");
    // 160 unless the machine stalled.
    let failed = line("fail ").trim();
    assert!(failed.starts_with("fail  u.sent_bps > 3 Gb/s: measured "), "{failed}");
    assert!(failed.ends_with(" kb/s, expected 3 Gb/s"), "{failed}");
    let record = dir.recorded("out");
    let held = [0, 1].map(|i| &record["expectations"][i]["held"]);
    assert_eq!((held, &record["partial"]), ([&true.into(), &false.into()], &false.into()));
    let xml = fs::read_to_string(dir.path("tests.xml")).unwrap();
    assert!(xml.contains(r#"tests="3""#) && xml.contains(r#"failures="1""#), "{xml}");
    assert!(xml.contains("u.sent_bps &gt; 3 Gb/s") && xml.contains(" kb/s, expected 3 Gb/s"), "{xml}");

    let ended = dir.run(&modest(), &["--junit", "tests.xml"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(fs::read_to_string(dir.path("tests.xml")).unwrap().contains(r#"failures="0""#));
}

#[test]
fn an_experiment_may_come_from_standard_input() {
    let dir = TestDir::new();
    let mut command = dir.trunkline(&["run", "-", "--out", "out", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(modest().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["experiment"]["text"], modest());
}

#[test]
fn the_archive_keeps_shows_exports_and_deletes() {
    let dir = TestDir::new();
    // A name that is hard to write: a combining accent, quotes, a space of no width.
    let text = modest().replace("\"short\"", "\"cafe\u{301} \\\"x\\\"\u{200b}\"");
    for experiment in [&modest(), &text] {
        assert_eq!(dir.run(experiment, &[]).status, 0);
    }
    let good = |args: &[&str]| {
        let ended = dir.execute(args);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}");
        ended.out
    };
    let list = good(&["records", "list"]);
    assert!(list.lines().count() == 3 && list.contains("short"), "{list}");
    let lines = good(&["records", "list", "--json"]);
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cafe\u{301} \"x\"\u{200b}", "short"], "the latest first");
    assert_eq!(good(&["records", "list", "--name", "short", "--json"]).lines().count(), 1);

    assert_eq!(good(&["records", "show", "2", "--text"]), text);
    assert!(good(&["records", "show", "1"]).starts_with("short  live  "));
    assert_eq!(dir.archived(2), dir.recorded("out"), "the archive and the file hold the same");
    let csv = good(&["records", "export", "1", "2", "--format", "csv"]);
    assert!(csv.lines().next().unwrap().split(',').any(|column| column == "received_bps"), "{csv}");
    assert_eq!(csv.lines().filter(|line| line.contains(",tcp,")).count(), 2, "{csv}");
    let series = good(&["records", "export", "1", "--format", "csv", "--series"]);
    assert!(series.lines().count() > 1 && series.lines().next().unwrap().contains("t_s"), "{series}");
    good(&["records", "export", "1", "--format", "parquet", "-o", "runs.parquet"]);
    let parquet = fs::read(dir.path("runs.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));

    let compared = good(&["compare", "1", "2", "--html", "compare.html"]);
    assert!(compared.contains("The runs differ in\n  plan: ") && compared.contains("received"), "{compared}");
    assert!(good(&["report", "out", "--html", "again.html"]).contains("connection"));
    for page in ["compare.html", "again.html", "out/report.html"] {
        let html = fs::read_to_string(dir.path(page)).unwrap();
        assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"), "{page}");
        assert!(!html.contains("src=\"http") && !html.contains("<link"), "{page} opens offline");
    }

    good(&["records", "delete", "1"]);
    assert_eq!(good(&["records", "list", "--json"]).lines().count(), 1);
    dir.execute(&["records", "show", "1"]).assert_line(2, "there is no run 1");
    dir.execute(&["records", "delete", "2", "9"]).assert_line(2, "there is no run 9");
    assert_eq!(good(&["records", "list", "--json"]).lines().count(), 1, "all or none");
}

#[test]
fn a_run_may_stay_out_of_the_archive() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&modest(), &["--no-archive"]).status, 0);
    assert!(!dir.path("archive.sqlite").exists());
    dir.execute(&["records", "list"]).assert_line(2, "there is no archive at");
    assert_eq!(dir.run(&modest(), &["--archive", "deep/er/runs.sqlite"]).status, 0);
    assert!(dir.path("deep/er/runs.sqlite").exists() && !dir.path("archive.sqlite").exists());
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let dir = TestDir::new();
    let commands = ["check", "run", "compare", "report", "records", "completions", "man"];
    for shell in ["bash", "zsh", "fish"] {
        let ended = dir.execute(&["completions", shell]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(commands.iter().all(|c| ended.out.contains(c)) && ended.out.contains("junit"), "{shell}");
        dir.write(shell, &ended.out);
        match Command::new(shell).arg("-n").arg(dir.path(shell)).status() {
            Ok(status) => assert!(status.success(), "{shell} cannot read its completions"),
            Err(_) => eprintln!("{shell} is not installed: its completions were not tried"),
        }
    }
    let page = dir.execute(&["man"]).out;
    assert!(page.contains(".TH trunkline 1") && commands.iter().all(|c| page.contains(c)), "{page}");
    assert_eq!(dir.execute(&["man", "pages"]).status, 0);
    for command in commands {
        let page = fs::read_to_string(dir.path("pages").join(format!("trunkline-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
}

//! Runs that go wrong: each ends with one clear line and the right status, and keeps what was measured until then.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::command::{
    Ended, Running, TestDir, assert_accounted, can, connection, free_ports, is_gone, noise, signal, within,
};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

/// Two connections that run until they are stopped, and one between other hosts that ends by itself.
const LONG: &str = r#"experiment "long" { parallel {
    connection t { xmt = a; rcv = b; protocol = tcp; test = cbr (messagesize = 10 kB, period = 2 ms); duration = 1 h; }
    connection u { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1000, period = 2 ms); duration = 1 h; }
    connection other { xmt = c; rcv = d; protocol = tcp; test = request; duration = 3 s; }
} }"#;

const SHORT: &str = r#"experiment "short" {
    connection s { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 5 ms); messages = 100; }
    expect s.messages_sent = 100;
}"#;

const LONGER: &str = "connection s { xmt = a; rcv = b; protocol = udp;
                       test = cbr (messagesize = 100, period = 5 ms); messages = 400; }";

/// The record in `out` is partial and says so, the archive holds the same, and each of these connections was cut
/// short by something that holds `words`.
fn assert_retained(dir: &TestDir, words: &str, cut: &[&str]) -> Value {
    let record = dir.recorded("out");
    assert_eq!(record["partial"], true);
    let trouble = record["trouble"].to_string();
    assert!(trouble.contains(words), "{words:?} in {trouble}?");
    for c in record["connections"].as_array().unwrap() {
        let name = c["name"].as_str().unwrap();
        assert_eq!(c["partial"], cut.contains(&name), "{name}: {}", c["trouble"]);
        if cut.contains(&name) {
            assert!(c["trouble"].as_str().unwrap().contains(words), "{name}: {}", c["trouble"]);
        } else {
            assert!(c["trouble"].is_null());
            assert_accounted(c);
        }
    }
    let list = dir.execute(&["records", "list", "--json"]).out;
    let latest: Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    assert_eq!(latest["partial"], true);
    assert_eq!(dir.archived(latest["id"].as_u64().unwrap() as u32), record);
    record
}

/// What was measured before the trouble is there.
fn assert_measured(record: &Value, names: &[&str]) {
    for name in names {
        let c = connection(record, name);
        for figure in ["messages_sent", "messages_received"] {
            assert!(c[figure].as_u64().unwrap() > 0, "{name}: no {figure}");
        }
        assert!(c["delay_us"].is_object() && !c["series"].as_array().unwrap().is_empty(), "{name}");
    }
}

/// The agent of a host is ended in the midst of a run.
fn lose_the_agent_of(host: &str, how: Signal, words: &str) {
    let dir = TestDir::new();
    let running = dir.start(LONG, &[]);
    running.agents_with_results(["a", "b"]);
    let agent = running.agent_at(host);
    signal(agent, how);
    let ended = running.end();
    let words = format!("host {host}{words}");
    ended.assert_line(1, &words);
    assert!(ended.err.contains("the partial results are stored"), "{}", ended.err);
    assert!(ended.out.contains("PARTIAL") && ended.out.contains(&words), "{}", ended.out);
    let record = assert_retained(&dir, &words, &["t", "u"]);
    assert_measured(&record, &["t", "u"]);
    assert!(is_gone(agent), "nothing is left behind");
}

#[test]
fn a_receiver_that_dies_costs_only_its_connections() {
    lose_the_agent_of("b", Signal::SIGKILL, ": its agent was killed by signal 9");
}

#[test]
fn a_sender_that_dies_costs_only_its_connections() {
    lose_the_agent_of("a", Signal::SIGKILL, ": its agent was killed by signal 9");
}

#[test]
fn an_agent_that_falls_silent_does_not_answer() {
    lose_the_agent_of("b", Signal::SIGSTOP, " does not answer: silent for 4 s");
}

/// A request to stop ends a run in order: what was under way has arrived.
fn stop_with(ask: impl FnOnce(&Running)) {
    let dir = TestDir::new();
    let running = dir.start(LONG, &[]);
    let agents = ["c", "d", "a", "b"].map(|host| running.agent_at(host));
    running.agents_with_results(["a", "b"]);
    ask(&running);
    let ended = running.end();
    ended.assert_line(1, "stopped on request");
    // The third may have ended by itself by then, on a slow machine.
    let late = dir.recorded("out")["connections"][2]["partial"] == true;
    let cut = if late { vec!["t", "u", "other"] } else { vec!["t", "u"] };
    let record = assert_retained(&dir, "stopped on request", &cut);
    assert_measured(&record, &["t", "u"]);
    assert_accounted(connection(&record, "u"));
    assert_eq!(connection(&record, "t")["lost"], 0, "tcp loses nothing");
    assert!(agents.into_iter().all(is_gone));
}

#[test]
fn the_place_of_partial_results_is_named() {
    let dir = TestDir::new();
    let running = dir.start(LONG, &["--no-archive"]);
    running.agents_with_results(["a", "b"]);
    signal(running.id(), Signal::SIGTERM);
    let ended = running.end();
    ended.assert_line(1, "stopped on request; the partial results are in out/live/record.json");
    assert!(dir.recorded("out")["partial"] == true && !dir.path("archive.sqlite").exists());
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = SHORT.replace("rcv = b;", &format!("rcv = b:{port};"));
    let ended = dir.run(&text, &[]);
    ended.assert_line(1, "; nothing was measured");
}

#[test]
fn sigterm_stops_a_run() {
    stop_with(|running| signal(running.id(), Signal::SIGTERM));
}

#[test]
fn ctrl_c_on_a_terminal_stops_a_run() {
    // A terminal sends it to the whole group.
    stop_with(|running| signal(Pid::from_raw(-running.id().as_raw()), Signal::SIGINT));
}

#[test]
fn a_controller_that_is_killed_takes_its_agents_along_and_leaves_a_trace() {
    let dir = TestDir::new();
    assert_eq!(dir.run(SHORT, &[]).status, 0);
    let before = dir.recorded("out");
    let running = dir.start(LONG, &[]);
    running.agent("a");
    let agents = ["a", "b", "c", "d"].map(|host| running.agent_at(host));
    signal(running.id(), Signal::SIGKILL);
    assert_eq!(running.end().status, -9);
    within(Duration::from_secs(30), "the agents to go", || agents.into_iter().all(is_gone));
    assert_eq!(dir.recorded("out"), before, "an earlier record stands until there is another");
    assert_eq!(dir.archived(1), before);
    let lost = dir.archived(2);
    assert_eq!((&lost["partial"], &lost["experiment"]["name"]), (&true.into(), &"long".into()));
    assert!(lost["trouble"][0].as_str().unwrap().contains("has not ended"));
    let list = dir.execute(&["records", "list"]).out;
    assert!(list.lines().any(|l| l.contains("partial") && l.ends_with("long")), "{list}");
    assert_eq!(dir.run(SHORT, &[]).status, 0, "and the next run finds everything in order");
    assert_eq!(dir.archived(3), dir.recorded("out"));
}

/// Messages through converters that run until they are stopped, and a connection that ends by itself.
const BUNDLES: &str = r#"experiment "bundles" {
    network {
        host h1, h2, router, x, y; converter c1 (role = level1); converter c2 (role = central);
        switch wan, lan; link router - wan (rate = 1 Gb/s); link c1 - wan (rate = 1 Gb/s); link x - y (rate = 1 Gb/s);
        link c1 - lan (rate = 1 Gb/s); link c2 - lan (rate = 1 Gb/s); link h1 - lan (rate = 1 Gb/s); link h2 - lan (rate = 1 Gb/s);
    }
    parallel {
        connection far { xmt = router; rcv = h1, h2; protocol = bundle (address = 0); test = cbr (messagesize = 100, period = 5 ms); duration = 1 h; }
        connection near { xmt = h1; rcv = h2, router; protocol = bundle (address = 64); test = cbr (messagesize = 100, period = 5 ms); duration = 1 h; }
        connection other { xmt = x; rcv = y; protocol = tcp; test = request; duration = 3 s; }
    }
}"#;

#[test]
fn a_converter_that_dies_costs_what_goes_through_it() {
    for converter in ["c1", "c2"] {
        let dir = TestDir::new();
        let running = dir.start(BUNDLES, &[]);
        running.agents_with_results(["h1", "h2", "router"]);
        let agent = running.agent_at(converter);
        signal(agent, Signal::SIGKILL);
        let ended = running.end();
        let words = format!("host {converter}: its agent was killed by signal 9");
        assert!(ended.status == 1 && ended.err.contains(&words), "{ended:?}");
        let record = assert_retained(&dir, &words, &["far", "near"]);
        assert_measured(&record, &["far", "near"]);
        assert!(is_gone(agent), "nothing is left behind");
    }
}

#[test]
fn ctrl_c_ends_converters_too() {
    let dir = TestDir::new();
    let running = dir.start(BUNDLES, &[]);
    running.agents_with_results(["h1", "h2", "router"]);
    let agents = ["c1", "c2", "h1", "h2", "router"].map(|host| running.agent_at(host));
    signal(running.id(), Signal::SIGINT);
    let ended = running.end();
    assert!(ended.status == 1 && ended.err.contains("stopped on request"), "{ended:?}");
    let record = dir.recorded("out");
    assert_measured(&record, &["far", "near"]);
    let hosts = record["hosts"].as_array().unwrap();
    let central = hosts.iter().find(|host| host["name"] == "c2").unwrap();
    assert!(central["interfaces"]["bundle.from_level1"].as_u64().unwrap() > 0, "{central}");
    assert!(agents.into_iter().all(is_gone));
}

#[test]
fn a_converter_that_cannot_open_is_named() {
    if !can(&["unshare", "-n", "true"]) {
        return;
    }
    let dir = TestDir::new();
    dir.write("experiment.ns", BUNDLES);
    // Its loopback is down.
    let ended = dir.end(dir.unshared("-n", "exec \"$@\"", &["run", "experiment.ns", "--out", "out"]));
    assert!(ended.status == 1 && ended.err.contains(" cannot bundle: "), "{ended:?}");
    assert_eq!(dir.recorded("out")["partial"], true);
}

#[test]
fn a_port_in_use_is_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let [free] = free_ports();
    let text = format!(
        "cluster {{
            test a {{ type = burst (blocksize = 500, period = 5000, duration = 0.3); protocol = udp; own = a:{free}; peer = b:{taken}; }}
            test b {{ type = burst (blocksize = 500, period = 5000, duration = 0.3); protocol = udp; own = b:{taken}; peer = a:{free}; }}
        }}"
    );
    let dir = TestDir::new();
    let words = format!("host b: port {taken} on 127.0.0.1 is in use");
    dir.run(&text, &[]).assert_line(1, &words);
    let record = assert_retained(&dir, &words, &["a-b"]);
    assert_measured(&record, &["b-a"]);
}

/// A network of two addresses, before whose rule for local addresses there is room for another.
const NETWORK: &str = "ip link set lo up; ip addr add 10.9.9.1/32 dev lo; ip addr add 10.9.9.2/32 dev lo
    ip rule add pref 10 lookup local; ip rule del pref 0 lookup local";

/// What b sends to a goes nowhere from now on.
const CUT: &str = "ip rule add pref 5 from 10.9.9.2 to 10.9.9.1 blackhole";

/// Runs an experiment in that network, with hosts a and b at its addresses.
fn in_a_network(dir: &TestDir, script: &str, experiment: &str) -> Option<Ended> {
    if !can(&["unshare", "-n", "ip", "rule"]) {
        return None;
    }
    dir.write("experiment.ns", experiment);
    let args = ["run", "experiment.ns", "--out", "out", "--at", "a=10.9.9.1", "--at", "b=10.9.9.2"];
    Some(dir.end(dir.unshared("-n", &format!("{NETWORK}\n{script}"), &args)))
}

#[test]
fn a_host_that_does_not_answer_is_named() {
    let text = "connection t { xmt = a; rcv = b; protocol = tcp; test = full; duration = 500 ms; }
                connection other { xmt = c; rcv = d; protocol = tcp; test = full; bytes = 1 MB; }";
    let dir = TestDir::new();
    if let Some(ended) = in_a_network(&dir, &format!("{CUT}; exec \"$@\""), text) {
        ended.assert_line(1, "host a: 10.9.9.2 does not answer on port");
        assert_retained(&dir, "10.9.9.2 does not answer", &["t"]);
    }
}

#[test]
fn a_host_that_answers_no_more_does_not_hold_a_run_for_ever() {
    let text = "connection q { xmt = a; rcv = b; protocol = tcp; test = request; duration = 1 h; }
                connection other { xmt = c; rcv = d; protocol = tcp; test = full; bytes = 1 MB; }";
    // Until requests and answers have passed, each a packet and more.
    let under_way = "awk '$1 == \"lo:\" && $3 > 2000 { found = 1 } END { exit !found }' /proc/net/dev";
    let script = format!("\"$@\" & until {under_way}; do sleep 0.1; done; {CUT}; wait $!");
    let dir = TestDir::new();
    if let Some(ended) = in_a_network(&dir, &script, text) {
        ended.assert_line(1, "has accepted no data for 30 s");
        let record = assert_retained(&dir, "has accepted no data for 30 s", &["q"]);
        assert_measured(&record, &["q"]);
    }
}

#[test]
fn a_group_that_the_interface_does_not_carry_is_named() {
    if !can(&["unshare", "-n", "true"]) {
        return;
    }
    let dir = TestDir::new();
    let text = "connection m { xmt = a; rcv = b; protocol = multicast (group = [ff15::77:4]); test = full; duration = 1 s; }";
    dir.write("experiment.ns", text);
    let args = ["run", "experiment.ns", "--out", "out"];
    let ended = dir.end(dir.unshared("-n", "ip link set lo up; exec \"$@\"", &args));
    ended.assert_line(1, "host a: group ff15::77:4 does not reach this interface");
    assert_retained(&dir, "ff15::77:4", &["m"]);
}

#[test]
fn an_address_of_another_machine_is_named() {
    let dir = TestDir::new();
    let words = "host b does not answer: 192.0.2.7 is not an address of this machine";
    dir.run(SHORT, &["--at", "b=192.0.2.7"]).assert_line(1, words);
    let record = dir.recorded("out");
    assert_eq!((&record["partial"], &record["connections"][0]["messages_sent"]), (&true.into(), &0.into()));
    assert!(record["trouble"][0].as_str().unwrap().contains(words));
    assert_eq!(dir.archived(1), record);
}

/// Runs an experiment in whose midst a small disk at `small` comes into being, and perhaps fills up. What lay on it
/// in the end is in `kept`.
fn on_a_small_disk(
    dir: &TestDir,
    options: &str,
    meanwhile: &str,
    experiment: &str,
    args: &[&str],
) -> Option<Ended> {
    if !can(&["unshare", "-m", "true"]) {
        return None;
    }
    fs::create_dir(dir.path("small")).unwrap();
    dir.write("experiment.ns", experiment);
    let script = format!(
        "mount -t tmpfs -o {options} none small; \"$@\" & {meanwhile}
         if wait $!; then status=0; else status=$?; fi
         cp -r small kept; exit $status"
    );
    Some(dir.end(dir.unshared("-m", &script, &[&["run", "experiment.ns"], args].concat())))
}

/// Waits until the run has begun, for then there are agents, and takes all room that is left.
const FILL: &str = "until pgrep -P $! > /dev/null; do sleep 0.1; done
    cat /dev/zero > small/filler 2> /dev/null || true";

#[test]
fn a_full_disk_for_results_is_an_error_before_the_run() {
    let dir = TestDir::new();
    if let Some(ended) = on_a_small_disk(&dir, "size=512k", ":;", SHORT, &["--out", "small/out"]) {
        ended.assert_line(1, "cannot prepare small/out/live: No space left on device");
        assert_eq!(dir.execute(&["records", "list"]).out, "no runs\n", "it never began");
    }
}

#[test]
fn a_disk_that_fills_during_a_run_loses_nothing() {
    let dir = TestDir::new();
    if let Some(ended) = on_a_small_disk(&dir, "size=4m", FILL, LONGER, &["--out", "small/out"]) {
        // There is room for all results: it was taken before the run.
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(dir.path("kept/out/report.html").exists() && dir.path("kept/filler").exists());
        let record = dir.recorded("kept/out");
        assert_eq!(
            (&record["connections"][0]["messages_sent"], &record["partial"]),
            (&400.into(), &false.into())
        );
        assert_eq!(dir.archived(1), record);
    }
}

#[test]
fn a_full_disk_for_the_archive_is_an_error_before_the_run() {
    let dir = TestDir::new();
    let full = "size=16k";
    let args = ["--out", "out", "--archive", "small/runs.sqlite"];
    if let Some(ended) = on_a_small_disk(&dir, full, ":;", SHORT, &args) {
        ended.assert_line(1, "the disk is full: cannot write the archive small/runs.sqlite");
        assert!(!dir.path("out/live/record.json").exists(), "it never began");
    }
}

#[test]
fn an_archive_keeps_its_contents_if_the_disk_fills_during_a_run() {
    let dir = TestDir::new();
    let args = ["--out", "out", "--archive", "small/runs.sqlite"];
    if let Some(ended) = on_a_small_disk(&dir, "size=256k", FILL, LONGER, &args) {
        ended.assert_line(1, "the disk is full: cannot write the archive small/runs.sqlite");
        let record = dir.recorded("out");
        assert_eq!(
            (&record["connections"][0]["messages_sent"], &record["partial"]),
            (&400.into(), &false.into())
        );
        let list = dir.execute(&["records", "list", "--archive", "kept/runs.sqlite"]);
        assert!(list.status == 0 && list.out.contains("partial"), "{list:?}");
    }
}

#[test]
fn a_full_disk_for_a_received_file_keeps_the_record() {
    let dir = TestDir::new();
    dir.write("data.bin", noise(5_000_000));
    let text = r#"connection f { xmt = a; rcv = b; protocol = tcp; test = file (path = "data.bin"); }
        connection other { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 5 ms); messages = 100; }"#;
    if let Some(ended) = on_a_small_disk(&dir, "size=2m", ":;", text, &["--out", "small/out"]) {
        let words = "host b: writing small/out/live/files/f/b/data.bin: No space left on device";
        ended.assert_line(1, words);
        fs::rename(dir.path("kept/out"), dir.path("out")).unwrap();
        let record = assert_retained(&dir, words, &["f"]);
        assert_measured(&record, &["f"]);
        let part = fs::read(dir.path("out/live/files/f/b/data.bin")).unwrap();
        assert!(!part.is_empty() && noise(part.len()) == part, "received equals sent");
    }
}

#[test]
fn a_folder_that_may_not_be_written_is_named() {
    let dir = TestDir::new();
    if let Some(ended) = on_a_small_disk(&dir, "ro", ":;", SHORT, &["--out", "small/out"]) {
        ended.assert_line(1, "cannot prepare small/out/live: Read-only file system");
    }
    let dir = TestDir::new();
    let args = ["--out", "out", "--archive", "small/runs.sqlite"];
    if let Some(ended) = on_a_small_disk(&dir, "ro", ":;", SHORT, &args) {
        ended.assert_line(1, "cannot open the archive small/runs.sqlite");
    }
    let dir = TestDir::new();
    dir.write("out", "a file");
    dir.run(SHORT, &[]).assert_line(1, "cannot prepare out/live: Not a directory");
    dir.write("archive.sqlite", "This is not an archive but a text that must not be lost.");
    dir.execute(&["records", "list"]).assert_line(1, "archive.sqlite is not an archive of Trunkline");
}

#[test]
fn wrong_usage_is_an_error_of_one_line() {
    let dir = TestDir::new();
    dir.write("good.ns", SHORT);
    dir.write("latin.ns", b"# caf\xe9\n");
    for (args, words) in [
        (&["run", "none.ns"][..], "cannot read none.ns: No such file or directory"),
        (&["run", "."], "cannot read .: Is a directory"),
        (&["check", "latin.ns"], "latin.ns is not UTF-8 text: byte 5"),
        (&["run", "good.ns", "--on", "moon"], "there is no backend `moon`; use `live`, `lab` or `sim`"),
        (&["run", "good.ns", "--on", "sim"], "`sim` needs a network"),
        (&["run", "good.ns", "--on", "lab"], "the experiment has no network"),
        (&["run", "good.ns", "--set", "duratoin=2s"], "did you mean `duration`?"),
        (&["run", "good.ns", "--set", "duration=blue"], "expected a duration"),
        (&["run", "good.ns", "--set", "window=1 MB"], "has the option `window`"),
        (&["records", "list"], "there is no archive at"),
        (&["report", "none.json"], "cannot read none.json"),
        (&["compare", "good.ns", "good.ns"], "good.ns is not a record"),
        (&["agent", "--stdio", "a"], "standard input is not a socket"),
    ] {
        dir.execute(args).assert_line(2, words);
    }
    for args in [
        &["run"][..],
        &["run", "good.ns", "--at", "b=nowhere"],
        &["run", "good.ns", "--seed", "-1"],
        &["fly"],
    ] {
        let ended = dir.execute(args);
        assert!(ended.status == 2 && ended.err.starts_with("error: "), "{ended:?}");
    }
    assert!(!dir.path("trunkline-results").exists(), "nothing was run");
}

#[test]
fn what_live_cannot_do_is_refused_at_its_position() {
    for (connection, words) in [
        (
            "protocol = llc; test = full (messagesize = 1498);",
            "a message of 1498 B does not fit into a frame: the maximum is 1497 B",
        ),
        (
            "protocol = bundle (address = 21); test = poisson (messagesize = 99, rate = 1 /s);",
            "bundles need the converters of a `network`",
        ),
        ("protocol = udp; test = cbr (messagesize = 31, period = 1 ms);", "a message of 31 B is too small"),
        (
            "protocol = tcp (congestion = nonesuch); test = full;",
            "this kernel does not offer `congestion = nonesuch`",
        ),
        (
            "protocol = llc; test = file (path = \"x\", messagesize = 100);",
            "`live` has no test `file` over llc",
        ),
        (
            "protocol = stamp; test = cbr (messagesize = 43, period = 1 ms);",
            "a packet of 43 B is too small: STAMP needs 44 B",
        ),
    ] {
        let dir = TestDir::new();
        let text = format!("# One line above.\nconnection odd {{ xmt = a; rcv = b; {connection} }}\n");
        let ended = dir.run(&text, &[]);
        assert_eq!(ended.status, 2, "{ended:?}");
        assert!(ended.err.starts_with("error: odd: ") && ended.err.contains(words), "{}", ended.err);
        // At the protocol, or at the test.
        let asked = |word: &str| text.lines().nth(1).unwrap().find(word).unwrap() + 1;
        let places =
            [asked("protocol ="), asked("test =")].map(|column| format!("--> experiment.ns:2:{column}"));
        assert!(places.iter().any(|place| ended.err.contains(place)), "{}", ended.err);
        assert!(!ended.err.contains("trunkline:") && !dir.path("out").exists(), "{ended:?}");
    }
    let ended = TestDir::new().run(SHORT, &["--at", "z=127.0.0.1"]);
    assert!(
        ended.status == 2 && ended.err.contains("--at z: the experiment has no host of that name"),
        "{ended:?}"
    );
}

#[test]
fn mistakes_in_the_text_are_all_shown_and_nothing_runs() {
    let dir = TestDir::new();
    let ended = dir.run("connection c {\n  xmt = a; rcv = b;\n  protocol = tpc;\n  test = ful;\n}\n", &[]);
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    for words in ["experiment.ns:3:14", "did you mean `tcp`?", "experiment.ns:4:10", "did you mean `full`?"] {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
    assert!(!dir.path("out").exists() && !dir.path("archive.sqlite").exists());
}

#[test]
fn a_missing_file_to_send_is_named() {
    let dir = TestDir::new();
    let text = r#"connection f { xmt = a; rcv = b; protocol = tcp; test = file (path = "none.bin"); }"#;
    dir.run(text, &[]).assert_line(1, "host a: opening none.bin: No such file or directory");
    assert_retained(&dir, "opening none.bin", &["f"]);
}

#[test]
fn a_reader_who_leaves_does_not_change_how_the_run_went() {
    let dir = TestDir::new();
    dir.write("good.ns", SHORT);
    dir.write("bad.ns", SHORT.replace("= 100;\n}", "= 99;\n}"));
    for args in [&["check", "good.ns"][..], &["man"], &["run", "good.ns"], &["run", "good.ns", "--json"]] {
        let ended = Running::unread(dir.trunkline(args)).end();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}");
    }
    for args in [&["run", "bad.ns"][..], &["run", "bad.ns", "--json"]] {
        Running::unread(dir.trunkline(args)).end().assert_line(1, "an expectation failed");
    }
    let mut full = dir.trunkline(&["check", "good.ns"]);
    full.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = full.output().unwrap();
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(1), false));
}

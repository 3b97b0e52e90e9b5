//! Experiments over agents on loopback: the whole path from the plan to the record, with TLS, consent and clocks.

#![allow(clippy::disallowed_methods, reason = "agents run in real time")]

mod lab;

use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use trunkline_agent::KeyStore;
use trunkline_live::limits::RemoteLimits;
use trunkline_run::StopFlag;
use trunkline_traffic::{Pattern, Recording};
use trunkline_units::Span;

use crate::lab::{Lab, limits, plan};

#[test]
fn every_transport_runs_between_agents() {
    let lab = Lab::new(&["a", "b"], &limits());
    let record = lab.run(
        "experiment { parallel {
            connection udp { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 1 ms); messages = 300; }
            connection tcp { xmt = b; rcv = a; protocol = tcp; test = cbr (messagesize = 500, period = 1 ms); messages = 300; }
            connection guaranteed { xmt = a; rcv = b; protocol = guaranteed; test = cbr (messagesize = 500, period = 1 ms); messages = 300; }
            connection stamp { xmt = a; rcv = b; protocol = stamp; test = cbr (messagesize = 500, period = 2 ms); messages = 150; }
            connection requests { xmt = a; rcv = b; protocol = udp; test = request (request = 64, response = 640); messages = 50; }
            connection calls { xmt = b; rcv = a; protocol = tcp; test = request (request = 64, response = 640); messages = 50; }
            connection quic { xmt = a; rcv = b; protocol = quic; test = cbr (messagesize = 500, period = 1 ms); messages = 300; }
            connection mixed { xmt = c; rcv = a; protocol = guaranteed; test = request (request = 64, response = 640); messages = 50; }
        } }",
    );
    assert!(
        !record.partial,
        "{:?} {:?}",
        record.problems,
        record.connections.iter().map(|c| &c.error).collect::<Vec<_>>()
    );
    assert_eq!(record.connections.len(), 8);
    let starts: Vec<f64> = record.connections.iter().map(|c| c.repetitions[0].start_s).collect();
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    for c in &record.connections {
        assert_eq!((c.messages_received, c.lost), (c.messages_sent, 0), "{}", c.name);
        // Both machines are this one.
        let (delay, uncertainty) = (c.delay_us.as_ref().unwrap(), c.delay_uncertainty_us.unwrap());
        assert!(uncertainty > 0.0 && delay.count == c.messages_sent, "{}: {delay:?} {uncertainty}", c.name);
        assert!(c.notes.contains_key("receiver_address") && c.notes.contains_key("sender_address"));
    }
    for (name, answers) in [("requests", 50.0), ("calls", 50.0), ("mixed", 50.0), ("stamp", 150.0)] {
        let c = record.connections.iter().find(|c| c.name == name).unwrap();
        assert_eq!(c.counters["answers"], answers, "{name}");
        assert!(c.rtt_us.as_ref().is_some_and(|rtt| rtt.count == answers as u64), "{name}");
    }
}

#[test]
fn an_agent_that_dies_is_named_and_the_next_run_works() {
    let lab = Lab::new(&["a", "b"], &limits());
    let text = "experiment { connection c { xmt = a; rcv = b; protocol = udp;
        test = cbr (messagesize = 500, period = 1 ms); duration = 15 s; } }";
    let record = thread::scope(|scope| {
        scope.spawn(|| {
            lab.await_runs(1);
            thread::sleep(Duration::from_millis(1500));
            for stream in &*lab.agents[1].streams.lock().unwrap() {
                stream.shutdown(std::net::Shutdown::Both).unwrap();
            }
        });
        lab.run(text)
    });
    assert!(record.partial && record.duration_s < 14.0, "{} s", record.duration_s);
    let c = &record.connections[0];
    assert!(c.error.as_ref().is_some_and(|error| error.contains("host b")), "{:?}", c.error);
    assert!(c.messages_received > 0);
    let record = lab.run(&text.replace("15 s", "100 ms"));
    assert!(!record.partial, "{:?}", record.connections[0].error);
}

#[test]
fn a_revoked_controller_loses_its_run() {
    let lab = Lab::new(&["a", "b"], &limits());
    let agent = KeyStore::open(&lab.folder.path().join("a")).unwrap();
    let text = "experiment { connection c { xmt = a; rcv = b; protocol = udp;
        test = cbr (messagesize = 500, period = 1 ms); duration = 15 s; } }";
    let record = thread::scope(|scope| {
        scope.spawn(|| {
            lab.await_runs(1);
            thread::sleep(Duration::from_millis(1000));
            agent.revoke(&"ctl".parse().unwrap(), Timestamp::now()).unwrap();
        });
        lab.run(text)
    });
    assert!(record.partial && record.duration_s < 14.0);
    let error = record.connections[0].error.clone().unwrap();
    assert!(error.contains("host a") && error.contains(&lab.agents[0].address.to_string()), "{error}");
    let record = lab.run(text);
    assert!(record.partial && record.duration_s < 14.0);
    assert!(record.problems[0].contains("host a"), "{:?}", record.problems);
    let lines = lab.agents[0].log.lock().unwrap().clone();
    assert!(lines.iter().any(|line| line.contains("it was revoked (`ctl`)")), "{lines:?}");
}

#[test]
fn the_limits_of_the_owner_apply() {
    let small = RemoteLimits { bytes: 100_000, rate_bps: 2_000_000, duration: Span::from_s(5), ..limits() };
    let lab = Lab::new(&["a", "b"], &small);
    let run = |rest: &str| {
        let record = lab.run(&format!("experiment {{ connection c {{ xmt = a; rcv = b; {rest} }} }}"));
        let c = record.connections[0].clone();
        (c.error.clone().or(record.problems.first().cloned()).unwrap_or_default(), c)
    };
    let (error, c) = run("protocol = udp; test = full (messagesize = 1000); duration = 2 s;");
    assert!(error.contains("permits at most 100000 bytes a test"), "{error}");
    assert!((100_000..102_000).contains(&(c.messages_sent * 1000)), "{} messages", c.messages_sent);
    // 100 kB at 2 Mb/s take 400 ms.
    assert!(c.sent_bps < 2_200_000.0, "{} b/s", c.sent_bps);
    let (error, _) = run("protocol = tcp; test = full; duration = 6 s;");
    assert_eq!(
        error,
        "c: the agent of host a refuses it: the owner of the agent permits tests of at most 5 s"
    );
    let line = "refused `c` of `ctl`: the owner of the agent permits tests of at most 5 s";
    assert!(lab.agents[0].log.lock().unwrap().iter().any(|logged| logged == line));
    let (error, _) = run("protocol = tcp; test = file (path = \"/etc/hostname\");");
    // Both agents refuse it, and either may be the first to answer.
    assert!(error.contains("has named no folder for "), "{error}");
    let (error, _) =
        run("protocol = multicast (group = 239.1.2.3); test = cbr (messagesize = 100, period = 10 ms);");
    assert!(error.contains("does not permit the multicast group 239.1.2.3"), "{error}");
    let (error, _) = run("protocol = udp; test = cbr (messagesize = 100, period = 10 ms); messages = 20;");
    assert_eq!(error, "");
}

#[test]
fn repeated_frames_count_in_the_rate_limit() {
    let lab = Lab::new(&["a", "b"], &RemoteLimits { rate_bps: 4_000_000, ..limits() });
    let record = lab.run(
        "experiment { connection c { xmt = a; rcv = b; protocol = guaranteed (drop = 0.2, mode = selective);
            test = full (messagesize = 1000); duration = 1 s; } }",
    );
    let c = &record.connections[0];
    assert!(!record.partial && c.messages_received == c.messages_sent, "{:?}", c.error);
    assert!(c.notes["rate_limit"].contains("4000000 b/s"), "{:?}", c.notes);
    let [frames, resent, bytes] =
        ["sender_frames_sent", "sender_frames_resent", "sender_bytes_sent"].map(|name| c.counters[name]);
    assert!(resent > 0.1 * frames, "{resent} of {frames} frames");
    // 500 kB are permitted in 1 s; headers of frames and the last window are not counted.
    assert!(bytes < 600_000.0, "{bytes} B, {resent} of {frames} frames repeated");
}

#[test]
fn a_refusal_ends_the_run_before_any_end_opens() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "x").unwrap();
    let send_folder = Some(folder.path().to_owned());
    let (duration, memory) = (Span::from_s(5), 100 << 20);
    let lab = Lab::new(&["a", "b"], &RemoteLimits { duration, memory, send_folder, ..limits() });
    let connection = |name: &str, test: &str| {
        format!("connection {name} {{ xmt = a; rcv = b; protocol = tcp; test = {test}; }}")
    };
    let good = connection("good", "cbr (messagesize = 500, period = 10 ms); duration = 1 s");
    for (bad, host, cause) in [
        // Both agents refuse it, and either may be the first to answer.
        ("full (messagesize = 2 MB); duration = 1 s", "", "sends messages of at most 1 MiB"),
        ("sensor (sources = 1000000); duration = 1 s", "", "permits 100 MiB to a run"),
        ("full; duration = 6 s", "a refuses it: ", "permits tests of at most 5 s"),
        ("file (path = \"data\")", "b refuses it: ", "has named no folder for received files"),
    ] {
        let record = lab.run(&format!("experiment {{ {good} {} }}", connection("bad", bad)));
        let [problem] = &record.problems[..] else { panic!("{:?}", record.problems) };
        assert!(problem.starts_with(&format!("bad: the agent of host {host}")), "{problem}");
        assert!(problem.ends_with(cause), "{problem}");
        assert!(record.partial && record.connections.iter().all(|c| c.repetitions.is_empty()), "{bad}");
    }
}

#[test]
fn a_run_may_last_longer_than_other_connections() {
    let lab = Lab::new(&["a", "b"], &limits());
    // The agent waits 10 s for a request.
    let text = "experiment { connection c { xmt = a; rcv = b; protocol = udp;
        test = cbr (messagesize = 500, period = 50 ms); messages = 250; } }";
    let record = lab.run(text);
    assert!(!record.partial, "{:?}", record.connections[0].error);
    assert_eq!(record.connections[0].messages_received, 250);
}

#[test]
fn files_go_between_the_folders_of_the_owners() {
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = (folder.path().join("send"), folder.path().join("receive"));
    std::fs::create_dir(&send).unwrap();
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(send.join("data.bin"), &bytes).unwrap();
    let both = RemoteLimits {
        send_folder: Some(send),
        receive_folder: Some(receive.clone()),
        bytes: 350_000,
        ..limits()
    };
    let lab = Lab::new(&["a", "b"], &both);
    for protocol in ["tcp", "guaranteed", "udp", "quic"] {
        let test = "test = file (path = \"data.bin\", messagesize = 1000)";
        let record = lab.run(&format!(
            "experiment {{ connection c {{ xmt = a; rcv = b; protocol = {protocol}; {test}; }} }}"
        ));
        assert!(!record.partial, "{protocol}: {:?}", record.connections[0].error);
    }
    let received: Vec<_> = std::fs::read_dir(&receive).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(received.len(), 4, "{received:?}");
    for folder in received {
        assert!(std::fs::read(folder.join("data.bin")).unwrap() == bytes, "{folder:?}");
    }
    let record = lab.run(
        "experiment { connection c { xmt = a; rcv = b; protocol = tcp; test = file (path = \"../secret\"); } }",
    );
    let error = record.problems[0].clone();
    assert!(error.contains("no such file below the folder"), "{error}");
    // A file that is not there may appear until its connection opens.
    let record = lab.run(
        "experiment {
            connection first { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 1 ms); messages = 10; }
            connection c { xmt = a; rcv = b; protocol = tcp; test = file (path = \"later.bin\"); }
        }",
    );
    let [first, c] = &record.connections[..] else { panic!("two connections") };
    assert!(
        first.error.is_none() && first.messages_received == 10,
        "{:?} {:?}",
        first.error,
        record.problems
    );
    let error = c.error.clone().unwrap();
    assert!(error.contains("later.bin: no such file below the folder"), "{error}");
}

#[test]
fn long_responses_are_carried_at_the_limited_rate() {
    // 10 MB/s: 3 MB take 300 ms.
    let lab = Lab::new(&["a", "b"], &RemoteLimits { rate_bps: 80_000_000, ..limits() });
    for protocol in ["tcp", "quic"] {
        let record = lab.run(&format!(
            "experiment {{ connection c {{ xmt = a; rcv = b; protocol = {protocol};
                test = request (request = 64, response = 3 MB); messages = 2; }} }}"
        ));
        let c = &record.connections[0];
        assert!(!record.partial, "{protocol}: {:?} {:?}", c.error, record.problems);
        assert_eq!((c.counters["answers"], c.counters["answer_bytes"]), (2.0, 6e6), "{protocol}");
        let rtt = c.rtt_us.as_ref().unwrap();
        assert!(rtt.min > 290_000.0, "{protocol}: {} us for 3 MB", rtt.min);
    }
    let record = lab.run(
        "experiment { connection pages { xmt = a; rcv = b; protocol = guaranteed; test = www; duration = 1 s; } }",
    );
    let [problem] = &record.problems[..] else { panic!("{:?}", record.problems) };
    assert!(
        problem.ends_with("responses of at most 1 MiB over `guaranteed`: use `tcp` or `quic`"),
        "{problem}"
    );
}

#[test]
fn a_recording_is_sent_to_its_sender_only_and_refused_if_it_is_too_long() {
    let lab = Lab::new(&["a", "b"], &limits());
    let replay = |from: &str, count: i64| {
        let text = format!(
            "experiment {{ connection c {{ xmt = {from}; rcv = b; protocol = udp; test = full (messagesize = 100); messages = 50; }} }}"
        );
        let mut plan = plan(&text);
        let messages = (0..count).map(|number| (1_000_000_000_000 + number * 100_000, 100)).collect();
        let request = trunkline_traffic::RecordingRequest {
            path: "recorded.csv".into(),
            column: String::new(),
            filter: String::new(),
            values: trunkline_traffic::recording::RecordedValues::Sizes,
            message_bytes: 100.0,
        };
        plan.connections[0].test = Pattern::Replay {
            request,
            recording: Recording::new(messages).unwrap(),
            scale: 1.0,
            size_bytes: trunkline_traffic::Variable::Constant(100.0),
        };
        lab.run_plan(&plan, StopFlag::default())
    };
    // The host `c` is the controller's.
    for (from, count) in [("a", 10), ("a", 300_000), ("c", 1 << 20)] {
        let record = replay(from, count);
        assert!(!record.partial, "{from}, {count}: {:?} {:?}", record.connections[0].error, record.problems);
        assert_eq!(record.connections[0].messages_received, count.min(50) as u64);
    }
    let record = replay("a", 1 << 20);
    let [problem] = &record.problems[..] else { panic!("{:?}", record.problems) };
    assert!(problem.starts_with("c: its test has 17"), "{problem}");
    assert!(problem.ends_with("an agent on another host accepts 15.9 MiB"), "{problem}");
    assert!(record.partial && record.connections[0].repetitions.is_empty());
}

#[test]
fn a_full_agent_names_the_controllers_of_its_runs() {
    let lab = Lab::new(&["a", "b"], &limits());
    let text = "experiment { connection c { xmt = a; rcv = b; protocol = udp;
        test = cbr (messagesize = 500, period = 10 ms); duration = 10 s; } }";
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| lab.run_with(text, stop.clone()))).collect();
        lab.await_runs(2);
        let refused = lab.run(text);
        assert!(
            refused.problems[0].contains("permits 2 runs at a time, and has runs of: ctl"),
            "{:?}",
            refused.problems
        );
        stop.request();
        runs.into_iter().for_each(|run| drop(run.join().unwrap()));
    });
}

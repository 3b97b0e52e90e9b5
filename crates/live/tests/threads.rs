//! The backend as a library, with agents as threads of this process.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::support::{plan, run, run_observed, run_on, stopped_after};
use trunkline_live::{Launch, LaunchedAgent, Live, Threads};
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::{Backend, NoProgress, ProgressObserver, StopFlag};
use trunkline_units::Span;

#[test]
fn every_message_is_accounted_for() {
    let record = run(
        "experiment { parallel {
            connection t { xmt = a; rcv = b; protocol = tcp; test = full (messagesize = 100 kB); bytes = 14 MB; }
            connection u { xmt = b; rcv = a; protocol = udp; test = poisson (rate = 2000 /s); messages = 400; }
            connection m { xmt = a; rcv = b, c; protocol = multicast (group = 239.7.7.7);
                           test = cbr (messagesize = 500:3, period = 5 ms); messages = 90; }
            connection q { xmt = c; rcv = a; protocol = udp; test = request (request = 100, response = 1000); messages = 50; }
        } }",
    );
    assert!(!record.partial, "{:?}", record.problems);
    let of = |name: &str| record.connections.iter().find(|c| c.name == name).unwrap();
    assert_eq!((of("t").messages_sent, of("t").messages_received, of("t").lost), (140, 140, 0));
    for c in &record.connections {
        let copies = c.to.len() as u64;
        assert_eq!(c.messages_received + c.lost + c.corrupted, c.messages_sent * copies, "{}", c.name);
        assert_eq!(c.corrupted, 0, "{}", c.name);
        assert!(c.delay_us.is_some() && c.cpu.sender_system_s >= 0.0);
    }
    assert_eq!((of("u").messages_sent, of("m").messages_sent, of("m").receivers.len()), (400, 90, 2));
    assert_eq!(of("q").counters["answers"] + of("q").counters["unanswered"], 50.0);
    assert!(of("q").rtt_us.is_some() && of("u").rtt_us.is_none());
    assert!(record.connections.iter().all(|c| c.stages_us.is_empty()));
}

/// The group's receivers share a port and an address; each answers, and writes its own file.
#[test]
fn requests_and_files_reach_every_member_of_a_group() {
    let record = run("experiment { serial {
            connection q { xmt = a; rcv = b, c, d; protocol = multicast (group = 239.7.7.8);
                           test = request (request = 100, response = 200); messages = 40; }
            connection f { xmt = a; rcv = b, c (rcvbuf = 4 kB); protocol = multicast (group = 239.7.7.9);
                           test = file (path = \"Cargo.toml\", messagesize = 100); }
        } }");
    let of = |name: &str| record.connections.iter().find(|c| c.name == name).unwrap();
    let q = of("q");
    assert_eq!((q.messages_sent, q.receivers.len(), q.error.as_ref()), (40, 3, None));
    for r in &q.receivers {
        assert_eq!(r.answers.unwrap() + r.unanswered.unwrap(), 40, "{r:?}");
        assert!(r.answers.unwrap() > 0, "each receiver has its number: {r:?}");
    }
    let answers: u64 = q.receivers.iter().map(|r| r.answers.unwrap()).sum();
    assert_eq!((q.counters["answers"], q.counters["answer_bytes"]), (answers as f64, answers as f64 * 200.0));
    assert_eq!(q.rtt_us.as_ref().unwrap().count, answers);
    let f = of("f");
    for r in &f.receivers {
        assert_eq!(r.messages_received + r.lost, f.messages_sent);
        assert_eq!(r.error.is_some(), r.lost > 0, "{r:?}");
    }
    assert_eq!(f.partial, f.receivers.iter().any(|r| r.lost > 0));
}

/// 200,000 periods of 1 µs, far more than can be sent: `burst` skips late blocks, `burstq` sends each.
#[test]
fn late_blocks_are_skipped_or_queued() {
    let block = |kind: &str, from: u16, stop: &str| {
        format!(
            "cluster {{
                test a {{ type = {kind} (blocksize = 60000, period = 1, {stop}); protocol = tcp; own = a:{from}; peer = b; }}
                test b {{ type = sink (blocksize = 60000, {stop}); protocol = tcp; own = b; peer = a:{from}; }}
            }}"
        )
    };
    let text = [
        block("burst", 0, "duration = 0.2"),
        block("burstq", 0, "duration = 0.2"),
        block("burst", 0, "repeats = 300"),
        block("burstq", 0, "repeats = 300"),
    ];
    let text = text.map(|block| block.replace(":0", ""));
    let record = run(&format!("serial {{ {} }}", text.concat()));
    assert!(!record.partial, "{:?}", record.problems);
    let counts = |index: usize| {
        let c = &record.connections[index];
        (c.messages_sent, c.requested.bursts_skipped, c.requested.bursts_late)
    };
    for index in [0, 1] {
        let (sent, skipped, _) = counts(index);
        assert_eq!(sent + skipped, 200_000, "each block was sent or skipped");
        assert!(skipped > 0);
    }
    assert!(counts(2).0 == 300 && counts(2).1 > 0, "{:?}", counts(2));
    assert!(counts(3).0 == 300 && counts(3).1 == 0 && counts(3).2 > 0, "{:?}", counts(3));
}

/// The laws of models over sockets: what arrives is what left. A busy machine sends late, so p-values are not tested.
#[test]
fn models_are_compared_at_both_ends() {
    let record = run("experiment { parallel {
            connection v { xmt = a; rcv = b; protocol = udp; duration = 2 s;
                           test = voice (talk = exponential(20 ms), silence = exponential(20 ms), frame = uniform(40, 200), period = 2 ms); }
            connection f { xmt = a; rcv = b; protocol = tcp; duration = 2 s;
                           test = ftp (sessionInterarrival = exponential(50 ms), itemSize = uniform(100, 5000), itemGap = exponential(5 ms), messagesize = 500); }
            connection w { xmt = a; rcv = b; protocol = tcp; duration = 2 s;
                           test = www (reading = exponential(5 ms), objectGap = 0 s, main = uniform(100, 200000)); }
            connection g { xmt = a; rcv = b; protocol = guaranteed; duration = 2 s;
                           test = www (model = 3gpp, reading = exponential(5 ms), parse = 0 s); }
        } }");
    assert!(!record.partial, "{:?}", record.problems);
    for c in &record.connections {
        let fits = &c.requested.variables;
        assert!(!fits.is_empty() && fits.iter().all(|fit| fit.samples > 0), "{}: {fits:?}", c.name);
        if let Some(pages) = c.counters.get("pages") {
            assert!(*pages > 0.0 && c.counters["answers"] == c.messages_sent as f64, "{}", c.name);
            continue;
        }
        assert_eq!(c.counters["items_differing"], 0.0, "{}", c.name);
        for (sent, received) in fits.iter().filter(|fit| fit.unit == "bytes").zip(&c.requested.received) {
            assert!(received.samples <= sent.samples && received.samples > 0, "{}: {received:?}", c.name);
        }
    }
}

/// Agents on a system that lacks some measures.
struct WithoutMeasures(usize);

impl Launch for WithoutMeasures {
    fn launch(&self, host: &str) -> std::io::Result<LaunchedAgent> {
        let agent = Threads.launch(host)?;
        let (ours, theirs) = UnixStream::pair()?;
        // The agent's first message, then what it sends itself.
        let missing: Vec<String> = (0..self.0).map(|number| format!("{host} {number}")).collect();
        let mut to_controller = theirs.try_clone()?;
        to_controller.write_all(format!("{}\n", serde_json::json!({ "Missing": missing })).as_bytes())?;
        let (mut from_agent, mut to_agent, mut from_controller) =
            (agent.stream.try_clone()?, agent.stream, theirs);
        std::thread::spawn(move || std::io::copy(&mut from_controller, &mut to_agent));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_agent, &mut to_controller);
            let _ = to_controller.shutdown(Shutdown::Both);
        });
        Ok(LaunchedAgent { stream: ours, ..agent })
    }
}

#[test]
fn record_names_what_a_host_lacks() {
    let text = "experiment { connection u { xmt = a; rcv = b; protocol = udp;
                test = cbr (messagesize = 100, period = 1 ms); messages = 10; } }";
    let missing = |agents: Box<dyn Launch + Send>| {
        let record = run_on(agents, text, StopFlag::default(), &mut NoProgress);
        assert!(!record.partial, "{:?}", record.problems);
        let hosts = record.hosts.into_iter().map(|host| (host.name, host.missing));
        hosts.collect::<Vec<_>>()
    };
    assert_eq!(missing(Box::new(Threads)), [("a".into(), vec![]), ("b".into(), vec![])]);
    let two = |host: &str| (host.to_owned(), vec![format!("{host} 0"), format!("{host} 1")]);
    assert_eq!(missing(Box::new(WithoutMeasures(2))), [two("a"), two("b")]);
    assert!(missing(Box::new(WithoutMeasures(1000))).iter().all(|(_, names)| names.len() == 64));
}

#[test]
fn a_stop_retains_measurements() {
    let text = "experiment { serial {
            connection first { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 1 ms); duration = 1 h; }
            connection never { xmt = a; rcv = b; protocol = tcp; test = full; duration = 1 s; }
        } }";
    // On a busy machine nothing may have arrived before the stop: retry with a later one.
    let stopped = |ms| stopped_after(ms, text);
    let mut records = [750, 6_000, 45_000].into_iter().map(stopped);
    let record = records.find(|record| record.connections[0].messages_received > 0);
    let record = record.expect("measurements are retained");
    assert!(record.partial && !record.problems.is_empty());
    let (first, never) = (&record.connections[0], &record.connections[1]);
    assert!(
        first.partial && first.messages_received > 0 && first.error.as_deref() == Some("stopped on request")
    );
    assert!(never.partial && never.messages_sent == 0 && never.repetitions.is_empty());
}

#[test]
fn unsupported_plans_are_refused_by_name() {
    let live =
        Live::new(Box::new(Threads), BTreeMap::from([("unknown".into(), "127.0.0.1".parse().unwrap())]));
    let mut unsupported = plan(
        "experiment {
            connection a { xmt = x; rcv = y; protocol = bundle (address = 1); test = cbr (period = 1 s); }
            connection b { xmt = x; rcv = y; protocol = stamp; test = cbr (period = 1 s); }
            connection c { xmt = x; rcv = y; protocol = udp; test = cbr (messagesize = 10, period = 1 ms); }
            connection full { xmt = x; rcv = y; protocol = tcp; test = full (messagesize = 1400); }
            connection voice { xmt = x; rcv = y; protocol = tcp; test = voice; }
        }",
    );
    // What the language refuses may come from elsewhere.
    for (to, from) in [(0, 3), (1, 4)] {
        unsupported.connections[to].test = unsupported.connections[from].test.clone();
    }
    let refusals = live.refuse(&unsupported);
    let texts: Vec<&str> = refusals.iter().map(|r| r.text.as_str()).collect();
    assert!(texts[0].starts_with("a: `live` has no test `full` over bundle"), "{texts:?}");
    assert!(texts[1].starts_with("b: `live` has no test `voice` over stamp"), "{texts:?}");
    assert!(texts[2].starts_with("c: a message of 10 B is too small"), "{texts:?}");
    assert!(texts[3].starts_with("--at unknown"), "{texts:?}");
    assert!(refusals[0].location.start > 0);
}

#[test]
fn guaranteed_transport_loses_nothing() {
    let file = std::env::temp_dir().join(format!("trunkline-guaranteed-{}", std::process::id()));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let text = format!(
        "experiment {{ parallel {{
            connection full {{ xmt = a; rcv = b; protocol = guaranteed (mode = selective, window = 256, congestion = paced, frame = 1472 B);
                               test = full (messagesize = 8192); messages = 3000; }}
            connection lossy {{ xmt = b; rcv = a; protocol = guaranteed (drop = 0.05, alter = 0.05, timeout = 20 ms);
                                test = cbr (messagesize = 20000, period = 2 ms); messages = 200; }}
            connection requests {{ xmt = a; rcv = b; protocol = guaranteed (drop = 0.01); test = request (request = 64, response = 5000); messages = 300; }}
            connection large {{ xmt = a; rcv = b (rcvbuf = 256 kB); protocol = guaranteed (window = 64, frame = 60000 B);
                                test = full (messagesize = 10 MB); messages = 3; }}
            connection file {{ xmt = a; rcv = b; protocol = guaranteed; test = file (path = \"{}\"); }}
        }} }}",
        file.display()
    );
    let record = run(&text);
    let _ = std::fs::remove_file(&file);
    assert!(!record.partial, "{:?}", record.problems);
    for c in &record.connections {
        assert_eq!((c.messages_received, c.lost, c.duplicated), (c.messages_sent, 0, 0), "{}", c.name);
        assert_eq!((c.reordered, c.corrupted), (0, 0), "{}", c.name);
    }
    let of = |name: &str| record.connections.iter().find(|c| c.name == name).unwrap();
    let sent = ["full", "lossy", "requests", "large"].map(|name| of(name).messages_sent);
    assert_eq!(sent, [3000, 200, 300, 3]);
    let lossy = &of("lossy").counters;
    assert!(lossy["sender_frames_eaten"] > 0.0 && lossy["sender_frames_resent"] > 0.0, "{lossy:?}");
    // The receiver may have ended before the last altered frames, which are repetitions, reach it.
    let (bad, altered) = (lossy["receiver_bad_checksums"], lossy["sender_checksums_altered"]);
    assert!(altered > 10.0 && (altered - 2.0..=altered).contains(&bad), "{lossy:?}");
    assert_eq!(of("requests").counters["answers"], 300.0);
    for (name, every) in [("full", 128), ("lossy", 16), ("requests", 16)] {
        let (c, of) = (of(name), |stage: &str| of(name).stages_us[stage].as_ref().map(|d| d.count));
        assert_eq!(
            (of("copy_in"), of("copy_out")),
            (Some(c.messages_sent / every), Some(c.messages_sent / every))
        );
        let frames = Some(c.counters["sender_frames_sent"] as u64 / every);
        assert_eq!((of("frame"), of("seal")), (frames, frames), "{name}");
        for stage in ["send", "network", "waiting", "receive", "open", "join"] {
            assert!(of(stage).is_some_and(|count| count > 0), "{name}: {stage} of {}", c.messages_sent);
        }
        // Requests arrive one by one, and those that a waiting caller takes directly are sampled too.
        assert!(name != "requests" || of("receive") >= Some(c.messages_sent / every), "{:?}", of("receive"));
        assert_eq!((of("queued"), c.stages_us.len()), (None, 11));
        assert!(c.notes["stages"].starts_with(&format!("one message or frame in {every};")));
    }
    assert_eq!(of("file").counters["file_bytes"], bytes.len() as f64);
}

/// Stores the reports of a run.
#[derive(Default)]
struct Reports(Vec<(usize, RepetitionOutcome)>);

impl ProgressObserver for Reports {
    fn progress(&mut self, _: Span, _: Option<Span>) {}

    fn report_interval(&self) -> Option<Span> {
        Some(Span::from_ms(100))
    }

    fn report(&mut self, connection: usize, outcome: &RepetitionOutcome) {
        self.0.push((connection, outcome.clone()));
    }
}

#[test]
fn an_observer_sees_what_the_ends_report() {
    let mut reports = Reports::default();
    let record = run_observed(
        "experiment {
            connection t { xmt = a; rcv = b; protocol = tcp; test = full; duration = 1 s; }
            connection g { xmt = a; rcv = b; protocol = guaranteed; test = full; duration = 1 s; }
        }",
        StopFlag::default(),
        &mut reports,
    );
    for (index, c) in record.connections.iter().enumerate() {
        let of_connection: Vec<_> = reports.0.iter().filter(|(i, _)| *i == index).map(|(_, o)| o).collect();
        let messages = |o: &RepetitionOutcome| o.receivers[0].1.as_ref().map_or(0, |r| r.arrivals.messages);
        assert!(of_connection.len() > 2 && of_connection.is_sorted_by_key(|o| messages(o)), "{}", c.name);
        assert_eq!(messages(of_connection[of_connection.len() - 1]), c.messages_received);
        // Only the final report has counters.
        let running =
            of_connection.iter().filter_map(|o| o.sender.as_ref()).filter(|s| s.counters.is_empty());
        let rtt = running.filter_map(|s| s.samples.last()?.1.get("rtt_us").copied()).next_back();
        assert!(rtt.is_some_and(|rtt| rtt > 0.0), "{}", c.name);
    }
}

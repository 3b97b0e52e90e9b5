//! The backend as a library, with agents as threads of this process.

use std::collections::BTreeMap;

use crate::support::{plan, run, run_observed, stopped_after};
use trunkline_live::{Live, Threads};
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::{Backend, ProgressObserver, StopFlag};
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
    let refusals = live.refuse(&plan(
        "experiment {
            connection a { xmt = x; rcv = y; protocol = bundle (address = 1); test = full; }
            connection b { xmt = x; rcv = y; protocol = stamp; test = voice; }
            connection c { xmt = x; rcv = y; protocol = udp; test = cbr (messagesize = 10, period = 1 ms); }
        }",
    ));
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

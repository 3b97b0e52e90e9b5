//! The experiments of the AAI report and of NetSpec 3's pages with stairs, mixes and emulated traffic.

use crate::common::{connection, near, run};

const DAY: &str = include_str!("../../../experiments/sc95-day.ns");
const EMULATED: &str = include_str!("../../../experiments/netspec3-emulated.ns");
const MIXES: &str = include_str!("../../../experiments/mixes.ns");

/// Messages of the stairs: 15 Mb/s · min of 1250 B.
const MESSAGES: u64 = 90_000;

/// Checks `repetitions` of the stair-step pattern.
fn check_stairs(repetitions: u64) {
    let text = DAY.replace("repeat 48", &format!("repeat {repetitions}"));
    let text = text.replace("4320000", &(repetitions * MESSAGES).to_string());
    let record = run(&text);
    assert!(!record.partial, "{:?}", record.problems);
    assert!(record.expectations.iter().all(|e| e.passed), "{:?}", record.expectations);
    let stairs = connection(&record, "stairs");
    assert_eq!(stairs.repetitions.len() as u64, repetitions);
    for (index, r) in stairs.repetitions.iter().enumerate() {
        // The first starts when its connection is open: after a round trip.
        assert!((0.0..0.03).contains(&(r.start_s - index as f64 * 1_800.0)), "{}", r.start_s);
        assert_eq!((r.messages_sent, r.messages_received), (MESSAGES, MESSAGES));
        near(r.sent_bps, 3e6, 1e-4);
    }
    // The bytes of each step of the first repetition.
    for step in 0..5 {
        let (from, to) = (f64::from(step) * 60.0, f64::from(step + 1) * 60.0);
        let mut last = 0.0;
        let mut bits = 0.0;
        for point in &stairs.series {
            let (a, b) = (f64::max(last, from), f64::min(point.t_s, to));
            bits += point.received_bps * (b - a).max(0.0);
            last = point.t_s;
        }
        near(bits / 60.0, f64::from(step + 1) * 1e6, 0.02);
    }
}

#[test]
fn the_stair_steps_of_sc95_are_reached() {
    check_stairs(2);
}

#[test]
#[cfg_attr(not(feature = "soak"), ignore = "simulates a day")]
fn soak_the_day_of_stair_steps_runs() {
    check_stairs(48);
}

#[test]
fn emulated_traffic_of_netspec_3_runs_as_the_models() {
    let record = run(EMULATED);
    assert!(!record.partial, "{:?}", record.problems);
    let models: Vec<&str> = record.connections.iter().map(|c| c.test.split(' ').next().unwrap()).collect();
    assert_eq!(models, ["ftp", "telnet", "voice", "www"]);
    for c in &record.connections {
        assert_eq!((c.lost, c.corrupted), (0, 0), "{}", c.name);
        assert!(c.messages_sent > 0 && c.messages_received == c.messages_sent, "{}", c.name);
        for fit in &c.requested.variables {
            assert!(fit.p_value.is_none_or(|p| p > 1e-3), "{} {}: {:?}", c.name, fit.name, fit.p_value);
        }
    }
    let fit = |index: usize, name: &str| {
        let fits = &record.connections[index].requested.variables;
        fits.iter().find(|fit| fit.name == name).unwrap_or_else(|| panic!("no {name}: {fits:?}"))
    };
    // 0.00001 a microsecond above 1 ms: a session every 101 ms, about 198 in 20 s.
    let sessions = fit(0, "sessionInterarrival");
    near(sessions.requested_mean.unwrap(), 101_000.0, 1e-3);
    assert!((150..250).contains(&sessions.samples), "{}", sessions.samples);
    near(fit(1, "sessionInterarrival").requested_mean.unwrap(), 501_000.0, 1e-3);
    near(fit(3, "reading").requested_mean.unwrap(), 501_000.0, 1e-3);
}

#[test]
fn the_mixes_run() {
    // A tenth of the duration, because this is a slow build.
    let record = run(&MIXES.replace("5 min", "30 s"));
    assert!(!record.partial, "{:?}", record.problems);
    assert!(record.expectations.iter().all(|e| e.passed), "{:?}", record.expectations);
    for c in &record.connections {
        assert_eq!(c.messages_received + c.lost, c.messages_sent, "{}", c.name);
        assert!(c.messages_sent > 0, "{}", c.name);
        // A large item delays those behind it, so the times of `many` are not as requested, and the record says so.
        for fit in c.requested.variables.iter().filter(|fit| c.name != "many" || fit.unit != "us") {
            assert!(fit.p_value.is_none_or(|p| p > 1e-3), "{} {}: {:?}", c.name, fit.name, fit.p_value);
        }
    }
    for name in ["there", "back", "there-loaded", "back-loaded"] {
        assert!(connection(&record, name).messages_sent > 200, "{name}");
    }
    // Ten times as many sessions.
    let sessions = |name: &str| connection(&record, name).counters["sessions"];
    assert!((5.0..20.0).contains(&(sessions("many") / sessions("files"))));
}

//! The validation cases of ns-3's example `tcp-validation` (examples/tcp/tcp-validation.cc). There the flow starts at 5 s, and
//! figures from the first message on come a round trip later.

use crate::common::{connection, near, run};
use trunkline_record::schema::Point;

const TEXT: &str = include_str!("../../../experiments/tcp-validation.ns");
/// Payload of a segment.
const SEGMENT: f64 = 1448.0;

/// Runs the experiment with changes of its text; returns its time series, in seconds of ns-3.
fn series(rtt_ms: u32, changes: &[(&str, &str)]) -> Vec<Point> {
    let delay = format!("delay = {} ms", rtt_ms / 2);
    let mut text = TEXT.replace("delay = 25 ms", &delay);
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let record = run(&text);
    let mut series = connection(&record, "x").series.clone();
    series.iter_mut().for_each(|point| point.t_s += 5.0 + f64::from(rtt_ms) / 1e3);
    series
}

/// Returns the congestion windows in segments from one time to another.
fn windows(series: &[Point], from: f64, to: f64) -> Vec<f64> {
    let within = series.iter().filter(|point| (from..to).contains(&point.t_s));
    within.filter_map(|point| point.extra.get("cwnd_bytes")).map(|bytes| bytes / SEGMENT).collect()
}

fn largest(windows: &[f64]) -> f64 {
    windows.iter().copied().fold(0.0, f64::max)
}

/// The cases `cubic-50ms`. ns-3's slow start ends by the acknowledgement train of HyStart (Ha and Rhee 2011), near 505 segments;
/// RFC 9406 has no such end. From there on both are the same.
#[test]
fn cubic_has_the_windows_of_ns3() {
    let threshold = "reno_friendly = off, initial_ssthresh = 731240 B";
    let series = series(50, &[("reno_friendly = off", threshold)]);
    near(largest(&windows(&series, 5.3, 5.7)), 511.0, 0.05);
    // Three reductions by 0.3.
    let (before, after) = (windows(&series, 5.6, 5.78), windows(&series, 5.81, 6.0));
    assert!(before.iter().all(|window| *window > 190.0), "{before:?}");
    near(after[0], 173.0, 0.05);
    near(largest(&windows(&series, 13.0, 15.5)), 236.0, 0.05);
    near(largest(&windows(&series, 16.5, 18.6)), 234.0, 0.05);
}

/// Returns the largest and the least throughput in Mb/s in intervals of 200 ms or more, from one time to another.
fn throughput(series: &[Point], from: f64, to: f64) -> (f64, f64) {
    let (mut bits, mut since, mut end) = (0.0, 0.0, series[0].t_s);
    let (mut least, mut most) = (f64::MAX, 0.0f64);
    for point in series {
        let length = point.t_s - std::mem::replace(&mut end, point.t_s);
        (bits, since) = (bits + point.received_bps * length, since + length);
        if since > 0.199 {
            if (from..to).contains(&point.t_s) {
                (least, most) = (least.min(bits / since / 1e6), most.max(bits / since / 1e6));
            }
            (bits, since) = (0.0, 0.0);
        }
    }
    assert!(least <= most, "no interval from {from} to {to} s");
    (least, most)
}

const DCTCP: [(&str, &str); 2] = [
    ("congestion = cubic, hystart = off, reno_friendly = off, window = 32 MB", "congestion = dctcp"),
    ("queue = codel", "queue = codel (ecn = on, ce_threshold = 1 ms)"),
];

#[test]
fn dctcp_has_the_throughput_of_ns3_at_10_ms() {
    let series = series(10, &DCTCP);
    let (least, most) = throughput(&series, 5.8, 20.0);
    assert!(least >= 48.0 && most <= 49.0, "{least} to {most}");
}

/// The first marks halve the window again and again, as the share starts at 1; then it grows by a segment in a round trip.
#[test]
fn dctcp_has_the_throughput_of_ns3_at_80_ms() {
    let series = series(80, &[DCTCP[0], DCTCP[1], ("duration = 15 s", "duration = 35 s")]);
    let (_, early) = throughput(&series, 5.3, 14.0);
    assert!(early < 20.0, "{early}");
    let (_, rising) = throughput(&series, 14.0, 30.0);
    assert!(rising < 48.0, "{rising}");
    let (least, most) = throughput(&series, 32.0, 39.9);
    assert!(least >= 47.5 && most <= 48.5, "{least} to {most}");
}

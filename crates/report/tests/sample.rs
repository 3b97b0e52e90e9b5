//! Invented but plausible records, for tests and for inspection.

use std::collections::BTreeMap;

use trunkline_record::histogram::Histogram;
use trunkline_record::repeats;
use trunkline_record::schema::*;
use trunkline_units::{Seed, Span, random::Stream};

const TEXT: &str = r#"experiment "Three flows on one trunk" {
  parallel {
    connection B-A { xmt = b; rcv = a; protocol = udp; test = cbr (messagesize = 1250, period = 100 us); }
    connection C-A { xmt = c (xmtbuf = 256 kB); rcv = a; protocol = tcp (window = 256 kB); test = full (messagesize = 64 kB); }
    connection D-A { xmt = d; rcv = a; protocol = udp; test = poisson (messagesize = 150, rate = 1000 /s); }
  }
  expect B-A.received_bps > 95 Mb/s;
  expect B-A.delay_us.p99 < 200 us;
  expect D-A.lost = 0;
}
"#;

/// Returns a record as if measured on `backend`.
pub(crate) fn record(backend: &str) -> Record {
    let random = &mut Seed(7).stream(backend);
    let outcome = |text: &str, expected, measured, passed| Outcome {
        text: text.into(),
        expected,
        measured: Some(measured),
        passed,
    };
    Record {
        backend: backend.into(),
        started: "2026-03-14T09:26:53Z".into(),
        duration_s: 10.4,
        environment: texts(&[
            ("program", "trunkline 0.1.0"),
            ("system", if backend == "sim" { "–" } else { "Linux 6.12.48" }),
            ("machine", "two cores, 2.9 GHz"),
        ]),
        experiment: Experiment {
            name: "Three flows on one trunk".into(),
            hash: "5d41402abc4b2a76b9719d911017c592ae3f1e0a".into(),
            text: TEXT.into(),
        },
        connections: [cbr(random), tcp(random), poisson(random)]
            .map(|c| if backend == "sim" { slower(c) } else { c })
            .into(),
        links: vec![Link {
            name: "s-a".into(),
            utilization: 0.91,
            dropped: 12,
            queue_max: 150_000,
            ..Link::default()
        }],
        hosts: ["a", "b"].map(host).into(),
        expectations: vec![
            outcome("B-A.received_bps > 95 Mb/s", 95e6, 99.98e6, true),
            outcome("B-A.delay_us.p99 < 200 us", 200.0, 131.0, true),
            outcome("D-A.lost = 0", 0.0, 3.0, false),
        ],
        ..Record::default()
    }
}

/// Returns the connection as a simulator might have predicted it.
fn slower(mut c: Connection) -> Connection {
    c.received_bps *= 0.97;
    c.series.iter_mut().for_each(|p| p.received_bps *= 0.97);
    for d in [&mut c.delay_us, &mut c.rtt_us].into_iter().flatten() {
        for value in [&mut d.min, &mut d.p50, &mut d.p90, &mut d.p99, &mut d.p999, &mut d.max, &mut d.mean] {
            *value *= 0.8;
        }
        d.curve.iter_mut().for_each(|point| point.1 *= 0.8);
    }
    c
}

fn texts(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
    texts.iter().map(|&(key, value)| (key.into(), value.into())).collect()
}

fn host(name: &str) -> Host {
    Host { name: name.into(), cpu_percent: 37.5, address: Some("127.0.0.1".into()), ..Host::default() }
}

/// Returns times of `base` and an exponential tail, with rare outliers.
fn times(random: &mut Stream, base_us: f64, tail_us: f64) -> Option<Distribution> {
    let mut h = Histogram::default();
    for _ in 0..100_000 {
        let rare = if random.chance(2e-4) { 40.0 } else { 1.0 };
        h.record(Span::from_seconds((base_us - tail_us * rare * random.unit().ln()) / 1e6));
    }
    h.distribution_us()
}

/// Returns a rate with random variation.
fn series(random: &mut Stream, bps: f64, variation: f64) -> Vec<Point> {
    let mut rate = || bps * (1.0 - variation * random.unit());
    (1..=100)
        .map(|i| Point {
            t_s: f64::from(i) / 10.0,
            sent_bps: rate(),
            received_bps: rate(),
            ..Point::default()
        })
        .collect()
}

fn connection(name: &str, transport: &str, test: &str, bps: f64) -> Connection {
    let repetition = |i: u32| Repetition {
        start_s: 0.2 + f64::from(i),
        duration_s: 10.0,
        sent_bps: bps,
        received_bps: bps * (1.0 + f64::from(i) / 1000.0),
        ..Repetition::default()
    };
    let repetitions: Vec<Repetition> = (0..3).map(repetition).collect();
    Connection {
        name: name.into(),
        transport: transport.into(),
        test: test.into(),
        from: name[..1].to_lowercase(),
        to: vec!["a".into()],
        sent_bps: bps,
        received_bps: bps * 0.9998,
        messages_sent: 100_000,
        messages_received: 99_997,
        repeats: repeats::summarize(&repetitions),
        repetitions,
        cpu: Cpu { sender_user_s: 4.1, sender_system_s: 1.2, receiver_user_s: 0.4, receiver_system_s: 0.9 },
        counters: [("system_calls".into(), 200_311.0), ("packets_sent".into(), 100_000.0)].into(),
        ..Connection::default()
    }
}

fn cbr(random: &mut Stream) -> Connection {
    Connection {
        offered_bps: Some(1e8),
        delay_us: times(random, 18.0, 9.0),
        gap_us: times(random, 95.0, 5.0),
        sent_gap_us: times(random, 98.0, 2.0),
        late_us: times(random, 0.4, 0.6),
        requested: SendAccuracy {
            rate_error: Some(-0.00012),
            gap_distance: Some(0.0103),
            gap_samples: 99_999,
            bursts_late: 14,
            ..SendAccuracy::default()
        },
        notes: texts(&[("pacing", "sleep, then spin"), ("sender_offload", "none")]),
        series: series(random, 1e8, 0.01),
        ..connection("B-A", "udp", "cbr 1250 B every 100 us", 1e8)
    }
}

fn tcp(random: &mut Stream) -> Connection {
    let mut series = series(random, 8.2e9, 0.15);
    let mut window = 10.0 * 1448.0;
    for (i, point) in series.iter_mut().enumerate() {
        window = if i % 23 == 22 { window / 2.0 } else { (window * 1.4_f64).min(1.6e6) + 2e4 };
        let rtt = 60.0 + window / 2e4 + 8.0 * random.unit();
        let lost = if i % 23 == 22 { 2.0 } else { 0.0 };
        point.extra =
            [("cwnd_bytes".into(), window), ("rtt_us".into(), rtt), ("retransmissions".into(), lost)].into();
    }
    let mut c = Connection {
        delay_us: times(random, 110.0, 60.0),
        rtt_us: times(random, 60.0, 25.0),
        gap_us: times(random, 40.0, 22.0),
        notes: texts(&[("congestion", "cubic")]),
        series,
        ..connection("C-A", "tcp", "full 64 kB", 7.6e9)
    };
    c.counters.insert("retransmissions".into(), 8.0);
    c
}

fn poisson(random: &mut Stream) -> Connection {
    let curve = (0..=60).map(|i| {
        let us = f64::from(i) * 100.0;
        let requested = 1.0 - (-us / 1000.0).exp();
        (us, requested, (requested + 0.008 * (us / 700.0).sin() * (1.0 - requested)).clamp(0.0, 1.0))
    });
    let fit = Fit {
        name: "gap".into(),
        law: "exponential(1 ms)".into(),
        unit: "us".into(),
        requested_mean: Some(1000.0),
        sent_mean: 1001.3,
        distance: 0.0071,
        p_value: Some(0.68),
        outcome: Some(FitOutcome::Follows),
        samples: 9_999,
        worst: None,
        curve: curve.collect(),
    };
    Connection {
        offered_bps: Some(1.2e6),
        lost: 3,
        delay_us: times(random, 19.0, 12.0),
        gap_us: times(random, 0.0, 1000.0),
        sent_gap_us: times(random, 0.0, 1000.0),
        requested: SendAccuracy {
            rate_error: Some(0.0013),
            gap_distance: Some(0.0071),
            gap_p_value: Some(0.68),
            gap_samples: 9_999,
            variables: vec![fit],
            ..SendAccuracy::default()
        },
        series: series(random, 1.24e6, 0.08),
        ..connection("D-A", "udp", "poisson 150 B at 1000 /s", 1.2e6)
    }
}

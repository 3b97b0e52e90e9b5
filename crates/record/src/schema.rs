//! The record: what a run measured, as it stands in `record.json` and in the archive.
//!
//! Names end in their unit. Rates count message bytes only (goodput). A figure that is unknown is `null`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_units::Seed;

/// Version of this schema; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// One run of an experiment on one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// `live`, `sim` or `lab`.
    pub backend: String,
    /// What every random stream was drawn from.
    pub seed: Seed,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Whether something kept it from being whole; `trouble` says what.
    pub partial: bool,
    /// One clear line for each thing that went wrong.
    #[serde(default)]
    pub trouble: Vec<String>,
    /// What measured: program, system, machine. Keys are words, values are text.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What was asked.
    pub experiment: Experiment,
    /// What came of it.
    pub connections: Vec<Connection>,
    /// Links, where the backend has them.
    pub links: Vec<Link>,
    /// Interfaces of the machine on which the run was, against time. Only of live runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Stations.
    pub hosts: Vec<Host>,
    /// Expectations of the experiment, judged.
    #[serde(default)]
    pub expectations: Vec<Outcome>,
}

/// A record of this version in which nothing has happened.
impl Default for Record {
    fn default() -> Self {
        Record {
            version: VERSION,
            backend: String::new(),
            seed: Seed::default(),
            started: String::new(),
            duration_s: 0.0,
            partial: false,
            trouble: Vec::new(),
            environment: BTreeMap::new(),
            experiment: Experiment::default(),
            connections: Vec::new(),
            links: Vec::new(),
            interfaces: Vec::new(),
            hosts: Vec::new(),
            expectations: Vec::new(),
        }
    }
}

/// What was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// SHA-256 over the plan, hexadecimal: the same for two texts that mean the same.
    pub hash: String,
    /// The text as it was run.
    pub text: String,
}

/// What one connection did, over all its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name.
    pub name: String,
    /// Protocol: `tcp`, `udp`, …
    pub transport: String,
    /// The test in words: `cbr 18432:5 every 20 ms`.
    #[serde(default)]
    pub test: String,
    /// Sending host.
    pub from: String,
    /// Receiving hosts.
    pub to: Vec<String>,
    /// Whether this connection was cut short; `trouble` says why.
    #[serde(default)]
    pub partial: bool,
    /// One clear line.
    #[serde(default)]
    pub trouble: Option<String>,
    /// What the plan asked for; null where it asked for as much as possible.
    pub offered_bps: Option<f64>,
    /// What was handed to the transport.
    pub sent_bps: f64,
    /// What arrived; with several receivers, their mean.
    pub received_bps: f64,
    /// Messages handed to the transport.
    pub messages_sent: u64,
    /// Messages that arrived, each once; with several receivers, their sum.
    pub messages_received: u64,
    /// Messages that did not arrive.
    pub lost: u64,
    /// Arrivals of a message that had arrived before.
    pub duplicated: u64,
    /// Arrivals behind a later message.
    pub reordered: u64,
    /// Arrivals whose bytes were not those sent.
    pub corrupted: u64,
    /// One way, message to message.
    pub delay_us: Option<Distribution>,
    /// Request to response; for TCP bulk, the kernel's own estimates.
    pub rtt_us: Option<Distribution>,
    /// Between arrivals.
    pub gap_us: Option<Distribution>,
    /// Between departures.
    #[serde(default)]
    pub sent_gap_us: Option<Distribution>,
    /// How much later than planned messages left.
    #[serde(default)]
    pub late_us: Option<Distribution>,
    /// Asked against sent.
    pub asked: Asked,
    /// Each run; more than one under `repeat`.
    pub runs: Vec<Run>,
    /// Over the runs, by figure: `received_bps`, `delay_us.p50`, … Present from two runs on.
    #[serde(default)]
    pub repeats: BTreeMap<String, Interval>,
    /// Processor time at both ends.
    pub cpu: Cpu,
    /// The transport's own counts, and system calls, buffers, packets. Names are words, units last.
    pub counters: BTreeMap<String, f64>,
    /// Where the time goes: of each stage of a message's way, how long it took; null where that is not known. Empty but
    /// for the transport `guaranteed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages_us: BTreeMap<String, Option<Distribution>>,
    /// What was true of the measurement: `offload`, `pacing`, `congestion`, … as text.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
    /// Receivers one by one, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
    /// Against time since the connection's first message.
    pub series: Vec<Point>,
}

/// What one receiver of several saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiver {
    /// Its host.
    pub host: String,
    /// As in [`Connection`].
    pub received_bps: f64,
    /// As in [`Connection`].
    pub messages_received: u64,
    /// As in [`Connection`].
    pub lost: u64,
    /// As in [`Connection`].
    pub delay_us: Option<Distribution>,
}

/// A distribution, told by its percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values counted.
    #[serde(default)]
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    #[serde(default)]
    pub sd: f64,
    /// Points of the cumulative distribution, `[share at or below, value]`, both ascending, dense in the tail.
    #[serde(default)]
    pub curve: Vec<(f64, f64)>,
}

/// How well what left matches what was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// (sent − asked) / asked, of the rate of message bytes.
    pub rate_error: Option<f64>,
    /// Distance between the gaps that left and the gaps asked: the largest difference of the two cumulative
    /// distributions (Kolmogorov–Smirnov) where the law is continuous; for a constant gap, the mean absolute
    /// deviation over the gap. 0 is perfect.
    pub gap_distance: Option<f64>,
    /// Chance of a distance this large if the law held (Kolmogorov–Smirnov); null for constants.
    #[serde(default)]
    pub gap_p_value: Option<f64>,
    /// Gaps that were compared.
    #[serde(default)]
    pub gap_samples: u64,
    /// Bursts not sent because they were late (`burst`).
    #[serde(default)]
    pub bursts_skipped: u64,
    /// Bursts sent after their time by more than a tenth of the period or 50 µs, whichever is more.
    #[serde(default)]
    pub bursts_late: u64,
    /// Each law of the traffic, judged.
    #[serde(default)]
    pub variables: Vec<Fit>,
}

/// One law against what was drawn and sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// What varied: `gap`, `size`, `response`, …
    pub name: String,
    /// The law as text: `exponential(1 ms)`.
    pub law: String,
    /// Unit of the values below: `us`, `bytes`, ….
    pub unit: String,
    /// Mean the law asks for.
    pub asked_mean: Option<f64>,
    /// Mean of what left.
    pub sent_mean: f64,
    /// As [`Asked::gap_distance`].
    pub distance: f64,
    /// As [`Asked::gap_p_value`].
    pub p_value: Option<f64>,
    /// Values compared.
    pub samples: u64,
    /// `[value, share asked at or below, share sent at or below]`, for a plot.
    pub curve: Vec<(f64, f64, f64)>,
}

/// One run of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, seconds since the experiment began.
    pub start_s: f64,
    /// How long its sender was active, seconds.
    pub duration_s: f64,
    /// As in [`Connection`].
    pub offered_bps: Option<f64>,
    /// As in [`Connection`].
    pub sent_bps: f64,
    /// As in [`Connection`].
    pub received_bps: f64,
    /// As in [`Connection`].
    pub messages_sent: u64,
    /// As in [`Connection`].
    pub messages_received: u64,
    /// As in [`Connection`].
    pub lost: u64,
    /// Median one-way delay.
    pub delay_p50_us: Option<f64>,
    /// 99th percentile of the one-way delay.
    pub delay_p99_us: Option<f64>,
    /// Median round trip.
    pub rtt_p50_us: Option<f64>,
    /// Whether it was cut short.
    pub partial: bool,
}

/// A figure over the runs of a `repeat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Runs.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation (of a sample).
    pub sd: f64,
    /// Lower end of the 95 % confidence interval of the mean (Student's t).
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Processor seconds of the threads that served a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Sender, user code.
    pub sender_user_s: f64,
    /// Sender, system code.
    pub sender_system_s: f64,
    /// Receivers, user code.
    pub receiver_user_s: f64,
    /// Receivers, system code.
    pub receiver_system_s: f64,
}

/// One interval of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the interval.
    pub t_s: f64,
    /// In this interval.
    pub sent_bps: f64,
    /// In this interval.
    pub received_bps: f64,
    /// More figures by name: `cwnd_bytes`, `rtt_us`, `retransmissions`, …
    #[serde(default, flatten)]
    pub more: BTreeMap<String, f64>,
}

/// A link, where the backend has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Share of the payload rate in use, 0 to 1, the busier direction.
    pub utilization: f64,
    /// Frames dropped.
    pub dropped: u64,
    /// Most that waited, in bytes.
    pub queue_max: u64,
    /// What each of its ends sent, against time. Only of simulated runs of which that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<LinkEnd>,
}

/// What one end of a link, or a station of a hub or ring, sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The node at which it is.
    pub node: String,
    /// What is counted beside octets: `frames` or `cells`.
    pub unit: String,
    /// `[seconds since the run began, octets, frames or cells, dropped]`, counted from the run's begin on.
    pub counts: Vec<(f64, u64, u64, u64)>,
}

/// What an interface counted, whoever used it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// `[seconds since the run began, [octets, packets, dropped in, octets, packets, dropped out]]`, counted from the first of
    /// them on.
    pub counts: Vec<(f64, [u64; 6])>,
}

/// A station.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its processor's share in use, 0 to 100 a processor.
    pub cpu_percent: f64,
    /// Where it was: an address.
    #[serde(default)]
    pub address: Option<String>,
    /// Counters of its interfaces over the run: `lo.rx_packets`, …
    #[serde(default)]
    pub interfaces: BTreeMap<String, u64>,
}

/// An expectation, judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// As written.
    pub text: String,
    /// What was expected, as a number in the figure's unit.
    pub expected: f64,
    /// What was measured; null where there is no such figure.
    pub measured: Option<f64>,
    /// Whether it held.
    pub held: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with something in every field, and numbers that are hard to write.
    fn full() -> Record {
        let hard = [0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, 1e300 / 7.0, -0.0];
        let words = |key: &str| BTreeMap::from([(key.to_owned(), "\u{1b}[31m<b>\u{0}\"".to_owned())]);
        let d = Distribution {
            count: u64::MAX,
            p50: hard[0],
            p90: hard[1],
            min: hard[2],
            max: hard[3],
            mean: hard[4],
            curve: vec![(0.5, hard[0]), (1.0, hard[1])],
            ..Distribution::default()
        };
        let some = || Some(d.clone());
        let fit = Fit { p_value: Some(hard[1]), curve: vec![(hard[0], 0.5, hard[1])], ..Fit::default() };
        let connection = Connection {
            trouble: Some("cut".into()),
            offered_bps: Some(hard[0]),
            lost: u64::MAX,
            delay_us: some(),
            rtt_us: some(),
            gap_us: some(),
            sent_gap_us: some(),
            late_us: some(),
            asked: Asked { rate_error: Some(hard[1]), variables: vec![fit], ..Asked::default() },
            runs: vec![Run { delay_p50_us: Some(hard[0]), ..Run::default() }],
            repeats: [("lost".to_owned(), Interval { mean: hard[1], ..Interval::default() })].into(),
            counters: [("segments".to_owned(), 9e15)].into(),
            stages_us: [("send".to_owned(), some()), ("seal".to_owned(), None)].into(),
            notes: words("pacing"),
            receivers: vec![Receiver { delay_us: some(), ..Receiver::default() }],
            series: vec![Point {
                t_s: hard[0],
                more: [("rtt_us".to_owned(), hard[1])].into(),
                ..Point::default()
            }],
            ..Connection::default()
        };
        Record {
            seed: Seed(u64::MAX),
            trouble: vec!["a".into()],
            environment: words("program"),
            connections: vec![connection, Connection::default()],
            links: vec![Link { queue_max: 7, ..Link::default() }],
            interfaces: vec![Interface { name: "lo".into(), counts: vec![(hard[0], [u64::MAX; 6])] }],
            hosts: vec![Host { interfaces: [("lo.rx".to_owned(), 3)].into(), ..Host::default() }],
            expectations: vec![Outcome { measured: None, expected: hard[1], ..Outcome::default() }],
            ..Record::default()
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for record in [full(), Record::default()] {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        }
    }

    #[test]
    fn the_contract_alone_is_a_record() {
        // What is promised to others, and nothing of what was added since.
        let text = r#"{ "version": 1, "backend": "sim", "seed": 7, "started": "2026-01-02T03:04:05Z", "duration_s": 1,
            "partial": false, "experiment": { "name": "n", "hash": "00", "text": "" },
            "connections": [ { "name": "B-A", "transport": "udp", "from": "b", "to": ["a"], "offered_bps": null,
                "sent_bps": 1, "received_bps": 1, "messages_sent": 1, "messages_received": 1, "lost": 0,
                "duplicated": 0, "reordered": 0, "corrupted": 0, "rtt_us": null, "gap_us": null,
                "delay_us": { "min": 1, "p50": 1, "p90": 1, "p99": 1, "p999": 1, "max": 1, "mean": 1 },
                "asked": { "rate_error": null, "gap_distance": null }, "runs": [],
                "cpu": { "sender_user_s": 0, "sender_system_s": 0, "receiver_user_s": 0, "receiver_system_s": 0 },
                "counters": {}, "series": [ { "t_s": 1, "sent_bps": 1, "received_bps": 1 } ] } ],
            "links": [ { "name": "a-b", "utilization": 0.5, "dropped": 0, "queue_max": 0 } ],
            "hosts": [ { "name": "a", "cpu_percent": 1 } ] }"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(record.connections[0].delay_us.as_ref().unwrap().p99, 1.0);
        assert!(record.connections[0].stages_us.is_empty());
        assert!(!serde_json::to_string(&record).unwrap().contains("stages_us"));
    }
}

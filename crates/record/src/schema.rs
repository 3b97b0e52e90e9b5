//! The record of a run, as in `record.json` and in the archive.
//!
//! Names of fields with a unit end with it: `_bps`, `_us`, `_s`, `_bytes`. Rates count message bytes only (goodput, RFC 2647).
//! Unknown numbers are `null`.
//!
//! Records of earlier versions stay readable: a new field has `serde(default)`, and no field changes its name in JSON
//! (hence `serde(rename)` where the name in Rust is clearer). A test demands a row for every field in docs/record.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_units::Seed;

/// Version of this schema; incremented when the meaning of a field changes.
pub const VERSION: u32 = 1;

/// The record of one run of an experiment on one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The schema version, [`VERSION`].
    pub version: u32,
    /// `live`, `sim` or `lab`.
    pub backend: String,
    /// The seed of all random streams.
    pub seed: Seed,
    /// When the run began: UTC, RFC 3339.
    pub started: String,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Whether the record is incomplete; `problems` gives the reasons.
    pub partial: bool,
    /// One line per problem.
    #[serde(default, rename = "trouble")]
    pub problems: Vec<String>,
    /// The program, system and machine of the run, as text.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The experiment.
    pub experiment: Experiment,
    /// The measurements of the connections.
    pub connections: Vec<Connection>,
    /// Links, if the backend has them.
    pub links: Vec<Link>,
    /// Switches. Only in simulated runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<Switch>,
    /// Counters of the machine's interfaces over time. Only in live runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The results of the expectations.
    #[serde(default)]
    pub expectations: Vec<Outcome>,
}

/// An empty record of this version.
impl Default for Record {
    fn default() -> Self {
        Record {
            version: VERSION,
            backend: String::new(),
            seed: Seed::default(),
            started: String::new(),
            duration_s: 0.0,
            partial: false,
            problems: Vec::new(),
            environment: BTreeMap::new(),
            experiment: Experiment::default(),
            connections: Vec::new(),
            links: Vec::new(),
            switches: Vec::new(),
            interfaces: Vec::new(),
            hosts: Vec::new(),
            expectations: Vec::new(),
        }
    }
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The name.
    pub name: String,
    /// SHA-256 of the plan in hexadecimal: equal for two texts with the same meaning.
    pub hash: String,
    /// The source text.
    pub text: String,
}

/// The measurements of a connection over all its repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The name.
    pub name: String,
    /// The protocol: `tcp`, `udp`, …
    pub transport: String,
    /// The test as text: `cbr 18432 B x 5 every 20 ms`.
    #[serde(default)]
    pub test: String,
    /// The sending host.
    pub from: String,
    /// The receiving hosts.
    pub to: Vec<String>,
    /// Whether the connection was aborted; `error` gives the reason.
    #[serde(default)]
    pub partial: bool,
    /// The reason in one line.
    #[serde(default, rename = "trouble")]
    pub error: Option<String>,
    /// The rate requested by the plan; null if it requests the maximum.
    pub offered_bps: Option<f64>,
    /// The rate handed to the transport, over the sending time.
    pub sent_bps: f64,
    /// The same messages over the time of `received_bps`: a transport with a large buffer takes messages faster than it sends them, so
    /// that `sent_bps` may be above the rate of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_until_last_bps: Option<f64>,
    /// The received rate; with several receivers their mean.
    pub received_bps: f64,
    /// Messages handed to the transport.
    pub messages_sent: u64,
    /// Received messages without duplicates; with several receivers their sum.
    pub messages_received: u64,
    /// Messages that were sent and did not arrive, not even corrupted; with several receivers their sum.
    pub lost: u64,
    /// Duplicate arrivals.
    pub duplicated: u64,
    /// Messages that arrived after a later one.
    pub reordered: u64,
    /// Arrivals with altered bytes.
    pub corrupted: u64,
    /// One-way delay of messages.
    pub delay_us: Option<Distribution>,
    /// Maximum error of the one-way delays, if the hosts have clocks of their own; without it they are exact.
    /// `delay_us` is null if a clock stepped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_uncertainty_us: Option<f64>,
    /// Round-trip time: from request to response, or the kernel's estimate for TCP bulk transfers.
    pub rtt_us: Option<Distribution>,
    /// Time between arrivals.
    pub gap_us: Option<Distribution>,
    /// Time between departures.
    #[serde(default)]
    pub sent_gap_us: Option<Distribution>,
    /// What a closed loop would have measured instead of `rtt_us`. Only of open-loop requests (`rpc`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop_rtt_us: Option<Distribution>,
    /// Delay of departures after their due time.
    #[serde(default)]
    pub late_us: Option<Distribution>,
    /// Requested versus sent traffic.
    #[serde(rename = "asked")]
    pub requested: SendAccuracy,
    /// The repetitions; more than one with `repeat`.
    #[serde(rename = "runs")]
    pub repetitions: Vec<Repetition>,
    /// Statistics over the repetitions by metric: `received_bps`, `delay_us.p50`, … Empty with fewer than two repetitions.
    #[serde(default)]
    pub repeats: BTreeMap<String, Interval>,
    /// Processor time of sender and receivers.
    pub cpu: Cpu,
    /// Counters and gauges of the transport, of system calls, buffers and packets. Names end with their unit if they have
    /// one; docs/record.md lists them.
    pub counters: BTreeMap<String, f64>,
    /// Time that messages spend in each stage of their path; null if unknown. Only for the transport `guaranteed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages_us: BTreeMap<String, Option<Distribution>>,
    /// Conditions of the measurement as text: `sender_offload`, `receiver_offload`, `pacing`, `congestion`, …
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
    /// The receivers, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
    /// Time series since the first message of the connection.
    pub series: Vec<Point>,
}

/// The measurements of one of several receivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiver {
    /// Its host.
    pub host: String,
    /// See [`Connection`].
    pub received_bps: f64,
    /// See [`Connection`].
    pub messages_received: u64,
    /// See [`Connection`].
    pub lost: u64,
    /// See [`Connection`].
    pub delay_us: Option<Distribution>,
    /// Responses of this receiver that arrived in time; only of requests to a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Requests that this receiver did not answer in time; only of requests to a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Why this receiver failed, in one line: its file is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A distribution with its percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values.
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

/// How accurately the sent traffic matches the requested traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendAccuracy {
    /// (sent − requested) / requested, of the rate of message bytes.
    pub rate_error: Option<f64>,
    /// Distance between sent and requested gaps: the Kolmogorov–Smirnov distance for a continuous distribution, the mean
    /// absolute deviation divided by the gap for a constant. 0 is perfect.
    pub gap_distance: Option<f64>,
    /// Probability of at least this distance if the gaps follow the requested distribution (Kolmogorov–Smirnov); null for
    /// constants.
    #[serde(default)]
    pub gap_p_value: Option<f64>,
    /// Number of compared gaps.
    #[serde(default)]
    pub gap_samples: u64,
    /// Bursts that were not sent: because the next one was already due (`burst`), or because the time limit had passed.
    #[serde(default)]
    pub bursts_skipped: u64,
    /// Late bursts: sent after their due time by more than a tenth of the period or 50 µs, whichever is greater.
    #[serde(default)]
    pub bursts_late: u64,
    /// The fit of each random variable of the traffic.
    #[serde(default)]
    pub variables: Vec<Fit>,
    /// (sent − due) / due, of the bytes of an application model that were due in the sending time. `rate_error` compares with the
    /// mean rate of the model instead, which a short run need not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_error: Option<f64>,
    /// The same at the receivers: the values of an application model as they arrived. With several receivers or repetitions, each
    /// variable where it fits worst.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<Fit>,
}

/// The requested distribution of a random variable compared with the sent values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The variable: `gap`, `size`, `response`, …
    pub name: String,
    /// The requested distribution as text: `exponential(1 ms)`.
    pub law: String,
    /// Unit of the values below: `us`, `bytes`, ….
    pub unit: String,
    /// Mean of the requested distribution; null if it has none.
    #[serde(rename = "asked_mean")]
    pub requested_mean: Option<f64>,
    /// Mean of the sent values.
    pub sent_mean: f64,
    /// See [`SendAccuracy::gap_distance`].
    pub distance: f64,
    /// See [`SendAccuracy::gap_p_value`].
    pub p_value: Option<f64>,
    /// Whether the values follow the distribution, at a level of 1 %: one correct sample in a hundred differs. Null without a
    /// p-value.
    #[serde(default, rename = "verdict")]
    pub outcome: Option<FitOutcome>,
    /// Number of compared values.
    pub samples: u64,
    /// Which of several samples this is, if there are several: of repetitions, and at receivers of these too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// `[value, share requested at or below, share sent at or below]`, for a plot.
    pub curve: Vec<(f64, f64, f64)>,
}

/// Which of several samples was the worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    /// The sending or receiving host.
    pub host: String,
    /// The repetition, from 0.
    pub repetition: u64,
    /// Number of samples.
    pub of: u64,
}

/// Whether values follow a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FitOutcome {
    /// The p-value is at least 1 %.
    Follows,
    /// The p-value is below 1 %.
    Differs,
}

/// One repetition of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Start in seconds since the start of the experiment.
    pub start_s: f64,
    /// The sending time in seconds.
    pub duration_s: f64,
    /// See [`Connection`].
    pub offered_bps: Option<f64>,
    /// See [`Connection`].
    pub sent_bps: f64,
    /// See [`Connection`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_until_last_bps: Option<f64>,
    /// See [`Connection`].
    pub received_bps: f64,
    /// See [`Connection`].
    pub messages_sent: u64,
    /// See [`Connection`].
    pub messages_received: u64,
    /// See [`Connection`].
    pub lost: u64,
    /// Median one-way delay.
    pub delay_p50_us: Option<f64>,
    /// 99th percentile of the one-way delay.
    pub delay_p99_us: Option<f64>,
    /// Median round-trip time.
    pub rtt_p50_us: Option<f64>,
    /// Whether the repetition was aborted.
    pub partial: bool,
}

/// Statistics of a metric over the repetitions of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Number of repetitions.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation.
    pub sd: f64,
    /// Lower end of the 95 % confidence interval of the mean (Student's t).
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Processor time in seconds of the threads of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Sender, user mode.
    pub sender_user_s: f64,
    /// Sender, system mode.
    pub sender_system_s: f64,
    /// Receivers, user mode.
    pub receiver_user_s: f64,
    /// Receivers, system mode.
    pub receiver_system_s: f64,
}

/// One interval of a time series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the interval in seconds.
    pub t_s: f64,
    /// Rate in this interval.
    pub sent_bps: f64,
    /// Rate in this interval.
    pub received_bps: f64,
    /// Other metrics by name: `cwnd_bytes`, `rtt_us`, `retransmissions`, …
    #[serde(default, flatten)]
    pub extra: BTreeMap<String, f64>,
}

/// The measurements of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The name.
    pub name: String,
    /// Fraction of the payload rate in use, 0 to 1, of the busier direction.
    pub utilization: f64,
    /// Frames lost, on ATM cells: the sum of `dropped_queue` and `lost_line`.
    pub dropped: u64,
    /// Frames dropped at a full queue. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_queue: Option<u64>,
    /// Frames lost for any other cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_line: Option<u64>,
    /// Frames damaged in transit, which a switch, a host or AAL5 drops later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<u64>,
    /// Packets that failed AAL5 reassembly at an end of this link. Only on ATM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aal5_failed: Option<u64>,
    /// The credits of its virtual channels. Only on ATM links with credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<Credits>,
    /// Resource-management cells that were sent into it. Only on ATM links of a network with explicit rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rm_cells: Option<u64>,
    /// Maximum queue length in bytes.
    pub queue_max: u64,
    /// The queues at its ends. Only with a queue discipline, a shaper, a policer or a trace, or if the link changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<LinkQueue>,
    /// Counters of its ends over time. In a lab, and in simulated runs that request them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<LinkEnd>,
}

/// The queue at one end of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkQueue {
    /// The node that sends from it.
    pub name: String,
    /// The discipline, as in the language.
    pub discipline: String,
    /// Frames dropped because the queue was full.
    pub dropped_full: u64,
    /// Frames that the discipline dropped although there was room.
    pub dropped_early: u64,
    /// Frames that the policer dropped.
    pub policed: u64,
    /// Frames marked with Congestion Experienced.
    pub marked: u64,
    /// Time from the arrival of a frame to the begin of its transmission.
    pub sojourn_us: Option<Distribution>,
}

/// What the ends of a link with credits sent to report free buffers; both directions together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Credits {
    /// Credit cells sent.
    pub credit_cells: u64,
    /// Check cells sent, by senders without credit or at intervals.
    pub check_cells: u64,
    /// Credit and check cells lost or damaged.
    pub lost: u64,
    /// Maximum number of cells of one channel in the buffers of the receiving node; never above `credits`.
    pub buffers_max: u64,
}

/// Losses inside a switch. Its output queues belong to the links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// The name.
    pub name: String,
    /// Frames dropped because too many were inside.
    pub dropped_full: u64,
    /// Frames dropped because they were damaged in transit.
    pub dropped_damaged: u64,
    /// Frames dropped because no port leads to their destination.
    pub dropped_no_route: u64,
}

/// Counters of one end of a link, or of a station of a hub or ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The node of this end.
    pub node: String,
    /// The unit counted beside octets: `frames` or `cells`.
    pub unit: String,
    /// `[seconds since the start of the run, octets, frames or cells, dropped]`, counted from the start of the run.
    pub counts: Vec<(f64, u64, u64, u64)>,
}

/// Counters of an interface, including the traffic of other processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// `[seconds since the start of the run, [octets, packets, dropped in, octets, packets, dropped out]]`, counted
    /// from the first entry.
    pub counts: Vec<(f64, [u64; 6])>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The name.
    pub name: String,
    /// Processor usage in percent, up to 100 per processor.
    pub cpu_percent: f64,
    /// Its address.
    #[serde(default)]
    pub address: Option<String>,
    /// Counters of its interfaces over the run: `lo.rx_packets`, …
    #[serde(default)]
    pub interfaces: BTreeMap<String, u64>,
    /// What the statement `measure` has read of its kernel over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Measures that its operating system lacks; none on Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Counters and gauges of a host's kernel over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The names: `eth0.rx_bytes`, `tcp.segments_retransmitted`, `cpu.user_s`, …
    pub names: Vec<String>,
    /// `[seconds since the start of the run, [values in the order of the names]]`, as the kernel has them. At most 1,200;
    /// of more, every other is dropped.
    pub rows: Vec<(f64, Vec<f64>)>,
}

/// The result of an expectation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The source text.
    pub text: String,
    /// The bound in the unit of the metric.
    pub expected: f64,
    /// The measured value; null if the record does not have the metric.
    pub measured: Option<f64>,
    /// Whether the expectation passed.
    #[serde(rename = "held")]
    pub passed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with a value in every field, and numbers that are hard to print.
    fn full() -> Record {
        let hard = [0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, 1e300 / 7.0, -0.0];
        let texts = |key: &str| BTreeMap::from([(key.to_owned(), "\u{1b}[31m<b>\u{0}\"".to_owned())]);
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
            error: Some("cut".into()),
            offered_bps: Some(hard[0]),
            lost: u64::MAX,
            delay_us: some(),
            delay_uncertainty_us: Some(hard[1]),
            rtt_us: some(),
            gap_us: some(),
            sent_gap_us: some(),
            closed_loop_rtt_us: some(),
            late_us: some(),
            requested: SendAccuracy {
                rate_error: Some(hard[1]),
                variables: vec![fit],
                ..SendAccuracy::default()
            },
            repetitions: vec![Repetition { delay_p50_us: Some(hard[0]), ..Repetition::default() }],
            repeats: [("lost".to_owned(), Interval { mean: hard[1], ..Interval::default() })].into(),
            counters: [("segments".to_owned(), 9e15)].into(),
            stages_us: [("send".to_owned(), some()), ("seal".to_owned(), None)].into(),
            notes: texts("pacing"),
            receivers: vec![Receiver { delay_us: some(), ..Receiver::default() }],
            series: vec![Point {
                t_s: hard[0],
                extra: [("rtt_us".to_owned(), hard[1])].into(),
                ..Point::default()
            }],
            ..Connection::default()
        };
        Record {
            seed: Seed(u64::MAX),
            problems: vec!["a".into()],
            environment: texts("program"),
            connections: vec![connection, Connection::default()],
            links: vec![Link {
                queue_max: 7,
                lost_line: Some(0),
                queues: vec![LinkQueue { marked: 3, sojourn_us: some(), ..LinkQueue::default() }],
                ..Link::default()
            }],
            switches: vec![Switch { dropped_full: 1, ..Switch::default() }],
            interfaces: vec![Interface { name: "lo".into(), counts: vec![(hard[0], [u64::MAX; 6])] }],
            hosts: vec![Host {
                interfaces: [("lo.rx".to_owned(), 3)].into(),
                measured: Some(Measured { names: vec!["a".into()], rows: vec![(hard[0], vec![hard[1]])] }),
                ..Host::default()
            }],
            expectations: vec![Outcome { measured: None, expected: hard[1], ..Outcome::default() }],
            ..Record::default()
        }
    }

    #[test]
    fn records_round_trip() {
        for record in [full(), Record::default()] {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        }
    }

    #[test]
    fn record_format_1_is_readable() {
        // Only the fields of the first program version that wrote records.
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
        // Fields that a record lacks are not written as zero.
        let text = serde_json::to_string(&record).unwrap();
        assert!(["stages_us", "dropped_queue", "switches"].iter().all(|field| !text.contains(field)));
    }
}

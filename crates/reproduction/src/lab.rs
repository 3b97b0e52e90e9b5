//! Experiments that run in the simulator and in the lab, and the comparison of their records.
//!
//! Simulated hosts cost nothing, and those of the lab what the machine costs; the links are the same. So equal figures mean that
//! the simulated transports do as those of the kernel, and that the lab carries packets in time.

use serde_json::json;
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution};

/// Largest deviation of a throughput from the simulated one.
pub const THROUGHPUT_TOLERANCE: f64 = 0.05;
/// Largest deviation of a median delay.
pub const DELAY_TOLERANCE: f64 = 0.1;
/// The row of all connections of an experiment.
const SUM: &str = "sum";
/// Version of the JSON.
const VERSION: u32 = 1;

/// An experiment that both run.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name, and that of its file without the extension.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Why the throughput of a single connection is not judged, but only the sum of all.
    shares: Option<&'static str>,
}

/// How connections divide a queue among them depends on which packet it drops, and that on microseconds.
const FIFO_SHARES: Option<&str> = Some("shares of one queue differ from run to run");

macro_rules! experiment {
    ($name:literal) => {
        experiment!($name, None)
    };
    ($name:literal, $shares:expr) => {
        Experiment {
            name: $name,
            text: include_str!(concat!("../../../experiments/lab/", $name, ".ns")),
            shares: $shares,
        }
    };
}

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    experiment!("dumbbell", FIFO_SHARES),
    experiment!("parking-lot"),
    experiment!("windows"),
    experiment!("mismatch"),
    experiment!("hub"),
    experiment!("multicast"),
    experiment!("cubic-bbr", FIFO_SHARES),
    experiment!("fq-codel"),
    experiment!("priority"),
    experiment!("shaper"),
    experiment!("loss"),
    experiment!("changing-link"),
    experiment!("web"),
];

/// A figure of the simulator and of the lab.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Simulated.
    pub sim: f64,
    /// In the lab.
    pub lab: f64,
}

/// What a connection, or one of several receivers of it, has done in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The connection, and the receiver if there are several.
    pub name: String,
    /// Received payload, in b/s.
    pub throughput: Pair,
    /// Median delay in microseconds: the round trip where the transport or the test has one, else one way.
    pub delay: Option<Pair>,
    /// Lost messages, simulated and in the lab.
    pub lost: [u64; 2],
    /// Why the throughput is not judged.
    pub reason: Option<&'static str>,
}

impl Pair {
    fn of<T: ?Sized>(sim: &T, lab: &T, figure: impl Fn(&T) -> f64) -> Pair {
        Pair { sim: figure(sim), lab: figure(lab) }
    }

    /// Returns the deviation of the lab from the simulator; 0 if both are 0.
    pub fn deviation(self) -> f64 {
        if self.lab == self.sim { 0.0 } else { self.lab / self.sim - 1.0 }
    }

    fn is_within(self, tolerance: f64) -> bool {
        self.deviation().abs() <= tolerance
    }
}

impl Row {
    /// Returns whether the throughput is near enough, or not judged.
    pub fn has_throughput(&self) -> bool {
        self.reason.is_some() || self.throughput.is_within(THROUGHPUT_TOLERANCE)
    }

    /// Returns whether the median delay is near enough, or not measured.
    pub fn has_delay(&self) -> bool {
        self.delay.is_none_or(|delay| delay.is_within(DELAY_TOLERANCE))
    }
}

impl Experiment {
    /// Compares the records of a simulated run and of one in the lab.
    ///
    /// # Errors
    /// If the lab has measured another set of connections.
    pub fn compare(&self, sim: &Record, lab: &Record) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        for simulated in &sim.connections {
            let find = |c: &&Connection| c.name == simulated.name;
            let measured = lab.connections.iter().find(find).filter(|c| {
                let is_equal = c.receivers.len() == simulated.receivers.len();
                is_equal && c.delay_us.is_some() == simulated.delay_us.is_some()
            });
            let measured =
                measured.ok_or_else(|| format!("the lab has no figures of `{}`", simulated.name))?;
            rows.extend(self.rows(simulated, measured));
        }
        if self.shares.is_some() {
            let throughput =
                Pair::of(&sim.connections, &lab.connections, |all| all.iter().map(|c| c.received_bps).sum());
            let lost = [0, 1].map(|at| rows.iter().map(|row| row.lost[at]).sum());
            rows.push(Row { name: SUM.into(), throughput, delay: None, lost, reason: None });
        }
        Ok(rows)
    }

    /// Returns the rows of a connection: one, or one of each of several receivers.
    fn rows(&self, sim: &Connection, lab: &Connection) -> Vec<Row> {
        let median = |sim: &Option<Distribution>, lab: &Option<Distribution>| {
            Some(Pair { sim: sim.as_ref()?.p50, lab: lab.as_ref()?.p50 })
        };
        if sim.receivers.is_empty() {
            return vec![Row {
                name: sim.name.clone(),
                throughput: Pair::of(sim, lab, |c| c.received_bps),
                delay: median(&sim.rtt_us, &lab.rtt_us).or_else(|| median(&sim.delay_us, &lab.delay_us)),
                lost: [sim.lost, lab.lost],
                reason: self.shares,
            }];
        }
        let receivers = sim.receivers.iter().zip(&lab.receivers).map(|(s, l)| Row {
            name: format!("{} to {}", sim.name, s.host),
            throughput: Pair::of(s, l, |r| r.received_bps),
            delay: median(&s.delay_us, &l.delay_us),
            lost: [s.lost, l.lost],
            reason: self.shares,
        });
        receivers.collect()
    }
}

/// What an experiment has shown: its name, its rows, and how late the emulator was.
pub type Compared = (&'static str, Vec<Row>, String);

const HEADINGS: [&str; 11] = [
    "experiment",
    "connection",
    "sim Mb/s",
    "lab Mb/s",
    "deviation",
    "sim ms",
    "lab ms",
    "deviation",
    "sim lost",
    "lab lost",
    "within",
];
/// Columns before this are left-aligned, and the last one.
const FIRST_NUMBER: usize = 2;

/// Formats comparisons as a text table, with the lateness of the emulator below.
pub fn table(compared: &[Compared]) -> String {
    let mut rows = vec![HEADINGS.map(String::from)];
    for (name, connections, _) in compared {
        rows.extend(connections.iter().map(|row| columns(name, row)));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let line = |row: &[String; HEADINGS.len()]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, &width))| {
            let is_number = (FIRST_NUMBER..HEADINGS.len() - 1).contains(&column);
            if is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, "─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    lines.push(String::new());
    lines.extend(compared.iter().map(|(name, _, late)| format!("{name}: the emulator was late: {late}")));
    lines.join("\n") + "\n"
}

fn columns(name: &str, row: &Row) -> [String; HEADINGS.len()] {
    let percent = |pair: Pair| format!("{:+.1} %", pair.deviation() * 100.0);
    let ms =
        |figure: fn(Pair) -> f64| row.delay.map_or("–".into(), |pair| format!("{:.2}", figure(pair) / 1e3));
    let outcome = match (row.has_throughput(), row.has_delay(), row.reason) {
        (true, true, None) => "yes".into(),
        (true, true, Some(reason)) => format!("delay; {reason}"),
        (true, false, None) => "NO: delay".into(),
        (true, false, Some(reason)) => format!("NO: delay; {reason}"),
        (false, true, _) => "NO: throughput".into(),
        (false, false, _) => "NO".into(),
    };
    [
        name.into(),
        row.name.clone(),
        format!("{:.3}", row.throughput.sim / 1e6),
        format!("{:.3}", row.throughput.lab / 1e6),
        percent(row.throughput),
        ms(|pair| pair.sim),
        ms(|pair| pair.lab),
        row.delay.map_or("–".into(), percent),
        row.lost[0].to_string(),
        row.lost[1].to_string(),
        outcome,
    ]
}

/// Formats comparisons as JSON.
pub fn json(compared: &[Compared]) -> String {
    let pair = |pair: Pair| json!({ "sim": pair.sim, "lab": pair.lab, "deviation": pair.deviation() });
    let row = |row: &Row| {
        json!({
            "connection": row.name, "received_bps": pair(row.throughput), "delay_us": row.delay.map(pair),
            "lost": { "sim": row.lost[0], "lab": row.lost[1] }, "not_judged": row.reason,
            "within": row.has_throughput() && row.has_delay(),
        })
    };
    let experiments = compared.iter().map(|(name, rows, late)| {
        let rows: Vec<_> = rows.iter().map(row).collect();
        json!({ "experiment": name, "rows": rows, "emulator_late": late })
    });
    let document = json!({
        "version": VERSION, "throughput_tolerance": THROUGHPUT_TOLERANCE, "delay_tolerance": DELAY_TOLERANCE,
        "experiments": experiments.collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&document).expect("text keys only") + "\n"
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};
    use trunkline_record::schema::Receiver;

    use super::*;

    fn delay(p50: f64) -> Option<Distribution> {
        Some(Distribution { p50, ..Distribution::default() })
    }

    fn record(received_bps: f64, p50: f64) -> Record {
        let one = Connection {
            name: "one".into(),
            received_bps,
            lost: 3,
            delay_us: delay(p50),
            ..Connection::default()
        };
        let receivers =
            ["b", "c"].map(|host| Receiver { host: host.into(), received_bps, ..Receiver::default() });
        let group = Connection { name: "group".into(), receivers: receivers.into(), ..Connection::default() };
        let bulk = Connection { name: "bulk".into(), rtt_us: delay(2.0 * p50), ..one.clone() };
        Record { connections: vec![one, group, bulk], ..Record::default() }
    }

    fn experiment(shares: Option<&'static str>) -> Experiment {
        Experiment { name: "test", text: "", shares }
    }

    #[test]
    fn rows_outside_a_tolerance_are_marked() {
        let rows = experiment(None).compare(&record(1e6, 100.0), &record(1.04e6, 109.0)).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["one", "group to b", "group to c", "bulk"]);
        assert_eq!(rows[3].delay, Some(Pair { sim: 200.0, lab: 218.0 }));
        assert!(rows.iter().all(|row| row.has_throughput() && row.has_delay()), "{rows:?}");

        let rows = experiment(None).compare(&record(1e6, 100.0), &record(0.94e6, 111.0)).unwrap();
        assert!(rows.iter().all(|row| !row.has_throughput()), "{rows:?}");
        let slow: Vec<bool> = rows.iter().map(|row| !row.has_delay()).collect();
        assert_eq!(slow, [true, false, false, true]);
        let text = table(&[("test", rows, "not".into())]);
        assert_eq!(text.matches("NO").count(), 4, "{text}");
        assert!(text.contains("-6.0 %") && text.contains("+11.0 %"), "{text}");
    }

    #[test]
    fn where_shares_are_not_compared_the_sum_is() {
        let mut lab = record(1e6, 100.0);
        (lab.connections[0].received_bps, lab.connections[2].received_bps) = (0.5e6, 1.5e6);
        let shared = experiment(Some("chance"));
        let rows = shared.compare(&record(1e6, 100.0), &lab).unwrap();
        assert!(rows.iter().all(|row| row.has_throughput()), "{rows:?}");
        assert_eq!(rows[4].throughput, Pair { sim: 2e6, lab: 2e6 });
        lab.connections[2].received_bps = 1e6;
        let rows = shared.compare(&record(1e6, 100.0), &lab).unwrap();
        assert!(!rows[4].has_throughput(), "{rows:?}");
    }

    #[test]
    fn a_lab_without_the_connection_is_an_error() {
        let mut lab = record(1e6, 100.0);
        lab.connections[1].receivers.pop();
        let error = experiment(None).compare(&record(1e6, 100.0), &lab).unwrap_err();
        assert_eq!(error, "the lab has no figures of `group`");
    }

    #[test]
    fn experiments_have_the_names_of_their_files() {
        for experiment in EXPERIMENTS {
            let parsed = parse(&Source { name: experiment.name, text: experiment.text, folder: None });
            assert!(parsed.diagnostics.is_empty(), "{}: {:?}", experiment.name, parsed.diagnostics);
            assert_eq!(parsed.plan.unwrap().name, experiment.name);
        }
    }
}

//! Metrics as text and in the format of Prometheus.

use std::fmt::Write;
use std::net::Ipv4Addr;

use trunkline_io::usage::{interface_of, interrupt_delay};
use trunkline_io::{Ports, socket};

use crate::drops::DropCounts;
use crate::sequence::SequenceCounts;

/// The name of a metric and its help text.
pub type MetricName = (&'static str, &'static str);

/// Samples grouped by metric.
#[derive(Debug, Default)]
pub struct Metrics(Vec<Metric>);

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    values: Vec<(String, u64)>,
}

impl Metrics {
    /// Adds a sample of a counter.
    pub fn add_counter(&mut self, metric: MetricName, labels: &[(&str, &str)], value: u64) {
        self.add(metric, "counter", labels, value);
    }

    /// Adds a sample of a gauge.
    pub fn add_gauge(&mut self, metric: MetricName, labels: &[(&str, &str)], value: u64) {
        self.add(metric, "gauge", labels, value);
    }

    /// Adds dropped messages of a direction, by reason and priority.
    pub fn add_drops(&mut self, direction: &str, drops: &DropCounts) {
        let metric =
            ("trunkline_converter_dropped_total", "Messages dropped, by direction, reason and priority.");
        for reason in DropCounts::REASONS {
            for (priority, class) in [(false, "ordinary"), (true, "priority")] {
                let labels = [("way", direction), ("why", reason.name()), ("priority", class)];
                self.add_counter(metric, &labels, drops.get(reason, priority));
            }
        }
    }

    fn add(&mut self, (name, help): MetricName, kind: &'static str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let sample = (labels.join(","), value);
        match self.0.iter_mut().find(|metric| metric.name == name) {
            Some(metric) => metric.values.push(sample),
            None => self.0.push(Metric { name, help, kind, values: vec![sample] }),
        }
    }

    /// Returns the sum of all samples of a metric.
    pub fn total(&self, name: &str) -> u64 {
        let metric = self.0.iter().filter(|metric| metric.name == name);
        metric.flat_map(|metric| &metric.values).map(|(_, value)| value).sum()
    }

    /// Returns the metrics in the Prometheus text format, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut page = String::new();
        for Metric { name, help, kind, values } in &self.0 {
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = match labels.is_empty() {
                    true => writeln!(page, "{name} {value}"),
                    false => writeln!(page, "{name}{{{labels}}} {value}"),
                };
            }
        }
        page
    }

    /// Returns the samples that are not 0, one per line, under the help text of their metric.
    pub fn text(&self) -> String {
        let mut page = String::new();
        for Metric { help, values, .. } in &self.0 {
            let mut has_header = false;
            for (labels, value) in values.iter().filter(|(_, value)| *value > 0) {
                if !std::mem::replace(&mut has_header, true) {
                    let _ = writeln!(page, "{help}");
                }
                let labels = labels.replace('"', "").replace(',', " ");
                let _ = writeln!(page, "{value:>14}  {labels}");
            }
        }
        page
    }
}

pub(super) const BUNDLES: MetricName = ("trunkline_converter_bundles_total", "Bundles, by direction.");
pub(super) const MESSAGES: MetricName = ("trunkline_converter_messages_total", "Messages, by direction.");
pub(super) const MALFORMED: MetricName = (
    "trunkline_converter_malformed_total",
    "Malformed bundles, bundles of unknown senders, and invalid control messages.",
);
pub(super) const UNKNOWN_PEERS: MetricName =
    ("trunkline_converter_strangers_total", "Ignored bundles from other sources than the central converter.");
pub(super) const LEVEL: MetricName =
    ("trunkline_converter_congestion_level", "Congestion level, 3 (none) to 6.");
pub(super) const STALE: MetricName = (
    "trunkline_converter_stale_total",
    "Bundles of an earlier incarnation or session, or of hosts above the limit.",
);
pub(super) const LOOPED_BACK: MetricName =
    ("trunkline_converter_own_total", "Messages of local hosts that returned from the wide area.");
pub(super) const SESSIONS: MetricName = (
    "trunkline_converter_sessions_total",
    "Sessions started: of hosts, of level 1, or with the central converter.",
);
pub(super) const LOST: MetricName =
    ("trunkline_converter_lost_total", "Messages in lost or late bundles, by sender; present senders only.");
pub(super) const RETRANSMISSIONS: MetricName =
    ("trunkline_converter_resent_total", "Retransmissions of priority messages.");
pub(super) const TIMEOUTS: MetricName =
    ("trunkline_converter_silent_total", "Sessions ended by a timeout or a bye.");
pub(super) const JOINED_ADDRESSES: MetricName =
    ("trunkline_converter_wanted", "Message addresses that hosts have joined.");

/// Adds the results of sequence checking and the stale bundles of format 2.
pub(super) fn add_sequence_counts(into: &mut Metrics, path: &SequenceCounts, stale: u64) {
    let metric = (
        "trunkline_converter_numbers_total",
        "Messages by sequence number: missing, duplicated, reordered, too old, or of flows without room in the table.",
    );
    for (kind, count) in [
        ("missing", path.missing),
        ("doubled", path.duplicates),
        ("reordered", path.reordered),
        ("stale", path.stale),
        ("unknown", path.unknown),
    ] {
        into.add_counter(metric, &[("told", kind)], count);
    }
    into.add_counter(STALE, &[], stale);
}

/// Adds the datagrams that were refused or could not be sent.
pub(super) fn add_send_errors(into: &mut Metrics, refused: u64, unsent: u64) {
    let metric = ("trunkline_converter_refused_total", "Datagrams refused by their destination (ICMP).");
    into.add_counter(metric, &[], refused);
    let metric = ("trunkline_converter_unsent_total", "Datagrams that the operating system refused to send.");
    into.add_counter(metric, &[], unsent);
}

/// Adds the datagrams lost in full receive buffers of the first sockets.
pub(super) fn add_overflows(into: &mut Metrics, ports: &Ports, names: &[&str]) {
    let metric =
        ("trunkline_converter_overflow_total", "Datagrams lost in a full receive buffer, by socket.");
    for (port, name) in names.iter().enumerate() {
        let lost = socket::dropped(ports.socket(port)).unwrap_or(0);
        into.add_counter(metric, &[("socket", name)], lost);
    }
}

/// Adds how received datagrams are coalesced. A socket bound to no address uses the interface with `default_address`.
pub(super) fn add_coalescing(into: &mut Metrics, ports: &Ports, names: &[&str], default_address: Ipv4Addr) {
    let metric = (
        "trunkline_converter_coalescing",
        "Whether the operating system may coalesce datagrams of one sender (GRO), by socket.",
    );
    for (port, name) in names.iter().enumerate() {
        let joins = ports.coalesces(port).into();
        into.add_gauge(metric, &[("socket", name)], joins);
    }
    let metric = (
        "trunkline_converter_interface_wait_microseconds",
        "Interrupt delay of the socket's interface, in microseconds.",
    );
    for (port, name) in names.iter().enumerate() {
        let at = ports.socket(port).local_addr().map_or(default_address.into(), |at| at.ip());
        let at = if at.is_unspecified() { default_address.into() } else { at };
        let Some(interface) = interface_of(at) else { continue };
        let Some(delay) = interrupt_delay(&interface) else { continue };
        let labels = [("socket", *name), ("interface", &interface)];
        into.add_gauge(metric, &labels, delay.as_ns() / 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_grouped() {
        let mut figures = Metrics::default();
        figures.add_counter(("a_total", "As."), &[("way", "in")], 1);
        figures.add_gauge(("b", "Bs."), &[], 0);
        figures.add_counter(("a_total", "As."), &[("way", "out"), ("to", "all")], 22);
        let page = "# HELP a_total As.\n# TYPE a_total counter\na_total{way=\"in\"} 1\na_total{way=\"out\",to=\"all\"} 22\n\
                    # HELP b Bs.\n# TYPE b gauge\nb 0\n";
        assert_eq!(figures.prometheus(), page);
        assert_eq!((figures.total("a_total"), figures.total("c")), (23, 0));
        let mut drops = DropCounts::default();
        drops.count(crate::drops::DropReason::Full, true);
        let mut dropped = Metrics::default();
        dropped.add_drops("out", &drops);
        let line = "trunkline_converter_dropped_total{way=\"out\",why=\"full\",priority=\"priority\"} 1\n";
        assert!(dropped.prometheus().contains(line), "{}", dropped.prometheus());
        assert_eq!(figures.text(), "As.\n             1  way=in\n            22  way=out to=all\n");
    }
}

//! What the statement `measure` has read of a host's kernel: rates of counters and values of gauges over time.

use trunkline_record::schema::Host;

use crate::format::{Unit, sanitize};

/// Names that are values now; all others count since the system started.
const GAUGES: [&str; 2] = ["memory.available_bytes", "tcp.established"];
/// Parts of the names of counters that a line of text has if they grew: each is a loss, or repairs one.
const LOSSES: [&str; 6] = ["errors", "dropped", "failures", "retransmi", "timeouts", "squeezed"];

/// A counter or gauge that has changed.
pub(crate) struct Quantity<'a> {
    /// Its name in the record.
    pub(crate) name: &'a str,
    /// Unit of the growth of a counter, or of a gauge.
    pub(crate) unit: Unit,
    /// Growth of a counter over all readings; `None` for a gauge.
    pub(crate) growth: Option<f64>,
    /// Unit of the points.
    pub(crate) point_unit: Unit,
    /// Seconds since the start of the run, and the rate of a counter since the reading before or the value of a gauge.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Returns the counters and gauges of a host that have changed, in the order of the record.
pub(crate) fn quantities(host: &Host) -> Vec<Quantity<'_>> {
    let Some(measured) = &host.measured else { return Vec::new() };
    let values = |index: usize| -> Vec<(f64, f64)> {
        measured.rows.iter().filter_map(|(t_s, values)| Some((*t_s, *values.get(index)?))).collect()
    };
    measured.names.iter().enumerate().filter_map(|(i, name)| quantity(name, &values(i))).collect()
}

fn quantity<'a>(name: &'a str, values: &[(f64, f64)]) -> Option<Quantity<'a>> {
    let unit = Unit::of(name);
    if GAUGES.contains(&name) {
        let has_changed = values.iter().any(|(_, value)| *value != values[0].1);
        let quantity = Quantity { name, unit, growth: None, point_unit: unit, points: values.to_vec() };
        return has_changed.then_some(quantity);
    }
    // Octets are shown as all rates are, and seconds of processor time per second as a share of one processor.
    let (factor, point_unit) = match unit {
        Unit::Bytes => (8.0, Unit::BitsPerSecond),
        Unit::Seconds => (100.0, Unit::Percent),
        unit => (1.0, unit),
    };
    // A counter that was set back, such as that of an interface that was made again, has no rate there.
    let steps = values.windows(2).map(|pair| (pair[1].0, pair[1].1 - pair[0].1, pair[1].0 - pair[0].0));
    let steps = steps.filter(|(_, growth, seconds)| *growth >= 0.0 && *seconds > 0.0);
    let (mut total, mut points) = (0.0, Vec::new());
    for (t_s, growth, seconds) in steps {
        total += growth;
        points.push((t_s, growth * factor / seconds));
    }
    (total > 0.0).then_some(Quantity { name, unit, growth: Some(total), point_unit, points })
}

/// Returns a line about a host with the traffic of its interfaces, its processor time and its losses; `None` if nothing
/// was measured.
pub(crate) fn line(host: &Host) -> Option<String> {
    let quantities = quantities(host);
    let growth = |name: &str| quantities.iter().find(|q| q.name == name).and_then(|q| q.growth);
    let mut facts = Vec::new();
    let interfaces = quantities.iter().filter_map(|q| {
        let (interface, counter) = q.name.rsplit_once('.')?;
        let is_first = counter == "rx_bytes" || growth(&format!("{interface}.rx_bytes")).is_none();
        (counter.ends_with("x_bytes") && is_first).then_some(interface)
    });
    for interface in interfaces {
        let bytes = |direction: &str| {
            Unit::Bytes.format(growth(&format!("{interface}.{direction}_bytes")).unwrap_or(0.0))
        };
        facts.push(format!("{} received {}, sent {}", sanitize(interface), bytes("rx"), bytes("tx")));
    }
    let processor_s = || quantities.iter().filter(|q| q.name.starts_with("cpu."));
    let seconds = |is_counted: fn(&str) -> bool| -> f64 {
        processor_s().filter(|q| is_counted(q.name)).filter_map(|q| q.growth).sum()
    };
    let (all_s, idle_s) = (seconds(|_| true), seconds(|name| ["cpu.idle_s", "cpu.iowait_s"].contains(&name)));
    if all_s > 0.0 {
        facts.push(format!("processors {} busy", Unit::Share.format(1.0 - idle_s / all_s)));
    }
    let losses = quantities.iter().filter(|q| LOSSES.iter().any(|loss| q.name.contains(loss)));
    facts.extend(
        losses.filter_map(|q| Some(format!("{} {}", sanitize(q.name), Unit::Number.format(q.growth?)))),
    );
    (!facts.is_empty()).then(|| format!("{}: {}", sanitize(&host.name), facts.join("; ")))
}

/// Returns the title of the plot that a quantity belongs to, and the name of its line: both directions share a plot, and all
/// kinds of processor time.
pub(crate) fn title_and_line(name: &str) -> (String, String) {
    let (group, counter) = name.rsplit_once('.').unwrap_or(("", name));
    let titled = |title: &str| format!("{group} {title}").trim().replace('_', " ");
    if group == "cpu" {
        return ("processor time".into(), counter.trim_end_matches("_s").into());
    }
    if counter == "available_bytes" {
        return (titled("available"), "available".into());
    }
    for (direction, line) in [("rx_", "received"), ("tx_", "sent")] {
        if let Some(counted) = counter.strip_prefix(direction) {
            return (titled(counted), line.into());
        }
    }
    for line in ["received", "sent"] {
        if let Some(counted) = counter.strip_suffix(line).and_then(|counted| counted.strip_suffix('_')) {
            return (titled(counted), line.into());
        }
    }
    (titled(counter), counter.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use trunkline_record::schema::Measured;

    use super::*;

    fn host(columns: &[(&str, [f64; 3])]) -> Host {
        let names = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let rows = (0..3).map(|i| (1.0 + 0.5 * i as f64, columns.iter().map(|(_, v)| v[i]).collect()));
        let measured = Some(Measured { names, rows: rows.collect() });
        Host { name: "h".into(), measured, ..Host::default() }
    }

    #[test]
    fn counters_become_rates_and_gauges_stay_values() {
        let host = host(&[
            ("lo.rx_bytes", [1e6, 1e6 + 1000.0, 1e6 + 1000.0]),
            ("cpu.user_s", [7.0, 7.25, 8.25]),
            ("tcp.established", [2.0, 3.0, 3.0]),
            ("udp.no_port", [5.0, 5.0, 5.0]),
            ("eth0.tx_packets", [9.0, 2.0, 12.0]),
        ]);
        let found: Vec<_> =
            quantities(&host).into_iter().map(|q| (q.name, q.growth, q.point_unit, q.points)).collect();
        assert_eq!(
            found,
            [
                ("lo.rx_bytes", Some(1000.0), Unit::BitsPerSecond, vec![(1.5, 16_000.0), (2.0, 0.0)]),
                ("cpu.user_s", Some(1.25), Unit::Percent, vec![(1.5, 50.0), (2.0, 200.0)]),
                ("tcp.established", None, Unit::Number, vec![(1.0, 2.0), (1.5, 3.0), (2.0, 3.0)]),
                ("eth0.tx_packets", Some(10.0), Unit::Number, vec![(2.0, 20.0)]),
            ]
        );
    }

    #[test]
    fn a_line_has_traffic_processor_time_and_losses() {
        let host = host(&[
            ("lo.tx_bytes", [0.0, 0.0, 2e6]),
            ("eth0.rx_bytes", [0.0, 1e3, 1e3]),
            ("eth0.tx_bytes", [0.0, 0.0, 0.0]),
            ("eth0.tx_dropped", [3.0, 3.0, 5.0]),
            ("tcp.segments_sent", [3.0, 3.0, 5.0]),
            ("cpu.user_s", [7.0, 7.0, 7.25]),
            ("cpu.idle_s", [7.0, 7.0, 7.75]),
        ]);
        let want = "h: lo received 0 B, sent 2 MB; eth0 received 1 kB, sent 0 B; processors 25 % busy; \
                    eth0.tx_dropped 2";
        assert_eq!(line(&host).as_deref(), Some(want));
        assert_eq!(line(&Host::default()), None);
    }

    #[test]
    fn directions_share_a_plot() {
        for (name, title, line) in [
            ("eth0.100.rx_bytes", "eth0.100 bytes", "received"),
            ("eth0.tx_dropped", "eth0 dropped", "sent"),
            ("tcp.segments_received", "tcp segments", "received"),
            ("tcp.segments_retransmitted", "tcp segments retransmitted", "segments retransmitted"),
            ("ip.received", "ip received", "received"),
            ("cpu.softirq_s", "processor time", "softirq"),
            ("context_switches", "context switches", "context switches"),
            ("memory.available_bytes", "memory available", "available"),
        ] {
            assert_eq!(title_and_line(name), (title.into(), line.into()), "{name}");
        }
    }
}

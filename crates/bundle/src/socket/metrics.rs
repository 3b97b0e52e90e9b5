//! Metrics as text and in the format of Prometheus.

use std::fmt::Write;

use crate::drops::DropCounts;

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
    pub fn add_counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: u64,
    ) {
        self.add(name, help, "counter", labels, value);
    }

    /// Adds a sample of a gauge.
    pub fn add_gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        self.add(name, help, "gauge", labels, value);
    }

    /// Adds dropped messages of a direction, by reason and priority.
    pub fn add_drops(&mut self, direction: &str, drops: &DropCounts) {
        for reason in DropCounts::REASONS {
            for (priority, class) in [(false, "ordinary"), (true, "priority")] {
                let labels = [("way", direction), ("why", reason.name()), ("priority", class)];
                let help = "Messages dropped, by direction, reason and priority.";
                self.add_counter(
                    "trunkline_converter_dropped_total",
                    help,
                    &labels,
                    drops.get(reason, priority),
                );
            }
        }
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        value: u64,
    ) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_grouped() {
        let mut figures = Metrics::default();
        figures.add_counter("a_total", "As.", &[("way", "in")], 1);
        figures.add_gauge("b", "Bs.", &[], 0);
        figures.add_counter("a_total", "As.", &[("way", "out"), ("to", "all")], 22);
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

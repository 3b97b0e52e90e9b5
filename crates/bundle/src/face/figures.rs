//! What was counted, as a person reads it and as Prometheus does.

use std::fmt::Write;

use crate::drops::Drops;

/// Figures by name and labels, those of a name together.
#[derive(Debug, Default)]
pub struct Figures(Vec<Named>);

#[derive(Debug)]
struct Named {
    name: &'static str,
    what: &'static str,
    kind: &'static str,
    values: Vec<(String, u64)>,
}

impl Figures {
    /// Something that only grows.
    pub fn count(&mut self, name: &'static str, what: &'static str, labels: &[(&str, &str)], value: u64) {
        self.add(name, what, "counter", labels, value);
    }

    /// Something that is now so much.
    pub fn gauge(&mut self, name: &'static str, what: &'static str, labels: &[(&str, &str)], value: u64) {
        self.add(name, what, "gauge", labels, value);
    }

    /// What was dropped on a way, by why and priority.
    pub fn drops(&mut self, way: &str, drops: &Drops) {
        for why in Drops::REASONS {
            for (priority, said) in [(false, "ordinary"), (true, "priority")] {
                let labels = [("way", way), ("why", why.name()), ("priority", said)];
                let what = "Messages dropped, by their way, why, and priority.";
                self.count("trunkline_converter_dropped_total", what, &labels, drops.get(why, priority));
            }
        }
    }

    fn add(
        &mut self,
        name: &'static str,
        what: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        value: u64,
    ) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let one = (labels.join(","), value);
        match self.0.iter_mut().find(|named| named.name == name) {
            Some(named) => named.values.push(one),
            None => self.0.push(Named { name, what, kind, values: vec![one] }),
        }
    }

    /// The sum of a name's values, whatever their labels.
    pub fn total(&self, name: &str) -> u64 {
        let named = self.0.iter().filter(|named| named.name == name);
        named.flat_map(|named| &named.values).map(|(_, value)| value).sum()
    }

    /// Prometheus' text format, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut page = String::new();
        for Named { name, what, kind, values } in &self.0 {
            let _ = writeln!(page, "# HELP {name} {what}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = match labels.is_empty() {
                    true => writeln!(page, "{name} {value}"),
                    false => writeln!(page, "{name}{{{labels}}} {value}"),
                };
            }
        }
        page
    }

    /// A line for each figure that is not 0, below what it means.
    pub fn text(&self) -> String {
        let mut page = String::new();
        for Named { what, values, .. } in &self.0 {
            let mut said = false;
            for (labels, value) in values.iter().filter(|(_, value)| *value > 0) {
                if !std::mem::replace(&mut said, true) {
                    let _ = writeln!(page, "{what}");
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
    fn figures_of_a_name_stand_together() {
        let mut figures = Figures::default();
        figures.count("a_total", "As.", &[("way", "in")], 1);
        figures.gauge("b", "Bs.", &[], 0);
        figures.count("a_total", "As.", &[("way", "out"), ("to", "all")], 22);
        let page = "# HELP a_total As.\n# TYPE a_total counter\na_total{way=\"in\"} 1\na_total{way=\"out\",to=\"all\"} 22\n\
                    # HELP b Bs.\n# TYPE b gauge\nb 0\n";
        assert_eq!(figures.prometheus(), page);
        assert_eq!((figures.total("a_total"), figures.total("c")), (23, 0));
        let mut drops = Drops::default();
        drops.count(crate::drops::Why::Full, true);
        let mut dropped = Figures::default();
        dropped.drops("out", &drops);
        let line = "trunkline_converter_dropped_total{way=\"out\",why=\"full\",priority=\"priority\"} 1\n";
        assert!(dropped.prometheus().contains(line), "{}", dropped.prometheus());
        assert_eq!(figures.text(), "As.\n             1  way=in\n            22  way=out to=all\n");
    }
}

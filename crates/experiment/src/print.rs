//! Prints a plan as an experiment of the 1996 dialect with all defaults. Reading it again gives the same plan.

use std::fmt::Write as _;

use trunkline_traffic::{Pattern, application};

use crate::plan::{
    Block, Connection, ConnectionEnd, Declared, Link, Measure, Medium, Network, Plan, Protocol, Stop,
};
use crate::resolve::dscp::dscp_text;
use crate::resolve::options::values;
use crate::resolve::quantity::Dimension;
use crate::resolve::write::{rate, size, span, variable};
use crate::resolve::{changes, network, pattern, protocol};
use crate::token::{quoted, written};

/// Returns a plan as the text of an experiment with all defaults.
pub fn plan_text(plan: &Plan) -> String {
    let mut out = Printer::default();
    out.open(&format!("experiment {}", quoted(&plan.name)));
    if let Some(network) = &plan.network {
        out.network(network);
    }
    for measure in &plan.measures {
        out.measure(measure);
    }
    out.side_by_side(plan, &plan.schedule);
    for expectation in &plan.expectations {
        out.line(&format!("expect {};", expectation.text));
    }
    out.close();
    out.text
}

#[derive(Default)]
struct Printer {
    text: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", self.depth * 2);
    }

    fn open(&mut self, head: &str) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// The statements of a block, without a `parallel` around those that stand side by side anyway.
    fn side_by_side(&mut self, plan: &Plan, block: &Block) {
        match block {
            Block::Parallel(blocks) => blocks.iter().for_each(|inner| self.block(plan, inner)),
            _ => self.block(plan, block),
        }
    }

    fn block(&mut self, plan: &Plan, block: &Block) {
        match block {
            Block::Connection(at) => return self.connection(&plan.connections[*at]),
            Block::Serial(blocks) => {
                self.open("serial");
                blocks.iter().for_each(|inner| self.block(plan, inner));
            }
            Block::Parallel(_) => {
                self.open("parallel");
                self.side_by_side(plan, block);
            }
            Block::Repeat { count, every, body } => {
                let every = if every.is_zero() { String::new() } else { format!(" every {}", span(every)) };
                self.open(&format!("repeat {count}{every}"));
                self.side_by_side(plan, body);
            }
        }
        self.close();
    }

    fn connection(&mut self, connection: &Connection) {
        self.open(&format!("connection {}", written(&connection.name)));
        let to: Vec<_> = connection.to.iter().map(|to| connection_end(to, "rcvbuf")).collect();
        self.line(&format!("xmt = {};", connection_end(&connection.from, "xmtbuf")));
        self.line(&format!("rcv = {};", to.join(", ")));
        let control = [&connection.xmtcntl, &connection.rcvcntl, &connection.rep].map(|host| written(host));
        self.line(&format!("xmtcntl = {}; rcvcntl = {}; rep = {};", control[0], control[1], control[2]));
        self.line(&format!("protocol = {};", protocol(&connection.protocol)));
        self.line(&format!("test = {};", test(&connection.test, self.depth * 2)));
        if let Some(dscp) = connection.dscp {
            self.line(&format!("dscp = {};", dscp_text(dscp)));
        }
        if let Some(Declared { peak, mean, burst }) = &connection.declared {
            self.line(&format!("peak = {}; mean = {}; burst = {};", rate(peak), rate(mean), span(burst)));
        }
        self.line(&format!("delay = {};", variable(&connection.delay_s, Dimension::Delay)));
        match &connection.stop {
            Stop::DurationS(duration) => {
                self.line(&format!("duration = {};", variable(duration, Dimension::Duration)))
            }
            Stop::Bytes(total) => self.line(&format!("bytes = {};", variable(total, Dimension::Size))),
            Stop::Messages(messages) => {
                self.line(&format!("messages = {};", variable(messages, Dimension::Count)))
            }
            Stop::FileEnd => self.line("# until the end of the file"),
        }
        self.close();
    }

    fn measure(&mut self, measure: &Measure) {
        let subjects = [("interface", measure.interface), ("tcp", measure.tcp), ("kernel", measure.kernel)];
        let subjects = subjects.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| format!(", {name}"));
        let duration = measure.duration.map(|duration| format!(", duration = {}", span(&duration)));
        let subjects: String = duration.into_iter().chain(subjects).collect();
        self.line(&format!(
            "measure {} (every = {}{subjects});",
            written(&measure.host),
            span(&measure.every)
        ));
    }

    fn network(&mut self, network: &Network) {
        self.open("network");
        for node in &network.nodes {
            let options = values(|v| network::present_node(&mut node.kind.clone(), v));
            let (kind, options) = (network::keyword(&node.kind), list(options, Some(self.depth * 2 + 2)));
            self.line(&format!("{kind} {} ({options});", written(&node.name)));
        }
        for link in &network.links {
            self.link(link);
        }
        for change in &network.changes {
            self.line(&format!("{};", changes::change_text(change, network)));
        }
        self.close();
    }

    fn link(&mut self, link: &Link) {
        let mut options = values(|v| network::present_link(&mut link.clone(), v));
        options.retain(|(name, _)| link.medium == Medium::Atm || !["cells", "encapsulation"].contains(name));
        options.retain(|(name, _)| link.trace.is_none() || !["rate", "payload"].contains(name));
        // `credits` stands before the shares.
        let shares = options.iter().position(|(name, _)| *name == "loss").unwrap_or_default();
        if let Some(credits) = options.iter().position(|(name, _)| *name == "credits") {
            options[shares..=credits].rotate_right(1);
        }
        let (a, b, indent) = (written(&link.a), written(&link.b), self.depth * 2 + 2);
        self.line(&format!("link {a} - {b} (\n{:indent$}{});", "", list(options, Some(indent))));
    }
}

/// Options that are written only if they have another value.
const UNWRITTEN: [(&str, &str); 26] = [
    ("sack", "auto"),
    ("timestamps", "auto"),
    ("ecn", "auto"),
    ("hystart", "auto"),
    ("variant", "auto"),
    ("reno_friendly", "auto"),
    ("initial_ssthresh", "auto"),
    ("initial_window", "auto"),
    ("min_rto", "auto"),
    ("ack_delay", "auto"),
    ("control", "none"),
    ("within", "none"),
    ("deadline", "none"),
    ("priority_deadline", "none"),
    ("service", "off"),
    ("wide_area", "off"),
    ("forward", "off"),
    ("rx_buffer_per", "host"),
    ("scheduling", "fifo"),
    ("queue", "none"),
    ("shape", "none"),
    ("police", "none"),
    ("trace", "none"),
    ("explicit_rate", "none"),
    ("admission", "none"),
    ("admission_loss", "0.001"),
];
/// Options of nodes and links that begin a line.
const FIRST_ON_LINE: [&str; 6] = ["cpu_packet", "cpus", "cells", "pacing", "queue", "loss"];

/// Options between commas, on one line or, with an indentation, on several.
fn list(mut options: Vec<(&str, String)>, indent: Option<usize>) -> String {
    options.retain(|(name, value)| !UNWRITTEN.contains(&(name, value)));
    let mut list = String::new();
    for (name, value) in options {
        let _ = match indent {
            _ if list.is_empty() => Ok(()),
            Some(indent) if FIRST_ON_LINE.contains(&name) => write!(list, ",\n{:indent$}", ""),
            _ => write!(list, ", "),
        };
        let _ = write!(list, "{name} = {value}");
    }
    list
}

fn connection_end(end: &ConnectionEnd, buffer: &str) -> String {
    let port = end.port.map_or(String::new(), |port| format!(":{port}"));
    format!(
        "{}{port} ({buffer} = {})",
        written(&end.host),
        end.buffer.as_ref().map_or("auto".to_owned(), size)
    )
}

fn protocol(protocol: &Protocol) -> String {
    let options = values(|v| protocol::present(&mut protocol.clone(), v));
    format!("{} ({})", protocol.name(), list(options, None))
}

/// A test with its options. Those of an application model are on lines of their own, with the sources of defaults.
fn test(test: &Pattern, indent: usize) -> String {
    let options = values(|v| pattern::present(&mut test.clone(), v));
    let Pattern::Application { model, variant, parameters, .. } = test else {
        let list = if options.is_empty() { String::new() } else { format!(" ({})", list(options, None)) };
        return format!("{}{list}", pattern::test_name(test));
    };
    let source = |name: &str| {
        let parameter = model.definition().parameter(name)?;
        let (value, source) = model.definition().default(parameter, variant.as_deref());
        parameters.iter().any(|(other, given)| other == name && *given == value).then_some(source)
    };
    let last = options.len().saturating_sub(1);
    let memory = application::long_memory::hurst(*model, parameters)
        .map_or(String::new(), |(hurst, how)| format!("  # Hurst exponent {hurst:.6}, {how}"));
    let mut text = format!("{} ({memory}", model.name());
    for (at, (name, value)) in options.iter().enumerate() {
        let comma = if at == last { "" } else { "," };
        let source = source(name).map_or(String::new(), |source| format!("  # {source}"));
        let _ = write!(text, "\n{:indent$}  {name} = {value}{comma}{source}", "");
    }
    let _ = write!(text, "\n{:indent$})", "");
    text
}

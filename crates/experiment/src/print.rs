//! Prints a plan as an experiment of the 1996 dialect with all defaults. Reading it again gives the same plan.

use std::fmt::Write as _;

use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::{Rate, Size, Span};

use crate::plan::{
    Amount, Block, BundleDeadlines, BundlePriority, Connection, ConnectionEnd, HostCosts, Link, Medium,
    Network, NodeKind, Plan, Protocol, Stop,
};
use crate::resolve::network::{
    BUFFER_PER, CELL_MODES, COUNTS, ENCAPSULATIONS, FORMATS, MEDIA, ROLES, TIMERS,
};
use crate::resolve::pattern::MODELS;
use crate::resolve::protocol::{CHECKSUMS, CONGESTION_POLICIES, MODES, TCP_TIMERS};
use crate::token::{quoted, written};

/// Returns a plan as the text of an experiment with all defaults.
pub fn plan_text(plan: &Plan) -> String {
    let mut out = Printer::default();
    out.open(&format!("experiment {}", quoted(&plan.name)));
    if let Some(network) = &plan.network {
        out.network(network);
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
                let every = if every.is_zero() { String::new() } else { format!(" every {}", span(*every)) };
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
        self.line(&format!("test = {};", test(&connection.test)));
        self.line(&format!("delay = {};", law(&connection.delay_s, &seconds)));
        match &connection.stop {
            Stop::DurationS(duration) => self.line(&format!("duration = {};", law(duration, &seconds))),
            Stop::Bytes(total) => self.line(&format!("bytes = {};", law(total, &bytes))),
            Stop::Messages(messages) => self.line(&format!("messages = {};", law(messages, &plain))),
            Stop::FileEnd => self.line("# until the end of the file"),
        }
        self.close();
    }

    fn network(&mut self, network: &Network) {
        self.open("network");
        for node in &network.nodes {
            let name = written(&node.name);
            self.line(&match &node.kind {
                NodeKind::Host(costs) => format!(
                    "host {name} ({}, disk = {}, mcast_filter = {}, program = {}{});",
                    station_costs(costs, self.depth),
                    or(costs.disk.map(bps), "none"),
                    filter(costs),
                    or(costs.program.as_deref().map(quoted), "none"),
                    if costs.wide_area { ", wide_area = on" } else { "" },
                ),
                NodeKind::Switch { buffer, each_channel, latency } => format!(
                    "switch {name} (buffer = {}, buffer_per = {}, latency = {});",
                    amount(*buffer),
                    keyword(BUFFER_PER, each_channel),
                    span(*latency)
                ),
                NodeKind::Hub { rate, delay } => {
                    format!("hub {name} (rate = {}, delay = {});", bps(*rate), span(*delay))
                }
                NodeKind::Ring { rate, frame, token_loss } => format!(
                    "ring {name} (rate = {}, frame = {}, token_loss = {token_loss});",
                    bps(*rate),
                    size(*frame)
                ),
                NodeKind::Converter { role, number, format, timers, capacity, deadlines, costs } => format!(
                    "converter {name} (role = {}, number = {number}, format = {}, timers = {}, capacity = {},{}\n\
                     {}{}, mcast_filter = {});",
                    keyword(ROLES, role),
                    keyword(FORMATS, format),
                    keyword(TIMERS, timers),
                    or(capacity.map(bps), "none"),
                    explicit_deadlines(deadlines),
                    " ".repeat(self.depth * 2 + 2),
                    station_costs(costs, self.depth),
                    filter(costs),
                ),
            });
        }
        for link in &network.links {
            self.link(link);
        }
        self.close();
    }

    fn link(&mut self, link: &Link) {
        self.line(&format!("link {} - {} (", written(&link.a), written(&link.b)));
        self.depth += 1;
        self.line(&format!(
            "medium = {}, rate = {}, payload = {}, delay = {}, mtu = {},",
            keyword(MEDIA, &link.medium),
            bps(link.rate),
            bps(link.payload),
            span(link.delay),
            size(link.mtu),
        ));
        if link.medium == Medium::Atm {
            let (cells, encapsulation) =
                (keyword(CELL_MODES, &link.cells), keyword(ENCAPSULATIONS, &link.encapsulation));
            self.line(&format!("cells = {cells}, encapsulation = {encapsulation},"));
        }
        let slots = link.pacing_slots.map(|(i, m)| format!("{i}:{m}"));
        self.line(&format!(
            "pacing = {}, pacing_counts = {}, credits = {},",
            or(slots.or(link.pacing.map(bps)), "none"),
            keyword(COUNTS, &link.pacing_counts),
            or(link.credits.map(|credits| credits.to_string()), "none"),
        ));
        self.line(&format!(
            "loss = {}, corrupt = {}, duplicate = {}, reorder = {});",
            link.loss, link.corrupt, link.duplicate, link.reorder,
        ));
        self.depth -= 1;
    }
}

fn filter(costs: &HostCosts) -> String {
    or(costs.mcast_filter.map(|bits| bits.to_string()), "none")
}

/// The costs of a host or converter, on two lines.
fn station_costs(costs: &HostCosts, depth: usize) -> String {
    let indent = " ".repeat(depth * 2 + 2);
    format!(
        "cpu_packet = {}, cpu_byte = {}, interrupt = {}, dma_byte = {}, crc_byte = {}, sar_cell = {},\n\
         {indent}cpus = {}, rx_buffer = {}, send_queue = {} packets",
        span(costs.cpu_packet),
        span(costs.cpu_byte),
        span(costs.interrupt),
        span(costs.dma_byte),
        span(costs.crc_byte),
        span(costs.sar_cell),
        costs.cpus,
        or(costs.rx_buffer.map(amount), "none"),
        costs.send_queue,
    )
}

fn connection_end(end: &ConnectionEnd, buffer: &str) -> String {
    let port = end.port.map_or(String::new(), |port| format!(":{port}"));
    format!("{}{port} ({buffer} = {})", written(&end.host), or(end.buffer.map(size), "auto"))
}

fn protocol(protocol: &Protocol) -> String {
    let options = match protocol {
        Protocol::Tcp { window, congestion, nodelay, timers, delayed_ack } => format!(
            "window = {}, congestion = {}, nodelay = {}, timers = {}, delayed_ack = {}",
            or(window.map(size), "auto"),
            or(congestion.as_deref().map(written), "auto"),
            on(*nodelay),
            keyword(TCP_TIMERS, timers),
            on(*delayed_ack)
        ),
        Protocol::Udp { flow_control } => format!("flow = {}", on(*flow_control)),
        Protocol::Multicast { group, ttl } => format!("group = {}, ttl = {ttl}", written(&group.to_string())),
        Protocol::Llc { r#type, sap, priority, tries, timeout, crc, token, limit } => format!(
            "type = {type}, sap = {sap}, priority = {priority}, tries = {tries}, timeout = {}, crc = {}, \
             token = {}, limit = {}",
            span(*timeout),
            on(*crc),
            on(*token),
            or(limit.map(span), "none")
        ),
        Protocol::Guaranteed {
            mode,
            window,
            frame,
            ack_every,
            timeout,
            adaptive,
            ack_delay,
            congestion,
            checksum,
            drop,
            alter,
            fec,
        } => format!(
            "mode = {}, window = {window}, frame = {}, ack_every = {ack_every}, timeout = {}, adaptive = {}, \
             ack_delay = {}, congestion = {}, checksum = {}, drop = {drop}, alter = {alter}, \
             fec = {}",
            keyword(MODES, mode),
            size(*frame),
            span(*timeout),
            on(*adaptive),
            span(*ack_delay),
            keyword(CONGESTION_POLICIES, congestion),
            keyword(CHECKSUMS, checksum),
            or(fec.map(|fec| format!("{}+{}", fec.frames, fec.repairs)), "off"),
        ),
        Protocol::Bundle { address, priority, within } => {
            let priority = match priority {
                Some(BundlePriority::High) => "high",
                Some(BundlePriority::Low) => "low",
                None => "none",
            };
            let within = within.map_or(String::new(), |within| format!(", within = {}", span(within)));
            format!("address = {address}, priority = {priority}{within}")
        }
    };
    format!("{} ({options})", protocol.name())
}

/// Returns the deadlines of a converter that are not the default.
fn explicit_deadlines(deadlines: &BundleDeadlines) -> String {
    let options = [("deadline", deadlines.ordinary), ("priority_deadline", deadlines.priority)];
    options.iter().filter_map(|(name, at)| Some(format!(" {name} = {},", span((*at)?)))).collect()
}

fn test(test: &Pattern) -> String {
    match test {
        Pattern::Full { size_bytes } => format!("full (messagesize = {})", law(size_bytes, &bytes)),
        Pattern::Cbr { burst, period_s } => {
            format!("cbr (messagesize = {}, period = {})", burst_text(burst), law(period_s, &seconds))
        }
        Pattern::Burst { burst, period_s } => {
            format!("burst (messagesize = {}, period = {})", burst_text(burst), law(period_s, &seconds))
        }
        Pattern::Random { burst, min_period_s, max_period_s } => format!(
            "random (messagesize = {}, minPeriod = {}, maxPeriod = {})",
            burst_text(burst),
            law(min_period_s, &seconds),
            law(max_period_s, &seconds),
        ),
        Pattern::Poisson { size_bytes, rate_per_s } => format!(
            "poisson (messagesize = {}, rate = {})",
            law(size_bytes, &bytes),
            law(rate_per_s, &|n| format!("{n} /s")),
        ),
        Pattern::Stairs { size_bytes, rates_bps, hold_s } => {
            let rates: Vec<_> = rates_bps.iter().map(|rate| law(rate, &bits)).collect();
            format!(
                "stairs (messagesize = {}, rates = {}, hold = {})",
                law(size_bytes, &bytes),
                rates.join(" : "),
                law(hold_s, &seconds),
            )
        }
        Pattern::Request { request_bytes, response_bytes } => {
            format!(
                "request (request = {}, response = {})",
                law(request_bytes, &bytes),
                law(response_bytes, &bytes)
            )
        }
        Pattern::File { path, size_bytes } => {
            format!("file (path = {}, messagesize = {})", quoted(path), law(size_bytes, &bytes))
        }
        Pattern::Application { model, parameters } => {
            let given: Vec<_> =
                parameters.iter().map(|(name, value)| format!("{name} = {}", law(value, &plain))).collect();
            let list = if given.is_empty() { String::new() } else { format!(" ({})", given.join(", ")) };
            format!("{}{list}", keyword(MODELS, model))
        }
    }
}

fn burst_text(burst: &Burst) -> String {
    match burst.count {
        Variable::Constant(1.0) => law(&burst.size_bytes, &bytes),
        _ => format!("{}:{}", law(&burst.size_bytes, &bytes), law(&burst.count, &plain)),
    }
}

/// A variable whose values `unit` writes.
fn law(variable: &Variable, unit: &dyn Fn(f64) -> String) -> String {
    match variable {
        Variable::Constant(value) => unit(*value),
        Variable::Uniform { a, b } => format!("uniform({}, {})", unit(*a), unit(*b)),
        Variable::Exponential { mean } => format!("exponential({})", unit(*mean)),
        Variable::Normal { mean, sd } => format!("normal({}, {})", unit(*mean), unit(*sd)),
        Variable::Lognormal { mean, sd } => format!("lognormal({}, {})", unit(*mean), unit(*sd)),
        Variable::Pareto { shape, min } => format!("pareto({shape}, {})", unit(*min)),
        Variable::Weibull { scale, shape } => format!("weibull({}, {shape})", unit(*scale)),
        Variable::Empirical { file, .. } => format!("empirical({})", quoted(file)),
    }
}

fn plain(value: f64) -> String {
    value.to_string()
}

/// A number in a base unit, as [`base_number`](crate::resolve::quantity::base_number) names them.
pub(crate) fn in_base(value: f64, base: &str) -> String {
    match base {
        "B" => bytes(value),
        "s" => seconds(value),
        "b/s" => bits(value),
        "" => plain(value),
        unit => format!("{value} {unit}"),
    }
}

/// Seconds in the largest unit that makes them whole and is read back as the same number.
fn seconds(value: f64) -> String {
    const UNITS: [(&str, f64); 5] = [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9), ("ps", 1e12)];
    let whole =
        UNITS.iter().find(|(_, over)| (value * over).round() / over == value && (value * over).abs() < 1e15);
    match whole {
        Some((unit, over)) => format!("{} {unit}", (value * over).round()),
        None => format!("{value} s"),
    }
}

/// Bits per second in the largest unit that stays short and is read back as the same number.
fn bits(value: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)];
    let fits = |times: f64| {
        value >= times && (value / times) * times == value && (value / times).to_string().len() <= 8
    };
    match UNITS.iter().find(|(_, times)| fits(*times)) {
        Some((unit, times)) => format!("{} {unit}", value / times),
        None => format!("{value} b/s"),
    }
}

/// Bytes, in thousands only where they are round.
fn bytes(value: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match UNITS
        .iter()
        .find(|(_, times)| value >= 10_000.0 && value >= *times && (value / times).fract() == 0.0)
    {
        Some((unit, times)) => format!("{} {unit}", value / times),
        None => format!("{value} B"),
    }
}

fn size(size: Size) -> String {
    bytes(size.as_bytes() as f64)
}

fn bps(rate: Rate) -> String {
    bits(rate.as_bps() as f64)
}

/// A span in the largest unit that makes it whole.
fn span(span: Span) -> String {
    const UNITS: [(&str, u64); 4] =
        [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)];
    match UNITS.iter().find(|(_, ps)| span.as_ps().is_multiple_of(*ps)) {
        Some((unit, ps)) => format!("{} {unit}", span.as_ps() / ps),
        None => format!("{} ps", span.as_ps()),
    }
}

fn amount(amount: Amount) -> String {
    match amount {
        Amount::Bytes(n) => bytes(n as f64),
        Amount::Cells(n) => format!("{n} cells"),
        Amount::Packets(n) => format!("{n} packets"),
    }
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn or(text: Option<String>, none: &str) -> String {
    text.unwrap_or_else(|| none.to_owned())
}

/// Returns the keyword of `value` in a table.
fn keyword<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table
        .iter()
        .find(|(_, known)| known == value)
        .map(|(keyword, _)| *keyword)
        .expect("every value has a keyword")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_and_read_back() {
        assert_eq!(seconds(0.02), "20 ms");
        assert_eq!(seconds(100.0), "100 s");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(0.0025), "2500 us");
        assert_eq!(seconds(1.0 / 3.0), "0.3333333333333333 s");
        assert_eq!(bits(149_760_000.0), "149.76 Mb/s");
        assert_eq!(bits(10e9), "10 Gb/s");
        assert_eq!(bits(12_345.678_9), "12345.6789 b/s");
        assert_eq!(bytes(65_536.0), "65536 B");
        assert_eq!(bytes(128_000.0), "128 kB");
        assert_eq!(span(Span::from_ps(2_831_200)), "2831200 ps");
        assert_eq!(span(Span::from_s(90)), "90 s");
    }
}

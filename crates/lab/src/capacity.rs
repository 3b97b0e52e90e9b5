//! Whether this machine carries what the connections of a plan ask of the emulator.
//!
//! The estimate counts packets: each connection at its mean rate, or at full speed as fast as the slowest link of its path, and
//! no link more than its rate. What programs of hosts send is unknown, and not counted, and neither are requests, which wait for
//! their responses.

use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use trunkline_experiment::plan::{Block, Connection, Plan, Protocol};
use trunkline_experiment::{Source, message_sizes, parse};
use trunkline_sim::network::topology::Topology;
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Instant, Seed};

use crate::laboratory::Lab;

/// Every machine carries so many packets in a second.
const SURE: f64 = 10_000.0;
/// The part of a processor's time that the emulator may use, so that packets are seldom late.
const SHARE: f64 = 0.8;
/// The same if the senders and receivers have no other processor.
const SHARE_OF_ONE: f64 = 0.4;
/// What each medium of a path beyond the first between two kernels costs, as a part of a packet's cost.
const FURTHER_MEDIUM: f64 = 0.25;
/// Acknowledgements, as a part of the packets of a connection that has them.
const ACKNOWLEDGEMENTS: f64 = 0.5;
/// Bytes of the headers of a TCP segment with timestamps and of a UDP datagram, and of the framing of Ethernet.
const TCP_HEADERS: f64 = 52.0;
const UDP_HEADERS: f64 = 28.0;
const FRAMING: f64 = 38.0;
/// Measurements of what a packet costs before a plan is refused. Other load on the machine makes one worse, and none better.
const MEASUREMENTS: usize = 3;
/// Packets of a measurement, and their bytes.
const PACKETS: usize = 2_000;
const LENGTH: usize = 1_000;
/// How often the end of a measurement is looked for, and how long each time.
const CHECKS: usize = 20;
const CHECK_TIME: Duration = Duration::from_millis(100);

/// Returns why this machine cannot carry a plan: what its connections ask for, and what it carries. `None` if it can, or if
/// that cannot be measured.
pub fn shortage(plan: &Plan) -> Option<String> {
    let requested = demand(plan);
    if requested <= SURE {
        return None;
    }
    let mut carried = 0.0;
    for _ in 0..MEASUREMENTS {
        carried = capacity().ok()?.max(carried);
        if requested <= carried {
            return None;
        }
    }
    Some(format!(
        "the connections ask the lab for about {:.0} packets/s, and this machine carries about {:.0}: reduce rates, or run them anyway with --overload",
        rounded(requested),
        rounded(carried)
    ))
}

/// Two digits are all that an estimate is worth.
fn rounded(packets: f64) -> f64 {
    let unit = 10f64.powf(packets.log10().floor() - 1.0);
    (packets / unit).round() * unit
}

/// Packets of a connection to one of its receivers.
#[derive(Clone, Debug)]
struct Flow {
    packets_per_s: f64,
    bits: f64,
    /// The links of the path, and the ends at which packets enter them.
    path: Vec<(usize, u16)>,
    /// What a packet costs, with its acknowledgement, in the cost of one over one link.
    cost: f64,
}

/// Returns the packets per second that the connections of a plan ask of the emulator, where one that crosses several media or
/// routers counts as more.
fn demand(plan: &Plan) -> f64 {
    let Some(network) = &plan.network else { return 0.0 };
    let topology = Topology::new(network);
    let flows: Vec<Vec<Flow>> = plan.connections.iter().map(|c| flows(c, &topology)).collect();
    cost(&concurrent(&plan.schedule, &flows, &topology), &topology)
}

/// Returns what runs at once when a block of the schedule asks for most.
fn concurrent<'a>(block: &Block, flows: &'a [Vec<Flow>], topology: &Topology<'_>) -> Vec<&'a Flow> {
    match block {
        Block::Connection(index) => flows[*index].iter().collect(),
        Block::Repeat { body, .. } => concurrent(body, flows, topology),
        Block::Parallel(blocks) => {
            blocks.iter().flat_map(|block| concurrent(block, flows, topology)).collect()
        }
        Block::Serial(blocks) => {
            let each = blocks.iter().map(|block| concurrent(block, flows, topology));
            each.max_by(|a, b| cost(a, topology).total_cmp(&cost(b, topology))).unwrap_or_default()
        }
    }
}

/// Returns the cost of flows in a second, when no link carries more than its rate.
fn cost(flows: &[&Flow], topology: &Topology<'_>) -> f64 {
    let mut loads: BTreeMap<(usize, u16), f64> = BTreeMap::new();
    for flow in flows {
        for hop in &flow.path {
            *loads.entry(*hop).or_default() += flow.packets_per_s * flow.bits;
        }
    }
    let carried = |flow: &&Flow| {
        let shares =
            flow.path.iter().map(|hop| topology.network.links[hop.0].rate.as_bps() as f64 / loads[hop]);
        flow.packets_per_s * shares.fold(1.0, f64::min) * flow.cost
    };
    flows.iter().map(carried).sum()
}

fn flows(c: &Connection, topology: &Topology<'_>) -> Vec<Flow> {
    c.to.iter()
        .filter_map(|to| flow(c, topology.node(&c.from.host)?, topology.node(&to.host)?, topology))
        .collect()
}

fn flow(c: &Connection, from: usize, to: usize, topology: &Topology<'_>) -> Option<Flow> {
    let nodes = topology.path(from, to)?;
    let path: Vec<(usize, u16)> = nodes
        .iter()
        .map(|(node, port)| {
            let hop = topology.ports[*node][usize::from(*port)];
            (hop.link, hop.end)
        })
        .collect();
    let links = path.iter().map(|(link, _)| &topology.network.links[*link]);
    let mtu = links.clone().map(|link| link.mtu.as_bytes() as f64).fold(f64::INFINITY, f64::min);
    let slowest = links.map(|link| link.rate.as_bps() as f64).fold(f64::INFINITY, f64::min);
    let (headers, has_acknowledgements) = match &c.protocol {
        Protocol::Tcp { .. } => (TCP_HEADERS, true),
        Protocol::Guaranteed { .. } | Protocol::Quic { .. } => (UDP_HEADERS, true),
        _ => (UDP_HEADERS, false),
    };
    let size = message_sizes(&c.test).first().and_then(|(_, size)| mean(size)).unwrap_or(f64::INFINITY);
    let (messages_per_s, packets) = match &c.test {
        Pattern::Request { .. } => return None,
        // As fast as the slowest link carries it, in packets that are as long as possible if they need not be those of messages.
        _ => match (offered_bps(&c.test), headers == TCP_HEADERS) {
            (Some(bps), _) => (bps / 8.0 / size, (size / (mtu - headers)).ceil()),
            (None, true) => (f64::INFINITY, 1.0),
            (None, false) => (f64::INFINITY, (size / (mtu - headers)).ceil()),
        },
    };
    let length = if messages_per_s.is_finite() || headers != TCP_HEADERS {
        (size / packets).min(mtu - headers) + headers
    } else {
        mtu
    };
    let bits = (length + FRAMING) * 8.0;
    let packets_per_s = (messages_per_s * packets).min(slowest / bits);
    let routers = nodes.iter().skip(1).filter(|(node, _)| topology.is_router(*node)).count();
    let kernels = (routers + 1) as f64;
    let further = FURTHER_MEDIUM * (nodes.len() as f64 - kernels);
    let acknowledgements = if has_acknowledgements { ACKNOWLEDGEMENTS } else { 0.0 };
    let cost = (kernels + further) * (1.0 + acknowledgements);
    (packets_per_s.is_finite() && packets_per_s > 0.0).then_some(Flow { packets_per_s, bits, path, cost })
}

/// The mean rate of a pattern; `None` at full speed.
fn offered_bps(pattern: &Pattern) -> Option<f64> {
    let bounds = Bounds::new(1, u32::MAX);
    let source =
        trunkline_traffic::Source::new(pattern, Limit::default(), bounds, Instant::ZERO, Seed(1), "demand");
    source.ok()?.offered_bps()
}

fn mean(size: &Variable) -> Option<f64> {
    trunkline_traffic::Law::new(size.clone(), 0.0).ok()?.mean()
}

/// Returns the packets per second that the emulator carries on this machine, measured in a lab of two hosts.
///
/// # Errors
/// If there is no lab.
fn capacity() -> io::Result<f64> {
    const TEXT: &str = "experiment \"capacity\" { network { host a, b; link a - b (rate = 10 Gb/s); }
        connection { xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; } }";
    let parsed = parse(&Source { name: "capacity", text: TEXT, folder: None });
    let plan = parsed.plan.ok_or(io::ErrorKind::InvalidInput)?;
    let lab = Lab::start(&plan, Seed(1)).map_err(io::Error::other)?;
    let hosts = lab.hosts();
    let receiver = hosts[1].namespace.run(|| UdpSocket::bind((hosts[1].address, 9)))?;
    let sender = hosts[0].namespace.run(|| UdpSocket::bind((hosts[0].address, 9)))?;
    sender.connect((hosts[1].address, 9))?;
    for _ in 0..PACKETS {
        sender.send(&[0; LENGTH])?;
    }
    // An empty datagram arrives after all others, if the buffer of the receiver has room.
    receiver.set_read_timeout(Some(CHECK_TIME))?;
    let received = || receiver.recv(&mut [0; LENGTH]).ok();
    let is_over = |_| sender.send(&[]).is_ok() && iter::from_fn(received).any(|length| length == 0);
    if !(0..CHECKS).any(is_over) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let report = lab.finish().map_err(io::Error::other)?;
    let packets = report.packets_in.midpoint(report.packets_out) as f64;
    let share = if thread::available_parallelism()?.get() > 1 { SHARE } else { SHARE_OF_ONE };
    Ok(share * packets / report.processor_time.as_s())
}

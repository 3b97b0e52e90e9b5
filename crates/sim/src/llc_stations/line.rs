//! The shared line of a plan's LLC stations: token parameters and traffic contracts.

use trunkline_experiment::plan::{HostCosts, NodeKind, Plan};
use trunkline_llc::admit::Network;
use trunkline_llc::token::{Line, Options};
use trunkline_llc::wire::HEADER;
use trunkline_run::llc::{self, TrafficContracts};
use trunkline_units::{Rate, Span};

use crate::frame::VLAN_TAG;
use crate::network::topology::Topology;

/// Minimum interval between two windows for joining. All stations join at the start, so windows are frequent.
const MIN_WINDOW_INTERVAL: Span = Span::from_ms(20);
/// Windows take at most 1 / this of the time, to leave capacity for synchronous messages.
const WINDOW_INTERVALS: u64 = 40;

/// Returns the ring of a plan with a token, with the shortest timers that its line allows and one invitation at a time,
/// and the traffic contracts of its connections. `Err` names a connection of the synchronous class without a contract.
pub fn ring_and_contracts<'p>(
    plan: &'p Plan,
    topology: &Topology<'_>,
) -> Option<(Network, Result<TrafficContracts, &'p str>)> {
    if !llc::has_token(plan) {
        return None;
    }
    let names = llc::stations(plan);
    let nodes: Vec<usize> = names.iter().filter_map(|name| topology.node(name)).collect();
    let largest = plan.connections.iter().map(llc::max_information).max().unwrap_or(0) as usize;
    let line = shared_line(topology, &nodes, largest);
    let highest = names.len().clamp(1, 254) as u8;
    let tight = Options::for_line(&line, highest, 1 + HEADER + largest);
    let mut options = Options { invited_per_window: 1, ..tight };
    options.window_interval = MIN_WINDOW_INTERVAL.max(options.window() * WINDOW_INTERVALS);
    let contracts = llc::traffic_contracts(plan);
    let stations = contracts.as_ref().map_or_else(|_| Vec::new(), |contracts| contracts.stations.clone());
    Some((Network { line, options, stations, lost: 0, dead: 0 }, contracts))
}

/// Whether a delay bound holds: only LLC stations send, and no link loses or damages frames.
pub fn is_lossless(plan: &Plan) -> bool {
    let links = plan.network.iter().flat_map(|network| &network.links);
    let is_perfect = links.into_iter().all(|l| l.loss + l.corrupt + l.duplicate + l.reorder == 0.0);
    let only_llc = plan
        .connections
        .iter()
        .all(|c| matches!(c.protocol, trunkline_experiment::plan::Protocol::Llc { .. }));
    is_perfect && only_llc
}

/// Properties of the path between two stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathCost {
    delay: Span,
    rate: Rate,
    /// Number of store-and-forward switches.
    switches: u64,
}

/// Returns the line of all stations: the lowest rate and the longest path.
fn shared_line(topology: &Topology<'_>, nodes: &[usize], largest: usize) -> Line {
    let paths = |from: usize| nodes.iter().map(move |to| (*to, path_cost(topology, from, *to)));
    let first = nodes.first().copied().unwrap_or(0);
    // In a tree, the station farthest from any station is an end of the longest path.
    let (far, _) =
        paths(first).max_by_key(|(_, path)| path.delay).unwrap_or((first, path_cost(topology, first, first)));
    let delay = paths(far).map(|(_, path)| path.delay).max().unwrap_or_default();
    let switches = paths(far).map(|(_, path)| path.switches).max().unwrap_or(0);
    let rate = paths(far).map(|(_, path)| path.rate).min().unwrap_or(Rate::from_bps(u64::MAX));
    let mut line = Line::ethernet(rate, delay);
    line.switched = switches > 0;
    let longest = line.message(largest as u32).max(line.token());
    let cost = nodes.iter().map(|node| match &topology.network.nodes[*node].kind {
        NodeKind::Host(costs) => packet_cost(costs, largest as u64 + HEADER as u64),
        _ => Span::ZERO,
    });
    line.hop += longest * switches.saturating_sub(1) + cost.max().unwrap_or_default();
    line
}

/// Returns the processing time of a packet with a PDU of `pdu` octets in its sender and its receiver.
fn packet_cost(costs: &HostCosts, pdu: u64) -> Span {
    let length = pdu.max(u64::from(super::MIN_PDU)) + u64::from(VLAN_TAG);
    let each = costs.cpu_packet + (costs.cpu_byte + costs.crc_byte + costs.dma_byte) * length;
    each * 2 + costs.interrupt
}

fn path_cost(topology: &Topology<'_>, from: usize, to: usize) -> PathCost {
    let mut all = PathCost { delay: Span::ZERO, rate: Rate::from_bps(u64::MAX), switches: 0 };
    for (node, port) in topology.path(from, to).unwrap_or_default() {
        let link = &topology.network.links[topology.ports[node][usize::from(port)].link];
        all.delay += link.delay;
        all.rate = all.rate.min(link.payload);
        match &topology.network.nodes[node].kind {
            NodeKind::Switch { latency, .. } => {
                all.delay += *latency;
                all.switches += 1;
            }
            NodeKind::Hub { delay, .. } => all.delay += *delay,
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};
    use trunkline_units::Size;

    use super::*;

    fn plan(network: &str, protocol: &str) -> Plan {
        let text = format!(
            "experiment {{ network {{ {network} }} connection {{ xmt = a; rcv = b; protocol = {protocol};
               test = cbr (messagesize = 100, period = 10 ms); }} }}"
        );
        let parsed = parse(&Source { name: "test", text: &text, folder: None });
        parsed.plan.unwrap_or_else(|| panic!("{text}\n{:?}", parsed.diagnostics))
    }

    fn line_of(network: &str) -> Option<Line> {
        let plan = plan(network, "llc (priority = 6, token = on)");
        let network = plan.network.as_ref()?;
        Some(ring_and_contracts(&plan, &Topology::new(network))?.0.line)
    }

    #[test]
    fn a_hub_is_one_hop() {
        let hub = "host a, b; hub h (rate = 10 Mb/s, delay = 2 us); link a - h; link b - h;";
        let line = Line::ethernet(Rate::from_bps(10_000_000), Span::from_us(2));
        assert_eq!(line_of(hub), Some(line.clone()));
        let slow = hub
            .replace("host a, b;", "host a; host b (cpu_packet = 10 us, cpu_byte = 1 us, interrupt = 5 us);");
        let hop = line.hop + (Span::from_us(10) + Span::from_us(107)) * 2 + Span::from_us(5);
        assert_eq!(line_of(&slow), Some(Line { hop, ..line }));
    }

    #[test]
    fn switches_store_and_forward_frames() {
        let tree = "host a, b; switch s, t (latency = 3 us); link a - s (rate = 100 Mb/s, delay = 1 us);
            link s - t (rate = 10 Mb/s, delay = 7 us); link t - b (rate = 100 Mb/s);";
        let rate = Rate::from_bps(10_000_000);
        let frame = rate.time_for(Size::from_bytes(103 + 42));
        let expected = Line { switched: true, ..Line::ethernet(rate, Span::from_us(14) + frame) };
        assert_eq!(line_of(tree), Some(expected));
    }

    #[test]
    fn without_a_token_nothing_is_promised() {
        let plan = plan("host a, b; link a - b (rate = 1 Mb/s);", "llc (priority = 6)");
        let network = plan.network.as_ref().unwrap();
        assert_eq!(ring_and_contracts(&plan, &Topology::new(network)), None);
        assert!(is_lossless(&plan));
    }
}

//! The line that the stations of a plan share, as the token needs to know it, and what can be promised on it.

use trunkline_experiment::plan::{HostCosts, NodeKind, Plan};
use trunkline_llc::admit::Network;
use trunkline_llc::token::{Line, Options};
use trunkline_llc::wire::HEADER;
use trunkline_run::llc::{self, Promises};
use trunkline_units::{Rate, Span};

use crate::network::topology::Topology;

/// The least between two windows for stations that want to join: all come at the beginning, so they are let in quickly.
const EVERY: Span = Span::from_ms(20);
/// But windows take no more than this part of the time, or little could be promised besides.
const WINDOWS: u64 = 40;

/// The ring of a plan with a token: as tight as its line allows, a station invited at a time. And what its connections
/// promise, or the name of one that always may send and promises nothing.
pub fn promised<'p>(plan: &'p Plan, topology: &Topology<'_>) -> Option<(Network, Result<Promises, &'p str>)> {
    if !llc::has_token(plan) {
        return None;
    }
    let names = llc::stations(plan);
    let nodes: Vec<usize> = names.iter().filter_map(|name| topology.node(name)).collect();
    let largest = plan.connections.iter().map(llc::octets).max().unwrap_or(0) as usize;
    let line = line(topology, &nodes, largest);
    let highest = names.len().clamp(1, 254) as u8;
    let tight = Options::for_line(&line, highest, 1 + HEADER + largest);
    let mut options = Options { invited: 1, ..tight };
    options.every = EVERY.max(options.window() * WINDOWS);
    let promises = llc::promises(plan);
    let stations = promises.as_ref().map_or_else(|_| Vec::new(), |promises| promises.stations.clone());
    Some((Network { line, options, stations, lost: 0, dead: 0 }, promises))
}

/// Whether a bound holds: nobody but the stations sends, and no line loses or damages anything.
pub fn is_sure(plan: &Plan) -> bool {
    let links = plan.network.iter().flat_map(|network| &network.links);
    let perfect = links.into_iter().all(|l| l.loss + l.corrupt + l.duplicate + l.reorder == 0.0);
    let alone = plan
        .connections
        .iter()
        .all(|c| matches!(c.protocol, trunkline_experiment::plan::Protocol::Llc { .. }));
    perfect && alone
}

/// Of the way between two stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    delay: Span,
    rate: Rate,
    /// Switches on it, each of which hears a frame whole.
    switches: u64,
}

/// The line of all stations together: the slowest rate, and the longest way.
fn line(topology: &Topology<'_>, nodes: &[usize], largest: usize) -> Line {
    let ways = |from: usize| nodes.iter().map(move |to| (*to, way(topology, from, *to)));
    let first = nodes.first().copied().unwrap_or(0);
    // In a tree the station farthest from any is an end of the longest way.
    let (far, _) =
        ways(first).max_by_key(|(_, way)| way.delay).unwrap_or((first, way(topology, first, first)));
    let delay = ways(far).map(|(_, way)| way.delay).max().unwrap_or_default();
    let switches = ways(far).map(|(_, way)| way.switches).max().unwrap_or(0);
    let rate = ways(far).map(|(_, way)| way.rate).min().unwrap_or(Rate::from_bps(u64::MAX));
    let mut line = Line::ethernet(rate, delay);
    line.switched = switches > 0;
    let longest = line.message(largest as u32).max(line.token());
    let cost = nodes.iter().map(|node| match &topology.network.nodes[*node].kind {
        NodeKind::Host(costs) => cost(costs, largest as u64 + HEADER as u64),
        _ => Span::ZERO,
    });
    line.hop += longest * switches.saturating_sub(1) + cost.max().unwrap_or_default();
    line
}

/// What a packet of so many octets of PDU costs its sender and its receiver.
fn cost(costs: &HostCosts, pdu: u64) -> Span {
    let length = pdu.max(u64::from(super::SMALLEST)) + u64::from(super::TAG);
    let each = costs.cpu_packet + (costs.cpu_byte + costs.crc_byte + costs.dma_byte) * length;
    each * 2 + costs.interrupt
}

fn way(topology: &Topology<'_>, from: usize, to: usize) -> Way {
    let mut all = Way { delay: Span::ZERO, rate: Rate::from_bps(u64::MAX), switches: 0 };
    for (node, port) in topology.way(from, to).unwrap_or_default() {
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
        Some(promised(&plan, &Topology::new(network))?.0.line)
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
    fn switches_hear_frames_whole() {
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
        assert_eq!(promised(&plan, &Topology::new(network)), None);
        assert!(is_sure(&plan));
    }
}

//! The plan's network as a graph: neighbors and paths between hosts.
//!
//! The language refuses loops, except through converters, which do not forward; routers take part in none. So there is at most one path between two
//! nodes.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_experiment::plan::{self, Medium, NodeKind};
use trunkline_llc::wire::{HEADER, MAX_INFORMATION};

/// Octets of the longest LLC PDU in an Ethernet frame.
const ETHERNET_PDU: u32 = (HEADER + MAX_INFORMATION) as u32;

/// One end of a link and the node at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the link.
    pub link: usize,
    /// The end of the link at this node (0: `a`, 1: `b`).
    pub end: u16,
    /// Index of the node at the other end.
    pub neighbor: usize,
}

/// The graph. The ports of a node are its links in the order of the text.
#[derive(Clone, Debug)]
pub struct Topology<'p> {
    /// The plan's network.
    pub network: &'p plan::Network,
    /// The ports of each node.
    pub ports: Vec<Vec<Hop>>,
    node_index: BTreeMap<&'p str, usize>,
}

impl<'p> Topology<'p> {
    /// Creates the graph of a network.
    pub fn new(network: &'p plan::Network) -> Self {
        let index: BTreeMap<&str, usize> =
            network.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
        let mut ports = vec![Vec::new(); network.nodes.len()];
        for (link, l) in network.links.iter().enumerate() {
            let (a, b) = (index[l.a.as_str()], index[l.b.as_str()]);
            ports[a].push(Hop { link, end: 0, neighbor: b });
            ports[b].push(Hop { link, end: 1, neighbor: a });
        }
        Topology { network, ports, node_index: index }
    }

    /// Returns the index of the node with this name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.node_index.get(name).copied()
    }

    /// Returns the port of `node` that leads to `link`.
    pub fn port_of(&self, node: usize, link: usize) -> u16 {
        self.ports[node].iter().position(|hop| hop.link == link).unwrap_or(0) as u16
    }

    /// Whether a node is a host or a converter: where connections end, and which forwards no packets unless it is a router.
    pub fn is_host(&self, node: usize) -> bool {
        matches!(self.network.nodes[node].kind, NodeKind::Host(_) | NodeKind::Converter { .. })
    }

    /// Whether a node forwards packets: a switch, a shared medium or a router.
    pub fn forwards(&self, node: usize) -> bool {
        self.network.nodes[node].kind.forwards()
    }

    /// Whether a node is a router: a host that forwards packets.
    pub fn is_router(&self, node: usize) -> bool {
        self.is_host(node) && self.forwards(node)
    }

    /// Returns all nodes that packets can reach through a port.
    pub fn nodes_behind(&self, node: usize, port: usize) -> Vec<usize> {
        let (mut found, mut stack) =
            (Vec::new(), vec![(self.ports[node][port].neighbor, self.ports[node][port].link)]);
        while let Some((at, from_link)) = stack.pop() {
            found.push(at);
            if !self.forwards(at) {
                continue;
            }
            stack.extend(
                self.ports[at].iter().filter(|hop| hop.link != from_link).map(|hop| (hop.neighbor, hop.link)),
            );
        }
        found
    }

    /// Returns the path from one node to another: each node on it with its egress port.
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<(usize, u16)>> {
        // The previous hop of each node.
        let mut previous: BTreeMap<usize, (usize, u16)> = BTreeMap::new();
        let mut stack = vec![from];
        while let Some(at) = stack.pop() {
            if at == to {
                let hops = std::iter::successors(previous.get(&to), |(node, _)| previous.get(node));
                let mut path: Vec<_> = hops.copied().collect();
                path.reverse();
                return Some(path);
            }
            if at != from && !self.forwards(at) {
                continue;
            }
            for (port, hop) in self.ports[at].iter().enumerate() {
                if hop.neighbor != from && !previous.contains_key(&hop.neighbor) {
                    previous.insert(hop.neighbor, (at, port as u16));
                    stack.push(hop.neighbor);
                }
            }
        }
        None
    }

    /// Returns the MTU of a path; `None` if it has no links.
    pub fn mtu(&self, path: &[(usize, u16)]) -> Option<u32> {
        self.hops_of(path).map(|(_, hop)| self.link_mtu(hop)).min()
    }

    /// Returns the longest LLC PDU on a path. On Ethernet it is limited independently of the MTU: longer frames have no length
    /// field (IEEE 802.3). Rings carry longer ones, as in AirNET (docs/internals/reproduction.md).
    pub fn max_pdu(&self, path: &[(usize, u16)]) -> Option<u32> {
        let is_ring = |node: usize| matches!(self.network.nodes[node].kind, NodeKind::Ring { .. });
        let longest = |(node, hop): (usize, &Hop)| {
            let max_pdu = if is_ring(node) || is_ring(hop.neighbor) { u32::MAX } else { ETHERNET_PDU };
            self.link_mtu(hop).min(max_pdu)
        };
        self.hops_of(path).map(longest).min()
    }

    fn hops_of<'a>(&'a self, path: &'a [(usize, u16)]) -> impl Iterator<Item = (usize, &'a Hop)> {
        path.iter().map(|(node, port)| (*node, &self.ports[*node][usize::from(*port)]))
    }

    fn link_mtu(&self, hop: &Hop) -> u32 {
        self.network.links[hop.link].mtu.as_bytes() as u32
    }

    /// Whether a node is a cell switch: all its links carry cells. A switch between cells and packets reassembles packets.
    pub fn is_cell_switch(&self, node: usize) -> bool {
        let is_cells = |hop: &Hop| self.network.links[hop.link].medium == Medium::Atm;
        matches!(self.network.nodes[node].kind, NodeKind::Switch { .. })
            && !self.ports[node].is_empty()
            && self.ports[node].iter().all(is_cells)
    }

    /// Whether a node is a shared medium (hub or ring).
    pub fn is_shared(&self, node: usize) -> bool {
        matches!(self.network.nodes[node].kind, NodeKind::Hub { .. } | NodeKind::Ring { .. })
    }

    /// Whether all cells of each output come from one input, for traffic between these pairs of nodes. Then the cells of two
    /// packets never interleave, and a packet can be computed in one step.
    pub fn cells_never_mix(&self, pairs: &[(usize, usize)]) -> bool {
        let mut inputs: BTreeMap<(usize, u16), BTreeSet<u16>> = BTreeMap::new();
        for (from, to) in pairs {
            let path = self.path(*from, *to).unwrap_or_default();
            for step in path.windows(2) {
                let (node, output) = step[1];
                let input = self.port_of(node, self.ports[step[0].0][usize::from(step[0].1)].link);
                if self.is_cell_switch(node) {
                    inputs.entry((node, output)).or_default().insert(input);
                }
            }
        }
        inputs.values().all(|inputs| inputs.len() < 2)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::Source;

    use super::*;

    fn network(nodes: &[(&str, bool)], links: &[(&str, &str)]) -> plan::Network {
        let text: String = nodes
            .iter()
            .map(|(name, switch)| format!("{} {name}; ", if *switch { "switch" } else { "host" }))
            .chain(links.iter().map(|(a, b)| format!("link {a} - {b} (rate = 1 Mb/s, medium = atm); ")))
            .collect();
        let text = format!(
            "experiment \"t\" {{ network {{ {text} }} connection {{ xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; }} }}"
        );
        let parsed = trunkline_experiment::parse(&Source { name: "t", text: &text, folder: None });
        parsed.plan.and_then(|p| p.network).unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics))
    }

    #[test]
    fn finds_paths() {
        let n = network(
            &[("a", false), ("b", false), ("c", false), ("s", true), ("t", true), ("alone", false)],
            &[("a", "s"), ("s", "t"), ("b", "t"), ("c", "s")],
        );
        let t = Topology::new(&n);
        let at = |name| t.node(name).unwrap();
        assert_eq!(t.path(at("a"), at("b")).unwrap(), [(at("a"), 0), (at("s"), 1), (at("t"), 1)]);
        assert_eq!(t.path(at("a"), at("alone")), None);
        let mut behind = t.nodes_behind(at("s"), 1);
        behind.sort();
        assert_eq!(behind, [at("b"), at("t")]);
        assert!(t.is_cell_switch(at("s")) && !t.is_cell_switch(at("a")));
        // Two inputs share the output to `b`.
        assert!(t.cells_never_mix(&[(at("a"), at("b")), (at("b"), at("a"))]));
        assert!(!t.cells_never_mix(&[(at("a"), at("b")), (at("c"), at("b"))]));
    }
}

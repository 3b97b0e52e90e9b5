//! The plan's network as a graph: who is next to whom, and the way from one host to another. Links form no loop but through
//! converters, which hand nothing on (the language refuses any other), so there is one way or none.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_experiment::plan::{self, Medium, NodeKind};
use trunkline_llc::wire::{HEADER, MAX_INFORMATION};

/// Octets of the longest PDU of LLC in a frame of Ethernet.
const ETHERNET_PDU: u32 = (HEADER + MAX_INFORMATION) as u32;

/// One end of a link: which link, which end (0: `a`, 1: `b`), and the node beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the link.
    pub link: usize,
    /// The end of the link at this node.
    pub end: u16,
    /// The node at its other end.
    pub next: usize,
}

/// The graph. A node's ports are its links, in the order of the text.
#[derive(Clone, Debug)]
pub struct Topology<'p> {
    /// The plan's network.
    pub network: &'p plan::Network,
    /// Of each node, its ports.
    pub ports: Vec<Vec<Hop>>,
    index: BTreeMap<&'p str, usize>,
}

impl<'p> Topology<'p> {
    /// The graph of a network.
    pub fn new(network: &'p plan::Network) -> Self {
        let index: BTreeMap<&str, usize> =
            network.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
        let mut ports = vec![Vec::new(); network.nodes.len()];
        for (link, l) in network.links.iter().enumerate() {
            let (a, b) = (index[l.a.as_str()], index[l.b.as_str()]);
            ports[a].push(Hop { link, end: 0, next: b });
            ports[b].push(Hop { link, end: 1, next: a });
        }
        Topology { network, ports, index }
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The port of `node` at which `link` is.
    pub fn port_of(&self, node: usize, link: usize) -> u16 {
        self.ports[node].iter().position(|hop| hop.link == link).unwrap_or(0) as u16
    }

    /// Whether a node hands on what is not for it.
    pub fn forwards(&self, node: usize) -> bool {
        !matches!(self.network.nodes[node].kind, NodeKind::Host(_) | NodeKind::Converter { .. })
    }

    /// Every node that packets get to beyond a port.
    pub fn beyond(&self, node: usize, port: usize) -> Vec<usize> {
        let (mut found, mut stack) =
            (Vec::new(), vec![(self.ports[node][port].next, self.ports[node][port].link)]);
        while let Some((at, by)) = stack.pop() {
            found.push(at);
            if !self.forwards(at) {
                continue;
            }
            stack.extend(self.ports[at].iter().filter(|hop| hop.link != by).map(|hop| (hop.next, hop.link)));
        }
        found
    }

    /// The way from one node to another: of each node on it, the node and the port by which it is left.
    pub fn way(&self, from: usize, to: usize) -> Option<Vec<(usize, u16)>> {
        // Whence each node was reached.
        let mut back: BTreeMap<usize, (usize, u16)> = BTreeMap::new();
        let mut stack = vec![from];
        while let Some(at) = stack.pop() {
            if at == to {
                let mut way = Vec::new();
                let mut at = at;
                while at != from {
                    let (node, port) = back[&at];
                    way.push((node, port));
                    at = node;
                }
                way.reverse();
                return Some(way);
            }
            if at != from && !self.forwards(at) {
                continue;
            }
            for (port, hop) in self.ports[at].iter().enumerate() {
                if hop.next != from && !back.contains_key(&hop.next) {
                    back.insert(hop.next, (at, port as u16));
                    stack.push(hop.next);
                }
            }
        }
        None
    }

    /// The largest packet that every link on a way carries; none, if there is no link on it.
    pub fn mtu(&self, way: &[(usize, u16)]) -> Option<u32> {
        self.hops(way).map(|(_, hop)| self.link_mtu(hop)).min()
    }

    /// The longest PDU of LLC on a way. On Ethernet it is bounded whatever the MTU: longer ones have no length field.
    /// The rings of 1990 carried them.
    pub fn longest_pdu(&self, way: &[(usize, u16)]) -> Option<u32> {
        let is_ring = |node: usize| matches!(self.network.nodes[node].kind, NodeKind::Ring { .. });
        let longest = |(node, hop): (usize, &Hop)| {
            let most = if is_ring(node) || is_ring(hop.next) { u32::MAX } else { ETHERNET_PDU };
            self.link_mtu(hop).min(most)
        };
        self.hops(way).map(longest).min()
    }

    fn hops<'a>(&'a self, way: &'a [(usize, u16)]) -> impl Iterator<Item = (usize, &'a Hop)> {
        way.iter().map(|(node, port)| (*node, &self.ports[*node][usize::from(*port)]))
    }

    fn link_mtu(&self, hop: &Hop) -> u32 {
        self.network.links[hop.link].mtu.as_bytes() as u32
    }

    /// Whether a node switches cells: all its links carry them. A switch between cells and packets takes packets.
    pub fn is_cellular(&self, node: usize) -> bool {
        let is_cells = |hop: &Hop| self.network.links[hop.link].medium == Medium::Atm;
        matches!(self.network.nodes[node].kind, NodeKind::Switch { .. })
            && !self.ports[node].is_empty()
            && self.ports[node].iter().all(is_cells)
    }

    /// Whether a node is itself what its stations share.
    pub fn is_shared(&self, node: usize) -> bool {
        matches!(self.network.nodes[node].kind, NodeKind::Hub { .. } | NodeKind::Ring { .. })
    }

    /// Whether the cells of each output come through one input, for traffic between these pairs of nodes: then a
    /// packet's cells never mix with another's on their way, and may be computed in one step.
    pub fn cells_never_mix(&self, pairs: &[(usize, usize)]) -> bool {
        let mut inputs: BTreeMap<(usize, u16), BTreeSet<u16>> = BTreeMap::new();
        for (from, to) in pairs {
            let way = self.way(*from, *to).unwrap_or_default();
            for step in way.windows(2) {
                let (node, output) = step[1];
                let input = self.port_of(node, self.ports[step[0].0][usize::from(step[0].1)].link);
                if self.is_cellular(node) {
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
    fn ways_are_found() {
        let n = network(
            &[("a", false), ("b", false), ("c", false), ("s", true), ("t", true), ("alone", false)],
            &[("a", "s"), ("s", "t"), ("b", "t"), ("c", "s")],
        );
        let t = Topology::new(&n);
        let at = |name| t.node(name).unwrap();
        assert_eq!(t.way(at("a"), at("b")).unwrap(), [(at("a"), 0), (at("s"), 1), (at("t"), 1)]);
        assert_eq!(t.way(at("a"), at("alone")), None);
        let mut beyond = t.beyond(at("s"), 1);
        beyond.sort();
        assert_eq!(beyond, [at("b"), at("t")]);
        assert!(t.is_cellular(at("s")) && !t.is_cellular(at("a")));
        // Two inputs share the output to b.
        assert!(t.cells_never_mix(&[(at("a"), at("b")), (at("b"), at("a"))]));
        assert!(!t.cells_never_mix(&[(at("a"), at("b")), (at("c"), at("b"))]));
    }
}

//! The converters of a network, and on which side of them hosts stand.
//!
//! A host from which links lead to the central converter runs its host interface; one that has only links to converters of
//! level 1, or says `wide_area = on`, is in the wide area and sends and gets plain messages. Hosts that
//! are no routers, and converters, forward nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Connection, ConverterRole, Network, Node, NodeKind, Protocol};

/// A part of the network within which packets get everywhere: a number that all its links have.
pub type Segment = usize;

/// The segments of a network.
#[derive(Clone, Debug)]
pub struct Segments<'n> {
    /// Of each node, those of its links, in their order.
    of: BTreeMap<&'n str, Vec<Segment>>,
}

impl<'n> Segments<'n> {
    /// Those of a network.
    pub fn of(network: &'n Network) -> Segments<'n> {
        let forwards: BTreeSet<&str> =
            network.nodes.iter().filter(|node| node.kind.forwards()).map(|node| node.name.as_str()).collect();
        // Links that meet in a node which forwards are one segment, named by the first of them.
        let mut segments = Groups::new(network.links.len());
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, link) in network.links.iter().enumerate() {
            for end in [link.a.as_str(), link.b.as_str()] {
                if forwards.contains(end) {
                    segments.join(*first.entry(end).or_insert(at), at);
                }
            }
        }
        let mut of: BTreeMap<&str, Vec<Segment>> = BTreeMap::new();
        for (at, link) in network.links.iter().enumerate() {
            let segment = segments.first(at);
            of.entry(&link.a).or_default().push(segment);
            of.entry(&link.b).or_default().push(segment);
        }
        Segments { of }
    }

    /// The segments of a node's links, in their order; none, if no link reaches it.
    pub fn at(&self, node: &str) -> &[Segment] {
        self.of.get(node).map_or(&[], Vec::as_slice)
    }

    /// The segments that any of these nodes touches.
    pub fn of_all<'m>(&self, nodes: impl IntoIterator<Item = &'m Node>) -> BTreeSet<Segment> {
        nodes.into_iter().flat_map(|node| self.at(&node.name)).copied().collect()
    }
}

/// Things that are joined into groups: union-find with path halving.
pub(crate) struct Groups(Vec<usize>);

impl Groups {
    /// So many things, each alone.
    pub(crate) fn new(count: usize) -> Groups {
        Groups((0..count).collect())
    }

    /// The first thing in the group of this one.
    pub(crate) fn first(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    /// Joins the groups of two things; false if they were joined already.
    pub(crate) fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
        a != b
    }
}

/// Who takes part in bundling.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides<'n> {
    /// Central converters: one, in a plan that was checked.
    pub central: Vec<&'n Node>,
    /// Converters of level 1, in the order of their numbers: one to six.
    pub level1: Vec<&'n Node>,
    /// Hosts of the central converter, in the order of the network: the first is number 1.
    pub hosts: Vec<&'n str>,
    /// Hosts in the wide area.
    pub wide: Vec<&'n str>,
}

impl<'n> Sides<'n> {
    /// Who takes part; none, if no connection goes over `bundle`.
    pub fn of(
        network: &'n Network,
        segments: &Segments<'_>,
        connections: &[Connection],
    ) -> Option<Sides<'n>> {
        let bundled = connections.iter().filter(|c| matches!(c.protocol, Protocol::Bundle { .. }));
        let ends: BTreeSet<&str> = bundled.flat_map(Connection::ends).map(|end| end.host.as_str()).collect();
        if ends.is_empty() {
            return None;
        }
        let of_role = |wanted: ConverterRole| {
            let is = move |node: &&'n Node| matches!(node.kind, NodeKind::Converter { role, .. } if role == wanted);
            network.nodes.iter().filter(is).collect::<Vec<&Node>>()
        };
        let (central, mut level1) = (of_role(ConverterRole::Central), of_role(ConverterRole::Level1));
        level1.sort_by_key(|node| number(node));
        let inner = segments.of_all(central.iter().copied());
        let (mut hosts, mut wide) = (Vec::new(), Vec::new());
        for node in network.nodes.iter().filter(|node| ends.contains(node.name.as_str())) {
            let NodeKind::Host(costs) = &node.kind else { continue };
            let is_local = segments.at(&node.name).iter().any(|segment| inner.contains(segment));
            let side = if is_local && !costs.wide_area { &mut hosts } else { &mut wide };
            side.push(node.name.as_str());
        }
        Some(Sides { central, level1, hosts, wide })
    }
}

/// The number of a converter; 0, if it is none.
pub fn number(node: &Node) -> u32 {
    match node.kind {
        NodeKind::Converter { number, .. } => number,
        _ => 0,
    }
}

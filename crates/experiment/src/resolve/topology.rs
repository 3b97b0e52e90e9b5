//! What nodes and links make together: a tree, or the loops that are in the way; rings; who can be reached.

use std::collections::{BTreeMap, BTreeSet};

use super::{Context, explicit_rate, queue};
use crate::converters::Groups;
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{Connection, Link, Medium, Network, Node, NodeKind, Protocol, SourceRange};

/// Stations of a ring at most: their addresses have a byte, and one address means all of them.
const LARGEST_RING: usize = 255;
/// Of a longer loop the middle is not shown.
const SHOWN: usize = 8;

/// Checks the links of a network against each other.
pub(crate) fn check(cx: &mut Context<'_>, network: &Network) {
    let index = index(network);
    check_loops(cx, network, &index);
    explicit_rate::check(cx, network);
    queue::check_atm(cx, network);
    let mut stations: Vec<Vec<&Link>> = vec![Vec::new(); network.nodes.len()];
    for link in &network.links {
        for end in [&link.a, &link.b] {
            stations[index[end.as_str()]].push(link);
        }
    }
    for (node, links) in network.nodes.iter().zip(&stations) {
        check_ring(cx, node, links);
        check_channels(cx, node, links);
    }
}

fn index(network: &Network) -> BTreeMap<&str, usize> {
    network.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect()
}

fn check_ring(cx: &mut Context<'_>, node: &Node, links: &[&Link]) {
    if let (NodeKind::Ring { .. }, Some(link)) = (&node.kind, links.get(LARGEST_RING)) {
        let message = format!("`{}` has {} stations", shorten(&node.name), links.len());
        let error = Diagnostic::error(link.location, message);
        cx.report(error.label(format!("expected at most {LARGEST_RING}")).with(node.location, "the ring"));
    }
}

fn check_channels(cx: &mut Context<'_>, node: &Node, links: &[&Link]) {
    let option = match node.kind {
        NodeKind::Switch { each_channel: true, .. } => "buffer_per = port",
        NodeKind::Switch { round_robin: true, .. } => "scheduling = fifo",
        _ => return,
    };
    if !links.iter().any(|link| link.medium == Medium::Atm) {
        let warning = Diagnostic::warning(node.location, "only ATM has virtual channels");
        cx.report(warning.label(format!("expected a link with `medium = atm`, or `{option}`")));
    }
}

// --- loops

/// The nodes that tree links join to each node, and by which link.
type Neighbours<'n> = [Vec<(usize, &'n Link)>];

/// Between any two nodes there is one way at most: a link between two that are joined already closes a loop.
fn check_loops(cx: &mut Context<'_>, network: &Network, index: &BTreeMap<&str, usize>) {
    let mut groups = Groups::new(network.nodes.len());
    let mut neighbours = vec![Vec::new(); network.nodes.len()];
    for link in &network.links {
        let (a, b) = (index[link.a.as_str()], index[link.b.as_str()]);
        if is_converter(&network.nodes[a]) || is_converter(&network.nodes[b]) {
            // No way leads through it, so none leads round.
            continue;
        }
        if groups.join(a, b) {
            neighbours[a].push((b, link));
            neighbours[b].push((a, link));
        } else {
            // The search is slow in a large network; skip it once no further diagnostic is shown.
            let way = if cx.diagnostics.flooded() { Vec::new() } else { path(&neighbours, b, a) };
            cx.report(closes_a_loop(link, &way));
        }
    }
}

/// The links that lead from one node to another through a forest, in order.
fn path<'n>(neighbours: &Neighbours<'n>, from: usize, to: usize) -> Vec<&'n Link> {
    // Searched backwards, so that the steps come out in order.
    let mut toward: Vec<Option<(usize, &Link)>> = vec![None; neighbours.len()];
    let mut left = vec![to];
    while let Some(node) = left.pop() {
        for (next, link) in &neighbours[node] {
            if *next != to && toward[*next].is_none() {
                toward[*next] = Some((node, *link));
                left.push(*next);
            }
        }
    }
    let mut way = Vec::new();
    let mut at = from;
    while let Some((next, link)) = toward[at] {
        way.push(link);
        at = next;
    }
    way
}

/// What to say of `link`, between whose ends `way` leads already.
fn closes_a_loop(link: &Link, way: &[&Link]) -> Diagnostic {
    let (a, b) = (shorten(&link.a), shorten(&link.b));
    let help = "one way only may lead from a node to another: leave out one of these links";
    if let [first] = way {
        let error = Diagnostic::error(link.location, format!("two links between `{a}` and `{b}` are a loop"));
        return error.label("the second").with(first.location, "the first").help(help);
    }
    let mut nodes = vec![link.b.as_str()];
    for step in way {
        let last = nodes[nodes.len() - 1];
        nodes.push(if step.a == last { &step.b } else { &step.a });
    }
    let mut names: Vec<String> = nodes.into_iter().map(shorten).collect();
    if names.len() > SHOWN {
        names.splice(SHOWN / 2..names.len() - SHOWN / 2, ["…".to_owned()]);
    }
    let error = Diagnostic::error(link.location, format!("`{a} - {b}` closes a loop: {}", names.join(" - ")));
    let error = error.label("closes the loop").help(help);
    way.iter().take(SHOWN).fold(error, |error, step| error.with(step.location, "is part of it"))
}

// --- the network and the connections together

/// Checks that the ends of every connection are hosts of the network and that links join them.
pub(crate) fn check_connections(cx: &mut Context<'_>, network: &Network, connections: &[Connection]) {
    let kinds: BTreeMap<&str, &Node> = network.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
    // A link that could not be read is missing here, and was reported.
    let whole = cx.diagnostics.errors() == 0;
    let islands = islands(network);
    let reach = Reach::new(network);
    let mut unlinked = BTreeSet::new();
    for connection in connections {
        let from = &connection.from;
        let known = is_host(cx, &kinds, &from.host, from.location);
        for to in &connection.to {
            if !(is_host(cx, &kinds, &to.host, to.location) && known && whole) {
                continue;
            }
            let lonely = [from, to].into_iter().find(|end| !islands.contains_key(end.host.as_str()));
            if let Some(end) = lonely {
                if unlinked.insert(end.host.as_str()) {
                    let error = Diagnostic::error(
                        kinds[end.host.as_str()].location,
                        format!("no link reaches `{}`", shorten(&end.host)),
                    );
                    let label = format!("expected `link {} - …`", shorten(&end.host));
                    cx.report(error.label(label).with(end.location, "a connection uses it"));
                }
            } else if islands[from.host.as_str()] == islands[to.host.as_str()] {
                // Bundles go from converter to converter; `bundles` says how far.
                let is_bundled = matches!(connection.protocol, Protocol::Bundle { .. });
                if from.host != to.host && !is_bundled && !reach.joins(&from.host, &to.host) {
                    let (who, label) = match network.nodes.iter().any(is_converter) {
                        true => ("hosts or converters", "not reached: they do not forward"),
                        false => ("hosts", "not reached: a host forwards only with `forward`"),
                    };
                    let (a, b) = (shorten(&from.host), shorten(&to.host));
                    let message = format!("from `{a}` only ways through other {who} lead to `{b}`");
                    let error = Diagnostic::error(to.location, message).label(label);
                    cx.report(error.with(from.location, "from here"));
                }
            } else {
                let message =
                    format!("no links lead from `{}` to `{}`", shorten(&from.host), shorten(&to.host));
                cx.report(
                    Diagnostic::error(to.location, message)
                        .label("not reached")
                        .with(from.location, "from here"),
                );
            }
        }
    }
    let lonely = |node: &&Node| {
        let name = node.name.as_str();
        matches!(node.kind, NodeKind::Host(_)) && !islands.contains_key(name) && !unlinked.contains(name)
    };
    for node in network.nodes.iter().filter(|_| whole).filter(lonely) {
        let warning =
            Diagnostic::warning(node.location, format!("no link reaches `{}`", shorten(&node.name)));
        cx.report(warning.label(format!("expected `link {} - …`", shorten(&node.name))));
    }
}

fn is_host(cx: &mut Context<'_>, kinds: &BTreeMap<&str, &Node>, name: &str, location: SourceRange) -> bool {
    match kinds.get(name) {
        Some(Node { kind: NodeKind::Host(_), .. }) => return true,
        Some(node) => {
            let error = Diagnostic::error(location, format!("`{}` is not a host", shorten(name)));
            cx.report(error.label("expected a host of the network").with(node.location, "declared here"));
        }
        None => {
            let error =
                Diagnostic::error(location, format!("no host of the network is called `{}`", shorten(name)));
            let hosts =
                kinds.values().filter(|n| matches!(n.kind, NodeKind::Host(_))).map(|n| n.name.as_str());
            cx.report(cx.suggest(error.label("expected a host of the network"), name, hosts));
        }
    }
    false
}

fn is_converter(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Converter { .. })
}

/// Which hosts packets get to from another: along a link, or through nodes that forward, which converters, and hosts that
/// are no routers, do not.
struct Reach<'n> {
    /// Of each host the islands of forwarding nodes that it touches.
    touches: BTreeMap<&'n str, BTreeSet<usize>>,
    /// Hosts next to each other.
    next: BTreeSet<(&'n str, &'n str)>,
}

impl<'n> Reach<'n> {
    fn new(network: &'n Network) -> Self {
        let index = index(network);
        let is_host = |at: usize| !network.nodes[at].kind.forwards();
        let ends: Vec<(usize, usize)> =
            network.links.iter().map(|l| (index[l.a.as_str()], index[l.b.as_str()])).collect();
        let mut groups = Groups::new(network.nodes.len());
        for (a, b) in ends.iter().filter(|(a, b)| !is_host(*a) && !is_host(*b)) {
            groups.join(*a, *b);
        }
        let mut reach = Reach { touches: BTreeMap::new(), next: BTreeSet::new() };
        for (at, node) in network.nodes.iter().enumerate().filter(|(_, node)| node.kind.forwards()) {
            reach.touches.entry(&node.name).or_default().insert(groups.first(at));
        }
        for (a, b) in ends {
            for (host, other) in [(a, b), (b, a)].into_iter().filter(|(host, _)| is_host(*host)) {
                let name = network.nodes[host].name.as_str();
                if is_host(other) {
                    reach.next.insert((name, network.nodes[other].name.as_str()));
                } else {
                    reach.touches.entry(name).or_default().insert(groups.first(other));
                }
            }
        }
        reach
    }

    fn joins(&self, from: &str, to: &str) -> bool {
        let share = |a: &BTreeSet<usize>, b: &BTreeSet<usize>| a.intersection(b).next().is_some();
        let touch = self.touches.get(from).zip(self.touches.get(to));
        self.next.contains(&(from, to)) || touch.is_some_and(|(a, b)| share(a, b))
    }
}

/// For each linked node the first node of its island.
fn islands(network: &Network) -> BTreeMap<&str, usize> {
    let index = index(network);
    let mut groups = Groups::new(network.nodes.len());
    let mut linked = BTreeSet::new();
    for link in &network.links {
        let (a, b) = (index[link.a.as_str()], index[link.b.as_str()]);
        linked.extend([a, b]);
        groups.join(a, b);
    }
    linked.into_iter().map(|node| (network.nodes[node].name.as_str(), groups.first(node))).collect()
}

//! `network { … }`: nodes and links with their defaults, and every check that needs no simulator.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_units::{Rate, Size, Span};

use super::Context;
use super::options::{
    Given, Options, choice, integer, one, optional, put, rate, share, single, size, text, time,
};
use super::quantity::Dimension;
use super::quantity::number;
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{
    Amount, BundleFormat, BundleTimers, Connection, ConverterRole, HostCosts, Link, Medium, Network, Node,
    NodeKind, PacingCounts, Place,
};
use crate::tree::{Declaration, Value, Word};

const HOST: &[&str] = &[
    "cpu_packet",
    "cpu_byte",
    "interrupt",
    "dma_byte",
    "crc_byte",
    "sar_cell",
    "cpus",
    "rx_buffer",
    "disk",
    "mcast_filter",
    "program",
];
const LINK: &[&str] = &[
    "medium",
    "rate",
    "payload",
    "delay",
    "mtu",
    "pacing",
    "pacing_counts",
    "loss",
    "corrupt",
    "duplicate",
    "reorder",
    "credits",
];

/// Words for what a converter is and does.
pub(crate) const ROLES: &[(&str, ConverterRole)] =
    &[("level1", ConverterRole::Level1), ("central", ConverterRole::Central)];
pub(crate) const FORMATS: &[(&str, BundleFormat)] =
    &[("classic", BundleFormat::Classic), ("wide", BundleFormat::Wide)];
pub(crate) const TIMERS: &[(&str, BundleTimers)] =
    &[("classic", BundleTimers::Classic), ("adaptive", BundleTimers::Adaptive)];
/// Words for the framing of a link.
pub(crate) const MEDIA: &[(&str, Medium)] =
    &[("atm", Medium::Atm), ("ethernet", Medium::Ethernet), ("ppp", Medium::Ppp)];
/// Words for what a pacing rate counts.
pub(crate) const COUNTS: &[(&str, PacingCounts)] =
    &[("cells", PacingCounts::Cells), ("payload", PacingCounts::Payload)];

/// A shared medium before anybody says otherwise.
const SHARED_RATE: Rate = Rate::from_bps(10_000_000);
/// RFC 791: every internet module forwards 68 octets.
const SMALLEST_MTU: u64 = 68;
/// Bytes of an ATM cell.
const CELL: u64 = 53;

/// Reads the declarations of a network, nodes first, so that a link may stand above what it joins.
pub(crate) fn network(cx: &mut Context<'_>, declarations: &[Declaration]) -> Network {
    let mut network = Network::default();
    let mut names = BTreeMap::new();
    for declaration in declarations.iter().filter(|d| d.keyword.text != "link") {
        let Some(kind) = node_kind(cx, declaration) else { continue };
        for name in &declaration.names {
            if claim(cx, &mut names, name) {
                network.nodes.push(Node { name: name.text.clone(), kind: kind.clone(), place: name.place });
            }
        }
    }
    let nodes: BTreeMap<String, usize> =
        network.nodes.iter().enumerate().map(|(i, n)| (n.name.clone(), i)).collect();
    let mut taken = BTreeMap::new();
    for declaration in declarations.iter().filter(|d| d.keyword.text == "link") {
        if let Some(link) = link(cx, declaration, &network, &nodes, &mut taken) {
            network.links.push(link);
        }
    }
    network
}

/// Takes a node's name, or reports who has it.
fn claim(cx: &mut Context<'_>, names: &mut BTreeMap<String, Place>, name: &Word) -> bool {
    if name.text.contains('/') || name.text.is_empty() {
        cx.report(
            Diagnostic::error(name.place, "this is no name").label("expected letters, digits, `.`, `_`, `-`"),
        );
        return false;
    }
    if let Some(first) = names.get(&name.text) {
        let error = Diagnostic::error(name.place, format!("`{}` is declared twice", shorten(&name.text)));
        cx.report(error.label("and again here").with(*first, "it is first declared here"));
        return false;
    }
    names.insert(name.text.clone(), name.place);
    true
}

// --- nodes

fn node_kind(cx: &mut Context<'_>, declaration: &Declaration) -> Option<NodeKind> {
    Some(match declaration.keyword.text.as_str() {
        "host" => NodeKind::Host(host(cx, declaration)),
        "switch" => switch(cx, declaration),
        "hub" => hub(cx, declaration),
        "ring" => ring(cx, declaration),
        _ => converter(cx, declaration)?,
    })
}

fn apply(
    cx: &mut Context<'_>,
    declaration: &Declaration,
    names: &[&'static str],
    mut set: impl FnMut(&mut Context<'_>, &'static str, &Value),
) -> Given {
    let owner = format!("a {}", declaration.keyword.text);
    Options::of(&owner, names).apply(cx, &declaration.arguments, |cx, name, setting| {
        if let Some(value) = one(cx, setting) {
            set(cx, name, value);
        }
    })
}

fn host(cx: &mut Context<'_>, declaration: &Declaration) -> HostCosts {
    let mut host = HostCosts { cpus: 1, ..HostCosts::default() };
    apply(cx, declaration, HOST, |cx, name, value| match name {
        "cpu_packet" => put(&mut host.cpu_packet, time(cx, value)),
        "cpu_byte" => put(&mut host.cpu_byte, time(cx, value)),
        "interrupt" => put(&mut host.interrupt, time(cx, value)),
        "dma_byte" => put(&mut host.dma_byte, time(cx, value)),
        "crc_byte" => put(&mut host.crc_byte, time(cx, value)),
        "sar_cell" => put(&mut host.sar_cell, time(cx, value)),
        "cpus" => put(&mut host.cpus, integer(cx, value, 1, 4096).map(|n| n as u32)),
        "rx_buffer" => put(&mut host.rx_buffer, optional(cx, value, "none", amount)),
        "disk" => put(&mut host.disk, optional(cx, value, "none", rate)),
        "mcast_filter" => {
            let bits = |cx: &mut Context<'_>, value: &Value| integer(cx, value, 1, 65_536).map(|n| n as u32);
            put(&mut host.mcast_filter, optional(cx, value, "none", bits));
        }
        _ => {
            let program = |cx: &mut Context<'_>, value: &Value| {
                text(cx, value, "a command, such as `\"iperf3 -s\"`").map(str::to_owned)
            };
            put(&mut host.program, optional(cx, value, "none", program));
        }
    });
    host
}

fn switch(cx: &mut Context<'_>, declaration: &Declaration) -> NodeKind {
    let mut buffer = Amount::Packets(100);
    let mut latency = Span::ZERO;
    apply(cx, declaration, &["buffer", "latency"], |cx, name, value| match name {
        "buffer" => put(&mut buffer, amount(cx, value)),
        _ => put(&mut latency, time(cx, value)),
    });
    NodeKind::Switch { buffer, latency }
}

fn hub(cx: &mut Context<'_>, declaration: &Declaration) -> NodeKind {
    let mut bit_rate = SHARED_RATE;
    apply(cx, declaration, &["rate"], |cx, _, value| put(&mut bit_rate, rate(cx, value)));
    NodeKind::Hub { rate: bit_rate }
}

fn ring(cx: &mut Context<'_>, declaration: &Declaration) -> NodeKind {
    let mut bit_rate = SHARED_RATE;
    // The ring of 1990: 2046 bytes.
    let mut frame = Size::from_bytes(2046);
    apply(cx, declaration, &["rate", "frame"], |cx, name, value| match name {
        "rate" => put(&mut bit_rate, rate(cx, value)),
        _ => put(&mut frame, size(cx, value)),
    });
    NodeKind::Ring { rate: bit_rate, frame }
}

fn converter(cx: &mut Context<'_>, declaration: &Declaration) -> Option<NodeKind> {
    let mut role = None;
    let mut number = 1;
    let mut format = BundleFormat::Classic;
    let mut timers = BundleTimers::Classic;
    let mut capacity = None;
    let names = &["role", "number", "format", "timers", "capacity"];
    let given = apply(cx, declaration, names, |cx, name, value| match name {
        "role" => role = choice(cx, value, ROLES),
        "number" => put(&mut number, integer(cx, value, 1, u64::from(u32::MAX)).map(|n| n as u32)),
        "format" => put(&mut format, choice(cx, value, FORMATS)),
        "timers" => put(&mut timers, choice(cx, value, TIMERS)),
        _ => put(&mut capacity, optional(cx, value, "none", rate)),
    });
    Options::of("a converter", names).require(cx, declaration.keyword.place, &given, &["role"]);
    Some(NodeKind::Converter { role: role?, number, format, timers, capacity })
}

/// Room in a buffer: `256 cells`, `100 packets`, `64 kB`.
fn amount(cx: &mut Context<'_>, value: &Value) -> Option<Amount> {
    let part = single(cx, value, "room, such as `256 cells`, `100 packets` or `64 kB`")?;
    let digits = part.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = part.unit.as_ref().map_or(&part.text[digits.len()..], |unit| unit.text.as_str());
    let make: fn(u64) -> Amount = match unit {
        "cells" | "cell" => Amount::Cells,
        "packets" | "packet" => Amount::Packets,
        _ if part.arguments.is_none() && !unit.is_empty() && !Dimension::Size.knows(unit) => {
            let place = part.unit.as_ref().map_or(part.place, |unit| unit.place);
            let error =
                Diagnostic::error(place, format!("`{}` is no unit of room in a buffer", shorten(unit)));
            cx.report(error.label("expected `cells`, `packets` or a unit of size such as `kB`"));
            return None;
        }
        _ => return size(cx, value).map(|size| Amount::Bytes(size.as_bytes())),
    };
    let mut count = part.clone();
    count.text.truncate(digits.len());
    count.unit = None;
    let count = Value { parts: vec![count], place: value.place };
    number(cx, &count, Dimension::Count).map(|n| make(n as u64))
}

// --- links

fn link(
    cx: &mut Context<'_>,
    declaration: &Declaration,
    network: &Network,
    nodes: &BTreeMap<String, usize>,
    taken: &mut BTreeMap<String, usize>,
) -> Option<Link> {
    let [a, b] = &declaration.names[..] else { return None };
    let place = Place { start: a.place.start, end: b.place.end };
    let mut link = Link {
        name: String::new(),
        a: a.text.clone(),
        b: b.text.clone(),
        medium: Medium::Ethernet,
        rate: Rate::default(),
        payload: Rate::default(),
        delay: Span::ZERO,
        mtu: Size::from_bytes(1500),
        pacing: None,
        pacing_counts: PacingCounts::Cells,
        loss: 0.0,
        corrupt: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        credits: None,
        place,
    };
    let mut payload = None;
    let given = apply(cx, declaration, LINK, |cx, name, value| set(cx, &mut link, &mut payload, name, value));
    let ends = [a, b].map(|end| known_node(cx, network, nodes, end));
    let [Some(first), Some(second)] = ends else { return None };
    if a.text == b.text {
        cx.report(
            Diagnostic::error(place, format!("`{}` is linked to itself", shorten(&a.text)))
                .label("expected two nodes"),
        );
        return None;
    }
    inherit(cx, &mut link, [first, second], &given);
    link.payload = payload.unwrap_or_else(|| payload_of(link.medium, link.rate));
    check_link(cx, &link, [first, second], &given);
    link.name = numbered(taken, &format!("{}-{}", a.text, b.text));
    Some(link)
}

fn set(cx: &mut Context<'_>, link: &mut Link, payload: &mut Option<Rate>, name: &str, value: &Value) {
    match name {
        "medium" => put(&mut link.medium, choice(cx, value, MEDIA)),
        "rate" => put(&mut link.rate, rate(cx, value)),
        "payload" => *payload = rate(cx, value),
        "delay" => put(&mut link.delay, time(cx, value)),
        "mtu" => put(&mut link.mtu, mtu(cx, value)),
        "pacing" => put(&mut link.pacing, optional(cx, value, "none", rate)),
        "pacing_counts" => put(&mut link.pacing_counts, choice(cx, value, COUNTS)),
        "loss" => put(&mut link.loss, share(cx, value)),
        "corrupt" => put(&mut link.corrupt, share(cx, value)),
        "duplicate" => put(&mut link.duplicate, share(cx, value)),
        "reorder" => put(&mut link.reorder, share(cx, value)),
        _ => put(
            &mut link.credits,
            optional(cx, value, "none", |cx, v| integer(cx, v, 1, u64::from(u32::MAX))),
        ),
    }
}

fn mtu(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    let mtu = size(cx, value)?;
    if mtu.as_bytes() < SMALLEST_MTU {
        let error = Diagnostic::error(value.place, format!("an MTU of {mtu} carries no IP packet"));
        cx.report(error.label(format!("expected at least {SMALLEST_MTU} B")));
        return None;
    }
    Some(mtu)
}

fn known_node<'n>(
    cx: &mut Context<'_>,
    network: &'n Network,
    nodes: &BTreeMap<String, usize>,
    name: &Word,
) -> Option<&'n Node> {
    let found = nodes.get(&name.text).map(|at| &network.nodes[*at]);
    if found.is_none() {
        let error = Diagnostic::error(name.place, format!("no node is called `{}`", shorten(&name.text)));
        let error = error.label("expected a host, switch, hub, ring or converter");
        cx.report(cx.suggest(error, &name.text, nodes.keys().map(String::as_str)));
    }
    found
}

/// The bit rate of a node whose medium is shared.
fn shared_rate(node: &Node) -> Option<Rate> {
    match node.kind {
        NodeKind::Hub { rate } | NodeKind::Ring { rate, .. } => Some(rate),
        _ => None,
    }
}

/// A hub's or ring's stations inherit its rate; every other link says its own.
fn inherit(cx: &mut Context<'_>, link: &mut Link, ends: [&Node; 2], given: &Given) {
    let shared = ends.iter().find_map(|node| shared_rate(node).map(|rate| (node, rate)));
    match (shared, given.get("rate")) {
        (Some((node, rate)), Some(place)) if link.rate != rate && link.rate != Rate::default() => {
            let error = Diagnostic::error(*place, format!("`{}` is shared at {rate}", shorten(&node.name)));
            cx.report(
                error
                    .label("a station runs at the rate of its hub or ring")
                    .with(node.place, "declared here"),
            );
        }
        (Some((_, rate)), _) => link.rate = rate,
        (None, Some(_)) => {}
        (None, None) => {
            let error = Diagnostic::error(link.place, "this link has no rate");
            cx.report(error.label("expected `rate = …`; only the stations of a hub or ring inherit one"));
        }
    }
}

/// What a line rate leaves to cells: SONET and PLCP take the rest.
fn payload_of(medium: Medium, line: Rate) -> Rate {
    match (medium, line.as_bps()) {
        (Medium::Atm, 155_000_000 | 155_520_000) => Rate::from_bps(149_760_000),
        (Medium::Atm, 45_000_000 | 44_736_000) => Rate::from_bps(40_704_000),
        (Medium::Atm, 622_080_000) => Rate::from_bps(599_040_000),
        _ => line,
    }
}

/// `A-B`, then `A-B.2`, `A-B.3`.
pub(crate) fn numbered(taken: &mut BTreeMap<String, usize>, name: &str) -> String {
    let mut count = taken.get(name).copied().unwrap_or(0);
    let fresh = loop {
        count += 1;
        let candidate = if count == 1 { name.to_owned() } else { format!("{name}.{count}") };
        if count == 1 || !taken.contains_key(&candidate) {
            break candidate;
        }
    };
    taken.insert(name.to_owned(), count);
    if fresh != name {
        taken.entry(fresh.clone()).or_insert(1);
    }
    fresh
}

fn check_link(cx: &mut Context<'_>, link: &Link, ends: [&Node; 2], given: &Given) {
    let at = |name: &str| given.get(name).copied().unwrap_or(link.place);
    if link.payload > link.rate && link.rate != Rate::default() {
        let error =
            Diagnostic::error(at("payload"), format!("the payload exceeds the line rate of {}", link.rate));
        cx.report(error.label("expected at most the rate of the link"));
    }
    if let Some(pacing) = link.pacing.filter(|pacing| *pacing > link.payload && link.rate != Rate::default())
    {
        let warning =
            Diagnostic::warning(at("pacing"), format!("pacing at {pacing} never holds anything back"));
        cx.report(warning.label(format!("the link carries {} at most", link.payload)));
    }
    if link.credits.is_some() && link.medium != Medium::Atm {
        let error = Diagnostic::error(at("credits"), "credits flow per virtual channel, which only ATM has");
        cx.report(error.label("expected `medium = atm` on this link"));
    }
    for node in ends {
        check_room(cx, link, node, at("mtu"));
    }
}

/// A buffer holds at least one packet (on ATM one cell), and a ring's frame the link's largest packet.
fn check_room(cx: &mut Context<'_>, link: &Link, node: &Node, mtu: Place) {
    let packet = if link.medium == Medium::Atm { CELL } else { link.mtu.as_bytes() };
    let room = match &node.kind {
        NodeKind::Switch { buffer, .. } => Some(*buffer),
        NodeKind::Host(costs) => costs.rx_buffer,
        NodeKind::Ring { frame, .. } if frame.as_bytes() < link.mtu.as_bytes() => {
            let error =
                Diagnostic::error(mtu, format!("an MTU of {} exceeds the ring's frame of {frame}", link.mtu));
            cx.report(error.label("expected at most the frame of the ring").with(node.place, "the ring"));
            None
        }
        _ => None,
    };
    let bytes = match room {
        Some(Amount::Bytes(bytes)) => bytes,
        Some(Amount::Cells(cells)) => cells.saturating_mul(CELL),
        Some(Amount::Packets(_)) | None => return,
    };
    if bytes < packet {
        let message =
            format!("the buffer of `{}` ({bytes} B) never holds a packet of this link", shorten(&node.name));
        let error =
            Diagnostic::error(node.place, message).label(format!("expected room for {packet} B at least"));
        cx.report(error.with(link.place, "the link"));
    }
}

// --- the network and the connections together

/// Checks that the ends of every connection are hosts of the network and that links join them.
pub(crate) fn check_connections(cx: &mut Context<'_>, network: &Network, connections: &[Connection]) {
    let kinds: BTreeMap<&str, &Node> = network.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
    // A link that could not be read is missing here, and was reported.
    let whole = cx.diagnostics.errors() == 0;
    let islands = islands(network);
    let mut unlinked = BTreeSet::new();
    for connection in connections {
        let from = &connection.from;
        let known = is_host(cx, &kinds, &from.host, from.place);
        for to in &connection.to {
            if !(is_host(cx, &kinds, &to.host, to.place) && known && whole) {
                continue;
            }
            let lonely = [from, to].into_iter().find(|end| !islands.contains_key(end.host.as_str()));
            if let Some(end) = lonely {
                if unlinked.insert(end.host.as_str()) {
                    let error = Diagnostic::error(
                        kinds[end.host.as_str()].place,
                        format!("no link reaches `{}`", shorten(&end.host)),
                    );
                    cx.report(
                        error
                            .label(format!("expected `link {} - …`", shorten(&end.host)))
                            .with(end.place, "a connection uses it"),
                    );
                }
            } else if islands[from.host.as_str()] != islands[to.host.as_str()] {
                let message =
                    format!("no links lead from `{}` to `{}`", shorten(&from.host), shorten(&to.host));
                cx.report(
                    Diagnostic::error(to.place, message).label("not reached").with(from.place, "from here"),
                );
            }
        }
    }
}

fn is_host(cx: &mut Context<'_>, kinds: &BTreeMap<&str, &Node>, name: &str, place: Place) -> bool {
    match kinds.get(name) {
        Some(Node { kind: NodeKind::Host(_), .. }) => return true,
        Some(node) => {
            let error = Diagnostic::error(place, format!("`{}` is not a host", shorten(name)));
            cx.report(error.label("expected a host of the network").with(node.place, "declared here"));
        }
        None => {
            let error =
                Diagnostic::error(place, format!("no host of the network is called `{}`", shorten(name)));
            let hosts =
                kinds.values().filter(|n| matches!(n.kind, NodeKind::Host(_))).map(|n| n.name.as_str());
            cx.report(cx.suggest(error.label("expected a host of the network"), name, hosts));
        }
    }
    false
}

/// For each linked node the first node of its island (union-find with path halving).
fn islands(network: &Network) -> BTreeMap<&str, usize> {
    let index: BTreeMap<&str, usize> =
        network.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let mut parent: Vec<usize> = (0..network.nodes.len()).collect();
    let mut linked = BTreeSet::new();
    for link in &network.links {
        let (a, b) = (index[link.a.as_str()], index[link.b.as_str()]);
        linked.extend([a, b]);
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[a.max(b)] = a.min(b);
    }
    linked.into_iter().map(|node| (network.nodes[node].name.as_str(), root(&mut parent, node))).collect()
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

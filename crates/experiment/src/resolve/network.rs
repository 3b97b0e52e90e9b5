//! `network { … }`: nodes and links with their defaults, and what can be wrong with one of them.

use std::collections::BTreeMap;

use trunkline_units::{Rate, Size, Span};

use super::options::{Given, Visit, amount, integer, optional, rate, read, share, size, text, time};
use super::protocol::MOST;
use super::queue::{self, queue_text, read_queue, token_rate, token_rate_text};
use super::{Context, admission, explicit_rate, link_trace, topology, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{
    Admission, Amount, BundleDeadlines, BundleFormat, BundleTimers, CellMode, ConverterRole, Encapsulation,
    HostCosts, Link, Medium, Network, Node, NodeKind, PacingCounts, SourceRange, admission_loss,
};
use crate::token::quoted;
use crate::tree::{Declaration, Part, Setting, Value, Word};

/// Words for what a converter is and does.
const ROLES: &[(&str, ConverterRole)] =
    &[("level1", ConverterRole::Level1), ("central", ConverterRole::Central)];
const FORMATS: &[(&str, BundleFormat)] = &[("classic", BundleFormat::Classic), ("wide", BundleFormat::Wide)];
const TIMERS: &[(&str, BundleTimers)] = &[
    ("classic", BundleTimers::Classic),
    ("adaptive", BundleTimers::Adaptive),
    ("processor", BundleTimers::Processor),
];
/// Words for the framing of a link.
const MEDIA: &[(&str, Medium)] =
    &[("atm", Medium::Atm), ("ethernet", Medium::Ethernet), ("ppp", Medium::Ppp)];
/// Words for who has a buffer to itself; true for each virtual channel.
const BUFFER_PER: &[(&str, bool)] = &[("port", false), ("channel", true)];
/// The same, of a host's receive buffer.
const RX_BUFFER_PER: &[(&str, bool)] = &[("host", false), ("channel", true)];
/// Words for the order in which a switch serves the channels of a port.
const SCHEDULING: &[(&str, bool)] = &[("fifo", false), ("round-robin", true)];
/// Words for how cells are computed.
const CELL_MODES: &[(&str, CellMode)] = &[("trains", CellMode::Trains), ("each", CellMode::Each)];
/// Words for what stands between a packet and its AAL5 frame.
const ENCAPSULATIONS: &[(&str, Encapsulation)] =
    &[("llc", Encapsulation::Llc), ("null", Encapsulation::Null)];
/// Words for what a pacing rate counts.
const COUNTS: &[(&str, PacingCounts)] = &[("cells", PacingCounts::Cells), ("payload", PacingCounts::Payload)];

/// A shared medium before anybody says otherwise.
const SHARED_RATE: Rate = Rate::from_bps(10_000_000);
/// The largest frame of the ring of 1990.
const RING_FRAME: Size = Size::from_bytes(2046);
/// Propagation across a hub's Ethernet: the longest cable of 10BASE5, 500 m, at 5 ns a metre.
const HUB_DELAY: Span = Span::from_ns(2500);
/// IEEE 802.3 section 4.4.2: a sender hears of a collision within 512 bit times.
const SLOT: Size = Size::from_bytes(64);
/// RFC 791: every internet module forwards 68 octets.
const SMALLEST_MTU: u64 = 68;
/// RFC 791: the length of a packet has 16 bits.
const LARGEST_MTU: u64 = 65_535;
/// As long as a message may wait in a bundle converter.
const LONGEST_WAIT: Span = Span::from_s(1);
/// Bytes of an ATM cell.
const CELL: u64 = 53;
/// Bytes of its payload.
const CELL_PAYLOAD: u64 = 48;

/// Reads the declarations of a network, nodes first, so that a link may stand above what it joins.
pub(crate) fn network(cx: &mut Context<'_>, declarations: &[Declaration]) -> Network {
    let mut network = Network::default();
    let mut names = BTreeMap::new();
    for declaration in declarations.iter().filter(|d| d.keyword.text != "link") {
        let kind = node_kind(cx, declaration);
        for name in &declaration.names {
            if claim(cx, &mut names, name) {
                network.nodes.push(Node {
                    name: name.text.clone(),
                    kind: kind.clone(),
                    location: name.location,
                });
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
    topology::check(cx, &network);
    network
}

/// Takes a node's name, or reports who has it.
fn claim(cx: &mut Context<'_>, names: &mut BTreeMap<String, SourceRange>, name: &Word) -> bool {
    if name.text.contains('/') || name.text.is_empty() {
        cx.report(
            Diagnostic::error(name.location, "this is no name")
                .label("expected letters, digits, `.`, `_`, `-`"),
        );
        return false;
    }
    if let Some(first) = names.get(&name.text) {
        let error = Diagnostic::error(name.location, format!("`{}` is declared twice", shorten(&name.text)));
        cx.report(error.label("and again here").with(*first, "it is first declared here"));
        return false;
    }
    names.insert(name.text.clone(), name.location);
    true
}

// --- nodes

fn node_kind(cx: &mut Context<'_>, declaration: &Declaration) -> NodeKind {
    let mut kind = default_node(&declaration.keyword.text);
    let Declaration { keyword, arguments, .. } = declaration;
    let owner = format!("a {}", keyword.text);
    let required: &[&str] = if keyword.text == "converter" { &["role"] } else { &[] };
    let arguments: Vec<Setting> = arguments.iter().map(named_flag).collect();
    let given = read(cx, &owner, keyword.location, &arguments, required, |v| present_node(&mut kind, v));
    if let NodeKind::Hub { rate, delay } = kind {
        check_hub(cx, rate, delay, given.get("delay").copied().unwrap_or(keyword.location));
    }
    kind
}

/// Some options may stand alone: `forward` is `forward = on`, and so is `service`.
fn named_flag(setting: &Setting) -> Setting {
    let mut setting = setting.clone();
    if let ([value], None) = (&mut setting.values[..], &setting.key)
        && let [part] = &mut value.parts[..]
        && matches!(part.text.as_str(), "forward" | "service")
    {
        setting.key = Some(Word { text: part.text.clone(), location: value.location });
        "on".clone_into(&mut part.text);
    }
    setting
}

/// A node with every default. A converter's role is a placeholder: the text must say it.
fn default_node(keyword: &str) -> NodeKind {
    match keyword {
        "host" => NodeKind::Host(HostCosts::default()),
        "switch" => NodeKind::Switch {
            buffer: Amount::Packets(100),
            each_channel: false,
            latency: Span::ZERO,
            round_robin: false,
        },
        "hub" => NodeKind::Hub { rate: SHARED_RATE, delay: HUB_DELAY },
        "ring" => NodeKind::Ring { rate: SHARED_RATE, frame: RING_FRAME, token_loss: 0.0 },
        _ => NodeKind::Converter {
            role: ConverterRole::Level1,
            number: 1,
            format: BundleFormat::Classic,
            timers: BundleTimers::Classic,
            capacity: None,
            deadlines: BundleDeadlines::default(),
            costs: HostCosts::default(),
        },
    }
}

/// What declares such a node.
pub(crate) fn keyword(kind: &NodeKind) -> &'static str {
    match kind {
        NodeKind::Host(_) => "host",
        NodeKind::Switch { .. } => "switch",
        NodeKind::Hub { .. } => "hub",
        NodeKind::Ring { .. } => "ring",
        NodeKind::Converter { .. } => "converter",
    }
}

/// Presents the options of a node.
pub(crate) fn present_node(kind: &mut NodeKind, v: &mut Visit<'_, '_>) {
    match kind {
        NodeKind::Host(host) => {
            present_costs(host, v);
            v.optional("disk", &mut host.disk, "none", rate, write::rate);
            v.optional("mcast_filter", &mut host.mcast_filter, "none", filter_bits, u32::to_string);
            v.optional("program", &mut host.program, "none", command, |program| quoted(program));
            v.on_off("service", &mut host.service);
            v.on_off("wide_area", &mut host.wide_area);
            v.on_off("forward", &mut host.forward);
        }
        NodeKind::Switch { buffer, each_channel, latency, round_robin } => {
            v.option("buffer", buffer, amount, write::amount);
            v.keyword("buffer_per", each_channel, BUFFER_PER);
            v.time("latency", latency);
            v.keyword("scheduling", round_robin, SCHEDULING);
        }
        NodeKind::Hub { rate, delay } => {
            v.rate("rate", rate);
            v.time("delay", delay);
        }
        NodeKind::Ring { rate, frame, token_loss } => {
            v.rate("rate", rate);
            v.option("frame", frame, size, write::size);
            v.option("token_loss", token_loss, rarely, f64::to_string);
        }
        NodeKind::Converter { role, number, format, timers, capacity, deadlines, costs } => {
            v.keyword("role", role, ROLES);
            v.integer("number", number, 1..=MOST);
            v.keyword("format", format, FORMATS);
            v.keyword("timers", timers, TIMERS);
            v.optional("capacity", capacity, "none", rate, write::rate);
            v.option("deadline", &mut deadlines.ordinary, deadline, deadline_text);
            v.option("priority_deadline", &mut deadlines.priority, deadline, deadline_text);
            present_costs(costs, v);
            v.optional("mcast_filter", &mut costs.mcast_filter, "none", filter_bits, u32::to_string);
        }
    }
}

/// Presents what a host and a converter have in common.
fn present_costs(costs: &mut HostCosts, v: &mut Visit<'_, '_>) {
    v.time("cpu_packet", &mut costs.cpu_packet);
    v.time("cpu_byte", &mut costs.cpu_byte);
    v.time("interrupt", &mut costs.interrupt);
    v.time("dma_byte", &mut costs.dma_byte);
    v.time("crc_byte", &mut costs.crc_byte);
    v.time("sar_cell", &mut costs.sar_cell);
    v.integer("cpus", &mut costs.cpus, 1..=4096);
    v.optional("rx_buffer", &mut costs.rx_buffer, "none", amount, write::amount);
    v.keyword("rx_buffer_per", &mut costs.rx_each_channel, RX_BUFFER_PER);
    v.option("send_queue", &mut costs.send_queue, packets, |n| format!("{n} packets"));
}

fn filter_bits(cx: &mut Context<'_>, value: &Value) -> Option<u32> {
    integer(cx, value, 1..=65_536)
}

fn command(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    text(cx, value, "a command, such as `\"iperf3 -s\"`").map(str::to_owned)
}

/// The deadline of a converter; there is no word for the default.
fn deadline(cx: &mut Context<'_>, value: &Value) -> Option<Option<Span>> {
    short(cx, value).map(Some)
}

fn deadline_text(deadline: &Option<Span>) -> String {
    deadline.as_ref().map_or("none".to_owned(), write::span)
}

/// A time for which a message may wait.
pub(crate) fn short(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    let time = time(cx, value)?;
    if time > LONGEST_WAIT {
        let error = Diagnostic::error(value.location, format!("no message may wait as long as {time}"));
        return cx.refuse(error.label(format!("expected up to {LONGEST_WAIT}")));
    }
    Some(time)
}

/// A share below 1: a ring whose token never gets anywhere carries nothing.
fn rarely(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let share = share(cx, value)?;
    if share >= 1.0 {
        let error = Diagnostic::error(value.location, "a token that is lost on every pass never comes round");
        return cx.refuse(error.label("expected a share below 1"));
    }
    Some(share)
}

/// Checks that a sender detects a collision before its frame ends.
fn check_hub(cx: &mut Context<'_>, bit_rate: Rate, delay: Span, location: SourceRange) {
    let slot = bit_rate.time_for(SLOT);
    if delay * 2 > slot {
        let message = format!("across a hub of {bit_rate} a delay of {delay} is too long to tell collisions");
        let error = Diagnostic::error(location, message);
        cx.report(error.label(format!("expected `delay` up to {}, half of 512 bit times", slot / 2)));
    }
}

/// Room in a queue that knows packets only.
fn packets(cx: &mut Context<'_>, value: &Value) -> Option<u64> {
    match amount(cx, value)? {
        Amount::Packets(count) => Some(count),
        _ => {
            let error = Diagnostic::error(value.location, "this queue counts packets");
            cx.refuse(error.label("expected a number of them, such as `50 packets`"))
        }
    }
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
    let location = SourceRange { start: a.location.start, end: b.location.end };
    let mut link = Link {
        name: String::new(),
        a: a.text.clone(),
        b: b.text.clone(),
        medium: Medium::Ethernet,
        rate: Rate::default(),
        payload: Rate::default(),
        delay: Span::ZERO,
        mtu: Size::from_bytes(1500),
        cells: CellMode::Trains,
        encapsulation: Encapsulation::Llc,
        pacing: None,
        pacing_slots: None,
        pacing_counts: PacingCounts::Cells,
        loss: 0.0,
        corrupt: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        credits: None,
        explicit_rate: None,
        queue: None,
        shape: None,
        police: None,
        trace: None,
        admission: Admission::None,
        admission_loss: admission_loss(),
        location,
    };
    let arguments = &declaration.arguments;
    let given = read(cx, "a link", location, arguments, &[], |v| present_link(&mut link, v));
    let ends = [a, b].map(|end| known_node(cx, network, nodes, end));
    let [Some(first), Some(second)] = ends else { return None };
    if a.text == b.text {
        return cx.refuse(
            Diagnostic::error(location, format!("`{}` is linked to itself", shorten(&a.text)))
                .label("expected two nodes"),
        );
    }
    if let (Some(_), Some(_)) = (shared_rate(first), shared_rate(second)) {
        let error = Diagnostic::error(location, "no link joins two hubs or rings");
        let error = error.label("expected a switch between them");
        return cx
            .refuse(error.help("hubs that are linked are one collision domain: declare them as one hub"));
    }
    inherit(cx, &mut link, [first, second], &given);
    // A payload that could not be read was reported.
    if link.payload == Rate::default() {
        link.payload = link.medium.payload(link.rate);
    }
    check_link(cx, &link, [first, second], &given);
    link.name = numbered(taken, &format!("{}-{}", a.text, b.text));
    Some(link)
}

/// Presents the options of a link.
pub(crate) fn present_link(link: &mut Link, v: &mut Visit<'_, '_>) {
    v.keyword("medium", &mut link.medium, MEDIA);
    v.rate("rate", &mut link.rate);
    v.rate("payload", &mut link.payload);
    v.time("delay", &mut link.delay);
    v.option("mtu", &mut link.mtu, mtu, write::size);
    v.keyword("cells", &mut link.cells, CELL_MODES);
    v.keyword("encapsulation", &mut link.encapsulation, ENCAPSULATIONS);
    let mut pacing = (link.pacing, link.pacing_slots);
    v.option("pacing", &mut pacing, read_pacing, pacing_text);
    (link.pacing, link.pacing_slots) = pacing;
    v.keyword("pacing_counts", &mut link.pacing_counts, COUNTS);
    v.optional("queue", &mut link.queue, "none", read_queue, queue_text);
    v.optional("shape", &mut link.shape, "none", token_rate, token_rate_text);
    v.optional("police", &mut link.police, "none", token_rate, token_rate_text);
    v.optional("trace", &mut link.trace, "none", link_trace::read_trace, |trace| quoted(&trace.file));
    v.share("loss", &mut link.loss);
    v.share("corrupt", &mut link.corrupt);
    v.share("duplicate", &mut link.duplicate);
    v.share("reorder", &mut link.reorder);
    v.optional("credits", &mut link.credits, "none", |cx, v| integer(cx, v, 1..=MOST), u64::to_string);
    v.optional("explicit_rate", &mut link.explicit_rate, "none", explicit_rate::read, explicit_rate::text);
    v.keyword("admission", &mut link.admission, admission::METHODS);
    v.option("admission_loss", &mut link.admission_loss, some_share, f64::to_string);
}

/// A share between 0 and 1: no connection loses nothing for certain, and none may lose all.
fn some_share(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let share = share(cx, value)?;
    if share <= 0.0 || share >= 1.0 {
        let error = Diagnostic::error(value.location, "admission needs a target between no loss and all");
        return cx.refuse(error.label("expected a share above 0 and below 1, such as `1e-3`"));
    }
    Some(share)
}

/// A rate or cell slots; never both.
type Pacing = (Option<Rate>, Option<(u16, u16)>);

fn read_pacing(cx: &mut Context<'_>, value: &Value) -> Option<Pacing> {
    if value.parts.len() > 1 {
        return cell_slots(cx, value).map(|slots| (None, Some(slots)));
    }
    optional(cx, value, "none", rate).map(|rate| (rate, None))
}

fn pacing_text((rate, slots): &Pacing) -> String {
    match (rate, slots) {
        (_, Some((used, of))) => format!("{used}:{of}"),
        (Some(rate), None) => write::rate(rate),
        (None, None) => "none".to_owned(),
    }
}

fn mtu(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    let mtu = size(cx, value)?;
    if mtu.as_bytes() < SMALLEST_MTU {
        let error = Diagnostic::error(value.location, format!("an MTU of {mtu} carries no IP packet"));
        return cx.refuse(error.label(format!("expected at least {SMALLEST_MTU} B")));
    }
    if mtu.as_bytes() > LARGEST_MTU {
        let error = Diagnostic::error(value.location, format!("no IP packet is as long as {mtu}"));
        return cx.refuse(error.label(format!("expected at most {LARGEST_MTU} B")));
    }
    Some(mtu)
}

/// `3:8`, three of every eight cell slots.
fn cell_slots(cx: &mut Context<'_>, value: &Value) -> Option<(u16, u16)> {
    let [used, of] = &value.parts[..] else {
        let error = Diagnostic::error(value.location, "expected a rate, or cell slots such as `3:8`");
        return cx.refuse(error.label("expected two numbers: so many slots of so many"));
    };
    let mut slots = |part: &Part, most: u16| {
        let value = Value { parts: vec![part.clone()], location: part.location };
        integer(cx, &value, 1..=u64::from(most))
    };
    let of = slots(of, u16::MAX)?;
    Some((slots(used, of)?, of))
}

fn known_node<'n>(
    cx: &mut Context<'_>,
    network: &'n Network,
    nodes: &BTreeMap<String, usize>,
    name: &Word,
) -> Option<&'n Node> {
    let found = nodes.get(&name.text).map(|at| &network.nodes[*at]);
    if found.is_none() {
        let error = Diagnostic::error(name.location, format!("no node is called `{}`", shorten(&name.text)));
        let error = error.label("expected a host, switch, hub, ring or converter");
        cx.report(cx.suggest(error, &name.text, nodes.keys().map(String::as_str)));
    }
    found
}

/// The bit rate of a node whose medium is shared.
fn shared_rate(node: &Node) -> Option<Rate> {
    match node.kind {
        NodeKind::Hub { rate, .. } | NodeKind::Ring { rate, .. } => Some(rate),
        _ => None,
    }
}

/// A hub's or ring's stations inherit its rate; every other link says its own.
fn inherit(cx: &mut Context<'_>, link: &mut Link, ends: [&Node; 2], given: &Given) {
    let shared = ends.iter().find_map(|node| shared_rate(node).map(|rate| (node, rate)));
    match (shared, given.get("rate")) {
        (Some((node, rate)), Some(location)) if link.rate != rate && link.rate != Rate::default() => {
            let error =
                Diagnostic::error(*location, format!("`{}` is shared at {rate}", shorten(&node.name)));
            cx.report(
                error
                    .label("a station runs at the rate of its hub or ring")
                    .with(node.location, "declared here"),
            );
        }
        (Some((_, rate)), _) => link.rate = rate,
        (None, Some(_)) => {}
        (None, None) if link.trace.is_some() => {
            link.rate =
                link.trace.as_ref().map(|trace| link_trace::mean_rate(&trace.points)).unwrap_or_default();
        }
        // A trace that cannot be read was reported.
        (None, None) if given.contains_key("trace") && cx.diagnostics.errors() > 0 => {}
        (None, None) => {
            let error = Diagnostic::error(link.location, "this link has no rate");
            cx.report(error.label("expected `rate = …`; only the stations of a hub or ring inherit one"));
        }
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

/// What an override leaves of a link to be settled again, as if the text had said so: the rate of its hub or ring,
/// the payload where it `follows` from the rate, and every check. `given` holds the options that were overridden.
pub(crate) fn settle(
    cx: &mut Context<'_>,
    nodes: &BTreeMap<&str, &Node>,
    link: &mut Link,
    given: &Given,
    follows: bool,
) {
    // A link joins nodes of its network.
    let ends = [nodes[link.a.as_str()], nodes[link.b.as_str()]];
    if ends.iter().any(|node| shared_rate(node).is_some()) {
        inherit(cx, link, ends, given);
    }
    if follows && !given.contains_key("payload") {
        link.payload = link.medium.payload(link.rate);
    }
    if link.medium != Medium::Atm {
        // They mean nothing there, and two plans that mean the same are the same.
        let said = |name| given.contains_key(name);
        link.cells = if said("cells") { link.cells } else { CellMode::default() };
        link.encapsulation =
            if said("encapsulation") { link.encapsulation } else { Encapsulation::default() };
    }
    check_link(cx, link, ends, given);
}

/// Whether the payload of a link is what its rate leaves to frames or cells.
pub(crate) fn payload_follows(link: &Link) -> bool {
    link.payload == link.medium.payload(link.rate)
}

fn check_link(cx: &mut Context<'_>, link: &Link, ends: [&Node; 2], given: &Given) {
    let at = |name: &str| given.get(name).copied().unwrap_or(link.location);
    if link.payload > link.rate && link.rate != Rate::default() {
        let error =
            Diagnostic::error(at("payload"), format!("the payload exceeds the line rate of {}", link.rate));
        cx.report(error.label("expected at most the rate of the link"));
    }
    check_medium(cx, link, ends, &at, given);
    queue::check_link(cx, link, ends, &at);
    for name in ["rate", "payload"].iter().filter(|name| link.trace.is_some() && given.contains_key(**name)) {
        let error = Diagnostic::error(at(name), "the trace gives this link its rate");
        cx.report(error.label(format!("expected no `{name}`")));
    }
    if !link.admission.is_none() && ends.iter().any(|node| shared_rate(node).is_some()) {
        let error = Diagnostic::error(at("admission"), "a hub or ring admits all connections");
        cx.report(error.label("expected on a link between two switches or hosts"));
    }
    check_pacing(cx, link, ends, at("pacing"));
    for node in ends {
        check_room(cx, link, node, at("mtu"));
    }
}

/// What only ATM has needs `medium = atm`, which no hub or ring has.
fn check_medium(
    cx: &mut Context<'_>,
    link: &Link,
    ends: [&Node; 2],
    at: &dyn Fn(&str) -> SourceRange,
    given: &Given,
) {
    let only_atm = [
        (link.credits.is_some(), "credits", "credits flow per virtual channel, which only ATM has"),
        (
            link.explicit_rate.is_some(),
            "explicit_rate",
            "explicit rates are for virtual channels, which only ATM has",
        ),
        (link.pacing_slots.is_some(), "pacing", "only ATM has cell slots"),
        (given.contains_key("cells"), "cells", "only ATM has cells"),
        (given.contains_key("encapsulation"), "encapsulation", "only packets over ATM are wrapped so"),
    ];
    for (_, name, message) in only_atm.iter().filter(|(said, ..)| *said && link.medium != Medium::Atm) {
        let error = Diagnostic::error(at(name), *message);
        cx.report(error.label("expected `medium = atm` on this link"));
    }
    let of_a_queue = [
        (link.queue.is_some(), "queue"),
        (link.shape.is_some(), "shape"),
        (link.police.is_some(), "police"),
        (link.trace.is_some(), "trace"),
    ];
    let shared = ends.into_iter().find(|node| shared_rate(node).is_some());
    if let Some(node) = shared.filter(|_| link.medium != Medium::Ethernet) {
        let message = format!("the stations of `{}` have its own framing", shorten(&node.name));
        let error = Diagnostic::error(at("medium"), message);
        cx.report(error.label("expected no `medium`").with(node.location, "declared here"));
    }
    let of_a_line = [
        (!link.delay.is_zero(), "delay"),
        (link.loss > 0.0, "loss"),
        (link.corrupt > 0.0, "corrupt"),
        (link.duplicate > 0.0, "duplicate"),
        (link.reorder > 0.0, "reorder"),
        (link.pacing.is_some(), "pacing"),
    ];
    let of_a_line = of_a_line.iter().chain(&of_a_queue);
    for (_, name) in of_a_line.filter(|(said, _)| *said && shared.is_some()) {
        let error =
            Diagnostic::error(at(name), format!("a station's place at a hub or ring has no `{name}`"));
        cx.report(error.label("expected on a link between two switches or hosts"));
    }
}

/// Pacing that holds nothing back was meant otherwise.
fn check_pacing(cx: &mut Context<'_>, link: &Link, ends: [&Node; 2], location: SourceRange) {
    if link.pacing.is_none() && link.pacing_slots.is_none() || link.rate == Rate::default() {
        return;
    }
    if !ends.iter().any(|node| matches!(node.kind, NodeKind::Host(_))) {
        let warning = Diagnostic::warning(location, "pacing is a host's, and this link ends at none");
        cx.report(warning.label("nothing is held back here"));
    }
    let most = match (link.medium, link.pacing_counts) {
        (Medium::Atm, PacingCounts::Payload) => {
            // No overflow: rates are below 9e15.
            Rate::from_bps(link.payload.as_bps() * CELL_PAYLOAD / CELL)
        }
        _ => link.payload,
    };
    if let Some(pacing) = link.pacing.filter(|pacing| *pacing > most) {
        let warning = Diagnostic::warning(location, format!("pacing at {pacing} never holds anything back"));
        cx.report(warning.label(format!("the link carries {most} at most")));
    }
}

/// Cells of an AAL5 frame: the packet, 8 bytes of LLC/SNAP if any, the trailer of 8 bytes, padded to whole cells.
fn cells_of(packet: u64, encapsulation: Encapsulation) -> u64 {
    let header = if encapsulation == Encapsulation::Llc { 8 } else { 0 };
    (packet + header + 8).div_ceil(CELL_PAYLOAD)
}

/// A buffer holds at least one packet (of an ATM switch that queues cells one cell), and a ring's frame the link's largest packet.
fn check_room(cx: &mut Context<'_>, link: &Link, node: &Node, mtu: SourceRange) {
    let mut packet = link.mtu.as_bytes();
    let room = match &node.kind {
        NodeKind::Switch { buffer, .. } => {
            packet = match link.medium {
                Medium::Atm if link.queues_packets() => cells_of(packet, link.encapsulation) * CELL,
                Medium::Atm => CELL,
                _ => packet,
            };
            Some(*buffer)
        }
        NodeKind::Host(costs) => {
            if let (Medium::Atm, Some(Amount::Cells(_))) = (link.medium, costs.rx_buffer) {
                packet = cells_of(packet, link.encapsulation) * CELL;
            }
            costs.rx_buffer
        }
        NodeKind::Ring { frame, .. } if *frame < link.mtu => {
            let error =
                Diagnostic::error(mtu, format!("an MTU of {} exceeds the ring's frame of {frame}", link.mtu));
            cx.refuse(error.label("expected at most the frame of the ring").with(node.location, "the ring"))
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
            Diagnostic::error(node.location, message).label(format!("expected room for {packet} B at least"));
        cx.report(error.with(link.location, "the link"));
    }
}

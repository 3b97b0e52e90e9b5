//! Connections over `bundle`, and the converters between their ends.

use std::collections::BTreeSet;

use super::Context;
use crate::converters::{Segment, Segments, Sides, number};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{
    BundleFormat, BundlePriority, BundleTimers, Connection, Network, Node, NodeKind, Protocol, SourceRange,
};

/// A group of the classic format has a bit for each host.
const HOSTS: usize = 16;
/// Converters of level 1 (section 3.4.3 of the thesis).
const LEVEL_1: usize = 6;
/// Two of the sixteen bits of a mask say that a converter of level 1 sent it; the wide format has all sixteen.
const HIGHEST: u32 = 0x3FFF;
const HIGHEST_WIDE: u32 = 0xFFFF;
/// A message address of the classic format has sixteen bits.
const ADDRESSES: u32 = 65_536;

/// Checks what connections over `bundle` need of the network, and the network's converters, if there are such connections.
pub(crate) fn check(cx: &mut Context<'_>, network: &Network, connections: &[Connection]) {
    let segments = Segments::of(network);
    let Some(sides) = Sides::of(network, &segments, connections) else { return };
    let Some(central) = check_central(cx, &sides, connections) else { return };
    let inner = segments.of_all([central]);
    check_level_1(cx, &sides, central, &segments, &inner);
    check_wide_area(cx, &sides, &segments, &inner);
    check_formats(cx, &sides, central);
    check_deadlines(cx, &sides);
    connections.iter().for_each(|c| check_within(cx, c, format(central)));
    check_hosts(cx, network, &sides, &segments, &inner, connections);
    if format(central) == BundleFormat::Classic {
        connections.iter().for_each(|c| check_address(cx, c));
    }
}

/// There is one, and it has converters of level 1, as many as may be.
fn check_central<'n>(
    cx: &mut Context<'_>,
    sides: &Sides<'n>,
    connections: &[Connection],
) -> Option<&'n Node> {
    let &[central, ref others @ ..] = &sides.central[..] else {
        let first = connections.iter().find(|c| matches!(c.protocol, Protocol::Bundle { .. }));
        let location = first.map_or_else(SourceRange::default, |c| c.protocol_location);
        let error = Diagnostic::error(location, "bundles need a central converter, and the network has none");
        return cx.refuse(error.label("expected `converter … (role = central)` in the network"));
    };
    if let Some(second) = others.first() {
        let error = Diagnostic::error(second.location, "a second central converter");
        let error = error.label("expected one for all hosts");
        cx.report(error.with(central.location, "the first is here"));
    }
    if sides.level1.is_empty() {
        let message = format!("`{}` has no converter of level 1", shorten(&central.name));
        let error = Diagnostic::error(central.location, message);
        cx.report(error.label("expected `converter … (role = level1)` beside it, linked with it"));
    }
    if let Some(seventh) = sides.level1.get(LEVEL_1) {
        let message = format!("{} converters of level 1", sides.level1.len());
        let error = Diagnostic::error(seventh.location, message);
        cx.report(error.label(format!("expected at most {LEVEL_1}")).with(central.location, "of this one"));
    }
    Some(central)
}

/// Checks that each has a unique number, links to the central converter, and at most one link to the wide area.
fn check_level_1(
    cx: &mut Context<'_>,
    sides: &Sides<'_>,
    central: &Node,
    segments: &Segments<'_>,
    inner: &BTreeSet<Segment>,
) {
    for pair in sides.level1.windows(2).filter(|pair| number(pair[0]) == number(pair[1])) {
        let message = format!("two converters of level 1 have the number {}", number(pair[1]));
        let error = Diagnostic::error(pair[1].location, message).label("expected another `number`");
        cx.report(error.with(pair[0].location, "the first is here"));
    }
    for node in &sides.level1 {
        let name = shorten(&node.name);
        let highest = match format(node) {
            BundleFormat::Classic => HIGHEST,
            BundleFormat::Wide => HIGHEST_WIDE,
        };
        if number(node) > highest {
            let error = Diagnostic::error(node.location, format!("`{name}` has the number {}", number(node)));
            cx.report(error.label(format!("expected 1 to {highest}")));
        }
        let links = segments.at(&node.name);
        let to_central = links.iter().filter(|link| inner.contains(link)).count();
        let wrong = match (to_central, links.len()) {
            (0, _) => Some("no link leads from it to the central converter"),
            (_, 3..) => Some("it has more than two links"),
            (2.., _) => Some("both of its links lead to the central converter"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let error = Diagnostic::error(node.location, format!("`{name}` cannot be of level 1: {wrong}"));
            let error =
                error.label("expected one link to the central converter, and at most one to the wide area");
            cx.report(error.with(central.location, "the central converter"));
        }
    }
}

/// The segment of the wide area at a converter of level 1: that of the link which does not lead to the central converter, if
/// it has two.
fn wide_area(node: &Node, segments: &Segments<'_>, inner: &BTreeSet<Segment>) -> Option<Segment> {
    let links = segments.at(&node.name);
    links.iter().find(|link| !inner.contains(link)).or(links.first()).copied()
}

/// Checks that there is one wide area: any level-1 converter may have to join a group in it.
fn check_wide_area(
    cx: &mut Context<'_>,
    sides: &Sides<'_>,
    segments: &Segments<'_>,
    inner: &BTreeSet<Segment>,
) {
    let outer = |node: &Node| wide_area(node, segments, inner);
    let Some(first) = sides.level1.first() else { return };
    for node in sides.level1.iter().filter(|node| outer(node) != outer(first)) {
        let (name, other) = (shorten(&node.name), shorten(&first.name));
        let error =
            Diagnostic::error(node.location, format!("`{name}` and `{other}` are in different wide areas"));
        let error = error.label("expected links, hubs or switches that join them");
        cx.report(error.with(first.location, "the first is here"));
    }
}

fn check_formats(cx: &mut Context<'_>, sides: &Sides<'_>, central: &Node) {
    for node in sides.level1.iter().filter(|node| format(node) != format(central)) {
        let message =
            format!("`{}` and `{}` have different formats", shorten(&node.name), shorten(&central.name));
        let error = Diagnostic::error(node.location, message).label("expected the same `format`");
        cx.report(error.with(central.location, "the central converter"));
    }
}

/// With a tick all leave with the next.
fn check_deadlines(cx: &mut Context<'_>, sides: &Sides<'_>) {
    for node in sides.central.iter().chain(&sides.level1) {
        if let NodeKind::Converter { timers: BundleTimers::Classic, deadlines, .. } = node.kind
            && !deadlines.are_default()
        {
            let message = format!("`{}` has a tick, and no deadlines", shorten(&node.name));
            let error = Diagnostic::error(node.location, message);
            cx.report(error.label(
                "expected `timers = processor` or `adaptive` beside `deadline` and `priority_deadline`",
            ));
        }
    }
}

/// Only messages with priority say how long they may wait.
fn check_within(cx: &mut Context<'_>, c: &Connection, format: BundleFormat) {
    let Protocol::Bundle { address, priority, within: Some(_) } = c.protocol else { return };
    let (has_priority, label) = match format {
        BundleFormat::Classic => (address % 2 == 1, "expected an odd address beside `within`"),
        BundleFormat::Wide => {
            (priority == Some(BundlePriority::High), "expected `priority = high` beside `within`")
        }
    };
    if !has_priority {
        let message = "only messages with priority say how long they may wait";
        cx.report(Diagnostic::error(c.protocol_location, message).label(label));
    }
}

fn check_hosts(
    cx: &mut Context<'_>,
    network: &Network,
    sides: &Sides<'_>,
    segments: &Segments<'_>,
    inner: &BTreeSet<Segment>,
    connections: &[Connection],
) {
    let node = |name: &str| network.nodes.iter().find(|node| node.name == name);
    let said = |name: &str| {
        let bundled = connections.iter().filter(|c| matches!(c.protocol, Protocol::Bundle { .. }));
        bundled.flat_map(Connection::ends).find(|end| end.host == name)
    };
    if let Some(seventeenth) = sides.hosts.get(HOSTS)
        && sides.central.iter().all(|central| format(central) == BundleFormat::Classic)
        && let Some(end) = said(seventeenth)
    {
        let message = format!("the central converter has {} hosts", sides.hosts.len());
        let error = Diagnostic::error(end.location, message).label(format!("expected at most {HOSTS}"));
        cx.report(error.with(sides.central[0].location, "the central converter"));
    }
    let areas: BTreeSet<Segment> =
        sides.level1.iter().filter_map(|level1| wide_area(level1, segments, inner)).collect();
    for name in &sides.wide {
        if segments.at(name).iter().any(|segment| areas.contains(segment)) {
            continue;
        }
        // The search is slow among many; skip it once no further diagnostic is shown.
        if cx.diagnostics.flooded() {
            return;
        }
        let (Some(end), Some(node)) = (said(name), node(name)) else { continue };
        let message = format!("`{}` is on no side of the converters", shorten(name));
        let error = Diagnostic::error(end.location, message);
        let error =
            error.label("expected links to the central converter, or to the wide area of those of level 1");
        cx.report(error.with(node.location, "declared here"));
    }
}

/// Addresses have sixteen bits, and the lowest is the priority.
fn check_address(cx: &mut Context<'_>, c: &Connection) {
    let Protocol::Bundle { address, priority, .. } = c.protocol else { return };
    if address >= ADDRESSES {
        let error =
            Diagnostic::error(c.protocol_location, format!("no classic message has the address {address}"));
        cx.report(error.label(format!("expected 0 to {}, or `format = wide`", ADDRESSES - 1)));
    }
    let said = match (priority, address % 2) {
        (Some(BundlePriority::High), 0) => ("high", "even", "odd"),
        (Some(BundlePriority::Low), 1) => ("low", "odd", "even"),
        _ => return,
    };
    let message = format!("address {address} is {}, and the priority is `{}`", said.1, said.0);
    let error = Diagnostic::error(c.protocol_location, message);
    let error = error.label(format!("expected an address that is {}", said.2));
    cx.report(error.help("of classic messages those with odd addresses have priority"));
}

fn format(node: &Node) -> BundleFormat {
    match node.kind {
        NodeKind::Converter { format, .. } => format,
        _ => BundleFormat::Classic,
    }
}

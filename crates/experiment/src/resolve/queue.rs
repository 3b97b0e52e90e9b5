//! `queue = codel (target = 5 ms)`, `shape = RATE : BURST`, `police = RATE : BURST` of a link.

use std::collections::BTreeMap;

use trunkline_units::{Size, Span};

use super::dscp::{dscp_of, dscp_text};
use super::options::{self, Visit, amount, integer, plain, positive_time, rate, share, size, time};
use super::quantity::{Dimension, number, single};
use super::{Context, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{
    Amount, CoDel, Encapsulation, Link, Medium, Network, Node, NodeKind, Queue, SourceRange, TokenRate,
};
use crate::tree::{Part, PartKind, Setting, Value};

/// The smallest quantum: a round serves every class, so that a packet waits for many rounds with a smaller one.
const SMALLEST_QUANTUM: Size = Size::from_bytes(64);
const LARGEST_QUANTUM: Size = Size::from_bytes(1 << 30);
/// The shortest interval of updates, of which each is computed.
const SHORTEST_UPDATE: Span = Span::from_us(1);
/// A quantum of one Ethernet frame.
const QUANTUM: Size = Size::from_bytes(1514);
const CODEL: CoDel =
    CoDel { target: Span::from_ms(5), interval: Span::from_ms(100), ecn: false, ce_threshold: None };

/// The disciplines with their defaults: those of their RFCs or papers.
fn defaults() -> [Queue; 8] {
    let (target, update) = (Span::from_ms(15), Span::from_ms(15));
    [
        Queue::DropTail,
        Queue::Red {
            min: Amount::Packets(5),
            max: Amount::Packets(15),
            probability: 0.1,
            weight: 0.002,
            gentle: true,
            packet: Size::from_bytes(1000),
            ecn: false,
        },
        Queue::CoDel(CODEL),
        Queue::FqCodel { codel: CoDel { ecn: true, ..CODEL }, flows: 1024, quantum: QUANTUM },
        Queue::Pie {
            target,
            update,
            alpha: 0.125,
            beta: 1.25,
            burst: Span::from_ms(150),
            ecn: false,
            max_ecn: 0.1,
        },
        Queue::DualPi2 {
            target,
            update,
            alpha: 0.15,
            beta: 3.0,
            coupling: 2.0,
            threshold: Span::from_us(800),
            range: Span::from_us(400),
            classic: 0.0625,
        },
        Queue::Priority,
        Queue::Drr { quantum: QUANTUM, weights: Vec::new() },
    ]
}

/// Presents the parameters of a discipline.
fn present(queue: &mut Queue, v: &mut Visit<'_, '_>) {
    match queue {
        Queue::DropTail | Queue::Priority => {}
        Queue::Red { min, max, probability, weight, gentle, packet, ecn } => {
            v.option("min", min, threshold, write::amount);
            v.option("max", max, threshold, write::amount);
            v.share("probability", probability);
            v.option("weight", weight, part_of_one, f64::to_string);
            v.on_off("gentle", gentle);
            v.option("packet", packet, size, write::size);
            v.on_off("ecn", ecn);
        }
        Queue::CoDel(codel) => present_codel(codel, v),
        Queue::FqCodel { codel, flows, quantum } => {
            present_codel(codel, v);
            v.integer("flows", flows, 1..=65_536);
            v.option("quantum", quantum, read_quantum, write::size);
        }
        Queue::Pie { target, update, alpha, beta, burst, ecn, max_ecn } => {
            present_controller([target, update], [alpha, beta], v);
            v.time("burst", burst);
            v.on_off("ecn", ecn);
            v.share("max_ecn", max_ecn);
        }
        Queue::DualPi2 { target, update, alpha, beta, coupling, threshold, range, classic } => {
            present_controller([target, update], [alpha, beta], v);
            v.option("coupling", coupling, factor, f64::to_string);
            v.time("threshold", threshold);
            v.time("range", range);
            v.option("classic", classic, part_of_one, f64::to_string);
        }
        Queue::Drr { quantum, weights } => {
            v.option("quantum", quantum, read_quantum, write::size);
            v.option("weights", weights, read_weights, weights_text);
        }
    }
}

fn present_codel(codel: &mut CoDel, v: &mut Visit<'_, '_>) {
    v.option("target", &mut codel.target, positive_time, write::span);
    v.option("interval", &mut codel.interval, positive_time, write::span);
    v.on_off("ecn", &mut codel.ecn);
    v.optional("ce_threshold", &mut codel.ce_threshold, "none", positive_time, write::span);
}

/// Presents what PIE and DualPI2 have in common.
fn present_controller(times: [&mut Span; 2], gains: [&mut f64; 2], v: &mut Visit<'_, '_>) {
    let ([target, update], [alpha, beta]) = (times, gains);
    v.option("target", target, positive_time, write::span);
    v.option("update", update, read_update, write::span);
    v.option("alpha", alpha, factor, f64::to_string);
    v.option("beta", beta, factor, f64::to_string);
}

/// A queue length of RED, in packets or bytes.
fn threshold(cx: &mut Context<'_>, value: &Value) -> Option<Amount> {
    match amount(cx, value)? {
        Amount::Cells(_) => {
            let error = Diagnostic::error(value.location, "this queue has no cells");
            cx.refuse(error.label("expected `packets`, or a size"))
        }
        other => Some(other),
    }
}

fn factor(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    number(cx, value, Dimension::Plain)
}

/// A share above 0.
fn part_of_one(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let share = share(cx, value)?;
    if share == 0.0 {
        let error = Diagnostic::error(value.location, "this share is zero");
        return cx.refuse(error.label("expected a share above 0"));
    }
    Some(share)
}

fn read_update(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    let update = time(cx, value)?;
    if update < SHORTEST_UPDATE {
        let error = Diagnostic::error(value.location, "this interval of updates is too short");
        return cx.refuse(error.label(format!("expected at least {SHORTEST_UPDATE}")));
    }
    Some(update)
}

fn read_quantum(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    let quantum = size(cx, value)?;
    if !(SMALLEST_QUANTUM..=LARGEST_QUANTUM).contains(&quantum) {
        let error = Diagnostic::error(value.location, format!("a quantum of {quantum} is out of range"));
        return cx.refuse(error.label("expected 64 B to 1 GiB"));
    }
    Some(quantum)
}

/// `EF (4) : AF11 (2)`
fn read_weights(cx: &mut Context<'_>, value: &Value) -> Option<Vec<(u8, u32)>> {
    if value.as_name() == Some("none") {
        return Some(Vec::new());
    }
    let mut weights: Vec<(u8, u32)> = Vec::new();
    for part in &value.parts {
        let Some(dscp) = dscp_of(&part.text).filter(|_| part.unit.is_none()) else {
            let error = Diagnostic::error(part.location, format!("`{}` is no DSCP", shorten(&part.text)));
            return cx.refuse(error.label("expected a DSCP and its weight, such as `EF (4) : CS0 (1)`"));
        };
        let weight = match part.arguments.as_deref() {
            Some([Setting { key: None, values }]) => integer(cx, values.first()?, 1..=10_000)?,
            _ => {
                let error = Diagnostic::error(part.location, "this DSCP has no weight");
                return cx.refuse(error.label(format!("expected `{} (WEIGHT)`", shorten(&part.text))));
            }
        };
        if weights.iter().any(|(other, _)| *other == dscp) {
            let error =
                Diagnostic::error(part.location, format!("`{}` has two weights", shorten(&part.text)));
            return cx.refuse(error.label("and again here"));
        }
        weights.push((dscp, weight));
    }
    Some(weights)
}

// The signature is that of writers of options.
#[expect(clippy::ptr_arg, reason = "an option of this type")]
fn weights_text(weights: &Vec<(u8, u32)>) -> String {
    if weights.is_empty() {
        return "none".to_owned();
    }
    let weight = |(dscp, weight): &(u8, u32)| format!("{} ({weight})", dscp_text(*dscp));
    weights.iter().map(weight).collect::<Vec<_>>().join(" : ")
}

/// Reads a discipline with its parameters.
pub(crate) fn read_queue(cx: &mut Context<'_>, value: &Value) -> Option<Queue> {
    let part = single(cx, value, "a queue discipline, such as `codel`")?;
    let alone = Part { arguments: None, ..part.clone() };
    let written = plain(cx, &alone, "a queue discipline, such as `codel`")?;
    let is_meant = |queue: &Queue| part.kind == PartKind::Word && queue.name() == written;
    let Some(mut queue) = defaults().into_iter().find(is_meant) else {
        let message = format!("`{}` is no queue discipline", shorten(written));
        let error = Diagnostic::error(part.location, message).label("unknown discipline");
        return cx.refuse(error.suggest(written, defaults().iter().map(Queue::name)));
    };
    let owner = format!("`{written}`");
    let settings: Vec<Setting> = part.arguments.iter().flatten().map(flag).collect();
    options::read(cx, &owner, part.location, &settings, &[], |v| present(&mut queue, v));
    check_queue(cx, &queue, part.location);
    Some(queue)
}

/// `ecn` alone stands for `ecn = on`.
fn flag(setting: &Setting) -> Setting {
    match &setting.values[..] {
        [value] if setting.key.is_none() && value.as_name() == Some("ecn") => {
            let key = crate::tree::Word { text: "ecn".to_owned(), location: value.location };
            let on = Part { text: "on".to_owned(), ..value.parts[0].clone() };
            let values = vec![Value { parts: vec![on], location: value.location }];
            Setting { key: Some(key), values }
        }
        _ => setting.clone(),
    }
}

fn check_queue(cx: &mut Context<'_>, queue: &Queue, location: SourceRange) {
    let below = "expected `min` below `max`, both in packets or both a size";
    let (message, label) = match queue {
        Queue::Red { min: Amount::Packets(min), max: Amount::Packets(max), .. }
        | Queue::Red { min: Amount::Bytes(min), max: Amount::Bytes(max), .. } => {
            if min < max {
                return;
            }
            ("`min` of RED is not below `max`", below)
        }
        Queue::Red { .. } => ("`min` and `max` of RED have different units", below),
        Queue::DualPi2 { classic, .. } if *classic >= 1.0 => {
            ("the classic queue would take everything", "expected `classic` below 1")
        }
        _ => return,
    };
    cx.report(Diagnostic::error(location, message).label(label));
}

pub(crate) fn queue_text(queue: &Queue) -> String {
    let options = options::values(|v| present(&mut queue.clone(), v));
    if options.is_empty() {
        return queue.name().to_owned();
    }
    let options: Vec<_> = options.into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{} ({})", queue.name(), options.join(", "))
}

/// `RATE : BURST`
pub(crate) fn token_rate(cx: &mut Context<'_>, value: &Value) -> Option<TokenRate> {
    let [first, second] = &value.parts[..] else {
        let error = Diagnostic::error(value.location, "expected a rate and a burst");
        return cx.refuse(error.label("expected `RATE : BURST`, such as `10 Mb/s : 15 kB`"));
    };
    let one = |part: &Part| Value { parts: vec![part.clone()], location: part.location };
    let (rate, burst) = (rate(cx, &one(first)), size(cx, &one(second)));
    Some(TokenRate { rate: rate?, burst: burst? })
}

pub(crate) fn token_rate_text(limits: &TokenRate) -> String {
    format!("{} : {}", write::rate(&limits.rate), write::size(&limits.burst))
}

/// Checks the queue of a link: a burst passes every packet, and a switch or router drops or marks.
pub(crate) fn check_link(
    cx: &mut Context<'_>,
    link: &Link,
    ends: [&Node; 2],
    at: &dyn Fn(&str) -> SourceRange,
) {
    let can_drop = ends.iter().any(|node| node.kind.forwards());
    let is_active = link.queue.as_ref().is_some_and(Queue::is_active);
    for (has_effect, name) in [(is_active, "queue"), (link.police.is_some(), "police")] {
        if has_effect && !can_drop {
            let message = format!("`{name}` is a switch's or router's, and this link ends at none");
            let warning = Diagnostic::warning(at(name), message);
            cx.report(warning.label("a host waits for space instead of dropping"));
        }
    }
    for (name, limits) in [("shape", link.shape), ("police", link.police)] {
        if let Some(limits) = limits.filter(|limits| limits.burst < link.mtu) {
            let message = format!("a burst of {} passes no packet of {}", limits.burst, link.mtu);
            let error = Diagnostic::error(at(name), message);
            cx.report(error.label("expected at least the MTU of the link"));
        }
    }
}

/// Checks the queues, shapers, policers and traces of ATM links: nothing else decides which cell is sent next.
pub(crate) fn check_atm(cx: &mut Context<'_>, network: &Network) {
    let nodes: BTreeMap<&str, &Node> = network.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let is_switch = |node: &&Node| matches!(node.kind, NodeKind::Switch { .. });
    let atm = || network.links.iter().filter(|link| link.medium == Medium::Atm);
    let explicit_rates = network.links.iter().find(|link| link.explicit_rate.is_some());
    let mut credits_at: BTreeMap<&str, &Link> = BTreeMap::new();
    for link in atm().filter(|link| link.credits.is_some()) {
        credits_at.entry(&link.a).or_insert(link);
        credits_at.entry(&link.b).or_insert(link);
    }
    let first_with = |encapsulation| atm().find(|link| link.encapsulation == encapsulation);
    let (llc, null) = (first_with(Encapsulation::Llc), first_with(Encapsulation::Null));
    for link in atm() {
        let given = [
            (link.queue.is_some(), "queue"),
            (link.shape.is_some(), "shape"),
            (link.police.is_some(), "police"),
            (link.trace.is_some(), "trace"),
        ];
        let Some((_, name)) = given.iter().find(|(is_given, _)| *is_given) else { continue };
        let switches = || {
            [&link.a, &link.b]
                .into_iter()
                .filter_map(|end| nodes.get(end.as_str()).copied())
                .filter(is_switch)
        };
        let takes_turns =
            switches().find(|node| matches!(node.kind, NodeKind::Switch { round_robin: true, .. }));
        let credits = switches().find_map(|node| credits_at.get(node.name.as_str()).copied());
        let credits = credits.or_else(|| link.credits.map(|_| link));
        let other = if link.encapsulation == Encapsulation::Llc { null } else { llc };
        let (message, with) = if let Some(other) = explicit_rates {
            (
                format!("`{name}` cannot be beside explicit rates, which queue the cells of each channel"),
                Some((other.location, "these")),
            )
        } else if let Some(other) = credits {
            (
                format!("`{name}` cannot be beside credits, which queue the cells of each channel"),
                Some((other.location, "these")),
            )
        } else if let Some(node) = takes_turns {
            (
                format!("`{name}` cannot be at a switch with `scheduling = round-robin`"),
                Some((node.location, "the switch")),
            )
        } else if link.pacing_slots.is_some() {
            (format!("`{name}` cannot be beside cell slots"), None)
        } else if let Some(other) = other.filter(|_| link.queues_packets()) {
            (
                "a queue of packets needs one encapsulation in the whole network".to_owned(),
                Some((other.location, "the other")),
            )
        } else {
            continue;
        };
        let error = Diagnostic::error(link.location, message).label("expected one or the other");
        cx.report(match with {
            Some((location, label)) => error.with(location, label),
            None => error,
        });
    }
}

//! `at 10 s set link a - b (rate = 10 Mb/s, down);`: changes of links during the run.

use trunkline_units::Span;

use super::options::{self, Options, assign};
use super::quantity::{Dimension, number};
use super::{Context, write};
use crate::diagnostic::{Diagnostic, list};
use crate::parse::shorten;
use crate::plan::{LinkChange, Medium, Network, NodeKind, SourceRange};
use crate::token::written;
use crate::tree::{Declaration, Setting, Statement, Value};

/// What can change; besides, `up` and `down`.
const OPTIONS: [&str; 6] = ["rate", "delay", "loss", "corrupt", "duplicate", "reorder"];

/// Reads the statements of all blocks into the network, in order of time; of two at one time the later one counts.
pub(super) fn read(cx: &mut Context<'_>, statements: &[Statement], mut network: Option<&mut Network>) {
    let mut blocks = vec![statements];
    while let Some(block) = blocks.pop() {
        for statement in block {
            match statement {
                Statement::Serial(body, _)
                | Statement::Parallel(body, _)
                | Statement::Repeat { body, .. } => blocks.push(body),
                Statement::Change { at, link, location } => match &mut network {
                    Some(network) => network.changes.extend(change(cx, at, link, *location, network)),
                    None => {
                        let error = Diagnostic::error(*location, "this experiment has no network");
                        cx.report(error.label("expected a `network` with this link"));
                    }
                },
                _ => {}
            }
        }
    }
    if let Some(network) = network {
        network.changes.sort_by_key(|change| (change.at, change.location.start));
        check(cx, network);
    }
}

fn change(
    cx: &mut Context<'_>,
    at: &Value,
    declaration: &Declaration,
    location: SourceRange,
    network: &Network,
) -> Option<LinkChange> {
    let at = number(cx, at, Dimension::Time).map(Span::from_seconds);
    let link = link_name(cx, declaration, network);
    let mut change = LinkChange { location, ..LinkChange::default() };
    let (words, named): (Vec<Setting>, Vec<Setting>) =
        declaration.arguments.iter().cloned().partition(|argument| argument.key.is_none());
    for word in &words {
        let up = match word.values.first().and_then(Value::as_name) {
            Some("up") => true,
            Some("down") => false,
            _ => {
                let error = Diagnostic::error(word.location(), "this changes nothing");
                cx.report(error.label(format!("expected `up`, `down` or one of {}", list(&OPTIONS))));
                continue;
            }
        };
        if change.up.replace(up).is_some() {
            let error = Diagnostic::error(word.location(), "`up` or `down` is given twice");
            cx.report(error.label("and again here"));
        }
    }
    Options::of("a change of a link", &OPTIONS).apply(cx, &named, |cx, name, setting| {
        let value = &setting.values[0];
        match name {
            "rate" => assign(&mut change.rate, options::rate(cx, value).map(Some)),
            "delay" => assign(&mut change.delay, options::time(cx, value).map(Some)),
            "loss" => assign(&mut change.loss, options::share(cx, value).map(Some)),
            "corrupt" => assign(&mut change.corrupt, options::share(cx, value).map(Some)),
            "duplicate" => assign(&mut change.duplicate, options::share(cx, value).map(Some)),
            _ => assign(&mut change.reorder, options::share(cx, value).map(Some)),
        }
    });
    if declaration.arguments.is_empty() {
        let error = Diagnostic::error(location, "this changes nothing");
        cx.report(error.label(format!("expected `(up)`, `(down)` or one of {}", list(&OPTIONS))));
    }
    (change.at, change.link) = (at?, link?);
    Some(change)
}

/// Returns the name of the link between two nodes, in either order.
fn link_name(cx: &mut Context<'_>, declaration: &Declaration, network: &Network) -> Option<String> {
    let [a, b] = &declaration.names[..] else { return None };
    let location = SourceRange { start: a.location.start, end: b.location.end };
    let pair = [&a.text, &b.text];
    let joins = |link: &&crate::plan::Link| pair == [&link.a, &link.b] || pair == [&link.b, &link.a];
    let mut links = network.links.iter().filter(joins);
    match (links.next(), links.next()) {
        (Some(link), None) => Some(link.name.clone()),
        (Some(first), Some(_)) => {
            let error = Diagnostic::error(location, "several links join these nodes");
            cx.refuse(
                error.label("expected the only link between two nodes").with(first.location, "the first"),
            )
        }
        (None, _) => {
            let ends = format!("{} - {}", shorten(&a.text), shorten(&b.text));
            let error = Diagnostic::error(location, format!("no link is called `{ends}`"));
            let names: Vec<String> =
                network.links.iter().map(|link| format!("{} - {}", link.a, link.b)).collect();
            let error = error.label("expected a link of the network");
            cx.report(cx.suggest(error, &ends, names.iter().map(String::as_str)));
            None
        }
    }
}

/// Checks that the links can change: they join two nodes, and nothing else gives or computes their rates.
pub(crate) fn check(cx: &mut Context<'_>, network: &Network) {
    for change in &network.changes {
        let Some(link) = network.links.iter().find(|link| link.name == change.link) else { continue };
        let is_shared = |end: &str| {
            let node = network.nodes.iter().find(|node| node.name == end);
            node.is_some_and(|node| matches!(node.kind, NodeKind::Hub { .. } | NodeKind::Ring { .. }))
        };
        let has_explicit_rates = network.links.iter().any(|link| link.explicit_rate.is_some());
        let message = if link.medium == Medium::Atm && change.rate.is_some() && has_explicit_rates {
            "explicit rates are shares of a rate that does not change"
        } else if link.medium == Medium::Atm && link.pacing_slots.is_some() {
            "cell slots are those of a link that does not change"
        } else if is_shared(&link.a) || is_shared(&link.b) {
            "a station's place at a hub or ring does not change"
        } else if change.rate.is_some() && link.trace.is_some() {
            "the trace gives this link its rate"
        } else {
            continue;
        };
        let error = Diagnostic::error(change.location, message);
        cx.report(error.label("cannot be applied").with(link.location, "the link"));
    }
}

/// Returns a change as a statement, without `;`.
pub(crate) fn change_text(change: &LinkChange, network: &Network) -> String {
    let link = network.links.iter().find(|link| link.name == change.link);
    let ends = link.map_or(String::new(), |link| format!("{} - {}", written(&link.a), written(&link.b)));
    let mut changes = Vec::new();
    changes.extend(change.rate.map(|rate| format!("rate = {}", write::rate(&rate))));
    changes.extend(change.delay.map(|delay| format!("delay = {}", write::span(&delay))));
    let shares = [change.loss, change.corrupt, change.duplicate, change.reorder];
    for (name, share) in OPTIONS[2..].iter().zip(shares) {
        changes.extend(share.map(|share| format!("{name} = {share}")));
    }
    changes.extend(change.up.map(|up| if up { "up".to_owned() } else { "down".to_owned() }));
    format!("at {} set link {ends} ({})", write::span(&change.at), changes.join(", "))
}

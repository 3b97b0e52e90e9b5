//! `explicit_rate = controller (host = k)`, `explicit_rate = erica (utilization = 0.9)` of a link.

use std::collections::BTreeMap;

use trunkline_units::Span;

use super::options::{self, Visit, plain, share, time};
use super::quantity::single;
use super::{Context, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{ExplicitRate, Link, Medium, Network, Node, NodeKind, SourceRange};
use crate::token::written;
use crate::tree::{Part, PartKind, Value};

/// Share of the line and averaging interval of ERICA.
const UTILIZATION: f64 = 0.9;
const INTERVAL: Span = Span::from_ms(1);
/// The shortest averaging interval.
const SHORTEST_INTERVAL: Span = Span::from_us(1);

fn defaults() -> [ExplicitRate; 2] {
    [
        ExplicitRate::Controller { host: String::new() },
        ExplicitRate::Erica { utilization: UTILIZATION, interval: INTERVAL },
    ]
}

fn present(rates: &mut ExplicitRate, v: &mut Visit<'_, '_>) {
    match rates {
        ExplicitRate::Controller { host } => v.option("host", host, read_host, |host| written(host)),
        ExplicitRate::Erica { utilization, interval } => {
            v.option("utilization", utilization, read_utilization, f64::to_string);
            v.option("interval", interval, read_interval, write::span);
        }
    }
}

fn read_host(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    let part = single(cx, value, "the name of a host")?;
    plain(cx, part, "the name of a host").map(str::to_owned)
}

fn read_utilization(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let share = share(cx, value)?;
    if share == 0.0 {
        let error = Diagnostic::error(value.location, "this share is zero");
        return cx.refuse(error.label("expected a share above 0, such as `0.9`"));
    }
    Some(share)
}

fn read_interval(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    let interval = time(cx, value)?;
    if interval < SHORTEST_INTERVAL {
        let error = Diagnostic::error(value.location, "this averaging interval is too short");
        return cx.refuse(error.label(format!("expected at least {SHORTEST_INTERVAL}")));
    }
    Some(interval)
}

/// Reads who computes the rates, with the parameters.
pub(crate) fn read(cx: &mut Context<'_>, value: &Value) -> Option<ExplicitRate> {
    let expected = "`controller (host = NAME)` or `erica`";
    let part = single(cx, value, expected)?;
    let alone = Part { arguments: None, ..part.clone() };
    let word = plain(cx, &alone, expected)?;
    let is_meant = |rates: &ExplicitRate| part.kind == PartKind::Word && rates.name() == word;
    let Some(mut rates) = defaults().into_iter().find(is_meant) else {
        let message = format!("`{}` computes no explicit rates", shorten(word));
        let error = Diagnostic::error(part.location, message).label(format!("expected {expected}"));
        return cx.refuse(error.suggest(word, defaults().iter().map(ExplicitRate::name)));
    };
    let owner = format!("`{word}`");
    let required: &[&str] = if word == "controller" { &["host"] } else { &[] };
    let settings = part.arguments.as_deref().unwrap_or_default();
    options::read(cx, &owner, part.location, settings, required, |v| present(&mut rates, v));
    Some(rates)
}

pub(crate) fn text(rates: &ExplicitRate) -> String {
    let options = options::values(|v| present(&mut rates.clone(), v));
    let options: Vec<_> = options.into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{} ({})", rates.name(), options.join(", "))
}

/// Checks the explicit rates of all links: their controlling hosts are beside them, a switch computes by ERICA, and no
/// channel obeys credits and rates at once.
pub(crate) fn check(cx: &mut Context<'_>, network: &Network) {
    let nodes: BTreeMap<&str, &Node> = network.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let credits = network.links.iter().find(|link| link.credits.is_some());
    for link in &network.links {
        let Some(rates) = &link.explicit_rate else { continue };
        if link.medium == Medium::Atm
            && let Some(credits) = credits
        {
            let error = Diagnostic::error(link.location, "a network has either credits or explicit rates");
            cx.report(error.label("this link has explicit rates").with(credits.location, "and this credits"));
        }
        match rates {
            ExplicitRate::Controller { host } => check_controller(cx, network, &nodes, link, host),
            ExplicitRate::Erica { .. } => {
                let is_switch = |end: &String| matches!(nodes[end.as_str()].kind, NodeKind::Switch { .. });
                if ![&link.a, &link.b].into_iter().any(is_switch) {
                    report(cx, link.location, "ERICA runs in a switch, and this link ends at none");
                }
            }
        }
    }
}

fn check_controller(
    cx: &mut Context<'_>,
    network: &Network,
    nodes: &BTreeMap<&str, &Node>,
    link: &Link,
    host: &str,
) {
    // A host that was not given or could not be read was reported.
    if host.is_empty() {
        return;
    }
    if !nodes.get(host).is_some_and(|node| matches!(node.kind, NodeKind::Host(_))) {
        let error = Diagnostic::error(link.location, format!("no host is called `{}`", shorten(host)));
        let error = error.label("the controller of this link");
        let hosts = nodes.values().filter(|node| matches!(node.kind, NodeKind::Host(_)));
        cx.report(error.suggest(host, hosts.map(|node| node.name.as_str())));
        return;
    }
    let is_beside = |other: &Link| {
        let joins = |end: &str| {
            (other.a == end && other.b == host || other.b == end && other.a == host)
                && matches!(nodes[end].kind, NodeKind::Switch { .. })
        };
        other.medium == Medium::Atm && (joins(&link.a) || joins(&link.b))
    };
    if !network.links.iter().any(is_beside) {
        let message = format!("`{}` is not beside this link", shorten(host));
        report(cx, link.location, &message);
    }
}

fn report(cx: &mut Context<'_>, location: SourceRange, message: &str) {
    let label = "expected a controlling host with an ATM link to a switch of this link, or `erica` on a link of a switch";
    cx.report(Diagnostic::error(location, message).label(label));
}

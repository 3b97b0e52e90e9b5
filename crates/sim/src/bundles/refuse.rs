//! What of bundles is not simulated.

use trunkline_experiment::plan::{BundleFormat, Connection, Medium, Network, NodeKind, Plan, Protocol};
use trunkline_run::{Refusal, bundle};
use trunkline_traffic::{Burst, Pattern, Variable};

use crate::network::topology::Topology;

/// What of a plan's bundles the simulator does not carry, each by name and place.
pub fn refuse(plan: &Plan, network: &Network) -> Vec<Refusal> {
    let mut all = Vec::new();
    for node in &network.nodes {
        if let NodeKind::Converter { format: BundleFormat::Wide, .. } = node.kind {
            let text = format!("`sim` has no `format = wide` of bundles yet: `{}`", node.name);
            all.push(Refusal { place: node.place, text });
        }
    }
    let topology = Topology::new(network);
    for c in plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Bundle { .. })) {
        if let Some(text) = refuse_test(c) {
            all.push(Refusal { place: c.asks.test, text: format!("{}: {text}", c.name) });
        } else if let Some(text) = refuse_media(plan, &topology) {
            all.push(Refusal { place: c.asks.protocol, text: format!("{}: {text}", c.name) });
        }
    }
    all
}

/// A sender must have a pace: a host's interface takes any number of messages at once, and drops what is too much.
fn refuse_test(c: &Connection) -> Option<String> {
    let sizes = match &c.test {
        Pattern::Full { .. } => return Some(no_test("full")),
        Pattern::Request { .. } => return Some(no_test("request")),
        Pattern::File { .. } => return Some(no_test("file")),
        Pattern::Application { .. } => return None,
        Pattern::Poisson { size_bytes, .. } | Pattern::Stairs { size_bytes, .. } => size_bytes,
        Pattern::Cbr { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Burst { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Random { burst: Burst { size_bytes, .. }, .. } => size_bytes,
    };
    match sizes {
        Variable::Constant(size) if *size > f64::from(bundle::LONGEST) => {
            Some(format!("a message of {size} B does not go into a bundle: at most {} B do", bundle::LONGEST))
        }
        _ => None,
    }
}

fn no_test(name: &str) -> String {
    format!("`sim` has no test `{name}` over bundle")
}

/// Cells of several senders would come through one virtual channel.
fn refuse_media(plan: &Plan, topology: &Topology<'_>) -> Option<String> {
    let sides = bundle::sides(plan)?;
    let converters = sides.central.iter().chain(&sides.level1).map(|node| node.name.as_str());
    let parties: Vec<usize> =
        converters.chain(sides.hosts).chain(sides.wide).filter_map(|name| topology.node(name)).collect();
    for (at, from) in parties.iter().enumerate() {
        for to in &parties[at + 1..] {
            for (node, port) in topology.way(*from, *to).unwrap_or_default() {
                let link = &topology.network.links[topology.ports[node][usize::from(port)].link];
                if link.medium == Medium::Atm {
                    return Some(format!("`sim` carries no bundles over ATM, as link {} is", link.name));
                }
            }
        }
    }
    None
}

//! Plans with bundles that the simulator refuses.

use trunkline_experiment::plan::{Medium, Network, Plan, Protocol};
use trunkline_run::{Refusal, bundle};

use crate::network::topology::Topology;

/// Returns the parts of a plan's bundles that the simulator does not support.
pub fn refuse(plan: &Plan, network: &Network) -> Vec<Refusal> {
    let mut all = Vec::new();
    let max_message =
        bundle::converter_config(plan).map_or(bundle::MAX_CLASSIC_MESSAGE, |config| config.max_message());
    let topology = Topology::new(network);
    for c in plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Bundle { .. })) {
        if let Some(text) = bundle::refuse_size(c, max_message) {
            all.push(Refusal { location: c.test_location, text: format!("{}: {text}", c.name) });
        } else if let Some(text) = refuse_media(plan, &topology) {
            all.push(Refusal { location: c.protocol_location, text: format!("{}: {text}", c.name) });
        }
    }
    all
}

/// Refuses bundles over ATM: cells of several senders would share one virtual channel.
fn refuse_media(plan: &Plan, topology: &Topology<'_>) -> Option<String> {
    let sides = bundle::sides(plan)?;
    let converters = sides.central.iter().chain(&sides.level1).map(|node| node.name.as_str());
    let nodes: Vec<usize> =
        converters.chain(sides.hosts).chain(sides.wide).filter_map(|name| topology.node(name)).collect();
    for (at, from) in nodes.iter().enumerate() {
        for to in &nodes[at + 1..] {
            for (node, port) in topology.path(*from, *to).unwrap_or_default() {
                let link = &topology.network.links[topology.ports[node][usize::from(port)].link];
                if link.medium == Medium::Atm {
                    return Some(format!("bundles do not cross ATM: link {}", link.name));
                }
            }
        }
    }
    None
}

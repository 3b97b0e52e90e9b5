//! What of bundles is not simulated.

use trunkline_experiment::plan::{Medium, Network, Plan, Protocol};
use trunkline_run::{Refusal, bundle};

use crate::network::topology::Topology;

/// What of a plan's bundles the simulator does not carry, each by name and place.
pub fn refuse(plan: &Plan, network: &Network) -> Vec<Refusal> {
    let mut all = Vec::new();
    let longest = bundle::works(plan).map_or(bundle::LONGEST, |works| works.longest());
    let topology = Topology::new(network);
    for c in plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Bundle { .. })) {
        if let Some(text) = bundle::refuse_test("sim", c, longest) {
            all.push(Refusal { place: c.asks.test, text: format!("{}: {text}", c.name) });
        } else if let Some(text) = refuse_media(plan, &topology) {
            all.push(Refusal { place: c.asks.protocol, text: format!("{}: {text}", c.name) });
        }
    }
    all
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

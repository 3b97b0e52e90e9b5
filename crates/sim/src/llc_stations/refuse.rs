//! Plans with LLC that the simulator refuses, and traffic contracts that cannot be kept.

use std::collections::BTreeMap;

use trunkline_experiment::plan::{Connection, Medium, Network, NodeKind, Plan, Protocol};
use trunkline_llc::admit::{self, Refusal as AdmissionRefusal, TrafficContract};
use trunkline_run::{Refusal, llc};

use super::line;
use crate::network::topology::Topology;

/// Returns why the connections over LLC cannot cross the network of a plan, or why their traffic contracts cannot be kept.
pub fn refuse(plan: &Plan, network: &Network) -> Vec<Refusal> {
    let topology = Topology::new(network);
    let over_llc = || plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
    let mut refusals = Vec::new();
    let mut ports = BTreeMap::new();
    for c in over_llc() {
        let reason = refuse_medium(&topology, c).or_else(|| refuse_interfaces(&topology, c, &mut ports));
        if let Some(text) = reason.or_else(|| refuse_size(&topology, c)) {
            refusals.push(Refusal { location: c.protocol_location, text: format!("{}: {text}", c.name) });
        }
    }
    if refusals.is_empty() && llc::has_token(plan) {
        refusals.extend(refuse_ring(plan, &topology));
    }
    refusals
}

/// Returns the nodes on the path of a connection with their egress ports; `None` if there is no path.
fn path(topology: &Topology<'_>, c: &Connection) -> Option<Vec<(usize, u16)>> {
    topology.path(topology.node(&c.from.host)?, topology.node(&c.to.first()?.host)?)
}

fn refuse_medium(topology: &Topology<'_>, c: &Connection) -> Option<String> {
    for (index, (node, port)) in path(topology, c).unwrap_or_default().into_iter().enumerate() {
        let name = &topology.network.nodes[node].name;
        if index > 0 && topology.is_router(node) {
            return Some(format!("`{name}` is a router, and a router forwards IP packets only"));
        }
        let link = &topology.network.links[topology.ports[node][usize::from(port)].link];
        if link.medium != Medium::Ethernet {
            return Some(format!("llc needs Ethernet or rings; link {} is neither", link.name));
        }
        if let (NodeKind::Ring { .. }, true) =
            (&topology.network.nodes[node].kind, matches!(c.protocol, Protocol::Llc { token: true, .. }))
        {
            return Some(format!("`{name}` is a token ring already; `token = on` is for Ethernet"));
        }
    }
    None
}

/// Refuses a host that would need stations at two interfaces.
fn refuse_interfaces<'c>(
    topology: &Topology<'_>,
    c: &'c Connection,
    ports: &mut BTreeMap<&'c str, u16>,
) -> Option<String> {
    let to = c.to.first()?;
    for (host, other) in [(&c.from.host, &to.host), (&to.host, &c.from.host)] {
        let port = topology.path(topology.node(host)?, topology.node(other)?)?.first()?.1;
        if *ports.entry(host).or_insert(port) != port {
            return Some(format!("a host has one LLC station, but {host} would need two interfaces"));
        }
    }
    None
}

fn refuse_size(topology: &Topology<'_>, c: &Connection) -> Option<String> {
    let path = path(topology, c)?;
    let (mtu, pdu) = (topology.mtu(&path)?, topology.max_pdu(&path)?);
    let longest = llc::max_message(&c.protocol, pdu);
    let size = llc::max_constant_message(c)?;
    let at = if pdu < mtu { "on Ethernet".to_owned() } else { format!("where the mtu is {mtu} B") };
    (size > longest)
        .then(|| format!("a message of {size} B does not fit into a frame: the maximum is {longest} B {at}"))
}

/// Refuses a token across separate networks, and time limits that cannot be kept.
fn refuse_ring(plan: &Plan, topology: &Topology<'_>) -> Option<Refusal> {
    let first = plan.connections.iter().find(|c| matches!(c.protocol, Protocol::Llc { .. }))?;
    let names = llc::stations(plan);
    let nodes: Vec<usize> = names.iter().filter_map(|name| topology.node(name)).collect();
    if let Some((name, _)) = names
        .iter()
        .zip(&nodes)
        .find(|(_, node)| **node != nodes[0] && topology.path(nodes[0], **node).is_none())
    {
        let text = format!("{} and {name} are in separate networks; a token needs one network", names[0]);
        return Some(Refusal { location: first.protocol_location, text: format!("{}: {text}", first.name) });
    }
    if let Some(refusal) = llc::refuse_limits(plan) {
        return Some(refusal);
    }
    let (network, contracts) = line::ring_and_contracts(plan, topology)?;
    let contracts = contracts.ok()?;
    let connection = |contract: usize| plan.connections.get(*contracts.connections.get(contract)?);
    // Connections with a limit come first, so that the others cannot hide a limit that is not kept.
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..contracts.contracts.len())
        .partition(|contract| connection(*contract).is_some_and(llc::has_guaranteed_limit));
    let limited = connection(*order.first()?)?;
    order.extend(others);
    let ordered: Vec<TrafficContract> = order.iter().map(|contract| contracts.contracts[*contract]).collect();
    let (c, reason) = match admit::admit(&network, &ordered).err()? {
        // A connection without a limit may be late.
        AdmissionRefusal::Late { contract, delay, deadline } => (
            connection(*order.get(contract)?)?,
            format!("with this many stations a message may take {delay}, its limit is {deadline}"),
        ),
        AdmissionRefusal::Overload { contract } => (
            connection(*order.get(contract)?)?,
            "its station offers more traffic than the token allows".to_owned(),
        ),
        AdmissionRefusal::InvalidContract { contract } => {
            let name = &connection(*order.get(contract)?)?.name;
            (
                limited,
                format!(
                    "no limit can be promised with {name}: its messages are too long or its period is zero"
                ),
            )
        }
        reason => (limited, format!("no limit can be promised: {reason}")),
    };
    llc::has_guaranteed_limit(c)
        .then(|| Refusal { location: c.protocol_location, text: format!("{}: {reason}", c.name) })
}

//! What of LLC in a plan `sim` has no answer to.

use std::collections::BTreeMap;

use trunkline_experiment::plan::{Connection, Medium, Network, NodeKind, Plan, Protocol};
use trunkline_llc::admit::{self, Promise, Refusal as Why};
use trunkline_run::{Refusal, llc};

use super::line;
use crate::network::topology::Topology;

/// Why a plan's connections over LLC cannot be simulated, or their promises not be kept.
pub fn refuse(plan: &Plan, network: &Network) -> Vec<Refusal> {
    let topology = Topology::new(network);
    let over_llc = || plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
    let mut refusals = Vec::new();
    let mut ports = BTreeMap::new();
    for c in over_llc() {
        let why = refuse_way(&topology, c).or_else(|| refuse_interfaces(&topology, c, &mut ports));
        if let Some(text) = why.or_else(|| refuse_size(&topology, c)) {
            refusals.push(Refusal { place: c.asks.protocol, text: format!("{}: {text}", c.name) });
        }
    }
    if refusals.is_empty() && llc::has_token(plan) {
        refusals.extend(refuse_ring(plan, &topology));
    }
    refusals
}

/// The nodes on the way of a connection, with the port by which each is left; none, if there is no way.
fn way(topology: &Topology<'_>, c: &Connection) -> Option<Vec<(usize, u16)>> {
    topology.way(topology.node(&c.from.host)?, topology.node(&c.to.first()?.host)?)
}

fn refuse_way(topology: &Topology<'_>, c: &Connection) -> Option<String> {
    for (node, port) in way(topology, c).unwrap_or_default() {
        let link = &topology.network.links[topology.ports[node][usize::from(port)].link];
        if link.medium != Medium::Ethernet {
            return Some(format!("`sim` carries llc over Ethernet and rings; link {} is neither", link.name));
        }
        if let (NodeKind::Ring { .. }, true) =
            (&topology.network.nodes[node].kind, matches!(c.protocol, Protocol::Llc { token: true, .. }))
        {
            let name = &topology.network.nodes[node].name;
            return Some(format!("`{name}` is a ring and has a token; `token = on` is for Ethernet"));
        }
    }
    None
}

/// A host is one station, at one interface.
fn refuse_interfaces<'c>(
    topology: &Topology<'_>,
    c: &'c Connection,
    ports: &mut BTreeMap<&'c str, u16>,
) -> Option<String> {
    let to = c.to.first()?;
    for (host, other) in [(&c.from.host, &to.host), (&to.host, &c.from.host)] {
        let port = topology.way(topology.node(host)?, topology.node(other)?)?.first()?.1;
        if *ports.entry(host).or_insert(port) != port {
            return Some(format!("`sim` has one LLC station a host, and {host} would need two interfaces"));
        }
    }
    None
}

fn refuse_size(topology: &Topology<'_>, c: &Connection) -> Option<String> {
    let way = way(topology, c)?;
    let (mtu, pdu) = (topology.mtu(&way)?, topology.longest_pdu(&way)?);
    let longest = llc::longest(&c.protocol, pdu);
    let size = llc::largest_message(c)?;
    let at = if pdu < mtu { "on Ethernet".to_owned() } else { format!("where the mtu is {mtu} B") };
    (size > longest)
        .then(|| format!("a message of {size} B does not go into a frame: at most {longest} B do, {at}"))
}

/// With a token all stations must hear each other, and who has a time limit must be able to keep it.
fn refuse_ring(plan: &Plan, topology: &Topology<'_>) -> Option<Refusal> {
    let first = plan.connections.iter().find(|c| matches!(c.protocol, Protocol::Llc { .. }))?;
    let names = llc::stations(plan);
    let nodes: Vec<usize> = names.iter().filter_map(|name| topology.node(name)).collect();
    if let Some((name, _)) = names
        .iter()
        .zip(&nodes)
        .find(|(_, node)| **node != nodes[0] && topology.way(nodes[0], **node).is_none())
    {
        let text = format!("{} and {name} are in no one network, and a token goes round in one", names[0]);
        return Some(Refusal { place: first.asks.protocol, text: format!("{}: {text}", first.name) });
    }
    if let Some(refusal) = llc::refuse_limits(plan) {
        return Some(refusal);
    }
    let (network, promises) = line::promised(plan, topology)?;
    let promises = promises.ok()?;
    let connection = |promise: usize| plan.connections.get(*promises.connections.get(promise)?);
    // What has a limit comes first, so that nothing without one can hide that it is not kept.
    let (mut order, others): (Vec<usize>, Vec<usize>) =
        (0..promises.promises.len()).partition(|promise| connection(*promise).is_some_and(llc::is_limited));
    let limited = connection(*order.first()?)?;
    order.extend(others);
    let ordered: Vec<Promise> = order.iter().map(|promise| promises.promises[*promise]).collect();
    let (c, why) = match admit::admit(&network, &ordered).err()? {
        // That one is not kept changes nothing for the others, and without a limit it need not be.
        Why::Late { promise, delay, deadline } => (
            connection(*order.get(promise)?)?,
            format!("with so many stations a message may take {delay}, its limit is {deadline}"),
        ),
        Why::Overload { promise } => {
            (connection(*order.get(promise)?)?, "its station has more to send than tokens come".to_owned())
        }
        Why::Senseless { promise } => {
            let name = &connection(*order.get(promise)?)?.name;
            (
                limited,
                format!(
                    "no limit can be promised with {name}: its messages are too long or its period is none"
                ),
            )
        }
        why => (limited, format!("no limit can be promised: {why}")),
    };
    llc::is_limited(c).then(|| Refusal { place: c.asks.protocol, text: format!("{}: {why}", c.name) })
}

//! Routes of multicast groups in the kernels of routers. They follow from the topology, as in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use trunkline_experiment::plan::{Connection, Plan, Protocol};
use trunkline_sim::network::topology::Topology;

/// What a router forwards of a sender and a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoute {
    /// The node that sends.
    pub source: usize,
    /// The group.
    pub group: Ipv4Addr,
    /// The port of the router by which it arrives.
    pub from: u16,
    /// The ports by which it leaves.
    pub to: Vec<u16>,
}

/// Returns the routes of the groups that connections of a plan use, at a router.
pub fn group_routes(plan: &Plan, topology: &Topology<'_>, router: usize) -> Vec<GroupRoute> {
    let mut members: BTreeMap<Ipv4Addr, BTreeSet<&str>> = BTreeMap::new();
    for (c, group) in plan.connections.iter().filter_map(with_group) {
        members.entry(group).or_default().extend(c.to.iter().map(|to| to.host.as_str()));
    }
    let sources: BTreeSet<_> = plan
        .connections
        .iter()
        .filter_map(with_group)
        .map(|(c, group)| (c.from.host.as_str(), group))
        .collect();
    let port_to = |host: &str| Some(topology.path(router, topology.node(host)?)?.first()?.1);
    let route = |(source, group): (&str, Ipv4Addr)| {
        let from = port_to(source)?;
        let ports: BTreeSet<u16> = members[&group].iter().filter_map(|member| port_to(member)).collect();
        let to: Vec<u16> = ports.into_iter().filter(|port| *port != from).collect();
        (!to.is_empty()).then_some(GroupRoute { source: topology.node(source)?, group, from, to })
    };
    sources.into_iter().filter_map(route).collect()
}

fn with_group(c: &Connection) -> Option<(&Connection, Ipv4Addr)> {
    match c.protocol {
        Protocol::Multicast { group: IpAddr::V4(group), .. } => Some((c, group)),
        _ => None,
    }
}

/// Returns why packets of a connection to a group do not reach a receiver: another family, or a router that stops them.
pub fn unreachable(c: &Connection, topology: &Topology<'_>) -> Option<String> {
    let Protocol::Multicast { group, ttl, .. } = c.protocol else { return None };
    if group.is_ipv6() {
        return Some("connections in a lab use IPv4".to_owned());
    }
    c.to.iter().find_map(|to| {
        let path = topology.path(topology.node(&c.from.host)?, topology.node(&to.host)?)?;
        let mut routers = path.iter().skip(1).map(|(node, _)| *node).filter(|node| topology.is_router(*node));
        let stop = &topology.network.nodes[routers.nth(usize::from(ttl).saturating_sub(1))?].name;
        Some(format!("with `ttl = {ttl}` the kernel of the router `{stop}` forwards nothing to {}", to.host))
    })
}

//! Groups of bundle converters in a lab: which interface of a host has them, and which switches forward them.
//!
//! The converters run in the agents of their hosts and use the groups of the wide area. Their memberships are fixed: no switch of
//! a lab reads what kernels report of their groups.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::Port;
use trunkline_experiment::converters::Sides;
use trunkline_experiment::plan::{BundleFormat, Network as Described, Plan, Protocol};
use trunkline_live::group_of_hosts;
use trunkline_run::{Refusal, bundle};
use trunkline_sim::network::Network;
use trunkline_sim::network::topology::Topology;
use trunkline_sim::{refuse_bundles, wide_area_port};

use crate::packet::Packet;

/// Returns the port with the groups of each bundle converter and host, by node.
pub fn group_ports(plan: &Plan, topology: &Topology<'_>) -> BTreeMap<usize, Port> {
    let Some(sides) = bundle::sides(plan) else { return BTreeMap::new() };
    let node = |name: &str| topology.node(name);
    let port = |from: usize, to: &str| Some(Port(topology.path(from, node(to)?)?.first()?.1));
    let mut ports = BTreeMap::new();
    for central in &sides.central {
        let to_hosts = node(&central.name).and_then(|at| Some((at, port(at, sides.hosts.first()?)?)));
        ports.extend(to_hosts);
        let hosts = sides.hosts.iter().filter_map(|host| node(host));
        ports.extend(hosts.filter_map(|host| Some((host, port(host, &central.name)?))));
        for level1 in sides.level1.iter().filter_map(|level1| node(&level1.name)) {
            ports
                .extend(port(level1, &central.name).map(|to| (level1, wide_area_port(topology, level1, to))));
        }
    }
    for wide in sides.wide.iter().filter_map(|wide| node(wide)) {
        let to_level1 = sides.level1.iter().find_map(|level1| port(wide, &level1.name));
        ports.extend(to_level1.map(|to| (wide, to)));
    }
    ports
}

/// Makes the switches of a network forward the groups of bundles.
pub fn join_groups(plan: &Plan, topology: &Topology<'_>, network: &mut Network<Packet>) {
    let Some(sides) = bundle::sides(plan) else { return };
    let ports = group_ports(plan, topology);
    let groups: Vec<u32> = network.groups.values().copied().collect();
    for level1 in &sides.level1 {
        let at = topology.node(&level1.name).and_then(|node| Some((node, *ports.get(&node)?)));
        let (Some(at), Some(host)) = (at, network.host_number(&level1.name)) else { continue };
        let forwarders = network.forwarders_behind(topology, at);
        groups.iter().for_each(|group| network.set_membership(host, &forwarders, *group, true));
    }
    network.groups.insert(group_of_hosts().into(), network.all_hosts_group);
}

/// Returns what the lab does not support of a plan's bundles.
pub fn refuse(plan: &Plan, described: &Described, topology: &Topology<'_>) -> Vec<Refusal> {
    let mut refusals = refuse_bundles(plan, described);
    let first = plan.connections.iter().find(|c| matches!(c.protocol, Protocol::Bundle { .. }));
    if let (Some(sides), Some(first)) = (bundle::sides(plan), first)
        && let Some(text) = refuse_routes(&sides, plan, topology)
    {
        let text = format!("{}: {text}", first.name);
        refusals.push(Refusal { location: first.protocol_location, text });
    }
    refusals
}

/// Refuses what kernels do not route to groups: through a router, or from one host to two of its interfaces.
fn refuse_routes(sides: &Sides<'_>, plan: &Plan, topology: &Topology<'_>) -> Option<String> {
    let path = |from: &str, to: &str| topology.path(topology.node(from)?, topology.node(to)?);
    let router = |from: &str, to: &str| {
        let path = path(from, to)?;
        let node = path.iter().skip(1).find(|(node, _)| topology.is_router(*node))?.0;
        Some(format!("the router `{}` does not forward groups of bundles", topology.network.nodes[node].name))
    };
    let level1 = || sides.level1.iter().map(|node| node.name.as_str());
    let wide = sides.wide.iter().flat_map(|wide| level1().map(move |level1| (*wide, level1)));
    let is_classic = bundle::converter_config(plan).is_some_and(|c| c.format == BundleFormat::Classic);
    let central = sides.central.first().filter(|_| is_classic).map(|central| central.name.as_str());
    let hosts = || central.iter().flat_map(|central| sides.hosts.iter().map(move |host| (*central, *host)));
    let ports = hosts().filter_map(|(central, host)| Some(path(central, host)?.first()?.1));
    let ports: BTreeSet<u16> = ports.collect();
    if let (Some(central), 2..) = (central, ports.len()) {
        return Some(format!(
            "`{central}` has hosts at two interfaces, and sends bundles to a group at one only"
        ));
    }
    wide.chain(hosts()).find_map(|(from, to)| router(from, to))
}

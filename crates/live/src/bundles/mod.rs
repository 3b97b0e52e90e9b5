//! Bundle converters and hosts of a live run: each converter of the plan's network runs in its own agent on this
//! machine, and each host behind the converters has one interface for all its ends.
//!
//! ```text
//!  wide-area hosts ══ groups on the loopback ══ level 1 ── bundles ── central ── bundles for hosts ── interfaces
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`worker`] | the thread of a converter or of a host's interface |
//!
//! On the loopback each run has its own addresses, groups and ports, so that concurrent runs do not receive each other's
//! messages. Where hosts have network namespaces, they use their addresses there and the groups of the wide area.

pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};
use trunkline_bundle::wire::classic::PACKET_ADDRESSES;
use trunkline_bundle::wire::format2::packet_address;
use trunkline_experiment::Plan;
use trunkline_experiment::converters::{Sides, number};
use trunkline_experiment::plan::{BundleFormat, Node};
use trunkline_io::Clock;
use trunkline_run::bundle::{self, ConverterConfig, PORTS};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use worker::BundleWorker;

/// Addresses of the converters of a run and of their hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleAddresses {
    /// Address of the central converter.
    central: Ipv4Addr,
    /// Addresses of the level-1 converters.
    level1: Vec<Ipv4Addr>,
    /// Group of packet address 0; the groups of the other packet addresses follow, then the group of bundles for
    /// hosts.
    base: Ipv4Addr,
    /// Port of the groups; bundles for hosts use the next port.
    port: u16,
    /// Address of the interface with the groups; unspecified if the routes say which it is.
    interface: Ipv4Addr,
}

impl BundleAddresses {
    /// Derives the addresses of a run from the plan's name and the start of the clock.
    fn on_loopback(plan: &Plan, clock: Clock) -> BundleAddresses {
        let seed = format!("{} / bundles", plan.name);
        let [a, b, c, d, e, p, q, _] = xxh3_64_with_seed(seed.as_bytes(), clock.epoch_ns()).to_be_bytes();
        // With space for seven more addresses, and away from common loopback addresses.
        let central = Ipv4Addr::new(127, 1 + a % 254, b, 8 * (c % 31) + 1);
        BundleAddresses {
            central,
            level1: (1..8).map(|count| offset(central, count)).collect(),
            // With space for 2,049 groups.
            base: Ipv4Addr::new(239, d, e & 0xF0, 0),
            // Below the system's range of ephemeral ports.
            port: 20_000 + u16::from_be_bytes([p, q]) % 12_000,
            interface: Ipv4Addr::LOCALHOST,
        }
    }

    /// Returns the addresses of converters in namespaces, whose hosts have these addresses.
    fn in_namespaces(sides: &Sides<'_>, hosts: &BTreeMap<String, IpAddr>) -> BundleAddresses {
        let address = |node: &&Node| match hosts.get(&node.name) {
            Some(IpAddr::V4(address)) => *address,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        BundleAddresses {
            central: sides.central.first().map_or(Ipv4Addr::UNSPECIFIED, address),
            level1: sides.level1.iter().map(address).collect(),
            base: bundle::WIDE_AREA_BASE,
            port: PORTS.wide_area,
            interface: Ipv4Addr::UNSPECIFIED,
        }
    }

    fn central_for_level1(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.central, PORTS.from_level1)
    }

    fn central_for_hosts(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.central, PORTS.from_hosts)
    }

    /// Returns where the central converter listens: with routes at all interfaces, so that these choose that of a group.
    fn central_listens(&self, at: SocketAddrV4) -> SocketAddrV4 {
        let ip = if self.interface.is_unspecified() { self.interface } else { *at.ip() };
        SocketAddrV4::new(ip, at.port())
    }

    /// Returns the address of the interface with the groups.
    pub(crate) fn interface(&self) -> Ipv4Addr {
        self.interface
    }

    /// Returns where the level-1 converter at this index receives from the central converter.
    fn level1(&self, index: u8) -> SocketAddrV4 {
        SocketAddrV4::new(self.level1[usize::from(index)], PORTS.to_level1)
    }

    /// Returns where all hosts receive from the central converter.
    fn hosts(&self) -> SocketAddrV4 {
        SocketAddrV4::new(bundle_group(self.base), self.port + 1)
    }

    /// Returns the group of a message address in the wide area.
    pub(crate) fn group(&self, address: u32) -> SocketAddrV4 {
        SocketAddrV4::new(offset(self.base, packet_address(address).into()), self.port)
    }
}

/// Returns the group of bundles for hosts, which follows those of messages.
fn bundle_group(base: Ipv4Addr) -> Ipv4Addr {
    offset(base, PACKET_ADDRESSES as u32)
}

/// Returns the group of bundles for hosts where hosts have network namespaces.
pub fn group_of_hosts() -> Ipv4Addr {
    bundle_group(bundle::WIDE_AREA_BASE)
}

/// Returns the address that is `count` addresses higher.
fn offset(address: Ipv4Addr, count: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits().wrapping_add(count))
}

/// A host or converter in the network of bundles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BundleNode {
    pub addresses: BundleAddresses,
    /// The address of its sockets.
    pub own: Ipv4Addr,
    pub role: NodeRole,
}

/// A role in the network of bundles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeRole {
    Central {
        central: bundle::CentralConfig,
        /// Numbers of hosts and the addresses that each subscribes to.
        subscriptions: Vec<(u16, u32)>,
    },
    Level1 {
        index: u8,
        number: u16,
        config: ConverterConfig,
    },
    /// The interface of a host.
    Host {
        /// Number of the host, from 1.
        number: u16,
        config: ConverterConfig,
        subscriptions: Vec<u32>,
    },
    /// A host in the wide area: its ends have their own sockets.
    WideArea {
        config: ConverterConfig,
        index: usize,
    },
}

impl BundleNode {
    /// Returns whether the node is a converter, which forwards messages for all hosts.
    pub(crate) fn is_converter(&self) -> bool {
        matches!(self.role, NodeRole::Central { .. } | NodeRole::Level1 { .. })
    }

    fn config(&self) -> &ConverterConfig {
        match &self.role {
            NodeRole::Central { central, .. } => &central.converter,
            NodeRole::Level1 { config, .. }
            | NodeRole::Host { config, .. }
            | NodeRole::WideArea { config, .. } => config,
        }
    }

    pub(crate) fn format(&self) -> BundleFormat {
        self.config().format
    }

    pub(crate) fn max_message(&self) -> u32 {
        self.config().max_message()
    }

    pub(crate) fn address(&self) -> IpAddr {
        match self.role {
            NodeRole::Central { .. } => self.addresses.central.into(),
            NodeRole::Level1 { index, .. } => (*self.addresses.level1(index).ip()).into(),
            NodeRole::Host { .. } | NodeRole::WideArea { .. } => self.own.into(),
        }
    }
}

/// Returns the bundle nodes of a plan by name: in network namespaces where hosts and converters have these addresses, else on
/// the loopback.
pub fn nodes_from_plan(
    plan: &Plan,
    clock: Clock,
    namespaces: Option<&BTreeMap<String, IpAddr>>,
) -> BTreeMap<String, BundleNode> {
    let (Some(sides), Some(network)) = (bundle::sides(plan), &plan.network) else { return BTreeMap::new() };
    let Some(central) = bundle::CentralConfig::from_plan(network, &sides) else { return BTreeMap::new() };
    let addresses = match namespaces {
        Some(hosts) => BundleAddresses::in_namespaces(&sides, hosts),
        None => BundleAddresses::on_loopback(plan, clock),
    };
    let (config, mut nodes) = (central.converter, BTreeMap::new());
    let mut add = |name: &str, role: NodeRole| {
        let own = match namespaces.and_then(|hosts| hosts.get(name)) {
            Some(IpAddr::V4(own)) => *own,
            _ => Ipv4Addr::LOCALHOST,
        };
        nodes.insert(name.to_owned(), BundleNode { addresses: addresses.clone(), own, role });
    };
    let mut subscriptions = Vec::new();
    for (number, name) in (1..).zip(&sides.hosts) {
        let of_host: Vec<u32> = bundle::subscriptions(plan, name).into_iter().collect();
        subscriptions.extend(of_host.iter().map(|address| (number, *address)));
        add(name, NodeRole::Host { number, config, subscriptions: of_host });
    }
    for (index, node) in (0..).zip(&sides.level1) {
        let (config, number) = (ConverterConfig::from_node(network, node), number(node) as u16);
        add(&node.name, NodeRole::Level1 { index, number, config });
    }
    sides.wide.iter().enumerate().for_each(|(index, name)| add(name, NodeRole::WideArea { config, index }));
    sides.central.iter().take(1).for_each(|node| {
        add(
            &node.name,
            NodeRole::Central { central: central.clone(), subscriptions: std::mem::take(&mut subscriptions) },
        );
    });
    nodes
}

/// Number of subscriptions that the converters must have before any host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionTotals {
    /// Addresses that the central converter must know.
    pub addresses: u64,
    /// Groups that all level-1 converters together must have joined.
    pub groups: u64,
}

impl SubscriptionTotals {
    /// Adds up the subscriptions of a plan's nodes.
    pub fn from_plan<'p>(nodes: impl Iterator<Item = &'p BundleNode>) -> SubscriptionTotals {
        let subscriptions = nodes.filter_map(|node| match &node.role {
            NodeRole::Central { subscriptions, .. } => Some(subscriptions),
            _ => None,
        });
        let subscriptions: Vec<(u16, u32)> = subscriptions.flatten().copied().collect();
        let groups: BTreeSet<u16> =
            subscriptions.iter().map(|(_, address)| packet_address(*address)).collect();
        SubscriptionTotals { addresses: subscriptions.len() as u64, groups: groups.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_experiment::{Source, parse};

    fn plan() -> Plan {
        let text = r#"experiment "t" {
            network {
              host h1, h2, router; converter c1 (role = level1, number = 7); converter c2 (role = central);
              switch wan, lan; link router - wan (rate = 1 Mb/s); link c1 - wan (rate = 1 Mb/s); link c1 - lan (rate = 1 Mb/s);
              link c2 - lan (rate = 1 Mb/s); link h1 - lan (rate = 1 Mb/s); link h2 - lan (rate = 1 Mb/s);
            }
            parallel {
              connection a { xmt = router; rcv = h1, h2; protocol = bundle (address = 0); test = cbr (messagesize = 100, period = 1 s); }
              connection b { xmt = h1; rcv = h2; protocol = bundle (address = 31); test = cbr (messagesize = 100, period = 1 s); }
              connection c { xmt = h1; rcv = h2; protocol = bundle (address = 32); test = cbr (messagesize = 100, period = 1 s); }
            }
        }"#;
        let parsed = parse(&Source { name: "test.ns", text, folder: None });
        parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
    }

    #[test]
    fn every_host_and_converter_has_a_node() {
        let nodes = nodes_from_plan(&plan(), Clock::at(1), None);
        assert!(
            matches!(&nodes["h2"].role, NodeRole::Host { number: 2, subscriptions, .. } if *subscriptions == [0, 31, 32])
        );
        assert!(matches!(&nodes["c1"].role, NodeRole::Level1 { index: 0, number: 7, .. }));
        assert!(
            matches!(&nodes["router"].role, NodeRole::WideArea { index: 0, .. })
                && !nodes["router"].is_converter()
        );
        assert!(
            matches!(&nodes["c2"].role, NodeRole::Central { subscriptions, .. } if subscriptions.len() == 4)
        );
        assert_eq!(
            SubscriptionTotals::from_plan(nodes.values()),
            SubscriptionTotals { addresses: 4, groups: 2 }
        );
    }

    /// For any hash, addresses, groups and ports stay in their ranges, and two runs differ.
    #[test]
    fn addresses_stay_in_their_ranges() {
        let plan = plan();
        for epoch in 0..2_000 {
            let addresses = BundleAddresses::on_loopback(&plan, Clock::at(epoch));
            let last = *addresses.level1(5).ip();
            assert_eq!(last.octets()[..3], addresses.central.octets()[..3], "{addresses:?}");
            assert!(last.is_loopback() && addresses.central.octets()[1] > 0, "{addresses:?}");
            assert!(
                addresses.hosts().ip().is_multicast() && addresses.hosts().port() < 32_768,
                "{addresses:?}"
            );
            assert_eq!(addresses.hosts().ip().octets()[..2], addresses.base.octets()[..2], "{addresses:?}");
            assert_ne!(addresses.hosts().ip(), addresses.group(65_535).ip());
        }
        assert_ne!(
            BundleAddresses::on_loopback(&plan, Clock::at(1)),
            BundleAddresses::on_loopback(&plan, Clock::at(2))
        );
    }
}

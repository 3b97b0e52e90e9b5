//! The network of a plan on this machine: a namespace with its own kernel stack for each host, and the links between them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use thiserror::Error;
use trunkline_endpoint::Port;
use trunkline_experiment::plan::{self, Plan};
use trunkline_io::tun::{GroupRoutes, add_group_route, add_host_route};
use trunkline_io::{Clock, Tun};
use trunkline_live::STATION_INTERFACE;
use trunkline_run::llc;
use trunkline_sim::capture::CaptureError;
use trunkline_sim::network::topology::{Hop, Topology};
use trunkline_sim::network::{self, Network};
use trunkline_sim::station_port;
use trunkline_units::Seed;

use crate::bundles;
use crate::capture::{CaptureOptions, CaptureWriter};
use crate::emulator::{CarriedBytes, Emulator, Interface, Report, Station};
use crate::group_routes::{GroupRoute, group_routes};
use crate::ipv6;
use crate::namespace::{self, Namespace, NamespaceError};
use crate::packet::Packet;
use crate::processes::Processes;

/// Names of the interfaces of a host begin with this; a number follows, from 0 in the order of its links.
const INTERFACE: &str = "eth";
/// Longest PDU with a length field (IEEE 802.3 clause 3.2.6), and octets of a tag.
const MAX_LLC_MTU: u64 = 1500;
const TAG: u32 = 4;
/// Packets of a kernel that wait until the emulator reads them.
const QUEUE: u32 = 10_000;
/// The network of all hosts.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const PREFIX: u8 = 16;
/// The address of all of them.
const BROADCAST: Ipv4Addr = Ipv4Addr::from_bits(NETWORK.to_bits() | (u32::MAX >> PREFIX));
/// Number of addresses in it.
const MAX_HOSTS: usize = (1 << (32 - PREFIX)) - 2;
/// Settings of each namespace.
const SETTINGS: [(&str, &str); 4] = [
    // A connection must not start with what an earlier one has learnt.
    ("net/ipv4/tcp_no_metrics_save", "1"),
    // A namespace starts with these as the machine has them: a host that is no router would forward what it hears on a hub.
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Why the network of a plan is not built.
#[derive(Debug, Error)]
pub enum LabError {
    /// The plan has no network.
    #[error("the experiment has no network")]
    NoNetwork,
    /// No link reaches a host.
    #[error("no link reaches the host {0}")]
    Unlinked(String),
    /// There are more hosts than addresses.
    #[error("{0} hosts are more than the lab has addresses for")]
    TooManyHosts(usize),
    /// A namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface of a host.
    #[error("host {host}: cannot create its interface: {error}")]
    Interface {
        /// The host.
        host: String,
        /// The system error.
        error: io::Error,
    },
    /// The routes of a host.
    #[error("host {host}: cannot set its routes: {error}")]
    Routes {
        /// The host.
        host: String,
        /// The system error.
        error: io::Error,
    },
    /// A capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The namespace of processes.
    #[error("cannot create a namespace for processes: {0}")]
    Processes(io::Error),
    /// The emulator.
    #[error("the emulator: {0}")]
    Emulator(io::Error),
}

/// A host with its own kernel stack.
#[derive(Debug)]
pub struct Host {
    /// Its name in the plan.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its namespace.
    pub namespace: Namespace,
    /// The multicast routes of its kernel, if it is a router.
    _group_routes: Option<GroupRoutes>,
}

/// A running network. Dropping it removes everything.
#[derive(Debug)]
pub struct Lab {
    // Before the namespaces, so that no packet comes from one that has ended.
    emulator: Emulator,
    captures: Option<CaptureWriter>,
    processes: Processes,
    hosts: Vec<Host>,
}

impl Lab {
    /// Builds the network of a plan and starts it. Random losses are those of a simulation with the same seed, packet by
    /// packet.
    ///
    /// # Errors
    /// If the plan has something that a lab does not have, or the system refuses.
    pub fn start(plan: &Plan, seed: Seed) -> Result<Lab, LabError> {
        Lab::start_captured(plan, seed, &CaptureOptions::default())
    }

    /// Builds the network of a plan as [`Lab::start`] does, and writes captures.
    ///
    /// # Errors
    /// Those of [`Lab::start`], or if the file of a capture cannot be created.
    pub fn start_captured(plan: &Plan, seed: Seed, options: &CaptureOptions) -> Result<Lab, LabError> {
        let described = plan.network.as_ref().ok_or(LabError::NoNetwork)?;
        let topology = Topology::new(described);
        let mut network: Network<Packet> = Network::build(plan, &topology, seed);
        bundles::join_groups(plan, &topology, &mut network);
        let group_ports = bundles::group_ports(plan, &topology);
        if network.hosts.len() > MAX_HOSTS {
            return Err(LabError::TooManyHosts(network.hosts.len()));
        }
        let addresses: Vec<Ipv4Addr> =
            (1..).zip(&network.hosts).map(|(n, _)| Ipv4Addr::from_bits(NETWORK.to_bits() + n)).collect();
        let (mut hosts, mut interfaces) = (Vec::new(), Vec::new());
        let stations = llc::stations(plan);
        for (number, host) in (0u32..).zip(&network.hosts) {
            let (name, node, address) = (host.name.clone(), host.plan_node, addresses[number as usize]);
            let ports = &topology.ports[node];
            if ports.is_empty() {
                return Err(LabError::Unlinked(name));
            }
            let mtus: Vec<u16> = ports.iter().map(|hop| mtu(described, hop)).collect();
            let at = station_port(plan, &topology, &name);
            let station = stations.iter().zip(1u8..).find(|(station, _)| **station == name);
            let station = station.and_then(|(_, station)| Some((station, at?)));
            let station_mtu = |port: u16| {
                described.links[ports[usize::from(port)].link].mtu.as_bytes().min(MAX_LLC_MTU) as u16
            };
            let stack = Stack {
                name: &name,
                address,
                is_router: topology.is_router(node),
                routes: if ports.len() > 1 {
                    routes(&network, &topology, node, &addresses)
                } else {
                    Vec::new()
                },
                group_port: group_ports.get(&node).map_or(0, |port| port.0),
                group_routes: forwarded_groups(plan, &topology, node, &addresses, &network),
                station_mtu: station.as_ref().map(|(_, at)| station_mtu(at.port.0)),
                mtus,
            };
            let (namespace, opened) = Namespace::with(|| stack.set_up())?;
            let Opened { interfaces: tuns, station: tun, group_routes } = opened?;
            interfaces.extend((0..).zip(tuns).zip(&stack.mtus).map(|((port, tun), mtu)| Interface {
                tun,
                at: (number, Port(port)),
                mtu: (*mtu).into(),
                station: None,
            }));
            if let (Some(tun), Some((station, at)), Some(mtu)) = (tun, station, stack.station_mtu) {
                let station = Station { number: station, on_ethernet: at.ethernet };
                let mtu = u32::from(mtu) + TAG;
                interfaces.push(Interface { tun, at: (number, at.port), mtu, station: Some(station) });
            }
            hosts.push(Host { name, address, namespace, _group_routes: group_routes });
        }
        let processes = Processes::start().map_err(LabError::Processes)?;
        let clock = Clock::start();
        let has_captures = !options.names.is_empty();
        let captures = has_captures
            .then(|| CaptureWriter::start(options, (&network, &topology), (&addresses, BROADCAST), clock))
            .transpose()?;
        let (captures, copies) = captures.unzip();
        let emulator = Emulator::start(network, interfaces, &addresses, BROADCAST, (clock, copies));
        Ok(Lab { emulator: emulator.map_err(LabError::Emulator)?, captures, processes, hosts })
    }

    /// Returns the namespace for processes of the lab: those in it end with the lab.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Returns the hosts in the order of the plan.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the host with this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Returns the bytes that each link has carried from its two ends so far, a moment ago.
    pub fn link_bytes(&self) -> Vec<(String, [u64; 2])> {
        self.emulator.carried().get()
    }

    /// Returns a reader of the bytes that each link has carried, which outlives the lab.
    pub fn carried_bytes(&self) -> CarriedBytes {
        self.emulator.carried()
    }

    /// Returns whether the emulator still runs; if not, [`Lab::finish`] returns the reason.
    pub fn is_running(&self) -> bool {
        self.emulator.is_running()
    }

    /// Stops the network and removes it. Returns what the emulator did and the media as they were at the end. All captures
    /// are written.
    ///
    /// # Errors
    /// System errors that ended the emulator before.
    pub fn finish(self) -> Result<Report, LabError> {
        let mut report = self.emulator.finish().map_err(LabError::Emulator)?;
        report.capture_error = self.captures.and_then(|captures| captures.finish().err());
        Ok(report)
    }
}

impl Host {
    /// Returns its IPv6 address. Its kernel has it on each link whose MTU is at least 1,280 bytes.
    pub fn ipv6_address(&self) -> Ipv6Addr {
        ipv6::address(self.address)
    }

    /// Returns a command that runs a program on this host; see [`Namespace::command`]. What the program itself starts may outlive
    /// the lab, if the command is not spawned by [`Lab::processes`].
    pub fn command(&self, program: &str) -> Command {
        self.namespace.command(program)
    }
}

/// Returns the longest packet that a link carries, bytes.
fn mtu(network: &plan::Network, hop: &Hop) -> u16 {
    network.links[hop.link].mtu.as_bytes().min(u64::from(u16::MAX)) as u16
}

/// What is set up in the namespace of a host.
struct Stack<'a> {
    name: &'a str,
    address: Ipv4Addr,
    is_router: bool,
    /// Those of its interfaces.
    mtus: Vec<u16>,
    /// The interface to each host, if there are several.
    routes: Vec<(u16, Ipv4Addr)>,
    /// The interface to multicast groups.
    group_port: u16,
    /// What its kernel forwards to multicast groups, and the address of the source.
    group_routes: Vec<(Ipv4Addr, GroupRoute)>,
    /// The MTU of the interface of its LLC station.
    station_mtu: Option<u16>,
}

/// What is open in the namespace of a host.
struct Opened {
    interfaces: Vec<Tun>,
    station: Option<Tun>,
    group_routes: Option<GroupRoutes>,
}

impl Stack<'_> {
    /// Sets everything up in the namespace of this thread.
    fn set_up(&self) -> Result<Opened, LabError> {
        let has_ipv6 = ipv6::is_available();
        let ipv6_settings = ipv6::SETTINGS.into_iter().filter(|_| has_ipv6);
        for (setting, value) in SETTINGS.into_iter().chain(ipv6_settings) {
            namespace::set(setting, value)?;
        }
        if self.is_router {
            namespace::set("net/ipv4/ip_forward", "1")?;
            if has_ipv6 {
                namespace::set(ipv6::FORWARDING, "1")?;
            }
        }
        let interface_error = |error| LabError::Interface { host: self.name.to_owned(), error };
        let prefix = if self.mtus.len() == 1 { PREFIX } else { 32 };
        let open = |(port, mtu): (u16, &u16)| open(&interface(port), self.address, prefix, *mtu);
        let interfaces: io::Result<Vec<Tun>> = (0..).zip(&self.mtus).map(open).collect();
        let station = self.station_mtu.map(open_station).transpose().map_err(interface_error)?;
        let interfaces = interfaces.map_err(interface_error)?;
        let group_routes = self.set_routes(has_ipv6);
        let group_routes =
            group_routes.map_err(|error| LabError::Routes { host: self.name.to_owned(), error })?;
        Ok(Opened { interfaces, station, group_routes })
    }

    fn set_routes(&self, has_ipv6: bool) -> io::Result<Option<GroupRoutes>> {
        add_group_route(&interface(self.group_port))?;
        for (port, to) in &self.routes {
            add_host_route(&interface(*port), *to)?;
            if has_ipv6 && self.mtus[usize::from(*port)] >= ipv6::MIN_MTU {
                add_host_route(&interface(*port), ipv6::address(*to))?;
            }
        }
        if self.group_routes.is_empty() {
            return Ok(None);
        }
        let interfaces: Vec<String> = (0..self.mtus.len() as u16).map(interface).collect();
        let kernel = GroupRoutes::open(&interfaces)?;
        for (source, GroupRoute { group, from, to, .. }) in &self.group_routes {
            kernel.add(*source, *group, *from, to)?;
        }
        Ok(Some(kernel))
    }
}

/// Returns the name of an interface of a host.
fn interface(port: u16) -> String {
    format!("{INTERFACE}{port}")
}

/// Returns the port through which a host with several links reaches each other host.
fn routes(
    network: &Network<Packet>,
    topology: &Topology<'_>,
    node: usize,
    addresses: &[Ipv4Addr],
) -> Vec<(u16, Ipv4Addr)> {
    let others = network.hosts.iter().zip(addresses).filter(|(host, _)| host.plan_node != node);
    let route = |(host, address): (&network::Host<Packet>, &Ipv4Addr)| {
        let (_, port) = *topology.path(node, host.plan_node)?.first()?;
        Some((port, *address))
    };
    others.filter_map(route).collect()
}

/// Opens the interface of an LLC station in the namespace of this thread.
fn open_station(mtu: u16) -> io::Result<Tun> {
    let tun = Tun::open_ethernet(STATION_INTERFACE)?;
    tun.set_queue_length(QUEUE)?;
    tun.set_up_without_address(mtu)?;
    Ok(tun)
}

/// Returns what a router forwards to multicast groups, with the addresses of the sources; nothing for any other host.
fn forwarded_groups(
    plan: &Plan,
    topology: &Topology<'_>,
    node: usize,
    addresses: &[Ipv4Addr],
    network: &Network<Packet>,
) -> Vec<(Ipv4Addr, GroupRoute)> {
    let routes = if topology.is_router(node) { group_routes(plan, topology, node) } else { Vec::new() };
    let with_source = |route: GroupRoute| {
        let source = network.hosts.iter().position(|host| host.plan_node == route.source)?;
        Some((addresses[source], route))
    };
    routes.into_iter().filter_map(with_source).collect()
}

/// Opens an interface of a host in the namespace of this thread.
fn open(name: &str, address: Ipv4Addr, prefix: u8, mtu: u16) -> io::Result<Tun> {
    let tun = Tun::open(name).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other("this user may not open /dev/net/tun; its mode must be 0666")
        }
        _ => error,
    })?;
    tun.set_queue_length(QUEUE)?;
    tun.set_up(address, prefix, mtu)?;
    if ipv6::is_available() && mtu >= ipv6::MIN_MTU {
        tun.add_ipv6(ipv6::address(address), if prefix == PREFIX { ipv6::PREFIX } else { 128 })?;
    }
    Ok(tun)
}

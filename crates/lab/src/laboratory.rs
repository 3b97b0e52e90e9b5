//! The network of a plan on this machine: a namespace with its own kernel stack for each host, and the links between them.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

use thiserror::Error;
use trunkline_endpoint::Port;
use trunkline_experiment::plan::{NodeKind, Plan};
use trunkline_io::Tun;
use trunkline_io::tun::add_host_route;
use trunkline_sim::network::topology::Topology;
use trunkline_sim::network::{self, Network};
use trunkline_units::Seed;

use crate::emulator::{Emulator, Interface, Report};
use crate::namespace::{self, Namespace, NamespaceError};
use crate::packet::Packet;
use crate::processes::Processes;

/// Names of the interfaces of a host begin with this; a number follows, from 0 in the order of its links.
const INTERFACE: &str = "eth";
/// Packets of a kernel that wait until the emulator reads them.
const QUEUE: u32 = 10_000;
/// The network of all hosts.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const PREFIX: u8 = 16;
/// The address of all of them.
const BROADCAST: Ipv4Addr = Ipv4Addr::from_bits(NETWORK.to_bits() | (u32::MAX >> PREFIX));
/// Number of addresses in it.
const MAX_HOSTS: usize = (1 << (32 - PREFIX)) - 2;
/// Settings of each namespace. Addresses are of IPv4 only, so the kernel need not look for others.
const SETTINGS: [(&str, &str); 6] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
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
    /// A node that is neither a host nor a medium.
    #[error("{0} is a bundle converter, which the lab does not have")]
    Converter(String),
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
    /// The routes of a host with several interfaces.
    #[error("host {host}: cannot set its routes: {error}")]
    Routes {
        /// The host.
        host: String,
        /// The system error.
        error: io::Error,
    },
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
}

/// A running network. Dropping it removes everything.
#[derive(Debug)]
pub struct Lab {
    // Before the namespaces, so that no packet comes from one that has ended.
    emulator: Emulator,
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
        let described = plan.network.as_ref().ok_or(LabError::NoNetwork)?;
        let topology = Topology::new(described);
        let network: Network<Packet> = Network::build(plan, &topology, seed);
        if network.hosts.len() > MAX_HOSTS {
            return Err(LabError::TooManyHosts(network.hosts.len()));
        }
        let addresses: Vec<Ipv4Addr> =
            (1..).zip(&network.hosts).map(|(n, _)| Ipv4Addr::from_bits(NETWORK.to_bits() + n)).collect();
        let (mut hosts, mut interfaces) = (Vec::new(), Vec::new());
        for (number, host) in (0u32..).zip(&network.hosts) {
            let (name, node, address) = (host.name.clone(), host.plan_node, addresses[number as usize]);
            if matches!(described.nodes[node].kind, NodeKind::Converter { .. }) {
                return Err(LabError::Converter(name));
            }
            let ports = &topology.ports[node];
            if ports.is_empty() {
                return Err(LabError::Unlinked(name));
            }
            let mtus = ports
                .iter()
                .map(|hop| described.links[hop.link].mtu.as_bytes().min(u64::from(u16::MAX)) as u16);
            let routes =
                if ports.len() > 1 { routes(&network, &topology, node, &addresses) } else { Vec::new() };
            let stack = Stack {
                name: &name,
                address,
                is_router: topology.is_router(node),
                mtus: mtus.collect(),
                routes,
            };
            let (namespace, opened) = Namespace::with(|| stack.set_up())?;
            interfaces.extend((0..).zip(opened?).zip(&stack.mtus).map(|((port, tun), mtu)| Interface {
                tun,
                at: (number, Port(port)),
                mtu: (*mtu).into(),
            }));
            hosts.push(Host { name, address, namespace });
        }
        let processes = Processes::start().map_err(LabError::Processes)?;
        let emulator =
            Emulator::start(network, interfaces, &addresses, BROADCAST).map_err(LabError::Emulator)?;
        Ok(Lab { emulator, processes, hosts })
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
        self.emulator.link_bytes()
    }

    /// Returns whether the emulator still runs; if not, [`Lab::finish`] returns the reason.
    pub fn is_running(&self) -> bool {
        self.emulator.is_running()
    }

    /// Stops the network and removes it. Returns what the emulator did and the media as they were at the end.
    ///
    /// # Errors
    /// System errors that ended the emulator before.
    pub fn finish(self) -> Result<Report, LabError> {
        self.emulator.finish().map_err(LabError::Emulator)
    }
}

impl Host {
    /// Returns a command that runs a program on this host; see [`Namespace::command`]. What the program itself starts may outlive
    /// the lab, if the command is not spawned by [`Lab::processes`].
    pub fn command(&self, program: &str) -> Command {
        self.namespace.command(program)
    }
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
}

impl Stack<'_> {
    /// Sets everything up in the namespace of this thread, and returns the interfaces.
    fn set_up(&self) -> Result<Vec<Tun>, LabError> {
        for (setting, value) in SETTINGS {
            namespace::set(setting, value)?;
        }
        if self.is_router {
            namespace::set("net/ipv4/ip_forward", "1")?;
        }
        let host = || self.name.to_owned();
        let prefix = if self.mtus.len() == 1 { PREFIX } else { 32 };
        let open = |(port, mtu): (u16, &u16)| open(&format!("{INTERFACE}{port}"), self.address, prefix, *mtu);
        let interfaces: io::Result<Vec<Tun>> = (0..).zip(&self.mtus).map(open).collect();
        let interfaces = interfaces.map_err(|error| LabError::Interface { host: host(), error })?;
        for (port, to) in &self.routes {
            add_host_route(&format!("{INTERFACE}{port}"), *to)
                .map_err(|error| LabError::Routes { host: host(), error })?;
        }
        Ok(interfaces)
    }
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
    Ok(tun)
}

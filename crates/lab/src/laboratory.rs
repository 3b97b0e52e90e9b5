//! The network of a plan on this machine: a namespace with its own kernel stack for each host, and the links between them.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

use thiserror::Error;
use trunkline_experiment::plan::{NodeKind, Plan};
use trunkline_io::Tun;
use trunkline_sim::network::Network;
use trunkline_sim::network::topology::Topology;
use trunkline_units::Seed;

use crate::emulator::{Emulator, Interface, Report};
use crate::namespace::{Namespace, NamespaceError};
use crate::packet::Packet;

/// Name of the interface of a host.
const INTERFACE: &str = "eth0";
/// Packets of a kernel that wait until the emulator reads them.
const QUEUE: u32 = 10_000;
/// The network of all hosts.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const PREFIX: u8 = 16;
/// Number of addresses in it.
const MAX_HOSTS: usize = (1 << (32 - PREFIX)) - 2;
/// Settings of each namespace. Addresses are of IPv4 only, so the kernel need not look for others.
const SETTINGS: [(&str, &str); 3] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    // A connection must not start with what an earlier one has learnt.
    ("net/ipv4/tcp_no_metrics_save", "1"),
];

/// Why the network of a plan is not built.
#[derive(Debug, Error)]
pub enum LabError {
    /// The plan has no network.
    #[error("the experiment has no network")]
    NoNetwork,
    /// A host is connected otherwise than by one link.
    #[error("host {host} has {links} links; the lab needs one for each host")]
    Links {
        /// The host.
        host: String,
        /// Number of its links.
        links: usize,
    },
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
        let (mut hosts, mut interfaces) = (Vec::new(), Vec::new());
        for (number, host) in (1u32..).zip(&network.hosts) {
            let name = host.name.clone();
            if matches!(described.nodes[host.plan_node].kind, NodeKind::Converter { .. }) {
                return Err(LabError::Converter(name));
            }
            let links = &topology.ports[host.plan_node];
            let [hop] = links.as_slice() else {
                return Err(LabError::Links { host: name, links: links.len() });
            };
            let mtu = described.links[hop.link].mtu.as_bytes().min(u64::from(u16::MAX)) as u16;
            let address = Ipv4Addr::from_bits(NETWORK.to_bits() + number);
            let namespace = Namespace::new()?;
            for (setting, value) in SETTINGS {
                namespace.set(setting, value)?;
            }
            let tun = namespace.run(|| open(address, mtu));
            let tun = tun.map_err(|error| LabError::Interface { host: name.clone(), error })?;
            interfaces.push(Interface { tun, address, mtu: mtu.into() });
            hosts.push(Host { name, address, namespace });
        }
        let emulator = Emulator::start(network, interfaces).map_err(LabError::Emulator)?;
        Ok(Lab { emulator, hosts })
    }

    /// Returns the hosts in the order of the plan.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the host with this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Stops the network and removes it.
    ///
    /// # Errors
    /// System errors that ended the emulator before.
    pub fn finish(self) -> Result<Report, LabError> {
        self.emulator.finish().map_err(LabError::Emulator)
    }
}

impl Host {
    /// Returns a command that runs a program on this host; see [`Namespace::command`].
    pub fn command(&self, program: &str) -> Command {
        self.namespace.command(program)
    }
}

/// Opens the interface of a host in the namespace of this thread.
fn open(address: Ipv4Addr, mtu: u16) -> io::Result<Tun> {
    let tun = Tun::open(INTERFACE).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other("this user may not open /dev/net/tun; its mode must be 0666")
        }
        _ => error,
    })?;
    tun.set_queue_length(QUEUE)?;
    tun.set_up(address, PREFIX, mtu)?;
    Ok(tun)
}

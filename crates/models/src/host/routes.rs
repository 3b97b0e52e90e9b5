//! The forwarding table of a router.

use std::collections::BTreeMap;

use trunkline_endpoint::{Destination, Port};

/// A router's egress ports for hosts and multicast groups.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    stations: BTreeMap<u32, Port>,
    groups: BTreeMap<u32, Box<[Port]>>,
}

impl Routes {
    /// Forwards packets to a host through `port`.
    pub fn add_station(&mut self, station: u32, port: Port) {
        self.stations.insert(station, port);
    }

    /// Forwards packets to a group through each of `ports`.
    pub fn set_group(&mut self, group: u32, ports: &[Port]) {
        self.groups.insert(group, ports.into());
    }

    /// Returns the ports through which a packet leaves that arrived at `ingress`: never that port. On a shared medium the
    /// packet is then for another station, or another router forwards it.
    pub fn egress(&self, to: Destination, ingress: Port) -> impl Iterator<Item = Port> {
        let ports: &[Port] = match to {
            Destination::Station(station) => self.stations.get(&station).map_or(&[], std::slice::from_ref),
            Destination::Group(group) => self.groups.get(&group).map_or(&[], |ports| ports),
            Destination::All => &[],
        };
        ports.iter().copied().filter(move |port| *port != ingress)
    }
}

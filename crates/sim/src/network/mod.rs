//! The simulated network: media, hosts, their connections and forwarding tables.

mod build;
pub mod queue;
pub mod records;
pub mod topology;

use std::collections::BTreeMap;

use trunkline_endpoint::Port;
use trunkline_experiment::plan::NodeKind;
use trunkline_models::atm::CellFrame;
use trunkline_models::host::{Phases, Station};
use trunkline_units::{Instant, Rate, Span};

use crate::frame::Frame;
use crate::medium::Medium;
use topology::Topology;

/// Bits of the shortest frame: an IPv4 header.
const MIN_FRAME_BITS: f64 = 160.0;

/// The media and hosts of a plan, for frames of type `F`.
#[derive(Debug)]
pub struct Network<F = Frame> {
    /// Media in the order of the text: nodes, then links.
    pub media: Vec<MediumNode<F>>,
    /// Hosts and converters in the order of the text.
    pub hosts: Vec<Host<F>>,
    /// Numbers of the multicast groups, by address.
    pub groups: BTreeMap<std::net::IpAddr, u32>,
    /// The group of bundles for all hosts of the central converter.
    pub all_hosts_group: u32,
    /// For each (forwarder, group), the number of members behind each port; ports without members are absent.
    group_members: BTreeMap<(Forwarder, u32), BTreeMap<u16, u32>>,
    /// Sum of all delays: an upper bound of the propagation delay of a frame.
    pub longest_delay: Span,
    /// Whether the cells of packets are computed in trains.
    pub trains: bool,
    /// For each switch and channel whose cells arrive by a link with credits, that link and its port at the switch.
    credit_inputs: Vec<Vec<Option<(u32, Port)>>>,
}

/// A medium with its name and connections.
#[derive(Debug)]
pub struct MediumNode<F = Frame> {
    /// Name of the node or of the link (`A-B`).
    pub name: String,
    /// The medium.
    pub medium: Medium<F>,
    /// What is connected to each of its ports.
    pub attachments: Vec<Attachment>,
    /// Rate available to frames.
    pub rate: Rate,
}

/// What is connected to a port of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Another medium, at that port.
    Medium(u32, Port),
    /// A host, at that interface.
    Host(u32, Port),
    /// Nothing.
    Unconnected,
}

/// A node with a forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarder {
    /// The switch with this number among the media.
    Switch(u32),
    /// The router with this number among the hosts.
    Router(u32),
}

/// A host or converter with its name and connections.
#[derive(Debug)]
pub struct Host<F = Frame> {
    /// Its name in the plan.
    pub name: String,
    /// What its packets cost. A host with its own kernel has no use for it.
    pub model: Station<F>,
    /// The medium and its port at each interface.
    pub medium_ports: Vec<(u32, Port)>,
    /// Rate of its disk, if limited.
    pub disk: Option<Rate>,
    /// Phases of its timers.
    pub timer_phases: Phases,
    /// Index of its node in the plan.
    pub plan_node: usize,
}

/// The path between two hosts, as a connection needs it.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Egress interface of the first host.
    pub port: Port,
    /// Path MTU, bytes of IP.
    pub mtu: u32,
    /// Longest LLC PDU that all links carry, octets.
    pub max_pdu: u32,
}

impl<F: CellFrame> Network<F> {
    /// Adds the latency of switches to the links that lead to them. Frames leave at the same times, with one event fewer
    /// per switch. Only captures could show the difference.
    pub fn fold_switch_latency(&mut self) {
        for switch in 0..self.media.len() {
            let Some(links) = self.perfect_links_into(switch) else { continue };
            let Medium::Switch(medium) = &mut self.media[switch].medium else { continue };
            let latency = medium.take_latency();
            for (link, from) in links {
                match &mut self.media[link as usize].medium {
                    Medium::Link(link) => link.add_delay(from, latency),
                    Medium::Cells(link) => link.add_delay(from, latency),
                    _ => {}
                }
            }
        }
    }

    /// Returns the links to a switch with latency and the ports at their far ends, if all links are lossless and cannot
    /// overflow the switch.
    fn perfect_links_into(&self, switch: usize) -> Option<Vec<(u32, Port)>> {
        let medium_node = &self.media[switch];
        let Medium::Switch(medium) = &medium_node.medium else { return None };
        let mut links = Vec::new();
        let mut rate = 0.0;
        for attachment in &medium_node.attachments {
            let Attachment::Medium(link, port) = attachment else { return None };
            let link_node = &self.media[*link as usize];
            let from = Port(port.0 ^ 1);
            // A link reports a loss at the time of arrival.
            let is_perfect = match &link_node.medium {
                Medium::Link(link) => link.is_perfect(from),
                Medium::Cells(link) => link.is_perfect(from),
                _ => false,
            };
            if !is_perfect {
                return None;
            }
            rate += link_node.rate.as_bps() as f64;
            links.push((*link, from));
        }
        let latency = medium.latency();
        let max_frames = rate * latency.as_s() / MIN_FRAME_BITS + medium_node.attachments.len() as f64;
        (!latency.is_zero() && max_frames < medium.max_inside() as f64).then_some(links)
    }

    /// Makes a host join or leave a multicast group. `forwarders` are the nodes that lead to it and their ports towards it;
    /// their tables change at once.
    pub fn set_membership(&mut self, host: u32, forwarders: &[(Forwarder, Port)], group: u32, joins: bool) {
        let host = &mut self.hosts[host as usize].model;
        match joins {
            true => host.join(group),
            false => host.leave(group),
        }
        for (forwarder, port) in forwarders {
            let counts = self.group_members.entry((*forwarder, group)).or_default();
            let count = counts.entry(port.0).or_default();
            *count = if joins { *count + 1 } else { count.saturating_sub(1) };
            counts.retain(|_, count| *count > 0);
            let ports: Vec<Port> = counts.keys().copied().map(Port).collect();
            match *forwarder {
                Forwarder::Switch(number) => {
                    if let Medium::Switch(switch) = &mut self.media[number as usize].medium {
                        switch.set_group(group, &ports);
                    }
                }
                Forwarder::Router(number) => {
                    if let Some(routes) = self.hosts[number as usize].model.routes_mut() {
                        routes.set_group(group, &ports);
                    }
                }
            }
        }
    }

    /// Remembers by which link with credits the cells of a channel reach a switch.
    pub fn reserve_buffer(&mut self, m: u32, port: Port, frame: &F) {
        let MediumNode { medium: Medium::Credits(link), attachments, .. } = &self.media[m as usize] else {
            return;
        };
        if let Attachment::Medium(switch, _) = attachments[usize::from(port.0)]
            && link.has_credits()
            && frame.as_cell().is_some()
        {
            let (switch, channel) = (switch as usize, usize::from(frame.channel()));
            if switch >= self.credit_inputs.len() {
                self.credit_inputs.resize_with(switch + 1, Vec::new);
            }
            let channels = &mut self.credit_inputs[switch];
            if channel >= channels.len() {
                channels.resize(channel + 1, None);
            }
            channels[channel] = Some((m, port));
        }
    }

    fn credit_input(&self, switch: u32, channel: u16) -> Option<(u32, Port)> {
        *self.credit_inputs.get(switch as usize)?.get(usize::from(channel))?
    }

    /// Whether a cell that enters a link at `port` has a buffer in the switch there, by the credits of another link.
    pub fn has_buffer(&self, m: u32, port: Port, frame: &F) -> bool {
        match self.media[m as usize].attachments[usize::from(port.0)] {
            Attachment::Medium(switch, _) if frame.as_cell().is_some() => {
                self.credit_input(switch, frame.channel()).is_some()
            }
            _ => false,
        }
    }

    /// Frees the buffer of a cell that has left a switch. Returns the link by which it arrived and the next deadline of
    /// that link.
    pub fn release_buffer(&mut self, now: Instant, switch: u32, channel: u16) -> Option<(u32, Instant)> {
        let (m, port) = self.credit_input(switch, channel)?;
        let Medium::Credits(link) = &mut self.media[m as usize].medium else { return None };
        link.release(now, port, channel);
        Some((m, link.deadline()))
    }

    /// Returns all media except switches.
    pub fn transmission_media(&self) -> impl Iterator<Item = &MediumNode<F>> {
        self.media.iter().filter(|medium_node| !matches!(medium_node.medium, Medium::Switch(_)))
    }

    /// Returns the name of the neighbor at a port of a medium.
    pub fn neighbor_name(&self, medium_node: &MediumNode<F>, port: Port) -> &str {
        match medium_node.attachments.get(usize::from(port.0)) {
            Some(Attachment::Medium(medium, _)) => &self.media[*medium as usize].name,
            Some(Attachment::Host(host, _)) => &self.hosts[*host as usize].name,
            Some(Attachment::Unconnected) | None => "",
        }
    }

    /// Returns the node of a plan as a forwarder, with its forwarding table; `None` for a host or shared medium.
    pub fn forwarder(&self, topology: &Topology<'_>, node: usize) -> Option<Forwarder> {
        let name = &topology.network.nodes[node].name;
        match topology.network.nodes[node].kind {
            NodeKind::Switch { .. } => {
                let number = self.media.iter().position(|medium_node| medium_node.name == *name)?;
                Some(Forwarder::Switch(number as u32))
            }
            _ if topology.is_router(node) => self.host_number(name).map(Forwarder::Router),
            _ => None,
        }
    }

    /// Returns the forwarders in the segment behind a port of a node, and their ports towards the node.
    pub fn forwarders_behind(
        &self,
        topology: &Topology<'_>,
        (node, port): (usize, Port),
    ) -> Vec<(Forwarder, Port)> {
        let towards = |at: usize| {
            let port = topology.path(at, node)?.first()?.1;
            Some((self.forwarder(topology, at)?, Port(port)))
        };
        topology.nodes_behind(node, usize::from(port.0)).into_iter().filter_map(towards).collect()
    }

    /// Returns the number of the host with this name.
    pub fn host_number(&self, name: &str) -> Option<u32> {
        self.hosts.iter().position(|h| h.name == name).map(|s| s as u32)
    }

    /// Returns the media from one host to another, each with the port at which it is entered; without switches.
    pub fn media_between(&self, topology: &Topology<'_>, from: u32, to: u32) -> Vec<(u32, Port)> {
        let node = |s: u32| self.hosts[s as usize].plan_node;
        let path = topology.path(node(from), node(to)).unwrap_or_default();
        let links = path.iter().map(|(node, port)| topology.ports[*node][usize::from(*port)]);
        let media = links.filter_map(|hop| {
            let name = &topology.network.links[hop.link].name;
            let medium = self.media.iter().position(|medium| &medium.name == name)?;
            Some((medium as u32, Port(hop.end)))
        });
        media.collect()
    }

    /// Returns the path from one host to another.
    pub fn path(&self, topology: &Topology<'_>, from: u32, to: u32) -> Option<Path> {
        let node = |s: u32| self.hosts[s as usize].plan_node;
        let path = topology.path(node(from), node(to))?;
        let first = path.first()?;
        Some(Path { port: Port(first.1), mtu: topology.mtu(&path)?, max_pdu: topology.max_pdu(&path)? })
    }
}

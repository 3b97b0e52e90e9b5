//! Plan → media, stations, wires and forwarding tables.
//!
//! | module | what |
//! | --- | --- |
//! | [`topology`] | the plan's network as a graph |
//! | `build` | what stands at each node and link |

mod build;
pub mod topology;

use std::collections::BTreeMap;

use trunkline_endpoint::Port;
use trunkline_experiment::plan::Plan;
use trunkline_models::host::{Phases, Station};
use trunkline_units::{Rate, Seed, Span};

use crate::frame::Frame;
use crate::medium::Medium;
use topology::Topology;

/// Bits of the shortest frame: an IPv4 header.
const SHORTEST_BITS: f64 = 160.0;

/// Everything that stands still while a simulation runs.
#[derive(Debug)]
pub struct Network {
    /// Media, in the order of the text: nodes, then links.
    pub media: Vec<Seat>,
    /// Stations, in the order of the text.
    pub stations: Vec<Host>,
    /// Numbers of the multicast groups.
    pub groups: BTreeMap<std::net::IpAddr, u32>,
    /// The group of the bundles for all hosts of the central converter.
    pub everybody: u32,
    /// Of each switch and group, how many members lie beyond each port, where there are any.
    beyond: BTreeMap<(u32, u32), BTreeMap<u16, u32>>,
    /// Sum of all delays: nothing is under way for longer without waiting somewhere.
    pub longest_delay: Span,
    /// Whether the cells of packets are computed in trains.
    pub trains: bool,
}

/// A medium in its place.
#[derive(Debug)]
pub struct Seat {
    /// Its name: a node's, or a link's (`A-B`).
    pub name: String,
    /// The medium.
    pub medium: Medium,
    /// What stands at each of its ports.
    pub wires: Vec<Wire>,
    /// Bits per second that frames get.
    pub rate: Rate,
}

/// What stands at a port of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Another medium, at that port.
    Medium(u32, Port),
    /// A station, at that interface.
    Station(u32, Port),
    /// Nobody.
    Nothing,
}

/// A station in its place.
#[derive(Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The station.
    pub station: Station<Frame>,
    /// Of each interface, the medium and its port.
    pub down: Vec<(u32, Port)>,
    /// Its disk's rate, if that is limited.
    pub disk: Option<Rate>,
    /// When its timers tick.
    pub phases: Phases,
    /// Its processors.
    pub cpus: u32,
    /// Its node in the topology.
    pub node: usize,
}

/// The way between two hosts, as a connection needs it.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The interface by which the first host sends.
    pub port: Port,
    /// Largest packet that every link on it carries.
    pub mtu: u32,
    /// Longest PDU of LLC that they do.
    pub pdu: u32,
}

impl Network {
    /// Builds the network of a plan. What the language has let through can be built.
    pub fn build(plan: &Plan, topology: &Topology<'_>, seed: Seed) -> Network {
        build::network(plan, topology, seed)
    }

    /// Moves the latency of switches into the lines that lead to them: everything leaves them when it did, and a frame
    /// costs an event less at each. Only captures would see the difference.
    pub fn fuse(&mut self) {
        for switch in 0..self.media.len() {
            let Some(lines) = self.lines_into(switch) else { continue };
            let Medium::Switch(medium) = &mut self.media[switch].medium else { continue };
            let latency = medium.take_latency();
            for (line, from) in lines {
                match &mut self.media[line as usize].medium {
                    Medium::Link(link) => link.delay_more(from, latency),
                    Medium::Cells(link) => link.delay_more(from, latency),
                    _ => {}
                }
            }
        }
    }

    /// The links to a switch that takes time, and the ports at their far ends, if there are only perfect links and they
    /// cannot bring more than it holds.
    fn lines_into(&self, switch: usize) -> Option<Vec<(u32, Port)>> {
        let seat = &self.media[switch];
        let Medium::Switch(medium) = &seat.medium else { return None };
        let mut lines = Vec::new();
        let mut rate = 0.0;
        for wire in &seat.wires {
            let Wire::Medium(line, port) = wire else { return None };
            let line_seat = &self.media[*line as usize];
            let from = Port(port.0 ^ 1);
            // What a line loses is told when it would have arrived.
            let is_perfect = match &line_seat.medium {
                Medium::Link(link) => link.is_perfect(from),
                Medium::Cells(link) => link.is_perfect(from),
                _ => false,
            };
            if !is_perfect {
                return None;
            }
            rate += line_seat.rate.as_bps() as f64;
            lines.push((*line, from));
        }
        let latency = medium.latency();
        let most_inside = rate * latency.as_s() / SHORTEST_BITS + seat.wires.len() as f64;
        (!latency.is_zero() && most_inside < medium.inside() as f64).then_some(lines)
    }

    /// A station becomes a member of a group, or none any more; `switches` are those from which it is reached, and their
    /// ports towards it. They know at once.
    pub fn join(&mut self, station: u32, switches: &[(u32, Port)], group: u32, joins: bool) {
        let host = &mut self.stations[station as usize].station;
        match joins {
            true => host.join(group),
            false => host.leave(group),
        }
        for (switch, port) in switches {
            let counts = self.beyond.entry((*switch, group)).or_default();
            let count = counts.entry(port.0).or_default();
            *count = if joins { *count + 1 } else { count.saturating_sub(1) };
            counts.retain(|_, count| *count > 0);
            if let Medium::Switch(medium) = &mut self.media[*switch as usize].medium {
                medium.group(group, &counts.keys().copied().map(Port).collect::<Vec<Port>>());
            }
        }
    }

    /// The media that frames are on: all but switches.
    pub fn lines(&self) -> impl Iterator<Item = &Seat> {
        self.media.iter().filter(|seat| !matches!(seat.medium, Medium::Switch(_)))
    }

    /// The name of what stands at a port of a medium.
    pub fn beyond_port(&self, seat: &Seat, port: Port) -> &str {
        match seat.wires.get(usize::from(port.0)) {
            Some(Wire::Medium(medium, _)) => &self.media[*medium as usize].name,
            Some(Wire::Station(station, _)) => &self.stations[*station as usize].name,
            Some(Wire::Nothing) | None => "",
        }
    }

    /// The station of this name.
    pub fn station(&self, name: &str) -> Option<u32> {
        self.stations.iter().position(|h| h.name == name).map(|s| s as u32)
    }

    /// The way from one station to another.
    pub fn way(&self, topology: &Topology<'_>, from: u32, to: u32) -> Option<Way> {
        let node = |s: u32| self.stations[s as usize].node;
        let way = topology.way(node(from), node(to))?;
        let first = way.first()?;
        Some(Way { port: Port(first.1), mtu: topology.mtu(&way)?, pdu: topology.longest_pdu(&way)? })
    }
}

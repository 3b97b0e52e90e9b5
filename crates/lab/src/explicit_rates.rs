//! Explicit rates in a lab: a controller for each direction of a link, on the controlling host, and which connections obey it.
//!
//! Sources and controllers are those of the backend `live`; their messages cross the network as UDP.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use trunkline_experiment::plan::{Connection, ExplicitRate, Link, Plan, Protocol};
use trunkline_io::Clock;
use trunkline_live::RateController;
use trunkline_run::Refusal;
use trunkline_sim::network::topology::Topology;

use crate::laboratory::Lab;

/// The controllers of a run. They end when this is dropped.
#[derive(Debug, Default)]
pub struct RateControllers {
    _running: Vec<RateController>,
    /// The controller of each connection that obeys one.
    pub addresses: BTreeMap<String, SocketAddr>,
}

impl RateControllers {
    /// Starts the controllers that connections of a plan need.
    ///
    /// # Errors
    /// System errors.
    pub fn start(plan: &Plan, lab: &Lab) -> io::Result<RateControllers> {
        let Some(network) = &plan.network else { return Ok(RateControllers::default()) };
        let topology = Topology::new(network);
        let (mut running, mut addresses) = (Vec::new(), BTreeMap::new());
        let mut controllers: BTreeMap<(usize, u16), SocketAddr> = BTreeMap::new();
        for c in &plan.connections {
            for (link, end) in lines(&topology, c) {
                let Some(ExplicitRate::Controller { host }) = &network.links[link].explicit_rate else {
                    continue;
                };
                let Some(host) = lab.host(host) else { continue };
                let address = match controllers.get(&(link, end)) {
                    Some(address) => *address,
                    None => {
                        let socket = host.namespace.run(|| UdpSocket::bind((host.address, 0)))?;
                        let address = socket.local_addr()?;
                        let capacity = network.links[link].payload;
                        running.push(RateController::start(capacity, socket, Clock::start())?);
                        *controllers.entry((link, end)).or_insert(address)
                    }
                };
                addresses.insert(c.name.clone(), address);
            }
        }
        Ok(RateControllers { _running: running, addresses })
    }
}

/// Returns the links with explicit rates that a connection crosses, each with the end at which it enters.
fn lines(topology: &Topology<'_>, c: &Connection) -> Vec<(usize, u16)> {
    let node = |name: &str| topology.node(name);
    let path = c.to.first().and_then(|to| topology.path(node(&c.from.host)?, node(&to.host)?));
    let hops = path.unwrap_or_default().into_iter();
    let hops = hops.map(|(node, port)| topology.ports[node][usize::from(port)]);
    let has_rate = |link: usize| topology.network.links[link].explicit_rate.is_some();
    hops.filter(|hop| has_rate(hop.link)).map(|hop| (hop.link, hop.end)).collect()
}

/// Returns the explicit rates of a plan that the lab does not apply.
pub fn refuse(plan: &Plan, topology: &Topology<'_>) -> Vec<Refusal> {
    let erica = |link: &&Link| matches!(link.explicit_rate, Some(ExplicitRate::Erica { .. }));
    let links = topology.network.links.iter().filter(erica).map(|link| Refusal {
        location: link.location,
        text: format!(
            "{}: no switch of the lab computes rates (`erica`); a controlling host does",
            link.name
        ),
    });
    let connections = plan.connections.iter().filter_map(|c| {
        let text = match (lines(topology, c).len(), &c.protocol) {
            (0, _) => return None,
            (1, Protocol::Udp { .. } | Protocol::Guaranteed { .. }) => return None,
            (1, protocol) => format!(
                "in the lab only `udp` and `guaranteed` obey explicit rates, and not `{}`",
                protocol.name()
            ),
            _ => "in the lab a connection obeys the explicit rate of one link, and this one crosses several"
                .to_owned(),
        };
        Some(Refusal { location: c.protocol_location, text: format!("{}: {text}", c.name) })
    });
    links.chain(connections).collect()
}

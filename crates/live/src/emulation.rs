//! Emulated links: relays between the sockets of senders and receivers on this machine.
//!
//! A connection over `udp` or `guaranteed` crosses the slowest link on its path through the `network`, with the delay of the
//! whole path; all connections whose slowest link it is share it, with the delay of the first. Both ends are as they are
//! without it: the sender sends to a port of the relay.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use trunkline_endpoint::{Bound, Capacity};
use trunkline_experiment::plan::{Amount, Connection, ExplicitRate, Link, Network, NodeKind, Plan, Protocol};
use trunkline_io::peer::peer_of;
use trunkline_io::{Clock, EventLoop};
use trunkline_models::media::{Framing, Impairments, LineOptions, Relay};
use trunkline_record::schema;
use trunkline_units::{Seed, Span};

use crate::{explicit_rate, locked};

/// Most connections that cross one emulated link: each has two sockets.
const MAX_FLOWS: usize = 32;
/// How long a relay waits before it looks for new connections.
const CHECK_INTERVAL: Span = Span::from_ms(10);

/// Why a connection cannot cross an emulated link.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// A socket or the event loop of the relay failed.
    #[error("emulating link {0}: {1}")]
    Io(String, io::Error),
    /// The relay has as many connections as it can have.
    #[error("an emulated link carries at most {MAX_FLOWS} connections: link {0}")]
    Full(String),
}

/// The emulated links of a run.
pub(crate) struct Emulation<'p> {
    plan: &'p Plan,
    clock: Clock,
    seed: Seed,
    relays: Mutex<BTreeMap<&'p str, RunningRelay>>,
}

struct RunningRelay {
    requests: Sender<FlowRequest>,
    /// The connections of its flows. Repetitions of a connection, one after the other, have the same flow.
    flows: Vec<String>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Relay>,
    /// The address of its controller and its thread, with explicit rates.
    controller: Option<(SocketAddr, JoinHandle<()>)>,
}

/// The receiver of a new flow, or the next one of a flow; the answer is the address for its sender.
struct FlowRequest {
    flow: usize,
    receiver: SocketAddr,
    reply: Sender<io::Result<SocketAddr>>,
}

impl<'p> Emulation<'p> {
    pub fn new(plan: &'p Plan, clock: Clock, seed: Seed) -> Self {
        Emulation { plan, clock, seed, relays: Mutex::default() }
    }

    /// Returns the address to which the sender of a connection sends, for this address of its receiver: of a relay, if the
    /// connection crosses an emulated link. If that has explicit rates, also returns the address of its controller.
    pub fn address_for(
        &self,
        connection: &Connection,
        receiver: SocketAddr,
    ) -> Result<(SocketAddr, Option<SocketAddr>), EmulationError> {
        let Some((network, link, delay)) = slowest_link(self.plan, connection) else {
            return Ok((receiver, None));
        };
        let failed = |cause| EmulationError::Io(link.name.clone(), cause);
        let mut relays = locked(&self.relays);
        if !relays.contains_key(link.name.as_str()) {
            let relay = start(network, link, delay, self.clock, self.seed).map_err(failed)?;
            relays.insert(&link.name, relay);
        }
        let relay = relays.get_mut(link.name.as_str()).expect("it was inserted above");
        let known = relay.flows.iter().position(|name| *name == connection.name);
        let flow = known.unwrap_or(relay.flows.len());
        if flow == MAX_FLOWS {
            return Err(EmulationError::Full(link.name.clone()));
        }
        let (reply, answer) = mpsc::channel();
        let gone = || io::Error::other("the relay has ended");
        relay.requests.send(FlowRequest { flow, receiver, reply }).map_err(|_| failed(gone()))?;
        let address = answer.recv().map_err(|_| failed(gone()))?.map_err(failed)?;
        if known.is_none() {
            relay.flows.push(connection.name.clone());
        }
        Ok((address, relay.controller.as_ref().map(|(address, _)| *address)))
    }

    /// Ends all relays; returns their entries in the record.
    pub fn finish(self, duration: Span) -> Vec<schema::Link> {
        let relays = self.relays.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        relays.values().for_each(|relay| relay.stop.store(true, Ordering::Relaxed));
        let ended = relays.into_iter().filter_map(|(name, relay)| {
            relay.controller.map(|(_, thread)| thread.join());
            Some((name, relay.thread.join().ok()?))
        });
        ended.map(|(name, relay)| link_record(name, &relay, duration)).collect()
    }
}

/// Returns the slowest link between the hosts of a connection, and the delay of all links of the path; `None` if it does not
/// cross an emulated link.
fn slowest_link<'p>(plan: &'p Plan, connection: &Connection) -> Option<(&'p Network, &'p Link, Span)> {
    let network = plan.network.as_ref()?;
    if !matches!(connection.protocol, Protocol::Udp { .. } | Protocol::Guaranteed { .. }) {
        return None;
    }
    let path = path(network, &connection.from.host, &connection.to.first()?.host)?;
    let delay = path.iter().fold(Span::ZERO, |sum, link| sum + link.delay);
    Some((network, path.into_iter().min_by_key(|link| link.payload)?, delay))
}

/// Returns the links between two nodes; only one way leads through nodes that forward.
fn path<'p>(network: &'p Network, from: &str, to: &str) -> Option<Vec<&'p Link>> {
    let forwards = |name: &str| network.nodes.iter().any(|node| node.name == name && node.kind.forwards());
    let (mut found, mut stack) = (BTreeSet::from([from]), vec![(from, Vec::new())]);
    while let Some((node, links)) = stack.pop() {
        if node == to {
            return Some(links);
        }
        if node != from && !forwards(node) {
            continue;
        }
        for link in &network.links {
            let next = match node {
                node if link.a == node => &link.b,
                node if link.b == node => &link.a,
                _ => continue,
            };
            if found.insert(next) {
                stack.push((next, links.iter().copied().chain([link]).collect()));
            }
        }
    }
    None
}

/// Starts the relay of a link.
fn start(network: &Network, link: &Link, delay: Span, clock: Clock, seed: Seed) -> io::Result<RunningRelay> {
    let line = |sending: &str| LineOptions {
        rate: link.payload,
        framing: Framing::ETHERNET,
        delay,
        bound: bound(network, sending),
        pacing: None,
        impairments: Impairments {
            loss: link.loss,
            corrupt: link.corrupt,
            duplicate: link.duplicate,
            reorder: link.reorder,
            ..Impairments::default()
        },
        queue: None,
    };
    let streams = [&link.a, &link.b].map(|end| seed.stream(&format!("{} / from {end}", link.name)));
    let relay = Relay::new([line(&link.a), line(&link.b)], streams);
    let event_loop = EventLoop::new(relay, clock)?;
    let (requests, receiver) = mpsc::channel();
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let thread = std::thread::Builder::new()
        .name("emulated link".into())
        .spawn(move || run(event_loop, &receiver, &stopped))?;
    let controller = match link.explicit_rate {
        Some(ExplicitRate::Controller { .. }) => Some(start_controller(link, clock, stop.clone())?),
        Some(ExplicitRate::Erica { .. }) | None => None,
    };
    Ok(RunningRelay { requests, flows: Vec::new(), stop, thread, controller })
}

/// Starts the controller of a link; returns its address.
fn start_controller(
    link: &Link,
    clock: Clock,
    stop: Arc<AtomicBool>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let socket = explicit_rate::controller_socket()?;
    let (address, capacity) = (socket.local_addr()?, link.payload);
    let thread = std::thread::Builder::new()
        .name("rate controller".into())
        .spawn(move || explicit_rate::control(capacity, &socket, clock, &stop))?;
    Ok((address, thread))
}

/// Returns the bound of the queue of a node; a host has none.
fn bound(network: &Network, node: &str) -> Bound {
    let kind = network.nodes.iter().find(|other| other.name == node).map(|node| &node.kind);
    let capacity = match kind {
        Some(NodeKind::Switch { buffer: Amount::Packets(packets), .. }) => Capacity::Frames(*packets),
        Some(NodeKind::Switch { buffer: Amount::Bytes(bytes), .. }) => Capacity::Bytes(*bytes),
        Some(NodeKind::Switch { buffer: Amount::Cells(cells), .. }) => {
            Capacity::Bytes(cells.saturating_mul(53))
        }
        _ => return Bound::frames(HOST_QUEUE),
    };
    Bound { capacity, per_channel: false }
}

/// Packets in the queue of a host that sends into an emulated link: its socket does not wait.
const HOST_QUEUE: u64 = 1_000;

/// Relays datagrams until a stop is requested.
fn run(mut event_loop: EventLoop<Relay>, requests: &Receiver<FlowRequest>, stop: &AtomicBool) -> Relay {
    trunkline_io::pace::minimize_timer_slack();
    let mut addresses = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while let Ok(FlowRequest { flow, receiver, reply }) = requests.try_recv() {
            let address = match addresses.get(flow) {
                Some(address) => {
                    event_loop.endpoint.replace_flow(flow, peer_of(receiver));
                    Ok(*address)
                }
                None => add_flow(&mut event_loop, receiver).inspect(|address| addresses.push(*address)),
            };
            let _ = reply.send(address);
        }
        let until = event_loop.clock.now() + CHECK_INTERVAL;
        if event_loop.turn(Some(until), |event| match event {}).is_err() {
            break;
        }
    }
    event_loop.endpoint
}

fn add_flow(event_loop: &mut EventLoop<Relay>, receiver: SocketAddr) -> io::Result<SocketAddr> {
    let any = match receiver.ip() {
        IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        IpAddr::V6(_) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), 0),
    };
    let [facing_sender, facing_receiver] = [UdpSocket::bind(any)?, UdpSocket::bind(any)?];
    let address = facing_sender.local_addr()?;
    event_loop.ports.add(facing_sender)?;
    event_loop.ports.add(facing_receiver)?;
    event_loop.endpoint.add_flow(peer_of(receiver));
    Ok(address)
}

fn link_record(name: &str, relay: &Relay, duration: Span) -> schema::Link {
    let [there, back] = [0, 1].map(|direction| relay.counters(direction));
    let busy = there.busy.as_s().max(back.busy.as_s());
    let (queue, line) = (there.queue_drops + back.queue_drops, there.other_losses + back.other_losses);
    schema::Link {
        name: name.to_owned(),
        utilization: if duration.is_zero() { 0.0 } else { (busy / duration.as_s()).min(1.0) },
        dropped: queue + line,
        dropped_queue: Some(queue),
        lost_line: Some(line),
        damaged: Some(there.damaged + back.damaged),
        queue_max: there.queue_max.max(back.queue_max),
        ..schema::Link::default()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};

    use super::*;

    #[test]
    fn repetitions_of_a_connection_have_one_flow() {
        let text = "experiment { network { host a, b; link a - b (rate = 10 Mb/s); }
            connection x { xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; } }";
        let plan = parse(&Source { name: "t", text, folder: None }).plan.expect("the text is valid");
        let emulation = Emulation::new(&plan, Clock::start(), Seed(1));
        let receivers = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for repetition in 0..=MAX_FLOWS {
            let receiver = &receivers[repetition % 2];
            let address = receiver.local_addr().and_then(|receiver| {
                emulation.address_for(&plan.connections[0], receiver).map_err(io::Error::other)
            });
            let number = repetition as u8;
            sender.send_to(&[number], address.expect("the relay has room").0).expect("the loopback");
            let mut received = [0];
            receiver.recv(&mut received).expect("the loopback");
            assert_eq!(received, [number]);
        }
        assert_eq!(emulation.finish(Span::from_s(1)).len(), 1);
    }

    #[test]
    fn a_path_leads_through_no_converter() {
        let text = "experiment { network { host a, b; switch s, t;
              converter c (role = central); converter d (role = level1, number = 1);
              link a - s (rate = 100 Mb/s, delay = 1 ms); link s - b (rate = 10 Mb/s, delay = 2 ms);
              link c - s (rate = 1 Mb/s); link c - t (rate = 1 Mb/s); link d - s (rate = 1 Mb/s);
              link d - t (rate = 1 Mb/s); }
            connection x { xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; } }";
        let parsed = parse(&Source { name: "t", text, folder: None });
        let plan = parsed.plan.expect("the text is valid");
        let (_, link, delay) = slowest_link(&plan, &plan.connections[0]).expect("they are joined");
        assert_eq!((link.name.as_str(), delay), ("s-b", Span::from_ms(3)));
    }
}

//! A bundle worker: one state machine at its host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use trunkline_bundle::Host;
use trunkline_bundle::central::Central;
use trunkline_bundle::host::{self, CommandError};
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::single_message::{self, WideAreaSender};
use trunkline_bundle::wire::classic::ClassicMessage;
use trunkline_bundle::wire::format2::packet_address;
use trunkline_endpoint::{Destination, Endpoint as _, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_run::bundle::{self, Counts, MessageOptions, PORTS};
use trunkline_run::message::{HEADER, Header};
use trunkline_units::Instant;

use super::BundleOutput;
use crate::flow::fragment::{Fragmenter, Reassembler};
use crate::flow::{IP_HEADER, UDP_IP_HEADERS};
use crate::frame::{BundleDatagram, Content, Packet, PacketPool};
use crate::network::Forwarder;

/// Maximum number of queued packets of a host in the wide area; further messages are refused.
pub const MAX_QUEUED_PACKETS: usize = level1::MAX_WAITING_MESSAGES;

/// An interface with its path to the next hop of bundles.
#[derive(Clone, Copy, Debug)]
pub struct EgressPath {
    pub port: Port,
    /// Fragments datagrams to the MTU of the path.
    fragmenter: Fragmenter,
}

impl EgressPath {
    pub fn new(port: u16, mtu: u32) -> Self {
        EgressPath { port: Port(port), fragmenter: Fragmenter::new(mtu) }
    }
}

/// The role of a host.
#[derive(Debug)]
pub enum WorkerRole {
    /// A converter of level 1.
    Level1 {
        machine: Box<Level1>,
        /// The multicast group of each packet address.
        groups: BTreeMap<u16, u32>,
        /// Packet addresses whose groups it has joined.
        joined: BTreeSet<u16>,
        /// The central converter, destination of its bundles.
        central: (Destination, EgressPath),
        /// The path to the wide area.
        wide_area: EgressPath,
        /// The switches and routers that lead to it, and their ports.
        forwarders: Vec<(Forwarder, Port)>,
    },
    /// The central converter.
    Central {
        machine: Box<Central>,
        /// The hosts of the level 1 converters.
        level1_hosts: BTreeSet<u32>,
        /// Destination and path of each level 1 converter, by number.
        level1: BTreeMap<u16, (Destination, EgressPath)>,
        /// Group and paths of bundles for all hosts.
        hosts: (Destination, Vec<EgressPath>),
        /// The path to each host (bundle format 2).
        host_paths: BTreeMap<u32, EgressPath>,
    },
    /// The interface of a host.
    Host {
        machine: Box<Host>,
        /// The central converter.
        to: Destination,
        /// The path to it.
        egress: EgressPath,
    },
    /// A host in the wide area.
    WideAreaHost {
        /// Numbers the messages (bundle format 2).
        sender: Option<Box<WideAreaSender>>,
        /// The multicast group of each packet address.
        groups: BTreeMap<u16, u32>,
        /// The path to the wide area.
        egress: EgressPath,
    },
}

/// A state machine with its outgoing packets and incomplete datagrams.
#[derive(Debug)]
pub struct BundleWorker {
    pub node_id: u32,
    pub role: WorkerRole,
    pub host: u32,
    /// Number of the next datagram.
    next_datagram_number: u32,
    /// Packets of the current datagram. A host in the wide area queues up to [`MAX_QUEUED_PACKETS`] and those of one message.
    outgoing: VecDeque<(EgressPath, Packet)>,
    /// Reassembly state of each sender of fragments.
    reassemblers: BTreeMap<u32, Reassembler>,
    received: VecDeque<(u32, Header)>,
    /// Buffer for messages sent and received.
    scratch: Vec<u8>,
    /// Number of joins of packet addresses.
    joins: u64,
}

impl BundleWorker {
    pub fn new(host: u32, role: WorkerRole) -> BundleWorker {
        BundleWorker {
            node_id: 0,
            role,
            host,
            next_datagram_number: 0,
            outgoing: VecDeque::new(),
            reassemblers: BTreeMap::new(),
            received: VecDeque::new(),
            scratch: Vec::new(),
            joins: 0,
        }
    }

    /// Subscribes a host to an address before the run. Subscriptions beyond about 16,000 have no effect.
    pub fn subscribe(&mut self, address: u32) {
        if let WorkerRole::Host { machine, .. } = &mut self.role {
            let join = host::HostCommand::Join { first: address, last: address };
            let _ = machine.handle(Instant::ZERO, Input::Command(join));
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns the reason if the message is refused.
    pub fn send(
        &mut self,
        now: Instant,
        flow: u32,
        options: &MessageOptions,
        header: &Header,
    ) -> Result<(), CommandError> {
        let mut front = [0; HEADER];
        header.encode(flow, &mut front);
        self.scratch.clear();
        if let WorkerRole::WideAreaHost { sender: None, .. } = self.role {
            self.scratch.extend_from_slice(&(options.address as u16).to_be_bytes());
        }
        let before = self.scratch.len();
        self.scratch.extend_from_slice(&front);
        self.scratch.resize(before + header.length as usize, 0);
        match &mut self.role {
            WorkerRole::Host { machine, .. } => {
                let send = host::HostCommand::Send(options.to_outgoing(&self.scratch));
                machine.handle(now, Input::Command(send))
            }
            WorkerRole::WideAreaHost { sender, groups, egress } => {
                if self.outgoing.len() >= MAX_QUEUED_PACKETS {
                    return Err(CommandError::Full);
                }
                let (group, egress) = (groups[&packet_address(options.address)], *egress);
                let mut bytes = std::mem::take(&mut self.scratch);
                if let Some(sender) = sender {
                    let mut datagram = vec![0; sender.max_octets()];
                    let length = sender
                        .encode(&options.to_outgoing(&bytes), &mut datagram)
                        .ok_or(CommandError::TooLong)?;
                    datagram.truncate(length);
                    bytes = datagram;
                }
                self.queue_datagram(&egress, (Destination::Group(group), PORTS.wide_area), &bytes);
                self.scratch = bytes;
                Ok(())
            }
            WorkerRole::Level1 { .. } | WorkerRole::Central { .. } => Ok(()),
        }
    }

    pub fn receive(&mut self, now: Instant, packet: &Packet) {
        let Content::Bundle { datagram, fragment, fragments } = &packet.content else { return };
        let (from, bytes) = (datagram.from_host, &datagram.bytes[..]);
        let number = u64::from(datagram.number);
        if *fragments > 1 && !self.reassemblers.entry(from).or_default().accept(number, *fragment, *fragments)
        {
            return;
        }
        let is_from_wide_area = matches!(packet.to, Destination::Group(_));
        // In bundle format 2 the central converter replies to the source address.
        let (peer, segment) = (Peer::new(&from.to_be_bytes()), None);
        match &mut self.role {
            WorkerRole::Level1 { machine, .. } => {
                let port = if is_from_wide_area { Level1::WIDE_AREA } else { Level1::CENTRAL };
                let Ok(()) = machine.handle(now, Input::Frame { port, peer, bytes, segment });
            }
            WorkerRole::Central { machine, level1_hosts, .. } => {
                let port = if level1_hosts.contains(&from) { Central::LEVEL1 } else { Central::HOSTS };
                let Ok(()) = machine.handle(now, Input::Frame { port, peer, bytes, segment });
            }
            WorkerRole::Host { machine, .. } => {
                // Only commands can be refused.
                let _ = machine.handle(now, Input::Frame { port: Host::CENTRAL, peer, bytes, segment });
            }
            WorkerRole::WideAreaHost { sender, .. } => {
                let body = match sender {
                    Some(_) => single_message::read_single(bytes).map(|message| message.body),
                    None => ClassicMessage::read(bytes).map(|message| message.body),
                };
                self.received.extend(body.and_then(Header::peek));
            }
        }
    }

    pub fn handle_deadline(&mut self, now: Instant) {
        match &mut self.role {
            WorkerRole::Level1 { machine, .. } => {
                let Ok(()) = machine.handle(now, Input::Wake);
            }
            WorkerRole::Central { machine, .. } => {
                let Ok(()) = machine.handle(now, Input::Wake);
            }
            WorkerRole::Host { machine, .. } => _ = machine.handle(now, Input::Wake),
            WorkerRole::WideAreaHost { .. } => {}
        }
    }

    /// Returns the interface for the next packet.
    pub fn next_egress(&self) -> Option<Port> {
        self.outgoing.front().map(|(egress, _)| egress.port)
    }

    /// Removes and returns the next packet.
    pub fn take_packet(&mut self) -> Option<Packet> {
        self.outgoing.pop_front().map(|(_, packet)| packet)
    }

    /// Returns the switches and routers that lead to its interface to the wide area.
    pub fn forwarders(&self) -> &[(Forwarder, Port)] {
        match &self.role {
            WorkerRole::Level1 { forwarders, .. } => forwarders,
            _ => &[],
        }
    }

    /// Fragments a datagram for a UDP port into packets and queues them. The port is stored as their channel number, which
    /// only ATM uses.
    fn queue_datagram(&mut self, egress: &EgressPath, (to, port): (Destination, u16), bytes: &[u8]) {
        let datagram = Arc::new(BundleDatagram {
            from_host: self.host,
            number: self.next_datagram_number,
            bytes: bytes.into(),
        });
        self.next_datagram_number = self.next_datagram_number.wrapping_add(1);
        let udp = bytes.len() as u32 + UDP_IP_HEADERS - IP_HEADER;
        let fragments = egress.fragmenter.count(udp);
        for fragment in 0..fragments {
            let content = Content::Bundle { datagram: Arc::clone(&datagram), fragment, fragments };
            let length = egress.fragmenter.length(udp, fragment, fragments);
            self.outgoing.push_back((*egress, Packet::without_flow(content, length, port, to)));
        }
    }

    /// Polls for output. A datagram is sent when the previous one has left.
    pub fn poll(&mut self, now: Instant, pool: &mut PacketPool) -> BundleOutput {
        if let Some((flow, header)) = self.received.pop_front() {
            return BundleOutput::Received { flow, header };
        }
        let ports = if self.outgoing.is_empty() { Writable::ALL } else { Writable::NONE };
        let buffer = &mut pool.scratch;
        loop {
            let (egress, to, length) = match &mut self.role {
                WorkerRole::Level1 { machine, groups, joined, central, wide_area, .. } => {
                    match machine.poll(now, ports, buffer) {
                        Output::Transmit(Transmit { port: Level1::CENTRAL, length, .. }) => {
                            (central.1, (central.0, PORTS.from_level1), length)
                        }
                        Output::Transmit(Transmit { peer, length, .. }) => {
                            let Some(group) = groups.get(&number_from_peer(&peer)) else { continue };
                            (*wide_area, (Destination::Group(*group), PORTS.wide_area), length)
                        }
                        Output::Event(event) => {
                            let (at, joins) = match event {
                                level1::MembershipEvent::Join(at) => (at, true),
                                level1::MembershipEvent::Leave(at) => (at, false),
                            };
                            if joins {
                                joined.insert(at)
                            } else {
                                joined.remove(&at)
                            };
                            self.joins += u64::from(joins);
                            let Some(group) = groups.get(&at).copied() else { continue };
                            return BundleOutput::Membership { group, joins };
                        }
                        Output::Idle(idle) => return BundleOutput::Idle { deadline: idle.deadline },
                    }
                }
                WorkerRole::Central { machine, level1, hosts, host_paths, .. } => {
                    match machine.poll(now, ports, buffer) {
                        Output::Transmit(Transmit { port, peer, length, .. }) => {
                            // The peer is a host number in bundle format 2, otherwise a converter number.
                            let host = host_from_peer(&peer);
                            if port == Central::LEVEL1 {
                                let is_host = |(to, _): &&(Destination, EgressPath)| {
                                    host.is_some_and(|at| *to == Destination::Station(at))
                                };
                                let by_host = level1.values().find(is_host);
                                let found = by_host.or_else(|| level1.get(&number_from_peer(&peer)));
                                let Some((to, egress)) = found.copied() else { continue };
                                (egress, (to, PORTS.to_level1), length)
                            } else if let Some(at) = host {
                                let Some(egress) = host_paths.get(&at) else { continue };
                                (*egress, (Destination::Station(at), PORTS.to_hosts), length)
                            } else {
                                let (to, egresses) = hosts.clone();
                                for egress in egresses {
                                    self.queue_datagram(&egress, (to, PORTS.to_hosts), &buffer[..length]);
                                }
                                return BundleOutput::Outgoing;
                            }
                        }
                        Output::Event(never) => match never {},
                        Output::Idle(idle) => return BundleOutput::Idle { deadline: idle.deadline },
                    }
                }
                WorkerRole::Host { machine, to, egress } => match machine.poll(now, ports, buffer) {
                    Output::Transmit(transmit) => (*egress, (*to, PORTS.from_hosts), transmit.length),
                    Output::Event(host::HostEvent::Readable) => {
                        self.receive_messages(now);
                        let Some((flow, header)) = self.received.pop_front() else { continue };
                        return BundleOutput::Received { flow, header };
                    }
                    Output::Event(host::HostEvent::Level(_)) => continue,
                    Output::Idle(idle) => return BundleOutput::Idle { deadline: idle.deadline },
                },
                WorkerRole::WideAreaHost { .. } => return BundleOutput::Idle { deadline: None },
            };
            self.queue_datagram(&egress, to, &buffer[..length]);
            return BundleOutput::Outgoing;
        }
    }

    /// Reads all messages that a host has received.
    fn receive_messages(&mut self, now: Instant) {
        let WorkerRole::Host { machine, .. } = &mut self.role else { return };
        loop {
            let mut from = None;
            let receive = host::HostCommand::Receive { into: &mut self.scratch, from: &mut from };
            // `Receive` is never refused.
            let _ = machine.handle(now, Input::Command(receive));
            if from.is_none() {
                return;
            }
            self.received.extend(Header::peek(&self.scratch));
        }
    }

    /// Returns the counters by name.
    pub fn counts(&self, now: Instant) -> Counts {
        let mut counts = match &self.role {
            WorkerRole::Level1 { machine, joined, .. } => {
                bundle::level1_counts(machine, now, self.joins, joined.len() as u64)
            }
            WorkerRole::Central { machine, .. } => bundle::central_counts(machine),
            WorkerRole::Host { machine, .. } => bundle::host_counts(machine, now),
            WorkerRole::WideAreaHost { .. } => Counts::new(),
        };
        let abandoned = self.reassemblers.values().map(|reassembler| reassembler.abandoned).sum();
        counts.insert("bundle.reassembly_given_up".into(), abandoned);
        counts
    }
}

/// Returns the host number in the address of a peer (bundle format 2).
fn host_from_peer(peer: &Peer) -> Option<u32> {
    peer.as_bytes().try_into().ok().map(u32::from_be_bytes)
}

/// Returns the converter number or packet address in the address of a peer.
fn number_from_peer(peer: &Peer) -> u16 {
    match *peer.as_bytes() {
        [high, low, ..] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

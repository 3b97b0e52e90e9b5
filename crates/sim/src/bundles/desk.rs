//! One machine at its station.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use trunkline_bundle::Host;
use trunkline_bundle::central::Central;
use trunkline_bundle::host::{self, Refusal};
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::wide::alone::{self, Caster};
use trunkline_bundle::wire::classic::Message;
use trunkline_bundle::wire::wide::packet_of;
use trunkline_endpoint::{Endpoint as _, Input, Output, Peer, Port, To, Transmit, Writable};
use trunkline_run::bundle::{self, Counts, Label, PORTS};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_units::Instant;

use super::{FLOW, Saying};
use crate::flow::fragment::{Cutter, Gatherer};
use crate::flow::{IP, UDP_IP};
use crate::frame::{Content, Datagram, Kit, Packet, Parcel};

/// Packets of a host in the wide area that wait for its interface; the next message is refused.
pub const WAITING: usize = level1::WAITING;

/// A way out of a station.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The interface.
    pub port: Port,
    /// The medium there, and its port.
    pub down: (u32, Port),
    /// Cuts what is longer than the packets that the line carries.
    pub cutter: Cutter,
}

/// What stands at a station.
#[derive(Debug)]
pub enum What {
    /// A converter of level 1.
    Level1 {
        /// It.
        machine: Box<Level1>,
        /// The group of each packet address.
        groups: BTreeMap<u16, u32>,
        /// Packet addresses that it gets.
        joined: BTreeSet<u16>,
        /// Where its bundles go.
        central: (To, Line),
        /// Where its messages go.
        wide: Line,
        /// From where it is reached there.
        switches: Vec<(u32, Port)>,
    },
    /// The central converter.
    Central {
        /// It.
        machine: Box<Central>,
        /// The stations of level 1.
        of_level1: BTreeSet<u32>,
        /// Where bundles for each of them go, by its number.
        level1: BTreeMap<u16, (To, Line)>,
        /// Where bundles for all hosts go.
        hosts: (To, Vec<Line>),
        /// The line to each host, by its station: of the wide format.
        each: BTreeMap<u32, Line>,
    },
    /// The interface of a host.
    Host {
        /// It.
        machine: Box<Host>,
        /// The central converter.
        to: To,
        /// Its line there.
        line: Line,
    },
    /// A host in the wide area.
    Wide {
        /// Of the wide format: it numbers what is sent.
        caster: Option<Box<Caster>>,
        /// The group of each packet address.
        groups: BTreeMap<u16, u32>,
        /// Where its messages go.
        line: Line,
    },
}

/// A machine, what waits to leave it, and what has come in parts.
#[derive(Debug)]
pub struct Desk {
    /// Its place on the agenda.
    pub place: u32,
    /// The machine.
    pub what: What,
    station: u32,
    /// Datagrams sent.
    serial: u32,
    /// Packets of the datagram that leaves; of a host in the wide area up to [`WAITING`] and those of one message.
    leaving: VecDeque<(Line, Packet)>,
    /// Of each station that sends fragments.
    gatherers: BTreeMap<u32, Gatherer>,
    heard: VecDeque<(u32, Header)>,
    /// Messages with their headers, in the making and taken.
    scratch: Vec<u8>,
    /// Packet addresses that were joined.
    joins: u64,
}

impl Desk {
    /// What stands at a station, with nothing to say yet.
    pub fn new(station: u32, what: What) -> Desk {
        Desk {
            place: 0,
            what,
            station,
            serial: 0,
            leaving: VecDeque::new(),
            gatherers: BTreeMap::new(),
            heard: VecDeque::new(),
            scratch: Vec::new(),
            joins: 0,
        }
    }

    /// A host wants an address from the beginning. More than sixteen thousand find no room, and are not joined.
    pub fn join(&mut self, address: u32) {
        if let What::Host { machine, .. } = &mut self.what {
            let join = host::Command::JoinRange { first: address, last: address };
            if machine.handle(Instant::ZERO, Input::Command(join)) == Err(Refusal::Format) {
                let join = host::Command::Join(address as u16);
                let _ = machine.handle(Instant::ZERO, Input::Command(join));
            }
        }
    }

    /// Takes a message to send.
    ///
    /// # Errors
    /// Why it is not sent.
    pub fn send(&mut self, now: Instant, flow: u32, label: &Label, header: &Header) -> Result<(), Refusal> {
        let mut front = [0; HEADER];
        header.encode(flow, &mut front);
        self.scratch.clear();
        if let What::Wide { caster: None, .. } = self.what {
            self.scratch.extend_from_slice(&(label.address as u16).to_be_bytes());
        }
        let before = self.scratch.len();
        self.scratch.extend_from_slice(&front);
        self.scratch.resize(before + header.length as usize, 0);
        match &mut self.what {
            What::Host { machine, .. } => {
                let post = host::Command::Post(label.post(&self.scratch));
                machine.handle(now, Input::Command(post))
            }
            What::Wide { caster, groups, line } => {
                if self.leaving.len() >= WAITING {
                    return Err(Refusal::Full);
                }
                let (group, line) = (groups[&packet_of(label.address)], *line);
                let mut bytes = std::mem::take(&mut self.scratch);
                if let Some(caster) = caster {
                    let mut datagram = vec![0; caster.longest()];
                    let length = caster.cast(&label.post(&bytes), &mut datagram).ok_or(Refusal::TooLong)?;
                    datagram.truncate(length);
                    bytes = datagram;
                }
                self.leave(&line, (To::Group(group), PORTS.wide), &bytes);
                self.scratch = bytes;
                Ok(())
            }
            What::Level1 { .. } | What::Central { .. } => Ok(()),
        }
    }

    /// Takes a packet.
    pub fn arrive(&mut self, now: Instant, packet: &Packet) {
        let Content::Bundle { parcel, fragment, fragments } = &packet.content else { return };
        let (from, bytes) = (parcel.from, &parcel.bytes[..]);
        let piece = Datagram {
            sequence: u64::from(parcel.serial),
            sent: now,
            size: bytes.len() as u32,
            response: 0,
            fragment: *fragment,
            fragments: *fragments,
            kind: Kind::Pattern,
        };
        if *fragments > 1 && !self.gatherers.entry(from).or_default().take(&piece) {
            return;
        }
        let is_plain = matches!(packet.to, To::Group(_));
        // The central converter of the wide format answers to where it came from.
        let (peer, segment) = (Peer::new(&from.to_be_bytes()), None);
        match &mut self.what {
            What::Level1 { machine, .. } => {
                let port = if is_plain { Level1::WIDE } else { Level1::CENTRAL };
                let Ok(()) = machine.handle(now, Input::Frame { port, peer, bytes, segment });
            }
            What::Central { machine, of_level1, .. } => {
                let port = if of_level1.contains(&from) { Central::LEVEL1 } else { Central::HOSTS };
                let Ok(()) = machine.handle(now, Input::Frame { port, peer, bytes, segment });
            }
            What::Host { machine, .. } => {
                // Only commands can be refused.
                let _ = machine.handle(now, Input::Frame { port: Host::CENTRAL, peer, bytes, segment });
            }
            What::Wide { caster, .. } => {
                let body = match caster {
                    Some(_) => alone::read(bytes).map(|message| message.body),
                    None => Message::read(bytes).map(|message| message.body),
                };
                self.heard.extend(body.and_then(Header::peek));
            }
        }
    }

    /// Its deadline may have come.
    pub fn wake(&mut self, now: Instant) {
        match &mut self.what {
            What::Level1 { machine, .. } => {
                let Ok(()) = machine.handle(now, Input::Wake);
            }
            What::Central { machine, .. } => {
                let Ok(()) = machine.handle(now, Input::Wake);
            }
            What::Host { machine, .. } => _ = machine.handle(now, Input::Wake),
            What::Wide { .. } => {}
        }
    }

    /// By which interface, into which medium, the next packet wants to leave.
    pub fn leaving(&self) -> Option<(Port, (u32, Port))> {
        self.leaving.front().map(|(line, _)| (line.port, line.down))
    }

    /// Takes it.
    pub fn take(&mut self) -> Option<Packet> {
        self.leaving.pop_front().map(|(_, packet)| packet)
    }

    /// From where its interface to the wide area is reached.
    pub fn switches(&self) -> &[(u32, Port)] {
        match &self.what {
            What::Level1 { switches, .. } => switches,
            _ => &[],
        }
    }

    /// Cuts a datagram for a UDP port into packets, which leave. The port stands in their channel, which is ATM's only.
    fn leave(&mut self, line: &Line, (to, port): (To, u16), bytes: &[u8]) {
        let parcel = Arc::new(Parcel { from: self.station, serial: self.serial, bytes: bytes.into() });
        self.serial = self.serial.wrapping_add(1);
        let udp = bytes.len() as u32 + UDP_IP - IP;
        let fragments = line.cutter.count(udp);
        for fragment in 0..fragments {
            let content = Content::Bundle { parcel: Arc::clone(&parcel), fragment, fragments };
            let length = line.cutter.length(udp, fragment, fragments);
            self.leaving.push_back((*line, Packet::new(content, length, FLOW, port, to, false)));
        }
    }

    /// What it has to say. The next datagram leaves when the last has.
    pub fn poll(&mut self, now: Instant, kit: &mut Kit) -> Saying {
        if let Some((flow, header)) = self.heard.pop_front() {
            return Saying::Heard { flow, header };
        }
        let ports = if self.leaving.is_empty() { Writable::ALL } else { Writable::NONE };
        let buffer = &mut kit.scratch;
        loop {
            return match &mut self.what {
                What::Level1 { machine, groups, joined, central, wide, .. } => {
                    match machine.poll(now, ports, buffer) {
                        Output::Transmit(Transmit { port: Level1::CENTRAL, length, .. }) => {
                            let (to, line) = *central;
                            self.send_out(&line, (to, PORTS.from_level1), &kit.scratch[..length])
                        }
                        Output::Transmit(Transmit { peer, length, .. }) => {
                            let at = u16_of(&peer);
                            let (group, line) = (groups.get(&at).copied(), *wide);
                            let Some(group) = group else { continue };
                            self.send_out(&line, (To::Group(group), PORTS.wide), &kit.scratch[..length])
                        }
                        Output::Event(event) => {
                            let (at, joins) = match event {
                                level1::Event::Join(at) => (at, true),
                                level1::Event::Leave(at) => (at, false),
                            };
                            if joins {
                                joined.insert(at)
                            } else {
                                joined.remove(&at)
                            };
                            self.joins += u64::from(joins);
                            let Some(group) = groups.get(&at).copied() else { continue };
                            Saying::Join { group, joins }
                        }
                        Output::Idle(idle) => Saying::Idle { deadline: idle.deadline },
                    }
                }
                What::Central { machine, level1, hosts, each, .. } => {
                    match machine.poll(now, ports, buffer) {
                        Output::Transmit(Transmit { port: Central::LEVEL1, peer, length, .. }) => {
                            // By its station in the wide format, else by its number.
                            let of_station = |(to, _): &&(To, Line)| {
                                station_of(&peer).is_some_and(|at| *to == To::Station(at))
                            };
                            let found =
                                level1.values().find(of_station).or_else(|| level1.get(&u16_of(&peer)));
                            let Some((to, line)) = found.copied() else { continue };
                            self.send_out(&line, (to, PORTS.to_level1), &kit.scratch[..length])
                        }
                        Output::Transmit(Transmit { peer, length, .. }) if station_of(&peer).is_some() => {
                            let found = station_of(&peer).and_then(|at| Some((at, *each.get(&at)?)));
                            let Some((at, line)) = found else { continue };
                            self.send_out(&line, (To::Station(at), PORTS.to_hosts), &kit.scratch[..length])
                        }
                        Output::Transmit(Transmit { length, .. }) => {
                            let (to, lines) = hosts.clone();
                            let bytes = &kit.scratch[..length];
                            lines.iter().for_each(|line| self.leave(line, (to, PORTS.to_hosts), bytes));
                            Saying::Leaving
                        }
                        Output::Event(never) => match never {},
                        Output::Idle(idle) => Saying::Idle { deadline: idle.deadline },
                    }
                }
                What::Host { machine, to, line } => match machine.poll(now, ports, buffer) {
                    Output::Transmit(Transmit { length, .. }) => {
                        let (to, line) = (*to, *line);
                        self.send_out(&line, (to, PORTS.from_hosts), &kit.scratch[..length])
                    }
                    Output::Event(host::Event::Readable) => {
                        self.read(now);
                        match self.heard.pop_front() {
                            Some((flow, header)) => Saying::Heard { flow, header },
                            None => continue,
                        }
                    }
                    Output::Event(host::Event::Level(_)) => continue,
                    Output::Idle(idle) => Saying::Idle { deadline: idle.deadline },
                },
                What::Wide { .. } => Saying::Idle { deadline: None },
            };
        }
    }

    fn send_out(&mut self, line: &Line, to: (To, u16), bytes: &[u8]) -> Saying {
        self.leave(line, to, bytes);
        Saying::Leaving
    }

    /// Takes all messages that a host's interface has.
    fn read(&mut self, now: Instant) {
        let What::Host { machine, .. } = &mut self.what else { return };
        loop {
            let mut from = None;
            let receive = host::Command::Receive { into: &mut self.scratch, from: &mut from };
            // To receive is not refused.
            let _ = machine.handle(now, Input::Command(receive));
            if from.is_none() {
                return;
            }
            self.heard.extend(Header::peek(&self.scratch));
        }
    }

    /// What it counted by now, by name.
    pub fn counts(&self, now: Instant) -> Counts {
        let mut counts = match &self.what {
            What::Level1 { machine, joined, .. } => {
                bundle::of_level1(machine, now, self.joins, joined.len() as u64)
            }
            What::Central { machine, .. } => bundle::of_central(machine),
            What::Host { machine, .. } => bundle::of_host(machine, now),
            What::Wide { .. } => Counts::new(),
        };
        let given_up = self.gatherers.values().map(|gatherer| gatherer.given_up).sum();
        counts.insert("bundle.reassembly_given_up".into(), given_up);
        counts
    }
}

/// The station that a peer is, from which a bundle of the wide format came.
fn station_of(peer: &Peer) -> Option<u32> {
    peer.as_bytes().try_into().ok().map(u32::from_be_bytes)
}

/// The number that a peer is.
fn u16_of(peer: &Peer) -> u16 {
    match *peer.as_bytes() {
        [high, low, ..] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

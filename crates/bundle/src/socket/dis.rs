//! Plain DIS between a host and the programs on its machine.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_io::{Clock, Ports, socket};
use trunkline_units::Instant;

use super::receiver::{open_receiver, shared_interface};
use super::{Error, Metrics};
use crate::host::{Host, HostCommand, OutgoingMessage};
use crate::rules::{EntityTracker, Rules};
use crate::settings::Settings;
use crate::wire::dis::{Pdu, PduError};
use crate::wire::format2::DEFAULT_DATAGRAM;

/// The batches of datagrams received per turn.
const BATCHES_PER_TURN: usize = 16;

/// The options of plain DIS at a host.
#[derive(Clone, Debug)]
pub struct DisOptions {
    /// The destination of the programs' PDUs: a unicast address of this host, or a broadcast or multicast address.
    pub listen: SocketAddrV4,
    /// The destination of PDUs for programs; `None` uses the shared address in `listen`, or the source of the last
    /// PDU.
    pub destination: Option<SocketAddrV4>,
    /// The mapping of PDUs to addresses, and the subscriptions.
    pub rules: Rules,
}

/// The gateway to programs.
#[derive(Debug)]
pub(super) struct DisGateway {
    options: DisOptions,
    receive_socket: usize,
    send_socket: usize,
    /// The source address of the host's PDUs, if it receives them, too.
    own_address: Option<SocketAddr>,
    /// The destination of PDUs for programs.
    destination: Option<SocketAddr>,
    tracker: EntityTracker,
    /// Subscriptions not yet joined, in reverse order; and the joined addresses of tracked entities.
    pending_joins: Vec<RangeInclusive<u32>>,
    joined: BTreeSet<u32>,
    settings: Settings,
    /// Whether the joined addresses may differ from the subscriptions.
    interest_changed: bool,
    message: Vec<u8>,
    batch: PduBatch,
    counts: DisCounts,
}

/// PDUs sent by one system call, one per datagram: of equal length, except for a shorter last one. At most
/// [`MAX_SEGMENTS`] PDUs and [`MAX_BATCH`] octets.
#[derive(Debug, Default)]
struct PduBatch {
    bytes: Vec<u8>,
    length: usize,
    /// The priority as an index of the counters.
    class: usize,
}

impl PduBatch {
    /// Adds a PDU; returns false if it does not fit into the batch.
    fn push(&mut self, pdu: &[u8], class: usize) -> bool {
        if self.bytes.is_empty() {
            (self.length, self.class) = (pdu.len(), class);
        }
        let whole = self.bytes.len().is_multiple_of(self.length) && pdu.len() <= self.length;
        let has_room = self.bytes.len() + pdu.len() <= MAX_BATCH.min(MAX_SEGMENTS * self.length);
        // Only PDUs that fit into one packet are batched.
        let fits = self.bytes.is_empty()
            || whole && has_room && self.length <= DEFAULT_DATAGRAM && self.class == class;
        if fits {
            self.bytes.extend_from_slice(pdu);
        }
        fits
    }

    /// Sends the PDUs.
    fn flush(&mut self, ports: &Ports, send_socket: usize, destination: SocketAddr, counts: &mut DisCounts) {
        if self.bytes.is_empty() {
            return;
        }
        let sent = ports.send_all(send_socket, destination, &self.bytes, self.length);
        counts.sent += sent as u64;
        counts.unsent[self.class] += (self.bytes.len().div_ceil(self.length) - sent) as u64;
        self.bytes.clear();
    }
}

#[derive(Debug, Default)]
struct DisCounts {
    received: u64,
    sent: u64,
    looped_back: u64,
    dropped_by_rule: u64,
    /// Ordinary and priority PDUs.
    no_receiver: [u64; 2],
    unsent: [u64; 2],
    /// By direction (from programs, to programs) and reason.
    malformed: [[u64; 3]; 2],
}

const DIRECTIONS: [&str; 2] = ["from_programs", "to_programs"];
const MALFORMED_REASONS: [&str; 3] = ["short", "length", "long"];

impl DisCounts {
    /// Returns a valid PDU, or counts a malformed one.
    fn check<'a>(&mut self, direction: usize, pdu: Result<Pdu<'a>, PduError>) -> Option<Pdu<'a>> {
        let reason = match pdu {
            Ok(pdu) => return Some(pdu),
            Err(PduError::Truncated(_)) => 0,
            Err(PduError::Length { .. }) => 1,
            Err(PduError::TooLong(_)) => 2,
        };
        self.malformed[direction][reason] += 1;
        None
    }
}

impl DisGateway {
    /// Opens the sockets behind those in `ports`.
    pub fn open(
        options: &DisOptions,
        settings: &Settings,
        interface: Ipv4Addr,
        ports: &mut Ports,
    ) -> Result<DisGateway, Error> {
        let at = options.listen;
        let receive_socket = ports.add(open_receiver(at, interface)?)?;
        // On a shared address it receives its own PDUs, and so sends them from a separate port.
        let interface_address = shared_interface(*at.ip(), interface);
        let send_socket = match interface_address {
            Some(interface_address) => ports.add(socket::multicast_sender(
                interface_address.into(),
                1,
                &socket::Options::default(),
            )?)?,
            None => receive_socket,
        };
        ports.socket(send_socket).set_broadcast(true)?;
        let is_shared = interface_address.is_some();
        if !is_shared && options.destination.is_some_and(|destination| destination.ip().is_multicast()) {
            socket::set_multicast_interface(ports.socket(send_socket), interface)?;
        }
        let own_address = is_shared.then(|| ports.socket(send_socket).local_addr()).transpose()?;
        let destination = options.destination.or(is_shared.then_some(at)).map(SocketAddr::V4);
        Ok(DisGateway {
            options: options.clone(),
            receive_socket,
            send_socket,
            own_address,
            destination,
            tracker: EntityTracker::default(),
            pending_joins: options.rules.subscribed.iter().rev().cloned().collect(),
            joined: BTreeSet::new(),
            settings: *settings,
            interest_changed: true,
            message: Vec::new(),
            batch: PduBatch::default(),
            counts: DisCounts::default(),
        })
    }

    /// Returns the receiving socket.
    pub fn receive_socket(&self) -> usize {
        self.receive_socket
    }

    pub fn send_socket(&self) -> usize {
        self.send_socket
    }

    /// Receives PDUs from programs.
    pub fn receive(&mut self, ports: &mut Ports, host: &mut Host, clock: Clock) -> io::Result<()> {
        let DisGateway {
            options, own_address, destination, tracker, settings, interest_changed, counts, ..
        } = self;
        ports.receive(self.receive_socket, BATCHES_PER_TURN, |datagram, bytes| {
            if Some(datagram.from) == *own_address {
                counts.looped_back += 1;
                return;
            }
            let now = clock.now();
            for pdu in Segment::frames(datagram.segment, bytes).flat_map(Pdu::all) {
                let Some(pdu) = counts.check(0, pdu) else { continue };
                counts.received += 1;
                if options.destination.is_none() && own_address.is_none() {
                    // A program that sends DIS also receives it.
                    *destination = Some(datagram.from);
                }
                *interest_changed |= tracker.observe(&options.rules, pdu);
                match options.rules.address(pdu) {
                    // The endpoint counts refused messages.
                    Some((address, priority, within)) => {
                        let priority = priority || settings.is_priority(address);
                        let within = within.filter(|_| priority);
                        let post = OutgoingMessage { address, priority, max_wait: within, body: pdu.bytes() };
                        let _ = host.handle(now, Input::Command(HostCommand::Send(post)));
                    }
                    None => counts.dropped_by_rule += 1,
                }
            }
        })
    }

    /// Sends received PDUs to the programs, one per datagram.
    pub fn deliver(&mut self, ports: &Ports, host: &mut Host, now: Instant) {
        let DisGateway {
            options,
            send_socket,
            destination,
            tracker,
            interest_changed,
            message,
            batch,
            counts,
            ..
        } = self;
        loop {
            let mut from = None;
            let receive = HostCommand::Receive { into: message, from: &mut from };
            let _ = host.handle(now, Input::Command(receive));
            let Some(from) = from else { break };
            let class = usize::from(from.priority);
            for pdu in Pdu::all(message) {
                let Some(pdu) = counts.check(1, pdu) else { continue };
                *interest_changed |= tracker.observe(&options.rules, pdu);
                let Some(destination) = *destination else {
                    counts.no_receiver[class] += 1;
                    continue;
                };
                if !batch.push(pdu.bytes(), class) {
                    batch.flush(ports, *send_socket, destination, counts);
                    batch.push(pdu.bytes(), class);
                }
            }
        }
        if let Some(destination) = *destination {
            batch.flush(ports, *send_socket, destination, counts);
        }
    }

    /// Joins and leaves addresses according to the subscriptions. What finds no room is retried in the next turn.
    pub fn update_interest(&mut self, host: &mut Host, now: Instant) {
        if !self.interest_changed {
            return;
        }
        let mut change = |first, last, joins| {
            let command =
                if joins { HostCommand::Join { first, last } } else { HostCommand::Drop { first, last } };
            host.handle(now, Input::Command(command)).is_ok()
        };
        while self.pending_joins.pop_if(|range| change(*range.start(), *range.end(), true)).is_some() {}
        let wanted = self.tracker.addresses(&self.options.rules);
        let leaves: Vec<u32> = self.joined.difference(&wanted).copied().collect();
        let joins: Vec<u32> = wanted.difference(&self.joined).copied().collect();
        for address in joins {
            if change(address, address, true) {
                self.joined.insert(address);
            }
        }
        for address in leaves {
            if change(address, address, false) {
                self.joined.remove(&address);
            }
        }
        self.interest_changed = self.joined != wanted || !self.pending_joins.is_empty();
    }

    pub fn local_addresses(&self, ports: &Ports) -> String {
        let at = ports.socket(self.receive_socket).local_addr();
        let at = at.map_or_else(|_| self.options.listen.to_string(), |at| at.to_string());
        match self.options.destination {
            Some(destination) => format!("DIS on {at}, to {destination}"),
            None if self.own_address.is_some() => format!("DIS on {at} both ways"),
            None => format!("DIS on {at}, to the last sender"),
        }
    }

    pub fn collect_metrics(&self, into: &mut Metrics) {
        let counts = &self.counts;
        let metric = ("trunkline_converter_pdus_total", "PDUs of plain DIS, by direction.");
        into.add_counter(metric, &[("way", DIRECTIONS[0])], counts.received);
        into.add_counter(metric, &[("way", DIRECTIONS[1])], counts.sent);
        for (direction, malformed) in DIRECTIONS.iter().zip(&counts.malformed) {
            for (reason, count) in MALFORMED_REASONS.iter().zip(malformed) {
                let metric = (
                    "trunkline_converter_pdus_malformed_total",
                    "PDUs that are truncated, have a wrong length or are too long.",
                );
                let labels = [("way", *direction), ("why", *reason)];
                into.add_counter(metric, &labels, *count);
            }
        }
        let metric = (
            "trunkline_converter_pdus_dropped_total",
            "PDUs dropped: by a rule, without a known program, or by the operating system.",
        );
        // A dropped PDU has no address, and so no priority.
        let dropped = [
            ("rule", [counts.dropped_by_rule, 0]),
            ("nobody", counts.no_receiver),
            ("unsent", counts.unsent),
        ];
        for (reason, [ordinary, priority]) in dropped {
            for (class, count) in [("ordinary", ordinary), ("priority", priority)] {
                let labels = [("why", reason), ("priority", class)];
                into.add_counter(metric, &labels, count);
            }
        }
        let metric = ("trunkline_converter_pdus_own_total", "Own datagrams received back.");
        into.add_counter(metric, &[], counts.looped_back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_equal_lengths_except_for_a_shorter_end() {
        // Lengths of PDUs, and how many of them fit into a batch.
        for (lengths, fit) in [
            (vec![150, 150, 150], 3),
            (vec![150, 20, 150], 2),
            (vec![150, 20, 20], 2),
            (vec![20, 150], 1),
            (vec![150; 100], MAX_SEGMENTS),
            (vec![DEFAULT_DATAGRAM; 100], MAX_BATCH / DEFAULT_DATAGRAM),
            (vec![DEFAULT_DATAGRAM + 1, DEFAULT_DATAGRAM + 1], 1),
        ] {
            let mut batch = PduBatch::default();
            let taken = lengths.iter().take_while(|length| batch.push(&vec![1; **length], 0)).count();
            assert_eq!(taken, fit, "{:?}", &lengths[..2]);
        }
    }
}

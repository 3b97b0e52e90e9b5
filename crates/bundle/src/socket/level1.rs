//! [`Level1Socket`]: a level-1 converter on its sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use trunkline_io::event_loop::LoopOutput;
use trunkline_io::ports::{Ready, Received};
use trunkline_io::{Clock, EventLoop, Memberships, memberships, socket};
use trunkline_units::{Instant, Span};

use super::group_retry::GroupRetry;
use super::metrics::{
    BUNDLES, LEVEL, LOOPED_BACK, MALFORMED, MESSAGES, STALE, TIMEOUTS, UNKNOWN_PEERS, add_coalescing,
    add_overflows, add_send_errors,
};
use super::receiver::{bind_exclusive, socket_options};
use super::warnings::{ANSWER_TIMEOUT, CentralWatch, WarningKind};
use super::{Error, Metrics, SocketDriver, incarnation_at};
use crate::drops::CountUnsent as _;
use crate::level1::{Level1, MembershipEvent};
use crate::settings::Settings;
use crate::wire::classic::{ClassicMessage, PACKET_ADDRESSES, packet_address};
use crate::wire::format2;

/// The time from the start to the query for its joins.
const QUERY_DELAY: Span = Span::from_s(1);
/// The socket that sends to groups. It belongs to no port of the endpoint.
const SEND_SOCKET: usize = 2;

/// The batches of messages received per turn. The bundle queue has room for them.
const MESSAGE_BATCHES: usize = 32;
/// The batches of bundles received per turn. The wide-area queue has room for their messages.
const BUNDLE_BATCHES: usize = 8;

/// The options of a level-1 converter.
#[derive(Clone, Debug)]
pub struct Level1Options {
    /// Settings that all endpoints of the site share.
    pub settings: Settings,
    /// The number of the converter, from 1 on.
    pub number: u16,
    /// The address of the central converter, to which the converter sends. In format 1 (classic) its bundles may come
    /// from any port of that machine.
    pub central: SocketAddrV4,
    /// The address that receives from the central converter.
    pub listen: SocketAddrV4,
    /// The address of the interface with the groups; unspecified if the routes say which it is. Then `listen` has the address
    /// of the machine.
    pub interface: Ipv4Addr,
    /// The group of packet address 0. The other groups follow.
    pub base: Ipv4Addr,
    /// The port of the groups.
    pub port: u16,
    /// The TTL of multicast packets.
    pub ttl: u8,
}

/// A level-1 converter on its sockets.
///
/// It receives only the groups that it has joined on its interface, whatever other programs on this machine have
/// joined. It ignores its own messages, which it recognizes by their source address and port.
#[derive(Debug)]
pub struct Level1Socket {
    event_loop: EventLoop<Level1>,
    options: Level1Options,
    memberships: Memberships,
    group_retry: GroupRetry,
    /// The source address of the converter's messages to groups.
    own_address: SocketAddr,
    counts: Level1Counts,
    central: CentralWatch,
}

#[derive(Debug, Default)]
struct Level1Counts {
    /// Ignored datagrams: its own, those to other groups, and those whose address belongs to another group.
    looped_back: u64,
    other_groups: u64,
    misplaced: u64,
    refused: u64,
    unsent: u64,
    join_failures: u64,
}

impl Level1Socket {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Returns the first socket error.
    pub fn open(options: &Level1Options, clock: Clock) -> Result<Level1Socket, Error> {
        if !is_valid_base(options.base) {
            return Err(Error::Base(options.base));
        }
        let machine = Level1::new(options.number, incarnation_at(clock.unix()), options.settings)
            .with_query_at(clock.now() + QUERY_DELAY);
        let mut event_loop = EventLoop::new(machine, clock)?;
        let memberships = Memberships::new(options.interface)?;
        let receiver = memberships::shared_port(options.port, &socket_options())?;
        let sender =
            socket::multicast_sender(options.interface.into(), options.ttl, &socket::Options::default())?;
        let mut own_address = sender.local_addr()?;
        if options.interface.is_unspecified() {
            own_address.set_ip((*options.listen.ip()).into());
        }
        // The order of the sockets is that of the endpoint's ports.
        event_loop.ports.add(receiver)?;
        event_loop.ports.add(bind_exclusive(options.listen)?)?;
        event_loop.ports.add(sender)?;
        Ok(Level1Socket {
            event_loop,
            options: options.clone(),
            memberships,
            group_retry: GroupRetry::default(),
            own_address,
            counts: Level1Counts::default(),
            central: CentralWatch::new(options.settings, options.central),
        })
    }

    /// Returns the joined groups.
    pub fn memberships(&self) -> &Memberships {
        &self.memberships
    }

    /// Returns the endpoint.
    pub fn machine(&self) -> &Level1 {
        &self.event_loop.endpoint
    }

    fn receive_messages(&mut self) -> io::Result<()> {
        let Level1Socket { event_loop, options, memberships, own_address, counts, .. } = self;
        let interface = memberships.interface();
        // Only bundles of the central converter change the joined groups.
        let joined: &Memberships = memberships;
        event_loop.receive(Level1::WIDE_AREA, MESSAGE_BATCHES, |datagram, bytes| {
            if datagram.from == *own_address {
                counts.looped_back += 1;
                return false;
            }
            let group = group_of(datagram, interface).filter(|group| joined.has(*group));
            let Some(group) = group else {
                counts.other_groups += 1;
                return false;
            };
            // The endpoint counts datagrams without an address.
            let claimed = match options.settings.format2() {
                None => ClassicMessage::read(bytes).map(|message| packet_address(message.address)),
                Some(_) => format2::receiver_of(bytes),
            };
            let is_valid = claimed.is_none_or(|packet| group_address(options.base, packet) == group);
            counts.misplaced += u64::from(!is_valid);
            is_valid
        })
    }

    /// Handles the outputs of the endpoint.
    fn flush(&mut self) {
        let Level1Socket { event_loop, options, memberships, group_retry, counts, central, .. } = self;
        let now = event_loop.clock.now();
        let mut joiner = GroupJoiner { base: options.base, memberships, counts, central };
        group_retry.retry(now, |packet| joiner.join(packet));
        event_loop.drain(|endpoint, ports, output| {
            let (transmit, bytes) = match output {
                LoopOutput::Event(MembershipEvent::Join(packet)) => {
                    if !joiner.join(packet) {
                        group_retry.add(now, packet);
                    }
                    return;
                }
                LoopOutput::Event(MembershipEvent::Leave(packet)) => {
                    group_retry.remove(packet);
                    let _ = joiner.memberships.leave(group_address(options.base, packet));
                    return;
                }
                LoopOutput::Frame(transmit, bytes) => (transmit, bytes),
            };
            let sent = if transmit.port == Level1::CENTRAL {
                // In format 1 (classic) the central converter sends nothing until a host joins an address.
                if options.settings.format2().is_some() {
                    joiner.central.expect_answer(now, ANSWER_TIMEOUT);
                }
                ports.send(usize::from(Level1::CENTRAL.0), options.central.into(), bytes)
            } else {
                let packet = transmit.peer.as_bytes().try_into().map_or(0, u16::from_be_bytes);
                let to = SocketAddrV4::new(group_address(options.base, packet), options.port);
                ports.send(SEND_SOCKET, to.into(), bytes)
            };
            if !sent {
                joiner.counts.unsent += 1;
                endpoint.count_unsent(transmit.port, bytes);
            }
        });
    }
}

/// The state needed to join a group and to report errors.
struct GroupJoiner<'a> {
    base: Ipv4Addr,
    memberships: &'a mut Memberships,
    counts: &'a mut Level1Counts,
    central: &'a mut CentralWatch,
}

impl GroupJoiner<'_> {
    /// Joins the group of a packet address; returns whether that succeeded.
    fn join(&mut self, packet: u16) -> bool {
        let group = group_address(self.base, packet);
        let Err(reason) = self.memberships.join(group) else { return true };
        self.counts.join_failures += 1;
        let line = || format!("cannot join group {group}: {reason}; retrying");
        self.central.warnings.once(WarningKind::JoinFailed, line);
        false
    }
}

/// Returns the group to which a datagram on an interface was sent.
fn group_of(datagram: &Received, interface: u32) -> Option<Ipv4Addr> {
    match datagram.to {
        Some(IpAddr::V4(group)) if datagram.interface.is_none_or(|on| interface == 0 || on == interface) => {
            Some(group)
        }
        _ => None,
    }
}

fn group_address(base: Ipv4Addr, packet: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(base.to_bits().wrapping_add(packet.into()))
}

fn is_valid_base(base: Ipv4Addr) -> bool {
    let last = base.to_bits().checked_add(PACKET_ADDRESSES as u32 - 1).map(Ipv4Addr::from_bits);
    base.is_multicast() && last.is_some_and(|last| last.is_multicast())
}

impl SocketDriver for Level1Socket {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.event_loop.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let until = until.into_iter().chain(self.group_retry.deadline()).chain(self.central.deadline()).min();
        let ready = self.event_loop.wait(until)?;
        for port in [Level1::WIDE_AREA, Level1::CENTRAL] {
            let number = usize::from(port.0);
            if ready.refused(number) {
                self.counts.refused += self.event_loop.refusals(port).count() as u64;
            }
        }
        if ready.refused(SEND_SOCKET) {
            while self.event_loop.ports.refused(SEND_SOCKET).is_some() {}
        }
        if ready.has(SEND_SOCKET) {
            // Replies to group messages are not expected, and discarded.
            self.event_loop.ports.receive(SEND_SOCKET, MESSAGE_BATCHES, |_, _| {})?;
        }
        if ready.has(usize::from(Level1::CENTRAL.0)) {
            let central = &mut self.central;
            let accept = |datagram: &Received, bytes: &[u8]| central.accepts(datagram.from, bytes);
            self.event_loop.receive(Level1::CENTRAL, BUNDLE_BATCHES, accept)?;
        }
        if ready.has(usize::from(Level1::WIDE_AREA.0)) {
            self.receive_messages()?;
        }
        let statistics = self.event_loop.endpoint.statistics();
        let (has_answered, timeouts) = (statistics.bundles_received > 0, statistics.central_timeouts);
        self.central.check(self.event_loop.clock, has_answered, "--central, --site, --number", timeouts);
        self.flush();
        Ok(ready)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.event_loop.endpoint.bye(self.event_loop.clock.now());
        self.flush();
        Ok(())
    }

    fn local_addresses(&self) -> String {
        let Level1Options { number, central, interface, base, port, .. } = &self.options;
        let local = self.event_loop.ports.socket(usize::from(Level1::CENTRAL.0)).local_addr();
        let local = local.map_or_else(|_| self.options.listen.to_string(), |at| at.to_string());
        format!(
            "level 1 number {number} on {local}, groups from {base}:{port} on {interface}, central {central}"
        )
    }

    fn next_warning(&mut self) -> Option<String> {
        self.central.warnings.next_line()
    }

    fn collect_metrics(&self, into: &mut Metrics) {
        let machine = &self.event_loop.endpoint;
        let statistics = machine.statistics();
        into.add_counter(BUNDLES, &[("way", "from_central")], statistics.bundles_received);
        into.add_counter(BUNDLES, &[("way", "to_central")], statistics.bundles_sent);
        into.add_counter(MESSAGES, &[("way", "from_wide")], statistics.received);
        into.add_counter(MESSAGES, &[("way", "to_wide")], statistics.sent);
        into.add_counter(MALFORMED, &[("way", "from_central")], statistics.malformed);
        into.add_counter(UNKNOWN_PEERS, &[], self.central.unknown_peers);
        into.add_drops("from_wide", &statistics.drops);
        into.add_drops("to_wide", &statistics.drops_outgoing);
        let metric = ("trunkline_converter_ignored_total", "Ignored datagrams on the port of the groups.");
        for (reason, count) in [
            ("own", self.counts.looped_back),
            ("other_group", self.counts.other_groups),
            ("other_address", self.counts.misplaced),
        ] {
            into.add_counter(metric, &[("why", reason)], count);
        }
        if self.options.settings.format2().is_some() {
            into.add_counter(LOOPED_BACK, &[], statistics.looped_back);
            into.add_counter(TIMEOUTS, &[("of", "central")], statistics.central_timeouts);
            into.add_counter(STALE, &[], statistics.stale);
        }
        add_send_errors(into, self.counts.refused, self.counts.unsent);
        add_overflows(into, &self.event_loop.ports, &["wide", "central"]);
        let level = u64::from(machine.level(self.event_loop.clock.now()));
        into.add_gauge(LEVEL, &[("side", "told")], level);
        let metric = ("trunkline_converter_groups", "Multicast groups joined.");
        into.add_gauge(metric, &[], self.memberships.len() as u64);
        let metric = ("trunkline_converter_groups_failed_total", "Failed joins of multicast groups.");
        into.add_counter(metric, &[], self.counts.join_failures);
        let metric =
            ("trunkline_converter_groups_waiting", "Multicast groups whose join failed and is retried.");
        into.add_gauge(metric, &[], self.group_retry.len() as u64);
        add_coalescing(into, &self.event_loop.ports, &["wide", "central"], self.options.interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_follow_the_base_address() {
        let base = Ipv4Addr::new(234, 5, 1, 1);
        assert_eq!(group_address(base, 0), base);
        assert_eq!(group_address(base, 255), Ipv4Addr::new(234, 5, 2, 0));
        assert_eq!(group_address(base, 2_047), Ipv4Addr::new(234, 5, 9, 0));
        for (base, is_valid) in [
            ([234, 5, 1, 1], true),
            ([224, 0, 0, 0], true),
            ([239, 255, 248, 0], true),
            ([239, 255, 248, 1], false),
            ([223, 255, 255, 255], false),
            ([255, 255, 255, 255], false),
        ] {
            assert_eq!(is_valid_base(base.into()), is_valid, "{base:?}");
        }
    }
}

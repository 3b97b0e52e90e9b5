//! [`CentralSocket`]: the central converter on its sockets.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use trunkline_endpoint::Port;
use trunkline_io::event_loop::LoopOutput;
use trunkline_io::peer::address_of;
use trunkline_io::ports::Ready;
use trunkline_io::{Clock, EventLoop};
use trunkline_units::{Instant, Span};

use super::metrics::{
    BUNDLES, JOINED_ADDRESSES, LEVEL, LOOPED_BACK, LOST, MALFORMED, MESSAGES, MetricName, RETRANSMISSIONS,
    SESSIONS, TIMEOUTS, add_coalescing, add_overflows, add_send_errors, add_sequence_counts,
};
use super::receiver::bind_exclusive;
use super::warnings::{WarningKind, Warnings};
use super::{Error, Metrics, SocketDriver, incarnation_at};
pub use crate::balance::REBALANCE_INTERVAL;
use crate::central::{Central, CentralCommand, CentralConfig, Format2Central};
use crate::drops::CountUnsent as _;
use crate::level::Medium;
use crate::regulator::NO_LIMIT;
use crate::session::DuplicateNumber;
use crate::settings::Settings;
use crate::statistics::Level1PeerCounts;
use crate::wire::classic::{MAX_HOSTS, Source};

/// The default interval of refreshes to level 1.
pub const REFRESH_INTERVAL: Span = Span::from_s(10);

/// The batches of bundles received per turn from either side. The other side has room for their messages.
const BATCHES_PER_TURN: usize = 16;

/// The options of a central converter.
#[derive(Clone, Debug)]
pub struct CentralOptions {
    /// The configuration of the endpoint.
    pub config: CentralConfig,
    /// The addresses of the level-1 converters, in the order of the configuration. Format 1 (classic) only; in format
    /// 2 they are the sources of their bundles.
    pub level1: Vec<SocketAddrV4>,
    /// The address that receives from level 1.
    pub listen_level1: SocketAddrV4,
    /// The address that receives from hosts.
    pub listen_hosts: SocketAddrV4,
    /// The destinations of bundles for hosts: one broadcast or multicast address, or the addresses of the hosts. In
    /// format 2 the destinations of broadcast bundles; a unicast bundle goes to the source of the host's bundles.
    pub hosts: Vec<SocketAddrV4>,
    /// The TTL of multicast packets.
    pub ttl: u8,
    /// The interval of refreshes to level 1.
    pub refresh: Span,
    /// The interval of rebalancing; zero disables it. Format 1 (classic) only; format 2 rebalances every
    /// [`REBALANCE_INTERVAL`].
    pub rebalance: Span,
}

/// A central converter on its sockets.
///
/// **Refusals.** If a bundle for hosts is refused (ICMP port unreachable), the interest of the host that sends from
/// that address is removed. If no host does, the host that sends from the same machine is meant, provided that it is
/// the only one there. Level 1 is refreshed once it no longer refuses bundles.
#[derive(Debug)]
pub struct CentralSocket {
    event_loop: EventLoop<Central>,
    options: CentralOptions,
    /// The source address of each host's last bundle.
    host_sources: [Option<SocketAddr>; MAX_HOSTS as usize],
    /// The source address before that.
    previous_sources: [Option<SocketAddr>; MAX_HOSTS as usize],
    refused: u64,
    unsent: u64,
    warnings: Warnings,
}

impl CentralOptions {
    /// Returns options for one level-1 converter, number 1, on the loopback interface, with media of 1 Gb/s and no
    /// destination for broadcast bundles.
    pub fn on_loopback(
        settings: Settings,
        listen_level1: SocketAddrV4,
        listen_hosts: SocketAddrV4,
    ) -> CentralOptions {
        let medium = Medium { capacity: 600_000, interval: Span::from_ms(5) };
        let config =
            CentralConfig { settings, level1: vec![1], hosts: MAX_HOSTS, local: medium, wide_area: medium };
        let (level1, hosts) = Default::default();
        let (refresh, rebalance) = (REFRESH_INTERVAL, REBALANCE_INTERVAL);
        CentralOptions { config, level1, listen_level1, listen_hosts, hosts, ttl: 1, refresh, rebalance }
    }
}

impl CentralSocket {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Returns the first socket error.
    pub fn open(options: &CentralOptions, clock: Clock) -> Result<CentralSocket, Error> {
        let (secret, incarnation) = (trunkline_io::datagrams::seed()?, incarnation_at(clock.unix()));
        let machine = Central::new(secret, incarnation, options.config.clone());
        let machine = machine.with_refresh(options.refresh).with_rebalancing(options.rebalance);
        let mut event_loop = EventLoop::new(machine, clock)?;
        // The order of the sockets is that of the endpoint's ports.
        event_loop.ports.add(bind_exclusive(options.listen_level1)?)?;
        let hosts = bind_exclusive(options.listen_hosts)?;
        hosts.set_broadcast(true)?;
        hosts.set_multicast_ttl_v4(options.ttl.into())?;
        if !options.listen_hosts.ip().is_unspecified()
            && options.hosts.iter().any(|to| to.ip().is_multicast())
        {
            trunkline_io::socket::set_multicast_interface(&hosts, *options.listen_hosts.ip())?;
        }
        event_loop.ports.add(hosts)?;
        Ok(CentralSocket {
            event_loop,
            options: options.clone(),
            host_sources: [None; MAX_HOSTS as usize],
            previous_sources: [None; MAX_HOSTS as usize],
            refused: 0,
            unsent: 0,
            warnings: Warnings::default(),
        })
    }

    /// Returns the endpoint.
    pub fn machine(&self) -> &Central {
        &self.event_loop.endpoint
    }

    /// Returns the address that receives from hosts, with the port that the system chose.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    pub fn hosts_address(&self) -> io::Result<SocketAddrV4> {
        match self.event_loop.ports.socket(usize::from(Central::HOSTS.0)).local_addr()? {
            SocketAddr::V4(at) => Ok(at),
            SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn handle_refusals(&mut self, port: Port) {
        while let Some(peer) = self.event_loop.ports.refused(usize::from(port.0)) {
            self.refused += 1;
            let command = match port {
                Central::LEVEL1 => {
                    let at = self.options.level1.iter().position(|at| SocketAddr::V4(*at) == peer);
                    at.and_then(|at| self.options.config.level1.get(at))
                        .copied()
                        .map(CentralCommand::Level1Refused)
                }
                _ => match self.event_loop.endpoint.format2() {
                    None => host_at(&self.host_sources, &self.options.hosts, peer)
                        .map(CentralCommand::HostRefused),
                    // In format 2 a missing host times out.
                    Some(_) => None,
                },
            };
            if let Some(command) = command {
                // The endpoint refuses no command.
                let _ = self.event_loop.command(command);
            }
        }
    }
}

/// Returns the host at an address, if the source addresses of hosts identify it.
fn host_at(host_sources: &[Option<SocketAddr>], hosts: &[SocketAddrV4], peer: SocketAddr) -> Option<u8> {
    // The host that sends from there, and whether it is the only one.
    let only = |matches: &dyn Fn(SocketAddr) -> bool| {
        let mut found = (1..).zip(host_sources).filter(|(_, source)| source.is_some_and(matches));
        let (host, _) = found.next()?;
        Some((host, found.next().is_none()))
    };
    if let Some((host, is_only)) = only(&|source| source == peer) {
        return is_only.then_some(host);
    }
    let is_only = hosts.iter().filter(|to| std::net::IpAddr::V4(*to.ip()) == peer.ip()).count() == 1;
    only(&|source| source.ip() == peer.ip()).filter(|(_, only)| *only && is_only).map(|(host, _)| host)
}

impl SocketDriver for CentralSocket {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.event_loop.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let ready = self.event_loop.wait(until)?;
        // Refusals come first: the peer may have returned and sent a bundle since.
        for port in [Central::LEVEL1, Central::HOSTS] {
            if ready.refused(usize::from(port.0)) {
                self.handle_refusals(port);
            }
        }
        if ready.has(usize::from(Central::HOSTS.0)) {
            let CentralSocket { host_sources, previous_sources, warnings, options, .. } = self;
            let is_format2 = self.event_loop.endpoint.format2().is_some();
            self.event_loop.receive(Central::HOSTS, BATCHES_PER_TURN, |received, bytes| {
                warnings.check_format(&options.config.settings, received.from, bytes, true);
                if is_format2 {
                    return true;
                }
                let mask = bytes.first_chunk().map(|mask| u16::from_be_bytes(*mask));
                if let Some(Source::Host(host)) = mask.and_then(Source::from_mask) {
                    let at = usize::from(host) - 1;
                    if let Some(last) =
                        host_sources[at].replace(received.from).filter(|last| *last != received.from)
                    {
                        // A host that restarts elsewhere does not return to its old address.
                        if previous_sources[at].replace(last) == Some(received.from) {
                            warnings.duplicate_number(
                                WarningKind::DuplicateHost,
                                host.into(),
                                [last, received.from],
                            );
                        }
                    }
                }
                true
            })?;
        }
        if ready.has(usize::from(Central::LEVEL1.0)) {
            let CentralSocket { warnings, options, .. } = self;
            self.event_loop.receive(Central::LEVEL1, BATCHES_PER_TURN, |received, bytes| {
                warnings.check_format(&options.config.settings, received.from, bytes, true);
                true
            })?;
        }
        if let Some(format2) = self.event_loop.endpoint.format2() {
            if let Some((host, site)) = format2.site_mismatch() {
                self.warnings.once(WarningKind::SiteMismatch, || {
                    format!("host {host} uses site number {site}: its messages are dropped (--site)")
                });
            }
            for (kind, duplicate) in [
                (WarningKind::DuplicateHost, format2.members().duplicate()),
                (WarningKind::DuplicateLevel1, format2.level1_peers().duplicate()),
            ] {
                if let Some((DuplicateNumber { number, .. }, [Some(first), Some(second)])) =
                    duplicate.map(|duplicate| (duplicate, duplicate.peers.map(address_of)))
                {
                    self.warnings.duplicate_number(kind, number, [first, second]);
                }
            }
        }
        let CentralSocket { event_loop, options, unsent, .. } = self;
        event_loop.drain(|endpoint, ports, output| {
            let (transmit, bytes) = match output {
                LoopOutput::Frame(transmit, bytes) => (transmit, bytes),
                LoopOutput::Event(never) => match never {},
            };
            let (mut sent, mut lost) = (0, 0);
            let mut send = |to: SocketAddr| match ports.send(usize::from(transmit.port.0), to, bytes) {
                true => sent += 1,
                false => lost += 1,
            };
            match (transmit.port, address_of(transmit.peer)) {
                // The endpoint gives the address of a known peer.
                (_, Some(to)) => send(to),
                (Central::HOSTS, None) => options.hosts.iter().for_each(|to| send((*to).into())),
                _ => {
                    let number = transmit.peer.as_bytes().try_into().map_or(0, u16::from_be_bytes);
                    let at = options.config.level1.iter().position(|other| *other == number);
                    at.and_then(|at| options.level1.get(at)).into_iter().for_each(|to| send((*to).into()));
                }
            }
            *unsent += lost;
            // One of several addresses may be unused: a message is lost only if all sends failed.
            if sent == 0 && lost > 0 {
                endpoint.count_unsent(transmit.port, bytes);
            }
        });
        Ok(ready)
    }

    fn local_addresses(&self) -> String {
        let local = |port: Port, configured: SocketAddrV4| {
            let at = self.event_loop.ports.socket(usize::from(port.0)).local_addr();
            at.map_or_else(|_| configured.to_string(), |at| at.to_string())
        };
        let CentralOptions { listen_level1, listen_hosts, hosts, .. } = &self.options;
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let destinations =
            if hosts.is_empty() { String::new() } else { format!(", destinations {}", hosts.join(", ")) };
        format!(
            "central on {} for level 1 and {} for hosts{destinations}",
            local(Central::LEVEL1, *listen_level1),
            local(Central::HOSTS, *listen_hosts),
        )
    }

    fn next_warning(&mut self) -> Option<String> {
        self.warnings.next_line()
    }

    fn collect_metrics(&self, into: &mut Metrics) {
        let machine = &self.event_loop.endpoint;
        let statistics = machine.statistics();
        into.add_counter(BUNDLES, &[("way", "in")], statistics.bundles_received);
        into.add_counter(BUNDLES, &[("way", "out")], statistics.bundles_sent);
        for (way, count) in [
            ("from_level1", statistics.from_level1),
            ("from_hosts", statistics.from_hosts),
            ("to_level1", statistics.to_level1),
            ("to_hosts", statistics.to_hosts),
        ] {
            into.add_counter(MESSAGES, &[("way", way)], count);
        }
        let metric = ("trunkline_converter_control_total", "Joins and drops of hosts.");
        into.add_counter(metric, &[], statistics.control_messages);
        into.add_counter(MALFORMED, &[("way", "in")], statistics.malformed);
        into.add_drops("to_hosts", &statistics.drops_to_hosts);
        into.add_drops("to_level1", &statistics.drops_to_level1);
        let metric =
            ("trunkline_converter_hosts_removed_total", "Hosts whose interest was removed after a refusal.");
        into.add_counter(metric, &[], statistics.hosts_removed);
        let metric = ("trunkline_converter_retold_total", "Joins sent again as a refresh.");
        into.add_counter(metric, &[], statistics.joins_refreshed);
        let metric =
            ("trunkline_converter_strays_total", "Leaves sent again for groups that level 1 still forwards.");
        into.add_counter(metric, &[], statistics.stray_groups);
        add_group_moves(into, &statistics.level1);
        add_send_errors(into, self.refused, self.unsent);
        add_overflows(into, &self.event_loop.ports, &["level1", "hosts"]);
        let (local, wide_area) = machine.levels();
        into.add_gauge(LEVEL, &[("side", "hosts")], local.into());
        into.add_gauge(LEVEL, &[("side", "wide")], wide_area.into());
        match machine.format2() {
            Some(format2) => add_format2_metrics(into, machine, format2),
            None => self.add_classic_metrics(into),
        }
        add_coalescing(into, &self.event_loop.ports, &["level1", "hosts"], std::net::Ipv4Addr::UNSPECIFIED);
    }
}

const ASSIGNED_GROUPS: MetricName = ("trunkline_converter_held", "Multicast groups assigned to level 1.");

impl CentralSocket {
    fn add_classic_metrics(&self, into: &mut Metrics) {
        let Some(interest) = self.event_loop.endpoint.subscriptions() else { return };
        for host in 1..=self.options.config.hosts.min(MAX_HOSTS) {
            let wanted = interest.addresses_of(host).count() as u64;
            into.add_gauge(JOINED_ADDRESSES, &[("host", &host.to_string())], wanted);
        }
        for number in &self.options.config.level1 {
            let held = interest.owned_by(*number).count() as u64;
            into.add_gauge(ASSIGNED_GROUPS, &[("level1", &number.to_string())], held);
        }
    }
}

/// Adds the moves of packet addresses.
fn add_group_moves(into: &mut Metrics, converters: &Level1PeerCounts) {
    let metric =
        ("trunkline_converter_moved_total", "Groups with subscribers that moved between level-1 converters.");
    into.add_counter(metric, &[], converters.moved);
    let metric = (
        "trunkline_converter_gap_microseconds",
        "Microseconds in which moving groups had no converter: the sum, and the longest gap.",
    );
    for (of, gap) in [("all", converters.total_gap), ("longest", converters.longest_gap)] {
        into.add_gauge(metric, &[("of", of)], gap.as_ns() / 1_000);
    }
}

fn add_format2_metrics(into: &mut Metrics, machine: &Central, format2: &Format2Central) {
    let statistics = machine.statistics();
    let converters = &statistics.level1;
    for (of, started, ended) in [
        ("hosts", statistics.hosts_joined, statistics.hosts_left),
        ("level1", converters.sessions_started, converters.sessions_ended),
    ] {
        into.add_counter(SESSIONS, &[("of", of)], started);
        into.add_counter(TIMEOUTS, &[("of", of)], ended);
    }
    let metric = (
        "trunkline_converter_changes_total",
        "Joins and drops of hosts that were refused for lack of room, and times that some were deferred.",
    );
    for (reason, count) in [("refused", statistics.changes_refused), ("put_off", statistics.changes_deferred)]
    {
        into.add_counter(metric, &[("why", reason)], count);
    }
    let metric = (
        "trunkline_converter_interest",
        "Segments into which hosts' ranges divide the addresses, and host entries in them.",
    );
    let segments = format2.segments();
    for (of, count) in [("pieces", segments.len()), ("wants", segments.host_entries())] {
        into.add_gauge(metric, &[("of", of)], count as u64);
    }
    into.add_counter(RETRANSMISSIONS, &[], statistics.retransmissions);
    into.add_counter(LOOPED_BACK, &[], statistics.looped_back);
    add_sequence_counts(into, &statistics.sequence, statistics.stale);
    let (hosts, level1) = machine.rates();
    for (medium, rate) in
        [("hosts", hosts), ("wide", level1)].into_iter().filter(|(_, rate)| *rate != NO_LIMIT)
    {
        let metric = (
            "trunkline_converter_rate_octets",
            "Octets per second of ordinary messages that may be sent to the converter; absent without a limit.",
        );
        into.add_gauge(metric, &[("side", medium)], rate.into());
    }
    let metric = ("trunkline_converter_hosts", "Present hosts.");
    into.add_gauge(metric, &[], format2.members().len() as u64);
    for member in format2.members().iter() {
        let host = member.session.number.to_string();
        let wanted = member.interest().iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        into.add_gauge(JOINED_ADDRESSES, &[("host", &host)], wanted);
        into.add_counter(LOST, &[("host", &host)], member.session.link.lost.into());
    }
    for converter in format2.level1_peers().iter() {
        let Some(session) = converter.session() else { continue };
        let number = converter.number.to_string();
        into.add_gauge(ASSIGNED_GROUPS, &[("level1", &number)], converter.target().count() as u64);
        into.add_counter(LOST, &[("level1", &number)], session.link.lost.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusing_host_is_identified_by_its_source_address() {
        let v4 = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        let from = |text: &str| Some(SocketAddr::V4(v4(text)));
        let host_sources =
            [from("10.0.0.1:3459"), from("10.0.0.2:777"), None, from("10.0.0.4:3459"), from("10.0.0.4:9")];
        let hosts =
            ["10.0.0.1:3459", "10.0.0.2:3459", "10.0.0.3:3459", "10.0.0.4:3459", "10.0.0.4:3460"].map(v4);
        let of = |text: &str| host_at(&host_sources, &hosts, v4(text).into());
        assert_eq!(of("10.0.0.1:3459"), Some(1));
        assert_eq!(
            of("10.0.0.2:3459"),
            Some(2),
            "it sends from another port of its machine, which has no other host"
        );
        assert_eq!(of("10.0.0.3:3459"), None);
        assert_eq!((of("10.0.0.4:3459"), of("10.0.0.4:3460")), (Some(4), None));
    }
}

//! Bundles in experiments: subscriptions of hosts, configuration of converters, and their counters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::drops::DropCounts;
use trunkline_bundle::host::OutgoingMessage;
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::single_message::WideAreaSender;
use trunkline_bundle::wire::classic::MAX_HOSTS;
use trunkline_bundle::wire::format2::{self, MIN_DATAGRAM, packet_address};
use trunkline_bundle::{Format, Format2, Host, Settings, central};
use trunkline_experiment::converters::{Segments, Sides, number};
use trunkline_experiment::message_sizes;
use trunkline_experiment::plan::{
    BundleDeadlines, BundleFormat, BundlePriority, BundleTimers, Connection, Network, Node, NodeKind, Plan,
    Protocol,
};
use trunkline_traffic::Variable;
use trunkline_units::{Instant, Rate, Span};

/// The multicast address of the first 32 message addresses in the wide area. Each further block of 32 message addresses
/// uses the next multicast address.
pub const WIDE_AREA_BASE: Ipv4Addr = Ipv4Addr::new(234, 5, 1, 1);
/// The UDP ports of all converters.
pub const PORTS: Ports =
    Ports { wide_area: 3456, from_level1: 3450, to_level1: 3457, from_hosts: 3458, to_hosts: 3459 };

/// UDP ports of bundle converters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Messages in the wide area.
    pub wide_area: u16,
    /// Bundles from level 1 to the central converter.
    pub from_level1: u16,
    /// Bundles from the central converter to level 1.
    pub to_level1: u16,
    /// Bundles from hosts to the central converter.
    pub from_hosts: u16,
    /// Bundles from the central converter to hosts.
    pub to_hosts: u16,
}

/// Octets of the longest message in bundle format 1 (classic): with address, mask, end and count it fills a bundle.
pub const MAX_CLASSIC_MESSAGE: u32 = 65_500;
/// Octets of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// Site of the hosts of the central converter. Each host in the wide area has one of the following sites.
const LOCAL_SITE: u16 = 1;
/// Interval over which a converter measures the load of its medium.
const LOAD_INTERVAL: Span = Span::from_ms(5);

/// Returns the multicast address of a message address in the wide area.
pub fn group_of_address(address: u32) -> Ipv4Addr {
    group_of_packet(packet_address(address))
}

/// Returns the multicast address of a packet address.
pub fn group_of_packet(packet: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(WIDE_AREA_BASE) + u32::from(packet))
}

/// Returns the participants of bundling; `None` if the plan has none.
pub fn sides(plan: &Plan) -> Option<Sides<'_>> {
    let network = plan.network.as_ref()?;
    Sides::of(network, &Segments::of(network), &plan.connections)
}

fn address(protocol: &Protocol) -> Option<u32> {
    match protocol {
        Protocol::Bundle { address, .. } => Some(*address),
        _ => None,
    }
}

/// Returns the message addresses of a plan.
pub fn addresses(plan: &Plan) -> BTreeSet<u32> {
    plan.connections.iter().filter_map(|c| address(&c.protocol)).collect()
}

/// Returns the message addresses that a host subscribes to.
pub fn subscriptions(plan: &Plan, host: &str) -> BTreeSet<u32> {
    let received_by_host = plan.connections.iter().filter(|c| c.to.iter().any(|to| to.host == host));
    received_by_host.filter_map(|c| address(&c.protocol)).collect()
}

/// The configuration of a converter or of a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConverterConfig {
    /// Wire format.
    pub format: BundleFormat,
    /// When bundles are sent.
    pub timers: BundleTimers,
    /// How long messages may wait.
    pub deadlines: BundleDeadlines,
    /// Largest datagram that each link carries in one packet, octets (bundle format 2).
    pub path_mtu: usize,
}

impl ConverterConfig {
    /// Returns the configuration of a converter in a network.
    pub fn from_node(network: &Network, node: &Node) -> ConverterConfig {
        let mtu = network.links.iter().map(|link| link.mtu.as_bytes()).min().unwrap_or(0);
        let path_mtu = (mtu.saturating_sub(HEADERS) as usize).max(MIN_DATAGRAM);
        match node.kind {
            NodeKind::Converter { format, timers, deadlines, .. } => {
                ConverterConfig { format, timers, deadlines, path_mtu }
            }
            _ => {
                let (format, timers) = (BundleFormat::Classic, BundleTimers::Classic);
                ConverterConfig { format, timers, deadlines: BundleDeadlines::default(), path_mtu }
            }
        }
    }

    /// Returns the settings of the state machine. In format 1 odd addresses are priority messages.
    pub fn settings(&self) -> Settings {
        let default_timing = match self.timers {
            BundleTimers::Classic => Timing::CLASSIC,
            BundleTimers::Adaptive => Timing::LEAST_DELAY,
            BundleTimers::Processor => Timing::LEAST_PROCESSOR,
        };
        let BundleDeadlines { ordinary, priority } = self.deadlines;
        let timing = default_timing.with_deadlines(ordinary, priority).unwrap_or(default_timing);
        let (format, odd_is_priority) = match self.format {
            BundleFormat::Classic => (Format::Classic, true),
            BundleFormat::Wide => {
                let max_datagram = self.path_mtu;
                (Format::Format2(Format2 { site: LOCAL_SITE, max_datagram, ..Format2::default() }), false)
            }
        };
        Settings { timing, pairs: odd_is_priority, format, ..Settings::default() }
    }

    /// Returns the octets of the longest message.
    pub fn max_message(&self) -> u32 {
        match self.format {
            BundleFormat::Classic => MAX_CLASSIC_MESSAGE,
            BundleFormat::Wide => format2::max_body(self.path_mtu) as u32,
        }
    }

    /// Returns the sender for the host with this index in the wide area; `None` in format 1, which sends messages unchanged.
    pub fn wide_area_sender(&self, index: usize) -> Option<WideAreaSender> {
        let is_format2 = self.format == BundleFormat::Wide;
        let site = u16::try_from(index).unwrap_or(u16::MAX).saturating_add(LOCAL_SITE + 1);
        is_format2.then(|| WideAreaSender::new(site, 1, self.path_mtu))
    }
}

/// Returns the configuration of a plan's central converter; `None` if the plan has no bundles.
pub fn converter_config(plan: &Plan) -> Option<ConverterConfig> {
    Some(ConverterConfig::from_node(plan.network.as_ref()?, sides(plan)?.central.first()?))
}

/// Address and options of a connection's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOptions {
    /// Message address.
    pub address: u32,
    /// Whether the messages have priority.
    pub priority: bool,
    /// Maximum time in each converter, if specified.
    pub within: Option<Span>,
}

impl MessageOptions {
    /// Returns the options of a connection over bundles.
    pub fn from_protocol(protocol: &Protocol, format: BundleFormat) -> Option<MessageOptions> {
        let Protocol::Bundle { address, priority, within } = *protocol else { return None };
        let priority = match format {
            BundleFormat::Classic => address % 2 == 1,
            BundleFormat::Wide => priority == Some(BundlePriority::High),
        };
        Some(MessageOptions { address, priority, within })
    }

    /// Returns a message with these options.
    pub fn to_outgoing<'b>(&self, body: &'b [u8]) -> OutgoingMessage<'b> {
        let MessageOptions { address, priority, within } = *self;
        OutgoingMessage { address, priority, max_wait: within, body }
    }
}

/// Returns the medium model for a converter's capacity. Without a capacity there is never congestion.
pub fn medium(capacity: Option<Rate>) -> Medium {
    let octets =
        |rate: Rate| (rate.as_bps() as u128 * LOAD_INTERVAL.as_ps() as u128 / 8_000_000_000_000) as u64;
    Medium { capacity: capacity.map_or(1 << 50, |rate| octets(rate).max(1)), interval: LOAD_INTERVAL }
}

/// Returns the capacity of a converter's medium.
fn capacity(node: &Node) -> Option<Rate> {
    match node.kind {
        NodeKind::Converter { capacity, .. } => capacity,
        _ => None,
    }
}

/// The configuration of a plan's central converter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CentralConfig {
    /// Configuration of the converter.
    pub converter: ConverterConfig,
    /// Capacity of the hosts' medium.
    pub capacity: Option<Rate>,
    /// Capacity of the level 1 side.
    pub wide_area: Option<Rate>,
    /// Numbers of its level 1 converters.
    pub level1: Vec<u16>,
    /// Number of its hosts.
    pub hosts: u16,
}

impl CentralConfig {
    /// Returns the configuration from a plan; `None` if the plan has no central converter.
    pub fn from_plan(network: &Network, sides: &Sides<'_>) -> Option<CentralConfig> {
        let node = *sides.central.first()?;
        Some(CentralConfig {
            converter: ConverterConfig::from_node(network, node),
            capacity: capacity(node),
            wide_area: sides.level1.iter().filter_map(|node| capacity(node)).min(),
            level1: sides.level1.iter().map(|node| number(node) as u16).collect(),
            hosts: u16::try_from(sides.hosts.len()).unwrap_or(u16::MAX).max(1),
        })
    }

    /// Returns the configuration of the state machine.
    pub fn to_state_machine_config(&self) -> central::CentralConfig {
        let mut settings = self.converter.settings();
        if let Format::Format2(format2) = &mut settings.format {
            format2.max_hosts = format2.max_hosts.max(self.hosts);
        }
        central::CentralConfig {
            settings,
            level1: self.level1.clone(),
            hosts: self.hosts.min(MAX_HOSTS.into()) as u8,
            local: medium(self.capacity),
            wide_area: medium(self.wide_area),
        }
    }
}

/// Returns why the messages of a connection are refused over bundles. `max_message` is in octets.
pub fn refuse_size(c: &Connection, max_message: u32) -> Option<String> {
    let mut sizes = message_sizes(&c.test).into_iter().filter_map(|(_, size)| match size {
        Variable::Constant(size) if *size > f64::from(max_message) => Some(size),
        _ => None,
    });
    let size = sizes.next()?;
    Some(format!("a message of {size} B does not fit into a bundle: the maximum is {max_message} B"))
}

/// Counters of a state machine by their names in the record.
pub type Counts = BTreeMap<String, u64>;

/// Returns the counters of a level 1 converter. `joins` counts joins of groups, `joined` the current memberships.
pub fn level1_counts(state_machine: &Level1, now: Instant, joins: u64, joined: u64) -> Counts {
    let s = state_machine.statistics();
    let counts = [
        ("heard", s.received),
        ("sent", s.sent),
        ("bundles_received", s.bundles_received),
        ("bundles_sent", s.bundles_sent),
        ("joins", joins),
        ("joined", joined),
        ("malformed", s.malformed),
        ("level", state_machine.level(now).into()),
    ];
    prefixed(&counts, &[("in", s.drops), ("out", s.drops_outgoing)])
}

/// Returns the counters of a central converter.
pub fn central_counts(state_machine: &central::Central) -> Counts {
    let s = state_machine.statistics();
    let (local, wide_area) = state_machine.levels();
    let counts = [
        ("from_level1", s.from_level1),
        ("from_hosts", s.from_hosts),
        ("to_level1", s.to_level1),
        ("to_hosts", s.to_hosts),
        ("bundles_received", s.bundles_received),
        ("bundles_sent", s.bundles_sent),
        ("control", s.control_messages),
        ("malformed", s.malformed),
        ("level_local", local.into()),
        ("level_wide", wide_area.into()),
    ];
    let mut all = prefixed(&counts, &[("in", s.drops_to_hosts), ("out", s.drops_to_level1)]);
    if state_machine.format2().is_some() {
        let failover = &s.level1;
        let gap = failover.total_gap.as_ns() / 1_000;
        let counts =
            [("repeated", s.retransmissions), ("lost", s.lost), ("moved", failover.moved), ("gap_us", gap)];
        all.extend(counts.map(|(name, count)| (format!("bundle.{name}"), count)));
    }
    all
}

/// Returns the counters of a host's interface.
pub fn host_counts(state_machine: &Host, now: Instant) -> Counts {
    let s = state_machine.statistics();
    let counts = [
        ("received", s.received),
        ("others", s.for_others),
        ("sent", s.sent),
        ("bundles_received", s.bundles_received),
        ("bundles_sent", s.bundles_sent),
        ("malformed", s.malformed),
        ("level", state_machine.level(now).into()),
    ];
    prefixed(&counts, &[("messages", s.drops)])
}

/// Adds the prefix `bundle.` to counters, and appends the drops by direction and reason, with a sum for priority messages.
fn prefixed(counts: &[(&str, u64)], drops: &[(&str, DropCounts)]) -> Counts {
    let mut all: Counts = counts.iter().map(|(name, count)| (format!("bundle.{name}"), *count)).collect();
    for (direction, drops) in drops {
        for reason in DropCounts::REASONS {
            let count = drops.get(reason, false) + drops.get(reason, true);
            all.insert(format!("bundle.dropped.{direction}.{}", reason.name()), count);
        }
        let priority = DropCounts::REASONS.iter().map(|reason| drops.get(*reason, true)).sum();
        all.insert(format!("bundle.dropped.{direction}.priority"), priority);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_addresses_have_multicast_addresses() {
        assert_eq!(group_of_address(31), WIDE_AREA_BASE);
        assert_eq!(group_of_address(32), Ipv4Addr::new(234, 5, 1, 2));
        assert_eq!(group_of_address(65_535), Ipv4Addr::new(234, 5, 9, 0));
    }

    #[test]
    fn capacities_are_in_octets_per_load_interval() {
        let octets = |kbps: u64| medium(Some(Rate::from_bps(kbps * 1_000))).capacity;
        // Those of Bobo (1997).
        assert_eq!((octets(9_600), octets(96_000)), (6_000, 60_000));
        assert!(medium(None).capacity > 1 << 40);
    }
}

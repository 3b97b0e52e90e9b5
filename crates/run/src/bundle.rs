//! Bundles as experiments have them: who wants which messages, and what converters agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trunkline_bundle::drops::Drops;
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::Post;
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::wide::alone::Caster;
use trunkline_bundle::wire::classic::{MOST_HOSTS, bit};
use trunkline_bundle::wire::wide::{self, LEAST_PATH, packet_of};
use trunkline_bundle::{Format, Host, Settings, Wide, central};
use trunkline_experiment::converters::{Segments, Sides, number};
use trunkline_experiment::plan::{
    BundleDeadlines, BundleFormat, BundlePriority, BundleTimers, Connection, Network, Node, NodeKind, Plan,
    Protocol,
};
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::{Instant, Rate, Span};

/// The multicast address of the first 32 message addresses in the wide area; the next 32 have the next.
pub const BASE: Ipv4Addr = Ipv4Addr::new(234, 5, 1, 1);
/// UDP ports of the wide area, and of bundles for the central converter from level 1, for level 1, for the central converter
/// from hosts, and for hosts.
pub const PORTS: Ports =
    Ports { wide: 3456, from_level1: 3450, to_level1: 3457, from_hosts: 3458, to_hosts: 3459 };

/// UDP ports of converters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Messages in the wide area.
    pub wide: u16,
    /// Level 1 → central.
    pub from_level1: u16,
    /// Central → level 1.
    pub to_level1: u16,
    /// Hosts → central.
    pub from_hosts: u16,
    /// Central → hosts.
    pub to_hosts: u16,
}

/// Octets of the longest message of the classic format: with its address, mask, end and count it is a bundle of its own.
pub const LONGEST: u32 = 65_500;
/// What of a packet is no datagram: the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// The site of the hosts of the central converter; those in the wide area are of the sites that follow, one each.
const SITE: u16 = 1;
/// Over what time a converter looks at its medium.
const INTERVAL: Span = Span::from_ms(5);

/// The multicast address of a message address in the wide area.
pub fn group_of(address: u32) -> Ipv4Addr {
    group(packet_of(address))
}

/// The multicast address of a packet address.
pub fn group(packet: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(BASE) + u32::from(packet))
}

/// Who takes part in bundling; none, if nobody does.
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

/// The message addresses of a plan.
pub fn addresses(plan: &Plan) -> BTreeSet<u32> {
    plan.connections.iter().filter_map(|c| address(&c.protocol)).collect()
}

/// The message addresses that a host wants.
pub fn wanted(plan: &Plan, host: &str) -> BTreeSet<u32> {
    let of_host = plan.connections.iter().filter(|c| c.to.iter().any(|to| to.host == host));
    of_host.filter_map(|c| address(&c.protocol)).collect()
}

/// The site of a host in the wide area, by its place among them.
pub fn site_in_the_wide_area(at: usize) -> u16 {
    SITE.saturating_add(1).saturating_add(u16::try_from(at).unwrap_or(u16::MAX))
}

/// How converters, and the interfaces of hosts, work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Works {
    /// What stands on the wire.
    pub format: BundleFormat,
    /// When bundles leave.
    pub timers: BundleTimers,
    /// How long messages may wait.
    pub deadlines: BundleDeadlines,
    /// Octets of a datagram that each link carries in one packet; of the wide format.
    pub path: usize,
}

impl Works {
    /// As a converter of a network does.
    pub fn of(network: &Network, node: &Node) -> Works {
        let mtu = network.links.iter().map(|link| link.mtu.as_bytes()).min().unwrap_or(0);
        let path = (mtu.saturating_sub(HEADERS) as usize).max(LEAST_PATH);
        match node.kind {
            NodeKind::Converter { format, timers, deadlines, .. } => {
                Works { format, timers, deadlines, path }
            }
            _ => {
                let (format, timers) = (BundleFormat::Classic, BundleTimers::Classic);
                Works { format, timers, deadlines: BundleDeadlines::default(), path }
            }
        }
    }

    /// The settings of its machine. In the classic format odd addresses are priority messages.
    pub fn settings(&self) -> Settings {
        let usual = match self.timers {
            BundleTimers::Classic => Timing::CLASSIC,
            BundleTimers::Adaptive => Timing::LEAST_DELAY,
            BundleTimers::Processor => Timing::LEAST_PROCESSOR,
        };
        let BundleDeadlines { ordinary, priority } = self.deadlines;
        let timing = usual.with_deadlines(ordinary, priority).unwrap_or(usual);
        let (format, pairs) = match self.format {
            BundleFormat::Classic => (Format::Classic, true),
            BundleFormat::Wide => {
                (Format::Wide(Wide { site: SITE, path: self.path, ..Wide::default() }), false)
            }
        };
        Settings { timing, pairs, format, ..Settings::default() }
    }

    /// Octets of the longest message.
    pub fn longest(&self) -> u32 {
        match self.format {
            BundleFormat::Classic => LONGEST,
            BundleFormat::Wide => wide::longest_body(self.path) as u32,
        }
    }

    /// Who sends what a host in the wide area says, which is the one at this place among them; none in the classic format, where
    /// a message is sent as it is.
    pub fn caster(&self, at: usize) -> Option<Caster> {
        let is_wide = self.format == BundleFormat::Wide;
        is_wide.then(|| Caster::new(site_in_the_wide_area(at), 1, self.path))
    }
}

/// How the converters of a plan work, as its central one says; none, if nothing is bundled.
pub fn works(plan: &Plan) -> Option<Works> {
    Some(Works::of(plan.network.as_ref()?, sides(plan)?.central.first()?))
}

/// What the messages of a connection say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// To whom.
    pub address: u32,
    /// Whether they have priority.
    pub priority: bool,
    /// How long each may wait in each converter, if it says so.
    pub within: Option<Span>,
}

impl Label {
    /// Those of a connection over bundles.
    pub fn of(protocol: &Protocol, format: BundleFormat) -> Option<Label> {
        let Protocol::Bundle { address, priority, within } = *protocol else { return None };
        let priority = match format {
            BundleFormat::Classic => address % 2 == 1,
            BundleFormat::Wide => priority == Some(BundlePriority::High),
        };
        Some(Label { address, priority, within })
    }

    /// A message with such a label.
    pub fn post<'b>(&self, body: &'b [u8]) -> Post<'b> {
        let Label { address, priority, within } = *self;
        Post { address, priority, within, body }
    }
}

/// The medium that a converter's capacity describes; without one no level of congestion is ever reached.
pub fn medium(capacity: Option<Rate>) -> Medium {
    let octets = |rate: Rate| (rate.as_bps() as u128 * INTERVAL.as_ps() as u128 / 8_000_000_000_000) as u64;
    Medium { capacity: capacity.map_or(1 << 50, |rate| octets(rate).max(1)), interval: INTERVAL }
}

/// What the medium of a converter carries.
fn capacity(node: &Node) -> Option<Rate> {
    match node.kind {
        NodeKind::Converter { capacity, .. } => capacity,
        _ => None,
    }
}

/// What a plan says of its central converter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Central {
    /// How it works.
    pub works: Works,
    /// What the hosts' medium carries.
    pub capacity: Option<Rate>,
    /// What the side of level 1 carries.
    pub wide: Option<Rate>,
    /// The numbers of its converters of level 1.
    pub level1: Vec<u16>,
    /// How many hosts it has.
    pub hosts: u16,
}

impl Central {
    /// That of a plan; none, if there is none.
    pub fn of(network: &Network, sides: &Sides<'_>) -> Option<Central> {
        let node = *sides.central.first()?;
        Some(Central {
            works: Works::of(network, node),
            capacity: capacity(node),
            wide: sides.level1.iter().filter_map(|node| capacity(node)).min(),
            level1: sides.level1.iter().map(|node| number(node) as u16).collect(),
            hosts: u16::try_from(sides.hosts.len()).unwrap_or(u16::MAX).max(1),
        })
    }

    /// What its machine is made from.
    pub fn config(&self) -> central::Config {
        let mut settings = self.works.settings();
        if let Format::Wide(wide) = &mut settings.format {
            wide.most_hosts = wide.most_hosts.max(self.hosts);
        }
        central::Config {
            settings,
            level1: self.level1.clone(),
            hosts: self.hosts.min(MOST_HOSTS.into()) as u8,
            local: medium(self.capacity),
            wide: medium(self.wide),
        }
    }
}

/// Whether a central converter knows that a host wants an address.
pub fn knows(machine: &central::Central, host: u16, address: u32) -> bool {
    match machine.wide() {
        Some(wide) => wide.segments().hosts(address).contains(&host),
        None => machine.interest().group(address as u16) & bit(host as u8) != 0,
    }
}

/// Why a test does not go over bundles on `backend`. A sender must have a pace: a host's interface takes any number of messages
/// at once, and drops what is too much.
/// `longest` octets are the most of a message.
pub fn refuse_test(backend: &str, c: &Connection, longest: u32) -> Option<String> {
    let no_test = |name: &str| Some(format!("`{backend}` has no test `{name}` over bundle"));
    let sizes = match &c.test {
        Pattern::Full { .. } => return no_test("full"),
        Pattern::Request { .. } => return no_test("request"),
        Pattern::File { .. } => return no_test("file"),
        Pattern::Application { .. } => return None,
        Pattern::Poisson { size_bytes, .. } | Pattern::Stairs { size_bytes, .. } => size_bytes,
        Pattern::Cbr { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Burst { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Random { burst: Burst { size_bytes, .. }, .. } => size_bytes,
    };
    match sizes {
        Variable::Constant(size) if *size > f64::from(longest) => {
            Some(format!("a message of {size} B does not go into a bundle: at most {longest} B do"))
        }
        _ => None,
    }
}

/// What a machine counted, by the record's names.
pub type Counts = BTreeMap<String, u64>;

/// What a converter of level 1 counted by now; it joined groups so many times, and now has so many.
pub fn of_level1(machine: &Level1, now: Instant, joins: u64, joined: u64) -> Counts {
    let s = machine.statistics();
    let counts = [
        ("heard", s.heard),
        ("sent", s.sent),
        ("bundles_received", s.bundles),
        ("bundles_sent", s.bundles_sent),
        ("joins", joins),
        ("joined", joined),
        ("malformed", s.malformed),
        ("level", machine.level(now).into()),
    ];
    named(&counts, &[("in", s.drops), ("out", s.drops_out)])
}

/// What a central converter counted.
pub fn of_central(machine: &central::Central) -> Counts {
    let s = machine.statistics();
    let (local, wide) = machine.levels();
    let counts = [
        ("from_level1", s.from_level1),
        ("from_hosts", s.from_hosts),
        ("to_level1", s.to_level1),
        ("to_hosts", s.to_hosts),
        ("bundles_received", s.bundles),
        ("bundles_sent", s.bundles_sent),
        ("control", s.control),
        ("malformed", s.malformed),
        ("level_local", local.into()),
        ("level_wide", wide.into()),
    ];
    let mut named = named(&counts, &[("in", s.drops_to_hosts), ("out", s.drops_to_level1)]);
    if machine.wide().is_some() {
        let sides = &s.sides;
        let gap = sides.gaps.as_ns() / 1_000;
        let counts = [("repeated", s.repeated), ("lost", s.lost), ("moved", sides.moved), ("gap_us", gap)];
        named.extend(counts.map(|(name, count)| (format!("bundle.{name}"), count)));
    }
    named
}

/// What the interface of a host counted by now.
pub fn of_host(machine: &Host, now: Instant) -> Counts {
    let s = machine.statistics();
    let counts = [
        ("received", s.received),
        ("others", s.others),
        ("sent", s.sent),
        ("bundles_received", s.bundles),
        ("bundles_sent", s.bundles_sent),
        ("malformed", s.malformed),
        ("level", machine.level(now).into()),
    ];
    named(&counts, &[("messages", s.drops)])
}

/// Counts, and what was dropped by its way and why; of priority messages also all together.
fn named(counts: &[(&str, u64)], drops: &[(&str, Drops)]) -> Counts {
    let mut all: Counts = counts.iter().map(|(name, count)| (format!("bundle.{name}"), *count)).collect();
    for (way, drops) in drops {
        for why in Drops::REASONS {
            let count = drops.get(why, false) + drops.get(why, true);
            all.insert(format!("bundle.dropped.{way}.{}", why.name()), count);
        }
        let priority = Drops::REASONS.iter().map(|why| drops.get(*why, true)).sum();
        all.insert(format!("bundle.dropped.{way}.priority"), priority);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_the_wide_area() {
        assert_eq!(group_of(31), BASE);
        assert_eq!(group_of(32), Ipv4Addr::new(234, 5, 1, 2));
        assert_eq!(group_of(65_535), Ipv4Addr::new(234, 5, 9, 0));
    }

    #[test]
    fn capacities_are_those_of_1997() {
        let octets = |mbps: u64| medium(Some(Rate::from_bps(mbps * 100_000))).capacity;
        assert_eq!((octets(96), octets(960)), (6_000, 60_000));
        assert!(medium(None).capacity > 1 << 40);
    }
}

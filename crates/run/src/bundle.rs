//! Bundles as experiments have them: who wants which messages, and what converters agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trunkline_bundle::drops::Drops;
use trunkline_bundle::gather::Timing;
use trunkline_bundle::interest::packet;
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::{Host, Settings, central};
use trunkline_experiment::converters::{Segments, Sides, number};
use trunkline_experiment::plan::{
    BundleFormat, BundleTimers, Connection, Network, Node, NodeKind, Plan, Protocol,
};
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::{Instant, Rate, Span};

use crate::Refusal;

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

/// Octets of the longest message: with its address, mask, end and count it is a bundle of its own.
pub const LONGEST: u32 = 65_500;
/// Over what time a converter looks at its medium.
const INTERVAL: Span = Span::from_ms(5);

/// The multicast address of a message address in the wide area.
pub fn group_of(address: u32) -> Ipv4Addr {
    group(packet(address as u16))
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

/// The message addresses of a plan.
pub fn addresses(plan: &Plan) -> BTreeSet<u16> {
    let address = |protocol: &Protocol| match protocol {
        Protocol::Bundle { address, .. } => Some(*address as u16),
        _ => None,
    };
    plan.connections.iter().filter_map(|c| address(&c.protocol)).collect()
}

/// The message addresses that a host wants.
pub fn wanted(plan: &Plan, host: &str) -> BTreeSet<u16> {
    let of_host = plan.connections.iter().filter(|c| c.to.iter().any(|to| to.host == host));
    let address = |protocol: &Protocol| match protocol {
        Protocol::Bundle { address, .. } => Some(*address as u16),
        _ => None,
    };
    of_host.filter_map(|c| address(&c.protocol)).collect()
}

/// How converters with such timers work. Odd addresses are priority messages.
pub fn settings(timers: BundleTimers) -> Settings {
    let timing = match timers {
        BundleTimers::Classic => Timing::CLASSIC,
        BundleTimers::Adaptive => Timing::LEAST_DELAY,
    };
    Settings { timing, pairs: true, ..Settings::default() }
}

/// The medium that a converter's capacity describes; without one no level of congestion is ever reached.
pub fn medium(capacity: Option<Rate>) -> Medium {
    let octets = |rate: Rate| (rate.as_bps() as u128 * INTERVAL.as_ps() as u128 / 8_000_000_000_000) as u64;
    Medium { capacity: capacity.map_or(1 << 50, |rate| octets(rate).max(1)), interval: INTERVAL }
}

/// When bundles leave a converter, and what its medium carries.
pub fn options(node: &Node) -> (BundleTimers, Option<Rate>) {
    match node.kind {
        NodeKind::Converter { timers, capacity, .. } => (timers, capacity),
        _ => (BundleTimers::Classic, None),
    }
}

/// What a plan says of its central converter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Central {
    /// When its bundles leave.
    pub timers: BundleTimers,
    /// What the hosts' medium carries.
    pub capacity: Option<Rate>,
    /// What the side of level 1 carries.
    pub wide: Option<Rate>,
    /// The numbers of its converters of level 1.
    pub level1: Vec<u16>,
    /// How many hosts it has.
    pub hosts: u8,
}

impl Central {
    /// That of a plan; none, if there is none.
    pub fn of(sides: &Sides<'_>) -> Option<Central> {
        let (timers, capacity) = options(sides.central.first()?);
        Some(Central {
            timers,
            capacity,
            wide: sides.level1.iter().filter_map(|node| options(node).1).min(),
            level1: sides.level1.iter().map(|node| number(node) as u16).collect(),
            hosts: sides.hosts.len().clamp(1, 16) as u8,
        })
    }

    /// What its machine is made from.
    pub fn config(&self) -> central::Config {
        central::Config {
            settings: settings(self.timers),
            level1: self.level1.clone(),
            hosts: self.hosts,
            local: medium(self.capacity),
            wide: medium(self.wide),
        }
    }
}

/// Converters of a network whose format `backend` does not have yet, each by name and place.
pub fn refuse_format(backend: &str, network: &Network) -> Vec<Refusal> {
    let is_wide = |node: &&Node| matches!(node.kind, NodeKind::Converter { format: BundleFormat::Wide, .. });
    let refusal = |node: &Node| {
        let text = format!("`{backend}` has no `format = wide` of bundles yet: `{}`", node.name);
        Refusal { place: node.place, text }
    };
    network.nodes.iter().filter(is_wide).map(refusal).collect()
}

/// Why a test does not go over bundles on `backend`. A sender must have a pace: a host's interface takes any number of messages
/// at once, and drops what is too much.
pub fn refuse_test(backend: &str, c: &Connection) -> Option<String> {
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
        Variable::Constant(size) if *size > f64::from(LONGEST) => {
            Some(format!("a message of {size} B does not go into a bundle: at most {LONGEST} B do"))
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
    named(&counts, &[("in", s.drops_to_hosts), ("out", s.drops_to_level1)])
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

//! Bundles as experiments have them: who wants which messages, and what converters agree on.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use trunkline_bundle::Settings;
use trunkline_bundle::gather::Timing;
use trunkline_bundle::interest::packet;
use trunkline_bundle::level::Medium;
use trunkline_experiment::converters::{Segments, Sides};
use trunkline_experiment::plan::{BundleTimers, Plan, Protocol};
use trunkline_units::{Rate, Span};

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

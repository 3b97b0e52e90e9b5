//! Bundles: the converters of a plan's network run on this machine, each in an agent of its own, and each host behind them has
//! an interface for all its ends.
//!
//! ```text
//!  wide hosts ══ groups on the loopback ══ level 1 ── bundles ── central ── bundles for all ── hosts' interfaces
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`desk`] | what stands at one host, on a thread |
//!
//! All of a run is at loopback addresses, groups and ports of its own, so that runs side by side do not hear each other.

pub mod desk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};
use trunkline_bundle::wire::classic::PACKETS;
use trunkline_bundle::wire::wide::packet_of;
use trunkline_experiment::Plan;
use trunkline_experiment::converters::number;
use trunkline_experiment::plan::BundleFormat;
use trunkline_io::Clock;
use trunkline_run::bundle::{self, PORTS, Works};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use desk::Desk;

/// Where the converters of a run and their hosts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// The central converter; those of level 1 are at the addresses behind it.
    site: Ipv4Addr,
    /// The group of packet address 0; those of the others follow, and behind them that of bundles for hosts.
    base: Ipv4Addr,
    /// The port of the groups; that of bundles for hosts is the next.
    port: u16,
}

impl Lines {
    /// Those of a run.
    fn of(plan: &Plan, clock: Clock) -> Lines {
        let seed = format!("{} / bundles", plan.name);
        let [a, b, c, d, e, p, q, _] = xxh3_64_with_seed(seed.as_bytes(), clock.epoch_ns()).to_be_bytes();
        Lines {
            // With room for seven addresses behind, and not where anybody looks for something.
            site: Ipv4Addr::new(127, 1 + a % 254, b, 8 * (c % 31) + 1),
            // With room for 2,049 groups.
            base: Ipv4Addr::new(239, d, e & 0xF0, 0),
            // Below what the system gives to those who ask for any.
            port: 20_000 + u16::from_be_bytes([p, q]) % 12_000,
        }
    }

    fn hears_level1(self) -> SocketAddrV4 {
        SocketAddrV4::new(self.site, PORTS.from_level1)
    }

    fn hears_hosts(self) -> SocketAddrV4 {
        SocketAddrV4::new(self.site, PORTS.from_hosts)
    }

    /// Where the converter of level 1 at a place in their order hears the central one.
    fn level1(self, at: u8) -> SocketAddrV4 {
        SocketAddrV4::new(behind(self.site, 1 + u32::from(at)), PORTS.to_level1)
    }

    /// Where all hosts hear the central converter.
    fn hosts(self) -> SocketAddrV4 {
        SocketAddrV4::new(behind(self.base, PACKETS as u32), self.port + 1)
    }

    /// The group of a message address in the wide area.
    pub(crate) fn group(self, address: u32) -> SocketAddrV4 {
        SocketAddrV4::new(behind(self.base, packet_of(address).into()), self.port)
    }
}

/// So many addresses behind one.
fn behind(address: Ipv4Addr, many: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits().wrapping_add(many))
}

/// What a host or converter has to do with bundles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Where all are.
    pub lines: Lines,
    /// What it is.
    pub post: Post,
}

/// What stands somewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Post {
    /// The central converter.
    Central {
        /// How it is set up.
        central: bundle::Central,
        /// Hosts by their numbers, and what each wants.
        wants: Vec<(u16, u32)>,
    },
    /// A converter of level 1.
    Level1 {
        /// Its place in their order, from 0.
        at: u8,
        /// Its number.
        number: u16,
        /// How it works.
        works: Works,
    },
    /// The interface of a host.
    Host {
        /// Its number, from 1.
        number: u16,
        /// How it works.
        works: Works,
        /// What it wants.
        wants: Vec<u32>,
    },
    /// A host in the wide area: its ends have sockets of their own.
    Wide {
        /// How the converters work.
        works: Works,
        /// Its place among those there.
        at: usize,
    },
}

impl Place {
    /// Whether it is a converter, which carries for all.
    pub(crate) fn is_converter(&self) -> bool {
        matches!(self.post, Post::Central { .. } | Post::Level1 { .. })
    }

    fn works(&self) -> &Works {
        match &self.post {
            Post::Central { central, .. } => &central.works,
            Post::Level1 { works, .. } | Post::Host { works, .. } | Post::Wide { works, .. } => works,
        }
    }

    /// What stands on the wire.
    pub(crate) fn format(&self) -> BundleFormat {
        self.works().format
    }

    /// Octets of the longest message.
    pub(crate) fn longest(&self) -> u32 {
        self.works().longest()
    }

    /// Its address.
    pub(crate) fn address(&self) -> IpAddr {
        match self.post {
            Post::Central { .. } => self.lines.site.into(),
            Post::Level1 { at, .. } => (*self.lines.level1(at).ip()).into(),
            Post::Host { .. } | Post::Wide { .. } => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// What hosts and converters of a plan have to do with bundles, by their names.
pub fn places(plan: &Plan, clock: Clock) -> BTreeMap<String, Place> {
    let (Some(sides), Some(network)) = (bundle::sides(plan), &plan.network) else { return BTreeMap::new() };
    let Some(central) = bundle::Central::of(network, &sides) else { return BTreeMap::new() };
    let lines = Lines::of(plan, clock);
    let (works, mut all) = (central.works, BTreeMap::new());
    let mut put = |name: &str, post: Post| drop(all.insert(name.to_owned(), Place { lines, post }));
    let mut wants = Vec::new();
    for (number, name) in (1..).zip(&sides.hosts) {
        let mine: Vec<u32> = bundle::wanted(plan, name).into_iter().collect();
        wants.extend(mine.iter().map(|address| (number, *address)));
        put(name, Post::Host { number, works, wants: mine });
    }
    for (at, node) in (0..).zip(&sides.level1) {
        let (works, number) = (Works::of(network, node), number(node) as u16);
        put(&node.name, Post::Level1 { at, number, works });
    }
    sides.wide.iter().enumerate().for_each(|(at, name)| put(name, Post::Wide { works, at }));
    sides.central.iter().take(1).for_each(|node| {
        put(&node.name, Post::Central { central: central.clone(), wants: std::mem::take(&mut wants) });
    });
    all
}

/// How much the converters are to know before anybody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What the central one is to know of hosts.
    pub addresses: u64,
    /// The groups that those of level 1 are to have together.
    pub groups: u64,
}

impl Wanted {
    /// What the places of a plan say.
    pub fn of<'p>(places: impl Iterator<Item = &'p Place>) -> Wanted {
        let wants = places.filter_map(|place| match &place.post {
            Post::Central { wants, .. } => Some(wants),
            _ => None,
        });
        let wants: Vec<(u16, u32)> = wants.flatten().copied().collect();
        let groups: BTreeSet<u16> = wants.iter().map(|(_, address)| packet_of(*address)).collect();
        Wanted { addresses: wants.len() as u64, groups: groups.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_experiment::{Source, parse};

    fn plan() -> Plan {
        let text = r#"experiment "t" {
            network {
              host h1, h2, router; converter c1 (role = level1, number = 7); converter c2 (role = central);
              switch wan, lan; link router - wan (rate = 1 Mb/s); link c1 - wan (rate = 1 Mb/s); link c1 - lan (rate = 1 Mb/s);
              link c2 - lan (rate = 1 Mb/s); link h1 - lan (rate = 1 Mb/s); link h2 - lan (rate = 1 Mb/s);
            }
            parallel {
              connection a { xmt = router; rcv = h1, h2; protocol = bundle (address = 0); test = cbr (messagesize = 100, period = 1 s); }
              connection b { xmt = h1; rcv = h2; protocol = bundle (address = 31); test = cbr (messagesize = 100, period = 1 s); }
              connection c { xmt = h1; rcv = h2; protocol = bundle (address = 32); test = cbr (messagesize = 100, period = 1 s); }
            }
        }"#;
        let parsed = parse(&Source { name: "test.ns", text, folder: None });
        parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
    }

    #[test]
    fn who_has_what_place() {
        let places = places(&plan(), Clock::at(1));
        assert!(matches!(&places["h2"].post, Post::Host { number: 2, wants, .. } if *wants == [0, 31, 32]));
        assert!(matches!(&places["c1"].post, Post::Level1 { at: 0, number: 7, .. }));
        assert!(
            matches!(&places["router"].post, Post::Wide { at: 0, .. }) && !places["router"].is_converter()
        );
        assert!(matches!(&places["c2"].post, Post::Central { wants, .. } if wants.len() == 4));
        assert_eq!(Wanted::of(places.values()), Wanted { addresses: 4, groups: 2 });
    }

    /// Whatever the hash says, no address, group or port runs out of its range, and all of a run differ.
    #[test]
    fn all_have_room() {
        let plan = plan();
        for epoch in 0..2_000 {
            let lines = Lines::of(&plan, Clock::at(epoch));
            let last = *lines.level1(5).ip();
            assert_eq!(last.octets()[..3], lines.site.octets()[..3], "{lines:?}");
            assert!(last.is_loopback() && lines.site.octets()[1] > 0, "{lines:?}");
            assert!(lines.hosts().ip().is_multicast() && lines.hosts().port() < 32_768, "{lines:?}");
            assert_eq!(lines.hosts().ip().octets()[..2], lines.base.octets()[..2], "{lines:?}");
            assert_ne!(lines.hosts().ip(), lines.group(65_535).ip());
        }
        assert_ne!(Lines::of(&plan, Clock::at(1)), Lines::of(&plan, Clock::at(2)));
    }
}

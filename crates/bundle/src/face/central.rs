//! [`CentralFace`]: the central converter between those of level 1 and hosts.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use trunkline_endpoint::Port;
use trunkline_io::Clock;
use trunkline_io::driver::address_of;
use trunkline_io::ports::Ready;
use trunkline_units::{Instant, Span};

use super::engine::{Engine, Said};
use super::notices::{Kind, Notices};
use super::{Error, Figures, Serve, life, own};
pub use crate::balance::REBALANCE;
use crate::central::{Central, Command, Config, Statistics};
use crate::level::Medium;
use crate::regulator::NO_LIMIT;
use crate::settings::Settings;
use crate::wide::Twins;
use crate::wide::central::Machine;
use crate::wide::sides::Counts;
use crate::wire::classic::{MOST_HOSTS, Source};

/// Every so often level 1 is told again what it gets, without a reason.
pub const RETELLS: Span = Span::from_s(10);

/// Batches of bundles that it takes in a round from either side: what they hold has room on the other.
const BUNDLES: usize = 16;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct CentralOptions {
    /// The machine.
    pub config: Config,
    /// Where converters of level 1 hear it, in the order of the machine's. Of the classic format: in the wide one they are where
    /// their bundles come from.
    pub level1: Vec<SocketAddrV4>,
    /// Where it hears them.
    pub listen_level1: SocketAddrV4,
    /// Where it hears hosts.
    pub listen_hosts: SocketAddrV4,
    /// Where bundles for hosts go: one broadcast or multicast address, or those of hosts. In the wide format where those go
    /// that are to all; a host is where its bundles come from.
    pub hosts: Vec<SocketAddrV4>,
    /// How many routers what goes to a multicast address may pass, and one.
    pub ttl: u8,
    /// How often level 1 is told again what it gets.
    pub retell: Span,
    /// How often packet addresses may move from the converter of level 1 that hears most to the one that hears least; zero:
    /// never. Of the classic format: the wide one does it every [`REBALANCE`].
    pub rebalance: Span,
}

/// A central converter on its sockets.
///
/// **Refusals.** A bundle for hosts that is refused (there is no such port) ends the interest of the host that sends from
/// that address; if none does, of the one that sends from its machine, if it is the only one that bundles go to there. Level
/// 1 is told again what it gets once it refuses no more.
#[derive(Debug)]
pub struct CentralFace {
    engine: Engine<Central>,
    options: CentralOptions,
    /// Where hosts sent their last bundles from.
    sources: [Option<SocketAddr>; MOST_HOSTS as usize],
    /// Where they sent from before that.
    before: [Option<SocketAddr>; MOST_HOSTS as usize],
    refused: u64,
    unsent: u64,
    notices: Notices,
}

impl CentralOptions {
    /// With one converter of level 1, number 1, on the loopback: what hosts' media of 1 Gb/s carry, and nobody to whom bundles
    /// to all would go.
    pub fn on_loopback(
        settings: Settings,
        listen_level1: SocketAddrV4,
        listen_hosts: SocketAddrV4,
    ) -> CentralOptions {
        let medium = Medium { capacity: 600_000, interval: Span::from_ms(5) };
        let config = Config { settings, level1: vec![1], hosts: MOST_HOSTS, local: medium, wide: medium };
        let (level1, hosts) = Default::default();
        let (retell, rebalance) = (RETELLS, REBALANCE);
        CentralOptions { config, level1, listen_level1, listen_hosts, hosts, ttl: 1, retell, rebalance }
    }
}

impl CentralFace {
    /// Opens its sockets.
    ///
    /// # Errors
    /// Which did not open, and why.
    pub fn open(options: &CentralOptions, clock: Clock) -> Result<CentralFace, Error> {
        let (secret, life) = (trunkline_io::datagrams::seed()?, life(clock.unix()));
        let machine = Central::with_secret(secret, life, options.config.clone());
        let machine = machine.retelling(options.retell).rebalancing(options.rebalance);
        let mut engine = Engine::new(machine, clock)?;
        // In the order of the machine's ports.
        engine.ports.add(own(options.listen_level1)?)?;
        let hosts = own(options.listen_hosts)?;
        hosts.set_broadcast(true)?;
        hosts.set_multicast_ttl_v4(options.ttl.into())?;
        if !options.listen_hosts.ip().is_unspecified()
            && options.hosts.iter().any(|to| to.ip().is_multicast())
        {
            trunkline_io::socket::multicast_by(&hosts, *options.listen_hosts.ip())?;
        }
        engine.ports.add(hosts)?;
        let sources = [None; MOST_HOSTS as usize];
        let (options, notices) = (options.clone(), Notices::default());
        let before = sources;
        Ok(CentralFace { engine, options, sources, before, refused: 0, unsent: 0, notices })
    }

    /// The machine, to ask it something.
    pub fn machine(&self) -> &Central {
        &self.engine.machine
    }

    /// Where it hears hosts, if a free port was to be found.
    ///
    /// # Errors
    /// What the system says.
    pub fn hears_hosts(&self) -> io::Result<SocketAddrV4> {
        v4(self.engine.ports.socket(usize::from(Central::HOSTS.0)).local_addr()?)
    }

    /// Where it hears level 1.
    ///
    /// # Errors
    /// What the system says.
    pub fn hears_level1(&self) -> io::Result<SocketAddrV4> {
        v4(self.engine.ports.socket(usize::from(Central::LEVEL1.0)).local_addr()?)
    }

    fn refusals(&mut self, port: Port) {
        while let Some(by) = self.engine.ports.refused(usize::from(port.0)) {
            self.refused += 1;
            let command = match port {
                Central::LEVEL1 => {
                    let at = self.options.level1.iter().position(|at| SocketAddr::V4(*at) == by);
                    at.and_then(|at| self.options.config.level1.get(at)).copied().map(Command::Level1Refused)
                }
                _ => match self.engine.machine.wide() {
                    None => host_of(&self.sources, &self.options.hosts, by).map(Command::HostRefused),
                    // Whoever is no more is silent.
                    Some(_) => None,
                },
            };
            if let Some(command) = command {
                // It refuses none.
                let _ = self.engine.command(command);
            }
        }
    }
}

fn v4(at: SocketAddr) -> io::Result<SocketAddrV4> {
    match at {
        SocketAddr::V4(at) => Ok(at),
        SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The host that hears at an address, as far as can be told from where hosts send.
fn host_of(sources: &[Option<SocketAddr>], hosts: &[SocketAddrV4], by: SocketAddr) -> Option<u8> {
    // The one that sends from there, if it is only one.
    let only = |is_there: &dyn Fn(SocketAddr) -> bool| {
        let mut found = (1..).zip(sources).filter(|(_, source)| source.is_some_and(is_there));
        let (host, _) = found.next()?;
        Some((host, found.next().is_none()))
    };
    if let Some((host, alone)) = only(&|source| source == by) {
        return alone.then_some(host);
    }
    let alone = hosts.iter().filter(|to| std::net::IpAddr::V4(*to.ip()) == by.ip()).count() == 1;
    only(&|source| source.ip() == by.ip()).filter(|(_, only)| *only && alone).map(|(host, _)| host)
}

impl Serve for CentralFace {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.engine.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let ready = self.engine.wait(until)?;
        // Before what comes: who is back after a refusal may have said so already.
        for port in [Central::LEVEL1, Central::HOSTS] {
            if ready.refused(usize::from(port.0)) {
                self.refusals(port);
            }
        }
        if ready.has(usize::from(Central::HOSTS.0)) {
            let CentralFace { sources, before, notices, options, .. } = self;
            let is_wide = self.engine.machine.wide().is_some();
            self.engine.receive(Central::HOSTS, BUNDLES, |came, bytes| {
                notices.look(&options.config.settings, came.from, bytes, true);
                if is_wide {
                    return true;
                }
                let mask = bytes.first_chunk().map(|mask| u16::from_be_bytes(*mask));
                if let Some(Source::Host(host)) = mask.and_then(Source::of) {
                    let at = usize::from(host) - 1;
                    if let Some(last) = sources[at].replace(came.from).filter(|last| *last != came.from) {
                        // One that restarts elsewhere does not come back to where it was.
                        if before[at].replace(last) == Some(came.from) {
                            notices.twins(Kind::Hosts, host.into(), [last, came.from]);
                        }
                    }
                }
                true
            })?;
        }
        if ready.has(usize::from(Central::LEVEL1.0)) {
            let CentralFace { notices, options, .. } = self;
            self.engine.receive(Central::LEVEL1, BUNDLES, |came, bytes| {
                notices.look(&options.config.settings, came.from, bytes, true);
                true
            })?;
        }
        if let Some(wide) = self.engine.machine.wide() {
            if let Some((host, site)) = wide.astray() {
                self.notices.once(Kind::Site, || {
                    format!("host {host} says that it is of site {site}: what it sends is not taken (--site)")
                });
            }
            for (kind, twins) in [(Kind::Hosts, wide.members().twins()), (Kind::Level1, wide.sides().twins())]
            {
                if let Some((Twins { number, .. }, [Some(one), Some(other)])) =
                    twins.map(|twins| (twins, twins.at.map(address_of)))
                {
                    self.notices.twins(kind, number, [one, other]);
                }
            }
        }
        let CentralFace { engine, options, unsent, .. } = self;
        engine.drain(|ports, said| {
            let (transmit, bytes) = match said {
                Said::Frame(transmit, bytes) => (transmit, bytes),
                Said::Event(never) => match never {},
            };
            let (mut sent, mut lost) = (0, 0);
            let mut send = |to: SocketAddr| match ports.send(usize::from(transmit.port.0), to, bytes) {
                true => sent += 1,
                false => lost += 1,
            };
            match (transmit.port, address_of(transmit.peer)) {
                // A machine that answers where something came from says so.
                (_, Some(to)) => send(to),
                (Central::HOSTS, None) => options.hosts.iter().for_each(|to| send((*to).into())),
                _ => {
                    let number = transmit.peer.as_bytes().try_into().map_or(0, u16::from_be_bytes);
                    let at = options.config.level1.iter().position(|one| *one == number);
                    at.and_then(|at| options.level1.get(at)).into_iter().for_each(|to| send((*to).into()));
                }
            }
            *unsent += lost;
            // Of several addresses one may be nobody's: a message is lost if it left for none.
            usize::from(sent == 0 && lost > 0)
        });
        Ok(ready)
    }

    fn bound(&self) -> String {
        let listens = |port: Port, asked: SocketAddrV4| {
            let at = self.engine.ports.socket(usize::from(port.0)).local_addr();
            at.map_or_else(|_| asked.to_string(), |at| at.to_string())
        };
        let CentralOptions { listen_level1, listen_hosts, hosts, .. } = &self.options;
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let hear =
            if hosts.is_empty() { String::new() } else { format!(", which hear {}", hosts.join(", ")) };
        format!(
            "central on {} for level 1 and {} for hosts{hear}",
            listens(Central::LEVEL1, *listen_level1),
            listens(Central::HOSTS, *listen_hosts),
        )
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.take()
    }

    fn figures(&self, into: &mut Figures) {
        let machine = &self.engine.machine;
        let s = machine.statistics();
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "in")], s.bundles);
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "out")], s.bundles_sent);
        for (way, count) in [
            ("from_level1", s.from_level1),
            ("from_hosts", s.from_hosts),
            ("to_level1", s.to_level1),
            ("to_hosts", s.to_hosts),
        ] {
            into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", way)], count);
        }
        let what = "Joins and drops of hosts.";
        into.count("trunkline_converter_control_total", what, &[], s.control);
        into.count(super::MALFORMED, super::OF_MALFORMED, &[("way", "in")], s.malformed);
        into.drops("to_hosts", &s.drops_to_hosts);
        into.drops("to_level1", &s.drops_to_level1);
        let what = "Hosts whose interest ended with a refusal.";
        into.count("trunkline_converter_hosts_removed_total", what, &[], s.removed);
        let what = "Joins told again to those who may have forgotten.";
        into.count("trunkline_converter_retold_total", what, &[], s.retold);
        let what = "Groups that level 1 had to be told to leave again.";
        into.count("trunkline_converter_strays_total", what, &[], s.strays);
        of_moves(into, &s.sides);
        super::of_system(into, self.refused, self.unsent);
        super::of_buffers(into, &self.engine.ports, &["level1", "hosts"]);
        let (local, wide) = machine.levels();
        into.gauge(super::LEVEL, super::OF_LEVEL, &[("side", "hosts")], local.into());
        into.gauge(super::LEVEL, super::OF_LEVEL, &[("side", "wide")], wide.into());
        match machine.wide() {
            Some(wide) => of_wide(into, wide, s),
            None => self.of_classic(into),
        }
        super::of_gathering(into, &self.engine.ports, &["level1", "hosts"], std::net::Ipv4Addr::UNSPECIFIED);
    }
}

const WANTED: &str = "trunkline_converter_wanted";
const OF_WANTED: &str = "Message addresses that hosts want.";
const HELD: &str = "trunkline_converter_held";
const OF_HELD: &str = "Multicast groups that level 1 is to get.";

impl CentralFace {
    fn of_classic(&self, into: &mut Figures) {
        let interest = self.engine.machine.interest();
        for host in 1..=self.options.config.hosts.min(MOST_HOSTS) {
            let wanted = interest.of_host(host).count() as u64;
            into.gauge(WANTED, OF_WANTED, &[("host", &host.to_string())], wanted);
        }
        for number in &self.options.config.level1 {
            let held = interest.held(*number).count() as u64;
            into.gauge(HELD, OF_HELD, &[("level1", &number.to_string())], held);
        }
    }
}

/// Packet addresses that moved.
fn of_moves(into: &mut Figures, sides: &Counts) {
    let what = "Groups that moved from one of level 1 to another while somebody wanted them.";
    into.count("trunkline_converter_moved_total", what, &[], sides.moved);
    let what = "Microseconds without a group that moved: of all together, and the longest.";
    for (of, gap) in [("all", sides.gaps), ("longest", sides.longest_gap)] {
        into.gauge("trunkline_converter_gap_microseconds", what, &[("of", of)], gap.as_ns() / 1_000);
    }
}

/// What only the wide format has.
fn of_wide(into: &mut Figures, wide: &Machine, s: &Statistics) {
    let sides = &s.sides;
    for (of, met, gone) in [("hosts", s.hosts_met, s.hosts_gone), ("level1", sides.met, sides.gone)] {
        into.count(super::SESSIONS, super::OF_SESSIONS, &[("of", of)], met);
        into.count(super::SILENT, super::OF_SILENT, &[("of", of)], gone);
    }
    let what = "Joins and drops of hosts for which there was no room, and times that some were put off.";
    for (why, count) in [("refused", s.changes_refused), ("put_off", s.changes_put_off)] {
        into.count("trunkline_converter_changes_total", what, &[("why", why)], count);
    }
    let what = "Pieces into which hosts' ranges cut the addresses, and what hosts want of them.";
    let segments = wide.segments();
    for (of, count) in [("pieces", segments.len()), ("wants", segments.wants())] {
        into.gauge("trunkline_converter_interest", what, &[("of", of)], count as u64);
    }
    into.count(super::RESENT, super::OF_RESENT, &[], s.repeated);
    into.count(super::OWN, super::OF_OWN, &[], s.own);
    super::of_numbers(into, &s.path, s.stale);
    let (hosts, level1) = wide.rates();
    for (side, rate) in [("hosts", hosts), ("wide", level1)].into_iter().filter(|(_, rate)| *rate != NO_LIMIT)
    {
        let what = "Octets a second of ordinary messages that may be sent to the converter; absent: any.";
        into.gauge("trunkline_converter_rate_octets", what, &[("side", side)], rate.into());
    }
    let what = "Hosts that are there.";
    into.gauge("trunkline_converter_hosts", what, &[], wide.members().len() as u64);
    for member in wide.members().iter() {
        let host = member.number.to_string();
        let wanted = member.wants().iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        into.gauge(WANTED, OF_WANTED, &[("host", &host)], wanted);
        into.count(super::LOST, super::OF_LOST, &[("host", &host)], member.link.lost.into());
    }
    for side in wide.sides().iter().filter(|side| side.is_alive()) {
        let number = side.number.to_string();
        into.gauge(HELD, OF_HELD, &[("level1", &number)], side.wants().count() as u64);
        into.count(super::LOST, super::OF_LOST, &[("level1", &number)], side.link.lost.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_refused_is_told_from_where_hosts_send() {
        let v4 = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        let from = |text: &str| Some(SocketAddr::V4(v4(text)));
        let sources =
            [from("10.0.0.1:3459"), from("10.0.0.2:777"), None, from("10.0.0.4:3459"), from("10.0.0.4:9")];
        let hosts =
            ["10.0.0.1:3459", "10.0.0.2:3459", "10.0.0.3:3459", "10.0.0.4:3459", "10.0.0.4:3460"].map(v4);
        let of = |text: &str| host_of(&sources, &hosts, v4(text).into());
        assert_eq!(of("10.0.0.1:3459"), Some(1));
        assert_eq!(
            of("10.0.0.2:3459"),
            Some(2),
            "it sends from another port of its machine, where no other hears"
        );
        assert_eq!(of("10.0.0.3:3459"), None);
        assert_eq!((of("10.0.0.4:3459"), of("10.0.0.4:3460")), (Some(4), None));
    }
}

//! [`Level1Face`]: a converter of level 1 between multicast groups and the central converter.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use trunkline_io::ports::{Came, Ready};
use trunkline_io::{Clock, Memberships, memberships, socket};
use trunkline_units::{Instant, Span};

use super::engine::{Engine, Said};
use super::notices::{ANSWERS, Doubts, Kind, Notices, alone, is_central, silent, stranger};
use super::rejoin::Rejoin;
use super::{Error, Figures, Serve, life, own};
use crate::interest::packet;
use crate::level1::{Event, Level1};
use crate::settings::Settings;
use crate::wire::classic::{Message, PACKETS};
use crate::wire::wide;

/// So long after it started it asks what it gets.
const ASKS: Span = Span::from_s(1);
/// The socket that says to groups is no port of the machine.
const SAYS: usize = 2;

/// Batches of messages that it takes in a round: no more than what bundles have room for.
const MESSAGES: usize = 32;
/// Batches of bundles: no more messages than may wait.
const BUNDLES: usize = 8;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct Level1Options {
    /// What all agree on.
    pub settings: Settings,
    /// Which converter, from 1 on.
    pub number: u16,
    /// Where the central converter hears level 1, and from where its bundles come: in the classic format from any port there.
    pub central: SocketAddrV4,
    /// Where it hears the central converter.
    pub listen: SocketAddrV4,
    /// The address of the interface that has the groups.
    pub interface: Ipv4Addr,
    /// The group of packet address 0; those of the others follow.
    pub base: Ipv4Addr,
    /// The port of the groups.
    pub port: u16,
    /// How many routers a message to a group may pass, and one.
    pub ttl: u8,
}

/// A converter of level 1 on its sockets.
///
/// It hears the groups that it was told to join and no others, on its interface only, whoever else on this machine joined
/// whatever; and not what it sent itself, which is told by the address and port of its own that it sends from.
#[derive(Debug)]
pub struct Level1Face {
    engine: Engine<Level1>,
    options: Level1Options,
    memberships: Memberships,
    rejoin: Rejoin,
    /// Where its own messages to groups come from.
    own: SocketAddr,
    counts: Counts,
    notices: Notices,
    /// One of the classic format says nothing before somebody wants something: there are none.
    doubts: Doubts,
}

#[derive(Debug, Default)]
struct Counts {
    /// Datagrams that are no messages for it: its own, those to groups that it does not get, or to none, and those whose
    /// address is not one of their group.
    own: u64,
    others: u64,
    misplaced: u64,
    strangers: u64,
    refused: u64,
    unsent: u64,
    not_joined: u64,
}

impl Level1Face {
    /// Opens its sockets.
    ///
    /// # Errors
    /// Which did not open, and why.
    pub fn open(options: &Level1Options, clock: Clock) -> Result<Level1Face, Error> {
        if !base_is_right(options.base) {
            return Err(Error::Base(options.base));
        }
        let machine = Level1::with_life(options.number, life(clock.unix()), options.settings)
            .asking(clock.now() + ASKS);
        let mut engine = Engine::new(machine, clock)?;
        let memberships = Memberships::new(options.interface)?;
        let hears = memberships::hearing(options.port, &super::options())?;
        let says =
            socket::multicast_sender(options.interface.into(), options.ttl, &socket::Options::default())?;
        let own_address = says.local_addr()?;
        // In the order of the machine's ports.
        engine.ports.add(hears)?;
        engine.ports.add(own(options.listen)?)?;
        engine.ports.add(says)?;
        let options = options.clone();
        let (own, counts, notices) = (own_address, Counts::default(), Notices::default());
        let rejoin = Rejoin::default();
        let doubts = if options.settings.wide().is_some() { Doubts::Unasked } else { Doubts::Over };
        Ok(Level1Face { engine, options, memberships, rejoin, own, counts, notices, doubts })
    }

    /// Takes bundles of the central converter, and of nobody else.
    fn receive_bundles(&mut self) -> io::Result<()> {
        let Level1Face { engine, options, counts, notices, .. } = self;
        let Level1Options { settings, central, .. } = options;
        engine.receive(Level1::CENTRAL, BUNDLES, |came, bytes| {
            notices.look(settings, came.from, bytes, false);
            let is_right = is_central(settings, *central, came.from);
            if !is_right {
                counts.strangers += 1;
                notices.once(Kind::Stranger, || stranger(*central, came.from));
            }
            is_right
        })
    }

    /// The groups that it has.
    pub fn memberships(&self) -> &Memberships {
        &self.memberships
    }

    /// The machine, to ask it something.
    pub fn machine(&self) -> &Level1 {
        &self.engine.machine
    }

    fn receive(&mut self) -> io::Result<()> {
        let Level1Face { engine, options, memberships, own, counts, .. } = self;
        let interface = memberships.interface();
        // What the machine gets may change only when it hears the central converter.
        let gets: &Memberships = memberships;
        engine.receive(Level1::WIDE, MESSAGES, |came, bytes| {
            if came.from == *own {
                counts.own += 1;
                return false;
            }
            let group = group_of(came, interface).filter(|group| gets.has(*group));
            let Some(group) = group else {
                counts.others += 1;
                return false;
            };
            // What has no address is the machine's to count.
            let said = match options.settings.wide() {
                None => Message::read(bytes).map(|message| packet(message.address)),
                Some(_) => wide::receiver_of(bytes),
            };
            let is_right = said.is_none_or(|packet| at(options.base, packet) == group);
            counts.misplaced += u64::from(!is_right);
            is_right
        })
    }

    /// Does what the machine says.
    fn flush(&mut self) {
        let Level1Face { engine, options, memberships, rejoin, counts, notices, doubts, .. } = self;
        let now = engine.clock.now();
        let mut holds = Holds { base: options.base, memberships, counts, notices };
        rejoin.again(now, |packet| holds.join(packet));
        engine.drain(|ports, said| {
            let sent = match said {
                Said::Event(Event::Join(packet)) => {
                    if !holds.join(packet) {
                        rejoin.failed(now, packet);
                    }
                    true
                }
                Said::Event(Event::Leave(packet)) => {
                    rejoin.forget(packet);
                    let _ = holds.memberships.leave(at(options.base, packet));
                    true
                }
                Said::Frame(transmit, bytes) if transmit.port == Level1::CENTRAL => {
                    doubts.asked(now, ANSWERS);
                    ports.send(usize::from(Level1::CENTRAL.0), options.central.into(), bytes)
                }
                Said::Frame(transmit, bytes) => {
                    let packet = transmit.peer.as_bytes().try_into().map_or(0, u16::from_be_bytes);
                    let to = SocketAddrV4::new(at(options.base, packet), options.port);
                    ports.send(SAYS, to.into(), bytes)
                }
            };
            holds.counts.unsent += u64::from(!sent);
            usize::from(!sent)
        });
    }
}

/// What is needed to join a group, and to tell why not.
struct Holds<'a> {
    base: Ipv4Addr,
    memberships: &'a mut Memberships,
    counts: &'a mut Counts,
    notices: &'a mut Notices,
}

impl Holds<'_> {
    /// Joins the group of a packet address; whether it did.
    fn join(&mut self, packet: u16) -> bool {
        let group = at(self.base, packet);
        let Err(why) = self.memberships.join(group) else { return true };
        self.counts.not_joined += 1;
        self.notices
            .once(Kind::Group, || format!("group {group} cannot be joined: {why}; it is tried again"));
        false
    }
}

/// The group that something was sent to on an interface.
fn group_of(came: &Came, interface: u32) -> Option<Ipv4Addr> {
    match came.to {
        Some(IpAddr::V4(group)) if came.interface.is_none_or(|on| on == interface) => Some(group),
        _ => None,
    }
}

/// The group of a packet address.
fn at(base: Ipv4Addr, packet: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(base.to_bits().wrapping_add(packet.into()))
}

fn base_is_right(base: Ipv4Addr) -> bool {
    let last = base.to_bits().checked_add(PACKETS as u32 - 1).map(Ipv4Addr::from_bits);
    base.is_multicast() && last.is_some_and(|last| last.is_multicast())
}

impl Serve for Level1Face {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.engine.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let until = until.into_iter().chain(self.rejoin.deadline()).chain(self.doubts.deadline()).min();
        let ready = self.engine.wait(until)?;
        for port in [Level1::WIDE, Level1::CENTRAL] {
            let number = usize::from(port.0);
            if ready.refused(number) {
                self.counts.refused += self.engine.refusals(port).count() as u64;
            }
        }
        if ready.refused(SAYS) {
            while self.engine.ports.refused(SAYS).is_some() {}
        }
        if ready.has(SAYS) {
            // Nobody has a reason to answer a message to a group.
            self.engine.ports.receive(SAYS, MESSAGES, |_, _| {})?;
        }
        if ready.has(usize::from(Level1::CENTRAL.0)) {
            self.receive_bundles()?;
        }
        if ready.has(usize::from(Level1::WIDE.0)) {
            self.receive()?;
        }
        if self.doubts.are_due(|| self.engine.clock.now()) && self.engine.machine.statistics().bundles == 0 {
            let Level1Options { central, .. } = self.options;
            self.notices.once(Kind::Alone, || alone(central, "--central, --site, --number"));
        }
        if self.engine.machine.statistics().lonely > 0 {
            self.notices.once(Kind::Silent, || silent(self.options.central));
        }
        self.flush();
        Ok(ready)
    }

    fn end(&mut self) -> io::Result<()> {
        self.engine.machine.bye(self.engine.clock.now());
        self.flush();
        Ok(())
    }

    fn bound(&self) -> String {
        let Level1Options { number, central, interface, base, port, .. } = &self.options;
        let listens = self.engine.ports.socket(usize::from(Level1::CENTRAL.0)).local_addr();
        let listens = listens.map_or_else(|_| self.options.listen.to_string(), |at| at.to_string());
        format!(
            "level 1 number {number} on {listens}, groups from {base}:{port} on {interface}, central {central}"
        )
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.take()
    }

    fn figures(&self, into: &mut Figures) {
        let machine = &self.engine.machine;
        let statistics = machine.statistics();
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "from_central")], statistics.bundles);
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "to_central")], statistics.bundles_sent);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "from_wide")], statistics.heard);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "to_wide")], statistics.sent);
        into.count(super::MALFORMED, super::OF_MALFORMED, &[("way", "from_central")], statistics.malformed);
        into.count(super::STRANGERS, super::OF_STRANGERS, &[], self.counts.strangers);
        into.drops("from_wide", &statistics.drops);
        into.drops("to_wide", &statistics.drops_out);
        let ignored = "Datagrams of the groups' port that are no messages for it.";
        for (why, count) in [
            ("own", self.counts.own),
            ("other_group", self.counts.others),
            ("other_address", self.counts.misplaced),
        ] {
            into.count("trunkline_converter_ignored_total", ignored, &[("why", why)], count);
        }
        if self.options.settings.wide().is_some() {
            into.count(super::OWN, super::OF_OWN, &[], statistics.own);
            into.count(super::SILENT, super::OF_SILENT, &[("of", "central")], statistics.lonely);
            into.count(super::STALE, super::OF_STALE, &[], statistics.stale);
        }
        super::of_system(into, self.counts.refused, self.counts.unsent);
        super::of_buffers(into, &self.engine.ports, &["wide", "central"]);
        let level = u64::from(machine.level(self.engine.clock.now()));
        into.gauge(super::LEVEL, super::OF_LEVEL, &[("side", "told")], level);
        let groups = "Multicast groups joined.";
        into.gauge("trunkline_converter_groups", groups, &[], self.memberships.len() as u64);
        let failed = "Times that the system would not join a multicast group.";
        into.count("trunkline_converter_groups_failed_total", failed, &[], self.counts.not_joined);
        let waiting = "Multicast groups that the system would not join, which are tried again.";
        into.gauge("trunkline_converter_groups_waiting", waiting, &[], self.rejoin.len() as u64);
        super::of_gathering(into, &self.engine.ports, &["wide", "central"], self.options.interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_base_and_what_follows() {
        let base = Ipv4Addr::new(234, 5, 1, 1);
        assert_eq!(at(base, 0), base);
        assert_eq!(at(base, 255), Ipv4Addr::new(234, 5, 2, 0));
        assert_eq!(at(base, 2_047), Ipv4Addr::new(234, 5, 9, 0));
        for (base, right) in [
            ([234, 5, 1, 1], true),
            ([224, 0, 0, 0], true),
            ([239, 255, 248, 0], true),
            ([239, 255, 248, 1], false),
            ([223, 255, 255, 255], false),
            ([255, 255, 255, 255], false),
        ] {
            assert_eq!(base_is_right(base.into()), right, "{base:?}");
        }
    }
}

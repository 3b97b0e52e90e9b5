//! [`Central`]: the central converter (section 3.4.3.3).

use std::collections::BTreeMap;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span};

use crate::balance::{self, Loads, MOVES, Move};
use crate::drops::{Drops, Unsent, Why};
use crate::gather::Gather;
use crate::interest::{Change, Interest, packet};
use crate::level::{LEAST, Level, Medium};
use crate::retell::{REFUSED, Retell};
use crate::settings::Settings;
use crate::wide;
use crate::wire::classic::{
    ADDRESSES_A_PACKET, Bundle, CONTROL, Control, EVERY_HOST, HOST_CONTROL, MOST_HOSTS, Message, PACKETS,
    Source, bit,
};

/// Most converters of level 1.
pub const MOST_LEVEL_1: usize = 6;
/// What comes so long after a packet address was given away or up was not under way any more.
const STRAY: Span = Span::from_ms(100);
/// A level above the least is told again after so long, by a converter that tells again.
const REPEATS: Span = Span::from_ms(250);
/// Over what time the load of a converter of level 1 is told.
const LOAD_TIME: Span = Span::from_s(1);

/// How a central converter is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What all agree on.
    pub settings: Settings,
    /// The converters of level 1 by their numbers, up to [`MOST_LEVEL_1`]. Data of a packet address that none of them gets
    /// leaves by the first.
    pub level1: Vec<u16>,
    /// Hosts that there may be, 1 to 16.
    pub hosts: u8,
    /// The hosts' medium.
    pub local: Medium,
    /// The medium between it and level 1.
    pub wide: Medium,
}

/// The central converter.
///
/// A [`Peer`] on the port [`LEVEL1`](Central::LEVEL1) is a converter's number, two octets big endian; on
/// [`HOSTS`](Central::HOSTS) there is only [`Peer::NONE`]: bundles for hosts go to all of them. Who sent a bundle its mask
/// says. In the wide format, bundles for one host or converter go to the peer from which its bundles come; until one came in the
/// session that it was given, it gets no more than three times the octets that came.
///
/// **Congestion** has two levels. That of the hosts' medium is told to hosts, and cuts what goes to them; that of the wide
/// side cuts what goes to level 1; converters of level 1 are told the higher of both, since what they hear loads both.
///
/// **Control** is never cut, and bundles leave on both sides as [`Settings::timing`] says.
///
/// **Restarts.** The format acknowledges nothing. A converter [that tells again](Central::retelling) joins its converters of
/// level 1 again to what they get: now and then, when one asks by telling level 3, and after a
/// [refusal](Command::Level1Refused); and has those leave that bring what they are not to get any more.
///
/// **Rebalancing.** One [that rebalances](Central::rebalancing) moves packet addresses from the converter that hears most to the
/// one that hears least, but not to one that has brought nothing since this was last looked at. As nobody says that he has left,
/// the other joins 100 ms after the one was told to leave; in between nobody has it, and what hosts say to it leaves by the
/// other already, which does not hear itself.
///
/// Bounds: 65 bundles for each converter of level 1, and for the hosts. What finds no room is dropped and
/// [counted](Statistics). Control that finds none is told again when its state is asked for: joins by the next change of
/// interest, levels by the next change of level.
#[derive(Debug)]
pub struct Central(Machine);

#[derive(Debug)]
enum Machine {
    Classic(Box<Classic>),
    /// With an interest in which nobody stands.
    Wide(Box<wide::central::Machine>, Interest),
}

/// The machine of 1997.
#[derive(Debug)]
struct Classic {
    config: Config,
    interest: Interest,
    level1: Vec<Side>,
    hosts: Gather,
    local: Level,
    wide: Level,
    /// Levels last told, and when.
    told_hosts: (u8, Instant),
    told_level1: (u8, Instant),
    /// When packet addresses were last given away or up; empty if nothing is told again.
    changed: Box<[Instant]>,
    /// By which of `level1`, counted from 1, messages of hosts to packet addresses last left, and when.
    spoke: Box<[(u8, Instant)]>,
    /// Messages from level 1 by packet address, as each brought what it gets.
    loads: Loads,
    /// How often packet addresses may move, and when they may next; none: never.
    rebalance: Option<(Span, Instant)>,
    /// Packet addresses that their holder is told to join at this moment, and since when nobody has them.
    moving: BTreeMap<u16, (Instant, Instant)>,
    /// The converter that is asked first whether it has a bundle to send.
    turn: usize,
    statistics: Statistics,
}

/// A converter of level 1 as the central one sees it.
#[derive(Debug)]
struct Side {
    number: u16,
    gather: Gather,
    /// Packet addresses that it gets.
    packets: u32,
    /// Messages from it in this and in the last stretch of [`LOAD_TIME`].
    load: u64,
    before: u64,
    until: Instant,
    /// When it last brought something.
    heard: Option<Instant>,
    /// Packet addresses that it could not be told of.
    untold: bool,
    retell: Retell,
}

/// What it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// This host refused a bundle: it wants nothing any more.
    HostRefused(u8),
    /// This converter of level 1 refused a bundle: when it is back it knows nothing.
    Level1Refused(u16),
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles received.
    pub bundles: u64,
    /// Messages of data from level 1, and from hosts.
    pub from_level1: u64,
    /// The same from hosts.
    pub from_hosts: u64,
    /// Messages for hosts, each once however many want it; but for each host that gets bundles of its own.
    pub to_hosts: u64,
    /// Messages for level 1.
    pub to_level1: u64,
    /// Bundles sent.
    pub bundles_sent: u64,
    /// Joins and drops of hosts.
    pub control: u64,
    /// Hosts whose interest ended with a refusal.
    pub removed: u64,
    /// Joins told to level 1 again.
    pub retold: u64,
    /// Packet addresses that level 1 had to be told to leave again.
    pub strays: u64,
    /// Bundles that were none or came from somebody who does not exist, and control that makes no sense.
    pub malformed: u64,
    /// What the numbers of messages told; this and all up to drops of the wide format only.
    pub path: crate::path::Counts,
    /// Messages of bundles from hosts and level 1 that did not come.
    pub lost: u64,
    /// Bundles of an earlier life of their sender, of hosts beyond those that there may be, and of who says that he is one in a
    /// later life and has not said the session that he was told.
    pub stale: u64,
    /// Messages of this site's hosts that came back from the wide area.
    pub own: u64,
    /// Messages sent to hosts again, until they were acknowledged.
    pub repeated: u64,
    /// Hosts met: heard of first, or in a new life.
    pub hosts_met: u64,
    /// Hosts that ended, fell silent or began a new life.
    pub hosts_gone: u64,
    /// Joins for which there was no room, or drops that would have cut a range in two.
    pub changes_refused: u64,
    /// Times that joins and drops were put off, for too much had to be looked at.
    pub changes_put_off: u64,
    /// Of the converters of level 1.
    pub sides: wide::sides::Counts,
    /// Messages for hosts that were dropped.
    pub drops_to_hosts: Drops,
    /// Messages for level 1 that were dropped.
    pub drops_to_level1: Drops,
}

impl Central {
    /// The port to level 1.
    pub const LEVEL1: Port = Port(0);
    /// The port to hosts.
    pub const HOSTS: Port = Port(1);

    /// A converter without interest.
    ///
    /// # Panics
    /// If there is no converter of level 1, or more than there may be, or two of one number, or number 0.
    pub fn new(config: Config) -> Central {
        Central::with_life(0, config)
    }

    /// The same in its `life`: of the wide format, in which each start has a higher one (in a circle of 2³²). Its sessions can be
    /// guessed.
    ///
    /// # Panics
    /// As [`Central::new`].
    pub fn with_life(life: u32, config: Config) -> Central {
        Central::with_secret(Seed(0), life, config)
    }

    /// The same with a secret: of the wide format, whose sessions then nobody can guess.
    ///
    /// # Panics
    /// As [`Central::new`].
    pub fn with_secret(secret: Seed, life: u32, config: Config) -> Central {
        let Config { settings, level1, .. } = &config;
        assert!((1..=MOST_LEVEL_1).contains(&level1.len()), "there are 1 to {MOST_LEVEL_1} of level 1");
        assert!(
            level1.iter().enumerate().all(|(at, number)| *number > 0 && !level1[..at].contains(number)),
            "each converter of level 1 has a number of its own, above 0"
        );
        Central(match settings.wide() {
            None => Machine::Classic(Box::new(Classic::new(config))),
            Some(wide) => {
                let machine = wide::central::Machine::new(secret, life, &config, wide);
                Machine::Wide(Box::new(machine), Interest::new(false))
            }
        })
    }

    /// Tells level 1 again what it gets, every so often (zero: only when there is a reason), and again to leave what it does
    /// not. The wide format does that by itself.
    pub fn retelling(mut self, every: Span) -> Central {
        if let Machine::Classic(classic) = &mut self.0 {
            classic.retelling(every);
        }
        self
    }

    /// Moves packet addresses, so often (zero: never), from the converter of level 1 that hears most to the one that hears least;
    /// together with [retelling](Central::retelling), that who did not hear that he is to leave hears it again. The wide
    /// format does that by itself.
    pub fn rebalancing(mut self, every: Span) -> Central {
        if let Machine::Classic(classic) = &mut self.0 {
            classic.rebalance = (!every.is_zero()).then_some((every, Instant::ZERO + every));
        }
        self
    }

    /// What it counted.
    pub fn statistics(&self) -> &Statistics {
        match &self.0 {
            Machine::Classic(classic) => &classic.statistics,
            Machine::Wide(wide, _) => wide.statistics(),
        }
    }

    /// Who wants what, and who gets it: of the classic format; of the other [`Central::wide`] says it.
    pub fn interest(&self) -> &Interest {
        match &self.0 {
            Machine::Classic(classic) => &classic.interest,
            Machine::Wide(_, nobody) => nobody,
        }
    }

    /// The levels of congestion of the hosts' medium and of the wide side, 3 to 6.
    pub fn levels(&self) -> (u8, u8) {
        match &self.0 {
            Machine::Classic(classic) => (classic.local.get(), classic.wide.get()),
            Machine::Wide(wide, _) => wide.levels(),
        }
    }

    /// The machine of the wide format: its hosts and converters of level 1.
    pub fn wide(&self) -> Option<&wide::central::Machine> {
        match &self.0 {
            Machine::Classic(_) => None,
            Machine::Wide(wide, _) => Some(wide),
        }
    }
}

impl Classic {
    fn new(config: Config) -> Classic {
        let Config { settings, level1, .. } = &config;
        let gather = || Gather::new(None, settings.longest, settings.timing);
        let side = |number: &u16| Side {
            number: *number,
            gather: gather(),
            packets: 0,
            load: 0,
            before: 0,
            until: Instant::ZERO + LOAD_TIME,
            heard: None,
            untold: false,
            retell: Retell::new(Span::ZERO),
        };
        Classic {
            interest: Interest::new(settings.pairs),
            level1: level1.iter().map(side).collect(),
            hosts: gather(),
            local: Level::new(config.local),
            wide: Level::new(config.wide),
            told_hosts: (LEAST, Instant::ZERO),
            told_level1: (LEAST, Instant::ZERO),
            changed: Box::default(),
            spoke: vec![(0, Instant::ZERO); PACKETS].into(),
            loads: Loads::default(),
            rebalance: None,
            moving: BTreeMap::new(),
            turn: 0,
            statistics: Statistics::default(),
            config,
        }
    }

    fn retelling(&mut self, every: Span) {
        self.changed = vec![Instant::ZERO; PACKETS].into();
        self.level1.iter_mut().for_each(|side| side.retell = Retell::new(every));
    }

    fn take(&mut self, now: Instant, port: Port, bytes: &[u8]) {
        let (source, bundle) = match Bundle::read_with_mask(bytes) {
            Ok(read) => read,
            Err(_) => return self.statistics.malformed += 1,
        };
        match (port, source) {
            (Central::LEVEL1, Source::Level1(number)) => {
                let Some(at) = self.level1.iter().position(|side| side.number == number) else {
                    return self.statistics.malformed += 1;
                };
                self.wide.carry(bytes.len());
                self.statistics.bundles += 1;
                self.level1[at].hear(now, bundle.count() as u64);
                bundle.messages().for_each(|message| self.hear_level1(now, at, message));
            }
            (Central::HOSTS, Source::Host(host)) if host <= self.config.hosts.min(MOST_HOSTS) => {
                self.local.carry(bytes.len());
                self.statistics.bundles += 1;
                bundle.messages().for_each(|message| self.hear_host(now, host, message));
            }
            _ => self.statistics.malformed += 1,
        }
    }

    fn hear_level1(&mut self, now: Instant, at: usize, message: Message<'_>) {
        if !self.changed.is_empty() && is_question(message) {
            return self.level1[at].retell.anew(now);
        }
        self.statistics.from_level1 += 1;
        let priority = self.config.settings.is_priority(message.address);
        if [CONTROL, HOST_CONTROL].contains(&message.octets()) {
            // A host would take the one for control, and the other is no host's.
            return self.statistics.drops_to_hosts.count(Why::Control, priority);
        }
        self.leave_strays(now, at, packet(message.address));
        let number = self.level1[at].number;
        if self.interest.holder(packet(message.address)).is_some_and(|holder| holder != number) {
            // It comes by who gets it, too; and what a host sent must not come back to it by another way.
            return self.statistics.drops_to_hosts.count(Why::Nobody, priority);
        }
        self.loads.count(packet(message.address));
        self.give_hosts(now, message, self.interest.group(message.address), priority);
    }

    /// Has a converter leave a packet address that it brings and is not to get.
    fn leave_strays(&mut self, now: Instant, at: usize, packet: u16) {
        let side = &mut self.level1[at];
        let Some(changed) = self.changed.get_mut(usize::from(packet)) else { return };
        if self.interest.holder(packet) != Some(side.number) && now >= *changed + STRAY {
            *changed = now;
            self.statistics.strays += 1;
            side.tell(now, Control::Drop(packet * ADDRESSES_A_PACKET));
        }
    }

    fn hear_host(&mut self, now: Instant, host: u8, message: Message<'_>) {
        if message.octets() == CONTROL {
            return match Control::read(message) {
                Some(Control::Join(address)) => {
                    self.statistics.control += 1;
                    let change = self.interest.join(host, address);
                    self.follow(now, change);
                }
                Some(Control::Drop(address)) => {
                    self.statistics.control += 1;
                    let change = self.interest.drop(host, address);
                    self.follow(now, change);
                }
                _ => self.statistics.malformed += 1,
            };
        }
        self.statistics.from_hosts += 1;
        let priority = self.config.settings.is_priority(message.address);
        if message.octets() == HOST_CONTROL {
            return self.statistics.drops_to_hosts.count(Why::Control, priority);
        }
        let group = self.interest.group(message.address) & !bit(host);
        if group != 0 {
            self.give_hosts(now, message, group, priority);
        }
        let holder = self.interest.holder(packet(message.address));
        let of = |number: u16| self.level1.iter().position(|side| side.number == number);
        let at = holder.and_then(of).or_else(|| of(1)).unwrap_or(0);
        if !self.wide.admits(priority) {
            return self.statistics.drops_to_level1.count(Why::Congestion, priority);
        }
        match self.level1[at].gather.push(now, message.address, message.body, priority) {
            true => {
                self.statistics.to_level1 += 1;
                self.spoke[usize::from(packet(message.address))] = (at as u8 + 1, now);
            }
            false => self.statistics.drops_to_level1.count(Why::Full, priority),
        }
    }

    fn give_hosts(&mut self, now: Instant, message: Message<'_>, group: u16, priority: bool) {
        let drops = &mut self.statistics.drops_to_hosts;
        if group == 0 {
            return drops.count(Why::Nobody, priority);
        }
        if !self.local.admits(priority) {
            return drops.count(Why::Congestion, priority);
        }
        match self.hosts.push(now, group, message.body, priority) {
            true => self.statistics.to_hosts += 1,
            false => drops.count(Why::Full, priority),
        }
    }

    /// Has level 1 get what is wanted, and no more.
    fn follow(&mut self, now: Instant, change: Change) {
        match change {
            Change::None => {}
            Change::Wanted(packet) => {
                self.level1.iter_mut().for_each(|side| side.roll(now));
                // Another would hear what this one is just saying, and bring it back to who sent it.
                let (at, when) = self.spoke[usize::from(packet)];
                let speaks = if now < when + STRAY { usize::from(at) } else { 0 };
                let load =
                    |(at, side): &(usize, &mut Side)| (*at != speaks, side.load + side.before, side.packets);
                let Some((_, side)) = (1..).zip(&mut self.level1).min_by_key(load) else { return };
                side.packets += 1;
                side.tell(now, Control::Join(packet * ADDRESSES_A_PACKET));
                side.retell.keep(now);
                self.interest.hold(packet, side.number);
                self.note_change(now, packet);
            }
            Change::Unwanted(packet, number) => {
                self.moving.remove(&packet);
                if let Some(side) = self.level1.iter_mut().find(|side| side.number == number) {
                    side.packets -= 1;
                    side.tell(now, Control::Drop(packet * ADDRESSES_A_PACKET));
                }
                self.note_change(now, packet);
            }
        }
    }

    /// Moves some packet addresses, if that is due, so that all converters have alike to do.
    fn move_some(&mut self, now: Instant) {
        let Some((every, due)) = self.rebalance.filter(|(_, due)| *due <= now) else { return };
        self.rebalance = Some((every, balance::next(due, every, now)));
        self.loads.roll(now);
        for _ in 0..MOVES {
            // Who hears least may be dead: nothing goes to who brought nothing since this was last looked at.
            let is_there = |at: &usize| self.level1[*at].heard.is_some_and(|heard| now <= heard + every);
            let there = (0..self.level1.len()).filter(is_there);
            let best = self.loads.best(there, |at| self.interest.held(self.level1[at].number));
            let Some(Move { packet, from, to }) = best else { return };
            self.interest.hold(packet, self.level1[to].number);
            self.level1[from].packets -= 1;
            self.level1[to].packets += 1;
            // One that is on its way to where it now leaves has joined nowhere.
            let was_moving = self.moving.remove(&packet);
            self.level1[from].tell(now, Control::Drop(packet * ADDRESSES_A_PACKET));
            let since = was_moving.map_or(now, |(_, since)| since);
            self.moving.insert(packet, (now + STRAY, since));
            self.statistics.sides.moved += 1;
            self.note_change(now, packet);
        }
    }

    /// Has those join who get what has moved.
    fn arrive(&mut self, now: Instant) {
        while let Some((packet, (_, since))) =
            self.moving.iter().find(|(_, (due, _))| *due <= now).map(|(packet, times)| (*packet, *times))
        {
            self.moving.remove(&packet);
            let (gap, counts) = (now.since(since), &mut self.statistics.sides);
            counts.gaps += gap;
            counts.longest_gap = counts.longest_gap.max(gap);
            let number = self.interest.holder(packet);
            if let Some(side) = self.level1.iter_mut().find(|side| Some(side.number) == number) {
                side.tell(now, Control::Join(packet * ADDRESSES_A_PACKET));
                side.retell.keep(now);
            }
        }
    }

    fn note_change(&mut self, now: Instant, packet: u16) {
        if let Some(changed) = self.changed.get_mut(usize::from(packet)) {
            *changed = now;
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::HostRefused(host) => {
                let wanted: Vec<u16> = self.interest.of_host(host).collect();
                self.statistics.removed += u64::from(!wanted.is_empty());
                for address in wanted {
                    let change = self.interest.drop(host, address);
                    self.follow(now, change);
                }
            }
            Command::Level1Refused(number) => {
                if let Some(side) = self.level1.iter_mut().find(|side| side.number == number) {
                    side.retell.anew(now + REFUSED);
                }
            }
        }
    }

    /// Tells again what is due.
    fn retell(&mut self, now: Instant) {
        for side in &mut self.level1 {
            let Side { number, gather, retell, .. } = side;
            let (interest, moving) = (&self.interest, &self.moving);
            let next = |from| {
                let held = std::iter::successors(interest.held_from(*number, from), |at| {
                    interest.held_from(*number, at + 1)
                });
                held.into_iter().find(|at| !moving.contains_key(&(*at as u16)))
            };
            retell.tell(now, next, |packet| {
                let (address, body) = Control::Join(packet as u16 * ADDRESSES_A_PACKET).write();
                // What finds no room is told the next time.
                self.statistics.retold += u64::from(gather.tell(now, address, &body));
            });
        }
    }

    /// Ends intervals, and tells levels that changed.
    fn roll(&mut self, now: Instant) {
        self.local.roll(now);
        self.wide.roll(now);
        self.loads.roll(now);
        self.move_some(now);
        self.arrive(now);
        // Who did not hear of congestion, or has restarted, hears of it again.
        let again = !self.changed.is_empty();
        let is_news = |level: u8, (told, at): (u8, Instant)| {
            level != told || again && level > LEAST && now >= at + REPEATS
        };
        let local = self.local.get();
        if is_news(local, self.told_hosts) {
            let body = Control::write_for_hosts(local);
            if self.hosts.tell(now, EVERY_HOST, &body) {
                self.told_hosts = (local, now);
            }
        }
        let higher = local.max(self.wide.get());
        if is_news(higher, self.told_level1) {
            self.told_level1 = (higher, now);
            self.level1.iter_mut().for_each(|side| side.tell(now, Control::Level(higher)));
        }
        self.hosts.roll(now);
        self.level1.iter_mut().for_each(|side| side.gather.roll(now));
    }

    /// The next bundle for level 1, of each converter in turn.
    fn leave(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let count = self.level1.len();
        let at = (0..count).map(|n| (self.turn + n) % count).find(|at| self.level1[*at].gather.is_ready())?;
        self.turn = at + 1;
        let side = &mut self.level1[at];
        let length = side.gather.leave(now, buffer)?;
        if std::mem::take(&mut side.untold) {
            for packet in self.interest.held(side.number).filter(|packet| !self.moving.contains_key(packet)) {
                side.tell(now, Control::Join(packet * ADDRESSES_A_PACKET));
            }
        }
        let peer = Peer::new(&side.number.to_be_bytes());
        Some(Transmit { port: Central::LEVEL1, peer, length, segment: None })
    }
}

/// Whether a converter of level 1 says that it has begun and knows nothing: that its own level is 3.
fn is_question(message: Message<'_>) -> bool {
    let (address, body) = Control::Level(LEAST).write();
    message.address == address && message.body == body
}

impl Side {
    /// Tells it something.
    fn tell(&mut self, now: Instant, control: Control) {
        let (address, body) = control.write();
        self.untold |= !self.gather.tell(now, address, &body);
    }

    /// So many messages came from it.
    fn hear(&mut self, now: Instant, messages: u64) {
        self.roll(now);
        self.load += messages;
        self.heard = Some(now);
    }

    /// Begins a new stretch, if the last has ended.
    fn roll(&mut self, now: Instant) {
        if now >= self.until {
            self.before = if now < self.until + LOAD_TIME { self.load } else { 0 };
            (self.load, self.until) = (0, now + LOAD_TIME);
        }
    }
}

impl Endpoint for Classic {
    type Command<'a> = Command;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Command>) -> Result<(), std::convert::Infallible> {
        self.roll(now);
        match input {
            Input::Frame { port, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.take(now, port, bundle));
            }
            Input::Wake => {}
            Input::Command(command) => self.command(now, command),
        }
        self.retell(now);
        Ok(())
    }

    fn poll(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<std::convert::Infallible> {
        // What is due leaves, and in the interval in which it does.
        self.roll(now);
        if writable.has(Central::HOSTS)
            && let Some(length) = self.hosts.leave(now, buffer)
        {
            // In the interval in which it leaves.
            self.local.roll(now);
            self.local.carry(length);
            self.statistics.bundles_sent += 1;
            let (port, peer) = (Central::HOSTS, Peer::NONE);
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        if writable.has(Central::LEVEL1)
            && let Some(transmit) = self.leave(now, buffer)
        {
            self.wide.roll(now);
            self.wide.carry(transmit.length);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(transmit);
        }
        let sides = self.level1.iter().map(|side| side.gather.deadline());
        let levels = [self.local.deadline(), self.wide.deadline()];
        let retell = self.level1.iter().map(|side| side.retell.deadline());
        let arrives = self.moving.values().map(|(due, _)| *due).min();
        // Loads matter only where there are two.
        let moves = self.rebalance.filter(|_| self.level1.len() > 1).map(|(_, due)| due);
        let others = [self.hosts.deadline(), arrives, moves];
        let deadline = sides.chain(levels).chain(retell).chain(others).flatten().min();
        let reason = if self.hosts.is_ready() {
            Reason::Port(Central::HOSTS)
        } else if self.level1.iter().any(|side| side.gather.is_ready()) {
            Reason::Port(Central::LEVEL1)
        } else {
            Reason::Input
        };
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Central {
    type Command<'a> = Command;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Command>) -> Result<(), Self::Refusal> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.handle(now, input),
            Machine::Wide(wide, _) => {
                wide.handle(now, input);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.poll(now, writable, buffer),
            Machine::Wide(wide, _) => wide.poll(now, writable, buffer),
        }
    }
}

impl Unsent for Central {
    fn unsent(&mut self, port: Port, frame: &[u8]) {
        let classic = match &mut self.0 {
            Machine::Classic(classic) => classic,
            Machine::Wide(wide, _) => return wide.unsent(port, frame),
        };
        let Ok(bundle) = Bundle::read(frame) else { return };
        if port == Central::LEVEL1 {
            let settings = classic.config.settings;
            let drops = &mut classic.statistics.drops_to_level1;
            return drops.unsent_classic(&bundle, |address| settings.is_priority(address));
        }
        // What hosts get has lost the address that says whether it has priority; control is urgent, and no message.
        let control = bundle.messages().filter(|message| message.octets() == HOST_CONTROL).count();
        let urgent = classic.hosts.urgent_left();
        let drops = &mut classic.statistics.drops_to_hosts;
        drops.add(Why::Unsent, true, urgent.saturating_sub(control) as u64);
        drops.add(Why::Unsent, false, bundle.count().saturating_sub(urgent) as u64);
    }
}

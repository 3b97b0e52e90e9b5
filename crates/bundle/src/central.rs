//! [`Central`]: the central converter (section 3.4.3.3 of the thesis).

use std::collections::BTreeMap;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span};

use crate::api::{CENTRAL_HOSTS_PORT, CENTRAL_LEVEL1_PORT};
pub use crate::api::{CentralCommand, CentralConfig, MAX_LEVEL1};
use crate::balance::{self, Loads, MAX_MOVES, Move};
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropReason};
use crate::format2;
use crate::interest::{Interest, InterestChange};
use crate::level::{Level, MIN_LEVEL};
use crate::refresh::{AFTER_REFUSAL, Refresh};
pub use crate::statistics::CentralStatistics;
use crate::wire::classic::{
    ADDRESSES_PER_PACKET, CONTROL, ClassicBundle, ClassicControl, ClassicMessage, HOST_CONTROL, MAX_HOSTS,
    PACKET_ADDRESSES, Source, host_bit, packet_address,
};

/// Messages still in flight this long after a packet address changed its owner are not strays.
const STRAY_GRACE: Span = Span::from_ms(100);
/// The time between two refreshes of a level above the lowest.
const LEVEL_REFRESH: Span = Span::from_ms(250);
/// The window in which the load of a level-1 converter is measured.
const LOAD_WINDOW: Span = Span::from_s(1);

/// The central converter.
///
/// On the port [`LEVEL1`](Central::LEVEL1) a [`Peer`] is a converter number, two octets in big-endian order. On
/// [`HOSTS`](Central::HOSTS) it is always [`Peer::NONE`], since bundles go to all hosts; the mask of a bundle
/// identifies its sender. In format 2 bundles for one host or converter go to the peer from which its bundles come.
/// Until that peer has confirmed its session, it is sent at most three times the octets received from it.
///
/// **Congestion.** Two media have a congestion level. The level of the hosts' medium is reported to hosts and limits
/// the messages to them. The level of the wide area limits the messages to level 1. Level-1 converters receive the
/// higher of both levels, because their messages load both media.
///
/// **Control** messages are never dropped for congestion. Bundles leave both sides as [`Settings::timing`](crate::Settings::timing)
/// says.
///
/// **Restarts.** Format 1 (classic) has no acknowledgements. A converter [with refresh](Central::with_refresh)
/// repeats the joins of its level-1 converters: periodically, when one queries by sending level 3, and after a
/// [refusal](CentralCommand::Level1Refused). It makes a converter leave a group that the converter forwards
/// without owning it.
///
/// **Rebalancing.** A converter [with rebalancing](Central::with_rebalancing) moves packet addresses from the busiest
/// to the idlest level-1 converter, but never to one that has been silent for a round. Leaves are not confirmed, so
/// the new owner joins 100 ms after the request to the old one to leave. In between the packet address has no owner, and
/// messages of hosts to it leave by the new owner, which does not receive them itself.
///
/// Bounds: 65 bundles for each level-1 converter and 65 for the hosts. Further messages are dropped and
/// [counted](CentralStatistics). Control messages without room are sent with the next change of interest or level.
#[derive(Debug)]
pub struct Central(CentralFormat);

#[derive(Debug)]
enum CentralFormat {
    Classic(Box<ClassicCentral>),
    /// With an empty interest table to lend.
    Format2(Box<format2::central::Format2Central>, Interest),
}

/// The central converter in format 1 (classic).
#[derive(Debug)]
struct ClassicCentral {
    config: CentralConfig,
    interest: Interest,
    level1: Vec<Level1State>,
    host_bundler: Bundler,
    local: Level,
    wide_area: Level,
    /// The levels last sent, and when.
    sent_to_hosts: (u8, Instant),
    sent_to_level1: (u8, Instant),
    /// When each packet address last changed its owner; empty without refresh.
    changed_at: Box<[Instant]>,
    /// The index in `level1`, counted from 1, of the converter that last carried a host's message to each packet
    /// address, and when.
    last_sender: Box<[(u8, Instant)]>,
    /// Message counts from level 1 per packet address, of its owner only.
    loads: Loads,
    /// The interval of rebalancing and its next time; `None` without rebalancing.
    rebalance: Option<(Span, Instant)>,
    /// Packet addresses on the move: when the new owner joins, and since when there is no owner.
    moving: BTreeMap<u16, (Instant, Instant)>,
    /// The converter whose queue is checked first.
    next_turn: usize,
    statistics: CentralStatistics,
}

/// A level-1 converter as seen by the central converter.
#[derive(Debug)]
struct Level1State {
    number: u16,
    bundler: Bundler,
    /// The number of packet addresses that it owns.
    packet_count: u32,
    /// Messages from it in the current and the previous [`LOAD_WINDOW`].
    load: u64,
    previous_load: u64,
    window_end: Instant,
    /// When it last sent a bundle.
    last_received: Option<Instant>,
    /// Whether joins or leaves found no room in the queue.
    joins_pending: bool,
    refresh: Refresh,
}

impl Central {
    /// The port to level 1.
    pub const LEVEL1: Port = CENTRAL_LEVEL1_PORT;
    /// The port to hosts.
    pub const HOSTS: Port = CENTRAL_HOSTS_PORT;

    /// Creates a converter without subscribers.
    ///
    /// # Panics
    /// Panics if there is no level-1 converter, more than [`MAX_LEVEL1`], a duplicate number or the number 0.
    pub fn new(config: CentralConfig) -> Central {
        Central::with_incarnation(0, config)
    }

    /// Creates a converter with an `incarnation`, for format 2. Each start needs a higher one, modulo 2³². Its
    /// sessions are predictable.
    ///
    /// # Panics
    /// As [`Central::new`].
    pub fn with_incarnation(incarnation: u32, config: CentralConfig) -> Central {
        Central::with_secret(Seed(0), incarnation, config)
    }

    /// Creates a converter with an `incarnation` and a `secret`, for format 2. Its sessions are unpredictable without
    /// the secret.
    ///
    /// # Panics
    /// As [`Central::new`].
    pub fn with_secret(secret: Seed, incarnation: u32, config: CentralConfig) -> Central {
        let CentralConfig { settings, level1, .. } = &config;
        assert!(
            (1..=MAX_LEVEL1).contains(&level1.len()),
            "there must be 1 to {MAX_LEVEL1} level-1 converters"
        );
        assert!(
            level1.iter().enumerate().all(|(at, number)| *number > 0 && !level1[..at].contains(number)),
            "each level-1 converter needs a unique number above 0"
        );
        Central(match settings.format2() {
            None => CentralFormat::Classic(Box::new(ClassicCentral::new(config))),
            Some(format2) => {
                let machine = format2::central::Format2Central::new(secret, incarnation, &config, format2);
                CentralFormat::Format2(Box::new(machine), Interest::new(false))
            }
        })
    }

    /// Refreshes the joins of level 1 at this interval, and stops strays. Zero refreshes only after a query or a
    /// refusal. Format 2 ignores this: it confirms assignments.
    pub fn with_refresh(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.0 {
            classic.enable_refresh(every);
        }
        self
    }

    /// Moves packet addresses from the busiest to the idlest level-1 converter at this interval; zero disables it.
    /// Use it together with [refresh](Central::with_refresh), which repeats lost leaves. Format 2 always rebalances.
    pub fn with_rebalancing(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.0 {
            classic.rebalance = (!every.is_zero()).then_some((every, Instant::ZERO + every));
        }
        self
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &CentralStatistics {
        match &self.0 {
            CentralFormat::Classic(classic) => &classic.statistics,
            CentralFormat::Format2(format2, _) => format2.statistics(),
        }
    }

    /// Returns subscribers and owners in format 1 (classic). The table is empty in format 2; see
    /// [`Central::format2`].
    pub fn interest(&self) -> &Interest {
        match &self.0 {
            CentralFormat::Classic(classic) => &classic.interest,
            CentralFormat::Format2(_, empty) => empty,
        }
    }

    /// Returns the congestion levels of the hosts' medium and of the wide area, 3 to 6.
    pub fn levels(&self) -> (u8, u8) {
        match &self.0 {
            CentralFormat::Classic(classic) => (classic.local.get(), classic.wide_area.get()),
            CentralFormat::Format2(format2, _) => format2.levels(),
        }
    }

    /// Returns the state of format 2: hosts and level-1 converters.
    pub fn format2(&self) -> Option<&format2::central::Format2Central> {
        match &self.0 {
            CentralFormat::Classic(_) => None,
            CentralFormat::Format2(format2, _) => Some(format2),
        }
    }
}

impl ClassicCentral {
    fn new(config: CentralConfig) -> ClassicCentral {
        let CentralConfig { settings, level1, .. } = &config;
        let bundler = || Bundler::new(None, settings.max_bundle, settings.timing);
        let converter = |number: &u16| Level1State {
            number: *number,
            bundler: bundler(),
            packet_count: 0,
            load: 0,
            previous_load: 0,
            window_end: Instant::ZERO + LOAD_WINDOW,
            last_received: None,
            joins_pending: false,
            refresh: Refresh::new(Span::ZERO),
        };
        ClassicCentral {
            interest: Interest::new(settings.pairs),
            level1: level1.iter().map(converter).collect(),
            host_bundler: bundler(),
            local: Level::new(config.local),
            wide_area: Level::new(config.wide_area),
            sent_to_hosts: (MIN_LEVEL, Instant::ZERO),
            sent_to_level1: (MIN_LEVEL, Instant::ZERO),
            changed_at: Box::default(),
            last_sender: vec![(0, Instant::ZERO); PACKET_ADDRESSES].into(),
            loads: Loads::default(),
            rebalance: None,
            moving: BTreeMap::new(),
            next_turn: 0,
            statistics: CentralStatistics::default(),
            config,
        }
    }

    fn enable_refresh(&mut self, every: Span) {
        self.changed_at = vec![Instant::ZERO; PACKET_ADDRESSES].into();
        self.level1.iter_mut().for_each(|converter| converter.refresh = Refresh::new(every));
    }

    fn receive_bundle(&mut self, now: Instant, port: Port, bytes: &[u8]) {
        let (source, bundle) = match ClassicBundle::read_with_mask(bytes) {
            Ok(read) => read,
            Err(_) => return self.statistics.malformed += 1,
        };
        match (port, source) {
            (Central::LEVEL1, Source::Level1(number)) => {
                let Some(at) = self.level1.iter().position(|converter| converter.number == number) else {
                    return self.statistics.malformed += 1;
                };
                self.wide_area.carry(bytes.len());
                self.statistics.bundles_received += 1;
                self.level1[at].record_messages(now, bundle.count() as u64);
                bundle.messages().for_each(|message| self.receive_from_level1(now, at, message));
            }
            (Central::HOSTS, Source::Host(host)) if host <= self.config.hosts.min(MAX_HOSTS) => {
                self.local.carry(bytes.len());
                self.statistics.bundles_received += 1;
                bundle.messages().for_each(|message| self.receive_from_host(now, host, message));
            }
            _ => self.statistics.malformed += 1,
        }
    }

    fn receive_from_level1(&mut self, now: Instant, at: usize, message: ClassicMessage<'_>) {
        if !self.changed_at.is_empty() && is_query(message) {
            return self.level1[at].refresh.restart_at(now);
        }
        self.statistics.from_level1 += 1;
        let priority = self.config.settings.is_priority(message.address);
        if [CONTROL, HOST_CONTROL].contains(&message.octets()) {
            // A host would mistake one length for control, and the other is never valid.
            return self.statistics.drops_to_hosts.count(DropReason::Control, priority);
        }
        self.drop_stray(now, at, packet_address(message.address));
        let number = self.level1[at].number;
        if self.interest.owner(packet_address(message.address)).is_some_and(|owner| owner != number) {
            // The owner forwards the message, too. A host's own message must not return to it by another converter.
            return self.statistics.drops_to_hosts.count(DropReason::NoReceiver, priority);
        }
        self.loads.count(packet_address(message.address));
        self.send_to_hosts(now, message, self.interest.hosts(message.address), priority);
    }

    /// Makes a converter leave a packet address that it forwards without owning it.
    fn drop_stray(&mut self, now: Instant, at: usize, packet: u16) {
        let converter = &mut self.level1[at];
        let Some(changed) = self.changed_at.get_mut(usize::from(packet)) else { return };
        if self.interest.owner(packet) != Some(converter.number) && now >= *changed + STRAY_GRACE {
            *changed = now;
            self.statistics.stray_groups += 1;
            converter.announce(now, ClassicControl::Drop(packet * ADDRESSES_PER_PACKET));
        }
    }

    fn receive_from_host(&mut self, now: Instant, host: u8, message: ClassicMessage<'_>) {
        if message.octets() == CONTROL {
            return match ClassicControl::read(message) {
                Some(ClassicControl::Join(address)) => {
                    self.statistics.control_messages += 1;
                    let change = self.interest.join(host, address);
                    self.apply_change(now, change);
                }
                Some(ClassicControl::Drop(address)) => {
                    self.statistics.control_messages += 1;
                    let change = self.interest.drop(host, address);
                    self.apply_change(now, change);
                }
                _ => self.statistics.malformed += 1,
            };
        }
        self.statistics.from_hosts += 1;
        let priority = self.config.settings.is_priority(message.address);
        if message.octets() == HOST_CONTROL {
            return self.statistics.drops_to_hosts.count(DropReason::Control, priority);
        }
        let group = self.interest.hosts(message.address) & !host_bit(host);
        if group != 0 {
            self.send_to_hosts(now, message, group, priority);
        }
        let owner = self.interest.owner(packet_address(message.address));
        let of = |number: u16| self.level1.iter().position(|converter| converter.number == number);
        let at = owner.and_then(of).or_else(|| of(1)).unwrap_or(0);
        if !self.wide_area.admits(priority) {
            return self.statistics.drops_to_level1.count(DropReason::Congestion, priority);
        }
        match self.level1[at].bundler.push(now, message.address, message.body, priority) {
            true => {
                self.statistics.to_level1 += 1;
                self.last_sender[usize::from(packet_address(message.address))] = (at as u8 + 1, now);
            }
            false => self.statistics.drops_to_level1.count(DropReason::Full, priority),
        }
    }

    fn send_to_hosts(&mut self, now: Instant, message: ClassicMessage<'_>, group: u16, priority: bool) {
        let drops = &mut self.statistics.drops_to_hosts;
        if group == 0 {
            return drops.count(DropReason::NoReceiver, priority);
        }
        if !self.local.admits(priority) {
            return drops.count(DropReason::Congestion, priority);
        }
        match self.host_bundler.push(now, group, message.body, priority) {
            true => self.statistics.to_hosts += 1,
            false => drops.count(DropReason::Full, priority),
        }
    }

    /// Joins or leaves a packet address at level 1 after a change of interest.
    fn apply_change(&mut self, now: Instant, change: InterestChange) {
        match change {
            InterestChange::None => {}
            InterestChange::Joined(packet) => {
                self.level1.iter_mut().for_each(|converter| converter.advance_window(now));
                // Another converter would receive the message that this one just sent, and reflect it.
                let (at, when) = self.last_sender[usize::from(packet)];
                let recent_sender = if now < when + STRAY_GRACE { usize::from(at) } else { 0 };
                let load = |(at, converter): &(usize, &mut Level1State)| {
                    (*at != recent_sender, converter.load + converter.previous_load, converter.packet_count)
                };
                let Some((_, converter)) = (1..).zip(&mut self.level1).min_by_key(load) else { return };
                converter.packet_count += 1;
                converter.announce(now, ClassicControl::Join(packet * ADDRESSES_PER_PACKET));
                converter.refresh.schedule(now);
                self.interest.set_owner(packet, converter.number);
                self.note_change(now, packet);
            }
            InterestChange::Left(packet, number) => {
                self.moving.remove(&packet);
                if let Some(converter) = self.level1.iter_mut().find(|converter| converter.number == number) {
                    converter.packet_count -= 1;
                    converter.announce(now, ClassicControl::Drop(packet * ADDRESSES_PER_PACKET));
                }
                self.note_change(now, packet);
            }
        }
    }

    /// Moves packet addresses if a round of rebalancing is due.
    fn rebalance_groups(&mut self, now: Instant) {
        let Some((every, due)) = self.rebalance.filter(|(_, due)| *due <= now) else { return };
        self.rebalance = Some((every, balance::next_on_grid(due, every, now)));
        self.loads.advance(now);
        for _ in 0..MAX_MOVES {
            // The idlest converter may be down: skip those that sent nothing in the last round.
            let is_active =
                |at: &usize| self.level1[*at].last_received.is_some_and(|received| now <= received + every);
            let active = (0..self.level1.len()).filter(is_active);
            let best = self.loads.best_move(active, |at| self.interest.owned_by(self.level1[at].number));
            let Some(Move { packet, from, to }) = best else { return };
            self.interest.set_owner(packet, self.level1[to].number);
            self.level1[from].packet_count -= 1;
            self.level1[to].packet_count += 1;
            // A packet address that moves again before its owner joined has no owner yet.
            let was_moving = self.moving.remove(&packet);
            self.level1[from].announce(now, ClassicControl::Drop(packet * ADDRESSES_PER_PACKET));
            let since = was_moving.map_or(now, |(_, since)| since);
            self.moving.insert(packet, (now + STRAY_GRACE, since));
            self.statistics.level1.moved += 1;
            self.note_change(now, packet);
        }
    }

    /// Joins the moved packet addresses that are due at their new owners.
    fn finish_moves(&mut self, now: Instant) {
        while let Some((packet, (_, since))) =
            self.moving.iter().find(|(_, (due, _))| *due <= now).map(|(packet, times)| (*packet, *times))
        {
            self.moving.remove(&packet);
            let (gap, counts) = (now.since(since), &mut self.statistics.level1);
            counts.total_gap += gap;
            counts.longest_gap = counts.longest_gap.max(gap);
            let number = self.interest.owner(packet);
            if let Some(converter) = self.level1.iter_mut().find(|converter| Some(converter.number) == number)
            {
                converter.announce(now, ClassicControl::Join(packet * ADDRESSES_PER_PACKET));
                converter.refresh.schedule(now);
            }
        }
    }

    fn note_change(&mut self, now: Instant, packet: u16) {
        if let Some(changed) = self.changed_at.get_mut(usize::from(packet)) {
            *changed = now;
        }
    }

    fn command(&mut self, now: Instant, command: CentralCommand) {
        match command {
            CentralCommand::HostRefused(host) => {
                let wanted: Vec<u16> = self.interest.addresses_of(host).collect();
                self.statistics.hosts_removed += u64::from(!wanted.is_empty());
                for address in wanted {
                    let change = self.interest.drop(host, address);
                    self.apply_change(now, change);
                }
            }
            CentralCommand::Level1Refused(number) => {
                if let Some(converter) = self.level1.iter_mut().find(|converter| converter.number == number) {
                    converter.refresh.restart_at(now + AFTER_REFUSAL);
                }
            }
        }
    }

    /// Sends the refreshes that are due.
    fn send_refresh(&mut self, now: Instant) {
        for converter in &mut self.level1 {
            let Level1State { number, bundler, refresh, .. } = converter;
            let (interest, moving) = (&self.interest, &self.moving);
            let next = |from| {
                let held = std::iter::successors(interest.next_owned_by(*number, from), |at| {
                    interest.next_owned_by(*number, at + 1)
                });
                held.into_iter().find(|at| !moving.contains_key(&(*at as u16)))
            };
            refresh.send_due(now, next, |packet| {
                let join = ClassicControl::Join(packet as u16 * ADDRESSES_PER_PACKET);
                // A refresh without room is sent in the next cycle.
                self.statistics.joins_refreshed += u64::from(bundler.push_control(now, join));
            });
        }
    }

    /// Ends intervals and announces changed levels.
    fn handle_timers(&mut self, now: Instant) {
        self.local.advance(now);
        self.wide_area.advance(now);
        self.loads.advance(now);
        self.rebalance_groups(now);
        self.finish_moves(now);
        // A receiver may have missed the level or restarted.
        let refreshes = !self.changed_at.is_empty();
        let needs_report = |level: u8, (sent, at): (u8, Instant)| {
            level != sent || refreshes && level > MIN_LEVEL && now >= at + LEVEL_REFRESH
        };
        let local = self.local.get();
        if needs_report(local, self.sent_to_hosts) && self.host_bundler.push_level_for_hosts(now, local) {
            self.sent_to_hosts = (local, now);
        }
        let higher = local.max(self.wide_area.get());
        if needs_report(higher, self.sent_to_level1) {
            self.sent_to_level1 = (higher, now);
            self.level1
                .iter_mut()
                .for_each(|converter| converter.announce(now, ClassicControl::Level(higher)));
        }
        self.host_bundler.close_if_due(now);
        self.level1.iter_mut().for_each(|converter| converter.bundler.close_if_due(now));
    }

    /// Writes the next bundle for level 1, serving converters in turn.
    fn write_level1_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let count = self.level1.len();
        let at = (0..count)
            .map(|n| (self.next_turn + n) % count)
            .find(|at| self.level1[*at].bundler.is_ready())?;
        self.next_turn = at + 1;
        let converter = &mut self.level1[at];
        let length = converter.bundler.write_next(now, buffer)?;
        if std::mem::take(&mut converter.joins_pending) {
            for packet in
                self.interest.owned_by(converter.number).filter(|packet| !self.moving.contains_key(packet))
            {
                converter.announce(now, ClassicControl::Join(packet * ADDRESSES_PER_PACKET));
            }
        }
        let peer = Peer::new(&converter.number.to_be_bytes());
        Some(Transmit { port: Central::LEVEL1, peer, length, segment: None })
    }
}

/// Returns whether a level-1 converter asks for its joins: it sends its own level, 3.
fn is_query(message: ClassicMessage<'_>) -> bool {
    let (address, body) = ClassicControl::Level(MIN_LEVEL).write();
    message.address == address && message.body == body
}

impl Level1State {
    /// Queues a control message for the converter.
    fn announce(&mut self, now: Instant, control: ClassicControl) {
        self.joins_pending |= !self.bundler.push_control(now, control);
    }

    /// Counts messages from the converter.
    fn record_messages(&mut self, now: Instant, messages: u64) {
        self.advance_window(now);
        self.load += messages;
        self.last_received = Some(now);
    }

    /// Starts a new window if the current one has ended.
    fn advance_window(&mut self, now: Instant) {
        if now >= self.window_end {
            self.previous_load = if now < self.window_end + LOAD_WINDOW { self.load } else { 0 };
            (self.load, self.window_end) = (0, now + LOAD_WINDOW);
        }
    }
}

impl Endpoint for ClassicCentral {
    type Command<'a> = CentralCommand;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(
        &mut self,
        now: Instant,
        input: Input<'_, CentralCommand>,
    ) -> Result<(), std::convert::Infallible> {
        self.handle_timers(now);
        match input {
            Input::Frame { port, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.receive_bundle(now, port, bundle));
            }
            Input::Wake => {}
            Input::Command(command) => self.command(now, command),
        }
        self.send_refresh(now);
        Ok(())
    }

    fn poll(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<std::convert::Infallible> {
        // A due bundle leaves in the interval in which it is due.
        self.handle_timers(now);
        if writable.has(Central::HOSTS)
            && let Some(length) = self.host_bundler.write_next(now, buffer)
        {
            // It counts in the interval in which it leaves.
            self.local.advance(now);
            self.local.carry(length);
            self.statistics.bundles_sent += 1;
            let (port, peer) = (Central::HOSTS, Peer::NONE);
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        if writable.has(Central::LEVEL1)
            && let Some(transmit) = self.write_level1_bundle(now, buffer)
        {
            self.wide_area.advance(now);
            self.wide_area.carry(transmit.length);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(transmit);
        }
        let converters = self.level1.iter().map(|converter| converter.bundler.deadline());
        let levels = [self.local.deadline(), self.wide_area.deadline()];
        let refresh = self.level1.iter().map(|converter| converter.refresh.deadline());
        let next_arrival = self.moving.values().map(|(due, _)| *due).min();
        // Balancing needs two converters.
        let next_rebalance = self.rebalance.filter(|_| self.level1.len() > 1).map(|(_, due)| due);
        let others = [self.host_bundler.deadline(), next_arrival, next_rebalance];
        let deadline = converters.chain(levels).chain(refresh).chain(others).flatten().min();
        let reason = if self.host_bundler.is_ready() {
            Reason::Port(Central::HOSTS)
        } else if self.level1.iter().any(|converter| converter.bundler.is_ready()) {
            Reason::Port(Central::LEVEL1)
        } else {
            Reason::Input
        };
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Central {
    type Command<'a> = CentralCommand;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, CentralCommand>) -> Result<(), Self::Refusal> {
        match &mut self.0 {
            CentralFormat::Classic(classic) => classic.handle(now, input),
            CentralFormat::Format2(format2, _) => {
                format2.handle(now, input);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event> {
        match &mut self.0 {
            CentralFormat::Classic(classic) => classic.poll(now, writable, buffer),
            CentralFormat::Format2(format2, _) => format2.poll(now, writable, buffer),
        }
    }
}

impl CountUnsent for Central {
    fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let classic = match &mut self.0 {
            CentralFormat::Classic(classic) => classic,
            CentralFormat::Format2(format2, _) => return format2.count_unsent(port, frame),
        };
        let Ok(bundle) = ClassicBundle::read(frame) else { return };
        if port == Central::LEVEL1 {
            let settings = classic.config.settings;
            let drops = &mut classic.statistics.drops_to_level1;
            return drops.count_unsent_classic(&bundle, &settings);
        }
        // In bundles for hosts the address that shows the priority is gone. Control is counted as priority but is no
        // message.
        let control = bundle.messages().filter(|message| message.octets() == HOST_CONTROL).count();
        let urgent = classic.host_bundler.urgent_in_last();
        let drops = &mut classic.statistics.drops_to_hosts;
        drops.add(DropReason::Unsent, true, urgent.saturating_sub(control) as u64);
        drops.add(DropReason::Unsent, false, bundle.count().saturating_sub(urgent) as u64);
    }
}

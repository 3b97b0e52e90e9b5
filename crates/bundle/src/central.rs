//! [`Central`]: the central converter (section 3.4.3.3 of the thesis).
//!
//! A message of level 1 or of a host is sent to the hosts that subscribe to it; a host's message also goes to the
//! level-1 converter that sends to its packet address. Each medium admits the messages, each receiver has a queue, and
//! the bundles leave in [`poll`](Endpoint::poll).
//!
//! | | format 1 (classic) | format 2 |
//! | --- | --- | --- |
//! | hosts | one bundle for all, with a bit per receiver | a session each ([`members`](crate::members)) |
//! | subscribers | a bit per host and address ([`interest`](crate::interest)) | ranges ([`ranges`](crate::ranges)) |
//! | level 1 | joins and leaves, refreshed (`level1_owners`) | assignments, confirmed ([`level1_peers`](crate::level1_peers)) |
//! | duplicates | only the owner of a packet address forwards it | sequence numbers ([`sequence`](crate::sequence)) |
//! | priority | by the address, in order | reliable, before ordinary messages |

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span};

pub use crate::api::{CentralCommand, CentralConfig, MAX_LEVEL1};
use crate::balance::Balance;
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropCounts, DropReason};
use crate::interest::Interest;
use crate::level::MIN_LEVEL;
use crate::level1_owners::Level1Owners;
use crate::level1_peers::Level1Peers;
use crate::members::Members;
use crate::outbox::{Outbox, QueuedMessage};
use crate::ranges::Segments;
use crate::refresh::AFTER_REFUSAL;
use crate::regulator::{Congestion, NO_LIMIT, Regulator};
use crate::sequence::{Flow, SequenceStatus, SequenceTracker};
use crate::settings::{Fanout, Format2};
pub use crate::statistics::CentralStatistics;
use crate::wire::classic::{
    CONTROL, ClassicBundle, ClassicControl, ClassicMessage, HOST_CONTROL, MAX_HOSTS, Source, host_bit,
    packet_address as classic_packet_address,
};
use crate::wire::format2::control::Control;
use crate::wire::format2::{Bundle, BundleBuilder, Header, Message, Role, is_too_long, packet_address};

/// The time between two refreshes of a level above the lowest.
const LEVEL_REFRESH: Span = Span::from_ms(250);

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
pub struct Central {
    shared: Shared,
    format: CentralFormat,
}

/// What both formats need: the media and the counters.
#[derive(Debug)]
struct Shared {
    config: CentralConfig,
    /// The hosts' medium, and the wide area.
    local: Regulator,
    wide_area: Regulator,
    statistics: CentralStatistics,
}

#[derive(Debug)]
enum CentralFormat {
    Classic(Box<ClassicCentral>),
    Format2(Box<Format2Central>),
}

/// The state in format 1 (classic).
#[derive(Debug)]
struct ClassicCentral {
    level1: Level1Owners,
    /// Messages for the hosts.
    bundler: Bundler,
    /// The levels last sent to hosts and to level 1, and when.
    sent_to_hosts: (u8, Instant),
    sent_to_level1: (u8, Instant),
}

/// The state in format 2.
#[derive(Debug)]
pub struct Format2Central {
    options: Format2,
    incarnation: u32,
    members: Members,
    level1_peers: Level1Peers,
    /// Ordinary messages for all hosts, with [`Fanout::Broadcast`].
    broadcast: Outbox,
    sequences: SequenceTracker,
    /// The limits last announced to hosts and to level 1.
    sent_to_hosts: (u8, u32),
    sent_to_level1: (u8, u32),
    /// The receivers of the current message.
    receivers: Vec<u16>,
    /// A host of this site that uses another site number, and that number.
    site_mismatch: Option<(u16, u16)>,
}

impl Central {
    /// The port to level 1.
    pub const LEVEL1: Port = Port(0);
    /// The port to hosts.
    pub const HOSTS: Port = Port(1);

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
        let format = match settings.format2() {
            None => CentralFormat::Classic(Box::new(ClassicCentral {
                level1: Level1Owners::new(level1, settings.pairs, settings.max_bundle, settings.timing),
                bundler: Bundler::new(None, settings.max_bundle, settings.timing),
                sent_to_hosts: (MIN_LEVEL, Instant::ZERO),
                sent_to_level1: (MIN_LEVEL, Instant::ZERO),
            })),
            Some(options) => CentralFormat::Format2(Box::new(Format2Central {
                incarnation,
                members: Members::new(secret, incarnation, settings, options),
                level1_peers: Level1Peers::new(secret, incarnation, level1, settings, options),
                broadcast: Outbox::new(options.max_datagram_octets(), settings.timing, Instant::ZERO),
                sequences: SequenceTracker::default(),
                sent_to_hosts: (MIN_LEVEL, NO_LIMIT),
                sent_to_level1: (MIN_LEVEL, NO_LIMIT),
                receivers: Vec::new(),
                site_mismatch: None,
                options,
            })),
        };
        // Format 1 (classic) has levels only.
        let congestion = settings.format2().map_or(Congestion::Levels, |options| options.congestion);
        let (local, wide_area) =
            (Regulator::new(congestion, config.local), Regulator::new(congestion, config.wide_area));
        let shared = Shared { config, local, wide_area, statistics: CentralStatistics::default() };
        Central { shared, format }
    }

    /// Refreshes the joins of level 1 at this interval, and stops strays. Zero refreshes only after a query or a
    /// refusal. Format 2 ignores this: it confirms assignments.
    pub fn with_refresh(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.format {
            classic.level1.set_refresh(every);
        }
        self
    }

    /// Moves packet addresses from the busiest to the idlest level-1 converter at this interval; zero disables it.
    /// Use it together with [refresh](Central::with_refresh), which repeats lost leaves. Format 2 always rebalances.
    pub fn with_rebalancing(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.format {
            classic.level1.balance = Balance::new(every);
        }
        self
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &CentralStatistics {
        &self.shared.statistics
    }

    /// Returns the congestion levels of the hosts' medium and of the wide area, 3 to 6.
    pub fn levels(&self) -> (u8, u8) {
        (self.shared.local.level(), self.shared.wide_area.level())
    }

    /// Returns the octets of ordinary messages per second that hosts and level-1 converters may send.
    pub fn rates(&self) -> (u32, u32) {
        (self.shared.hosts_limit().1, self.shared.level1_limit().1)
    }

    /// Returns whether a host subscribes to an address.
    pub fn is_subscribed(&self, host: u16, address: u32) -> bool {
        match &self.format {
            CentralFormat::Classic(classic) => {
                classic.level1.interest.hosts(address as u16) & host_bit(host as u8) != 0
            }
            CentralFormat::Format2(format2) => format2.segments().hosts(address).contains(&host),
        }
    }

    /// Returns subscribers and owners in format 1 (classic).
    pub fn subscriptions(&self) -> Option<&Interest> {
        match &self.format {
            CentralFormat::Classic(classic) => Some(&classic.level1.interest),
            CentralFormat::Format2(_) => None,
        }
    }

    /// Returns the state of format 2: hosts and level-1 converters.
    pub fn format2(&self) -> Option<&Format2Central> {
        match &self.format {
            CentralFormat::Classic(_) => None,
            CentralFormat::Format2(format2) => Some(format2),
        }
    }

    fn receive_bundle(&mut self, now: Instant, port: Port, peer: Peer, bytes: &[u8]) {
        let is_received = match &mut self.format {
            CentralFormat::Classic(classic) => classic.receive_bundle(&mut self.shared, now, port, bytes),
            CentralFormat::Format2(format2) => {
                format2.receive_bundle(&mut self.shared, now, port, peer, bytes)
            }
        };
        if is_received.is_none() {
            self.shared.statistics.malformed += 1;
        }
    }

    /// Handles everything that is due.
    fn handle_timers(&mut self, now: Instant) {
        self.shared.local.advance(now);
        self.shared.wide_area.advance(now);
        match &mut self.format {
            CentralFormat::Classic(classic) => classic.handle_timers(&mut self.shared, now),
            CentralFormat::Format2(format2) => format2.handle_timers(&mut self.shared, now),
        }
    }
}

impl Shared {
    /// Returns the level and rate that hosts may send at.
    fn hosts_limit(&self) -> (u8, u32) {
        (self.local.level(), self.local.rate())
    }

    /// The same for level 1, which loads both media.
    fn level1_limit(&self) -> (u8, u32) {
        (self.local.level().max(self.wide_area.level()), self.local.rate().min(self.wide_area.rate()))
    }
}

/// Queues a message if its medium admits it.
fn queue(
    medium: &mut Regulator,
    priority: bool,
    octets: usize,
    push: impl FnOnce() -> bool,
) -> Result<(), DropReason> {
    if !medium.admits(priority, octets) {
        return Err(DropReason::Congestion);
    }
    push().then_some(()).ok_or(DropReason::Full)
}

/// Counts a message as sent or dropped.
fn count(sent: &mut u64, drops: &mut DropCounts, priority: bool, result: Result<(), DropReason>) {
    match result {
        Ok(()) => *sent += 1,
        Err(reason) => drops.count(reason, priority),
    }
}

impl ClassicCentral {
    /// Handles a bundle; returns `None` if it is malformed.
    fn receive_bundle(&mut self, shared: &mut Shared, now: Instant, port: Port, bytes: &[u8]) -> Option<()> {
        let (source, bundle) = ClassicBundle::read_with_mask(bytes).ok()?;
        match (port, source) {
            (Central::LEVEL1, Source::Level1(number)) => {
                let at = self.level1.position(number)?;
                shared.wide_area.carry(now, bytes.len(), 0);
                shared.statistics.bundles_received += 1;
                self.level1.record_bundle(now, at, bundle.count());
                bundle.messages().for_each(|message| self.receive_from_level1(shared, now, at, message));
            }
            (Central::HOSTS, Source::Host(host)) if host <= shared.config.hosts.min(MAX_HOSTS) => {
                shared.local.carry(now, bytes.len(), 0);
                shared.statistics.bundles_received += 1;
                bundle.messages().for_each(|message| self.receive_from_host(shared, now, host, message));
            }
            _ => return None,
        }
        Some(())
    }

    fn receive_from_level1(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        at: usize,
        message: ClassicMessage<'_>,
    ) {
        if self.level1.refreshes() && is_query(message) {
            return self.level1.refresh_at(at, now);
        }
        shared.statistics.from_level1 += 1;
        let priority = shared.config.settings.is_priority(message.address);
        let drops = &mut shared.statistics.drops_to_hosts;
        if [CONTROL, HOST_CONTROL].contains(&message.octets()) {
            // A host would mistake one length for control, and the other is never valid.
            return drops.count(DropReason::Control, priority);
        }
        if !self.level1.forwards(now, at, classic_packet_address(message.address)) {
            return drops.count(DropReason::NoReceiver, priority);
        }
        self.send_to_hosts(shared, now, message, self.level1.interest.hosts(message.address), priority);
    }

    fn receive_from_host(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        host: u8,
        message: ClassicMessage<'_>,
    ) {
        let statistics = &mut shared.statistics;
        if message.octets() == CONTROL {
            let joins = match ClassicControl::read(message) {
                Some(ClassicControl::Join(_)) => true,
                Some(ClassicControl::Drop(_)) => false,
                _ => return statistics.malformed += 1,
            };
            statistics.control_messages += 1;
            return self.level1.change_interest(now, host, message.address, joins);
        }
        statistics.from_hosts += 1;
        let priority = shared.config.settings.is_priority(message.address);
        if message.octets() == HOST_CONTROL {
            return statistics.drops_to_hosts.count(DropReason::Control, priority);
        }
        let group = self.level1.interest.hosts(message.address) & !host_bit(host);
        if group != 0 {
            self.send_to_hosts(shared, now, message, group, priority);
        }
        let Shared { wide_area, statistics, .. } = shared;
        let packet = classic_packet_address(message.address);
        let at = self.level1.route(packet);
        let queued = queue(wide_area, priority, message.octets(), || {
            self.level1
                .push(now, at, packet, |bundler| bundler.push(now, message.address, message.body, priority))
        });
        count(&mut statistics.to_level1, &mut statistics.drops_to_level1, priority, queued);
    }

    /// Sends a message to a group of hosts, which replaces its address.
    fn send_to_hosts(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        message: ClassicMessage<'_>,
        group: u16,
        priority: bool,
    ) {
        let Shared { local, statistics, .. } = shared;
        let queued = match group {
            0 => Err(DropReason::NoReceiver),
            _ => queue(local, priority, message.octets(), || {
                self.bundler.push(now, group, message.body, priority)
            }),
        };
        count(&mut statistics.to_hosts, &mut statistics.drops_to_hosts, priority, queued);
    }

    /// Removes the interest of a host that refused a bundle.
    fn remove_host(&mut self, shared: &mut Shared, now: Instant, host: u8) {
        let joined: Vec<u16> = self.level1.interest.addresses_of(host).collect();
        shared.statistics.hosts_removed += u64::from(!joined.is_empty());
        joined.into_iter().for_each(|address| self.level1.change_interest(now, host, address, false));
    }

    fn handle_timers(&mut self, shared: &mut Shared, now: Instant) {
        self.level1.handle_timers(now);
        // A receiver may have missed the level or restarted.
        let refreshes = self.level1.refreshes();
        let needs_report = |level: u8, (sent, at): (u8, Instant)| {
            level != sent || refreshes && level > MIN_LEVEL && now >= at + LEVEL_REFRESH
        };
        let (level, _) = shared.hosts_limit();
        if needs_report(level, self.sent_to_hosts) && self.bundler.push_level_for_hosts(now, level) {
            self.sent_to_hosts = (level, now);
        }
        let (level, _) = shared.level1_limit();
        if needs_report(level, self.sent_to_level1) {
            self.sent_to_level1 = (level, now);
            self.level1.announce_to_all(now, ClassicControl::Level(level));
        }
        self.bundler.close_if_due(now);
        self.level1.close_if_due(now);
        shared.statistics.stray_groups = self.level1.stray_groups;
        shared.statistics.level1 = self.level1.balance.counts;
    }
}

/// Returns whether a level-1 converter asks for its joins: it sends its own level, 3.
fn is_query(message: ClassicMessage<'_>) -> bool {
    let (address, body) = ClassicControl::Level(MIN_LEVEL).write();
    message.address == address && message.body == body
}

impl Format2Central {
    /// Returns the present hosts.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the subscribers of all addresses.
    pub fn segments(&self) -> &Segments {
        self.members.segments()
    }

    /// Returns the first host that used another site number, and that number.
    pub fn site_mismatch(&self) -> Option<(u16, u16)> {
        self.site_mismatch
    }

    /// Returns the number of flows with tracked sequence numbers.
    pub fn flows(&self) -> usize {
        self.sequences.flows()
    }

    /// Returns the level-1 converters.
    pub fn level1_peers(&self) -> &Level1Peers {
        &self.level1_peers
    }

    /// Handles a bundle; returns `None` if it is malformed.
    fn receive_bundle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        port: Port,
        peer: Peer,
        bytes: &[u8],
    ) -> Option<()> {
        let bundle = Bundle::read(bytes).ok()?;
        let header = bundle.header();
        match (port, header.role) {
            (Central::LEVEL1, Role::Level1) if header.receiver == 0 => {
                self.receive_from_level1(shared, now, peer, bytes.len(), &bundle);
            }
            (Central::HOSTS, Role::Host) if header.receiver == 0 => {
                self.receive_from_host(shared, now, peer, bytes.len(), &bundle);
            }
            _ => return None,
        }
        Some(())
    }

    fn receive_from_level1(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        peer: Peer,
        octets: usize,
        bundle: &Bundle<'_>,
    ) {
        let header = bundle.header();
        let Some((at, in_session)) = self.level1_peers.receive(now, &header, peer, octets) else {
            shared.statistics.stale += 1;
            return;
        };
        shared.wide_area.carry(now, octets, 0);
        shared.statistics.bundles_received += 1;
        if in_session {
            if let Some(session) = self.level1_peers.session_mut(at) {
                shared.statistics.lost +=
                    u64::from(session.link.record_bundle(header.sent_before, bundle.count()));
            }
            for control in bundle.control() {
                match control {
                    Control::Assigned(version) => self.level1_peers.confirm_assignment(now, at, version),
                    Control::Bye => self.level1_peers.close(now, at),
                    _ => shared.statistics.malformed += 1,
                }
            }
        }
        for message in bundle.messages() {
            shared.statistics.from_level1 += 1;
            if self.options.is_local_source(message.source) {
                shared.statistics.looped_back += 1;
                continue;
            }
            match self.record_sequence(now, &message) {
                SequenceStatus::New => {
                    self.level1_peers.balance.loads.count(packet_address(message.address));
                    self.send_to_hosts(shared, now, &QueuedMessage::from_message(&message));
                }
                SequenceStatus::Duplicate => {}
                SequenceStatus::Unknown => {
                    shared.statistics.drops_to_hosts.count(DropReason::Full, message.priority)
                }
            }
        }
    }

    fn receive_from_host(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        peer: Peer,
        octets: usize,
        bundle: &Bundle<'_>,
    ) {
        let header = bundle.header();
        let number = header.number;
        let Some(in_session) = self.members.receive(now, &header, peer, octets) else {
            shared.statistics.stale += 1;
            return;
        };
        shared.local.carry(now, octets, 0);
        shared.statistics.bundles_received += 1;
        if in_session {
            if let Some(member) = self.members.get(number) {
                shared.statistics.lost +=
                    u64::from(member.session.link.record_bundle(header.sent_before, bundle.count()));
            }
            for control in bundle.control() {
                self.receive_host_control(shared, now, number, &control);
            }
        }
        for message in bundle.messages() {
            self.receive_host_message(shared, now, &header, in_session, &message);
        }
        self.members.reschedule(now, number);
    }

    fn receive_host_control(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        number: u16,
        control: &Control<'_>,
    ) {
        let rates = self.options.congestion == Congestion::Rates;
        let enough = shared.local.capacity();
        match (control, self.members.get(number)) {
            (Control::Join(changes), _) => self.members.apply_changes(now, number, changes, true),
            (Control::Drop(changes), _) => self.members.apply_changes(now, number, changes, false),
            (Control::Ack { next, beyond }, Some(member)) => {
                member.session.outbox.reliable.acknowledge(*next, *beyond)
            }
            (Control::Report { received, lost }, Some(member)) if rates => {
                member.apply_report(now, *received, *lost, enough);
            }
            (Control::Report { .. }, _) => {}
            (Control::Saturation(messages), Some(member)) => member.saturation.set_rate(*messages),
            (Control::Bye, _) => self.members.remove(number),
            (_, None) => {}
            _ => shared.statistics.malformed += 1,
        }
        shared.statistics.control_messages +=
            u64::from(matches!(control, Control::Join(_) | Control::Drop(_)));
    }

    fn receive_host_message(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        header: &Header,
        in_session: bool,
        message: &Message<'_>,
    ) {
        if message.source != self.options.source_of(header.number)
            || message.incarnation != header.incarnation
        {
            if !self.options.is_local_source(message.source) {
                self.site_mismatch.get_or_insert((header.number, (message.source >> 16) as u16));
            }
            return shared.statistics.malformed += 1;
        }
        let Some(number) = message.reliable else {
            return self.forward_host_message(
                shared,
                now,
                header.number,
                &QueuedMessage::from_message(message),
            );
        };
        let member = match self.members.get(header.number) {
            Some(member) if in_session => member,
            // The message is retransmitted in the session.
            _ => return,
        };
        member.request_ack(now);
        member.receiver.receive(number, || QueuedMessage::from_message(message));
        while let Some(queued) = self.members.get(header.number).and_then(|member| member.receiver.next()) {
            self.forward_host_message(shared, now, header.number, &queued);
        }
    }

    /// Forwards a message of a host to other hosts and to the wide area.
    fn forward_host_message(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        number: u16,
        queued: &QueuedMessage,
    ) {
        shared.statistics.from_hosts += 1;
        let priority = queued.priority;
        match self.record_sequence(now, &queued.message(None)) {
            SequenceStatus::New => {}
            SequenceStatus::Duplicate => return,
            SequenceStatus::Unknown => {
                return shared.statistics.drops_to_level1.count(DropReason::Full, priority);
            }
        }
        if self.members.segments().hosts(queued.address).iter().any(|host| *host != number) {
            self.send_to_hosts(shared, now, queued);
        }
        let Shared { wide_area, statistics, .. } = shared;
        let is_unfit = self.is_unfit(queued);
        let result = match self.level1_peers.route(packet_address(queued.address)) {
            None => Err(DropReason::Gone),
            Some(_) if is_unfit => Err(DropReason::Unfit),
            Some(session) => {
                queue(wide_area, priority, queued.octets(), || session.outbox.push(now, queued.clone()))
            }
        };
        count(&mut statistics.to_level1, &mut statistics.drops_to_level1, priority, result);
    }

    /// Returns whether this converter's datagrams are too small for a message.
    fn is_unfit(&self, queued: &QueuedMessage) -> bool {
        is_too_long(&queued.body, self.options.max_datagram_octets())
    }

    fn record_sequence(&mut self, now: Instant, message: &Message<'_>) -> SequenceStatus {
        self.sequences.record(now, Flow::of(message), message.incarnation, message.sequence)
    }

    /// Sends a message to its subscribers, but never back to its source.
    fn send_to_hosts(&mut self, shared: &mut Shared, now: Instant, queued: &QueuedMessage) {
        let own = self.options.is_local_source(queued.source).then_some(queued.source as u16);
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.clear();
        let hosts = self.members.segments().hosts(queued.address).iter().copied();
        receivers.extend(hosts.filter(|host| Some(*host) != own));
        let is_unfit = self.is_unfit(queued);
        let record = |shared: &mut Shared, result| {
            let CentralStatistics { to_hosts, drops_to_hosts, .. } = &mut shared.statistics;
            count(to_hosts, drops_to_hosts, queued.priority, result);
        };
        if receivers.is_empty() {
            record(shared, Err(DropReason::NoReceiver));
        } else if self.options.fanout == Fanout::Broadcast && !queued.priority {
            let result = match is_unfit {
                true => Err(DropReason::Unfit),
                false => queue(&mut shared.local, false, queued.octets(), || {
                    self.broadcast.push(now, queued.clone())
                }),
            };
            record(shared, result);
        } else {
            for host in &receivers {
                let result = self.send_to_host(&mut shared.local, now, *host, queued, is_unfit);
                record(shared, result);
            }
        }
        self.receivers = receivers;
    }

    fn send_to_host(
        &mut self,
        local: &mut Regulator,
        now: Instant,
        host: u16,
        queued: &QueuedMessage,
        is_unfit: bool,
    ) -> Result<(), DropReason> {
        let member = self.members.get(host).ok_or(DropReason::Gone)?;
        if is_unfit {
            return Err(DropReason::Unfit);
        }
        if !queued.priority {
            member.admit(now, queued.octets())?;
        }
        let outbox = &mut member.session.outbox;
        let result = queue(local, queued.priority, queued.octets(), || match queued.priority {
            true => outbox.push_reliable(now, queued.clone()),
            false => outbox.push(now, queued.clone()),
        });
        if result != Err(DropReason::Congestion) {
            self.members.reschedule(now, host);
        }
        result
    }

    fn handle_timers(&mut self, shared: &mut Shared, now: Instant) {
        self.announce_limits(shared, now);
        self.members.handle_timers(now);
        if let Some(addresses) = self.members.take_packet_addresses() {
            self.level1_peers.set_subscribed(now, addresses);
        }
        self.level1_peers.handle_timers(now);
        if self.uses_broadcast() {
            self.broadcast.update_ready(now);
        }
        let statistics = &mut shared.statistics;
        for (drops, [gone, urgent_gone]) in [
            (&mut statistics.drops_to_hosts, std::mem::take(&mut self.members.dropped)),
            (&mut statistics.drops_to_level1, std::mem::take(&mut self.level1_peers.dropped)),
        ] {
            drops.add(DropReason::Gone, false, gone);
            drops.add(DropReason::Gone, true, urgent_gone);
        }
        statistics.sequence = self.sequences.counts();
        (statistics.hosts_joined, statistics.hosts_left) = self.members.counts;
        statistics.level1 = self.level1_peers.counts();
        [statistics.changes_refused, statistics.changes_deferred] = self.members.changes_refused;
    }

    /// Announces changed limits at once. A level limits all senders, a rate only those that are sending.
    fn announce_limits(&mut self, shared: &Shared, now: Instant) {
        let rates = self.options.congestion == Congestion::Rates;
        let relevant = |(level, rate)| (if rates { MIN_LEVEL } else { level }, rate);
        let (hosts, level1) = (relevant(shared.hosts_limit()), relevant(shared.level1_limit()));
        if std::mem::replace(&mut self.sent_to_hosts, hosts) != hosts {
            self.members.announce_limits(now, !rates);
            if self.uses_broadcast() {
                self.broadcast.schedule_control(now);
            }
        }
        if std::mem::replace(&mut self.sent_to_level1, level1) != level1 {
            self.level1_peers.announce_limits(now);
        }
    }

    fn uses_broadcast(&self) -> bool {
        self.options.fanout == Fanout::Broadcast && !self.members.is_empty()
    }

    /// Returns whether a bundle is due for hosts.
    fn is_ready(&self) -> bool {
        self.members.is_ready() || self.uses_broadcast() && self.broadcast.is_ready()
    }

    /// Returns when the next timer is due.
    fn deadline(&self) -> Option<Instant> {
        let broadcast = self.uses_broadcast().then(|| self.broadcast.deadline()).flatten();
        [broadcast, self.members.deadline(), self.level1_peers.deadline()].into_iter().flatten().min()
    }

    /// Writes the next bundle for hosts: broadcast first, then to each host in turn.
    fn write_host_bundle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(Peer, usize, usize)> {
        let ((level, rate), incarnation) = (shared.hosts_limit(), self.incarnation);
        if self.uses_broadcast() && self.broadcast.is_ready() {
            let header = Header {
                role: Role::Central,
                number: 0,
                receiver: 0,
                incarnation,
                session: 0,
                sent_before: 0,
            };
            let limit = self.broadcast.take_limit(now, level, rate);
            let write_control =
                |builder: &mut BundleBuilder| limit.iter().for_each(|limit| _ = builder.push_control(limit));
            let length = self.broadcast.write_bundle(now, header, write_control, buffer);
            return Some((Peer::NONE, length, self.broadcast.admitted_octets()));
        }
        let number = self.members.next_ready()?;
        let member = self.members.get(number)?;
        let sent = member.write_bundle(now, incarnation, (level, rate), buffer);
        shared.statistics.retransmissions += member.take_retransmissions();
        self.members.reschedule(now, number);
        Some(sent)
    }
}

impl Endpoint for Central {
    type Command<'a> = CentralCommand;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, CentralCommand>) -> Result<(), Self::Refusal> {
        self.handle_timers(now);
        match (input, &mut self.format) {
            (Input::Frame { port, peer, bytes, segment }, _) => {
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, port, peer, bundle));
            }
            (Input::Wake, CentralFormat::Classic(_)) => {}
            (Input::Wake, CentralFormat::Format2(_)) => return Ok(()),
            (Input::Command(CentralCommand::HostRefused(host)), CentralFormat::Classic(classic)) => {
                classic.remove_host(&mut self.shared, now, host);
            }
            (Input::Command(CentralCommand::HostRefused(host)), CentralFormat::Format2(format2)) => {
                format2.members.remove(host.into());
            }
            (Input::Command(CentralCommand::Level1Refused(number)), CentralFormat::Classic(classic)) => {
                if let Some(at) = classic.level1.position(number) {
                    classic.level1.refresh_at(at, now + AFTER_REFUSAL);
                }
            }
            // The converter times out, or returns.
            (Input::Command(CentralCommand::Level1Refused(_)), CentralFormat::Format2(_)) => {}
        }
        match &mut self.format {
            CentralFormat::Classic(classic) => {
                self.shared.statistics.joins_refreshed += classic.level1.send_refresh(now);
            }
            CentralFormat::Format2(_) => self.handle_timers(now),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event> {
        if matches!(self.format, CentralFormat::Classic(_)) {
            // A due bundle leaves in the interval in which it is due.
            self.handle_timers(now);
        }
        let Central { shared, format } = self;
        for (port, is_writable) in [Central::HOSTS, Central::LEVEL1].map(|port| (port, writable.has(port))) {
            if !is_writable {
                continue;
            }
            let written = match (&mut *format, port) {
                (CentralFormat::Classic(classic), Central::HOSTS) => {
                    classic.bundler.write_next(now, buffer).map(|length| (Peer::NONE, length, 0))
                }
                (CentralFormat::Classic(classic), _) => {
                    classic.level1.write_bundle(now, buffer).map(|(peer, length)| (peer, length, 0))
                }
                (CentralFormat::Format2(format2), Central::HOSTS) => {
                    format2.write_host_bundle(shared, now, buffer)
                }
                (CentralFormat::Format2(format2), _) => {
                    format2.level1_peers.write_bundle(now, format2.incarnation, shared.level1_limit(), buffer)
                }
            };
            if let Some((peer, length, admitted)) = written {
                // It counts in the interval in which it leaves.
                let medium = if port == Central::HOSTS { &mut shared.local } else { &mut shared.wide_area };
                medium.carry(now, length, admitted);
                shared.statistics.bundles_sent += 1;
                return Output::Transmit(Transmit { port, peer, length, segment: None });
            }
        }
        let (for_hosts, for_level1, timer) = match format {
            CentralFormat::Classic(classic) => {
                let ClassicCentral { level1, bundler, .. } = &**classic;
                let timer = bundler.deadline().into_iter().chain(level1.deadline()).min();
                (bundler.is_ready(), level1.is_ready(), timer)
            }
            CentralFormat::Format2(format2) => {
                (format2.is_ready(), format2.level1_peers.is_ready(), format2.deadline())
            }
        };
        let reason = match (for_hosts, for_level1) {
            (true, _) => Reason::Port(Central::HOSTS),
            (false, true) => Reason::Port(Central::LEVEL1),
            (false, false) => Reason::Input,
        };
        let timers = [timer, shared.local.deadline(), shared.wide_area.deadline()];
        Output::Idle(Idle { deadline: timers.into_iter().flatten().min(), reason })
    }
}

impl CountUnsent for Central {
    fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let Shared { config, statistics, .. } = &mut self.shared;
        let CentralStatistics { drops_to_hosts, drops_to_level1, .. } = statistics;
        let is_for_hosts = port == Central::HOSTS;
        let drops = if is_for_hosts { drops_to_hosts } else { drops_to_level1 };
        let classic = match &self.format {
            CentralFormat::Format2(_) => return drops.count_unsent_bundle(frame),
            CentralFormat::Classic(classic) => classic,
        };
        let Ok(bundle) = ClassicBundle::read(frame) else { return };
        if !is_for_hosts {
            return drops.count_unsent_classic(&bundle, &config.settings);
        }
        // In bundles for hosts the address that shows the priority is gone. Control is counted as priority but is no
        // message.
        let control = bundle.messages().filter(|message| message.octets() == HOST_CONTROL).count();
        let urgent = classic.bundler.urgent_in_last();
        drops.add(DropReason::Unsent, true, urgent.saturating_sub(control) as u64);
        drops.add(DropReason::Unsent, false, bundle.count().saturating_sub(urgent) as u64);
    }
}

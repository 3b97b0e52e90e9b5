//! The central converter in format 2.

use trunkline_endpoint::{Peer, Port};
use trunkline_units::{Instant, Seed};

use super::{Central, Shared, count, queue};
use crate::api::CentralConfig;
use crate::drops::DropReason;
use crate::level::MIN_LEVEL;
use crate::level1_peers::Level1Peers;
use crate::members::Members;
use crate::outbox::{Outbox, QueuedMessage};
use crate::ranges::Segments;
use crate::regulator::{Congestion, NO_LIMIT, Regulator};
use crate::sequence::{Flow, SequenceStatus, SequenceTracker};
use crate::settings::{Fanout, Format2};
use crate::statistics::CentralStatistics;
use crate::wire::format2::control::Control;
use crate::wire::format2::{Bundle, BundleBuilder, Header, Message, Role, is_too_long, packet_address};

/// The state in format 2.
#[derive(Debug)]
pub struct Format2Central {
    options: Format2,
    pub(super) incarnation: u32,
    pub(super) members: Members,
    pub(super) level1_peers: Level1Peers,
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

impl Format2Central {
    pub(super) fn new(
        secret: Seed,
        incarnation: u32,
        config: &CentralConfig,
        options: Format2,
    ) -> Format2Central {
        let CentralConfig { settings, level1, .. } = config;
        Format2Central {
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
        }
    }

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
    pub(super) fn receive_bundle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        port: Port,
        peer: Peer,
        bytes: &[u8],
    ) -> Option<()> {
        let bundle = Bundle::read(bytes).ok()?;
        let (header, octets) = (bundle.header(), bytes.len());
        let (medium, is_in_session) = match (port, header.role) {
            (Central::LEVEL1, Role::Level1) if header.receiver == 0 => {
                (&mut shared.wide_area, self.level1_peers.receive(now, &header, peer, octets))
            }
            (Central::HOSTS, Role::Host) if header.receiver == 0 => {
                (&mut shared.local, self.members.receive(now, &header, peer, octets))
            }
            _ => return None,
        };
        let Some(in_session) = is_in_session else {
            shared.statistics.stale += 1;
            return Some(());
        };
        medium.carry(now, octets, 0);
        shared.statistics.bundles_received += 1;
        let number = header.number;
        let is_host = header.role == Role::Host;
        if in_session {
            let session = match is_host {
                true => self.members.get(number).map(|member| &mut member.session),
                false => self.level1_peers.session_mut(number),
            };
            let lost = session.map(|session| session.link.record_bundle(header.sent_before, bundle.count()));
            shared.statistics.lost += u64::from(lost.unwrap_or(0));
            for control in bundle.control() {
                match control {
                    control if is_host => self.receive_host_control(shared, now, number, &control),
                    Control::Assigned(version) => self.level1_peers.confirm_assignment(now, number, version),
                    Control::Bye => self.level1_peers.close(now, number),
                    _ => shared.statistics.malformed += 1,
                }
            }
        }
        for message in bundle.messages() {
            match is_host {
                true => self.receive_host_message(shared, now, &header, in_session, &message),
                false => self.receive_level1_message(shared, now, &message),
            }
        }
        if is_host {
            self.members.reschedule(now, number);
        }
        Some(())
    }

    fn receive_level1_message(&mut self, shared: &mut Shared, now: Instant, message: &Message<'_>) {
        shared.statistics.from_level1 += 1;
        if self.options.is_local_source(message.source) {
            shared.statistics.looped_back += 1;
            return;
        }
        match self.record_sequence(now, message) {
            SequenceStatus::New => {
                self.level1_peers.balance.loads.count(packet_address(message.address));
                self.send_to_hosts(shared, now, &QueuedMessage::from_message(message));
            }
            SequenceStatus::Duplicate => {}
            SequenceStatus::Unknown => {
                shared.statistics.drops_to_hosts.count(DropReason::Full, message.priority)
            }
        }
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
            let queued = QueuedMessage::from_message(message);
            return self.forward_host_message(shared, now, header.number, &queued);
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
            Some(session) => queue(wide_area, priority, queued.octets(), || {
                session.outbox.push(now, queued.clone(), false)
            }),
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
                    self.broadcast.push(now, queued.clone(), false)
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
        let result = queue(local, queued.priority, queued.octets(), || {
            outbox.push(now, queued.clone(), queued.priority)
        });
        if result != Err(DropReason::Congestion) {
            self.members.reschedule(now, host);
        }
        result
    }

    pub(super) fn handle_timers(&mut self, shared: &mut Shared, now: Instant) {
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
    pub(super) fn is_ready(&self) -> bool {
        self.members.is_ready() || self.uses_broadcast() && self.broadcast.is_ready()
    }

    /// Returns when the next timer is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let broadcast = self.uses_broadcast().then(|| self.broadcast.deadline()).flatten();
        [broadcast, self.members.deadline(), self.level1_peers.deadline()].into_iter().flatten().min()
    }

    /// Writes the next bundle for hosts: broadcast first, then to each host in turn.
    pub(super) fn write_host_bundle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(Peer, usize, usize)> {
        let ((level, rate), incarnation) = (shared.hosts_limit(), self.incarnation);
        if self.uses_broadcast() && self.broadcast.is_ready() {
            let header = Header::from_central(incarnation, 0, 0);
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

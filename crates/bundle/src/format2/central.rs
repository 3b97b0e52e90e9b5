//! The central converter in bundle format 2.

use trunkline_endpoint::{Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed};

use crate::api::{CENTRAL_HOSTS_PORT, CENTRAL_LEVEL1_PORT, CentralCommand, CentralConfig};
use crate::drops::DropReason;
use crate::level::MIN_LEVEL;
use crate::level1_peers::{Level1Peer, Level1Peers};
use crate::members::{DeliveryLimit, Members};
use crate::outbox::{Outbox, QueuedMessage};
use crate::ranges::Segments;
use crate::regulator::{Congestion, NO_LIMIT, Regulator};
use crate::sequence::{Flow, SequenceStatus, SequenceTracker};
use crate::settings::{Fanout, Format2};
use crate::statistics::CentralStatistics;
use crate::wire::format2::control::Control;
use crate::wire::format2::{Bundle, BundleBuilder, Header, Message, Role, is_too_long, packet_address};

/// The central converter in bundle format 2.
#[derive(Debug)]
pub struct Format2Central {
    options: Format2,
    incarnation: u32,
    members: Members,
    level1_peers: Level1Peers,
    /// Ordinary messages for all hosts, with [`Fanout::Broadcast`].
    broadcast: Outbox,
    /// The hosts' medium, and the wide area.
    local: Regulator,
    wide_area: Regulator,
    sequences: SequenceTracker,
    /// The limits last announced to hosts and to level 1.
    sent_to_hosts: (u8, u32),
    sent_to_level1: (u8, u32),
    /// The converter whose outbox is checked first.
    next_turn: usize,
    /// The receivers of the current message.
    receivers: Vec<u16>,
    /// A host of this site that uses another site number, and that number.
    site_mismatch: Option<(u16, u16)>,
    statistics: CentralStatistics,
}

impl Format2Central {
    /// Creates a central converter; its sessions are unpredictable without the secret.
    pub fn new(secret: Seed, incarnation: u32, config: &CentralConfig, format2: Format2) -> Format2Central {
        Format2Central {
            options: format2,
            incarnation,
            members: Members::new(secret, incarnation, &config.settings, format2),
            level1_peers: Level1Peers::new(secret, incarnation, &config.level1, &config.settings, format2),
            broadcast: Outbox::new(format2.max_datagram_octets(), config.settings.timing, Instant::ZERO),
            local: Regulator::new(format2.congestion, config.local),
            wide_area: Regulator::new(format2.congestion, config.wide_area),
            sequences: SequenceTracker::default(),
            sent_to_hosts: (MIN_LEVEL, NO_LIMIT),
            sent_to_level1: (MIN_LEVEL, NO_LIMIT),
            next_turn: 0,
            receivers: Vec::new(),
            site_mismatch: None,
            statistics: CentralStatistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &CentralStatistics {
        &self.statistics
    }

    pub(crate) fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let CentralStatistics { drops_to_hosts, drops_to_level1, .. } = &mut self.statistics;
        (if port == CENTRAL_HOSTS_PORT { drops_to_hosts } else { drops_to_level1 })
            .count_unsent_bundle(frame);
    }

    pub(crate) fn levels(&self) -> (u8, u8) {
        (self.local.level(), self.wide_area.level())
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

    /// Returns the octets of ordinary messages per second that hosts and level-1 converters may send.
    pub fn rates(&self) -> (u32, u32) {
        (self.hosts_limit().1, self.level1_limit().1)
    }

    /// Returns the level-1 converters.
    pub fn level1_peers(&self) -> &Level1Peers {
        &self.level1_peers
    }

    fn receive_bundle(&mut self, now: Instant, port: Port, peer: Peer, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        match (port, header.role) {
            (CENTRAL_LEVEL1_PORT, Role::Level1) if header.receiver == 0 => {
                self.receive_from_level1(now, peer, bytes.len(), &bundle)
            }
            (CENTRAL_HOSTS_PORT, Role::Host) if header.receiver == 0 => {
                self.receive_from_host(now, peer, bytes.len(), &bundle);
            }
            _ => self.statistics.malformed += 1,
        }
    }

    fn receive_from_level1(&mut self, now: Instant, peer: Peer, octets: usize, bundle: &Bundle<'_>) {
        let header = bundle.header();
        let Some((at, in_session)) = self.level1_peers.receive(now, &header, peer, octets) else {
            self.statistics.stale += 1;
            return;
        };
        self.wide_area.carry(now, octets, 0);
        self.statistics.bundles_received += 1;
        if in_session {
            if let Some(session) = self.level1_peers.get_mut(at).session_mut() {
                self.statistics.lost +=
                    u64::from(session.link.record_bundle(header.sent_before, bundle.count()));
            }
            for control in bundle.control() {
                match control {
                    Control::Assigned(version) => self.level1_peers.confirm_assignment(now, at, version),
                    Control::Bye => self.level1_peers.close(now, at),
                    _ => self.statistics.malformed += 1,
                }
            }
        }
        for message in bundle.messages() {
            self.statistics.from_level1 += 1;
            if self.options.is_local_source(message.source) {
                self.statistics.looped_back += 1;
                continue;
            }
            match self.record_sequence(now, &message) {
                SequenceStatus::New => {
                    self.level1_peers.count_message(packet_address(message.address));
                    self.send_to_hosts(now, &QueuedMessage::from_message(&message));
                }
                SequenceStatus::Duplicate => {}
                SequenceStatus::Unknown => {
                    self.statistics.drops_to_hosts.count(DropReason::Full, message.priority)
                }
            }
        }
    }

    fn receive_from_host(&mut self, now: Instant, peer: Peer, octets: usize, bundle: &Bundle<'_>) {
        let header = bundle.header();
        let number = header.number;
        let Some(in_session) = self.members.receive(now, &header, peer, octets) else {
            self.statistics.stale += 1;
            return;
        };
        self.local.carry(now, octets, 0);
        self.statistics.bundles_received += 1;
        if in_session {
            if let Some(member) = self.members.get(number) {
                self.statistics.lost +=
                    u64::from(member.session.link.record_bundle(header.sent_before, bundle.count()));
            }
            for control in bundle.control() {
                self.receive_host_control(now, number, &control);
            }
        }
        for message in bundle.messages() {
            self.receive_host_message(now, &header, in_session, &message);
        }
        self.members.reschedule(now, number);
    }

    fn receive_host_control(&mut self, now: Instant, number: u16, control: &Control<'_>) {
        let rates = self.options.congestion == Congestion::Rates;
        let enough = self.local.capacity();
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
            (Control::Saturation(messages), Some(member)) => member.set_saturation(*messages),
            (Control::Bye, _) => self.members.remove(number),
            (_, None) => {}
            _ => self.statistics.malformed += 1,
        }
        self.statistics.control_messages += u64::from(matches!(control, Control::Join(_) | Control::Drop(_)));
    }

    fn receive_host_message(
        &mut self,
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
            return self.statistics.malformed += 1;
        }
        let Some(number) = message.reliable else {
            return self.forward_host_message(now, header.number, &QueuedMessage::from_message(message));
        };
        let member = match self.members.get(header.number) {
            Some(member) if in_session => member,
            // The message is retransmitted in the session.
            _ => return,
        };
        member.request_ack(now);
        member.receiver.receive(number, || QueuedMessage::from_message(message));
        while let Some(queued) = self.members.get(header.number).and_then(|member| member.receiver.next()) {
            self.forward_host_message(now, header.number, &queued);
        }
    }

    /// Forwards a message of a host to other hosts and to the wide area.
    fn forward_host_message(&mut self, now: Instant, number: u16, queued: &QueuedMessage) {
        self.statistics.from_hosts += 1;
        match self.record_sequence(now, &queued.message(None)) {
            SequenceStatus::New => {}
            SequenceStatus::Duplicate => return,
            SequenceStatus::Unknown => {
                return self.statistics.drops_to_level1.count(DropReason::Full, queued.priority);
            }
        }
        if self.members.segments().hosts(queued.address).iter().any(|host| *host != number) {
            self.send_to_hosts(now, queued);
        }
        let drops = &mut self.statistics.drops_to_level1;
        let Some(at) = self.level1_peers.route(packet_address(queued.address)) else {
            return drops.count(DropReason::Gone, queued.priority);
        };
        if is_too_long(&queued.body, self.options.max_datagram_octets()) {
            // This converter's datagrams are smaller than the sender's.
            return drops.count(DropReason::Unfit, queued.priority);
        }
        if !self.wide_area.admits(queued.priority, queued.octets()) {
            return drops.count(DropReason::Congestion, queued.priority);
        }
        let session = self.level1_peers.get_mut(at).session_mut();
        match session.is_some_and(|session| session.outbox.push(now, queued.clone())) {
            true => self.statistics.to_level1 += 1,
            false => drops.count(DropReason::Full, queued.priority),
        }
    }

    fn record_sequence(&mut self, now: Instant, message: &Message<'_>) -> SequenceStatus {
        let Message { address, source, incarnation, sequence, priority, .. } = *message;
        self.sequences.record(
            now,
            Flow { source, packet: packet_address(address), priority },
            incarnation,
            sequence,
        )
    }

    /// Sends a message to its subscribers, but never back to its source.
    fn send_to_hosts(&mut self, now: Instant, queued: &QueuedMessage) {
        let own = self.options.is_local_source(queued.source).then_some(queued.source as u16);
        self.receivers.clear();
        let hosts = self.members.segments().hosts(queued.address).iter().copied();
        self.receivers.extend(hosts.filter(|host| Some(*host) != own));
        if self.receivers.is_empty() {
            return self.statistics.drops_to_hosts.count(DropReason::NoReceiver, queued.priority);
        }
        if self.options.fanout == Fanout::Broadcast && !queued.priority {
            return self.send_broadcast(now, queued);
        }
        let receivers = std::mem::take(&mut self.receivers);
        for host in &receivers {
            match self.send_to_host(now, *host, queued) {
                Ok(()) => self.statistics.to_hosts += 1,
                Err(reason) => self.statistics.drops_to_hosts.count(reason, queued.priority),
            }
        }
        self.receivers = receivers;
    }

    fn send_broadcast(&mut self, now: Instant, queued: &QueuedMessage) {
        let drops = &mut self.statistics.drops_to_hosts;
        if is_too_long(&queued.body, self.options.max_datagram_octets()) {
            return drops.count(DropReason::Unfit, false);
        }
        if !self.local.admits(false, queued.octets()) {
            return drops.count(DropReason::Congestion, false);
        }
        match self.broadcast.push(now, queued.clone()) {
            true => self.statistics.to_hosts += 1,
            false => drops.count(DropReason::Full, false),
        }
    }

    fn send_to_host(&mut self, now: Instant, host: u16, queued: &QueuedMessage) -> Result<(), DropReason> {
        let Some(member) = self.members.get(host) else { return Err(DropReason::Gone) };
        if is_too_long(&queued.body, self.options.max_datagram_octets()) {
            return Err(DropReason::Unfit);
        }
        if !queued.priority {
            member.admits(now, queued.octets()).map_err(|limit| match limit {
                DeliveryLimit::Lossy => DropReason::Congestion,
                DeliveryLimit::Saturated => DropReason::Saturated,
            })?;
        }
        if !self.local.admits(queued.priority, queued.octets()) {
            return Err(DropReason::Congestion);
        }
        let pushed = match queued.priority {
            true => member.session.outbox.push_reliable(now, queued.clone()),
            false => member.session.outbox.push(now, queued.clone()),
        };
        self.members.reschedule(now, host);
        pushed.then_some(()).ok_or(DropReason::Full)
    }

    /// Handles everything that is due.
    fn handle_timers(&mut self, now: Instant) {
        self.local.advance(now);
        self.wide_area.advance(now);
        self.announce_limits(now);
        self.members.handle_timers(now);
        if let Some(addresses) = self.members.take_packet_addresses() {
            self.level1_peers.set_subscribed(now, addresses);
        }
        self.level1_peers.handle_timers(now);
        if self.uses_broadcast() {
            self.broadcast.update_ready(now);
        }
        let [gone, urgent_gone] = self.members.take_dropped();
        self.statistics.drops_to_hosts.add(DropReason::Gone, false, gone);
        self.statistics.drops_to_hosts.add(DropReason::Gone, true, urgent_gone);
        let [gone, urgent_gone] = self.level1_peers.take_dropped();
        self.statistics.drops_to_level1.add(DropReason::Gone, false, gone);
        self.statistics.drops_to_level1.add(DropReason::Gone, true, urgent_gone);
        self.statistics.sequence = self.sequences.counts();
        (self.statistics.hosts_joined, self.statistics.hosts_left) = self.members.counts();
        self.statistics.level1 = self.level1_peers.counts();
        [self.statistics.changes_refused, self.statistics.changes_deferred] = self.members.changes_refused();
    }

    /// Announces changed limits at once. A level limits all senders, a rate only those that are sending.
    fn announce_limits(&mut self, now: Instant) {
        let rates = self.options.congestion == Congestion::Rates;
        let level = |level| if rates { MIN_LEVEL } else { level };
        let hosts = (level(self.local.level()), self.local.rate());
        if std::mem::replace(&mut self.sent_to_hosts, hosts) != hosts {
            self.members.announce_limits(now, !rates);
            if self.uses_broadcast() {
                self.broadcast.schedule_control(now);
            }
        }
        let higher = self.local.level().max(self.wide_area.level());
        let level1 = (level(higher), self.local.rate().min(self.wide_area.rate()));
        if std::mem::replace(&mut self.sent_to_level1, level1) != level1 {
            self.level1_peers.announce_limits(now);
        }
    }

    fn uses_broadcast(&self) -> bool {
        self.options.fanout == Fanout::Broadcast && !self.members.is_empty()
    }

    fn header(&self, to: u16, session: u32) -> Header {
        Header {
            role: Role::Central,
            number: 0,
            receiver: to,
            incarnation: self.incarnation,
            session,
            sent_before: 0,
        }
    }

    /// Messages of level 1 load both media.
    fn level1_limit(&self) -> (u8, u32) {
        (self.local.level().max(self.wide_area.level()), self.local.rate().min(self.wide_area.rate()))
    }

    fn hosts_limit(&self) -> (u8, u32) {
        (self.local.level(), self.local.rate())
    }

    /// Writes the next bundle for hosts: broadcast first, then to each host in turn.
    fn write_host_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let (level, rate) = self.hosts_limit();
        let port = CENTRAL_HOSTS_PORT;
        if self.uses_broadcast() && self.broadcast.is_ready() {
            let header = self.header(0, 0);
            let limit = self.broadcast.take_limit(now, level, rate);
            let write_control =
                |builder: &mut BundleBuilder| limit.iter().for_each(|limit| _ = builder.push_control(limit));
            let length = self.broadcast.write_bundle(now, header, write_control, buffer);
            self.local.carry(now, length, self.broadcast.admitted_octets());
            return Some(Transmit { port, peer: Peer::NONE, length, segment: None });
        }
        let number = self.members.next_ready()?;
        let member = self.members.get(number)?;
        let (peer, length, admitted) = member.write_bundle(now, self.incarnation, (level, rate), buffer);
        self.statistics.retransmissions += member.take_retransmissions();
        self.local.carry(now, length, admitted);
        self.members.reschedule(now, number);
        Some(Transmit { port, peer, length, segment: None })
    }

    /// Writes the next bundle for level 1, serving converters in turn.
    fn write_level1_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let count = self.level1_peers.len();
        let ready = |at: &usize| self.level1_peers.iter().nth(*at).is_some_and(Level1Peer::is_ready);
        let at = (0..count).map(|n| (self.next_turn + n) % count).find(ready)?;
        self.next_turn = at + 1;
        let (limits, incarnation) = (self.level1_limit(), self.incarnation);
        let converter = self.level1_peers.get_mut(at);
        let (peer, length, admitted) = converter.write_bundle(now, incarnation, limits, buffer)?;
        self.wide_area.carry(now, length, admitted);
        Some(Transmit { port: CENTRAL_LEVEL1_PORT, peer, length, segment: None })
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_, CentralCommand>) {
        self.handle_timers(now);
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, port, peer, bundle));
            }
            Input::Wake => return,
            Input::Command(CentralCommand::HostRefused(number)) => self.members.remove(number.into()),
            // The converter times out, or returns.
            Input::Command(CentralCommand::Level1Refused(_)) => {}
        }
        self.handle_timers(now);
    }

    pub(crate) fn poll<E>(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E> {
        let mut transmit = None;
        if writable.has(CENTRAL_HOSTS_PORT) {
            transmit = self.write_host_bundle(now, buffer);
        }
        if transmit.is_none() && writable.has(CENTRAL_LEVEL1_PORT) {
            transmit = self.write_level1_bundle(now, buffer);
        }
        if let Some(transmit) = transmit {
            self.statistics.bundles_sent += 1;
            return Output::Transmit(transmit);
        }
        let uses_broadcast = self.uses_broadcast();
        let all = uses_broadcast.then(|| self.broadcast.deadline()).flatten();
        let media = [self.local.deadline(), self.wide_area.deadline()];
        let others = [all, self.members.deadline(), self.level1_peers.deadline()];
        let deadline = media.into_iter().chain(others).flatten().min();
        let level1 = self.level1_peers.iter().any(Level1Peer::is_ready);
        let reason = if self.members.is_ready() || uses_broadcast && self.broadcast.is_ready() {
            Reason::Port(CENTRAL_HOSTS_PORT)
        } else if level1 {
            Reason::Port(CENTRAL_LEVEL1_PORT)
        } else {
            Reason::Input
        };
        Output::Idle(Idle { deadline, reason })
    }
}

//! The endpoint of a host in bundle format 2.

use std::collections::VecDeque;

use trunkline_endpoint::{Idle, Input, Output, Peer, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

use super::outbox::{Outbox, QueuedMessage};
use super::{ACK_DELAY, ACK_EVERY, CENTRAL_TIMEOUT, HELLO_INTERVAL, RETRY_INTERVAL, SATURATION_BURST};
use crate::api::{CommandError, HOST_CENTRAL_PORT, HostCommand, HostEvent, OutgoingMessage};
use crate::drops::DropReason;
use crate::inbox::{Inbox, MessageInfo, Sink};
use crate::level::{Level, MIN_LEVEL};
use crate::ranges::{MAX_RANGES, Ranges};
use crate::regulator::{Congestion, NO_LIMIT, REFILL_INTERVAL, TokenBucket};
use crate::reliable::ReliableReceiver;
use crate::sequence::{Flow, LinkCounter, SequenceStatus, SequenceTracker, is_newer};
use crate::settings::{Format2, Settings};
use crate::statistics::HostStatistics;
use crate::wire::classic::PACKET_ADDRESSES;
use crate::wire::format2::control::{self, Control, RangeChanges};
use crate::wire::format2::{self, Bundle, BundleBuilder, Header, Message, Role, packet_address};

/// The largest number of unconfirmed joins and leaves. Further ones are refused.
const MAX_PENDING_CHANGES: usize = 2 * MAX_RANGES;

/// The number of abandoned sessions to remember. Bundles of older ones are no longer in flight.
const MAX_LEFT_SESSIONS: usize = 4;

/// A join or leave of a range.
#[derive(Clone, Copy, Debug)]
struct RangeChange {
    joins: bool,
    first: u32,
    last: u32,
}

/// The endpoint of a host. It belongs to the session of the last accepted bundle from the central converter.
#[derive(Debug)]
pub struct Format2Host {
    settings: Settings,
    options: Format2,
    number: u16,
    incarnation: u32,
    outbox: Outbox,
    /// The central converter's incarnation and the session it issued; and the last abandoned sessions, in any order.
    session: Option<(u32, u32)>,
    left_sessions: [Option<(u32, u32)>; MAX_LEFT_SESSIONS],
    last_received: Instant,
    /// Whether the central converter has timed out.
    central_timed_out: bool,
    interest: Ranges,
    /// Joins and leaves that the central converter has not confirmed, and the number that it has confirmed.
    changes: VecDeque<RangeChange>,
    confirmed_changes: u32,
    changes_due: Instant,
    /// The next sequence number by packet address, for ordinary and for priority messages.
    next_sequences: Box<[[u32; 2]; PACKET_ADDRESSES]>,
    receiver: ReliableReceiver<QueuedMessage>,
    ack_pending: bool,
    sequences: SequenceTracker,
    link: LinkCounter,
    /// Broadcast bundles.
    broadcast_link: LinkCounter,
    report_due: Instant,
    inbox: Inbox,
    level: u8,
    reported_level: u8,
    allowed: u8,
    allowed_until: Instant,
    bucket: TokenBucket,
    /// The host's receive limit for ordinary messages.
    saturation: TokenBucket,
    /// Whether a receive limit was ever sent, so that its removal is sent, too.
    saturation_sent: bool,
    is_closing: bool,
    statistics: HostStatistics,
}

impl Format2Host {
    /// Creates host `number` with its `incarnation`.
    pub fn new(number: u16, incarnation: u32, settings: &Settings, format2: Format2) -> Format2Host {
        let max_octets = format2.max_datagram_octets();
        Format2Host {
            settings: *settings,
            options: format2,
            number,
            incarnation,
            outbox: Outbox::new(max_octets, settings.timing, Instant::ZERO),
            session: None,
            left_sessions: [None; MAX_LEFT_SESSIONS],
            last_received: Instant::ZERO,
            central_timed_out: false,
            interest: Ranges::default(),
            changes: VecDeque::new(),
            confirmed_changes: 0,
            changes_due: Instant::MAX,
            next_sequences: Box::new([[0; 2]; PACKET_ADDRESSES]),
            receiver: ReliableReceiver::default(),
            ack_pending: false,
            sequences: SequenceTracker::default(),
            link: LinkCounter::default(),
            broadcast_link: LinkCounter::default(),
            report_due: Instant::ZERO,
            inbox: Inbox::default(),
            level: MIN_LEVEL,
            reported_level: MIN_LEVEL,
            allowed: 0,
            allowed_until: Instant::ZERO,
            bucket: TokenBucket::new(max_octets, REFILL_INTERVAL),
            saturation: TokenBucket::new(1, SATURATION_BURST),
            saturation_sent: false,
            is_closing: false,
            statistics: HostStatistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &HostStatistics {
        &self.statistics
    }

    pub(crate) fn count_unsent(&mut self, frame: &[u8]) {
        self.statistics.drops.count_unsent_bundle(frame);
    }

    pub(crate) fn level(&self, now: Instant) -> u8 {
        if now >= self.last_received + CENTRAL_TIMEOUT { MIN_LEVEL } else { self.level }
    }

    /// Returns the number of joined addresses.
    pub(crate) fn joined(&self) -> usize {
        self.interest.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Returns whether the host has joined an address.
    pub(crate) fn has_joined(&self, address: u32) -> bool {
        self.interest.contains(address)
    }

    /// Returns whether anything waits to be sent or confirmed.
    pub(crate) fn has_pending(&self) -> bool {
        let (ordinary, urgent) = self.outbox.waiting();
        ordinary + urgent + self.changes.len() > 0 || self.is_closing
    }

    fn send(&mut self, now: Instant, post: &OutgoingMessage<'_>) -> Result<(), CommandError> {
        let OutgoingMessage { address, body, .. } = *post;
        let priority = post.priority || post.max_wait.is_some();
        let refused = if format2::is_too_long(body, self.options.max_datagram_octets()) {
            Some((DropReason::Unfit, CommandError::TooLong))
        } else if !priority && !self.admits(now, body) {
            Some((DropReason::Congestion, CommandError::Congested(self.level)))
        } else {
            None
        };
        if let Some((reason, refusal)) = refused {
            self.statistics.drops.count(reason, priority);
            return Err(refusal);
        }
        let sequence = &mut self.next_sequences[usize::from(packet_address(address))][usize::from(priority)];
        let queued = QueuedMessage {
            address,
            source: self.options.source_of(self.number),
            incarnation: self.incarnation,
            sequence: *sequence,
            max_wait_10us: format2::encode_max_wait(post.max_wait),
            priority,
            body: body.into(),
        };
        let pushed = match priority {
            true => self.outbox.push_reliable(now, queued),
            false => self.outbox.push(now, queued),
        };
        if !pushed {
            self.statistics.drops.count(DropReason::Full, priority);
            return Err(CommandError::Full);
        }
        *sequence = sequence.wrapping_add(1);
        self.statistics.sent += 1;
        Ok(())
    }

    fn admits(&mut self, now: Instant, body: &[u8]) -> bool {
        if self.options.congestion == Congestion::Rates {
            return self.bucket.admits(now, format2::ENTRY + format2::carried_octets(body));
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
        }
        Level::admit(self.level, &mut self.allowed, false)
    }

    /// Joins or leaves a range.
    fn change_interest(
        &mut self,
        now: Instant,
        first: u32,
        last: u32,
        joins: bool,
    ) -> Result<(), CommandError> {
        // With pairs, an odd address carries the priority messages of the even address before it.
        let (first, last) = if self.settings.pairs { (first & !1, last | 1) } else { (first, last) };
        if first > last {
            return Err(CommandError::Range);
        }
        let available = self.changes.len() < MAX_PENDING_CHANGES;
        if !available
            || !(if joins { self.interest.insert(first, last) } else { self.interest.remove(first, last) })
        {
            return Err(CommandError::Full);
        }
        if self.session.is_some() {
            if self.changes.is_empty() {
                self.changes_due = now;
                self.outbox.schedule_control(now);
            }
            self.changes.push_back(RangeChange { joins, first, last });
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, now: Instant, datagram: &[u8], sink: &mut impl Sink) {
        self.handle_timers(now);
        self.receive_bundle(now, datagram, sink);
        self.handle_timers(now);
    }

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        if header.role != Role::Central || ![0, self.number].contains(&header.receiver) {
            return self.statistics.malformed += 1;
        }
        self.statistics.bundles_received += 1;
        if header.receiver == 0 {
            return self.receive_broadcast(now, &bundle, sink);
        }
        if !self.accept_session(now, &header) {
            self.statistics.stale += 1;
            return;
        }
        self.link.record_bundle(header.sent_before, bundle.count());
        for control in bundle.control() {
            match control {
                Control::Confirmed(count) => self.confirm_changes(now, count),
                Control::Ack { next, beyond } => self.outbox.reliable.acknowledge(next, beyond),
                Control::Level { level, rate } => self.apply_limit(level, rate),
                _ => self.statistics.malformed += 1,
            }
        }
        for message in bundle.messages() {
            match message.reliable {
                None => self.deliver(now, &message, sink),
                Some(number) => self.receive_reliable(now, number, &message, sink),
            }
        }
        self.update_statistics();
    }

    /// Handles a broadcast bundle. It belongs to no session and carries only control messages for all hosts.
    fn receive_broadcast(&mut self, now: Instant, bundle: &Bundle<'_>, sink: &mut impl Sink) {
        let header = bundle.header();
        if self.session.is_none_or(|(incarnation, _)| incarnation != header.incarnation)
            || header.session != 0
        {
            self.statistics.stale += 1;
            return;
        }
        self.broadcast_link.record_bundle(header.sent_before, bundle.count());
        for control in bundle.control() {
            match control {
                Control::Level { level, rate } => self.apply_limit(level, rate),
                _ => self.statistics.malformed += 1,
            }
        }
        bundle
            .messages()
            .filter(|message| message.reliable.is_none())
            .for_each(|message| self.deliver(now, &message, sink));
        self.update_statistics();
    }

    fn apply_limit(&mut self, level: u8, rate: u32) {
        self.level = level;
        self.bucket.set_rate(rate);
    }

    /// Returns whether a bundle belongs to the current session, or to a new one, which then becomes current.
    /// Abandoned sessions are never resumed.
    fn accept_session(&mut self, now: Instant, header: &Header) -> bool {
        let offered = (header.incarnation, header.session);
        if offered.1 == 0 {
            return false;
        }
        let current = self.session.filter(|_| !self.central_timed_out);
        if current.is_some_and(|current| is_newer(current.0, offered.0))
            || self.left_sessions.contains(&Some(offered))
        {
            return false;
        }
        (self.last_received, self.central_timed_out) = (now, false);
        if self.session == Some(offered) {
            return true;
        }
        if self.session.is_none_or(|current| current.0 != offered.0) {
            self.broadcast_link = LinkCounter::default();
        }
        self.left_sessions[self.statistics.sessions as usize % MAX_LEFT_SESSIONS] =
            self.session.replace(offered);
        self.statistics.sessions += 1;
        self.outbox.restart(now, true);
        (self.link, self.receiver, self.ack_pending) =
            (LinkCounter::default(), ReliableReceiver::default(), false);
        // A new session starts with all joined ranges.
        self.confirmed_changes = 0;
        self.changes =
            self.interest.iter().map(|(first, last)| RangeChange { joins: true, first, last }).collect();
        self.outbox.schedule_control(now);
        self.schedule_changes(now);
        true
    }

    /// Handles the central converter's confirmation of the first `count` changes of this session.
    fn confirm_changes(&mut self, now: Instant, count: u32) {
        let newly_confirmed = count.wrapping_sub(self.confirmed_changes) as usize;
        if newly_confirmed == 0 || newly_confirmed > self.changes.len() {
            return;
        }
        self.changes.drain(..newly_confirmed);
        self.confirmed_changes = count;
        self.schedule_changes(now);
    }

    /// Schedules the unconfirmed changes to be sent now, if there are any.
    fn schedule_changes(&mut self, now: Instant) {
        self.changes_due = if self.changes.is_empty() { Instant::MAX } else { now };
        self.outbox.schedule_control(self.changes_due);
    }

    /// Returns whether the host has joined the address of a message and has not received it before.
    fn is_new(&mut self, now: Instant, message: &Message<'_>) -> bool {
        let Message { address, source, incarnation, sequence, priority, .. } = *message;
        if source == self.options.source_of(self.number) || !self.interest.contains(address) {
            self.statistics.for_others += 1;
            return false;
        }
        let flow = Flow { source, packet: packet_address(address), priority };
        match self.sequences.record(now, flow, incarnation, sequence) {
            SequenceStatus::New => true,
            SequenceStatus::Duplicate => false,
            SequenceStatus::Unknown => {
                self.statistics.drops.count(DropReason::Full, priority);
                false
            }
        }
    }

    fn deliver(&mut self, now: Instant, message: &Message<'_>, sink: &mut impl Sink) {
        if !self.is_new(now, message) {
            return;
        }
        if !message.priority && !self.saturation.admits(now, 1) {
            return self.statistics.drops.count(DropReason::Saturated, false);
        }
        self.push(message_info(message), message.body, sink);
    }

    fn receive_reliable(&mut self, now: Instant, number: u16, message: &Message<'_>, sink: &mut impl Sink) {
        if !self.ack_pending {
            self.ack_pending = true;
            self.outbox.schedule_control(now + ACK_DELAY);
        }
        self.receiver.receive(number, || QueuedMessage::from_message(message));
        self.deliver_reliable(now, sink);
    }

    /// Delivers the reliable messages that are in order while there is room. The others are not acknowledged, and so
    /// are retransmitted.
    fn deliver_reliable(&mut self, now: Instant, sink: &mut impl Sink) {
        while self.receiver.peek().is_some_and(|queued| sink.has_room(&queued.body))
            && let Some(queued) = self.receiver.next()
        {
            if self.receiver.unacknowledged() >= ACK_EVERY {
                self.outbox.schedule_control(now);
            }
            let message = queued.message(None);
            if self.is_new(now, &message) {
                self.push(message_info(&message), message.body, sink);
            }
        }
    }

    fn push(&mut self, from: MessageInfo, body: &[u8], sink: &mut impl Sink) {
        match sink.push(from, body) {
            true => self.statistics.received += 1,
            false => self.statistics.drops.count(DropReason::Full, from.priority),
        }
    }

    fn update_statistics(&mut self) {
        self.statistics.sequence = self.sequences.counts();
        self.statistics.broadcasts_lost = u64::from(self.broadcast_link.lost);
        self.statistics.lost = u64::from(self.link.lost) + u64::from(self.broadcast_link.lost);
        self.statistics.retransmissions = self.outbox.reliable.retransmissions();
    }

    /// After a timeout of the central converter, accepts any new session and lifts the limits. The session remains
    /// current, since only the network may have failed and messages may still be acknowledged.
    fn handle_timers(&mut self, now: Instant) {
        if self.session.is_some() && !self.central_timed_out && now >= self.last_received + CENTRAL_TIMEOUT {
            (self.central_timed_out, self.level) = (true, MIN_LEVEL);
            self.bucket.set_rate(NO_LIMIT);
            self.statistics.central_timeouts += 1;
        }
        self.outbox.update_ready(now);
    }

    /// Writes the next bundle into `buffer` and returns its length.
    fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let session = self.session.map_or(0, |(_, session)| session);
        let header = Header {
            role: Role::Host,
            number: self.number,
            receiver: 0,
            incarnation: self.incarnation,
            session,
            sent_before: 0,
        };
        let Format2Host {
            outbox,
            changes,
            confirmed_changes,
            changes_due,
            receiver,
            ack_pending,
            link,
            report_due,
            ..
        } = self;
        let (saturation, was_saturated) = (self.saturation.rate(), self.saturation_sent);
        let ends = std::mem::take(&mut self.is_closing);
        let mut next_announcement = None;
        let write_control = |builder: &mut BundleBuilder| {
            if ends {
                builder.push_control(&Control::Bye);
            }
            if session == 0 {
                return;
            }
            if std::mem::take(ack_pending) {
                let (next, beyond) = receiver.acknowledgement();
                builder.push_control(&Control::Ack { next, beyond });
            }
            if now >= *report_due {
                *report_due = now + HELLO_INTERVAL;
                builder.push_control(&Control::Report { received: link.received, lost: link.missing() });
                if was_saturated {
                    builder.push_control(&Control::Saturation(saturation));
                }
            }
            if now >= *changes_due {
                push_changes(builder, changes, *confirmed_changes);
                *changes_due = now + RETRY_INTERVAL;
                next_announcement = Some(*changes_due);
            }
        };
        let length = outbox.write_bundle(now, header, write_control, buffer);
        if let Some(next_announcement) = next_announcement {
            outbox.schedule_control(next_announcement);
        }
        self.update_statistics();
        length
    }

    pub(crate) fn handle(
        &mut self,
        now: Instant,
        input: Input<'_, HostCommand<'_>>,
    ) -> Result<(), CommandError> {
        self.handle_timers(now);
        let result = match input {
            Input::Frame { port: HOST_CENTRAL_PORT, bytes, segment, .. } => {
                let mut inbox = std::mem::take(&mut self.inbox);
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, bundle, &mut inbox));
                self.inbox = inbox;
                Ok(())
            }
            Input::Frame { .. } => {
                self.statistics.malformed += 1;
                Ok(())
            }
            Input::Wake => Ok(()),
            Input::Command(command) => self.execute(now, command),
        };
        self.handle_timers(now);
        result
    }

    fn execute(&mut self, now: Instant, command: HostCommand<'_>) -> Result<(), CommandError> {
        match command {
            HostCommand::Send { address, body } => {
                let priority = self.settings.is_priority(address);
                self.send(now, &OutgoingMessage { address: address.into(), priority, max_wait: None, body })
            }
            HostCommand::SendMessage(post) => self.send(now, &post),
            HostCommand::Join(address) => self.change_interest(now, address.into(), address.into(), true),
            HostCommand::Drop(address) => self.change_interest(now, address.into(), address.into(), false),
            HostCommand::JoinRange { first, last } => self.change_interest(now, first, last, true),
            HostCommand::DropRange { first, last } => self.change_interest(now, first, last, false),
            HostCommand::DropAll => self.change_interest(now, 0, u32::MAX, false),
            // Hellos replace these: format 2 detects restarts and repeats unconfirmed changes.
            HostCommand::CentralRefused | HostCommand::DropAgain { .. } => Ok(()),
            HostCommand::Receive { into, from } => {
                *from = self.inbox.pop(into);
                if self.receiver.peek().is_some() {
                    self.ack_pending = true;
                    self.outbox.schedule_control(now + ACK_DELAY);
                    let mut inbox = std::mem::take(&mut self.inbox);
                    self.deliver_reliable(now, &mut inbox);
                    self.inbox = inbox;
                }
                Ok(())
            }
            HostCommand::Saturate(messages) => {
                self.saturation.set_rate(messages.unwrap_or(NO_LIMIT));
                self.saturation_sent |= messages.is_some();
                self.report_due = now;
                self.outbox.schedule_control(now);
                Ok(())
            }
            HostCommand::Bye => {
                self.is_closing = true;
                self.outbox.schedule_control(now);
                Ok(())
            }
        }
    }

    pub(crate) fn poll(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<HostEvent> {
        if self.inbox.became_readable() {
            return Output::Event(HostEvent::Readable);
        }
        if self.reported_level != self.level {
            self.reported_level = self.level;
            return Output::Event(HostEvent::Level(self.level));
        }
        if writable.has(HOST_CENTRAL_PORT) && self.outbox.is_ready() {
            let length = self.write_bundle(now, buffer);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(Transmit {
                port: HOST_CENTRAL_PORT,
                peer: Peer::NONE,
                length,
                segment: None,
            });
        }
        let reason = if self.outbox.is_ready() { Reason::Port(HOST_CENTRAL_PORT) } else { Reason::Input };
        let timeout =
            self.session.filter(|_| !self.central_timed_out).map(|_| self.last_received + CENTRAL_TIMEOUT);
        Output::Idle(Idle { deadline: self.outbox.deadline().into_iter().chain(timeout).min(), reason })
    }
}

/// Returns the metadata of a message.
fn message_info(message: &Message<'_>) -> MessageInfo {
    MessageInfo { address: message.address, source: message.source, priority: message.priority }
}

/// Adds the first unconfirmed changes, using at most half of the free space, so that messages fit, too.
fn push_changes(builder: &mut BundleBuilder, changes: &VecDeque<RangeChange>, confirmed_changes: u32) {
    let available = (builder.available() / 2).min(format2::MIN_DATAGRAM * 2);
    let (mut number, mut octets) = (confirmed_changes, 0);
    let mut encoded: Vec<u8> = Vec::new();
    let mut changes = changes.iter().peekable();
    while let Some(change) = changes.next() {
        encoded.extend_from_slice(&RangeChanges::encode(change.first, change.last));
        let full = octets + control::RANGES_HEADER + encoded.len() + control::RANGE > available;
        let ends = full || changes.peek().is_none_or(|next| next.joins != change.joins);
        if !ends && encoded.len() < control::MAX_ITEM_RANGES * control::RANGE {
            continue;
        }
        let count = (encoded.len() / control::RANGE) as u32;
        let item = RangeChanges::new(number, &encoded);
        builder.push_control(&if change.joins { Control::Join(item) } else { Control::Drop(item) });
        octets += control::RANGES_HEADER + encoded.len();
        number = number.wrapping_add(count);
        encoded.clear();
        if octets + control::RANGES_HEADER + control::RANGE > available {
            return;
        }
    }
}

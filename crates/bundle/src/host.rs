//! [`Host`]: the endpoint between the central converter and the simulation of one host.
//!
//! A message of the simulation passes [`send`](HostCommand::Send): it is checked, admitted by the
//! reported limits, queued, and leaves with a bundle in [`poll`](Endpoint::poll). A bundle of the central converter passes
//! [`receive`](Host::receive), which hands its messages to the inbox or a callback. The formats differ in what surrounds
//! the messages: the classic one has no sessions, sequence numbers or acknowledgements.

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

pub use crate::api::{CommandError, HostCommand, HostEvent, OutgoingMessage};
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropReason};
pub use crate::inbox::{INBOX_OCTETS, MessageInfo};
use crate::inbox::{Inbox, Sink};
use crate::joins::{ConfirmedJoins, SoftJoins};
use crate::level::MIN_LEVEL;
use crate::limits::SenderLimits;
use crate::outbox::{HELLO_INTERVAL, Outbox, QueuedMessage};
use crate::refresh::{AFTER_REFUSAL, Refresh};
use crate::regulator::{NO_LIMIT, SATURATION_BURST, TokenBucket};
use crate::reliable::ReliableReceiver;
use crate::sequence::{Flow, LinkCounter, SequenceStatus, SequenceTracker};
use crate::session::{ACK_DELAY, ACK_EVERY, CentralSession, SessionOf};
use crate::settings::{Format2, Settings};
pub use crate::statistics::HostStatistics;
use crate::wire::classic::{
    ADDRESS, CONTROL, ClassicBundle, ClassicControl, HOST_CONTROL, MAX_HOSTS, PACKET_ADDRESSES, Source,
    host_bit,
};
use crate::wire::format2::control::Control;
use crate::wire::format2::{self, Bundle, BundleBuilder, Message, Role, packet_address};

/// The endpoint of a host.
///
/// Bounds: 65 bundles for the central converter and [`INBOX_OCTETS`] octets of messages for the simulation. Further
/// messages are dropped and [counted](HostStatistics::drops).
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    limits: SenderLimits,
    /// The level last reported as an event.
    reported_level: u8,
    inbox: Inbox,
    statistics: HostStatistics,
    format: HostFormat,
}

#[derive(Debug)]
enum HostFormat {
    Classic(Box<ClassicHost>),
    Format2(Box<Format2Host>),
}

/// The state in format 1 (classic).
#[derive(Debug)]
struct ClassicHost {
    /// The bit of this host in groups.
    bit: u16,
    bundler: Bundler,
    joins: SoftJoins,
}

/// The state in format 2.
#[derive(Debug)]
struct Format2Host {
    options: Format2,
    session: CentralSession,
    outbox: Outbox,
    joins: ConfirmedJoins,
    /// The next sequence number by packet address, for ordinary and for priority messages.
    next_sequences: Box<[[u32; 2]; PACKET_ADDRESSES]>,
    receiver: ReliableReceiver<QueuedMessage>,
    ack_pending: bool,
    sequences: SequenceTracker,
    link: LinkCounter,
    /// Broadcast bundles.
    broadcast_link: LinkCounter,
    report_due: Instant,
    /// The host's receive limit for ordinary messages.
    saturation: TokenBucket,
    /// Whether a receive limit was ever sent, so that its removal is sent, too.
    saturation_sent: bool,
    is_closing: bool,
}

impl Host {
    /// The only port, to the central converter.
    pub const CENTRAL: Port = Port(0);

    /// Creates host `number`, from 1 on, at most 16 in format 1 (classic). In format 2 each start needs a higher
    /// `incarnation`, modulo 2³².
    ///
    /// # Panics
    /// Panics if the number is out of range.
    pub fn new(number: u16, incarnation: u32, settings: Settings) -> Host {
        assert!(number > 0, "host numbers start at 1");
        let format = match settings.format2() {
            None => {
                assert!(number <= MAX_HOSTS.into(), "host numbers are 1 to {MAX_HOSTS}");
                let source = Some(Source::Host(number as u8));
                HostFormat::Classic(Box::new(ClassicHost {
                    bit: host_bit(number as u8),
                    bundler: Bundler::new(source, settings.max_bundle, settings.timing),
                    joins: SoftJoins::new(settings.pairs),
                }))
            }
            Some(options) => HostFormat::Format2(Box::new(Format2Host {
                session: CentralSession::new(Role::Host, number, incarnation),
                outbox: Outbox::new(options.max_datagram_octets(), settings.timing, Instant::ZERO),
                joins: ConfirmedJoins::new(),
                next_sequences: Box::new([[0; 2]; PACKET_ADDRESSES]),
                receiver: ReliableReceiver::default(),
                ack_pending: false,
                sequences: SequenceTracker::default(),
                link: LinkCounter::default(),
                broadcast_link: LinkCounter::default(),
                report_due: Instant::ZERO,
                saturation: TokenBucket::new(1, SATURATION_BURST),
                saturation_sent: false,
                is_closing: false,
                options,
            })),
        };
        Host {
            settings,
            limits: SenderLimits::new(&settings),
            reported_level: MIN_LEVEL,
            inbox: Inbox::default(),
            statistics: HostStatistics::default(),
            format,
        }
    }

    /// Repeats the joins at this interval, since a restarted central converter has lost them; zero repeats them only
    /// after a refusal. Each leave is repeated once. Format 2 ignores this: it confirms changes.
    pub fn with_refresh(mut self, every: Span) -> Host {
        if let HostFormat::Classic(classic) = &mut self.format {
            classic.joins.refresh = Refresh::new(every);
            self.limits.expires = true;
        }
        self
    }

    /// Returns the number of joined addresses. A pair counts once in format 1 (classic) and twice in format 2.
    pub fn joined(&self) -> usize {
        match &self.format {
            HostFormat::Classic(classic) => classic.joins.len(),
            HostFormat::Format2(format2) => {
                format2.joins.ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum()
            }
        }
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &HostStatistics {
        &self.statistics
    }

    /// Returns the congestion level that the central converter last sent, 3 to 6, unless it has expired.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.format {
            // Broadcast bundles may still arrive.
            HostFormat::Format2(format2) if format2.session.is_lost(now) => MIN_LEVEL,
            _ => self.limits.level(now),
        }
    }

    /// Returns whether anything waits to be sent or, in format 2, to be confirmed.
    pub fn has_pending(&self) -> bool {
        match &self.format {
            HostFormat::Classic(classic) => {
                classic.bundler.is_ready() || classic.bundler.deadline().is_some()
            }
            HostFormat::Format2(format2) => {
                let (ordinary, urgent) = format2.outbox.waiting();
                ordinary + urgent + format2.joins.unconfirmed() > 0 || format2.is_closing
            }
        }
    }

    // --- From the simulation to the central converter

    fn send(&mut self, now: Instant, message: &OutgoingMessage<'_>) -> Result<(), CommandError> {
        let OutgoingMessage { address, max_wait, body, .. } = *message;
        let priority = message.priority || max_wait.is_some();
        let is_classic = matches!(self.format, HostFormat::Classic(_));
        if is_classic && (address > u16::MAX.into() || self.settings.is_priority(address) != priority) {
            return Err(CommandError::Format);
        }
        if let Err((reason, refusal)) = self.admit(now, priority, body) {
            self.statistics.drops.count(reason, priority);
            return Err(refusal);
        }
        let queued = match &mut self.format {
            HostFormat::Classic(classic) => {
                classic.bundler.push(now, address as u16, body, priority, max_wait)
            }
            HostFormat::Format2(format2) => format2.queue(now, message, priority),
        };
        if !queued {
            self.statistics.drops.count(DropReason::Full, priority);
            return Err(CommandError::Full);
        }
        self.statistics.sent += 1;
        Ok(())
    }

    /// Admits a message, or returns why it is refused.
    fn admit(&mut self, now: Instant, priority: bool, body: &[u8]) -> Result<(), (DropReason, CommandError)> {
        let octets = match &self.format {
            HostFormat::Classic(_) => match ADDRESS + body.len() {
                // Only its length identifies a control message.
                octets @ (CONTROL | HOST_CONTROL) => {
                    return Err((DropReason::Control, CommandError::Control(octets)));
                }
                octets if octets + ADDRESS + 3 > self.settings.max_bundle => {
                    return Err((DropReason::Unfit, CommandError::TooLong));
                }
                octets => octets,
            },
            HostFormat::Format2(format2) => {
                if format2::is_too_long(body, format2.options.max_datagram_octets()) {
                    return Err((DropReason::Unfit, CommandError::TooLong));
                }
                format2::ENTRY + format2::carried_octets(body)
            }
        };
        match self.limits.admits(now, priority, octets) {
            true => Ok(()),
            false => Err((DropReason::Congestion, CommandError::Congested(self.limits.level(now)))),
        }
    }

    /// Joins or leaves a range of addresses.
    fn set_joined(&mut self, now: Instant, first: u32, last: u32, joins: bool) -> Result<(), CommandError> {
        match &mut self.format {
            HostFormat::Classic(classic) => match (u16::try_from(first), u16::try_from(last)) {
                (Ok(first), Ok(last)) => classic.set_range_joined(now, first, last, joins),
                _ => Err(CommandError::Format),
            },
            HostFormat::Format2(format2) => {
                // With pairs, an odd address carries the priority messages of the even address before it.
                let (first, last) = if self.settings.pairs { (first & !1, last | 1) } else { (first, last) };
                if first > last {
                    return Err(CommandError::Range);
                }
                let Format2Host { joins: joined, session, outbox, .. } = &mut **format2;
                let is_first = joined.unconfirmed() == 0;
                let applied = joined.change(now, first, last, joins, session.is_open());
                if is_first {
                    outbox.schedule_control(joined.due);
                }
                applied.then_some(()).ok_or(CommandError::Full)
            }
        }
    }

    fn execute(&mut self, now: Instant, command: HostCommand<'_>) -> Result<(), CommandError> {
        match (command, &mut self.format) {
            (HostCommand::Send(message), _) => self.send(now, &message),
            (HostCommand::Join { first, last }, _) => self.set_joined(now, first, last, true),
            (HostCommand::Drop { first, last }, _) => self.set_joined(now, first, last, false),
            (HostCommand::DropAll, HostFormat::Format2(_)) => self.set_joined(now, 0, u32::MAX, false),
            (HostCommand::DropAll, HostFormat::Classic(classic)) => {
                while let Some(address) = classic.joins.first() {
                    classic.set_joined(now, address, false)?;
                }
                Ok(())
            }
            (HostCommand::CentralRefused, HostFormat::Classic(classic)) => {
                classic.joins.refresh.restart_at(now + AFTER_REFUSAL);
                Ok(())
            }
            // Hellos replace this: format 2 detects restarts.
            (HostCommand::CentralRefused, HostFormat::Format2(_)) => Ok(()),
            (HostCommand::Receive { into, from }, _) => {
                *from = self.inbox.pop(into);
                self.deliver_waiting(now);
                Ok(())
            }
            (HostCommand::Saturate(messages), HostFormat::Format2(format2)) => {
                format2.saturation.set_rate(messages.unwrap_or(NO_LIMIT));
                format2.saturation_sent |= messages.is_some();
                format2.report_due = now;
                format2.outbox.schedule_control(now);
                Ok(())
            }
            (HostCommand::Bye, HostFormat::Format2(format2)) => {
                format2.is_closing = true;
                format2.outbox.schedule_control(now);
                Ok(())
            }
            (HostCommand::Saturate(_) | HostCommand::Bye, HostFormat::Classic(_)) => {
                Err(CommandError::Format)
            }
        }
    }

    // --- From the central converter to the simulation

    /// Handles a datagram from the central converter and passes each message for this host to `each` at once, with
    /// its metadata and the body borrowed from the datagram. The messages bypass the inbox. Otherwise this equals
    /// handling a frame.
    pub fn receive(&mut self, now: Instant, datagram: &[u8], each: &mut impl FnMut(MessageInfo, &[u8])) {
        self.handle_timers(now);
        self.receive_bundle(now, datagram, each);
        self.handle_timers(now);
    }

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) {
        let is_received = match self.format {
            HostFormat::Classic(_) => self.receive_classic(now, bytes, sink),
            HostFormat::Format2(_) => self.receive_format2(now, bytes, sink),
        };
        if is_received.is_none() {
            self.statistics.malformed += 1;
        }
    }

    /// Handles a classic bundle; returns `None` if it is malformed.
    fn receive_classic(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) -> Option<()> {
        let HostFormat::Classic(classic) = &self.format else { return None };
        let bit = classic.bit;
        let bundle = ClassicBundle::read(bytes).ok()?;
        self.statistics.bundles_received += 1;
        for message in bundle.messages() {
            if message.octets() == HOST_CONTROL {
                match ClassicControl::read_for_host(message) {
                    Some(ClassicControl::Level(level)) => self.limits.update(now, level, NO_LIMIT),
                    _ => self.statistics.malformed += 1,
                }
            } else if message.address & bit == 0 {
                self.statistics.for_others += 1;
            } else {
                // The address that shows the priority was replaced by the group.
                let from = MessageInfo { address: message.address.into(), ..MessageInfo::default() };
                deliver(&mut self.statistics, from, message.body, sink);
            }
        }
        Some(())
    }

    /// Handles a bundle of format 2; returns `None` if it is malformed or for another endpoint.
    fn receive_format2(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) -> Option<()> {
        let HostFormat::Format2(format2) = &mut self.format else { return None };
        let bundle = Bundle::read(bytes).ok()?;
        let header = bundle.header();
        let is_broadcast = header.receiver == 0;
        if header.role != Role::Central || !is_broadcast && header.receiver != format2.session.number {
            return None;
        }
        self.statistics.bundles_received += 1;
        // A broadcast bundle belongs to no session and carries only control messages for all hosts.
        let is_current = match is_broadcast {
            true => format2.session.is_of(header.incarnation) && header.session == 0,
            false => format2.join_session(now, &header, &mut self.statistics),
        };
        if !is_current {
            self.statistics.stale += 1;
            return Some(());
        }
        let link = if is_broadcast { &mut format2.broadcast_link } else { &mut format2.link };
        link.record_bundle(header.sent_before, bundle.count());
        for control in bundle.control() {
            match control {
                Control::Level { level, rate } => self.limits.update(now, level, rate),
                Control::Confirmed(count) if !is_broadcast => {
                    if format2.joins.confirm(now, count) {
                        format2.outbox.schedule_control(format2.joins.due);
                    }
                }
                Control::Ack { next, beyond } if !is_broadcast => {
                    format2.outbox.reliable.acknowledge(next, beyond);
                }
                _ => self.statistics.malformed += 1,
            }
        }
        for message in bundle.messages() {
            match message.reliable {
                None => {
                    if format2.is_new(now, &message, &mut self.statistics) {
                        if !message.priority && !format2.saturation.admits(now, 1) {
                            self.statistics.drops.count(DropReason::Saturated, false);
                        } else {
                            deliver(&mut self.statistics, message_info(&message), message.body, sink);
                        }
                    }
                }
                Some(_) if is_broadcast => {}
                Some(number) => {
                    format2.request_ack(now);
                    format2.receiver.receive(number, || QueuedMessage::from_message(&message));
                    format2.deliver_reliable(now, &mut self.statistics, sink);
                }
            }
        }
        format2.update_statistics(&mut self.statistics);
        Some(())
    }

    /// Delivers reliable messages that waited for room in the inbox.
    fn deliver_waiting(&mut self, now: Instant) {
        if let HostFormat::Format2(format2) = &mut self.format
            && format2.receiver.peek().is_some()
        {
            format2.ack_pending = true;
            format2.outbox.schedule_control(now + ACK_DELAY);
            format2.deliver_reliable(now, &mut self.statistics, &mut self.inbox);
        }
    }

    // --- Timers

    /// After a timeout of the central converter, accepts any new session and lifts the limits. The session remains
    /// current, since only the network may have failed and messages may still be acknowledged.
    fn handle_timers(&mut self, now: Instant) {
        if let HostFormat::Format2(format2) = &mut self.format {
            if format2.session.has_timed_out(now) {
                self.limits.lift(now);
                self.statistics.central_timeouts += 1;
            }
            format2.outbox.update_ready(now);
        }
    }

    /// Sends the joins and leaves that are to be refreshed, and closes the bundle that is due.
    fn wake(&mut self, now: Instant) {
        if let HostFormat::Classic(classic) = &mut self.format {
            let ClassicHost { bundler, joins, .. } = &mut **classic;
            joins.send_refresh(now, |control| {
                let sent = bundler.push_control(now, control);
                self.statistics.refreshed += u64::from(sent);
                sent
            });
            bundler.close_if_due(now);
        }
    }

    /// Writes the bundle that is due, if any, and returns its length.
    fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.format {
            HostFormat::Classic(classic) => classic.bundler.write_next(now, buffer),
            HostFormat::Format2(format2) => format2.outbox.is_ready().then(|| {
                let length = format2.write_bundle(now, buffer);
                format2.update_statistics(&mut self.statistics);
                length
            }),
        }
    }
}

impl ClassicHost {
    /// Joins or leaves a range of addresses.
    fn set_range_joined(
        &mut self,
        now: Instant,
        first: u16,
        last: u16,
        joins: bool,
    ) -> Result<(), CommandError> {
        if first > last {
            return Err(CommandError::Range);
        }
        let mut changed = false;
        for address in first..=last {
            // Skipping unchanged addresses leaves the room to the others, so that repeated calls eventually succeed.
            if first == last || self.joins.contains(address) != joins {
                self.set_joined(now, address, joins)?;
                changed = true;
            }
        }
        if !joins && !changed {
            self.joins.repeat_leave(now, first, last);
        }
        Ok(())
    }

    fn set_joined(&mut self, now: Instant, address: u16, joins: bool) -> Result<(), CommandError> {
        if !self.bundler.push_control(now, ClassicControl::membership(address, joins)) {
            return Err(CommandError::Full);
        }
        self.joins.set(now, address, joins);
        Ok(())
    }
}

impl Format2Host {
    /// Returns the source field of this host's messages.
    fn source(&self) -> u32 {
        self.options.source_of(self.session.number)
    }

    /// Queues a message of this host; returns whether there was room.
    fn queue(&mut self, now: Instant, message: &OutgoingMessage<'_>, priority: bool) -> bool {
        let OutgoingMessage { address, max_wait, body, .. } = *message;
        let source = self.source();
        let next = &mut self.next_sequences[usize::from(packet_address(address))][usize::from(priority)];
        let queued = QueuedMessage {
            address,
            source,
            incarnation: self.session.incarnation,
            sequence: *next,
            max_wait_10us: format2::encode_max_wait(max_wait),
            priority,
            body: body.into(),
        };
        let pushed = self.outbox.push(now, queued, priority);
        *next = next.wrapping_add(u32::from(pushed));
        pushed
    }

    /// Returns whether a bundle for this host belongs to its session. A new session starts with all joined ranges.
    fn join_session(
        &mut self,
        now: Instant,
        header: &format2::Header,
        statistics: &mut HostStatistics,
    ) -> bool {
        let session = self.session.receive(now, header);
        if matches!(session, SessionOf::New | SessionOf::NewIncarnation) {
            if session == SessionOf::NewIncarnation {
                self.broadcast_link = LinkCounter::default();
            }
            statistics.sessions += 1;
            self.outbox.restart(now, true);
            (self.link, self.receiver, self.ack_pending) =
                (LinkCounter::default(), ReliableReceiver::default(), false);
            self.joins.restart(now);
            self.outbox.schedule_control(now);
        }
        session != SessionOf::Stale
    }

    /// Returns whether the host has joined the address of a message and has not received it before.
    fn is_new(&mut self, now: Instant, message: &Message<'_>, statistics: &mut HostStatistics) -> bool {
        if message.source == self.source() || !self.joins.ranges.contains(message.address) {
            statistics.for_others += 1;
            return false;
        }
        match self.sequences.record(now, Flow::of(message), message.incarnation, message.sequence) {
            SequenceStatus::New => true,
            SequenceStatus::Duplicate => false,
            SequenceStatus::Unknown => {
                statistics.drops.count(DropReason::Full, message.priority);
                false
            }
        }
    }

    /// Schedules an acknowledgement.
    fn request_ack(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.ack_pending, true) {
            self.outbox.schedule_control(now + ACK_DELAY);
        }
    }

    /// Delivers the reliable messages that are in order while there is room. The others are not acknowledged, and so
    /// are retransmitted.
    fn deliver_reliable(&mut self, now: Instant, statistics: &mut HostStatistics, sink: &mut impl Sink) {
        while self.receiver.peek().is_some_and(|queued| sink.has_room(&queued.body))
            && let Some(queued) = self.receiver.next()
        {
            if self.receiver.unacknowledged() >= ACK_EVERY {
                self.outbox.schedule_control(now);
            }
            let message = queued.message(None);
            if self.is_new(now, &message, statistics) {
                deliver(statistics, message_info(&message), message.body, sink);
            }
        }
    }

    fn update_statistics(&self, statistics: &mut HostStatistics) {
        statistics.sequence = self.sequences.counts();
        statistics.broadcasts_lost = u64::from(self.broadcast_link.lost);
        statistics.lost = u64::from(self.link.lost) + u64::from(self.broadcast_link.lost);
        statistics.retransmissions = self.outbox.reliable.retransmissions();
    }

    /// Writes the next bundle into `buffer` and returns its length.
    fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let Format2Host { outbox, session, joins, receiver, link, saturation, .. } = self;
        let (header, changes_due) = (session.header(), joins.due);
        let write_control = |builder: &mut BundleBuilder| {
            if std::mem::take(&mut self.is_closing) {
                builder.push_control(&Control::Bye);
            }
            if !session.is_open() {
                return;
            }
            if std::mem::take(&mut self.ack_pending) {
                let (next, beyond) = receiver.acknowledgement();
                builder.push_control(&Control::Ack { next, beyond });
            }
            if now >= self.report_due {
                self.report_due = now + HELLO_INTERVAL;
                builder.push_control(&Control::Report { received: link.received, lost: link.missing() });
                if self.saturation_sent {
                    builder.push_control(&Control::Saturation(saturation.rate()));
                }
            }
            joins.write_due(now, builder);
        };
        let length = outbox.write_bundle(now, header, write_control, buffer);
        if joins.due != changes_due {
            outbox.schedule_control(joins.due);
        }
        length
    }
}

/// Passes a message to the simulation.
fn deliver(statistics: &mut HostStatistics, from: MessageInfo, body: &[u8], sink: &mut impl Sink) {
    match sink.push(from, body) {
        true => statistics.received += 1,
        false => statistics.drops.count(DropReason::Full, from.priority),
    }
}

/// Returns the metadata of a message.
fn message_info(message: &Message<'_>) -> MessageInfo {
    MessageInfo { address: message.address, source: message.source, priority: message.priority }
}

impl Endpoint for Host {
    type Command<'a> = HostCommand<'a>;
    type Event = HostEvent;
    type Refusal = CommandError;

    fn handle(&mut self, now: Instant, input: Input<'_, HostCommand<'_>>) -> Result<(), CommandError> {
        self.handle_timers(now);
        let mut result = Ok(());
        match input {
            Input::Frame { port: Host::CENTRAL, bytes, segment, .. } => {
                let mut inbox = std::mem::take(&mut self.inbox);
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, bundle, &mut inbox));
                self.inbox = inbox;
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => self.wake(now),
            Input::Command(command) => result = self.execute(now, command),
        }
        self.handle_timers(now);
        result
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<HostEvent> {
        if let HostFormat::Classic(classic) = &mut self.format {
            classic.bundler.close_if_due(now);
        }
        if self.inbox.became_readable() {
            return Output::Event(HostEvent::Readable);
        }
        let level = self.limits.level(now);
        if std::mem::replace(&mut self.reported_level, level) != level {
            return Output::Event(HostEvent::Level(level));
        }
        if writable.has(Host::CENTRAL)
            && let Some(length) = self.write_bundle(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Host::CENTRAL, peer, length, segment: None });
        }
        let (is_ready, bundle_due, other) = match &self.format {
            HostFormat::Classic(classic) => {
                let ClassicHost { bundler, joins, .. } = &**classic;
                (bundler.is_ready(), bundler.deadline(), joins.refresh.deadline())
            }
            HostFormat::Format2(format2) => {
                (format2.outbox.is_ready(), format2.outbox.deadline(), format2.session.deadline())
            }
        };
        let reason = if is_ready { Reason::Port(Host::CENTRAL) } else { Reason::Input };
        let deadline = [bundle_due, other, self.limits.deadline(now)].into_iter().flatten().min();
        Output::Idle(Idle { deadline, reason })
    }
}

impl CountUnsent for Host {
    fn count_unsent(&mut self, _: Port, frame: &[u8]) {
        let drops = &mut self.statistics.drops;
        match self.format {
            HostFormat::Classic(_) => drops.count_unsent_with_mask(frame, &self.settings),
            HostFormat::Format2(_) => drops.count_unsent_bundle(frame),
        }
    }
}

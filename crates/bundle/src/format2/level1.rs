//! The level-1 converter in bundle format 2.

use std::collections::VecDeque;

use trunkline_endpoint::{Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::api::{LEVEL1_CENTRAL_PORT, LEVEL1_WIDE_AREA_PORT, Level1Command, MAX_WAITING_MESSAGES};
use crate::drops::DropReason;
use crate::level::{Level, MIN_LEVEL};
use crate::outbox::{Outbox, QueuedMessage};
use crate::packet_set::{JoinedGroups, MembershipEvent, PacketSet};
use crate::regulator::{Congestion, NO_LIMIT, REFILL_INTERVAL, TokenBucket};
use crate::sequence::is_newer;
use crate::session::CENTRAL_TIMEOUT;
use crate::settings::{Format2, Settings};
use crate::single_message;
use crate::statistics::Level1Statistics;
use crate::wire::format2::control::Control;
use crate::wire::format2::{self, Bundle, BundleBuilder, Header, Message, Role};

/// The level-1 converter. It belongs to the session of the last accepted bundle from the central converter.
#[derive(Debug)]
pub struct Format2Level1 {
    options: Format2,
    interval: Span,
    number: u16,
    incarnation: u32,
    outbox: Outbox,
    /// The central converter's incarnation and the session it issued.
    session: Option<(u32, u32)>,
    /// The session abandoned last. The central converter may believe that its groups are still joined.
    left_session: Option<(u32, u32)>,
    last_received: Instant,
    joined: JoinedGroups,
    /// The version of the current assignment, and whether to confirm it.
    version: Option<u32>,
    assigned_due: bool,
    is_closing: bool,
    level: u8,
    allowed: u8,
    allowed_until: Instant,
    bucket: TokenBucket,
    /// Messages for the wide area.
    outgoing: VecDeque<QueuedMessage>,
    builder: BundleBuilder,
    statistics: Level1Statistics,
}

impl Format2Level1 {
    /// Creates converter `number` with its `incarnation`.
    pub fn new(number: u16, incarnation: u32, settings: &Settings, format2: Format2) -> Format2Level1 {
        let max_octets = format2.max_datagram_octets();
        Format2Level1 {
            options: format2,
            interval: settings.interval,
            number,
            incarnation,
            outbox: Outbox::new(max_octets, settings.timing, Instant::ZERO),
            session: None,
            left_session: None,
            last_received: Instant::ZERO,
            joined: JoinedGroups::default(),
            version: None,
            assigned_due: false,
            is_closing: false,
            level: MIN_LEVEL,
            allowed: 0,
            allowed_until: Instant::ZERO,
            bucket: TokenBucket::new(max_octets, REFILL_INTERVAL),
            outgoing: VecDeque::new(),
            builder: BundleBuilder::new(max_octets),
            statistics: Level1Statistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &Level1Statistics {
        &self.statistics
    }

    pub(crate) fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let Level1Statistics { drops, drops_outgoing, .. } = &mut self.statistics;
        (if port == LEVEL1_WIDE_AREA_PORT { drops_outgoing } else { drops }).count_unsent_bundle(frame);
    }

    pub(crate) fn level(&self, now: Instant) -> u8 {
        if now >= self.last_received + CENTRAL_TIMEOUT { MIN_LEVEL } else { self.level }
    }

    pub(crate) fn joined(&self) -> usize {
        self.joined.packets().count()
    }

    /// Announces with the next bundle that the converter closes.
    pub(crate) fn bye(&mut self, now: Instant) {
        self.is_closing = true;
        self.outbox.schedule_control(now);
        self.outbox.update_ready(now);
    }

    /// Handles a message from the wide area: a bundle with a single message.
    fn receive_message(&mut self, now: Instant, datagram: &[u8]) {
        self.statistics.received += 1;
        let Some(message) = single_message::read_single(datagram) else {
            return self.statistics.drops.count(DropReason::Unfit, false);
        };
        let priority = message.priority;
        if self.options.is_local_source(message.source) {
            self.statistics.looped_back += 1;
            return;
        }
        if !self.joined.packets().contains(format2::packet_address(message.address)) {
            // Another program on this machine joined the group.
            return self.statistics.drops.count(DropReason::NoReceiver, priority);
        }
        if !self.admits(now, &message) {
            return self.statistics.drops.count(DropReason::Congestion, priority);
        }
        // This converter's datagrams are smaller than those of the wide area.
        if format2::is_too_long(message.body, self.options.max_datagram_octets()) {
            return self.statistics.drops.count(DropReason::Unfit, priority);
        }
        if !self.outbox.push(now, QueuedMessage::from_message(&message)) {
            self.statistics.drops.count(DropReason::Full, priority);
        }
    }

    fn admits(&mut self, now: Instant, message: &Message<'_>) -> bool {
        if message.priority {
            return true;
        }
        if self.options.congestion == Congestion::Rates {
            return self.bucket.admits(now, format2::ENTRY + format2::carried_octets(message.body));
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.interval);
        }
        Level::admit(self.level, &mut self.allowed, false)
    }

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        if header.role != Role::Central || header.receiver != self.number {
            return self.statistics.malformed += 1;
        }
        self.statistics.bundles_received += 1;
        if !self.accept_session(now, &header) {
            self.statistics.stale += 1;
            return;
        }
        for control in bundle.control() {
            match control {
                Control::Assign { version, packets } => self.apply_assignment(now, version, packets),
                Control::Level { level, rate } => {
                    self.level = level;
                    self.bucket.set_rate(rate);
                }
                _ => self.statistics.malformed += 1,
            }
        }
        bundle.messages().for_each(|message| self.send(&message));
    }

    /// Returns whether a bundle belongs to the current session, or to a new one, which then becomes current. The
    /// abandoned session is never resumed.
    fn accept_session(&mut self, now: Instant, header: &Header) -> bool {
        let offered = (header.incarnation, header.session);
        if self.session.is_some_and(|current| is_newer(current.0, offered.0))
            || self.left_session == Some(offered)
        {
            return false;
        }
        self.last_received = now;
        if self.session != Some(offered) {
            self.left_session = self.session.replace(offered).or(self.left_session);
            self.version = None;
            self.outbox.restart(now, false);
            self.outbox.schedule_control(now);
        }
        true
    }

    fn apply_assignment(&mut self, now: Instant, version: u32, packets: &format2::PacketBitmap) {
        if self.version.is_none_or(|have| is_newer(version, have)) {
            self.version = Some(version);
            self.joined.replace(&PacketSet::read(packets));
        }
        self.assigned_due = true;
        self.outbox.schedule_control(now);
    }

    fn send(&mut self, message: &Message<'_>) {
        if self.outgoing.len() >= MAX_WAITING_MESSAGES {
            return self.statistics.drops_outgoing.count(DropReason::Full, message.priority);
        }
        if format2::is_too_long(message.body, self.options.max_datagram_octets()) {
            // This converter's datagrams are smaller than the sender's.
            return self.statistics.drops_outgoing.count(DropReason::Unfit, message.priority);
        }
        self.outgoing.push_back(QueuedMessage::from_message(message));
    }

    /// After a timeout of the central converter, leaves all groups and ends the session. The session 0 in the header
    /// announces this.
    fn handle_timers(&mut self, now: Instant) {
        if self.session.is_some() && now >= self.last_received + CENTRAL_TIMEOUT {
            self.left_session = self.session.take();
            self.version = None;
            self.joined.replace(&PacketSet::NONE);
            self.outbox.schedule_control(now);
            (self.level, self.assigned_due) = (MIN_LEVEL, false);
            self.bucket.set_rate(NO_LIMIT);
            self.outbox.restart(now, false);
            self.statistics.central_timeouts += 1;
        }
        self.outbox.update_ready(now);
    }

    fn header(&self) -> Header {
        let session = self.session.map_or(0, |(_, session)| session);
        Header {
            role: Role::Level1,
            number: self.number,
            receiver: 0,
            incarnation: self.incarnation,
            session,
            sent_before: 0,
        }
    }

    /// Writes the next message for the wide area.
    fn write_outgoing(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let queued = self.outgoing.pop_front()?;
        let receiver = format2::packet_address(queued.address);
        self.builder.push(&queued.message(None));
        let header = Header { receiver, session: 0, sent_before: 0, ..self.header() };
        let length = self.builder.finish(&header, buffer);
        self.statistics.sent += 1;
        let peer = Peer::new(&receiver.to_be_bytes());
        Some(Transmit { port: LEVEL1_WIDE_AREA_PORT, peer, length, segment: None })
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_, Level1Command>) {
        self.handle_timers(now);
        match input {
            Input::Frame { port: LEVEL1_WIDE_AREA_PORT, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|datagram| self.receive_message(now, datagram));
            }
            Input::Frame { port: LEVEL1_CENTRAL_PORT, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.receive_bundle(now, bundle));
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => {}
            Input::Command(never) => match never {},
        }
        self.handle_timers(now);
    }

    pub(crate) fn poll(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Output<MembershipEvent> {
        if let Some(event) = self.joined.next_event() {
            return Output::Event(event);
        }
        if writable.has(LEVEL1_CENTRAL_PORT) && self.outbox.is_ready() {
            let (header, version) = (self.header(), self.version);
            let (assigned_due, is_closing) =
                (std::mem::take(&mut self.assigned_due), std::mem::take(&mut self.is_closing));
            let write_control = |builder: &mut BundleBuilder| {
                if is_closing {
                    builder.push_control(&Control::Bye);
                }
                if let (Some(version), true) = (version, assigned_due) {
                    builder.push_control(&Control::Assigned(version));
                }
            };
            let length = self.outbox.write_bundle(now, header, write_control, buffer);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(Transmit {
                port: LEVEL1_CENTRAL_PORT,
                peer: Peer::NONE,
                length,
                segment: None,
            });
        }
        if writable.has(LEVEL1_WIDE_AREA_PORT)
            && let Some(transmit) = self.write_outgoing(buffer)
        {
            return Output::Transmit(transmit);
        }
        let reason = match (self.outbox.is_ready(), self.outgoing.is_empty()) {
            (true, _) => Reason::Port(LEVEL1_CENTRAL_PORT),
            (false, false) => Reason::Port(LEVEL1_WIDE_AREA_PORT),
            (false, true) => Reason::Input,
        };
        let timeout = self.session.map(|_| self.last_received + CENTRAL_TIMEOUT);
        let deadline = self.outbox.deadline().into_iter().chain(timeout).min();
        Output::Idle(Idle { deadline, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_converter_sends_bye_in_its_session() {
        let format2 = Format2::default();
        let mut level1 = Format2Level1::new(3, 9, &Settings::default(), format2);
        let now = Instant::ZERO + trunkline_units::Span::from_s(1);
        let mut bytes = vec![0; format2.max_datagram_octets()];
        let header = Header {
            role: Role::Central,
            number: 0,
            receiver: 3,
            incarnation: 1,
            session: 8,
            sent_before: 0,
        };
        let length = BundleBuilder::new(format2.max_datagram_octets()).finish(&header, &mut bytes);
        let frame = Input::Frame {
            port: LEVEL1_CENTRAL_PORT,
            peer: Peer::NONE,
            bytes: &bytes[..length],
            segment: None,
        };
        level1.handle(now, frame);
        level1.bye(now);
        let mut sent = Vec::new();
        let mut buffer = vec![0; trunkline_endpoint::MAX_BATCH];
        while let Output::Transmit(transmit) = level1.poll(now, Writable::ALL, &mut buffer) {
            let bundle = Bundle::read(&buffer[..transmit.length]).unwrap();
            sent.extend(bundle.control().map(|control| (bundle.header().session, control == Control::Bye)));
        }
        assert_eq!(sent, [(8, true)]);
    }
}

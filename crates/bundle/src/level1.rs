//! [`Level1`]: the endpoint between the wide area, with one message per packet, and the central converter.
//!
//! A message of the wide area is checked, admitted by the reported limits and queued for the central converter. A
//! message of the central converter becomes a datagram and waits for the wide-area port. In format 1 (classic) the
//! central converter names the groups to join one by one; in format 2 it sends the complete assignment in a session.

use std::collections::VecDeque;
use std::convert::Infallible;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

pub use crate::api::MAX_WAITING_MESSAGES;
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropReason};
use crate::level::MIN_LEVEL;
use crate::limits::SenderLimits;
use crate::outbox::{Outbox, QueuedMessage};
pub use crate::packet_set::MembershipEvent;
use crate::packet_set::{JoinedGroups, PacketSet};
use crate::regulator::NO_LIMIT;
use crate::sequence::is_newer;
use crate::session::{CentralSession, SessionOf};
use crate::settings::{Format2, Settings};
use crate::single_message;
pub use crate::statistics::Level1Statistics;
use crate::wire::classic::{self, ADDRESS, CONTROL, ClassicBundle, ClassicControl, ClassicMessage, Source};
use crate::wire::format2::control::Control;
use crate::wire::format2::{self, Bundle, BundleBuilder, Header, Message, Role};

/// A level-1 converter.
///
/// On the [`WIDE_AREA`](Level1::WIDE_AREA) port a [`Peer`] is a packet address, two octets in big-endian order. The
/// driver maps it to a multicast address, `base` plus the packet address. The driver must discard messages that the
/// converter sent itself, because a classic message does not identify its sender.
///
/// Bounds: 65 bundles for the central converter and [`MAX_WAITING_MESSAGES`] messages for the wide area. Further
/// messages are dropped and [counted](Level1Statistics::drops).
#[derive(Debug)]
pub struct Level1 {
    settings: Settings,
    limits: SenderLimits,
    joined: JoinedGroups,
    /// Datagrams for the wide area, with their packet addresses.
    outgoing: VecDeque<(u16, Vec<u8>)>,
    spare_buffers: Vec<Vec<u8>>,
    statistics: Level1Statistics,
    format: Level1Format,
}

#[derive(Debug)]
enum Level1Format {
    Classic {
        bundler: Box<Bundler>,
        /// When it queries the central converter for its joins.
        query_at: Option<Instant>,
    },
    Format2(Box<Format2Level1>),
}

/// The state in format 2.
#[derive(Debug)]
struct Format2Level1 {
    options: Format2,
    session: CentralSession,
    outbox: Outbox,
    /// The version of the current assignment, and whether to confirm it.
    version: Option<u32>,
    assigned_due: bool,
    is_closing: bool,
    builder: BundleBuilder,
}

impl Level1 {
    /// The port to the wide area.
    pub const WIDE_AREA: Port = Port(0);
    /// The port to the central converter.
    pub const CENTRAL: Port = Port(1);

    /// Creates converter `number`, from 1 on. In format 2 each start needs a higher `incarnation`, modulo 2³².
    pub fn new(number: u16, incarnation: u32, settings: Settings) -> Level1 {
        let format = match settings.format2() {
            None => {
                let source = Some(Source::Level1(number));
                let bundler = Bundler::new(source, settings.max_bundle, settings.timing);
                Level1Format::Classic { bundler: Box::new(bundler), query_at: None }
            }
            Some(options) => Level1Format::Format2(Box::new(Format2Level1 {
                session: CentralSession::new(Role::Level1, number, incarnation),
                outbox: Outbox::new(options.max_datagram_octets(), settings.timing, Instant::ZERO),
                version: None,
                assigned_due: false,
                is_closing: false,
                builder: BundleBuilder::new(options.max_datagram_octets()),
                options,
            })),
        };
        Level1 {
            settings,
            limits: SenderLimits::new(&settings),
            joined: JoinedGroups::default(),
            outgoing: VecDeque::new(),
            spare_buffers: Vec::new(),
            statistics: Level1Statistics::default(),
            format,
        }
    }

    /// Queries the central converter at this time for all joins, since this converter may have restarted. The query
    /// is a control message with its own level, 3, which a converter without refresh ignores. Format 2 needs no
    /// query.
    pub fn with_query_at(mut self, at: Instant) -> Level1 {
        if let Level1Format::Classic { query_at, .. } = &mut self.format {
            *query_at = Some(at);
            self.limits.expires = true;
        }
        self
    }

    /// Announces with the next bundle that the converter closes, so that its groups move at once. Format 1 (classic)
    /// has no such message.
    pub fn bye(&mut self, now: Instant) {
        if let Level1Format::Format2(format2) = &mut self.format {
            format2.is_closing = true;
            format2.outbox.schedule_control(now);
            format2.outbox.update_ready(now);
        }
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &Level1Statistics {
        &self.statistics
    }

    /// Returns the congestion level that the central converter last sent, 3 to 6, unless it has expired.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.format {
            Level1Format::Format2(format2) if format2.session.is_lost(now) => MIN_LEVEL,
            _ => self.limits.level(now),
        }
    }

    /// Returns the number of joined packet addresses.
    pub fn joined(&self) -> usize {
        self.joined.packets().count()
    }

    // --- From the wide area to the central converter

    fn receive_message(&mut self, now: Instant, datagram: &[u8]) {
        self.statistics.received += 1;
        let (priority, queued) = match self.format {
            Level1Format::Classic { .. } => self.receive_classic_message(now, datagram),
            Level1Format::Format2(_) => self.receive_format2_message(now, datagram),
        };
        if let Err(reason) = queued {
            self.statistics.drops.count(reason, priority);
        }
    }

    /// Queues a classic message. Returns whether it has priority, and why it is dropped.
    fn receive_classic_message(&mut self, now: Instant, datagram: &[u8]) -> (bool, Result<(), DropReason>) {
        let Level1Format::Classic { bundler, .. } = &mut self.format else { return (false, Ok(())) };
        let Some(message) = ClassicMessage::read(datagram) else { return (false, Err(DropReason::Unfit)) };
        let (priority, octets) = (self.settings.is_priority(message.address), message.octets());
        let queued = if octets == CONTROL {
            // The central converter would mistake it for control.
            Err(DropReason::Control)
        } else if !self.limits.admits(now, priority, octets) {
            Err(DropReason::Congestion)
        } else if bundler.push(now, message.address, message.body, priority, None) {
            Ok(())
        } else if octets + ADDRESS + 3 <= self.settings.max_bundle {
            Err(DropReason::Full)
        } else {
            Err(DropReason::Unfit)
        };
        (priority, queued)
    }

    /// The same in format 2.
    fn receive_format2_message(&mut self, now: Instant, datagram: &[u8]) -> (bool, Result<(), DropReason>) {
        let Level1Format::Format2(format2) = &mut self.format else { return (false, Ok(())) };
        let Some(message) = single_message::read_single(datagram) else {
            return (false, Err(DropReason::Unfit));
        };
        let octets = format2::ENTRY + format2::carried_octets(message.body);
        let queued = if format2.options.is_local_source(message.source) {
            self.statistics.looped_back += 1;
            Ok(())
        } else if !self.joined.packets().contains(format2::packet_address(message.address)) {
            // Another program on this machine joined the group.
            Err(DropReason::NoReceiver)
        } else if !self.limits.admits(now, message.priority, octets) {
            Err(DropReason::Congestion)
        } else if format2::is_too_long(message.body, format2.options.max_datagram_octets()) {
            // This converter's datagrams are smaller than those of the wide area.
            Err(DropReason::Unfit)
        } else {
            let pushed = format2.outbox.push(now, QueuedMessage::from_message(&message), false);
            pushed.then_some(()).ok_or(DropReason::Full)
        };
        (message.priority, queued)
    }

    // --- From the central converter to the wide area

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8]) {
        let is_received = match self.format {
            Level1Format::Classic { .. } => self.receive_classic_bundle(now, bytes),
            Level1Format::Format2(_) => self.receive_format2_bundle(now, bytes),
        };
        if is_received.is_none() {
            self.statistics.malformed += 1;
        }
    }

    /// Handles a classic bundle; returns `None` if it is malformed.
    fn receive_classic_bundle(&mut self, now: Instant, bytes: &[u8]) -> Option<()> {
        let bundle = ClassicBundle::read(bytes).ok()?;
        self.statistics.bundles_received += 1;
        for message in bundle.messages() {
            let packet = classic::packet_address(message.address);
            if message.octets() != CONTROL {
                let priority = self.settings.is_priority(message.address);
                self.send(packet, priority, true, |bytes| {
                    bytes.extend_from_slice(&message.address.to_be_bytes());
                    bytes.extend_from_slice(message.body);
                });
                continue;
            }
            match ClassicControl::read(message) {
                Some(ClassicControl::Join(_)) => self.joined.change(packet, true),
                Some(ClassicControl::Drop(_)) => self.joined.change(packet, false),
                Some(ClassicControl::Level(level)) => self.limits.update(now, level, NO_LIMIT),
                None => self.statistics.malformed += 1,
            }
        }
        Some(())
    }

    /// Handles a bundle of format 2; returns `None` if it is malformed or for another endpoint.
    fn receive_format2_bundle(&mut self, now: Instant, bytes: &[u8]) -> Option<()> {
        let Level1Format::Format2(format2) = &mut self.format else { return None };
        let bundle = Bundle::read(bytes).ok()?;
        let header = bundle.header();
        if header.role != Role::Central || header.receiver != format2.session.number {
            return None;
        }
        self.statistics.bundles_received += 1;
        match format2.session.receive(now, &header) {
            SessionOf::Stale => {
                self.statistics.stale += 1;
                return Some(());
            }
            SessionOf::Current => {}
            SessionOf::New | SessionOf::NewIncarnation => {
                format2.version = None;
                format2.outbox.restart(now, false);
                format2.outbox.schedule_control(now);
            }
        }
        for control in bundle.control() {
            match control {
                Control::Assign { version, packets } => {
                    if format2.version.is_none_or(|have| is_newer(version, have)) {
                        format2.version = Some(version);
                        self.joined.replace(&PacketSet::read(packets));
                    }
                    format2.assigned_due = true;
                    format2.outbox.schedule_control(now);
                }
                Control::Level { level, rate } => self.limits.update(now, level, rate),
                _ => self.statistics.malformed += 1,
            }
        }
        let max_octets = format2.options.max_datagram_octets();
        let header = Header { session: 0, ..format2.session.header() };
        let mut builder = std::mem::take(&mut format2.builder);
        for message in bundle.messages() {
            let receiver = format2::packet_address(message.address);
            // This converter's datagrams may be smaller than the sender's.
            let fits = !format2::is_too_long(message.body, max_octets);
            self.send(receiver, message.priority, fits, |bytes| {
                builder.push(&Message { reliable: None, ..message });
                bytes.resize(builder.octets(), 0);
                builder.finish(&Header { receiver, ..header }, bytes);
            });
        }
        if let Level1Format::Format2(format2) = &mut self.format {
            format2.builder = builder;
        }
        Some(())
    }

    /// Queues a datagram for the wide area, unless it does not fit or there is no room.
    fn send(&mut self, packet: u16, priority: bool, fits: bool, write: impl FnOnce(&mut Vec<u8>)) {
        if self.outgoing.len() >= MAX_WAITING_MESSAGES {
            return self.statistics.drops_outgoing.count(DropReason::Full, priority);
        }
        if !fits {
            return self.statistics.drops_outgoing.count(DropReason::Unfit, priority);
        }
        let mut bytes = self.spare_buffers.pop().unwrap_or_default();
        bytes.clear();
        write(&mut bytes);
        self.outgoing.push_back((packet, bytes));
    }

    /// Writes the next datagram for the wide area.
    fn write_outgoing(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (packet, bytes) = self.outgoing.pop_front()?;
        let length = bytes.len();
        buffer[..length].copy_from_slice(&bytes);
        self.spare_buffers.push(bytes);
        self.statistics.sent += 1;
        let (port, peer) = (Level1::WIDE_AREA, Peer::new(&packet.to_be_bytes()));
        Some(Transmit { port, peer, length, segment: None })
    }

    // --- Timers

    /// After a timeout of the central converter, leaves all groups and ends the session.
    fn handle_timers(&mut self, now: Instant) {
        if let Level1Format::Format2(format2) = &mut self.format {
            if format2.session.has_timed_out(now) {
                format2.session.leave();
                (format2.version, format2.assigned_due) = (None, false);
                format2.outbox.schedule_control(now);
                format2.outbox.restart(now, false);
                self.joined.replace(&PacketSet::NONE);
                self.limits.lift(now);
                self.statistics.central_timeouts += 1;
            }
            format2.outbox.update_ready(now);
        }
    }

    /// Sends the query that is due, and closes the bundle that is due.
    fn wake(&mut self, now: Instant) {
        if let Level1Format::Classic { bundler, query_at } = &mut self.format {
            if query_at.take_if(|at| *at <= now).is_some() {
                // Without room the joins arrive with the next refresh, within ten seconds.
                bundler.push_control(now, ClassicControl::Level(MIN_LEVEL));
            }
            bundler.close_if_due(now);
        }
    }

    /// Writes the bundle that is due, if any, and returns its length.
    fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.format {
            Level1Format::Classic { bundler, .. } => bundler.write_next(now, buffer),
            Level1Format::Format2(format2) => {
                format2.outbox.is_ready().then(|| format2.write_bundle(now, buffer))
            }
        }
    }
}

impl Format2Level1 {
    fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let is_closing = std::mem::take(&mut self.is_closing);
        let assigned = self.version.filter(|_| std::mem::take(&mut self.assigned_due));
        let write_control = |builder: &mut BundleBuilder| {
            if is_closing {
                builder.push_control(&Control::Bye);
            }
            if let Some(version) = assigned {
                builder.push_control(&Control::Assigned(version));
            }
        };
        self.outbox.write_bundle(now, self.session.header(), write_control, buffer)
    }
}

impl Endpoint for Level1 {
    type Command<'a> = Infallible;
    type Event = MembershipEvent;
    type Refusal = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Infallible>) -> Result<(), Infallible> {
        self.handle_timers(now);
        match input {
            Input::Frame { port: Level1::WIDE_AREA, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|datagram| self.receive_message(now, datagram));
            }
            Input::Frame { port: Level1::CENTRAL, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.receive_bundle(now, bundle));
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => self.wake(now),
            Input::Command(never) => match never {},
        }
        self.handle_timers(now);
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<MembershipEvent> {
        if let Level1Format::Classic { bundler, .. } = &mut self.format {
            bundler.close_if_due(now);
        }
        if let Some(event) = self.joined.next_event() {
            return Output::Event(event);
        }
        if writable.has(Level1::CENTRAL)
            && let Some(length) = self.write_bundle(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Level1::CENTRAL, peer, length, segment: None });
        }
        if writable.has(Level1::WIDE_AREA)
            && let Some(transmit) = self.write_outgoing(buffer)
        {
            return Output::Transmit(transmit);
        }
        let (is_ready, bundle_due, other) = match &self.format {
            Level1Format::Classic { bundler, query_at } => {
                (bundler.is_ready(), bundler.deadline(), *query_at)
            }
            Level1Format::Format2(format2) => {
                (format2.outbox.is_ready(), format2.outbox.deadline(), format2.session.deadline())
            }
        };
        let reason = match (is_ready, self.outgoing.is_empty()) {
            (true, _) => Reason::Port(Level1::CENTRAL),
            (false, false) => Reason::Port(Level1::WIDE_AREA),
            (false, true) => Reason::Input,
        };
        Output::Idle(Idle { deadline: bundle_due.into_iter().chain(other).min(), reason })
    }
}

impl CountUnsent for Level1 {
    fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let Level1Statistics { drops, drops_outgoing, .. } = &mut self.statistics;
        let is_outgoing = port == Level1::WIDE_AREA;
        match self.format {
            Level1Format::Format2(_) => {
                (if is_outgoing { drops_outgoing } else { drops }).count_unsent_bundle(frame);
            }
            Level1Format::Classic { .. } if is_outgoing => {
                let message = ClassicMessage::read(frame).into_iter();
                message.for_each(|message| {
                    drops_outgoing.count(DropReason::Unsent, self.settings.is_priority(message.address));
                });
            }
            Level1Format::Classic { .. } => drops.count_unsent_with_mask(frame, &self.settings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Format;

    #[test]
    fn a_closing_converter_sends_bye_in_its_session() {
        let format2 = Format2::default();
        let settings = Settings { format: Format::Format2(format2), ..Settings::default() };
        let mut level1 = Level1::new(3, 9, settings);
        let now = Instant::ZERO + trunkline_units::Span::from_s(1);
        let mut bytes = vec![0; format2.max_datagram_octets()];
        let header = Header::from_central(1, 3, 8);
        let length = BundleBuilder::new(format2.max_datagram_octets()).finish(&header, &mut bytes);
        let frame =
            Input::Frame { port: Level1::CENTRAL, peer: Peer::NONE, bytes: &bytes[..length], segment: None };
        level1.handle(now, frame).unwrap();
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

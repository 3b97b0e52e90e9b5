//! [`Level1`]: the endpoint between the wide area, with one message per packet, and the central converter.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

use crate::api::{LEVEL1_CENTRAL_PORT, LEVEL1_WIDE_AREA_PORT};
pub use crate::api::{Level1Command, MAX_WAITING_MESSAGES};
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropReason};
use crate::format2;
use crate::interest::classic_packet_address;
use crate::level::{Level, MIN_LEVEL, ReportedLevel};
use crate::packet_set::JoinedGroups;
pub use crate::packet_set::MembershipEvent;
use crate::settings::Settings;
pub use crate::statistics::Level1Statistics;
use crate::wire::classic::{ADDRESS, CONTROL, ClassicBundle, ClassicControl, ClassicMessage, Source};

/// A level-1 converter.
///
/// On the [`WIDE_AREA`](Level1::WIDE_AREA) port a [`Peer`] is a packet address, two octets in big-endian order. The
/// driver maps it to a multicast address, `base` plus the packet address. The driver must discard messages that the
/// converter sent itself, because a classic message does not identify its sender.
///
/// Bounds: 65 bundles for the central converter and [`MAX_WAITING_MESSAGES`] messages for the wide area. Further
/// messages are dropped and [counted](Level1Statistics::drops).
#[derive(Debug)]
pub struct Level1(Level1Format);

#[derive(Debug)]
enum Level1Format {
    Classic(Box<ClassicLevel1>),
    Format2(Box<format2::level1::Format2Level1>),
}

/// The level-1 converter in format 1 (classic).
#[derive(Debug)]
struct ClassicLevel1 {
    settings: Settings,
    bundler: Bundler,
    /// The reported level, and the messages admitted in this interval.
    level: ReportedLevel,
    allowed: u8,
    allowed_until: Instant,
    /// When it queries the central converter for its joins.
    query_at: Option<Instant>,
    joined: JoinedGroups,
    outgoing: VecDeque<Vec<u8>>,
    spare_buffers: Vec<Vec<u8>>,
    statistics: Level1Statistics,
}

impl Level1 {
    /// The port to the wide area.
    pub const WIDE_AREA: Port = LEVEL1_WIDE_AREA_PORT;
    /// The port to the central converter.
    pub const CENTRAL: Port = LEVEL1_CENTRAL_PORT;

    /// Creates converter `number`, from 1 on.
    pub fn new(number: u16, settings: Settings) -> Level1 {
        Level1::with_incarnation(number, 0, settings)
    }

    /// Creates a converter with an `incarnation`, for format 2. Each start needs a higher one, modulo 2³².
    pub fn with_incarnation(number: u16, incarnation: u32, settings: Settings) -> Level1 {
        Level1(match settings.format2() {
            None => Level1Format::Classic(Box::new(ClassicLevel1::new(number, settings))),
            Some(format2) => Level1Format::Format2(Box::new(format2::level1::Format2Level1::new(
                number,
                incarnation,
                &settings,
                format2,
            ))),
        })
    }

    /// Queries the central converter at this time for all joins, since this converter may have restarted. The query
    /// is a control message with its own level, 3, which a converter without refresh ignores. Format 2 needs no
    /// query.
    pub fn with_query_at(mut self, at: Instant) -> Level1 {
        if let Level1Format::Classic(classic) = &mut self.0 {
            classic.query_at = Some(at);
            classic.level.expires = true;
        }
        self
    }

    /// Announces with the next bundle that the converter closes, so that its groups move at once. Format 1 (classic)
    /// has no such message.
    pub fn bye(&mut self, now: Instant) {
        if let Level1Format::Format2(format2) = &mut self.0 {
            format2.bye(now);
        }
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &Level1Statistics {
        match &self.0 {
            Level1Format::Classic(classic) => &classic.statistics,
            Level1Format::Format2(format2) => format2.statistics(),
        }
    }

    /// Returns the congestion level that the central converter last sent, 3 to 6, unless it has expired.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.0 {
            Level1Format::Classic(classic) => classic.level.current(now),
            Level1Format::Format2(format2) => format2.level(now),
        }
    }

    /// Returns the number of joined packet addresses.
    pub fn joined(&self) -> usize {
        match &self.0 {
            Level1Format::Classic(classic) => classic.joined.packets().count(),
            Level1Format::Format2(format2) => format2.joined(),
        }
    }
}

impl ClassicLevel1 {
    fn new(number: u16, settings: Settings) -> ClassicLevel1 {
        ClassicLevel1 {
            settings,
            bundler: Bundler::new(Some(Source::Level1(number)), settings.max_bundle, settings.timing),
            level: ReportedLevel::NONE,
            allowed: 0,
            allowed_until: Instant::ZERO,
            query_at: None,
            joined: JoinedGroups::default(),
            outgoing: VecDeque::new(),
            spare_buffers: Vec::new(),
            statistics: Level1Statistics::default(),
        }
    }

    fn receive_message(&mut self, now: Instant, datagram: &[u8]) {
        self.statistics.received += 1;
        let Some(message) = ClassicMessage::read(datagram) else {
            return self.statistics.drops.count(DropReason::Unfit, false);
        };
        let priority = self.settings.is_priority(message.address);
        if message.octets() == CONTROL {
            // The central converter would mistake it for control.
            return self.statistics.drops.count(DropReason::Control, priority);
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
        }
        if !Level::admit(self.level.current(now), &mut self.allowed, priority) {
            return self.statistics.drops.count(DropReason::Congestion, priority);
        }
        if !self.bundler.push(now, message.address, message.body, priority) {
            let fits = message.octets() + ADDRESS + 3 <= self.settings.max_bundle;
            self.statistics.drops.count(if fits { DropReason::Full } else { DropReason::Unfit }, priority);
        }
    }

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(bundle) = ClassicBundle::read(bytes) else { return self.statistics.malformed += 1 };
        self.statistics.bundles_received += 1;
        for message in bundle.messages() {
            match (message.octets() == CONTROL, ClassicControl::read(message)) {
                (true, Some(ClassicControl::Join(address))) => {
                    self.joined.change(classic_packet_address(address), true)
                }
                (true, Some(ClassicControl::Drop(address))) => {
                    self.joined.change(classic_packet_address(address), false)
                }
                (true, Some(ClassicControl::Level(level))) => self.level.update(now, level),
                (true, None) => self.statistics.malformed += 1,
                (false, _) => self.send(message),
            }
        }
    }

    fn send(&mut self, message: ClassicMessage<'_>) {
        if self.outgoing.len() >= MAX_WAITING_MESSAGES {
            let priority = self.settings.is_priority(message.address);
            return self.statistics.drops_outgoing.count(DropReason::Full, priority);
        }
        let mut bytes = self.spare_buffers.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&message.address.to_be_bytes());
        bytes.extend_from_slice(message.body);
        self.outgoing.push_back(bytes);
    }
}

impl Endpoint for ClassicLevel1 {
    type Command<'a> = Level1Command;
    type Event = MembershipEvent;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Level1Command>) -> Result<(), Self::Refusal> {
        match input {
            Input::Frame { port: Level1::WIDE_AREA, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|datagram| self.receive_message(now, datagram));
            }
            Input::Frame { port: Level1::CENTRAL, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.receive_bundle(now, bundle));
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => {
                if self.query_at.is_some_and(|at| at <= now) {
                    self.query_at = None;
                    // Without room the joins arrive with the next refresh, within ten seconds.
                    self.bundler.push_control(now, ClassicControl::Level(MIN_LEVEL));
                }
                self.bundler.close_if_due(now);
            }
            Input::Command(never) => match never {},
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<MembershipEvent> {
        self.bundler.close_if_due(now);
        if let Some(event) = self.joined.next_event() {
            return Output::Event(event);
        }
        if writable.has(Level1::CENTRAL)
            && let Some(length) = self.bundler.write_next(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Level1::CENTRAL, peer, length, segment: None });
        }
        if writable.has(Level1::WIDE_AREA)
            && let Some(bytes) = self.outgoing.pop_front()
        {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            let to = classic_packet_address(u16::from_be_bytes([bytes[0], bytes[1]]));
            let (port, peer, length) = (Level1::WIDE_AREA, Peer::new(&to.to_be_bytes()), bytes.len());
            self.spare_buffers.push(bytes);
            self.statistics.sent += 1;
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        let reason = match (self.bundler.is_ready(), self.outgoing.is_empty()) {
            (true, _) => Reason::Port(Level1::CENTRAL),
            (false, false) => Reason::Port(Level1::WIDE_AREA),
            (false, true) => Reason::Input,
        };
        let deadline = self.bundler.deadline().into_iter().chain(self.query_at).min();
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Level1 {
    type Command<'a> = Level1Command;
    type Event = MembershipEvent;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Level1Command>) -> Result<(), Self::Refusal> {
        match &mut self.0 {
            Level1Format::Classic(classic) => classic.handle(now, input),
            Level1Format::Format2(format2) => {
                format2.handle(now, input);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<MembershipEvent> {
        match &mut self.0 {
            Level1Format::Classic(classic) => classic.poll(now, writable, buffer),
            Level1Format::Format2(format2) => format2.poll(now, writable, buffer),
        }
    }
}

impl CountUnsent for Level1 {
    fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let classic = match &mut self.0 {
            Level1Format::Classic(classic) => classic,
            Level1Format::Format2(format2) => return format2.count_unsent(port, frame),
        };
        let (settings, statistics) = (classic.settings, &mut classic.statistics);
        if port == Level1::WIDE_AREA {
            let message = ClassicMessage::read(frame).into_iter();
            message.for_each(|one| {
                statistics.drops_outgoing.count(DropReason::Unsent, settings.is_priority(one.address))
            });
        } else if let Ok((_, bundle)) = ClassicBundle::read_with_mask(frame) {
            statistics.drops.count_unsent_classic(&bundle, &settings);
        }
    }
}

//! [`Level1`]: between the wide area, one message a packet, and the central converter, in bundles.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

use crate::drops::{Drops, Unsent, Why};
use crate::gather::Gather;
use crate::interest::packet;
use crate::level::{LEAST, Level, Told};
pub use crate::packets::Event;
use crate::packets::Joined;
use crate::settings::Settings;
use crate::wide;
use crate::wire::classic::{ADDRESS, Bundle, CONTROL, Control, Message, Source};

/// Messages for the wide area that wait for its port.
pub const WAITING: usize = 4_096;

/// A converter of level 1.
///
/// A [`Peer`] on the [`WIDE`](Level1::WIDE) port is a packet address, two octets big endian: the driver knows its
/// multicast address, `base` plus that. What it hears there must not be what it sent itself: the driver sees to that,
/// for a classic message does not say where it comes from.
///
/// Bounds: 65 bundles for the central converter, [`WAITING`] messages for the wide area. What finds no room is dropped
/// and [counted](Statistics::drops).
#[derive(Debug)]
pub struct Level1(Machine);

#[derive(Debug)]
enum Machine {
    Classic(Box<Classic>),
    Wide(Box<wide::level1::Machine>),
}

/// The machine of 1997.
#[derive(Debug)]
struct Classic {
    settings: Settings,
    gather: Gather,
    /// As the central converter says, and what was let through in the tick.
    level: Told,
    allowed: u8,
    allowed_until: Instant,
    /// When it asks what it gets.
    asks: Option<Instant>,
    joined: Joined,
    out: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    statistics: Statistics,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages from the wide area.
    pub heard: u64,
    /// Bundles from the central converter.
    pub bundles: u64,
    /// Messages sent to the wide area.
    pub sent: u64,
    /// Bundles sent to the central converter.
    pub bundles_sent: u64,
    /// Bundles that were none, and control that makes no sense.
    pub malformed: u64,
    /// Messages of this site's hosts that came back from the wide area. Of the wide format, as both below.
    pub own: u64,
    /// Bundles of an earlier session.
    pub stale: u64,
    /// Times that the central converter was silent for too long.
    pub lonely: u64,
    /// Messages from the wide area that were dropped.
    pub drops: Drops,
    /// Messages for the wide area that were dropped.
    pub drops_out: Drops,
}

/// What a converter of level 1 is asked: nothing but what it counted, which can be read.
pub type Command = std::convert::Infallible;

impl Level1 {
    /// The port to the wide area.
    pub const WIDE: Port = Port(0);
    /// The port to the central converter.
    pub const CENTRAL: Port = Port(1);

    /// Converter `number`, from 1 on.
    pub fn new(number: u16, settings: Settings) -> Level1 {
        Level1::with_life(number, 0, settings)
    }

    /// The same in its `life`: of the wide format, in which each start has a higher one (in a circle of 2³²).
    pub fn with_life(number: u16, life: u32, settings: Settings) -> Level1 {
        Level1(match settings.wide() {
            None => Machine::Classic(Box::new(Classic::new(number, settings))),
            Some(wide) => Machine::Wide(Box::new(wide::level1::Machine::new(number, life, &settings, wide))),
        })
    }

    /// Asks the central converter at this moment what it gets: it may have restarted, and what it was told by then may be one new
    /// join of many. It tells its own level, 3, which a central converter takes for the question, or drops. In the wide
    /// format it is told anyhow.
    pub fn asking(mut self, at: Instant) -> Level1 {
        if let Machine::Classic(classic) = &mut self.0 {
            classic.asks = Some(at);
            classic.level.fades = true;
        }
        self
    }

    /// Says that it ends with what leaves next, so that its groups go to others at once. The classic format has no word for it.
    pub fn bye(&mut self, now: Instant) {
        if let Machine::Wide(wide) = &mut self.0 {
            wide.bye(now);
        }
    }

    /// What it counted.
    pub fn statistics(&self) -> &Statistics {
        match &self.0 {
            Machine::Classic(classic) => &classic.statistics,
            Machine::Wide(wide) => wide.statistics(),
        }
    }

    /// The level of congestion that the central converter told, 3 to 6, as far as that still holds.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.0 {
            Machine::Classic(classic) => classic.level.at(now),
            Machine::Wide(wide) => wide.level(now),
        }
    }

    /// Packet addresses that it gets.
    pub fn joined(&self) -> usize {
        match &self.0 {
            Machine::Classic(classic) => classic.joined.packets().count(),
            Machine::Wide(wide) => wide.joined(),
        }
    }
}

impl Classic {
    fn new(number: u16, settings: Settings) -> Classic {
        Classic {
            settings,
            gather: Gather::new(Some(Source::Level1(number)), settings.longest, settings.timing),
            level: Told::NONE,
            allowed: 0,
            allowed_until: Instant::ZERO,
            asks: None,
            joined: Joined::default(),
            out: VecDeque::new(),
            spare: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    fn hear(&mut self, now: Instant, datagram: &[u8]) {
        self.statistics.heard += 1;
        let Some(message) = Message::read(datagram) else {
            return self.statistics.drops.count(Why::Unfit, false);
        };
        let priority = self.settings.is_priority(message.address);
        if message.octets() == CONTROL {
            // The central converter would take it for control.
            return self.statistics.drops.count(Why::Control, priority);
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
        }
        if !Level::admit(self.level.at(now), &mut self.allowed, priority) {
            return self.statistics.drops.count(Why::Congestion, priority);
        }
        if !self.gather.push(now, message.address, message.body, priority) {
            let fits = message.octets() + ADDRESS + 3 <= self.settings.longest;
            self.statistics.drops.count(if fits { Why::Full } else { Why::Unfit }, priority);
        }
    }

    fn take_bundle(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        self.statistics.bundles += 1;
        for message in bundle.messages() {
            match (message.octets() == CONTROL, Control::read(message)) {
                (true, Some(Control::Join(address))) => self.joined.change(packet(address), true),
                (true, Some(Control::Drop(address))) => self.joined.change(packet(address), false),
                (true, Some(Control::Level(level))) => self.level.hear(now, level),
                (true, None) => self.statistics.malformed += 1,
                (false, _) => self.send(message),
            }
        }
    }

    fn send(&mut self, message: Message<'_>) {
        if self.out.len() >= WAITING {
            let priority = self.settings.is_priority(message.address);
            return self.statistics.drops_out.count(Why::Full, priority);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&message.address.to_be_bytes());
        bytes.extend_from_slice(message.body);
        self.out.push_back(bytes);
    }
}

impl Endpoint for Classic {
    type Command<'a> = Command;
    type Event = Event;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Command>) -> Result<(), Self::Refusal> {
        match input {
            Input::Frame { port: Level1::WIDE, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|datagram| self.hear(now, datagram));
            }
            Input::Frame { port: Level1::CENTRAL, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.take_bundle(now, bundle));
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => {
                if self.asks.is_some_and(|at| at <= now) {
                    self.asks = None;
                    let (address, body) = Control::Level(LEAST).write();
                    // Without room the central converter tells all of it within ten seconds anyhow.
                    self.gather.tell(now, address, &body);
                }
                self.gather.roll(now);
            }
            Input::Command(never) => match never {},
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        self.gather.roll(now);
        if let Some(event) = self.joined.tell() {
            return Output::Event(event);
        }
        if writable.has(Level1::CENTRAL)
            && let Some(length) = self.gather.leave(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Level1::CENTRAL, peer, length, segment: None });
        }
        if writable.has(Level1::WIDE)
            && let Some(bytes) = self.out.pop_front()
        {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            let to = packet(u16::from_be_bytes([bytes[0], bytes[1]]));
            let (port, peer, length) = (Level1::WIDE, Peer::new(&to.to_be_bytes()), bytes.len());
            self.spare.push(bytes);
            self.statistics.sent += 1;
            return Output::Transmit(Transmit { port, peer, length, segment: None });
        }
        let reason = match (self.gather.is_ready(), self.out.is_empty()) {
            (true, _) => Reason::Port(Level1::CENTRAL),
            (false, false) => Reason::Port(Level1::WIDE),
            (false, true) => Reason::Input,
        };
        let deadline = self.gather.deadline().into_iter().chain(self.asks).min();
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Level1 {
    type Command<'a> = Command;
    type Event = Event;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Command>) -> Result<(), Self::Refusal> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.handle(now, input),
            Machine::Wide(wide) => {
                wide.handle(now, input);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.poll(now, writable, buffer),
            Machine::Wide(wide) => wide.poll(now, writable, buffer),
        }
    }
}

impl Unsent for Level1 {
    fn unsent(&mut self, port: Port, frame: &[u8]) {
        let classic = match &mut self.0 {
            Machine::Classic(classic) => classic,
            Machine::Wide(wide) => return wide.unsent(port, frame),
        };
        let (settings, statistics) = (classic.settings, &mut classic.statistics);
        let is_priority = |address: u16| settings.is_priority(address);
        if port == Level1::WIDE {
            let message = Message::read(frame).into_iter();
            message.for_each(|one| statistics.drops_out.count(Why::Unsent, is_priority(one.address)));
        } else if let Ok((_, bundle)) = Bundle::read_with_mask(frame) {
            statistics.drops.unsent_classic(&bundle, is_priority);
        }
    }
}

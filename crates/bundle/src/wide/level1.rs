//! The converter of level 1 in the wide format.

use std::collections::VecDeque;

use trunkline_endpoint::{Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use super::outbox::{Outbox, Parcel};
use super::{LONELY, alone};
use crate::drops::Why;
use crate::level::{LEAST, Level};
use crate::level1::{Command, Event, Level1, Statistics, WAITING};
use crate::packets::{Joined, Packets};
use crate::path::is_later;
use crate::regulator::{Bucket, Congestion, FILL, NO_LIMIT};
use crate::settings::{Settings, Wide};
use crate::wire::wide::control::Control;
use crate::wire::wide::{self, Builder, Bundle, Header, Message, Role};

/// The machine. It belongs to the session in which the central converter last spoke to it.
#[derive(Debug)]
pub struct Machine {
    wide: Wide,
    interval: Span,
    number: u16,
    life: u32,
    outbox: Outbox,
    /// The central converter's life, and the session that it gave.
    session: Option<(u32, u32)>,
    /// The one before, of which it took leave: in it the central converter takes it to have what it has left.
    left: Option<(u32, u32)>,
    heard: Instant,
    joined: Joined,
    /// The version of the hold that is so, and whether that is to be told.
    version: Option<u32>,
    holds: bool,
    ends: bool,
    level: u8,
    allowed: u8,
    allowed_until: Instant,
    bucket: Bucket,
    /// For the wide area.
    out: VecDeque<Parcel>,
    builder: Builder,
    statistics: Statistics,
}

impl Machine {
    /// Converter `number` in its `life`.
    pub fn new(number: u16, life: u32, settings: &Settings, wide: Wide) -> Machine {
        let longest = wide.longest();
        Machine {
            wide,
            interval: settings.interval,
            number,
            life,
            outbox: Outbox::new(longest, settings.timing, Instant::ZERO),
            session: None,
            left: None,
            heard: Instant::ZERO,
            joined: Joined::default(),
            version: None,
            holds: false,
            ends: false,
            level: LEAST,
            allowed: 0,
            allowed_until: Instant::ZERO,
            bucket: Bucket::new(longest, FILL),
            out: VecDeque::new(),
            builder: Builder::new(longest),
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) fn unsent(&mut self, port: Port, frame: &[u8]) {
        let Statistics { drops, drops_out, .. } = &mut self.statistics;
        (if port == Level1::WIDE { drops_out } else { drops }).unsent(frame);
    }

    pub(crate) fn level(&self, now: Instant) -> u8 {
        if now >= self.heard + LONELY { LEAST } else { self.level }
    }

    pub(crate) fn joined(&self) -> usize {
        self.joined.packets().count()
    }

    /// Says that it ends with what leaves next.
    pub(crate) fn bye(&mut self, now: Instant) {
        self.ends = true;
        self.outbox.tell_by(now);
        self.outbox.roll(now);
    }

    /// A message from the wide area: alone in its bundle.
    fn hear(&mut self, now: Instant, datagram: &[u8]) {
        self.statistics.heard += 1;
        let Some(message) = alone::read(datagram) else {
            return self.statistics.drops.count(Why::Unfit, false);
        };
        let priority = message.priority;
        if self.wide.is_own(message.source) {
            self.statistics.own += 1;
            return;
        }
        if !self.joined.packets().has(wide::packet_of(message.address)) {
            // Somebody else on this machine gets it.
            return self.statistics.drops.count(Why::Nobody, priority);
        }
        if !self.admits(now, &message) {
            return self.statistics.drops.count(Why::Congestion, priority);
        }
        // What fitted there need not fit here.
        if wide::is_too_long(message.body, self.wide.longest()) {
            return self.statistics.drops.count(Why::Unfit, priority);
        }
        if !self.outbox.push(now, Parcel::of(&message)) {
            self.statistics.drops.count(Why::Full, priority);
        }
    }

    fn admits(&mut self, now: Instant, message: &Message<'_>) -> bool {
        if message.priority {
            return true;
        }
        if self.wide.congestion == Congestion::Rates {
            return self.bucket.admits(now, wide::ENTRY + wide::carried(message.body));
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.interval);
        }
        Level::admit(self.level, &mut self.allowed, false)
    }

    fn take_bundle(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        if header.role != Role::Central || header.to != self.number {
            return self.statistics.malformed += 1;
        }
        self.statistics.bundles += 1;
        if !self.follow(now, &header) {
            self.statistics.stale += 1;
            return;
        }
        for control in bundle.control() {
            match control {
                Control::Hold { version, packets } => self.hold(now, version, packets),
                Control::Level { level, rate } => {
                    self.level = level;
                    self.bucket.set(rate);
                }
                _ => self.statistics.malformed += 1,
            }
        }
        bundle.messages().for_each(|message| self.send(&message));
    }

    /// Whether a bundle is of the session that this is in, or of another than it left, which then is the session.
    fn follow(&mut self, now: Instant, header: &Header) -> bool {
        let theirs = (header.life, header.session);
        if self.session.is_some_and(|ours| is_later(ours.0, theirs.0)) || self.left == Some(theirs) {
            return false;
        }
        self.heard = now;
        if self.session != Some(theirs) {
            self.left = self.session.replace(theirs).or(self.left);
            self.version = None;
            self.outbox.restart(now, false);
            self.outbox.tell_by(now);
        }
        true
    }

    fn hold(&mut self, now: Instant, version: u32, packets: &wide::Packets) {
        if self.version.is_none_or(|have| is_later(version, have)) {
            self.version = Some(version);
            self.joined.become_these(&Packets::read(packets));
        }
        self.holds = true;
        self.outbox.tell_by(now);
    }

    fn send(&mut self, message: &Message<'_>) {
        if self.out.len() >= WAITING {
            return self.statistics.drops_out.count(Why::Full, message.priority);
        }
        if wide::is_too_long(message.body, self.wide.longest()) {
            // Its path carries less than that of who sent it.
            return self.statistics.drops_out.count(Why::Unfit, message.priority);
        }
        self.out.push_back(Parcel::of(message));
    }

    /// Takes leave of a central converter that is silent, and says so by saying no session.
    fn roll(&mut self, now: Instant) {
        if self.session.is_some() && now >= self.heard + LONELY {
            self.left = self.session.take();
            self.version = None;
            self.joined.become_these(&Packets::NONE);
            self.outbox.tell_by(now);
            (self.level, self.holds) = (LEAST, false);
            self.bucket.set(NO_LIMIT);
            self.outbox.restart(now, false);
            self.statistics.lonely += 1;
        }
        self.outbox.roll(now);
    }

    fn header(&self) -> Header {
        let session = self.session.map_or(0, |(_, session)| session);
        Header { role: Role::Level1, number: self.number, to: 0, life: self.life, session, before: 0 }
    }

    /// The next message for the wide area.
    fn cast(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let parcel = self.out.pop_front()?;
        let to = wide::packet_of(parcel.address);
        self.builder.push(&parcel.message(None));
        let header = Header { to, session: 0, before: 0, ..self.header() };
        let length = self.builder.finish(&header, buffer);
        self.statistics.sent += 1;
        let peer = Peer::new(&to.to_be_bytes());
        Some(Transmit { port: Level1::WIDE, peer, length, segment: None })
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_, Command>) {
        self.roll(now);
        match input {
            Input::Frame { port: Level1::WIDE, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|datagram| self.hear(now, datagram));
            }
            Input::Frame { port: Level1::CENTRAL, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.take_bundle(now, bundle));
            }
            Input::Frame { .. } => self.statistics.malformed += 1,
            Input::Wake => {}
            Input::Command(never) => match never {},
        }
        self.roll(now);
    }

    pub(crate) fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if let Some(event) = self.joined.tell() {
            return Output::Event(event);
        }
        if writable.has(Level1::CENTRAL) && self.outbox.is_ready() {
            let (header, version) = (self.header(), self.version);
            let (holds, ends) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.ends));
            let tell = |builder: &mut Builder| {
                if ends {
                    builder.tell(&Control::Bye);
                }
                if let (Some(version), true) = (version, holds) {
                    builder.tell(&Control::Holds(version));
                }
            };
            let length = self.outbox.leave(now, header, tell, buffer);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(Transmit {
                port: Level1::CENTRAL,
                peer: Peer::NONE,
                length,
                segment: None,
            });
        }
        if writable.has(Level1::WIDE)
            && let Some(transmit) = self.cast(buffer)
        {
            return Output::Transmit(transmit);
        }
        let reason = match (self.outbox.is_ready(), self.out.is_empty()) {
            (true, _) => Reason::Port(Level1::CENTRAL),
            (false, false) => Reason::Port(Level1::WIDE),
            (false, true) => Reason::Input,
        };
        let lonely = self.session.map(|_| self.heard + LONELY);
        let deadline = self.outbox.deadline().into_iter().chain(lonely).min();
        Output::Idle(Idle { deadline, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_says_so_in_its_session() {
        let wide = Wide::default();
        let mut level1 = Machine::new(3, 9, &Settings::default(), wide);
        let now = Instant::ZERO + trunkline_units::Span::from_s(1);
        let mut bytes = vec![0; wide.longest()];
        let header = Header { role: Role::Central, number: 0, to: 3, life: 1, session: 8, before: 0 };
        let length = Builder::new(wide.longest()).finish(&header, &mut bytes);
        let frame =
            Input::Frame { port: Level1::CENTRAL, peer: Peer::NONE, bytes: &bytes[..length], segment: None };
        level1.handle(now, frame);
        level1.bye(now);
        let mut told = Vec::new();
        let mut buffer = vec![0; trunkline_endpoint::MAX_BATCH];
        while let Output::Transmit(transmit) = level1.poll(now, Writable::ALL, &mut buffer) {
            let bundle = Bundle::read(&buffer[..transmit.length]).unwrap();
            told.extend(bundle.control().map(|control| (bundle.header().session, control == Control::Bye)));
        }
        assert_eq!(told, [(8, true)]);
    }
}

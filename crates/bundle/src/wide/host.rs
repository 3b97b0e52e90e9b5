//! The interface of a host in the wide format.

use std::collections::VecDeque;

use trunkline_endpoint::{Idle, Input, Output, Peer, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

use super::outbox::{Outbox, Parcel};
use super::{ACKNOWLEDGE, ACKNOWLEDGED, AGAIN, HELLO, LONELY, SATURATED};
use crate::drops::Why;
use crate::host::{Command, Event, Host, Post, Refusal, Statistics};
use crate::inbox::{From, Inbox, Sink};
use crate::level::{LEAST, Level};
use crate::path::{Flow, Link, Seen, Verdict, is_later};
use crate::ranges::{MOST_RANGES, Ranges};
use crate::regulator::{Bucket, Congestion, FILL, NO_LIMIT};
use crate::reliable::Receiver;
use crate::settings::{Settings, Wide};
use crate::wire::classic::PACKETS;
use crate::wire::wide::control::{self, Changes, Control};
use crate::wire::wide::{self, Builder, Bundle, Header, Message, Role, packet_of};

/// Joins and drops that were not heard of, at the most: then the host waits until they are.
const MOST_CHANGES: usize = 2 * MOST_RANGES;

/// Sessions that it left and does not come back to: more are not on their way at once.
const LEFT: usize = 4;

/// A join or a drop of a range.
#[derive(Clone, Copy, Debug)]
struct Change {
    joins: bool,
    first: u32,
    last: u32,
}

/// The machine. It belongs to the session in which the central converter last spoke to it.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    wide: Wide,
    number: u16,
    life: u32,
    outbox: Outbox,
    /// The central converter's life, and the session that it gave; and the last ones before, in no order.
    session: Option<(u32, u32)>,
    left: [Option<(u32, u32)>; LEFT],
    heard: Instant,
    /// Whether it has been silent for too long.
    lonely: bool,
    wants: Ranges,
    /// Changes of what it wants that the central converter has not heard of, and how many it has.
    changes: VecDeque<Change>,
    told: u32,
    tell_changes: Instant,
    /// Numbers of what it sent, by packet address: of ordinary messages and those with priority.
    sequences: Box<[[u32; 2]; PACKETS]>,
    receiver: Receiver<Parcel>,
    acknowledge: bool,
    seen: Seen,
    link: Link,
    /// Of bundles to all hosts.
    to_all: Link,
    report: Instant,
    inbox: Inbox,
    level: u8,
    told_level: u8,
    allowed: u8,
    allowed_until: Instant,
    bucket: Bucket,
    /// Ordinary messages that it takes.
    saturation: Bucket,
    /// Whether it ever said so: then it says also that it takes all again.
    was_saturated: bool,
    ends: bool,
    statistics: Statistics,
}

impl Machine {
    /// Host `number` in its `life`.
    pub fn new(number: u16, life: u32, settings: &Settings, wide: Wide) -> Machine {
        let longest = wide.longest();
        Machine {
            settings: *settings,
            wide,
            number,
            life,
            outbox: Outbox::new(longest, settings.timing, Instant::ZERO),
            session: None,
            left: [None; LEFT],
            heard: Instant::ZERO,
            lonely: false,
            wants: Ranges::default(),
            changes: VecDeque::new(),
            told: 0,
            tell_changes: Instant::MAX,
            sequences: Box::new([[0; 2]; PACKETS]),
            receiver: Receiver::default(),
            acknowledge: false,
            seen: Seen::default(),
            link: Link::default(),
            to_all: Link::default(),
            report: Instant::ZERO,
            inbox: Inbox::default(),
            level: LEAST,
            told_level: LEAST,
            allowed: 0,
            allowed_until: Instant::ZERO,
            bucket: Bucket::new(longest, FILL),
            saturation: Bucket::new(1, SATURATED),
            was_saturated: false,
            ends: false,
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) fn unsent(&mut self, frame: &[u8]) {
        self.statistics.drops.unsent(frame);
    }

    pub(crate) fn level(&self, now: Instant) -> u8 {
        if now >= self.heard + LONELY { LEAST } else { self.level }
    }

    /// Addresses that it wants.
    pub(crate) fn joined(&self) -> usize {
        self.wants.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether it wants those with an address.
    pub(crate) fn wants(&self, address: u32) -> bool {
        self.wants.has(address)
    }

    /// Whether the central converter has not heard of something.
    pub(crate) fn is_saying(&self) -> bool {
        let (ordinary, urgent) = self.outbox.waiting();
        ordinary + urgent + self.changes.len() > 0 || self.ends
    }

    fn send(&mut self, now: Instant, post: &Post<'_>) -> Result<(), Refusal> {
        let Post { address, body, .. } = *post;
        let priority = post.priority || post.within.is_some();
        let refused = if wide::is_too_long(body, self.wide.longest()) {
            Some((Why::Unfit, Refusal::TooLong))
        } else if !priority && !self.admits(now, body) {
            Some((Why::Congestion, Refusal::Congested(self.level)))
        } else {
            None
        };
        if let Some((why, refusal)) = refused {
            self.statistics.drops.count(why, priority);
            return Err(refusal);
        }
        let sequence = &mut self.sequences[usize::from(packet_of(address))][usize::from(priority)];
        let parcel = Parcel {
            address,
            source: self.wide.source(self.number),
            life: self.life,
            sequence: *sequence,
            within: wide::within(post.within),
            priority,
            body: body.into(),
        };
        let pushed = match priority {
            true => self.outbox.push_reliable(now, parcel),
            false => self.outbox.push(now, parcel),
        };
        if !pushed {
            self.statistics.drops.count(Why::Full, priority);
            return Err(Refusal::Full);
        }
        *sequence = sequence.wrapping_add(1);
        self.statistics.sent += 1;
        Ok(())
    }

    fn admits(&mut self, now: Instant, body: &[u8]) -> bool {
        if self.wide.congestion == Congestion::Rates {
            return self.bucket.admits(now, wide::ENTRY + wide::carried(body));
        }
        if now >= self.allowed_until {
            (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
        }
        Level::admit(self.level, &mut self.allowed, false)
    }

    /// Wants a range, or no longer.
    fn want(&mut self, now: Instant, first: u32, last: u32, joins: bool) -> Result<(), Refusal> {
        // Priority messages of 1997 have odd addresses, joined with the even ones before them.
        let (first, last) = if self.settings.pairs { (first & !1, last | 1) } else { (first, last) };
        if first > last {
            return Err(Refusal::Range);
        }
        let room = self.changes.len() < MOST_CHANGES;
        if !room || !(if joins { self.wants.add(first, last) } else { self.wants.remove(first, last) }) {
            return Err(Refusal::Full);
        }
        if self.session.is_some() {
            if self.changes.is_empty() {
                self.tell_changes = now;
                self.outbox.tell_by(now);
            }
            self.changes.push_back(Change { joins, first, last });
        }
        Ok(())
    }

    pub(crate) fn hear(&mut self, now: Instant, datagram: &[u8], sink: &mut impl Sink) {
        self.roll(now);
        self.take_bundle(now, datagram, sink);
        self.roll(now);
    }

    fn take_bundle(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        if header.role != Role::Central || ![0, self.number].contains(&header.to) {
            return self.statistics.malformed += 1;
        }
        self.statistics.bundles += 1;
        if header.to == 0 {
            return self.take_from_all(now, &bundle, sink);
        }
        if !self.follow(now, &header) {
            self.statistics.stale += 1;
            return;
        }
        self.link.note(header.before, bundle.count());
        for control in bundle.control() {
            match control {
                Control::Told(count) => self.heard_of(now, count),
                Control::Ack { next, beyond } => self.outbox.reliable.acknowledge(next, beyond),
                Control::Level { level, rate } => self.limit(level, rate),
                _ => self.statistics.malformed += 1,
            }
        }
        for message in bundle.messages() {
            match message.reliable {
                None => self.keep(now, &message, sink),
                Some(number) => self.keep_in_order(now, number, &message, sink),
            }
        }
        self.count();
    }

    /// A bundle that all hosts get is of no session, and tells only what all may know.
    fn take_from_all(&mut self, now: Instant, bundle: &Bundle<'_>, sink: &mut impl Sink) {
        let header = bundle.header();
        if self.session.is_none_or(|(life, _)| life != header.life) || header.session != 0 {
            self.statistics.stale += 1;
            return;
        }
        self.to_all.note(header.before, bundle.count());
        for control in bundle.control() {
            match control {
                Control::Level { level, rate } => self.limit(level, rate),
                _ => self.statistics.malformed += 1,
            }
        }
        bundle
            .messages()
            .filter(|message| message.reliable.is_none())
            .for_each(|message| self.keep(now, &message, sink));
        self.count();
    }

    fn limit(&mut self, level: u8, rate: u32) {
        self.level = level;
        self.bucket.set(rate);
    }

    /// Whether a bundle is of the session that this is in, or of another than it left, which then is the session.
    fn follow(&mut self, now: Instant, header: &Header) -> bool {
        let theirs = (header.life, header.session);
        if theirs.1 == 0 {
            return false;
        }
        let ours = self.session.filter(|_| !self.lonely);
        if ours.is_some_and(|ours| is_later(ours.0, theirs.0)) || self.left.contains(&Some(theirs)) {
            return false;
        }
        (self.heard, self.lonely) = (now, false);
        if self.session == Some(theirs) {
            return true;
        }
        if self.session.is_none_or(|ours| ours.0 != theirs.0) {
            self.to_all = Link::default();
        }
        self.left[self.statistics.sessions as usize % LEFT] = self.session.replace(theirs);
        self.statistics.sessions += 1;
        self.outbox.restart(now, true);
        (self.link, self.receiver, self.acknowledge) = (Link::default(), Receiver::default(), false);
        // All that it wants is told anew.
        self.told = 0;
        self.changes = self.wants.iter().map(|(first, last)| Change { joins: true, first, last }).collect();
        self.outbox.tell_by(now);
        self.tell_what_changed(now);
        true
    }

    /// So many changes of this session are heard.
    fn heard_of(&mut self, now: Instant, count: u32) {
        let news = count.wrapping_sub(self.told) as usize;
        if news == 0 || news > self.changes.len() {
            return;
        }
        self.changes.drain(..news);
        self.told = count;
        self.tell_what_changed(now);
    }

    /// Tells now what is not heard of, and if there is nothing never.
    fn tell_what_changed(&mut self, now: Instant) {
        self.tell_changes = if self.changes.is_empty() { Instant::MAX } else { now };
        self.outbox.tell_by(self.tell_changes);
    }

    /// Whether a message is one that it wants and did not have.
    fn is_new(&mut self, now: Instant, message: &Message<'_>) -> bool {
        let Message { address, source, life, sequence, priority, .. } = *message;
        if source == self.wide.source(self.number) || !self.wants.has(address) {
            self.statistics.others += 1;
            return false;
        }
        let flow = Flow { source, packet: packet_of(address), priority };
        match self.seen.take(now, flow, life, sequence) {
            Verdict::New => true,
            Verdict::Old => false,
            Verdict::Unknown => {
                self.statistics.drops.count(Why::Full, priority);
                false
            }
        }
    }

    fn keep(&mut self, now: Instant, message: &Message<'_>, sink: &mut impl Sink) {
        if !self.is_new(now, message) {
            return;
        }
        if !message.priority && !self.saturation.admits(now, 1) {
            return self.statistics.drops.count(Why::Saturated, false);
        }
        self.push(from(message), message.body, sink);
    }

    fn keep_in_order(&mut self, now: Instant, number: u16, message: &Message<'_>, sink: &mut impl Sink) {
        if !self.acknowledge {
            self.acknowledge = true;
            self.outbox.tell_by(now + ACKNOWLEDGE);
        }
        self.receiver.take(number, || Parcel::of(message));
        self.give_on(now, sink);
    }

    /// Gives on what comes next of what is acknowledged, as far as there is room: what has none is not acknowledged, and comes
    /// again.
    fn give_on(&mut self, now: Instant, sink: &mut impl Sink) {
        while self.receiver.peek().is_some_and(|parcel| sink.has_room(&parcel.body))
            && let Some(parcel) = self.receiver.next()
        {
            if self.receiver.unacknowledged() >= ACKNOWLEDGED {
                self.outbox.tell_by(now);
            }
            let message = parcel.message(None);
            if self.is_new(now, &message) {
                self.push(from(&message), message.body, sink);
            }
        }
    }

    fn push(&mut self, from: From, body: &[u8], sink: &mut impl Sink) {
        match sink.push(from, body) {
            true => self.statistics.received += 1,
            false => self.statistics.drops.count(Why::Full, from.priority),
        }
    }

    fn count(&mut self) {
        self.statistics.path = self.seen.counts();
        self.statistics.lost_to_all = u64::from(self.to_all.lost);
        self.statistics.lost = u64::from(self.link.lost) + u64::from(self.to_all.lost);
        self.statistics.repeated = self.outbox.reliable.repeated();
    }

    /// Of a central converter that is silent any session is taken, and no limit obeyed. The session stays: what was not
    /// acknowledged may still be, if it was only the network.
    fn roll(&mut self, now: Instant) {
        if self.session.is_some() && !self.lonely && now >= self.heard + LONELY {
            (self.lonely, self.level) = (true, LEAST);
            self.bucket.set(NO_LIMIT);
            self.statistics.lonely += 1;
        }
        self.outbox.roll(now);
    }

    /// Writes what is to be told.
    fn leave(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let session = self.session.map_or(0, |(_, session)| session);
        let header =
            Header { role: Role::Host, number: self.number, to: 0, life: self.life, session, before: 0 };
        let Machine { outbox, changes, told, tell_changes, receiver, acknowledge, link, report, .. } = self;
        let (saturation, was_saturated) = (self.saturation.rate(), self.was_saturated);
        let ends = std::mem::take(&mut self.ends);
        let mut again = None;
        let tell = |builder: &mut Builder| {
            if ends {
                builder.tell(&Control::Bye);
            }
            if session == 0 {
                return;
            }
            if std::mem::take(acknowledge) {
                let (next, beyond) = receiver.acknowledgement();
                builder.tell(&Control::Ack { next, beyond });
            }
            if now >= *report {
                *report = now + HELLO;
                builder.tell(&Control::Report { received: link.received, lost: link.missing() });
                if was_saturated {
                    builder.tell(&Control::Saturation(saturation));
                }
            }
            if now >= *tell_changes {
                tell_some(builder, changes, *told);
                *tell_changes = now + AGAIN;
                again = Some(*tell_changes);
            }
        };
        let length = outbox.leave(now, header, tell, buffer);
        if let Some(again) = again {
            outbox.tell_by(again);
        }
        self.count();
        length
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        self.roll(now);
        let done = match input {
            Input::Frame { port: Host::CENTRAL, bytes, segment, .. } => {
                let mut inbox = std::mem::take(&mut self.inbox);
                Segment::frames(segment, bytes).for_each(|bundle| self.take_bundle(now, bundle, &mut inbox));
                self.inbox = inbox;
                Ok(())
            }
            Input::Frame { .. } => {
                self.statistics.malformed += 1;
                Ok(())
            }
            Input::Wake => Ok(()),
            Input::Command(command) => self.obey(now, command),
        };
        self.roll(now);
        done
    }

    fn obey(&mut self, now: Instant, command: Command<'_>) -> Result<(), Refusal> {
        match command {
            Command::Send { address, body } => {
                let priority = self.settings.is_priority(address);
                self.send(now, &Post { address: address.into(), priority, within: None, body })
            }
            Command::Post(post) => self.send(now, &post),
            Command::Join(address) => self.want(now, address.into(), address.into(), true),
            Command::Drop(address) => self.want(now, address.into(), address.into(), false),
            Command::JoinRange { first, last } => self.want(now, first, last, true),
            Command::DropRange { first, last } => self.want(now, first, last, false),
            Command::DropAll => self.want(now, 0, u32::MAX, false),
            // Hellos tell who is there, and what was not heard of is told again.
            Command::Refused | Command::DropAgain { .. } => Ok(()),
            Command::Receive { into, from } => {
                *from = self.inbox.take(into);
                if self.receiver.peek().is_some() {
                    self.acknowledge = true;
                    self.outbox.tell_by(now + ACKNOWLEDGE);
                    let mut inbox = std::mem::take(&mut self.inbox);
                    self.give_on(now, &mut inbox);
                    self.inbox = inbox;
                }
                Ok(())
            }
            Command::Saturate(messages) => {
                self.saturation.set(messages.unwrap_or(NO_LIMIT));
                self.was_saturated |= messages.is_some();
                self.report = now;
                self.outbox.tell_by(now);
                Ok(())
            }
            Command::Bye => {
                self.ends = true;
                self.outbox.tell_by(now);
                Ok(())
            }
        }
    }

    pub(crate) fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if self.inbox.became_readable() {
            return Output::Event(Event::Readable);
        }
        if self.told_level != self.level {
            self.told_level = self.level;
            return Output::Event(Event::Level(self.level));
        }
        if writable.has(Host::CENTRAL) && self.outbox.is_ready() {
            let length = self.leave(now, buffer);
            self.statistics.bundles_sent += 1;
            return Output::Transmit(Transmit {
                port: Host::CENTRAL,
                peer: Peer::NONE,
                length,
                segment: None,
            });
        }
        let reason = if self.outbox.is_ready() { Reason::Port(Host::CENTRAL) } else { Reason::Input };
        let lonely = self.session.filter(|_| !self.lonely).map(|_| self.heard + LONELY);
        Output::Idle(Idle { deadline: self.outbox.deadline().into_iter().chain(lonely).min(), reason })
    }
}

/// What is known of a message.
fn from(message: &Message<'_>) -> From {
    From { address: message.address, source: message.source, priority: message.priority }
}

/// Tells as many of the first changes as fit and leave half of the bundle to messages.
fn tell_some(builder: &mut Builder, changes: &VecDeque<Change>, told: u32) {
    let room = (builder.room() / 2).min(wide::LEAST_PATH * 2);
    let (mut number, mut octets) = (told, 0);
    let mut run: Vec<u8> = Vec::new();
    let mut changes = changes.iter().peekable();
    while let Some(change) = changes.next() {
        run.extend_from_slice(&Changes::encode(change.first, change.last));
        let full = octets + control::RANGES + run.len() + control::RANGE > room;
        let ends = full || changes.peek().is_none_or(|next| next.joins != change.joins);
        if !ends && run.len() < control::MOST_RANGES * control::RANGE {
            continue;
        }
        let count = (run.len() / control::RANGE) as u32;
        let item = Changes::new(number, &run);
        builder.tell(&if change.joins { Control::Join(item) } else { Control::Drop(item) });
        octets += control::RANGES + run.len();
        number = number.wrapping_add(count);
        run.clear();
        if octets + control::RANGES + control::RANGE > room {
            return;
        }
    }
}

//! A station: service access points, their queues, and what the standard has it answer.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `queue` | queues of eight levels, slots, moments, memory by a key |
//! | `sap` | a service access point |
//! | `acknowledged` | type 3: sequences, tries, acknowledgements |
//! | `answers` | XID, TEST, and what waits to be answered |
//! | `line` | which frame is next, and what comes of one that arrives |
//! | `short` | the short way out of a message that nothing waits before |

mod acknowledged;
mod answers;
mod line;
mod queue;
mod sap;
#[cfg(any(feature = "sockets", test))]
mod short;

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, MAX_SEGMENTS, Output, Port, Reason, Segment, Writable};
use trunkline_units::{Instant, Span};

use crate::options::Options;
use crate::statistics::Statistics;
use crate::talk::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::wire::{
    ALL, Address, CRC, CommandStatus, GLOBAL_SAP, HIGHEST, IDENTITY, Kind, MAX_INFORMATION, NULL_SAP,
};
use acknowledged::Sequences;
use answers::Answer;
use line::crc_of;
use queue::{Levels, Moments, Noted, Pool};
use sap::{Arrival, Sap};
#[cfg(feature = "sockets")]
pub(crate) use short::{Handed, Left, What};

/// How a station is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Through which port.
    pub port: Port,
    /// Its number, 1 to 254.
    pub station: u8,
    /// Most SAPs open at once; there are 127.
    pub saps: usize,
    /// Most frames of one SAP and priority to one station that leave as a batch, at most [`MAX_SEGMENTS`]; 1: each alone.
    /// What is of a higher priority waits for the whole batch.
    pub batch: usize,
    /// How long the number of a peer's last acknowledged message is remembered (IEEE 802.2 clause 8: the lifetime of V(RI)).
    /// A message is not tried again when it first left half of this ago: so while frames live shorter than that half,
    /// none is taken twice. The same at all stations.
    pub lifetime: Span,
    /// Most sequences of acknowledged messages (own SAP, peer's SAP, priority) that are remembered in each direction. To
    /// send, an idle one is forgotten for another; only when messages wait in more are there more. Who sends in one more is
    /// answered that there is no room, until one has not been heard for a lifetime.
    pub sequences: usize,
    /// Whether it takes frames from its own number: on a path that brings them back, to send to itself.
    pub hears_itself: bool,
}

impl Config {
    /// A station that opens as many SAPs as there are, sends each frame alone, and remembers 1024 sequences for 20 s.
    pub fn new(port: Port, station: u8) -> Config {
        Config {
            port,
            station,
            saps: 127,
            batch: 1,
            lifetime: Span::from_s(20),
            sequences: 1024,
            hears_itself: false,
        }
    }
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: the slot is free.
    Free,
    /// Behind another of its sequence.
    Behind,
    /// In its SAP's outbox.
    Ready,
    /// On the line.
    Away,
}

/// A message to send, or a question.
#[derive(Debug)]
struct Message {
    kind: Kind,
    sap: u8,
    to: Address,
    priority: u8,
    ticket: Ticket,
    place: Place,
    /// How often it, or what goes before it, was sent.
    tried: u16,
    tries: u16,
    patience: Span,
    since: Instant,
    /// When it is late.
    limit: Instant,
    /// When it is given up, for either reason.
    until: Instant,
    /// When it is looked at.
    noted: Instant,
    /// What its last answer said.
    refused: Option<CommandStatus>,
    link: u32,
    /// The information field.
    bytes: Vec<u8>,
}

impl Default for Message {
    fn default() -> Self {
        Message {
            kind: Kind::Ui,
            sap: 0,
            to: Address { sap: 0, station: 0 },
            priority: 0,
            ticket: Ticket(0),
            place: Place::Free,
            tried: 0,
            tries: 0,
            patience: Span::ZERO,
            since: Instant::ZERO,
            limit: Instant::MAX,
            until: Instant::MAX,
            noted: Instant::MAX,
            refused: None,
            link: 0,
            bytes: Vec::new(),
        }
    }
}

impl Noted for Message {
    #[inline]
    fn noted(&self) -> Instant {
        self.noted
    }
}

/// A station.
///
/// **Order.** What has the highest priority leaves first, so a message waits for at most one frame (or batch) of a lower
/// one: that which is leaving. Within a priority answers and messages take turns, among messages the SAPs, and a SAP's
/// leave in the order in which they were sent, but that of a sequence of acknowledged messages only one is under way.
///
/// **Bounds.** A SAP holds as many messages to send as its options say, from the call until their end is told, and as many to
/// be taken. When no more may wait to leave, [`Refusal::Full`]; when no more may wait to be taken, an unacknowledged message is
/// dropped and counted, and an acknowledged one is answered with [`CommandStatus::Unavailable`], so that it comes again.
/// Answers to XID and TEST that wait are at most 128, acknowledgements 256; answers to the questions of a SAP that were
/// not told 64; sequences as [`Config::sequences`] says.
#[derive(Debug)]
pub struct Station {
    config: Config,
    /// By half its number.
    saps: [Option<Box<Sap>>; 128],
    /// Numbers of those that are open, in order.
    open: Vec<u8>,
    messages: Pool<Message>,
    arrivals: Pool<Arrival>,
    /// SAPs with something in their outbox.
    turns: Levels<u8>,
    answers: Levels<Answer>,
    echoes: usize,
    acks: usize,
    /// Buffers of answers that left.
    spare: Vec<Vec<u8>>,
    /// A bit for each level at which an answer left last.
    answered: u8,
    moments: Moments,
    sequences: Sequences,
    /// SAPs that have something to tell.
    news: VecDeque<u8>,
    ticket: u32,
    #[cfg(any(feature = "sockets", test))]
    expected: short::Expected,
    /// The message that was not kept last, since it was wanted.
    handed: Received,
    /// The SAP of the datagrams that left last, and how many they were.
    last: (u8, usize),
    statistics: Statistics,
}

impl Station {
    /// A station without SAPs.
    ///
    /// # Panics
    /// If its number is not 1 to 254.
    pub fn new(config: Config) -> Station {
        assert!((1..ALL).contains(&config.station), "a station's number is 1 to 254, not {}", config.station);
        let config = Config {
            sequences: config.sequences.max(1),
            batch: config.batch.clamp(1, MAX_SEGMENTS),
            ..config
        };
        Station {
            config,
            saps: [const { None }; 128],
            open: Vec::new(),
            messages: Pool::default(),
            arrivals: Pool::default(),
            turns: Levels::default(),
            answers: Levels::default(),
            echoes: 0,
            acks: 0,
            spare: Vec::new(),
            answered: 0,
            moments: Moments::default(),
            sequences: Sequences::default(),
            news: VecDeque::new(),
            ticket: 0,
            #[cfg(any(feature = "sockets", test))]
            expected: short::Expected::default(),
            handed: Arrival::default().received,
            last: (0, 0),
            statistics: Statistics::default(),
        }
    }

    /// Its number.
    pub fn station(&self) -> u8 {
        self.config.station
    }

    /// What it counted.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The SAPs that are open, in order.
    pub fn open_saps(&self) -> &[u8] {
        &self.open
    }

    /// How an open SAP behaves.
    pub fn options(&self, sap: u8) -> Option<&Options> {
        self.sap(sap).ok().map(|sap| &sap.options)
    }

    /// Messages and questions of a SAP that wait to leave, for an answer, or for their end to be told.
    pub fn waiting(&self, sap: u8) -> usize {
        self.sap(sap).map_or(0, |sap| sap.places)
    }

    /// Messages of a SAP that wait to be taken.
    pub fn readable(&self, sap: u8) -> usize {
        self.sap(sap).map_or(0, |sap| sap.held)
    }

    /// Sequences of acknowledged messages that it remembers, to send and to receive.
    pub fn sequences(&self) -> (usize, usize) {
        self.sequences.remembered()
    }

    #[inline]
    fn sap(&self, number: u8) -> Result<&Sap, Refusal> {
        if number & 1 == 1 || number == NULL_SAP {
            return Err(Refusal::Invalid);
        }
        self.saps[usize::from(number >> 1)].as_deref().ok_or(Refusal::Closed)
    }

    #[inline]
    fn sap_mut(&mut self, number: u8) -> Result<&mut Sap, Refusal> {
        if number & 1 == 1 || number == NULL_SAP {
            return Err(Refusal::Invalid);
        }
        self.saps[usize::from(number >> 1)].as_deref_mut().ok_or(Refusal::Closed)
    }
}

// Commands.
impl Station {
    fn open(&mut self, sap: u8, options: &Options) -> Result<(), Refusal> {
        match self.sap(sap) {
            Err(Refusal::Closed) => {}
            Ok(_) => return Err(Refusal::Duplicate),
            Err(refusal) => return Err(refusal),
        }
        check(options)?;
        if self.open.len() >= self.config.saps {
            return Err(Refusal::TooMany);
        }
        self.saps[usize::from(sap >> 1)] = Some(Box::new(Sap::new(sap, options)));
        let at = self.open.partition_point(|other| *other < sap);
        self.open.insert(at, sap);
        Ok(())
    }

    fn configure(&mut self, sap: u8, options: &Options) -> Result<(), Refusal> {
        let own = self.sap_mut(sap)?;
        check(options)?;
        own.options.clone_from(options);
        // There may be room now.
        self.list(sap);
        Ok(())
    }

    fn close(&mut self, sap: u8) -> Result<(), Refusal> {
        self.sap(sap)?;
        for slot in self.messages_of(sap) {
            self.withdraw(slot, false);
            self.release(slot);
        }
        self.drop_arrivals(sap);
        self.saps[usize::from(sap >> 1)] = None;
        self.open.retain(|other| *other != sap);
        self.news.retain(|other| *other != sap);
        Ok(())
    }

    fn reset(&mut self, now: Instant, sap: u8, sending: bool) -> Result<(), Refusal> {
        self.sap(sap)?;
        if sending {
            for slot in self.messages_of(sap) {
                self.end(now, slot, Outcome::Reset);
            }
        } else {
            self.drop_arrivals(sap);
        }
        Ok(())
    }

    /// Messages of a SAP that have not come to their end, the oldest first.
    fn messages_of(&self, sap: u8) -> Vec<u32> {
        let of = |slot: &u32| self.messages[*slot].sap == sap && self.messages[*slot].place != Place::Free;
        let mut slots: Vec<u32> = (0..self.messages.len() as u32).filter(of).collect();
        slots.sort_by_key(|slot| std::cmp::Reverse(self.ticket.wrapping_sub(self.messages[*slot].ticket.0)));
        slots
    }

    fn drop_arrivals(&mut self, number: u8) {
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        while let Some(slot) = sap.inbox.pop_highest() {
            self.arrivals.release(slot);
        }
        sap.held = 0;
    }

    /// [`Command::Send`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Instant,
        number: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<Ticket, Refusal> {
        let (kind, priority, crc) = self.admit(number, to, bytes, priority)?;
        let slot = self.keep(now, number, (kind, priority, crc), to, bytes);
        if kind == Kind::Ui || self.join(slot) {
            self.ready(slot, false);
        }
        Ok(self.messages[slot].ticket)
    }

    /// Whether a SAP may send this now: as what, with which priority, and whether with a checksum.
    #[inline]
    fn admit(
        &mut self,
        number: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Kind, u8, bool), Refusal> {
        let sap = self.sap_mut(number)?;
        let priority = priority.unwrap_or(sap.options.priority);
        if priority > HIGHEST {
            return Err(Refusal::Options);
        }
        let alone = to.station != ALL && to.sap & 1 == 0;
        if to.station == 0 || to.sap == NULL_SAP || sap.options.acknowledged && !alone {
            return Err(Refusal::Destination);
        }
        let crc = sap.options.crc;
        if bytes.len() + if crc { CRC } else { 0 } > MAX_INFORMATION {
            return Err(Refusal::TooLarge);
        }
        if !sap.has_place() {
            return Err(Refusal::Full);
        }
        Ok((if sap.options.acknowledged { Kind::Ac(false) } else { Kind::Ui }, priority, crc))
    }

    /// Keeps a message that was [admitted](Station::admit) as this, until its end is told.
    #[inline(always)]
    fn keep(
        &mut self,
        now: Instant,
        number: u8,
        (kind, priority, crc): (Kind, u8, bool),
        to: Address,
        bytes: &[u8],
    ) -> u32 {
        let slot = self.place(now, number, kind, to, priority);
        let message = &mut self.messages[slot];
        message.bytes.extend_from_slice(bytes);
        if crc {
            message.bytes.extend_from_slice(&crc_of(bytes).to_be_bytes());
        }
        let until = message.until;
        if until < Instant::MAX {
            self.note(slot, until);
        }
        slot
    }

    fn ask(&mut self, now: Instant, number: u8, to: Address, test: Option<&[u8]>) -> Result<(), Refusal> {
        let sap = self.sap_mut(number)?;
        if to.station == 0 {
            return Err(Refusal::Destination);
        }
        if test.is_some_and(|bytes| bytes.len() > MAX_INFORMATION) {
            return Err(Refusal::TooLarge);
        }
        if !sap.has_place() {
            return Err(Refusal::Full);
        }
        let kind = match test {
            Some(bytes) => {
                sap.tests = Some(to);
                sap.test.clear();
                sap.test.extend_from_slice(bytes);
                Kind::Test
            }
            None => {
                sap.identifies = Some(to);
                Kind::Xid
            }
        };
        let priority = sap.options.priority;
        let slot = self.place(now, number, kind, to, priority);
        self.messages[slot].bytes.extend_from_slice(test.unwrap_or(&IDENTITY));
        self.ready(slot, false);
        Ok(())
    }

    /// A slot for a message of a SAP that has a place for it.
    #[inline(always)]
    fn place(&mut self, now: Instant, number: u8, kind: Kind, to: Address, priority: u8) -> u32 {
        let ticket = self.next_ticket();
        let slot = self.messages.take();
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return slot };
        sap.places += 1;
        let Options { tries, patience, send_limit, .. } = sap.options;
        let limited = !send_limit.is_zero() && matches!(kind, Kind::Ui | Kind::Ac(_));
        let limit = if limited { now + send_limit } else { Instant::MAX };
        let message = &mut self.messages[slot];
        message.bytes.clear();
        *message = Message {
            kind,
            sap: number,
            to,
            priority,
            ticket,
            tries,
            patience: patience.max(Span::from_ps(1)),
            since: now,
            limit,
            until: limit,
            bytes: std::mem::take(&mut message.bytes),
            ..Message::default()
        };
        slot
    }

    #[inline]
    fn next_ticket(&mut self) -> Ticket {
        self.ticket = self.ticket.wrapping_add(1).max(1);
        Ticket(self.ticket)
    }

    /// [`Command::Take`].
    #[inline]
    pub(crate) fn take(&mut self, number: u8, into: &mut Vec<u8>) -> Result<Option<Received>, Refusal> {
        let sap = self.sap_mut(number)?;
        let Some(slot) = sap.inbox.pop_highest() else { return Ok(None) };
        sap.held -= 1;
        let Arrival { received, bytes } = &self.arrivals[slot];
        into.clear();
        into.extend_from_slice(bytes);
        let received = *received;
        self.arrivals.release(slot);
        Ok(Some(received))
    }
}

// Messages on their way out.
impl Station {
    /// A message may leave; `first` before all others of its SAP and priority.
    #[inline]
    fn ready(&mut self, slot: u32, first: bool) {
        let message = &mut self.messages[slot];
        message.place = Place::Ready;
        let (number, level) = (message.sap, message.priority);
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        if !sap.outbox.has(level) {
            self.turns.push(level, number);
        }
        match first {
            true => sap.outbox.push_first(level, slot),
            false => sap.outbox.push(level, slot),
        }
    }

    /// Looks at a message at a moment, and not before.
    #[inline]
    fn note(&mut self, slot: u32, at: Instant) {
        let message = &mut self.messages[slot];
        if message.noted == at {
            return;
        }
        message.noted = at;
        if at < Instant::MAX {
            self.moments.push(at, slot, &self.messages);
        }
    }

    /// Takes a message out of its SAP's outbox.
    fn unready(&mut self, slot: u32) {
        let Message { sap: number, priority, .. } = self.messages[slot];
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        sap.outbox.remove(priority, &slot);
        if !sap.outbox.has(priority) {
            self.turns.remove(priority, &number);
        }
    }

    /// Takes a message out of wherever it is.
    #[inline(always)]
    fn withdraw(&mut self, slot: u32, done: bool) {
        if self.messages[slot].place == Place::Ready {
            self.unready(slot);
        }
        if matches!(self.messages[slot].kind, Kind::Ac(_)) {
            self.part(slot, done);
        }
    }

    #[inline]
    fn release(&mut self, slot: u32) {
        let message = &mut self.messages[slot];
        (message.place, message.noted) = (Place::Free, Instant::MAX);
        #[cfg(any(feature = "sockets", test))]
        self.expected.forget_answer();
        self.messages.release(slot);
    }

    /// A message comes to its end, and that is told.
    #[inline]
    fn end(&mut self, now: Instant, slot: u32, outcome: Outcome) {
        if let Some(event) = self.finish(now, slot, outcome) {
            self.tell(event);
        }
    }

    /// A message comes to its end; what there is to tell of that. Of questions nothing is told.
    #[inline(always)]
    fn finish(&mut self, now: Instant, slot: u32, outcome: Outcome) -> Option<Event> {
        self.withdraw(slot, outcome == Outcome::Done);
        let Message { kind, sap: number, ticket, tried: tries, priority, since, .. } = self.messages[slot];
        self.release(slot);
        let sap = self.saps[usize::from(number >> 1)].as_deref_mut()?;
        let is_message = matches!(kind, Kind::Ui | Kind::Ac(_));
        if !is_message {
            sap.places -= 1;
            self.list(number);
        }
        match outcome {
            Outcome::Done => self.statistics.done += u64::from(is_message),
            Outcome::Unanswered => self.statistics.unanswered += 1,
            Outcome::Refused(_) => self.statistics.refused += 1,
            Outcome::Late => self.statistics.levels[usize::from(priority)].late += 1,
            // Nothing ends so here: see `unsent`.
            Outcome::Reset | Outcome::Failed => {}
        }
        is_message.then(|| Event::Sent { sap: number, ticket, outcome, tries, took: now.since(since) })
    }

    /// [`Command::Unsent`]: datagrams that left last have not. What is told of them, if it is told, is the last that their
    /// SAP has to tell.
    fn unsent(&mut self, frames: usize) {
        let (number, datagrams) = std::mem::take(&mut self.last);
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        let failed = frames.min(datagrams);
        self.statistics.done -= failed as u64;
        for event in sap.news.iter_mut().rev().take(failed) {
            if let Event::Sent { outcome, .. } = event {
                *outcome = Outcome::Failed;
            }
        }
    }
}

// What it tells.
impl Station {
    /// Keeps something until it is told: the end of a message, or that a SAP can be read.
    #[inline]
    fn tell(&mut self, event: Event) {
        let (Event::Sent { sap: number, .. } | Event::Readable { sap: number }) = event else { return };
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        match event {
            Event::Readable { .. } => sap.readable = true,
            event => sap.news.push_back(event),
        }
        self.list(number);
    }

    /// A SAP may have something to tell.
    #[inline]
    fn list(&mut self, number: u8) {
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        if !std::mem::replace(&mut sap.listed, true) {
            self.news.push_back(number);
        }
    }

    #[inline]
    pub(crate) fn event(&mut self) -> Option<Event> {
        while let Some(number) = self.news.pop_front() {
            let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { continue };
            let event = sap.event();
            sap.listed = sap.has_news();
            if sap.listed {
                // Others get their turn.
                self.news.push_back(number);
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// When something is to be done.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        self.moments.first(&self.messages).map(|(at, _)| at)
    }

    fn wake(&mut self, now: Instant) {
        loop {
            match self.moments.first(&self.messages) {
                Some((at, slot)) if at <= now => {
                    self.messages[slot].noted = Instant::MAX;
                    self.expire(now, slot);
                }
                _ => return,
            }
        }
    }
}

impl Endpoint for Station {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        match input {
            Input::Frame { port, peer, bytes, segment: None } => {
                self.take_frame(now, port, peer, bytes);
                Ok(())
            }
            Input::Frame { port, peer, bytes, segment } => {
                for frame in Segment::frames(segment, bytes) {
                    self.take_frame(now, port, peer, frame);
                }
                Ok(())
            }
            Input::Wake => {
                self.wake(now);
                Ok(())
            }
            Input::Command(command) => match command {
                Command::Send { sap, to, bytes, priority, ticket } => {
                    *ticket = self.send(now, sap, to, bytes, priority)?;
                    Ok(())
                }
                Command::Take { sap, into, taken } => {
                    *taken = self.take(sap, into)?;
                    Ok(())
                }
                Command::Open { sap, options } => self.open(sap, options),
                Command::Configure { sap, options } => self.configure(sap, options),
                Command::Close { sap } => self.close(sap),
                Command::Test { sap, to, bytes } => self.ask(now, sap, to, Some(bytes)),
                Command::Identify { sap, to } => self.ask(now, sap, to, None),
                Command::Reset { sap, sending } => self.reset(now, sap, sending),
                Command::Unsent { frames } => {
                    self.unsent(frames);
                    Ok(())
                }
            },
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if let Some(event) = self.event() {
            return Output::Event(event);
        }
        let port = self.config.port;
        if writable.has(port)
            && let Some(transmit) = self.transmit(now, buffer)
        {
            return Output::Transmit(transmit);
        }
        let waits = self.turns.some() | self.answers.some() != 0;
        let reason = if waits { Reason::Port(port) } else { Reason::Input };
        Output::Idle(Idle { deadline: self.deadline(), reason })
    }
}

/// Whether options make sense.
fn check(options: &Options) -> Result<(), Refusal> {
    let groups = options.groups.iter().all(|group| group & 1 == 1 && *group != GLOBAL_SAP);
    match options.priority <= HIGHEST && options.tries > 0 && options.queue > 0 && groups {
        true => Ok(()),
        false => Err(Refusal::Options),
    }
}

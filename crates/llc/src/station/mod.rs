//! A station: service access points, their queues, and the responses that the standard requires.
//!
//! | module | contents |
//! | --- | --- |
//! | `queue` | queues of eight levels, slots, moments, memory by a key |
//! | `sap` | a service access point |
//! | `acknowledged` | type 3: sequences, tries, acknowledgements |
//! | `answers` | XID, TEST, and what waits to be answered |
//! | `line` | which frame is next, and what comes of one that arrives |
//! | `effect` | what comes of a frame, and the checksum of messages |
//! | `fast_path` | the short way out of a message that nothing waits before |

mod acknowledged;
mod answers;
mod effect;
#[cfg(any(feature = "sockets", test))]
mod fast_path;
mod line;
mod queue;
mod sap;

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, MAX_SEGMENTS, Output, Port, Reason, Segment, Writable};
use trunkline_units::{Instant, Span};

use crate::api::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::options::Options;
use crate::statistics::Statistics;
use crate::wire::{
    ALL, Address, CRC, CommandStatus, GLOBAL_SAP, IDENTITY, Kind, MAX_INFORMATION, MAX_PRIORITY, NULL_SAP,
};
use acknowledged::Sequences;
use answers::Answer;
use effect::crc_of;
#[cfg(feature = "sockets")]
pub(crate) use fast_path::{FastPathOutput, FastPathResult, SendResult};
use queue::{Pool, PriorityQueues, TimerQueue};
use sap::{Arrival, Sap};

/// Configuration of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The endpoint port.
    pub port: Port,
    /// Station number, 1 to 254.
    pub station: u8,
    /// Maximum number of open SAPs, up to 127.
    pub saps: usize,
    /// Maximum frames of one SAP and priority to one station in a batch, up to [`MAX_SEGMENTS`]; 1: no batches. A
    /// higher priority waits for the whole batch.
    pub batch: usize,
    /// Lifetime of V(RI), a peer's last sequence number (IEEE 802.2 clause 8). A message is not retried once half of
    /// this has passed since its first transmission, so no message is accepted twice while frames live shorter than
    /// that. The same at all stations.
    pub lifetime: Span,
    /// Maximum number of remembered sequences of acknowledged messages (local SAP, remote SAP, priority) per
    /// direction. For sending, an idle sequence is replaced; the table exceeds the limit, and remains as large, only if messages
    /// are queued in more. For receiving, further senders are refused until a sequence has been idle for a lifetime.
    pub sequences: usize,
    /// Whether it accepts frames from its own number, on a path that loops them back.
    pub hears_itself: bool,
}

impl Config {
    /// Default configuration: all SAPs, no batches, 1024 sequences for 20 s.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    /// The slot is free.
    Free,
    /// Waiting for another message of its sequence.
    Behind,
    /// In its SAP's send queue.
    Ready,
    /// Sent and unanswered.
    Away,
}

/// A message to send, or a TEST or XID.
#[derive(Debug)]
struct Message {
    kind: Kind,
    sap: u8,
    to: Address,
    priority: u8,
    ticket: Ticket,
    allocate: MessageState,
    /// Transmissions of it or of its resynchronization.
    tried: u16,
    tries: u16,
    patience: Span,
    since: Instant,
    /// Time limit.
    limit: Instant,
    /// When it is given up, for either reason.
    until: Instant,
    /// Scheduled deadline.
    noted: Instant,
    /// Status of its last refusal.
    refused: Option<CommandStatus>,
    link: u32,
    /// Information field.
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
            allocate: MessageState::Free,
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

/// A station.
///
/// **Order.** The highest priority is sent first, so a message waits for at most one frame (or batch) of a lower
/// priority, the one in transmission. Within a priority, responses and messages alternate, SAPs take turns, and a
/// SAP's messages are sent in order, with one outstanding message per acknowledged sequence.
///
/// **Bounds.** A SAP's options limit its unfinished messages, from the send call until their end is reported, and its
/// received messages. A full send queue refuses with [`Refusal::Full`]; a full receive queue drops and counts an
/// unacknowledged message, and answers an acknowledged one with [`CommandStatus::Unavailable`], so that it is sent
/// again. At most 128 XID and TEST responses, 256 acknowledgements, and 64 unread responses per SAP are queued.
#[derive(Debug)]
pub struct Station {
    config: Config,
    /// Indexed by half the SAP number.
    saps: [Option<Box<Sap>>; 128],
    /// Open SAPs, in order.
    open: Vec<u8>,
    messages: Pool<Message>,
    arrivals: Pool<Arrival>,
    /// SAPs with queued messages.
    turns: PriorityQueues<u8>,
    answers: PriorityQueues<Answer>,
    echoes: usize,
    acks: usize,
    /// Reusable buffers of sent responses.
    spare: Vec<Vec<u8>>,
    /// Bit set of the priorities at which a response was sent last.
    answered: u8,
    moments: TimerQueue,
    sequences: Sequences,
    /// SAPs with pending events.
    news: VecDeque<u8>,
    ticket: u32,
    #[cfg(any(feature = "sockets", test))]
    expected: fast_path::Expected,
    /// The last message that was delivered without being queued.
    handed: Received,
    /// SAP and number of the datagrams sent last.
    last: (u8, usize),
    statistics: Statistics,
}

impl Station {
    /// Creates a station without SAPs.
    ///
    /// # Panics
    /// If the station number is not 1 to 254.
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
            turns: PriorityQueues::default(),
            answers: PriorityQueues::default(),
            echoes: 0,
            acks: 0,
            spare: Vec::new(),
            answered: 0,
            moments: TimerQueue::default(),
            sequences: Sequences::default(),
            news: VecDeque::new(),
            ticket: 0,
            #[cfg(any(feature = "sockets", test))]
            expected: fast_path::Expected::default(),
            handed: Arrival::default().received,
            last: (0, 0),
            statistics: Statistics::default(),
        }
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns the open SAPs, in order.
    pub fn open_saps(&self) -> &[u8] {
        &self.open
    }

    /// Returns the number of a SAP's messages that are queued, unanswered, or ended with an unread event.
    pub fn waiting(&self, sap: u8) -> usize {
        self.sap(sap).map_or(0, |sap| sap.places)
    }

    /// Returns the number of readable messages of a SAP.
    pub fn readable(&self, sap: u8) -> usize {
        self.sap(sap).map_or(0, |sap| sap.held)
    }

    /// Returns the numbers of sending and receiving sequences.
    pub fn sequences(&self) -> (usize, usize) {
        self.sequences.remembered()
    }

    #[inline]
    fn sap(&self, number: u8) -> Result<&Sap, Refusal> {
        self.saps[index(number)?].as_deref().ok_or(Refusal::Closed)
    }

    #[inline]
    fn sap_mut(&mut self, number: u8) -> Result<&mut Sap, Refusal> {
        self.saps[index(number)?].as_deref_mut().ok_or(Refusal::Closed)
    }
}

// Commands.
impl Station {
    fn open(&mut self, sap: u8, options: &Options) -> Result<(), Refusal> {
        let at = index(sap)?;
        if self.saps[at].is_some() {
            return Err(Refusal::Duplicate);
        }
        check(options)?;
        if self.open.len() >= self.config.saps {
            return Err(Refusal::TooMany);
        }
        self.saps[at] = Some(Box::new(Sap::new(sap, options)));
        self.open.insert(self.open.partition_point(|other| *other < sap), sap);
        Ok(())
    }

    fn configure(&mut self, sap: u8, options: &Options) -> Result<(), Refusal> {
        let own = self.sap_mut(sap)?;
        check(options)?;
        own.options.clone_from(options);
        // There may be space now.
        self.schedule_event_poll(sap);
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

    /// Returns the unfinished messages of a SAP, oldest first.
    fn messages_of(&self, sap: u8) -> Vec<u32> {
        let of = |slot: &u32| {
            self.messages[*slot].sap == sap && self.messages[*slot].allocate != MessageState::Free
        };
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
        sap.readable = false;
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
        let (kind, priority, crc) = self.check_send(number, to, bytes, priority)?;
        let slot = self.store_message(now, number, (kind, priority, crc), to, bytes);
        if kind == Kind::Ui || self.enter_sequence(slot) {
            self.enqueue(slot, false);
        }
        Ok(self.messages[slot].ticket)
    }

    /// Checks whether a SAP may send this now; returns its kind, priority, and whether it has a checksum.
    #[inline]
    fn check_send(
        &mut self,
        number: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Kind, u8, bool), Refusal> {
        let sap = self.sap_mut(number)?;
        let priority = priority.unwrap_or(sap.options.priority);
        if priority > MAX_PRIORITY {
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
        if !sap.has_send_space() {
            return Err(Refusal::Full);
        }
        Ok((if sap.options.acknowledged { Kind::Ac(false) } else { Kind::Ui }, priority, crc))
    }

    /// Stores a [checked](Station::check_send) message until its end is reported.
    #[inline(always)]
    fn store_message(
        &mut self,
        now: Instant,
        number: u8,
        (kind, priority, crc): (Kind, u8, bool),
        to: Address,
        bytes: &[u8],
    ) -> u32 {
        let slot = self.allocate(now, number, kind, to, priority);
        let message = &mut self.messages[slot];
        message.bytes.extend_from_slice(bytes);
        if crc {
            message.bytes.extend_from_slice(&crc_of(bytes).to_be_bytes());
        }
        let until = message.until;
        if until < Instant::MAX {
            self.schedule(slot, until);
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
        if !sap.has_send_space() {
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
        let slot = self.allocate(now, number, kind, to, priority);
        self.messages[slot].bytes.extend_from_slice(test.unwrap_or(&IDENTITY));
        self.enqueue(slot, false);
        Ok(())
    }

    /// Allocates a slot for a message of a SAP.
    #[inline(always)]
    fn allocate(&mut self, now: Instant, number: u8, kind: Kind, to: Address, priority: u8) -> u32 {
        let ticket = self.next_ticket();
        let slot = self.messages.take();
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return slot };
        sap.places += 1;
        let Options { tries, response_timeout: patience, send_limit, .. } = sap.options;
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
        // Otherwise the next message would be reported twice: directly by the fast path, and by the stale flag.
        sap.readable &= sap.held > 0;
        let Arrival { received, bytes } = &self.arrivals[slot];
        into.clear();
        into.extend_from_slice(bytes);
        let received = *received;
        self.arrivals.release(slot);
        Ok(Some(received))
    }
}

// Sending.
impl Station {
    /// Queues a message for transmission; with `first` before all others of its SAP and priority.
    #[inline]
    fn enqueue(&mut self, slot: u32, first: bool) {
        let message = &mut self.messages[slot];
        message.allocate = MessageState::Ready;
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

    /// Schedules the deadline of a message.
    #[inline]
    fn schedule(&mut self, slot: u32, at: Instant) {
        let message = &mut self.messages[slot];
        if message.noted == at {
            return;
        }
        message.noted = at;
        if at < Instant::MAX {
            self.moments.push(at, slot, &self.messages);
        }
    }

    /// Removes a message from its SAP's send queue.
    fn dequeue(&mut self, slot: u32) {
        let Message { sap: number, priority, .. } = self.messages[slot];
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        sap.outbox.remove(priority, &slot);
        if !sap.outbox.has(priority) {
            self.turns.remove(priority, &number);
        }
    }

    /// Removes a message from all queues.
    #[inline(always)]
    fn withdraw(&mut self, slot: u32, done: bool) {
        if self.messages[slot].allocate == MessageState::Ready {
            self.dequeue(slot);
        }
        if matches!(self.messages[slot].kind, Kind::Ac(_)) {
            self.leave_sequence(slot, done);
        }
    }

    #[inline]
    fn release(&mut self, slot: u32) {
        let message = &mut self.messages[slot];
        (message.allocate, message.noted) = (MessageState::Free, Instant::MAX);
        #[cfg(any(feature = "sockets", test))]
        self.expected.forget_answer();
        self.messages.release(slot);
    }

    /// Ends a message and queues its event.
    #[inline]
    fn end(&mut self, now: Instant, slot: u32, outcome: Outcome) {
        if let Some(event) = self.finish(now, slot, outcome) {
            self.push_event(event);
        }
    }

    /// Ends a message and returns its event; TEST and XID have none.
    #[inline(always)]
    fn finish(&mut self, now: Instant, slot: u32, outcome: Outcome) -> Option<Event> {
        self.withdraw(slot, outcome == Outcome::Done);
        let Message { kind, sap: number, ticket, tried: tries, priority, since, .. } = self.messages[slot];
        self.release(slot);
        let sap = self.saps[usize::from(number >> 1)].as_deref_mut()?;
        let is_message = matches!(kind, Kind::Ui | Kind::Ac(_));
        if !is_message {
            sap.places -= 1;
            self.schedule_event_poll(number);
        }
        match outcome {
            Outcome::Done => self.statistics.done += u64::from(is_message),
            Outcome::Unanswered => self.statistics.unanswered += 1,
            Outcome::Refused(_) => self.statistics.refused += 1,
            Outcome::Late => self.statistics.levels[usize::from(priority)].deadline_misses += 1,
            // Handled by `unsent`.
            Outcome::Reset | Outcome::Failed => {}
        }
        is_message.then(|| Event::Sent { sap: number, ticket, outcome, tries, took: now.since(since) })
    }

    /// [`Command::Unsent`]: the last datagrams were not sent. If their end is already queued, it is the last event of
    /// their SAP.
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

// Events.
impl Station {
    /// Queues an event: the end of a message, or a readable SAP.
    #[inline]
    fn push_event(&mut self, event: Event) {
        let (Event::Sent { sap: number, .. } | Event::Readable { sap: number }) = event else { return };
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return };
        match event {
            Event::Readable { .. } => sap.readable = true,
            event => sap.news.push_back(event),
        }
        self.schedule_event_poll(number);
    }

    /// Marks a SAP as having pending events.
    #[inline]
    fn schedule_event_poll(&mut self, number: u8) {
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
            sap.listed = sap.has_events();
            if sap.listed {
                // The other SAPs take their turn.
                self.news.push_back(number);
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Returns the next deadline.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        self.moments.first(&self.messages).map(|(at, _)| at)
    }

    fn wake(&mut self, now: Instant) {
        while let Some((at, slot)) = self.moments.first(&self.messages)
            && at <= now
        {
            self.messages[slot].noted = Instant::MAX;
            self.expire(now, slot);
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
            Input::Frame { port, peer, bytes, segment: None } => self.take_frame(now, port, peer, bytes),
            Input::Frame { port, peer, bytes, segment } => {
                for frame in Segment::frames(segment, bytes) {
                    self.take_frame(now, port, peer, frame);
                }
            }
            Input::Wake => self.wake(now),
            Input::Command(command) => match command {
                Command::Send { sap, to, bytes, priority, ticket } => {
                    *ticket = self.send(now, sap, to, bytes, priority)?;
                }
                Command::Take { sap, into, taken } => *taken = self.take(sap, into)?,
                Command::Open { sap, options } => self.open(sap, options)?,
                Command::Configure { sap, options } => self.configure(sap, options)?,
                Command::Close { sap } => self.close(sap)?,
                Command::Test { sap, to, bytes } => self.ask(now, sap, to, Some(bytes))?,
                Command::Identify { sap, to } => self.ask(now, sap, to, None)?,
                Command::Reset { sap, sending } => self.reset(now, sap, sending)?,
                Command::Unsent { frames } => self.unsent(frames),
            },
        }
        Ok(())
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
        let waits = self.turns.levels() | self.answers.levels() != 0;
        let reason = if waits { Reason::Port(port) } else { Reason::Input };
        Output::Idle(Idle { deadline: self.deadline(), reason })
    }
}

/// Returns the index of a SAP, half its number.
#[inline]
fn index(number: u8) -> Result<usize, Refusal> {
    (number & 1 == 0 && number != NULL_SAP).then_some(usize::from(number >> 1)).ok_or(Refusal::Invalid)
}

/// Validates options.
fn check(options: &Options) -> Result<(), Refusal> {
    let groups = options.groups.iter().all(|group| group & 1 == 1 && *group != GLOBAL_SAP);
    let fits = options.priority <= MAX_PRIORITY && options.tries > 0 && options.queue > 0 && groups;
    fits.then_some(()).ok_or(Refusal::Options)
}

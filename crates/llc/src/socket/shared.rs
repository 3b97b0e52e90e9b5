//! The station in a [`SharedLoop`]: its engine, and the events that callers wait for.
//!
//! In a ring the helper thread receives whenever no caller does, since a token must not wait; otherwise only after
//! [`UNATTENDED`], so that two threads do not compete for a frame.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use trunkline_endpoint::{MAX_BATCH, Port, Segment};
use trunkline_io::shared_loop::{Call, Policy, Service, TimedOut};
use trunkline_io::{Clock, SharedLoop};
use trunkline_units::{Instant, Span};

use super::engine::{Engine, EngineOutput, WaitTarget};
use super::line::{BUFFER_SIZE, HEADROOM, Line, ReceivedFrame};
use super::link::{FrameBuffers, LineLink};
use super::{Error, Network, Sent, Settings};
use crate::api::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::station::{Config, FastPathOutput, SendResult, Station};
use crate::token::{self, Ring};
use crate::wire::{Address, HEADER};

/// Time without a receiving caller after which the helper receives.
const UNATTENDED: Span = Span::from_ms(1);
/// Interval at which the helper checks for a receiving caller; each check costs the callers processor time.
const CHECK_INTERVAL: Span = Span::from_ms(4);
/// Maximum unread ring events; the oldest are dropped.
const MAX_RING_EVENTS: usize = 32;
/// Maximum unread TEST and XID responses of a SAP; the oldest are dropped.
const MAX_ANSWERS: usize = 64;
/// Maximum unread events, beyond which no messages are accepted and TEST and XID responses are dropped.
const MAX_EVENTS: usize = 8192;
/// How long an unused station waits for the token to leave its ring.
const LEAVE_TIMEOUT: Span = Span::from_s(1);

/// A station shared by threads.
pub(super) type Shared = SharedLoop<StationService>;

/// Unread events of a SAP.
#[derive(Debug, Default)]
pub(super) struct SapEvents {
    /// Messages whose outcome will be read.
    pub wanted: VecDeque<Ticket>,
    pub ended: VecDeque<Sent>,
    /// Messages whose outcome one particular call waits for.
    pub awaited: Vec<(Ticket, Option<Sent>)>,
    pub answers: VecDeque<Event>,
}

/// A directly delivered result.
#[derive(Debug, Default)]
enum Delivery {
    #[default]
    Nothing,
    /// The message in the buffer of deliveries; [`Station::last_delivered`] returns the rest.
    Message,
    End(Sent),
}

/// The state behind the lock.
pub(super) struct StationService {
    pub number: u8,
    pub engine: Engine,
    /// Indexed by half the SAP number.
    pub saps: [Option<Box<SapEvents>>; 128],
    /// The common event queue, if all events go there.
    pub event_queue: VecDeque<Event>,
    has_event_queue: bool,
    /// Whether the next wait for an event ends immediately.
    pub interrupted: bool,
    pub ring: VecDeque<token::Event<()>>,
    /// The SAP whose next message the receiving thread waits for, or the message whose outcome it waits for; and its result.
    awaited_sap: Option<u8>,
    awaited_ticket: Option<Ticket>,
    delivery: Delivery,
    delivered: Vec<u8>,
    /// Frames that the line or the system refused.
    pub unsent: u64,
    /// Send buffer with headroom.
    output: Box<[u8]>,
    scratch: Vec<u8>,
    /// Frames to this station.
    looped_back: VecDeque<Vec<u8>>,
    /// The receive buffers, unless a thread is receiving.
    buffers: Option<Box<FrameBuffers>>,
    /// Whether the station may have output to poll.
    may_have_output: bool,
    has_changed: bool,
    deadline: Instant,
    failed: Option<io::Error>,
    /// No handle is left, and the station leaves by then.
    leaves_by: Option<Instant>,
}

/// Opens a station with one handle, and returns its helper thread.
pub(super) fn open(
    network: &Network,
    number: u8,
    settings: &Settings,
) -> Result<(Arc<Shared>, JoinHandle<()>), Error> {
    let line = Line::open(network, number, settings.ring.is_some(), settings.buffer, settings.ahead)?;
    let clock = Clock::start();
    let batch = if settings.ring.is_some() { 1 } else { settings.batch };
    let config = Config { hears_itself: true, batch, ..Config::new(Port(0), number) };
    let station = Station::new(config);
    let mut engine = match &settings.ring {
        Some(options) => Engine::Ring(Box::new(Ring::new(station, number, options.clone()))),
        None => Engine::Alone(Box::new(station)),
    };
    engine.set_membership(clock.now(), true);
    let service = StationService {
        number,
        engine,
        saps: [const { None }; 128],
        event_queue: VecDeque::new(),
        has_event_queue: settings.events,
        interrupted: false,
        ring: VecDeque::new(),
        awaited_sap: None,
        awaited_ticket: None,
        delivery: Delivery::Nothing,
        delivered: Vec::with_capacity(BUFFER_SIZE),
        unsent: 0,
        output: vec![0; HEADROOM + MAX_BATCH].into(),
        scratch: Vec::new(),
        looped_back: VecDeque::new(),
        buffers: Some(FrameBuffers::new()),
        may_have_output: true,
        has_changed: false,
        deadline: Instant::MAX,
        failed: None,
        leaves_by: None,
    };
    let is_immediate = settings.ring.is_some() || settings.events;
    let delay = |span| if is_immediate { Span::ZERO } else { span };
    let policy = Policy {
        callers_receive: !settings.events,
        unattended: delay(UNATTENDED),
        check_interval: (delay(CHECK_INTERVAL), delay(CHECK_INTERVAL)),
        max_slack: Span::ZERO,
    };
    Ok(SharedLoop::start("llc", LineLink::new(line, clock)?, clock, service, policy)?)
}

impl StationService {
    /// Records that a command was executed: the station may have output, and other threads may now wait in vain.
    #[inline]
    pub fn mark_changed(&mut self) {
        (self.may_have_output, self.has_changed) = (true, true);
    }

    /// Executes a command.
    pub fn command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Error> {
        self.mark_changed();
        Ok(self.engine.command(now, command)?)
    }

    /// Marks that the station may have output.
    #[inline]
    pub fn mark_output(&mut self) {
        self.may_have_output = true;
    }

    /// Returns whether a calling thread that has to wait becomes the receiving one at once.
    #[inline]
    pub fn will_receive(&self, call: &Call<WaitTarget>) -> bool {
        call.can_lead && !self.may_have_output && self.deadline > call.now
    }

    /// Closes the station: no call follows. It leaves its ring first, which takes a turn of the token.
    pub fn close(&mut self, now: Instant) {
        self.engine.set_membership(now, false);
        self.may_have_output = true;
        let is_in_ring = matches!(&self.engine, Engine::Ring(ring) if !ring.members().is_empty());
        self.leaves_by = Some(if is_in_ring { now + LEAVE_TIMEOUT } else { now });
    }

    /// Takes the message delivered to the waiting thread, if any; replaces the content of `into`.
    #[inline]
    pub fn take_delivered_message(&mut self, into: &mut Vec<u8>) -> Option<Received> {
        let Delivery::Message = self.delivery else { return None };
        self.delivery = Delivery::Nothing;
        std::mem::swap(into, &mut self.delivered);
        Some(self.engine.station().last_delivered())
    }

    /// Takes the outcome delivered to the waiting thread, if any.
    #[inline]
    pub fn take_delivered_end(&mut self, ticket: Ticket) -> Option<Sent> {
        match self.delivery {
            Delivery::End(sent) if sent.ticket == ticket => {
                self.delivery = Delivery::Nothing;
                Some(sent)
            }
            _ => None,
        }
    }

    /// Returns whether the common event queue is full.
    #[inline]
    pub fn event_queue_is_full(&self) -> bool {
        self.event_queue.len() >= MAX_EVENTS
    }

    /// Sends a message, by the fast path if possible; its outcome may then be known at once and is not queued.
    #[inline]
    pub fn send(
        &mut self,
        link: &LineLink,
        now: Instant,
        sap: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Ticket, Option<Outcome>), Refusal> {
        // Nothing is due before it, it is not looped back, and its outcome need not enter the common event queue.
        let is_fast = !self.may_have_output
            && now < self.deadline
            && to.station != self.number
            && !self.has_event_queue;
        let StationService { engine, output, .. } = self;
        let buffer = is_fast.then_some(&mut output[HEADROOM..]);
        let (ticket, result) = engine.send(now, sap, to, bytes, priority, buffer)?;
        let (SendResult::Away(length) | SendResult::Done(length)) = result else {
            self.may_have_output = true;
            return Ok((ticket, None));
        };
        let is_sent = self.send_frame(link, to.station, length);
        if let SendResult::Away(_) = result {
            self.deadline = self.engine.deadline();
            return Ok((ticket, None));
        }
        if !is_sent {
            self.report_unsent(now, 1);
        }
        Ok((ticket, Some(if is_sent { Outcome::Done } else { Outcome::Failed })))
    }

    /// Sends the prepared frames and returns how many were refused.
    fn send_frames(&mut self, link: &LineLink, to: u8, length: usize, segment: Option<Segment>) -> usize {
        let frames = segment.map_or(1, |segment| length.div_ceil(segment.length()));
        match link.line.send(to, &mut self.output, length, segment, &mut self.scratch) {
            Ok(sent) if sent == frames => 0,
            sent => self.count_refused(frames, sent),
        }
    }

    /// Sends the prepared frame and returns whether it was accepted.
    #[inline(always)]
    fn send_frame(&mut self, link: &LineLink, to: u8, length: usize) -> bool {
        match link.line.send(to, &mut self.output, length, None, &mut self.scratch) {
            Ok(1) => true,
            sent => self.count_refused(1, sent) == 0,
        }
    }

    /// Counts refused frames and returns their number.
    #[cold]
    fn count_refused(&mut self, frames: usize, sent: io::Result<usize>) -> usize {
        let unsent = frames - sent.as_ref().map_or(0, |sent| *sent);
        self.unsent += unsent as u64;
        self.failed = sent.err().filter(is_fatal).or(self.failed.take());
        self.has_changed |= self.failed.is_some();
        unsent
    }

    /// Reports to the engine that its last frames were not sent.
    #[cold]
    fn report_unsent(&mut self, now: Instant, frames: usize) {
        // This cannot be refused.
        let _ = self.engine.command(now, Command::Unsent { frames });
    }

    /// Processes a received frame.
    #[inline]
    fn handle_frame(
        &mut self,
        now: Instant,
        link: &LineLink,
        &ReceivedFrame { station, from, to }: &ReceivedFrame,
        bytes: &[u8; BUFFER_SIZE],
        awaited_sap: Option<u8>,
    ) {
        if station == self.number {
            // Broadcasts over UDP are looped back.
            return;
        }
        let (from, to) = (usize::from(from), usize::from(to));
        let StationService { engine, output, .. } = self;
        let result = engine.take(now, station, &bytes[from..to], awaited_sap, Some(&mut output[HEADROOM..]));
        match result.what {
            FastPathOutput::Nothing => {}
            FastPathOutput::Message(octets) => {
                let from = from + 1 + HEADER;
                self.delivered.clear();
                self.delivered.extend_from_slice(&bytes[from..from + octets]);
                self.delivery = Delivery::Message;
            }
            FastPathOutput::Event(event) => self.has_changed |= self.push_event(event),
        }
        if result.answer > 0 {
            self.send_frame(link, station, result.answer);
        }
        match result.more {
            true => self.may_have_output = true,
            false => self.deadline = self.engine.deadline(),
        }
    }

    /// Stores an event; returns whether a thread may wait for it.
    #[inline(always)]
    fn push_event(&mut self, event: Event) -> bool {
        if !self.has_event_queue {
            return match event {
                Event::Sent { ticket, outcome, tries, took, .. } if self.awaited_ticket == Some(ticket) => {
                    self.delivery = Delivery::End(Sent { ticket, outcome, tries, took });
                    true
                }
                event => store_event(&mut self.saps, &event),
            };
        }
        let is_answer = matches!(event, Event::Tested { .. } | Event::Identified { .. });
        let is_known = matches!(event, Event::Readable { .. } | Event::Writable { .. })
            && self.event_queue_is_full()
            && self.event_queue.contains(&event);
        if !is_known && (!is_answer || !self.event_queue_is_full()) {
            self.event_queue.push_back(event);
        }
        true
    }

    fn push_ring_event(&mut self, now: Instant, event: token::Event<()>) {
        if self.ring.len() == MAX_RING_EVENTS {
            self.ring.pop_front();
        }
        if event == token::Event::Left {
            self.leaves_by = self.leaves_by.map(|_| now);
        }
        self.ring.push_back(event);
        self.has_changed = true;
    }
}

impl Service for StationService {
    type Link = LineLink;
    type Buffers = Box<FrameBuffers>;
    type Error = Error;
    type Target = WaitTarget;

    const LIMITS_WAITING: bool = true;

    #[inline]
    fn receive(link: &LineLink, buffers: &mut Box<FrameBuffers>, wait: Option<Span>) -> io::Result<()> {
        link.receive(buffers, wait)
    }

    fn wake(link: &LineLink, now: Instant) {
        link.wake(now);
    }

    #[inline]
    fn must_wait(error: &Error) -> bool {
        matches!(error, Error::NotYet | Error::Full)
    }

    #[inline]
    fn is_receiving(&self) -> bool {
        self.buffers.is_none()
    }

    #[inline]
    fn take_buffers(&mut self, target: Option<WaitTarget>) -> Option<Box<FrameBuffers>> {
        let buffers = self.buffers.take()?;
        (self.awaited_sap, self.awaited_ticket) = match target {
            Some(WaitTarget::Message(sap)) => (Some(sap), None),
            Some(WaitTarget::End(ticket)) => (None, Some(ticket)),
            _ => (None, None),
        };
        Some(buffers)
    }

    #[inline]
    fn handle_received(
        &mut self,
        now: Instant,
        link: &LineLink,
        buffers: Box<FrameBuffers>,
        received: io::Result<()>,
    ) -> bool {
        let has_received = buffers.has_frames() || received.is_err();
        let mut awaited_sap = self.awaited_sap.take();
        for (frame, bytes) in buffers.frames() {
            // The thread takes one message.
            self.handle_frame(now, link, frame, bytes, awaited_sap.take());
        }
        if let Err(error) = received {
            (self.failed, self.has_changed) = (Some(error), true);
        }
        self.buffers = Some(buffers);
        has_received
    }

    #[inline]
    fn transmit(&mut self, now: Instant, link: &LineLink) {
        if self.deadline <= now {
            self.engine.wake(now);
        }
        self.may_have_output = false;
        self.deadline = loop {
            match self.engine.poll(now, &mut self.output[HEADROOM..]) {
                EngineOutput::Event(event) => self.has_changed |= self.push_event(event),
                EngineOutput::Ring(event) => self.push_ring_event(now, event),
                EngineOutput::Transmit(transmit) => {
                    let (length, segment) = (transmit.length, transmit.segment);
                    match *transmit.peer.as_bytes() {
                        [to] if to == self.number => {
                            let frames = Segment::frames(segment, &self.output[HEADROOM..HEADROOM + length]);
                            self.looped_back.extend(frames.map(<[u8]>::to_vec));
                        }
                        [to] => {
                            let unsent = self.send_frames(link, to, length, segment);
                            if unsent > 0 {
                                self.report_unsent(now, unsent);
                            }
                        }
                        _ => {}
                    }
                }
                EngineOutput::Idle(deadline) => match self.looped_back.pop_front() {
                    Some(frame) => _ = self.engine.take(now, self.number, &frame, None, None),
                    None => break deadline.unwrap_or(Instant::MAX),
                },
            }
        };
    }

    #[inline]
    fn may_transmit(&mut self, now: Instant) -> bool {
        self.may_have_output || self.deadline <= now
    }

    #[inline]
    fn deadline(&self) -> Instant {
        self.deadline.min(self.leaves_by.unwrap_or(Instant::MAX))
    }

    #[inline]
    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn can_receive(&self) -> bool {
        self.failed.is_none()
    }

    #[inline]
    fn failure(&mut self) -> Option<Error> {
        self.failed.as_ref().map(|error| copy(error).into())
    }

    #[inline]
    fn is_unused(&self) -> bool {
        self.leaves_by.is_some()
    }

    fn is_over(&mut self, now: Instant) -> bool {
        self.leaves_by.is_some_and(|at| at <= now) && !self.may_have_output
    }
}

impl From<TimedOut> for Error {
    fn from(_: TimedOut) -> Error {
        Error::TimedOut
    }
}

/// Stores an event of a SAP; returns whether a thread may wait for it.
#[inline]
fn store_event(saps: &mut [Option<Box<SapEvents>>], event: &Event) -> bool {
    let sap = match *event {
        // Threads that wait for these check the station.
        Event::Readable { .. } | Event::Writable { .. } => return true,
        Event::Sent { sap, .. } | Event::Tested { sap, .. } | Event::Identified { sap, .. } => sap,
    };
    let Some(events) = &mut saps[usize::from(sap >> 1)] else { return false };
    if let &Event::Sent { ticket, outcome, tries, took, .. } = event {
        let sent = Sent { ticket, outcome, tries, took };
        if let Some((_, end)) = events.awaited.iter_mut().find(|(awaited, _)| *awaited == ticket) {
            *end = Some(sent);
        } else if let Some(at) = events.wanted.iter().position(|wanted| *wanted == ticket) {
            events.wanted.remove(at);
            events.ended.push_back(sent);
        } else {
            return false;
        }
    } else {
        if events.answers.len() == MAX_ANSWERS {
            events.answers.pop_front();
        }
        events.answers.push_back(*event);
    }
    true
}

/// Returns whether an error is fatal: the interface or the socket is gone. Other send errors concern one frame and
/// are counted.
fn is_fatal(error: &io::Error) -> bool {
    const BADF: i32 = 9;
    const NXIO: i32 = 6;
    const NODEV: i32 = 19;
    matches!(error.raw_os_error(), Some(BADF | NXIO | NODEV))
}

/// Copies an error for another caller.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

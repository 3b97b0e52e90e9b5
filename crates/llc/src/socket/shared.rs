//! Threads of a station: one leader receives for all, and a helper handles timers.
//!
//! A waiting thread receives without holding the lock, so no other thread must be woken between a frame and its
//! reader. Of several waiting threads one leads and the others follow; a leader that has its result lets another
//! lead. The helper thread handles deadlines and receives while no thread leads: at once in a ring, since a token
//! must not wait; else after [`LEADER_GRACE`] or more, so that two threads do not compete for a frame.
//!
//! The leader blocks in the receive call, from which it cannot be woken. Usually that is not needed, because its
//! result arrives over the line; frames to the station itself and cancellations by other threads are exceptions.
//! After such a case the leader also waits on a waker for some time, which costs one more system call.
//!
//! The lock is fair: otherwise a thread that sends without pause takes it again and again before a woken thread with
//! an urgent message runs.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use trunkline_endpoint::{MAX_BATCH, Port, Segment};
use trunkline_io::Clock;
use trunkline_io::datagrams::Waker;
use trunkline_units::{Instant, Span};

use super::call_time::CallTime;
use super::engine::{Engine, EngineOutput};
use super::line::{BUFFER_SIZE, HEADROOM, Line, ReceivedFrame};
use super::{Error, Network, Sent, Settings};
use crate::api::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::station::{Config, FastPathOutput, SendResult, Station};
use crate::token::{self, Ring};
use crate::wire::{Address, HEADER};

/// Time without a leader after which the helper receives.
const LEADER_GRACE: Span = Span::from_ms(1);
/// Interval at which the helper checks for a leader; each check costs the receiving threads processor time.
const CHECK_INTERVAL: Span = Span::from_ms(4);
/// Longest wait of a leader before it checks what other threads did.
const MAX_WAIT: Span = Span::from_ms(50);
/// Maximum frames received in a row before output is sent.
const MAX_RECEIVE_RUN: usize = 32;
/// Maximum unread ring events; the oldest are dropped.
const MAX_RING_EVENTS: usize = 32;
/// Maximum unread TEST and XID responses of a SAP; the oldest are dropped.
const MAX_ANSWERS: usize = 64;
/// Maximum unread events, beyond which no messages are accepted and TEST and XID responses are dropped.
const MAX_EVENTS: usize = 8192;
/// How long the leader stays wakeable after a wakeup was needed.
const WAKEABLE_TIME: Span = Span::from_s(10);
/// How long an unused station waits for the token to leave its ring.
const LEAVE_TIMEOUT: Span = Span::from_s(1);

/// A station shared by threads.
pub(super) struct Shared {
    pub number: u8,
    line: Line,
    clock: Clock,
    /// Whether there is a helper, its grace time for leaders, and its check interval.
    helped: bool,
    tick: Span,
    look: Span,
    /// Whether all events go to one queue; with a helper, threads that wait for them only follow it.
    events: bool,
    state: Mutex<State>,
    /// Wakes followers: an event occurred, or no thread leads.
    changed: Condvar,
    /// Wakes the helper earlier.
    timer: Condvar,
    bell: Waker,
    /// Wakes the leader while it is wakeable.
    nudge: Waker,
}

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

/// What a waiting thread waits for. The leader receives it directly, without queueing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitTarget {
    #[default]
    Nothing,
    /// The next message of a SAP.
    Message(u8),
    /// The outcome of the thread's own message.
    End(Ticket),
}

/// A directly delivered result.
#[derive(Debug, Default)]
pub(super) enum Delivery {
    #[default]
    Nothing,
    /// A message at this range of the buffer; [`Station::last_delivered`] returns the rest.
    Message(Range<usize>),
    End(Sent),
}

/// State guarded by the lock.
pub(super) struct State {
    pub engine: Engine,
    /// Indexed by half the SAP number.
    pub saps: [Option<Box<SapEvents>>; 128],
    /// The common event queue, if enabled.
    pub event_queue: VecDeque<Event>,
    /// Whether the next wait for an event ends immediately.
    pub interrupted: bool,
    pub ring: VecDeque<token::Event<()>>,
    /// What the thread about to wait and the leader wait for, and the leader's result.
    pub want: WaitTarget,
    leading: WaitTarget,
    got: Delivery,
    /// Frames that the line or the system refused.
    pub unsent: u64,
    /// Number of handles.
    pub handles: usize,
    /// Receive buffer, held by the leader.
    room: Option<Box<[u8; BUFFER_SIZE]>>,
    /// Send buffer with headroom.
    out: Box<[u8]>,
    scratch: Vec<u8>,
    own: VecDeque<Vec<u8>>,
    /// Whether the station may have output to poll.
    dirty: bool,
    deadline: Instant,
    failed: Option<io::Error>,
    followers: usize,
    /// When a thread last led.
    attended: Instant,
    /// When the helper wakes, and whether it receives until then.
    alarm: Instant,
    listening: bool,
    /// Until when the leader is wakeable, and whether it is now.
    wakeful: Instant,
    hears: bool,
    /// The line's current receive timeout, and whether the last wait used it up.
    limit: Span,
    lapsed: bool,
    leaving: Option<Instant>,
}

impl State {
    /// Marks that the station may have output.
    #[inline]
    pub fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// Returns whether a deadline has passed.
    #[inline]
    fn is_due(&self, now: &mut CallTime) -> bool {
        self.deadline < Instant::MAX && self.deadline <= now.get()
    }

    /// Takes the message delivered to the waiting thread, if any; replaces the content of `into`.
    #[inline]
    pub fn take_delivered_message(&mut self, into: &mut Vec<u8>) -> Option<Received> {
        let Delivery::Message(at) = &self.got else { return None };
        into.clear();
        into.extend_from_slice(self.room.as_ref()?.get(at.clone())?);
        self.got = Delivery::Nothing;
        Some(self.engine.station().last_delivered())
    }

    /// Takes the outcome delivered to the waiting thread, if any.
    #[inline]
    pub fn take_delivered_end(&mut self, ticket: Ticket) -> Option<Sent> {
        match self.got {
            Delivery::End(sent) if sent.ticket == ticket => {
                self.got = Delivery::Nothing;
                Some(sent)
            }
            _ => None,
        }
    }

    /// Counts refused frames and returns their number.
    #[cold]
    fn refused(&mut self, frames: usize, left: io::Result<usize>) -> usize {
        let unsent = frames - left.as_ref().map_or(0, |left| *left);
        self.unsent += unsent as u64;
        self.failed = left.err().filter(is_fatal).or(self.failed.take());
        unsent
    }

    /// Reports to the engine that its last frames were not sent.
    #[cold]
    fn lost(&mut self, now: Instant, frames: usize) {
        // This cannot be refused.
        let _ = self.engine.command(now, Command::Unsent { frames });
    }

    /// Returns whether the common event queue is full.
    #[inline]
    pub fn event_queue_is_full(&self) -> bool {
        self.event_queue.len() >= MAX_EVENTS
    }
}

/// The helper thread, if any.
pub(super) type Helper = Option<thread::JoinHandle<()>>;

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Shared {
    /// Opens a station and starts its helper.
    pub fn open(network: &Network, number: u8, settings: &Settings) -> Result<(Arc<Shared>, Helper), Error> {
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
        line.limit_waiting(MAX_WAIT)?;
        let state = State {
            engine,
            saps: [const { None }; 128],
            event_queue: VecDeque::new(),
            interrupted: false,
            ring: VecDeque::new(),
            want: WaitTarget::Nothing,
            leading: WaitTarget::Nothing,
            got: Delivery::Nothing,
            unsent: 0,
            handles: 0,
            room: Some(Box::new([0; BUFFER_SIZE])),
            out: vec![0; HEADROOM + MAX_BATCH].into(),
            scratch: Vec::new(),
            own: VecDeque::new(),
            dirty: true,
            deadline: Instant::MAX,
            failed: None,
            followers: 0,
            attended: Instant::ZERO,
            alarm: Instant::MAX,
            listening: false,
            wakeful: Instant::ZERO,
            hears: false,
            limit: MAX_WAIT,
            lapsed: false,
            leaving: None,
        };
        let at_once = settings.ring.is_some() || settings.events;
        let shared = Arc::new(Shared {
            number,
            line,
            clock,
            helped: settings.helper || settings.ring.is_some(),
            tick: if at_once { Span::ZERO } else { LEADER_GRACE },
            look: if at_once { Span::ZERO } else { CHECK_INTERVAL },
            events: settings.events,
            state: Mutex::new(state),
            changed: Condvar::new(),
            timer: Condvar::new(),
            bell: Waker::new()?,
            nudge: Waker::new()?,
        });
        shared.lock().handles += 1;
        let helper = match shared.helped {
            true => {
                let helper = shared.clone();
                Some(thread::Builder::new().name("llc".into()).spawn(move || helper.run_helper())?)
            }
            false => None,
        };
        Ok((shared, helper))
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        self.state.lock()
    }

    /// Runs an operation on the state once.
    #[inline]
    pub fn with_state<T>(
        &self,
        attempt: impl FnOnce(&mut State, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.clock.now();
        let done = attempt(&mut state, now);
        state.mark_dirty();
        // Other threads may now wait in vain.
        self.notify_followers(&state);
        self.leave(state, &mut self.at(now));
        done
    }

    /// Tries an operation, and once more after receiving queued frames.
    pub fn try_twice<T>(
        &self,
        mut attempt: impl FnMut(&mut State, &mut CallTime) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let mut now = self.unread();
        let mut done = attempt(&mut state, &mut now);
        if matches!(done, Err(Error::NotYet | Error::Full)) && state.room.is_some() {
            // A caller that never blocks must still receive.
            self.receive_queued(&mut state, now.get());
            self.transmit_pending(&mut state, now.get());
            state.attended = now.get();
            done = attempt(&mut state, &mut now);
        }
        self.leave(state, &mut now);
        done
    }

    #[inline]
    fn unread(&self) -> CallTime {
        CallTime::new(self.clock)
    }

    #[inline]
    fn at(&self, now: Instant) -> CallTime {
        CallTime { clock: self.clock, read: now }
    }

    /// Tries an operation until it returns neither [`Error::NotYet`] nor [`Error::Full`], at most for `patience`.
    #[inline]
    pub fn wait_until<T>(
        &self,
        patience: Option<Duration>,
        mut attempt: impl FnMut(&mut State, &mut CallTime) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let mut now = self.unread();
        let mut left = patience.map_or(Span::MAX, Span::from);
        let mut end = None;
        let mut looked = self.helped;
        loop {
            state.want = WaitTarget::Nothing;
            match attempt(&mut state, &mut now) {
                Err(Error::NotYet | Error::Full) => {}
                done => {
                    self.leave(state, &mut now);
                    return done;
                }
            }
            if state.dirty || state.is_due(&mut now) {
                // The pending output may be the awaited result.
                self.transmit_pending(&mut state, now.get());
                continue;
            }
            if let Some(error) = &state.failed {
                let error = copy(error);
                self.leave(state, &mut now);
                return Err(error.into());
            }
            if left.is_zero() {
                if !looked && state.room.is_some() {
                    // No other thread receives for a caller that never blocks.
                    looked = true;
                    self.receive_queued(&mut state, now.get());
                    continue;
                }
                self.leave(state, &mut now);
                return Err(Error::TimedOut);
            }
            let waited;
            (state, waited) = self.wait(state, &mut now, left);
            if left < Span::MAX {
                // The first wait may not know its start, only a lower bound of its duration.
                let end = *end.get_or_insert_with(|| now.get() + (left - waited));
                left = end.since(now.get());
            }
        }
    }

    /// Sends a message, by the fast path if possible; its outcome may then be known at once and is not queued.
    #[inline]
    pub fn send(
        &self,
        state: &mut State,
        now: Instant,
        sap: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Ticket, Option<Outcome>), Refusal> {
        // Nothing is due before it, it is not looped back, and its outcome need not enter the common event queue.
        let short = !state.dirty && now < state.deadline && to.station != self.number && !self.events;
        let State { engine, out, .. } = state;
        let (ticket, left) =
            engine.send(now, sap, to, bytes, priority, short.then_some(&mut out[HEADROOM..]))?;
        let (SendResult::Away(length) | SendResult::Done(length)) = left else {
            state.dirty = true;
            return Ok((ticket, None));
        };
        let taken = self.send_frame(state, to.station, length);
        if let SendResult::Away(_) = left {
            state.deadline = state.engine.deadline();
            return Ok((ticket, None));
        }
        if !taken {
            state.lost(now, 1);
        }
        Ok((ticket, Some(if taken { Outcome::Done } else { Outcome::Failed })))
    }

    /// Sends the prepared frames and returns how many were refused.
    fn send_frames(&self, state: &mut State, to: u8, length: usize, segment: Option<Segment>) -> usize {
        let frames = segment.map_or(1, |segment| length.div_ceil(segment.length()));
        match self.line.send(to, &mut state.out, length, segment, &mut state.scratch) {
            Ok(left) if left == frames => 0,
            left => self.refused(state, frames, left),
        }
    }

    /// Sends the prepared frame and returns whether it was accepted.
    #[inline(always)]
    fn send_frame(&self, state: &mut State, to: u8, length: usize) -> bool {
        match self.line.send(to, &mut state.out, length, None, &mut state.scratch) {
            Ok(1) => true,
            left => self.refused(state, 1, left) == 0,
        }
    }

    /// Counts refused frames and returns their number.
    #[cold]
    fn refused(&self, state: &mut State, frames: usize, left: io::Result<usize>) -> usize {
        let unsent = state.refused(frames, left);
        if state.failed.is_some() {
            self.notify_followers(state);
        }
        unsent
    }

    /// Handles the drop of a handle.
    pub fn release(&self) {
        let mut state = self.lock();
        state.handles -= 1;
        self.leave(state, &mut self.unread());
    }

    /// Returns whether the waiting thread becomes the leader.
    #[inline]
    fn is_leader(&self, state: &State) -> bool {
        state.room.is_some() && !(self.events && self.helped)
    }

    /// Returns whether the calling thread would become the leader at once.
    #[inline]
    pub fn will_lead(&self, state: &State, now: &mut CallTime) -> bool {
        self.is_leader(state) && !state.dirty && !state.is_due(now)
    }

    /// Waits for an event, about `left` at most: leads, or follows the leader. Returns a lower bound of the elapsed
    /// time.
    fn wait<'a>(&'a self, mut state: Guard<'a>, now: &mut CallTime, left: Span) -> (Guard<'a>, Span) {
        let mut until = left.min(MAX_WAIT);
        if state.deadline < Instant::MAX {
            until = until.min(state.deadline.since(now.get()));
        }
        let room = if self.is_leader(&state) { state.room.take() } else { None };
        let Some(mut room) = room else {
            let begin = now.get();
            state.followers += 1;
            self.changed.wait_for(&mut state, until.into());
            state.followers -= 1;
            *now = self.unread();
            return (state, now.get().since(begin));
        };
        state.leading = state.want;
        let hears = state.wakeful > Instant::ZERO && now.get() < state.wakeful;
        if !hears {
            self.limit(&mut state, until);
        }
        state.hears = hears;
        self.arm_helper(&mut state);
        MutexGuard::unlock_fair(state);
        if hears {
            // A failed wait is treated as a short one.
            let _ = self.nudge.wait(&[self.line.as_fd()], Some(until));
        }
        let came = self.line.receive(&mut room, !hears);
        let mut state = self.lock();
        let begin = now.read;
        now.read = self.clock.now();
        state.hears = false;
        state.lapsed = matches!(&came, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        let waited = match begin {
            Instant::ZERO if state.lapsed => state.limit,
            Instant::ZERO => Span::ZERO,
            begin => now.read.since(begin),
        };
        self.take(&mut state, now.read, came, &room);
        state.room = Some(room);
        state.attended = now.read;
        if state.dirty || state.followers > 0 {
            self.transmit_pending(&mut state, now.read);
        }
        state.leading = WaitTarget::Nothing;
        (state, waited)
    }

    /// Sets the line's receive timeout to one of a few values, so that it rarely changes.
    #[inline]
    fn limit(&self, state: &mut State, until: Span) {
        let limit = if until <= Span::from_ms(2) {
            Span::from_ms(2)
        } else if until <= Span::from_ms(10) {
            Span::from_ms(10)
        } else {
            MAX_WAIT
        };
        if (limit < state.limit || limit > state.limit && state.lapsed)
            && self.line.limit_waiting(limit).is_ok()
        {
            state.limit = limit;
        }
    }

    /// Makes the leader notice an event now or at its next wait.
    fn wake(&self, state: &mut State, now: Instant) {
        state.wakeful = now + WAKEABLE_TIME;
        if std::mem::take(&mut state.hears) {
            self.nudge.wake();
        }
    }

    /// Sends pending output and releases the lock.
    #[inline(always)]
    fn leave(&self, mut state: Guard<'_>, now: &mut CallTime) {
        if state.dirty || state.is_due(now) {
            self.transmit_pending(&mut state, now.get());
        }
        self.arm_helper(&mut state);
        if state.followers > 0 && state.room.is_some() {
            // Let another thread lead.
            self.changed.notify_one();
        }
        MutexGuard::unlock_fair(state);
    }

    /// Wakes followers after an event or a failure.
    fn notify_followers(&self, state: &State) {
        if state.followers > 0 {
            self.changed.notify_all();
        }
    }

    /// Receives the queued frames.
    fn receive_queued(&self, state: &mut State, now: Instant) {
        let Some(mut room) = state.room.take() else { return };
        for _ in 0..MAX_RECEIVE_RUN {
            let came = self.line.receive(&mut room, false);
            let ends = came.is_err();
            self.take(state, now, came, &room);
            if ends {
                break;
            }
        }
        state.room = Some(room);
    }

    /// Processes a receive result.
    #[inline]
    fn take(
        &self,
        state: &mut State,
        now: Instant,
        came: io::Result<Option<ReceivedFrame>>,
        room: &[u8; BUFFER_SIZE],
    ) {
        match came {
            // Broadcasts over UDP are looped back.
            Ok(Some(ReceivedFrame { station, from, to })) if station != self.number => {
                // With a common event queue, received messages are reported there too.
                let wanted = match state.leading {
                    WaitTarget::Message(sap) if !self.events => Some(sap),
                    _ => None,
                };
                let (from, to) = (usize::from(from), usize::from(to));
                let State { engine, out, .. } = state;
                let handed = engine.take(now, station, &room[from..to], wanted, Some(&mut out[HEADROOM..]));
                match handed.what {
                    FastPathOutput::Nothing => {}
                    FastPathOutput::Message(octets) => {
                        let from = from + 1 + HEADER;
                        state.got = Delivery::Message(from..from + octets);
                    }
                    // The leader processes it and notifies the followers.
                    FastPathOutput::Event(event) => {
                        if self.push_event(state, event) {
                            self.notify_followers(state);
                        }
                    }
                }
                if handed.answer > 0 {
                    self.send_frame(state, station, handed.answer);
                }
                match handed.more {
                    true => state.dirty = true,
                    false => state.deadline = state.engine.deadline(),
                }
            }
            Ok(_) => {}
            Err(e) if is_transient(&e) => {}
            Err(e) => {
                state.failed = Some(e);
                self.notify_followers(state);
            }
        }
    }

    /// Sends all pending output and stores its events.
    #[inline]
    fn transmit_pending(&self, state: &mut State, now: Instant) {
        let mut has_events = false;
        if state.deadline <= now {
            state.engine.wake(now);
        }
        state.dirty = false;
        state.deadline = loop {
            match state.engine.poll(now, &mut state.out[HEADROOM..]) {
                EngineOutput::Event(event) => has_events |= self.push_event(state, event),
                EngineOutput::Ring(event) => {
                    if state.ring.len() == MAX_RING_EVENTS {
                        state.ring.pop_front();
                    }
                    if event == token::Event::Left && state.handles == 0 {
                        state.leaving = Some(now);
                    }
                    state.ring.push_back(event);
                    has_events = true;
                }
                EngineOutput::Transmit(transmit) => {
                    let (length, segment) = (transmit.length, transmit.segment);
                    match *transmit.peer.as_bytes() {
                        [to] if to == self.number => {
                            let frames = Segment::frames(segment, &state.out[HEADROOM..HEADROOM + length]);
                            state.own.extend(frames.map(<[u8]>::to_vec));
                        }
                        [to] => {
                            let unsent = self.send_frames(state, to, length, segment);
                            if unsent > 0 {
                                state.lost(now, unsent);
                            }
                        }
                        _ => {}
                    }
                }
                EngineOutput::Idle(deadline) => match state.own.pop_front() {
                    Some(frame) => _ = state.engine.take(now, self.number, &frame, None, None),
                    None => break deadline.unwrap_or(Instant::MAX),
                },
            }
        };
        if has_events {
            self.notify_followers(state);
            if state.room.is_none() {
                self.wake(state, now);
            }
        }
    }

    /// Stores an event; returns whether a thread may wait for it.
    #[inline(always)]
    fn push_event(&self, state: &mut State, event: Event) -> bool {
        if !self.events {
            return match event {
                Event::Sent { ticket, outcome, tries, took, .. }
                    if state.leading == WaitTarget::End(ticket) =>
                {
                    state.got = Delivery::End(Sent { ticket, outcome, tries, took });
                    true
                }
                event => store_event(&mut state.saps, &event),
            };
        }
        let answer = matches!(event, Event::Tested { .. } | Event::Identified { .. });
        let known = matches!(event, Event::Readable { .. } | Event::Writable { .. })
            && state.event_queue.len() >= MAX_EVENTS
            && state.event_queue.contains(&event);
        if !known && (!answer || state.event_queue.len() < MAX_EVENTS) {
            state.event_queue.push_back(event);
        }
        true
    }

    /// Makes the helper wake for the next deadline.
    #[inline]
    fn arm_helper(&self, state: &mut State) {
        if !self.helped {
            return;
        }
        let mut by = state.deadline;
        if state.room.is_some() && !state.listening {
            by = by.min(state.attended + self.look);
        }
        if state.handles == 0 {
            by = Instant::ZERO;
        }
        if by < state.alarm {
            state.alarm = by;
            match state.listening {
                true => self.bell.wake(),
                false => _ = self.timer.notify_one(),
            }
        }
    }

    /// Runs the helper: handles deadlines, and receives while no thread leads.
    fn run_helper(&self) {
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            if state.handles == 0 && state.leaving.is_none() {
                state.engine.set_membership(now, false);
                let rings = matches!(&state.engine, Engine::Ring(ring) if !ring.members().is_empty());
                (state.leaving, state.dirty) = (Some(if rings { now + LEAVE_TIMEOUT } else { now }), true);
            }
            if state.dirty || state.deadline <= now {
                self.transmit_pending(&mut state, now);
            }
            if state.leaving.is_some_and(|by| by <= now) {
                return;
            }
            let leads = state.room.is_none();
            let at = state.deadline.min(state.leaving.unwrap_or(Instant::MAX));
            let free = state.attended + self.tick;
            if !leads && free <= now && state.failed.is_none() {
                (state.alarm, state.listening) = (at, true);
                MutexGuard::unlock_fair(state);
                // A failed wait is treated as a short one.
                let _ = self.bell.wait(&[self.line.as_fd()], (at < Instant::MAX).then(|| at.since(now)));
                state = self.lock();
                state.listening = false;
                let now = self.clock.now();
                self.receive_queued(&mut state, now);
                continue;
            }
            state.alarm = match leads && free <= now || state.failed.is_some() {
                true => at,
                false => at.min(now + CHECK_INTERVAL),
            };
            match state.alarm {
                Instant::MAX => self.timer.wait(&mut state),
                alarm => _ = self.timer.wait_for(&mut state, alarm.since(now).into()),
            }
        }
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

/// Returns whether an error is transient: a timeout, or an interface that is down or full.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | NetworkDown | NetworkUnreachable | HostUnreachable)
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

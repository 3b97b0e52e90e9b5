//! Who receives for all, and who keeps the time.
//!
//! The thread that waits receives, without holding the lock: no other is to be woken between a frame and its reader. If
//! several wait, one leads and the others follow; one that has what it wants lets another lead. Deadlines are kept by a
//! helper on a thread of its own, which hears the line while nobody leads: at once in a ring, since a token must not
//! wait; else after a [`TICK`] to a few, so that two that talk in turns are not disturbed. Where all events are told in one row it
//! always does, and who waits for them only follows.
//!
//! Who leads waits in the call that receives, from which nobody can wake it. Mostly nobody has to: what it waits for comes
//! over the line. Not so what a station sends to itself, or what another thread gives up. Where that has happened, the
//! leader for some time waits for a bell, too, which is a call of the system more.
//!
//! The lock is fair: whoever has waited longest gets it next. Else a thread that sends without end takes it again and again
//! before one with something urgent, which was woken for it, has run.

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
use trunkline_io::datagrams::Bell;
use trunkline_units::{Instant, Span};

use super::engine::{Engine, Said};
use super::line::{Came, FRONT, Line, ROOM};
use super::{Error, Network, Sent, Settings};
use crate::station::{Config, Left, Station, What};
use crate::talk::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::token::{self, Ring};
use crate::wire::{Address, HEADER};

/// How long nobody may have received before the helper does,
const TICK: Span = Span::from_ms(1);
/// and how often it looks whether that is so: each look costs those who do receive the processor.
const LOOK: Span = Span::from_ms(4);
/// The longest that one who leads waits without a look at what others did.
const LONGEST: Span = Span::from_ms(50);
/// Frames that are taken in a row without letting the station speak.
const ROW: usize = 32;
/// Events of the ring that wait; the oldest are forgotten.
const RING_EVENTS: usize = 32;
/// Answers to TEST and XID that wait at a SAP; the oldest are forgotten.
const ANSWERS: usize = 64;
/// Events told in one row that wait, before no more messages are taken and answers to TEST and XID are forgotten.
const EVENTS: usize = 8192;
/// How long the leader can be woken, after it would have had to be.
const WAKEFUL: Span = Span::from_s(10);
/// How long a station that is no longer used waits for the token in order to leave its ring.
const FAREWELL: Span = Span::from_s(1);

/// A station that threads share.
pub(super) struct Shared {
    pub number: u8,
    line: Line,
    clock: Clock,
    /// Whether there is a helper, how long it leaves the line to others, and how often it looks after that.
    helped: bool,
    tick: Span,
    look: Span,
    /// Whether all events are told in one row; if there is a helper, whoever waits for them only follows it.
    events: bool,
    state: Mutex<State>,
    /// Followers: something was told, or nobody leads.
    changed: Condvar,
    /// The helper: wake earlier.
    timer: Condvar,
    bell: Bell,
    /// Who leads, while that can be woken.
    nudge: Bell,
}

/// What a SAP was told and nobody has taken.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Messages whose end somebody wants to know.
    pub wanted: VecDeque<Ticket>,
    pub ended: VecDeque<Sent>,
    /// The same for those of which one call waits for the end, which no other is to take.
    pub awaited: Vec<(Ticket, Option<Sent>)>,
    pub answers: VecDeque<Event>,
}

/// The moment of a call. The clock is read by who asks first, since a reading costs as much as a hundred instructions.
pub(super) struct Now {
    clock: Clock,
    /// The begin of the clock until it was read.
    read: Instant,
}

impl Now {
    #[inline]
    pub fn get(&mut self) -> Instant {
        if self.read == Instant::ZERO {
            self.read = self.clock.now();
        }
        self.read
    }
}

/// What one who waits wants of all that may come. If it is he who receives, he is handed it past the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Want {
    #[default]
    Nothing,
    /// The next message of a SAP.
    Message(u8),
    /// The end of a message of its own.
    End(Ticket),
}

/// What he is handed.
#[derive(Debug, Default)]
pub(super) enum Got {
    #[default]
    Nothing,
    /// A message, which stands here in the room. The rest says [`Station::handed`].
    Message(Range<usize>),
    End(Sent),
}

/// What the lock guards.
pub(super) struct State {
    pub engine: Engine,
    /// By half the number of the SAP.
    pub saps: [Option<Box<Told>>; 128],
    /// All events, where they are told in one row.
    pub told: VecDeque<Event>,
    /// Whether the next wait for an event ends at once.
    pub interrupted: bool,
    pub ring: VecDeque<token::Event<()>>,
    /// What is wanted by who is about to wait; by who receives for all; and what he was handed.
    pub want: Want,
    leading: Want,
    got: Got,
    /// Frames that the line or the system did not take.
    pub unsent: u64,
    /// Handles there are.
    pub handles: usize,
    /// Room for what comes; whoever leads has it.
    room: Option<Box<[u8; ROOM]>>,
    /// What leaves, behind what the line puts before it.
    out: Box<[u8]>,
    scratch: Vec<u8>,
    own: VecDeque<Vec<u8>>,
    /// Whether the station was told something since it last spoke.
    dirty: bool,
    deadline: Instant,
    failed: Option<io::Error>,
    followers: usize,
    /// When somebody last led.
    attended: Instant,
    /// When the helper wakes, and whether it hears the line until then.
    alarm: Instant,
    listening: bool,
    /// Until then who leads can be woken, and whether it can be just now.
    wakeful: Instant,
    hears: bool,
    /// How long the line now lets a call wait, and whether the last one waited so long.
    limit: Span,
    lapsed: bool,
    leaving: Option<Instant>,
}

impl State {
    /// The station was told something.
    #[inline]
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Whether the time has come for something.
    #[inline]
    fn is_due(&self, now: &mut Now) -> bool {
        self.deadline < Instant::MAX && self.deadline <= now.get()
    }

    /// The message that who has waited was handed, if he was; its bytes take the place of what is in `into`.
    #[inline]
    pub fn handed_message(&mut self, into: &mut Vec<u8>) -> Option<Received> {
        let Got::Message(at) = &self.got else { return None };
        into.clear();
        into.extend_from_slice(self.room.as_ref()?.get(at.clone())?);
        self.got = Got::Nothing;
        Some(self.engine.station().handed())
    }

    /// The end of his message, the same.
    #[inline]
    pub fn handed_end(&mut self, ticket: Ticket) -> Option<Sent> {
        match self.got {
            Got::End(sent) if sent.ticket == ticket => {
                self.got = Got::Nothing;
                Some(sent)
            }
            _ => None,
        }
    }

    /// Not all frames were taken; how many were not.
    #[cold]
    fn refused(&mut self, frames: usize, left: io::Result<usize>) -> usize {
        let unsent = frames - left.as_ref().map_or(0, |left| *left);
        self.unsent += unsent as u64;
        self.failed = left.err().filter(is_over).or(self.failed.take());
        unsent
    }

    /// So many frames of what the engine just said were not taken.
    #[cold]
    fn lost(&mut self, now: Instant, frames: usize) {
        // It is never refused.
        let _ = self.engine.command(now, Command::Unsent { frames });
    }

    /// Whether nobody asks for the events that are told in one row.
    #[inline]
    pub fn has_too_much_to_tell(&self) -> bool {
        self.told.len() >= EVENTS
    }
}

/// The thread that keeps the time, if there is one.
pub(super) type Helper = Option<thread::JoinHandle<()>>;

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Shared {
    /// The station, and its helper.
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
        engine.belong(clock.now(), true);
        line.limit_waiting(LONGEST)?;
        let state = State {
            engine,
            saps: [const { None }; 128],
            told: VecDeque::new(),
            interrupted: false,
            ring: VecDeque::new(),
            want: Want::Nothing,
            leading: Want::Nothing,
            got: Got::Nothing,
            unsent: 0,
            handles: 0,
            room: Some(Box::new([0; ROOM])),
            out: vec![0; FRONT + MAX_BATCH].into(),
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
            limit: LONGEST,
            lapsed: false,
            leaving: None,
        };
        let at_once = settings.ring.is_some() || settings.events;
        let shared = Arc::new(Shared {
            number,
            line,
            clock,
            helped: settings.helper || settings.ring.is_some(),
            tick: if at_once { Span::ZERO } else { TICK },
            look: if at_once { Span::ZERO } else { LOOK },
            events: settings.events,
            state: Mutex::new(state),
            changed: Condvar::new(),
            timer: Condvar::new(),
            bell: Bell::new()?,
            nudge: Bell::new()?,
        });
        shared.lock().handles += 1;
        let helper = match shared.helped {
            true => {
                let helper = shared.clone();
                Some(thread::Builder::new().name("llc".into()).spawn(move || helper.help())?)
            }
            false => None,
        };
        Ok((shared, helper))
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        self.state.lock()
    }

    /// Tries something once.
    #[inline]
    pub fn now<T>(&self, attempt: impl FnOnce(&mut State, Instant) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.clock.now();
        let done = attempt(&mut state, now);
        state.touch();
        // What others wait for may never come now.
        self.rouse(&state);
        self.leave(state, &mut self.at(now));
        done
    }

    /// Tries something once, and once more after a look at the line.
    pub fn once<T>(
        &self,
        mut attempt: impl FnMut(&mut State, &mut Now) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let mut now = self.unread();
        let mut done = attempt(&mut state, &mut now);
        if matches!(done, Err(Error::NotYet | Error::Full)) && state.room.is_some() {
            // Who only ever tries shall not be deaf.
            self.listen(&mut state, now.get());
            self.speak(&mut state, now.get());
            state.attended = now.get();
            done = attempt(&mut state, &mut now);
        }
        self.leave(state, &mut now);
        done
    }

    #[inline]
    fn unread(&self) -> Now {
        Now { clock: self.clock, read: Instant::ZERO }
    }

    #[inline]
    fn at(&self, now: Instant) -> Now {
        Now { clock: self.clock, read: now }
    }

    /// Tries something until it says neither [`Error::NotYet`] nor [`Error::Full`], at most as long as `patience`.
    #[inline]
    pub fn until<T>(
        &self,
        patience: Option<Duration>,
        mut attempt: impl FnMut(&mut State, &mut Now) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let mut now = self.unread();
        let mut left = patience.map_or(Span::MAX, Span::from);
        let mut end = None;
        let mut looked = self.helped;
        loop {
            state.want = Want::Nothing;
            match attempt(&mut state, &mut now) {
                Err(Error::NotYet | Error::Full) => {}
                done => {
                    self.leave(state, &mut now);
                    return done;
                }
            }
            if state.dirty || state.is_due(&mut now) {
                // It may be about to tell just what is waited for.
                self.speak(&mut state, now.get());
                continue;
            }
            if let Some(error) = &state.failed {
                let error = copy(error);
                self.leave(state, &mut now);
                return Err(error.into());
            }
            if left.is_zero() {
                if !looked && state.room.is_some() {
                    // Nobody else hears for who never waits.
                    looked = true;
                    self.listen(&mut state, now.get());
                    continue;
                }
                self.leave(state, &mut now);
                return Err(Error::TimedOut);
            }
            let waited;
            (state, waited) = self.wait(state, &mut now, left);
            if left < Span::MAX {
                // Who waits for the first time may not know when he began, only how long it surely was.
                let end = *end.get_or_insert_with(|| now.get() + (left - waited));
                left = end.since(now.get());
            }
        }
    }

    /// Sends a message: the short way if it may and can, in which its end may be known at once and is told nowhere else.
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
        // Nothing is due before it, it does not come back, and its end need not stand in one row with others.
        let short = !state.dirty && now < state.deadline && to.station != self.number && !self.events;
        let State { engine, out, .. } = state;
        let (ticket, left) =
            engine.send(now, sap, to, bytes, priority, short.then_some(&mut out[FRONT..]))?;
        let (Left::Away(length) | Left::Done(length)) = left else {
            state.dirty = true;
            return Ok((ticket, None));
        };
        let taken = self.put_one(state, to.station, length);
        if let Left::Away(_) = left {
            state.deadline = state.engine.deadline();
            return Ok((ticket, None));
        }
        if !taken {
            state.lost(now, 1);
        }
        Ok((ticket, Some(if taken { Outcome::Done } else { Outcome::Failed })))
    }

    /// Gives the line what stands ready; how many frames it did not take.
    fn put(&self, state: &mut State, to: u8, length: usize, segment: Option<Segment>) -> usize {
        let frames = segment.map_or(1, |segment| length.div_ceil(segment.length()));
        match self.line.send(to, &mut state.out, length, segment, &mut state.scratch) {
            Ok(left) if left == frames => 0,
            left => self.refused(state, frames, left),
        }
    }

    /// Gives the line a frame that stands ready; whether it took it.
    #[inline(always)]
    fn put_one(&self, state: &mut State, to: u8, length: usize) -> bool {
        match self.line.send(to, &mut state.out, length, None, &mut state.scratch) {
            Ok(1) => true,
            left => self.refused(state, 1, left) == 0,
        }
    }

    /// Not all frames were taken; how many were not.
    #[cold]
    fn refused(&self, state: &mut State, frames: usize, left: io::Result<usize>) -> usize {
        let unsent = state.refused(frames, left);
        if state.failed.is_some() {
            self.rouse(state);
        }
        unsent
    }

    /// A handle has gone.
    pub fn release(&self) {
        let mut state = self.lock();
        state.handles -= 1;
        self.leave(state, &mut self.unread());
    }

    /// Whether who waits now is the one who receives for all.
    #[inline]
    fn leads(&self, state: &State) -> bool {
        state.room.is_some() && !(self.events && self.helped)
    }

    /// Whether who wants something now will be handed it, since nothing is told before he receives for all.
    #[inline]
    pub fn will_be_handed(&self, state: &State, now: &mut Now) -> bool {
        self.leads(state) && !state.dirty && !state.is_due(now)
    }

    /// Waits for something to happen, about as long as `left` at the most: receives for all, or follows whoever does. How long
    /// that surely was.
    fn wait<'a>(&'a self, mut state: Guard<'a>, now: &mut Now, left: Span) -> (Guard<'a>, Span) {
        let mut until = left.min(LONGEST);
        if state.deadline < Instant::MAX {
            until = until.min(state.deadline.since(now.get()));
        }
        let room = if self.leads(&state) { state.room.take() } else { None };
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
        self.arm(&mut state);
        MutexGuard::unlock_fair(state);
        if hears {
            // A wait that fails is no worse than one that was cut short.
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
            self.speak(&mut state, now.read);
        }
        state.leading = Want::Nothing;
        (state, waited)
    }

    /// Lets the line wait about so long: one of a few spans, so that it needs to be told seldom.
    #[inline]
    fn limit(&self, state: &mut State, until: Span) {
        let limit = if until <= Span::from_ms(2) {
            Span::from_ms(2)
        } else if until <= Span::from_ms(10) {
            Span::from_ms(10)
        } else {
            LONGEST
        };
        if (limit < state.limit || limit > state.limit && state.lapsed)
            && self.line.limit_waiting(limit).is_ok()
        {
            state.limit = limit;
        }
    }

    /// Something was told that whoever leads may wait for. It hears of it now, or the next time.
    fn wake(&self, state: &mut State, now: Instant) {
        state.wakeful = now + WAKEFUL;
        if std::mem::take(&mut state.hears) {
            self.nudge.ring();
        }
    }

    /// Lets the station speak, and goes.
    #[inline(always)]
    fn leave(&self, mut state: Guard<'_>, now: &mut Now) {
        if state.dirty || state.is_due(now) {
            self.speak(&mut state, now.get());
        }
        self.arm(&mut state);
        if state.followers > 0 && state.room.is_some() {
            // Another leads. What it was to know it has been told.
            self.changed.notify_one();
        }
        MutexGuard::unlock_fair(state);
    }

    /// Something was told, or nothing more will be: followers look.
    fn rouse(&self, state: &State) {
        if state.followers > 0 {
            self.changed.notify_all();
        }
    }

    /// Takes what waits on the line.
    fn listen(&self, state: &mut State, now: Instant) {
        let Some(mut room) = state.room.take() else { return };
        for _ in 0..ROW {
            let came = self.line.receive(&mut room, false);
            let ends = came.is_err();
            self.take(state, now, came, &room);
            if ends {
                break;
            }
        }
        state.room = Some(room);
    }

    /// Takes what came, or learns why nothing did.
    #[inline]
    fn take(&self, state: &mut State, now: Instant, came: io::Result<Option<Came>>, room: &[u8; ROOM]) {
        match came {
            // What it sent to all comes back over UDP.
            Ok(Some(Came { station, from, to })) if station != self.number => {
                // Where all events are told in a row, so is that a message has come.
                let wanted = match state.leading {
                    Want::Message(sap) if !self.events => Some(sap),
                    _ => None,
                };
                let (from, to) = (usize::from(from), usize::from(to));
                let State { engine, out, .. } = state;
                let handed = engine.take(now, station, &room[from..to], wanted, Some(&mut out[FRONT..]));
                match handed.what {
                    What::Nothing => {}
                    What::Message(octets) => {
                        let from = from + 1 + HEADER;
                        state.got = Got::Message(from..from + octets);
                    }
                    // Who has the room hears it, and lets those that follow know.
                    What::Event(event) => {
                        if self.tell(state, event) {
                            self.rouse(state);
                        }
                    }
                }
                if handed.answer > 0 {
                    self.put_one(state, station, handed.answer);
                }
                match handed.more {
                    true => state.dirty = true,
                    false => state.deadline = state.engine.deadline(),
                }
            }
            Ok(_) => {}
            Err(e) if passes(&e) => {}
            Err(e) => {
                state.failed = Some(e);
                self.rouse(state);
            }
        }
    }

    /// Sends what there is to send, and keeps what is told.
    #[inline]
    fn speak(&self, state: &mut State, now: Instant) {
        let mut told = false;
        if state.deadline <= now {
            state.engine.wake(now);
        }
        state.dirty = false;
        state.deadline = loop {
            match state.engine.poll(now, &mut state.out[FRONT..]) {
                Said::Event(event) => told |= self.tell(state, event),
                Said::Ring(event) => {
                    if state.ring.len() == RING_EVENTS {
                        state.ring.pop_front();
                    }
                    if event == token::Event::Left && state.handles == 0 {
                        state.leaving = Some(now);
                    }
                    state.ring.push_back(event);
                    told = true;
                }
                Said::Transmit(transmit) => {
                    let (length, segment) = (transmit.length, transmit.segment);
                    match *transmit.peer.as_bytes() {
                        [to] if to == self.number => {
                            let frames = Segment::frames(segment, &state.out[FRONT..FRONT + length]);
                            state.own.extend(frames.map(<[u8]>::to_vec));
                        }
                        [to] => {
                            let unsent = self.put(state, to, length, segment);
                            if unsent > 0 {
                                state.lost(now, unsent);
                            }
                        }
                        _ => {}
                    }
                }
                Said::Idle(deadline) => match state.own.pop_front() {
                    Some(frame) => _ = state.engine.take(now, self.number, &frame, None, None),
                    None => break deadline.unwrap_or(Instant::MAX),
                },
            }
        };
        if told {
            self.rouse(state);
            if state.room.is_none() {
                self.wake(state, now);
            }
        }
    }

    /// Keeps an event; whether somebody may wait for it.
    #[inline(always)]
    fn tell(&self, state: &mut State, event: Event) -> bool {
        if !self.events {
            return match event {
                Event::Sent { ticket, outcome, tries, took, .. } if state.leading == Want::End(ticket) => {
                    state.got = Got::End(Sent { ticket, outcome, tries, took });
                    true
                }
                event => keep(&mut state.saps, &event),
            };
        }
        let answer = matches!(event, Event::Tested { .. } | Event::Identified { .. });
        let known = matches!(event, Event::Readable { .. } | Event::Writable { .. })
            && state.told.len() >= EVENTS
            && state.told.contains(&event);
        if !known && (!answer || state.told.len() < EVENTS) {
            state.told.push_back(event);
        }
        true
    }

    /// Sees to it that the helper wakes in time.
    #[inline]
    fn arm(&self, state: &mut State) {
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
                true => self.bell.ring(),
                false => _ = self.timer.notify_one(),
            }
        }
    }

    /// Keeps the time, and hears the line while nobody does.
    fn help(&self) {
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            if state.handles == 0 && state.leaving.is_none() {
                state.engine.belong(now, false);
                let rings = matches!(&state.engine, Engine::Ring(ring) if !ring.members().is_empty());
                (state.leaving, state.dirty) = (Some(if rings { now + FAREWELL } else { now }), true);
            }
            if state.dirty || state.deadline <= now {
                self.speak(&mut state, now);
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
                // A wait that fails is no worse than one that was cut short.
                let _ = self.bell.wait(&[self.line.as_fd()], (at < Instant::MAX).then(|| at.since(now)));
                state = self.lock();
                state.listening = false;
                let now = self.clock.now();
                self.listen(&mut state, now);
                continue;
            }
            state.alarm = match leads && free <= now || state.failed.is_some() {
                true => at,
                false => at.min(now + LOOK),
            };
            match state.alarm {
                Instant::MAX => self.timer.wait(&mut state),
                alarm => _ = self.timer.wait_for(&mut state, alarm.since(now).into()),
            }
        }
    }
}

/// Keeps what a SAP was told until somebody asks; whether somebody may wait for it.
#[inline]
fn keep(saps: &mut [Option<Box<Told>>], event: &Event) -> bool {
    let sap = match *event {
        // Who waits for these looks at the station.
        Event::Readable { .. } | Event::Writable { .. } => return true,
        Event::Sent { sap, .. } | Event::Tested { sap, .. } | Event::Identified { sap, .. } => sap,
    };
    let Some(told) = &mut saps[usize::from(sap >> 1)] else { return false };
    if let &Event::Sent { ticket, outcome, tries, took, .. } = event {
        let sent = Sent { ticket, outcome, tries, took };
        if let Some((_, end)) = told.awaited.iter_mut().find(|(awaited, _)| *awaited == ticket) {
            *end = Some(sent);
        } else if let Some(at) = told.wanted.iter().position(|wanted| *wanted == ticket) {
            told.wanted.remove(at);
            told.ended.push_back(sent);
        } else {
            return false;
        }
    } else {
        if told.answers.len() == ANSWERS {
            told.answers.pop_front();
        }
        told.answers.push_back(*event);
    }
    true
}

/// Whether an error passes by itself: nothing came in time, or the interface is down, or full.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | NetworkDown | NetworkUnreachable | HostUnreachable)
}

/// Whether nothing will ever be sent again: the interface or the socket is gone. Whatever else keeps a frame from leaving
/// (too long for the interface, forbidden, no memory) is that frame's, and counted.
fn is_over(error: &io::Error) -> bool {
    const BADF: i32 = 9;
    const NXIO: i32 = 6;
    const NODEV: i32 = 19;
    matches!(error.raw_os_error(), Some(BADF | NXIO | NODEV))
}

/// The same error for one more.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

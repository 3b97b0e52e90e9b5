//! Who receives for all, and who keeps the time.
//!
//! The thread that waits receives, without holding the lock: no other thread is to be woken between a datagram and its
//! reader. If several wait, one leads and the others follow; one that has what it wants lets another lead. Deadlines are
//! kept by a helper on a thread of its own, which sleeps until the first that it knew when it fell asleep: one that moves
//! later lets it wake in vain, once, which costs less than telling it each time. While nobody leads, for [`TICK`] and
//! longer, the helper hears the socket. Where it is connected to the one peer that somebody has a conversation with
//! ([`Core::connect_socket`]), the helper hears others at its door all the time.
//!
//! In full flow most calls only add a message to those that wait for others, or take one of many. Such a call is *brisk*:
//! it asks no clock, which would be a fifth of what it costs, and sets no alarm, for whoever left the first thing unsaid
//! has set it. Every [`BRISK`]th asks.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use trunkline_io::datagrams::Waker;
use trunkline_io::{Clock, Datagrams};
use trunkline_units::{Instant, Span};

use super::core::{self, Core, GRACE};
use super::{Error, Patience, Settings};
use crate::{Buffer, ConnectionId, Options};

/// A socket that threads share.
pub(super) struct Shared {
    pub socket: Datagrams,
    pub clock: Clock,
    state: Mutex<State>,
    /// Followers: something was told, or nobody leads.
    changed: Condvar,
    /// The helper: wake earlier, asleep or hearing the socket.
    timer: Condvar,
    bell: Waker,
}

/// What the lock guards.
pub(super) struct State {
    pub core: Core,
    /// The time as last asked for, and calls since that did not ask.
    now: Instant,
    brisk: u32,
    followers: usize,
    /// The first moment at which somebody's patience ends.
    patience: Instant,
    /// When somebody last led or let the endpoint speak.
    attended: Instant,
    /// Questions and answers in a row with one peer, and how many of them it takes to connect the socket to it.
    exchanges: u32,
    connects_at: u32,
    /// How much later than a deadline the helper comes.
    lazy: Span,
    /// When the helper wakes, whether it waits for the bell until then, and whether it hears the socket.
    alarm: Instant,
    at_bell: bool,
    /// How long it sleeps while others attend to the socket: longer each time that it woke in vain.
    nap: Span,
    listening: bool,
}

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Shared {
    /// A socket, and its helper.
    pub fn open(
        local: SocketAddr,
        accept: Option<&Options>,
        settings: &Settings,
    ) -> Result<Arc<Shared>, Error> {
        let (socket, clock, core) = core::open(local, accept, settings)?;
        let (patience, now, alarm) = (Instant::MAX, clock.now(), Instant::MAX);
        let state = State {
            core,
            now,
            brisk: 0,
            followers: 0,
            patience,
            attended: now,
            exchanges: 0,
            connects_at: CONNECTS_AT,
            lazy: Span::ZERO,
            alarm,
            at_bell: false,
            nap: GRACE,
            listening: false,
        };
        let (changed, timer) = (Condvar::new(), Condvar::new());
        let shared =
            Arc::new(Shared { socket, clock, state: Mutex::new(state), changed, timer, bell: Waker::new()? });
        shared.lock().core.handles += 1;
        let helper = shared.clone();
        thread::Builder::new().name("arq".into()).spawn(move || helper.help()).map_err(Error::System)?;
        Ok(shared)
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        // A panic under the lock is a bug of ours; whoever comes next may see it too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the time.
    #[inline]
    fn time(&self, state: &mut State) -> Instant {
        (state.now, state.brisk) = (self.clock.now(), 0);
        state.now
    }

    /// Tries something once.
    #[inline]
    pub fn now<T>(&self, attempt: impl FnOnce(&mut Core, Instant) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let done = attempt(&mut state.core, now);
        self.leave(state, now);
        done
    }

    /// Tries something once, and once more after a look at the socket.
    #[inline]
    pub fn once<T>(
        &self,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let mut done = attempt(&mut state.core, now);
        if let Err(Error::NotYet | Error::Full | Error::NotEnough(_)) = done {
            // Who only ever tries shall not be deaf.
            state.core.listen(now, &self.socket);
            state.core.transmit(now, &self.socket);
            done = attempt(&mut state.core, now);
        }
        self.leave(state, now);
        done
    }

    /// A handle has gone.
    pub fn release(&self) {
        let mut state = self.lock();
        state.core.handles -= 1;
        let now = self.time(&mut state);
        self.leave(state, now);
    }

    /// Tries something until it says neither [`Error::NotYet`] nor [`Error::Full`].
    #[inline]
    pub fn until<T>(
        &self,
        patience: Patience,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        self.go_on(state, now, patience, attempt)
    }

    /// The same, briskly if it `may` be and succeeds at once.
    #[inline]
    pub fn briskly<T>(
        &self,
        may: impl FnOnce(&Core) -> bool,
        patience: Patience,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.go_briskly(self.lock(), may, patience, attempt)
    }

    #[inline]
    fn go_briskly<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        may: impl FnOnce(&Core) -> bool,
        patience: Patience,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if state.brisk < BRISK && may(&state.core) {
            let now = state.now;
            let done = attempt(&mut state.core, now);
            if !matches!(done, Err(Error::NotYet | Error::Full)) {
                if state.core.gathers() {
                    state.brisk += 1;
                } else {
                    let now = self.time(&mut state);
                    self.leave(state, now);
                }
                return done;
            }
        }
        let now = self.time(&mut state);
        self.go_on(state, now, patience, attempt)
    }

    /// Sends a message: at once, if that is all there is to say.
    #[inline]
    pub fn send(
        &self,
        patience: Patience,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut state = self.lock();
        if state.core.flows {
            let attempt = self.sending(id, channel, bytes);
            return self.go_briskly(state, Core::gathers_messages, patience, attempt);
        }
        let now = self.time(&mut state);
        if !state.core.send_at_once(now, &self.socket, id, channel, bytes) {
            return self.go_on(state, now, patience, self.sending(id, channel, bytes));
        }
        // Before that nothing was due, and it left nothing unsaid.
        self.leave_silently(state, now);
        Ok(())
    }

    #[inline]
    fn sending<'a>(
        &'a self,
        id: ConnectionId,
        channel: u16,
        bytes: &'a [u8],
    ) -> impl FnMut(&mut Core, Instant) -> Result<(), Error> + 'a {
        move |core, now| {
            core.send(now, id, channel, bytes)?;
            core.send_only_frame(now, &self.socket, id);
            Ok(())
        }
    }

    /// Takes the next message of a channel into `message`, whatever that held: if there is none, from the socket, if it is
    /// the next to come.
    #[inline]
    pub fn receive(
        &self,
        patience: Patience,
        id: ConnectionId,
        channel: u16,
        message: &mut Buffer,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        if let Patience::Endless = patience
            && state.core.awaits(id, channel)
            && let Some(mut rooms) = state.core.rooms.take()
        {
            let now = state.now;
            self.arm(&mut state, now);
            drop(state);
            let received = rooms.receive(&self.socket, true);
            state = self.lock();
            let now = self.time(&mut state);
            if received.is_ok() && state.core.take_at_once(now, &rooms, id, channel, message) {
                state.core.rooms = Some(rooms);
                self.note_exchange(&mut state);
                self.leave_quietly(state, now);
                return Ok(());
            }
            state.exchanges = 0;
            state.core.take_received(now, rooms, received);
        }
        message.clear();
        self.go_briskly(state, Core::gathers, patience, move |core, now| core.take(now, id, channel, message))
    }

    /// Connects the socket to a peer with whom questions and answers have long been all there is. It takes longer each time:
    /// whoever is to be woken, and whoever else comes, takes it back.
    #[inline]
    fn note_exchange(&self, state: &mut State) {
        state.exchanges = state.exchanges.saturating_add(1);
        if state.exchanges == state.connects_at {
            // Where it cannot be, that is tried more and more seldom.
            state.connects_at = state.connects_at.saturating_mul(2);
            if state.core.connect_socket(&self.socket) {
                // The helper is to hear the others.
                match state.at_bell {
                    true => self.bell.wake(),
                    false => self.timer.notify_one(),
                }
            }
        }
    }

    /// Goes on trying.
    #[inline]
    fn go_on<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        mut now: Instant,
        patience: Patience,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let end = match patience {
            Patience::Endless => Instant::MAX,
            Patience::For(duration) => now + Span::from(duration),
        };
        loop {
            match attempt(&mut state.core, now) {
                Err(Error::NotYet | Error::Full) => {}
                done => {
                    self.leave(state, now);
                    return done;
                }
            }
            if state.core.may_speak(now) {
                // It may be about to tell just what is waited for.
                state.core.transmit(now, &self.socket);
                if state.core.news {
                    self.notify_waiting(&mut state);
                    continue;
                }
            }
            if now >= end {
                self.leave(state, now);
                return Err(Error::TimedOut);
            }
            (state, now) = self.wait(state, now, end);
        }
    }

    /// Waits for something to happen: receives for all, or follows whoever does.
    #[inline]
    fn wait<'a>(&'a self, mut state: Guard<'a>, now: Instant, end: Instant) -> (Guard<'a>, Instant) {
        if state.core.flows && state.core.listen(now, &self.socket) {
            // In full flow what is waited for is mostly there: nobody needs to keep the time for so long.
            let now = self.time(&mut state);
            return (state, now);
        }
        state.patience = state.patience.min(end);
        let rooms = state.core.rooms.take();
        self.arm(&mut state, now);
        match rooms {
            None => {
                state.followers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.followers -= 1;
                let now = self.time(&mut state);
                (state, now)
            }
            Some(mut rooms) => {
                drop(state);
                let received = rooms.receive(&self.socket, true);
                let mut state = self.lock();
                let now = self.time(&mut state);
                state.core.take_received(now, rooms, received);
                (state, now)
            }
        }
    }

    /// Lets the endpoint speak, and goes.
    #[inline]
    pub fn leave(&self, mut state: Guard<'_>, now: Instant) {
        if state.core.should_speak(now) {
            state.core.transmit(now, &self.socket);
            self.notify_waiting(&mut state);
        }
        state.attended = now;
        self.arm(&mut state, now);
        if state.followers > 0 && state.core.rooms.is_some() {
            self.changed.notify_one();
        }
    }

    /// Goes, where nothing was told and mostly nothing is left unsaid.
    #[inline(always)]
    fn leave_quietly(&self, mut state: Guard<'_>, now: Instant) {
        if state.core.may_speak(now) {
            return self.leave(state, now);
        }
        self.leave_silently(state, now);
    }

    /// Goes, where nothing was told and nothing is left unsaid.
    #[inline(always)]
    fn leave_silently(&self, mut state: Guard<'_>, now: Instant) {
        if state.followers > 0 {
            return self.leave(state, now);
        }
        state.attended = now;
        self.arm_for(&mut state, now, false);
    }

    /// Tells those that wait that something has happened. Whoever leads is woken too, unless it is the caller.
    #[inline]
    fn notify_waiting(&self, state: &mut State) {
        if std::mem::take(&mut state.core.news) {
            if state.followers > 0 {
                self.changed.notify_all();
            }
            if state.core.rooms.is_none() {
                self.socket.wake();
            }
        }
    }

    /// Sees to it that the helper wakes in time.
    #[inline]
    fn arm(&self, state: &mut State, now: Instant) {
        let may_speak = state.core.may_speak(now);
        self.arm_for(state, now, may_speak);
    }

    /// The same, where it is known whether something may be left to say.
    #[inline(always)]
    fn arm_for(&self, state: &mut State, now: Instant, may_speak: bool) {
        let mut by = (state.core.deadline + state.lazy).min(state.patience);
        let alone = state.core.rooms.is_some();
        if alone && state.core.flows {
            // What is due is done when the next messages are sent.
            by = by.max(now + state.nap);
        }
        if alone && !state.listening || may_speak {
            by = by.min(now + state.nap);
        }
        // Nobody is there any more to be in time for.
        let by = if state.core.handles == 0 { now } else { by };
        // Not for what is no longer than timers are late anyway: in question and answer each answer's deadline is a little
        // earlier than its question's.
        if by + SLACK < state.alarm {
            state.alarm = by;
            match state.at_bell {
                true => self.bell.wake(),
                false => self.timer.notify_one(),
            }
        }
    }

    /// Keeps the time, and hears the socket while nobody does.
    fn help(&self) {
        let mut state = self.lock();
        loop {
            let now = self.time(&mut state);
            let vain = !state.core.should_speak(now);
            state.nap = if vain { (state.nap * 2).min(LONGEST_NAP) } else { GRACE };
            state.lazy = if vain { (state.lazy * 2).max(LEAST_LAZY).min(LAZIEST) } else { Span::ZERO };
            if state.core.may_speak(now) && (!vain || state.core.rooms.is_none()) {
                state.core.transmit(now, &self.socket);
            }
            if state.patience <= now {
                // All look at the time, and say again how long they wait.
                (state.patience, state.core.news) = (Instant::MAX, true);
            }
            self.notify_waiting(&mut state);
            if state.core.is_over() {
                return;
            }
            let leads = state.core.rooms.is_none();
            let mut at = (state.core.deadline + state.lazy).min(state.patience);
            if state.core.flows && !leads {
                at = at.max(now + state.nap);
            }
            let quiet = state.attended + TICK;
            let hears = !leads && quiet <= now && !state.core.has_failed();
            // One that leads for long says so by `arm` when it leaves.
            let alarm = if hears || quiet <= now { at } else { at.min(now + state.nap) };
            let door = self.socket.unconnected_socket().filter(|_| !state.core.has_failed());
            if hears || door.is_some() {
                state = self.listen(state, now, alarm, hears, door.as_deref());
                continue;
            }
            state.alarm = alarm;
            state = match state.alarm {
                Instant::MAX => self.timer.wait(state).unwrap_or_else(PoisonError::into_inner),
                alarm => {
                    let span = Duration::from(alarm.since(now));
                    self.timer.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits until `at` for the socket, if it is to be heard, and for the door, if there is one, and takes what came, unless
    /// somebody else does.
    fn listen<'a>(
        &'a self,
        mut state: Guard<'a>,
        now: Instant,
        at: Instant,
        hears: bool,
        door: Option<&UdpSocket>,
    ) -> Guard<'a> {
        (state.alarm, state.at_bell, state.listening) = (at, true, hears);
        drop(state);
        let (socket, door_fd) = (hears.then(|| self.socket.as_fd()), door.map(AsFd::as_fd));
        let sockets: Vec<_> = socket.into_iter().chain(door_fd).collect();
        // A wait that fails is no worse than one that was cut short.
        let _ = self.bell.wait(&sockets, (at < Instant::MAX).then(|| at.since(now)));
        let mut state = self.lock();
        let now = self.time(&mut state);
        (state.at_bell, state.listening) = (false, false);
        let came = door.is_some_and(|door| state.core.listen_at(now, door));
        if let Some(door) = door.filter(|_| came) {
            // There are others, and whoever leads is to hear them. What came to the door until it closed is still there.
            self.socket.wake();
            state.core.listen_at(now, door);
        }
        if hears {
            state.core.listen(now, &self.socket);
        }
        if hears || came {
            state.core.transmit(now, &self.socket);
        }
        state
    }
}

/// While deadlines only ever move, as those of questions do that are answered, the helper comes ever later, up to so much: in vain
/// anyhow, and it takes the processor from who asks.
const LEAST_LAZY: Span = Span::from_us(20);
const LAZIEST: Span = Span::from_us(640);

/// How exactly the system wakes a thread, if nobody asks for better.
const SLACK: Span = Span::from_us(50);
/// Questions and answers after which the socket is connected to their peer first.
const CONNECTS_AT: u32 = 64;
/// Calls in a row that may do without the time.
const BRISK: u32 = 8;
/// Longest nap: what a thread in full flow leaves unsaid when it goes away without waiting may stay so for so long.
const LONGEST_NAP: Span = TICK;
/// How long nobody may have received before the helper does.
const TICK: Span = Span::from_ms(1);

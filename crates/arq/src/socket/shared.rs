//! The blocking socket's threads: which one receives, and which one keeps the deadlines.
//!
//! A waiting thread receives without holding the lock, so no thread has to be woken between a datagram and its
//! reader. If several threads wait, one leads (receives) and the others follow; a leader that is done passes the lead
//! on. A helper thread keeps the deadlines. It sleeps until the first deadline known when it fell asleep: a deadline
//! that moves later causes one needless wakeup, which costs less than notifying the helper each time. While no thread
//! leads, for [`UNATTENDED`] or longer, the helper receives. If the socket is connected to its only active peer
//! ([`Core::connect_socket`]), the helper always receives from other peers on the unconnected socket.
//!
//! In full flow most calls only add a message to those that are delayed, or take one of many. Such a call takes a
//! fast path: it does not read the clock, which would be a fifth of its cost, and sets no deadline, because the call
//! that delayed the first message has set it. Every [`MAX_CALLS_WITHOUT_CLOCK`]th call reads the clock.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use trunkline_io::datagrams::Waker;
use trunkline_io::usage::CpuTime;
use trunkline_io::{Clock, Datagrams};
use trunkline_units::{Instant, Span};

use super::core::{self, Core, MAX_TRANSMIT_DELAY};
use super::{Error, Settings};
use crate::{Buffer, ConnectionId, Options};

pub(super) struct Shared {
    pub socket: Datagrams,
    pub clock: Clock,
    state: Mutex<State>,
    /// Wakes the followers: state changed, or no thread leads.
    changed: Condvar,
    /// Wakes the sleeping helper earlier.
    timer: Condvar,
    waker: Waker,
}

/// The state behind the lock.
pub(super) struct State {
    pub core: Core,
    /// The last reading of the clock, and the calls since then without one.
    now: Instant,
    calls_without_clock: u32,
    followers: usize,
    /// The earliest timeout of a waiting call.
    first_timeout: Instant,
    /// Last time that a thread led or transmitted.
    attended_at: Instant,
    /// Consecutive request-response exchanges with one peer, and the number after which the socket is connected to
    /// it.
    exchanges: u32,
    connects_at: u32,
    /// Delay of the helper after a deadline.
    helper_slack: Span,
    /// When the helper wakes, whether it waits for the waker until then, and whether it receives.
    helper_wakes_at: Instant,
    is_helper_waiting: bool,
    /// Sleep of the helper while other threads attend to the socket: longer after each needless wakeup.
    poll_interval: Span,
    is_helper_receiving: bool,
    /// Processor time of the helper, if the socket is observed.
    pub helper_cpu: CpuTime,
    /// The next waiting call ends.
    is_interrupted: bool,
}

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Shared {
    /// Opens a socket and starts its helper thread.
    pub fn open(
        local: SocketAddr,
        accept: Option<&Options>,
        settings: &Settings,
    ) -> Result<Arc<Shared>, Error> {
        let (socket, clock, core) = core::open(local, accept, settings)?;
        let now = clock.now();
        let state = State {
            core,
            now,
            calls_without_clock: 0,
            followers: 0,
            first_timeout: Instant::MAX,
            attended_at: now,
            exchanges: 0,
            connects_at: EXCHANGES_TO_CONNECT,
            helper_slack: Span::ZERO,
            helper_wakes_at: Instant::MAX,
            is_helper_waiting: false,
            poll_interval: MAX_TRANSMIT_DELAY,
            is_helper_receiving: false,
            helper_cpu: CpuTime::default(),
            is_interrupted: false,
        };
        let (changed, timer) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared {
            socket,
            clock,
            state: Mutex::new(state),
            changed,
            timer,
            waker: Waker::new()?,
        });
        shared.lock().core.handles += 1;
        let helper = shared.clone();
        thread::Builder::new()
            .name("arq".into())
            .spawn(move || helper.run_helper())
            .map_err(Error::System)?;
        Ok(shared)
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        // A panic under the lock is a bug in this crate; later callers may see it too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn time(&self, state: &mut State) -> Instant {
        (state.now, state.calls_without_clock) = (self.clock.now(), 0);
        state.now
    }

    /// Attempts an operation once.
    #[inline]
    pub fn now<T>(&self, attempt: impl FnOnce(&mut Core, Instant) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let done = attempt(&mut state.core, now);
        self.leave(state, now);
        done
    }

    /// Attempts an operation, and again after receiving what is pending.
    #[inline]
    pub fn once<T>(
        &self,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let mut done = attempt(&mut state.core, now);
        if let Err(Error::NotYet | Error::Full | Error::NotEnough(_)) = done {
            // A caller that never waits must still receive.
            state.core.receive_pending(now, &self.socket);
            state.core.transmit(now, &self.socket);
            done = attempt(&mut state.core, now);
        }
        self.leave(state, now);
        done
    }

    /// Releases a handle after `end` ends its use.
    pub fn release(&self, end: impl FnOnce(&mut Core, Instant)) {
        let mut state = self.lock();
        let now = self.time(&mut state);
        end(&mut state.core, now);
        state.core.handles -= 1;
        self.leave(state, now);
    }

    /// Ends a waiting call, or the next one.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        (state.is_interrupted, state.core.has_changed) = (true, true);
        self.notify_waiting(&mut state);
    }

    /// Repeats an operation until it returns neither [`Error::NotYet`] nor [`Error::Full`], or the timeout expires.
    #[inline]
    pub fn until<T>(
        &self,
        timeout: Option<Duration>,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        self.retry(state, now, timeout, attempt)
    }

    /// Like [`until`](Self::until), on the fast path if `may` allows it and the operation succeeds immediately.
    #[inline]
    pub fn try_fast<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        may: impl FnOnce(&Core) -> bool,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if state.calls_without_clock < MAX_CALLS_WITHOUT_CLOCK && may(&state.core) {
            let now = state.now;
            let done = attempt(&mut state.core, now);
            if !matches!(done, Err(Error::NotYet | Error::Full)) {
                if state.core.delays_output() {
                    state.calls_without_clock += 1;
                } else {
                    let now = self.time(&mut state);
                    self.leave(state, now);
                }
                return done;
            }
        }
        let now = self.time(&mut state);
        self.retry(state, now, timeout, attempt)
    }

    /// Sends a message; immediately, if its frame is the only output.
    #[inline]
    pub fn send(
        &self,
        timeout: Option<Duration>,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let attempt = |core: &mut Core, now| core.send(now, id, channel, bytes);
        if state.core.in_full_flow {
            return self.try_fast(state, Core::delays_messages, timeout, attempt);
        }
        let now = self.time(&mut state);
        if !state.core.send_directly(now, &self.socket, id, channel, bytes) {
            return self.retry(state, now, timeout, attempt);
        }
        // Nothing was due before, and no output is pending.
        self.leave_without_output(state, now);
        Ok(())
    }

    /// Takes the next message of a channel into `message`, whose contents are replaced. Without a queued message it
    /// reads the socket, and returns the message directly if it is the next to arrive.
    #[inline]
    pub fn receive(
        &self,
        timeout: Option<Duration>,
        id: ConnectionId,
        channel: u16,
        message: &mut Buffer,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        if timeout.is_none()
            && !state.is_interrupted
            && state.core.can_take_directly(id, channel)
            && let Some(mut buffers) = state.core.take_buffers()
        {
            let now = state.now;
            self.wake_helper_in_time(&mut state, now);
            drop(state);
            let received = buffers.receive(&self.socket, true);
            state = self.lock();
            let now = self.time(&mut state);
            if received.is_ok() && state.core.take_directly(now, &buffers, id, channel, message) {
                state.core.buffers = Some(buffers);
                self.note_exchange(&mut state);
                match state.core.may_transmit(now) {
                    true => self.leave(state, now),
                    false => self.leave_without_output(state, now),
                }
                return Ok(());
            }
            state.exchanges = 0;
            state.core.handle_received(now, buffers, received);
        }
        message.clear();
        self.try_fast(state, Core::delays_output, timeout, move |core, now| {
            core.take(now, id, channel, message)
        })
    }

    /// Connects the socket to a peer after a series of exchanges with it alone. A wakeup of a waiting thread, or
    /// another peer, disconnects it; each time the required series is longer.
    #[inline]
    fn note_exchange(&self, state: &mut State) {
        state.exchanges = state.exchanges.saturating_add(1);
        if state.exchanges == state.connects_at {
            // If connecting fails, retry less and less often.
            state.connects_at = state.connects_at.saturating_mul(2);
            if state.core.connect_socket(&self.socket) {
                // The helper must receive from other peers.
                self.wake_helper(state);
            }
        }
    }

    /// Repeats an operation that cannot complete yet.
    #[inline]
    fn retry<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        mut now: Instant,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let end = timeout.map_or(Instant::MAX, |duration| now + Span::from(duration));
        loop {
            match attempt(&mut state.core, now) {
                Err(Error::NotYet | Error::Full) => {}
                done => {
                    self.leave(state, now);
                    return done;
                }
            }
            if state.core.may_transmit(now) {
                // Its output may complete the operation.
                state.core.transmit(now, &self.socket);
                if state.core.has_changed {
                    self.notify_waiting(&mut state);
                    continue;
                }
            }
            if now >= end || state.is_interrupted {
                let was_interrupted = std::mem::take(&mut state.is_interrupted);
                self.leave(state, now);
                return Err(if was_interrupted { Error::Interrupted } else { Error::TimedOut });
            }
            (state, now) = self.wait(state, now, end);
        }
    }

    /// Waits for a change: receives for all threads, or follows the thread that does.
    #[inline]
    fn wait<'a>(&'a self, mut state: Guard<'a>, now: Instant, end: Instant) -> (Guard<'a>, Instant) {
        if state.core.in_full_flow && state.core.receive_pending(now, &self.socket) {
            // In full flow the awaited frames have mostly arrived: no deadline is needed for so short a wait.
            let now = self.time(&mut state);
            return (state, now);
        }
        state.first_timeout = state.first_timeout.min(end);
        let buffers = state.core.take_buffers();
        self.wake_helper_in_time(&mut state, now);
        match buffers {
            None => {
                state.followers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.followers -= 1;
                let now = self.time(&mut state);
                (state, now)
            }
            Some(mut buffers) => {
                drop(state);
                let received = buffers.receive(&self.socket, true);
                let mut state = self.lock();
                let now = self.time(&mut state);
                state.core.handle_received(now, buffers, received);
                (state, now)
            }
        }
    }

    /// Transmits pending output and releases the lock.
    #[inline]
    pub fn leave(&self, mut state: Guard<'_>, now: Instant) {
        if state.core.should_transmit(now) {
            state.core.transmit(now, &self.socket);
            self.notify_waiting(&mut state);
        }
        state.attended_at = now;
        self.wake_helper_in_time(&mut state, now);
        if state.followers > 0 && state.core.buffers.is_some() {
            self.changed.notify_one();
        }
    }

    /// Releases the lock after a call without events and pending output.
    #[inline(always)]
    fn leave_without_output(&self, mut state: Guard<'_>, now: Instant) {
        if state.followers > 0 {
            return self.leave(state, now);
        }
        state.attended_at = now;
        self.wake_helper_if(&mut state, now, false);
    }

    /// Wakes the waiting threads after a change. Also wakes the leader, unless it is the caller.
    #[inline]
    fn notify_waiting(&self, state: &mut State) {
        if std::mem::take(&mut state.core.has_changed) {
            if state.followers > 0 {
                self.changed.notify_all();
            }
            if state.core.buffers.is_none() {
                self.socket.wake();
            }
        }
    }

    /// Makes the helper wake in time.
    #[inline]
    fn wake_helper_in_time(&self, state: &mut State, now: Instant) {
        let may_transmit = state.core.may_transmit(now);
        self.wake_helper_if(state, now, may_transmit);
    }

    /// Makes the helper wake in time. Set `may_transmit` if output may be pending.
    #[inline(always)]
    fn wake_helper_if(&self, state: &mut State, now: Instant, may_transmit: bool) {
        let mut by = (state.core.deadline + state.helper_slack).min(state.first_timeout);
        let no_leader = state.core.buffers.is_some();
        if no_leader && state.core.in_full_flow {
            // The next send handles what is due.
            by = by.max(now + state.poll_interval);
        }
        if no_leader && !state.is_helper_receiving || may_transmit {
            by = by.min(now + state.poll_interval);
        }
        // Without handles no deadline matters.
        let by = if state.core.handles == 0 { now } else { by };
        // Skip differences within the accuracy of timers: in request-response traffic the deadline after each
        // response is slightly earlier than the one after its request.
        if by + TIMER_SLACK < state.helper_wakes_at {
            state.helper_wakes_at = by;
            self.wake_helper(state);
        }
    }

    #[inline(always)]
    fn wake_helper(&self, state: &State) {
        match state.is_helper_waiting {
            true => self.waker.wake(),
            false => self.timer.notify_one(),
        }
    }

    /// Runs the helper: keeps deadlines, and receives while no thread leads.
    fn run_helper(&self) {
        let mut state = self.lock();
        loop {
            let now = self.time(&mut state);
            if state.core.probe.is_some() {
                state.helper_cpu = CpuTime::of_this_thread();
            }
            let needless = !state.core.should_transmit(now);
            state.poll_interval =
                if needless { (state.poll_interval * 2).min(MAX_POLL_INTERVAL) } else { MAX_TRANSMIT_DELAY };
            state.helper_slack = if needless {
                (state.helper_slack * 2).max(MIN_HELPER_SLACK).min(MAX_HELPER_SLACK)
            } else {
                Span::ZERO
            };
            if state.core.may_transmit(now) && (!needless || state.core.buffers.is_none()) {
                state.core.transmit(now, &self.socket);
            }
            if state.first_timeout <= now {
                // All waiting threads read the clock and report their timeouts again.
                (state.first_timeout, state.core.has_changed) = (Instant::MAX, true);
            }
            self.notify_waiting(&mut state);
            if state.core.is_over() {
                return;
            }
            let leads = state.core.buffers.is_none();
            let mut at = (state.core.deadline + state.helper_slack).min(state.first_timeout);
            if state.core.in_full_flow && !leads {
                at = at.max(now + state.poll_interval);
            }
            let quiet = state.attended_at + UNATTENDED;
            let receives = !leads && quiet <= now && !state.core.has_failed();
            // A thread that leads for long calls `wake_helper_in_time` when it leaves.
            let wake_at = if receives || quiet <= now { at } else { at.min(now + state.poll_interval) };
            let unconnected = self.socket.unconnected_socket().filter(|_| !state.core.has_failed());
            if receives || unconnected.is_some() {
                state = self.helper_receive(state, now, wake_at, receives, unconnected.as_deref());
                continue;
            }
            state.helper_wakes_at = wake_at;
            state = match state.helper_wakes_at {
                Instant::MAX => self.timer.wait(state).unwrap_or_else(PoisonError::into_inner),
                wake_at => {
                    let span = Duration::from(wake_at.since(now));
                    self.timer.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits until `at` for the socket, if `receives`, and for the unconnected socket, if there is one; then receives,
    /// unless another thread does.
    fn helper_receive<'a>(
        &'a self,
        mut state: Guard<'a>,
        now: Instant,
        at: Instant,
        receives: bool,
        unconnected: Option<&UdpSocket>,
    ) -> Guard<'a> {
        (state.helper_wakes_at, state.is_helper_waiting, state.is_helper_receiving) = (at, true, receives);
        drop(state);
        let socket = receives.then(|| self.socket.as_fd());
        let sockets: Vec<_> = socket.into_iter().chain(unconnected.map(AsFd::as_fd)).collect();
        // A failed wait is equivalent to an interrupted one.
        let _ = self.waker.wait(&sockets, (at < Instant::MAX).then(|| at.since(now)));
        let mut state = self.lock();
        let now = self.time(&mut state);
        (state.is_helper_waiting, state.is_helper_receiving) = (false, false);
        let has_other_peers = unconnected.is_some_and(|socket| state.core.receive_unconnected(now, socket));
        if let Some(socket) = unconnected.filter(|_| has_other_peers) {
            // There are other peers, and the leader must receive from them. Datagrams that reached the unconnected
            // socket before it closed are still there.
            self.socket.wake();
            state.core.receive_unconnected(now, socket);
        }
        if receives {
            state.core.receive_pending(now, &self.socket);
        }
        if receives || has_other_peers {
            state.core.transmit(now, &self.socket);
        }
        state
    }
}

/// Bounds of the helper's delay. While deadlines only move later, as in request-response traffic, the helper wakes
/// later and later: its wakeups are needless and take processor time from the caller.
const MIN_HELPER_SLACK: Span = Span::from_us(20);
const MAX_HELPER_SLACK: Span = Span::from_us(640);

/// Default timer slack of Linux threads.
const TIMER_SLACK: Span = Span::from_us(50);
/// Exchanges before the socket is connected for the first time.
const EXCHANGES_TO_CONNECT: u32 = 64;
/// Consecutive calls that may skip the clock.
const MAX_CALLS_WITHOUT_CLOCK: u32 = 8;
/// Maximum sleep of the helper: output that a thread in full flow leaves pending may be delayed this long.
const MAX_POLL_INTERVAL: Span = UNATTENDED;
/// Time without a receiving thread after which the helper receives.
const UNATTENDED: Span = Span::from_ms(1);

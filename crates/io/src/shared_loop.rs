//! The event loop of several threads: a thread that waits receives, and a helper thread keeps the deadlines.
//!
//! A waiting thread receives without holding the lock, so that no thread has to be woken between a datagram and its
//! reader. If several threads wait, one leads (receives) and the others follow; a leader that is done passes the lead
//! on. The helper thread sleeps until the first deadline known when it fell asleep: a deadline that moves later causes
//! one needless wakeup, which costs less than notifying the helper each time. While no thread leads, for
//! [`Policy::unattended`] or longer, the helper receives.
//!
//! In full flow most calls only add to output that is deferred, or take one of many messages. Such a call neither
//! reads the clock, which would be a fifth of its cost, nor sets a deadline, because the call that deferred the first
//! output has set it. Every eighth call does both.
//!
//! The lock is fair: otherwise a thread that sends without pause takes it again and again before a woken thread runs.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use trunkline_units::{Instant, Span};

use crate::Clock;
use crate::datagrams::Waker;
use crate::usage::CpuTime;

/// Consecutive calls that may skip the clock.
const MAX_CALLS_WITHOUT_CLOCK: u32 = 8;
/// First step of the helper's slack.
const MIN_SLACK: Span = Span::from_us(20);

/// The network below a loop.
pub trait Link: AsFd + Send + Sync + 'static {
    /// Receive buffers, with what was received last.
    type Buffers: Send;

    /// Whether [`receive`](Link::receive) returns by itself when its time has passed.
    const LIMITS_WAITS: bool = false;

    /// Creates receive buffers.
    fn buffers(&self) -> Self::Buffers;

    /// Receives what is there. With `wait`, blocks until there is something, [`wake`](Link::wake) is called, or, if the
    /// link [limits waits](Link::LIMITS_WAITS), about that time has passed. One thread at a time receives.
    ///
    /// # Errors
    /// If the link has failed. Nothing received is no error.
    fn receive(&self, buffers: &mut Self::Buffers, wait: Option<Span>) -> io::Result<()>;

    /// Returns whether the last call received something.
    fn has_received(buffers: &Self::Buffers) -> bool;

    /// Unblocks the receiving thread, now or within 50 ms.
    fn wake(&self, now: Instant);

    /// Returns a second socket of the link, if it has one at present. Only the helper receives from it.
    fn second_socket(&self) -> Option<Arc<UdpSocket>> {
        None
    }
}

/// The state behind the lock: an endpoint, and the events that callers wait for.
///
/// A method that takes the link never blocks.
pub trait Service: Send + 'static {
    /// The network.
    type Link: Link;
    /// The error of a call.
    type Error: From<WaitError>;
    /// What a thread waits for that can take it directly from the link.
    type Target;

    /// Returns whether an operation failed only because it has to wait.
    fn must_wait(error: &Self::Error) -> bool;

    /// Begins to receive for a thread that waits for `target`. What it receives is processed next, and then the thread
    /// tries its operation again, before any other thread gets the lock.
    fn begin_receive(&mut self, _target: Option<Self::Target>) {}

    /// Processes what the link received.
    fn handle_received(
        &mut self,
        now: Instant,
        link: &Self::Link,
        buffers: &<Self::Link as Link>::Buffers,
        received: io::Result<()>,
    );

    /// Processes what the [second socket](Link::second_socket) received; returns whether there was anything.
    fn handle_second_socket(&mut self, _now: Instant, _socket: &UdpSocket) -> bool {
        false
    }

    /// Returns, once, whether the link has a new second socket.
    fn take_has_second_socket(&mut self) -> bool {
        false
    }

    /// Returns whether to receive what is there before the next [`transmit`](Service::transmit).
    fn receives_first(&mut self, _now: Instant) -> bool {
        false
    }

    /// Runs expired timers and sends all output.
    fn transmit(&mut self, now: Instant, link: &Self::Link);

    /// Returns whether there may be output, even if it is deferred.
    fn has_output(&self) -> bool;

    /// Returns whether to transmit now: there is output that is not deferred, or a timer has expired.
    fn should_transmit(&mut self, call: &mut Call<Self::Target>) -> bool;

    /// Returns whether output may be deferred, and so may the output of further calls.
    fn defers_output(&self) -> bool {
        false
    }

    /// Returns whether callers send without pause: then they run timers, and the helper may be late.
    fn is_in_full_flow(&self) -> bool {
        false
    }

    /// Returns the next deadline, or earlier.
    fn deadline(&self) -> Instant;

    /// Returns whether something changed since the last call that waiting threads may wait for.
    fn take_changed(&mut self) -> bool;

    /// Returns whether the link can be received from.
    fn can_receive(&self) -> bool;

    /// Returns the error with which calls end that have to wait, if the link has failed.
    fn failure(&self) -> Option<Self::Error> {
        None
    }

    /// Returns whether the loop ends, now that no handle is left. It is asked again after each deadline.
    fn is_over(&mut self, now: Instant) -> bool;
}

/// Why a waiting call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The timeout passed.
    TimedOut,
    /// [`SharedLoop::interrupt`] was called.
    Interrupted,
}

/// How threads share the work.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether waiting callers receive. If not, only the helper does.
    pub callers_receive: bool,
    /// Time without a receiving thread after which the helper receives.
    pub unattended: Span,
    /// Shortest and longest sleep of the helper while callers receive: longer after each needless wakeup.
    pub check_interval: (Span, Span),
    /// Longest delay of the helper after deadlines that only ever move later, as in request-response traffic: its
    /// wakeups are needless then and take processor time from the caller.
    pub max_slack: Span,
    /// Differences between deadlines that are not worth waking the helper for.
    pub timer_slack: Span,
}

/// A call of a user. Its clock is read on first use, because a reading costs about a hundred instructions.
#[derive(Debug)]
pub struct Call<T> {
    clock: Clock,
    /// Zero until the clock is read.
    read: Instant,
    recent: Instant,
    can_lead: bool,
    target: Option<T>,
}

impl<T> Call<T> {
    /// Returns the time of the call.
    #[inline]
    pub fn now(&mut self) -> Instant {
        if self.read == Instant::ZERO {
            self.read = self.clock.now();
        }
        self.read
    }

    /// Returns the time of the call if the clock was read, otherwise that of an earlier call.
    #[inline]
    pub fn recent(&self) -> Instant {
        if self.read == Instant::ZERO { self.recent } else { self.read }
    }

    /// Returns whether the calling thread receives if it has to wait now.
    #[inline]
    pub fn can_lead(&self) -> bool {
        self.can_lead
    }

    /// Sets what the calling thread waits for, if it receives: see [`Service::begin_receive`].
    #[inline]
    pub fn set_target(&mut self, target: T) {
        self.target = Some(target);
    }
}

/// An endpoint on a link, shared by threads.
pub struct SharedLoop<S: Service> {
    link: S::Link,
    clock: Clock,
    policy: Policy,
    state: Mutex<State<S>>,
    /// Wakes the followers: something changed, or no thread leads.
    changed: Condvar,
    /// Wakes the sleeping helper earlier, and the helper that waits for the link.
    timer: Condvar,
    waker: Waker,
}

/// The state behind the lock.
pub struct State<S: Service> {
    /// The endpoint and its events.
    pub service: S,
    /// The receive buffers, unless a thread is receiving.
    buffers: Option<<S::Link as Link>::Buffers>,
    /// The last reading of the clock, and the calls since then without one.
    recent: Instant,
    calls_without_clock: u32,
    followers: usize,
    /// The earliest timeout of a waiting call.
    first_timeout: Instant,
    /// When a caller last received or left.
    attended_at: Instant,
    helper_slack: Span,
    check_interval: Span,
    /// When the helper wakes, whether it waits for sockets until then and receives from the link, and its processor
    /// time.
    helper_wakes_at: Instant,
    is_helper_polling: bool,
    is_helper_receiving: bool,
    helper_cpu: CpuTime,
    handles: usize,
    /// The next waiting call ends.
    is_interrupted: bool,
}

/// The lock.
pub type Guard<'a, S> = MutexGuard<'a, State<S>>;

impl<S: Service> SharedLoop<S> {
    /// Starts the loop with one handle, and its helper thread, which ends after the last
    /// [release](SharedLoop::release).
    ///
    /// # Errors
    /// If the system has no thread or pipe left.
    pub fn start(
        name: &str,
        link: S::Link,
        clock: Clock,
        service: S,
        policy: Policy,
    ) -> io::Result<(Arc<SharedLoop<S>>, JoinHandle<()>)> {
        let now = clock.now();
        let state = State {
            service,
            buffers: Some(link.buffers()),
            recent: now,
            calls_without_clock: 0,
            followers: 0,
            first_timeout: Instant::MAX,
            attended_at: now,
            helper_slack: Span::ZERO,
            check_interval: policy.check_interval.0,
            helper_wakes_at: Instant::MAX,
            is_helper_polling: false,
            is_helper_receiving: false,
            helper_cpu: CpuTime::default(),
            handles: 1,
            is_interrupted: false,
        };
        let (state, changed, timer) = (Mutex::new(state), Condvar::new(), Condvar::new());
        let shared =
            Arc::new(SharedLoop { link, clock, policy, state, changed, timer, waker: Waker::new()? });
        let helper = shared.clone();
        let helper = thread::Builder::new().name(name.into()).spawn(move || helper.run_helper())?;
        Ok((shared, helper))
    }

    /// Returns the link.
    #[inline]
    pub fn link(&self) -> &S::Link {
        &self.link
    }

    /// Locks the state, to look at it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, S> {
        self.state.lock()
    }

    /// Returns the processor time of the helper thread, up to its last wakeup.
    pub fn helper_cpu(&self) -> CpuTime {
        self.lock().helper_cpu
    }

    #[inline]
    fn call(&self, state: &State<S>) -> Call<S::Target> {
        Call {
            clock: self.clock,
            read: Instant::ZERO,
            recent: state.recent,
            can_lead: self.can_lead(state),
            target: None,
        }
    }

    #[inline]
    fn can_lead(&self, state: &State<S>) -> bool {
        self.policy.callers_receive && state.buffers.is_some()
    }

    /// Runs an operation once.
    ///
    /// # Errors
    /// The operation's.
    #[inline]
    pub fn run<T>(
        &self,
        attempt: impl FnOnce(&mut S, &S::Link, Instant) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let mut state = self.lock();
        let mut call = self.call(&state);
        let result = attempt(&mut state.service, &self.link, call.now());
        self.leave(state, &mut call);
        result
    }

    /// Tries an operation, and once more after receiving what is there.
    ///
    /// # Errors
    /// The operation's.
    #[inline]
    pub fn try_twice<T>(
        &self,
        mut attempt: impl FnMut(&mut S, &S::Link, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let mut state = self.lock();
        let mut call = self.call(&state);
        let mut result = attempt(&mut state.service, &self.link, &mut call);
        if result.as_ref().is_err_and(S::must_wait) {
            // A caller that never waits must still receive.
            self.receive_pending(&mut state, call.now());
            self.transmit(&mut state, call.now());
            result = attempt(&mut state.service, &self.link, &mut call);
        }
        self.leave(state, &mut call);
        result
    }

    /// Repeats an operation until it no longer has to wait, at most for `timeout`.
    ///
    /// # Errors
    /// The operation's, and those of [`WaitError`].
    #[inline]
    pub fn until<T>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut S, &S::Link, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let mut state = self.lock();
        let mut call = self.call(&state);
        let mut end = None;
        loop {
            call.can_lead = self.can_lead(&state);
            match attempt(&mut state.service, &self.link, &mut call) {
                Err(error) if S::must_wait(&error) => {}
                result => {
                    self.leave(state, &mut call);
                    return result;
                }
            }
            if state.service.has_output() || state.service.deadline() <= call.recent() {
                // It may complete the operation.
                self.transmit(&mut state, call.now());
                if self.notify_changed(&mut state, call.now()) {
                    continue;
                }
            }
            if let Some(error) = state.service.failure() {
                self.leave(state, &mut call);
                return Err(error);
            }
            if let Some(timeout) = timeout {
                end = Some(end.unwrap_or_else(|| call.now() + Span::from(timeout)));
            }
            if state.is_interrupted || end.is_some_and(|end| end <= call.now()) {
                let error = match std::mem::take(&mut state.is_interrupted) {
                    true => WaitError::Interrupted,
                    false => WaitError::TimedOut,
                };
                self.leave(state, &mut call);
                return Err(error.into());
            }
            state = self.wait(state, &mut call, end);
        }
    }

    /// Ends a waiting call, or else the next one that has to wait.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.is_interrupted = true;
        self.notify_all(&state, self.clock.now());
    }

    /// Adds a handle.
    pub fn retain(&self) {
        self.lock().handles += 1;
    }

    /// Removes a handle. After the last one the loop ends as soon as its service [is over](Service::is_over).
    pub fn release(&self) {
        let mut state = self.lock();
        state.handles -= 1;
        let mut call = self.call(&state);
        call.now();
        self.leave(state, &mut call);
    }

    /// Waits for a change: receives for all threads, or follows the thread that does.
    #[inline]
    fn wait<'a>(
        &'a self,
        mut state: Guard<'a, S>,
        call: &mut Call<S::Target>,
        end: Option<Instant>,
    ) -> Guard<'a, S> {
        if state.service.is_in_full_flow() && self.receive_pending(&mut state, call.now()) {
            // In full flow what is awaited has mostly arrived: no deadline is needed for so short a wait.
            call.read = self.clock.now();
            return state;
        }
        let buffers = if call.can_lead { state.buffers.take() } else { None };
        if buffers.is_none() || !S::Link::LIMITS_WAITS {
            state.first_timeout = state.first_timeout.min(end.unwrap_or(Instant::MAX));
        }
        self.arm_helper(&mut state, call.recent());
        let Some(mut buffers) = buffers else {
            state.followers += 1;
            self.changed.wait(&mut state);
            state.followers -= 1;
            call.read = self.clock.now();
            return state;
        };
        state.service.begin_receive(call.target.take());
        let limit = end.map_or(Span::MAX, |end| end.since(call.recent()));
        MutexGuard::unlock_fair(state);
        let received = self.link.receive(&mut buffers, Some(limit));
        let mut state = self.lock();
        call.read = self.clock.now();
        self.handle_received(&mut state, call.read, buffers, received);
        state
    }

    /// Processes what was received and stores the buffers; returns whether there was anything.
    #[inline]
    fn handle_received(
        &self,
        state: &mut State<S>,
        now: Instant,
        buffers: <S::Link as Link>::Buffers,
        received: io::Result<()>,
    ) -> bool {
        (state.recent, state.attended_at, state.calls_without_clock) = (now, now, 0);
        let has_received = S::Link::has_received(&buffers) || received.is_err();
        state.service.handle_received(now, &self.link, &buffers, received);
        state.buffers = Some(buffers);
        // The calling thread looks itself.
        self.notify_changed(state, now);
        if state.service.take_has_second_socket() {
            self.wake_helper(state);
        }
        has_received
    }

    #[inline]
    fn transmit(&self, state: &mut State<S>, now: Instant) {
        if state.service.receives_first(now) {
            self.receive_pending(state, now);
        }
        state.service.transmit(now, &self.link);
    }

    /// Receives what is there, unless another thread is receiving; returns whether there was anything.
    fn receive_pending(&self, state: &mut State<S>, now: Instant) -> bool {
        let Some(mut buffers) = state.buffers.take() else { return false };
        let received = self.link.receive(&mut buffers, None);
        self.handle_received(state, now, buffers, received)
    }

    /// Sends output that is due and releases the lock.
    #[inline]
    fn leave(&self, mut state: Guard<'_, S>, call: &mut Call<S::Target>) {
        if call.read == Instant::ZERO
            && state.service.defers_output()
            && state.calls_without_clock < MAX_CALLS_WITHOUT_CLOCK
        {
            state.calls_without_clock += 1;
            return;
        }
        if state.service.should_transmit(call) {
            self.transmit(&mut state, call.now());
            self.notify_changed(&mut state, call.now());
        }
        if call.read > Instant::ZERO {
            (state.recent, state.attended_at, state.calls_without_clock) = (call.read, call.read, 0);
        }
        self.arm_helper(&mut state, call.recent());
        if state.followers > 0 && state.buffers.is_some() {
            // Let another thread lead.
            self.changed.notify_one();
        }
        MutexGuard::unlock_fair(state);
    }

    /// Wakes the waiting threads after a change; returns whether there was one.
    #[inline]
    fn notify_changed(&self, state: &mut State<S>, now: Instant) -> bool {
        let has_changed = state.service.take_changed();
        if has_changed {
            self.notify_all(state, now);
        }
        has_changed
    }

    /// Wakes the waiting threads, and the leader unless it is the caller.
    fn notify_all(&self, state: &State<S>, now: Instant) {
        if state.followers > 0 {
            self.changed.notify_all();
        }
        if state.buffers.is_none() {
            self.link.wake(now);
        }
    }

    /// Makes the helper wake in time.
    #[inline]
    fn arm_helper(&self, state: &mut State<S>, now: Instant) {
        let mut by = (state.service.deadline() + state.helper_slack).min(state.first_timeout);
        let has_leader = state.buffers.is_none();
        if !has_leader && state.service.is_in_full_flow() {
            // The next call runs what is due.
            by = by.max(now + state.check_interval);
        }
        if !has_leader && !state.is_helper_receiving || state.service.has_output() {
            by = by.min(now + state.check_interval);
        }
        // Without handles no deadline matters.
        let by = if state.handles == 0 { now } else { by };
        if by + self.policy.timer_slack < state.helper_wakes_at {
            state.helper_wakes_at = by;
            self.wake_helper(state);
        }
    }

    fn wake_helper(&self, state: &State<S>) {
        match state.is_helper_polling {
            true => self.waker.wake(),
            false => _ = self.timer.notify_one(),
        }
    }

    /// Runs the helper: keeps deadlines, and receives while no other thread does.
    fn run_helper(&self) {
        let Policy { check_interval: (shortest, longest), max_slack, unattended, .. } = self.policy;
        let mut state = self.lock();
        loop {
            let mut call = self.call(&state);
            let at = call.now();
            (state.recent, state.helper_cpu) = (at, CpuTime::of_this_thread());
            if state.handles == 0 && state.service.is_over(at) {
                return;
            }
            if state.service.should_transmit(&mut call) {
                (state.check_interval, state.helper_slack) = (shortest, Span::ZERO);
                self.transmit(&mut state, at);
            } else {
                state.check_interval = (state.check_interval * 2).min(longest);
                state.helper_slack = (state.helper_slack * 2).max(MIN_SLACK).min(max_slack);
                if state.buffers.is_none() && state.service.has_output() {
                    self.transmit(&mut state, at);
                }
            }
            let has_timed_out = state.first_timeout <= at;
            if has_timed_out {
                // All waiting threads read the clock and report their timeouts again.
                state.first_timeout = Instant::MAX;
                self.changed.notify_all();
                if state.buffers.is_none() && !S::Link::LIMITS_WAITS {
                    self.link.wake(at);
                }
            }
            self.notify_changed(&mut state, at);
            if state.handles == 0 && state.service.is_over(at) {
                return;
            }
            state = self.sleep(state, at, unattended);
        }
    }

    /// Sleeps until something may be due for the helper, or receives until then.
    fn sleep<'a>(&'a self, mut state: Guard<'a, S>, now: Instant, unattended: Span) -> Guard<'a, S> {
        let has_leader = state.buffers.is_none();
        let mut until = (state.service.deadline() + state.helper_slack).min(state.first_timeout);
        if state.service.is_in_full_flow() && !has_leader {
            until = until.max(now + state.check_interval);
        }
        let is_unattended = state.attended_at + unattended <= now;
        let receives = !has_leader && is_unattended && state.service.can_receive();
        if !is_unattended {
            // A thread that leads for long arms the helper when it leaves.
            until = until.min(now + state.check_interval);
        }
        state.helper_wakes_at = until;
        let second = self.link.second_socket().filter(|_| state.service.can_receive());
        if !receives && second.is_none() {
            match until {
                Instant::MAX => self.timer.wait(&mut state),
                until => _ = self.timer.wait_for(&mut state, until.since(now).into()),
            }
            return state;
        }
        (state.is_helper_polling, state.is_helper_receiving) = (true, receives);
        MutexGuard::unlock_fair(state);
        let link = receives.then(|| self.link.as_fd());
        let sockets: Vec<_> = link.into_iter().chain(second.as_deref().map(AsFd::as_fd)).collect();
        // A failed wait is equivalent to an interrupted one.
        let _ = self.waker.wait(&sockets, (until < Instant::MAX).then(|| until.since(now)));
        let mut state = self.lock();
        (state.is_helper_polling, state.is_helper_receiving) = (false, false);
        self.receive_as_helper(&mut state, receives, second.as_deref());
        state
    }

    fn receive_as_helper(&self, state: &mut State<S>, receives: bool, second: Option<&UdpSocket>) {
        let (now, attended_at) = (self.clock.now(), state.attended_at);
        let has_second = second.is_some_and(|socket| state.service.handle_second_socket(now, socket));
        if let Some(socket) = second.filter(|_| has_second) {
            // There are other peers, so the leader must receive from them too. Datagrams that reached the second socket
            // before it closed are still there.
            self.link.wake(now);
            state.service.handle_second_socket(now, socket);
        }
        let has_received = receives && self.receive_pending(state, now);
        if has_received || has_second {
            self.transmit(state, now);
            self.notify_changed(state, now);
        }
        // Receiving by the helper is no attendance.
        state.attended_at = attended_at;
    }
}

impl<S: Service> AsFd for SharedLoop<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

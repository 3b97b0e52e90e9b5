//! The event loop of several threads: a thread that waits receives, and a helper thread keeps the deadlines.
//!
//! A waiting thread receives without holding the lock, so that no thread has to be woken between a datagram and its
//! reader. If several threads wait, one leads (receives) and the others follow; a leader that is done passes the lead
//! on. The helper thread sleeps until the first deadline known when it fell asleep: a deadline that moves later causes
//! one needless wakeup, which costs less than notifying the helper each time. While no thread leads, for
//! [`Policy::unattended`] or longer, the helper receives.
//!
//! The lock is fair: otherwise a thread that sends without pause takes it again and again before a woken thread runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use trunkline_units::{Instant, Span};

use crate::Clock;
use crate::datagrams::Waker;

/// The network below a loop.
pub trait Link: AsFd + Send + Sync + 'static {
    /// Receive buffers, with what was received last.
    type Buffers: Send;

    /// Creates receive buffers.
    fn buffers(&self) -> Self::Buffers;

    /// Receives what is there. With `wait`, blocks until there is something or [`wake`](Link::wake) is called, and
    /// returns after about that time at the latest. One thread at a time receives.
    ///
    /// # Errors
    /// If the link has failed. Nothing received is no error.
    fn receive(&self, buffers: &mut Self::Buffers, wait: Option<Span>) -> io::Result<()>;

    /// Returns whether the last call received something.
    fn has_received(buffers: &Self::Buffers) -> bool;

    /// Unblocks the receiving thread, now or within 50 ms.
    fn wake(&self, now: Instant);
}

/// The state behind the lock: an endpoint, and the events that callers wait for.
///
/// A method that takes the link never blocks.
pub trait Service: Send + 'static {
    /// The network.
    type Link: Link;
    /// The error of a call.
    type Error: From<TimedOut>;
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

    /// Runs expired timers and sends all output.
    fn transmit(&mut self, now: Instant, link: &Self::Link);

    /// Returns whether there may be output.
    fn has_output(&self) -> bool;

    /// Returns whether to transmit now: there may be output, or a timer has expired.
    fn should_transmit(&mut self, call: &mut Call<Self::Target>) -> bool;

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

    /// Returns whether the closed loop ends. It is asked again after each deadline.
    fn is_over(&mut self, now: Instant) -> bool;
}

/// The timeout of a waiting call has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// How threads share the work.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether waiting callers receive. If not, only the helper does.
    pub callers_receive: bool,
    /// Time without a receiving thread after which the helper receives.
    pub unattended: Span,
    /// Sleep of the helper while callers receive.
    pub check_interval: Span,
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
    /// The last reading of the clock.
    recent: Instant,
    followers: usize,
    /// The earliest timeout of a follower.
    first_timeout: Instant,
    /// When a caller last received or left.
    attended_at: Instant,
    /// When the helper wakes, and whether it receives from the link until then.
    helper_wakes_at: Instant,
    is_helper_receiving: bool,
    is_closed: bool,
}

/// The lock.
pub type Guard<'a, S> = MutexGuard<'a, State<S>>;

impl<S: Service> SharedLoop<S> {
    /// Starts the loop and its helper thread, which ends after [`close`](SharedLoop::close).
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
            followers: 0,
            first_timeout: Instant::MAX,
            attended_at: now,
            helper_wakes_at: Instant::MAX,
            is_helper_receiving: false,
            is_closed: false,
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
            state.service.transmit(call.now(), &self.link);
            result = attempt(&mut state.service, &self.link, &mut call);
        }
        self.leave(state, &mut call);
        result
    }

    /// Repeats an operation until it no longer has to wait, at most for `timeout`.
    ///
    /// # Errors
    /// The operation's, and [`TimedOut`].
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
                state.service.transmit(call.now(), &self.link);
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
            if end.is_some_and(|end| end <= call.now()) {
                self.leave(state, &mut call);
                return Err(TimedOut.into());
            }
            state = self.wait(state, &mut call, end);
        }
    }

    /// Ends the loop as soon as its service [is over](Service::is_over). No call may follow.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
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
        let buffers = if call.can_lead { state.buffers.take() } else { None };
        let Some(mut buffers) = buffers else {
            state.first_timeout = state.first_timeout.min(end.unwrap_or(Instant::MAX));
            self.arm_helper(&mut state, call.recent());
            state.followers += 1;
            self.changed.wait(&mut state);
            state.followers -= 1;
            call.read = self.clock.now();
            return state;
        };
        self.arm_helper(&mut state, call.recent());
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
        (state.recent, state.attended_at) = (now, now);
        let has_received = S::Link::has_received(&buffers) || received.is_err();
        state.service.handle_received(now, &self.link, &buffers, received);
        state.buffers = Some(buffers);
        // The calling thread looks itself.
        self.notify_changed(state, now);
        has_received
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
        if state.service.should_transmit(call) {
            state.service.transmit(call.now(), &self.link);
            self.notify_changed(&mut state, call.now());
        }
        if call.read > Instant::ZERO {
            (state.recent, state.attended_at) = (call.read, call.read);
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
        let mut by = state.service.deadline().min(state.first_timeout);
        let has_leader = state.buffers.is_none();
        if !has_leader && !state.is_helper_receiving || state.service.has_output() {
            by = by.min(now + self.policy.check_interval);
        }
        // After the end no deadline matters.
        let by = if state.is_closed { now } else { by };
        if by < state.helper_wakes_at {
            state.helper_wakes_at = by;
            self.wake_helper(state);
        }
    }

    fn wake_helper(&self, state: &State<S>) {
        match state.is_helper_receiving {
            true => self.waker.wake(),
            false => _ = self.timer.notify_one(),
        }
    }

    /// Runs the helper: keeps deadlines, and receives while no other thread does.
    fn run_helper(&self) {
        let mut state = self.lock();
        loop {
            let mut call = self.call(&state);
            let at = call.now();
            state.recent = at;
            if state.is_closed && state.service.is_over(at) {
                return;
            }
            if state.service.should_transmit(&mut call)
                || state.buffers.is_none() && state.service.has_output()
            {
                state.service.transmit(at, &self.link);
            }
            if state.first_timeout <= at {
                // All waiting threads read the clock and report their timeouts again.
                state.first_timeout = Instant::MAX;
                self.changed.notify_all();
            }
            self.notify_changed(&mut state, at);
            if state.is_closed && state.service.is_over(at) {
                return;
            }
            state = self.sleep(state, at);
        }
    }

    /// Sleeps until something may be due for the helper, or receives until then.
    fn sleep<'a>(&'a self, mut state: Guard<'a, S>, now: Instant) -> Guard<'a, S> {
        let mut until = state.service.deadline().min(state.first_timeout);
        let is_unattended = state.attended_at + self.policy.unattended <= now;
        let receives = state.buffers.is_some() && is_unattended && state.service.can_receive();
        if !is_unattended {
            // A thread that leads for long arms the helper when it leaves.
            until = until.min(now + self.policy.check_interval);
        }
        state.helper_wakes_at = until;
        if !receives {
            match until {
                Instant::MAX => self.timer.wait(&mut state),
                until => _ = self.timer.wait_for(&mut state, until.since(now).into()),
            }
            return state;
        }
        state.is_helper_receiving = true;
        MutexGuard::unlock_fair(state);
        // A failed wait is equivalent to an interrupted one.
        let _ = self.waker.wait(&[self.link.as_fd()], (until < Instant::MAX).then(|| until.since(now)));
        let mut state = self.lock();
        state.is_helper_receiving = false;
        let (now, attended_at) = (self.clock.now(), state.attended_at);
        if self.receive_pending(&mut state, now) {
            state.service.transmit(now, &self.link);
            self.notify_changed(&mut state, now);
        }
        // Receiving by the helper is no attendance.
        state.attended_at = attended_at;
        state
    }
}

impl<S: Service> AsFd for SharedLoop<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

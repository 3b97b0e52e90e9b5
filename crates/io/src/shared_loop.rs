//! The event loop of several threads: a thread that waits receives, and a helper thread keeps the deadlines.
//!
//! A waiting thread receives without holding the lock, so that no thread has to be woken between a datagram and its
//! reader. If several threads wait, one leads (receives) and the others follow; a leader that is done passes the lead
//! on. The helper thread sleeps until the first deadline known when it fell asleep: a deadline that moves later causes
//! one needless wakeup, which costs less than notifying the helper each time. While no thread leads, for
//! [`Policy::unattended`] or longer, the helper receives. It always receives from the [second socket] of a link.
//!
//! In full flow most calls only add a message to those that are delayed, or take one of many. Such a call takes a
//! [fast path](SharedLoop::try_fast): it does not read the clock, which would be a fifth of its cost, and sets no
//! deadline, because the call that delayed the first message has set it.
//!
//! [second socket]: Service::second_socket

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trunkline_units::{Instant, Span};

use crate::Clock;
use crate::datagrams::Waker;
use crate::fair_mutex::{FairCondition, FairMutex};
use crate::usage::CpuTime;

/// Default timer slack of Linux threads.
const TIMER_SLACK: Span = Span::from_us(50);
/// Minimum delay of the helper after a needless wakeup.
const MIN_HELPER_SLACK: Span = Span::from_us(20);
/// Consecutive calls that may skip the clock.
const MAX_CALLS_WITHOUT_CLOCK: u32 = 8;

/// The state behind the lock: an endpoint, the events that callers wait for, and the receive buffers unless a thread is
/// receiving.
///
/// A method that takes the link never blocks, except [`receive`](Service::receive).
pub trait Service: Send + 'static {
    /// The network.
    type Link: AsFd + Send + Sync + 'static;
    /// Receive buffers, with what was received last.
    type Buffers: Send;
    /// The error of a call.
    type Error: From<TimedOut>;
    /// What a thread waits for that can take it directly from the link.
    type Target;

    /// Whether [`receive`](Service::receive) returns by itself about when its time is over. Otherwise the helper wakes
    /// the receiving thread.
    const LIMITS_WAITING: bool;

    /// Receives what is there. With `wait`, blocks until there is something, [`wake`](Service::wake) is called, or
    /// that time has passed (see [`LIMITS_WAITING`](Service::LIMITS_WAITING)). One thread at a time receives.
    ///
    /// # Errors
    /// If the link has failed. Nothing received is no error.
    fn receive(link: &Self::Link, buffers: &mut Self::Buffers, wait: Option<Span>) -> io::Result<()>;

    /// Unblocks the receiving thread, now or within 50 ms.
    fn wake(link: &Self::Link, now: Instant);

    /// Returns the socket from which only the helper receives, if there is one.
    fn second_socket(_link: &Self::Link) -> Option<Arc<UdpSocket>> {
        None
    }

    /// Returns whether an operation failed only because it has to wait.
    fn must_wait(error: &Self::Error) -> bool;

    /// Returns whether a thread has taken the receive buffers.
    fn is_receiving(&self) -> bool;

    /// Takes the receive buffers, unless another thread has them, for a thread that waits for `target`. What it
    /// receives is processed next, and then the thread tries its operation again, before any other thread gets the
    /// lock.
    fn take_buffers(&mut self, target: Option<Self::Target>) -> Option<Self::Buffers>;

    /// Processes what was received and stores the buffers again; returns whether there was anything, or an error.
    fn handle_received(
        &mut self,
        now: Instant,
        link: &Self::Link,
        buffers: Self::Buffers,
        received: io::Result<()>,
    ) -> bool;

    /// Receives what is there, unless another thread is receiving; returns whether there was anything.
    fn receive_pending(&mut self, now: Instant, link: &Self::Link) -> bool {
        let Some(mut buffers) = self.take_buffers(None) else { return false };
        let received = Self::receive(link, &mut buffers, None);
        self.handle_received(now, link, buffers, received)
    }

    /// Receives what is there from the second socket; returns whether there was anything.
    fn receive_second(&mut self, _now: Instant, _socket: &UdpSocket) -> bool {
        false
    }

    /// Runs expired timers and sends all output.
    fn transmit(&mut self, now: Instant, link: &Self::Link);

    /// Returns whether there may be output, or a timer has expired.
    fn may_transmit(&mut self, now: Instant) -> bool;

    /// Returns whether to transmit now: as [`may_transmit`](Service::may_transmit), without output that is delayed.
    fn should_transmit(&mut self, now: Instant) -> bool {
        self.may_transmit(now)
    }

    /// Returns whether there is output, and all of it may be delayed.
    fn delays_output(&self) -> bool {
        false
    }

    /// Returns whether the next call is expected soon, and will handle what is due.
    fn in_full_flow(&self) -> bool {
        false
    }

    /// Returns the next deadline, or earlier.
    fn deadline(&self) -> Instant;

    /// Returns whether something changed since the last call that waiting threads may wait for.
    fn take_changed(&mut self) -> bool;

    /// Returns whether the link can be received from.
    fn can_receive(&self) -> bool;

    /// Returns the error with which a call ends that has to wait, if any.
    fn failure(&mut self) -> Option<Self::Error>;

    /// Returns whether no handle is left. No call may follow.
    fn is_unused(&self) -> bool;

    /// Returns whether the unused loop ends. It is asked again after each deadline.
    fn is_over(&mut self, now: Instant) -> bool;

    /// Returns whether the helper reads its [processor time](State::helper_cpu).
    fn is_observed(&self) -> bool {
        false
    }
}

/// The timeout of a waiting call has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// How threads share the work.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether waiting callers receive. If not, only the helper does.
    pub callers_receive: bool,
    /// Time without a call that receives or transmits after which the helper receives.
    pub unattended: Span,
    /// Shortest and longest sleep of the helper while callers receive, or while output is delayed. It doubles with each
    /// needless wakeup.
    pub check_interval: (Span, Span),
    /// Maximum delay of the helper after a deadline. While deadlines only move later, as in request-response traffic, the
    /// helper wakes later and later: its wakeups are needless and take processor time from the caller. Zero: the helper
    /// is woken for every earlier deadline, even one within the accuracy of timers.
    pub max_slack: Span,
}

/// A call of a user that tries its operation.
#[derive(Debug)]
pub struct Call<T> {
    /// The time of the try.
    pub now: Instant,
    /// Whether the calling thread receives if it has to wait now.
    pub can_lead: bool,
    /// What the calling thread waits for, if it receives: see [`Service::take_buffers`].
    pub target: Option<T>,
}

/// An endpoint on a link, shared by threads.
pub struct SharedLoop<S: Service> {
    link: S::Link,
    clock: Clock,
    policy: Policy,
    state: FairMutex<State<S>>,
    /// Wakes the followers: something changed, or no thread leads.
    changed: FairCondition,
    /// Wakes the sleeping helper earlier.
    timer: FairCondition,
    waker: Waker,
}

/// The state behind the lock.
pub struct State<S: Service> {
    /// The endpoint and its events.
    pub service: S,
    /// Processor time of the helper up to its last wakeup, if the service is observed.
    pub helper_cpu: CpuTime,
    /// The last reading of the clock, and the calls since then without one.
    now: Instant,
    calls_without_clock: u32,
    followers: usize,
    /// The earliest timeout of a waiting call.
    first_timeout: Instant,
    /// When a caller last received or transmitted.
    attended_at: Instant,
    /// When the helper wakes, whether it waits for the waker until then, and whether it receives.
    helper_wakes_at: Instant,
    is_helper_waiting: bool,
    is_helper_receiving: bool,
    /// Delay of the helper after a deadline, and its sleep while other threads receive.
    helper_slack: Span,
    check_interval: Span,
}

impl<S: Service> State<S> {
    /// Returns the last reading of the clock.
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns when the helper has something to do at the latest.
    #[inline]
    fn helper_deadline(&self, now: Instant) -> Instant {
        let at = (self.service.deadline() + self.helper_slack).min(self.first_timeout);
        // In full flow the next call handles what is due.
        let is_handled = self.service.in_full_flow() && !self.service.is_receiving();
        if is_handled { at.max(now + self.check_interval) } else { at }
    }
}

/// The lock.
pub type Guard<'a, S> = MutexGuard<'a, State<S>>;

impl<S: Service> SharedLoop<S> {
    /// Starts the loop and its helper thread, which ends when the service [is over](Service::is_over).
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
            helper_cpu: CpuTime::default(),
            now,
            calls_without_clock: 0,
            followers: 0,
            first_timeout: Instant::MAX,
            attended_at: now,
            helper_wakes_at: Instant::MAX,
            is_helper_waiting: false,
            is_helper_receiving: false,
            helper_slack: Span::ZERO,
            check_interval: policy.check_interval.0,
        };
        let (state, changed, timer) =
            (FairMutex::new(state), FairCondition::default(), FairCondition::default());
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

    /// Locks the state. Who changes it must [`leave`](SharedLoop::leave).
    #[inline]
    pub fn lock(&self) -> Guard<'_, S> {
        self.state.lock()
    }

    /// Reads the clock.
    #[inline]
    pub fn time(&self, state: &mut State<S>) -> Instant {
        (state.now, state.calls_without_clock) = (self.clock.now(), 0);
        state.now
    }

    /// Runs an operation once.
    #[inline]
    pub fn run<T>(&self, operation: impl FnOnce(&mut S, Instant) -> T) -> T {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let result = operation(&mut state.service, now);
        self.leave(state, now);
        result
    }

    /// Tries an operation, and once more after receiving what is there.
    ///
    /// # Errors
    /// The operation's.
    #[inline]
    pub fn try_twice<T>(
        &self,
        mut attempt: impl FnMut(&mut S, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        let mut call = Call { now, can_lead: false, target: None };
        let mut result = attempt(&mut state.service, &mut call);
        if result.as_ref().is_err_and(S::must_wait) {
            // A caller that never waits must still receive.
            state.service.receive_pending(now, &self.link);
            state.attended_at = now;
            state.service.transmit(now, &self.link);
            result = attempt(&mut state.service, &mut call);
        }
        self.leave(state, now);
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
        attempt: impl FnMut(&mut S, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let mut state = self.lock();
        let now = self.time(&mut state);
        self.retry(state, now, timeout, attempt)
    }

    /// Like [`until`](Self::until), on the fast path if `may` allows it and the operation need not wait: with the last
    /// reading of the clock, and without transmitting, if the service [delays its output](Service::delays_output).
    ///
    /// # Errors
    /// As [`until`](Self::until).
    #[inline]
    pub fn try_fast<'a, T>(
        &'a self,
        mut state: Guard<'a, S>,
        may: impl FnOnce(&S) -> bool,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut S, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        if state.calls_without_clock < MAX_CALLS_WITHOUT_CLOCK && may(&state.service) {
            let mut call = Call { now: state.now, can_lead: false, target: None };
            let result = attempt(&mut state.service, &mut call);
            if !result.as_ref().is_err_and(S::must_wait) {
                if state.service.delays_output() {
                    state.calls_without_clock += 1;
                } else {
                    let now = self.time(&mut state);
                    self.leave(state, now);
                }
                return result;
            }
        }
        let now = self.time(&mut state);
        self.retry(state, now, timeout, attempt)
    }

    /// Repeats an operation as [`until`](Self::until) does.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    #[inline]
    pub fn retry<'a, T>(
        &'a self,
        mut state: Guard<'a, S>,
        now: Instant,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut S, &mut Call<S::Target>) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let end = timeout.map_or(Instant::MAX, |duration| now + Span::from(duration));
        let mut call = Call { now, can_lead: false, target: None };
        loop {
            call.can_lead = self.policy.callers_receive && !state.service.is_receiving();
            match attempt(&mut state.service, &mut call) {
                Err(error) if S::must_wait(&error) => {}
                result => {
                    self.leave(state, call.now);
                    return result;
                }
            }
            if state.service.may_transmit(call.now) {
                // Its output may complete the operation.
                state.service.transmit(call.now, &self.link);
                if self.notify_changed(&mut state) {
                    continue;
                }
            }
            if let Some(error) = state.service.failure() {
                self.leave(state, call.now);
                return Err(error);
            }
            if call.now >= end {
                self.leave(state, call.now);
                return Err(TimedOut.into());
            }
            state = self.wait(state, &mut call, end);
        }
    }

    /// Waits for a change: receives for all threads, or follows the thread that does.
    #[inline]
    fn wait<'a>(&'a self, mut state: Guard<'a, S>, call: &mut Call<S::Target>, end: Instant) -> Guard<'a, S> {
        if state.service.in_full_flow() && state.service.receive_pending(call.now, &self.link) {
            // In full flow the awaited frames have mostly arrived: no deadline is needed for so short a wait.
            call.now = self.time(&mut state);
            return state;
        }
        let target = call.target.take();
        let buffers = if self.policy.callers_receive { state.service.take_buffers(target) } else { None };
        if !S::LIMITS_WAITING || buffers.is_none() {
            state.first_timeout = state.first_timeout.min(end);
        }
        let Some(mut buffers) = buffers else {
            self.wake_helper_in_time(&mut state, call.now);
            state.followers += 1;
            state = self.changed.wait(&self.state, state, None);
            state.followers -= 1;
            call.now = self.time(&mut state);
            return state;
        };
        let limit = if end < Instant::MAX { end.since(call.now) } else { Span::MAX };
        let (mut state, received) = self.lead(state, call.now, &mut buffers, limit);
        call.now = state.now;
        state.service.handle_received(call.now, &self.link, buffers, received);
        // The calling thread looks itself.
        self.notify_changed(&mut state);
        state
    }

    /// Receives into the taken buffers, at most for `limit`; releases the lock meanwhile, and reads the clock.
    #[inline]
    pub fn lead<'a>(
        &'a self,
        mut state: Guard<'a, S>,
        now: Instant,
        buffers: &mut S::Buffers,
        limit: Span,
    ) -> (Guard<'a, S>, io::Result<()>) {
        self.wake_helper_in_time(&mut state, now);
        drop(state);
        let received = S::receive(&self.link, buffers, Some(limit));
        let mut state = self.lock();
        state.attended_at = self.time(&mut state);
        (state, received)
    }

    /// Sends output that is due and releases the lock.
    #[inline]
    pub fn leave(&self, mut state: Guard<'_, S>, now: Instant) {
        if state.service.should_transmit(now) {
            state.service.transmit(now, &self.link);
            state.attended_at = now;
        }
        self.notify_changed(&mut state);
        self.wake_helper_in_time(&mut state, now);
        if state.followers > 0 && !state.service.is_receiving() {
            // Let another thread lead.
            self.changed.notify_one();
        }
    }

    /// Releases the lock after a call without events and pending output.
    #[inline(always)]
    pub fn leave_without_output(&self, mut state: Guard<'_, S>, now: Instant) {
        if state.followers > 0 {
            return self.leave(state, now);
        }
        state.attended_at = now;
        self.wake_helper_if(&mut state, now, false);
    }

    /// Wakes the waiting threads after a change; returns whether there was one.
    #[inline]
    fn notify_changed(&self, state: &mut State<S>) -> bool {
        let has_changed = state.service.take_changed();
        if has_changed {
            self.notify_all(state);
        }
        has_changed
    }

    /// Wakes the waiting threads, and the leader unless it is the caller.
    fn notify_all(&self, state: &State<S>) {
        if state.followers > 0 {
            self.changed.notify_all();
        }
        if state.service.is_receiving() {
            S::wake(&self.link, state.now);
        }
    }

    /// Makes the helper wake in time.
    #[inline]
    fn wake_helper_in_time(&self, state: &mut State<S>, now: Instant) {
        let may_transmit = state.service.may_transmit(now);
        self.wake_helper_if(state, now, may_transmit);
    }

    /// Makes the helper wake in time. Set `may_transmit` if output may be pending.
    #[inline(always)]
    fn wake_helper_if(&self, state: &mut State<S>, now: Instant, may_transmit: bool) {
        let mut by = state.helper_deadline(now);
        let no_leader = !state.service.is_receiving();
        if no_leader && !state.is_helper_receiving || may_transmit {
            by = by.min(now + state.check_interval);
        }
        // Without handles no deadline matters.
        let by = if state.service.is_unused() { now } else { by };
        // Skip differences within the accuracy of timers: in request-response traffic the deadline after each
        // response is slightly earlier than the one after its request.
        if by + TIMER_SLACK.min(self.policy.max_slack) < state.helper_wakes_at {
            state.helper_wakes_at = by;
            self.wake_helper(state);
        }
    }

    /// Wakes the helper, which looks at the state again.
    #[inline(always)]
    pub fn wake_helper(&self, state: &State<S>) {
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
            if state.service.is_observed() {
                state.helper_cpu = CpuTime::of_this_thread();
            }
            let (min_interval, max_interval) = self.policy.check_interval;
            let needless = !state.service.should_transmit(now);
            (state.check_interval, state.helper_slack) = if needless {
                let slack = (state.helper_slack * 2).max(MIN_HELPER_SLACK);
                ((state.check_interval * 2).min(max_interval), slack.min(self.policy.max_slack))
            } else {
                (min_interval, Span::ZERO)
            };
            if state.service.may_transmit(now) && (!needless || state.service.is_receiving()) {
                state.service.transmit(now, &self.link);
            }
            let is_timeout = state.first_timeout <= now;
            if is_timeout {
                // All waiting threads read the clock and report their timeouts again.
                state.first_timeout = Instant::MAX;
            }
            if state.service.take_changed() || is_timeout && !S::LIMITS_WAITING {
                self.notify_all(&state);
            } else if is_timeout {
                self.changed.notify_all();
            }
            if state.service.is_unused() && state.service.is_over(now) {
                return;
            }
            state = self.sleep(state, now);
        }
    }

    /// Sleeps until something may be due for the helper, or receives until then.
    fn sleep<'a>(&'a self, mut state: Guard<'a, S>, now: Instant) -> Guard<'a, S> {
        let is_led = state.service.is_receiving();
        let at = state.helper_deadline(now);
        let is_unattended = state.attended_at + self.policy.unattended <= now;
        let can_receive = state.service.can_receive();
        let receives = !is_led && is_unattended && can_receive;
        // A thread that leads for long calls `wake_helper_in_time` when it leaves.
        let wake_at = if is_unattended { at } else { at.min(now + state.check_interval) };
        state.helper_wakes_at = wake_at;
        let second = S::second_socket(&self.link).filter(|_| can_receive);
        if receives || second.is_some() {
            return self.helper_receive(state, now, receives, second.as_deref());
        }
        let timeout = (wake_at < Instant::MAX).then(|| wake_at.since(now).into());
        self.timer.wait(&self.state, state, timeout)
    }

    /// Waits for the link, if `receives`, and for the second socket, if there is one; then receives, unless another
    /// thread does.
    fn helper_receive<'a>(
        &'a self,
        mut state: Guard<'a, S>,
        now: Instant,
        receives: bool,
        second: Option<&UdpSocket>,
    ) -> Guard<'a, S> {
        let at = state.helper_wakes_at;
        (state.is_helper_waiting, state.is_helper_receiving) = (true, receives);
        drop(state);
        let link = receives.then(|| self.link.as_fd());
        let sockets: Vec<_> = link.into_iter().chain(second.map(AsFd::as_fd)).collect();
        // A failed wait is equivalent to an interrupted one.
        let _ = self.waker.wait(&sockets, (at < Instant::MAX).then(|| at.since(now)));
        let mut state = self.lock();
        let now = self.time(&mut state);
        (state.is_helper_waiting, state.is_helper_receiving) = (false, false);
        let mut has_received = second.is_some_and(|socket| state.service.receive_second(now, socket));
        if let Some(socket) = second.filter(|_| has_received) {
            // There are other peers, and the leader must receive from them. Datagrams that reached the second socket
            // before it closed are still there.
            S::wake(&self.link, now);
            state.service.receive_second(now, socket);
        }
        if receives {
            has_received |= state.service.receive_pending(now, &self.link);
        }
        if has_received {
            state.service.transmit(now, &self.link);
        }
        state
    }
}

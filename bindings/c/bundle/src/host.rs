//! A host shared by threads.
//!
//! A thread holds the lock while it uses the host, but not while it waits for input, so that others can send. If they
//! send something that is due before a waiting thread would look again, they wake that thread.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use trunkline_bundle::host::MessageInfo;
use trunkline_bundle::socket::{HostOptions, HostSocket, SocketDriver};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

use crate::error::{BundleError, Code};

pub(crate) struct SharedHost {
    clock: Clock,
    state: Mutex<State>,
    /// Readable when a datagram arrived.
    sockets: OwnedFd,
    /// Readable when a wait must end or restart.
    waker: EventFd,
    /// Whether `bundle_wake` was called and has not ended a wait yet.
    wake_requested: AtomicBool,
    /// The thread that runs a receiver function; 0 for none.
    callback_thread: AtomicUsize,
}

struct State {
    socket: HostSocket,
    /// The message being received.
    message: Vec<u8>,
    /// The number of waiting threads.
    waiting_threads: usize,
    /// The earliest time at which a waiting thread looks again.
    next_turn: Instant,
}

thread_local! {
    /// The number of nested receiver functions of this thread, each of which holds the lock of a host. Its address
    /// identifies the thread.
    static CALLBACK_DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn this_thread() -> usize {
    CALLBACK_DEPTH.with(|depth| std::ptr::from_ref(depth) as usize)
}

/// Marks that a receiver function is running, while it exists.
struct CallbackGuard<'a>(&'a AtomicUsize);

impl CallbackGuard<'_> {
    fn enter(thread: &AtomicUsize) -> CallbackGuard<'_> {
        thread.store(this_thread(), Ordering::SeqCst);
        CALLBACK_DEPTH.set(CALLBACK_DEPTH.get() + 1);
        CallbackGuard(thread)
    }
}

impl Drop for CallbackGuard<'_> {
    fn drop(&mut self) {
        CALLBACK_DEPTH.set(CALLBACK_DEPTH.get() - 1);
        self.0.store(0, Ordering::SeqCst);
    }
}

impl SharedHost {
    pub fn open(options: &HostOptions) -> Result<SharedHost, BundleError> {
        let clock = Clock::start();
        let socket = HostSocket::open(options, clock)?;
        let waker = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(std::io::Error::from)?;
        let sockets = socket.as_fd().try_clone_to_owned()?;
        let state =
            Mutex::new(State { socket, message: Vec::new(), waiting_threads: 0, next_turn: Instant::MAX });
        let (wake_requested, callback_thread) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(SharedHost { clock, state, sockets, waker, wake_requested, callback_thread })
    }

    /// Leaves all addresses and closes the host.
    pub fn close(self) -> Result<(), BundleError> {
        let mut state = self.state.into_inner().map_err(|_| BundleError::code(Code::Bug))?;
        Ok(state.socket.shutdown()?)
    }

    /// Returns an error if waiting for the host's lock could deadlock: within its own receiver function, or within
    /// that of another host while this host's receiver function runs, which may wait for the other host.
    ///
    /// Each thread marks its receiver function before this check. In a cycle of threads that would wait for each
    /// other, the last one to check sees the mark of the next one, and does not wait.
    pub fn check_not_busy(&self) -> Result<(), BundleError> {
        let callback_thread = self.callback_thread.load(Ordering::SeqCst);
        let is_busy = callback_thread == this_thread() || (callback_thread != 0 && CALLBACK_DEPTH.get() > 0);
        if is_busy { Err(BundleError::code(Code::Busy)) } else { Ok(()) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, BundleError> {
        self.check_not_busy()?;
        self.lock_unchecked()
    }

    /// Locks a host that was not busy when the calling function began.
    fn lock_unchecked(&self) -> Result<MutexGuard<'_, State>, BundleError> {
        // After a panic under the lock the state of the host is unknown.
        self.state.lock().map_err(|_| BundleError::code(Code::Bug))
    }

    /// Runs an operation with the host.
    pub fn with<T>(
        &self,
        operation: impl FnOnce(&mut HostSocket) -> Result<T, BundleError>,
    ) -> Result<T, BundleError> {
        let mut state = self.lock()?;
        let done = operation(&mut state.socket);
        self.notify_waiters(&mut state);
        done
    }

    /// Sends what is due, and wakes a waiting thread if the next deadline is earlier than expected.
    fn notify_waiters(&self, state: &mut State) {
        if state.waiting_threads == 0 {
            return;
        }
        state.socket.flush();
        let due = state.socket.deadline().unwrap_or(Instant::MAX);
        if due < state.next_turn {
            state.next_turn = due;
            self.notify();
        }
    }

    fn notify(&self) {
        // The write fails only if the counter is full, which is readable, too.
        let _ = self.waker.write(1);
    }

    /// Ends a wait. Async-signal-safe: it only writes.
    pub fn wake(&self) {
        self.wake_requested.store(true, Ordering::SeqCst);
        let before = Errno::last_raw();
        self.notify();
        Errno::set_raw(before);
    }

    /// Runs turns, each of which calls `step` without waiting, until it returns a result, the time is over or
    /// `bundle_wake` was called with this code.
    fn run_turns<T>(
        &self,
        timeout_ms: i32,
        mut step: impl FnMut(&mut State) -> Result<Option<T>, BundleError>,
    ) -> Result<Result<T, Code>, BundleError> {
        let until = match u64::try_from(timeout_ms) {
            Ok(ms) => self.clock.now() + Span::from_ms(ms),
            Err(_) => Instant::MAX,
        };
        self.check_not_busy()?;
        let mut waited = None;
        loop {
            // No check after a wait: a receiver function that runs now gets an error from calls for this thread's
            // host, and so does not block it.
            let mut state = self.lock_unchecked()?;
            let mut wait_result = Ok(());
            if let Some(result) = waited.take() {
                state.waiting_threads -= 1;
                // Other waiting threads may wait longer than this one would have.
                state.next_turn = Instant::MAX;
                let _ = self.waker.read();
                wait_result = result;
            }
            let outcome = match wait_result.and_then(|()| step(&mut state)) {
                Err(failure) => Some(Err(failure)),
                Ok(Some(enough)) => Some(Ok(Ok(enough))),
                Ok(None) if self.wake_requested.swap(false, Ordering::SeqCst) => Some(Ok(Err(Code::Woken))),
                Ok(None) if self.clock.now() >= until => Some(Ok(Err(Code::Time))),
                Ok(None) => None,
            };
            if let Some(outcome) = outcome {
                self.notify_waiters(&mut state);
                return outcome;
            }
            let due = state.socket.deadline().unwrap_or(Instant::MAX);
            (state.waiting_threads, state.next_turn) = (state.waiting_threads + 1, due);
            drop(state);
            waited = Some(self.wait(due.min(until)));
        }
    }

    /// Waits for a datagram, a wake-up or a time.
    fn wait(&self, until: Instant) -> Result<(), BundleError> {
        let left = (until < Instant::MAX).then(|| {
            // Rounded up, so that the time has come.
            let ns = until.since(self.clock.now()).as_ps().div_ceil(1_000);
            TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
        });
        let mut fds = [self.sockets.as_fd(), self.waker.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut fds, left, None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// Runs turns that pass each message to `each`; returns the number of messages.
    pub fn turn_with(
        &self,
        timeout_ms: i32,
        mut each: impl FnMut(MessageInfo, &[u8]),
    ) -> Result<usize, BundleError> {
        let outcome = self.run_turns(timeout_ms, |state| {
            let mut count = 0;
            let _calling = CallbackGuard::enter(&self.callback_thread);
            state.socket.turn_with(Some(Instant::ZERO), |from, message| {
                count += 1;
                each(from, message);
            })?;
            Ok((count > 0).then_some(count))
        });
        Ok(outcome?.unwrap_or(0))
    }

    /// Runs turns that store messages until they are received.
    pub fn turn(&self, timeout_ms: i32) -> Result<(), BundleError> {
        let outcome = self.run_turns(timeout_ms, |state| {
            let socket = &mut state.socket;
            let before = socket.machine().statistics().received;
            socket.turn(Some(Instant::ZERO))?;
            Ok((socket.machine().statistics().received > before).then_some(()))
        });
        outcome.map(|_| ())
    }

    /// Waits for a message and passes it to `take`.
    pub fn receive(
        &self,
        timeout_ms: i32,
        mut take: impl FnMut(MessageInfo, &[u8]) -> Result<usize, BundleError>,
    ) -> Result<usize, BundleError> {
        let outcome = self.run_turns(timeout_ms, |State { socket, message, .. }| {
            let mut from = socket.receive(message);
            if from.is_none() {
                socket.turn(Some(Instant::ZERO))?;
                from = socket.receive(message);
            }
            from.map(|from| take(from, message)).transpose()
        })?;
        outcome.map_err(BundleError::code)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use trunkline_bundle::Settings;

    use super::*;

    /// A receiver that fails, for example because its buffer is too small, may leave an earlier deadline behind.
    #[test]
    fn waiting_threads_learn_of_new_deadlines_after_a_failure() {
        let central = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        let host = SharedHost::open(&HostOptions::on_loopback(Settings::default(), 1, central)).unwrap();
        host.with(|socket| Ok(socket.join(7)?)).unwrap();
        // Another thread waits and would not look again.
        host.state.lock().unwrap().waiting_threads = 1;
        let failed = host.run_turns::<()>(0, |_| Err(BundleError::buffer_too_small(1))).unwrap_err();
        assert_eq!(failed.record(), Code::Large);
        let state = host.state.lock().unwrap();
        assert!(state.next_turn < Instant::MAX && Some(state.next_turn) == state.socket.deadline());
        assert!(host.waker.read().is_ok(), "it was woken");
    }
}

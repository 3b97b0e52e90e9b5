//! A host that threads share.
//!
//! Whoever does something with the host has its lock; whoever waits in it has not, so that others can send meanwhile. What
//! they send may be due before the one who waits would look again: then that one is woken.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use trunkline_bundle::face::{HostFace, HostOptions, Serve};
use trunkline_bundle::host::From;
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

use crate::words::{Code, Failure};

/// What is done with a host.
pub(crate) type Face = HostFace;

pub(crate) struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Readable when something came.
    sockets: OwnedFd,
    /// Readable when a wait is to end or to begin anew.
    bell: EventFd,
    /// Whether `bundle_wake` was called and ended no wait yet.
    woken: AtomicBool,
    /// The thread whose receiver function is being called; 0: none is.
    calling: AtomicUsize,
}

struct State {
    face: HostFace,
    /// The message that is being received.
    body: Vec<u8>,
    /// Threads that wait.
    waiting: usize,
    /// One of those that wait has its next turn by then.
    armed: Instant,
}

thread_local! {
    /// Receiver functions that this thread is in, one within another: of that many hosts it has the lock. Its address is known
    /// to stand for the thread.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

fn this_thread() -> usize {
    INSIDE.with(|inside| std::ptr::from_ref(inside) as usize)
}

/// While it is there, a receiver function is called.
struct Calling<'a>(&'a AtomicUsize);

impl Calling<'_> {
    fn by_this_thread(who: &AtomicUsize) -> Calling<'_> {
        who.store(this_thread(), Ordering::SeqCst);
        INSIDE.set(INSIDE.get() + 1);
        Calling(who)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Shared {
    pub fn open(options: &HostOptions) -> Result<Shared, Failure> {
        let clock = Clock::start();
        let face = HostFace::open(options, clock)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(std::io::Error::from)?;
        let sockets = face.as_fd().try_clone_to_owned()?;
        let state = Mutex::new(State { face, body: Vec::new(), waiting: 0, armed: Instant::MAX });
        let (woken, calling) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(Shared { clock, state, sockets, bell, woken, calling })
    }

    /// Says that it wants nothing any more.
    pub fn end(self) -> Result<(), Failure> {
        let mut state = self.state.into_inner().map_err(|_| Failure::code(Code::Bug))?;
        Ok(state.face.end()?)
    }

    /// Whether this thread may wait for the host's lock: not within its receiver function, nor within that of another host while
    /// this one's is called, which may want that other.
    ///
    /// Each thread says that it calls before it looks here: of those that would wait for one another in a circle, the last that
    /// looks sees that the next one calls, and does not wait.
    pub fn is_free(&self) -> Result<(), Failure> {
        let calling = self.calling.load(Ordering::SeqCst);
        let is_busy = calling == this_thread() || (calling != 0 && INSIDE.get() > 0);
        if is_busy { Err(Failure::code(Code::Busy)) } else { Ok(()) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.is_free()?;
        self.lock_again()
    }

    /// Has the lock again of a host that was free when the calling function began.
    fn lock_again(&self) -> Result<MutexGuard<'_, State>, Failure> {
        // A panic under the lock is a bug of ours: nobody knows in what state it left the host.
        self.state.lock().map_err(|_| Failure::code(Code::Bug))
    }

    /// Does something with the host.
    pub fn with<T>(&self, operation: impl FnOnce(&mut HostFace) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut state = self.lock()?;
        let done = operation(&mut state.face);
        self.pass_on(&mut state);
        done
    }

    /// Has what is due leave, and those who wait know when the next is, if they wait for longer.
    fn pass_on(&self, state: &mut State) {
        if state.waiting == 0 {
            return;
        }
        state.face.flush();
        let due = state.face.deadline().unwrap_or(Instant::MAX);
        if due < state.armed {
            state.armed = due;
            self.ring();
        }
    }

    fn ring(&self) {
        // It cannot be refused but by a counter that is full, and then it is readable.
        let _ = self.bell.write(1);
    }

    /// Ends a wait. For a signal's handler: it only writes.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        let before = Errno::last_raw();
        self.ring();
        Errno::set_raw(before);
    }

    /// Has turns, in each of which `once` does what there is to do without waiting, until it says that this is enough, or the
    /// time is over, or somebody woke it: then that code.
    fn turns<T>(
        &self,
        timeout_ms: i32,
        mut once: impl FnMut(&mut State) -> Result<Option<T>, Failure>,
    ) -> Result<Result<T, Code>, Failure> {
        let until = match u64::try_from(timeout_ms) {
            Ok(ms) => self.clock.now() + Span::from_ms(ms),
            Err(_) => Instant::MAX,
        };
        self.is_free()?;
        let mut waited = None;
        loop {
            // After a wait without looking: whoever calls since then is refused what this thread has, and so does not keep it.
            let mut state = self.lock_again()?;
            let mut came = Ok(());
            if let Some(result) = waited.take() {
                state.waiting -= 1;
                // Whoever else waits may do so for longer than this would have.
                state.armed = Instant::MAX;
                let _ = self.bell.read();
                came = result;
            }
            let over = match came.and_then(|()| once(&mut state)) {
                Err(failure) => Some(Err(failure)),
                Ok(Some(enough)) => Some(Ok(Ok(enough))),
                Ok(None) if self.woken.swap(false, Ordering::SeqCst) => Some(Ok(Err(Code::Woken))),
                Ok(None) if self.clock.now() >= until => Some(Ok(Err(Code::Time))),
                Ok(None) => None,
            };
            if let Some(over) = over {
                self.pass_on(&mut state);
                return over;
            }
            let due = state.face.deadline().unwrap_or(Instant::MAX);
            (state.waiting, state.armed) = (state.waiting + 1, due);
            drop(state);
            waited = Some(self.wait(due.min(until)));
        }
    }

    /// Waits until something came, somebody rang, or it is so late.
    fn wait(&self, until: Instant) -> Result<(), Failure> {
        let left = (until < Instant::MAX).then(|| {
            // Rounded up: it shall be so late.
            let ns = until.since(self.clock.now()).as_ps().div_ceil(1_000);
            TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
        });
        let mut fds = [self.sockets.as_fd(), self.bell.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut fds, left, None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// A turn in which each message is given to `each`; how many were.
    pub fn turn_with(&self, timeout_ms: i32, mut each: impl FnMut(From, &[u8])) -> Result<usize, Failure> {
        let over = self.turns(timeout_ms, |state| {
            let mut count = 0;
            let _calling = Calling::by_this_thread(&self.calling);
            state.face.turn_with(Some(Instant::ZERO), |from, body| {
                count += 1;
                each(from, body);
            })?;
            Ok((count > 0).then_some(count))
        });
        Ok(over?.unwrap_or(0))
    }

    /// A turn in which messages are kept until they are received.
    pub fn turn(&self, timeout_ms: i32) -> Result<(), Failure> {
        let over = self.turns(timeout_ms, |state| {
            let face = &mut state.face;
            let before = face.machine().statistics().received;
            face.turn(Some(Instant::ZERO))?;
            Ok((face.machine().statistics().received > before).then_some(()))
        });
        over.map(|_| ())
    }

    /// Waits for a message, and gives it to `take`.
    pub fn receive(
        &self,
        timeout_ms: i32,
        mut take: impl FnMut(From, &[u8]) -> Result<usize, Failure>,
    ) -> Result<usize, Failure> {
        let over = self.turns(timeout_ms, |State { face, body, .. }| {
            let mut from = face.receive(body);
            if from.is_none() {
                face.turn(Some(Instant::ZERO))?;
                from = face.receive(body);
            }
            from.map(|from| take(from, body)).transpose()
        })?;
        over.map_err(Failure::code)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use trunkline_bundle::Settings;

    use super::*;

    /// A receiver that fails, say by a message without room, may leave the host with something due that nobody knows of.
    #[test]
    fn others_that_wait_hear_of_what_is_due_also_after_a_failure() {
        let central = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        let host = Shared::open(&HostOptions::on_loopback(Settings::default(), 1, central)).unwrap();
        host.with(|face| Ok(face.join(7)?)).unwrap();
        // Another thread waits and would not look again.
        host.state.lock().unwrap().waiting = 1;
        let failed = host.turns::<()>(0, |_| Err(Failure::room(1))).unwrap_err();
        assert_eq!(failed.told(), Code::Large);
        let state = host.state.lock().unwrap();
        assert!(state.armed < Instant::MAX && Some(state.armed) == state.face.deadline());
        assert!(host.bell.read().is_ok(), "it was woken");
    }
}

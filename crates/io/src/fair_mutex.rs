//! A mutex that no thread can keep from others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A mutex that passes from thread to thread in the order in which they began to wait: a thread that locks it without
/// pause does not take it again before a woken thread runs.
///
/// Uncontended it is [`std::sync::Mutex`], because on that of `parking_lot` a round trip over UDP wakes a thread 1.65
/// times instead of 1.2 times. Waiting threads queue for a second mutex, whose holder is the next.
#[derive(Debug)]
pub(crate) struct FairMutex<T> {
    state: Mutex<T>,
    queue: parking_lot::FairMutex<()>,
    queued: AtomicUsize,
}

impl<T> FairMutex<T> {
    pub fn new(state: T) -> FairMutex<T> {
        FairMutex {
            state: Mutex::new(state),
            queue: parking_lot::FairMutex::new(()),
            queued: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.queued.load(Ordering::Relaxed) == 0 {
            match self.state.try_lock() {
                Ok(guard) => return guard,
                // A panic under the lock is a bug of this workspace; later callers may see it too.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.lock_queued()
    }

    #[cold]
    fn lock_queued(&self) -> MutexGuard<'_, T> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let turn = self.queue.lock();
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.queued.fetch_sub(1, Ordering::Relaxed);
        drop(turn);
        guard
    }
}

/// A condition of the state behind a [`FairMutex`], for which threads wait. A woken thread queues for the mutex like
/// any other, which [`Condvar`] by itself would not do.
#[derive(Debug, Default)]
pub(crate) struct FairCondition {
    /// Held from before a waiting thread releases the state until it waits.
    entry: Mutex<()>,
    notified: Condvar,
}

impl FairCondition {
    /// Waits for a notification, at most for `timeout`; may end without either.
    pub fn wait<'a, T>(
        &self,
        mutex: &'a FairMutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        match timeout {
            None => drop(self.notified.wait(entry)),
            Some(timeout) => drop(self.notified.wait_timeout(entry, timeout)),
        }
        mutex.lock()
    }

    /// Wakes a waiting thread. The caller holds the mutex.
    pub fn notify_one(&self) {
        drop(self.entry.lock());
        self.notified.notify_one();
    }

    /// Wakes all waiting threads. The caller holds the mutex.
    pub fn notify_all(&self) {
        drop(self.entry.lock());
        self.notified.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{FairCondition, FairMutex};

    /// Ends the test if the other thread never has its turn.
    const MAX_TURNS: u64 = 100_000;

    /// Every 20th turn of a thread that locks without pause wakes another, which then waits for at most two turns.
    #[test]
    fn a_notified_thread_has_its_turn() {
        let (mutex, condition) = (FairMutex::new((0u64, None)), FairCondition::default());
        let mut turns_before_mine = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let (mut state, mut turns) = (mutex.lock(), Vec::new());
                while turns.len() < 200 {
                    match state.1.take() {
                        Some(at) => turns.push(state.0 - at),
                        None if state.0 >= MAX_TURNS => break,
                        None => state = condition.wait(&mutex, state, None),
                    }
                }
                turns
            });
            let mut is_last = false;
            while !waiting.is_finished() && !is_last {
                let mut state = mutex.lock();
                state.0 += 1;
                is_last = state.0 == MAX_TURNS;
                if state.0.is_multiple_of(20) && state.1.is_none() {
                    state.1 = Some(state.0);
                    condition.notify_one();
                }
                (0..5000).for_each(|_| std::hint::spin_loop());
            }
            waiting.join().unwrap()
        });
        turns_before_mine.sort_unstable();
        assert_eq!(turns_before_mine.len(), 200);
        assert!(turns_before_mine[150] <= 2, "{turns_before_mine:?}");
    }
}

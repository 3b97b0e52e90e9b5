//! A mutex that no thread can keep from others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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
        if self.queued.load(Ordering::Relaxed) == 0
            && let Ok(guard) = self.state.try_lock()
        {
            return guard;
        }
        self.lock_queued()
    }

    #[cold]
    fn lock_queued(&self) -> MutexGuard<'_, T> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let turn = self.queue.lock();
        // A panic under the lock is a bug of this workspace; later callers may see it too.
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.queued.fetch_sub(1, Ordering::Relaxed);
        drop(turn);
        guard
    }
}

/// Waits for a notification.
#[inline]
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, at most for `timeout`.
pub(crate) fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::FairMutex;

    /// Ends the test if the other thread never has its turn.
    const MAX_TURNS: u64 = 100_000;

    /// Between a thread's request and its turn, a thread that locks without pause gets at most two turns: the one that it
    /// has, and one that it took before the other began to wait. Some requests wait for a processor.
    #[test]
    fn a_thread_that_locks_without_pause_lets_another_have_its_turn() {
        let mutex = FairMutex::new(());
        let (is_over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut turns_before_mine = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && turns.load(Ordering::Relaxed) < MAX_TURNS {
                    let _turn = mutex.lock();
                    turns.fetch_add(1, Ordering::Relaxed);
                    // A thread that waits falls asleep meanwhile, and takes longer to wake than this one to come back.
                    (0..5000).for_each(|_| std::hint::spin_loop());
                }
            });
            let requests = (0..200).map(|_| {
                thread::sleep(Duration::from_micros(100));
                let before = turns.load(Ordering::Relaxed);
                let _turn = mutex.lock();
                turns.load(Ordering::Relaxed) - before
            });
            let turns_before_mine: Vec<u64> = requests.collect();
            is_over.store(true, Ordering::Relaxed);
            turns_before_mine
        });
        turns_before_mine.sort_unstable();
        assert!(turns_before_mine[150] <= 2, "{turns_before_mine:?}");
    }
}

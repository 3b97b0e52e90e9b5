//! The common start of connections that run in parallel.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use trunkline_experiment::plan::Block;
use trunkline_units::Instant;

use crate::locked;

/// The start of the connections that begin a block: an instant that is agreed when each has opened its ends or failed.
pub(super) struct Start {
    origin: Instant,
    state: Mutex<State>,
    agreed: Condvar,
}

struct State {
    /// Connections that have neither opened nor failed.
    missing: usize,
    /// The earliest instant that all opened connections can keep.
    earliest: Instant,
}

impl Start {
    /// Creates the start of a block whose first message may be sent at `origin`.
    pub fn new(block: &Block, origin: Instant) -> Start {
        let state = State { missing: first_connections(block), earliest: origin };
        Start { origin, state: Mutex::new(state), agreed: Condvar::default() }
    }

    /// Returns when the first message may be sent.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Registers a connection, which must open or fail.
    pub fn participant(&self) -> Participant<'_> {
        Participant { start: Some(self) }
    }

    fn arrive(&self, earliest: Instant) {
        let mut state = locked(&self.state);
        state.missing = state.missing.saturating_sub(1);
        state.earliest = state.earliest.max(earliest);
        drop(state);
        self.agreed.notify_all();
    }
}

/// A connection that takes part in a start. If it is dropped before it has opened, it has failed.
pub(super) struct Participant<'a> {
    start: Option<&'a Start>,
}

impl Participant<'_> {
    /// Reports that the connection is open and can start at `earliest`. Waits for the others, or while `may_wait` is true.
    /// Returns the common start.
    pub fn open(mut self, earliest: Instant, may_wait: impl Fn() -> bool) -> Instant {
        let Some(start) = self.start.take() else { return earliest };
        start.arrive(earliest);
        let mut state = locked(&start.state);
        while state.missing > 0 && may_wait() {
            let waited = start.agreed.wait_timeout(state, Duration::from_millis(20));
            let Ok((guard, _)) = waited else { return earliest };
            state = guard;
        }
        state.earliest
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        if let Some(start) = self.start {
            start.arrive(Instant::ZERO);
        }
    }
}

/// Returns the number of connections that begin a block.
fn first_connections(block: &Block) -> usize {
    match block {
        Block::Serial(blocks) => blocks.first().map_or(0, first_connections),
        Block::Parallel(blocks) => blocks.iter().map(first_connections).sum(),
        Block::Repeat { count: 0, .. } => 0,
        Block::Repeat { body, .. } => first_connections(body),
        Block::Connection(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    #[test]
    fn all_connections_start_when_the_last_has_opened() {
        let block = Block::Parallel(vec![
            Block::Serial(vec![Block::Connection(0), Block::Connection(1)]),
            Block::Connection(2),
            Block::Connection(3),
        ]);
        let ms = |ms| Instant::ZERO + Span::from_ms(ms);
        let start = Start::new(&block, ms(20));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| start.participant().open(ms(300), || true));
            let fast = scope.spawn(|| start.participant().open(ms(30), || true));
            drop(start.participant());
            assert_eq!((slow.join().unwrap(), fast.join().unwrap()), (ms(300), ms(300)));
        });
        let alone = Start::new(&Block::Connection(0), ms(20));
        assert_eq!(alone.participant().open(ms(5), || true), ms(20));
        let aborted = Start::new(&block, ms(20));
        assert_eq!(aborted.participant().open(ms(30), || false), ms(30));
    }
}

//! A server with a queue of its own, first come first served.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// Serves one after the other. Nothing overtakes, so when a job is done is known when it comes. Whoever gives it
/// jobs bounds how many there are.
#[derive(Clone, Debug)]
pub(crate) struct Server<J> {
    jobs: VecDeque<(Instant, J)>,
    free_at: Instant,
}

impl<J> Server<J> {
    pub(crate) fn new() -> Self {
        Server { jobs: VecDeque::new(), free_at: Instant::ZERO }
    }

    /// Takes a job that comes now and needs `cost`. Calls come in order of time.
    pub(crate) fn give(&mut self, now: Instant, cost: Span, job: J) {
        self.free_at = now.max(self.free_at) + cost;
        self.jobs.push_back((self.free_at, job));
    }

    /// When the next job is done; never, if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.jobs.front().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// Takes the job that is done next.
    pub(crate) fn take(&mut self) -> Option<J> {
        self.jobs.pop_front().map(|(_, job)| job)
    }
}

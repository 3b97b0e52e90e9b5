//! A first-come first-served server with a queue.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

/// Serves jobs in order, so the completion of a job is known when it is queued. The caller bounds the number of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Server<J> {
    jobs: VecDeque<(Instant, J)>,
    free_at: Instant,
}

impl<J> Server<J> {
    pub(crate) fn new() -> Self {
        Server { jobs: VecDeque::new(), free_at: Instant::ZERO }
    }

    /// Queues a job that needs `cost`. Calls come in order of time.
    pub(crate) fn add(&mut self, now: Instant, cost: Span, job: J) {
        self.free_at = now.max(self.free_at) + cost;
        self.jobs.push_back((self.free_at, job));
    }

    /// Returns the completion of the next job.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.jobs.front().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// Takes the next completed job.
    pub(crate) fn take(&mut self) -> Option<J> {
        self.jobs.pop_front().map(|(_, job)| job)
    }
}

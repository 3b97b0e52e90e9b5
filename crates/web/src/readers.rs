//! A pool of archive readers with a limit on concurrent queries.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use trunkline_counters::archive::{self, Location, Reader};
use trunkline_counters::counter::Timestamp;
use trunkline_io::Clock;

use super::query::ApiError;

/// Concurrent queries, each on its own thread.
pub const MAX_READERS: usize = 4;
/// Queries in the queue; more are refused.
const MAX_QUEUED: usize = 32;
/// Time limit of a query, checked between its steps.
const QUERY_TIMEOUT_NS: u64 = 20_000_000_000;

/// A pool of readers of one archive.
#[derive(Debug)]
pub struct Pool {
    archive: Location,
    idle: Mutex<Vec<Reader>>,
    reader_slots: Semaphore,
    queue_slots: Semaphore,
}

/// The context of a query.
#[derive(Debug)]
pub struct QueryContext<'a> {
    /// The archive.
    pub reader: &'a Reader,
    /// The wall clock at the start of the query.
    pub now: Timestamp,
    clock: Clock,
}

impl QueryContext<'_> {
    /// Returns an error after the time limit. To be called between the steps of a query.
    pub fn check_deadline(&self) -> Result<(), ApiError> {
        if self.clock.now().as_ns() > QUERY_TIMEOUT_NS { Err(ApiError::Timeout) } else { Ok(()) }
    }
}

impl Pool {
    /// Creates a pool; fails if the location has no archive.
    pub fn new(archive: impl Into<Location>) -> Result<Pool, archive::Error> {
        let archive = archive.into();
        let idle = Mutex::new(vec![Reader::open(&archive)?]);
        let (reader_slots, queue_slots) =
            (Semaphore::new(MAX_READERS), Semaphore::new(MAX_READERS + MAX_QUEUED));
        Ok(Pool { archive, idle, reader_slots, queue_slots })
    }

    /// Runs a query on its own thread when a reader is free.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        answer: impl FnOnce(&QueryContext<'_>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let _queue_slot = self.queue_slots.try_acquire().map_err(|_| ApiError::Overloaded)?;
        let _reader_slot = self.reader_slots.acquire().await.map_err(|_| ApiError::Internal)?;
        let pool = self.clone();
        let context = tokio::task::spawn_blocking(move || pool.answer(answer));
        context.await.unwrap_or(Err(ApiError::Internal))
    }

    fn answer<T>(
        &self,
        answer: impl FnOnce(&QueryContext<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let idle = self.lock().pop();
        let reader = idle.map_or_else(|| Reader::open(&self.archive), Ok)?;
        let clock = Clock::start();
        let now = Timestamp(0).saturating_add(clock.unix());
        let answer = answer(&QueryContext { reader: &reader, now, clock });
        // After an error of the archive, the next query opens it again.
        if !matches!(answer, Err(ApiError::Archive(_))) {
            self.lock().push(reader);
        }
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use trunkline_counters::archive::Writer;

    use super::*;

    #[test]
    fn excess_queries_are_refused_and_the_others_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.sqlite");
        drop(Writer::open(&path).unwrap());
        let pool = Arc::new(Pool::new(&path).unwrap());
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let start = || {
            let (pool, gate) = (pool.clone(), gate.clone());
            tokio::spawn(async move {
                // All queries block until `open` is dropped.
                pool.run(move |_| Ok(gate.lock().unwrap().recv().is_err())).await
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let all: Vec<_> = (0..MAX_READERS + MAX_QUEUED).map(|_| start()).collect();
            assert!(matches!(start().await.unwrap(), Err(ApiError::Overloaded)));
            drop(open);
            for one in all {
                assert!(matches!(one.await.unwrap(), Ok(true)));
            }
            let fails = pool.run(|_| -> Result<(), ApiError> { panic!("a bug in an answer") });
            assert!(matches!(fails.await, Err(ApiError::Internal)));
            assert!(pool.run(|context| Ok(context.reader.tables(Default::default(), 1)?)).await.is_ok());
        });
        assert!(pool.lock().len() <= MAX_READERS);
    }
}

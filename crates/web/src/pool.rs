//! Readers of the archive, a few at a time.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use trunkline_counters::archive::{self, Location, Reader};
use trunkline_counters::counter::Moment;
use trunkline_io::Clock;

use super::query::Refused;

/// Questions that are answered at the same time, each on a thread.
pub const READERS: usize = 4;
/// Questions that wait for their turn; more are refused.
const MOST_WAITING: usize = 32;
/// A question that takes longer than this is given up at the next step of it.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Readers of one archive.
#[derive(Debug)]
pub struct Pool {
    archive: Location,
    idle: Mutex<Vec<Reader>>,
    turns: Semaphore,
    places: Semaphore,
}

/// What a question is answered from.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The archive.
    pub reader: &'a Reader,
    /// The wall clock when it was asked.
    pub now: Moment,
    clock: Clock,
}

impl Asked<'_> {
    /// To be called between the parts of an answer.
    pub fn in_time(&self) -> Result<(), Refused> {
        if self.clock.now().as_ns() > PATIENCE_NS { Err(Refused::Slow) } else { Ok(()) }
    }
}

impl Pool {
    /// Readers of what must be an archive.
    pub fn new(archive: impl Into<Location>) -> Result<Pool, archive::Error> {
        let archive = archive.into();
        let idle = Mutex::new(vec![Reader::open(&archive)?]);
        let (turns, places) = (Semaphore::new(READERS), Semaphore::new(READERS + MOST_WAITING));
        Ok(Pool { archive, idle, turns, places })
    }

    /// Has a question answered on a thread of its own, when it is its turn.
    pub async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        answer: impl FnOnce(&Asked<'_>) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let _place = self.places.try_acquire().map_err(|_| Refused::Busy)?;
        let _turn = self.turns.acquire().await.map_err(|_| Refused::Lost)?;
        let pool = self.clone();
        let asked = tokio::task::spawn_blocking(move || pool.answer(answer));
        asked.await.unwrap_or(Err(Refused::Lost))
    }

    fn answer<T>(&self, answer: impl FnOnce(&Asked<'_>) -> Result<T, Refused>) -> Result<T, Refused> {
        let kept = self.lock().pop();
        let reader = kept.map_or_else(|| Reader::open(&self.archive), Ok)?;
        let clock = Clock::start();
        let now = Moment(i64::try_from(clock.unix().as_nanos()).unwrap_or(i64::MAX));
        let answer = answer(&Asked { reader: &reader, now, clock });
        // After trouble with the archive the next one opens it anew.
        if !matches!(answer, Err(Refused::Archive(_))) {
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
    fn too_many_questions_are_refused_and_the_others_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.sqlite");
        drop(Writer::open(&path).unwrap());
        let pool = Arc::new(Pool::new(&path).unwrap());
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let ask = || {
            let (pool, gate) = (pool.clone(), gate.clone());
            tokio::spawn(async move {
                // Nobody is answered before `open` is dropped.
                pool.ask(move |_| Ok(gate.lock().unwrap().recv().is_err())).await
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let all: Vec<_> = (0..READERS + MOST_WAITING).map(|_| ask()).collect();
            assert!(matches!(ask().await.unwrap(), Err(Refused::Busy)));
            drop(open);
            for one in all {
                assert!(matches!(one.await.unwrap(), Ok(true)));
            }
            let fails = pool.ask(|_| -> Result<(), Refused> { panic!("a bug in an answer") });
            assert!(matches!(fails.await, Err(Refused::Lost)));
            assert!(pool.ask(|asked| Ok(asked.reader.tables(Default::default(), 1)?)).await.is_ok());
        });
        assert!(pool.lock().len() <= READERS);
    }
}

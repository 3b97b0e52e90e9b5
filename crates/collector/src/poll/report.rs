//! What comes of polling, through a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::{Moment, Response};

use crate::snmp::Fault;

/// Most reports that wait.
pub const MOST_WAITING: usize = 16_384;
/// Most values that wait: 16 bytes each.
pub const MOST_VALUES: usize = 4_000_000;

/// What came of something.
#[derive(Clone, Debug)]
pub enum Report {
    /// A table was polled.
    Polled {
        /// Which: a number of the collector's.
        table: usize,
        /// What it is from now on, if that is new. The first report of a table has it.
        spec: Option<Arc<TableSpec>>,
        /// What came.
        response: Response,
    },
    /// A device says something in words.
    Words {
        /// Which.
        device: Arc<str>,
        /// What.
        words: Vec<Word>,
        /// When.
        at: Moment,
    },
    /// What is wrong with a table of a device, and before that something else was.
    Trouble {
        /// Which device.
        device: Arc<str>,
        /// Which of its tables.
        table: &'static str,
        /// What; none: nothing any more.
        fault: Option<Fault>,
        /// When.
        at: Moment,
    },
}

/// A text about a part of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Which part: an [`Object`](trunkline_counters::archive::Object) as it stands in names of series, or empty for the device.
    pub object: String,
    /// What is said: `description`, `state`.
    pub key: &'static str,
    /// In which words.
    pub text: String,
}

#[derive(Debug, Default)]
struct Load {
    values: AtomicUsize,
    lost: AtomicU64,
}

/// Where reports go.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: SyncSender<Report>,
    load: Arc<Load>,
}

/// Where they come out.
#[derive(Debug)]
pub struct Reports {
    queue: Receiver<Report>,
    load: Arc<Load>,
}

/// A queue of at most [`MOST_WAITING`] reports and [`MOST_VALUES`] values. What is too much is lost and counted: nobody who
/// polls ever waits for a disk.
pub fn queue() -> (Sink, Reports) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let load = Arc::new(Load::default());
    (Sink { queue: sender, load: load.clone() }, Reports { queue: receiver, load })
}

fn values(report: &Report) -> usize {
    match report {
        Report::Polled { response, .. } => response.answer.as_ref().map_or(0, |a| a.values.len()),
        Report::Words { words, .. } => words.len() * 64,
        Report::Trouble { .. } => 0,
    }
}

impl Sink {
    /// Hands one on; false if it is lost.
    pub fn put(&self, report: Report) -> bool {
        let count = values(&report);
        let before = self.load.values.fetch_add(count, Ordering::Relaxed);
        if before + count <= MOST_VALUES && self.queue.try_send(report).is_ok() {
            return true;
        }
        self.load.values.fetch_sub(count, Ordering::Relaxed);
        self.load.lost.fetch_add(1, Ordering::Relaxed);
        false
    }
}

impl Reports {
    /// The next; none if none came in time.
    pub fn next(&self, timeout: Duration) -> Result<Option<Report>, Over> {
        match self.queue.recv_timeout(timeout) {
            Ok(report) => {
                self.load.values.fetch_sub(values(&report), Ordering::Relaxed);
                Ok(Some(report))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Over),
        }
    }

    /// How many were lost so far because too much waited.
    pub fn lost(&self) -> u64 {
        self.load.lost.load(Ordering::Relaxed)
    }
}

/// Nobody polls any more, and nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

#[cfg(test)]
mod tests {
    use trunkline_counters::counter::{Answer, Raw};

    use super::*;

    fn polled(width: usize) -> Report {
        let answer = Answer { answered: Moment(2), uptime: None, values: vec![Some(Raw(1)); width] };
        let response = Response { due: Moment(0), asked: Moment(1), answer: Some(answer) };
        Report::Polled { table: 0, spec: None, response }
    }

    #[test]
    fn the_queue_is_bounded_by_reports_and_by_values() {
        let (sink, reports) = queue();
        let taken = (0..MOST_WAITING + 10).filter(|_| sink.put(polled(1))).count();
        assert_eq!((taken, reports.lost()), (MOST_WAITING, 10));
        while reports.next(Duration::ZERO).unwrap().is_some() {}
        assert!(sink.put(polled(MOST_VALUES)) && !sink.put(polled(1)));
        assert!(reports.next(Duration::ZERO).unwrap().is_some());
        assert!(sink.put(polled(1)));
        drop(sink);
        assert!(reports.next(Duration::ZERO).unwrap().is_some());
        assert_eq!(reports.next(Duration::ZERO).map(|_| ()), Err(Over));
        assert_eq!(reports.lost(), 11);
    }
}

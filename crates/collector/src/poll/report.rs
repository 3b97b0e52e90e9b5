//! Reports of polling tasks, their bounded queue, and what all tasks share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::{Response, Timestamp};

use super::AnchoredClock;
use crate::snmp::Fault;

/// Largest number of queued reports.
pub const MAX_REPORTS: usize = 16_384;
/// Largest number of queued values, of 16 bytes each.
pub const MAX_VALUES: usize = 4_000_000;

/// The resources that every polling task shares.
#[derive(Clone, Debug)]
pub struct Context {
    /// The clock.
    pub clock: AnchoredClock,
    /// The queue of reports.
    pub sink: ReportSender,
}

/// A report of a polling task.
#[derive(Clone, Debug)]
pub enum Report {
    /// A table was polled.
    Polled {
        /// The collector's number of the table.
        table: usize,
        /// The new specification of the table, if it changed. The first report of a table has one.
        spec: Option<Arc<TableSpec>>,
        /// The response.
        response: Response,
    },
    /// Texts of a device changed.
    Texts {
        /// The device.
        device: Arc<str>,
        /// The changed texts.
        texts: Vec<DeviceText>,
        /// The time of the change.
        at: Timestamp,
    },
    /// The fault of a table changed.
    FaultChanged {
        /// The device.
        device: Arc<str>,
        /// The table.
        table: &'static str,
        /// The new fault; `None` if the fault ended.
        fault: Option<Fault>,
        /// The time of the change.
        at: Timestamp,
    },
}

/// A text that describes an object of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceText {
    /// The object, as an [`Object`](trunkline_counters::archive::Object) is written in series names; empty for the
    /// device itself.
    pub object: String,
    /// The kind of text: `description`, `state`.
    pub key: &'static str,
    /// The text.
    pub text: String,
}

#[derive(Debug, Default)]
struct Load {
    values: AtomicUsize,
    lost: AtomicU64,
}

/// The sending end of the report queue.
#[derive(Clone, Debug)]
pub struct ReportSender {
    queue: SyncSender<Report>,
    load: Arc<Load>,
}

/// The receiving end of the report queue.
#[derive(Debug)]
pub struct ReportReceiver {
    queue: Receiver<Report>,
    load: Arc<Load>,
}

/// Creates a queue of at most [`MAX_REPORTS`] reports and [`MAX_VALUES`] values. When it is full, new reports are
/// dropped and counted: polling tasks never wait for a disk.
pub fn queue() -> (ReportSender, ReportReceiver) {
    let (sender, receiver) = sync_channel(MAX_REPORTS);
    let load = Arc::new(Load::default());
    (ReportSender { queue: sender, load: load.clone() }, ReportReceiver { queue: receiver, load })
}

fn value_count(report: &Report) -> usize {
    match report {
        Report::Polled { response, .. } => response.answer.as_ref().map_or(0, |a| a.values.len()),
        Report::Texts { texts, .. } => texts.len() * 64,
        Report::FaultChanged { .. } => 0,
    }
}

impl ReportSender {
    /// Sends a report; returns `false` if the queue is full and the report was dropped.
    pub fn send(&self, report: Report) -> bool {
        let count = value_count(&report);
        let before = self.load.values.fetch_add(count, Ordering::Relaxed);
        if before + count <= MAX_VALUES && self.queue.try_send(report).is_ok() {
            return true;
        }
        self.load.values.fetch_sub(count, Ordering::Relaxed);
        self.load.lost.fetch_add(1, Ordering::Relaxed);
        false
    }
}

impl ReportReceiver {
    /// Receives the next report; `None` after `timeout`.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Report>, Closed> {
        match self.queue.recv_timeout(timeout) {
            Ok(report) => {
                self.load.values.fetch_sub(value_count(&report), Ordering::Relaxed);
                Ok(Some(report))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// Returns the number of reports dropped so far because the queue was full.
    pub fn lost(&self) -> u64 {
        self.load.lost.load(Ordering::Relaxed)
    }
}

/// All senders are gone and the queue is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

#[cfg(test)]
mod tests {
    use trunkline_counters::counter::{Answer, RawValue};

    use super::*;

    fn polled(width: usize) -> Report {
        let answer =
            Answer { answered_at: Timestamp(2), uptime: None, values: vec![Some(RawValue(1)); width] };
        let response = Response { due_at: Timestamp(0), requested_at: Timestamp(1), answer: Some(answer) };
        Report::Polled { table: 0, spec: None, response }
    }

    #[test]
    fn the_queue_is_bounded_by_reports_and_by_values() {
        let (sink, reports) = queue();
        let taken = (0..MAX_REPORTS + 10).filter(|_| sink.send(polled(1))).count();
        assert_eq!((taken, reports.lost()), (MAX_REPORTS, 10));
        while reports.receive(Duration::ZERO).unwrap().is_some() {}
        assert!(sink.send(polled(MAX_VALUES)) && !sink.send(polled(1)));
        assert!(reports.receive(Duration::ZERO).unwrap().is_some());
        assert!(sink.send(polled(1)));
        drop(sink);
        assert!(reports.receive(Duration::ZERO).unwrap().is_some());
        assert_eq!(reports.receive(Duration::ZERO).map(|_| ()), Err(Closed));
        assert_eq!(reports.lost(), 11);
    }
}

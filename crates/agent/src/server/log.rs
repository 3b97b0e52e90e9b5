//! The server's log, whose length for each minute is limited.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines in the log for each minute: anyone who reaches the port can cause one.
const MAX_LINES_PER_MINUTE: usize = 60;

/// Receives one line for each refused client or request and each enrolment.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A log that drops lines when there are too many, and says so with the next line.
pub struct LimitedLog {
    log: Log,
    /// When the last lines were written, and how many were dropped since.
    recent: Mutex<(VecDeque<Instant>, u64)>,
}

impl LimitedLog {
    /// Creates a log without lines.
    pub fn new(log: Log) -> LimitedLog {
        LimitedLog { log, recent: Mutex::default() }
    }

    /// Writes a line that only the owner of a trusted or one-time key can cause.
    pub fn write_always(&self, line: &str) {
        (self.log)(line);
    }

    /// Writes a line that anyone can cause.
    pub fn write(&self, line: &str) {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, dropped) = &mut *recent;
        while times.front().is_some_and(|time| now.duration_since(*time) >= Duration::from_secs(60)) {
            times.pop_front();
        }
        if times.len() >= MAX_LINES_PER_MINUTE {
            *dropped += 1;
            return;
        }
        times.push_back(now);
        if let dropped @ 1.. = std::mem::take(dropped) {
            (self.log)(&format!("{dropped} more lines were not logged"));
        }
        (self.log)(line);
    }
}

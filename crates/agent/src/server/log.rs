//! The server's log, whose length for each minute is limited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fingerprint::Fingerprint;

/// Maximum number of lines in the log for each minute: anyone who reaches the port can cause one.
const MAX_LINES_PER_MINUTE: usize = 60;
/// Maximum number of lines for each minute that the runs of one controller cause.
const MAX_LINES_PER_CONTROLLER: usize = 120;

/// Receives one line for each refused client or request and each enrolment.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A log that drops lines when there are too many, and says so with the next line.
pub struct LimitedLog {
    log: Log,
    of_anyone: Mutex<Recent>,
    of_controllers: Mutex<BTreeMap<Fingerprint, Recent>>,
}

/// When the last lines were written, and how many were dropped since.
#[derive(Default)]
struct Recent {
    times: VecDeque<Instant>,
    dropped: u64,
}

impl Recent {
    /// Returns whether a line may be written now, and then how many were dropped before it.
    fn admit(&mut self, now: Instant, max: usize) -> Option<u64> {
        self.forget(now);
        if self.times.len() >= max {
            self.dropped += 1;
            return None;
        }
        self.times.push_back(now);
        Some(std::mem::take(&mut self.dropped))
    }

    fn forget(&mut self, now: Instant) {
        while self.times.front().is_some_and(|time| now.duration_since(*time) >= Duration::from_secs(60)) {
            self.times.pop_front();
        }
    }
}

impl LimitedLog {
    /// Creates a log without lines.
    pub fn new(log: Log) -> LimitedLog {
        LimitedLog { log, of_anyone: Mutex::default(), of_controllers: Mutex::default() }
    }

    /// Writes a line that no client can cause often.
    pub fn write_always(&self, line: &str) {
        (self.log)(line);
    }

    /// Writes a line that anyone can cause.
    pub fn write(&self, line: &str) {
        let mut recent = self.of_anyone.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = recent.admit(Instant::now(), MAX_LINES_PER_MINUTE);
        drop(recent);
        self.write_after(dropped, line);
    }

    /// Writes a line that an enrolled controller can cause. It hides no lines of others.
    pub fn write_of(&self, controller: Fingerprint, line: &str) {
        self.write_of_at(controller, line, Instant::now());
    }

    fn write_of_at(&self, controller: Fingerprint, line: &str, now: Instant) {
        let mut recent = self.of_controllers.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, recent| {
            recent.forget(now);
            !recent.times.is_empty() || recent.dropped > 0
        });
        let dropped = recent.entry(controller).or_default().admit(now, MAX_LINES_PER_CONTROLLER);
        drop(recent);
        self.write_after(dropped, line);
    }

    fn write_after(&self, dropped: Option<u64>, line: &str) {
        let Some(dropped) = dropped else { return };
        if dropped > 0 {
            (self.log)(&format!("{dropped} more lines were not logged"));
        }
        (self.log)(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (LimitedLog, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let written = lines.clone();
        let log = move |line: &str| written.lock().unwrap().push(line.to_owned());
        (LimitedLog::new(Arc::new(log)), lines)
    }

    fn key(octet: u8) -> Fingerprint {
        Fingerprint::from_bytes([octet; 32])
    }

    #[test]
    fn dropped_lines_are_counted_after_a_pause_too() {
        let (log, lines) = log();
        let now = Instant::now();
        (0..MAX_LINES_PER_CONTROLLER + 3).for_each(|_| log.write_of_at(key(1), "a", now));
        let later = now + Duration::from_secs(600);
        log.write_of_at(key(2), "b", later);
        log.write_of_at(key(1), "c", later);
        assert_eq!(
            lines.lock().unwrap()[MAX_LINES_PER_CONTROLLER..],
            ["b", "3 more lines were not logged", "c"]
        );
        // Only controllers with recent or dropped lines take memory.
        log.write_of_at(key(3), "d", later + Duration::from_secs(60));
        assert_eq!(log.of_controllers.lock().unwrap().len(), 1);
    }

    #[test]
    fn one_controller_neither_fills_the_log_nor_hides_lines_of_others() {
        let (log, lines) = log();
        (0..10_000).for_each(|_| log.write_of(key(1), "a"));
        log.write_of(key(2), "b");
        log.write("c");
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), MAX_LINES_PER_CONTROLLER + 2);
        assert_eq!(lines[MAX_LINES_PER_CONTROLLER..], ["b", "c"]);
    }
}

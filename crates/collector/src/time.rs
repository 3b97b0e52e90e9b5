//! A clock that never goes back, and the schedule of polls.

use std::time::Duration;

use trunkline_counters::counter::Timestamp;
use trunkline_io::Clock;

/// The wall clock at the start plus the time that the monotonic clock has counted since. Intervals stay correct when
/// the wall clock is set. If the wall clock was wrong at the start, restart the poller.
#[derive(Clone, Copy, Debug)]
pub struct AnchoredClock {
    clock: Clock,
    started_at: Timestamp,
}

impl AnchoredClock {
    /// Reads the wall clock once.
    pub fn start() -> AnchoredClock {
        let clock = Clock::start();
        AnchoredClock { clock, started_at: Timestamp(0).saturating_add(clock.unix()) }
    }

    /// Returns the current time.
    pub fn now(self) -> Timestamp {
        self.started_at.saturating_add(Duration::from_nanos(self.clock.now().as_ns()))
    }

    /// Returns the difference between the wall clock and this clock, which grows when the wall clock is set.
    pub fn offset(self) -> Duration {
        let wall = Timestamp(0).saturating_add(self.clock.unix());
        let now = self.now();
        wall.duration_since(now).max(now.duration_since(wall))
    }

    /// Sleeps until `until`.
    pub async fn sleep_until(self, until: Timestamp) {
        tokio::time::sleep(until.duration_since(self.now())).await;
    }
}

/// The due times of a periodic poll.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    period: Duration,
    due: Timestamp,
}

impl Schedule {
    /// Creates a schedule that is first due at `started_at` plus `phase` (0 to 1) of a period.
    pub fn new(started_at: Timestamp, period: Duration, phase: f64) -> Schedule {
        Schedule { period, due: started_at.saturating_add(period.mul_f64(phase.clamp(0.0, 1.0))) }
    }

    /// Returns the next due time.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Returns the due time after the next.
    pub fn next_due(&self) -> Timestamp {
        self.due.saturating_add(self.period)
    }

    /// Advances to the next due time that is not over at `now`; missed polls are skipped.
    pub fn advance(&mut self, now: Timestamp) {
        let elapsed_periods = now.duration_since(self.due).as_nanos() / self.period.as_nanos().max(1);
        let steps = u32::try_from(elapsed_periods).unwrap_or(u32::MAX).max(1);
        // A poll less than a tenth of a period late still runs; any later one counts as missed.
        self.due = self.due.saturating_add(self.period.saturating_mul(steps));
        if now.duration_since(self.due) > self.period / 10 {
            self.due = self.due.saturating_add(self.period);
        }
    }
}

/// Returns the phase of poll `number` of `count` within a period, such that neighbours are far apart: devices that
/// are adjacent in a file are often parts of one machine.
pub fn phase(number: usize, count: usize) -> f64 {
    let golden = 0.618_033_988_749_894_8 * number as f64;
    if count <= 1 { 0.0 } else { golden.fract() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_polls_are_skipped() {
        let second = |s: i64| Timestamp(s * 1_000_000_000);
        let mut schedule = Schedule::new(second(0), Duration::from_secs(10), 0.5);
        let mut due = Vec::new();
        for now in [5, 7, 15, 26, 58] {
            schedule.advance(second(now));
            due.push(schedule.due().0 / 1_000_000_000);
        }
        assert_eq!(due, [15, 25, 35, 45, 65]);
    }

    #[test]
    fn phases_are_evenly_spread() {
        let mut phases: Vec<f64> = (0..200).map(|n| phase(n, 200)).collect();
        phases.sort_by(f64::total_cmp);
        let widest = phases.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
        assert!(widest < 3.0 / 200.0, "{widest}");
    }

    #[test]
    fn the_clock_is_monotonic() {
        let clock = AnchoredClock::start();
        let first = clock.now();
        assert!(clock.now() >= first && first >= clock.started_at);
        assert!(clock.offset() < Duration::from_secs(60));
    }
}

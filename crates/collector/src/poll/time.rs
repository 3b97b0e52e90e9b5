//! A clock that never goes back, and when polls are due.

use std::time::Duration;

use trunkline_counters::counter::Moment;
use trunkline_io::Clock;

/// Tells moments: the wall clock as it was at the start, and what the monotonic clock has counted since. So an interval is
/// true even if somebody sets the wall clock; a machine whose clock was far off at the start wants the poller started anew.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    clock: Clock,
    began: Moment,
}

impl Time {
    /// Reads the wall clock, once.
    pub fn start() -> Time {
        let clock = Clock::start();
        Time { clock, began: Moment(i64::try_from(clock.unix().as_nanos()).unwrap_or(i64::MAX)) }
    }

    /// Now.
    pub fn now(self) -> Moment {
        self.began.after(Duration::from_nanos(self.clock.now().as_ns()))
    }

    /// When it was started.
    pub fn began(self) -> Moment {
        self.began
    }

    /// By how much the wall clock is now elsewhere than this one: it was set.
    pub fn off(self) -> Duration {
        let wall = Moment(i64::try_from(self.clock.unix().as_nanos()).unwrap_or(i64::MAX));
        let now = self.now();
        wall.since(now).max(now.since(wall))
    }

    /// Waits for a moment.
    pub async fn wait(self, until: Moment) {
        tokio::time::sleep(until.since(self.now())).await;
    }
}

/// When something is due: every period, at its own place within it.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    period: Duration,
    due: Moment,
}

impl Schedule {
    /// First after so much of a period that `share` of 1 is, from `began` on.
    pub fn new(began: Moment, period: Duration, share: f64) -> Schedule {
        Schedule { period, due: began.after(period.mul_f64(share.clamp(0.0, 1.0))) }
    }

    /// When it is due.
    pub fn due(&self) -> Moment {
        self.due
    }

    /// When the next is due.
    pub fn end(&self) -> Moment {
        self.due.after(self.period)
    }

    /// On to the next that is not over at `now`: those in between are missed, and never made up for.
    pub fn done(&mut self, now: Moment) {
        let over = now.since(self.due).as_nanos() / self.period.as_nanos().max(1);
        let steps = u32::try_from(over).unwrap_or(u32::MAX).max(1);
        // Less than a tenth late is late; what is later is missed.
        self.due = self.due.after(self.period.saturating_mul(steps));
        if now.since(self.due) > self.period / 10 {
            self.due = self.due.after(self.period);
        }
    }
}

/// Place `number` of `count` in a period, such that neighbours are far apart: devices that stand together in a file are
/// often one box.
pub fn share(number: usize, count: usize) -> f64 {
    let golden = 0.618_033_988_749_894_8 * number as f64;
    if count <= 1 { 0.0 } else { golden.fract() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let second = |s: i64| Moment(s * 1_000_000_000);
        let mut schedule = Schedule::new(second(0), Duration::from_secs(10), 0.5);
        let mut due = Vec::new();
        for now in [5, 7, 15, 26, 58] {
            schedule.done(second(now));
            due.push(schedule.due().0 / 1_000_000_000);
        }
        assert_eq!(due, [15, 25, 35, 45, 65]);
    }

    #[test]
    fn polls_are_spread() {
        let mut shares: Vec<f64> = (0..200).map(|n| share(n, 200)).collect();
        shares.sort_by(f64::total_cmp);
        let widest = shares.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
        assert!(widest < 3.0 / 200.0, "{widest}");
    }

    #[test]
    fn time_does_not_go_back() {
        let time = Time::start();
        let first = time.now();
        assert!(time.now() >= first && first >= time.began());
        assert!(time.off() < Duration::from_secs(60));
    }
}

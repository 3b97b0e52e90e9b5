//! The monotonic clock of a run.

use std::time::Duration;

use libc::{CLOCK_REALTIME, clockid_t};
use trunkline_units::{Instant, Span};

/// The monotonic clock. On macOS `CLOCK_MONOTONIC` counts whole microseconds.
#[cfg(target_vendor = "apple")]
const MONOTONIC: clockid_t = libc::CLOCK_UPTIME_RAW;
#[cfg(not(target_vendor = "apple"))]
const MONOTONIC: clockid_t = libc::CLOCK_MONOTONIC;

#[cfg(target_os = "linux")]
use libc::adjtimex as ntp_adjtime;
#[cfg(not(target_os = "linux"))]
use libc::ntp_adjtime;

/// Converts the system's monotonic clock to [`Instant`]s of a run. Processes of one machine that share the epoch read
/// the same time, so one-way delays between them are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    epoch_ns: u64,
}

impl Clock {
    /// Starts a run now.
    pub fn start() -> Self {
        Clock { epoch_ns: monotonic_ns() }
    }

    /// Returns the clock of a run that began when the monotonic clock read `epoch_ns`.
    pub fn at(epoch_ns: u64) -> Self {
        Clock { epoch_ns }
    }

    /// Returns the monotonic clock's reading at the start of the run, in nanoseconds.
    pub fn epoch_ns(self) -> u64 {
        self.epoch_ns
    }

    /// Returns the time since the run began; zero before it begins.
    #[inline]
    pub fn now(self) -> Instant {
        Instant::from_ns(monotonic_ns().saturating_sub(self.epoch_ns))
    }

    /// Returns the wall-clock time since 1970, UTC. Unlike the monotonic clock, it survives a reboot and may be set.
    pub fn unix(self) -> Duration {
        Duration::from_nanos(wall_clock_ns())
    }

    /// Converts a recent wall-clock time, such as a kernel timestamp, to this clock. The error is the amount by which
    /// the wall clock was set since.
    pub fn instant_of_unix(self, unix: Duration) -> Instant {
        let ago = self.unix().saturating_sub(unix).as_nanos();
        let ns = monotonic_ns().saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX));
        Instant::from_ns(ns.saturating_sub(self.epoch_ns))
    }
}

/// Returns the maximum error of the wall clock relative to UTC as the kernel estimates it; `None` if no time service
/// synchronizes the clock.
pub fn utc_error() -> Option<Span> {
    // SAFETY: all bits zero are a valid value: without modes it only asks.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the system fills a value of the type that it expects, which lives through the call.
    let result = unsafe { ntp_adjtime(&raw mut state) };
    let is_synchronized = result >= 0 && result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    is_synchronized.then(|| Span::from_us(u64::try_from(state.maxerror).unwrap_or(u64::MAX)))
}

/// Reads the clock that the time service does not steer (`CLOCK_MONOTONIC_RAW`), in nanoseconds; on other systems than
/// Linux the monotonic clock, which FreeBSD's time service steers.
pub fn raw_ns() -> u64 {
    #[cfg(target_os = "linux")]
    return read(libc::CLOCK_MONOTONIC_RAW);
    #[cfg(not(target_os = "linux"))]
    return monotonic_ns();
}

/// Returns the time since the system started, including suspension.
pub fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: clockid_t = libc::CLOCK_MONOTONIC;
    Duration::from_nanos(read(CLOCK))
}

/// Reads the wall clock, in nanoseconds since 1970, UTC.
pub fn wall_clock_ns() -> u64 {
    read(CLOCK_REALTIME)
}

/// Reads the monotonic clock, in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(MONOTONIC)
}

#[inline]
fn read(clock: clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system fills a value of the type that it expects, which lives through the call.
    let done = unsafe { libc::clock_gettime(clock, &raw mut t) };
    assert!(done == 0, "every system has this clock");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_converts_to_run_time() {
        let clock = Clock::start();
        let before = clock.now();
        let unix = clock.unix();
        // Each clock was read once, one after the other.
        let when = clock.instant_of_unix(unix);
        assert!(when <= clock.now());
        assert!(
            clock.instant_of_unix(unix + Duration::from_secs(1 << 40)) >= before,
            "what is to come is now"
        );
        assert_eq!(clock.instant_of_unix(Duration::ZERO), Instant::ZERO, "long before the run");
    }
}

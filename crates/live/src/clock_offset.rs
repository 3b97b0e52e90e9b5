//! Estimates the offset between two monotonic clocks from request/response exchanges, with a bound that is proven.
//!
//! The offset θ is the reading of the remote clock minus the reading of the local clock. It is a function of the local
//! time x. Two facts bound it:
//!
//! - An exchange sends a request at t1, which the remote side receives at t2, and a reply at t3, which is received
//!   at t4 (the four timestamps of RFC 5905, section 8). A message does not arrive before it is sent, so
//!   θ(t1) ≤ t2 − t1 and θ(t4) ≥ t3 − t4, however asymmetric the queues of the path are.
//! - The clocks drift apart by at most ρ, so |θ(x) − θ(y)| ≤ ρ |x − y|.
//!
//! Each exchange therefore limits θ at every x. The estimate is the intersection of the limits of all exchanges of the
//! last [`WINDOW`]: the exchanges that waited least in queues, carried to x, decide (minimum filter). No other
//! bound is tighter without further assumptions. A drift in the past does not prove the drift of the future, so it does not
//! shorten the interval.
//!
//! # Steps
//!
//! A clock can step: a machine is suspended, or a virtual machine is moved. An exchange that contradicts an earlier one
//! proves a step. The estimator then discards all exchanges. It also discards the one that revealed the step, because
//! the clock may have stepped between its t1 and its t4, and then one of its two limits belongs to the time before the
//! step. The next exchange that is sent gives a new estimate.
//!
//! # When the bound is true
//!
//! The bound is true if the drift stays within ρ, the remote side reports its readings, and no clock stepped
//! during the exchanges in use. After a step, the bound can be false until the first of these events:
//!
//! - An exchange contradicts an earlier one. The first complete exchange after the step does so if the step is larger than
//!   the sum of the width of the stated interval (twice the bound) and the round trip of the exchange. A smaller step
//!   may also be found, if the queues are short in the right direction.
//! - The exchanges that were sent before the end of the step leave the window: the instant in question, or the
//!   latest recorded reply, is more than [`WINDOW`] after the step.
//!
//! A step that is smaller than the uncertainty of the exchanges cannot be distinguished from queueing. On an idle path,
//! that is about the minimum round trip.
//!
//! The kernel adjusts the rate of `CLOCK_MONOTONIC` to a time server: ntpd by up to 500 ppm, chrony by up to 8.3 % by
//! default. `CLOCK_MONOTONIC_RAW` is not adjusted and needs no larger limit than [`TWO_QUARTZ_CLOCKS_PPB`].

use std::collections::VecDeque;

use thiserror::Error;
use trunkline_units::{Instant, Span};

#[cfg(test)]
mod tests;

/// Maximum relative drift of two clocks of ±100 ppm each, in parts per billion: 1.0001 / 0.9999 − 1, rounded up.
pub const TWO_QUARTZ_CLOCKS_PPB: u32 = 200_021;
/// Time for which an exchange is used after its request was sent.
pub const WINDOW: Span = Span::from_s(16);

/// Largest configurable drift: 10 %. It keeps the remote time strictly increasing in the local time.
const LARGEST_DRIFT_PPB: u32 = 100_000_000;
/// Maximum number of stored exchanges. With one every 40 ms, a window has 400.
const CAPACITY: usize = 512;
/// Error of a difference of two readings, in picoseconds: each is a whole number of nanoseconds, rounded down.
const READING_ERROR_PS: i128 = 2_000;
const BILLION: i128 = 1_000_000_000;

/// The four timestamps of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the request was sent, on the local clock (t1).
    pub sent: Instant,
    /// When the remote side received the request, on its clock (t2).
    pub received_remote: Instant,
    /// When the remote side sent the reply, on its clock (t3).
    pub replied_remote: Instant,
    /// When the reply was received, on the local clock (t4).
    pub received: Instant,
}

/// Reason for which an exchange is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// The reply was received before the request was sent.
    #[error("the reply was received before the request was sent")]
    ReceivedBeforeSent,
    /// The remote side replied before it received the request.
    #[error("the remote side replied before it received the request")]
    RepliedBeforeReceived,
    /// The remote side claims more time between request and reply than the round trip took.
    #[error("the remote side claims to have taken longer than the round trip")]
    LongerThanRoundTrip,
    /// The request was sent before the window, or before the end of the latest step.
    #[error("the request was sent before the window or before the latest step of a clock")]
    SentTooEarly,
}

/// The offset at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Remote reading minus local reading, in picoseconds: the centre of the interval that contains the offset.
    pub offset_ps: i128,
    /// Maximum error of the offset: half the width of the interval.
    pub bound: Span,
    /// Steps of a clock that were detected so far.
    pub steps: u64,
}

/// The two limits that an exchange sets, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Local time at which the offset is at most `highest`.
    sent: i128,
    highest: i128,
    /// Local time at which the offset is at least `lowest`.
    received: i128,
    lowest: i128,
}

/// Estimates the offset of a remote clock.
///
/// Call [`record`](ClockOffset::record) for each reply. Lost requests need no call. The local clock must be monotonic. At
/// most 512 exchanges are stored.
///
/// ```
/// use trunkline_live::clock_offset::{ClockOffset, Exchange};
/// use trunkline_units::Instant;
///
/// let us = |us: u64| Instant::from_ns(us * 1_000);
/// let mut clock = ClockOffset::default();
/// let exchange = Exchange {
///     sent: us(1_000),
///     received_remote: us(5_100),
///     replied_remote: us(5_110),
///     received: us(1_210),
/// };
/// clock.record(exchange).expect("the exchange is possible");
/// let estimate = clock.estimate(us(1_210)).expect("there is an exchange");
/// assert_eq!(estimate.offset_ps / 1_000_000, 4_000);
/// assert_eq!(estimate.bound.as_ns() / 1_000, 100);
/// ```
#[derive(Clone, Debug)]
pub struct ClockOffset {
    max_drift_ppb: i128,
    /// In the order in which they were recorded.
    exchanges: VecDeque<Limits>,
    /// Latest time at which a reply was received.
    newest: i128,
    /// Exchanges that were sent earlier may include a step.
    valid_from: i128,
    steps: u64,
}

impl Default for ClockOffset {
    fn default() -> ClockOffset {
        ClockOffset::new(TWO_QUARTZ_CLOCKS_PPB)
    }
}

impl ClockOffset {
    /// Creates an estimator for clocks that drift apart by at most `max_drift_ppb` parts per billion of the local time.
    /// Values above 10 % are reduced to 10 %.
    pub fn new(max_drift_ppb: u32) -> ClockOffset {
        ClockOffset {
            max_drift_ppb: i128::from(max_drift_ppb.min(LARGEST_DRIFT_PPB)),
            exchanges: VecDeque::new(),
            newest: 0,
            valid_from: 0,
            steps: 0,
        }
    }

    /// Uses an exchange. If it contradicts an earlier one, a step of a clock is counted and all exchanges are discarded.
    ///
    /// # Errors
    ///
    /// Refuses an exchange that is impossible without a step, or that was sent before the window or the latest step.
    pub fn record(&mut self, exchange: Exchange) -> Result<(), Rejected> {
        let limits = self.limits(exchange)?;
        let newest = self.newest.max(limits.received);
        if limits.sent < self.valid_from || !is_in_window(&limits, newest) {
            return Err(Rejected::SentTooEarly);
        }
        self.newest = newest;
        self.exchanges.retain(|earlier| is_in_window(earlier, newest));
        if self.exchanges.iter().any(|earlier| self.contradicts(earlier, &limits)) {
            self.discard();
            return Ok(());
        }
        if self.exchanges.len() == CAPACITY {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(limits);
        Ok(())
    }

    /// Returns the offset at an instant of the local clock. The instant may also be in the past.
    ///
    /// Returns `None` if no exchange was sent in the [`WINDOW`] before it, or if it precedes all exchanges in use.
    pub fn estimate(&self, local: Instant) -> Option<Estimate> {
        let at = ps(local);
        let (lowest, highest) = self.interval(at)?;
        let offset_ps = (lowest + highest).div_euclid(2);
        // Half the width, rounded up.
        let bound = Span::from_ps(u64::try_from((highest - offset_ps).max(0)).unwrap_or(u64::MAX));
        Some(Estimate { offset_ps, bound, steps: self.steps })
    }

    /// Returns the number of steps of a clock that were detected so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Computes the limits of an exchange, unless it is impossible.
    fn limits(&self, exchange: Exchange) -> Result<Limits, Rejected> {
        let Exchange { sent, received_remote, replied_remote, received } = exchange;
        if received < sent {
            return Err(Rejected::ReceivedBeforeSent);
        }
        if replied_remote < received_remote {
            return Err(Rejected::RepliedBeforeReceived);
        }
        let limits = Limits {
            sent: ps(sent),
            highest: ps(received_remote) - ps(sent) + READING_ERROR_PS,
            received: ps(received),
            lowest: ps(replied_remote) - ps(received) - READING_ERROR_PS,
        };
        match self.contradicts(&limits, &limits) {
            true => Err(Rejected::LongerThanRoundTrip),
            false => Ok(limits),
        }
    }

    /// Returns whether no offset that drifts within the limit satisfies both exchanges.
    fn contradicts(&self, a: &Limits, b: &Limits) -> bool {
        let exceeds = |a: &Limits, b: &Limits| a.lowest - b.highest > self.growth(a.received - b.sent);
        exceeds(a, b) || exceeds(b, a)
    }

    /// Returns the maximum change of the offset over a time, in picoseconds, rounded up.
    fn growth(&self, elapsed: i128) -> i128 {
        divide_up(elapsed.abs() * self.max_drift_ppb, BILLION)
    }

    fn discard(&mut self) {
        self.exchanges.clear();
        self.valid_from = self.newest;
        self.steps = self.steps.saturating_add(1);
    }

    /// Returns the exchanges that limit the offset at a local instant.
    fn in_use(&self, at: i128) -> impl Iterator<Item = &Limits> {
        let newest = self.newest.max(at);
        self.exchanges.iter().filter(move |one| is_in_window(one, newest))
    }

    /// Returns the interval of the offset at a local instant that is not before the exchanges in use.
    fn interval(&self, at: i128) -> Option<(i128, i128)> {
        self.in_use(at).find(|one| one.sent <= at)?;
        let limits = |one: &Limits| {
            (one.lowest - self.growth(at - one.received), one.highest + self.growth(at - one.sent))
        };
        self.in_use(at).map(limits).reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    }
}

/// Returns whether an exchange is used at a local instant.
fn is_in_window(one: &Limits, now: i128) -> bool {
    now - one.sent <= i128::from(WINDOW.as_ps())
}

/// Divides by a positive number and rounds up.
fn divide_up(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

fn ps(instant: Instant) -> i128 {
    i128::from(instant.as_ps())
}

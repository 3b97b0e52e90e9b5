//! The limits of a sender: what the central converter reported to a host or level-1 converter.

use trunkline_units::{Instant, Span};

use crate::level::{Level, MIN_LEVEL};
use crate::regulator::{Congestion, NO_LIMIT, REFILL_INTERVAL, TokenBucket};
use crate::settings::Settings;

/// The lifetime of a reported level in format 1 (classic) with refresh: a few refresh intervals.
const LEVEL_LIFETIME: Span = Span::from_s(1);

/// The admission of ordinary messages by the reported level or rate. Priority messages are always admitted.
#[derive(Debug)]
pub(crate) struct SenderLimits {
    congestion: Congestion,
    /// The time in which a level admits its number of messages.
    interval: Span,
    level: u8,
    /// When the level expires.
    level_end: Instant,
    /// Whether the level expires after [`LEVEL_LIFETIME`], since its sender may have restarted or its end may be
    /// lost. Format 2 instead lifts the limits when the central converter times out.
    pub expires: bool,
    /// Messages admitted in this interval, and its end.
    admitted: u8,
    interval_end: Instant,
    rate: TokenBucket,
}

impl SenderLimits {
    /// Creates the state without limits. Format 1 (classic) has levels only.
    pub fn new(settings: &Settings) -> SenderLimits {
        let format2 = settings.format2();
        SenderLimits {
            congestion: format2.map_or(Congestion::Levels, |format2| format2.congestion),
            interval: settings.interval,
            level: MIN_LEVEL,
            level_end: Instant::MAX,
            expires: false,
            admitted: 0,
            interval_end: Instant::ZERO,
            rate: TokenBucket::new(
                format2.map_or(1, |format2| format2.max_datagram_octets()),
                REFILL_INTERVAL,
            ),
        }
    }

    /// Stores reported limits.
    pub fn update(&mut self, now: Instant, level: u8, rate: u32) {
        self.level = level;
        self.level_end = if self.expires { now + LEVEL_LIFETIME } else { Instant::MAX };
        self.rate.set_rate(rate);
    }

    /// Removes the limits.
    pub fn lift(&mut self, now: Instant) {
        self.update(now, MIN_LEVEL, NO_LIMIT);
    }

    /// Returns the level now.
    pub fn level(&self, now: Instant) -> u8 {
        if now >= self.level_end { MIN_LEVEL } else { self.level }
    }

    /// Returns when the level expires, if it does.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        (self.level(now) > MIN_LEVEL && self.level_end < Instant::MAX).then_some(self.level_end)
    }

    /// Admits a message of this size in a bundle, or refuses it.
    pub fn admits(&mut self, now: Instant, priority: bool, octets: usize) -> bool {
        if self.congestion == Congestion::Rates {
            return priority || self.rate.admits(now, octets);
        }
        if now >= self.interval_end {
            (self.admitted, self.interval_end) = (0, now + self.interval);
        }
        Level::admit(self.level(now), &mut self.admitted, priority)
    }
}

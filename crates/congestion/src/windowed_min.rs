//! A minimum over a time window.

use trunkline_units::{Instant, Span};

/// Minimum time for which a minimum round-trip time is remembered.
pub const MIN_RTT_WINDOW: Span = Span::from_s(10);

/// The minimum of the samples in the current and the previous time window.
#[derive(Clone, Copy, Debug)]
pub struct WindowedMin {
    window: Span,
    started_at: Instant,
    current: Option<Span>,
    previous: Option<Span>,
}

impl WindowedMin {
    /// Creates a minimum without samples over a window of this length.
    pub const fn new(window: Span) -> WindowedMin {
        WindowedMin { window, started_at: Instant::ZERO, current: None, previous: None }
    }

    /// Adds a sample.
    #[inline]
    pub fn sample(&mut self, now: Instant, value: Span) {
        if now.since(self.started_at) >= self.window {
            self.started_at = now;
            self.previous = self.current.take();
        }
        self.current = Some(self.current.map_or(value, |min| min.min(value)));
    }

    /// Returns a time and a value: until that time, samples that are not below the value change nothing.
    pub fn valid_until(&self) -> Option<(Instant, Span)> {
        self.current.map(|min| (self.started_at + self.window, min))
    }

    /// Returns the minimum; none before the first sample.
    #[inline]
    pub fn get(&self) -> Option<Span> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(current.min(previous)),
            (current, previous) => current.or(previous),
        }
    }
}

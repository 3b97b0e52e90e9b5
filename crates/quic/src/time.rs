//! Conversion between the project's time and `std::time::Instant`, which `quinn-proto` requires.

use std::time::Duration;

use trunkline_units::{Instant, Span};

/// Converts instants. Only differences to its origin are used, so its value has no influence.
#[derive(Clone, Copy, Debug)]
pub struct TimeBase {
    origin: std::time::Instant,
}

impl TimeBase {
    /// Creates a base with an arbitrary origin.
    #[expect(clippy::disallowed_methods, reason = "an `Instant` has no other constructor")]
    pub fn new() -> TimeBase {
        TimeBase { origin: std::time::Instant::now() }
    }

    /// Converts to an `Instant` with whole nanoseconds, rounded down.
    pub fn std_instant(self, at: Instant) -> std::time::Instant {
        self.origin + Duration::from_nanos(at.as_ps() / 1000)
    }

    /// Converts from an `Instant` that is not before the origin.
    pub fn instant(self, at: std::time::Instant) -> Instant {
        Instant::ZERO + span(at.saturating_duration_since(self.origin))
    }
}

/// Converts a duration; one that does not fit becomes the maximum.
pub fn span(duration: Duration) -> Span {
    u64::try_from(duration.as_nanos())
        .ok()
        .and_then(|ns| ns.checked_mul(1000))
        .map_or(Span::MAX, Span::from_ps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_nanoseconds_round_trip() {
        let base = TimeBase::new();
        for ns in [0, 1, 999, 86_400_000_000_000] {
            let at = Instant::from_ns(ns);
            assert_eq!(base.instant(base.std_instant(at)), at);
        }
        assert_eq!(base.instant(base.std_instant(Instant::from_ps(1_999))), Instant::from_ns(1));
        assert_eq!(span(Duration::MAX), Span::MAX);
    }
}

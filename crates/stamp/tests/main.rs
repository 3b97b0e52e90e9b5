//! Tests of both ends.
//!
//! | module | subject |
//! | --- | --- |
//! | `session` | a sender and a reflector over an imperfect path |
//! | `reflector` | what a reflector answers, and to whom |
//! | `fixtures` | packets of another implementation |

mod fixtures;
mod reflector;
mod session;

use std::time::Duration;

use trunkline_stamp::ClockReading;
use trunkline_units::{Instant, Span};

/// Readings of clocks that are not synchronized, `us` after the start.
fn reading(us: u64) -> ClockReading {
    ClockReading {
        at: Instant::from_ns(us * 1_000),
        unix: Duration::from_secs(1_700_000_000) + Duration::from_micros(us),
        utc_error: None,
    }
}

/// The same of clocks with this maximum error.
fn synchronized(us: u64, error: Span) -> ClockReading {
    ClockReading { utc_error: Some(error), ..reading(us) }
}

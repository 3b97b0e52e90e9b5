//! `trunkline stamp`: both ends of the Simple Two-way Active Measurement Protocol.
//!
//! | module | contents |
//! | --- | --- |
//! | [`send`] | a sender |
//! | [`summary`] | what a sender measured, as text and JSON |
//! | [`reflect`] | a reflector |
//! | [`key`] | the key of authenticated mode |

mod key;
mod reflect;
mod send;
mod summary;

use trunkline_io::clock::utc_error;
use trunkline_io::{Clock, TimestampedSocket};
use trunkline_stamp::ClockReading;
use trunkline_units::{Instant, Span};

use super::run::stop_on_signals;
use crate::failure::Failure;
use crate::flags::stamp::End;

/// Version of the JSON output.
const VERSION: u32 = 1;
/// Longest wait, so that a stop is noticed.
const STOP_CHECK: Span = Span::from_ms(100);
/// Time between questions about the error of the wall clock.
const ERROR_INTERVAL: Span = Span::from_s(1);

/// Runs an end.
pub fn stamp(end: &End) -> Result<(), Failure> {
    match end {
        End::Send(flags) => send::send(flags, &stop_on_signals()?),
        End::Reflect(flags) => reflect::reflect(flags, &stop_on_signals()?),
    }
}

/// Reads both clocks; asks for the error of the wall clock once a second.
struct Clocks {
    clock: Clock,
    utc_error: Option<Span>,
    error_at: Instant,
}

impl Clocks {
    fn start() -> Clocks {
        let clock = Clock::start();
        Clocks { clock, utc_error: utc_error(), error_at: clock.now() }
    }

    fn read(&mut self) -> ClockReading {
        let at = self.clock.now();
        if at.since(self.error_at) >= ERROR_INTERVAL {
            (self.utc_error, self.error_at) = (utc_error(), at);
        }
        ClockReading { at, unix: self.clock.unix(), utc_error: self.utc_error }
    }
}

/// Says whose arrival times a socket reports.
fn arrival_times(socket: &TimestampedSocket) -> &'static str {
    if socket.has_kernel_timestamps() { "kernel" } else { "user space" }
}

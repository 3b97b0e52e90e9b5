//! What operations answer, what a status says; the numbers are those of `bindings/c/llcio.h`.

use std::ffi::CStr;

use trunkline_llc::Refusal;
use trunkline_llc::socket::Error;

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Transmit,
    Receive,
}

/// Why an operation was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Answer {
    /// It is no socket, or not open.
    Invalid = 0x01,
    /// It is open already, or the network is on.
    Duplicate = 0x02,
    /// As many are open as were asked for.
    TooMany = 0x04,
    /// Something is pending.
    Busy = 0x08,
    /// Larger than a frame.
    TooLarge = 0x10,
    /// The network is not on, or cannot be.
    NoNetwork = 0x20,
    /// Null where something is needed, or a value out of its range.
    Argument = 0x40,
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        match error {
            Error::Refused(Refusal::Invalid | Refusal::Closed) => Answer::Invalid,
            Error::Refused(Refusal::Duplicate) => Answer::Duplicate,
            Error::Refused(Refusal::TooMany) => Answer::TooMany,
            Error::Refused(Refusal::TooLarge) => Answer::TooLarge,
            Error::Refused(Refusal::Destination | Refusal::Options) => Answer::Argument,
            Error::Refused(Refusal::Full) | Error::Full | Error::NotYet | Error::TimedOut => Answer::Busy,
            Error::Station | Error::System(_) => Answer::NoNetwork,
        }
    }
}

/// An answer in words.
pub(crate) fn of_answer(answer: u32) -> &'static CStr {
    match answer {
        0x00 => c"operation accepted",
        0x01 => c"invalid socket",
        0x02 => c"duplicate socket",
        0x04 => c"too many sockets",
        0x08 => c"socket busy",
        0x10 => c"packet too large",
        0x20 => c"no network",
        0x40 => c"invalid argument",
        _ => c"unknown operation status",
    }
}

/// An operation is pending.
pub(crate) const BUSY: u32 = 0x01;
/// Its packet is on its way; with [`BUSY`].
pub(crate) const IO: u32 = 0x02;
/// It failed.
pub(crate) const FAIL: u32 = 0x04;
/// It was not done in time; with [`FAIL`].
pub(crate) const LATE: u32 = 0x08;

/// A status in words; without a direction it is of either.
pub(crate) fn of_status(status: u32, direction: Option<Direction>) -> &'static CStr {
    const STARTED: u32 = BUSY | IO;
    const TIMED_OUT: u32 = FAIL | LATE;
    let [transmit, receive, either] = match status {
        0 => [c"no transmit pending", c"no receive pending", c"no operation pending"],
        BUSY => [c"transmit pending", c"receive pending", c"operation pending"],
        STARTED => [
            c"transmit pending, I/O in progress",
            c"receive pending, I/O in progress",
            c"operation pending, I/O in progress",
        ],
        FAIL => [c"transmit failed", c"receive failed", c"operation failed"],
        TIMED_OUT => [c"transmit timed out", c"receive timed out", c"operation timed out"],
        _ => return c"unknown status",
    };
    match direction {
        Some(Direction::Transmit) => transmit,
        Some(Direction::Receive) => receive,
        None => either,
    }
}

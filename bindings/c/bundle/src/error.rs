//! Return codes and the last error of each thread. The codes are those of `bindings/c/bundle.h`.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write};
use std::io;

use trunkline_bundle::host::CommandError;
use trunkline_bundle::socket::{self, RegionError};

/// A return code for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    /// A null pointer or an invalid value.
    Argument = -1,
    /// An error of the operating system.
    System = -2,
    /// Called by a receiver function.
    Busy = -3,
    /// Timeout.
    Time = -4,
    /// Woken before a message arrived.
    Woken = -5,
    /// The message does not fit into a bundle or buffer.
    Large = -6,
    /// The message would be taken for control.
    Control = -7,
    /// The network is congested.
    Congested = -8,
    /// A queue is full.
    Full = -9,
    /// The format does not support it.
    Format = -10,
    /// The region is invalid or unknown.
    Region = -11,
    /// A bug in this library.
    Bug = -12,
}

/// Returns the text of a code.
pub(crate) fn code_text(code: c_int) -> &'static CStr {
    match code {
        0.. => c"done",
        -1 => c"invalid argument",
        -2 => c"error of the operating system",
        -3 => c"called by a receiver function of this host, or while one of this host runs",
        -4 => c"no message arrived in time",
        -5 => c"woken before a message arrived",
        -6 => c"the message does not fit",
        -7 => c"the message would be taken for control",
        -8 => c"the network is congested",
        -9 => c"the queue is full",
        -10 => c"the format does not support this",
        -11 => c"no such region",
        -12 => c"bug in the library",
        _ => c"unknown code",
    }
}

/// A code with its details.
#[derive(Debug)]
pub(crate) struct BundleError {
    code: Code,
    detail: Detail,
}

#[derive(Debug)]
enum Detail {
    /// Nothing besides the code.
    Code,
    Text(&'static str),
    Setting(&'static str, &'static str),
    BufferTooSmall(usize),
    Refused(CommandError),
    Region(RegionError),
    Socket(socket::Error),
    System(io::Error),
}

impl BundleError {
    pub fn code(code: Code) -> BundleError {
        BundleError { code, detail: Detail::Code }
    }

    pub fn argument(detail: &'static str) -> BundleError {
        BundleError { code: Code::Argument, detail: Detail::Text(detail) }
    }

    /// An invalid setting, and what is valid.
    pub fn setting(setting: &'static str, requirement: &'static str) -> BundleError {
        BundleError { code: Code::Argument, detail: Detail::Setting(setting, requirement) }
    }

    /// A message of this length does not fit into the buffer.
    pub fn buffer_too_small(octets: usize) -> BundleError {
        BundleError { code: Code::Large, detail: Detail::BufferTooSmall(octets) }
    }

    /// Stores the error as the last one of this thread and returns its code.
    pub fn record(self) -> Code {
        // SAFETY: the text belongs to this thread and is not otherwise borrowed while it is written.
        LAST.with(|last_error| unsafe { (*last_error.get()).set(&self) });
        self.code
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Detail::Code => to.write_str(&code_text(self.code as c_int).to_string_lossy()),
            Detail::Text(detail) => to.write_str(detail),
            Detail::Setting(setting, requirement) => write!(to, "{setting}: {requirement}"),
            Detail::BufferTooSmall(octets) => {
                write!(to, "the message has {octets} octets, more than its buffer")
            }
            Detail::Refused(refusal) => refusal.fmt(to),
            Detail::Region(error) => error.fmt(to),
            Detail::Socket(error) => error.fmt(to),
            Detail::System(error) => error.fmt(to),
        }
    }
}

impl From<CommandError> for BundleError {
    fn from(refusal: CommandError) -> BundleError {
        let code = match refusal {
            CommandError::Control(_) => Code::Control,
            CommandError::TooLong => Code::Large,
            CommandError::Congested(_) => Code::Congested,
            CommandError::Full => Code::Full,
            CommandError::Range => Code::Argument,
            CommandError::Format => Code::Format,
        };
        BundleError { code, detail: Detail::Refused(refusal) }
    }
}

impl From<RegionError> for BundleError {
    fn from(error: RegionError) -> BundleError {
        match error {
            RegionError::Refused(refusal) => refusal.into(),
            RegionError::Region(_) => BundleError { code: Code::Region, detail: Detail::Region(error) },
        }
    }
}

impl From<socket::Error> for BundleError {
    fn from(error: socket::Error) -> BundleError {
        BundleError { code: Code::System, detail: Detail::Socket(error) }
    }
}

impl From<io::Error> for BundleError {
    fn from(error: io::Error) -> BundleError {
        BundleError { code: Code::System, detail: Detail::System(error) }
    }
}

/// A text terminated by NUL, truncated to its buffer.
struct ErrorText {
    octets: [u8; 256],
    length: usize,
}

thread_local! {
    /// The last error of this thread. It needs no destructor, and so leaves nothing behind in threads of a C program.
    static LAST: UnsafeCell<ErrorText> = const { UnsafeCell::new(ErrorText { octets: [0; 256], length: 0 }) };
}

impl ErrorText {
    fn set(&mut self, detail: &BundleError) {
        self.length = 0;
        // A long text is truncated.
        let _ = write!(self, "{detail}");
        self.octets[self.length] = 0;
    }
}

impl Write for ErrorText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let available = self.octets.len() - 1 - self.length;
        let fits = (0..=available.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.octets[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns the text of the last error of this thread, or "".
pub(crate) fn last_error() -> *const c_char {
    // SAFETY: this only creates a pointer. The header documents that the text changes with the next error of this
    // thread.
    LAST.with(|last_error| unsafe { (&raw const (*last_error.get()).octets).cast() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_is_cut_at_a_character_boundary() {
        let mut text = ErrorText { octets: [7; 256], length: 0 };
        assert!(text.write_str(&"ä".repeat(128)).is_err());
        assert_eq!(text.length, 254);
        text.set(&BundleError::setting("number", "1 to 16"));
        assert_eq!(&text.octets[..16], b"number: 1 to 16\0");
    }
}

//! Return codes and the last error of each thread. The codes are those of `bindings/c/bundle.h`.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
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

/// A code with its text.
#[derive(Debug)]
pub(crate) struct BundleError {
    code: Code,
    text: Cow<'static, str>,
}

impl BundleError {
    fn new(code: Code, text: impl Into<Cow<'static, str>>) -> BundleError {
        BundleError { code, text: text.into() }
    }

    pub fn code(code: Code) -> BundleError {
        BundleError::new(code, code_text(code as c_int).to_string_lossy())
    }

    pub fn argument(text: &'static str) -> BundleError {
        BundleError::new(Code::Argument, text)
    }

    /// An invalid setting, and what is valid.
    pub fn setting(setting: &'static str, requirement: &'static str) -> BundleError {
        BundleError::new(Code::Argument, format!("{setting}: {requirement}"))
    }

    /// A message of this length does not fit into the buffer.
    pub fn buffer_too_small(octets: usize) -> BundleError {
        BundleError::new(Code::Large, format!("the message has {octets} octets, more than its buffer"))
    }

    /// Stores the error as the last one of this thread and returns its code.
    pub fn record(self) -> Code {
        // SAFETY: the text belongs to this thread and is not otherwise borrowed while it is written.
        LAST.with(|last_error| store(&self.text, unsafe { &mut *last_error.get() }));
        self.code
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
        BundleError::new(code, refusal.to_string())
    }
}

impl From<RegionError> for BundleError {
    fn from(error: RegionError) -> BundleError {
        match error {
            RegionError::Refused(refusal) => refusal.into(),
            RegionError::Region(_) => BundleError::new(Code::Region, error.to_string()),
        }
    }
}

impl From<socket::Error> for BundleError {
    fn from(error: socket::Error) -> BundleError {
        BundleError::new(Code::System, error.to_string())
    }
}

impl From<io::Error> for BundleError {
    fn from(error: io::Error) -> BundleError {
        BundleError::new(Code::System, error.to_string())
    }
}

/// A text terminated by NUL, truncated to its buffer.
type ErrorText = [u8; 256];

thread_local! {
    /// The last error of this thread. It needs no destructor, and so leaves nothing behind in threads of a C program.
    static LAST: UnsafeCell<ErrorText> = const { UnsafeCell::new([0; 256]) };
}

/// Replaces a text and returns its length.
fn store(text: &str, into: &mut ErrorText) -> usize {
    let most = text.len().min(into.len() - 1);
    let length = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    into[..length].copy_from_slice(&text.as_bytes()[..length]);
    into[length] = 0;
    length
}

/// Returns the text of the last error of this thread, or "".
pub(crate) fn last_error() -> *const c_char {
    // The header documents that the text changes with the next error of this thread.
    LAST.with(|last_error| last_error.get().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_is_cut_at_a_character_boundary() {
        let mut text = [7; 256];
        assert_eq!(store(&"ä".repeat(128), &mut text), 254);
        store(&BundleError::setting("number", "1 to 16").text, &mut text);
        assert_eq!(&text[..16], b"number: 1 to 16\0");
    }
}

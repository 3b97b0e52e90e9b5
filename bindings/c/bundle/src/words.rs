//! What functions return, and the last error of a thread; the numbers are those of `bindings/c/bundle.h`.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write};
use std::io;

use trunkline_bundle::face::{self, RegionError};
use trunkline_bundle::host::Refusal;

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    /// Null where something is needed, or a value that makes no sense.
    Argument = -1,
    /// The system refused.
    System = -2,
    /// Called from within a receiver function.
    Busy = -3,
    /// Nothing came in time.
    Time = -4,
    /// Nothing came before it was woken.
    Woken = -5,
    /// The message does not fit.
    Large = -6,
    /// It would be taken for control.
    Control = -7,
    /// Not now.
    Congested = -8,
    /// As much waits as may.
    Full = -9,
    /// The format does not have it.
    Format = -10,
    /// No such region, or not so.
    Region = -11,
    /// A fault of ours.
    Bug = -12,
}

/// A code in words.
pub(crate) fn of_code(code: c_int) -> &'static CStr {
    match code {
        0.. => c"done",
        -1 => c"invalid argument",
        -2 => c"the system refused",
        -3 => c"called by a receiver function, of this host or while this host's is called",
        -4 => c"no message came in time",
        -5 => c"woken before a message came",
        -6 => c"the message does not fit",
        -7 => c"the message would be taken for control",
        -8 => c"the network is congested",
        -9 => c"as much waits as may",
        -10 => c"the format does not have that",
        -11 => c"no such region",
        -12 => c"a fault of the library",
        _ => c"unknown code",
    }
}

/// A code, and what there is to say.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    what: What,
}

#[derive(Debug)]
enum What {
    /// What the code says.
    Code,
    Said(&'static str),
    Setting(&'static str, &'static str),
    Room(usize),
    Refused(Refusal),
    Region(RegionError),
    Socket(face::Error),
    System(io::Error),
}

impl Failure {
    pub fn code(code: Code) -> Failure {
        Failure { code, what: What::Code }
    }

    pub fn argument(what: &'static str) -> Failure {
        Failure { code: Code::Argument, what: What::Said(what) }
    }

    /// A setting, and what it must be.
    pub fn setting(setting: &'static str, must: &'static str) -> Failure {
        Failure { code: Code::Argument, what: What::Setting(setting, must) }
    }

    /// A message of so many octets did not find room.
    pub fn room(octets: usize) -> Failure {
        Failure { code: Code::Large, what: What::Room(octets) }
    }

    /// Keeps what there is to say for this thread; the code.
    pub fn told(self) -> Code {
        // SAFETY: the text is of this thread, and nothing else has it while it is written.
        LAST.with(|last| unsafe { (*last.get()).set(&self) });
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Code => to.write_str(&of_code(self.code as c_int).to_string_lossy()),
            What::Said(what) => to.write_str(what),
            What::Setting(setting, must) => write!(to, "{setting}: {must}"),
            What::Room(octets) => write!(to, "the message has {octets} octets, more than its room"),
            What::Refused(refusal) => refusal.fmt(to),
            What::Region(error) => error.fmt(to),
            What::Socket(error) => error.fmt(to),
            What::System(error) => error.fmt(to),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let code = match refusal {
            Refusal::Control(_) => Code::Control,
            Refusal::TooLong => Code::Large,
            Refusal::Congested(_) => Code::Congested,
            Refusal::Full => Code::Full,
            Refusal::Range => Code::Argument,
            Refusal::Format => Code::Format,
        };
        Failure { code, what: What::Refused(refusal) }
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        match error {
            RegionError::Refused(refusal) => refusal.into(),
            RegionError::Region(_) => Failure { code: Code::Region, what: What::Region(error) },
        }
    }
}

impl From<face::Error> for Failure {
    fn from(error: face::Error) -> Failure {
        Failure { code: Code::System, what: What::Socket(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { code: Code::System, what: What::System(error) }
    }
}

/// A text that ends with a 0, cut where its room ends.
struct Text {
    octets: [u8; 256],
    length: usize,
}

thread_local! {
    /// The last error of this thread. It has nothing to drop: so it leaves nothing behind in a C program's threads.
    static LAST: UnsafeCell<Text> = const { UnsafeCell::new(Text { octets: [0; 256], length: 0 }) };
}

impl Text {
    fn set(&mut self, what: &Failure) {
        self.length = 0;
        // It is cut rather than refused.
        let _ = write!(self, "{what}");
        self.octets[self.length] = 0;
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.octets.len() - 1 - self.length;
        let fits = (0..=room.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.octets[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// What the last error of this thread was; "" if there was none.
pub(crate) fn last() -> *const c_char {
    // SAFETY: only a pointer is made; what is behind it changes with the next error of this thread, as the header says.
    LAST.with(|last| unsafe { (&raw const (*last.get()).octets).cast() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_letter_and_ends() {
        let mut text = Text { octets: [7; 256], length: 0 };
        assert!(text.write_str(&"ä".repeat(128)).is_err());
        assert_eq!(text.length, 254);
        text.set(&Failure::setting("number", "1 to 16"));
        assert_eq!(&text.octets[..16], b"number: 1 to 16\0");
    }
}

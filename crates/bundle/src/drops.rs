//! What was dropped, by why and priority.

use trunkline_endpoint::Port;

use crate::wire::{classic, wide};

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The level of congestion.
    Congestion,
    /// Nobody wants it.
    Nobody,
    /// No more may wait.
    Full,
    /// It has the length of control, but is none.
    Control,
    /// It has no address, or is too long for a bundle.
    Unfit,
    /// Who was to get it is not there, or ended before it had it.
    Gone,
    /// The host said that it takes no more.
    Saturated,
    /// The system would not send it.
    Unsent,
}

/// A machine that counts the messages of frames that it gave and that did not leave.
pub trait Unsent {
    /// The frame that it gave last did not leave by its port.
    fn unsent(&mut self, port: Port, frame: &[u8]);
}

impl Why {
    /// The reason in a word, for records and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Congestion => "congestion",
            Why::Nobody => "nobody",
            Why::Full => "full",
            Why::Control => "control",
            Why::Unfit => "unfit",
            Why::Gone => "gone",
            Why::Saturated => "saturated",
            Why::Unsent => "unsent",
        }
    }
}

/// How many were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([[u64; 2]; 8]);

impl Drops {
    /// All reasons.
    pub const REASONS: [Why; 8] = [
        Why::Congestion,
        Why::Nobody,
        Why::Full,
        Why::Control,
        Why::Unfit,
        Why::Gone,
        Why::Saturated,
        Why::Unsent,
    ];

    /// One more.
    pub fn count(&mut self, why: Why, priority: bool) {
        self.add(why, priority, 1);
    }

    /// A bundle of the wide format that did not leave. What is acknowledged is sent again.
    pub(crate) fn unsent(&mut self, bundle: &[u8]) {
        let messages = wide::Bundle::read(bundle).into_iter().flat_map(|bundle| bundle.messages());
        let lost = messages.filter(|message| message.reliable.is_none());
        lost.for_each(|message| self.count(Why::Unsent, message.priority));
    }

    /// One of the classic format, whose messages have their addresses.
    pub(crate) fn unsent_classic(&mut self, bundle: &classic::Bundle<'_>, is_priority: impl Fn(u16) -> bool) {
        let data = bundle.messages().filter(|message| message.octets() != classic::CONTROL);
        data.for_each(|message| self.count(Why::Unsent, is_priority(message.address)));
    }

    /// So many more.
    pub fn add(&mut self, why: Why, priority: bool, messages: u64) {
        self.0[why as usize][usize::from(priority)] += messages;
    }

    /// How many for a reason, of ordinary or of priority messages.
    pub fn get(&self, why: Why, priority: bool) -> u64 {
        self.0[why as usize][usize::from(priority)]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }
}

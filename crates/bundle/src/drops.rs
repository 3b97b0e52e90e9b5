//! What was dropped, by why and priority.

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
        }
    }
}

/// How many were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([[u64; 2]; 7]);

impl Drops {
    /// All reasons.
    pub const REASONS: [Why; 7] =
        [Why::Congestion, Why::Nobody, Why::Full, Why::Control, Why::Unfit, Why::Gone, Why::Saturated];

    /// One more.
    pub fn count(&mut self, why: Why, priority: bool) {
        self.add(why, priority, 1);
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

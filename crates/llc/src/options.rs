//! How a service access point behaves: what `LLCoption` sets.

use trunkline_units::Span;

use crate::wire::HIGHEST;

/// How a service access point behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether messages are acknowledged (type 3) or not (type 1).
    pub acknowledged: bool,
    /// Priority of what it sends: 0 to 7, 7 leaves first.
    pub priority: u8,
    /// Whether the information ends with a CRC-32, at both ends alike.
    pub crc: bool,
    /// How often an acknowledged message is sent until it is answered; an unanswered one counts as one.
    pub tries: u16,
    /// How long an answer is waited for before the next try (clause 8.6.2: T1).
    pub patience: Span,
    /// How long a message may take, from the call until it has left or, acknowledged, until it is answered. What takes
    /// longer is given up and told as [`Outcome::Late`](crate::Outcome::Late). Zero: as long as it likes.
    pub send_limit: Span,
    /// Group SAPs, odd, of which it is a member.
    pub groups: Vec<u8>,
    /// Messages that may wait here to leave, and that may wait to be taken.
    pub queue: u16,
}

/// Unacknowledged datagrams of the lowest priority.
impl Default for Options {
    fn default() -> Self {
        Options {
            acknowledged: false,
            priority: 0,
            crc: false,
            tries: 1,
            patience: Span::from_ms(10),
            send_limit: Span::ZERO,
            groups: Vec::new(),
            queue: 64,
        }
    }
}

impl Options {
    /// Acknowledged messages of a priority, sent up to three times.
    pub fn acknowledged(priority: u8) -> Options {
        Options { acknowledged: true, priority: priority.min(HIGHEST), tries: 3, ..Options::default() }
    }
}

//! Options of a service access point, as set by `LLCoption`.

use trunkline_units::Span;

use crate::wire::MAX_PRIORITY;

/// Options of a service access point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether messages are acknowledged (type 3) or not (type 1).
    pub acknowledged: bool,
    /// Priority of sent messages: 0 to 7; 7 is sent first.
    pub priority: u8,
    /// Whether messages end with a CRC-32; the same at both ends.
    pub crc: bool,
    /// Maximum transmissions of an acknowledged message; 1 for unacknowledged ones.
    pub tries: u16,
    /// Time to wait for a response before the next try (clause 8.6.2: T1).
    pub response_timeout: Span,
    /// Time limit from the send call until the message is sent or, if acknowledged, answered. Later messages end as
    /// [`Outcome::Late`](crate::Outcome::Late). Zero: no limit.
    pub send_limit: Span,
    /// Group SAPs (odd) of which it is a member.
    pub groups: Vec<u8>,
    /// Capacity of the send queue and of the receive queue, in messages.
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
            response_timeout: Span::from_ms(10),
            send_limit: Span::ZERO,
            groups: Vec::new(),
            queue: 64,
        }
    }
}

impl Options {
    /// Acknowledged messages of a priority, sent up to three times.
    pub fn acknowledged(priority: u8) -> Options {
        Options { acknowledged: true, priority: priority.min(MAX_PRIORITY), tries: 3, ..Options::default() }
    }
}

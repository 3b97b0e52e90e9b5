//! How long the ends of a connection wait, simulated or over sockets.

use trunkline_units::Span;

/// How long a receiver waits without arrivals, after the sender has ended, before it counts missing messages as lost. The
/// simulator adds twice the delay of the links.
///
/// One second is longer than the round trip and the queues of most paths, and it is the retransmission timeout that RFC 6298
/// prescribes before a round trip is measured. A shorter time would count messages in a full queue as lost. A run pays for
/// it only if messages are missing.
pub const LINGER: Span = Span::from_s(1);

/// Time after which a missing response counts as lost, over transports that do not repeat messages.
pub const RESPONSE_TIMEOUT: Span = Span::from_s(1);

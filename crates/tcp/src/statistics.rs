//! What an end counts, and how it stands.

use trunkline_units::Span;

/// What an end has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Segments sent, of any kind.
    pub segments_sent: u64,
    /// Of these, with payload, retransmissions and probes included.
    pub data_segments_sent: u64,
    /// Payload bytes in these.
    pub bytes_sent: u64,
    /// Of the segments sent, those that carry nothing but an acknowledgement, a window or a reset.
    pub acks_sent: u64,
    /// Of the data segments, those sent again.
    pub retransmitted_segments: u64,
    /// Payload bytes in these.
    pub retransmitted_bytes: u64,
    /// Times the retransmission timer expired.
    pub timeouts: u64,
    /// Times a third duplicate acknowledgement made a segment leave again.
    pub fast_retransmits: u64,
    /// Probes of a window that was shut.
    pub probes: u64,
    /// Segments received, of any kind, good or bad.
    pub segments_received: u64,
    /// Of these, with new payload that came in order.
    pub data_segments_received: u64,
    /// Payload bytes that came to be in order.
    pub bytes_received: u64,
    /// Duplicate acknowledgements received.
    pub duplicate_acks: u64,
    /// Segments received whose payload had been received before, in whole.
    pub duplicate_segments: u64,
    /// Segments received ahead of their turn.
    pub out_of_order: u64,
    /// Of these, thrown away because there were too many gaps already.
    pub out_of_order_dropped: u64,
    /// Segments received, in whole or in part, outside the window.
    pub outside_window: u64,
    /// Segments received that were no good, for whatever reason.
    pub bad_segments: u64,
    /// Round trips measured.
    pub round_trips: u64,
}

/// How an end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Where slow start ends, in bytes.
    pub ssthresh: u32,
    /// What the other end last said it takes, in bytes.
    pub peer_window: u32,
    /// Largest payload of a segment to send, in bytes.
    pub mss: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Smoothed round-trip time; zero before the first measurement.
    pub smoothed_rtt: Span,
    /// Retransmission timeout, backed off if it is; with ticks a whole number of them.
    pub rto: Span,
    /// Duplicate acknowledgements in a row.
    pub duplicate_acks: u32,
}

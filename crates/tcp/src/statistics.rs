//! Counters and gauges of one end.

use trunkline_units::Span;

/// Counters since the end was created.
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
    /// Fast retransmissions.
    pub fast_retransmits: u64,
    /// Recoveries that were not needed: the data had only been late.
    pub spurious_recoveries: u64,
    /// Tail loss probes sent.
    pub tail_loss_probes: u64,
    /// Window probes sent.
    pub probes: u64,
    /// Bytes sent that count as marked by the path (ECN): with the feedback of RFC 3168 what one acknowledgement of each window
    /// with a mark delivers.
    pub marked_bytes: u64,
    /// Segments received, of any kind, good or bad.
    pub segments_received: u64,
    /// Of these, with new payload that came in order.
    pub data_segments_received: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Duplicate acknowledgements received.
    pub duplicate_acks: u64,
    /// Segments received whose whole payload was a duplicate.
    pub duplicate_segments: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Of these, dropped because there were too many gaps.
    pub out_of_order_dropped: u64,
    /// Segments received, in whole or in part, outside the window.
    pub outside_window: u64,
    /// Invalid segments received.
    pub bad_segments: u64,
    /// Round trips measured.
    pub round_trips: u64,
}

/// Current state of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow start threshold, in bytes.
    pub ssthresh: u32,
    /// Peer's advertised window, in bytes.
    pub peer_window: u32,
    /// Maximum segment size for sending, in bytes.
    pub mss: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Smoothed round-trip time; zero before the first measurement.
    pub smoothed_rtt: Span,
    /// Retransmission timeout including backoff; a whole number of ticks with Berkeley timers.
    pub rto: Span,
    /// Duplicate acknowledgements in a row.
    pub duplicate_acks: u32,
}

//! Statistics of a connection.

use quinn_proto::Connection;
use trunkline_units::Span;

use crate::time::span;

/// What one end of a connection has counted and estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Time from the first packet until the handshake was complete; none before.
    pub handshake: Option<Span>,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Reductions of the congestion window.
    pub congestion_events: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost, without MTU probes.
    pub packets_lost: u64,
    /// Bytes of these packets.
    pub bytes_lost: u64,
    /// UDP datagrams sent.
    pub udp_sent: u64,
    /// Bytes of their payloads.
    pub udp_bytes_sent: u64,
    /// UDP datagrams received.
    pub udp_received: u64,
    /// Bytes of their payloads.
    pub udp_bytes_received: u64,
    /// Messages sent as datagrams (RFC 9221).
    pub datagrams_sent: u64,
    /// Messages received as datagrams.
    pub datagrams_received: u64,
    /// The largest UDP payload that the path carries, as far as known.
    pub mtu: u64,
    /// MTU probes that were lost.
    pub mtu_probes_lost: u64,
    /// Times when the path no longer carried its MTU.
    pub black_holes: u64,
}

impl Statistics {
    pub(crate) fn of(connection: &Connection, handshake: Option<Span>) -> Statistics {
        let stats = connection.stats();
        Statistics {
            handshake,
            rtt: span(stats.path.rtt),
            congestion_window: stats.path.cwnd,
            congestion_events: stats.path.congestion_events,
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            bytes_lost: stats.path.lost_bytes,
            udp_sent: stats.udp_tx.datagrams,
            udp_bytes_sent: stats.udp_tx.bytes,
            udp_received: stats.udp_rx.datagrams,
            udp_bytes_received: stats.udp_rx.bytes,
            datagrams_sent: stats.frame_tx.datagram,
            datagrams_received: stats.frame_rx.datagram,
            mtu: stats.path.current_mtu.into(),
            mtu_probes_lost: stats.path.lost_plpmtud_probes,
            black_holes: stats.path.black_holes_detected,
        }
    }
}

//! QUIC in experiments: options, counters, metrics of the connection, and its messages.

mod messages;

use trunkline_experiment::plan::{Protocol, QuicCongestion};
use trunkline_quic::{Congestion, Options, Statistics};
use trunkline_units::Size;

pub use messages::{Messages, ReceiveError};

use crate::reports::Metrics;

/// Returns the options of a connection for a plan, with the send buffer of the sender or the receive buffer of the
/// receiver; `None` for another protocol.
pub fn options(
    protocol: &Protocol,
    send_buffer: Option<Size>,
    receive_buffer: Option<Size>,
) -> Option<Options> {
    let Protocol::Quic { congestion, window, streams, mtu, .. } = protocol else { return None };
    Some(Options {
        congestion: match congestion {
            QuicCongestion::Cubic => Congestion::Cubic,
            QuicCongestion::Reno => Congestion::Reno,
            QuicCongestion::Bbr => Congestion::Bbr,
        },
        send_window: send_buffer.or(*window).map(Size::as_bytes),
        receive_window: receive_buffer
            .or(*window)
            .map(|size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX)),
        streams: *streams,
        max_mtu: u16::try_from(mtu.as_bytes()).unwrap_or(u16::MAX),
    })
}

/// Returns whether the messages of a plan are datagrams; false for another protocol.
pub fn uses_datagrams(protocol: &Protocol) -> bool {
    matches!(protocol, Protocol::Quic { datagrams: true, .. })
}

/// Returns the counters of the sender.
pub fn sender_counters(statistics: &Statistics) -> Metrics {
    let mut counters: Metrics = [
        ("packets_sent", statistics.packets_sent),
        ("packets_received", statistics.udp_received),
        ("packets_lost", statistics.packets_lost),
        ("bytes_lost", statistics.bytes_lost),
        ("congestion_events", statistics.congestion_events),
        ("udp_bytes_sent", statistics.udp_bytes_sent),
        ("udp_bytes_received", statistics.udp_bytes_received),
        ("datagrams_sent", statistics.datagrams_sent),
        ("quic_mtu_bytes", statistics.mtu),
        ("mtu_probes_lost", statistics.mtu_probes_lost),
        ("black_holes", statistics.black_holes),
    ]
    .map(|(name, count)| (name.to_owned(), count as f64))
    .into();
    counters.extend(statistics.handshake.map(|time| ("handshake_us".to_owned(), time.as_us())));
    counters
}

/// Returns the counters of the receiver.
pub fn receiver_counters(statistics: &Statistics) -> Metrics {
    [
        ("receiver_packets_sent", statistics.packets_sent),
        ("receiver_packets_received", statistics.udp_received),
        ("datagrams_received", statistics.datagrams_received),
    ]
    .map(|(name, count)| (name.to_owned(), count as f64))
    .into()
}

/// Returns the metrics of a sample by their names in the series of the record.
pub fn metrics(statistics: &Statistics) -> Metrics {
    [
        ("cwnd_bytes", statistics.congestion_window as f64),
        ("rtt_us", statistics.rtt.as_us()),
        ("packets_lost", statistics.packets_lost as f64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::plan::MAX_QUIC_DATAGRAM;
    use trunkline_quic::options::MAX_DATAGRAM_MESSAGE;

    #[test]
    fn the_language_permits_the_datagrams_of_the_transport() {
        assert_eq!(MAX_QUIC_DATAGRAM as usize, MAX_DATAGRAM_MESSAGE);
    }
}

//! QUIC in experiments: options, counters, samples of the connection over time, and its messages.

mod messages;

use trunkline_experiment::plan::{Protocol, QuicCongestion};
use trunkline_quic::{Congestion, Options, Statistics};
use trunkline_record::Histogram;
use trunkline_units::{Instant, Size, Span};

pub use messages::{Messages, ReceiveError};

use crate::reports::Metrics;

/// First interval between samples, and the maximum number of samples.
const SAMPLE_INTERVAL: Span = Span::from_ms(50);
const MAX_SAMPLES: usize = 2048;

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

/// Samples of a connection over time.
#[derive(Debug)]
pub struct Samples {
    points: Vec<(f64, Metrics)>,
    interval: Span,
    next: Instant,
    rtt: Histogram,
}

impl Default for Samples {
    fn default() -> Self {
        Samples {
            points: Vec::new(),
            interval: SAMPLE_INTERVAL,
            next: Instant::ZERO,
            rtt: Histogram::default(),
        }
    }
}

impl Samples {
    /// Returns whether a sample is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Records a sample.
    pub fn record(&mut self, start: Instant, now: Instant, statistics: &Statistics) {
        self.next = now + self.interval;
        self.rtt.record(statistics.rtt);
        self.points.push((now.since(start).as_s(), metrics(statistics)));
        if self.points.len() == MAX_SAMPLES {
            // Retain every second sample and double the interval.
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval = self.interval * 2;
        }
    }

    /// Returns the samples and the distribution of the smoothed round-trip times.
    pub fn finish(self) -> (Vec<(f64, Metrics)>, Histogram) {
        (self.points, self.rtt)
    }
}

//! Kernel statistics of a TCP connection.

use std::net::TcpStream;

use trunkline_units::Span;

#[cfg(target_os = "linux")]
use crate::socket::option_words;

/// `TCP_INFO` of a connection. Counters run since the connection began; fields that an older kernel lacks are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Segments currently considered lost.
    pub lost: u64,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Maximum segment size towards the peer, bytes.
    pub mss_bytes: u64,
    /// Segments sent, with or without data.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
}

#[cfg(target_os = "linux")]
/// Words of `struct tcp_info` (linux/tcp.h) that are read; the kernel truncates a longer one.
const WORDS: usize = 36;

impl TcpInfo {
    /// Queries the kernel; `None` if it does not support `TCP_INFO` with the fields of Linux.
    #[cfg(target_os = "linux")]
    pub fn of(stream: &TcpStream) -> Option<TcpInfo> {
        let (info, _) = option_words(stream, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
        Some(Self::read(&info))
    }

    /// Returns `None`: the fields of `TCP_INFO` are those of Linux.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_stream: &TcpStream) -> Option<TcpInfo> {
        None
    }

    /// Decodes the kernel's struct by the offsets of its fields in bytes, which are stable.
    #[cfg(target_os = "linux")]
    fn read(info: &[u32; WORDS]) -> TcpInfo {
        let word = |at: usize| u64::from(info[at / 4]);
        let us = |at: usize| Span::from_us(word(at));
        let mss = word(16); // tcpi_snd_mss
        TcpInfo {
            rto: us(8),
            mss_bytes: mss,
            lost: word(32),
            rtt: us(68),
            cwnd_bytes: word(80) * mss,
            retransmissions: word(100),
            segments_sent: word(136),
            segments_received: word(140),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_reports_a_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(&stream).unwrap();
        assert!(info.mss_bytes > 500 && info.cwnd_bytes >= info.mss_bytes);
        assert!(info.segments_sent >= 2, "a SYN and the acknowledgement of the other: {info:?}");
        assert!(info.rtt > Span::ZERO && info.rtt < Span::from_s(10) && info.rto >= info.rtt);
    }
}

//! The kernel's own view of a TCP connection.

use std::mem::{MaybeUninit, size_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use trunkline_units::Span;

/// What `TCP_INFO` tells of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments retransmitted since the connection began.
    pub retransmissions: u64,
    /// Segments thought lost now.
    pub lost: u64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Slow start threshold, bytes; 0 while unset.
    pub ssthresh_bytes: u64,
    /// Smoothed round trip.
    pub rtt: Span,
    /// Its mean deviation.
    pub rtt_deviation: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Maximum segment size towards the peer, bytes.
    pub mss_bytes: u64,
}

impl TcpInfo {
    /// Asks the kernel; none where it does not tell.
    pub fn of(stream: &TcpStream) -> Option<TcpInfo> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: `info` is valid for `length` bytes; the kernel writes at most that many.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return None;
        }
        // SAFETY: every field is a plain integer, and all bytes were zeroed before.
        let info = unsafe { info.assume_init() };
        let mss = u64::from(info.tcpi_snd_mss);
        let segments = |n: u32| u64::from(n).saturating_mul(mss);
        Some(TcpInfo {
            retransmissions: u64::from(info.tcpi_total_retrans),
            lost: u64::from(info.tcpi_lost),
            cwnd_bytes: segments(info.tcpi_snd_cwnd),
            // The kernel's "infinite" threshold.
            ssthresh_bytes: if info.tcpi_snd_ssthresh >= 0x7fff_ffff {
                0
            } else {
                segments(info.tcpi_snd_ssthresh)
            },
            rtt: Span::from_us(u64::from(info.tcpi_rtt)),
            rtt_deviation: Span::from_us(u64::from(info.tcpi_rttvar)),
            rto: Span::from_us(u64::from(info.tcpi_rto)),
            mss_bytes: mss,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_a_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(&stream).unwrap();
        assert!(info.mss_bytes > 500 && info.cwnd_bytes >= info.mss_bytes);
    }
}

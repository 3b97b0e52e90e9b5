//! Costs of a packet at a host.

use trunkline_endpoint::Bound;
use trunkline_units::Span;

/// What packets cost a host, and its limits. The default costs nothing and bounds only the send queue.
///
/// Sources (docs/internals/reproduction.md): section 4.3 of the bundle converter report of 1997 separates costs per
/// packet, per byte and per interrupt; table 16 of the AAI report of 1996 has the cost of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Processor time per packet.
    pub cpu_packet: Span,
    /// Processor time per byte.
    pub cpu_byte: Span,
    /// Processor time per receive interrupt.
    pub interrupt: Span,
    /// Bus time per byte between memory and card.
    pub dma_byte: Span,
    /// Processor time per byte of checksum, in addition to [`Costs::cpu_byte`].
    pub crc_byte: Span,
    /// Card time to segment or reassemble a cell.
    pub sar_cell: Span,
    /// Number of processors; 0 counts as 1.
    pub cpus: u32,
    /// Receive buffer between interrupt and protocol processing. A packet that does not fit is lost
    /// ([`BufferFull`](crate::host::HostLossCause::BufferFull)) after its interrupt was served. With a bound per channel, the
    /// channels and the packets to send take turns at the processors.
    pub rx_buffer: Bound,
    /// Buckets of the card's multicast hash; `None`: exact filter.
    pub mcast_filter: Option<u32>,
    /// Packets in the send path; senders block beyond it. 0 counts as 1.
    pub send_queue: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            cpu_packet: Span::ZERO,
            cpu_byte: Span::ZERO,
            interrupt: Span::ZERO,
            dma_byte: Span::ZERO,
            crc_byte: Span::ZERO,
            sar_cell: Span::ZERO,
            cpus: 1,
            rx_buffer: Bound::NONE,
            mcast_filter: None,
            send_queue: 50,
        }
    }
}

impl Costs {
    /// Returns whether a packet takes no time.
    pub fn are_none(&self) -> bool {
        let Costs { cpu_packet, cpu_byte, interrupt, dma_byte, crc_byte, sar_cell, .. } = self;
        [cpu_packet, cpu_byte, interrupt, dma_byte, crc_byte, sar_cell].iter().all(|cost| cost.is_zero())
    }

    /// Returns the protocol processing time of a packet of `length` bytes.
    pub(crate) fn processing_time(&self, length: u32) -> Span {
        self.cpu_packet + (self.cpu_byte + self.crc_byte) * u64::from(length)
    }
}

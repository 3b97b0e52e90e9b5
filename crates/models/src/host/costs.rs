//! What a packet costs a station.

use trunkline_endpoint::Bound;
use trunkline_units::Span;

/// What limits a station. The default costs nothing and bounds only the way out.
///
/// Sources: section 4.3 of the bundle converter report (1997) tells cost per packet, per byte and per interrupt
/// apart; table 16 of the AAI report (1996) has the cost of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Processor time of a packet, whatever its length.
    pub cpu_packet: Span,
    /// Processor time of each of its bytes.
    pub cpu_byte: Span,
    /// Processor time of the interrupt of an arriving packet.
    pub interrupt: Span,
    /// Bus time of a byte between memory and card.
    pub dma_byte: Span,
    /// Processor time of a byte of checksum, on top of [`Costs::cpu_byte`].
    pub crc_byte: Span,
    /// The card's time for a cell to be cut or put together.
    pub sar_cell: Span,
    /// Processors; 0 is taken for 1.
    pub cpus: u32,
    /// What may wait between the card and the program. Beyond it a packet is lost after its interrupt was paid.
    pub rx_buffer: Bound,
    /// Buckets of the card's multicast hash; none: it filters exactly.
    pub mcast_filter: Option<u32>,
    /// Packets that may be on their way out of the station; senders wait beyond it. 0 is taken for 1.
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
    /// Whether a packet passes without taking any time.
    pub fn are_none(&self) -> bool {
        let Costs { cpu_packet, cpu_byte, interrupt, dma_byte, crc_byte, sar_cell, .. } = self;
        [cpu_packet, cpu_byte, interrupt, dma_byte, crc_byte, sar_cell].iter().all(|cost| cost.is_zero())
    }

    /// Processor time of the protocol work on a packet of `length` bytes.
    pub(crate) fn work(&self, length: u32) -> Span {
        self.cpu_packet + (self.cpu_byte + self.crc_byte) * u64::from(length)
    }
}

/// What a station must know of the medium at one of its ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interface {
    /// How many cells a packet of so many bytes takes, where the medium is ATM.
    pub cells: Option<fn(u32) -> u32>,
}

//! Sizes of cells and packets.

/// Bytes of a cell (ITU-T I.361).
pub const CELL: u32 = 53;
/// Payload bytes of a cell.
pub const PAYLOAD: u32 = 48;
/// Bytes of the AAL5 trailer, at the end of the last cell (ITU-T I.363.5).
pub const TRAILER: u32 = 8;
/// Maximum bytes of a packet with its encapsulation, by the length field of the trailer.
pub const MAX_PACKET: u32 = 65_535;
/// Cells of the longest packet.
pub const MAX_CELLS: u32 = (MAX_PACKET + TRAILER).div_ceil(PAYLOAD);

/// Encapsulation of a packet in AAL5 (RFC 1483).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// LLC/SNAP, 8 bytes: several protocols share a channel.
    #[default]
    LlcSnap,
    /// VC multiplexing: each protocol has a separate channel.
    VcMux,
}

impl Encapsulation {
    /// Returns the bytes it adds.
    pub const fn bytes(self) -> u32 {
        match self {
            Encapsulation::LlcSnap => 8,
            Encapsulation::VcMux => 0,
        }
    }
}

/// Returns the cells of a packet of this many network-layer bytes: encapsulation, packet, padding, trailer.
///
/// ```
/// use trunkline_models::atm::{Encapsulation::*, cells_of};
/// assert_eq!(cells_of(9180, LlcSnap), 192); // 9180 + 8 + 8 bytes, 20 of padding
/// assert_eq!(cells_of(40, LlcSnap), 2); // a TCP acknowledgement
/// assert_eq!(cells_of(40, VcMux), 1);
/// ```
pub const fn cells_of(packet: u32, encapsulation: Encapsulation) -> u32 {
    packet.saturating_add(encapsulation.bytes() + TRAILER).div_ceil(PAYLOAD)
}

#[cfg(test)]
mod tests {
    use super::Encapsulation::{LlcSnap, VcMux};
    use super::*;

    #[test]
    fn cells_hold_what_they_must_and_no_more() {
        for packet in 0..10_000 {
            for encapsulation in [LlcSnap, VcMux] {
                let bytes = packet + encapsulation.bytes() + TRAILER;
                let room = cells_of(packet, encapsulation) * PAYLOAD;
                assert!(room >= bytes && room - bytes < PAYLOAD, "{packet} in {room}");
            }
        }
        assert_eq!(cells_of(MAX_PACKET, VcMux), MAX_CELLS);
    }

    /// The most that TCP can carry over OC-3c with packets of 9180 bytes: 134.51 Mb/s. The AAI report
    /// (docs/internals/reproduction.md) says 135.102 for it, which counts the 40 bytes of headers.
    #[test]
    fn tcp_s_ceiling_on_oc_3c() {
        let rate = 149_760_000.0;
        let bits = f64::from(cells_of(9180, LlcSnap) * CELL * 8);
        let mbps = |bytes: u32| f64::from(bytes) * 8.0 / bits * rate / 1e6;
        assert!((mbps(9180 - 40) - 134.51).abs() < 0.005, "{}", mbps(9140));
        assert!((mbps(9180) - 135.10).abs() < 0.005, "{}", mbps(9180));
    }

    /// Cells of a file in segments of `mss` bytes behind 40 bytes of headers, LLC/SNAP.
    fn file_cells(bytes: u32, mss: u32) -> u32 {
        let last = match bytes % mss {
            0 => 0,
            rest => cells_of(rest + 40, LlcSnap),
        };
        bytes / mss * cells_of(mss + 40, LlcSnap) + last
    }

    /// The file of 14 million bytes whose 297,375 cells were counted at a switch (AAI report, section 2.3.3, MTU
    /// 4470).
    ///
    /// Full segments of 4470 - 40 bytes do not explain it: they take 308 cells less, and with RFC 1323's timestamps
    /// 498 more. 4.3BSD rounds a segment down to whole mbuf clusters, here to 4096 bytes. That leaves 12 cells: six
    /// packets of two cells each, as the data connection's SYN-ACK, FIN and last acknowledgement, and PORT, STOR and
    /// one acknowledgement of the control connection.
    #[test]
    fn the_cells_of_the_fourteen_million_bytes() {
        assert_eq!(14_000_000u32.div_ceil(PAYLOAD), 291_667);
        assert_eq!(file_cells(14_000_000, 4430), 297_067);
        let stamped = 3_168 * cells_of(4470, LlcSnap) + cells_of(14_000_000 - 3_168 * 4_418 + 52, LlcSnap);
        assert_eq!(stamped, 297_873);
        assert_eq!(file_cells(14_000_000, 4096), 297_363);
        assert_eq!(297_375 - file_cells(14_000_000, 4096), 6 * cells_of(40, LlcSnap));
        // Commands of the control connection take two cells as well.
        assert_eq!(cells_of(40 + "PORT 129,237,116,101,10,23\r\n".len() as u32, LlcSnap), 2);
    }
}

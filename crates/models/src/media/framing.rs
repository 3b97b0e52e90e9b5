//! Framing overhead of a medium.

/// Converts the length of a frame to the bytes it occupies on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes added to each frame.
    pub overhead: u32,
    /// Minimum length: shorter frames are padded before the overhead is added.
    pub smallest: u32,
}

impl Framing {
    /// Ethernet (IEEE 802.3 clauses 3 and 4) around a network-layer packet: preamble and start delimiter 8, addresses
    /// and type 14, check sequence 4, gap 12. A frame has at least 64 bytes, so a packet is padded to 46.
    pub const ETHERNET: Framing = Framing { overhead: 38, smallest: 46 };
    /// PPP in HDLC-like framing (RFC 1662): two flags, address and control 2, protocol 2, check sequence 2;
    /// stuffing is not counted.
    pub const PPP: Framing = Framing { overhead: 8, smallest: 0 };
    /// No framing.
    pub const NONE: Framing = Framing { overhead: 0, smallest: 0 };

    /// Returns the bytes that a frame of `length` bytes occupies on the wire.
    #[inline]
    pub const fn wire(self, length: u32) -> u64 {
        let padded = if length < self.smallest { self.smallest } else { length };
        padded as u64 + self.overhead as u64
    }
}

/// How frames are divided into cells of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes added to each frame before it is divided.
    pub overhead: u32,
    /// Bytes of a frame in a cell; not zero.
    pub payload: u32,
    /// Bytes of a cell.
    pub unit: u32,
    /// Bytes of a cell that a pacing rate counts.
    pub paced: u32,
}

impl Segmentation {
    /// Returns the number of cells of a frame of `length` bytes.
    #[inline]
    pub const fn cells(self, length: u32) -> u32 {
        length.saturating_add(self.overhead).div_ceil(self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_are_padded() {
        // The smallest frame on the wire: 64 bytes, and 20 of preamble and gap.
        assert_eq!(Framing::ETHERNET.wire(0), 84);
        assert_eq!(Framing::ETHERNET.wire(46), 84);
        assert_eq!(Framing::ETHERNET.wire(47), 85);
        assert_eq!(Framing::ETHERNET.wire(1500), 1538);
        assert_eq!(Framing::PPP.wire(1500), 1508);
        assert_eq!(Framing::NONE.wire(u32::MAX), u64::from(u32::MAX));
    }
}

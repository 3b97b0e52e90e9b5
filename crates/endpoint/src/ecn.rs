//! Explicit congestion notification: the last two bits of the traffic class of an IP packet.

/// The ECN field of a packet (RFC 3168 section 5). The values are those of the two bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not use ECN.
    #[default]
    NotEct = 0b00,
    /// ECN-capable; of an L4S transport (RFC 9331).
    Ect1 = 0b01,
    /// ECN-capable.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// Returns the ECN field of a traffic class: its last two bits.
    #[inline]
    pub const fn from_bits(traffic_class: u8) -> Ecn {
        match traffic_class & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns the two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Returns whether a queue may mark the packet instead of dropping it.
    #[inline]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_rfc_3168() {
        for (bits, ecn, capable) in
            [(0, Ecn::NotEct, false), (1, Ecn::Ect1, true), (2, Ecn::Ect0, true), (3, Ecn::Ce, true)]
        {
            assert_eq!((Ecn::from_bits(bits | 0xB8), ecn.bits(), ecn.is_capable()), (ecn, bits, capable));
        }
    }
}

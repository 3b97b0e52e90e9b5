//! Extensions after a test packet (RFC 8972 section 4): flags, type, length of the value (16 bits), value.

/// Octets before the value of an extension.
const HEADER: usize = 4;
/// The extension is not known to the reflector. A sender sets it, the reflector clears it if it knows the type.
pub const UNRECOGNIZED: u8 = 0x80;
/// The extension is longer than the packet.
pub const MALFORMED: u8 = 0x40;
/// Type of padding (RFC 8972 section 4.1), the only one that this reflector knows.
pub const EXTRA_PADDING: u8 = 1;

/// Makes the octets after a packet one extension of padding, keeping its value. Up to three octets have no room for its
/// header and become zero, as RFC 8762 pads.
///
/// # Panics
/// If there are more than 65,539 octets.
pub fn make_padding(extensions: &mut [u8]) {
    let Some((header, value)) = extensions.split_first_chunk_mut::<HEADER>() else {
        return extensions.fill(0);
    };
    let length = u16::try_from(value.len()).expect("at most 65,535 octets");
    let [high, low] = length.to_be_bytes();
    *header = [UNRECOGNIZED, EXTRA_PADDING, high, low];
}

/// Sets the flags of a reflector in the copied extensions of a request. The first malformed extension ends the list; what
/// follows stays unchanged, as does padding with zeros, which older senders use.
pub fn flag(mut extensions: &mut [u8]) {
    while extensions.iter().any(|octet| *octet != 0) {
        let length = match *extensions {
            [_, _, high, low, ..] => HEADER + usize::from(u16::from_be_bytes([high, low])),
            _ => usize::MAX,
        };
        if length > extensions.len() {
            extensions[0] = MALFORMED;
            return;
        }
        extensions[0] = if extensions[1] == EXTRA_PADDING { 0 } else { UNRECOGNIZED };
        extensions = &mut extensions[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(octets: &[u8]) -> Vec<u8> {
        let mut copy = octets.to_vec();
        flag(&mut copy);
        copy
    }

    #[test]
    fn unknown_extensions_are_flagged_and_known_ones_are_not() {
        let padding = [UNRECOGNIZED, EXTRA_PADDING, 0, 2, 9, 9];
        let unknown = [UNRECOGNIZED, 250, 0, 1, 7];
        assert_eq!(
            flagged(&[&unknown[..], &padding, &unknown].concat()),
            [0x80, 250, 0, 1, 7, 0, 1, 0, 2, 9, 9, 0x80, 250, 0, 1, 7]
        );
        // A sender that does not set the flag receives it nevertheless.
        assert_eq!(flagged(&[0, 250, 0, 0]), [0x80, 250, 0, 0]);
    }

    #[test]
    fn malformed_extensions_end_the_list() {
        assert_eq!(flagged(&[0x80, 1, 0, 3, 5, 5]), [0x40, 1, 0, 3, 5, 5]);
        assert_eq!(flagged(&[0x80, 1, 0, 0, 0xff, 2, 3]), [0, 1, 0, 0, 0x40, 2, 3], "no room for a header");
        assert_eq!(flagged(&[0x80, 3, 0xff, 0xff, 0x80, 3, 0, 0]), [0x40, 3, 0xff, 0xff, 0x80, 3, 0, 0]);
    }

    #[test]
    fn zeros_stay_zeros() {
        for length in [0, 1, 3, 4, 100] {
            assert_eq!(flagged(&vec![0; length]), vec![0; length]);
        }
    }

    #[test]
    fn padding_has_a_header_if_it_fits() {
        for length in 0..20 {
            let mut padding = vec![9; length];
            make_padding(&mut padding);
            match length.checked_sub(HEADER) {
                None => assert_eq!(padding, vec![0; length]),
                Some(value) => assert_eq!(padding[..HEADER], [0x80, 1, 0, value as u8]),
            }
            assert!(flagged(&padding).iter().all(|octet| *octet != MALFORMED));
        }
    }
}

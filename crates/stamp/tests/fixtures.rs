//! Packets of `stamp-suite` 1.0.0, another implementation (crates.io), captured by `capture.py` in this folder. Their key is
//! the octets 0 to 31. `interoperate.sh` runs both programs against each other.

use std::time::Duration;

use trunkline_stamp::packet::{ReflectorPacket, SenderPacket, Transmission};
use trunkline_stamp::{ErrorEstimate, Format, Key, PacketError, Timestamp, tlv};
use trunkline_units::Span;

const SENDER: &str =
    "00000000eeb1fa4255e56f700001010200000000000000000000000000000000000000000000000000000000";
const SENDER_AUTHENTICATED: &str = concat!(
    "000000000000000000000000000000006b077bc214b6f849d4c801020000000000000000000000000000000000000000000000000000000000000000",
    "000000000000000000000000000000000000000000000000000000000000000000000000dd4766b0631b01b1611795ab9c4d01c3"
);
/// The answer to [`SENDER`] with an extension of type 250, which no implementation knows, sent with a TTL of 200.
const REFLECTOR: &str = concat!(
    "00000000eeb1fa42aab3a94f96c80102eeb1fa42aab2704800000000eeb1fa4255e56f7000010000c8000000",
    "80fa000107"
);
/// The answer to [`SENDER_AUTHENTICATED`].
const REFLECTOR_AUTHENTICATED: &str = concat!(
    "000000000000000000000000000000006b077bc228b23e7840010102000000006b077bc228b21547000000000000000000000000000000000000",
    "0000000000006b077bc214b6f849d4c8000000000000c8000000000000000000000000000000a9e493942521e32676378d1aa4e0600a"
);

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn key() -> Key {
    Key::new(&std::array::from_fn::<u8, 32, _>(|i| i as u8))
}

/// Whole seconds and nanoseconds of a timestamp.
fn unix(timestamp: Timestamp, format: Format) -> (u64, u32) {
    let time = timestamp.unix(format, Duration::from_secs(1_800_000_000)).unwrap();
    (time.as_secs(), time.subsec_nanos())
}

#[test]
fn senders_packets_are_read_and_written() {
    let open = SenderPacket::decode(&octets(SENDER), None).unwrap();
    assert_eq!((open.sent.sequence, open.ssid), (0, 0x102));
    assert_eq!(open.sent.error_estimate, ErrorEstimate::new(None, Format::Ntp));
    assert_eq!(unix(open.sent.timestamp, Format::Ntp), (1_795_652_546, 335_532_155));
    let sealed = SenderPacket::decode(&octets(SENDER_AUTHENTICATED), Some(&key())).unwrap();
    let estimate = sealed.sent.error_estimate;
    assert_eq!(
        (sealed.ssid, estimate.format, estimate.scale, estimate.multiplier),
        (0x102, Format::Ptp, 20, 200)
    );
    assert_eq!(estimate.utc_error(), Some(Span::from_ps(48_828_125_000)), "200 · 2^-12 s");
    assert_eq!(unix(sealed.sent.timestamp, Format::Ptp), (1_795_652_546, 347_535_433));
    for (packet, key, hex) in [(open, None, SENDER), (sealed, Some(key()), SENDER_AUTHENTICATED)] {
        let mut written = vec![0xff; hex.len() / 2];
        packet.encode(&mut written, key.as_ref());
        assert_eq!(written, octets(hex));
    }
    let other = Key::new(&[0; 32]);
    let refused = SenderPacket::decode(&octets(SENDER_AUTHENTICATED), Some(&other));
    assert_eq!(refused, Err(PacketError::Hmac));
}

#[test]
fn reflectors_packets_are_read_and_written() {
    for (sent, answer, key, format) in [
        (SENDER, REFLECTOR, None, Format::Ntp),
        (SENDER_AUTHENTICATED, REFLECTOR_AUTHENTICATED, Some(key()), Format::Ptp),
    ] {
        let (sent, answer) = (octets(sent), octets(answer));
        let packet = ReflectorPacket::decode(&answer, key.as_ref()).unwrap();
        let SenderPacket { sent: Transmission { timestamp, .. }, .. } =
            SenderPacket::decode(&sent, key.as_ref()).unwrap();
        assert_eq!((packet.sent.timestamp, packet.ssid, packet.ttl), (timestamp, 0x102, 200));
        let times = [packet.sent.timestamp, packet.received, packet.reflected.timestamp];
        assert!(times.map(|time| unix(time, format)).is_sorted(), "{times:?}");
        let mut written = answer.clone();
        written[..sent.len()].fill(0xff);
        packet.encode(&mut written, key.as_ref());
        assert_eq!(written, answer);
    }
    let estimate = ReflectorPacket::decode(&octets(REFLECTOR), None).unwrap().reflected.error_estimate;
    assert_eq!(estimate.utc_error(), Some(Span::from_ps(195_312_500_000)));
}

#[test]
fn an_unknown_extension_has_the_same_flags() {
    let mut copied = octets("80fa000107");
    tlv::flag(&mut copied);
    assert_eq!(copied, octets(REFLECTOR)[44..]);
}

//! What a reflector answers, and to whom.

use std::net::SocketAddr;

use proptest::prelude::*;
use trunkline_stamp::packet::{AUTHENTICATED, ReflectorPacket, UNAUTHENTICATED};
use trunkline_stamp::{
    Key, PacketError, Reflector, ReflectorOptions, Refusal, Request, Sender, SenderOptions,
};
use trunkline_units::Span;

use crate::reading;

fn reflect_at(
    reflector: &mut Reflector,
    us: u64,
    from: impl Into<SocketAddr>,
    bytes: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let mut answer = vec![0xee; bytes.len()];
    let request = Request { from: from.into(), bytes, ttl: 64, unix: reading(us).unix };
    let length = reflector.reflect(reading(us), &request, &mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn packet(ssid: u16) -> Vec<u8> {
    Sender::new(SenderOptions { ssid, ..SenderOptions::default() }).send(reading(0)).to_vec()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn only_allowed_sources_receive_answers() {
    let allow = ["192.0.2.0/24", "2001:db8::/32"].map(|network| network.parse().unwrap()).to_vec();
    let mut reflector = Reflector::new(ReflectorOptions { allow, port: 8620, ..ReflectorOptions::default() });
    for (from, expected) in [
        ("192.0.2.9:5000", Ok(())),
        ("[::ffff:192.0.2.9]:5000", Ok(())),
        ("[2001:db8::1]:5000", Ok(())),
        ("192.0.3.9:5000", Err(Refusal::Source)),
        ("127.0.0.1:5000", Err(Refusal::Source)),
        ("[::1]:5000", Err(Refusal::Source)),
        ("192.0.2.9:862", Err(Refusal::Reflector)),
        ("192.0.2.9:8620", Err(Refusal::Reflector)),
    ] {
        let result = reflect_at(&mut reflector, 0, address(from), &packet(1)).map(drop);
        assert_eq!(result, expected, "{from}");
    }
    assert_eq!((reflector.counts().reflected, reflector.counts().not_allowed), (3, 5));
    let mut closed = Reflector::new(ReflectorOptions { allow: Vec::new(), ..ReflectorOptions::default() });
    assert_eq!(
        reflect_at(&mut closed, 0, address("127.0.0.1:5000"), &packet(1)).map(drop),
        Err(Refusal::Source)
    );
}

#[test]
fn answers_are_numbered_in_each_session() {
    for is_stateful in [true, false] {
        let mut reflector = Reflector::new(ReflectorOptions { is_stateful, ..ReflectorOptions::default() });
        let mut sender = Sender::new(SenderOptions { ssid: 1, ..SenderOptions::default() });
        let packets: Vec<Vec<u8>> = (0..4).map(|us| sender.send(reading(us)).to_vec()).collect();
        let mut number = |port: u16, bytes: &[u8]| {
            let answer = reflect_at(&mut reflector, 9, ([127, 0, 0, 1], port), bytes).unwrap();
            ReflectorPacket::decode(&answer, None).unwrap().reflected.sequence
        };
        let numbers = [1, 3].map(|packet: usize| number(5000, &packets[packet]));
        assert_eq!(numbers, if is_stateful { [0, 1] } else { [1, 3] });
        // Another port and another identifier are other sessions.
        assert_eq!(number(5001, &packets[3]), if is_stateful { 0 } else { 3 });
        assert_eq!(number(5000, &packet(2)), 0);
        assert_eq!(reflector.sessions(), 3);
    }
}

#[test]
fn each_source_has_its_rate() {
    let mut reflector = Reflector::new(ReflectorOptions { rate: 100, ..ReflectorOptions::default() });
    let [first, second] = ["127.0.0.1:5000", "127.0.0.2:5000"].map(address);
    let mut answered =
        |us: u64, from: SocketAddr, ssid: u16| reflect_at(&mut reflector, us, from, &packet(ssid)).map(drop);
    // A burst of a tenth of a second and one packet, which other sessions of the source share.
    let burst = (0..20).filter(|ssid| answered(0, first, *ssid).is_ok()).count();
    assert_eq!(burst, 11);
    assert_eq!(answered(0, second, 0), Ok(()));
    let steady = (0..10_000).filter(|ms| answered(ms * 1_000, first, 0).is_ok()).count();
    assert!((995..=1_011).contains(&steady), "{steady} of 1,000");
    assert_eq!(answered(10_000_000 - 1_000, first, 0), Err(Refusal::Rate));
    // Time does not go back.
    assert_eq!(answered(0, first, 0), Err(Refusal::Rate));
}

#[test]
fn sessions_are_bounded_and_end_when_idle() {
    let options = ReflectorOptions {
        sessions: 5,
        sessions_of_source: 3,
        idle: Span::from_s(1),
        rate: 1_000_000,
        ..ReflectorOptions::default()
    };
    let mut reflector = Reflector::new(options);
    let mut open = |us: u64, host: u8, port: u16| {
        reflect_at(&mut reflector, us, ([127, 0, 0, host], port), &packet(0)).map(drop)
    };
    assert!((0..3).all(|port| open(0, 1, 5000 + port).is_ok()));
    assert_eq!(open(0, 1, 6000), Err(Refusal::Sessions), "of one source");
    assert!((0..2).all(|port| open(0, 2, 5000 + port).is_ok()));
    assert_eq!(open(0, 3, 5000), Err(Refusal::Sessions), "of all sources");
    assert_eq!(open(600_000, 1, 5000), Ok(()), "a known session continues");
    assert_eq!(open(1_000_000, 3, 5000), Ok(()), "the idle ones are over");
    assert_eq!(reflector.sessions(), 2);
}

#[test]
fn a_refused_burst_begins_at_most_the_allowed_sessions() {
    let options =
        ReflectorOptions { rate: 1, sessions: 50, sessions_of_source: 50, ..ReflectorOptions::default() };
    let mut reflector = Reflector::new(options);
    for port in 0..1_000 {
        let _ = reflect_at(&mut reflector, 0, ([127, 0, 0, 1], 5_000 + port), &packet(0));
    }
    assert_eq!(reflector.sessions(), 50);
    assert_eq!(reflector.counts().reflected, 1);
}

#[test]
fn extensions_are_copied_and_flagged() {
    let mut request = packet(0);
    request.extend([0x80, 200, 0, 2, 5, 6, 0x80, 1, 0, 1, 9]);
    let mut reflector = Reflector::new(ReflectorOptions::default());
    let answer = reflect_at(&mut reflector, 0, address("127.0.0.1:5000"), &request).unwrap();
    assert_eq!(answer[UNAUTHENTICATED..], [0x80, 200, 0, 2, 5, 6, 0, 1, 0, 1, 9]);
}

proptest! {
    /// Whatever arrives, the answer is as long as the request, and only a complete packet has one.
    #[test]
    fn answers_never_exceed_requests(bytes in prop::collection::vec(any::<u8>(), 0..400), secret in any::<bool>()) {
        let key = secret.then(|| Key::new(&[1; 20]));
        let mut reflector = Reflector::new(ReflectorOptions { key, ..ReflectorOptions::default() });
        let result = reflect_at(&mut reflector, 0, address("127.0.0.1:5000"), &bytes);
        match result {
            Ok(answer) => {
                prop_assert!(!secret, "random octets have no valid HMAC");
                prop_assert_eq!(answer.len(), bytes.len());
                let packet = ReflectorPacket::decode(&answer, None).unwrap();
                prop_assert_eq!(&answer[24..38], &bytes[..14]);
                prop_assert_eq!((packet.ttl, &answer[38..40], &answer[41..44]), (64, &[0; 2][..], &[0; 3][..]));
            }
            Err(refusal) => {
                let length = if secret { AUTHENTICATED } else { UNAUTHENTICATED };
                let expected = if bytes.len() < length { PacketError::Short } else { PacketError::Hmac };
                prop_assert_eq!(refusal, Refusal::Packet(expected));
            }
        }
    }
}

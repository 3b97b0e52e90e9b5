//! A sender and a reflector over a path that loses, duplicates and delays.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proptest::prelude::*;
use trunkline_stamp::sender::WINDOW;
use trunkline_stamp::{
    ClockReading, Format, Key, Losses, OneWay, PacketError, Reception, Reflector, ReflectorOptions, Request,
    Sample, Sender, SenderOptions,
};
use trunkline_units::Span;

use crate::{reading, synchronized};

const SENDER: &str = "127.0.0.1:40000";

fn from() -> SocketAddr {
    SENDER.parse().unwrap()
}

/// Passes a packet to the reflector; returns its answer.
fn reflect(reflector: &mut Reflector, received: ClockReading, sent: ClockReading, packet: &[u8]) -> Vec<u8> {
    let request = Request { from: from(), bytes: packet, ttl: 250, unix: received.unix };
    let mut answer = vec![0; packet.len()];
    let length = reflector.reflect(sent, &request, &mut answer).unwrap();
    answer.truncate(length);
    answer
}

fn sample(reception: Result<Reception, PacketError>) -> Sample {
    match reception {
        Ok(Reception::Answer(sample)) => sample,
        other => panic!("{other:?} is no answer"),
    }
}

#[test]
fn delays_need_synchronized_clocks_and_one_format() {
    for (formats, errors, expected) in [
        ([Format::Ntp; 2], [Some(40), Some(2)], true),
        ([Format::Ptp; 2], [Some(40), Some(2)], true),
        ([Format::Ntp, Format::Ptp], [Some(40), Some(2)], false),
        ([Format::Ntp; 2], [None, Some(2)], false),
        ([Format::Ntp; 2], [Some(40), None], false),
    ] {
        let mut sender = Sender::new(SenderOptions { format: formats[0], ..SenderOptions::default() });
        let options = ReflectorOptions { format: formats[1], ..ReflectorOptions::default() };
        let mut reflector = Reflector::new(options);
        let read =
            |us, end: usize| errors[end].map_or(reading(us), |error| synchronized(us, Span::from_us(error)));
        let packet = sender.send(read(0, 0)).to_vec();
        let answer = reflect(&mut reflector, read(300, 1), read(1_000, 1), &packet);
        let sample = sample(sender.receive(read(1_200, 0), &answer));
        assert_eq!((sample.round_trip, sample.ttl), (Some(Span::from_us(500)), 250), "{formats:?}");
        match sample.one_way {
            Some(OneWay { forward_ns: 300_000, backward_ns: 200_000, uncertainty }) => {
                assert!(expected, "{formats:?} {errors:?}");
                // Both errors, the second one rounded up to the field's precision.
                assert!(uncertainty >= Span::from_us(42) && uncertainty < Span::from_us(43), "{uncertainty}");
            }
            other => assert!(other.is_none() && !expected, "{formats:?} {errors:?}: {other:?}"),
        }
    }
}

#[test]
fn only_answers_to_sent_packets_count() {
    let options = SenderOptions { ssid: 9, ..SenderOptions::default() };
    let mut sender = Sender::new(options.clone());
    let mut reflector = Reflector::new(ReflectorOptions::default());
    let mut packet = sender.send(reading(0)).to_vec();
    let answer = reflect(&mut reflector, reading(1), reading(2), &packet);
    // Another session, a packet that was not sent, another timestamp.
    for at in [15, 27, 35] {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        assert_eq!(sender.receive(reading(9), &changed), Ok(Reception::Unknown), "octet {at}");
    }
    assert_eq!(sender.receive(reading(9), &answer[..43]), Err(PacketError::Short));
    assert_eq!((sender.counts().answered, sender.counts().unknown), (0, 4));
    // A reflector that does not know identifiers returns zero.
    let mut plain = answer.clone();
    plain[14..16].fill(0);
    sample(sender.receive(reading(9), &plain));
    assert_eq!(sender.receive(reading(10), &answer), Ok(Reception::Duplicate));
    // Long after a packet its answer is not recognized, and memory is bounded.
    packet = sender.send(reading(20)).to_vec();
    (0..WINDOW).for_each(|_| _ = sender.send(reading(30)));
    let late = reflect(&mut reflector, reading(40), reading(40), &packet);
    assert_eq!(sender.receive(reading(50), &late), Ok(Reception::Unknown));
}

#[test]
fn impossible_times_in_the_reflector_are_no_measurement() {
    let mut sender = Sender::new(SenderOptions::default());
    let mut reflector = Reflector::new(ReflectorOptions::default());
    for (received, reflected) in [(100, 90), (0, 101)] {
        let packet = sender.send(reading(0)).to_vec();
        let answer = reflect(&mut reflector, reading(received), reading(reflected), &packet);
        assert_eq!(sample(sender.receive(reading(100), &answer)).round_trip, None);
    }
    assert_eq!(sender.counts().inconsistent, 2);
}

#[test]
fn authentication_detects_every_changed_bit_of_the_packet() {
    let key = Key::new(b"a key of 16 octets");
    let options = SenderOptions { key: Some(key.clone()), size: 150, ..SenderOptions::default() };
    let mut sender = Sender::new(options);
    let mut reflector =
        Reflector::new(ReflectorOptions { key: Some(key.clone()), ..ReflectorOptions::default() });
    let packet = sender.send(reading(0)).to_vec();
    let answer = reflect(&mut reflector, reading(1), reading(2), &packet);
    for bit in 0..112 * 8 {
        let flip = |bytes: &[u8]| {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        };
        let changed = flip(&packet);
        let request = Request { from: from(), bytes: &changed, ttl: 1, unix: reading(1).unix };
        let refused = reflector.reflect(reading(1), &request, &mut [0; 200]);
        assert_eq!(refused, Err(PacketError::Hmac.into()), "bit {bit}");
        assert_eq!(sender.receive(reading(3), &flip(&answer)), Err(PacketError::Hmac), "bit {bit}");
    }
    assert_eq!(sender.counts().forged, 112 * 8);
    sample(sender.receive(reading(3), &answer));
    let other = Key::new(b"another key");
    let mut reflector = Reflector::new(ReflectorOptions { key: Some(other), ..ReflectorOptions::default() });
    let request = Request { from: from(), bytes: &packet, ttl: 1, unix: reading(1).unix };
    assert_eq!(reflector.reflect(reading(1), &request, &mut [0; 200]), Err(PacketError::Hmac.into()));
    assert_eq!(reflector.sessions(), 0, "a forged packet begins no session");
}

/// What happens to a packet in one direction: its copies with their delays.
fn copies() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        6 => (1u64..50).prop_map(|delay| vec![delay]),
        2 => Just(Vec::new()),
        1 => (1u64..50, 1u64..300).prop_map(|(first, second)| vec![first, second]),
        1 => (50u64..400).prop_map(|delay| vec![delay]),
    ]
}

proptest! {
    /// Compares the counts with those of the path.
    #[test]
    fn counts_are_those_of_the_path(
        path in prop::collection::vec((copies(), copies()), 1..120), stateful in any::<bool>(), secret in any::<bool>(),
        size in 0usize..400,
    ) {
        let key = secret.then(|| Key::new(&[3; 16]));
        let options = SenderOptions { ssid: 5, key: key.clone(), size, is_stateful: stateful, ..SenderOptions::default() };
        let mut sender = Sender::new(options);
        let mut reflector =
            Reflector::new(ReflectorOptions { key, is_stateful: stateful, ..ReflectorOptions::default() });
        // Events by time, then by number: a packet reaches the reflector, or an answer the sender.
        let (mut arrivals, mut answers) = (BTreeMap::new(), BTreeMap::new());
        for (number, (forward, _)) in path.iter().enumerate() {
            let at = number as u64 * 20;
            let packet = sender.send(reading(at)).to_vec();
            for delay in forward {
                arrivals.insert((at + delay, arrivals.len()), (number, packet.clone()));
            }
        }
        for ((at, _), (number, packet)) in &arrivals {
            let answer = reflect(&mut reflector, reading(*at), reading(*at), packet);
            prop_assert_eq!(answer.len(), packet.len());
            for delay in &path[*number].1 {
                answers.insert((at + delay, answers.len()), (*number, *at, answer.clone()));
            }
        }
        let (mut answered, mut duplicates, mut reordered) = (vec![false; path.len()], 0, 0);
        let mut highest = 0;
        for ((at, _), (number, reflected_at, answer)) in &answers {
            let reception = sender.receive(reading(*at), answer).unwrap();
            if std::mem::replace(&mut answered[*number], true) {
                prop_assert_eq!(reception, Reception::Duplicate);
                duplicates += 1;
                continue;
            }
            let Reception::Answer(sample) = reception else { panic!("{reception:?}") };
            prop_assert_eq!(sample.sequence, *number as u64);
            prop_assert_eq!(sample.round_trip, Some(Span::from_us(at - *number as u64 * 20)), "reflected at {}", reflected_at);
            prop_assert_eq!(sample.reordered, *number < highest);
            reordered += u64::from(*number < highest);
            highest = highest.max(*number);
        }
        let counts = sender.counts();
        let total = answered.iter().filter(|answered| **answered).count() as u64;
        prop_assert_eq!((counts.sent, counts.answered), (path.len() as u64, total));
        prop_assert_eq!((counts.duplicates, counts.reordered), (duplicates, reordered));
        let losses = sender.losses();
        if let Some(losses) = losses {
            prop_assert_eq!(losses.forward + losses.backward + losses.unknown, counts.sent - counts.answered);
        }
        prop_assert!(losses.is_some() || !stateful);
        // Without duplicates and overtaking the directions are exact.
        let is_plain = path.iter().all(|(f, b)| f.len() < 2 && b.len() < 2 && f.iter().chain(b).all(|delay| *delay < 20));
        if stateful && is_plain {
            let last = answered.iter().rposition(|answered| *answered).map_or(0, |last| last + 1);
            let forward = path[..last].iter().filter(|(forward, _)| forward.is_empty()).count() as u64;
            let backward = path[..last].iter().filter(|(f, b)| !f.is_empty() && b.is_empty()).count() as u64;
            // Losses before the first answer look like a reflector that counts from elsewhere only if it is ahead.
            prop_assert_eq!(losses, Some(Losses { forward, backward, unknown: counts.sent - last as u64 }));
        }
    }

    #[test]
    fn no_bytes_make_a_sender_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), secret in any::<bool>(), base in prop::option::of(0usize..44),
    ) {
        let key = secret.then(|| Key::new(&[3; 16]));
        let mut sender = Sender::new(SenderOptions { key, ..SenderOptions::default() });
        let packet = sender.send(reading(0)).to_vec();
        let mut reflector = Reflector::new(ReflectorOptions { key: secret.then(|| Key::new(&[3; 16])), ..ReflectorOptions::default() });
        let mut answer = reflect(&mut reflector, reading(1), reading(1), &packet);
        let _ = sender.receive(reading(5), &bytes);
        // A valid answer with some arbitrary octets.
        if let Some(base) = base {
            let length = bytes.len().min(answer.len() - base);
            answer[base..base + length].copy_from_slice(&bytes[..length]);
            let _ = sender.receive(synchronized(5, Span::MAX), &answer);
        }
        prop_assert!(sender.counts().answered <= 1);
        let _ = sender.losses();
    }
}

use proptest::prelude::*;

use super::control::RangeChanges;
use super::*;

fn header(role: Role, number: u16) -> Header {
    Header { role, number, receiver: 3, incarnation: 0x0102_0304, session: 9, sent_before: 0xFFFF_FFFE }
}

/// Returns a DIS PDU of this length.
fn pdu(kind: u8, length: usize) -> Vec<u8> {
    let mut pdu: Vec<u8> = (0..length).map(|n| n as u8).collect();
    (pdu[2], pdu[8], pdu[9]) = (kind, (length >> 8) as u8, length as u8);
    pdu
}

fn message(body: &[u8]) -> Message<'_> {
    let (address, source, incarnation, sequence) = (0x0001_0022, 0x0007_0002, 5, 41);
    Message {
        address,
        source,
        incarnation,
        sequence,
        max_wait_10us: NO_LIMIT,
        priority: false,
        reliable: None,
        body,
    }
}

/// Compares with the example in docs/reference/bundle-wire.md.
#[test]
fn the_documented_example_is_a_valid_bundle() {
    let page = include_str!("../../../../../docs/reference/bundle-wire.md");
    let (_, block) = page.split_once("```hex\n").expect("a hex block");
    let (block, _) = block.split_once("```").expect("the end of the block");
    let digits: String = block.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let page: Vec<u8> = digits.chunks(2).map(octet).collect();

    let mut builder = BundleBuilder::new(DEFAULT_DATAGRAM);
    let mut state = vec![7, 1, 1, 1, 0, 0, 0, 0, 0, 16, 0, 0];
    state.extend_from_slice(&[0xCA, 0xFE, 0xBA, 0xBE]);
    let hello = Message { priority: true, reliable: Some(3), max_wait_10us: 50, ..message(b"hello") };
    assert!(builder.push(&message(&state)) && builder.push(&Message { sequence: 0, ..hello }));
    assert!(builder.push_control(&Control::Ack { next: 7, beyond: 2 }));
    assert!(builder.push_control(&Control::Join(RangeChanges::new(1, &RangeChanges::encode(64, 95)))));
    let mut into = vec![0; DEFAULT_DATAGRAM];
    let sender =
        Header { role: Role::Host, number: 2, receiver: 0, incarnation: 5, session: 1, sent_before: 40 };
    let length = builder.finish(&sender, &mut into);
    assert_eq!(into[..length], page);

    let bundle = Bundle::read(&page).expect("the example is valid");
    assert_eq!((bundle.header(), bundle.count()), (sender, 2));
    assert_eq!(
        bundle.messages().map(|message| message.body.to_vec()).collect::<Vec<_>>(),
        [state, b"hello".to_vec()]
    );
    assert_eq!(bundle.control().count(), 2);
}

/// A DIS reader finds every PDU of the simulation, skips the rest and reaches the end.
#[test]
fn a_dis_reader_finds_every_pdu() {
    let mut builder = BundleBuilder::new(60_000);
    let (state, fire) = (pdu(1, 144), pdu(2, 96));
    for body in [&state[..], b"no PDU", &fire, b"", &state] {
        assert!(builder.push(&message(body)));
    }
    let mut bytes = vec![0; 60_000];
    let length = builder.finish(&header(Role::Central, 0), &mut bytes);
    let pdus: Vec<_> = Pdu::all(&bytes[..length]).map(Result::unwrap).collect();
    let simulation_pdus: Vec<_> =
        pdus.iter().filter(|pdu| pdu.kind() != TYPE).map(|pdu| pdu.bytes()).collect();
    assert_eq!(simulation_pdus, [&state[..], &fire, &state]);
    assert_eq!(pdus.len(), 6, "an index, three PDUs, and two wrappers");
    assert!(pdus.iter().filter(|pdu| pdu.kind() == TYPE).all(|pdu| pdu.bytes().len() % 8 == 0));
}

#[test]
fn a_bundle_never_exceeds_the_datagram_size() {
    for max_octets in [MIN_DATAGRAM, DEFAULT_DATAGRAM, 8_192, 65_507] {
        let mut builder = BundleBuilder::new(max_octets);
        let mut bytes = vec![0; max_octets];
        while builder.push(&message(&[1; 37])) {}
        assert!(builder.octets() <= max_octets && builder.available() < ENTRY + 56 || builder.count() == 255);
        let length = builder.finish(&header(Role::Host, 1), &mut bytes);
        assert!(Bundle::read(&bytes[..length]).is_ok());
        assert!(Pdu::all(&bytes[..length]).all(|pdu| pdu.is_ok()), "{max_octets}");
    }
    assert!(is_too_long(&[0; MAX_BODY + 1], 65_507) && !is_too_long(&[0; MAX_BODY], 65_507));
    assert!(!is_too_long(&pdu(1, 8_192), 65_507), "a PDU is not wrapped");
    assert!(
        is_too_long(&[0; DEFAULT_DATAGRAM - HEADER - ENTRY - 11], DEFAULT_DATAGRAM)
            && !is_too_long(&[0; 1_404], DEFAULT_DATAGRAM)
    );
}

#[test]
fn malformed_bundles_are_refused() {
    let mut builder = BundleBuilder::new(DEFAULT_DATAGRAM);
    let state = pdu(1, 20);
    assert!(builder.push(&message(&state)) && builder.push(&message(b"abc")));
    assert!(builder.push_control(&Control::Level { level: 4, rate: 9 }));
    let mut bytes = vec![0; DEFAULT_DATAGRAM];
    let length = builder.finish(&header(Role::Level1, 4), &mut bytes);
    let good = &bytes[..length];
    assert!(Bundle::read(good).is_ok());
    let with = |at: usize, octet: u8| {
        let mut bad = good.to_vec();
        assert_ne!(bad[at], octet);
        bad[at] = octet;
        Bundle::read(&bad).map(|bundle| bundle.count())
    };
    for (at, octet, error) in [
        (0, 6, BundleError::UnknownFormat),
        (2, 1, BundleError::UnknownFormat),
        (7, 1, BundleError::UnknownFormat),
        (9, 81, BundleError::Length),
        (9, 96, BundleError::Index),
        (12, b'X', BundleError::UnknownFormat),
        (14, 0x22, BundleError::Version(2)),
        (14, 0x10, BundleError::Sender),
        (14, 0x13, BundleError::Sender),
        (15, 1, BundleError::Length),
        (15, 9, BundleError::Length),
        (49, 19, BundleError::Index),
        (52, 0, BundleError::Index),
        (52, 2, BundleError::Index),
        (53, 2, BundleError::Index),
        (53, 4, BundleError::Index),
        (55, 1, BundleError::Index),
        (73, 9, BundleError::Length),
        (80, 11, BundleError::Control),
        (81, 7, BundleError::Control),
        (83, 16, BundleError::Control),
        (length - 1, 1, BundleError::Index),
    ] {
        assert_eq!(with(at, octet), Err(error), "octet {at} is {octet}");
    }
    for cut in 0..length {
        assert!(Bundle::read(&good[..cut]).is_err(), "{cut} of {length} octets");
    }
    assert_eq!(Bundle::read(&[good, &[0]].concat()), Err(BundleError::Length));
}

#[test]
fn packet_addresses_match_1997_and_wrap() {
    assert_eq!([0, 31, 32, 65_535].map(packet_address), [0, 0, 1, 2_047]);
    assert_eq!([65_536, 65_536 + 32, u32::MAX].map(packet_address), [0, 1, 2_047]);
}

/// The random parts of a message.
type MessageParts = (u32, u32, u16, Option<u16>, bool, Vec<u8>, bool);

fn message_parts() -> impl Strategy<Value = MessageParts> {
    let body = prop::collection::vec(any::<u8>(), 0..120);
    (any::<u32>(), any::<u32>(), any::<u16>(), any::<Option<u16>>(), any::<bool>(), body, any::<bool>())
}

/// Turns a body into a PDU if a header fits.
fn as_pdu(body: &mut [u8]) {
    if body.len() >= 12 {
        (body[8], body[9]) = ((body.len() >> 8) as u8, body.len() as u8);
    }
}

fn control(kind: u8, number: u32, ranges: &[(u32, u32)], mut with: impl FnMut(&Control<'_>)) {
    let octets: Vec<u8> =
        ranges.iter().flat_map(|(a, b)| RangeChanges::encode(*a.min(b), *a.max(b))).collect();
    let mut packets = [0; PACKET_ADDRESSES / 8];
    packets[number as usize % packets.len()] = number as u8;
    let control = match kind {
        0 => Control::Join(RangeChanges::new(number, &octets)),
        1 => Control::Drop(RangeChanges::new(number, &octets)),
        2 => Control::Confirmed(number),
        3 => Control::Assign { version: number, packets: &packets },
        4 => Control::Assigned(number),
        5 => Control::Ack { next: number as u16, beyond: u64::from(number) << 17 | 1 },
        6 => Control::Level { level: 3 + number as u8 % 4, rate: number },
        7 => Control::Saturation(number),
        8 => Control::Report { received: number, lost: !number },
        _ => Control::Bye,
    };
    with(&control);
}

proptest! {
    #[test]
    fn written_bundles_read_back(
        messages in prop::collection::vec(message_parts(), 0..20),
        items in prop::collection::vec(
            (0u8..10, any::<u32>(), prop::collection::vec((any::<u32>(), any::<u32>()), 1..9)), 0..6),
        role in 0usize..3,
        max_octets in MIN_DATAGRAM..4_000,
    ) {
        let (role, number) = [(Role::Host, 7), (Role::Level1, 2), (Role::Central, 0)][role];
        let mut builder = BundleBuilder::new(max_octets);
        let mut texts = Vec::new();
        for (kind, number, ranges) in &items {
            control(*kind, *number, ranges, |control| {
                if builder.push_control(control) {
                    texts.push(format!("{control:?}"));
                }
            });
        }
        let mut bodies = messages.clone();
        bodies.iter_mut().filter(|message_parts| message_parts.6).for_each(|message_parts| as_pdu(&mut message_parts.5));
        let written: Vec<Message<'_>> = bodies
            .iter()
            .map(|(address, source, max_wait_10us, reliable, priority, body, _)| Message {
                address: *address,
                source: *source,
                incarnation: source ^ 1,
                sequence: address ^ 1,
                max_wait_10us: *max_wait_10us,
                priority: *priority || reliable.is_some(),
                reliable: *reliable,
                body,
            })
            .filter(|message| builder.push(message))
            .collect();
        let announced = builder.octets();
        let mut bytes = vec![0; max_octets];
        let length = builder.finish(&header(role, number), &mut bytes);
        prop_assert!(length == announced && length <= max_octets);
        let bundle = Bundle::read(&bytes[..length]).unwrap();
        prop_assert_eq!(bundle.header(), header(role, number));
        prop_assert_eq!(bundle.messages().collect::<Vec<_>>(), written);
        prop_assert_eq!(bundle.control().map(|control| format!("{control:?}")).collect::<Vec<_>>(), texts);
    }

    /// Arbitrary and nearly valid octets are refused, or encode to the same octets again.
    #[test]
    fn any_octets_parse_completely_or_not_at_all(
        bodies in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut builder = BundleBuilder::new(DEFAULT_DATAGRAM);
        for (is_pdu, body) in &bodies {
            let mut body = body.clone();
            if *is_pdu {
                as_pdu(&mut body);
            }
            builder.push(&message(&body));
        }
        builder.push_control(&Control::Report { received: 1, lost: 2 });
        let mut bytes = vec![0; DEFAULT_DATAGRAM];
        let length = builder.finish(&header(Role::Host, 1), &mut bytes);
        bytes.truncate(length);
        for (at, octet) in flips {
            let at = at.index(bytes.len());
            bytes[at] = octet;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(bundle) = Bundle::read(&bytes) {
            let mut rebuilt = BundleBuilder::new(DEFAULT_DATAGRAM);
            prop_assert!(bundle.messages().all(|message| rebuilt.push(&message)));
            prop_assert!(bundle.control().all(|control| rebuilt.push_control(&control)));
            let mut written = vec![0; DEFAULT_DATAGRAM];
            let length = rebuilt.finish(&bundle.header(), &mut written);
            prop_assert_eq!(&written[..length], &bytes[..]);
        }
    }
}

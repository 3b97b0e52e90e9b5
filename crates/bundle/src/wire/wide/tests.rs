use proptest::prelude::*;

use super::control::Changes;
use super::*;

fn header(role: Role, number: u16) -> Header {
    Header { role, number, to: 3, life: 0x0102_0304, session: 9, before: 0xFFFF_FFFE }
}

/// A PDU of DIS of so many octets.
fn pdu(kind: u8, length: usize) -> Vec<u8> {
    let mut pdu: Vec<u8> = (0..length).map(|n| n as u8).collect();
    (pdu[2], pdu[8], pdu[9]) = (kind, (length >> 8) as u8, length as u8);
    pdu
}

fn message(body: &[u8]) -> Message<'_> {
    let (address, source, life, sequence) = (0x0001_0022, 0x0007_0002, 5, 41);
    Message { address, source, life, sequence, within: NO_LIMIT, priority: false, reliable: None, body }
}

/// The example of docs/bundle-wire.md, from the page itself.
#[test]
fn the_example_of_the_page_is_a_bundle() {
    let page = include_str!("../../../../../docs/bundle-wire.md");
    let (_, block) = page.split_once("```hex\n").expect("a block of octets");
    let (block, _) = block.split_once("```").expect("its end");
    let digits: String = block.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let page: Vec<u8> = digits.chunks(2).map(octet).collect();

    let mut builder = Builder::new(PATH);
    let mut state = vec![7, 1, 1, 1, 0, 0, 0, 0, 0, 16, 0, 0];
    state.extend_from_slice(&[0xCA, 0xFE, 0xBA, 0xBE]);
    let hello = Message { priority: true, reliable: Some(3), within: 50, ..message(b"hello") };
    assert!(builder.push(&message(&state)) && builder.push(&Message { sequence: 0, ..hello }));
    assert!(builder.tell(&Control::Ack { next: 7, beyond: 2 }));
    assert!(builder.tell(&Control::Join(Changes::new(1, &Changes::encode(64, 95)))));
    let mut into = vec![0; PATH];
    let sender = Header { role: Role::Host, number: 2, to: 0, life: 5, session: 1, before: 40 };
    let length = builder.finish(&sender, &mut into);
    assert_eq!(into[..length], page);

    let bundle = Bundle::read(&page).expect("it is whole");
    assert_eq!((bundle.header(), bundle.count()), (sender, 2));
    assert_eq!(
        bundle.messages().map(|message| message.body.to_vec()).collect::<Vec<_>>(),
        [state, b"hello".to_vec()]
    );
    assert_eq!(bundle.control().count(), 2);
}

/// Who knows only DIS finds every PDU of the simulation, steps over the rest, and comes to the end.
#[test]
fn a_reader_of_dis_finds_every_pdu() {
    let mut builder = Builder::new(60_000);
    let (state, fire) = (pdu(1, 144), pdu(2, 96));
    for body in [&state[..], b"no PDU", &fire, b"", &state] {
        assert!(builder.push(&message(body)));
    }
    let mut bytes = vec![0; 60_000];
    let length = builder.finish(&header(Role::Central, 0), &mut bytes);
    let pdus: Vec<_> = Pdu::all(&bytes[..length]).map(Result::unwrap).collect();
    let theirs: Vec<_> = pdus.iter().filter(|pdu| pdu.kind() != TYPE).map(|pdu| pdu.bytes()).collect();
    assert_eq!(theirs, [&state[..], &fire, &state]);
    assert_eq!(pdus.len(), 6, "an index, three PDUs, two wrappers");
    assert!(pdus.iter().filter(|pdu| pdu.kind() == TYPE).all(|pdu| pdu.bytes().len() % 8 == 0));
}

#[test]
fn a_bundle_never_outgrows_its_path() {
    for longest in [LEAST_PATH, PATH, 8_192, 65_507] {
        let mut builder = Builder::new(longest);
        let mut bytes = vec![0; longest];
        while builder.push(&message(&[1; 37])) {}
        assert!(builder.octets() <= longest && builder.room() < ENTRY + 56 || builder.count() == 255);
        let length = builder.finish(&header(Role::Host, 1), &mut bytes);
        assert!(Bundle::read(&bytes[..length]).is_ok());
        assert!(Pdu::all(&bytes[..length]).all(|pdu| pdu.is_ok()), "{longest}");
    }
    assert!(is_too_long(&[0; LONGEST_BODY + 1], 65_507) && !is_too_long(&[0; LONGEST_BODY], 65_507));
    assert!(!is_too_long(&pdu(1, 8_192), 65_507), "a PDU is not wrapped");
    assert!(is_too_long(&[0; PATH - HEADER - ENTRY - 11], PATH) && !is_too_long(&[0; 1_404], PATH));
}

#[test]
fn what_no_bundle_says_is_refused() {
    let mut builder = Builder::new(PATH);
    let state = pdu(1, 20);
    assert!(builder.push(&message(&state)) && builder.push(&message(b"abc")));
    assert!(builder.tell(&Control::Level { level: 4, rate: 9 }));
    let mut bytes = vec![0; PATH];
    let length = builder.finish(&header(Role::Level1, 4), &mut bytes);
    let good = &bytes[..length];
    assert!(Bundle::read(good).is_ok());
    let with = |at: usize, octet: u8| {
        let mut bad = good.to_vec();
        assert_ne!(bad[at], octet);
        bad[at] = octet;
        Bundle::read(&bad).map(|bundle| bundle.count())
    };
    for (at, octet, why) in [
        (0, 6, Malformed::Stranger),
        (2, 1, Malformed::Stranger),
        (7, 1, Malformed::Stranger),
        (9, 81, Malformed::Length),
        (9, 96, Malformed::Index),
        (12, b'X', Malformed::Stranger),
        (14, 0x22, Malformed::Version(2)),
        (14, 0x10, Malformed::Sender),
        (14, 0x13, Malformed::Sender),
        (15, 1, Malformed::Length),
        (15, 9, Malformed::Length),
        (49, 19, Malformed::Index),
        (52, 0, Malformed::Index),
        (52, 2, Malformed::Index),
        (53, 2, Malformed::Index),
        (53, 4, Malformed::Index),
        (55, 1, Malformed::Index),
        (73, 9, Malformed::Length),
        (80, 11, Malformed::Control),
        (81, 7, Malformed::Control),
        (83, 16, Malformed::Control),
        (length - 1, 1, Malformed::Index),
    ] {
        assert_eq!(with(at, octet), Err(why), "octet {at} is {octet}");
    }
    for cut in 0..length {
        assert!(Bundle::read(&good[..cut]).is_err(), "{cut} of {length} octets");
    }
    assert_eq!(Bundle::read(&[good, &[0]].concat()), Err(Malformed::Length));
}

#[test]
fn packet_addresses_are_those_of_1997_and_go_round() {
    assert_eq!([0, 31, 32, 65_535].map(packet_of), [0, 0, 1, 2_047]);
    assert_eq!([65_536, 65_536 + 32, u32::MAX].map(packet_of), [0, 1, 2_047]);
}

/// What a message is made of.
type Drawn = (u32, u32, u16, Option<u16>, bool, Vec<u8>, bool);

fn drawn() -> impl Strategy<Value = Drawn> {
    let body = prop::collection::vec(any::<u8>(), 0..120);
    (any::<u32>(), any::<u32>(), any::<u16>(), any::<Option<u16>>(), any::<bool>(), body, any::<bool>())
}

/// A body that is a PDU, if it has room for a header.
fn as_pdu(body: &mut [u8]) {
    if body.len() >= 12 {
        (body[8], body[9]) = ((body.len() >> 8) as u8, body.len() as u8);
    }
}

fn control(kind: u8, number: u32, ranges: &[(u32, u32)], mut with: impl FnMut(&Control<'_>)) {
    let octets: Vec<u8> = ranges.iter().flat_map(|(a, b)| Changes::encode(*a.min(b), *a.max(b))).collect();
    let mut packets = [0; PACKETS / 8];
    packets[number as usize % packets.len()] = number as u8;
    let control = match kind {
        0 => Control::Join(Changes::new(number, &octets)),
        1 => Control::Drop(Changes::new(number, &octets)),
        2 => Control::Told(number),
        3 => Control::Hold { version: number, packets: &packets },
        4 => Control::Holds(number),
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
    fn what_goes_in_comes_out(
        messages in prop::collection::vec(drawn(), 0..20),
        told in prop::collection::vec(
            (0u8..10, any::<u32>(), prop::collection::vec((any::<u32>(), any::<u32>()), 1..9)), 0..6),
        role in 0usize..3,
        longest in LEAST_PATH..4_000,
    ) {
        let (role, number) = [(Role::Host, 7), (Role::Level1, 2), (Role::Central, 0)][role];
        let mut builder = Builder::new(longest);
        let mut texts = Vec::new();
        for (kind, number, ranges) in &told {
            control(*kind, *number, ranges, |control| {
                if builder.tell(control) {
                    texts.push(format!("{control:?}"));
                }
            });
        }
        let mut bodies = messages.clone();
        bodies.iter_mut().filter(|drawn| drawn.6).for_each(|drawn| as_pdu(&mut drawn.5));
        let written: Vec<Message<'_>> = bodies
            .iter()
            .map(|(address, source, within, reliable, priority, body, _)| Message {
                address: *address,
                source: *source,
                life: source ^ 1,
                sequence: address ^ 1,
                within: *within,
                priority: *priority || reliable.is_some(),
                reliable: *reliable,
                body,
            })
            .filter(|message| builder.push(message))
            .collect();
        let announced = builder.octets();
        let mut bytes = vec![0; longest];
        let length = builder.finish(&header(role, number), &mut bytes);
        prop_assert!(length == announced && length <= longest);
        let bundle = Bundle::read(&bytes[..length]).unwrap();
        prop_assert_eq!(bundle.header(), header(role, number));
        prop_assert_eq!(bundle.messages().collect::<Vec<_>>(), written);
        prop_assert_eq!(bundle.control().map(|control| format!("{control:?}")).collect::<Vec<_>>(), texts);
    }

    /// Whatever comes, nearly a bundle or not: it is refused, or written again it is the same octets.
    #[test]
    fn any_octets_are_whole_or_refused(
        bodies in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut builder = Builder::new(PATH);
        for (is_pdu, body) in &bodies {
            let mut body = body.clone();
            if *is_pdu {
                as_pdu(&mut body);
            }
            builder.push(&message(&body));
        }
        builder.tell(&Control::Report { received: 1, lost: 2 });
        let mut bytes = vec![0; PATH];
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
            let mut again = Builder::new(PATH);
            prop_assert!(bundle.messages().all(|message| again.push(&message)));
            prop_assert!(bundle.control().all(|control| again.tell(&control)));
            let mut written = vec![0; PATH];
            let length = again.finish(&bundle.header(), &mut written);
            prop_assert_eq!(&written[..length], &bytes[..]);
        }
    }
}

//! A monitor given known traffic says what it was.

mod support;

use proptest::prelude::*;
use support::{captured, control, ethernet, ipv4, llc, pdu};
use trunkline_capture::Monitor;
use trunkline_capture::decode;
use trunkline_capture::exchange::{Judgement, Tally};
use trunkline_capture::monitor::{Config, Limits};
use trunkline_capture::name::{Class, Service, Station};
use trunkline_capture::packet::{Captured, Link, Packet};
use trunkline_capture::table::{Count, Table};
use trunkline_io::packet::Tag;
use trunkline_llc::Pdu;
use trunkline_llc::token::frame::{Control, Key, MAX_FRAME, SAP, Token};
use trunkline_llc::wire::Kind;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn total<K: Ord + Copy>(table: &Table<K>, key: K) -> Count {
    table.rows().find(|(k, _)| **k == key).map(|(_, row)| row.total).unwrap_or_default()
}

/// What a monitor makes of these frames, and of nothing for two seconds after.
fn seen(config: Config, frames: &[(u64, Vec<u8>)]) -> Monitor {
    let mut monitor = Monitor::new(config);
    for (at_ns, bytes) in frames {
        monitor.add(&captured(*at_ns, bytes));
    }
    let last_ns = frames.last().map_or(0, |(at_ns, _)| *at_ns);
    monitor.advance(last_ns + 2 * S);
    monitor
}

#[test]
fn stations_services_and_connections_are_distinguished() {
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let frames = [
        (S, ethernet(1, 2, None, 0x0800, &ipv4(a, b, 6, (40_000, 80), &[0; 100]))),
        (S, ethernet(2, 1, None, 0x0800, &ipv4(b, a, 6, (80, 40_000), &[0; 1000]))),
        (S, ethernet(1, 2, None, 0x0800, &ipv4(a, b, 17, (53, 9000), &[0; 20]))),
        (S, llc((7, 4), (255, 6), 5, Kind::Ui, false, &[0; 100])),
        (S, ethernet(3, 255, None, 0x88B5, &[0; 100])),
    ];
    let monitor = seen(Config::default(), &frames);
    let length = |n: usize| frames[n].1.len() as u64;
    let stations = monitor.stations();
    assert_eq!(total(stations, Station::Ip(a.into())).bytes, length(0) + length(1) + length(2));
    assert_eq!(total(stations, Station::Number(7)), Count { packets: 1, bytes: length(3) });
    assert_eq!(total(stations, Station::Number(255)).packets, 2);
    assert_eq!(total(stations, Station::Number(1)).packets, 0, "IP's address is the higher one");
    let services = monitor.services();
    assert_eq!(total(services, Service::Tcp(80)).packets, 2);
    assert_eq!(total(services, Service::Udp(53)).packets, 1);
    assert_eq!([4, 6].map(|sap| total(services, Service::Sap(sap)).packets), [1, 1]);
    assert_eq!(total(services, Service::Ether(0x88B5)).packets, 1);
    let names: Vec<String> = monitor.connections().rows().map(|(c, _)| c.to_string()).collect();
    let want = ["llc 7.4 - 255.6", "tcp 10.0.0.1:40000 - 10.0.0.2:80", "udp 10.0.0.1:53 - 10.0.0.2:9000"];
    assert_eq!(names[..3], want);
    assert_eq!(names.len(), 4);
    let row = monitor.services().rows().find(|(s, _)| **s == Service::Sap(4)).unwrap().1;
    assert_eq!(row.recent()[Class::Datagram as usize].packets, 1);
    assert_eq!(monitor.exchanges().priorities()[5].packets, 1);
}

/// The tally of these commands and answers.
fn tally(deadline_ms: Option<u64>, steps: &[(u64, Kind, bool)]) -> Tally {
    let frame = |&(at_ms, kind, response): &(u64, Kind, bool)| {
        let (from, to) = if response { ((2, 6), (1, 4)) } else { ((1, 4), (2, 6)) };
        (S + at_ms * MS, llc(from, to, 3, kind, response, &[0; 10]))
    };
    let judgement = Judgement { patience_ns: S, deadline_ns: deadline_ms.map(|ms| ms * MS) };
    let frames: Vec<_> = steps.iter().map(frame).collect();
    let monitor = seen(Config { judgement, ..Config::default() }, &frames);
    let tallies: Vec<_> = monitor.exchanges().tallies().map(|(_, tally)| *tally).collect();
    assert_eq!(tallies, [monitor.exchanges().total()], "there is one pair");
    tallies[0]
}

#[test]
fn tries_answers_and_what_has_none_are_counted() {
    const AC0: Kind = Kind::Ac(false);
    const AC1: Kind = Kind::Ac(true);
    // Two messages, each answered.
    let t = tally(None, &[(0, AC0, false), (2, AC1, true), (10, AC1, false), (14, AC0, true)]);
    assert_eq!((t.messages, t.repeats, t.unanswered, t.late), (2, 0, 0, 0));
    assert_eq!((t.answers.count, t.answers.mean_ns(), t.answers.max_ns), (2, Some(3 * MS), 4 * MS));
    // The first answer comes after two more tries, beyond the deadline.
    let t = tally(Some(5), &[(0, AC0, false), (3, AC0, false), (6, AC0, false), (7, AC1, true)]);
    assert_eq!((t.messages, t.repeats, t.unanswered, t.late), (1, 2, 0, 1));
    assert_eq!(t.answers.last_ns, 7 * MS, "from the first try");
    // Never answered; then the next message, answered in time.
    let t = tally(Some(5), &[(0, AC0, false), (3, AC0, false), (2000, AC1, false), (2001, AC0, true)]);
    assert_eq!((t.messages, t.repeats, t.unanswered, t.late), (2, 1, 1, 1));
    // The next message before the answer: it never comes.
    let t = tally(None, &[(0, AC0, false), (1, AC1, false), (2, AC0, true)]);
    assert_eq!((t.messages, t.unanswered, t.answers.count), (2, 1, 1));
    // A response to an earlier message or to none is not counted.
    let t = tally(None, &[(0, AC0, false), (1, AC0, true), (2, AC1, true), (3, AC1, true)]);
    assert_eq!((t.messages, t.answers.count, t.answers.last_ns), (1, 1, 2 * MS));
    // TEST has no number: each is a message.
    let t = tally(None, &[(0, Kind::Test, false), (1, Kind::Test, true), (2, Kind::Test, false)]);
    assert_eq!((t.messages, t.repeats, t.unanswered, t.answers.count), (2, 0, 1, 1));
}

/// A pass of the token in a ring of 1 and 2.
fn pass(to: u8, generation: u32, sequence: u32) -> Control {
    let key = Key { generation, owner: 1, sequence };
    Control::Token { token: Token { key, members: [1, 2].into_iter().collect() }, to }
}

#[test]
fn the_tokens_rotation_is_timed() {
    let token = |from: u8, to: u8, generation, sequence| control(from, 255, pass(to, generation, sequence));
    let frames = [
        (S, token(1, 2, 0, 7)),
        (S + MS, token(2, 1, 1, 0)),
        (S + 2 * MS, control(3, 1, Control::Join)),
        (S + 3 * MS, token(1, 2, 1, 1)),
        // Sent again: it is the same token.
        (S + 4 * MS, token(1, 2, 1, 1)),
        (S + 5 * MS, token(2, 1, 1, 2)),
        // That was lost, and another made.
        (S + 10 * MS, token(1, 2, 2, 0)),
        (S + 11 * MS, llc((1, 4), (2, 6), 7, Kind::Ui, false, &[1])),
    ];
    let monitor = seen(Config::default(), &frames);
    let ring = monitor.ring();
    let of: Vec<_> = ring.rotations().map(|(s, t)| (s, t.count, t.last_ns / MS, t.max_ns / MS)).collect();
    assert_eq!(of, [(1, 1, 4, 4), (2, 2, 7, 7)]);
    assert_eq!(ring.rotation().mean_ns(), Some((4 + 3 + 7) * MS / 3));
    assert_eq!((ring.passes(), ring.repeats(), ring.replaced()), (5, 1, 1));
    assert_eq!(ring.members().iter().collect::<Vec<u8>>(), [1, 2]);
    let row = monitor.services().rows().find(|(s, _)| **s == Service::Sap(SAP)).unwrap().1;
    assert_eq!(row.recent()[Class::Token as usize].packets, 7);
    assert_eq!(monitor.exchanges().total().messages, 0, "a token has no response");
    let frame = captured(S, &frames[0].1);
    let line = decode::line(&Packet::read(&frame, None));
    assert_eq!(line.info, "84 > 84  token for 2, generation 0, owner 1, sequence 7, 2 stations  priority 7");
}

#[test]
fn a_token_in_datagrams_counts_once() {
    let mut bytes = [0; MAX_FRAME];
    let length = pass(2, 1, 5).write(&mut bytes);
    let [a, b, c] = [1, 2, 3].map(|n| [10, 0, 0, n].into());
    let to = |to| ethernet(1, 2, None, 0x0800, &ipv4(a, to, 17, (8022, 8022), &bytes[..length]));
    let config = Config { llc_port: Some(8022), ..Config::default() };
    let monitor = seen(config, &[(S, to(b)), (S + 1, to(c)), (S + MS, to(b))]);
    assert_eq!((monitor.ring().passes(), monitor.ring().repeats()), (1, 1));
    assert_eq!(monitor.exchanges().priorities()[7].packets, 3);
}

#[test]
fn ports_of_group_datagrams_give_station_numbers() {
    let datagram = |from: u8, to: u8, content: Vec<u8>| {
        let ip =
            ipv4([10, 0, 0, 1].into(), [239, 1, 2, to].into(), 17, (8022 + u16::from(from), 8022), &content);
        ethernet(9, 9, None, 0x0800, &ip)
    };
    let frames = [
        (S, datagram(1, 2, [vec![5], pdu(6, 4, Kind::Ac(true), false, b"a")].concat())),
        (S + MS, datagram(2, 1, [vec![5], pdu(4, 6, Kind::Ac(false), true, &[0x40])].concat())),
        (S + 2 * MS, datagram(2, 255, [vec![0], pdu(6, 4, Kind::Ui, false, b"b")].concat())),
    ];
    let config = || Config { llc_port: Some(8022), ..Config::default() };
    let monitor = seen(config(), &frames);
    assert_eq!([1, 2, 255].map(|n| total(monitor.stations(), Station::Number(n)).packets), [2, 3, 1]);
    assert_eq!(monitor.stations().len(), 3);
    let total = monitor.exchanges().total();
    assert_eq!((total.messages, total.answers.count, total.answers.last_ns), (1, 1, MS));
    for (filter, passed) in [("station 1", 2), ("src station 2", 2), ("station 9", 0), ("priority 5", 2)] {
        let monitor = seen(Config { filter: Some(filter.parse().unwrap()), ..config() }, &frames);
        assert_eq!(monitor.load().shown().packets, passed, "{filter}");
    }
}

#[test]
fn what_agrees_on_a_number_is_no_message_and_no_room_is_no_answer() {
    let command = |at_ms, poll, information: &[u8]| {
        let pdu = Pdu { dsap: 6, ssap: 4, response: false, kind: Kind::Ac(false), poll, information };
        let mut bytes = vec![0; pdu.length()];
        pdu.write(&mut bytes);
        (S + at_ms * MS, ethernet(1, 2, Some(3), bytes.len() as u16, &bytes))
    };
    let answer = |at_ms, kind, status| (S + at_ms * MS, llc((2, 6), (1, 4), 3, kind, true, &[status]));
    let frames = [
        command(0, true, &[]),
        command(1, true, &[]),
        answer(2, Kind::Ac(true), 0x30),
        (S + 3 * MS, llc((1, 4), (2, 6), 3, Kind::Ac(true), false, b"a")),
        answer(4, Kind::Ac(false), 0x49), // no room
        (S + 8 * MS, llc((1, 4), (2, 6), 3, Kind::Ac(true), false, b"a")),
        answer(9, Kind::Ac(false), 0x40),
    ];
    let total = seen(Config::default(), &frames).exchanges().total();
    assert_eq!((total.messages, total.repeats, total.most_tries, total.unanswered), (1, 1, 2, 0));
    assert_eq!((total.answers.count, total.answers.last_ns), (1, 6 * MS));
}

#[test]
fn a_message_is_answered_only_by_its_own_kind() {
    let frame = |at_ms, kind, answer| {
        let (from, to) = if answer { ((2, 6), (1, 4)) } else { ((1, 4), (2, 6)) };
        (S + at_ms * MS, llc(from, to, 3, kind, answer, if answer { &[0x40] } else { b"a" }))
    };
    let frames = [
        frame(0, Kind::Ac(true), false),
        frame(1, Kind::Test, false),
        frame(2, Kind::Xid, false),
        frame(3, Kind::Ac(true), false),
        frame(4, Kind::Test, true),
        frame(9, Kind::Ac(false), true),
        // It has no question that waits.
        frame(10, Kind::Test, true),
    ];
    let total = seen(Config::default(), &frames).exchanges().total();
    assert_eq!((total.messages, total.repeats, total.most_tries, total.unanswered), (3, 1, 2, 1));
    assert_eq!((total.answers.count, total.answers.max_ns, total.answers.sum_ns), (2, 9 * MS, 12 * MS));
}

#[test]
fn pdus_in_datagrams_are_read_where_a_port_is_named() {
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let content = [vec![6], pdu(6, 4, Kind::Ac(false), false, &[0; 10])].concat();
    let frames = [(S, ethernet(1, 2, None, 0x0800, &ipv4(a, b, 17, (8022, 8022), &content)))];
    let monitor = seen(Config { llc_port: Some(8022), ..Config::default() }, &frames);
    assert_eq!(total(monitor.services(), Service::Sap(4)).packets, 1);
    assert_eq!(monitor.exchanges().priorities()[6].packets, 1);
    assert_eq!(monitor.exchanges().total().messages, 1);
    let names: Vec<String> = monitor.connections().rows().map(|(c, _)| c.to_string()).collect();
    assert_eq!(names, ["llc 10.0.0.1:8022.4 - 10.0.0.2:8022.6"]);
    let plain = seen(Config::default(), &frames);
    assert_eq!(total(plain.services(), Service::Udp(8022)).packets, 1);
}

#[test]
fn the_load_counts_packets_that_the_filter_hides() {
    let mut monitor = Monitor::new(Config::default());
    let frames = [llc((1, 4), (2, 6), 3, Kind::Ui, false, &[0; 50]), ethernet(3, 4, None, 0x88B5, &[0; 50])];
    let filter = "sap 4".parse().unwrap();
    monitor.set_filter(Some(filter));
    for frame in &frames {
        monitor.add(&captured(S, frame));
    }
    assert_eq!((monitor.load().shown().packets, monitor.load().total().packets), (1, 2));
    assert_eq!((monitor.stations().len(), monitor.trace().len()), (2, 1));
    monitor.reset();
    assert_eq!((monitor.load().total().packets, monitor.stations().len()), (0, 0));
    monitor.add(&captured(S, &frames[1]));
    assert_eq!(monitor.load().shown().packets, 0, "the filter stays");
}

#[test]
fn the_trace_keeps_the_last_with_their_tags() {
    let limits = Limits { trace: 3, ..Limits::default() };
    let mut monitor = Monitor::new(Config { limits, ..Config::default() });
    for n in 0..5u8 {
        let bytes = ethernet(1, 2, None, 0x88B5, &[n; 46]);
        let tag = Some(Tag { protocol: 0x8100, control: 5 << 13 | 7 });
        monitor.add(&Captured { link: Link::Ethernet, at_ns: S, bytes: &bytes, original: 60, tag });
    }
    let numbers: Vec<u64> = monitor.trace().events().map(|e| e.number).collect();
    assert_eq!(numbers, [3, 4, 5]);
    let event = monitor.trace().get(2).unwrap();
    assert_eq!(
        event.bytes,
        [&ethernet(1, 2, None, 0, &[])[..12], &[0x81, 0, 0xA0, 7, 0x88, 0xB5], &[4; 46]].concat()
    );
    let packet = Packet::read(&event.captured(), None);
    assert_eq!((packet.length, packet.tag.unwrap().vlan(), packet.priority()), (64, 7, Some(5)));
    assert_eq!(monitor.load().total().bytes, 5 * 64, "a tag is on the wire");
}

#[test]
fn everything_has_its_bound() {
    let limits = Limits { stations: 10, services: 10, connections: 10, flows: 10, trace: 10 };
    let mut monitor = Monitor::new(Config { limits, interval_ns: S, ..Config::default() });
    let mut bytes = 0;
    for n in 0..14_000u32 {
        let [_, x, y, z] = n.to_be_bytes();
        let packet = ipv4([10, x, y, z].into(), [11, z, y, x].into(), 17, (n as u16, 7), &[0; 40]);
        let frame = ethernet(1, 2, None, 0x0800, &packet);
        monitor.add(&captured(S + u64::from(n) * 5 * MS, &frame));
        let command = llc((y | 1, z & !1), (2, (n % 100 * 2) as u8), 1, Kind::Ac(false), false, &[]);
        monitor.add(&captured(S + u64::from(n) * 5 * MS, &command));
        bytes += (frame.len() + command.len()) as u64;
        assert!(monitor.stations().len() <= 10 && monitor.connections().len() <= 10);
        assert!(monitor.trace().len() <= 10 && monitor.services().len() <= 10);
    }
    assert!(monitor.exchanges().tallies().count() <= trunkline_capture::exchange::MOST);
    assert!(monitor.exchanges().untold() > 0);
    let mut sum = monitor.connections().others().total;
    monitor.connections().rows().for_each(|(_, row)| sum += row.total);
    assert_eq!((sum.packets, sum.bytes), (28_000, bytes));
    assert!(monitor.connections().folded() > 0);
}

/// What a link can be.
const LINKS: [Link; 6] = [Link::Ethernet, Link::Ip, Link::Atm, Link::Cooked, Link::Cooked2, Link::Null];

proptest! {
    /// No octets are a panic, whole or cut off, and every packet is in the sums.
    #[test]
    fn nothing_that_comes_is_too_strange(
        frames in proptest::collection::vec(
            (0usize..6, any::<u64>(), 0usize..4, proptest::collection::vec(any::<u8>(), 0..120), any::<u16>()), 1..12),
    ) {
        let mut monitor = Monitor::new(Config { llc_port: Some(0x0101), ..Config::default() });
        for (link, at_ns, shape, noise, cut) in &frames {
            let bytes = match shape {
                0 => noise.clone(),
                1 => ethernet(1, 2, Some(3), noise.len() as u16, noise),
                2 => ethernet(1, 2, None, 0x86DD, &[&[0x60, 0, 0, 0, 0, 40, noise.len() as u8, 1][..], noise].concat()),
                _ => ethernet(1, 2, None, 0x0800, &ipv4([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), 17, (0x0101, 9), noise)),
            };
            let bytes = &bytes[..bytes.len() - usize::from(*cut) % (bytes.len() / 2 + 1)];
            let frame = Captured { link: LINKS[*link], at_ns: *at_ns, bytes, original: 1500, tag: None };
            monitor.add(&frame);
        }
        prop_assert_eq!(monitor.load().total().packets, frames.len() as u64);
        for event in monitor.trace().events() {
            let captured = event.captured();
            let packet = Packet::read(&captured, Some(0x0101));
            let line = trunkline_capture::decode::line(&packet);
            prop_assert!(!line.protocol.is_empty());
            prop_assert!(trunkline_capture::decode::detail(&captured, &packet).iter().all(|l| !l.contains('\n')));
        }
    }
}

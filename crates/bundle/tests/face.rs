//! A host's interface from Rust, against a plain socket.

#![allow(clippy::disallowed_methods, reason = "these tests have sockets")]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use trunkline_bundle::face::{
    CentralFace, CentralOptions, Figures, HostFace, HostOptions, Level1Face, Level1Options, RegionError,
    Serve,
};
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::Refusal;
use trunkline_bundle::wire::classic::{Bundle, Control, LONGEST, Source};
use trunkline_bundle::wire::wide::{Builder as WideBuilder, Header, Role};
use trunkline_bundle::{Format, Settings, Wide, wire::classic::Builder};
use trunkline_io::Clock;
use trunkline_units::Span;

/// Where a central converter would be, and an interface that talks to it.
fn open(timing: Timing) -> (UdpSocket, HostFace) {
    let central = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    central.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let SocketAddr::V4(at) = central.local_addr().unwrap() else { panic!("an IPv4 address") };
    let options = HostOptions {
        settings: Settings { timing, ..Settings::default() },
        number: 3,
        central: at,
        listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        interface: Ipv4Addr::LOCALHOST,
        retell: Span::ZERO,
        dis: None,
    };
    let mut host = HostFace::open(&options, Clock::start()).unwrap();
    host.turn(None).unwrap();
    (central, host)
}

/// The messages of the next bundle, and who sent it.
fn next(central: &UdpSocket) -> (Vec<(u16, Vec<u8>)>, SocketAddr) {
    let mut room = vec![0; LONGEST];
    let (length, from) = central.recv_from(&mut room).unwrap();
    let (source, bundle) = Bundle::read_with_mask(&room[..length]).unwrap();
    assert_eq!(source, Source::Host(3));
    (bundle.messages().map(|message| (message.address, message.body.to_vec())).collect(), from)
}

#[test]
fn what_is_said_leaves_and_what_comes_can_be_taken() {
    for timing in [Timing::CLASSIC, Timing::LEAST_DELAY, Timing::LEAST_PROCESSOR] {
        let (central, mut host) = open(timing);
        // Nothing else would end these waits.
        let mut from = None;
        for round in 0..3u8 {
            host.send(7, &[round; 9]).unwrap();
            while host.machine().is_saying() {
                host.turn(None).unwrap();
            }
            let (messages, at) = next(&central);
            assert_eq!(messages, [(7, vec![round; 9])]);
            from = Some(at);
        }
        let mut builder = Builder::new(None, LONGEST);
        assert!(
            builder.push(4, b"for it") && builder.push(3, b"for others") && builder.push(6, b"for it too")
        );
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&mut bytes);
        central.send_to(&bytes, from.unwrap()).unwrap();
        let (mut body, mut got) = (Vec::new(), Vec::new());
        while got.len() < 2 {
            host.turn(None).unwrap();
            while host.take(&mut body) {
                got.push(body.clone());
            }
        }
        assert_eq!(got, [b"for it".to_vec(), b"for it too".to_vec()]);
        let mut figures = Figures::default();
        host.figures(&mut figures);
        let page = figures.prometheus();
        assert!(page.contains("\ntrunkline_converter_messages_total{way=\"for_others\"} 1\n"), "{page}");
    }
}

/// What was said may be lost, and nobody answers it.
#[test]
fn a_range_that_is_left_again_is_told_again() {
    let (central, mut host) = open(Timing::LEAST_DELAY);
    central.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    let told = |host: &mut HostFace| {
        let (mut room, mut got) = (vec![0; LONGEST], Vec::new());
        for _ in 0..10_000 {
            host.turn(Some(host.clock().now() + Span::from_ms(1))).unwrap();
            if let Ok(length) = central.recv(&mut room) {
                let (_, bundle) = Bundle::read_with_mask(&room[..length]).unwrap();
                got.extend(bundle.messages().filter_map(Control::read));
            }
            if got.len() >= 3 {
                break;
            }
        }
        got
    };
    host.join_range(7, 9).unwrap();
    assert_eq!(told(&mut host), [7, 8, 9].map(Control::Join));
    for _ in 0..3 {
        host.leave_range(7, 9).unwrap();
        assert_eq!(told(&mut host), [7, 8, 9].map(Control::Drop));
    }
}

/// Bundles of strangers are passed over, counted, and told once: of the wide format also those from another port.
#[test]
fn a_host_and_level_1_obey_nobody_but_their_central_converter() {
    let header = Header { role: Role::Central, number: 0, to: 3, life: 1, session: 1, before: 0 };
    let mut wide = vec![0; 32];
    WideBuilder::new(1_000).finish(&header, &mut wide);
    let mut builder = Builder::new(None, LONGEST);
    builder.push(4, b"for it");
    let mut classic = vec![0; builder.octets()];
    builder.finish(&mut classic);
    for (format, bytes) in [(Format::Classic, classic), (Format::Wide(Wide::default()), wide)] {
        let is_wide = format != Format::Classic;
        let settings = Settings { format, ..Settings::default() };
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let says = [Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
        let says = says.map(|ip| UdpSocket::bind((ip, 0)).unwrap());
        let SocketAddr::V4(central) = says[0].local_addr().unwrap() else { panic!("an IPv4 address") };
        let host = HostFace::open(&HostOptions::on_loopback(settings, 3, central), Clock::start()).unwrap();
        let options = Level1Options {
            settings,
            number: 3,
            central,
            listen: any,
            interface: Ipv4Addr::LOCALHOST,
            base: Ipv4Addr::new(239, 44, 0, 0),
            port: 27_481,
            ttl: 1,
        };
        let level1 = Level1Face::open(&options, Clock::start()).unwrap();
        let right = if is_wide { 1 } else { 2 };
        obeys(host, &says, &bytes, right);
        obeys(level1, &says, &bytes, right);
    }
}

/// Of what comes from these, in turns, a face takes that of the first so many.
fn obeys(mut face: impl Serve, says: &[UdpSocket; 3], bytes: &[u8], right: u64) {
    // The address is behind the first " on ".
    let bound = face.bound();
    let at = bound.split(" on ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    for _ in 0..2 {
        for one in says {
            one.send_to(bytes, at).unwrap();
        }
    }
    let figure = |face: &_, name: &str| {
        let mut figures = Figures::default();
        Serve::figures(face, &mut figures);
        let page = figures.prometheus();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
    };
    let taken = |face: &_| figure(face, "trunkline_converter_bundles_total{way=\"from_central\"}");
    let strangers = |face: &_| figure(face, "trunkline_converter_strangers_total");
    while taken(&face) + strangers(&face) < 6 {
        face.turn(None).unwrap();
    }
    assert_eq!((taken(&face), strangers(&face)), (2 * right, 2 * (3 - right)), "{bound}");
    let line = face.notice().unwrap();
    assert!(line.contains("not the central converter") && face.notice().is_none(), "{line}");
}

/// From the loopback nothing goes elsewhere. What is acknowledged would be sent again, and is not lost yet.
#[test]
fn messages_that_the_system_would_not_send_are_counted_by_priority() {
    let nowhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);
    for format in [Format::Classic, Format::Wide(Wide::default())] {
        let settings = Settings { format, pairs: true, timing: Timing::LEAST_DELAY, ..Settings::default() };
        let mut host =
            HostFace::open(&HostOptions::on_loopback(settings, 3, nowhere), Clock::start()).unwrap();
        host.join(7).unwrap();
        for n in 0..5 {
            host.send(if n < 2 { 7 } else { 8 }, &[n; 30]).unwrap();
        }
        let figure = |host: &HostFace, name: &str| {
            let mut figures = Figures::default();
            host.figures(&mut figures);
            let page = figures.prometheus();
            let line = page.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
        };
        while figure(&host, "trunkline_converter_unsent_total") == 0 {
            host.turn(None).unwrap();
        }
        let dropped = ["ordinary", "priority"].map(|class| {
            let name = "trunkline_converter_dropped_total{way=\"host\",why=\"unsent\",priority=";
            figure(&host, &format!("{name}\"{class}\"}}"))
        });
        assert_eq!(dropped, if format == Format::Classic { [3, 2] } else { [3, 0] });
    }
}

#[test]
fn many_joins_at_once_find_room_and_the_last_word_is_that_nothing_is_wanted() {
    let (central, mut host) = open(Timing::LEAST_PROCESSOR);
    (0..1_000).for_each(|address| host.join(address).unwrap());
    host.turn(None).unwrap();
    let mut joined = Vec::new();
    for _ in 0..4 {
        joined.extend(next(&central).0);
    }
    let told = |control: Control| (control.write().0, control.write().1.to_vec());
    assert!(joined.into_iter().eq((0..1_000).map(|address| told(Control::Join(address)))));
    host.end().unwrap();
    let mut dropped = Vec::new();
    while dropped.len() < 1_000 {
        dropped.extend(next(&central).0);
    }
    assert!(dropped.into_iter().eq((0..1_000).map(|address| told(Control::Drop(address)))));
}

/// Asks until all found room, in turns; how many times.
fn ask<E: PartialEq + std::fmt::Debug>(
    host: &mut HostFace,
    full: E,
    mut asks: impl FnMut(&mut HostFace) -> Result<(), E>,
) -> usize {
    for times in 1..=10 {
        let asked = asks(host);
        host.turn(Some(host.clock().now())).unwrap();
        match asked {
            Ok(()) => return times,
            Err(why) => assert_eq!(why, full),
        }
    }
    panic!("it never found room for the rest");
}

#[test]
fn a_range_for_which_there_is_no_room_at_once_is_joined_and_left_when_it_is_asked_again() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    let full = || Refusal::Full;
    assert_eq!(ask(&mut host, full(), |host| host.join_range(0, 65_535)), 4, "16,575 find room at once");
    assert_eq!(host.machine().joined(), 65_536);
    assert_eq!(ask(&mut host, full(), |host| host.leave_range(0, 65_535)), 4);
    assert_eq!(host.machine().joined(), 0);
}

#[test]
fn of_a_range_that_the_classic_format_does_not_have_nothing_is_joined() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    assert_eq!(host.join_range(65_000, 70_000), Err(Refusal::Format));
    assert_eq!(host.machine().joined(), 0);
}

/// One address is told again, wanted or not: what was lost on its way can be told once more.
#[test]
fn one_address_is_told_again_and_of_a_range_what_is_not_so() {
    let (central, mut host) = open(Timing::LEAST_PROCESSOR);
    host.join(5).unwrap();
    host.join(5).unwrap();
    host.join_range(4, 6).unwrap();
    host.leave_range(6, 7).unwrap();
    host.leave(7).unwrap();
    let said = [
        Control::Join(5),
        Control::Join(5),
        Control::Join(4),
        Control::Join(6),
        Control::Drop(6),
        Control::Drop(7),
    ];
    host.turn(None).unwrap();
    assert_eq!(next(&central).0, said.map(|control| (control.write().0, control.write().1.to_vec())));
}

#[test]
fn a_region_stays_subscribed_until_all_of_it_is_left() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    let full = || RegionError::from(Refusal::Full);
    host.define("all", &[(0, 40_000), (50_000, 65_535)]).unwrap();
    assert_eq!(ask(&mut host, full(), |host| host.subscribe("all")), 4);
    assert_eq!(host.machine().joined(), 40_001 + 15_536);
    assert_eq!(ask(&mut host, full(), |host| host.unsubscribe("all")), 4);
    assert_eq!(host.machine().joined(), 0);
}

/// A message for several addresses is lost if it left for none of them, and once.
#[test]
fn what_some_of_several_addresses_got_is_not_dropped() {
    let hears = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(right) = hears.local_addr().unwrap() else { panic!("an IPv4 address") };
    let [one, other] = [9, 10].map(|port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port));
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    for (hosts, unsent, dropped) in [(vec![one, right], 1, 0), (vec![one, other], 2, 1)] {
        let settings = Settings { timing: Timing::LEAST_DELAY, ..Settings::default() };
        let options = CentralOptions { hosts, ..CentralOptions::on_loopback(settings, any, any) };
        let mut central = CentralFace::open(&options, Clock::start()).unwrap();
        let mut says = |source, address, body: &[u8]| {
            let mut builder = Builder::new(Some(source), LONGEST);
            assert!(builder.push(address, body));
            let mut bytes = vec![0; builder.octets()];
            builder.finish(&mut bytes);
            hears.send_to(&bytes, central.hears_hosts().unwrap()).unwrap();
            central.turn(None).unwrap();
        };
        let (join, control) = Control::Join(6).write();
        says(Source::Host(3), join, &control);
        says(Source::Host(2), 6, b"a message of which host 3 is to hear");
        let figure = |central: &CentralFace, name: &str| {
            let mut figures = Figures::default();
            central.figures(&mut figures);
            let page = figures.prometheus();
            let line = page.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
        };
        while figure(&central, "trunkline_converter_unsent_total") == 0 {
            central.turn(None).unwrap();
        }
        let name = "trunkline_converter_dropped_total{way=\"to_hosts\",why=\"unsent\",priority=\"ordinary\"}";
        assert_eq!(figure(&central, "trunkline_converter_unsent_total"), unsent);
        assert_eq!(figure(&central, name), dropped);
    }
}

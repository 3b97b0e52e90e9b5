//! The socket API against plain sockets.

#![allow(clippy::disallowed_methods, reason = "these tests have sockets")]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::host::CommandError;
use trunkline_bundle::socket::{
    CentralOptions, CentralSocket, HostOptions, HostSocket, Level1Options, Level1Socket, Metrics,
    RegionError, SocketDriver,
};
use trunkline_bundle::wire::classic::{ClassicBundle, ClassicControl, MAX_BUNDLE, Source};
use trunkline_bundle::wire::format2::{BundleBuilder, Header, Role};
use trunkline_bundle::{Format, Format2, Settings, wire::classic::ClassicBuilder};
use trunkline_io::Clock;
use trunkline_units::Span;

/// Returns a socket in the place of a central converter, and a host connected to it.
fn open(timing: Timing) -> (UdpSocket, HostSocket) {
    let central = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    central.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let SocketAddr::V4(at) = central.local_addr().unwrap() else { panic!("an IPv4 address") };
    let options = HostOptions {
        settings: Settings { timing, ..Settings::default() },
        number: 3,
        central: at,
        listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        interface: Ipv4Addr::LOCALHOST,
        refresh: Span::ZERO,
        dis: None,
    };
    let mut host = HostSocket::open(&options, Clock::start()).unwrap();
    host.turn(None).unwrap();
    (central, host)
}

/// Returns the messages of the next bundle and its source address.
fn next(central: &UdpSocket) -> (Vec<(u16, Vec<u8>)>, SocketAddr) {
    let mut buffer = vec![0; MAX_BUNDLE];
    let (length, from) = central.recv_from(&mut buffer).unwrap();
    let (source, bundle) = ClassicBundle::read_with_mask(&buffer[..length]).unwrap();
    assert_eq!(source, Source::Host(3));
    (bundle.messages().map(|message| (message.address, message.body.to_vec())).collect(), from)
}

#[test]
fn sent_messages_leave_and_received_ones_can_be_read() {
    for timing in [Timing::CLASSIC, Timing::LEAST_DELAY, Timing::LEAST_PROCESSOR] {
        let (central, mut host) = open(timing);
        // Nothing else would end these waits.
        let mut from = None;
        for round in 0..3u8 {
            host.send(7, &[round; 9]).unwrap();
            while host.machine().has_pending() {
                host.turn(None).unwrap();
            }
            let (messages, at) = next(&central);
            assert_eq!(messages, [(7, vec![round; 9])]);
            from = Some(at);
        }
        let mut builder = ClassicBuilder::new(None, MAX_BUNDLE);
        assert!(
            builder.push(4, b"for it") && builder.push(3, b"for others") && builder.push(6, b"for it too")
        );
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&mut bytes);
        central.send_to(&bytes, from.unwrap()).unwrap();
        let (mut body, mut received) = (Vec::new(), Vec::new());
        while received.len() < 2 {
            host.turn(None).unwrap();
            while host.receive(&mut body).is_some() {
                received.push(body.clone());
            }
        }
        assert_eq!(received, [b"for it".to_vec(), b"for it too".to_vec()]);
        let mut metrics = Metrics::default();
        host.collect_metrics(&mut metrics);
        let page = metrics.prometheus();
        assert!(page.contains("\ntrunkline_converter_messages_total{way=\"for_others\"} 1\n"), "{page}");
    }
}

/// A leave may be lost, and is not acknowledged.
#[test]
fn leaving_a_range_again_sends_it_again() {
    let (central, mut host) = open(Timing::LEAST_DELAY);
    central.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    let sent_control = |host: &mut HostSocket| {
        let (mut buffer, mut received) = (vec![0; MAX_BUNDLE], Vec::new());
        for _ in 0..10_000 {
            host.turn(Some(host.clock().now() + Span::from_ms(1))).unwrap();
            if let Ok(length) = central.recv(&mut buffer) {
                let (_, bundle) = ClassicBundle::read_with_mask(&buffer[..length]).unwrap();
                received.extend(bundle.messages().filter_map(ClassicControl::read));
            }
            if received.len() >= 3 {
                break;
            }
        }
        received
    };
    host.join_range(7, 9).unwrap();
    assert_eq!(sent_control(&mut host), [7, 8, 9].map(ClassicControl::Join));
    for _ in 0..3 {
        host.leave_range(7, 9).unwrap();
        assert_eq!(sent_control(&mut host), [7, 8, 9].map(ClassicControl::Drop));
    }
}

/// Bundles of unknown peers are ignored, counted and reported once. In format 2 another port of the same machine is
/// unknown, too.
#[test]
fn bundles_of_unknown_peers_are_ignored_and_counted() {
    let header =
        Header { role: Role::Central, number: 0, receiver: 3, incarnation: 1, session: 1, sent_before: 0 };
    let mut format2 = vec![0; 32];
    BundleBuilder::new(1_000).finish(&header, &mut format2);
    let mut builder = ClassicBuilder::new(None, MAX_BUNDLE);
    builder.push(4, b"for it");
    let mut classic = vec![0; builder.octets()];
    builder.finish(&mut classic);
    for (format, bytes) in [(Format::Classic, classic), (Format::Format2(Format2::default()), format2)] {
        let is_format2 = format != Format::Classic;
        let settings = Settings { format, ..Settings::default() };
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let peers = [Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
        let peers = peers.map(|ip| UdpSocket::bind((ip, 0)).unwrap());
        let SocketAddr::V4(central) = peers[0].local_addr().unwrap() else { panic!("an IPv4 address") };
        let host = HostSocket::open(&HostOptions::on_loopback(settings, 3, central), Clock::start()).unwrap();
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
        let level1 = Level1Socket::open(&options, Clock::start()).unwrap();
        let valid_peers = if is_format2 { 1 } else { 2 };
        check_peers(host, &peers, &bytes, valid_peers);
        check_peers(level1, &peers, &bytes, valid_peers);
    }
}

/// Checks that a socket accepts the bundles of the first `valid_peers` peers only.
fn check_peers(mut socket: impl SocketDriver, peers: &[UdpSocket; 3], bytes: &[u8], valid_peers: u64) {
    // The address follows the first " on ".
    let bound = socket.local_addresses();
    let at = bound.split(" on ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    for _ in 0..2 {
        for peer in peers {
            peer.send_to(bytes, at).unwrap();
        }
    }
    let metric = |socket: &_, name: &str| {
        let mut metrics = Metrics::default();
        SocketDriver::collect_metrics(socket, &mut metrics);
        let page = metrics.prometheus();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
    };
    let accepted = |socket: &_| metric(socket, "trunkline_converter_bundles_total{way=\"from_central\"}");
    let unknown_peers = |socket: &_| metric(socket, "trunkline_converter_strangers_total");
    while accepted(&socket) + unknown_peers(&socket) < 6 {
        socket.turn(None).unwrap();
    }
    assert_eq!(
        (accepted(&socket), unknown_peers(&socket)),
        (2 * valid_peers, 2 * (3 - valid_peers)),
        "{bound}"
    );
    let line = socket.next_warning().unwrap();
    assert!(line.contains("not the central converter") && socket.next_warning().is_none(), "{line}");
}

/// The loopback interface cannot reach the destination. Reliable messages would be sent again, and are not lost yet.
#[test]
fn unsent_messages_are_counted_by_priority() {
    let nowhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);
    for format in [Format::Classic, Format::Format2(Format2::default())] {
        let settings = Settings { format, pairs: true, timing: Timing::LEAST_DELAY, ..Settings::default() };
        let mut host =
            HostSocket::open(&HostOptions::on_loopback(settings, 3, nowhere), Clock::start()).unwrap();
        host.join(7).unwrap();
        for n in 0..5 {
            host.send(if n < 2 { 7 } else { 8 }, &[n; 30]).unwrap();
        }
        let metric = |host: &HostSocket, name: &str| {
            let mut metrics = Metrics::default();
            host.collect_metrics(&mut metrics);
            let page = metrics.prometheus();
            let line = page.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
        };
        while metric(&host, "trunkline_converter_unsent_total") == 0 {
            host.turn(None).unwrap();
        }
        let dropped = ["ordinary", "priority"].map(|class| {
            let name = "trunkline_converter_dropped_total{way=\"host\",why=\"unsent\",priority=";
            metric(&host, &format!("{name}\"{class}\"}}"))
        });
        assert_eq!(dropped, if format == Format::Classic { [3, 2] } else { [3, 0] });
    }
}

#[test]
fn closing_after_many_joins_leaves_all_addresses() {
    let (central, mut host) = open(Timing::LEAST_PROCESSOR);
    (0..1_000).for_each(|address| host.join(address).unwrap());
    host.turn(None).unwrap();
    let mut joined = Vec::new();
    for _ in 0..4 {
        joined.extend(next(&central).0);
    }
    let sent_control = |control: ClassicControl| (control.write().0, control.write().1.to_vec());
    assert!(joined.into_iter().eq((0..1_000).map(|address| sent_control(ClassicControl::Join(address)))));
    host.shutdown().unwrap();
    let mut dropped = Vec::new();
    while dropped.len() < 1_000 {
        dropped.extend(next(&central).0);
    }
    assert!(dropped.into_iter().eq((0..1_000).map(|address| sent_control(ClassicControl::Drop(address)))));
}

/// Repeats a call, with turns in between, until it succeeds; returns the number of calls.
fn call_until_accepted<E: PartialEq + std::fmt::Debug>(
    host: &mut HostSocket,
    full: E,
    mut call: impl FnMut(&mut HostSocket) -> Result<(), E>,
) -> usize {
    for times in 1..=10 {
        let requested = call(host);
        host.turn(Some(host.clock().now())).unwrap();
        match requested {
            Ok(()) => return times,
            Err(reason) => assert_eq!(reason, full),
        }
    }
    panic!("the call never succeeded");
}

#[test]
fn a_large_range_is_joined_and_left_in_several_calls() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    let full = || CommandError::Full;
    assert_eq!(
        call_until_accepted(&mut host, full(), |host| host.join_range(0, 65_535)),
        4,
        "each call has room for 16,575 addresses"
    );
    assert_eq!(host.machine().joined(), 65_536);
    assert_eq!(call_until_accepted(&mut host, full(), |host| host.leave_range(0, 65_535)), 4);
    assert_eq!(host.machine().joined(), 0);
}

#[test]
fn a_range_beyond_classic_addresses_joins_nothing() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    assert_eq!(host.join_range(65_000, 70_000), Err(CommandError::Format));
    assert_eq!(host.machine().joined(), 0);
}

/// A join or leave of a single address is always sent, since an earlier one may have been lost.
#[test]
fn a_repeated_join_of_one_address_is_sent_and_of_a_range_only_the_changes() {
    let (central, mut host) = open(Timing::LEAST_PROCESSOR);
    host.join(5).unwrap();
    host.join(5).unwrap();
    host.join_range(4, 6).unwrap();
    host.leave_range(6, 7).unwrap();
    host.leave(7).unwrap();
    let sent_control = [
        ClassicControl::Join(5),
        ClassicControl::Join(5),
        ClassicControl::Join(4),
        ClassicControl::Join(6),
        ClassicControl::Drop(6),
        ClassicControl::Drop(7),
    ];
    host.turn(None).unwrap();
    assert_eq!(next(&central).0, sent_control.map(|control| (control.write().0, control.write().1.to_vec())));
}

#[test]
fn a_region_stays_subscribed_until_its_whole_range_is_left() {
    let (_central, mut host) = open(Timing::LEAST_PROCESSOR);
    let full = || RegionError::from(CommandError::Full);
    host.define("all", &[(0, 40_000), (50_000, 65_535)]).unwrap();
    assert_eq!(call_until_accepted(&mut host, full(), |host| host.subscribe("all")), 4);
    assert_eq!(host.machine().joined(), 40_001 + 15_536);
    assert_eq!(call_until_accepted(&mut host, full(), |host| host.unsubscribe("all")), 4);
    assert_eq!(host.machine().joined(), 0);
}

/// A message for several addresses is dropped once, if all sends fail.
#[test]
fn a_bundle_sent_to_one_of_several_addresses_is_not_dropped() {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(reachable) = receiver.local_addr().unwrap() else { panic!("an IPv4 address") };
    let [unreachable, other] = [9, 10].map(|port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port));
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    for (hosts, unsent, dropped) in [(vec![unreachable, reachable], 1, 0), (vec![unreachable, other], 2, 1)] {
        let settings = Settings { timing: Timing::LEAST_DELAY, ..Settings::default() };
        let options = CentralOptions { hosts, ..CentralOptions::on_loopback(settings, any, any) };
        let mut central = CentralSocket::open(&options, Clock::start()).unwrap();
        let mut send_from = |source, address, body: &[u8]| {
            let mut builder = ClassicBuilder::new(Some(source), MAX_BUNDLE);
            assert!(builder.push(address, body));
            let mut bytes = vec![0; builder.octets()];
            builder.finish(&mut bytes);
            receiver.send_to(&bytes, central.hosts_address().unwrap()).unwrap();
            central.turn(None).unwrap();
        };
        let (join, control) = ClassicControl::Join(6).write();
        send_from(Source::Host(3), join, &control);
        send_from(Source::Host(2), 6, b"a message that host 3 has joined");
        let metric = |central: &CentralSocket, name: &str| {
            let mut metrics = Metrics::default();
            central.collect_metrics(&mut metrics);
            let page = metrics.prometheus();
            let line = page.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap()
        };
        while metric(&central, "trunkline_converter_unsent_total") == 0 {
            central.turn(None).unwrap();
        }
        let name = "trunkline_converter_dropped_total{way=\"to_hosts\",why=\"unsent\",priority=\"ordinary\"}";
        assert_eq!(metric(&central, "trunkline_converter_unsent_total"), unsent);
        assert_eq!(metric(&central, name), dropped);
    }
}

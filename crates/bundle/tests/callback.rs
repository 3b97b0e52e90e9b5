//! A callback receives the same messages as a reader of the inbox.

#![allow(clippy::disallowed_methods, reason = "these tests have sockets")]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use trunkline_bundle::host::MessageInfo;
use trunkline_bundle::socket::{
    CentralOptions, CentralSocket, HostOptions, HostSocket, Metrics, SocketDriver,
};
use trunkline_bundle::wire::classic::ClassicBuilder;
use trunkline_bundle::{Format, Format2, Settings};
use trunkline_io::Clock;
use trunkline_units::Span;

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn page(host: &HostSocket) -> String {
    let mut metrics = Metrics::default();
    host.collect_metrics(&mut metrics);
    metrics.prometheus().lines().filter(|line| line.contains("messages_total{")).map(str::to_owned).collect()
}

/// Sends classic bundles, of which some messages are for host 3, from a plain socket to two such hosts.
#[test]
fn callbacks_get_the_same_messages_in_classic() {
    let central = UdpSocket::bind(ANY).unwrap();
    let at = match central.local_addr().unwrap() {
        std::net::SocketAddr::V4(at) => at,
        other => panic!("{other}"),
    };
    let open = || {
        let options = HostOptions::on_loopback(Settings::default(), 3, at);
        let mut host = HostSocket::open(&options, Clock::start()).unwrap();
        // The first bundle reveals the address of the host.
        host.join(5).unwrap();
        host.turn(None).unwrap();
        while host.machine().has_pending() {
            host.turn(None).unwrap();
        }
        let (_, from) = central.recv_from(&mut [0; 1_500]).unwrap();
        (host, from)
    };
    let ((mut reader, first), (mut callback_host, second)) = (open(), open());
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for bundle in 0..20u8 {
        let mut builder = ClassicBuilder::new(None, 1_400);
        for message in 0..9 {
            let body = vec![message; usize::from(30 + bundle * message)];
            let group = if message % 3 == 1 { 3 } else { 4 };
            assert!(builder.push(group, &body));
            bodies.extend((group == 4).then_some(body));
        }
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&mut bytes);
        central.send_to(&bytes, first).unwrap();
        central.send_to(&bytes, second).unwrap();
    }
    let (mut taken, mut delivered, mut body) = (Vec::new(), Vec::new(), Vec::new());
    while taken.len() < bodies.len() {
        reader.turn(None).unwrap();
        while let Some(from) = reader.receive(&mut body) {
            taken.push((from, body.clone()));
        }
    }
    // Messages of a turn without a callback are delivered first.
    callback_host.turn(None).unwrap();
    while delivered.len() < bodies.len() {
        let soon = Some(callback_host.clock().now() + Span::from_ms(10));
        callback_host.turn_with(soon, |from, body| delivered.push((from, body.to_vec()))).unwrap();
    }
    assert_eq!(delivered, taken);
    assert!(delivered.iter().map(|(_, body)| body).eq(&bodies));
    assert_eq!(page(&callback_host), page(&reader));
    assert!(callback_host.receive(&mut body).is_none(), "nothing waits");
}

/// Ordinary and priority messages travel from a third host through a central converter.
#[test]
fn callbacks_get_the_same_messages_in_format2() {
    let clock = Clock::start();
    let settings =
        Settings { pairs: true, format: Format::Format2(Format2::default()), ..Settings::default() };
    let mut central = CentralSocket::open(&CentralOptions::on_loopback(settings, ANY, ANY), clock).unwrap();
    let at = central.hosts_address().unwrap();
    let mut hosts = [1, 2, 3]
        .map(|number| HostSocket::open(&HostOptions::on_loopback(settings, number, at), clock).unwrap());
    let [reader, callback_host, sender] = &mut hosts;
    reader.join_range(1 << 20, 1 << 21).unwrap();
    callback_host.join_range(1 << 20, 1 << 21).unwrap();
    let (mut sent, mut taken, mut delivered, mut body) = (0u32, Vec::new(), Vec::new(), Vec::new());
    while taken.len() < 400 || delivered.len() < 400 {
        if central.machine().statistics().control_messages >= 2 && sent < 400 {
            sender.send((1 << 20) + sent, &sent.to_be_bytes()).unwrap();
            sent += 1;
        }
        let soon = Some(clock.now());
        central.turn(soon).unwrap();
        sender.turn(soon).unwrap();
        reader.turn(soon).unwrap();
        while let Some(from) = reader.receive(&mut body) {
            taken.push((from, body.clone()));
        }
        callback_host.turn_with(soon, |from, body| delivered.push((from, body.to_vec()))).unwrap();
    }
    // Each class arrives in order.
    for (priority, odd) in [(false, 0), (true, 1)] {
        let of = |all: &[(MessageInfo, Vec<u8>)]| -> Vec<(MessageInfo, Vec<u8>)> {
            all.iter().filter(|(from, _)| from.priority == priority).cloned().collect()
        };
        assert_eq!(of(&delivered), of(&taken));
        let addresses = of(&delivered).into_iter().map(|(from, _)| from.address);
        assert!(addresses.eq((0..400).filter(|number| number % 2 == odd).map(|number| (1 << 20) + number)));
    }
    assert!(delivered.iter().all(|(from, _)| from.source == 1 << 16 | 3));
    assert_eq!(page(callback_host), page(reader));
}

/// One host publishes. Another subscribes to two overlapping regions and then unsubscribes from one of them.
#[test]
fn overlapping_regions_deliver_each_message_once() {
    use trunkline_bundle::host::CommandError;
    use trunkline_bundle::regions::InvalidRegion;
    use trunkline_bundle::socket::RegionError;

    let clock = Clock::start();
    let settings =
        Settings { pairs: true, format: Format::Format2(Format2::default()), ..Settings::default() };
    let mut central = CentralSocket::open(&CentralOptions::on_loopback(settings, ANY, ANY), clock).unwrap();
    let at = central.hosts_address().unwrap();
    let open = |number| HostSocket::open(&HostOptions::on_loopback(settings, number, at), clock).unwrap();
    let (mut sender, mut receiver) = (open(1), open(2));
    for host in [&mut sender, &mut receiver] {
        assert_eq!(host.define("half a pair", &[(8, 8)]), Err(RegionError::Refused(CommandError::Format)));
        host.define("north", &[(100, 101), (200, 203)]).unwrap();
        host.define("east", &[(202, 209)]).unwrap();
    }
    assert_eq!(sender.send_to_region("north", 0, b"too early"), Err(InvalidRegion::NotPublished.into()));
    sender.publish("north").unwrap();
    sender.publish("east").unwrap();
    receiver.subscribe("north").unwrap();
    receiver.subscribe("east").unwrap();
    let mut delivered = Vec::new();
    let mut turn =
        |sender: &mut HostSocket, receiver: &mut HostSocket, delivered: &mut Vec<(u32, Vec<u8>)>| {
            let soon = Some(clock.now());
            central.turn(soon).unwrap();
            sender.turn(soon).unwrap();
            receiver.turn_with(soon, |from, body| delivered.push((from.address, body.to_vec()))).unwrap();
            central.machine().statistics().control_messages
        };
    while turn(&mut sender, &mut receiver, &mut delivered) < 1 {}
    // One priority message at a time. The fourth address of the north is joined only as part of the east.
    let mut sent = 0;
    while delivered.len() < 4 {
        if sent == delivered.len() {
            sender
                .send_to_region(["north", "north", "east", "east"][sent], [1, 3, 1, 7][sent], &[sent as u8])
                .unwrap();
            sent += 1;
        }
        turn(&mut sender, &mut receiver, &mut delivered);
    }
    assert_eq!(delivered.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [101, 201, 203, 209]);
    assert_eq!(receiver.machine().joined(), 12);
    receiver.unsubscribe("north").unwrap();
    assert_eq!(receiver.machine().joined(), 8, "what the east has is wanted");
    receiver.unsubscribe("east").unwrap();
    assert_eq!(receiver.machine().joined(), 0);
}

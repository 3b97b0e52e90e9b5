//! A host whose messages go to a closure has them as one that takes them.

#![allow(clippy::disallowed_methods, reason = "these tests have sockets")]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use trunkline_bundle::face::{CentralFace, CentralOptions, Figures, HostFace, HostOptions, Serve};
use trunkline_bundle::host::From;
use trunkline_bundle::wire::classic::Builder;
use trunkline_bundle::{Format, Settings, Wide};
use trunkline_io::Clock;
use trunkline_units::Span;

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn page(host: &HostFace) -> String {
    let mut figures = Figures::default();
    host.figures(&mut figures);
    figures.prometheus().lines().filter(|line| line.contains("messages_total{")).map(str::to_owned).collect()
}

/// Bundles of the classic format in which some messages are for host 3, by a plain socket to two such hosts.
#[test]
fn in_the_classic_format() {
    let central = UdpSocket::bind(ANY).unwrap();
    let at = match central.local_addr().unwrap() {
        std::net::SocketAddr::V4(at) => at,
        other => panic!("{other}"),
    };
    let open = || {
        let options = HostOptions::on_loopback(Settings::default(), 3, at);
        let mut host = HostFace::open(&options, Clock::start()).unwrap();
        // Something from it, to know where it is.
        host.join(5).unwrap();
        host.turn(None).unwrap();
        while host.machine().is_saying() {
            host.turn(None).unwrap();
        }
        let (_, from) = central.recv_from(&mut [0; 1_500]).unwrap();
        (host, from)
    };
    let ((mut takes, one), (mut told, two)) = (open(), open());
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for bundle in 0..20u8 {
        let mut builder = Builder::new(None, 1_400);
        for message in 0..9 {
            let body = vec![message; usize::from(30 + bundle * message)];
            let group = if message % 3 == 1 { 3 } else { 4 };
            assert!(builder.push(group, &body));
            bodies.extend((group == 4).then_some(body));
        }
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&mut bytes);
        central.send_to(&bytes, one).unwrap();
        central.send_to(&bytes, two).unwrap();
    }
    let (mut taken, mut heard, mut body) = (Vec::new(), Vec::new(), Vec::new());
    while taken.len() < bodies.len() {
        takes.turn(None).unwrap();
        while let Some(from) = takes.receive(&mut body) {
            taken.push((from, body.clone()));
        }
    }
    // What came in a turn without the closure goes to it first.
    told.turn(None).unwrap();
    while heard.len() < bodies.len() {
        let soon = Some(told.clock().now() + Span::from_ms(10));
        told.turn_with(soon, |from, body| heard.push((from, body.to_vec()))).unwrap();
    }
    assert_eq!(heard, taken);
    assert!(heard.iter().map(|(_, body)| body).eq(&bodies));
    assert_eq!(page(&told), page(&takes));
    assert!(!told.take(&mut body), "nothing waits");
}

/// Ordinary messages and those with priority, from a third host through a central converter.
#[test]
fn in_the_wide_format() {
    let clock = Clock::start();
    let settings = Settings { pairs: true, format: Format::Wide(Wide::default()), ..Settings::default() };
    let mut central = CentralFace::open(&CentralOptions::on_loopback(settings, ANY, ANY), clock).unwrap();
    let at = central.hears_hosts().unwrap();
    let mut hosts = [1, 2, 3]
        .map(|number| HostFace::open(&HostOptions::on_loopback(settings, number, at), clock).unwrap());
    let [takes, told, says] = &mut hosts;
    takes.join_range(1 << 20, 1 << 21).unwrap();
    told.join_range(1 << 20, 1 << 21).unwrap();
    let (mut sent, mut taken, mut heard, mut body) = (0u32, Vec::new(), Vec::new(), Vec::new());
    while taken.len() < 400 || heard.len() < 400 {
        if central.machine().statistics().control >= 2 && sent < 400 {
            says.send((1 << 20) + sent, &sent.to_be_bytes()).unwrap();
            sent += 1;
        }
        let soon = Some(clock.now());
        central.turn(soon).unwrap();
        says.turn(soon).unwrap();
        takes.turn(soon).unwrap();
        while let Some(from) = takes.receive(&mut body) {
            taken.push((from, body.clone()));
        }
        told.turn_with(soon, |from, body| heard.push((from, body.to_vec()))).unwrap();
    }
    // In their order, each class by itself.
    for (priority, odd) in [(false, 0), (true, 1)] {
        let of = |all: &[(From, Vec<u8>)]| -> Vec<(From, Vec<u8>)> {
            all.iter().filter(|(from, _)| from.priority == priority).cloned().collect()
        };
        assert_eq!(of(&heard), of(&taken));
        let addresses = of(&heard).into_iter().map(|(from, _)| from.address);
        assert!(addresses.eq((0..400).filter(|number| number % 2 == odd).map(|number| (1 << 20) + number)));
    }
    assert!(heard.iter().all(|(from, _)| from.source == 1 << 16 | 3));
    assert_eq!(page(told), page(takes));
}

/// One host publishes, another subscribes to two regions that overlap, and then to one of them no longer.
#[test]
fn by_region() {
    use trunkline_bundle::face::RegionError;
    use trunkline_bundle::host::Refusal;
    use trunkline_bundle::regions::NoRegion;

    let clock = Clock::start();
    let settings = Settings { pairs: true, format: Format::Wide(Wide::default()), ..Settings::default() };
    let mut central = CentralFace::open(&CentralOptions::on_loopback(settings, ANY, ANY), clock).unwrap();
    let at = central.hears_hosts().unwrap();
    let open = |number| HostFace::open(&HostOptions::on_loopback(settings, number, at), clock).unwrap();
    let (mut says, mut hears) = (open(1), open(2));
    for host in [&mut says, &mut hears] {
        assert_eq!(host.define("half a pair", &[(8, 8)]), Err(RegionError::Refused(Refusal::Format)));
        host.define("north", &[(100, 101), (200, 203)]).unwrap();
        host.define("east", &[(202, 209)]).unwrap();
    }
    assert_eq!(says.send_in("north", 0, b"too early"), Err(NoRegion::Unpublished.into()));
    says.publish("north").unwrap();
    says.publish("east").unwrap();
    hears.subscribe("north").unwrap();
    hears.subscribe("east").unwrap();
    let mut heard = Vec::new();
    let mut turn = |says: &mut HostFace, hears: &mut HostFace, heard: &mut Vec<(u32, Vec<u8>)>| {
        let soon = Some(clock.now());
        central.turn(soon).unwrap();
        says.turn(soon).unwrap();
        hears.turn_with(soon, |from, body| heard.push((from.address, body.to_vec()))).unwrap();
        central.machine().statistics().control
    };
    while turn(&mut says, &mut hears, &mut heard) < 1 {}
    // With priority, one after the other; the fourth of the north is wanted by nobody but as one of the east.
    let mut sent = 0;
    while heard.len() < 4 {
        if sent == heard.len() {
            says.send_in(["north", "north", "east", "east"][sent], [1, 3, 1, 7][sent], &[sent as u8])
                .unwrap();
            sent += 1;
        }
        turn(&mut says, &mut hears, &mut heard);
    }
    assert_eq!(heard.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [101, 201, 203, 209]);
    assert_eq!(hears.machine().joined(), 12);
    hears.unsubscribe("north").unwrap();
    assert_eq!(hears.machine().joined(), 8, "what the east has is wanted");
    hears.unsubscribe("east").unwrap();
    assert_eq!(hears.machine().joined(), 0);
}

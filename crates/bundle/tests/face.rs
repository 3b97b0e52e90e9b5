//! A host's interface from Rust, against a plain socket.

#![allow(clippy::disallowed_methods, reason = "these tests have sockets")]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use trunkline_bundle::face::{Figures, HostFace, HostOptions, Serve};
use trunkline_bundle::gather::Timing;
use trunkline_bundle::wire::classic::{Bundle, Control, LONGEST, Source};
use trunkline_bundle::{Settings, wire::classic::Builder};
use trunkline_net::Clock;
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

//! The DSCP of a connection on the packets of each transport, as a packet socket on the loopback sees them.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use trunkline_io::PacketSocket;
use trunkline_io::must::skip;
use trunkline_io::packet::Options;

use crate::support::run;

/// Runs a body in a network namespace that has only a loopback interface, if that is permitted.
fn in_a_namespace(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let own = unshare(CloneFlags::CLONE_NEWNET).is_ok();
        let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !own || !up().is_ok_and(|status| status.success()) {
            return skip("no network namespace");
        }
        body();
    });
    thread.join().unwrap();
}

/// Returns how many packets of an IP protocol have each traffic class, in the frames of a loopback.
fn traffic_classes(socket: &PacketSocket, ip_protocol: u8) -> BTreeMap<u8, usize> {
    let mut classes = BTreeMap::new();
    let mut buffer = vec![0; 1 << 17];
    while let Ok(Some(frame)) = socket.try_receive(&mut buffer) {
        // IPv4 behind the Ethernet header (RFC 791 section 3.1).
        let is_ipv4 = frame.bytes.get(12..14) == Some(&[8, 0]);
        if is_ipv4 && frame.bytes.get(23) == Some(&ip_protocol) {
            *classes.entry(frame.bytes[15]).or_default() += 1;
        }
    }
    classes
}

#[test]
fn packets_of_both_directions_have_the_dscp() {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    in_a_namespace(|| {
        for (protocol, test, ip_protocol) in [
            ("tcp", "full (messagesize = 10 kB)", TCP),
            ("tcp", "request", TCP),
            ("udp", "cbr (messagesize = 100, period = 1 ms)", UDP),
            ("udp", "full (messagesize = 1000)", UDP),
            ("udp", "request", UDP),
            ("guaranteed", "full (messagesize = 10 kB)", UDP),
            ("guaranteed", "request", UDP),
            #[cfg(feature = "quic")]
            ("quic", "full (messagesize = 10 kB)", UDP),
            #[cfg(feature = "quic")]
            ("quic", "request", UDP),
            ("multicast (group = 239.7.7.7)", "cbr (messagesize = 100, period = 1 ms)", UDP),
        ] {
            for (dscp, class) in [("EF", 46 << 2), ("none", 0)] {
                let options = Options { receive_buffer: 8 << 20, ..Options::default() };
                let socket = match PacketSocket::open("lo", &options) {
                    Ok(socket) => socket,
                    Err(error) => return skip(format_args!("no packet socket: {error}")),
                };
                let record = run(&format!(
                    "connection c {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; dscp = {dscp}; messages = 50; }}"
                ));
                let c = &record.connections[0];
                assert_eq!((record.partial, c.lost), (false, 0), "{protocol} {test}: {:?}", record.problems);
                assert_eq!(c.notes.get("dscp").map(String::as_str), (dscp != "none").then_some(dscp));
                std::thread::sleep(Duration::from_millis(20)); // for frames that close the connection
                let classes = traffic_classes(&socket, ip_protocol);
                assert!(classes.contains_key(&class), "{protocol} {test}, {dscp}: {classes:?}");
                assert_eq!(classes.len(), 1, "{protocol} {test}, {dscp}: {classes:?}");
            }
        }
    });
}

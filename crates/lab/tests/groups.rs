//! Packets to multicast groups that programs choose, and what kernels send by themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use trunkline_lab::{Host, Lab};

use crate::network::{counters, ends, start};

const GROUPS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(239, 9, 9, 9)), IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 9))];

fn port(group: IpAddr) -> u16 {
    if group.is_ipv4() { 9 } else { 10 }
}

/// Returns a socket of a host that has joined a group.
fn join(host: &Host, group: IpAddr) -> UdpSocket {
    let join = || {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // A socket of IPv6 would also take the port of IPv4.
        let socket = UdpSocket::bind((any, port(group)))?;
        match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?,
            IpAddr::V6(group) => socket.join_multicast_v6(&group, 0)?,
        }
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(socket)
    };
    host.namespace.run(join).unwrap()
}

/// Routers, a hub, and kernels that have joined groups: no link carries a packet, and what they report is counted.
pub fn kernels_send_nothing_by_themselves() {
    let lab = start(
        "host a, b, c; host r (forward); hub h; link a - h; link c - h; link r - h; link r - b (rate = 100 Mb/s);",
    );
    let sockets = GROUPS.map(|group| join(ends(&lab).0, group));
    // Until the kernel has sent its reports, which are its only packets.
    while outgoing(ends(&lab).0) < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let report = lab.finish().unwrap();
    drop(sockets);
    assert!(report.group_reports >= 2, "{}", report.group_reports);
    assert_eq!((report.packets_in - report.group_reports, report.unroutable, report.packets_out), (0, 0, 0));
    assert_eq!(counters(&report, "r-b"), [(0, 0, 0); 2]);
    assert_eq!(counters(&report, "h"), [(0, 0, 0); 2]);
}

/// Returns how many packets the kernel of a host has given to its interface.
fn outgoing(host: &Host) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let text = host.namespace.run(read).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// A group that is not in the plan reaches all members behind switches, and no host behind a router.
pub fn groups_of_programs_stay_between_routers() {
    let lab = start(
        "host a, b, c, d; host r (forward); switch s, t; link a - s (rate = 100 Mb/s); link b - s (rate = 100 Mb/s);
         link s - t (rate = 100 Mb/s); link c - t (rate = 100 Mb/s); link r - t (rate = 100 Mb/s);
         link r - d (rate = 100 Mb/s);",
    );
    for group in GROUPS {
        let members = ["b", "c"].map(|name| join(lab.host(name).unwrap(), group));
        send(&lab, group);
        for member in members {
            let mut buffer = [0; 100];
            let (length, from) = member.recv_from(&mut buffer).unwrap();
            let a = lab.host("a").unwrap();
            let address: IpAddr = if group.is_ipv4() { a.address.into() } else { a.ipv6_address().into() };
            assert_eq!((length, from.ip()), (4, address));
        }
    }
    let report = lab.finish().unwrap();
    assert_eq!((counters(&report, "a-s")[0].0, counters(&report, "s-t")[0].0), (2, 2));
    assert_eq!(counters(&report, "r-d"), [(0, 0, 0); 2]);
    assert_eq!(report.unroutable, 0);
}

/// Sends a datagram from `a`.
fn send(lab: &Lab, group: IpAddr) {
    let a = lab.host("a").unwrap();
    let any: IpAddr = if group.is_ipv4() { a.address.into() } else { a.ipv6_address().into() };
    let socket = a.namespace.run(|| UdpSocket::bind((any, 0))).unwrap();
    socket.send_to(b"test", (group, port(group))).unwrap();
}

//! IPv6 packets of real kernels through links and routers.

use crate::network::{counters, ends, run, start, transfer_to};

/// Every request is answered, after the router has decremented the hop limit both ways.
pub fn a_router_forwards_and_counts_hops() {
    let lab = start(
        "host a, b; host r (forward); switch s; link a - s (rate = 100 Mb/s); link s - r (rate = 100 Mb/s);
         link r - b (rate = 100 Mb/s);",
    );
    let (a, b) = ends(&lab);
    let mut ping = a.command("ping");
    let ping = ping.args(["-6", "-c", "10", "-i", "0.01", "-t", "9"]).arg(b.ipv6_address().to_string());
    let Some(output) = run(ping) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("10 packets transmitted, 10 received"), "{text}{output:?}");
    assert_eq!(text.matches(" ttl=63 ").count(), 10, "{text}");
    // A request whose hop limit ends at the router is answered by it.
    let mut ping = a.command("ping");
    let ping = ping.args(["-6", "-c", "1", "-W", "5", "-t", "1"]).arg(b.ipv6_address().to_string());
    let text = String::from_utf8_lossy(&run(ping).expect("ping is installed").stdout).into_owned();
    assert!(text.contains("Time exceeded: Hop limit"), "{text}");
    let report = lab.finish().unwrap();
    assert_eq!(counters(&report, "a-s"), [(11, 0, 0); 2]);
    assert_eq!(counters(&report, "r-b"), [(10, 0, 0); 2]);
    assert_eq!((report.unroutable, report.refused), (0, 0));
}

/// A router does not fragment IPv6: it reports the MTU of the next link.
pub fn a_router_reports_packets_that_are_too_big() {
    let lab = start(
        "host a, b; host r (forward); link a - r (rate = 100 Mb/s); link r - b (rate = 100 Mb/s, mtu = 1400);",
    );
    let (a, b) = ends(&lab);
    let mut ping = a.command("ping");
    let ping = ping.args(["-6", "-c", "3", "-i", "0.1", "-W", "5", "-s", "1400"]);
    let Some(output) = run(ping.arg(b.ipv6_address().to_string())) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Packet too big: mtu=1400") && text.contains(" 2 received"), "{text}");
    lab.finish().unwrap();
}

/// Below 1,280 bytes a link has no IPv6 (RFC 8200 section 5).
pub fn a_link_with_a_short_mtu_has_ipv4_only() {
    let lab = start("host a, b; link a - b (rate = 100 Mb/s, mtu = 1279);");
    let (a, b) = ends(&lab);
    assert_eq!(transfer_to(&lab, b.address.into(), 10_000), 10_000);
    let bound = b.namespace.run(|| std::net::UdpSocket::bind((b.ipv6_address(), 9)));
    assert_eq!(bound.unwrap_err().raw_os_error(), Some(libc::EADDRNOTAVAIL));
    assert_eq!(a.ipv6_address().to_string(), "fd00::1");
}

/// A queue that marks does so in the packets of the kernel, whose TCP reduces its window and loses nothing.
pub fn the_kernel_sees_marks() {
    let lab = start(
        "host a, b; switch s (buffer = 1000 packets); link a - s (rate = 1 Gb/s);
         link s - b (rate = 10 Mb/s, delay = 2 ms, queue = codel (ecn));",
    );
    let (a, b) = ends(&lab);
    for host in [a, b] {
        host.namespace.set("net/ipv4/tcp_ecn", "1").unwrap();
    }
    assert_eq!(transfer_to(&lab, b.ipv6_address().into(), 1_000_000), 1_000_000);
    let marks = b.namespace.run(|| counter("Ip6InCEPkts")).unwrap();
    let report = lab.finish().unwrap();
    assert!(marks > 0, "{report:?}");
    assert_eq!(counters(&report, "s-b")[0].1, 0);
}

/// The checksums of the kernel find damage, and TCP repairs it.
pub fn damaged_segments_are_discarded() {
    let lab = start("host a, b; link a - b (rate = 50 Mb/s, delay = 1 ms, corrupt = 0.02);");
    let (_, b) = ends(&lab);
    assert_eq!(transfer_to(&lab, b.ipv6_address().into(), 1_000_000), 1_000_000);
    let namespace = b.namespace.clone();
    let report = lab.finish().unwrap();
    let delivered = namespace.run(|| counter("Ip6InDelivers")).unwrap();
    let (_, ports) = report.media.iter().find(|(name, _)| name == "a-b").unwrap();
    // The damage is in the payload: the header has no checksum. The last acknowledgements may be on the line at the end.
    let missing = ports[0].frames - delivered;
    assert!(missing <= 2 && ports[0].damaged > 2, "{missing} {ports:?}");
    assert_eq!(report.refused, 0);
}

/// Reads a counter of `/proc/net/snmp6`.
fn counter(name: &str) -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    Ok(lines.find_map(|(key, value)| (key == name).then(|| value.trim().parse().ok())?).unwrap_or_default())
}

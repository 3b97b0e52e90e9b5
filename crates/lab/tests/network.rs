//! Packets of real kernels through links.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use trunkline_io::must::skip;
use trunkline_lab::{Host, Lab, LabError, Report};
use trunkline_units::Seed;

use crate::plan;

pub fn start(network: &str) -> Lab {
    Lab::start(&plan(network), Seed(1996)).unwrap_or_else(|error| panic!("{network}: {error}"))
}

pub fn ends(lab: &Lab) -> (&Host, &Host) {
    (lab.host("a").unwrap(), lab.host("b").unwrap())
}

/// Returns the frames that a medium has sent, and dropped or lost, from its port 0 and 1.
pub fn counters(report: &Report, medium: &str) -> [(u64, u64, u64); 2] {
    let (_, ports) = report.media.iter().find(|(name, _)| name == medium).expect("the medium is in the plan");
    [0, 1].map(|port| (ports[port].frames, ports[port].queue_drops, ports[port].other_losses))
}

/// Runs a program, or skips the test if there is none.
pub fn run(command: &mut Command) -> Option<Output> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(format!("{}: not installed", command.get_program().display()));
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Every request is answered, and no answer comes before twice the delay.
pub fn ping_sees_the_delay() {
    let lab = start("host a, b; link a - b (rate = 100 Mb/s, delay = 5 ms);");
    let (a, b) = ends(&lab);
    let mut ping = a.command("ping");
    let Some(output) = run(ping.args(["-c", "20", "-i", "0.01", "-q"]).arg(b.address.to_string())) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("20 packets transmitted, 20 received"), "{text}{output:?}");
    // `rtt min/avg/max/mdev = 10.1/…`
    let least = text.split("= ").nth(1).and_then(|times| times.split('/').next()).expect("ping prints times");
    assert!(least.parse::<f64>().unwrap() >= 10.0, "{text}");
    let report = lab.finish().unwrap();
    assert_eq!(counters(&report, "a-b"), [(20, 0, 0); 2]);
    assert_eq!(report.unroutable, 0);
}

/// What arrives in a second is at most what the line carries in a second, and all packets are as long as the MTU at most.
pub fn iperf3_gets_no_more_than_the_rate() {
    let lab = start("host a, b; link a - b (rate = 8 Mb/s, delay = 1 ms);");
    let (a, b) = ends(&lab);
    let mut server = b.command("iperf3");
    let server = server.args(["-s", "-1"]).stdin(Stdio::null()).stdout(Stdio::null());
    let Ok(mut server) = server.spawn() else { return skip("iperf3: not installed") };
    let output = loop {
        let mut client = a.command("iperf3");
        client.args(["-t", "1", "-J", "-c"]).arg(b.address.to_string());
        let output = run(&mut client).expect("iperf3 is installed");
        // Until the server listens: with `-J` a client that is refused ends without an error, and says so in its output.
        let is_refused = String::from_utf8_lossy(&output.stdout).contains("\"error\"");
        if output.status.success() && !is_refused || server.try_wait().unwrap().is_some() {
            break output;
        }
    };
    server.wait().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let report = lab.finish().unwrap();
    let (_, ports) = report.media.iter().find(|(name, _)| name == "a-b").unwrap();
    assert!(ports[0].bytes <= ports[0].frames * 1500, "{ports:?}");
    // The line was busy for the time that its bytes with their framing take.
    let least = (ports[0].bytes + ports[0].frames * 38) as f64;
    assert!(
        (ports[0].busy.as_s() - least * 8.0 / 8e6).abs() < 1e-3 + ports[0].frames as f64 * 84e-6,
        "{ports:?}"
    );
    assert!(ports[0].frames > 100, "{ports:?}");
}

/// Sends datagrams from `a` to `b`, slowly enough for `b` to take them. Returns how many arrive.
fn send_datagrams(lab: &Lab, count: u32, traffic_class: Option<i32>) -> u64 {
    let (a, b) = ends(lab);
    let receiver = b.namespace.run(|| UdpSocket::bind((b.address, 9))).unwrap();
    let sender = a.namespace.run(|| UdpSocket::bind((a.address, 9))).unwrap();
    if let Some(class) = traffic_class {
        socket2::SockRef::from(&sender).set_tos_v4(class as u32).unwrap();
    }
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let receiving = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        let mut received = 0;
        while receiver.recv(&mut buffer).is_ok() {
            received += 1;
        }
        received
    });
    for number in 0..count {
        sender.send_to(&[0; 100], (b.address, 9)).unwrap();
        if number % 20 == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    receiving.join().unwrap()
}

/// The losses of 1 % and 10 % lie within four standard deviations, and are the same for the same seed.
pub fn losses_are_binomial() {
    for loss in [0.01, 0.1] {
        let count = 10_000;
        let lost = [0, 1].map(|_| {
            let lab = start(&format!("host a, b; link a - b (rate = 1 Gb/s, loss = {loss});"));
            let received = send_datagrams(&lab, count, None);
            let report = lab.finish().unwrap();
            let (sent, dropped, lost) = counters(&report, "a-b")[0];
            assert_eq!((sent, dropped), (u64::from(count), 0));
            assert_eq!(report.packets_out, sent - lost);
            assert!(received <= sent - lost, "{received} received, {lost} of {sent} lost");
            lost
        });
        let (mean, deviation) = (f64::from(count) * loss, (f64::from(count) * loss * (1.0 - loss)).sqrt());
        assert!((lost[0] as f64 - mean).abs() < 4.0 * deviation, "{} lost of {count} at {loss}", lost[0]);
        assert_eq!(lost[0], lost[1], "the same seed loses the same packets");
    }
}

/// A burst beyond the buffer of a switch loses the rest, and everything is accounted for.
pub fn a_full_queue_drops() {
    let lab = start(
        "host a, b; switch s (buffer = 10 packets); link a - s (rate = 1 Gb/s); link s - b (rate = 64 kb/s);",
    );
    let received = send_datagrams(&lab, 100, None);
    let report = lab.finish().unwrap();
    assert_eq!(counters(&report, "a-s")[0], (100, 0, 0));
    let (sent, dropped, lost) = counters(&report, "s-b")[0];
    assert!(dropped > 0 && lost == 0 && sent + dropped <= 100, "{sent} sent, {dropped} dropped");
    assert!(received <= sent, "{received} of {sent}");
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
    assert_eq!(transfer(&lab, 1_000_000), 1_000_000);
    // `InCEPkts` counts packets with a congestion mark and a valid header checksum.
    let marks = b.namespace.run(|| counter("InCEPkts")).unwrap();
    let retransmissions = a.namespace.run(|| counter("TCPFastRetrans")).unwrap();
    let report = lab.finish().unwrap();
    assert!(marks > 0, "{report:?}");
    assert_eq!((counters(&report, "s-b")[0].1, retransmissions), (0, 0));
}

/// The checksums of the kernel find damage, and TCP repairs it.
pub fn damaged_segments_are_discarded() {
    let lab = start("host a, b; link a - b (rate = 50 Mb/s, delay = 1 ms, corrupt = 0.02);");
    assert_eq!(transfer(&lab, 1_000_000), 1_000_000);
    let namespace = ends(&lab).1.namespace.clone();
    let report = lab.finish().unwrap();
    let errors = namespace.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let at = names.split(' ').position(|name| name == "InCsumErrors");
        Ok(at.and_then(|at| values.split(' ').nth(at)?.parse().ok()).unwrap_or(0u64))
    });
    let (_, ports) = report.media.iter().find(|(name, _)| name == "a-b").unwrap();
    assert!(ports[0].damaged > 0, "{ports:?}");
    assert_eq!(errors.unwrap(), ports[0].damaged);
}

/// A program on a host may bring its interface down; what arrives there is lost, and the rest of the lab continues.
pub fn an_interface_that_is_down_loses_packets() {
    let lab = start("host a, b; link a - b (rate = 100 Mb/s);");
    let (a, b) = ends(&lab);
    let mut down = b.command("ip");
    let Some(output) = run(down.args(["link", "set", "eth0", "down"])) else { return };
    assert!(output.status.success(), "{output:?}");
    let mut ping = a.command("ping");
    if run(ping.args(["-c", "3", "-i", "0.01", "-W", "0.1", "-q"]).arg(b.address.to_string())).is_none() {
        return;
    }
    assert!(lab.is_running());
    let report = lab.finish().unwrap();
    assert_eq!((report.refused, report.packets_out), (3, 0));
}

/// Sends bytes from `a` to `b` over TCP; returns how many arrive.
fn transfer(lab: &Lab, bytes: usize) -> usize {
    transfer_to(lab, ends(lab).1.address.into(), bytes)
}

/// Sends bytes from `a` to `b` over TCP, to one of its addresses; returns how many arrive.
pub fn transfer_to(lab: &Lab, address: IpAddr, bytes: usize) -> usize {
    let (a, b) = ends(lab);
    let listener = b.namespace.run(|| TcpListener::bind((address, 5001))).unwrap();
    let receiving = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received.len()
    });
    let mut sender = a.namespace.run(|| TcpStream::connect((address, 5001))).unwrap();
    sender.write_all(&vec![7; bytes]).unwrap();
    drop(sender);
    receiving.join().unwrap()
}

/// Reads a counter of `/proc/net/netstat`.
fn counter(name: &str) -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    Ok(pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok()).unwrap_or_default())
}

/// Each refusal names what it refuses.
pub fn what_the_lab_does_not_have_is_refused() {
    match Lab::start(&plan("host a, b, c; link a - b (rate = 1 Mb/s);"), Seed(1)) {
        Err(LabError::Unlinked(host)) => assert_eq!(host, "c"),
        other => panic!("{other:?}"),
    }
    let mut none = plan("host a, b; link a - b (rate = 1 Mb/s);");
    none.network = None;
    assert!(matches!(Lab::start(&none, Seed(1)), Err(LabError::NoNetwork)));
}

/// A datagram to all hosts of the network reaches every other host, by either of the two addresses that mean all.
pub fn broadcasts_reach_the_network() {
    let lab = start(
        "host a, b, c; switch s; link a - s (rate = 1 Gb/s); link b - s (rate = 1 Gb/s); link c - s (rate = 1 Gb/s);",
    );
    let host = |name| lab.host(name).unwrap();
    let receivers =
        ["b", "c"].map(|name| host(name).namespace.run(|| UdpSocket::bind(("0.0.0.0", 9))).unwrap());
    let sender = host("a").namespace.run(|| UdpSocket::bind((host("a").address, 9))).unwrap();
    sender.set_broadcast(true).unwrap();
    for to in ["10.0.255.255", "255.255.255.255"] {
        // The limited broadcast has no route.
        if let Err(error) = sender.send_to(to.as_bytes(), (to, 9)) {
            assert_eq!((to, error.kind()), ("255.255.255.255", std::io::ErrorKind::NetworkUnreachable));
            continue;
        }
        for receiver in &receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut buffer = [0; 100];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], to.as_bytes());
        }
    }
    assert_eq!(lab.finish().unwrap().unroutable, 0);
}

/// A kernel reports the groups of its programs. The media need no reports, so they are neither carried nor lost.
pub fn reports_about_groups_are_no_losses() {
    let lab = start("host a, b; link a - b (rate = 1 Gb/s);");
    let (a, b) = ends(&lab);
    let socket = a.namespace.run(|| UdpSocket::bind(("0.0.0.0", 9))).unwrap();
    socket.join_multicast_v4(&"239.1.1.1".parse().unwrap(), &a.address).unwrap();
    let mut ping = a.command("ping");
    if run(ping.args(["-c", "3", "-i", "0.01", "-q"]).arg(b.address.to_string())).is_none() {
        return;
    }
    let report = lab.finish().unwrap();
    assert_eq!((report.packets_in > 6, report.unroutable), (true, 0), "{report:?}");
    assert_eq!(counters(&report, "a-b"), [(3, 0, 0); 2]);
}

//! Counters of the kernel of this machine, from `/proc`: network interfaces, IP, TCP and UDP, processors.
//!
//! Interfaces and protocols are those of the network namespace of the calling process.

use std::fs;

/// A counter or gauge: its name, and its value.
pub type Metric = (String, f64);

/// Maximum number of interfaces.
const MAX_INTERFACES: usize = 32;

/// Counters of `/proc/net/dev`: name and column.
const INTERFACE: [(&str, usize); 8] = [
    ("rx_bytes", 0),
    ("rx_packets", 1),
    ("rx_errors", 2),
    ("rx_dropped", 3),
    ("tx_bytes", 8),
    ("tx_packets", 9),
    ("tx_errors", 10),
    ("tx_dropped", 11),
];

/// Counters of `/proc/net/snmp` and `/proc/net/netstat`: name, protocol and name there.
const PROTOCOLS: [(&str, &str, &str); 13] = [
    ("ip.received", "Ip", "InReceives"),
    ("ip.reassembly_failures", "Ip", "ReasmFails"),
    ("tcp.established", "Tcp", "CurrEstab"),
    ("tcp.segments_received", "Tcp", "InSegs"),
    ("tcp.segments_sent", "Tcp", "OutSegs"),
    ("tcp.segments_retransmitted", "Tcp", "RetransSegs"),
    ("tcp.resets_sent", "Tcp", "OutRsts"),
    ("tcp.timeouts", "TcpExt", "TCPTimeouts"),
    ("tcp.fast_retransmissions", "TcpExt", "TCPFastRetrans"),
    ("udp.datagrams_received", "Udp", "InDatagrams"),
    ("udp.datagrams_sent", "Udp", "OutDatagrams"),
    ("udp.receive_buffer_errors", "Udp", "RcvbufErrors"),
    ("udp.no_port", "Udp", "NoPorts"),
];

/// Returns the counters of all network interfaces: `eth0.rx_bytes`, …
pub fn interfaces() -> Vec<Metric> {
    parse_interfaces(&read("/proc/thread-self/net/dev"))
}

/// Returns counters of IP, TCP and UDP: `tcp.segments_retransmitted`, …
pub fn protocols() -> Vec<Metric> {
    parse_protocols(&[read("/proc/thread-self/net/snmp"), read("/proc/thread-self/net/netstat")].concat())
}

/// Returns counters of the kernel: seconds of processor time by kind, context switches, interrupts, packets that no
/// processor had time for, available memory.
pub fn kernel() -> Vec<Metric> {
    // The kernel counts in ticks of this many a second, whatever its own rate is.
    let ticks_per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    let mut metrics = parse_stat(&read("/proc/stat"), ticks_per_s as f64);
    metrics.extend(parse_softnet(&read("/proc/net/softnet_stat")));
    metrics.extend(parse_memory(&read("/proc/meminfo")));
    metrics
}

/// Reads a file; a missing one has no counters.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn parse_interfaces(text: &str) -> Vec<Metric> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(':'));
    let metrics = lines.take(MAX_INTERFACES).flat_map(|(name, counts)| {
        let counts: Vec<u64> = counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
        let metric = move |(counter, column): &(&str, usize)| {
            Some((format!("{}.{counter}", name.trim()), *counts.get(*column)? as f64))
        };
        INTERFACE.iter().filter_map(metric).collect::<Vec<_>>()
    });
    metrics.collect()
}

/// Parses pairs of lines, the first with names and the second with values: `Tcp: InSegs …`, `Tcp: 17 …`.
fn parse_protocols(text: &str) -> Vec<Metric> {
    let lines: Vec<&str> = text.lines().collect();
    let find = |protocol: &str, counter: &str| {
        let prefix = format!("{protocol}: ");
        let pairs = lines.chunks_exact(2).find(|pair| pair[0].starts_with(&prefix))?;
        let column = pairs[0].split(' ').position(|name| name == counter)?;
        pairs[1].split(' ').nth(column)?.trim().parse::<f64>().ok()
    };
    let metric =
        |(name, protocol, counter): &(&str, &str, &str)| Some(((*name).to_owned(), find(protocol, counter)?));
    PROTOCOLS.iter().filter_map(metric).collect()
}

fn parse_stat(text: &str, ticks_per_s: f64) -> Vec<Metric> {
    let field = |name: &str| text.lines().find(|line| line.split(' ').next() == Some(name));
    let numbers = |line: &str| -> Vec<f64> {
        line.split_whitespace().skip(1).filter_map(|number| number.parse().ok()).collect()
    };
    let kinds = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let ticks = field("cpu").map(numbers).unwrap_or_default();
    let time = kinds.iter().zip(ticks).map(|(kind, ticks)| (format!("cpu.{kind}_s"), ticks / ticks_per_s));
    let counts = [("context_switches", "ctxt"), ("interrupts", "intr"), ("processes_created", "processes")];
    let count =
        |(name, field_name): &(&str, &str)| Some(((*name).to_owned(), *numbers(field(field_name)?).first()?));
    time.chain(counts.iter().filter_map(count)).collect()
}

/// Sums the columns of all processors: packets dropped, and times at which the kernel stopped with work left.
fn parse_softnet(text: &str) -> Vec<Metric> {
    let column = |column: usize| -> Option<f64> {
        let values =
            text.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok());
        values.sum::<Option<u64>>().map(|sum| sum as f64)
    };
    let names = [("softnet.dropped", 1), ("softnet.time_squeezed", 2)];
    names.iter().filter_map(|(name, at)| Some(((*name).to_owned(), column(*at)?))).collect()
}

fn parse_memory(text: &str) -> Option<Metric> {
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(("memory.available_bytes".into(), kib * 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metrics: &[Metric], name: &str) -> Option<f64> {
        metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    #[test]
    fn counters_of_this_machine_are_found_and_grow() {
        let of = |name: &str| value(&interfaces(), name).unwrap();
        let (before, datagrams) = (of("lo.tx_packets"), value(&protocols(), "udp.datagrams_sent").unwrap());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..10 {
            socket.send_to(&[1; 100], socket.local_addr().unwrap()).unwrap();
        }
        assert!(of("lo.tx_packets") >= before + 10.0);
        assert!(value(&protocols(), "udp.datagrams_sent").unwrap() >= datagrams + 10.0);
        assert_eq!(protocols().len(), PROTOCOLS.len());
        for name in ["cpu.user_s", "cpu.idle_s", "context_switches", "interrupts", "memory.available_bytes"] {
            assert!(value(&kernel(), name).unwrap() > 0.0, "{name}");
        }
    }

    #[test]
    fn texts_of_the_kernel_are_parsed() {
        let dev = "Inter-| Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(value(&parse_interfaces(dev), "eth0.tx_dropped"), Some(12.0));
        let snmp = "Tcp: A RetransSegs B\nTcp: 1 22 3\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(value(&parse_protocols(snmp), "tcp.segments_retransmitted"), Some(22.0));
        let stat = parse_stat("cpu  100 0 50 7\ncpu0 1 1 1 1\nintr 5 6 7\nctxt 9\n", 100.0);
        assert_eq!((value(&stat, "cpu.system_s"), value(&stat, "interrupts")), (Some(0.5), Some(5.0)));
        let softnet = parse_softnet("000000ff 00000001 00000002\n00000001 0000000f 00000000\n");
        assert_eq!(value(&softnet, "softnet.dropped"), Some(16.0));
        for broken in ["", ":", "eth0:", "Tcp: \n", "cpu", "Tcp: RetransSegs\nTcp:", "\u{0}:\u{0}"] {
            let all = [
                parse_interfaces(broken),
                parse_protocols(broken),
                parse_stat(broken, 100.0),
                parse_memory(broken).into_iter().collect(),
            ];
            assert!(all.concat().is_empty(), "{broken:?}");
        }
    }
}

//! Runs of random valid plans end, and their counts are consistent.

use crate::common::run_with;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

/// Draws a part of a plan's text from a few options, so that combinations occur.
fn one_of(of: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(of)
}

const LINKS: &[&str] = &[
    "rate = 10 Mb/s",
    "rate = 100 kb/s, delay = 20 ms",
    "rate = 100 Mb/s, loss = 0.05",
    "rate = 10 Mb/s, duplicate = 0.1, reorder = 0.1",
    "rate = 10 Mb/s, corrupt = 0.05, mtu = 68 B",
    "rate = 155 Mb/s, medium = atm, mtu = 9180 B",
    "rate = 155 Mb/s, medium = atm, loss = 0.001, cells = each",
    "rate = 2 Mb/s, medium = ppp, pacing = 1 Mb/s",
    "rate = 10 Mb/s, loss = 1",
    "rate = 1 Mb/s, queue = codel (target = 1 ms, interval = 10 ms, ecn)",
    "rate = 1 Mb/s, queue = fq-codel, shape = 500 kb/s : 65535 B",
    "rate = 1 Mb/s, queue = pie (target = 1 ms), loss = 0.02",
    "rate = 1 Mb/s, queue = drr (weights = EF (2)), police = 800 kb/s : 65535 B",
];
const COSTS: &[&str] = &[
    "cpus = 1",
    "cpu_packet = 200 us, interrupt = 100 us, rx_buffer = 10 packets",
    "cpu_packet = 50 us, cpu_byte = 20 ns, cpus = 2, send_queue = 1 packets",
    "dma_byte = 10 ns, crc_byte = 5 ns, sar_cell = 1 us",
];
const PROTOCOLS: &[&str] = &[
    "udp",
    "tcp (window = 16 kB)",
    "tcp",
    "multicast (group = 239.1.1.1)",
    "llc (priority = 6)",
    "llc (type = 3, sap = 6, priority = 2, timeout = 5 ms, crc = on, limit = 200 ms)",
];
const TESTS: &[&str] = &[
    "full(messagesize = 1000)",
    "full(messagesize = 20 kB)",
    "cbr(messagesize = 5000, period = 5 ms)",
    "poisson(messagesize = uniform(50, 3000), rate = 200 /s)",
    "cbr(messagesize = 100:5, period = 10 ms)",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(1996), ..ProptestConfig::default() })]

    #[test]
    fn runs_end_and_counts_are_consistent(
        hub in one_of(&["switch m (buffer = 20 packets)", "switch m (buffer = 200 cells, latency = 5 us)", "hub m", "ring m"]),
        links in proptest::collection::vec(one_of(LINKS), 4),
        costs in proptest::collection::vec(one_of(COSTS), 4),
        flows in proptest::collection::vec((0usize..4, 1usize..4, one_of(PROTOCOLS), one_of(TESTS)), 1..4),
        seed in 0u64..1000,
    ) {
        let shared = !hub.starts_with("switch");
        let hosts: String = costs.iter().enumerate().map(|(i, c)| format!("host h{i} ({c}); ")).collect();
        let lines: String = links.iter().enumerate().map(|(i, l)| match shared {
            true => format!("link h{i} - m; "),
            false => format!("link h{i} - m ({l}); "),
        }).collect();
        let connections: String = flows.iter().enumerate().map(|(i, (from, by, protocol, test))| {
            let to = (from + by) % 4;
            format!("connection c{i} {{ xmt = h{from}; rcv = h{to}; protocol = {protocol}; test = {test}; duration = 300 ms; }} ")
        }).collect();
        let text = format!("experiment \"t\" {{ network {{ {hosts} {hub}; {lines} }} parallel {{ {connections} }} }}");
        let parsed = trunkline_experiment::parse(&trunkline_experiment::Source { name: "t", text: &text, folder: None });
        // Unsupported plans, such as LLC over ATM, are refused.
        prop_assume!(parsed.plan.is_some_and(|plan| Sim::default().refuse(&plan).is_empty()));
        let record = run_with(&text, seed);
        for c in &record.connections {
            let details = format!("{text}\n{}: {:?}", c.name, c.error);
            prop_assert!(c.messages_received + c.lost + c.corrupted >= c.messages_sent, "{}", details);
            prop_assert!(c.messages_received <= c.messages_sent, "{}", details);
            // TCP over a link that loses all packets times out; no other run ends early.
            let may_time_out = text.contains("loss = 1)") || text.contains("medium = atm");
            prop_assert!(!c.partial || may_time_out, "{}", details);
            prop_assert!(c.transport != "tcp" || c.lost == 0 || c.partial, "{}", details);
        }
        for (host, costs) in record.hosts.iter().zip(&costs) {
            let cpus = if costs.contains("cpus = 2") { 2.0 } else { 1.0 };
            prop_assert!(host.cpu_percent <= 100.0 * cpus + 0.1, "{text}\n{}: {} %", host.name, host.cpu_percent);
        }
        for link in &record.links {
            prop_assert!(link.utilization <= 1.01, "{text}\n{}: {}", link.name, link.utilization);
        }
    }
}

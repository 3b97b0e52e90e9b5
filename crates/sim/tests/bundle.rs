//! The bundle converter in the simulator: delivery and delays of messages.

use crate::bodies::bundle::SEGMENTS;
use crate::common::{connection, host, near, plan, run, run_with};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trunkline_record::Record;
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

/// All nodes in one segment.
const ONE: &str = "host h1, h2, h3; host router, listener (wide_area = on);
    converter c1a (role = level1, number = 1); converter c1b (role = level1, number = 2); converter c2 (role = central);
    hub lan (rate = 100 Mb/s);
    link router - lan; link listener - lan; link c1a - lan; link c1b - lan; link c2 - lan; link h1 - lan; link h2 - lan;
    link h3 - lan;";

fn experiment(network: &str, connections: &str) -> String {
    format!("experiment \"t\" {{ network {{ {network} }} parallel {{ {connections} }} }}")
}

/// Returns a connection with a Poisson process of messages.
fn flow(name: &str, from: &str, to: &str, options: &str, rate: u32) -> String {
    format!(
        "connection {name} {{ xmt = {from}; rcv = {to}; protocol = bundle ({options});
           test = poisson (messagesize = 150, rate = {rate} /s); duration = 2 s; }}"
    )
}

fn refusals(text: &str) -> Vec<String> {
    Sim::default().refuse(&plan(text)).into_iter().map(|refusal| refusal.text).collect()
}

fn count(record: &Record, name: &str, counter: &str) -> u64 {
    let interfaces = &host(record, name).interfaces;
    *interfaces.get(counter).unwrap_or_else(|| panic!("{name} has no {counter}: {interfaces:?}"))
}

/// The same test body as for the live backend.
#[test]
fn subscribers_receive_messages_and_senders_do_not() {
    for network in [SEGMENTS, ONE] {
        for (network, is_format2) in
            [(network.to_owned(), false), (crate::bodies::bundle::with_format2(network), true)]
        {
            let record = run(&crate::bodies::bundle::text(&network, 2));
            crate::bodies::bundle::check(&record, is_format2);
            // No converter is too slow to announce itself.
            assert_eq!(count(&record, "c1a", "bundle.joins") + count(&record, "c1b", "bundle.joins"), 3);
        }
    }
}

#[test]
fn a_message_waits_for_two_timer_ticks() {
    let record = run(&experiment(SEGMENTS, &flow("wide", "router", "h1, h2", "address = 0", 500)));
    // A message arrives at level 1 at a random phase of its timer, and its bundle waits for the central converter's timer.
    let delay = connection(&record, "wide").delay_us.as_ref().unwrap();
    assert!((5_000.0..5_500.0).contains(&delay.min) && (9_900.0..10_500.0).contains(&delay.max), "{delay:?}");
    near(delay.mean, 7_600.0, 0.03);
    // Bundles are sent only if there are messages.
    for name in ["c1a", "c2"] {
        let sent = count(&record, name, "bundle.bundles_sent");
        assert!((360..=405).contains(&sent), "{name}: {sent}");
    }
    let adaptive = SEGMENTS
        .replace("role = level1", "timers = adaptive, role = level1")
        .replace("role = central", "timers = adaptive, role = central");
    let record = run(&experiment(&adaptive, &flow("wide", "router", "h1, h2", "address = 0", 500)));
    let delay = connection(&record, "wide").delay_us.as_ref().unwrap();
    assert!(delay.p50 < 200.0 && delay.max < 1_500.0, "{delay:?}");
}

/// Deadlines of both priorities apply in the host and in the central converter. Bundle format 1 does not transmit the
/// deadline of a message to the next converter.
#[test]
fn messages_wait_until_their_deadlines() {
    let delay = |format: &str, deadlines: &str, options: &str| {
        // Behind a switch no station waits for packets of others.
        let network = SEGMENTS
            .replace("switch wan; hub lan (rate = 100 Mb/s);", "switch wan, lan;")
            .replace("- lan;", "- lan (rate = 100 Mb/s);")
            .replace("(role", &format!("(format = {format}, role"))
            .replace("role = central", &format!("timers = processor, {deadlines}, role = central"));
        let flow = format!(
            "connection x {{ xmt = h1; rcv = h2; protocol = bundle ({options});
               test = cbr (messagesize = 100, period = 100 ms); duration = 1 s; }}"
        );
        let record = run(&experiment(&network, &flow));
        let x = connection(&record, "x");
        assert_eq!((x.messages_sent, x.lost), (10, 0));
        x.delay_us.as_ref().unwrap().min
    };
    let (high, odd) = ("address = 4, priority = high", "address = 5");
    for (format, deadlines, options, ms) in [
        ("classic", "deadline = 7 ms", "address = 4", 14.0),
        ("classic", "capacity = none", "address = 4", 40.0),
        ("classic", "capacity = none", odd, 0.0),
        ("classic", "priority_deadline = 3 ms", odd, 6.0),
        ("classic", "priority_deadline = 3 ms", &format!("{odd}, within = 1 ms"), 4.0),
        ("wide", "deadline = 7 ms", "address = 70000", 14.0),
        ("wide", "priority_deadline = 3 ms", high, 6.0),
        ("wide", "priority_deadline = 3 ms", &format!("{high}, within = 1 ms"), 2.0),
    ] {
        let without_deadline = delay(format, "deadline = 0 s, priority_deadline = 0 s", options);
        let waiting_ms = (delay(format, deadlines, options) - without_deadline) / 1_000.0;
        // The precision of delays in the record.
        assert!((waiting_ms - ms).abs() < 0.02, "{format}, {deadlines}, {options}: {waiting_ms} ms");
    }
}

/// Bundle format 2: many hosts, all addresses, and datagrams without fragmentation.
#[test]
fn format2_has_more_hosts_and_addresses_and_avoids_fragmentation() {
    let hosts: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let links: String = hosts.iter().map(|name| format!("link {name} - lan; ")).collect();
    let network = format!(
        "host {}, router; converter c1 (role = level1, format = wide, number = 60000, timers = adaptive);
         converter c2 (role = central, format = wide, timers = adaptive);
         switch lan; link router - c1 (rate = 100 Mb/s, mtu = 700 B); link c1 - lan (rate = 100 Mb/s);
         link c2 - lan (rate = 100 Mb/s); {}",
        hosts.join(", "),
        links.replace(" - lan", " - lan (rate = 100 Mb/s)")
    );
    let flows = [
        flow("far", "router", &hosts.join(", "), "address = 4000000000", 200),
        flow("near", "h19", &hosts[..19].join(", "), "address = 65536, priority = high", 100),
    ];
    let record = run(&experiment(&network, &flows.concat()));
    for (name, copies) in [("far", 20), ("near", 19)] {
        let c = connection(&record, name);
        assert!(c.messages_sent > 100 && c.lost == 0, "{name}: {} of {}", c.lost, c.messages_sent);
        assert_eq!((c.messages_received, c.duplicated, c.reordered), (copies * c.messages_sent, 0, 0));
    }
    // Each bundle is one packet.
    let sent = count(&record, "c1", "bundle.bundles_sent") + count(&record, "c1", "bundle.sent");
    let frames = count(&record, "c1", "if0.tx_frames") + count(&record, "c1", "if1.tx_frames");
    assert_eq!(frames, sent);
}

#[test]
fn an_address_in_a_joined_group_needs_no_join() {
    let joins = |addresses: &[u32]| {
        let flows = addresses
            .iter()
            .map(|n| flow(&format!("f{n}"), "router", "h1, h2", &format!("address = {n}"), 50));
        let record = run(&experiment(SEGMENTS, &flows.collect::<String>()));
        assert!(record.connections.iter().all(|c| c.lost == 0 && c.messages_received > 0));
        // The switch of the wide area does not forward groups that a level 1 converter has not joined.
        let received = ["c1a", "c1b"].map(|name| {
            assert_eq!(count(&record, name, "unwanted"), 0);
            count(&record, name, "bundle.heard")
        });
        let sent: u64 = record.connections.iter().map(|c| c.messages_sent).sum();
        assert_eq!(received[0] + received[1], sent);
        ["c1a", "c1b"].map(|name| count(&record, name, "bundle.joins"))
    };
    assert_eq!(joins(&[0, 1, 2, 31]), [1, 0]);
    assert_eq!(joins(&[0, 32]), [1, 1], "the least loaded joins");
    assert_eq!(joins(&[0, 32, 64, 70, 96]), [2, 2]);
}

#[test]
fn long_messages_are_fragmented() {
    let wide = "connection w { xmt = router; rcv = h1, h2; protocol = bundle (address = 0);
        test = cbr (messagesize = 5000:3, period = 20 ms); duration = 1 s; }";
    let local = "connection l { xmt = h1; rcv = h3, listener; protocol = bundle (address = 64);
        test = cbr (messagesize = 60000, period = 50 ms); duration = 1 s; }";
    let record = run(&experiment(SEGMENTS, &[wide, local].concat()));
    for (name, messages) in [("w", 150), ("l", 20)] {
        let c = connection(&record, name);
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (messages, 2 * messages, 0), "{name}");
    }
    // 60,000 octets are 41 fragments, from h1 and from the central converter to h3.
    assert!(count(&record, "h1", "if0.tx_frames") >= 20 * 41);
    assert!(count(&record, "h3", "received") >= 20 * 41);
}

/// Senders in the wide area and at hosts count messages that their queues refuse; no other messages are lost.
#[test]
fn refused_messages_are_counted() {
    let burst = |name: &str, from: &str, burst: &str| {
        format!(
            "connection {name} {{ xmt = {from}; rcv = h2; protocol = bundle (address = 0);
               test = cbr (messagesize = {burst}, period = 5 s); duration = 1 s; }}"
        )
    };
    let record = run(&experiment(SEGMENTS, &burst("w", "router", "100:6000")));
    let w = connection(&record, "w");
    // 4,096 messages wait, in addition to those that the interface has taken.
    assert!((1_800.0..=1_904.0).contains(&w.counters["bundle_full"]), "{:?}", w.counters);
    assert_eq!((w.messages_sent, w.lost as f64), (6_000, w.counters["bundle_full"]));
    let record = run(&experiment(SEGMENTS, &burst("l", "h1", "60000:100")));
    let l = connection(&record, "l");
    assert_eq!((l.messages_sent, l.counters["bundle_full"]), (100, 35.0), "65 bundles of one message each");
    assert!(l.lost >= 35, "{}", l.lost);
}

/// At twice the capacity of the hosts' medium all priority messages arrive, and drops of others are counted.
#[test]
fn priority_messages_survive_congestion() {
    let network = SEGMENTS.replace("role = central", "role = central, capacity = 9.6 Mb/s");
    let flows = [
        flow("ordinary", "router", "h1, h2", "address = 0", 16_000),
        flow("urgent", "router", "h1, h2", "address = 65", 400),
        flow("local", "h3", "h1", "address = 128", 400),
    ];
    let record = run(&experiment(&network, &flows.concat()));
    let urgent = connection(&record, "urgent");
    assert_eq!((urgent.messages_received, urgent.lost), (2 * urgent.messages_sent, 0));
    let (ordinary, local) = (connection(&record, "ordinary"), connection(&record, "local"));
    assert!(ordinary.lost > ordinary.messages_sent / 2, "{}", ordinary.lost);
    let refused = local.counters["bundle_congested"] as u64;
    assert!(refused > 0 && local.counters["bundle_full"] == 0.0);
    let dropped = |name| count(&record, name, "bundle.dropped.in.congestion");
    let all = dropped("c1a") + dropped("c1b") + dropped("c2") + refused;
    // A dropped ordinary message is lost at both hosts, a local one at one host.
    assert_eq!(ordinary.lost / 2 + local.lost, all);
    assert_eq!(count(&record, "c2", "bundle.dropped.in.priority"), 0);
}

/// Draws a part of a plan's text from a few options.
fn one(of: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(of)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(1997), ..ProptestConfig::default() })]

    /// For all links, hosts and converters a run ends, and each message has arrived or is lost.
    #[test]
    fn runs_end_and_counts_are_consistent(
        lines in proptest::collection::vec(one(&[
            "rate = 10 Mb/s", "rate = 100 Mb/s, loss = 0.05", "rate = 10 Mb/s, duplicate = 0.1, reorder = 0.1",
            "rate = 10 Mb/s, corrupt = 0.05, mtu = 300 B", "rate = 2 Mb/s, medium = ppp, delay = 3 ms",
        ]), 6),
        costs in one(&["cpus = 1", "cpu_packet = 200 us, interrupt = 50 us, rx_buffer = 10 packets, send_queue = 2 packets"]),
        timers in one(&["classic", "adaptive"]),
        capacity in one(&["none", "1 Mb/s", "96 Mb/s"]),
        tests in proptest::collection::vec(one(&[
            "poisson (messagesize = uniform(40, 3000), rate = 300 /s)", "cbr (messagesize = 20000, period = 20 ms)",
            "burst (messagesize = 100:50, period = 30 ms)", "poisson (messagesize = 150, rate = 3000 /s)",
        ]), 3),
        addresses in proptest::collection::vec(0u32..80, 3),
        seed in 0u64..1000,
    ) {
        let nodes = ["h1", "h2", "router", "c1a", "c1b", "c2"];
        let links: String = nodes.iter().zip(&lines).map(|(name, line)| {
            let side = if ["router", "c1a", "c1b"].contains(name) { "wan" } else { "lan" };
            format!("link {name} - {side} ({line}); ")
        }).collect();
        let network = format!(
            "host h1, h2, router ({costs}); converter c1a (role = level1, number = 1, timers = {timers}, {costs});
             converter c1b (role = level1, number = 9, timers = {timers}); switch wan, lan (buffer = 20 packets);
             converter c2 (role = central, timers = {timers}, capacity = {capacity}, {costs});
             {links} link c1a - lan (rate = 10 Mb/s); link c1b - lan (rate = 10 Mb/s);"
        );
        let ends = [("router", "h1, h2"), ("h1", "h2, router"), ("h2", "h1")];
        let flows: String = ends.iter().zip(tests).zip(&addresses).enumerate().map(|(n, (((from, to), test), address))| {
            format!("connection c{n} {{ xmt = {from}; rcv = {to}; protocol = bundle (address = {address}); test = {test}; duration = 300 ms; }} ")
        }).collect();
        let text = experiment(&network, &flows);
        let record = run_with(&text, seed);
        for c in &record.connections {
            let details = format!("{text}\n{}: {} sent, {} received, {} lost", c.name, c.messages_sent, c.messages_received, c.lost);
            prop_assert!(c.messages_sent > 0 && !c.partial, "{}", details);
            prop_assert_eq!(c.messages_received + c.lost, c.messages_sent * c.to.len() as u64, "{}", details);
        }
    }
}

/// If subscriptions are lost, senders wait for one second at most, and their messages are lost.
#[test]
fn a_run_ends_if_subscriptions_are_lost() {
    let network = SEGMENTS
        .replace("link c2 - lan;", "switch s; link s - lan; link c2 - s (rate = 100 Mb/s, loss = 1);");
    let record = run(&experiment(&network, &flow("wide", "router", "h1, h2", "address = 0", 100)));
    let wide = connection(&record, "wide");
    assert_eq!((wide.messages_received, wide.lost, wide.partial), (0, 2 * wide.messages_sent, false));
    assert!(wide.messages_sent > 100 && record.duration_s > 2.9, "{}", record.duration_s);
}

#[test]
fn converters_have_the_costs_of_hosts() {
    let costs = "cpu_packet = 100 us, cpu_byte = 100 ns";
    let network = SEGMENTS
        .replace("converter c1b (", &format!("converter c1b ({costs}, "))
        .replace("converter c1a (", &format!("converter c1a ({costs}, "))
        .replace("host h1, h2, h3, router", &format!("host h1, h2 ({costs}); host h3, router"));
    let record = run(&experiment(&network, &flow("wide", "router", "h1, h2", "address = 0", 1_000)));
    let share = |packets: f64, octets: f64| (packets * 100e-6 + octets * 100e-9) * 100.0;
    // Per second 1,000 messages of 152 octets in and 200 bundles out, with headers of 28 octets; each message has an end mark
    // of two octets.
    let c1 = share(1_000.0 + 199.0, 1_000.0 * (152.0 + 28.0) + 1_000.0 * 154.0 + 199.0 * 31.0);
    near(host(&record, "c1a").cpu_percent, c1, 0.03);
    assert!(host(&record, "c1b").cpu_percent < 0.1);
    near(host(&record, "h1").cpu_percent, share(199.0, 1_000.0 * 154.0 + 199.0 * 29.0), 0.03);
}

#[test]
fn runs_with_the_same_seed_are_equal() {
    let flows = [
        flow("wide", "router", "h1, h2", "address = 0", 500),
        flow("local", "h1", "h2, h3", "address = 32", 500),
    ];
    let text = experiment(
        &SEGMENTS
            .replace("rate = 100", "loss = 0.01, rate = 100")
            .replace("hub lan (loss = 0.01, ", "hub lan ("),
        &flows.concat(),
    );
    let json = |seed| serde_json::to_string(&run_with(&text, seed)).unwrap();
    assert_eq!(json(7), json(7));
    assert_ne!(json(7), json(8));
}

#[test]
fn unsupported_messages_are_refused() {
    let with = |test: &str| {
        let connection = format!(
            "connection x {{ xmt = router; rcv = h1; protocol = bundle (address = 0); test = {test}; }}"
        );
        refusals(&experiment(SEGMENTS, &connection))
    };
    assert_eq!(
        with("poisson (messagesize = 65501, rate = 1 /s)"),
        ["x: a message of 65501 B does not fit into a bundle: the maximum is 65500 B"]
    );
    assert_eq!(with("poisson (messagesize = 65500, rate = 1 /s)"), [""; 0]);
    let one = flow("x", "router", "h1", "address = 70000", 1);
    let wide = crate::bodies::bundle::with_format2(SEGMENTS);
    assert_eq!(refusals(&experiment(&wide, &one)), [""; 0]);
    let long = "connection x { xmt = router; rcv = h1; protocol = bundle (address = 0);
        test = cbr (messagesize = 1405, period = 1 s); }";
    assert_eq!(
        refusals(&experiment(&wide, long)),
        ["x: a message of 1405 B does not fit into a bundle: the maximum is 1404 B"]
    );
    let atm = SEGMENTS.replace("link router - wan (", "link router - wan (medium = atm, ");
    let one = flow("x", "router", "h1", "address = 7", 1);
    assert_eq!(refusals(&experiment(&atm, &one)), ["x: bundles do not cross ATM: link router-wan"]);
}

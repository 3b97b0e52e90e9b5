//! Results of simulations compared with calculated values.

use crate::common::{connection, experiment, host, link, near, run};
use trunkline_record::schema::Connection;

#[test]
fn datagram_delay_is_as_calculated() {
    // 1000 bytes of message, 28 of UDP and IP, 38 of Ethernet: 1066 bytes, twice, and two delays.
    let network = "host a, b; switch s; link a - s (rate = 10 Mb/s, delay = 1 ms); link s - b (rate = 5 Mb/s, delay = 2 ms);";
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr(messagesize = 1000, period = 10 ms); messages = 100;",
    ));
    let x = connection(&record, "x");
    assert_eq!((x.messages_sent, x.messages_received, x.lost, x.partial), (100, 100, 0, false));
    let expected = 1066.0 * 8.0 / 10.0 + 1066.0 * 8.0 / 5.0 + 3000.0;
    near(x.delay_us.as_ref().unwrap().p50, expected, 1e-3);
    near(x.gap_us.as_ref().unwrap().p50, 10_000.0, 1e-3);
    near(x.received_bps, 800e3, 0.01);
    near(link(&record, "s-b").utilization, 1066.0 * 8.0 / 5e6 / 10e-3, 0.02);
    assert_eq!(x.requested.rate_error, Some(0.0));
}

#[test]
fn a_bottleneck_drops_the_excess() {
    let network = "host a, b; switch s (buffer = 20 packets); link a - s (rate = 100 Mb/s); link s - b (rate = 10 Mb/s);";
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr(messagesize = 1472, period = 600 us); duration = 2 s;",
    ));
    let x = connection(&record, "x");
    // 10 Mb/s carry 1472 of 1538 bytes.
    near(x.received_bps, 10e6 * 1472.0 / 1538.0, 0.01);
    assert_eq!(x.lost, link(&record, "s-b").dropped);
    assert_eq!(x.messages_received + x.lost, x.messages_sent);
    assert_eq!(link(&record, "s-b").queue_max, 20 * 1500);
    assert!(link(&record, "s-b").utilization > 0.99);
}

#[test]
fn full_speed_fills_the_link_without_loss() {
    let network = "host a, b; link a - b (rate = 10 Mb/s, delay = 5 ms);";
    for (test, message, wire) in
        [("messagesize = 1472", 1472.0, 1538.0), ("messagesize = 8192", 8192.0, 8192.0 + 8.0 + 6.0 * 58.0)]
    {
        let record =
            run(&experiment(network, &format!("protocol = udp; test = full({test}); duration = 2 s;")));
        let x = connection(&record, "x");
        assert_eq!(x.lost, 0);
        near(x.received_bps, 10e6 * message / wire, 0.02);
    }
}

#[test]
fn a_lost_fragment_loses_its_message() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, loss = 0.05);";
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr(messagesize = 8192, period = 2 ms); messages = 2000;",
    ));
    let x = connection(&record, "x");
    // Six fragments must all arrive.
    near(x.messages_received as f64 / 2000.0, 0.95f64.powi(6), 0.05);
}

#[test]
fn tcp_is_limited_by_its_window() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, delay = 20 ms);";
    let record = run(&experiment(
        network,
        "protocol = tcp (window = 32 KiB); test = full(messagesize = 64 KiB); duration = 20 s;",
    ));
    let x = connection(&record, "x");
    near(x.received_bps, 32768.0 * 8.0 / 0.04, 0.05);
    assert_eq!((x.lost, x.counters["retransmissions"]), (0, 0.0));
}

#[test]
fn tcp_fills_a_link() {
    let network = "host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms);";
    let record = run(&experiment(
        network,
        "protocol = tcp (window = 64 KiB); test = full(messagesize = 64 KiB); duration = 10 s;",
    ));
    // 1460 bytes of 1538.
    near(connection(&record, "x").received_bps, 10e6 * 1460.0 / 1538.0, 0.02);
}

#[test]
fn requests_measure_round_trips() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, delay = 10 ms);";
    for protocol in ["udp", "tcp"] {
        let record = run(&experiment(
            network,
            &format!("protocol = {protocol}; test = request(request = 64, response = 64); messages = 50;"),
        ));
        let x = connection(&record, "x");
        assert_eq!((x.messages_received, x.counters["answers"]), (50, 50.0), "{protocol}");
        near(x.rtt_us.as_ref().unwrap().p50, 20_000.0, 0.01);
    }
}

#[test]
fn a_group_reaches_its_members_only() {
    let text = "experiment \"t\" {
        network { host a, b, c, d; switch s; link a - s (rate = 10 Mb/s); link b - s (rate = 10 Mb/s);
                  link c - s (rate = 10 Mb/s); link d - s (rate = 10 Mb/s); }
        connection x { xmt = a; rcv = b, c; protocol = multicast (group = 239.1.1.1);
                       test = cbr(messagesize = 500, period = 10 ms); messages = 100; } }";
    let record = run(text);
    let x = connection(&record, "x");
    let received: Vec<u64> = x.receivers.iter().map(|r| r.messages_received).collect();
    assert_eq!((received, x.lost), (vec![100, 100], 0));
    assert_eq!(link(&record, "d-s").utilization, 0.0);
}

#[test]
fn a_hub_is_shared_and_a_ring_passes_its_token() {
    for (shared, least, most) in [("hub m", 8.0e6, 9.7e6), ("ring m", 9.0e6, 9.9e6)] {
        let text = format!("experiment \"t\" {{
            network {{ host a, b, c; {shared}; link a - m; link b - m; link c - m; }}
            parallel {{
              connection x {{ xmt = a; rcv = c; protocol = udp; test = full(messagesize = 1400); duration = 2 s; }}
              connection y {{ xmt = b; rcv = c; protocol = udp; test = full(messagesize = 1400); duration = 2 s; }}
            }} }}");
        let record = run(&text);
        let sum = connection(&record, "x").received_bps + connection(&record, "y").received_bps;
        assert!(least < sum && sum < most, "{shared}: {sum}");
    }
}

#[test]
fn a_slow_host_is_the_bottleneck() {
    let network = "host a; host b (cpu_packet = 500 us); link a - b (rate = 100 Mb/s);";
    let record = run(&experiment(
        network,
        "protocol = tcp (window = 64 KiB); test = full(messagesize = 64 KiB); duration = 5 s;",
    ));
    let x = connection(&record, "x");
    // Each segment takes 500 us of its processor, and so does each acknowledgement, one for two segments.
    near(x.received_bps, 1460.0 * 8.0 / 750e-6, 0.05);
    assert!(host(&record, "b").cpu_percent > 95.0 && host(&record, "a").cpu_percent == 0.0);
}

#[test]
fn overload_causes_receive_livelock() {
    let goodput = |period: u32| {
        let network = "host a; host b (cpu_packet = 100 us, interrupt = 80 us, rx_buffer = 20 packets); link a - b (rate = 100 Mb/s);";
        let test =
            format!("protocol = udp; test = cbr(messagesize = 200, period = {period} us); duration = 1 s;");
        connection(&run(&experiment(network, &test)), "x").received_bps
    };
    // A packet takes 180 us. At higher rates interrupts take the processor.
    let (light, heavy, flood) = (goodput(200), goodput(120), goodput(85));
    near(light, 200.0 * 8.0 / 200e-6, 0.02);
    assert!(heavy < light && flood < heavy / 2.0, "{light} {heavy} {flood}");
}

#[test]
fn a_disk_limits_a_file() {
    let folder = std::env::temp_dir().join(format!("trunkline-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("data.bin"), vec![7; 1_000_000]).unwrap();
    let path = folder.join("data.bin").display().to_string();
    let network = "host a; host b (disk = 8 Mb/s); link a - b (rate = 100 Mb/s);";
    let record = run(&experiment(
        network,
        &format!("protocol = tcp (window = 256 KiB); test = file(path = \"{path}\");"),
    ));
    std::fs::remove_dir_all(&folder).unwrap();
    let x = connection(&record, "x");
    assert_eq!((x.partial, x.lost), (false, 0), "{:?}", record.problems);
    near(x.received_bps, 8e6, 0.1);
}

#[test]
fn schedules_run_in_order() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 10 Mb/s); }
        repeat 3 every 5 s { serial {
            connection x { xmt = a; rcv = b; protocol = udp; test = cbr(messagesize = 100, period = 10 ms); duration = 1 s; }
            connection y { xmt = b; rcv = a; protocol = tcp; test = full(messagesize = 1000); bytes = 10 kB; } } } }";
    let record = run(text);
    let starts = |name| connection(&record, name).repetitions.iter().map(|r| r.start_s).collect::<Vec<_>>();
    assert_eq!(starts("x"), [0.0, 5.0, 10.0]);
    let y = starts("y");
    assert!(y.len() == 3 && y[0] > 0.98 && y[0] < 2.0 && y[1] > 5.98, "{y:?}");
    assert_eq!(connection(&record, "y").messages_received, 30);
}

#[test]
fn bsd_timers_reduce_throughput_by_a_factor_of_ten() {
    // Section 2.4.3 of the AAI report: 24 Mb/s without the BSD timers, 1.2 measured.
    let with = |timers: &str| {
        let network = "host a, b (cpu_packet = 250 us, sar_cell = 0.2 us); switch s (buffer = 256 cells, latency = 4 us);
            link a - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B); link s - b (medium = atm, rate = 100 Mb/s, mtu = 9180 B);";
        let test = format!(
            "protocol = tcp (window = 128 KiB, timers = {timers}); test = full(messagesize = 64 KiB); duration = 10 s;"
        );
        connection(&run(&experiment(network, &test)), "x").received_bps
    };
    let (bsd, fine) = (with("bsd"), with("fine"));
    assert!(fine > 10.0 * bsd, "{fine} is not far above {bsd}");
}

#[test]
fn messages_in_flight_are_not_lost() {
    // Twenty messages of a thousand bytes take three minutes at 1 kb/s, longer than the silence that ends a run.
    let network = "host a, b; link a - b (rate = 1 kb/s);";
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr(messagesize = 1000, period = 1 ms); messages = 20;",
    ));
    assert_eq!((connection(&record, "x").messages_received, connection(&record, "x").lost), (20, 0));
    let network = "host a; host b (cpu_packet = 2 s); link a - b (rate = 1 Mb/s);";
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr(messagesize = 1000, period = 10 ms); messages = 5;",
    ));
    assert_eq!(connection(&record, "x").lost, 0);
    near(host(&record, "b").cpu_percent, 100.0, 0.01);
}

#[test]
fn cells_of_flows_do_not_mix() {
    let text = "experiment \"t\" { network { host a, b, c, d; switch s (buffer = 100000 cells);
        link a - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B); link b - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B);
        link c - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B); link d - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B); }
      parallel {
        connection x { xmt = a; rcv = d; protocol = udp; test = cbr(messagesize = 9000, period = 2 ms); duration = 1 s; }
        connection y { xmt = b; rcv = d; protocol = tcp (window = 64 KiB); test = full(messagesize = 8 KiB); duration = 1 s; }
        connection z { xmt = c; rcv = d; protocol = udp; test = cbr(messagesize = 5000, period = 1 ms); duration = 1 s; }
      } }";
    let record = run(text);
    for name in ["x", "y", "z"] {
        let c = connection(&record, name);
        assert_eq!((c.lost, c.counters.get("timeouts").copied().unwrap_or_default()), (0, 0.0), "{name}");
    }
}

#[test]
fn connections_to_one_group_are_separate() {
    let text = "experiment \"t\" { network { host a, b, c; switch s; link a - s (rate = 10 Mb/s); link b - s (rate = 10 Mb/s);
          link c - s (rate = 10 Mb/s); }
        parallel {
          connection x { xmt = a; rcv = b; protocol = multicast (group = 239.1.1.1); test = cbr(messagesize = 100, period = 10 ms); messages = 50; }
          connection y { xmt = a; rcv = c; protocol = multicast (group = 239.1.1.1); test = cbr(messagesize = 100, period = 10 ms); messages = 50; }
        } }";
    let record = run(text);
    for name in ["x", "y"] {
        let c = connection(&record, name);
        assert_eq!((c.messages_received, c.duplicated, c.lost), (50, 0, 0), "{name}");
    }
}

#[test]
fn the_end_of_a_file_ends_the_run() {
    let folder = std::env::temp_dir().join(format!("trunkline-file-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("small.dat"), vec![7; 1000]).unwrap();
    let path = folder.join("small.dat").display().to_string();
    let network = "host a, b; link a - b (rate = 1 Mb/s);";
    let record = run(&experiment(
        network,
        &format!("protocol = tcp; test = file(path = \"{path}\"); duration = 2 s;"),
    ));
    std::fs::remove_dir_all(&folder).unwrap();
    let x = connection(&record, "x");
    assert_eq!((x.messages_received, x.counters["file_bytes"], x.partial), (1, 1000.0, false));
    assert!(x.sent_bps > 0.0);
}

#[test]
fn a_medium_with_one_station_is_idle() {
    for shared in ["hub m", "ring m"] {
        let text = format!("experiment \"t\" {{ network {{ host a, b, lonely; {shared}; link lonely - m; link a - b (rate = 1 Mb/s); }}
            connection x {{ xmt = a; rcv = b; protocol = udp; test = cbr(messagesize = 100, period = 10 ms); messages = 10; }} }}");
        assert_eq!(connection(&run(&text), "x").lost, 0);
    }
}

#[test]
fn guaranteed_delivery_fills_a_lossy_link() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, delay = 20 ms, loss = 0.01);";
    let text = "protocol = guaranteed (mode = selective, window = 4096, congestion = paced); test = full (messagesize = 8192); duration = 10 s;";
    let x = connection(&run(&experiment(network, text)), "x").clone();
    assert_eq!((x.messages_received, x.partial), (x.messages_sent, false));
    // 1,460 of 1,538 bytes on the link are messages.
    assert!(x.received_bps > 0.9 * 100e6 * 1460.0 / 1538.0, "{}", x.received_bps);
}

#[test]
fn guaranteed_delivery_survives_all_impairments() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, delay = 20 ms, loss = 0.01, duplicate = 0.01, reorder = 0.01, corrupt = 0.01);";
    for (options, least) in
        [("mode = selective, window = 4096, congestion = paced", 0.8), ("mode = gobackn", 0.0)]
    {
        let text =
            format!("protocol = guaranteed ({options}); test = full (messagesize = 8192); duration = 5 s;");
        let x = connection(&run(&experiment(network, &text)), "x").clone();
        assert_eq!((x.lost, x.duplicated, x.reordered, x.corrupted), (0, 0, 0, 0), "{options}");
        assert_eq!((x.messages_received, x.partial), (x.messages_sent, false), "{options}");
        // 98 of 100 frames arrive intact.
        assert!(x.received_bps > least * 100e6 * 1460.0 / 1538.0 * 0.98, "{options}: {}", x.received_bps);
    }
}

#[test]
fn guaranteed_delivery_repairs_dropped_and_altered_frames() {
    let network = "host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms);";
    let text = "protocol = guaranteed (drop = 0.05, alter = 0.05, timeout = 50 ms); test = cbr (messagesize = 3000, period = 5 ms); messages = 500;";
    let x = connection(&run(&experiment(network, text)), "x").clone();
    assert_eq!((x.messages_sent, x.messages_received, x.partial), (500, 500, false));
    let count = |name: &str| x.counters[name];
    let frames = count("sender_frames_sent") + count("sender_acks_forced");
    near(count("sender_frames_eaten"), 0.05 * frames, 0.3);
    near(count("sender_checksums_altered"), 0.05 * frames, 0.3);
    // Altered are those that were not eaten, and all of them are noticed.
    assert_eq!(count("receiver_bad_checksums"), count("sender_checksums_altered"));
    assert_eq!(
        count("receiver_frames_received"),
        count("sender_frames_sent") - count("sender_frames_resent")
    );
    assert!(count("sender_frames_resent") > 0.0);
}

#[test]
fn forward_error_correction_saves_a_long_round_trip() {
    let network = "host a, b; link a - b (rate = 20 Mb/s, delay = 300 ms, loss = 0.01);";
    let [without, with] = ["off", "10+2"].map(|fec| {
        let protocol = format!("guaranteed (mode = selective, frame = 1472 B, window = 4096, fec = {fec})");
        let text = format!(
            "protocol = {protocol}; test = poisson (messagesize = 1000, rate = 200 /s); messages = 3000;"
        );
        connection(&run(&experiment(network, &text)), "x").clone()
    });
    let p99 = |x: &Connection| x.delay_us.as_ref().unwrap().p99;
    assert!(p99(&without) > 900e3 && p99(&with) < 600e3, "{} us, {} us", p99(&without), p99(&with));
    assert_eq!((with.messages_received, with.lost), (3000, 0));
    // Without FEC the record has no FEC counters.
    assert!(with.counters["receiver_frames_rebuilt"] > 10.0);
    assert!(without.counters.keys().all(|name| !name.contains("repairs") && !name.contains("rebuilt")));
}

#[test]
fn a_slow_link_has_no_extra_repair_frames() {
    // A frame takes 6 ms, more than a quarter of a round trip.
    let network = "host a, b; link a - b (rate = 2 Mb/s, delay = 0.5 ms);";
    let text = "protocol = guaranteed (mode = selective, frame = 1472 B, window = 64, congestion = paced, fec = 10); \
                test = full (messagesize = 8192); duration = 5 s;";
    let x = connection(&run(&experiment(network, text)), "x").clone();
    let (frames, repairs) = (x.counters["sender_frames_sent"], x.counters["sender_repairs_sent"]);
    assert!(frames > 700.0 && repairs < 0.1 * frames + 5.0, "{repairs} for {frames}");
}

#[test]
fn guaranteed_request_round_trip_is_as_calculated() {
    let network = "host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms);";
    let text = "protocol = guaranteed; test = request (request = 64, response = 500); messages = 100;";
    let x = connection(&run(&experiment(network, text)), "x").clone();
    // Message and its length, 12 bytes of frame, 3 of acknowledgement, 28 of UDP and IP, 38 of Ethernet.
    let wire = |message: f64, length: f64| (message + length + 12.0 + 3.0 + 28.0 + 38.0) * 8.0 / 10.0;
    near(x.rtt_us.as_ref().unwrap().p50, wire(64.0, 1.0) + wire(500.0, 2.0) + 2000.0, 1e-3);
    assert_eq!((x.counters["answers"], x.counters["sender_frames_resent"]), (100.0, 0.0));
}

/// Returns the mean of each modelled stage, and checks that the others are null.
fn stages(x: &trunkline_record::schema::Connection) -> [f64; 4] {
    let has = |d: &Option<trunkline_record::schema::Distribution>| d.is_some();
    let known: Vec<&str> =
        x.stages_us.iter().filter(|(_, d)| has(d)).map(|(name, _)| name.as_str()).collect();
    assert_eq!((known, x.stages_us.len()), (vec!["network", "queued", "receive", "send"], 11));
    ["queued", "send", "network", "receive"].map(|name| {
        let stage = x.stages_us[name].as_ref().unwrap();
        assert_eq!(stage.count, x.messages_received, "{name}");
        // The note names the stages that are null.
        assert!(!x.notes["stages"].split_once("not modelled: ").unwrap().1.contains(name));
        stage.mean
    })
}

#[test]
fn stages_of_a_message_are_as_calculated() {
    let network = "host a (cpu_packet = 100 us, cpu_byte = 1 us); host b (cpu_packet = 50 us, interrupt = 20 us); link a - b (rate = 10 Mb/s, delay = 1 ms);";
    let text = "protocol = guaranteed; test = cbr (messagesize = 1000, period = 20 ms); messages = 50;";
    let x = connection(&run(&experiment(network, text)), "x").clone();
    // Use medians: the first message follows the handshake and may find a busy processor.
    let p50 = |name: &str| x.stages_us[name].as_ref().unwrap().p50;
    // 12 bytes of frame, 28 of UDP and IP, 38 of Ethernet.
    near(p50("network"), 1000.0 + (1000.0 + 12.0 + 28.0 + 38.0) * 0.8, 1e-3);
    near(p50("send"), 100.0 + 1000.0 + 12.0 + 28.0, 1e-3);
    near(p50("receive"), 70.0, 1e-3);
    assert_eq!(p50("queued"), 0.0);
    near(stages(&x).iter().sum(), x.delay_us.unwrap().mean, 1e-3);
}

#[test]
fn stages_of_a_message_add_up_to_its_delay() {
    let hosts = "host a, b (cpu_packet = 10 us, interrupt = 5 us);";
    for (hosts, options) in [
        (hosts, "mode = gobackn, timeout = 50 ms"),
        (hosts, "mode = selective, window = 512"),
        ("host a, b;", "mode = stopandwait, timeout = 100 ms"),
    ] {
        let network = format!(
            "{hosts} switch s (buffer = 20 packets, latency = 5 us); link a - s (rate = 100 Mb/s, loss = 0.01, duplicate = 0.01, reorder = 0.01, corrupt = 0.01); link s - b (rate = 20 Mb/s, delay = 5 ms);"
        );
        let text =
            format!("protocol = guaranteed ({options}); test = full (messagesize = 8192); duration = 2 s;");
        let x = connection(&run(&experiment(&network, &text)), "x").clone();
        let stages = stages(&x);
        near(stages.iter().sum(), x.delay_us.unwrap().mean, 1e-3);
        assert!(stages[2] > 5000.0, "{options}: {stages:?}");
    }
}

#[test]
fn other_transports_have_no_stages() {
    let network = "host a, b; link a - b (rate = 10 Mb/s);";
    let x =
        connection(&run(&experiment(network, "protocol = tcp; test = full; bytes = 100 kB;")), "x").clone();
    assert!(x.stages_us.is_empty() && !x.notes.contains_key("stages"));
}

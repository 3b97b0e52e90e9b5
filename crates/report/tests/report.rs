//! Reports of complete and of hostile records.

use crate::sample;
use trunkline_record::Record;
use trunkline_record::schema::*;
use trunkline_report::{compare, html, junit, terminal, terminal::comparison};

/// Returns a line of a table with one blank between words.
fn columns(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_terminal_shows_a_run() {
    let want = "\
Three flows on one trunk  live  2026-03-14T09:26:53Z  10.4 s  seed 1996

Expectations
  pass  B-A.received_bps > 95 Mb/s: measured 100 Mb/s
  pass  B-A.delay_us.p99 < 200 us: measured 131 us
  fail  D-A.lost = 0: measured 3, expected 0

connection   transport   test                        offered       sent   received          lost   delay p50   delay p99   gap p50   rtt p50
──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
B-A          udp         cbr 1250 B every 100 us    100 Mb/s   100 Mb/s   100 Mb/s             0     24.2 us     59.6 us   98.6 us         –
C-A          tcp         full 64 kB                        –   7.6 Gb/s   7.6 Gb/s             0      151 us      387 us   55.3 us   77.3 us
D-A          udp         poisson 150 B at 1000 /s   1.2 Mb/s   1.2 Mb/s   1.2 Mb/s   3 (0.003 %)     27.3 us     74.8 us    692 us         –

Requested vs. actual
  B-A: rate -0.012 %, gap deviation 1.03 %, 14 late bursts
  D-A: rate +0.13 %, gap KS distance 0.71 % (p 0.68)
  D-A: gap exponential(1 ms): mean 1 ms, requested 1 ms, KS distance 0.71 % (p 0.68) over 9,999

Network
  s-a: utilization 91 %, 12 dropped, longest queue 150 kB
  a: processor 37.5 %
  b: processor 37.5 %
";
    assert_eq!(terminal(&[sample::record("live")], None), want);
}

/// A transport with a large buffer takes everything in the first second, and its line of 20 Mb/s needs five.
#[test]
fn rates_are_over_one_time() {
    let c = Connection {
        name: "x".into(),
        sent_bps: 104e6,
        sent_until_last_bps: Some(20e6),
        received_bps: 19.5e6,
        ..Connection::default()
    };
    let mut record = Record { connections: vec![c], ..Record::default() };
    let show =
        |record: &Record| (terminal(std::slice::from_ref(record), None), html(std::slice::from_ref(record)));
    let (text, page) = show(&record);
    assert!(text.contains("20 Mb/s") && !text.contains("104 Mb/s"), "{text}");
    let note = "sent, received: over the time until the last arrival";
    assert!(text.contains(note) && page.contains(note), "{text}");
    // Of an earlier version.
    record.connections[0].sent_until_last_bps = None;
    let (text, page) = show(&record);
    assert!(text.contains("104 Mb/s") && !text.contains(note) && !page.contains(note), "{text}");
}

#[test]
fn losses_have_their_causes() {
    let mut record = sample::record("sim");
    let lines = |record: &Record| {
        let text = terminal(std::slice::from_ref(record), None);
        let lines = text.lines().skip_while(|line| *line != "Network").skip(1);
        lines.map(str::trim).filter(|line| !line.contains("processor")).collect::<Vec<_>>().join("\n")
    };
    let link = &mut record.links[0];
    (link.dropped_queue, link.lost_line, link.damaged) = (Some(12), Some(0), Some(0));
    assert_eq!(lines(&record), "s-a: utilization 91 %, 12 dropped, longest queue 150 kB");
    let link = &mut record.links[0];
    (link.dropped_queue, link.lost_line, link.damaged, link.aal5_failed) =
        (Some(7), Some(5), Some(3), Some(4));
    let switch = |name: &str, dropped_damaged, dropped_no_route| Switch {
        name: name.into(),
        dropped_damaged,
        dropped_no_route,
        ..Switch::default()
    };
    record.switches = vec![switch("s", 2, 1), switch("t", 0, 0)];
    let losses = "12 dropped (7 at a full queue, 5 on the line), 3 damaged, 4 packets not reassembled";
    assert_eq!(
        lines(&record),
        format!(
            "s-a: utilization 91 %, {losses}, longest queue 150 kB\n\
             s: 2 dropped as corrupt, 1 dropped without a route"
        )
    );
}

#[test]
fn queues_have_their_counters_and_sojourn_times() {
    let mut record = sample::record("sim");
    let sojourn =
        Distribution { count: 9, p50: 1_500.0, p99: 20_000.0, max: 31_000.0, ..Distribution::default() };
    let queue = LinkQueue {
        name: "s<i>".into(),
        discipline: "codel".into(),
        dropped_full: 1,
        dropped_early: 23,
        policed: 0,
        marked: 456,
        sojourn_us: Some(sojourn),
    };
    let idle = LinkQueue { name: "a".into(), discipline: "droptail".into(), ..LinkQueue::default() };
    record.links[0].queues = vec![queue, idle];
    let text = terminal(std::slice::from_ref(&record), None);
    let line = "s-a, queue of s<i> (codel): 1 dropped at the full queue, 23 dropped early, 456 marked, \
                sojourn p50 1.5 ms, p99 20 ms, max 31 ms\n  s-a, queue of a (droptail): no frames\n";
    assert!(text.contains(line), "{text}");
    let page = html(&[record]);
    let table =
        page.split("<h2>Queues</h2>").nth(1).expect("a table of queues").split("</table>").next().unwrap();
    assert!(table.contains("s&lt;i&gt;") && table.contains("codel") && table.contains("456"), "{table}");
    assert!(table.contains("1.5") && table.contains("–"), "{table}");
    assert!(!html(&[sample::record("sim")]).contains("<h2>Queues</h2>"));
}

#[test]
fn a_narrow_terminal_drops_less_important_columns() {
    let record = [sample::record("live")];
    let table = |width| {
        let text = terminal(&record, Some(width));
        text.split("\n\n").nth(2).unwrap().to_owned()
    };
    for (width, header) in [
        (160, "connection transport test offered sent received lost delay p50 delay p99 gap p50 rtt p50"),
        (100, "connection offered sent received lost delay p50 delay p99 rtt p50"),
        (80, "connection sent received lost delay p50 rtt p50"),
        (60, "connection received lost delay p50 rtt p50"),
        (40, "connection received lost"),
    ] {
        let text = table(width);
        assert_eq!(columns(text.lines().next().unwrap()), header, "{width}");
        assert!(text.lines().all(|l| l.chars().count() <= usize::from(width)), "{width}:\n{text}");
    }
}

#[test]
fn several_backends_are_side_by_side() {
    let records = [sample::record("live"), sample::record("sim")];
    let text = terminal(&records, None);
    let row = text.lines().find(|l| l.contains(" sim ") && l.contains("Gb/s")).unwrap();
    assert!(row.contains("7.37 Gb/s (-3.0 %)") && row.contains("121 us (-20 %)"), "{row}");
    assert!(text.contains("\nExpectations, sim\n"));

    let text = comparison(&compare(&records), Some(80));
    assert!(text.starts_with("connection   metric"), "{text}");
    assert!(text.ends_with("\n\nThe runs differ in\n  system: Linux 6.12.48 | –\n"), "{text}");
    let row = text.lines().find(|l| l.contains("round trip p50")).unwrap();
    assert_eq!(columns(row), "round trip p50 77.3 us 61.9 us (-20 %)");
    assert!(html(&records).contains("<details><summary>All metrics</summary>"));
}

/// Returns a record whose first connection has these stages; `None` is unknown.
fn timed(backend: &str, stages: &[(&str, Option<f64>)]) -> Record {
    let mut record = sample::record(backend);
    let c = &mut record.connections[0];
    let d = |mean: f64| {
        let (count, p50, p99) = (1200, mean / 2.0, mean * 2.0);
        Distribution { count, p50, mean, p99, ..Distribution::default() }
    };
    c.delay_us = Some(d(50.0));
    c.stages_us = stages.iter().map(|(name, us)| ((*name).to_owned(), us.map(d))).collect();
    c.notes.insert("stages".into(), format!("measured by {backend}"));
    c.counters = [("sender_frames_sent", 3215.0), ("sender_timeouts", 0.0), ("receiver_bad_checksums", 2.0)]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    record
}

#[test]
fn processing_stages_are_side_by_side() {
    let live = timed("live", &[("copy_out", Some(0.5)), ("seal", Some(0.04)), ("queued", None)]);
    let sim = timed("sim", &[("queued", Some(30.0)), ("seal", None), ("network", Some(20.0))]);
    let text = terminal(&[live.clone(), sim], None);
    let rows = |text: &str| -> Vec<String> {
        let table = text.split("Where the time goes: B-A\n\n").nth(1).unwrap();
        let lines = table.lines().take(27).filter(|line| !line.starts_with('─'));
        lines.map(columns).collect()
    };
    let want = [
        "stage live, measured p50 mean p99 of the delay sim, measured p50 mean p99 of the delay",
        "sender: copy in – – – – – – – – – –",
        "sender: queued – – – – – 1,200 15 us 30 us 60 us 60 %",
        "sender: frame – – – – – – – – – –",
        "sender: checksum 1,200 20 ns 40 ns 80 ns 0.08 % – – – – –",
        "sender: send – – – – – – – – – –",
        "network – – – – – 1,200 10 us 20 us 40 us 40 %",
        "receiver: waiting – – – – – – – – – –",
        "receiver: receive – – – – – – – – – –",
        "receiver: checksum – – – – – – – – – –",
        "receiver: join – – – – – – – – – –",
        "receiver: copy out 1,200 250 ns 500 ns 1 us 1 % – – – – –",
        "message delay 1,200 25 us 50 us 100 us 100 % 1,200 25 us 50 us 100 us 100 %",
        "",
        "live, measured by live",
        "sim, measured by sim",
        "live, sender: frames sent 3,215",
        "live, receiver: bad checksums 2",
    ];
    assert_eq!(rows(&text)[..want.len()], want, "{text}");
    let single = terminal(std::slice::from_ref(&live), None);
    assert_eq!(rows(&single)[0], "stage measured p50 mean p99 of the delay");
    assert_eq!(single.matches("Where the time goes").count(), 1, "of the connection with stages");
    let page = html(&[live]);
    assert!(page.contains("receiver: copy out") && page.contains("measured by live"));
    assert!(!html(&[sample::record("live")]).contains("Where the time goes"));
}

/// Returns readings of a host's kernel, every 100 ms.
fn rows<const N: usize>(values: [[f64; N]; 3]) -> Vec<(f64, Vec<f64>)> {
    values.into_iter().enumerate().map(|(i, values)| (1.0 + 0.1 * i as f64, values.into())).collect()
}

/// Returns the data of the plots of a page.
fn plots(page: &str) -> Vec<serde_json::Value> {
    let data = page.split("id=\"plots\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn what_was_measured_of_the_hosts_is_plotted() {
    let mut records = [sample::record("live"), sample::record("live")];
    let names = ["lo.rx_bytes", "lo.tx_bytes", "tcp.timeouts", "udp.no_port"].map(String::from).into();
    let measured =
        Measured { names, rows: rows([[0.0, 0.0, 1.0, 4.0], [1e6, 0.0, 1.0, 4.0], [3e6, 2e6, 3.0, 4.0]]) };
    let before = plots(&html(&records)).len();
    for record in &mut records {
        record.hosts[1].measured = Some(measured.clone());
    }
    let page = html(&records);
    let data = plots(&page);
    let figures: Vec<_> = page.split("<figcaption>").filter(|text| text.starts_with("b: ")).collect();
    assert!(figures[0].starts_with("b: lo bytes<") && figures[1].starts_with("b: tcp timeouts<"));
    assert!(
        figures[0].contains("received, live 1: 3\u{202f}MB in all, at most 160\u{202f}Mb/s"),
        "{}",
        figures[0]
    );
    assert_eq!((figures.len(), data.len()), (2, before + 2), "unchanged counters have no plot");
    assert!(page.contains("<h2>Host b</h2>") && !page.contains("<h2>Host a</h2>"));
    let bytes = data.iter().rfind(|plot| plot["lines"][0]["label"] == "received, live 1").unwrap();
    assert_eq!(bytes["lines"].as_array().unwrap().len(), 4);
    assert_eq!(bytes["lines"][1]["y"], serde_json::json!([0.0, 1.6e8]), "sent, by the first run");
    assert_eq!((&bytes["y"]["unit"], &bytes["lines"][3]["dash"]), (&"bps".into(), &true.into()));
    let text = terminal(&records[..1], None);
    let want = "\nMeasured of the hosts' kernels\n  b: lo received 3 MB, sent 2 MB; tcp.timeouts 2\n";
    assert!(text.contains(want), "{text}");
}

/// Returns a record in which every text is `text`.
fn hostile(text: &str) -> Record {
    let mut r = sample::record("live");
    r.experiment = Experiment { name: text.into(), hash: text.into(), text: text.into() };
    r.problems = vec![text.into()];
    r.partial = true;
    (r.backend, r.started) = (text.into(), text.into());
    r.environment = [(text.into(), text.into())].into();
    r.links[0].name = text.into();
    (r.hosts[0].name, r.hosts[0].address) = (text.into(), Some(text.into()));
    let names = vec![text.into(), format!("{text}.rx_bytes"), format!("{text}.errors")];
    r.hosts[0].measured = Some(Measured { names, rows: rows([[0.0; 3], [1.0; 3], [2.0; 3]]) });
    r.expectations[0].text = text.into();
    for c in &mut r.connections {
        for field in [&mut c.name, &mut c.transport, &mut c.test, &mut c.from, &mut c.to[0]] {
            *field = text.into();
        }
        c.error = Some(text.into());
        c.notes = [(text.into(), text.into()), ("stages".into(), text.into())].into();
        c.stages_us = [(text.into(), c.delay_us.clone()), ("seal".into(), None)].into();
        c.counters = [(text.into(), 1.0)].into();
        c.repeats = [(text.into(), Interval::default())].into();
        c.series.iter_mut().for_each(|p| p.extra = [(text.into(), p.t_s)].into());
        c.receivers =
            vec![Receiver { host: text.into(), delay_us: c.delay_us.clone(), ..Receiver::default() }];
        c.requested
            .variables
            .iter_mut()
            .for_each(|v| (v.name, v.law, v.unit) = (text.into(), text.into(), text.into()));
    }
    r
}

#[test]
fn hostile_texts_are_escaped() {
    let text = "<script>steal()</script>\"'><img src=x onerror=steal()><!--&";
    let records = [hostile(text), hostile(text)];
    let page = html(&records);
    assert!(page.contains("&lt;script&gt;steal()"));
    for raw in ["<script>steal", "<img", "<!--"] {
        assert!(!page.contains(raw), "{raw} is not escaped");
    }
    let before_the_data = page.split("id=\"plots\"").next().unwrap();
    assert!(!before_the_data.contains("\"'"), "an attribute ended early");
    assert_eq!(page.matches("<script").count(), 3, "data, library, own script");
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(!junit(&records).contains("<script>"));
}

#[test]
fn hostile_texts_do_not_control_the_terminal() {
    let records = [hostile("a\u{1b}[2J\u{9b}31m\r\u{7}\u{202e}b\nc"), hostile("\u{1b}]0;title\u{7}")];
    let both =
        terminal(&records, None) + &terminal(&records, Some(80)) + &comparison(&compare(&records), Some(80));
    let is_control = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert_eq!(both.chars().find(|&c| is_control(c)), None);
}

#[test]
fn the_page_loads_nothing() {
    let page = html(&[sample::record("live"), sample::record("sim")]);
    for load in
        ["src=", "<link", "<iframe", "url(", "@import", "href=\"h", "href='", "fetch(", "XMLHttp", "import("]
    {
        assert!(!page.contains(load), "{load}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn every_plot_has_an_element_data_and_a_description() {
    let page = html(&[sample::record("live")]);
    for (i, plot) in plots(&page).iter().enumerate() {
        assert!(page.contains(&format!("data-plot=\"{i}\" role=\"img\" aria-label=\"")), "{i}");
        for line in plot["lines"].as_array().unwrap() {
            let [x, y] = ["x", "y"].map(|axis| line[axis].as_array().unwrap());
            assert!(
                x.len() == y.len() && x.windows(2).all(|w| w[0].as_f64() <= w[1].as_f64()),
                "{i} {}",
                line["label"]
            );
        }
    }
    for title in [
        "All connections",
        "Throughput",
        "Delay",
        "Gaps",
        "Requested vs. actual: gap exponential(1 ms)",
        "Congestion window",
        "Retransmissions",
        "Round-trip time, estimate of the transport",
    ] {
        assert!(page.contains(&format!("<figcaption>{title}</figcaption>")), "{title}");
    }
}

/// Returns a live and a simulated record of an experiment with a network, which the live run does not apply.
fn with_network() -> [Record; 2] {
    let [mut live, mut sim] = ["live", "sim"].map(sample::record);
    live.environment.insert("network".into(), "described in the experiment, not applied".into());
    sim.connections[0].received_bps = 1.0;
    sim.connections[2].delay_us.iter_mut().for_each(|d| d.p50 *= 1442.0);
    [live, sim]
}

#[test]
fn different_networks_are_not_compared() {
    let records = with_network();
    let note = "Not comparable: live measured the real network, sim the simulated one.";
    for text in [
        terminal(&records, None),
        terminal(&records, Some(80)),
        comparison(&compare(&records), None),
        comparison(&compare(&records), Some(80)),
        html(&records).split("<details><summary>Counters").next().unwrap().to_owned(),
    ] {
        assert!(text.contains(note), "{text}");
        let tables = text.split("Requested vs. actual").next().unwrap();
        assert!(!tables.contains("-100 %") && !tables.contains('×') && !tables.contains("(-20"), "{text}");
    }
    let text = comparison(&compare(&records), Some(80));
    let row = text.lines().find(|l| l.contains("received ")).unwrap();
    assert_eq!(columns(row), "received 100 Mb/s 1 b/s");
    // Two simulated runs are comparable, and so are two live ones.
    let [live, sim] = records;
    for pair in [[live.clone(), live], [sim.clone(), sim]] {
        assert_eq!(compare(&pair).note, None);
    }
}

#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let stages = [("copy_out", Some(0.5)), ("seal", Some(0.04)), ("queued", None)];
    let mut records: Vec<Record> =
        ["live", "sim", "live"].iter().map(|backend| timed(backend, &stages)).collect();
    for record in &mut records {
        record.connections[0].name = "a connection with a long name".into();
        record.expectations.clear();
        record.connections.iter_mut().for_each(|c| c.requested = SendAccuracy::default());
    }
    for records in [&records[..1], &records[..2], &records] {
        // Wrapping would break names and numbers.
        for (text, unbroken) in [
            (
                terminal(records, Some(80)),
                ["a connection with a long name ", "100 Mb/s", "receiver: copy out "],
            ),
            (
                comparison(&compare(records), Some(80)),
                ["a connection with a long name", "100 Mb/s", "round trip p50 "],
            ),
        ] {
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(unbroken.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}

#[test]
fn the_page_begins_with_expectations_and_plots_and_ends_with_the_machine() {
    for records in [vec![sample::record("live")], with_network().into()] {
        let page = html(&records);
        let parts = [
            "<h1>",
            "<h2>Expectations",
            "data-plot=\"0\"",
            "<h2>Connections",
            "Percentiles",
            "<h2>Experiment",
            "Run and machine",
        ];
        let positions = parts.map(|part| page.find(part).unwrap_or_else(|| panic!("{part} is missing")));
        assert!(positions.is_sorted(), "{positions:?}");
        let last_plot = page.rfind("data-plot=\"").unwrap();
        assert!(
            last_plot < page.find("<table class=\"several\"").unwrap_or(positions[3]),
            "plots before tables"
        );
        assert!(page.find("two cores, 2.9 GHz").is_some_and(|at| at > positions[6]));
    }
}

#[test]
fn a_record_may_lack_anything() {
    let empty = Connection { name: "bare".into(), ..Connection::default() };
    let d = || Some(Distribution::default());
    let one = Distribution { count: 1, curve: vec![(1.0, 0.0)], ..Distribution::default() };
    let zeros = Connection {
        name: "zeros".into(),
        offered_bps: Some(0.0),
        delay_us: d(),
        rtt_us: Some(one),
        closed_loop_rtt_us: d(),
        gap_us: d(),
        sent_gap_us: d(),
        late_us: d(),
        requested: SendAccuracy { variables: vec![Fit::default()], ..SendAccuracy::default() },
        repetitions: vec![Repetition::default()],
        series: vec![Point::default()],
        ..Connection::default()
    };
    let with = |connections| Record { connections, ..Record::default() };
    let records = [Record::default(), with(vec![empty.clone()]), with(vec![zeros, empty])];
    for records in [&[][..], &records[..1], &records[1..2], &records[2..], &records] {
        for width in [None, Some(0), Some(20), Some(80)] {
            terminal(records, width);
            comparison(&compare(records), width);
        }
        assert!(html(records).ends_with("</html>"));
        junit(records);
    }
}

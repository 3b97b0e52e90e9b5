//! `trunkline analyse`: reports of known series, fitted sources, errors.

use std::fmt::Write;

use crate::command::{TestDir, number};
use serde_json::Value;
use trunkline_traffic::noise::Noise;
use trunkline_units::Seed;

/// Bytes every 15 s from quarter past noon on: noise of H = 0.8, a burst of a minute at interval 1000, interval 2000 missing.
fn recorded() -> String {
    let path = Noise::new(0.8, 4000).unwrap().path(&mut Seed(1).stream("recorded"));
    let mut text = String::from("time,bytes,packets,note\n");
    for (i, z) in path.iter().enumerate().filter(|(i, _)| *i != 2000) {
        let bytes = if (1000..1004).contains(&i) { 9e6 } else { (1e6 + 1e5 * z).round() };
        writeln!(text, "{},{bytes},{},x", 44_100 + 15 * i, (bytes / 1000.0).round()).unwrap();
    }
    text
}

fn test_dir() -> TestDir {
    let dir = TestDir::new();
    dir.write("recorded.csv", recorded());
    dir
}

fn json(dir: &TestDir, more: &[&str]) -> Value {
    json_with(dir, more, 0)
}

/// Of a series that may be too short for a Hurst exponent.
fn json_with(dir: &TestDir, more: &[&str], status: i32) -> Value {
    let ended = dir.execute(&[&["analyse", "recorded.csv", "--json"], more].concat());
    assert_eq!((ended.status, ended.err.is_empty()), (status, status == 0), "{}", ended.err);
    serde_json::from_str(&ended.out).expect("JSON")
}

#[test]
fn a_report_describes_the_series() {
    let dir = test_dir();
    let found = json(&dir, &[]);
    assert_eq!((found["column"].as_str(), found["unit"].as_str()), (Some("bytes"), Some("bytes")));
    assert_eq!((number(&found["intervals"]), number(&found["gaps"])), (4000.0, 1.0));
    assert_eq!((number(&found["grain_s"]), number(&found["start_s"])), (15.0, 44_100.0));
    assert!((number(&found["rate_per_s"]["p50"]) - 1e6 / 15.0).abs() < 2e3);
    assert_eq!(number(&found["rate_per_s"]["max"]), 9e6 / 15.0);
    let bursts = &found["bursts"];
    assert_eq!((bursts["significant"].as_bool(), number(&bursts["count"])), (Some(true), 1.0));
    let burst = &bursts["list"][0];
    assert_eq!((number(&burst["start_s"]), number(&burst["end_s"])), (59_100.0, 59_160.0));
    assert_eq!((number(&burst["amount"]), number(&burst["peak_per_s"])), (36e6, 6e5));
    // The longest stretch begins with the series and holds the burst.
    assert_eq!(number(&found["stretch"]["intervals"]), 2000.0);
    assert_eq!(found["hurst"].as_array().expect("estimates").len(), 5);

    let ended = dir.execute(&["analyse", "recorded.csv", "--out", "out"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    for words in ["4,000 intervals of 15 s  1 missing", "1 above", "local Whittle", "Plots: out/analyse.html"]
    {
        assert!(ended.out.contains(words), "{words}:\n{}", ended.out);
    }
    let page = std::fs::read_to_string(dir.path("out/analyse.html")).unwrap();
    assert!(page.contains("Hurst exponent by wavelets") && page.contains("Autocorrelation"));
    let stored: Value =
        serde_json::from_slice(&std::fs::read(dir.path("out/analyse.json")).unwrap()).unwrap();
    assert_eq!(stored, found);
}

#[test]
fn the_exponent_of_noise_is_estimated() {
    let dir = TestDir::new();
    let path = Noise::new(0.7, 8192).unwrap().path(&mut Seed(3).stream("noise"));
    let text: String = path.iter().map(|z| format!("{}\n", 100.0 + z)).collect();
    dir.write("recorded.csv", text);
    let found = json(&dir, &["--interval", "100ms"]);
    for e in found["hurst"].as_array().expect("estimates") {
        let (h, low, high) = (number(&e["h"]), number(&e["low"]), number(&e["high"]));
        assert!(low < h && h < high && low < 0.74 && high > 0.66, "{e}");
    }
    assert_eq!(number(&found["bursts"]["count"]), 0.0);
}

/// Everything else is printed, and the line says how to have more intervals.
#[test]
fn a_series_that_is_too_short_for_an_exponent_fails_with_a_remedy() {
    let dir = TestDir::new();
    let rows: String = (0..200).map(|i| format!("{i},{}\n", i % 7)).collect();
    dir.write("short.csv", format!("t_s,bytes\n{rows}"));
    for more in [&[][..], &["--json"]] {
        let ended = dir.execute(&[&["analyse", "short.csv"], more].concat());
        assert_eq!(ended.status, 2, "{ended:?}");
        let line = "trunkline: short.csv: a Hurst exponent needs 256 values in a row, not 200; measure for longer \
                    or at shorter intervals: ";
        assert!(ended.err.starts_with(line) && ended.err.lines().count() == 1, "{}", ended.err);
        assert!(ended.out.contains("utocorrelation"), "{ended:?}");
    }
    let experiment = |seconds: u32| {
        format!(
            "experiment \"e\" {{ network {{ host a, b; link a - b (rate = 10 Mb/s); }} connection c {{ xmt = a; rcv = b; \
             protocol = udp; test = poisson (messagesize = 500, rate = 200 /s); duration = {seconds} s; }} }}"
        )
    };
    assert_eq!(dir.run(&experiment(8), &["--on", "sim"]).status, 0);
    let ended = dir.execute(&["analyse", "out", "--column", "c.sent_bps"]);
    assert!(ended.status == 2 && ended.err.contains("run for 25 s, 50 s,"), "{ended:?}");
    // What the line says is so.
    for seconds in [25, 50, 250, 500] {
        assert_eq!(dir.run(&experiment(seconds), &["--on", "sim"]).status, 0);
        let ended = dir.execute(&["analyse", "out", "--column", "c.sent_bps"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{seconds} s: {ended:?}");
    }
}

#[test]
fn resampling_preserves_totals() {
    let dir = test_dir();
    let coarse = json_with(&dir, &["--grain", "15min"], 2);
    // 4000 intervals of 15 s hold 66 whole quarters of an hour; one has the gap.
    assert_eq!((number(&coarse["intervals"]), number(&coarse["gaps"])), (66.0, 1.0));
    let fine = json(&dir, &[]);
    let sum = |found: &Value| {
        let known = number(&found["intervals"]) - number(&found["gaps"]);
        number(&found["rate_per_s"]["mean"]) * number(&found["grain_s"]) * known
    };
    let whole = sum(&coarse) + number(&coarse["left_out"]);
    assert!((whole / sum(&fine) - 1.0).abs() < 1e-12, "{whole}");
    // Sprint's counts every quarter of an hour: those of the series, with 2 % of something else.
    let mut text = String::from("time,cells\n");
    for (i, row) in recorded().lines().skip(1).collect::<Vec<_>>().chunks(60).enumerate() {
        let sum: f64 = row.iter().map(|r| r.split(',').nth(1).unwrap().parse::<f64>().unwrap()).sum();
        writeln!(text, "{},{}", 44_100 + 900 * i, sum / 48.0 + if i % 2 == 0 { 2e4 } else { 0.0 }).unwrap();
    }
    dir.write("sprint.csv", text);
    let against = &json(&dir, &["--against", "sprint.csv"])["correlation"];
    assert_eq!(number(&against["grain_s"]), 900.0);
    assert!(number(&against["r"]) > 0.9 && number(&against["low"]) > 0.8, "{against}");
}

#[test]
fn an_inventory_is_table_15() {
    let ended = test_dir().execute(&["analyse", "recorded.csv", "--inventory"]);
    let lines: Vec<&str> = ended.out.lines().collect();
    let head = "series,start,end,significant_burst,bursts,gaps";
    assert_eq!(lines, [head, "bytes,44100,104100,yes,1,1", "packets,44100,104100,yes,1,1"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn every_fit_is_an_experiment_that_sends_it() {
    let dir = test_dir();
    for kind in ["empirical", "on-off", "fgn", "tes", "poisson", "mginf"] {
        let flags = ["--fit", kind, "--grain", "30s", "--intervals", "20", "--seed", "7"];
        let printed = dir.execute(&[&["analyse", "recorded.csv"], &flags[..]].concat());
        assert_eq!((printed.status, printed.err.as_str()), (0, ""), "{kind}");
        assert!(
            printed.out.contains("test = stairs (messagesize = 1400, hold = 30000000000 ns"),
            "{}",
            printed.out
        );
        dir.write("fit.ns", &printed.out);
        let ended = dir.execute(&["run", "fit.ns", "--on", "sim", "--json", "--no-archive"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{kind}");
        let record: Value = serde_json::from_str(&ended.out).unwrap();
        let c = &record["connections"][0];
        let (sent, lost) = (number(&c["messages_sent"]) * 1400.0, number(&c["lost"]));
        // 2 MB every 30 s on the mean of every kind, bursts of 36 MB now and then.
        assert!((30e6..120e6).contains(&sent) && lost == 0.0, "{kind}: {sent} bytes, {lost} lost");
        let again = dir.execute(&[&["analyse", "recorded.csv"], &flags[..]].concat());
        assert_eq!(again.out, printed.out);
    }
}

#[test]
fn a_run_is_a_series_in_every_form() {
    let dir = TestDir::new();
    let experiment = "experiment \"e\" {
        network { host a, b; link a - b (rate = 10 Mb/s); }
        connection c { xmt = a; rcv = b; protocol = udp; test = poisson (messagesize = 500, rate = 200 /s); duration = 20 s; }
    }";
    let ended = dir.run(experiment, &["--on", "sim"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let exported = dir.execute(&["records", "export", "1", "--format", "csv", "--series"]);
    dir.write("series.csv", exported.out);
    let mut found = Vec::new();
    for from in ["out", "out/sim/record.json", "1", "series.csv"] {
        let ended = dir.execute(&["analyse", from, "--column", "c.sent_bps", "--json"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{from}");
        let mut json: Value = serde_json::from_str(&ended.out).unwrap();
        json["series"] = Value::Null;
        assert_eq!(json["unit"], "bits");
        let mean = number(&json["rate_per_s"]["mean"]);
        assert!((mean / 800e3 - 1.0).abs() < 0.1, "{from}: {mean}");
        found.push(json);
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
}

#[test]
fn errors_are_one_line() {
    let dir = test_dir();
    dir.write("empty.csv", "");
    dir.write("words.csv", "time,word\n0,a\n1,b\n");
    dir.write("still.csv", "time,x\n0,1\n1,1\n2,1\n3,1\n");
    dir.write("below.csv", (0..50).map(|i| format!("{i},{}\n", 5 - i)).collect::<String>());
    dir.write("short.csv", "time,x\n0,1\n1,2\n2,1\n3,5\n");
    let cases: [(&[&str], &str); 15] = [
        (&["missing.csv"], "missing.csv: No such file"),
        (&["empty.csv"], "it holds nothing"),
        (&["words.csv"], "no column holds numbers"),
        (&["words.csv", "--inventory"], "no column holds numbers"),
        (&["recorded.csv", "--column", "cells"], "no column `cells`; the columns are: bytes, packets, note"),
        (&["recorded.csv", "--column", "note"], "line 2 of column `note` is not a number"),
        (&["recorded.csv", "--time", "note"], "is not a time"),
        (&["recorded.csv", "--grain", "30d"], "recorded.csv: it has no whole interval of that length"),
        (&["recorded.csv", "--interval", "1min"], "two values are in the interval"),
        (&["recorded.csv", "--against", "short.csv"], "short.csv: it has no whole interval of that length"),
        (&["recorded.csv", "--against", "below.csv"], "0 intervals in common"),
        (
            &["recorded.csv", "--fit", "tes", "--grain", "1h", "--intervals", "5"],
            "a profile needs 16 intervals",
        ),
        (&["still.csv", "--fit", "fgn"], "a profile needs 16 intervals in a row, not 4"),
        (&["below.csv", "--fit", "empirical"], "an amount is below 0"),
        (&["7"], "archive"),
    ];
    for (args, words) in cases {
        dir.execute(&[&["analyse"], args].concat()).assert_line(2, words);
    }
    // Statistics that need more data say so; the others are printed.
    let ended = dir.execute(&["analyse", "short.csv"]);
    assert_eq!(ended.status, 2, "{}", ended.err);
    assert!(ended.out.contains("a Hurst exponent needs 256 values in a row, not 4"), "{}", ended.out);
    let ended = dir.execute(&["analyse", "still.csv", "--burst-above", "0.5"]);
    assert!(ended.status == 2 && ended.out.contains("1 above 0.5/s"), "{ended:?}");
}

/// Frames of Ethernet, IPv4 and UDP with these payloads, at these times in microseconds, as a pcap file.
pub fn udp_capture(packets: &[(u64, u16)]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for (us, payload) in packets {
        let udp = payload + 8;
        let frame = [
            &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0][..],
            &(udp + 20).to_be_bytes(),
            &[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
            &[3_000_u16.to_be_bytes(), 3_001_u16.to_be_bytes(), udp.to_be_bytes(), [0; 2]].concat(),
            &vec![0; usize::from(*payload)],
        ]
        .concat();
        let (seconds, rest, length) = ((us / 1_000_000) as u32, (us % 1_000_000) as u32, frame.len() as u32);
        file.extend([seconds, rest, length, length].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

#[test]
fn the_laws_of_gaps_and_sizes_are_recognised() {
    let dir = TestDir::new();
    let mut stream = Seed(1).stream("gaps");
    let mut at = 1e6;
    let mut packets = Vec::new();
    let mut rows = String::from("time,size\n");
    for i in 0..4_000 {
        at -= 20_000.0 * stream.unit().ln();
        let size = if i % 4 == 0 { 1_000 } else { 144 };
        packets.push((at as u64, size));
        writeln!(rows, "{},{size}", at / 1e6).unwrap();
    }
    dir.write("flow.pcap", udp_capture(&packets));
    dir.write("flow.csv", rows);
    for input in ["flow.pcap", "flow.csv"] {
        let ended = dir.execute(&["analyse", input, "--fit", "best", "--json"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let found: Value = serde_json::from_str(&ended.out).expect("JSON");
        let [gap, size] = [0, 1].map(|i| &found["quantities"][i]);
        let best = gap["laws"][0]["family"].as_str().unwrap();
        assert!(["exponential", "weibull", "mixture of exponential"].contains(&best), "{input}: {best}");
        assert_eq!(
            (size["name"].as_str(), size["laws"][0]["family"].as_str()),
            (Some("size"), Some("empirical"))
        );
        assert_eq!((number(&gap["values"]), number(&size["values"])), (3_999.0, 4_000.0));
        let aic: Vec<f64> = gap["laws"].as_array().unwrap().iter().map(|law| number(&law["aic"])).collect();
        assert!(aic.is_sorted() && aic.len() > 5, "{aic:?}");
        assert_eq!(found["models"].as_array().unwrap().len(), 6, "{found}");
    }
    let ended = dir.execute(&["analyse", "flow.pcap", "--fit"]);
    for words in
        ["gap, 3,999 values", "size, 4,000 values", "2 values", "models of the amounts in intervals of"]
    {
        assert!(ended.out.contains(words), "{words}:\n{}", ended.out);
    }
    // A series has values and models, and no gaps.
    let ended = test_dir().execute(&["analyse", "recorded.csv", "--fit", "best"]);
    assert!(ended.out.contains("bytes, 3,999 values") && !ended.out.contains("gap,"), "{}", ended.out);
    // The capture as a series.
    let ended = dir.execute(&["analyse", "flow.pcap", "--interval", "100ms", "--json"]);
    let found: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((found["column"].as_str(), number(&found["grain_s"])), (Some("bytes"), 0.1));
    dir.execute(&["analyse", "flow.pcap", "--fit", "tes", "--json"])
        .assert_line(2, "--json prints no experiment");
    let mut cut = udp_capture(&packets);
    cut.truncate(cut.len() - 5);
    dir.write("cut.pcap", cut);
    dir.execute(&["analyse", "cut.pcap", "--fit"]).assert_line(2, "cut.pcap: after packet 3999: ");
}

//! A capture replayed over the loopback: its sizes and gaps beside those that tshark reads in it.

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, Peers, free_port};
use crate::statistics::quantile;
use crate::tap::Tap;

/// Replays the capture of `--replay`, which needs tshark and a tap, at its own speed and at ten times that.
pub fn replay(options: &Options, _: &Peers, tap: bool) -> Outcome<Vec<Row>> {
    let Some(path) = options.replay.as_deref().filter(|_| tap) else { return Ok(Vec::new()) };
    let path = std::path::absolute(path).map_err(|e| format!("{path}: {e}"))?;
    let path = path.to_str().ok_or("the path is not UTF-8")?;
    let recorded = &recorded(path)?;
    let mut rows = Vec::new();
    for scale in [10, 1] {
        let figures = [
            Figure("messages with another size or none", 0, Target::Between(0.0, 0.0)),
            Figure("gap error, p50, %", 3, Target::Below(1.0)),
            Figure("gap error, p99, µs", 0, Target::Below(200.0)),
        ];
        let connection = format!("protocol = udp; test = replay (path = \"{path}\", scale = {scale});");
        let run = move |_| {
            let port = free_port()?;
            let tap = Tap::open(port, 0)?;
            ours::run(&connection, port, 1, &[], &[])?;
            let crossed = tap.datagrams()?;
            let differing = recorded.iter().zip(&crossed).filter(|(a, b)| a.1 != b.1).count()
                + recorded.len().abs_diff(crossed.len());
            let (us, percent) = errors(recorded, &crossed, f64::from(scale));
            Ok(vec![Some(differing as f64), Some(quantile(&percent, 0.5)), Some(quantile(&us, 0.99))])
        };
        let tools = [Tool { name: "trunkline", every: 1, run: Box::new(run) }];
        rows.extend(contest::hold(&format!("replay at {scale}x"), &figures, &tools, 1)?);
    }
    Ok(rows)
}

/// The UDP datagrams of a capture: nanoseconds, and bytes of payload.
fn recorded(path: &str) -> Outcome<Vec<(i64, u32)>> {
    let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "udp.length", "-Y", "udp"];
    let text = peers::run(&[&["tshark", "-r", path], &fields[..]].concat())?;
    let datagram = |line: &str| {
        let (time, length) = line.split_once('\t')?;
        let (seconds, nanoseconds) = time.split_once('.')?;
        let ns = seconds.parse::<i64>().ok()? * 1_000_000_000
            + format!("{nanoseconds:0<9}").parse::<i64>().ok()?;
        Some((ns, length.parse::<u32>().ok()?.checked_sub(8)?))
    };
    let all: Option<Vec<_>> = text.lines().map(datagram).collect();
    all.filter(|all| all.len() > 2).ok_or_else(|| format!("tshark reads no datagrams in {path}"))
}

/// How far each gap is from the recorded one: in microseconds, and in percent where the recorded one is not 0.
fn errors(recorded: &[(i64, u32)], crossed: &[(i64, u32)], scale: f64) -> (Vec<f64>, Vec<f64>) {
    let gaps = |times: &[(i64, u32)]| -> Vec<f64> {
        times.windows(2).map(|two| (two[1].0 - two[0].0) as f64 / 1e3).collect()
    };
    let wanted: Vec<f64> = gaps(recorded).into_iter().map(|gap| gap / scale).collect();
    let pairs: Vec<(f64, f64)> = wanted.into_iter().zip(gaps(crossed)).collect();
    let us = pairs.iter().map(|(wanted, actual)| (actual - wanted).abs()).collect();
    let percent = pairs.iter().filter(|(wanted, _)| *wanted > 0.0);
    (us, percent.map(|(wanted, actual)| 100.0 * (actual / wanted - 1.0).abs()).collect())
}

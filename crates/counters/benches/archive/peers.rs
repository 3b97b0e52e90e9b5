//! The same points in other time series databases.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trunkline_units::Seed;

use super::traffic::SERIES;
use super::{BUCKETS, FLUSH, Outcome, PERIOD, Points, RESPONSES, StoreResult, VIEWS, second};

fn folder_bytes(folder: &Path) -> Outcome<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        sum += if path.is_dir() { folder_bytes(&path)? } else { fs::metadata(&path)?.len() };
    }
    Ok(sum)
}

/// Measures rrdtool: one file per interface, every value stored for the five days without consolidation. rrdtool
/// converts counters to rates. All commands go to one rrdtool process through its pipe.
pub fn rrdtool(points: &Points, folder: &Path) -> Outcome<StoreResult> {
    let folder = folder.join("rrd");
    fs::create_dir_all(&folder)?;
    let mut child = Command::new("rrdtool")
        .arg("-")
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("rrdtool: {e}"))?;
    let mut input = BufWriter::new(child.stdin.take().ok_or("a pipe")?);
    let mut output = BufReader::new(child.stdout.take().ok_or("a pipe")?);
    let mut run_command = |text: &str| -> Outcome<Duration> {
        let started_at = Instant::now();
        input.write_all(text.as_bytes())?;
        input.flush()?;
        let mut line = String::new();
        for _ in text.lines() {
            loop {
                line.clear();
                if output.read_line(&mut line)? == 0 || line.starts_with("ERROR") {
                    return Err(format!("rrdtool: {line}").into());
                }
                if line.starts_with("OK ") {
                    break;
                }
            }
        }
        Ok(started_at.elapsed())
    };
    let mut write_time = Duration::ZERO;
    for device in points.devices() {
        let mut lines = vec![String::new(); device.len()];
        for number in device.clone() {
            let mut text = format!("create {number}.rrd --start {} --step {PERIOD}", second(0) - PERIOD);
            for (name, kind) in SERIES {
                let kind = if kind.is_counter() { "DERIVE" } else { "GAUGE" };
                write!(text, " DS:{}:{kind}:{}:U:U", &name[..name.len().min(19)], 2 * PERIOD)?;
            }
            writeln!(text, " RRA:AVERAGE:0.5:1:{RESPONSES}")?;
            write_time += run_command(&text)?;
        }
        points.for_each_response(device.clone(), |at, values| {
            for (line, values) in lines.iter_mut().zip(values.chunks(SERIES.len())) {
                write!(line, " {}", second(at))?;
                values.iter().try_for_each(|v| write!(line, ":{}", v.0))?;
            }
            if at % FLUSH == FLUSH - 1 {
                let mut text = String::new();
                for (number, line) in device.clone().zip(&mut lines) {
                    writeln!(text, "update {number}.rrd{line}")?;
                    line.clear();
                }
                write_time += run_command(&text)?;
            }
            Ok(())
        })?;
    }
    let mut stream = Seed(1996).stream("views");
    let mut views = Vec::new();
    for _ in 0..VIEWS {
        let number = stream.below(points.interfaces as u64);
        let name = &SERIES[stream.below(8) as usize].0;
        let (from, to) = (second(0), second(RESPONSES));
        views.push(run_command(&format!(
            "xport --start {from} --end {to} --maxrows {BUCKETS} DEF:a={number}.rrd:{}:AVERAGE XPORT:a\n",
            &name[..name.len().min(19)]
        ))?);
    }
    drop((input, output));
    child.wait()?;
    let bytes = folder_bytes(&folder)?;
    Ok(StoreResult {
        name: "rrdtool",
        bytes,
        write_time,
        views,
        note: "rates as doubles; means per bucket, peaks lost",
    })
}

/// Measures Prometheus: one block per day, created by promtool from text, and queries of rates from a server.
pub fn prometheus(points: &Points, folder: &Path) -> Outcome<StoreResult> {
    let blocks = folder.join("prometheus");
    let mut write_time = Duration::ZERO;
    for device in points.devices() {
        let text = folder.join("text");
        openmetrics(points, device, &text)?;
        let started_at = Instant::now();
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=24h"])
            .arg(&text)
            .arg(&blocks)
            .output()
            .map_err(|e| format!("promtool: {e}"))?;
        write_time += started_at.elapsed();
        if !made.status.success() {
            return Err(format!("promtool: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        fs::remove_file(&text)?;
    }
    let bytes = folder_bytes(&blocks)?;
    let views = match query_server(points, &blocks) {
        Ok(views) => views,
        Err(error) => {
            println!("skipped: views of Prometheus: {error}");
            Vec::new()
        }
    };
    Ok(StoreResult {
        name: "prometheus",
        bytes,
        write_time,
        views,
        note: "doubles, one timestamp per point; from text; over HTTP",
    })
}

/// OpenMetrics groups samples by family and orders them within a series.
fn openmetrics(points: &Points, device: std::ops::Range<usize>, path: &Path) -> Outcome<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for (family, (name, kind)) in SERIES.iter().enumerate() {
        let (kind, suffix) = if kind.is_counter() { ("counter", "_total") } else { ("gauge", "") };
        writeln!(out, "# TYPE {name} {kind}")?;
        for number in device.clone() {
            let mut interface = super::traffic::Interface::new(number);
            for at in 0..RESPONSES {
                let value = interface.next(PERIOD as f64)[family].0;
                writeln!(
                    out,
                    "{name}{suffix}{{instance=\"switch-{}\",ifIndex=\"{number}\"}} {value} {}",
                    number / super::WIDTH,
                    second(at)
                )?;
            }
        }
    }
    let _ = points;
    writeln!(out, "# EOF")?;
    Ok(out.flush()?)
}

/// A server on loopback that is stopped when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn query_server(points: &Points, blocks: &Path) -> Outcome<Vec<Duration>> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let config = blocks.with_extension("yml");
    fs::write(&config, "global: {}\n")?;
    let server = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", blocks.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--storage.tsdb.retention.time=10y", "--log.level=error"])
        .args(["--web.console.templates=/nonexistent", "--web.console.libraries=/nonexistent"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("prometheus: {e}"))?;
    let _server = Server(server);
    let get = |path: &str| -> Outcome<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let started_at = Instant::now();
    while !get("/-/ready").is_ok_and(|answer| answer.contains(" 200 ")) {
        if started_at.elapsed() > Duration::from_secs(120) {
            return Err("the server does not start".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut stream = Seed(1996).stream("views");
    let step = RESPONSES as i64 * PERIOD / BUCKETS as i64;
    let mut views = Vec::new();
    for _ in 0..VIEWS {
        let number = stream.below(points.interfaces as u64);
        let name = SERIES[stream.below(8) as usize].0;
        let query = format!("rate({name}_total%7BifIndex%3D%22{number}%22%7D%5B{step}s%5D)");
        let (from, to) = (second(0), second(RESPONSES - 1));
        let started_at = Instant::now();
        let answer = get(&format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}"))?;
        views.push(started_at.elapsed());
        if !answer.contains("\"values\"") {
            return Err(format!("no values for {name}: {}", answer.lines().last().unwrap_or_default()).into());
        }
    }
    Ok(views)
}

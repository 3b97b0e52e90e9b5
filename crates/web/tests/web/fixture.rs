//! Archives with known traffic, and their writer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use trunkline_counters::archive::{Layout, SeriesSpec, TableSpec, TextSpec, Writer};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};
use trunkline_io::Clock;
use trunkline_units::{Seed, random::Stream};
use trunkline_web::{Options, Server, StopHandle, Token};

pub const S: i64 = 1_000_000_000;
/// Device and port names that contain markup and quotes.
pub const HOSTILE: &str = "<img src=x onerror=\"window.hacked=1\">'\"&amp;";
pub const HOSTILE_PORT: &str = "</option><script>window.hacked=1</script>";

/// An archive and its writer.
pub struct Fixture {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub writer: Writer,
}

/// A table being written.
pub struct Table {
    pub layout: Layout,
    pub period: i64,
    pub at: i64,
    began: i64,
    counts: Vec<u64>,
}

pub fn now() -> i64 {
    Clock::start().unix().as_nanos() as i64
}

pub fn series(name: &str, kind: ValueKind, unit: &str) -> SeriesSpec {
    SeriesSpec { name: name.into(), kind, unit: unit.into(), ceiling: None, discontinuity: None }
}

impl Fixture {
    pub fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.sqlite");
        Fixture { writer: Writer::open(&path).unwrap(), path, folder }
    }

    /// Creates a table that starts at `at`.
    pub fn table(
        &mut self,
        device: &str,
        name: &str,
        period: i64,
        at: i64,
        series: Vec<SeriesSpec>,
    ) -> Table {
        let counts = vec![0; series.len()];
        let spec = TableSpec {
            device: device.into(),
            name: name.into(),
            period: Duration::from_nanos(period as u64),
            refresh: Some(Duration::ZERO),
            series,
        };
        let layout = self.writer.open_table(&spec).unwrap();
        Table { layout, period, at, began: at, counts }
    }

    pub fn put_texts(&self, device: &str, texts: &[(&str, &str, &str)], at: i64) {
        let parameters: Vec<TextSpec<'_>> =
            texts.iter().map(|(object, key, text)| TextSpec { object, key, text }).collect();
        self.writer.put_texts(device, &parameters, Timestamp(at)).unwrap();
    }

    /// Adds a poll: counters grow by `by`, gauges get the values in `levels`.
    pub fn poll(&mut self, table: &mut Table, by: &[u64], levels: &[(usize, i64)]) {
        table.counts.iter_mut().zip(by).for_each(|(count, by)| *count += by);
        let mut values: Vec<Option<RawValue>> =
            table.counts.iter().map(|count| Some(RawValue(*count))).collect();
        levels.iter().for_each(|(at, level)| values[*at] = Some(RawValue::from_gauge(*level)));
        let uptime = Some(((table.at - table.began) / 10_000_000 + 360_000) as u32);
        let answer = Answer { answered_at: Timestamp(table.at + S / 50), uptime, values };
        self.response(table, Some(answer));
    }

    /// Adds a poll without an answer.
    pub fn silence(&mut self, table: &mut Table) {
        self.response(table, None);
    }

    /// Restarts the agent and its counters.
    pub fn restart(&mut self, table: &mut Table) {
        table.began = table.at + 360_000 * 10_000_000;
        table.counts.fill(0);
    }

    /// Adds a poll whose answer has these values.
    pub fn answer(&mut self, table: &mut Table, values: Vec<Option<RawValue>>) {
        let answered = Timestamp(table.at + S / 50);
        self.response(table, Some(Answer { answered_at: answered, uptime: None, values }));
    }

    fn response(&mut self, table: &mut Table, answer: Option<Answer>) {
        let asked = Timestamp(table.at);
        self.writer
            .append(table.layout.table, &Response { due_at: asked, requested_at: asked, answer })
            .unwrap();
        table.at += table.period;
        // At most one chunk may be buffered.
        if (table.at / table.period) % 256 == 0 {
            self.writer.flush().unwrap();
        }
    }

    pub fn flush(&mut self) {
        self.writer.flush().unwrap();
    }

    pub fn serve(&self) -> Served {
        self.serve_with(None)
    }

    pub fn serve_with(&self, token: Option<&str>) -> Served {
        let token = token.map(|token| Token::new(token).unwrap());
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(&Options { archive: self.path.clone().into(), listen, token }).unwrap();
        let (address, stop) = (server.address(), server.stop_handle());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Served { address, stop, thread: Some(thread) }
    }
}

/// A running server; dropping it stops the server.
pub struct Served {
    pub address: SocketAddr,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server ended in a panic");
        }
    }
}

/// Creates an archive with two counters and a gauge of one port of `core1`, one poll per second from 1,000 s to 1,099
/// s; the counter grows by 1,000 octets per second, and polls 50 to 59 have no answer. Also two switches with a
/// channel from `alpha` to `omega`, and a host.
pub fn small() -> Fixture {
    let mut fixture = Fixture::new();
    let port = |way: &str| series(&format!("port/eth0/{way}/octets"), ValueKind::Counter64, "octets");
    let all = vec![port("in"), port("out"), series("port/eth0/speed", ValueKind::Gauge, "b/s")];
    let mut core = fixture.table("core1", "interfaces", S, 1_000 * S, all);
    for poll in 0..100 {
        if (50..60).contains(&poll) {
            core.counts[0] += 1_000;
            core.counts[1] += 500;
            fixture.silence(&mut core);
        } else {
            fixture.poll(&mut core, &[1_000, 500], &[(2, 1_000_000_000)]);
        }
    }
    fixture.put_texts("core1", &[("", "name", "core1.example"), ("port/eth0", "state", "up")], 1_000 * S);
    fixture.put_texts(
        "core1",
        &[("agent", "trouble with interfaces", "slow"), ("agent", "trouble with paths", "")],
        1_000 * S,
    );
    for (device, from, to) in [("s1", "a/0.33", "b/2.40"), ("s2", "x/2.40", "y/0.99")] {
        let cells = |object: &str, way: &str| {
            series(&format!("vc/{object}/{way}/cells"), ValueKind::Counter32, "cells")
        };
        let mut table =
            fixture.table(device, "channels", S, 1_000 * S, vec![cells(from, "in"), cells(to, "out")]);
        (0..10).for_each(|_| fixture.poll(&mut table, &[70, 70], &[]));
    }
    let link = |object, text| (object, "link", text);
    fixture.put_texts(
        "s1",
        &[
            link("port/a", "alpha port/atm0"),
            link("port/b", "s2 port/x"),
            ("vc/a/0.33", "cross", "vc/b/2.40"),
        ],
        0,
    );
    fixture.put_texts("s2", &[link("port/y", "omega"), ("vc/x/2.40", "cross", "vc/y/0.99")], 0);
    let mut ping =
        fixture.table("alpha", "ping", S, 1_000 * S, vec![series("host/delay", ValueKind::Gauge, "ns")]);
    (0..10).for_each(|_| fixture.poll(&mut ping, &[0], &[(0, 250_000)]));
    let hostile = series(
        &format!("port/{}/in/octets", HOSTILE_PORT.replace('/', "%2F")),
        ValueKind::Counter64,
        "<b>octets</b>",
    );
    let mut table = fixture.table(HOSTILE, "interfaces", S, 1_000 * S, vec![hostile]);
    (0..10).for_each(|_| fixture.poll(&mut table, &[100], &[]));
    fixture.put_texts(HOSTILE, &[("", "name", HOSTILE), ("", "</dt><script>", HOSTILE_PORT)], 0);
    fixture.flush();
    fixture
}

/// Adds traffic of a backbone router over the last hours: daily variation, bursts, an outage, a restart.
pub fn plausible(fixture: &mut Fixture, hours: i64) -> Vec<Table> {
    const PERIOD: i64 = 5 * S;
    let polls = hours * 3_600 / 5;
    let begin = now() - polls * PERIOD;
    let mut stream = Seed(1996).stream("traffic");
    let names = ["et-0%2F0%2F0", "et-0%2F0%2F1", "xe-1%2F0%2F0", "xe-1%2F0%2F1"];
    let all = names.iter().flat_map(|name| {
        ["in", "out"].map(|way| series(&format!("port/{name}/{way}/octets"), ValueKind::Counter64, "octets"))
    });
    let mut edge = fixture.table("edge1.lawrence", "interfaces", PERIOD, begin, all.collect());
    let mut hosts = Vec::new();
    for (at, host) in ["merlin", "gandalf", "houdini", "blackstone"].into_iter().enumerate() {
        let delay = vec![series("host/delay", ValueKind::Gauge, "ns")];
        hosts.push((at, fixture.table(host, "ping", PERIOD, begin, delay)));
    }
    let (mut bursts, mut levels) = ([0u64; 8], [0.5f64; 8]);
    for poll in 0..polls {
        let swing = 0.65 + 0.35 * ((poll as f64) / (polls as f64) * 7.0).sin();
        let by: Vec<u64> = (0..8)
            .map(|at| {
                levels[at] = (levels[at] * 0.93 + unit(&mut stream) * 0.07 * 1.6).clamp(0.05, 1.5);
                if stream.below(220) == 0 {
                    bursts[at] = 4 + stream.below(40);
                }
                bursts[at] = bursts[at].saturating_sub(1);
                let burst = if bursts[at] > 0 { 1.5 } else { 1.0 };
                let scale = [240e6, 150e6, 60e6, 45e6, 20e6, 25e6, 9e6, 4e6][at] * 5.0;
                (scale * swing * levels[at] * burst * (0.9 + 0.2 * unit(&mut stream))) as u64
            })
            .collect();
        match poll * 1_000 / polls {
            // The router counts on while it does not answer.
            430..452 => {
                edge.counts.iter_mut().zip(&by).for_each(|(count, by)| *count += by);
                fixture.silence(&mut edge);
            }
            share => {
                if share == 712 && (poll - 1) * 1_000 / polls < 712 {
                    fixture.restart(&mut edge);
                }
                fixture.poll(&mut edge, &by, &[]);
            }
        }
        for (at, table) in &mut hosts {
            let delay =
                [180_000, 950_000, 12_400_000, 2_200_000][*at] as f64 * (0.9 + 0.3 * unit(&mut stream));
            if *at == 3 && poll > polls - 40 {
                fixture.silence(table)
            } else {
                fixture.poll(table, &[], &[(0, delay as i64)])
            }
        }
    }
    for (name, text) in names.iter().zip(["to Overland Park", "to Sioux Falls", "campus", "lab 3"]) {
        let object = format!("port/{name}");
        let texts = [(object.as_str(), "description", text), (object.as_str(), "state", "up")];
        fixture.put_texts("edge1.lawrence", &texts, begin);
    }
    fixture.flush();
    let mut tables = vec![edge];
    tables.extend(hosts.into_iter().map(|(_, table)| table));
    tables
}

fn unit(stream: &mut Stream) -> f64 {
    stream.below(1_000_000) as f64 / 1e6
}

//! `trunkline monitor forward`: what comes into the archive goes on to Prometheus or its like.
//!
//! Remote write 1.0: a protobuf message, compressed by Snappy, posted over HTTP. How far each table was sent is kept in a
//! small file, or in the archive's database, after each message that was taken, so that a program that ends at any
//! moment sends at most one message twice when it begins again. Nothing is kept in memory but what is read of a table at
//! a time and one message.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use trunkline_counters::archive::prometheus::{Name, milliseconds, sample};
use trunkline_counters::archive::{Error, Reader, Row, SeriesInfo, TableId, TableInfo};
use trunkline_counters::counter::{Moment, Raw};
use trunkline_run::Stop;

use super::{existing, failed};
use crate::commands::report::write_whole;
use crate::commands::run::stop_on_signals;
use crate::failure::{Failure, say};
use crate::flags::counters::Forward;

/// Samples of a message, about: what receivers like.
const SAMPLES: usize = 5_000;
/// Patience with a server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between tries, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Octets of an answer that are shown.
const SHOWN: u64 = 200;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// What became of a message.
enum Sent {
    Taken,
    /// The server wants none of it, and will not later either.
    Refused(String),
    /// It may want it later.
    Later(String),
}

/// Why a round ended early.
enum Ended {
    /// The database is away for a while.
    Away(Error),
    Failed(Failure),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        if matches!(error, Error::Lost { .. }) { Ended::Away(error) } else { Ended::Failed(failed(error)) }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

/// How far each table was sent: when the last response that was sent came.
enum State {
    /// In a file, of each server and table; nanoseconds since 1970.
    File(PathBuf, BTreeMap<String, BTreeMap<String, i64>>),
    /// In the archive itself.
    Archive(BTreeMap<TableId, Moment>),
}

impl State {
    fn new(flags: &Forward, reader: &Reader) -> Result<State, Failure> {
        let kept = if flags.state.is_some() { None } else { reader.sent(&flags.to).map_err(failed)? };
        let place = match (&flags.state, kept, flags.archive.file()) {
            (_, Some(came), _) => return Ok(State::Archive(came)),
            (Some(place), ..) => place.clone(),
            (None, None, file) => {
                let mut name = file.unwrap_or(Path::new("archive")).as_os_str().to_owned();
                name.push("-forward");
                name.into()
            }
        };
        match fs::read(&place) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(came) => Ok(State::File(place, came)),
                Err(e) => {
                    Err(Failure::input(format!("{} does not say how far it came: {e}", place.display())))
                }
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(State::File(place, BTreeMap::new())),
            Err(e) => Err(Failure::run(format!("cannot read {}: {e}", place.display()))),
        }
    }

    fn after(&self, to: &str, table: TableId) -> Option<Moment> {
        match self {
            State::File(_, came) => came.get(to)?.get(&table.0.to_string()).copied().map(Moment),
            State::Archive(came) => came.get(&table).copied(),
        }
    }

    fn put(&mut self, to: &str, new: BTreeMap<TableId, Moment>, reader: &Reader) -> Result<(), Ended> {
        match self {
            State::File(place, came) => {
                let tables = came.entry(to.to_owned()).or_default();
                tables.extend(new.into_iter().map(|(table, at)| (table.0.to_string(), at.0)));
                Ok(write_whole(place, &serde_json::to_vec(&came).map_err(Failure::run)?)?)
            }
            State::Archive(came) => {
                reader.put_sent(to, &new)?;
                came.extend(new);
                Ok(())
            }
        }
    }
}

/// Sends what is there, and what comes.
pub fn forward(flags: &Forward) -> Result<(), Failure> {
    if !flags.to.starts_with("http://") {
        let why = if flags.to.starts_with("https://") { ": a proxy on loopback may speak TLS" } else { "" };
        return Err(Failure::input(format!("`{}` does not begin with http://{why}", flags.to)));
    }
    let reader = existing(&flags.archive)?;
    let stop = stop_on_signals()?;
    let mut sender = Sender::new(flags, stop, &reader)?;
    let mut pause = PAUSE.0;
    loop {
        let sent = match sender.round() {
            // It comes back, and what was not noted as sent is sent then.
            Err(Ended::Away(error)) if !flags.once => {
                complain(&format!("{error}; trying again in {} s", pause.as_secs()));
                sender.wait(pause);
                if sender.stop.asked() {
                    return Err(failed(error));
                }
                pause = (pause * 2).min(PAUSE.1);
                continue;
            }
            Err(Ended::Away(error)) => return Err(failed(error)),
            Err(Ended::Failed(failure)) => return Err(failure),
            Ok(sent) => sent,
        };
        pause = PAUSE.0;
        if flags.once || sender.stop.asked() {
            return say(&format!("{} samples sent, {} refused\n", sender.taken, sender.refused));
        }
        if sent == 0 {
            sender.wait(Duration::from_nanos(flags.every.as_ns()));
        }
    }
}

struct Sender<'a> {
    flags: &'a Forward,
    agent: ureq::Agent,
    stop: Stop,
    reader: &'a Reader,
    state: State,
    /// Where what was never sent begins.
    from: Moment,
    taken: u64,
    refused: u64,
}

impl<'a> Sender<'a> {
    fn new(flags: &'a Forward, stop: Stop, reader: &'a Reader) -> Result<Sender<'a>, Failure> {
        let state = State::new(flags, reader)?;
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("trunkline/", env!("CARGO_PKG_VERSION")))
            .build();
        let hour = Duration::from_secs(3600);
        let from =
            flags.from.unwrap_or_else(|| super::time::now().before(hour)).before(Duration::from_nanos(1));
        Ok(Sender { flags, agent: config.into(), stop, reader, state, from, taken: 0, refused: 0 })
    }

    /// Sends everything that is there now; how many samples.
    fn round(&mut self) -> Result<u64, Ended> {
        let reader = self.reader;
        let mut tables = Vec::new();
        let _: ControlFlow<()> = reader.each_table(|table| {
            tables.push(table.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        let before = self.taken + self.refused;
        let mut message = Pending::default();
        for table in &tables {
            let series = reader.series(table.id)?;
            let mut after = self.after(table.id);
            loop {
                let rows = (SAMPLES / series.len().max(1)).max(1);
                let found = reader.responses(table.id, after, rows)?;
                for part in found.responses.chunks(rows) {
                    message.add(table, &series, part);
                    after = part.last().map_or(after, |(row, _)| row.at());
                    message.came.insert(table.id, after);
                    if message.samples >= SAMPLES {
                        self.send(std::mem::take(&mut message))?;
                    }
                    if self.stop.asked() {
                        return Ok(0);
                    }
                }
                if !found.more {
                    break;
                }
            }
        }
        self.send(message)?;
        Ok(self.taken + self.refused - before)
    }

    fn after(&self, table: TableId) -> Moment {
        self.state.after(&self.flags.to, table).unwrap_or(self.from)
    }

    /// Sends a message until it is taken or refused; none if there is nothing in it.
    fn send(&mut self, message: Pending) -> Result<(), Ended> {
        let Pending { request, samples, came } = message;
        if samples > 0 {
            let bytes = request.encode_to_vec();
            let body = snap::raw::Encoder::new().compress_vec(&bytes).map_err(Failure::run)?;
            let mut pause = PAUSE.0;
            loop {
                match self.post(&body) {
                    Sent::Taken => {
                        self.taken += samples as u64;
                        break;
                    }
                    Sent::Refused(why) => {
                        self.refused += samples as u64;
                        complain(&format!("{samples} samples were refused: {why}"));
                        break;
                    }
                    Sent::Later(why) if self.flags.once => {
                        return Err(Failure::run(format!("cannot send to {}: {why}", self.flags.to)).into());
                    }
                    Sent::Later(why) => {
                        complain(&format!("cannot send, trying again in {} s: {why}", pause.as_secs()));
                        self.wait(pause);
                        if self.stop.asked() {
                            return Ok(());
                        }
                        pause = (pause * 2).min(PAUSE.1);
                    }
                }
            }
        }
        if !came.is_empty() {
            self.state.put(&self.flags.to, came, self.reader)?;
        }
        Ok(())
    }

    fn post(&self, body: &[u8]) -> Sent {
        let sent = self
            .agent
            .post(&self.flags.to)
            .header("Content-Type", "application/x-protobuf")
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0")
            .send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return Sent::Later(error.to_string()),
        };
        let status = response.status();
        if status.is_success() {
            return Sent::Taken;
        }
        let text = response.body_mut().with_config().limit(SHOWN).lossy_utf8(true).read_to_string();
        let text = text.unwrap_or_default();
        let why = format!("{status} {}", text.lines().next().unwrap_or_default());
        // What a client has done wrong it will do wrong again; but not that it comes too often.
        if status.is_client_error() && ![408, 429].contains(&status.as_u16()) {
            Sent::Refused(why)
        } else {
            Sent::Later(why)
        }
    }

    /// Waits, unless a signal comes.
    fn wait(&self, time: Duration) {
        const LOOK: Duration = Duration::from_millis(100);
        let mut left = time;
        while !left.is_zero() && !self.stop.asked() {
            let nap = left.min(LOOK);
            #[expect(clippy::disallowed_methods, reason = "there is nothing to do until then")]
            std::thread::sleep(nap);
            left -= nap;
        }
    }
}

fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "trunkline: {}", trunkline_report::plain(line));
}

/// A message that is made.
#[derive(Default)]
struct Pending {
    request: WriteRequest,
    samples: usize,
    /// Of each table in it, when its last response came.
    came: BTreeMap<TableId, Moment>,
}

impl Pending {
    fn add(&mut self, table: &TableInfo, series: &[SeriesInfo], rows: &[(Row, Vec<Option<Raw>>)]) {
        for one in series {
            let mut samples: Vec<Sample> = Vec::new();
            for (row, values) in rows {
                let value = values.get(one.position).copied().flatten();
                let Some((answered, raw)) = row.answered.zip(value) else { continue };
                let timestamp = milliseconds(answered);
                // Of two answers in a millisecond the later one stands.
                samples.pop_if(|last| last.timestamp == timestamp);
                samples.push(Sample { value: sample(raw, one.column.kind), timestamp });
            }
            if samples.is_empty() {
                continue;
            }
            let name = Name::of(table, one);
            let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
            // In the order of names, in which capitals and `_` come first.
            let mut labels = vec![label("__name__", &name.metric)];
            labels.extend(name.labels.iter().map(|(name, value)| label(name, value)));
            self.samples += samples.len();
            self.request.timeseries.push(TimeSeries { labels, samples });
        }
    }
}

//! `trunkline monitor forward`: new readings of an archive to Prometheus or a compatible receiver.
//!
//! Remote write 1.0: a protobuf message, compressed with Snappy, in an HTTP POST request. After each accepted message the
//! time of the last response sent of each table is stored in a small file, or in the database of the archive. After a crash
//! at most one message is therefore sent twice. Memory holds one page of a table and one message.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use trunkline_counters::archive::prometheus::{MetricName, to_milliseconds};
use trunkline_counters::archive::{Error, Location, Reader, Row, SeriesInfo, TableId, TableInfo};
use trunkline_counters::counter::{RawValue, Timestamp};
use trunkline_run::StopFlag;

use super::open_reader;
use crate::archive::counters_archive;
use crate::commands::report::write_atomically;
use crate::commands::run::stop_on_signals;
use crate::failure::{Failure, print, warn};
use crate::flags::monitor::Forward;

/// Approximate number of samples per message.
const SAMPLES_PER_MESSAGE: usize = 5_000;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a retry: initial and maximum.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Maximum length of a response body in a warning, in bytes.
const MAX_SHOWN_RESPONSE: u64 = 200;

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

/// The outcome of a request.
enum PostOutcome {
    Accepted,
    /// The receiver rejected the message; a retry would fail, too.
    Rejected(String),
    /// The request may succeed later.
    Retry(String),
}

/// Why sending stopped.
enum RoundError {
    /// The database is temporarily unreachable.
    Unreachable(Error),
    Failed(Failure),
}

impl From<Error> for RoundError {
    fn from(error: Error) -> RoundError {
        if matches!(error, Error::Disconnected { .. }) {
            RoundError::Unreachable(error)
        } else {
            RoundError::Failed(error.into())
        }
    }
}

impl From<Failure> for RoundError {
    fn from(failure: Failure) -> RoundError {
        RoundError::Failed(failure)
    }
}

/// The time of the last response sent of each table.
enum Progress {
    /// In a file, per URL and table, in nanoseconds since 1970.
    File(PathBuf, BTreeMap<String, BTreeMap<String, i64>>),
    /// In the database of the archive.
    Archive(BTreeMap<TableId, Timestamp>),
}

impl Progress {
    fn load(flags: &Forward, archive: &Location, reader: &Reader) -> Result<Progress, Failure> {
        let stored = if flags.state.is_some() { None } else { reader.forwarded(&flags.to)? };
        let path = match (&flags.state, stored, archive.file()) {
            (_, Some(last_times), _) => return Ok(Progress::Archive(last_times)),
            (Some(path), ..) => path.clone(),
            (None, None, file) => {
                let mut name = file.unwrap_or(Path::new("archive")).as_os_str().to_owned();
                name.push("-forward");
                name.into()
            }
        };
        match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(last_times) => Ok(Progress::File(path, last_times)),
                Err(e) => Err(Failure::input(format!(
                    "{} is not a state file of `monitor forward`: {e}",
                    path.display()
                ))),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Progress::File(path, BTreeMap::new())),
            Err(e) => Err(Failure::run(format!("cannot read {}: {e}", path.display()))),
        }
    }

    fn after(&self, to: &str, table: TableId) -> Option<Timestamp> {
        match self {
            Progress::File(_, last_times) => {
                last_times.get(to)?.get(&table.0.to_string()).copied().map(Timestamp)
            }
            Progress::Archive(last_times) => last_times.get(&table).copied(),
        }
    }

    fn update(
        &mut self,
        to: &str,
        new: BTreeMap<TableId, Timestamp>,
        reader: &Reader,
    ) -> Result<(), RoundError> {
        match self {
            Progress::File(path, last_times) => {
                let tables = last_times.entry(to.to_owned()).or_default();
                tables.extend(new.into_iter().map(|(table, at)| (table.0.to_string(), at.0)));
                Ok(write_atomically(path, &serde_json::to_vec(&last_times).map_err(Failure::run)?)?)
            }
            Progress::Archive(last_times) => {
                reader.put_forwarded(to, &new)?;
                last_times.extend(new);
                Ok(())
            }
        }
    }
}

/// Sends all readings, then new ones until a signal arrives.
pub fn forward(flags: &Forward) -> Result<(), Failure> {
    if !flags.to.starts_with("http://") {
        let needs_tls = flags.to.starts_with("https://");
        let hint = if needs_tls { ": use a proxy on the loopback interface for TLS" } else { "" };
        return Err(Failure::input(format!("`{}` does not begin with http://{hint}", flags.to)));
    }
    let archive = counters_archive(&flags.archive, flags.positional.as_ref())?;
    let reader = open_reader(&archive)?;
    let stop = stop_on_signals()?;
    let mut sender = Sender::new(flags, &archive, stop, &reader)?;
    let mut delay = RETRY_DELAY.0;
    loop {
        let sent = match sender.send_pending() {
            // Unconfirmed readings are sent again when the database is back.
            Err(RoundError::Unreachable(error)) if !flags.once => {
                warn(&format!("{error}; trying again in {} s", delay.as_secs()));
                sender.wait(delay);
                if sender.stop.is_requested() {
                    return Err(error.into());
                }
                delay = (delay * 2).min(RETRY_DELAY.1);
                continue;
            }
            Err(RoundError::Unreachable(error)) => return Err(error.into()),
            Err(RoundError::Failed(failure)) => return Err(failure),
            Ok(sent) => sent,
        };
        delay = RETRY_DELAY.0;
        if flags.once || sender.stop.is_requested() {
            return print(&format!("{} samples sent, {} refused\n", sender.accepted, sender.rejected));
        }
        if sent == 0 {
            sender.wait(flags.interval.into());
        }
    }
}

struct Sender<'a> {
    flags: &'a Forward,
    agent: ureq::Agent,
    stop: StopFlag,
    reader: &'a Reader,
    progress: Progress,
    /// Start time of tables that were never sent.
    from: Timestamp,
    accepted: u64,
    rejected: u64,
}

impl<'a> Sender<'a> {
    fn new(
        flags: &'a Forward,
        archive: &Location,
        stop: StopFlag,
        reader: &'a Reader,
    ) -> Result<Sender<'a>, Failure> {
        let progress = Progress::load(flags, archive, reader)?;
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("trunkline/", env!("CARGO_PKG_VERSION")))
            .build();
        let hour = Duration::from_secs(3600);
        let from = flags
            .from
            .unwrap_or_else(|| super::time::now().saturating_sub(hour))
            .saturating_sub(Duration::from_nanos(1));
        Ok(Sender { flags, agent: config.into(), stop, reader, progress, from, accepted: 0, rejected: 0 })
    }

    /// Sends all new readings and returns the number of samples.
    fn send_pending(&mut self) -> Result<u64, RoundError> {
        let reader = self.reader;
        let mut tables = Vec::new();
        let _: ControlFlow<()> = reader.for_each_table(|table| {
            tables.push(table.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        let before = self.accepted + self.rejected;
        let mut message = PendingMessage::default();
        for table in &tables {
            let series = reader.series(table.id)?;
            let mut after = self.progress.after(&self.flags.to, table.id).unwrap_or(self.from);
            loop {
                let rows = (SAMPLES_PER_MESSAGE / series.len().max(1)).max(1);
                let found = reader.responses(table.id, after, rows)?;
                for part in found.responses.chunks(rows) {
                    message.add(table, &series, part);
                    after = part.last().map_or(after, |(row, _)| row.time());
                    message.last_times.insert(table.id, after);
                    if message.samples >= SAMPLES_PER_MESSAGE {
                        self.send(std::mem::take(&mut message))?;
                    }
                    if self.stop.is_requested() {
                        return Ok(0);
                    }
                }
                if !found.more {
                    break;
                }
            }
        }
        self.send(message)?;
        Ok(self.accepted + self.rejected - before)
    }

    /// Sends a message until the receiver accepts or rejects it; skips an empty message.
    fn send(&mut self, message: PendingMessage) -> Result<(), RoundError> {
        let PendingMessage { request, samples, last_times } = message;
        if samples > 0 {
            let bytes = request.encode_to_vec();
            let body = snap::raw::Encoder::new().compress_vec(&bytes).map_err(Failure::run)?;
            let mut delay = RETRY_DELAY.0;
            loop {
                match self.post(&body) {
                    PostOutcome::Accepted => {
                        self.accepted += samples as u64;
                        break;
                    }
                    PostOutcome::Rejected(reason) => {
                        self.rejected += samples as u64;
                        warn(&format!("{samples} samples were refused: {reason}"));
                        break;
                    }
                    PostOutcome::Retry(reason) if self.flags.once => {
                        return Err(
                            Failure::run(format!("cannot send to {}: {reason}", self.flags.to)).into()
                        );
                    }
                    PostOutcome::Retry(reason) => {
                        warn(&format!("cannot send, trying again in {} s: {reason}", delay.as_secs()));
                        self.wait(delay);
                        if self.stop.is_requested() {
                            return Ok(());
                        }
                        delay = (delay * 2).min(RETRY_DELAY.1);
                    }
                }
            }
        }
        if !last_times.is_empty() {
            self.progress.update(&self.flags.to, last_times, self.reader)?;
        }
        Ok(())
    }

    fn post(&self, body: &[u8]) -> PostOutcome {
        let sent = self
            .agent
            .post(&self.flags.to)
            .header("Content-Type", "application/x-protobuf")
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0")
            .send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return PostOutcome::Retry(error.to_string()),
        };
        let status = response.status();
        if status.is_success() {
            return PostOutcome::Accepted;
        }
        let text =
            response.body_mut().with_config().limit(MAX_SHOWN_RESPONSE).lossy_utf8(true).read_to_string();
        let text = text.unwrap_or_default();
        let reason = format!("{status} {}", text.lines().next().unwrap_or_default());
        // A client error repeats on retry, except a timeout (408) or a rate limit (429).
        if status.is_client_error() && ![408, 429].contains(&status.as_u16()) {
            PostOutcome::Rejected(reason)
        } else {
            PostOutcome::Retry(reason)
        }
    }

    /// Waits until `time` has passed or a signal arrives.
    fn wait(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(100);
        let mut left = time;
        while !left.is_zero() && !self.stop.is_requested() {
            let step = left.min(STEP);
            #[expect(clippy::disallowed_methods, reason = "nothing to do until then")]
            std::thread::sleep(step);
            left -= step;
        }
    }
}

/// A message under construction.
#[derive(Default)]
struct PendingMessage {
    request: WriteRequest,
    samples: usize,
    /// Time of the last response of each table in the message.
    last_times: BTreeMap<TableId, Timestamp>,
}

impl PendingMessage {
    fn add(&mut self, table: &TableInfo, series: &[SeriesInfo], rows: &[(Row, Vec<Option<RawValue>>)]) {
        for one in series {
            let mut samples: Vec<Sample> = Vec::new();
            for (row, values) in rows {
                let value = values.get(one.position).copied().flatten();
                let Some((answered, raw)) = row.answered_at.zip(value) else { continue };
                let timestamp = to_milliseconds(answered);
                // Of two answers in one millisecond, send the later one.
                samples.pop_if(|last| last.timestamp == timestamp);
                samples.push(Sample { value: raw.to_f64(one.column.kind), timestamp });
            }
            if samples.is_empty() {
                continue;
            }
            let name = MetricName::new(table, one);
            let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
            // Labels must be sorted by name; `_` sorts before lower-case letters.
            let mut labels = vec![label("__name__", &name.metric)];
            labels.extend(name.labels.iter().map(|(name, value)| label(name, value)));
            self.samples += samples.len();
            self.request.timeseries.push(TimeSeries { labels, samples });
        }
    }
}

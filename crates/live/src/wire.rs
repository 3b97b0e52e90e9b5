//! The protocol between controller and agents: JSON, one message a line, over a private stream.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::{Measure, Protocol};
use trunkline_record::schema::Measured;
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_traffic::Pattern;
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Seed, Size, Span};

use crate::consent::{RunId, RunKey};
use crate::station::StationConfig;
use crate::time_exchange::TimeGrant;
use crate::{bundles, locked};

/// Maximum length of a line.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// Maximum length of messages that an agent on another machine receives at once, in bytes: it has so much in memory.
pub const MAX_REMOTE_MESSAGES: usize = 16 << 20;
/// Maximum length of one of them, with its line end. It may be in one request with others.
pub(crate) const MAX_REMOTE_MESSAGE: usize = MAX_REMOTE_MESSAGES - (64 << 10);

/// Identifies one end of one repetition of one connection.
pub type EndId = u32;

/// A message from the controller to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControllerMessage {
    /// The first message: the value of the agent's monotonic clock when the run began. With `consent_at`, the agent
    /// exchanges consent datagrams at this address, answers requests for the time there if `time` grants it, and answers
    /// with `ConsentAddress`.
    Hello {
        epoch_ns: u64,
        station: Option<StationConfig>,
        bundles: Option<Box<bundles::BundleNode>>,
        consent_at: Option<IpAddr>,
        time: Option<TimeGrant>,
    },
    /// Compares an end with the limits of the agent's owner, without opening it. Its ports may be 0 where they are not yet
    /// known. The agent answers with `Permitted` or `Refused`.
    Check(Box<EndSpec>),
    /// Opens an end. The agent answers with `Ready`, `Refused` or `Failed`.
    Prepare(Box<EndSpec>),
    /// Reads counters of the kernel until the shutdown.
    Measure(Measure),
    /// Starts an end at this instant.
    Start(EndId, Instant),
    /// Reports to a receiver how many messages were sent: it receives those that are still in flight, then reports.
    Finish(EndId, u64),
    /// Stops an end immediately; it reports.
    Stop(EndId),
    /// Ends the agent: it reports its processor time and exits.
    Shutdown,
}

/// A message from an agent to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AgentMessage {
    /// Heartbeat, twice a second.
    Alive,
    /// Where the agent exchanges consent datagrams, or why it cannot.
    ConsentAddress(#[serde(deserialize_with = "text::result")] Result<SocketAddr, String>),
    /// The limits of the agent's owner permit an end.
    Permitted(EndId),
    /// They forbid it. `connection` is the name of its repetition.
    Refused {
        id: EndId,
        #[serde(deserialize_with = "text::name")]
        connection: String,
        #[serde(deserialize_with = "text::cause")]
        cause: String,
    },
    /// An end is open at this address. Of a receiver over QUIC also the SHA-256 of its public key.
    Ready(EndId, SocketAddr, Option<[u8; 32]>),
    /// What an end has measured so far.
    Progress(EndId, Report),
    /// The final report of an end.
    Done(EndId, Report),
    /// An end failed: the cause in one line and what the end had measured.
    Failed(EndId, #[serde(deserialize_with = "text::cause")] String, Option<Report>),
    /// How many subscriptions the converter has: the central converter counts addresses of hosts, a level-1 converter
    /// counts groups.
    KnownSubscriptions(u64),
    /// The converter or host interface failed: the cause.
    ConverterFailed(#[serde(deserialize_with = "text::cause")] String),
    /// Counters of the converter or host interface, by their names in the record.
    Counters(BTreeMap<String, u64>),
    /// Readings of the kernel's counters since the report before.
    Measured(Measured),
    /// The measures that the operating system of the agent lacks; not sent if there are none.
    Missing(#[serde(deserialize_with = "text::names")] Vec<String>),
    /// Processor time of the agent process, user and system, in seconds.
    CpuTime(f64, f64),
}

/// Texts of an agent, which its controller shows: each is one line of limited length from here on.
mod text {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer};
    use trunkline_run::reports::Notes;

    /// Maximum number of characters of a name.
    pub const MAX_NAME: usize = 64;
    /// Maximum number of characters of a cause.
    pub const MAX_CAUSE: usize = 200;
    /// Maximum number of characters of a note, which may describe several things.
    pub const MAX_NOTE: usize = 1_000;
    /// Maximum number of names.
    pub const MAX_NAMES: usize = 64;

    /// Cuts a text, and replaces characters that would not be shown in its line.
    pub fn cut(text: &str, max: usize) -> String {
        let is_shown = |c: char| {
            !c.is_control()
                && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        let shown = |c: char| if is_shown(c) { c } else { '?' };
        let is_long = text.chars().nth(max).is_some();
        let end = if is_long { "…" } else { "" };
        text.chars().take(max - usize::from(is_long)).map(shown).collect::<String>() + end
    }

    pub fn cut_notes(notes: &mut Notes) {
        let received = std::mem::take(notes).into_iter().take(MAX_NAMES);
        *notes = received.map(|(name, note)| (cut(&name, MAX_NAME), cut(&note, MAX_NOTE))).collect();
    }

    pub fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(cut(&String::deserialize(from)?, MAX_NAME))
    }

    pub fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        Ok(names.iter().take(MAX_NAMES).map(|name| cut(name, MAX_NAME)).collect())
    }

    pub fn cause<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(cut(&String::deserialize(from)?, MAX_CAUSE))
    }

    pub fn result<'de, D: Deserializer<'de>>(from: D) -> Result<Result<SocketAddr, String>, D::Error> {
        let result = Result::<SocketAddr, String>::deserialize(from)?;
        Ok(result.map_err(|cause| cut(&cause, MAX_CAUSE)))
    }
}

/// What an end measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "ReceivedReport")]
pub enum Report {
    Sender(Box<SenderReport>),
    Receiver(Box<ReceiverReport>),
}

/// A report whose texts may have any length.
#[derive(Deserialize)]
enum ReceivedReport {
    Sender(Box<SenderReport>),
    Receiver(Box<ReceiverReport>),
}

impl From<ReceivedReport> for Report {
    fn from(report: ReceivedReport) -> Self {
        match report {
            ReceivedReport::Sender(mut report) => {
                text::cut_notes(&mut report.notes);
                Report::Sender(report)
            }
            ReceivedReport::Receiver(mut report) => {
                text::cut_notes(&mut report.notes);
                report.error = report.error.map(|error| text::cut(&error, text::MAX_CAUSE));
                Report::Receiver(report)
            }
        }
    }
}

impl From<SenderReport> for Report {
    fn from(report: SenderReport) -> Self {
        Report::Sender(Box::new(report))
    }
}

impl From<ReceiverReport> for Report {
    fn from(report: ReceiverReport) -> Self {
        Report::Receiver(Box::new(report))
    }
}

/// Configuration of one end of one repetition of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndSpec {
    /// Identifies the end within the run of the experiment.
    pub id: EndId,
    /// Prefix of the names of its random streams: the name of the connection, and from the second repetition on
    /// ` / run N`.
    pub repetition_name: String,
    /// Identifies the messages of this repetition of this connection.
    pub token: u32,
    pub seed: Seed,
    pub address: IpAddr,
    /// Local port, if it is fixed.
    pub port: Option<u16>,
    /// Requested socket buffer.
    pub buffer: Option<Size>,
    pub protocol: Protocol,
    /// Differentiated services code point of sent packets, 0 to 63.
    pub dscp: Option<u8>,
    /// Interval between snapshots of the measurements, if an observer of the run requests them.
    pub report_interval: Option<Span>,
    pub pattern: Pattern,
    pub role: Role,
    /// Of a sender over QUIC, the SHA-256 of the receiver's public key.
    #[serde(default)]
    pub peer_key: Option<[u8; 32]>,
    /// Of a sender that obeys explicit rates, the address of their controller.
    #[serde(default)]
    pub rate_controller: Option<SocketAddr>,
    /// Number of a receiver, from 0 in the order of the plan.
    #[serde(default)]
    pub receiver: u32,
    /// Consent to the load of the connection; none if all its hosts are this machine.
    #[serde(default)]
    pub consent: EndConsent,
    /// The agent's monotonic clock when the run began, if it is known better than at `Hello`.
    #[serde(default)]
    pub epoch_ns: Option<u64>,
    /// The controller's wall clock when the run began, as time since 1970: timestamps in packets count from it.
    #[serde(default)]
    pub unix_epoch: Duration,
    /// What the agent's owner permits beyond the plan.
    #[serde(skip)]
    pub(crate) cut: Cut,
}

/// Limits of the agent's owner that end a test which the plan would continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Time for which the end sends.
    pub time: Option<Span>,
    /// Message bytes that it sends.
    pub bytes: Option<u64>,
}

/// Returns whether the receiver of a connection answers each message, which is load, too.
pub(crate) fn has_answers(protocol: &Protocol, pattern: &Pattern) -> bool {
    matches!(protocol, Protocol::Stamp) || pattern.has_responses()
}

/// Consent to the load of one repetition of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EndConsent {
    /// What the end must have before it sends load.
    pub needs: Option<NeededConsent>,
    /// What the end gives.
    pub gives: Option<GivenConsent>,
}

/// Consent that an end needs: proofs from the destination's consent address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NeededConsent {
    pub destination: SocketAddr,
    pub run: RunId,
    pub key: RunKey,
}

/// Consent that an end gives: to load from an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GivenConsent {
    pub source: IpAddr,
    pub run: RunId,
    pub key: RunKey,
}

/// A side of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    Sender {
        /// Destination address.
        peer: SocketAddr,
        limit: Limit,
        /// Number of receivers.
        #[serde(default)]
        receivers: usize,
        /// The file to send (`file`).
        file: Option<PathBuf>,
    },
    Receiver {
        /// Path for the received file (`file`).
        file: Option<PathBuf>,
    },
}

/// Returns the bytes of a message with its line end.
pub fn length(message: &impl Serialize) -> usize {
    struct Count(usize);

    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(1);
    // Counting does not fail, and plans have no keys that are not text.
    let _ = serde_json::to_writer(&mut count, message);
    count.0
}

/// Writes one message as a line.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// The stream to the controller, shared by all threads of an agent.
#[derive(Clone, Debug)]
pub struct AgentWriter(Arc<Mutex<UnixStream>>);

impl AgentWriter {
    pub fn new(stream: UnixStream) -> Self {
        AgentWriter(Arc::new(Mutex::new(stream)))
    }

    /// Sends a message. A failed write is ignored: it means that the controller has ended.
    pub fn send(&self, message: &AgentMessage) {
        let _ = write(&mut *locked(&self.0), message);
    }
}

/// Reads messages line by line.
#[derive(Debug)]
pub struct LineReader<R>(BufReader<R>);

impl<R: Read> LineReader<R> {
    pub fn new(stream: R) -> Self {
        LineReader(BufReader::new(stream))
    }

    /// Returns the next message, or `None` at the end of the stream.
    pub fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let length = self.0.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(message: &AgentMessage) -> AgentMessage {
        let mut line = Vec::new();
        write(&mut line, message).unwrap();
        LineReader::new(&line[..]).read().unwrap().unwrap()
    }

    #[test]
    fn texts_of_agents_are_one_line_of_limited_length() {
        let hostile = format!("a\n\u{1b}[2J\u{202e}{}", "x".repeat(10_000));
        let (name, cause) = (text::cut(&hostile, text::MAX_NAME), text::cut(&hostile, text::MAX_CAUSE));
        assert!(name.starts_with("a??[2J?xxx") && name.ends_with('…'), "{name}");
        assert_eq!((name.chars().count(), cause.chars().count()), (64, 200));
        assert_eq!(text::cut("it is full", 10), "it is full");
        let AgentMessage::Missing(missing) = received(&AgentMessage::Missing(vec![hostile.clone(); 100]))
        else {
            panic!("the measures that are missing")
        };
        assert_eq!(missing, vec![name.clone(); 64]);
        let refused = AgentMessage::Refused { id: 1, connection: hostile.clone(), cause: hostile.clone() };
        let AgentMessage::Refused { connection, cause: of_refusal, .. } = received(&refused) else {
            panic!("a refusal")
        };
        assert_eq!((connection, &of_refusal), (name, &cause));
        for message in [
            AgentMessage::Failed(1, hostile.clone(), None),
            AgentMessage::ConverterFailed(hostile.clone()),
            AgentMessage::ConsentAddress(Err(hostile.clone())),
        ] {
            match received(&message) {
                AgentMessage::Failed(_, text, _)
                | AgentMessage::ConverterFailed(text)
                | AgentMessage::ConsentAddress(Err(text)) => assert_eq!(text, cause),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn texts_of_reports_are_cut() {
        let long = "x".repeat(10_000);
        let mut report = ReceiverReport { error: Some(long.clone()), ..ReceiverReport::default() };
        report.notes.insert(long.clone(), long);
        let AgentMessage::Done(_, Report::Receiver(report)) = received(&AgentMessage::Done(1, report.into()))
        else {
            panic!("a report")
        };
        assert_eq!(report.error.unwrap().chars().count(), 200);
        let [(name, note)] = &report.notes.into_iter().collect::<Vec<_>>()[..] else { panic!("one note") };
        assert_eq!((name.chars().count(), note.chars().count()), (64, 1_000));
    }

    #[test]
    fn the_length_of_a_message_is_that_of_its_line() {
        let message = ControllerMessage::Finish(7, 1_000);
        let mut line = Vec::new();
        write(&mut line, &message).unwrap();
        assert_eq!(length(&message), line.len());
    }
}

//! What controller and agents say to each other: JSON, a line a message, over a stream that only they hold.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::Protocol;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_traffic::Pattern;
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Seed, Size};

use crate::bundles;
use crate::station::Place;

/// A line longer than this is not one of ours.
const LONGEST_LINE: u64 = 64 << 20;

/// Names one end of one run of one connection.
pub type EndId = u32;

/// From the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// First of all: what the monotonic clock read when the run began.
    Hello {
        /// Nanoseconds.
        epoch_ns: u64,
        /// The LLC station that the host is, if it is one.
        station: Option<Place>,
        /// What it has to do with bundles, if anything.
        bundles: Option<Box<bundles::Place>>,
    },
    /// Open an end; answered by `Ready` or `Failed`.
    Prepare(Box<End>),
    /// Begin at this moment.
    Start(EndId, Instant),
    /// The sender has sent this many messages: receive what is still under way, then report.
    Finish(EndId, u64),
    /// Stop now and report.
    Stop(EndId),
    /// No more orders: say what was used and go.
    Bye,
}

/// From an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Word {
    /// Said twice a second, so that silence means trouble.
    Alive,
    /// An end is open, at this address.
    Ready(EndId, SocketAddr),
    /// What an end has measured so far.
    Progress(EndId, Report),
    /// What an end has measured.
    Done(EndId, Report),
    /// An end failed: why, in one line, and what it had measured.
    Failed(EndId, String, Option<Report>),
    /// How much of what is wanted its converter knows of: of the central one what hosts want, of one of level 1 the groups
    /// that it has.
    Knows(u64),
    /// What should bundle here does not: why.
    Unable(String),
    /// What that counted, by the record's names.
    Counted(BTreeMap<String, u64>),
    /// Processor time of the whole agent, user and system, seconds.
    Used(f64, f64),
}

/// What an end measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// A sending end.
    Sender(Box<SenderReport>),
    /// A receiving end.
    Receiver(Box<ReceiverReport>),
}

/// One end of one run of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// Its name among the ends of this run.
    pub id: EndId,
    /// Where its random streams are named after: the connection, and the run if it repeats.
    pub place: String,
    /// Marks the messages of this run of this connection.
    pub token: u32,
    /// What random streams are drawn from.
    pub seed: Seed,
    /// The address it uses.
    pub address: IpAddr,
    /// The port it must use.
    pub port: Option<u16>,
    /// The socket buffer it was asked for.
    pub buffer: Option<Size>,
    /// What carries the messages.
    pub protocol: Protocol,
    /// Which messages.
    pub pattern: Pattern,
    /// Which side it is.
    pub role: Role,
}

/// Which side of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Sends.
    Sender {
        /// To this address.
        peer: SocketAddr,
        /// Until then.
        limit: Limit,
        /// The file to send (`file`).
        file: Option<PathBuf>,
    },
    /// Receives.
    Receiver {
        /// Where the file goes (`file`).
        file: Option<PathBuf>,
    },
}

/// Writes one message.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads messages.
#[derive(Debug)]
pub struct Reader<R>(BufReader<R>);

impl<R: Read> Reader<R> {
    /// From a stream.
    pub fn new(stream: R) -> Self {
        Reader(BufReader::new(stream))
    }

    /// The next message; none at the end of the stream.
    pub fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let length = self.0.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

//! The plan: the meaning of an experiment as plain data. Every default is filled, every name is resolved, and every
//! number is in the unit of its field. A backend reads only the plan.

mod explicit_rate;
mod network;
mod protocol;
mod queue;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Size, Span};

pub use explicit_rate::ExplicitRate;
pub(crate) use network::admission_loss;
pub use network::{
    Admission, Amount, BundleDeadlines, BundleFormat, BundleTimers, CellMode, ConverterRole, Declared,
    Encapsulation, HostCosts, Link, Medium, Network, Node, NodeKind, PacingCounts,
};
pub use protocol::{
    ArqCongestion, ArqFec, ArqMode, BundlePriority, Checksum, MAX_QUIC_DATAGRAM, Protocol, QuicCongestion,
    TcpController, TcpEcn, TcpExtensions, TcpTimers, TcpVariant,
};
pub use queue::{CoDel, LinkChange, Queue, TokenRate, Trace, TracePoints};

/// A location in the text: byte offsets, `start..end`. Not part of the plan's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceRange {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A whole experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment, by default the stem of the file name.
    pub name: String,
    /// All hosts, in order of first mention. Names are unique.
    pub hosts: Vec<String>,
    /// The nodes and links between the hosts. `sim` and `lab` need it; `live` does not apply it.
    pub network: Option<Network>,
    /// All connections, in order of mention. Names are unique.
    pub connections: Vec<Connection>,
    /// When each connection runs.
    pub schedule: Block,
    /// What is measured of hosts besides the connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<Measure>,
    /// Conditions on the record.
    pub expectations: Vec<Expectation>,
}

/// Counters of a host's kernel that are read over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// A name of [`Plan::hosts`].
    pub host: String,
    /// Interval between readings.
    pub every: Span,
    /// For how long; none: as long as the connections run.
    pub duration: Option<Span>,
    /// Counters of the network interfaces.
    pub interface: bool,
    /// Counters of IP, TCP and UDP.
    pub tcp: bool,
    /// Processor time, context switches, interrupts, memory.
    pub kernel: bool,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}

impl Plan {
    /// Returns the SHA-256 of the plan as JSON, in lower-case hexadecimal. It is equal for two texts with the same
    /// meaning, whatever their comments, white space, units or dialect.
    pub fn hash(&self) -> String {
        let mut plan = self.clone();
        // The text of an expectation does not belong to its meaning.
        plan.expectations.iter_mut().for_each(|expectation| expectation.text.clear());
        // The plan has no maps with non-string keys and only finite numbers, so this cannot fail.
        let json = serde_json::to_vec(&plan).expect("a plan is plain data");
        Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The schedule, a tree in which each connection occurs once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// One after the other.
    Serial(Vec<Block>),
    /// All at once; the block ends when the last has ended.
    Parallel(Vec<Block>),
    /// The body repeatedly.
    Repeat {
        /// Number of rounds, at least 1.
        count: u32,
        /// Time from the start of a round to the start of the next; a round that takes longer delays the next.
        /// Zero: a round begins when the previous one has ended.
        every: Span,
        /// The body.
        body: Box<Block>,
    },
    /// A connection, by its index in [`Plan::connections`].
    Connection(usize),
}

impl Default for Block {
    fn default() -> Self {
        Block::Parallel(Vec::new())
    }
}

/// A flow of messages from one sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Name in the record.
    pub name: String,
    /// The sending end.
    pub from: ConnectionEnd,
    /// The receiving ends; more than one only for `multicast` and `bundle`.
    pub to: Vec<ConnectionEnd>,
    /// Host that controls the sender (`xmtcntl`), by default the sender.
    pub xmtcntl: String,
    /// Host that controls the receiver (`rcvcntl`), by default the first receiver.
    pub rcvcntl: String,
    /// Host that reports (`rep`), by default the sender.
    pub rep: String,
    /// The protocol that carries the messages.
    pub protocol: Protocol,
    /// Sizes and times of the messages.
    pub test: Pattern,
    /// Differentiated services code point of the packets of both directions, 0 to 63; none: the system's default, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// What it declares about its traffic to links that admit connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// Delay of the first message after the start that the schedule gives, in seconds. Drawn once.
    pub delay_s: Variable,
    /// When the sender stops.
    pub stop: Stop,
    /// Location of the connection in the text.
    #[serde(skip)]
    pub location: SourceRange,
    /// Location of the protocol in the text.
    #[serde(skip)]
    pub protocol_location: SourceRange,
    /// Location of the test in the text.
    #[serde(skip)]
    pub test_location: SourceRange,
}

impl Connection {
    /// Returns the sending end, then the receiving ends.
    pub fn ends(&self) -> impl Iterator<Item = &ConnectionEnd> {
        [&self.from].into_iter().chain(&self.to)
    }
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// A name of [`Plan::hosts`].
    pub host: String,
    /// Socket buffer (`xmtbuf` or `rcvbuf`); none: the default of the protocol.
    pub buffer: Option<Size>,
    /// Port; none: the system chooses one. `own = HOST:PORT` of the 1999 dialect sets it.
    pub port: Option<u16>,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}

/// When the sender stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After this time in seconds, drawn once.
    DurationS(Variable),
    /// After this many message bytes, drawn once.
    Bytes(Variable),
    /// After this many messages, drawn once.
    Messages(Variable),
    /// When the file has been sent. Only for `file`.
    FileEnd,
}

/// `expect SUBJECT.FIGURE < VALUE;`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Name of a connection, link or host.
    pub subject: String,
    /// Path of the number in the subject's entry of the record, such as `received_bps` or `delay_us.p99`.
    pub figure: String,
    /// Required relation of the number to `value`.
    pub relation: Relation,
    /// The bound, in the unit at the end of the figure's name (`_bps`, `_us`, `_s`; otherwise none).
    pub value: f64,
    /// The source text, for messages: `B-A.received_bps > 30 Mb/s`.
    pub text: String,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// `<`
    #[serde(rename = "<")]
    Below,
    /// `<=`
    #[serde(rename = "<=")]
    AtMost,
    /// `>`
    #[serde(rename = ">")]
    Above,
    /// `>=`
    #[serde(rename = ">=")]
    AtLeast,
    /// `=` or `==`
    #[serde(rename = "=")]
    Equal,
    /// `!=`
    #[serde(rename = "!=")]
    NotEqual,
}

//! The plan: the meaning of an experiment as plain data. Every default is filled, every name is resolved, and every
//! number is in the unit of its field. A backend reads only the plan.

mod explicit_rate;
mod queue;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Rate, Size, Span};

pub use explicit_rate::ExplicitRate;
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

/// A protocol that carries messages, with its options. `docs/language.md` has the ranges and defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp {
        /// Size of both socket buffers; none: the system's autotuning.
        window: Option<Size>,
        /// The kernel's name of the congestion control; none: the system's default. Simulated TCP has those of
        /// [`TcpController`].
        congestion: Option<String>,
        /// Whether Nagle's algorithm is off, as by default: small messages are sent at once.
        nodelay: bool,
        /// Timers. Simulated TCP only.
        timers: TcpTimers,
        /// Whether an acknowledgement may wait for a second segment (RFC 1122 section 4.2.3.2). Simulated TCP only.
        delayed_ack: bool,
        /// What simulated TCP has beyond 4.3BSD.
        #[serde(flatten)]
        extensions: TcpExtensions,
    },
    /// UDP, one message per datagram.
    Udp {
        /// For `full` only: whether the receiver reports its progress to the sender, so that a full socket buffer
        /// slows the sender instead of losing messages. Default on. The name in JSON is part of the plan's hash.
        #[serde(rename = "flow")]
        flow_control: bool,
        /// Datagrams for which the receiver has buffers, if it grants the sender credits; none: no credits. They replace
        /// the reports of `flow_control`.
        #[serde(default, rename = "credits", skip_serializing_if = "Option::is_none")]
        credit_window: Option<u32>,
    },
    /// UDP to a multicast group.
    Multicast {
        /// IPv4 or IPv6 group address, such as `239.1.1.1`.
        group: std::net::IpAddr,
        /// Time to live.
        ttl: u8,
    },
    /// IEEE 802.2 LLC.
    Llc {
        /// Type of operation: 1 (connectionless) or 3 (acknowledged connectionless).
        r#type: u8,
        /// Service access point: even, 2 to 254.
        sap: u8,
        /// Priority, 0 to 7; 7 is the most urgent.
        priority: u8,
        /// Maximum number of transmissions of an unacknowledged frame, at least 1.
        tries: u32,
        /// Time to wait for an acknowledgement.
        timeout: Span,
        /// Whether the information field has a CRC-32.
        crc: bool,
        /// Whether stations send only with the token. Equal for all connections of an experiment.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        token: bool,
        /// Time after which an undelivered message is dropped; none: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Span>,
    },
    /// Guaranteed delivery, the transport of the `arq` crate (1998).
    Guaranteed {
        /// Retransmission mode.
        mode: ArqMode,
        /// Window in frames, 1 to 8,192.
        window: u32,
        /// Maximum frame length.
        frame: Size,
        /// Frames per acknowledgement.
        ack_every: u32,
        /// Initial and maximum retransmission timeout.
        timeout: Span,
        /// Whether the timeout follows measured round-trip times. If not, it is constant, as in 1998.
        adaptive: bool,
        /// Maximum delay of an acknowledgement.
        ack_delay: Span,
        /// Congestion controller.
        congestion: ArqCongestion,
        /// Integrity check.
        checksum: Checksum,
        /// Share of frames dropped before sending, for tests; 0 to 1.
        drop: f64,
        /// Share of frames altered before sending, for tests; 0 to 1.
        alter: f64,
        /// Forward error correction. Only in the mode `selective`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fec: Option<ArqFec>,
    },
    /// Messages through the bundle converter (1997).
    Bundle {
        /// Message address.
        address: u32,
        /// Explicit priority; in the classic format it must match the address (odd: high). None: derived from the
        /// address.
        priority: Option<BundlePriority>,
        /// Maximum time that a message with priority waits in each converter, whatever the converter's timers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Span>,
    },
    /// Test packets of the Simple Two-way Active Measurement Protocol (RFC 8762) and their reflection. Live only.
    Stamp,
    /// QUIC (RFC 9000).
    Quic {
        /// Congestion control.
        congestion: QuicCongestion,
        /// Bytes that wait for acknowledgement at the sender, and unread at the receiver; none: defaults of the library.
        window: Option<Size>,
        /// Number of streams, 1 to 256, which carry the messages in turn.
        streams: u32,
        /// Whether each message is an unreliable datagram (RFC 9221).
        datagrams: bool,
        /// The largest UDP payload that path MTU discovery tries, 1,200 to 65,507 B.
        mtu: Size,
    },
}

/// The longest message in a datagram of QUIC, in bytes: a packet of 1,200 bytes, which every path carries, less its headers.
pub const MAX_QUIC_DATAGRAM: u32 = 1_162;

/// Congestion control of QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuicCongestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 9002).
    Reno,
    /// BBR version 1. Live only.
    Bbr,
}

/// Extensions of simulated TCP; `None`: on or as in Linux with a congestion controller of today, off or as in 4.3BSD
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpExtensions {
    /// Selective acknowledgements (RFC 2018).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// Timestamps (RFC 7323).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// Explicit congestion notification; `None`: with `dctcp`, and accurate with `prague`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<TcpEcn>,
    /// HyStart++ (RFC 9406), for `cubic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// Whether `cubic` grows at least as fast as Reno (RFC 9438 section 4.3); `None`: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reno_friendly: Option<bool>,
    /// Initial slow start threshold; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_ssthresh: Option<Size>,
    /// What a controller of today and the TCP around it follow; `None`: the standard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<TcpVariant>,
    /// Initial window in segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u16>,
    /// Minimum retransmission timeout with `timers = fine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rto: Option<Span>,
    /// Maximum delay of an acknowledgement with `timers = fine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_delay: Option<Span>,
}

/// What TCP follows where Linux differs from the standards, or they leave it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpVariant {
    /// The standards.
    Standard,
    /// Linux 6.18.
    Linux,
}

/// Feedback of explicit congestion notification in simulated TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpEcn {
    /// No ECN.
    Off,
    /// That of RFC 3168; with `dctcp` that of RFC 8257.
    On,
    /// That of RFC 9768.
    Accurate,
}

/// Congestion controllers of simulated TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpController {
    /// That of 4.3BSD Reno.
    Bsd,
    /// Reno (RFC 5681) with recovery from several losses (RFC 6582, RFC 6675).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// DCTCP (RFC 8257).
    Dctcp,
    /// Prague (draft-briscoe-iccrg-prague-congestion-control).
    Prague,
    /// BBR version 1, as Linux has it (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
}

impl TcpController {
    /// The controllers with their names in the language.
    pub const ALL: [(&'static str, TcpController); 7] = [
        ("reno", TcpController::Bsd),
        ("newreno", TcpController::NewReno),
        ("cubic", TcpController::Cubic),
        ("dctcp", TcpController::Dctcp),
        ("prague", TcpController::Prague),
        ("bbr", TcpController::Bbr),
        ("bbr3", TcpController::Bbr3),
    ];

    /// Returns the controller of this name; without a name that of 4.3BSD.
    pub fn of(name: Option<&str>) -> Option<TcpController> {
        let name = name.unwrap_or("reno");
        TcpController::ALL.iter().find(|(known, _)| *known == name).map(|(_, controller)| *controller)
    }
}

/// When the timers of a simulated TCP expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpTimers {
    /// At ticks of 200 ms (acknowledgements) and 500 ms (retransmissions), as in 4.3BSD. The phase of each host is
    /// random.
    #[default]
    Bsd,
    /// Exactly at their deadline.
    Fine,
}

/// Retransmission mode of the guaranteed transport; see `Mode` of the `arq` crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArqMode {
    /// Go-back-N: the lost frame and all after it.
    Gobackn,
    /// Selective repeat: only the lost frame.
    Selective,
    /// Stop-and-wait: one frame in flight.
    Stopandwait,
}

/// Forward error correction of the guaranteed transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArqFec {
    /// Frames per block, 1 to 64.
    pub frames: u8,
    /// Repair frames per block, 1 to 8, no more than `frames`.
    pub repairs: u8,
}

/// Congestion controller of the guaranteed transport; see the `congestion` crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArqCongestion {
    /// The whole window.
    Fixed,
    /// The window of TCP Reno.
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Window and pace from the measured delivery rate.
    Paced,
    /// The same with at most the window of CUBIC.
    #[serde(rename = "tcp-friendly")]
    TcpFriendly,
    /// BBR version 1.
    Bbr,
    /// BBR version 3.
    Bbr3,
}

/// Integrity check of the guaranteed transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// CRC-32C.
    Crc32c,
    /// CRC-64.
    Crc64,
    /// The sum of 1998.
    Folded,
    /// No checksum.
    None,
}

/// Priority of a bundled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BundlePriority {
    /// Kept through congestion.
    High,
    /// May be dropped in congestion.
    Low,
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

/// The nodes and links of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Hosts, switches, hubs, rings and converters, in order of mention. Names are unique.
    pub nodes: Vec<Node>,
    /// Links, in order of mention. A link's name is `A-B`, then `A-B.2`.
    pub links: Vec<Link>,
    /// Changes of links during the run, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<LinkChange>,
}

/// A node of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Kind, with its options.
    pub kind: NodeKind,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}

/// Kind of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A host.
    Host(HostCosts),
    /// An output-buffered switch.
    Switch {
        /// Buffer per output port, or per virtual channel of a port.
        buffer: Amount,
        /// Whether each virtual channel has its own buffer; otherwise all channels of an output port share one.
        each_channel: bool,
        /// Time from the last bit in to the first bit out.
        latency: Span,
        /// Whether the channels of an output port are served in turn, a cell at a time; otherwise in order of arrival. ATM.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        round_robin: bool,
    },
    /// Shared CSMA/CD Ethernet.
    Hub {
        /// Bit rate.
        rate: Rate,
        /// Propagation delay between any two stations.
        delay: Span,
    },
    /// Token ring, one packet per token.
    Ring {
        /// Bit rate.
        rate: Rate,
        /// Maximum frame length.
        frame: Size,
        /// Probability that the token is lost on its way to the next station, 0 to 1.
        token_loss: f64,
    },
    /// A bundle converter.
    Converter {
        /// Role: level 1 or central.
        role: ConverterRole,
        /// Number of a level-1 converter, from 1.
        number: u32,
        /// Wire format.
        format: BundleFormat,
        /// When bundles leave.
        timers: BundleTimers,
        /// Capacity of the medium, for congestion levels.
        capacity: Option<Rate>,
        /// Maximum waiting times of messages, with adaptive timers; by default 5 ms, and zero for priority messages.
        #[serde(default, skip_serializing_if = "BundleDeadlines::are_default")]
        deadlines: BundleDeadlines,
        /// Costs, as of a host.
        #[serde(default, skip_serializing_if = "HostCosts::are_default")]
        costs: HostCosts,
    },
}

/// Times that a host's processor and devices take, and the sizes of its buffers. By default they take no time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCosts {
    /// Per packet sent or received.
    pub cpu_packet: Span,
    /// Per byte.
    pub cpu_byte: Span,
    /// Per interrupt.
    pub interrupt: Span,
    /// Per byte moved by DMA.
    pub dma_byte: Span,
    /// Per byte of checksum.
    pub crc_byte: Span,
    /// Per cell segmented or reassembled.
    pub sar_cell: Span,
    /// Processors, at least 1; the first takes all interrupts.
    pub cpus: u32,
    /// Receive buffer; none: unbounded by the host.
    pub rx_buffer: Option<Amount>,
    /// Whether each channel has its own receive buffer, as sockets have, and channels take turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rx_each_channel: bool,
    /// Maximum number of packets that wait for the card, at least 1; a sender waits while the queue is full.
    pub send_queue: u64,
    /// Rate of the disk; none: no limit.
    pub disk: Option<Rate>,
    /// Number of hash bits of the card's multicast filter; none: an exact filter.
    pub mcast_filter: Option<u32>,
    /// A program to start on this host. Only for `lab`.
    pub program: Option<String>,
    /// Whether the program runs until all others have ended, as servers do. Only for `lab`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
    /// Whether the host is in the wide area of bundles, beyond level 1, although it has a path to the central
    /// converter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide_area: bool,
    /// Whether the host is a router: it forwards packets between its links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward: bool,
}

impl NodeKind {
    /// Returns whether the node forwards packets: a router, a switch, a hub or a ring.
    pub fn forwards(&self) -> bool {
        match self {
            NodeKind::Host(host) => host.forward,
            NodeKind::Converter { .. } => false,
            NodeKind::Switch { .. } | NodeKind::Hub { .. } | NodeKind::Ring { .. } => true,
        }
    }
}

impl HostCosts {
    /// Returns whether all values are the default.
    pub(crate) fn are_default(&self) -> bool {
        *self == HostCosts::default()
    }
}

impl Default for HostCosts {
    /// No costs, one processor, and a send queue of 50 packets (`IFQ_MAXLEN` of 4.3BSD).
    fn default() -> Self {
        HostCosts {
            cpu_packet: Span::ZERO,
            cpu_byte: Span::ZERO,
            interrupt: Span::ZERO,
            dma_byte: Span::ZERO,
            crc_byte: Span::ZERO,
            sar_cell: Span::ZERO,
            cpus: 1,
            rx_buffer: None,
            rx_each_channel: false,
            send_queue: 50,
            disk: None,
            mcast_filter: None,
            program: None,
            service: false,
            wide_area: false,
            forward: false,
        }
    }
}

/// Size of a buffer, in the unit of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// ATM cells of 53 bytes.
    Cells(u64),
    /// Packets of any length.
    Packets(u64),
}

/// Role of a converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConverterRole {
    /// Between the wide area and the central converter.
    Level1,
    /// Between level 1 and the hosts.
    Central,
}

/// Wire format of bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BundleFormat {
    /// Bundle format 1, as in 1997.
    Classic,
    /// Bundle format 2: 65,535 hosts and 32-bit addresses.
    Wide,
}

/// Maximum waiting times of messages in a bundle converter; none: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleDeadlines {
    /// Of ordinary messages.
    pub ordinary: Option<Span>,
    /// Of messages with priority.
    pub priority: Option<Span>,
}

impl BundleDeadlines {
    /// Returns whether both are the default.
    pub fn are_default(&self) -> bool {
        *self == BundleDeadlines::default()
    }
}

/// When bundles leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BundleTimers {
    /// At free-running ticks of 5 ms.
    Classic,
    /// When they are full or due, or the converter is idle.
    Adaptive,
    /// When they are full or due, which costs the least processor time.
    Processor,
}

/// A link between two nodes, equal in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `A-B`, then `A-B.2`.
    pub name: String,
    /// Name of the node at one end.
    pub a: String,
    /// Name of the node at the other end.
    pub b: String,
    /// Framing.
    pub medium: Medium,
    /// Line rate.
    pub rate: Rate,
    /// Rate available to cells or frames: `payload`, by default the line rate, and for ATM over OC-3c 149.76 of
    /// 155 Mb/s.
    pub payload: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// Maximum packet of the network layer, 68 to 65,535 bytes.
    pub mtu: Size,
    /// Whether cells are simulated in trains or one by one. Only for ATM.
    pub cells: CellMode,
    /// Encapsulation of packets in AAL5 frames. Only for ATM.
    pub encapsulation: Encapsulation,
    /// Pacing rate at the interfaces of hosts, if any.
    pub pacing: Option<Rate>,
    /// Pacing at the interfaces of hosts as `(i, m)`: at most `i` of each `m` cell slots of the payload rate are used,
    /// 1 ≤ i ≤ m. Only for ATM, and never together with `pacing`.
    pub pacing_slots: Option<(u16, u16)>,
    /// Bytes that `pacing` counts.
    pub pacing_counts: PacingCounts,
    /// Share of frames (cells on ATM) that are lost, 0 to 1.
    pub loss: f64,
    /// Share that is damaged.
    pub corrupt: f64,
    /// Share that is duplicated.
    pub duplicate: f64,
    /// Share that is delivered after the next.
    pub reorder: f64,
    /// Link-by-link credits per virtual channel, in cells; none: no flow control.
    pub credits: Option<u64>,
    /// Who computes explicit rates for the virtual channels that cross it; none: no rates. Only for ATM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explicit_rate: Option<ExplicitRate>,
    /// Queue discipline at both ends, measured; none: FIFO with tail drop, not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Shaper at both ends, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<TokenRate>,
    /// Policer at both ends, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub police: Option<TokenRate>,
    /// Trace that replaces the rate, if any; `rate` is its mean then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// How the link admits connections.
    #[serde(default, skip_serializing_if = "Admission::is_none")]
    pub admission: Admission,
    /// Largest share of the traffic that admitted connections may lose, above 0 and below 1.
    #[serde(default = "admission_loss", skip_serializing_if = "is_admission_loss")]
    pub admission_loss: f64,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}

impl Link {
    /// Returns whether an ATM switch collects and queues packets at its end of the link, instead of queueing cells.
    pub fn queues_packets(&self) -> bool {
        self.queue.is_some() || self.shape.is_some() || self.police.is_some()
    }
}

/// How a link admits connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// All of them.
    #[default]
    None,
    /// As long as their peak rates fit.
    Peak,
    /// As long as their equivalent bandwidth fits (Guérin and others, 1991).
    Equivalent,
    /// As long as the measured rate, with a margin, leaves room for the peak rate.
    Measured,
}

impl Admission {
    /// Returns whether the link admits all connections.
    pub fn is_none(&self) -> bool {
        *self == Admission::None
    }
}

/// Default of [`Link::admission_loss`].
pub(crate) fn admission_loss() -> f64 {
    1e-3
}

fn is_admission_loss(loss: &f64) -> bool {
    *loss == admission_loss()
}

/// What a connection declares about its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Largest rate.
    pub peak: Rate,
    /// Mean rate, at most the peak.
    pub mean: Rate,
    /// Mean time at the peak rate; 0 if the mean is the peak.
    pub burst: Span,
}

/// Framing of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// ATM cells.
    Atm,
    /// Ethernet: 38 bytes of preamble, header, checksum and gap per frame.
    Ethernet,
    /// Point-to-point framing.
    Ppp,
}

impl Medium {
    /// Returns what a line rate leaves to frames or cells: SONET and PLCP take the rest on ATM.
    pub fn payload(self, line: Rate) -> Rate {
        match (self, line.as_bps()) {
            (Medium::Atm, 155_000_000 | 155_520_000) => Rate::from_bps(149_760_000),
            (Medium::Atm, 45_000_000 | 44_736_000) => Rate::from_bps(40_704_000),
            (Medium::Atm, 622_080_000) => Rate::from_bps(599_040_000),
            _ => line,
        }
    }
}

/// How the cells of an ATM link are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellMode {
    /// All cells of a packet in one step where that is exact.
    #[default]
    Trains,
    /// Each cell in its own step.
    Each,
}

/// Encapsulation of packets in AAL5 frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// LLC/SNAP, 8 bytes (RFC 2684 section 5, RFC 1483 before it).
    #[default]
    Llc,
    /// None: the virtual channel determines the protocol (RFC 2684 section 6).
    Null,
}

/// Bytes that a pacing rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PacingCounts {
    /// Whole cells of 53 bytes.
    Cells,
    /// The 48 bytes of payload of each cell.
    Payload,
}

//! The plan: what an experiment means, as plain data. Every default is filled, every name resolved, every
//! unit folded into the one the field names. Backends read this and nothing else.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Rate, Size, Span};

/// Where in the text something was said: byte offsets, `start..end`. Not part of the plan's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceRange {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A whole experiment, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The experiment's name: what the text says, else the file's stem.
    pub name: String,
    /// Every host that takes part, in order of first mention. Names are unique.
    pub hosts: Vec<String>,
    /// What lies between the hosts. Needed by `sim` and `lab`; `live` does without.
    pub network: Option<Network>,
    /// Every connection, in order of mention. Names are unique.
    pub connections: Vec<Connection>,
    /// When each runs.
    pub schedule: Block,
    /// What the record must show.
    pub expectations: Vec<Expectation>,
}

impl Plan {
    /// SHA-256 over the plan as JSON, lower-case hexadecimal: the same for two texts that mean the same, whatever
    /// their comments, white space, units or dialect.
    pub fn hash(&self) -> String {
        let mut plan = self.clone();
        // How an expectation was spelled is not what it means.
        plan.expectations.iter_mut().for_each(|expectation| expectation.text.clear());
        // The plan has no maps with non-string keys and only finite numbers, so this cannot fail.
        let json = serde_json::to_vec(&plan).expect("a plan is plain data");
        Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The order of things. A connection stands in exactly one place of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// One after the other.
    Serial(Vec<Block>),
    /// All at once; done when the last is.
    Parallel(Vec<Block>),
    /// The body again and again.
    Repeat {
        /// How many times, at least 1.
        count: u32,
        /// From the start of one round to the start of the next; a round that takes longer delays the next.
        /// Zero: the next begins when the last has ended.
        every: Span,
        /// What repeats.
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

/// One flow of messages and how it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name in the record.
    pub name: String,
    /// The sending host.
    pub from: Station,
    /// The receiving hosts; more than one only for `multicast` and `bundle`.
    pub to: Vec<Station>,
    /// Host that controls the sender (`xmtcntl`); the sender itself by default.
    pub xmtcntl: String,
    /// Host that controls the receiver (`rcvcntl`).
    pub rcvcntl: String,
    /// Host that reports (`rep`).
    pub rep: String,
    /// What carries the messages.
    pub protocol: Protocol,
    /// Which messages, and when.
    pub test: Pattern,
    /// How long after its place in the schedule the first message may leave, seconds. Drawn once.
    pub delay_s: Variable,
    /// When the sender stops.
    pub stop: Stop,
    /// Where the text says so.
    #[serde(skip)]
    pub place: SourceRange,
    /// Where the text names the protocol and the test, for a backend that lacks one.
    #[serde(skip)]
    pub asks: Asks,
}

/// Where the text asks for what not every backend has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// The protocol.
    pub protocol: SourceRange,
    /// The test.
    pub test: SourceRange,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Station {
    /// A name of [`Plan::hosts`].
    pub host: String,
    /// Socket buffer (`xmtbuf` or `rcvbuf`), if one was asked.
    pub buffer: Option<Size>,
    /// Port it must use; none: the system chooses (`own = HOST:PORT` of the 1999 dialect sets it).
    pub port: Option<u16>,
    /// Where the text says so.
    #[serde(skip)]
    pub place: SourceRange,
}

/// Returns when the sender stops, as a time or as an amount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After this long, seconds, drawn once. The default is 10 s, and for `file` the file's end.
    DurationS(Variable),
    /// After this many message bytes, drawn once.
    Bytes(Variable),
    /// After this many messages, drawn once.
    Messages(Variable),
    /// When the file has been sent (`file` only).
    FileEnd,
}

/// What carries the messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp {
        /// Both socket buffers; none: the system's autotuning.
        window: Option<Size>,
        /// Congestion control by the kernel's name; none: the system's default.
        congestion: Option<String>,
        /// Nagle's algorithm off. Default on: a test of messages measures messages.
        nodelay: bool,
        /// Simulated TCP only: when its timers run out.
        timers: TcpTimers,
        /// Simulated TCP only: whether an acknowledgement may wait for a second segment (RFC 1122 section 4.2.3.2).
        delayed_ack: bool,
    },
    /// UDP, one message a datagram.
    Udp {
        /// For `full` only: whether the receiver reports its progress to the sender, so that a full socket buffer
        /// slows the sender instead of losing messages. Default on. The name in JSON is part of the plan's hash.
        #[serde(rename = "flow")]
        flow_control: bool,
    },
    /// UDP to a group.
    Multicast {
        /// IPv4 or IPv6 group address, e.g. `239.1.1.1`.
        group: std::net::IpAddr,
        /// Time to live.
        ttl: u8,
    },
    /// IEEE 802.2 LLC.
    Llc {
        /// Type 1 (datagrams) or 3 (acknowledged).
        r#type: u8,
        /// Even, 2 to 254.
        sap: u8,
        /// 0 to 7, 7 the most urgent.
        priority: u8,
        /// How often an unacknowledged frame is sent, at least 1.
        tries: u32,
        /// How long to wait for an acknowledgement.
        timeout: Span,
        /// CRC-32 in the information field.
        crc: bool,
        /// Whether stations send only with the token. The same for all connections of an experiment.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        token: bool,
        /// How long a message may take before it is given up; none: as long as it likes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Span>,
    },
    /// Guaranteed delivery (1998).
    Guaranteed {
        /// Retransmission.
        mode: ArqMode,
        /// Window in frames.
        window: u32,
        /// Largest frame.
        frame: Size,
        /// Frames per forced acknowledgement.
        ack_every: u32,
        /// First retransmission timeout, and the longest.
        timeout: Span,
        /// Whether the timeout follows the round trips that were measured. Off: always the same, as in 1998.
        adaptive: bool,
        /// How long an acknowledgement may be kept back.
        ack_delay: Span,
        /// What decides how much of the window is used.
        congestion: ArqCongestion,
        /// Integrity check.
        checksum: Checksum,
        /// Share of frames dropped on purpose, 0 to 1.
        drop: f64,
        /// Share of frames altered on purpose, 0 to 1.
        alter: f64,
        /// Forward error correction, in the mode `selective` only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fec: Option<ArqFec>,
    },
    /// Through the bundle converter (1997).
    Bundle {
        /// Message address.
        address: u32,
        /// Priority said outright; in the classic format, where odd addresses have it, only if that is so. None: as the
        /// address says.
        priority: Option<BundlePriority>,
        /// How long a message with priority may wait in each converter, whatever its timers say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Span>,
    },
}

/// When the timers of a simulated TCP run out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpTimers {
    /// At ticks of 200 ms (acknowledgements) and 500 ms (retransmissions), as 4.3BSD; each host's phase is drawn.
    #[default]
    Bsd,
    /// At the very moment.
    Fine,
}

/// Retransmission of the guaranteed transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArqMode {
    /// Everything from the lost frame on.
    Gobackn,
    /// The lost frame only.
    Selective,
    /// One frame in flight.
    Stopandwait,
}

/// Forward error correction of the guaranteed transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArqFec {
    /// Frames of a block, 1 to 64.
    pub frames: u8,
    /// Repair frames for each, 1 to 8 and no more than frames.
    pub repairs: u8,
}

/// How much of its window the guaranteed transport uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArqCongestion {
    /// All of it, always.
    Fixed,
    /// What Reno's rules allow.
    Reno,
    /// What the measured rate fills, at that rate.
    Paced,
}

/// Integrity check of the guaranteed transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// CRC-32C.
    Crc32c,
    /// CRC-64.
    Crc64,
    /// The folded sum of 1998.
    Folded,
    /// No options besides those of the connection.
    None,
}

/// Priority of a wide bundle message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BundlePriority {
    /// Survives congestion.
    High,
    /// May be cut.
    Low,
}

/// `expect SUBJECT.FIGURE < VALUE;`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Connection, link or host whose figure it is.
    pub subject: String,
    /// Path inside its entry of the record, e.g. `received_bps` or `delay_us.p99`.
    pub figure: String,
    /// How they must compare.
    pub relation: Relation,
    /// The bound, in the unit the figure's name ends in (`_bps`, `_us`, `_s`, else plain).
    pub value: f64,
    /// As written, for messages: `B-A.received_bps > 30 Mb/s`.
    pub text: String,
    /// Where the text says so.
    #[serde(skip)]
    pub place: SourceRange,
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

/// What lies between the hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Hosts, switches, hubs, rings and converters, in order of mention. Names are unique.
    pub nodes: Vec<Node>,
    /// Links, in order of mention. A link's name is `A-B`, then `A-B.2`.
    pub links: Vec<Link>,
}

/// A place in the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Where the text says so.
    #[serde(skip)]
    pub place: SourceRange,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A station.
    Host(HostCosts),
    /// An output-buffered switch.
    Switch {
        /// Room per output port, or per virtual channel of it.
        buffer: Amount,
        /// Whether each virtual channel has that room for itself; otherwise all that leave by a port share it.
        each_channel: bool,
        /// Time from last bit in to first bit out.
        latency: Span,
    },
    /// Shared CSMA/CD Ethernet.
    Hub {
        /// Bit rate.
        rate: Rate,
        /// Propagation from any station to any other.
        delay: Span,
    },
    /// Token ring, one packet a token.
    Ring {
        /// Bit rate.
        rate: Rate,
        /// Largest frame.
        frame: Size,
        /// Share of passes from station to station that lose the token, 0 to 1.
        token_loss: f64,
    },
    /// A bundle converter.
    Converter {
        /// Level 1 or central.
        role: ConverterRole,
        /// Which level-1 converter it is, from 1.
        number: u32,
        /// Wire format.
        format: BundleFormat,
        /// When bundles leave.
        timers: BundleTimers,
        /// What the medium carries, for congestion levels.
        capacity: Option<Rate>,
        /// How long messages may wait in it, with adaptive timers: 5 ms and no time, where nothing is said.
        #[serde(default, skip_serializing_if = "BundleDeadlines::are_usual")]
        deadlines: BundleDeadlines,
        /// What it costs as a station.
        #[serde(default, skip_serializing_if = "HostCosts::are_none")]
        costs: HostCosts,
    },
}

/// What a station's processor and devices cost, and what they hold. By default they cost nothing.
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
    /// Packets that may wait for the card on their way out, at least 1; what sends more waits for room.
    pub send_queue: u64,
    /// Disk rate; none: no limit.
    pub disk: Option<Rate>,
    /// Hash bits of the card's multicast filter; none: it filters exactly.
    pub mcast_filter: Option<u32>,
    /// Lab: a program started on this host.
    pub program: Option<String>,
    /// Whether it is in the wide area of bundles, beyond level 1, although links lead from it to the central converter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide_area: bool,
}

impl HostCosts {
    /// Whether all of it is as by default.
    pub(crate) fn are_none(&self) -> bool {
        *self == HostCosts::default()
    }
}

impl Default for HostCosts {
    /// A station that costs nothing: one processor, 50 packets (4.3BSD's `IFQ_MAXLEN`) may wait for its card.
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
            send_queue: 50,
            disk: None,
            mcast_filter: None,
            program: None,
            wide_area: false,
        }
    }
}

/// Room in a buffer, in the unit it was said.
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

/// Which converter.
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
    /// 1997, byte for byte.
    Classic,
    /// Any number of hosts, 32-bit addresses.
    Wide,
}

/// How long messages may wait in a bundle converter; none: as is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleDeadlines {
    /// Ordinary ones.
    pub ordinary: Option<Span>,
    /// Those with priority.
    pub priority: Option<Span>,
}

impl BundleDeadlines {
    /// Whether nothing is said.
    pub fn are_usual(&self) -> bool {
        *self == BundleDeadlines::default()
    }
}

/// When bundles leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BundleTimers {
    /// A free-running tick of 5 ms.
    Classic,
    /// Full, due, or idle.
    Adaptive,
    /// Full or due: that costs processors least.
    Processor,
}

/// A line between two nodes, the same in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `A-B`, then `A-B.2`.
    pub name: String,
    /// One end: a node's name.
    pub a: String,
    /// Other end.
    pub b: String,
    /// Framing.
    pub medium: Medium,
    /// Line rate.
    pub rate: Rate,
    /// Rate left to cells or frames: 149.76 of 155 Mb/s for ATM over OC-3c; else the line rate, or `payload`.
    pub payload: Rate,
    /// Propagation.
    pub delay: Span,
    /// Largest packet of the network layer, 68 to 65,535 bytes.
    pub mtu: Size,
    /// ATM: whether cells are computed in trains or one by one. Means nothing on other media.
    pub cells: CellMode,
    /// ATM: what stands between a packet and its AAL5 frame. Means nothing on other media.
    pub encapsulation: Encapsulation,
    /// Pace at the interfaces of hosts, if any.
    pub pacing: Option<Rate>,
    /// ATM: pace at the interfaces of hosts, `(i, m)`: of every `m` cell slots of the payload rate at most `i` are
    /// used, 1 ≤ i ≤ m. Never together with `pacing`.
    pub pacing_slots: Option<(u16, u16)>,
    /// What `pacing` counts.
    pub pacing_counts: PacingCounts,
    /// Share of frames (cells on ATM) lost, 0 to 1.
    pub loss: f64,
    /// Share damaged.
    pub corrupt: f64,
    /// Share doubled.
    pub duplicate: f64,
    /// Share delivered late, behind the next.
    pub reorder: f64,
    /// Link-by-link credits per virtual channel, cells; none: no flow control.
    pub credits: Option<u64>,
    /// Where the text says so.
    #[serde(skip)]
    pub place: SourceRange,
}

/// Framing of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Cells.
    Atm,
    /// 38 bytes of preamble, header, checksum and gap a frame.
    Ethernet,
    /// Point to point.
    Ppp,
}

/// How the cells of an ATM link are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellMode {
    /// The cells of a packet in one step wherever that is exact.
    #[default]
    Trains,
    /// Each on its own.
    Each,
}

/// What stands between a packet and its AAL5 frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// LLC/SNAP, 8 bytes (RFC 2684 section 5, RFC 1483 before it).
    #[default]
    Llc,
    /// Nothing: the virtual channel says what it carries (RFC 2684 section 6).
    Null,
}

/// What a pacing rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PacingCounts {
    /// Whole cells of 53 bytes.
    Cells,
    /// Their 48 bytes of payload.
    Payload,
}

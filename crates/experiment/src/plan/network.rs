//! Hosts, switches, hubs and the links between them.

use super::{ExplicitRate, LinkChange, Queue, SourceRange, TokenRate, Trace};
use serde::{Deserialize, Serialize};
use trunkline_units::{Rate, Size, Span};

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

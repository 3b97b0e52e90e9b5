//! Protocols of connections and their options.

use serde::{Deserialize, Serialize};
use trunkline_units::{Size, Span};

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

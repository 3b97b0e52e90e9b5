//! Packet sockets: whole Ethernet frames of one interface (packet(7)). They need `CAP_NET_RAW`.
//!
//! | module | contents |
//! | --- | --- |
//! | `socket` | [`PacketSocket`] |
//! | [`ring`] | [`Ring`], the same frames through memory shared with the kernel, for who receives very many |
//! | `unsupported` | both on other systems than Linux: opening them fails |
//!
//! The kernel strips the IEEE 802.1Q tag of a received frame and reports it separately, in [`Frame::tag`]. It reports
//! the priority of a frame without a VLAN only to sockets of `ETH_P_ALL`, so these sockets always use that and drop
//! other frames with a [filter](Options::filter) in the kernel. A sent frame carries its tag inline, at octet 12.

#[cfg(target_os = "linux")]
pub mod ring;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub use ring::Ring;
#[cfg(target_os = "linux")]
pub use socket::PacketSocket;
/// An instruction of a classic BPF filter (`struct sock_filter`).
#[cfg(target_os = "linux")]
pub use socket2::SockFilter as Instruction;
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Instruction, PacketSocket, Ring};

/// Maximum number of frames of [`PacketSocket::send_many`].
pub const MAX_SEND_MANY: usize = 64;

/// Hardware type of Ethernet (`ARPHRD_ETHER`).
pub const ETHERNET: u16 = 1;
/// Hardware type of the loopback interface (`ARPHRD_LOOPBACK`), which carries Ethernet frames.
pub const LOOPBACK: u16 = 772;

/// Returns whether this network namespace has an interface of this name, up or down.
pub fn exists(interface: &str) -> bool {
    nix::net::if_::if_nametoindex(interface).is_ok()
}

/// Options of a packet socket.
#[derive(Debug)]
pub struct Options {
    /// Receives frames for other stations too (promiscuous mode).
    pub promiscuous: bool,
    /// Receives frames sent by this machine too, except those sent through this socket.
    pub outgoing: bool,
    /// BPF filter that the kernel runs on each frame without its tag. It returns the number of octets to keep; 0
    /// drops the frame. Empty: no filter. See [`llc_only`], [`llc_to`] and [`truncate_to`].
    pub filter: Vec<Instruction>,
    /// Additional unicast address to receive.
    pub address: Option<[u8; 6]>,
    /// Enables receive timestamps, at a small cost per frame; without them [`Frame::at_ns`] is 0.
    pub timestamps: bool,
    /// Receive buffer size in bytes; 0: the system's default.
    pub receive_buffer: usize,
    /// Send buffer size in bytes, including kernel overhead; 0: the system's default.
    pub send_buffer: usize,
}

/// Frames to this station and broadcasts, untruncated.
impl Default for Options {
    fn default() -> Self {
        Options {
            promiscuous: false,
            outgoing: false,
            filter: Vec::new(),
            address: None,
            timestamps: true,
            receive_buffer: 0,
            send_buffer: 0,
        }
    }
}

// Not every system's headers have these (linux/bpf_common.h).
/// `BPF_LD | BPF_W | BPF_ABS`
const LOAD: u16 = 0x20;
/// `BPF_LD | BPF_H | BPF_ABS`
const LOAD_HALF: u16 = 0x28;
/// `BPF_JMP | BPF_JGT | BPF_K`
const JUMP_IF_GREATER: u16 = 0x25;
/// `BPF_JMP | BPF_JEQ | BPF_K`
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`
const RETURN: u16 = 0x06;

/// Returns a filter that passes only length-encapsulated frames (IEEE 802.2).
pub fn llc_only() -> Vec<Instruction> {
    const TYPE: u32 = 12;
    const LONGEST: u32 = 1500;
    vec![
        Instruction::new(LOAD_HALF, 0, 0, TYPE),
        Instruction::new(JUMP_IF_GREATER, 1, 0, LONGEST),
        Instruction::new(RETURN, 0, 0, u32::MAX),
        Instruction::new(RETURN, 0, 0, 0),
    ]
}

/// Returns a filter that passes only length-encapsulated frames to `address` or broadcast.
pub fn llc_to(address: [u8; 6]) -> Vec<Instruction> {
    let [a, b, c, d, e, f] = address;
    let mut filter = vec![
        Instruction::new(LOAD, 0, 0, 0),
        Instruction::new(JUMP_IF_EQUAL, 0, 2, u32::from_be_bytes([a, b, c, d])),
        Instruction::new(LOAD_HALF, 0, 0, 4),
        Instruction::new(JUMP_IF_EQUAL, 4, 3, u32::from(u16::from_be_bytes([e, f]))),
        Instruction::new(JUMP_IF_EQUAL, 0, 2, u32::MAX),
        Instruction::new(LOAD_HALF, 0, 0, 4),
        Instruction::new(JUMP_IF_EQUAL, 1, 0, 0xFFFF),
        Instruction::new(RETURN, 0, 0, 0),
    ];
    filter.extend(llc_only());
    filter
}

/// Returns a filter that truncates every frame to `octets`.
pub fn truncate_to(octets: u32) -> Vec<Instruction> {
    vec![Instruction::new(RETURN, 0, 0, octets)]
}

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame from the destination address on, without tag and check sequence, truncated by the buffer or the
    /// filter.
    pub bytes: &'a [u8],
    /// Length of the untruncated frame.
    pub original: usize,
    /// Kernel receive timestamp in nanoseconds since 1970.
    pub at_ns: u64,
    /// Outer VLAN tag.
    pub tag: Option<Tag>,
    /// Whether this machine sent the frame.
    pub outgoing: bool,
}

/// An IEEE 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol identifier: `8100`, or `88a8` for a provider tag.
    pub protocol: u16,
    /// Tag control information: priority (3 bits), drop eligibility (1), VLAN identifier (12).
    pub control: u16,
}

impl Tag {
    /// Returns the priority, 0 to 7.
    pub fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// Returns the VLAN identifier; 0 in a priority tag.
    pub fn vlan(self) -> u16 {
        self.control & 0x0FFF
    }

    /// Returns the four octets of the tag.
    pub fn octets(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.protocol.to_be_bytes(), self.control.to_be_bytes());
        [a, b, c, d]
    }
}

/// Kernel counters of a packet socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Frames that passed the filter, including dropped ones.
    pub frames: u64,
    /// Frames dropped because the buffer was full.
    pub dropped: u64,
}

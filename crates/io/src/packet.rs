//! A packet socket: whole Ethernet frames of one interface, in and out (packet(7)). Needs the right to open such sockets
//! (`CAP_NET_RAW`).
//!
//! | module | what |
//! | --- | --- |
//! | [`ring`] | [`Ring`], the same frames through memory shared with the kernel, for who receives very many |
//!
//! The kernel takes the tag of IEEE 802.1Q out of a frame and tells it beside: [`Frame::tag`]. Only a socket of all
//! protocols is told the priority of a frame that belongs to no VLAN, so this one always is; what it does not want its
//! [filter](Options::filter) drops in the kernel. A frame that is sent carries its tag within, at octet 12.

pub mod ring;

use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use libc::{c_int, c_void, sockaddr_ll, socklen_t};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Socket, Type};
use trunkline_units::Span;

pub use ring::Ring;
/// An instruction of the kernel's classic packet filter (`struct sock_filter`).
pub use socket2::SockFilter as Instruction;

/// Most frames that [`PacketSocket::send_many`] sends.
pub const MANY: usize = 64;

/// The hardware type of Ethernet (`ARPHRD_ETHER`).
pub const ETHERNET: u16 = libc::ARPHRD_ETHER;
/// The hardware type of the loopback interface, whose frames are Ethernet's.
pub const LOOPBACK: u16 = libc::ARPHRD_LOOPBACK;

/// Whether there is an interface of this name in the network namespace of this process, up or down.
pub fn exists(interface: &str) -> bool {
    nix::net::if_::if_nametoindex(interface).is_ok()
}

/// What a packet socket is to receive.
#[derive(Debug)]
pub struct Options {
    /// Also what is for other stations.
    pub promiscuous: bool,
    /// Also what this machine sends, whoever sends it. What goes through this very socket never comes back.
    pub outgoing: bool,
    /// Run by the kernel on each frame, without its tag; what it returns is how many octets are kept, 0 drops the
    /// frame. Empty: everything passes whole. See [`llc_only`], [`llc_for`] and [`first`].
    pub filter: Vec<Instruction>,
    /// Also what is for this address, which need not be the interface's own.
    pub address: Option<[u8; 6]>,
    /// Whether the kernel tells when each frame came. Costs each frame a little; without, [`Frame::at_ns`] is 0.
    pub timestamps: bool,
    /// Octets asked for the buffer of what comes; 0: the system's choice.
    pub buffer: usize,
    /// Octets of frames, with what the system needs to keep them, that may wait to leave; 0: the system's choice.
    pub ahead: usize,
}

/// Frames for this station and for all, in full.
impl Default for Options {
    fn default() -> Self {
        Options {
            promiscuous: false,
            outgoing: false,
            filter: Vec::new(),
            address: None,
            timestamps: true,
            buffer: 0,
            ahead: 0,
        }
    }
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A filter that passes length-encapsulated frames, IEEE 802.2, and nothing else.
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

/// A filter that passes length-encapsulated frames for `address` or for all, and nothing else.
pub fn llc_for(address: [u8; 6]) -> Vec<Instruction> {
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

/// A filter that passes the first `octets` of every frame.
pub fn first(octets: u32) -> Vec<Instruction> {
    vec![Instruction::new(RETURN, 0, 0, octets)]
}

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Destination, source, type or length, and what follows, without check sequence and tag. What the buffer or the
    /// filter has no room for is missing.
    pub bytes: &'a [u8],
    /// How many octets it had.
    pub original: usize,
    /// When the kernel got it, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The outer tag that it carried.
    pub tag: Option<Tag>,
    /// Whether this machine sent it.
    pub outgoing: bool,
}

/// A tag of IEEE 802.1Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The type of the tag: `8100`, or `88a8` for a provider's.
    pub protocol: u16,
    /// Priority, drop eligibility, VLAN: 3, 1 and 12 bits.
    pub control: u16,
}

impl Tag {
    /// 0 to 7.
    pub fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// The VLAN; 0 for a frame that only has a priority.
    pub fn vlan(self) -> u16 {
        self.control & 0x0FFF
    }

    /// The four octets that stand before the type of the frame.
    pub fn octets(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.protocol.to_be_bytes(), self.control.to_be_bytes());
        [a, b, c, d]
    }

    /// What the kernel told of a tag, if it did.
    fn told(status: u32, control: u16, protocol: u16) -> Option<Tag> {
        const DOT1Q: u16 = 0x8100;
        let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tag = Tag { protocol: if known { protocol } else { DOT1Q }, control };
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(tag)
    }
}

/// What the kernel counted at a packet socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Frames that passed the filter, dropped ones among them.
    pub frames: u64,
    /// Frames that it had no room for.
    pub dropped: u64,
}

/// A packet socket on one interface. It blocks, but for what is said to try.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    index: c_int,
    hardware: u16,
    address: [u8; 6],
}

impl PacketSocket {
    /// Opens one on the interface of this name.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `EPERM` without the right, or what else the system says.
    pub fn open(interface: &str, options: &Options) -> io::Result<PacketSocket> {
        PacketSocket::prepared(interface, options, |_| Ok(()))
    }

    /// Opens one; `prepare` has it before frames come.
    fn prepared(
        interface: &str,
        options: &Options,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<PacketSocket> {
        let index = nix::net::if_::if_nametoindex(interface)? as c_int;
        // Of no protocol until it is bound: nothing comes before filter and options stand.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        if !options.filter.is_empty() {
            socket.attach_filter(&options.filter)?;
        }
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &c_int::from(!options.outgoing))?;
        set(&socket, libc::PACKET_AUXDATA, &1)?;
        if options.timestamps {
            socket.set_timestamps()?;
        }
        if options.buffer > 0 {
            socket.set_recv_buffer_size(options.buffer)?;
        }
        if options.ahead > 0 {
            // The system doubles it.
            socket.set_send_buffer_size(options.ahead.div_ceil(2))?;
        }
        let member = |kind: c_int, address: &[u8]| {
            let mut member = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: kind as u16,
                mr_alen: address.len() as u16,
                mr_address: [0; 8],
            };
            member.mr_address[..address.len()].copy_from_slice(address);
            set(&socket, libc::PACKET_ADD_MEMBERSHIP, &member)
        };
        if options.promiscuous {
            member(libc::PACKET_MR_PROMISC, &[])?;
        }
        if let Some(address) = options.address {
            member(libc::PACKET_MR_UNICAST, &address)?;
        }
        prepare(&socket)?;
        let mut address = blank_address();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let mut length = size_of::<sockaddr_ll>() as socklen_t;
        // SAFETY: both calls are given an address of a packet socket and its true size; the second fills it.
        let done = unsafe {
            match libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) {
                0 => libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length),
                failed => failed,
            }
        };
        Errno::result(done)?;
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        Ok(PacketSocket { socket, index, hardware: address.sll_hatype, address: [a, b, c, d, e, f] })
    }

    /// What kind of interface it is (`ARPHRD_…`): [`ETHERNET`], [`LOOPBACK`], or one whose frames are others.
    pub fn hardware(&self) -> u16 {
        self.hardware
    }

    /// The interface's own Ethernet address.
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// The number of the interface.
    pub fn index(&self) -> u32 {
        self.index as u32
    }

    /// The next frame, at the start of `buffer`. Waits for it.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down or away, or what else the system says.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Frame<'b>> {
        self.next(buffer, 0)
    }

    /// The next frame, if one waits.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn try_receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<Frame<'b>>> {
        match self.next(buffer, libc::MSG_DONTWAIT) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends a whole Ethernet frame, from the destination on, without check sequence. Waits for room in the socket's
    /// own buffer. False if the interface has none: then the frame is lost.
    ///
    /// # Errors
    /// `EMSGSIZE` if it is longer than the interface allows, `EINVAL` below 14 octets, `ENETDOWN` on an interface that
    /// is down, or what else the system says.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        self.put(frame, 0)
    }

    /// As [`PacketSocket::send`], but also false, and the frame is not sent, if the socket's buffer is full.
    ///
    /// # Errors
    /// As [`PacketSocket::send`].
    pub fn try_send(&self, frame: &[u8]) -> io::Result<bool> {
        self.put(frame, libc::MSG_DONTWAIT)
    }

    /// Sends whole Ethernet frames that stand one behind another in `frames`, each ending at one of `ends`, in one call of
    /// the system. Waits for room in the socket's own buffer. How many the interface took; the others are lost.
    ///
    /// # Errors
    /// As [`PacketSocket::send`], of the first.
    pub fn send_many(&self, frames: &[u8], ends: &[usize]) -> io::Result<usize> {
        let mut slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MANY];
        // SAFETY: message headers are pointers and numbers, for which all zeros are values.
        let mut messages: [libc::mmsghdr; MANY] = unsafe { std::mem::zeroed() };
        let (mut from, mut count) = (0, 0);
        for (&end, slice) in ends.iter().zip(&mut slices) {
            let frame = &frames[from..end];
            *slice = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            messages[count].msg_hdr.msg_iov = slice;
            messages[count].msg_hdr.msg_iovlen = 1;
            (from, count) = (end, count + 1);
        }
        let (mut at, mut left) = (0, 0);
        while at < count {
            let rest = &mut messages[at..count];
            // SAFETY: each header points at one slice and each slice at a part of `frames`; all live through the call, which
            // reads what the slices point at and writes into the headers only.
            let sent =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
            match Errno::result(sent) {
                Ok(sent) => (at, left) = (at + sent as usize, left + sent as usize),
                // That one is lost, and not those behind it.
                Err(Errno::ENOBUFS) => at += 1,
                Err(Errno::EINTR) => {}
                Err(error) if left == 0 => return Err(error.into()),
                Err(_) => at += 1,
            }
        }
        Ok(left)
    }

    /// Lets a call that waits for a frame end with [`io::ErrorKind::WouldBlock`] after `limit`; none: never. The system
    /// rounds up to its ticks, some milliseconds.
    ///
    /// # Errors
    /// What the system says.
    pub fn limit_waiting(&self, limit: Option<Span>) -> io::Result<()> {
        self.socket.set_read_timeout(limit.map(Into::into))
    }

    /// Waits until a frame can be received, at most `limit`; whether one can.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn wait(&self, limit: Span) -> io::Result<bool> {
        let ns = limit.as_ps().div_ceil(1_000);
        let limit = TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64);
        let mut descriptors = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut descriptors, Some(limit), None) {
            Ok(_) => {}
            // Whoever waits looks at what a signal did.
            Err(Errno::EINTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        Ok(descriptors[0].any().unwrap_or(false))
    }

    /// What the kernel counted since this was last asked.
    ///
    /// # Errors
    /// What the system says.
    pub fn counted(&self) -> io::Result<Counted> {
        // A ring's socket tells one number more.
        let mut counted = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of_val(&counted) as socklen_t;
        // SAFETY: the room is that of the larger of both answers, and its true size is told.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            )
        };
        Errno::result(done)?;
        Ok(Counted { frames: counted.tp_packets.into(), dropped: counted.tp_drops.into() })
    }

    /// The next frame, at the start of `buffer`: how many octets, and its tag. Waits for it if it may. As
    /// [`PacketSocket::receive`], without what costs time: who sent it, when it came, and how long it was before it was cut.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; as [`PacketSocket::receive`].
    #[inline]
    pub fn receive_tagged(&self, buffer: &mut [u8], may_wait: bool) -> io::Result<(usize, Option<Tag>)> {
        let mut room = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = MaybeUninit::<Control>::uninit();
        // SAFETY: a message header is pointers and numbers, for which all zeros are values.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut room;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = if may_wait { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the header points at a buffer and room for control messages that live through the call, each with its
        // true size.
        let got = unsafe { plain::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let got = Errno::result(got)? as usize;
        let mut tag = None;
        // SAFETY: the kernel filled the header and the room that it points at.
        unsafe {
            told(&message, |what| match what {
                Told::At(_) => ControlFlow::Continue(()),
                Told::Frame(aux) => {
                    tag = Tag::told(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                    ControlFlow::Break(())
                }
            });
        }
        Ok((got, tag))
    }

    #[inline]
    fn put(&self, frame: &[u8], flags: c_int) -> io::Result<bool> {
        // SAFETY: the frame lives through the call, and its true size is told.
        let sent = unsafe { plain::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
        match Errno::result(sent) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn next<'b>(&self, buffer: &'b mut [u8], flags: c_int) -> io::Result<Frame<'b>> {
        let mut from = blank_address();
        let mut room = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = MaybeUninit::<Control>::uninit();
        // SAFETY: a message header is pointers and numbers, for which all zeros are values.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<sockaddr_ll>() as socklen_t;
        message.msg_iov = &raw mut room;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // Truncation is asked for, so that the true length is what comes back.
        let flags = flags | libc::MSG_TRUNC;
        // SAFETY: the header points at an address, a buffer and room for control messages that live through the call,
        // each with its true size.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let got = Errno::result(got)? as usize;
        let (mut at_ns, mut tag, mut original) = (0, None, got);
        // SAFETY: the kernel filled the header and the room that it points at.
        unsafe {
            told(&message, |what| {
                match what {
                    Told::At(at) => at_ns = at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64,
                    Told::Frame(aux) => {
                        tag = Tag::told(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                        original = aux.tp_len as usize;
                    }
                }
                ControlFlow::Continue(())
            });
        }
        let length = got.min(buffer.len());
        let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
        Ok(Frame { bytes: &buffer[..length], original, at_ns, tag, outgoing })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Room for what the kernel tells beside a frame, both or either; of u64, since a control message begins at a multiple of
/// eight.
type Control = [u64; 16];

/// What the kernel tells beside a frame.
enum Told {
    /// When it came.
    At(libc::timespec),
    /// How long it was, and its tag.
    Frame(libc::tpacket_auxdata),
}

/// Reads what the kernel told beside a frame, as long as somebody hears it.
///
/// # Safety
/// The kernel has filled the header's room for control messages, and set how far.
#[inline]
unsafe fn told(message: &libc::msghdr, mut tell: impl FnMut(Told) -> ControlFlow<()>) {
    // SAFETY: so there are whole messages, of the types asked for.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = one.as_ref() {
            let data: *const c_void = libc::CMSG_DATA(one).cast();
            let what = match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    Some(Told::Frame(data.cast::<libc::tpacket_auxdata>().read_unaligned()))
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    Some(Told::At(data.cast::<libc::timespec>().read_unaligned()))
                }
                _ => None,
            };
            if what.is_some_and(|what| tell(what).is_break()) {
                return;
            }
            one = libc::CMSG_NXTHDR(message, one);
        }
    }
}

/// Calls of the system as such. Those of the C library are points where a thread may be cancelled, which takes two atomic
/// operations each in a program of several threads. Nobody cancels a thread that is in here.
mod plain {
    use libc::{c_int, c_long, c_void, msghdr};

    /// `send(2)`.
    ///
    /// # Safety
    /// As of the library's.
    #[inline]
    pub unsafe fn send(socket: c_int, from: *const c_void, octets: usize, flags: c_int) -> c_long {
        let nobody = std::ptr::null::<c_void>();
        // SAFETY: the caller's; no address is given.
        unsafe { libc::syscall(libc::SYS_sendto, socket, from, octets, flags, nobody, 0usize) }
    }

    /// `recvmsg(2)`.
    ///
    /// # Safety
    /// As of the library's.
    #[inline]
    pub unsafe fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> c_long {
        // SAFETY: the caller's.
        unsafe { libc::syscall(libc::SYS_recvmsg, socket, message, flags) }
    }
}

/// What socket2 leaves out.
trait Timestamps {
    /// Has the kernel tell when each frame came, in nanoseconds.
    fn set_timestamps(&self) -> io::Result<()>;
}

impl Timestamps for Socket {
    fn set_timestamps(&self) -> io::Result<()> {
        nix::sys::socket::setsockopt(self, nix::sys::socket::sockopt::ReceiveTimestampns, &true)?;
        Ok(())
    }
}

/// Sets an option of packet sockets.
fn set<T: Copy>(socket: &Socket, option: c_int, value: &T) -> io::Result<()> {
    let value: *const T = value;
    // SAFETY: the value is plain numbers that live through the call, and its true size is told.
    let done = unsafe {
        let length = size_of::<T>() as socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value.cast(), length)
    };
    Errno::result(done)?;
    Ok(())
}

/// An address of all zeros.
fn blank_address() -> sockaddr_ll {
    // SAFETY: the address of a packet socket is plain numbers, for which all zeros are values.
    unsafe { std::mem::zeroed() }
}

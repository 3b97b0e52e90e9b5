//! The packet socket of Linux.

use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use libc::{SOL_PACKET, c_int, c_void, sockaddr_ll, socklen_t};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
use socket2::{Domain, Socket, Type};
use trunkline_units::Span;

use super::{Frame, MAX_SEND_MANY, Options, PacketCounters, Tag};
use crate::socket::{self, option_words, set_option};

impl Tag {
    /// Decodes the tag in the kernel's auxiliary data, if any.
    pub(super) fn from_auxdata(status: u32, control: u16, protocol: u16) -> Option<Tag> {
        const DOT1Q: u16 = 0x8100;
        let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tag = Tag { protocol: if known { protocol } else { DOT1Q }, control };
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(tag)
    }
}

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    hardware: u16,
}

impl PacketSocket {
    /// Opens a packet socket on an interface.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `EPERM` without `CAP_NET_RAW`, or other system errors.
    pub fn open(interface: &str, options: &Options) -> io::Result<PacketSocket> {
        PacketSocket::prepared(interface, options, |_| Ok(()))
    }

    /// Opens a packet socket; `prepare` runs before it receives frames.
    pub(super) fn prepared(
        interface: &str,
        options: &Options,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<PacketSocket> {
        let index = nix::net::if_::if_nametoindex(interface)? as c_int;
        // No protocol until the socket is bound: no frame arrives before the filter and options are set.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        if !options.filter.is_empty() {
            socket.attach_filter(&options.filter)?;
        }
        set_option(&socket, SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &c_int::from(!options.outgoing))?;
        set_option(&socket, SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        if options.timestamps {
            setsockopt(&socket, ReceiveTimestampns, &true)?;
        }
        if options.receive_buffer > 0 {
            socket.set_recv_buffer_size(options.receive_buffer)?;
        }
        if options.send_buffer > 0 {
            // The kernel doubles the value.
            socket.set_send_buffer_size(options.send_buffer.div_ceil(2))?;
        }
        let member = |kind: c_int, address: &[u8]| {
            let mut member = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: kind as u16,
                mr_alen: address.len() as u16,
                mr_address: [0; 8],
            };
            member.mr_address[..address.len()].copy_from_slice(address);
            set_option(&socket, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)
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
        Ok(PacketSocket { socket, hardware: address.sll_hatype })
    }

    /// Returns the hardware type (`ARPHRD_…`): [`ETHERNET`](super::ETHERNET), [`LOOPBACK`](super::LOOPBACK), or one
    /// with other frames.
    pub fn hardware(&self) -> u16 {
        self.hardware
    }

    /// Receives a frame into `buffer`; blocks until one arrives.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down or away, or other system errors.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Frame<'b>> {
        self.receive_with_flags(buffer, 0)
    }

    /// Receives a frame if one is queued.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn try_receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<Frame<'b>>> {
        match self.receive_with_flags(buffer, libc::MSG_DONTWAIT) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends an Ethernet frame, from the destination address on, without check sequence. Blocks while the socket's
    /// buffer is full. Returns false if the interface queue is full and the frame is lost.
    ///
    /// # Errors
    /// `EMSGSIZE` if the frame exceeds the MTU, `EINVAL` below 14 octets, `ENETDOWN` if the interface is down, or
    /// other system errors.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        let (fd, no_address) = (self.socket.as_raw_fd(), std::ptr::null::<c_void>());
        // SAFETY: the frame outlives the call, and its true size is passed; no address is given. A direct call: see
        // `receive_tagged`.
        let sent = unsafe {
            libc::syscall(libc::SYS_sendto, fd, frame.as_ptr(), frame.len(), 0, no_address, 0usize)
        };
        match Errno::result(sent) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends concatenated Ethernet frames, each ending at one of `ends`, in one system call. Blocks while the
    /// socket's buffer is full. Returns how many the interface queue took; the others are lost.
    ///
    /// # Errors
    /// As [`PacketSocket::send`], for the first frame.
    pub fn send_many(&self, frames: &[u8], ends: &[usize]) -> io::Result<usize> {
        let mut slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_SEND_MANY];
        // SAFETY: message headers are pointers and numbers, for which all zeros are values.
        let mut messages: [libc::mmsghdr; MAX_SEND_MANY] = unsafe { std::mem::zeroed() };
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
                // Only this frame is lost.
                Err(Errno::ENOBUFS) => at += 1,
                Err(Errno::EINTR) => {}
                Err(error) if left == 0 => return Err(error.into()),
                Err(_) => at += 1,
            }
        }
        Ok(left)
    }

    /// Limits blocking receives: they return [`io::ErrorKind::WouldBlock`] after `limit`, rounded up to kernel ticks
    /// of some milliseconds; `None`: no limit.
    ///
    /// # Errors
    /// System errors.
    pub fn limit_waiting(&self, limit: Option<Span>) -> io::Result<()> {
        self.socket.set_read_timeout(limit.map(Into::into))
    }

    /// Waits at most `limit` for a frame; returns whether one is queued.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn wait(&self, limit: Span) -> io::Result<bool> {
        if !socket::readable(&self.socket, limit)? {
            return Ok(false);
        }
        self.socket.take_error()?.map_or(Ok(true), Err)
    }

    /// Returns the counters since the last call and resets them.
    ///
    /// # Errors
    /// System errors.
    pub fn take_counters(&self) -> io::Result<PacketCounters> {
        // The third number is of a ring's socket.
        let ([frames, dropped, _], _) = option_words(&self.socket, SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(PacketCounters { frames: frames.into(), dropped: dropped.into() })
    }

    /// Receives a frame into `buffer` and returns its length and tag. Blocks if `may_wait` is set. As
    /// [`PacketSocket::receive`], without the costlier sender, timestamp and original length.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none is queued; otherwise as [`PacketSocket::receive`].
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
        // The C library's wrapper is a thread cancellation point, which costs two atomic operations per call in a
        // multi-threaded program; no thread here is ever cancelled.
        // SAFETY: the header points at a buffer and room for control messages that live through the call, each with its
        // true size.
        let received =
            unsafe { libc::syscall(libc::SYS_recvmsg, self.socket.as_raw_fd(), &raw mut message, flags) };
        let received = Errno::result(received)? as usize;
        let mut tag = None;
        // SAFETY: the kernel filled the header and the room that it points at.
        unsafe {
            for_each_ancillary(&message, |data_kind| match data_kind {
                AncillaryData::At(_) => ControlFlow::Continue(()),
                AncillaryData::Frame(aux) => {
                    tag = Tag::from_auxdata(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                    ControlFlow::Break(())
                }
            });
        }
        Ok((received, tag))
    }

    fn receive_with_flags<'b>(&self, buffer: &'b mut [u8], flags: c_int) -> io::Result<Frame<'b>> {
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
        // MSG_TRUNC makes recvmsg return the original length.
        let flags = flags | libc::MSG_TRUNC;
        // SAFETY: the header points at an address, a buffer and room for control messages that live through the call,
        // each with its true size.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let received = Errno::result(received)? as usize;
        let (mut at_ns, mut tag, mut original) = (0, None, received);
        // SAFETY: the kernel filled the header and the room that it points at.
        unsafe {
            for_each_ancillary(&message, |data_kind| {
                match data_kind {
                    AncillaryData::At(at) => at_ns = at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64,
                    AncillaryData::Frame(aux) => {
                        tag = Tag::from_auxdata(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                        original = aux.tp_len as usize;
                    }
                }
                ControlFlow::Continue(())
            });
        }
        let length = received.min(buffer.len());
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

/// Buffer for control messages, of u64 because a control message is aligned to eight octets.
type Control = [u64; 16];

/// A control message of a received frame.
enum AncillaryData {
    /// Receive timestamp.
    At(libc::timespec),
    /// Original length and tag.
    Frame(libc::tpacket_auxdata),
}

/// Passes each control message of a frame to `report` until it breaks.
///
/// # Safety
/// The kernel has filled the header's room for control messages, and set how far.
#[inline]
unsafe fn for_each_ancillary(
    message: &libc::msghdr,
    mut report: impl FnMut(AncillaryData) -> ControlFlow<()>,
) {
    // SAFETY: so there are whole messages, of the types asked for.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = one.as_ref() {
            let data: *const c_void = libc::CMSG_DATA(one).cast();
            let data_kind = match (header.cmsg_level, header.cmsg_type) {
                (SOL_PACKET, libc::PACKET_AUXDATA) => {
                    Some(AncillaryData::Frame(data.cast::<libc::tpacket_auxdata>().read_unaligned()))
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    Some(AncillaryData::At(data.cast::<libc::timespec>().read_unaligned()))
                }
                _ => None,
            };
            if data_kind.is_some_and(|data_kind| report(data_kind).is_break()) {
                return;
            }
            one = libc::CMSG_NXTHDR(message, one);
        }
    }
}

/// Returns an all-zero address.
fn blank_address() -> sockaddr_ll {
    // SAFETY: the address of a packet socket is plain numbers, for which all zeros are values.
    unsafe { std::mem::zeroed() }
}

//! Receives frames through memory shared with the kernel (`TPACKET_V3`), in blocks of many frames, so that a frame
//! costs no system call and no copy.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{SOL_PACKET, c_int, c_uint, sockaddr_ll, tpacket_block_desc, tpacket3_hdr};
use trunkline_units::Span;

use super::{Frame, Options, PacketSocket, Tag};
use crate::socket::set_option;

/// Size of a block in bytes: several of the longest frames that segmentation offload produces.
const BLOCK: usize = 1 << 18;
/// Nominal frame size that the kernel requires; frames have variable length.
const SLOT: usize = 1 << 11;

/// A packet socket with a receive ring. Its [`socket`](Ring::socket) can send.
#[derive(Debug)]
pub struct Ring {
    socket: PacketSocket,
    memory: Memory,
    blocks: usize,
    /// The next block to read.
    next: usize,
}

impl Ring {
    /// Timeout after which the kernel hands over a partly filled block.
    pub const LAG: Span = Span::from_ms(20);

    /// Opens a ring of about `octets` bytes, rounded up to whole blocks of 256 KiB, at least two. A frame takes its
    /// length and about 80 octets.
    ///
    /// # Errors
    /// As [`PacketSocket::open`]; `ENOMEM` if the memory is not available.
    pub fn open(interface: &str, options: &Options, octets: usize) -> io::Result<Ring> {
        let blocks = octets.div_ceil(BLOCK).clamp(2, 1 << 13);
        let mut memory = None;
        let socket = PacketSocket::prepared(interface, options, |socket| {
            set_option(
                socket,
                SOL_PACKET,
                libc::PACKET_VERSION,
                &(libc::tpacket_versions::TPACKET_V3 as c_int),
            )?;
            let request = libc::tpacket_req3 {
                tp_block_size: BLOCK as c_uint,
                tp_block_nr: blocks as c_uint,
                tp_frame_size: SLOT as c_uint,
                tp_frame_nr: (BLOCK / SLOT * blocks) as c_uint,
                tp_retire_blk_tov: (Ring::LAG.as_ns() / 1_000_000) as c_uint,
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            };
            set_option(socket, SOL_PACKET, libc::PACKET_RX_RING, &request)?;
            memory = Some(Memory::map(socket.as_raw_fd(), BLOCK * blocks)?);
            Ok(())
        })?;
        let memory = memory.expect("it was mapped before the socket was bound");
        Ok(Ring { socket, memory, blocks, next: 0 })
    }

    /// Returns the socket, for the interface, counters, waiting and sending; frames are received through the ring.
    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Passes the frames of the next block to `each`, in order, returns the block to the kernel, and returns the
    /// number of frames; 0 if no block is ready.
    pub fn take(&mut self, mut each: impl FnMut(Frame<'_>)) -> usize {
        let block = self.memory.block(self.next);
        let status = Block::status(block);
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return 0;
        }
        // SAFETY: the status says that the block belongs to this process until it is returned below, so the kernel does not write it.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr().cast_const().cast::<u8>(), BLOCK) };
        let count = Block { bytes }.frames(&mut each);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        count
    }
}

/// A block owned by this process.
struct Block<'a> {
    bytes: &'a [u8],
}

impl Block<'_> {
    /// Returns the ownership flag of a block.
    fn status<'m>(block: NonNull<tpacket_block_desc>) -> &'m AtomicU32 {
        // SAFETY: the descriptor stands at the start of a mapped block, aligned to a page; both sides only touch this
        // field as a whole. The reference does not outlive the call that made it, and the memory outlives that.
        unsafe { AtomicU32::from_ptr(&raw mut (*block.as_ptr()).hdr.bh1.block_status) }
    }

    fn frames(&self, each: &mut impl FnMut(Frame<'_>)) -> usize {
        let Some(descriptor) = self.read::<tpacket_block_desc>(0) else { return 0 };
        // SAFETY: a block of this version has this header, the only member of the union.
        let header = unsafe { descriptor.hdr.bh1 };
        let mut at = header.offset_to_first_pkt as usize;
        for seen in 0..header.num_pkts {
            let Some((frame, next)) = self.frame(at) else { return seen as usize };
            each(frame);
            at += next;
        }
        header.num_pkts as usize
    }

    /// Returns the frame whose header is at `at`, and the distance to the next one.
    fn frame(&self, at: usize) -> Option<(Frame<'_>, usize)> {
        let header = self.read::<tpacket3_hdr>(at)?;
        let from = self.read::<sockaddr_ll>(at + libc::TPACKET3_HDRLEN - size_of::<sockaddr_ll>())?;
        let start = at + usize::from(header.tp_mac);
        let bytes = self.bytes.get(start..start + header.tp_snaplen as usize)?;
        let frame = Frame {
            bytes,
            original: header.tp_len as usize,
            at_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            tag: Tag::from_auxdata(header.tp_status, header.hv1.tp_vlan_tci as u16, header.hv1.tp_vlan_tpid),
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
        };
        Some((frame, header.tp_next_offset as usize))
    }

    /// Reads a kernel structure at `at`; `None` past the end.
    fn read<T: Copy>(&self, at: usize) -> Option<T> {
        let bytes = self.bytes.get(at..at + size_of::<T>())?;
        // SAFETY: there are as many octets as the structure has, which is plain numbers and may stand anywhere.
        Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }
}

/// The mapped ring.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and only its one owner reaches it.
unsafe impl Send for Memory {}

impl Memory {
    fn map(descriptor: c_int, octets: usize) -> io::Result<Memory> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the kernel chooses where; nothing else is mapped there.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), octets, access, kind, descriptor, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory { start, octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the address of block `number`.
    fn block(&self, number: usize) -> NonNull<tpacket_block_desc> {
        assert!((number + 1) * BLOCK <= self.octets, "block {number} of {} octets", self.octets);
        // SAFETY: checked to lie within what is mapped.
        unsafe { self.start.add(number * BLOCK) }.cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size, and no reference to it exists: frames live only inside `take`.
        let done = unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
        debug_assert_eq!(done, 0, "what was mapped can be unmapped");
    }
}

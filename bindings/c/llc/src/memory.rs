//! What a C program lends: its signal functions, a packet to send, room for one that comes.

use std::slice;

use crate::words::Answer;

/// A function of the program, called when an operation has come to its end; none if null.
pub(crate) type Signal = Option<unsafe extern "C" fn()>;

/// Calls it, if there is one.
pub(crate) fn call(signal: Signal) {
    if let Some(function) = signal {
        // SAFETY: the caller of `LLCoption` guarantees that the function takes no argument, returns, and stays loaded.
        unsafe { function() }
    }
}

/// A packet to send, and where to.
pub(crate) struct Packet {
    netadr: *const u8,
    packet: *const u8,
    size: u32,
}

impl Packet {
    /// # Safety
    /// What is not null can be read, `netadr` 2 octets and `packet` `size`, as long as this lives.
    pub unsafe fn new(netadr: *const u8, packet: *const u8, size: u32) -> Result<Packet, Answer> {
        if netadr.is_null() || packet.is_null() && size > 0 {
            return Err(Answer::Argument);
        }
        Ok(Packet { netadr, packet, size })
    }

    /// SAP and station. To be read under the library's lock: programs send from the address that they receive into.
    pub fn address(&self) -> [u8; 2] {
        // SAFETY: it is not null, and `new`'s condition.
        unsafe { self.netadr.cast::<[u8; 2]>().read() }
    }

    /// Its octets, unless they are more than `most`.
    pub fn bytes(&self, most: usize) -> Result<&[u8], Answer> {
        match self.size as usize {
            0 => Ok(&[]),
            size if size > most => Err(Answer::TooLarge),
            // SAFETY: it is not null, `new`'s condition, and no more than a frame.
            size => Ok(unsafe { slice::from_raw_parts(self.packet, size) }),
        }
    }
}

/// Room for a packet that comes, and for where it came from.
pub(crate) struct Room {
    netadr: *mut u8,
    packet: *mut u8,
    size: u32,
}

// SAFETY: it may be written on any thread (`new`'s condition), and the library's lock is held whenever it is.
unsafe impl Send for Room {}

impl Room {
    /// # Safety
    /// What is not null can be written on any thread, `netadr` 2 octets and `packet` `size`, as long as this lives.
    pub unsafe fn new(netadr: *mut u8, packet: *mut u8, size: u32) -> Result<Room, Answer> {
        if netadr.is_null() || packet.is_null() && size > 0 {
            return Err(Answer::Argument);
        }
        Ok(Room { netadr, packet, size })
    }

    /// Writes a packet, as much of it as fits; whether all did.
    pub fn fill(self, from: [u8; 2], bytes: &[u8]) -> bool {
        let fits = bytes.len().min(self.size as usize);
        // SAFETY: it is not null, and `new`'s condition.
        unsafe { self.netadr.cast::<[u8; 2]>().write(from) };
        if fits > 0 {
            // SAFETY: the same; and `bytes` is the library's own memory, which does not overlap.
            unsafe { self.packet.copy_from_nonoverlapping(bytes.as_ptr(), fits) };
        }
        fits == bytes.len()
    }
}

//! LLC from C: the interface of AirNET (Cain, Weaver, Colvin, Simoncic 1990) over stations of
//! [`llc`](trunkline_llc). What each function does stands in `bindings/c/llcio.h`.
//!
//! | module | contents |
//! | --- | --- |
//! | `library` | the station, its sockets, the library's thread |
//! | `memory` | what a C program lends |
//! | `words` | what operations answer, what a status says |
//!
//! Here is only the border: integers and pointers become values, values become integers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

mod library;
mod memory;
mod words;

use library::Settings;
use memory::{Packet, Room, Signal};
use words::Answer;
use words::Direction;

/// Catches panics at the C boundary: a panic is a bug in the library, and the call returns that there is no network.
fn answer(operation: impl FnOnce() -> Result<(), Answer>) -> c_uint {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(Ok(())) => 0,
        Ok(Err(answer)) => answer as c_uint,
        Err(_) => Answer::NoNetwork as c_uint,
    }
}

/// `LLCon`: attaches the station that the environment names.
#[unsafe(export_name = "LLCon")]
pub extern "C" fn on(sockets: c_int) -> c_uint {
    answer(|| library::on(sockets))
}

/// `LLCoff`: closes all sockets and leaves the network.
#[unsafe(export_name = "LLCoff")]
pub extern "C" fn off() -> c_uint {
    answer(library::off)
}

/// `LLCopen`: opens a socket, an even number from 2 to 254.
#[unsafe(export_name = "LLCopen")]
pub extern "C" fn open(sock: c_int) -> c_uint {
    answer(|| library::current()?.open(sock))
}

/// `LLCclose`: closes an idle socket.
#[unsafe(export_name = "LLCclose")]
pub extern "C" fn close(sock: c_int) -> c_uint {
    answer(|| library::current()?.close(sock))
}

/// `LLCoption`: how a socket behaves.
///
/// # Safety
/// `xsignal` and `rsignal` are null, or functions without arguments that return normally and live until the socket is
/// closed.
#[unsafe(export_name = "LLCoption")]
pub unsafe extern "C" fn option(
    sock: c_int,
    xsignal: Signal,
    rsignal: Signal,
    xtime: c_int,
    rtime: c_int,
    cls: c_int,
    tries: c_int,
) -> c_uint {
    answer(|| {
        let settings = Settings::new(xtime, rtime, cls, tries)?;
        library::current()?.set(sock, [xsignal, rsignal], settings)
    })
}

/// `LLCxmit`: sends a packet.
///
/// # Safety
/// `netadr` is null or two octets, `packet` null or `size` octets, that can be read until this returns.
#[unsafe(export_name = "LLCxmit")]
pub unsafe extern "C" fn xmit(sock: c_int, netadr: *const u8, packet: *const c_void, size: c_uint) -> c_uint {
    answer(|| {
        // SAFETY: this function's own condition; the packet does not leave the closure.
        let packet = unsafe { Packet::new(netadr, packet.cast(), size)? };
        library::current()?.xmit(sock, &packet)
    })
}

/// `LLCrecv`: lends the library room for a packet.
///
/// # Safety
/// `netadr` is null or two octets, `packet` null or `size` octets, that can be written until the operation has come to its
/// end or is reset, on any thread.
#[unsafe(export_name = "LLCrecv")]
pub unsafe extern "C" fn recv(sock: c_int, netadr: *mut u8, packet: *mut c_void, size: c_uint) -> c_uint {
    answer(|| {
        // SAFETY: this function's own condition; the library lets go of the room when the operation ends.
        let room = unsafe { Room::new(netadr, packet.cast(), size)? };
        library::current()?.recv(sock, room)
    })
}

/// `LLCreset`: gives up what is pending in a direction, `'x'` or `'r'`.
#[unsafe(export_name = "LLCreset")]
pub extern "C" fn reset(sock: c_int, direction: c_char) -> c_uint {
    answer(|| {
        let direction = Direction::new(direction)?;
        library::current()?.reset(sock, direction)
    })
}

/// `LLCstatus`: where the operation of a direction is.
///
/// # Safety
/// `status` is null or can be written.
#[unsafe(export_name = "LLCstatus")]
pub unsafe extern "C" fn status(sock: c_int, direction: c_char, status: *mut c_uint) -> c_uint {
    answer(|| {
        let direction = Direction::new(direction)?;
        if status.is_null() {
            return Err(Answer::Argument);
        }
        let bits = library::current()?.status(sock, direction)?;
        // SAFETY: it is not null, and this function's own condition.
        unsafe { status.write(bits) };
        Ok(())
    })
}

/// `LLCopbits`: what an operation answered, in words.
#[unsafe(export_name = "LLCopbits")]
pub extern "C" fn opbits(opstatus: c_uint) -> *const c_char {
    words::of_answer(opstatus).as_ptr()
}

/// `LLCstbits`: what a status says, in words.
#[unsafe(export_name = "LLCstbits")]
pub extern "C" fn stbits(status: c_uint, direction: c_char) -> *const c_char {
    words::of_status(status, Direction::new(direction).ok()).as_ptr()
}

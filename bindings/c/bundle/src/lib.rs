//! The C interface of the bundle converter: a host ([`HostSocket`]) for simulations that are not written in Rust.
//! `bindings/c/bundle.h` documents the functions.
//!
//! | module | contents |
//! | --- | --- |
//! | `host` | a host shared by threads, and their waits |
//! | `settings` | the settings of a host |
//! | `figures` | the counters of a host |
//! | `error` | return codes, and the last error of each thread |
//!
//! This file only converts between C and Rust types.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

mod error;
mod figures;
mod host;
mod settings;

use error::{BundleError, Code};
use host::SharedHost;
use trunkline_bundle::host::{MessageInfo, OutgoingMessage};
use trunkline_bundle::socket::{HostSocket, RegionError};
use trunkline_units::Span;

pub use figures::CFigures;
pub use settings::CSettings;

/// `bundle_host`.
pub struct CHost(SharedHost);

/// Threads of C programs share hosts, without a check by the compiler.
const _: () = {
    const fn is_for_all_threads<T: Send + Sync>() {}
    is_for_all_threads::<CHost>();
};

/// `struct bundle_from`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CFrom {
    address: u32,
    source: u32,
    priority: u32,
    reserved: [u32; 5],
}

/// `struct bundle_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CRange {
    first: u32,
    last: u32,
}

/// `bundle_receiver`, or null.
pub type Receiver = Option<unsafe extern "C" fn(*mut c_void, *const CFrom, *const c_void, usize)>;

const PRIORITY: c_uint = 1;

impl CFrom {
    fn from_info(from: &MessageInfo) -> CFrom {
        let MessageInfo { address, source, priority } = *from;
        CFrom { address, source, priority: priority.into(), reserved: [0; 5] }
    }
}

/// Runs an operation and returns its count or an error code. A panic must not cross into C: it becomes an error.
fn return_count(operation: impl FnOnce() -> Result<usize, BundleError>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(operation));
    match done.unwrap_or_else(|_| Err(BundleError::code(Code::Bug))) {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(failure) => failure.record() as c_int,
    }
}

/// The same for an operation without a count.
fn return_status(operation: impl FnOnce() -> Result<(), BundleError>) -> c_int {
    return_count(|| operation().map(|()| 0))
}

/// # Safety
/// `host` must be null, or from `bundle_open` and not closed.
unsafe fn shared<'a>(host: *const CHost) -> Result<&'a SharedHost, BundleError> {
    // SAFETY: guaranteed by the caller.
    unsafe { host.as_ref() }.map(|host| &host.0).ok_or(BundleError::argument("the host is null"))
}

/// # Safety
/// `text` must be null or NUL-terminated.
unsafe fn name<'a>(text: *const c_char) -> Result<&'a str, BundleError> {
    if text.is_null() {
        return Err(BundleError::argument("the region's name is null"));
    }
    // SAFETY: it is not null, and the caller guarantees the rest.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| BundleError::argument("the region's name is not UTF-8"))
}

/// # Safety
/// `at` must be null, or readable for `count` values during the lifetime of the result.
unsafe fn slice_from<'a, T>(at: *const T, count: usize, what: &'static str) -> Result<&'a [T], BundleError> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(BundleError::argument(what)),
        _ if count > isize::MAX as usize / size_of::<T>() => {
            Err(BundleError::argument("larger than the address space"))
        }
        // SAFETY: it is not null and within the size limit of slices, and the caller guarantees the rest.
        (false, _) => Ok(unsafe { slice::from_raw_parts(at, count) }),
    }
}

/// `bundle_text`: returns the text of a code.
#[unsafe(export_name = "bundle_text")]
pub extern "C" fn text(code: c_int) -> *const c_char {
    error::code_text(code).as_ptr()
}

/// `bundle_error`: returns the last error of this thread.
#[unsafe(export_name = "bundle_error")]
pub extern "C" fn error() -> *const c_char {
    error::last_error()
}

/// `bundle_open`: opens a host.
///
/// # Safety
/// `host` must be null or writable. `settings` must be null, or begin with its size and be readable for that many
/// octets, with texts that are null or NUL-terminated.
#[unsafe(export_name = "bundle_open")]
pub unsafe extern "C" fn open(host: *mut *mut CHost, settings: *const CSettings) -> c_int {
    return_status(|| {
        if host.is_null() || settings.is_null() {
            return Err(BundleError::argument("the host or the settings are null"));
        }
        // SAFETY: it is not null, and the caller guarantees the rest.
        let options = unsafe { settings::read(settings) }?;
        let opened = Box::new(CHost(SharedHost::open(&options)?));
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { host.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// `bundle_close`: closes a host.
///
/// # Safety
/// `host` must be null, or from `bundle_open`, not closed and not in use by another thread.
#[unsafe(export_name = "bundle_close")]
pub unsafe extern "C" fn close(host: *mut CHost) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { shared(host) }?.check_not_busy()?;
        // SAFETY: it is from `Box::into_raw`, and the caller guarantees the rest.
        let host = unsafe { Box::from_raw(host) };
        host.0.close()
    })
}

/// `bundle_join`: joins a range of addresses.
///
/// # Safety
/// `host` must be null, or from `bundle_open` and not closed. The same holds for all functions below.
#[unsafe(export_name = "bundle_join")]
pub unsafe extern "C" fn join(host: *const CHost, first: u32, last: u32) -> c_int {
    return_status(|| {
        let last = checked_last(first, last)?;
        // SAFETY: guaranteed by the caller.
        unsafe { shared(host) }?.with(|socket| Ok(socket.join_range(first, last)?))
    })
}

/// `bundle_leave`: leaves a range of addresses.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_leave")]
pub unsafe extern "C" fn leave(host: *const CHost, first: u32, last: u32) -> c_int {
    return_status(|| {
        let last = checked_last(first, last)?;
        // SAFETY: guaranteed by the caller.
        unsafe { shared(host) }?.with(|socket| Ok(socket.leave_range(first, last)?))
    })
}

fn checked_last(first: u32, last: u32) -> Result<u32, BundleError> {
    if first <= last { Ok(last) } else { Err(BundleError::argument("the last address is before the first")) }
}

/// `bundle_define`: defines a region.
///
/// # Safety
/// As `bundle_join`; `region` must be null or NUL-terminated, `ranges` null or readable for `count` ranges.
#[unsafe(export_name = "bundle_define")]
pub unsafe extern "C" fn define(
    host: *const CHost,
    region: *const c_char,
    ranges: *const CRange,
    count: usize,
) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        let (host, region) = unsafe { (shared(host)?, name(region)?) };
        // SAFETY: guaranteed by the caller.
        let ranges = unsafe { slice_from(ranges, count, "the ranges are null") }?;
        if ranges.len() > trunkline_bundle::regions::MAX_REGION_RANGES {
            return Err(RegionError::Region(trunkline_bundle::regions::InvalidRegion::Ranges).into());
        }
        let ranges: Vec<(u32, u32)> = ranges.iter().map(|range| (range.first, range.last)).collect();
        host.with(|socket| Ok(socket.define(region, &ranges)?))
    })
}

/// Runs an operation with a region.
///
/// # Safety
/// As `bundle_publish`.
unsafe fn with_region(
    host: *const CHost,
    region: *const c_char,
    act: impl FnOnce(&mut HostSocket, &str) -> Result<(), BundleError>,
) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        let (host, region) = unsafe { (shared(host)?, name(region)?) };
        host.with(|socket| act(socket, region))
    })
}

/// `bundle_publish`: declares that this host sends to a region.
///
/// # Safety
/// As `bundle_join`; `region` must be null or NUL-terminated. The same holds for the next three functions.
#[unsafe(export_name = "bundle_publish")]
pub unsafe extern "C" fn publish(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_region(host, region, |socket, region| Ok(socket.publish(region)?)) }
}

/// `bundle_unpublish`: withdraws `bundle_publish`.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_unpublish")]
pub unsafe extern "C" fn unpublish(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_region(host, region, |socket, region| Ok(socket.unpublish(region)?)) }
}

/// `bundle_subscribe`: joins all addresses of a region.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_subscribe")]
pub unsafe extern "C" fn subscribe(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_region(host, region, |socket, region| Ok(socket.subscribe(region)?)) }
}

/// `bundle_unsubscribe`: leaves the addresses of a region.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_unsubscribe")]
pub unsafe extern "C" fn unsubscribe(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_region(host, region, |socket, region| Ok(socket.unsubscribe(region)?)) }
}

/// Sends a message to an address that `address` returns.
///
/// # Safety
/// `body` must be null or readable for `size` octets.
unsafe fn send_to(
    host: &SharedHost,
    address: impl FnOnce(&HostSocket) -> Result<u32, BundleError>,
    body: *const c_void,
    size: usize,
    flags: c_uint,
    within_us: c_long,
) -> Result<(), BundleError> {
    if flags & !PRIORITY != 0 {
        return Err(BundleError::argument("unknown flag"));
    }
    // SAFETY: guaranteed by the caller.
    let body = unsafe { slice_from(body.cast(), size, "the message is null") }?;
    let max_wait = u64::try_from(within_us).ok().map(Span::from_us);
    host.with(|socket| {
        let address = address(socket)?;
        let priority = flags & PRIORITY != 0 || socket.settings().is_priority(address);
        if max_wait.is_some() && !priority {
            return Err(BundleError::argument("only a priority message may have a deadline"));
        }
        Ok(socket.send_message(OutgoingMessage { address, priority, max_wait, body })?)
    })
}

/// `bundle_send`: sends a message.
///
/// # Safety
/// As `bundle_join`; `body` must be null or readable for `size` octets.
#[unsafe(export_name = "bundle_send")]
pub unsafe extern "C" fn send(
    host: *const CHost,
    address: u32,
    body: *const c_void,
    size: usize,
    flags: c_uint,
    within_us: c_long,
) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { send_to(shared(host)?, |_| Ok(address), body, size, flags, within_us) }
    })
}

/// `bundle_send_in`: sends a message to an address of a region.
///
/// # Safety
/// As `bundle_send`; `region` must be null or NUL-terminated.
#[unsafe(export_name = "bundle_send_in")]
pub unsafe extern "C" fn send_in(
    host: *const CHost,
    region: *const c_char,
    nth: u32,
    body: *const c_void,
    size: usize,
    flags: c_uint,
    within_us: c_long,
) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        let (host, region) = unsafe { (shared(host)?, name(region)?) };
        let address =
            |socket: &HostSocket| Ok(socket.region_address(region, nth).map_err(RegionError::from)?);
        // SAFETY: guaranteed by the caller.
        unsafe { send_to(host, address, body, size, flags, within_us) }
    })
}

/// `bundle_turn`: waits for messages and passes them to a function.
///
/// # Safety
/// As `bundle_join`; `each` must be null, or a function that accepts its arguments and returns.
#[unsafe(export_name = "bundle_turn")]
pub unsafe extern "C" fn turn(
    host: *const CHost,
    timeout_ms: c_int,
    each: Receiver,
    user: *mut c_void,
) -> c_int {
    return_count(|| {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { shared(host) }?;
        let Some(each) = each else { return host.turn(timeout_ms).map(|()| 0) };
        host.turn_with(timeout_ms, |from, body| {
            // SAFETY: `each` accepts these arguments, which are valid until it returns.
            unsafe { each(user, &CFrom::from_info(&from), body.as_ptr().cast(), body.len()) }
        })
    })
}

/// `bundle_receive`: waits for a message and copies it.
///
/// # Safety
/// As `bundle_join`; `from` must be null or writable, `buffer` null or writable for `size` octets.
#[unsafe(export_name = "bundle_receive")]
pub unsafe extern "C" fn receive(
    host: *const CHost,
    from: *mut CFrom,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_int {
    return_count(|| {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { shared(host) }?;
        if buffer.is_null() && size > 0 {
            return Err(BundleError::argument("the buffer is null"));
        }
        host.receive(timeout_ms, |known, body| {
            if !from.is_null() {
                // SAFETY: it is not null, and the caller guarantees the rest.
                unsafe { from.write(CFrom::from_info(&known)) };
            }
            let fits = body.len().min(size);
            if fits > 0 {
                // SAFETY: the buffer is writable for this many octets, and does not overlap `body`.
                unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(body.as_ptr(), fits) };
            }
            if fits < body.len() { Err(BundleError::buffer_too_small(body.len())) } else { Ok(fits) }
        })
    })
}

/// `bundle_wake`: ends a wait.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_wake")]
pub unsafe extern "C" fn wake(host: *const CHost) -> c_int {
    // Async-signal-safe: no allocation, lock or panic.
    // SAFETY: guaranteed by the caller.
    match unsafe { host.as_ref() } {
        Some(host) => {
            host.0.wake();
            0
        }
        None => Code::Argument as c_int,
    }
}

/// `bundle_saturate`: limits the ordinary messages received per second.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_saturate")]
pub unsafe extern "C" fn saturate(host: *const CHost, messages: c_long) -> c_int {
    return_status(|| {
        let messages = u64::try_from(messages).ok().map(|most| u32::try_from(most).unwrap_or(u32::MAX - 1));
        // SAFETY: guaranteed by the caller.
        unsafe { shared(host) }?.with(|socket| Ok(socket.saturate(messages)?))
    })
}

/// `bundle_figures`: returns the counters.
///
/// # Safety
/// As `bundle_join`; `figures` must be null, or begin with its size and be writable for that many octets.
#[unsafe(export_name = "bundle_figures")]
pub unsafe extern "C" fn figures(host: *const CHost, figures: *mut CFigures) -> c_int {
    return_status(|| {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { shared(host) }?;
        if figures.is_null() {
            return Err(BundleError::argument("the figures are null"));
        }
        let counted = host.with(|socket| Ok(CFigures::from_socket(socket)))?;
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { counted.write(figures) }
    })
}

/// `bundle_page`: returns all metrics as text.
///
/// # Safety
/// As `bundle_join`; `buffer` must be null or writable for `size` octets.
#[unsafe(export_name = "bundle_page")]
pub unsafe extern "C" fn page(host: *const CHost, buffer: *mut c_char, size: usize) -> c_int {
    return_count(|| {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { shared(host) }?;
        if buffer.is_null() && size > 0 {
            return Err(BundleError::argument("the buffer is null"));
        }
        let page = host.with(|socket| Ok(figures::metrics_page(socket)))?;
        if size > 0 {
            let fits = page.len().min(size - 1);
            // SAFETY: the buffer is writable for this text and a NUL, and does not overlap `page`.
            unsafe {
                buffer.cast::<u8>().copy_from_nonoverlapping(page.as_ptr(), fits);
                buffer.add(fits).write(0);
            }
        }
        Ok(page.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_reported() {
        assert_eq!(return_count(|| panic!("a bug")), Code::Bug as c_int);
        // SAFETY: it is NUL-terminated.
        assert_eq!(unsafe { CStr::from_ptr(error()) }.to_str(), Ok("bug in the library"));
        assert_eq!(return_count(|| Ok(usize::MAX)), c_int::MAX);
    }
}

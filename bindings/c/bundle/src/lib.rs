//! The bundle converter from C: a host's interface ([`HostFace`]) for simulations that are not
//! written in Rust. What each function does stands in `bindings/c/bundle.h`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `host` | a host that threads share, and how they wait in it |
//! | `settings` | how a host is opened |
//! | `figures` | what it counted |
//! | `words` | what functions return, and the last error of a thread |
//!
//! Here is only the border: integers and pointers become values, values become integers.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

mod figures;
mod host;
mod settings;
mod words;

use host::Shared;
use trunkline_bundle::face::{HostFace, RegionError};
use trunkline_bundle::host::{From, Post};
use trunkline_units::Span;
use words::{Code, Failure};

pub use figures::CFigures;
pub use settings::CSettings;

/// A host, as C has it.
pub struct CHost(Shared);

/// C's threads share hosts, and no compiler looks at what they do with a pointer.
const _: () = {
    const fn is_for_all_threads<T: Send + Sync>() {}
    is_for_all_threads::<CHost>();
};

/// What is known of a message, as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CFrom {
    address: u32,
    source: u32,
    priority: u32,
    reserved: [u32; 5],
}

/// First and last address of a range.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CRange {
    first: u32,
    last: u32,
}

/// A function of the program that is given messages; none if null.
pub type Receiver = Option<unsafe extern "C" fn(*mut c_void, *const CFrom, *const c_void, usize)>;

const PRIORITY: c_uint = 1;

impl CFrom {
    fn of(from: &From) -> CFrom {
        let From { address, source, priority } = *from;
        CFrom { address, source, priority: priority.into(), reserved: [0; 5] }
    }
}

/// No panic goes on into C: it is a bug of ours, and is told as such.
fn answer(operation: impl FnOnce() -> Result<usize, Failure>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(operation));
    match done.unwrap_or_else(|_| Err(Failure::code(Code::Bug))) {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(failure) => failure.told() as c_int,
    }
}

/// The same for an operation that has nothing to count.
fn done(operation: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(|| operation().map(|()| 0))
}

/// # Safety
/// `host` is null, or of `bundle_open` and not closed.
unsafe fn shared<'a>(host: *const CHost) -> Result<&'a Shared, Failure> {
    // SAFETY: this function's own condition.
    unsafe { host.as_ref() }.map(|host| &host.0).ok_or(Failure::argument("the host is null"))
}

/// # Safety
/// `text` is null, or ends with a 0.
unsafe fn name<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument("the region's name is null"));
    }
    // SAFETY: it is not null, and this function's own condition.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::argument("the region's name is no UTF-8"))
}

/// # Safety
/// `at` is null, or has `count` values that can be read while the result is there.
unsafe fn many<'a, T>(at: *const T, count: usize, what: &'static str) -> Result<&'a [T], Failure> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(what)),
        _ if count > isize::MAX as usize / size_of::<T>() => Err(Failure::argument("larger than the memory")),
        // SAFETY: it is not null, no larger than a slice may be, and this function's own condition.
        (false, _) => Ok(unsafe { slice::from_raw_parts(at, count) }),
    }
}

/// `bundle_text`: a code in words.
#[unsafe(export_name = "bundle_text")]
pub extern "C" fn text(code: c_int) -> *const c_char {
    words::of_code(code).as_ptr()
}

/// `bundle_error`: the last error of this thread.
#[unsafe(export_name = "bundle_error")]
pub extern "C" fn error() -> *const c_char {
    words::last()
}

/// `bundle_open`: opens a host.
///
/// # Safety
/// `host` is null or can be written; `settings` is null, or begins with its size, has as many octets, and its texts are null
/// or end with a 0.
#[unsafe(export_name = "bundle_open")]
pub unsafe extern "C" fn open(host: *mut *mut CHost, settings: *const CSettings) -> c_int {
    done(|| {
        if host.is_null() || settings.is_null() {
            return Err(Failure::argument("the host or the settings are null"));
        }
        // SAFETY: it is not null, and this function's own condition.
        let options = unsafe { settings::read(settings) }?;
        let opened = Box::new(CHost(Shared::open(&options)?));
        // SAFETY: it is not null, and this function's own condition.
        unsafe { host.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// `bundle_close`: closes a host.
///
/// # Safety
/// `host` is null, or of `bundle_open` and not closed, and no other thread uses it any more.
#[unsafe(export_name = "bundle_close")]
pub unsafe extern "C" fn close(host: *mut CHost) -> c_int {
    done(|| {
        // SAFETY: this function's own condition.
        unsafe { shared(host) }?.is_free()?;
        // SAFETY: it is of `Box::into_raw`, and this function's own condition.
        let host = unsafe { Box::from_raw(host) };
        host.0.end()
    })
}

/// `bundle_join`: wants addresses.
///
/// # Safety
/// `host` is null, or of `bundle_open` and not closed; so at all functions below.
#[unsafe(export_name = "bundle_join")]
pub unsafe extern "C" fn join(host: *const CHost, first: u32, last: u32) -> c_int {
    done(|| {
        let last = rising(first, last)?;
        // SAFETY: this function's own condition.
        unsafe { shared(host) }?.with(|face| Ok(face.join_range(first, last)?))
    })
}

/// `bundle_leave`: wants them no more.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_leave")]
pub unsafe extern "C" fn leave(host: *const CHost, first: u32, last: u32) -> c_int {
    done(|| {
        let last = rising(first, last)?;
        // SAFETY: this function's own condition.
        unsafe { shared(host) }?.with(|face| Ok(face.leave_range(first, last)?))
    })
}

fn rising(first: u32, last: u32) -> Result<u32, Failure> {
    if first <= last { Ok(last) } else { Err(Failure::argument("the last address is before the first")) }
}

/// `bundle_define`: gives addresses a name.
///
/// # Safety
/// As `bundle_join`; `region` is null or ends with a 0, `ranges` is null or has `count` of them.
#[unsafe(export_name = "bundle_define")]
pub unsafe extern "C" fn define(
    host: *const CHost,
    region: *const c_char,
    ranges: *const CRange,
    count: usize,
) -> c_int {
    done(|| {
        // SAFETY: this function's own conditions.
        let (host, region) = unsafe { (shared(host)?, name(region)?) };
        // SAFETY: the same.
        let ranges = unsafe { many(ranges, count, "the ranges are null") }?;
        if ranges.len() > trunkline_bundle::regions::MOST_RANGES {
            return Err(RegionError::Region(trunkline_bundle::regions::NoRegion::Ranges).into());
        }
        let ranges: Vec<(u32, u32)> = ranges.iter().map(|range| (range.first, range.last)).collect();
        host.with(|face| Ok(face.define(region, &ranges)?))
    })
}

/// What a host does with a region that exists.
///
/// # Safety
/// As `bundle_publish`.
unsafe fn of_region(
    host: *const CHost,
    region: *const c_char,
    act: impl FnOnce(&mut HostFace, &str) -> Result<(), Failure>,
) -> c_int {
    done(|| {
        // SAFETY: this function's own conditions.
        let (host, region) = unsafe { (shared(host)?, name(region)?) };
        host.with(|face| act(face, region))
    })
}

/// `bundle_publish`: says that this host sends to a region.
///
/// # Safety
/// As `bundle_join`; `region` is null or ends with a 0. So at the next three.
#[unsafe(export_name = "bundle_publish")]
pub unsafe extern "C" fn publish(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: this function's own conditions.
    unsafe { of_region(host, region, |face, region| Ok(face.publish(region)?)) }
}

/// `bundle_unpublish`: no more.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_unpublish")]
pub unsafe extern "C" fn unpublish(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: this function's own conditions.
    unsafe { of_region(host, region, |face, region| Ok(face.unpublish(region)?)) }
}

/// `bundle_subscribe`: wants all of a region.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_subscribe")]
pub unsafe extern "C" fn subscribe(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: this function's own conditions.
    unsafe { of_region(host, region, |face, region| Ok(face.subscribe(region)?)) }
}

/// `bundle_unsubscribe`: no more.
///
/// # Safety
/// As `bundle_publish`.
#[unsafe(export_name = "bundle_unsubscribe")]
pub unsafe extern "C" fn unsubscribe(host: *const CHost, region: *const c_char) -> c_int {
    // SAFETY: this function's own conditions.
    unsafe { of_region(host, region, |face, region| Ok(face.unsubscribe(region)?)) }
}

/// What is said of a message that is sent.
struct Said<'a> {
    body: &'a [u8],
    priority: bool,
    within: Option<Span>,
}

impl<'a> Said<'a> {
    /// # Safety
    /// `body` is null or has `size` octets that can be read while this lives.
    unsafe fn new(
        body: *const c_void,
        size: usize,
        flags: c_uint,
        within_us: c_long,
    ) -> Result<Said<'a>, Failure> {
        if flags & !PRIORITY != 0 {
            return Err(Failure::argument("there is no such flag"));
        }
        // SAFETY: this function's own condition.
        let body = unsafe { many(body.cast(), size, "the message is null") }?;
        let within = u64::try_from(within_us).ok().map(Span::from_us);
        Ok(Said { body, priority: flags & PRIORITY != 0, within })
    }

    fn send(
        &self,
        host: &Shared,
        address: impl FnOnce(&host::Face) -> Result<u32, Failure>,
    ) -> Result<(), Failure> {
        host.with(|face| {
            let address = address(face)?;
            let priority = self.priority || face.settings().is_priority(address);
            if self.within.is_some() && !priority {
                return Err(Failure::argument("only a priority message has a deadline"));
            }
            Ok(face.post(Post { address, priority, within: self.within, body: self.body })?)
        })
    }
}

/// `bundle_send`: sends a message.
///
/// # Safety
/// As `bundle_join`; `body` is null or has `size` octets.
#[unsafe(export_name = "bundle_send")]
pub unsafe extern "C" fn send(
    host: *const CHost,
    address: u32,
    body: *const c_void,
    size: usize,
    flags: c_uint,
    within_us: c_long,
) -> c_int {
    done(|| {
        // SAFETY: this function's own conditions.
        let (host, said) = unsafe { (shared(host)?, Said::new(body, size, flags, within_us)?) };
        said.send(host, |_| Ok(address))
    })
}

/// `bundle_send_in`: sends a message to an address of a region.
///
/// # Safety
/// As `bundle_send`; `region` is null or ends with a 0.
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
    done(|| {
        // SAFETY: this function's own conditions.
        let (host, region, said) =
            unsafe { (shared(host)?, name(region)?, Said::new(body, size, flags, within_us)?) };
        said.send(host, |face| Ok(face.address_in(region, nth).map_err(RegionError::from)?))
    })
}

/// `bundle_turn`: waits, and gives messages to a function.
///
/// # Safety
/// As `bundle_join`; `each` is null, or a function that takes what it is given and returns.
#[unsafe(export_name = "bundle_turn")]
pub unsafe extern "C" fn turn(
    host: *const CHost,
    timeout_ms: c_int,
    each: Receiver,
    user: *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: this function's own condition.
        let host = unsafe { shared(host) }?;
        let Some(each) = each else { return host.turn(timeout_ms).map(|()| 0) };
        host.turn_with(timeout_ms, |from, body| {
            // SAFETY: `each` takes this, which is there until it returns.
            unsafe { each(user, &CFrom::of(&from), body.as_ptr().cast(), body.len()) }
        })
    })
}

/// `bundle_receive`: waits, and copies a message.
///
/// # Safety
/// As `bundle_join`; `from` is null or can be written, `room` is null or `size` octets of it can.
#[unsafe(export_name = "bundle_receive")]
pub unsafe extern "C" fn receive(
    host: *const CHost,
    from: *mut CFrom,
    room: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_int {
    answer(|| {
        // SAFETY: this function's own condition.
        let host = unsafe { shared(host) }?;
        if room.is_null() && size > 0 {
            return Err(Failure::argument("the room is null"));
        }
        host.receive(timeout_ms, |known, body| {
            if !from.is_null() {
                // SAFETY: it is not null, and this function's own condition.
                unsafe { from.write(CFrom::of(&known)) };
            }
            let fits = body.len().min(size);
            if fits > 0 {
                // SAFETY: there is room for so many, and `body` is memory of ours.
                unsafe { room.cast::<u8>().copy_from_nonoverlapping(body.as_ptr(), fits) };
            }
            if fits < body.len() { Err(Failure::room(body.len())) } else { Ok(fits) }
        })
    })
}

/// `bundle_wake`: ends a wait.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_wake")]
pub unsafe extern "C" fn wake(host: *const CHost) -> c_int {
    // Nothing here allocates, locks or panics: a signal's handler calls it.
    // SAFETY: this function's own condition.
    match unsafe { host.as_ref() } {
        Some(host) => {
            host.0.wake();
            0
        }
        None => Code::Argument as c_int,
    }
}

/// `bundle_saturate`: takes no more than so many messages a second.
///
/// # Safety
/// As `bundle_join`.
#[unsafe(export_name = "bundle_saturate")]
pub unsafe extern "C" fn saturate(host: *const CHost, messages: c_long) -> c_int {
    done(|| {
        let messages = u64::try_from(messages).ok().map(|most| u32::try_from(most).unwrap_or(u32::MAX - 1));
        // SAFETY: this function's own condition.
        unsafe { shared(host) }?.with(|face| Ok(face.saturate(messages)?))
    })
}

/// `bundle_figures`: what it counted.
///
/// # Safety
/// As `bundle_join`; `figures` is null, or begins with its size and as many octets can be written.
#[unsafe(export_name = "bundle_figures")]
pub unsafe extern "C" fn figures(host: *const CHost, figures: *mut CFigures) -> c_int {
    done(|| {
        // SAFETY: this function's own condition.
        let host = unsafe { shared(host) }?;
        if figures.is_null() {
            return Err(Failure::argument("the figures are null"));
        }
        let counted = host.with(|face| Ok(CFigures::of(face)))?;
        // SAFETY: it is not null, and this function's own condition.
        unsafe { counted.write(figures) }
    })
}

/// `bundle_page`: all that it counted, as text.
///
/// # Safety
/// As `bundle_join`; `room` is null or `size` octets of it can be written.
#[unsafe(export_name = "bundle_page")]
pub unsafe extern "C" fn page(host: *const CHost, room: *mut c_char, size: usize) -> c_int {
    answer(|| {
        // SAFETY: this function's own condition.
        let host = unsafe { shared(host) }?;
        if room.is_null() && size > 0 {
            return Err(Failure::argument("the room is null"));
        }
        let page = host.with(|face| Ok(figures::page(face)))?;
        if size > 0 {
            let fits = page.len().min(size - 1);
            // SAFETY: there is room for these and a 0, and `page` is memory of ours.
            unsafe {
                room.cast::<u8>().copy_from_nonoverlapping(page.as_ptr(), fits);
                room.add(fits).write(0);
            }
        }
        Ok(page.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_border_and_is_told() {
        assert_eq!(answer(|| panic!("a bug")), Code::Bug as c_int);
        // SAFETY: it ends with a 0.
        assert_eq!(unsafe { CStr::from_ptr(error()) }.to_str(), Ok("a fault of the library"));
        assert_eq!(answer(|| Ok(usize::MAX)), c_int::MAX);
    }
}

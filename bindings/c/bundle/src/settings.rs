//! The settings of a host, as a C struct.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::socket::{HostOptions, host, max_datagram_on};
use trunkline_bundle::wire::classic::{MAX_BUNDLE, MAX_HOSTS};
use trunkline_bundle::wire::format2::{DEFAULT_DATAGRAM, MIN_DATAGRAM};
use trunkline_bundle::{Format, Format2, Settings};
use trunkline_units::Span;

use crate::error::BundleError;

/// The default ports of the central converter for hosts, and of classic hosts.
const CENTRAL: u16 = 3_458;
const LISTEN: u16 = 3_459;

/// `struct bundle_settings`. Fields that are 0 or null have their default value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSettings {
    size: usize,
    central: *const c_char,
    listen: *const c_char,
    interface: *const c_char,
    number: u32,
    format: u32,
    timers: u32,
    pairs: u32,
    site: u32,
    congestion: u32,
    longest: u32,
    retell_ms: u32,
    interval_us: u32,
    deadline_us: u32,
    priority_deadline_us: u32,
    /// Reserved for later versions; it also fills the last word.
    reserved: u32,
}

/// Reads settings of an earlier or later version: missing fields have their default value, unknown ones must be 0.
///
/// # Safety
/// `settings` must begin with its size and be readable for that many octets; its texts must be null or
/// NUL-terminated.
pub(crate) unsafe fn read(settings: *const CSettings) -> Result<HostOptions, BundleError> {
    // SAFETY: it begins with its size.
    let size = unsafe { (&raw const (*settings).size).read() };
    let known = size_of::<CSettings>();
    if !(size_of::<usize>()..=4_096).contains(&size) {
        return Err(BundleError::setting("size", "must be that of struct bundle_settings"));
    }
    let mut whole = MaybeUninit::<CSettings>::zeroed();
    // SAFETY: this many octets are readable and writable, and any octets are valid for the numbers and pointers of
    // this struct.
    let whole = unsafe {
        whole.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(settings.cast(), size.min(known));
        whole.assume_init()
    };
    for at in known..size {
        // SAFETY: there are `size` octets.
        if unsafe { settings.cast::<u8>().add(at).read() } != 0 {
            return Err(BundleError::setting(
                "size",
                "a field is set that this version of the library does not support",
            ));
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { whole.options() }
}

impl CSettings {
    /// # Safety
    /// The texts must be null or NUL-terminated.
    unsafe fn options(&self) -> Result<HostOptions, BundleError> {
        if self.reserved != 0 {
            return Err(BundleError::setting("reserved", "0"));
        }
        let is_format2 = choice("format", self.format, &[false, true])?;
        // SAFETY: guaranteed by the caller.
        let [central, listen, interface] = unsafe {
            [text("central", self.central)?, text("listen", self.listen)?, text("interface", self.interface)?]
        };
        let address =
            |text: &str| text.parse().map_err(|_| BundleError::setting("interface", "an IPv4 address"));
        let interface = interface.map_or(Ok(Ipv4Addr::LOCALHOST), address)?;
        let central = socket_address("central", central, SocketAddrV4::new(Ipv4Addr::LOCALHOST, CENTRAL))?;
        let default = if is_format2 { (interface, 0) } else { (Ipv4Addr::LOCALHOST, LISTEN) };
        let listen = socket_address("listen", listen, SocketAddrV4::new(default.0, default.1))?;
        let send_interface = if host::is_shared(*listen.ip()) { interface } else { *listen.ip() };
        let timers = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY];
        let settings = Settings {
            timing: self.timing(choice("timers", self.timers, &timers)?)?,
            pairs: choice("pairs", self.pairs, &[false, true])?,
            interval: self.interval()?,
            format: if is_format2 { Format::Format2(self.format2(send_interface)?) } else { self.classic()? },
            ..Settings::default()
        };
        let max_number = if is_format2 { u16::MAX } else { MAX_HOSTS.into() };
        let number = u16::try_from(self.number.max(1)).ok().filter(|number| *number <= max_number);
        let number = number.ok_or_else(|| match is_format2 {
            true => BundleError::setting("number", "1 to 65535"),
            false => BundleError::setting("number", "1 to 16; BUNDLE_WIDE has more"),
        })?;
        let refresh = match self.retell_ms {
            0 => host::REFRESH_INTERVAL,
            ms => Span::from_ms(ms.into()),
        };
        Ok(HostOptions { settings, number, central, listen, interface, refresh, dis: None })
    }

    /// Returns a timing with the deadlines of the settings.
    fn timing(&self, timers: Timing) -> Result<Timing, BundleError> {
        let override_of = |field, us| match us {
            0 => Ok(None),
            us @ 1..=1_000_000 => Ok(Some(Span::from_us(us.into()))),
            _ => Err(BundleError::setting(field, "0 to 1000000")),
        };
        let ordinary = override_of("deadline_us", self.deadline_us)?;
        let priority = override_of("priority_deadline_us", self.priority_deadline_us)?;
        let timing = timers.with_deadlines(ordinary, priority);
        timing
            .ok_or_else(|| BundleError::setting("deadline_us", "0 with BUNDLE_TICK, which has no deadlines"))
    }

    fn interval(&self) -> Result<Span, BundleError> {
        match self.interval_us {
            0 => Ok(Settings::default().interval),
            us @ 100..=3_600_000_000 => Ok(Span::from_us(us.into())),
            _ => Err(BundleError::setting("interval_us", "100 to 3600000000")),
        }
    }

    fn classic(&self) -> Result<Format, BundleError> {
        match (self.site, self.congestion, self.longest) {
            (0, 0, 0) => Ok(Format::Classic),
            _ => Err(BundleError::setting("site, congestion, longest", "only with BUNDLE_WIDE")),
        }
    }

    fn format2(&self, send_interface: Ipv4Addr) -> Result<Format2, BundleError> {
        let site = u16::try_from(self.site.max(1)).map_err(|_| BundleError::setting("site", "1 to 65535"))?;
        let max_datagram = match self.longest as usize {
            // Any path carries the default size.
            0 => max_datagram_on(send_interface).unwrap_or(DEFAULT_DATAGRAM),
            octets if (MIN_DATAGRAM..=MAX_BUNDLE).contains(&octets) => octets,
            _ => return Err(BundleError::setting("longest", "512 to 65507")),
        };
        let congestion = choice("congestion", self.congestion, &[Congestion::Rates, Congestion::Levels])?;
        Ok(Format2 { site, max_datagram, congestion, ..Format2::default() })
    }
}

/// Returns the value for a constant of the header.
fn choice<T: Copy>(setting: &'static str, number: u32, of: &[T]) -> Result<T, BundleError> {
    of.get(number as usize)
        .copied()
        .ok_or_else(|| BundleError::setting(setting, "one of the constants of bundle.h"))
}

/// # Safety
/// `at` must be null or NUL-terminated.
unsafe fn text<'a>(setting: &'static str, at: *const c_char) -> Result<Option<&'a str>, BundleError> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map(Some).map_err(|_| BundleError::setting(setting, "must be UTF-8"))
}

/// Parses an address with an optional port.
fn socket_address(
    setting: &'static str,
    text: Option<&str>,
    default: SocketAddrV4,
) -> Result<SocketAddrV4, BundleError> {
    let Some(text) = text else { return Ok(default) };
    let with_default_port = |ip: Ipv4Addr| SocketAddrV4::new(ip, default.port());
    text.parse()
        .or_else(|_| text.parse().map(with_default_port))
        .map_err(|_| BundleError::setting(setting, "ADDRESS:PORT or ADDRESS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_interval_is_that_of_the_flags() {
        // SAFETY: all fields are numbers and pointers, for which zero is valid.
        let mut settings: CSettings = unsafe { MaybeUninit::zeroed().assume_init() };
        settings.size = size_of::<CSettings>();
        for (format, value_us, us) in [(0, 0, 5_000), (1, 0, 5_000), (0, 20_000, 20_000), (1, 100, 100)] {
            (settings.format, settings.interval_us) = (format, value_us);
            // SAFETY: it begins with its size and has no texts.
            let options = unsafe { read(&raw const settings) }.unwrap();
            assert_eq!(options.settings.interval, Span::from_us(us));
        }
    }

    #[test]
    fn deadlines_follow_the_settings() {
        // SAFETY: all fields are numbers and pointers, for which zero is valid.
        let mut settings: CSettings = unsafe { MaybeUninit::zeroed().assume_init() };
        settings.size = size_of::<CSettings>();
        let mut timing = |timers, deadline_us, priority_deadline_us| {
            settings = CSettings { timers, deadline_us, priority_deadline_us, ..settings };
            // SAFETY: it begins with its size and has no texts.
            unsafe { read(&raw const settings) }.map(|options| options.settings.timing)
        };
        let (ordinary, priority) = (Span::from_ms(20), Span::from_us(300));
        assert_eq!(timing(1, 20_000, 300).unwrap(), Timing::Adaptive { ordinary, priority, gap: None });
        assert_eq!(timing(2, 0, 0).unwrap(), Timing::LEAST_DELAY);
        assert_eq!(timing(0, 0, 0).unwrap(), Timing::CLASSIC);
        assert!(timing(0, 1, 0).is_err() && timing(0, 0, 1).is_err() && timing(1, 1_000_001, 0).is_err());
    }

    #[test]
    fn settings_have_no_padding() {
        // The contents of padding are undefined in C, so that later versions could not use it.
        let fields = size_of::<usize>() + 3 * size_of::<*const c_char>() + 12 * size_of::<u32>();
        assert_eq!(size_of::<CSettings>(), fields);
    }
}

//! How a host is opened, as C says it.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};

use trunkline_bundle::face::{HostOptions, carried_by, host};
use trunkline_bundle::gather::Timing;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::wire::classic::{LONGEST, MOST_HOSTS};
use trunkline_bundle::wire::wide::{LEAST_PATH, PATH};
use trunkline_bundle::{Format, Settings, Wide};
use trunkline_units::Span;

use crate::words::Failure;

/// Where the central converter hears hosts, and hosts of the classic format hear it.
const CENTRAL: u16 = 3_458;
const LISTEN: u16 = 3_459;

/// The settings, as C has them. What is 0 or null is as if it were not said.
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
    /// It fills the last word, which a later version may give a meaning.
    reserved: u32,
}

/// Reads settings of an earlier or a later version: what is missing is not said, and what is more must not be.
///
/// # Safety
/// `settings` begins with its size and has as many octets; its texts are null or end with a 0.
pub(crate) unsafe fn read(settings: *const CSettings) -> Result<HostOptions, Failure> {
    // SAFETY: it begins with its size.
    let size = unsafe { (&raw const (*settings).size).read() };
    let known = size_of::<CSettings>();
    if !(size_of::<usize>()..=4_096).contains(&size) {
        return Err(Failure::setting("size", "that of struct bundle_settings"));
    }
    let mut whole = MaybeUninit::<CSettings>::zeroed();
    // SAFETY: so many octets can be read and written; any octets are such settings, as all of it are numbers and pointers.
    let whole = unsafe {
        whole.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(settings.cast(), size.min(known));
        whole.assume_init()
    };
    for at in known..size {
        // SAFETY: there are `size` octets.
        if unsafe { settings.cast::<u8>().add(at).read() } != 0 {
            return Err(Failure::setting(
                "size",
                "something is set that this version of the library does not know",
            ));
        }
    }
    // SAFETY: this function's own condition.
    unsafe { whole.options() }
}

impl CSettings {
    /// # Safety
    /// The texts are null or end with a 0.
    unsafe fn options(&self) -> Result<HostOptions, Failure> {
        if self.reserved != 0 {
            return Err(Failure::setting("reserved", "0"));
        }
        let is_wide = choice("format", self.format, &[false, true])?;
        // SAFETY: this function's own condition.
        let [central, listen, interface] = unsafe {
            [text("central", self.central)?, text("listen", self.listen)?, text("interface", self.interface)?]
        };
        let address = |text: &str| text.parse().map_err(|_| Failure::setting("interface", "an IPv4 address"));
        let interface = interface.map_or(Ok(Ipv4Addr::LOCALHOST), address)?;
        let central = place("central", central, SocketAddrV4::new(Ipv4Addr::LOCALHOST, CENTRAL))?;
        let unsaid = if is_wide { (interface, 0) } else { (Ipv4Addr::LOCALHOST, LISTEN) };
        let listen = place("listen", listen, SocketAddrV4::new(unsaid.0, unsaid.1))?;
        let sends_by = if host::is_shared(*listen.ip()) { interface } else { *listen.ip() };
        let timers = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY];
        let settings = Settings {
            timing: self.timing(choice("timers", self.timers, &timers)?)?,
            pairs: choice("pairs", self.pairs, &[false, true])?,
            interval: self.interval()?,
            format: if is_wide { Format::Wide(self.wide(sends_by)?) } else { self.classic()? },
            ..Settings::default()
        };
        let most = if is_wide { u16::MAX } else { MOST_HOSTS.into() };
        let number = u16::try_from(self.number.max(1)).ok().filter(|number| *number <= most);
        let number = number.ok_or(match is_wide {
            true => Failure::setting("number", "1 to 65535"),
            false => Failure::setting("number", "1 to 16; BUNDLE_WIDE has more"),
        })?;
        let retell = match self.retell_ms {
            0 => host::RETELLS,
            ms => Span::from_ms(ms.into()),
        };
        Ok(HostOptions { settings, number, central, listen, interface, retell, dis: None })
    }

    /// Such timers, with the deadlines that are said.
    fn timing(&self, timers: Timing) -> Result<Timing, Failure> {
        let said = |field, us| match us {
            0 => Ok(None),
            us @ 1..=1_000_000 => Ok(Some(Span::from_us(us.into()))),
            _ => Err(Failure::setting(field, "0 to 1000000")),
        };
        let ordinary = said("deadline_us", self.deadline_us)?;
        let priority = said("priority_deadline_us", self.priority_deadline_us)?;
        let timing = timers.with_deadlines(ordinary, priority);
        timing.ok_or(Failure::setting("deadline_us", "0 with BUNDLE_TICK, which has no deadlines"))
    }

    fn interval(&self) -> Result<Span, Failure> {
        match self.interval_us {
            0 => Ok(Settings::default().interval),
            us @ 100..=3_600_000_000 => Ok(Span::from_us(us.into())),
            _ => Err(Failure::setting("interval_us", "100 to 3600000000")),
        }
    }

    fn classic(&self) -> Result<Format, Failure> {
        match (self.site, self.congestion, self.longest) {
            (0, 0, 0) => Ok(Format::Classic),
            _ => Err(Failure::setting("site, congestion, longest", "of BUNDLE_WIDE")),
        }
    }

    fn wide(&self, sends_by: Ipv4Addr) -> Result<Wide, Failure> {
        let site = u16::try_from(self.site.max(1)).map_err(|_| Failure::setting("site", "1 to 65535"))?;
        let path = match self.longest as usize {
            // Of what is not known any path carries this.
            0 => carried_by(sends_by).unwrap_or(PATH),
            octets if (LEAST_PATH..=LONGEST).contains(&octets) => octets,
            _ => return Err(Failure::setting("longest", "512 to 65507")),
        };
        let congestion = choice("congestion", self.congestion, &[Congestion::Rates, Congestion::Levels])?;
        Ok(Wide { site, path, congestion, ..Wide::default() })
    }
}

/// The value of a number that stands for one.
fn choice<T: Copy>(setting: &'static str, number: u32, of: &[T]) -> Result<T, Failure> {
    of.get(number as usize).copied().ok_or(Failure::setting(setting, "one of the constants of bundle.h"))
}

/// # Safety
/// `at` is null, or ends with a 0.
unsafe fn text<'a>(setting: &'static str, at: *const c_char) -> Result<Option<&'a str>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and this function's own condition.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map(Some).map_err(|_| Failure::setting(setting, "no text"))
}

/// An address, with or without a port.
fn place(setting: &'static str, text: Option<&str>, unsaid: SocketAddrV4) -> Result<SocketAddrV4, Failure> {
    let Some(text) = text else { return Ok(unsaid) };
    let alone = |ip: Ipv4Addr| SocketAddrV4::new(ip, unsaid.port());
    text.parse()
        .or_else(|_| text.parse().map(alone))
        .map_err(|_| Failure::setting(setting, "ADDRESS:PORT or ADDRESS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_flags_unless_said() {
        // SAFETY: all of it are numbers and pointers, which may be 0 and null.
        let mut settings: CSettings = unsafe { MaybeUninit::zeroed().assume_init() };
        settings.size = size_of::<CSettings>();
        for (format, said_us, us) in [(0, 0, 5_000), (1, 0, 5_000), (0, 20_000, 20_000), (1, 100, 100)] {
            (settings.format, settings.interval_us) = (format, said_us);
            // SAFETY: it begins with its size, and has no texts.
            let options = unsafe { read(&raw const settings) }.unwrap();
            assert_eq!(options.settings.interval, Span::from_us(us));
        }
    }

    #[test]
    fn deadlines_are_those_that_are_said() {
        // SAFETY: any octets are such settings; null texts are not said.
        let mut settings: CSettings = unsafe { MaybeUninit::zeroed().assume_init() };
        settings.size = size_of::<CSettings>();
        let mut timing = |timers, deadline_us, priority_deadline_us| {
            settings = CSettings { timers, deadline_us, priority_deadline_us, ..settings };
            // SAFETY: it begins with its size, and has no texts.
            unsafe { read(&raw const settings) }.map(|options| options.settings.timing)
        };
        let (ordinary, priority) = (Span::from_ms(20), Span::from_us(300));
        assert_eq!(timing(1, 20_000, 300).unwrap(), Timing::Adaptive { ordinary, priority, gap: None });
        assert_eq!(timing(2, 0, 0).unwrap(), Timing::LEAST_DELAY);
        assert_eq!(timing(0, 0, 0).unwrap(), Timing::CLASSIC);
        assert!(timing(0, 1, 0).is_err() && timing(0, 0, 1).is_err() && timing(1, 1_000_001, 0).is_err());
    }

    #[test]
    fn no_octet_of_the_settings_is_without_a_name() {
        // What lay between or behind the fields would be anything in C, and could never be given a meaning.
        let fields = size_of::<usize>() + 3 * size_of::<*const c_char>() + 12 * size_of::<u32>();
        assert_eq!(size_of::<CSettings>(), fields);
    }
}

//! `protocol = …`: the defaults of each protocol, and its options, which overrides set too.
//!
//! To add a value to an option with keywords, such as `congestion`, extend its enum in [`plan`](crate::plan) and its
//! table of keywords here; reading, printing and suggestions use the table. `docs/language.md` documents it.

use std::net::{IpAddr, Ipv4Addr};

use trunkline_units::{Size, Span};

use super::Context;
use super::options::{Options, assign, choice, integer, on_off, optional, positive_time, share, size, text};
use super::quantity::single;
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{ArqCongestion, ArqFec, ArqMode, BundlePriority, Checksum, Protocol, TcpTimers};
use crate::tree::Value;

/// Names of the protocols.
pub(crate) const PROTOCOLS: &[&str] = &["tcp", "udp", "multicast", "llc", "guaranteed", "bundle"];

/// The SAP that sends and receives the token.
const TOKEN_SAP: u8 = 0x54;

/// Keywords of `timers`, the timers of a simulated `tcp`.
pub(crate) const TCP_TIMERS: &[(&str, TcpTimers)] = &[("bsd", TcpTimers::Bsd), ("fine", TcpTimers::Fine)];

/// Keywords of `checksum`, the integrity checks of `guaranteed`.
pub(crate) const CHECKSUMS: &[(&str, Checksum)] = &[
    ("crc32c", Checksum::Crc32c),
    ("crc64", Checksum::Crc64),
    ("folded", Checksum::Folded),
    ("none", Checksum::None),
];

/// Keywords of `mode`, the retransmission modes of `guaranteed`.
pub(crate) const MODES: &[(&str, ArqMode)] = &[
    ("gobackn", ArqMode::Gobackn),
    ("selective", ArqMode::Selective),
    ("stopandwait", ArqMode::Stopandwait),
];

/// Keywords of `congestion`, the congestion policies of `guaranteed`.
pub(crate) const CONGESTION_POLICIES: &[(&str, ArqCongestion)] =
    &[("fixed", ArqCongestion::Fixed), ("reno", ArqCongestion::Reno), ("paced", ArqCongestion::Paced)];

impl Protocol {
    /// Returns its name in the language and in the record: `tcp`, `udp`, `multicast`, `llc`, `guaranteed`, `bundle`.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Tcp { .. } => "tcp",
            Protocol::Udp { .. } => "udp",
            Protocol::Multicast { .. } => "multicast",
            Protocol::Llc { .. } => "llc",
            Protocol::Guaranteed { .. } => "guaranteed",
            Protocol::Bundle { .. } => "bundle",
        }
    }
}

/// Returns the names of a protocol's options.
pub(crate) fn options(protocol: &Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::Tcp { .. } => &["window", "congestion", "nodelay", "timers", "delayed_ack"],
        Protocol::Udp { .. } => &["flow"],
        Protocol::Multicast { .. } => &["group", "ttl"],
        Protocol::Llc { .. } => &["type", "sap", "priority", "tries", "timeout", "crc", "token", "limit"],
        Protocol::Guaranteed { .. } => &[
            "mode",
            "window",
            "frame",
            "ack_every",
            "timeout",
            "adaptive",
            "ack_delay",
            "congestion",
            "checksum",
            "drop",
            "alter",
            "fec",
        ],
        Protocol::Bundle { .. } => &["address", "priority", "within"],
    }
}

/// Returns a protocol with all defaults. Options without a default are placeholders, which [`required`] rejects.
pub(crate) fn default(name: &str) -> Option<Protocol> {
    Some(match name {
        "tcp" => Protocol::Tcp {
            window: None,
            congestion: None,
            nodelay: true,
            timers: TcpTimers::Bsd,
            delayed_ack: true,
        },
        "udp" => Protocol::Udp { flow_control: true },
        "multicast" => Protocol::Multicast { group: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ttl: 1 },
        "llc" => Protocol::Llc {
            r#type: 1,
            sap: 4,
            priority: 0,
            tries: 3,
            timeout: Span::from_ms(10),
            crc: false,
            token: false,
            limit: None,
        },
        "guaranteed" => Protocol::Guaranteed {
            mode: ArqMode::Gobackn,
            window: 16,
            frame: Size::from_bytes(9152),
            ack_every: 3,
            timeout: Span::from_s(3),
            adaptive: true,
            ack_delay: Span::from_us(200),
            congestion: ArqCongestion::Fixed,
            checksum: Checksum::Crc32c,
            drop: 0.0,
            alter: 0.0,
            fec: None,
        },
        "bundle" => Protocol::Bundle { address: 0, priority: None, within: None },
        _ => return None,
    })
}

/// Returns the options that have no default.
fn required(protocol: &Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::Multicast { .. } => &["group"],
        Protocol::Bundle { .. } => &["address"],
        _ => &[],
    }
}

/// Reads a protocol with its options: `tcp (window = 256 kB)`.
pub(crate) fn protocol(cx: &mut Context<'_>, value: &Value) -> Option<Protocol> {
    let part = single(cx, value, "a protocol")?;
    let Some(mut protocol) = default(&part.text).filter(|_| part.unit.is_none()) else {
        let error = Diagnostic::error(part.location, format!("unknown protocol `{}`", shorten(&part.text)));
        cx.report(error.label("expected a protocol").suggest(&part.text, PROTOCOLS.iter().copied()));
        return None;
    };
    let owner = format!("`{}`", part.text);
    let options = Options::of(&owner, options(&protocol));
    let arguments = part.arguments.as_deref().unwrap_or_default();
    let given =
        options.apply(cx, arguments, |cx, name, setting| set(cx, &mut protocol, name, &setting.values[0]));
    options.require(cx, part.location, &given, required(&protocol));
    if let Some((option, message, label)) = conflict(&protocol) {
        let location = given.get(option).or(given.get("window")).copied().unwrap_or(part.location);
        cx.report(Diagnostic::error(location, message).label(label));
    }
    Some(protocol)
}

/// Returns a conflict between options: the option, the message, the expectation.
pub(crate) fn conflict(protocol: &Protocol) -> Option<(&'static str, String, String)> {
    match protocol {
        Protocol::Guaranteed { mode, fec: Some(_), .. } if *mode != ArqMode::Selective => Some((
            "fec",
            "forward error correction is for selective repeat only".to_owned(),
            "expected `mode = selective` beside `fec`".to_owned(),
        )),
        Protocol::Llc { sap: TOKEN_SAP, token: true, .. } => Some((
            "sap",
            format!("SAP {TOKEN_SAP} is the token's own"),
            "expected another one beside `token = on`".to_owned(),
        )),
        Protocol::Guaranteed { window, ack_every, .. } if ack_every > window => Some((
            "ack_every",
            "an acknowledgement would come after the window is full".to_owned(),
            format!("expected `ack_every` ({ack_every}) up to `window` ({window})"),
        )),
        _ => None,
    }
}

/// Sets one of the [`options`]. An invalid value is reported and leaves the protocol unchanged.
pub(crate) fn set(cx: &mut Context<'_>, protocol: &mut Protocol, name: &str, value: &Value) {
    match protocol {
        Protocol::Tcp { window, congestion, nodelay, timers, delayed_ack } => match name {
            "window" => assign(window, optional(cx, value, "auto", size)),
            "congestion" => assign(congestion, optional(cx, value, "auto", congestion_control)),
            "nodelay" => assign(nodelay, on_off(cx, value)),
            "timers" => assign(timers, choice(cx, value, TCP_TIMERS)),
            _ => assign(delayed_ack, on_off(cx, value)),
        },
        Protocol::Udp { flow_control } => assign(flow_control, on_off(cx, value)),
        Protocol::Multicast { group, ttl } => match name {
            "group" => assign(group, multicast_group(cx, value)),
            _ => assign(ttl, byte(cx, value, 0, 255)),
        },
        Protocol::Llc { r#type, sap, priority, tries, timeout, crc, token, limit } => match name {
            "type" => assign(r#type, choice(cx, value, &[("1", 1), ("3", 3)])),
            "sap" => assign(sap, service_access_point(cx, value)),
            "priority" => assign(priority, byte(cx, value, 0, 7)),
            "tries" => assign(tries, positive_u32(cx, value)),
            "timeout" => assign(timeout, positive_time(cx, value)),
            "crc" => assign(crc, on_off(cx, value)),
            "token" => assign(token, on_off(cx, value)),
            _ => assign(limit, optional(cx, value, "none", positive_time)),
        },
        Protocol::Guaranteed {
            mode,
            window,
            frame,
            ack_every,
            timeout,
            adaptive,
            ack_delay,
            congestion,
            checksum,
            drop,
            alter,
            fec,
        } => match name {
            "mode" => assign(mode, choice(cx, value, MODES)),
            "window" => assign(window, integer(cx, value, 1, 8192).map(|n| n as u32)),
            "frame" => assign(frame, arq_frame(cx, value)),
            "ack_every" => assign(ack_every, positive_u32(cx, value)),
            "timeout" => assign(timeout, positive_time(cx, value)),
            "adaptive" => assign(adaptive, on_off(cx, value)),
            "ack_delay" => assign(ack_delay, positive_time(cx, value)),
            "congestion" => assign(congestion, choice(cx, value, CONGESTION_POLICIES)),
            "checksum" => assign(checksum, choice(cx, value, CHECKSUMS)),
            "drop" => assign(drop, share(cx, value)),
            "alter" => assign(alter, share(cx, value)),
            _ => assign(fec, optional(cx, value, "off", arq_fec)),
        },
        Protocol::Bundle { address, priority, within } => match name {
            "address" => assign(address, integer(cx, value, 0, u64::from(u32::MAX)).map(|n| n as u32)),
            "within" => assign(within, optional(cx, value, "none", super::network::short)),
            _ => assign(priority, bundle_priority(cx, value)),
        },
    }
}

/// Reads a whole number from `min` to `max`, which is at most 255.
fn byte(cx: &mut Context<'_>, value: &Value, min: u64, max: u64) -> Option<u8> {
    integer(cx, value, min, max).and_then(|n| u8::try_from(n).ok())
}

/// Reads a frame length, up to the longest datagram (`MIN_FRAME` to `MAX_FRAME` of `arq`).
fn arq_frame(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    let frame = size(cx, value)?;
    if (128..=65_507).contains(&frame.as_bytes()) {
        return Some(frame);
    }
    let error = Diagnostic::error(value.location, format!("a frame of {} bytes", frame.as_bytes()));
    cx.report(error.label("expected 128 B to 65507 B"));
    None
}

/// Reads `K` or `K+R`; `K` means `K+1`.
fn arq_fec(cx: &mut Context<'_>, value: &Value) -> Option<ArqFec> {
    let part = single(cx, value, "`off`, or numbers of frames as `10+1`")?;
    let second = part.unit.as_ref().map_or("+1", |unit| &unit.text);
    let numbers = second.strip_prefix('+').and_then(|r| Some((part.text.parse().ok()?, r.parse().ok()?)));
    if let Some((frames @ 1..=64, repairs @ 1..=8)) = numbers
        && repairs <= frames
        && part.arguments.is_none()
    {
        return Some(ArqFec { frames, repairs });
    }
    let error = Diagnostic::error(value.location, "these are no blocks with repair frames");
    let error = error.label("expected `off`, `K` or `K+R`: for 1 to 64 frames 1 to 8 repair frames");
    cx.report(error.help("there are no more repair frames than frames"));
    None
}

/// Reads a whole number of at least 1.
fn positive_u32(cx: &mut Context<'_>, value: &Value) -> Option<u32> {
    integer(cx, value, 1, u64::from(u32::MAX)).and_then(|n| u32::try_from(n).ok())
}

fn congestion_control(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    text(cx, value, "the kernel's name of a congestion control, such as `reno`").map(str::to_owned)
}

fn bundle_priority(cx: &mut Context<'_>, value: &Value) -> Option<Option<BundlePriority>> {
    let choices = [("high", Some(BundlePriority::High)), ("low", Some(BundlePriority::Low)), ("none", None)];
    choice(cx, value, &choices)
}

/// Reads an individual SAP, which is even. 0 is the null SAP and 255 the global one (IEEE 802.2 section 3.3.1.2).
fn service_access_point(cx: &mut Context<'_>, value: &Value) -> Option<u8> {
    let sap = byte(cx, value, 2, 254)?;
    if sap % 2 == 1 {
        let error = Diagnostic::error(value.location, format!("SAP {sap} is odd, which means a group"));
        cx.report(error.label("expected an even number from 2 to 254"));
        return None;
    }
    Some(sap)
}

fn multicast_group(cx: &mut Context<'_>, value: &Value) -> Option<IpAddr> {
    let written = text(cx, value, "a multicast address, such as `239.1.1.1`")?;
    let error = match written.parse::<IpAddr>() {
        Ok(address) if address.is_multicast() => return Some(address),
        Ok(_) => Diagnostic::error(value.location, format!("{written} is not a multicast address")),
        Err(_) => Diagnostic::error(value.location, format!("`{}` is not an address", shorten(written))),
    };
    cx.report(error.label("expected 224.0.0.0 to 239.255.255.255, or `[ff00::]` and above"));
    None
}

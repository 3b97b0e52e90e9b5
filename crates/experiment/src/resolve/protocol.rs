//! `protocol = …`: the defaults of each protocol, and its options, which overrides set too.
//!
//! To add a value to an option with keywords, such as `congestion`, extend its enum in [`plan`](crate::plan) and its
//! table of keywords here; reading, printing and suggestions use the table. `docs/language.md` documents it.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use trunkline_units::{Size, Span};

use super::options::{self, Visit, integer, plain, positive_time, read, size, text, time};
use super::quantity::single;
use super::{Context, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{
    ArqCongestion, ArqFec, ArqMode, BundlePriority, Checksum, Protocol, QuicCongestion, TcpController,
    TcpEcn, TcpExtensions, TcpTimers, TcpVariant,
};
use crate::token;
use crate::tree::{Part, Value};

/// Names of the protocols.
pub(crate) const PROTOCOLS: &[&str] =
    &["tcp", "udp", "multicast", "llc", "guaranteed", "bundle", "stamp", "quic"];

/// The SAP that sends and receives the token.
const TOKEN_SAP: u8 = 0x54;

/// Keywords of `timers`, the timers of a simulated `tcp`.
const TCP_TIMERS: &[(&str, TcpTimers)] = &[("bsd", TcpTimers::Bsd), ("fine", TcpTimers::Fine)];

/// Keywords of the extensions of a simulated `tcp`.
const TCP_ECN: &[(&str, Option<TcpEcn>)] = &[
    ("auto", None),
    ("on", Some(TcpEcn::On)),
    ("off", Some(TcpEcn::Off)),
    ("accurate", Some(TcpEcn::Accurate)),
];
const AUTO_ON_OFF: &[(&str, Option<bool>)] = &[("auto", None), ("on", Some(true)), ("off", Some(false))];

/// Keywords of `variant`.
const TCP_VARIANTS: &[(&str, Option<TcpVariant>)] =
    &[("auto", None), ("standard", Some(TcpVariant::Standard)), ("linux", Some(TcpVariant::Linux))];

/// Keywords of `checksum`, the integrity checks of `guaranteed`.
const CHECKSUMS: &[(&str, Checksum)] = &[
    ("crc32c", Checksum::Crc32c),
    ("crc64", Checksum::Crc64),
    ("folded", Checksum::Folded),
    ("none", Checksum::None),
];

/// Keywords of `mode`, the retransmission modes of `guaranteed`.
const MODES: &[(&str, ArqMode)] = &[
    ("gobackn", ArqMode::Gobackn),
    ("selective", ArqMode::Selective),
    ("stopandwait", ArqMode::Stopandwait),
];

/// Keywords of `congestion`, the congestion controllers of `guaranteed`.
const ARQ_CONGESTION: &[(&str, ArqCongestion)] = &[
    ("fixed", ArqCongestion::Fixed),
    ("reno", ArqCongestion::Reno),
    ("cubic", ArqCongestion::Cubic),
    ("paced", ArqCongestion::Paced),
    ("tcp-friendly", ArqCongestion::TcpFriendly),
    ("bbr", ArqCongestion::Bbr),
    ("bbr3", ArqCongestion::Bbr3),
];

/// Keywords of `congestion`, the congestion controls of `quic`.
const QUIC_CONGESTION: &[(&str, QuicCongestion)] =
    &[("cubic", QuicCongestion::Cubic), ("reno", QuicCongestion::Reno), ("bbr", QuicCongestion::Bbr)];

/// Keywords of `priority` of `bundle`.
const PRIORITIES: &[(&str, Option<BundlePriority>)] =
    &[("high", Some(BundlePriority::High)), ("low", Some(BundlePriority::Low)), ("none", None)];

/// The largest whole number of an option.
pub(crate) const MOST: u64 = u32::MAX as u64;

impl Protocol {
    /// Returns its name in the language and in the record: `tcp`, `udp`, `multicast`, `llc`, `guaranteed`, `bundle`, `stamp`,
    /// `quic`.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Tcp { .. } => "tcp",
            Protocol::Udp { .. } => "udp",
            Protocol::Multicast { .. } => "multicast",
            Protocol::Llc { .. } => "llc",
            Protocol::Guaranteed { .. } => "guaranteed",
            Protocol::Bundle { .. } => "bundle",
            Protocol::Stamp => "stamp",
            Protocol::Quic { .. } => "quic",
        }
    }
}

/// Datagrams for which a receiver has buffers, unless the text says otherwise, and at most.
const CREDIT_WINDOW: u32 = 64;
const LARGEST_CREDIT_WINDOW: u64 = 65_536;

/// Reads `credit` or `credit (window = 64)`.
fn read_credit(cx: &mut Context<'_>, value: &Value) -> Option<u32> {
    let part = single(cx, value, "`credit`")?;
    let alone = Part { arguments: None, ..part.clone() };
    if plain(cx, &alone, "`credit`")? != "credit" {
        let message = format!("`{}` is no control of datagrams", shorten(&part.text));
        return cx.refuse(Diagnostic::error(part.location, message).label("expected `credit` or `none`"));
    }
    let mut window = CREDIT_WINDOW;
    let settings = part.arguments.as_deref().unwrap_or_default();
    options::read(cx, "`credit`", part.location, settings, &[], |v| {
        v.integer("window", &mut window, 1..=LARGEST_CREDIT_WINDOW);
    });
    Some(window)
}

fn credit_text(window: &u32) -> String {
    format!("credit (window = {window})")
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
            extensions: TcpExtensions::default(),
        },
        "udp" => Protocol::Udp { flow_control: true, credit_window: None },
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
        "stamp" => Protocol::Stamp,
        "quic" => Protocol::Quic {
            congestion: QuicCongestion::Cubic,
            window: None,
            streams: 1,
            datagrams: false,
            mtu: Size::from_bytes(1452),
        },
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
        return cx.refuse(error.label("expected a protocol").suggest(&part.text, PROTOCOLS.iter().copied()));
    };
    let owner = format!("`{}`", part.text);
    let arguments = part.arguments.as_deref().unwrap_or_default();
    let required = required(&protocol);
    let given = read(cx, &owner, part.location, arguments, required, |v| present(&mut protocol, v));
    if !given.contains_key("timers") {
        set_timers(&mut protocol);
    }
    if let Some((option, message, label)) = conflict(&protocol) {
        let location = given.get(option).or(given.get("window")).copied().unwrap_or(part.location);
        cx.report(Diagnostic::error(location, message).label(label));
    }
    Some(protocol)
}

/// Returns the timers that belong to the congestion controller of TCP: exact ones for those of today.
pub(crate) fn usual_timers(protocol: &Protocol) -> Option<TcpTimers> {
    let Protocol::Tcp { congestion, .. } = protocol else { return None };
    let is_today = controller(congestion.as_deref()) != TcpController::Bsd;
    Some(if is_today { TcpTimers::Fine } else { TcpTimers::Bsd })
}

/// Sets the timers that belong to the congestion controller.
pub(crate) fn set_timers(protocol: &mut Protocol) {
    let usual = usual_timers(protocol);
    if let (Protocol::Tcp { timers, .. }, Some(usual)) = (protocol, usual) {
        *timers = usual;
    }
}

/// Returns the simulated controller; that of 4.3BSD for a name that only kernels have.
fn controller(name: Option<&str>) -> TcpController {
    TcpController::of(name).unwrap_or(TcpController::Bsd)
}

/// Returns an option of TCP that would be ignored beside the others.
fn ignored(
    congestion: Option<&str>,
    timers: TcpTimers,
    extensions: &TcpExtensions,
) -> Option<(&'static str, &'static str, &'static str)> {
    let TcpExtensions { sack, timestamps, ecn, hystart, variant, reno_friendly, initial_window, .. } =
        *extensions;
    let controller = controller(congestion);
    let is_cubic = controller == TcpController::Cubic;
    let is_standard = is_cubic && variant != Some(TcpVariant::Linux);
    let is_bsd = controller == TcpController::Bsd
        && sack != Some(true)
        && timestamps != Some(true)
        && matches!(ecn, None | Some(TcpEcn::Off));
    let is_coarse = timers == TcpTimers::Bsd;
    let coarse = "the timers of 4.3BSD expire at ticks of their own";
    if variant.is_some() && controller == TcpController::Bsd {
        let label = "expected a controller of today beside `variant`";
        Some(("variant", "4.3BSD has no variants", label))
    } else if hystart.is_some() && !is_standard {
        let label = "expected `congestion = cubic`, `variant = standard` beside `hystart`";
        Some(("hystart", "only the standard `cubic` has HyStart++", label))
    } else if reno_friendly.is_some() && !is_standard {
        let label = "expected `congestion = cubic`, `variant = standard` beside `reno_friendly`";
        Some(("reno_friendly", "only the standard `cubic` may lack a Reno-friendly region", label))
    } else if extensions.initial_ssthresh.is_some()
        && matches!(controller, TcpController::Bbr | TcpController::Bbr3)
    {
        let label = "expected another controller beside `initial_ssthresh`";
        Some(("initial_ssthresh", "BBR has no slow start threshold", label))
    } else if initial_window.is_some() && is_bsd {
        let label = "expected a controller of today, `sack`, `timestamps` or `ecn` beside `initial_window`";
        Some(("initial_window", "4.3BSD starts with one segment", label))
    } else if extensions.min_rto.is_some() && is_coarse {
        Some(("min_rto", coarse, "expected `timers = fine` beside `min_rto`"))
    } else if extensions.ack_delay.is_some() && is_coarse {
        Some(("ack_delay", coarse, "expected `timers = fine` beside `ack_delay`"))
    } else {
        None
    }
}

/// Returns a conflict between options: the option, the message, the expectation.
pub(crate) fn conflict(protocol: &Protocol) -> Option<(&'static str, String, String)> {
    match protocol {
        Protocol::Tcp { congestion, timers, extensions, .. } => {
            let (option, message, label) = ignored(congestion.as_deref(), *timers, extensions)?;
            Some((option, message.to_owned(), label.to_owned()))
        }
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
        Protocol::Quic { streams: 2.., datagrams: true, .. } => Some((
            "streams",
            "datagrams use no streams".to_owned(),
            "expected `streams = 1` beside `datagrams = on`".to_owned(),
        )),
        _ => None,
    }
}

/// Presents the options of a protocol.
pub(crate) fn present(protocol: &mut Protocol, v: &mut Visit<'_, '_>) {
    match protocol {
        Protocol::Tcp { window, congestion, nodelay, timers, delayed_ack, extensions } => {
            v.optional("window", window, "auto", size, write::size);
            v.optional("congestion", congestion, "auto", congestion_control, |name| token::written(name));
            v.on_off("nodelay", nodelay);
            v.keyword("timers", timers, TCP_TIMERS);
            v.on_off("delayed_ack", delayed_ack);
            let TcpExtensions {
                sack,
                timestamps,
                ecn,
                hystart,
                variant,
                reno_friendly,
                initial_ssthresh,
                initial_window,
                min_rto,
                ack_delay,
            } = extensions;
            v.keyword("sack", sack, AUTO_ON_OFF);
            v.keyword("timestamps", timestamps, AUTO_ON_OFF);
            v.keyword("ecn", ecn, TCP_ECN);
            v.keyword("hystart", hystart, AUTO_ON_OFF);
            v.keyword("variant", variant, TCP_VARIANTS);
            v.keyword("reno_friendly", reno_friendly, AUTO_ON_OFF);
            v.optional("initial_ssthresh", initial_ssthresh, "auto", size, write::size);
            let segments = |cx: &mut Context<'_>, value: &Value| integer(cx, value, 1..=1000);
            v.optional("initial_window", initial_window, "auto", segments, u16::to_string);
            v.optional("min_rto", min_rto, "auto", time, write::span);
            v.optional("ack_delay", ack_delay, "auto", positive_time, write::span);
        }
        Protocol::Udp { flow_control, credit_window } => {
            v.on_off("flow", flow_control);
            v.optional("control", credit_window, "none", read_credit, credit_text);
        }
        Protocol::Multicast { group, ttl } => {
            v.option("group", group, multicast_group, |group| token::written(&group.to_string()));
            v.integer("ttl", ttl, 0..=255);
        }
        Protocol::Llc { r#type, sap, priority, tries, timeout, crc, token, limit } => {
            v.keyword("type", r#type, &[("1", 1), ("3", 3)]);
            v.option("sap", sap, service_access_point, u8::to_string);
            v.integer("priority", priority, 0..=7);
            v.integer("tries", tries, 1..=MOST);
            v.option("timeout", timeout, positive_time, write::span);
            v.on_off("crc", crc);
            v.on_off("token", token);
            v.optional("limit", limit, "none", positive_time, write::span);
        }
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
        } => {
            v.keyword("mode", mode, MODES);
            v.integer("window", window, 1..=8192);
            v.option("frame", frame, arq_frame, write::size);
            v.integer("ack_every", ack_every, 1..=MOST);
            v.option("timeout", timeout, positive_time, write::span);
            v.on_off("adaptive", adaptive);
            v.option("ack_delay", ack_delay, positive_time, write::span);
            v.keyword("congestion", congestion, ARQ_CONGESTION);
            v.keyword("checksum", checksum, CHECKSUMS);
            v.share("drop", drop);
            v.share("alter", alter);
            v.optional("fec", fec, "off", arq_fec, |fec| format!("{}+{}", fec.frames, fec.repairs));
        }
        Protocol::Bundle { address, priority, within } => {
            v.integer("address", address, 0..=MOST);
            v.keyword("priority", priority, PRIORITIES);
            v.optional("within", within, "none", super::network::short, write::span);
        }
        Protocol::Stamp => {}
        Protocol::Quic { congestion, window, streams, datagrams, mtu } => {
            v.keyword("congestion", congestion, QUIC_CONGESTION);
            v.optional("window", window, "auto", |cx, value| size_in(cx, value, QUIC_WINDOW), write::size);
            v.integer("streams", streams, 1..=256);
            v.on_off("datagrams", datagrams);
            v.option("mtu", mtu, |cx, value| size_in(cx, value, QUIC_MTU), write::size);
        }
    }
}

/// Bytes of a window of `quic`: two packets at least, and what the simulator and the sockets count.
const QUIC_WINDOW: RangeInclusive<u64> = 4096..=1 << 30;
/// Bytes of the longest UDP payload of `quic` (RFC 9000 section 14).
const QUIC_MTU: RangeInclusive<u64> = 1200..=65_507;

/// Reads a size within a range of bytes.
fn size_in(cx: &mut Context<'_>, value: &Value, range: RangeInclusive<u64>) -> Option<Size> {
    let read = size(cx, value)?;
    if range.contains(&read.as_bytes()) {
        return Some(read);
    }
    let error = Diagnostic::error(value.location, format!("{} bytes are out of range", read.as_bytes()));
    cx.refuse(error.label(format!("expected {} B to {} B", range.start(), range.end())))
}

/// Reads a frame length, up to the longest datagram (`MIN_FRAME` to `MAX_FRAME` of `arq`).
fn arq_frame(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    let frame = size(cx, value)?;
    if (128..=65_507).contains(&frame.as_bytes()) {
        return Some(frame);
    }
    let error = Diagnostic::error(value.location, format!("a frame of {} bytes", frame.as_bytes()));
    cx.refuse(error.label("expected 128 B to 65507 B"))
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
    cx.refuse(error.help("there are no more repair frames than frames"))
}

fn congestion_control(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    text(cx, value, "the kernel's name of a congestion control, such as `reno`").map(str::to_owned)
}

/// Reads an individual SAP, which is even. 0 is the null SAP and 255 the global one (IEEE 802.2 section 3.3.1.2).
fn service_access_point(cx: &mut Context<'_>, value: &Value) -> Option<u8> {
    let sap = integer::<u8>(cx, value, 2..=254)?;
    if sap % 2 == 1 {
        let error = Diagnostic::error(value.location, format!("SAP {sap} is odd, which means a group"));
        return cx.refuse(error.label("expected an even number from 2 to 254"));
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
    cx.refuse(error.label("expected 224.0.0.0 to 239.255.255.255, or `[ff00::]` and above"))
}

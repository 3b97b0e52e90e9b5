//! `connection { … }`: two ends, a protocol, a test, and when it stops.

use std::collections::BTreeMap;

use trunkline_traffic::{Pattern, Variable};

use super::Context;
use super::options::{Given, Options, assign, one, optional, plain, size, text};
use super::quantity::{Dimension, single, variable};
use super::{admission, dscp, pattern, protocol};
use crate::diagnostic::{Diagnostic, list};
use crate::parse::shorten;
use crate::plan::{Connection, ConnectionEnd, Protocol, SourceRange, Stop};
use crate::tree::{Part, Setting, Value};

/// Options of a connection.
const SETTINGS: Options<'_> = Options {
    owner: "a connection",
    names: &[
        "xmt", "rcv", "xmtcntl", "rcvcntl", "rep", "protocol", "test", "dscp", "peak", "mean", "burst",
        "delay", "duration", "bytes", "messages",
    ],
    aliases: &[("xmcntl", "xmtcntl")],
};

/// Default duration of a sender, in seconds.
const DEFAULT_DURATION_S: f64 = 10.0;

/// Reads a connection; its name stays empty. Returns none if an end, the protocol or the test is missing.
pub(crate) fn connection(
    cx: &mut Context<'_>,
    settings: &[Setting],
    location: SourceRange,
) -> Option<Connection> {
    let mut from = None;
    let mut to = Vec::new();
    let mut control = [None, None, None];
    let mut carrier = None;
    let mut test = None;
    let mut code_point = None;
    let mut declared = admission::Settings::default();
    let mut delay = Variable::Constant(0.0);
    let mut stops: Vec<Stop> = Vec::new();
    let given = SETTINGS.apply(cx, settings, |cx, name, setting| {
        if name == "rcv" {
            to = setting.values.iter().filter_map(|v| connection_end(cx, v, "rcvbuf")).collect();
            return;
        }
        let Some(value) = one(cx, setting) else { return };
        match name {
            "xmt" => from = connection_end(cx, value, "xmtbuf"),
            "xmtcntl" => control[0] = text(cx, value, "a host").map(str::to_owned),
            "rcvcntl" => control[1] = text(cx, value, "a host").map(str::to_owned),
            "rep" => control[2] = text(cx, value, "a host").map(str::to_owned),
            "protocol" => carrier = protocol::protocol(cx, value),
            // The defaults of a test depend on the protocol, which may follow it.
            "test" => test = Some(value),
            "dscp" => assign(&mut code_point, optional(cx, value, "none", dscp::dscp)),
            "peak" | "mean" | "burst" => declared.read(cx, name, value),
            "delay" => assign(&mut delay, variable(cx, value, Dimension::Delay)),
            stop => stops.extend(read_stop(cx, stop, value)),
        }
    });
    SETTINGS.require(cx, location, &given, &["xmt", "rcv", "protocol", "test"]);
    let test = test.and_then(|value| pattern::pattern(cx, value, carrier.as_ref()));
    let declared = declared.declared(cx, &given, location);
    one_stop(cx, &given, &["duration", "bytes", "messages"]);
    let (from, protocol, test) = (from?, carrier?, test?);
    receivers_fit(cx, &protocol, &to, &given);
    if let Some((message, label)) = dscp::conflict(code_point, &protocol) {
        let location = given.get("dscp").copied().unwrap_or(location);
        cx.report(Diagnostic::error(location, message).label(label));
    }
    let [xmtcntl, rcvcntl, rep] = control;
    let location_of = |name: &str| given.get(name).copied().unwrap_or(location);
    let (protocol_location, test_location) = (location_of("protocol"), location_of("test"));
    Some(Connection {
        name: String::new(),
        xmtcntl: xmtcntl.unwrap_or_else(|| from.host.clone()),
        rcvcntl: rcvcntl.unwrap_or_else(|| to.first().map(|s| s.host.clone()).unwrap_or_default()),
        rep: rep.unwrap_or_else(|| from.host.clone()),
        stop: stops.pop().or_else(|| default_stop(cx, &test, location))?,
        from,
        to,
        protocol,
        test,
        dscp: code_point,
        declared,
        delay_s: delay,
        location,
        protocol_location,
        test_location,
    })
}

/// `duration`, `bytes` or `messages`.
pub(crate) fn read_stop(cx: &mut Context<'_>, name: &str, value: &Value) -> Option<Stop> {
    match name {
        "duration" => variable(cx, value, Dimension::Duration).map(Stop::DurationS),
        "bytes" => variable(cx, value, Dimension::Size).map(Stop::Bytes),
        _ => variable(cx, value, Dimension::Count).map(Stop::Messages),
    }
}

/// Reports a second reason to stop.
pub(crate) fn one_stop(cx: &mut Context<'_>, given: &Given, names: &[&str]) {
    let mut stops: Vec<_> = given.iter().filter(|(name, _)| names.contains(*name)).collect();
    stops.sort_by_key(|(_, location)| location.start);
    if let [(first, at), (second, location), ..] = stops[..] {
        let error = Diagnostic::error(*location, format!("both `{first}` and `{second}` say when to stop"));
        cx.report(error.label(format!("expected only one of {}", list(names))).with(*at, "it was said here"));
    }
}

/// Returns the default end of a sender: the end of a file, the top of stairs, otherwise 10 s.
pub(crate) fn default_stop(cx: &mut Context<'_>, test: &Pattern, location: SourceRange) -> Option<Stop> {
    match test {
        Pattern::File { .. } => Some(Stop::FileEnd),
        Pattern::Replay { recording, .. } => {
            Some(Stop::Messages(Variable::Constant(recording.messages().len().max(1) as f64)))
        }
        Pattern::Stairs { rates_bps, hold_s: Variable::Constant(hold), .. } => {
            Some(Stop::DurationS(Variable::Constant(hold * rates_bps.len() as f64)))
        }
        Pattern::Stairs { .. } => {
            let error =
                Diagnostic::error(location, "stairs with a random hold do not say how long they last");
            cx.refuse(error.label("expected `duration = …` in this connection"))
        }
        _ => Some(Stop::DurationS(Variable::Constant(DEFAULT_DURATION_S))),
    }
}

fn receivers_fit(cx: &mut Context<'_>, protocol: &Protocol, to: &[ConnectionEnd], given: &Given) {
    let many = matches!(protocol, Protocol::Multicast { .. } | Protocol::Bundle { .. });
    if let ([_, second, ..], false) = (to, many) {
        let error = Diagnostic::error(second.location, format!("`{}` has one receiver", protocol.name()));
        let error = error.label("only `multicast` and `bundle` reach several");
        cx.report(match given.get("protocol") {
            Some(location) => error.with(*location, "the protocol"),
            None => error,
        });
    }
    let mut named = BTreeMap::new();
    for end in to {
        if let Some(first) = named.insert(&end.host, end.location) {
            let error = Diagnostic::error(end.location, format!("`{}` receives twice", shorten(&end.host)));
            cx.report(error.label("and again here").with(first, "it is first named here"));
        }
    }
}

/// Reads `HOST (xmtbuf = 128 kB)` or `HOST:PORT (…)`.
pub(crate) fn connection_end(
    cx: &mut Context<'_>,
    value: &Value,
    buffer_name: &'static str,
) -> Option<ConnectionEnd> {
    let last = value.parts.last()?;
    let mut buffer = None;
    if let Some(arguments) = &last.arguments {
        let options = [buffer_name];
        let owner = if buffer_name == "xmtbuf" { "the sender" } else { "the receiver" };
        Options::of(owner, &options).apply(cx, arguments, |cx, _, setting| {
            assign(&mut buffer, optional(cx, &setting.values[0], "auto", size));
        });
    }
    let (host, port) = host_and_port(cx, value, true)?;
    Some(ConnectionEnd { host, buffer, port, location: value.parts[0].location })
}

/// Reads `HOST` or `HOST:PORT`.
pub(crate) fn host_and_port(
    cx: &mut Context<'_>,
    value: &Value,
    options: bool,
) -> Option<(String, Option<u16>)> {
    let bare = |part: &Part| {
        let mut part = part.clone();
        if options {
            part.arguments = None;
        }
        part
    };
    match &value.parts[..] {
        [host] => Some((plain(cx, &bare(host), "a host")?.to_owned(), None)),
        [host, port] => {
            let name = plain(cx, host, "a host")?.to_owned();
            Some((name, Some(port_number(cx, &bare(port))?)))
        }
        _ => {
            single(cx, value, "`HOST` or `HOST:PORT`");
            None
        }
    }
}

fn port_number(cx: &mut Context<'_>, part: &Part) -> Option<u16> {
    let port = plain(cx, part, "a port")?.parse().ok().filter(|port| *port > 0);
    if port.is_none() {
        let error = Diagnostic::error(part.location, "this is not a port");
        cx.report(error.label("expected a number from 1 to 65535"));
    }
    port
}

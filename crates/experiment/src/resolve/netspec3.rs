//! The 1999 dialect: `test HOST { type = …; protocol = …; own = …; peer = …; }`, two of which make a connection.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Size;

use super::Context;
use super::connection::{default_stop, host_and_port, one_stop, read_stop};
use super::options::{Options, Visit, assign, one, optional, size};
use super::quantity::single;
use super::{emulated, pattern, protocol};
use crate::diagnostic::{Diagnostic, nearest};
use crate::parse::shorten;
use crate::plan::{Connection, ConnectionEnd, Protocol, SourceRange, Stop};
use crate::tree::{Setting, Value};

/// The types of a test.
const TYPES: &[&str] = &["full", "burst", "burstq", "sink"];
/// What stands inside a test.
const SETTINGS: Options<'_> =
    Options { owner: "a test", names: &["type", "protocol", "own", "peer"], aliases: &[] };

/// Each test is held against every other, so there must not be too many.
const MOST: usize = 4096;

/// An address of a test: a host and perhaps a port.
#[derive(Clone, Debug)]
struct Address {
    host: String,
    port: Option<u16>,
    location: SourceRange,
}

/// One `test` block, read.
pub(crate) struct Test {
    /// Where the block begins.
    location: SourceRange,
    /// The host whose daemon runs it.
    control: String,
    own: Address,
    peer: Address,
    protocol: Protocol,
    protocol_location: SourceRange,
    /// What it sends; a sink sends nothing.
    sends: Option<(Pattern, Stop)>,
    buffer: Option<Size>,
    /// Which block of the script it stands in.
    block: usize,
}

/// Reads a `test` block of the given block of the script.
pub(crate) fn test(
    cx: &mut Context<'_>,
    host: Option<&Value>,
    settings: &[Setting],
    location: SourceRange,
    block: usize,
) -> Option<Test> {
    let control = host.and_then(|value| address(cx, value));
    let (mut own, mut peer) = (None, None);
    let mut carrier = None;
    let mut kind = None;
    let given = SETTINGS.apply(cx, settings, |cx, name, setting| {
        let Some(value) = one(cx, setting) else { return };
        match name {
            "type" => kind = Some(value),
            "protocol" => carrier = protocol::protocol(cx, value),
            "own" => own = address(cx, value),
            _ => peer = address(cx, value),
        }
    });
    SETTINGS.require(cx, location, &given, &["type", "protocol", "peer"]);
    let own = own.or_else(|| control.clone());
    if host.is_none() {
        SETTINGS.require(cx, location, &given, &["own"]);
    }
    let (sends, buffer) = kind.and_then(|value| test_type(cx, value, carrier.as_ref(), location))?;
    let (own, peer, protocol) = (own?, peer?, carrier?);
    let protocol_location = given.get("protocol").copied().unwrap_or(location);
    let control = control.map_or_else(|| own.host.clone(), |c| c.host);
    Some(Test { location, control, own, peer, protocol, protocol_location, sends, buffer, block })
}

fn address(cx: &mut Context<'_>, value: &Value) -> Option<Address> {
    let (host, port) = host_and_port(cx, value, false)?;
    Some(Address { host, port, location: value.location })
}

/// What a type says: what is sent and until when (nothing for a sink), and the socket buffer.
type Sends = (Option<(Pattern, Stop)>, Option<Size>);

/// Reads `full (blocksize = 32768, duration = 10)`.
fn test_type(
    cx: &mut Context<'_>,
    value: &Value,
    protocol: Option<&Protocol>,
    location: SourceRange,
) -> Option<Sends> {
    let part = single(cx, value, "a type")?;
    let name = part.text.as_str();
    let sink = name == "sink";
    let base = match name {
        "burstq" => "cbr",
        // A sink's options are read and checked like a sender's.
        "sink" => "full",
        _ => name,
    };
    if !TYPES.contains(&name) || part.unit.is_some() {
        let error = Diagnostic::error(part.location, format!("unknown type `{}`", shorten(name)));
        return cx.refuse(error.label("expected a type of test").suggest(name, TYPES.iter().copied()));
    }
    let arguments = part.arguments.as_deref().unwrap_or_default();
    let is_emulated = emulated::is_emulated(arguments);
    if is_emulated && name == "full" {
        let error = Diagnostic::error(part.location, "`full` sends no traffic of a model");
        return cx.refuse(error.label("expected `burst` or `burstq` with these options"));
    }
    let mut traffic = match is_emulated && base != "full" {
        true => emulated::pattern(cx, arguments, protocol)?,
        false => pattern::default(base, protocol)?,
    };
    let mut buffer = None;
    let mut stop = None;
    let names: &[&str] = if base == "full" {
        &["blocksize", "duration", "repeats", "buffer"]
    } else {
        &["blocksize", "period", "duration", "repeats", "buffer"]
    };
    let owner = format!("`{name}`");
    let options = Options::of(&owner, names);
    let mut given = options.apply(cx, arguments, |cx, name, setting| {
        let value = &setting.values[0];
        match name {
            "blocksize" | "period" | "repeats" if is_emulated => {}
            "blocksize" => block_size(cx, &mut traffic, value),
            "period" => pattern::present(&mut traffic, &mut Visit::Set(cx, "period", value)),
            "buffer" => assign(&mut buffer, optional(cx, value, "auto", size)),
            "repeats" => stop = read_stop(cx, "messages", value),
            _ => stop = read_stop(cx, "duration", value),
        }
    });
    options.require(cx, part.location, &given, pattern::required(&traffic));
    // In a model, `repeats` counts the items of a session.
    if !is_emulated {
        one_stop(cx, &given, &["duration", "repeats"]);
    }
    // The checks know the name of the other dialect.
    if let Some(location) = given.remove("blocksize") {
        given.insert("messagesize", location);
    }
    pattern::check(cx, &traffic, protocol, &given, part.location);
    if sink {
        return Some((None, buffer));
    }
    let stop = stop.or_else(|| default_stop(cx, &traffic, location))?;
    Some((Some((traffic, stop)), buffer))
}

/// A block is one message; `SIZE:COUNT` is of the other dialect.
fn block_size(cx: &mut Context<'_>, traffic: &mut Pattern, value: &Value) {
    if single(cx, value, "a size").is_some() {
        pattern::present(traffic, &mut Visit::Set(cx, "messagesize", value));
    }
}

/// Finds for each test the one that names it as peer, in the same block if it can, and says which have none.
///
/// The result has for each test the index of its partner.
pub(crate) fn pair(cx: &mut Context<'_>, tests: &[Option<Test>]) -> Vec<Option<usize>> {
    let mut by_host: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, test) in tests.iter().enumerate() {
        if let Some(test) = test {
            by_host.entry(&test.own.host).or_default().push(at);
        }
    }
    let mut partner = vec![None; tests.len()];
    if tests.len() > MOST {
        let last = tests.iter().flatten().next_back().map_or(SourceRange::default(), |test| test.location);
        let error = Diagnostic::error(last, format!("more than {MOST} tests in one file"));
        cx.report(error.label("the tests were not paired"));
        return partner;
    }
    // Ports first, as said; then the published scripts whose ports disagree.
    for (same_block, ports) in [(true, true), (false, true), (true, false), (false, false)] {
        for (at, test) in tests.iter().enumerate() {
            let Some(test) = test.as_ref().filter(|_| partner[at].is_none()) else { continue };
            let candidates = by_host.get(test.peer.host.as_str()).into_iter().flatten();
            let found = candidates.copied().find(|&other| {
                let Some(found) = &tests[other] else { return false };
                other != at
                    && partner[other].is_none()
                    && found.peer.host == test.own.host
                    && (!same_block || found.block == test.block)
                    && (!ports || (agree(&test.peer, &found.own) && agree(&found.peer, &test.own)))
            });
            let Some(other) = found else { continue };
            (partner[at], partner[other]) = (Some(other), Some(at));
            if let (false, Some(found)) = (ports, &tests[other]) {
                ports_differ(cx, test, found);
            }
        }
    }
    // The partner may be one that could not be read; that was reported.
    if tests.iter().any(Option::is_none) {
        return partner;
    }
    let alone: Vec<&Test> =
        tests.iter().zip(&partner).filter(|(_, p)| p.is_none()).filter_map(|(t, _)| t.as_ref()).collect();
    report_alone(cx, &alone, tests);
    partner
}

fn agree(said: &Address, own: &Address) -> bool {
    said.port.is_none() || own.port.is_none() || said.port == own.port
}

fn ports_differ(cx: &mut Context<'_>, test: &Test, found: &Test) {
    let (said, own) =
        if agree(&test.peer, &found.own) { (&found.peer, &test.own) } else { (&test.peer, &found.own) };
    let warning = Diagnostic::warning(said.location, "the ports of these two tests differ");
    cx.report(
        warning.label("this peer").with(own.location, "is taken to be this one, whose own port is used"),
    );
}

fn report_alone(cx: &mut Context<'_>, alone: &[&Test], tests: &[Option<Test>]) {
    let hosts: BTreeSet<&str> = tests.iter().flatten().map(|test| test.own.host.as_str()).collect();
    // Hosts that a test means but misspells: their own tests would not be alone without that.
    let mut meant = BTreeSet::new();
    for test in alone {
        let (own, peer) = (&test.own.host, test.peer.host.as_str());
        if meant.contains(own.as_str()) {
            continue;
        }
        let message = format!("no test of `{}` names `{}` as its peer", shorten(peer), shorten(own));
        let error = Diagnostic::error(test.peer.location, message);
        let error = error.label("expected a `test` block for this host").with(test.location, "of this test");
        let near = if cx.diagnostics.flooded() {
            None
        } else {
            nearest(peer, hosts.iter().copied().filter(|host| host != own))
        };
        cx.report(match near.filter(|_| !hosts.contains(peer)) {
            Some(name) => {
                meant.insert(name);
                error.help(format!("did you mean `{name}`?"))
            }
            None => error.help(format!("add `test {peer} {{ type = sink; … peer = {own}; }}`")),
        });
    }
}

/// The connection that `test` sends to its partner, if it sends; its name is left empty.
pub(crate) fn connection(cx: &mut Context<'_>, test: &Test, partner: &Test) -> Option<Connection> {
    if test.protocol.name() != partner.protocol.name() {
        // Said once, at the one that stands lower.
        if test.location.start > partner.location.start {
            let error = Diagnostic::error(test.protocol_location, "the two ends speak different protocols");
            cx.report(error.label("this end").with(partner.protocol_location, "the other end"));
        }
        return None;
    }
    let Some((pattern, stop)) = &test.sends else {
        if partner.sends.is_none() && test.location.start < partner.location.start {
            let error = Diagnostic::error(partner.location, "neither of these two tests sends");
            cx.report(error.label("this is a `sink`").with(test.location, "and so is this"));
        }
        return None;
    };
    Some(Connection {
        name: String::new(),
        from: connection_end(test, test.buffer),
        to: vec![connection_end(partner, partner.buffer.or_else(|| other_window(test, partner)))],
        xmtcntl: test.control.clone(),
        rcvcntl: partner.control.clone(),
        rep: test.control.clone(),
        protocol: test.protocol.clone(),
        test: pattern.clone(),
        dscp: None,
        declared: None,
        delay_s: Variable::Constant(0.0),
        stop: stop.clone(),
        location: test.location,
        protocol_location: test.protocol_location,
        test_location: test.location,
    })
}

/// The receiver's window where it is not the sender's: the plan knows it as the receiver's buffer.
fn other_window(test: &Test, partner: &Test) -> Option<Size> {
    match (&test.protocol, &partner.protocol) {
        (Protocol::Tcp { window: sender, .. }, Protocol::Tcp { window: receiver, .. })
            if sender != receiver =>
        {
            *receiver
        }
        _ => None,
    }
}

fn connection_end(test: &Test, buffer: Option<Size>) -> ConnectionEnd {
    ConnectionEnd { host: test.own.host.clone(), buffer, port: test.own.port, location: test.own.location }
}

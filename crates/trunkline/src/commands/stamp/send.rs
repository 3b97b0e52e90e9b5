//! `trunkline stamp send`: a sender with a constant interval.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use trunkline_io::socket::{Options, readable};
use trunkline_io::{TimestampedSocket, datagrams, pace};
use trunkline_run::StopFlag;
use trunkline_stamp::packet::base_length;
use trunkline_stamp::sender::{Counts, MAX_SIZE};
use trunkline_stamp::{ClockReading, Reception, Sender, SenderOptions};
use trunkline_units::{Instant, Span};

use super::summary::{Measurements, Session};
use super::{Clocks, STOP_CHECK, arrival_times, key};
use crate::failure::{Failure, print};
use crate::flags::stamp::{PORT, Send};

/// A sender that is late by more than this, such as after a suspension, continues with the present.
const MAX_LATENESS: Span = Span::from_ms(100);
/// Time between lines of progress.
const LINE_INTERVAL: Span = Span::from_s(1);

/// Sends packets and prints what was measured.
pub fn send(flags: &Send, stop: &StopFlag) -> Result<(), Failure> {
    let key = key::read(flags.common.key.as_deref())?;
    let shortest = base_length(key.as_ref());
    if flags.size.is_some_and(|size| size < shortest) {
        return Err(Failure::input(format!("an authenticated packet has at least {shortest} octets")));
    }
    let peer = resolve(&flags.to)?;
    let socket = connect(peer, flags.dscp)?;
    // An identifier of 0 means none.
    let ssid = 1 + datagrams::random().map_err(Failure::run)?.below(u64::from(u16::MAX)) as u16;
    let session = Session {
        peer,
        size: flags.size.unwrap_or(shortest),
        interval: flags.interval,
        is_authenticated: key.is_some(),
        arrival_times: arrival_times(&socket),
        ssid,
    };
    let mut sender = Sender::new(SenderOptions {
        ssid,
        size: session.size,
        format: flags.common.timestamps,
        key,
        is_stateful: flags.stateful,
    });
    if !flags.common.json {
        print(&session.to_text())?;
    }
    let mut measurements = Measurements::default();
    exchange(flags, stop, &socket, &mut sender, &mut measurements)?;
    let summary = match flags.common.json {
        true => session.to_json(&sender, &measurements),
        false => measurements.to_text(&sender),
    };
    print(&summary)?;
    match sender.counts() {
        Counts { answered: 1.., .. } => Ok(()),
        Counts { forged: 1.., .. } => {
            Err(Failure::run(format!("{peer} answers with another key, or without one")))
        }
        _ => {
            let key = if session.is_authenticated { "has another key" } else { "demands a key (--key)" };
            let causes = format!("it is no reflector, does not allow this host, or {key}");
            Err(Failure::run(format!("{peer} does not answer: {causes}")))
        }
    }
}

/// Returns the address of `HOST[:PORT]`.
fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let fail = |reason: String| Failure::input(format!("`{text}`: {reason}"));
    let bare: Result<IpAddr, _> = text.trim_start_matches('[').trim_end_matches(']').parse();
    if let Ok(ip) = bare {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let found: io::Result<Vec<SocketAddr>> = match text.contains(':') {
        true => text.to_socket_addrs().map(Iterator::collect),
        false => (text, PORT).to_socket_addrs().map(Iterator::collect),
    };
    let found = found.map_err(|e| fail(e.to_string()))?;
    found.first().copied().ok_or_else(|| fail("no address".into()))
}

fn connect(peer: SocketAddr, dscp: u8) -> Result<TimestampedSocket, Failure> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = TimestampedSocket::open((any, 0).into(), &Options::default()).map_err(Failure::run)?;
    let fail = |e: io::Error| Failure::run(format!("{peer}: {e}"));
    socket.set_dscp(dscp).map_err(fail)?;
    socket.socket().connect(peer).map_err(fail)?;
    Ok(socket)
}

fn exchange(
    flags: &Send,
    stop: &StopFlag,
    socket: &TimestampedSocket,
    sender: &mut Sender,
    measurements: &mut Measurements,
) -> Result<(), Failure> {
    pace::minimize_timer_slack();
    let (mut clocks, mut buffer) = (Clocks::start(), vec![0; MAX_SIZE]);
    let start = clocks.clock.now();
    let (mut due, mut line_due) = (start, start + LINE_INTERVAL);
    // When to stop waiting for answers, once everything is sent.
    let mut end: Option<Instant> = None;
    loop {
        while let Some(received) = socket.receive(&mut buffer).map_err(Failure::run)? {
            let mut now = clocks.read();
            if let Some(unix) = received.unix {
                now = ClockReading { at: clocks.clock.instant_of_unix(unix), unix, ..now };
            }
            if let Ok(Reception::Answer(sample)) = sender.receive(now, &buffer[..received.length]) {
                measurements.record(&sample);
            }
        }
        let now = clocks.clock.now();
        let counts = sender.counts();
        let is_sent = flags.count.is_some_and(|count| counts.sent >= count)
            || flags.duration.is_some_and(|duration| now.since(start) >= duration);
        if end.is_none() && (is_sent || stop.is_requested()) {
            end = Some(now + flags.timeout);
        }
        if end.is_some_and(|end| now >= end || counts.answered == counts.sent) {
            return Ok(());
        }
        if now >= line_due && end.is_none() {
            if !flags.common.json {
                print(&measurements.line(now.since(start), counts))?;
            }
            line_due += LINE_INTERVAL;
        }
        if now >= due && end.is_none() {
            transmit(socket, sender.send(clocks.read()))?;
            due = if now.since(due) > MAX_LATENESS { now } else { due } + flags.interval;
            continue;
        }
        let next = end.unwrap_or(due.min(line_due));
        readable(socket.socket(), next.since(now).min(STOP_CHECK)).map_err(Failure::run)?;
    }
}

fn transmit(socket: &TimestampedSocket, packet: &[u8]) -> Result<(), Failure> {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, WouldBlock};
    match socket.socket().send(packet) {
        // The packet is lost, or an error of an earlier one is reported.
        Err(e)
            if ![ConnectionRefused, HostUnreachable, NetworkUnreachable, WouldBlock].contains(&e.kind()) =>
        {
            Err(Failure::run(format!("cannot send a packet of {} octets: {e}", packet.len())))
        }
        _ => Ok(()),
    }
}

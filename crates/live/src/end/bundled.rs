//! Ends over bundles: at the interface of a host behind the converters, or, in the wide area, on sockets of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trunkline_bundle::wide::alone;
use trunkline_bundle::wire::classic;
use trunkline_experiment::plan::BundleFormat;
use trunkline_io::socket;
use trunkline_run::bundle::Label;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::Limit;
use trunkline_units::Span;

use super::datagram::{Trials, pace, send_patiently};
use super::{Bench, Broken, EndError, LOOK, io};
use crate::bundles::desk::{Message, Tally};
use crate::bundles::{Desk, Lines, Post};
use crate::wire::Report;

/// How often a receiver behind the converters looks whether all has come.
const CHECK: Duration = Duration::from_millis(10);
/// How long an interface may take to take what waits for it.
const TAKING: Span = Span::from_s(2);
/// Room for any datagram.
const ROOM: usize = 1 << 16;

fn desk(bench: &Bench) -> Result<Desk, EndError> {
    bench.desk.clone().ok_or(EndError::Unbundled)
}

/// Where the converters are, if this host is in the wide area.
fn wide(desk: &Desk) -> Option<Lines> {
    matches!(desk.place().post, Post::Wide { .. }).then_some(desk.place().lines)
}

/// What the messages of its connection say of themselves.
fn label(bench: &Bench, desk: &Desk) -> Result<Label, EndError> {
    Label::of(&bench.spec.protocol, desk.place().format()).ok_or(EndError::Unbundled)
}

/// Where others have a port, what bundles has an address of the host.
fn nowhere(bench: &Bench) -> SocketAddr {
    SocketAddr::new(bench.spec.address, 0)
}

/// What there is to say of messages that did not leave.
fn refused(report: &mut SenderReport, congested: u64, full: u64) {
    let counts = [("bundle_congested", congested), ("bundle_full", full)];
    report.counters.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
}

/// Sends messages with a pace.
pub(crate) fn send(mut bench: Bench, limit: Limit) -> Result<Report, Broken> {
    let desk = desk(&bench)?;
    let label = label(&bench, &desk)?;
    let wide = wide(&desk).map(|lines| open_sender(&bench, lines, label.address)).transpose()?;
    let start = bench.ready(nowhere(&bench))?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let (mut ledger, mut trials) = (Ledger::new(start), Trials::default());
    let (tally, mut taken, mut no_room) = (Arc::<Tally>::default(), 0, 0);
    let is_wide = desk.place().format() == BundleFormat::Wide;
    let result = match &wide {
        Some(socket) if is_wide => {
            let mut datagram = vec![0; ROOM];
            pace(&mut bench, &mut source, &mut ledger, &[], |bench, message| {
                match desk.cast(&label, message, &mut datagram) {
                    Some(length) => send_patiently(bench, &mut trials, || socket.send(&datagram[..length])),
                    None => {
                        no_room += 1;
                        Ok(true)
                    }
                }
            })
        }
        Some(socket) => {
            let address = (label.address as u16).to_be_bytes();
            pace(&mut bench, &mut source, &mut ledger, &address, |bench, message| {
                send_patiently(bench, &mut trials, || socket.send(message))
            })
        }
        None => pace(&mut bench, &mut source, &mut ledger, &[], |_, message| {
            let count = if desk.send(label, message, &tally) { &mut taken } else { &mut no_room };
            *count += 1;
            Ok(true)
        }),
    };
    await_taken(&bench, &tally, taken);
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    if wide.is_some() {
        trials.add_to(&mut report);
    }
    let [congested, full] = [&tally.congested, &tally.full].map(|count| count.load(Ordering::Relaxed));
    refused(&mut report, congested, full + no_room);
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

/// Waits until what was put into the outbox was taken from it.
fn await_taken(bench: &Bench, tally: &Tally, sent: u64) {
    let until = bench.clock.now() + TAKING;
    while tally.taken.load(Ordering::Acquire) < sent && bench.clock.now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open_sender(bench: &Bench, lines: Lines, address: u32) -> Result<UdpSocket, EndError> {
    let to = SocketAddr::V4(lines.group(address));
    let socket = socket::multicast_sender(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, &bench.options())?;
    socket.connect(to).map_err(io("naming the group"))?;
    socket::limit_blocking(&socket, LOOK).map_err(io("setting a time limit"))?;
    Ok(socket)
}

/// Receives whatever comes.
pub(crate) fn receive(bench: Bench) -> Result<Report, Broken> {
    let desk = desk(&bench)?;
    match wide(&desk) {
        Some(lines) => receive_plain(bench, &desk, lines),
        None => receive_bundled(bench, &desk),
    }
}

/// The interface's thread receives; this one looks now and then.
fn receive_bundled(mut bench: Bench, desk: &Desk) -> Result<Report, Broken> {
    let hearing = desk.hear(bench.spec.token, bench.payload.clone());
    let start = bench.ready(nowhere(&bench))?;
    hearing.begin(start);
    while !bench.control.stopped() {
        std::thread::sleep(CHECK);
        let now = bench.clock.now();
        let is_complete = hearing.look(|meter| {
            bench.copy_meter(meter, now);
            bench.is_complete(meter, now)
        });
        if is_complete.unwrap_or(true) {
            break;
        }
    }
    let mut report = hearing.look(ReceiverReport::of).unwrap_or_default();
    report.cpu = bench.cpu();
    Ok(Report::Receiver(Box::new(report)))
}

/// Hears the group itself.
fn receive_plain(mut bench: Bench, desk: &Desk, lines: Lines) -> Result<Report, Broken> {
    let group = SocketAddr::V4(lines.group(label(&bench, desk)?.address));
    let is_wide = desk.place().format() == BundleFormat::Wide;
    let socket = socket::multicast_receiver(group, IpAddr::V4(Ipv4Addr::LOCALHOST), &bench.options())?;
    socket::limit_blocking(&socket, LOOK).map_err(io("setting a time limit"))?;
    let start = bench.ready(nowhere(&bench))?;
    let (mut meter, mut buffer, mut error) = (Meter::new(start), vec![0; ROOM], None);
    while error.is_none() && !bench.control.stopped() {
        let got = socket.recv(&mut buffer);
        let now = bench.clock.now();
        match got {
            Ok(length) => {
                let datagram = &buffer[..length];
                let body = match is_wide {
                    true => alone::read(datagram).map(|message| message.body),
                    false => classic::Message::read(datagram).map(|message| message.body),
                };
                if let Some(body) = body {
                    Message::read(bench.spec.token, &bench.payload, body).count(&mut meter, now);
                }
            }
            Err(e) if socket::is_timeout(&e) => {}
            Err(e) => error = Some(io("receiving")(e)),
        }
        bench.copy_meter(&meter, now);
        if bench.is_complete(&meter, now) {
            break;
        }
    }
    let mut report = ReceiverReport::of(&meter);
    report.cpu = bench.cpu();
    if let Some(dropped) = socket::dropped(&socket) {
        report.counters.insert("receiver_socket_drops".into(), dropped as f64);
    }
    let report = Report::Receiver(Box::new(report));
    match error {
        Some(error) => Err(Broken { error, report: Some(report) }),
        None => Ok(report),
    }
}

//! Ends over bundles: behind the converters they use the interface of their host, in the wide area their own sockets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trunkline_bundle::single_message;
use trunkline_bundle::wire::classic;
use trunkline_experiment::plan::BundleFormat;
use trunkline_io::socket;
use trunkline_run::bundle::MessageOptions;
use trunkline_run::reports::ReceiverReport;
use trunkline_traffic::source::Limit;
use trunkline_units::Span;

use super::datagram::{SendStats, pace, send_with_retry};
use super::{EndContext, EndError, EndFailure, STOP_CHECK_INTERVAL, io_error};
use crate::bundles::worker::{MessageCheck, SendCounters};
use crate::bundles::{BundleAddresses, BundleWorker, NodeRole};
use crate::wire::Report;

/// Interval at which a receiver behind the converters checks whether it is done.
const COMPLETION_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// How long to wait until the interface has sent the outbox.
const OUTBOX_TIMEOUT: Span = Span::from_s(2);
/// Buffer size for any datagram.
const MAX_DATAGRAM_BUFFER: usize = 1 << 16;

fn worker(context: &EndContext) -> Result<BundleWorker, EndError> {
    context.services.bundle_worker.clone().ok_or(EndError::NoBundleNode)
}

/// Returns the addresses of the run if this host is in the wide area.
fn wide_area_addresses(worker: &BundleWorker) -> Option<BundleAddresses> {
    matches!(worker.node().role, NodeRole::WideArea { .. }).then(|| worker.node().addresses.clone())
}

/// Returns the address and options of the connection's messages.
fn message_options(context: &EndContext, worker: &BundleWorker) -> Result<MessageOptions, EndError> {
    MessageOptions::from_protocol(&context.spec.protocol, worker.node().format())
        .ok_or(EndError::NoBundleNode)
}

/// Returns the local address; bundles use no port.
fn local_address(context: &EndContext) -> SocketAddr {
    SocketAddr::new(context.spec.address, 0)
}

/// Sends paced messages.
pub(crate) fn send(mut context: EndContext, limit: Limit) -> Result<Report, EndFailure> {
    let worker = worker(&context)?;
    let message_options = message_options(&context, &worker)?;
    let group_socket = wide_area_addresses(&worker)
        .map(|addresses| open_sender(&context, addresses, message_options.address))
        .transpose()?;
    let start = context.ready(local_address(&context))?;
    let (mut sender, mut send_stats) = (context.sender(start, limit, None)?, SendStats::default());
    let (counters, mut accepted, mut refused) = (Arc::<SendCounters>::default(), 0, 0);
    let is_format2 = worker.node().format() == BundleFormat::Wide;
    let result = match &group_socket {
        Some(socket) if is_format2 => {
            let mut datagram = vec![0; MAX_DATAGRAM_BUFFER];
            pace(&mut context, &mut sender, &[], |context, message| {
                match worker.encode_single(&message_options, message, &mut datagram) {
                    Some(length) => {
                        send_with_retry(context, &mut send_stats, || socket.send(&datagram[..length]))
                    }
                    None => {
                        refused += 1;
                        Ok(true)
                    }
                }
            })
        }
        Some(socket) => {
            let address = (message_options.address as u16).to_be_bytes();
            pace(&mut context, &mut sender, &address, |context, message| {
                send_with_retry(context, &mut send_stats, || socket.send(message))
            })
        }
        None => pace(&mut context, &mut sender, &[], |_, message| {
            let count =
                if worker.send(message_options, message, &counters) { &mut accepted } else { &mut refused };
            *count += 1;
            Ok(true)
        }),
    };
    await_outbox(&context, &counters, accepted);
    let mut report = context.sender_report(&sender);
    if group_socket.is_some() {
        send_stats.add_to(&mut report);
    }
    let [congested, full] = [&counters.congested, &counters.full].map(|count| count.load(Ordering::Relaxed));
    report.counters.insert("bundle_congested".into(), congested as f64);
    report.counters.insert("bundle_full".into(), (full + refused) as f64);
    EndFailure::after(result, report)
}

/// Waits until the interface has taken all accepted messages from the outbox.
fn await_outbox(context: &EndContext, counters: &SendCounters, accepted: u64) {
    let deadline = context.clock.now() + OUTBOX_TIMEOUT;
    while counters.taken.load(Ordering::Acquire) < accepted && context.clock.now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open_sender(
    context: &EndContext,
    addresses: BundleAddresses,
    address: u32,
) -> Result<UdpSocket, EndError> {
    let to = SocketAddr::V4(addresses.group(address));
    let socket = socket::multicast_sender(IpAddr::V4(addresses.interface()), 1, &context.options())?;
    socket.connect(to).map_err(io_error("connecting to the group"))?;
    socket::limit_blocking(&socket, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    Ok(socket)
}

/// Receives messages.
pub(crate) fn receive(context: EndContext) -> Result<Report, EndFailure> {
    let worker = worker(&context)?;
    match wide_area_addresses(&worker) {
        Some(addresses) => receive_from_group(context, &worker, addresses),
        None => receive_from_converter(context, &worker),
    }
}

/// Receives through the interface's thread; this thread checks for completion.
fn receive_from_converter(mut context: EndContext, worker: &BundleWorker) -> Result<Report, EndFailure> {
    let registration = worker.register(context.spec.token, context.payload.clone());
    let start = context.ready(local_address(&context))?;
    registration.start(context.receiver_meter(start));
    while !context.control.is_stopped() {
        std::thread::sleep(COMPLETION_CHECK_INTERVAL);
        let now = context.clock.now();
        let is_complete = registration.with_meter(|meter| {
            context.snapshot_receiver(meter, now);
            context.is_complete(meter, now)
        });
        if is_complete.unwrap_or(true) {
            break;
        }
    }
    let mut report = registration.with_meter(ReceiverReport::complete).unwrap_or_default();
    report.cpu = context.cpu();
    Ok(report.into())
}

/// Receives from the group directly.
fn receive_from_group(
    mut context: EndContext,
    worker: &BundleWorker,
    addresses: BundleAddresses,
) -> Result<Report, EndFailure> {
    let group = SocketAddr::V4(addresses.group(message_options(&context, worker)?.address));
    let is_format2 = worker.node().format() == BundleFormat::Wide;
    let socket = socket::multicast_receiver(group, IpAddr::V4(addresses.interface()), &context.options())?;
    socket::limit_blocking(&socket, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    let start = context.ready(local_address(&context))?;
    let (mut meter, mut buffer, mut error) =
        (context.receiver_meter(start), vec![0; MAX_DATAGRAM_BUFFER], None);
    while error.is_none() && !context.control.is_stopped() {
        let received = socket.recv(&mut buffer);
        let now = context.clock.now();
        match received {
            Ok(length) => {
                let datagram = &buffer[..length];
                let body = match is_format2 {
                    true => single_message::read_single(datagram).map(|message| message.body),
                    false => classic::ClassicMessage::read(datagram).map(|message| message.body),
                };
                if let Some(body) = body {
                    MessageCheck::read(context.spec.token, &context.payload, body).record_in(&mut meter, now);
                }
            }
            Err(e) if socket::is_timeout(&e) => {}
            Err(e) => error = Some(io_error("receiving")(e)),
        }
        context.snapshot_receiver(&meter, now);
        if context.is_complete(&meter, now) {
            break;
        }
    }
    let mut report = context.receiver_report(&meter);
    if let Some(dropped) = socket::dropped(&socket) {
        report.counters.insert("receiver_socket_drops".into(), dropped as f64);
    }
    EndFailure::after(error.map_or(Ok(()), Err), report)
}

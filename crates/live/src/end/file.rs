//! Transfers a file from disk to disk. Every message carries a checksum of its bytes.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

use trunkline_experiment::plan::Protocol;
use trunkline_io::Pacer;
use trunkline_run::SenderMeter;
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::SenderReport;
use trunkline_traffic::Source;
use trunkline_traffic::source::{Limit, Step};

use super::datagram::{self, FlowControl, PACKET_COST, SendStats};
use super::sink::read_full;
use super::stream::{self, StreamWriter};
use super::{EndContext, EndError, EndFailure, buffer_counter, file_error};
use crate::wire::Report;

/// The transport of a file.
enum FileTransport {
    Stream(Box<StreamWriter>),
    Datagrams(std::net::UdpSocket, SendStats, FlowControl),
}

/// Sends a file.
pub(crate) fn send(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
    path: &Path,
) -> Result<Report, EndFailure> {
    let mut source_file = File::open(path).map_err(file_error("opening", path))?;
    let (mut transport, address) = match context.spec.protocol {
        Protocol::Tcp { .. } => {
            let stream = stream::connect(&context, peer)?;
            let address = stream.local_addr().map_err(super::io_error("reading the local address"))?;
            (FileTransport::Stream(Box::new(StreamWriter::new(stream, peer))), address)
        }
        _ => {
            let socket = datagram::open_sender(&context, peer, true)?;
            let address = socket.local_addr().map_err(super::io_error("reading the local address"))?;
            let flow_control = FlowControl::new(&context);
            (FileTransport::Datagrams(socket, SendStats::default(), flow_control), address)
        }
    };
    let start = context.ready(address)?;
    let mut source = context.source(start, limit, context.max_message())?;
    let mut sender_meter = SenderMeter::new(start);
    let result =
        send_file(&mut context, (&mut source_file, path), &mut transport, &mut source, &mut sender_meter);
    let mut report = SenderReport::complete(&sender_meter, &source);
    report.cpu = context.cpu();
    let file_bytes = sender_meter.bytes() - sender_meter.messages() * HEADER as u64;
    report.counters.insert("file_bytes".into(), file_bytes as f64);
    match &mut transport {
        FileTransport::Stream(writer) => {
            writer.close();
            writer.add_to(&mut report);
        }
        FileTransport::Datagrams(socket, send_stats, _) => {
            send_stats.add_to(&mut report);
            report.counters.extend([buffer_counter(socket, true)]);
        }
    }
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(EndFailure { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

fn send_file(
    context: &mut EndContext,
    (source_file, path): (&mut File, &Path),
    transport: &mut FileTransport,
    source: &mut Source,
    sender_meter: &mut SenderMeter,
) -> Result<(), EndError> {
    let control = context.control.clone();
    let mut pacer = Pacer::new(context.clock);
    let mut buffer = Vec::new();
    let mut sequence = 0;
    while !context.control.is_stopped() {
        let now = context.clock.now();
        let mut message = match source.next(now) {
            Step::Send(message) => message,
            Step::Wait(until) => {
                pacer.wait(until, control.stop_flag());
                continue;
            }
            Step::Done => break,
        };
        buffer.resize(message.size as usize, 0);
        let length = read_full(source_file, &mut buffer[HEADER..]).map_err(file_error("reading", path))?;
        if length == 0 {
            break;
        }
        buffer.truncate(HEADER + length);
        message.size = buffer.len() as u32;
        let (header_bytes, body) = buffer.split_first_chunk_mut::<HEADER>().expect("a message has a header");
        let now = context.clock.now();
        let header = Header {
            sequence,
            sent_at: now,
            length: message.size,
            response_length: 0,
            kind: MessageKind::Checked,
        };
        header.encode_checked(context.spec.token, body, header_bytes);
        let was_sent = match transport {
            FileTransport::Stream(writer) => writer.write(context, &buffer)?,
            FileTransport::Datagrams(socket, send_stats, flow_control) => {
                while !flow_control.can_send(context, socket, &mut send_stats.calls)?
                    && !context.control.is_stopped()
                {}
                flow_control.record_sent(1, u64::from(message.size) + PACKET_COST);
                datagram::send_with_retry(context, send_stats, || socket.send(&buffer))?
            }
        };
        if !was_sent {
            break;
        }
        sequence += 1;
        sender_meter.record_send(&message, now);
        if let FileTransport::Stream(writer) = transport {
            writer.sample(sender_meter.start(), now);
        }
        context.snapshot_sender(sender_meter, now);
    }
    Ok(())
}

//! Transfers a file from disk to disk. Every message carries a checksum of its bytes.

use std::net::SocketAddr;
use std::path::Path;

use trunkline_experiment::plan::Protocol;
use trunkline_io::Pacer;
use trunkline_run::message::{Header, MessageKind};
use trunkline_run::{Sender, SenderStep};
use trunkline_traffic::source::Limit;

use super::credit::PACKET_COST;
use super::datagram::{self, FlowControl, SendStats};
use super::sink::{SourceFile, add_file_bytes};
use super::stream::{self, StreamWriter};
use super::{EndContext, EndError, EndFailure, buffer_counter};
use crate::wire::Report;

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
    let mut source_file = SourceFile::open(path)?;
    let (mut transport, address) = match context.spec.protocol {
        Protocol::Tcp { .. } => {
            let (stream, address) = stream::connect(&context, peer)?;
            (FileTransport::Stream(Box::new(StreamWriter::new(stream, peer))), address)
        }
        _ => {
            let (socket, address) = datagram::open_sender(&context, peer, true)?;
            let flow_control = FlowControl::new(&context);
            (FileTransport::Datagrams(socket, SendStats::default(), flow_control), address)
        }
    };
    let start = context.ready(address)?;
    let mut sender = context.sender(start, limit, None)?;
    let result = send_file(&mut context, &mut source_file, &mut transport, &mut sender);
    let mut report = context.sender_report(&sender);
    add_file_bytes(&mut report);
    match &mut transport {
        FileTransport::Stream(writer) => {
            writer.end(&context);
            writer.add_to(&mut report);
        }
        FileTransport::Datagrams(socket, send_stats, _) => {
            send_stats.add_to(&mut report);
            report.counters.extend([buffer_counter(socket, true)]);
        }
    }
    EndFailure::after(result, report)
}

fn send_file(
    context: &mut EndContext,
    source_file: &mut SourceFile,
    transport: &mut FileTransport,
    sender: &mut Sender,
) -> Result<(), EndError> {
    let control = context.control.clone();
    let mut pacer = Pacer::new(context.clock);
    let mut buffer = Vec::new();
    while !context.control.is_stopped() {
        let now = context.clock.now();
        let mut message = match sender.next(now) {
            SenderStep::Send(message) => message,
            SenderStep::Wait(until) => {
                pacer.wait(until.unwrap_or(now), control.stop_flag());
                continue;
            }
            SenderStep::Done => break,
        };
        let Some(size) = source_file.read_message(message.size, &mut buffer)? else { break };
        message.size = size;
        let now = context.clock.now();
        let header = Header { kind: MessageKind::Checked, ..sender.header(&message, now) };
        header.encode_checked(context.spec.token, &mut buffer);
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
        sender.record_send(&message, now);
        if let FileTransport::Stream(writer) = transport {
            writer.sample(sender.meter().start(), now);
        }
        context.snapshot_sender(sender, now);
    }
    Ok(())
}

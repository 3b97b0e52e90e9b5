//! Ends over TCP. Messages follow each other in the stream; the receiver finds their boundaries.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use trunkline_io::tcp::TcpInfo;
use trunkline_io::{Pacer, socket};
use trunkline_record::Histogram;
use trunkline_run::deframe::{DeframeEvent, Deframer};
use trunkline_run::message::{HEADER, Header};
use trunkline_run::reports::{Metrics, SenderReport};
use trunkline_run::samples::Samples;
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Span};

use super::sink::Sink;
use super::{
    EndContext, EndError, EndFailure, PEER_TIMEOUT, STOP_CHECK_INTERVAL, buffer_counter, io_error,
    local_address,
};
use crate::wire::Report;

/// Maximum bytes of a write call for small messages; also the part of a long message that is held in memory.
const MAX_CALL: usize = 128 << 10;
/// Size of a read.
const READ_BUFFER: usize = 128 << 10;
/// A peer that accepts no data for this long fails the sender.
pub(crate) const STALL_TIMEOUT: Span = Span::from_s(30);

/// Connects to `peer`; returns the stream with its local address.
pub(crate) fn connect(context: &EndContext, peer: SocketAddr) -> Result<(TcpStream, SocketAddr), EndError> {
    let local = SocketAddr::new(context.spec.address, 0);
    let stream = socket::tcp_connect(local, peer, PEER_TIMEOUT, &context.options())?;
    socket::limit_blocking(&stream, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    let address = local_address(stream.local_addr())?;
    Ok((stream, address))
}

/// Listens for the peer.
pub(crate) fn listen(context: &EndContext) -> Result<(TcpListener, SocketAddr), EndError> {
    let local = |port| SocketAddr::new(context.spec.address, port);
    let listener = context.open_at_port(|port| socket::tcp_listen(local(port), &context.options()))?;
    let address = local_address(listener.local_addr())?;
    Ok((listener, address))
}

/// Waits for the start, then accepts the peer.
pub(crate) fn accept(
    context: &mut EndContext,
    listener: &TcpListener,
    address: SocketAddr,
) -> Result<(TcpStream, Instant), EndError> {
    let start = context.ready(address)?;
    let deadline = context.clock.now() + PEER_TIMEOUT;
    let stream = loop {
        let limit = deadline.since(context.clock.now());
        let stream = socket::tcp_accept(listener, limit, &context.options())
            .map_err(io_error("accepting"))?
            .ok_or(EndError::NoPeer(address))?;
        if stream.peer_addr().is_ok_and(|peer| context.accepts(peer.ip())) {
            break stream;
        }
    };
    socket::limit_blocking(&stream, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    Ok((stream, start))
}

/// The sending side of a stream.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    stream: TcpStream,
    pub peer: SocketAddr,
    calls: u64,
    blocked_calls: u64,
    /// Samples of `TCP_INFO`.
    samples: Samples,
    rtt: Histogram,
}

impl StreamWriter {
    pub fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        StreamWriter {
            stream,
            peer,
            calls: 0,
            blocked_calls: 0,
            samples: Samples::default(),
            rtt: Histogram::default(),
        }
    }

    /// Writes all bytes. Returns false if a stop was requested.
    #[inline]
    pub fn write(&mut self, context: &EndContext, mut bytes: &[u8]) -> Result<bool, EndError> {
        let mut blocked_since = None;
        while !bytes.is_empty() {
            self.calls += 1;
            match self.stream.write(bytes) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    blocked_since = None;
                }
                Err(e) if socket::is_timeout(&e) => {
                    self.blocked_calls += 1;
                    let now = context.clock.now();
                    if now.since(*blocked_since.get_or_insert(now)) > STALL_TIMEOUT {
                        return Err(EndError::PeerStalled(self.peer, STALL_TIMEOUT));
                    }
                }
                Err(e) if is_closed(&e) => return Err(EndError::ClosedEarly(self.peer)),
                Err(e) => return Err(io_error("sending")(e)),
            }
            if context.control.is_stopped() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes as many bytes as there is room for, without waiting.
    pub fn write_now(&mut self, bytes: &[u8]) -> Result<usize, EndError> {
        self.calls += 1;
        match socket::write_now(&self.stream, bytes) {
            Ok(written) => Ok(written),
            Err(e) if socket::is_timeout(&e) => {
                self.blocked_calls += 1;
                Ok(0)
            }
            Err(e) if is_closed(&e) => Err(EndError::ClosedEarly(self.peer)),
            Err(e) => Err(io_error("sending")(e)),
        }
    }

    /// Samples `TCP_INFO` if a sample is due.
    #[inline]
    pub fn sample(&mut self, start: Instant, now: Instant) {
        if self.samples.is_due(now) {
            self.read_tcp_info(start, now);
        }
    }

    #[cold]
    fn read_tcp_info(&mut self, start: Instant, now: Instant) {
        if let Some(info) = TcpInfo::of(&self.stream) {
            self.rtt.record(info.rtt);
            self.samples.record(start, now, metrics(&info));
        }
    }

    /// Sets the sample of the next snapshot.
    fn set_sample(&self, context: &mut EndContext, now: Instant) {
        if let Some(info) = TcpInfo::of(&self.stream) {
            context.set_sample(now, metrics(&info));
        }
    }

    /// Closes the sending direction. Without consent, what the system has not sent yet is discarded.
    pub fn end(&mut self, context: &EndContext) {
        if context.control.has_lost_consent() {
            discard_unsent(&self.stream);
        } else {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Adds round-trip times, counters, notes and samples to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
        report.counters.extend([
            buffer_counter(&self.stream, true),
            ("sender_system_calls".into(), self.calls as f64),
            ("sender_buffer_full".into(), self.blocked_calls as f64),
        ]);
        if let Some(last) = TcpInfo::of(&self.stream) {
            report.counters.insert("retransmissions".into(), last.retransmissions as f64);
            report.counters.insert("tcp_mss_bytes".into(), last.mss_bytes as f64);
            report.counters.insert("packets_sent".into(), last.segments_sent as f64);
            report.counters.insert("packets_received".into(), last.segments_received as f64);
        }
        report.notes.insert("congestion".into(), congestion(&self.stream));
        let nodelay = socket2::SockRef::from(&self.stream).tcp_nodelay().unwrap_or(false);
        report.notes.insert("nodelay".into(), if nodelay { "on" } else { "off" }.into());
        report.samples.extend_from_slice(self.samples.points());
    }
}

/// Makes the system discard what it has not sent yet when the stream is dropped.
pub(crate) fn discard_unsent(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}

/// Returns the metrics of a sample by their names in the series of the record.
fn metrics(info: &TcpInfo) -> Metrics {
    [
        ("cwnd_bytes", info.cwnd_bytes as f64),
        ("rtt_us", info.rtt.as_us()),
        ("retransmissions", info.retransmissions as f64),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into()
}

/// Returns the name of the congestion control.
fn congestion(stream: &TcpStream) -> String {
    let name = socket::congestion(stream).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_string()
}

/// Returns whether the peer has closed the connection.
pub(super) fn is_closed(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(e.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

/// Sends messages, paced or at full speed.
pub(crate) fn send(mut context: EndContext, peer: SocketAddr, limit: Limit) -> Result<Report, EndFailure> {
    let (stream, address) = connect(&context, peer)?;
    let mut writer = StreamWriter::new(stream, peer);
    let start = context.ready(address)?;
    let mut sender = context.sender(start, limit, None)?;
    let result = send_messages(&mut context, &mut writer, &mut sender);
    writer.end(&context);
    let mut report = context.sender_report(&sender);
    writer.add_to(&mut report);
    EndFailure::after(result, report)
}

fn send_messages(
    context: &mut EndContext,
    writer: &mut StreamWriter,
    sender: &mut Sender,
) -> Result<(), EndError> {
    let control = context.control.clone();
    let mut pacer = Pacer::new(context.clock);
    let mut messages = EncodedMessages::default();
    let start = sender.meter().start();
    while !control.is_stopped() {
        let now = context.clock.now();
        let max_count = messages.capacity();
        if let Some((size, count)) = sender.batch(now, max_count) {
            messages.prepare(context, size, count);
            messages.write_headers(context.spec.token, sender.sent(), now);
            if !writer.write(context, messages.bytes())? || !messages.write_rest(context, writer)? {
                break;
            }
            sender.record_batch(size, count, now);
        } else {
            match sender.next(now) {
                SenderStep::Wait(until) => {
                    pacer.wait(until.unwrap_or(now), control.stop_flag());
                    continue;
                }
                SenderStep::Send(message) => {
                    messages.prepare(context, message.size, 1);
                    messages.write_headers(context.spec.token, sender.sent(), now);
                    if !writer.write(context, messages.bytes())? || !messages.write_rest(context, writer)? {
                        break;
                    }
                    sender.record_send(&message, now);
                }
                SenderStep::Done => break,
            }
        }
        writer.sample(start, now);
        if context.is_snapshot_due(now) {
            writer.set_sample(context, now);
        }
        context.snapshot_sender(sender, now);
    }
    Ok(())
}

/// Messages encoded for a write: several of equal size, or the start of a long one.
#[derive(Debug, Default)]
struct EncodedMessages {
    bytes: Vec<u8>,
    size: u32,
    count: u64,
}

impl EncodedMessages {
    /// Returns how many messages of the last size fit into one call; 1 before the first.
    fn capacity(&self) -> u64 {
        (MAX_CALL as u64 / u64::from(self.size.max(1))).max(1).min(if self.size == 0 { 1 } else { u64::MAX })
    }

    /// Prepares the payloads of `count` messages of `size` bytes. Every payload begins with the same bytes, so one message
    /// only has to be long enough; several are encoded again when their size or number changes.
    fn prepare(&mut self, context: &EndContext, size: u32, count: u64) {
        let length = (size as usize).min(MAX_CALL);
        if count == 1 || self.size != size || self.count < count {
            if self.count > 1 {
                // The headers of further messages follow the first message.
                self.bytes.truncate((self.size as usize).min(MAX_CALL));
            }
            if count > 1 {
                self.bytes.truncate(length);
            }
            while self.bytes.len() < length {
                let filled = self.bytes.len().max(HEADER);
                self.bytes.resize(filled, 0);
                self.bytes.extend_from_slice(context.payload.piece(filled - HEADER, length - filled));
            }
            for _ in 1..count {
                self.bytes.extend_from_within(..length);
            }
        }
        (self.size, self.count) = (size, count);
    }

    /// Writes the headers.
    fn write_headers(&mut self, token: u32, sequence: u64, now: Instant) {
        let length = (self.size as usize).min(MAX_CALL);
        let messages = self.bytes[..length * self.count as usize].chunks_exact_mut(length);
        for (i, message) in messages.enumerate() {
            let header = Header::pattern(sequence + i as u64, now, self.size);
            header.encode(token, message.first_chunk_mut().expect("a message has a header"));
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.size as usize).min(MAX_CALL) * self.count as usize]
    }

    /// Writes the part of a long message that is not in memory.
    fn write_rest(&self, context: &EndContext, writer: &mut StreamWriter) -> Result<bool, EndError> {
        let body = self.size as usize - HEADER;
        let mut offset = MAX_CALL - HEADER;
        while offset < body {
            let piece = context.payload.piece(offset, body - offset);
            offset += piece.len();
            if !writer.write(context, piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Receives messages until the sender has closed.
pub(crate) fn receive(mut context: EndContext, file: Option<&Path>) -> Result<Report, EndFailure> {
    let (listener, address) = listen(&context)?;
    let mut sink = file.map(|path| Sink::create(path, context.spec.cut.bytes)).transpose()?;
    let (mut stream, start) = accept(&mut context, &listener, address)?;
    drop(listener);
    let mut meter = context.receiver_meter(start);
    let mut calls = 0;
    let result = receive_messages(&mut context, &mut stream, &mut meter, &mut sink, &mut calls);
    let mut report = context.receiver_report(&meter);
    report.counters.insert("receiver_system_calls".into(), calls as f64);
    report.counters.extend([buffer_counter(&stream, false)]);
    report.notes.extend([context.payload_note()]);
    EndFailure::after(result.and_then(|()| sink.map_or(Ok(()), Sink::finish)), report)
}

fn receive_messages(
    context: &mut EndContext,
    stream: &mut TcpStream,
    meter: &mut ReceiverMeter,
    sink: &mut Option<Sink>,
    calls: &mut u64,
) -> Result<(), EndError> {
    let peer = stream.peer_addr().map_err(io_error("reading the peer address"))?;
    let mut deframer = Deframer::new(context.spec.token, context.payload.clone(), context.payload_interval());
    let mut buffer = vec![0; READ_BUFFER];
    let window = context.receive_window();
    while !context.control.is_stopped() {
        if let Some(window) = window {
            socket::limit_window(stream, window).map_err(io_error("limiting the window"))?;
        }
        *calls += 1;
        let received = match stream.read(&mut buffer) {
            Ok(0) if deframer.is_at_boundary() => return Ok(()),
            Ok(0) => return Err(EndError::ClosedEarly(peer)),
            Ok(n) => n,
            Err(e) if socket::is_timeout(&e) => 0,
            Err(e) if is_closed(&e) => return Err(EndError::ClosedEarly(peer)),
            Err(e) => return Err(io_error("receiving")(e)),
        };
        let now = context.clock.now();
        let mut sink_error = None;
        let result = deframer.feed(&buffer[..received], |event| match event {
            DeframeEvent::Message { header, intact: true } => meter.record(&header, now),
            DeframeEvent::Message { intact: false, .. } => meter.record_corrupted(),
            DeframeEvent::Payload(bytes) => {
                // Stop at the first error: the file on disk is a prefix of the original.
                if sink_error.is_none() {
                    sink_error = sink.as_mut().and_then(|s| s.append(bytes).err());
                }
            }
        });
        if let Some(error) = sink_error {
            return Err(error);
        }
        result.map_err(|_| EndError::LostSync(peer))?;
        context.snapshot_receiver(meter, now);
    }
    Ok(())
}

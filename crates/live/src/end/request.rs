//! Requests and responses, one in flight or several. Over datagrams a request without a response for a second is lost and the
//! next is sent; a request to a group waits for all its receivers. Over a stream the requester waits until the peer counts as stalled.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use trunkline_experiment::plan::Protocol;
use trunkline_io::{Pacer, socket};
use trunkline_run::deframe::{DeframeEvent, Deframer};
use trunkline_run::message::{HEADER, Header};
use trunkline_run::timeouts::RESPONSE_TIMEOUT;
use trunkline_run::{ReceiverMeter, Responder, Sender, SenderStep};
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Span};

use super::stream::{self, STALL_TIMEOUT, StreamWriter};
use super::{EndContext, EndError, EndFailure, STOP_CHECK_INTERVAL, buffer_counter, datagram, io_error};
use crate::wire::Report;

/// Shorter times are waited for by watching the clock, because the system wakes a waiting process later than that.
const SHORT_WAIT: Span = Span::from_us(200);
/// Buffer size: the longest datagram, and a part of a stream.
const READ_BUFFER: usize = 1 << 16;

/// The transport of requests and responses.
enum RequestTransport {
    Stream(Box<StreamWriter>, TcpStream),
    /// The destination is that of the requests: a group, or the host that the socket is connected to.
    Datagrams(UdpSocket, SocketAddr),
}

/// Result of waiting for a message.
enum ReadOutcome {
    Message(Header),
    /// A timeout, a part of a message, or a corrupted one.
    Nothing,
    Closed,
}

/// Finds messages in what arrives. Of a long one in a stream only the part that was read last is in memory.
struct MessageReader {
    buffer: Vec<u8>,
    deframer: Deframer,
    /// Messages of a stream that have arrived and were not returned yet.
    arrived: VecDeque<Header>,
    /// Bytes read from a stream.
    bytes: u64,
    calls: u64,
    corrupted: u64,
}

impl MessageReader {
    fn new(context: &EndContext) -> Self {
        MessageReader {
            buffer: vec![0; READ_BUFFER],
            deframer: Deframer::new(context.spec.token, context.payload.clone(), 1),
            arrived: VecDeque::new(),
            bytes: 0,
            calls: 0,
            corrupted: 0,
        }
    }

    /// Reads one datagram; returns its sender, too.
    fn read_datagram(
        &mut self,
        context: &EndContext,
        socket: &UdpSocket,
    ) -> io::Result<(ReadOutcome, Option<SocketAddr>)> {
        self.calls += 1;
        match socket.recv_from(&mut self.buffer) {
            Ok((length, peer)) => Ok((self.check(context, length), Some(peer))),
            Err(e) if socket::is_timeout(&e) || e.kind() == io::ErrorKind::ConnectionRefused => {
                Ok((ReadOutcome::Nothing, None))
            }
            Err(e) => Err(e),
        }
    }

    /// Checks the message in the first `length` bytes of the buffer.
    fn check(&mut self, context: &EndContext, length: usize) -> ReadOutcome {
        let bytes = &self.buffer[..length];
        match Header::decode(context.spec.token, bytes) {
            Ok(h) if h.length as usize == length && context.payload.matches(0, &bytes[HEADER..]) => {
                ReadOutcome::Message(h)
            }
            _ => {
                self.corrupted += 1;
                ReadOutcome::Nothing
            }
        }
    }

    /// Reads a stream once, if no message has arrived yet. Of a message that is incomplete after that, the rest is read by further
    /// calls, between which a stop is noticed.
    fn read_message(&mut self, stream: &mut TcpStream) -> Result<ReadOutcome, EndError> {
        if let Some(header) = self.arrived.pop_front() {
            return Ok(ReadOutcome::Message(header));
        }
        self.calls += 1;
        let read = match stream.read(&mut self.buffer) {
            Ok(0) => return Ok(ReadOutcome::Closed),
            Ok(n) => n,
            Err(e) if socket::is_timeout(&e) => return Ok(ReadOutcome::Nothing),
            Err(e) if stream::is_closed(&e) => return Ok(ReadOutcome::Closed),
            Err(e) => return Err(io_error("receiving")(e)),
        };
        self.bytes += read as u64;
        let MessageReader { deframer, arrived, corrupted, buffer, .. } = self;
        let result = deframer.feed(&buffer[..read], |event| match event {
            DeframeEvent::Message { header, intact: true } => arrived.push_back(header),
            DeframeEvent::Message { intact: false, .. } => *corrupted += 1,
            DeframeEvent::Payload(_) => {}
        });
        if result.is_err() {
            let peer = stream.peer_addr().map_err(io_error("reading the peer address"))?;
            return Err(EndError::LostSync(peer));
        }
        Ok(self.arrived.pop_front().map_or(ReadOutcome::Nothing, ReadOutcome::Message))
    }
}

/// Encodes a message into `buffer`.
pub(crate) fn encode_message(context: &EndContext, buffer: &mut Vec<u8>, header: &Header) {
    encode_front(context, buffer, header, usize::MAX);
}

/// Encodes at most the first `max` bytes of a message into `buffer`.
fn encode_front(context: &EndContext, buffer: &mut Vec<u8>, header: &Header, max: usize) {
    let length = (header.length as usize).min(max);
    if buffer.len() != length {
        buffer.resize(HEADER, 0);
        while buffer.len() < length {
            let offset = buffer.len() - HEADER;
            buffer.extend_from_slice(context.payload.piece(offset, length - HEADER - offset));
        }
        buffer.truncate(length);
    }
    header.encode(context.spec.token, buffer.first_chunk_mut().expect("a message has a header"));
}

/// Counters of a requester's socket.
#[derive(Default)]
struct RequestStats {
    calls: u64,
    corrupted: u64,
}

/// Sends requests and waits for their responses.
pub(crate) fn send_requests(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
) -> Result<Report, EndFailure> {
    let (mut transport, address) = match context.spec.protocol {
        Protocol::Tcp { .. } => {
            let (stream, address) = stream::connect(&context, peer)?;
            let reader = stream.try_clone().map_err(io_error("duplicating the socket"))?;
            (RequestTransport::Stream(Box::new(StreamWriter::new(stream, peer)), reader), address)
        }
        _ => {
            let (socket, address) = datagram::open_sender(&context, peer, false)?;
            (RequestTransport::Datagrams(socket, peer), address)
        }
    };
    let start = context.ready(address)?;
    let timeout = match transport {
        RequestTransport::Stream(..) => None,
        RequestTransport::Datagrams(..) => Some(RESPONSE_TIMEOUT),
    };
    let requester = context.requester(timeout);
    let mut sender = context.sender(start, limit, requester)?;
    let mut stats = RequestStats::default();
    let result = exchange(&mut context, &mut transport, &mut sender, &mut stats);
    let mut report = context.sender_report(&sender);
    match &mut transport {
        RequestTransport::Stream(writer, _) => {
            writer.end(&context);
            // Round-trip times of requests, not the kernel's estimate.
            let rtt = report.rtt.clone();
            writer.add_to(&mut report);
            report.rtt = rtt;
        }
        RequestTransport::Datagrams(socket, _) => report.counters.extend([buffer_counter(socket, true)]),
    }
    report.counters.insert("answers_corrupted".into(), stats.corrupted as f64);
    *report.counters.entry("sender_system_calls".into()).or_default() += stats.calls as f64;
    EndFailure::after(result, report)
}

/// Sends each request when it is due, and reads responses meanwhile.
fn exchange(
    context: &mut EndContext,
    transport: &mut RequestTransport,
    sender: &mut Sender,
    stats: &mut RequestStats,
) -> Result<(), EndError> {
    let mut pacer = Pacer::new(context.clock);
    let control = context.control.clone();
    let (mut reader, mut request) = (MessageReader::new(context), Vec::new());
    // When the latest request was sent or bytes of a response arrived.
    let mut last_progress = context.clock.now();
    while !control.is_stopped() {
        let now = context.clock.now();
        let message = match sender.next(now) {
            SenderStep::Send(message) => message,
            SenderStep::Wait(until) if !sender.is_pending() => {
                pacer.wait(until.unwrap_or(now), control.stop_flag());
                continue;
            }
            SenderStep::Wait(until) => {
                let may_read = match until.filter(|_| sender.is_concurrent()) {
                    Some(until) if until.since(now) < SHORT_WAIT => {
                        pacer.wait(until, control.stop_flag());
                        false
                    }
                    Some(until) => {
                        let limit = (until - SHORT_WAIT / 2).since(now).min(STOP_CHECK_INTERVAL);
                        transport.is_readable(&reader, limit)?
                    }
                    // Reading waits for a response by itself.
                    None => true,
                };
                if may_read && !read_response(context, transport, &mut reader, sender, &mut last_progress)? {
                    break;
                }
                continue;
            }
            SenderStep::Done => break,
        };
        encode_message(context, &mut request, &sender.header(&message, now));
        match transport {
            RequestTransport::Stream(..) => {
                if !write_request(context, transport, &mut reader, sender, &mut last_progress, &request)? {
                    break;
                }
            }
            RequestTransport::Datagrams(socket, peer) => {
                stats.calls += 1;
                let sent = match context.is_multicast() {
                    true => socket.send_to(&request, *peer),
                    false => socket.send(&request),
                };
                match sent {
                    Err(e) if e.kind() != io::ErrorKind::ConnectionRefused => {
                        return Err(io_error("sending")(e));
                    }
                    _ => {}
                }
            }
        }
        if !sender.is_pending() {
            last_progress = now;
        }
        sender.record_send(&message, now);
        if let RequestTransport::Stream(writer, _) = transport {
            writer.sample(sender.meter().start(), now);
        }
        // Requests that are always due must not keep responses from being read.
        while sender.is_concurrent() && transport.is_readable(&reader, Span::ZERO)? {
            if !read_response(context, transport, &mut reader, sender, &mut last_progress)? {
                return Ok(());
            }
        }
        context.snapshot_sender(sender, now);
    }
    stats.calls += reader.calls;
    stats.corrupted = reader.corrupted;
    Ok(())
}

/// Writes a request to a stream, and reads responses whenever there is no room: a peer that cannot send its response reads no
/// request. Returns false if a stop was requested or the connection is over.
fn write_request(
    context: &EndContext,
    transport: &mut RequestTransport,
    reader: &mut MessageReader,
    sender: &mut Sender,
    last_progress: &mut Instant,
    mut bytes: &[u8],
) -> Result<bool, EndError> {
    let mut blocked_since = None;
    loop {
        let RequestTransport::Stream(writer, stream) = transport else { return Ok(true) };
        let written = writer.write_now(bytes)?;
        bytes = &bytes[written..];
        if bytes.is_empty() || context.control.is_stopped() {
            return Ok(bytes.is_empty());
        }
        let now = context.clock.now();
        let since = blocked_since.get_or_insert(now);
        if written > 0 {
            *since = now;
        }
        if now.since(*since) > STALL_TIMEOUT {
            return Err(EndError::PeerStalled(writer.peer, STALL_TIMEOUT));
        }
        socket::readable_or_writable(stream, STOP_CHECK_INTERVAL)
            .map_err(io_error("waiting for room to send"))?;
        if transport.is_readable(reader, Span::ZERO)? {
            let bytes_before = reader.bytes;
            if !read_response(context, transport, reader, sender, last_progress)? {
                return Ok(false);
            }
            if reader.bytes > bytes_before {
                blocked_since = None;
            }
        }
    }
}

impl RequestTransport {
    /// Waits at most `limit` until there is something to read.
    fn is_readable(&self, reader: &MessageReader, limit: Span) -> Result<bool, EndError> {
        let readable = match self {
            RequestTransport::Stream(..) if !reader.arrived.is_empty() => return Ok(true),
            RequestTransport::Stream(_, stream) => socket::readable(stream, limit),
            RequestTransport::Datagrams(socket, _) => socket::readable(socket, limit),
        };
        readable.map_err(io_error("waiting for a response"))
    }
}

/// Reads one message, or nothing for [`STOP_CHECK_INTERVAL`]. Returns false if the connection is over.
fn read_response(
    context: &EndContext,
    transport: &mut RequestTransport,
    reader: &mut MessageReader,
    sender: &mut Sender,
    last_progress: &mut Instant,
) -> Result<bool, EndError> {
    let bytes_before = reader.bytes;
    let outcome = match transport {
        RequestTransport::Stream(_, stream) => reader.read_message(stream)?,
        RequestTransport::Datagrams(socket, _) => {
            reader.read_datagram(context, socket).map_err(io_error("receiving"))?.0
        }
    };
    let now = context.clock.now();
    // A long response is progress before it is complete.
    if reader.bytes > bytes_before {
        *last_progress = now;
    }
    match outcome {
        ReadOutcome::Message(h) if sender.record_response(&h, now) => *last_progress = now,
        // A late response to a request that timed out.
        ReadOutcome::Message(_) => {}
        ReadOutcome::Nothing => match transport {
            RequestTransport::Stream(writer, _) if now.since(*last_progress) >= STALL_TIMEOUT => {
                return Err(EndError::PeerStalled(writer.peer, STALL_TIMEOUT));
            }
            _ => {}
        },
        ReadOutcome::Closed => {
            let RequestTransport::Stream(writer, _) = transport else { return Ok(false) };
            return Err(EndError::ClosedEarly(writer.peer));
        }
    }
    Ok(true)
}

/// Receives requests and responds to them.
pub(crate) fn send_responses(context: EndContext) -> Result<Report, EndFailure> {
    match context.spec.protocol {
        Protocol::Tcp { .. } => respond_over_stream(context),
        _ => respond_over_datagrams(context),
    }
}

fn wait_for_stall(context: &EndContext, responder: &Responder) {
    if let Some(until) = responder.stalled_until(context.clock.now()) {
        Pacer::new(context.clock).wait(until, context.control.stop_flag());
    }
}

fn respond_over_stream(mut context: EndContext) -> Result<Report, EndFailure> {
    let (listener, address) = stream::listen(&context)?;
    let (mut stream, start) = stream::accept(&mut context, &listener, address)?;
    context.await_consent()?;
    let mut meter = context.receiver_meter(start);
    let (mut reader, mut response, mut error) = (MessageReader::new(&context), Vec::new(), None);
    let responder = Responder::new(&context.spec.pattern, start);
    while error.is_none() && !context.control.is_stopped() {
        let outcome = reader.read_message(&mut stream);
        wait_for_stall(&context, &responder);
        let now = context.clock.now();
        match outcome {
            Ok(ReadOutcome::Message(h)) => {
                meter.record(&h, now);
                let received_bytes = meter.arrivals().bytes;
                let answer = responder.respond(&h, 0, received_bytes, now);
                reader.calls += 1;
                error = write_response(&mut stream, &context, &answer, &mut response).err();
            }
            Ok(ReadOutcome::Nothing) => {}
            Ok(ReadOutcome::Closed) => break,
            Err(e) => error = Some(e),
        }
        context.snapshot_receiver(&meter, now);
    }
    if context.control.has_lost_consent() {
        stream::discard_unsent(&stream);
    }
    receiver_report(&context, meter, &reader, buffer_counter(&stream, false), error)
}

/// Writes a response in pieces, each when the limits permit it. What they do not permit is not written: they stop the end.
fn write_response(
    stream: &mut TcpStream,
    context: &EndContext,
    header: &Header,
    buffer: &mut Vec<u8>,
) -> Result<(), EndError> {
    let piece = context.response_piece();
    encode_front(context, buffer, header, piece);
    if !context.begin_response(header.length)
        || !context.limit_response(buffer.len())
        || !write_all(stream, context, buffer)?
    {
        return Ok(());
    }
    let (mut offset, body) = (buffer.len() - HEADER, header.length as usize - HEADER);
    while offset < body {
        let bytes = context.payload.piece(offset, piece.min(body - offset));
        if !context.limit_response(bytes.len()) || !write_all(stream, context, bytes)? {
            return Ok(());
        }
        offset += bytes.len();
    }
    Ok(())
}

/// Returns false if a stop was requested, or the requester has ended: what it sent before can still be read.
fn write_all(stream: &mut TcpStream, context: &EndContext, mut bytes: &[u8]) -> Result<bool, EndError> {
    while !bytes.is_empty() && !context.control.is_stopped() {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if socket::is_timeout(&e) => {}
            Err(e) if stream::is_closed(&e) => return Ok(false),
            Err(e) => return Err(io_error("sending a response")(e)),
        }
    }
    Ok(bytes.is_empty())
}

fn respond_over_datagrams(mut context: EndContext) -> Result<Report, EndFailure> {
    let (socket, address) = datagram::open_receiver(&context, false)?;
    // A socket that is bound to a group has no address to send from.
    let own_address = SocketAddr::new(context.spec.address, 0);
    let own_socket = context.is_multicast().then(|| socket::udp(own_address, &context.options()));
    let own_socket = own_socket.transpose()?;
    let start = context.ready(address)?;
    context.await_consent()?;
    let mut meter = context.receiver_meter(start);
    let (mut reader, mut response, mut error) = (MessageReader::new(&context), Vec::new(), None);
    let responder = Responder::new(&context.spec.pattern, start);
    let mut session = None;
    while error.is_none() && !context.control.is_stopped() {
        let outcome = reader.read_datagram(&context, &socket);
        wait_for_stall(&context, &responder);
        let now = context.clock.now();
        match outcome {
            // No requester asks for a response that is longer than a datagram.
            Ok((ReadOutcome::Message(h), _)) if h.response_length > context.max_response() => {
                reader.corrupted += 1;
            }
            Ok((ReadOutcome::Message(h), Some(peer))) if context.accepts_source(peer, &mut session) => {
                meter.record(&h, now);
                let received_bytes = meter.arrivals().bytes;
                let answer = responder.respond(&h, context.spec.receiver, received_bytes, now);
                encode_message(&context, &mut response, &answer);
                if !context.begin_response(answer.length) || !context.limit_response(response.len()) {
                    break;
                }
                reader.calls += 1;
                // A response that cannot be sent counts as unanswered at the requester.
                let _ = own_socket.as_ref().unwrap_or(&socket).send_to(&response, peer);
            }
            Ok(_) => {}
            Err(e) => error = Some(io_error("receiving")(e)),
        }
        context.snapshot_receiver(&meter, now);
        if context.is_complete(&meter, now) {
            break;
        }
    }
    receiver_report(&context, meter, &reader, buffer_counter(&socket, false), error)
}

fn receiver_report(
    context: &EndContext,
    mut meter: ReceiverMeter,
    reader: &MessageReader,
    granted: (String, f64),
    error: Option<EndError>,
) -> Result<Report, EndFailure> {
    (0..reader.corrupted).for_each(|_| meter.record_corrupted());
    let mut report = context.receiver_report(&meter);
    report.counters.insert("receiver_system_calls".into(), reader.calls as f64);
    report.counters.extend([granted]);
    EndFailure::after(error.map_or(Ok(()), Err), report)
}

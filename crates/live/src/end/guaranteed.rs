//! Ends over the guaranteed transport: message boundaries are preserved and no message is lost.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use trunkline_arq::{
    Buffer, CloseReason, Command, Config, ConnectionId, Event, EventKind, Node, ReceiveStatus, Refusal,
};
use trunkline_endpoint::Port;
use trunkline_io::driver::{Direction, Driver, DriverEvent, peer_of};
use trunkline_io::socket;
use trunkline_record::Histogram;
use trunkline_run::guaranteed::{self, FaultInjector};
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::{ReceiverMeter, SenderMeter};
use trunkline_traffic::source::{Limit, Message, Step};
use trunkline_traffic::{Pattern, Source};
use trunkline_units::{Instant, Seed, Size, Span};

use super::request::{encode_message, response_to};
use super::sink::{Sink, read_full};
use super::stage_timer::StageTimer;
use super::{
    EndContext, EndError, EndFailure, PEER_TIMEOUT, STOP_CHECK_INTERVAL, buffer_counter, file_error, io_error,
};
use crate::wire::Report;

/// All messages use this channel.
const CHANNEL: u16 = 0;
/// Default socket buffers: the traffic of one scheduler time slice.
const SOCKET_BUFFER: Size = Size::from_bytes(4 << 20);
/// Maximum datagram over Ethernet, used if the system does not report the path MTU.
const ETHERNET_DATAGRAM: usize = 1472;
/// Messages sent between two polls of the socket.
const MESSAGES_PER_POLL: u32 = 64;
/// How long an end waits for the peer to close as well.
const CLOSE_TIMEOUT: Span = Span::from_s(2);

/// A guaranteed node on a socket, with its one connection.
struct GuaranteedConnection {
    driver: Driver<FaultInjector>,
    stage_timer: StageTimer,
    id: Option<ConnectionId>,
    peer: SocketAddr,
    is_readable: bool,
    is_writable: bool,
    is_finished: bool,
    close_reason: Option<CloseReason>,
}

impl GuaranteedConnection {
    /// Opens the socket: a sender's with `peer`, a receiver's without. Returns its address, too.
    fn new(
        context: &EndContext,
        peer: Option<SocketAddr>,
    ) -> Result<(GuaranteedConnection, SocketAddr), EndError> {
        let mut socket_options = context.options();
        socket_options.send_buffer.get_or_insert(SOCKET_BUFFER);
        socket_options.receive_buffer.get_or_insert(SOCKET_BUFFER);
        let port = if peer.is_none() { context.spec.port.unwrap_or(0) } else { 0 };
        let socket = socket::udp(SocketAddr::new(context.spec.address, port), &socket_options)?;
        let address = socket.local_addr().map_err(io_error("reading the local address"))?;
        // Connection ids should not be guessable; deriving them from the run's token, which depends on the clock at
        // the start, suffices for a test.
        let role = if peer.is_some() { "sender" } else { "receiver" };
        let random =
            Seed(u64::from(context.spec.token)).stream(&format!("{} / {role}", context.spec.repetition_name));
        let faults = context.spec.seed.stream(&format!("{} / faults / {role}", context.spec.repetition_name));
        let accept = match peer {
            None => options(context, usize::MAX),
            Some(_) => None,
        };
        let node = Node::new(Config { port: Port(0), accept, max_connections: 1, random });
        let node = FaultInjector::new(node, &context.spec.protocol, faults);
        let mut driver =
            Driver::new(node, socket, context.clock).map_err(io_error("preparing the socket"))?;
        let direction = if peer.is_some() { Direction::Out } else { Direction::In };
        let stage_timer = StageTimer::new(context.clock, direction, &context.spec.pattern);
        driver.set_probe(Box::new(stage_timer.clone()));
        let connection = GuaranteedConnection {
            driver,
            stage_timer,
            id: None,
            peer: peer.unwrap_or(address),
            is_readable: false,
            is_writable: true,
            is_finished: false,
            close_reason: None,
        };
        Ok((connection, address))
    }

    /// Runs until `until` or until an event.
    fn run(&mut self, until: Instant) -> Result<(), EndError> {
        match self.driver.run(Some(until)).map_err(io_error("running the socket"))? {
            DriverEvent::Endpoint(Event { id, kind }) => match kind {
                EventKind::Opened { .. } => self.opened(id),
                EventKind::Readable { .. } => self.is_readable = true,
                EventKind::Writable { .. } => self.is_writable = true,
                EventKind::Finished => self.is_finished = true,
                EventKind::Closed { reason } => self.close_reason = Some(reason),
            },
            DriverEvent::SendFailed(_) | DriverEvent::Deadline | DriverEvent::Stopped => {}
        }
        Ok(())
    }

    /// Stores the identifier and starts the measurement of stages.
    fn opened(&mut self, id: ConnectionId) {
        self.id = Some(id);
        let command = Command::Measure {
            id,
            every: self.stage_timer.sampling_interval,
            meter: Box::new(self.stage_timer.clone()),
        };
        // Fails only if the connection is closed already.
        let _ = self.driver.command(command);
    }

    /// Opens the connection and waits until it is established.
    fn open(&mut self, context: &EndContext, peer: SocketAddr) -> Result<(), EndError> {
        let max_datagram = max_datagram(self.driver.socket(), peer).unwrap_or(ETHERNET_DATAGRAM);
        let Some(options) = options(context, max_datagram) else { return Ok(()) };
        let mut id = ConnectionId::default();
        let open = Command::Open { peer: peer_of(peer), options: &options, id: &mut id };
        self.driver.command(open).expect("the first connection of a node is not refused");
        let deadline = context.clock.now() + PEER_TIMEOUT;
        while self.id.is_none() {
            self.run((context.clock.now() + STOP_CHECK_INTERVAL).min(deadline))?;
            if let Some(reason) = self.close_reason {
                return Err(EndError::ConnectionEnded(peer, reason));
            }
            if context.control.is_stopped() {
                return Err(EndError::Stopped);
            }
            if context.clock.now() >= deadline {
                return Err(EndError::ConnectionEnded(peer, CloseReason::HandshakeTimeout));
            }
        }
        Ok(())
    }

    /// Sends a message; returns false if a stop was requested.
    fn send(&mut self, context: &EndContext, bytes: &[u8]) -> Result<bool, EndError> {
        let Some(id) = self.id else { return Ok(false) };
        loop {
            match self.driver.command(Command::Send { id, channel: CHANNEL, bytes }) {
                Ok(()) => return Ok(true),
                Err(Refusal::Full) => self.is_writable = false,
                Err(_) => {
                    let reason = self.close_reason.unwrap_or(CloseReason::LocalReset);
                    return Err(EndError::ConnectionEnded(self.peer, reason));
                }
            }
            while !self.is_writable {
                self.run(context.clock.now() + STOP_CHECK_INTERVAL)?;
                if let Some(reason) = self.close_reason {
                    return Err(EndError::ConnectionEnded(self.peer, reason));
                }
                if context.control.is_stopped() {
                    return Ok(false);
                }
            }
        }
    }

    /// Appends the next message that has arrived to `into`; returns whether it is complete.
    fn receive_message(&mut self, into: &mut Buffer) -> bool {
        let Some(id) = self.id else { return false };
        loop {
            let mut status = ReceiveStatus::Empty;
            let command = Command::Receive { id, channel: CHANNEL, buffer: into, status: &mut status };
            if self.driver.command(command).is_err() {
                return false;
            }
            match status {
                ReceiveStatus::Complete => return true,
                ReceiveStatus::Partial => {}
                ReceiveStatus::Empty => {
                    self.is_readable = false;
                    return false;
                }
            }
        }
    }

    /// Closes the sending direction and waits until everything has arrived and the peer has closed as well.
    fn close(&mut self, context: &EndContext) -> Result<(), EndError> {
        let Some(id) = self.id else { return Ok(()) };
        let _ = self.driver.command(Command::Close { id });
        let mut stopped_at = None;
        while self.close_reason.is_none() {
            let now = context.clock.now();
            self.run(now + STOP_CHECK_INTERVAL)?;
            // After a stop, accepted messages are still delivered, but a lost peer is not awaited forever.
            if context.control.is_stopped() && now.since(*stopped_at.get_or_insert(now)) > CLOSE_TIMEOUT {
                return Ok(());
            }
        }
        match self.close_reason {
            Some(CloseReason::Completed) | None => Ok(()),
            Some(reason) => Err(EndError::ConnectionEnded(self.peer, reason)),
        }
    }

    /// Returns the counters of the transport, with the prefix `SIDE_`.
    fn counters(&self, side: &str) -> trunkline_run::reports::Metrics {
        guaranteed::counters(self.driver.endpoint(), self.id.as_slice(), side)
    }
}

fn options(context: &EndContext, path_mtu: usize) -> Option<trunkline_arq::Options> {
    let buffer = context.spec.buffer;
    guaranteed::options(&context.spec.protocol, buffer, buffer, path_mtu)
}

/// Returns the maximum datagram that reaches `peer` unfragmented, as far as the system knows.
fn max_datagram(socket: &UdpSocket, peer: SocketAddr) -> Option<usize> {
    let probe = UdpSocket::bind(SocketAddr::new(socket.local_addr().ok()?.ip(), 0)).ok()?;
    probe.connect(peer).ok()?;
    socket::allow_fragments(&probe, peer).ok()?
}

/// Sends the messages of the pattern.
pub(crate) fn send(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
    path: Option<&Path>,
) -> Result<Report, EndFailure> {
    let mut source_file =
        path.map(|path| File::open(path).map_err(file_error("opening", path))).transpose()?;
    let (mut connection, address) = GuaranteedConnection::new(&context, Some(peer))?;
    let start = context.ready(address)?;
    connection.open(&context, peer)?;
    let mut source = context.source(start, limit, context.max_message())?;
    let mut sender_meter = SenderMeter::new(start);
    let mut responses = ResponseStats::default();
    let file = source_file.as_mut().zip(path);
    let result =
        send_messages(&mut context, &mut connection, &mut source, &mut sender_meter, file, &mut responses);
    let result = result.and_then(|()| connection.close(&context));
    let mut report = SenderReport::complete(&sender_meter, &source);
    report.cpu = context.cpu();
    report.counters.extend([buffer_counter(connection.driver.socket(), true)]);
    report.counters.extend(connection.counters("sender"));
    (report.stages, report.frame_departures) = connection.stage_timer.report();
    report.notes.insert("stages".into(), connection.stage_timer.description());
    if path.is_some() {
        let file_bytes = sender_meter.bytes() - sender_meter.messages() * HEADER as u64;
        report.counters.insert("file_bytes".into(), file_bytes as f64);
    }
    if matches!(context.spec.pattern, Pattern::Request { .. }) {
        report.rtt = responses.rtt.counts();
        report.counters.insert("answers".into(), responses.count as f64);
        report.counters.insert("answer_bytes".into(), responses.bytes as f64);
    }
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(EndFailure { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

/// Counters of responses.
#[derive(Default)]
struct ResponseStats {
    rtt: Histogram,
    count: u64,
    bytes: u64,
}

fn send_messages(
    context: &mut EndContext,
    connection: &mut GuaranteedConnection,
    source: &mut Source,
    sender_meter: &mut SenderMeter,
    mut source_file: Option<(&mut File, &Path)>,
    responses: &mut ResponseStats,
) -> Result<(), EndError> {
    let is_request = matches!(context.spec.pattern, Pattern::Request { .. });
    let (mut buffer, mut sequence, mut unpolled) = (Vec::new(), 0, 0);
    while !context.control.is_stopped() {
        let now = context.clock.now();
        let message = match source.next(now) {
            Step::Send(message) => message,
            Step::Wait(until) => {
                unpolled = 0;
                connection.run(until.min(now + STOP_CHECK_INTERVAL))?;
                continue;
            }
            Step::Done => break,
        };
        let Some(message) = encode_next(context, &mut source_file, message, sequence, now, &mut buffer)?
        else {
            break;
        };
        if !connection.send(context, &buffer)? {
            break;
        }
        sequence += 1;
        sender_meter.record_send(&message, now);
        if message.first {
            source.departed(now);
        }
        if is_request {
            if !await_response(context, connection, sequence - 1, now, responses)? {
                break;
            }
            continue;
        }
        // Several messages share frames; a message followed by a gap is sent at once.
        unpolled += 1;
        if unpolled >= MESSAGES_PER_POLL || source.due_after(now).is_some() {
            unpolled = 0;
            connection.run(now)?;
        }
        context.snapshot_sender(sender_meter, now);
    }
    Ok(())
}

/// Encodes a message; returns `None` at the end of the file.
fn encode_next(
    context: &EndContext,
    source_file: &mut Option<(&mut File, &Path)>,
    mut message: Message,
    sequence: u64,
    now: Instant,
    buffer: &mut Vec<u8>,
) -> Result<Option<Message>, EndError> {
    let (length, response) = (message.size, message.response);
    let Some((source_file, path)) = source_file else {
        encode_message(
            context,
            buffer,
            &Header { sequence, sent_at: now, length, response_length: response, kind: MessageKind::Pattern },
        );
        return Ok(Some(message));
    };
    buffer.resize(length as usize, 0);
    let length = read_full(source_file, &mut buffer[HEADER..]).map_err(file_error("reading", path))?;
    if length == 0 {
        return Ok(None);
    }
    buffer.truncate(HEADER + length);
    message.size = buffer.len() as u32;
    let header = Header {
        sequence,
        sent_at: now,
        length: message.size,
        response_length: 0,
        kind: MessageKind::Checked,
    };
    let (header_bytes, body) = buffer.split_first_chunk_mut::<HEADER>().expect("a message has a header");
    header.encode_checked(context.spec.token, body, header_bytes);
    Ok(Some(message))
}

/// Waits for the response to request `sequence`; returns false if a stop was requested.
fn await_response(
    context: &EndContext,
    connection: &mut GuaranteedConnection,
    sequence: u64,
    requested_at: Instant,
    responses: &mut ResponseStats,
) -> Result<bool, EndError> {
    let mut response = Buffer::new();
    loop {
        while !connection.receive_message(&mut response) {
            if let Some(reason) = connection.close_reason {
                return Err(EndError::ConnectionEnded(connection.peer, reason));
            }
            if context.control.is_stopped() {
                return Ok(false);
            }
            connection.run(context.clock.now() + STOP_CHECK_INTERVAL)?;
        }
        let header = Header::decode(context.spec.token, &response);
        response.clear();
        if header.is_ok_and(|h| h.kind == MessageKind::Response && h.sequence == sequence) {
            let length = header.map_or(0, |h| h.length);
            responses.rtt.record(context.clock.now().since(requested_at));
            responses.count += 1;
            responses.bytes += u64::from(length);
            return Ok(true);
        }
    }
}

/// Receives messages and responds to requests.
pub(crate) fn receive(mut context: EndContext, path: Option<&Path>) -> Result<Report, EndFailure> {
    let (mut connection, address) = GuaranteedConnection::new(&context, None)?;
    let mut sink = path.map(Sink::create).transpose()?;
    let start = context.ready(address)?;
    let mut meter = ReceiverMeter::new(start);
    let result = receive_messages(&mut context, &mut connection, &mut meter, &mut sink);
    let mut report = ReceiverReport::from_meter(&meter);
    report.cpu = context.cpu();
    report.counters.extend([buffer_counter(connection.driver.socket(), false)]);
    report.counters.extend(connection.counters("receiver"));
    (report.stages, report.frame_arrivals) = connection.stage_timer.report();
    let report = Report::Receiver(Box::new(report));
    match result.and_then(|()| sink.map_or(Ok(()), Sink::finish)) {
        Ok(()) => Ok(report),
        Err(error) => Err(EndFailure { error, report: Some(report) }),
    }
}

fn receive_messages(
    context: &mut EndContext,
    connection: &mut GuaranteedConnection,
    meter: &mut ReceiverMeter,
    sink: &mut Option<Sink>,
) -> Result<(), EndError> {
    let (mut message, mut response) = (Buffer::new(), Vec::new());
    while !connection.is_finished && connection.close_reason.is_none() && !context.control.is_stopped() {
        connection.run(context.clock.now() + STOP_CHECK_INTERVAL)?;
        while connection.is_readable && connection.receive_message(&mut message) {
            let now = context.clock.now();
            let header = Header::decode(context.spec.token, &message);
            let is_intact = |h: &Header| match message.split_first_chunk::<HEADER>() {
                Some((header_bytes, body)) if h.length as usize == message.len() => match h.kind {
                    MessageKind::Checked => Header::is_checksum_valid(header_bytes, body),
                    _ => context.payload.matches(0, body),
                },
                _ => false,
            };
            match header {
                Ok(header) if is_intact(&header) => {
                    meter.record(&header, now);
                    if let Some(sink) = sink {
                        sink.append(&message[HEADER..])?;
                    }
                    if header.response_length > 0 {
                        encode_message(context, &mut response, &response_to(&header, now));
                        connection.send(context, &response)?;
                    }
                }
                _ => meter.record_corrupted(),
            }
            message.clear();
            context.snapshot_receiver(meter, now);
            if context.control.is_stopped() {
                break;
            }
        }
    }
    connection.close(context)
}

//! Ends over QUIC. Each runs its node on its own thread: it writes messages, receives packets and sends packets in turn.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use trunkline_endpoint::{Port, Segment};
use trunkline_io::event_loop::LoopOutput;
use trunkline_io::peer::{address_of, peer_of};
use trunkline_io::socket::Options;
use trunkline_io::{EventLoop, Pacer, ports, socket};
use trunkline_quic::{CloseReason, Command, Config, Event, Fingerprint, Identity, Node, Randomness, Role};
use trunkline_record::Histogram;
use trunkline_run::deframe::DeframeEvent;
use trunkline_run::message::Header;
use trunkline_run::quic::{self, Messages, ReceiveError};
use trunkline_run::reports::SenderReport;
use trunkline_run::samples::Samples;
use trunkline_run::timeouts::RESPONSE_TIMEOUT;
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_traffic::source::{Limit, Message};
use trunkline_units::{Instant, Span};

use super::sink::{Sink, SourceFile, add_file_bytes};
use super::{
    EndContext, EndError, EndFailure, PEER_TIMEOUT, STOP_CHECK_INTERVAL, buffer_counter, io_error,
    local_address,
};
use crate::wire::Report;

/// Time before a deadline at which a paced sender stops acting on packets: a wakeup may take as long.
const WAKEUP_TIME: Span = Span::from_us(300);
/// How long an end waits for the end of the connection after everything has arrived, and a stopped one for the peer.
const CLOSE_TIMEOUT: Span = Span::from_s(2);
/// How often an end looks for its start. It must be shorter than the time from the agreement on a start until then.
const START_CHECK_INTERVAL: Span = Span::from_us(500);
/// Messages written, and batches received, in one turn of the event loop.
const MAX_MESSAGES: usize = 256;
const MAX_BATCHES: usize = 16;
/// The only port of the node.
const PORT: Port = Port(0);

/// A connection and what an end knows of it.
struct QuicConnection {
    event_loop: EventLoop<Node>,
    messages: Messages,
    peer: SocketAddr,
    /// Streams that may have data.
    readable: Vec<u32>,
    has_datagrams: bool,
    is_connected: bool,
    /// Whether a write found no room and none was reported since.
    is_blocked: bool,
    is_delivered: bool,
    close_reason: Option<CloseReason>,
    /// Metrics of a sender over time, and its smoothed round-trip times.
    samples: Samples,
    rtt: Histogram,
}

impl QuicConnection {
    /// Creates the node over a socket.
    fn over(context: &EndContext, socket: UdpSocket, role: Role) -> Result<QuicConnection, EndError> {
        let spec = &context.spec;
        let options = quic::options(&spec.protocol, spec.buffer, spec.buffer).unwrap_or_default();
        let (randomness, seed) = (Randomness::System, random()?);
        let node = Node::new(Config { port: PORT, options, role, randomness, seed });
        let local = local_address(socket.local_addr())?;
        let preparing = io_error("preparing the socket");
        let event_loop = EventLoop::over(node, socket, context.clock).map_err(&preparing)?;
        // Path MTU discovery probes with packets that must not be fragmented.
        socket::forbid_fragments(event_loop.ports.socket(0), local).map_err(preparing)?;
        let is_datagrams = quic::uses_datagrams(&spec.protocol);
        let (payload, interval) = (context.payload.clone(), context.payload_interval());
        Ok(QuicConnection {
            event_loop,
            messages: Messages::new(spec.token, payload, options.streams, is_datagrams, interval),
            peer: local,
            readable: Vec::new(),
            has_datagrams: false,
            is_connected: false,
            is_blocked: false,
            is_delivered: false,
            close_reason: None,
            samples: Samples::default(),
            rtt: Histogram::default(),
        })
    }

    fn address(&self) -> Result<SocketAddr, EndError> {
        local_address(self.event_loop.ports.socket(0).local_addr())
    }

    /// Waits for packets until `until`, then receives and sends. Ignores packets from hosts that `context` does not accept.
    fn turn(&mut self, context: &EndContext, until: Instant) -> Result<(), EndError> {
        let QuicConnection { event_loop, .. } = self;
        let until = until.min(context.clock.now() + STOP_CHECK_INTERVAL);
        let ready = event_loop.wait(Some(until)).map_err(io_error("waiting for packets"))?;
        if ready.refused(0) {
            // The peer's socket is closed, or not open yet: QUIC finds out by itself.
            event_loop.refusals(PORT).for_each(drop);
        }
        if ready.has(0) {
            let accept = |received: &ports::Received, _: &[u8]| context.accepts(received.from.ip());
            event_loop.receive(PORT, MAX_BATCHES, accept).map_err(io_error("receiving"))?;
        }
        event_loop.drain(|_, ports, output| match output {
            LoopOutput::Frame(transmit, frame) => {
                let to = address_of(transmit.peer).expect("a node sends to known peers only");
                ports.send_all(0, to, frame, transmit.segment.map_or(frame.len(), Segment::length).max(1));
            }
            LoopOutput::Event(Event::Connected) => self.is_connected = true,
            LoopOutput::Event(Event::Readable { stream }) => {
                if !self.readable.contains(&stream) {
                    self.readable.push(stream);
                }
            }
            LoopOutput::Event(Event::DatagramsReadable) => self.has_datagrams = true,
            LoopOutput::Event(Event::Writable) => self.is_blocked = false,
            LoopOutput::Event(Event::Delivered) => self.is_delivered = true,
            LoopOutput::Event(Event::Closed(reason)) => self.close_reason = Some(reason),
        });
        Ok(())
    }

    /// Returns the error of a connection that has ended early.
    fn check_open(&self) -> Result<(), EndError> {
        match &self.close_reason {
            None => Ok(()),
            Some(CloseReason::Completed) => Err(EndError::ClosedEarly(self.peer)),
            Some(reason) => Err(EndError::QuicEnded(self.peer, reason.clone())),
        }
    }

    /// Waits for the handshake. Returns false if a stop was requested or the peer did not respond.
    fn await_handshake(&mut self, context: &EndContext) -> Result<bool, EndError> {
        let deadline = context.clock.now() + PEER_TIMEOUT;
        while !self.is_connected && !context.control.is_stopped() && context.clock.now() < deadline {
            self.turn(context, deadline)?;
            self.check_open()?;
        }
        Ok(self.is_connected)
    }

    /// Waits for the start, and sends and receives packets in the meantime.
    fn await_start(&mut self, context: &mut EndContext) -> Result<Instant, EndError> {
        loop {
            self.turn(context, context.clock.now() + START_CHECK_INTERVAL)?;
            if let Some(start) = context.poll_start()? {
                return Ok(start);
            }
        }
    }

    /// Hands the message over as far as there is room.
    #[inline]
    fn send(&mut self) -> Result<bool, EndError> {
        let QuicConnection { event_loop, messages, .. } = self;
        let is_complete = messages.send(|command| event_loop.command(command));
        let is_complete = is_complete
            .map_err(|refusal| EndError::QuicEnded(self.peer, CloseReason::Failed(refusal.to_string())))?;
        self.is_blocked = !is_complete;
        Ok(is_complete)
    }

    /// Reads the messages that have arrived.
    fn receive(&mut self, mut on_event: impl FnMut(Received<'_>)) -> Result<(), EndError> {
        let QuicConnection { event_loop, messages, .. } = self;
        let mut result = Ok(());
        for stream in self.readable.drain(..) {
            result = result.and(messages.receive(
                stream,
                |command| event_loop.command(command),
                |event| match event {
                    DeframeEvent::Message { header, intact } => {
                        on_event(Received::Message(intact.then_some(header)))
                    }
                    DeframeEvent::Payload(bytes) => on_event(Received::Payload(bytes)),
                },
            ));
        }
        if std::mem::take(&mut self.has_datagrams) {
            let receive = |header| on_event(Received::Message(header));
            result = result.and(messages.receive_datagrams(|command| event_loop.command(command), receive));
        }
        match result {
            // The connection has ended, which is reported elsewhere.
            Ok(()) | Err(ReceiveError::Refused(_)) => Ok(()),
            Err(ReceiveError::Header(_)) => Err(EndError::LostSync(self.peer)),
        }
    }

    fn command(&mut self, command: Command<'_>) {
        // Refused only if the connection has ended.
        let _ = self.event_loop.command(command);
    }

    /// Ends the streams, waits until everything has arrived, and closes. Without consent nothing more is sent.
    fn finish(&mut self, context: &EndContext) -> Result<(), EndError> {
        self.command(Command::Finish);
        let mut stopped_at = None;
        while !self.is_delivered {
            if context.control.has_lost_consent() {
                return Ok(());
            }
            self.turn(context, Instant::MAX)?;
            self.check_open()?;
            // A stop drops no accepted message, but does not wait forever for a lost peer.
            let now = context.clock.now();
            if context.control.is_stopped() && now.since(*stopped_at.get_or_insert(now)) > CLOSE_TIMEOUT {
                break;
            }
        }
        self.command(Command::Close);
        self.turn(context, context.clock.now())
    }
}

/// What has arrived.
enum Received<'a> {
    /// A message, if it is intact.
    Message(Option<Header>),
    /// A part of a file.
    Payload(&'a [u8]),
}

fn random() -> Result<[u8; 32], EndError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| io_error("drawing random numbers")(std::io::Error::other(error.to_string())))?;
    Ok(bytes)
}

/// Returns the options of the socket. The buffers of the plan are those of the connection.
fn socket_options(context: &EndContext) -> Options {
    Options { dscp: context.spec.dscp, ..Options::default() }
}

/// Sends the messages of the pattern.
pub(crate) fn send(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
    path: Option<&Path>,
) -> Result<Report, EndFailure> {
    let mut source_file = path.map(SourceFile::open).transpose()?;
    let server = Fingerprint(context.spec.peer_key.ok_or(EndError::NoKey)?);
    let socket = socket::udp(SocketAddr::new(context.spec.address, 0), &socket_options(&context))?;
    let mut connection = QuicConnection::over(&context, socket, Role::Client { server })?;
    connection.peer = peer;
    connection.command(Command::Connect { peer: peer_of(peer) });
    if !connection.await_handshake(&context)? {
        return Err(match context.control.is_stopped() {
            true => EndError::Stopped,
            false => EndError::QuicEnded(peer, CloseReason::TimedOut),
        }
        .into());
    }
    context.report_ready(connection.address()?, None)?;
    let start = connection.await_start(&mut context)?;
    let timeout = quic::uses_datagrams(&context.spec.protocol).then_some(RESPONSE_TIMEOUT);
    let requester = context.requester(timeout);
    let mut sender = context.sender(start, limit, requester)?;
    let result = send_messages(&mut context, &mut connection, &mut sender, source_file.as_mut());
    let result = result.and_then(|()| connection.finish(&context));
    let mut report = context.sender_report(&sender);
    add_to(&mut report, &connection, sender.is_requester());
    if path.is_some() {
        add_file_bytes(&mut report);
    }
    EndFailure::after(result, report)
}

/// Adds counters and samples to the report of a sender.
fn add_to(report: &mut SenderReport, connection: &QuicConnection, is_requester: bool) {
    let statistics = connection.event_loop.endpoint.statistics().unwrap_or_default();
    report.counters.extend(quic::sender_counters(&statistics));
    report.counters.extend([buffer_counter(connection.event_loop.ports.socket(0), true)]);
    report.samples.extend_from_slice(connection.samples.points());
    if !is_requester {
        report.rtt = connection.rtt.counts();
    }
}

fn send_messages(
    context: &mut EndContext,
    connection: &mut QuicConnection,
    sender: &mut Sender,
    mut source_file: Option<&mut SourceFile>,
) -> Result<(), EndError> {
    let mut pacer = Pacer::new(context.clock);
    let mut written = 0;
    while !context.control.is_stopped() {
        let now = context.clock.now();
        if connection.samples.is_due(now)
            && let Some(statistics) = connection.event_loop.endpoint.statistics()
        {
            let metrics = quic::metrics(&statistics);
            connection.rtt.record(statistics.rtt);
            connection.samples.record(sender.meter().start(), now, metrics.clone());
            context.set_sample(now, metrics);
        }
        context.snapshot_sender(sender, now);
        connection.check_open()?;
        let is_complete = !connection.messages.is_sending() || !connection.is_blocked && connection.send()?;
        if !is_complete || written == MAX_MESSAGES {
            // Without room, wait for acknowledgements.
            connection.turn(context, if is_complete { now } else { Instant::MAX })?;
            receive_responses(context, connection, sender)?;
            written = 0;
            continue;
        }
        match sender.next(now) {
            SenderStep::Send(message) => {
                let header = sender.header(&message, now);
                let Some(size) = begin(context, connection, &mut source_file, header)? else { return Ok(()) };
                connection.send()?;
                sender.record_send(&Message { size, ..message }, now);
                written += 1;
            }
            SenderStep::Wait(until) => {
                written = 0;
                wait(context, connection, &mut pacer, until.unwrap_or(Instant::MAX))?;
                receive_responses(context, connection, sender)?;
            }
            SenderStep::Done => break,
        }
    }
    // The rest of a message.
    while connection.messages.is_sending() && !context.control.is_stopped() {
        if connection.is_blocked || !connection.send()? {
            connection.turn(context, Instant::MAX)?;
            connection.check_open()?;
        }
    }
    Ok(())
}

/// Begins a message; returns its size, or `None` at the end of the file.
fn begin(
    context: &EndContext,
    connection: &mut QuicConnection,
    source_file: &mut Option<&mut SourceFile>,
    header: Header,
) -> Result<Option<u32>, EndError> {
    let Some(source_file) = source_file else {
        connection.messages.begin(&header);
        return Ok(Some(header.length));
    };
    let mut buffer = Vec::new();
    let length = source_file.encode_message(context, header, &mut buffer)?;
    if length.is_some() {
        connection.messages.begin_encoded(buffer);
    }
    Ok(length)
}

/// Waits until `until` or the next packets, and sends and receives in the meantime.
fn wait(
    context: &EndContext,
    connection: &mut QuicConnection,
    pacer: &mut Pacer,
    until: Instant,
) -> Result<(), EndError> {
    let now = context.clock.now();
    if until > now + WAKEUP_TIME {
        return connection.turn(context, if until == Instant::MAX { until } else { until - WAKEUP_TIME });
    }
    // What was written last leaves first.
    connection.turn(context, now)?;
    pacer.wait(until, context.control.stop_flag());
    Ok(())
}

fn receive_responses(
    context: &EndContext,
    connection: &mut QuicConnection,
    sender: &mut Sender,
) -> Result<(), EndError> {
    connection.receive(|received| {
        if let Received::Message(Some(header)) = received {
            sender.record_response(&header, context.clock.now());
        }
    })
}

/// Receives messages and responds to requests.
pub(crate) fn receive(mut context: EndContext, path: Option<&Path>) -> Result<Report, EndFailure> {
    let identity = Identity::with_key(&random()?);
    let key = identity.fingerprint();
    let address = |port| SocketAddr::new(context.spec.address, port);
    let socket = context.open_at_port(|port| socket::udp(address(port), &socket_options(&context)))?;
    let mut connection = QuicConnection::over(&context, socket, Role::Server { identity })?;
    let address = connection.address()?;
    let mut sink = path.map(|path| Sink::create(path, context.spec.cut.bytes)).transpose()?;
    context.report_ready(address, Some(key.0))?;
    // The sender connects before the start.
    let start = connection.await_start(&mut context)?;
    if !connection.await_handshake(&context)? {
        return Err(match context.control.is_stopped() {
            true => EndError::Stopped,
            false => EndError::NoPeer(address),
        }
        .into());
    }
    if context.is_request_test() {
        context.await_consent()?;
    }
    let mut meter = context.receiver_meter(start);
    let result = receive_messages(&mut context, &mut connection, &mut meter, &mut sink);
    let mut report = context.receiver_report(&meter);
    let statistics = connection.event_loop.endpoint.statistics().unwrap_or_default();
    report.counters.extend(quic::receiver_counters(&statistics));
    report.counters.extend([buffer_counter(connection.event_loop.ports.socket(0), false)]);
    report.notes.extend([context.payload_note()]);
    EndFailure::after(result.and_then(|()| sink.map_or(Ok(()), Sink::finish)), report)
}

fn receive_messages(
    context: &mut EndContext,
    connection: &mut QuicConnection,
    meter: &mut ReceiverMeter,
    sink: &mut Option<Sink>,
) -> Result<(), EndError> {
    let is_datagrams = quic::uses_datagrams(&context.spec.protocol);
    let mut requests = Vec::new();
    while !context.control.is_stopped() {
        let now = context.clock.now();
        let mut sink_error = None;
        connection.receive(|received| match received {
            Received::Message(Some(header)) => {
                meter.record(&header, now);
                if header.response_length > 0 {
                    requests.push(header);
                }
            }
            Received::Message(None) => meter.record_corrupted(),
            // Stop at the first error: the file on disk is a prefix of the original.
            Received::Payload(bytes) if sink_error.is_none() => {
                sink_error = sink.as_mut().and_then(|sink| sink.append(bytes).err());
            }
            Received::Payload(_) => {}
        })?;
        if let Some(error) = sink_error {
            return Err(error);
        }
        for request in requests.drain(..).filter(|_| context.is_request_test()) {
            match respond(context, connection, &request) {
                Ok(true) => {}
                // The limits permit no more, or the requester has ended, as it may over TCP.
                Ok(false) | Err(EndError::ClosedEarly(_)) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        context.snapshot_receiver(meter, now);
        let has_received_all = connection.event_loop.endpoint.has_received_all();
        let is_done = match is_datagrams {
            // Datagrams may arrive after the end of the streams, until the sender closes.
            true => context.is_complete(meter, now) || has_received_all && connection.close_reason.is_some(),
            false => has_received_all,
        };
        if is_done {
            return await_close(context, connection);
        }
        connection.check_open()?;
        connection.turn(context, Instant::MAX)?;
    }
    Ok(())
}

/// Responds to a request; returns false if the limits permit no more.
fn respond(
    context: &EndContext,
    connection: &mut QuicConnection,
    request: &Header,
) -> Result<bool, EndError> {
    let response = request.response(context.clock.now(), 0);
    if response.length > context.max_response() {
        return Err(EndError::LongResponse(response.length));
    }
    if !context.begin_response(response.length) {
        return Ok(false);
    }
    // Datagrams are not divided.
    let piece = if connection.messages.is_datagrams() { usize::MAX } else { context.response_piece() };
    connection.messages.begin(&response);
    let mut permitted = 0;
    while connection.messages.is_sending() {
        while let Some(until) = context.response_delay().filter(|_| !context.control.is_stopped()) {
            wait(context, connection, &mut Pacer::new(context.clock), until)?;
            connection.check_open()?;
        }
        let length = piece.min(response.length as usize - permitted);
        if !context.record_response(length) {
            return Ok(false);
        }
        permitted += length;
        connection.messages.permit(permitted);
        while !connection.send()? {
            connection.turn(context, Instant::MAX)?;
            connection.check_open()?;
            if context.control.is_stopped() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Acknowledges what is repeated until the sender has closed.
fn await_close(context: &EndContext, connection: &mut QuicConnection) -> Result<(), EndError> {
    let deadline = context.clock.now() + CLOSE_TIMEOUT;
    while connection.close_reason.is_none() && context.clock.now() < deadline {
        connection.turn(context, deadline)?;
    }
    Ok(())
}

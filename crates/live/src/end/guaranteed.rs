//! Ends over the guaranteed transport: message boundaries are preserved and no message is lost.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use trunkline_arq::socket::{Connection, Error, Listener, Settings};
use trunkline_arq::{Buffer, CloseReason};
use trunkline_io::probe::Direction;
use trunkline_io::{Pacer, SocketError, socket};
use trunkline_run::guaranteed;
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::{Metrics, ReceiverReport};
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_traffic::source::{Limit, Message};
use trunkline_units::{Instant, Size, Span};

use super::request::encode_message;
use super::sink::{Sink, SourceFile, add_file_bytes};
use super::stage_timer::StageTimer;
use super::{EndContext, EndError, EndFailure, PEER_TIMEOUT, STOP_CHECK_INTERVAL, buffer_counter};
use crate::wire::Report;

/// All messages use this channel.
const CHANNEL: u16 = 0;
/// Default socket buffers: the traffic of one scheduler time slice.
const SOCKET_BUFFER: Size = Size::from_bytes(4 << 20);
/// Maximum datagram over Ethernet, used if the system does not report the path MTU.
const ETHERNET_DATAGRAM: usize = 1472;
/// Time before a deadline at which a paced sender stops acting on acknowledgements: a wakeup may take as long.
const WAKEUP_TIME: Span = Span::from_us(300);
/// Interval at which repetitions are counted in the rate limit.
const REPETITION_INTERVAL: Span = Span::from_ms(10);
/// How long an end waits for the peer to close as well.
const CLOSE_TIMEOUT: Span = Span::from_s(2);

/// A connection of the guaranteed transport and its measurements.
struct GuaranteedConnection {
    connection: Connection,
    stage_timer: StageTimer,
}

impl GuaranteedConnection {
    fn connect(context: &EndContext, peer: SocketAddr) -> Result<GuaranteedConnection, EndError> {
        let max_datagram = max_datagram(context.spec.address, peer).unwrap_or(ETHERNET_DATAGRAM);
        let options = options(context, max_datagram);
        let settings = settings(context, "sender");
        let connection = Connection::connect_timeout(peer, &options, &settings, PEER_TIMEOUT.into());
        let connection = connection.map_err(|error| match error {
            Error::TimedOut => EndError::ConnectionEnded(peer, CloseReason::HandshakeTimeout),
            error => connection_error(peer, error),
        })?;
        GuaranteedConnection::new(context, connection, Direction::Out)
    }

    /// Waits for the peer's connection.
    fn accept(
        context: &EndContext,
        listener: &Listener,
        address: SocketAddr,
    ) -> Result<GuaranteedConnection, EndError> {
        let deadline = context.clock.now() + PEER_TIMEOUT;
        loop {
            match listener.accept_timeout(STOP_CHECK_INTERVAL.into()) {
                Ok(connection) if !connection.peer().is_some_and(|peer| context.accepts(peer.ip())) => {
                    let _ = connection.reset();
                }
                Ok(connection) => return GuaranteedConnection::new(context, connection, Direction::In),
                Err(Error::TimedOut) if context.control.is_stopped() => return Err(EndError::Stopped),
                Err(Error::TimedOut) if context.clock.now() < deadline => {}
                Err(Error::TimedOut) => return Err(EndError::NoPeer(address)),
                Err(error) => return Err(connection_error(address, error)),
            }
        }
    }

    fn new(
        context: &EndContext,
        connection: Connection,
        direction: Direction,
    ) -> Result<GuaranteedConnection, EndError> {
        let stage_timer = StageTimer::new(context.clock, direction, &context.spec.pattern);
        let (meter, probe) = (Box::new(stage_timer.clone()), Box::new(stage_timer.clone()));
        // Fails only if the connection has ended already, which the next call reports.
        let _ = connection.measure(stage_timer.sampling_interval, meter, probe);
        let (waiting, control) = (connection.clone(), context.control.clone());
        context.control.on_stop(move || match control.has_lost_consent() {
            // Also what was accepted must not be sent any more.
            true => drop(waiting.reset()),
            false => waiting.interrupt(),
        });
        Ok(GuaranteedConnection { connection, stage_timer })
    }

    fn error(&self, error: Error) -> EndError {
        connection_error(self.peer(), error)
    }

    fn peer(&self) -> SocketAddr {
        self.connection.peer().unwrap_or_else(|| self.connection.address())
    }

    /// Sends a message; returns false if a stop was requested.
    #[inline]
    fn send(&self, context: &EndContext, bytes: &[u8]) -> Result<bool, EndError> {
        loop {
            match self.connection.send(CHANNEL, bytes) {
                Ok(()) => return Ok(true),
                Err(Error::Interrupted) if context.control.is_stopped() => return Ok(false),
                Err(Error::Interrupted) => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Waits for a message; returns false if a stop was requested or the peer has finished.
    #[inline]
    fn receive(&self, context: &EndContext, into: &mut Buffer) -> Result<bool, EndError> {
        loop {
            match self.connection.recv_into(CHANNEL, into) {
                Ok(()) => return Ok(true),
                Err(Error::Finished) => return Ok(false),
                Err(Error::Interrupted) if context.control.is_stopped() => return Ok(false),
                Err(Error::Interrupted) => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Waits until `until`, and acts on acknowledgements in the meantime. Returns early if a stop was requested.
    fn wait(&self, context: &EndContext, pacer: &mut Pacer, until: Instant) {
        let now = context.clock.now();
        if until > now + WAKEUP_TIME {
            // A failure is reported by the next call.
            let _ = self.connection.flush_timeout((until.since(now) - WAKEUP_TIME).into());
        }
        pacer.wait(until, context.control.stop_flag());
    }

    /// Closes the sending direction and waits until everything has arrived and the peer has closed as well.
    fn close(&self, context: &EndContext) -> Result<(), EndError> {
        let mut stopped_at = None;
        loop {
            match self.connection.close_timeout(STOP_CHECK_INTERVAL.into()) {
                Ok(()) => return Ok(()),
                Err(Error::TimedOut | Error::Interrupted) => {}
                Err(error) => return Err(self.error(error)),
            }
            // A stop drops no accepted message, but does not wait forever for a lost peer.
            let now = context.clock.now();
            if context.control.is_stopped() && now.since(*stopped_at.get_or_insert(now)) > CLOSE_TIMEOUT {
                return Ok(());
            }
        }
    }

    /// Returns the counters of the connection and its socket.
    fn counters(&self, context: &EndContext, is_sender: bool) -> Metrics {
        let side = if is_sender { "sender" } else { "receiver" };
        let (statistics, faults) = (self.connection.statistics(), self.connection.fault_counts());
        let mut counters = guaranteed::counters(&context.spec.protocol, statistics, faults, side);
        counters.extend([buffer_counter(&self.connection, is_sender)]);
        counters
    }

    /// Returns the metrics of the transport now, for a snapshot.
    fn sample(&self) -> Metrics {
        let resent = self.connection.statistics().map(|statistics| statistics.frames_resent as f64);
        let rtt_us = self.connection.round_trip().map(Span::as_us);
        let metrics = [("frames_resent", resent), ("rtt_us", rtt_us)];
        metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Returns the processor time of the calling thread and of the socket's helper thread since the start.
    fn cpu(&self, context: &EndContext) -> (Span, Span) {
        let ((user, system), helper) = (context.cpu(), self.connection.helper_cpu());
        (user + helper.user, system + helper.system)
    }
}

fn connection_error(peer: SocketAddr, error: Error) -> EndError {
    match error {
        Error::Closed(reason) => EndError::ConnectionEnded(peer, reason),
        Error::System(cause) => EndError::Io { doing: "running the socket", cause },
        Error::TooLong => EndError::LongMessage(peer),
        // The connection was finished or reset by this end.
        _ => EndError::ConnectionEnded(peer, CloseReason::LocalReset),
    }
}

fn options(context: &EndContext, path_mtu: usize) -> trunkline_arq::Options {
    let buffer = context.spec.buffer;
    guaranteed::options(&context.spec.protocol, buffer, buffer, path_mtu)
        .expect("the protocol is `guaranteed`")
}

/// Returns the settings of the socket of an end.
fn settings(context: &EndContext, role: &str) -> Settings {
    let spec = &context.spec;
    let faults = spec.seed.stream(&format!("{} / faults / {role}", spec.repetition_name));
    Settings {
        max_connections: 1,
        max_message: context.max_message() as usize,
        socket_buffer: spec.buffer.unwrap_or(SOCKET_BUFFER).as_bytes() as usize,
        dscp: spec.dscp,
        local: Some(SocketAddr::new(spec.address, 0)),
        clock: context.clock,
        faults: Some(guaranteed::faults(&spec.protocol, faults)),
        ..Settings::default()
    }
}

/// Returns the maximum datagram from `local` that reaches `peer` unfragmented, as far as the system knows.
fn max_datagram(local: IpAddr, peer: SocketAddr) -> Option<usize> {
    let probe = UdpSocket::bind(SocketAddr::new(local, 0)).ok()?;
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
    let mut source_file = path.map(SourceFile::open).transpose()?;
    let connection = GuaranteedConnection::connect(&context, peer)?;
    let start = context.ready(connection.connection.address())?;
    let requester = context.requester(None);
    let mut sender = context.sender(start, limit, requester)?;
    let result = send_messages(&mut context, &connection, &mut sender, source_file.as_mut());
    let result = result.and_then(|()| connection.close(&context));
    let mut report = context.sender_report(&sender);
    report.cpu = connection.cpu(&context);
    report.counters.extend(connection.counters(&context, true));
    (report.stages, report.frame_departures) = connection.stage_timer.report();
    report.notes.insert("stages".into(), connection.stage_timer.description());
    if path.is_some() {
        add_file_bytes(&mut report);
    }
    EndFailure::after(result, report)
}

fn send_messages(
    context: &mut EndContext,
    connection: &GuaranteedConnection,
    sender: &mut Sender,
    mut source_file: Option<&mut SourceFile>,
) -> Result<(), EndError> {
    let (mut buffer, mut response) = (Vec::new(), Buffer::new());
    let mut pacer = Pacer::new(context.clock);
    let mut repetitions = Repetitions::default();
    while !context.control.is_stopped() {
        let now = context.clock.now();
        repetitions.count(context, connection, now);
        let message = match sender.next(now) {
            SenderStep::Send(message) => message,
            SenderStep::Wait(until) => {
                connection.wait(context, &mut pacer, until.unwrap_or(now));
                continue;
            }
            SenderStep::Done => break,
        };
        let header = sender.header(&message, now);
        let length = match &mut source_file {
            Some(file) => file.encode_message(context, header, &mut buffer)?,
            None => {
                encode_message(context, &mut buffer, &header);
                Some(header.length)
            }
        };
        let Some(length) = length else { break };
        let message = Message { size: length, ..message };
        if !connection.send(context, &buffer)? {
            break;
        }
        sender.record_send(&message, now);
        if sender.is_pending() && !await_response(context, connection, &mut response, sender)? {
            break;
        }
        if context.is_snapshot_due(now) {
            context.set_sample(now, connection.sample());
        }
        context.snapshot_sender(sender, now);
    }
    Ok(())
}

/// Counts repeated frames in the rate limit of the host's owner.
#[derive(Default)]
struct Repetitions {
    counted: u64,
    next: Instant,
}

impl Repetitions {
    /// Counts those since the last call, with the mean length of a frame; seldom, because that locks the connection.
    #[inline]
    fn count(&mut self, context: &EndContext, connection: &GuaranteedConnection, now: Instant) {
        let Some(limit) = context.services.rate_limit.as_ref().filter(|_| now >= self.next) else { return };
        self.next = now + REPETITION_INTERVAL;
        let Some(statistics) = connection.connection.statistics() else { return };
        let new = statistics.frames_resent - self.counted;
        self.counted = statistics.frames_resent;
        if new > 0 {
            limit.record(statistics.bytes_sent / statistics.frames_sent.max(1) * new, now);
        }
    }
}

/// Waits for the response to the pending request; returns false if a stop was requested or the peer has finished.
fn await_response(
    context: &EndContext,
    connection: &GuaranteedConnection,
    response: &mut Buffer,
    sender: &mut Sender,
) -> Result<bool, EndError> {
    while connection.receive(context, response)? {
        if let Ok(header) = Header::decode(context.spec.token, response)
            && sender.record_response(&header, context.clock.now())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Receives messages and responds to requests.
pub(crate) fn receive(mut context: EndContext, path: Option<&Path>) -> Result<Report, EndFailure> {
    let (options, settings) = (options(&context, usize::MAX), settings(&context, "receiver"));
    let listener = context.open_at_port(|port| {
        let address = SocketAddr::new(context.spec.address, port);
        Listener::bind_with(address, &options, &settings).map_err(|error| listen_error(address, error))
    })?;
    let address = listener.address();
    let mut sink = path.map(|path| Sink::create(path, context.spec.cut.bytes)).transpose()?;
    let start = context.ready(address)?;
    let connection = GuaranteedConnection::accept(&context, &listener, address)?;
    if context.is_request_test() {
        context.await_consent()?;
    }
    let mut meter = context.receiver_meter(start);
    let result = receive_messages(&mut context, &connection, &mut meter, &mut sink);
    let mut report = ReceiverReport::complete(&meter);
    report.cpu = connection.cpu(&context);
    report.counters.extend(connection.counters(&context, false));
    (report.stages, report.frame_arrivals) = connection.stage_timer.report();
    report.notes.extend([context.payload_note()]);
    EndFailure::after(result.and_then(|()| sink.map_or(Ok(()), Sink::finish)), report)
}

fn receive_messages(
    context: &mut EndContext,
    connection: &GuaranteedConnection,
    meter: &mut ReceiverMeter,
    sink: &mut Option<Sink>,
) -> Result<(), EndError> {
    let (mut message, mut response) = (Buffer::new(), Vec::new());
    let interval = context.payload_interval();
    while !context.control.is_stopped() && connection.receive(context, &mut message)? {
        let now = context.clock.now();
        let header = Header::decode(context.spec.token, &message);
        let is_intact = |h: &Header| match message.split_first_chunk::<HEADER>() {
            Some((header_bytes, body)) if h.length as usize == message.len() => match h.kind {
                MessageKind::Checked => Header::is_checksum_valid(header_bytes, body),
                _ => !h.sequence.is_multiple_of(interval) || context.payload.matches(0, body),
            },
            _ => false,
        };
        match header {
            Ok(header) if is_intact(&header) => {
                meter.record(&header, now);
                if let Some(sink) = sink {
                    sink.append(&message[HEADER..])?;
                }
                if header.response_length > 0 && context.is_request_test() {
                    let answer = header.response(now, 0);
                    if answer.length > context.max_response() {
                        return Err(EndError::LongResponse(answer.length));
                    }
                    if !context.begin_response(answer.length)
                        || !context.limit_response(answer.length as usize)
                    {
                        break;
                    }
                    encode_message(context, &mut response, &answer);
                    connection.send(context, &response)?;
                }
            }
            _ => meter.record_corrupted(),
        }
        context.snapshot_receiver(meter, now);
    }
    connection.close(context)
}

/// Names the address of a listener that cannot be opened.
fn listen_error(address: SocketAddr, error: Error) -> SocketError {
    let cause = match error {
        Error::System(cause) => cause,
        error => std::io::Error::other(error),
    };
    SocketError { step: socket::Step::Bind, address, cause }
}

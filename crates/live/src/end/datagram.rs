//! Ends over UDP and multicast: one message a datagram.
//!
//! At full speed, equal messages are sent in batches by segmentation offload, and the receiver reports its progress
//! to the sender ([`MessageKind::Progress`]), so that a full socket buffer slows the sender down instead of losing
//! messages. Paced messages are sent one by one, because offload would distort their gaps.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use trunkline_experiment::plan::Protocol;
use trunkline_io::batch::{BatchReceiver, BatchSender};
use trunkline_io::{Pacer, SocketError, socket};
use trunkline_run::message::{HEADER, Header, HeaderError, MessageKind};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_traffic::source::Limit;
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Instant, Size, Span};

use super::credit::{PACKET_COST, ReceiverCredits, SenderCredits, read_progress, receive_buffer};
use super::sink::Sink;
use super::{EndContext, EndError, EndFailure, STOP_CHECK_INTERVAL, buffer_counter, io_error, local_address};
use crate::wire::Report;

/// Buffer size for any datagram.
const MAX_DATAGRAM_BUFFER: usize = 1 << 16;
/// Default socket buffers at full speed: the default that an unprivileged process is granted is smaller than the
/// traffic of one scheduler time slice.
const FULL_SPEED_BUFFER: Size = Size::from_bytes(4 << 20);
/// Initial window in bytes, before the first progress report.
const FIRST_WINDOW: u64 = 128 << 10;
/// After this long without a progress report, data in flight counts as lost.
const REPORT_TIMEOUT: Span = Span::from_ms(20);

/// Opens the sending socket, bound to the interface of its group if there is one, and connects it to `peer`, unless responses
/// come from the members of a group; returns it with its address.
pub(crate) fn open_sender(
    context: &EndContext,
    peer: SocketAddr,
    is_full_speed: bool,
) -> Result<(UdpSocket, SocketAddr), EndError> {
    let mut options = context.options();
    if is_full_speed {
        options.send_buffer.get_or_insert(FULL_SPEED_BUFFER);
    }
    let socket = match context.spec.protocol {
        Protocol::Multicast { ttl, .. } => socket::multicast_sender(context.spec.address, ttl, &options)?,
        _ => socket::udp(SocketAddr::new(context.spec.address, 0), &options)?,
    };
    if !(context.is_multicast() && context.is_request_test()) {
        let connect_error = |cause| SocketError { step: socket::Step::Connect, address: peer, cause };
        socket.connect(peer).map_err(connect_error)?;
    }
    socket::limit_blocking(&socket, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    let address = local_address(socket.local_addr())?;
    Ok((socket, address))
}

/// Opens the receiving socket; returns it with its address.
pub(crate) fn open_receiver(
    context: &EndContext,
    is_full_speed: bool,
) -> Result<(UdpSocket, SocketAddr), EndError> {
    let mut options = context.options();
    if let Some(buffer) = receive_buffer(context) {
        options.receive_buffer.get_or_insert(buffer);
    } else if is_full_speed {
        options.receive_buffer.get_or_insert(FULL_SPEED_BUFFER);
    }
    let socket = context.open_at_port(|port| match context.spec.protocol {
        Protocol::Multicast { group, .. } => {
            socket::multicast_receiver(SocketAddr::new(group, port), context.spec.address, &options)
        }
        _ => socket::udp(SocketAddr::new(context.spec.address, port), &options),
    })?;
    socket::limit_blocking(&socket, STOP_CHECK_INTERVAL).map_err(io_error("setting a time limit"))?;
    let address = local_address(socket.local_addr())?;
    Ok((socket, address))
}

/// Returns a datagram of this length with its payload, and without its header.
fn payload_datagram(context: &EndContext, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    buffer[HEADER..].copy_from_slice(context.payload.piece(0, length - HEADER));
    buffer
}

/// Sends a datagram and retries transient errors until a stop is requested. Returns whether it was sent.
pub(crate) fn send_with_retry(
    context: &EndContext,
    send_stats: &mut SendStats,
    mut send: impl FnMut() -> io::Result<usize>,
) -> Result<bool, EndError> {
    loop {
        send_stats.calls += 1;
        match send() {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                // ICMP error of an earlier message: no socket is open there yet. This message was not sent; retry.
                send_stats.refused += 1;
            }
            Err(e) if socket::is_timeout(&e) || e.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                send_stats.buffer_full += 1
            }
            Err(e) => return Err(io_error("sending")(e)),
        }
        if context.control.is_stopped() {
            return Ok(false);
        }
    }
}

/// Counters of send calls.
#[derive(Debug, Default)]
pub(crate) struct SendStats {
    pub calls: u64,
    pub refused: u64,
    pub buffer_full: u64,
}

impl SendStats {
    /// Adds the counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        let counts = [
            ("sender_system_calls", self.calls),
            ("sender_refused", self.refused),
            ("sender_buffer_full", self.buffer_full),
        ];
        report.counters.extend(counts.map(|(name, count)| (name.to_string(), count as f64)));
    }
}

/// Sends paced messages, one by one.
pub(crate) fn send_paced(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
) -> Result<Report, EndFailure> {
    let (socket, address) = open_sender(&context, peer, false)?;
    let start = context.ready(address)?;
    let (mut sender, mut send_stats) = (context.sender(start, limit, None)?, SendStats::default());
    let credits = RefCell::new(SenderCredits::new(&context, start, limit));
    let mut credit_calls = 0;
    let await_credit = |context: &EndContext| match &mut *credits.borrow_mut() {
        Some(credits) => credits.wait(context, &socket, &mut credit_calls).map(drop),
        None => Ok(()),
    };
    let send = |context: &EndContext, datagram: &[u8]| {
        let is_sent = send_with_retry(context, &mut send_stats, || socket.send(datagram))?;
        if let Some(credits) = &mut *credits.borrow_mut() {
            credits.record_sent(context.clock.now(), 1);
        }
        Ok(is_sent)
    };
    let result = pace_with_credit(&mut context, &mut sender, &[], await_credit, send);
    send_stats.calls += credit_calls;
    let mut report = context.sender_report(&sender);
    report.counters.extend([buffer_counter(&socket, true)]);
    report.notes.insert("pacing".into(), "sleep, then spin; one message a system call, no offload".into());
    if result.is_ok() {
        send_stats.add_to(&mut report);
    }
    credits.into_inner().iter().for_each(|credits| credits.add_to(&mut report));
    EndFailure::after(result, report)
}

/// Sends all messages, each when it is due and after `prefix`, until there are no more, a stop is requested, or
/// `send` returns false.
pub(crate) fn pace(
    context: &mut EndContext,
    sender: &mut Sender,
    prefix: &[u8],
    send: impl FnMut(&EndContext, &[u8]) -> Result<bool, EndError>,
) -> Result<(), EndError> {
    pace_with_credit(context, sender, prefix, |_| Ok(()), send)
}

/// The same, with a wait before each message until it has credit, the source has ended, or a stop is requested.
fn pace_with_credit(
    context: &mut EndContext,
    sender: &mut Sender,
    prefix: &[u8],
    mut await_credit: impl FnMut(&EndContext) -> Result<(), EndError>,
    mut send: impl FnMut(&EndContext, &[u8]) -> Result<bool, EndError>,
) -> Result<(), EndError> {
    let mut buffer = [prefix, &payload_datagram(context, context.max_message() as usize)].concat();
    let mut pacer = Pacer::new(context.clock);
    let control = context.control.clone();
    let mut now = context.clock.now();
    loop {
        match sender.next(now) {
            SenderStep::Wait(until) => {
                let until = until.unwrap_or(now);
                // A snapshot takes about 50 µs: take it in a long wait, but at least once a second.
                if until.since(now) > Span::from_us(500) || context.is_overdue(now) {
                    context.snapshot_sender(sender, now);
                }
                now = pacer.wait(until, control.stop_flag());
            }
            SenderStep::Send(message) => {
                now = context.clock.now();
                let header = sender.header(&message, now);
                let (_, message_bytes) = buffer.split_at_mut(prefix.len());
                let header_bytes = message_bytes.first_chunk_mut().expect("space for a header");
                header.encode(context.spec.token, header_bytes);
                if !send(context, &buffer[..prefix.len() + message.size as usize])? {
                    return Ok(());
                }
                sender.record_send(&message, now);
            }
            SenderStep::Done => return Ok(()),
        }
        await_credit(context)?;
        now = now.max(context.clock.now());
        if control.is_stopped() {
            return Ok(());
        }
    }
}

/// Flow control between a sender at full speed and its receiver.
pub(crate) struct FlowControl {
    is_enabled: bool,
    /// Bytes that a message costs in the receiver's buffer.
    message_cost: u64,
    /// Messages sent, and those that the receiver has reported.
    sent: u64,
    acknowledged: u64,
    /// Window in bytes.
    window: u64,
    last_report: Instant,
}

impl FlowControl {
    pub fn new(context: &EndContext) -> Self {
        FlowControl {
            is_enabled: has_progress_reports(context),
            message_cost: 1,
            sent: 0,
            acknowledged: 0,
            window: FIRST_WINDOW,
            last_report: context.clock.now(),
        }
    }

    /// Records that `count` messages were sent, each of which costs the receiver's buffer at most `cost` bytes.
    pub fn record_sent(&mut self, count: u64, cost: u64) {
        self.message_cost = self.message_cost.max(cost);
        self.sent += count;
    }

    /// Returns whether the window is open. If it is not, waits up to 5 ms for a progress report.
    pub fn can_send(
        &mut self,
        context: &EndContext,
        socket: &UdpSocket,
        calls: &mut u64,
    ) -> Result<bool, EndError> {
        let now = context.clock.now();
        if !self.is_half_full() {
            if self.sent == self.acknowledged {
                self.last_report = now;
            }
            return Ok(true);
        }
        self.read_progress(socket, context.spec.token, now, calls);
        if !self.is_full() {
            return Ok(true);
        }
        if now.since(self.last_report) > REPORT_TIMEOUT {
            self.acknowledged = self.sent;
            self.last_report = now;
            return Ok(true);
        }
        *calls += 1;
        socket::readable(socket, Span::from_ms(5)).map_err(io_error("waiting for the receiver"))?;
        Ok(false)
    }

    fn is_full(&self) -> bool {
        self.is_enabled && (self.sent - self.acknowledged) * self.message_cost >= self.window
    }

    fn is_half_full(&self) -> bool {
        self.is_enabled && (self.sent - self.acknowledged) * self.message_cost * 2 >= self.window
    }

    /// Reads the progress reports that have arrived.
    fn read_progress(&mut self, socket: &UdpSocket, token: u32, now: Instant, calls: &mut u64) {
        read_progress(socket, token, calls, |h| {
            if h.sequence <= self.sent {
                self.acknowledged = self.acknowledged.max(h.sequence);
                self.window = u64::from(h.response_length).max(FIRST_WINDOW);
                self.last_report = now;
            }
        });
    }
}

/// Sends at full speed.
pub(crate) fn send_full(
    mut context: EndContext,
    peer: SocketAddr,
    limit: Limit,
) -> Result<Report, EndFailure> {
    let (socket, address) = open_sender(&context, peer, true)?;
    let start = context.ready(address)?;
    let mut sender = context.sender(start, limit, None)?;
    let granted = buffer_counter(&socket, true);
    let batch_sender = BatchSender::new(socket, peer).map_err(io_error("enabling segmentation offload"))?;
    let mut pacer = Pacer::new(context.clock);
    pacer.wait(start, context.control.clone().stop_flag());
    let mut credits = SenderCredits::new(&context, start, limit);
    let result = send_batches(&mut context, &batch_sender, &mut sender, &mut credits);
    let mut report = context.sender_report(&sender);
    report.counters.extend([granted]);
    credits.iter().for_each(|credits| credits.add_to(&mut report));
    let result = result.map(|(send_stats, max_count)| {
        send_stats.add_to(&mut report);
        let offload = match max_count {
            0 | 1 => "none: one message a system call".into(),
            n => format!("segmentation: up to {n} messages a system call"),
        };
        report.notes.insert("sender_offload".into(), offload);
    });
    EndFailure::after(result, report)
}

/// Sends all messages; returns the counters and the size of the largest batch.
fn send_batches(
    context: &mut EndContext,
    batch_sender: &BatchSender,
    sender: &mut Sender,
    credits: &mut Option<SenderCredits>,
) -> Result<(SendStats, u64), EndError> {
    let control = context.control.clone();
    let token = context.spec.token;
    let (mut send_stats, mut max_count) = (SendStats::default(), 0);
    let mut batch = vec![0; 0];
    let mut single = payload_datagram(context, context.max_message() as usize);
    let mut flow_control = FlowControl::new(context);
    let mut pacer = Pacer::new(context.clock);
    while !control.is_stopped() {
        if !flow_control.can_send(context, batch_sender.socket(), &mut send_stats.calls)? {
            continue;
        }
        let available = match credits {
            Some(credits) => credits.wait(context, batch_sender.socket(), &mut send_stats.calls)?,
            None => u64::MAX,
        };
        if available == 0 {
            break;
        }
        let now = context.clock.now();
        // As many messages as fit into one call and have credit, or the one that `next` returns.
        let (size, count) = match sender.batch(now, max_count.max(1).min(available)) {
            Some((size, count)) if max_count > 0 => (size, count),
            Some((size, _)) => {
                // The first message determines the size, and so the number of messages in further batches.
                max_count = batch_sender.capacity(size as usize) as u64;
                batch = payload_datagram(context, size as usize).repeat(max_count as usize);
                (size, 1)
            }
            None => match sender.next(now) {
                SenderStep::Send(m) => (m.size, 1),
                SenderStep::Wait(until) => {
                    pacer.wait(until.unwrap_or(now), control.stop_flag());
                    continue;
                }
                SenderStep::Done => break,
            },
        };
        let length = size as usize;
        let datagrams =
            if batch.len() >= length * count as usize && count > 1 { &mut batch } else { &mut single };
        let datagrams = &mut datagrams[..length * count as usize];
        for (i, datagram) in datagrams.chunks_exact_mut(length).enumerate() {
            let sequence = flow_control.sent + i as u64;
            let header = Header::pattern(sequence, now, size);
            header.encode(token, datagram.first_chunk_mut().expect("a message has a header"));
        }
        if max_count > 1 && batch_sender.capacity(length) == 1 {
            max_count = 1; // the system no longer supports segmentation offload
        }
        if !send_with_retry(context, &mut send_stats, || batch_sender.send(datagrams, length).map(|()| 0))? {
            break;
        }
        if let Some(credits) = credits {
            credits.record_sent(now, count);
        }
        flow_control.record_sent(count, u64::from(size) + PACKET_COST / max_count.max(1));
        sender.record_batch(size, count, now);
        context.snapshot_sender(sender, now);
    }
    Ok((send_stats, max_count))
}

/// Checks one datagram and records it in the meter.
#[inline]
fn receive_datagram(
    context: &EndContext,
    meter: &mut ReceiverMeter,
    datagram: &[u8],
    now: Instant,
    sink: &mut Option<Sink>,
    credits: &mut ReceiverCredits,
) -> Result<(), EndError> {
    match Header::decode(context.spec.token, datagram) {
        Ok(header) if credits.receive(&header) => {}
        Ok(header) if header.length as usize == datagram.len() => {
            let body = &datagram[HEADER..];
            let is_intact = match header.kind {
                MessageKind::Pattern => context.payload.matches(0, body),
                MessageKind::Checked => {
                    Header::is_checksum_valid(datagram.first_chunk().expect("a header was decoded"), body)
                }
                MessageKind::Response | MessageKind::Progress => false,
            };
            if !is_intact {
                meter.record_corrupted();
                return Ok(());
            }
            if let Some(sink) = sink {
                sink.write_at(header.sequence.saturating_mul(context.file_payload_size()), body)?;
            }
            meter.record(&header, now);
        }
        Err(HeaderError::UnknownToken | HeaderError::TooShort) => meter.record_unknown_peer(),
        // Truncated, or its header is corrupt.
        Ok(_) | Err(HeaderError::Corrupt) => meter.record_corrupted(),
    }
    Ok(())
}

/// Receives message by message.
pub(crate) fn receive(mut context: EndContext, file: Option<&Path>) -> Result<Report, EndFailure> {
    let (socket, address) = open_receiver(&context, file.is_some())?;
    let mut sink = file.map(|path| Sink::create(path, context.spec.cut.bytes)).transpose()?;
    let start = context.ready(address)?;
    let mut meter = context.receiver_meter(start);
    let mut calls = 0u64;
    let mut buffer = vec![0; MAX_DATAGRAM_BUFFER];
    let mut error = None;
    let mut reporter = ProgressReporter::new(&context, &socket, file.is_some());
    let mut credits = ReceiverCredits::new(&context);
    let mut sender = None;
    while error.is_none() && !context.control.is_stopped() {
        calls += 1;
        let received = socket.recv_from(&mut buffer);
        let is_unknown_peer = received.as_ref().is_ok_and(|(_, peer)| !context.accepts(peer.ip()));
        let received = received.map(|(length, peer)| {
            if !is_unknown_peer {
                sender = Some(peer);
            }
            length
        });
        let now = context.clock.now();
        reporter.report_progress(&context, &socket, sender, &meter, received.is_err(), &mut calls);
        error = match received {
            Ok(_) if is_unknown_peer => {
                meter.record_unknown_peer();
                None
            }
            Ok(length) => {
                receive_datagram(&context, &mut meter, &buffer[..length], now, &mut sink, &mut credits).err()
            }
            Err(e) if socket::is_timeout(&e) => None,
            Err(e) => Some(io_error("receiving")(e)),
        };
        credits.report(&context, &socket, sender, &mut calls);
        context.snapshot_receiver(&meter, now);
        if context.is_complete(&meter, now) {
            break;
        }
    }
    let mut report =
        receiver_report(&context, &meter, calls, &socket, "none: one message a system call".into());
    credits.add_to(&mut report.counters);
    if error.is_none()
        && let Some(sink) = sink
    {
        error = sink.finish().err();
        context.control.expected().into_iter().for_each(|sent| report.check_file(sent));
    }
    EndFailure::after(error.map_or(Ok(()), Err), report)
}

fn receiver_report(
    context: &EndContext,
    meter: &ReceiverMeter,
    calls: u64,
    socket: &UdpSocket,
    offload: String,
) -> ReceiverReport {
    let mut report = context.receiver_report(meter);
    if let Some(dropped) = socket::dropped(socket) {
        report.counters.insert("receiver_socket_drops".into(), dropped as f64);
    }
    report.counters.insert("receiver_system_calls".into(), calls as f64);
    report.counters.extend([buffer_counter(socket, false)]);
    report.notes.insert("receiver_offload".into(), offload);
    report
}

/// Receives at full speed and reports progress to the sender.
pub(crate) fn receive_full(mut context: EndContext) -> Result<Report, EndFailure> {
    let (socket, address) = open_receiver(&context, true)?;
    let start = context.ready(address)?;
    trunkline_io::pace::minimize_timer_slack();
    let mut reporter = ProgressReporter::new(&context, &socket, true);
    let mut credits = ReceiverCredits::new(&context);
    let mut receiver = BatchReceiver::new(socket).map_err(io_error("enabling receive coalescing"))?;
    let mut meter = context.receiver_meter(start);
    let (mut calls, mut error) = (0u64, None);
    let mut sender = None;
    while error.is_none() && !context.control.is_stopped() {
        calls += 1;
        let mut sink_error = None;
        let received = receiver.receive(STOP_CHECK_INTERVAL, |batch| {
            let now = context.clock.now();
            if !context.accepts(batch.peer.ip()) {
                meter.record_unknown_peer();
                return;
            }
            sender = Some(batch.peer);
            for datagram in batch.datagrams() {
                if let Err(e) = receive_datagram(&context, &mut meter, datagram, now, &mut None, &mut credits)
                {
                    sink_error = Some(e);
                }
            }
        });
        let now = context.clock.now();
        error =
            sink_error.or(received.as_ref().err().map(|e| io_error("receiving")(io::Error::from(e.kind()))));
        reporter.report_progress(
            &context,
            receiver.socket(),
            sender,
            &meter,
            received.is_ok_and(|n| n == 0),
            &mut calls,
        );
        credits.report(&context, receiver.socket(), sender, &mut calls);
        context.snapshot_receiver(&meter, now);
        if context.is_complete(&meter, now) {
            break;
        }
    }
    let offload = if receiver.coalesces() { "coalescing: many messages a system call" } else { "none" };
    let mut report = receiver_report(&context, &meter, calls, receiver.socket(), offload.into());
    credits.add_to(&mut report.counters);
    EndFailure::after(error.map_or(Ok(()), Err), report)
}

/// Reports progress to the sender. Best effort: each report repeats the previous ones.
struct ProgressReporter {
    is_enabled: bool,
    /// The window granted to the sender, in bytes.
    window: u32,
    reported_bytes: u64,
}

impl ProgressReporter {
    fn new(context: &EndContext, socket: &UdpSocket, is_enabled: bool) -> Self {
        let is_enabled = is_enabled && has_progress_reports(context);
        // Half of the buffer is for the kernel's own overhead.
        let window = (buffer_counter(socket, false).1 as u64 / 2).min(u64::from(u32::MAX)) as u32;
        ProgressReporter { is_enabled, window, reported_bytes: 0 }
    }

    /// Reports at once if the socket's queue is empty, since the sender may be waiting; otherwise four times a window.
    #[inline]
    fn report_progress(
        &mut self,
        context: &EndContext,
        socket: &UdpSocket,
        sender: Option<SocketAddr>,
        meter: &ReceiverMeter,
        is_queue_empty: bool,
        calls: &mut u64,
    ) {
        let unreported_bytes = meter.arrivals().bytes - self.reported_bytes;
        let Some(sender) = sender.filter(|_| self.is_enabled && unreported_bytes > 0) else { return };
        if !is_queue_empty && unreported_bytes <= u64::from(self.window) / 4 {
            return;
        }
        self.reported_bytes += unreported_bytes;
        *calls += 1;
        let mut message = [0; HEADER];
        let header = Header {
            sequence: meter.arrivals().next_sequence,
            sent_at: context.clock.now(),
            length: HEADER as u32,
            response_length: self.window,
            kind: MessageKind::Progress,
        };
        header.encode(context.spec.token, &mut message);
        let _ = socket.send_to(&message, sender);
    }
}

/// Whether the receiver reports its progress at full speed.
fn has_progress_reports(context: &EndContext) -> bool {
    matches!(context.spec.protocol, Protocol::Udp { flow_control: true, credit_window: None })
}

impl EndContext {
    /// Whether messages go to a group.
    pub(super) fn is_multicast(&self) -> bool {
        matches!(self.spec.protocol, Protocol::Multicast { .. })
    }

    /// Returns the payload bytes of every message of a file except the last: over datagrams they have one size.
    fn file_payload_size(&self) -> u64 {
        match &self.spec.pattern {
            Pattern::File { size_bytes: Variable::Constant(size), .. } => {
                (*size as u64).saturating_sub(HEADER as u64)
            }
            _ => 0,
        }
    }
}

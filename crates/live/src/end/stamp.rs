//! Ends over STAMP (RFC 8762): test packets whose sizes and times are those of the pattern's messages, and a stateful
//! reflector.
//!
//! The reflector's end is the receiver of the messages: it measures their delay by the timestamps of the sender. Timestamps
//! count from the controller's wall clock at the start of the run, by the clock of the run, so they agree although the wall
//! clocks of two machines do not. Both ends use the arrival times of the kernel, where the system has them.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use trunkline_io::timestamped::Received;
use trunkline_io::{Pacer, SocketError, TimestampedSocket, socket};
use trunkline_record::Histogram;
use trunkline_run::message::Header;
use trunkline_run::reports::SenderReport;
use trunkline_run::timeouts::LINGER;
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_stamp::losses::extend;
use trunkline_stamp::packet::SenderPacket;
use trunkline_stamp::sender::MAX_SIZE;
use trunkline_stamp::{
    ClockReading, Format, Network, Reception, Reflector, ReflectorOptions, Request, SenderOptions,
};
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Span};

use super::datagram::{SendStats, send_with_retry};
use super::{EndContext, EndError, EndFailure, STOP_CHECK_INTERVAL, buffer_counter, io_error, local_address};
use crate::wire::Report;

/// The session of a connection and repetition: never 0, which means none.
fn session_id(context: &EndContext) -> u16 {
    (context.spec.token as u16).max(1)
}

/// Returns the reading of the clocks at this time of the run. No error relative to UTC is claimed: that of the controller's
/// clock is not known.
fn reading(context: &EndContext, at: Instant) -> ClockReading {
    let unix = context.spec.unix_epoch.saturating_add(Duration::from_nanos(at.as_ns()));
    ClockReading { at, unix, utc_error: None }
}

fn read_clocks(context: &EndContext) -> ClockReading {
    reading(context, context.clock.now())
}

/// Reads the clocks as of the arrival of a datagram.
fn read_arrival(context: &EndContext, received: &Received) -> ClockReading {
    let at = received.unix.map_or_else(|| context.clock.now(), |unix| context.clock.instant_of_unix(unix));
    reading(context, at)
}

fn note_arrival_times(notes: &mut trunkline_run::reports::Notes, end: &str, socket: &TimestampedSocket) {
    let source = if socket.has_kernel_timestamps() { "kernel" } else { "user space" };
    notes.insert(format!("{end}_arrival_times"), source.into());
}

/// The STAMP sender of a connection with its socket.
struct Session {
    socket: TimestampedSocket,
    sender: trunkline_stamp::Sender,
    round_trip: Histogram,
    buffer: Vec<u8>,
    stats: SendStats,
}

impl Session {
    fn open(context: &EndContext, peer: SocketAddr) -> Result<Session, EndError> {
        let local = SocketAddr::new(context.spec.address, 0);
        let open = || TimestampedSocket::open(local, &context.options());
        let mut socket = open()?;
        // The reflector answers no source port with its own number, as that could be another reflector's.
        if local_address(socket.socket().local_addr())?.port() == peer.port() {
            socket = open()?;
        }
        let connect_error = |cause| SocketError { step: socket::Step::Connect, address: peer, cause };
        socket.socket().connect(peer).map_err(connect_error)?;
        let options =
            SenderOptions { ssid: session_id(context), is_stateful: true, ..SenderOptions::default() };
        Ok(Session {
            socket,
            sender: trunkline_stamp::Sender::new(options),
            round_trip: Histogram::default(),
            buffer: vec![0; MAX_SIZE],
            stats: SendStats::default(),
        })
    }

    /// Sends a packet of `size` octets. Returns whether it was sent.
    fn send(&mut self, context: &EndContext, size: u32) -> Result<bool, EndError> {
        self.sender.set_size(size as usize);
        let packet = self.sender.send(read_clocks(context));
        let socket: &UdpSocket = self.socket.socket();
        send_with_retry(context, &mut self.stats, || socket.send(packet))
    }

    /// Takes all answers that have arrived.
    fn receive(&mut self, context: &EndContext) -> Result<(), EndError> {
        while let Some(received) = self.socket.receive(&mut self.buffer).map_err(io_error("receiving"))? {
            let now = read_arrival(context, &received);
            if let Ok(Reception::Answer(sample)) = self.sender.receive(now, &self.buffer[..received.length])
                && let Some(round_trip) = sample.round_trip
            {
                self.round_trip.record(round_trip);
            }
        }
        Ok(())
    }

    /// Waits for the last answers.
    fn await_answers(&mut self, context: &EndContext) -> Result<(), EndError> {
        let end = context.clock.now() + LINGER;
        while !context.control.is_stopped() && self.sender.counts().answered < self.sender.counts().sent {
            let left = end.since(context.clock.now());
            if left.is_zero() {
                break;
            }
            socket::readable(self.socket.socket(), left.min(STOP_CHECK_INTERVAL))
                .map_err(io_error("waiting for answers"))?;
            self.receive(context)?;
        }
        Ok(())
    }

    fn add_to(&self, report: &mut SenderReport) {
        self.stats.add_to(report);
        let counts = self.sender.counts();
        let losses = self.sender.losses().unwrap_or_default();
        let counters = [
            ("answers", counts.answered),
            ("answers_duplicated", counts.duplicates),
            ("answers_reordered", counts.reordered),
            ("lost_forward", losses.forward),
            ("lost_backward", losses.backward),
            ("lost_unknown", losses.unknown),
        ];
        report.counters.extend(counters.map(|(name, count)| (name.to_owned(), count as f64)));
        report.counters.extend([buffer_counter(self.socket.socket(), true)]);
        report.rtt = self.round_trip.counts();
        note_arrival_times(&mut report.notes, "sender", &self.socket);
    }
}

/// Sends test packets when messages are due, and measures their round trips.
pub(crate) fn send(mut context: EndContext, peer: SocketAddr, limit: Limit) -> Result<Report, EndFailure> {
    let mut session = Session::open(&context, peer)?;
    let start = context.ready(local_address(session.socket.socket().local_addr())?)?;
    let mut sender = context.sender(start, limit, None)?;
    let result = pace(&mut context, &mut sender, &mut session).and_then(|()| session.await_answers(&context));
    let mut report = context.sender_report(&sender);
    session.add_to(&mut report);
    EndFailure::after(result, report)
}

fn pace(context: &mut EndContext, sender: &mut Sender, session: &mut Session) -> Result<(), EndError> {
    let mut pacer = Pacer::new(context.clock);
    let control = context.control.clone();
    let mut now = context.clock.now();
    while !control.is_stopped() {
        match sender.next(now) {
            SenderStep::Wait(until) => {
                session.receive(context)?;
                context.snapshot_sender(sender, now);
                now = pacer.wait(until.unwrap_or(now), control.stop_flag());
            }
            SenderStep::Send(message) => {
                now = context.clock.now();
                if !session.send(context, message.size)? {
                    break;
                }
                sender.record_send(&message, now);
                session.receive(context)?;
            }
            SenderStep::Done => break,
        }
    }
    Ok(())
}

/// Reflects test packets and measures their arrival.
pub(crate) fn reflect(mut context: EndContext) -> Result<Report, EndFailure> {
    let socket = context.open_at_port(|port| {
        TimestampedSocket::open(SocketAddr::new(context.spec.address, port), &context.options())
    })?;
    let address = local_address(socket.socket().local_addr())?;
    let start = context.ready(address)?;
    context.await_consent()?;
    let mut meter = ReceiverMeter::new(start);
    let mut reflector = Reflector::new(ReflectorOptions {
        // The source is checked before: the sender may have any address.
        allow: [[0; 4].into(), [0u16; 8].into()].into_iter().filter_map(|any| Network::new(any, 0)).collect(),
        port: address.port(),
        rate: u32::MAX,
        ..ReflectorOptions::default()
    });
    let mut calls = 0;
    let result = reflect_until_complete(&mut context, &socket, &mut reflector, &mut meter, &mut calls);
    let mut report = context.receiver_report(&meter);
    report.counters.extend([buffer_counter(socket.socket(), false)]);
    let drops = socket::dropped(socket.socket()).map(|drops| ("receiver_socket_drops", drops));
    let counts = [("receiver_system_calls", calls), ("reflected", reflector.counts().reflected)];
    let counters = counts.into_iter().chain(drops);
    report.counters.extend(counters.map(|(name, count)| (name.to_owned(), count as f64)));
    note_arrival_times(&mut report.notes, "receiver", &socket);
    EndFailure::after(result, report)
}

fn reflect_until_complete(
    context: &mut EndContext,
    socket: &TimestampedSocket,
    reflector: &mut Reflector,
    meter: &mut ReceiverMeter,
    calls: &mut u64,
) -> Result<(), EndError> {
    let (mut buffer, mut answer) = (vec![0; MAX_SIZE], vec![0; MAX_SIZE]);
    // A stateful reflector associates its packets with one session (RFC 8762 section 4).
    let mut session = None;
    while !context.control.is_stopped() {
        socket::readable(socket.socket(), STOP_CHECK_INTERVAL).map_err(io_error("waiting for packets"))?;
        // This one, and the one that finds no more packets.
        *calls += 2;
        while let Some(received) = socket.receive(&mut buffer).map_err(io_error("receiving"))? {
            let arrival = read_arrival(context, &received);
            let bytes = &buffer[..received.length];
            let packet = SenderPacket::decode(bytes, None).ok();
            let is_of_sender = |packet: &SenderPacket| {
                packet.ssid == session_id(context) && context.accepts_source(received.from, &mut session)
            };
            let Some(packet) = packet.filter(is_of_sender) else {
                meter.record_unknown_peer();
                continue;
            };
            // An answer has the length of its packet.
            if !context.begin_response(received.length as u32) || !context.limit_response(received.length) {
                break;
            }
            let ttl = received.ttl.unwrap_or_default();
            let request = Request { from: received.from, bytes, ttl, unix: arrival.unix };
            if let Ok(length) = reflector.reflect(read_clocks(context), &request, &mut answer) {
                // An answer that cannot be sent counts as lost at the sender.
                let _ = socket.socket().send_to(&answer[..length], received.from);
            }
            *calls += 2;
            record(meter, &packet, arrival, received.length);
            if context.control.is_stopped() {
                break;
            }
        }
        let now = context.clock.now();
        context.snapshot_receiver(meter, now);
        if context.is_complete(meter, now) {
            break;
        }
    }
    Ok(())
}

/// Records the arrival of a message.
fn record(meter: &mut ReceiverMeter, packet: &SenderPacket, arrival: ClockReading, length: usize) {
    let sent_unix = packet.sent.timestamp.unix(Format::Ntp, arrival.unix);
    let next = meter.arrivals().next_sequence;
    let (Some(sent_unix), Some(sequence)) = (sent_unix, extend(packet.sent.sequence, next)) else {
        meter.record_corrupted();
        return;
    };
    // Zero if the clocks of two machines differ by more than the delay.
    let delay = Span::from(arrival.unix.saturating_sub(sent_unix));
    let sent_at: Instant = arrival.at - delay;
    meter.record(&Header::pattern(sequence, sent_at, length as u32), arrival.at);
}

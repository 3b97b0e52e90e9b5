//! Ends over LLC: messages of a host's station, with a priority, acknowledged or not.

use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;

use trunkline_io::Pacer;
use trunkline_record::Histogram;
use trunkline_run::llc::{self, SendOutcomes};
use trunkline_run::message::{HEADER, Header};
use trunkline_run::timeouts::RESPONSE_TIMEOUT;
use trunkline_run::{Sender, SenderStep};
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Span};

use super::request::encode_message;
use super::{EndContext, EndError, EndFailure, STOP_CHECK_INTERVAL};
use crate::station::{StationEvent, StationHandle};
use crate::wire::Report;

/// How long to wait until all stations are in one ring.
const RING_TIMEOUT: Span = Span::from_s(20);
/// Without an event for this long, the station counts as failed.
const STATION_TIMEOUT: Span = Span::from_s(20);
/// Until this time before a message is due, the sender waits for events; then it watches the clock.
const SPIN_BEFORE_DUE: Span = Span::from_ms(1);

/// State of a sender.
struct LlcSender<'b> {
    context: &'b mut EndContext,
    handle: StationHandle,
    /// Station number of the peer.
    peer_station: u8,
    sender: Sender,
    /// Number of messages whose outcome is unknown, and its maximum.
    pending: u16,
    max_pending: u16,
    outcomes: SendOutcomes,
    /// Time until an acknowledgement.
    rtt: Histogram,
    last_event: Instant,
}

/// Opens the handle of an end to its station, for responses or for other messages.
fn open_handle(context: &EndContext, is_response: bool) -> Result<(StationHandle, SocketAddr), EndError> {
    let station = context.services.station.clone().map_err(EndError::Station)?;
    let number = station.number();
    let handle = station
        .open_handle(&context.spec.protocol, context.spec.token, is_response)
        .map_err(EndError::Station)?;
    // The station number takes the place of a port.
    Ok((handle, SocketAddr::new(context.spec.address, number.into())))
}

/// Sends the messages of the pattern.
pub(crate) fn send(mut context: EndContext, peer: SocketAddr, limit: Limit) -> Result<Report, EndFailure> {
    let (handle, address) = open_handle(&context, true)?;
    let start = context.ready(address)?;
    let start = await_ring(&context, &handle, start)?;
    let requester = context.requester(Some(RESPONSE_TIMEOUT));
    let sender = context.sender(start, limit, requester)?;
    let max_pending = llc::max_pending(&context.spec.pattern);
    let mut end = LlcSender {
        peer_station: peer.port() as u8,
        sender,
        context: &mut context,
        handle,
        pending: 0,
        max_pending,
        outcomes: SendOutcomes::default(),
        rtt: Histogram::default(),
        last_event: start,
    };
    let result = end.send_messages();
    let mut report = end.sender.report();
    if !end.sender.is_requester() {
        report.rtt = end.rtt.counts();
    }
    report.counters.extend(end.outcomes.counters());
    report.counters.insert("llc_priority".into(), end.handle.priority.into());
    report.counters.extend(end.handle.station.token_metrics());
    report.cpu = context.cpu();
    EndFailure::after(result, report)
}

/// Returns when the first message may be sent: with a token, once all stations are in the ring.
fn await_ring(context: &EndContext, handle: &StationHandle, start: Instant) -> Result<Instant, EndError> {
    let timeout = context.clock.now().max(start) + RING_TIMEOUT;
    if handle.station.is_ring_complete() {
        return Ok(start);
    }
    while !handle.station.is_ring_complete() {
        if context.control.is_stopped() {
            return Err(EndError::Stopped);
        }
        if context.clock.now() >= timeout {
            return Err(EndError::Station("the stations formed no token ring".into()));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(start.max(context.clock.now()))
}

impl LlcSender<'_> {
    fn send_messages(&mut self) -> Result<(), EndError> {
        let mut buffer = Vec::new();
        let mut pacer = Pacer::new(self.context.clock);
        while !self.context.control.is_stopped() {
            self.poll_events();
            let now = self.context.clock.now();
            if self.must_wait(now)? {
                self.wait_event(now + STOP_CHECK_INTERVAL);
                continue;
            }
            let message = match self.sender.next(now) {
                SenderStep::Done => break,
                SenderStep::Wait(None) => unreachable!("the source has started"),
                SenderStep::Wait(Some(until)) if now + SPIN_BEFORE_DUE < until => {
                    self.wait_event((until - SPIN_BEFORE_DUE).min(now + STOP_CHECK_INTERVAL));
                    continue;
                }
                SenderStep::Wait(Some(until)) => {
                    pacer.wait(until, self.context.control.stop_flag());
                    continue;
                }
                SenderStep::Send(message) => message,
            };
            encode_message(self.context, &mut buffer, &self.sender.header(&message, now));
            let station_error = |e: trunkline_llc::socket::Error| EndError::Station(e.to_string());
            while !self.handle.send(self.peer_station, &buffer).map_err(station_error)? {
                // Other ends have filled the SAP's queue.
                if self.context.control.is_stopped() {
                    return Ok(());
                }
                self.wait_event(self.context.clock.now() + SPIN_BEFORE_DUE);
            }
            (self.pending, self.last_event) = (self.pending + 1, now);
            self.sender.record_send(&message, now);
            self.context.snapshot_sender(&self.sender, now);
        }
        self.await_outcomes()
    }

    /// Returns whether the next message must wait for an outcome or a response.
    fn must_wait(&mut self, now: Instant) -> Result<bool, EndError> {
        if self.sender.awaits_response(now) {
            return Ok(true);
        }
        if self.pending >= self.max_pending && now.since(self.last_event) >= STATION_TIMEOUT {
            return Err(EndError::Station("it reports no outcome for its messages".into()));
        }
        Ok(self.pending >= self.max_pending)
    }

    /// Waits until every message has an outcome, or until a timeout.
    fn await_outcomes(&mut self) -> Result<(), EndError> {
        while (self.pending > 0 || self.sender.is_pending()) && !self.context.control.is_stopped() {
            let now = self.context.clock.now();
            let timeout = if self.pending > 0 { STATION_TIMEOUT } else { RESPONSE_TIMEOUT };
            if now.since(self.last_event) >= timeout {
                self.sender.abandon_request(now);
                break;
            }
            self.wait_event(now + STOP_CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Handles all pending events.
    fn poll_events(&mut self) {
        while let Ok(event) = self.handle.events.try_recv() {
            self.handle_event(event);
        }
    }

    /// Waits for an event until `until`.
    fn wait_event(&mut self, until: Instant) {
        let timeout = until.since(self.context.clock.now());
        if let Ok(event) = self.handle.events.recv_timeout(timeout.into()) {
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: StationEvent) {
        self.last_event = self.context.clock.now();
        match event {
            StationEvent::Sent(outcome, tries, took) => {
                self.pending = self.pending.saturating_sub(1);
                self.outcomes.record(outcome, tries);
                let is_acknowledged = matches!(
                    self.context.spec.protocol,
                    trunkline_experiment::plan::Protocol::Llc { r#type: 3, .. }
                );
                if is_acknowledged && !self.sender.is_requester() && outcome == trunkline_llc::Outcome::Done {
                    self.rtt.record(took);
                }
            }
            StationEvent::Received(at, _, bytes) => {
                let Ok(header) = Header::decode(self.context.spec.token, &bytes) else { return };
                self.sender.record_response(&header, at);
            }
        }
    }
}

/// Receives messages and responds to requests.
pub(crate) fn receive(mut context: EndContext) -> Result<Report, EndFailure> {
    let (handle, address) = open_handle(&context, false)?;
    let start = context.ready(address)?;
    let (mut meter, mut response) = (context.receiver_meter(start), Vec::new());
    while !context.control.is_stopped() {
        let event = handle.events.recv_timeout(STOP_CHECK_INTERVAL.into());
        let now = context.clock.now();
        match event {
            Ok(StationEvent::Received(at, from, bytes)) => match Header::decode(context.spec.token, &bytes) {
                Ok(header) if is_intact(&context, &header, &bytes) => {
                    meter.record(&header, at);
                    if header.response_length > 0 {
                        encode_message(&context, &mut response, &header.response(now, 0));
                        // A response that does not fit into the queue is dropped; the requester times out.
                        handle.send(from, &response).map_err(|e| EndError::Station(e.to_string()))?;
                    }
                }
                _ => meter.record_corrupted(),
            },
            Ok(StationEvent::Sent(..)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        context.snapshot_receiver(&meter, now);
        if context.is_complete(&meter, now) {
            break;
        }
    }
    Ok(context.receiver_report(&meter).into())
}

fn is_intact(context: &EndContext, header: &Header, bytes: &[u8]) -> bool {
    header.length as usize == bytes.len() && context.payload.matches(0, &bytes[HEADER..])
}

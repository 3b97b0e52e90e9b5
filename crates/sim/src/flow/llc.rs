//! Flows over LLC: the two users of the stations at their hosts. A station serves many flows; stations are in
//! [`llc_stations`](crate::llc_stations).

use std::collections::VecDeque;

use trunkline_experiment::plan::Protocol;
use trunkline_llc::Outcome;
use trunkline_record::Histogram;
use trunkline_run::llc::{self, SendOutcomes};
use trunkline_run::message::Header;
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::timeouts::{LINGER, RESPONSE_TIMEOUT};
use trunkline_traffic::source::Bounds;
use trunkline_units::{Instant, Span};

use super::{FlowConfig, FlowError, FlowOutput, Messages, Next};

/// A run ends if its station reports nothing about pending messages for so long: the token never returns early enough for
/// their priority.
const STALL_TIMEOUT: Span = Span::from_s(60);
/// Maximum number of responses that wait to be handed over.
const MAX_PENDING_RESPONSES: usize = 16;

/// A message for a station to send. Only its header is bytes.
#[derive(Clone, Copy, Debug)]
pub struct LlcMessage {
    /// Source and destination SAP.
    pub sap: u8,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Host of the destination station.
    pub to: u32,
    pub header: Header,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug)]
pub struct LlcSendReport {
    pub outcome: Outcome,
    /// Number of transmissions.
    pub attempts: u16,
    /// Time since the message was handed over.
    pub elapsed: Span,
}

/// The ends of a connection over LLC.
#[derive(Debug)]
pub struct LlcFlow {
    /// Their source starts when its station may send.
    pub messages: Messages,
    /// When the flow stops waiting for a token ring to form.
    ring_deadline: Instant,
    sap: u8,
    priority: u8,
    acknowledged: bool,
    /// The hosts of both ends.
    hosts: [u32; 2],
    /// Messages whose outcome is unknown, and their maximum number.
    pending: u16,
    max_pending: u16,
    outcomes: SendOutcomes,
    /// Time until an acknowledgement.
    rtt: Histogram,
    responses: VecDeque<Header>,
    linger: Span,
    stall_timeout: Span,
    /// When the source ended, and when the last message arrived or its outcome was reported.
    source_ended: Option<Instant>,
    last_activity: Instant,
}

impl LlcFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let (sap, priority, acknowledged, timeout_margin) = match config.plan.protocol {
            Protocol::Llc { sap, priority, r#type, timeout, tries, .. } => {
                (sap, priority, r#type == 3, timeout * (u64::from(tries) + 1) * 2)
            }
            _ => (0, 0, false, Span::ZERO),
        };
        let linger = LINGER + config.longest_delay * 2;
        let bounds = Bounds::new(1, llc::max_message(&config.plan.protocol, config.mtu));
        let requester = config.requester(Some(RESPONSE_TIMEOUT + linger));
        Ok(LlcFlow {
            messages: Messages::new(config, start, bounds, requester)?,
            ring_deadline: Instant::MAX,
            sap,
            priority,
            acknowledged,
            hosts: [config.ends[0].host, config.ends[1].host],
            pending: 0,
            max_pending: llc::max_pending(&config.plan.test),
            outcomes: SendOutcomes::default(),
            rtt: Histogram::default(),
            responses: VecDeque::new(),
            linger,
            stall_timeout: STALL_TIMEOUT + timeout_margin,
            source_ended: None,
            last_activity: start,
        })
    }

    /// Waits for the stations to form a token ring, at most until `until`.
    pub fn wait_for_ring(&mut self, until: Instant) {
        self.ring_deadline = until;
    }

    /// Starts the source: its station may send from now on.
    pub fn start_source(&mut self, now: Instant) {
        self.messages.open(now);
        self.last_activity = self.messages.start;
    }

    /// Handles a message that arrived for the user at `side`.
    pub fn receive(&mut self, now: Instant, side: usize, header: &Header) {
        self.last_activity = now;
        if side == 1 {
            self.messages.receiver_meters[0].record(header, now);
            if header.response_length > 0 && self.responses.len() < MAX_PENDING_RESPONSES {
                self.responses.push_back(header.response(now, 0));
            }
        } else {
            self.messages.sender.record_response(header, now);
        }
    }

    /// Records the outcome of a message from the user at `side`.
    pub fn complete_send(&mut self, now: Instant, side: usize, report: LlcSendReport) {
        self.last_activity = now;
        if side > 0 {
            return;
        }
        self.pending -= 1;
        self.outcomes.record(report.outcome, report.attempts);
        if self.acknowledged && !self.messages.sender.is_requester() && report.outcome == Outcome::Done {
            self.rtt.record(report.elapsed);
        }
    }

    /// Polls the user at `side` for output.
    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize) -> FlowOutput {
        if side > 0 {
            return match self.responses.pop_front() {
                Some(header) => self.message_from(1, header),
                None => FlowOutput::Idle { deadline: None, blocked: false },
            };
        }
        match self.next_message(now) {
            Ok(header) => self.message_from(0, header),
            Err(deadline) => FlowOutput::Idle { deadline, blocked: false },
        }
    }

    fn message_from(&self, from: usize, header: Header) -> FlowOutput {
        let (sap, priority) = (self.sap, self.priority);
        FlowOutput::Llc(LlcMessage { sap, priority, to: self.hosts[1 - from], header })
    }

    /// Returns the next message, if it is due and the station may queue it. Otherwise returns when to try again.
    fn next_message(&mut self, now: Instant) -> Result<Header, Option<Instant>> {
        if self.messages.finished {
            return Err(None);
        }
        if !self.messages.sender.has_started() {
            if now >= self.ring_deadline {
                self.messages.fail("the stations formed no token ring".into());
            }
            return Err((!self.messages.finished).then_some(self.ring_deadline));
        }
        if self.source_ended.is_some() {
            return Err(self.linger(now));
        }
        if self.pending >= self.max_pending {
            self.update_finished(now);
            return Err((!self.messages.finished).then_some(self.last_activity + self.stall_timeout));
        }
        if now < self.messages.read_until {
            return Err(Some(self.messages.read_until));
        }
        match self.messages.next(now) {
            Next::Wait(until) => Err(until),
            Next::Done => {
                self.source_ended = Some(now);
                Err(self.linger(now))
            }
            Next::Send(header) => {
                self.pending += 1;
                self.last_activity = now;
                Ok(header)
            }
        }
    }

    /// Waits for outstanding messages after the end of the source. Returns when to check again.
    fn linger(&mut self, now: Instant) -> Option<Instant> {
        self.update_finished(now);
        let timeout = if self.pending > 0 { self.stall_timeout } else { self.linger };
        (!self.messages.finished)
            .then_some(self.last_activity.max(self.source_ended.unwrap_or(now)) + timeout)
    }

    /// Ends the run when all outcomes are known and all messages have arrived, or after a silence.
    fn update_finished(&mut self, now: Instant) {
        let silence = now.since(self.last_activity.max(self.source_ended.unwrap_or(self.last_activity)));
        self.messages.finished = match self.pending {
            0 if self.source_ended.is_some() => {
                let all =
                    self.messages.receiver_meters[0].arrivals().is_complete(self.messages.sender.sent());
                all && !self.messages.sender.is_pending() || silence >= self.linger
            }
            _ => silence >= self.stall_timeout,
        };
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let is_requester = self.messages.sender.is_requester();
        let (mut sender, receivers) = self.messages.into_reports();
        if !is_requester {
            sender.rtt = self.rtt.counts();
        }
        sender.counters.extend(self.outcomes.counters());
        sender.counters.insert("llc_priority".into(), f64::from(self.priority));
        (sender, receivers)
    }
}

//! Flows over bundles: a sender and its receivers. A converter serves many flows; converters are in
//! [`bundles`](crate::bundles).

use trunkline_bundle::host::CommandError;
use trunkline_run::bundle::MessageOptions;
use trunkline_run::message::{HEADER, Header};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::timeouts::LINGER;
use trunkline_run::{ReceiverMeter, Sender, SenderStep};
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_units::{Instant, Span};

use super::{FlowConfig, FlowOutput, SourceConfig};

/// The ends of a connection over bundles.
#[derive(Debug)]
pub struct BundleFlow {
    source_config: SourceConfig,
    /// Starts when the subscriptions of the receivers are known everywhere.
    sender: Sender,
    /// When the flow stops waiting for subscriptions.
    start_deadline: Instant,
    receiver_meters: Vec<ReceiverMeter>,
    options: MessageOptions,
    /// Octets of the longest message.
    max_message: u32,
    congested: u64,
    full: u64,
    linger: Span,
    /// When the source ended, and when the last message arrived.
    source_ended: Option<Instant>,
    last_arrival: Instant,
    error: Option<String>,
    finished: bool,
    start: Instant,
}

impl BundleFlow {
    pub(super) fn new(
        config: &FlowConfig<'_>,
        start: Instant,
        limit: Limit,
        (options, max_message): (MessageOptions, u32),
    ) -> Self {
        BundleFlow {
            source_config: config.source_config(limit, start),
            sender: Sender::new(start, None),
            start_deadline: Instant::MAX,
            receiver_meters: config.plan.to.iter().map(|_| ReceiverMeter::new(start)).collect(),
            options,
            max_message,
            congested: 0,
            full: 0,
            linger: LINGER + config.longest_delay * 2,
            source_ended: None,
            last_arrival: start,
            error: None,
            finished: false,
            start,
        }
    }

    /// Waits until all subscriptions are known, at most until `until`.
    pub fn wait_for_subscriptions(&mut self, until: Instant) {
        self.start_deadline = until;
    }

    /// Starts the source.
    pub fn start_source(&mut self, now: Instant) {
        if self.sender.has_started() {
            return;
        }
        let bounds = Bounds { smallest: HEADER as u32, largest: self.max_message };
        match self.source_config.open(now, bounds) {
            Ok((source, start)) => {
                (self.start, self.last_arrival) = (start, start);
                self.sender.start(source, start);
                self.receiver_meters.iter_mut().for_each(|meter| *meter = ReceiverMeter::new(start));
            }
            Err(e) => (self.error, self.finished) = (Some(e.to_string()), true),
        }
    }

    /// Returns the earliest time of the first message.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Records a message that arrived at a receiver.
    pub fn receive(&mut self, now: Instant, receiver: usize, header: &Header) {
        self.last_arrival = now;
        if let Some(meter) = self.receiver_meters.get_mut(receiver) {
            meter.record(header, now);
        }
    }

    /// Records that the last message was refused.
    pub fn record_refusal(&mut self, reason: CommandError) {
        match reason {
            CommandError::Congested(_) => self.congested += 1,
            _ => self.full += 1,
        }
    }

    /// Polls the end at `side` for output.
    pub fn poll(&mut self, now: Instant, side: usize) -> FlowOutput {
        let idle = |deadline| FlowOutput::Idle { deadline, blocked: false };
        if side > 0 || self.finished {
            return idle(None);
        }
        if !self.sender.has_started() && now >= self.start_deadline {
            self.start_source(now);
        }
        if self.finished {
            return idle(None);
        }
        if self.source_ended.is_some() {
            return idle(self.linger(now));
        }
        match self.sender.next(now) {
            SenderStep::Wait(until) => idle(until.or(Some(self.start_deadline))),
            SenderStep::Done => {
                self.source_ended = Some(now);
                idle(self.linger(now))
            }
            SenderStep::Send(message) => {
                let header = self.sender.send(&message, now);
                FlowOutput::Bundle { options: self.options, header }
            }
        }
    }

    /// Whether the source has ended and all accepted messages have arrived.
    pub fn has_received_all(&self) -> bool {
        let accepted = self.sender.sent() - self.congested - self.full;
        self.source_ended.is_some()
            && self.receiver_meters.iter().all(|meter| meter.arrivals().is_complete(accepted))
    }

    /// Waits for outstanding messages after the end of the source. Returns when to check again.
    fn linger(&mut self, now: Instant) -> Option<Instant> {
        let since = self.last_arrival.max(self.source_ended.unwrap_or(now));
        self.finished = self.has_received_all() || now.since(since) >= self.linger;
        (!self.finished).then_some(since + self.linger)
    }

    /// Whether the run is finished.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>, Option<String>) {
        let mut sender = self.sender.report();
        let refused = [("bundle_congested", self.congested), ("bundle_full", self.full)];
        sender.counters.extend(refused.map(|(name, count)| (name.to_owned(), count as f64)));
        (sender, self.receiver_meters.iter().map(ReceiverReport::from_meter).collect(), self.error)
    }
}

//! Flows over bundles: a sender and its receivers. A converter serves many flows; converters are in
//! [`bundles`](crate::bundles).

use trunkline_bundle::host::CommandError;
use trunkline_run::bundle::MessageOptions;
use trunkline_run::message::{HEADER, Header};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::timeouts::LINGER;
use trunkline_traffic::source::Bounds;
use trunkline_units::{Instant, Span};

use super::{FlowConfig, FlowError, FlowOutput, Messages, Next};

/// The ends of a connection over bundles.
#[derive(Debug)]
pub struct BundleFlow {
    /// Their source starts when the subscriptions of the receivers are known everywhere.
    pub messages: Messages,
    /// When the flow stops waiting for subscriptions.
    start_deadline: Instant,
    options: MessageOptions,
    congested: u64,
    full: u64,
    linger: Span,
    /// When the source ended, and when the last message arrived.
    source_ended: Option<Instant>,
    last_arrival: Instant,
}

impl BundleFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let (options, max_message) = config.bundle_options.ok_or(FlowError::NoConverter)?;
        let bounds = Bounds::new(HEADER as u32, max_message);
        Ok(BundleFlow {
            messages: Messages::new(config, start, bounds, None)?,
            start_deadline: Instant::MAX,
            options,
            congested: 0,
            full: 0,
            linger: LINGER + config.longest_delay * 2,
            source_ended: None,
            last_arrival: start,
        })
    }

    /// Waits until all subscriptions are known, at most until `until`.
    pub fn wait_for_subscriptions(&mut self, until: Instant) {
        self.start_deadline = until;
    }

    pub fn start_source(&mut self, now: Instant) {
        if !self.messages.sender.has_started() {
            self.messages.open(now);
            self.last_arrival = self.messages.start;
        }
    }

    /// Records a message that arrived at a receiver.
    pub fn receive(&mut self, now: Instant, receiver: usize, header: &Header) {
        self.last_arrival = now;
        if let Some(meter) = self.messages.receiver_meters.get_mut(receiver) {
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
    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize) -> FlowOutput {
        let idle = |deadline| FlowOutput::Idle { deadline, blocked: false };
        if side > 0 || self.messages.finished {
            return idle(None);
        }
        if now >= self.start_deadline {
            self.start_source(now);
        }
        if self.source_ended.is_some() {
            return idle(self.linger(now));
        }
        match self.messages.next(now) {
            Next::Wait(until) => idle(until.or(Some(self.start_deadline))),
            Next::Done => {
                self.source_ended = Some(now);
                idle(self.linger(now))
            }
            Next::Send(header) => FlowOutput::Bundle { options: self.options, header },
        }
    }

    /// Whether the source has ended and all accepted messages have arrived.
    pub fn has_received_all(&self) -> bool {
        let accepted = self.messages.sender.sent() - self.congested - self.full;
        self.source_ended.is_some()
            && self.messages.receiver_meters.iter().all(|meter| meter.arrivals().is_complete(accepted))
    }

    /// Waits for outstanding messages after the end of the source. Returns when to check again.
    fn linger(&mut self, now: Instant) -> Option<Instant> {
        let since = self.last_arrival.max(self.source_ended.unwrap_or(now));
        self.messages.finished = self.has_received_all() || now.since(since) >= self.linger;
        (!self.messages.finished).then_some(since + self.linger)
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let (mut sender, receivers) = self.messages.into_reports();
        let refused = [("bundle_congested", self.congested), ("bundle_full", self.full)];
        sender.counters.extend(refused.map(|(name, count)| (name.to_owned(), count as f64)));
        (sender, receivers)
    }
}

//! The sending application of a connection: draws messages, numbers them, and records what was sent and answered.

use trunkline_traffic::Source;
use trunkline_traffic::source::{Message, Step};
use trunkline_units::Instant;

use crate::message::{Header, MessageKind};
use crate::reports::{Metrics, SenderReport};
use crate::requester::Response;
use crate::samples::Samples;
use crate::{RateLimit, Requester, SenderMeter};

/// Draws the messages of one sender and measures it. It reads no clock and sends nothing, so it serves simulated and
/// live runs.
#[derive(Debug)]
pub struct Sender {
    /// `None` until the connection is open.
    source: Option<Source>,
    meter: SenderMeter,
    requester: Option<Requester>,
    sequence: u64,
    rate_limit: Option<RateLimit>,
    /// Gauges of an application model over time.
    gauges: Samples,
}

/// What a sender does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SenderStep {
    /// Send this message now, and report it by [`Sender::record_send`].
    Send(Message),
    /// Ask again at this time. `None` before the source starts, and while a request without a timeout is pending.
    Wait(Option<Instant>),
    /// There are no more messages.
    Done,
}

impl Sender {
    /// Creates a sender whose source starts later. Tests with responses have a requester.
    pub fn new(start: Instant, requester: Option<Requester>) -> Self {
        Sender {
            source: None,
            meter: SenderMeter::new(start),
            requester,
            sequence: 0,
            rate_limit: None,
            gauges: Samples::default(),
        }
    }

    /// Limits the rate; messages are delayed, not dropped. Live senders only: [`send_on_time`](Sender::send_on_time)
    /// ignores it.
    pub fn limit_rate(&mut self, limit: Option<RateLimit>) {
        self.rate_limit = limit;
    }

    /// Starts the source, and the measurements, at `start`.
    pub fn start(&mut self, source: Source, start: Instant) {
        (self.source, self.meter) = (Some(source), SenderMeter::new(start));
        self.gauges = Samples::default();
    }

    /// Returns whether the source has started.
    #[inline]
    pub fn has_started(&self) -> bool {
        self.source.is_some()
    }

    /// Returns what to do at `now`. A request waits while as many others as permitted wait for their responses or timeouts.
    #[inline]
    pub fn next(&mut self, now: Instant) -> SenderStep {
        if self.awaits_response(now) {
            return SenderStep::Wait(self.response_deadline());
        }
        if let Some(until) = self.rate_limit.as_ref().and_then(|limit| limit.wait(now)) {
            return SenderStep::Wait(Some(until));
        }
        match self.source.as_mut().map(|source| source.next(now)) {
            Some(Step::Send(message)) => {
                // Before it is sent: other senders must not pass at the same time.
                if let Some(limit) = &self.rate_limit {
                    limit.record_messages(u64::from(message.size), 1, now);
                }
                SenderStep::Send(message)
            }
            Some(Step::Wait(until)) => {
                SenderStep::Wait(Some(self.response_deadline().map_or(until, |deadline| until.min(deadline))))
            }
            Some(Step::Done) if self.is_pending() => SenderStep::Wait(self.response_deadline()),
            Some(Step::Done) => SenderStep::Done,
            None => SenderStep::Wait(None),
        }
    }

    /// Sends a message of a regular source that is due exactly at `now`: a faster form of [`next`](Sender::next) and
    /// [`send`](Sender::send), for other tests than requests. Returns `None` in all other cases; then call `next`.
    #[inline(always)]
    pub fn send_on_time(&mut self, now: Instant) -> Option<Header> {
        let message = self.source.as_mut()?.on_time(now)?;
        self.meter.record_send(&message, now);
        let header = self.header(&message, now);
        self.sequence += 1;
        Some(header)
    }

    /// Returns the time of the next message after `now`, if it depends on the source only.
    #[inline(always)]
    pub fn due_after(&self, now: Instant) -> Option<Instant> {
        self.source.as_ref()?.due_after(now)
    }

    /// Returns the header of the next message.
    #[inline(always)]
    pub fn header(&self, message: &Message, now: Instant) -> Header {
        let header = Header::pattern(self.sequence, now, message.size);
        Header { response_length: message.response, ..header }
    }

    /// Records that the message was handed to the transport at `now`.
    #[inline(always)]
    pub fn record_send(&mut self, message: &Message, now: Instant) {
        self.meter.record_send(message, now);
        if message.first
            && let Some(source) = &mut self.source
        {
            source.departed(now);
        }
        if message.response > 0
            && let Some(requester) = &mut self.requester
        {
            requester.record_request(self.sequence, message, now);
        }
        self.sequence += 1;
    }

    /// Records and numbers a message that is sent at once; returns its header.
    #[inline(always)]
    pub fn send(&mut self, message: &Message, now: Instant) -> Header {
        let header = self.header(message, now);
        self.record_send(message, now);
        header
    }

    /// Returns the size and the number, at most `max`, of equal messages that a source at full speed may send at once.
    #[inline]
    pub fn batch(&mut self, now: Instant, max: u64) -> Option<(u32, u64)> {
        match &self.rate_limit {
            Some(limit) if limit.wait(now).is_some() => None,
            Some(limit) => {
                let (size, count) = self.source.as_mut()?.batch(now, max)?;
                limit.record_messages(u64::from(size) * count, count, now);
                Some((size, count))
            }
            None => self.source.as_mut()?.batch(now, max),
        }
    }

    /// Records `count` messages of `size` bytes that were handed over at once.
    #[inline]
    pub fn record_batch(&mut self, size: u32, count: u64, now: Instant) {
        self.meter.record_batch(size, count, now);
        self.sequence += count;
    }

    /// Records a response; returns whether it answers a pending request.
    pub fn record_response(&mut self, response: &Header, now: Instant) -> bool {
        let requester = self.requester.as_mut().filter(|_| response.kind == MessageKind::Response);
        let answer = requester.and_then(|requester| requester.record_response(response, now));
        if let (Some(source), Some(Response::Last(outcome))) = (&mut self.source, &answer) {
            source.feedback(outcome);
            if self.gauges.is_due(now) {
                let gauges: Metrics =
                    source.gauges().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                if !gauges.is_empty() {
                    self.gauges.record(self.meter.start(), now, gauges);
                }
            }
        }
        answer.is_some()
    }

    /// Returns whether the next message must wait for a response. Abandons requests after their timeout.
    #[inline]
    pub fn awaits_response(&mut self, now: Instant) -> bool {
        self.requester.is_some() && self.must_wait(now)
    }

    #[inline(never)]
    fn must_wait(&mut self, now: Instant) -> bool {
        let Some(requester) = &mut self.requester else { return false };
        while let Some(lost) = requester.expire(now) {
            self.source.iter_mut().for_each(|source| source.feedback(&lost));
        }
        requester.must_wait()
    }

    /// Returns whether a request waits for its response.
    pub fn is_pending(&self) -> bool {
        self.requester.as_ref().is_some_and(Requester::is_pending)
    }

    /// Returns when the first pending request times out.
    pub fn response_deadline(&self) -> Option<Instant> {
        self.requester.as_ref()?.deadline()
    }

    /// Counts the first pending request, if there is one, as unanswered.
    pub fn abandon_request(&mut self, now: Instant) {
        let lost = self.requester.as_mut().and_then(|requester| requester.abandon(now));
        self.source.iter_mut().zip(lost).for_each(|(source, lost)| source.feedback(&lost));
    }

    /// Returns whether several requests may be in flight.
    pub fn is_concurrent(&self) -> bool {
        self.requester.as_ref().is_some_and(Requester::is_concurrent)
    }

    /// Returns whether this is a test with responses.
    pub fn is_requester(&self) -> bool {
        self.requester.is_some()
    }

    /// Returns the number of messages sent.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sequence
    }

    /// Returns the measurements.
    pub fn meter(&self) -> &SenderMeter {
        &self.meter
    }

    /// Returns the report: of the whole source if it has started, and of the requests.
    pub fn report(&self) -> SenderReport {
        let mut report = match &self.source {
            Some(source) => SenderReport::complete(&self.meter, source),
            None => SenderReport::partial(&self.meter),
        };
        if let Some(requester) = &self.requester {
            requester.add_to(&mut report);
        }
        report.samples = self.gauges.points().to_vec();
        report
    }
}

#[cfg(test)]
mod tests {
    use trunkline_traffic::source::{Bounds, Limit};
    use trunkline_traffic::{Pattern, Variable};
    use trunkline_units::{Seed, Span};

    use super::*;

    fn source(pattern: &Pattern, messages: u64, start: Instant) -> Source {
        let limit = Limit { messages: Some(messages), ..Limit::default() };
        let bounds = Bounds::new(40, 1_000);
        Source::new(pattern, limit, bounds, start, Seed(1), "sender").unwrap()
    }

    fn full() -> Pattern {
        Pattern::Full { size_bytes: Variable::Constant(100.0) }
    }

    #[test]
    fn a_sender_waits_for_its_start_and_numbers_messages() {
        let start = Instant::ZERO + Span::from_ms(5);
        let mut sender = Sender::new(Instant::ZERO, None);
        assert_eq!(sender.next(Instant::ZERO), SenderStep::Wait(None));
        sender.start(source(&full(), 2, start), start);
        for sequence in 0..2 {
            let SenderStep::Send(message) = sender.next(start) else { panic!("a message") };
            let header = sender.send(&message, start);
            assert_eq!((header.sequence, header.length, header.sent_at), (sequence, 100, start));
        }
        assert_eq!((sender.next(start), sender.sent()), (SenderStep::Done, 2));
        assert_eq!(sender.report().bytes, 200);
    }

    #[test]
    fn limited_senders_keep_their_common_rate() {
        for batch in [1, 7] {
            // 8 Mb/s: a message of 100 bytes in 100 us.
            let limit = RateLimit::new(8_000_000);
            let mut senders = [0; 2].map(|_| {
                let mut sender = Sender::new(Instant::ZERO, None);
                sender.start(source(&full(), 1_000_000, Instant::ZERO), Instant::ZERO);
                sender.limit_rate(Some(limit.clone()));
                sender
            });
            let mut now = Instant::ZERO;
            while now < Instant::ZERO + Span::from_s(1) {
                for sender in &mut senders {
                    if let Some((size, count)) = sender.batch(now, batch) {
                        sender.record_batch(size, count, now);
                    } else if let SenderStep::Send(message) = sender.next(now) {
                        sender.send(&message, now);
                    }
                }
                now += Span::from_us(10);
            }
            let sent = senders[0].sent() + senders[1].sent();
            assert!((10_000..=10_020 + 2 * batch).contains(&sent), "{sent} of 10,000 messages a second");
        }
    }

    #[test]
    fn a_request_waits_for_its_response_or_timeout() {
        let timeout = Span::from_ms(100);
        let mut sender = Sender::new(Instant::ZERO, Some(Requester::new(Some(timeout), 1, 1)));
        let pattern = Pattern::Request {
            request_bytes: Variable::Constant(100.0),
            response_bytes: Variable::Constant(100.0),
        };
        sender.start(source(&pattern, 3, Instant::ZERO), Instant::ZERO);
        let SenderStep::Send(message) = sender.next(Instant::ZERO) else { panic!("a request") };
        let request = sender.send(&message, Instant::ZERO);
        assert_eq!(sender.next(Instant::ZERO), SenderStep::Wait(Some(Instant::ZERO + timeout)));
        let later = Instant::ZERO + Span::from_ms(1);
        assert!(!sender.record_response(&request, later), "it is no response");
        assert!(sender.record_response(&request.response(later, 0), later));
        let SenderStep::Send(message) = sender.next(later) else { panic!("the next request") };
        sender.send(&message, later);
        assert!(sender.awaits_response(later) && !sender.awaits_response(later + timeout));
        let counters = sender.report().counters;
        assert_eq!((counters["answers"], counters["unanswered"]), (1.0, 1.0));
    }
}

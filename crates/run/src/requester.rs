//! The requesting end of a test with responses: one request is in flight, or several.

use std::collections::VecDeque;

use trunkline_record::Histogram;
use trunkline_traffic::Pattern;
use trunkline_traffic::application::Outcome;
use trunkline_traffic::source::Message;
use trunkline_units::{Instant, Span};

use crate::message::Header;
use crate::reports::SenderReport;
use crate::responder;

/// Tracks the requests in flight and measures the responses.
#[derive(Debug)]
pub struct Requester {
    timeout: Option<Span>,
    max_outstanding: usize,
    /// The requests that wait for their responses, in the order of their departure.
    pending: VecDeque<PendingRequest>,
    /// Number of requests.
    requests: u64,
    rtt: Histogram,
    /// What a closed loop would have measured, unless it is not computed.
    closed_loop: Option<ClosedLoop>,
    responses: u64,
    response_bytes: u64,
    unanswered: u64,
}

/// The measurements of a requester that sends no request while another waits for its response, and measures each from its
/// departure: those of the requests that left while none of these was in flight.
#[derive(Debug, Default)]
struct ClosedLoop {
    in_flight: Option<u64>,
    rtt: Histogram,
}

impl ClosedLoop {
    fn record_request(&mut self, sequence: u64) {
        self.in_flight.get_or_insert(sequence);
    }

    /// Handles a response after `rtt`, or the loss of a request.
    fn finish(&mut self, sequence: u64, rtt: Option<Span>) {
        if self.in_flight == Some(sequence) {
            self.in_flight = None;
            rtt.into_iter().for_each(|rtt| self.rtt.record(rtt));
        }
    }
}

/// A request that waits for its response.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    sequence: u64,
    request: u64,
    due: Instant,
    sent_at: Instant,
}

impl PendingRequest {
    /// Returns the outcome; without a response the request is lost.
    fn outcome(self, at: Instant, response: Option<&Header>) -> Outcome {
        Outcome {
            request: self.request,
            due: self.due,
            sent_at: self.sent_at,
            at,
            bytes: response.map(|response| response.length),
            responded_at: response.map_or(at, |response| response.sent_at),
            received_bytes: response.map_or(0, |response| response.response_length),
        }
    }
}

impl Requester {
    /// Creates a requester with at most `max_outstanding` requests in flight. A response counts as lost after `timeout`; over a
    /// reliable transport there is none.
    pub fn new(timeout: Option<Span>, max_outstanding: usize) -> Self {
        Requester {
            timeout,
            max_outstanding,
            pending: VecDeque::new(),
            requests: 0,
            rtt: Histogram::default(),
            closed_loop: None,
            responses: 0,
            response_bytes: 0,
            unanswered: 0,
        }
    }

    /// Creates the requester of a test; `None` if its messages request no responses.
    pub fn of_pattern(pattern: &Pattern, timeout: Option<Span>) -> Option<Self> {
        let max_outstanding = pattern.max_outstanding();
        // Only of an open loop, whose requests are due at times of their own; reports are no such requests.
        let is_open_loop = max_outstanding > 1 && pattern.setting("feedback").is_none();
        (max_outstanding > 0).then(|| Requester {
            closed_loop: is_open_loop.then(ClosedLoop::default),
            ..Requester::new(timeout.map(|timeout| timeout + responder::stall(pattern)), max_outstanding)
        })
    }

    /// Records that a request was sent.
    pub fn record_request(&mut self, sequence: u64, message: &Message, now: Instant) {
        let request = self.requests;
        self.requests += 1;
        self.pending.push_back(PendingRequest { sequence, request, due: message.due, sent_at: now });
        self.closed_loop.iter_mut().for_each(|closed_loop| closed_loop.record_request(sequence));
    }

    /// Whether the next request must wait.
    pub fn must_wait(&self) -> bool {
        self.pending.len() >= self.max_outstanding
    }

    /// Whether several requests may be in flight.
    pub fn is_concurrent(&self) -> bool {
        self.max_outstanding > 1
    }

    /// Whether a request waits for its response.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns when the first pending request times out.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.pending.front()?.sent_at + self.timeout?)
    }

    /// Counts the first pending request as unanswered if it has timed out at `now`.
    pub fn expire(&mut self, now: Instant) -> Option<Outcome> {
        if self.deadline().is_some_and(|deadline| now >= deadline) { self.abandon(now) } else { None }
    }

    /// Counts the first pending request, if there is one, as unanswered.
    pub fn abandon(&mut self, now: Instant) -> Option<Outcome> {
        let pending = self.pending.pop_front()?;
        self.unanswered += 1;
        self.closed_loop.iter_mut().for_each(|closed_loop| closed_loop.finish(pending.sequence, None));
        Some(pending.outcome(now, None))
    }

    /// Records a response. Returns `None` if it is late: its request was abandoned.
    ///
    /// If requests do not wait for each other, a round trip begins when its request is due: a request that leaves late because
    /// of an earlier one does not hide the delay.
    pub fn record_response(&mut self, response: &Header, now: Instant) -> Option<Outcome> {
        let sequence = response.sequence;
        let index = self.pending.iter().position(|pending| pending.sequence == sequence)?;
        let pending = self.pending.remove(index)?;
        self.rtt.record(now.since(if self.is_concurrent() { pending.due } else { pending.sent_at }));
        self.responses += 1;
        self.response_bytes += u64::from(response.length);
        if let Some(closed_loop) = &mut self.closed_loop {
            closed_loop.finish(sequence, Some(now.since(pending.sent_at)));
        }
        Some(pending.outcome(now, Some(response)))
    }

    /// Adds round-trip times and counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
        report.closed_loop_rtt = self.closed_loop.as_ref().map(|c| c.rtt.counts()).unwrap_or_default();
        let counts = [("answers", self.responses), ("answer_bytes", self.response_bytes)];
        let unanswered = self.timeout.map(|_| ("unanswered", self.unanswered));
        let counts = counts.into_iter().chain(unanswered);
        report.counters.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    }
}

#[cfg(test)]
mod tests {
    use trunkline_traffic::{Application, Variable};

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    fn request(due: Instant) -> Message {
        Message { size: 40, response: 40, due, first: true }
    }

    fn response(sequence: u64, at: Instant) -> Header {
        Header { response_length: 40, ..Header::pattern(sequence, at, 40) }.response(at)
    }

    /// A server answers after 1 ms, but nothing from 900 ms to 1 s. A request is due every 10 ms.
    #[test]
    fn a_closed_loop_hides_a_stall() {
        let rpc = Application::named("rpc").unwrap();
        let parameters = rpc.defaults(None);
        let size_bytes = Variable::Constant(1_400.0);
        let pattern = Pattern::Application { model: rpc, variant: None, size_bytes, parameters };
        let mut requester = Requester::of_pattern(&pattern, None).unwrap();
        for sequence in 0..90 {
            requester.record_request(sequence, &request(at(sequence * 10)), at(sequence * 10));
            requester.record_response(&response(sequence, at(0)), at(sequence * 10 + 1));
        }
        for sequence in 90..100 {
            requester.record_request(sequence, &request(at(sequence * 10)), at(sequence * 10));
        }
        for sequence in 90..100 {
            requester.record_response(&response(sequence, at(0)), at(1_000));
        }
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        let counts = |counts| Histogram::from_counts(counts).distribution_us().unwrap();
        let (open, closed) = (counts(&report.rtt), counts(&report.closed_loop_rtt));
        assert_eq!((open.count, closed.count), (100, 91));
        // Of 100 requests 10 wait for 10 to 100 ms: the 95th for 50 ms. Of 91 one waits.
        assert!((open.p99 / 90e3 - 1.0).abs() < 0.01, "{open:?}");
        assert!(
            (closed.p90 / 1e3 - 1.0).abs() < 0.01 && (closed.max / 100e3 - 1.0).abs() < 0.01,
            "{closed:?}"
        );
    }

    #[test]
    fn a_late_response_does_not_answer_the_next_request() {
        let mut requester = Requester::new(Some(Span::from_ms(100)), 1);
        assert!(!requester.must_wait());
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!((requester.expire(at(99)), requester.must_wait()), (None, true));
        assert_eq!(requester.deadline(), Some(at(100)));
        let lost = requester.expire(at(100)).unwrap();
        assert_eq!((lost.request, lost.bytes, requester.must_wait()), (0, None, false));
        requester.record_request(1, &request(at(90)), at(100));
        assert_eq!(requester.record_response(&response(0, at(105)), at(110)), None);
        let outcome = Outcome {
            request: 1,
            due: at(90),
            sent_at: at(100),
            at: at(120),
            bytes: Some(40),
            responded_at: at(115),
            received_bytes: 0,
        };
        assert_eq!(requester.record_response(&response(1, at(115)), at(120)), Some(outcome));
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        let counters = ["answers", "answer_bytes", "unanswered"].map(|name| report.counters[name]);
        assert_eq!(counters, [1.0, 40.0, 1.0]);
    }

    #[test]
    fn several_requests_wait_and_are_answered_in_any_order() {
        let mut requester = Requester::new(None, 2);
        requester.record_request(3, &request(at(0)), at(5));
        assert!(!requester.must_wait());
        requester.record_request(7, &request(at(6)), at(6));
        assert!(requester.must_wait());
        assert_eq!(requester.record_response(&response(7, at(7)), at(8)).unwrap().request, 1);
        assert_eq!(requester.record_response(&response(3, at(19)), at(20)).unwrap().request, 0);
        assert!(!requester.is_pending());
        // From the due time: 20 ms, although it was sent 5 ms late.
        let longest = requester.rtt.distribution_us().unwrap().max;
        assert!((longest - 20_000.0).abs() < 20.0, "{longest}");
    }

    #[test]
    fn a_reliable_transport_has_no_timeout() {
        let mut requester = Requester::new(None, 1);
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!((requester.expire(at(1_000_000)), requester.must_wait()), (None, true));
        assert_eq!(requester.deadline(), None);
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        assert!(!report.counters.contains_key("unanswered"));
    }
}

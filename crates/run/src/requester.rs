//! The requesting end of a test with responses: one request is in flight, or several. A request to a group waits for the
//! response of every receiver.

use std::collections::VecDeque;

use trunkline_record::Histogram;
use trunkline_traffic::Pattern;
use trunkline_traffic::application::Outcome;
use trunkline_traffic::source::Message;
use trunkline_units::{Instant, Span};

use crate::message::Header;
use crate::reports::{ResponderCounts, SenderReport};
use crate::responder;

/// Tracks the requests in flight and measures the responses.
#[derive(Debug)]
pub struct Requester {
    timeout: Option<Span>,
    max_outstanding: usize,
    /// What each receiver has answered; the order is that of the plan.
    responders: Vec<ResponderCounts>,
    /// The requests that wait for their responses, in the order of their departure.
    pending: VecDeque<PendingRequest>,
    /// Number of requests.
    requests: u64,
    rtt: Histogram,
    /// What a closed loop would have measured, unless it is not computed.
    closed_loop: Option<ClosedLoop>,
    response_bytes: u64,
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

/// A request that waits for its responses.
#[derive(Clone, Debug)]
struct PendingRequest {
    sequence: u64,
    request: u64,
    due: Instant,
    sent_at: Instant,
    /// Number of responses that are missing.
    missing: usize,
    /// The receivers that have answered; empty if there is only one, because a vector of one would be an allocation a request.
    answered: Vec<bool>,
}

impl PendingRequest {
    /// Returns the outcome, with the last response; without one the request is lost.
    fn outcome(&self, at: Instant, response: Option<&Header>) -> Outcome {
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

    /// Records that a receiver has answered; returns whether it had not before.
    fn record_answer(&mut self, responder: usize) -> bool {
        let is_new =
            self.answered.get_mut(responder).is_none_or(|answered| !std::mem::replace(answered, true));
        self.missing -= usize::from(is_new);
        is_new
    }
}

impl Requester {
    /// Creates a requester with at most `max_outstanding` requests in flight, each to `responders` receivers. A response counts
    /// as lost after `timeout`; over a reliable transport there is none.
    pub fn new(timeout: Option<Span>, max_outstanding: usize, responders: usize) -> Self {
        Requester {
            timeout,
            max_outstanding,
            responders: vec![ResponderCounts::default(); responders.max(1)],
            pending: VecDeque::new(),
            requests: 0,
            rtt: Histogram::default(),
            closed_loop: None,
            response_bytes: 0,
        }
    }

    /// Creates the requester of a test, whose requests go to `responders` receivers; `None` if its messages request no responses.
    pub fn of_pattern(pattern: &Pattern, timeout: Option<Span>, responders: usize) -> Option<Self> {
        let max_outstanding = pattern.max_outstanding();
        // Only of an open loop, whose requests are due at times of their own; reports are no such requests.
        let is_open_loop = max_outstanding > 1 && pattern.setting("feedback").is_none();
        (max_outstanding > 0).then(|| Requester {
            closed_loop: is_open_loop.then(ClosedLoop::default),
            ..Requester::new(
                timeout.map(|timeout| timeout + responder::stall(pattern)),
                max_outstanding,
                responders,
            )
        })
    }

    /// Records that a request was sent.
    pub fn record_request(&mut self, sequence: u64, message: &Message, now: Instant) {
        let request = self.requests;
        self.requests += 1;
        let missing = self.responders.len();
        let answered = if missing > 1 { vec![false; missing] } else { Vec::new() };
        let (due, sent_at) = (message.due, now);
        self.pending.push_back(PendingRequest { sequence, request, due, sent_at, missing, answered });
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

    /// Whether a request waits for a response.
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

    /// Counts the first pending request, if there is one, as unanswered by the receivers whose responses are missing.
    pub fn abandon(&mut self, now: Instant) -> Option<Outcome> {
        let pending = self.pending.pop_front()?;
        for (index, counts) in self.responders.iter_mut().enumerate() {
            counts.unanswered += u64::from(!pending.answered.get(index).copied().unwrap_or(false));
        }
        self.closed_loop.iter_mut().for_each(|closed_loop| closed_loop.finish(pending.sequence, None));
        Some(pending.outcome(now, None))
    }

    /// Records a response. Returns `None` if it is late, as its request was abandoned, or a duplicate.
    ///
    /// If requests do not wait for each other, a round trip begins when its request is due: a request that leaves late because
    /// of an earlier one does not hide the delay.
    pub fn record_response(&mut self, response: &Header, now: Instant) -> Option<Response> {
        let is_concurrent = self.is_concurrent();
        let sequence = response.sequence;
        // Only the responses of several receivers have numbers.
        let responder = if self.responders.len() == 1 { 0 } else { response.response_length as usize };
        let index = self.pending.iter().position(|pending| pending.sequence == sequence)?;
        let pending = self.pending.get_mut(index)?;
        let counts = self.responders.get_mut(responder).filter(|_| pending.record_answer(responder))?;
        counts.responses += 1;
        self.rtt.record(now.since(if is_concurrent { pending.due } else { pending.sent_at }));
        self.response_bytes += u64::from(response.length);
        if pending.missing > 0 {
            return Some(Response::OneOfSeveral);
        }
        if let Some(closed_loop) = &mut self.closed_loop {
            closed_loop.finish(sequence, Some(now.since(pending.sent_at)));
        }
        let outcome = pending.outcome(now, Some(response));
        self.pending.remove(index);
        Some(Response::Last(outcome))
    }

    /// Adds round-trip times and counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
        report.closed_loop_rtt = self.closed_loop.as_ref().map(|c| c.rtt.counts()).unwrap_or_default();
        report.responders = self.responders.clone();
        let sum = |count: fn(&ResponderCounts) -> u64| self.responders.iter().map(count).sum::<u64>();
        let counts = [("answers", sum(|counts| counts.responses)), ("answer_bytes", self.response_bytes)];
        let unanswered = self.timeout.map(|_| ("unanswered", sum(|counts| counts.unanswered)));
        let counts = counts.into_iter().chain(unanswered);
        report.counters.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    }
}

/// A response in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Other receivers have not answered yet.
    OneOfSeveral,
    /// All receivers have answered.
    Last(Outcome),
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

    fn response(sequence: u64, receiver: u32, at: Instant) -> Header {
        Header { response_length: 40, ..Header::pattern(sequence, at, 40) }.response(at, receiver)
    }

    /// A server answers after 1 ms, but nothing from 900 ms to 1 s. A request is due every 10 ms.
    #[test]
    fn a_closed_loop_hides_a_stall() {
        let rpc = Application::named("rpc").unwrap();
        let parameters = rpc.defaults(None);
        let size_bytes = Variable::Constant(1_400.0);
        let pattern = Pattern::Application { model: rpc, variant: None, size_bytes, parameters };
        let mut requester = Requester::of_pattern(&pattern, None, 1).unwrap();
        for sequence in 0..90 {
            requester.record_request(sequence, &request(at(sequence * 10)), at(sequence * 10));
            requester.record_response(&response(sequence, 0, at(0)), at(sequence * 10 + 1));
        }
        for sequence in 90..100 {
            requester.record_request(sequence, &request(at(sequence * 10)), at(sequence * 10));
        }
        for sequence in 90..100 {
            requester.record_response(&response(sequence, 0, at(0)), at(1_000));
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

    fn last(response: Option<Response>) -> Outcome {
        let Some(Response::Last(outcome)) = response else { panic!("the last response, not {response:?}") };
        outcome
    }

    #[test]
    fn a_request_to_a_group_waits_for_every_receiver() {
        let mut requester = Requester::new(Some(Span::from_ms(100)), 1, 3);
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!(requester.record_response(&response(0, 2, at(0)), at(1)), Some(Response::OneOfSeveral));
        assert_eq!(requester.record_response(&response(0, 2, at(0)), at(2)), None, "a duplicate");
        assert_eq!(
            requester.record_response(&response(0, 3, at(0)), at(2)),
            None,
            "there is no fourth receiver"
        );
        assert_eq!(requester.record_response(&response(0, 0, at(0)), at(3)), Some(Response::OneOfSeveral));
        assert!(requester.must_wait());
        assert_eq!(last(requester.record_response(&response(0, 1, at(0)), at(4))).at, at(4));
        assert!(!requester.must_wait());
        requester.record_request(1, &request(at(5)), at(5));
        assert_eq!(requester.record_response(&response(1, 1, at(0)), at(6)), Some(Response::OneOfSeveral));
        assert_eq!(requester.expire(at(105)).map(|lost| (lost.request, lost.bytes)), Some((1, None)));
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        let counts = |responses, unanswered| ResponderCounts { responses, unanswered };
        assert_eq!(report.responders, [counts(1, 1), counts(2, 0), counts(1, 1)]);
        let counters = ["answers", "answer_bytes", "unanswered"].map(|name| report.counters[name]);
        assert_eq!(counters, [4.0, 160.0, 2.0]);
        assert_eq!(requester.rtt.distribution_us().unwrap().count, 4);
    }

    #[test]
    fn a_late_response_does_not_answer_the_next_request() {
        let mut requester = Requester::new(Some(Span::from_ms(100)), 1, 1);
        assert!(!requester.must_wait());
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!((requester.expire(at(99)), requester.must_wait()), (None, true));
        assert_eq!(requester.deadline(), Some(at(100)));
        let lost = requester.expire(at(100)).unwrap();
        assert_eq!((lost.request, lost.bytes, requester.must_wait()), (0, None, false));
        requester.record_request(1, &request(at(90)), at(100));
        assert_eq!(requester.record_response(&response(0, 0, at(105)), at(110)), None);
        let outcome = Outcome {
            request: 1,
            due: at(90),
            sent_at: at(100),
            at: at(120),
            bytes: Some(40),
            responded_at: at(115),
            received_bytes: 0,
        };
        assert_eq!(
            requester.record_response(&response(1, 0, at(115)), at(120)),
            Some(Response::Last(outcome))
        );
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        let counters = ["answers", "answer_bytes", "unanswered"].map(|name| report.counters[name]);
        assert_eq!(counters, [1.0, 40.0, 1.0]);
    }

    #[test]
    fn several_requests_wait_and_are_answered_in_any_order() {
        let mut requester = Requester::new(None, 2, 1);
        requester.record_request(3, &request(at(0)), at(5));
        assert!(!requester.must_wait());
        requester.record_request(7, &request(at(6)), at(6));
        assert!(requester.must_wait());
        assert_eq!(last(requester.record_response(&response(7, 0, at(7)), at(8))).request, 1);
        assert_eq!(last(requester.record_response(&response(3, 0, at(19)), at(20))).request, 0);
        assert!(!requester.is_pending());
        // From the due time: 20 ms, although it was sent 5 ms late.
        let longest = requester.rtt.distribution_us().unwrap().max;
        assert!((longest - 20_000.0).abs() < 20.0, "{longest}");
    }

    #[test]
    fn a_reliable_transport_has_no_timeout() {
        let mut requester = Requester::new(None, 1, 1);
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!((requester.expire(at(1_000_000)), requester.must_wait()), (None, true));
        assert_eq!(requester.deadline(), None);
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        assert!(!report.counters.contains_key("unanswered"));
    }
}

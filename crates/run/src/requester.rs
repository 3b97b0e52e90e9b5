//! The requesting end of a test with responses: one request is in flight, or several. A request to a group waits for the
//! response of every receiver.

use std::collections::VecDeque;

use trunkline_record::Histogram;
use trunkline_traffic::application::Outcome;
use trunkline_traffic::source::Message;
use trunkline_units::{Instant, Span};

use crate::reports::{ResponderCounts, SenderReport};

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
    response_bytes: u64,
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
    fn outcome(&self, at: Instant, bytes: Option<u32>) -> Outcome {
        Outcome { request: self.request, due: self.due, sent_at: self.sent_at, at, bytes }
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
            response_bytes: 0,
        }
    }

    /// Records that a request was sent.
    pub fn record_request(&mut self, sequence: u64, message: &Message, now: Instant) {
        let request = self.requests;
        self.requests += 1;
        let missing = self.responders.len();
        let answered = if missing > 1 { vec![false; missing] } else { Vec::new() };
        let (due, sent_at) = (message.due, now);
        self.pending.push_back(PendingRequest { sequence, request, due, sent_at, missing, answered });
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
        Some(pending.outcome(now, None))
    }

    /// Records a response of `length` bytes from a receiver, numbered in the order of the plan. Returns the outcome of the request
    /// if it was the last response that was missing. A response to an abandoned request is late and counts nowhere.
    ///
    /// If requests do not wait for each other, a round trip begins when its request is due: a request that leaves late because
    /// of an earlier one does not hide the delay.
    pub fn record_response(
        &mut self,
        sequence: u64,
        responder: usize,
        length: u32,
        now: Instant,
    ) -> Option<Response> {
        let is_concurrent = self.is_concurrent();
        let index = self.pending.iter().position(|pending| pending.sequence == sequence)?;
        let pending = self.pending.get_mut(index)?;
        let counts = self.responders.get_mut(responder).filter(|_| pending.record_answer(responder))?;
        counts.responses += 1;
        self.rtt.record(now.since(if is_concurrent { pending.due } else { pending.sent_at }));
        self.response_bytes += u64::from(length);
        if pending.missing > 0 {
            return Some(Response::OneOfSeveral);
        }
        let outcome = pending.outcome(now, Some(length));
        self.pending.remove(index);
        Some(Response::Last(outcome))
    }

    /// Adds round-trip times and counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
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
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    fn request(due: Instant) -> Message {
        Message { size: 40, response: 40, due, first: true }
    }

    fn last(response: Option<Response>) -> Outcome {
        let Some(Response::Last(outcome)) = response else { panic!("the last response, not {response:?}") };
        outcome
    }

    #[test]
    fn a_request_to_a_group_waits_for_every_receiver() {
        let mut requester = Requester::new(Some(Span::from_ms(100)), 1, 3);
        requester.record_request(0, &request(at(0)), at(0));
        assert_eq!(requester.record_response(0, 2, 40, at(1)), Some(Response::OneOfSeveral));
        assert_eq!(requester.record_response(0, 2, 40, at(2)), None, "a duplicate");
        assert_eq!(requester.record_response(0, 3, 40, at(2)), None, "there is no fourth receiver");
        assert_eq!(requester.record_response(0, 0, 40, at(3)), Some(Response::OneOfSeveral));
        assert!(requester.must_wait());
        assert_eq!(last(requester.record_response(0, 1, 40, at(4))).at, at(4));
        assert!(!requester.must_wait());
        requester.record_request(1, &request(at(5)), at(5));
        assert_eq!(requester.record_response(1, 1, 40, at(6)), Some(Response::OneOfSeveral));
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
        assert_eq!(requester.record_response(0, 0, 40, at(110)), None);
        let outcome = Outcome { request: 1, due: at(90), sent_at: at(100), at: at(120), bytes: Some(40) };
        assert_eq!(requester.record_response(1, 0, 40, at(120)), Some(Response::Last(outcome)));
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
        assert_eq!(last(requester.record_response(7, 0, 40, at(8))).request, 1);
        assert_eq!(last(requester.record_response(3, 0, 40, at(20))).request, 0);
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

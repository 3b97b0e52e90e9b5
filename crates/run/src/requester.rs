//! The requesting end of a request test: one request is in flight.

use trunkline_record::Histogram;
use trunkline_units::{Instant, Span};

use crate::reports::SenderReport;

/// Tracks the request in flight and measures the responses.
#[derive(Debug)]
pub struct Requester {
    timeout: Option<Span>,
    /// Sequence number and time of the request that waits for its response.
    pending: Option<(u64, Instant)>,
    rtt: Histogram,
    responses: u64,
    response_bytes: u64,
    unanswered: u64,
}

impl Requester {
    /// Creates a requester. A response counts as lost after `timeout`; over a reliable transport there is none.
    pub fn new(timeout: Option<Span>) -> Self {
        Requester {
            timeout,
            pending: None,
            rtt: Histogram::default(),
            responses: 0,
            response_bytes: 0,
            unanswered: 0,
        }
    }

    /// Records that a request was sent.
    pub fn record_request(&mut self, sequence: u64, now: Instant) {
        self.pending = Some((sequence, now));
    }

    /// Whether the next request must wait. Abandons the pending request after its timeout.
    pub fn must_wait(&mut self, now: Instant) -> bool {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.abandon();
        }
        self.pending.is_some()
    }

    /// Whether a request waits for its response.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns when the pending request times out.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.pending?.1 + self.timeout?)
    }

    /// Counts the pending request, if there is one, as unanswered.
    pub fn abandon(&mut self) {
        self.unanswered += u64::from(self.pending.take().is_some());
    }

    /// Records a response of `length` bytes. Returns false if it is late: its request was abandoned.
    pub fn record_response(&mut self, sequence: u64, length: u32, now: Instant) -> bool {
        let Some((_, sent_at)) = self.pending.take_if(|(pending, _)| *pending == sequence) else {
            return false;
        };
        self.rtt.record(now.since(sent_at));
        self.responses += 1;
        self.response_bytes += u64::from(length);
        true
    }

    /// Adds round-trip times and counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
        let counts = [("answers", self.responses), ("answer_bytes", self.response_bytes)];
        let unanswered = self.timeout.map(|_| ("unanswered", self.unanswered));
        let counts = counts.into_iter().chain(unanswered);
        report.counters.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn a_late_response_does_not_answer_the_next_request() {
        let mut requester = Requester::new(Some(Span::from_ms(100)));
        assert!(!requester.must_wait(at(0)));
        requester.record_request(0, at(0));
        assert!(requester.must_wait(at(99)));
        assert_eq!(requester.deadline(), Some(at(100)));
        assert!(!requester.must_wait(at(100)));
        requester.record_request(1, at(100));
        assert!(!requester.record_response(0, 40, at(110)));
        assert!(requester.record_response(1, 40, at(120)));
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        let counters = ["answers", "answer_bytes", "unanswered"].map(|name| report.counters[name]);
        assert_eq!(counters, [1.0, 40.0, 1.0]);
    }

    #[test]
    fn a_reliable_transport_has_no_timeout() {
        let mut requester = Requester::new(None);
        requester.record_request(0, at(0));
        assert!(requester.must_wait(at(1_000_000)));
        assert_eq!(requester.deadline(), None);
        let mut report = SenderReport::default();
        requester.add_to(&mut report);
        assert!(!report.counters.contains_key("unanswered"));
    }
}

//! The responding end of a test with responses: stalls, and reports of what has arrived.

use trunkline_traffic::Pattern;
use trunkline_units::{Instant, Span};

use crate::message::{Header, MAX_MESSAGE};

/// When a responder responds, and with what.
///
/// A model with the parameters `stall` and `stallEvery` stops it for the time `stall` at the end of each period: it neither
/// reads requests nor sends responses then.
#[derive(Clone, Copy, Debug)]
pub struct Responder {
    start: Instant,
    stall: Span,
    period: Span,
    /// Whether responses say how many bytes have arrived.
    reports_bytes: bool,
}

impl Responder {
    /// Creates the responder of a test that starts at `start`.
    pub fn new(pattern: &Pattern, start: Instant) -> Responder {
        let period = pattern.setting("stallEvery").map_or(Span::ZERO, Span::from_seconds);
        Responder {
            start,
            stall: stall(pattern).min(period),
            period,
            reports_bytes: pattern.setting("feedback").is_some(),
        }
    }

    /// Returns when the stall at `now` ends; `None` if there is none.
    #[inline]
    pub fn stalled_until(&self, now: Instant) -> Option<Instant> {
        if self.stall.is_zero() { None } else { self.end_of_stall(now) }
    }

    /// Returns when the stall at `now` ends, of a responder that stalls.
    fn end_of_stall(&self, now: Instant) -> Option<Instant> {
        if now < self.start {
            return None;
        }
        let periods = now.since(self.start).as_ps() / self.period.as_ps();
        let end = self.start + self.period * (periods + 1);
        (now + self.stall >= end).then_some(end)
    }

    /// Returns the header of the response of a receiver to a request. `received_bytes` are the message bytes that have arrived
    /// there.
    pub fn respond(&self, request: &Header, receiver: u32, received_bytes: u64, now: Instant) -> Header {
        let report = (received_bytes % u64::from(MAX_MESSAGE)) as u32;
        request.response(now, if self.reports_bytes { report } else { receiver })
    }
}

/// Returns for how long the responder of a test stalls at most. A response is not lost before that.
pub fn stall(pattern: &Pattern) -> Span {
    pattern.setting("stall").map_or(Span::ZERO, Span::from_seconds)
}

#[cfg(test)]
mod tests {
    use trunkline_traffic::{Application, Variable};

    use super::*;

    fn pattern(name: &str, settings: &[(&str, f64)]) -> Pattern {
        let parameters = settings.iter().map(|(n, value)| ((*n).to_owned(), Variable::Constant(*value)));
        Pattern::Application {
            model: Application::named(name).unwrap(),
            variant: None,
            size_bytes: Variable::Constant(1_400.0),
            parameters: parameters.collect(),
        }
    }

    #[test]
    fn a_stall_is_at_the_end_of_each_period() {
        let start = Instant::ZERO + Span::from_s(3);
        let responder = Responder::new(&pattern("rpc", &[("stall", 1.0), ("stallEvery", 10.0)]), start);
        let at = |ms: u64| start + Span::from_ms(ms);
        for (ms, end) in
            [(0, None), (8_999, None), (9_000, Some(10_000)), (9_999, Some(10_000)), (10_000, None)]
        {
            assert_eq!(responder.stalled_until(at(ms)), end.map(at), "{ms}");
        }
        assert_eq!(responder.stalled_until(at(59_500)), Some(at(60_000)));
        assert_eq!(responder.stalled_until(Instant::ZERO), None);
        let never = Responder::new(&pattern("rpc", &[("stall", 0.0), ("stallEvery", 10.0)]), start);
        assert_eq!(never.stalled_until(at(9_999)), None);
    }

    #[test]
    fn only_responses_to_a_model_with_reports_have_a_count() {
        let request = Header { response_length: 64, ..Header::pattern(7, Instant::ZERO, 1_200) };
        let count = |name: &str, settings: &[(&str, f64)], bytes| {
            let response = Responder::new(&pattern(name, settings), Instant::ZERO).respond(
                &request,
                0,
                bytes,
                Instant::ZERO,
            );
            assert_eq!((response.sequence, response.length), (7, 64));
            response.response_length
        };
        assert_eq!(count("rpc", &[], 5_000), 0);
        assert_eq!(count("webrtc", &[("feedback", 0.1)], 5_000), 5_000);
        assert_eq!(count("webrtc", &[("feedback", 0.1)], u64::from(MAX_MESSAGE) + 3), 3);
    }
}

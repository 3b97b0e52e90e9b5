//! Traces of rate over time: the rate is constant from each given time to the next.

use std::sync::Arc;

use trunkline_units::{Instant, Rate, Span};

/// Picoseconds in a second.
const PS: u128 = 1_000_000_000_000;

/// Rates from given times on. The first also holds before its time, the last forever. A rate may be zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSteps(Arc<[(Span, Rate)]>);

impl RateSteps {
    /// Creates a trace. The times must increase; `None` if they do not, or if every rate is zero.
    pub fn new(steps: impl Into<Arc<[(Span, Rate)]>>) -> Option<Self> {
        let steps: Arc<[(Span, Rate)]> = steps.into();
        let increase = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let has_rate = steps.iter().any(|(_, rate)| rate.as_bps() > 0);
        (increase && has_rate).then_some(RateSteps(steps))
    }

    /// Returns the step at a time and all later ones, each with its rate and when it begins.
    fn steps_from(&self, time: Instant) -> impl Iterator<Item = (Instant, u64)> {
        let since = time.since(Instant::ZERO);
        let after = self.0.partition_point(|(at, _)| *at <= since).max(1);
        self.0[after - 1..].iter().map(|(at, rate)| (Instant::ZERO + *at, rate.as_bps()))
    }

    /// Returns the earliest time from `from` on at which the rate is not zero; [`Instant::MAX`] for never.
    pub fn ready_at(&self, from: Instant) -> Instant {
        let mut steps = self.steps_from(from);
        match steps.next() {
            Some((_, bps)) if bps > 0 => from,
            _ => steps.find(|(_, bps)| *bps > 0).map_or(Instant::MAX, |(at, _)| at),
        }
    }

    /// Returns when `bytes` that begin at `from` have been sent; [`Instant::MAX`] for never.
    pub fn end(&self, mut from: Instant, bytes: u64) -> Instant {
        // In bits times picoseconds per second, so that nothing is rounded before the end.
        let mut rest = u128::from(bytes) * 8 * PS;
        let mut steps = self.steps_from(from).peekable();
        while let Some((_, bps)) = steps.next() {
            let end = steps.peek().map_or(Instant::MAX, |(at, _)| *at);
            let sent = u128::from(bps) * u128::from(end.since(from).as_ps());
            if sent >= rest {
                let ps = rest.div_ceil(u128::from(bps));
                return from + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX));
            }
            (rest, from) = (rest - sent, end);
        }
        Instant::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(steps: &[(u64, u64)]) -> Option<RateSteps> {
        let steps = steps.iter().map(|(ms, bps)| (Span::from_ms(*ms), Rate::from_bps(*bps)));
        RateSteps::new(steps.collect::<Vec<_>>())
    }

    #[test]
    fn a_frame_may_cross_steps_and_outages() {
        let ms = |ms| Instant::ZERO + Span::from_ms(ms);
        let trace = steps(&[(0, 8_000_000), (10, 0), (20, 4_000_000)]).unwrap();
        // 1,000 bytes take 1 ms, then 2 ms.
        assert_eq!(trace.end(ms(3), 1000), ms(4));
        assert_eq!(trace.end(ms(9), 3000), ms(24));
        assert_eq!(
            (trace.ready_at(ms(9)), trace.ready_at(ms(10)), trace.ready_at(ms(30))),
            (ms(9), ms(20), ms(30))
        );
        let ends = steps(&[(0, 8_000_000), (10, 0)]).unwrap();
        assert_eq!((ends.end(ms(9), 3000), ends.ready_at(ms(10))), (Instant::MAX, Instant::MAX));
        // The first rate also holds before its time.
        let late = steps(&[(5, 8_000_000), (10, 0), (15, 0), (20, 4_000_000)]).unwrap();
        assert_eq!(
            (late.ready_at(ms(1)), late.ready_at(ms(10)), late.end(ms(1), 1000)),
            (ms(1), ms(20), ms(2))
        );
        assert!(steps(&[(0, 0)]).is_none() && steps(&[(1, 5), (1, 6)]).is_none() && steps(&[]).is_none());
    }
}

//! Exchanges of time between a controller and an agent.
//!
//! The offset is estimated between the clocks `CLOCK_MONOTONIC_RAW` of both machines, whose rate is not adjusted, so that
//! their drift is bounded. Each side knows the difference between this clock and its `CLOCK_MONOTONIC`, which times the
//! messages of a test.

use trunkline_live::AgentClock;
use trunkline_live::clock_offset::{ClockOffset, Exchange};
use trunkline_live::time_exchange::TimeAnswer;
use trunkline_units::{Instant, Span};

/// Error of a conversion between the two clocks of one machine: they are not read at the same moment.
const CONVERSION_ERROR: Span = Span::from_us(2);

/// By how much the kernel slews `CLOCK_MONOTONIC` at most for a time server, in millionths: 500 for its frequency.
const MAX_SLEW_PPM: u64 = 500;

/// The clock of an agent, as its controller knows it.
#[derive(Debug, Default)]
pub struct RemoteClock {
    offset: ClockOffset,
    /// Readings of both clocks at the first exchange: the estimator counts from there.
    origin: Option<(u64, u64)>,
    monotonic_minus_raw_ns: i64,
    /// The own reading at the last exchange.
    latest_ns: u64,
}

/// Keeps readings of the estimator above zero.
const MARGIN_NS: u64 = 1_000_000_000;

impl RemoteClock {
    /// Uses an exchange: the readings of the own clock when the request was sent and when the answer arrived.
    pub fn record(&mut self, sent_ns: u64, received_ns: u64, answer: &TimeAnswer) {
        let (local, remote) = *self.origin.get_or_insert((sent_ns, answer.received_ns));
        let since = |origin: u64, ns: u64| {
            let ns = ns.checked_add(MARGIN_NS)?.checked_sub(origin)?;
            // Later readings would not fit into an instant: no machine is that old.
            (ns < u64::MAX / 1_000).then(|| Instant::from_ns(ns))
        };
        let exchange = (|| {
            Some(Exchange {
                sent: since(local, sent_ns)?,
                received_remote: since(remote, answer.received_ns)?,
                replied_remote: since(remote, answer.replied_ns)?,
                received: since(local, received_ns)?,
            })
        })();
        // A refused exchange is of no use; the next one is.
        if let Some(exchange) = exchange
            && self.offset.record(exchange).is_ok()
        {
            self.monotonic_minus_raw_ns = answer.monotonic_minus_raw_ns;
            self.latest_ns = received_ns;
        }
    }

    /// Converts a reading of the own `CLOCK_MONOTONIC` to that of the agent, by the offset at `now_ns` on the own clock
    /// `CLOCK_MONOTONIC_RAW`. `None` without a recent exchange.
    pub fn to_agent(&self, monotonic_ns: u64, now_ns: u64, own_difference_ns: i64) -> Option<AgentClock> {
        let (local, remote) = self.origin?;
        let now = Instant::from_ns((now_ns + MARGIN_NS).checked_sub(local)?);
        let estimate = self.offset.estimate(now)?;
        let offset = estimate.offset_ps.div_euclid(1_000) + i128::from(remote) - i128::from(local)
            + i128::from(self.monotonic_minus_raw_ns)
            - i128::from(own_difference_ns);
        let monotonic_ns = u64::try_from(i128::from(monotonic_ns) + offset).ok()?;
        let age_ns = now_ns.saturating_sub(self.latest_ns).min(1_000_000_000_000);
        let slewed = Span::from_ns(age_ns / 1_000_000 * MAX_SLEW_PPM);
        let bound = estimate.bound + CONVERSION_ERROR + slewed;
        Some(AgentClock { monotonic_ns, bound, steps: estimate.steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_convert_across_unequal_clocks() {
        // The agent's machine started a day later; its clocks differ by 3 ms, those of the controller by -5 ms.
        let mut clock = RemoteClock::default();
        let day = 86_400_000_000_000;
        let sent = 2 * day;
        let answer = TimeAnswer {
            received_ns: sent - day + 100_000,
            replied_ns: sent - day + 110_000,
            monotonic_minus_raw_ns: 3_000_000,
        };
        assert_eq!(clock.to_agent(sent, sent, 0), None);
        clock.record(sent, sent + 210_000, &answer);
        let converted = clock.to_agent(sent - 5_000_000, sent + 210_000, -5_000_000).unwrap();
        // The bound at the later of two instants is asymmetric by the drift between them.
        assert!(converted.monotonic_ns.abs_diff(sent - day + 3_000_000) < 100, "{converted:?}");
        assert!((100..=104).contains(&converted.bound.as_ns().div_euclid(1_000)), "{:?}", converted.bound);
        // An answer that makes no sense changes nothing.
        clock.record(sent, sent + 210_000, &TimeAnswer { received_ns: u64::MAX, ..answer });
        clock.record(sent, sent + 210_000, &TimeAnswer { received_ns: 0, ..answer });
        assert_eq!(clock.to_agent(sent - 5_000_000, sent + 210_000, -5_000_000), Some(converted));
    }
}

//! Traces of delivery opportunities, as mahimahi has them (Netravali et al. 2015): at each given time the link may send a
//! number of bytes.

use std::sync::Arc;

use trunkline_units::{Instant, Rate, Size, Span};

/// Bytes of an opportunity.
const BYTES: u32 = 1504;
/// Bytes that each packet has beside those of IP: the header of mahimahi's TUN device, which makes 1,504 of 1,500.
pub const PACKET_OVERHEAD: u32 = 4;

/// The times of the opportunities, from the start of the run, repeated forever with the last time as the period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    times: Arc<[Span]>,
    period: Span,
}

impl Opportunities {
    /// Creates a trace. The times must not decrease, and the last must not be zero; otherwise `None`.
    pub fn new(times: impl Into<Arc<[Span]>>) -> Option<Self> {
        let times: Arc<[Span]> = times.into();
        let period = *times.last()?;
        (!period.is_zero() && times.is_sorted()).then_some(Opportunities { times, period })
    }

    /// Returns the mean rate in bytes of IP, if every packet has the length of an opportunity.
    pub fn mean_rate(&self) -> Rate {
        self.mean_rate_with(PACKET_OVERHEAD)
    }

    /// Returns the mean rate if each opportunity has this many bytes of overhead.
    fn mean_rate_with(&self, overhead: u32) -> Rate {
        Rate::of(Size::from_bytes(u64::from(BYTES - overhead) * self.times.len() as u64), self.period)
    }

    fn time(&self, number: u64) -> Instant {
        let count = self.times.len() as u64;
        Instant::ZERO + self.period * (number / count) + self.times[(number % count) as usize]
    }

    /// Returns the number of the first opportunity at or after a time.
    fn first_from(&self, at: Instant) -> u64 {
        // The last opportunity of a period is at the time at which the next period begins.
        let cycle = at.as_ps().saturating_sub(1) / self.period.as_ps();
        let within = Span::from_ps(at.as_ps() - cycle * self.period.as_ps());
        cycle * self.times.len() as u64 + self.times.partition_point(|time| *time < within) as u64
    }
}

/// A transmitter that sends at the opportunities of a trace. What an opportunity has left when the queue is empty is lost;
/// a packet may take several, and several packets may share one.
#[derive(Clone, Debug)]
pub struct OpportunityTransmitter {
    trace: Opportunities,
    /// Number of the next opportunity.
    next: u64,
    /// Time of the last one, and the bytes it has left.
    at: Instant,
    left: u32,
    mean_rate: Rate,
    /// Bytes that each packet has beside its length.
    overhead: u32,
}

impl OpportunityTransmitter {
    /// Creates a transmitter before the first opportunity. A packet takes `overhead` bytes beside its length.
    pub fn new(trace: Opportunities, overhead: u32) -> Self {
        let mean_rate = trace.mean_rate_with(overhead);
        OpportunityTransmitter { trace, next: 0, at: Instant::ZERO, left: 0, mean_rate, overhead }
    }

    /// Returns the earliest time from `from` on at which a transmission can begin.
    pub fn ready_at(&mut self, from: Instant) -> Instant {
        if self.left > 0 && self.at >= from {
            return self.at;
        }
        self.left = 0;
        self.next = self.next.max(self.trace.first_from(from));
        self.trace.time(self.next)
    }

    /// Sends a packet at an opportunity; returns when its last byte leaves.
    pub fn transmit(&mut self, length: u32) -> Instant {
        let mut rest = length + self.overhead;
        while rest > 0 {
            if self.left == 0 {
                (self.at, self.left) = (self.trace.time(self.next), BYTES);
                self.next += 1;
            }
            let sent = rest.min(self.left);
            (rest, self.left) = (rest - sent, self.left - sent);
        }
        self.at
    }

    /// Returns the share of the capacity that a packet takes, as a time at the mean rate.
    pub fn busy(&self, length: u32) -> Span {
        self.mean_rate.time_for(Size::from_bytes(length.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn the_trace_repeats() {
        let trace = Opportunities::new([0, 3, 3, 10].map(Span::from_ms)).unwrap();
        let times: Vec<u64> = (0..9).map(|n| trace.time(n).as_ns() / 1_000_000).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20]);
        for (at, first) in [(0, 0), (1, 1), (3, 1), (4, 3), (10, 3), (11, 5), (20, 7), (21, 9)] {
            assert_eq!(trace.first_from(ms(at)), first, "{at}");
        }
        assert_eq!(trace.mean_rate().as_bps(), 4 * 1500 * 8 * 100);
        assert!(Opportunities::new([2, 1].map(Span::from_ms)).is_none());
        assert!(Opportunities::new([Span::ZERO]).is_none());
    }

    #[test]
    fn packets_share_opportunities_and_span_them() {
        let trace = Opportunities::new([1, 2, 5].map(Span::from_ms)).unwrap();
        let mut transmitter = OpportunityTransmitter::new(trace, PACKET_OVERHEAD);
        assert_eq!(transmitter.ready_at(Instant::ZERO), ms(1));
        assert_eq!(transmitter.transmit(500), ms(1));
        assert_eq!((transmitter.ready_at(ms(1)), transmitter.transmit(1000)), (ms(1), ms(2)));
        // The rest of the opportunity at 2 ms is lost.
        assert_eq!(transmitter.ready_at(ms(3)), ms(5));
        assert_eq!(transmitter.transmit(1500), ms(5));
        assert_eq!(transmitter.ready_at(ms(5)), ms(6));
    }
}

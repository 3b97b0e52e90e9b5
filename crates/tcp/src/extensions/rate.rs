//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, draft-ietf-ccwg-bbr section 4.1.2), and the times at
//! which paced segments leave.
//!
//! `C.delivered`, `C.delivered_time`, `C.first_send_time`, `C.lost` and `C.app_limited` of the draft are fields of
//! [`DeliveryRate`]; the same of a segment, `P`, when it was sent are its [`SendState`].

use trunkline_congestion::SinceSent;
use trunkline_units::{Instant, Rate, Size, Span};

use crate::Content;
use crate::extensions::Extensions;
use crate::tcp::{State, Tcp};

/// State of the connection when a segment was sent. Byte counts wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendState {
    /// Bytes delivered, and when the last of them was; when the last delivered segment was sent.
    delivered: u32,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u32,
    /// Bytes in flight, including the segment.
    in_flight: u32,
    app_limited: bool,
}

/// A delivery rate sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    /// None over less than the minimum round-trip time.
    pub rate: Option<Rate>,
    pub app_limited: bool,
    pub since_sent: SinceSent,
}

/// State of the measurement of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryRate {
    /// Whether the controller needs it; then its pace is kept too.
    pub(crate) is_measured: bool,
    now: SendState,
    /// The application limits the rate until more than this is delivered.
    limited_until: u32,
}

impl DeliveryRate {
    /// Returns the state to store with a segment that is sent. `others` are the bytes in flight without it.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, length: u32, others: u32) -> SendState {
        if !self.is_measured {
            return SendState::default();
        }
        if others == 0 {
            (self.now.delivered_at, self.now.first_sent_at) = (now, now);
        }
        SendState { in_flight: others + length, ..self.now }
    }

    /// Processes an acknowledgement of so many bytes. The last segment of them was sent at `sent_at` in this state.
    pub(crate) fn on_delivery(
        &mut self,
        now: Instant,
        bytes: u32,
        (sent_at, state): (Instant, &SendState),
        min_rtt: Option<Span>,
    ) -> RateSample {
        if !self.is_measured {
            return RateSample::default();
        }
        self.now.delivered = self.now.delivered.wrapping_add(bytes);
        (self.now.delivered_at, self.now.first_sent_at) = (now, sent_at);
        self.now.app_limited &= self.limited_until.wrapping_sub(self.now.delivered) as i32 >= 0;
        let since_sent = self.since(state);
        let interval = sent_at.since(state.first_sent_at).max(now.since(state.delivered_at));
        // Over less than a round trip the rate measures aggregation.
        let is_reliable = !interval.is_zero() && min_rtt.is_none_or(|min_rtt| interval >= min_rtt);
        let delivered = Size::from_bytes(since_sent.delivered.into());
        RateSample {
            rate: is_reliable.then(|| Rate::of(delivered, interval)),
            app_limited: state.app_limited,
            since_sent,
        }
    }

    /// Counts lost bytes; returns what has happened since the last of them was sent, in this state.
    pub(crate) fn on_lost(&mut self, bytes: u32, state: Option<&SendState>) -> SinceSent {
        self.now.lost = self.now.lost.wrapping_add(bytes);
        state.map_or(SinceSent::default(), |state| self.since(state))
    }

    fn since(&self, state: &SendState) -> SinceSent {
        SinceSent {
            delivered: self.now.delivered.wrapping_sub(state.delivered),
            lost: self.now.lost.wrapping_sub(state.lost),
            in_flight: state.in_flight,
        }
    }

    /// Notes that the application has nothing to send while the window has room. What is sent until `in_flight` bytes are
    /// delivered measures the application.
    fn mark_app_limited(&mut self, in_flight: u32) {
        (self.now.app_limited, self.limited_until) = (true, self.now.delivered.wrapping_add(in_flight));
    }
}

impl Extensions {
    /// Delays the next segment after one of `length` bytes leaves now, if the controller paces.
    #[inline]
    pub(crate) fn pace(&mut self, now: Instant, length: u32) {
        if self.scoreboard.rate.is_measured
            && let Some(rate) = self.controller.pace()
        {
            self.departure = self.departure.max(now) + rate.time_for(Size::from_bytes(length.into()));
        }
    }
}

impl<C: Content> Tcp<C> {
    /// Returns when the next segment with data may leave, if that is later than now and there is one.
    #[inline]
    pub(crate) fn next_departure(&self, now: Instant) -> Option<Instant> {
        let e = self.extensions.as_deref()?;
        if e.departure <= now || e.burst.remaining > 0 || self.force || self.state >= State::FinWait2 {
            return None;
        }
        let has_data = self.queued > self.snd_max.since(self.snd_una) || e.scoreboard.awaiting() > 0;
        has_data.then_some(e.departure)
    }

    /// Notes whether the application limits the rate: all its data is sent, nothing is lost, and the window has room.
    #[inline]
    pub(crate) fn check_app_limited(&mut self) {
        let is_all_sent = self.queued <= self.snd_max.since(self.snd_una);
        let Some(e) = self.extensions.as_deref_mut().filter(|e| e.scoreboard.rate.is_measured && is_all_sent)
        else {
            return;
        };
        let pipe = e.scoreboard.pipe();
        if e.scoreboard.awaiting() == 0 && pipe < e.window() {
            e.scoreboard.rate.mark_app_limited(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// Sends ten segments a millisecond apart.
    fn sent(rate: &mut DeliveryRate) -> Vec<(Instant, SendState)> {
        (0..10).map(|n| (at(n), rate.on_sent(at(n), MSS, n as u32 * MSS))).collect()
    }

    fn delivered(rate: &mut DeliveryRate, ms: u64, sent: &(Instant, SendState)) -> RateSample {
        rate.on_delivery(at(ms), MSS, (sent.0, &sent.1), Some(Span::from_ms(20)))
    }

    #[test]
    fn rate_is_what_arrives_in_a_round_trip() {
        let mut rate = DeliveryRate { is_measured: true, ..DeliveryRate::default() };
        let segments = sent(&mut rate);
        // They arrive two milliseconds apart.
        let samples: Vec<_> =
            segments.iter().zip(0..).map(|(s, n)| delivered(&mut rate, 20 + 2 * n, s)).collect();
        assert_eq!(samples[0].rate, Some(Rate::from_bps(1_000 * 8 * 1_000 / 20)));
        assert_eq!(samples[9].since_sent, SinceSent { delivered: 10 * MSS, lost: 0, in_flight: 10 * MSS });
        let next = (at(38), rate.on_sent(at(38), MSS, 0));
        assert_eq!(delivered(&mut rate, 58, &next).rate, Some(Rate::from_bps(400_000)));
    }

    /// An acknowledgement that was held back makes the next ones look fast.
    #[test]
    fn less_than_a_round_trip_is_no_sample() {
        let mut rate = DeliveryRate { is_measured: true, ..DeliveryRate::default() };
        let segments = sent(&mut rate);
        delivered(&mut rate, 20, &segments[0]);
        let second = (at(25), rate.on_sent(at(25), MSS, 9 * MSS));
        let sample = |min_rtt| {
            { rate }.on_delivery(at(39), MSS, (second.0, &second.1), Some(Span::from_ms(min_rtt))).rate
        };
        assert_eq!((sample(26), sample(25)), (None, Some(Rate::from_bps(320_000))));
    }

    #[test]
    fn application_limits_what_is_sent_until_the_gap_is_delivered() {
        let mut rate = DeliveryRate { is_measured: true, ..DeliveryRate::default() };
        let first = (at(0), rate.on_sent(at(0), MSS, 0));
        rate.mark_app_limited(MSS);
        let second = (at(5), rate.on_sent(at(5), MSS, MSS));
        let limited = [&first, &second].map(|sent| delivered(&mut rate, 25, sent).app_limited);
        assert_eq!(limited, [false, true]);
        let third = (at(30), rate.on_sent(at(30), MSS, 0));
        assert!(!delivered(&mut rate, 60, &third).app_limited);
    }

    #[test]
    fn losses_since_sending_are_counted() {
        let mut rate = DeliveryRate { is_measured: true, ..DeliveryRate::default() };
        let segments = sent(&mut rate);
        assert_eq!(rate.on_lost(2 * MSS, Some(&segments[3].1)).lost, 2 * MSS);
        let later = (at(30), rate.on_sent(at(30), MSS, 8 * MSS));
        assert_eq!(
            rate.on_lost(MSS, Some(&later.1)),
            SinceSent { delivered: 0, lost: MSS, in_flight: 9 * MSS }
        );
    }
}

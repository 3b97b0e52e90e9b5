//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, draft-ietf-ccwg-bbr section 4.1.2), and the times at
//! which paced segments leave.
//!
//! `C.delivered`, `C.delivered_time`, `C.first_send_time`, `C.lost` and `C.app_limited` of the draft are fields of
//! [`DeliveryRate`]; the same of a segment, `P`, when it was sent are its [`SendState`].

use trunkline_congestion::SinceSent;
use trunkline_units::{Instant, Rate, Size, Span};

use crate::Content;
use crate::extensions::Extensions;
use crate::extensions::scoreboard::{Delivery, Losses};
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
    now: SendState,
    /// The application limits the rate until more than this is delivered.
    limited_until: u32,
}

impl DeliveryRate {
    /// Returns the state to store with a segment that is sent. `others` are the bytes in flight without it.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, length: u32, others: u32) -> SendState {
        if others == 0 {
            (self.now.delivered_at, self.now.first_sent_at) = (now, now);
        }
        SendState { in_flight: others + length, ..self.now }
    }

    /// Processes what an acknowledgement reports.
    pub(crate) fn on_delivery(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        min_rtt: Option<Span>,
    ) -> RateSample {
        let Some(newest) = &delivery.newest else { return RateSample::default() };
        self.now.delivered = self.now.delivered.wrapping_add(delivery.bytes);
        (self.now.delivered_at, self.now.first_sent_at) = (now, newest.sent_at);
        self.now.app_limited &= self.limited_until.wrapping_sub(self.now.delivered) as i32 >= 0;
        let since_sent = self.since(&newest.state);
        let sent_over = newest.sent_at.since(newest.state.first_sent_at);
        let interval = sent_over.max(now.since(newest.state.delivered_at));
        // Over less than a round trip the rate measures aggregation.
        let is_reliable = !interval.is_zero() && min_rtt.is_none_or(|min_rtt| interval >= min_rtt);
        let delivered = Size::from_bytes(since_sent.delivered.into());
        RateSample {
            rate: is_reliable.then(|| Rate::of(delivered, interval)),
            app_limited: newest.state.app_limited,
            since_sent,
        }
    }

    /// Counts lost bytes; returns what has happened since the last of them was sent.
    pub(crate) fn on_lost(&mut self, losses: &Losses) -> SinceSent {
        self.now.lost = self.now.lost.wrapping_add(losses.bytes);
        losses.state.map_or(SinceSent::default(), |state| self.since(&state))
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
        if self.paces
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
        if e.departure <= now || self.force || self.state >= State::FinWait2 {
            return None;
        }
        let has_data = self.queued > self.snd_max.since(self.snd_una) || e.scoreboard.awaiting() > 0;
        has_data.then_some(e.departure)
    }

    /// Notes whether the application limits the rate: all its data is sent, nothing is lost, and the window has room.
    #[inline]
    pub(crate) fn check_app_limited(&mut self) {
        let is_all_sent = self.queued <= self.snd_max.since(self.snd_una);
        let Some(e) = self.extensions.as_deref_mut().filter(|e| e.paces && is_all_sent) else { return };
        let pipe = e.scoreboard.pipe();
        if e.scoreboard.awaiting() == 0 && pipe < e.window() {
            e.scoreboard.rate.mark_app_limited(pipe);
        }
    }
}

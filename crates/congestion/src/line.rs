//! A model of a bottleneck link for the tests of controllers: rate, queue, delay, and random loss.
//!
//! Frames stay in order, so a frame is lost when a later one is acknowledged. The sender always has data. Lost frames
//! are not retransmitted: for these tests a new frame is equivalent.

use std::collections::VecDeque;

use trunkline_units::{Instant, Rate, Seed, Size, Span, Stream};

use crate::{Acknowledgement, Controller, Loss, MIN_RTT_WINDOW, SinceSent, Transmission, WindowedMin};

/// Bytes of each frame.
pub(crate) const FRAME: u64 = 1472;

pub(crate) fn at(us: u64) -> Instant {
    Instant::ZERO + Span::from_us(us)
}

/// An acknowledgement of frames sent a millisecond ago.
pub(crate) fn acked(us: u64, frames: u32, mbps: u64, app_limited: bool) -> Acknowledgement {
    Acknowledgement {
        now: at(us),
        amount: frames,
        bytes: u64::from(frames) * FRAME,
        marked: 0,
        in_flight: frames,
        round_trip: Some(Span::from_ms(1)),
        rate: Some(Rate::from_bps(mbps * 1_000_000)),
        app_limited,
        since_sent: SinceSent::default(),
        in_recovery: false,
        peer_amount: 0,
        sent_at: at(us.saturating_sub(1_000)),
    }
}

/// A loss of frames sent a millisecond ago.
pub(crate) fn lost(us: u64, frames: u32, timeout: bool) -> Loss {
    let bytes = u64::from(frames) * FRAME;
    Loss {
        now: at(us),
        amount: frames,
        bytes,
        sent_at: at(us.saturating_sub(1_000)),
        in_flight: frames,
        timeout,
        since_sent: SinceSent::default(),
    }
}

/// Properties of a bottleneck link, which all its flows share.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Rate in bits per second.
    pub rate: u64,
    /// Round-trip time without queueing.
    pub delay_us: u64,
    /// Size of the queue in bytes.
    pub queue: u64,
    /// Depth of the token bucket in bytes: the burst that passes at once after an idle period.
    pub bucket: u64,
    /// Share of frames that are lost after they passed the queue.
    pub loss: f64,
    /// Share of acknowledgements that are lost.
    pub ack_loss: f64,
    /// Frames per acknowledgement, unless `ack_delay_us` expires first.
    pub ack_every: usize,
    pub ack_delay_us: u64,
    /// Frames per batch.
    pub batch: u32,
    /// Time in seconds of a change of the rate, and the new rate.
    pub rate_change: (f64, u64),
    /// Period and duration of stalls of the receiver.
    pub stalls_us: (u64, u64),
    /// Interval in seconds in which the link loses everything.
    pub outage: (f64, f64),
    pub seed: u64,
}

impl Default for Line {
    fn default() -> Self {
        Line {
            rate: 100_000_000,
            delay_us: 1_000,
            queue: 1_000_000,
            bucket: 0,
            loss: 0.0,
            ack_loss: 0.0,
            ack_every: 3,
            ack_delay_us: 100,
            batch: 1,
            rate_change: (f64::INFINITY, 0),
            stalls_us: (1, 0),
            outage: (0.0, 0.0),
            seed: 1996,
        }
    }
}

/// Round-trip time and timeout (RFC 6298), like a sender that probes before it declares frames lost.
struct RoundTrip {
    smoothed: Span,
    variation: Span,
    min: WindowedMin,
}

impl Default for RoundTrip {
    fn default() -> Self {
        RoundTrip { smoothed: Span::ZERO, variation: Span::ZERO, min: WindowedMin::new(MIN_RTT_WINDOW) }
    }
}

impl RoundTrip {
    fn sample(&mut self, now: Instant, round_trip: Span) {
        if self.min.get().is_none() {
            (self.smoothed, self.variation) = (round_trip, round_trip / 2);
        } else {
            let error = round_trip.max(self.smoothed) - round_trip.min(self.smoothed);
            self.variation = (self.variation * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + round_trip) / 8;
        }
        self.min.sample(now, round_trip);
    }

    /// Returns the timeout after `count` consecutive timeouts.
    fn backoff(&self, ack_delay: Span, count: u32) -> Span {
        let bound = |span: Span| span.max(Span::from_ms(20)).min(Span::from_s(60));
        let plain = match self.min.get() {
            None => Span::from_ms(200),
            Some(_) => self.smoothed + (self.variation * 4).max(Span::from_us(50)) + ack_delay,
        };
        bound(bound(plain) * 1u64.checked_shl(count).unwrap_or(u64::MAX))
    }
}

/// A frame in flight.
struct Outstanding {
    number: u64,
    sent_at: Instant,
    /// Delivery state at the time of transmission: bytes acknowledged, the time of the last acknowledgement, and the
    /// time when the last acknowledged frame was sent.
    acked_bytes: u64,
    acked_at: Instant,
    first_sent_at: Instant,
    /// Frames in flight, with it, and frames declared lost before.
    in_flight: u32,
    lost: u32,
}

struct AckInTransit {
    arrives_at: Instant,
    numbers: Vec<u64>,
    /// Delay of the acknowledgement of the last frame.
    delay: Span,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    sent: u64,
    pub delivered: u64,
    /// Frames that found the queue full.
    overflowed: u64,
}

/// A sender and its receiver.
pub(crate) struct Flow {
    controller: Box<dyn Controller>,
    outstanding: VecDeque<Outstanding>,
    /// Earliest time of the next transmission according to the pace.
    next_send: Instant,
    /// Current delivery state, see [`Outstanding`].
    acked_bytes: u64,
    acked_at: Instant,
    first_sent_at: Instant,
    lost: u32,
    round_trip: RoundTrip,
    /// Start of the retransmission timer.
    timer_from: Instant,
    timeouts_in_a_row: u32,
    // State of the receiver.
    unacknowledged: Vec<u64>,
    /// Start of the acknowledgement timer.
    ack_timer_from: Instant,
    last_arrival: Instant,
    acks: VecDeque<AckInTransit>,
    // Results.
    pub total: Counts,
    pub second_half: Counts,
    pub timeouts: u64,
    /// Minimum of the controller's window.
    pub min_window: u32,
}

impl Flow {
    pub(crate) fn new(controller: Box<dyn Controller>) -> Flow {
        Flow::starting(controller, Instant::ZERO)
    }

    pub(crate) fn starting(controller: Box<dyn Controller>, at: Instant) -> Flow {
        Flow {
            controller,
            outstanding: VecDeque::new(),
            next_send: at,
            acked_bytes: 0,
            acked_at: at,
            first_sent_at: at,
            lost: 0,
            round_trip: RoundTrip::default(),
            timer_from: at,
            timeouts_in_a_row: 0,
            unacknowledged: Vec::new(),
            ack_timer_from: Instant::MAX,
            last_arrival: Instant::ZERO,
            acks: VecDeque::new(),
            total: Counts::default(),
            second_half: Counts::default(),
            timeouts: 0,
            min_window: u32::MAX,
        }
    }

    fn in_flight(&self) -> u32 {
        self.outstanding.len() as u32
    }

    fn since(&self, frame: &Outstanding, delivered: u32) -> SinceSent {
        SinceSent { delivered, lost: self.lost - frame.lost, in_flight: frame.in_flight }
    }

    fn window(&mut self) -> u32 {
        let window = self.controller.window();
        self.min_window = self.min_window.min(window);
        assert!(window > 0, "the window of a controller is 0");
        window
    }
}

pub(crate) struct LineResult {
    pub flows: Vec<Flow>,
    seconds: f64,
    rate: u64,
    /// Mean queue length in bytes as seen by arriving frames.
    pub mean_queue: f64,
}

impl LineResult {
    fn sum(&self, count: fn(&Flow) -> u64) -> f64 {
        self.flows.iter().map(count).sum::<u64>() as f64
    }

    /// Returns the utilization of the link: its share of the (first) rate.
    pub(crate) fn utilization(&self) -> f64 {
        self.sum(|flow| flow.total.delivered * FRAME * 8) / (self.rate as f64 * self.seconds)
    }

    /// Returns the same for the second half of the run.
    pub(crate) fn utilization_second_half(&self) -> f64 {
        self.sum(|flow| flow.second_half.delivered * FRAME * 8) / (self.rate as f64 * self.seconds / 2.0)
    }

    /// Returns the share of frames that found the queue full.
    pub(crate) fn overflow_share(&self) -> f64 {
        self.sum(|flow| flow.total.overflowed) / self.sum(|flow| flow.total.sent)
    }

    /// Returns the same for the second half of the run.
    pub(crate) fn overflow_share_second_half(&self) -> f64 {
        self.sum(|flow| flow.second_half.overflowed) / self.sum(|flow| flow.second_half.sent)
    }
}

struct LineState<'a> {
    line: &'a Line,
    random: Stream,
    /// When the last queued frame will have left.
    busy_until: Instant,
    end: Instant,
    /// Sum and number of the queue lengths in bytes that arriving frames saw.
    queue_samples: (f64, u64),
}

impl Line {
    pub(crate) fn run(&self, seconds: f64, flows: Vec<Flow>) -> LineResult {
        let mut result = LineResult { flows, seconds, rate: self.rate, mean_queue: 0.0 };
        let mut state = LineState {
            line: self,
            random: Seed(self.seed).stream("line"),
            busy_until: Instant::ZERO,
            end: Instant::ZERO + Span::from_seconds(seconds),
            queue_samples: (0.0, 0),
        };
        let mut now = Instant::ZERO;
        loop {
            let next = result.flows.iter_mut().enumerate().map(|(n, flow)| {
                let (at, event) = state.next(flow, now);
                (at, n, event)
            });
            let (at, n, event) = next.min_by_key(|next| next.0).expect("a flow");
            now = at;
            if now > state.end {
                result.mean_queue = state.queue_samples.0 / state.queue_samples.1.max(1) as f64;
                return result;
            }
            let flow = &mut result.flows[n];
            match event {
                LineEvent::Ack => state.acknowledge(flow, now),
                LineEvent::SendAck => state.send_ack(flow, now),
                LineEvent::Timeout => state.timeout(flow, now),
                LineEvent::Send => state.send(flow, now),
            }
        }
    }
}

enum LineEvent {
    /// An acknowledgement arrives at the sender.
    Ack,
    /// The receiver's acknowledgement timer expires.
    SendAck,
    /// The retransmission timer expires.
    Timeout,
    Send,
}

impl LineState<'_> {
    fn next(&self, flow: &mut Flow, now: Instant) -> (Instant, LineEvent) {
        let ack_delay = Span::from_us(self.line.ack_delay_us);
        let ack = flow.acks.front().map_or(Instant::MAX, |ack| ack.arrives_at);
        let send_ack_at = match flow.unacknowledged.is_empty() {
            true => Instant::MAX,
            false => flow.ack_timer_from + ack_delay,
        };
        let timeout = match flow.outstanding.is_empty() {
            true => Instant::MAX,
            false => flow.timer_from + flow.round_trip.backoff(ack_delay, flow.timeouts_in_a_row),
        };
        let send = if flow.in_flight() < flow.window() { flow.next_send.max(now) } else { Instant::MAX };
        [
            (ack, LineEvent::Ack),
            (send_ack_at, LineEvent::SendAck),
            (timeout, LineEvent::Timeout),
            (send, LineEvent::Send),
        ]
        .into_iter()
        .min_by_key(|next| next.0)
        .expect("four")
    }

    fn send(&mut self, flow: &mut Flow, now: Instant) {
        let frames = (flow.window() - flow.in_flight()).min(self.line.batch);
        if flow.outstanding.is_empty() {
            (flow.acked_at, flow.first_sent_at, flow.timer_from) = (now, now, now);
        }
        for _ in 0..frames {
            let number = flow.total.sent;
            flow.total.sent += 1;
            flow.outstanding.push_back(Outstanding {
                number,
                sent_at: now,
                acked_bytes: flow.acked_bytes,
                acked_at: flow.acked_at,
                first_sent_at: flow.first_sent_at,
                in_flight: flow.in_flight() + 1,
                lost: flow.lost,
            });
            self.transmit(flow, now, number);
        }
        let bytes = u64::from(frames) * FRAME;
        flow.controller.on_sent(&Transmission { now, amount: frames, bytes, in_flight: flow.in_flight() });
        let gap = flow.controller.pace().map_or(Span::ZERO, |pace| pace.time_for(Size::from_bytes(bytes)));
        flow.next_send = now + gap;
    }

    /// Passes a frame through queue, link and receiver.
    fn transmit(&mut self, flow: &mut Flow, now: Instant, number: u64) {
        let rate =
            if now.as_s() < self.line.rate_change.0 { self.line.rate } else { self.line.rate_change.1 };
        let in_second_half = u64::from(now.as_s() > self.end.as_s() / 2.0);
        flow.second_half.sent += in_second_half;
        let queued_bytes = self.busy_until.since(now).as_s() * rate as f64 / 8.0;
        self.queue_samples.0 += queued_bytes;
        self.queue_samples.1 += 1;
        if queued_bytes > self.line.queue as f64 {
            flow.total.overflowed += 1;
            flow.second_half.overflowed += in_second_half;
            return;
        }
        let rate = Rate::from_bps(rate);
        let bucket_floor = now - rate.time_for(Size::from_bytes(self.line.bucket));
        self.busy_until = self.busy_until.max(bucket_floor) + rate.time_for(Size::from_bytes(FRAME));
        let in_outage = (self.line.outage.0..self.line.outage.1).contains(&now.as_s());
        if self.random.chance(self.line.loss) || in_outage {
            return;
        }
        let arrives_at = self.busy_until.max(now) + Span::from_us(self.line.delay_us) / 2;
        if arrives_at <= self.end {
            flow.total.delivered += 1;
            flow.second_half.delivered += u64::from(arrives_at.as_s() > self.end.as_s() / 2.0);
        }
        // The arrival time is known in advance, so acknowledgements that are due before it are sent first.
        let delay = Span::from_us(self.line.ack_delay_us);
        if !flow.unacknowledged.is_empty() && arrives_at > flow.ack_timer_from + delay {
            self.send_ack(flow, flow.ack_timer_from + delay);
        }
        if flow.unacknowledged.is_empty() {
            flow.ack_timer_from = arrives_at;
        }
        flow.unacknowledged.push(number);
        flow.last_arrival = arrives_at;
        if flow.unacknowledged.len() >= self.line.ack_every {
            self.send_ack(flow, arrives_at);
        }
    }

    /// Sends an acknowledgement. If it is lost, the next one covers its frames.
    fn send_ack(&mut self, flow: &mut Flow, now: Instant) {
        if self.random.chance(self.line.ack_loss) {
            flow.ack_timer_from = now;
            return;
        }
        let numbers = std::mem::take(&mut flow.unacknowledged);
        let (every, stall) = self.line.stalls_us;
        let since_stall = Span::from_ps(now.as_ps() % Span::from_us(every).as_ps());
        let resumes_at = now + (Span::from_us(stall) - since_stall);
        let arrives_at = resumes_at + Span::from_us(self.line.delay_us) / 2;
        flow.acks.push_back(AckInTransit { arrives_at, numbers, delay: now.since(flow.last_arrival) });
    }

    fn acknowledge(&mut self, flow: &mut Flow, now: Instant) {
        let ack = flow.acks.pop_front().expect("an acknowledgement");
        let (mut frames, mut lost) = (0, 0);
        let mut last_lost: Option<Outstanding> = None;
        let in_flight = flow.in_flight();
        let mut last = None;
        for number in ack.numbers {
            while let Some(front) = flow.outstanding.front() {
                if front.number > number {
                    break;
                }
                let frame = flow.outstanding.pop_front().expect("a front");
                if frame.number == number {
                    frames += 1;
                    last = Some(frame);
                    break;
                }
                lost += 1;
                last_lost = Some(frame);
            }
        }
        flow.lost += lost;
        // All its frames were declared lost before.
        let Some(last) = last else { return };
        let bytes = u64::from(frames) * FRAME;
        flow.acked_bytes += bytes;
        flow.acked_at = now;
        flow.first_sent_at = last.sent_at;
        (flow.timer_from, flow.timeouts_in_a_row) = (now, 0);
        let round_trip = now.since(last.sent_at) - ack.delay;
        flow.round_trip.sample(now, round_trip);
        let interval = now.since(last.acked_at).max(last.sent_at.since(last.first_sent_at));
        // Over less than a round trip the rate measures aggregation, not the link.
        let spans_round_trip = Some(interval) >= flow.round_trip.min.get();
        let acked_bytes = Size::from_bytes(flow.acked_bytes - last.acked_bytes);
        let since_sent = flow.since(&last, (acked_bytes.as_bytes() / FRAME) as u32);
        let rate = spans_round_trip.then(|| Rate::of(acked_bytes, interval));
        flow.controller.on_ack(&Acknowledgement {
            now,
            amount: frames,
            bytes,
            marked: 0,
            in_flight,
            round_trip: Some(round_trip),
            rate,
            app_limited: false,
            since_sent,
            in_recovery: false,
            peer_amount: 0,
            sent_at: last.sent_at,
        });
        if let Some(last) = last_lost {
            let since_sent = flow.since(&last, 0);
            flow.controller.on_lost(&Loss {
                now,
                amount: lost,
                bytes: u64::from(lost) * FRAME,
                sent_at: last.sent_at,
                in_flight: in_flight - frames,
                timeout: false,
                since_sent,
            });
        }
    }

    fn timeout(&mut self, flow: &mut Flow, now: Instant) {
        let in_flight = flow.in_flight();
        let sent_at = flow.outstanding.back().expect("something in flight").sent_at;
        flow.outstanding.clear();
        flow.timeouts += 1;
        flow.timeouts_in_a_row += 1;
        flow.next_send = now;
        let bytes = u64::from(in_flight) * FRAME;
        flow.lost += in_flight;
        let since_sent = SinceSent::default();
        flow.controller.on_lost(&Loss {
            now,
            amount: in_flight,
            bytes,
            sent_at,
            in_flight,
            timeout: true,
            since_sent,
        });
    }
}

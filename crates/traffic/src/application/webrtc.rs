//! Interactive video whose rate follows a simplified Google Congestion Control, draft-ietf-rmcat-gcc-02.
//!
//! What is there: the loss-based controller of section 6; of the delay-based one the adaptive threshold of section 5.4 and the
//! rate control of section 5.5. What differs: delay gradients are taken from one packet a report, not from all packets, and are
//! smoothed by a constant, not by the Kalman filter of section 5.3; the increase is always multiplicative; the rate received is
//! that between two reports; frames are not paced.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use super::definition::values::constant;
use super::{Definition, Draws, Item, Model, Next, Outcome, Parameter, QuantityId, Unit};

pub(super) static WEBRTC: Definition = Definition {
    name: "webrtc",
    summary: "Interactive video: frames at a rate that a simplified Google Congestion Control (draft-ietf-rmcat-gcc-02) derives from reports of loss and delay.",
    choice: None,
    parameters: &[
        Parameter::new("fps", "frames a second", Unit::Count, || constant(30.0), "a choice").constant(),
        Parameter::new("packet", "longest packet", Unit::Bytes, || constant(1_200.0), "libwebrtc")
            .at_most("messagesize"),
        Parameter::new(
            "feedback",
            "time between reports, which the last packet of a frame requests",
            Unit::Seconds,
            || constant(0.1),
            "libwebrtc: 50 ms to 250 ms",
        )
        .constant(),
        Parameter::new("report", "a report", Unit::Bytes, || constant(64.0), "a choice").constant(),
        Parameter::new("minRate", "lowest rate", Unit::BitsPerSecond, || constant(50e3), "a choice")
            .at_most("startRate"),
        Parameter::new("startRate", "first rate", Unit::BitsPerSecond, || constant(300e3), "libwebrtc")
            .at_most("maxRate"),
        Parameter::new("maxRate", "highest rate", Unit::BitsPerSecond, || constant(2.5e6), "a choice")
            .constant(),
        Parameter::new(
            "maxOutstanding",
            "reports that may be awaited",
            Unit::Count,
            || constant(100.0),
            "a choice",
        )
        .constant(),
    ],
    max_outstanding: 100,
    needs_stream: false,
    start: |start, draws| Box::new(WebRtc::new(start, draws)),
};

/// Decrease and increase: draft-ietf-rmcat-gcc-02, section 5.5 (β, η, 1.5) and section 6.
const DECREASE: f64 = 0.85;
const INCREASE_PER_S: f64 = 1.08;
const LARGEST_RATIO: f64 = 1.5;
const LOW_LOSS: f64 = 0.02;
const HIGH_LOSS: f64 = 0.10;
const LOSS_INCREASE: f64 = 1.05;
/// The threshold of a gradient, ms, and its gains for 1 ms: section 5.4.
const FIRST_THRESHOLD_MS: f64 = 12.5;
const THRESHOLDS_MS: (f64, f64) = (6.0, 600.0);
const GAIN_UP: f64 = 0.01;
const GAIN_DOWN: f64 = 0.00018;
/// A gradient further above the threshold than this does not change it: section 5.4.
const LARGEST_STEP_MS: f64 = 15.0;
/// Share of the latest gradient in the smoothed one.
const SMOOTHING: f64 = 0.5;
/// Received bytes are counted modulo this.
const BYTES_MODULUS: u32 = 1 << 30;

#[derive(Debug)]
struct WebRtc {
    packet: QuantityId,
    report: QuantityId,
    fps: f64,
    packet_bytes: u32,
    feedback: Span,
    start: Instant,
    frames: u64,
    due: Instant,
    /// Packets of the current frame that are still to be sent, and their length.
    packets: u32,
    bytes: u32,
    last_request: Option<Instant>,
    requests: u64,
    sent_bytes: u64,
    /// Requests for reports: their number, and the bytes sent with and before them.
    awaited: VecDeque<(u64, u64)>,
    controller: Controller,
    /// Sum of the rates of all frames.
    rates: f64,
    reports: u64,
}

/// What a report says.
#[derive(Clone, Copy, Debug)]
struct Report {
    sent_bytes: u64,
    received_bytes: u32,
    at: Instant,
    /// Delay of the packet that requested it, in milliseconds; the clocks may differ by a constant.
    delay_ms: f64,
}

/// State of the delay-based control, section 5.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Increase,
    Hold,
    Decrease,
}

/// The rate controller.
#[derive(Debug)]
struct Controller {
    min: f64,
    max: f64,
    /// The rate, and that of the delay-based control alone, bits per second.
    rate: f64,
    delay_rate: f64,
    state: State,
    gradient_ms: f64,
    threshold_ms: f64,
    last: Option<Report>,
    overuses: u64,
}

impl Controller {
    fn new(min: f64, start: f64, max: f64) -> Controller {
        Controller {
            min,
            max,
            rate: start,
            delay_rate: start,
            state: State::Increase,
            gradient_ms: 0.0,
            threshold_ms: FIRST_THRESHOLD_MS,
            last: None,
            overuses: 0,
        }
    }

    fn update(&mut self, report: Report) {
        let Some(last) = self.last.replace(report) else { return };
        let elapsed = report.at.since(last.at).as_s();
        let sent = report.sent_bytes - last.sent_bytes;
        if elapsed <= 0.0 || sent == 0 {
            return;
        }
        let received = report.received_bytes.wrapping_sub(last.received_bytes) % BYTES_MODULUS;
        let loss = (1.0 - f64::from(received) / sent as f64).max(0.0);
        let received_bps = f64::from(received) * 8.0 / elapsed;
        self.update_delay(report.delay_ms - last.delay_ms, elapsed, received_bps);
        let by_loss = match loss {
            loss if loss > HIGH_LOSS => self.rate * (1.0 - 0.5 * loss),
            loss if loss < LOW_LOSS => self.rate * LOSS_INCREASE,
            _ => self.rate,
        };
        self.rate = by_loss.min(self.delay_rate).clamp(self.min, self.max);
    }

    /// Sections 5.4 and 5.5.
    fn update_delay(&mut self, gradient_ms: f64, elapsed: f64, received_bps: f64) {
        self.gradient_ms += SMOOTHING * (gradient_ms - self.gradient_ms);
        let size = self.gradient_ms.abs();
        let (is_over, is_under) =
            (self.gradient_ms > self.threshold_ms, self.gradient_ms < -self.threshold_ms);
        if size - self.threshold_ms < LARGEST_STEP_MS {
            let gain = if size > self.threshold_ms { GAIN_UP } else { GAIN_DOWN };
            let step = (elapsed * 1e3 * gain).min(1.0) * (size - self.threshold_ms);
            self.threshold_ms = (self.threshold_ms + step).clamp(THRESHOLDS_MS.0, THRESHOLDS_MS.1);
        }
        self.state = match self.state {
            _ if is_over => State::Decrease,
            _ if is_under => State::Hold,
            State::Decrease => State::Hold,
            State::Hold | State::Increase => State::Increase,
        };
        match self.state {
            State::Decrease => {
                self.overuses += 1;
                self.delay_rate = DECREASE * received_bps;
            }
            State::Increase => {
                let grown = self.delay_rate * libm::pow(INCREASE_PER_S, elapsed.min(1.0));
                // A rate that is not used is no evidence of what the path carries.
                let limit = (LARGEST_RATIO * received_bps).max(self.delay_rate.min(self.rate));
                self.delay_rate = grown.min(limit);
            }
            State::Hold => {}
        }
        self.delay_rate = self.delay_rate.clamp(self.min, self.max);
    }
}

impl WebRtc {
    fn new(start: Instant, draws: &Draws) -> WebRtc {
        let [min, first, max] = ["minRate", "startRate", "maxRate"].map(|name| draws.constant(name));
        WebRtc {
            packet: draws.id("packet"),
            report: draws.id("report"),
            fps: draws.constant("fps"),
            packet_bytes: draws.constant("packet") as u32,
            feedback: Span::from_seconds(draws.constant("feedback")),
            start,
            frames: 0,
            due: start,
            packets: 0,
            bytes: 0,
            last_request: None,
            requests: 0,
            sent_bytes: 0,
            awaited: VecDeque::new(),
            controller: Controller::new(min, first, max),
            rates: 0.0,
            reports: 0,
        }
    }

    /// Begins the next frame: packets of equal length.
    fn begin_frame(&mut self) {
        self.due = self.start + Span::from_seconds(self.frames as f64 / self.fps);
        self.frames += 1;
        self.rates += self.controller.rate;
        let bytes = (self.controller.rate / self.fps / 8.0).clamp(1.0, 1e9) as u32;
        self.packets = bytes.div_ceil(self.packet_bytes);
        self.bytes = bytes.div_ceil(self.packets);
    }

    /// Whether the last packet of the frame requests a report: half a frame early rather than late.
    fn is_report_due(&self) -> bool {
        let tolerance = Span::from_seconds(0.5 / self.fps);
        self.last_request.is_none_or(|last| self.due + tolerance >= last + self.feedback)
    }
}

impl Model for WebRtc {
    fn next(&mut self, draws: &mut Draws) -> Next {
        if self.packets == 0 {
            self.begin_frame();
        }
        self.packets -= 1;
        let mut item = Item::new(self.due, draws.size(self.packet).with_bytes(self.bytes));
        self.sent_bytes += u64::from(self.bytes);
        if self.packets == 0 && self.is_report_due() {
            self.last_request = Some(self.due);
            self.awaited.push_back((self.requests, self.sent_bytes));
            self.requests += 1;
            item.response = Some(draws.size(self.report));
        }
        Next::Item(item)
    }

    fn feedback(&mut self, outcome: &Outcome, _draws: &mut Draws) {
        let Some(index) = self.awaited.iter().position(|(request, _)| *request == outcome.request) else {
            return;
        };
        let Some((_, sent_bytes)) = self.awaited.remove(index) else { return };
        // A report that is missing, or older than one before, changes nothing: the counts are in the next.
        let is_late = self.controller.last.is_some_and(|last| last.sent_bytes >= sent_bytes);
        if outcome.bytes.is_none() || is_late {
            return;
        }
        self.reports += 1;
        let delay_ps = i128::from(outcome.responded_at.as_ps()) - i128::from(outcome.sent_at.as_ps());
        self.controller.update(Report {
            sent_bytes,
            received_bytes: outcome.received_bytes,
            at: outcome.responded_at,
            delay_ms: delay_ps as f64 / 1e9,
        });
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        vec![("bit_rate_bps", self.controller.rate)]
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("frames", self.frames as f64),
            ("reports", self.reports as f64),
            ("overuses", self.controller.overuses as f64),
            ("mean_bit_rate_bps", self.rates / self.frames.max(1) as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;

    /// A report every 100 ms of what was sent at the controller's rate: a share `loss` of it is lost, and the delay grows by
    /// `growth(rate)` milliseconds.
    fn reports(controller: &mut Controller, count: u32, loss: f64, growth: impl Fn(f64) -> f64) {
        let (mut sent, mut received, mut at) = controller
            .last
            .map_or((0, 0, Instant::ZERO), |last| (last.sent_bytes, last.received_bytes, last.at));
        let mut delay_ms = controller.last.map_or(0.0, |last| last.delay_ms);
        for _ in 0..count {
            let bytes = (controller.rate * 0.1 / 8.0) as u64;
            sent += bytes;
            received = (received + (bytes as f64 * (1.0 - loss)) as u32) % BYTES_MODULUS;
            at += Span::from_ms(100);
            delay_ms += growth(controller.rate);
            controller.update(Report { sent_bytes: sent, received_bytes: received, at, delay_ms });
        }
    }

    #[test]
    fn loss_above_10_percent_decreases_the_rate_and_loss_between_2_and_10_keeps_it() {
        for (loss, factor) in [(0.05, 1.0), (0.2, 0.9), (0.5, 0.75)] {
            let mut controller = Controller::new(50e3, 1e6, 5e6);
            controller.last =
                Some(Report { sent_bytes: 0, received_bytes: 0, at: Instant::ZERO, delay_ms: 0.0 });
            reports(&mut controller, 1, loss, |_| 0.0);
            assert!((controller.rate / 1e6 / factor - 1.0).abs() < 1e-9, "{loss}: {}", controller.rate);
        }
    }

    #[test]
    fn without_loss_and_queue_the_rate_grows_by_8_percent_a_second_up_to_its_maximum() {
        let mut controller = Controller::new(50e3, 300e3, 2.5e6);
        reports(&mut controller, 101, 0.0, |_| 0.0);
        let expected = 300e3 * 1.08f64.powi(10);
        assert!((controller.rate / expected - 1.0).abs() < 0.01, "{}", controller.rate);
        reports(&mut controller, 400, 0.0, |_| 0.0);
        assert_eq!(controller.rate, 2.5e6);
    }

    #[test]
    fn a_growing_queue_decreases_the_rate_below_what_was_received() {
        let mut controller = Controller::new(50e3, 1e6, 5e6);
        reports(&mut controller, 30, 0.0, |_| 0.0);
        let before = controller.rate;
        reports(&mut controller, 3, 0.0, |_| 40.0);
        assert!(controller.rate <= before * 0.86, "{} after {before}", controller.rate);
        assert!(controller.overuses > 0);
    }

    #[test]
    fn counts_of_received_bytes_wrap() {
        let mut controller = Controller::new(50e3, 1e6, 5e6);
        let received_bytes = BYTES_MODULUS - 5;
        controller.last = Some(Report { sent_bytes: 0, received_bytes, at: Instant::ZERO, delay_ms: 0.0 });
        reports(&mut controller, 20, 0.0, |_| 0.0);
        assert!(controller.rate > 1e6, "{}", controller.rate);
    }

    #[test]
    fn frames_have_the_rate_and_their_last_packets_request_reports() {
        let application = Application::named("webrtc").unwrap();
        let mut draws = Draws::new(application, None, &[], Seed(1), "a-b").unwrap();
        let mut model = WebRtc::new(Instant::ZERO, &draws);
        let (mut bytes, mut requests, mut dues) = (0, 0, Vec::new());
        while dues.len() < 301 {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            if dues.last() != Some(&item.due) {
                dues.push(item.due);
            }
            (bytes, requests) = (bytes + item.size.bytes(), requests + u32::from(item.response.is_some()));
            assert!(item.size.bytes() <= 1_200);
        }
        // 10 s of 300 kb/s and 30 frames a second, and the first packet of the next frame.
        assert!((f64::from(bytes) / (300e3 / 8.0 * 10.0) - 1.0).abs() < 0.01, "{bytes}");
        assert_eq!(requests, 100);
    }
}

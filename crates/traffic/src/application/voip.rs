//! Voice: frames of a codec at a constant period in talk spurts, silence between them.

use trunkline_units::{Instant, Span};

use super::definition::values::{constant, exponential};
use super::{
    Choice, Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Since, Unit, Variant,
};

const TABLE: &str =
    "ITU-T P.59 (1993), table 1; exponential: Brady 1969, Bell Syst. Tech. J. 48, p. 2445 (not verified)";

pub(super) static VOIP: Definition = Definition {
    name: "voice",
    summary: "One direction of a conversation with silence suppression: Brady's on-off model with the frames of a codec.",
    choice: Some(&Choice {
        name: "codec",
        variants: &[
            Variant {
                name: "g711",
                meaning: "G.711, 64 kb/s: 160 B every 20 ms, with 12 B of RTP",
                source: "RFC 3551, sections 4.2 and 4.5.14",
                values: &[("frame", || constant(172.0)), ("period", || constant(0.02))],
            },
            Variant {
                name: "g729",
                meaning: "G.729, 8 kb/s: two frames of 10 B every 20 ms, with 12 B of RTP",
                source: "RFC 3551, sections 4.2 and 4.5.6",
                values: &[("frame", || constant(32.0)), ("period", || constant(0.02))],
            },
            Variant {
                name: "opus",
                meaning: "Opus, 32 kb/s fullband speech: 80 B every 20 ms, with 12 B of RTP",
                source: "RFC 6716, section 2.1.1 (28 to 40 kb/s) and 2.1.4; RFC 7587",
                values: &[("frame", || constant(92.0)), ("period", || constant(0.02))],
            },
        ],
    }),
    parameters: &[
        Parameter::new("talk", "a talk spurt", Unit::Seconds, || exponential(1.004), TABLE).with_mean(),
        Parameter::new("silence", "a pause between talk spurts", Unit::Seconds, || exponential(1.587), TABLE)
            .with_mean(),
        Parameter::new(
            "frame",
            "a message with a codec's frames",
            Unit::Bytes,
            || constant(172.0),
            "the codec",
        ),
        Parameter::new(
            "period",
            "time between frames of a talk spurt",
            Unit::Seconds,
            || constant(0.02),
            "the codec",
        )
        .constant(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Voip::new(start, draws)),
};

/// The lanes of all frames, and of the first frames of talk spurts.
const FRAMES: u32 = 0;
const SPURTS: u32 = 1;

#[derive(Debug)]
struct Voip {
    spurt_length: QuantityId,
    silence: QuantityId,
    frame: QuantityId,
    period: QuantityId,
    /// When the next frame is due, and when the talk spurt ends.
    due: Instant,
    end: Instant,
    /// The talk spurt, until its last frame.
    spurt: Option<Interval>,
    /// The pause before the next frame, and when it begins after the frame before.
    pause: Option<(Interval, Span)>,
}

impl Voip {
    fn new(start: Instant, draws: &Draws) -> Voip {
        Voip {
            spurt_length: draws.id("talk"),
            silence: draws.id("silence"),
            frame: draws.id("frame"),
            period: draws.id("period"),
            due: start,
            end: start,
            spurt: None,
            pause: None,
        }
    }
}

impl Model for Voip {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let mut item = Item::new(self.due, draws.size(self.frame));
        if let Some((pause, offset)) = self.pause.take() {
            item = item.after(pause, Since::Offset(FRAMES, offset.as_ps() as i64));
        }
        let is_first = self.spurt.is_none();
        item.second_lane = is_first.then_some(SPURTS);
        let spurt = *self.spurt.get_or_insert_with(|| draws.interval(self.spurt_length));
        if is_first {
            self.end = self.due + spurt.span();
        }
        let period = draws.interval(self.period);
        if self.due + period.span() < self.end {
            self.due += period.span();
            self.pause = Some((period, Span::ZERO));
        } else {
            draws.finish(period, None);
            // No frame marks the end of a spurt: the time after its last frame is taken from the drawn end.
            let rest = self.end.since(self.due);
            if is_first {
                draws.finish(spurt, Some(rest.as_s()));
            } else {
                item = item.after(spurt, Since::Offset(SPURTS, -(rest.as_ps() as i64)));
            }
            let silence = draws.interval(self.silence);
            self.spurt = None;
            self.due = self.end + silence.span();
            self.pause = Some((silence, rest));
        }
        Next::Item(item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        let [spurt, silence, frame, period] =
            [self.spurt_length, self.silence, self.frame, self.period].map(|quantity| draws.mean(quantity));
        // The first frame of a spurt is at its begin.
        let frames = draws.law(self.spurt_length).mean_multiples(period?)?;
        Some(frames * frame? * 8.0 / (spurt? + silence?))
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;

    #[test]
    fn frames_have_the_period_within_a_spurt() {
        let application = Application::named("voice").unwrap();
        let mut draws = Draws::new(application, Some("g729"), &[], Seed(5), "a-b").unwrap();
        let mut model = Voip::new(Instant::ZERO, &draws);
        let mut dues = Vec::new();
        for _ in 0..10_000 {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            assert_eq!(item.size.bytes(), 32);
            dues.push(item.due);
        }
        let period = Span::from_ms(20);
        let within = dues.windows(2).filter(|w| w[1].since(w[0]) == period).count();
        // A spurt of 1.004 s has 50.7 frames on average.
        assert!((9_750..9_850).contains(&within), "{within}");
        let rate = model.offered_bps(&draws).unwrap();
        let sent = 10_000.0 * 32.0 * 8.0 / dues[9_999].as_s();
        assert!((sent / rate - 1.0).abs() < 0.15, "{sent} for {rate}");
    }

    #[test]
    fn the_offered_rate_is_that_of_the_law_of_spurts() {
        let application = Application::named("voice").unwrap();
        for (spurt, frames) in [(constant(1.0), 50.0), (exponential(1.0), 1.0 / -libm::expm1(-0.02))] {
            let parameters = [("talk".to_owned(), spurt), ("silence".to_owned(), constant(1.0))];
            let draws = Draws::new(application, Some("g711"), &parameters, Seed(5), "a-b").unwrap();
            let rate = Voip::new(Instant::ZERO, &draws).offered_bps(&draws).unwrap();
            assert!((rate / (frames * 172.0 * 4.0) - 1.0).abs() < 1e-6, "{rate} for {frames} frames");
        }
    }
}

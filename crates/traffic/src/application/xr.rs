//! Extended reality: video frames with jitter, or the pose of the user.

use trunkline_units::Instant;

use super::definition::values::{constant, normal, truncated};
use super::frames::FrameClock;
use super::{Choice, Definition, Draws, Item, Model, Next, Parameter, QuantityId, Since, Unit, Variant};
use crate::Variable;

const FRAME: &str =
    "3GPP TR 38.838 V17.0.0, table 5.1.1.1-1: truncated Gaussian, sd 10.5 %, from 50 % to 150 % of the mean";
const JITTER: &str = "3GPP TR 38.838 V17.0.0, section 5.1.1.2: truncated Gaussian, mean 0, sd 2 ms, from −4 to 4 ms; here later by 4 ms";
const RATES: &str = "3GPP TR 38.838 V17.0.0, section 5: data rates of the applications";

/// A frame at this rate and 60 frames a second.
fn frame(bits_per_second: f64) -> Variable {
    let mean = libm::round(bits_per_second / 8.0 / 60.0);
    truncated(
        normal(mean, libm::round(mean * 0.105 * 10.0) / 10.0),
        libm::round(mean * 0.5),
        libm::round(mean * 1.5),
    )
}

pub(super) static XR: Definition = Definition {
    name: "xr",
    summary: "Extended reality and cloud gaming: video at 60 frames/s whose frames arrive with jitter, or the pose of the user.",
    choice: Some(&Choice {
        name: "service",
        variants: &[
            Variant {
                name: "vr",
                meaning: "virtual reality, 30 Mb/s to the user",
                source: RATES,
                values: &[],
            },
            Variant {
                name: "vr45",
                meaning: "virtual reality, 45 Mb/s to the user",
                source: RATES,
                values: &[("frame", || frame(45e6))],
            },
            Variant {
                name: "ar",
                meaning: "augmented reality, 30 Mb/s to the user",
                source: RATES,
                values: &[],
            },
            Variant {
                name: "arUp",
                meaning: "augmented reality, 10 Mb/s from the user",
                source: RATES,
                values: &[("frame", || frame(10e6))],
            },
            Variant {
                name: "cloudGaming",
                meaning: "cloud gaming, 30 Mb/s to the user",
                source: RATES,
                values: &[],
            },
            Variant {
                name: "pose",
                meaning: "pose and control from the user: 100 B every 4 ms, without jitter",
                source: "3GPP TR 38.838 V17.0.0, section 5.2",
                values: &[
                    ("frame", || constant(100.0)),
                    ("frameRate", || constant(250.0)),
                    ("jitter", || constant(0.0)),
                ],
            },
        ],
    }),
    parameters: &[
        Parameter::new("frameRate", "frames a second", Unit::Number, || constant(60.0), FRAME)
            .constant_within(0.001, 1e6),
        Parameter::new("frame", "a frame", Unit::Bytes, || frame(30e6), FRAME).with_mean(),
        Parameter::new(
            "jitter",
            "how much later than its exact time a frame arrives",
            Unit::Seconds,
            || truncated(normal(0.004, 0.002), 0.0, 0.008),
            JITTER,
        )
        .with_mean(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Xr::new(start, draws)),
};

#[derive(Debug)]
struct Xr {
    clock: FrameClock,
    frame: QuantityId,
    jitter: QuantityId,
    /// When the last frame was due: no frame overtakes another.
    last: Instant,
}

impl Xr {
    fn new(start: Instant, draws: &Draws) -> Xr {
        Xr {
            clock: FrameClock::new(start, draws.id("frameRate")),
            frame: draws.id("frame"),
            jitter: draws.id("jitter"),
            last: start,
        }
    }
}

impl Model for Xr {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let exact = self.clock.tick(draws);
        let jitter = draws.interval(self.jitter);
        self.last = self.last.max(exact + jitter.span());
        let item = Item::new(self.last, draws.size(self.frame));
        Next::Item(item.after(jitter, Since::Event(exact)))
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(draws.mean(self.frame)? * 8.0 * self.clock.rate(draws)?)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Seed, Span};

    use super::super::Application;
    use super::super::definition::values::exponential;
    use super::*;

    fn items(variant: &str, parameters: &[(String, Variable)], n: u64) -> (Vec<Item>, f64) {
        let application = Application::named("xr").unwrap();
        let mut draws = Draws::new(application, Some(variant), parameters, Seed(2), "a-b").unwrap();
        let mut model = Xr::new(Instant::ZERO, &draws);
        let mut item = || {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            item
        };
        ((0..n).map(|_| item()).collect(), model.offered_bps(&draws).unwrap())
    }

    #[test]
    fn frames_are_at_most_8_ms_after_their_exact_time_and_have_the_rate() {
        for (variant, bps) in [("vr", 30e6), ("vr45", 45e6), ("arUp", 10e6), ("cloudGaming", 30e6)] {
            let (items, offered) = items(variant, &[], 60_000);
            for (k, item) in items.iter().enumerate() {
                let exact = Instant::ZERO + Span::from_seconds(k as f64 / 60.0);
                assert!(item.due >= exact && item.due <= exact + Span::from_ms(8));
            }
            assert!((offered / bps - 1.0).abs() < 1e-4, "{variant}: {offered}");
            let bytes: f64 = items.iter().map(|item| f64::from(item.size.bytes())).sum();
            assert!((bytes * 8.0 / 1_000.0 / bps - 1.0).abs() < 0.005);
        }
        let (items, offered) = items("pose", &[], 1_000);
        assert_eq!(offered, 200e3);
        // A time is at least 1 ns.
        let exact = |k: usize| Instant::ZERO + Span::from_ms(4) * k as u64 + Span::from_ns(1);
        assert!(items.iter().enumerate().all(|(k, item)| item.due == exact(k) && item.size.bytes() == 100));
    }

    #[test]
    fn no_frame_overtakes_another_even_with_jitter_above_the_period() {
        let wild = [("jitter".to_owned(), exponential(0.05))];
        let (items, _) = items("vr", &wild, 20_000);
        assert!(items.windows(2).all(|pair| pair[0].due <= pair[1].due));
        let equal = items.windows(2).filter(|pair| pair[0].due == pair[1].due).count();
        assert!(equal > 10_000, "{equal}");
    }
}

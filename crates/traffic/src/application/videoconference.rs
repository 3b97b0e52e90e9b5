//! Video conferences: frames whose lengths depend on those before.

use trunkline_units::Instant;

use super::definition::values::{clamped, constant, gamma, normal};
use super::frames::FrameClock;
use super::{Choice, Definition, Draws, Item, Model, Next, Parameter, QuantityId, Size, Unit, Variant};
use crate::Variable;
use crate::law::{normal_cdf, normal_quantile};

const MAGLARIS: &str = "Maglaris et al. 1988, IEEE Trans. Commun. 36(7), section III: a = 0.8781, b = 0.1108, η = 0.572, 250,000 pixels";
const HEYMAN: &str = "Heyman, Tabatabai and Lakshman 1992, IEEE Trans. Circuits Syst. Video Technol. 2(1): DAR(1), a mean of 104.8 cells of 48 B, a variance of 882.5, ρ = 0.984";
/// Bytes that a bit for each of 250,000 pixels makes.
const PIXELS: f64 = 250_000.0 / 8.0;
/// The correlation with the frame before that is compared with the law; frames between are skipped.
const NEGLIGIBLE: f64 = 0.001;

/// λ(n) = a·λ(n − 1) + b·w(n) with w normal (η, 1): the mean of λ is b·η / (1 − a), its variance b² / (1 − a²). Below 0, nothing is
/// sent but the header of a message.
fn maglaris_frame() -> Variable {
    let (a, b, mean) = (0.8781, 0.1108, 0.572);
    let (mean, sd) = (b * mean / (1.0 - a), b / libm::sqrt(1.0 - a * a));
    clamped(normal(libm::round(mean * PIXELS), libm::round(sd * PIXELS)), 32.0, 250_000.0)
}

/// Gamma with this mean and variance of a number of cells, in bytes.
fn heyman_frame() -> Variable {
    let (mean, variance) = (104.8, 882.5);
    gamma(libm::round(variance / mean * 48.0), libm::round(mean * mean / variance * 100.0) / 100.0)
}

pub(super) static VIDEOCONFERENCE: Definition = Definition {
    name: "videoconference",
    summary: "Video of a conference at a constant frame rate. The lengths of frames are autoregressive of order 1.",
    choice: Some(&Choice {
        name: "model",
        variants: &[
            Variant {
                name: "ar",
                meaning: "autoregressive: the normal score of a length is that of the length before times `correlation`, plus a normal innovation. If `frame` is normal, so are the lengths",
                source: MAGLARIS,
                values: &[],
            },
            Variant {
                name: "dar",
                meaning: "discrete autoregressive: a frame is as long as the one before with the probability `correlation`, otherwise its length is drawn",
                source: HEYMAN,
                values: &[
                    ("frameRate", || constant(25.0)),
                    ("frame", heyman_frame),
                    ("correlation", || constant(0.984)),
                    ("repeat", || constant(1.0)),
                ],
            },
        ],
    }),
    parameters: &[
        Parameter::new("frameRate", "frames a second", Unit::Number, || constant(30.0), MAGLARIS)
            .constant_within(0.001, 1e6),
        Parameter::new("frame", "a frame", Unit::Bytes, maglaris_frame, MAGLARIS).with_mean(),
        Parameter::new(
            "correlation",
            "correlation of a frame with the one before",
            Unit::Number,
            || constant(0.8781),
            MAGLARIS,
        )
        .constant_within(0.0, 0.999),
        Parameter::new(
            "repeat",
            "1: `dar`, lengths are repeated; 0: `ar`",
            Unit::Number,
            || constant(0.0),
            "the model",
        )
        .constant_within(0.0, 1.0),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Videoconference::new(start, draws)),
};

#[derive(Debug)]
struct Videoconference {
    clock: FrameClock,
    frame: QuantityId,
    correlation: f64,
    repeats: bool,
    /// The length of the last frame, and for `ar` its normal score.
    last: Option<Size>,
    score: f64,
    /// Frames until one is nearly independent of the last one that was compared, and how many they are.
    until_independent: u32,
    memory: u32,
}

impl Videoconference {
    fn new(start: Instant, draws: &Draws) -> Videoconference {
        let setting = |name| draws.mean(draws.id(name)).unwrap_or(0.0);
        let correlation = setting("correlation");
        let memory = if correlation > NEGLIGIBLE {
            libm::ceil(libm::log(NEGLIGIBLE) / libm::log(correlation)) as u32
        } else {
            1
        };
        Videoconference {
            clock: FrameClock::new(start, draws.id("frameRate")),
            frame: draws.id("frame"),
            correlation,
            repeats: setting("repeat") >= 0.5,
            last: None,
            score: 0.0,
            until_independent: 0,
            memory,
        }
    }

    /// Returns the next length of `dar`. Only new lengths are compared with the law.
    fn repeated(&self, draws: &mut Draws) -> Size {
        let u = draws.unit(self.frame);
        match self.last {
            Some(last) if u < self.correlation => last.not_compared(),
            _ => draws.size(self.frame),
        }
    }

    /// Returns the next length of `ar`. Only those that hardly depend on the last compared one are compared with the law.
    fn autoregressive(&mut self, draws: &mut Draws) -> Size {
        // The first frame has the stationary distribution.
        let past = if self.last.is_some() { self.correlation } else { 0.0 };
        let innovation = normal_quantile(draws.unit(self.frame).max(f64::MIN_POSITIVE));
        self.score = past * self.score + libm::sqrt(1.0 - past * past) * innovation;
        let size = draws.size_at(self.frame, normal_cdf(self.score));
        let is_independent = self.until_independent == 0;
        self.until_independent = if is_independent { self.memory } else { self.until_independent } - 1;
        if is_independent { size } else { size.not_compared() }
    }
}

impl Model for Videoconference {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let size = if self.repeats { self.repeated(draws) } else { self.autoregressive(draws) };
        self.last = Some(size);
        Next::Item(Item::new(self.clock.tick(draws), size))
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(draws.mean(self.frame)? * 8.0 * self.clock.rate(draws)?)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;
    use crate::Law;
    use crate::autocorrelation::autocorrelation;
    use crate::fit::{Rounding, Sample};

    fn sizes(variant: &str, parameters: &[(String, Variable)], n: usize) -> (Vec<f64>, f64) {
        let application = Application::named("videoconference").unwrap();
        let mut draws = Draws::new(application, Some(variant), parameters, Seed(1), "a-b").unwrap();
        let mut model = Videoconference::new(Instant::ZERO, &draws);
        let mut size = || {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            f64::from(item.size.bytes())
        };
        let sizes = (0..n).map(|_| size()).collect();
        (sizes, model.offered_bps(&draws).unwrap())
    }

    #[test]
    fn the_autocorrelation_is_that_of_order_1() {
        for (variant, correlation) in [("ar", 0.8781), ("dar", 0.984)] {
            let (sizes, _) = sizes(variant, &[], 400_000);
            let series: Vec<_> = sizes.iter().copied().map(Some).collect();
            let r = autocorrelation(&series, 10).r;
            for (lag, r) in r.iter().enumerate() {
                let expected = f64::powi(correlation, lag as i32);
                assert!((r - expected).abs() < 0.015, "{variant} lag {lag}: {r} for {expected}");
            }
        }
    }

    #[test]
    fn the_innovations_of_ar_are_normal_and_independent() {
        let (sizes, rate) = sizes("ar", &[], 100_000);
        let (mean, sd, a) = (16_247.0, 7_237.0, 0.8781);
        assert!((rate / (16_247.0 * 240.0) - 1.0).abs() < 0.01, "{rate}");
        let mut sample = Sample::new(Seed(1).stream("innovations"));
        let mut innovations = Vec::new();
        // Where a frame is at the lower end, its score is unknown.
        for pair in sizes.windows(2).filter(|pair| pair[1] > 32.0 && pair[0] > 32.0) {
            let [before, now] = [pair[0], pair[1]].map(|bytes| (bytes - mean) / sd);
            let innovation = (now - a * before) / libm::sqrt(1.0 - a * a);
            innovations.push(Some(innovation));
            // Low frames before would select high innovations.
            if pair[0] > mean - sd / 2.0 {
                sample.push(innovation);
            }
        }
        let law = Law::new(Variable::Normal { mean: 0.0, sd: 1.0 }, f64::NEG_INFINITY).unwrap();
        let fit = sample.goodness_of_fit(&law, Rounding::None);
        assert!(fit.samples > 50_000 && fit.p_value.unwrap() > 0.01, "{fit:?}");
        let r = autocorrelation(&innovations, 10).r;
        assert!(r[1..].iter().all(|r| r.abs() < 0.015), "{r:?}");
    }

    #[test]
    fn runs_of_dar_are_geometric_and_without_correlation_all_frames_are_independent() {
        let (frames, _) = sizes("dar", &[], 200_000);
        let changes = frames.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // A new length may be the same as before, with a probability of about 1/5,000.
        assert!((3_000..3_400).contains(&changes), "{changes}");
        let none = [("correlation".to_owned(), constant(0.0))];
        let (sizes, _) = sizes("ar", &none, 100_000);
        let series: Vec<_> = sizes.into_iter().map(Some).collect();
        assert!(autocorrelation(&series, 5).r[1..].iter().all(|r| r.abs() < 0.015));
    }
}

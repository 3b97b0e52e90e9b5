//! MPEG video: groups of pictures with lognormal frames, in scenes.

use trunkline_units::Instant;

use super::definition::values::{constant, exponential, lognormal};
use super::frames::FrameClock;
use super::{Definition, Draws, Item, Model, Next, Parameter, QuantityId, Size, Unit};
use crate::Variable;

const FRAMES: &str = "Krunz and Hughes 1995, SIGMETRICS, and Krunz, Sass and Hughes 1995, INFOCOM: The Wizard of Oz, cells of 48 B";
const PATTERN: &str = "a choice: the usual pattern IBBPBBPBBPBB";

/// A lognormal number of ATM cells, in bytes.
fn cells(mu: f64, sigma: f64) -> Variable {
    lognormal(mu + libm::log(48.0), sigma)
}

pub(super) static MPEG: Definition = Definition {
    name: "mpeg",
    summary: "Video in groups of pictures of I, P and B frames. The I frames of a scene are equally long.",
    choice: None,
    parameters: &[
        Parameter::new("frameRate", "frames a second", Unit::Number, || constant(30.0), FRAMES)
            .constant_within(0.001, 1e6),
        Parameter::new("gop", "frames of a group of pictures", Unit::Count, || constant(12.0), PATTERN)
            .constant_within(1.0, 1e6),
        Parameter::new(
            "ipDistance",
            "frames from an I or P frame to the next; 1: no B frames",
            Unit::Count,
            || constant(3.0),
            PATTERN,
        )
        .constant_within(1.0, 1e6),
        Parameter::new("iFrame", "an I frame, once a scene", Unit::Bytes, || cells(5.1968, 0.2016), FRAMES)
            .with_mean(),
        Parameter::new("pFrame", "a P frame", Unit::Bytes, || cells(3.738, 0.5961), FRAMES).with_mean(),
        Parameter::new("bFrame", "a B frame", Unit::Bytes, || cells(2.8687, 0.2675), FRAMES).with_mean(),
        Parameter::new(
            "sceneLength",
            "groups of pictures of a scene",
            Unit::Count,
            || exponential(9.5),
            "Krunz and Hughes 1995: geometric; here exponential and rounded, with a mean of 10.5 above 1",
        )
        .with_mean(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Mpeg::new(start, draws)),
};

#[derive(Debug)]
struct Mpeg {
    gop: QuantityId,
    ip_distance: QuantityId,
    /// The quantities of I, P and B frames.
    sizes: [QuantityId; 3],
    scene_length: QuantityId,
    clock: FrameClock,
    /// The place of the next frame in its group, in display order.
    position: u32,
    /// Groups that follow in the scene, and the length of their I frames.
    groups: u32,
    i_frame: Option<Size>,
}

impl Mpeg {
    fn new(start: Instant, draws: &Draws) -> Mpeg {
        Mpeg {
            gop: draws.id("gop"),
            ip_distance: draws.id("ipDistance"),
            sizes: ["iFrame", "pFrame", "bFrame"].map(|name| draws.id(name)),
            scene_length: draws.id("sceneLength"),
            clock: FrameClock::new(start, draws.id("frameRate")),
            position: 0,
            groups: 0,
            i_frame: None,
        }
    }

    /// Returns the length of an I frame. Only the first of a scene is compared with the law.
    fn i_frame(&mut self, draws: &mut Draws) -> Size {
        let size = match self.i_frame.filter(|_| self.groups > 0) {
            Some(size) => size.not_compared(),
            None => {
                self.groups = draws.count(self.scene_length).max(1);
                draws.size(self.sizes[0])
            }
        };
        self.groups -= 1;
        self.i_frame = Some(size);
        size
    }
}

impl Model for Mpeg {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let [_, p_frame, b_frame] = self.sizes;
        let [gop, ip_distance] = [self.gop, self.ip_distance].map(|id| draws.setting(id) as u32);
        let size = match self.position {
            0 => self.i_frame(draws),
            position if position % ip_distance == 0 => draws.size(p_frame),
            _ => draws.size(b_frame),
        };
        self.position = (self.position + 1) % gop;
        Next::Item(Item::new(self.clock.tick(draws), size))
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        let [i, p, b] = self.sizes.map(|size| draws.mean(size));
        let (gop, ip_distance) = (draws.mean(self.gop)?, draws.mean(self.ip_distance)?);
        let anchors = libm::ceil(gop / ip_distance);
        let bytes = i? + (anchors - 1.0) * p? + (gop - anchors) * b?;
        Some(bytes * 8.0 * self.clock.rate(draws)? / gop)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;

    fn start(parameters: &[(&str, Variable)]) -> (Mpeg, Draws) {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let application = Application::named("mpeg").unwrap();
        let draws = Draws::new(application, None, &parameters, Seed(3), "a-b").unwrap();
        (Mpeg::new(Instant::ZERO, &draws), draws)
    }

    fn item(model: &mut Mpeg, draws: &mut Draws) -> Item {
        let Next::Item(item) = model.next(draws) else { panic!("an item") };
        item
    }

    /// Returns the frames of a model as letters.
    fn frames(gop: f64, ip_distance: f64, count: usize) -> String {
        let (mut model, mut draws) = start(&[("gop", constant(gop)), ("ipDistance", constant(ip_distance))]);
        let letter = |size: Size, sizes: [QuantityId; 3]| {
            ['I', 'P', 'B'][sizes.iter().position(|id| *id == size.quantity()).unwrap()]
        };
        (0..count).map(|_| letter(item(&mut model, &mut draws).size, model.sizes)).collect()
    }

    #[test]
    fn frames_have_the_order_of_the_pattern() {
        assert_eq!(frames(12.0, 3.0, 25), "IBBPBBPBBPBBIBBPBBPBBPBBI");
        assert_eq!(frames(5.0, 1.0, 11), "IPPPPIPPPPI");
        assert_eq!(frames(1.0, 3.0, 3), "III");
        assert_eq!(frames(8.0, 3.0, 17), "IBBPBBPBIBBPBBPBI");
        assert_eq!(frames(4.0, 9.0, 9), "IBBBIBBBI");
    }

    #[test]
    fn the_i_frames_of_a_scene_are_equal_and_frames_are_exact_in_time() {
        let (mut model, mut draws) = start(&[("sceneLength", constant(7.0))]);
        let mut i_frames = Vec::new();
        for k in 0..12 * 7 * 50_u64 {
            let item = item(&mut model, &mut draws);
            let exact = (k as u128 * 1_000_000_000_000 + 15) / 30;
            assert_eq!(u128::from(item.due.as_ps()), exact);
            if k % 12 == 0 {
                i_frames.push(item.size.bytes());
            }
        }
        let scenes: Vec<&[u32]> = i_frames.chunks(7).collect();
        assert!(scenes.iter().all(|scene| scene.iter().all(|size| *size == scene[0])));
        assert!(scenes.windows(2).filter(|pair| pair[0][0] != pair[1][0]).count() > 45);
    }

    #[test]
    fn the_offered_rate_is_that_of_the_frames() {
        for (gop, ip_distance) in [(12.0, 3.0), (8.0, 3.0), (5.0, 1.0)] {
            let (mut model, mut draws) = start(&[
                ("gop", constant(gop)),
                ("ipDistance", constant(ip_distance)),
                ("sceneLength", constant(1.0)),
            ]);
            let n = 120_000;
            let bytes: f64 = (0..n).map(|_| f64::from(item(&mut model, &mut draws).size.bytes())).sum();
            let rate = bytes * 8.0 * 30.0 / f64::from(n);
            let offered = model.offered_bps(&draws).unwrap();
            assert!((rate / offered - 1.0).abs() < 0.01, "{gop}: {rate} for {offered}");
        }
    }
}

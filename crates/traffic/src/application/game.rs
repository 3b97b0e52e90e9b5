//! Online games: small messages at short intervals.

use trunkline_units::Instant;

use super::definition::values::{constant, extreme, uniform};
use super::{
    Choice, Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Since, Unit, Variant,
};

const NGMN: &str = "NGMN 2008, Radio Access Performance Evaluation Methodology, annex A, gaming; Färber 2002";
const TGAX: &str = "IEEE 802.16m-08/004r5, first-person shooter, which the evaluation methodology of IEEE 802.11ax (11-14/0571r12) follows";
const RTA: &str =
    "IEEE 802.11-18/2009r6, Real Time Applications TIG report, section 4.1.4, status synchronization";

pub(super) static GAME: Definition = Definition {
    name: "game",
    summary: "One direction of an online game: a message at random intervals, with largest extreme value distributions.",
    choice: Some(&Choice {
        name: "profile",
        variants: &[
            Variant {
                name: "ngmnDown",
                meaning: "from the server, NGMN",
                source: NGMN,
                values: &[("size", || extreme(120.0, 36.0)), ("interarrival", || extreme(0.055, 0.006))],
            },
            Variant {
                name: "ngmnUp",
                meaning: "to the server, NGMN",
                source: NGMN,
                values: &[("size", || extreme(45.0, 5.7)), ("interarrival", || constant(0.04))],
            },
            Variant {
                name: "tgaxDown",
                meaning: "from the server, IEEE",
                source: TGAX,
                values: &[("size", || extreme(330.0, 82.0)), ("interarrival", || extreme(0.05, 0.0045))],
            },
            Variant {
                name: "tgaxUp",
                meaning: "to the server, IEEE",
                source: TGAX,
                values: &[("size", || extreme(45.0, 5.7)), ("interarrival", || extreme(0.04, 0.006))],
            },
            Variant {
                name: "mobileDown",
                meaning: "from the server, real-time mobile gaming",
                source: RTA,
                values: &[("size", || extreme(50.0, 11.0)), ("interarrival", || extreme(0.013, 0.0037))],
            },
            Variant {
                name: "mobileUp",
                meaning: "to the server, real-time mobile gaming",
                source: RTA,
                values: &[("size", || extreme(38.0, 3.7)), ("interarrival", || extreme(0.015, 0.0057))],
            },
        ],
    }),
    parameters: &[
        Parameter::new("size", "a message", Unit::Bytes, || extreme(120.0, 36.0), "the profile").with_mean(),
        Parameter::new(
            "interarrival",
            "time between messages",
            Unit::Seconds,
            || extreme(0.055, 0.006),
            "the profile",
        )
        .with_mean(),
        Parameter::new(
            "initial",
            "time before the first message, drawn once",
            Unit::Seconds,
            || uniform(0.0, 0.04),
            NGMN,
        )
        .once(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Game::new(start, draws)),
};

#[derive(Debug)]
struct Game {
    size: QuantityId,
    interarrival: QuantityId,
    initial: QuantityId,
    due: Instant,
    /// The time since the message before; `None` before the first.
    pause: Option<Interval>,
    has_begun: bool,
}

impl Game {
    fn new(start: Instant, draws: &Draws) -> Game {
        Game {
            size: draws.id("size"),
            interarrival: draws.id("interarrival"),
            initial: draws.id("initial"),
            due: start,
            pause: None,
            has_begun: false,
        }
    }
}

impl Model for Game {
    fn next(&mut self, draws: &mut Draws) -> Next {
        if !self.has_begun {
            self.has_begun = true;
            self.due += trunkline_units::Span::from_seconds(draws.setting(self.initial));
        }
        let mut item = Item::new(self.due, draws.size(self.size));
        if let Some(pause) = self.pause {
            item = item.after(pause, Since::Departure(0));
        }
        let pause = draws.interval(self.interarrival);
        self.due += pause.span();
        self.pause = Some(pause);
        Next::Item(item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(draws.mean(self.size)? * 8.0 / draws.mean(self.interarrival)?)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Seed, Span};

    use super::super::Application;
    use super::*;

    #[test]
    fn messages_begin_within_40_ms_and_have_the_offered_rate() {
        for variant in GAME.choice.unwrap().variants {
            let mut first = Vec::new();
            for seed in 0..100 {
                let application = Application::named("game").unwrap();
                let mut draws = Draws::new(application, Some(variant.name), &[], Seed(seed), "a-b").unwrap();
                let mut model = Game::new(Instant::ZERO, &draws);
                let (mut bytes, mut due) = (0.0, Instant::ZERO);
                let n = if seed == 0 { 50_000 } else { 1 };
                for i in 0..n {
                    let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
                    assert!(item.due >= due);
                    (bytes, due) = (bytes + f64::from(item.size.bytes()), item.due);
                    if i == 0 {
                        first.push(due);
                    }
                }
                let (rate, offered) = (bytes * 8.0 / due.as_s(), model.offered_bps(&draws).unwrap());
                assert!(
                    seed > 0 || (rate / offered - 1.0).abs() < 0.01,
                    "{}: {rate} for {offered}",
                    variant.name
                );
            }
            first.sort();
            assert!(first[99] < Instant::ZERO + Span::from_ms(40));
            assert!(
                first[10] < Instant::ZERO + Span::from_ms(10)
                    && first[90] > Instant::ZERO + Span::from_ms(30)
            );
        }
    }
}

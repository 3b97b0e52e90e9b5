//! A day of simulated time in the wide format, with restarts of everybody at any time: nothing is left behind. `DAYS` says how
//! many, each of its own seed; else two.
#![cfg(feature = "soak")]

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/chaos.rs"]
mod chaos;

use chaos::Chaos;
use trunkline_bundle::settings::Spread;
use trunkline_units::Span;

#[test]
fn a_day_of_restarts_leaves_nothing_behind() {
    let days = std::env::var("DAYS").map_or(2, |days| days.parse().expect("a number"));
    for seed in 1996..1996 + days {
        let spread = if seed % 2 == 0 { Spread::Each } else { Spread::All };
        let mut chaos = Chaos::new(seed, spread);
        let mut round = 0;
        while chaos.world.now.as_s() < 24.0 * 3600.0 {
            let place = format!("seed {seed}, round {round}");
            chaos.round(Span::from_s(2), 2.0);
            chaos.heal(&place);
            // What is silent is forgotten.
            chaos.world.run(Span::from_s(300));
            chaos.small(&place);
            round += 1;
        }
        chaos.end(&format!("seed {seed}"));
        println!("seed {seed}: {round} rounds, {:?}", chaos.world.central().statistics());
    }
}

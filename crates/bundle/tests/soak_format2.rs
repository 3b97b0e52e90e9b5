//! Days of simulated time in bundle format 2 with restarts of all endpoints: no state remains. The environment
//! variable `DAYS` sets the number of days, each with its own seed; the default is two.
#![cfg(feature = "soak")]

use crate::chaos::Chaos;
use trunkline_bundle::settings::Fanout;
use trunkline_units::Span;

#[test]
fn a_day_of_restarts_leaves_no_state_behind() {
    let days = std::env::var("DAYS").map_or(2, |days| days.parse().expect("a number"));
    for seed in 1996..1996 + days {
        let fanout = if seed % 2 == 0 { Fanout::Unicast } else { Fanout::Broadcast };
        let mut chaos = Chaos::new(seed, fanout);
        let mut round = 0;
        while chaos.sim.now.as_s() < 24.0 * 3600.0 {
            let label = format!("seed {seed}, round {round}");
            chaos.round(Span::from_s(2), 2.0);
            chaos.heal(&label);
            // The state of silent peers expires.
            chaos.sim.run(Span::from_s(300));
            chaos.check_idle(&label);
            round += 1;
        }
        chaos.end(&format!("seed {seed}"));
        println!("seed {seed}: {round} rounds, {:?}", chaos.sim.central().statistics());
    }
}

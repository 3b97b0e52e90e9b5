//! The wide format over a medium that loses, doubles and delays, with anybody restarting: nobody gets what he does not want,
//! or twice, or from himself; priority is in order and on the local network complete; and when it is over all is as it is to
//! be, and nothing is left.

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
fn whatever_happens_everybody_gets_what_he_wants_once() {
    for seed in 0..8 {
        let mut chaos = Chaos::new(seed, if seed % 2 == 0 { Spread::Each } else { Spread::All });
        for round in 0..4 {
            chaos.round(Span::from_s(1), 1.0);
            chaos.heal(&format!("seed {seed}, round {round}"));
        }
        chaos.end(&format!("seed {seed}"));
    }
}

/// Without restarts nothing that has priority is lost between hosts, however bad the network.
#[test]
fn priority_is_delivered_over_a_bad_network() {
    for seed in 100..106 {
        let mut chaos = Chaos::new(seed, if seed % 2 == 0 { Spread::Each } else { Spread::All });
        chaos.heal(&format!("seed {seed}"));
        chaos.send_priority(&format!("seed {seed}"), 400);
        chaos.end(&format!("seed {seed}"));
    }
}

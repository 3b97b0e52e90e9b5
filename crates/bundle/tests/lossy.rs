//! Bundle format 2 over a network that loses, duplicates and delays, with restarts of all endpoints. Hosts receive
//! only messages they joined, once, and never their own. Priority messages arrive in order, and completely on the
//! local network. Afterwards the state is correct and no residue is left.

use crate::chaos::Chaos;
use trunkline_bundle::settings::Fanout;
use trunkline_units::Span;

#[test]
fn hosts_get_each_subscribed_message_once_despite_restarts() {
    for seed in 0..8 {
        let mut chaos = Chaos::new(seed, if seed % 2 == 0 { Fanout::Unicast } else { Fanout::Broadcast });
        for round in 0..4 {
            chaos.round(Span::from_s(1), 1.0);
            chaos.heal(&format!("seed {seed}, round {round}"));
        }
        chaos.end(&format!("seed {seed}"));
    }
}

/// Without restarts no priority message between hosts is lost.
#[test]
fn priority_is_delivered_over_a_bad_network() {
    for seed in 100..106 {
        let mut chaos = Chaos::new(seed, if seed % 2 == 0 { Fanout::Unicast } else { Fanout::Broadcast });
        chaos.heal(&format!("seed {seed}"));
        chaos.send_priority(&format!("seed {seed}"), 400);
        chaos.end(&format!("seed {seed}"));
    }
}

//! Random exchanges over faulty paths: every message arrives once, complete, and in the order of its channel; ends
//! that lose each other are notified.

use crate::support::plan::Plan;

use crate::support::scenario;

#[test]
fn nothing_is_lost_doubled_disordered_or_changed() {
    let did: Vec<scenario::ScenarioResult> =
        (0..200).map(|seed| scenario::prove(&Plan::draw(seed))).collect();
    assert!(did.iter().map(|did| did.messages).sum::<u64>() > 2000, "there was something to lose");
    assert!(did.iter().any(|did| did.sessions > 1), "and a lost peer");
    assert!(did.iter().all(|did| did.frames > 0));
    assert!(did.iter().map(|did| did.rebuilt).sum::<u64>() > 100, "and something that was rebuilt");
}

#[test]
fn nor_where_frames_become_too_long() {
    let did: Vec<scenario::ScenarioResult> =
        (0..100).map(|seed| scenario::prove(&Plan::draw_narrow(seed))).collect();
    assert!(did.iter().filter(|did| did.shrunk > 0).count() > 30, "paths became shorter");
}

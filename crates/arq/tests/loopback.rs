//! The exchanges of `exchange.rs`, the same body, over sockets.

use crate::support::loopback::Loopback;
use crate::support::plan::Plan;

use crate::support::scenario;

#[test]
fn nothing_is_lost_doubled_disordered_or_changed_on_the_loopback() {
    // They mostly wait: several at a time.
    let play = |seed| {
        let plan = Plan::draw(seed);
        match scenario::play_on(&plan, Loopback::new(&plan)) {
            Ok(did) => did.messages,
            Err(why) => panic!("seed {seed}: {why}\n{plan:?}"),
        }
    };
    let messages: u64 = std::thread::scope(|scope| {
        let turns = (0..5).map(|first| scope.spawn(move || (first..30).step_by(5).map(play).sum::<u64>()));
        let turns: Vec<_> = turns.collect();
        turns.into_iter().map(|turn| turn.join().expect("an exchange succeeds")).sum()
    });
    assert!(messages > 300, "there was something to lose");
}

//! A hundred thousand exchanges over every mix of faults.

use crate::support::plan::Plan;
use crate::support::scenario::{self, ScenarioResult};

/// `ARQ_SEED` and `ARQ_COUNT` choose others.
#[test]
fn a_hundred_thousand_exchanges() {
    let number = |name: &str, other| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(other);
    let (from, count) = (number("ARQ_SEED", 1_000_000), number("ARQ_COUNT", 100_000));
    let threads = 2;
    let run = |thread: u64| {
        let mut sum = ScenarioResult::default();
        for seed in (from..from + count).filter(|seed| seed % threads == thread) {
            let plan = if seed / threads % 4 == 0 { Plan::draw_narrow(seed) } else { Plan::draw(seed) };
            let did = scenario::prove(&plan);
            sum.messages += did.messages;
            sum.frames += did.frames;
            sum.sessions += did.sessions;
            sum.shrunk += did.shrunk;
            sum.rebuilt += did.rebuilt;
        }
        sum
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        for run in runs {
            println!("{:?}", run.join().expect("every exchange succeeds"));
        }
    });
}

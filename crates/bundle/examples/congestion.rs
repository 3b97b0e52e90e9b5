//! Prints the table of docs/reference/bundle-congestion.md: rising load on 10 Mb/s, without congestion control, with
//! the levels of 1997, and with rates.
//!
//! `cargo run --release -p trunkline-bundle --example congestion`

#[allow(dead_code, reason = "others need the rest")]
#[path = "../tests/support/simulation.rs"]
mod simulation;

#[allow(dead_code, reason = "others need the rest")]
#[path = "../tests/support/overload.rs"]
mod overload;

use overload::overload;
use trunkline_bundle::regulator::Congestion;
use trunkline_units::Span;

fn main() {
    println!(
        "| load | control | medium used | ordinary arrived | dropped | lost | priority arrived | ordinary mean/p99 ms | priority mean/p99 ms | changes/s |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let seconds = 20;
    for load in [0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0] {
        for (name, congestion) in
            [("none", None), ("levels", Some(Congestion::Levels)), ("rates", Some(Congestion::Rates))]
        {
            let outcome = overload(load, congestion, Span::from_s(seconds));
            let share = |n: u64, of: u64| 100.0 * n as f64 / of as f64;
            let [ordinary, urgent] = outcome.offered;
            let arrived = outcome.arrived.map(|arrived| arrived / 3);
            let missing = ordinary - arrived[0] - outcome.dropped[0].min(ordinary - arrived[0]);
            let delays = |class: usize| {
                let all = &outcome.delays[class];
                let mean = all.iter().map(|delay| delay.as_us()).sum::<f64>() / all.len().max(1) as f64;
                format!("{:.1} / {:.1}", mean / 1e3, outcome.delay(class, 0.99).as_us() / 1e3)
            };
            println!(
                "| {load:.1} | {name} | {:.0} % | {:.0} % | {:.0} % | {:.0} % | {:.1} % | {} | {} | {:.0} |",
                100.0 * outcome.used,
                share(arrived[0], ordinary),
                share(outcome.dropped[0], ordinary),
                share(missing, ordinary),
                share(arrived[1], urgent),
                delays(0),
                delays(1),
                outcome.changes.len() as f64 / seconds as f64,
            );
        }
    }
}

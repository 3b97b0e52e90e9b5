//! Credits and explicit rates over emulated links.

#[path = "../../sim/tests/bodies/credit.rs"]
mod body;
#[path = "../../sim/tests/bodies/explicit_rates.rs"]
mod rates;

use std::collections::BTreeMap;

use trunkline_live::{Live, Threads};
use trunkline_record::Record;
use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
use trunkline_units::Seed;

use crate::support::plan;

fn emulate(text: &str) -> Record {
    let mut live = Live::new(Box::new(Threads), BTreeMap::new()).with_emulated_links();
    let plan = plan(text);
    assert_eq!(live.refuse(&plan), []);
    let options = RunOptions {
        seed: Seed(7),
        started_at: String::new(),
        text: text.into(),
        folder: ".".into(),
        out: std::env::temp_dir(),
        stop: StopFlag::default(),
    };
    live.run(&plan, &options, &mut NoProgress)
}

#[test]
fn nothing_is_lost_in_an_emulated_network() {
    body::check(&emulate(body::TEXT));
}

#[test]
fn losses_of_an_emulated_link_never_stop_a_sender() {
    body::check_lossy(&emulate(&body::lossy()));
}

#[test]
fn datagrams_and_guaranteed_messages_share_an_emulated_line() {
    rates::check(&emulate(rates::TEXT));
}

#[test]
fn what_cannot_be_emulated_is_refused() {
    let live = || Live::new(Box::new(Threads), BTreeMap::new()).with_emulated_links();
    let text = "experiment { connection { xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; } }";
    let refusals = live().refuse(&plan(text));
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].text, "an experiment without a network has no link to emulate");
}

//! Tests of the simulator, one module per topic.

mod bodies {
    pub mod bundle;
    pub mod llc;
}
mod applications;
mod atm_control;
mod atm_queues;
mod bbr;
mod bundle;
mod bursts;
mod common;
mod controllers;
mod credit;
mod determinism;
mod explicit_rates;
mod fairness;
mod figures;
mod group;
mod guaranteed_bbr;
mod l4s;
mod llc;
mod llc_token;
mod llc_token_soak;
mod losses;
mod mixes;
mod models;
mod queues;
#[cfg(feature = "quic")]
mod quic;
mod random_plans;
mod routers;
mod send_queue;
mod token;

#[cfg(not(feature = "quic"))]
#[test]
fn a_build_without_quic_refuses_it_in_one_line() {
    use trunkline_run::Backend as _;
    let network = "host a, b; link a - b (rate = 10 Mb/s);";
    let text = common::experiment(network, "protocol = quic; test = full; duration = 1 s;");
    let refusals = trunkline_sim::Sim::default().refuse(&common::plan(&text));
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].text.contains("build it with `--features quic`"), "{refusals:?}");
}
